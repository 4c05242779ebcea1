"""Several views together: do they read all that another one reads, and what do they leave out?

products    of each view as of the other, its indices axis by axis: what is left is looked for axis by axis
as one      else the views are put together as one view, which is asked as any other is
"""

from __future__ import annotations

from collections.abc import Sequence

from tapestry_sets.limits import OPEN, Open, TooHard, ask_one
from tapestry_sets.regions import AxisSets, axis_products
from tapestry_sets.views import Allocation, View, concatenate

Lacking = tuple[Allocation, tuple[int, ...]]
"""A cell that is left out: of which allocation, and where in it."""


def lies_in_all(views: Sequence[View], other: View) -> bool:
    """Return whether some views together read every cell that another one reads.

    Raises
    ------
    TooHard
        As `View.contains`.
    """
    found = ask_one((TooHard,), _lacking_by_products, views, other)
    return _as_one(views, other).contains(other) if found is OPEN else found is None


def find_lacking(views: Sequence[View], other: View) -> Lacking | None:
    """Return a cell that a view reads and none of others does, None if there is none.

    Raises
    ------
    TooHard
        As `View.contains`.
    """
    found = ask_one((TooHard,), _lacking_by_products, views, other) if len(views) > 1 else OPEN
    if found is not OPEN:
        return found
    mine = _as_one(views, other).cells
    for allocation, theirs in other.cells.items():
        cell = theirs.cell_beside(mine.get(allocation))
        if cell is not None:
            return allocation, cell
    return None


def _lacking_by_products(views: Sequence[View], other: View) -> Lacking | Open | None:
    """Such a cell, from the products of indices that the views read."""
    for allocation, theirs in other.cells.items():
        each = [cells for view in views if (cells := view.cells.get(allocation)) is not None]
        if theirs.axes is None or any(cells.axes is None for cells in each):
            return OPEN
        many: list[AxisSets] = [sets for cells in each for sets in cells.axes or ()]
        for one in theirs.axes:
            at = axis_products.find_beside(one, many)
            if at is not None:
                return allocation, at
    return None


def _as_one(views: Sequence[View], other: View) -> View:
    """One view that reads what several do of the memory of another."""
    homes = set(other.allocations)
    parts = [view for view in views if view.size and not homes.isdisjoint(view.allocations)]
    if len(parts) < 2:
        return parts[0] if parts else other.ravel()[:0]
    return concatenate([part.ravel() for part in parts])
