"""Conjunctions: the common elements of any number of nests, without listing them.

Nests whose periods are coprime know nothing of each other: by the Chinese remainder theorem their common
elements over one common period are all the combinations of theirs. So nests are put in groups of coprime
periods, and only nests of one group are compared.

A window is a pair ``lo, hi``: the integers ``lo <= z < hi``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import combinations
from math import gcd, lcm

import numpy as np

from tapestry_sets import explicit, isl, pairs
from tapestry_sets import nest as nests
from tapestry_sets.limits import TooHard
from tapestry_sets.nest import EMPTY, Nest
from tapestry_sets.stripe import Int64Array

LEAPS = 500
"""How many times a search goes from nest to nest before isl takes over."""

MASK_SPAN = 1 << 20
"""Windows up to this length are counted by bit masks."""

TABLE_LIMIT = 1 << 24
"""Periods up to this length may be listed as an array to count with."""

HALVES = 64
"""How many ways to halve a conjunction are kept in view while the best is sought."""

PIECES = 500
"""How many nests two of a conjunction may become on the last rung."""


def tidy(conjunction: Iterable[Nest]) -> tuple[Nest, ...]:
    """Return the same conjunction without repetitions and idle nests; ``(EMPTY,)`` if one has no elements."""
    kept = tuple(dict.fromkeys(s for s in conjunction if s))
    return (EMPTY,) if EMPTY in kept else kept


def period(conjunction: Sequence[Nest]) -> int:
    """Return the least common period."""
    return lcm(*(nests.period(s) for s in conjunction))


def contains_each(conjunction: Sequence[Nest], z: Int64Array) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    """Return, for each integer of an array, whether all nests hold it."""
    keep = np.ones(z.shape, bool)
    for s in conjunction:
        keep &= nests.contains_each(s, z)
    return keep


def _groups(conjunction: Sequence[Nest]) -> list[tuple[Nest, ...]]:
    """Return the nests in groups, such that nests of different groups have coprime periods."""
    groups: list[tuple[int, tuple[Nest, ...]]] = []
    for s in conjunction:
        P = nests.period(s)
        together: tuple[Nest, ...] = (s,)
        apart: list[tuple[int, tuple[Nest, ...]]] = []
        for Q, group in groups:
            if gcd(P, Q) == 1:
                apart.append((Q, group))
            else:
                P, together = lcm(P, Q), group + together
        groups = [*apart, (P, together)]
    return [group for _, group in groups]


def is_disjoint(conjunction: Iterable[Nest], lo: int | None = None, hi: int | None = None) -> bool:
    """Return whether the nests share no element, in the window if there is one.

    Raises
    ------
    TooHard
        As for `first`.

    Examples
    --------
    >>> halves = [((n // 2, n, 0),) for n in (7, 11, 13, 17, 19, 23, 29)]
    >>> is_disjoint(halves), is_disjoint([*halves, ((1, 7, 6),)])
    (False, True)
    """
    every = tidy(conjunction)
    if lo is not None and hi is not None:
        return hi <= lo or first(every, lo, hi) is None
    return every == (EMPTY,) or any(_is_empty(group) for group in _groups(every))


def _is_empty(group: tuple[Nest, ...]) -> bool:
    """Return whether nests that are not empty share no integer."""
    if any(pairs.is_disjoint(s, t) for s, t in combinations(group, 2)):
        return True
    return len(group) > 2 and _search(group, 0, period(group)) is None


def first(conjunction: Iterable[Nest], lo: int, hi: int | None = None) -> int | None:
    """Return the smallest common element in the window (without `hi`: at or after lo), or None.

    Raises
    ------
    TooHard
        If neither the closed forms nor isl answer within their budgets.

    Examples
    --------
    >>> first([((1, 7, 6),), ((1, 11, 0),), ((1, 13, 1),)], 0)
    209
    """
    every = tidy(conjunction)
    if every == (EMPTY,):
        return None
    if len(every) < 2:
        z = nests.find(every[0], lo) if every else lo
        return z if hi is None or z < hi else None
    if len(every) == 2:
        return pairs.first_common(*every, lo, hi)
    if hi is None and is_disjoint(every):
        return None
    end = lo + period(every)
    return _search(every, lo, end if hi is None else min(hi, end))


def _search(every: tuple[Nest, ...], lo: int, hi: int) -> int | None:
    """Return the first common element of three or more nests: from nest to nest, by isl, or piece by piece."""
    z = lo
    for _ in range(LEAPS):
        start = z
        for s in every:
            z = nests.find(s, z)
        if z >= hi:
            return None
        if z == start:
            return z
    if any(pairs.surely_disjoint(s, 0, t, 0) for s, t in combinations(every, 2)):
        return None
    if isl.available():
        with suppress(isl.OutOfOperations):
            return isl.nests_first_common(every, z, hi)
    best: int | None = None
    for some in _one_fewer(every, "first common element"):
        found = first(some, z, hi if best is None else best)
        best = best if found is None else found
    return best


def _one_fewer(every: tuple[Nest, ...], what: str) -> list[tuple[Nest, ...]]:
    """Return disjoint conjunctions of one nest fewer: the two that meet in the fewest pieces are met."""
    two = min(combinations(range(len(every)), 2), key=lambda ij: _pieces(every[ij[0]], every[ij[1]]))
    rest = [s for at, s in enumerate(every) if at not in two]
    s, t = every[two[0]], every[two[1]]
    if _pieces(s, t) > PIECES:
        raise TooHard(
            f"{what} of {len(every)} sets of periods {[nests.period(u) for u in every]}: needs more than {PIECES} "
            "pieces; ask within a shorter range"
        )
    return [(met, *rest) for met in explicit.meet(s, t)]


def _pieces(s: Nest, t: Nest) -> int:
    """Return how many windows make up one common period of two nests; see `nest.meet`."""
    (a, P, _), (b, Q, _) = s[0], t[0]
    g = gcd(P, Q)
    return min(Q // g, P // g, (a + b - 1) // g)


def count(conjunction: Iterable[Nest], lo: int, hi: int) -> int:
    """Return how many common elements lie in the window.

    Raises
    ------
    TooHard
        If nothing answers within its budget; never for nests of coprime periods over whole common periods.

    Examples
    --------
    >>> halves = [((n // 2, n, 0),) for n in (7, 11, 13, 17, 19, 23, 29)]
    >>> count(halves, 0, 7 * 11 * 13 * 17 * 19 * 23 * 29) == 3 * 5 * 6 * 8 * 9 * 11 * 14
    True
    """
    every = tidy(conjunction)
    if hi <= lo or every == (EMPTY,):
        return 0
    if len(every) < 2:
        return nests.count(every[0], lo, hi) if every else hi - lo
    if len(every) == 2:
        return pairs.count_common(*every, lo, hi)
    common = period(every)
    whole, rest = divmod(hi - lo, common)
    total = whole
    for group in _groups(every) if whole else []:
        span = period(group)
        total *= _count_part(group, 0, span) if len(group) > 2 else count(group, 0, span)
    return total + _count_part(every, lo, lo + rest)


def _count_part(every: tuple[Nest, ...], lo: int, hi: int) -> int:
    """Count what three or more nests share in a window of at most one common period."""
    if hi - lo <= MASK_SPAN:
        return _mask(every, lo, hi).bit_count()
    one, two = _halves(every)
    if two and _longer((one, two)) <= TABLE_LIMIT:
        return _count_halves(one, two, lo, hi)
    few = min(every, key=lambda s: nests.count(s, lo, hi))
    if nests.count(few, lo, hi) <= TABLE_LIMIT // 4:
        return int(np.count_nonzero(contains_each(every, nests.elements(few, lo, hi))))
    return sum(count(some, lo, hi) for some in _one_fewer(every, "count of common elements"))


def _halves(every: tuple[Nest, ...]) -> tuple[tuple[Nest, ...], tuple[Nest, ...]]:
    """Return the nests in two parts of coprime periods, as equally long as can be found."""
    parts: list[tuple[tuple[Nest, ...], tuple[Nest, ...]]] = [((), ())]
    for group in _groups(every):
        parts = [new for one, two in parts for new in ((one + group, two), (one, two + group))]
        parts = sorted(parts, key=_longer)[:HALVES]
    return parts[0]


def _longer(halves: tuple[tuple[Nest, ...], tuple[Nest, ...]]) -> int:
    return max(map(period, halves))


def _count_halves(one: tuple[Nest, ...], two: tuple[Nest, ...], lo: int, hi: int) -> int:
    """Count in a window of less than one common period, in about as many steps as the longer period has.

    An element x of `one` in its first period is there again at x + m*j, m its period. The places of these
    modulo n, the period of `two`, follow each other in the order of m*t mod n, the same for all x. So with
    sums over `two` in this order, each x needs the difference of two sums.
    """
    m, n, length = period(one), period(two), hi - lo
    x = np.flatnonzero(_table(one, lo, m))
    order = np.arange(n, dtype=np.int64) * (m % n) % n
    sums = np.zeros(n + 1, np.int64)
    np.cumsum(_table(two, lo, n)[order], out=sums[1:])
    times = np.maximum((length - 1 - x) // m + 1, 0)  # how often x is there, less than n times
    begin = x % n * pow(m, -1, n) % n
    end = begin + times
    around = np.maximum(end - n, 0)  # beyond the last place the order begins again
    return int((sums[np.minimum(end, n)] - sums[begin] + sums[around]).sum())


def _mask(conjunction: tuple[Nest, ...], lo: int, hi: int) -> int:
    mask = -1
    for s in conjunction:
        mask &= nests.bits(s, lo, hi)
    return mask


def _table(conjunction: tuple[Nest, ...], lo: int, n: int) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    """Return, for each i in [0, n), 1 if lo + i is a common element, else 0."""
    packed = np.frombuffer(_mask(conjunction, lo, lo + n).to_bytes(-(-n // 8), "little"), np.uint8)
    return np.unpackbits(packed, count=n, bitorder="little")
