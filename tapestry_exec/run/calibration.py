"""What this machine's devices and copies take: small plans are run, and their timelines say the rates of a mesh.

The model has a few numbers for a device, and one kind of operator says each best::

    launch_seconds, operand_seconds    on a few cells, with two to six operands        t = launch + operands * o
    flop_per_second                    products and convolutions, of few rows          t - start = flop / rate
    packed_nbytes_per_second             and of many                                       + packed / packing
    cell_flop_per_second               rows: softmax, normalization                    t - start = flop / rate
    memory_nbytes_per_second           sums of two tensors                             t - start = bytes / rate
    link                               halves of rows that go to another device,       t = latency + bytes / rate
                                       short halves of many rows: NumPy's devices          + runs * s
                                       run side by side, as where splitting pays
    host                               inputs that are placed                          t = latency + bytes / rate

The memory's rate is also what copies within a device are priced at: blocks written anew for views
(`ShardPlan.nbytes_local`), own cells copied beside those that come, and parts that are merged. A byte that is copied
counts once, though it is read and written. A merge begins as an operator does that reads the parts.

Of several runs each step counts at its fastest: other work on the machine only ever adds to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import exp, log, prod
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from tapestry_exec.run import tuning
from tapestry_exec.run.backends import BACKENDS, Backend, load_from_wing
from tapestry_exec.run.deployment import deploy
from tapestry_exec.run.trace import TraceEvent
from tapestry_plan import ops
from tapestry_plan.ir import Graph, Stored
from tapestry_plan.search import count_packed, plan
from tapestry_plan.steps import Device, Link, Mesh, ShardPlan
from tapestry_sets.limits import check_arguments, list_names, quote

Report = Callable[[str], None]


@check_arguments(
    backend="give a name, as 'numpy'", devices="give a number of devices", report="it is called with a text"
)
def calibrate(backend: str = "numpy", *, devices: int = 4, report: Report | None = None) -> Mesh:
    """Measure what kernels and copies of this machine take, and return a mesh with these rates.

    It takes a few seconds. Devices of NumPy's backend share the processor: one computes at a time, with the threads
    that the process has, and is measured so. Messages are those of threads that run side by side, or with "serial"
    those of one loop, which take a fourth of that.

    Parameters
    ----------
    backend : str
        "numpy", "serial", "processes", "cupy", or another one whose devices are on one machine.
    devices : int
        How many devices the mesh is to have; they are taken for equal, and one of them is measured.
    report : callable, optional
        Called with a line of text before each kind of measurement.

    Returns
    -------
    Mesh
        Of one axis. Its `to_toml` is the text of a file for `Mesh.from_toml` and ``--machine``.

    Raises
    ------
    ValueError
        For other backends, and fewer than one device.
    BackendUnavailable
        When the backend cannot run here.

    Examples
    --------
    >>> from tapestry_exec import calibrate
    >>> mesh = calibrate("numpy", devices=4)  # doctest: +SKIP
    >>> calibrate("numpy", devices=0)
    Traceback (most recent call last):
        ...
    ValueError: calibrate: devices is 0; give an integer >= 1
    """
    measured = sorted(set(BACKENDS) - {"simulated"})
    if backend not in measured:
        why = "; times of simulated GPUs are those of the simulator" if backend == "simulated" else ""
        raise ValueError(f"calibrate: backend is {quote(backend)}; {list_names(measured, backend, 'backends')}{why}")
    if devices < 1:
        raise ValueError(f"calibrate: devices is {quote(devices)}; give an integer >= 1")
    say = report or (lambda text: None)
    say("kernels: products, rows, sums, and a few cells")
    device = _measure_device(backend)
    say("copies: between devices, and from the host")
    link, host = _measure_copies(backend)
    return Mesh((devices,), link=link, device=device, host=host)


# -- kernels ---------------------------------------------------------------------------------------------------


def _measure_device(backend: str) -> Device:
    # Kernels of all kinds in turn, as in a network: a kernel that follows itself finds warm caches, and starts in half
    # the time.
    g = Graph()
    kinds: dict[str, list[str]] = {"few": [], "product": [], "row": [], "sum": []}
    makers = (_add_product, _add_few, _add_row, _add_few, _add_sum, _add_few)
    for number in range(tuning.CALIBRATION_REPEATS):
        for turn, make in enumerate(makers):
            before = set(g.nodes)
            make(g, number, f"{number}_{turn}")
            kinds[make.__name__.removeprefix("_add_")] += [name for name in g.nodes if name not in before]
    for name, node in list(g.nodes.items()):
        g.output(g.tensor(node.outputs[0]), name)
    p = plan(g, Mesh((1,)), expand=False)
    seconds = {e.node: e.seconds for e in _run(p, backend, tuning.CALIBRATION_RUNS) if e.kind == "compute"}
    launch, operand = _fit_starts([(_count_operands(g, name), seconds[name]) for name in kinds["few"]])

    def rate(kind: str, counted: Callable[[Graph, str], float]) -> float:
        return _find_rate((counted(g, n), seconds[n], launch + operand * _count_operands(g, n)) for n in kinds[kind])

    memory = rate("sum", _count_nbytes)
    timed = [
        (
            _count_flop(g, name),
            _count_nbytes(g, name) / memory,
            _count_packed(g, name),
            seconds[name],
            launch + operand * _count_operands(g, name),
        )
        for name in kinds["product"]
    ]
    flop, packing = _fit_products(timed)
    return Device(
        flop,
        memory,
        launch,
        cell_flop_per_second=rate("row", _count_flop),
        operand_seconds=operand,
        packed_nbytes_per_second=packing,
    )


def _add_few(g: Graph, number: int, label: str) -> None:
    """An operator with two, three, or six operands, on a few cells."""
    x, w = g.input(f"x{label}", (1, 8, 8, 8)), g.input(f"w{label}", (1, 8, 8, 8))
    _ = ops.relu(x), x + w, ops.batch_normalization(x, *(g.input(f"c{label}_{k}", (8,)) for k in range(4)))


def _add_product(g: Graph, number: int, label: str) -> None:
    """One of some products and convolutions."""
    kind, *shapes = tuning.CALIBRATED_PRODUCTS[number % len(tuning.CALIBRATED_PRODUCTS)]
    x, w = (g.input(f"p{label}_{k}", shape) for k, shape in enumerate(shapes))
    _ = x @ w if kind == "matmul" else ops.conv(x, w, pads=w.shape[-1] // 2)


def _add_row(g: Graph, number: int, label: str) -> None:
    """A softmax or a normalization of rows."""
    rows = g.input(f"r{label}", (256, 512))
    if number % 2:
        ops.softmax(rows, axis=-1)
    else:
        ops.layer_normalization(rows, *(g.input(f"s{label}_{k}", (512,)) for k in range(2)), axis=-1)


def _add_sum(g: Graph, number: int, label: str) -> None:
    """The sum of two tensors of 64 KiB to 8 MiB."""
    cells = 1 << (14 + 7 * (number % 4) // 3)
    _ = g.input(f"a{label}", (cells,)) + g.input(f"b{label}", (cells,))


def _count_operands(g: Graph, name: str) -> int:
    return len(g.nodes[name].inputs) + len(g.nodes[name].outputs)


def _count_flop(g: Graph, name: str) -> float:
    signature, node = g.signature(name), g.nodes[name]
    return g.ops[node.op].flop_per_point(signature, node.attrs) * signature.index.size


def _count_packed(g: Graph, name: str) -> int:
    signature, node = g.signature(name), g.nodes[name]
    itemsizes = [np.dtype(g.source(each).dtype).itemsize for each in node.inputs]
    return count_packed(g.ops[node.op], node.attrs, signature, itemsizes, signature.index)


def _count_nbytes(g: Graph, name: str) -> float:
    node = g.nodes[name]
    sources = [g.source(each) for each in (*node.inputs, *node.outputs)]
    return sum(prod(source.shape) * np.dtype(source.dtype).itemsize for source in sources)


# -- copies ----------------------------------------------------------------------------------------------------


def _measure_copies(backend: str) -> tuple[Link, Link]:
    """Rows on two devices become columns: each sends half of some, in a run for each row, which come to one run.

    A message takes what packing and unpacking it take: in between it lies there until its receiver comes for it. Short
    messages and long ones follow on each other, as in a network.
    """
    g, fix = Graph(), dict[str, dict[str, int]]()
    for turn, (rows, length, read) in enumerate(tuning.COPIED_SHAPES):
        made = ops.relu(g.input(f"x{turn}", (rows, length)), name=f"rows{turn}")
        g.output(ops.relu(made[:, :read], name=f"columns{turn}"))
        fix |= {f"rows{turn}": {"i0": 2}, f"columns{turn}": {"i1": 2}}
    p = plan(g, Mesh((2,)), fix=fix, expand=False)
    # In one loop a message takes a fourth of that: but there splitting saves no time.
    engine = load_from_wing("NumpyBackend")(threads=True) if backend == "numpy" else backend
    events, runs = _run(p, engine, tuning.COPY_RUNS), {row.step: row.runs for row in p.transfers()}
    across = [
        (e.nbytes, runs[e.step], sum(phase.seconds for phase in e.phases if phase.kind != "move"))
        for e in events
        if e.kind == "copy" and e.phases
    ]
    return _fit_link(across), _fit_link([(e.nbytes, 0, e.seconds) for e in events if e.kind == "place"])


# -- running and fitting ---------------------------------------------------------------------------------------


def _run(p: ShardPlan, backend: str | Backend[Any], runs: int) -> list[TraceEvent]:
    """The steps of a plan with the shortest time that each took in several runs; the first runs are not counted."""
    rng = np.random.default_rng(0)
    given: Mapping[str, Stored] = p.graph.stored
    inputs = {name: rng.random(one.shape, np.float32) for name, one in given.items() if one.kind == "input"}
    best: dict[int, TraceEvent] = {}
    # Deployed, as what runs often is: devices in processes of their own would touch their memory first in each run.
    with TemporaryDirectory() as folder, deploy(p, backend=backend) as placed:
        for number in range(runs + 1):
            # with a trace, so that devices which work ahead of the host tell their own times
            timeline = placed.run(inputs, trace=Path(folder, "trace.json")).timeline
            for event in timeline if number else ():
                known = best.get(event.step)
                if known is None or event.seconds < known.seconds:
                    best[event.step] = event
    return list(best.values())


def _fit_starts(found: Sequence[tuple[int, float]]) -> tuple[float, float]:
    """Seconds to start a shard, and for each of its operands: the line nearest to the medians, neither below zero."""
    many = np.array(sorted({number for number, _ in found}), float)
    seconds = np.array([np.median([each for number, each in found if number == mine]) for mine in many])
    slope = float(((many - many.mean()) * (seconds - seconds.mean())).sum() / ((many - many.mean()) ** 2).sum())
    slope = min(max(slope, 0.0), float((many * seconds).sum() / (many**2).sum()))
    return _round(max(float(seconds.mean()) - slope * float(many.mean()), 0.0)), _round(slope)


def _find_rate(found: Iterable[tuple[float, float, float]]) -> float:
    """The geometric mean of amounts by seconds, without what it takes to start: at most most of it."""
    rates = [amount / max(seconds - start, seconds * tuning.MIN_WORKING) for amount, seconds, start in found]
    return _round(exp(sum(map(log, rates)) / len(rates)))


def _fit_products(found: Sequence[tuple[float, float, int, float, float]]) -> tuple[float, float | None]:
    """The rates of arithmetic and of packing with the least sum of squares of relative errors; None for no packing.

    Of each product: flop, seconds of its memory traffic, which goes on beside the arithmetic, bytes that it packs,
    seconds in all, and of these what it takes to start.
    """
    flop, moving, packed, seconds, starts = np.array(found, float).T
    working = np.maximum(seconds - starts, seconds * tuning.MIN_WORKING)
    given, told = flop / working, packed / working
    best, least = (float(np.median(given)), 0.0), float("inf")
    for rate in given.max() * np.geomspace(0.05, 20, tuning.TRIED_RATES):
        left = 1 - np.maximum(flop / rate, moving) / working
        each = max(0.0, float(told @ left) / float(told @ told))
        error = float(((left - each * told) ** 2).sum())
        if error < least:
            best, least = (float(rate), each), error
    rate, each = best
    return _round(rate), _round(1 / each) if each else None


def _fit_link(found: Sequence[tuple[int, int, float]]) -> Link:
    """What messages of some bytes and runs take, from the seconds of some: the least sum of squares of relative errors.

    None of the rates is below zero: of those fits in which some are left out the best one that has no such rate.
    """
    nbytes, runs, seconds = np.array(found, float).T
    told = np.column_stack([np.ones_like(nbytes), nbytes, runs]) / seconds[:, None]
    best, least = np.array([0.0, 0.0, 0.0]), float("inf")
    for kept in ([0, 1, 2], [0, 1], [1, 2], [1]):
        rates = np.zeros(3)
        rates[kept] = np.linalg.lstsq(told[:, kept], np.ones_like(nbytes), rcond=None)[0]
        error = float(((told @ rates - 1) ** 2).sum())
        if (rates >= 0).all() and rates[1] > 0 and error < least:
            best, least = rates, error
    latency, each, run = best.tolist()
    return Link(_round(latency), _round(1 / each), _round(run))


def _round(value: float) -> float:
    """Three digits: more are not known."""
    return float(f"{value:.3g}")
