"""Of many regions in one box, the pairs whose bounds meet: the others share no point, and are not looked at."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations, product
from typing import TYPE_CHECKING

import numpy as np

from tapestry_sets.integers import Int64Array
from tapestry_sets.regions import tuning

if TYPE_CHECKING:
    from tapestry_sets.regions.region import Region


def list_near(ours: Sequence[Region], theirs: Sequence[Region]) -> Iterable[tuple[Region, Region]]:
    """Return the pairs of regions, one of each side, whose bounds meet; where there are few pairs, all of them."""
    if len(ours) * len(theirs) <= tuning.FEW_PAIRS:
        return product(ours, theirs)
    return ((r, s) for r, partners in list_partners(ours, theirs) for s in partners)


def list_near_each_other(regions: Sequence[Region]) -> Iterable[tuple[Region, Region]]:
    """Return the pairs of some regions whose bounds meet, each pair once; where there are few, all of them."""
    if len(regions) ** 2 <= tuning.FEW_PAIRS:
        return combinations(regions, 2)
    found = enumerate(_list_reached(regions, regions))
    return ((regions[k], regions[m]) for k, reached in found for m in reached[reached > k].tolist())


def list_partners(ours: Sequence[Region], theirs: Sequence[Region]) -> Iterable[tuple[Region, Sequence[Region]]]:
    """Return each region of ours, and those of theirs whose bounds meet its own; where there are few, all of them."""
    if len(ours) * len(theirs) <= tuning.FEW_PAIRS:
        return ((r, theirs) for r in ours)
    found = zip(ours, _list_reached(ours, theirs), strict=True)
    return ((r, [theirs[k] for k in reached.tolist()]) for r, reached in found)


def _list_reached(ours: Sequence[Region], theirs: Sequence[Region]) -> Iterator[Int64Array]:
    """Yield for each region of ours the positions of those of theirs whose bounds meet its own."""
    near = Near(theirs)
    return (near.reached(r, near.every) for r in ours)


class Near:
    """The bounds of some regions as columns; `every` has the positions of those that are not empty."""

    def __init__(self, regions: Sequence[Region]) -> None:
        self.every = np.array([k for k, s in enumerate(regions) if not s.is_empty], np.intp)
        bounds = [s._bounds() if not s.is_empty else (s.start, s.start) for s in regions]
        self._starts = [_column(axis) for axis in zip(*[lo for lo, _ in bounds], strict=True)]
        self._ends = [_column(axis) for axis in zip(*[hi for _, hi in bounds], strict=True)]

    def reached(self, r: Region, among: Int64Array) -> Int64Array:
        """Return the positions, of some, of the regions whose bounds meet those of r."""
        #         ┌──r──┐        of s, t and u only s is in reach of r: on the axis across, u ends before r begins,
        #     ┌─s─┼──┐  │  ┌─t─┐ and t begins after r ends
        #  u  └───┴──┴──┘  └───┘
        at = among[:0] if r.is_empty else among
        for lo, hi, start, end in zip(*r._bounds(), self._starts, self._ends, strict=True) if len(at) else ():
            at = at[(start[at] < hi) & (end[at] > lo)]
        return at


def _column(values: Sequence[int]) -> Int64Array:
    return np.array(values, np.int64 if max(map(abs, values)) < 1 << 62 else object)
