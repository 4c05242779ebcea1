"""A point of a product that is in none of many others: axis by axis, over classes of indices that the same ones hold.

    columns    a a b b c c        which products hold an index of the first axis: three classes
               ├─┘ ├─┘ └─┤
    rows of a  1 2 2 .  ◄── of the products of class a, an index of the next axis that none of them holds

Of each class one index is looked at, and below it only the products that hold it. So tiles of a grid cost as much as
there are tiles, where what each two of them share would be a look at each pair.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import lcm
from typing import cast

import numpy as np

from tapestry_sets.digits import Bools, Int64Array
from tapestry_sets.limits import OPEN, Budget, Open
from tapestry_sets.regions import axis_sets, tuning
from tapestry_sets.regions.axis_sets import AxisSet


def find_gap(
    one: Sequence[AxisSet], many: Sequence[Sequence[AxisSet]], budget: Budget
) -> tuple[int, ...] | Open | None:
    """Return a point of a product that is in none of many, None if there is none.

    `OPEN` where the classes of an axis are too many to tell, or take more steps than the budget has.

    Examples
    --------
    >>> rows = [(((0, 9, 1),), ((k, 8, 2),)) for k in (0, 1)]
    >>> find_gap((((0, 9, 1),), ((0, 9, 1),)), rows, Budget(100))
    (0, 9)
    """
    known: dict[tuple[int, bytes], tuple[int, ...] | Open | None] = {}

    def below(axis: int, rows: Int64Array) -> tuple[int, ...] | Open | None:
        """The coordinates from an axis on of a point that none of these products has."""
        if not len(rows):
            return tuple(map(axis_sets.least, one[axis:]))
        if axis == len(one):
            return None
        key = (axis, rows.tobytes())
        if key not in known:
            known[key] = _below(axis, rows)
        return known[key]

    def _below(axis: int, rows: Int64Array) -> tuple[int, ...] | Open | None:
        classes = _classes_of(one[axis], [many[k][axis] for k in rows.tolist()], budget)
        if classes is OPEN:
            return OPEN
        for z, inside in zip(*classes, strict=True):
            rest = below(axis + 1, rows[inside])
            if rest is not None:
                return OPEN if rest is OPEN else (int(z), *rest)
        return None

    return below(0, np.arange(len(many)))


def _classes_of(s: AxisSet, sets: Sequence[AxisSet], budget: Budget) -> tuple[Int64Array, Bools] | Open:
    """An index of a set for each choice of others that hold it and no more; and which of these do, a row an index."""
    found = _representatives(s, sets)
    if found is OPEN or not budget.spend(1 + len(found) * len(sets) // tuning.BITS_A_STEP):
        return OPEN
    inside = _hold_in_each(sets, found)
    packed = np.ascontiguousarray(np.packbits(inside, axis=1))
    _, at = np.unique(packed.view(f"V{packed.shape[1]}").ravel(), return_index=True)
    return found[at], inside[at]


def _representatives(s: AxisSet, sets: Sequence[AxisSet]) -> Int64Array | Open:
    """Indices of a set, among them one of each class: between two ends of progressions those of one common period."""
    lo, hi = axis_sets.least(s), axis_sets.greatest(s)
    if hi > tuning.MAX_INDEX:
        return OPEN
    steps = [p for one in (s, *sets) if not axis_sets.is_column(one) for p in one]
    period = lcm(*{step for _, _, step in steps})
    ends = {lo, *[first for first, _, _ in steps], *[last + 1 for _, last, _ in steps]}
    columns = [one for one in (s, *sets) if axis_sets.is_column(one)]
    cuts = np.unique(
        np.concatenate([np.array([z for z in ends if lo <= z <= hi]), *columns, *[c + 1 for c in columns]])
    )
    if len(cuts) * period * (1 + len(sets)) > tuning.MAX_BITS:
        return OPEN
    z = np.unique((cuts[:, None] + np.arange(period)).ravel())
    z = z[(z >= lo) & (z <= hi)]
    return z[axis_sets.hold_each(s, z)]


def _hold_in_each(sets: Sequence[AxisSet], z: Int64Array) -> Bools:
    """Which of some sets, the columns, hold some integers, the rows."""
    if all(not axis_sets.is_column(s) and len(s) == 1 for s in sets):  # the usual case, all at once
        first, last, step = np.array([s[0] for s in sets], np.int64).T
        at = z[:, None]
        return cast(Bools, (first <= at) & (at <= last) & ((at - first) % step == 0))
    return np.stack([axis_sets.hold_each(s, z) for s in sets], axis=1)
