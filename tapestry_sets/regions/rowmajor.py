"""Row-major numbers: regions as sets of integers, and sets of integers in row-major numbers back as regions.

Points are held by their numbers as *terms*: a disjoint union of conjunctions of nests. A number is held if all
nests of one term hold it. NumberTerms are closed under ``& - ~`` without listing anything, and what is asked of them
is asked of nests. All of it is about the numbers in [0, size), the size of the box. Whatever is asked has
one budget for all terms together; see `Question`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import combinations, product
from math import prod

import numpy as np

from tapestry_sets.digits import Ints, point_of
from tapestry_sets.integers import (
    EMPTY,
    Int64Array,
    Nest,
    NestConjunction,
    conjunction,
    explicit,
    ranks,
    surely_disjoint,
)
from tapestry_sets.integers import nest as nests
from tapestry_sets.limits import (
    OPEN,
    Budget,
    Open,
    Question,
    TooHard,
    TooManyPieces,
    attempt,
    check_pieces,
    current,
    limits,
)
from tapestry_sets.regions import tuning
from tapestry_sets.regions.axis import VIEWS

NumberTerms = tuple[NestConjunction, ...]
"""Conjunctions that share no number of the box."""

NEEDS_NONE = "size, `in`, isdisjoint, count_common and first_common need none"


def flat(axes: Sequence[Nest], shape: Ints) -> Nest:
    """Return the row-major numbers of a product of nests that is not empty, as one nest."""
    levels: list[tuple[int, int, int]] = []
    size = prod(shape)
    for s, n in zip(axes, shape, strict=True):
        size //= n
        # each index along this axis is a block of `size`; the pattern restarts where the axis does
        levels += [(n * size, n * size, 0), *nests.scale(s, size)]
    return nests.canonical(levels)


# ------------------------------------------------------------------ terms


def terms_of(found: Iterable[Nest], size: int) -> NumberTerms:
    """Return nests that share no number in [0, size) as terms."""
    return tidy(((s,) for s in found), size)


def tidy(terms: Iterable[NestConjunction], size: int, instead: str = NEEDS_NONE) -> NumberTerms:
    """Return the terms without those that are seen to be empty, each nest in its normal form in [0, size)."""
    out: list[NestConjunction] = []
    with Question() as budget:
        for term in terms:
            if not budget.spend(len(term) ** 2 // 4):  # the nests are compared two by two
                raise TooHard(
                    f"reshaped set: its terms take more than the budget of {budget.most} comparisons; combine "
                    f"fewer members at a time, or allow more by limits(budget={4 * budget.most})"
                )
            kept = conjunction.tidy(nests.in_window(s, 0, size) for s in term)
            if size and kept != (EMPTY,) and not any(surely_disjoint(s, 0, t, 0) for s, t in combinations(kept, 2)):
                out.append(kept)
                check_pieces(len(out), "terms of a reshaped set", instead)
    return tuple(out)


def changed(terms: NumberTerms, change: Callable[[Nest], list[Nest]], size: int) -> NumberTerms:
    """Return the terms with each nest changed to a union of nests; the change must not join two numbers."""
    found = (choice for term in terms for choice in product(*(change(s) for s in term or ((),))))
    return tidy(found, size, VIEWS)


def cut(terms: NumberTerms, lo: int, hi: int) -> NumberTerms:
    """Return the terms of {z - lo : z in terms, lo <= z < hi}."""
    return tidy((tuple(nests.shift(nests.in_window(s, lo, hi), -lo) for s in term) for term in terms), hi - lo)


def contains(terms: NumberTerms, z: int) -> bool:
    """Return whether a number is held."""
    return any(all(nests.contains(s, z) for s in term) for term in terms)


def elements(terms: NumberTerms, size: int) -> Int64Array:
    """Return the numbers in ascending order, as int64."""
    parts = [np.empty(0, np.int64)]
    for term in terms:
        few, *rest = sorted(term or ((),), key=lambda s: nests.count(s, 0, size))
        if (many := nests.count(few, 0, size)) > tuning.MAX_ELEMENTS:
            raise TooManyPieces(
                f"points: {many} numbers to look through, more than the {tuning.MAX_ELEMENTS} that an array should "
                "hold; size says how many points there are, or ask for a part of the box"
            )
        z = nests.elements(few, 0, size)
        parts.append(z[conjunction.contains_each(rest, z)])
    return np.sort(np.concatenate(parts))


def meet(xs: NumberTerms, ys: NumberTerms, size: int) -> NumberTerms:
    """Return the terms of the intersection, each a term of one and a term of the other."""
    return tidy(_pairs(xs, ys), size)


def subtract(xs: NumberTerms, ys: NumberTerms, size: int) -> NumberTerms:
    """Return the terms of the difference: for each nest the numbers of the nests before it that it lacks."""
    with Question():
        for y in ys:
            missing = [(y[:at], c) for at, s in enumerate(y) for c in nests.complement(s)]
            _check_work(len(xs) * len(missing))
            xs = tidy(((*x, *held, c) for x in xs for held, c in missing), size)
    return xs


def is_disjoint(xs: NumberTerms, ys: NumberTerms, size: int) -> bool:
    """Return whether no number is in both."""
    return conjunction.are_disjoint(_pairs(xs, ys), 0, size)


def count_in_both(xs: NumberTerms, ys: NumberTerms, size: int) -> int:
    """Return how many numbers are in both."""
    return conjunction.count_of_all(_pairs(xs, ys), 0, size)


def first_in_both(xs: NumberTerms, ys: NumberTerms, shape: Ints) -> Ints | None:
    """Return the first point of a box from zero whose number is in both, or None."""
    size = prod(shape)
    with Question():
        z = conjunction.first_of_any(meet(xs, ys, size), 0, size)
    return None if z is None else point_of(z, shape)


def _pairs(xs: NumberTerms, ys: NumberTerms) -> Iterator[NestConjunction]:
    """Return the terms of the intersection, each a term of one and a term of the other."""
    _check_work(len(xs) * len(ys))
    return (x + y for x in xs for y in ys)


def is_subset(xs: NumberTerms, ys: NumberTerms, size: int) -> bool:
    """Return whether every number of xs is in ys."""
    _check_work(len(xs) * len(ys))
    with Question() as budget:
        left = tuple(x for x in xs if not any(conjunction.is_inside(x, y, 0, size) for y in ys))
        if left and size > tuning.MASK_SPAN:
            missing = _first_missing(left, ys, size, budget)
            if missing is not OPEN:
                return missing is None
        # terms share no number, so that all is covered if the common numbers add up
        return all(conjunction.adds_up(x, ys, 0, size) for x in left)


def _first_missing(xs: NumberTerms, ys: NumberTerms, size: int, budget: Budget) -> int | Open | None:
    """Return the first number of xs that ys lack, or None; OPEN where a part of the budget does not find it.

    What is missing is mostly soon found, and few terms are soon seen to be empty.
    """
    part = budget.left // tuning.ATTEMPT_SHARE
    kept, budget.left = budget.left - part, 2 * part  # an attempt takes half of it
    with limits(max_pieces=tuning.MAX_MISSING):
        found = attempt(lambda: conjunction.first_of_any(subtract(xs, ys, size), 0, size))
    budget.left = max(budget.left - part, 0) + kept
    return found


def _check_work(branches: int) -> None:
    if branches > current().budget:
        raise TooHard(
            f"reshaped sets: {branches} pairs of terms, more than {current().budget}; "
            f"ask about fewer members at a time, or allow them by limits(budget={branches})"
        )


def listed(terms: NumberTerms, size: int) -> list[Nest]:
    """Return the numbers as nests that are right in [0, size), and disjoint there.

    Raises
    ------
    TooManyPieces
        If more than the pieces allowed are needed.
    """
    out: list[Nest] = []
    for term in terms:
        found: list[Nest] = [()]
        for s in sorted(term, key=lambda s: nests.count(s, 0, size)):
            found = [z for t in found for z in explicit.meet_within(t, s, 0, size)]
            check_pieces(len(found), "reshaped set, listed", NEEDS_NONE)
        out += found
    return explicit.merge_nests(restart(s, size) for s in out)


def restart(s: Nest, size: int) -> Nest:
    """Return a nest that repeats, in each window of `size` from zero on, the numbers of `s` in the first."""
    return nests.canonical([(size, size, 0), *s]) if size else EMPTY


def bounds(terms: NumberTerms, shape: Ints) -> tuple[Ints, Ints] | None:
    """Return the tight bounds (lo, hi) of the points that terms hold, or None if they hold none."""
    size = prod(shape)
    with Question():
        if conjunction.first_of_any(terms, 0, size) is None:
            return None
        lows, highs = [], []
        weight = size
        for n in shape:
            weight //= n
            lows.append(_empty_slabs(terms, n, weight, size, False))
            highs.append(n - _empty_slabs(terms, n, weight, size, True))
    return tuple(lows), tuple(highs)


def _empty_slabs(terms: NumberTerms, n: int, weight: int, size: int, at_end: bool) -> int:
    """Return how many indices at one end of an axis hold no point, of n of this weight, by halving."""
    low, high = 0, n - 1
    while low < high:
        many = (low + high) // 2 + 1
        slab = nests.canonical([(many * weight, n * weight, (n - many) * weight if at_end else 0)])
        low, high = (many, high) if is_disjoint(terms, ((slab,),), size) else (low, many - 1)
    return low


# ------------------------------------------------------------------ numbers as products


def products(s: Nest, shape: Ints) -> list[tuple[Nest, ...]]:
    """Return the points whose numbers a nest holds as disjoint products, splitting off the last axis first.

    Raises
    ------
    TooManyPieces
        If more than the pieces allowed are needed.

    Examples
    --------
    >>> products(((1, 2, 0),), (3, 4))
    [((), ((1, 2, 0),))]
    """
    size = prod(shape)
    if not size:
        return []
    pieces: list[tuple[Nest, tuple[Nest, ...]]] = [(nests.in_window(s, 0, size), ())]
    for n in reversed(shape):
        size //= n
        parted = [(pair, rest) for numbers, rest in pieces for pair in ranks.split(numbers, n, size, NEEDS_NONE)]
        pieces = [(rows, (columns, *rest)) for (rows, columns), rest in parted]
        check_pieces(len(pieces), f"reshape to {shape}", NEEDS_NONE)
    return [axes for rows, axes in pieces if nests.contains(rows, 0)]
