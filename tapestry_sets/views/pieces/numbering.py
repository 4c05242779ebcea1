"""Maps by digits: how ranks, members of nested stripes and listed indices become coordinates, axis by axis.

An `AxisReading` says what is read along one axis: stages cut digits off a coordinate, and what is read is their sum,
each times a step of its own. So the k-th element of nested stripes, and the rank of an element, are chains of a few
shifts and renumberings, however long the axis is::

    elements of (3 in every 10, from 2)    ..111.......111.......111
    number k of the element                  012       345       678
                                           one stage: k // 3 is a digit that counts 10; the rest is read as 2 + rest

    its ranks go the other way: (z + 8) // 10 is a digit that counts 3, where the first block begins at 2 = 10 - 8
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from math import prod
from typing import NamedTuple

import numpy as np
from msgspec import Struct

from tapestry_sets.digits import Levels
from tapestry_sets.integers import Nest
from tapestry_sets.integers import nest as nests
from tapestry_sets.limits import check_pieces
from tapestry_sets.regions import AffineMap, Region
from tapestry_sets.views import tuning
from tapestry_sets.views.pieces.lookup import runs_of
from tapestry_sets.views.pieces.maps import IndexMap, Relinearize, Shape, Step
from tapestry_sets.views.pieces.piece import Guard, Piece


class Stage(NamedTuple):
    """Where low <= x < high, (x + offset) // size is a digit that counts `step`; the remainder goes on as x."""

    low: int
    high: int
    offset: int
    size: int
    step: int


class AxisReading(Struct, frozen=True):
    """Stages, and for what they leave of x: where low <= x < high, first + step·x."""

    stages: tuple[Stage, ...]
    low: int
    high: int
    first: int
    step: int

    def levels(self, extent: int) -> tuple[int, Levels] | None:
        """Return the reads of an axis of this extent as (first, ((count, step), …)), if every digit is free.

        Examples
        --------
        >>> reading_of_elements(((5, 7, 0), (2, 3, 0)), 14).levels(8)
        (0, ((2, 7), (2, 3), (2, 1)))
        """
        found = []
        for low, high, offset, size, step in self.stages:
            if low > 0 or high < extent or offset or extent % size:
                return None
            found.append((extent // size, step))
            extent = size
        if self.low > 0 or self.high < extent:
            return None
        return self.first, (*found, (extent, self.step))


def whole(extent: int) -> AxisReading:
    """Return the reading of an axis as it is."""
    return AxisReading((), 0, extent, 0, 1)


def reading_of_elements(s: Nest, extent: int) -> AxisReading:
    """Return the reading that takes k to element number k of a nest in [0, extent), which must hold one.

    Examples
    --------
    >>> reading_of_elements(((3, 10, 2),), 35)  # 2, 3, 4, 12, 13, 14, 22, …
    AxisReading(stages=(Stage(low=0, high=12, offset=0, size=3, step=10),), low=0, high=3, first=2, step=1)
    """
    stages: list[Stage] = []
    first, lo, hi = 0, 0, extent
    many = nests.count(s, lo, hi)
    while s:
        (a, P, p), tail = s[0], s[1:]
        block = lo - (lo - p) % P
        each = nests.count(tail, 0, a)
        before = nests.count(tail, 0, min(a, lo - block))
        if before == each:  # the window starts in the gap after the block
            block, before = block + P, 0
        if each == 1:
            return AxisReading(tuple(stages), 0, many, first + block + nests.find(tail, 0), P)
        first += block
        if before + many <= each:  # all in one block
            lo, hi = max(lo - block, 0), min(hi - block, a)
        else:
            stages.append(Stage(0, many, before, each, P))
            lo, hi, many = 0, a, each
        s = tail
    return AxisReading(tuple(stages), 0, many, first + lo, 1)


def reading_of_ranks(s: Nest, extent: int) -> AxisReading:
    """Return the reading that takes element number k of a nest in [0, extent), which must hold one, to k.

    Examples
    --------
    >>> reading_of_ranks(((3, 10, 2),), 35)
    AxisReading(stages=(Stage(low=0, high=35, offset=8, size=10, step=3),), low=0, high=3, first=-3, step=1)
    """
    stages: list[Stage] = []
    first, at, lo, hi = 0, 0, 0, extent  # x - at is the place in the window [lo, hi) of the nest
    while s:
        (a, P, p), tail = s[0], s[1:]
        each = nests.count(tail, 0, a)
        start = nests.find(s, lo)
        one = start - (start - p) % P
        if nests.rfind(s, hi - 1) < one + P:  # all in one block
            at, lo, hi = at + one, max(lo - one, 0), min(hi - one, a)
        else:
            block = lo - (lo - p) % P
            first -= nests.count(tail, 0, min(a, lo - block))
            stages.append(Stage(at + lo, at + hi, -at - block, P, each))
            at, lo, hi = 0, 0, a
        s = tail
    return AxisReading(tuple(stages), at + lo, at + hi, first - at - lo, 1)


class _Stretch(Struct, frozen=True):
    """Places [start, start + size) of a list: first + the sum of digit·step over the levels, outermost first."""

    start: int
    first: int
    levels: Levels

    @property
    def size(self) -> int:
        return prod([n for n, _ in self.levels])


def few_readings(indices: Sequence[int]) -> list[AxisReading] | None:
    """Return the readings of a list of integers if they are few, None if a table is shorter.

    Examples
    --------
    >>> len(few_readings(range(10**4))), few_readings([k * k for k in range(10**4)])
    (1, None)
    """
    if max(indices, default=0) >= 1 << 62:  # no table holds them
        return readings_of_indices(indices)
    if len(indices) > 4 * tuning.MAX_READINGS:
        steps = np.diff(np.array(indices, np.int64))
        # what comes again, at the latest in the middle, has as many different steps as are in one half
        if len(np.unique(steps)) > len(indices) // 2:
            return None
    found = readings_of_indices(indices)
    return found if len(found) <= tuning.MAX_READINGS else None


def readings_of_indices(indices: Sequence[int]) -> list[AxisReading]:
    """Return few readings, each of other places of a list of integers, that take place k to indices[k].

    A list that goes on as it began, moved by a constant, is one block read many times; else runs of equal steps, and
    runs of such runs, are one reading each.

    Examples
    --------
    >>> len(readings_of_indices([0, 1, 4, 5, 8, 9, 12])), len(readings_of_indices([5, 5, 5, 3, 2, 1]))
    (1, 2)
    """
    return _readings(list(indices), ())


def _readings(indices: list[int], above: tuple[Stage, ...]) -> list[AxisReading]:
    m = len(indices)
    if not m:
        return []
    cycle = _find_cycle(indices)
    if cycle:
        stage = Stage(0, m, 0, cycle, indices[cycle] - indices[0])
        return _readings(indices[:cycle], (*above, stage))
    found = _group(_find_runs(indices))
    check_pieces(len(found), f"a view at {m} indices", "take fewer at once, or slices and setts of them")
    return [_reading_of_stretch(stretch, above) for stretch in found]


def _find_cycle(indices: list[int]) -> int:
    """The least c > 1 so that indices[k + c] - indices[k] is the same for all k, at least half of them; 0 if none."""
    if len(indices) < 4:
        return 0
    cycle = _find_in_bytes(indices) if len(indices) >= tuning.LONG_TABLE else None
    if cycle is not None:
        return cycle
    steps = [b - a for a, b in pairwise(indices)]
    if steps.count(steps[0]) == len(steps):
        return 0
    border, k = [0] * len(steps), 0  # the longest proper prefix of steps[:i + 1] that is also its end
    for i in range(1, len(steps)):
        while k and steps[i] != steps[k]:
            k = border[k - 1]
        k += steps[i] == steps[k]
        border[i] = k
    cycle = len(steps) - border[-1]
    return cycle if 2 * cycle <= len(indices) else 0


def _find_in_bytes(indices: list[int]) -> int | None:
    """The same of many indices; None where too many places begin as the first half does."""
    try:
        places = np.array(indices, np.int64)
    except OverflowError:
        return None
    if int(places.max()) - int(places.min()) >> 62:
        return None
    steps = np.diff(places)
    if (steps == steps[0]).all():
        return 0
    held = steps.tobytes()
    half = held[: (len(steps) // 2 - 1) * 8]  # it comes again a cycle later, which is half of the indices at most
    at = 0
    for _ in range(tuning.TRIED_CYCLES):
        at = held.find(half, at + 1)
        if at < 0:
            return 0
        if at % 8 == 0 and held.startswith(held[at:]):
            return at // 8 if at // 4 <= len(indices) else 0
    return None


def _find_runs(indices: list[int]) -> list[_Stretch]:
    """The list as runs of equal steps, each as long as it can be."""
    return [_Stretch(run.at, run.first, ((run.length, run.step),)) for run in runs_of(indices)]


def _group(stretches: list[_Stretch]) -> list[_Stretch]:
    """Neighbors that differ by one distance as one stretch, until there are none."""
    out: list[_Stretch] = []
    at = 0
    while at < len(stretches):
        one, end = stretches[at], at + 1
        step = stretches[end].first - one.first if end < len(stretches) else 0
        while (
            end < len(stretches)
            and stretches[end].levels == one.levels
            and stretches[end].first - stretches[end - 1].first == step
        ):
            end += 1
        out.append(_Stretch(one.start, one.first, ((end - at, step), *one.levels)) if end - at > 1 else one)
        at = end
    return out if len(out) == len(stretches) else _group(out)


def _reading_of_stretch(stretch: _Stretch, above: tuple[Stage, ...]) -> AxisReading:
    stages, low, size = list(above), stretch.start, stretch.size
    for count, step in stretch.levels[:-1]:
        stages.append(Stage(low, low + size, -low, size // count, step))
        low, size = 0, size // count
    step = stretch.levels[-1][1]
    return AxisReading(tuple(stages), low, low + size, stretch.first - low * step, step)


def piece_of(shape: Shape, readings: Sequence[AxisReading], source: int = 0) -> Piece:
    """Return the piece of a view of `shape` that reads a source's coordinate k as `readings[k]` has it of axis k.

    Examples
    --------
    >>> piece = piece_of((11,), [reading_of_elements(((3, 10, 2),), 35)])
    >>> [piece.map.apply((k,)) for k in range(5)]
    [(2,), (3,), (4,), (12,), (13,)]
    """
    steps: list[Step] = []
    guards: list[Guard] = []
    extents: list[Shape] = [(n,) for n in shape]  # of each axis: its digits, and what is left of it
    for depth in range(max((len(r.stages) for r in readings), default=0)):
        stages = [r.stages[depth] if depth < len(r.stages) else None for r in readings]
        bounds = [(0, d[-1]) if s is None else s[:2] for s, d in zip(stages, extents, strict=True)]
        guards += _guard(len(steps), extents, bounds)
        offsets = [0 if s is None else s.offset for s in stages]
        if any(offsets):
            steps.append(_shift(extents, offsets))
        cut = [(d, d) if s is None else _cut(d, s) for s, d in zip(stages, extents, strict=True)]
        steps.append(Relinearize._of(_flat(d for d, _ in cut), _flat(d for _, d in cut)))
        extents = [d for _, d in cut]
    guards += _guard(len(steps), extents, [(r.low, r.high) for r in readings])
    last = _sum_digits(extents, readings)
    chain = IndexMap._of((*steps, last), len(shape))
    if not guards:
        return Piece(source, (), chain.simplify())
    return Piece(source, tuple(guards), IndexMap._of(chain.steps[:-1], len(shape)) if last.is_identity else chain)


def _flat(extents: Iterable[Shape]) -> Shape:
    return tuple([n for digits in extents for n in digits])


def _guard(prefix: int, extents: list[Shape], bounds: Sequence[tuple[int, int]]) -> list[Guard]:
    """The guard that what is left of each axis is within bounds, if any of them excludes something."""
    if all(low <= 0 and high >= digits[-1] for (low, high), digits in zip(bounds, extents, strict=True)):
        return []
    within = [(max(low, 0), min(high, digits[-1])) for (low, high), digits in zip(bounds, extents, strict=True)]
    low = [x for digits, (a, _) in zip(extents, within, strict=True) for x in (*(0,) * (len(digits) - 1), a)]
    high = [x for digits, (_, b) in zip(extents, within, strict=True) for x in (*digits[:-1], b)]
    return [Guard(prefix, Region.from_bounds(_flat(extents), low, high))]


def _shift(extents: list[Shape], offsets: Sequence[int]) -> AffineMap:
    """The map that adds to what is left of each axis."""
    by = [x for digits, b in zip(extents, offsets, strict=True) for x in (*(0,) * (len(digits) - 1), b)]
    return AffineMap.select(len(by), [(k, 1) for k in range(len(by))], by)


def _cut(digits: Shape, stage: Stage) -> tuple[Shape, Shape]:
    """An axis before and after a stage; the last block may be partial."""
    count = -(-(min(stage.high, digits[-1]) + stage.offset) // stage.size)
    return (*digits[:-1], count * stage.size), (*digits[:-1], count, stage.size)


def _sum_digits(extents: list[Shape], readings: Sequence[AxisReading]) -> AffineMap:
    """The map from all digits to the places that they read."""
    rank = sum(map(len, extents))
    rows, at = [], 0
    for digits, reading in zip(extents, readings, strict=True):
        steps = (*(stage.step for stage in reading.stages), reading.step)
        rows.append((*(0,) * at, *steps, *(0,) * (rank - at - len(digits))))
        at += len(digits)
    return AffineMap._of(tuple(rows), tuple(r.first for r in readings), rank)
