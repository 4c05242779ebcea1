"""The CuPy backend against the GPU's own copy, cuBLAS and what a user would write with CuPy: each row has its ratio.

    python tests/bench/bench_gpu.py                 prints the tables; needs a GPU and CuPy
    python tests/bench/bench_gpu.py --write         also writes them to tests/bench/results/bench_gpu.md
    python tests/bench/bench_gpu.py --simulated     tiny sizes on a simulated GPU: shows that the script runs

Times are of events in one stream, the median of several runs that alternate with the peer's: between two events there
are so many launches of one thing that they take 5 ms, as many of ours as of the peer's, and work in front of them lets
the host get ahead, so that what is timed is the GPU and not Python. Where whole plans are timed, the host's work is in
it as in every run. Figures of simulated devices say nothing about a GPU and are never written.
"""

from __future__ import annotations

import argparse
import platform
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from math import ceil
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import numpy as np

from tapestry_exec import CupyBackend, RunResult, TraceEvent, deploy, difference, evaluate, run
from tapestry_exec.copies.strided import pack_transfers, unpack_transfers
from tapestry_exec.cuda import kernels
from tapestry_exec.cuda.cublas import Handle
from tapestry_exec.cuda.gpus import Current, Gpu
from tapestry_exec.cuda.kernels.structs import Launch
from tapestry_exec.cuda.namespace import Namespace
from tapestry_exec.cuda.paths import convolve_directly, convolve_unfolded, is_direct_faster
from tapestry_exec.simulated import namespace as simulated
from tapestry_plan import Graph, Mesh, ShardPlan, Tensor, load_onnx, plan
from tapestry_plan.ir import Correlation
from tapestry_plan.onnx import before_softmax, light_model
from tapestry_plan.ops import linear, matmul, relu
from tapestry_plan.steps import Compute, Copy, Reduce
from tapestry_sets import Region
from tests.layered_models import gpt_with_weights

RESULTS = Path(__file__).resolve().parent / "results" / "bench_gpu.md"
SECTOR_NBYTES = 32
"""What a GPU writes at once; of sectors that are written in part, the memory is read first."""
READ_NBYTES = 64
"""What its memory reads at once."""
ROUNDS = 9
MAX_AT_ONCE = 200
"""Launches of one thing between two events; a stream holds about a thousand kernels before the host has to wait."""


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
    layers: int
    least_seconds: float
    """Between two events."""


RUNS = 4, 8, 16, 32, 64, 128, 256, 1024, 4096, 65536
REAL = Sizes(1 << 28, 8192, (64, 1024, 16384, 262144), 1000, 64, 112, RUNS, 16, 5e-3)
TINY = Sizes(1 << 12, 64, (8, 32), 12, 3, 6, (4, 16, 64, 256), 2, 0.0)


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
        self.gpu = Gpu(cupy, 0)
        self.gpu.prepare(())
        self._scratch = [cupy.zeros(sizes.payload_nbytes // 4, np.float32) for _ in range(2)]
        self._copy_seconds = self._timed([lambda: self.copy(*self._scratch)] * 10) / 10

    def launch(self, launches: Iterable[Launch]) -> None:
        """Put kernels into the current stream."""
        for one in launches:
            self.gpu.function(one.entry)(one.grid, one.block, one.args, shared_mem=one.shared_nbytes)

    def seconds(self, *queries: Callable[[], object], is_ahead: bool = True) -> list[float]:
        """Median seconds of some queries on the GPU, which alternate; with `is_ahead`, without the host's share."""
        costs = [self._cost(query) for query in queries]
        least = self.sizes.least_seconds
        count = min(MAX_AT_ONCE, max(1, ceil(least / min(whole for _, whole in costs)))) if is_ahead else 1
        ahead = 1.5 * count * max(host for host, _ in costs) if is_ahead and least else 0.0
        found: list[list[float]] = [[] for _ in queries]
        for _ in range(ROUNDS):
            for query, times in zip(queries, found, strict=True):
                times.append(self._timed([query] * count, ahead) / count)
        return [max(median(times), 1e-9) for times in found]

    def _cost(self, query: Callable[[], object], calls: int = 5) -> tuple[float, float]:
        """Seconds in which the host has launched a query, and in which it is done, of several in a row."""
        stream = self.cupy.cuda.get_current_stream()
        query()
        stream.synchronize()
        begin = perf_counter()
        for _ in range(calls):
            query()
        launched = perf_counter() - begin
        stream.synchronize()
        return launched / calls, (perf_counter() - begin) / calls

    def _timed(self, queries: Sequence[Callable[[], object]], ahead: float = 0.0) -> float:
        """Seconds of the GPU for some queries, launched while it is busy for so many seconds with something else."""
        cuda = self.cupy.cuda
        start, stop = cuda.Event(), cuda.Event()
        for _ in range(ceil(ahead / self._copy_seconds) if ahead else 0):
            self.copy(*self._scratch)
        start.record()
        for query in queries:
            query()
        stop.record()
        stop.synchronize()
        return max(float(cuda.get_elapsed_time(start, stop)) / 1e3, 1e-9)

    def copy(self, dst: Any, src: Any) -> None:
        """The runtime's copy between two arrays of one size."""
        runtime, stream = self.cupy.cuda.runtime, self.cupy.cuda.get_current_stream()
        runtime.memcpyAsync(dst.data.ptr, src.data.ptr, src.nbytes, runtime.memcpyDeviceToDevice, stream.ptr)


# ------------------------------------------------------------------------------------------------------- regions


def touched(unit_nbytes: int, run_nbytes: int, pitch_nbytes: int, runs: int = 4096) -> float:
    """Bytes of the units of memory that runs at a pitch touch, for each byte of theirs; counted on some of them."""
    starts = np.arange(runs, dtype=np.int64) * pitch_nbytes
    units = {unit for a in starts.tolist() for unit in range(a // unit_nbytes, (a + run_nbytes - 1) // unit_nbytes + 1)}
    return len(units) * unit_nbytes / (runs * run_nbytes)


def strided_share(what: str, run_nbytes: int) -> float:
    """What memory moves for every other run, for each byte of them: with sectors that are read before being written."""
    if what == "gather":
        return touched(READ_NBYTES, run_nbytes, 2 * run_nbytes)
    written = touched(SECTOR_NBYTES, run_nbytes, 2 * run_nbytes)
    return written if run_nbytes % SECTOR_NBYTES == 0 else 2 * written


def runtime_kind(runtime: Any) -> int:
    return int(runtime.memcpyDeviceToDevice)


def gathers(bench: Bench) -> Iterator[Row]:
    """Every other run of an array into a payload, and back, against the runtime's copy of the payload."""
    cupy, payload = bench.cupy, bench.sizes.payload_nbytes
    runtime, cells = cupy.cuda.runtime, cupy.ones(2 * payload // 4, np.float32)
    packed_cells, other = cupy.empty(payload // 4, np.float32), cupy.empty(payload // 4, np.float32)
    for run_nbytes in bench.sizes.runs:
        n = run_nbytes // 4
        shape = payload // run_nbytes, 2 * n
        region = Region.from_bounds(shape, (0, 0), (shape[0], n))
        there = pack_transfers((shape[1], 1), (0, 0), (region,)), cells.data.ptr, packed_cells.data.ptr
        back = unpack_transfers((shape[1], 1), (0, 0), (region,)), packed_cells.data.ptr, cells.data.ptr
        for what, (transfers, src, dst) in (("gather", there), ("scatter", back)):
            launches = kernels.copies(transfers, 4, src, dst)
            pitches = (run_nbytes, 2 * run_nbytes) if what == "gather" else (2 * run_nbytes, run_nbytes)
            pitched = dst, pitches[0], src, pitches[1], run_nbytes, shape[0], runtime_kind(runtime)

            def by_pitch(given: tuple[Any, ...] = pitched) -> None:
                runtime.memcpy2DAsync(*given, cupy.cuda.get_current_stream().ptr)

            queries = [lambda k=launches: bench.launch(k), lambda: bench.copy(other, packed_cells)]
            ours, peer, *two = bench.seconds(*queries, *([by_pitch] if hasattr(runtime, "memcpy2DAsync") else []))
            wide = run_nbytes >= 64
            share = strided_share(what, run_nbytes)
            limit = peer * (1 + share) / 2
            note = "" if share == 1 else f"of what memory moves: {share:.1f} times the payload on one side; "
            note += f"memcpy2D takes {two[0] * 1e6:,.1f}" if two else ""
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
        pack_transfers((shape[1], 1), (0, 0), (Region.from_bounds(shape, (0, 0), (shape[0], 256)),)),
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


def planned_overlaps(bench: Bench) -> Iterator[Row]:
    """Plans of products on four devices of one GPU, with copies between them: how much of those is beside a product.

    Times are the devices' own, from the trace of a run. A copy that waits for room on the GPU beside a product counts
    as beside it; what the lanes gain in all is in the first two columns, against a run that waits after each step.
    """
    n = bench.sizes.matrix // 2
    for name, made in (("rows to columns", turned(n)), ("halos", halved(n))):
        feeds = {x: np.ones(made.graph.stored[x].shape, np.float32) for x in ("x", "y", "w")}
        lanes, blocking = (CupyBackend(cupy=bench.cupy, devices=[0] * 4, blocking=one) for one in (False, True))
        runs = [[traced(made, feeds, backend) for backend in (lanes, blocking)] for _ in range(4)][1:]
        ours, peer = (median(span(one.timeline) for one in of) for of in zip(*runs, strict=True))
        shares = [beside(one.timeline) for one, _ in runs]
        copied = median(seconds for _, seconds in shares)
        share, case = median(share for share, _ in shares), f"a plan, {name}, {n:,}²: copies beside products"
        note = f"share of {copied * 1e3:,.2f} ms of packing and unpacking in {crossing(made):,} copies, from the trace"
        yield Row(case, ours, peer, share, 0.8, note)


def two_chains(n: int, layers: int, step: Callable[[Tensor, Tensor, str], Tensor]) -> ShardPlan:
    """Two chains that know nothing of each other, in turns, so that one can compute while the other's copies run."""
    g = Graph()
    ends, w = [g.input(name, (n, n)) for name in ("x", "y")], g.input("w", (n, n))
    for k in range(layers):
        ends = [step(end, w, f"{name}{k}") for name, end in zip("xy", ends, strict=True)]
    for name, end in zip("uv", ends, strict=True):
        g.output(end, name)
    fix = {node.name: {g.signature(node.name).axes[0].name: 4} for node in g.order()}
    return plan(g, Mesh(4), fix=fix, placement="single")


def turned(n: int) -> ShardPlan:
    """Each product reads the one before by columns: every device sends to every other."""
    return two_chains(n, 6, lambda y, w, name: matmul(y.T, w, name=name))


def halved(n: int) -> ShardPlan:
    """Each product reads rows of its neighbors: a sixteenth of the rows of a part, and more in each layer."""
    far = max(1, n // 64)
    return two_chains(n, 6, lambda y, w, name: matmul(y[far:] + y[:-far], w, name=name))


def traced(p: ShardPlan, feeds: dict[str, Any], backend: CupyBackend) -> RunResult:
    """A run whose timeline has the devices' own times."""
    with TemporaryDirectory() as folder:
        return run(p, feeds, backend=backend, trace=Path(folder) / "trace.json")


def crossing(p: ShardPlan) -> int:
    """How many copies go from one device to another."""
    device = {buffer.id: buffer.device for buffer in p.buffers}
    copies = [step for step in p.steps if isinstance(step, Copy) and step.src >= 0]
    return sum(device[step.src] != device[step.dst] for step in copies)


def busy(timeline: Iterable[TraceEvent]) -> list[tuple[float, float]]:
    """When something was computed on any device: stretches in order, disjoint."""
    found: list[tuple[float, float]] = []
    for start, stop in sorted((e.start, e.start + e.seconds) for e in timeline if e.kind == "compute"):
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], stop)
        else:
            found.append((start, stop))
    return found


def beside(timeline: Sequence[TraceEvent]) -> tuple[float, float]:
    """The share of the time of copies between devices in which something was computed, and that time in seconds."""
    computed, total, both = busy(timeline), 0.0, 0.0
    for phase in (phase for event in timeline for phase in event.phases):
        start, stop = phase.start, phase.start + phase.seconds
        total += phase.seconds
        both += sum(max(0.0, min(stop, b) - max(start, a)) for a, b in computed)
    return (both / total if total else 0.0), total


def span(timeline: Iterable[TraceEvent]) -> float:
    """Seconds from the first product's begin to the last one's end."""
    computed = busy(timeline)
    return max(computed[-1][1] - computed[0][0], 1e-9)


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
            bound = is_by_memory(rows, inner, columns)
            note = "bound by memory" if bound else "bound by the product"
            yield Row(
                f"linear + bias + relu, {rows:,}×{inner}×{columns}", ours, peer, peer / ours, 1.2 if bound else 1, note
            )


def chains(bench: Bench) -> Iterator[Row]:
    """Layers of linear + bias + relu as plans whose weights stay, launched as a graph, against CuPy's sequence.

    Both from an array of the host to one of the host, on the host's clock.
    """
    cupy, layers = bench.cupy, bench.sizes.layers
    for rows in bench.sizes.rows[:-1]:
        for width in (64, 1024) if bench.sizes.least_seconds else (4,):
            plain = layered(rows, width, layers)
            x = np.random.default_rng(0).standard_normal((rows, width)).astype(np.float32)
            w, b = map(cupy.asarray, weights(width))

            def peer(x: Any = x, w: Any = w, b: Any = b) -> Any:
                y = cupy.asarray(x)
                for _ in range(layers):
                    y = cupy.maximum(cupy.matmul(y, w) + b, 0)
                return cupy.asnumpy(y)

            p = plan(plain, Mesh(1))
            with (
                deploy(p, backend=CupyBackend(cupy=cupy, capture=True)) as graph,
                deploy(p, backend=CupyBackend(cupy=cupy, capture=False)) as steps,
            ):
                queries = [partial(graph.run, {"x": x}), partial(steps.run, {"x": x}), peer]
                for query in queries * 2:
                    query()
                ours, plainly, theirs = wall(bench, [], *queries)
                np.testing.assert_allclose(graph.run({"x": x}).outputs["y"], peer(), rtol=1e-3, atol=1e-3)
            bound = is_by_memory(rows, width, width)
            note = f"a layer, with the way to the GPU and back; step by step {plainly / layers * 1e6:,.1f}"
            case = f"{layers} layers, {rows:,}×{width}×{width}"
            yield Row(case, ours / layers, theirs / layers, theirs / ours, 1.2 if bound else 1.0, note)


def weights(width: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(1)
    matrix = (rng.standard_normal((width, width)) / width**0.5).astype(np.float32)
    return matrix, rng.standard_normal(width).astype(np.float32)


def layered(rows: int, width: int, layers: int) -> Graph:
    """Layers of linear + bias + relu, one after the other, all of the same weights."""
    g, given = Graph(), weights(width)
    y = g.input("x", (rows, width))
    w, b = g.constant("w", given[0]), g.constant("b", given[1])
    for k in range(layers):
        y = relu(linear(y, w, b, name=f"fc{k}"), name=f"act{k}")
    g.output(y, "y")
    return g


def is_by_memory(rows: int, inner: int, columns: int) -> bool:
    """Whether a layer's bytes, unfused, take longer than its product in float32: below 13 operations a byte.

    An H200 does 51e12 operations in a second there, without its matrix units, and moves 4.1e12 bytes.
    """
    return 2 * rows * inner * columns < 13 * 4 * (rows * (inner + 3 * columns) + inner * columns)


CONVOLUTIONS = (
    (1, 64, 64, 1, 112, 1),
    (1, 64, 64, 3, 112, 1),
    (1, 3, 64, 7, 112, 1),
    (1, 32, 32, 3, 112, 32),
    (1, 240, 240, 3, 28, 3),
    (1, 256, 256, 3, 14, 1),
    (1, 512, 512, 3, 7, 1),
    (8, 64, 64, 3, 56, 1),
    (8, 128, 128, 3, 28, 1),
    (8, 512, 512, 3, 7, 1),
    (8, 256, 64, 1, 56, 1),
)
"""Samples, channels read and made, side of the kernel, side of the result, and groups."""


def convolutions(bench: Bench) -> Iterator[Row]:
    """What the rule takes, the direct kernel or unfolding and a product, against what it leaves."""
    cupy = bench.cupy
    xp = Namespace(cupy, Current(), lambda: Handle(cupy, cupy.cuda.get_current_stream(), False))
    few = (1, 3, 4, 3, 3, 1), (1, 4, 4, 3, 3, 4)
    for samples, read, made, side, n, groups in few if bench.sizes is TINY else CONVOLUTIONS:
        per, halo, width = read // groups, side - 1, made // groups
        x = cupy.ones((samples, read, n + halo, n + halo), np.float32)
        w = cupy.ones((made, per, side, side), np.float32)
        out = cupy.empty((samples, made, n, n), np.float32)
        form = Correlation(
            0, 1, None, (1, 1), (1, 1), tuple(((g * width, (g + 1) * width), g * per) for g in range(groups))
        )
        direct = convolve_directly(form, x, w, None, out)
        one, two = bench.seconds(
            lambda way=direct: way(xp, bench.launch),
            lambda given=(form, x, w, None, out): convolve_unfolded(*given, xp, bench.launch),
        )
        is_direct = is_direct_faster(form, "float32", out.shape, w.shape, False)
        ours, peer = (one, two) if is_direct else (two, one)
        taken = "the direct kernel" if is_direct else "the product"
        flop = 2.0 * out.size * per * side * side
        case = f"convolution {side}×{side}, {read} to {made} channels, {groups} groups, {samples} × {n}²"
        yield Row(case, ours, peer, peer / ours, 1, f"{taken} is taken: {flop / ours / 1e12:,.1f} TFLOP/s")


# --------------------------------------------------------------------------------------------------- whole plans


def captured(bench: Bench) -> Iterator[Row]:
    """A plan of many small operators: its graph's launch, an operation, against issuing them one by one.

    An operation is what is put on a device: a copy, an operator's shard, a merge; taking and giving back a place in
    the arena puts nothing there.
    """
    g = Graph()
    x = g.input("x", (64, 64))
    for _ in range(bench.sizes.steps):
        x = x + 1
    g.output(x, "y")
    p = plan(g, Mesh(1))
    count = sum(isinstance(step, Compute | Copy | Reduce) for step in p.steps)
    feeds = {"x": np.zeros((64, 64), np.float32)}
    plain, graph = CupyBackend(cupy=bench.cupy), CupyBackend(cupy=bench.cupy, capture=True)
    times: dict[str, list[float]] = {"plain": [], "graph": []}
    for k in range(ROUNDS + 3):
        for name, backend in (("plain", plain), ("graph", graph)):
            found = run(p, feeds, backend=backend)
            np.testing.assert_array_equal(found.outputs["y"], np.full((64, 64), bench.sizes.steps, np.float32))
            if k >= 3:
                assert bool(found.timeline) == (name == "plain"), "a graph's steps are not issued one by one"
                times[name].append(found.seconds)
    ours, peer = (median(times[name]) / count for name in ("graph", "plain"))
    note = f"5 us / ours; the peer issues each; {len(p.steps) - count:,} steps more take or give back memory"
    yield Row(f"an operation of {count:,}, as a graph", ours, peer, 5e-6 / ours, 1, note)


def networks(bench: Bench) -> Iterator[Row]:
    """Networks deployed on one device and on four of one GPU: a graph's launch against a run step by step.

    From arrays of the host to arrays of the host. Four devices of one GPU take turns there: what they show is what
    copies and the steps of four cost.
    """
    for name, graph in opened(bench):
        rng = np.random.default_rng(0)
        inputs = [tensor for tensor in graph.stored.values() if tensor.kind == "input"]
        feeds = {one.name: rng.standard_normal(one.shape).astype(one.dtype) for one in inputs}
        wanted = evaluate(graph, feeds)
        for devices in (1, 4):
            p = plan(graph, Mesh(devices))
            engines = [CupyBackend(cupy=bench.cupy, devices=[0] * devices, capture=one) for one in (True, False)]
            with deploy(p, backend=engines[0]) as whole, deploy(p, backend=engines[1]) as steps:
                queries = [partial(one.run, feeds) for one in (whole, steps)]
                for query in queries * 2:
                    query()
                ours, peer = wall(bench, [], *queries)
                found = whole.run(feeds)
            assert not found.timeline, "it is a graph"
            worst = max(difference(found.outputs[key], array) for key, array in wanted.items())
            assert worst < 1e-3, worst
            case = f"{name}, {devices} devices, {len(p.steps):,} steps"
            yield Row(case, ours, peer, peer / ours, 1, f"{sum(found.nbytes_by_link.values()):,} B moved")


def opened(bench: Bench) -> Iterator[tuple[str, Graph]]:
    """Networks by name: real ones, or a tiny one."""
    if bench.sizes is TINY:
        yield "layers", layered(8, 4, 2)
        return
    for name in ("squeezenet", "resnet50"):
        model = light_model(name)
        yield name, load_onnx(model, outputs=before_softmax(model))
    yield "gpt of 4 layers", load_onnx(gpt_with_weights())


def beside_torch(bench: Bench) -> Iterator[Row]:
    """ResNet-50 in float32 as a graph, and PyTorch's with cuDNN, as a graph and operator by operator.

    From an array of the host to one of the host. Without PyTorch there is no row.
    """
    if bench.sizes is TINY or find_spec("torchvision") is None:
        return
    torch, models = import_module("torch"), import_module("torchvision.models")
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    model = light_model("resnet50")
    graph = load_onnx(model, outputs=before_softmax(model))
    ((name, read),) = ((n, t) for n, t in graph.stored.items() if t.kind == "input")
    x = np.random.default_rng(0).standard_normal(read.shape).astype(np.float32)
    net, there = models.resnet50().eval().cuda(), torch.from_numpy(x).cuda()
    with torch.no_grad(), deploy(plan(graph, Mesh(1)), backend=CupyBackend(cupy=bench.cupy)) as placed:
        for _ in range(3):
            net(there), placed.run({name: x})
        torch.cuda.synchronize()
        recorded = torch.cuda.CUDAGraph()
        with torch.cuda.graph(recorded):
            made = net(there)

        def as_graph() -> Any:
            there.copy_(torch.from_numpy(x))
            recorded.replay()
            return made.cpu()

        def eager() -> Any:
            return net(torch.from_numpy(x).cuda()).cpu()

        ours, peer, plainly = wall(bench, [], partial(placed.run, {name: x}), as_graph, eager)
    note = f"PyTorch {torch.__version__}, operator by operator {plainly * 1e6:,.1f}"
    yield Row(f"resnet50, {read.shape[0]} sample", ours, peer, peer / ours, 1, note)


TABLES: tuple[tuple[str, str, Callable[[Bench], Iterator[Row]]], ...] = (
    ("Regions", "a copy from device to device", gathers),
    ("Copies beside work", "one after the other", overlaps),
    ("Plans' copies beside their work", "waiting after each step", planned_overlaps),
    ("Epilogues", "CuPy's operators", epilogues),
    ("Layers as plans", "CuPy's operators", chains),
    ("Convolutions", "the other way", convolutions),
    ("Launches", "one by one", captured),
    ("Networks", "step by step", networks),
    ("Beside PyTorch", "PyTorch's graph", beside_torch),
)


def report(bench: Bench, name: str, wanted: str) -> Iterator[str]:
    """The tables in Markdown, line by line."""
    yield "# The CuPy backend on a GPU\n"
    yield f"{date.today()}, {name}, Python {platform.python_version()}. Written by `tests/bench/bench_gpu.py`.\n"
    for title, peer, rows in TABLES:
        if not re.search(wanted, title):
            continue
        yield f"## {title}\n"
        yield f"| case | ours, us | {peer}, us | ratio | aim | met | |\n|---|---|---|---|---|---|---|"
        yield from map(str, rows(bench))
        yield ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    chosen = parser.add_mutually_exclusive_group()
    chosen.add_argument("--write", action="store_true", help="write tests/bench/results/bench_gpu.md")
    chosen.add_argument("--simulated", action="store_true", help="tiny sizes on a simulated GPU")
    parser.add_argument("--tables", default=".", help="only the tables whose titles match")
    args = parser.parse_args()
    backend = CupyBackend(cupy=simulated.cupy(1) if args.simulated else None)
    backend.gpus_of(1)
    cupy = backend.cupy
    if args.simulated:
        name = "a simulated GPU: these figures mean nothing"
    else:
        name = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode() + f", CuPy {cupy.__version__}"
    lines = []
    for line in report(Bench(cupy, TINY if args.simulated else REAL), name, args.tables):
        print(line, flush=True)
        lines.append(line)
    if args.write:
        RESULTS.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
