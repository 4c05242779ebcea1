"""The normal form of views: pieces, each a chain of affine maps and row-major renumberings under guards.

Every view, whatever its kind, is a tuple of `Piece`. Where all guards of a piece hold, the view reads the piece's
source at ``map(point)``; the domains of a view's pieces partition it. What is computed here (images, domains,
composition, simplification, JSON) looks at pieces only and never at kinds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import islice, product
from math import prod
from operator import sub
from typing import Any, Protocol, TypeVar, overload

import numpy as np
import numpy.typing as npt

from tapestry_sets.digits import MAX_GRIDS, Grid, Progression, clip_progression, combine, split_progression
from tapestry_sets.integers import Int64Array, contains_each
from tapestry_sets.integers import nest as nests
from tapestry_sets.limits import Budget, TooManyPieces, check_pieces
from tapestry_sets.regions import (
    AffineMap,
    Box,
    DisjointRegions,
    IndexProjection,
    Region,
    as_box,
    as_ints,
    grid_hull,
    grid_of,
    grids_of,
    matrix_rank,
    regions_of,
)
from tapestry_sets.solvers import isl

T = TypeVar("T")
INT64_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Relinearize:
    """Row-major renumbering: the coordinates of the same cell after a reshape.

    The outermost extents bound nothing: guards and the view's own box do.

    Parameters
    ----------
    from_shape, to_shape : tuple of int
        Shapes of equal size.

    Raises
    ------
    ValueError
        If an extent is negative or the sizes differ.

    Examples
    --------
    >>> Relinearize((2, 6), (4, 3)).apply((1, 2))
    (2, 2)

    References
    ----------
    ONNX Reshape; Tapestry's document on nested striding: reshape always aliases.
    """

    from_shape: tuple[int, ...]
    to_shape: tuple[int, ...]

    def __post_init__(self) -> None:
        old, new = (
            as_ints(self.from_shape, "Relinearize: from_shape"),
            as_ints(self.to_shape, "Relinearize: to_shape"),
        )
        for what, shape in (("from_shape", old), ("to_shape", new)):
            if shape and min(shape) < 0:
                raise ValueError(f"Relinearize: {what} {shape} has a negative extent; extents are >= 0")
        if prod(old) != prod(new):
            raise ValueError(f"Relinearize: {old} has {prod(old)} elements and {new} has {prod(new)}; they must agree")
        object.__setattr__(self, "from_shape", old)
        object.__setattr__(self, "to_shape", new)

    @classmethod
    def _of(cls, from_shape: tuple[int, ...], to_shape: tuple[int, ...]) -> Relinearize:
        """Wrap shapes that are known to be plain integers >= 0 and of equal size."""
        made = object.__new__(cls)
        object.__setattr__(made, "from_shape", from_shape)
        object.__setattr__(made, "to_shape", to_shape)
        return made

    @property
    def in_rank(self) -> int:
        """Number of input axes."""
        return len(self.from_shape)

    @property
    def out_rank(self) -> int:
        """Number of output axes."""
        return len(self.to_shape)

    def apply(self, point: Sequence[int]) -> tuple[int, ...]:
        """Return the renumbered point, in exact integers."""
        flat = 0
        for n, x in zip(self.from_shape, point, strict=True):
            flat = flat * n + x
        out = []
        for n in self.to_shape[:0:-1]:
            flat, x = divmod(flat, n)
            out.append(x)
        return (*((flat,) if self.to_shape else ()), *reversed(out))


Step = AffineMap | Relinearize


@dataclass(frozen=True, slots=True)
class IndexMap:
    """A chain of affine maps and renumberings, applied first to last.

    Parameters
    ----------
    steps : tuple of AffineMap or Relinearize
        Each step takes what the one before gives.
    in_rank : int, optional
        Number of input axes; needed only when there are no steps.

    Raises
    ------
    ValueError
        If the ranks of neighboring steps do not match.

    Examples
    --------
    >>> m = IndexMap((AffineMap(((1, 0), (0, 2)), (0, 1)), Relinearize((4, 6), (24,))))
    >>> m.apply((1, 1))
    (9,)
    """

    steps: tuple[Step, ...] = ()
    in_rank: int = -1

    def __post_init__(self) -> None:
        steps = tuple(self.steps)
        rank = self.in_rank if self.in_rank >= 0 or not steps else steps[0].in_rank
        if rank < 0:
            raise ValueError("IndexMap: the number of input axes is unknown; give in_rank")
        at = rank
        for k, step in enumerate(steps):
            if step.in_rank != at:
                raise ValueError(f"IndexMap: step {k} takes rank {step.in_rank} where rank {at} arrives: {step}")
            at = step.out_rank
        object.__setattr__(self, "steps", steps)
        object.__setattr__(self, "in_rank", rank)

    @classmethod
    def _of(cls, steps: tuple[Step, ...], in_rank: int) -> IndexMap:
        """Wrap steps whose ranks are known to match."""
        made = object.__new__(cls)
        object.__setattr__(made, "steps", steps)
        object.__setattr__(made, "in_rank", in_rank)
        return made

    @property
    def out_rank(self) -> int:
        """Number of output axes."""
        return self.steps[-1].out_rank if self.steps else self.in_rank

    def apply(self, point: Sequence[int]) -> tuple[int, ...]:
        """Return the image of one point, in exact integers."""
        at = as_ints(point, "IndexMap.apply: point")
        if len(at) != self.in_rank:
            raise ValueError(f"IndexMap.apply: point {at} has rank {len(at)}; the map takes rank {self.in_rank}")
        for step in self.steps:
            at = step.apply(at)
        return at

    def apply_array(self, points: Int64Array) -> Int64Array:
        """Return the images of many points.

        Parameters
        ----------
        points : int64 array of shape (n, in_rank)

        Returns
        -------
        int64 array of shape (n, out_rank)

        Raises
        ------
        ValueError
            If the array's shape does not fit.
        OverflowError
            If a coordinate may not fit 64 bits; `apply` has no such bound.

        Examples
        --------
        >>> flip = IndexMap((AffineMap(((-1,),), (4,)),))
        >>> flip.apply_array(np.array([[0], [3]])).tolist()
        [[4], [1]]
        """
        x = np.asarray(points, np.int64)
        if x.ndim != 2 or x.shape[1] != self.in_rank:
            raise ValueError(f"IndexMap.apply_array: shape {x.shape} where (n, {self.in_rank}) is needed")
        for step in self.steps:
            x = _step_array(step, x)
        return x

    def then(self, other: IndexMap) -> IndexMap:
        """Return the chain of this map and then `other`."""
        if other.in_rank != self.out_rank:
            raise ValueError(f"IndexMap.then: rank {self.out_rank} arrives where rank {other.in_rank} is taken")
        return IndexMap._of(self.steps + other.steps, self.in_rank)

    def simplify(self) -> IndexMap:
        """Return the same map with neighboring steps of a kind merged and identities removed.

        Examples
        --------
        >>> there, back = Relinearize((6,), (2, 3)), Relinearize((2, 3), (6,))
        >>> IndexMap((there, back)).simplify()
        IndexMap(steps=(), in_rank=1)
        """
        steps: list[Step] = []
        for step in self.steps:
            merged = _merge(steps[-1], step) if steps else None
            if merged is not None:
                steps[-1] = merged
            else:
                steps.append(step)
            if _is_identity(steps[-1]):
                steps.pop()
        return IndexMap._of(tuple(steps), self.in_rank) if len(steps) < len(self.steps) else self

    def inverse(self) -> IndexMap:
        """Return the map that takes each image back to its point.

        Raises
        ------
        ValueError
            If a step has no inverse in integers: a matrix that is not square, or whose determinant is not 1 or -1.

        Examples
        --------
        >>> m = IndexMap((Relinearize((6,), (2, 3)), AffineMap(((0, -1), (1, 0)), (2, 0))))
        >>> m.inverse().apply(m.apply((4,)))
        (4,)

        References
        ----------
        poprithms, memory/chain: Chain::mirror.
        """
        return IndexMap._of(tuple([_inverse(step) for step in reversed(self.steps)]), self.out_rank)


def _merge(first: Step, second: Step) -> Step | None:
    """One step for two neighbors of a kind, else None."""
    if isinstance(first, AffineMap) and isinstance(second, AffineMap):
        return first.then(second)
    if isinstance(first, Relinearize) and isinstance(second, Relinearize) and first.to_shape == second.from_shape:
        return Relinearize._of(first.from_shape, second.to_shape)
    return None


def _is_identity(step: Step) -> bool:
    return step.is_identity if isinstance(step, AffineMap) else step.from_shape == step.to_shape


def _inverse(step: Step) -> Step:
    if isinstance(step, Relinearize):
        return Relinearize._of(step.to_shape, step.from_shape)
    rank = step.out_rank
    why = f"IndexMap.inverse: {step} has no inverse in integers"
    if step.in_rank != rank:
        raise ValueError(f"{why}: it takes rank {step.in_rank} to rank {rank}")
    rows = [[Fraction(c) for c in (*row, *[int(j == k) for j in range(rank)])] for k, row in enumerate(step.matrix)]
    for column in range(rank):
        pivot = next((k for k in range(column, rank) if rows[k][column]), None)
        if pivot is None:
            raise ValueError(f"{why}: several points have one image")
        rows[column], rows[pivot] = rows[pivot], rows[column]
        head = [c / rows[column][column] for c in rows[column]]
        rows = [
            head if k == column else [a - row[column] * b for a, b in zip(row, head, strict=True)]
            for k, row in enumerate(rows)
        ]
    back = [row[rank:] for row in rows]
    if any(c.denominator > 1 for row in back for c in row):
        raise ValueError(f"{why}: some points are no images")
    matrix = tuple([tuple([int(c) for c in row]) for row in back])
    offset = tuple([-sum([c * b for c, b in zip(row, step.offset, strict=True)]) for row in matrix])
    return AffineMap._of(matrix, offset, rank)


def _step_array(step: Step, x: Int64Array) -> Int64Array:
    return _apply_affine_array(step, x) if isinstance(step, AffineMap) else _relinearize_array(step, x)


def _apply_affine_array(step: AffineMap, x: Int64Array) -> Int64Array:
    top = int(np.abs(x).max()) if x.size else 0
    for row, b in zip(step.matrix, step.offset, strict=True):
        if abs(b) + sum(map(abs, row)) * top > INT64_MAX:
            raise OverflowError(f"IndexMap.apply_array: coordinates up to {top} times {row} plus {b} exceed int64")
    matrix = np.array(step.matrix, np.int64).reshape(step.out_rank, x.shape[1])
    result: Int64Array = x @ matrix.T + np.array(step.offset, np.int64)
    return result


def _relinearize_array(step: Relinearize, x: Int64Array) -> Int64Array:
    if prod(step.from_shape) > INT64_MAX:
        raise OverflowError(f"IndexMap.apply_array: {step.from_shape} has more elements than int64 can number")
    flat = np.zeros(len(x), np.int64)
    for axis, n in enumerate(step.from_shape):
        flat = flat * n + x[:, axis]
    out = np.empty((len(x), step.out_rank), np.int64)
    for axis in range(step.out_rank - 1, 0, -1):
        flat, out[:, axis] = np.divmod(flat, max(step.to_shape[axis], 1))
    if step.out_rank:
        out[:, 0] = flat
    return out


# ---------------------------------------------------------------------------------------------------- pieces


@dataclass(frozen=True, slots=True)
class Guard:
    """A condition on the coordinates after the first `prefix` steps of a piece's chain: they lie in `region`."""

    prefix: int
    region: Region


@dataclass(frozen=True, slots=True)
class Piece:
    """Where all guards hold, the view reads source number `source` at ``map(point)``.

    Parameters
    ----------
    source : int
        The position of the source among the view's sources; -1 for a constant.
    guards : tuple of Guard
        The domain, each condition in the coordinates where it is a product.
    map : IndexMap
        From the view's coordinates to the source's; to rank 0 for a constant.
    fill : float, optional
        The value of a constant, given exactly when `source` is -1.

    Raises
    ------
    ValueError
        If a guard names no step or has the wrong rank, or `fill` does not fit `source`.
    """

    source: int
    guards: tuple[Guard, ...]
    map: IndexMap
    fill: float | None = field(default=None)

    def __post_init__(self) -> None:
        if (self.source == -1) != (self.fill is not None) or self.source < -1:
            raise ValueError(
                f"Piece: source {self.source} with fill {self.fill!r}; a constant has source -1 and a fill"
            )
        for guard in self.guards:
            if not 0 <= guard.prefix <= len(self.map.steps):
                raise ValueError(f"Piece: guard prefix {guard.prefix} is not in [0, {len(self.map.steps)}]")
            rank = rank_at(self.map, guard.prefix)
            if guard.region.rank != rank:
                raise ValueError(f"Piece: guard {guard} has rank {guard.region.rank} where the chain has rank {rank}")


def rank_at(chain: IndexMap, prefix: int) -> int:
    """Return the number of coordinates after the first `prefix` steps."""
    return chain.steps[prefix - 1].out_rank if prefix else chain.in_rank


def identity_piece(rank: int, source: int = 0) -> Piece:
    """Return the piece that reads all of a source as it is."""
    return Piece(source, (), IndexMap((), rank))


class _HasPieces(Protocol):
    @property
    def pieces(self) -> Sequence[Piece]:
        """Some pieces."""


class PiecesOf(Sequence[Piece]):
    """The pieces of a view that read one source, composed when the first of them is asked for.

    Parameters
    ----------
    view : object with `pieces`
    source : int
    """

    __slots__ = ("_source", "_view")

    def __init__(self, view: _HasPieces, source: int) -> None:
        self._view = view
        self._source = source

    @overload
    def __getitem__(self, k: int) -> Piece: ...
    @overload
    def __getitem__(self, k: slice) -> tuple[Piece, ...]: ...
    def __getitem__(self, k: int | slice) -> Piece | tuple[Piece, ...]:
        return self._pieces()[k]

    def __len__(self) -> int:
        return len(self._pieces())

    def __iter__(self) -> Iterator[Piece]:
        return iter(self._pieces())

    def _pieces(self) -> tuple[Piece, ...]:
        return tuple([piece for piece in self._view.pieces if piece.source == self._source])


# ---------------------------------------------------------------------------------------------------- images


def piece_image(
    piece: Piece, box: Box | Region | DisjointRegions, within: Box | Sequence[int] | None = None
) -> DisjointRegions:
    """Return the source's cells that a view's cells in `box` read through one piece.

    Parameters
    ----------
    piece : Piece
    box : Box, Region or DisjointRegions
        Cells of the view; those outside the piece's domain read nothing here.
    within : Box or shape, optional
        The source's box; by default the image's bounding box.

    Returns
    -------
    DisjointRegions
        Exact, in the source's coordinates.

    Raises
    ------
    TooManyPieces
        If the image shatters into too many products.

    Examples
    --------
    >>> tail = Piece(0, (), IndexMap((AffineMap(((1,),), (5,)),)))
    >>> piece_image(tail, Box((0,), (3,)), (10,)).bounds()
    ((5,), (8,))
    """
    grids, apart = push(piece, grids_of(box))
    if within is not None:
        return regions_of(grids, as_box(within, Box((), ())), apart)
    hull = grid_hull(grids)
    return DisjointRegions((0,) * piece.map.out_rank, ()) if hull is None else regions_of(grids, hull, apart)


def read_points(piece: Piece, points: Int64Array) -> Int64Array:
    """Return the source's cells that a list of view cells read through one piece.

    Parameters
    ----------
    piece : Piece
    points : int64 array of shape (n, in_rank)
        Cells of the view; those outside the piece's domain read nothing here.

    Returns
    -------
    int64 array of shape (m, out_rank)

    Raises
    ------
    OverflowError
        If a coordinate may not fit 64 bits.

    Examples
    --------
    >>> guard = Guard(0, Region.from_slices((8,), (slice(0, 2),)))
    >>> head = Piece(0, (guard,), IndexMap((AffineMap(((3,),), (5,)),)))
    >>> read_points(head, np.array([[0], [1], [2]])).tolist()
    [[5], [8]]
    """
    for prefix in range(len(piece.map.steps) + 1):
        for guard in piece.guards:
            if guard.prefix == prefix:
                points = points[_inside(points, guard.region)]
        if prefix < len(piece.map.steps):
            points = _step_array(piece.map.steps[prefix], points)
    return points


def _inside(points: Int64Array, region: Region) -> npt.NDArray[np.bool_]:
    """Say for each point whether it is in a region."""
    keep = np.ones(len(points), bool)
    for x, sett, low, n in zip(points.T, region.setts, region.start, region.shape, strict=True):
        keep &= (x >= low) & (x < low + n) & contains_each(sett.nest, x)
    return keep


def stays_injective(piece: Piece, box: Box) -> bool:
    """Return whether a piece surely takes different view cells in `box` to different cells of its source.

    Examples
    --------
    >>> evens = Piece(0, (), IndexMap((AffineMap(((2,),), (0,)), Relinearize((6,), (2, 3)))))
    >>> stays_injective(evens, Box.of((3,)))
    True
    """
    for step in piece.map.steps:
        if isinstance(step, AffineMap) and not is_injective(step, [grid_of(box)]):
            return False
        box = _hull_after(step, box)
    return True


def push(piece: Piece, grids: list[Grid], stop: int | None = None) -> tuple[list[Grid], bool]:
    """Return what `piece` makes of disjoint grids of view cells after `stop` steps (default all).

    Returns
    -------
    grids : list of Grid
    apart : bool
        Whether they are known to share no point: false where a step may take two points to one.
    """
    end = len(piece.map.steps) if stop is None else stop
    apart = True
    for prefix in range(end + 1):
        for guard in piece.guards:
            if guard.prefix == prefix:
                grids = [g for grid in grids for g in restrict(grid, guard.region)]
        if prefix == end or not grids:
            continue
        step = piece.map.steps[prefix]
        if isinstance(step, AffineMap):
            apart = apart and is_injective(step, grids)
            grids = _few(g for grid in grids for g in affine_image(grid, step))
        else:
            grids = _few(g for grid in grids for g in renumbered(grid, step))
        if not apart:
            grids = list(dict.fromkeys(grids))
    return grids, apart


def _few(grids: Iterable[T]) -> list[T]:
    """The grids, unless they are too many: then no more of them are made."""
    found = list(islice(grids, MAX_GRIDS + 1))
    if len(found) > MAX_GRIDS:
        raise TooManyPieces(
            f"the image needs more than {MAX_GRIDS} products of progressions; ask overlaps(), which needs none of them"
        )
    return found


def is_injective(m: AffineMap, grids: Sequence[Grid]) -> bool:
    """Return whether a map surely takes different points of the grids to different places."""
    if len(grids) == 1:
        varying = [j for j, p in enumerate(grids[0]) if p[1]]
    else:
        one = grids[0]
        varying = [j for j in range(m.in_rank) if any(g[j][1] or g[j][0] != one[j][0] for g in grids)]
    columns = [[row[j] for row in m.matrix] for j in varying]
    return _is_selection(columns) or matrix_rank(columns) == len(columns)


def _is_selection(columns: list[list[int]]) -> bool:
    """Whether each column has one entry, each in a row of its own: the usual case, and surely independent."""
    rows = [k for column in columns for k, c in enumerate(column) if c]
    return len(rows) == len(columns) == len(set(rows)) and all(map(any, columns))


def renumbered(grid: Grid, step: Relinearize) -> list[Grid]:
    """Return a grid under a renumbering, as disjoint grids."""
    return unflatten_grid(flatten_grid(grid, step.from_shape), step.to_shape)


def restrict(grid: Grid, region: Region) -> list[Grid]:
    """Return the part of a grid inside a region, as disjoint grids."""
    if not region.is_box:
        hull = grid_hull([grid])
        assert hull is not None
        frame = hull.hull(Box(region.start, region.shape))
        return grids_of(regions_of([grid], frame) & regions_of(grids_of(region), frame))
    bounds = region.bounds()
    if bounds is None:
        return []
    axes = [clip_progression(p, a, b) for p, a, b in zip(grid, *bounds, strict=True)]
    return list(product(*axes))


def affine_image(grid: Grid, m: AffineMap) -> list[Grid]:
    """Return the image of a grid under an affine map.

    Raises
    ------
    TooManyPieces
        If coordinates share axes (a diagonal) whose values are too many to list.
    """
    terms = m.terms()
    varying = [j for row in terms for j, _ in row if grid[j][1]]
    if len(varying) == len(set(varying)):
        return [_along_rows(terms, m.offset, grid)]
    shared = sorted({j for j in varying if varying.count(j) > 1})
    points = prod(prod(n for n, _ in grid[j][1]) for j in shared)
    if points > MAX_GRIDS:
        raise TooManyPieces(
            f"the image under {m} has a product for each of {points} values of axes {shared}, more than {MAX_GRIDS}; "
            "ask overlaps(), which needs no explicit set"
        )
    images = []
    for values in product(*(_values(grid[j]) for j in shared)):
        fixed = dict(zip(shared, values, strict=True))
        axes = [(fixed[j], ()) if j in fixed else p for j, p in enumerate(grid)]
        images.append(_along_rows(terms, m.offset, axes))
    return images


def _along_rows(
    terms: Iterable[tuple[tuple[int, int], ...]], offset: tuple[int, ...], axes: Sequence[Progression]
) -> Grid:
    """The image of axes that no two coordinates share."""
    return tuple([combine(b, [(c, axes[j]) for j, c in row]) for row, b in zip(terms, offset, strict=True)])


def _values(p: Progression) -> list[int]:
    values = [p[0]]
    for n, step in p[1]:
        values = [v + j * step for v in values for j in range(n)]
    return values


def flatten_grid(grid: Grid, shape: Sequence[int]) -> Progression:
    """Return the row-major numbers of a grid's points."""
    weight = 1
    terms = []
    for p, n in zip(reversed(grid), reversed(shape), strict=True):
        terms.append((weight, p))
        weight *= n
    return combine(0, terms)


def flatten_affine(m: AffineMap, shape: Sequence[int]) -> tuple[int, tuple[tuple[int, int], ...]]:
    """Return the row-major number of m(x) in `shape` as offset + Σ coefficient·x[axis]: (offset, (axis, coefficient)s).

    Examples
    --------
    >>> flatten_affine(AffineMap(((1, 0), (0, 2)), (0, 1)), (4, 6))
    (1, ((0, 6), (1, 2)))
    """
    offset, weight = 0, 1
    total = [0] * max(m.in_rank, 0)
    for row, b, n in zip(reversed(m.matrix), reversed(m.offset), reversed(shape), strict=True):
        offset += weight * b
        for j, c in enumerate(row):
            if c:
                total[j] += weight * c
        weight *= n
    return offset, tuple([(j, c) for j, c in enumerate(total) if c])


def unflatten_grid(p: Progression, shape: Sequence[int]) -> list[Grid]:
    """Return the points with the given row-major numbers, as disjoint grids; the outermost extent is free."""
    if not shape:
        return [()]
    partial: list[tuple[Progression, Grid]] = [(p, ())]
    for n in shape[:0:-1]:
        partial = _few((high, (low, *done)) for rest, done in partial for high, low in split_progression(rest, n))
    return [(high, *done) for high, done in partial]


# --------------------------------------------------------------------------------------------------- domains


def piece_domain(piece: Piece, box: Box) -> DisjointRegions:
    """Return the view's cells in `box` that read through this piece, in the coordinates of `box`.

    Raises
    ------
    TooManyPieces
        If the domain shatters into too many products.

    Examples
    --------
    >>> guard = Guard(0, Region.from_slices((8,), (slice(0, 5),)))
    >>> head = Piece(0, (guard,), IndexMap((), 1))
    >>> piece_domain(head, Box((2,), (6,))).bounds()
    ((2,), (5,))
    """
    domain = DisjointRegions(box.shape, (box.to_region(),), box.start)
    if box.is_empty:
        return DisjointRegions(box.shape, (), box.start)
    for guard in piece.guards:
        boxes = bounding_boxes(piece.map, box, guard.prefix)
        inside = grids_of(guard.region)
        for k in range(guard.prefix - 1, -1, -1):
            inside = _pull(piece.map.steps[k], inside, boxes[k])
        domain = domain & regions_of(inside, box)
    return domain


def bounding_boxes(chain: IndexMap, box: Box, prefix: int) -> list[Box]:
    """Boxes around the coordinates before each of the first `prefix` steps."""
    boxes = [box]
    for step in chain.steps[:prefix]:
        boxes.append(_hull_after(step, boxes[-1]))
    return boxes


def _hull_after(step: Step, box: Box) -> Box:
    """A box around the image of a box, the tightest for affine maps."""
    if isinstance(step, AffineMap):
        return _affine_hull(step, box)
    if not step.to_shape:
        return _box((), ())
    first = reached = 0
    for low, extent, n in zip(box.start, box.shape, step.from_shape, strict=True):
        first, reached = first * n + low, reached * n + extent - 1
    start, shape, to = [], [], step.to_shape
    for k in range(1, len(to)):
        row = prod(to[k:])
        top, bottom = first // row, (first + reached) // row
        start.append(top)
        shape.append(bottom - top + 1)
        if top != bottom:
            return _box((*start, *(0,) * (len(to) - k)), (*shape, *to[k:]))
        first -= top * row
    return _box((*start, first), (*shape, reached + 1))


_new = object.__new__
_slots: Any = Box
_set_start, _set_shape = _slots.start.__set__, _slots.shape.__set__


def _box(start: tuple[int, ...], shape: tuple[int, ...]) -> Box:
    """The box of plain integers that are known to fit."""
    made = _new(Box)
    _set_start(made, start)
    _set_shape(made, shape)
    return made


def _affine_hull(step: AffineMap, box: Box) -> Box:
    start, shape = [], []
    for row, low in zip(step.matrix, step.offset, strict=True):
        reached = 0
        for c, a, n in zip(row, box.start, box.shape, strict=True):
            if c > 0:
                low += c * a
                reached += c * (n - 1)
            elif c:
                low += c * (a + n - 1)
                reached -= c * (n - 1)
        start.append(low)
        shape.append(reached + 1)
    return _box(tuple(start), tuple(shape))


def _pull(step: Step, inside: list[Grid], box: Box) -> list[Grid]:
    """The points of `box` that a step takes into the given disjoint grids."""
    if isinstance(step, Relinearize):
        numbers = [flatten_grid(grid, step.to_shape) for grid in inside]
        # a renumbering may hold more than arrives: the last round of a deal may be partial
        return [cut for p in numbers for grid in unflatten_grid(p, step.from_shape) for cut in _clipped(grid, box)]
    hull = grid_hull(inside)
    if hull is None:
        return []
    return _pull_affine(IndexProjection(step, (1,) * step.out_rank), regions_of(inside, hull), box)


def _clipped(grid: Grid, box: Box) -> Iterable[Grid]:
    """The part of a grid in a box, as disjoint grids."""
    return product(*[clip_progression(p, a, a + n) for p, a, n in zip(grid, box.start, box.shape, strict=True)])


def _pull_affine(projection: IndexProjection, inside: DisjointRegions, box: Box) -> list[Grid]:
    """As `_pull`, listing the values of a short axis where the points are no product."""
    found = projection.preimage(inside, box)
    if isinstance(found, DisjointRegions):
        return grids_of(found)
    used = {j for row in projection.map.terms() for j, _ in row}
    axis = min((j for j in used if box.shape[j] > 1), key=lambda j: box.shape[j])
    if box.shape[axis] > MAX_GRIDS:
        raise TooManyPieces(
            f"the domain under {projection.map} has a product for each of {box.shape[axis]} values of axis {axis}, "
            f"more than {MAX_GRIDS}"
        )
    grids = []
    for x in range(box.start[axis], box.stop[axis]):
        start = (*box.start[:axis], x, *box.start[axis + 1 :])
        shape = (*box.shape[:axis], 1, *box.shape[axis + 1 :])
        grids += _pull_affine(projection, inside, Box(start, shape))
    return grids


# ------------------------------------------------------------------------------- composition, simplification


def compose_pieces(
    outer: Iterable[Piece],
    inner: Mapping[int, Sequence[Piece]] | Sequence[Sequence[Piece]],
    shape: Sequence[int] | None = None,
    work: Budget | None = None,
) -> tuple[Piece, ...]:
    """Return the pieces of a view of views.

    Parameters
    ----------
    outer : iterable of Piece
        The outer view, reading the inner views.
    inner : mapping or sequence
        The pieces of each inner view by its number among the outer view's sources; their sources are kept.
    shape : sequence of int, optional
        The outer view's shape. With it, pieces that never apply and guards that always hold are dropped.
    work : Budget, optional
        What may still be done: a step or a guard of a composed piece is one try, as are four pieces looked at. Once
        it is overdrawn what is returned means nothing.

    Returns
    -------
    tuple of Piece
        Simplified.

    Raises
    ------
    ValueError
        If the outer view reads a source that `inner` lacks.
    TooManyPieces
        If more pieces are needed than `limits` allow.

    Examples
    --------
    >>> flip = Piece(0, (), IndexMap((AffineMap(((-1,),), (4,)),)))
    >>> compose_pieces([flip], [[flip]]) == (identity_piece(1),)
    True
    """
    table = inner if isinstance(inner, Mapping) else dict(enumerate(inner))
    outer = tuple(outer)
    if len(outer) == 1 and not outer[0].guards and len(table) == 1 and not (shape is not None and 0 in shape):
        below = table.get(outer[0].source, ())
        if len(below) == 1 and not below[0].guards:  # a plain chain
            chain = outer[0].map.then(below[0].map).simplify()
            return (Piece(below[0].source, (), chain, below[0].fill),)
    if shape is not None and 0 in shape:
        return ()
    box = None if shape is None else Box.of(tuple(shape))
    composed: list[Piece] = []
    for piece in outer:
        if piece.source >= 0 and piece.source not in table:
            raise ValueError(f"compose_pieces: the outer view reads source {piece.source}; given are {sorted(table)}")
        found = _under(piece, table[piece.source], box) if piece.source >= 0 else [piece]
        composed += found
        check_pieces(len(composed), "composition of views", "ask about a part of the view, or raise max_pieces")
        if work is not None:
            looked = len(table[piece.source]) // 4 if piece.source >= 0 else 0
            if not work.spend(looked + sum([len(p.guards) + len(p.map.steps) for p in found])):
                break
    if not any(piece.guards for piece in composed):
        box = None
    simple = (simplify_piece(piece, box) for piece in composed)
    return tuple(piece for piece in simple if piece is not None)


def _under(piece: Piece, inner: Sequence[Piece], box: Box | None) -> list[Piece]:
    """One outer piece over the pieces of the view that it reads, without those that it surely does not meet."""
    if len(inner) == 1 and not inner[0].map.steps and not inner[0].guards:  # the inner view is the source itself
        return [Piece(inner[0].source, piece.guards, piece.map, inner[0].fill)]
    hull = None
    if box is not None and len(inner) > 1:
        guards = [[g.region for g in piece.guards if g.prefix == k] for k in range(len(piece.map.steps) + 1)]
        hulls = _narrowed(piece.map.steps, [*guards, []], box)
        if hulls is None:
            return []
        hull = hulls[-1]
    depth = len(piece.map.steps)
    found = []
    for under in inner:
        if hull is not None and any(g.prefix == 0 and _meet(g.region, hull) is None for g in under.guards):
            continue
        together = piece.guards + tuple(Guard(depth + g.prefix, g.region) for g in under.guards)
        found.append(Piece(under.source, together, piece.map.then(under.map), under.fill))
    return found


def simplify_piece(piece: Piece, box: Box | None = None) -> Piece | None:
    """Return the piece with merged steps and no idle guards, or None if it reads nothing for cells in `box`.

    Guards move toward the front where they stay products, so that affine steps around them can merge.
    A piece may keep an empty domain that bounding boxes do not reveal; it then has no effect.

    Examples
    --------
    >>> shift = AffineMap(((1,),), (2,))
    >>> guard = Guard(1, Region.from_slices((8,), (slice(0, 5),)))
    >>> simple = simplify_piece(Piece(0, (guard,), IndexMap((shift, shift))), Box.of((4,)))
    >>> simple.map.steps, simple.guards[0].prefix, simple.guards[0].region.bounds()
    ((AffineMap(matrix=((1,),), offset=(4,), in_rank=1),), 0, ((0,), (3,)))
    """
    if box is not None and box.is_empty:
        return None
    if not piece.guards:
        simple = piece.map.simplify()
        return piece if simple is piece.map else Piece(piece.source, (), simple, piece.fill)
    steps = list(piece.map.steps)
    guards: list[list[Region]] = [[] for _ in range(len(steps) + 1)]
    for guard in piece.guards:
        guards[guard.prefix].append(guard.region)
    if box is not None and not _settle_guards(steps, guards, box):
        return None
    k = 0
    while k < len(steps):
        if _is_identity(steps[k]):
            del steps[k]
            guards[k : k + 2] = [guards[k] + guards[k + 1]]
            k = max(k - 1, 0)
            continue
        merged = _merge(steps[k], steps[k + 1]) if k + 1 < len(steps) and not guards[k + 1] else None
        if merged is None:
            k += 1
            continue
        steps[k : k + 2] = [merged]
        del guards[k + 1]
        k = max(k - 1, 0)
    kept = tuple(Guard(at, region) for at, regions in enumerate(guards) for region in regions)
    return Piece(piece.source, kept, IndexMap(tuple(steps), piece.map.in_rank), piece.fill)


def _settle_guards(steps: list[Step], guards: list[list[Region]], box: Box) -> bool:
    """Pull guards through affine steps, drop those that always hold; False if they can never hold together."""
    hulls = _narrowed(steps, guards, box)
    if hulls is None:
        return False
    for prefix in range(len(steps), 0, -1):
        step = steps[prefix - 1]
        if isinstance(step, AffineMap) and guards[prefix]:
            pulled = [_pull_guard(step, region, hulls[prefix - 1]) for region in guards[prefix]]
            guards[prefix - 1] += [region for region in pulled if region is not None]
            kept = zip(guards[prefix], pulled, strict=True)
            guards[prefix] = [region for region, before in kept if before is None]
    for prefix, regions in enumerate(guards):
        if len(regions) > 1:
            guards[prefix] = _boxes_as_one(regions)
    return _narrowed(steps, guards, box, drop=True) is not None


def _narrowed(steps: Sequence[Step], guards: list[list[Region]], box: Box, drop: bool = False) -> list[Box] | None:
    """Boxes around the coordinates before the guards at each prefix, narrowed by those before; None if one is empty.

    One list of guards more than prefixes gives the box after all of them. With `drop`, guards go that the narrowed
    box fulfils.
    """
    hulls, hull = [], box
    for prefix, regions in enumerate(guards):
        if 0 < prefix <= len(steps):
            hull = _hull_after(steps[prefix - 1], hull)
        hulls.append(hull)
        kept = []
        for region in regions:
            inside = _meet(region, hull)
            if inside is None:
                return None
            if not region.is_box or inside != hull:
                kept.append(region)
            hull = inside
        if drop:
            guards[prefix] = kept
    return hulls


def _meet(region: Region, hull: Box) -> Box | None:
    """A box around what a region and a box have in common, None if that is nothing."""
    bounds = region.bounds()
    if bounds is None:
        return None
    start = tuple(map(max, bounds[0], hull.start))
    stop = tuple(map(min, bounds[1], hull.stop))
    shape = tuple(map(sub, stop, start))
    if shape and min(shape) <= 0:
        return None
    if not region.is_box:
        found = [(nests.find(s, a), nests.rfind(s, b - 1)) for s, a, b in zip(region.nests, start, stop, strict=True)]
        if any(first is None or last is None or first > last for first, last in found):
            return None
    return _box(start, shape)


def _pull_guard(step: AffineMap, region: Region, before: Box) -> Region | None:
    """The guard before the affine step that leads to it, if it is one product there."""
    if not region.is_box or any(len(row) - row.count(0) > 1 for row in step.matrix):
        found = IndexProjection(step, (1,) * step.out_rank).preimage(region, before)
        return found.members[0] if isinstance(found, DisjointRegions) and len(found.members) == 1 else None
    bounds = region.bounds()
    assert bounds is not None, "an empty region meets nothing"
    low, stop = list(before.start), list(before.stop)
    for terms, b, first, end in zip(step.terms(), step.offset, *bounds, strict=True):
        for axis, c in terms:
            least, most = (first - b, end - 1 - b) if c > 0 else (b - end + 1, b - first)
            low[axis] = max(low[axis], -(-least // abs(c)))
            stop[axis] = min(stop[axis], most // abs(c) + 1)
        if not terms and not first <= b < end:
            return None
    if any(a >= b for a, b in zip(low, stop, strict=True)):
        return None
    return Region.from_bounds(before.shape, low, stop, before.start)


def _boxes_as_one(regions: list[Region]) -> list[Region]:
    """Regions at one place of a chain, of which the boxes are one where they have one box around them."""
    boxes = [region for region in regions if region.is_box]
    if len(boxes) < 2:
        return regions
    low, stop = zip(*[bounds for region in boxes if (bounds := region.bounds()) is not None], strict=True)
    start, end = tuple(map(max, *low)), tuple(map(min, *stop))
    if any(a >= b for a, b in zip(start, end, strict=True)):
        return regions
    one = Region.from_bounds(tuple(b - a for a, b in zip(start, end, strict=True)), start, end, start)
    return [one, *[region for region in regions if not region.is_box]]


# -------------------------------------------------------------------------------------------------------- isl


def image_to_isl(pieces: Iterable[Piece], box: Box) -> Any:
    """Return the cells that a view's cells in `box` read, as an islpy.Set; the pieces, one or more, share a source."""
    cells = isl.box_set(box.start, box.stop)
    parts = [cells.apply(isl.to_isl(piece)) for piece in pieces]
    total = parts[0]
    for part in parts[1:]:
        total = total.union(part)
    return total
