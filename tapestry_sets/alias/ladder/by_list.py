"""Rungs that list the cells of views."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from tapestry_sets.alias import tuning
from tapestry_sets.alias.ladder.known import KnownCells
from tapestry_sets.integers import DisjointSetts, Int64Array
from tapestry_sets.limits import OPEN, Open, Rung, name_way


def list_cells(x: KnownCells) -> Int64Array | Open:
    numbers = x.list_numbers(tuning.MAX_SCAN)
    return OPEN if numbers is None else numbers


def list_common(a: KnownCells, b: KnownCells) -> Int64Array | Open:
    """The numbers in both, listed from one of them, of which setts come last."""
    sides = sorted(((a, b), (b, a)), key=lambda side: (isinstance(side[0].setts, DisjointSetts), prod(side[0].shape)))
    for one, two in sides:
        numbers = one.list_numbers(tuning.MAX_SCAN)
        if numbers is None:
            continue
        keep = two.hold_each(numbers)
        if keep is not None:
            return numbers[keep]
        others = two.list_numbers(tuning.MAX_SCAN)
        if others is not None:
            return np.intersect1d(numbers, others, assume_unique=True)
    return OPEN


def by_list(name: str, answer: Callable[[Int64Array], Any]) -> Rung:
    """Return the rung that lists the cells of one view, or those common to two, and looks at the list."""

    def ask(*each: KnownCells) -> Any:
        z = list_cells(*each) if len(each) == 1 else list_common(*each)
        return z if z is OPEN else answer(z)

    return Rung(name_way(name, "List the cells.", ask), (), "listed")


def find_beside_by_list(a: KnownCells, b: KnownCells) -> int | Open | None:
    """List the cells and the common ones."""
    numbers, common = list_cells(a), list_common(a, b)
    if numbers is OPEN or common is OPEN:
        return OPEN
    return first_of(np.setdiff1d(numbers, common, assume_unique=True))


def has_no_gap(z: Int64Array) -> bool:
    return not len(z) or int(z[-1]) - int(z[0]) + 1 == len(z)


def first_of(z: Int64Array) -> int | None:
    return int(z[0]) if len(z) else None
