"""Products of sets, one an axis, and unions of few of them: what two share, how many points, one that is in none.

    {0, 1, 2, 3} x {0, 1}    one product: what a slice of a table reads
    {4} x {0}                the other of two: where its last page is cut

Products may share points. Unions are counted by inclusion and exclusion over what products share, which is again a
product; products that share nothing cost a look at each pair.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from tapestry_sets.digits import Bools, Int64Array
from tapestry_sets.limits import OPEN, Budget, Question, TooHard, write_product
from tapestry_sets.regions import axis_sets, tuning
from tapestry_sets.regions.axis_gaps import find_gap
from tapestry_sets.regions.axis_sets import AxisSet

AxisSets = tuple[AxisSet, ...]
"""A product: a set for each axis, none of them empty."""


def size_of(sets: AxisSets) -> int:
    """Return how many points a product has."""
    return prod([axis_sets.size_of(s) for s in sets])


def hold(sets: AxisSets, point: Sequence[int]) -> bool:
    """Return whether a product has a point."""
    return all(axis_sets.hold(s, x) for s, x in zip(sets, point, strict=True))


def hold_each(many: Sequence[AxisSets], points: Sequence[Int64Array]) -> Bools:
    """Return which of some points, given by their coordinates on each axis, are in any of some products."""
    found = np.zeros(len(points[0]) if points else 1, np.bool_)
    for sets in many:
        inside = [axis_sets.hold_each(s, x) for s, x in zip(sets, points, strict=True)]
        found |= np.logical_and.reduce(inside) if inside else True
    return found


def meet(one: AxisSets, two: AxisSets) -> AxisSets | None:
    """Return what two products share, None if that is nothing.

    Examples
    --------
    >>> meet((((0, 8, 2),), ((0, 3, 1),)), (((0, 9, 3),), ((2, 5, 1),)))
    (((0, 6, 6),), ((2, 3, 1),))
    """
    found: list[AxisSet] = []
    for s, t in zip(one, two, strict=True):
        both = axis_sets.meet(s, t)
        if axis_sets.is_nothing(both):
            return None
        found.append(both)
    return tuple(found)


def meet_each(one: AxisSets, many: Sequence[AxisSets]) -> list[AxisSets]:
    """Return what a product shares with each of many, where it shares something."""
    return [both for two in many if (both := meet(one, two)) is not None]


def join(many: Sequence[AxisSets]) -> list[AxisSets]:
    """Return products with the same points, fewer where some differ on one axis alone.

    Examples
    --------
    >>> join([(((0, 3, 1),), ((0, 5, 1),)), (((4, 9, 1),), ((0, 5, 1),))])
    [(((0, 9, 1),), ((0, 5, 1),))]
    """
    found = list(many)
    for axis in range(len(found[0]) if len(found) > 1 else 0):
        alike: dict[tuple[object, ...], list[AxisSets]] = {}
        for sets in found:
            others = (s.tobytes() if axis_sets.is_column(s) else s for k, s in enumerate(sets) if k != axis)
            alike.setdefault(tuple(others), []).append(sets)
        found = [sets for group in alike.values() for sets in _join_on(axis, group)]
    return found


def _join_on(axis: int, alike: list[AxisSets]) -> list[AxisSets]:
    """The same of products that differ on one axis alone."""
    union = OPEN if len(alike) < 2 else axis_sets.unite([sets[axis] for sets in alike])
    return alike if union is OPEN else [(*alike[0][:axis], union, *alike[0][axis + 1 :])]


def count_union(many: Sequence[AxisSets]) -> int:
    """Return how many points are in any of some products.

    Raises
    ------
    TooHard
        If so many of them share points that what these share takes more branches than the budget.

    Examples
    --------
    >>> count_union([(((0, 5, 1),),), (((4, 8, 1),),), (((8, 11, 1),),)])
    12
    """
    if len(many) < 2:
        return sum(map(size_of, many))
    with Question(attempt=True) as budget:
        return _count(list(many), budget)


def write_union(many: Sequence[AxisSets]) -> str:
    """Return what `count_union` adds up and takes away, product by product, as Python writes it; TooHard as that.

    Examples
    --------
    >>> write_union([(((0, 9, 1),), ((0, 5, 1),)), (((5, 14, 1),), ((0, 2, 1),))])
    '10*6 - 5*3 + 10*3'
    """
    terms: list[tuple[int, AxisSets]] = []
    with Question(attempt=True) as budget:
        _count(list(many), budget, terms)
    return (
        "".join(
            [f"{' + ' if sign > 0 else ' - '}{write_product(map(axis_sets.size_of, sets))}" for sign, sets in terms]
        ).removeprefix(" + ")
        or "0"
    )


def _count(many: list[AxisSets], budget: Budget, terms: list[tuple[int, AxisSets]] | None = None, sign: int = 1) -> int:
    """Inclusion and exclusion: |A, B, C| = |A| + |B, C| - |AB, AC|, by a product that holds others alone.

    What is added up, each with its sign, is put into `terms`, if that is given.
    """
    total = 0
    many.sort(key=size_of)
    while many:
        one = many.pop()
        size = size_of(one)
        if not budget.spend(len(many) + 1):
            raise TooHard(
                f"counting the union of {len(many) + 1} products of indices: what they share takes more than "
                f"{budget.most} branches; allow more by limits(budget=…), or ask about a part of the view"
            )
        rest, shared = [], []
        for two in many:
            both = meet(one, two)
            if both is not None and (held := size_of(both)) == size_of(two):
                continue  # the product holds the other
            rest.append(two)
            if both is not None:
                shared.append(both)
                if held == size:  # the other holds the product
                    size, shared = 0, []
                    rest = many
                    break
        if terms is not None and size:
            terms.append((sign, one))
        total += size - (_count(shared, budget, terms, -sign) if shared else 0)
        many = rest
    return total


def find_beside(one: AxisSets, many: Sequence[AxisSets]) -> tuple[int, ...] | None:
    """Return a point of a product that is in none of others, None if there is none.

    Raises
    ------
    TooHard
        As `count_union`.

    Examples
    --------
    >>> find_beside((((0, 9, 1),), ((0, 9, 1),)), [(((0, 9, 1),), ((0, 8, 1),)), (((0, 6, 2),), ((9, 9, 1),))])
    (1, 9)
    """
    if len(many) == 1:
        return _find_beside_one(one, many[0])
    met = meet_each(one, many)
    if len(met) >= tuning.MANY_PRODUCTS:
        with Question(attempt=True) as budget:
            found = find_gap(one, met, budget)
        if found is not OPEN:
            return found
    if count_union(met) == size_of(one):
        return None
    # halve the axes in turn, and go on in a half that is not all in the others
    #
    #   # # # # | # # # .        eight of the first row, seven of which are in others: then the right half,
    #                 ^          then its right half, ...
    for axis in range(len(one)):
        while axis_sets.size_of(one[axis]) > 1:
            for half in axis_sets.halve(one[axis]):
                part = (*one[:axis], half, *one[axis + 1 :])
                inside = meet_each(part, met)
                if count_union(inside) < size_of(part):
                    one, met = part, inside
                    break
    return tuple(map(axis_sets.least, one))


def lies_in(one: AxisSets, many: Sequence[AxisSets]) -> bool:
    """Return whether each point of a product is in one of others, or in several.

    Raises
    ------
    TooHard
        As `count_union`.
    """
    met = meet_each(one, many)
    if len(met) >= tuning.MANY_PRODUCTS:
        return find_beside(one, met) is None
    return count_union(met) == size_of(one)


def _find_beside_one(one: AxisSets, two: AxisSets) -> tuple[int, ...] | None:
    """The same of one other: an axis on which it has not all; the other axes are anywhere."""
    corner = tuple(map(axis_sets.least, one))
    for axis, (s, t) in enumerate(zip(one, two, strict=True)):
        z = axis_sets.first_beside(s, t)
        if z is not None:
            return (*corner[:axis], z, *corner[axis + 1 :])
    return None
