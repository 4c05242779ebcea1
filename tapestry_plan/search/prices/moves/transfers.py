"""Exact transfers: cells needed minus cells held, who sends them, and what is copied, for all classes of layouts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from tapestry_plan.search import tuning
from tapestry_plan.search.prices.moves.along import Along, Exchanged, Spreads, Sums, count_along, part_operands
from tapestry_plan.search.prices.moves.copied import list_copied
from tapestry_plan.search.prices.moves.exchange import Exchange
from tapestry_plan.search.prices.moves.numbering import list_classes, list_tuples
from tapestry_plan.search.prices.moves.operands import BESIDE, FREE, HOSTED, PADDED, OperandBlocks
from tapestry_plan.search.prices.moves.regions import Flags, RegionTable, count_fresh, list_fresh
from tapestry_plan.search.prices.moves.runs import RunReads
from tapestry_plan.search.sums.elimination import IntArray
from tapestry_plan.steps import Mesh
from tapestry_sets.regions import DisjointRegions


class Held(Struct, frozen=True):
    """The cells that the layouts of a producer leave on the devices, by class of layouts.

    Parameters
    ----------
    numbers : array of int64, (classes, devices)
        Region number held by each device.
    parts : array of int64, (classes,)
        Number of partial results that make up the tensor, 1 for complete values.
    groups : array of int64, (classes, devices)
        Devices that hold the same cells of the same partial result have one number, those that hold nothing -1.
    """

    numbers: IntArray
    parts: IntArray
    groups: IntArray


class Transfers(Struct, frozen=True):
    """What the last of several consumers of a tensor receives, for all classes of layouts.

    The axes are those of the classes of holders, and of columns: classes of the consumers' layouts in which all devices
    receive the same are one column.
    """

    cells: IntArray
    """Cells that devices receive, each counted once for each device."""
    fresh: IntArray
    """By kind of device, then by class: the most cells that one needs and that no consumer had asked for before."""
    busiest: IntArray
    """By port, then by class: the most cells that one device sends through it, or receives."""
    rounds: IntArray
    """By port, then by class: the most messages that one device sends through it, or receives."""
    runs: IntArray
    """Likewise: the most runs of these messages, at both of their ends together; 0 where they take no time."""
    assembled: IntArray
    """By kind of device, then by class: the most bytes of its own cells that one copies beside others."""
    columns: IntArray
    """By class of each consumer in turn, the column."""

    def spread(self) -> Transfers:
        """The same with an axis for the classes of each consumer in turn."""
        every = self.cells, self.fresh, self.busiest, self.rounds, self.runs, self.assembled
        columns = np.arange(self.columns.size).reshape(self.columns.shape)
        cells, fresh, busiest, rounds, runs, assembled = (each[..., self.columns] for each in every)
        return Transfers(cells, fresh, busiest, rounds, runs, assembled, columns)


def count_transfers(
    table: RegionTable,
    held: Held,
    needs: Sequence[IntArray],
    mesh: Mesh,
    blocks: Sequence[OperandBlocks] = (),
    itemsizes: tuple[int, int] = (1, 1),
) -> Transfers:
    """Cells that devices exchange for the last of several consumers of a tensor, and those that they copy themselves.

    A device that was given N₁, …, Nₖ₋₁ before needs N_k − ∪ N_i now. Of each group of devices that hold the same cells
    it reads from one, as `list_senders` says, unless it is of the group itself. So a device that holds H sends it
    |(N_k − ∪ N_i) ∩ H| cells, and tensors in partial results need nothing else: each part is a group of its own.

    A block that lies in what the device holds, or in what one consumer before took, serves as it is. Else it is put
    together, and the cells that the device has of it, |N_k ∩ (H ∪ ∪ N_i)|, are copied, but for those that are made
    there (`layouts/anew.py`); of its own part of a sum those that are to be merged, where it has not all of them.

    Where runs take time (`Link.run_seconds`) those of each message are counted in the boxes around H and around what
    each operand takes of N_k; of parts of a sum around what of it is to be merged.

    Parameters
    ----------
    table : RegionTable
    held : Held
    needs : sequence of arrays (classes_k, devices)
        Region numbers that the consumers need, in the order in which they run.
    mesh : Mesh
    blocks : sequence of OperandBlocks
        What the operands of each of these consumers take of that; by default each has one operand.
    itemsizes : pair of int
        Bytes of a complete cell, and of a cell of a partial result.
    """
    blocks = blocks or [OperandBlocks((need,)) for need in needs]
    if len(needs) == 1 and mesh.size >= tuning.MIN_ALONG_DEVICES and not mesh.prices_runs:
        return _count_one_consumer(table, held, needs[0], mesh, blocks[0], itemsizes)
    return _count_by_pairs(table, held, needs, mesh, blocks, itemsizes)


def _count_one_consumer(
    table: RegionTable, held: Held, need: IntArray, mesh: Mesh, blocks: OperandBlocks, itemsizes: tuple[int, int]
) -> Transfers:
    """As `count_transfers` of one consumer: along the axes of the mesh where layouts are products along them."""
    has, wants = table.list_sets(held.numbers), table.list_sets(need)
    asks: Flags = np.logical_or.reduce(wants, axis=(1, 2))  # who wants nothing anywhere gets nothing
    new, is_apart = part_operands(blocks.numbers, table.sizes)
    for finely in (False, True):
        spreads = table.spread(mesh.shape, finely)
        holders = [spreads.find(*one) for one in zip(has, held.groups, strict=True)]
        wholes = zip(wants, (asks & is_apart).tolist(), strict=True)
        consumers = [spreads.find(sets) if some else None for sets, some in wholes]
        each = zip(map(table.list_sets, blocks.numbers), new, strict=True)
        taken = [spreads.find_taken(sets, some.tolist(), consumers) for sets, some in each]
        consumers = [None if None in each else each[0] for each in zip(consumers, *taken, strict=True)]
        if None not in holders and not asks[_part(consumers)[1]].any():
            break
    (mine, others), (theirs, rest) = _part(holders), _part(consumers)
    rest = rest[asks[rest]]
    shape, ports = (len(holders), len(consumers)), len(mesh.ports)
    cells, (busiest, rounds) = np.zeros(shape, np.int64), np.zeros((2, ports, *shape), np.int64)
    assembled = np.zeros((len(mesh.kinds), *shape), np.int64)

    def put(rows: IntArray, columns: IntArray, found: Exchanged | Transfers) -> None:
        at = np.ix_(rows, columns)
        cells[at] = found.cells
        for port in range(ports):
            busiest[port][at], rounds[port][at] = found.busiest[port], found.rounds[port]

    if mine.size and theirs.size:
        first, second = ([one for one in each if one is not None] for each in (holders, consumers))
        put(mine, theirs, count_along(first, second, spreads, mesh, table.count_along_axis))
        operands = [second] if len(taken) == 1 else [[one for k in theirs if (one := each[k])] for each in taken]
        some_held = Held(held.numbers[mine], held.parts[mine], held.groups[mine])
        reads = [each[theirs] for each in blocks.numbers]
        ways = [each[theirs] for each in blocks.ways] or [np.zeros_like(reads[0])] * len(reads)
        every = [
            _TakenAlong(one, number, way, takes := each[theirs, None], np.where(takes, table.sizes(number), 0))
            for one, number, way, each in zip(operands, reads, ways, new, strict=True)
        ]
        copied = _count_assembled(table, first, some_held, every, spreads, mesh)
        assembled[:, mine[:, None], theirs] = copied * np.where(held.parts[mine] > 1, *itemsizes[::-1])[:, None]
    for rows, columns in ((others, theirs), (np.arange(len(holders)), rest)):
        if rows.size and columns.size:
            few_held = Held(held.numbers[rows], held.parts[rows], held.groups[rows])
            some = OperandBlocks(*(tuple(each[columns] for each in every) for every in (blocks.numbers, blocks.ways)))
            found = _count_by_pairs(table, few_held, [need[columns]], mesh, [some], itemsizes).spread()
            put(rows, columns, found)
            assembled[:, rows[:, None], columns] = found.assembled
    fresh = _list_most(table.sizes(need), mesh)
    fresh = np.broadcast_to(fresh[:, None, :], (len(fresh), *shape))
    return Transfers(cells, fresh, busiest, rounds, np.zeros_like(rounds), assembled, np.arange(len(need)))


class _TakenAlong(Struct, frozen=True):
    """What an operand of a consumer takes, by class.

    Parameters
    ----------
    along : list of Along
        Along the axes of the mesh; of the consumer where it takes nothing.
    numbers, ways : array of int64, (classes, devices)
        Of regions, and how it has them.
    takes : array of bool, (classes, 1)
        Whether it takes cells, and none before takes the same.
    sizes : array of int64, (classes, devices)
        Cells that it takes.
    """

    along: Sequence[Along]
    numbers: IntArray
    ways: IntArray
    takes: Flags
    sizes: IntArray


def _count_assembled(
    table: RegionTable,
    holders: Sequence[Along],
    held: Held,
    operands: Sequence[_TakenAlong],
    spreads: Spreads,
    mesh: Mesh,
) -> IntArray:
    """By kind of device, holder and consumer the most of its own cells that a device copies, each pair counted once."""
    pairs = spreads.pair("assembled", len(mesh.kinds))
    has = [(number.tobytes(), part) for number, part in zip(held.numbers, (held.parts > 1).tolist(), strict=True)]
    reads = [[one.tobytes() for one in each] for operand in operands for each in (operand.numbers, operand.ways)]
    rows, columns = pairs.place(has, [*zip(*reads, strict=True)])
    sums = [Sums(holders, one.along, spreads, table.count_along_axis) for one in operands]
    for row, holder, number, (_, is_part) in zip(rows, holders, held.numbers, has, strict=True):
        some = np.flatnonzero(pairs.found[0, row, columns] < 0)
        if not some.size:
            continue
        copied = np.zeros((some.size, mesh.size), np.int64)
        for one, sum_of in zip(operands, sums, strict=True):
            copied += _count_copied(table, number, is_part, one, some, sum_of.count_own(holder, some))
        pairs.found[:, row, columns[some]] = _list_most(copied, mesh)
    return pairs.found[:, rows[:, None], columns]


def _count_copied(
    table: RegionTable, held: IntArray, is_part: bool, operand: _TakenAlong, some: IntArray, has: IntArray
) -> IntArray:
    """Cells of its own that each device copies for an operand, by some of its classes, of which it has so many."""
    need, way, size = (each[some] for each in (operand.numbers, operand.ways, operand.sizes))
    takes, has_all = operand.takes[some], table.sizes(held)
    copied = np.where(has < size, has, 0)
    if not is_part:
        copied = np.where((way & PADDED) > 0, has, copied)
        is_made = (has == has_all) & (has > 0) & takes
        is_made &= ((way & (PADDED | HOSTED)) > 0) | (has < size)
        if (at := np.nonzero(is_made))[0].size:
            is_made[at] = table.may_lie(held[at[1]], need[at], way[at])
        is_larger = (has == size) & ((has_all > size) | ((way & BESIDE) > 0)) & ((way & PADDED) == 0)
        copied = np.where(((way & HOSTED) > 0) & is_larger, size, np.where(is_made, 0, copied))
    return np.where(((way & FREE) > 0) | ~takes, 0, copied)


def _part(found: Sequence[object]) -> tuple[IntArray, IntArray]:
    """The places of what was found, and of what was not."""
    there = np.array([one is not None for one in found], bool)
    return np.flatnonzero(there), np.flatnonzero(~there)


def _list_most(cells: IntArray, mesh: Mesh) -> IntArray:
    """The most cells that a device of each kind has, of cells by (…, device)."""
    by_kind = [cells[..., list(mine)] for _, mine in mesh.kinds] if mesh.differs else [cells]
    return np.stack([mine.max(axis=-1) for mine in by_kind])


def _count_by_pairs(
    table: RegionTable,
    held: Held,
    needs: Sequence[IntArray],
    mesh: Mesh,
    blocks: Sequence[OperandBlocks],
    itemsizes: tuple[int, int],
) -> Transfers:
    """As `count_transfers`, from every device to every other one."""
    # The cells that two devices exchange depend on what one holds and what the other needs, of which there are few
    # different ones: a matrix is counted once, and the tables of all classes look them up.
    #
    #       needed  u0 u1 u2 …          class of holders a:  h0 h1 h2 h3      by sender s and receiver d, masked by who
    #     held h0    4  0  2            of consumers b:      u0 u0 u1 u2      reads from whom:  counts[h_s, u_d]
    #          h1    0  4  2            sums over d: what s sends; over s: what d receives
    many = len(needs)
    listed = [_spread(need, k, many) for k, need in enumerate(needs)]
    taken: list[list[int]] = []  # by consumer, where in the tuples it stands what its operands take
    for k, each in enumerate(blocks):
        mine = [_spread(one, k, many) for one in each.numbers] if len(each.numbers) > 1 else []
        taken.append([*range(len(listed), len(listed) + len(mine))] or [k])
        listed += mine
    numbered, known = len(listed), list[list[int | None]]()  # and how they have that, where it matters
    for k, each in enumerate(blocks):
        ways = each.ways if k == many - 1 else tuple(np.where(one & PADDED, one, 0) for one in each.ways)
        at: list[int | None] = [None] * len(each.numbers)
        for operand, one in enumerate(ways):
            if one.any():
                at[operand] = len(listed)
                listed.append(_spread(one, k, many))
        known.append(at)
    room = max([len(table.regions), *(int(one.max()) + 1 for one in listed[numbered:])])
    loose = [_spread(one, many - 1, many) for one in blocks[-1].loose] if mesh.prices_runs else []
    sides = [len(table.regions)] * numbered + [room] * (len(listed) - numbered) + [1 << len(table.shape)] * len(loose)
    wanted, at_ = list_tuples([*listed, *loose], sides)
    holding, holds = np.unique(held.numbers, return_inverse=True)
    holds = holds.reshape(held.numbers.shape)
    others = np.append(holding, table.number(DisjointRegions.full(table.shape)))
    fresh = counts, numbers = count_fresh(table, wanted[:, :many], others)
    copied, which = list_copied(table, wanted[:, : len(listed)], taken, known, others, fresh, itemsizes)
    runs = None
    if mesh.prices_runs:
        # Holders of parts of a sum come behind the others: what these send is not put into a block with padding.
        reads = RunReads(table, list_fresh, wanted, taken, wanted[:, len(listed) :])
        every = [reads.count(holding, fresh, is_part=False)]
        if (held.parts > 1).any():
            every.append(reads.count(holding, fresh, is_part=True))
        found, classes = list_classes(np.ascontiguousarray(np.concatenate(every).T))
        both, numbers = list_tuples([numbers, classes], [counts.shape[1], len(found)])
        counts, runs = counts[:, both[:, 0]], found.T[:, both[:, 1]]
    # Where all devices receive the same some may copy other cells: such classes have columns of their own.
    pairs, which = list_tuples([numbers, which], [counts.shape[1], copied.shape[1]])
    rows, columns = list_tuples(list(np.moveaxis(which[at_], -1, 0)), [len(pairs)] * mesh.size)
    received, same = pairs[rows, 0], np.arange(len(rows))
    if len(pairs) > counts.shape[1]:
        received, same = list_tuples(list(received.T), [counts.shape[1]] * mesh.size)
    sends = holds if runs is None else holds + np.where(held.parts > 1, len(holding), 0)[:, None]
    given = counts[:-1] if runs is None else np.tile(counts[:-1], (len(runs) // len(holding), 1))
    exchanged = Exchange(given, sends, received, held.groups, mesh, runs).count()
    assembled = np.zeros((len(mesh.kinds), len(holds), len(rows)), np.int64)
    if copied.any():
        holds = holds + np.where(held.parts > 1, len(holding), 0)[:, None]
        for kind, (_, alike) in enumerate(mesh.kinds):
            for device in alike:
                here = copied[holds[:, device, None], pairs[rows[:, device], 1]]
                np.maximum(assembled[kind], here, out=assembled[kind])
    most = _list_most(counts[-1][received], mesh)
    cells, most, busiest, rounds, load = (
        each[..., same] for each in (exchanged.cells, most, exchanged.busiest, exchanged.rounds, exchanged.runs)
    )
    most = np.broadcast_to(most[:, None], assembled.shape)
    return Transfers(cells, most, busiest, rounds, load, assembled, columns)


def _spread(numbers: IntArray, axis: int, count: int) -> IntArray:
    """Reshape (classes, devices) so that classes lie along `axis` of `count` class axes."""
    shape = [1] * count + [numbers.shape[1]]
    shape[axis] = numbers.shape[0]
    return numbers.reshape(shape)
