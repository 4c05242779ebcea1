"""Local copies: which blocks of operands a device must write anew, and which it can take as they lie.

A block function takes strided arrays. So a block costs nothing where all that it reads is one affine piece on one
buffer: its tensor as it is, turned, reversed, every second row, a part of it. Else its cells are written beside each
other first, which costs its bytes::

    x.T[::2]                 offset and strides of the buffer of x                     0 bytes
    concat(x, y)             two buffers: both are copied                              the block's bytes,
    concat(x, y)             a block that lies in y alone                              0 bytes
    padded rows of x         cells that no buffer has                                  the block's bytes

The buffer of a tensor is taken for the box around the cells that the block needs, which is what a plan gathers; where a
device has them in a larger one in which the block is not strided, its steps copy it (`find_strides`). Where a device
gathers its own cells and others that come, the own ones are copied, too::

    rows 0-4 of x, made here     ██████
    rows 0-5, to be read         ██████▒      five rows are copied, one is received: the five rows' bytes

That takes its time in the stage that brings the others. So it is with a block with padding, which is gathered in any
case. What of all this is made where it is read, and not copied, is said by `layouts/anew.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import islice
from math import prod

import numpy as np

from tapestry_plan.ir import Graph, OpNode, Signature, Source
from tapestry_plan.rewrite import follow_cells
from tapestry_plan.steps import tuning
from tapestry_plan.steps.layouts.layout import PeriodicBlock, SplitAxis
from tapestry_plan.steps.layouts.reads import IndexBlock, Reads, list_images
from tapestry_plan.steps.step import HOST, Buffer, Copy, ProgramStep, is_in_place, row_major
from tapestry_sets.digits import Ints
from tapestry_sets.limits import OPEN, TooManyPieces, ask_one
from tapestry_sets.regions import AffineMap, Box, DisjointRegions
from tapestry_sets.views import Lookup, Piece, piece_domain, piece_image

Linear = tuple[Ints, int]
"""Coefficients of the view's coordinates and a constant: an element's offset, in elements."""


def is_written(reads: Reads, node: OpNode, operand: int, index: IndexBlock) -> bool:
    """Whether the block of a view that an index block reads is not strided, so that it is written.

    A periodic block, over the digits of its axes, is strided where all of it is one affine piece: each digit has a
    stride of its own.
    """
    if not may_write(reads, node, operand) and not (isinstance(index, PeriodicBlock) and is_turned(index.digits)):
        return False
    key = "written", reads.kind(node), operand, index
    return reads.known.fact(key, lambda: _is_written_now(reads, node, operand, index))


def count_local(graph: Graph, buffers: Iterable[Buffer], steps: Iterable[ProgramStep], size: int) -> tuple[int, ...]:
    """Bytes of the cells that each of some devices copies between its own buffers, or fills, as steps say.

    Parameters
    ----------
    graph : Graph
    buffers : iterable of Buffer
    steps : iterable of ProgramStep
    size : int
        How many devices there are.
    """
    total, known = [0] * size, {buffer.id: buffer for buffer in buffers}
    for step in steps:
        if not isinstance(step, Copy) or (step.piece is None and step.src == HOST) or is_in_place(step, known):
            continue
        target = known[step.dst]
        if step.piece is not None or known[step.src].device == target.device:
            total[target.device] += _count_cells(graph, step, target) * np.dtype(target.dtype).itemsize
    return tuple(total)


def _count_cells(graph: Graph, step: Copy, target: Buffer) -> int:
    """The cells that a copy writes: through a piece with guards those for which they hold."""
    if step.piece is None or not step.piece.guards:
        return sum(region.size for region in step.regions)
    shape = graph.source(target.tensor).shape
    domain = find_domain(step.piece, Box.of(shape), front=False)
    return sum((region & domain).size for region in step.regions)


def find_strided(reads: Reads, node: OpNode, operand: int, index: Box) -> Piece | None:
    """The piece through which a block of a viewed operand is one strided view; None where it must be written anew."""

    def found() -> Piece | None:
        source = reads.graph.source(node.inputs[operand])
        if source.direct or is_written(reads, node, operand, index):
            return None
        return next((piece for piece, _ in list_pieces(reads.graph, node, operand, index)), None)

    return reads.known.fact(("strided", reads.kind(node), operand, index), found)


@lru_cache(maxsize=tuning.KEPT_FORMS)
def find_strides(piece: Piece, buffer: Box, block: Box) -> Linear | None:
    """Where a block of a view lies in a buffer: strides, and the place of its first cell, in elements.

    None where the block is not one strided view of the buffer, or some corner of it lies outside.

    Examples
    --------
    >>> from tapestry_sets.regions import AffineMap
    >>> from tapestry_sets.views import IndexMap
    >>> turned = Piece(0, (), IndexMap((AffineMap(((0, 1), (1, 0)), (0, 0)),)))
    >>> find_strides(turned, Box((0, 0), (4, 6)), Box((2, 1), (3, 2)))
    ((1, 6), 8)
    """
    linear = linearize(piece, buffer, block)
    if linear is None:
        return None
    strides, first = linear
    if not block.size:
        return None
    first += sum(a * s for a, s in zip(block.start, strides, strict=True))
    reach = [s * (n - 1) for s, n in zip(strides, block.shape, strict=True)]
    low, high = first + sum(min(0, r) for r in reach), first + sum(max(0, r) for r in reach)
    return (strides, first) if low >= 0 and high < buffer.size else None


def is_turned(digits: Sequence[SplitAxis]) -> bool:
    """Whether a block of digits may begin near the end of an axis and go on at its start: then it is in two pieces."""
    return any(each.first for each in digits)


def may_write(reads: Reads, node: OpNode, operand: int) -> bool:
    """Whether some block of an operand that is not turned may be one of a view that is written; False where none is."""
    source = reads.graph.source(node.inputs[operand])
    if source.direct:
        return False
    if may_pad(reads, node, operand):
        return True
    piece, *more = source.pieces
    return bool(more or piece.guards) or piece.source < 0 or not _is_linear(piece, source.shape)


@lru_cache(maxsize=tuning.KEPT_FORMS)
def _is_linear(piece: Piece, shape: Ints) -> bool:
    """Whether a tensor's coordinates are linear forms of a view's, all over the view: then each block of it is strided.

    So it is after affine steps, and after renumberings that join axes: 16 heads of 64 are 1,024 columns.
    """
    place = AffineMap.identity(piece.map.in_rank)
    for step in piece.map.steps:
        if isinstance(step, AffineMap):
            place = place.then(step)
            continue
        forms = list(zip(place.matrix, place.offset, strict=True))
        found = None if isinstance(step, Lookup) else _renumber(forms, step.from_shape, step.to_shape, Box.of(shape))
        if found is None:
            return False
        place = AffineMap(tuple(row for row, _ in found), tuple(first for _, first in found), place.in_rank)
    return True


def may_pad(reads: Reads, node: OpNode, operand: int) -> bool:
    """Whether some block of an operand may have cells outside of what is read."""
    declared = reads.graph.signature(node.name).inputs[operand]
    return declared.pad is not None or declared.outside != "forbid"


def is_padded(reads: Reads, node: OpNode, operand: int, index: IndexBlock) -> bool:
    """Whether the block of an operand has cells outside of what is read."""
    box = reads.graph.signature(node.name).input_box(operand, index) if isinstance(index, Box) else None
    return box is not None and box.size > 0 and not Box.of(reads.graph.source(node.inputs[operand]).shape).contains(box)


def count_through(reads: Reads, node: OpNode, operand: int, index: IndexBlock) -> int:
    """The cells of a view that an index block reads."""
    signature = reads.graph.signature(node.name)
    (seen,) = list_images(signature, signature.inputs[operand], [index], lambda boxes: [])
    return seen.size


def _is_written_now(reads: Reads, node: OpNode, operand: int, index: IndexBlock) -> bool:
    graph, signature = reads.graph, reads.graph.signature(node.name)
    source = graph.source(node.inputs[operand])
    if not isinstance(index, Box):
        (seen,) = list_images(signature, signature.inputs[operand], [index], lambda boxes: [])
        pieces = [piece for piece, _ in islice(_find_pieces(source, seen), 2)]
        assert isinstance(index, PeriodicBlock), "operators work on boxes, of their axes or of digits"
        (need,) = reads.of_blocks(node, operand, [index])
        place = _number_digits(signature, operand, index)
        return place is None or not _is_strided(pieces, need, index.box, place)
    declared, piece = signature.inputs[operand], source.pieces[0]
    is_one = len(source.pieces) == 1 and not piece.guards and piece.source >= 0
    is_inside = declared.pad is None and declared.outside == "forbid"
    if is_one and is_inside and _is_always_strided(piece, reads.of_operand(node, operand, index)[source.stored[0]]):
        return False  # most are
    box = signature.input_box(operand, index)
    if box is None or not box.size:
        return False
    if not Box.of(source.shape).contains(box):
        return True
    seen = signature.input_region(operand, index, source.shape)
    pieces = [piece for piece, _ in islice(_find_pieces(source, seen), 2)]  # where there are two, more say no more
    if not pieces:
        return False
    need = tuple(reads.of_operand(node, operand, index).values())
    return not _is_strided(pieces, need, box, AffineMap.identity(len(box.shape)))


def _is_strided(pieces: Sequence[Piece], need: Sequence[DisjointRegions], block: Box, place: AffineMap) -> bool:
    """Whether a block is one strided view of the box around the cells that are needed of a stored tensor.

    `place` says the view's coordinates at the block's points.
    """
    if len(pieces) != 1 or pieces[0].source < 0:
        return False
    around = Box(*_find_bounds(need[pieces[0].source]))
    return linearize(pieces[0], around, block, place) is not None


def _number_digits(signature: Signature, operand: int, index: PeriodicBlock) -> AffineMap | None:
    """An operand's coordinates at the digits of a periodic block, which begin at an axis' first point.

    None where they pass the end of an axis that the operand is read along: those before its first point come last.
    """
    followed = follow_cells(signature, signature.inputs[operand])
    assert followed is not None, "only operators that work cell by cell are offered periodic blocks"
    count = len(index.box.shape)
    at, rows = 0, list[Linear | None]()
    for each in index.digits:
        row = [0] * count
        row[at : at + len(each.sizes)] = row_major(each.sizes)
        at += len(each.sizes)
        turned = _divide((tuple(row), each.first), prod(each.sizes), index.box)
        # Two cells around the end are linear, too, with a step back; the view that the operator then reads is in two.
        passes = turned is None or any(q for q, n in zip(turned[0][0], index.box.shape, strict=True) if n > 1)
        rows.append(None if turned is None or passes else turned[1])
    chosen = [found for k in followed if (found := ((0,) * count, 0) if k is None else rows[k]) is not None]
    if len(chosen) < len(followed):
        return None
    return AffineMap(tuple(row for row, _ in chosen), tuple(first for _, first in chosen), count)


def _divide(form: Linear, by: int, block: Box) -> tuple[Linear, Linear] | None:
    """Quotient and rest of a linear form in a block, where both are linear; else None.

    Of 8·i + j + 3 by 8 they are i and j + 3 for j in 0 .. 4, and neither is linear for j in 0 .. 7. Of 7·i by 8, which
    carries at each step but the first, they are i - 1 and 8 - i for i in 1 .. 8.
    """
    # Where they are linear, the first step along each axis says by how much.
    coefficients, first = form
    begin = first + sum(a * lo for a, lo in zip(coefficients, block.start, strict=True))
    quotients = [
        (begin + a) // by - begin // by if n > 1 else a // by for a, n in zip(coefficients, block.shape, strict=True)
    ]
    rests = [a - q * by for a, q in zip(coefficients, quotients, strict=True)]
    ends = [(0, r * (n - 1)) for r, n in zip(rests, block.shape, strict=True)]
    low, high = (begin % by + sum(pick(pair) for pair in ends) for pick in (min, max))
    if low < 0 or high >= by:
        return None
    whole = begin // by - sum(q * lo for q, lo in zip(quotients, block.start, strict=True))
    return (tuple(quotients), whole), (tuple(rests), first - whole * by)


def _renumber(forms: Sequence[Linear], old: Ints, new: Ints, block: Box) -> list[Linear] | None:
    """Coordinates after a reshape, as linear forms; None where one of them is not linear in the block."""
    strides = row_major(old)
    rows = [row for row, _ in forms]  # none of a single cell
    row = tuple(sum(a[k] * s for a, s in zip(rows, strides, strict=True)) for k in range(len(block.shape)))
    rest = row, sum(first * s for (_, first), s in zip(forms, strides, strict=True))
    found = []
    for stride in row_major(new):
        divided = _divide(rest, stride, block)
        if divided is None:
            return None
        found.append(divided[0])
        rest = divided[1]
    return found


def _is_always_strided(piece: Piece, need: DisjointRegions) -> bool:
    """Whether what is read through a piece is strided whichever block reads it: the extents of its cells say so."""
    bounds = need.bounds()
    # Where these cells begin says the first offset, but not whether there are strides.
    return bounds is None or linearize(piece, Box.of([b - a for a, b in zip(*bounds, strict=True)])) is not None


def _find_bounds(cells: DisjointRegions) -> tuple[Ints, Ints]:
    """First coordinates and extents of the box around some cells."""
    bounds = cells.bounds()
    assert bounds is not None, "a piece that reads cells reads some"
    low, high = bounds
    return tuple(low), tuple(b - a for a, b in zip(low, high, strict=True))


def list_pieces(graph: Graph, node: OpNode, operand: int, index: Box) -> list[tuple[Piece, DisjointRegions]]:
    """Of a block of a viewed tensor: the pieces that it reads through, and the cells that each gives."""
    source = graph.source(node.inputs[operand])
    return list(_find_pieces(source, graph.signature(node.name).input_region(operand, index, source.shape)))


def _find_pieces(source: Source, seen: DisjointRegions) -> Iterator[tuple[Piece, DisjointRegions]]:
    """Pieces through which cells of a view read something, with those that may: guards behind a step stay guards."""
    for piece in source.pieces:
        cells = seen
        if _has_guards(piece, front=True):
            cells = seen & find_domain(piece, Box(seen.start, seen.shape), front=True)
        if cells.size and _reads_any(source, piece, cells):
            yield piece, cells


def _reads_any(source: Source, piece: Piece, cells: DisjointRegions) -> bool:
    """Whether cells read something through a piece that lets them through in front."""
    if piece.source < 0 or not _has_guards(piece, front=False):
        return True
    domain = ask_one((TooManyPieces,), find_domain, piece, Box(cells.start, cells.shape), False)
    if domain is OPEN:
        return bool(piece_image(piece, cells, within=source.stored_shapes[piece.source]).size)
    return bool((cells & domain).size)


def _has_guards(piece: Piece, front: bool) -> bool:
    """Whether a piece has guards on view coordinates, or else further down the chain."""
    return any((guard.prefix == 0) == front for guard in piece.guards)


@lru_cache(maxsize=tuning.KEPT_FORMS)
def find_domain(piece: Piece, box: Box, front: bool) -> DisjointRegions:
    """The cells of a box that read through a piece, or, in front, that its guards on view coordinates let through."""
    guards = tuple(guard for guard in piece.guards if guard.prefix == 0) if front else piece.guards
    return piece_domain(Piece(piece.source, guards, piece.map, piece.fill), box)


@lru_cache(maxsize=tuning.KEPT_FORMS)
def linearize(piece: Piece, box: Box, block: Box | None = None, place: AffineMap | None = None) -> Linear | None:
    """The source's element offset as one linear form of a block's coordinates, where it is one; else None.

    It is after affine steps, and after a renumbering at the end whose cells lie in the source's block, `box`, in the
    order of their numbers. Where a `block` of the view is given, it also is after renumberings whose digits are linear
    in it. `place` says the view's coordinates at the block's points; without it they are the same.
    """
    place = place or AffineMap.identity(piece.map.in_rank)
    strides = row_major(box.shape)
    number = AffineMap((strides,), (-sum(a * s for a, s in zip(box.start, strides, strict=True)),))
    for k, step in enumerate(piece.map.steps):
        if isinstance(step, AffineMap):
            place = place.then(step)
            continue
        if isinstance(step, Lookup):
            return None
        after = piece.map.steps[k + 1 :]
        if block is not None:
            forms, shape = list(zip(place.matrix, place.offset, strict=True)), step.to_shape
            weights = _pull_weights(shape, after, number)
            if weights is not None:
                shape, number = _join_even(shape, weights)
            found = _renumber(forms, step.from_shape, shape, block)
            if found is None:
                return None
            place = AffineMap(tuple(row for row, _ in found), tuple(first for _, first in found), place.in_rank)
            if weights is not None:
                break
        elif not after and _in_number_order(box, step.to_shape):
            first = sum(a * s for a, s in zip(box.start, row_major(step.to_shape), strict=True))
            number = AffineMap((row_major(step.from_shape),), (-first,))
        else:
            return None
    whole = place.then(number)
    return whole.matrix[0], whole.offset[0]


def _pull_weights(shape: Ints, after: Sequence[object], number: AffineMap) -> AffineMap | None:
    """The offset by coordinates before some affine steps; None where a step is another one."""
    place = AffineMap.identity(len(shape))
    for step in after:
        if not isinstance(step, AffineMap):
            return None
        place = place.then(step)
    return place.then(number)


def _join_even(shape: Ints, number: AffineMap) -> tuple[Ints, AffineMap]:
    """A shape, and an offset by its coordinates, where axes that are counted on from one to the next are one.

    Of 2 × 16 points, of which each row begins 16 steps of the second axis after the one before, 32 are counted on::

        0   1  …  15 │ 16  17 … 31
    """
    (weights,), (first,) = number.matrix, number.offset
    joined: list[tuple[int, int]] = []
    for n, weight in zip(shape, weights, strict=True):
        if joined and joined[-1][1] == n * weight:
            joined[-1] = joined[-1][0] * n, weight
        elif n > 1:
            joined.append((n, weight))
    joined = joined or [(1, 0)]
    return tuple(n for n, _ in joined), AffineMap((tuple(weight for _, weight in joined),), (first,))


def _in_number_order(box: Box, shape: Sequence[int]) -> bool:
    """Whether a block of a tensor of this shape is a run of consecutive row-major numbers.

    So it is when, after leading extents of 1, at most one axis is cut and all later ones are whole.
    """
    axes = [k for k, n in enumerate(box.shape) if n > 1]
    return not axes or all(box.shape[k] == shape[k] for k in range(axes[0] + 1, len(shape)))
