"""What a device writes anew to read it: one rule for prices, bounds and steps.

What a device reads of a tensor is one block, gathered of what it has and of what comes, or what it made itself. Through
a view that is not strided the block of the view is written beside that. Each of these would be copied from the one
before, but mostly can be made where the next one has it, which copies nothing (`nest`)::

    made      ████            rows 0-3                ████  ─in─►  ████▒▒  ─in─►  ····████▒▒
    gathered  ████▒▒          rows 0-5, two come      made         gathered       concat's block
    concat's  ····████▒▒      the block of a view

Which of them does follows from the layouts and the graph alone, tensor by tensor (`Hosting`), so that the search prices
just the copies that the steps have then:

- Of all that a device gathers of a tensor the first block that has all that it made holds that; other blocks copy it.
- The block of a view holds what is read of a tensor through one piece, at one place, where what the device has of it
  for that is no larger.
- Rows may lie apart only where all operators that touch them have the same bits so, and where they have several cells;
  else what is made must be one run of cells there.
- A tensor that is read through several views lies in none of their blocks. Where several operators read one view, each
  is priced for a block of its own, of which steps write the first alone where that has the others.

Under a memory cap blocks lie apart, and all copies are made.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from tapestry_plan.ir import Graph, OpNode
from tapestry_plan.steps import tuning
from tapestry_plan.steps.layouts.layout import PeriodicBlock
from tapestry_plan.steps.layouts.local import (
    Linear,
    count_through,
    find_domain,
    is_turned,
    is_written,
    list_pieces,
    may_write,
)
from tapestry_plan.steps.layouts.places import find_place, list_place
from tapestry_plan.steps.layouts.reads import IndexBlock, Reads, list_seen
from tapestry_plan.steps.step import row_major
from tapestry_sets.regions import AffineMap, Box, DisjointRegions, Region
from tapestry_sets.views import Piece


class Hosting(NamedTuple):
    """Where a tensor's blocks may be made, whatever the layouts.

    Parameters
    ----------
    gathered : bool
        Inside the blocks that its readers gather.
    viewed : bool
        Inside the block of a view.
    rows : bool
        Whether rows may lie apart there.
    shared : bool
        Whether all that reads it reads one view, of which a block may serve several.
    """

    gathered: bool
    viewed: bool
    rows: bool
    shared: bool = False


APART = Hosting(gathered=False, viewed=False, rows=False)
"""Of a tensor each of whose blocks lies by itself."""
Hostings = Mapping[str, Hosting]


def list_hostings(graph: Graph) -> dict[str, Hosting]:
    """Where each stored tensor's blocks may be made: of those that are not named in blocks of their own.

    Parameters
    ----------
    graph : Graph

    Examples
    --------
    >>> from tapestry_plan import Graph, concat, ops
    >>> g = Graph()
    >>> a, b = (ops.exp(g.input(name, (4, 6)), name=f"of {name}") for name in "xy")
    >>> _ = g.output(ops.relu(concat([a, b]))), g.output(ops.sum(b))
    >>> [tuple(list_hostings(g)[name])[:3] for name in ("of x", "of y")]
    [(True, True, True), (False, True, False)]
    """
    readings: defaultdict[str, list[tuple[OpNode, str]]] = defaultdict(list)
    for node in graph.nodes.values():
        for name in node.inputs:
            for stored in graph.source(name).stored:
                readings[stored].append((node, name))
    found = {}
    for node in graph.nodes.values():
        for name in node.outputs:
            each = readings[name]
            views = [read for _, read in each if read != name]
            # Who reads a view has the view's block, or what was gathered for it, not the rows themselves.
            touching = [node, *(reader for reader, read in each if read == name)]
            rows = all(graph.ops[one.op].rows for one in touching)
            is_shared = len(views) == len(each) > 1 and len(set(views)) == 1
            found[name] = Hosting(not views or len(each) == 1, len(views) == 1, rows, is_shared)
    return found


def may_lie_at(hosting: Hosting, shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether a block of some extents may be made where its cells lie at these strides."""
    if all(a == b for a, b, n in zip(strides, row_major(shape), shape, strict=True) if n > 1):
        return True
    return may_part_rows(hosting, shape) and strides[-1] == 1


def may_part_rows(hosting: Hosting, shape: Sequence[int]) -> bool:
    """Whether rows of a block of some extents may lie apart."""
    return hosting.rows and len(shape) > 0 and shape[-1] > 1


def find_place_in_view(
    graph: Graph, tensor: str, guest: Box, view: str, host: Box, piece: Piece, regions: Sequence[Region]
) -> Linear | None:
    """Where a block of a tensor lies in a block of a view, if that reads all of it through one piece, each cell once.

    Parameters
    ----------
    graph : Graph
    tensor, guest
        The tensor, and its block.
    view, host
        The view, and its block.
    piece, regions
        The piece, and the cells of the view's block that read through it, some of which its guards may leave out.
    """
    shape = graph.source(view).shape
    if sum(region.size for region in regions) < guest.size:
        return None
    moved = _move_back(piece, guest, host)
    if moved is not None and len(regions) == 1 and regions[0].is_box:  # most are: each axis of the view is moved
        if not host.contains(moved) or list(regions[0].spans) != list(zip(moved.start, moved.stop, strict=True)):
            return None
        strides, alone = row_major(host.shape), row_major(guest.shape)
        first = sum((a - b) * s for a, b, s in zip(moved.start, host.start, strides, strict=True))
        axes = _list_axes(piece)
        assert axes is not None, "it is moved along its axes"
        each = zip(axes, guest.shape, alone, strict=True)
        return tuple(strides[axis] if n > 1 else one for (axis, _), n, one in each), first
    place = find_place(host, guest, piece, graph.stored[tensor].shape)
    cells = None if place is None else list_place(host, guest.shape, place, shape)
    if cells is None:
        return None
    copied = DisjointRegions(shape, regions) & find_domain(piece, Box.of(shape), front=False)
    return place if copied.size == cells.size and cells <= copied else None


@lru_cache(maxsize=tuning.KEPT_FORMS)
def _list_axes(piece: Piece) -> tuple[tuple[int, int], ...] | None:
    """For each axis of a tensor the axis of the view that counts it, and by how much it is moved; None if none does."""
    if any(guard.prefix for guard in piece.guards):
        return None
    place = AffineMap.identity(piece.map.in_rank)
    for step in piece.map.steps:
        if not isinstance(step, AffineMap):
            return None
        place = place.then(step)
    found = []
    for row, by in zip(place.matrix, place.offset, strict=True):
        counting = [k for k, weight in enumerate(row) if weight]
        if len(counting) != 1 or row[counting[0]] != 1:
            return None
        found.append((counting[0], by))
    return tuple(found) if len({axis for axis, _ in found}) == len(found) else None


def _move_back(piece: Piece, guest: Box, host: Box) -> Box | None:
    """The cells of a view, of those in a block, that read a block of a tensor; None where that is not so simple."""
    axes = _list_axes(piece)
    if axes is None or any(n > 1 for k, n in enumerate(host.shape) if all(k != axis for axis, _ in axes)):
        return None
    start, shape = list(host.start), list(host.shape)
    for (axis, by), at, n in zip(axes, guest.start, guest.shape, strict=True):
        start[axis], shape[axis] = at - by, n
    return Box(tuple(start), tuple(shape))


def list_hosted(
    reads: Reads, node: OpNode, operand: int, index: IndexBlock, hostings: Sequence[Hosting]
) -> tuple[bool, ...]:
    """Of the tensors behind a view that is written for an operand those whose cells are made in its block.

    Parameters
    ----------
    reads : Reads
    node : OpNode
    operand : int
    index : IndexBlock
        Of the operator.
    hostings : sequence of Hosting
        By tensor behind the view; `APART` where blocks are apart.
    """
    none = (False,) * len(hostings)
    if not any(one.viewed for one in hostings) or not isinstance(index, Box):
        return none
    key = "hosted", reads.kind(node), operand, index, tuple(hostings)
    return reads.known.fact(key, lambda: _list_hosted_now(reads, node, operand, index, hostings))


def _list_hosted_now(
    reads: Reads, node: OpNode, operand: int, index: Box, hostings: Sequence[Hosting]
) -> tuple[bool, ...]:
    graph, view = reads.graph, node.inputs[operand]
    source, host = graph.source(view), graph.signature(node.name).input_box(operand, index)
    found = [False] * len(hostings)
    if host is None or not is_written(reads, node, operand, index):
        return tuple(found)
    pieces = _list_pieces(reads, node, operand, index)
    needs = reads.of_operand(node, operand, index)
    for k, (name, hosting) in enumerate(zip(source.stored, hostings, strict=True)):
        mine = [(piece, cells) for piece, cells in pieces if piece.source == k]
        bounds = needs[name].bounds() if hosting.viewed and len(mine) == 1 else None
        if bounds is None or graph.stored[name].dtype != source.dtype:
            continue
        guest = Box.from_bounds(*bounds)
        ((piece, cells),) = mine
        place = find_place_in_view(graph, name, guest, view, host, piece, cells.members)
        found[k] = place is not None and may_lie_at(hosting, guest.shape, place[0])
    return tuple(found)


def _list_pieces(reads: Reads, node: OpNode, operand: int, index: Box) -> list[tuple[Piece, DisjointRegions]]:
    key = "pieces", reads.kind(node), operand, index
    return reads.known.fact(key, lambda: list_pieces(reads.graph, node, operand, index))


def count_copied(
    reads: Reads, node: OpNode, operand: int, index: IndexBlock, hostings: Sequence[Hosting] | None = None
) -> int:
    """Bytes that a device must write anew to have the block of a viewed operand that an index block reads.

    A periodic block, over the digits of its axes, is strided where all of it is one affine piece: each digit has a
    stride of its own.

    Parameters
    ----------
    reads : Reads
    node : OpNode
    operand : int
    index : IndexBlock
        Of the operator.
    hostings : sequence of Hosting, optional
        By tensor behind the view; by default blocks lie apart.

    Examples
    --------
    >>> from tapestry_plan import Graph, concat, ops
    >>> from tapestry_sets.regions import Box
    >>> g = Graph()
    >>> x, y = g.input("x", (4, 6)), g.input("y", (4, 6))
    >>> turned, joined = ops.relu(x.T[::2], name="turned"), ops.relu(concat([x, y]), name="joined")
    >>> reads, index = Reads(g), [Box((0, 0), (3, 4)), Box((0, 0), (8, 6)), Box((4, 0), (4, 6))]
    >>> nodes = [g.nodes[name] for name in ("turned", "joined", "joined")]
    >>> [count_copied(reads, node, 0, box) for node, box in zip(nodes, index, strict=True)]
    [0, 192, 0]
    """
    if not may_write(reads, node, operand) and not (isinstance(index, PeriodicBlock) and is_turned(index.digits)):
        return 0
    if not is_written(reads, node, operand, index):
        return 0
    source = reads.graph.source(node.inputs[operand])
    hosted = list_hosted(reads, node, operand, index, hostings) if hostings else (False,) * len(source.stored)
    key = "copied", reads.kind(node), operand, index, hosted
    return reads.known.fact(key, lambda: _count_now(reads, node, operand, index, hosted))


def _count_now(reads: Reads, node: OpNode, operand: int, index: IndexBlock, hosted: Sequence[bool]) -> int:
    itemsize = np.dtype(reads.graph.source(node.inputs[operand]).dtype).itemsize
    if not isinstance(index, Box):
        declared = reads.graph.signature(node.name).inputs[operand]
        (seen,) = list_seen(reads.graph.signature(node.name), declared, [index])
        return itemsize * count_through(reads, node, operand, seen)
    pieces = _list_pieces(reads, node, operand, index)
    shape = Box.of(reads.graph.source(node.inputs[operand]).shape)
    total = 0
    for piece, cells in pieces:
        if piece.source < 0 or not hosted[piece.source]:
            total += (cells & find_domain(piece, shape, front=False)).size if piece.guards else cells.size
    return total * itemsize
