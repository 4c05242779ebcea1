"""Regions: products of setts in a box of integer points, and the points that two of them share.

A region lives in a box: the points ``start <= point < start + shape``. Coordinates are absolute. Two
regions can be combined only in the same box.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any, TypeVar, overload

import numpy as np

from tapestry_sets.digits import Ints
from tapestry_sets.integers import EMPTY, Int64Array, Nest, Sett, StridedRun, Stripe, explicit, pairs
from tapestry_sets.integers import nest as nests
from tapestry_sets.limits import (
    TooManyPieces,
    Value,
    as_ints,
    as_items,
    check_pieces,
    compile_constructor,
    cut_text,
    mend_calls,
    put_field,
    quote,
)
from tapestry_sets.regions import rowmajor, shapes, tuning
from tapestry_sets.regions.axis import (
    AxisForm,
    EvenSteps,
    Interval,
    common_progression,
    fill_axis,
    interval,
    meet_axis,
    nest_of_steps,
    normal,
    sample_axis,
)
from tapestry_sets.regions.near import Near, list_near, list_partners
from tapestry_sets.regions.points import Points

if TYPE_CHECKING:
    from tapestry_sets.regions.regions import DisjointRegions
    from tapestry_sets.regions.reshaped import Reshaped

T = TypeVar("T")


class Products(Points):
    """The verbs that regions and unions of regions share, written once over disjoint regions in one box."""

    __slots__ = ()

    @property
    def size(self) -> int:
        """How many points the set has.

        Examples
        --------
        >>> from tapestry_sets import Region, Stripe
        >>> Region((10**9, 10**9), [Stripe(1, 1), Stripe(1, 4)]).size
        100000000000000000
        """
        return sum(r._count() for r in self.regions)

    def _union(self, members: Iterable[Region]) -> DisjointRegions:
        """The union of disjoint regions of this box."""
        return self.forms.regions._of(self.shape, members, self.start)

    def _holds(self, point: Ints) -> bool:
        return any(r._has(point) for r in self.regions)

    def _numbered(self) -> Reshaped:
        return self.forms.reshaped._of(self.shape, rowmajor.terms_of(self._numbers(), prod(self.shape)))

    def _numbers(self) -> list[Nest]:
        return explicit.merge_nests(rowmajor.flat(r.nests, r.shape) for r in self.regions)

    def points(self) -> Int64Array:
        """Return the points in row-major order, as an int64 array of shape (size, rank).

        Examples
        --------
        >>> from tapestry_sets import Region
        >>> Region.from_slices((2, 4), (slice(None), slice(1, None, 2))).points().tolist()
        [[0, 1], [0, 3], [1, 1], [1, 3]]
        """
        if (many := self.size * self.rank) > tuning.MAX_ELEMENTS:
            raise TooManyPieces(
                f"points: {self.size} points of rank {self.rank} are {many} integers, more than an array should hold; "
                "size says how many, regions say which, or ask for a part of the box"
            )
        parts = [r._points() for r in self.regions]
        if len(parts) == 1:
            return parts[0]
        every = np.concatenate([np.empty((0, self.rank), np.int64), *parts])
        return every[np.lexsort(every.T[::-1])] if self.rank else every

    def bounds(self) -> tuple[Ints, Ints] | None:
        """Return the smallest box that holds all points, as (lo, hi) with hi exclusive; None without points.

        Examples
        --------
        >>> from tapestry_sets import Region
        >>> Region.from_slices((9, 9), (slice(1, 8, 3), slice(2, 5))).bounds()
        ((1, 2), (8, 5))
        """
        if not self.regions:
            return None
        each = [r._bounds() for r in self.regions]
        lo = tuple(min(b[0][axis] for b in each) for axis in range(self.rank))
        return lo, tuple(max(b[1][axis] for b in each) for axis in range(self.rank))

    def __and__(self, other: Region | DisjointRegions) -> DisjointRegions:
        if isinstance(other, Points) and other.is_numbered:
            return NotImplemented  # Reshaped.__rand__ answers
        self._same_box(other, "&")
        found: list[Region] = []
        for r, s in list_near(self.regions, other.regions):
            meet_regions(r, s, found)
            check_pieces(len(found), "intersection of regions")
        one = len(found) < 2 or (len(self.regions) == len(other.regions) == 1)
        return self._union(found if one else merge_members(found))

    def __sub__(self, other: Region | DisjointRegions) -> DisjointRegions:
        if isinstance(other, Points) and other.is_numbered:
            return NotImplemented  # Reshaped.__rsub__ answers
        self._same_box(other, "-")
        found = _subtract(self.regions, other.regions)
        few = len(found) < 2 or (len(self.regions) == len(other.regions) == 1 and found[0].is_box)
        # the parts of one box outside another differ on several axes, or lie on both sides of it
        return self._union(found if few else merge_members(found))

    def __or__(self, other: Region | DisjointRegions) -> DisjointRegions:
        if isinstance(other, Points) and other.is_numbered:
            return NotImplemented  # Reshaped.__ror__ answers
        self._same_box(other, "|")
        found = [*self.regions, *_subtract(other.regions, self.regions)]
        return self._union(merge_members(found))

    def __xor__(self, other: Region | DisjointRegions) -> DisjointRegions:
        if isinstance(other, Points) and other.is_numbered:
            return NotImplemented  # Reshaped.__rxor__ answers
        self._same_box(other, "^")
        found = _subtract(self.regions, other.regions) + _subtract(other.regions, self.regions)
        return self._union(merge_members(found))

    def __invert__(self) -> DisjointRegions:
        return Region.full(self.shape, self.start) - self._union(self.regions)

    def slice(self, slices: shapes.BoxKey) -> DisjointRegions:
        """Return the set as a NumPy view of the box sees it, in the view's own coordinates from zero.

        Parameters
        ----------
        slices : slice, int, Ellipsis or tuple of them
            As for `from_slices`; an int keeps its axis, with extent 1.

        Returns
        -------
        DisjointRegions
            In the box of the view's shape.

        Examples
        --------
        >>> from tapestry_sets import Region
        >>> Region.from_bounds((10,), (3,), (8,)).slice(slice(None, None, -2)).points().tolist()
        [[1], [2], [3]]
        """
        return self._seen_through(shapes.select_ranges(self.shape, slices))

    def _seen_through(self, ranges: tuple[range, ...]) -> DisjointRegions:
        """Return the set in the coordinates of the positions in `ranges`, counted from the box's start."""
        shape = tuple(map(shapes.length, ranges))
        members = self.regions if all(shape) else ()
        return self.forms.regions._of(shape, [t for r in members for t in r._seen(ranges, shape)], (0,) * len(shape))

    def sample(self, at: Region | DisjointRegions) -> DisjointRegions:
        """Return the set in the coordinates of the points of `at`: a slice by nested strides.

        Each axis of `at` is numbered from zero by its elements inside the box. So a slice is a sample at
        ``Region.from_slices``, up to the order of its elements.

        Parameters
        ----------
        at : Region or DisjointRegions
            A product: a region, or a union of one member.

        Returns
        -------
        DisjointRegions
            In the box of shape ``at.counts`` from zero.

        Raises
        ------
        ValueError
            If the boxes differ, or `at` is not a product.
        TooManyPieces
            If an axis needs more than 10,000 pieces.

        Examples
        --------
        >>> from tapestry_sets import Region, Stripe
        >>> block = Region.from_bounds((4, 7), (0, 1), (3, 5))
        >>> print(block)
        .1111..
        .1111..
        .1111..
        .......
        >>> print(block.sample(Region((4, 7), [Stripe(1, 1), Stripe(1, 1)])))
        .11.
        .11.

        References
        ----------
        poprithms, memory/nest/region.hpp, ``settSample``; `fill` is its inverse.
        """
        self._same_box(at, "sample")
        where = as_product(at, "sample: at")
        shape = where.counts
        found = [t for r in self.regions for t in _sampled(r, where, shape)]
        return self.forms.regions._of(
            shape, found if len(self.regions) < 2 else merge_members(found), (0,) * len(shape)
        )

    @overload
    def fill(self, ink: Region | DisjointRegions) -> DisjointRegions: ...
    @overload
    def fill(self, ink: Reshaped) -> Reshaped: ...
    def fill(self, ink: Region | DisjointRegions | Reshaped) -> DisjointRegions | Reshaped:
        """Return those points of a product whose ranks along the axes are in `ink`.

        Parameters
        ----------
        ink : Region, DisjointRegions or Reshaped
            In the box of shape ``self.counts`` from zero.

        Returns
        -------
        Regions or Reshaped
            In the box of this region; reshaped if `ink` is.

        Raises
        ------
        ValueError
            If `ink` is in another box, or this union is not a product.
        TooManyPieces
            If an axis needs more than 10,000 pieces.

        Examples
        --------
        >>> from tapestry_sets import Region, Sett, Stripe
        >>> scaffold = Region((3, 7), [Stripe(1, 1), Sett(Stripe(5, 2, phase=2), Stripe(2, 1))])
        >>> print(scaffold)
        ..11.11
        .......
        ..11.11
        >>> print(scaffold.fill(Region.from_slices((2, 4), (slice(None), slice(None, None, 2)))))
        ..1..1.
        .......
        ..1..1.

        References
        ----------
        poprithms, memory/nest/region.hpp, ``settFillWith``; `fill_into` has the roles exchanged.
        """
        where = as_product(self, "fill: the region")
        if not isinstance(ink, Points):
            raise TypeError(f"fill: ink must be a Region, DisjointRegions or Reshaped, not {type(ink).__name__}")
        if ink.shape != where.counts or any(ink.start):
            raise ValueError(
                f"fill: ink must be in the box of shape {quote(where.counts)} from zero, the region's elements along "
                f"each axis, not in {quote(ink.shape)} from {quote(ink.start)}"
            )
        if ink.is_numbered:
            return ink.fill_into(where)
        found = [t for r in ink.regions for t in _filled(where, r)]
        return self._union(found if len(ink.regions) < 2 else merge_members(found))

    def fill_into(self, scaffold: Region | DisjointRegions) -> DisjointRegions:
        """Return the points of `scaffold` whose ranks along the axes are in this set: ``scaffold.fill(self)``.

        Raises
        ------
        ValueError
            As `fill` does.

        Examples
        --------
        >>> from tapestry_sets import Region, Stripe
        >>> whole, evens = Region((3,), [Stripe(1, 1)]), Region((6,), [Stripe(1, 1)])
        >>> print(whole.fill_into(evens))  # every other one of every other one
        1...1.

        References
        ----------
        poprithms, memory/nest/region.hpp, ``settFillInto``.
        """
        return as_product(scaffold, "fill_into: scaffold").fill(self._union(self.regions))


@mend_calls
class Region(Products, Value):
    """A product of setts in the box ``start + [0, shape)``, in absolute coordinates.

    Each axis is kept in a normal form of its elements inside the box: an interval is one stripe whose
    period is the extent. A region without points has empty setts on all axes.

    Parameters
    ----------
    shape : sequence of int
        The extents of the box, >= 0.
    setts : sequence of Sett or Stripe
        One for each axis.
    start : sequence of int, optional
        The box's first point, zeros by default.

    Attributes
    ----------
    nests : tuple of nests
        The setts as plain integers.
    is_empty : bool
        Whether the region has no points.
    spans : tuple of (lo, hi) or None
        For each axis the interval that its elements are, or None if they are not one.
    progressions : tuple of triples of int, or None
        For each axis (first, last, step) of its elements, if they are at equal distances, or None.

    Raises
    ------
    ValueError
        If an extent is negative or the lengths differ.

    Examples
    --------
    >>> from tapestry_sets import Region, Sett, Stripe
    >>> r = Region((4, 6), [Sett(), Stripe(1, 2)])
    >>> r.size, (3, 3) in r, (3, 4) in r
    (8, True, False)
    >>> print(r)
    1..1..
    1..1..
    1..1..
    1..1..

    References
    ----------
    Tapestry's document on nested striding, "The region"; poprithms, memory/nest/region.hpp.
    """

    __match_args__ = ("shape", "nests", "start", "is_empty")
    __slots__ = (*__match_args__, "spans", "progressions")
    shape: Ints
    nests: tuple[Nest, ...]
    start: Ints
    is_empty: bool
    spans: tuple[Interval | None, ...]
    progressions: tuple[EvenSteps | None, ...]

    def __init__(
        self, shape: Sequence[int], setts: Sequence[Sett | Stripe], start: Sequence[int] | None = None
    ) -> None:
        box, origin = shapes.checked_box(shape, start)
        given = as_items(setts, "Region: setts", "sequence of setts and stripes, one for each axis")
        if len(given) != len(box):
            raise ValueError(f"Region: {len(given)} setts for shape {quote(box)}; give one sett for each axis")
        for axis, s in enumerate(given):
            if not isinstance(s, (Sett, Stripe)):
                raise TypeError(f"Region: axis {axis} takes a Sett or a Stripe, not {quote(s)}")
        raw = [s.nest if isinstance(s, Sett) else Sett(s).nest for s in given]
        for name, value in zip(Region.__slots__, _fields(box, raw, origin), strict=True):
            put_field(self, name, value)

    @staticmethod
    def _of(shape: Ints, raw: Iterable[Nest], start: Ints) -> Region:
        return _region_of(*_fields(shape, raw, start))

    @staticmethod
    def _spanning(shape: Ints, spans: tuple[Interval, ...], start: Ints) -> Region:
        """Return the box of the intervals, which must not be empty and lie inside shape and start."""
        progressions = tuple([(lo, hi - 1, 1) for lo, hi in spans])
        return _region_of(shape, tuple(map(interval, spans, shape)), start, False, spans, progressions)

    @classmethod
    def full(cls, shape: Sequence[int], start: Sequence[int] | None = None) -> Region:
        """Return the region of all points of the box.

        Examples
        --------
        >>> from tapestry_sets import Region
        >>> Region.full((4, 6)).size
        24
        """
        box, origin = shapes.checked_box(shape, start)
        return cls._of(box, ((),) * len(box), origin)

    @classmethod
    def empty(cls, shape: Sequence[int], start: Sequence[int] | None = None) -> Region:
        """Return the region without points in the box.

        Examples
        --------
        >>> from tapestry_sets import Region
        >>> Region.empty(()).size, Region.full(()).size
        (0, 1)
        """
        return _region_of(*_empty_fields(*shapes.checked_box(shape, start)))

    @classmethod
    def from_bounds(
        cls, shape: Sequence[int], lo: Sequence[int], hi: Sequence[int], start: Sequence[int] | None = None
    ) -> Region:
        """Return the box ``lo <= point < hi`` inside ``start + [0, shape)``, in absolute coordinates.

        Raises
        ------
        ValueError
            If the inner box reaches outside the outer one.

        Examples
        --------
        >>> from tapestry_sets import Region
        >>> Region.from_bounds((8, 8), (2, 0), (4, 8)).size
        16
        """
        box, origin = shapes.checked_box(shape, start)
        low, high = as_ints(lo, "Region.from_bounds: lo"), as_ints(hi, "Region.from_bounds: hi")
        if len(low) != len(box) or len(high) != len(box):
            raise ValueError(
                f"Region.from_bounds: lo {quote(low)} and hi {quote(high)} need one entry for each axis of {quote(box)}"
            )
        for axis, (u, v, n, s) in enumerate(zip(low, high, box, origin, strict=True)):
            if not s <= u <= v <= s + n:
                raise ValueError(
                    f"Region.from_bounds: [{u}, {v}) on axis {axis} is outside the box [{s}, {s + n}) "
                    f"of shape {quote(box)}; need {s} <= lo <= hi <= {s + n}"
                )
        if any(u == v for u, v in zip(low, high, strict=True)):
            return cls.empty(box, origin)
        return cls._spanning(box, tuple(zip(low, high, strict=True)), origin)

    @classmethod
    def from_slices(cls, shape: Sequence[int], slices: shapes.BoxKey, start: Sequence[int] | None = None) -> Region:
        """Return the points that NumPy's basic index `slices` selects from an array of this shape.

        Parameters
        ----------
        shape : sequence of int
        slices : slice, int, Ellipsis or tuple of them
            As in NumPy, counted from the box's start. An int keeps its axis, with one element.
        start : sequence of int, optional

        Raises
        ------
        IndexError
            If there are more slices than axes or an int is out of range.

        Examples
        --------
        >>> from tapestry_sets import Region
        >>> Region.from_slices((10,), slice(8, 2, -2)) == Region.from_slices((10,), slice(4, 10, 2))
        True
        """
        box, origin = shapes.checked_box(shape, start)
        ranges = shapes.select_ranges(box, slices)
        if not all(map(shapes.length, ranges)):
            return cls.empty(box, origin)
        raw: list[Nest] = []
        for r, s, n in zip(ranges, origin, box, strict=True):
            low, step = s + min(r[0], r[-1]), abs(r.step)
            span = (shapes.length(r) - 1) * step + 1
            raw.append(nests.canonical([(span, n, low), (1, step, 0)]))
        return cls._of(box, raw, origin)

    @property
    def regions(self) -> tuple[Region, ...]:
        """The region itself, or nothing if it has no points.

        Examples
        --------
        >>> from tapestry_sets import Region, Stripe
        >>> rows = Region((4, 6), [Stripe(1, 1), Stripe(6, 0)])
        >>> rows.regions == (rows,)
        True
        """
        return () if self.is_empty else (self,)

    @property
    def setts(self) -> tuple[Sett, ...]:
        """One sett for each axis.

        Examples
        --------
        >>> from tapestry_sets import Region, Stripe
        >>> Region((4, 6), [Stripe(1, 1), Stripe(2, 1)]).setts
        (Sett(Stripe(1, 1)), Sett(Stripe(2, 1)))
        """
        return tuple(Sett._of(s) for s in self.nests)

    @property
    def is_box(self) -> bool:
        """Whether the points on each axis are an interval.

        Examples
        --------
        >>> from tapestry_sets import Region
        >>> Region.from_bounds((4, 6), (1, 2), (3, 5)).is_box, Region.from_slices((4, 6), (slice(0, 4, 2),)).is_box
        (True, False)
        """
        return None not in self.spans

    @property
    def counts(self) -> Ints:
        """How many elements each axis has; their product is `size`.

        Examples
        --------
        >>> from tapestry_sets import Region
        >>> Region.from_slices((6, 9), (slice(1, 3), slice(None, None, 2))).counts
        (2, 5)
        """
        if self.is_empty:
            return (0,) * self.rank
        axes = zip(self.nests, self.spans, self.start, self.shape, strict=True)
        return tuple([span[1] - span[0] if span else nests.count(s, lo, lo + n) for s, span, lo, n in axes])

    def isdisjoint(self, other: Points) -> bool:
        """Return whether the sets share no point; see `DisjointRegions.isdisjoint`.

        Examples
        --------
        >>> from tapestry_sets import Region, Stripe
        >>> n = 10**9
        >>> Region((n,), [Stripe(1, 5)]).isdisjoint(Region((n,), [Stripe(1, 3, phase=1)]))
        True
        """
        if type(other) is Region and other.shape == self.shape and other.start == self.start:
            return self.is_empty or other.is_empty or self._misses(other)
        return Products.isdisjoint(self, other)

    def __repr__(self) -> str:
        tail = f", start={self.start}" if any(self.start) else ""
        if self.is_empty:
            return cut_text(f"Region.empty({self.shape}{tail})")
        return cut_text(f"Region({self.shape}, {list(self.setts)}{tail})")

    def _count(self) -> int:
        return 0 if self.is_empty else prod(self.counts)

    def _has(self, point: Ints) -> bool:
        return not self.is_empty and all(
            lo <= z < lo + n and nests.contains(s, z)
            for z, s, lo, n in zip(point, self.nests, self.start, self.shape, strict=True)
        )

    def _points(self) -> Int64Array:
        if not self.rank:
            return np.empty((1, 0), np.int64)
        axes = [nests.elements(s, lo, lo + n) for s, lo, n in zip(self.nests, self.start, self.shape, strict=True)]
        grid = np.meshgrid(*axes, indexing="ij")
        return np.stack([axis.ravel() for axis in grid], axis=-1)

    def _bounds(self) -> tuple[Ints, Ints]:
        spans = [
            span or (nests.find(s, lo), nests.rfind(s, lo + n - 1) + 1)
            for s, span, lo, n in zip(self.nests, self.spans, self.start, self.shape, strict=True)
        ]
        return tuple(u for u, _ in spans), tuple(v for _, v in spans)

    def grids(self) -> tuple[tuple[StridedRun, ...], ...]:
        """Return, for each axis, its elements as nested arithmetic grids; see `Sett.runs`.

        Raises
        ------
        TooManyPieces
            If an axis needs more than 10,000 runs.

        Examples
        --------
        >>> from tapestry_sets import Region
        >>> Region.from_slices((4, 9), (slice(1, 3), slice(0, 9, 4))).grids()
        ((StridedRun(first=1, levels=((2, 1),), rank=0),), (StridedRun(first=0, levels=((3, 4),), rank=0),))
        """
        return tuple(
            tuple(nests.runs(s, lo, lo + n)) for s, lo, n in zip(self.nests, self.start, self.shape, strict=True)
        )

    def _placed(self, shape: Ints, raw: Iterable[Nest], start: Ints) -> Region:
        """Return the region of nests in a box; without points, if this one has none."""
        return Region.empty(shape, start) if self.is_empty else Region._of(shape, raw, start)

    def shift(self, offset: Sequence[int]) -> Region:
        """Return the region moved by `offset` together with its box.

        Examples
        --------
        >>> from tapestry_sets import Region
        >>> Region.full((2, 3)).shift((10, 0)).bounds()
        ((10, 0), (12, 3))
        """
        by = shapes.per_axis(offset, self.shape, "shift: offset")
        start = tuple(s + k for s, k in zip(self.start, by, strict=True))
        return self._placed(self.shape, (nests.shift(s, k) for s, k in zip(self.nests, by, strict=True)), start)

    def transpose(self, perm: Sequence[int] | None = None) -> Region:
        """Return the region with axis perm[i] as axis i, by default with all axes in reversed order.

        Raises
        ------
        ValueError
            If `perm` is not a permutation of the axes.

        Examples
        --------
        >>> from tapestry_sets import Region, Stripe
        >>> print(Region((2, 6), [Stripe(1, 1), Stripe(2, 1)]).transpose())
        1.
        1.
        ..
        1.
        1.
        ..
        """
        order = shapes.permutation(perm, self.rank)
        shape, start = tuple(self.shape[i] for i in order), tuple(self.start[i] for i in order)
        return self._placed(shape, (self.nests[i] for i in order), start)

    def flip(self, axes: Sequence[int] | int | None = None) -> Region:
        """Return the region mirrored inside its box along `axes` (all by default).

        Raises
        ------
        ValueError
            If an axis is out of range.

        Examples
        --------
        >>> from tapestry_sets import Region, Stripe
        >>> print(Region((2, 6), [Stripe(1, 1), Stripe(4, 4)]).flip(1))
        ..1111
        ......
        """
        chosen = shapes.chosen_axes(axes, self.rank, "flip")
        raw = [
            nests.canonical(nests.reverse(s, 2 * lo + n)) if axis in chosen else s
            for axis, (s, lo, n) in enumerate(zip(self.nests, self.start, self.shape, strict=True))
        ]
        return self if self.is_empty else Region._of(self.shape, raw, self.start)

    def broadcast_to(self, shape: Sequence[int]) -> Region:
        """Return the region that the points become where the box is broadcast to `shape`, as in NumPy.

        Raises
        ------
        ValueError
            If the shape does not broadcast.

        Examples
        --------
        >>> from tapestry_sets import Region
        >>> Region.from_slices((3, 1), (slice(1, 3), slice(None))).broadcast_to((2, 3, 4)).size
        16
        """
        new, _ = shapes.checked_box(shape, None)
        lead = shapes.lead_of_broadcast(self.shape, new, "broadcast_to")
        start = (0,) * lead + self.start
        raw = [s if n == m else () for s, n, m in zip(self.nests, self.shape, new[lead:], strict=True)]
        return self._placed(new, [()] * lead + raw, start)

    def reduce_to(self, shape: Sequence[int]) -> Region:
        """Return the points of a box of `shape` that broadcasting sends to some point of this region.

        Raises
        ------
        ValueError
            If `shape` does not broadcast to the region's shape.

        Examples
        --------
        >>> from tapestry_sets import Region
        >>> Region.from_bounds((2, 3, 4), (0, 1, 0), (1, 3, 2)).reduce_to((3, 1)).size
        2
        """
        new, _ = shapes.checked_box(shape, None)
        lead = shapes.lead_of_broadcast(new, self.shape, "reduce_to")
        raw = [s if m == n else () for s, m, n in zip(self.nests[lead:], new, self.shape[lead:], strict=True)]
        return self._placed(new, raw, self.start[lead:])

    def _seen(self, ranges: tuple[range, ...], shape: Ints) -> list[Region]:
        """Return the region in the coordinates of the positions in `ranges`, counted from the box's start."""
        axes: list[list[Nest]] = []
        for s, r, lo, n in zip(self.nests, ranges, self.start, self.shape, strict=True):
            inside = explicit.meet_within(s, (), lo, lo + n)
            axes.append([t for one in inside for t in explicit.strided(one, lo + r.start, r.step)])
        zeros = (0,) * len(shape)
        return [Region._of(shape, raw, zeros) for raw in product(*axes)]

    def _misses(self, other: Region) -> bool:
        """Return whether some axis shows that two regions, not empty, share no point."""
        for p, q, x, y, lo, n in _by_axis(self, other):
            if p is not None and q is not None:
                if common_progression(p, q) is None:
                    return True
            elif pairs.is_disjoint(x, y, lo, lo + n):
                return True
        return False

    def _count_shared(self, other: Region) -> int:
        """Return how many points two regions share: on each axis so many indices."""
        total = 1
        for p, q, x, y, lo, n in _by_axis(self, other):
            if p is not None and q is not None:
                both = common_progression(p, q)
                common = (both[1] - both[0]) // both[2] + 1 if both else 0
            elif p is not None and p[2] == 1:
                common = nests.count(y, p[0], p[1] + 1)
            elif q is not None and q[2] == 1:
                common = nests.count(x, q[0], q[1] + 1)
            else:
                common = pairs.count_in_both(x, y, lo, lo + n)
            if common <= 0:
                return 0
            total *= common
        return total

    def _first_shared(self, other: Region) -> Ints | None:
        """Return the first point that two regions share, or None."""
        found = []
        for p, q, x, y, lo, n in _by_axis(self, other):
            if p is not None and q is not None:
                both = common_progression(p, q)
                z = both[0] if both else None
            else:
                z = pairs.first_in_both(x, y, lo, lo + n)
            if z is None:
                return None
            found.append(z)
        return tuple(found)


_region_of = compile_constructor(Region, *Region.__slots__)


def _empty_fields(shape: Ints, start: Ints) -> tuple[Any, ...]:
    """Return the fields of a region without points."""
    return shape, (EMPTY,) * len(shape), start, True, tuple([(s, s) for s in start]), (None,) * len(shape)


def _fields(shape: Ints, raw: Iterable[Nest], start: Ints) -> tuple[Any, ...]:
    """Return the fields of a region from nests, each brought into its normal form in the box."""
    axes: list[AxisForm] = []
    for s, n, lo in zip(raw, shape, start, strict=True):
        one = normal(s, lo, lo + n)
        if one[0] == EMPTY:
            return _empty_fields(shape, start)
        axes.append(one)
    kept, spans, progressions = zip(*axes, strict=True) if axes else ((), (), ())
    return shape, kept, start, False, spans, progressions


def _by_axis(r: Region, s: Region) -> zip[tuple[EvenSteps | None, EvenSteps | None, Nest, Nest, int, int]]:
    """Pair two regions of one box: progressions and nests of each axis, its first index and its extent."""
    return zip(r.progressions, s.progressions, r.nests, s.nests, r.start, r.shape, strict=True)


# ------------------------------------------------------------------ two regions


def as_product(x: object, what: str) -> Region:
    """Return the one region that a set is, or say that it is not a product."""
    if isinstance(x, Region):
        return x
    if not isinstance(x, Products):
        raise TypeError(
            f"{what} must be a Region or DisjointRegions, not {type(x).__name__}; Reshaped.explicit() lists regions"
        )
    if len(x.regions) > 1:
        raise ValueError(f"{what} must be a product, a union of one member, not of {len(x.regions)}")
    return x.regions[0] if x.regions else Region.empty(x.shape, x.start)


def _sampled(r: Region, at: Region, shape: Ints) -> list[Region]:
    """Return r in the coordinates of the elements of `at`, whose counts are `shape`."""
    if at.is_empty:
        return []
    axes = [
        sample_axis(s, t, lo, lo + n, many) if s and s != t else [()]
        for s, t, lo, n, many in zip(r.nests, at.nests, r.start, r.shape, shape, strict=True)
    ]
    return [Region._of(shape, raw, (0,) * len(shape)) for raw in product(*axes)]


def _filled(at: Region, ink: Region) -> list[Region]:
    """Return the points of `at` whose ranks are in `ink`."""
    if at.is_empty:
        return []
    axes = [
        fill_axis(t, s, lo, lo + n) if s else [t]
        for s, t, lo, n in zip(ink.nests, at.nests, at.start, at.shape, strict=True)
    ]
    return [Region._of(at.shape, raw, at.start) for raw in product(*axes)]


def meet_regions(r: Region, s: Region, out: list[Region]) -> None:
    """Append the intersection of two regions to `out`."""
    spans = []
    for u, v in zip(r.spans, s.spans, strict=True):
        if u is None or v is None:
            break
        lo = u[0] if u[0] > v[0] else v[0]
        hi = u[1] if u[1] < v[1] else v[1]
        if lo >= hi:
            return
        spans.append((lo, hi))
    else:
        out.append(Region._spanning(r.shape, tuple(spans), r.start))
        return
    axes: list[list[Nest]] = []
    for p, q, x, y, lo, n in _by_axis(r, s):
        if p is not None and q is not None:
            both = common_progression(p, q)
            axes.append([nest_of_steps(both, n)] if both else [])
        else:
            axes.append(meet_axis(x, y, lo, lo + n))
        if not axes[-1]:
            return
    out += [Region._of(r.shape, raw, r.start) for raw in product(*axes)]


def _subtract(left: Sequence[Region], right: Sequence[Region]) -> list[Region]:
    kept: list[Region] = []
    for r, partners in list_partners(left, right):
        if len(partners) > tuning.FEW_PAIRS:
            kept += _subtract_many(r, partners, len(kept))
            continue
        pieces = [r]
        for s in partners:
            pieces = [part for piece in pieces for part in _subtract_one(piece, s)]
            check_pieces(len(kept) + len(pieces), "difference of regions")
        kept += pieces
    return kept


def _subtract_many(r: Region, others: Sequence[Region], before: int) -> list[Region]:
    """Return r less many others, where each part that is left is compared with those alone whose bounds meet it."""
    near = Near(others)
    kept: list[Region] = []
    left = [(r, near.every)]
    while left:
        piece, at = left.pop()
        parts = [piece]
        while len(at) and len(parts) == 1 and parts[0] is piece:
            parts, at = _subtract_one(piece, others[at[0]]), at[1:]
        if not len(at):
            kept += parts
        else:
            left += [(part, near.reached(part, at)) for part in reversed(parts)]
        check_pieces(before + len(kept) + len(left), "difference of regions")
    return kept


def _subtract_one(r: Region, s: Region) -> list[Region]:
    """Return r - s: for each axis what s lacks there, of what is common on the axes before it."""
    if r.is_empty or s.is_empty:
        return list(r.regions)
    if r.is_box and s.is_box:
        return _subtract_boxes(r, s)
    if r._misses(s):
        return [r]
    out: list[Region] = []
    common: list[list[Nest]] = []
    for axis, (x, y, lo, n) in enumerate(zip(r.nests, s.nests, r.start, r.shape, strict=True)):
        for missing in explicit.subtract_within(x, y, lo, lo + n) if x != y else []:
            tail = (missing, *r.nests[axis + 1 :])
            out += [Region._of(r.shape, (*head, *tail), r.start) for head in product(*common)]
        common.append(meet_axis(x, y, lo, lo + n))
    return out


def _subtract_boxes(r: Region, s: Region) -> list[Region]:
    """Return r - s of two boxes: on each axis the parts of r on both sides of s."""
    out: list[Region] = []
    spans = [span for span in r.spans if span is not None]
    for axis, (u, v) in enumerate(zip(spans[:], s.spans, strict=True)):
        if v is None:
            raise AssertionError(f"{quote(s)} is not a box")
        lo, hi = max(u[0], v[0]), min(u[1], v[1])
        if lo >= hi:
            return [r]
        for side in ((u[0], lo), (hi, u[1])):
            if side[0] < side[1]:
                part = (*spans[:axis], side, *spans[axis + 1 :])
                out.append(Region._spanning(r.shape, part, r.start))
        spans[axis] = (lo, hi)
    return out


def merge_members(members: Sequence[Region]) -> list[Region]:
    """Join regions that differ on one axis only, where their union there is shorter."""
    current = list(members)
    if len(current) < 2:
        return current
    like = current[0]
    if sum(r._count() for r in current) == prod(like.shape):
        return [Region.full(like.shape, like.start)]
    changed = True
    while changed:
        changed = False
        for axis in range(current[0].rank):
            groups: dict[tuple[Nest, ...], list[Region]] = {}
            for r in current:
                groups.setdefault(r.nests[:axis] + r.nests[axis + 1 :], []).append(r)
            if len(groups) == len(current):
                continue
            joined = [s for group in groups.values() for s in _merge_axis(group, axis)]
            changed = changed or len(joined) < len(current)
            current = joined
    return current


def _merge_axis(group: list[Region], axis: int) -> list[Region]:
    """Join regions that agree on all other axes."""
    if len(group) == 1:
        return group
    like = group[0]
    lo = like.start[axis]
    hi = lo + like.shape[axis]
    items = [item for r in group if (item := nests.clip(r.nests[axis], lo, hi)) is not None]
    merged = explicit.from_items(explicit.merge(items), lo, hi)
    if len(merged) >= len(group):
        return group
    before, after = like.nests[:axis], like.nests[axis + 1 :]
    return [Region._of(like.shape, (*before, s, *after), like.start) for s in merged]
