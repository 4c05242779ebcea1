"""The CuPy backend against the GPU's own copy, cuBLAS and what a user would write with CuPy: each row has its ratio.

    python tests/bench/bench_gpu.py                 prints the tables; needs a GPU and CuPy
    python tests/bench/bench_gpu.py --write         also writes them to tests/bench/results/bench_gpu.md
    python tests/bench/bench_gpu.py --simulated     tiny sizes on a simulated GPU: shows that the script runs

Times are of events in one stream, the median of several runs that alternate with the peer's. Figures of simulated
devices say nothing about a GPU and are never written.
"""

from __future__ import annotations

import argparse
import platform
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

from tapestry_exec import CupyBackend, kernels, run, simulated
from tapestry_exec.device_paths import is_direct_faster
from tapestry_exec.gpus import Gpu
from tapestry_exec.kernels import Convolving, Launch
from tapestry_exec.strided import packed, unpacked
from tapestry_plan import Correlation, Graph, Mesh, plan
from tapestry_sets import Region

RESULTS = Path(__file__).resolve().parent / "results" / "bench_gpu.md"
SECTOR_NBYTES = 32
ROUNDS = 9


@dataclass(frozen=True)
class Sizes:
    """How large the cases are."""

    payload_nbytes: int
    matrix: int
    rows: tuple[int, ...]
    steps: int
    channels: int
    pixels: int
    runs: tuple[int, ...]


REAL = Sizes(1 << 28, 8192, (64, 1024, 16384, 262144), 1000, 64, 112, (4, 8, 16, 32, 64, 128, 256, 1024, 4096, 65536))
TINY = Sizes(1 << 12, 16, (8, 32), 12, 3, 6, (4, 16, 64, 256))


class Row:
    """A case: seconds of ours and of a peer, and what ratio is aimed at."""

    def __init__(self, case: str, ours: float, peer: float, ratio: float, aim: float, note: str = "") -> None:
        self.case, self.ours, self.peer, self.ratio, self.aim, self.note = case, ours, peer, ratio, aim, note

    def __str__(self) -> str:
        met = "yes" if self.ratio >= self.aim else "no"
        return (
            f"| {self.case} | {self.ours * 1e6:,.1f} | {self.peer * 1e6:,.1f} | {self.ratio:.2f} | {self.aim:.2f} | "
            f"{met} | {self.note} |"
        )


class Bench:
    """One GPU with our kernels compiled."""

    def __init__(self, cupy: Any, sizes: Sizes) -> None:
        self.cupy, self.sizes = cupy, sizes
        self.backend = CupyBackend(cupy=cupy)
        self.gpu = Gpu(cupy, 0)
        self.gpu.prepare(())

    def launch(self, launches: Iterable[Launch]) -> None:
        """Put kernels into the current stream."""
        for one in launches:
            self.gpu.function(one.entry)(one.grid, one.block, one.args)

    def seconds(self, *queries: Callable[[], object]) -> list[float]:
        """Median seconds of some queries on the GPU, which alternate."""
        cuda = self.cupy.cuda
        found: list[list[float]] = [[] for _ in queries]
        for query in queries:
            query()
        for _ in range(ROUNDS):
            for query, times in zip(queries, found, strict=True):
                start, stop = cuda.Event(), cuda.Event()
                start.record()
                query()
                stop.record()
                stop.synchronize()
                times.append(cuda.get_elapsed_time(start, stop) / 1e3)
        return [max(median(times), 1e-9) for times in found]

    def copy(self, dst: Any, src: Any) -> None:
        """The runtime's copy between two arrays of one size."""
        runtime, stream = self.cupy.cuda.runtime, self.cupy.cuda.get_current_stream()
        runtime.memcpyAsync(dst.data.ptr, src.data.ptr, src.nbytes, runtime.memcpyDeviceToDevice, stream.ptr)


# ------------------------------------------------------------------------------------------------------- regions


def sectors(run_nbytes: int, pitch_nbytes: int, runs: int = 4096) -> float:
    """Bytes of the 32-byte sectors that runs at a pitch touch, for each byte of theirs; counted on some of them."""
    starts = np.arange(runs, dtype=np.int64) * pitch_nbytes
    touched = {
        sector
        for a in starts.tolist()
        for sector in range(a // SECTOR_NBYTES, (a + run_nbytes - 1) // SECTOR_NBYTES + 1)
    }
    return len(touched) * SECTOR_NBYTES / (runs * run_nbytes)


def gathers(bench: Bench) -> Iterator[Row]:
    """Every other run of an array into a payload, and back, against the runtime's copy of the payload."""
    cupy, payload = bench.cupy, bench.sizes.payload_nbytes
    cells = cupy.ones(2 * payload // 4, np.float32)
    packed_cells, other = cupy.empty(payload // 4, np.float32), cupy.empty(payload // 4, np.float32)
    for run_nbytes in bench.sizes.runs:
        n = run_nbytes // 4
        shape = payload // run_nbytes, 2 * n
        region = Region.from_bounds(shape, (0, 0), (shape[0], n))
        share = sectors(run_nbytes, 2 * run_nbytes)
        there = packed(shape, (0, 0), (region,)), cells.data.ptr, packed_cells.data.ptr
        back = unpacked(shape, (0, 0), (region,)), packed_cells.data.ptr, cells.data.ptr
        for what, (transfers, src, dst) in (("gather", there), ("scatter", back)):
            launches = kernels.copies(transfers, 4, src, dst)
            ours, peer = bench.seconds(lambda k=launches: bench.launch(k), lambda: bench.copy(other, packed_cells))
            wide = run_nbytes >= 64
            # What a copy would take that reads, or writes, whole sectors on the strided side.
            limit = peer if wide else peer * (1 + share) / 2
            note = "" if wide else f"of the limit by sectors, {share:.1f} times the payload on one side"
            yield Row(f"{what}, runs of {run_nbytes:,} B", ours, peer, limit / ours, 0.9 if wide else 0.7, note)


# --------------------------------------------------------------------------------------------- copies beside work


def overlaps(bench: Bench) -> Iterator[Row]:
    """A matrix product beside packing, and beside copies from and to the host: what of the shorter is hidden."""
    cupy, n = bench.cupy, bench.sizes.matrix
    cuda = cupy.cuda
    a, b, c = (cupy.ones((n, n), np.float32) for _ in range(3))
    size = bench.sizes.payload_nbytes
    source, target = cupy.ones(size // 2, np.float32), cupy.empty(size // 4, np.float32)
    shape = size // 1024, 512
    pack = kernels.copies(
        packed(shape, (0, 0), (Region.from_bounds(shape, (0, 0), (shape[0], 256)),)),
        4,
        source.data.ptr,
        target.data.ptr,
    )
    memory, runtime = cuda.alloc_pinned_memory(size), cuda.runtime
    work, moving = cuda.Stream(non_blocking=True), cuda.Stream(non_blocking=True)
    cuda.Device().synchronize()

    def product() -> None:
        with work:
            cupy.matmul(a, b, out=c)

    def packing() -> None:
        with moving:
            bench.launch(pack)

    def to_device() -> None:
        with moving:
            runtime.memcpyAsync(target.data.ptr, memory.ptr, size, runtime.memcpyHostToDevice, moving.ptr)

    def to_host() -> None:
        with moving:
            runtime.memcpyAsync(memory.ptr, target.data.ptr, size, runtime.memcpyDeviceToHost, moving.ptr)

    for name, copy in (("packing", packing), ("host to device", to_device), ("device to host", to_host)):
        alone, copied, both = wall(bench, [work, moving], product, copy, lambda c=copy: (product(), c()))
        hidden = (alone + copied - both) / min(alone, copied)
        yield Row(f"a product of {n:,}² beside {name}", both, alone + copied, hidden, 0.8, "share of the shorter")


def wall(bench: Bench, streams: Sequence[Any], *queries: Callable[[], object]) -> list[float]:
    """Median seconds of the host until all streams are done."""
    found: list[list[float]] = [[] for _ in queries]
    for _ in range(ROUNDS + 1):
        for query, times in zip(queries, found, strict=True):
            begin = perf_counter()
            query()
            for stream in streams:
                stream.synchronize()
            times.append(perf_counter() - begin)
    return [max(median(times[1:]), 1e-9) for times in found]


# ------------------------------------------------------------------------------------------------ fused operators


def epilogues(bench: Bench) -> Iterator[Row]:
    """linear + bias + relu with our epilogue against CuPy's operators one after the other."""
    cupy = bench.cupy
    for rows in bench.sizes.rows:
        for inner, columns in ((64, 256), (1024, 1024)):
            if bench.sizes is TINY:
                inner, columns = 4, 8
            x, w = cupy.ones((rows, inner), np.float32), cupy.ones((inner, columns), np.float32)
            bias, out = cupy.ones(columns, np.float32), cupy.empty((rows, columns), np.float32)
            end = kernels.epilogues(out.data.ptr, bias.data.ptr, rows, columns, "float32", "relu")

            def fused(x: Any = x, w: Any = w, out: Any = out, end: Any = end) -> None:
                cupy.matmul(x, w, out=out)
                bench.launch(end)

            def unfused(x: Any = x, w: Any = w, bias: Any = bias) -> Any:
                return cupy.maximum(cupy.matmul(x, w) + bias, 0)

            ours, peer = bench.seconds(fused, unfused)
            bound = 2 * rows * inner * columns < 200 * 4 * (rows * (inner + 3 * columns) + inner * columns)
            note = "bound by memory" if bound else "bound by the product"
            yield Row(
                f"linear + bias + relu, {rows:,}×{inner}×{columns}", ours, peer, peer / ours, 1.2 if bound else 1, note
            )


def convolutions(bench: Bench) -> Iterator[Row]:
    """What the rule takes, the direct kernel or windows and a matrix product, against what it leaves."""
    cupy, c, n = bench.cupy, bench.sizes.channels, bench.sizes.pixels
    for side, groups, width in ((1, 1, c), (3, 1, c), (7, 1, c), (3, c, 1)):
        per, halo = c // groups, side - 1
        x = cupy.ones((1, c, n + halo, n + halo), np.float32)
        w = cupy.ones((groups * width, per, side, side), np.float32)
        out = cupy.empty((1, groups * width, n, n), np.float32)
        steps = [tuple(s // 4 for s in array.strides) for array in (x, w, out)]
        work = Convolving("float32", 1, groups, per, width, (n, n), (side, side), (1, 1), (1, 1), *steps)
        direct = kernels.convolutions(work, out.data.ptr, x.data.ptr, w.data.ptr)

        def by_product(x: Any = x, w: Any = w, out: Any = out, groups: int = groups, side: int = side) -> None:
            (_, channels, *_), s = x.shape, x.strides
            per = channels // groups
            windows = cupy.lib.stride_tricks.as_strided(
                x, (groups, per, side, side, n, n), (per * s[1], s[1], *s[2:], *s[2:])
            )
            columns = cupy.ascontiguousarray(windows).reshape(groups, -1, n * n)
            out[...] = cupy.matmul(w.reshape(groups, -1, per * side * side), columns).reshape(out.shape)

        form = Correlation(
            0, 1, None, (1, 1), (1, 1), tuple(((g * width, (g + 1) * width), g * per) for g in range(groups)), side > 1
        )
        is_direct = is_direct_faster(form, "float32", out.shape, w.shape, False)
        one, two = bench.seconds(lambda k=direct: bench.launch(k), by_product)
        ours, peer = (one, two) if is_direct else (two, one)
        taken = "the direct kernel" if is_direct else "the product"
        yield Row(
            f"convolution {side}×{side}, {c} channels, {groups} groups, {n}²",
            ours,
            peer,
            peer / ours,
            1,
            f"{taken} is taken",
        )


# --------------------------------------------------------------------------------------------------- whole plans


def captured(bench: Bench) -> Iterator[Row]:
    """A plan of many small steps: its graph's launch, a step, against issuing the steps one by one."""
    g = Graph()
    x = g.input("x", (64, 64))
    for _ in range(bench.sizes.steps // 2):
        x = x + 1
    g.output(x, "y")
    p = plan(g, Mesh(1))
    feeds = {"x": np.zeros((64, 64), np.float32)}
    plain, graph = CupyBackend(cupy=bench.cupy), CupyBackend(cupy=bench.cupy, capture=True)
    times: dict[str, list[float]] = {"plain": [], "graph": []}
    for k in range(ROUNDS + 3):
        for name, backend in (("plain", plain), ("graph", graph)):
            seconds = run(p, feeds, backend=backend).seconds
            if k >= 3:
                times[name].append(seconds)
    ours, peer = (median(times[name]) / len(p.steps) for name in ("graph", "plain"))
    yield Row(
        f"a step of {len(p.steps):,}, as a graph", ours, peer, 5e-6 / ours, 1, "5 us / ours; the peer issues each"
    )


TABLES: tuple[tuple[str, str, Callable[[Bench], Iterator[Row]]], ...] = (
    ("Regions", "a copy from device to device", gathers),
    ("Copies beside work", "one after the other", overlaps),
    ("Epilogues", "CuPy's operators", epilogues),
    ("Convolutions", "the other way", convolutions),
    ("Launches", "step by step", captured),
)


def report(bench: Bench, name: str) -> Iterator[str]:
    """The tables in Markdown, line by line."""
    yield "# The CuPy backend on a GPU\n"
    yield f"{date.today()}, {name}, Python {platform.python_version()}. Written by `tests/bench/bench_gpu.py`.\n"
    for title, peer, rows in TABLES:
        yield f"## {title}\n"
        yield f"| case | ours, us | {peer}, us | ratio | aim | met | |\n|---|---|---|---|---|---|---|"
        yield from map(str, rows(bench))
        yield ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    chosen = parser.add_mutually_exclusive_group()
    chosen.add_argument("--write", action="store_true", help="write tests/bench/results/bench_gpu.md")
    chosen.add_argument("--simulated", action="store_true", help="tiny sizes on a simulated GPU")
    args = parser.parse_args()
    backend = CupyBackend(cupy=simulated.cupy(1) if args.simulated else None)
    backend.gpus_of(1)
    cupy = backend.cupy
    if args.simulated:
        name = "a simulated GPU: these figures mean nothing"
    else:
        name = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode() + f", CuPy {cupy.__version__}"
    lines = []
    for line in report(Bench(cupy, TINY if args.simulated else REAL), name):
        print(line, flush=True)
        lines.append(line)
    if args.write:
        RESULTS.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
