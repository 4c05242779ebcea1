"""Two sets of row-major numbers: do they meet, where first, how often, and does one hold the other?

A set is `DisjointSetts`, or one set filled with another, and so on. What closed forms leave open is listed only if the
caller lets it be; else `TooHard` is raised.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import product
from math import gcd, lcm
from typing import NamedTuple

import numpy as np

from tapestry_sets.alias import tuning
from tapestry_sets.digits import Int64Array, Progression, reach
from tapestry_sets.integers import DisjointSetts, Filled, Integers, Nest, Sett, common_elements, conjunction, pairs
from tapestry_sets.integers import nest as nests
from tapestry_sets.limits import (
    OPEN,
    REFUSALS,
    Budget,
    Open,
    Rung,
    TooHard,
    TooManyPieces,
    ask_one,
    climb,
    current,
    helped,
    limits,
)
from tapestry_sets.solvers import equation

# ------------------------------------------------------------------------------------------------- two nests


def nests_common(s: Nest, t: Nest, lo: int, hi: int, by_isl: bool = True) -> int | None:
    """Return a common element of two nests in [lo, hi), or None.

    Raises
    ------
    TooHard
        If neither a search nor an equation decides, nor isl, if it is to be asked.

    Examples
    --------
    >>> nests_common(((1, 6, 1),), ((1, 10, 5),), 0, 60), nests_common(((1, 6, 1),), ((1, 10, 4),), 0, 60)
    (25, None)
    """
    if s == nests.EMPTY or t == nests.EMPTY:
        return None
    found = _leap_blocks(s, t, lo, hi)
    if found is OPEN:
        found = climb(HARD_COMMON[by_isl], s, t, lo, hi)
    return found


def _leap_blocks(s: Nest, t: Nest, lo: int, hi: int) -> int | Open | None:
    """Return the first common element in [lo, hi), or None; `OPEN` where few pairs of blocks do not decide."""
    search = pairs.PairSearch(Budget(tuning.BLOCKS))
    if s and t and s[0][1] == t[0][1] == hi and not lo:
        (a, _, i), (b, _, j) = s[0], t[0]
        if i + a <= hi and j + b <= hi:  # one block of each
            lo, hi = max(i, j), min(i + a, j + b)
            return search.first(s[1:], i, t[1:], j, lo, hi) if lo < hi else None
    return search.first(s, 0, t, 0, lo, hi)


def _solve_runs(s: Nest, t: Nest, lo: int, hi: int, by_isl: bool = True) -> int | None:
    """Solve an equation for each pair of runs."""
    return first_sum_common(product(sums_of(s, lo, hi), sums_of(t, lo, hi)), by_isl)


def _solve_runs_without_isl(s: Nest, t: Nest, lo: int, hi: int) -> int | None:
    """Do the same without isl."""
    return _solve_runs(s, t, lo, hi, False)


def _count_runs(s: Nest, t: Nest, lo: int, hi: int) -> int:
    """Count the solutions of an equation for each pair of runs, within a part of the budget."""
    with limits(budget=min(tuning.COUNTED, current().budget)):
        return sum([sums_count(p, q) for p, q in product(sums_of(s, lo, hi), sums_of(t, lo, hi))])


HARD_COMMON = {
    True: (Rung(_solve_runs, (TooManyPieces,)), Rung(pairs.first_in_both, (TooHard,))),
    False: (Rung(_solve_runs_without_isl, REFUSALS),),
}
"""The ways to a common element of two nests where few blocks do not decide, with isl and without."""
HARD_COUNT = (Rung(_count_runs, REFUSALS), Rung(pairs.count_in_both, (TooHard,)))
"""The ways to count common elements of two nests where a part of the budget does not suffice."""


def sums_of(s: Nest, lo: int, hi: int) -> list[Progression]:
    """Return the elements of a nest in [lo, hi) as few disjoint progressions whose sums all differ.

    Raises
    ------
    TooManyPieces
        If they are not few.
    """
    with limits(max_pieces=min(tuning.FEW_SETTS, current().max_pieces)):
        return [(run.first, run.levels) for run in nests.runs(s, lo, hi)]


def sums_common(p: Progression, q: Progression, by_isl: bool = True) -> int | None:
    """Return an element of two progressions, or None; TooHard where neither remainders decide nor isl, if asked."""
    (a, mine), (b, theirs) = p, q
    if a + reach(mine) < b or b + reach(theirs) < a:
        return None
    digits = equation.solve(b - a, [*mine, *[(n, -step) for n, step in theirs]], by_isl)
    if digits is None:
        return None
    return a + sum([x * step for x, (_, step) in zip(digits, mine, strict=False)])


def first_sum_common(each: Iterable[tuple[Progression, Progression]], by_isl: bool = True) -> int | None:
    """Return an element of the first pair of progressions that share one, or None; TooHard as for `sums_common`."""
    found = (sums_common(p, q, by_isl) for p, q in each)
    return next((z for z in found if z is not None), None)


def sums_count(p: Progression, q: Progression) -> int:
    """Return how many elements two progressions share, the sums of each of which all differ."""
    (a, mine), (b, theirs) = p, q
    if a + reach(mine) < b or b + reach(theirs) < a:
        return 0
    return equation.count(b - a, [*mine, *[(n, -step) for n, step in theirs]])


# ---------------------------------------------------------------------------------------------- disjoint unions


NestSpan = tuple[int, int, Nest]
"""The first and the last element of a nest in a window, and the nest."""


def spans_of(s: Integers, lo: int, hi: int) -> list[NestSpan]:
    """Return the members of an explicit set that have elements in [lo, hi), and where these begin and end."""
    return _spans(_nests(s), lo, hi)


def _spans(members: Iterable[Nest], lo: int, hi: int) -> list[NestSpan]:
    found = [(nests.find(nest, lo), nest) for nest in members if nest != nests.EMPTY] if lo < hi else []
    return [(first, nests.rfind(nest, hi - 1), nest) for first, nest in found if first < hi]


def spans_common(ours: Sequence[NestSpan], theirs: Sequence[NestSpan], by_isl: bool = True) -> int | None:
    """Return a common element of two disjoint unions of nests, or None; TooHard as for `nests_common`."""
    if 2 < len(ours) + len(theirs) <= tuning.FEW_MEMBERS and ours and theirs:
        lo = max(min([first for first, _, _ in x]) for x in (ours, theirs))
        leap = conjunction.Leap([partial(_next, ours), partial(_next, theirs)], lo)
        if leap.go(None, Budget(tuning.MEMBER_LEAPS)):
            return leap.met
        lo = leap.z
        ours, theirs = ([(max(lo, first), last, s) for first, last, s in x if last >= lo] for x in (ours, theirs))
    for s, t, lo, hi in _meeting(ours, theirs):
        z = nests_common(s, t, lo, hi, by_isl)
        if z is not None:
            return z
    return None


def _next(spans: Sequence[NestSpan], z: int) -> int | None:
    """The smallest element >= z."""
    return min([nests.find(s, z) if first < z else first for first, last, s in spans if last >= z], default=None)


def _meeting(ours: Sequence[NestSpan], theirs: Sequence[NestSpan]) -> Iterator[tuple[Nest, Nest, int, int]]:
    """Yield the pairs of members that may meet, and the window where they may."""
    if len(ours) < len(theirs):
        ours, theirs = theirs, ours
    dtype = np.int64 if max([last for _, last, _ in ours], default=0) < 1 << 62 else object
    at = np.array([first for first, _, _ in ours], dtype)
    end = np.array([last for _, last, _ in ours], dtype)
    for first, last, t in theirs:
        close = (
            range(len(ours))
            if len(ours) < tuning.FEW_MEMBERS
            else np.flatnonzero((at <= last) & (end >= first)).tolist()
        )
        for k in close:
            start, stop, s = ours[k]
            if start <= last and first <= stop:
                yield s, t, max(first, start), min(last, stop) + 1


def spans_count(ours: Sequence[NestSpan], theirs: Sequence[NestSpan]) -> int:
    """Return how many common elements two disjoint unions of nests have."""
    total: int = 0
    hard = []
    with limits(budget=min(tuning.COUNTED, current().budget)):
        for pair in _meeting(ours, theirs):
            count: int | Open = ask_one((TooHard,), pairs.count_in_both, *pair)
            if count is OPEN:
                hard.append(pair)
            else:
                total += count
    for pair in hard:
        total += climb(HARD_COUNT, *pair)
    return total


def spans_count_few(ours: Sequence[NestSpan], theirs: Sequence[NestSpan]) -> int:
    """Return the same of unions of few members; TooHard where that takes more than few branches."""
    with limits(budget=min(tuning.FEW_BRANCHES, current().budget)):
        return sum([pairs.count_in_both(*pair) for pair in _meeting(ours, theirs)])


def holds(ts: Iterable[Nest], ss: Iterable[Nest], lo: int, hi: int) -> bool:
    """Return whether a disjoint union of nests holds every element in [lo, hi) of another."""
    return spans_hold(_spans(ts, lo, hi), _spans(ss, lo, hi))


def spans_hold(theirs: Sequence[NestSpan], ours: Sequence[NestSpan]) -> bool:
    """Return whether a disjoint union of nests holds every element of another."""
    return all(_holds(theirs, span) for span in ours)


def _holds(theirs: Sequence[NestSpan], span: NestSpan) -> bool:
    first, last, s = span
    around = [t for at, end, t in theirs if at <= first <= end and nests.contains(t, first)]
    if not around or not any(nests.contains(t, last) for at, end, t in theirs if at <= last <= end):
        return False
    if all(nests_common(s, c, first, last + 1) is None for c in nests.complement(around[0])):
        return True
    return len(theirs) > 1 and spans_count([span], theirs) == nests.count(s, first, last + 1)


# ------------------------------------------------------------------------------------------- filling set with set


def filled(chain: Sequence[Integers]) -> Integers:
    """Return the first set filled with the second, that with the third, and so on.

    They are filled from the last on, so that a question goes down the chain once.

    Examples
    --------
    >>> from tapestry_sets.integers import Stripe
    >>> print(filled([Sett(Stripe(6, 1)), Sett(Stripe(2, 1)), Sett(Stripe(1, 1))]))
    1..1...
    """
    *outers, ink = chain
    for outer in reversed(outers):
        ink = outer.fill(ink)
    return ink


def in_few_setts(s: Integers, extent: int) -> Integers:
    """Return the set listed, where that is quickly done."""
    if isinstance(s, DisjointSetts):
        return s
    with limits(max_pieces=min(tuning.FEW_SETTS, current().max_pieces)):
        found = ask_one((TooManyPieces,), s.setts, (0, extent))
    return s if found is OPEN else found


class _MemberPair(NamedTuple):
    """Two sets in the window [lo, hi), by their numbers in an outer set."""

    one: Integers
    two: Integers
    lo: int
    hi: int
    outer: Integers = Sett()
    may_list: bool = True

    @property
    def is_explicit(self) -> bool:
        return not isinstance(self.one, Filled) and not isinstance(self.two, Filled)

    @property
    def spans(self) -> tuple[list[NestSpan], list[NestSpan]]:
        """The members of both, where they are explicit."""
        return spans_of(self.one, self.lo, self.hi), spans_of(self.two, self.lo, self.hi)

    def inside(self) -> _MemberPair | None:
        """Return the elements of both in the outer set of one, by their numbers there, if these are few setts."""
        for outer in [s.outer for s in (self.one, self.two) if isinstance(s, Filled)]:
            one = _numbers_in(outer, self.one)
            two = None if one is None else _numbers_in(outer, self.two)
            if one is not None and two is not None:
                return _MemberPair(one, two, outer.rank(self.lo), outer.rank(self.hi), outer, self.may_list)
        return None

    def narrowed(self) -> tuple[_MemberPair, int]:
        """Return the pair in which blocks of a width that all lengths share are single integers, and that width."""
        f = gcd(*_lengths(self.one), *_lengths(self.two), self.lo, self.hi)
        if f < 2:
            return self, 1
        return self._replace(one=_divided(self.one, f), two=_divided(self.two, f), lo=self.lo // f, hi=self.hi // f), f


def _in_window(s: Integers, lo: int, hi: int) -> Integers:
    """Return a set that is right in the window, in a shorter period if it is explicit and may have one."""
    return s if isinstance(s, Filled) else DisjointSetts._of(nests.in_window(nest, lo, hi) for nest in _nests(s))


def _numbers_in(outer: Integers, s: Integers) -> Integers | None:
    """Return the numbers, in `outer`, of the elements of s that it holds; None where they are no few setts."""
    if isinstance(s, Filled):
        return s.ink if s.outer == outer else None
    if s == outer:
        return Sett()
    with limits(max_pieces=min(tuning.FEW_SETTS, current().max_pieces)):
        found = ask_one(REFUSALS, lambda: s.sample(outer).setts())
    return None if found is OPEN else found


def _nests(s: Integers) -> tuple[Nest, ...]:
    assert isinstance(s, (Sett, DisjointSetts)), "views hold no other sets"
    return s._nests


def _lengths(s: Integers) -> Iterator[int]:
    """Yield all lengths and phases of a set's levels."""
    if isinstance(s, Filled):
        yield from _lengths(s.outer)
        yield from _lengths(s.ink)
    else:
        yield from (length for nest in _nests(s) for level in nest for length in level)


def _divided(s: Integers, f: int) -> Integers:
    """Return the set of which s holds each element as a block of f; f divides all lengths."""
    if isinstance(s, Filled):
        return Filled(_divided(s.outer, f), _divided(s.ink, f))
    return DisjointSetts._of(tuple((a // f, P // f, p // f) for a, P, p in nest) for nest in _nests(s))


def ends_of(s: Integers, hi: int) -> tuple[int, int] | None:
    """Return the first and the last integer in [0, hi) of a set of a view's cells, None if there is none."""
    first = s.first(0, hi)
    if first is None:
        return None
    if isinstance(s, Filled):
        return first, s.nth(s.count(0, hi) - 1)
    return first, max([nests.rfind(nest, hi - 1) for nest in _nests(s)])


# -- their common elements


def some_common(
    one: Integers, two: Integers, lo: int, hi: int, may_list: bool = True, by_isl: bool = True
) -> int | None:
    """Return an integer in [lo, hi) that two sets of a view's cells share, or None."""
    pair = _MemberPair(one, two, lo, hi, may_list=may_list)
    return spans_common(*pair.spans, by_isl) if pair.is_explicit else _first(pair)


def _first(pair: _MemberPair) -> int | None:
    if pair.is_explicit:
        return pair.one.first_common(pair.two, pair.lo, pair.hi)
    leap = conjunction.Leap([pair.one.find, pair.two.find], pair.lo)
    if leap.go(pair.hi, Budget(tuning.CELL_LEAPS)):
        return leap.met
    pair = pair._replace(lo=leap.z)
    inner = pair.inside()
    if inner is None:
        return _first_apart(pair)
    k = _first(inner)
    return None if k is None else inner.outer.nth(k)


def _first_apart(pair: _MemberPair) -> int | None:
    """Return the first common element of sets neither of which is known by its numbers in the other's outer set."""
    for one, two in ((pair.one, pair.two), (pair.two, pair.one)):
        if isinstance(one, Filled) and isinstance(two, Filled):  # what is not even in an outer set is no element
            z = _first(pair._replace(one=one.outer, two=two))
            if z is None:
                return None
            pair = pair._replace(lo=z)
    pair, width = pair.narrowed()
    common = _common(pair)
    return int(common[0]) * width if len(common) else None


def count_common(one: Integers, two: Integers, lo: int, hi: int, may_list: bool = True) -> int:
    """Return how many integers in [lo, hi) two sets of a view's cells share."""
    return _count(_MemberPair(one, two, lo, hi, may_list=may_list))


def _count(pair: _MemberPair) -> int:
    if pair.is_explicit:
        return spans_count(*pair.spans)
    pair = pair._replace(one=_in_window(pair.one, pair.lo, pair.hi), two=_in_window(pair.two, pair.lo, pair.hi))
    one, two, lo, hi = pair[:4]
    P, Q = one.period, two.period
    whole, rest = divmod(hi - lo, lcm(P, Q))
    if gcd(P, Q) == 1 and not rest:  # by the Chinese remainder theorem
        return whole * one.count(0, P) * two.count(0, Q)
    inner = pair.inside()
    if inner is not None:
        return _count(inner)
    pair, width = pair.narrowed()
    return width * _count_listed(pair)


def _count_listed(pair: _MemberPair) -> int:
    """Return how many common elements there are, from lists of those of one common period, or less."""
    P, Q = pair.one.period, pair.two.period
    whole, rest = divmod(pair.hi - pair.lo, lcm(P, Q))
    total = len(_common(pair._replace(hi=pair.lo + rest)))
    if whole and gcd(P, Q) == 1:
        total += whole * pair.one.count(0, P) * pair.two.count(0, Q)
    elif whole:
        total += whole * len(_common(pair._replace(hi=pair.lo + lcm(P, Q))))
    return total


def is_subset(one: Integers, two: Integers, lo: int, hi: int, may_list: bool = True) -> bool:
    """Return whether each integer in [lo, hi) of one set of a view's cells is in another."""
    return _is_subset(_MemberPair(one, two, lo, hi, may_list=may_list))


def first_beside(one: Integers, two: Integers, lo: int, hi: int, may_list: bool = True) -> int | None:
    """Return the smallest integer in [lo, hi) of one set of a view's cells that is not in another, or None.

    Examples
    --------
    >>> from tapestry_sets.integers import Stripe
    >>> first_beside(Sett(Stripe(1, 5)), Sett(Stripe(7, 3)), 0, 10**9)
    18
    """
    if is_subset(one, two, lo, hi, may_list):
        return None
    while True:
        z = one.first(lo, hi)
        assert z is not None, "a set without elements is in every other"
        if z not in two:
            return z
        middle = (z + 1 + hi) // 2
        if is_subset(one, two, z + 1, middle, may_list):
            lo = middle
        else:
            lo, hi = z + 1, middle


def _is_subset(pair: _MemberPair) -> bool:
    one, two, lo, hi = pair[:4]
    if pair.is_explicit:
        return spans_hold(*pair.spans[::-1])
    many = one.count(lo, hi)
    if many > two.count(lo, hi):
        return False
    if not _lies_in_outer(pair):
        return False
    inner = pair.inside()
    return _is_subset(inner) if inner is not None else _count(pair) == many


def _lies_in_outer(pair: _MemberPair) -> bool:
    """Return whether the first set is in the outer set of the second, if that has one."""
    if not isinstance(pair.two, Filled):
        return True
    outer = pair.two.outer
    return outer in (pair.one, getattr(pair.one, "outer", None)) or _is_subset(pair._replace(two=outer))


# -- listed


def _common(pair: _MemberPair) -> Int64Array:
    """Return the common elements, ascending; TooHard where both sets hold too many, or too large ones."""
    one, two, lo, hi = pair[:4]
    if lo >= hi:
        return np.empty(0, np.int64)
    found = common_elements((one, two), lo, hi) if pair.may_list and not hi >> 62 else None
    many = 1 if found is not None and len(found) else min(one.count(lo, hi), two.count(lo, hi))
    if many and found is None:
        raise TooHard(f"cells of two views: of {many} cells or more below {hi}, too many would be listed")
    if many:
        helped("listed")
    return np.empty(0, np.int64) if found is None else found
