"""Runs: how many pieces of memory the cells of a message are, in the buffer that they leave and in that they come to.

Cells that follow on each other in a buffer are copied together. Columns 2 to 5 of rows of eight are a run for each row;
whole rows are one run, and so are columns 6 and 7 of one row with 0 and 1 of the next. A run ends at a cell whose next
one is not copied, so that the runs of some cells are these cells less those whose next one is among them too. In
row-major order the next cell is one further along the last axis; past its end it is the first one there and one further
along the axis before::

    next(k)  =  |S₀|·…·|Sₖ₋₁| · |Sₖ ∩ (Sₖ - 1)|  +  next(k-1) where Sₖ has the buffer's first and last place, else 0

for cells that are a product of sets S of the axes. So they are counted by the sets of the axes alone, whatever the
extents are. Of several products the pairs are counted: cells of the one whose next is of the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tapestry_plan.steps import tuning
from tapestry_plan.steps.step import Buffer, Copy
from tapestry_sets.regions import Box, Region


@lru_cache(maxsize=tuning.KEPT_FORMS)
def count_runs(regions: tuple[Region, ...], box: Box) -> int:
    """Of how many contiguous runs some cells are, in a row-major buffer over a box.

    Parameters
    ----------
    regions : tuple of Region
        No two with a cell in common; all of them in the box.
    box : Box

    Examples
    --------
    >>> from tapestry_sets import Region
    >>> columns = Region.from_bounds((4, 8), (0, 2), (4, 6))
    >>> count_runs((columns,), Box.of((4, 8))), count_runs((columns,), Box((0, 2), (4, 4)))
    (4, 1)
    """
    if len(regions) > tuning.MAX_PAIRED_REGIONS:
        pairs = ((regions[k], regions[j]) for k, j in _pair_near(regions, box))
    else:
        pairs = ((one, other) for one in regions for other in regions)
    followed = sum(_count_followed(one, other, box) for one, other in pairs)
    return sum(region.size for region in regions) - followed


def list_near(
    some: NDArray[np.int64], others: NDArray[np.int64], boxes: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Pairs of boxes where a cell of the one may be followed by one of the other, in one of some buffers.

    Parameters
    ----------
    some, others : array of int64, (boxes, axes, 2)
        First coordinates and ends.
    boxes : array of int64, (buffers, axes, 2)

    Returns
    -------
    tuple of array of int
        Their numbers.

    Examples
    --------
    >>> rows = np.array([[[k, k + 1], [0, 2]] for k in (0, 1, 3)])
    >>> near = list_near(rows, rows, np.array([[[0, 4], [0, 2]]]))
    >>> [*zip(*(each.tolist() for each in near))]
    [(0, 0), (0, 1), (1, 1), (2, 2)]
    """
    near = np.ones((len(some), len(others)), bool)
    for axis in range(some.shape[1]):
        low, high = some[:, axis, 0, None], some[:, axis, 1, None]
        first, end = others[:, axis, 0], others[:, axis, 1]
        reaches = (first <= high) & (low < end)
        # On the outermost axis no cell comes behind the last one.
        for begin, stop in {tuple(row) for row in boxes[:, axis].tolist()} if axis else ():
            reaches |= (low < stop) & (stop <= high) & ((first <= begin) & (begin < end))
        near &= reaches
    one, other = np.nonzero(near)
    return one, other


def _pair_near(regions: Sequence[Region], box: Box) -> Iterator[tuple[int, int]]:
    """The numbers of regions where a cell of the one may be followed by one of the other."""
    bounds = np.array([[*zip(*(region.bounds() or (region.start, region.start)), strict=True)] for region in regions])
    around = np.array([[*zip(box.start, box.stop, strict=True)]])
    step = max(1, tuning.MAX_NEAR_TABLE // len(regions))
    for first in range(0, len(regions), step):
        one, other = list_near(bounds[first : first + step], bounds, around)
        yield from zip((one + first).tolist(), other.tolist(), strict=True)


def count_copy_runs(step: Copy, buffers: Mapping[int, Buffer]) -> int:
    """The runs that a copy between devices packs, and those that it unpacks: of buffers that lie in no other one."""
    return sum(count_runs(step.regions, buffers[end].box) for end in (step.src, step.dst))


def chain_axes(axes: Iterable[tuple[Any, Any, Any]]) -> tuple[Any, Any]:
    """The cells that products of sets share, and those whose next one in row-major order is shared too.

    Parameters
    ----------
    axes : iterable of tuple
        Of each axis, the outermost first, as numbers or as arrays: the places that all have; those that some have and
        whose next one others have; and whether some have the buffer's last place, and others its first.

    Examples
    --------
    >>> chain_axes([(4, 3, True), (2, 1, False)])  # two columns in four rows: a run for each
    (8, 4)
    >>> chain_axes([(4, 3, True), (8, 7, True)])  # whole rows
    (32, 31)
    """
    common, followed = 1, None
    for shared, steps, wraps in axes:
        followed = steps if followed is None else common * steps + followed * wraps
        common = common * shared
    return common, 0 if followed is None else followed


def _count_followed(one: Region, other: Region, box: Box) -> int:
    """The cells of a region whose next one in a buffer is in another region, or in the same one."""
    return int(chain_axes(_list_followed(one, other, box))[1])


def _list_followed(one: Region, other: Region, box: Box) -> Iterator[tuple[int, int, bool]]:
    """Of each axis what `chain_axes` takes."""
    for axis, (low, extent) in enumerate(zip(box.start, box.shape, strict=True)):
        mine, theirs, high = one.spans[axis], other.spans[axis], low + extent
        if mine is not None and theirs is not None:
            shared = min(mine[1], theirs[1]) - max(mine[0], theirs[0])
            steps = min(mine[1], theirs[1] - 1) - max(mine[0], theirs[0] - 1)
            wraps = mine[1] == high and theirs[0] == low
        else:
            # Outside of the tensor, where a block has padding, no cell is copied.
            first, end = max(low, one.start[axis]), min(high, one.start[axis] + one.shape[axis])
            a, b = one.setts[axis], other.setts[axis]
            shared = a.count_common(b, first, end)
            steps = a.count_common(b.shift(-1), first, end - 1) if first < end - 1 else 0
            wraps = first == low and end == high and high - 1 in a and low in b
        yield max(0, shared), max(0, steps), wraps
