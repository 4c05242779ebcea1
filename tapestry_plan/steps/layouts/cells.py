"""Cells of tensors, cut and compared, each pair once: blocks of alike operators are alike."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from msgspec import Struct, field

from tapestry_plan.ir import cells_of
from tapestry_sets.regions import Box, DisjointRegions

T = TypeVar("T")


class Facts(Struct):
    """Answers kept by what they depend on, never by name: a layer that stands many times is looked at once."""

    keys: dict[Any, int] = field(default_factory=dict)
    kept: dict[int, Any] = field(default_factory=dict)
    facts: dict[tuple[Any, ...], Any] = field(default_factory=dict)

    def key(self, thing: Any) -> int:
        """A number for a value: equal values have one number."""
        return self.keys.setdefault(thing, len(self.keys))

    def identity(self, thing: Any) -> int:
        """A number for an object, which is kept so that no other one gets it."""
        return id(self.kept.setdefault(id(thing), thing))

    def fact(self, key: tuple[Any, ...], make: Callable[[], T]) -> T:
        """The kept answer for what it depends on, made now if it was not before."""
        if key not in self.facts:
            self.facts[key] = make()
        found: T = self.facts[key]
        return found


class CellAlgebra(Facts):
    """Set algebra on cells by identity: the same two objects give the same object again.

    Results are objects that are compared next, so a layer that stands many times is worked out once.
    """

    def _of(self, what: str, make: Callable[[], T], *cells: DisjointRegions) -> T:
        key = what, *map(id, cells)
        if key not in self.facts:
            self.kept.update((id(one), one) for one in cells)  # no other object gets their numbers
            self.facts[key] = make()
        found: T = self.facts[key]
        return found

    def of_box(self, box: Box, shape: tuple[int, ...]) -> DisjointRegions:
        """The cells of a box that lie in a tensor."""
        return self.fact((box, shape), lambda: cells_of(box, shape))

    def meet(self, one: DisjointRegions, other: DisjointRegions) -> DisjointRegions:
        return self._of("meet", lambda: one & other, one, other)

    def less(self, one: DisjointRegions, other: DisjointRegions) -> DisjointRegions:
        """The cells of one set that are not in another: the same object where they have none in common."""
        return self._of("less", lambda: one - other if self.size(self.meet(one, other)) else one, one, other)

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


def unite(regions: Iterable[DisjointRegions], shape: tuple[int, ...]) -> DisjointRegions:
    """The union of regions of one tensor."""
    total = DisjointRegions(shape)
    for region in regions:
        if not total.members:
            total = region
        elif region.members and not region <= total:
            total = region if total <= region else total | region
    return total
