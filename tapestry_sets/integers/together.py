"""Several sets together, as callers ask: how many integers do they share, which is the first, is there any?

`count_common`, `first_common` and `isdisjoint` take any number of sets of any form. The other questions are those of
two views' cells, in one window: any common element will do there, and the caller says whether isl may be asked and
elements be listed.
"""

from __future__ import annotations

from collections.abc import Sequence

from tapestry_sets.integers import integers, members
from tapestry_sets.integers import nest as nests
from tapestry_sets.integers.integers import Integers, Operand
from tapestry_sets.integers.lazy import count_in_all, count_in_chains, first_in_all, have_none, lie_in, period_of
from tapestry_sets.integers.sett import Explicit
from tapestry_sets.integers.unions import Within
from tapestry_sets.limits import OPEN, Open, Question

# ------------------------------------------------------------------------------------- several sets, as callers ask


def count_common(*sets: Operand, start: int | None = None, stop: int | None = None) -> int:
    """Return how many integers all of the sets share in [start, stop), or in one common period.

    Parameters
    ----------
    *sets : Stripe, Sett, DisjointSetts, Intersection, Filled or Sampled
        At least one.
    start, stop : int, optional
        The range, both or neither.

    Raises
    ------
    ValueError
        If there is no set, or start > stop.
    TooHard
        If nothing answers within its budget; never for setts of coprime periods over whole common periods.

    Examples
    --------
    >>> from tapestry_sets import Stripe, count_common
    >>> halves = [Stripe(n // 2, n - n // 2) for n in (7, 11, 13, 17, 19, 23, 29)]
    >>> count_common(*halves), count_common(*halves, start=0, stop=10**9)
    (997920, 4627341)
    """
    factors = _all_factors(sets, "count_common")
    if start is None and stop is None:
        return count_in_all(factors, 0, period_of(factors))
    return count_in_all(factors, *integers.check_bounds(start, stop, "count_common"))


def first_common(*sets: Operand, start: int, stop: int | None = None) -> int | None:
    """Return the smallest integer >= start (and < stop, if given) that all of the sets share, or None.

    Parameters
    ----------
    *sets : Stripe, Sett, DisjointSetts, Intersection, Filled or Sampled
        At least one.
    start, stop : int
        The range; to any length if `stop` is not given.

    Raises
    ------
    ValueError
        If there is no set, or start > stop.
    TooHard
        If nothing answers within its budget.

    Examples
    --------
    >>> from tapestry_sets import Stripe, first_common
    >>> first_common(Stripe(1, 6, phase=6), Stripe(1, 10), Stripe(1, 12, phase=1), start=0)
    209
    """
    return first_in_all(_all_factors(sets, "first_common"), *integers.check_start(start, stop, "first_common"))


def isdisjoint(*sets: Operand, within: Within | None = None) -> bool:
    """Return whether no integer is in all of the sets; two of them may meet.

    Parameters
    ----------
    *sets : Stripe, Sett, DisjointSetts, Intersection, Filled or Sampled
        At least one.
    within : (int, int), optional
        The range; by default the whole line.

    Raises
    ------
    ValueError
        If there is no set, or the window is reversed.
    TooHard
        If nothing answers within its budget.

    Examples
    --------
    >>> from tapestry_sets import Stripe, isdisjoint
    >>> isdisjoint(Stripe(2, 1), Stripe(2, 1, phase=1), Stripe(2, 1, phase=2))
    True
    """
    return have_none(_all_factors(sets, "isdisjoint"), *integers.check_window(within, "isdisjoint"))


def _all_factors(sets: Sequence[Operand], verb: str) -> tuple[Integers, ...]:
    factors = tuple(f for k, s in enumerate(sets) for f in integers.as_set(s, f"{verb}: sets[{k}]")._factors)
    if not factors:
        raise ValueError(f"{verb}: needs at least one set; every integer is in all of none, and is Sett()")
    return factors


# -------------------------------------------------------------------------------- any common element of two sets


def some_common(one: Integers, two: Integers, lo: int, hi: int, isl: bool = True, lists: bool = True) -> int | None:
    """Return an integer in the window that two sets share, or None: the first that is found.

    Parameters
    ----------
    one, two : Integers
    lo, hi : int
    isl, lists : bool
        Whether isl may be asked, and elements be listed.

    Raises
    ------
    TooHard
        If nothing answers within its budget.
    """
    if isinstance(one, Explicit) and isinstance(two, Explicit):
        ours, theirs = (members.spans_of(s._nests, lo, hi) for s in (one, two))
        return members.some_common(ours, theirs, isl)
    with Question(isl=isl, lists=lists):
        return first_in_all((one, two), lo, hi)


def count_shared(one: Integers, two: Integers, lo: int, hi: int, lists: bool = True) -> int:
    """Return how many integers in the window two sets share; see `some_common`."""
    if isinstance(one, Explicit) and isinstance(two, Explicit):
        return members.count_common(*(members.spans_of(s._nests, lo, hi) for s in (one, two)))
    with Question(lists=lists):
        return count_in_all((one, two), lo, hi)


def count_by_chains(one: Integers, two: Integers, lo: int, hi: int) -> int | Open:
    """Return how many integers in the window two sets share of which one is held by its chain; `OPEN` if not quickly.

    See `count_in_chains` for what is quick.
    """
    is_listed = isinstance(one, Explicit) and isinstance(two, Explicit)
    return OPEN if is_listed else count_in_chains((one, two), lo, hi)


def lies_within(one: Integers, two: Integers, lo: int, hi: int, lists: bool = True) -> bool:
    """Return whether each integer in the window of one set is in another; see `some_common`."""
    if isinstance(one, Explicit) and isinstance(two, Explicit):
        return members.is_subset(*(members.spans_of(s._nests, lo, hi) for s in (one, two)))
    with Question(lists=lists):
        return lie_in((one,), two, lo, hi)


def first_beside(one: Integers, two: Integers, lo: int, hi: int, lists: bool = True) -> int | None:
    """Return the smallest integer in the window of one set that is not in another, or None; see `some_common`.

    Examples
    --------
    >>> from tapestry_sets import Sett, Stripe
    >>> first_beside(Sett(Stripe(1, 5)), Sett(Stripe(7, 3)), 0, 10**9)
    18
    """
    if lies_within(one, two, lo, hi, lists):
        return None
    while True:
        z = one.first(lo, hi)
        assert z is not None, "a set without elements is in every other"
        if z not in two:
            return z
        middle = (z + 1 + hi) // 2
        if lies_within(one, two, z + 1, middle, lists):
            lo = middle
        else:
            lo, hi = z + 1, middle


def ends_of(s: Integers, hi: int) -> tuple[int, int] | None:
    """Return the first and the last integer in [0, hi) of a set that is explicit or filled, None if there is none."""
    first = s._first(0, hi)
    if first is None:
        return None
    if isinstance(s, Explicit):
        return first, max([nests.rfind(nest, hi - 1) for nest in s._nests])
    return first, s._nth(s._count(0, hi) - 1)
