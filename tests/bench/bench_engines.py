"""What do other engines take for the same work? Halos, a cut turned around, and a product, on as many processes.

python tests/bench/bench_engines.py            prints the table
python tests/bench/bench_engines.py --write    also writes it to tests/bench/results/bench_engines.md

Each engine holds the arrays cut over its 4 processes before anything is timed, and gives back the sum of the result,
so that what is timed is the exchange and the work, not the way to the client. The engines run in turns:

- tapestry, the plan deployed on processes with shared memory, and on workers of Dask with TCP between them;
- dask.array on as many workers of one thread, with arrays persisted there;
- actors of Ray, where it is installed, with blocks cut and exchanged by hand.

Bytes of tapestry are counted by the senders and compared with the plan; those of dask.array are read from its workers'
logs of transfers; those of Ray follow from the blocks that the program hands over. Sums are compared with NumPy's.
At sizes of which memory does not hold an engine beside another, each runs alone, in a process of its own (`--large`).
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import date
from functools import partial
from pathlib import Path
from time import perf_counter, sleep
from typing import Any, NamedTuple

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before NumPy is loaded: each process computes on one thread

import numpy as np

HERE = Path(__file__).resolve()
ROOT = HERE.parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(HERE.parent)]

from bench_cluster import free_processors  # noqa: E402
from bench_exec import alternated  # noqa: E402
from bench_sets import RESULTS as SETS_RESULTS  # noqa: E402
from bench_sets import machine  # noqa: E402

from tapestry_exec import ProcessBackend, deploy  # noqa: E402
from tapestry_exec.run import free_nbytes  # noqa: E402
from tapestry_plan import Graph, Mesh, ShardPlan, ops, plan  # noqa: E402

RESULTS = SETS_RESULTS.with_name("bench_engines.md")
DEVICES, ROUNDS = 4, 5
KEPT_FREE_NBYTES = 2 << 30
"""Memory that is left to the system and to others: an engine that takes more is ended."""
WAYS = ("tapestry, processes", "tapestry, Dask workers", "dask.array", "Ray actors")
WEIGHTS = np.arange(1.0, 10.0).reshape(3, 3) / 45
Run = Callable[[], tuple[float, int | None]]
"""Runs once: the sum of the result, and the bytes that went between processes, where the engine counts them."""


class Case(NamedTuple):
    """A piece of work at a size, for each engine."""

    name: str
    size: int
    make_plan: Callable[[], ShardPlan]
    find_sum: Callable[[], float]
    """What NumPy says that the result sums to."""
    in_dask: Callable[[], Any]
    in_ray: Callable[[Any], Run]


def make_array(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((n, n))


def smooth(padded: np.ndarray) -> np.ndarray:
    """The weighted sum of each cell's nine neighbors; a ring of cells is given beside."""
    rows, columns = padded.shape[0] - 2, padded.shape[1] - 2
    out, part = np.zeros((rows, columns)), np.empty((rows, columns))
    for i in range(3):
        for j in range(3):
            out += np.multiply(padded[i : i + rows, j : j + columns], WEIGHTS[i, j], out=part)
    return out


def sum_smoothed(n: int) -> float:
    """By slabs of rows: at large sizes there is no room for all at once."""
    x, total = make_array(n), 0.0
    for begin in range(0, n, n // DEVICES):
        end = begin + n // DEVICES
        above, below = int(begin == 0), int(end == n)
        slab = np.pad(x[begin - 1 + above : end + 1 - below], ((above, below), (1, 1)))
        total += float(smooth(slab).sum())
    return total


def sum_negated(n: int) -> float:
    return -float(make_array(n).sum())


def sum_product(n: int) -> float:
    """The sum of a product is that of columns' sums times rows' sums."""
    return float(make_array(n).sum(0) @ make_array(n, 1).sum(1))


def smooth_rows(block: np.ndarray) -> np.ndarray:
    """As `smooth`, of complete rows, of which one is given beside on either side."""
    return smooth(np.pad(block, ((0, 0), (1, 1))))


# ------------------------------------------------------------------------------------------------------ tapestry's


def plan_stencil(n: int) -> ShardPlan:
    g = Graph()
    x = g.constant("x", make_array(n)[None, None])
    g.output(ops.conv(x, g.constant("weights", WEIGHTS[None, None]), pads=(1, 1, 1, 1), name="smooth").sum(), "total")
    return plan(g, Mesh(DEVICES), layout={"x": {2: DEVICES}}, fix={"smooth": {"h": DEVICES}})


def plan_turn(n: int) -> ShardPlan:
    g = Graph()
    g.output(ops.negative(g.constant("x", make_array(n)), name="negative").sum(), "total")
    return plan(g, Mesh(DEVICES), layout={"x": {0: DEVICES}}, fix={"negative": {"i1": DEVICES}})


def plan_product(n: int) -> ShardPlan:
    g = Graph()
    a, b = g.constant("a", make_array(n)), g.constant("b", make_array(n, 1))
    g.output(ops.matmul(a, b, name="product").sum(), "total")
    quarters = {0: 2, 1: 2}
    return plan(g, Mesh(DEVICES), layout={"a": quarters, "b": quarters}, fix={"product": {"m": 2, "n": 2}})


# ---------------------------------------------------------------------------------------------------- dask.array's


def persisted(n: int, chunks: tuple[int, int], seed: int = 0) -> Any:
    """An array cut over the workers."""
    import dask.array as da
    from distributed import wait

    there = da.from_array(make_array(n, seed), chunks=chunks).persist()
    wait(there)
    return there


def stencil_in_dask(n: int, both: bool) -> Any:
    x = persisted(n, (n // DEVICES, n))
    if both:
        return x.map_overlap(smooth, depth=1, boundary=0, trim=False, dtype=x.dtype, chunks=x.chunks).sum()
    rows = {"depth": {0: 1, 1: 0}, "boundary": {0: 0, 1: "none"}}
    return x.map_overlap(smooth_rows, **rows, trim=False, dtype=x.dtype, chunks=x.chunks).sum()


def turn_in_dask(n: int) -> Any:
    return (-persisted(n, (n // DEVICES, n)).rechunk((n, n // DEVICES))).sum()


def product_in_dask(n: int) -> Any:
    import dask.array as da

    quarters = (n // 2, n // 2)
    return da.tensordot(persisted(n, quarters), persisted(n, quarters, 1), axes=1).sum()


# ----------------------------------------------------------------------------------------------------------- Ray's


class Holder:
    """A process with blocks, of which it gives parts and takes those of others."""

    def __init__(self, *blocks: np.ndarray) -> None:
        self.blocks = blocks

    def give(self, *parts: tuple[int, Any]) -> Any:
        """Parts of blocks by number; each by itself where there are several."""
        given = [np.ascontiguousarray(self.blocks[k][cells]) for k, cells in parts]
        return given if len(given) > 1 else given[0]

    def smooth(self, above: np.ndarray | None, below: np.ndarray | None) -> float:
        (x,) = self.blocks
        row = np.zeros((1, x.shape[1]))
        inside = np.concatenate([row if above is None else above, x, row if below is None else below])
        return float(smooth_rows(inside).sum())

    def negate(self, *blocks: np.ndarray) -> float:
        return float((-np.concatenate(blocks)).sum())

    def multiply(self, a: list[np.ndarray], b: list[np.ndarray]) -> float:
        return float((np.hstack(a) @ np.vstack(b)).sum())

    def multiply_with(self, k: int, other_a: np.ndarray, other_b: np.ndarray) -> float:
        """With own blocks at place `k` of the two."""
        a, b = self.blocks
        pairs = [(a, other_a), (b, other_b)]
        row, column = k // 2, k % 2
        return self.multiply(list(pairs[0][:: -1 if column else 1]), list(pairs[1][:: -1 if row else 1]))


def stencil_in_ray(n: int, ray: Any) -> Run:
    rows, x = n // DEVICES, make_array(n)
    actors = [ray.remote(Holder).remote(x[d * rows : (d + 1) * rows]) for d in range(DEVICES)]

    def run() -> tuple[float, int | None]:
        first = [one.give.remote((0, np.s_[:1])) for one in actors]
        last = [one.give.remote((0, np.s_[-1:])) for one in actors]
        sums = [
            one.smooth.remote(last[d - 1] if d else None, first[d + 1] if d + 1 < DEVICES else None)
            for d, one in enumerate(actors)
        ]
        return sum(ray.get(sums)), 2 * (DEVICES - 1) * n * 8

    return run


def turn_in_ray(n: int, ray: Any) -> Run:
    k, x = n // DEVICES, make_array(n)
    actors = [ray.remote(Holder).remote(x[d * k : (d + 1) * k]) for d in range(DEVICES)]
    columns = [(0, np.s_[:, d * k : (d + 1) * k]) for d in range(DEVICES)]

    def run() -> tuple[float, int | None]:
        parts = [one.give.options(num_returns=DEVICES).remote(*columns) for one in actors]
        sums = [one.negate.remote(*(given[d] for given in parts)) for d, one in enumerate(actors)]
        return sum(ray.get(sums)), DEVICES * (DEVICES - 1) * k * k * 8

    return run


def product_in_ray(n: int, ray: Any) -> Run:
    a, b, k = make_array(n), make_array(n, 1), n // 2
    blocks = [np.s_[i * k : (i + 1) * k, j * k : (j + 1) * k] for i in range(2) for j in range(2)]
    actors = [ray.remote(Holder).remote(a[cells], b[cells]) for cells in blocks]

    def run() -> tuple[float, int | None]:
        given_a = [one.give.remote((0, ...)) for one in actors]
        given_b = [one.give.remote((1, ...)) for one in actors]
        sums = [one.multiply_with.remote(d, given_a[d ^ 1], given_b[d ^ 2]) for d, one in enumerate(actors)]
        return sum(ray.get(sums)), 2 * DEVICES * k * k * 8

    return run


# ---------------------------------------------------------------------------------------------------------- turns


def list_cases(sizes: Sequence[int], product: Sequence[int]) -> Iterator[Case]:
    for n in sizes:
        for name, both in (("stencil, depth 1 in both axes", True), ("stencil, depth 1 in rows", False)):
            engines = partial(stencil_in_dask, n, both), partial(stencil_in_ray, n)
            yield Case(name, n, partial(plan_stencil, n), partial(sum_smoothed, n), *engines)
        engines = partial(turn_in_dask, n), partial(turn_in_ray, n)
        yield Case("rows to columns", n, partial(plan_turn, n), partial(sum_negated, n), *engines)
    for n in product:
        engines = partial(product_in_dask, n), partial(product_in_ray, n)
        yield Case("product, 2 × 2", n, partial(plan_product, n), partial(sum_product, n), *engines)


def run_in_dask(client: Any, result: Any) -> tuple[float, int | None]:
    """Compute, and what the workers received meanwhile."""

    def received(dask_worker: Any) -> int:
        return int(sum(one["total"] for one in dask_worker.transfer_incoming_log))

    before = sum(client.run(received).values())
    total = float(result.compute())
    return total, sum(client.run(received).values()) - before


@contextmanager
def begin_engine(way: str) -> Iterator[Any]:
    """What a way needs that all its cases share: a client of Dask's, Ray, or nothing.

    Raises
    ------
    ImportError
    """
    if way == "dask.array":
        from distributed import Client, LocalCluster

        options = {"n_workers": DEVICES, "threads_per_worker": 1, "dashboard_address": None}
        with LocalCluster(**options) as local, Client(local) as client:
            yield client
    elif way == "Ray actors":
        import ray

        ray.init(num_cpus=DEVICES, include_dashboard=False, log_to_driver=False)
        yield ray
        ray.shutdown()
    else:
        yield None


@contextmanager
def prepare(case: Case, way: str, engine: Any) -> Iterator[Run]:
    """How to run a case in one way, with its arrays where they are to lie."""
    if engine is not None:
        yield case.in_ray(engine) if way == "Ray actors" else partial(run_in_dask, engine, case.in_dask())
        return
    backend: Any = "dask" if "Dask" in way else ProcessBackend(processes=DEVICES)
    planned = case.make_plan()
    with deploy(planned, backend=backend) as placed:

        def run() -> tuple[float, int | None]:
            result = placed.run({})
            assert result.nbytes_by_link == planned.nbytes_by_link, "the planned bytes"
            return float(result.outputs["total"]), sum(result.nbytes_by_link.values())

        yield run


class Ran(NamedTuple):
    """What an engine did in its rounds, or why it did not."""

    seconds: list[float]
    nbytes: list[int | None]
    why: str = ""

    def tell(self) -> str:
        """A cell of the table."""
        if self.why:
            return self.why
        least, middle, most = (1e3 * f(self.seconds) for f in (min, np.median, max))
        few = sorted(set(self.nbytes), key=lambda one: one or -1)
        nbytes = f"{few[0]:,}" if len(few) == 1 else f"{few[0]:,} to {few[-1]:,}"
        return f"{least:.0f}, {middle:.0f}, {most:.0f} ms; {nbytes} B"


def check_sum(case: Case, way: str, total: float, want: float) -> None:
    assert abs(total - want) <= 1e-9 * case.size**2, f"{way}: {total}, which NumPy says is {want}"


def run_in_turns(case: Case, engines: Mapping[str, Any], rounds: int) -> dict[str, Ran]:
    """All engines side by side, one after the other in each round."""
    want = case.find_sum()
    with ExitStack() as stack:
        ways = {way: stack.enter_context(prepare(case, way, engine)) for way, engine in engines.items()}
        counted: dict[str, list[int | None]] = {way: [] for way in ways}

        def call(way: str) -> None:
            total, nbytes = ways[way]()
            check_sum(case, way, total, want)
            counted[way].append(nbytes)

        for way in ways:
            call(way)  # what is built on first use is built
        seconds = alternated([partial(call, way) for way in ways], rounds)
    return {way: Ran(seconds[:, k].tolist(), counted[way][-rounds:]) for k, way in enumerate(ways)}


def run_alone(case: Case, way: str, rounds: int, want: float) -> Ran:
    """One engine in a process of its own, with nothing beside it; ended by this one before memory runs out."""
    command = [sys.executable, str(HERE), "--alone", way, case.name, str(case.size), "--rounds", str(rounds)]
    program = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
    before, is_short = free_nbytes() or 0, False
    try:
        while program.poll() is None and not is_short:
            is_short = (free_nbytes() or 0) < KEPT_FREE_NBYTES
            sleep(0.05)
    finally:
        if program.poll() is None:
            os.killpg(program.pid, signal.SIGKILL)
    told, errors = program.communicate()
    if is_short:
        return Ran([], [], f"not run: it takes more than the {before / 1e9:.1f} GB of memory that were free")
    if program.returncode:
        last = errors.decode().strip().splitlines()[-1:] or [f"exit status {program.returncode}"]
        return Ran([], [], "not installed" if "ModuleNotFoundError" in last[0] else f"not run: {last[0]}")
    seconds, counted, totals = json.loads(told.splitlines()[-1])
    for total in totals:
        check_sum(case, way, total, want)
    return Ran(seconds, counted)


def be_alone(way: str, name: str, size: int, rounds: int) -> None:
    """What the process of one engine does."""
    (case,) = (one for one in list_cases([size], [size]) if one.name == name)
    with begin_engine(way) as engine, prepare(case, way, engine) as run:
        run()
        seconds, found = [], []
        for _ in range(rounds):
            begin = perf_counter()
            found.append(run())
            seconds.append(perf_counter() - begin)
    totals, counted = zip(*found, strict=True)
    print(json.dumps((seconds, counted, totals)))


def tell_row(case: Case, found: Mapping[str, Ran], free: float) -> tuple[str, list[str]]:
    """A row of the table, and where tapestry takes longer than another engine."""
    cells = [found[way].tell() if way in found else "not installed" for way in WAYS]
    print(case.name, case.size, *cells, sep="\n  ", flush=True)
    middles = {way: float(np.median(one.seconds)) for way, one in found.items() if one.seconds}
    slower = [
        f"{ours} {middles[ours] / middles[theirs]:.2f} of {theirs} ({case.name}, N = {case.size:,})"
        for ours in WAYS[:2]
        for theirs in WAYS[2:]
        if ours in middles and theirs in middles and middles[ours] > middles[theirs]
    ]
    return f"| {case.name}, N = {case.size:,} | {' | '.join(cells)} | {free:.1f} |", slower


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--sizes", type=int, nargs="*", default=[2048, 8192])
    parser.add_argument("--product", type=int, nargs="*", default=[2048, 4096])
    parser.add_argument("--large", type=int, nargs="*", default=[16384], help="sizes at which each engine is alone")
    parser.add_argument("--alone", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.alone:
        way, name, size = args.alone
        be_alone(way, name, int(size), args.rounds)
        return
    measured = []
    with ExitStack() as stack:
        engines = {}
        for way in WAYS:
            with suppress(ImportError):
                engines[way] = stack.enter_context(begin_engine(way))
        for case in list_cases(args.sizes, args.product):
            free = free_processors()
            measured.append(tell_row(case, run_in_turns(case, engines, args.rounds), free))
    for case in list_cases(args.large, ()):
        want, free = case.find_sum(), free_processors()
        measured.append(tell_row(case, {way: run_alone(case, way, args.rounds, want) for way in WAYS}, free))
    rows, slower = [row for row, _ in measured], [one for _, each in measured for one in each]
    head = [
        "# The same work in other engines",
        "",
        f"`python tests/bench/bench_engines.py --write`, {date.today()}, {machine()}. {DEVICES} processes each,",
        f"arrays of float64 that lie there already; {args.rounds} rounds in turns: least, median and most milliseconds",
        "until the sum of the result is there, and the bytes between processes (least and most, where they",
        f"differ; 24 B of tapestry's are partial sums); processors that others left free, of {os.cpu_count()}.",
        f"From N = {min(args.large, default=0):,} on memory is not enough for all engines: they run one after another,",
        "each in a process of its own with nothing beside it.",
        "",
        f"| work | {' | '.join(WAYS)} | free |",
        f"|---|{'---|' * len(WAYS)}---|",
        *rows,
        "",
        f"Medians by which tapestry is slower than another engine: {'; '.join(slower) or 'none'}.",
        "",
        "Bytes of tapestry are counted, and equal to the plan in each run; dask.array's are from its workers' logs,",
        "and follow its scheduler; Ray's follow from the blocks that its program, written by hand, hands over.",
        "",
    ]
    print("\n".join(head))
    if args.write:
        RESULTS.write_text("\n".join(head))


if __name__ == "__main__":
    main()
