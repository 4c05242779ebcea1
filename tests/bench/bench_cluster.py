"""What do other transports take beside shared memory? The same deployed plans, in turns, on one machine.

python tests/bench/bench_cluster.py            prints the table
python tests/bench/bench_cluster.py --write    also writes it to tests/bench/results/bench_cluster.md

One loop, a process for each device with shared memory, MPI's ranks, and workers of Dask with TCP between them run one
after the other in each round, while the others sleep. All bits and bytes are compared. How many processors were free
is read before and after, and stands in the table: on a machine that others use, ratios of medians say more than times.
"""

from __future__ import annotations

import argparse
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import date
from pathlib import Path
from time import perf_counter, sleep
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before NumPy is loaded: times of one thread can be repeated

import numpy as np

HERE = Path(__file__).resolve()
ROOT = HERE.parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(HERE.parent)]

from bench_exec import alternated  # noqa: E402
from bench_sets import RESULTS as SETS_RESULTS  # noqa: E402
from bench_sets import machine  # noqa: E402
from exec.run.test_side_by_side import made  # noqa: E402

from tapestry_exec import deploy  # noqa: E402
from tapestry_plan import Graph, Mesh, ShardPlan, load_onnx, plan  # noqa: E402
from tapestry_plan.onnx import light_model  # noqa: E402

RESULTS = SETS_RESULTS.with_name("bench_cluster.md")
DEVICES, ROUNDS, AIM = 4, 15, 1.3
WAYS = ("one loop", "shared memory", "MPI", "Dask, TCP")


def list_plans() -> Iterator[tuple[str, ShardPlan, dict[str, Any]]]:
    """Plans with inputs: tiny partial sums, whose time is that of messages, and two networks."""
    yield "partial sums, 12 KB", *made(DEVICES)
    for name in ("squeezenet", "resnet50"):
        graph: Graph = load_onnx(light_model(name, seed=1))
        given = [one for one in graph.stored.values() if one.kind == "input"]
        rng = np.random.default_rng(0)
        yield name, plan(graph, Mesh((DEVICES,))), {x.name: rng.standard_normal(x.shape).astype(x.dtype) for x in given}


class Ranks:
    """The ranks of an MPI program that run a deployed plan when they are told, and sleep meanwhile."""

    def __init__(self, p: ShardPlan, inputs: dict[str, Any], folder: Path) -> None:
        (folder / "case").write_bytes(pickle.dumps((p, inputs)))
        there = Path(sys.executable).with_name("mpiexec")
        mpiexec = str(there) if there.exists() else shutil.which("mpiexec") or "mpiexec"
        command = [mpiexec, "-n", str(p.mesh.size), sys.executable, str(HERE), "--rank", str(folder / "case")]
        self.program = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=os.environ)
        self.ask()

    def ask(self, word: str = "run") -> Any:
        """Have them run once; the outputs and the bytes by link."""
        assert self.program.stdin is not None and self.program.stdout is not None
        self.program.stdin.write(f"{word}\n".encode())
        self.program.stdin.flush()
        return pickle.load(self.program.stdout) if word == "run" else None

    def close(self) -> None:
        self.ask("end")
        self.program.wait(30)


def be_rank(case: str) -> None:
    """What a rank does: the first one is told by its standard input, the others by it."""
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    p, inputs = pickle.loads(Path(case).read_bytes())
    word = np.zeros(1, np.uint8)
    with deploy(p, backend="mpi") as placed:
        while True:
            if world.rank == 0:
                word[0] = sys.stdin.readline() == "run\n"
            told = world.Ibcast(word)
            while not told.Test():
                sleep(1e-3)
            if not word[0]:
                break
            result = placed.run(inputs)
            if world.rank == 0:
                sys.stdout.buffer.write(pickle.dumps((result.outputs, result.nbytes_by_link)))
                sys.stdout.buffer.flush()


@contextmanager
def deployed(p: ShardPlan, inputs: dict[str, Any]) -> Iterator[dict[str, Callable[[], Any]]]:
    """How to run a plan in each way; all give outputs and bytes by link."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))

        def way(backend: str) -> Callable[[], Any]:
            placed = stack.enter_context(deploy(p, backend=backend))

            def run() -> Any:
                result = placed.run(inputs)
                return result.outputs, result.nbytes_by_link

            return run

        ranks = Ranks(p, inputs, folder)
        stack.callback(ranks.close)
        yield dict(zip(WAYS, (way("serial"), way("processes"), ranks.ask, way("dask")), strict=True))


def free_processors() -> float:
    """How many processors others left free during a second."""

    def idle() -> tuple[int, int]:
        numbers = list(map(int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]))
        return numbers[3] + numbers[4], sum(numbers[:8])

    before, begin = idle(), perf_counter()
    sleep(1)
    after = idle()
    assert perf_counter() > begin
    return (after[0] - before[0]) / (after[1] - before[1]) * (os.cpu_count() or 1)


def measure(name: str, p: ShardPlan, inputs: dict[str, Any], rounds: int) -> tuple[str, list[float]]:
    """A row of the table, and the ratios to shared memory."""
    begin = free_processors()
    with deployed(p, inputs) as ways:
        wanted, links = ways["one loop"]()
        for call in ways.values():
            outputs, moved = call()
            assert all(outputs[key].tobytes() == array.tobytes() for key, array in wanted.items()), "the same bits"
            assert moved == links == p.nbytes_by_link, "the planned bytes"
        seconds = alternated(list(ways.values()), rounds)
    end = free_processors()
    middle, least = np.median(seconds, axis=0) * 1e3, seconds.min(axis=0) * 1e3
    ratios = np.median(seconds / seconds[:, [1]], axis=0)
    parcels = sum(type(at.step).__name__ == "Send" for d in range(p.mesh.size) for at in prepared_steps(p, d))
    cells = " | ".join(f"{a:.1f} ({b:.1f}), {c:.2f}" for a, b, c in zip(middle, least, ratios, strict=True))
    return f"| {name} | {parcels} | {p.nbytes_moved:,} | {cells} | {begin:.1f}, {end:.1f} |", ratios.tolist()


def prepared_steps(p: ShardPlan, device: int) -> Any:
    from tapestry_exec.run import PreparedPlan

    return PreparedPlan(p).programs[device]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--rank", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.rank:
        be_rank(args.rank)
        return
    with suppress(OSError):  # Linux gives each session a share of a busy machine, and mpiexec begins one
        os.setsid()
    rows, missed = [], []
    for name, p, inputs in list_plans():
        row, ratios = measure(name, p, inputs, args.rounds)
        print(row, flush=True)
        rows.append(row)
        missed += [f"{way} on {name} {r:.2f}" for way, r in zip(WAYS[2:], ratios[2:], strict=True) if r > AIM]
    head = [
        "# Transports between processes of one machine",
        "",
        f"`python tests/bench/bench_cluster.py --write`, {date.today()}, {machine()}. {DEVICES} devices, constants",
        f"placed; {args.rounds} rounds, in which each way runs once. Median of milliseconds (least), and the median of",
        "the ratios to shared memory in the same round; processors that others left free before and after, of "
        f"{os.cpu_count()}.",
        "",
        f"| plan | parcels | bytes moved | {' | '.join(WAYS)} | free |",
        f"|---|---|---|{'---|' * len(WAYS)}---|",
        *rows,
        "",
        f"MPI and TCP are to take at most {AIM} times shared memory's time; missed: {', '.join(missed) or 'none'}.",
        "Where less than a processor was free, times are those of a busy machine: Linux gives each session its share",
        "then, and mpiexec begins one for each rank, so that MPI looks better there than it is.",
        "All ways gave the same bits, and bytes by link, counted by the senders, as planned. Several hosts: never run.",
        "",
    ]
    print("\n".join(head))
    if args.write:
        RESULTS.write_text("\n".join(head))


if __name__ == "__main__":
    main()
