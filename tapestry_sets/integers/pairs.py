"""Two nests: do they meet, where first, and how often? Without a list of the common elements.

A window is a pair ``lo, hi``: the integers ``lo <= z < hi``. Nests are canonical; see `nest.canonical`.
"""

from __future__ import annotations

from math import gcd, lcm
from typing import Any, cast

import numpy as np

from tapestry_sets.integers import tuning
from tapestry_sets.integers.nest import EMPTY, Nest, bits, complement, count, find, shift
from tapestry_sets.integers.stripe import (
    Int64Array,
    Level,
    stripes_count_common,
    stripes_disjoint,
    stripes_first_common,
)
from tapestry_sets.limits import OPEN, Budget, Open, TooHard, current
from tapestry_sets.solvers import isl

# ------------------------------------------------------------------ two nests: do they meet, where first


def surely_disjoint(s: Nest, s_shift: int, t: Nest, t_shift: int) -> bool:
    """Return whether some pair of levels proves that s + s_shift and t + t_shift are disjoint.

    The elements of the first k levels agree, modulo the gcd of their periods, with the k-th level's blocks;
    so any two levels that miss each other modulo the gcd of both are a proof.
    """
    gs = 0
    for a, P, p in s:
        gs = gcd(gs, P)
        s_shift += p
        g, at = gs, t_shift
        for b, Q, q in t:
            g = gcd(g, Q)
            at += q
            if g == 1:
                break
            d = (at - s_shift) % g
            if d >= a and g - d >= b:
                return True
        if gs == 1:
            break
    return False


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


class PairSearch:
    """The first common element of two nests, by descent into overlapping pairs of blocks, each a step of the budget."""

    __slots__ = ("budget", "missed")

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self.missed: set[tuple[int, int, int]] = set()

    def first(self, s: Nest, si: int, t: Nest, tj: int, lo: int, hi: int) -> int | Open | None:
        """Return the first element in the window of both s + si and t + tj; OPEN if the budget does not reach."""
        while True:
            if lo >= hi:
                return None
            if not s or not t:
                z = find(s, lo - si) + si if s else find(t, lo - tj) + tj
                return z if z < hi else None
            (a, P, p), (b, Q, q) = s[0], t[0]
            p += si
            q += tj
            if len(s) == 1 == len(t):
                common = stripes_first_common((a, P, p), (b, Q, q), lo)
                return common if common is not None and common < hi else None
            into = (lo - p) % P
            if into >= a:
                lo += P - into
                into = 0
            if hi <= lo - into + P:  # up to the next block: what lies behind this one holds nothing
                s, si = s[1:], lo - into
                hi = min(hi, si + a)
                continue
            into = (lo - q) % Q
            if into >= b:
                lo += Q - into
                into = 0
            if hi > lo - into + Q:
                return self._branch(s, si, t, tj, lo, hi)
            t, tj = t[1:], lo - into
            hi = min(hi, tj + b)

    def _branch(self, s: Nest, si: int, t: Nest, tj: int, lo: int, hi: int) -> int | Open | None:
        """Return what `first` does, where the window spans several blocks of both."""
        P, Q = s[0][1], t[0][1]
        g = gcd(P, Q)
        common = P // g * Q
        whole = hi - lo >= common
        if whole:
            hi = lo + common
        if hi - lo <= tuning.MASK_BITS:
            mask = bits(s, lo - si, hi - si) & bits(t, lo - tj, hi - tj)
            return lo + (mask & -mask).bit_length() - 1 if mask else None
        # whole-line disjointness depends on the shift modulo g alone; the levels left tell the nests apart
        key = (len(s), len(t), (tj - si) % g)
        if key in self.missed:
            return None
        if surely_disjoint(s, si, t, tj):
            self.missed.add(key)
            return None
        z = self._walk(s, si, t, tj, lo, hi)
        if z is None and whole:
            self.missed.add(key)
        return z

    def _walk(self, s: Nest, si: int, t: Nest, tj: int, lo: int, hi: int) -> int | Open | None:
        """Try the overlapping pairs of blocks in turn, from one to the next by `stripes_first_common`."""
        (a, P, p), (b, Q, q) = s[0], t[0]
        x, y = (a, P, p + si), (b, Q, q + tj)
        # blocks that hold a period of the other nest, or whose other side has no inside, are entered alone
        only_t = len(s) == 1 or (b >= P and len(t) > 1)
        only_s = not only_t and (len(t) == 1 or a >= Q)
        s_tail, t_tail = s[1:], t[1:]
        while True:
            z = stripes_first_common(x, y, lo)
            if z is None or z >= hi:
                return None
            if not self.budget.spend():
                return OPEN
            u, v = z - (z - p - si) % P, z - (z - q - tj) % Q
            if only_t:
                lo = min(hi, v + b)
                found = self.first(s, si, t_tail, v, z, lo)
            elif only_s:
                lo = min(hi, u + a)
                found = self.first(s_tail, u, t, tj, z, lo)
            else:
                lo = min(hi, u + a, v + b)
                found = self.first(s_tail, u, t_tail, v, z, lo)
            if found is not None:  # an element, or OPEN
                return found


def first_in_both(s: Nest, t: Nest, lo: int, hi: int | None = None) -> int | None:
    """Return the smallest common element in the window (without `hi`: at or after lo), or None.

    Raises
    ------
    TooHard
        If the closed forms need more than the budget of branches, and isl more operations than it is given or
        is not installed.
    """
    if s == EMPTY or t == EMPTY:
        return None
    if len(s) == 1 == len(t):
        z = stripes_first_common(s[0], t[0], lo)
        return z if z is None or hi is None or z < hi else None
    if not s or not t:
        z = find(s or t, lo)
        return z if hi is None or z < hi else None
    common = lcm(s[0][1], t[0][1])
    whole = hi is None or hi - lo >= common
    if hi is None or whole:
        hi = lo + common
    return _first_in(s, t, lo, hi, whole)


def _first_in(s: Nest, t: Nest, lo: int, hi: int, whole: bool) -> int | None:
    """Return what `first_in_both` does, by one way after another; `whole` if the window is a common period."""
    found = PairSearch(Budget(tuning.ISL_AFTER)).first(s, 0, t, 0, lo, hi)
    if found is OPEN and whole and is_disjoint(s, t):
        return None
    if found is OPEN and isl.available():
        found = isl.nests_first_common((s, t), lo, hi)
    if found is OPEN:
        found = PairSearch(Budget(current().budget)).first(s, 0, t, 0, lo, hi)
    if found is OPEN:
        raise TooHard(
            f"first common element of {s} and {t} in [{lo}, {hi}): about {_pairs_between(s, t, lo, hi)} pairs of "
            f"blocks, more than the budget of {current().budget}; "
            + ("ask within a shorter range" if isl.available() else "install islpy, which decides such cases")
        )
    return found


def _pairs_between(s: Nest, t: Nest, lo: int, hi: int) -> int:
    """Return about how many pairs of blocks overlap in the window."""
    (a, P, _), (b, Q, _) = s[0], t[0]
    return (hi - lo) * (a + b - 1) // (P * Q) + 1


def is_disjoint(s: Nest, t: Nest, lo: int | None = None, hi: int | None = None) -> bool:
    """Return whether two nests share no element, in the window if there is one.

    Raises
    ------
    TooHard
        As for `first_in_both`.
    """
    if s == EMPTY or t == EMPTY:
        return True
    if lo is not None and hi is not None and (len(s) < 2 > len(t) or not s or not t):
        return first_in_both(s, t, lo, hi) is None
    if not s or not t:
        return False
    (a, P, p), (b, Q, q) = s[0], t[0]
    g = gcd(P, Q)
    if lo is not None and hi is not None and hi - lo < P // g * Q:
        return not _meet_in(s, t, lo, hi)
    if g == 1:
        return False
    if len(s) == 1 == len(t):
        return stripes_disjoint(s[0], t[0])
    if surely_disjoint(s, 0, t, 0):
        return True
    if a <= g and b <= g:  # they meet if and only if they meet modulo g
        s = ((a, g, p % g), *s[1:])
        t = ((b, g, q % g), *t[1:])
    return not _meet_in(s, t, 0, lcm(s[0][1], t[0][1]))


def _meet_in(s: Nest, t: Nest, lo: int, hi: int) -> bool:
    """Return whether two nests share an element of the window: of isl emptiness is asked, not the least element."""
    found = PairSearch(Budget(tuning.ISL_AFTER)).first(s, 0, t, 0, lo, hi)
    if found is OPEN and isl.available() and (apart := isl.nests_disjoint((s, t), lo, hi)) is not OPEN:
        return not apart
    return (_first_in(s, t, lo, hi, whole=False) if found is OPEN else found) is not None


def is_subset(s: Nest, t: Nest, lo: int | None = None, hi: int | None = None) -> bool:
    """Return whether every element of `s` (in the window) is in `t`."""
    return all(is_disjoint(s, c, lo, hi) for c in complement(t))


# ------------------------------------------------------------------ two nests: how many common elements


def count_in_both(s: Nest, t: Nest, lo: int, hi: int) -> int:
    """Return how many common elements lie in the window.

    Raises
    ------
    TooHard
        If more than the budget of relative shifts of blocks must be summed.
    """
    if s == EMPTY or t == EMPTY or hi <= lo:
        return 0
    if len(s) == 1 == len(t):
        return stripes_count_common(s[0], t[0], lo, hi)
    if not s or not t:
        return count(s or t, lo, hi)
    common = lcm(s[0][1], t[0][1])
    whole, rest = divmod(hi - lo, common)
    if not whole:
        return PairCount().common(s, 0, t, 0, lo, hi)
    if common <= tuning.SHORT:
        mask = bits(s, lo, lo + common) & bits(t, lo, lo + common)
        return whole * mask.bit_count() + (mask & ((1 << rest) - 1)).bit_count()
    total = whole * _count_period(s, t)
    return total + (PairCount().common(s, 0, t, 0, lo, lo + rest) if rest else 0)


def _count_period(s: Nest, t: Nest) -> int:
    """Return the common elements in one common period.

    By the Chinese remainder theorem every pair of elements, one from each period, that agree modulo the gcd
    of the periods stands for one common element.
    """
    P, Q = s[0][1], t[0][1]
    g = gcd(P, Q)
    if g == 1:
        return count(s, 0, P) * count(t, 0, Q)
    if g <= tuning.RESIDUES:
        pairs = zip(_residue_counts(s, 0, P, g), _residue_counts(t, 0, Q, g), strict=True)
        return sum(m * n for m, n in pairs)
    if (
        s[0][0] + t[0][0] > tuning.RESIDUES * g and max(P, Q) <= tuning.MAX_TABLE
    ):  # more distances between blocks than residues
        return int(np.dot(_residue_table(s, P, g), _residue_table(t, Q, g)))
    return PairCount().common(s, 0, t, 0, 0, P // g * Q)


def _multiples(i: int, by: int, n: int, steps: int) -> Int64Array:
    """Return (i - k*by) mod n for 0 <= k < steps, as int64; n < 2**61."""
    if steps * by < 1 << 62:
        return cast(Int64Array, (i - np.arange(steps, dtype=np.int64) * by) % n)
    return np.array([(i - k * by) % n for k in range(steps)], np.int64)


def _correlated(
    tail: Nest, a: int, uail: Nest, b: int, d: Int64Array, starts: Int64Array, common: int, lo: int, hi: int
) -> int:
    """Sum over shifts d of blocks of lengths a and b: (pairs in the window) * (their overlap).

    All overlaps come from one correlation by Fourier transforms. They are integers of at most 2**24, which
    floating point misses by far less than a half, so that rounding gives them exactly.
    """
    x, y = listed(bits(tail, 0, a), a), listed(bits(uail, 0, b), b)
    n = 1 << (a + b - 1).bit_length()
    spectrum = np.fft.rfft(x, n) * np.conj(np.fft.rfft(y, n))
    overlaps = np.rint(np.fft.irfft(spectrum, n)).astype(np.int64)[d % n]
    first, end = np.maximum(0, d), np.minimum(a, d + b)
    pairs = np.maximum((hi - starts - end) // common + (starts + first - lo) // common + 1, 0)
    if int(pairs.max()) * int(overlaps.max()) * len(pairs) < 1 << 62:
        return int(np.dot(pairs, overlaps))
    return sum(m * k for m, k in zip(pairs.tolist(), overlaps.tolist(), strict=True))


def _residue_table(s: Nest, P: int, g: int) -> Int64Array:
    """Return what `_residue_counts` does for one period, of at most `MAX_TABLE` integers, of which g is a divisor."""
    return cast(Int64Array, listed(bits(s, 0, P), P).reshape(P // g, g).sum(axis=0, dtype=np.int64))


def listed(mask: int, n: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Return the n lowest bits of a mask as an array of 0 and 1."""
    packed = np.frombuffer(mask.to_bytes(-(-n // 8), "little"), np.uint8)
    return cast("np.ndarray[Any, np.dtype[np.uint8]]", np.unpackbits(packed, count=n, bitorder="little"))


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


class PairCount:
    """The number of common elements of two nests, summed over the relative shifts of their blocks.

    What a block of s shares with a block of t depends on nothing but the distance d between them. So pairs of one
    distance are counted once, and multiplied by how many of them lie in the window::

        s  .aaaaaa.......aaaaaa.......aaaaaa....
        t  ...bbbb.........bbbb.........bbbb....
            |d|          |d|          |d|        3 pairs of one distance: 3 times the overlap of one

    Where one side has fewer blocks than there are distances, its blocks are gone through instead: their places in
    the other nest repeat after a common period. Where a window is short, one AND of two bit masks beats both.
    """

    __slots__ = ("budget",)

    def __init__(self, budget: Budget | None = None) -> None:
        self.budget = budget or Budget(current().budget // tuning.BRANCHES_A_BLOCK)

    def spend(self, steps: int, s: Nest, t: Nest) -> None:
        """Take steps from the budget, or raise `TooHard`."""
        if not self.budget.spend(steps):
            raise TooHard(
                f"count of common elements of {s} and {t}: "
                f"more than {current().budget // tuning.BRANCHES_A_BLOCK} blocks; "
                "ask for first_common or isdisjoint, or count within a shorter range"
            )

    def common(self, s: Nest, si: int, t: Nest, tj: int, lo: int, hi: int) -> int:
        """Return the elements in the window of both s + si and t + tj."""
        pair = descend(s, si, t, tj, lo, hi)
        if pair is None:
            return 0
        s, si, t, tj, lo, hi = pair
        if not s or not t:
            return count(t, lo - tj, hi - tj) if not s else count(s, lo - si, hi - si)
        x: Level = (s[0][0], s[0][1], s[0][2] + si)
        y: Level = (t[0][0], t[0][1], t[0][2] + tj)
        if len(s) == 1 == len(t):
            return stripes_count_common(x, y, lo, hi)
        if hi - lo <= tuning.SHORT:
            return (bits(s, lo - si, hi - si) & bits(t, lo - tj, hi - tj)).bit_count()
        return self._branch(s, x, t, y, lo, hi)

    def _branch(self, s: Nest, x: Level, t: Nest, y: Level, lo: int, hi: int) -> int:
        """Sum over the blocks of s, over those of t or over pairs of both, whichever are fewest."""
        (a, P, _), (b, Q, _) = x, y
        g = gcd(P, Q)
        blocks_s = min(Q // g, (hi - lo) // P + 2)
        blocks_t = min(P // g, (hi - lo) // Q + 2)
        shifts = (a + b - 1) // g + 1
        easy = tuning.MASKED_SHIFTS if a + b <= tuning.SHORT else 1  # shifts of short blocks are counted by masks
        if self._correlates(a + b, shifts, P // g * Q):
            shifts = min(shifts, (a + b) // tuning.CORRELATED)
        steps = min(blocks_s, blocks_t, shifts // easy)
        if hi - lo <= min(tuning.MAX_TABLE, steps * tuning.BITS_A_STEP):
            s, t = (x, *s[1:]), (y, *t[1:])
            return (bits(s, lo, hi) & bits(t, lo, hi)).bit_count()
        if shifts <= easy * min(blocks_s, blocks_t):
            return self._pairs(s[1:], x, t[1:], y, lo, hi)
        if blocks_s <= blocks_t:
            return self._blocks(s[1:], x, shift(t, y[2] - t[0][2]), lo, hi)
        return self._blocks(t[1:], y, shift(s, x[2] - s[0][2]), lo, hi)

    @staticmethod
    def _correlates(length: int, shifts: int, common: int) -> bool:
        """Return whether all shifts of two blocks are counted at once, by a correlation of the listed blocks."""
        return shifts > tuning.MANY_SHIFTS and tuning.SHORT < length <= tuning.MAX_TABLE and common < 1 << 61

    def _blocks(self, tail: Nest, x: Level, t: Nest, lo: int, hi: int) -> int:
        """Sum over the blocks of the stripe x with `tail` inside; their places in t repeat with its period."""
        a, P, p = x
        total = 0
        block = lo - (lo - p) % P
        if block < lo:  # a clipped first block
            total += self.common(tail, block, t, 0, lo, min(hi, block + a))
            block += P
        whole = max(0, (hi - a - block) // P + 1)
        places = min(whole, t[0][1] // gcd(P, t[0][1]))
        self.spend(places, (x, *tail), t)
        for k in range(places):
            at = block + k * P
            total += ((whole - 1 - k) // places + 1) * self.common(tail, at, t, 0, at, at + a)
        block += whole * P
        return total + self.common(tail, block, t, 0, block, min(hi, block + a))

    def _pairs(self, tail: Nest, x: Level, uail: Nest, y: Level, lo: int, hi: int) -> int:
        """Sum over pairs of blocks: the clipped ones at both ends here; lo is in a block of both."""
        (a, P, p), (b, Q, q) = x, y
        u, v = lo - (lo - p) % P, lo - (lo - q) % Q
        end = min(u + a, v + b, hi)
        total = self.common(tail, u, uail, v, lo, end)
        lo, last = end, hi - 1
        u, v = last - (last - p) % P, last - (last - q) % Q
        first = max(u, v)
        if last < min(u + a, v + b) and first >= lo:
            total += self.common(tail, u, uail, v, first, hi)
            hi = first
        return total + (self._shifts(tail, x, uail, y, lo, hi) if lo < hi else 0)

    def _shifts(self, tail: Nest, x: Level, uail: Nest, y: Level, lo: int, hi: int) -> int:
        """Sum over relative shifts d: (pairs of blocks in the window, t's d after s's) * (their overlap)."""
        (a, P, p), (b, Q, q) = x, y
        # Block number i of s lies at p + P*i, and one of t lies d after it if p + P*i + d = q modulo Q. So d occurs
        # if it is q - p modulo g, once in each common period, at i = (q - p - d)/g * inverse modulo n. From one d to
        # the next, d + g, that i goes back by `inverse`: no division is left in the loop.
        g = gcd(P, Q)
        common, n = P // g * Q, Q // g
        inverse = pow(P // g, -1, n)
        lowest = 1 - b + (q - p + b - 1) % g  # the smallest d > -b that occurs
        i = (q - p - lowest) // g * inverse % n
        steps = max(0, (a - 1 - lowest) // g + 1)
        if self._correlates(a + b, steps, common) and max(abs(p), abs(lo), abs(hi)) < 1 << 61:
            starts = p + P * _multiples(i, inverse, n, steps)
            return _correlated(tail, a, uail, b, np.arange(lowest, a, g), starts, common, lo, hi)
        small = a + b <= tuning.SHORT
        self.spend(steps // tuning.MASKED_SHIFTS if small else steps, (x, *tail), (y, *uail))
        mask_s, mask_t = (bits(tail, 0, a), bits(uail, 0, b)) if small else (0, 0)
        total = 0
        for d in range(lowest, a, g):
            first, end = max(0, d), min(a, d + b)
            block = p + P * i  # the first of s's blocks, modulo the common period, with t's d after it
            pairs = (hi - block - end) // common + (block + first - lo) // common + 1
            i = (i - inverse) % n
            if pairs <= 0:
                continue
            if small:
                each = (mask_s & mask_t << d if d >= 0 else mask_s & mask_t >> -d).bit_count()
            else:
                each = self.common(tail, 0, uail, d, first, end)
            total += pairs * each
        return total
