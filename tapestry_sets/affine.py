"""Affine maps, boxes and index projections: which cells an index box touches, exactly.

An index projection sends a point i to the box ``A·i + b + [0, shape)``. Each coordinate of its image is a
`Progression`, a sum of arithmetic steps, so images cost the same at every size; what is no small union of
products is an `ImplicitRegion`, decided by isl.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import prod
from typing import Any, TypeVar

import numpy as np

from tapestry_sets import draw, isl
from tapestry_sets.limits import TooHard, TooManyPieces
from tapestry_sets.progression import (
    COUNT_LIMIT,
    Grid,
    Progression,
    as_interval,
    axis_setts,
    clip_progression,
    combine,
    count_distinct,
    interval,
    progression,
    reach,
    split_progression,
)
from tapestry_sets.region import Region, Regions
from tapestry_sets.stripe import Int64Array, as_int

T = TypeVar("T")

LIST_LIMIT = 1 << 15
"""Images that are no small union of products are listed where the selection has at most so many blocks' cells."""


def as_ints(values: Iterable[object], what: str) -> tuple[int, ...]:
    """Return `values` as Python integers; the error names the position of what is none."""
    found = tuple(values)
    for v in found:
        if type(v) is not int:
            return tuple(as_int(v, f"{what}[{k}]") for k, v in enumerate(found))
    return found  # type: ignore[return-value]  # every one has been looked at


# ----------------------------------------------------------------------------------------------------- boxes


@dataclass(frozen=True, slots=True)
class Box:
    """The box start + [0, shape) of integer points.

    Parameters
    ----------
    start : sequence of int
        The first point; coordinates may be negative.
    shape : sequence of int
        Extents, >= 0.

    Raises
    ------
    TypeError
        If a value is not an integer.
    ValueError
        If the lengths differ or an extent is negative.

    Examples
    --------
    >>> box = Box((-1, 2), (3, 4))
    >>> box.stop, box.size, (1, 5) in box
    ((2, 6), 12, True)

    References
    ----------
    Tapestry, "Index Projection Functions": ZRange(start, shape).
    """

    start: tuple[int, ...]
    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        start, shape = as_ints(self.start, "Box: start"), as_ints(self.shape, "Box: shape")
        if len(start) != len(shape):
            raise ValueError(f"Box: start {start} has {len(start)} axes but shape {shape} has {len(shape)}")
        for axis, n in enumerate(shape):
            if n < 0:
                raise ValueError(f"Box: extent {n} of axis {axis} in shape {shape} must be >= 0")
        object.__setattr__(self, "start", start)
        object.__setattr__(self, "shape", shape)

    @classmethod
    def of(cls, shape: Sequence[int]) -> Box:
        """Return the box [0, shape)."""
        return cls((0,) * len(shape), tuple(shape))

    @classmethod
    def from_bounds(cls, start: Sequence[int], stop: Sequence[int]) -> Box:
        """Return the box [start, stop); an axis with stop < start is empty.

        Examples
        --------
        >>> Box.from_bounds((1,), (4,))
        Box(start=(1,), shape=(3,))
        """
        if len(start) != len(stop):
            raise ValueError(f"Box.from_bounds: start {start} and stop {stop} differ in rank")
        return cls(tuple(start), tuple(max(0, b - a) for a, b in zip(start, stop, strict=True)))

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def stop(self) -> tuple[int, ...]:
        """One past the last point on each axis."""
        return tuple(a + n for a, n in zip(self.start, self.shape, strict=True))

    @property
    def size(self) -> int:
        """Number of points."""
        return prod(self.shape)

    @property
    def is_empty(self) -> bool:
        """Whether some extent is 0."""
        return 0 in self.shape

    def __contains__(self, point: Sequence[int]) -> bool:
        _same_rank("Box: point", len(point), self.rank)
        return all(a <= x < a + n for x, a, n in zip(point, self.start, self.shape, strict=True))

    def contains(self, other: Box) -> bool:
        """Return whether every point of `other` lies in this box; an empty box is in every box."""
        _same_rank("Box.contains", other.rank, self.rank)
        return other.is_empty or all(
            a <= b and b + m <= a + n
            for a, n, b, m in zip(self.start, self.shape, other.start, other.shape, strict=True)
        )

    def intersect(self, other: Box) -> Box | None:
        """Return the common box, or None if no point is common.

        Examples
        --------
        >>> Box.of((4, 4)).intersect(Box((2, -1), (9, 3)))
        Box(start=(2, 0), shape=(2, 2))
        """
        _same_rank("Box.intersect", other.rank, self.rank)
        start = tuple(map(max, self.start, other.start))
        shape = tuple(map(lambda a, b, c: min(a, b) - c, self.stop, other.stop, start))
        return None if any(n <= 0 for n in shape) else Box(start, shape)

    def hull(self, other: Box) -> Box:
        """Return the smallest box around both; an empty box adds nothing."""
        _same_rank("Box.hull", other.rank, self.rank)
        if self.is_empty or other.is_empty:
            return other if self.is_empty else self
        return Box.from_bounds(tuple(map(min, self.start, other.start)), tuple(map(max, self.stop, other.stop)))

    def shift(self, offset: Sequence[int]) -> Box:
        """Return the box moved by `offset`."""
        _same_rank("Box.shift", len(offset), self.rank)
        return Box(tuple(a + d for a, d in zip(self.start, offset, strict=True)), self.shape)

    def to_region(self, within: Box | Sequence[int] | None = None) -> Region:
        """Return this box, clipped to `within`, as a region in the coordinates of the box `within`.

        Parameters
        ----------
        within : Box or shape, optional
            The tensor's box; this box itself by default.

        Examples
        --------
        >>> Box((1, 0), (2, 9)).to_region((4, 4)).size
        8
        """
        frame = as_box(within, self)
        cut = self.intersect(frame)
        if cut is None:
            return Region.from_bounds(frame.shape, frame.start, frame.start, frame.start)
        return Region.from_bounds(frame.shape, cut.start, cut.stop, frame.start)

    def points(self) -> Iterator[tuple[int, ...]]:
        """Iterate over the points in row-major order."""
        return product(*(range(a, a + n) for a, n in zip(self.start, self.shape, strict=True)))


def as_box(within: Box | Sequence[int] | None, default: Box) -> Box:
    """Return a Box from a box, a shape, or None (the default)."""
    if within is None:
        return default
    if isinstance(within, Box):
        return within
    if not isinstance(within, Iterable):
        raise TypeError(f"within: {within!r} is neither a Box nor a shape; give one extent for each axis")
    return Box.of(tuple(within))


def _same_rank(what: str, got: int, want: int) -> None:
    if got != want:
        raise ValueError(f"{what}: rank {got} where rank {want} is needed")


# ----------------------------------------------------------------------------------------------- affine maps


@dataclass(frozen=True, slots=True)
class AffineMap:
    """The integer map x -> matrix·x + offset.

    Parameters
    ----------
    matrix : tuple of tuple of int
        One row for each output coordinate, one column for each input axis.
    offset : tuple of int
        One value for each output coordinate.
    in_rank : int, optional
        Number of input axes. Needed only when there are no rows; without it such a map takes points of
        any rank.

    Raises
    ------
    TypeError
        If a value is not an integer.
    ValueError
        If rows differ in length or do not match `offset` or `in_rank`.

    Examples
    --------
    >>> m = AffineMap(((2, 0), (0, -1)), (1, 5))
    >>> m.apply((3, 1))
    (7, 4)
    >>> m.then(AffineMap.permutation((1, 0))).apply((3, 1))
    (4, 7)

    References
    ----------
    MLIR's AffineMap, restricted to linear forms.
    """

    matrix: tuple[tuple[int, ...], ...]
    offset: tuple[int, ...]
    in_rank: int = -1

    def __post_init__(self) -> None:
        rows = tuple(as_ints(row, f"AffineMap: matrix[{r}]") for r, row in enumerate(self.matrix))
        offset = as_ints(self.offset, "AffineMap: offset")
        if len(rows) != len(offset):
            raise ValueError(f"AffineMap: {len(rows)} rows but {len(offset)} offsets; give one for each coordinate")
        rank = self.in_rank if self.in_rank >= 0 or not rows else len(rows[0])
        for r, row in enumerate(rows):
            if len(row) != rank:
                raise ValueError(f"AffineMap: row {r} {row} has {len(row)} columns where {rank} are needed")
        object.__setattr__(self, "matrix", rows)
        object.__setattr__(self, "offset", offset)
        object.__setattr__(self, "in_rank", rank)

    @classmethod
    def identity(cls, rank: int) -> AffineMap:
        """Return the map x -> x of the given rank."""
        return cls.permutation(range(rank))

    @classmethod
    def permutation(cls, axes: Sequence[int]) -> AffineMap:
        """Return the map whose output coordinate k is input axis axes[k].

        Examples
        --------
        >>> AffineMap.permutation((2, 0, 1)).apply((10, 20, 30))
        (30, 10, 20)
        """
        rank = len(axes)
        if sorted(axes) != list(range(rank)):
            raise ValueError(f"AffineMap.permutation: {tuple(axes)} is no order of the axes 0 to {rank - 1}")
        return cls.select(rank, [(a, 1) for a in axes])

    @classmethod
    def select(
        cls, in_rank: int, terms: Sequence[tuple[int, int] | None], offset: Sequence[int] | None = None
    ) -> AffineMap:
        """Return the map with at most one term in each coordinate: (axis, coefficient) or None.

        Examples
        --------
        >>> AffineMap.select(1, [(0, 2), None], [1, 7]).apply((3,))
        (7, 7)
        """
        zero = (0,) * in_rank
        rows = tuple(zero if t is None else (*zero[: t[0]], t[1], *zero[t[0] + 1 :]) for t in terms)
        return cls._of(rows, tuple(offset) if offset is not None else (0,) * len(rows), in_rank)

    @property
    def out_rank(self) -> int:
        """Number of output coordinates."""
        return len(self.offset)

    @classmethod
    def _of(cls, matrix: tuple[tuple[int, ...], ...], offset: tuple[int, ...], in_rank: int) -> AffineMap:
        """Wrap rows and offsets that are known to be plain integers of the right lengths."""
        made = object.__new__(cls)
        object.__setattr__(made, "matrix", matrix)
        object.__setattr__(made, "offset", offset)
        object.__setattr__(made, "in_rank", in_rank)
        return made

    @property
    def is_identity(self) -> bool:
        """Whether the map changes no point."""
        rank = len(self.offset)
        return (
            self.in_rank == rank
            and not any(self.offset)
            and all(row[k] == 1 and row.count(0) == rank - 1 for k, row in enumerate(self.matrix))
        )

    def apply(self, point: Sequence[int]) -> tuple[int, ...]:
        """Return matrix·point + offset, in exact integers."""
        if self.in_rank >= 0:
            _same_rank(f"AffineMap.apply: point {tuple(point)}", len(point), self.in_rank)
        return tuple(
            b + sum(c * x for c, x in zip(row, point, strict=True))
            for row, b in zip(self.matrix, self.offset, strict=True)
        )

    def then(self, other: AffineMap) -> AffineMap:
        """Return the map that applies this one first and `other` to its result."""
        if other.in_rank >= 0:
            _same_rank("AffineMap.then: the second map's input", self.out_rank, other.in_rank)
        columns = range(max(self.in_rank, 0))
        matrix = tuple(
            tuple(sum(c * self.matrix[k][j] for k, c in enumerate(row) if c) for j in columns) for row in other.matrix
        )
        return AffineMap._of(matrix, other.apply(self.offset), self.in_rank)

    def terms(self) -> tuple[tuple[tuple[int, int], ...], ...]:
        """Return for each coordinate its (axis, coefficient) pairs with coefficient other than 0."""
        return tuple(tuple((j, c) for j, c in enumerate(row) if c) for row in self.matrix)


# ----------------------------------------------------------------------------------------- from grids to sets


def grid_of(box: Box) -> Grid:
    """Return a box, which must not be empty, as a product of intervals."""
    return tuple(interval(a, a + n) for a, n in zip(box.start, box.shape, strict=True))


def grids_of(selection: Box | Region | Regions) -> list[Grid]:
    """Return a selection as products of progressions, disjoint and none of them empty."""
    if isinstance(selection, Box):
        return [] if selection.is_empty else [grid_of(selection)]
    return [grid for region in selection.regions for grid in _grids_of_region(region)]


def _grids_of_region(region: Region) -> Iterator[Grid]:
    if region.is_box:
        yield tuple(interval(*span) for span in region.spans if span is not None)
    else:
        yield from product(*([(run.first, run.levels) for run in runs] for runs in region.grids()))


def grid_hull(grids: Iterable[Grid]) -> Box | None:
    """Return the smallest box around all grids, or None if there is none."""
    hull: Box | None = None
    for grid in grids:
        box = Box(tuple(p[0] for p in grid), tuple(reach(p[1]) + 1 for p in grid))
        hull = box if hull is None else hull.hull(box)
    return hull


def regions_of(grids: Sequence[Grid], box: Box, apart: bool = False) -> Regions:
    """Return the union of the grids, clipped to `box`, as a disjoint union of regions in that box.

    Parameters
    ----------
    grids : sequence of Grid
    box : Box
    apart : bool
        Whether the grids are known to share no point.
    """
    if len(grids) == 1 and (one := _solid_region(grids[0], box)) is not None:
        return one
    members: list[list[Region]] = []
    for grid in dict.fromkeys(grids):
        axes = [axis_setts(p, a, n) for p, a, n in zip(grid, box.start, box.shape, strict=True)]
        members.append([Region(box.shape, setts, box.start) for setts in product(*axes)])
    members = [m for m in members if m]
    if apart or len(members) < 2:
        return Regions._of(box.shape, [region for m in members for region in m], box.start)
    result = Regions(box.shape, members[0], box.start)
    for more in members[1:]:
        result = result | Regions(box.shape, more, box.start)
    return result


def _solid_region(grid: Grid, box: Box) -> Regions | None:
    """The union of one grid that is a box, the usual case; None if it is none."""
    spans = []
    for p, start, extent in zip(grid, box.start, box.shape, strict=True):
        solid = as_interval(p)
        if solid is None:
            return None
        low, high = max(solid[0], start), min(solid[1], start + extent)
        if low >= high:
            return Regions._of(box.shape, (), box.start)
        spans.append((low, high))
    return Regions._of(box.shape, (Region._spanning(box.shape, tuple(spans), box.start),), box.start)


# ------------------------------------------------------------------------------------------ implicit regions


@dataclass(frozen=True, slots=True)
class ImplicitRegion:
    """An exact set of points that is no small union of products, given by its constraints.

    It answers the same questions as `Regions`; isl decides each one when it is asked.

    Parameters
    ----------
    start, shape : tuple of int
        The box that holds the set.
    text : str
        The set in isl's notation.
    known_size : int, optional
        The number of points where it is known without counting.
    known_points : int64 array of shape (n, rank), optional
        The points in row-major order, where they are few and were listed.

    Examples
    --------
    >>> skew = IndexProjection(AffineMap(((1, 1), (1, -1)), (0, 0)), (1, 1))
    >>> image = skew.image(Box.of((100, 100)))
    >>> (3, 1) in image, (3, 2) in image, image.size
    (True, False, 10000)
    """

    start: tuple[int, ...]
    shape: tuple[int, ...]
    text: str
    known_size: int | None = field(default=None, compare=False, repr=False)
    known_points: Int64Array | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        return draw.summary(self)

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        return draw.mimebundle(self)

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def is_empty(self) -> bool:
        """Whether there is no point."""
        if self.known_points is not None:
            return not len(self.known_points)
        points = self.to_isl()
        return bool(self._ask("is_empty", points.is_empty))

    @property
    def size(self) -> int:
        """Number of points.

        Raises
        ------
        TooHard
            If the points would have to be counted one by one and may be more than `COUNT_LIMIT`.
        """
        if self.known_points is not None:
            return len(self.known_points)
        if self.known_size is not None:
            return self.known_size
        points = self.to_isl()
        count = self._ask("size", lambda: isl.count_points(points, COUNT_LIMIT), isl.COUNT_OPERATIONS)
        if count is None:
            raise TooHard(
                f"ImplicitRegion.size: counting needs a scan of up to {prod(self.shape)} points of the box "
                f"{self.start} + {self.shape}, more than {COUNT_LIMIT}; ask is_empty, isdisjoint or bounds instead"
            )
        return count

    def to_isl(self) -> Any:
        """Return the set as an islpy.Set."""
        return isl.read_set(self.text)

    def _ask(self, what: str, question: Callable[[], T], operations: int = isl.MAX_OPERATIONS) -> T:
        """What isl answers within its limit."""
        refusal = TooHard(
            f"ImplicitRegion.{what}: isl needs more than {operations} operations for a set in the box {self.start} + "
            f"{self.shape}; ask about the image of a smaller selection"
        )
        return isl.bounded(question, refusal, operations)

    def __contains__(self, point: Sequence[int]) -> bool:
        at = as_ints(point, "ImplicitRegion: point")
        _same_rank(f"ImplicitRegion: point {at}", len(at), self.rank)
        if self.known_points is not None:
            return bool((self.known_points == np.array(at, object)).all(axis=1).any())
        points = self.to_isl().intersect(isl.point_set(at))
        return not self._ask("__contains__", points.is_empty)

    def _held_by(self, other: ImplicitRegion | Region | Regions | Box) -> list[bool] | None:
        """Say for each point whether it is in `other`; None if the points are not listed."""
        if self.known_points is None:
            return None
        points = map(tuple, self.known_points.tolist())
        if not isinstance(other, ImplicitRegion):
            return [point in other for point in points]
        if other.known_points is None:
            return None
        theirs = set(map(tuple, other.known_points.tolist()))
        return [point in theirs for point in points]

    def __and__(self, other: ImplicitRegion | Region | Regions | Box) -> ImplicitRegion:
        text = str(self.to_isl().intersect(_isl_of(other)))
        held = self._held_by(other)
        points = None if held is None or self.known_points is None else self.known_points[np.array(held, bool)]
        return ImplicitRegion(self.start, self.shape, text, known_points=points)

    def __le__(self, other: ImplicitRegion | Region | Regions | Box) -> bool:
        held = self._held_by(other)
        if held is not None:
            return all(held)
        mine, theirs = self.to_isl(), _isl_of(other)
        return bool(self._ask("__le__", lambda: mine.is_subset(theirs)))

    def isdisjoint(self, other: ImplicitRegion | Region | Regions | Box) -> bool:
        """Return whether no point is common."""
        held = self._held_by(other)
        if held is not None:
            return not any(held)
        mine, theirs = self.to_isl(), _isl_of(other)
        return bool(self._ask("isdisjoint", lambda: mine.is_disjoint(theirs)))

    def same_points(self, other: ImplicitRegion | Region | Regions | Box) -> bool:
        """Return whether both hold the same points."""
        held = self._held_by(other)
        if held is not None:
            return all(held) and len(held) == other.size
        mine, theirs = self.to_isl(), _isl_of(other)
        return bool(self._ask("same_points", lambda: mine.is_equal(theirs)))

    def points(self) -> Int64Array:
        """Return the points in row-major order, int64 of shape (size, rank)."""
        if self.known_points is not None:
            return self.known_points.copy()
        self.size  # noqa: B018  refuses what is too large to list
        points = self.to_isl()
        listed = self._ask("points", lambda: isl.list_points(points), isl.LIST_OPERATIONS)
        return np.array(listed, np.int64).reshape(-1, self.rank)

    def bounds(self) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
        """Return the tight bounds (low, one past high), or None if the set is empty."""
        if self.known_points is not None:
            return _bounds_of_points(self.known_points)
        points = self.to_isl()
        return self._ask("bounds", lambda: isl.bounds_of(points))


def _bounds_of_points(points: Int64Array) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    if not len(points):
        return None
    return tuple(points.min(axis=0).tolist()), tuple((points.max(axis=0) + 1).tolist())


def _isl_of(x: ImplicitRegion | Region | Regions | Box) -> Any:
    if isinstance(x, ImplicitRegion):
        return x.to_isl()
    return isl.box_set(x.start, x.stop) if isinstance(x, Box) else isl.to_isl(x)


# ---------------------------------------------------------------------------------------- index projections


@dataclass(frozen=True, slots=True)
class IndexProjection:
    """The block that each point of an index space touches: P(i) = box(start: A·i + b, shape).

    Parameters
    ----------
    map : AffineMap
        From index points to the block's start. Its columns are the index axes and then, for each split,
        its quotient and its remainder.
    shape : tuple of int
        The block's extents, >= 1.
    splits : tuple of (axis, q)
        Derived index coordinates i[axis] // q and i[axis] % q, two columns each.

    Raises
    ------
    ValueError
        If ranks differ, an extent is below 1, or a split names no axis or a divisor below 1.

    Examples
    --------
    Rows h of a convolution, 3 kernel rows, stride 2, padding 1:

    >>> rows = IndexProjection(AffineMap(((2,),), (-1,)), (3,))
    >>> rows((1,))
    Box(start=(1,), shape=(3,))
    >>> rows.bounding_box(Box((0,), (4,)))
    Box(start=(-1,), shape=(9,))
    >>> rows.shared(Box((0,), (2,)), Box((2,), (2,))).size
    1

    References
    ----------
    Tapestry, "Index Projection Functions".
    """

    map: AffineMap
    shape: tuple[int, ...]
    splits: tuple[tuple[int, int], ...] = ()
    index_rank: int = field(init=False, compare=False, repr=False)
    is_separable: bool = field(init=False, compare=False, repr=False)
    _rows: tuple[tuple[tuple[int, int], ...], ...] = field(init=False, compare=False, repr=False)
    _cuts: tuple[_Cut, ...] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        shape = as_ints(self.shape, "IndexProjection: shape")
        splits = tuple((as_int(a, "split axis"), as_int(q, "split divisor")) for a, q in self.splits)
        if len(shape) != self.map.out_rank:
            raise ValueError(
                f"IndexProjection: shape {shape} has {len(shape)} extents but the map has "
                f"{self.map.out_rank} coordinates"
            )
        for k, n in enumerate(shape):
            if n < 1:
                raise ValueError(f"IndexProjection: extent {n} of coordinate {k} in shape {shape} must be >= 1")
        rank = self.map.in_rank - 2 * len(splits) if self.map.in_rank >= 0 else -1
        for a, q in splits:
            if not 0 <= a < rank or q < 1:
                raise ValueError(f"IndexProjection: split ({a}, {q}) needs an axis in [0, {rank}) and a divisor >= 1")
        object.__setattr__(self, "shape", shape)
        object.__setattr__(self, "splits", splits)
        object.__setattr__(self, "index_rank", rank)
        rows, cuts, separable = _plan_columns(self.map.terms(), rank, splits)
        object.__setattr__(self, "_rows", rows)
        object.__setattr__(self, "_cuts", cuts)
        object.__setattr__(self, "is_separable", separable)

    @classmethod
    def from_exprs(cls, index: Sequence[Any], *, start: Sequence[Any], shape: Sequence[int]) -> IndexProjection:
        """Return the projection whose start is given by sympy expressions of the index symbols.

        ``floor(i/q)`` and ``Mod(i, q)`` of an index symbol and a positive integer are understood as splits.

        Parameters
        ----------
        index : sequence of sympy.Symbol
            The index axes, in order.
        start : sequence of sympy expression or int
            The block's start, one for each coordinate.
        shape : sequence of int
            The block's extents.

        Raises
        ------
        ValueError
            If an expression is not affine with integer coefficients; the message names it and says why.

        Examples
        --------
        >>> from sympy import symbols
        >>> i, n = symbols("i n", integer=True)
        >>> IndexProjection.from_exprs([i, n], start=[2 * i, n - 1], shape=[3, 1])((1, 1))
        Box(start=(2, 0), shape=(3, 1))
        """
        matrix, offset, splits = _read_exprs(list(index), list(start))
        return cls(AffineMap(matrix, offset, len(index) + 2 * len(splits)), tuple(shape), splits)

    # -- one point ------------------------------------------------------------------------------------

    def __call__(self, point: Sequence[int]) -> Box:
        """Return the block of one index point."""
        return Box(self.map.apply(self._columns_of_point(point)), self.shape)

    def _columns_of_point(self, point: Sequence[int]) -> tuple[int, ...]:
        at = as_ints(point, "IndexProjection: point")
        if self.index_rank >= 0:
            _same_rank(f"IndexProjection: point {at}", len(at), self.index_rank)
        return at + tuple(x for a, q in self.splits for x in divmod(at[a], q))

    def marginal(self, axis: int) -> tuple[int, ...]:
        """Return how the block's start moves with one step along an index axis.

        Raises
        ------
        ValueError
            If there is no such axis, or it is split (its step is not constant).

        Examples
        --------
        >>> IndexProjection(AffineMap(((2, 0), (0, 1)), (0, 0)), (3, 1)).marginal(0)
        (2, 0)
        """
        if not 0 <= axis < self.index_rank:
            raise ValueError(f"IndexProjection.marginal: axis {axis} is not in [0, {self.index_rank})")
        for k, (a, q) in enumerate(self.splits):
            used = any(row[self.index_rank + 2 * k + j] for row in self.map.matrix for j in (0, 1))
            if a == axis and used:
                raise ValueError(f"IndexProjection.marginal: axis {axis} is split by {q}, so its step varies")
        return tuple(row[axis] for row in self.map.matrix)

    # -- images ---------------------------------------------------------------------------------------

    def image(
        self, selection: Box | Region | Regions, within: Box | Sequence[int] | None = None
    ) -> Regions | ImplicitRegion:
        """Return every cell that the index points of `selection` touch.

        Parameters
        ----------
        selection : Box, Region or Regions
            Index points.
        within : Box or shape, optional
            The tensor's box; the image is clipped to it. By default the image's bounding box.

        Returns
        -------
        Regions
            Where no two output coordinates share an index axis that varies in `selection`.
        ImplicitRegion
            Otherwise: exact too, decided by isl.

        Examples
        --------
        >>> difference = IndexProjection(AffineMap(((1, -1),), (0,)), (1,))
        >>> difference.image(Box.of((4, 4))).bounds()
        ((-3,), (4,))
        """
        if within is not None:
            within = as_box(within, Box((), ()))
            _same_rank("IndexProjection.image: within", within.rank, self.map.out_rank)
        if isinstance(selection, Box) and self.is_separable and not self._cuts:
            out = [] if selection.is_empty else [self._project_box(selection)]
        else:
            grids = self._column_grids(selection)
            if not grids:
                nowhere = within or Box.of((0,) * self.map.out_rank)
                return Regions(nowhere.shape, (), nowhere.start)
            if not self.is_separable and self._entangled(grids):
                hull = grid_hull(map(self._project, grids))
                return self._implicit_image(selection, hull, within, self._injective_size(grids))
            out = [self._project(grid) for grid in grids]
        frame = grid_hull(out) if within is None else within
        if frame is None:
            return Regions((0,) * self.map.out_rank, ())
        try:
            return regions_of(out, frame)
        except TooManyPieces:
            return self._implicit_image(selection, grid_hull(out), frame, _product_size(out))

    def bounding_box(self, box: Box) -> Box:
        """Return the smallest box around the image of a box.

        Raises
        ------
        ValueError
            If `box` is empty: its image has no bounds.
        """
        if box.is_empty:
            raise ValueError(f"IndexProjection.bounding_box: {box} is empty, so its image has no bounds")
        if any(cut.is_extra for cut in self._cuts):
            return self._bounding_box_of_splits(box)
        grids = [self._project_box(box)] if not self._cuts else map(self._project, self._column_grids(box))
        hull = grid_hull(grids)
        assert hull is not None, "a box that is not empty has an image"
        return hull

    def _bounding_box_of_splits(self, box: Box) -> Box:
        """The bounding box where one axis is split twice: its parts are not independent, so isl or a list decides."""
        bounds = self.image(box).bounds()
        assert bounds is not None, "a box that is not empty has an image"
        return Box.from_bounds(*bounds)

    def shared(self, one: Box, other: Box, within: Box | Sequence[int] | None = None) -> Regions | ImplicitRegion:
        """Return the cells that both index boxes touch.

        Examples
        --------
        >>> window = IndexProjection(AffineMap(((1,),), (0,)), (3,))
        >>> window.shared(Box((0,), (4,)), Box((4,), (4,))).bounds()
        ((4,), (6,))
        """
        frame = as_box(within, self.bounding_box(one).hull(self.bounding_box(other)))
        a, b = self.image(one, frame), self.image(other, frame)
        if isinstance(a, Regions):
            return a & b if isinstance(b, Regions) else b & a
        return a & b

    def _column_grids(self, selection: Box | Region | Regions) -> list[Grid]:
        grids = grids_of(selection)
        if self.index_rank >= 0 and grids:
            _same_rank("IndexProjection: index selection", len(grids[0]), self.index_rank)
        for cut in self._cuts:
            grids = [grid + columns for grid in grids for columns in cut.columns(grid[cut.axis])]
        return grids

    def _project_box(self, box: Box) -> Grid:
        """The image of a box, which is not empty, by a projection without splits."""
        if self.index_rank >= 0:
            _same_rank("IndexProjection: index selection", box.rank, self.index_rank)
        return tuple(
            _along_box(b, terms, w, box) for b, terms, w in zip(self.map.offset, self._rows, self.shape, strict=True)
        )

    def _project(self, grid: Grid) -> Grid:
        return tuple(
            combine(b, [(c, grid[k]) for k, c in terms], w)
            for b, terms, w in zip(self.map.offset, self._rows, self.shape, strict=True)
        )

    def _entangled(self, grids: list[Grid]) -> bool:
        """Whether two coordinates depend on one column that varies."""
        if any(cut.is_extra for cut in self._cuts):
            return True
        for grid in grids:
            varying = [k for terms in self._rows for k, _ in terms if grid[k][1]]
            if len(varying) != len(set(varying)):
                return True
        return False

    def _implicit_image(
        self,
        selection: Box | Region | Regions,
        hull: Box | None,
        within: Box | None,
        size: int | None,
    ) -> ImplicitRegion:
        """The image by its constraints; `size` is that of the whole image, where known."""
        assert hull is not None, "an empty selection has an explicit image"
        frame = within or hull
        image = _isl_of(selection).apply(isl.to_isl(self)).intersect(isl.box_set(frame.start, frame.stop))
        points = self._listed_image(selection, hull, frame)
        return ImplicitRegion(frame.start, frame.shape, str(image), size if frame.contains(hull) else None, points)

    def _listed_image(self, selection: Box | Region | Regions, hull: Box, frame: Box) -> Int64Array | None:
        """The image's points in row-major order, None where they are too many to list or exceed 64 bits."""
        far = max(map(abs, (*hull.start, *hull.stop, *frame.start, *frame.stop)), default=0)
        if selection.size * prod(self.shape) > LIST_LIMIT or far * (1 + len(self.shape)) >= 2**62 or hull.size >= 2**62:
            return None
        starts = np.array([self(point).start for point in _points_of(selection)], np.int64)
        inner = np.indices(self.shape, np.int64).reshape(len(self.shape), prod(self.shape)).T
        cells = (starts[:, None, :] + inner).reshape(-1, len(self.shape))
        held = (cells >= frame.start).all(axis=1) & (cells < frame.stop).all(axis=1)
        numbers = np.zeros(len(cells), np.int64)
        for x, low, n in zip(cells.T, hull.start, hull.shape, strict=True):
            numbers = numbers * n + (x - low)
        _, first = np.unique(numbers[held], return_index=True)
        return cells[held][first]

    def _injective_size(self, grids: list[Grid]) -> int | None:
        """The image's size if every index point and every offset in the block gives a cell of its own."""
        if len(grids) != 1 or self._cuts:
            return None
        grid = grids[0]
        varying = sorted({k for terms in self._rows for k, _ in terms if grid[k][1]})
        wide = [k for k, n in enumerate(self.shape) if n > 1]
        columns = [[row[k] for row in self.map.matrix] for k in varying]
        columns += [[int(k == j) for j in range(self.map.out_rank)] for k in wide]
        if matrix_rank(columns) < len(columns):
            return None
        return prod(prod(n for n, _ in grid[k][1]) for k in varying) * prod(self.shape)

    # -- the other way, and chains --------------------------------------------------------------------

    def preimage(self, region: Box | Region | Regions, index: Box | Sequence[int]) -> Regions | ImplicitRegion:
        """Return the index points of the box `index` whose block meets `region`.

        Returns
        -------
        Regions
            Where each coordinate that restricts the index depends on one index axis only.
        ImplicitRegion
            Otherwise: exact too, decided by isl.

        Examples
        --------
        >>> rows = IndexProjection(AffineMap(((2,),), (-1,)), (3,))
        >>> rows.preimage(Box((4,), (2,)), (8,)).bounds()
        ((2,), (4,))
        """
        space = as_box(index, Box((), ()))
        if self.index_rank >= 0:
            _same_rank("IndexProjection.preimage: index box", space.rank, self.index_rank)
        if space.is_empty:
            return Regions(space.shape, (), space.start)
        result = Regions(space.shape, (), space.start)
        for target in grids_of(region):
            _same_rank("IndexProjection.preimage: region", len(target), self.map.out_rank)
            part = self._preimage_of_grid(target, space)
            if part is None:
                points = isl.to_isl(self).reverse()
                found = _isl_of(region).apply(points).intersect(isl.box_set(space.start, space.stop))
                return ImplicitRegion(space.start, space.shape, str(found))
            result = result | part
        return result

    def _preimage_of_grid(self, target: Grid, space: Box) -> Regions | None:
        """The index points whose block meets a grid, None where that is no product of the axes."""
        found = Regions(space.shape, (space.to_region(),), space.start)
        domain = grid_of(space)
        widths = {k: q for s, (_, q) in enumerate(self.splits) for k in (self.index_rank + 2 * s,)}
        for terms, b, w, goal in zip(self.map.terms(), self.map.offset, self.shape, target, strict=True):
            columns = [(self._domain_of(k, domain), c) for k, c in terms]
            whole = combine(b, [(c, p) for p, c in columns], w)
            solid = as_interval(goal)
            if solid is not None and solid[0] <= whole[0] and whole[0] + reach(whole[1]) < solid[1]:
                continue
            if whole[0] + reach(whole[1]) < goal[0] or goal[0] + reach(goal[1]) < whole[0]:
                return Regions(space.shape, (), space.start)
            varying = [(k, c, p) for (k, c), (p, _) in zip(terms, columns, strict=True) if p[1]]
            if len(varying) > 1:
                return None
            constant = b + sum(c * p[0] for p, c in columns if not p[1])
            if not varying:
                if not _meets(goal, interval(constant, constant + w)):
                    return Regions(space.shape, (), space.start)
                continue
            k, c, p = varying[0]
            values = [self._axis_values(k, v, domain, widths) for v in _solve(goal, c, constant, w, p)]
            axis = k if k < self.index_rank else self.splits[(k - self.index_rank) // 2][0]
            full = grid_of(space)
            found = found & regions_of([(*full[:axis], v, *full[axis + 1 :]) for v in values], space)
        return found

    def _domain_of(self, column: int, domain: Grid) -> Progression:
        """The values of one column over an index box (a hull of the remainders where they wrap)."""
        if column < self.index_rank:
            return domain[column]
        a, q = self.splits[(column - self.index_rank) // 2]
        start, stop = _bounds(domain[a])
        if (column - self.index_rank) % 2 == 0:
            return interval(start // q, (stop - 1) // q + 1)
        if start // q == (stop - 1) // q:
            return interval(start % q, (stop - 1) % q + 1)
        return interval(0, q)

    def _axis_values(self, column: int, values: Progression, domain: Grid, q_of: dict[int, int]) -> Progression:
        """The index values whose column takes one of `values`."""
        if column < self.index_rank:
            return values
        a, q = self.splits[(column - self.index_rank) // 2]
        start, stop = _bounds(domain[a])
        if column in q_of:
            return combine(0, [(q, values)], q)
        return combine(0, [(q, interval(start // q, (stop - 1) // q + 1)), (1, values)])

    def then(self, other: IndexProjection) -> IndexProjection:
        """Return the projection from an index point to all cells that `other` touches from its block.

        Raises
        ------
        ValueError
            If those cells are no box, or `other` has splits.

        Examples
        --------
        >>> window = IndexProjection(AffineMap(((1,),), (0,)), (3,))
        >>> window.then(window)
        IndexProjection(map=AffineMap(matrix=((1,),), offset=(0,), in_rank=1), shape=(5,), splits=())
        """
        if other.splits:
            raise ValueError(f"IndexProjection.then: the second projection has splits {other.splits}")
        block = other.image(Box((0,) * len(self.shape), self.shape))
        bounds = other.bounding_box(Box((0,) * len(self.shape), self.shape))
        if block.size != bounds.size:
            raise ValueError(
                f"IndexProjection.then: the image of a block of shape {self.shape} has {block.size} cells in a "
                f"bounding box of {bounds.size}; only boxes can be chained"
            )
        moved = AffineMap(other.map.matrix, bounds.start, other.map.in_rank)
        return IndexProjection(self.map.then(moved), bounds.shape, self.splits)


def _points_of(selection: Box | Region | Regions) -> Iterable[tuple[int, ...]]:
    return selection.points() if isinstance(selection, Box) else map(tuple, selection.points().tolist())


def _product_size(grids: list[Grid]) -> int | None:
    """The number of points of a single grid, None if unknown."""
    if len(grids) != 1:
        return None
    counts = [count_distinct(p) for p in grids[0]]
    return None if None in counts else prod(n for n in counts if n is not None)


def _along_box(offset: int, terms: tuple[tuple[int, int], ...], width: int, box: Box) -> Progression:
    """One coordinate of the image of a box: offset + Σ coefficient·[start, stop) + [0, width)."""
    levels = [(width, 1)]
    for k, c in terms:
        n = box.shape[k]
        offset += c * box.start[k]
        levels.append((n, c))
    if len(levels) == 1:
        return interval(offset, offset + width)
    if len(levels) == 2 and 0 < c <= width:  # one term, and neighbouring blocks touch
        return interval(offset, offset + (n - 1) * c + width)
    return progression(offset, levels)


@dataclass(frozen=True, slots=True)
class _Cut:
    """How a split axis becomes two columns: which of quotient and remainder are used."""

    axis: int
    q: int
    quotient: bool
    remainder: bool
    is_extra: bool = False

    def columns(self, p: Progression) -> list[Grid]:
        """Return the (quotient, remainder) products of an axis; an unused column is 0."""
        zero: Progression = (0, ())
        if not (self.quotient or self.remainder):
            return [(zero, zero)]
        pairs = split_progression(p, self.q)
        kept = [(k if self.quotient else zero, r if self.remainder else zero) for k, r in pairs]
        return list(dict.fromkeys(kept))


def _plan_columns(
    terms: tuple[tuple[tuple[int, int], ...], ...], rank: int, splits: tuple[tuple[int, int], ...]
) -> tuple[tuple[tuple[tuple[int, int], ...], ...], tuple[_Cut, ...], bool]:
    """Return rows over columns that are independent of each other, how to cut, and whether none is shared."""
    used = {k for row in terms for k, _ in row}
    cuts = []
    cut_axes: dict[int, tuple[int, int]] = {}
    for s, (axis, q) in enumerate(splits):
        k = rank + 2 * s
        active = k in used or k + 1 in used
        raw = active and axis in used
        cuts.append(_Cut(axis, q, k in used or raw, k + 1 in used or raw, active and axis in cut_axes))
        if active:
            cut_axes.setdefault(axis, (k, q))
    rows = []
    for row in terms:
        columns: dict[int, int] = {}
        for k, c in row:
            if k in cut_axes:  # i = q·(i // q) + i % q
                quotient, q = cut_axes[k]
                columns[quotient] = columns.get(quotient, 0) + c * q
                columns[quotient + 1] = columns.get(quotient + 1, 0) + c
            else:
                columns[k] = columns.get(k, 0) + c
        rows.append(tuple((k, c) for k, c in columns.items() if c))
    everywhere = [k for row in rows for k, _ in row]
    separable = len(everywhere) == len(set(everywhere)) and not any(cut.is_extra for cut in cuts)
    return tuple(rows), tuple(cuts), separable


def _bounds(p: Progression) -> tuple[int, int]:
    return p[0], p[0] + reach(p[1]) + 1


def _meets(p: Progression, q: Progression) -> bool:
    """Whether two progressions have a common element; one of them is an interval."""
    start, stop = _bounds(q)
    members = axis_setts(p, min(start, p[0]), max(stop, _bounds(p)[1]) - min(start, p[0]))
    return any(sett.count(start, stop) for sett in members)


def _solve(goal: Progression, c: int, b: int, width: int, domain: Progression) -> list[Progression]:
    """Return the x of an interval for which [c·x + b, c·x + b + width) meets `goal`."""
    low, high = _bounds(domain)
    solid = as_interval(goal)
    if solid is not None:
        # the block meets [start, stop) iff start - width < c·x + b < stop
        start, stop = solid[0] - width + 1 - b, solid[1] - b
        start, stop = (start, stop) if c > 0 else (1 - stop, 1 - start)
        first, last = max(low, -(-start // abs(c))), min(high, -(-stop // abs(c)))
        return [interval(first, last)] if first < last else []
    touching = combine(1 - width, [(1, goal)], width)  # the starts of blocks that meet the goal
    multiples = combine(-b if c > 0 else b, [(1 if c > 0 else -1, touching)])  # of |c|, where x is in them
    found = [x for x, rest in split_progression(multiples, abs(c)) if rest[0] == 0]
    return [part for x in found for part in clip_progression(x, low, high)]


def matrix_rank(vectors: list[list[int]]) -> int:
    """The rank of integer vectors, by elimination without fractions."""
    rows = [list(v) for v in vectors]
    rank = 0
    for column in range(len(rows[0]) if rows else 0):
        pivot = next((r for r in range(rank, len(rows)) if rows[r][column]), None)
        if pivot is None:
            continue
        rows[rank], rows[pivot] = rows[pivot], rows[rank]
        head = rows[rank]
        for r in range(rank + 1, len(rows)):
            f = rows[r][column]
            rows[r] = [x * head[column] - f * y for x, y in zip(rows[r], head, strict=True)]
        rank += 1
    return rank


# ---------------------------------------------------------------------------------------------------- sympy


def _read_exprs(
    index: list[Any], start: list[Any]
) -> tuple[tuple[tuple[int, ...], ...], tuple[int, ...], tuple[tuple[int, int], ...]]:
    """Return matrix, offset and splits of sympy expressions."""
    import sympy

    exprs = [sympy.sympify(e) for e in start]
    splits: list[tuple[int, int]] = []
    stand_ins: dict[Any, Any] = {}
    columns = list(index)
    for atom in sorted({a for e in exprs for a in e.atoms(sympy.floor, sympy.Mod)}, key=str):
        axis, q, kind = _read_split(sympy, atom, index)
        if (axis, q) not in splits:
            splits.append((axis, q))
            columns += [sympy.Dummy(), sympy.Dummy()]
        stand_ins[atom] = columns[len(index) + 2 * splits.index((axis, q)) + kind]
    read = [_read_affine(sympy, e, e.xreplace(stand_ins), columns) for e in exprs]
    return tuple(row for row, _ in read), tuple(b for _, b in read), tuple(splits)


def _read_split(sympy: Any, atom: Any, index: list[Any]) -> tuple[int, int, int]:
    """Return (axis, q, 0 for the quotient or 1 for the remainder) of floor(i/q) or Mod(i, q)."""
    if isinstance(atom, sympy.Mod):
        symbol, q = atom.args
        kind = 1
    else:
        ratio, symbol = atom.args[0].as_coeff_Mul()
        q = 1 / ratio
        kind = 0
    if symbol not in index or not q.is_Integer or q < 1:
        raise ValueError(
            f"IndexProjection.from_exprs: {atom} is not affine; only floor(i/q) and Mod(i, q) of an index symbol "
            "and a positive integer q can be used"
        )
    return index.index(symbol), int(q), kind


def _read_affine(sympy: Any, shown: Any, expr: Any, columns: list[Any]) -> tuple[tuple[int, ...], int]:
    """Return the coefficients and the constant of an affine expression."""
    expr = sympy.expand(expr)
    foreign = expr.free_symbols - set(columns)
    if foreign:
        names = ", ".join(sorted(map(str, foreign)))
        raise ValueError(f"IndexProjection.from_exprs: {shown} uses {names}, which is no index symbol")
    rest = expr
    row = []
    for symbol in columns:
        c = expr.coeff(symbol, 1)
        if not c.is_Integer:
            raise ValueError(
                f"IndexProjection.from_exprs: {shown} is not affine: the coefficient of {symbol} is {c}, "
                "which must be an integer"
            )
        row.append(int(c))
        rest -= c * symbol
    rest = sympy.expand(rest)
    if not rest.is_Integer:
        raise ValueError(f"IndexProjection.from_exprs: {shown} is not affine: {rest} is left, which must be an integer")
    return tuple(row), int(rest)
