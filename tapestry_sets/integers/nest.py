"""Nests: the raw form of nested stripes, and questions about one of them.

A nest is a tuple of levels ``(on, period, phase)``, outermost first. An integer z is in the nest if
``(z - phase) mod period < on`` at the first level and that remainder is in the nest of the other levels.
``()`` is every integer and `EMPTY` holds none. All functions here take canonical nests (see
`canonical`), so that each block of each level begins and ends with an element.

A window is a pair ``lo, hi``: the integers ``lo <= z < hi``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from math import prod
from typing import NamedTuple

import numpy as np

from tapestry_sets.digits import Bools, Int64Array, join_digits
from tapestry_sets.integers import tuning
from tapestry_sets.integers.stripe import Level, elements_between
from tapestry_sets.limits import charge, check_pieces

Nest = tuple[Level, ...]
"""Nested stripes, outermost first."""

EMPTY: Nest = ((0, 1, 0),)
"""The nest that holds no integer."""


class StridedRun(NamedTuple):
    """A nested arithmetic grid of integers whose elements ascend in the order of its levels.

    The elements are ``first + sum(j * step)`` over ``0 <= j < count`` for each of `levels`, outermost
    first. They are neighbors in the set that they were taken from: element number i (in the order of the
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
        return prod([count for count, _ in self.levels])


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
    Q = tail[0][1]
    if a + Q > P and not P % Q and find(tail, a) >= P:
        return shift(tail, p)  # the tail goes on by itself as the blocks do
    return ((a, P, p % P), *tail)


def clip(s: Nest, lo: int, hi: int) -> Item | None:
    """Return the elements in the window as one tight item, or None if there are none."""
    item = cut(s, lo, hi)
    return None if item is None else Item(*item)


def cut(s: Nest, lo: int, hi: int) -> tuple[int, int, Nest] | None:
    """Clip as `clip` does; return a plain tuple (start, length, tail)."""
    if s == EMPTY or lo >= hi:
        return None
    origin = 0
    while s:
        a, P, p = s[0]
        into = (lo - p) % P
        if into >= a:
            lo += P - into
            into = 0
        if hi > lo - into + P:  # several blocks: what the window has of the first and of the last may hold nothing
            if len(s) > 1:
                if into:
                    e = find(s[1:], into)
                    lo += (e if e < a else P) - into
                    into = e if e < a else 0
                r = (hi - 1 - p) % P
                hi += (rfind(s[1:], r) if r < a else a - 1) - r
            else:
                r = (hi - 1 - p) % P
                if r >= a:
                    hi += a - 1 - r
            if hi > lo - into + P:
                return origin + lo, hi - lo, ((a, P, (p - lo) % P), *s[1:])
        # one block, and what lies in it
        if lo >= hi:
            return None
        lo, hi, origin = into, min(into + hi - lo, a), origin + lo - into
        s = s[1:]
    return origin + lo, hi - lo, ()


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
    if r < a:
        e = find(s[1:], r) if len(s) > 1 else r
        if e < a:
            return z - r + e
    return z - r + P  # each block begins with an element


def rfind(s: Nest, z: int) -> int:
    """Return the largest element <= z of a nest that is not empty."""
    if not s:
        return z
    a, P, p = s[0]
    r = (z - p) % P
    if r >= a:
        return z - r + a - 1  # each block ends with an element
    return z - r + rfind(s[1:], r) if len(s) > 1 else z


def count(s: Nest, lo: int, hi: int) -> int:
    """Return how many elements lie in the window."""
    if hi <= lo or s == EMPTY:
        return 0
    if not s:
        return hi - lo
    sizes = _block_sizes(s[1:], s[0][0]) if len(s) > 1 else ()
    return _rank(s, sizes, hi) - _rank(s, sizes, lo)


@lru_cache(maxsize=1 << 14)
def _block_sizes(s: Nest, length: int) -> tuple[tuple[int, int], ...]:
    """Return, for blocks of this length with s inside and for the blocks of each level of s but the last: how many
    elements a block holds, and the rank of its start (see `_rank`) inside."""
    inside = _block_sizes(s[1:], s[0][0]) if len(s) > 1 else ()
    start = _rank(s, inside, 0)
    return (_rank(s, inside, length) - start, start), *inside


def _rank(s: Nest, sizes: tuple[tuple[int, int], ...], x: int) -> int:
    """Return the elements in [c, x), less those in [x, c), where c is the start of a block of the outermost level."""
    total = start = 0
    for (a, P, p), (each, inside) in zip(s, sizes, strict=False):
        u, r = divmod(x - p, P)
        total += u * each - start
        x, start = min(r, a), inside
    a, P, p = s[-1]
    u, r = divmod(x - p, P)
    return total + u * a + min(r, a) - start


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
    _charge_entries(count(s, lo, hi), 1, True, "elements, listed")
    first = find(s, lo)
    return elements_between(s, first, rfind(s, hi - 1)) if first < hi else np.empty(0, np.int64)


def contains_each(s: Nest, z: Int64Array) -> Bools:
    """Return, for each integer of an array, whether it is an element."""
    keep = np.ones(z.shape, bool)
    if not z.size or not s:
        return keep
    # a phase is less than its period: int64 holds all differences unless one of them is very long
    wide = max(int(z.max()), -int(z.min()), *(P for _, P, _ in s)) >= 1 << 62
    _charge_entries(z.size, len(s), not wide, "integers, looked up in a set")
    flat, kept = z.reshape(-1), keep.reshape(-1)
    for at in range(0, z.size, tuning.COLUMN):  # in parts that stay near the processor
        part = slice(at, at + tuning.COLUMN)
        rest = flat[part].astype(object if wide else np.int64)
        for a, P, p in s:
            rest -= p
            rest %= P
            kept[part] &= (rest < a).astype(bool, copy=False)
    return keep


def _charge_entries(many: int, turns: int, is_short: bool, what: str) -> None:
    """Charge the question that is asked, if one is, for arrays that are gone through some times; short: as int64."""
    entries = many * turns * (1 if is_short else tuning.PYTHON_INTEGERS)
    charge(1 + entries // tuning.ELEMENTS_A_BRANCH, f"{many} {what}")


def _fits(s: Nest, *ends: int) -> bool:
    """Return whether int64 holds all that is met between two elements, which may be periods away from them."""
    return max(period(s), *map(abs, ends)) < 1 << 60


def nth_each(s: Nest, k: Int64Array) -> Int64Array:
    """Return the elements of some numbers, of a nest that is not empty; see `nth`.

    Raises
    ------
    OverflowError
        If an element does not fit int64.
    """
    if not len(k):
        return k
    is_short = _fits(s, nth(s, int(k.min())), nth(s, int(k.max())))
    _charge_entries(len(k), 2 * len(s), is_short, "elements, found by their numbers")
    k = k if is_short else k.astype(object)
    total = np.zeros_like(k)
    for depth, (a, P, p) in enumerate(s):
        k, each = k - count(s[depth:], 0, p), count(s[depth + 1 :], 0, a)
        block = k // each
        k = k - block * each
        total += p + block * P
    return (total + k).astype(np.int64, copy=False)


def rank_each(s: Nest, z: Int64Array) -> Int64Array:
    """Return how many elements of a nest that is not empty lie in [0, z), as `Integers.rank` does, for some integers.

    Those of elements are their numbers, as `nth` has them.
    """
    if not len(z):
        return z
    is_short = _fits(s, int(z.min()), int(z.max()))
    _charge_entries(len(z), 2 * len(s), is_short, "integers, numbered in a set")
    z = z if is_short else z.astype(object)
    total = np.zeros_like(z)
    for depth, (a, P, p) in enumerate(s):
        z = z - p
        block = z // P
        z = z - block * P
        total += count(s[depth:], 0, p) + block * count(s[depth + 1 :], 0, a)
        z = np.minimum(z, a)
    return (total + z).astype(np.int64, copy=False)


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


def runs(s: Nest, lo: int, hi: int) -> list[StridedRun]:
    """Return the elements in the window as few runs, in ascending order.

    Raises
    ------
    TooManyPieces
        If more runs are needed than pieces are allowed.
    """
    out: list[StridedRun] = []
    rank = 0
    for first, levels in _runs(s, lo, hi):
        run = StridedRun(first, levels, rank)
        rank += run.size
        out.append(run)
        check_pieces(len(out), f"runs of {s} in [{lo}, {hi})", "elements() needs none")
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
        yield from ((first + block, levels) for first, levels in _runs(tail, lo - block, min(a, hi - block)))
        block += P
    whole = max(0, (hi - a - block) // P + 1)
    inner = []
    for grid in _runs(tail, 0, a) if whole else ():
        inner.append(grid)
        check_pieces(len(inner), f"runs of {s} in [{lo}, {hi})", "elements() needs none")
    if len(inner) == 1 and whole:
        first, levels = inner[0]
        yield block + first, join_digits(((whole, P), *levels))
    else:
        for k in range(whole):
            yield from ((first + block + k * P, levels) for first, levels in inner)
    block += whole * P
    if block < hi:  # a clipped last block
        yield from ((first + block, levels) for first, levels in _runs(tail, 0, min(a, hi - block)))


def solid_runs(s: Nest, lo: int, hi: int) -> Iterator[tuple[int, int]]:
    """Yield the elements in the window as runs (first, stop), one by one, ascending; two may touch.

    Examples
    --------
    >>> list(solid_runs(((5, 8, 0), (2, 3, 0)), 1, 12))
    [(1, 2), (3, 5), (8, 10), (11, 12)]
    """
    while s != EMPTY and (z := find(s, lo)) < hi:
        lo = min(hi, block_end(s, z)) if s else hi
        yield z, lo


def block_end(s: Nest, z: int) -> int:
    """Return where the innermost block ends that holds an element."""
    x, left = z, []
    for a, P, p in s:
        x = (x - p) % P
        left.append(a - x)
    return z + min(left)


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


def union_bits(every: Iterable[Nest], lo: int, hi: int) -> int:
    """Return the window of a union as a bit mask; members of one period are put together before they are repeated."""
    by_period: dict[int, list[Nest]] = {}
    for s in every:
        by_period.setdefault(period(s), []).append(s)
    mask = 0
    for P, group in by_period.items():
        one = 0
        for s in group:
            one |= bits(s, lo, min(hi, lo + P))
        have = P
        while have < hi - lo:  # tile by doubling
            one |= one << have
            have += have
        mask |= one
    return mask & ((1 << max(hi - lo, 0)) - 1)


def solid_items(mask: int) -> list[Item]:
    """Return the set bits of a mask as intervals, ascending, in time linear in the mask's length.

    Examples
    --------
    >>> [(start, length) for start, length, _ in solid_items(0b10110)]
    [(1, 2), (4, 1)]
    """
    return [Item(run.start(), run.end() - run.start(), ()) for run in _RUN.finditer(bin(mask)[:1:-1])]


_RUN = re.compile("1+")
"""A run of set bits, in the digits of a mask from the lowest on."""
