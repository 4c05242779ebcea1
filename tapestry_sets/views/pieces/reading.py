"""Reading: which index of a view reads which cell, one at a time and as arrays.

As arrays, cells are their row-major numbers in int64: of all indices of a view, the last resort of `cells`, or of some
from all over it, with which a common cell may be met by chance.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import cast

import numpy as np

from tapestry_sets.digits import Progression, number_of, points_of
from tapestry_sets.integers import Bools, DisjointSetts, Int64Array, count_common, first_common
from tapestry_sets.limits import note_help, quote
from tapestry_sets.regions import AffineMap, Region
from tapestry_sets.views.pieces.images import read_points
from tapestry_sets.views.pieces.lookup import Lookup
from tapestry_sets.views.pieces.maps import INT64_MAX, IndexMap, Relinearize, put_extents
from tapestry_sets.views.pieces.piece import Piece

STRIDE = 0x9E3779B97F4A7C15
"""Steps of this many indices, around the end, come to indices all over a view: 2**64 over the golden ratio."""


# ------------------------------------------------------------------------------------------------- one at a time


def cell_read(piece: Piece, point: tuple[int, ...]) -> tuple[int, ...] | None:
    """The source's cell that a view's index reads through this piece, None if a guard does not hold."""
    at = point
    for prefix in range(len(piece.map.steps) + 1):
        if any(g.prefix == prefix and at not in g.region for g in piece.guards):
            return None
        if prefix < len(piece.map.steps):
            at = piece.map.steps[prefix].apply(at)
    return at


def invert(chain: IndexMap, cell: tuple[int, ...]) -> tuple[int, ...] | None:
    """A point that the chain may take to a cell: sure for chains of single terms, for others a guess to check."""
    at: tuple[int, ...] | None = cell
    for step in reversed(chain.simplify().steps):
        if at is None:
            return None
        if isinstance(step, Relinearize):
            at = Relinearize(step.to_shape, step.from_shape).apply(at)
        elif isinstance(step, Lookup):
            place = step.find(at[step.axis])
            at = None if place is None else put_extents(at, step.axis, place)
        else:
            at = _invert_affine(step, at)
    return at


def has_one_inverse(piece: Piece) -> bool:
    """Whether `invert` finds an index for every cell that the piece reads: no choice is left but a free one."""
    for k, step in enumerate(piece.map.simplify().steps):
        if isinstance(step, AffineMap):
            rows = step.terms()
            used = {j for row in rows for j, _ in row}
            if any(len(row) > 1 for row in rows) or ((k or piece.guards) and len(used) < step.in_rank):
                return False
        if isinstance(step, Lookup) and (k or piece.guards) and not step.is_injective:
            return False  # of places with one entry, the first need not be the one that is come to
    return True


def _invert_affine(step: AffineMap, target: tuple[int, ...]) -> tuple[int, ...] | None:
    """A point x >= 0 with step(x) = target, found row by row; None if this way finds none."""
    point: dict[int, int] = {}
    for row, b, y in zip(step.terms(), step.offset, target, strict=True):
        rest = y - b - sum(c * point[j] for j, c in row if j in point)
        free = [(j, c) for j, c in row if j not in point]
        for j, c in sorted(free, key=lambda term: -abs(term[1])):  # the large steps first, the small ones fill up
            point[j] = max(0, rest // c)
            rest -= c * point[j]
        if rest:
            return None
    return tuple(point.get(j, 0) for j in range(step.in_rank))


def reads_at(piece: Piece, point: tuple[int, ...], cell: tuple[int, ...], shape: Sequence[int]) -> bool:
    """Whether the view's index `point` reads `cell` through this piece."""
    return all(0 <= x < n for x, n in zip(point, shape, strict=True)) and cell_read(piece, point) == cell


# ------------------------------------------------------------------------------------- of a region, axis by axis

ReadAxis = tuple[list[DisjointSetts], int, int]
"""What is common to some sets in [start, stop)."""


def is_skew(piece: Piece) -> bool:
    """Return whether each coordinate of a piece's cells is one of its indices, and two are the same one: a diagonal."""
    step = piece.map.steps[0] if len(piece.map.steps) == 1 else None
    if not isinstance(step, AffineMap) or any(g.prefix for g in piece.guards):
        return False
    rows = step.terms()
    used = [j for row in rows for j, _ in row]
    return all(len(row) < 2 for row in rows) and len(set(used)) < len(used)


def in_coordinates(p: Progression, home: Sequence[int]) -> tuple[Piece, tuple[int, ...]] | None:
    """Return the numbers of a progression as one map to an allocation's coordinates, and its digits' counts.

    None if a sum of steps leaves its row, so that the coordinates are not linear in the digits.

    Examples
    --------
    >>> piece, shape = in_coordinates((1, ((3, 21),)), (6, 10))  # two rows down and one column on
    >>> [piece.map.apply((k,)) for k in range(*shape)]
    [(0, 1), (2, 2), (4, 3)]
    """
    first, levels = p
    origin: list[int] = []
    steps = [step for _, step in levels]
    rows: list[list[int]] = []
    for k in range(len(home) - 1, -1, -1):
        n = home[k]
        first, x = divmod(first, n) if k else (0, first)
        row = [(step + (n - 1) // 2) % n - (n - 1) // 2 if k else step for step in steps]  # the nearest to 0
        steps = [(step - by) // n for step, by in zip(steps, row, strict=True)]
        ends = [by * (count - 1) for by, (count, _) in zip(row, levels, strict=True)]
        if x + sum([min(0, end) for end in ends]) < 0 or x + sum([max(0, end) for end in ends]) >= n:
            return None
        origin.append(x)
        rows.append(row)
    step = AffineMap(tuple(map(tuple, reversed(rows))), tuple(reversed(origin)), len(levels))
    return Piece(0, (), IndexMap((step,), len(levels))), tuple([count for count, _ in levels])


def indices_within(piece: Piece, shape: Sequence[int], region: Region) -> list[ReadAxis]:
    """Return the indices at which a skew piece reads within a region: a product, axis by axis of the view.

    Raises
    ------
    TooManyPieces
        If a coordinate's steps meet the region in no few setts.
    """
    axes: list[ReadAxis] = [([], 0, n) for n in shape]
    for k, (b, terms) in enumerate(_coordinates(piece)):
        sett, span = region.setts[k], region.spans[k]
        low, high = span if span is not None else (region.start[k], region.start[k] + region.shape[k])
        if not terms and (b not in sett or not low <= b < high):
            return [([], 0, 0) for _ in shape]
        for j, c in terms:
            sets, lo, hi = axes[j]
            ends = -((b - low) // c), (high - 1 - b) // c
            if c < 0:
                ends = -((high - 1 - b) // -c), (low - b) // c
            axes[j] = ([*sets, sett.strided(b, c)] if span is None else sets, max(lo, ends[0]), min(hi, ends[1] + 1))
    for guard in piece.guards:
        sides = zip(guard.region.setts, guard.region.start, guard.region.shape, strict=True)
        for j, (sett, low, n) in enumerate(sides):
            sets, lo, hi = axes[j]
            axes[j] = ([*sets, DisjointSetts._of([sett.nest])], max(lo, low), min(hi, low + n))
    return axes


def _coordinates(piece: Piece) -> Iterator[tuple[int, tuple[tuple[int, int], ...]]]:
    (step,) = piece.map.steps
    assert isinstance(step, AffineMap), "a skew piece is one map"
    return zip(step.offset, step.terms(), strict=True)


def first_within(axes: Sequence[ReadAxis]) -> tuple[int, ...] | None:
    """Return the first index of a product, or None."""
    nonempty = all(lo < hi for _, lo, hi in axes)
    found = [first_common(*sets, start=lo, stop=hi) if sets else lo for sets, lo, hi in axes] if nonempty else [None]
    return None if None in found else tuple(found)  # type: ignore[arg-type]


def count_cells(piece: Piece, axes: Sequence[ReadAxis]) -> int:
    """Return how many cells a skew piece reads at a product of indices: along some axes none moves."""
    each = [count_common(*sets, start=lo, stop=max(lo, hi)) if sets else max(hi - lo, 0) for sets, lo, hi in axes]
    moved = {j for _, terms in _coordinates(piece) for j, _ in terms}
    return prod([n for j, n in enumerate(each) if j in moved]) if all(each) else 0


# ----------------------------------------------------------------------------------------------------- as arrays


def listed(pieces: Sequence[Piece], shape: Sequence[int], home: Sequence[int]) -> Int64Array:
    """Return the different row-major numbers of the cells that a view reads, ascending.

    Raises
    ------
    OverflowError
        If a number may exceed 64 bits.
    """
    note_help("listed")
    points = np.indices(shape, np.int64).reshape(len(shape), prod(shape)).T
    return np.unique(_read(pieces, points, home))


def sampled(pieces: Sequence[Piece], shape: Sequence[int], home: Sequence[int], many: int) -> Int64Array:
    """Return the row-major numbers of the cells that some indices of a view read, from all over it.

    Raises
    ------
    OverflowError
        If a number may exceed 64 bits.
    """
    size = prod(shape)
    if size > INT64_MAX:
        raise OverflowError(f"a view of shape {quote(shape)} has more indices than int64 can number")
    k = np.arange(size) if size <= many else np.array([k * STRIDE % size for k in range(many)], np.int64)
    return _read(pieces, points_of(k, shape), home)


def _read(pieces: Sequence[Piece], points: Int64Array, home: Sequence[int]) -> Int64Array:
    each = [_numbers(read_points(piece, points), home) for piece in pieces]
    return np.concatenate([np.empty(0, np.int64), *each])


def _numbers(cells: Int64Array, home: Sequence[int]) -> Int64Array:
    """The row-major numbers of cells of an allocation."""
    if len(home) == 1:
        return cells[:, 0]
    if prod(home) > INT64_MAX:
        raise OverflowError(f"an allocation of shape {quote(home)} has more cells than int64 can number")
    return cast(Int64Array, np.zeros(len(cells), np.int64) + number_of(cells.T, home))


def are_read(pieces: Sequence[Piece], shape: Sequence[int], home: Sequence[int], numbers: Int64Array) -> Bools | None:
    """Return which row-major numbers are those of cells that a view reads; None unless each piece has one inverse.

    Raises
    ------
    OverflowError
        If a number may exceed 64 bits.
    """
    if not all(map(has_one_inverse, pieces)):
        return None
    if prod(home) > INT64_MAX:
        raise OverflowError(f"an allocation of shape {quote(home)} has more cells than int64 can number")
    found = np.zeros(len(numbers), np.bool_)
    for piece in pieces:
        points = _inverted(piece.map.simplify(), points_of(numbers, home))  # as `has_one_inverse` has looked at it
        inside = ((points >= 0) & (points < np.array(shape, np.int64))).all(axis=1)
        found |= np.isin(numbers, _numbers(read_points(piece, points[inside]), home))
    return found


def _inverted(chain: IndexMap, points: Int64Array) -> Int64Array:
    """What `invert` finds of each of many cells; anything where it finds nothing."""
    for step in reversed(chain.steps):
        if isinstance(step, Relinearize):
            points = IndexMap((Relinearize(step.to_shape, step.from_shape),)).apply_array(points)
            continue
        if isinstance(step, Lookup):
            points = points.copy()
            points[:, step.axis] = step.find_each(points[:, step.axis])
            continue
        before = np.zeros((len(points), step.in_rank), np.int64)
        for row, b, y in zip(step.terms(), step.offset, points.T, strict=True):
            for j, c in row:
                before[:, j] = (y - b) // c
        points = before
    return points
