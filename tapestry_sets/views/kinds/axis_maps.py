"""Maps axis by axis: where a kind reads each axis of its source through axes of the view that no other one uses.

    pad, edge    view  0 1 2 3 4 5 6      one axis of the view
                 reads 0 0 1 2 3 3 3      one of the source: {1, 4, 5} reads {0, 3}
    take         view  0 1 2              table (7, 2, 7)
                 reads 7 2 7              {0, 1, 2} reads {2, 7}

Then the cells that a box of the view reads are a product of sets of indices, one an axis, whatever the other axes do:
nine pieces of a padded image are two sets of indices, and ten thousand pages one column. A map takes sets of the
view's indices to sets of the source's, and an index of the source back to one of the view's. It says `OPEN` where a
set is not few progressions or a column; then the pieces answer.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from itertools import product
from math import gcd, prod

import numpy as np
from msgspec import Struct

from tapestry_sets.digits import Int64Array, Ints, number_of, point_of
from tapestry_sets.limits import OPEN, Open
from tapestry_sets.regions import AxisSet, axis_sets
from tapestry_sets.views import tuning

SetsRead = tuple[AxisSet, ...] | Open
"""A set for each axis of the source that a map reads."""


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

    @abstractmethod
    def read(self, sets: Sequence[AxisSet]) -> SetsRead:
        """Return the indices of the source that indices of the view read, both one set for each axis."""

    @abstractmethod
    def back(self, at: Ints, sets: Sequence[AxisSet]) -> tuple[int, ...] | Open | None:
        """Return indices in the sets, one for each axis of the view, that read indices of the source; None if none."""


class Sum(AxisMap, frozen=True):
    """start + the sum of step·index over the axes."""

    start: int
    steps: Ints

    @property
    def is_plain(self) -> bool:
        return self.steps == (1,) and not self.start

    def read(self, sets: Sequence[AxisSet]) -> SetsRead:
        if len(sets) == 1 and self.steps[0]:
            return (axis_sets.change(sets[0], self.start, self.steps[0]),)
        found = axis_sets.add([axis_sets.change(s, 0, by) for s, by in zip(sets, self.steps, strict=True) if by])
        return found if found is OPEN else (axis_sets.change(found, self.start, 1),)

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


class OneAxis(AxisMap, frozen=True):
    """One axis of the source through one of the view; `before` says which indices of the view read an index."""

    def read(self, sets: Sequence[AxisSet]) -> SetsRead:
        found = self.image(sets[0])
        return found if found is OPEN else (found,)

    def back(self, at: Ints, sets: Sequence[AxisSet]) -> tuple[int, ...] | Open | None:
        lo, hi = axis_sets.least(sets[0]), axis_sets.greatest(sets[0])
        found = axis_sets.meet(sets[0], self.before(at[0], lo, hi))
        return None if axis_sets.is_nothing(found) else (axis_sets.least(found),)

    @abstractmethod
    def image(self, s: AxisSet) -> AxisSet | Open:
        """Return the source's indices that indices of the view read."""

    @abstractmethod
    def before(self, z: int, lo: int, hi: int) -> AxisSet:
        """Return the indices in lo … hi of the view that read one of the source."""


class Inside(OneAxis, frozen=True):
    """The source stands at [start, start + extent) of the view, and is read nowhere else."""

    start: int
    extent: int

    def image(self, s: AxisSet) -> AxisSet | Open:
        return axis_sets.clip(s, self.start, self.start + self.extent)

    def before(self, z: int, lo: int, hi: int) -> AxisSet:
        return ((z + self.start, z + self.start, 1),)


class Clamped(Inside, frozen=True):
    """The same; its first index is read before it, its last one behind it."""

    def image(self, s: AxisSet) -> AxisSet | Open:
        stop, last = self.start + self.extent, self.extent - 1
        low: AxisSet = ((0, 0, 1),) if axis_sets.least(s) < self.start else ()
        high: AxisSet = ((last, last, 1),) if axis_sets.greatest(s) >= stop else ()
        return axis_sets.unite([low, axis_sets.clip(s, self.start, stop), high])

    def before(self, z: int, lo: int, hi: int) -> AxisSet:
        first = z + self.start if z else min(lo, self.start)
        last = z + self.start if z < self.extent - 1 else max(hi, self.start + z)
        return (axis_sets.steps_from(first, last, 1),)


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


class Looked(OneAxis, frozen=True):
    """Index k reads table[k]."""

    table: Int64Array

    def image(self, s: AxisSet) -> AxisSet | Open:
        if axis_sets.is_column(s):
            return axis_sets.column_of(self.table[s])
        return axis_sets.column_of(np.concatenate([self.table[first : last + 1 : step] for first, last, step in s]))

    def before(self, z: int, lo: int, hi: int) -> AxisSet:
        return np.flatnonzero(self.table == z)


class Regrouped(AxisMap, frozen=True):
    """Axes of the source, joined row by row and cut again into axes of the view."""

    extents: Ints
    """Of the view's axes."""
    source: Ints
    """Of the source's axes."""

    @property
    def width(self) -> int:
        return len(self.source)

    def read(self, sets: Sequence[AxisSet]) -> SetsRead:
        if len(sets) == 1 == len(self.source):
            return (sets[0],)
        size, parts = 1, []
        for s, n in zip(reversed(sets), reversed(self.extents), strict=True):
            parts.append(axis_sets.change(s, 0, size))
            size *= n
        rows, found = axis_sets.add(parts), list[AxisSet]()
        for n in self.source[:0:-1]:
            pair = rows if rows is OPEN else _split_rows(rows, n)
            if pair is OPEN:
                return OPEN
            rows, columns = pair
            found.append(columns)
        return rows if rows is OPEN else (rows, *reversed(found))

    def back(self, at: Ints, sets: Sequence[AxisSet]) -> tuple[int, ...] | Open | None:
        index = point_of(number_of(at, self.source), self.extents)
        return index if all(axis_sets.hold(s, x) for s, x in zip(sets, index, strict=True)) else None


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


def _split_rows(s: AxisSet, n: int) -> tuple[AxisSet, AxisSet] | Open:
    """The rows and the columns of numbers in rows of n, where they are a product."""
    if axis_sets.is_column(s) or len(s) != 1:
        return OPEN
    ((first, last, step),) = s
    (top, left), (bottom, right) = divmod(first, n), divmod(last, n)
    if top == bottom:
        return ((top, top, 1),), ((left, right, step),)
    if step % n == 0:
        return ((top, bottom, step // n),), ((left, left, 1),)
    if n % step == 0 and left < step and right >= n - step:
        return ((top, bottom, 1),), (axis_sets.steps_from(left, right, step),)
    return OPEN
