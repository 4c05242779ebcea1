"""Partial results that are merged in stages, by neighbors of neighbors: log₂ 8 messages in place of 7.

Eight devices have a part each of the same cells. Merged at once, each device gets its share of the other seven parts::

    device            0    1    2    3    4    5    6    7          part = device, in digits: 5 is 101
    stage 1          0+1  0+1  2+3  2+3  4+5  4+5  6+7  6+7         with whom the first digit differs
    stage 2          0…3  0…3  0…3  0…3  4…7  4…7  4…7  4…7         then the second one
    stage 3          0…7  0…7  0…7  0…7  0…7  0…7  0…7  0…7         then the third

What a device needs after a stage is what rests in the end on those whose first digits are its own: on all that will get
it from there. So where everybody shall have all, whole blocks are exchanged; where everybody shall have an eighth, half
of the block goes over first, then a quarter, then an eighth. Its halves are boxes where the last digit comes first: the
parts that are merged are far from each other then, which only matters where the order of parts does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from tapestry_plan.steps.layouts.layout import Bounds, Layout
from tapestry_plan.steps.layouts.routes import list_factors

Ints = NDArray[np.int64]
MergeOrder = Literal["near", "far"]
"""Whether parts are merged with their neighbors first, or with those half of all parts away."""


class MergeStage(Struct, frozen=True):
    """One stage of merging: what each device has after it, and whom it has that from.

    Parameters
    ----------
    bounds : Bounds
        By device, of the box of cells that it has then.
    parts : array of int, (devices,)
        By device the number of what it has then: those of a stage follow on those before it; -1 for complete cells.
    sources : array of int, (devices, parts that are merged)
        By device who has each of these parts, ascending, itself among them; -1 for devices that get nothing.
    before : array of int, (devices, parts that are merged)
        The numbers of these parts.
    """

    bounds: Bounds
    parts: Ints
    sources: Ints
    before: Ints

    def find_readers(self, device: int) -> list[int]:
        """The other devices that read what one has, ascending."""
        found: list[int] = np.flatnonzero((self.sources == device).any(axis=1)).tolist()
        return [reader for reader in found if reader != device]


class PartTable(Struct, frozen=True):
    """The devices that make partial results, by block, by the digits of the part, the last one first, and by replica.

    Parameters
    ----------
    table : array of int, (blocks, digits …, replicas)
        Numbers of devices.
    fans : tuple of int
        How many values each digit has.
    """

    table: Ints
    fans: tuple[int, ...]

    def order_axes(self, order: MergeOrder) -> tuple[int, ...]:
        """The axes of the table whose digits the stages merge."""
        axes = tuple(range(1, len(self.fans) + 1))
        return axes if order == "far" else axes[::-1]

    def list_siblings(self, axis: int, devices: int) -> Ints:
        """For each device those that differ from it in one digit alone, itself among them, (devices, fan)."""
        found = np.full((devices, self.fans[axis - 1]), -1)
        for digit in range(self.fans[axis - 1]):
            found[self.table, digit] = np.take(self.table, [digit], axis=axis)
        return found

    def list_hulls(self, boxes: Ints, order: MergeOrder) -> tuple[list[Ints], NDArray[np.bool_]]:
        """What each device has after each stage, for many places where results may rest.

        Parameters
        ----------
        boxes : array of int, (places, devices, 2 × rank)
            First cells and ends of what rests on each device.
        order : "near" or "far"

        Returns
        -------
        hulls, fits : list of arrays (places, devices, 2 × rank), array of bool (places,)
            Where it does not fit, what rests on some devices together has gaps.
        """
        rank, fits = boxes.shape[2] // 2, np.ones(len(boxes), bool)
        # By coordinate first: whole arrays are compared then, which is faster than the few coordinates of each box.
        mine, hulls = np.ascontiguousarray(np.moveaxis(boxes, 2, 0))[:, :, self.table], []
        for axis in reversed(self.order_axes(order)):
            around = np.zeros_like(boxes)
            around[:, self.table] = np.moveaxis(mine, 0, -1)
            hulls.append(around)
            along = np.moveaxis(mine, axis + 2, 0)  # what rests on those who differ in this digit
            low, high = along[:, :rank], along[:, rank:]
            hull = np.concatenate([low.min(axis=0), high.max(axis=0)])
            alike = (along == along[:1]).all(axis=(0, 1))
            apart = np.ones_like(alike)
            for one in range(len(along) - 1):
                meets = np.minimum(high[one], high[one + 1 :]) > np.maximum(low[one], low[one + 1 :])
                apart &= ~meets.all(axis=1).any(axis=0)
            whole = (hull[rank:] - hull[:rank]).prod(axis=0) == (high - low).prod(axis=1).sum(axis=0)
            fits &= (alike | (apart & whole)).reshape(len(boxes), -1).all(axis=1)
            mine = np.repeat(np.expand_dims(hull, axis + 2), self.table.shape[axis], axis=axis + 2)
        return hulls[::-1], fits


def find_part_table(bounds: Bounds, held: Ints) -> PartTable | None:
    """Who makes which part of which block; None where one stage is all, or some part is made more often than others."""
    busy, low, high = bounds
    devices = np.flatnonzero(busy)
    parts = held[devices]
    count = int(parts.max(initial=0)) + 1
    fans = list_factors(count)
    if len(fans) < 2:
        return None
    blocks = _number_rows(np.concatenate([low, high], axis=1)[devices])
    many = int(blocks.max()) + 1
    each, rest = divmod(len(devices), many * count)
    if rest or not each or (np.bincount(blocks * count + parts, minlength=many * count) != each).any():
        return None
    order = np.lexsort((devices, parts, blocks))
    return PartTable(devices[order].reshape(many, *reversed(fans), each), tuple(reversed(fans)))


def list_merge_stages(bounds: Bounds, held: Ints | None, rests: Layout, order: MergeOrder) -> tuple[MergeStage, ...]:
    """The stages in which parts are merged to where they rest; none where one is all, or where it is not so regular.

    Every device that has a part gets some of its own cells; of each block there are all parts, equally often.

    Parameters
    ----------
    bounds : Bounds
        By device, of the box of cells that it made.
    held : array of int, (devices,)
        Which part of these it made, from 0 on; None for complete cells.
    rests : Layout
        Where the complete cells lie in the end.
    order : "near" or "far"
        Whether parts are merged with their neighbors first, or with those half of all parts away.
    """
    busy, low, high = bounds
    ends, begin, end = rests.bounds
    if held is None or rests.lots or (busy != ends).any() or ((begin < low) | (end > high))[busy].any():
        return ()
    seats = find_part_table(bounds, held)
    if seats is None:
        return ()
    hulls, fits = seats.list_hulls(np.concatenate([begin, end], axis=1)[None], order)
    if not fits[0]:
        return ()
    axes, stages, first = seats.order_axes(order), list[MergeStage](), 0
    left = sorted(axes)
    mine = _number_left(seats.fans, left)
    for axis, (hull,) in zip(axes, hulls, strict=True):
        before = np.full((len(busy), seats.fans[axis - 1]), -1)
        for digit in range(seats.fans[axis - 1]):
            before[seats.table, digit] = np.take(mine, [digit], axis=axis) + first
        first += int(mine.max()) + 1
        left.remove(axis)
        mine = _number_left(seats.fans, left)
        parts = np.full(len(busy), -1)
        if left:
            parts[seats.table] = mine + first
        around_low, around_high = np.split(hull, 2, axis=1)
        siblings = seats.list_siblings(axis, len(busy))
        stages.append(MergeStage((busy, around_low, around_high), parts, siblings, before))
    return tuple(stages)


def _number_left(fans: tuple[int, ...], axes: Sequence[int]) -> Ints:
    """Numbers of the values of some digits, for all values of all of them."""
    found = np.zeros((1, *fans, 1), np.int64)
    for axis in axes:
        around = [fans[axis - 1] if one == axis else 1 for one in range(len(fans) + 2)]
        found = found * fans[axis - 1] + np.arange(fans[axis - 1]).reshape(around)
    return found


def _number_rows(rows: Ints) -> Ints:
    """Equal numbers for equal rows."""
    known: dict[bytes, int] = {}
    return np.array([known.setdefault(row.tobytes(), len(known)) for row in rows], np.int64)
