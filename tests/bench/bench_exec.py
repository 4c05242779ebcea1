"""The NumPy executor: regions packed against np.copyto, a step's cost, networks, ways of running, and the check.

    python tests/bench/bench_exec.py [--parts pack,steps,networks,ways,processor,check] [--rounds 101] [--write]

Everything is compared with a peer in the same process, ours and theirs in turns, and medians are compared. A peer's
views are made before its clock starts, and so are a device's, in the run before; it finds them again on the clock.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import json
import os
import platform
import subprocess
import sys
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from math import prod
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from threading import Thread
from time import perf_counter, process_time
from typing import Any
from unittest import mock

import numpy as np
import onnx
import onnxruntime
from bench_demo import HERE, ROOT, cpu_model, len_cpus
from msgspec.structs import replace
from numpy.typing import NDArray
from onnx.reference import ReferenceEvaluator
from threadpoolctl import threadpool_info

sys.path.insert(0, str(ROOT))

from tapestry_exec import NumpyBackend, RunResult, SerialBackend, calibrate, check_plan, deploy, evaluate, run
from tapestry_exec.cli.commands import random_inputs
from tapestry_exec.copies.arrays import pack, strided_copies
from tapestry_exec.copies.strided import pack_transfers
from tapestry_exec.numpy.backend import NumpyDevice
from tapestry_exec.run.evaluate import difference
from tapestry_exec.run.ways import one_blas_thread
from tapestry_plan import Graph, Link, Mesh, Op, ShardPlan, least_memory, load_onnx, plan
from tapestry_plan.onnx import before_softmax, light_model
from tapestry_plan.ops import add, matmul, relu
from tapestry_plan.steps import Buffer, spill
from tapestry_sets import Region, Sett, Stripe
from tests.layered_models import gpt_with_weights

Array = NDArray[Any]

RESULTS = HERE.parent / "results" / "bench_exec.md"
PAYLOADS_NBYTES = (1 << 24, 1 << 20)
RUNS_NBYTES = (4, 16, 64, 256, 1 << 10, 1 << 12, 1 << 14, 1 << 16)
ITEM = np.dtype(np.float32)
LEAST_SHARE = 0.95
"""Of the peer's throughput."""
PASSES = 5
MAX_MICROSECONDS = 3.0
"""A step of a plan with tiny blocks, all in all."""


def alternated(calls: Sequence[Callable[[], object]], rounds: int) -> NDArray[np.float64]:
    """Seconds of each call in each round; they take turns, in both orders, so that what else runs meets all of them."""
    seconds = np.empty((rounds, len(calls)))
    for k in range(rounds):
        order = range(len(calls)) if k % 2 else reversed(range(len(calls)))
        for which in order:
            begin = perf_counter()
            calls[which]()
            seconds[k, which] = perf_counter() - begin
    return seconds


def share_of_best(seconds: NDArray[np.float64]) -> float:
    """The first call's throughput over that of the fastest of the others: the median over the rounds."""
    best = 1 + int(np.median(seconds[:, 1:], axis=0).argmin())
    return float(np.median(seconds[:, best] / seconds[:, 0]))


# -------------------------------------------------------------------------------------------- packing and unpacking


@dataclass(frozen=True)
class Part:
    """One strided view of an array, written by hand: extents, first element, strides in elements."""

    dims: tuple[int, ...]
    first: int
    strides: tuple[int, ...]


@dataclass(frozen=True)
class Case:
    """A region, and the same cells as strided views in the order in which they are packed."""

    name: str
    run: int
    """Cells that lie together."""
    region: Region
    parts: tuple[Part, ...]


def cases(r: int, size: int) -> Iterator[Case]:
    """Regions of about so many cells with inner runs of `r` cells."""
    inner, middle, outer = Stripe(r, r), Stripe(16 * r, 8 * r), Stripe(96 * r, 48 * r)
    n = max(1, size // (8 * r))
    region = Region((n * 24 * r,), [Sett(middle, inner)])
    yield Case("two levels", r, region, (Part((n, 8, r), 0, (24 * r, 2 * r, 1)),))
    ragged, more = n * 24 * r + 4 * r + max(r // 2, 1), max(r // 2, 1)
    tail = Part((2, r), n * 24 * r, (2 * r, 1)), Part((more,), n * 24 * r + 4 * r, (1,))
    region = Region((ragged,), [Sett(middle, inner)])
    yield Case("two levels, ragged", r, region, (Part((n, 8, r), 0, (24 * r, 2 * r, 1)), *tail))
    n = max(1, size // (32 * r))
    region = Region((n * 144 * r,), [Sett(outer, middle, inner)])
    yield Case("three levels", r, region, (Part((n, 4, 8, r), 0, (144 * r, 24 * r, 2 * r, 1)),))
    rows = size // r
    region = Region.from_bounds((rows, 3 * r), (0, r), (rows, 2 * r))
    yield Case("box, rank 2", r, region, (Part((rows, r), r, (3 * r, 1)),))
    n = max(1, size // (16 * r))
    region = Region.from_bounds((2 * n, 32, 2 * r), (n, 8, r // 2), (2 * n, 24, r // 2 + r))
    part = Part((n, 16, r), n * 64 * r + 16 * r + r // 2, (64 * r, 2 * r, 1))
    yield Case("box, rank 3", r, region, (part,))
    n = max(1, size // (12 * r))
    region = Region((5 * n, 8 * r), [Sett(Stripe(3, 2)), Sett(inner)])
    yield Case("stripes on two axes", r, region, (Part((n, 3, 4, r), 0, (40 * r, 8 * r, 2 * r, 1)),))


def in_array(part: Part, array: Array, by_runs: bool) -> Array:
    """A part as a view of the array; by runs, an item is a whole inner run."""
    dims, strides = part.dims, [s * array.itemsize for s in part.strides]
    item = np.dtype((np.void, dims[-1] * array.itemsize)) if by_runs else array.dtype
    kept = len(dims) - by_runs
    return np.ndarray(dims[:kept], item, array, part.first * array.itemsize, strides[:kept])


def in_payload(views: Sequence[Array], payload: Array) -> list[Array]:
    """Views of the payload, one after the other, of the same shapes and items."""
    found, at = [], 0
    for view in views:
        found.append(np.ndarray(view.shape, view.dtype, payload, at))
        at += view.nbytes
    assert at == payload.nbytes, "the parts are all of the payload"
    return found


def packing(views: Sequence[Array], nbytes: int) -> Callable[[], Array]:
    """What NumPy does with the views: a payload of its own, and a copy for each view."""

    def pack_views() -> Array:
        payload = np.empty(nbytes // ITEM.itemsize, ITEM)
        for source, target in zip(views, in_payload(views, payload), strict=True):
            np.copyto(target, source)
        return payload

    return pack_views


def unpacking(views: Sequence[Array], payload: Array) -> Callable[[], None]:
    sources = in_payload(views, payload)

    def unpack_views() -> None:
        for source, target in zip(sources, views, strict=True):
            np.copyto(target, source)

    return unpack_views


@dataclass(frozen=True)
class Share:
    """Our share of the peer's throughput, that of the peer itself run as ours is, and the peer's throughput."""

    case: Case
    views: int
    pack: float
    unpack: float
    control: float
    peer_gigabytes: float


def lay(region: Region) -> tuple[NumpyDevice, Buffer, Array]:
    """A device with one buffer over a region's box, and all of the buffer's cells."""
    nbytes = prod(region.shape) * ITEM.itemsize
    buffer = Buffer(0, 0, "x", (0,) * region.rank, region.shape, ITEM.name, 0, nbytes)
    (device,) = NumpyBackend().open([nbytes])
    device.alloc(buffer, region.shape)
    array = device.memory[:nbytes].view(ITEM)
    device.unpack(np.random.default_rng(0).random(array.size, ITEM.type), buffer, (Region.full(region.shape),))
    return device, buffer, array


def measured(case: Case, rounds: int) -> Share:
    device, buffer, array = lay(case.region)
    regions = (case.region,)
    payload = device.pack(buffer, regions)
    check(case, array, payload)
    kinds = (False, True) if case.run > 1 else (False,)
    peers = [[in_array(part, array, by_runs) for part in case.parts] for by_runs in kinds]
    packs = [packing(views, payload.nbytes) for views in peers]
    unpacks = [unpacking(views, payload) for views in peers]
    forth = alternated([lambda: device.pack(buffer, regions), *packs], rounds)
    back = alternated([lambda: device.unpack(payload, buffer, regions), *unpacks], rounds)
    best = int(np.median(forth[:, 1:], axis=0).argmin())
    again = alternated([packs[best], packs[best]], rounds)
    count = len(strided_copies(pack_transfers, ITEM.itemsize, buffer.shape, buffer.start, regions).views)
    rate = payload.nbytes / float(np.median(forth[:, 1 + best])) / 1e9
    return Share(case, count, share_of_best(forth), share_of_best(back), share_of_best(again), rate)


def check(case: Case, array: Array, payload: Array) -> None:
    """Ours is what the peer's views hold; it is made of a view for each part, and of no index arrays."""
    expected = np.concatenate([in_array(part, array, False).ravel() for part in case.parts])
    np.testing.assert_array_equal(payload, expected)
    whole, start = array.reshape(case.region.shape), (0,) * case.region.rank
    tracemalloc.start()
    pack(whole, start, (case.region,))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < payload.nbytes + (1 << 16), f"{case.name}: {peak - payload.nbytes:,} B beside the payload"
    copies = strided_copies(pack_transfers, ITEM.itemsize, whole.shape, start, (case.region,))
    assert len(copies.views) <= 2 * len(case.parts), f"{case.name}: {len(copies.views)} copies"


SMALL_NBYTES = 128
MAX_SMALL_MICROSECONDS = 0.7
CALLS = 1000


def small_payload(rounds: int) -> list[str]:
    """What a payload of eight runs of 16 bytes costs, beside NumPy's own copies."""
    region = Region.from_bounds((24, 24), (0, 8), (8, 12))
    device, buffer, array = lay(region)
    regions = (region,)
    payload, view = device.pack(buffer, regions), array.reshape(24, 24)[:8, 8:12]
    assert payload.nbytes == SMALL_NBYTES and np.array_equal(payload.reshape(view.shape), view)
    forth, back = packing([view], SMALL_NBYTES), unpacking([view], payload)
    calls = [lambda: device.pack(buffer, regions), lambda: device.unpack(payload, buffer, regions), forth, back]

    def many(call: Callable[[], object]) -> Callable[[], None]:
        def call_often() -> None:
            for _ in range(CALLS):
                call()

        return call_often

    mine, his, packed, unpacked = np.median(alternated([many(call) for call in calls], rounds), axis=0) * 1e6 / CALLS
    reached = "reached" if mine <= MAX_SMALL_MICROSECONDS else "**not reached**"
    print(f"{SMALL_NBYTES} B: pack {mine:.2f} us, unpack {his:.2f} us, copyto {packed:.2f} and {unpacked:.2f} us")
    return [
        f"A payload of {SMALL_NBYTES} bytes, in eight runs: packed in {mine:.2f} us and unpacked in {his:.2f} us, "
        f"`np.copyto` on views of it {packed:.2f} and {unpacked:.2f} us. Aim of packing <= "
        f"{MAX_SMALL_MICROSECONDS} us: {reached}."
    ]


def measure_all(nbytes: int, rounds: int) -> list[Share]:
    every = [case for length in RUNS_NBYTES for case in cases(length // ITEM.itemsize, nbytes // ITEM.itemsize)]
    return [measured(case, rounds) for case in every]


def pack_rows(nbytes: int, rounds: int) -> list[Share]:
    """Every case in each of several passes, and the medians of the passes: other work seldom meets a case in most.

    Each pass is a process of its own, since where the heap lays a payload out is luck that stays until its end.
    """
    passes = []
    for _ in range(PASSES):
        with ProcessPoolExecutor(1, get_context("spawn")) as alone:
            passes.append(alone.submit(measure_all, nbytes, max(3, rounds // PASSES)).result())
    found = []
    for shares in zip(*passes, strict=True):
        names = ("pack", "unpack", "control", "peer_gigabytes")
        found.append(
            dataclasses.replace(shares[0], **{name: median(getattr(one, name) for one in shares) for name in names})
        )
        one = found[-1]
        print(
            f"{one.case.name:20} {nbytes_shown(one.case.run * ITEM.itemsize):>7}  pack {one.pack:5.2f}  "
            f"unpack {one.unpack:5.2f}  control {one.control:5.2f}  {one.peer_gigabytes:6.2f} GB/s"
        )
    return found


PACK_HEAD = [
    "## Packing and unpacking",
    "",
    "Our share of the throughput of `np.copyto` on the fastest strided views of the same cells of a float32 array; a "
    "peer's views are of cells, or of whole inner runs as one item, and are made beforehand; a device keeps its own "
    "from the run before, and finds them again on the clock. The control is the peer "
    "against itself: what the other work on the machine makes of a ratio of 1. Nothing but strided views is copied, "
    "without index arrays.",
]


def pack_table(nbytes: int, found: Sequence[Share]) -> list[str]:
    shares = [share for one in found for share in (one.pack, one.unpack)]
    forth, back = (sum(getattr(one, way) < LEAST_SHARE for one in found) for way in ("pack", "unpack"))
    lines = [
        f"Payloads of {nbytes_shown(nbytes)}, aim >= {LEAST_SHARE:.0%}: **missed in {forth + back} of {len(shares)}** "
        f"({forth} of {len(found)} of packing, {back} of {len(found)} of unpacking; counted before rounding), median "
        f"{median(shares):.3f}, least {min(shares):.2f}; controls from {min(one.control for one in found):.2f} to "
        f"{max(one.control for one in found):.2f}.",
        "",
        "| region | inner run | views | pack | unpack | control | peer, GB/s |",
        "|---|---|---|---|---|---|---|",
    ]
    return lines + [
        f"| {one.case.name} | {nbytes_shown(one.case.run * ITEM.itemsize)} | {one.views} | {one.pack:.2f} | "
        f"{one.unpack:.2f} | {one.control:.2f} | {one.peer_gigabytes:.1f} |"
        for one in found
    ]


def nbytes_shown(nbytes: int) -> str:
    for unit, size in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if nbytes >= size:
            return f"{nbytes // size} {unit}"
    return f"{nbytes} B"


# ----------------------------------------------------------------------------------------------- what a step costs


def tiny_plan(operators: int, devices: int) -> ShardPlan:
    """Operators on blocks of 64 bytes and less, cut along one axis and, every four operators, along the other one."""
    g = Graph()
    x = y = g.input("x", (8, 8))
    fix = {}
    for k in range(operators):
        y = relu(y, name=f"n{k}") if k % 2 else add(y, x, name=f"n{k}")
        fix[f"n{k}"] = {f"i{k // 4 % 2}": devices}
    g.output(y, "y")
    return plan(g, Mesh((devices,)), fix=fix)


class Remembering(NumpyDevice):
    """A device that remembers the blocks that it ran, to run them again without anything around them."""

    def __init__(self, memory: Array, calls: list[Callable[[], object]]) -> None:
        super().__init__(memory)
        self.calls = calls

    def launch(self, op: Op, *where: Any) -> None:
        def block(xp: Any, *given: Any) -> None:
            op.block(xp, *given)
            self.calls.append(partial(op.block, xp, *given))

        super().launch(replace(op, block=block), *where)


class RememberingBackend(NumpyBackend):
    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Callable[[], object]] = []

    def open(self, nbytes: Sequence[int], payload_nbytes: Sequence[int] = ()) -> Any:
        return [Remembering(device.memory, self.calls) for device in super().open(nbytes, payload_nbytes)]


@dataclass(frozen=True)
class StepCost:
    """Microseconds a step of one run: of the whole call, and of the operators' blocks alone.

    Of the run whose time is the median of all runs' are also how many steps of each kind it has, and their microseconds
    all together.
    """

    steps: int
    call: float
    blocks: float
    kinds: dict[str, tuple[int, float]]

    @property
    def rest(self) -> float:
        """Microseconds of the call outside of steps."""
        return self.call * self.steps - sum(total for _, total in self.kinds.values())


def step_cost(rounds: int) -> StepCost:
    p = tiny_plan(56, 4)
    inputs = {"x": np.zeros((8, 8), np.float32)}
    remembering = RememberingBackend()
    run(p, inputs, backend=remembering)
    blocks = list(remembering.calls)
    run(p, inputs)

    def alone() -> None:
        for block in blocks:
            block()

    runs: list[RunResult] = []
    seconds = alternated([lambda: runs.append(run(p, inputs)), alone], rounds)
    middle = int(np.argsort(seconds[:, 0])[rounds // 2])
    timeline = runs[middle].timeline
    call, blocks = seconds[middle, 0], float(np.median(seconds[:, 1]))
    kinds = {
        kind: (count, sum(event.seconds for event in timeline if event.kind == kind) * 1e6)
        for kind, count in Counter(event.kind for event in timeline).most_common()
    }
    found = StepCost(len(p.steps), float(call) * 1e6 / len(p.steps), blocks * 1e6 / len(p.steps), kinds)
    print(f"{found.call:.2f} us a step of {found.steps}, {found.blocks:.2f} of it in blocks")
    return found


def step_table(found: StepCost) -> list[str]:
    reached = "reached" if found.call <= MAX_MICROSECONDS else "**not reached**"
    rows = [(kind, str(count), total / count, total) for kind, (count, total) in found.kinds.items()]
    return [
        "## What a step costs",
        "",
        f"A plan of {found.steps} steps on four devices, with blocks of 64 bytes and less, run again and again; of "
        f"these runs the median one: {found.call:.1f} us a step from the call of `run` to its return. The operators' "
        f"own NumPy calls, run alone, are {found.blocks:.1f} us of it; the others are what is around them: binding, "
        "checking inputs and counts, buffers, views of blocks, copies between devices, timeline. "
        f"Aim <= {MAX_MICROSECONDS:.0f} us for all of it: {reached}.",
        "",
        "| step | how many | us each | us a step of the plan |",
        "|---|---|---|---|",
        *(f"| {kind} | {count} | {each:.1f} | {total / found.steps:.2f} |" for kind, count, each, total in rows),
        f"| outside of steps | | | {found.rest / found.steps:.2f} |",
        f"| all | {found.steps} | | {found.call:.2f} |",
    ]


# ---------------------------------------------------------------------------------------------- networks, and memory

KINDS = ("place", "pack", "move", "unpack", "copy", "compute", "reduce", "alloc", "free")


def seconds_by_kind(result: RunResult) -> Counter[str]:
    """Seconds of a run's steps by kind; copies between devices as pack, move and unpack."""
    seconds: Counter[str] = Counter()
    for event in result.timeline:
        for part in event.phases:
            seconds[part.kind] += part.seconds  # type: ignore[assignment]
        seconds[event.kind] += event.seconds - sum(part.seconds for part in event.phases)  # type: ignore[assignment]
    return seconds


def network(name: str, devices: int, rounds: int) -> dict[str, Any]:
    """Seconds of a network's run by kind of work, and in less memory, in this process."""
    model = light_model(name)
    graph = load_onnx(model, outputs=before_softmax(model))
    p = plan(graph, Mesh((devices,)))
    inputs = random_inputs(graph, 0)
    least, most = max(least_memory(p)), max(p.peak_nbytes)
    tight = spill(p, least)
    run(p, inputs, backend="serial"), run(tight, inputs, backend="serial")
    whole, kinds, rest, runs, less = [], [], [], [], []
    for _ in range(rounds):
        begin = perf_counter()
        evaluate(graph, inputs)
        whole.append(perf_counter() - begin)
        begin = perf_counter()
        last = run(p, inputs, backend="serial")
        runs.append(perf_counter() - begin)
        kinds.append(seconds_by_kind(last))
        rest.append(runs[-1] - sum(kinds[-1].values()))
        begin = perf_counter()
        last_tight = run(tight, inputs, backend="serial")
        less.append(perf_counter() - begin)
    for key, array in last.outputs.items():
        assert array.tobytes() == last_tight.outputs[key].tobytes(), "less memory, the same bits"
    return {
        "name": name,
        "steps": len(p.steps),
        "whole": median(whole),
        "run": median(runs),
        **{kind: median(one.get(kind, 0.0) for one in kinds) for kind in KINDS},
        "rest": median(rest),
        "moved": last.nbytes_moved,
        "placed": sum(last.nbytes_placed),
        "most": most,
        "least": least,
        "spilled": sum(last_tight.nbytes_spilled),
        "less": median(less),
    }


def in_own_process(name: str, devices: int, rounds: int) -> dict[str, Any]:
    command = [sys.executable, __file__, "--only", name, "--devices", str(devices), "--rounds", str(rounds)]
    environment = {**os.environ, **dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"), "1")}
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment)
    row: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    print(
        ", ".join(f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}" for key, value in row.items())
    )
    return row


def network_table(rows: Sequence[dict[str, Any]], devices: int) -> list[str]:
    lines = [
        f"## Networks on {devices} devices",
        "",
        "Medians, in milliseconds, of the same runs; the devices' work is done one after the other in one process. "
        "Pack, move and unpack are copies between devices (a move hands a payload over), copy is within a device.",
        "",
        "| network | steps | unsharded | run | " + " | ".join(KINDS) + " | the rest | MB moved | MB placed |",
        "|" + "---|" * (len(KINDS) + 7),
    ]
    for row in rows:
        times = [row["whole"], row["run"], *(row[kind] for kind in KINDS), row["rest"]]
        lines.append(
            f"| {row['name']} | {row['steps']} | "
            + " | ".join(f"{seconds * 1e3:.2f}" for seconds in times)
            + f" | {row['moved'] / 1e6:.2f} | {row['placed'] / 1e6:.2f} |"
        )
    lines += [
        "",
        "The same plans in the least memory in which they run, what one step uses at once; the bits are the same:",
        "",
        "| network | memory, MB a device | least, MB | MB spilled and fetched | run, ms | in the least memory, ms |",
        "|---|---|---|---|---|---|",
    ]
    return lines + [
        f"| {row['name']} | {row['most'] / 1e6:.2f} | {row['least'] / 1e6:.2f} | {row['spilled'] / 1e6:.2f} | "
        f"{row['run'] * 1e3:.1f} | {row['less'] * 1e3:.1f} |"
        for row in rows
    ]


# ------------------------------------------------------------------------------------------ ways of running, the check


def open_model(name: str) -> tuple[Any, Graph]:
    """A network by name, with the graph of what is before its softmax, or an ONNX file with its input's shape."""
    if name == "gpt":
        model = gpt_with_weights()
        return model, load_onnx(model)
    file, _, shape = name.partition("@")
    if not shape:
        model = light_model(name)
        return model, load_onnx(model, outputs=before_softmax(model))
    model = onnx.load(file)
    (read,) = model.graph.input
    return model, load_onnx(model, shapes={read.name: tuple(map(int, shape.split("x")))})


def shown(name: str) -> str:
    file, _, shape = name.partition("@")
    return f"{Path(file).stem} {shape}" if shape else name


def ways(name: str, devices: int, rounds: int) -> dict[str, Any]:
    """Seconds of a network in each way of running, in turns: unsharded, by ONNX Runtime, and sharded."""
    model, graph = open_model(name)
    inputs, rates = random_inputs(graph, 0), calibrate()
    p = plan(graph, replace(rates, shape=(devices,)))
    reference = ReferenceEvaluator(model)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    fed = {one.name: inputs[one.name] for one in session.get_inputs() if one.name in inputs}
    last: dict[str, RunResult] = {}

    def keep(key: str, call: Callable[[], RunResult]) -> Callable[[], None]:
        return lambda: last.update({key: call()})

    with (
        deploy(p, backend="serial") as loop,
        deploy(p, backend=NumpyBackend(threads=True)) as threads,
        deploy(p, backend="processes") as processes,
        deploy(p, backend="onnxruntime") as sessions,
        deploy(plan(graph, replace(rates, shape=(1,))), backend="onnxruntime") as one,
    ):
        calls: dict[str, Callable[[], object]] = {
            "ONNX Runtime": lambda: session.run(None, fed),
            "ONNX's reference": lambda: reference.run(None, fed),
            "unsharded": lambda: evaluate(graph, inputs),
            "run": keep("run", lambda: run(p, inputs, backend="serial")),
            "loop": keep("loop", lambda: loop.run(inputs)),
            "threads": keep("threads", lambda: threads.run(inputs)),
            "processes": keep("processes", lambda: processes.run(inputs)),
            "sessions": lambda: sessions.run(inputs),
            "sessions on one device": lambda: one.run(inputs),
        }
        for call in calls.values():
            call()
        free = [count_free_cores()]
        seconds = np.median(alternated(list(calls.values()), rounds), axis=0)
        free.append(count_free_cores())
    is_whole = [one.name for one in model.graph.output] == list(graph.outputs)
    for key, array in zip(graph.outputs, session.run(None, fed), strict=True) if is_whole else ():
        # What a sigmoid makes of -10 is 5e-5, and right to 1e-7: ONNX Runtime differs from itself by that.
        made = last["run"].outputs[key]
        assert difference(made, array) < 1e-5 or np.abs(made - array).max() < 1e-6, "the numbers of ONNX Runtime"
    for key, array in last["run"].outputs.items():
        assert all(array.tobytes() == one.outputs[key].tobytes() for one in last.values()), "the same bits"
    assert len({one.nbytes_moved for one in last.values()}) == 1
    counts = {"moved": p.nbytes_moved, "placed": sum(p.nbytes_placed), "copied": sum(p.nbytes_copied)}
    return {
        "name": shown(name),
        "counts": counts,
        "free": sum(free) / 2,
        **dict(zip(calls, seconds.tolist(), strict=True)),
    }


def count_free_cores() -> float:
    """How many times as much as one thread all cores multiply at once: what else runs, and what they share, shows."""
    many = len_cpus()
    arrays = [np.ones((3, 384, 384), np.float32) for _ in range(many)]

    def work(a: Array) -> None:
        for _ in range(20):
            np.matmul(a[0], a[1], out=a[2])

    def time(some: Sequence[Array]) -> float:
        threads = [Thread(target=work, args=(a,)) for a in some]
        begin = perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return perf_counter() - begin

    with one_blas_thread():
        turns = [(time(arrays[:1]), time(arrays)) for _ in range(9)]
    return many * median(alone for alone, _ in turns) / median(together for _, together in turns)


def ways_table(rows: Sequence[dict[str, Any]], devices: int) -> list[str]:
    heads = [key for key in rows[0] if key not in ("name", "counts", "free")]
    lines = [
        f"## Ways of running, {devices} devices",
        "",
        "Medians of wall time in milliseconds, in turns, BLAS on one thread; all ways but the sessions give the "
        "same bits. `run` places inputs and constants; in the ways behind it constants stay: one loop, a thread "
        "for each device, a process for each, and sessions of ONNX Runtime, with threads where work is long, and on "
        "one device. Aims: one loop 1.1 of unsharded, the best of threads and processes 0.6 of one loop; unsharded of "
        "ONNX Runtime 2, 3, 6 and 1.5 (GPT), 6 for PP-OCR's detection (of the wheel rapidocr-onnxruntime), sessions "
        "on one device 1.2; the loop 0.55 of ONNX's reference on the GPT (4 layers of width 768, 128 tokens, weights "
        "in the model). Plans are for the rates that `tapestry calibrate` measures first. Cores free: how many times "
        "as many products as one thread all cores made in the same time, before and behind these runs. Bytes are of "
        "one run, predicted and counted alike, on all devices together.",
        "",
        "| network | cores free | "
        + " | ".join(heads)
        + " | unsharded / ONNX Runtime | sessions on one / ONNX Runtime | loop / unsharded | best / loop | "
        "loop / reference | B moved | B placed | B copied within |",
        "|" + "---|" * (len(heads) + 10),
    ]
    for row in rows:
        ratios = (
            row["unsharded"] / row["ONNX Runtime"],
            row["sessions on one device"] / row["ONNX Runtime"],
            row["loop"] / row["unsharded"],
            min(row["threads"], row["processes"]) / row["loop"],
            row["loop"] / row["ONNX's reference"],
        )
        times = " | ".join(f"{row[key] * 1e3:.1f}" for key in heads)
        found = [*(f"{ratio:.2f}" for ratio in ratios), *(f"{n:,}" for n in row["counts"].values())]
        lines.append(f"| {row['name']} | {row['free']:.2f} | {times} | " + " | ".join(found) + " |")
    return lines


# ------------------------------------------------------------------------------------- where processor time goes

Product = tuple[NDArray[Any], NDArray[Any], NDArray[Any]]


def processor(name: str, devices: int, rounds: int) -> dict[str, Any]:
    """Processor seconds of a network behind placing, unsharded and in one loop; and of its products alone.

    These are the calls of `np.matmul` that a run made, on the same arrays, again without anything of ours around them.
    """
    _, graph = open_model(name)
    inputs, rates = random_inputs(graph, 0), calibrate("serial")
    plans = [plan(graph, replace(rates, shape=(n,))) for n in (1, devices)]
    products, apart = [list_products(p, inputs) for p in plans], SerialBackend()
    with deploy(plans[1], backend="serial") as many:
        calls: dict[str, Callable[[], object]] = {
            "unsharded": lambda: evaluate(graph, inputs),
            "sharded": lambda: many.run(inputs),
            "in all": lambda: run(plans[1], inputs, backend=apart),
            "products": partial(multiply, products[0]),
            "sharded products": partial(multiply, products[1]),
        }
        found: dict[str, list[float]] = {key: [] for key in calls}
        kinds = list[Counter[str]]()
        with np.errstate(all="ignore"):  # between runs arrays hold what was left there
            for _ in range(rounds):
                for key, call in calls.items():
                    begin = process_time()
                    last = call()
                    found[key].append(process_time() - begin)
                    if isinstance(last, RunResult) and key == "sharded":
                        kinds.append(seconds_by_kind(last))
    told = {f"in {kind}": min(one[kind] for one in kinds) for kind in KINDS}  # by the clock: the least disturbed one
    return {"name": shown(name), **{key: median(each) for key, each in found.items()}, **told}


def list_products(p: ShardPlan, inputs: dict[str, Any]) -> list[Product]:
    """The products of matrices that a run makes, in order: what is read, and where they go."""
    made, multiply_now = list[Product](), np.matmul

    def note(a: NDArray[Any], b: NDArray[Any], out: NDArray[Any] | None = None) -> NDArray[Any]:
        product = multiply_now(a, b) if out is None else multiply_now(a, b, out=out)
        made.append((a, b, np.empty_like(product) if out is None else out))
        return product

    # Devices keep what they call: those of a backend of its own, which nobody asks for anything else.
    with mock.patch.object(np, "matmul", note), deploy(p, backend=SerialBackend()) as placed:
        placed.run(inputs)
    return made


def multiply(products: Sequence[Product]) -> None:
    for a, b, out in products:
        np.matmul(a, b, out=out)


def processor_table(rows: Sequence[dict[str, Any]], devices: int) -> list[str]:
    lines = [
        f"## Processor time on {devices} devices",
        "",
        "Medians in milliseconds of processor time, in turns, BLAS on one thread; all devices in one loop, of plans "
        "for the rates that `tapestry calibrate --backend serial` measures first. Sharded is behind placing, in all is "
        "a run that places. Products are a run's calls of "
        "`np.matmul`, alone, on the same arrays: what BLAS takes longer for small matrices. Copies are packed, moved "
        "and unpacked between devices, or within one; places are taken and given back (`alloc`, `free`). What is left "
        "are further NumPy calls, and Python around them.",
        "",
        "| network | unsharded | sharded | in all | sharded / unsharded | in all / unsharded | products | "
        "sharded products | more for products | copies and merges | places | more for the rest |",
        "|" + "---|" * 12,
    ]
    for row in rows:
        more = row["sharded products"] - row["products"]
        copies = sum(row[f"in {kind}"] for kind in ("place", "pack", "move", "unpack", "copy", "reduce"))
        places = row["in alloc"] + row["in free"]
        rest = row["sharded"] - row["unsharded"] - more - copies - places
        first = row["unsharded"], row["sharded"], row["in all"]
        times = [f"{seconds * 1e3:.1f}" for seconds in first]
        times += [f"{seconds / row['unsharded']:.2f}" for seconds in first[1:]]
        parts = row["products"], row["sharded products"], more, copies, places, rest
        times += [f"{seconds * 1e3:.1f}" for seconds in parts]
        lines.append(f"| {row['name']} | " + " | ".join(times) + " |")
    return lines


def check_table(devices: int = 256) -> list[str]:
    """What checking a product takes whose parts all devices merge."""
    g = Graph()
    made = matmul(g.input("x", (devices, devices)), g.input("w", (devices, 64)), name="it")
    g.output(relu(made, name="after"), "y")
    fix = {"it": {"k": devices}, "after": {"i0": devices}}
    p = plan(g, Mesh((devices,), link=Link(0.0, 1e9)), fix=fix, expand=False, space="mesh")
    begin = process_time()
    check_plan(p)
    seconds = process_time() - begin
    return [
        "## The check",
        "",
        f"A product split over its sum on {devices} devices, which all merge a share: {len(p.steps):,} steps are "
        f"checked in {seconds:.1f} s of processor time (aim: 2).",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default="pack,steps,networks,ways,processor,check")
    parser.add_argument("--rounds", type=int, default=101)
    parser.add_argument("--devices", type=int, default=4)
    parser.add_argument("--networks", default="squeezenet,resnet50")
    parser.add_argument(
        "--models",
        nargs="*",
        default=[],
        metavar="FILE@SHAPE",
        help="further ONNX files to run in every way, each with the shape of its input, as in det.onnx@1x3x320x320",
    )
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS.relative_to(ROOT)}")
    parser.add_argument("--only", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.only:
        part, name = args.only.split(":", 1)
        measures = {"network": network, "ways": ways, "processor": processor}
        print(json.dumps(measures[part](name, args.devices, args.rounds)))
        return
    parts, tables = args.parts.split(","), [head()]
    if "pack" in parts:
        tables.append(PACK_HEAD)
        rounds = {nbytes: args.rounds if nbytes < 1 << 22 else args.rounds // 4 for nbytes in PAYLOADS_NBYTES}
        tables.append(small_payload(args.rounds))
        tables += [pack_table(nbytes, pack_rows(nbytes, count)) for nbytes, count in rounds.items()]
    if "steps" in parts:
        tables.append(step_table(step_cost(args.rounds)))
    if "networks" in parts:
        rounds = max(5, args.rounds // 8)
        rows = [in_own_process(f"network:{name}", args.devices, rounds) for name in args.networks.split(",")]
        tables.append(network_table(rows, args.devices))
    if "ways" in parts:
        rounds = max(5, args.rounds // 8)
        names = [*args.networks.split(","), "shufflenet", "gpt", *args.models]
        rows = [in_own_process(f"ways:{name}", args.devices, rounds) for name in names]
        tables.append(ways_table(rows, args.devices))
    if "processor" in parts:
        rounds = max(5, args.rounds // 4)
        names = [*args.networks.split(","), "gpt", *args.models]
        rows = [in_own_process(f"processor:{name}", args.devices, rounds) for name in names]
        tables.append(processor_table(rows, args.devices))
        print("\n".join(tables[-1]))
    if "check" in parts:
        tables.append(check_table())
    if args.write:
        RESULTS.write_text("\n\n".join("\n".join(table) for table in tables) + "\n")
        print(f"wrote {RESULTS.relative_to(ROOT)}")


def blas_kernel() -> str:
    """The processor that NumPy's BLAS has its kernels for."""
    return ", ".join(str(one.get("architecture")) for one in threadpool_info() if one["user_api"] == "blas")


def head() -> list[str]:
    return [
        "# The NumPy executor",
        "",
        f"{datetime.date.today()}, {cpu_model()}, {len_cpus()} cores, Python {platform.python_version()}, NumPy "
        f"{np.__version__}, BLAS on one thread ({blas_kernel()}), load average {os.getloadavg()[0]:.1f}: other work "
        "ran on the machine. Written by `python tests/bench/bench_exec.py --write`.",
    ]


if __name__ == "__main__":
    main()
