"""The interpreter of plans: one loop over the steps, on any backend, which counts bytes moved and held."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from os import PathLike
from time import perf_counter
from typing import Any, assert_never

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tapestry_exec.copies import Array, pack, read_view, unpack
from tapestry_exec.run import tuning
from tapestry_exec.run.backends import KNOWN, Backend, DeviceMemory, Recorded
from tapestry_exec.run.check import describe
from tapestry_exec.run.evaluate import (
    FEEDS,
    check_finite,
    check_unified,
    difference,
    evaluate_with_scale,
    hold,
    match_inputs,
    most_apart,
)
from tapestry_exec.run.prepared import PreparedPlan
from tapestry_exec.run.room import check_copies
from tapestry_exec.run.trace import Phase, TraceEvent, check_target, on_devices, write_trace
from tapestry_plan.ir import BUILTIN_OPS, Op, Shard
from tapestry_plan.rewrite import list_inside, with_ops
from tapestry_plan.steps import (
    HOST,
    Alloc,
    Buffer,
    Collective,
    Compute,
    Copy,
    Fetch,
    Free,
    Reduce,
    ShardPlan,
    Spill,
    Step,
)
from tapestry_sets.limits import FrozenDict, check_arguments, hide_fields, quote
from tapestry_sets.regions import Region

Progress = Callable[[int, int, str], None]


class TransferMismatch(RuntimeError):
    """A run moved or held another number of bytes than its plan predicted."""


class StepFailed(RuntimeError):
    """A step of a plan raised an error; nothing of the run is returned."""


class ResultMismatch(RuntimeError):
    """A sharded run and the unsharded run differ by more than rounding."""


class RunResult(Struct, frozen=True):
    """The outputs of a run, its bytes and its times; the run counts every number and takes none from the plan.

    Of a plan that was recorded as a graph of the driver, and launched as a whole, the counts are those of the run that
    was recorded.

    Parameters
    ----------
    outputs : dict of str to array
        The graph's outputs, which are the caller's from then on: he may write to them, no later run reads them.
    nbytes_by_link : dict of (source device, target device) to int
        Bytes handed to the transport.
    nbytes_received, nbytes_placed : tuple of int
        By device: bytes from other devices, and bytes of inputs and constants from the host.
    peak_nbytes : tuple of int
        By device: the arena's high-water mark.
    flop : tuple of float
        By device: operations declared for the index points that were computed.
    seconds : float
        From the first step to the last.
    timeline : tuple of TraceEvent
    difference : dict of str to float, optional
        With `verify`: max|difference| / max|reference| of each output.
    nbytes_spilled : tuple of int
        By device: bytes to host memory for want of room, and back; zeros where everything fits.
    """

    outputs: dict[str, Array]
    nbytes_by_link: dict[tuple[int, int], int]
    nbytes_received: tuple[int, ...]
    nbytes_placed: tuple[int, ...]
    peak_nbytes: tuple[int, ...]
    flop: tuple[float, ...]
    seconds: float
    timeline: tuple[TraceEvent, ...]
    difference: dict[str, float] | None = None
    nbytes_spilled: tuple[int, ...] = ()

    __repr__ = hide_fields("outputs", "nbytes_by_link", "timeline")

    @property
    def nbytes_moved(self) -> int:
        """Bytes between devices, once for each receiving device."""
        return sum(self.nbytes_received)


@check_arguments(
    shard_plan="make one with plan(graph, mesh)",
    inputs=FEEDS,
    constants=FEEDS,
    backend=KNOWN,
    verify="give True to compare every output with the unsharded run",
    progress="it is called with steps done, steps in all, and the operator",
    trace="give the path of a file",
    memory_nbytes="give a number of bytes",
    ops="it maps names to operators, as {op.name: op}",
)
def run(
    shard_plan: ShardPlan,
    inputs: Mapping[str, Any],
    *,
    backend: str | Backend[Any] = "numpy",
    verify: bool = False,
    progress: Progress | None = None,
    trace: str | PathLike[str] | None = None,
    memory_nbytes: int | None = None,
    constants: Mapping[str, Any] | None = None,
    ops: Mapping[str, Op] | None = None,
) -> RunResult:
    """Run a plan.

    Parameters
    ----------
    shard_plan : ShardPlan
    inputs : mapping of str to array
        Every input of the graph, with its exact shape and dtype.
    backend : str or Backend
        An object, or a name: then the arenas are kept for further runs of this plan, as long as it lives.
    verify : bool
        Also run the graph unsharded and compare: integers and booleans exactly, floats within
        `DIFFERENCE_BOUND` of max|difference| / max|reference|. Inputs must be finite then; constants need not.
    progress : callable, optional
        Called with (steps done, steps in all, operator) after each operator's shard. What it raises ends the
        run.
    trace : path, optional
        Write the timeline there as a Chrome trace, with the devices' own times where they work ahead of the host.
    memory_nbytes : int, optional
        Bytes that a device's arena may have. Where the plan needs more, ``spill(shard_plan, memory)`` runs in its
        place: buffers wait in host memory while they are idle, and `RunResult.nbytes_spilled` says what that moved.
    constants : mapping of str to array, optional
        Values of constants that the plan names but does not carry.
    ops : mapping of str to Op, optional
        Operators, by name, that replace or add to those of the plan's graph, also where they are in a block.

    Returns
    -------
    RunResult

    Raises
    ------
    TypeError
        For an argument of another type than it must have.
    InvalidPlan
        When the plan's steps do not hold together (see `check_plan`); nothing has run then.
    ValueError
        For missing, unknown or unfit inputs and constants, an unknown backend, a trace that cannot be written,
        or less memory than one step needs (`InfeasiblePlan`); nothing has run then.
    MemoryError
        When the plan's arenas take more memory than is free; nothing has been allocated then.
    StepFailed
        When a step raises, as block functions may; names step, operator, shard, devices and regions. Ctrl-C
        raises KeyboardInterrupt instead: devices are closed, and no trace is written.
    TransferMismatch
        When bytes counted differ from bytes predicted.
    ResultMismatch
        With `verify`, when an output differs from the unsharded run's.

    Examples
    --------
    >>> from tapestry_plan import Graph, Mesh, plan
    >>> g = Graph()
    >>> _ = g.output(g.input("x", (6,)) + g.input("y", (6,)), "z")
    >>> r = run(plan(g, Mesh(2)), {"x": np.ones(6, np.float32), "y": np.arange(6, dtype=np.float32)}, verify=True)
    >>> r.outputs["z"].tolist(), r.nbytes_moved, r.difference
    ([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], 0, {'z': 0.0})
    """
    prepared = PreparedPlan(shard_plan, backend)
    given = match_inputs(shard_plan.graph, inputs, constants)
    prepared = prepared.within(memory_nbytes)
    prepared.check_room()
    copied = {name: array.nbytes for name, array in given.items() if not array.flags.c_contiguous}
    check_copies(copied)
    host = hold(shard_plan.graph, given, constants)
    check_unified(host, shard_plan.unified)
    if copied:
        prepared.check_room()  # of what is left beside the copies
    if verify:
        check_finite(shard_plan.graph, host)
    if trace is not None:
        check_target(trace, "trace")
    known, engine = {name: with_ops(op, ops or {}) for name, op in prepared.plan.graph.ops.items()}, prepared.backend
    known = {**{name: one for op in known.values() for name, one in list_inside(op).items()}, **known, **(ops or {})}

    def interpret(devices: Sequence[DeviceMemory]) -> RunResult:
        return _Interpreter(prepared, devices, host, known).run(progress)

    with engine.alone():
        engine.check({**BUILTIN_OPS, **known}, _placed_ops(prepared.plan, known))
        # A recording has the operators of the run that was recorded, and no times of single steps.
        recording = engine.recorded(prepared.plan) if trace is None and not ops else None
        if recording is None:
            result = _issue(prepared, trace is not None, interpret)
        else:
            result = _launch_again(prepared.plan, recording, host, progress)
    _compare_counts(prepared.plan, result)
    if trace is not None:
        write_trace(result.timeline, trace)
    if not verify:
        return result
    found = _verified(prepared.plan, result.outputs, inputs, constants)
    return replace(result, difference=found)


class _Interpreter:
    """Runs the steps in order; counts what it hands to the backend."""

    def __init__(
        self, prepared: PreparedPlan, devices: Sequence[DeviceMemory], host: Mapping[str, Array], ops: Mapping[str, Op]
    ) -> None:
        self.plan = plan = prepared.plan
        self.graph, self.backend, self.devices = plan.graph, prepared.backend, devices
        self.host, self.ops, self.shards = host, ops, prepared.shards
        self.makers = {out: name for name, node in plan.graph.nodes.items() for out in node.outputs}
        self.buffers = {buffer.id: buffer for buffer in plan.buffers}
        self.links: Counter[tuple[int, int]] = Counter()
        self.is_merged = False
        """Whether the backend merged the parts of the collective that it ran last."""
        self.placed = [0] * len(devices)
        self.spilled = [0] * len(devices)
        self.kept: dict[int, Array] = {}
        """What lies in host memory: buffers by the number under which they were spilled."""
        self.flop = [0.0] * len(devices)
        self.timeline: list[TraceEvent] = []

    def run(self, progress: Progress | None) -> RunResult:
        begin = self.begin = perf_counter()
        total, spans, counts = len(self.plan.steps), self.backend.spans, [0]
        for k, step in self._in_order():
            start = perf_counter()
            try:
                node, device, nbytes, phases = self._step(k, step)
            except Exception as error:
                raise StepFailed(
                    f"step {k} ({describe(self.plan, step)}{self._cells(k, step)}) failed: {type(error).__name__}: "
                    f"{error}"
                ) from error
            now = perf_counter()
            kind = _kind(step)
            self.timeline.append(TraceEvent(k, kind, node, device, start - begin, now - start, nbytes, phases))
            if spans is not None:
                counts.append(len(spans))
            if progress is not None and (isinstance(step, Compute) or k + 1 == total):
                progress(k + 1, total, node)
        self._finish(self.backend.synchronize)
        seconds = perf_counter() - begin
        if spans is not None:
            self.timeline = on_devices(self.timeline, self.backend.times(begin), counts)
        cells = [self._taken(number, region) for output in self.plan.outputs for number, region in output.blocks]
        self._finish(self.backend.arrive)
        received = [0] * len(self.devices)
        for (_, dst), nbytes in self.links.items():
            received[dst] += nbytes
        return RunResult(
            _assembled(self.plan, cells),
            FrozenDict(self.links),
            tuple(received),
            tuple(self.placed),
            tuple(device.peak_nbytes for device in self.devices),
            tuple(self.flop),
            seconds,
            tuple(self.timeline),
            nbytes_spilled=tuple(self.spilled),
        )

    def _in_order(self) -> Iterator[tuple[int, Any]]:
        """The steps with their numbers; what the backend runs as one operation stands in the place of its copies."""
        if getattr(type(self.backend), "takes", Backend.takes) is Backend.takes:  # as of one that has no such method
            yield from enumerate(self.plan.steps)
            return
        at = 0
        for step in self.plan.grouped_steps:
            if not isinstance(step, Collective):
                yield at, step
                at += 1
                continue
            if self.backend.takes(step):
                opening, copies, closing = step.places
                yield from ((at + k, step.steps[k]) for k in opening)
                yield at + copies[0], step
                is_merged = self.is_merged  # as the backend said of this one
                rest = (k for k in closing if not (is_merged and isinstance(step.steps[k], Reduce)))
                yield from ((at + k, step.steps[k]) for k in rest)
            else:
                yield from enumerate(step.steps, at)
            at += len(step.steps)

    def _finish(self, wait: Callable[[], None]) -> None:
        """Wait until the devices have done what the steps put into their queues."""
        try:
            wait()
        except Exception as error:
            raise StepFailed(
                f"work that the steps had put into the devices' queues failed: {type(error).__name__}: {error}; "
                "CupyBackend(blocking=True) waits after each step and names the one"
            ) from error

    def _cells(self, k: int, step: Step | Collective) -> str:
        """The shard, blocks and regions that a step is about, for messages."""
        match step:
            case Compute():
                boxes = [None if box is None else (box.start, box.stop) for box in self.shards[k].input_boxes]
                return f", input blocks (start, stop) {boxes}"
            case Copy() | Reduce():
                block = step.dst if isinstance(step, Copy) else step.output
                more = len(step.regions) - tuning.SHOWN_REGIONS
                listed = ", ".join(map(repr, step.regions[: tuning.SHOWN_REGIONS]))
                listed += f" and {more} more" if more > 0 else ""
                return f", {self._extent(block)}, regions [{listed}]"
            case Collective():
                return f", {len(step.at)} blocks of {step.nbytes} B"
            case Alloc() | Free() | Spill() | Fetch():
                return f", {self._extent(step.buffer)}"
            case _:
                assert_never(step)

    def _extent(self, number: int) -> str:
        box = self.buffers[number].box
        return f"the block (start, stop) {(box.start, box.stop)} of {quote(self.buffers[number].tensor)}"

    def _step(self, k: int, step: Step | Collective) -> tuple[str, int, int, tuple[Phase, ...]]:
        """Run one step; give its operator, its device, the bytes that it moved and the phases of a copy."""
        match step:
            case Copy():
                return step.node, self.buffers[step.dst].device, *self._copy(step)
            case Compute():
                self._compute(step, self.shards[k])
                return step.node, step.device, 0, ()
            case Reduce():
                return step.node, self._reduce(step), 0, ()
            case Collective():
                return step.node, step.group[0], self._exchange(step), ()
            case Alloc() | Free() | Spill() | Fetch():
                buffer = self.buffers[step.buffer]
                return buffer.tensor, buffer.device, self._change(step, buffer), ()
            case _:
                assert_never(step)

    def _change(self, step: Alloc | Free | Spill | Fetch, buffer: Buffer) -> int:
        """Give a buffer a place or take it back, or send what it holds to the host or bring it back; give the bytes."""
        memory = self.devices[buffer.device]
        if isinstance(step, Alloc):
            known = self.graph.stored.get(buffer.tensor) or self.graph.selections.get(buffer.tensor)
            memory.alloc(buffer, known.shape if known else buffer.shape)
        elif isinstance(step, Free):
            memory.free(buffer)
        else:
            nbytes = self._spill(buffer) if isinstance(step, Spill) else self._fetch(step, buffer)
            self.spilled[buffer.device] += nbytes
            return nbytes
        return buffer.nbytes

    def _copy(self, step: Copy) -> tuple[int, tuple[Phase, ...]]:
        """Copy cells; give the bytes that were moved, and between devices how long each phase took."""
        #   with a piece          a view's block is filled where it lies           moves nothing
        #   from the host         place, unpack                                   counts as placed, or as spilled
        #   on one device         copy                                            moves nothing
        #   between two devices   pack, move, unpack                              counts for their link
        target = self.buffers[step.dst]
        device = self.devices[target.device]
        if step.piece is not None:
            source = self.buffers[step.src] if step.src != HOST else target
            device.gather(source, target, step.piece, step.regions)
            return 0, ()
        if step.src == HOST:
            payload = self.backend.place(self.host[step.tensor], step.regions, step.tensor)
            counts = self.spilled if step.again else self.placed
            counts[target.device] += payload.nbytes
            device.unpack(payload, target, step.regions)
            return int(payload.nbytes), ()
        source = self.buffers[step.src]
        if source.device == target.device:
            device.copy(source, target, step.regions)
            return 0, ()
        return self._across(source, target, step.regions)

    def _across(self, source: Buffer, target: Buffer, regions: Sequence[Region]) -> tuple[int, tuple[Phase, ...]]:
        """Copy cells between devices: packed into one payload, which is counted, moved and unpacked."""
        link = source.device, target.device
        packing = perf_counter()
        payload = self.devices[link[0]].pack(source, regions)
        moving = perf_counter()
        self.links[link] += payload.nbytes
        arrived = self.backend.move(payload, *link)
        unpacking = perf_counter()
        self.devices[link[1]].unpack(arrived, target, regions)
        end = perf_counter()
        return int(payload.nbytes), (
            Phase("pack", link[0], packing - self.begin, moving - packing),
            Phase("move", link[1], moving - self.begin, unpacking - moving),
            Phase("unpack", link[1], unpacking - self.begin, end - unpacking),
        )

    def _exchange(self, step: Collective) -> int:
        """Have the backend run a collective as one operation; give the bytes that it moved."""
        done = self.backend.exchange(self.devices, step, self.buffers)
        self.is_merged = done.is_merged
        self.links.update(done.nbytes_by_link)
        return sum(done.nbytes_by_link.values())

    def _spill(self, buffer: Buffer) -> int:
        payload = self.devices[buffer.device].spill(buffer)
        self.kept[buffer.id] = self.backend.fetch(payload)
        return int(payload.nbytes)

    def _fetch(self, step: Fetch, buffer: Buffer) -> int:
        array = self.kept[step.spilled] if step.keep else self.kept.pop(step.spilled)
        payload = self.backend.place(array.reshape(buffer.shape), (Region.full(buffer.shape),), buffer.tensor)
        self.devices[buffer.device].unpack(payload, buffer, (Region.full(buffer.shape, buffer.start),))
        return int(payload.nbytes)

    def _compute(self, step: Compute, shard: Shard) -> None:
        node = self.graph.nodes[step.node]
        op = self.ops[node.op]
        inputs = [
            None if number is None or box is None else (self.buffers[number], box)
            for number, box in zip(step.inputs, shard.input_boxes, strict=True)
        ]
        outputs = [(self.buffers[n], box) for n, box in zip(step.outputs, shard.output_boxes, strict=True)]
        workspace = None if step.workspace is None else self.buffers[step.workspace]
        self.devices[step.device].launch(op, inputs, outputs, shard, workspace)
        self.flop[step.device] += op.flop_per_point(shard.signature, node.attrs) * shard.index.size

    def _reduce(self, step: Reduce) -> int:
        """Merge parts by the monoid of the operator that made them; give the device."""
        output = self.buffers[step.output]
        parts = [self.buffers[number] for number in step.inputs]
        maker = self.graph.nodes[self.makers[output.tensor]]
        monoid = self.ops[maker.op].monoid
        assert monoid is not None and monoid.name == step.monoid, "checked before the first step"
        self.devices[output.device].merge(monoid, maker.attrs, parts, output, step.regions, step.fan_in)
        return output.device

    def _taken(self, number: int, region: Region) -> Array:
        buffer = self.buffers[number]
        if number in self.kept:
            return pack(self.kept[number].reshape(buffer.shape), buffer.start, (region,))
        return self.backend.fetch(self.devices[buffer.device].pack(buffer, (region,)))


def _assembled(plan: ShardPlan, cells: Sequence[Array]) -> dict[str, Array]:
    """The outputs of their blocks' cells; viewed outputs are read through their views here."""
    graph, out, rest = plan.graph, {}, iter(cells)
    tensors = {buffer.id: buffer.tensor for buffer in plan.buffers}
    for output in plan.outputs:
        source = graph.source(output.tensor)
        whole = {name: np.empty(graph.stored[name].shape, graph.stored[name].dtype) for name in source.stored}
        for number, region in output.blocks:
            unpack(next(rest), whole[tensors[number]], (0,) * region.rank, (region,))
        arrays = [whole[name] for name in source.stored]
        out[output.name] = (
            arrays[0] if source.direct else np.array(read_view(source.pieces, arrays, source.shape, source.dtype))
        )
    return out


def _issue(prepared: PreparedPlan, timed: bool, interpret: Callable[[Sequence[DeviceMemory]], RunResult]) -> RunResult:
    """Run a plan step by step; what failed while it was recorded runs once more, not recorded."""
    result = None
    try:
        result = _run_on_devices(prepared, timed, interpret)
    except StepFailed as error:
        if not prepared.backend.forget(prepared.plan, error.__cause__):
            raise
    if result is None:  # outside of the handler, whose error holds the devices
        result = _run_on_devices(prepared, timed, interpret)
    prepared.backend.remember(prepared.plan, result)
    return result


def _run_on_devices(
    prepared: PreparedPlan, timed: bool, interpret: Callable[[Sequence[DeviceMemory]], RunResult]
) -> RunResult:
    """Run on devices that are closed in any case."""
    engine = prepared.backend
    devices = engine.open(prepared.arenas_nbytes, prepared.payloads_nbytes)
    try:
        if timed:
            engine.start_clocks()
        result = interpret(devices)
    except BaseException:
        with suppress(Exception):  # what ended the run is what matters
            engine.close(devices)
        raise
    engine.close(devices)
    return result


def _placed_ops(plan: ShardPlan, ops: Mapping[str, Op]) -> Iterator[tuple[Op, int]]:
    """Each operator with the device that it runs on."""
    return ((ops[plan.graph.nodes[step.node].op], step.device) for step in plan.steps if isinstance(step, Compute))


def _launch_again(
    plan: ShardPlan, recording: Recorded, host: Mapping[str, Array], progress: Progress | None
) -> RunResult:
    """Launch what was recorded: it moves and holds what its run did, which was counted then."""
    begin = perf_counter()
    try:
        cells = recording.launch(host)
    except Exception as error:
        raise StepFailed(
            f"the plan, recorded as a graph and launched as a whole, failed: {type(error).__name__}: {error}; "
            "CupyBackend(blocking=True) waits after each step and names the one"
        ) from error
    seconds = perf_counter() - begin
    if progress is not None:
        progress(len(plan.steps), len(plan.steps), plan.graph.order()[-1].name if plan.graph.nodes else "")
    counted: RunResult = recording.result
    return replace(counted, outputs=_assembled(plan, cells), seconds=seconds, timeline=())


def _kind(step: Step | Collective) -> str:
    """The kind of a step's event."""
    if isinstance(step, Copy) and step.src == HOST:
        return "fetch" if step.again else "place"
    return type(step).__name__.lower()


COUNTED = {
    "received": "nbytes_received",
    "placed": "nbytes_placed",
    "spilled and fetched": "nbytes_spilled",
    "at most held": "peak_nbytes",
}
"""What plans predict and runs count by device, in words and as the field that has it."""


def _compare_counts(plan: ShardPlan, counted: RunResult) -> None:
    links = sorted({*plan.nbytes_by_link, *counted.nbytes_by_link})
    pairs = [
        (f"device {a} -> device {b}", *(one.nbytes_by_link.get((a, b), 0) for one in (plan, counted))) for a, b in links
    ]
    for what, name in COUNTED.items():
        found = zip(getattr(plan, name), getattr(counted, name), strict=True)
        pairs += [(f"{what} by device {d}", *both) for d, both in enumerate(found)]
    wrong = [f"{what}: {p:,} B predicted, {f:,} B counted" for what, p, f in pairs if p != f]
    if wrong:
        raise TransferMismatch("the run differs from its plan: " + "; ".join(wrong))


def _verified(
    plan: ShardPlan, outputs: Mapping[str, Array], inputs: Mapping[str, Any], constants: Mapping[str, Any] | None
) -> dict[str, float]:
    reference, scale = evaluate_with_scale(plan.graph, inputs, constants)
    found: FrozenDict[str, float] = FrozenDict((name, difference(outputs[name], reference[name])) for name in outputs)
    for name, value in found.items():
        bound = tuning.DIFFERENCE_BOUND.get(outputs[name].dtype.name, 0.0)
        if not value <= bound and not _is_rounding(outputs[name], reference[name], scale):
            raise ResultMismatch(
                f"output {quote(name)} differs from the unsharded run: max|difference| / max|reference| is "
                f"{value:.3g}, the bound for {outputs[name].dtype} is {bound:g}"
            )
    return found


def _is_rounding(found: Array, reference: Array, scale: float) -> bool:
    """Whether results differ by no more than the rounding of the numbers that they are differences of."""
    if found.dtype.kind != "f":
        return False
    return bool(most_apart(found, reference)[0] <= tuning.ROUNDINGS * np.finfo(found.dtype).eps * scale)
