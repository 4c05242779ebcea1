"""Members: the nests of two disjoint unions in a window. Do they meet, how often, and does one union hold the other?

Any common element will do here, not the first, so that more ways may answer than in `pairs`: where few blocks do not
decide, the nests are sums of digits, and a bounded linear equation tells whether two such sums are ever equal.

    two nests      few pairs of blocks ──► an equation for each pair of runs ──► `pairs`, which may ask isl
    two unions     leaps from union to union ──► the pairs of members whose windows meet
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import product

import numpy as np

from tapestry_sets.digits import Progression, reach
from tapestry_sets.integers import conjunction, pairs, tuning
from tapestry_sets.integers import nest as nests
from tapestry_sets.integers.nest import Nest
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
    limits,
)
from tapestry_sets.solvers import equation

# ------------------------------------------------------------------------------------------------- two nests


def some_in_both(s: Nest, t: Nest, lo: int, hi: int, by_isl: bool = True) -> int | None:
    """Return a common element of two nests in [lo, hi), or None.

    Raises
    ------
    TooHard
        If neither a search nor an equation decides, nor isl, if it is to be asked.

    Examples
    --------
    >>> some_in_both(((1, 6, 1),), ((1, 10, 5),), 0, 60), some_in_both(((1, 6, 1),), ((1, 10, 4),), 0, 60)
    (25, None)
    """
    if s == nests.EMPTY or t == nests.EMPTY:
        return None
    found = leap_blocks(s, t, lo, hi)
    return climb(HARD_COMMON[by_isl], s, t, lo, hi) if found is OPEN else found


def leap_blocks(s: Nest, t: Nest, lo: int, hi: int) -> int | Open | None:
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
    return first_of_sums(product(sums_of(s, lo, hi), sums_of(t, lo, hi)), by_isl)


def _solve_runs_without_isl(s: Nest, t: Nest, lo: int, hi: int) -> int | None:
    """Do the same without isl."""
    return _solve_runs(s, t, lo, hi, False)


def _count_runs(s: Nest, t: Nest, lo: int, hi: int) -> int:
    """Count the solutions of an equation for each pair of runs, within a part of the budget."""
    with limits(budget=min(tuning.COUNTED, current().budget)):
        return sum([sums_count(p, q) for p, q in product(sums_of(s, lo, hi), sums_of(t, lo, hi))])


def _refuse(s: Nest, t: Nest, lo: int, hi: int) -> int | None:
    """Say that only isl is left, which is not to be asked."""
    raise TooHard(
        f"a common element of {s} and {t} in [{lo}, {hi}): more than {tuning.BLOCKS} pairs of blocks, and too many "
        "runs or remainders for equations; isl was not to be asked"
    )


HARD_COMMON = {
    True: (Rung(_solve_runs, (TooManyPieces,)), Rung(pairs.first_in_both, (TooHard,))),
    False: (Rung(_solve_runs_without_isl, REFUSALS), Rung(_refuse)),
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
    with limits(max_pieces=min(tuning.MAX_SETTS, current().max_pieces)):
        return [(run.first, run.levels) for run in nests.runs(s, lo, hi)]


def sums_meet_at(p: Progression, q: Progression, by_isl: bool = True) -> int | None:
    """Return an element of two progressions, or None; TooHard where neither remainders decide nor isl, if asked."""
    (a, mine), (b, theirs) = p, q
    if a + reach(mine) < b or b + reach(theirs) < a:
        return None
    digits = equation.solve(b - a, [*mine, *[(n, -step) for n, step in theirs]], by_isl)
    if digits is None:
        return None
    return a + sum([x * step for x, (_, step) in zip(digits, mine, strict=False)])


def first_of_sums(each: Iterable[tuple[Progression, Progression]], by_isl: bool = True) -> int | None:
    """Return an element of the first pair of progressions that share one, or None; TooHard as for `sums_meet_at`."""
    found = (sums_meet_at(p, q, by_isl) for p, q in each)
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


def spans_of(members: Iterable[Nest], lo: int, hi: int) -> list[NestSpan]:
    """Return the nests that have elements in [lo, hi), and where these begin and end."""
    found = [(nests.find(nest, lo), nest) for nest in members if nest != nests.EMPTY] if lo < hi else []
    return [(first, nests.rfind(nest, hi - 1), nest) for first, nest in found if first < hi]


def some_common(ours: Sequence[NestSpan], theirs: Sequence[NestSpan], by_isl: bool = True) -> int | None:
    """Return a common element of two disjoint unions of nests, or None; TooHard as for `some_in_both`."""
    if 2 < len(ours) + len(theirs) <= tuning.FEW_MEMBERS and ours and theirs:
        lo = max(min([first for first, _, _ in x]) for x in (ours, theirs))
        leap = conjunction.Leap([partial(_next, ours), partial(_next, theirs)], lo)
        if leap.go(None, Budget(tuning.MEMBER_LEAPS)):
            return leap.met
        lo = leap.z
        ours, theirs = ([(max(lo, first), last, s) for first, last, s in x if last >= lo] for x in (ours, theirs))
    for s, t, lo, hi in _meeting(ours, theirs):
        z = some_in_both(s, t, lo, hi, by_isl)
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
    if not theirs:
        return
    if len(ours) < tuning.FEW_MEMBERS:
        for start, stop, s in ours:
            for first, last, t in theirs:
                if start <= last and first <= stop:
                    yield s, t, max(first, start), min(last, stop) + 1
        return
    dtype = np.int64 if max([last for _, last, _ in ours]) < 1 << 62 else object
    at = np.array([first for first, _, _ in ours], dtype)
    end = np.array([last for _, last, _ in ours], dtype)
    for first, last, t in theirs:
        for k in np.flatnonzero((at <= last) & (end >= first)).tolist():
            start, stop, s = ours[k]
            yield s, t, max(first, start), min(last, stop) + 1


def count_common(ours: Sequence[NestSpan], theirs: Sequence[NestSpan]) -> int:
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


def count_few(ours: Sequence[NestSpan], theirs: Sequence[NestSpan]) -> int:
    """Return the same of unions of few members; TooHard where that takes more than few branches."""
    with limits(budget=min(tuning.FEW_BRANCHES, current().budget)):
        return sum([pairs.count_in_both(*pair) for pair in _meeting(ours, theirs)])


def hold(ts: Iterable[Nest], ss: Iterable[Nest], lo: int, hi: int) -> bool:
    """Return whether a disjoint union of nests holds every element in [lo, hi) of another."""
    return is_subset(spans_of(ss, lo, hi), spans_of(ts, lo, hi))


def is_subset(ours: Sequence[NestSpan], theirs: Sequence[NestSpan]) -> bool:
    """Return whether every element of a disjoint union of nests is in another."""
    return all(_holds(theirs, span) for span in ours)


def _holds(theirs: Sequence[NestSpan], span: NestSpan) -> bool:
    first, last, s = span
    around = [t for at, end, t in theirs if at <= first <= end and nests.contains(t, first)]
    if not around or not any(nests.contains(t, last) for at, end, t in theirs if at <= last <= end):
        return False
    if all(some_in_both(s, c, first, last + 1) is None for c in nests.complement(around[0])):
        return True
    return len(theirs) > 1 and count_common([span], theirs) == nests.count(s, first, last + 1)
