"""Blocks: disjoint unions of many nests as arrays of intervals, which are listed, swept and joined into nests.

An interval is a block of the innermost level, without an inside. Listing, sweep and the first round of joining are
NumPy's, so that a hundred thousand blocks take some ten milliseconds::

    ours      aaaa....aaaa....aaaa....       one sweep over all ends tells what lies in ours, in theirs, or in both
    theirs    .bb...bb...bb...bb...bb.
    outside   a..a......aa....aa.a....       blocks of one length at distances that are a period of ours are one run
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from tapestry_sets.digits import Bools
from tapestry_sets.integers import explicit, tuning
from tapestry_sets.integers.explicit import Pieces
from tapestry_sets.integers.nest import EMPTY, Nest, repeat

Ends = np.ndarray[Any, np.dtype[Any]]
"""Integers: of int64, or Python's own where those would not hold them."""


class Blocks(NamedTuple):
    """Disjoint intervals, ascending: where each starts and stops. Two may touch."""

    starts: Ends
    stops: Ends


Wanted = Bools
"""Of what lies in neither of two unions, in the first alone, in the second alone, and in both: is it wanted?"""
OUTSIDE = np.array([False, True, False, False])
"""What lies in the first alone."""
COMMON = np.array([False, False, False, True])
"""What lies in both."""
EITHER = np.array([False, True, True, False])
"""What lies in one of them alone."""


def many(every: Iterable[Nest], lo: int, hi: int) -> int:
    """Return about how many blocks disjoint nests have in a window, at most.

    Examples
    --------
    >>> many([((5, 8, 0), (2, 3, 0)), ((1, 8, 6),)], 0, 80), many([((10**9, 10**12, 0), (1, 2, 0))], 0, 6)
    (33, 10)
    """
    return sum([_many(s, hi - lo) for s in every if s and s != EMPTY])


def _many(s: Nest, length: int) -> int:
    """Return at most how many blocks without an inside a window of a length meets: whole ones inside others, or few."""
    whole = length // s[0][1] + 1
    for (a, _, _), (_, Q, q) in pairwise(s):
        whole *= -((q - a) // Q) + (q > 0)
    met = 1
    for a, P, _ in s:
        met *= length // P + 2
        length = min(length, a)
    return min(whole, met)


def listed(every: Iterable[Nest], lo: int, hi: int) -> Blocks:
    """Return what the blocks of disjoint nests have in a window.

    Examples
    --------
    >>> starts, stops = listed([((5, 8, 0), (2, 3, 0)), ((1, 8, 6),)], 1, 12)
    >>> list(zip(starts.tolist(), stops.tolist()))
    [(1, 2), (3, 5), (6, 7), (8, 10), (11, 12)]
    """
    by_depth: dict[int, list[Nest]] = defaultdict(list)
    longest = max(abs(lo), abs(hi))
    for s in every:
        a, P, p = s[0] if s else (1, 1, 0)
        longest = max(longest, P)
        if a and lo < hi and ((lo - p) % P < a or (p - lo) % P < hi - lo):  # else no block meets the window
            by_depth[len(s)].append(s)
    dtype = np.int64 if longest < 1 << 59 else object
    found = [_of_depth(depth, alike, lo, hi, dtype) for depth, alike in by_depth.items()]
    if not found:
        return Blocks(np.empty(0, dtype), np.empty(0, dtype))
    starts, stops = (np.concatenate(each) for each in zip(*found, strict=True))
    order = np.argsort(starts, kind="stable")
    return Blocks(starts[order], stops[order])


def _of_depth(depth: int, every: Sequence[Nest], lo: int, hi: int, dtype: Any) -> Blocks:
    """Return the blocks of nests of one depth, all of them at once, level by level."""
    n = len(every)
    table = np.array(every, dtype).reshape(n, depth, 3)
    nest = np.arange(n)  # for each block found so far: whose it is, what of it lies in the window, and its origin
    starts, stops, origins = (np.full(n, z, dtype) for z in (lo, hi, 0))
    for level in range(depth):
        a, P, p = table[nest, level].T
        first = starts - (starts - origins - p) % P
        many = np.maximum(-((first - stops) // P), 0).astype(np.int64)
        which = np.repeat(np.arange(len(nest)), many)
        number = np.arange(len(which)) - np.repeat(np.cumsum(many) - many, many)
        origins = first[which] + number.astype(dtype) * P[which]
        starts, stops = np.maximum(starts[which], origins), np.minimum(stops[which], origins + a[which])
        some = (starts < stops).astype(bool)
        nest, starts, stops, origins = nest[which][some], starts[some], stops[some], origins[some]
    return Blocks(starts, stops)


def sweep(ours: Blocks, theirs: Blocks, wanted: Wanted) -> Blocks:
    """Return the intervals that are `OUTSIDE`, `COMMON` or in `EITHER`, no two of which touch.

    Examples
    --------
    >>> ours, theirs = listed([((3, 4, 0),)], 0, 8), listed([((2, 8, 1),)], 0, 8)
    >>> [each.tolist() for each in sweep(ours, theirs, OUTSIDE)]
    [[0, 4], [1, 7]]
    """
    ends = np.concatenate((*ours, *theirs))
    steps = np.repeat(np.array([1, -1, 2, -2]), [len(each) for each in (*ours, *theirs)])
    order = np.argsort(ends, kind="stable")
    ends = ends[order]
    if not len(ends):
        return Blocks(ends, ends)
    within = np.cumsum(steps[order])[:-1]  # where each two ends in a row lie: 1 for ours, 2 for theirs
    keep = (ends[:-1] < ends[1:]).astype(bool)
    starts, stops, wants = ends[:-1][keep], ends[1:][keep], wanted[within[keep]]
    before = np.concatenate(([False], wants[:-1]))
    after = np.concatenate((wants[1:], [False]))
    return Blocks(starts[wants & ~before], stops[wants & ~after])


# ------------------------------------------------------------------ joining


def common_periods(every: Iterable[Nest]) -> list[int]:
    """Return few periods of levels, the ones met most often: blocks of one length may lie in long runs at these."""
    many = Counter([P for s in every for _, P, _ in s])
    return [P for P, _ in many.most_common(tuning.RUN_PERIODS)]


def joined(blocks: Blocks, lo: int, hi: int, distances: Iterable[int], repeats: bool) -> list[Nest]:
    """Return blocks in [lo, hi), no two of which touch, as nests whose period is the window's length.

    Blocks of one length are first joined in runs of one of the distances, whichever makes the fewest runs; these and
    what else lies at equal distances are joined by `explicit`. If the blocks repeat with that period (lo is 0 then),
    what goes on across the window's end is joined there, and may become a nest of a shorter period.

    Examples
    --------
    >>> joined(listed([((1, 4, 0),), ((2, 12, 9),)], 0, 12), 0, 12, [4], repeats=True)
    [((1, 4, 0),), ((2, 12, 9),)]
    """
    starts, stops = blocks
    common = hi if repeats else None
    if repeats and len(starts) > 1 and not starts[0] and stops[-1] == hi:  # one block around the end of the period
        starts, stops = starts[1:], np.append(stops[1:-1], stops[0] + hi)
    lengths = stops - starts
    order = np.argsort(lengths, kind="stable")
    starts, lengths = starts[order], lengths[order]
    out: list[Nest] = []
    found: Pieces = defaultdict(list)
    for begin, end in pairwise(_edges(lengths)):
        alike, length = starts[begin:end], int(lengths[begin])
        usable = [d for d in distances if length < d < hi - lo and not (common and common % d)]
        if end - begin < tuning.RUN_BLOCKS or not usable:
            found[length, ()] += alike.tolist()
        else:
            runs = [_Runs(alike, d, common) for d in usable]
            min(runs, key=lambda each: len(each.firsts)).put(length, found, out)
    if not repeats:
        return explicit.list_within(found, lo, hi)
    left = explicit.repeat_found(found, hi, are_apart=True)
    return explicit.merge_alike([*out, *left]) if out else left


def _edges(ascending: Ends) -> list[int]:
    """Return where the stretches of equal numbers begin, and the end of the last."""
    if not len(ascending):
        return []
    return [0, *(np.flatnonzero(ascending[1:] != ascending[:-1]) + 1).tolist(), len(ascending)]


class _Runs:
    """Ascending starts as runs of one distance; if they repeat with a `common` period, in [0, common), also around it.

    Attributes
    ----------
    firsts, sizes : array
        Where each run begins, and how many starts it has.
    whole : array
        Where runs without an end begin, which are in every multiple of the distance from there on.
    """

    __slots__ = ("distance", "firsts", "sizes", "whole")

    def __init__(self, starts: Ends, distance: int, common: int | None) -> None:
        rests = starts % distance
        order = np.argsort(rests, kind="stable")
        rests, starts = rests[order], starts[order]
        is_other = np.ones(len(starts), bool)  # the first of each remainder
        is_other[1:] = rests[1:] != rests[:-1]
        is_first = is_other.copy()  # the first of each run
        is_first[1:] |= (starts[1:] - starts[:-1] != distance).astype(bool)
        at = np.flatnonzero(is_first)
        sizes = np.diff(np.append(at, len(starts))).astype(starts.dtype)
        firsts = starts[at]
        self.distance = distance
        self.whole = firsts[:0]
        if common is not None:
            low = np.flatnonzero(is_other[at])  # the first run of each remainder, and the last
            high = np.append(low[1:], len(at)) - 1
            ends = firsts[high] + sizes[high] * distance
            goes_on = (ends == firsts[low] + common).astype(bool)
            is_whole = goes_on & (low == high)
            self.whole = firsts[low[is_whole]]
            goes_on &= ~is_whole
            sizes[high[goes_on]] += sizes[low[goes_on]]
            keep = np.ones(len(at), bool)
            keep[low[goes_on | is_whole]] = False
            firsts, sizes = firsts[keep], sizes[keep]
        self.firsts, self.sizes = firsts, sizes

    def put(self, length: int, found: Pieces, out: list[Nest]) -> None:
        """Add the runs of blocks of a length to the pieces found, and those without an end to the nests."""
        d = self.distance
        out += [repeat(length, d, start, ()) for start in self.whole.tolist()]
        order = np.argsort(self.sizes, kind="stable")
        firsts, sizes = self.firsts[order].tolist(), self.sizes[order]
        for begin, end in pairwise(_edges(sizes)):
            n = int(sizes[begin])
            found[(n - 1) * d + length, ((length, d, 0),) if n > 1 else ()] += firsts[begin:end]
