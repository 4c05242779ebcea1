"""What the buffers of a device have of a tensor, found by bounds: others share no cell with what is asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from tapestry_plan.steps.step import Buffer
from tapestry_sets.regions import Box, DisjointRegions


class Resident(NamedTuple):
    """Complete cells of a tensor that a buffer has."""

    buffer: Buffer
    cells: DisjointRegions


class Residency:
    """Residents in the order in which they came.

    A tensor that many operators read a little of has many, so that each look at all of them would make the time of a
    plan quadratic.
    """

    def __init__(self) -> None:
        self._all: list[Resident] = []
        self._around: list[Box | None] = []
        self._ends = np.empty((2, 0, 0), np.int64)
        """Begins and ends of their boxes, (2, rank, room); room is doubled where it is short."""
        self._bounded = 0
        """How many of them are there."""

    def __iter__(self) -> Iterator[Resident]:
        return iter(self._all)

    def __getitem__(self, k: int) -> Resident:
        return self._all[k]

    def add(self, one: Resident, around: Box | None) -> None:
        """Add one whose cells lie in a box, None where it has none."""
        self._all.append(one)
        self._around.append(around)

    def list_near(self, around: Box | None) -> Sequence[Resident]:
        """Those whose cells may lie in a box, all for None."""
        if around is None or len(self._all) < 2:
            return self._all
        self._bound()
        begins, ends = self._ends[:, :, : self._bounded]
        near = np.ones(self._bounded, bool)
        for begin, end, start, stop in zip(begins, ends, around.start, around.stop, strict=True):
            near &= (begin < stop) & (end > start)
        return [self._all[k] for k in np.flatnonzero(near).tolist()]

    def _bound(self) -> None:
        """Write down the boxes of those that came since the last time."""
        rank, room = len(self._all[0].buffer.shape), 2 * len(self._all)
        if self._ends.shape[2] < len(self._all):
            grown = np.zeros((2, rank, room), np.int64)
            if self._bounded:
                grown[:, :, : self._bounded] = self._ends[:, :, : self._bounded]
            self._ends = grown
        for k in range(self._bounded, len(self._all)):
            box = self._around[k]
            if box is not None:  # else it ends where the tensor begins, and is near to nothing
                self._ends[:, :, k] = box.start, box.stop
        self._bounded = len(self._all)
