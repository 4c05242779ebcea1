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

from collections.abc import Mapping
from functools import lru_cache

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
    followed = sum(_count_followed(one, other, box) for one in regions for other in regions)
    return sum(region.size for region in regions) - followed


def count_copy_runs(step: Copy, buffers: Mapping[int, Buffer]) -> int:
    """The runs that a copy between devices packs, and those that it unpacks: of buffers that lie in no other one."""
    return sum(count_runs(step.regions, buffers[end].box) for end in (step.src, step.dst))


def _count_followed(one: Region, other: Region, box: Box) -> int:
    """The cells of a region whose next one in a buffer is in another region, or in the same one."""
    found, common = 0, 1
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
        found = common * max(0, steps) + (found if wraps else 0)
        common *= max(0, shared)
    return found
