"""Batches of regions: products of intervals, steps or stripes in one box, and every pair of them at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from tapestry_sets.batch import batches, kernels, tuning
from tapestry_sets.batch.kernels import Array, Namespace, PairColumns
from tapestry_sets.integers import Nest, Sett, Stripe
from tapestry_sets.limits import as_ints, as_items, make_unchecked, put_fields, quote
from tapestry_sets.regions import Box, Region


class RegionArray(batches.Batch):
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
    >>> from tapestry_sets import RegionArray
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

    __slots__ = ("box", "deep", "high", "is_empty", "low", "on", "period", "phase", "regions", "row")
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
        extents = as_ints(shape, "RegionArray: shape")
        box = Box((0,) * len(extents) if start is None else as_ints(start, "RegionArray: start"), extents)
        xp, (u, v, s), columns = batches.axes_columns({"low": low, "high": high, "step": step}, "RegionArray")
        if columns[-1] != box.rank:
            raise ValueError(
                f"RegionArray: columns of {columns[-1]} axes for shape {quote(box.shape)}; give one entry for each"
            )
        batches.refuse(s < 1, "RegionArray: step", s, "steps must be >= 1; order does not matter to a set")
        batches.refuse(u > v, "RegionArray: low", u, "low must be at most high")
        for axis, (lo, hi) in enumerate(zip(box.start, box.stop, strict=True)):
            need = f"the box is [{lo}, {hi}) on axis {axis}"
            batches.refuse(u[..., axis] < lo, "RegionArray: low", u[..., axis], need)
            batches.refuse(v[..., axis] > hi, "RegionArray: high", v[..., axis], need)
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
        >>> from tapestry_sets import Region, RegionArray
        >>> box = (1024, 1024)
        >>> keys = [(slice(0, 900, 3), slice(5, 50)), (slice(1, None, 3), slice(None)), (slice(7, 8), slice(9, 99, 2))]
        >>> batch = RegionArray.of(Region.from_slices(box, key) for key in keys)
        >>> [list(map(int, pair)) for pair in zip(*batch.overlapping_pairs())]
        [[1, 2]]
        """
        items = as_items(regions, "RegionArray.of: regions", "sequence of regions")
        if not hasattr(xp, "asarray"):
            raise TypeError(f"RegionArray.of: xp must be a module of arrays such as numpy, not {quote(xp)}")
        for k, region in enumerate(items):
            if not isinstance(region, Region):
                raise TypeError(
                    f"RegionArray.of: item {k} must be a Region, not {quote(region)}; of "
                    "DisjointRegions, give the members"
                )
            if (region.shape, region.start) != (items[0].shape, items[0].start):
                raise ValueError(
                    f"RegionArray.of: all regions must be in one box, but item {k} has shape {quote(region.shape)} "
                    f"from {region.start} and item 0 shape {items[0].shape} from {items[0].start}"
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
            For each region and axis the elements of the stripe in [low, high), of which low and high - 1 are two or
            one, and on < period; an interval is (low, high, 1, 1, 0). Taken as they are.

        Examples
        --------
        >>> from tapestry_sets import RegionArray
        >>> rows, columns = [(0, 9, 2, 4, 0), (3, 4, 1, 1, 0)], [(1, 7, 1, 3, 1), (0, 9, 1, 1, 0)]
        >>> batch = RegionArray.of_stripes((9, 9), [rows, columns])
        >>> batch.count_common(batch[::-1]).tolist()
        [2, 2]
        """
        extents = as_ints(shape, "RegionArray.of_stripes: shape")
        n, rank = len(as_items(axes, "RegionArray.of_stripes: axes", "sequence of regions' stripes")), len(extents)
        try:
            columns = np.array(axes)  # not of a dtype that is asked for, which would cut floats
            columns = columns if columns.dtype == np.int64 else kernels.as_column(axes, "RegionArray.of_stripes: axes")
            columns = columns.reshape(n, rank, 5)
        except ValueError:
            raise ValueError(
                f"RegionArray.of_stripes: axes must hold for each region {rank} stripes (low, high, on, period, "
                f"phase), one for each axis of shape {quote(extents)}, not {quote(axes)}"
            ) from None
        none = np.zeros(n, bool)
        rest = {"is_empty": none, "deep": none, "row": np.zeros(n, np.int64), "regions": ()}
        each = dict(zip(COLUMNS, np.moveaxis(columns, -1, 0), strict=True))
        return make_unchecked(cls, box=Box((0,) * rank, extents), **kernels.frozen(**each, **rest))

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
        is_empty = self._at(self.is_empty, key)
        at = key if not kernels.is_array(key) else kernels.to_host(key)
        if not is_empty.shape:
            return self._region(at)
        columns = [getattr(self, name)[batches.as_key(key)] for name in COLUMNS]
        rest = {"box": self.box, "deep": self.deep[at], "row": self.row[at], "regions": self.regions}
        return make_unchecked(
            RegionArray, **kernels.frozen(is_empty=is_empty, **rest, **dict(zip(COLUMNS, columns, strict=True)))
        )

    def _region(self, at: Any) -> Region:
        """Return the region at an index of one item."""
        if self.regions:
            return self.regions[int(self.row[at])]
        if bool(self.is_empty[at]):
            return Region.empty(self.box.shape, self.box.start)
        setts = []
        for axis in range(self.rank):
            lo, hi, on, period, phase = (int(getattr(self, name)[batches.as_key(at)][axis]) for name in COLUMNS)
            setts.append(Sett(Stripe(hi - lo, max(1, self.box.shape[axis]), lo), Stripe(on, period - on, phase - lo)))
        return Region(self.box.shape, setts, self.box.start)

    def bounds(self) -> Box | None:
        """Return the smallest box that holds all points, None without points.

        Examples
        --------
        >>> from tapestry_sets import RegionArray
        >>> RegionArray((9, 9), [[1, 1], [4, 0]], [[3, 3], [8, 2]], 3).bounds()
        Box(start=(1, 0), shape=(7, 2))
        """
        filled = ~kernels.to_host(self.is_empty)
        if not filled.any():
            return None
        low, high = kernels.to_host(self.low)[filled], kernels.to_host(self.high)[filled]
        return Box.from_bounds(low.min(axis=0).tolist(), high.max(axis=0).tolist())

    def overlaps(self, other: RegionArray) -> Array:
        """Return which regions share a point, pair by pair as the batches broadcast.

        Raises
        ------
        TypeError
            If `other` is not a RegionArray.
        ValueError
            If the boxes differ, or the batches do not broadcast.
        """
        meet = self._filled(other, "overlaps")
        for pair in self._pairs(other):
            meet = meet & kernels.answer_axis("overlaps", pair)[0]
        for at, r, s in self._one_by_one(other, meet):
            meet[at] = not r.isdisjoint(s)
        return meet

    def overlap_matrix(self, other: RegionArray | None = None) -> Array:
        """Return for all pairs whether they share a point; see `StripeArray.overlap_matrix`.

        Along each axis what several regions have in common is compared once.
        """
        if other is not None or not self._is_plain("overlap_matrix"):
            return batches.Batch.overlap_matrix(self, other)
        n = len(self)
        columns = [getattr(self, name) for name in COLUMNS]
        alike = np.logical_and.reduce([(x == x[:1]).all(axis=0) for x in columns])
        single = self.period.max(axis=0) <= 1
        each = [
            self._plan_runs(axis) if single[axis] else self._plan_meeting(axis)
            for axis in np.flatnonzero(~alike).tolist()  # what all have in common they meet in
        ]
        filled = ~self.is_empty
        out = np.empty((n, n), np.bool_)
        for rows, others in _upper_blocks(n):
            found = np.logical_and.outer(filled[rows], filled[others])
            for meet in each:
                found &= meet((rows, others))[0]
            out[rows, others] = found
        for rows in _row_blocks(n) if n * n > tuning.PAIRS_AT_ONCE else ():
            out[rows.stop :, rows] = out[rows, rows.stop :].T
            half = np.triu(out[rows, rows])
            out[rows, rows] = half | half.T
        return out

    def _plan_runs(self, axis: int) -> kernels.Answerer:
        """The same along an axis of intervals alone."""
        low, high = np.ascontiguousarray(self.low[:, axis]), np.ascontiguousarray(self.high[:, axis])
        return lambda at: ((low[at[0], None] < high[at[1]]) & (low[at[1]] < high[at[0], None]),)

    def _plan_meeting(self, axis: int) -> kernels.Answerer:
        """What tells for a part of all pairs whether they meet along an axis."""
        rows = np.stack([getattr(self, name)[:, axis] for name in COLUMNS], axis=1)
        number: dict[tuple[int, ...], int] = {}
        numbers = np.array([number.setdefault(row, len(number)) for row in map(tuple, rows.tolist())])
        is_known = 2 * len(number) <= len(rows)
        unique = np.array(list(number), np.int64) if is_known else rows
        m = len(unique)
        run = kernels.plan_axis("overlaps", (*unique.T[:, :, None], *unique.T[:, None]), (m, m))
        if not is_known:
            return run
        table = np.empty((m, m), np.bool_)
        for at in _row_blocks(m):
            (table[at],) = run((at, slice(0, m)))
        return lambda at: (table[numbers[at[0]]][:, numbers[at[1]]],)

    def count_matrix(self) -> Array:
        """Return for all pairs how many points they share, as a symmetric matrix of integers.

        Raises
        ------
        ValueError
            If the batch has not one axis.

        Examples
        --------
        >>> from tapestry_sets import RegionArray
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
            total = batches.total_of("count_matrix", factors, shape, np)
            parts.append(np.where(np.logical_and.outer(filled[at], filled), total, 0))
        return kernels.narrow(
            np.concatenate([x.astype(object) if any(y.dtype == object for y in parts) else x for x in parts])
        )

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
                found = kernels.answer_axis(query, pair)[0]
                if table is None or (found.dtype == object and table.dtype != object):
                    table = np.zeros((m, m), found.dtype) if table is None else table.astype(object)
                table[at, at.start :] = found
                table[at.start :, at] = found.T
            out.append((table, number.reshape(-1)))
        return out

    def first_common(self, other: RegionArray) -> batches.FirstCommon:
        """Return the first common points in row-major order, of which `value` has shape ``(..., rank)``.

        Raises
        ------
        TypeError
            If `other` is not a RegionArray.
        ValueError
            If the boxes differ, or the batches do not broadcast.
        """
        found, values = self._filled(other, "first_common"), []
        for pair in self._pairs(other):
            meet, z = kernels.answer_axis("first_common", pair)
            found = found & meet
            values.append(z)
        first = batches.stack_points(found, values, kernels.namespace(found))
        return _with_points(first, [(at, r.first_common(s)) for at, r, s in self._one_by_one(other, found)])

    def count_common(self, other: RegionArray) -> Array:
        """Return how many points pairs of regions share.

        Raises
        ------
        TypeError
            If `other` is not a RegionArray.
        ValueError
            If the boxes differ, or the batches do not broadcast.

        Examples
        --------
        >>> from tapestry_sets import RegionArray
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
        xp = kernels.namespace(filled)
        factors = [kernels.answer_axis("count_common", pair)[0] for pair in self._pairs(other)]
        total = batches.total_of("count_common", factors, tuple(filled.shape), xp)
        if total.dtype == object:
            return kernels.narrow(np.where(kernels.to_host(filled), total, 0), xp)
        return xp.where(filled, total, xp.zeros_like(total))

    def _filled(self, other: RegionArray, verb: str) -> Array:
        """Return which pairs have points on both sides, once the batches are checked."""
        if not isinstance(other, RegionArray):
            raise TypeError(f"{verb}: takes a RegionArray, not {type(other).__name__}; RegionArray.of makes one")
        if self.box != other.box:
            raise ValueError(f"{verb}: both batches must be in one box, not {quote(self.box)} and {quote(other.box)}")
        kernels.broadcast_shape(verb, self.batch_shape, other.batch_shape)
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
        for at in zip(*np.nonzero((self.deep | other.deep) & kernels.to_host(maybe)), strict=True):
            r, s = (x._region(_own_index(at, x.batch_shape)) for x in (self, other))
            yield tuple(map(int, at)), r, s


COLUMNS = ("low", "high", "on", "period", "phase")


def _row_blocks(n: int) -> Iterator[slice]:
    """Yield the rows of a matrix of n columns, some at a time."""
    rows = max(1, 2 * tuning.PAIRS_AT_ONCE // max(1, n))
    for at in range(0, n, rows):
        yield slice(at, min(at + rows, n))


def _upper_blocks(n: int) -> Iterator[tuple[slice, slice]]:
    """Yield the upper half of a square matrix, the diagonal included, as rows from their own place on."""
    start = 0
    while start < n:
        stop = min(n, start + max(1, tuning.PAIRS_AT_ONCE // (n - start)))
        yield slice(start, stop), slice(start, n)
        start = stop


def _own_index(at: tuple[Any, ...], shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return where an entry of a broadcast array comes from."""
    return tuple(int(k) if n > 1 else 0 for k, n in zip(at[len(at) - len(shape) :], shape, strict=True))


def _with_counts(total: Array, single: list[tuple[tuple[int, ...], int]]) -> Array:
    if single and total.dtype != object and any(n > kernels.INT64[1] for _, n in single):
        total = kernels.to_host(total).astype(object)
    for at, n in single:
        total[at] = n
    return total


def _with_points(
    first: batches.FirstCommon, single: list[tuple[tuple[int, ...], tuple[int, ...] | None]]
) -> batches.FirstCommon:
    found, value = first
    if value.dtype != object and any(
        not kernels.INT64[0] <= z <= kernels.INT64[1] for _, point in single for z in point or ()
    ):
        value = kernels.to_host(value).astype(object)
    for at, point in single:
        found[at] = point is not None
        for axis in range(value.shape[-1]):
            value[(*at, axis)] = point[axis] if point else 0
    return batches.FirstCommon(found, value)


def _tighten(out: RegionArray, box: Box, columns: tuple[Array, ...], is_empty: Array) -> None:
    """Set the columns of a batch, its ends brought to elements and whole periods to single points."""
    low, high = kernels.solve("RegionArray", kernels.STRIPE_ENDS, columns)
    xp, (low, high, on, period, phase) = kernels.together(low, high, *columns[2:])
    is_empty = (
        kernels.to_host(is_empty) if xp is np else is_empty
    )  # as are all columns once one number needs Python integers
    empty, one, none = is_empty[..., None], xp.ones_like(low), xp.zeros_like(low)
    solid = empty | (on == period)
    low, high = xp.where(empty, none, low), xp.where(empty, none, high)
    on, period, phase = xp.where(solid, one, on), xp.where(solid, one, period), xp.where(solid, none, phase)
    shape = tuple(is_empty.shape)
    found = kernels.frozen(low=low, high=high, on=on, period=period, phase=phase, is_empty=is_empty)
    put_fields(out, box=box, **found)
    put_fields(out, regions=(), **kernels.frozen(deep=np.zeros(shape, bool), row=np.zeros(shape, np.int64)))


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
    columns = kernels.as_column(rows, "RegionArray.of: regions") if rank else np.zeros((n, 0, 5), np.int64)
    columns = xp.asarray(columns) if columns.dtype != object else columns
    is_empty = np.array([region.is_empty for region in items], bool)
    out = object.__new__(RegionArray)
    _tighten(out, Box(items[0].start, items[0].shape), tuple(columns[..., k] for k in range(5)), xp.asarray(is_empty))
    put_fields(out, regions=items, **kernels.frozen(deep=np.array(deep, bool), row=np.arange(n)))
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
