"""Conjunctions: the common elements of any number of nests, without listing them.

Nests whose periods are coprime know nothing of each other: by the Chinese remainder theorem their common
elements over one common period are all the combinations of theirs. So nests are put in groups of coprime
periods, and only nests of one group are compared. A factor of all lengths is taken out first: where every
integer has become a block, the blocks are asked about.

Whatever a question is about, it has one budget: see `Question`.

    periods 6, 4, 35, 11     groups (6, 4), (35), (11)     whole periods: the product of the groups' counts
                             in (6, 4) alone the nests are compared: leaps, bit masks, tables, halves, runs, pieces

A window is a pair ``lo, hi``: the integers ``lo <= z < hi``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial, reduce
from itertools import combinations, product
from math import gcd, lcm
from typing import TypeVar

import numpy as np

from tapestry_sets.digits import Bools, Int64Array
from tapestry_sets.integers import block_columns, explicit, pair_counts, pairs, tuning
from tapestry_sets.integers import nest as nests
from tapestry_sets.integers.nest import EMPTY, Nest
from tapestry_sets.limits import OPEN, Budget, Question, TooHard, attempt, limits
from tapestry_sets.solvers import isl

T = TypeVar("T")

NestConjunction = tuple[Nest, ...]
"""A conjunction of nests; ``()`` holds every integer."""


def spend(budget: Budget, branches: int, what: str, every: Sequence[Nest]) -> None:
    """Take branches from a budget, or raise `TooHard`."""
    if not budget.spend(branches):
        raise _too_hard(budget, what, every, branches)


def _too_hard(budget: Budget, what: str, every: Sequence[Nest], more: int) -> TooHard:
    """Return the error that says how much more was needed."""
    of = f" of {len(every)} sets of periods {[nests.period(s) for s in every]}" if every else ""
    return TooHard(
        f"{what}{of}: {more} or more branches on "
        f"top of {budget.spent}, and the budget is {budget.most}; ask within a shorter range, or "
        f"allow more by limits(budget={2 * (budget.most + more)})"
    )


def _may_ask_isl(budget: Budget) -> bool:
    """Return whether isl is there and was not asked yet; it is taken to be asked now."""
    may = budget.isl and isl.available()
    budget.isl = False
    return may


class Leap:
    """The first common element of several sets, sought by going from set to set.

    Each set in turn says where its first element is at or after the place that the one before it named. The place
    only moves to the right, over integers that some set lacks; once each set in turn leaves it alone, all hold it::

        a   1...1...1...1     0 -> 4
        b   .11..11..11..     4 -> 5
        c   .1...1...1...     5 -> 5, then a: 8, b: 9, c: 9, ...

    Attributes
    ----------
    z : int
        The place: no common element lies between where the search began and it.
    met : int or None
        The common element, once the search has ended with one.

    Examples
    --------
    >>> leap = Leap([lambda z: z + -z % 6, lambda z: z + -z % 10], 1)
    >>> leap.go(100, Budget(5)), leap.met
    (True, 30)
    """

    __slots__ = ("finds", "met", "z")

    def __init__(self, finds: Sequence[Callable[[int], int | None]], lo: int) -> None:
        self.finds = finds
        self.z = lo
        self.met: int | None = None

    def go(self, hi: int | None, rounds: Budget) -> bool:
        """Go on for some rounds; return whether the search has ended, at a common element or beyond the window."""
        z, hold = self.z, 0
        while rounds.spend():
            for find in self.finds:
                at = find(z)
                if at is None or (hi is not None and at >= hi):
                    return True
                hold = hold + 1 if at == z else 1
                z = at
                if hold == len(self.finds):
                    self.z = self.met = z
                    return True
            self.z = z
        return False


def tidy(conjunction: Iterable[Nest]) -> tuple[Nest, ...]:
    """Return the same conjunction without repetitions and idle nests; ``(EMPTY,)`` if one has no elements."""
    kept = tuple(dict.fromkeys(s for s in conjunction if s))
    return (EMPTY,) if EMPTY in kept else kept


def period(conjunction: Sequence[Nest]) -> int:
    """Return the least common period."""
    return lcm(*(nests.period(s) for s in conjunction))


def contains_each(conjunction: Sequence[Nest], z: Int64Array) -> Bools:
    """Return, for each integer of an array, whether all nests hold it."""
    keep = np.ones(z.shape, bool)
    for s in conjunction:
        keep[keep] = nests.contains_each(s, z[keep])
    return keep


def coprime_groups(items: Iterable[T], period: Callable[[T], int]) -> list[tuple[T, ...]]:
    """Return periodic things in groups, such that things of different groups have coprime periods.

    Examples
    --------
    >>> coprime_groups([6, 35, 4, 11], lambda P: P)
    [(35,), (6, 4), (11,)]
    """
    groups: list[tuple[int, tuple[T, ...]]] = []
    for item in items:
        P = period(item)
        together: tuple[T, ...] = (item,)
        apart: list[tuple[int, tuple[T, ...]]] = []
        for Q, group in groups:
            if gcd(P, Q) == 1:
                apart.append((Q, group))
            else:
                P, together = lcm(P, Q), group + together
        groups = [*apart, (P, together)]
    return [group for _, group in groups]


def _groups(every: Iterable[Nest]) -> list[tuple[Nest, ...]]:
    return coprime_groups(every, nests.period)


def coarse(every: tuple[Nest, ...]) -> tuple[tuple[Nest, ...], int, int]:
    """Return nests, a factor f and an offset r, such that z is in all the given ones if (z - r) // f is in all these.

    Nests without levels, and empty ones, are not among those that are given.

    Examples
    --------
    >>> coarse((((600, 900, 701), (200, 300, 0)), ((100, 500, 1),)))
    ((((6, 9, 7), (2, 3, 0)), ((1, 5, 0),)), 100, 1)
    """
    # Where all blocks begin and end at r plus multiples of f, f integers are in or out as one:
    #
    #     r      r + f    r + 2·f  r + 3·f
    #     ├── in ──┼── in ──┼── out ─┼── …      becomes      in, in, out, …
    #
    # Only outermost phases contain r; phases inside count from the start of a block, so f divides them.
    offset, f = every[0][0][2], 0
    for s in every:
        a, P, p = s[0]
        f = gcd(f, a, P, p - offset)
        for level in s[1:]:
            f = gcd(f, *level)
        if f == 1:
            return every, 1, 0
    offset %= f
    divided = tuple(
        (
            (s[0][0] // f, s[0][1] // f, (s[0][2] - offset) // f % (s[0][1] // f)),
            *((a // f, P // f, p // f) for a, P, p in s[1:]),
        )
        for s in every
    )
    return divided, f, offset


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
    if every == (EMPTY,):
        return True
    if len(every) < 2:
        return False
    if len(every) == 2 and len(every[0]) == 1 == len(every[1]):
        return pairs.is_disjoint(*every)
    with Question() as budget:
        return any(_is_empty(group, budget) for group in _groups(coarse(every)[0]))


def _is_empty(group: tuple[Nest, ...], budget: Budget) -> bool:
    """Return whether nests that are not empty share no integer."""
    if any(_two_disjoint(s, t, budget) for s, t in combinations(group, 2)):
        return True
    return len(group) > 2 and _search(group, 0, period(group), budget) is None


def _two_disjoint(s: Nest, t: Nest, budget: Budget) -> bool:
    """Return whether two nests that are not empty share no integer."""
    if len(s) == 1 == len(t):
        return pairs.is_disjoint(s, t)
    if gcd(s[0][1], t[0][1]) == 1:
        return False
    return pairs.surely_disjoint(s, 0, t, 0) or _first_of_two(s, t, 0, None, budget) is None


def first(conjunction: Iterable[Nest], lo: int, hi: int | None = None) -> int | None:
    """Return the smallest common element in the window (without `hi`: at or after lo), or None.

    Raises
    ------
    TooHard
        If neither the closed forms nor isl answer within the budget of the question.

    Examples
    --------
    >>> first([((1, 7, 6),), ((1, 11, 0),), ((1, 13, 1),)], 0)
    209
    """
    every = tidy(conjunction)
    if every == (EMPTY,) or (hi is not None and hi <= lo):
        return None
    if len(every) < 2:
        z = nests.find(every[0], lo) if every else lo
        return z if hi is None or z < hi else None
    every, f, offset = coarse(every)
    with Question() as budget:
        block = _first(every, (lo - offset) // f, None if hi is None else -((offset - hi) // f), budget)
    return None if block is None else max(lo, block * f + offset)


def _first(every: tuple[Nest, ...], lo: int, hi: int | None, budget: Budget) -> int | None:
    """Return what `first` does, for two or more nests that are not empty."""
    if len(every) == 2:
        return _first_of_two(*every, lo, hi, budget)
    if hi is None and any(_is_empty(group, budget) for group in _groups(every)):
        return None
    end = lo + period(every)
    return _search(every, lo, end if hi is None else min(hi, end), budget)


def _first_of_two(s: Nest, t: Nest, lo: int, hi: int | None, budget: Budget) -> int | None:
    """Return the first common element of two nests: by a short search, by all that `pairs` has, or by a long search."""
    if len(s) == 1 == len(t):
        return pairs.first_in_both(s, t, lo, hi)
    common = lcm(s[0][1], t[0][1])
    end = lo + common if hi is None else min(hi, lo + common)
    for most in (tuning.ISL_AFTER, budget.left):
        part = Budget(max(0, min(most, budget.left)))
        z = pairs.PairSearch(part).first(s, 0, t, 0, lo, end)
        budget.left -= part.spent
        if z is not OPEN:
            return z
        if most == tuning.ISL_AFTER and _may_ask_isl(budget):
            with limits(budget=max(1, budget.left)):
                return pairs.first_in_both(s, t, lo, None if hi is None else end)
    about = (end - lo) * (s[0][0] + t[0][0]) // (s[0][1] * t[0][1]) + 1
    raise _too_hard(budget, "first common element", (s, t), about)


def _search(every: tuple[Nest, ...], lo: int, hi: int, budget: Budget) -> int | None:
    """Return the first common element of three or more nests: from nest to nest, by isl, or piece by piece."""
    leap = Leap([partial(nests.find, s) for s in every], lo)
    if _has_ended(leap, hi, tuning.NEST_LEAPS, every, budget):
        return leap.met
    if any(pairs.surely_disjoint(s, 0, t, 0) for s, t in combinations(every, 2)):
        return None
    if _may_ask_isl(budget):
        found = isl.nests_first_common(every, leap.z, hi)
        if found is not OPEN:
            return found
    if _has_ended(leap, hi, budget.left // 2, every, budget):
        return leap.met
    best: int | None = None
    for some in _one_fewer(every, "first common element", budget):
        earlier = first(some, leap.z, hi if best is None else best)
        best = best if earlier is None else earlier
    return best


def _has_ended(leap: Leap, hi: int, rounds: int, every: tuple[Nest, ...], budget: Budget) -> bool:
    """Go some rounds, each taken for a branch; return whether the search has ended."""
    steps = Budget(rounds)
    has_ended = leap.go(hi, steps)
    spend(budget, steps.spent, "first common element", every)
    return has_ended


def _one_fewer(every: tuple[Nest, ...], what: str, budget: Budget) -> list[tuple[Nest, ...]]:
    """Return disjoint conjunctions of one nest fewer: the two that meet in the fewest pieces are met."""
    two = min(combinations(range(len(every)), 2), key=lambda ij: _pieces(every[ij[0]], every[ij[1]]))
    rest = [s for at, s in enumerate(every) if at not in two]
    s, t = every[two[0]], every[two[1]]
    few = _pieces(s, t)
    refusal = TooHard(
        f"{what} of {len(every)} sets of periods {[nests.period(u) for u in every]}: any two of them share {few} or "
        f"more pieces, and {tuning.MET_PIECES} are tried at most; ask within a shorter range"
    )
    if few > tuning.MET_PIECES:
        raise refusal
    spend(budget, few, what, every)
    with limits(max_pieces=tuning.MET_PIECES):
        met = attempt(lambda: explicit.meet(s, t))
    if met is OPEN:
        raise refusal
    return [(one, *rest) for one in met]


def _pieces(s: Nest, t: Nest) -> int:
    """Return how many windows make up one common period of two nests; see `explicit.meet`."""
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
    every, f, offset = coarse(every)
    (start, from_start), (end, to_end) = divmod(lo - offset, f), divmod(hi - offset, f)
    with Question() as budget:
        total = f * _count(every, start, end, budget) if start < end else 0
    # and the parts of blocks at both ends
    if to_end and all(nests.contains(s, end) for s in every):
        total += to_end
    if from_start and all(nests.contains(s, start) for s in every):
        total -= from_start
    return total


def _count(every: tuple[Nest, ...], lo: int, hi: int, budget: Budget) -> int:
    """Return what `count` does, for nests that are neither empty nor everything."""
    if len(every) == 1:
        return nests.count(every[0], lo, hi)
    if len(every) == 2:
        return _count_of_two(*every, lo, hi, budget)
    whole, rest = divmod(hi - lo, period(every))
    total = whole
    for group in _groups(every) if whole else []:
        span = period(group)
        total *= _count_part(group, 0, span, budget) if len(group) > 2 else _count(group, 0, span, budget)
    return total + _count_part(every, lo, lo + rest, budget)


def _count_of_two(s: Nest, t: Nest, lo: int, hi: int, budget: Budget) -> int:
    """Count what two nests share, as a question by itself does, with the budget of this one."""
    spend(budget, 1, "count of common elements", (s, t))
    return pairs.count_in_both(s, t, lo, hi, budget)


def _count_part(every: tuple[Nest, ...], lo: int, hi: int, budget: Budget) -> int:
    """Count what three or more nests share in a window of at most one common period."""
    what, length = "count of common elements", hi - lo
    if length <= tuning.MASK_SPAN:
        spend(budget, 1 + length * len(every) // tuning.BITS_A_BRANCH, what, every)
        return _mask(every, lo, hi).bit_count()
    one, two = _halves(every)
    if two and _longer((one, two)) <= tuning.MAX_TABLE:
        spend(budget, 1 + (period(one) + period(two)) // tuning.ENTRIES_A_BRANCH, what, every)
        return block_columns.count_tables(_table(one, lo, period(one)), _table(two, lo, period(two)), length)
    packed = _packed(every)
    stretches = 1 + (length + 64 * tuning.MASK_SPAN // 16) * len(packed) // tuning.BITS_SCANNED_A_BRANCH
    counts = [nests.count(s, lo, hi) for s in every]
    runs = sum(n // s[-1][0] for n, s in zip(counts, every, strict=True))
    if runs <= min(budget.left, max(counts) // tuning.RUN_LENGTH, stretches):
        return _count_runs(every, lo, hi, budget)
    is_listed = min(counts) <= tuning.MAX_TABLE // 4 and length < 1 << 62
    listed = 1 + min(counts) * sum(map(len, every)) // tuning.ELEMENTS_A_BRANCH
    if _longer(packed) <= tuning.MASK_SPAN and stretches < (min(budget.left, listed) if is_listed else budget.left):
        spend(budget, stretches, what, every)
        return _count_stretches(packed, lo, hi)
    every, lo, hi = tuple(nests.shift(s, -lo) for s in every), 0, length  # places from the window's start fit int64
    if is_listed:
        if listed > budget.left:
            raise _too_hard(budget, what, every, listed)
        few, *rest = [every[at] for at in sorted(range(len(every)), key=counts.__getitem__)]
        return int(np.count_nonzero(contains_each(rest, nests.elements(few, lo, hi))))  # which charges for itself
    if _meetings(every) > budget.left:
        raise _too_hard(budget, what, every, min(stretches, _meetings(every)))
    return sum(count(some, lo, hi) for some in _one_fewer(every, what, budget))


def _meetings(every: tuple[Nest, ...]) -> int:
    """Return about how many pieces nests become that are met two by two, until two are left."""
    total, left = 1, [s[:1] for s in every]
    while len(left) > 2:
        s, t = min(combinations(left, 2), key=lambda pair: _pieces(*pair))
        left.remove(s)
        left.remove(t)
        left.append(((min(s[0][0], t[0][0]), lcm(s[0][1], t[0][1]), 0),))
        total *= _pieces(s, t)
    return total


def _count_runs(every: tuple[Nest, ...], lo: int, hi: int, budget: Budget) -> int:
    """Count run by run: from a common element, all integers are common up to where a block of some nest ends."""
    # A common element z lies in a block of each nest; up to the first of their ends nothing changes, so the run is
    # added whole. Then the search goes from nest to nest again.
    total, z = 0, lo
    while z < hi:
        start = z
        for s in every:
            z = nests.find(s, z)
        spend(budget, 1, "count of common elements", every)
        if z == start:
            end = min(hi, *(nests.block_end(s, z) for s in every))
            total += end - z
            z = end
    return total


def _halves(every: tuple[Nest, ...]) -> tuple[tuple[Nest, ...], tuple[Nest, ...]]:
    """Return the nests in two parts of coprime periods, as equally long as can be found."""
    parts: list[tuple[tuple[Nest, ...], tuple[Nest, ...]]] = [((), ())]
    for group in _groups(every):
        parts = [new for one, two in parts for new in ((one + group, two), (one, two + group))]
        parts = sorted(parts, key=_longer)[: tuning.HALVES]
    return parts[0]


def _longer(halves: Sequence[tuple[Nest, ...]]) -> int:
    return max(map(period, halves))


def _packed(every: tuple[Nest, ...]) -> list[tuple[Nest, ...]]:
    """Return the nests in few parts whose common periods are short enough for a table each."""
    parts: list[tuple[Nest, ...]] = []
    for s in sorted(every, key=nests.period, reverse=True):
        for k, part in enumerate(parts):
            if lcm(period(part), nests.period(s)) <= tuning.MASK_SPAN // 16:
                parts[k] = (*part, s)
                break
        else:
            parts.append((s,))
    return parts


def _count_stretches(parts: Sequence[tuple[Nest, ...]], lo: int, hi: int) -> int:
    """Count in one stretch of the window after another; in each, every part is a piece of its repeated table.

    Tables are of words of 64 integers: a part of period p is the same again after p words, or after a divisor of p.
    """
    words, total = tuning.MASK_SPAN // 64, 0
    tables, long = [], [part for part in parts if period(part) > tuning.MASK_SPAN // 16]
    for part in [part for part in parts if part not in long]:
        again = period(part) // gcd(period(part), 64)
        mask = _mask(part, lo, lo + 64 * (again + words))
        tables.append((again, np.frombuffer(mask.to_bytes(8 * (again + words), "little"), np.uint64)))
    for at in range(0, hi - lo, 64 * words):
        inside = (1 << 64 * words) - 1
        if tables:
            met = reduce(np.bitwise_and, [table[at // 64 % again :][:words] for again, table in tables])
            inside = int.from_bytes(met.tobytes(), "little")
        for part in long:
            inside &= _mask(part, lo + at, lo + at + 64 * words)
        if hi - lo - at < 64 * words:
            inside &= (1 << (hi - lo - at)) - 1
        total += inside.bit_count()
    return total


def _mask(conjunction: tuple[Nest, ...], lo: int, hi: int) -> int:
    mask = -1
    for s in conjunction:
        mask &= nests.bits(s, lo, hi)
    return mask


def _table(conjunction: tuple[Nest, ...], lo: int, n: int) -> block_columns.Table:
    """Return, for each i in [0, n), 1 if lo + i is a common element, else 0."""
    return block_columns.listed(_mask(conjunction, lo, lo + n), n)


# ------------------------------------------------------------------ unions of conjunctions, and one in a union


def first_of_any(every: Iterable[NestConjunction], lo: int, hi: int | None = None) -> int | None:
    """Return the smallest element in the window of any of some conjunctions, or None; TooHard as for `first`."""
    best: int | None = None
    with Question() as budget:
        for each in every:
            spend(budget, 1, "first common element", each)
            z = first(each, lo, hi)
            if z is not None:
                best = hi = z
    return best


def count_of_all(every: Iterable[NestConjunction], lo: int, hi: int) -> int:
    """Return how many elements in the window disjoint conjunctions have together; TooHard as for `count`."""
    total = 0
    with Question() as budget:
        for each in every:
            spend(budget, 1, "count of common elements", each)
            total += count(each, lo, hi)
    return total


def count_two_unions(ss: Sequence[Nest], ts: Sequence[Nest], lo: int, hi: int) -> int:
    """Return how many common elements two disjoint unions of nests have in the window; TooHard as for `count`.

    Examples
    --------
    >>> ones = [((1, 10**9, z),) for z in range(0, 10**6, 1000)]
    >>> count_two_unions(ones, [((1, 10**9 + 7, z),) for z in range(1000)], 0, 10**9 * (10**9 + 7))
    1000000
    """
    what = "count of common elements of two unions"
    with Question() as budget:
        spend(budget, 1, what, ())
        found = pair_counts.PairCount(budget).unions(ss, ts, lo, hi)
        if found is not OPEN:
            return found
        # two by two: what some of the pairs cost says what all will
        many = len(ss) * len(ts)
        some = [(ss[k // len(ts)], ts[k % len(ts)]) for k in range(0, many, max(1, many // tuning.SAMPLED_PAIRS))]
        mean = sum([pair_counts.PairCount(budget).expected(s, t, lo, hi) for s, t in some]) / len(some)
        if many * (1 + mean) > 2 * budget.left:
            raise _too_hard(budget, what, (), int(many * (1 + mean)))
    return count_of_all(product(ss, ts), lo, hi)


def are_disjoint(every: Iterable[NestConjunction], lo: int | None = None, hi: int | None = None) -> bool:
    """Return whether none of some conjunctions has an element, in the window if there is one; TooHard as for `first`.

    Examples
    --------
    >>> evens, odds, thirds = ((1, 2, 0),), ((1, 2, 1),), ((1, 3, 0),)
    >>> are_disjoint([(evens, odds)]), are_disjoint([(evens, odds), (odds, thirds)])
    (True, False)
    """
    with Question() as budget:
        for each in every:
            spend(budget, 1, "common element", each)
            if not is_disjoint(each, lo, hi):
                return False
    return True


def is_inside(one: NestConjunction, two: NestConjunction, lo: int | None = None, hi: int | None = None) -> bool:
    """Return whether one conjunction is in another: whether it misses the complement of each nest of the other."""
    return are_disjoint([(*one, c) for s in two for c in nests.complement(s)], lo, hi)


def adds_up(one: NestConjunction, every: Iterable[NestConjunction], lo: int, hi: int) -> bool:
    """Return whether disjoint conjunctions hold all of one: they do if the elements that they share with it add up."""
    every = list(every)
    if len(one) == 1 and len(every) > tuning.FEW_PAIRS and all(len(two) == 1 for two in every):
        return count_two_unions(one, [two[0] for two in every], lo, hi) == count(one, lo, hi)
    return count_of_all([(*one, *two) for two in every], lo, hi) == count(one, lo, hi)


def is_covered(each: NestConjunction, theirs: Sequence[Nest], lo: int | None, hi: int | None) -> bool:
    """Return whether the common elements of nests are all in a disjoint union of nests."""
    if len(each) == 1 == len(theirs):
        return pairs.is_subset(each[0], theirs[0], lo, hi)
    if any(attempt(partial(is_inside, (s,), (t,), lo, hi)) is True for s in each for t in theirs):
        return True
    if len(theirs) == 1:
        return len(each) > 1 and is_inside(each, (theirs[0],), lo, hi)
    if lo is None or hi is None:
        lo, hi = 0, lcm(period(each), *(nests.period(t) for t in theirs))
    return adds_up(each, [(t,) for t in theirs], lo, hi)
