"""Batches: many stripes, boxes or regions as columns of integers, and every pair of them answered at once.

A batch holds one array for each number of its items, so that one pass over the columns answers for all pairs.
Batches broadcast as NumPy arrays do: ``a[:, None]`` against ``b`` is every pair. Columns may be arrays of NumPy
or of any library that follows the Array API standard, CuPy among them; answers are arrays of the same library.

Every answer is exact: int64 where all of it fits, else a NumPy array of Python integers; see `columns`. Pairs are
answered block by block, so that beside the answers little memory is needed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np

from tapestry_sets.batch.columns import (
    BLOCK,
    INT64,
    PRODUCT,
    STRIPE_COUNT,
    STRIPE_ENDS,
    STRIPES_COUNT,
    STRIPES_FIRST,
    STRIPES_MEET,
    Array,
    Form,
    Namespace,
    PairColumns,
    answer_axis,
    as_column,
    broadcast_shape,
    is_array,
    namespace,
    narrow,
    solve,
    to_host,
    together,
)
from tapestry_sets.integers import Level, Nest, Sett, Stripe
from tapestry_sets.regions import Box, Region


class FirstCommon(NamedTuple):
    """The first common elements of pairs.

    Attributes
    ----------
    found : array of bool
        Whether there is one.
    value : array of int64, or of Python integers where one does not fit
        The elements, 0 where there is none. Points of regions and boxes have one more axis, of length rank.
    """

    found: Array
    value: Array


# ----------------------------------------------------------------------------------------------------- batches


def _first_row(bad: Array) -> str:
    """Return how an error names the first row of which something holds."""
    at = np.argwhere(to_host(bad))[0].tolist()
    return f"row {at[0]}" if len(at) == 1 else f"row {tuple(at)}" if at else "the only row"


def _refuse(bad: Array, what: str, values: Array, need: str) -> None:
    """Raise ValueError if something holds of a row, naming the row and its value."""
    if bool(namespace(bad).any(bad)):
        value = to_host(values)[to_host(bad)].tolist()[0]
        raise ValueError(f"{what} is {value} in {_first_row(bad)}; {need}")


def _in_box(key: object) -> Any:
    """Return an index of a batch as one of its columns with an axis more."""
    if is_array(key) or isinstance(key, list):
        return key
    return (*key, slice(None)) if isinstance(key, tuple) else (key, slice(None))


class _Batch(ABC):
    """What batches of stripes, boxes and regions share."""

    __slots__ = ()

    @property
    @abstractmethod
    def batch_shape(self) -> tuple[int, ...]:
        """The shape of the batch: ``(n,)`` for a list of n."""

    @abstractmethod
    def __getitem__(self, key: Any) -> Any:
        """Return the item at an integer, or the batch at any other index that an array takes."""

    @abstractmethod
    def overlaps(self, other: Self) -> Array:
        """Return which items share an element."""

    def __len__(self) -> int:
        if not self.batch_shape:
            raise TypeError(f"{type(self).__name__}: a batch of no axes has no length")
        return self.batch_shape[0]

    def __iter__(self) -> Iterator[Any]:
        return (self[k] for k in range(len(self)))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of batch shape {self.batch_shape}>"

    def isdisjoint(self, other: Self) -> Array:
        """Return which items share no element; see `overlaps`."""
        return ~self.overlaps(other)

    def overlap_matrix(self, other: Self | None = None) -> Array:
        """Return for all pairs whether they share an element, as a matrix of bool.

        Parameters
        ----------
        other : batch, optional
            Of the same kind and one axis; the batch itself by default, of which each pair is asked about once.

        Raises
        ------
        ValueError
            If a batch has not one axis.

        Examples
        --------
        >>> batch = StripeArray(1, [2, 4, 6], [0, 2, 1])
        >>> batch.overlap_matrix().astype(int).tolist()
        [[1, 1, 0], [1, 1, 0], [0, 0, 1]]
        """
        columns = self if other is None else other
        self._listed("overlap_matrix"), columns._listed("overlap_matrix")
        if other is not None or not len(self):
            return self[:, None].overlaps(columns)
        n, rows = len(self), max(1, 2 * BLOCK // len(self))
        out: Array = None
        for at in range(0, n, rows):
            end = min(at + rows, n)
            found = self[at:end, None].overlaps(self[at:])
            if out is None:
                xp = namespace(found)
                out = xp.empty((n, n), dtype=found.dtype)
            out[at:end, at:] = found
            out[at:, at:end] = found.T
        return out

    def overlapping_pairs(self, other: Self | None = None) -> tuple[Array, Array]:
        """Return the pairs that share an element, as their positions in both batches, in order.

        Parameters
        ----------
        other : batch, optional
            Of the same kind and one axis; by default the batch itself, and the pairs are those of i < j.

        Raises
        ------
        ValueError
            If a batch has not one axis.

        Notes
        -----
        Memory grows with the number of the pairs that are returned, not with that of all.

        Examples
        --------
        >>> i, j = StripeArray(1, [2, 4, 6], [0, 2, 1]).overlapping_pairs()
        >>> i.tolist(), j.tolist()
        ([0], [1])
        """
        columns = self if other is None else other
        self._listed("overlapping_pairs"), columns._listed("overlapping_pairs")
        n, rows = len(self), max(1, 8 * BLOCK // max(1, len(columns)))
        parts = []
        for at in range(0, max(1, n), rows):
            left = at if other is None else 0
            found = self[at : min(at + rows, n), None].overlaps(columns[left:])
            xp = namespace(found)
            i, j = xp.nonzero(found)
            i, j = i + at, j + left
            keep = i < j if other is None else i == i
            parts.append((i[keep], j[keep]))
        return tuple(_joined(xp, column) for column in zip(*parts, strict=True))

    def _listed(self, verb: str) -> None:
        if len(self.batch_shape) != 1:
            raise ValueError(f"{verb}: takes batches of one axis, not of shape {self.batch_shape}; reshape the columns")


def _joined(xp: Namespace, parts: Sequence[Array]) -> Array:
    return xp.concat(parts) if hasattr(xp, "concat") else xp.concatenate(parts)


def _put(self: object, **fields: object) -> None:
    for name, value in fields.items():
        object.__setattr__(self, name, value)


@dataclass(frozen=True, slots=True, init=False, eq=False, repr=False)
class StripeArray(_Batch):
    """Stripes {z : (z - phase) mod period < on} as three columns of integers.

    Parameters
    ----------
    on, period, phase : int, sequence or array of integers
        Columns that broadcast to one shape, ``0 <= on <= period`` and ``period > 0``; phases are kept reduced
        modulo the period. NumPy arrays, or those of any library that follows the Array API standard.

    Raises
    ------
    TypeError
        If a column does not hold integers.
    ValueError
        If a value is out of its range, or the shapes do not broadcast.

    Examples
    --------
    >>> batch = StripeArray.of([Stripe(1, 1), Stripe(1, 3, 1), Stripe(2, 4, 2)])
    >>> batch[1], len(batch)
    (Stripe(1, 3, phase=1), 3)
    >>> batch[:, None].overlaps(batch).astype(int).tolist()
    [[1, 0, 1], [0, 1, 1], [1, 1, 1]]
    >>> batch[:, None].count_common(batch, 0, 1200).tolist()
    [[600, 0, 200], [0, 300, 100], [200, 100, 400]]

    References
    ----------
    Tapestry's document on nested striding, "The stripe", for each of the stripes.
    """

    on: Array
    period: Array
    phase: Array

    def __init__(self, on: object, period: object, phase: object = 0) -> None:
        named = {"on": on, "period": period, "phase": phase}
        xp, columns = together(*(as_column(values, f"StripeArray: {name}") for name, values in named.items()))
        shape = broadcast_shape("StripeArray: on, period, phase", *(x.shape for x in columns))
        a, P, p = (xp.broadcast_to(x, shape) for x in columns)
        _refuse(P <= 0, "StripeArray: period", P, "periods must be >= 1")
        _refuse(a < 0, "StripeArray: on", a, "give how many elements a block has, >= 0")
        _refuse(a > P, "StripeArray: on", a, "on must be at most the period")
        _put(self, on=a, period=P, phase=p % P)

    @classmethod
    def of(cls, stripes: Iterable[Stripe]) -> StripeArray:
        """Return stripes as a batch of one axis.

        Raises
        ------
        TypeError
            If an item is not a Stripe.
        """
        items = list(stripes)
        for k, s in enumerate(items):
            if not isinstance(s, Stripe):
                raise TypeError(f"StripeArray.of: item {k} must be a Stripe, not {s!r}")
        levels: list[Level] = [s.level for s in items]
        return cls(*([level[k] for level in levels] for k in range(3)))

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """The shape of the batch: ``(n,)`` for a list of n."""
        return tuple(self.on.shape)

    def __getitem__(self, key: Any) -> Any:
        columns = [x[key] for x in self._columns]
        if not columns[0].shape if hasattr(columns[0], "shape") else True:
            a, P, p = map(int, columns)
            return Stripe(a, P - a, p)
        out = object.__new__(StripeArray)
        _put(out, on=columns[0], period=columns[1], phase=columns[2])
        return out

    @property
    def _columns(self) -> tuple[Array, Array, Array]:
        return self.on, self.period, self.phase

    def _with(self, other: object, verb: str) -> tuple[Array, ...]:
        if not isinstance(other, StripeArray):
            raise TypeError(f"{verb}: takes a StripeArray, not {type(other).__name__}; StripeArray.of makes one")
        return (*self._columns, *other._columns)

    def overlaps(self, other: StripeArray) -> Array:
        """Return which stripes share an integer, pair by pair as the batches broadcast.

        Examples
        --------
        >>> StripeArray(1, [6, 6, 7]).overlaps(StripeArray(1, 4, [3, 2, 3])).tolist()
        [False, True, True]
        """
        return solve("overlaps", STRIPES_MEET, self._with(other, "overlaps"))[0]

    def first_common(self, other: StripeArray, start: object) -> FirstCommon:
        """Return the smallest common elements >= start.

        Parameters
        ----------
        other : StripeArray
        start : int, sequence or array of integers
            Broadcasts with the batches.

        Examples
        --------
        >>> found, value = StripeArray(1, 4294967291).first_common(StripeArray(1, 4294967279), [0, 1])
        >>> found.tolist(), value.tolist()
        ([True, True], [0, 18446743979220271189])
        """
        columns = (*self._with(other, "first_common"), as_column(start, "first_common: start"))
        return FirstCommon(*solve("first_common", STRIPES_FIRST, columns))

    def count_common(self, other: StripeArray, start: object, stop: object) -> Array:
        """Return how many common elements lie in [start, stop).

        Parameters
        ----------
        other : StripeArray
        start, stop : int, sequence or array of integers
            ``start <= stop``; they broadcast with the batches.

        Raises
        ------
        ValueError
            If a start is after its stop.

        Examples
        --------
        >>> StripeArray([1, 50001], [2, 100003]).count_common(StripeArray(50009, 100019), 0, 10**12).tolist()
        [249997509500, 249978719600]
        """
        columns = (*self._with(other, "count_common"), *_range_columns(start, stop, "count_common"))
        return solve("count_common", STRIPES_COUNT, columns)[0]

    def count(self, start: object, stop: object) -> Array:
        """Return how many elements lie in [start, stop).

        Raises
        ------
        ValueError
            If a start is after its stop.

        Examples
        --------
        >>> StripeArray(2, [3, 4], 1).count(0, [10, 11]).tolist()
        [6, 6]
        """
        columns = (*self._columns, *_range_columns(start, stop, "count"))
        return solve("count", STRIPE_COUNT, columns)[0]


def _range_columns(start: object, stop: object, verb: str) -> tuple[Array, Array]:
    lo, hi = as_column(start, f"{verb}: start"), as_column(stop, f"{verb}: stop")
    shape = broadcast_shape(f"{verb}: start, stop", lo.shape, hi.shape)
    xp, (u, v) = together(lo, hi)
    bad = xp.broadcast_to(u > v, shape)
    _refuse(bad, f"{verb}: start", xp.broadcast_to(u, shape), "start must not be after stop")
    return u, v


def _axes_columns(columns: dict[str, object], what: str) -> tuple[Namespace, tuple[Array, ...], tuple[int, ...]]:
    """Return columns with a last axis for the axes of points, broadcast to one shape."""
    xp, made = together(*(as_column(values, f"{what}: {name}") for name, values in columns.items()))
    shape = broadcast_shape(f"{what}: {', '.join(columns)}", *(x.shape for x in made))
    if not shape:
        raise ValueError(f"{what}: {', '.join(columns)} need a last axis, one entry for each axis of the points")
    return xp, tuple(xp.broadcast_to(x, shape) for x in made), shape


def _total(what: str, factors: Sequence[Array], shape: tuple[int, ...], xp: Namespace) -> Array:
    """Return the product of counts, 1 where there are none."""
    if not factors:
        return xp.ones(shape, dtype=xp.int64)
    return solve(what, PRODUCT, factors)[0]


def _stacked(found: Array, values: Sequence[Array], xp: Namespace) -> FirstCommon:
    """Return points from their coordinates, zeros where none was found."""
    shape = tuple(found.shape)
    if not values:
        return FirstCommon(found, xp.zeros((*shape, 0), dtype=xp.int64))
    if any(x.dtype == object for x in values):
        point = np.stack([np.broadcast_to(to_host(x).astype(object), shape) for x in values], axis=-1)
        return FirstCommon(found, narrow(np.where(to_host(found)[..., None], point, 0), xp))
    point = xp.stack([xp.broadcast_to(x, shape) for x in values], axis=-1)
    return FirstCommon(found, xp.where(found[..., None], point, xp.zeros_like(point)))


@dataclass(frozen=True, slots=True, init=False, eq=False, repr=False)
class BoxArray(_Batch):
    """Boxes start + [0, shape) of one rank as two columns of shape ``(..., rank)``.

    Parameters
    ----------
    start, shape : sequence or array of integers
        Columns that broadcast to one shape; extents are >= 0, and a box with an extent of 0 has no points.

    Raises
    ------
    TypeError
        If a column does not hold integers.
    ValueError
        If an extent is negative, or the shapes do not broadcast.

    Examples
    --------
    >>> boxes = BoxArray([[0, 0], [2, 3], [4, 4]], [[3, 4], [2, 2], [9, 9]])
    >>> boxes[1]
    Box(start=(2, 3), shape=(2, 2))
    >>> boxes[:, None].count_common(boxes).tolist()
    [[12, 1, 0], [1, 4, 0], [0, 0, 81]]
    >>> boxes.bounds()
    Box(start=(0, 0), shape=(13, 13))

    References
    ----------
    Tapestry, "Index Projection Functions": ZRange(start, shape), for each of the boxes.
    """

    start: Array
    shape: Array

    def __init__(self, start: object, shape: object) -> None:
        _, (low, extent), _ = _axes_columns({"start": start, "shape": shape}, "BoxArray")
        _refuse(extent < 0, "BoxArray: an extent", extent, "extents must be >= 0")
        _put(self, start=low, shape=extent)

    @classmethod
    def of(cls, boxes: Iterable[Box]) -> BoxArray:
        """Return boxes of one rank, at least one of them, as a batch of one axis.

        Raises
        ------
        TypeError
            If an item is not a Box.
        ValueError
            If there is none, or the ranks differ.
        """
        items = list(boxes)
        for k, box in enumerate(items):
            if not isinstance(box, Box):
                raise TypeError(f"BoxArray.of: item {k} must be a Box, not {box!r}")
            if box.rank != items[0].rank:
                raise ValueError(f"BoxArray.of: item {k} has rank {box.rank} but item 0 has rank {items[0].rank}")
        if not items:
            raise ValueError("BoxArray.of: no boxes, so that no rank is known; write BoxArray(zeros((0, rank)), 0)")
        return cls([box.start for box in items], [box.shape for box in items])

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """The shape of the batch: ``(n,)`` for a list of n."""
        return tuple(self.start.shape[:-1])

    @property
    def rank(self) -> int:
        """How many axes each box has."""
        return int(self.start.shape[-1])

    @property
    def stop(self) -> Array:
        """One past the last point of each box on each axis."""
        return solve("BoxArray.stop", SUM, (self.start, self.shape))[0]

    @property
    def size(self) -> Array:
        """How many points each box has."""
        factors = [self.shape[..., axis] for axis in range(self.rank)]
        return _total("BoxArray.size", factors, self.batch_shape, namespace(self.shape))

    def __getitem__(self, key: Any) -> Any:
        start, shape = self.start[_in_box(key)], self.shape[_in_box(key)]
        if len(start.shape) == 1:
            return Box(tuple(to_host(start).tolist()), tuple(to_host(shape).tolist()))
        out = object.__new__(BoxArray)
        _put(out, start=start, shape=shape)
        return out

    def bounds(self) -> Box | None:
        """Return the smallest box that holds all points, None without points."""
        low, extent, high = to_host(self.start), to_host(self.shape), to_host(self.stop)
        filled = (extent > 0).all(axis=-1)
        if not filled.any():
            return None
        return Box.from_bounds(low[filled].min(axis=0).tolist(), high[filled].max(axis=0).tolist())

    def intersection(self, other: BoxArray) -> BoxArray:
        """Return the boxes of the common points; where there are none, an extent is 0.

        Raises
        ------
        ValueError
            If the ranks differ.
        """
        if not isinstance(other, BoxArray):
            raise TypeError(f"intersection: takes a BoxArray, not {type(other).__name__}; BoxArray.of makes one")
        if self.rank != other.rank:
            raise ValueError(f"intersection: boxes of rank {self.rank} and boxes of rank {other.rank}")
        columns = (self.start, self.stop, other.start, other.stop)
        return BoxArray(*solve("intersection", COMMON_BOX, columns))

    def overlaps(self, other: BoxArray) -> Array:
        """Return which boxes share a point.

        Raises
        ------
        ValueError
            If the ranks differ.
        """
        common = self.intersection(other)
        return namespace(common.shape).all(common.shape > 0, axis=-1)

    def count_common(self, other: BoxArray) -> Array:
        """Return how many points pairs of boxes share.

        Raises
        ------
        ValueError
            If the ranks differ.
        """
        return self.intersection(other).size

    def first_common(self, other: BoxArray) -> FirstCommon:
        """Return the first common points in row-major order.

        Raises
        ------
        ValueError
            If the ranks differ.
        """
        common = self.intersection(other)
        xp = namespace(common.start)
        found = xp.all(common.shape > 0, axis=-1)
        return FirstCommon(found, xp.where(found[..., None], common.start, xp.zeros_like(common.start)))


def _sum(xp: Namespace, x: Array, y: Array) -> tuple[Array]:
    return (x + y,)


def _common_box(xp: Namespace, a: Array, end: Array, b: Array, stop: Array) -> tuple[Array, Array]:
    low = xp.maximum(a, b)
    return low, xp.maximum(xp.minimum(end, stop) - low, xp.zeros_like(low))


SUM = Form(_sum, lambda x, y: x + y)
COMMON_BOX = Form(_common_box, lambda a, end, b, stop: a + end + b + stop)


@dataclass(frozen=True, slots=True, init=False, eq=False, repr=False)
class RegionArray(_Batch):
    """Regions in one box as columns: on each axis the points low, low + step, … below high.

    `of` takes regions of any form. On each axis an interval, or one stripe clipped to an interval, is kept in
    columns and answered in closed form. Of a region that is deeper on an axis the columns have the hull there, and
    its pairs whose hulls meet are answered one by one.

    Parameters
    ----------
    shape : sequence of int
        The extents of the box, >= 0.
    low, high, step : sequence or array of integers
        Columns of shape ``(..., rank)`` that broadcast: ``low <= high`` inside the box, ``step >= 1``.
    start : sequence of int, optional
        The box's first point, zeros by default.

    Raises
    ------
    TypeError
        If a column does not hold integers.
    ValueError
        If a value is out of its range, or the shapes do not broadcast or do not fit the box.

    Examples
    --------
    >>> batch = RegionArray((8, 8), [[0, 0], [1, 2], [4, 1]], [[8, 8], [8, 8], [6, 7]], [[2, 2], [2, 2], [1, 3]])
    >>> batch.size.tolist()
    [16, 12, 4]
    >>> batch.overlap_matrix().astype(int).tolist()
    [[1, 0, 1], [0, 1, 1], [1, 1, 1]]
    >>> batch[1:].first_common(batch[:1]).value.tolist()
    [[0, 0], [4, 4]]

    References
    ----------
    Tapestry's document on nested striding, "The region", for each of the regions.
    """

    box: Box
    low: Array
    high: Array
    on: Array
    period: Array
    phase: Array
    is_empty: Array
    deep: Any
    row: Any
    regions: tuple[Region, ...]

    def __init__(
        self, shape: Sequence[int], low: object, high: object, step: object = 1, start: Sequence[int] | None = None
    ) -> None:
        box = Box((0,) * len(shape) if start is None else tuple(start), tuple(shape))
        xp, (u, v, s), columns = _axes_columns({"low": low, "high": high, "step": step}, "RegionArray")
        if columns[-1] != box.rank:
            raise ValueError(
                f"RegionArray: columns of {columns[-1]} axes for shape {box.shape}; give one entry for each"
            )
        _refuse(s < 1, "RegionArray: step", s, "steps must be >= 1; order does not matter to a set")
        _refuse(u > v, "RegionArray: low", u, "low must be at most high")
        for axis, (lo, hi) in enumerate(zip(box.start, box.stop, strict=True)):
            need = f"the box is [{lo}, {hi}) on axis {axis}"
            _refuse(u[..., axis] < lo, "RegionArray: low", u[..., axis], need)
            _refuse(v[..., axis] > hi, "RegionArray: high", v[..., axis], need)
        _tighten(self, box, (u, v, xp.ones_like(u), s, u), xp.asarray(xp.any(u == v, axis=-1)))

    @classmethod
    def of(cls, regions: Iterable[Region], xp: Namespace = np) -> RegionArray:
        """Return regions of one box, at least one of them, as a batch of one axis.

        Parameters
        ----------
        regions : iterable of Region
            Of any form. For `DisjointRegions`, give the `members`.
        xp : module, optional
            The library of the columns, such as ``cupy``.

        Raises
        ------
        TypeError
            If an item is not a Region.
        ValueError
            If there is none, or the boxes differ.

        Examples
        --------
        >>> box = (1024, 1024)
        >>> keys = [(slice(0, 900, 3), slice(5, 50)), (slice(1, None, 3), slice(None)), (slice(7, 8), slice(9, 99, 2))]
        >>> batch = RegionArray.of(Region.from_slices(box, key) for key in keys)
        >>> [list(map(int, pair)) for pair in zip(*batch.overlapping_pairs())]
        [[1, 2]]
        """
        items = tuple(regions)
        for k, region in enumerate(items):
            if not isinstance(region, Region):
                raise TypeError(f"RegionArray.of: item {k} must be a Region, not {region!r}; of Regions, the members")
            if (region.shape, region.start) != (items[0].shape, items[0].start):
                raise ValueError(
                    f"RegionArray.of: all regions must be in one box, but item {k} has shape {region.shape} from "
                    f"{region.start} and item 0 shape {items[0].shape} from {items[0].start}"
                )
        if not items:
            raise ValueError("RegionArray.of: no regions, so that no box is known; write RegionArray(shape, …)")
        return _from_regions(items, xp)

    @classmethod
    def of_stripes(cls, shape: Sequence[int], axes: Sequence[Sequence[tuple[int, int, int, int, int]]]) -> RegionArray:
        """Return regions of a box from 0, each a product of stripes that are not empty, as a batch of one axis.

        Parameters
        ----------
        shape : sequence of int
            The extents of the box.
        axes : sequence of sequences of (low, high, on, period, phase)
            For each region and axis the elements of the stripe in [low, high), at least one; taken as they are.

        Examples
        --------
        >>> rows, columns = [(0, 9, 2, 4, 0), (3, 4, 1, 1, 0)], [(1, 7, 1, 3, 1), (0, 9, 1, 1, 0)]
        >>> batch = RegionArray.of_stripes((9, 9), [rows, columns])
        >>> batch.count_common(batch[::-1]).tolist()
        [2, 2]
        """
        n, rank = len(axes), len(shape)
        columns = as_column(axes, "RegionArray.of_stripes: axes") if n and rank else np.zeros((n, rank, 5), np.int64)
        out = object.__new__(cls)
        box = Box((0,) * rank, tuple(shape))
        _tighten(out, box, tuple(columns[..., k] for k in range(5)), np.zeros(n, bool))
        return out

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """The shape of the batch: ``(n,)`` for a list of n."""
        return tuple(self.is_empty.shape)

    @property
    def rank(self) -> int:
        """How many axes the box has."""
        return self.box.rank

    @property
    def size(self) -> Array:
        """How many points each region has."""
        total = self._counts(self)
        return _with_counts(total, [(at, r.size) for at, r, _ in self._one_by_one(self, total != 0)])

    def __getitem__(self, key: Any) -> Any:
        is_empty = self.is_empty[key]
        at = key if not is_array(key) else to_host(key)
        if not is_empty.shape:
            return self._region(at)
        columns = [getattr(self, name)[_in_box(key)] for name in COLUMNS]
        return _region_array(self.box, columns, is_empty, self.deep[at], self.row[at], self.regions)

    def _region(self, at: Any) -> Region:
        """Return the region at an index of one item."""
        if self.regions:
            return self.regions[int(self.row[at])]
        if bool(self.is_empty[at]):
            return Region.empty(self.box.shape, self.box.start)
        setts = []
        for axis in range(self.rank):
            lo, hi, on, period, phase = (int(getattr(self, name)[_in_box(at)][axis]) for name in COLUMNS)
            setts.append(Sett(Stripe(hi - lo, max(1, self.box.shape[axis]), lo), Stripe(on, period - on, phase - lo)))
        return Region(self.box.shape, setts, self.box.start)

    def bounds(self) -> Box | None:
        """Return the smallest box that holds all points, None without points.

        Examples
        --------
        >>> RegionArray((9, 9), [[1, 1], [4, 0]], [[3, 3], [8, 2]], 3).bounds()
        Box(start=(1, 0), shape=(7, 2))
        """
        filled = ~to_host(self.is_empty)
        if not filled.any():
            return None
        low, high = to_host(self.low)[filled], to_host(self.high)[filled]
        return Box.from_bounds(low.min(axis=0).tolist(), high.max(axis=0).tolist())

    def overlaps(self, other: RegionArray) -> Array:
        """Return which regions share a point, pair by pair as the batches broadcast.

        Raises
        ------
        TypeError
            If `other` is no RegionArray.
        ValueError
            If the boxes differ, or the batches do not broadcast.
        """
        meet = self._filled(other, "overlaps")
        for pair in self._pairs(other):
            meet = meet & answer_axis("overlaps", pair)[0]
        for at, r, s in self._one_by_one(other, meet):
            meet[at] = not r.isdisjoint(s)
        return meet

    def overlap_matrix(self, other: RegionArray | None = None) -> Array:
        """Return for all pairs whether they share a point; see `StripeArray.overlap_matrix`.

        Along each axis what several regions have in common is compared once.
        """
        if other is not None or not self._is_plain("overlap_matrix"):
            return _Batch.overlap_matrix(self, other)
        n, tables = len(self), self._axis_tables("overlaps")
        out = np.empty((n, n), np.bool_)
        for at in _row_blocks(n):
            found = np.logical_and.outer(~self.is_empty[at], ~self.is_empty)
            for table, number in tables:
                found &= table[number[at]][:, number]
            out[at] = found
        return out

    def count_matrix(self) -> Array:
        """Return for all pairs how many points they share, as a symmetric matrix of integers.

        Raises
        ------
        ValueError
            If the batch has not one axis.

        Examples
        --------
        >>> batch = RegionArray((6, 6), [[0, 0], [1, 2]], [[6, 6], [6, 5]], [[1, 2], [2, 1]])
        >>> batch.count_matrix().tolist()
        [[18, 6], [6, 9]]
        """
        if not self._is_plain("count_matrix"):
            return self[:, None].count_common(self)
        tables = self._axis_tables("count_common")
        filled = ~self.is_empty
        parts = []
        for at in _row_blocks(len(self)):
            factors = [table[number[at]][:, number] for table, number in tables]
            shape = (len(filled[at]), len(filled))
            total = _total("count_matrix", factors, shape, np)
            parts.append(np.where(np.logical_and.outer(filled[at], filled), total, 0))
        return narrow(np.concatenate([x.astype(object) if any(y.dtype == object for y in parts) else x for x in parts]))

    def _is_plain(self, verb: str) -> bool:
        """Whether the columns hold int64 of NumPy, some rows of them, and all there is to know of the regions."""
        self._listed(verb)
        columns = (getattr(self, name) for name in COLUMNS)
        return (
            len(self) > 0
            and not self.deep.any()
            and all(type(x) is np.ndarray and x.dtype == np.int64 for x in columns)
        )

    def _axis_tables(self, query: str) -> list[tuple[Any, Any]]:
        """For each axis the answers for all pairs of what occurs along it, and which of these each region has."""
        out = []
        for axis in range(self.rank):
            columns = np.stack([getattr(self, name)[:, axis] for name in COLUMNS], axis=1)
            unique, number = np.unique(columns, axis=0, return_inverse=True)
            m = len(unique)
            table: Array = None
            for at in _row_blocks(m):
                pair = (*(x[at, None] for x in unique.T), *(x[None, at.start :] for x in unique.T))
                found = answer_axis(query, pair)[0]
                if table is None or (found.dtype == object and table.dtype != object):
                    table = np.zeros((m, m), found.dtype) if table is None else table.astype(object)
                table[at, at.start :] = found
                table[at.start :, at] = found.T
            out.append((table, number.reshape(-1)))
        return out

    def first_common(self, other: RegionArray) -> FirstCommon:
        """Return the first common points in row-major order, of which `value` has shape ``(..., rank)``.

        Raises
        ------
        TypeError
            If `other` is no RegionArray.
        ValueError
            If the boxes differ, or the batches do not broadcast.
        """
        found, values = self._filled(other, "first_common"), []
        for pair in self._pairs(other):
            meet, z = answer_axis("first_common", pair)
            found = found & meet
            values.append(z)
        first = _stacked(found, values, namespace(found))
        return _with_points(first, [(at, r.first_common(s)) for at, r, s in self._one_by_one(other, found)])

    def count_common(self, other: RegionArray) -> Array:
        """Return how many points pairs of regions share.

        Raises
        ------
        TypeError
            If `other` is no RegionArray.
        ValueError
            If the boxes differ, or the batches do not broadcast.

        Examples
        --------
        >>> evens = RegionArray((10**6, 10**6), [0, 0], [10**6, 10**6], [2, 1])
        >>> thirds = RegionArray((10**6, 10**6), [0, 0], [10**6, 10**6], [3, 1])
        >>> int(evens.count_common(thirds))
        166667000000
        """
        total = self._counts(other)
        return _with_counts(total, [(at, r.count_common(s)) for at, r, s in self._one_by_one(other, total != 0)])

    def _counts(self, other: RegionArray) -> Array:
        """Return how many points pairs share by their columns alone, which are hulls where a region is deep."""
        filled = self._filled(other, "count_common")
        xp = namespace(filled)
        factors = [answer_axis("count_common", pair)[0] for pair in self._pairs(other)]
        total = _total("count_common", factors, tuple(filled.shape), xp)
        if total.dtype == object:
            return narrow(np.where(to_host(filled), total, 0), xp)
        return xp.where(filled, total, xp.zeros_like(total))

    def _filled(self, other: RegionArray, verb: str) -> Array:
        """Return which pairs have points on both sides, once the batches are checked."""
        if not isinstance(other, RegionArray):
            raise TypeError(f"{verb}: takes a RegionArray, not {type(other).__name__}; RegionArray.of makes one")
        if self.box != other.box:
            raise ValueError(f"{verb}: both batches must be in one box, not {self.box} and {other.box}")
        broadcast_shape(verb, self.batch_shape, other.batch_shape)
        return ~(self.is_empty | other.is_empty)

    def _pairs(self, other: RegionArray) -> Iterator[PairColumns]:
        """Yield for each axis the columns of both batches."""
        mine, theirs = (tuple(getattr(x, name) for name in COLUMNS) for x in (self, other))
        for axis in range(self.rank):
            yield tuple(x[..., axis] for x in (*mine, *theirs))

    def _one_by_one(self, other: RegionArray, maybe: Array) -> Iterator[tuple[tuple[int, ...], Region, Region]]:
        """Yield the pairs that may meet of which a region is deeper than its columns, and where they are."""
        if not (self.deep.any() or other.deep.any()):
            return
        for at in zip(*np.nonzero((self.deep | other.deep) & to_host(maybe)), strict=True):
            r, s = (x._region(_own_index(at, x.batch_shape)) for x in (self, other))
            yield tuple(map(int, at)), r, s


COLUMNS = ("low", "high", "on", "period", "phase")


def _row_blocks(n: int) -> Iterator[slice]:
    """Yield the rows of a matrix of n columns, some at a time."""
    rows = max(1, 2 * BLOCK // max(1, n))
    for at in range(0, n, rows):
        yield slice(at, min(at + rows, n))


def _own_index(at: tuple[Any, ...], shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return where an entry of a broadcast array comes from."""
    return tuple(int(k) if n > 1 else 0 for k, n in zip(at[len(at) - len(shape) :], shape, strict=True))


def _with_counts(total: Array, single: list[tuple[tuple[int, ...], int]]) -> Array:
    if single and total.dtype != object and any(n > INT64[1] for _, n in single):
        total = to_host(total).astype(object)
    for at, n in single:
        total[at] = n
    return total


def _with_points(first: FirstCommon, single: list[tuple[tuple[int, ...], tuple[int, ...] | None]]) -> FirstCommon:
    found, value = first
    if value.dtype != object and any(not INT64[0] <= z <= INT64[1] for _, point in single for z in point or ()):
        value = to_host(value).astype(object)
    for at, point in single:
        found[at] = point is not None
        for axis in range(value.shape[-1]):
            value[(*at, axis)] = point[axis] if point else 0
    return FirstCommon(found, value)


def _region_array(
    box: Box, columns: Sequence[Array], is_empty: Array, deep: Any, row: Any, regions: tuple[Region, ...]
) -> RegionArray:
    out = object.__new__(RegionArray)
    _put(
        out, box=box, is_empty=is_empty, deep=deep, row=row, regions=regions, **dict(zip(COLUMNS, columns, strict=True))
    )
    return out


def _tighten(out: RegionArray, box: Box, columns: tuple[Array, ...], is_empty: Array) -> None:
    """Set the columns of a batch, its ends brought to elements and whole periods to single points."""
    low, high = solve("RegionArray", STRIPE_ENDS, columns)
    xp, (low, high, on, period, phase) = together(low, high, *columns[2:])
    is_empty = to_host(is_empty) if xp is np else is_empty  # as are all columns once one number needs Python integers
    empty, one, none = is_empty[..., None], xp.ones_like(low), xp.zeros_like(low)
    solid = empty | (on == period)
    low, high = xp.where(empty, none, low), xp.where(empty, none, high)
    on, period, phase = xp.where(solid, one, on), xp.where(solid, one, period), xp.where(solid, none, phase)
    shape = tuple(is_empty.shape)
    _put(out, box=box, low=low, high=high, on=on, period=period, phase=phase, is_empty=is_empty)
    _put(out, deep=np.zeros(shape, bool), row=np.zeros(shape, np.int64), regions=())


def _from_regions(items: tuple[Region, ...], xp: Namespace) -> RegionArray:
    """Return a batch of regions, at least one, which are in one box."""
    n, rank = len(items), items[0].rank
    ends = [(lo, lo + extent) for lo, extent in zip(items[0].start, items[0].shape, strict=True)]
    rows, deep = [], []
    for region in items:
        levels = [_level(s, span, *end) for s, span, end in zip(region.nests, region.spans, ends, strict=True)]
        deep.append(None in levels)
        if None in levels:
            low, high = region.bounds() or ((), ())
            levels = [level or (u, v, 1, 1, 0) for level, u, v in zip(levels, low, high, strict=True)]
        rows.append(levels)
    columns = as_column(rows, "RegionArray.of: regions") if rank else np.zeros((n, 0, 5), np.int64)
    columns = xp.asarray(columns) if columns.dtype != object else columns
    is_empty = np.array([region.is_empty for region in items], bool)
    out = object.__new__(RegionArray)
    _tighten(out, Box(items[0].start, items[0].shape), tuple(columns[..., k] for k in range(5)), xp.asarray(is_empty))
    _put(out, deep=np.array(deep, bool), row=np.arange(n), regions=items)
    return out


def _level(s: Nest, span: tuple[int, int] | None, lo: int, hi: int) -> tuple[int, int, int, int, int] | None:
    """Return a nest in [lo, hi) as an interval and one stripe (on, period, phase) in it, None if it is deeper."""
    if span is not None:
        return (*span, 1, 1, 0)
    if len(s) == 1:
        return (lo, hi, *s[0])
    if len(s) > 2:
        return None
    (on, period, phase), (a, P, p) = s
    first = lo + (phase - lo) % period
    alone = first - period + on <= lo and first + on <= hi <= first + period  # no second block reaches into [lo, hi)
    return (first, first + on, a, P, p + first) if alone else None
