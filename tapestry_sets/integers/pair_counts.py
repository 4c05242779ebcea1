"""How many elements do two nests share in a window? Blocks are counted together, as columns, in one of five ways.

Blocks of one nest that lie at the same distance from blocks of the other share the same number of elements::

    s  .aaaaaa.......aaaaaa.......aaaaaa....
    t  ...bbbb.........bbbb.........bbbb....
         |d|          |d|          |d|        3 pairs at one distance: 3 times what one shares

    walk    from the window inwards: all blocks of one level at once, of the nest whose period is longer
    meet    the pairs at each distance, as often as they are in the window; on from there by a walk, if need be
    sum     pairs of innermost blocks in one period of each nest: each pair is a sum of ramps over all periods
    fold    the same for blocks with short periods inside: their distances, modulo these periods, as sums of ramps
    mask    one AND of two bit masks

The walk costs as many entries as there are blocks in the window that overlap, whatever the depth; `meet` as many as
there are distances; `sum` as many as both nests have blocks in a period, multiplied; `fold` fewer blocks, times the
periods inside of them. So each way is quick on its own kind of question, and the least of their costs is what a
question costs; it is known before any of them begins.

All of them are long together for deep nests of unrelated periods in long windows, and must be: such a count solves
subset sums. Let P[i] = 4**i * M + w[i], and let s be the nest of levels (a[i], P[i], 0) from the largest i down to 0,
with two blocks of each level in one of the level around it, so that its elements in one block are the sums of x[i]*P[i]
over all x[i] in {0, 1}; and let t be the same without w, shifted by c. If M is larger than the sum of all w, a common
element has the same x in both, and sum(x[i] * w[i]) = c. To tell whether there is any is NP-hard and to count them is
#P-hard, as the depth grows; `tests/sets/integers/test_pair_counts.py` has it as a test.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache, partial
from itertools import pairwise, product
from math import gcd, inf, lcm
from typing import Any, NamedTuple

import numpy as np

from tapestry_sets.integers import nest as nests
from tapestry_sets.integers import tuning
from tapestry_sets.integers.block_columns import (
    BlockPairs,
    Stripes,
    block_around,
    count_blocks,
    count_tables,
    list_blocks,
    list_stripes,
    listed,
    sum_of_stripes,
    wind_up,
)
from tapestry_sets.integers.count_estimates import (
    about,
    count_looked_up,
    estimate_walk,
    find_mean_overlap,
    find_slowness,
    list_classes,
)
from tapestry_sets.integers.nest import Nest, bits
from tapestry_sets.integers.ramps import Column, count_rounds, fold_distances, multiply_modulo
from tapestry_sets.integers.stripe import stripes_count_common, stripes_first_common
from tapestry_sets.limits import OPEN, Budget, Open, TooHard

ShiftedPair = tuple[Nest, int, Nest, int, int, int]
"""Two nests, each with its shift, and a window."""


def descend(s: Nest, si: int, t: Nest, tj: int, lo: int, hi: int) -> ShiftedPair | None:
    """Go down in s + si and t + tj while the window meets one block of either; None if nothing can be common.

    Returns
    -------
    ShiftedPair or None
        The nests, their shifts and the window in which their common elements lie, which begins in a block of
        both; either a nest without levels is left, or the window spans several blocks of both.
    """
    while s and t:
        (a, P, p), (b, Q, q) = s[0], t[0]
        p += si
        q += tj
        into_s = (lo - p) % P
        if into_s >= a:
            lo += P - into_s
            into_s = 0
        into_t = (lo - q) % Q
        if into_t >= b:
            lo += Q - into_t
            into_s, into_t = (lo - p) % P, 0
            if into_s >= a:
                first = stripes_first_common((a, P, p), (b, Q, q), lo)
                if first is None:
                    return None
                lo = first
                into_s, into_t = (lo - p) % P, (lo - q) % Q
        if lo >= hi:
            return None
        if hi <= lo - into_s + P:  # up to the next block: what lies behind this one holds nothing
            s, si = s[1:], lo - into_s
            hi = min(hi, si + a)
        elif hi <= lo - into_t + Q:
            t, tj = t[1:], lo - into_t
            hi = min(hi, tj + b)
        else:
            break
    return (s, si, t, tj, lo, hi) if lo < hi else None


# ------------------------------------------------------------------ whole common periods


def _residue_counts(s: Nest, lo: int, hi: int, g: int) -> list[int]:
    """Return, for each r in [0, g), how many elements in the window are r modulo g."""
    out = [0] * g
    if hi <= lo:
        return out
    if not s:
        each, more = divmod(hi - lo, g)
        return [each + ((r - lo) % g < more) for r in range(g)]
    a, P, p = s[0]
    tail = s[1:]
    block = lo - (lo - p) % P
    if block < lo:  # a clipped first block
        _add_turned(out, _residue_counts(tail, lo - block, min(a, hi - block), g), block, 1)
        block += P
    whole = max(0, (hi - a - block) // P + 1)
    inside = _residue_counts(tail, 0, a, g) if whole else []
    turns = min(whole, g // gcd(P, g))  # the blocks' starts repeat modulo g
    for k in range(turns):
        _add_turned(out, inside, block + k * P, (whole - 1 - k) // turns + 1)
    block += whole * P
    if block < hi:  # a clipped last block
        _add_turned(out, _residue_counts(tail, 0, min(a, hi - block), g), block, 1)
    return out


def _add_turned(out: list[int], counts: list[int], by: int, times: int) -> None:
    g = len(out)
    for r, n in enumerate(counts):
        out[(r + by) % g] += n * times


# ------------------------------------------------------------------ one window


class _CountWay(NamedTuple):
    """A way to count: about how many entries of columns it takes, how it begins, and whether its parts pay for them."""

    entries: float
    begin: Callable[[], int]
    is_paid_in_parts: bool = False


class PairCount:
    """The number of common elements of two nests in a window, by the way that costs least.

    Parameters
    ----------
    budget : Budget
        Of branches; `tuning.PAIRS_A_BRANCH` entries of columns are taken for one.
    """

    __slots__ = ("_paid", "_parted", "budget")

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self._paid = 0.0  # entries that are paid for and not yet used
        self._parted = 0  # how many windows around this one are taken apart, in an estimate

    def common(self, s: Nest, t: Nest, lo: int, hi: int) -> int:
        """Return how many common elements of two nests, none of them empty, lie in a window.

        Raises
        ------
        TooHard
            If no way is within the budget. That is known before any begins, unless blocks overlap far more often
            than their lengths let expect.
        """
        pair = descend(s, 0, t, 0, lo, hi)
        if pair is None:
            return 0
        s, si, t, tj, lo, hi = pair
        if not s or not t:
            return nests.count(t, lo - tj, hi - tj) if not s else nests.count(s, lo - si, hi - si)
        s, t = nests.shift(s, si - lo), nests.shift(t, tj - lo)
        if s[0][1] < t[0][1]:
            s, t = t, s  # the longer period has the fewer blocks
        length = hi - lo
        if len(s) == 1 == len(t):
            return stripes_count_common(s[0], t[0], 0, length)
        if length <= tuning.SHORT:
            return _meet_bits(s, t, length)
        common = lcm(s[0][1], t[0][1])
        whole, rest = divmod(length, common)
        if not whole:
            return self._go(self._ways(s, t, length), s, t)
        if common <= tuning.SHORT:
            return whole * _meet_bits(s, t, common) + _meet_bits(s, t, rest)
        each = self.period(s, t)
        if 2 * rest > common:  # what is left of one more period is shorter than the rest
            return (whole + 1) * each - self.common(s, t, rest, common)
        return whole * each + (self.common(s, t, 0, rest) if rest else 0)

    def expected(self, s: Nest, t: Nest, lo: int, hi: int) -> float:
        """Return about how many branches `common` takes, but for what is counted at once."""
        pair = descend(s, 0, t, 0, lo, hi)
        if pair is None or not pair[0] or not pair[2] or len(pair[0]) == 1 == len(pair[2]):
            return 0.0
        s, _, t, _, lo, hi = pair
        if s[0][1] < t[0][1]:
            s, t = t, s
        length = min(hi - lo, lcm(s[0][1], t[0][1]))
        if length <= tuning.SHORT:
            return 0.0
        return min([way.entries for way in self._ways(s, t, length)]) / tuning.PAIRS_A_BRANCH

    def period(self, s: Nest, t: Nest) -> int:
        """Return how many common elements one common period has; s has the longer period; `TooHard` as for `common`."""
        P, Q = s[0][1], t[0][1]
        g = gcd(P, Q)
        if g == 1:
            return nests.count(s, 0, P) * nests.count(t, 0, Q)
        # by the Chinese remainder theorem all that matters of the phases is their distance modulo g
        s, t = nests.shift(s, -s[0][2]), ((t[0][0], Q, (t[0][2] - s[0][2]) % g), *t[1:])
        ways = []
        for m, (d, one), (e, two) in list_classes(s, t):
            entries = 2 * m * (one + two)
            ways.append(_CountWay(entries, partial(self._wind, s[:d], s[d:], t[:e], t[e:], m)))
        if min([way.entries for way in ways]) > tuning.COLUMN:
            if g <= tuning.RESIDUES:
                ways.append(_CountWay(g * g * len(s + t), lambda: _count_residues(s, t, g)))
            ways += self._ways(s, t, P // g * Q)
        return self._go(ways, s, t)

    @staticmethod
    @lru_cache(maxsize=1 << 12)
    def _wind(s: Nest, tail: Nest, t: Nest, uail: Nest, m: int) -> int:
        dtype = np.int64 if max(s[0][1], t[0][1]) * m < 1 << 61 else object
        one, two = list_stripes(s, dtype), list_stripes(t, dtype)
        if m == 1:
            return wind_up(one, two)
        # a common period of a class stands for m times as many integers, which may be several common periods
        common = m * lcm(*(x.period * (m // gcd(x.period, m)) // m for x in (one, two)))
        total = sum([wind_up(one.in_class(r, m, tail), two.in_class(r, m, uail)) for r in range(m)])
        return total // (common // lcm(one.period, two.period))

    def unions(self, ss: Sequence[Nest], ts: Sequence[Nest], lo: int, hi: int) -> int | Open:
        """Return how many common elements two disjoint unions have in a window, of nests that are not empty.

        Members of one period are counted together, or all blocks in the window are listed. `OPEN` where neither is
        within the budget, or a member holds every integer.
        """
        if not all(ss) or not all(ts):
            return OPEN
        ss, ts = ([nests.shift(s, -lo) for s in members] for members in (ss, ts))
        length = hi - lo
        groups = list(product(_by_period(ss), _by_period(ts)))
        cost = sum([self._group_cost(*pair, length) for pair in groups])
        ways = [_CountWay(cost, lambda: sum([self._group(*pair, length) for pair in groups]))]
        if length <= tuning.MAX_TABLE:
            mask = len(groups) * length / tuning.BITS_AN_ENTRY + tuning.ENTRIES_A_ROUND * (len(ss) + len(ts)) / 16
            ways.append(_CountWay(mask, lambda: _meet_union_bits(ss, ts, length)))
        if length < 1 << 61:
            blocks = sum([count_blocks(s, length) for s in (*ss, *ts)])
            each = tuning.ENTRIES_A_ROUND * (len(ss) + len(ts)) / 8
            ways.append(_CountWay(4 * blocks + each, lambda: _meet_blocks(ss, ts, length)))
        m, n = (lcm(*map(nests.period, members)) for members in (ss, ts))
        if gcd(m, n) == 1 and max(m, n) <= tuning.MAX_TABLE and length < m * n:
            tables = (m + n) / tuning.PLACES_AN_ENTRY + tuning.ENTRIES_A_ROUND
            ways.append(_CountWay(tables, lambda: _meet_tables(ss, ts, m, n, length)))
        if min([way.entries for way in ways]) > self.budget.left * tuning.PAIRS_A_BRANCH:
            return OPEN
        return self._go(ways, ss[0], ts[0])

    @staticmethod
    def _group_cost(ss: list[Nest], ts: list[Nest], length: int) -> float:
        """Return about how many entries `_group` takes."""
        P, Q = ss[0][0][1], ts[0][0][1]
        ours, theirs = (about(sum([count_blocks(s[1:], s[0][0]) for s in members])) for members in (ss, ts))
        whole, rest = divmod(length, lcm(P, Q))
        rounds = count_rounds(rest // max(P, Q) + 1, min(P, Q)) if rest else 0
        slow = 1 if max(P, Q) < 1 << 52 and length < 1 << 100 else find_slowness(max(P, Q))
        each = tuning.ENTRIES_A_ROUND + slow * ours * theirs
        return slow * (ours + theirs) + (2 * (ours + theirs) if whole else 0) + rounds * each

    @staticmethod
    def _group(ss: list[Nest], ts: list[Nest], length: int) -> int:
        """Count what unions of members of one period each share in [0, length)."""
        if ss[0][0][1] < ts[0][0][1]:
            ss, ts = ts, ss
        dtype: Any = np.int64 if ss[0][0][1] < 1 << 52 and length < 1 << 100 else object
        one, two = (Stripes.joined([list_stripes(s, dtype) for s in members]) for members in (ss, ts))
        whole, rest = divmod(length, lcm(one.period, two.period))
        total = whole * wind_up(one, two) if whole else 0
        return total + (sum_of_stripes(one, two, rest) if rest else 0)

    def _go(self, ways: Iterable[_CountWay], s: Nest, t: Nest) -> int:
        """Go the way that costs least, or raise `TooHard`."""
        way = min(ways, key=lambda way: way.entries)
        branches = 1 + int(way.entries / tuning.PAIRS_A_BRANCH)
        by_parts = way.is_paid_in_parts and branches <= self.budget.left
        if not self.budget.spend(1 if by_parts else branches):
            raise self._too_hard(s, t, way.entries)
        self._paid += 0 if by_parts else way.entries
        return way.begin()

    def _spend(self, entries: float, s: Nest, t: Nest) -> None:
        """Use entries that are paid for; where a way turns out longer, take more from the budget or raise `TooHard`."""
        self._paid -= entries
        if self._paid < 0:
            more, self._paid = -self._paid, 0.0
            if not self.budget.spend(1 + int(more / tuning.PAIRS_A_BRANCH)):
                raise self._too_hard(s, t, more)

    def _too_hard(self, s: Nest, t: Nest, entries: float) -> TooHard:
        branches = int(entries / tuning.PAIRS_A_BRANCH) + 1
        return TooHard(
            f"count of common elements of {s} and {t}: about {branches} branches on top of {self.budget.spent}, and "
            f"the budget is {self.budget.most}; ask for first_common or isdisjoint, count in whole common periods or "
            f"in a shorter range, or allow more by limits(budget={2 * (self.budget.most + branches)})"
        )

    def _ways(self, s: Nest, t: Nest, length: int) -> list[_CountWay]:
        """Return the ways to count in [0, length), where s has the longer period; if none is quick, also in parts."""
        ways = list(self._simple_ways(s, t, length))
        if min([way.entries for way in ways]) <= tuning.COLUMN or self._parted > tuning.PARTED:
            return ways
        _, P, p = s[0]
        first, n = p % P, length // P
        if n < 2:  # block by block
            cuts = [0, *range(first or P, length, P), length]
            ways.append(self._in_parts(s, t, list(pairwise(cuts)), None))
        else:
            n = (length - s[0][0] - first) // P + 1
            ends = [(0, first), (first + P * n, max(length, first + P * n))]
            ways.append(self._in_parts(s, t, ends, self._folding(s, t, first, n)))
        return ways

    def _in_parts(self, s: Nest, t: Nest, windows: list[tuple[int, int]], more: _CountWay | None) -> _CountWay:
        """Return the way to count in several windows each by itself, and what `more` counts."""
        self._parted += 1
        expected = [self.expected(s, t, lo, hi) for lo, hi in windows]
        self._parted -= 1
        entries = tuning.PAIRS_A_BRANCH * sum(expected) + (more.entries if more else 0.0)

        def begin() -> int:
            total = self._go([more], s, t) if more else 0
            return total + sum([self.common(s, t, lo, hi) for lo, hi in windows])

        return _CountWay(entries, begin, is_paid_in_parts=True)

    def _simple_ways(self, s: Nest, t: Nest, length: int) -> Iterator[_CountWay]:
        """Yield the ways to count all of a window at once."""
        (a, P, _), (b, Q, _) = s[0], t[0]
        g = gcd(P, Q)
        levels = tuning.ENTRIES_A_ROUND * (len(s) + len(t))
        yield _CountWay(levels / 16 + about(length, tuning.BITS_AN_ENTRY), lambda: _meet_bits(s, t, length))

        near: Any = np.int64 if length + P < 1 << 62 else object
        slow = 1 if near == np.int64 else find_slowness(P)
        walk = levels + slow * estimate_walk(s, t, length, 1)
        yield _CountWay(walk, lambda: self._walk(s, t, BlockPairs.window(length, near), 0, (0, 0)))

        dtype: Any = np.int64 if P < 1 << 52 and length < 1 << 100 else object
        slow = 1 if dtype == np.int64 else find_slowness(P)
        distances = about((a + b) // g + 1)
        meeting = min(distances, about(length * (a + b), P * Q) + 1)
        walk = estimate_walk(s[1:], t[1:], find_mean_overlap(a, b), meeting)
        yield _CountWay(levels + slow * (2 * distances + walk), lambda: self._meet(s, t, length, 1, dtype))

        if tuning.SHORT < a + b <= tuning.MAX_TABLE and dtype == np.int64:
            turn = levels + 2 * distances + (a + b) / tuning.BITS_A_TURN
            yield _CountWay(turn, lambda: self._turn(s, t, length))

        rounds = count_rounds(length // P + 1, Q)
        one, two = count_blocks(s[1:], a), count_blocks(t[1:], b)
        lengths = nests.count(s[1:], 0, a) * two + nests.count(t[1:], 0, b) * one
        meet = levels + slow * about((one + two) * g * one + (one + 1) * lengths, 2 * g * max(one, 1))
        yield _CountWay(meet, lambda: self._meet(s, t, length, max(len(s), len(t)), dtype))
        entries = rounds * (tuning.ENTRIES_A_ROUND + slow * about(one * two)) + tuning.ENTRIES_A_ROUND
        yield _CountWay(entries, lambda: sum_of_stripes(list_stripes(s, dtype), list_stripes(t, dtype), length))

    # -------------------------------------------------------------- walk

    def _walk(self, s: Nest, t: Nest, pairs: BlockPairs, g: int, around: tuple[int, int]) -> int:
        """Sum over columns: times * (what s + x and t + y share in [first, end)).

        All distances y - x are the same modulo g. `around` is how long the blocks are that begin at x and at y, where
        these are known.
        """
        # One level after another, of the nest whose next period is longer, each entry becomes one for each block in it
        #
        #     before    [first ···································· end)        one entry, times 3
        #     blocks  ▄▄▄▄▄▄▄      ▄▄▄▄▄▄▄      ▄▄▄▄▄▄▄      ▄▄▄▄▄▄▄
        #     after     [·····)    [······)     [······)     [·····)             four, times 3 each
        while len(pairs.x):
            self._spend(len(pairs.x), s, t)
            if not s or not t:
                return pairs.count_rest(s, t)
            if len(s) == 1 == len(t) and pairs.width > tuning.FEW_BLOCKS * max(s[0][1], t[0][1]):
                return pairs.count_stripes(s[0], t[0])
            if s[0][1] < t[0][1]:
                s, t, pairs, around = t, s, pairs.swapped(), around[::-1]
            (a, P, p), s = s[0], s[1:]
            k, many = pairs.blocks_inside(a, P, p)
            entries = int(many.sum())
            if entries > tuning.COLUMN:
                parts = (
                    pairs.entered(a, P, p, k, many, at, min(at + tuning.COLUMN, entries))
                    for at in range(0, entries, tuning.COLUMN)
                )
                return sum([self._walk(s, t, part, gcd(g, P), (a, around[1])) for part in parts])
            pairs = pairs.entered(a, P, p, k, many, 0, entries)
            g, around = gcd(g, P), (a, around[1])
            if around[1] and 2 * ((a + around[1]) // g + 1) < len(pairs.x):
                pairs = pairs.merged(a, around[1], g)
        return 0

    # -------------------------------------------------------------- meet, turn

    def _meet(self, s: Nest, t: Nest, length: int, depth: int, dtype: Any) -> int:
        """Sum over the distances of blocks, of the level `depth` of each nest or of their innermost."""
        total, lo, hi = self._ends(s[:depth], t[:depth], s, t, length)
        a, b, g = s[0][0], t[0][0], gcd(s[0][1], t[0][1])
        ours, theirs = list_stripes(s[:depth], dtype), list_stripes(t[:depth], dtype)
        for pairs in self._distances(s, t, ours.shifted(-lo), theirs.shifted(-lo), hi - lo):
            total += self._walk(s[depth:], t[depth:], pairs, g, (a, b) if depth == 1 else (0, 0))
        return total

    def _turn(self, s: Nest, t: Nest, length: int) -> int:
        """Sum over the distances of blocks; what they share comes from one correlation by Fourier transforms.

        Its values are integers of at most 2**24, which floating point misses by far less than a half.
        """
        total, lo, hi = self._ends(s[:1], t[:1], s, t, length)
        a, b = s[0][0], t[0][0]
        x, y = listed(bits(s[1:], 0, a), a), listed(bits(t[1:], 0, b), b)
        n = 1 << (a + b - 1).bit_length()
        shared = np.rint(np.fft.irfft(np.fft.rfft(x, n) * np.conj(np.fft.rfft(y, n)), n)).astype(np.int64)
        ours, theirs = list_stripes(s[:1], np.int64), list_stripes(t[:1], np.int64)
        for pairs in self._distances(s, t, ours.shifted(-lo), theirs.shifted(-lo), hi - lo):
            total += int(np.dot(pairs.times, shared[pairs.y % n]))
        return total

    def _ends(self, outer: Nest, other: Nest, s: Nest, t: Nest, length: int) -> tuple[int, int, int]:
        """Count where the window's ends cut a block of both; return that, and where the cut blocks end and begin."""
        lo, hi = 0, length
        first = min(block_around(outer, 0)[1], block_around(other, 0)[1])
        last = max(block_around(outer, length - 1)[0], block_around(other, length - 1)[0])
        if first > 0:
            lo = min(first, length)
        if last < length:
            hi = max(lo, last)
        return self.common(s, t, 0, lo) + self.common(s, t, hi, length), lo, hi

    def _distances(self, s: Nest, t: Nest, ours: Stripes, theirs: Stripes, length: int) -> Iterator[BlockPairs]:
        """Yield the pairs of blocks, each repeated with its nest's period, that overlap in [0, length): at x = 0 one
        of ours, at y one of theirs, times how often these come at this distance. None is cut by the window.
        """
        # The block number i of ours begins at u + P*i, and one of theirs d behind it if u + P*i + d = v modulo Q. So
        # d is v - u modulo g, and i is (v - u - d)/g * inverse modulo n. Starts are sorted modulo g, repeated as far
        # as blocks are long, and looked up:
        #
        #     theirs   | v0   v1 v2 | v0   v1 v2 | v0   v1 v2 |       period g
        #     ours              [longest of theirs ·· u ···· longest of ours]      d = v - u for each v in here
        P, Q = ours.period, theirs.period
        g = gcd(P, Q)
        n = Q // g
        inverse = pow(P // g, -1, n)
        periods, rest = divmod(length, P)
        lengths, others = ours.size, theirs.size
        behind, before = int(lengths.max()), int(others.max())
        u, v = ours.start % g, theirs.start % g
        order = np.argsort(v, kind="stable")
        turns = np.arange(-(before // g) - 1, behind // g + 2, dtype=u.dtype)
        self._spend(len(turns) * len(v) + len(u), s, t)  # see `_ways`
        places = (turns[:, None] * g + v[order]).ravel()
        low = np.searchsorted(places, u - before, "right")
        many = np.searchsorted(places, u + behind, "left") - low
        before_each = np.cumsum(many) - many
        entries = int(many.sum())
        for begin in range(0, entries, tuning.COLUMN):
            number = np.arange(begin, min(begin + tuning.COLUMN, entries))
            self._spend(len(number), s, t)
            at = np.searchsorted(before_each, number, "right") - 1 if len(u) > 1 else np.zeros_like(number)
            found = low[at] + number - before_each[at]
            d = places[found] - u[at]
            to = order[found % len(v)]
            keep = (d < lengths[at]) & (-d < others[to])
            d, at, to = d[keep], at[keep], to[keep]
            first, end = np.maximum(d, 0), np.minimum(lengths[at], d + others[to])
            start = ours.start[at]
            i = multiply_modulo((theirs.start[to] - start - d) // g % n, inverse, n)
            least, most = -((start + first) // P), periods + (rest - start - end) // P  # in the window between these
            times = (most - least - (i - least) % n) // n + 1
            keep = times > 0
            d, first, end, times = d[keep], first[keep], end[keep], times[keep]
            yield BlockPairs(np.zeros_like(d), d, first, end, times)

    # -------------------------------------------------------------- fold

    @staticmethod
    def _folding(s: Nest, t: Nest, first: int, n: int) -> _CountWay:
        """Return how distances are folded best, by where each nest is taken apart into blocks with an inside: of n
        periods of s from `first` on."""
        P, g, levels = s[0][1], gcd(s[0][1], t[0][1]), 4 * tuning.ENTRIES_A_ROUND
        rounds = count_rounds(n, t[0][1])
        dtype: Any = np.int64 if 8 * P * (n + 2) < 1 << 62 else object
        slow = 1 if dtype == np.int64 else find_slowness(P)
        cuts = []
        for nest in (s, t):
            parts = []
            for depth in range(1, len(nest) + 1):
                period = nest[depth][1] if depth < len(nest) else 1
                runs = count_blocks(nest[depth:], period)
                parts.append((count_blocks(nest[1:depth], nest[0][0]), period, runs, depth))
            cuts.append(parts)
        best, d, e = inf, 0, 0
        for (one, m, ours, at), (two, k, theirs, at_two) in product(*cuts):
            residues = one * two * (m // gcd(g, m) + k // gcd(g, k))
            # at both ends of each block, each run inside of it looks up both its own ends, at all distances
            ends = 2 * one * ours * count_looked_up(t[at_two:], k) + 2 * two * theirs * count_looked_up(s[at:], m)
            entries = rounds * (levels + 2 * slow * about(residues)) + about(2 * ends)
            if entries < best:
                best, d, e = entries, at, at_two
        blocks, others = ((s[0][0], P, first), *s[1:d]), t[:e]
        return _CountWay(
            best,
            lambda: fold_distances(list_stripes(blocks, dtype), s[d:], list_stripes(others, dtype), t[e:], n, dtype),
        )


def _by_period(members: Sequence[Nest]) -> list[list[Nest]]:
    groups: dict[int, list[Nest]] = {}
    for s in members:
        groups.setdefault(s[0][1], []).append(s)
    return list(groups.values())


def _meet_union_bits(ss: Sequence[Nest], ts: Sequence[Nest], length: int) -> int:
    return (nests.union_bits(ss, 0, length) & nests.union_bits(ts, 0, length)).bit_count()


def _meet_tables(ss: Sequence[Nest], ts: Sequence[Nest], m: int, n: int, length: int) -> int:
    one, two = listed(nests.union_bits(ss, 0, m), m), listed(nests.union_bits(ts, 0, n), n)
    return count_tables(one, two, length)


def _meet_blocks(ss: Sequence[Nest], ts: Sequence[Nest], length: int) -> int:
    """Return how many common elements two unions have in [0, length), from all blocks that each has there."""
    sides = []
    for members in (ss, ts):
        dtypes = [object if any(P >= 1 << 61 for _, P, _ in s) else np.int64 for s in members]
        listed_each = [list_blocks(s, 0, length, dtype) for s, dtype in zip(members, dtypes, strict=True)]
        start, end = (np.concatenate([blocks[k].astype(np.int64) for blocks in listed_each]) for k in (1, 2))
        order = np.argsort(start)
        sides.append((start[order], end[order]))
    (start, end), (begin, stop) = sides
    if not len(start) or not len(begin):
        return 0
    before = np.cumsum(stop - begin)  # how many of theirs there are up to each block's end

    def rank(x: Column) -> Column:
        at = np.searchsorted(begin, x, "right") - 1
        held = before[at] - np.maximum(stop[at] - x, 0)
        return np.where(at < 0, 0, held)

    return int((rank(end) - rank(start)).sum())


def _meet_bits(s: Nest, t: Nest, length: int) -> int:
    return (bits(s, 0, length) & bits(t, 0, length)).bit_count()


def _count_residues(s: Nest, t: Nest, g: int) -> int:
    """Return the common elements of a common period, residue by residue modulo the gcd of the periods."""
    pairs = zip(_residue_counts(s, 0, s[0][1], g), _residue_counts(t, 0, t[0][1], g), strict=True)
    return sum([m * n for m, n in pairs])
