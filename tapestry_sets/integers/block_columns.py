"""Blocks of nests as columns: all of one level at once, pairs of them in two nests, and sums over these."""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd
from typing import Any, NamedTuple, cast

import numpy as np

from tapestry_sets.integers import nest as nests
from tapestry_sets.integers import tuning
from tapestry_sets.integers.nest import Nest, bits
from tapestry_sets.integers.ramps import Column, sum_overlaps
from tapestry_sets.integers.stripe import Level

Table = np.ndarray[Any, np.dtype[np.uint8]]
"""For each integer of a period 1 if it is held, else 0."""


class Stripes(NamedTuple):
    """Stripes of one period, which share no element, as columns: blocks [start, end) in one period, from any place on.

    The tail of a nest inside such a block counts from `origin`, which is `start` unless a block around it cuts it.
    """

    origin: Column
    start: Column
    end: Column
    period: int

    @classmethod
    def joined(cls, each: Sequence[Stripes]) -> Stripes:
        """Return stripes of one period together; no two share an element."""
        origin, start, end = (np.concatenate(columns) for columns in zip(*[one[:3] for one in each], strict=True))
        return cls(origin, start, end, each[0].period)

    @property
    def size(self) -> Column:
        """How long the blocks are."""
        return self.end - self.start

    def shifted(self, k: int) -> Stripes:
        """Return the stripes k further."""
        return Stripes(self.origin + k, self.start + k, self.end + k, self.period)

    def part(self, at: Any) -> Stripes:
        """Return some of the stripes."""
        return Stripes(self.origin[at], self.start[at], self.end[at], self.period)

    def in_class(self, r: int, m: int, tail: Nest) -> Stripes:
        """Return the integers w for which m*w + r is an element, where `tail` is inside each block.

        The tail repeats with a divisor of m. So one class modulo m is in a block as a whole, or not at all, and what
        was a block with a comb inside is a plain block, or none; of a period that m does not divide, several periods
        make up one::

            block, comb of 2   1.1.1.1.1....1.1.1.1.1...     even:  11111..(none)   odd: (none)..11111
        """
        copies = m // gcd(self.period, m)
        by = np.repeat(np.arange(copies, dtype=self.start.dtype) * self.period, len(self.start))
        every = (np.tile(column, copies) + by for column in self[:3])
        period = self.period * copies // m
        origin, start, end = every
        if tail:
            held = listed(bits(tail, 0, tail[0][1]), tail[0][1]).astype(bool)
            keep = held[((r - origin) % tail[0][1]).astype(np.int64)]
            origin, start, end = origin[keep], start[keep], end[keep]
        start, end = -((r - start) // m), -((r - end) // m)
        keep = start < end
        return Stripes(start, start, end, period).part(keep)

    def count_between(self, start: int, end: int) -> int:
        """Return how many elements lie in [start, end)."""
        first = (self.start - start % self.period) % self.period  # behind the first place
        n = end - start
        held = (n - first) // self.period * self.size  # of all but the block that holds the end, and one before 0
        at_end = np.minimum((n - first) % self.period, self.size)
        before = np.maximum(first + self.size - self.period, 0)  # of the block that holds the first place
        return int((held + at_end + before).sum())


def count_blocks(s: Nest, length: int) -> int:
    """Return how many innermost blocks of a nest lie in [0, length), give or take one for each block around them."""
    many = 1
    for depth, (a, P, p) in enumerate(s):
        starts = nests.count((*s[:depth], (1, P, p)), 0, length)
        many = starts + (many if 0 < -p % P < a else 0)
    return many


def list_stripes(s: Nest, dtype: Any) -> Stripes:
    """Return a nest as the stripes that its innermost blocks are, in the first period that begins with a block."""
    a, P, p = s[0]
    return Stripes(*list_blocks(s[1:], 0, a, dtype), P).shifted(p)


def list_blocks(s: Nest, lo: int, hi: int, dtype: Any) -> tuple[Column, Column, Column]:
    """Return where the innermost blocks of a nest in a window would begin, and where they begin and end in it."""
    if not s:
        return np.array([lo], dtype), np.array([lo], dtype), np.array([hi], dtype)
    a, P, p = s[0]
    first, last = (lo - p) // P, (hi - 1 - p) // P
    if len(s) > 1 and last - first < 2:  # of long blocks only what lies in the window is listed
        found = [(np.zeros(0, dtype),) * 3]
        for b in range(p + P * first, p + P * last + 1, P):
            if max(lo, b) < min(hi, b + a):
                there = list_blocks(s[1:], max(lo - b, 0), min(hi - b, a), dtype)
                found.append((there[0] + b, there[1] + b, there[2] + b))
        origins, starts, ends = (np.concatenate(parts) for parts in zip(*found, strict=True))
        return origins, starts, ends
    begin = np.arange(first, last + 1, dtype=dtype) * P + p
    origin, start, end = begin, begin, begin + a
    if len(s) > 1:
        inside = list_blocks(s[1:], 0, a, dtype)
        origin, start, end = ((begin[:, None] + part).ravel() for part in inside)
    start, end = np.maximum(start, lo), np.minimum(end, hi)
    keep = start < end
    return (origin, start, end) if keep.all() else (origin[keep], start[keep], end[keep])


def listed(mask: int, n: int) -> Table:
    """Return the n lowest bits of a mask as an array of 0 and 1."""
    packed = np.frombuffer(mask.to_bytes(-(-n // 8), "little"), np.uint8)
    return cast("Table", np.unpackbits(packed, count=n, bitorder="little"))


def block_around(s: Nest, z: int) -> tuple[int, int]:
    """Return the innermost block that holds z; if there is none, one that begins behind z and ends at 0."""
    origin, start, end = 0, 0, 0
    for depth, (a, P, p) in enumerate(s):
        into = (z - origin - p) % P
        if into >= a:
            return z + 1, 0
        origin = z - into
        start, end = (max(start, origin), min(end, origin + a)) if depth else (origin, origin + a)
    return start, end


def _ranks(s: Nest, x: Column) -> Column:
    """Return how many elements lie before each x, counted from one place that is the same for all."""
    total: Column = np.zeros_like(x)
    for depth, (a, P, p) in enumerate(s):
        x = x - p
        u = x // P
        x = np.minimum(x - u * P, a)
        total += u * nests.count(s[depth + 1 :], 0, a)
    return total + x


class BlockPairs(NamedTuple):
    """Pairs of places in two nests, as columns: at x in one, y in the other; a window there; how often that comes."""

    x: Column
    y: Column
    first: Column
    end: Column
    times: Column

    @classmethod
    def window(cls, length: int, dtype: Any) -> BlockPairs:
        """Return the one pair of the starts of both nests, with the window [0, length)."""
        zero = np.zeros(1, dtype)
        return cls(zero, zero, zero, zero + length, zero + 1)

    @property
    def width(self) -> float:
        """How long the windows are on average."""
        lengths = self.end - self.first
        return int(lengths.sum()) // len(lengths) if lengths.dtype == object else float(lengths.mean())

    def swapped(self) -> BlockPairs:
        """Return the same with the nests in each other's place."""
        return self._replace(x=self.y, y=self.x)

    def blocks_inside(self, a: int, P: int, p: int) -> tuple[Column, Column]:
        """Return the number of the first block of a stripe at x that meets the window, and how many do."""
        begin = self.x + p
        k = (self.first - begin) // P
        k += (self.first - begin - k * P >= a).astype(k.dtype)  # that one ends before the window
        return k, np.maximum((self.end - 1 - begin) // P - k + 1, 0)

    def entered(self, a: int, P: int, p: int, k: Column, many: Column, begin: int, end: int) -> BlockPairs:
        """Return a pair for each block of a stripe at x, from number `begin` to `end` of all of them."""
        after = np.cumsum(many)
        low, high = np.searchsorted(after, [begin, end - 1], "right").tolist()
        many, after = many[low : high + 1], after[low : high + 1]
        inside = np.minimum(after, end) - np.maximum(after - many, begin)
        at = np.repeat(np.arange(low, high + 1), inside.astype(np.int64))
        number = np.arange(begin, end) - np.repeat(after - many, inside.astype(np.int64))
        x = self.x[at] + (k[at] + number) * P + p
        first, stop = np.maximum(self.first[at], x), np.minimum(self.end[at], x + a)
        return BlockPairs(x, self.y[at], first, stop, self.times[at])

    def merged(self, a: int, b: int, g: int) -> BlockPairs:
        """Return the pairs of blocks, of lengths a and b, in which those at one distance are one; those that their
        windows cut stay. All distances are the same modulo g.
        """
        x, y, first, end, times = self
        whole = (first == np.maximum(x, y)) & (end == np.minimum(x + a, y + b))
        d = (y - x)[whole]
        if not len(d) or int(times.sum()) >> 53:
            return self
        low = int(d.min())
        how_often = np.bincount(((d - low) // g).astype(np.int64), times[whole].astype(np.int64))
        (number,) = np.nonzero(how_often)
        d = number.astype(d.dtype) * g + low
        cut = [column[~whole] for column in self]
        joined = (np.zeros_like(d), d, np.maximum(d, 0), np.minimum(d + b, a), how_often[number].astype(np.int64))
        return BlockPairs(*(np.concatenate([one, two.astype(one.dtype)]) for one, two in zip(cut, joined, strict=True)))

    def count_rest(self, s: Nest, t: Nest) -> int:
        """Return the sum of times * (what the nests share in the window), where one of the two holds every integer."""
        if s:
            return self.swapped().count_rest(t, s)
        held = _ranks(t, self.end - self.y) - _ranks(t, self.first - self.y)
        return int((self.times * held).sum())

    def count_stripes(self, s: Level, t: Level) -> int:
        """Return the same sum for two stripes, as `stripes_count_common` does."""
        if s[1] < t[1]:
            return self.swapped().count_stripes(t, s)
        x, y, first, end, times = self
        (a, P, p), (b, Q, q) = s, t
        y = y + q
        stripe = ((b, Q, 0),)
        into = (first - x - p) % P
        block = first - into + P  # the first that begins in the window
        n = np.maximum(-((block - end) // P), 0)
        last = block + (n - 1) * P
        cut = (n > 0) & (last + a > end)
        head = np.minimum(np.maximum(block - P + a, first), end)
        held = _ranks(stripe, head - y) - _ranks(stripe, first - y)
        held += np.where(cut, _ranks(stripe, end - y) - _ranks(stripe, last - y), 0)
        total = int((times * held).sum())
        n = n - cut
        for many in np.unique(times[n > 0]).tolist():
            some = (n > 0) & (times == many)
            above = (block - y)[some] % Q + Q
            columns = [n[some], above, np.full_like(above, a), np.full_like(above, b)]
            total += many * sum_overlaps(columns, P, Q, int((end - first).max()))
        return total


def wind_up(one: Stripes, two: Stripes) -> int:
    """Return how many elements two sets share in one common period.

    By the Chinese remainder theorem every pair of elements, one from each period, that agree modulo the gcd g of the
    periods is one common element. So both periods are wound up on a circle of length g, where how often a place is
    covered changes at the ends of blocks alone::

        one    2222111122222    times covered, from one end of a block to the next
        two    1113333311111    the sum of products of both: 3*2*1 + 1*2*3 + 4*1*3 + 3*2*1 + 2*2*1
    """
    P, Q = one.period, two.period
    g = gcd(P, Q)
    places, steps, always = [], [], []
    for stripes in (one, two):
        turns, start = stripes.size // g, stripes.start % g
        end = start + stripes.size - turns * g
        over = end >= g
        places.append(np.concatenate([start, np.where(over, end - g, end)]))
        steps.append(np.repeat(np.array([1, -1]), len(start)))
        always.append(int(turns.sum()) + int(over.sum()))
    place = np.concatenate([*places, np.zeros(1, places[0].dtype)])
    order = np.argsort(place, kind="stable")
    place = place[order]
    width = np.append(place[1:], g) - place
    zeros = [np.zeros(len(step), np.int64) for step in steps]
    covered = [np.concatenate([steps[0], zeros[1], [0]]), np.concatenate([zeros[0], steps[1], [0]])]
    dtype = np.int64 if P // g * Q < 1 << 62 else object
    x, y = (np.cumsum(step[order]).astype(dtype) + more for step, more in zip(covered, always, strict=True))
    return int((x * y * width).sum())


def sum_of_stripes(one: Stripes, two: Stripes, length: int) -> int:
    """Return how many common elements two sets have in [0, length).

    Each pair of stripes is a sum of ramps over the blocks of the first that lie in [0, length); the blocks that the
    ends of it cut are counted one by one.
    """
    P, Q = one.period, two.period
    periods, rest = divmod(length, P)
    first = -(one.start // P)  # of each block the first that begins in there, and the first that ends beyond it
    last = np.maximum(periods + (rest - one.end) // P + 1, first)
    total = 0
    for k, by in ((first - 1, 0), (last - periods, P * periods)):
        low, high = max(-by, -2 * P), min(length - by, 2 * P)  # no block reaches beyond these
        start, end = np.maximum(one.start + P * k, low), np.minimum(one.end + P * k, high)
        for at in np.flatnonzero(start < end).tolist():
            total += two.count_between(int(start[at]) + by, int(end[at]) + by)
    whole = np.flatnonzero(last > first)
    n, long, start = (last - first)[whole], one.size[whole], (one.start + P * first)[whole]
    few = max(1, tuning.COLUMN // (4 * len(two.start) + 1))
    for at in range(0, len(n), few):
        part = slice(at, at + few)
        for at_two in range(0, len(two.start), tuning.COLUMN // 4):
            some = two.part(slice(at_two, at_two + tuning.COLUMN // 4))
            y = (start[part, None] - some.start) % Q + Q
            columns = np.broadcast_arrays(n[part, None], y, long[part, None], some.size)
            total += sum_overlaps([column.ravel() for column in columns], P, Q, length)
    return total


def count_tables(one: Table, two: Table, length: int) -> int:
    """Count in a window of less than one common period what two sets share, in as many steps as the longer period has.

    Each set is a table of its period from the window's start on, 1 where an integer is held, else 0; the periods share
    no factor.

    An element x of `one` in its first period is there again at x + m*j, m its period. The places of these
    modulo n, the period of `two`, follow each other in the order of m*t mod n, the same for all x. So with
    sums over `two` in this order, each x needs the difference of two sums.
    """
    m, n = len(one), len(two)
    x = np.flatnonzero(one)
    order = np.arange(n, dtype=np.int64) * (m % n) % n
    sums = np.zeros(n + 1, np.int64)
    np.cumsum(two[order], out=sums[1:])
    times = np.maximum((length - 1 - x) // m + 1, 0)  # how often x is there, less than n times
    begin = x % n * pow(m, -1, n) % n
    end = begin + times
    around = np.maximum(end - n, 0)  # beyond the last place the order begins again
    return int((sums[np.minimum(end, n)] - sums[begin] + sums[around]).sum())
