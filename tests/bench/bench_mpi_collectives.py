"""Do MPI's collectives pay beside single messages? The same deployed plans both ways, in turns, on the same ranks.

python tests/bench/bench_mpi_collectives.py            prints the table
python tests/bench/bench_mpi_collectives.py --write    also writes it to tests/bench/results/bench_mpi_collectives.md

Each way runs twice in a round, and the second run counts, as in `bench_cluster.py`, from which all else is, too. Bits
and bytes are compared with one loop.
"""

from __future__ import annotations

import argparse
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from datetime import date
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before NumPy is loaded: times of one thread can be repeated

import numpy as np
from bench_cluster import SETS_RESULTS, free_processors, machine, made, run_twice
from exec.small_networks import exchange_rows

from tapestry_exec import MpiBackend, deploy
from tapestry_plan import ShardPlan

RESULTS = SETS_RESULTS.with_name("bench_mpi_collectives.md")
ROUNDS = 100


def list_plans() -> Iterator[tuple[str, ShardPlan, dict[str, Any]]]:
    for devices in (2, 4):
        yield f"one all-gather of {devices} × 64 KB", *exchange_rows(devices, 1, 64, 256)
        yield f"5 all-gathers of {devices} × 64 KB, 4 all-to-alls", *exchange_rows(devices, 5, 64, 256)
        yield f"partial sums, 12 KB, {devices} devices", *made(devices)


def be_rank(file: str, rounds: int) -> None:
    """What each rank does: the first one prints what was measured."""
    from mpi4py import MPI

    p, inputs, wanted = pickle.loads(Path(file).read_bytes())
    ways = MpiBackend(collectives=False), MpiBackend(collectives=True)
    times = np.zeros((rounds, 2, 2))
    with deploy(p, backend=ways[0]) as messages, deploy(p, backend=ways[1]) as calls:
        for k in range(rounds):
            for way, placed in [(0, messages), (1, calls)][:: 1 if k % 2 else -1]:
                ran = run_twice(lambda placed=placed: placed.run(inputs))  # type: ignore[misc]
                assert all(ran.outputs[key].tobytes() == array.tobytes() for key, array in wanted.items())
                assert ran.links == p.nbytes_by_link
                times[k, way] = ran[2:]
    assert not ways[0].calls and ways[1].calls.total(), "calls were made in one way alone"
    if MPI.COMM_WORLD.rank == 0:
        sys.stdout.buffer.write(pickle.dumps((times, ways[1].calls.total() // (2 * rounds))))


def measure(name: str, p: ShardPlan, inputs: dict[str, Any], rounds: int) -> str:
    """A row of the table."""
    with tempfile.TemporaryDirectory() as folder, deploy(p, backend="serial") as one:
        file = Path(folder, "case")
        file.write_bytes(pickle.dumps((p, inputs, one.run(inputs).outputs)))
        there = Path(sys.executable).with_name("mpiexec")
        mpiexec = str(there) if there.exists() else shutil.which("mpiexec") or "mpiexec"
        command = [mpiexec, "-n", str(p.mesh.size), sys.executable, __file__, "--rank", str(file)]
        begin = free_processors()
        done = subprocess.run([*command, "--rounds", str(rounds)], stdout=subprocess.PIPE, check=True)
    times, calls = pickle.loads(done.stdout)
    middle, least = np.median(times, axis=0), times.min(axis=0)
    ratios = np.median(times[:, 1] / times[:, 0], axis=0)
    cells = " | ".join(
        f"{middle[way, 0]:.2f} ({least[way, 0]:.2f}); {middle[way, 1]:.2f} ({least[way, 1]:.2f})" for way in (0, 1)
    )
    sends = sum(one.nbytes_moved // one.nbytes for one in p.collectives())
    return f"| {name} | {sends} | {calls} | {cells} | {ratios[0]:.2f}; {ratios[1]:.2f} | {begin:.1f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--rank", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.rank:
        be_rank(args.rank, args.rounds)
        return
    with suppress(OSError):  # Linux gives each session a share of a busy machine, and mpiexec begins one
        os.setsid()
    lines = [
        "# Collectives of MPI beside single messages",
        "",
        f"`python tests/bench/bench_mpi_collectives.py --write`, {date.today()}, {machine()}.",
        f"Constants placed; {args.rounds} rounds. Of whole runs, then of what devices do from the first step of any to",
        "the last: the median of milliseconds (least), and the median of the ratios in the same round. Calls are those",
        f"of the first rank; free are the processors that others left before, of {os.cpu_count()}.",
        "",
        "| plan | copies in collectives | calls a run | single messages | collectives | ratio | free |",
        "|---|---|---|---|---|---|---|",
    ]
    print("\n".join(lines))
    for name, p, inputs in list_plans():
        lines.append(measure(name, p, inputs, args.rounds))
        print(lines[-1], flush=True)
    if args.write:
        RESULTS.write_text("\n".join([*lines, ""]))


if __name__ == "__main__":
    main()
