"""From chosen layouts to explicit steps: buffers in arenas, copies of exact regions, computations."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from math import prod
from typing import NamedTuple, TypeVar

import numpy as np
from msgspec.structs import replace

from tapestry_plan.ir import Graph, OpNode, Shard, Stored, find_written_dtype, map_makers
from tapestry_plan.steps.arenas.first_fit import Arena
from tapestry_plan.steps.arenas.nesting import Nested, nest
from tapestry_plan.steps.choices import Choices, find_landing, find_last_place, list_given_out, list_placed
from tapestry_plan.steps.collectives import find_groups
from tapestry_plan.steps.layouts.blocks import OperatorBlocks
from tapestry_plan.steps.layouts.cells import CellAlgebra
from tapestry_plan.steps.layouts.holders import Holders, meets
from tapestry_plan.steps.layouts.layout import Layout
from tapestry_plan.steps.layouts.local import find_strided, find_strides
from tapestry_plan.steps.layouts.merging import MergeOrder, MergeStage, list_merge_stages
from tapestry_plan.steps.layouts.mesh import Mesh
from tapestry_plan.steps.layouts.reads import Reads
from tapestry_plan.steps.layouts.routes import BoolArray
from tapestry_plan.steps.residency import Residency, Resident
from tapestry_plan.steps.step import (
    HOST,
    KEPT,
    WRITTEN,
    Alloc,
    Buffer,
    Compute,
    Copy,
    Free,
    Output,
    OutputBlock,
    ProgramStep,
    Recv,
    Reduce,
    Send,
    Written,
    list_buffers,
)
from tapestry_plan.steps.tags import Tags, name_stage
from tapestry_sets.limits import quote
from tapestry_sets.regions import Box, DisjointRegions
from tapestry_sets.views import Piece

T = TypeVar("T")
WORKSPACE = "(workspace)"


class Lowered(Written, frozen=True):
    """The steps of some devices, and the bytes counted while they were written."""

    devices: tuple[int, ...]
    moved: dict[tuple[str, str], dict[tuple[int, int], int]]
    """Bytes from device to device for each (tensor, consumer) with any."""
    nbytes_placed: tuple[int, ...]
    peak_nbytes: tuple[int, ...]
    """Of these devices, as the bytes that are placed."""

    @property
    def nbytes_by_link(self) -> dict[tuple[int, int], int]:
        """Bytes from device to device."""
        return dict(sum(map(Counter, self.moved.values()), Counter()))


class Taken(NamedTuple):
    """A buffer that has the block of an operand, as a step names it."""

    buffer: Buffer
    piece: Piece | None = None
    """Through which the block is a strided view of the buffer."""
    is_own: bool = False
    """Whether it was written for this operand alone."""


class Wanted(NamedTuple):
    """The cells of a stored tensor that a stage reads on each device."""

    label: str
    """Whose stage it is."""
    tensor: str
    near: Callable[[DisjointRegions], BoolArray]
    """The devices that may read some of these cells: it is quick, and none is missing."""
    cells: Callable[[int], DisjointRegions]
    """What a device reads, exactly."""


class _Lowering:
    """Writes the steps of some devices; what the others hold and want follows from the layouts.

    Where both ends of a copy are among the devices it is one step, else the half of it that one of them does. Of what
    others had before, only cells matter that a device here holds: it sent them, so that it knows.
    """

    def __init__(self, graph: Graph, mesh: Mesh, chosen: Choices, reads: Reads, devices: Sequence[int]) -> None:
        same: dict[Layout, Layout] = {}
        self.layouts = {place: same.setdefault(layout, layout) for place, layout in chosen.layouts.items()}
        self.graph, self.mesh, self.reads, self.devices = graph, mesh, reads, devices
        self.chosen = replace(chosen, layouts=self.layouts)
        self.arenas = {device: Arena() for device in devices}
        self.buffers: list[Buffer] = []
        self.steps: list[ProgramStep] = []
        self.live: defaultdict[str, dict[int, Buffer]] = defaultdict(dict)
        """By tensor and number."""
        self.algebra = CellAlgebra()
        self.blocks = OperatorBlocks(graph, mesh, self.layouts, reads, self.algebra)
        self.order = self.blocks.order
        self.resident: defaultdict[tuple[str, int], Residency] = defaultdict(Residency)
        self.given: defaultdict[tuple[str, int], list[DisjointRegions]] = defaultdict(list)
        """What other devices have asked for that read from these."""
        self.held: dict[str, Holders] = {}
        """Of tensors that devices made, or had from the start."""
        self.made: dict[tuple[str, int], Buffer] = {}
        """The same by device, where it is one of these."""
        self.monoid: dict[str, str] = {}
        """Of tensors that are in partial results."""
        self.shares: frozenset[str] = (
            frozenset() if chosen.memory_nbytes is not None else _find_shared_views(self.order)
        )
        """Views whose blocks, written once, serve later readers; under a cap no block stays for these."""
        self.kept: dict[str, tuple[Holders, dict[tuple[str, int], Buffer]]] = {}
        """Who has what was complete before it landed, and where, as `held` and `made`."""
        self.landed: set[str] = set()
        """Inputs and constants that have."""
        self.doubled: set[str] = set()
        """What was complete before it landed."""
        self.tags = Tags(graph)
        self.moved: defaultdict[tuple[str, str], Counter[tuple[int, int]]] = defaultdict(Counter)
        self.placed = dict.fromkeys(devices, 0)

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

    def copy(self, label: str, tensor: str, src: Buffer | None, dst: Buffer, cells: DisjointRegions) -> None:
        """Copy cells from a buffer, or from the host, and count what crosses to another device."""
        if not cells.members:
            return
        self.steps.append(Copy(label, tensor, HOST if src is None else src.id, dst.id, cells.members))
        if src is None:
            self.placed[dst.device] += self.algebra.size(cells) * self._itemsize(dst.dtype)
        elif src.device != dst.device:
            self._count(label, src.device, dst.device, cells, dst)

    def _count(self, label: str, source: int, target: int, cells: DisjointRegions, buffer: Buffer) -> None:
        nbytes = self.algebra.size(cells) * self._itemsize(buffer.dtype)
        self.moved[buffer.tensor, label][source, target] += nbytes

    # -- making cells available --------------------------------------------------------------------------

    def provide(
        self, label: str, name: str, device: int, need: DisjointRegions, box: Box, fill: float | None = None
    ) -> Buffer:
        """A buffer on `device` over `box` in which the cells `need` of a stored tensor are complete."""
        # A buffer that has all of it serves as it is, unless its padding differs. Else a new one is filled: first from
        # the device's own buffers, which costs no bytes between devices, and what is missing then from others.
        tensor, mine = self.graph.stored[name], self.resident[name, device]
        inside = Box.of(tensor.shape).contains(box)
        near = mine.list_near(self.algebra.box_around(need))
        for have in near:
            padded = inside or have.buffer.fill == fill
            if padded and have.buffer.box.contains(box) and self.algebra.is_within(need, have.cells):
                return have.buffer
        target = self.alloc(device, name, box, tensor.dtype, fill=None if inside else fill)
        missing = need
        for have in near:
            local = self.algebra.meet(missing, have.cells)
            self.copy(label, name, have.buffer, target, local)
            missing = self.algebra.less(missing, local)
        if name in self.monoid:
            self._merge(label, name, target, need, missing)
        elif name in self.held:
            around = self.algebra.box_around(missing)
            found = self._gather(label, name, self.held[name].list_nearest(device, around), target, need)
            assert found == self.algebra.size(missing), f"no device holds all of {missing} of {name}"
        else:
            self.copy(label, name, None, target, missing)
        mine.add(Resident(target, need), self.algebra.box_around(need))
        return target

    def _gather(self, label: str, name: str, holders: Iterable[int], target: Buffer, need: DisjointRegions) -> int:
        """Copy what a device needs, and has not received so far, from those that hold it; count the cells."""
        near = self.resident[name, target.device].list_near(self.algebra.box_around(need))
        had = [have.cells for have in near]
        found = 0
        for holder in holders:
            cells = self._find_fresh(self._held_cells(name, holder), need, had)
            found += self.algebra.size(cells)
            if (name, holder) in self.made:
                self.copy(label, name, self.made[name, holder], target, cells)
            elif self.algebra.size(cells):
                tag = self.tags.take(label, name, holder, target.device)
                self.steps.append(Recv(tag, holder, label, name, target.id, cells.members))
                self._count(label, holder, target.device, cells, target)
        return found

    def _find_fresh(
        self, held: DisjointRegions, need: DisjointRegions, had: Iterable[DisjointRegions]
    ) -> DisjointRegions:
        """The cells of a block that are needed and were not had: in the same regions for sender and receiver."""
        cells = self.algebra.meet(need, held)
        for one in had:
            cells = self.algebra.less(cells, one)
        return cells

    def _held_cells(self, name: str, device: int) -> DisjointRegions:
        held, shape = self.held[name], self.graph.stored[name].shape
        key = "held", self.algebra.identity(held), device
        return self.algebra.fact(key, lambda: self.blocks.find_cells(held.box(device), held.lots, device, shape))

    def _merge(self, label: str, name: str, target: Buffer, need: DisjointRegions, missing: DisjointRegions) -> None:
        """Collect every part's cells and merge them in ascending order of the parts."""
        if not self.algebra.size(missing):
            return
        parts = self.held[name].list_parts()
        inputs = [self._collect(label, name, target.device, part, need, missing) for part in parts]
        self._reduce(label, inputs, target, missing)
        for buffer in inputs:
            if buffer is not self.made.get((name, target.device)):
                self.free(buffer)

    def _reduce(self, label: str, parts: Sequence[Buffer], target: Buffer, cells: DisjointRegions) -> None:
        ids = tuple(buffer.id for buffer in parts)
        monoid = self.monoid[target.tensor]
        self.steps.append(Reduce(label, monoid, ids, target.id, cells.members, self.chosen.fan_in))

    def _collect(
        self, label: str, name: str, device: int, part: int, need: DisjointRegions, missing: DisjointRegions
    ) -> Buffer:
        """A buffer on `device` with one part's cells: where they were made, or one of their own."""
        mine = self.made.get((name, device))
        if mine is not None and mine.part == part and self._holds(name, device, missing):
            return mine
        box = self.algebra.box_around(missing)
        assert box is not None, "cells are missing, so there is a block"
        landing = self.alloc(device, name, box, self._made_dtype(name), part)
        found = self._gather(label, name, self.held[name].list_nearest(device, box, part), landing, need)
        assert found == self.algebra.size(missing), f"no device holds all of {missing} of {name}, part {part}"
        return landing

    def _holds(self, name: str, device: int, cells: DisjointRegions) -> bool:
        return self.algebra.is_within(cells, self._held_cells(name, device))

    def _made_dtype(self, name: str) -> str:
        """The dtype that the maker of a tensor writes: of partial results where it makes them."""
        return find_written_dtype(self.graph, self._makers[name], name)

    @cached_property
    def _makers(self) -> dict[str, OpNode]:
        return map_makers(self.graph)

    def provide_operand(self, node: OpNode, operand: int, shards: Mapping[int, Box]) -> dict[int, Taken]:
        """For each device that reads an operand, the buffer that has its block.

        One stored tensor goes to all devices after the other, so that what one exchange takes stands together.
        """
        source, pad = self.graph.source(node.inputs[operand]), self.graph.signature(node.name).inputs[operand].pad
        boxes = {device: self.blocks.input_box(node, operand, index) for device, index in shards.items()}
        below: defaultdict[int, dict[str, Buffer]] = defaultdict(dict)
        for k, stored in enumerate(source.stored):
            self.land_given(stored)
            begin = len(self.steps)
            for device, index in self._in_order(shards, [self._want(node, operand, k)]):
                box = boxes[device]
                if box is None:
                    continue
                need = self.reads.of_operand(node, operand, index)[stored]
                around = box if source.direct else self.algebra.box_around(need)
                if around is not None:
                    fill = pad if source.direct else None
                    below[device][stored] = self.provide(node.name, stored, device, need, around, fill)
            self._group(begin)
        if source.direct:
            return {device: Taken(found[source.stored[0]]) for device, found in below.items()}
        own = {device: box for device, box in boxes.items() if box is not None}
        return {
            device: self._view(node, operand, device, shards[device], box, below[device]) for device, box in own.items()
        }

    def _group(self, begin: int) -> None:
        """Let the steps of an exchange, since a number of them, stand together for devices that exchange anything."""
        #   0 with 2, 1 with 3      device 0  1  2  3   ►   0  2  1  3      each device's own steps stay in their order
        steps, buffers = self.steps[begin:], self.buffers
        if len(self.devices) < self.mesh.size:  # some that are of the group may not be here
            return
        copies = (one for one in steps if isinstance(one, Copy) and one.src != HOST)
        groups = find_groups((buffers[one.src].device, buffers[one.dst].device) for one in copies)
        leader = {device: group[0] for group in groups for device in group}
        if leader:
            homes = (buffers[(list_buffers(step, WRITTEN) or list_buffers(step, KEPT))[0]].device for step in steps)
            order = sorted(zip((leader.get(home, home) for home in homes), range(len(steps)), strict=True))
            self.steps[begin:] = [steps[k] for _, k in order]

    def _view(
        self, node: OpNode, operand: int, device: int, index: Box, box: Box, below: Mapping[str, Buffer]
    ) -> Taken:
        """A buffer with a block of a view: one with the cells behind it, where it lies there strided, else its own."""
        source, declared = self.graph.source(node.inputs[operand]), self.graph.signature(node.name).inputs[operand]
        strided = find_strided(self.reads, node, operand, index)
        if strided is not None:
            lies = below[source.stored[strided.source]]
            if find_strides(strided, lies.box, box) is not None:
                return Taken(lies, strided)
        name, inside = node.inputs[operand], Box.of(source.shape).contains(box)
        fill, read = None if inside else declared.pad, self.blocks.see(node, operand, index)
        for have in self.resident[name, device] if name in self.shares else ():
            is_padded = inside or have.buffer.fill == fill
            if is_padded and have.buffer.box.contains(box) and self.algebra.is_within(read, have.cells):
                return Taken(have.buffer)
        target = self.alloc(device, name, box, source.dtype, fill=fill)
        for piece, cells in self.blocks.list_pieces(node, operand, index):
            stored = name if piece.source < 0 else source.stored[piece.source]
            source_buffer = target if piece.source < 0 else below.get(stored)
            if source_buffer is not None:
                self.steps.append(Copy(node.name, stored, source_buffer.id, target.id, cells, piece))
        if name in self.shares:
            self.resident[name, device].add(Resident(target, read), self.algebra.box_around(read))
        return Taken(target, is_own=name not in self.shares)

    # -- what other devices want -------------------------------------------------------------------------

    def _in_order(self, own: Mapping[int, T], wanted: Iterable[Wanted]) -> Iterator[tuple[int, T]]:
        """These devices' blocks of a stage, in order, with what is sent to others in between."""
        sends: dict[int, list[Send]] = {}
        if len(self.devices) < self.mesh.size:
            for one in wanted:
                self._add_sends(one, sends)
        for device in sorted({*own, *sends}):
            self.steps += sends.get(device, ())
            if device in own:
                yield device, own[device]

    def _add_sends(self, wanted: Wanted, sends: dict[int, list[Send]]) -> None:
        name = wanted.tensor
        needs: dict[int, DisjointRegions] = {}
        for device in self.devices if name in self.held else ():
            source = self.made.get((name, device))
            if source is None:
                continue
            cells = self._held_cells(name, device)
            near = self.held[name].senders[device] & wanted.near(cells)
            for receiver in np.flatnonzero(near).tolist():
                if receiver in self.arenas:
                    continue
                needs[receiver] = need = wanted.cells(receiver)
                fresh = self._find_fresh(cells, need, self.given[name, receiver])
                if self.algebra.size(fresh):
                    tag = self.tags.take(wanted.label, name, device, receiver)
                    send = Send(tag, receiver, wanted.label, name, source.id, fresh.members)
                    sends.setdefault(receiver, []).append(send)
                    self._count(wanted.label, device, receiver, fresh, source)
        for receiver, need in needs.items():
            self.given[name, receiver].append(need)

    def _want(self, node: OpNode, operand: int, k: int) -> Wanted:
        """What an operator reads of the k-th stored tensor behind an operand."""
        stored = self.graph.source(node.inputs[operand]).stored[k]
        near = partial(self.blocks.list_readers, node, operand, k)
        return Wanted(node.name, stored, near, partial(self.blocks.read, node, operand, stored))

    def _want_blocks(self, kind: str, name: str, layout: Layout) -> Wanted:
        """A tensor in the blocks of a layout of its own."""
        shape = self.graph.stored[name].shape

        def near(cells: DisjointRegions) -> BoolArray:
            around = self.algebra.box_around(cells)
            return layout.bounds[0] & False if around is None else meets(layout.bounds, around)

        def wanted(device: int) -> DisjointRegions:
            box = layout.box(device)
            assert box is not None, "idle devices want nothing"
            return self.blocks.find_cells(box, layout.lots, device, shape)

        return Wanted(name_stage(kind, name), name, near, wanted)

    # -- stages ------------------------------------------------------------------------------------------

    def place_sources(self) -> None:
        """Inputs and constants start on the devices: in the layout they have, else where they are read."""
        for name, layout in list_placed(self.graph, self.chosen):
            self._place_layout(self.graph.stored[name], layout)
        for node in self.order:
            for device, index in self._own_blocks(self.layouts["operator", node.name]).items():
                for operand in range(len(node.inputs)):
                    self._place_operand(node, operand, device, index)
        for name in list_given_out(self.graph):
            tensor = self.graph.stored[name]
            if tensor.kind != "result" and name not in self.held and 0 in self.arenas:
                self._place_rest(tensor)

    def _place_rest(self, tensor: Stored) -> None:
        """Cells of an input or constant that is a graph output, and that no operator reads anywhere."""
        missing = DisjointRegions.full(tensor.shape)
        for cells in self.blocks.list_read(tensor.name).values():
            for one in cells:
                missing = self.algebra.less(missing, one)
        box = self.algebra.box_around(missing)
        if box is not None:
            self.provide("(place)", tensor.name, 0, missing, box)

    def _place_layout(self, tensor: Stored, layout: Layout) -> None:
        self.held[tensor.name] = self.blocks.hold_blocks(layout)
        for device, box in self._own_blocks(layout).items():
            buffer = self.alloc(device, tensor.name, box, tensor.dtype)
            self.copy("(place)", tensor.name, None, buffer, self._held_cells(tensor.name, device))
            self._hold(buffer)

    def _place_operand(self, node: OpNode, operand: int, device: int, index: Box) -> None:
        source = self.graph.source(node.inputs[operand])
        if all(self.graph.stored[name].kind == "result" for name in source.stored):
            return
        needs = self.reads.of_operand(node, operand, index)
        for name, need in needs.items():
            if self.graph.stored[name].kind == "result" or name in self.held or not self.algebra.size(need):
                continue
            box = self.blocks.input_box(node, operand, index) if source.direct else self.algebra.box_around(need)
            assert box is not None, "cells are needed, so there is a block"
            fill = self.graph.signature(node.name).inputs[operand].pad if source.direct else None
            self.provide("(place)", name, device, need, box, fill)

    def _hold(self, buffer: Buffer) -> None:
        """A buffer has its device's block of a tensor."""
        self.made[buffer.tensor, buffer.device] = buffer
        if buffer.part < 0:
            cells = self._held_cells(buffer.tensor, buffer.device)
            one = Resident(buffer, cells)
            self.resident[buffer.tensor, buffer.device].add(one, self.algebra.box_around(cells))

    def _own_blocks(self, layout: Layout) -> dict[int, Box]:
        """The blocks of these devices."""
        is_whole = len(self.devices) == self.mesh.size

        def found() -> dict[int, Box]:
            blocks = ((device, layout.boxes[device] if is_whole else layout.box(device)) for device in self.devices)
            return {device: box for device, box in blocks if box is not None}

        return self.algebra.fact(("own", self.algebra.identity(layout)), found)

    def run_node(self, node: OpNode) -> None:
        """One stage: gather every shard's operands, compute, free what only this stage needed."""
        # With a reduction cut each shard makes a part, and who reads the tensor merges them (`_merge`). An operator
        # with states makes a part also where it is not cut; that one is unwrapped where it lies.
        op, signature = self.graph.ops[node.op], self.graph.signature(node.name)
        layout = self.layouts["operator", node.name]
        shards, cut = self._own_blocks(layout), signature.reductions
        parts = layout.count_parts(cut)
        found = [self.provide_operand(node, operand, shards) for operand in range(len(node.inputs))]
        if op.monoid is not None and (parts > 1 or op.has_states):
            self.monoid.update(dict.fromkeys(node.outputs, op.monoid.name))
        for k, name in enumerate(node.outputs):
            self.held[name] = self.blocks.hold_output(node, k, layout)
        for device, index in shards.items():
            part = layout.number_of(device, cut) if parts > 1 else 0 if op.has_states else -1
            outputs = self._alloc_outputs(node, device, index, part)
            wanted = self._workspace(node, index)
            work = self.alloc(device, WORKSPACE, Box((0,), (wanted,)), "uint8") if wanted else None
            read = [taken.get(device) for taken in found]
            ids = tuple(None if one is None else one.buffer.id for one in read), tuple(buffer.id for buffer in outputs)
            pieces = tuple(None if one is None else one.piece for one in read)
            pieces = pieces if any(piece is not None for piece in pieces) else ()
            scratch = work.id if work else None
            self.steps.append(Compute(node.name, device, index.start, index.shape, *ids, scratch, pieces))
            if work:
                self.free(work)
        for device in shards:
            for taken in found:
                if device in taken and taken[device].is_own:
                    self.free(taken[device].buffer)
        if parts == 1 and op.has_states:
            self._unwrap(node)
        for name in node.outputs:
            self.land(name)

    def _workspace(self, node: OpNode, index: Box) -> int:
        """Bytes of scratch memory that a shard wants."""
        op, itemsize = self.graph.ops[node.op], self.graph.stored[node.outputs[0]].itemsize
        key = "workspace", self.reads.kind(node), index
        return self.algebra.fact(key, lambda: op.workspace(shard_of(self.graph, node, index), itemsize))

    def _alloc_outputs(self, node: OpNode, device: int, index: Box, part: int) -> list[Buffer]:
        """Buffers for what a shard writes: complete values, or the states of a part."""
        out = []
        for k, (name, dtype) in enumerate(zip(node.outputs, self.graph.written_dtypes(node.name), strict=True)):
            buffer = self.alloc(device, name, self.blocks.output_box(node, k, index), dtype, part)
            self._hold(buffer)
            out.append(buffer)
        return out

    def _unwrap(self, node: OpNode) -> None:
        """Make complete values of states that have no other part, where they are."""
        (name,) = node.outputs
        for device in self.devices:
            states = self.made.get((name, device))
            if states is not None:
                target = self.alloc(device, name, states.box, self.graph.stored[name].dtype)
                self._reduce(node.name, [states], target, self._held_cells(name, device))
                self._hold(target)
                self.free(states)
        del self.monoid[name]

    def land_given(self, name: str) -> None:
        """Let an input or constant rest in its landing when it is read first."""
        if name not in self.landed and self.graph.stored[name].kind != "result" and name in self.held:
            self.landed.add(name)
            self.land(name)

    def land(self, name: str) -> None:
        """Let a tensor rest in the places of its landing, if it has any: who reads it reads it from there.

        Partial results are merged there, and given back. What was complete before stays beside it: who has it need not
        read it again.
        """
        layout = find_landing(self.chosen, name)
        if layout is None:
            return
        order = self.chosen.merged.get(name)
        if order is not None and name in self.monoid:
            self._merge_in_stages(name, layout, order)
            return
        wanted, held = self._want_blocks("landing", name, layout), self.held[name]
        if name in self.monoid:
            for buffer in self._bring(wanted, layout).values():
                self.free(buffer)
            del self.monoid[name]
            return
        for device in np.flatnonzero(held.bounds[0]).tolist():
            if device not in self.arenas:  # what it has it asks nobody for
                self.given[name, device].append(self._held_cells(name, device))
        self.kept[name] = held, self._bring(wanted, layout)
        self.doubled.add(name)

    def _merge_in_stages(self, name: str, layout: Layout, order: MergeOrder) -> None:
        """Merge partial results stage by stage, and give back what each stage merged."""
        held = self.held[name]
        stages = list_merge_stages(held.bounds, held.parts, layout, order)
        assert stages, "the choices were checked"
        for number, stage in enumerate(stages, 1):
            is_last = number == len(stages)
            dtype = self.graph.stored[name].dtype if is_last else self._made_dtype(name)
            before = self._merge_stage(name_stage("landing", name, None if is_last else number), name, stage, dtype)
            for buffer in before:
                self.free(buffer)
        del self.monoid[name]
        self.held[name] = self.blocks.hold_blocks(layout)
        for device in self.devices:
            if (name, device) in self.made:
                self._hold(self.made[name, device])

    def _merge_stage(self, label: str, name: str, stage: MergeStage, dtype: str) -> list[Buffer]:
        """One stage: each device gets the parts that it has not, merges them with its own, and has what comes of it."""
        busy, low, high = stage.bounds
        shape, begin, brought = self.graph.stored[name].shape, len(self.steps), {}
        boxes = {d: Box.from_bounds(low[d].tolist(), high[d].tolist()) for d in np.flatnonzero(busy).tolist()}
        sends: dict[int, list[Send]] = {}
        for device in self.devices if len(self.devices) < self.mesh.size else ():
            for reader in stage.find_readers(device):
                if reader not in self.arenas:
                    cells, source = self.algebra.of_box(boxes[reader], shape), self.made[name, device]
                    tag = self.tags.take(label, name, device, reader)
                    sends.setdefault(reader, []).append(Send(tag, reader, label, name, source.id, cells.members))
                    self._count(label, device, reader, cells, source)
        for device in sorted({*sends, *(d for d in self.devices if busy[d])}):
            self.steps += sends.get(device, ())
            if device in self.arenas:
                target = self.alloc(device, name, boxes[device], dtype, int(stage.parts[device]))
                self._merge_here(label, name, stage, target)
                brought[name, device] = target
        self._group(begin)
        before = [self.made[place] for place in brought]
        self.made.update(brought)
        return before

    def _merge_here(self, label: str, name: str, stage: MergeStage, target: Buffer) -> None:
        """Get the parts of one stage that a device has not, and merge them with its own."""
        device, inputs = target.device, []
        cells = self.algebra.of_box(target.box, self.graph.stored[name].shape)
        for source, part in zip(stage.sources[device].tolist(), stage.before[device].tolist(), strict=True):
            if source == device:
                inputs.append(self.made[name, device])
                continue
            landing = self.alloc(device, name, target.box, self._made_dtype(name), part)
            if source in self.arenas:
                self.copy(label, name, self.made[name, source], landing, cells)
            else:
                tag = self.tags.take(label, name, source, device)
                self.steps.append(Recv(tag, source, label, name, landing.id, cells.members))
                self._count(label, source, device, cells, landing)
            inputs.append(landing)
        self._reduce(label, inputs, target, cells)
        for buffer in inputs:
            if buffer is not self.made[name, device]:
                self.free(buffer)

    def _bring(self, wanted: Wanted, layout: Layout) -> dict[tuple[str, int], Buffer]:
        """Let a tensor lie in the blocks of a layout from here on; give the buffers that it lay in before."""
        name, brought = wanted.tensor, {}
        begin = len(self.steps)
        for device, box in self._in_order(self._own_blocks(layout), [wanted]):
            brought[name, device] = self.provide(wanted.label, name, device, wanted.cells(device), box)
        self._group(begin)
        places = [(name, device) for device in self.devices if (name, device) in self.made]
        before = {place: self.made.pop(place) for place in places}
        self.held[name] = self.blocks.hold_blocks(layout)
        self.made.update(brought)
        return before

    def free_all(self, tensors: Iterable[str]) -> None:
        """Free every buffer of some tensors, in the order in which they were taken."""
        for number in sorted(number for name in tensors for number in self.live[name]):
            self.free(self.buffers[number])

    # -- outputs -----------------------------------------------------------------------------------------

    def outputs(self) -> tuple[Output, ...]:
        placed = {name: self._place_output(self.graph.stored[name]) for name in list_given_out(self.graph)}
        out = []
        for label, name in self.graph.outputs.items():
            source = self.graph.source(name)
            blocks = tuple(block for stored in source.stored for block in placed[stored][0])
            replicas = tuple(block for stored in source.stored for block in placed[stored][1])
            out.append(Output(label, name, source.shape, source.dtype, blocks, replicas))
        return tuple(out)

    def _place_output(self, tensor: Stored) -> tuple[list[OutputBlock], list[OutputBlock]]:
        """Where the whole tensor lies on these devices, every cell once, and the replicas that were asked for.

        Partial results are merged for it first.
        """
        name = tensor.name
        self.land_given(name)
        layout = find_last_place(self.chosen, name, name in self.monoid)
        if layout is not None:
            self._bring(self._want_blocks("output", name, layout), layout)
            return self._share_out(name)
        if name in self.kept:  # it stays where it was made
            for place in [(name, device) for device in self.devices]:
                self.made.pop(place, None)
            self.held[name], made = self.kept.pop(name)
            self.made.update(made)
        if name in self.monoid:
            raise ValueError(f"output {quote(name)} is in partial results; the choices do not say where it is merged")
        return (self._share_out(name) if name in self.held else self._share_read(tensor))[0], []

    def _share_out(self, name: str) -> tuple[list[OutputBlock], list[OutputBlock]]:
        """The blocks of a tensor that these devices hold: cells that no device before has, and the other ones."""
        blocks, again = [], []
        for device in self.devices:
            buffer = self.made.get((name, device))
            if buffer is not None:
                first = cells = self._held_cells(name, device)
                for other in np.flatnonzero(meets(self.held[name].bounds, buffer.box)).tolist():
                    if other < device:
                        first = self.algebra.less(first, self._held_cells(name, other))
                blocks += [(buffer.id, region) for region in first.members]
                again += [(buffer.id, region) for region in self.algebra.less(cells, first).members]
        return blocks, again

    def _share_read(self, tensor: Stored) -> tuple[list[OutputBlock], list[OutputBlock]]:
        """The same of an input or constant that lies where operators read it."""
        blocks = []
        missing = DisjointRegions.full(tensor.shape)
        for device, read in self.blocks.list_read(tensor.name).items():
            mine = self.resident[tensor.name, device] if device in self.arenas else None
            for k, cells in enumerate(read if mine is None else [have.cells for have in mine]):
                part = self.algebra.meet(missing, cells)
                missing = self.algebra.less(missing, part)
                blocks += [] if mine is None else [(mine[k].buffer.id, region) for region in part.members]
        return blocks, []


def lower(
    graph: Graph,
    mesh: Mesh,
    chosen: Choices,
    *,
    reads: Reads | None = None,
    devices: Sequence[int] | None = None,
    apart: bool = False,
    tell: Callable[[int, int], None] | None = None,
) -> Lowered:
    """Write down the steps of a choice of layouts.

    Every buffer lives from the step that fills it to the last one that reads it; arenas are laid out
    first-fit as the steps are written, so the high-water marks are those that a run has. Where no memory is given, what
    is copied whole into a block of its device is made there (`nest`).

    Parameters
    ----------
    graph : Graph
    mesh : Mesh
    chosen : Choices
    reads : Reads, optional
        What the graph's operators read, as far as it is known.
    devices : sequence of int, optional
        Those whose steps are wanted, ascending: they are their steps of all, in the same order, but for copies between
        them and others, of which they have their own half. All devices by default.
    apart : bool
        Whether each buffer has a place of its own, as under a cap, where arenas are laid out buffer by buffer.
    tell : callable, optional
        ``(done, total)``: told of how many operators the steps are written.
    """
    devices = range(mesh.size) if devices is None else devices
    lowering = _Lowering(graph, mesh, chosen, Reads(graph) if reads is None else reads, devices)
    lowering.place_sources()
    read_last: defaultdict[int, list[str]] = defaultdict(list)
    for name, position in _last_reads(graph, lowering.order).items():
        read_last[position].append(name)
    for position, node in enumerate(lowering.order):
        if tell is not None:
            tell(position, len(lowering.order))
        lowering.run_node(node)
        lowering.free_all(read_last[position])
    outputs = lowering.outputs()  # which adds steps
    buffers, steps = tuple(lowering.buffers), tuple(lowering.steps)
    made = Nested(buffers, steps, {device: arena.peak for device, arena in lowering.arenas.items()})
    if not apart and chosen.memory_nbytes is None and chosen.spill_nbytes is None:
        made = nest(graph, *made, lowering.doubled)
    return Lowered(
        made.buffers,
        made.steps,
        outputs,
        tuple(devices),
        {key: dict(value) for key, value in lowering.moved.items()},
        tuple(lowering.placed.values()),
        tuple(made.peak_nbytes.values()),
    )


def shard_of(graph: Graph, node: OpNode, index: Box) -> Shard:
    """The shard of an index box for an operator's block function, without its workspace."""
    signature = graph.signature(node.name)
    outputs = tuple(signature.output_box(k, index) or Box((), ()) for k in range(len(node.outputs)))
    inputs = tuple(signature.input_box(k, index) for k in range(len(node.inputs)))
    return Shard(index, signature, node.attrs, inputs, outputs, None)


def _find_shared_views(order: Sequence[OpNode]) -> frozenset[str]:
    """What several operands read."""
    counts = Counter(name for node in order for name in node.inputs)
    return frozenset(name for name, count in counts.items() if count > 1)


def _last_reads(graph: Graph, order: Sequence[OpNode]) -> dict[str, int]:
    """Position of the last operator that reads each stored tensor or view; outputs are kept to the end."""
    last: dict[str, int] = {}
    for position, node in enumerate(order):
        last.update(dict.fromkeys(node.inputs, position))
        for name in node.outputs:
            last[name] = position
        for name in node.inputs:
            for stored in graph.source(name).stored:
                last[stored] = position
    for name in graph.outputs.values():
        for stored in graph.source(name).stored:
            last.pop(stored, None)
    return last
