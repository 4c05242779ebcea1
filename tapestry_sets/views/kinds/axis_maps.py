"""Maps axis by axis: where a kind reads each axis of its source through axes of the view that no other one uses.

    pad, edge    view  0 1 2 3 4 5 6      one axis of the view
                 reads 0 0 1 2 3 3 3      one of the source: {1, 4, 5} reads {0, 3}
    take         view  0 1 2              table (7, 2, 7)
                 reads 7 2 7              {0, 1, 2} reads {2, 7}

Then the cells that a box of the view reads are a product of sets of indices, one an axis, whatever the other axes do:
nine pieces of a padded image are two sets of indices, and ten thousand pages one column. A map takes sets of the
view's indices to sets of the source's, and an index of the source back to one of the view's. Where rows are cut, it
reads a union of few products:

    view  [3, 14)             0 0 0 1 1 1      three products: row 0 x {3, 4, 5}
    of rows of 6              1 1 1 1 1 1                      row 1 x {0, ..., 5}
                              1 1 0 0 0 0                      row 2 x {0, 1}

It says `OPEN` where these are not few, or a set is not few progressions or a column; then the pieces answer. Sets of
the source's indices go back to products of sets of the view's: so a gradient finds the windows that read a pixel.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise, product
from math import gcd, prod

import numpy as np
from msgspec import Struct

from tapestry_sets.digits import Int64Array, Ints, number_of, point_of
from tapestry_sets.limits import OPEN, Open
from tapestry_sets.regions import AxisSet, AxisSets, axis_products, axis_sets
from tapestry_sets.views import tuning

AxisMaps = tuple["AxisMap", ...]
"""How a source is read, axis by axis."""
SetsRead = tuple[tuple[AxisSet, ...], ...] | Open
"""Products, together all that a map reads: of each a set for each axis of the source. None: it reads nothing."""
Readers = Iterator[tuple[AxisSet, ...]] | Open
"""Products of sets, one for each axis of the view, which share no index."""


class AxisMap(Struct, frozen=True):
    """How some axes of the source, neighbors, are read through some axes of the view."""

    axes: Ints
    """Of the view."""

    @property
    def width(self) -> int:
        """How many axes of the source are read."""
        return 1

    @property
    def is_plain(self) -> bool:
        """Whether one axis is read through one as it is."""
        return False

    @property
    def is_injective(self) -> bool:
        """Whether surely no two indices of the view read one of the source."""
        return False

    @abstractmethod
    def read(self, sets: Sequence[AxisSet]) -> SetsRead:
        """Return the indices of the source that indices of the view read, both one set for each axis."""

    @abstractmethod
    def back(self, at: Ints, sets: Sequence[AxisSet]) -> tuple[int, ...] | Open | None:
        """Return indices in the sets, one for each axis of the view, that read indices of the source; None if none."""

    @abstractmethod
    def readers(self, wanted: Sequence[AxisSet], sets: Sequence[AxisSet]) -> Readers:
        """Return all indices in the sets that read wanted indices of the source; `OPEN` where these are too many."""

    def reads_once(self, sets: AxisSets) -> bool:
        """Return whether surely no two indices in the sets read the same."""
        if self.is_plain or self.is_injective:
            return True
        found = self.read(sets)
        return found is not OPEN and len(found) == 1 and axis_products.size_of(found[0]) == axis_products.size_of(sets)


class Sum(AxisMap, frozen=True):
    """start + the sum of step·index over the axes."""

    start: int
    steps: Ints

    @property
    def is_plain(self) -> bool:
        return self.steps == (1,) and not self.start

    @property
    def is_injective(self) -> bool:
        return not self.steps or (len(self.steps) == 1 and self.steps[0] != 0)

    def read(self, sets: Sequence[AxisSet]) -> SetsRead:
        if len(sets) == 1 and self.steps[0]:
            return ((axis_sets.change(sets[0], self.start, self.steps[0]),),)
        found = axis_sets.add([axis_sets.change(s, 0, by) for s, by in zip(sets, self.steps, strict=True) if by])
        return found if found is OPEN else ((axis_sets.change(found, self.start, 1),),)

    def back(self, at: Ints, sets: Sequence[AxisSet]) -> tuple[int, ...] | Open | None:
        rest = at[0] - self.start
        order = sorted(range(len(sets)), key=lambda k: axis_sets.size_of(sets[k]))
        *few, last = order or [-1]
        if last < 0:
            return () if not rest else None
        if prod([axis_sets.size_of(sets[k]) for k in few]) > tuning.MAX_AROUND:
            return OPEN
        for choice in product(*[axis_sets.each_of(sets[k]) for k in few]):
            found = dict(zip(few, choice, strict=True))
            left = rest - sum([self.steps[k] * x for k, x in found.items()])
            by = self.steps[last]
            x, off = divmod(left, by) if by else (axis_sets.least(sets[last]), left)
            if not off and axis_sets.hold(sets[last], x):
                return tuple([x if k == last else found[k] for k in range(len(sets))])
        return None

    def readers(self, wanted: Sequence[AxisSet], sets: Sequence[AxisSet]) -> Readers:
        if not sets:
            return iter([()] if axis_sets.hold(wanted[0], self.start) else [])
        every = self.read(sets)
        if every is not OPEN:
            ((whole,),) = every
            if axis_sets.size_of(axis_sets.meet(whole, wanted[0])) == axis_sets.size_of(whole):
                return iter([tuple(sets)])
        # all axes but the one of the most indices are gone through one by one
        *few, last = sorted(range(len(sets)), key=lambda k: axis_sets.size_of(sets[k]))
        if prod([axis_sets.size_of(sets[k]) for k in few]) > tuning.MAX_PATCHES:
            return OPEN
        return self._readers_one_by_one(wanted[0], sets, few, last)

    def _readers_one_by_one(
        self, wanted: AxisSet, sets: Sequence[AxisSet], few: Sequence[int], last: int
    ) -> Iterator[tuple[AxisSet, ...]]:
        """The same: {x} on each axis but the last, and there what reads the wanted indices less what x adds."""
        for choice in product(*[axis_sets.each_of(sets[k]) for k in few]):
            found = {k: axis_sets.one(x) for k, x in zip(few, choice, strict=True)}
            start = self.start + sum([self.steps[k] * x for k, x in zip(few, choice, strict=True)])
            found[last] = axis_sets.change_back(wanted, sets[last], start, self.steps[last])
            if not axis_sets.is_nothing(found[last]):
                yield tuple([found[k] for k in range(len(sets))])


class OneAxis(AxisMap, frozen=True):
    """One axis of the source through one of the view; `before` says which indices of the view read an index."""

    def read(self, sets: Sequence[AxisSet]) -> SetsRead:
        found = self.image(sets[0])
        return found if found is OPEN else ((found,),)

    def back(self, at: Ints, sets: Sequence[AxisSet]) -> tuple[int, ...] | Open | None:
        lo, hi = axis_sets.least(sets[0]), axis_sets.greatest(sets[0])
        found = axis_sets.meet(sets[0], self.before(at[0], lo, hi))
        return None if axis_sets.is_nothing(found) else (axis_sets.least(found),)

    def readers(self, wanted: Sequence[AxisSet], sets: Sequence[AxisSet]) -> Readers:
        each = self.all_before(wanted[0], axis_sets.least(sets[0]), axis_sets.greatest(sets[0]))
        if each is OPEN:
            return OPEN
        met = (axis_sets.meet(sets[0], s) for s in each)
        return ((s,) for s in met if not axis_sets.is_nothing(s))

    def all_before(self, wanted: AxisSet, lo: int, hi: int) -> Iterator[AxisSet] | Open:
        """Return, set by set, the indices in lo … hi of the view that read some of the source; `OPEN` if too many."""
        if axis_sets.size_of(wanted) > tuning.MAX_PATCHES:
            return OPEN
        return (self.before(z, lo, hi) for z in axis_sets.each_of(wanted))

    @abstractmethod
    def image(self, s: AxisSet) -> AxisSet | Open:
        """Return the source's indices that indices of the view read."""

    @abstractmethod
    def before(self, z: int, lo: int, hi: int) -> AxisSet:
        """Return the indices in lo … hi of the view that read one of the source."""


@lru_cache(maxsize=64)
def as_it_is(axis: int) -> Sum:
    """Return the map of an axis that is read as it is.

    Examples
    --------
    >>> as_it_is(2).is_plain
    True
    """
    return Sum((axis,), 0, (1,))


def put_map(rank: int, axis: int, m: AxisMap) -> tuple[AxisMap, ...]:
    """Return the maps of a kind that changes one axis."""
    return tuple([m if a == axis else as_it_is(a) for a in range(rank)])


class Inside(OneAxis, frozen=True):
    """The source stands at start, start + step, … of the view, `extent` indices, and is read nowhere else."""

    start: int
    extent: int
    step: int = 1

    @property
    def is_injective(self) -> bool:
        return True

    def image(self, s: AxisSet) -> AxisSet | Open:
        if self.step == 1:
            return axis_sets.clip(s, self.start, self.start + self.extent)
        places = (axis_sets.steps_from(self.start, self.start + (self.extent - 1) * self.step, self.step),)
        return axis_sets.divide(axis_sets.meet(s, places), self.start, self.step)

    def before(self, z: int, lo: int, hi: int) -> AxisSet:
        return axis_sets.one(self.start + z * self.step)

    def all_before(self, wanted: AxisSet, lo: int, hi: int) -> Iterator[AxisSet] | Open:
        return iter([axis_sets.change(axis_sets.clip(wanted, 0, self.extent), self.start, self.step)])


class Picked(AxisMap, frozen=True):
    """No axis of the source: it is read where an axis of the view is at one index."""

    at: int

    @property
    def width(self) -> int:
        return 0

    @property
    def is_injective(self) -> bool:
        return True

    def read(self, sets: Sequence[AxisSet]) -> SetsRead:
        return ((),) if axis_sets.hold(sets[0], self.at) else ()

    def back(self, at: Ints, sets: Sequence[AxisSet]) -> tuple[int, ...] | Open | None:
        return (self.at,)

    def readers(self, wanted: Sequence[AxisSet], sets: Sequence[AxisSet]) -> Readers:
        return iter([(axis_sets.one(self.at),)] if axis_sets.hold(sets[0], self.at) else [])


class Clamped(Inside, frozen=True):
    """The same; its first index is read before it, its last one behind it."""

    @property
    def is_injective(self) -> bool:
        return False

    def image(self, s: AxisSet) -> AxisSet | Open:
        stop, last = self.start + self.extent, self.extent - 1
        low: AxisSet = ((0, 0, 1),) if axis_sets.least(s) < self.start else ()
        high: AxisSet = ((last, last, 1),) if axis_sets.greatest(s) >= stop else ()
        return axis_sets.unite([low, axis_sets.clip(s, self.start, stop), high])

    def before(self, z: int, lo: int, hi: int) -> AxisSet:
        first = z + self.start if z else min(lo, self.start)
        last = z + self.start if z < self.extent - 1 else max(hi, self.start + z)
        return (axis_sets.steps_from(first, last, 1),)

    def all_before(self, wanted: AxisSet, lo: int, hi: int) -> Iterator[AxisSet] | Open:
        ends = {0: (lo, self.start - 1), self.extent - 1: (self.start + self.extent, hi)}
        outside = [((a, b, 1),) for z, (a, b) in ends.items() if axis_sets.hold(wanted, z) and a <= b]
        if self.extent == 1 and axis_sets.hold(wanted, 0):
            return iter([((lo, hi, 1),)])
        return iter([axis_sets.change(axis_sets.clip(wanted, 0, self.extent), self.start, 1), *outside])


class Folded(OneAxis, frozen=True):
    """The source comes again every `turn` indices, first at `start`; every other time backwards if it is mirrored.

    A mirrored turn of extent - 1 repeats no index at its ends, one of extent repeats both.
    """

    start: int
    extent: int
    turn: int
    mirrored: bool = False

    def image(self, s: AxisSet) -> AxisSet | Open:
        first, last = ((z - self.start) // self.turn for z in (axis_sets.least(s), axis_sets.greatest(s)))
        if last - first > tuning.MAX_AROUND:
            return self._many_turns(s)
        parts = []
        for k in range(first, last + 1):
            at = self.start + k * self.turn
            part = axis_sets.clip(s, at, at + self.turn)
            parts.append(axis_sets.change(part, self.extent - 1, -1) if self.mirrored and k % 2 else part)
        return axis_sets.unite(parts)

    def _many_turns(self, s: AxisSet) -> AxisSet | Open:
        """Say what even steps read that go around more often than there are indices."""
        if axis_sets.is_column(s):
            return OPEN
        period = 2 * self.turn if self.mirrored else self.turn
        remainders: list[AxisSet] = []
        for first, last, step in s:
            by = gcd(step, period)
            if (last - first) // step + 1 < period // by:
                return OPEN
            at = (first - self.start) % by
            remainders.append((axis_sets.steps_from(at, self.turn - 1, by),) if at < self.turn else ())
            back = (at - self.turn) % by
            if self.mirrored and back < self.turn:
                there: AxisSet = (axis_sets.steps_from(back, self.turn - 1, by),)
                remainders.append(axis_sets.change(there, self.extent - 1, -1))
        return axis_sets.unite(remainders)

    def before(self, z: int, lo: int, hi: int) -> AxisSet:
        period = 2 * self.turn if self.mirrored else self.turn
        ats = {self.start + z}
        if self.mirrored:
            ats.add(self.start + self.extent - 1 - z + self.turn)
        firsts = {lo + (at - lo) % period for at in ats}
        return tuple([axis_sets.steps_from(first, hi, period) for first in firsts if first <= hi])

    def all_before(self, wanted: AxisSet, lo: int, hi: int) -> Iterator[AxisSet] | Open:
        first, last = ((x - self.start) // self.turn for x in (lo, hi))
        if last - first > tuning.MAX_AROUND:
            return OneAxis.all_before(self, wanted, lo, hi)
        return (self._before_in_turn(wanted, k) for k in range(first, last + 1))

    def _before_in_turn(self, wanted: AxisSet, k: int) -> AxisSet:
        """The indices of the view in turn k that read some of the source."""
        if self.mirrored and k % 2:
            wanted = axis_sets.change(wanted, self.extent - 1, -1)
        return axis_sets.change(axis_sets.clip(wanted, 0, self.turn), self.start + k * self.turn, 1)


class InBlocks(OneAxis, frozen=True):
    """Each index of the source is read by `count` of the view in a row."""

    count: int

    def image(self, s: AxisSet) -> AxisSet | Open:
        if axis_sets.is_column(s):
            return axis_sets.column_of(s // self.count)
        parts: list[AxisSet] = []
        for first, last, step in s:
            if step > self.count and step % self.count:
                return OPEN
            parts.append((axis_sets.steps_from(first // self.count, last // self.count, max(step // self.count, 1)),))
        return axis_sets.unite(parts)

    def before(self, z: int, lo: int, hi: int) -> AxisSet:
        return (axis_sets.steps_from(z * self.count, (z + 1) * self.count - 1, 1),)

    def all_before(self, wanted: AxisSet, lo: int, hi: int) -> Iterator[AxisSet] | Open:
        if not axis_sets.is_column(wanted) and all(step == 1 for _, _, step in wanted):
            return iter([tuple([(a * self.count, (b + 1) * self.count - 1, 1) for a, b, _ in wanted])])
        if self.count < axis_sets.size_of(wanted) and self.count <= tuning.MAX_PATCHES:
            return (axis_sets.change(wanted, k, self.count) for k in range(self.count))
        return OneAxis.all_before(self, wanted, lo, hi)


class Looked(OneAxis, frozen=True):
    """Index k reads table[k]."""

    table: Int64Array

    def image(self, s: AxisSet) -> AxisSet | Open:
        if axis_sets.is_column(s):
            return axis_sets.column_of(self.table[s])
        return axis_sets.column_of(np.concatenate([self.table[first : last + 1 : step] for first, last, step in s]))

    def before(self, z: int, lo: int, hi: int) -> AxisSet:
        return np.flatnonzero(self.table == z)

    def all_before(self, wanted: AxisSet, lo: int, hi: int) -> Iterator[AxisSet] | Open:
        return iter([axis_sets.column_of(np.flatnonzero(axis_sets.hold_each(wanted, self.table)))])


class Regrouped(AxisMap, frozen=True):
    """Axes of the source, joined row by row and cut again into axes of the view."""

    extents: Ints
    """Of the view's axes."""
    source: Ints
    """Of the source's axes."""

    @property
    def width(self) -> int:
        return len(self.source)

    @property
    def is_injective(self) -> bool:
        return True

    def read(self, sets: Sequence[AxisSet]) -> SetsRead:
        if len(sets) == 1 == len(self.source):
            return ((sets[0],),)
        digits = _common_digits(self.extents, self.source)
        if digits is None:
            rows = _join_rows(sets, self.extents)
            return rows if rows is OPEN else _split_into(rows, self.source)
        found: list[tuple[AxisSet, ...]] = [()]
        for s, mine in zip(sets, digits[0], strict=True):
            each = _split_into(s, mine)
            if each is OPEN or len(each) * len(found) > tuning.MAX_PARTS:
                return OPEN
            found = [one + more for one in found for more in each]
        out = []
        for parts in found:
            rest = iter(parts)
            joined = [_join_rows([next(rest) for _ in theirs], theirs) for theirs in digits[1]]
            if any(s is OPEN for s in joined):
                return OPEN
            out.append(tuple([s for s in joined if s is not OPEN]))
        return tuple(out)

    def back(self, at: Ints, sets: Sequence[AxisSet]) -> tuple[int, ...] | Open | None:
        index = point_of(number_of(at, self.source), self.extents)
        return index if all(axis_sets.hold(s, x) for s, x in zip(sets, index, strict=True)) else None

    def readers(self, wanted: Sequence[AxisSet], sets: Sequence[AxisSet]) -> Readers:
        found = Regrouped((), self.source, self.extents).read(wanted)  # the way back is a regrouping too
        return OPEN if found is OPEN else iter(axis_products.meet_each(tuple(sets), found))


def regroup(old: Ints, new: Ints) -> tuple[AxisMap, ...]:
    """Return the maps of a reshape: each of as few axes as hold equally many indices.

    Examples
    --------
    >>> [(m.axes, m.source) for m in regroup((2, 6, 5), (12, 1, 5))]
    [((0,), (2, 6)), ((1, 2), (5,))]
    """
    maps: list[AxisMap] = []
    i = j = 0
    while i < len(old):
        first, at, here = i, j, old[i]
        i += 1
        there = 1
        while here != there or (i == len(old) and j < len(new)):
            if there < here or i == len(old):
                there *= new[j]
                j += 1
            else:
                here *= old[i]
                i += 1
        maps.append(Regrouped(tuple(range(at, j)), new[at:j], old[first:i]))
    return tuple(maps)


@lru_cache(maxsize=1 << 10)
def _common_digits(old: Ints, new: Ints) -> tuple[tuple[Ints, ...], tuple[Ints, ...]] | None:
    """Each axis of two shapes of equal size cut into digits, the same in both; None if they do not align.

    Examples
    --------
    >>> _common_digits((3600, 32), (900, 16, 8))    # 32 is 4 x 8, and 16 is 4 x 4
    (((900, 4), (4, 8)), ((900,), (4, 4), (8,)))
    """
    ends = {1}
    for extents in (old, new):
        size = 1
        for n in reversed(extents):
            size *= n
            ends.add(size)
    places = sorted(ends)
    if any(b % a for a, b in pairwise(places)):
        return None
    return _cut(old, places), _cut(new, places)


def _cut(extents: Ints, places: Sequence[int]) -> tuple[Ints, ...]:
    """The digits of each axis between places that are multiples of each other."""
    size, found = prod(extents), []
    for n in extents:
        mine = [z for z in reversed(places) if size // n <= z <= size]
        found.append(tuple([b // a for b, a in pairwise(mine)]))
        size //= n
    return tuple(found)


def _join_rows(sets: Sequence[AxisSet], extents: Ints) -> AxisSet | Open:
    """The row-major numbers of products of indices of a box."""
    if len(sets) == 1:
        return sets[0]
    size, parts = 1, []
    for s, n in zip(reversed(sets), reversed(extents), strict=True):
        parts.append(axis_sets.change(s, 0, size))
        size *= n
    return axis_sets.add(parts)


def _split_into(s: AxisSet, extents: Ints) -> SetsRead:
    """Row-major numbers of a box as products of indices."""
    if not extents:  # of rank 0, whose one number is 0
        return ((),) if len(s) else ()
    if len(extents) == 1:
        return ((s,),)
    found: list[tuple[AxisSet, ...]] = [(s,)]
    for n in extents[:0:-1]:
        each = [(_split_rows(rows, n), rest) for rows, *rest in found]
        if any(pairs is OPEN for pairs, _ in each):
            return OPEN
        found = [(*pair, *rest) for pairs, rest in each if pairs is not OPEN for pair in pairs]
        if len(found) > tuning.MAX_PARTS:
            return OPEN
    return tuple(found)


def _split_rows(s: AxisSet, n: int) -> list[tuple[AxisSet, AxisSet]] | Open:
    """The rows and the columns of numbers in rows of n, as few disjoint products."""
    if axis_sets.is_column(s):
        return _split_column(s, n)
    found: list[tuple[AxisSet, AxisSet]] = []
    for first, last, step in s:
        kinds = min(step // gcd(step, n), last // n - first // n + 1) if step % n else 1
        if kinds + len(found) > tuning.MAX_PARTS:
            return OPEN
        found += _split_steps(first, last, step, n)
    return found if len(found) <= tuning.MAX_PARTS else OPEN


def _split_steps(first: int, last: int, step: int, n: int) -> list[tuple[AxisSet, AxisSet]]:
    """The same of even steps: what is in the first row and in the last, and between them rows that repeat."""
    (top, left), (bottom, right) = divmod(first, n), divmod(last, n)
    if top == bottom:
        return [(((top, top, 1),), ((left, right, step),))]
    if step % n == 0:
        return [(((top, bottom, step // n),), ((left, left, 1),))]
    found: list[tuple[AxisSet, AxisSet]] = []
    if left >= step:  # else the first row has all that rows of its kind have
        found.append((((top, top, 1),), (axis_sets.steps_from(left, n - 1, step),)))
        top += 1
    if right < n - step:
        found.append((((bottom, bottom, 1),), (axis_sets.steps_from(right % step, right, step),)))
        bottom -= 1
    kinds = step // gcd(step, n)
    for row in range(top, min(top + kinds, bottom + 1)):
        start = (first - row * n) % step
        if start < n:
            rows = axis_sets.steps_from(row, bottom, kinds)
            found.append(((rows,), (axis_sets.steps_from(start, n - 1, step),)))
    return found


def _split_column(z: Int64Array, n: int) -> list[tuple[AxisSet, AxisSet]] | Open:
    """The same of a column: rows that hold the same are one product."""
    rows, inside = np.divmod(z, n)
    starts = np.flatnonzero(np.diff(rows, prepend=-1))
    counts = np.diff(starts, append=len(z))
    found: list[tuple[AxisSet, AxisSet]] = []
    for count in np.unique(counts):
        at = starts[counts == count]
        held = inside[at[:, None] + np.arange(count)]
        if (held == held[0]).all():  # as of whole pages, which need no sorting
            found.append((axis_sets.column_of(rows[at]), axis_sets.column_of(held[0])))
            continue
        alike, which = np.unique(held, axis=0, return_inverse=True)
        if len(found) + len(alike) > tuning.MAX_PARTS:
            return OPEN
        for k, columns in enumerate(alike):
            found.append((axis_sets.column_of(rows[at[which.ravel() == k]]), axis_sets.column_of(columns)))
    return found
