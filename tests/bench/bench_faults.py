"""What becomes of a run whose devices are killed, stopped, cut off or raise? On processes and on Dask's workers.

python tests/bench/bench_faults.py                                        prints the table
python tests/bench/bench_faults.py --write                                also writes it, to results/bench_faults.md
python tests/bench/bench_faults.py --kinds sending --rounds 20 --write    writes these rows anew, and leaves the others

Each time a plan is deployed, one of its devices meets one fault in a run, and all begin again.
A run counts as recovered when it has the bits and bytes of the run of one loop, and the faults that the kind is to
have: none where devices are waited for. Who was stopped is given up after three seconds here; a worker of Dask's is
woken again behind the run, and counts for one that is lost until then. Where the client is killed, the run counts that
another one goes on with, from the checkpoint.
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
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import date
from itertools import chain
from pathlib import Path
from threading import Thread
from time import perf_counter, sleep
from typing import Any, NamedTuple
from unittest import mock

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before NumPy is loaded: bits are those of one thread

import numpy as np

HERE = Path(__file__).resolve()
ROOT = HERE.parents[2]
sys.path[:0] = [str(ROOT), str(HERE.parent)]
os.environ["PYTHONPATH"] = str(ROOT)  # for the workers

from bench_sets import RESULTS as SETS_RESULTS  # noqa: E402
from bench_sets import machine  # noqa: E402

from tapestry_exec import BackendUnavailable, DaskBackend, ProcessBackend, StepFailed, deploy, run  # noqa: E402
from tapestry_exec.run import tuning  # noqa: E402
from tapestry_exec.run.checkpoints.folders import list_finished  # noqa: E402
from tests.exec.dask.clusters import keep_away, put_another  # noqa: E402
from tests.exec.own_ops import Sabotage, as_relu  # noqa: E402
from tests.exec.processes.test_processes import list_processes, of_mine, wait_until  # noqa: E402
from tests.exec.run.test_checkpoints import chain as chain_of_stages  # noqa: E402
from tests.exec.run.test_side_by_side import made  # noqa: E402
from tests.hosts import IN_NETWORK  # noqa: E402

RESULTS = SETS_RESULTS.with_name("bench_faults.md")
KINDS = {
    "first": "killed before the first step",
    "computing": "killed while it computes",
    "sending": "killed while it sends",
    "receiving": "killed while it receives",
    "last": "killed after its last step",
    "two": "two killed at once while they compute",
    "stopping": "stopped for good",
    "continued": "stopped, and continued after 1 s",
    "late": "joins late",
    "never": "never returns",
    "raising": "a step raises",
    "client": "the client is killed, and another one goes on",
    "eating": "takes more memory than its worker may have",
    "cut": "cut for 1 s",
    "cut long": "cut for longer than the patience of 8 s",
}
OF_WORKERS = ("eating", "cut", "cut long")
"""Of Dask alone: processes of this machine share its memory, and have no network between them."""
CUTS = {"cut": 0, "cut long": 1}
"""The place of each in what `tests.exec.dask.cut_network` prints."""
WAITED_FOR = ("continued", "client")
"""Kinds after which nobody begins again; on processes also who joins late."""
PROCESSES, DASK = "processes", "Dask"
DEVICES, ROUNDS, RETRIES, PATIENCE, WAIT_SECONDS = 3, 20, 3, 3.0, 10.0
HEAD = "| devices | fault | tried | same bits and bytes | seconds | bytes sent in vain | unknown of devices | made |"


class Tried(NamedTuple):
    """One run with a fault: whether it recovered, its seconds, and bytes sent in generations that ended.

    `unknown` is of how many devices nobody knows what they had sent.
    """

    recovered: bool
    seconds: float
    beyond: int
    unknown: int = 0


# ------------------------------------------------------------------------------------------------- one fault


def begin_aside(kind: str, there: Path, place: Place, placed: Any) -> Thread | None:
    """What is done to devices from outside, while they run; some of it before."""
    flag, done = there / "0", there / "done"
    if kind == "first":
        place.kill(placed, 1)
    elif kind == "late" and place.name == DASK:
        name = keep_away(place.cluster, placed._session.workers[0])
    elif kind not in ("two", "continued"):
        return None

    def act() -> None:
        if kind == "first":
            done.touch()
            return
        wait_until(flag.exists)
        if kind == "two":
            place.kill(placed, 2)
        elif kind == "continued":
            victim = int((there / "process").read_text())
            wait_until(lambda: is_stopped(victim))
            if not is_stopped(victim):
                return
            sleep(1)
            with suppress(ProcessLookupError):  # given up before
                os.kill(victim, signal.SIGCONT)
        else:
            wait_until(lambda: place.count_workers() < DEVICES)
            sleep(1)
            put_another(place.cluster, name)
        done.touch()

    thread = Thread(target=act)
    thread.start()
    return thread


def is_stopped(process: int) -> bool:
    """Whether the system says so."""
    return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] == "T"


class Place:
    """Where devices are: processes of the caller's, or workers of a cluster.

    Parameters
    ----------
    name : str
    """

    def __init__(self, name: str, cluster: Any = None, client: Any = None) -> None:
        self.name, self.cluster, self.client = name, cluster, client

    def make(self, kind: str) -> Any:
        """The backend for a run with a fault of a kind."""
        if self.name == PROCESSES:
            return ProcessBackend(retries=RETRIES, patience=PATIENCE, processes=DEVICES)
        if kind == "never":  # of workers of its own, which end with it: in a cluster one would never be free again
            return DaskBackend(retries=RETRIES)
        wake(self.cluster)
        self.client.wait_for_workers(DEVICES, timeout=120)  # Dask may take minutes to bring the spare one back
        return DaskBackend(self.client, retries=RETRIES, patience=PATIENCE if kind == "stopping" else 20)

    def kill(self, placed: Any, count: int) -> None:
        """Kill some devices at once."""
        if self.name == PROCESSES:
            victims = sorted(of_mine() - {placed._session.server.pid})
        else:
            pids = self.client.run(os.getpid)
            victims = [pids[placed._session.workers[device]] for device in range(DEVICES)]
        for victim in victims[:count]:
            os.kill(victim, signal.SIGKILL)

    def count_workers(self) -> int:
        """How many the scheduler knows."""
        return len(self.client.scheduler_info(n_workers=-1)["workers"])


def wake(cluster: Any) -> None:
    """Let workers go on that were stopped; in a cluster of others someone has to."""
    for nanny in cluster.workers.values():
        if nanny.pid is not None:
            os.kill(nanny.pid, signal.SIGCONT)


IN_BLOCKS = {"two": "waiting", "continued": "stopping", "first": "", "late": "computing"}
"""What a device does in its block, where a kind is done from outside."""


def try_once(kind: str, place: Place) -> Tried:
    """Run a plan in which one device meets a fault once."""
    begin = perf_counter()
    try:
        if kind == "client":
            return try_client(place)
        if kind == "late" and place.name == PROCESSES:
            return try_late_process(place)
        return try_device(kind, place)
    except (StepFailed, BackendUnavailable, ValueError) as error:
        print(f"{kind}: {error}", file=sys.stderr)
        return Tried(False, perf_counter() - begin, 0)


def try_device(kind: str, place: Place) -> Tried:
    """Something is done to a device, by itself or from outside."""
    p, inputs = made(DEVICES)
    wanted = run(p, inputs, backend="serial")
    with tempfile.TemporaryDirectory() as folder:
        sabotage = Sabotage([one] if (one := IN_BLOCKS.get(kind, kind)) else [], folder)
        most = WAIT_SECONDS if kind == "never" else tuning.MAX_WAIT_SECONDS
        with (
            mock.patch.object(tuning, "MAX_WAIT_SECONDS", most),
            deploy(p, backend=place.make(kind), ops=as_relu(sabotage)) as placed,
        ):
            aside = begin_aside(kind, Path(folder), place, placed)
            begin = perf_counter()
            try:
                found = placed.run(inputs)
            finally:
                if aside is not None:
                    aside.join()
            seconds = perf_counter() - begin
        was_done = Path(folder, "done" if aside is not None else "0").exists()
    same = all(found.outputs[name].tobytes() == array.tobytes() for name, array in wanted.outputs.items())
    same &= found.nbytes_by_link == wanted.nbytes_by_link and was_done
    same &= not found.faults if kind in WAITED_FOR else len(found.faults) >= 1
    told = [sent for fault in found.faults for sent in fault.nbytes_sent]
    return Tried(same, seconds, sum(sent or 0 for sent in told), told.count(None))


def try_late_process(place: Place) -> Tried:
    """A device's process is stopped as soon as it is there, for a second: the others wait for it."""
    p, inputs = made(DEVICES)
    wanted = run(p, inputs, backend="serial")
    held = list[int]()

    def hold() -> None:
        wait_until(lambda: len(of_mine()) == DEVICES + 1)
        late = max(of_mine())
        os.kill(late, signal.SIGSTOP)
        wait_until(lambda: is_stopped(late))
        held.extend([late] * is_stopped(late))
        sleep(1)
        with suppress(ProcessLookupError):  # given up before
            os.kill(late, signal.SIGCONT)

    holding = Thread(target=hold)
    begin = perf_counter()
    holding.start()
    try:
        found = run(p, inputs, backend=place.make("late"))
    finally:
        holding.join()
    seconds = perf_counter() - begin
    same = all(found.outputs[name].tobytes() == array.tobytes() for name, array in wanted.outputs.items())
    same &= found.nbytes_by_link == wanted.nbytes_by_link and not found.faults and len(held) == 1
    return Tried(same, seconds, 0)


CALLER = """
import sys
from tapestry_exec import Checkpoints, DaskBackend, ProcessBackend, run
from tests.exec.own_ops import Sabotage, as_relu
from tests.exec.run.test_checkpoints import chain
there, address = sys.argv[1:]
p, inputs = chain()
backend = DaskBackend(address) if address else ProcessBackend(processes=2)
ops = as_relu(Sabotage(["dozing", "dozing", "waiting"], there))
run(p, inputs, backend=backend, ops=ops, checkpoints=Checkpoints(f"{there}/saved", after=["act0", "act1"]))
"""


def try_client(place: Place) -> Tried:
    """A caller is killed while its devices are behind a checkpoint; this process goes on from there."""
    p, inputs = chain_of_stages()
    wanted = run(p, inputs, backend="serial")
    before = set(list_processes())
    address = place.client.scheduler.address if place.name == DASK else ""
    backend = place.make("client")
    with tempfile.TemporaryDirectory() as folder:
        saved = Path(folder, "saved")
        with subprocess.Popen([sys.executable, "-c", CALLER, folder, address], cwd=ROOT) as caller:
            stop = perf_counter() + 120
            while not (Path(folder, "2").exists() and list_finished(saved)) and perf_counter() < stop:
                sleep(0.01)
            is_running = caller.poll() is None
            caller.kill()
        if place.name == DASK:  # nobody ends a block in a worker's thread
            Path(folder, "go on").touch()
        begin = perf_counter()
        found = run(p, inputs, backend=backend, resume=saved)
        seconds = perf_counter() - begin
    wait_until(lambda: set(list_processes()) <= before)
    same = all(found.outputs[name].tobytes() == array.tobytes() for name, array in wanted.outputs.items())
    same &= is_running and found.resumed_at is not None and not found.faults and set(list_processes()) <= before
    return Tried(same, seconds, 0)


def try_cuts() -> list[dict[str, Any]]:
    """Runs on workers in network namespaces of their own, whose cables are cut."""
    with tempfile.TemporaryDirectory() as folder:
        command = [*IN_NETWORK, sys.executable, "-m", "tests.exec.dask.cut_network", folder]
        done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
        return [json.loads(line) for line in done.stdout.splitlines()]


# --------------------------------------------------------------------------------------------------- the table


def tell(what: str, kind: str, tried: Sequence[Tried]) -> str:
    """A row of the table, with the day on which it was made."""
    seconds, beyond = [one.seconds for one in tried], [one.beyond for one in tried]
    vain = "not told" if kind == "client" else f"{int(np.median(beyond)):,} ({max(beyond):,})"
    return (
        f"| {what} | {KINDS[kind]} | {len(tried)} | {sum(one.recovered for one in tried)} | {np.median(seconds):.1f} "
        f"({max(seconds):.1f}) | {vain} | {max(one.unknown for one in tried)} | "
        f"{date.today()}, load {os.getloadavg()[1]:.0f} |"
    )


def measure(place: Place, what: str, kinds: Iterable[str], rounds: int) -> Iterator[str]:
    """Rows of the table."""
    yield from (tell(what, kind, [try_once(kind, place) for _ in range(rounds)]) for kind in kinds)


@contextmanager
def open_cluster(workers: int) -> Iterator[Place]:
    """A cluster of workers of this machine."""
    import dask
    from distributed import Client, LocalCluster

    with (
        dask.config.set({"distributed.deploy.lost-worker-timeout": "1 hour"}),  # else it gives up who is down then
        LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            memory_limit="1GB",
            resources={"tapestry": 1},
            dashboard_address=":0",
            silence_logs=logging.CRITICAL,
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield Place(DASK, cluster, client)


def measure_on_dask(kinds: Sequence[str], rounds: int) -> Iterator[str]:
    """Rows of Dask's workers."""
    what = "Dask, a cluster"
    if plain := [kind for kind in kinds if kind not in ("late", *CUTS)]:
        with open_cluster(DEVICES + 1) as place:
            yield from measure(place, what, plain, rounds)
    if "late" in kinds:  # without one to spare: so the others wait for another one
        with open_cluster(DEVICES) as place:
            yield from measure(place, what, ["late"], rounds)
    if cuts := [kind for kind in kinds if kind in CUTS]:
        if subprocess.run(["unshare", "--net", "true"]).returncode:
            print("network namespaces are not allowed here", file=sys.stderr)
            return
        every = [try_cuts() for _ in range(rounds)]
        for kind in cuts:
            told = [one[CUTS[kind]] for one in every]
            tried = [
                Tried(a["same"] and len(a["faults"]) == CUTS[kind], a["seconds"], a["in vain"], a["unknown"])
                for a in told
            ]
            yield tell("Dask, 3 networks", kind, tried)


def join_rows(old: str, new: str) -> list[str]:
    """The rows of a table and one that was made now, each kind once, in the order of `KINDS`."""
    rows = [line for line in old.splitlines() if line.startswith(("| processes", "| Dask"))]
    by_key = {tuple(row.split("|")[1:3]): row for row in (*rows, new)}
    words = list(KINDS.values())
    return sorted(by_key.values(), key=lambda row: (row.startswith("| Dask"), words.index(row.split("|")[2].strip())))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write these rows anew")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS), metavar="KIND")
    parser.add_argument("--on", nargs="+", choices=[PROCESSES, DASK], default=[PROCESSES, DASK])
    args = parser.parse_args()
    on_processes = (kind for kind in args.kinds if kind not in OF_WORKERS and PROCESSES in args.on)
    rows = measure(Place(PROCESSES), PROCESSES, on_processes, args.rounds)
    for row in chain(rows, measure_on_dask(args.kinds, args.rounds) if DASK in args.on else ()):
        print(row, flush=True)
        if args.write:
            write_row(row)


def write_row(row: str) -> None:
    """Write a row into the table, in the place of the one that was there."""
    text = "\n".join(
        [
            "# Faults: tried and recovered",
            "",
            f"`python tests/bench/bench_faults.py --write`, {machine()}; rows are made one by one (`--kinds`).",
            f"Partial sums on {DEVICES} devices, {made(DEVICES)[0].nbytes_moved:,} B by plan; where the client is "
            "killed a chain on 2. Medians (most).",
            "",
            HEAD,
            "|---" * HEAD.count(" | ") + "|---|",
            *join_rows(RESULTS.read_text() if RESULTS.exists() else "", row),
            "",
        ]
    )
    RESULTS.write_text(text)


if __name__ == "__main__":
    main()
