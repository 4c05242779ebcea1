"""Regions, products of setts in a box of integer points, and their disjoint unions.

A region lives in a box: the points ``start <= point < start + shape``. Coordinates are absolute. Two
regions can be combined only in the same box.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import combinations, product
from math import gcd, lcm, prod
from types import EllipsisType

import numpy as np

from tapestry_sets import draw, explicit, pairs
from tapestry_sets import nest as nests
from tapestry_sets.limits import check_pieces
from tapestry_sets.nest import EMPTY, Item, Nest, Run
from tapestry_sets.sett import Sett, Setts
from tapestry_sets.stripe import Int64Array, Stripe, as_int

Ints = tuple[int, ...]
Spans = tuple[tuple[int, int] | None, ...]
"""For each axis the interval (lo, hi) that its elements are, or None if they are no interval."""


def _ints(values: Iterable[object], what: str) -> Ints:
    try:
        values = tuple(values)
    except TypeError:
        raise TypeError(f"{what} must be a sequence of integers, one for each axis, not {values!r}") from None
    for v in values:
        if type(v) is not int:
            return tuple(as_int(v, f"{what}[{axis}]") for axis, v in enumerate(values))
    return values  # type: ignore[return-value]


@lru_cache(maxsize=1 << 14)
def _box(shape: Iterable[int], start: Iterable[int] | None) -> tuple[Ints, Ints]:
    shape = _ints(shape, "Region: shape")
    for axis, n in enumerate(shape):
        if n < 0:
            raise ValueError(f"Region: extents must be >= 0, not {n} on axis {axis} of shape {shape}")
    if start is None:
        return shape, (0,) * len(shape)
    start = _ints(start, "Region: start")
    if len(start) != len(shape):
        raise ValueError(f"Region: start {start} must have one entry for each axis of shape {shape}")
    return shape, start


def _checked_box(shape: Iterable[int], start: Iterable[int] | None) -> tuple[Ints, Ints]:
    # as tuples of ints, since 2 and 2.0 or True and 1 are the same key to a cache
    shape = _ints(shape, "Region: shape")
    return _box(shape, None if start is None else _ints(start, "Region: start"))


class _Points(ABC):
    """The verbs that regions and unions of regions share, written once over disjoint regions in one box."""

    __slots__ = ()

    shape: Ints
    start: Ints

    @property
    @abstractmethod
    def regions(self) -> tuple[Region, ...]:
        """Disjoint regions, none of them empty, that make up the set."""

    def __str__(self) -> str:
        return draw.summary(self)

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        return draw.mimebundle(self)

    @property
    def rank(self) -> int:
        """How many axes the box has."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """How many points the set has."""
        return sum(r._count() for r in self.regions)

    def __contains__(self, point: Sequence[int]) -> bool:
        at = _ints(point, "Region: point")
        if len(at) != self.rank:
            raise ValueError(f"Region: point {at} must have one entry for each axis of shape {self.shape}")
        return any(r._holds(at) for r in self.regions)

    def points(self) -> Int64Array:
        """Return the points in row-major order, as an int64 array of shape (size, rank).

        Examples
        --------
        >>> Region.from_slices((2, 4), (slice(None), slice(1, None, 2))).points().tolist()
        [[0, 1], [0, 3], [1, 1], [1, 3]]
        """
        parts = [r._points() for r in self.regions]
        if len(parts) == 1:
            return parts[0]
        every = np.concatenate([np.empty((0, self.rank), np.int64), *parts])
        return every[np.lexsort(every.T[::-1])] if self.rank else every

    def bounds(self) -> tuple[Ints, Ints] | None:
        """Return the smallest box that holds all points, as (lo, hi) with hi exclusive; None without points.

        Examples
        --------
        >>> Region.from_slices((9, 9), (slice(1, 8, 3), slice(2, 5))).bounds()
        ((1, 2), (8, 5))
        """
        if not self.regions:
            return None
        each = [r._bounds() for r in self.regions]
        lo = tuple(min(b[0][axis] for b in each) for axis in range(self.rank))
        return lo, tuple(max(b[1][axis] for b in each) for axis in range(self.rank))

    def isdisjoint(self, other: _Points) -> bool:
        """Return whether the sets share no point.

        Raises
        ------
        ValueError
            If the boxes differ.
        """
        self._same_box(other, "isdisjoint")
        return all(_disjoint(r, s) for r in self.regions for s in other.regions)

    def count_common(self, other: _Points) -> int:
        """Return how many points both sets hold, without listing them.

        Raises
        ------
        ValueError
            If the boxes differ.

        Examples
        --------
        >>> box = (10**6, 10**6)
        >>> evens = Region.from_slices(box, (slice(0, None, 2), slice(None)))
        >>> thirds = Region.from_slices(box, (slice(0, None, 3), slice(None)))
        >>> evens.count_common(thirds)
        166667000000
        """
        self._same_box(other, "count_common")
        return sum(_count_common(r, s) for r in self.regions for s in other.regions)

    def first_common(self, other: _Points) -> Ints | None:
        """Return the first common point in row-major order, or None.

        Raises
        ------
        ValueError
            If the boxes differ.
        """
        self._same_box(other, "first_common")
        found = [_first_common(r, s) for r in self.regions for s in other.regions]
        return min((point for point in found if point is not None), default=None)

    def issubset(self, other: _Points) -> bool:
        """Return whether every point is in `other`; also written ``a <= b``.

        Raises
        ------
        ValueError
            If the boxes differ.
        """
        # the members of a union are disjoint, so that all is covered if the common points add up
        return self.count_common(other) == self.size

    def same_points(self, other: _Points) -> bool:
        """Return whether both sets hold the same points, whatever their form.

        Raises
        ------
        ValueError
            If the boxes differ.
        """
        return self.size == other.size and self.issubset(other)

    def __le__(self, other: _Points) -> bool:
        return self.issubset(other)

    def __ge__(self, other: _Points) -> bool:
        return self._same_box(other, ">=").issubset(self)

    def __and__(self, other: _Points) -> Regions:
        self._same_box(other, "&")
        found: list[Region] = []
        for r in self.regions:
            for s in other.regions:
                _meet(r, s, found)
            check_pieces(len(found), "intersection of regions")
        return Regions._of(self.shape, found, self.start)

    def __sub__(self, other: _Points) -> Regions:
        self._same_box(other, "-")
        found = _subtract(self.regions, other.regions)
        few = len(found) < 2 or (len(self.regions) == len(other.regions) == 1 and found[0].is_box)
        # the parts of one box outside another differ on several axes, or lie on both sides of it
        return Regions._of(self.shape, found if few else _merge(found), self.start)

    def __or__(self, other: _Points) -> Regions:
        self._same_box(other, "|")
        found = [*self.regions, *_subtract(other.regions, self.regions)]
        return Regions._of(self.shape, _merge(found), self.start)

    def __xor__(self, other: _Points) -> Regions:
        self._same_box(other, "^")
        found = _subtract(self.regions, other.regions) + _subtract(other.regions, self.regions)
        return Regions._of(self.shape, _merge(found), self.start)

    def __invert__(self) -> Regions:
        return Region.full(self.shape, self.start) - Regions._of(self.shape, self.regions, self.start)

    def _same_box(self, other: object, verb: str) -> _Points:
        if not isinstance(other, _Points):
            raise TypeError(f"{verb}: takes a Region or Regions, not {type(other).__name__}")
        if self.shape != other.shape or self.start != other.start:
            raise ValueError(
                f"{verb}: both regions must be in one box, not shape {self.shape} from {self.start} "
                f"and shape {other.shape} from {other.start}"
            )
        return other

    def flatten(self) -> Setts:
        """Return the row-major indices of the points, as setts in [0, product of the shape).

        Raises
        ------
        ValueError
            If the box does not start at zero.

        Examples
        --------
        >>> Region.from_slices((3, 3, 3), (slice(2),) * 3).flatten()
        Setts([Sett(Stripe(14, 13), Stripe(5, 4), Stripe(2, 1))])
        """
        self._from_zero("flatten")
        return Setts._of(explicit.merge_nests(_flat(r) for r in self.regions))

    def reshape(self, shape: Sequence[int]) -> Regions:
        """Return the points renumbered in row-major order in a box of another shape.

        Parameters
        ----------
        shape : sequence of int
            One extent may be -1: it is what the others leave.

        Raises
        ------
        ValueError
            If the box does not start at zero or the sizes differ.
        TooManyPieces
            If more than 10,000 regions are needed.

        Examples
        --------
        >>> Region((3, 4), [Sett(), Stripe(1, 1)]).reshape((4, 3))
        Regions((4, 3), [Region((4, 3), [Sett(Stripe(1, 1)), Sett(Stripe(1, 1))]),
                         Region((4, 3), [Sett(Stripe(1, 1, phase=1)), Sett(Stripe(1, 2, phase=1))])])
        """
        self._from_zero("reshape")
        new, _ = _checked_box(_with_extent(_ints(shape, "reshape: shape"), self.shape), None)
        if prod(new) != prod(self.shape):
            raise ValueError(
                f"reshape: cannot view shape {self.shape} [{prod(self.shape)} points] as {new} [{prod(new)}]"
            )
        found = [region for r in self.regions for region in _unflatten(_flat(r), new)]
        return Regions._of(new, _merge(found), (0,) * len(new))

    def _from_zero(self, verb: str) -> None:
        if any(self.start):
            raise ValueError(f"{verb}: the box must start at zero, not {self.start}; shift the region first")


@dataclass(frozen=True, slots=True, init=False, repr=False)
class Region(_Points):
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

    Raises
    ------
    ValueError
        If an extent is negative or the lengths differ.

    Examples
    --------
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

    shape: Ints
    nests: tuple[Nest, ...]
    start: Ints
    is_empty: bool
    spans: Spans = field(compare=False)

    def __init__(
        self, shape: Sequence[int], setts: Sequence[Sett | Stripe], start: Sequence[int] | None = None
    ) -> None:
        box, origin = _checked_box(shape, start)
        if len(setts) != len(box):
            raise ValueError(f"Region: {len(setts)} setts for shape {box}; give one sett for each axis")
        for axis, s in enumerate(setts):
            if not isinstance(s, (Sett, Stripe)):
                raise TypeError(f"Region: axis {axis} takes a Sett or a Stripe, not {s!r}")
        raw = [s.nest if isinstance(s, Sett) else Sett(s).nest for s in setts]
        _fill(self, box, raw, origin)

    @classmethod
    def _of(cls, shape: Ints, raw: Sequence[Nest], start: Ints) -> Region:
        region = object.__new__(cls)
        _fill(region, shape, raw, start)
        return region

    @classmethod
    def _spanning(cls, shape: Ints, spans: tuple[tuple[int, int], ...], start: Ints) -> Region:
        """Return the box of the intervals, which must not be empty and lie inside shape and start."""
        region = object.__new__(cls)
        _set(region, "shape", shape)
        _set(region, "nests", tuple(map(_interval, spans, shape)))
        _set(region, "start", start)
        _set(region, "is_empty", False)
        _set(region, "spans", spans)
        return region

    @classmethod
    def full(cls, shape: Sequence[int], start: Sequence[int] | None = None) -> Region:
        """Return the region of all points of the box."""
        box, origin = _checked_box(shape, start)
        return cls._of(box, ((),) * len(box), origin)

    @classmethod
    def empty(cls, shape: Sequence[int], start: Sequence[int] | None = None) -> Region:
        """Return the region without points in the box.

        Examples
        --------
        >>> Region.empty(()).size, Region.full(()).size
        (0, 1)
        """
        box, origin = _checked_box(shape, start)
        region = object.__new__(cls)
        _clear(region, box, origin)
        return region

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
        >>> Region.from_bounds((8, 8), (2, 0), (4, 8)).size
        16
        """
        box, origin = _checked_box(shape, start)
        low, high = _ints(lo, "Region.from_bounds: lo"), _ints(hi, "Region.from_bounds: hi")
        if len(low) != len(box) or len(high) != len(box):
            raise ValueError(f"Region.from_bounds: lo {low} and hi {high} need one entry for each axis of {box}")
        for axis, (u, v, n, s) in enumerate(zip(low, high, box, origin, strict=True)):
            if not s <= u <= v <= s + n:
                raise ValueError(
                    f"Region.from_bounds: [{u}, {v}) on axis {axis} is outside the box [{s}, {s + n}) "
                    f"of shape {box}; need {s} <= lo <= hi <= {s + n}"
                )
        if any(u == v for u, v in zip(low, high, strict=True)):
            return cls.empty(box, origin)
        return cls._spanning(box, tuple(zip(low, high, strict=True)), origin)

    @classmethod
    def from_slices(
        cls,
        shape: Sequence[int],
        slices: slice | int | EllipsisType | tuple[slice | int | EllipsisType, ...],
        start: Sequence[int] | None = None,
    ) -> Region:
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
        >>> Region.from_slices((10,), slice(8, 2, -2)) == Region.from_slices((10,), slice(4, 10, 2))
        True
        """
        box, origin = _checked_box(shape, start)
        ranges = _ranges(box, slices)
        if not all(map(_length, ranges)):
            return cls.empty(box, origin)
        raw: list[Nest] = []
        for r, s, n in zip(ranges, origin, box, strict=True):
            low, step = s + min(r[0], r[-1]), abs(r.step)
            span = (_length(r) - 1) * step + 1
            inner = () if step == 1 else ((1, step, 0),)
            raw.append(nests.canonical([(span, n, low), *inner]))
        return cls._of(box, raw, origin)

    @property
    def regions(self) -> tuple[Region, ...]:
        """The region itself, or nothing if it has no points."""
        return () if self.is_empty else (self,)

    @property
    def setts(self) -> tuple[Sett, ...]:
        """One sett for each axis."""
        return tuple(Sett._of(s) for s in self.nests)

    @property
    def is_box(self) -> bool:
        """Whether the points on each axis are an interval."""
        return None not in self.spans

    def __repr__(self) -> str:
        tail = f", start={self.start}" if any(self.start) else ""
        if self.is_empty:
            return f"Region.empty({self.shape}{tail})"
        return f"Region({self.shape}, {list(self.setts)}{tail})"

    def _count(self) -> int:
        if self.is_empty:
            return 0
        total = 1
        for s, span, lo, n in zip(self.nests, self.spans, self.start, self.shape, strict=True):
            total *= span[1] - span[0] if span else nests.count(s, lo, lo + n)
        return total

    def _holds(self, point: Ints) -> bool:
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

    def grids(self) -> tuple[tuple[Run, ...], ...]:
        """Return, for each axis, its elements as nested arithmetic grids; see `Sett.runs`.

        Raises
        ------
        TooManyPieces
            If an axis needs more than 10,000 runs.

        Examples
        --------
        >>> Region.from_slices((4, 9), (slice(1, 3), slice(0, 9, 4))).grids()
        ((Run(first=1, levels=((2, 1),), rank=0),), (Run(first=0, levels=((3, 4),), rank=0),))
        """
        return tuple(
            tuple(nests.runs(s, lo, lo + n)) for s, lo, n in zip(self.nests, self.start, self.shape, strict=True)
        )

    def shift(self, offset: Sequence[int]) -> Region:
        """Return the region moved by `offset` together with its box."""
        by = _per_axis(offset, self.shape, "shift: offset")
        start = tuple(s + k for s, k in zip(self.start, by, strict=True))
        if self.is_empty:
            return Region.empty(self.shape, start)
        return Region._of(self.shape, [nests.shift(s, k) for s, k in zip(self.nests, by, strict=True)], start)

    def transpose(self, perm: Sequence[int] | None = None) -> Region:
        """Return the region with axis perm[i] as axis i, by default with all axes in reversed order.

        Raises
        ------
        ValueError
            If `perm` is no permutation of the axes.
        """
        order = _permutation(perm, self.rank)
        shape, start = tuple(self.shape[i] for i in order), tuple(self.start[i] for i in order)
        if self.is_empty:
            return Region.empty(shape, start)
        return Region._of(shape, [self.nests[i] for i in order], start)

    def flip(self, axes: Sequence[int] | int | None = None) -> Region:
        """Return the region mirrored inside its box along `axes` (all by default).

        Raises
        ------
        ValueError
            If an axis is out of range.
        """
        chosen = _axes(axes, self.rank, "flip")
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
        >>> Region.from_slices((3, 1), (slice(1, 3), slice(None))).broadcast_to((2, 3, 4)).size
        16
        """
        new, _ = _checked_box(shape, None)
        lead = len(new) - self.rank
        fits = lead >= 0 and all(n in (1, m) for n, m in zip(self.shape, new[max(lead, 0) :], strict=False))
        if not fits:
            raise ValueError(f"broadcast_to: shape {self.shape} does not broadcast to {new}")
        start = (0,) * lead + self.start
        if self.is_empty:
            return Region.empty(new, start)
        same = [n == m for n, m in zip(self.shape, new[lead:], strict=True)]
        raw = [s if kept else () for s, kept in zip(self.nests, same, strict=True)]
        return Region._of(new, [()] * lead + raw, start)

    def reduce_to(self, shape: Sequence[int]) -> Region:
        """Return the points of a box of `shape` that broadcasting sends to some point of this region.

        Raises
        ------
        ValueError
            If `shape` does not broadcast to the region's shape.

        Examples
        --------
        >>> Region.from_bounds((2, 3, 4), (0, 1, 0), (1, 3, 2)).reduce_to((3, 1)).size
        2
        """
        new, _ = _checked_box(shape, None)
        lead = self.rank - len(new)
        if lead < 0 or any(m not in (1, n) for m, n in zip(new, self.shape[max(lead, 0) :], strict=False)):
            raise ValueError(f"reduce_to: shape {new} does not broadcast to {self.shape}")
        start = self.start[lead:]
        if self.is_empty:
            return Region.empty(new, start)
        raw = [s if m == n else () for s, m, n in zip(self.nests[lead:], new, self.shape[lead:], strict=True)]
        return Region._of(new, raw, start)

    def slice(self, slices: slice | int | EllipsisType | tuple[slice | int | EllipsisType, ...]) -> Regions:
        """Return the region as a NumPy view of the box sees it, in the view's own coordinates from zero.

        Parameters
        ----------
        slices : slice, int, Ellipsis or tuple of them
            As for `from_slices`; an int keeps its axis, with extent 1.

        Returns
        -------
        Regions
            In the box of the view's shape.

        Examples
        --------
        >>> Region.from_bounds((10,), (3,), (8,)).slice(slice(None, None, -2)).points().tolist()
        [[1], [2], [3]]
        """
        ranges = _ranges(self.shape, slices)
        shape = tuple(map(_length, ranges))
        zeros = (0,) * len(shape)
        if self.is_empty or not all(shape):
            return Regions._of(shape, (), zeros)
        axes: list[list[Nest]] = []
        for s, r, lo, n in zip(self.nests, ranges, self.start, self.shape, strict=True):
            inside = explicit.meet_within(s, (), lo, lo + n)
            axes.append([t for one in inside for t in explicit.strided(one, lo + r.start, r.step)])
        found = (Region._of(shape, raw, zeros) for raw in product(*axes))
        return Regions._of(shape, found, zeros)


_set = object.__setattr__


@lru_cache(maxsize=1 << 16)
def _interval(span: tuple[int, int], extent: int) -> Nest:
    lo, hi = span
    return ((hi - lo, extent, lo % extent),) if hi - lo < extent else ()


def _clear(region: Region, shape: Ints, start: Ints) -> None:
    _set(region, "shape", shape)
    _set(region, "nests", (EMPTY,) * len(shape))
    _set(region, "start", start)
    _set(region, "is_empty", True)
    _set(region, "spans", tuple((s, s) for s in start))


def _fill(region: Region, shape: Ints, raw: Sequence[Nest], start: Ints) -> None:
    """Set the fields of a region from nests, each brought into its normal form in the box."""
    normal: list[Nest] = []
    spans: list[tuple[int, int] | None] = []
    for s, n, lo in zip(raw, shape, start, strict=True):
        inside, span = _normal(s, lo, lo + n)
        if inside == EMPTY:
            _clear(region, shape, start)
            return
        normal.append(inside)
        spans.append(span)
    _set(region, "shape", shape)
    _set(region, "nests", tuple(normal))
    _set(region, "start", start)
    _set(region, "is_empty", False)
    _set(region, "spans", tuple(spans))


@lru_cache(maxsize=1 << 14)
def _normal(s: Nest, lo: int, hi: int) -> tuple[Nest, tuple[int, int] | None]:
    """Return the normal form of a nest in a window, and the interval that it is there, if any."""
    inside = nests.in_window(s, lo, hi)
    if inside == EMPTY:
        return EMPTY, (lo, lo)
    if not inside:
        return (), (lo, hi)
    on, period, phase = inside[0]
    if len(inside) > 1 or period != hi - lo:
        return inside, None
    first = lo + (phase - lo) % period  # the one block that starts in the window
    return inside, ((first, first + on) if first + on <= hi else None)


def _with_extent(shape: Ints, old: Ints) -> Ints:
    """Return the shape with -1 replaced by what the other extents leave of the old shape's size."""
    if -1 not in shape:
        return shape
    size, known = prod(old), prod(n for n in shape if n != -1)
    if shape.count(-1) > 1 or known < 1 or size % known:
        raise ValueError(
            f"reshape: shape {shape} may hold one -1, which the other extents [product {known}] must leave "
            f"of the {size} points of shape {old}"
        )
    return tuple(size // known if n == -1 else n for n in shape)


def _per_axis(values: Sequence[int], shape: Ints, what: str) -> Ints:
    out = _ints(values, what)
    if len(out) != len(shape):
        raise ValueError(f"{what} {out} must have one entry for each axis of shape {shape}")
    return out


def _permutation(perm: Sequence[int] | None, rank: int) -> Ints:
    if perm is None:
        return tuple(reversed(range(rank)))
    order = _ints(perm, "transpose: perm")
    if sorted(order) != list(range(rank)):
        raise ValueError(f"transpose: perm {order} must hold each of 0 to {rank - 1} once")
    return order


def _axes(axes: Sequence[int] | int | None, rank: int, verb: str) -> set[int]:
    if axes is None:
        return set(range(rank))
    given = _ints((axes,) if isinstance(axes, int) else axes, f"{verb}: axes")
    for axis in given:
        if not -rank <= axis < rank:
            raise ValueError(f"{verb}: axis {axis} is out of range for rank {rank}")
    return {axis % rank for axis in given}


def _ranges(
    shape: Ints, slices: slice | int | EllipsisType | tuple[slice | int | EllipsisType, ...]
) -> tuple[range, ...]:
    """Return for each axis the positions that a NumPy basic index selects."""
    key = slices if isinstance(slices, tuple) else (slices,)
    given = sum(k is not Ellipsis for k in key)
    if given > len(shape) or len(key) - given > 1:
        raise IndexError(f"index {key} has too many entries for shape {shape}")
    fill = (slice(None),) * (len(shape) - given)
    at = next((i for i, k in enumerate(key) if k is Ellipsis), len(key))
    full = [*key[:at], *fill, *key[at + 1 :]]
    return tuple(_range(k, n, axis) for axis, (k, n) in enumerate(zip(full, shape, strict=True)))


def _length(r: range) -> int:
    """Return how many positions a range has; len() stops at the machine's word."""
    return max(0, (r.stop - r.start + r.step - (1 if r.step > 0 else -1)) // r.step)


def _range(k: object, n: int, axis: int) -> range:
    if isinstance(k, slice):
        return range(*k.indices(n))
    i = as_int(k, f"index on axis {axis}")
    if not -n <= i < n:
        raise IndexError(f"index {i} is out of range for axis {axis} of extent {n}")
    return range(i % n, i % n + 1)


@dataclass(frozen=True, slots=True, init=False, repr=False)
class Regions(_Points):
    """A union of regions that share no point, in one box.

    Parameters
    ----------
    shape : sequence of int
        The extents of the box.
    members : iterable of Region
        Disjoint, in this box; those without points are dropped.
    start : sequence of int, optional
        The box's first point, zeros by default.

    Raises
    ------
    ValueError
        If a member is in another box or two members share a point; the message names one.

    Examples
    --------
    >>> box = (4, 4)
    >>> corners = Region.from_bounds(box, (0, 0), (1, 1)) | Region.from_bounds(box, (3, 3), (4, 4))
    >>> corners.size, len(corners.members), (3, 3) in corners
    (2, 2, True)
    """

    shape: Ints
    members: tuple[Region, ...]
    start: Ints

    def __init__(
        self, shape: Sequence[int], members: Iterable[Region] = (), start: Sequence[int] | None = None
    ) -> None:
        box, origin = _checked_box(shape, start)
        kept = tuple(members)
        for at, member in enumerate(kept):
            if not isinstance(member, Region):
                raise TypeError(f"Regions: member {at} must be a Region, not {type(member).__name__}")
            if member.shape != box or member.start != origin:
                raise ValueError(
                    f"Regions: member {at} is in the box {member.shape} from {member.start}, not in {box} from {origin}"
                )
        for one, two in combinations(kept, 2):
            shared = one.first_common(two)
            if shared is not None:
                raise ValueError(f"Regions: members {one!r} and {two!r} share the point {shared}; write one | two")
        self._fill(box, kept, origin)

    def _fill(self, shape: Ints, members: Iterable[Region], start: Ints) -> None:
        _set(self, "shape", shape)
        _set(self, "members", tuple(m for m in members if not m.is_empty))
        _set(self, "start", start)

    @classmethod
    def _of(cls, shape: Ints, members: Iterable[Region], start: Ints) -> Regions:
        """Wrap regions that are known to be disjoint and in this box."""
        regions = object.__new__(cls)
        regions._fill(shape, members, start)
        return regions

    @property
    def regions(self) -> tuple[Region, ...]:
        """The members."""
        return self.members

    @property
    def is_empty(self) -> bool:
        """Whether the union has no points."""
        return not self.members

    @property
    def is_box(self) -> bool:
        """Whether the union is one member that is a box, or nothing."""
        return not self.members or (len(self.members) == 1 and self.members[0].is_box)

    def __len__(self) -> int:
        return len(self.members)

    def __repr__(self) -> str:
        tail = f", start={self.start}" if any(self.start) else ""
        return f"Regions({self.shape}, {list(self.members)}{tail})"

    def _moved(self, change: Callable[[Region], Region]) -> Regions:
        like = change(Region.empty(self.shape, self.start))
        return Regions._of(like.shape, map(change, self.members), like.start)

    def shift(self, offset: Sequence[int]) -> Regions:
        """Return the union moved by `offset` together with its box."""
        return self._moved(lambda r: r.shift(offset))

    def transpose(self, perm: Sequence[int] | None = None) -> Regions:
        """Return the union with its axes permuted; see `Region.transpose`."""
        return self._moved(lambda r: r.transpose(perm))

    def flip(self, axes: Sequence[int] | int | None = None) -> Regions:
        """Return the union mirrored inside its box; see `Region.flip`."""
        return self._moved(lambda r: r.flip(axes))

    def broadcast_to(self, shape: Sequence[int]) -> Regions:
        """Return the union where its box is broadcast; see `Region.broadcast_to`."""
        return self._moved(lambda r: r.broadcast_to(shape))

    def reduce_to(self, shape: Sequence[int]) -> Regions:
        """Return what broadcasting sends into the union; see `Region.reduce_to`."""
        like = Region.empty(self.shape, self.start).reduce_to(shape)
        found = Regions._of(like.shape, (), like.start)
        for member in self.members:  # members that were apart may fall together
            found = found | member.reduce_to(shape)
        return found

    def slice(self, slices: slice | int | EllipsisType | tuple[slice | int | EllipsisType, ...]) -> Regions:
        """Return the union as a NumPy view of the box sees it; see `Region.slice`."""
        like = Region.empty(self.shape, self.start).slice(slices)
        return Regions._of(like.shape, [t for r in self.members for t in r.slice(slices).members], like.start)


# ------------------------------------------------------------------ two regions


def _disjoint(r: Region, s: Region) -> bool:
    for u, v, x, y, lo, n in zip(r.spans, s.spans, r.nests, s.nests, r.start, r.shape, strict=True):
        if u is not None and v is not None:
            if u[1] <= v[0] or v[1] <= u[0]:
                return True
        elif pairs.is_disjoint(x, y, lo, lo + n):
            return True
    return False


def _count_common(r: Region, s: Region) -> int:
    total = 1
    for u, v, x, y, lo, n in zip(r.spans, s.spans, r.nests, s.nests, r.start, r.shape, strict=True):
        if u is not None and v is not None:
            common = min(u[1], v[1]) - max(u[0], v[0])
        elif u is not None:
            common = nests.count(y, *u)
        elif v is not None:
            common = nests.count(x, *v)
        else:
            common = pairs.count_common(x, y, lo, lo + n)
        if common <= 0:
            return 0
        total *= common
    return total


def _first_common(r: Region, s: Region) -> Ints | None:
    found = []
    for x, y, lo, n in zip(r.nests, s.nests, r.start, r.shape, strict=True):
        z = pairs.first_common(x, y, lo, lo + n)
        if z is None:
            return None
        found.append(z)
    return tuple(found)


def _meet(r: Region, s: Region, out: list[Region]) -> None:
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
    for x, y, lo, n in zip(r.nests, s.nests, r.start, r.shape, strict=True):
        axes.append(_meet_axis(x, y, lo, lo + n))
        if not axes[-1]:
            return
    out += [Region._of(r.shape, raw, r.start) for raw in product(*axes)]


@lru_cache(maxsize=1 << 12)
def _meet_axis_cached(x: Nest, y: Nest, lo: int, hi: int) -> tuple[Nest, ...]:
    return tuple(explicit.meet_within(x, y, lo, hi))


def _meet_axis(x: Nest, y: Nest, lo: int, hi: int) -> list[Nest]:
    if not x or x == y:
        return [y]
    if not y:
        return [x]
    return list(_meet_axis_cached(x, y, lo, hi))


def _subtract(left: Iterable[Region], right: Iterable[Region]) -> list[Region]:
    kept = list(left)
    for s in right:
        kept = [piece for r in kept for piece in _subtract_one(r, s)]
        check_pieces(len(kept), "difference of regions")
    return kept


def _subtract_one(r: Region, s: Region) -> list[Region]:
    """Return r - s: for each axis what s lacks there, of what is common on the axes before it."""
    if r.is_empty or s.is_empty:
        return list(r.regions)
    if r.is_box and s.is_box:
        return _subtract_boxes(r, s)
    if _disjoint(r, s):
        return [r]
    out: list[Region] = []
    common: list[list[Nest]] = []
    for axis, (x, y, lo, n) in enumerate(zip(r.nests, s.nests, r.start, r.shape, strict=True)):
        for missing in explicit.subtract_within(x, y, lo, lo + n) if x != y else []:
            tail = (missing, *r.nests[axis + 1 :])
            out += [Region._of(r.shape, (*head, *tail), r.start) for head in product(*common)]
        common.append(_meet_axis(x, y, lo, lo + n))
    return out


def _subtract_boxes(r: Region, s: Region) -> list[Region]:
    """Return r - s of two boxes: on each axis the parts of r on both sides of s."""
    out: list[Region] = []
    spans = [span for span in r.spans if span is not None]
    for axis, (u, v) in enumerate(zip(spans[:], s.spans, strict=True)):
        if v is None:
            raise AssertionError(f"{s!r} is no box")
        lo, hi = max(u[0], v[0]), min(u[1], v[1])
        if lo >= hi:
            return [r]
        for side in ((u[0], lo), (hi, u[1])):
            if side[0] < side[1]:
                part = (*spans[:axis], side, *spans[axis + 1 :])
                out.append(Region._spanning(r.shape, part, r.start))
        spans[axis] = (lo, hi)
    return out


def _merge(members: Sequence[Region]) -> list[Region]:
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


# ------------------------------------------------------------------ row-major order


def _flat(r: Region) -> Nest:
    """Return the row-major indices of a region that starts at zero, as one nest."""
    if r.is_empty:
        return EMPTY
    levels: list[tuple[int, int, int]] = []
    size = prod(r.shape)
    for s, n in zip(r.nests, r.shape, strict=True):
        size //= n
        # each index along this axis is a block of `size`; the pattern restarts where the axis does
        levels += [(n * size, n * size, 0), *nests.scale(s, size)]
    return nests.canonical(levels)


def unflatten(setts: Sett | Setts, shape: Sequence[int]) -> Regions:
    """Return the points whose row-major indices are in `setts`, in the box of `shape` from zero.

    Parameters
    ----------
    setts : Sett or Setts
        Only their elements in [0, product of the shape) count.
    shape : sequence of int

    Returns
    -------
    Regions

    Raises
    ------
    TooManyPieces
        If more than 10,000 regions are needed.

    Examples
    --------
    >>> print(unflatten(Sett(Stripe(1, 2)), (4, 4)))
    1..1
    ..1.
    .1..
    1..1
    """
    box, origin = _checked_box(shape, None)
    members = setts.members if isinstance(setts, Setts) else (setts,)
    found = [region for s in members for region in _unflatten(s.nest, box)]
    return Regions._of(box, _merge(found), origin)


def _unflatten(s: Nest, shape: Ints) -> list[Region]:
    """Return the region of the indices in a nest, splitting off the last axis first."""
    size = prod(shape)
    if not size:
        return []
    pieces: list[tuple[Nest, tuple[Nest, ...]]] = [(nests.in_window(s, 0, size), ())]
    for n in reversed(shape):
        size //= n
        pieces = [(rows, (columns, *rest)) for flat, rest in pieces for rows, columns in _split(flat, n, size)]
        check_pieces(len(pieces), f"reshape to {shape}")
    zeros = (0,) * len(shape)
    return [Region._of(shape, axes, zeros) for rows, axes in pieces if nests.contains(rows, 0)]


def _split(s: Nest, n: int, rows: int) -> list[tuple[Nest, Nest]]:
    """Return the elements in [0, rows * n) as a disjoint union of (rows) x (columns) of rows of n."""
    if s == EMPTY:
        return []
    if not s or n % s[0][1] == 0:
        return [((), s)]
    a, P, p = s[0]
    g = gcd(P, n)
    found: list[tuple[Nest, Nest]] = []
    if P % n == 0:
        found = _split_block(a, P, p, s[1:], n)
    elif n < P:
        for start in _block_starts(a, P, p, rows * n, n // g):
            found += _split_block(a, lcm(P, n), start, s[1:], n)
            check_pieces(len(found), f"rows of {n}")
    else:
        distinct = min(rows, P // g)
        check_pieces(distinct, f"rows of {n}")
        for row in range(distinct):
            item = nests.clip(s, row * n, row * n + n)
            if item is not None:
                found.append((nests.canonical([(1, P // g, row)]), _column(item, row * n, n)))
    return _join_rows(found)


def _block_starts(a: int, P: int, p: int, end: int, in_common: int) -> range:
    """Return the starts of the blocks that meet [0, end), or of one common period if these are fewer."""
    first = -((p + a - 1) // P)
    meeting = -(-(end - p) // P) - first
    return range(p + first * P, p + (first + min(meeting, in_common)) * P, P)


def _column(item: Item, offset: int, n: int) -> Nest:
    return explicit.from_items([item._replace(start=item.start - offset)], 0, n)[0]


def _split_block(a: int, P: int, p: int, tail: Nest, n: int) -> list[tuple[Nest, Nest]]:
    """Split the blocks (a, P, p) with `tail` inside, where n divides P: first row, whole rows, last row."""
    first, last = p // n, (p + a - 1) // n
    found: list[tuple[Nest, Nest]] = []
    whole_from, whole_to = -(-p // n), (p + a) // n
    if whole_from < whole_to:
        inside = _split(nests.shift(tail, p - whole_from * n), n, whole_to - whole_from)
        level = (whole_to - whole_from, P // n, whole_from)
        found += [(nests.canonical([level, *rows]), columns) for rows, columns in inside]
    for row in {first, last}:
        if whole_from <= row < whole_to:
            continue
        item = nests.clip(tail, max(0, row * n - p), min(a, row * n + n - p))
        if item is not None:
            found.append((nests.canonical([(1, P // n, row)]), _column(item, row * n - p, n)))
    return found


def _join_rows(found: list[tuple[Nest, Nest]]) -> list[tuple[Nest, Nest]]:
    """Join pieces with the same columns."""
    by_columns: dict[Nest, list[Nest]] = {}
    for rows, columns in found:
        if rows != EMPTY:
            by_columns.setdefault(columns, []).append(rows)
    return [(rows, columns) for columns, group in by_columns.items() for rows in explicit.merge_nests(group)]
