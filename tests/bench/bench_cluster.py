"""What do other transports take beside shared memory? The same deployed plans, in turns, on one machine.

python tests/bench/bench_cluster.py            prints the table
python tests/bench/bench_cluster.py --write    also writes it to tests/bench/results/bench_cluster.md

One loop, a process for each device with shared memory, MPI's ranks, and workers of Dask with TCP between them run one
after the other in each round, while the others sleep; each runs twice, and the second run counts, as the first one
wakes them. All bits and bytes are compared. What devices do, from the first step of any to the last one, is what
transports decide; the whole run also has the caller's part: Dask's launch and answers are its own row of the aims.
How many processors were free is read before and after, and stands in the table: on a machine that others use, ratios
of medians say more than times.

A second table is of what the caller's own sockets gain on Dask (`dask.hearing`): whole runs with them, and with his
words by distributed's connections. Either is deployed anew in each of five rounds, nothing beside it, and runs often.
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
from queue import SimpleQueue
from time import perf_counter, sleep
from typing import Any, NamedTuple
from unittest import mock

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before NumPy is loaded: times of one thread can be repeated

import numpy as np

HERE = Path(__file__).resolve()
ROOT = HERE.parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(HERE.parent)]

from bench_sets import RESULTS as SETS_RESULTS  # noqa: E402
from bench_sets import machine  # noqa: E402
from exec.run.test_side_by_side import made  # noqa: E402

from tapestry_exec import Backend, ProcessBackend, RunResult, deploy  # noqa: E402
from tapestry_plan import Graph, Mesh, ShardPlan, load_onnx, plan  # noqa: E402
from tapestry_plan.onnx import light_model  # noqa: E402

RESULTS = SETS_RESULTS.with_name("bench_cluster.md")
SIZES, ROUNDS, AIM, LAUNCH_AIM = (2, 4), 15, 1.3, 20.0
WAYS = ("one loop", "shared memory", "MPI", "Dask, TCP", "MPI, 2 ranks")
WORD_ROUNDS, WORD_RUNS, WORD_AIM = 5, 60, 2.0


def list_plans() -> Iterator[tuple[str, ShardPlan, dict[str, Any]]]:
    """Plans with inputs: tiny partial sums, whose time is that of messages, and two networks."""
    for size in SIZES:
        yield f"partial sums, 12 KB, {size} devices", *made(size)
    for name in ("squeezenet", "resnet50"):
        graph: Graph = load_onnx(light_model(name, seed=1))
        given = [one for one in graph.stored.values() if one.kind == "input"]
        rng = np.random.default_rng(0)
        feeds = {x.name: rng.standard_normal(x.shape).astype(x.dtype) for x in given}
        yield f"{name}, {SIZES[-1]} devices", plan(graph, Mesh((SIZES[-1],))), feeds


class Ran(NamedTuple):
    """What a run gave, and the milliseconds that it took: all of it, and from the devices' first step to their last."""

    outputs: dict[str, Any]
    links: dict[tuple[int, int], int]
    whole: float
    devices: float


def run_twice(run: Callable[[], RunResult]) -> Ran:
    """Run, and run again: the second time counts."""
    run()
    begin = perf_counter()
    result = run()
    seconds = perf_counter() - begin
    first = min(event.start for event in result.timeline)
    last = max(event.start + event.seconds for event in result.timeline)
    return Ran(result.outputs, dict(result.nbytes_by_link), 1e3 * seconds, 1e3 * (last - first))


class Ranks:
    """The ranks of an MPI program that run a deployed plan when they are told, and sleep meanwhile."""

    def __init__(self, p: ShardPlan, inputs: dict[str, Any], folder: Path, count: int) -> None:
        (folder / "case").write_bytes(pickle.dumps((p, inputs)))
        there = Path(sys.executable).with_name("mpiexec")
        mpiexec = str(there) if there.exists() else shutil.which("mpiexec") or "mpiexec"
        command = [mpiexec, "-n", str(count), sys.executable, str(HERE), "--rank", str(folder / "case")]
        self.program = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=os.environ)
        self.ask()

    def ask(self, word: str = "run") -> Any:
        """Have them run once; the outputs and the bytes by link."""
        assert self.program.stdin is not None and self.program.stdout is not None
        self.program.stdin.write(f"{word}\n".encode())
        self.program.stdin.flush()
        return Ran(*pickle.load(self.program.stdout)) if word == "run" else None

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
            ran = run_twice(lambda: placed.run(inputs))
            if world.rank == 0:
                sys.stdout.buffer.write(pickle.dumps(tuple(ran)))
                sys.stdout.buffer.flush()


@contextmanager
def deployed(p: ShardPlan, inputs: dict[str, Any]) -> Iterator[dict[str, Callable[[], Any]]]:
    """How to run a plan in each way."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))

        def way(backend: str | Backend[Any]) -> Callable[[], Any]:
            placed = stack.enter_context(deploy(p, backend=backend))
            return lambda: run_twice(lambda: placed.run(inputs))

        size, asked = p.mesh.size, list[Callable[[], Any]]()
        for count in (size, SIZES[0]):
            ranks = Ranks(p, inputs, folder, count)
            stack.callback(ranks.close)
            asked.append(ranks.ask)
        each, shared = asked
        yield dict(
            zip(WAYS, (way("serial"), way(ProcessBackend(processes=size)), each, way("dask"), shared), strict=True)
        )


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


def measure(name: str, p: ShardPlan, inputs: dict[str, Any], rounds: int) -> tuple[str, list[list[float]], float]:
    """A row of the table, ratios to shared memory by way (whole run, devices), and Dask's ms beside its devices."""
    begin = free_processors()
    with deployed(p, inputs) as ways:
        wanted, links, *_ = ways["one loop"]()
        for call in ways.values():
            outputs, moved, *_ = call()
            assert all(outputs[key].tobytes() == array.tobytes() for key, array in wanted.items()), "the same bits"
            assert moved == links == p.nbytes_by_link, "the planned bytes"
        ran = [[call()[2:] for call in ways.values()] for _ in range(rounds)]
    end = free_processors()
    times = np.array(ran)  # by round and way: the whole run, and the devices' part
    middle, least = np.median(times, axis=0), times.min(axis=0)
    ratios = np.median(times / times[:, [1]], axis=0)
    parcels = sum(type(at.step).__name__ == "Send" for d in range(p.mesh.size) for at in prepared_steps(p, d))
    cells = " | ".join(
        f"{middle[k, 0]:.1f} ({least[k, 0]:.1f}), {ratios[k, 0]:.2f}; "
        f"{middle[k, 1]:.1f} ({least[k, 1]:.1f}), {ratios[k, 1]:.2f}"
        for k in range(len(WAYS))
    )
    row = f"| {name} | {parcels} | {p.nbytes_moved:,} | {cells} | {begin:.1f}, {end:.1f} |"
    return row, ratios.tolist(), float(np.median(times[:, 3, 0] - times[:, 3, 1]))


class ByLines(SimpleQueue[Any]):
    """The caller's hearing without wires: all words go by distributed's connections."""

    def connect(self, *_: Any) -> None: ...
    def end_wires(self) -> None: ...
    def close(self) -> None: ...

    def say(self, *_: Any) -> bool:
        return False


def measure_words(name: str, p: ShardPlan, inputs: dict[str, Any]) -> tuple[str, float]:
    """A row of the second table: whole runs on Dask by wires and by lines, and the factor between their medians."""
    from tapestry_exec.dask import backend

    kinds = {"wires": backend.Hearing, "lines": ByLines}
    found: dict[str, list[float]] = {way: [] for way in kinds}
    for number in range(WORD_ROUNDS):
        for way in sorted(kinds, reverse=bool(number % 2)):
            with mock.patch.object(backend, "Hearing", kinds[way]), deploy(p, backend="dask") as placed:
                times = []
                for _ in range(WORD_RUNS):
                    begin = perf_counter()
                    placed.run(inputs)
                    times.append(1e3 * (perf_counter() - begin))
            found[way].append(float(np.median(times[WORD_RUNS // 6 :])))
    lines, wires = (np.array(found[way]) for way in ("lines", "wires"))
    factor = float(np.median(lines) / np.median(wires))
    each = ", ".join(f"{one:.2f}" for one in lines / wires)
    return f"| {name} | {np.median(lines):.2f} | {np.median(wires):.2f} | {factor:.2f} ({each}) |", factor


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
    rows, missed, launches, words = [], [], [], []
    for name, p, inputs in list_plans():
        row, ratios, launch = measure(name, p, inputs, args.rounds)
        print(row, flush=True)
        rows.append(row)
        launches.append(launch)
        if not name.startswith("resnet50"):
            words.append(measure_words(name, p, inputs))
            print(words[-1][0], flush=True)
        missed += [
            f"{way} on {name} {whole:.2f} ({own:.2f})"
            for way, (whole, own) in zip(WAYS[2:], ratios[2:], strict=True)
            if max(whole, own) > AIM
        ]
    head = [
        "# Transports between processes of one machine",
        "",
        f"`python tests/bench/bench_cluster.py --write`, {date.today()}, {machine()}.",
        "Each device has a process, also on fewer cores: what is compared is how parcels go between processes.",
        "Of two ranks each has half of the devices, in turns.",
        f"Constants placed; {args.rounds} rounds, in which each way runs twice and the second time counts. Of whole",
        "runs, then of what devices do from the first step of any to the last: the median of milliseconds (least), and",
        "the median of the ratios to shared memory in the same round. Processors that others left free before and",
        f"after, of {os.cpu_count()}.",
        "",
        f"| plan | parcels | bytes moved | {' | '.join(WAYS)} | free |",
        f"|---|---|---|{'---|' * len(WAYS)}---|",
        *rows,
        "",
        f"MPI and TCP are to take at most {AIM} times what shared memory does; missed, in whole runs (by devices): "
        f"{', '.join(missed) or 'none'}.",
        f"Dask takes {', '.join(f'{one:.1f}' for one in launches)} ms a run beside its devices; aim: {LAUNCH_AIM:.0f}.",
        "Where ranks are more than cores a rank that waits sleeps until one that sends to it wakes it by a semaphore,",
        "as MPI has no wait that the system ends. Where less than a processor was free times are",
        "those of a busy machine: Linux gives each session its share then, and mpiexec begins one for each rank.",
        "All ways gave the same bits, and bytes by link, counted by the senders, as planned. Between hosts they were",
        "run in tests alone, as namespaces of one machine (tests/hosts.py), never over a network: there is no figure.",
        "",
        "## What the caller's own sockets gain on Dask",
        "",
        f"The caller has sockets of his own where a factor of {WORD_AIM:g} demands them. Whole runs with his words by",
        f"distributed's connections (lines), and by his sockets (wires): medians of {WORD_ROUNDS} deployments of each,",
        "in turns, of milliseconds; their factor, and that of each round. Parcels go by wires either way.",
        "",
        "| plan | lines | wires | factor |",
        "|---|---|---|---|",
        *(row for row, _ in words),
        "",
        f"The largest factor is {max(factor for _, factor in words):.2f}.",
        "",
    ]
    print("\n".join(head))
    if args.write:
        RESULTS.write_text("\n".join(head))


if __name__ == "__main__":
    main()
