"""Segments: runs of steps of one device between which nothing comes or goes, as one session.

A session of a single block brings cells into ONNX Runtime's own order and back. Where a step reads what the one before
made, both are one model, and what is between them stays with the session, with the copies that make views of it::

    recv  conv  relu  copy  conv  send  add  relu          steps of a device
          └──── one session ────┘       └─ one ┘           what `send` reads is an output of the first

All steps of a segment but the last do nothing then; the last one runs the session. What a step reads of a buffer that
is given back before that is copied when the step comes. A copy is the session's if that makes all of what it fills::

    conv → a ─┐                                            b is made from a and c, which are made here: the session
    conv → c ─┴ copies → b → conv                          puts it together, and a, b and c take no place
    recv → d ─┐
    conv → e ─┴ copies → f → conv                          e has to be there before f: a session ends with it
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from msgspec import Struct

from tapestry_exec.copies import Array, block_of, members_of
from tapestry_exec.onnxruntime.blocks import Given, NotLocal, add_block, add_whole
from tapestry_exec.run import Reads, StepFacts, Writes
from tapestry_plan.ir import Graph, Op, Shard, Tensor
from tapestry_plan.steps import (
    HOST,
    READ,
    Alloc,
    Buffer,
    Compute,
    Copy,
    DeviceStep,
    Free,
    is_in_place,
    list_buffers,
    list_written,
)
from tapestry_sets.regions import AffineMap, Box
from tapestry_sets.views import IndexMap, Pad, Piece


class StepBlock(NamedTuple):
    """One step's work: where its blocks lie, as arrays too."""

    at: int
    """The step's place in the program."""
    op: Op
    shard: Shard
    inputs: Reads
    outputs: Writes
    read: tuple[Given | None, ...]
    """What is read, with its cells in `Given.value` where they never change."""
    arrays: tuple[Array | None, ...]
    write: tuple[Array, ...]
    views: tuple[str, ...]
    """What its operator reads, by name."""


class Joined(NamedTuple):
    """A copy on this device: a part of a buffer, which may have been made in place."""

    at: int
    src: int
    dst: int
    piece: Piece | None
    is_in_place: bool
    nbytes: int
    """Of the cells that it copies."""


Item = StepBlock | Joined


class Input(NamedTuple):
    """What a segment reads of others: its name in the graph, and the first block that reads it."""

    name: str
    block: StepBlock
    array: Array
    is_early: bool
    """Whether its place is given back before the last step."""


class Stretch(Struct, frozen=True):
    """Steps that one session does.

    Parameters
    ----------
    graph : Graph
        Its outputs are y0, y1, …
    items : tuple of StepBlock or Joined
        The last block does the work of all.
    inputs : tuple of Input
    outputs : tuple of (Buffer, Box)
        What others read, of blocks and of what copies put together.
    put : frozenset of int
        Buffers that the session puts together in the place of copies.
    inner : frozenset of int
        Buffers that take no place, since nobody else reads them.
    copied_nbytes : int
        Of the cells that the copies in it would have written.
    reach_nbytes : int
        How far those buffers would reach into the arena.
    """

    graph: Graph
    items: tuple[Item, ...]
    inputs: tuple[Input, ...]
    outputs: tuple[tuple[Buffer, Box], ...]
    put: frozenset[int] = frozenset()
    inner: frozenset[int] = frozenset()
    copied_nbytes: int = 0
    reach_nbytes: int = 0

    @property
    def blocks(self) -> list[StepBlock]:
        """The steps that are computed."""
        return [item for item in self.items if isinstance(item, StepBlock)]


class HeldBlock(NamedTuple):
    """A tensor of the segment's graph, and the box of cells that it is."""

    tensor: Tensor
    box: Box


class Local(NamedTuple):
    """A view of blocks in their own coordinates, as a view kind."""

    shape: tuple[int, ...]
    parts: tuple[Piece, ...]

    def out_shape(self, shapes: Sequence[Sequence[int]]) -> tuple[int, ...]:
        """The block's extents."""
        return self.shape

    def pieces(self, shapes: Sequence[Sequence[int]]) -> tuple[Piece, ...]:
        """Where its cells are read."""
        return self.parts


class Program:
    """The steps of a device, and who reads each buffer.

    Parameters
    ----------
    steps : sequence of DeviceStep
    graph : Graph
        Whose operators they compute.
    work : StepFacts
    find : function
        The block of a `Compute` and its place in the program; None where a session cannot have it.
    """

    def __init__(
        self,
        steps: Sequence[DeviceStep],
        graph: Graph,
        work: StepFacts,
        find: Callable[[int, DeviceStep], StepBlock | None],
    ) -> None:
        self.steps, self.graph, self.work, self.find = steps, graph, work, find
        self.readers: defaultdict[int, list[int]] = defaultdict(list)
        self.writers: defaultdict[int, list[int]] = defaultdict(list)
        self.freed: dict[int, int] = {}
        self.hosts: dict[int, int] = {}
        """Of guests that are copied in place the host."""
        for at, (_, _, step) in enumerate(steps):
            for number in list_written(step):
                self.writers[number].append(at)
            if isinstance(step, Free):
                self.freed[step.buffer] = at
            elif isinstance(step, Copy) and is_in_place(step, work.buffers):
                self.hosts[step.src] = step.dst
            else:
                for number in list_buffers(step, READ):
                    self.readers[number].append(at)
        self.kept = {number for out in work.outputs for number, _ in (*out.blocks, *out.replicas)}

    def list_runs(self) -> Iterator[list[Item]]:
        """The longest runs of blocks between which nothing comes or goes."""
        run: list[Item] = []
        for at, one in enumerate(self.steps):
            step = one.step
            if isinstance(step, Alloc | Free):
                continue
            block = self.find(at, one) if isinstance(step, Compute) else None
            if block is not None:
                run.append(block)
            elif isinstance(step, Copy) and (step.src != HOST or (step.piece is not None and step.piece.source < 0)):
                run.append(self.join(at, step))
            elif run:
                yield run
                run = []
        if run:
            yield run

    def join(self, at: int, step: Copy) -> Joined:
        """A copy on the device, as a part of what it fills."""
        is_moved, piece, regions = not is_in_place(step, self.work.buffers), step.piece, step.regions
        if is_moved and piece is not None and piece.guards:
            regions = tuple(member for region in regions for member in members_of(piece, region))
        cells = sum(region.size for region in regions) if is_moved else 0
        nbytes = cells * np.dtype(self.work.buffers[step.dst].dtype).itemsize
        return Joined(at, step.src, step.dst, piece, not is_moved, nbytes)

    def list_segments(self) -> Iterator[Stretch]:
        """Segments of two blocks and more."""
        for run in self.list_runs():
            yield from self.cut(run)

    def cut(self, run: Sequence[Item]) -> Iterator[Stretch]:
        """The segments of a run: each as long as its blocks make one graph."""
        writer, items = _Writer(self), list[Item]()
        for item in run:
            try:
                writer.add(item)
                items.append(item)
            except NotLocal:
                yield from writer.finish(items)
                writer, items = _Writer(self), []
                if isinstance(item, StepBlock):  # by itself, or the first one of the next segment
                    try:
                        writer.add(item)
                        items.append(item)
                    except NotLocal:
                        writer = _Writer(self)
        yield from writer.finish(items)

    def escapes(self, number: int, inside: frozenset[int]) -> bool:
        """Whether somebody else reads a buffer, or the host that it lies in."""
        if number in self.kept or not inside.issuperset(self.readers[number]):
            return True
        return number in self.hosts and self.escapes(self.hosts[number], inside)

    def is_made(self, number: int, inside: frozenset[int]) -> bool:
        """Whether some steps alone fill a buffer."""
        return inside.issuperset(self.writers[number])


class _Writer:
    """Writes blocks one behind the other into a graph."""

    def __init__(self, program: Program) -> None:
        self.program, self.graph = program, Graph("segment")
        self.made: dict[int, HeldBlock] = {}
        self.joined: defaultdict[int, dict[int | None, HeldBlock | None]] = defaultdict(dict)
        """By buffer the parts that fill it, by source of its view; None: of its own tensor."""
        self.inputs: dict[tuple[int, Box, Piece | None], tuple[Tensor, StepBlock, Array | None]] = {}

    def add(self, item: Item) -> None:
        """Write a block, or note what lies in a host.

        Raises
        ------
        NotLocal
            Where the block cannot be written behind those that are there.
        """
        if isinstance(item, Joined):
            self._join(item)
            return
        made = self._add_whole(item) if item.shard.index == item.shard.signature.index else None
        if made is None:
            operands = [self._read(item, k) for k in range(len(item.inputs))]
            made = add_block(self.graph, item.op, item.shard, operands)
        ((buffer, box),) = item.outputs
        if made.shape != box.shape:
            raise NotLocal("over its blocks it makes another shape")
        self.made[buffer.id] = HeldBlock(made, box)

    def _join(self, item: Joined) -> None:
        """Note a part of a buffer.

        Raises
        ------
        NotLocal
            Where it is copied from what is put together here of parts that are not all known.
        """
        if item.src == HOST:
            self.joined.setdefault(item.dst, {})
        elif self._knows(item):
            parts, key = self.joined[item.dst], None if item.piece is None else item.piece.source
            held = self.made.get(item.src)
            if held is None and not item.is_in_place:
                buffer = self.program.work.buffers[item.src]
                held = HeldBlock(self._put_together(buffer, buffer.box), buffer.box)
            if held is not None:
                # Two blocks of one source: no graph of ours says which cells are whose.
                parts[key] = held if key not in parts else None

    def _knows(self, item: Joined) -> bool:
        """Whether what is copied is made here, or a constant."""
        return item.src == HOST or item.src in self.made or item.src in self.joined

    def _put_together(self, buffer: Buffer, box: Box) -> Tensor:
        """A block of what parts that were made here fill, with its padding."""
        inner = box.intersect(Box.of(self.program.graph.source(buffer.tensor).shape))
        if inner is None:
            raise NotLocal("padding alone")
        if None in self.joined[buffer.id]:
            held = self._part(buffer, None)
            if not held.box.contains(inner):
                raise NotLocal("some of a block is not made here")
            made = held.tensor if held.box == inner else self._select(inner, [as_it_lies(inner)], [held], buffer.tensor)
        else:
            made = self._read_joined(buffer, inner)
        if inner == box:
            return made
        widths = [(a - b, e - f) for a, b, e, f in zip(inner.start, box.start, box.stop, inner.stop, strict=True)]
        return self.graph.select(Pad(tuple(widths), value=buffer.fill or 0.0), made)

    def _add_whole(self, block: StepBlock) -> Tensor | None:
        """The block as the operator that it is, which then does its own padding; None where it has not all operands."""
        try:
            operands = [self._read_whole(block, k) for k in range(len(block.inputs))]
        except NotLocal:
            return None
        return add_whole(self.graph, block.op, block.shard.attrs, operands)

    def _read(self, block: StepBlock, k: int) -> Tensor | None:
        found, given = block.inputs[k], block.read[k]
        if found is None or given is None:
            return None
        buffer, box, piece = found
        held = self.made.get(buffer.id)
        if held is not None and (piece is not None or held.box.contains(box)):
            if piece is None and held.box == box:
                return held.tensor
            read = as_it_lies(box) if piece is None else piece
            return self._select(box, [replace_source(read)], [held], block.views[k])
        if buffer.id in self.joined or held is not None:
            if piece is not None or held is not None:
                raise NotLocal("a view of what is put together here")
            return self._put_together(buffer, box)
        return self._ask(block, k, box)

    def _ask(self, block: StepBlock, k: int, box: Box) -> Tensor:
        """An input of the graph, or a constant: of an operand's block the cells in a box."""
        found, given, array = block.inputs[k], block.read[k], block.arrays[k]
        assert found is not None and given is not None and array is not None, "the operand is read"
        buffer, whole, piece = found
        key = buffer.id, box, piece
        if key not in self.inputs:
            name = f"x{len(self.inputs)}"
            part = block_of(array, whole.start, box)
            if given.value is None:
                tensor = self.graph.input(name, part.shape, given.dtype)
            else:
                tensor = self.graph.constant(name, part)
            self.inputs[key] = tensor, block, None if given.value is not None else part
        return self.inputs[key][0]

    def _read_whole(self, block: StepBlock, k: int) -> Tensor | None:
        """All of an operand, without its padding."""
        found = block.inputs[k]
        if found is None:
            return None
        buffer, box, piece = found
        source = self.program.graph.source(block.views[k])
        whole = Box.of(source.shape)
        held = self.made.get(buffer.id)
        parts = self.joined.get(buffer.id, {})
        if held is None and None in parts:
            held = self._part(buffer, None)
        if held is not None:
            if held.box not in map(Box.of, source.stored_shapes) or (piece is None) != source.direct:
                raise NotLocal("a part of an operand")
            if piece is None:
                return held.tensor
            return self._select(whole, [replace_source(piece)], [held], block.views[k])
        if buffer.id in self.joined:
            return self._read_joined(buffer, whole)
        if not box.contains(whole):
            raise NotLocal("a part of an operand")
        return self._ask(block, k, whole)

    def _part(self, buffer: Buffer, key: int | None) -> HeldBlock:
        held = self.joined[buffer.id].get(key)
        if held is None:
            raise NotLocal("some of a buffer is not made here")
        return held

    def _read_joined(self, buffer: Buffer, box: Box) -> Tensor:
        """A block of a view all of whose parts were made here."""
        pieces = self.program.graph.source(buffer.tensor).pieces
        used = sorted({piece.source for piece in pieces if piece.source >= 0})
        if not pieces:
            raise NotLocal("some of a view is not made here")
        order = {source: k for k, source in enumerate(used)}
        read = [piece if piece.source < 0 else replace_source(piece, order[piece.source]) for piece in pieces]
        return self._select(box, read, [self._part(buffer, source) for source in used], buffer.tensor)

    def _select(self, box: Box, pieces: Sequence[Piece], held: Sequence[HeldBlock], view: str) -> Tensor:
        """A block of a view of blocks: as the view is, where all of these are whole."""
        source = self.program.graph.source(view)
        is_whole = box == Box.of(source.shape) and all(one.box in map(Box.of, source.stored_shapes) for one in held)
        local = pieces if is_whole else [_move(piece, box, [one.box for one in held]) for piece in pieces]
        try:
            return self.graph.select(Local(box.shape, tuple(local)), *(one.tensor for one in held))
        except ValueError as error:
            raise NotLocal(str(error)) from None

    def finish(self, items: Sequence[Item]) -> Iterator[Stretch]:
        """The segment of what was written, if it is more than one block."""
        blocks = [item for item in items if isinstance(item, StepBlock)]
        if len(blocks) < 2:
            return
        last, program = blocks[-1].at, self.program
        copies = [item for item in items if isinstance(item, Joined) and item.at < last and self._knows(item)]
        inside = frozenset([*(block.at for block in blocks), *(item.at for item in copies)])
        put, outputs = set[int](), dict[int, Box]()
        for item in copies:
            if item.is_in_place or item.src == HOST:
                continue
            try:
                self._put(item, inside, put, outputs)
            except NotLocal:  # what it reads has to be there when it comes
                k = items.index(item)
                yield from program.cut(items[:k])
                yield from program.cut(items[k + 1 :])
                return
        for block in blocks:
            ((buffer, box),) = block.outputs
            is_put = program.hosts.get(buffer.id) in put and inside.issuperset(program.readers[buffer.id])
            if not is_put and program.escapes(buffer.id, inside):
                outputs[buffer.id] = box
        buffers = program.work.buffers
        written_over = {number for number, later in program.work.overtaken.items() if later in self.made}
        for k, (number, box) in enumerate(outputs.items()):
            held = self.made.get(number)
            tensor = self._put_together(buffers[number], box) if held is None else held.tensor
            self.graph.output(tensor, f"y{k}")
        inputs = [
            Input(tensor.name, block, array, program.freed.get(number, last) < last or number in written_over)
            for (number, _, _), (tensor, block, array) in self.inputs.items()
            if array is not None
        ]
        used = {
            number for block in blocks for number in list_written(program.steps[block.at].step)
        }  # scratch memory, too
        ends = {number: (*program.writers[number], *program.readers[number]) for number in used.union(self.joined)}
        closed = {number for number, at in ends.items() if inside.issuperset(at)}
        inner = {number for number in closed if number not in outputs and not program.escapes(number, inside)}
        if outputs:
            yield Stretch(
                self.graph,
                tuple(items),
                tuple(inputs),
                tuple((buffers[number], box) for number, box in outputs.items()),
                frozenset(put),
                frozenset(inner),
                sum(item.nbytes for item in copies if item.dst in put),
                max(
                    (b.offset + b.room for b in map(buffers.__getitem__, inner) if b.is_apart),
                    default=0,
                ),
            )

    def _put(self, item: Joined, inside: frozenset[int], put: set[int], outputs: dict[int, Box]) -> None:
        """Have the session put together what a copy fills.

        Raises
        ------
        NotLocal
            Where some of that comes from elsewhere.
        """
        buffer = self.program.work.buffers[item.dst]
        if not self.program.is_made(item.dst, inside):
            raise NotLocal("some of a buffer is not made here")
        if self.program.escapes(item.dst, inside):
            self._put_together(buffer, buffer.box)
            outputs[item.dst] = buffer.box
        put.add(item.dst)


def as_it_lies(box: Box) -> Piece:
    """A piece that reads each cell of a block where it lies."""
    rank = len(box.shape)
    return Piece(0, (), IndexMap((AffineMap.identity(rank),), rank))


def replace_source(piece: Piece, source: int = 0) -> Piece:
    """A piece that reads another one of some tensors."""
    return Piece(source, piece.guards, piece.map, piece.fill)


def _move(piece: Piece, box: Box, sources: Sequence[Box]) -> Piece:
    """A piece in the coordinates of a block of its view, and of blocks of its sources.

    Raises
    ------
    NotLocal
        Where a part is read through more than strides: ONNX numbers the cells of whole tensors.
    """
    rank, there = len(box.shape), () if piece.source < 0 else sources[piece.source].start
    if piece.guards or not all(isinstance(step, AffineMap) for step in piece.map.steps):
        raise NotLocal("a part of a view that is read through more than strides")
    begin = AffineMap(AffineMap.identity(rank).matrix, box.start, rank)
    end = AffineMap(AffineMap.identity(len(there)).matrix, tuple(-a for a in there), len(there))
    return Piece(piece.source, (), IndexMap((begin, *piece.map.steps, end), rank).simplify(), piece.fill)
