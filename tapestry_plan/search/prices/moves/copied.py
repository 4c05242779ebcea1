"""Copies within a device: which of its own cells one writes beside those that come, tensor by tensor."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from tapestry_plan.search.prices.moves.numbering import list_classes, list_tuples
from tapestry_plan.search.prices.moves.operands import ANYHOW, BESIDE, BOX, FLAT, FREE, HOSTED, PADDED, PARTED
from tapestry_plan.search.prices.moves.regions import Flags, RegionTable, count_fresh, unite_numbers
from tapestry_plan.search.sums.elimination import IntArray


def list_copied(
    table: RegionTable,
    wanted: IntArray,
    taken: Sequence[Sequence[int]],
    known: Sequence[Sequence[int | None]],
    others: IntArray,
    fresh: tuple[IntArray, IntArray],
    itemsizes: tuple[int, int],
) -> tuple[IntArray, IntArray]:
    """Bytes of its own that a device copies for the last consumer, by what it holds and what is wanted.

    Parameters
    ----------
    table : RegionTable
    wanted : array of int64, (tuples, columns)
        Region numbers that consumers need, and what their operands take; how operands have that.
    taken, known : sequence of sequence of int
        By consumer the columns with what its operands take, and with how they have that; None where no bit is set.
    others : array of int64
        Region numbers of what devices hold, and of the whole tensor.
    fresh : tuple
        Of the tuples, what `count_fresh` says.

    Returns
    -------
    copied, ways : arrays (2 · holdings, ways) and (tuples,)
        Of complete tensors, then of those in partial results; which of the ways each tuple is.
    """
    *before, mine = taken
    nothing = np.zeros(len(wanted), np.int64)

    def find_way(at: int | None) -> IntArray:
        return nothing if at is None else wanted[:, at]

    earlier = [
        (wanted[:, column], find_way(at))
        for columns, ats in zip(taken, known, strict=True)
        for column, at in zip(columns, ats, strict=True)
    ]
    first = len(earlier) - len(mine)
    parts: list[tuple[IntArray, int]] = []
    said: list[_CopiedOf] = []
    united: list[IntArray] = []
    for k in range(len(mine)):
        read, way = earlier[first + k]
        given = np.column_stack([wanted[:, : len(before)], *united, read])
        counts, numbers = fresh if len(mine) == 1 else count_fresh(table, given, others)
        # What operands before the next one take together is one region: of many the terms would double with each.
        united = [unite_numbers(table, *united, read)] if k + 1 < len(mine) else []
        one = _CopiedOf.of(table, read, way, earlier[: first + k], counts, numbers, others[:-1])
        parts += one.columns
        said.append(one)
    rows, ways = list_tuples([each for each, _ in parts], [size for _, size in parts])
    complete, partial = np.zeros((2, len(others) - 1, len(rows)), np.int64)
    at = 0
    for one in said:
        in_cells = one.count(table, rows[:, at : at + len(one.columns)].T)
        at += len(one.columns)
        complete += in_cells[0] * itemsizes[0]
        partial += in_cells[1] * itemsizes[0] + in_cells[2] * itemsizes[1]
    copied, alike = list_classes(np.ascontiguousarray(np.concatenate([complete, partial]).T))
    return copied.T, alike[ways]


class _CopiedOf(Struct, frozen=True):
    """All that says what a device copies for one operand, as numbers of few different things, by tuple.

    Parameters
    ----------
    columns : list of (array of int64, int)
        By tuple the numbers of: what is shared with what devices hold; what is read; how; how many cells have arrived;
        who held what is made before. With each how many there are.
    counts : array of int64
        As `count_fresh` says.
    names, ways, arrived : array of int64
        What is read, how, and cells that have arrived, by number.
    hosted : array of bool, (numbers, holdings)
        Whether what a device holds lies in a block that was gathered before.
    holding : array of int64
    """

    columns: list[tuple[IntArray, int]]
    counts: IntArray
    names: IntArray
    ways: IntArray
    arrived: IntArray
    hosted: Flags
    holding: IntArray

    @classmethod
    def of(
        cls,
        table: RegionTable,
        read: IntArray,
        way: IntArray,
        earlier: Sequence[tuple[IntArray, IntArray]],
        counts: IntArray,
        numbers: IntArray,
        holding: IntArray,
    ) -> _CopiedOf:
        names, which = np.unique(read, return_inverse=True)
        ways, how = np.unique(way, return_inverse=True)
        size = table.sizes(names)[which]
        arrived = size - counts[-1][numbers]
        arrived = np.where(arrived > 0, 4 * arrived, 0)  # cells, and what became of them
        for other, its_way in earlier:
            whole = np.flatnonzero((arrived == 4 * size) & (size > 0))
            if not whole.size:
                break
            serves = table.sizes(read[whole], other[whole]) == size[whole]
            if (padded := (way[whole] & PADDED) > 0).any():
                both = padded & serves & ((its_way[whole] & PADDED) > 0)
                serves &= ~padded
                some = np.flatnonzero(both)
                at = whole[some]
                serves[some] = table.hold_boxes(its_way[at] >> BOX, way[at] >> BOX)
            at = whole[serves]
            arrived[at] = np.where(table.sizes(other[at]) > size[at], 2, 1)
        amounts, amount = np.unique(arrived, return_inverse=True)
        hosted, whose = np.zeros((1, len(holding)), bool), np.zeros(len(read), np.int64)
        if earlier and ((ways & (PARTED | FLAT)) > 0).any():
            hosted, whose = cls._list_hosted(table, earlier, holding)
        columns = [
            (numbers, counts.shape[1]),
            (which, len(names)),
            (how, len(ways)),
            (amount, len(amounts)),
            (whose, len(hosted)),
        ]
        return cls(columns, counts, names, ways, amounts, hosted, holding)

    @staticmethod
    def _list_hosted(
        table: RegionTable, earlier: Sequence[tuple[IntArray, IntArray]], holding: IntArray
    ) -> tuple[Flags, IntArray]:
        """Whether what devices hold lies in some block that was gathered before, (numbers, holdings), and by tuple."""
        has = table.sizes(holding)
        classes: list[tuple[IntArray, int]] = []
        rows: list[Flags] = []
        for other, way in earlier:
            pairs, at = list_tuples([other, way & PADDED], [len(table.regions), 2])
            names, padded = pairs.T
            there = (table.sizes(names[:, None], holding[None, :]) == has) & (has > 0)
            there &= (padded[:, None] > 0) | (table.sizes(names)[:, None] > has)
            distinct, alike = list_classes(there.astype(np.int64))
            rows.append(distinct > 0)
            classes.append((alike[at], len(distinct)))
        tuples, whose = list_tuples([each for each, _ in classes], [size for _, size in classes])
        any_of = np.zeros((len(tuples), len(holding)), bool)
        for each, column in zip(rows, tuples.T, strict=True):
            any_of |= each[column]
        distinct, alike = list_classes(any_of.astype(np.int64))
        return distinct > 0, alike[whose]

    def count(self, table: RegionTable, rows: IntArray) -> tuple[IntArray, IntArray, IntArray]:
        """Cells that are copied, by holding and row: of complete tensors; of those in parts, complete and own ones."""
        column, name, how, amount, whose = rows
        way, states, size = self.ways[how], self.arrived[amount], table.sizes(self.names[name])
        is_served, arrived = (states == 1) | (states == 2), np.where(states > 2, states // 4, 0)
        shared, left = self.counts[:-1, column], self.counts[-1, column]
        is_padded, is_free = (way & PADDED) > 0, (way & FREE) > 0
        has = table.sizes(self.holding)[:, None]
        both = table.sizes(self.names[None, :], self.holding[:, None])[:, name]
        holds_all = (both == size) & ~is_padded
        cells = np.where(holds_all | is_served, 0, arrived + shared)
        may = way & (PARTED | FLAT | ANYHOW)
        if may.any():
            is_made = (both == has) & (has > 0) & ~holds_all & ~is_served & (may > 0)
            is_made &= ~self.hosted[whose].T | ((way & ANYHOW) > 0)
            if is_made.any():
                pairs, at = list_tuples([self.names[name], way], [len(table.regions), int(self.ways.max()) + 1])
                lies = table.may_lie(self.holding[:, None], pairs[None, :, 0], pairs[None, :, 1])[:, at]
                cells = np.where(is_made & lies, cells - has, cells)
        is_hosted, is_beside = (way & HOSTED) > 0, (way & BESIDE) > 0
        if is_hosted.any():
            is_larger = np.where(holds_all, has > size, (states == 2)) | is_beside
            cells = cells + np.where(is_hosted & is_larger, size, 0)
        merged = np.where(is_served, 0, arrived) + np.where(is_hosted & ((states == 2) | is_beside), size, 0)
        own = np.where(shared == left, 0, shared)
        return np.where(is_free, 0, cells), np.where(is_free, 0, merged), np.where(is_free, 0, own)
