"""Explicit answers: intersections, differences and unions of nests as disjoint nests, few where they are regular.

A window is a pair ``lo, hi``: the integers ``lo <= z < hi``. Nests are canonical; see `nest.canonical`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from math import gcd, lcm

from tapestry_sets.integers import nest as nests
from tapestry_sets.integers import tuning
from tapestry_sets.integers.nest import repeat
from tapestry_sets.integers.pairs import surely_disjoint
from tapestry_sets.integers.stripe import Level
from tapestry_sets.limits import Budget, TooManyPieces, current

Block = tuple[int, int, nests.Nest]
"""One bounded piece as a plain tuple: (start, length, tail); see `nest.Item`."""
Pieces = defaultdict[tuple[int, nests.Nest], list[int]]
"""Bounded pieces by what they are, (length, tail): where each begins, in no order."""


def strided(s: nests.Nest, first: int, step: int) -> list[nests.Nest]:
    """Return {k : first + step*k in s} as disjoint nests, for any step but 0.

    The common elements of s and the progression are a union of tight nests in which all distances are
    multiples of the step, so that every level can be divided by it.
    """
    if step < 0:
        return [nests.canonical(nests.reverse(t, 1)) for t in strided(s, first, -step)]
    if step == 1:
        return [nests.shift(s, -first)]
    return [_divide(t, step) for t in meet(nests.shift(s, -first), ((1, step, 0),))]


def _divide(s: nests.Nest, f: int) -> nests.Nest:
    return nests.canonical(((a - 1) // f + 1, P // f, p // f) for a, P, p in s)


def from_bits(mask: int) -> list[nests.Item]:
    """Return the set bits as items, few where they are regular."""
    return merge(nests.solid_items(mask))


# ------------------------------------------------------------------ explicit answers


def meet(s: nests.Nest, t: nests.Nest) -> list[nests.Nest]:
    """Return the intersection on the whole line as disjoint nests.

    Raises
    ------
    TooManyPieces
        If more than the pieces allowed are needed before merging.
    """
    return _Meet(s, t).whole(s, t)


class _Meet:
    """The common elements of two nests, listed block by block within a budget of steps.

    A common period is cut into windows in which one block of a level is left, whichever way makes the fewest:
    by the blocks of s, by those of t, or by the distances at which a block of s and one of t overlap::

        s   aaaa....aaaa....aaaa....        3 blocks of s
        t   .bb...bb...              2 periods of t shown; P = 8, Q = 5 have a common one of 40: 5 and 8 blocks
        d   -1, 0, 1, 2, 3                  a + b - 1 = 5 distances, each once

    Inside a window that meets one block of a level alone, that level is gone, and `collect` goes down one; a window
    that meets several blocks of both is cut again. The pieces come in no order, and merging joins them afterwards.
    No two of them touch, for the blocks of a level do not, unless a nest restarts its inside without a gap.
    """

    __slots__ = ("are_apart", "budget", "s", "t")

    def __init__(self, s: nests.Nest, t: nests.Nest) -> None:
        self.s = s
        self.t = t
        self.are_apart = _has_gaps(s) and _has_gaps(t)
        self.budget = Budget(tuning.STEPS_A_PIECE * current().max_pieces)

    def spend(self, steps: int) -> None:
        """Take steps from the budget, or raise `TooManyPieces`."""
        if not self.budget.spend(steps):
            most = current().max_pieces
            raise TooManyPieces(
                f"what {self.s} and {self.t} (on, period, phase) share is not listed in {tuning.STEPS_A_PIECE * most} "
                "blocks; count_common, first_common, isdisjoint and issubset list nothing, within=(start, stop) lists "
                f"a part, and limits(max_pieces={4 * most}) allows more"
            )

    def whole(self, s: nests.Nest, t: nests.Nest) -> list[nests.Nest]:
        """Return the common elements on the whole line."""
        if s == nests.EMPTY or t == nests.EMPTY:
            return []
        if not s or not t:
            return [s or t]
        found: Pieces = defaultdict(list)
        common = self.period(s, t, found)
        return repeat_found(found, common, self.are_apart)

    def period(self, s: nests.Nest, t: nests.Nest, out: Pieces) -> int:
        """Add the common elements of one common period, cut in the fewest of three ways; return the period."""
        (a, P, p), (b, Q, q) = s[0], t[0]
        g = gcd(P, Q)
        blocks_s, blocks_t, shifts = Q // g, P // g, (a + b - 1) // g
        if shifts < blocks_s and shifts < blocks_t:
            self.spend(shifts)
            self.pairs(s[1:], s[0], t[1:], t[0], g, out)
        elif blocks_s <= blocks_t:
            self.spend(blocks_s)
            self.each(s[1:], t, range(p, p + blocks_s * P, P), a, out)
        else:
            self.spend(blocks_t)
            self.each(t[1:], s, range(q, q + blocks_t * Q, Q), b, out)
        return P // g * Q

    def each(self, tail: nests.Nest, t: nests.Nest, blocks: range, a: int, out: Pieces) -> None:
        """Add the elements that t shares with blocks of length a that have `tail` inside."""
        if tail:
            collect = self.stripes if len(tail) == 1 == len(t) else self.collect
            for block in blocks:
                collect(tail, block, t, 0, block, block + a, out)
        elif len(t) == 1:
            _cut_by_blocks(t[0], 0, blocks, a, blocks.start, blocks.stop, out)
        else:
            for block in blocks:
                _cut(t, 0, block, block + a, out)

    def pairs(self, tail: nests.Nest, x: Level, uail: nests.Nest, y: Level, g: int, out: Pieces) -> None:
        """Add the overlaps of pairs of blocks, one pair for each distance that occurs between two."""
        (a, P, p), (b, Q, q) = x, y
        n = Q // g
        inverse = pow(P // g, -1, n)
        lowest = 1 - b + (q - p + b - 1) % g  # the smallest distance > -b that occurs
        i = (q - p - lowest) // g * inverse % n
        for d in range(lowest, a, g):
            block = p + P * i
            i = (i - inverse) % n
            first = d if d > 0 else 0
            end = d + b if d + b < a else a
            if not tail and not uail:
                out[end - first, ()].append(block + first)
            elif not tail:
                _cut(uail, block + d, block + first, block + end, out)
            elif not uail:
                _cut(tail, block, block + first, block + end, out)
            else:
                self.collect(tail, block, uail, block + d, block + first, block + end, out)

    def collect(self, s: nests.Nest, si: int, t: nests.Nest, tj: int, lo: int, hi: int, out: Pieces) -> None:
        """Add the common elements of s + si and t + tj in the window."""
        while s and t:
            (a, P, p), (b, Q, q) = s[0], t[0]
            into = (lo - p - si) % P
            if into >= a:
                lo += P - into
                into = 0
            if hi <= lo - into + P:  # up to the next block: what lies behind this one holds nothing
                s, si = s[1:], lo - into
                if si + a < hi:
                    hi = si + a
            else:
                into = (lo - q - tj) % Q
                if into >= b:
                    lo += Q - into
                    into = 0
                if hi > lo - into + Q:
                    (self.blocks if len(s) > 1 or len(t) > 1 else self.stripes)(s, si, t, tj, lo, hi, out)
                    return
                t, tj = t[1:], lo - into
                if tj + b < hi:
                    hi = tj + b
        if lo < hi:
            if s:
                _cut(s, si, lo, hi, out)
            else:
                _cut(t, tj, lo, hi, out)

    def stripes(self, s: nests.Nest, si: int, t: nests.Nest, tj: int, lo: int, hi: int, out: Pieces) -> None:
        """Do what `collect` does for two stripes, by the blocks of the one of the longer period."""
        if s[0][1] < t[0][1]:
            s, si, t, tj = t, tj, s, si
        a, P, p = s[0]
        blocks = range(lo - (lo - p - si) % P, hi, P)
        if blocks.start + P >= hi:
            _cut_by_blocks(t[0], tj, blocks, a, lo, hi, out)
        elif hi - lo < 2 * P or not self.is_long(s, si, t, tj, lo, hi, out):
            found: Pieces = defaultdict(list)
            _cut_by_blocks(t[0], tj, blocks, a, lo, hi, found)
            self.put(found, out)

    def blocks(self, s: nests.Nest, si: int, t: nests.Nest, tj: int, lo: int, hi: int, out: Pieces) -> None:
        """Add the elements of a window that spans several blocks of both, which are not both stripes."""
        if s[0][1] < t[0][1]:
            s, si, t, tj = t, tj, s, si
        a, P, p = s[0]
        if hi - lo >= 2 * P and self.is_long(s, si, t, tj, lo, hi, out):
            return
        tail = s[1:]
        collect = self.stripes if len(tail) == 1 == len(t) else self.collect
        found: Pieces = defaultdict(list)
        for block in range(lo - (lo - p - si) % P, hi, P):
            first, end = block if block > lo else lo, block + a if block + a < hi else hi
            if not tail:
                _cut(t, tj, first, end, found)
            elif first < end:
                collect(tail, block, t, tj, first, end, found)
        self.put(found, out)

    def is_long(self, s: nests.Nest, si: int, t: nests.Nest, tj: int, lo: int, hi: int, out: Pieces) -> bool:
        """Return whether a window need not be cut by the blocks of s; what it holds is added then."""
        P, Q = s[0][1], t[0][1]
        if hi - lo >= 2 * lcm(P, Q):  # the whole line's answer, clipped, is shorter
            for nest in self.whole(nests.shift(s, si - lo), nests.shift(t, tj - lo)):
                _cut(nest, lo, lo, hi, out)
            return True
        steps = (hi - lo) // P
        if steps > tuning.MANY_BLOCKS and surely_disjoint(s, si, t, tj):
            return True
        self.spend(steps)
        return False

    def put(self, found: Pieces, out: Pieces) -> None:
        """Add the pieces of a window, joined."""
        _join(found, 0, [], self.are_apart)
        for key, starts in found.items():
            out[key] += starts


def _has_gaps(s: nests.Nest) -> bool:
    """Return whether no two blocks of a level touch."""
    return not [a for a, P, _ in s if a == P]  # `all` takes twice as long


def _cut(s: nests.Nest, si: int, lo: int, hi: int, out: Pieces) -> None:
    """Add the elements of s + si in the window, as one piece."""
    item = nests.cut(s, lo - si, hi - si)
    if item is not None:
        start, length, tail = item
        out[length, tail].append(start + si)


def _cut_by_blocks(y: Level, tj: int, blocks: range, a: int, lo: int, hi: int, out: Pieces) -> None:
    """Add the elements of a stripe + tj in blocks of length a, clipped to a window, as one piece for each block.

    It is `nest.cut` of every block, written out: most of the pieces of an answer are found here.
    """
    b, Q, q = y
    q += tj
    for block in blocks:
        first = block if block > lo else lo
        end = block + a if block + a < hi else hi
        into = (first - q) % Q
        start = first if into < b else first + Q - into
        if start >= end:
            continue
        beyond = (end - 1 - q) % Q + 1 - b  # how far the end is behind the last element
        if beyond > 0:
            end -= beyond
        if into >= b or not into:
            out[end - start, () if end <= start + b else ((b, Q, 0),)].append(start)
        else:
            out[end - start, () if end <= start - into + b else ((b, Q, Q - into),)].append(start)


# ------------------------------------------------------------------ joining


def merge(items: Iterable[Block]) -> list[nests.Item]:
    """Return fewer items: touching intervals are one, and so are equal items at equal distances."""
    found = by_kind(items)
    _join(found, 0, [], False)
    return [nests.Item(start, length, tail) for (length, tail), starts in found.items() for start in starts]


def by_kind(items: Iterable[Block]) -> Pieces:
    """Return items by what they are."""
    found: Pieces = defaultdict(list)
    for start, length, tail in items:
        found[length, tail].append(start)
    return found


def repeat_found(found: Pieces, common: int, are_apart: bool = False) -> list[nests.Nest]:
    """Return pieces that repeat with period `common` as nests, joined; the pieces are used up.

    No two touch if they `are_apart`. A run that fills the common period becomes a nest of a shorter period.
    """
    out: list[nests.Nest] = []
    _join(found, common, out, are_apart)
    for (length, tail), starts in found.items():
        for start in starts:
            if tail or length == common:
                out.append(repeat(length, common, start, tail))
            else:
                out.append(((length, common, start % common),))
    return out


def _join(found: Pieces, common: int, out: list[nests.Nest], are_apart: bool) -> None:
    """Join pieces where they touch, and equal ones at equal distances, until no more are.

    With a `common` period the pieces repeat with it: a run that fills it is a nest of a shorter one, and goes to `out`.
    It is done in rounds: what one makes is joined with what is equal to it in the next.
    """
    if not are_apart:
        _join_touching(found, common)
    again = [key for key, starts in found.items() if len(starts) > 1]
    while again:
        made: Pieces = defaultdict(list)
        for key in again:
            starts = found[key]
            if len(starts) > 2:
                if _join_runs(starts, key, common, out, made):
                    del found[key]
                continue
            (length, tail), (one, two) = key, starts
            d = two - one
            if common:
                d %= common
                if 2 * d > common:  # the lesser of the distances between them
                    one, d = two, common - d
            elif d < 0:
                one, d = two, -d
            if d >= length:  # else they lie within each other
                if 2 * d == common:
                    out.append(repeat(length, d, one, tail))
                else:
                    run = repeat(length, d, 0, tail) if tail or d == length else ((length, d, 0),)
                    made[d + length, run].append(one)
                del found[key]
        again = []
        for key, starts in made.items():
            if key in found:
                starts += found[key]
            if len(starts) > 1:
                again.append(key)
            found[key] = starts


def _join_touching(found: Pieces, common: int) -> None:
    """Join solid pieces where one ends at the next one's start; with a `common` period also around its end."""
    solid = [key for key in found if not key[1]]
    if common:
        ends = {(start + key[0]) % common for key in solid for start in found[key]}
        if not any(start % common in ends for key in solid for start in found[key]):
            return
        pieces = sorted([(start % common, key[0]) for key in solid for start in found[key]])
    else:
        ends = {start + key[0] for key in solid for start in found[key]}
        if not any(start in ends for key in solid for start in found[key]):
            return
        pieces = sorted([(start, key[0]) for key in solid for start in found[key]])
    for key in solid:
        del found[key]
    joined = [pieces[0]]
    for start, length in pieces[1:]:
        before, long = joined[-1]
        if before + long == start:
            joined[-1] = (before, long + length)
        else:
            joined.append((start, length))
    start, length = joined[-1]
    if common and len(joined) > 1 and start + length == joined[0][0] + common:  # around the end of the period
        joined[-1] = (start, length + joined[0][1])
        del joined[0]
    for start, length in joined:
        found[length, ()].append(start)


def _join_runs(
    starts: list[int], key: tuple[int, nests.Nest], common: int, out: list[nests.Nest], made: Pieces
) -> bool:
    """Join equal pieces in runs of one distance each; return whether any are joined.

    Those of the distance that occurs most are joined first, for they belong together most likely.
    """
    length, tail = key
    if common:
        starts = sorted([start % common for start in starts])
        gaps = [two - one for one, two in pairwise(starts)]
        around = starts[0] + common - starts[-1]
        longest = max(gaps)
        if around < longest:  # turned so that no run crosses the end of the period
            at = gaps.index(longest) + 1
            starts = starts[at:] + [start + common for start in starts[:at]]
            gaps = [*gaps[at:], around, *gaps[: at - 1]]
        elif around == longest >= length and gaps.count(around) == len(gaps):
            out.append(repeat(length, around, starts[0], tail))
            return True
    else:
        starts.sort()
        gaps = [two - one for one, two in pairwise(starts)]
    often = max(gaps, key=gaps.count if len(gaps) < 32 else Counter(gaps).__getitem__)
    if often < length:
        often = 0
    alone: list[int] = []
    i, n = 0, len(gaps)
    while i < n:
        d = gaps[i]
        last = i + 1
        if d >= length:  # else the next one begins in this one's gaps
            while last < n and gaps[last] == d:
                last += 1
        if d >= length and (last > i + 1 or last == n or gaps[last] != often):
            run = repeat(length, d, 0, tail) if tail or d == length else ((length, d, 0),)
            made[(last - i) * d + length, run].append(starts[i])
            i = last + 1
        else:
            alone.append(starts[i])
            i += 1
    if i == n:
        alone.append(starts[n])
    if len(alone) > n:
        return False
    if alone:
        made[key] += alone
    return True


# ------------------------------------------------------------------ in a window, and other operations


def meet_within(s: nests.Nest, t: nests.Nest, lo: int, hi: int) -> list[nests.Nest]:
    """Return the intersection in a window as nests that are right there, and disjoint there."""
    return meet_each_within(s, [t], lo, hi)


def subtract_within(s: nests.Nest, t: nests.Nest, lo: int, hi: int) -> list[nests.Nest]:
    """Return the difference in a window as nests that are right there, and disjoint there."""
    return meet_each_within(s, nests.complement(t), lo, hi)


def meet_each_within(s: nests.Nest, parts: Iterable[nests.Nest], lo: int, hi: int) -> list[nests.Nest]:
    """Return what a nest shares with disjoint nests in a window as nests that are right there, and disjoint there."""
    found: Pieces = defaultdict(list)
    for t in parts:
        if s != nests.EMPTY and t != nests.EMPTY:
            _Meet(s, t).collect(s, 0, t, 0, lo, hi, found)
    return list_within(found, lo, hi)


def list_within(found: Pieces, lo: int, hi: int) -> list[nests.Nest]:
    """Return pieces of a window as nests whose period is the window's length, joined; the pieces are used up."""
    _join(found, 0, [], False)
    return [repeat(length, hi - lo, start, tail) for (length, tail), starts in found.items() for start in starts]


def subtract(s: nests.Nest, t: nests.Nest) -> list[nests.Nest]:
    """Return the difference on the whole line as disjoint nests."""
    return meet_each(s, nests.complement(t))


def meet_each(s: nests.Nest, parts: Sequence[nests.Nest]) -> list[nests.Nest]:
    """Return what a nest shares with nests of which no two touch, on the whole line, as disjoint nests."""
    if s == nests.EMPTY:
        return []
    if not s:
        return merge_alike(list(parts))  # the gaps of several levels may be equal, at equal distances
    if () in parts:
        return [s]
    by_period: dict[int, Pieces] = {}
    are_apart = True
    P = s[0][1]
    for t in parts:
        common = lcm(P, t[0][1])
        if common not in by_period:
            by_period[common] = defaultdict(list)
        both = _Meet(s, t)
        both.period(s, t, by_period[common])
        are_apart = are_apart and both.are_apart
    left = [nest for common, found in by_period.items() for nest in repeat_found(found, common, are_apart)]
    if len({nest[0][1] for nest in left}) < 2:
        return left
    return merge_alike(left, are_apart)


def from_items(items: Iterable[Block], lo: int, hi: int) -> list[nests.Nest]:
    """Return items in a window as nests whose period is the window's length."""
    return [repeat(length, hi - lo, start, tail) for start, length, tail in items]


def merge_nests(every: Iterable[nests.Nest]) -> list[nests.Nest]:
    """Return fewer nests for the same elements, given disjoint nests."""
    current = merge_alike([s for s in every if s != nests.EMPTY])
    if len(current) < 2:
        return current
    common = lcm(*(s[0][1] for s in current))
    if sum(nests.count(s, 0, s[0][1]) * (common // s[0][1]) for s in current) == common:
        return [()]
    if sum(common // s[0][1] for s in current) <= tuning.SPREAD:  # of several periods: all of them in the common one
        current = min(current, repeat_found(spread(current, common), common), key=len)
    if common <= tuning.MASK_BITS:  # short: begin again from the blocks, and take the shorter answer
        mask = 0
        for s in current:
            mask |= nests.bits(s, 0, common)
        again = merge_alike(repeat_found(by_kind(nests.solid_items(mask)), common))
        current = min(current, again, key=len)
    return current


def merge_alike(current: list[nests.Nest], are_apart: bool = False) -> list[nests.Nest]:
    """Join nests of equal period and inside, until none are left; no two touch if they `are_apart`."""
    while len(current) > 1:
        by_period: dict[int, Pieces] = {}
        for s in current:
            a, P, p = s[0]
            if P not in by_period:
                by_period[P] = defaultdict(list)
            by_period[P][a, s[1:]].append(p)
        if len(by_period) == len(current):
            return current
        fewer: list[nests.Nest] = []
        are_joined = True
        for common, found in by_period.items():
            joined = repeat_found(found, common, are_apart)
            are_joined = are_joined and all(s and s[0][1] == common for s in joined)
            fewer += joined
        if are_joined or len(fewer) == len(current):  # else there may be others of a shorter period
            return fewer
        current = fewer
    return current


def spread(every: Iterable[nests.Nest], common: int) -> Pieces:
    """Return the blocks of nests in one common period."""
    found: Pieces = defaultdict(list)
    for s in every:
        a, P, p = s[0]
        found[a, s[1:]] += range(p, p + common, P)
    return found
