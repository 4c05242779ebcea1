"""Who holds a tensor, and who wants it: the blocks of all devices as columns, so that few of them are looked at."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from tapestry_plan.ir import Operand
from tapestry_plan.steps.layouts.layout import Bounds, Layout, Lot
from tapestry_plan.steps.layouts.mesh import Mesh
from tapestry_plan.steps.layouts.routes import BoolArray, list_senders
from tapestry_sets.regions import Box


class Holders(Struct, frozen=True, dict=True, eq=False):
    """What each device has of a tensor, as it was made, or as it was placed or landed.

    Parameters
    ----------
    mesh : Mesh
    bounds : Bounds
        By device, of the box of cells that it has.
    parts : array of int, optional
        By device, which partial result it has; without it the cells are complete.
    lots : tuple of (Lot or None)
        By device, what it has within its box where that is not all of it; empty for whole boxes.
    """

    mesh: Mesh
    bounds: Bounds
    parts: NDArray[np.int64] | None = None
    lots: tuple[Lot | None, ...] = ()

    @cached_property
    def senders(self) -> BoolArray:
        """From which devices each one reads the tensor, by (sender, receiver): of equal blocks, from one."""
        busy, low, high = self.bounds
        parts = np.zeros(len(busy), np.int64) if self.parts is None else self.parts
        groups = np.full(len(busy), -1)
        first: dict[Lot | None, int] = {}
        kinds = np.array([first.setdefault(lot, len(first)) for lot in self.lots or (None,) * len(busy)], np.int64)
        rows = np.column_stack([parts, kinds, low, high])[busy]
        groups[busy] = np.unique(rows, axis=0, return_inverse=True)[1].reshape(-1)
        return list_senders(groups.tolist(), self.mesh)

    def box(self, device: int) -> Box:
        """The block of a device that has one."""
        _, low, high = self.bounds
        return Box.from_bounds(low[device].tolist(), high[device].tolist())

    def list_parts(self) -> list[int]:
        """The numbers of the partial results, ascending."""
        assert self.parts is not None, "there are partial results"
        found: list[int] = np.unique(self.parts[self.bounds[0]]).tolist()
        return found

    def list_nearest(self, device: int, around: Box | None, part: int | None = None) -> list[int]:
        """Who a device reads cells within some box from: itself first, then around the mesh."""
        if around is None:
            return []
        wanted = self.senders[:, device] & meets(self.bounds, around)
        if part is not None:
            wanted = wanted & (self.parts == part)
        found: list[int] = np.flatnonzero(wanted).tolist()
        size = len(wanted)
        return sorted(found, key=lambda holder: (holder - device) % size)


def meets(bounds: Bounds, box: Box) -> BoolArray:
    """Which devices' blocks share cells with a box."""
    busy, low, high = bounds
    found: BoolArray = busy & ((low < box.stop) & (high > box.start)).all(axis=1)
    return found


def project_bounds(operand: Operand, layout: Layout) -> Bounds:
    """The bounds of what an operator touches of an operand in each device's block."""
    busy, low, high = layout.bounds
    begin, end = _project_through(operand, busy, low, high)
    return busy, begin, end


def _project_through(
    operand: Operand, busy: BoolArray, low: NDArray[np.int64], high: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    rank = len(operand.projection.shape)
    begin, end = np.zeros((len(busy), rank), np.int64), np.zeros((len(busy), rank), np.int64)
    if any(projection.splits for projection in operand.projections):
        for device in np.flatnonzero(busy).tolist():
            box = operand.bounding_box(Box.from_bounds(low[device].tolist(), high[device].tolist()))
            begin[device], end[device] = box.start, box.stop
        return begin, end
    begins, ends = [], []
    for projection in operand.projections:
        # Each coordinate is least and greatest at corners of the block.
        matrix = np.array(projection.map.matrix, np.int64).reshape(rank, low.shape[1])
        up, down = np.maximum(matrix, 0).T, np.minimum(matrix, 0).T
        offset = np.array(projection.map.offset, np.int64)
        begins.append(low @ up + (high - 1) @ down + offset)
        ends.append((high - 1) @ up + low @ down + offset + projection.shape)
    return np.minimum.reduce(begins) * busy[:, None], np.maximum.reduce(ends) * busy[:, None]
