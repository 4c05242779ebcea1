"""What devices send to each other, pair by pair: cells, messages and contiguous runs, at the busiest of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

import numpy as np
from numpy.typing import NDArray

from tapestry_plan.search import tuning
from tapestry_plan.search.prices.moves.along import Exchanged
from tapestry_plan.search.prices.moves.numbering import list_classes
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
        # Many classes, which have much in common, and a few columns at a time, whose sums fit the processor's cache.
        few = max(1, min(columns, tuning.MIN_EXCHANGED_COLUMNS), self.given[0].shape[1] // tuning.MAX_EXCHANGED_NEEDS)
        high = max(1, min(classes, tuning.MAX_EXCHANGES // (self.mesh.size * few)))
        wide = max(1, tuning.MAX_EXCHANGES // (self.mesh.size * high))
        for row, port in product(range(0, classes, high), range(len(self.mesh.ports))):
            rows = slice(row, row + high)
            links = self.sends[rows] & (ports == port)
            if links.any():
                many = columns > tuning.MIN_EXCHANGED_COLUMNS
                ends = [end(self.given, self.holds[rows], links, many) for end in (_Senders, _Receivers)]
                for column in range(0, columns, wide):
                    at = rows, slice(column, column + wide)
                    for end in ends:
                        told: dict[int, list[IntArray]] = {}
                        for sums, mine in end.list_sums(self.needs[at[1]]):
                            if id(sums) not in told:
                                told = {id(sums): self._tell_apart(sums)}
                            for kind, each in enumerate(told[id(sums)]):
                                if kind == 0 and end is ends[1]:
                                    cells[at] += each[mine]
                                np.maximum(most[kind, port][at], each[mine], out=most[kind, port][at])
        return Exchanged(cells, *most)

    def _tell_apart(self, sums: Sequence[IntArray]) -> list[IntArray]:
        """Cells, messages and, where they are counted, runs."""
        return [sums[0] & ((1 << self.bits) - 1), sums[0] >> self.bits, *sums[1:]] if self.is_one else [*sums]


class _Senders:
    """What devices send: the same wherever one holds the same and sends to the same devices."""

    def __init__(self, given: Sequence[IntArray], holds: IntArray, links: NDArray[np.bool_], many: bool) -> None:
        said = np.concatenate([holds[..., None], links], axis=2).reshape(-1, holds.shape[1] + 1)
        each, at = _number_rows(said, many)
        self._links, self._at = each[:, 1:], at.reshape(holds.shape)
        self._given = [np.ascontiguousarray(one[each[:, 0]].T) for one in given]
        """By what is needed, and by kind of device."""

    def list_sums(self, needs: IntArray) -> Iterator[tuple[list[IntArray], IntArray]]:
        """Sums by kind of device and column, and for each class the number of its kind, device after device."""
        found = []
        for given in self._given:
            # Rows are taken as wholes, which is several times faster than numbers here and there.
            total = np.zeros((len(needs), len(self._links)), np.int64)
            for links, needed in zip(self._links.T, needs.T, strict=True):
                if links.any():
                    total += given[needed] * links
            found.append(np.ascontiguousarray(total.T))
        for mine in self._at.T:
            yield found, mine


class _Receivers:
    """What devices receive: the same wherever the same is held by all that send to one."""

    def __init__(self, given: Sequence[IntArray], holds: IntArray, links: NDArray[np.bool_], many: bool) -> None:
        devices, nothing = holds.shape[1], len(given[0]) - 1
        senders = np.where(links, holds[..., None], nothing)
        senders = senders.transpose(0, 2, 1).reshape(-1, devices)
        self._sums: list[IntArray]
        """By what is needed, and by kind of device."""
        if nothing < devices and devices >= tuning.MIN_ALONG_DEVICES:
            # Of few holdings it is counted how many devices send each: so who receives alike is found sooner.
            starts = np.arange(len(senders))[:, None] * len(given[0])
            counts = np.bincount((senders + starts).ravel(), minlength=len(senders) * len(given[0]))
            each, at = list_classes(counts.reshape(len(senders), -1))
            self._sums = [(each @ one).T for one in given]
        else:
            each, at = _number_rows(np.sort(senders, axis=1) if many else senders, many)
            self._sums = [sum(one[some] for some in each.T).T for one in given]
        self._kinds = [_number_rows(column, many) for column in at.reshape(holds.shape).T]

    def list_sums(self, needs: IntArray) -> Iterator[tuple[list[IntArray], IntArray]]:
        """As of `_Senders`."""
        for (kinds, mine), needed in zip(self._kinds, needs.T, strict=True):
            rows = [np.ascontiguousarray(total[:, kinds])[needed] for total in self._sums]
            yield [np.ascontiguousarray(one.T) for one in rows], mine


def _number_rows(rows: IntArray, many: bool) -> tuple[IntArray, IntArray]:
    """Rows, and the number of each among them: each once, where so many columns are summed of them that it pays."""
    if not many:
        return rows, np.arange(len(rows))
    each, at = np.unique(rows, axis=0, return_inverse=True)
    return each, at.reshape(-1)
