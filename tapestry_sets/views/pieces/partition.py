"""Exact partition: regions that make up their box, and pieces that make up a view.

Decided by sets, however large they are: domains are compared where their bounds meet, counted to see that nothing is
left, and halved to name the first point that is. Where domains are too many products to write out, isl decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from tapestry_sets.limits import OPEN, TooManyPieces, ask_one, quote
from tapestry_sets.regions import Box, DisjointRegions, Region, grid_hull, grids_of
from tapestry_sets.solvers import isl
from tapestry_sets.views.pieces.images import piece_domain, push
from tapestry_sets.views.pieces.maps import Relinearize, Shape, put_extents
from tapestry_sets.views.pieces.piece import Guard, Piece

Domain = Region | DisjointRegions


def check_regions(regions: Sequence[Region], what: str) -> None:
    """Raise unless each point of the regions' common box is in exactly one of them.

    Raises
    ------
    ValueError
        Naming two regions and a point that they share, or the first point that is in none.

    Examples
    --------
    >>> row = Region.from_bounds((2, 3), (0, 0), (1, 3))
    >>> check_regions([row, row.flip(0)], "rows")
    >>> check_regions([row], "rows")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    ValueError: rows: no region holds the point (1, 0); the regions must cover the box (2, 3), and ~region is what ...
    """
    shared = first_shared(regions)
    if shared is not None:
        point, j, k = shared
        raise ValueError(
            f"{what}: regions {j} and {k} share the point {quote(point)}; each point may be in one region, and region "
            f"{k} less region {j} is regions[{k}] - regions[{j}]"
        )
    gap = first_gap(regions)
    if gap is not None:
        raise ValueError(
            f"{what}: no region holds the point {gap}; the regions must cover the box {regions[0].shape}, and "
            "~region is what one of them leaves"
        )


def check_view(pieces: Sequence[Piece], shape: Shape, shapes: Sequence[Shape], what: str) -> None:
    """Raise unless pieces are a view of `shape`: each cell reads one cell of one source, or one constant.

    Parameters
    ----------
    pieces : sequence of Piece
    shape : tuple of int
        Of the view.
    shapes : sequence of tuple of int
        Of its sources.
    what : str
        What the messages call the view.

    Raises
    ------
    ValueError
        If a cell is read by two pieces or by none, or reads outside its source; the message names it.
    TooHard
        If isl, asked where products are too many, does not decide within its limit.

    Examples
    --------
    >>> from tapestry_sets.regions import AffineMap
    >>> from tapestry_sets.views import IndexMap
    >>> shift = Piece(0, (), IndexMap((AffineMap(((1,),), (2,)),)))
    >>> check_view([shift], (4,), [(6,)], "shift")
    >>> check_view([shift], (5,), [(6,)], "shift")
    Traceback (most recent call last):
    ...
    ValueError: shift: cell (4,) reads (6,) of source 0 of shape (6,), through piece 0; it must read inside its source
    """
    for k, piece in enumerate(pieces):
        if piece.source >= len(shapes):
            raise ValueError(f"{what}: piece {k} reads source {piece.source}, but there are {len(shapes)}")
        home = () if piece.source < 0 else shapes[piece.source]
        if piece.map.in_rank != len(shape) or piece.map.out_rank != len(home):
            raise ValueError(
                f"{what}: piece {k} maps rank {piece.map.in_rank} to rank {piece.map.out_rank}; the view's shape is "
                f"{quote(shape)} and the source's {quote(home)}"
            )
    if 0 in shape:
        return
    for k, piece in enumerate(pieces):
        none = next((step for step in piece.map.steps if isinstance(step, Relinearize) and 0 in step.from_shape), None)
        if none is not None:
            raise ValueError(
                f"{what}: piece {k} renumbers {quote(none.from_shape)}, which has no cells; the view has {quote(shape)}"
            )
    fault = ask_one((TooManyPieces,), _fault, pieces, shape, shapes)
    if fault is OPEN:
        fault = _isl_fault(pieces, shape, shapes, what)
    if fault is not None:
        raise ValueError(f"{what}: {fault}")


def _fault(pieces: Sequence[Piece], shape: Shape, shapes: Sequence[Shape]) -> str | None:
    domains = [piece_domain(piece, Box.of(shape)) for piece in pieces]
    return _partition_fault(domains, shape) or _outside_fault(pieces, shape, shapes)


def _partition_fault(domains: Sequence[Domain], shape: Shape) -> str | None:
    shared = first_shared(domains)
    if shared is not None:
        return _read_twice(*shared)
    gap = first_gap(domains) if domains else (0,) * len(shape)
    return None if gap is None else _not_read(gap)


def _read_twice(cell: Shape, j: int, k: int) -> str:
    return f"pieces {j} and {k} both read for cell {cell}; the pieces' domains must be disjoint"


def _not_read(cell: Shape) -> str:
    return f"no piece reads for cell {cell}; the pieces' domains must cover the view"


def first_shared(domains: Sequence[Domain]) -> tuple[Shape, int, int] | None:
    """Return a point of two of the sets and their positions, or None; sets whose bounds are apart are not compared.

    Examples
    --------
    >>> halves = [Region.from_bounds((4,), (0,), (3,)), Region.from_bounds((4,), (2,), (4,))]
    >>> first_shared(halves)
    ((2,), 0, 1)
    """
    boxes = [(*bounds, k) for k, domain in enumerate(domains) if (bounds := domain.bounds()) is not None]
    if len(boxes) < 2:
        return None
    rank = domains[0].rank
    axis = max(range(rank), key=lambda a: len({low[a] for low, _, _ in boxes}), default=None)
    if axis is None:
        return (), boxes[0][2], boxes[1][2]
    boxes.sort(key=lambda box: box[0][axis])
    for at, (low, high, k) in enumerate(boxes):
        for other_low, other_high, j in boxes[at + 1 :]:
            if other_low[axis] >= high[axis]:
                break  # and so do all that follow
            if all(a < d and c < b for a, b, c, d in zip(low, high, other_low, other_high, strict=True)):
                point = domains[k].first_common(domains[j])
                if point is not None:
                    return point, min(j, k), max(j, k)
    return None


def first_gap(domains: Sequence[Domain]) -> Shape | None:
    """Return the first point, in row-major order, of a box from zero that no one of disjoint sets holds, or None.

    Examples
    --------
    >>> n = 10**9
    >>> first_gap([Region.from_bounds((n, n), (0, 0), (n // 2, n)), Region.from_bounds((n, n), (n // 2, 0), (n, 7))])
    (500000000, 7)
    """
    shape = domains[0].shape
    if sum(domain.size for domain in domains) == prod(shape):
        return None
    low, high = [0] * len(shape), list(shape)
    for axis in range(len(shape)):
        while high[axis] - low[axis] > 1:  # the box from low to high is not covered, what is before it is
            end, high[axis] = high[axis], (low[axis] + high[axis]) // 2
            half = Region.from_bounds(shape, low, high)
            if sum(domain.count_common(half) for domain in domains) == half.size:
                low[axis], high[axis] = high[axis], end
    return tuple(low)


# ---------------------------------------------------------------------------------------- cells inside the source


def _outside_fault(pieces: Sequence[Piece], shape: Shape, shapes: Sequence[Shape]) -> str | None:
    for k, piece in enumerate(pieces):
        if piece.source < 0:
            continue
        home = shapes[piece.source]
        hull = grid_hull(push(piece, grids_of(Box.of(shape)))[0])
        if hull is None or Box.of(home).contains(hull):
            continue
        return _read_outside(_first_beyond(piece, shape, home, hull), piece, k, home)
    return None


def _read_outside(cell: Shape, piece: Piece, k: int, home: Shape) -> str:
    return (
        f"cell {cell} reads {piece.map.apply(cell)} of source {piece.source} of shape {home}, through piece {k}; it "
        "must read inside its source"
    )


def _first_beyond(piece: Piece, shape: Shape, home: Shape, hull: Box) -> Shape:
    """The first cell that reads outside, of a piece that reads in `hull`."""
    cells = []
    for axis, n in enumerate(home):
        start, stop = hull.start[axis], hull.stop[axis]
        for a, b in ((start, min(0, stop)), (max(n, start), stop)):
            if a < b:
                low, high = put_extents(hull.start, axis, a), put_extents(hull.stop, axis, b)
                guard = Guard(len(piece.map.steps), Region.from_bounds(hull.shape, low, high, hull.start))
                domain = piece_domain(Piece(piece.source, (*piece.guards, guard), piece.map), Box.of(shape))
                cells.append(domain.first_common(Region.full(shape)))
    return min(cell for cell in cells if cell is not None)


# --------------------------------------------------------------------------------------------------- decided by isl


def _isl_fault(pieces: Sequence[Piece], shape: Shape, shapes: Sequence[Shape], what: str) -> str | None:
    why = f"{what}: whether the pieces partition the view of shape {shape} and read inside their sources takes long"
    operations = isl.MAX_OPERATIONS * max(len(pieces), 1) ** 2
    return isl.decide(why, lambda: _fault_by_isl(pieces, shape, shapes), operations, "use simpler pieces")


def _fault_by_isl(pieces: Sequence[Piece], shape: Shape, shapes: Sequence[Shape]) -> str | None:
    rest: Any = isl.box_set((0,) * len(shape), shape)
    maps = [isl.to_isl(piece).intersect_domain(rest) for piece in pieces]
    for k, m in enumerate(maps):
        for j in range(k):
            cell = isl.a_point(maps[j].domain().intersect(m.domain()))
            if cell is not None:
                return _read_twice(cell, j, k)
    for m in maps:
        rest = rest.subtract(m.domain())
    gap = isl.a_point(rest)
    if gap is not None:
        return _not_read(gap)
    for k, (piece, m) in enumerate(zip(pieces, maps, strict=True)):
        if piece.source >= 0:
            home = shapes[piece.source]
            cell = isl.a_point(m.subtract_range(isl.box_set((0,) * len(home), home)).domain())
            if cell is not None:
                return _read_outside(cell, piece, k, home)
    return None
