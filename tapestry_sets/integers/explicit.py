"""Explicit answers: intersections, differences and unions of nests as disjoint nests, few where they are regular.

A window is a pair ``lo, hi``: the integers ``lo <= z < hi``. Nests are canonical; see `nest.canonical`.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from math import gcd, lcm

from tapestry_sets.integers import nest as nests
from tapestry_sets.integers import tuning
from tapestry_sets.integers.pairs import descend, surely_disjoint
from tapestry_sets.integers.stripe import Level
from tapestry_sets.limits import Budget, TooManyPieces, current

Block = tuple[int, int, nests.Nest]
"""One bounded piece as a plain tuple: (start, length, tail); see `nest.Item`."""
Joined = tuple[int, int, nests.Nest, int]
"""The same with a period of its own, or 0."""


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
    """

    __slots__ = ("budget", "s", "t")

    def __init__(self, s: nests.Nest, t: nests.Nest) -> None:
        self.s = s
        self.t = t
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
        found: list[Block] = []
        common = self.period(s, t, found)
        apart = len(s) == 1 == len(t)  # what two stripes share lies in different blocks of one of them
        return [
            nests.repeat(length, d or common, start, tail) if tail or d else ((length, common, start % common),)
            for start, length, tail, d in _merged(found, common, apart)
        ]

    def period(self, s: nests.Nest, t: nests.Nest, out: list[Block]) -> int:
        """Append the common elements of one common period, cut in the fewest of three ways; return the period."""
        (a, P, p), (b, Q, q) = s[0], t[0]
        g = gcd(P, Q)
        blocks_s, blocks_t, shifts = Q // g, P // g, (a + b - 1) // g
        few = min(blocks_s, blocks_t, shifts)
        self.spend(few)
        if shifts < blocks_s and shifts < blocks_t:
            self.pairs(s[1:], s[0], t[1:], t[0], g, out)
        elif blocks_s <= blocks_t:
            self.each(s[1:], t, range(p, p + blocks_s * P, P), a, out)
        else:
            self.each(t[1:], s, range(q, q + blocks_t * Q, Q), b, out)
        return P // g * Q

    def each(self, tail: nests.Nest, t: nests.Nest, blocks: range, a: int, out: list[Block]) -> None:
        """Append the elements that t shares with blocks of length a that have `tail` inside."""
        if tail:
            for block in blocks:
                self.collect(tail, block, t, 0, block, block + a, out)
            return
        part = nests.cut_stripe if len(t) == 1 else nests.cut
        for block in blocks:
            item = part(t, block, block + a)
            if item is not None:
                out.append(item)

    def pairs(self, tail: nests.Nest, x: Level, uail: nests.Nest, y: Level, g: int, out: list[Block]) -> None:
        """Append the overlaps of pairs of blocks, one pair for each distance that occurs between two."""
        (a, P, p), (b, Q, q) = x, y
        n = Q // g
        inverse = pow(P // g, -1, n)
        lowest = 1 - b + (q - p + b - 1) % g  # the smallest distance > -b that occurs
        i = (q - p - lowest) // g * inverse % n
        for d in range(lowest, a, g):
            block = p + P * i
            i = (i - inverse) % n
            first, end = max(0, d), min(a, d + b)
            if not tail and not uail:
                out.append((block + first, end - first, ()))
            elif not tail:
                _append(uail, block + d, block + first, block + end, out)
            elif not uail:
                _append(tail, block, block + first, block + end, out)
            else:
                self.collect(tail, block, uail, block + d, block + first, block + end, out)

    def collect(self, s: nests.Nest, si: int, t: nests.Nest, tj: int, lo: int, hi: int, out: list[Block]) -> None:
        """Append the common elements of s + si and t + tj in the window to `out`."""
        pair = descend(s, si, t, tj, lo, hi)
        if pair is None:
            return
        s, si, t, tj, lo, hi = pair
        if s and t:
            self.blocks(s, si, t, tj, lo, hi, out)
        elif s:
            _append(s, si, lo, hi, out)
        else:
            _append(t, tj, lo, hi, out)

    def blocks(self, s: nests.Nest, si: int, t: nests.Nest, tj: int, lo: int, hi: int, out: list[Block]) -> None:
        """Append the elements of a window that spans several blocks of both."""
        P, Q = s[0][1], t[0][1]
        if hi - lo >= 2 * lcm(P, Q):  # the whole line's answer, clipped, is shorter than block by block
            for nest in self.whole(nests.shift(s, si - lo), nests.shift(t, tj - lo)):
                item = nests.cut(nest, 0, hi - lo)
                if item is not None:
                    out.append((item[0] + lo, item[1], item[2]))
            return
        if P < Q:
            s, si, t, tj = t, tj, s, si
        a, P, p = s[0]
        steps = (hi - lo) // P
        if steps > tuning.MANY_BLOCKS and surely_disjoint(s, si, t, tj):
            return
        self.spend(steps)
        tail, found = s[1:], list[Block]()
        for block in range(lo - (lo - p - si) % P, hi, P):
            first, end = block if block > lo else lo, block + a if block + a < hi else hi
            if tail:
                self.collect(tail, block, t, tj, first, end, found)
            else:
                _append(t, tj, first, end, found)
        if len(found) == 2:
            out += _join_two(*found)
        elif found:
            out += _run_together(_join_touching(found, 0), 0)


def _append(s: nests.Nest, si: int, lo: int, hi: int, out: list[Block]) -> None:
    """Append the elements of s + si in the window, as one item."""
    item = nests.cut_stripe(s, lo - si, hi - si) if len(s) == 1 and lo < hi else nests.cut(s, lo - si, hi - si)
    if item is not None:
        out.append((item[0] + si, item[1], item[2]))


# ------------------------------------------------------------------ merging


def merge(items: Iterable[Block]) -> list[nests.Item]:
    """Return fewer items: touching intervals are one, and so are equal items at equal distances."""
    return [nests.Item(*item) for item in _run_together(_join_touching(list(items), 0), 0)]


def _run_together(items: list[Block], common: int, done: list[Joined] | None = None) -> list[Block]:
    """Join equal items at equal distances until none are left; with a `common` period they repeat with it.

    A run that fills the common period is one item of a shorter period, and goes to `done`.
    """
    while len(items) > 1:
        fewer = _join_equidistant(items, common, done)
        if len(fewer) == len(items):
            break
        items = fewer
    return items


def _merged(items: list[Block], common: int, apart: bool = False) -> list[Joined]:
    """Return items that repeat with period `common`, joined; each with its period if that is a shorter one.

    No two items touch if they are `apart`.
    """
    done: list[Joined] = []
    if len(items) > 1:
        items = [(start % common, length, tail) for start, length, tail in items]
        items = _run_together(items if apart else _join_touching(items, common), common, done)
    return [*done, *((start, length, tail, 0) for start, length, tail in items)]


def _join_touching(items: list[Block], common: int) -> list[Block]:
    """Join solid items where one ends at the next one's start."""
    ends = {start + length for start, length, tail in items if not tail}
    if common:
        ends |= {end - common for end in ends}
    if not any(item[0] in ends for item in items if not item[2]):
        return items
    solid = sorted(item for item in items if not item[2])
    out = [solid[0]]
    for item in solid[1:]:
        start, length, _ = out[-1]
        if start + length == item[0]:
            out[-1] = (start, length + item[1], ())
        else:
            out.append(item)
    start, length, _ = out[-1]
    if common and len(out) > 1 and start + length == out[0][0] + common:  # around the end of the period
        out[-1] = (start, length + out[0][1], ())
        del out[0]
    return [*out, *(item for item in items if item[2])]


def _join_two(one: Block, two: Block) -> list[Block]:
    """Return what joining does for two items that share no element; their ends may lie within each other."""
    d = two[0] - one[0]
    if d >= one[1] == two[1] and one[2] == two[2]:
        return [(one[0], d + one[1], nests.repeat(one[1], d, 0, one[2]))]
    if one[2] or two[2] or one[0] + one[1] != two[0]:
        return [one, two]
    return [(one[0], one[1] + two[1], ())]


def _join_equidistant(items: list[Block], common: int, done: list[Joined] | None) -> list[Block]:
    """Join runs of equal items at equal distances."""
    groups: dict[tuple[int, nests.Nest], list[int]] = {}
    for start, length, tail in items:
        key = length, tail
        if key in groups:
            groups[key].append(start)
        else:
            groups[key] = [start]
    if len(groups) == len(items):
        return items
    out: list[Block] = []
    for (length, tail), starts in groups.items():
        if len(starts) == 1:
            out.append((starts[0], length, tail))
        elif len(starts) == 2:
            _join_pair(starts, length, tail, common, out, done)
        else:
            _join_many(starts, length, tail, common, out, done)
    return out


def _join_pair(
    starts: list[int], length: int, tail: nests.Nest, common: int, out: list[Block], done: list[Joined] | None
) -> None:
    """Append two equal items as one, at the lesser of the distances between them, or both where they interleave."""
    one, two = starts
    d = two - one
    if common:
        if d < 0:
            one, d = two, -d
        around = common - d
        if around == d >= length and done is not None:
            done.append((one, length, tail, d))
            return
        if around <= d:
            one, d = one + d, around
    elif d < 0:
        one, d = two, -d
    if d >= length:
        out.append((one, d + length, nests.repeat(length, d, 0, tail) if tail or d == length else ((length, d, 0),)))
    else:
        out += [(start, length, tail) for start in starts]


def _join_many(
    starts: list[int], length: int, tail: nests.Nest, common: int, out: list[Block], done: list[Joined] | None
) -> None:
    """Append three or more equal items, joined in runs of one distance each."""
    starts.sort()
    if common:
        gaps = [two - one for one, two in pairwise(starts)]
        gaps.append(starts[0] + common - starts[-1])
        longest = max(gaps)
        if min(gaps) == longest >= length and done is not None:
            done.append((starts[0], length, tail, longest))
            return
        at = gaps.index(longest) + 1  # turned so that no run crosses the end of the period
        starts = starts[at:] + [start + common for start in starts[:at]]
    out += _runs_of(starts, length, tail, common)


def _runs_of(starts: list[int], length: int, tail: nests.Nest, common: int) -> list[Block]:
    """Join equal items at ascending starts into runs of one distance each."""
    out: list[Block] = []
    i, n = 0, len(starts)
    while i < n:
        start, last = starts[i], i
        d = starts[i + 1] - start if i + 1 < n else 0
        if d >= length:  # else it is the last, or interleaved with the next: no nest
            last = i + 1
            while last + 1 < n and starts[last + 1] - starts[last] == d:
                last += 1
            if last == i + 1 and last + 2 < n and starts[i + 3] - starts[i + 2] == starts[i + 2] - starts[i + 1]:
                last = i  # leave the start of a longer run alone
        if common:
            start %= common
        if last == i:
            out.append((start, length, tail))
        else:
            out.append((start, (last - i) * d + length, nests.repeat(length, d, 0, tail)))
        i = last + 1
    return out


# ------------------------------------------------------------------ in a window, and other operations


def meet_within(s: nests.Nest, t: nests.Nest, lo: int, hi: int) -> list[nests.Nest]:
    """Return the intersection in a window as nests that are right there, and disjoint there."""
    items: list[Block] = []
    if s != nests.EMPTY and t != nests.EMPTY:
        _Meet(s, t).collect(s, 0, t, 0, lo, hi, items)
    return from_items(_run_together(_join_touching(items, 0), 0), lo, hi)


def subtract_within(s: nests.Nest, t: nests.Nest, lo: int, hi: int) -> list[nests.Nest]:
    """Return the difference in a window as nests that are right there, and disjoint there."""
    items: list[Block] = []
    if s != nests.EMPTY:
        for c in nests.complement(t):
            _Meet(s, c).collect(s, 0, c, 0, lo, hi, items)
    return from_items(_run_together(_join_touching(items, 0), 0), lo, hi)


def subtract(s: nests.Nest, t: nests.Nest) -> list[nests.Nest]:
    """Return the difference on the whole line as disjoint nests."""
    outside = nests.complement(t)
    found = [nest for c in outside for nest in meet(s, c)]
    return merge_alike(found) if len(outside) > 1 else found


def from_items(items: Iterable[Block], lo: int, hi: int) -> list[nests.Nest]:
    """Return items in a window as nests whose period is the window's length."""
    return [nests.repeat(length, hi - lo, start, tail) for start, length, tail in items]


def merge_nests(every: Iterable[nests.Nest]) -> list[nests.Nest]:
    """Return fewer nests for the same elements, given disjoint nests."""
    current = merge_alike([s for s in every if s != nests.EMPTY])
    if len(current) < 2:
        return current
    common = lcm(*(s[0][1] for s in current))
    if sum(nests.count(s, 0, s[0][1]) * (common // s[0][1]) for s in current) == common:
        return [()]
    if sum(common // s[0][1] for s in current) <= tuning.SPREAD:  # of several periods: all of them in the common one
        current = min(current, _with_period(_spread(current, common), common), key=len)
    if common <= tuning.MASK_BITS:  # short: begin again from the blocks, and take the shorter answer
        mask = 0
        for s in current:
            mask |= nests.bits(s, 0, common)
        again = merge_alike(_with_period(nests.solid_items(mask), common))
        current = min(current, again, key=len)
    return current


def merge_alike(current: list[nests.Nest]) -> list[nests.Nest]:
    """Join nests of equal period and inside, until none are left."""
    while len(current) > 1:
        by_period: dict[int, list[Block]] = {}
        for s in current:
            a, P, p = s[0]
            by_period.setdefault(P, []).append((p, a, s[1:]))
        if len(by_period) == len(current):
            return current
        fewer: list[nests.Nest] = []
        for common, items in by_period.items():
            fewer += _with_period(items, common)
        if len(fewer) == len(current):
            return fewer
        current = fewer
    return current


def _with_period(items: Iterable[Block], common: int) -> list[nests.Nest]:
    """Return items that repeat with period `common` as nests, joined."""
    return [nests.repeat(length, d or common, start, tail) for start, length, tail, d in _merged(list(items), common)]


def _spread(every: Iterable[nests.Nest], common: int) -> list[Block]:
    """Return the blocks of nests in one common period."""
    return [(start, s[0][0], s[1:]) for s in every for start in range(s[0][2], s[0][2] + common, s[0][1])]
