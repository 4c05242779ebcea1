"""What becomes of a run whose devices are killed, stopped, cut off or raise? On processes and on Dask's workers.

python tests/bench/bench_faults.py            prints the table
python tests/bench/bench_faults.py --write    also writes it to tests/bench/results/bench_faults.md

Each time a plan is deployed, one of its devices meets one fault in a run, and all begin again.
A run counts as recovered when it has the bits and bytes of the run of one loop. Who was stopped is given up after
three seconds here; a worker of Dask's is woken again behind the run, and counts for one that is lost until then.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before NumPy is loaded: bits are those of one thread

import numpy as np

HERE = Path(__file__).resolve()
ROOT = HERE.parents[2]
sys.path[:0] = [str(ROOT), str(HERE.parent)]
os.environ["PYTHONPATH"] = str(ROOT)  # for the workers

from bench_sets import RESULTS as SETS_RESULTS  # noqa: E402
from bench_sets import machine  # noqa: E402

from tapestry_exec import DaskBackend, ProcessBackend, StepFailed, deploy, run  # noqa: E402
from tests.exec.own_ops import Sabotage, as_relu  # noqa: E402
from tests.exec.run.test_side_by_side import made  # noqa: E402

RESULTS = SETS_RESULTS.with_name("bench_faults.md")
KINDS = {
    "computing": "killed while it computes",
    "sending": "killed while it sends",
    "receiving": "killed while it receives",
    "last": "killed after its last step",
    "stopping": "stopped for good",
    "raising": "a step raises",
}
OF_WORKERS = {"eating": "takes more memory than its worker may have"}
CUTS = {"cut for 1 s": 0, "cut for longer than the patience of 8 s": 1}
"""Of a worker's network; with the place of each in what `tests.exec.dask.cut_network` prints."""
DEVICES, ROUNDS, RETRIES, PATIENCE = 3, 20, 3, 3.0


class Tried(NamedTuple):
    """One run with a fault: whether it recovered, its seconds, and what was sent in generations that ended.

    As far as it is known: of how many devices it is not.
    """

    recovered: bool
    seconds: float
    beyond: int
    unknown: int


def try_once(kind: str, backend: Any) -> Tried:
    """Run a plan in which one device meets a fault once."""
    p, inputs = made(DEVICES)
    wanted = run(p, inputs, backend="serial")
    with (
        tempfile.TemporaryDirectory() as folder,
        deploy(p, backend=backend, ops=as_relu(Sabotage([kind], folder))) as placed,
    ):
        begin = perf_counter()
        try:
            found = placed.run(inputs)
        except StepFailed as error:
            print(f"{kind}: {error}", file=sys.stderr)
            return Tried(False, perf_counter() - begin, 0, 0)
        seconds = perf_counter() - begin
    same = all(found.outputs[name].tobytes() == array.tobytes() for name, array in wanted.outputs.items())
    same &= found.nbytes_by_link == wanted.nbytes_by_link and len(found.faults) >= 1
    told = [sent for fault in found.faults for sent in fault.nbytes_sent]
    return Tried(same, seconds, sum(sent or 0 for sent in told), told.count(None))


def measure(what: str, make: Callable[[str], Any], rounds: int, kinds: Mapping[str, str] = KINDS) -> list[str]:
    """Rows of the table."""
    return [tell(what, words, [try_once(kind, make(kind)) for _ in range(rounds)]) for kind, words in kinds.items()]


def tell(what: str, words: str, tried: Sequence[Tried]) -> str:
    seconds, beyond = [one.seconds for one in tried], [one.beyond for one in tried]
    row = (
        f"| {what} | {words} | {len(tried)} | {sum(one.recovered for one in tried)} | {np.median(seconds):.1f} "
        f"({max(seconds):.1f}) | {int(np.median(beyond)):,} ({max(beyond):,}) | {max(one.unknown for one in tried)} |"
    )
    print(row, flush=True)
    return row


def measure_cuts(rounds: int) -> list[str]:
    """Rows of workers in network namespaces of their own, whose cables are cut."""
    every: list[list[dict[str, Any]]] = []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            command = ["unshare", "--net", sys.executable, "-m", "tests.exec.dask.cut_network", folder]
            done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
            every.append([json.loads(line) for line in done.stdout.splitlines()])
    return [
        tell(
            "Dask, 3 networks",
            words,
            [
                Tried(a[k]["same"] and len(a[k]["faults"]) == k, a[k]["seconds"], a[k]["in vain"], a[k]["unknown"])
                for a in every
            ],
        )
        for words, k in CUTS.items()
    ]


def main() -> None:
    import dask
    from distributed import Client, LocalCluster

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    args = parser.parse_args()
    rows = measure(
        "processes", lambda kind: ProcessBackend(retries=RETRIES, patience=PATIENCE, processes=DEVICES), args.rounds
    )
    p, _ = made(DEVICES)
    with (
        dask.config.set({"distributed.deploy.lost-worker-timeout": "1 hour"}),  # else it gives up who is down then
        LocalCluster(
            n_workers=DEVICES + 1,
            threads_per_worker=1,
            memory_limit="1GB",
            resources={"tapestry": 1},
            dashboard_address=":0",
            silence_logs=logging.CRITICAL,
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):

        def place(kind: str) -> DaskBackend:
            wake(cluster)
            client.wait_for_workers(DEVICES, timeout=120)  # Dask may take minutes to bring the spare one back
            return DaskBackend(client, retries=RETRIES, patience=PATIENCE if kind == "stopping" else 20)

        rows += measure("Dask, a cluster", place, args.rounds, KINDS | OF_WORKERS)
    if subprocess.run(["unshare", "--net", "true"]).returncode == 0:
        rows += measure_cuts(args.rounds)
    load = os.getloadavg()[1]
    text = "\n".join(
        [
            "# Faults: tried and recovered",
            "",
            f"`python tests/bench/bench_faults.py --write`, {date.today()}, {machine()}; load {load:.0f} meanwhile.",
            f"Partial sums on {DEVICES} devices, {p.nbytes_moved:,} B by plan; medians (most).",
            "",
            "| devices | fault | tried | same bits and bytes | seconds | bytes sent in vain | not known of devices |",
            "|---|---|---|---|---|---|---|",
            *rows,
            "",
        ]
    )
    if args.write:
        RESULTS.write_text(text)


def wake(cluster: Any) -> None:
    """Let workers go on that were stopped; in a cluster of others someone has to."""
    for nanny in cluster.workers.values():
        if nanny.pid is not None:
            os.kill(nanny.pid, signal.SIGCONT)


if __name__ == "__main__":
    main()
