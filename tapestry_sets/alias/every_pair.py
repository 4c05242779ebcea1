"""All pairs of many views at once: which of them share a cell, and how many cells they share.

Views are put together by allocation. Those that are products of stripes along the allocation's axes, or join such
views, are columns of numbers, and answered in closed form axis by axis (see `batch.RegionArray`). Of the others each is
a few nests: pairs whose bounds meet leap from nest to nest, all at once, until they meet or one of them ends; pairs of
levels that miss each other modulo the gcd of their periods are apart. What this leaves open is asked pair by pair.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import cached_property
from math import prod
from typing import Any, cast

import numpy as np

from tapestry_sets.alias import tuning
from tapestry_sets.alias.ladder.cells import Cells
from tapestry_sets.batch import RegionArray
from tapestry_sets.digits import Strided, reach
from tapestry_sets.integers import Bools, DisjointSetts, Int64Array, Integers, Item, NestSpan, clip, ends_of, members
from tapestry_sets.limits import OPEN, TALLY, Tally, TooHard, ask_one, retell
from tapestry_sets.views import INT64_MAX, Allocation, Derived, View

PairAxis = tuple[int, int, int, int, int]
"""What is read along an axis: first, one past the last, and the stripe (on, period, phase) in between."""
PairBox = tuple[PairAxis, ...]
"""A product of stripes, one an axis."""


class PairRow:
    """The cells of an allocation that one view reads: as stripes along its axes, as few nests, or as it comes.

    Parameters
    ----------
    number : int
        Of the view, among those asked about.
    view : View
    home : Allocation
    boxes : sequence of PairBox
        Together the cells, which several may have; none where they are not products of stripes.
    """

    def __init__(self, number: int, view: View, home: Allocation, boxes: Sequence[PairBox] = ()) -> None:
        self.number, self.view, self.home, self.boxes = number, view, home, boxes

    @property
    def cells(self) -> Cells:
        """The cells that are read."""
        return self.view.cells[self.home]

    @cached_property
    def setts(self) -> Integers | None:
        """The row-major numbers of the cells, where they are held."""
        nest = self.view.as_nest()
        return self.cells.setts if nest is None else DisjointSetts._of((nest[1],))

    @cached_property
    def spans(self) -> list[NestSpan] | None:
        """The numbers as nests and where these begin and end; None if they are not setts."""
        if not isinstance(self.setts, DisjointSetts):
            return None
        return members.spans_of(self.setts._nests, 0, self.home.size)

    @cached_property
    def items(self) -> tuple[Item, ...]:
        """The numbers as few nests that start at an element each; none if they are not few."""
        return _few_items(self.setts, self.home.size)

    @property
    def bounds(self) -> tuple[int, int]:
        """Bounds of the row-major numbers, the upper one not included; tight where that is known at once."""
        if self.items:
            return min(item.start for item in self.items), max(item.start + item.length for item in self.items)
        setts, extent = self.setts, self.home.size
        if setts is not None:
            ends = ends_of(setts, extent)
            return (0, 0) if ends is None else (ends[0], ends[1] + 1)
        sums = self.cells.sums
        return (0, extent) if sums is None else (sums[0], sums[0] + reach(sums[1]) + 1)


def groups(views: Sequence[View]) -> dict[Allocation, list[PairRow]]:
    """Return the cells that the views read of each allocation."""
    found: dict[Allocation, list[PairRow]] = {}
    left = tuning.MAX_BOXES_JOINED
    for k, view in enumerate(views):
        if 0 in view.shape:
            continue
        strided = view.strided_form(fold=False)
        if strided is None:
            joined = _boxes_joined(view, left)
            left -= 0 if joined is None else sum(map(len, joined.values()))
            for home in view.cells if joined is None else joined:
                found.setdefault(home, []).append(PairRow(k, view, home, () if joined is None else joined[home]))
        else:
            home, form = strided
            box = along_axes(form, home.shape)
            found.setdefault(home, []).append(PairRow(k, view, home, () if box is None else (box,)))
    return found


def _boxes_joined(view: View, left: int) -> dict[Allocation, list[PairBox]] | None:
    """What a view reads whose kinds read all of strided views, such as concatenations and pads.

    None if a kind may leave something out, or these are more than are left.
    """
    found: dict[Allocation, list[PairBox]] = {}
    work = [view]
    while work:
        here = work.pop()
        if 0 in here.shape:
            continue
        strided = here.strided_form(fold=False)
        if strided is not None:
            home, form = strided
            box = along_axes(form, home.shape)
            if box is None:
                return None
            found.setdefault(home, []).append(box)
        elif isinstance(here, Derived) and getattr(here.kind, "reads_all", False):
            left -= len(here.sources)
            work += here.sources
        else:
            return None
        if left < 0:
            return None
    return found


def _few_items(setts: Integers | None, extent: int) -> tuple[Item, ...]:
    if not isinstance(setts, DisjointSetts) or len(setts.members) > tuning.MAX_MEMBERS:
        return ()
    found = [clip(member.nest, 0, extent) for member in setts.members]
    items = tuple([item for item in found if item is not None])
    fits = all(item.start + item.length < tuning.MAX_POSITION and len(item.tail) <= tuning.MAX_LEVELS for item in items)
    return items if fits else ()


def along_axes(form: Strided, shape: Sequence[int]) -> tuple[PairAxis, ...] | None:
    """Return a strided view's stripe along each axis of its allocation, if its cells are a product of stripes.

    Examples
    --------
    >>> along_axes((31, (((3, -10),), ((4, 2),))), (4, 10))  # [3:0:-1, 1:8:2]
    ((1, 4, 1, 1, 0), (1, 8, 1, 2, 1))
    >>> along_axes((0, (((4, 11),),)), (4, 10)) is None  # a diagonal
    True
    """
    first, steps = _ascending(form)
    found = _one_digit_each(first, steps, shape)
    if found is not None:
        return found
    weights = [1]
    for n in shape[:0:-1]:
        weights.append(weights[-1] * n)
    extents = shape[::-1]
    places = [first // weight % n for weight, n in zip(weights, extents, strict=False)]
    levels: list[list[tuple[int, int]]] = [[] for _ in shape]
    while steps:
        step, count = steps.pop()
        k = bisect_right(weights, step) - 1
        by, rest = divmod(step, weights[k])
        if rest or not shape:
            return None
        reach = places[k] + sum([(m - 1) * s for m, s in levels[k]])
        if reach + (count - 1) * by >= extents[k]:  # several rows, each from end to end
            turns, rest = divmod(count * by, extents[k])
            if rest or reach >= by or extents[k] % by or k + 1 == len(shape):
                return None
            if turns > 1:
                steps.append((weights[k + 1], turns))
                steps.sort(reverse=True)
            count = extents[k] // by
        levels[k].append((count, by))
    axes = [_stripe(at, digits) for at, digits in zip(places, levels, strict=True)]
    return None if None in axes else tuple(reversed(axes))  # type: ignore[arg-type]


def _one_digit_each(first: int, steps: Sequence[tuple[int, int]], shape: Sequence[int]) -> tuple[PairAxis, ...] | None:
    """The same where each axis has one digit at most, which stays on it, as after slices; else None."""
    axes: list[PairAxis] = []
    many, k, weight = len(steps), 0, prod(shape)
    for n in shape:
        weight //= n
        at, first = divmod(first, weight)
        if k == many or steps[k][0] < weight:
            axes.append((at, at + 1, 1, 1, 0))
            continue
        step, count = steps[k]
        by = step // weight
        stop = at + (count - 1) * by + 1
        if stop > n or by * weight != step:
            return None
        axes.append((at, stop, 1, by, at) if by > 1 else (at, stop, 1, 1, 0))
        k += 1
    return tuple(axes) if k == many else None


def _ascending(form: Strided) -> tuple[int, list[tuple[int, int]]]:
    """The smallest number, and (step, count) of the digits that matter: steps above 0, the shortest last."""
    first, steps = form[0], []
    for axis in form[1]:
        for count, step in axis:
            if count > 1 and step:
                if step < 0:
                    first += (count - 1) * step
                    step = -step
                steps.append((step, count))
    if len(steps) > 1:
        steps.sort(reverse=True)
    return first, steps


def _stripe(at: int, digits: Iterable[tuple[int, int]]) -> PairAxis | None:
    """What digits (count, step), the shortest step first, reach from `at` on, if it is one stripe in an interval."""
    on, period, last = 1, 0, at
    for count, by in digits:
        if not period and by <= on:
            on += (count - 1) * by
        elif not period:
            period = by
        elif by % period or by > last - at + 1 - on + period:
            return None
        last += (count - 1) * by
    return (at, last + 1, on, period, at) if period else (at, last + 1, 1, 1, 0)


# --------------------------------------------------------------------------------------------- nests in columns


class Nests:
    """The items of rows in columns, the levels of their tails padded with one that holds everything."""

    __slots__ = ("_first", "_length", "_levels", "_many", "_start", "high", "low")

    def __init__(self, rows: Sequence[PairRow]) -> None:
        items = [item for row in rows for item in row.items]
        self._many = np.array([len(row.items) for row in rows], np.int64)
        self._first = np.cumsum(self._many) - self._many
        self._start = np.array([item.start for item in items], np.int64)
        self._length = np.array([item.length for item in items], np.int64)
        self._levels = [self._column(items, k) for k in range(max([len(item.tail) for item in items], default=0))]
        self.low = np.minimum.reduceat(self._start, self._first) if items else self._start
        self.high = np.maximum.reduceat(self._start + self._length, self._first) if items else self._start

    @staticmethod
    def _column(items: Iterable[Item], depth: int) -> tuple[Int64Array, Int64Array, Int64Array]:
        """On, period and phase of a level."""
        every = (item.tail[depth] if depth < len(item.tail) else (1, 1, 0) for item in items)
        on, period, phase = zip(*every, strict=True)
        return np.array(on, np.int64), np.array(period, np.int64), np.array(phase, np.int64)

    def next(self, rows: Int64Array, z: Int64Array) -> Int64Array:
        """Return the smallest element >= z of each row, `MAX_POSITION` where there is none."""
        at, many = self._first[rows], self._many[rows]
        best = self._next_in(at, z)
        for m in range(1, int(many.max(initial=1))):
            more = np.flatnonzero(many > m)
            best[more] = np.minimum(best[more], self._next_in(at[more] + m, z[more]))
        return best

    def _next_in(self, at: Int64Array, z: Int64Array) -> Int64Array:
        start, length = self._start[at], self._length[at]
        rest = np.maximum(z - start, 0)
        ways = []
        for on, period, phase in self._levels:
            length_, period_ = on[at], period[at]
            into = (rest - phase[at]) % period_
            ways.append((rest - into, length_, period_, into < length_))
            rest = into
        for block, on_, period_, inside in reversed(ways):  # else where the next block begins
            rest = np.where(inside & (rest < on_), block + rest, block + period_)
        return cast(Int64Array, np.where(rest < length, start + rest, tuning.MAX_POSITION))

    def apart(self, i: Int64Array, j: Int64Array) -> Bools:
        """Return which pairs of rows of one item each have levels that miss each other modulo the gcd of periods."""
        alone = (self._many[i] == 1) & (self._many[j] == 1)
        found = np.zeros(len(i), bool)
        some = np.flatnonzero(alone)
        a, b = self._first[i[some]], self._first[j[some]]
        p, gs = self._start[a], np.zeros(len(some), np.int64)
        miss = np.zeros(len(some), bool)
        for on, period, phase in self._levels:
            p, gs = p + phase[a], np.gcd(gs, period[a])
            q, g = self._start[b], gs
            for on_b, period_b, phase_b in self._levels:
                q, g = q + phase_b[b], np.gcd(g, period_b[b])
                d = (q - p) % g
                miss |= (d >= on[a]) & (g - d >= on_b[b])
        found[some] = miss
        return found


# -------------------------------------------------------------------------------------- rows of one allocation


class _Group:
    """All pairs of what views read of one allocation."""

    def __init__(self, home: Allocation, rows: Sequence[PairRow], kept: Tally | None) -> None:
        self.home, self.rows, self.kept = home, rows, kept
        self.aligned = np.array([bool(row.boxes) for row in rows], np.bool_)

    def _regions(self) -> tuple[RegionArray, Int64Array | None]:
        """The rows along the axes as columns, and where each row's boxes begin; None where each has one."""
        boxes = [box for row in self.rows for box in row.boxes]
        many = [len(row.boxes) for row in self.rows if row.boxes]
        starts = None if len(many) == len(boxes) else np.cumsum([0, *many[:-1]])
        return RegionArray.of_stripes(self.home.shape, boxes), starts

    def _meeting_boxes(self) -> Bools:
        """Return which pairs of the rows along the axes share a cell."""
        regions, starts = self._regions()
        found = regions.overlap_matrix()
        if starts is not None:
            found = np.logical_or.reduceat(np.logical_or.reduceat(found, starts, axis=0), starts, axis=1)
        return cast(Bools, found)

    def _count_boxes(self) -> np.ndarray[Any, Any]:
        """Return how many cells each pair of the rows along the axes shares; drop those whose boxes share cells."""
        regions, starts = self._regions()
        found: np.ndarray[Any, Any] = regions.count_matrix()
        if starts is None:
            return found
        owner = np.searchsorted(starts, np.arange(len(found)), side="right") - 1
        twice = (owner[:, None] == owner) & (found > 0)
        np.fill_diagonal(twice, False)
        if twice.any():
            at = np.flatnonzero(self.aligned)
            self.aligned[at[owner[twice.any(axis=1)]]] = False
        if self.home.size > INT64_MAX:
            found = found.astype(object)
        found = np.add.reduceat(np.add.reduceat(found, starts, axis=0), starts, axis=1)
        kept = self.aligned[[bool(row.boxes) for row in self.rows]]
        return cast("np.ndarray[Any, Any]", found[np.ix_(kept, kept)])

    def meeting(self) -> Bools:
        """Return which pairs share a cell."""
        n = len(self.rows)
        at = np.flatnonzero(self.aligned)
        found = self._meeting_boxes() if len(at) else None
        if found is not None and len(at) == n:
            return found
        matrix = np.zeros((n, n), np.bool_)
        if found is not None:
            matrix[np.ix_(at, at)] = found
        i, j = self._other_pairs()
        matrix[i, j] = matrix[j, i] = True
        return matrix

    def sizes(self) -> np.ndarray[Any, Any]:
        """Return how many cells each pair shares."""
        n = len(self.rows)
        matrix: np.ndarray[Any, Any] = np.zeros((n, n), np.int64)
        if self.aligned.any():
            found = self._count_boxes()
            matrix = matrix.astype(found.dtype)
            matrix[np.ix_(self.aligned, self.aligned)] = found
        at = np.flatnonzero(self.aligned)
        if len(at) == n:
            return matrix
        known: dict[tuple[Hashable, Hashable], int] = {}
        for i, j in np.transpose(self._other_pairs()).tolist():
            one, two = self.rows[i], self.rows[j]
            key = self._key(one), self._key(two)
            if key not in known:
                known[key] = self._asked(_count, one, two)
            if known[key] > INT64_MAX and matrix.dtype != object:
                matrix = matrix.astype(object)
            matrix[i, j] = matrix[j, i] = known[key]
        return matrix

    def _asked(self, question: Callable[[PairRow, PairRow], Any], one: PairRow, two: PairRow) -> Any:
        answer = retell(lambda e: TooHard(f"views[{one.number}] and views[{two.number}]: {e}"), question, one, two)
        if self.kept is not None:
            self.kept.settle_helped()
        return answer

    @staticmethod
    def _key(row: PairRow) -> Hashable:
        """Equal for rows that are known to hold the same cells."""
        return row.items or id(row.view)

    def _other_pairs(self) -> tuple[Int64Array, Int64Array]:
        """Return the pairs i <= j that share a cell and are not both along the axes."""
        number: dict[Hashable, int] = {}
        classes = np.array([number.setdefault(self._key(row), len(number)) for row in self.rows])
        unique = list(dict(zip(classes.tolist(), self.rows, strict=True)).values())
        aligned = np.ones(len(number), np.bool_)
        np.logical_and.at(aligned, classes, self.aligned)
        met = self._distinct(unique, aligned)[np.ix_(classes, classes)]
        met[np.ix_(self.aligned, self.aligned)] = False
        i, j = np.nonzero(np.triu(met))
        return i, j

    def _distinct(self, rows: Sequence[PairRow], aligned: Bools) -> Bools:
        """Return which pairs of different rows share a cell; those both along the axes are not looked at."""
        met = np.eye(len(rows), dtype=np.bool_)
        few = np.array([bool(row.items) for row in rows])
        at = np.flatnonzero(few)
        nests = Nests([rows[k] for k in at.tolist()])
        left = _pairs_with_many(rows, few)
        for i, j in _close_pairs(nests, aligned[at]):
            hit, still = _leap(nests, i, j)
            met[at[i[hit]], at[j[hit]]] = True
            i, j = i[still], j[still]
            some = ~nests.apart(i, j)
            left += zip(at[i[some]].tolist(), at[j[some]].tolist(), strict=True)
        for k, m in left:
            met[k, m] = self._asked(_meet, rows[k], rows[m])
        return met | met.T


def _pairs_with_many(rows: Sequence[PairRow], few: Bools) -> list[tuple[int, int]]:
    """Return the pairs whose bounds meet and of which one row is not few nests."""
    ends = [row.bounds for row in rows]
    return [
        (i, j)
        for j in np.flatnonzero(~few).tolist()
        for i in range(len(rows))
        if (i < j or few[i]) and ends[i][0] < ends[j][1] and ends[j][0] < ends[i][1]
    ]


def _close_pairs(nests: Nests, aligned: Bools) -> Iterator[tuple[Int64Array, Int64Array]]:
    """Yield pairs i < j of rows whose bounds meet and that are not both along the axes, some at a time."""
    n = len(aligned)
    rows = max(1, tuning.PAIRS_AT_ONCE // max(1, n))
    for start in range(0, n, rows):
        some = np.arange(start, min(start + rows, n))
        close = (nests.low[some, None] < nests.high) & (nests.low < nests.high[some, None])
        close &= (some[:, None] < np.arange(n)) & ~(aligned[some, None] & aligned)
        i, j = np.nonzero(close)
        yield i + start, j


def _leap(nests: Nests, i: Int64Array, j: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Return which of the pairs are found to meet, and which stay open, as positions."""
    z = np.maximum(nests.low[i], nests.low[j])
    at, hits = np.arange(len(i)), []
    for _ in range(tuning.LEAPS_AT_ONCE):
        if not len(at):
            break
        x = nests.next(i[at], z)
        y = nests.next(j[at], x)
        hits.append(at[(x == y) & (x < tuning.MAX_POSITION)])
        going = (x < y) & (y < tuning.MAX_POSITION)
        at, z = at[going], y[going]
    return np.concatenate([at[:0], *hits]), at


def _meet(one: PairRow, two: PairRow) -> bool:
    a, b = one.spans, two.spans
    if a is not None and b is not None:
        z = ask_one((TooHard,), members.some_common, a, b, False)
        if z is not OPEN:
            return z is not None
    return one.cells.meets(two.cells)


def _count(one: PairRow, two: PairRow) -> int:
    a, b = one.spans, two.spans
    if a is not None and b is not None:
        many = ask_one((TooHard,), members.count_common, a, b)
        if many is not OPEN:
            return int(many)
    return one.cells.count_common(two.cells)


# ------------------------------------------------------------------------------------------------- the answers


def _each_group(views: Sequence[View]) -> Iterator[tuple[Any, _Group]]:
    """Yield where the pairs that read one allocation stand in a matrix, and these; count a question for each pair.

    Those that were helped with are counted where they are asked.
    """
    kept = TALLY.get()
    before = 0 if kept is None else kept.total
    for home, rows in groups(views).items():
        at = np.array([row.number for row in rows])
        yield np.ix_(at, at), _Group(home, rows, kept)
    if kept is not None:
        kept.closed += max(0, len(views) * (len(views) + 1) // 2 - (kept.total - before))


def meeting(views: Sequence[View]) -> Bools:
    """Return which pairs of views share a cell, as a symmetric matrix."""
    matrix: Bools | None = None
    for at, group in _each_group(views):
        found = group.meeting()
        if len(found) == len(views) and matrix is None:  # as they mostly read one memory: one large matrix less
            matrix = found
            continue
        if matrix is None:
            matrix = np.zeros((len(views), len(views)), np.bool_)
        matrix[at] |= found
    return np.zeros((len(views), len(views)), np.bool_) if matrix is None else matrix


def shared_sizes(views: Sequence[View]) -> np.ndarray[Any, Any]:
    """Return how many cells each pair of views shares, as a symmetric matrix of int64, or of Python integers."""
    matrix: np.ndarray[Any, Any] = np.zeros((len(views), len(views)), np.int64)
    for at, group in _each_group(views):
        found = group.sizes()
        if found.dtype == object or int(found.max()) + int(matrix.max()) > INT64_MAX:
            matrix = matrix.astype(object)
        matrix[at] += found
    return matrix
