"""Where a checkpoint's cells lie on the devices that are left, and who gets those that nobody has any more.

::

    saved        device 0  1    2    3         lost: 2
    rows         0-3  4-7  8-11 12-15
    neighbors    0-3  4-9       10-15          each keeps its own: 4 rows are read from the files, parts are uneven
    cut anew     0-5  6-10      11-15          parts are even: 8 rows are read, 4 of them others have had

Neighbors come first: a device whose cells stay one box computes where they lie. What has none is cut in even shares.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, pairwise, product
from math import prod

import numpy as np

from tapestry_exec.run.checkpoints.folders import SavedBuffer
from tapestry_plan.steps import Placed
from tapestry_sets.digits import Int64Array
from tapestry_sets.regions import Box, DisjointRegions, Region


def clip(one: SavedBuffer, shape: Sequence[int]) -> DisjointRegions:
    """The cells of a buffer that are the tensor's: without padding around it."""
    low = [max(a, 0) for a in one.start]
    high = [min(a + n, m) for a, n, m in zip(one.start, one.shape, shape, strict=True)]
    if any(a >= b for a, b in zip(low, high, strict=True)):
        return DisjointRegions(tuple(shape), [])
    return DisjointRegions(tuple(shape), [Region.from_bounds(tuple(shape), low, high)])


def place_left(buffers: Sequence[SavedBuffer], shape: tuple[int, ...], left: Sequence[int]) -> Placed:
    """Where a tensor lies on the devices that are left, of which neighbors get what they do not have.

    Each cell is with the first device that has it, but where devices have all alike.
    """
    groups, own = list[tuple[list[int], DisjointRegions]](), list[list[Box]]()
    """Devices that have the same cells, with these; and those of them that none has before."""
    bounds = np.empty((len(left), 2, len(shape)), np.int64)
    missing = DisjointRegions.full(shape)
    for new, old in enumerate(left):
        mine = join(buffers, shape, old)
        spans = [span for region in mine.regions if (span := region.bounds()) is not None]
        ends = np.array(spans, np.int64).reshape(len(spans), 2, len(shape))  # of none, too, as many axes as the tensor
        low = ends[:, 0].min(axis=0, initial=max(shape, default=0))
        high = ends[:, 1].max(axis=0, initial=0)
        known = bounds[: len(groups)]
        touched = [groups[k] for k in np.flatnonzero(((known[:, 0] < high) & (low < known[:, 1])).all(axis=1))]
        same = next((each for each, theirs in touched if not mine.is_empty and is_same(mine, theirs)), None)
        if same is not None:
            same.append(new)
            continue
        bounds[len(groups)] = low, high
        groups.append(([new], mine))
        for _, theirs in touched:
            mine = mine - theirs
        own.append(list_boxes(mine))
        missing = missing - mine
    lost = give_to_neighbors(list_boxes(missing), own)
    for k, box in _share(lost, [sum(prod(box.shape) for box in mine) for mine in own]):
        own[k].append(box)
    return Placed({new: some for (each, _), some in zip(groups, own, strict=True) if some for new in each})


def join(buffers: Iterable[SavedBuffer], shape: tuple[int, ...], device: int) -> DisjointRegions:
    """The cells that a device has, of some buffers."""
    mine = DisjointRegions(shape, [])
    for one in buffers:
        if one.device == device:
            mine = mine | clip(one, shape)
    return mine


def is_same(one: DisjointRegions, other: DisjointRegions) -> bool:
    """Whether two sets have the same cells."""
    return one.size == other.size and (one - other).is_empty


def give_to_neighbors(lost: Sequence[Box], own: list[list[Box]]) -> list[Box]:
    """Give boxes to who has one box alone that they continue; those that continue nobody's.

    Of two that lie on both sides each gets so much that they have about as many cells.

    Parameters
    ----------
    lost : sequence of Box
    own : list of list of Box
        By device; what they are given is added here.
    """
    left, was = _merge(lost), -1
    while left and len(left) != was:  # who has grown may be a neighbor of more
        was, waiting = len(left), left
        left = [box for box in waiting if not _give(box, own)]
    return left


def _give(lost: Box, own: list[list[Box]]) -> bool:
    """Give a box to its neighbors along one axis; whether it has some."""
    alone = [(k, boxes[0]) for k, boxes in enumerate(own) if len(boxes) == 1]
    best: tuple[int, int, dict[bool, tuple[int, Box]]] | None = None
    for axis, n in enumerate(lost.shape):
        sides = {_ends(box, axis) == lost.start[axis]: (k, box) for k, box in alone if _continues(box, lost, axis)}
        if sides and (best is None or (len(sides), n) > (len(best[2]), best[1])):
            best = axis, n, sides
    if best is None:
        return False
    axis, n, sides = best
    cross = prod(lost.shape) // n
    low = n if True in sides else 0
    if len(sides) == 2:
        few, many = (prod(sides[side][1].shape) for side in (True, False))
        low = min(max((n * cross + many - few) // (2 * cross), 0), n)
    for is_low, (k, box) in sides.items():
        more, start, shape = low if is_low else n - low, list(box.start), list(box.shape)
        start[axis] -= 0 if is_low else more
        shape[axis] += more
        own[k][0] = Box(tuple(start), tuple(shape))
    return True


def _ends(box: Box, axis: int) -> int:
    return box.start[axis] + box.shape[axis]


def _continues(one: Box, other: Box, axis: int) -> bool:
    """Whether two boxes touch along an axis, and are alike along all others."""
    touch = _ends(one, axis) == other.start[axis] or _ends(other, axis) == one.start[axis]
    others = [k for k in range(len(one.shape)) if k != axis]
    return touch and all(one.start[k] == other.start[k] and one.shape[k] == other.shape[k] for k in others)


def _merge(boxes: Iterable[Box]) -> list[Box]:
    """Boxes of the same cells, of which none continues another one."""
    found = list[Box]()
    for box in boxes:
        now, axes = box, range(len(box.shape))
        while True:
            pairs = ((k, axis) for k, one in enumerate(found) for axis in axes if _continues(one, now, axis))
            if (pair := next(pairs, None)) is None:
                break
            k, axis = pair
            other = found.pop(k)
            shape = list(now.shape)
            shape[axis] += other.shape[axis]
            now = Box(tuple(map(min, now.start, other.start)), tuple(shape))
        found.append(now)
    return found


def _share(missing: Sequence[Box], sizes: Sequence[int]) -> Iterator[tuple[int, Box]]:
    """Shares of boxes that nobody has, so that all have about as many; each is cut along its longest axis."""
    if not missing:
        return
    even = -(-(sum(prod(box.shape) for box in missing) + sum(sizes)) // len(sizes))
    lacking = list(accumulate((max(0, even - size) for size in sizes), initial=0))
    for box in missing:
        axis = max(range(len(box.shape)), key=lambda k: box.shape[k], default=None)
        if axis is None:  # the one cell of rank 0
            yield 0, box
            return
        cuts = [box.shape[axis] * each // lacking[-1] for each in lacking]
        for k, (low, high) in enumerate(pairwise(cuts)):
            if low < high:
                start, shape = list(box.start), list(box.shape)
                start[axis], shape[axis] = box.start[axis] + low, high - low
                yield k, Box(tuple(start), tuple(shape))


def list_boxes(cells: DisjointRegions) -> list[Box]:
    """The boxes that make up a set."""
    return [box for region in cells.regions for box in _list_boxes(region)]


def _list_boxes(region: Region) -> Iterator[Box]:
    """The boxes that make up a region."""
    axes = []
    for runs in region.grids():
        points = np.sort(np.concatenate([_list_points(run.first, run.levels) for run in runs]))
        cuts = np.flatnonzero(np.diff(points) > 1) + 1
        axes.append([(int(part[0]), len(part)) for part in np.split(points, cuts)])
    for spans in product(*axes):
        yield Box(tuple(low for low, _ in spans), tuple(n for _, n in spans))


def _list_points(first: int, levels: Sequence[tuple[int, int]]) -> Int64Array:
    points = np.array([first], np.int64)
    for count, step in levels:
        points = (points[:, None] + step * np.arange(count)).reshape(-1)
    return points
