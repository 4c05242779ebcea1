"""Nests: the raw form of nested stripes, and every closed form on them.

A nest is a tuple of levels ``(on, period, phase)``, outermost first. An integer z is in the nest if
``(z - phase) mod period < on`` at the first level and that remainder is in the nest of the other levels.
``()`` is every integer and `EMPTY` is no integer. All functions here take canonical nests (see
`canonical`), so that each block of each level begins and ends with an element.

A window is a pair ``lo, hi``: the integers ``lo <= z < hi``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from math import gcd, lcm
from typing import NamedTuple

import numpy as np

from tapestry_sets import isl
from tapestry_sets.stripe import (
    Int64Array,
    Level,
    elements_between,
    stripes_count_common,
    stripes_disjoint,
    stripes_first_common,
)

Nest = tuple[Level, ...]
"""Nested stripes, outermost first."""

EMPTY: Nest = ((0, 1, 0),)
"""The nest that holds no integer."""

MAX_PIECES = 10_000
"""How many pieces an explicit answer may need before `TooManyPieces` is raised."""

ISL_AFTER = 500
"""How many pairs of blocks a search may try before isl takes over."""

STEP_LIMIT = 1_000_000
"""How many pairs of blocks a search without isl may try before `TooHard` is raised."""

COUNT_LIMIT = 20_000
"""How many blocks, or relative shifts of blocks, a count may sum before `TooHard` is raised."""

RESIDUES = 64
"""A whole common period is counted residue by residue where the gcd of the periods is at most this."""

MASK_BITS = 1024
"""Windows up to this length are decided by one AND of two bit masks."""


class TooManyPieces(ValueError):
    """An explicit answer needs more pieces than allowed; the message names a query that needs none."""


class TooHard(ValueError):
    """No closed form answers within the budget, nor does isl."""


class Run(NamedTuple):
    """A nested arithmetic grid of integers whose elements ascend in the order of its levels.

    The elements are ``first + sum(j * step)`` over ``0 <= j < count`` for each of `levels`, outermost
    first. They are neighbours in the set that they were taken from: element number i (in the order of the
    levels) has rank ``rank + i`` there.

    Attributes
    ----------
    first : int
        The smallest element.
    levels : tuple of (count, step)
        Outermost first; empty for a single element.
    rank : int
        How many elements of the window lie before `first`.
    """

    first: int
    levels: tuple[tuple[int, int], ...]
    rank: int

    @property
    def size(self) -> int:
        """How many elements the run has."""
        size = 1
        for count, _ in self.levels:
            size *= count
        return size


class Item(NamedTuple):
    """One bounded piece: start + t for t in `tail`, 0 <= t < length; both ends are elements."""

    start: int
    length: int
    tail: Nest


# ------------------------------------------------------------------ the canonical form


def shift(s: Nest, k: int) -> Nest:
    """Return {z + k : z in s}."""
    if not s or s == EMPTY:
        return s
    a, P, p = s[0]
    return ((a, P, (p + k) % P), *s[1:])


def canonical(levels: Iterable[Level]) -> Nest:
    """Return the tight form of nested stripes: each block begins and ends with an element; no level is idle.

    Parameters
    ----------
    levels : iterable of (on, period, phase)
        Outermost first, ``0 <= on <= period``.

    Returns
    -------
    Nest

    Examples
    --------
    >>> canonical([(6, 7, 0), (2, 3, 0)])
    ((5, 7, 0), (2, 3, 0))
    >>> canonical([(4, 4, 1), (1, 2, 0)])  # a restart that changes nothing
    ((1, 2, 1),)
    """
    nest: Nest = ()
    for a, P, p in reversed(list(levels)):
        nest = _inside(a, P, p, nest)
    return nest


def _inside(a: int, P: int, p: int, tail: Nest) -> Nest:
    """Return `tail` restarted in each block of the stripe (a, P, p), in canonical form."""
    if a <= 0 or tail == EMPTY:
        return EMPTY
    if not tail:
        return ((a, P, p % P),) if a < P else ()
    item = clip(tail, 0, a)
    if item is None:
        return EMPTY
    return repeat(item.length, P, p + item.start, item.tail)


def repeat(a: int, P: int, p: int, tail: Nest) -> Nest:
    """Return the nest of the tight block (a, tail) repeated with period P from p; the level goes if idle."""
    if not tail:
        return ((a, P, p % P),) if a < P else ()
    if P % tail[0][1] == 0 and find(tail, a) >= P:
        return shift(tail, p)  # the tail goes on by itself as the blocks do
    return ((a, P, p % P), *tail)


def clip(s: Nest, lo: int, hi: int) -> Item | None:
    """Return the elements in the window as one tight item, or None if there are none."""
    if s == EMPTY or lo >= hi:
        return None
    if not s:
        return Item(lo, hi - lo, ())
    first = find(s, lo)
    if first >= hi:
        return None
    length = rfind(s, hi - 1) + 1 - first
    tail = shift(s, -first)
    while tail:
        a, P, p = tail[0]
        block = -(-p % P)  # the block that holds element 0 starts here
        if block + a < length:
            break
        tail = shift(tail[1:], block)
    return Item(first, length, tail)


def in_window(s: Nest, lo: int, hi: int) -> Nest:
    """Return a normal form of the elements in the window: equal to `s` there, anything outside it.

    An interval [u, v) becomes the one stripe ``(v - u, hi - lo, u)``; everything becomes ``()``.
    """
    item = clip(s, lo, hi)
    if item is None:
        return EMPTY
    start, length, tail = item
    period = hi - lo
    if not tail:
        return ((length, period, start % period),) if length < period else ()
    loose = shift(tail, start)
    if find(loose, lo) == start and rfind(loose, hi - 1) == start + length - 1:
        return loose
    return ((length, period, start % period), *tail)


# ------------------------------------------------------------------ one nest


def contains(s: Nest, z: int) -> bool:
    """Return whether z is an element."""
    for a, P, p in s:
        z = (z - p) % P
        if z >= a:
            return False
    return True


def find(s: Nest, z: int) -> int:
    """Return the smallest element >= z of a nest that is not empty."""
    if not s:
        return z
    a, P, p = s[0]
    r = (z - p) % P
    if len(s) == 1:
        return z if r < a else z + P - r
    tail = s[1:]
    if r < a:
        e = find(tail, r)
        if e < a:
            return z - r + e
    return z - r + P + find(tail, 0)


def rfind(s: Nest, z: int) -> int:
    """Return the largest element <= z of a nest that is not empty."""
    if not s:
        return z
    a, P, p = s[0]
    r = (z - p) % P
    if len(s) == 1:
        return z if r < a else z - r + a - 1
    tail = s[1:]
    if r >= a:
        return z - r + rfind(tail, a - 1)
    e = rfind(tail, r)
    return z - r + e if e >= 0 else z - r - P + rfind(tail, a - 1)


def _rank(s: Nest, x: int) -> int:
    """Return the elements in [c, x), less those in [x, c), for a c that depends on `s` alone."""
    if not s:
        return x
    a, P, p = s[0]
    u, r = divmod(x - p, P)
    if len(s) == 1:
        return u * a + min(r, a)
    tail = s[1:]
    base = _rank(tail, 0)
    return u * (_rank(tail, a) - base) + _rank(tail, min(r, a)) - base


def count(s: Nest, lo: int, hi: int) -> int:
    """Return how many elements lie in the window."""
    if hi <= lo or s == EMPTY:
        return 0
    return _rank(s, hi) - _rank(s, lo)


def nth(s: Nest, k: int) -> int:
    """Return the k-th element >= 0 of a nest that is not empty; negative k counts back."""
    if not s:
        return k
    a, P, p = s[0]
    tail = s[1:]
    block, rest = divmod(k - count(s, 0, p), count(tail, 0, a))
    return p + block * P + nth(tail, rest)


def elements(s: Nest, lo: int, hi: int) -> Int64Array:
    """Return the elements in the window in ascending order, as int64.

    Raises
    ------
    OverflowError
        If an element does not fit int64.
    """
    if hi <= lo or s == EMPTY:
        return np.empty(0, np.int64)
    first = find(s, lo)
    return elements_between(s, first, rfind(s, hi - 1)) if first < hi else np.empty(0, np.int64)


def contains_each(s: Nest, z: Int64Array) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    """Return, for each integer of an array, whether it is an element."""
    keep = np.ones(z.shape, bool)
    # a phase is less than its period: int64 holds all differences unless one of them is very long
    wide = z.size and max(int(z.max()), -int(z.min()), *(P for _, P, _ in s), 0) >= 1 << 62
    rest = z.astype(object) if wide else z
    for a, P, p in s:
        rest = (rest - p) % P
        keep &= (rest < a).astype(bool)
    return keep


def scale(s: Nest, f: int) -> Nest:
    """Return the nest in which every element becomes a block of f integers."""
    return s if s == EMPTY else tuple((a * f, P * f, p * f) for a, P, p in s)


def reverse(s: Nest, pivot: int) -> Nest:
    """Return {pivot - 1 - z : z in s}."""
    if not s or s == EMPTY:
        return s
    a, P, p = s[0]
    # block [p, p + a) becomes [pivot - p - a, pivot - p), and its inside is reversed about a
    return ((a, P, (pivot - p - a) % P), *reverse(s[1:], a))


def strided(s: Nest, first: int, step: int) -> list[Nest]:
    """Return {k : first + step*k in s} as disjoint nests, for any step but 0.

    The common elements of s and the progression are a union of tight nests in which all distances are
    multiples of the step, so that every level can be divided by it.
    """
    if step < 0:
        return [canonical(reverse(t, 1)) for t in strided(s, first, -step)]
    if step == 1:
        return [shift(s, -first)]
    return [_divide(t, step) for t in meet(shift(s, -first), ((1, step, 0),))]


def _divide(s: Nest, f: int) -> Nest:
    return canonical(((a - 1) // f + 1, P // f, p // f) for a, P, p in s)


def complement(s: Nest) -> list[Nest]:
    """Return the integers outside `s`, as one nest for each level."""
    if s == EMPTY:
        return [()]
    out: list[Nest] = []
    for depth, (a, P, p) in enumerate(s):
        if a < P:
            out.append(canonical((*s[:depth], (P - a, P, p + a))))
    return [c for c in out if c != EMPTY]


def period(s: Nest) -> int:
    """Return the period of the outermost level, 1 for everything and for nothing."""
    return s[0][1] if s else 1


def runs(s: Nest, lo: int, hi: int) -> list[Run]:
    """Return the elements in the window as few runs, in ascending order.

    Raises
    ------
    TooManyPieces
        If more than `MAX_PIECES` runs are needed.
    """
    out: list[Run] = []
    rank = 0
    for first, levels in _runs(s, lo, hi):
        run = Run(first, levels, rank)
        rank += run.size
        out.append(run)
        if len(out) > MAX_PIECES:
            raise TooManyPieces(f"runs: {len(out)} runs are not enough for {s} in [{lo}, {hi}); elements() needs none")
    return out


def _runs(s: Nest, lo: int, hi: int) -> Iterator[tuple[int, tuple[tuple[int, int], ...]]]:
    if hi <= lo or s == EMPTY:
        return
    if not s:
        yield lo, ((hi - lo, 1),) if hi - lo > 1 else ()
        return
    a, P, p = s[0]
    tail = s[1:]
    block = lo - (lo - p) % P
    if block < lo:  # a clipped first block
        yield from _offset(_runs(tail, lo - block, min(a, hi - block)), block)
        block += P
    whole = max(0, (hi - a - block) // P + 1)
    inner = list(_runs(tail, 0, a)) if whole else []
    if len(inner) == 1 and whole:
        first, levels = inner[0]
        yield block + first, _outer_level(whole, P, levels)
    else:
        for k in range(whole):
            yield from _offset(iter(inner), block + k * P)
    block += whole * P
    if block < hi:  # a clipped last block
        yield from _offset(_runs(tail, 0, min(a, hi - block)), block)


def _offset(
    grids: Iterator[tuple[int, tuple[tuple[int, int], ...]]], by: int
) -> Iterator[tuple[int, tuple[tuple[int, int], ...]]]:
    for first, levels in grids:
        yield first + by, levels


def _outer_level(n: int, step: int, levels: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
    """Return levels with one more around them, joined to the next one where both are one progression."""
    if n == 1:
        return levels
    if levels and step == levels[0][0] * levels[0][1]:
        return ((n * levels[0][0], levels[0][1]), *levels[1:])
    return ((n, step), *levels)


# ------------------------------------------------------------------ bit masks


def bits(s: Nest, lo: int, hi: int) -> int:
    """Return the window as a bit mask: bit i is set if lo + i is an element."""
    n = hi - lo
    if n <= 0 or s == EMPTY:
        return 0
    if not s:
        return (1 << n) - 1
    a, P, p = s[0]
    lead = (lo - p) % P  # lo is this far into its period
    if n <= P:  # at most two blocks: only their parts in the window are made
        mask = bits(s[1:], lead, min(a, lead + n))
        return mask | bits(s[1:], 0, min(a, lead + n - P)) << (P - lead)
    mask = bits(s[1:], 0, a)
    have, need = P, n + lead
    while have < need:  # tile by doubling
        mask |= mask << have
        have += have
    return (mask >> lead) & ((1 << n) - 1)


def from_bits(mask: int) -> list[Item]:
    """Return the set bits as items, few where they are regular."""
    return merge(_solid_items(mask))


def _solid_items(mask: int) -> list[Item]:
    out = []
    at = 0
    while mask:
        gap = (mask & -mask).bit_length() - 1
        mask >>= gap
        length = (~mask & (mask + 1)).bit_length() - 1
        mask >>= length
        out.append(Item(at + gap, length, ()))
        at += gap + length
    return out


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


Pair = tuple[Nest, int, Nest, int, int, int]
"""Two nests, each with its shift, and a window."""


def _descend(s: Nest, si: int, t: Nest, tj: int, lo: int, hi: int) -> Pair | None:
    """Go down in s + si and t + tj while the window meets one block of either; None if nothing can be common.

    Returns
    -------
    Pair or None
        The nests, their shifts and the window in which their common elements lie, which begins in a block of
        both; either a nest without levels is left, or the window spans several blocks of both.
    """
    while s and t:
        (a, P, p), (b, Q, q) = s[0], t[0]
        first = stripes_first_common((a, P, p + si), (b, Q, q + tj), lo)
        if first is None or first >= hi:
            return None
        lo = first
        u, v = lo - (lo - p - si) % P, lo - (lo - q - tj) % Q
        if hi <= u + P:  # up to the next block: what lies behind this one holds nothing
            s, si, hi = s[1:], u, min(hi, u + a)
        elif hi <= v + Q:
            t, tj, hi = t[1:], v, min(hi, v + b)
        else:
            break
    return (s, si, t, tj, lo, hi) if lo < hi else None


class _StepLimit(Exception):
    """The search tried more pairs of blocks than allowed."""


class _Search:
    """The first common element of two nests, by descent into overlapping pairs of blocks."""

    __slots__ = ("left", "missed")

    def __init__(self, limit: int) -> None:
        self.left = limit
        self.missed: set[tuple[int, int, int]] = set()

    def first(self, s: Nest, si: int, t: Nest, tj: int, lo: int, hi: int) -> int | None:
        """Return the first element in the window of both s + si and t + tj."""
        pair = _descend(s, si, t, tj, lo, hi)
        if pair is None:
            return None
        s, si, t, tj, lo, hi = pair
        if not s or not t:
            z = find(t, lo - tj) + tj if not s else find(s, lo - si) + si
            return z if z < hi else None
        if len(s) == 1 == len(t):
            return lo
        return self._branch(s, si, t, tj, lo, hi)

    def _branch(self, s: Nest, si: int, t: Nest, tj: int, lo: int, hi: int) -> int | None:
        """Return what `first` does, where the window spans several blocks of both."""
        P, Q = s[0][1], t[0][1]
        g = gcd(P, Q)
        common = P // g * Q
        whole = hi - lo >= common
        if whole:
            hi = lo + common
        if hi - lo <= MASK_BITS:
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

    def _walk(self, s: Nest, si: int, t: Nest, tj: int, lo: int, hi: int) -> int | None:
        """Try the overlapping pairs of blocks in turn, from one to the next by `stripes_first_common`."""
        (a, P, p), (b, Q, q) = s[0], t[0]
        x, y = (a, P, p + si), (b, Q, q + tj)
        # blocks that hold a period of the other nest, or whose other side has no inside, are entered alone
        only_t = len(s) == 1 or (b >= P and len(t) > 1)
        only_s = not only_t and (len(t) == 1 or a >= Q)
        while True:
            z = stripes_first_common(x, y, lo)
            if z is None or z >= hi:
                return None
            if not self.left:
                raise _StepLimit
            self.left -= 1
            u, v = z - (z - p - si) % P, z - (z - q - tj) % Q
            end = min(hi, v + b if only_t else u + a if only_s else min(u + a, v + b))
            at_s = (s, si) if only_t else (s[1:], u)
            at_t = (t, tj) if only_s else (t[1:], v)
            found = self.first(*at_s, *at_t, z, end)
            if found is not None:
                return found
            lo = end


def first_common(s: Nest, t: Nest, lo: int, hi: int | None = None) -> int | None:
    """Return the smallest common element in the window (without `hi`: at or after lo), or None.

    Raises
    ------
    TooHard
        If the closed forms need more than `STEP_LIMIT` steps, and isl more operations than it is given or is
        not installed.
    """
    if s == EMPTY or t == EMPTY:
        return None
    if len(s) == 1 == len(t):
        z = stripes_first_common(s[0], t[0], lo)
        return z if z is None or hi is None or z < hi else None
    if hi is None:
        if is_disjoint(s, t):
            return None
        hi = lo + lcm(period(s), period(t))
    try:
        return _Search(ISL_AFTER).first(s, 0, t, 0, lo, hi)
    except _StepLimit:
        pass
    if isl.available():
        with suppress(isl.OutOfOperations):
            return isl.nests_first_common((s, t), lo, hi)
    try:
        return _Search(STEP_LIMIT).first(s, 0, t, 0, lo, hi)
    except _StepLimit:
        raise TooHard(
            f"first common element of {s} and {t} in [{lo}, {hi}): more than {STEP_LIMIT} pairs of blocks; "
            + ("ask within a shorter range" if isl.available() else "install islpy, which decides such cases")
        ) from None


def is_disjoint(s: Nest, t: Nest, lo: int | None = None, hi: int | None = None) -> bool:
    """Return whether two nests share no element, in the window if there is one.

    Raises
    ------
    TooHard
        As for `first_common`.
    """
    if s == EMPTY or t == EMPTY:
        return True
    if lo is not None and hi is not None:
        return first_common(s, t, lo, hi) is None
    if not s or not t:
        return False
    (a, P, p), (b, Q, q) = s[0], t[0]
    g = gcd(P, Q)
    if g == 1:
        return False
    if len(s) == 1 == len(t):
        return stripes_disjoint(s[0], t[0])
    if surely_disjoint(s, 0, t, 0):
        return True
    if a <= g and b <= g:  # they meet if and only if they meet modulo g
        s = ((a, g, p % g), *s[1:])
        t = ((b, g, q % g), *t[1:])
    return first_common(s, t, 0, lcm(s[0][1], t[0][1])) is None


def is_subset(s: Nest, t: Nest, lo: int | None = None, hi: int | None = None) -> bool:
    """Return whether every element of `s` (in the window) is in `t`."""
    return all(is_disjoint(s, c, lo, hi) for c in complement(t))


# ------------------------------------------------------------------ two nests: how many common elements


def count_common(s: Nest, t: Nest, lo: int, hi: int) -> int:
    """Return how many common elements lie in the window.

    Raises
    ------
    TooHard
        If more than `COUNT_LIMIT` relative shifts of blocks must be summed.
    """
    if s == EMPTY or t == EMPTY or hi <= lo:
        return 0
    if len(s) == 1 == len(t):
        return stripes_count_common(s[0], t[0], lo, hi)
    total = 0
    if s and t:
        whole, rest = divmod(hi - lo, lcm(s[0][1], t[0][1]))
        if whole and gcd(s[0][1], t[0][1]) <= RESIDUES:
            total, hi = whole * _count_period(s, t), lo + rest
    return total + _Count(COUNT_LIMIT).common(s, 0, t, 0, lo, hi)


def _count_period(s: Nest, t: Nest) -> int:
    """Return the common elements in one common period.

    By the Chinese remainder theorem every pair of elements, one from each period, that agree modulo the gcd
    of the periods stands for one common element.
    """
    P, Q = s[0][1], t[0][1]
    g = gcd(P, Q)
    if g == 1:
        return count(s, 0, P) * count(t, 0, Q)
    pairs = zip(_residue_counts(s, 0, P, g), _residue_counts(t, 0, Q, g), strict=True)
    return sum(m * n for m, n in pairs)


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
        _add_turned(out, inside, block + k * P, len(range(k, whole, turns)))
    block += whole * P
    if block < hi:  # a clipped last block
        _add_turned(out, _residue_counts(tail, 0, min(a, hi - block), g), block, 1)
    return out


def _add_turned(out: list[int], counts: list[int], by: int, times: int) -> None:
    g = len(out)
    for r, n in enumerate(counts):
        out[(r + by) % g] += n * times


class _Count:
    """The number of common elements of two nests, summed over the relative shifts of their blocks."""

    __slots__ = ("left",)

    def __init__(self, limit: int) -> None:
        self.left = limit  # the steps that may still be taken

    def spend(self, steps: int, s: Nest, t: Nest) -> None:
        """Take steps from the budget, or raise `TooHard`."""
        self.left -= steps
        if self.left < 0:
            raise TooHard(
                f"count of common elements of {s} and {t}: more than {COUNT_LIMIT} blocks; "
                "ask for first_common or isdisjoint, or count within a shorter range"
            )

    def common(self, s: Nest, si: int, t: Nest, tj: int, lo: int, hi: int) -> int:
        """Return the elements in the window of both s + si and t + tj."""
        pair = _descend(s, si, t, tj, lo, hi)
        if pair is None:
            return 0
        s, si, t, tj, lo, hi = pair
        if not s or not t:
            return count(t, lo - tj, hi - tj) if not s else count(s, lo - si, hi - si)
        x: Level = (s[0][0], s[0][1], s[0][2] + si)
        y: Level = (t[0][0], t[0][1], t[0][2] + tj)
        if len(s) == 1 == len(t):
            return stripes_count_common(x, y, lo, hi)
        if hi - lo <= 8 * MASK_BITS:
            return (bits(s, lo - si, hi - si) & bits(t, lo - tj, hi - tj)).bit_count()
        return self._branch(s, x, t, y, lo, hi)

    def _branch(self, s: Nest, x: Level, t: Nest, y: Level, lo: int, hi: int) -> int:
        """Sum over the blocks of s, over those of t or over pairs of both, whichever are fewest."""
        (a, P, _), (b, Q, _) = x, y
        g = gcd(P, Q)
        blocks_s = min(Q // g, (hi - lo) // P + 2)
        blocks_t = min(P // g, (hi - lo) // Q + 2)
        shifts = (a + b - 1) // g + 1
        easy = 16 if a + b <= 8 * MASK_BITS else 1  # shifts of short blocks are counted by masks
        if shifts <= easy * min(blocks_s, blocks_t):
            return self._pairs(s[1:], x, t[1:], y, lo, hi)
        if blocks_s <= blocks_t:
            return self._blocks(s[1:], x, shift(t, y[2] - t[0][2]), lo, hi)
        return self._blocks(t[1:], y, shift(s, x[2] - s[0][2]), lo, hi)

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
            total += len(range(k, whole, places)) * self.common(tail, at, t, 0, at, at + a)
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
        g = gcd(P, Q)
        common, n = P // g * Q, Q // g
        inverse = pow(P // g, -1, n)
        lowest = 1 - b + (q - p + b - 1) % g  # the smallest d > -b that occurs
        i = (q - p - lowest) // g * inverse % n
        small = a + b <= 8 * MASK_BITS
        steps = len(range(lowest, a, g))
        self.spend(steps // 16 if small else steps, (x, *tail), (y, *uail))
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


# ------------------------------------------------------------------ explicit answers


def meet(s: Nest, t: Nest) -> list[Nest]:
    """Return the intersection on the whole line as disjoint nests.

    Raises
    ------
    TooManyPieces
        If more than `MAX_PIECES` nests are needed before merging.
    """
    return _Meet(s, t).whole(s, t)


def _cells(s: Nest, t: Nest) -> Iterator[tuple[Nest, int, Nest, int, int, int]]:
    """Yield the windows whose contents make up one common period: the fewest of three ways to cut it."""
    (a, P, p), (b, Q, q) = s[0], t[0]
    g = gcd(P, Q)
    blocks_s, blocks_t, shifts = Q // g, P // g, (a + b - 1) // g
    _check_pieces(min(blocks_s, blocks_t, shifts), s, t)
    if shifts < blocks_s and shifts < blocks_t:
        common, inverse = P // g * Q, pow(P // g, -1, Q // g)
        for d in range(1 - b + (q - p + b - 1) % g, a, g):
            block = (p + P * ((q - p - d) // g * inverse % blocks_s)) % common
            yield s[1:], block, t[1:], block + d, block + max(0, d), block + min(a, d + b)
    elif blocks_s <= blocks_t:
        for k in range(blocks_s):
            block = p + k * P
            yield s[1:], block, t, 0, block, block + a
    else:
        for k in range(blocks_t):
            block = q + k * Q
            yield s, 0, t[1:], block, block, block + b


def check_pieces(n: int, what: str) -> None:
    """Raise `TooManyPieces` if n pieces are more than allowed."""
    if n > MAX_PIECES:
        raise TooManyPieces(
            f"{what}: {n} pieces, more than {MAX_PIECES}; count_common, first_common and isdisjoint need none"
        )


def _check_pieces(n: int, s: Nest, t: Nest) -> None:
    if n > MAX_PIECES:
        raise TooManyPieces(
            f"explicit intersection of {s} and {t}: needs {n} or more pieces, more than {MAX_PIECES}; "
            "count_common, first_common and isdisjoint need none"
        )


class _Meet:
    """The common elements of two nests, listed block by block within a budget of steps."""

    __slots__ = ("left", "s", "t")

    def __init__(self, s: Nest, t: Nest) -> None:
        self.s = s
        self.t = t
        self.left = 2 * MAX_PIECES

    def spend(self, steps: int) -> None:
        """Take steps from the budget, or raise `TooManyPieces`."""
        self.left -= steps
        if self.left < 0:
            _check_pieces(MAX_PIECES + 1, self.s, self.t)

    def whole(self, s: Nest, t: Nest) -> list[Nest]:
        """Return the common elements on the whole line."""
        if s == EMPTY or t == EMPTY:
            return []
        if not s or not t:
            return [s or t]
        found: list[Item] = []
        for x, si, y, tj, lo, hi in _cells(s, t):
            self.collect(x, si, y, tj, lo, hi, found)
        return _with_period(found, lcm(s[0][1], t[0][1]))

    def collect(self, s: Nest, si: int, t: Nest, tj: int, lo: int, hi: int, out: list[Item]) -> None:
        """Append the common elements of s + si and t + tj in the window to `out`, as items."""
        self.spend(1)
        pair = _descend(s, si, t, tj, lo, hi)
        if pair is None:
            return
        s, si, t, tj, lo, hi = pair
        if s and t:
            self.blocks(s, si, t, tj, lo, hi, out)
            return
        item = clip(t, lo - tj, hi - tj) if not s else clip(s, lo - si, hi - si)
        if item is not None:
            out.append(item._replace(start=item.start + (si if s else tj)))

    def blocks(self, s: Nest, si: int, t: Nest, tj: int, lo: int, hi: int, out: list[Item]) -> None:
        """Append the items of a window that spans several blocks of both."""
        if surely_disjoint(s, si, t, tj):
            return
        (a, P, p), (b, Q, q) = s[0], t[0]
        if hi - lo >= 2 * lcm(P, Q):  # the whole line's answer, clipped, is shorter than block by block
            for nest in self.whole(shift(s, si - lo), shift(t, tj - lo)):
                item = clip(nest, 0, hi - lo)
                if item is not None:
                    out.append(item._replace(start=item.start + lo))
            return
        found: list[Item] = []
        self.spend((hi - lo) // max(P, Q))
        if P >= Q:
            for block in range(lo - (lo - p - si) % P, hi, P):
                self.collect(s[1:], block, t, tj, max(lo, block), min(hi, block + a), found)
        else:
            for block in range(lo - (lo - q - tj) % Q, hi, Q):
                self.collect(s, si, t[1:], block, max(lo, block), min(hi, block + b), found)
        out += merge(found)


def merge(items: list[Item]) -> list[Item]:
    """Return fewer items: touching intervals are one, and so are equal items at equal distances."""
    while len(items) > 1:
        joined = _join_equidistant(_join_touching(items), 0)
        fewer = [Item(start, length, tail) for start, length, tail, _ in joined]
        if len(fewer) == len(items):
            return fewer
        items = fewer
    return items


def _join_touching(items: list[Item]) -> list[Item]:
    solid = sorted(item for item in items if not item.tail)
    out = [item for item in items if item.tail]
    for item in solid:
        if out and not out[-1].tail and out[-1].start + out[-1].length == item.start:
            out[-1] = Item(out[-1].start, out[-1].length + item.length, ())
        else:
            out.append(item)
    return out


def _join_equidistant(items: list[Item], common: int) -> list[tuple[int, int, Nest, int]]:
    """Return (start, length, tail, period) for runs of equal items; period 0 where the item does not repeat.

    With a `common` period the items repeat with it, and a run that fills it becomes one item of a shorter
    period.
    """
    groups: dict[tuple[int, Nest], list[int]] = {}
    for start, length, tail in items:
        groups.setdefault((length, tail), []).append(start)
    out: list[tuple[int, int, Nest, int]] = []
    for (length, tail), starts in groups.items():
        starts.sort()
        i = 0
        while i < len(starts):
            n, d = _equidistant(starts, i, length, common)
            if n == 1:
                out.append((starts[i], length, tail, 0))
            elif n * d == common:
                out.append((starts[i], length, tail, d))
            else:
                out.append((starts[i], (n - 1) * d + length, repeat(length, d, 0, tail), 0))
            i += n
    return out


def _equidistant(starts: list[int], i: int, length: int, common: int) -> tuple[int, int]:
    """Return how many items from number i on are joined, and their distance."""
    if i + 1 == len(starts):
        return 1, 0
    d = starts[i + 1] - starts[i]
    if d < length:  # interleaved with itself: no nest
        return 1, 0
    n = 2
    while i + n < len(starts) and starts[i + n] - starts[i + n - 1] == d:
        n += 1
    if n == 2 and i + 3 < len(starts) and starts[i + 3] - starts[i + 2] == starts[i + 2] - starts[i + 1]:
        return 1, 0  # leave the start of a longer run alone
    if common and n * d != common and (n - 1) * d + length > common:
        return 1, 0
    return n, d


def _with_period(items: list[Item], common: int) -> list[Nest]:
    """Return items that repeat with period `common` as nests, merged."""
    items = [Item(start % common, length, tail) for start, length, tail in items]
    out = []
    for start, length, tail, shorter in _merge_periodic(items, common):
        out.append(repeat(length, shorter or common, start, tail))
    return out


def _merge_periodic(items: list[Item], common: int) -> list[tuple[int, int, Nest, int]]:
    done: list[tuple[int, int, Nest, int]] = []
    while True:
        joined = _join_equidistant(_join_touching(items), common)
        done += [j for j in joined if j[3]]
        fewer = [Item(start, length, tail) for start, length, tail, shorter in joined if not shorter]
        if len(joined) == len(items):
            return done + [(*item, 0) for item in fewer]
        items = fewer


def meet_within(s: Nest, t: Nest, lo: int, hi: int) -> list[Nest]:
    """Return the intersection in a window as nests that are right there, and disjoint there."""
    items: list[Item] = []
    if s != EMPTY and t != EMPTY:
        _Meet(s, t).collect(s, 0, t, 0, lo, hi, items)
    return from_items(merge(items), lo, hi)


def subtract_within(s: Nest, t: Nest, lo: int, hi: int) -> list[Nest]:
    """Return the difference in a window as nests that are right there, and disjoint there."""
    items: list[Item] = []
    if s != EMPTY:
        for c in complement(t):
            _Meet(s, t).collect(s, 0, c, 0, lo, hi, items)
    return from_items(merge(items), lo, hi)


def from_items(items: Iterable[Item], lo: int, hi: int) -> list[Nest]:
    """Return items in a window as nests whose period is the window's length."""
    return [repeat(length, hi - lo, start, tail) for start, length, tail in items]


def subtract(s: Nest, t: Nest) -> list[Nest]:
    """Return the difference on the whole line as disjoint nests."""
    out: list[Nest] = []
    for c in complement(t):
        out += meet(s, c)
    return merge_nests(out)


def merge_nests(nests: Iterable[Nest]) -> list[Nest]:
    """Return fewer nests for the same elements, given disjoint nests."""
    current = _merge_alike([s for s in nests if s != EMPTY])
    if len(current) < 2:
        return current
    common = lcm(*(s[0][1] for s in current))
    if sum(count(s, 0, common) for s in current) == common:
        return [()]
    if common <= MASK_BITS:  # short: begin again from the blocks, and take the shorter answer
        mask = 0
        for s in current:
            mask |= bits(s, 0, common)
        solid = _join_around(_solid_items(mask), common)
        again = _merge_alike(_with_period(solid, common))
        current = min(current, again, key=len)
    return current


def _merge_alike(current: list[Nest]) -> list[Nest]:
    """Join nests of equal period and inside, until none are left."""
    while len(current) > 1:
        by_period: dict[int, list[Item]] = {}
        for s in current:
            a, P, p = s[0]
            by_period.setdefault(P, []).append(Item(p, a, s[1:]))
        fewer: list[Nest] = []
        for common, items in by_period.items():
            fewer += _with_period(_join_around(items, common), common)
        if len(fewer) == len(current):
            return fewer
        current = fewer
    return current


def _join_around(items: list[Item], common: int) -> list[Item]:
    """Join a solid item that ends at the common period's end with one that starts at its beginning."""
    solid = sorted(item for item in _join_touching(items) if not item.tail)
    if len(solid) < 2 or (solid[-1].start + solid[-1].length) % common != solid[0].start:
        return items
    rest = [item for item in items if item.tail]
    last = Item(solid[-1].start, solid[-1].length + solid[0].length, ())
    return [*rest, *solid[1:-1], last]
