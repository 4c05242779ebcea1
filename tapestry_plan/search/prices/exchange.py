"""What devices send to each other, pair by pair: cells, messages and contiguous runs, at the busiest of them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np
from numpy.typing import NDArray

from tapestry_plan.search import tuning
from tapestry_plan.search.prices.along import Exchanged
from tapestry_plan.search.sums.elimination import IntArray
from tapestry_plan.steps import Mesh, list_senders, number_ports


class Exchange:
    """What devices send to each other, by what each of them holds and needs.

    Parameters
    ----------
    counts : array of int64, (holdings, needs)
        Cells that somebody who holds the one gives to somebody who needs the other.
    holds : array of int64, (classes, devices)
        What devices hold.
    needs : array of int64, (columns, devices)
        What devices need.
    groups : array of int64, (classes, devices)
        As in `Held`.
    mesh : Mesh
    runs : array of int64, (holdings, needs), optional
        The runs of what the one gives to the other.
    """

    def __init__(
        self,
        counts: IntArray,
        holds: IntArray,
        needs: IntArray,
        groups: IntArray,
        mesh: Mesh,
        runs: IntArray | None = None,
    ) -> None:
        self.holds, self.needs, self.mesh = holds, needs, mesh
        self.sends = np.array([list_senders(each, mesh) for each in groups.tolist()])
        # Cells and messages are summed in one, as digits of a number; behind the holdings is one of nothing.
        self.bits = (int(counts.max(initial=0)) * mesh.size).bit_length()
        is_one = self.bits + mesh.size.bit_length() < 63
        both = [counts + ((counts > 0).astype(np.int64) << self.bits)] if is_one else [counts, np.sign(counts)]
        self.is_one = is_one
        both += [] if runs is None else [runs]
        self.given = [np.concatenate([each, np.zeros_like(each[:1])]) for each in both]

    def count(self) -> Exchanged:
        """The same for all classes and columns."""
        classes, columns, ports = len(self.holds), len(self.needs), number_ports(self.mesh)
        cells = np.zeros((classes, columns), np.int64)
        most = np.zeros((3, len(self.mesh.ports), classes, columns), np.int64)
        # A few classes and columns at a time, whose sums fit the processor's cache.
        wide = max(1, min(columns, tuning.MAX_EXCHANGES // self.mesh.size))
        high = max(1, tuning.MAX_EXCHANGES // (self.mesh.size * wide))
        for row, column in product(range(0, classes, high), range(0, columns, wide)):
            at = slice(row, row + high), slice(column, column + wide)
            for port in range(len(self.mesh.ports)):
                links = self.sends[at[0]] & (ports == port)
                sent, received = self._add_up(links, *at)
                cells[at] += received[0].sum(axis=1)
                for kind, (mine, got) in enumerate(zip(sent, received, strict=True)):
                    most[kind, port][at] = np.maximum(mine.max(axis=1), got.max(axis=1))
        return Exchanged(cells, *most)

    def _add_up(self, links: NDArray[np.bool_], classes: slice, columns: slice) -> Iterator[list[IntArray]]:
        """Cells, messages and runs that each device sends, then what it receives, each (classes, devices, columns).

        Runs are told where they are counted.
        """
        holds, needs = self.holds[classes], self.needs[columns]
        ends = []
        for given in self.given:
            sent = np.zeros((len(holds), self.mesh.size, len(needs)), np.int64)
            received = np.zeros_like(sent)
            for device, needed in enumerate(needs.T):
                who = np.where(links[:, :, device], holds, len(given) - 1)
                if (who < len(given) - 1).any():
                    picked = given[:, needed][who]
                    sent += picked
                    few = given.shape[1] < len(needed)  # different needs, which are summed once then
                    received[:, device] = given[who].sum(axis=1)[:, needed] if few else picked.sum(axis=1)
            ends.append((sent, received))
        for k in range(2):
            told = [end[k] for end in ends]
            yield [told[0] & ((1 << self.bits) - 1), told[0] >> self.bits, *told[1:]] if self.is_one else told
