"""The interpreter of one device's program: it does each step in the device's memory, and counts bytes and times.

Whatever runs the devices, one after the other or side by side, has one of these for each::

    program of device 1      interpreter                    memory             transport
    recv 7 from device 0 ──► wait for the parcel ─────────────────────────────► recv(7, 0)
                             unpack it            ────────► unpack
    compute conv         ──► the block function   ────────► launch
    send 9 to device 2   ──► pack                 ────────► pack ─────────────► send(9, 2, parcel)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from time import perf_counter
from typing import Any, NamedTuple, Protocol

from msgspec import Struct

from tapestry_exec.copies import Array, pack
from tapestry_exec.run.backends import Absorbed, Backend, DeviceMemory, Reads, Writes
from tapestry_exec.run.rehearsed import Rehearsal, Rehearsed, find_rehearsal
from tapestry_exec.run.settled import Noted, Record, Settled, Timed, pack_noted
from tapestry_exec.run.stores import Source
from tapestry_exec.run.trace import Phase, TraceEvent, new
from tapestry_plan.ir import Op, OpNode, Shard
from tapestry_plan.steps import (
    HOST,
    Alloc,
    Buffer,
    Collective,
    Compute,
    Copy,
    DeviceStep,
    Fetch,
    Free,
    Output,
    Recv,
    Reduce,
    Send,
    Spill,
)
from tapestry_sets.regions import Region

NOWHERE = object()
"""Where cells of a receipt lay that come to other memory in each run: a transport says so by `receives_anew`."""


class Parcel(NamedTuple):
    """Cells on their way to another device, with when they were packed, in seconds of this machine's clock."""

    cells: Any
    packed: float
    seconds: float


class Transport(Protocol):
    """How parcels leave one device and reach it."""

    def send(self, tag: int, peer: int, parcel: Parcel) -> None:
        """Hand a parcel over; nothing is waited for."""
        ...

    def recv(self, tag: int, peer: int) -> Parcel:
        """Wait for the parcel that a peer sends under a tag."""
        ...


class StepFacts(Struct, frozen=True):
    """What the steps of a plan, or those of one device, are about.

    Parameters
    ----------
    buffers : mapping of int to Buffer
    shapes : mapping of str to tuple of int
        Of the tensors and views whose blocks the buffers hold.
    nodes : mapping of str to OpNode
    makers : mapping of str to str
        The operator that makes each tensor.
    shards : mapping of int to Shard
        Of each `Compute`, by the number of the plan's step.
    outputs : tuple of Output
    overtaken : mapping of int to int
        The buffers that give no bytes back, since others have their places, with these.
    lasting : frozenset of int
        Those that one copy from the host fills, all of them, and that nothing else is written to.
    apart : frozenset of int
        Those that stay, which have memory beside the arenas; what lies over one of them lies there, too.
    """

    buffers: Mapping[int, Buffer]
    shapes: Mapping[str, tuple[int, ...]]
    nodes: Mapping[str, OpNode]
    makers: Mapping[str, str]
    shards: Mapping[int, Shard]
    outputs: tuple[Output, ...]
    overtaken: Mapping[int, int] = {}
    lasting: frozenset[int] = frozenset()
    apart: frozenset[int] = frozenset()

    def find_end(self, buffer: Buffer) -> int:
        """How far a buffer reaches into the arena of its device."""
        return 0 if buffer.within is not None or buffer.place in self.apart else buffer.offset + buffer.room

    def count_taken(self, step: Alloc | Free) -> int:
        """Bytes of the arena that a step takes for its buffer, or gives back."""
        buffer = self.buffers[step.buffer]
        is_passed_on = buffer.over is not None if isinstance(step, Alloc) else buffer.id in self.overtaken
        return 0 if is_passed_on or buffer.within is not None else buffer.nbytes


class Counts(Struct):
    """What one device counted in a run."""

    links: Counter[tuple[int, int]]
    """Bytes handed to the transport, by this device and the one that they go to."""
    placed: int
    copied: int
    """Bytes of cells that were copied within the device."""
    spilled: int
    flop: float
    peak_nbytes: int
    timeline: list[Noted] | Timed
    """Of the steps that were done; packed where they are told to another process, which unpacks them when asked."""
    told: Settled | bytes = ()
    """Events of the others."""

    def list_events(self) -> tuple[TraceEvent, ...]:
        """One for each step of this device."""
        return Record.of((self.timeline, self.told)).list_events()

    def __reduce__(self) -> tuple[Any, ...]:
        plain = self.links, self.placed, self.copied, self.spilled, self.flop, self.peak_nbytes
        events = self.timeline if isinstance(self.timeline, Timed) else Timed.of(self.timeline)
        return Counts, (*plain, events, self.told if isinstance(self.told, bytes) else pack_noted(self.told))


class Interpreter:
    """Does the steps of one device, and counts what it hands to the transport.

    Parameters
    ----------
    device : int
    work : StepFacts
    memory : DeviceMemory
    backend : Backend
        That carries cells from the host, and payloads between devices of its own.
    host : mapping of str to array
        Inputs and constants.
    ops : mapping of str to Op
    transport : Transport
    lending : bool, optional
        Of devices that read in each other's memory: whether parcels are taken before their senders do another step.
    carried : mapping of str to array, optional
        Constants that the graph itself has, of devices that read in the host's memory.
    """

    def __init__(
        self,
        device: int,
        work: StepFacts,
        memory: DeviceMemory,
        backend: Backend[Any],
        host: Mapping[str, Array],
        ops: Mapping[str, Op],
        transport: Transport,
        lending: bool | None = None,
        carried: Mapping[str, Array] | None = None,
    ) -> None:
        self.device, self.work, self.memory, self.backend = device, work, memory, backend
        self.host, self.ops, self.transport = host, ops, transport
        self.lending, self.carried = lending, carried or {}
        self.kept: dict[int, Array] = {}
        """What lies in host memory: buffers by the number under which they were spilled."""
        self.watch: Callable[[DeviceStep], None] | None = None
        """Called before each step of a run that saves what its devices hold."""
        self.told: Settled = ()
        """Events of steps that are not done anew."""
        self.stood_since: float | None = None
        """Where devices take turns: when it came to the receipt at which it stands."""
        self.rehearsal: Rehearsal | None = None
        self.source: Any = None
        """Of a receipt that is noted: where its cells lay."""
        self.begin_at(perf_counter())

    def begin_at(self, begin: float) -> None:
        """Count from zero, with times since a time of the clock."""
        self.begin = begin
        self.links: Counter[tuple[int, int]] = Counter()
        self.placed = self.spilled = 0
        self.flop = 0.0
        self.timeline: list[Noted] = []
        self.kept.clear()
        self.by_heart: Mapping[int, Rehearsed] = {}
        """Steps whose calls are known, by number."""
        self.noting: dict[int, Rehearsed] | None = None
        """The same of a run in which they are noted."""
        self.noted_constants: set[str] = set()
        """What these read in the host's memory."""
        self.watch, self.told, self.stood_since = None, (), None
        self.absorbed: Mapping[int, Absorbed] | None = getattr(self.memory, "absorbed", None)

    def rehearse(self, steps: Sequence[DeviceStep]) -> None:
        """Do steps by heart that are about to be done, note them, or find that they are done for the first time."""
        self.rehearsal = known = find_rehearsal(self.memory, self.work, self.ops, steps, self.lending)
        if known is not None and not known.reads_same(self.host):
            self.rehearsal = None  # this run alone has other constants
        elif known is not None and known.parts is not None:
            self.by_heart = known.parts
        elif known is not None:
            self.noting = {}

    def keep_noted(self) -> None:
        """Know by heart, from the next run on, what was noted in this one."""
        if self.rehearsal is not None and self.noting is not None:
            self.rehearsal.keep(self.noting, {name: self.host[name] for name in self.noted_constants})

    def do(self, at: DeviceStep) -> None:
        """Do one step of this device."""
        part = self.by_heart.get(at.number)
        if part is not None:
            self._do_by_heart(at, part)
        elif self.noting is not None and self._is_same_again(at):
            assert at.number not in self.noting, "a device does a part of a step once"
            self.noting[at.number] = self._note(at)
        else:
            self._do(at)

    def _do_by_heart(self, at: DeviceStep, part: Rehearsed) -> None:
        """Do one step whose calls are known; what it counts is counted behind the run, but for what it sends."""
        start, step = perf_counter(), at.step
        if part.source is not None:
            assert isinstance(step, Recv), "something comes"
            self._recv_by_heart(step, part, start)
            return
        for call in part.calls:
            call()
        if part.post is not None:
            part.post(start)
        elif part.lend is not None:
            assert isinstance(step, Send), "something is handed over"
            self._hand_over(step, part.lend(), start)
        elif part.event is not None:
            self.timeline.append((part.event, start - self.begin, perf_counter() - start))

    def _recv_by_heart(self, step: Recv, part: Rehearsed, start: float) -> None:
        parcel, waited = self._take_parcel(step, start)
        unpacking = perf_counter()
        self.memory.unpack_again(parcel.cells, part.source, part.calls, self.work.buffers[step.dst], step.regions)
        end, begin, packed, packing = perf_counter(), self.begin, parcel.packed, parcel.seconds
        assert part.event is not None, "it is told of"
        self.timeline.append((part.event, packed - begin, end - packed, packing, unpacking - begin, waited))

    def count_by_heart(self) -> None:
        """Count what all steps count whose calls are known, when these were called."""
        if self.by_heart and self.rehearsal is not None:
            totals = self.rehearsal.count()
            self.flop += totals.flop
            self.placed += totals.placed_nbytes
            self.memory.copied_nbytes += totals.copied_nbytes
            for peer, nbytes in totals.nbytes_by_peer.items():
                self.links[self.device, peer] += nbytes

    def _is_same_again(self, at: DeviceStep) -> bool:
        """Whether a step calls the same in every run, on arrays of this process that lie where they lay."""
        match at.step:
            case Alloc() | Free() | Compute() | Reduce():
                return True
            case Copy():
                return at.step.src != HOST or at.step.piece is not None or self._is_carried(at.step)
            case Send() | Recv():
                return self.lending is not None
            case _:
                return False

    def _is_carried(self, step: Copy) -> bool:
        """Whether a copy from the host reads a constant of the graph where it lies."""
        return not step.again and self.host[step.tensor] is self.carried.get(step.tensor, self)

    def _note(self, at: DeviceStep) -> Rehearsed:
        """Do one step, and note what it calls."""
        step, memory, events = at.step, self.memory, len(self.timeline)
        flop, placed, copied = self.flop, self.placed, memory.copied_nbytes
        sent = lend = post = source = None
        if isinstance(step, Send):
            before = self.links[self.device, step.peer]
            calls = memory.note(partial(self._do, at))
            sent = step.peer, self.links[self.device, step.peer] - before
            if not self.lending:
                lend, post = self._bind_send(step)
        else:
            calls = memory.note(partial(self._do, at))
            source = self.source if isinstance(step, Recv) and not self.lending else None
            if source is not None and getattr(self.transport, "receives_anew", False):
                calls, source = (), NOWHERE  # calls would hold memory that nothing comes to again
        self.source = None
        event = self.timeline[-1] if len(self.timeline) > events else None
        assert event is None or isinstance(event, TraceEvent), "it was done anew"
        counted = self.flop - flop, memory.copied_nbytes - copied, self.placed - placed
        return Rehearsed(calls, event, *counted, sent, lend, post, source)

    def _bind_send(self, step: Send) -> tuple[Callable[[], Any] | None, Callable[[float], None] | None]:
        """What hands the same cells over in later runs: to a device of this process, or to another process."""
        buffer = self.work.buffers[step.src]
        bind: Callable[[int, int, Any], Callable[[float], None] | None] = getattr(
            self.transport, "bind_send", lambda *_: None
        )
        post = bind(step.tag, step.peer, self.memory.find_strips(buffer, step.regions))
        return (self.memory.lend_again(buffer, step.regions), None) if post is None else (None, post)

    def _do(self, at: DeviceStep) -> None:
        if self.watch is not None:
            self.watch(at)
        if self.absorbed and (told := self.absorbed.get(at.number)) is not None:
            kind, node, nbytes, flop = told
            self.flop += flop
            self.timeline.append(
                new(TraceEvent, (at.number, kind, node, self.device, perf_counter() - self.begin, 0.0, nbytes, (), 0.0))
            )
            return
        event = _WAYS[type(at.step)](self, at.number, at.step, perf_counter())
        if event is not None:
            self.timeline.append(event)

    def place(self, at: DeviceStep) -> None:
        """Do one step once and for all: the buffer that it allocates stays."""
        if isinstance(at.step, Alloc):
            buffer = self.work.buffers[at.step.buffer]
            self.memory.hold(buffer, self.work.shapes.get(buffer.tensor, buffer.shape))
        else:
            self.do(at)

    def carry(self, at: DeviceStep) -> None:
        """Copy cells of an output to the input whose place it takes, behind the run."""
        if isinstance(at.step, Copy):
            keep: Callable[[Sequence[int]], None] | None = getattr(self.memory, "keep_loans", None)
            if keep is not None:  # others may still read what is there
                keep((at.step.dst,))
            self.memory.copy(self.work.buffers[at.step.src], self.work.buffers[at.step.dst], at.step.regions)

    def count(self) -> Counts:
        """What was counted since `begin_at`; without the events of steps that are only told."""
        copied, peak = self.memory.copied_nbytes, self.memory.peak_nbytes
        return Counts(self.links, self.placed, copied, self.spilled, self.flop, peak, self.timeline)

    def take(self, number: int, region: Region) -> Array:
        """Cells of an output, as a host array, to be read when the backend has let it arrive."""
        buffer = self.work.buffers[number]
        if number in self.kept:
            return pack(self.kept[number].reshape(buffer.shape), buffer.start, (region,))
        collect: Callable[[Any], Array] = getattr(self.backend, "collect", self.backend.fetch)
        return collect(self.memory.pack(buffer, (region,)))

    # -- steps: each gives its event, but for a `Send`, which is told by the `Recv` of the other device ---------

    def _told(self, k: int, kind: str, node: str, start: float, nbytes: int = 0) -> TraceEvent:
        return new(
            TraceEvent, (k, kind, node, self.device, start - self.begin, perf_counter() - start, nbytes, (), 0.0)
        )

    def _alloc(self, k: int, step: Alloc, start: float) -> TraceEvent:
        buffer = self.work.buffers[step.buffer]
        self.memory.alloc(buffer, self.work.shapes.get(buffer.tensor, buffer.shape))
        return self._told(k, "alloc", buffer.tensor, start, self.work.count_taken(step))

    def _free(self, k: int, step: Free, start: float) -> TraceEvent:
        buffer = self.work.buffers[step.buffer]
        self.memory.free(buffer)
        return self._told(k, "free", buffer.tensor, start, self.work.count_taken(step))

    def _copy(self, k: int, step: Copy, start: float) -> TraceEvent:
        #   with a piece     a view's block is filled where it lies    the device counts what it copies
        #   a constant       read where it lies, or as the next        counts as placed
        #   from the host    place, unpack                             counts as placed, or as spilled
        #   else             copy                                      the device counts what it copies
        target, nbytes, kind = self.work.buffers[step.dst], 0, "copy"
        if step.piece is not None:
            source = self.work.buffers[step.src] if step.src != HOST else target
            self.memory.gather(source, target, step.piece, step.regions)
        elif step.src == HOST and self._is_carried(step):
            kind, array = "place", self.host[step.tensor]
            # Steps that are known by heart read the arena where the constant was another one as they were noted.
            is_lasting = step.dst in self.work.lasting and not self.by_heart
            nbytes = self.memory.read_host(array, target, step.regions, is_lasting)
            self.placed += nbytes
            if self.noting is not None:
                self.noted_constants.add(step.tensor)
        elif step.src == HOST:
            array, regions = self.host[step.tensor], step.regions
            if isinstance(array, Source):  # of which these cells are read, and no others
                array = array.take(regions)
                regions = (Region.full(array.shape),)
            payload = self.backend.place(array, regions, step.tensor)
            nbytes = int(payload.nbytes)
            self.memory.unpack(payload, target, step.regions)
            if step.again:
                kind, self.spilled = "fetch", self.spilled + nbytes
            else:
                kind, self.placed = "place", self.placed + nbytes
        else:
            self.memory.copy(self.work.buffers[step.src], target, step.regions)
        return self._told(k, kind, step.node, start, nbytes)

    def _send(self, k: int, step: Send, start: float) -> None:
        buffer = self.work.buffers[step.src]
        if self.lending is None:
            payload = self.memory.pack(buffer, step.regions)
        else:
            payload = self.memory.lend(buffer, step.regions, self.lending)
        self._hand_over(step, payload, start)

    def _hand_over(self, step: Send, payload: Any, start: float) -> None:
        self.links[self.device, step.peer] += int(payload.nbytes)
        self.transport.send(step.tag, step.peer, Parcel(payload, start, perf_counter() - start))

    def _recv(self, k: int, step: Recv, start: float) -> TraceEvent:
        (parcel, waited), peer = self._take_parcel(step, start), step.peer
        nbytes = int(parcel.cells.nbytes)
        arrived = self.backend.move(parcel.cells, peer, self.device)
        unpacking = perf_counter()
        if self.noting is not None:
            self.source = self.memory.find_source(arrived)
        self.memory.unpack(arrived, self.work.buffers[step.dst], step.regions)
        end, begin, packed = perf_counter(), self.begin, parcel.packed
        moving = packed + parcel.seconds
        phases = (
            new(Phase, ("pack", peer, packed - begin, parcel.seconds)),
            new(Phase, ("move", self.device, moving - begin, unpacking - moving)),
            new(Phase, ("unpack", self.device, unpacking - begin, end - unpacking)),
        )
        return new(
            TraceEvent, (k, "copy", step.node, self.device, packed - begin, end - packed, nbytes, phases, waited)
        )

    def _take_parcel(self, step: Recv, start: float) -> tuple[Parcel, float]:
        """A parcel, and how long was waited for it."""
        parcel = self.transport.recv(step.tag, step.peer)
        if self.stood_since is None:
            return parcel, perf_counter() - start
        waited, self.stood_since = max(parcel.packed + parcel.seconds - self.stood_since, 0.0), None
        return parcel, waited  # until the cells came: then it waited for its turn

    def _exchange(self, k: int, step: Collective, start: float) -> TraceEvent:
        """Do this device's share in a collective, of which all others do theirs; it counts what it sends."""
        done = self.backend.exchange([self.memory], step, self.work.buffers)
        self.links.update(done.nbytes_by_link)
        return self._told(k, "collective", step.node, start, sum(done.nbytes_by_link.values()))

    def _spill(self, k: int, step: Spill, start: float) -> TraceEvent:
        buffer = self.work.buffers[step.buffer]
        payload = self.memory.spill(buffer)
        self.kept[buffer.id] = self.backend.fetch(payload)
        self.spilled += int(payload.nbytes)
        return self._told(k, "spill", buffer.tensor, start, int(payload.nbytes))

    def _fetch(self, k: int, step: Fetch, start: float) -> TraceEvent:
        buffer = self.work.buffers[step.buffer]
        array = self.kept[step.spilled] if step.keep else self.kept.pop(step.spilled)
        payload = self.backend.place(array.reshape(buffer.shape), (Region.full(buffer.shape),), buffer.tensor)
        self.memory.unpack(payload, buffer, (Region.full(buffer.shape, buffer.start),))
        self.spilled += int(payload.nbytes)
        return self._told(k, "fetch", buffer.tensor, start, int(payload.nbytes))

    def _compute(self, k: int, step: Compute, start: float) -> TraceEvent:
        shard = self.work.shards[k]
        op = self.ops[self.work.nodes[step.node].op]
        inputs, outputs, workspace = find_blocks(self.work, step, shard)
        self.memory.launch(op, inputs, outputs, shard, workspace)
        self.flop += count_flop(op, shard)
        return self._told(k, "compute", step.node, start)

    def _reduce(self, k: int, step: Reduce, start: float) -> TraceEvent:
        """Merge parts by the monoid of the operator that made them."""
        output = self.work.buffers[step.output]
        parts = [self.work.buffers[number] for number in step.inputs]
        maker = self.work.nodes[self.work.makers[output.tensor]]
        monoid = self.ops[maker.op].monoid
        assert monoid is not None and monoid.name == step.monoid, "checked before the first step"
        self.memory.merge(monoid, maker.attrs, parts, output, step.regions, step.fan_in)
        return self._told(k, "reduce", step.node, start)


def count_flop(op: Op, shard: Shard) -> float:
    """What a shard takes."""
    counted: tuple[Op, float] | None = shard.known.get("flop")
    if counted is None or counted[0] is not op:
        counted = shard.known["flop"] = op, *op.count_flop(shard.signature, shard.attrs, [shard.index])
    return counted[1]


def find_blocks(work: StepFacts, step: Compute, shard: Shard) -> tuple[Reads, Writes, Buffer | None]:
    """Where a step's blocks and its scratch memory lie: the same objects in every run with these buffers."""
    buffers = work.buffers
    every: dict[int, tuple[Mapping[int, Buffer], tuple[Reads, Writes, Buffer | None]]]
    every = shard.known.setdefault("launch", {})  # those of runs, and of deployments, which hold something beside them
    known = every.get(id(buffers))
    if known is None or known[0] is not buffers:
        pieces = step.pieces or (None,) * len(step.inputs)
        inputs = tuple(
            None if number is None or box is None else (buffers[number], box, piece)
            for number, box, piece in zip(step.inputs, shard.input_boxes, pieces, strict=True)
        )
        outputs = tuple((buffers[n], box) for n, box in zip(step.outputs, shard.output_boxes, strict=True))
        workspace = None if step.workspace is None else buffers[step.workspace]
        known = every[id(buffers)] = buffers, (inputs, outputs, workspace)
    return known[1]


_WAYS: dict[type, Callable[[Interpreter, int, Any, float], TraceEvent | None]] = {
    Alloc: Interpreter._alloc,
    Free: Interpreter._free,
    Copy: Interpreter._copy,
    Compute: Interpreter._compute,
    Reduce: Interpreter._reduce,
    Send: Interpreter._send,
    Recv: Interpreter._recv,
    Collective: Interpreter._exchange,
    Spill: Interpreter._spill,
    Fetch: Interpreter._fetch,
}
