"""Devices that do alike: one of each class says how much memory all of it take.

On a large mesh most devices do the same with other cells. Where the blocks that a device holds and reads of a tensor
are those of another device, moved as a whole, all that is cut, met and compared of them comes out moved, too::

    rows of x        holds      reads            both take a buffer of 8 rows, and one of 10
      device 5     40 … 48    39 … 49    ──┐
      device 6     48 … 56    47 … 57    ──┴──►  one class
      device 7     56 … 64    55 … 64            a class of its own: 9 rows are read

If that is so of every tensor, the devices take buffers of the same sizes in the same order, so that their arenas are
equal, and as many bytes are placed on them. What they send to whom is not the same, and not asked here.

Of boxes of complete cells less is asked: buffers are as large as these boxes, and whether one is taken depends on which
boxes lie in others. So it is enough that the boxes have the same extents, and that they begin and end in one order::

    rows of y        holds      reads            whichever of its rows a device has itself, it takes a buffer for all,
      device 1      8 … 16    0 … 64    ──┬──►   one class; of an input all that is read must be as many cells, too
      device 2     16 … 24    0 … 64    ──┘
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from tapestry_plan.ir import Graph, Operand, OpNode, map_makers, take_no_workspace
from tapestry_plan.steps.choices import Choices, list_stages_of
from tapestry_plan.steps.layouts.anew import find_place_in_view
from tapestry_plan.steps.layouts.cells import CellAlgebra, unite
from tapestry_plan.steps.layouts.holders import project_bounds
from tapestry_plan.steps.layouts.layout import Bounds, Layout
from tapestry_plan.steps.layouts.local import find_strided, list_pieces
from tapestry_plan.steps.layouts.mesh import Mesh
from tapestry_plan.steps.layouts.reads import Reads
from tapestry_plan.steps.layouts.routes import BoolArray
from tapestry_plan.steps.lowering import Lowered, lower, shard_of
from tapestry_sets.regions import Box, DisjointRegions

Column = NDArray[np.int64]
"""Numbers by device, or by device and axis."""


class MovedForm(NamedTuple):
    """Some cells: a number for their form, wherever they lie, and the box around them."""

    form: int
    begin: tuple[int, ...]
    end: tuple[int, ...]
    is_box: bool


class Blocks(NamedTuple):
    """Cells of a tensor by device, as columns."""

    form: Column
    """By device: some numbers that are equal where one block is the other one, moved; the first is -1 for no block."""
    origin: Column
    """By device and axis: from where it is moved."""
    end: Column | None
    """By device and axis: where it ends, of blocks that are boxes."""
    cells: tuple[DisjointRegions | None, ...] = ()
    """By device, of what is read."""


class Alike(Struct, frozen=True):
    """The steps of one device of each class, and what follows from them for all devices.

    Parameters
    ----------
    lowered : Lowered
        The steps of the first device of each class.
    first : tuple of int
        For each device the first one of its class.
    """

    lowered: Lowered
    first: tuple[int, ...]

    @property
    def is_all(self) -> bool:
        """Whether no two devices do alike, so that the steps are those of all."""
        return len(self.lowered.devices) == len(self.first)

    @property
    def nbytes_placed(self) -> tuple[int, ...]:
        """By device."""
        return self._spread(self.lowered.nbytes_placed)

    @property
    def peak_nbytes(self) -> tuple[int, ...]:
        """By device."""
        return self._spread(self.lowered.peak_nbytes)

    def _spread(self, found: Sequence[int]) -> tuple[int, ...]:
        of_device = dict(zip(self.lowered.devices, found, strict=True))
        return tuple(of_device[first] for first in self.first)


def lower_alike(
    graph: Graph, mesh: Mesh, chosen: Choices, reads: Reads, tell: Callable[[int, int], None] | None = None
) -> Alike:
    """The steps of one device of each class of devices that do alike.

    Parameters
    ----------
    graph : Graph
    mesh : Mesh
    chosen : Choices
    reads : Reads
        What the graph's operators read, as far as it is known.
    tell : callable, optional
        As of `lower`.
    """
    first = classify_devices(graph, chosen, reads) if graph.nodes else range(mesh.size)
    return Alike(lower(graph, mesh, chosen, reads=reads, devices=sorted({*first}), tell=tell), tuple(first))


def classify_devices(graph: Graph, chosen: Choices, reads: Reads) -> list[int]:
    """For each device the first one that does alike, as choices say.

    Parameters
    ----------
    graph : Graph
    chosen : Choices
    reads : Reads
    """
    layouts = chosen.layouts.values()
    if any(layout.lots for layout in layouts):  # boxes that somebody gave, of which none need be alike
        return list(range(max(len(layout.cells) for layout in layouts)))
    return _Classes(graph, chosen, reads).find()


class _Classes:
    """Collects what devices hold and read, tensor by tensor, and numbers what is equal."""

    def __init__(self, graph: Graph, chosen: Choices, reads: Reads) -> None:
        self.graph, self.reads, self.chosen = graph, reads, chosen
        same: dict[Layout, Layout] = {}
        self.layouts = {place: same.setdefault(layout, layout) for place, layout in chosen.layouts.items()}
        self.algebra = CellAlgebra()
        self.makers = map_makers(graph)
        self.of_tensor: defaultdict[str, dict[int, Blocks]] = defaultdict(dict)
        """What is held and read of each stored tensor: alike stages have the same object."""
        self.of_view: defaultdict[str, list[Blocks]] = defaultdict(list)
        """What is read of each view, in its own coordinates: a block that one assembles may serve another."""
        self.in_parts: set[str] = set()
        """Tensors that are made in partial results, of which each device merges what it misses."""
        self.others: dict[int, Column] = {}
        """What else the sizes of buffers depend on, by device."""

    def find(self) -> list[int]:
        for (kind, name), layout in self.layouts.items():
            if kind != "operator":
                key = "boxes", self.algebra.identity(layout)
                self._add(name, self.algebra.fact(key, partial(_of_boxes, *layout.bounds)))
        for name, order in self.chosen.merged.items():
            for stage in list_stages_of(self.graph, self.chosen, name, order):
                self._add(name, _of_boxes(*stage.bounds))
        for node in self.graph.nodes.values():
            self._add_node(node)
        outputs = (s for name in self.graph.outputs.values() for s in self.graph.source(name).stored)
        if any(self.graph.stored[name].kind != "result" for name in outputs):
            # What no operator reads of an input that is an output lies on device 0.
            self._add_other(np.arange(len(next(iter(self.layouts.values())).cells)) == 0)
        for views in self.of_view.values():
            for one in views[1:]:
                self._add_other(one.origin - views[0].origin)
        columns = [self._number(name, [*each.values()]) for name, each in self.of_tensor.items()]
        classes = _number_rows([*columns, *self.others.values()])
        first = np.unique(classes, return_index=True)[1]
        found: list[int] = first[classes].tolist()
        return found

    def _number(self, name: str, blocks: Sequence[Blocks]) -> Column:
        """A number for each device by all blocks of one tensor."""
        is_input = self.graph.stored[name].kind != "result"
        if name in self.in_parts or any(one.end is None for one in blocks):
            return self.algebra.fact(("moved", *map(id, blocks)), lambda: _number_moved(blocks))
        key = "ordered", is_input, *map(id, blocks)
        return self.algebra.fact(key, lambda: self._number_ordered(blocks, self.graph.stored[name].shape, is_input))

    def _number_ordered(self, blocks: Sequence[Blocks], shape: tuple[int, ...], is_input: bool) -> Column:
        """The same of boxes by their extents and by the order in which they begin and end."""
        there = np.array([one.form[:, 0] >= 0 for one in blocks])
        ends = np.array([bound for one in blocks for bound in (one.origin, one.end)])
        ends = np.where(np.repeat(there, 2, axis=0)[..., None], ends, np.iinfo(np.int64).max)
        before = (ends[None] < ends[:, None]).sum(axis=1)  # by end, device and axis: how many others lie before it
        columns = [*(one.form for one in blocks), *before]
        if is_input:  # of what lies where it is read, each device has all that it reads
            read = zip(*(one.cells for one in blocks if one.cells), strict=True)
            columns.append(
                np.array([self._count_all([one for one in each if one is not None], shape) for each in read])
            )
        return _number_rows([column for column in columns if column.size])

    def _count_all(self, cells: Sequence[DisjointRegions | None], shape: tuple[int, ...]) -> int:
        """How many cells some regions have together."""
        some = [one for one in cells if one is not None]
        return self.algebra.fact(("all", *map(self.algebra.identity, some)), lambda: unite(some, shape).size)

    def _add(self, tensor: str, blocks: Blocks) -> None:
        self.of_tensor[tensor][id(blocks)] = blocks

    def _add_other(self, column: NDArray[Any]) -> None:
        found = self.algebra.fact(("other", column.shape, column.tobytes()), lambda: column.astype(np.int64))
        self.others[id(found)] = found

    def _add_node(self, node: OpNode) -> None:
        layout = self.layouts["operator", node.name]
        signature, kind = self.graph.signature(node.name), (self.reads.kind(node), self.algebra.identity(layout))
        if any(layout.parts[axis] > 1 for axis in signature.reductions):
            self.in_parts.update(node.outputs)
        for k, name in enumerate(node.outputs):
            self._add(name, self.algebra.fact(("made", k, *kind), partial(_of_made, signature.outputs[k], layout)))
        for k, name in enumerate(node.inputs):
            source = self.graph.source(name)
            read, around = self.algebra.fact(("read", k, *kind), partial(self._list_read, node, k, layout))
            for stored, blocks in zip(source.stored, read, strict=True):
                self._add(stored, blocks)
            if source.direct:
                self._add(source.stored[0], around)
            self._add_other(around.form)
            if not source.direct:  # a buffer of its own is made, or its source's is read as it lies
                self.of_view[name].append(around)
                self._add_other(self.algebra.fact(("strided", k, *kind), partial(self._list_strided, node, k, layout)))
                self._add_places(node, k, layout)
        op = self.graph.ops[node.op]
        if op.workspace is not take_no_workspace:
            self._add_other(self.algebra.fact(("workspace", *kind), partial(self._list_workspace, node, layout)))

    def _list_strided(self, node: OpNode, operand: int, layout: Layout) -> Column:
        """Whether each device can read its block of a view as it lies."""
        boxes = (None if box is None else find_strided(self.reads, node, operand, box) for box in layout.boxes)
        return np.array([piece is not None for piece in boxes], np.int64)

    def _add_places(self, node: OpNode, operand: int, layout: Layout) -> None:
        """Where blocks that each device makes, or gets, lie in its block of a view, if they may be made there."""
        source = self.graph.source(node.inputs[operand])
        for k, name in enumerate(source.stored):
            boxes = [self._read_boxes(node, operand, name, layout)]
            maker = self.makers.get(name)
            if maker is not None:
                made = self.graph.signature(maker.name).outputs[maker.outputs.index(name)]
                boxes.append(_list_boxes(project_bounds(made, self.layouts["operator", maker.name])))
            if ("landing", name) in self.layouts:
                boxes.append(_list_boxes(self.layouts["landing", name].bounds))
            for each in boxes if self.graph.stored[name].kind == "result" else ():
                numbers = (
                    self._number_place(node, operand, k, index, box)
                    for index, box in zip(layout.boxes, each, strict=True)
                )
                self._add_other(np.array([*numbers], np.int64))

    def _read_boxes(self, node: OpNode, operand: int, stored: str, layout: Layout) -> list[Box | None]:
        """The boxes around what devices read of a stored tensor."""
        found = []
        for index in layout.boxes:
            bounds = None if index is None else self.reads.of_operand(node, operand, index)[stored].bounds()
            found.append(None if bounds is None else Box.from_bounds(*bounds))
        return found

    def _number_place(self, node: OpNode, operand: int, k: int, index: Box | None, box: Box | None) -> int:
        """Whether a block of a stored tensor may be made in the block of a view that an index box reads."""
        if index is None or box is None:
            return -1
        name, host = node.inputs[operand], self.graph.signature(node.name).input_box(operand, index)
        if host is None:
            return -1

        def found() -> int:
            stored = self.graph.source(name).stored[k]
            places = (
                find_place_in_view(self.graph, stored, box, name, host, piece, cells.members)
                for piece, cells in list_pieces(self.graph, node, operand, index)
                if piece.source == k
            )
            return sum(1 << at for at, place in enumerate(places) if place is not None)

        return self.algebra.fact(("place", self.reads.kind(node), operand, k, index, box), found)

    def _list_workspace(self, node: OpNode, layout: Layout) -> Column:
        """Bytes of scratch memory on each device."""
        op, itemsize = self.graph.ops[node.op], self.graph.stored[node.outputs[0]].itemsize
        found = {
            box: op.workspace(shard_of(self.graph, node, box), itemsize) for box in {*layout.boxes} if box is not None
        }
        return np.array([-1 if box is None else found[box] for box in layout.boxes])

    def _list_read(self, node: OpNode, operand: int, layout: Layout) -> tuple[list[Blocks], Blocks]:
        """What devices read of each stored tensor behind an operand, and the boxes around it in the operand itself."""
        signature, source = self.graph.signature(node.name), self.graph.source(node.inputs[operand])
        declared = signature.inputs[operand]
        busy, low, high = project_bounds(declared, layout)
        starts = [signature.axis(name) for name in declared.at_start_of]
        busy = busy & (layout.bounds[1][:, starts] == 0).all(axis=1)
        inside = (low >= 0).all(axis=1) & (high <= source.shape).all(axis=1)
        around = _of_boxes(busy, low, high)
        boxes = [box for box in dict.fromkeys(layout.boxes) if box is not None]
        found = dict(zip(boxes, self.reads.of_blocks(node, operand, boxes), strict=True))
        read = [
            self._stack([None if box is None else found[box][k] for box in layout.boxes], len(shape))
            for k, shape in enumerate(source.stored_shapes)
        ]
        return read, around._replace(form=np.column_stack([around.form, inside]))

    def _stack(self, cells: Sequence[DisjointRegions | None], rank: int) -> Blocks:
        told = [None if one is None else self._tell(one) for one in cells]
        form = np.array([-1 if one is None else one.form for one in told], np.int64)
        zero = (0,) * rank
        origin, end = (
            np.array([zero if one is None else one[k] for one in told], np.int64).reshape(len(told), rank)
            for k in (1, 2)
        )
        are_boxes = all(one is None or one.is_box for one in told)
        return Blocks(form[:, None], origin, end if are_boxes else None, tuple(cells))

    def _tell(self, cells: DisjointRegions) -> MovedForm:
        return self.algebra.fact(("told", self.algebra.identity(cells)), lambda: self._tell_now(cells))

    def _tell_now(self, cells: DisjointRegions) -> MovedForm:
        bounds = cells.bounds()
        begin, end = ((0,) * len(cells.shape),) * 2 if bounds is None else map(tuple, bounds)
        members = []
        for member in cells.members:
            axes = zip(member.progressions, member.nests, begin, strict=True)
            # First and last point and step; of other sets of points the same ones at the same place.
            members.append(tuple((p[0] - at, p[1] - at, p[2]) if p else (at, nest) for p, nest, at in axes))
        is_box = len(members) == 1 and cells.members[0].is_box
        return MovedForm(self.algebra.key(frozenset(members)), begin, end, is_box)


def _of_boxes(busy: BoolArray, low: Column, high: Column) -> Blocks:
    """Boxes that some devices have: their extents are their form."""
    here = busy[:, None]
    return Blocks(np.column_stack([np.where(busy, 0, -1), (high - low) * here]), low * here, high * here)


def _list_boxes(bounds: Bounds) -> list[Box | None]:
    """The boxes of devices by their bounds."""
    busy, low, high = (each.tolist() for each in bounds)
    return [Box.from_bounds(a, b) if here else None for here, a, b in zip(busy, low, high, strict=True)]


def _of_made(operand: Operand, layout: Layout) -> Blocks:
    """What devices make of an output."""
    return _of_boxes(*project_bounds(operand, layout))


def _number_moved(blocks: Sequence[Blocks]) -> Column:
    """A number for each device: equal where all blocks of one are those of the other, moved as a whole."""
    there = np.array([(one.form[:, 0] >= 0) for one in blocks])
    origins = np.array([one.origin for one in blocks])
    first = origins[there.argmax(axis=0), np.arange(there.shape[1])]  # of the first block that a device has
    moved = (origins - first) * there[..., None]
    return _number_rows([*(one.form for one in blocks), *moved])


def _number_rows(columns: Sequence[Column]) -> Column:
    """Numbers of the distinct rows of some columns."""
    found: Column = np.unique(np.column_stack(columns), axis=0, return_inverse=True)[1].reshape(-1)
    return found
