"""Cells of tensors, cut and compared, each pair once: blocks of alike operators are alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from tapestry_plan.ir import cells_of
from tapestry_sets.regions import Box, DisjointRegions

T = TypeVar("T")


class CellAlgebra:
    """Set algebra on cells by identity: the same two objects give the same object again.

    Results are objects that are compared next, so a layer that stands many times is worked out once.
    """

    def __init__(self) -> None:
        self._kept: dict[int, DisjointRegions] = {}
        self._made: dict[Any, Any] = {}

    def fact(self, key: Any, make: Callable[[], T]) -> T:
        """The remembered result for what it depends on, made now if it was not before."""
        if key not in self._made:
            self._made[key] = make()
        found: T = self._made[key]
        return found

    def _of(self, what: str, make: Callable[[], T], *cells: DisjointRegions) -> T:
        key = what, *map(id, cells)
        if key not in self._made:
            self._kept.update((id(one), one) for one in cells)  # no other object gets their numbers
            self._made[key] = make()
        found: T = self._made[key]
        return found

    def of_box(self, box: Box, shape: tuple[int, ...]) -> DisjointRegions:
        """The cells of a box that lie in a tensor."""
        return self.fact((box, shape), lambda: cells_of(box, shape))

    def meet(self, one: DisjointRegions, other: DisjointRegions) -> DisjointRegions:
        return self._of("meet", lambda: one & other, one, other)

    def less(self, one: DisjointRegions, other: DisjointRegions) -> DisjointRegions:
        return self._of("less", lambda: one - other, one, other)

    def is_within(self, one: DisjointRegions, other: DisjointRegions) -> bool:
        return self._of("within", lambda: one <= other, one, other)

    def size(self, cells: DisjointRegions) -> int:
        return self._of("size", lambda: cells.size, cells)

    def box_around(self, cells: DisjointRegions) -> Box | None:
        """The smallest box that holds all of some cells, None for no cells."""
        return self._of("around", lambda: _box_around(cells), cells)


def _box_around(cells: DisjointRegions) -> Box | None:
    bounds = cells.bounds()
    return None if bounds is None else Box.from_bounds(*bounds)
