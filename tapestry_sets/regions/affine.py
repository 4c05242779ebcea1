"""Boxes, affine maps, and the sets that images are made of: products of progressions, and implicit regions.

What is not a small union of products is an `ImplicitRegion`, decided by isl.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import product
from math import prod
from typing import Any, ClassVar, TypeVar

import numpy as np
from msgspec import Struct

from tapestry_sets.digits import MAX_SCAN, Grid, as_interval, interval, reach
from tapestry_sets.draw import Drawn
from tapestry_sets.integers import Int64Array, axis_setts
from tapestry_sets.limits import (
    Checked,
    TooHard,
    Value,
    as_int,
    as_ints,
    as_items,
    check_type,
    cut_text,
    freeze_array,
    put_fields,
    quote,
)
from tapestry_sets.regions import tuning
from tapestry_sets.regions.affine_words import map_bundle
from tapestry_sets.regions.points import Points
from tapestry_sets.regions.region import Region
from tapestry_sets.regions.regions import DisjointRegions, unite
from tapestry_sets.solvers import isl

T = TypeVar("T")


# ----------------------------------------------------------------------------------------------------- boxes


BOXES = "Box.of makes one of a shape"
"""What to do about something that should be a box."""


class Box(Struct, frozen=True, metaclass=Checked):
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
    >>> from tapestry_sets import Box
    >>> box = Box((-1, 2), (3, 4))
    >>> box.stop, box.size, (1, 5) in box
    ((2, 6), 12, True)

    References
    ----------
    Tapestry, "Index Projection Functions": ZRange(start, shape).
    """

    start: tuple[int, ...]
    shape: tuple[int, ...]
    _of: ClassVar[Callable[[tuple[int, ...], tuple[int, ...]], Box]]
    """Takes coordinates and extents that are known to be right."""

    @classmethod
    def _check(cls, start: Sequence[int], shape: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        first, extents = as_ints(start, "Box: start"), as_ints(shape, "Box: shape")
        if len(first) != len(extents):
            raise ValueError(
                f"Box: start {quote(first)} has {len(first)} axes but shape {quote(extents)} has {len(extents)}"
            )
        for axis, n in enumerate(extents):
            if n < 0:
                raise ValueError(f"Box: extent {n} of axis {axis} in shape {quote(extents)} must be >= 0")
        return first, extents

    @classmethod
    def of(cls, shape: Sequence[int]) -> Box:
        """Return the box [0, shape).

        Examples
        --------
        >>> from tapestry_sets import Box
        >>> Box.of((4, 6))
        Box(start=(0, 0), shape=(4, 6))
        """
        extents = as_ints(shape, "Box.of: shape")
        return cls((0,) * len(extents), extents)

    @classmethod
    def from_bounds(cls, start: Sequence[int], stop: Sequence[int]) -> Box:
        """Return the box [start, stop); an axis with stop < start is empty.

        Examples
        --------
        >>> from tapestry_sets import Box
        >>> Box.from_bounds((1,), (4,))
        Box(start=(1,), shape=(3,))
        """
        low, high = as_ints(start, "Box.from_bounds: start"), as_ints(stop, "Box.from_bounds: stop")
        if len(low) != len(high):
            raise ValueError(f"Box.from_bounds: start {quote(low)} and stop {quote(high)} differ in rank")
        return cls._of(low, tuple([max(0, b - a) for a, b in zip(low, high, strict=True)]))

    @property
    def rank(self) -> int:
        """Number of axes.

        Examples
        --------
        >>> from tapestry_sets import Box
        >>> Box.of((4, 6)).rank
        2
        """
        return len(self.shape)

    @property
    def stop(self) -> tuple[int, ...]:
        """One past the last point on each axis.

        Examples
        --------
        >>> from tapestry_sets import Box
        >>> Box((1, 2), (3, 4)).stop
        (4, 6)
        """
        return tuple(a + n for a, n in zip(self.start, self.shape, strict=True))

    @property
    def size(self) -> int:
        """Number of points.

        Examples
        --------
        >>> from tapestry_sets import Box
        >>> Box((1, 2), (3, 4)).size
        12
        """
        return prod(self.shape)

    @property
    def is_empty(self) -> bool:
        """Whether some extent is 0.

        Examples
        --------
        >>> from tapestry_sets import Box
        >>> Box((1, 2), (3, 0)).is_empty
        True
        """
        return 0 in self.shape

    def __contains__(self, point: Sequence[int]) -> bool:
        at = as_ints(point, "Box: point")
        same_rank("Box: point", len(at), self.rank)
        return all(a <= x < a + n for x, a, n in zip(at, self.start, self.shape, strict=True))

    def contains(self, other: Box) -> bool:
        """Return whether every point of `other` lies in this box; an empty box is in every box.

        Examples
        --------
        >>> from tapestry_sets import Box
        >>> Box.of((4, 6)).contains(Box((1, 2), (3, 4))), Box.of((4, 6)).contains(Box((1, 2), (3, 5)))
        (True, False)
        """
        same_rank("Box.contains", check_type(other, Box, "Box.contains: other", BOXES).rank, self.rank)
        return other.is_empty or all(
            a <= b and b + m <= a + n
            for a, n, b, m in zip(self.start, self.shape, other.start, other.shape, strict=True)
        )

    def intersect(self, other: Box) -> Box | None:
        """Return the common box, or None if no point is common.

        Examples
        --------
        >>> from tapestry_sets import Box
        >>> Box.of((4, 4)).intersect(Box((2, -1), (9, 3)))
        Box(start=(2, 0), shape=(2, 2))
        """
        same_rank("Box.intersect", check_type(other, Box, "Box.intersect: other", BOXES).rank, self.rank)
        start = tuple(map(max, self.start, other.start))
        shape = tuple(map(lambda a, b, c: min(a, b) - c, self.stop, other.stop, start))
        return None if any(n <= 0 for n in shape) else Box(start, shape)

    def hull(self, other: Box) -> Box:
        """Return the smallest box around both; an empty box adds nothing.

        Examples
        --------
        >>> from tapestry_sets import Box
        >>> Box((0, 0), (1, 1)).hull(Box((3, 5), (1, 1)))
        Box(start=(0, 0), shape=(4, 6))
        """
        same_rank("Box.hull", check_type(other, Box, "Box.hull: other", BOXES).rank, self.rank)
        if self.is_empty or other.is_empty:
            return other if self.is_empty else self
        return Box.from_bounds(tuple(map(min, self.start, other.start)), tuple(map(max, self.stop, other.stop)))

    def shift(self, offset: Sequence[int]) -> Box:
        """Return the box moved by `offset`.

        Examples
        --------
        >>> from tapestry_sets import Box
        >>> Box.of((4, 6)).shift((1, -1))
        Box(start=(1, -1), shape=(4, 6))
        """
        by = as_ints(offset, "Box.shift: offset")
        same_rank("Box.shift: offset", len(by), self.rank)
        return Box._of(tuple([a + d for a, d in zip(self.start, by, strict=True)]), self.shape)

    def to_region(self, within: Box | Sequence[int] | None = None) -> Region:
        """Return this box, clipped to `within`, as a region in the coordinates of the box `within`.

        Parameters
        ----------
        within : Box or shape, optional
            The tensor's box; this box itself by default.

        Examples
        --------
        >>> from tapestry_sets import Box
        >>> Box((1, 0), (2, 9)).to_region((4, 4)).size
        8
        """
        frame = as_box(within, self)
        cut = self.intersect(frame)
        if cut is None:
            return Region.from_bounds(frame.shape, frame.start, frame.start, frame.start)
        return Region.from_bounds(frame.shape, cut.start, cut.stop, frame.start)

    def points(self) -> Iterator[tuple[int, ...]]:
        """Iterate over the points in row-major order.

        Examples
        --------
        >>> from tapestry_sets import Box
        >>> list(Box((1, 2), (2, 2)).points())
        [(1, 2), (1, 3), (2, 2), (2, 3)]
        """
        return product(*(range(a, a + n) for a, n in zip(self.start, self.shape, strict=True)))


def as_box(within: Box | Sequence[int] | None, default: Box, what: str = "within") -> Box:
    """Return a Box from a box, a shape, or None (the default)."""
    if within is None:
        return default
    if isinstance(within, Box):
        return within
    if not isinstance(within, Iterable):
        raise TypeError(f"{what}: {quote(within)} is neither a Box nor a shape; give one extent for each axis")
    extents = as_ints(within, f"{what}, a Box or a shape,")
    return Box((0,) * len(extents), extents)


def same_rank(what: str, got: int, want: int, *value: object) -> None:
    """Raise ValueError where two ranks differ; the message shows the value of one of them, if it is given."""
    if got != want:
        shown = "".join(f" {quote(one)}" for one in value)
        raise ValueError(f"{what}{shown}: rank {got} where rank {want} is needed")


# ----------------------------------------------------------------------------------------------- affine maps


class AffineMap(Struct, frozen=True, metaclass=Checked):
    """The integer map x -> matrix·x + offset.

    Parameters
    ----------
    matrix : tuple of tuple of int
        One row for each output coordinate, one column for each input axis.
    offset : tuple of int
        One value for each output coordinate.
    in_rank : int, optional
        Number of input axes. Needed only for a map without rows, which takes points of any rank where it is not given.

    Raises
    ------
    TypeError
        If a value is not an integer.
    ValueError
        If rows differ in length or do not match `offset` or `in_rank`.

    Examples
    --------
    >>> from tapestry_sets import AffineMap
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
    _of: ClassVar[Callable[[tuple[tuple[int, ...], ...], tuple[int, ...], int], AffineMap]]
    """Takes rows and offsets that are known to be plain integers of the right lengths."""

    def __repr__(self) -> str:
        if self.in_rank < 0:
            return "AffineMap(matrix=(), offset=())"
        return cut_text(super().__repr__())

    @classmethod
    def _check(
        cls, matrix: Iterable[Sequence[int]], offset: Sequence[int], in_rank: int = -1
    ) -> tuple[tuple[tuple[int, ...], ...], tuple[int, ...], int]:
        rows = tuple(
            [
                as_ints(row, f"AffineMap: matrix[{r}]")
                for r, row in enumerate(as_items(matrix, "AffineMap: matrix", "sequence of rows"))
            ]
        )
        start = as_ints(offset, "AffineMap: offset")
        if len(rows) != len(start):
            raise ValueError(f"AffineMap: {len(rows)} rows but {len(start)} offsets; give one for each coordinate")
        columns = as_int(in_rank, "AffineMap: in_rank")
        rank = columns if columns >= 0 or not rows else len(rows[0])
        for r, row in enumerate(rows):
            if len(row) != rank:
                raise ValueError(
                    f"AffineMap: row {r} {quote(row)} has {len(row)} columns where {rank} are needed"
                    f"{' by in_rank' * (columns >= 0)}"
                )
        return rows, start, rank

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        return map_bundle(self)

    @classmethod
    def identity(cls, rank: int) -> AffineMap:
        """Return the map x -> x of the given rank.

        Examples
        --------
        >>> from tapestry_sets import AffineMap
        >>> AffineMap.identity(2).apply((3, 1))
        (3, 1)
        """
        return cls.permutation(range(_checked_rank(rank, "AffineMap.identity: rank")))

    @classmethod
    def permutation(cls, axes: Sequence[int]) -> AffineMap:
        """Return the map whose output coordinate k is input axis axes[k].

        Examples
        --------
        >>> from tapestry_sets import AffineMap
        >>> AffineMap.permutation((2, 0, 1)).apply((10, 20, 30))
        (30, 10, 20)
        """
        order = as_ints(axes, "AffineMap.permutation: axes")
        rank = len(order)
        if sorted(order) != list(range(rank)):
            raise ValueError(f"AffineMap.permutation: axes {quote(order)} is not an order of the axes 0 to {rank - 1}")
        return cls.select(rank, [(a, 1) for a in order])

    @classmethod
    def select(
        cls, in_rank: int, terms: Sequence[tuple[int, int] | None], offset: Sequence[int] | None = None
    ) -> AffineMap:
        """Return the map with at most one term in each coordinate: (axis, coefficient) or None.

        Examples
        --------
        >>> from tapestry_sets import AffineMap
        >>> AffineMap.select(1, [(0, 2), None], [1, 7]).apply((3,))
        (7, 7)
        """
        rank = _checked_rank(in_rank, "AffineMap.select: in_rank")
        zero, rows = (0,) * rank, []
        for k, term in enumerate(as_items(terms, "AffineMap.select: terms", "sequence of (axis, coefficient) or None")):
            if term is None:
                rows.append(zero)
                continue
            what = f"AffineMap.select: terms[{k}]"
            pair = as_ints(term, what)
            if len(pair) != 2 or not 0 <= pair[0] < rank:
                raise ValueError(f"{what} must be None or (axis, coefficient), axis in [0, {rank}), not {quote(pair)}")
            rows.append((*zero[: pair[0]], pair[1], *zero[pair[0] + 1 :]))
        start = (0,) * len(rows) if offset is None else as_ints(offset, "AffineMap.select: offset")
        if len(start) != len(rows):
            raise ValueError(
                f"AffineMap.select: {len(rows)} terms, but offset has {len(start)} values; give one for each"
            )
        return cls._of(tuple(rows), start, rank)

    @property
    def out_rank(self) -> int:
        """Number of output coordinates.

        Examples
        --------
        >>> from tapestry_sets import AffineMap
        >>> AffineMap(((2, 1),), (0,)).out_rank
        1
        """
        return len(self.offset)

    @property
    def is_identity(self) -> bool:
        """Whether the map changes no point.

        Examples
        --------
        >>> from tapestry_sets import AffineMap
        >>> AffineMap.identity(2).is_identity, AffineMap(((1, 0), (0, 1)), (0, 5)).is_identity
        (True, False)
        """
        rank = len(self.offset)
        return (
            self.in_rank == rank
            and not any(self.offset)
            and all(row[k] == 1 and row.count(0) == rank - 1 for k, row in enumerate(self.matrix))
        )

    def apply(self, point: Sequence[int]) -> tuple[int, ...]:
        """Return matrix·point + offset, in exact integers.

        Examples
        --------
        >>> from tapestry_sets import AffineMap
        >>> AffineMap(((2, 1), (0, -1)), (0, 5)).apply((3, 1))
        (7, 4)
        """
        at = as_ints(point, "AffineMap.apply: point")
        if self.in_rank >= 0:
            same_rank("AffineMap.apply: point", len(at), self.in_rank, at)
        return tuple(
            b + sum(c * x for c, x in zip(row, at, strict=True))
            for row, b in zip(self.matrix, self.offset, strict=True)
        )

    def then(self, other: AffineMap) -> AffineMap:
        """Return the map that applies this one first and `other` to its result.

        Examples
        --------
        >>> from tapestry_sets import AffineMap
        >>> twice, up = AffineMap(((2,),), (0,)), AffineMap(((1,),), (5,))
        >>> twice.then(up).apply((3,)), up.then(twice).apply((3,))
        ((11,), (16,))
        """
        if check_type(other, AffineMap, "AffineMap.then: other").in_rank >= 0:
            same_rank("AffineMap.then: the second map's input", self.out_rank, other.in_rank)
        columns = range(max(self.in_rank, 0))
        matrix = tuple(
            tuple(sum(c * self.matrix[k][j] for k, c in enumerate(row) if c) for j in columns) for row in other.matrix
        )
        return AffineMap._of(matrix, other.apply(self.offset), self.in_rank)

    def terms(self) -> tuple[tuple[tuple[int, int], ...], ...]:
        """Return for each coordinate its (axis, coefficient) pairs with coefficient other than 0.

        Examples
        --------
        >>> from tapestry_sets import AffineMap
        >>> AffineMap(((2, 0), (0, -1)), (0, 5)).terms()
        (((0, 2),), ((1, -1),))
        """
        return tuple(tuple((j, c) for j, c in enumerate(row) if c) for row in self.matrix)


def _checked_rank(rank: object, what: str) -> int:
    """A number of axes, of which a map has as many columns."""
    n = as_int(rank, what)
    if not 0 <= n <= tuning.MAX_RANK:
        raise ValueError(f"{what} must be in [0, {tuning.MAX_RANK}], not {quote(n)}")
    return n


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


# ----------------------------------------------------------------------------------------- from grids to sets


def grid_of(box: Box) -> Grid:
    """Return a box, which must not be empty, as a product of intervals."""
    return tuple(interval(a, a + n) for a, n in zip(box.start, box.shape, strict=True))


def grids_of(selection: Box | Region | DisjointRegions, what: str = "selection") -> list[Grid]:
    """Return a selection as products of progressions, disjoint and none of them empty."""
    if isinstance(selection, Box):
        return [] if selection.is_empty else [grid_of(selection)]
    check_type(selection, (Box, Region, DisjointRegions), what)
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


def regions_of(grids: Sequence[Grid], box: Box, apart: bool = False) -> DisjointRegions:
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
        members.append([Region._of(box.shape, [s.nest for s in setts], box.start) for setts in product(*axes)])
    members = [m for m in members if m]
    if apart or len(members) < 2:
        return DisjointRegions._of(box.shape, [region for m in members for region in m], box.start)
    return unite(box.shape, members, box.start)


def _solid_region(grid: Grid, box: Box) -> DisjointRegions | None:
    """The union of one grid that is a box, the usual case; None if it is not a box."""
    spans = []
    for p, start, extent in zip(grid, box.start, box.shape, strict=True):
        solid = as_interval(p)
        if solid is None:
            return None
        low, high = max(solid[0], start), min(solid[1], start + extent)
        if low >= high:
            return DisjointRegions._of(box.shape, (), box.start)
        spans.append((low, high))
    return DisjointRegions._of(box.shape, (Region._spanning(box.shape, tuple(spans), box.start),), box.start)


# ------------------------------------------------------------------------------------------ implicit regions


class ImplicitRegion(Value, Drawn):
    """An exact set of points that is not a small union of products, given by its constraints.

    It answers the same questions as `DisjointRegions`; isl decides each one when it is asked.

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
    >>> from tapestry_sets import AffineMap, Box
    >>> from tapestry_sets.regions import IndexProjection
    >>> skew = IndexProjection(AffineMap(((1, 1), (1, -1)), (0, 0)), (1, 1))
    >>> image = skew.image(Box.of((100, 100)))
    >>> (3, 1) in image, (3, 2) in image, image.size
    (True, False, 10000)
    """

    start: tuple[int, ...]
    shape: tuple[int, ...]
    text: str
    known_size: int | None
    known_points: Int64Array | None
    __match_args__ = ("start", "shape", "text")
    __slots__ = (*__match_args__, "known_points", "known_size")

    def __init__(
        self,
        start: tuple[int, ...],
        shape: tuple[int, ...],
        text: str,
        known_size: int | None = None,
        known_points: Int64Array | None = None,
    ) -> None:
        box = Box(start, shape)
        check_type(text, str, "ImplicitRegion: text", "write it in isl's notation")
        size = None if known_size is None else as_int(known_size, "ImplicitRegion: known_size")
        own = None if known_points is None else _own_points(known_points, box.rank)
        put_fields(self, start=box.start, shape=box.shape, text=text, known_size=size, known_points=own)

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def is_empty(self) -> bool:
        """Whether the set has no points."""
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
            If the points would have to be counted one by one and may be more than `MAX_SCAN`.
        """
        if self.known_points is not None:
            return len(self.known_points)
        if self.known_size is not None:
            return self.known_size
        points = self.to_isl()
        count = self._ask("size", lambda: isl.count_points(points, MAX_SCAN), isl.COUNT_OPERATIONS)
        if count is None:
            raise TooHard(
                f"ImplicitRegion.size: counting needs a scan of up to {prod(self.shape)} points of the box "
                f"{quote(self.start)} + {quote(self.shape)}, more than {MAX_SCAN}; ask is_empty, isdisjoint or bounds "
                "instead"
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
        same_rank("ImplicitRegion: point", len(at), self.rank, at)
        if self.known_points is not None:
            return bool((self.known_points == np.array(at, object)).all(axis=1).any())
        points = self.to_isl().intersect(isl.point_set(at))
        return not self._ask("__contains__", points.is_empty)

    def _held_by(self, what: str, other: ImplicitRegion | Region | DisjointRegions | Box) -> list[bool] | None:
        """Say for each point whether it is in `other`; None if the points are not listed."""
        if not isinstance(other, ImplicitRegion | Points | Box):
            raise TypeError(
                f"{what}: takes an ImplicitRegion, regions or a Box, not {type(other).__name__}: {quote(other)}"
            )
        same_rank(f"{what}: the other side is", other.rank, self.rank, other)
        if self.known_points is None:
            return None
        points = map(tuple, self.known_points.tolist())
        if not isinstance(other, ImplicitRegion):
            return [point in other for point in points]
        if other.known_points is None:
            return None
        theirs = set(map(tuple, other.known_points.tolist()))
        return [point in theirs for point in points]

    def _compare(self, what: str, verb: str, other: ImplicitRegion | Region | DisjointRegions | Box) -> bool:
        """Return what isl's verb says of both sets."""
        mine, theirs = self.to_isl(), isl_of(other)
        return bool(self._ask(what, lambda: getattr(mine, verb)(theirs)))

    def __and__(self, other: ImplicitRegion | Region | DisjointRegions | Box) -> ImplicitRegion:
        held = self._held_by("&", other)
        text = str(self.to_isl().intersect(isl_of(other)))
        points = None if held is None or self.known_points is None else self.known_points[np.array(held, bool)]
        return ImplicitRegion(self.start, self.shape, text, known_points=points)

    def __le__(self, other: ImplicitRegion | Region | DisjointRegions | Box) -> bool:
        held = self._held_by("<=", other)
        return all(held) if held is not None else self._compare("__le__", "is_subset", other)

    def isdisjoint(self, other: ImplicitRegion | Region | DisjointRegions | Box) -> bool:
        """Return whether no point is common."""
        held = self._held_by("isdisjoint", other)
        return not any(held) if held is not None else self._compare("isdisjoint", "is_disjoint", other)

    def same_points(self, other: ImplicitRegion | Region | DisjointRegions | Box) -> bool:
        """Return whether both hold the same points."""
        held = self._held_by("same_points", other)
        if held is not None:
            return all(held) and len(held) == other.size
        return self._compare("same_points", "is_equal", other)

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


def _own_points(points: Int64Array, rank: int) -> Int64Array:
    """A copy of points that are known, which nobody changes."""
    array = check_type(points, np.ndarray, "ImplicitRegion: known_points")
    if array.ndim != 2 or array.shape[1] != rank or array.dtype.kind not in "iuO":
        raise ValueError(
            f"ImplicitRegion: known_points must be integers of shape (points, {rank}), not {array.dtype} of shape "
            f"{array.shape}"
        )
    return freeze_array(array.copy())


def _bounds_of_points(points: Int64Array) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    if not len(points):
        return None
    return tuple(points.min(axis=0).tolist()), tuple((points.max(axis=0) + 1).tolist())


def isl_of(x: ImplicitRegion | Region | DisjointRegions | Box) -> Any:
    """Return a set as an islpy.Set."""
    if isinstance(x, ImplicitRegion):
        return x.to_isl()
    return isl.box_set(x.start, x.stop) if isinstance(x, Box) else isl.to_isl(x)
