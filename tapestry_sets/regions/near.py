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
    #         ┌──r──┐        of s, t and u only s is in reach of r: on the axis across, u ends before r begins,
    #     ┌─s─┼──┐  │  ┌─t─┐ and t begins after r ends
    #  u  └───┴──┴──┘  └───┘
    known = np.array([k for k, s in enumerate(theirs) if not s.is_empty], np.intp)
    bounds = [theirs[k]._bounds() for k in known.tolist()]
    starts = [_column(axis) for axis in zip(*[lo for lo, _ in bounds], strict=True)]
    ends = [_column(axis) for axis in zip(*[hi for _, hi in bounds], strict=True)]
    for r in ours:
        at = np.arange(0 if r.is_empty else len(known))
        for lo, hi, start, end in zip(*r._bounds(), starts, ends, strict=True) if len(at) else ():
            at = at[(start[at] < hi) & (end[at] > lo)]
        yield known[at]


def _column(values: Sequence[int]) -> Int64Array:
    return np.array(values, np.int64 if max(map(abs, values)) < 1 << 62 else object)
