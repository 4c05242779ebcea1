"""From chosen layouts to explicit steps: buffers in arenas, copies of exact regions, computations."""

from __future__ import annotations

from bisect import bisect
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from math import inf, prod
from typing import NamedTuple

import numpy as np
from msgspec import Struct, field

from tapestry_plan.ir import Graph, OpNode, Shard, Stored
from tapestry_plan.steps.cells import CellAlgebra
from tapestry_plan.steps.layout import Layout
from tapestry_plan.steps.mesh import Mesh, align
from tapestry_plan.steps.routes import BoolArray, list_senders
from tapestry_plan.steps.shard_plan import HOST, Alloc, Buffer, Compute, Copy, Free, Output, Reduce, Step
from tapestry_sets.regions import Box, DisjointRegions, Region
from tapestry_sets.views import Piece, piece_domain, piece_image

WORKSPACE = "(workspace)"


class ChosenLayouts(Struct, frozen=True):
    """The layouts that the search chose: of operators, of sources that have one, and of outputs."""

    graph: Graph
    mesh: Mesh
    layouts: Mapping[tuple[str, str], Layout]
    order: Sequence[OpNode]
    operand_needs: Callable[[OpNode, int, Box], dict[str, DisjointRegions]]
    asked_outputs: frozenset[str]
    """Outputs (by stored tensor) whose place the user chose."""
    fan_in: int | None = None
    """How many partial results are merged at a time; None for one after the other."""
    kind: Callable[[OpNode], Hashable] = lambda node: (node.name, node.inputs)
    """The structure of an operator: those of one kind read and make alike, whatever their tensors are called."""


class Lowered(Struct, frozen=True):
    """The steps, and the bytes counted while they were written."""

    buffers: tuple[Buffer, ...]
    steps: tuple[Step, ...]
    outputs: tuple[Output, ...]
    moved: dict[tuple[str, str], dict[tuple[int, int], int]]
    """Bytes from device to device for each (tensor, consumer) with any."""
    nbytes_placed: tuple[int, ...]
    peak_nbytes: tuple[int, ...]

    @property
    def nbytes_by_link(self) -> dict[tuple[int, int], int]:
        """Bytes from device to device."""
        return dict(sum(map(Counter, self.moved.values()), Counter()))


class Arena(Struct):
    """First-fit allocation in one device's memory, and its high-water mark.

    The free places are listed, which are few, not the taken ones::

        0 ██████░░░░███░░░░░██████████░░░░░░░░ …     starts [ 6, 13, 28]
                                                     stops  [10, 18,  ∞]
    """

    starts: list[int] = field(default_factory=lambda: [0])
    stops: list[float] = field(default_factory=lambda: [inf])
    peak: int = 0

    def take(self, nbytes: int) -> int:
        """Offset of a free place; the lowest one that is large enough."""
        size = align(nbytes)
        at = next(k for k, start in enumerate(self.starts) if start + size <= self.stops[k])
        offset = self.starts[at]
        if offset + size == self.stops[at]:
            del self.starts[at], self.stops[at]
        else:
            self.starts[at] += size
        self.peak = max(self.peak, offset + size)
        return offset

    def give(self, offset: int, nbytes: int) -> None:
        """Free a place."""
        stop = offset + align(nbytes)
        at = bisect(self.starts, offset)
        if at < len(self.starts) and self.starts[at] == stop:
            self.starts[at] = offset
        else:
            self.starts.insert(at, offset)
            self.stops.insert(at, stop)
        if at and self.stops[at - 1] == offset:
            self.stops[at - 1] = self.stops[at]
            del self.starts[at], self.stops[at]


class Resident(NamedTuple):
    """Cells of a tensor that a buffer has: complete, or a partial result where the buffer has a part's number."""

    buffer: Buffer
    cells: DisjointRegions


class _Lowering:
    def __init__(self, chosen: ChosenLayouts) -> None:
        self.chosen, self.graph, self.mesh = chosen, chosen.graph, chosen.mesh
        self.arenas = [Arena() for _ in range(self.mesh.size)]
        self.buffers: list[Buffer] = []
        self.steps: list[Step] = []
        self.live: defaultdict[str, dict[int, Buffer]] = defaultdict(dict)
        """By tensor and number."""
        self.algebra = CellAlgebra()
        self.resident: dict[tuple[str, int], list[Resident]] = {}
        self.holders: dict[str, list[Resident]] = {}
        """Of tensors that devices made, or had from the start: what each has, complete or as a partial result."""
        self.monoid: dict[str, str] = {}
        self.senders: dict[str, BoolArray] = {}
        self.moved: defaultdict[tuple[str, str], Counter[tuple[int, int]]] = defaultdict(Counter)
        self.placed = [0] * self.mesh.size

    # -- buffers -----------------------------------------------------------------------------------------

    def alloc(
        self, device: int, tensor: str, box: Box, dtype: str, part: int = -1, fill: float | None = None
    ) -> Buffer:
        nbytes = prod(box.shape) * self._itemsize(dtype)
        offset = self.arenas[device].take(nbytes)
        buffer = Buffer(len(self.buffers), device, tensor, box.start, box.shape, dtype, offset, nbytes, part, fill)
        self.buffers.append(buffer)
        self.steps.append(Alloc(buffer.id))
        self.live[tensor][buffer.id] = buffer
        return buffer

    def _itemsize(self, dtype: str) -> int:
        return self.algebra.fact(("itemsize", dtype), lambda: np.dtype(dtype).itemsize)

    def free(self, buffer: Buffer) -> None:
        if self.live[buffer.tensor].pop(buffer.id, None) is not None:
            self.arenas[buffer.device].give(buffer.offset, buffer.nbytes)
            self.steps.append(Free(buffer.id))

    def copy(self, node: str, tensor: Stored, src: Buffer | None, dst: Buffer, cells: DisjointRegions) -> None:
        """Copy cells from a buffer, or from the host, and count what crosses to another device."""
        regions = cells.members
        if not regions:
            return
        self.steps.append(Copy(node, tensor.name, HOST if src is None else src.id, dst.id, regions))
        nbytes = self.algebra.size(cells) * self._itemsize(dst.dtype)
        if src is None:
            self.placed[dst.device] += nbytes
        elif src.device != dst.device:
            self.moved[tensor.name, node][src.device, dst.device] += nbytes

    # -- making cells available --------------------------------------------------------------------------

    def provide(
        self, node: str, name: str, device: int, need: DisjointRegions, box: Box, fill: float | None = None
    ) -> Buffer:
        """A buffer on `device` over `box` in which the cells `need` of a stored tensor are complete."""
        # A buffer that has all of it serves as it is, unless its padding differs. Else a new one is filled: first from
        # the device's own buffers, which costs no bytes between devices, and what is missing then from others.
        tensor = self.graph.stored[name]
        mine = self.resident.setdefault((name, device), [])
        inside = Box.of(tensor.shape).contains(box)
        for have in mine:
            padded = inside or have.buffer.fill == fill
            if padded and have.buffer.box.contains(box) and self.algebra.is_within(need, have.cells):
                return have.buffer
        target = self.alloc(device, name, box, tensor.dtype, fill=None if inside else fill)
        missing = need
        for have in mine:
            local = self.algebra.meet(missing, have.cells)
            self.copy(node, tensor, have.buffer, target, local)
            missing = self.algebra.less(missing, local)
        if name in self.monoid:
            self._merge(node, tensor, target, missing)
        else:
            self._fetch(node, tensor, target, missing)
        mine.append(Resident(target, need))
        return target

    def _fetch(self, node: str, tensor: Stored, target: Buffer, missing: DisjointRegions) -> None:
        if tensor.name not in self.holders:
            self.copy(node, tensor, None, target, missing)
            return
        self._gather(node, tensor, self._nearest(tensor.name, target.device), target, missing)

    def _gather(
        self, node: str, tensor: Stored, holders: Iterable[Resident], target: Buffer, missing: DisjointRegions
    ) -> None:
        """Copy cells from the first of some holders that has each."""
        for holder in holders:
            some = self.algebra.meet(missing, holder.cells)
            if self.algebra.size(some):
                self.copy(node, tensor, holder.buffer, target, some)
                missing = self.algebra.less(missing, some)
            if not self.algebra.size(missing):
                break
        assert not self.algebra.size(missing), f"no device holds {missing} of {tensor.name}, part {target.part}"

    def _merge(self, node: str, tensor: Stored, target: Buffer, missing: DisjointRegions) -> None:
        """Collect every part's cells and merge them in ascending order of the parts."""
        box = self.algebra.box_around(missing)
        if box is None:
            return
        parts = sorted({holder.buffer.part for holder in self.holders[tensor.name]})
        inputs = [self._collect(node, tensor, target.device, part, missing, box) for part in parts]
        self._reduce(node, tensor.name, inputs, target, missing)
        made = {holder.buffer.id for holder in self.holders[tensor.name]}
        for buffer in inputs:
            if buffer.id not in made:
                self.free(buffer)

    def _reduce(self, node: str, tensor: str, parts: Sequence[Buffer], target: Buffer, cells: DisjointRegions) -> None:
        ids = tuple(buffer.id for buffer in parts)
        self.steps.append(Reduce(node, self.monoid[tensor], ids, target.id, cells.members, self.chosen.fan_in))

    def _collect(self, node: str, tensor: Stored, device: int, part: int, cells: DisjointRegions, box: Box) -> Buffer:
        """A buffer on `device` with one part's cells: where they were made, or one of their own."""
        holders = [h for h in self._nearest(tensor.name, device) if h.buffer.part == part]
        if holders[0].buffer.device == device and self.algebra.is_within(cells, holders[0].cells):
            return holders[0].buffer
        landing = self.alloc(device, tensor.name, box, holders[0].buffer.dtype, part)
        self._gather(node, tensor, holders, landing, cells)
        return landing

    def _nearest(self, name: str, device: int) -> list[Resident]:
        """Who a device reads a tensor from, one for each part and region: itself first, then around the mesh."""
        if name not in self.senders:
            first: dict[tuple[int, Box], int] = {}
            groups = [-1] * self.mesh.size
            for h in (h for h in self.holders[name] if self.algebra.size(h.cells)):
                groups[h.buffer.device] = first.setdefault((h.buffer.part, h.buffer.box), h.buffer.device)
            self.senders[name] = list_senders(groups, self.mesh)
        sends, size = self.senders[name][:, device], self.mesh.size
        near = (h for h in self.holders[name] if sends[h.buffer.device])
        return sorted(near, key=lambda h: (h.buffer.device - device) % size)

    def provide_view(self, node: OpNode, operand: int, device: int, index: Box) -> tuple[Buffer | None, bool]:
        """A buffer with an operand's block, and whether it serves this shard alone."""
        declared = self.graph.signature(node.name).inputs[operand]
        box = self._input_box(node, operand, index)
        if box is None:
            return None, False
        source = self.graph.source(node.inputs[operand])
        needs = self.chosen.operand_needs(node, operand, index)
        if source.direct:
            name = source.stored[0]
            return self.provide(node.name, name, device, needs[name], box, declared.pad), False
        below = {
            name: self.provide(node.name, name, device, need, around)
            for name, need in needs.items()
            if (around := self.algebra.box_around(need)) is not None
        }
        name, inside = node.inputs[operand], Box.of(source.shape).contains(box)
        target = self.alloc(device, name, box, source.dtype, fill=None if inside else declared.pad)
        for piece, cells in self._list_pieces(node, operand, index):
            stored = name if piece.source < 0 else source.stored[piece.source]
            source_buffer = target if piece.source < 0 else below.get(stored)
            if source_buffer is not None:
                self.steps.append(Copy(node.name, stored, source_buffer.id, target.id, cells, piece))
        return target, True

    def _input_box(self, node: OpNode, operand: int, index: Box) -> Box | None:
        key = "input", self.chosen.kind(node), operand, index
        return self.algebra.fact(key, lambda: self.graph.signature(node.name).input_box(operand, index))

    def _output_box(self, node: OpNode, output: int, index: Box) -> Box:
        key = "output", self.chosen.kind(node), output, index
        box = self.algebra.fact(key, lambda: self.graph.signature(node.name).output_box(output, index))
        assert box is not None, "shards are not empty"
        return box

    def _list_pieces(self, node: OpNode, operand: int, index: Box) -> list[tuple[Piece, tuple[Region, ...]]]:
        """Of a block of a viewed tensor: the pieces that it reads through, and the cells that each gives."""
        key = "pieces", self.chosen.kind(node), operand, index
        return self.algebra.fact(key, lambda: list(self._find_pieces(node, operand, index)))

    def _find_pieces(self, node: OpNode, operand: int, index: Box) -> Iterator[tuple[Piece, tuple[Region, ...]]]:
        source = self.graph.source(node.inputs[operand])
        seen = self.graph.signature(node.name).input_region(operand, index, source.shape)
        for piece in source.pieces:
            cells = _where_it_holds(piece, seen)
            if piece.source >= 0 and any(guard.prefix for guard in piece.guards):
                reads = piece_image(piece, cells, within=source.stored_shapes[piece.source]).size
            else:
                reads = cells.size
            if reads:
                yield piece, cells.members

    # -- stages ------------------------------------------------------------------------------------------

    def place_sources(self) -> None:
        """Inputs and constants start on the devices: in the layout they have, else where they are read."""
        used = {s for node in self.chosen.order for n in node.inputs for s in self.graph.source(n).stored}
        used.update(self._output_sources())
        for name, tensor in self.graph.stored.items():
            layout = self.chosen.layouts.get(("source", name))
            if tensor.kind != "result" and layout is not None and name in used:
                self._place_layout(tensor, layout)
        for node in self.chosen.order:
            for device, index in self._shards(node):
                for operand in range(len(node.inputs)):
                    self._place_operand(node, operand, device, index)
        for name in dict.fromkeys(self._output_sources()):
            tensor = self.graph.stored[name]
            if tensor.kind != "result" and name not in self.holders:
                self._place_rest(tensor)

    def _place_rest(self, tensor: Stored) -> None:
        """Cells of an input or constant that is a graph output, and that no operator reads anywhere."""
        missing = DisjointRegions.full(tensor.shape)
        for device in range(self.mesh.size):
            for have in self.resident.get((tensor.name, device), []):
                missing = missing - have.cells
        box = self.algebra.box_around(missing)
        if box is not None:
            self.provide("(place)", tensor.name, 0, missing, box)

    def _place_layout(self, tensor: Stored, layout: Layout) -> None:
        for device, box in enumerate(layout.boxes):
            if box is None:
                continue
            buffer = self.alloc(device, tensor.name, box, tensor.dtype)
            cells = self.algebra.of_box(box, tensor.shape)
            self.copy("(place)", tensor, None, buffer, cells)
            self._hold(tensor.name, Resident(buffer, cells))

    def _place_operand(self, node: OpNode, operand: int, device: int, index: Box) -> None:
        source = self.graph.source(node.inputs[operand])
        if all(self.graph.stored[name].kind == "result" for name in source.stored):
            return
        needs = self.chosen.operand_needs(node, operand, index)
        for name, need in needs.items():
            if self.graph.stored[name].kind == "result" or name in self.holders or not self.algebra.size(need):
                continue
            box = self._input_box(node, operand, index) if source.direct else self.algebra.box_around(need)
            assert box is not None, "cells are needed, so there is a block"
            fill = self.graph.signature(node.name).inputs[operand].pad if source.direct else None
            self.provide("(place)", name, device, need, box, fill)

    def _hold(self, name: str, holder: Resident) -> None:
        self.senders.pop(name, None)
        self.holders.setdefault(name, []).append(holder)
        if holder.buffer.part < 0:
            self.resident.setdefault((name, holder.buffer.device), []).append(holder)

    def _shards(self, node: OpNode) -> Iterator[tuple[int, Box]]:
        for device, box in enumerate(self.chosen.layouts["operator", node.name].boxes):
            if box is not None:
                yield device, box

    def run_node(self, node: OpNode) -> None:
        """One stage: gather every shard's operands, compute, free what only this stage needed."""
        # With a reduction cut each shard makes a part, and who reads the tensor merges them (`_merge`). An operator
        # with states makes a part also where it is not cut; that one is unwrapped where it lies.
        op = self.graph.ops[node.op]
        signature = self.graph.signature(node.name)
        layout = self.chosen.layouts["operator", node.name]
        parts = prod(layout.parts[a] for a in signature.reductions)
        inputs: dict[int, list[int | None]] = {}
        private: list[Buffer] = []
        for device, index in self._shards(node):
            inputs[device] = []
            for operand in range(len(node.inputs)):
                buffer, alone = self.provide_view(node, operand, device, index)
                inputs[device].append(None if buffer is None else buffer.id)
                if buffer is not None and alone:
                    private.append(buffer)
        for device, index in self._shards(node):
            part = layout.number_of(device, signature.reductions) if parts > 1 else -1
            outputs = self._outputs(node, device, index, part, parts == 1 and op.has_states)
            wanted = self._workspace(node, index)
            work = self.alloc(device, WORKSPACE, Box((0,), (wanted,)), "uint8") if wanted else None
            ids = tuple(inputs[device]), tuple(buffer.id for buffer in outputs)
            self.steps.append(Compute(node.name, device, index.start, index.shape, *ids, work.id if work else None))
            if work:
                self.free(work)
        for buffer in private:
            self.free(buffer)
        if op.monoid is not None and (parts > 1 or op.has_states):
            self.monoid.update(dict.fromkeys(node.outputs, op.monoid.name))
        if parts == 1 and op.has_states:
            self._unwrap(node)
        for name in node.outputs:
            landing = self.chosen.layouts.get(("landing", name))
            if landing is not None and name in self.monoid and any(landing.boxes):
                self._land(self.graph.stored[name], landing)

    def _workspace(self, node: OpNode, index: Box) -> int:
        """Bytes of scratch memory that a shard wants."""
        op, itemsize = self.graph.ops[node.op], self.graph.stored[node.outputs[0]].itemsize
        key = "workspace", self.chosen.kind(node), index
        return self.algebra.fact(key, lambda: op.workspace(shard_of(self.graph, node, index), itemsize))

    def _outputs(self, node: OpNode, device: int, index: Box, part: int, only_part: bool) -> list[Buffer]:
        """Buffers for what a shard writes: complete values, or states, of which this may be the only part."""
        out = []
        for k, (name, dtype) in enumerate(zip(node.outputs, self.graph.written_dtypes(node.name), strict=True)):
            box = self._output_box(node, k, index)
            buffer = self.alloc(device, name, box, dtype, 0 if only_part else part)
            cells = self.algebra.of_box(box, self.graph.stored[name].shape)
            self._hold(name, Resident(buffer, cells))
            out.append(buffer)
        return out

    def _unwrap(self, node: OpNode) -> None:
        """Make complete values of states that have no other part, where they are."""
        (name,) = node.outputs
        for holder in self.holders.pop(name):
            target = self.alloc(holder.buffer.device, name, holder.buffer.box, self.graph.stored[name].dtype)
            self._reduce(node.name, name, [holder.buffer], target, holder.cells)
            self._hold(name, Resident(target, holder.cells))
            self.free(holder.buffer)
        del self.monoid[name]

    def _land(self, tensor: Stored, layout: Layout) -> None:
        """Merge partial results in the places of a layout; from then on the tensor is complete and lies there."""
        made, landed = self.holders[tensor.name], []
        for device, box in enumerate(layout.boxes):
            if box is not None:
                cells = self.algebra.of_box(box, tensor.shape)
                buffer = self.provide(f"landing {tensor.name}", tensor.name, device, cells, box)
                landed.append(Resident(buffer, cells))
        for holder in made:
            self.free(holder.buffer)
        self.holders[tensor.name] = landed
        self.senders.pop(tensor.name, None)
        del self.monoid[tensor.name]

    def free_all(self, tensors: Iterable[str]) -> None:
        """Free every buffer of some tensors, in the order in which they were taken."""
        for number in sorted(number for name in tensors for number in self.live[name]):
            self.free(self.buffers[number])

    # -- outputs -----------------------------------------------------------------------------------------

    def _output_sources(self) -> Iterable[str]:
        return (s for name in self.graph.outputs.values() for s in self.graph.source(name).stored)

    def outputs(self) -> tuple[Output, ...]:
        placed = {name: self._place_output(self.graph.stored[name]) for name in dict.fromkeys(self._output_sources())}
        out = []
        for label, name in self.graph.outputs.items():
            source = self.graph.source(name)
            blocks = tuple(block for stored in source.stored for block in placed[stored][0])
            replicas = tuple(block for stored in source.stored for block in placed[stored][1])
            out.append(Output(label, name, source.shape, source.dtype, blocks, replicas))
        return tuple(out)

    def _place_output(self, tensor: Stored) -> tuple[list[tuple[int, Region]], list[tuple[int, Region]]]:
        """Where the whole tensor lies, every cell once, and the replicas that were asked for.

        Partial results are merged for it first.
        """
        layout = self.chosen.layouts.get(("output", tensor.name))
        kept: list[Resident] = []
        if layout is not None and (tensor.name in self.monoid or tensor.name in self.chosen.asked_outputs):
            for device, box in enumerate(layout.boxes):
                if box is not None:
                    need = self.algebra.of_box(box, tensor.shape)
                    buffer = self.provide(f"output {tensor.name}", tensor.name, device, need, box)
                    kept.append(Resident(buffer, need))
        asked = len(kept)
        for device in range(self.mesh.size):
            kept += self.resident.get((tensor.name, device), [])
        missing = DisjointRegions.full(tensor.shape)
        blocks: list[tuple[int, Region]] = []
        replicas: list[tuple[int, Region]] = []
        for k, have in enumerate(kept):
            part = missing & have.cells
            blocks += [(have.buffer.id, region) for region in part.members]
            if k < asked:
                replicas += [(have.buffer.id, region) for region in (have.cells - part).members]
            missing = missing - part
        assert not missing.size, f"no device holds {missing} of the output {tensor.name}"
        return blocks, replicas


def lower(chosen: ChosenLayouts) -> Lowered:
    """Write down the steps of a choice of layouts.

    Every buffer lives from the step that fills it to the last one that reads it; arenas are laid out
    first-fit as the steps are written, so the high-water marks are those that a run has.
    """
    lowering = _Lowering(chosen)
    lowering.place_sources()
    read_last: defaultdict[int, list[str]] = defaultdict(list)
    for name, position in _last_reads(chosen).items():
        read_last[position].append(name)
    for position, node in enumerate(chosen.order):
        lowering.run_node(node)
        lowering.free_all(read_last[position])
    outputs = lowering.outputs()  # which adds steps
    return Lowered(
        tuple(lowering.buffers),
        tuple(lowering.steps),
        outputs,
        {key: dict(value) for key, value in lowering.moved.items()},
        tuple(lowering.placed),
        tuple(arena.peak for arena in lowering.arenas),
    )


def shard_of(graph: Graph, node: OpNode, index: Box) -> Shard:
    """The shard of an index box for an operator's block function, without its workspace."""
    signature = graph.signature(node.name)
    outputs = tuple(signature.output_box(k, index) or Box((), ()) for k in range(len(node.outputs)))
    inputs = tuple(signature.input_box(k, index) for k in range(len(node.inputs)))
    return Shard(index, signature, node.attrs, inputs, outputs, None)


def _where_it_holds(piece: Piece, cells: DisjointRegions) -> DisjointRegions:
    """The cells for which a piece's guards on view coordinates hold; guards further down the chain stay guards."""
    front = tuple(guard for guard in piece.guards if guard.prefix == 0)
    if not front:
        return cells
    return cells & piece_domain(Piece(piece.source, front, piece.map, piece.fill), Box(cells.start, cells.shape))


def _last_reads(chosen: ChosenLayouts) -> dict[str, int]:
    """Position of the last operator that reads each stored tensor; outputs are kept to the end."""
    last: dict[str, int] = {}
    for position, node in enumerate(chosen.order):
        for name in node.outputs:
            last[name] = position
        for name in node.inputs:
            for stored in chosen.graph.source(name).stored:
                last[stored] = position
    for name in chosen.graph.outputs.values():
        for stored in chosen.graph.source(name).stored:
            last.pop(stored, None)
    return last
