"""What moves where layouts are chosen: counted tensor by tensor by region algebra, apart from the tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np
from msgspec import Struct

from tapestry_plan.search.prices.costs.merging import count_merging
from tapestry_plan.search.prices.costs.seconds import assembly_ticks, merge_ticks, transfer_ticks
from tapestry_plan.search.prices.costs.tensors import Known, TensorCost, Use, hold_whole
from tapestry_plan.search.prices.moves import ANYHOW, BESIDE, BOX, FLAT, HOSTED, PADDED, PARTED, Held
from tapestry_plan.search.sums.elimination import IntArray
from tapestry_plan.steps import Bounds, MergeOrder, MergeStage, Mesh, count_runs, list_senders, number_ports, unite
from tapestry_sets.regions import Box, DisjointRegions, Region


class Moved(Struct, frozen=True):
    """The bytes of one tensor that one consumer receives, by device, and modeled picoseconds."""

    nbytes: IntArray
    links: dict[tuple[int, int], int]
    """Bytes from device to device, where there are any."""
    ticks: int
    copied: IntArray
    """Bytes of its own that each device copies for that."""
    runs: int
    """Runs that all messages pack and unpack, where some link's take time; else 0."""


class Brought(Struct, frozen=True):
    """What a device brings for one operand: cells, and the box of the buffer that they come to."""

    fresh: DisjointRegions
    box: Box


class Merging(Struct, frozen=True):
    """A stage of merging, and the boxes of what devices had before."""

    stage: MergeStage
    before: Bounds


class Delivery(Struct, frozen=True):
    """What devices hold of a tensor, and what each of them gets then.

    Parameters
    ----------
    held, row : Held and int
        Who holds what, in one layout.
    fresh : sequence of DisjointRegions
        By device the cells that it needs and was not given before.
    copied : array of int64
        By device bytes of its own that it copies beside them.
    blocks : sequence of sequence of Brought
        By device the buffers that fresh cells come to.
    """

    held: Held
    row: int
    fresh: Sequence[DisjointRegions]
    copied: IntArray
    blocks: Sequence[Sequence[Brought]]


class _OwnBlock(NamedTuple):
    """What a device has of a tensor, by number, and how an operand has it."""

    number: int
    way: int


class Assembling:
    """Bytes of a tensor that devices copy of what they have, consumer by consumer, in a layout of its producer."""

    def __init__(self, cost: TensorCost, row: int) -> None:
        self.cost, self.parts = cost, int(cost.held.parts[row])
        self.made: IntArray = cost.held.numbers[row]
        self.complete: list[list[_OwnBlock]] = [[] for _ in self.made]
        """The blocks that each device has."""
        if self.parts == 1:
            self._add(self.made, np.zeros_like(self.made))

    def _add(self, numbers: IntArray, ways: IntArray) -> None:
        for blocks, one, way in zip(self.complete, numbers.tolist(), ways.tolist(), strict=True):
            blocks.append(_OwnBlock(one, way))

    def land(self, use: Use, value: int) -> IntArray:
        """Let it lie in a place of its own, complete; give the bytes that each device copies for that."""
        copied = self.take(use, value)
        self.made, self.parts = use.numbers[value], 1
        return copied

    def take(self, use: Use, value: int) -> IntArray:
        """Let a consumer have its blocks; give the bytes that each device copies for that."""
        found = np.zeros(len(self.made), np.int64)
        for k, numbers in enumerate(use.apart or (use.numbers,)):
            need, way = numbers[value], use.ways[k][value] if use.ways else np.zeros_like(numbers[value])
            for device, (number, how) in enumerate(zip(need.tolist(), way.tolist(), strict=True)):
                if self.cost.table.regions[number].size:
                    found[device] += self._count(device, _OwnBlock(number, how))
            self._add(need, way)
        return found

    def _count(self, device: int, block: _OwnBlock) -> int:
        table, itemsize = self.cost.table, self.cost.tensor.itemsize
        need, way = table.regions[block.number], block.way
        serving = next((one for one in self.complete[device] if self._serves(one, block)), None)
        if serving is not None:
            is_larger = way & BESIDE or table.regions[serving.number].size > need.size
            return need.size * itemsize if way & HOSTED and is_larger else 0
        missing, made = need, table.regions[int(self.made[device])]
        for one in self.complete[device]:
            missing = missing - table.regions[one.number]
        copied = (need.size - missing.size) * itemsize
        if self.parts == 1 and self._holds_made(device, block, made):
            copied -= made.size * itemsize
        if self.parts > 1 and (missing - made).size:
            copied += (missing & made).size * self.cost.part_itemsize
        return copied + (need.size * itemsize if way & HOSTED and way & BESIDE else 0)

    def _serves(self, one: _OwnBlock, block: _OwnBlock) -> bool:
        """Whether a block that a device has serves as it is."""
        table = self.cost.table
        if not table.is_within(block.number, one.number):
            return False
        if not block.way & PADDED:
            return True
        boxes = (np.array([each.way >> BOX]) for each in (one, block))
        return bool(one.way & PADDED and table.hold_boxes(*boxes)[0])

    def _holds_made(self, device: int, block: _OwnBlock, made: DisjointRegions) -> bool:
        """Whether what the device made is made in a block that is gathered, the first that has all of it."""
        table, may = self.cost.table, PARTED | FLAT | ANYHOW
        number = self.made[device : device + 1]
        mine = int(number[0])
        if not made.size or not block.way & may or not table.is_within(mine, block.number):
            return False
        for one in self.complete[device][1:]:
            is_gathered = one.way & PADDED or table.regions[one.number].size > made.size
            if is_gathered and table.is_within(mine, one.number) and not block.way & ANYHOW:
                return False
        return bool(table.may_lie(number, np.array([block.number]), np.array([block.way]))[0])


def count_each(
    cost: TensorCost, choice: Sequence[int], said: Sequence[object], mesh: Mesh, known: Known
) -> tuple[Moved, ...]:
    """What moves of one tensor for each consumer, as chosen."""
    rows = [(use.structure, choice[use.variable], k in cost.only_partial) for k, use in enumerate(cost.uses)]
    landing = (id(cost.landing.numbers), choice[cost.landing.variable]) if cost.landing else None
    key = "moved", *said, choice[cost.producer], landing, *rows
    return known.fact(key, lambda: tuple(_count_now(cost, choice, mesh, known)))


def _count_now(cost: TensorCost, choice: Sequence[int], mesh: Mesh, known: Known) -> Iterator[Moved]:
    """What moves of one tensor, by region algebra, one consumer and one device after the other."""
    for one in _list_deliveries(cost, choice, mesh, known):
        if isinstance(one, Delivery):
            yield _count_exchanged(mesh, cost, one)
        else:
            found = count_merging(one.stage, one.before, cost.part_itemsize, mesh)
            yield Moved(found.nbytes, found.links, found.ticks, np.zeros(mesh.size, np.int64), found.runs)


def find_cells(
    cost: TensorCost, choice: Sequence[int], number: int, ends: tuple[int, int], mesh: Mesh, known: Known
) -> list[Region]:
    """Which cells go from one device to another where something moves: by its number among those of `count_each`."""
    (one,) = islice(_list_deliveries(cost, choice, mesh, known, has_copies=False), number, number + 1)
    source, target = ends
    if isinstance(one, Delivery):
        had = cost.table.regions[int(one.held.numbers[one.row][source])]
        return list((had & one.fresh[target]).regions)
    _, low, high = one.stage.bounds
    return [Region.full((high - low)[target].tolist(), low[target].tolist())]


def _list_deliveries(
    cost: TensorCost, choice: Sequence[int], mesh: Mesh, known: Known, *, has_copies: bool = True
) -> Iterator[Delivery | Merging]:
    """Where a tensor moves: the stages in which it lands, then one consumer after the other.

    What devices copy of their own is counted unless it is not asked for.
    """
    table, shape, devices = cost.table, cost.tensor.shape, range(mesh.size)
    held, row = cost.held, choice[cost.producer]
    nothing = DisjointRegions(shape)
    given = [nothing] * mesh.size
    near, is_doubled = Assembling(cost, row), False
    if cost.landing is not None and cost.lands_in(choice):
        place = choice[cost.landing.variable]
        order = find_merge(cost, choice, mesh)
        if order is None or cost.merges is None:
            yield _land_at_once(cost, choice)
        else:
            before, _ = cost.merges.makers.find_made(row)
            for stage in cost.merges.makers.list_stages(row, place, order):
                yield Merging(stage, before)
                before = stage.bounds
        # From here on the tensor is complete and lies there; what a device had complete before it has still.
        if held.parts[row] == 1:
            given = [table.regions[number] for number in held.numbers[row].tolist()]
        is_doubled = held.parts[row] == 1
        held, row = hold_whole(known, table, cost.landing.numbers[place][None, :]), 0
        if has_copies:
            near.land(cost.landing, place)
    for k, use in enumerate(cost.uses):
        value = choice[use.variable]
        fresh, copied = [nothing] * mesh.size, np.zeros(mesh.size, np.int64)
        blocks: Sequence[Sequence[Brought]] = [()] * mesh.size
        if k not in cost.only_partial or held.parts[row] > 1:
            if has_copies:
                copied = near.take(use.double(known.share) if is_doubled else use, value)
            wanted = use.numbers[value].tolist()
            needs = [table.regions[number] for number in wanted]
            fresh = [need if had is nothing else need - had for need, had in zip(needs, given, strict=True)]
            if mesh.prices_runs:
                blocks = [list(_list_blocks(cost, use, value, d, given[d], held.parts[row] > 1)) for d in devices]
            if k + 1 < len(cost.uses):
                given = [unite([given[device], fresh[device]], shape) for device in devices]
        yield Delivery(held, row, fresh, copied, blocks)


def _list_blocks(
    cost: TensorCost, use: Use, value: int, device: int, given: DisjointRegions, is_part: bool
) -> Iterator[Brought]:
    """What a device brings for each operand, in turn, that it was not given before."""
    regions = cost.table.regions
    for k, numbers in enumerate(use.apart or (use.numbers,)):
        need = regions[numbers[value, device]]
        fresh = need - given
        bounds = (fresh if is_part else need).bounds()
        if not fresh or bounds is None:
            continue
        given = unite([given, fresh], cost.tensor.shape)
        loose = int(use.loose[k][value, device]) if use.loose and not is_part else 0
        sides = [(a - (loose >> axis & 1), b) for axis, (a, b) in enumerate(zip(*bounds, strict=True))]
        yield Brought(fresh, Box.from_bounds([a for a, _ in sides], [b for _, b in sides]))


def find_merge(cost: TensorCost, choice: Sequence[int], mesh: Mesh) -> MergeOrder | None:
    """Which parts are merged first where a tensor lands in stages, as chosen; None where all are merged at once."""
    if cost.merges is None or cost.landing is None:
        return None
    at_once = _count_at_once(cost, choice, mesh)
    where = choice[cost.producer], choice[cost.landing.variable]
    return cost.merges.find_order(*where, at_once.ticks, int(at_once.nbytes.sum()))


def _count_at_once(cost: TensorCost, choice: Sequence[int], mesh: Mesh) -> Moved:
    """What moves where a tensor lands in one stage."""
    return _count_exchanged(mesh, cost, _land_at_once(cost, choice))


def _land_at_once(cost: TensorCost, choice: Sequence[int]) -> Delivery:
    """A tensor lands in one stage."""
    assert cost.landing is not None, "it may land"
    row, place = choice[cost.producer], choice[cost.landing.variable]
    landed = [cost.table.regions[number] for number in cost.landing.numbers[place].tolist()]
    copied = Assembling(cost, row).take(cost.landing, place)
    boxes = [cells.bounds() for cells in landed]
    blocks = [[Brought(n, Box.from_bounds(*b))] if b else [] for n, b in zip(landed, boxes, strict=True)]
    return Delivery(cost.held, row, landed, copied, blocks)


def _count_exchanged(mesh: Mesh, cost: TensorCost, one: Delivery) -> Moved:
    """What moves in one stage, where each device needs some cells that it was not given before."""
    held, row, fresh, copied = one.held, one.row, one.fresh, one.copied
    table, parts = cost.table, int(held.parts[row])
    size = int(cost.itemsizes(held.parts[row]))
    sends, ports = list_senders(held.groups[row].tolist(), mesh), number_ports(mesh)
    wanted = np.array([table.number(new) for new in fresh])
    cells = np.where(sends & (ports >= 0), table.sizes(held.numbers[row][:, None], wanted), 0)
    through = [np.where(ports == port, cells, 0) for port in range(len(mesh.ports))]
    busiest = np.array([max(n.sum(axis=0).max(), n.sum(axis=1).max()) for n in through])
    rounds = np.array([max((n > 0).sum(axis=0).max(), (n > 0).sum(axis=1).max()) for n in through])
    pieces = _count_runs(cost, one, cells) if mesh.prices_runs else np.zeros_like(cells)
    through = [np.where(ports == port, pieces, 0) for port in range(len(mesh.ports))]
    runs = np.array([max(n.sum(axis=0).max(), n.sum(axis=1).max()) for n in through])
    most = np.array([max(fresh[device].size for device in mine) for _, mine in mesh.kinds])
    ticks = transfer_ticks(busiest, rounds, runs, size, mesh) + merge_ticks(most, np.array(parts), size, mesh)
    most = np.array([copied[list(mine)].max() for _, mine in mesh.kinds])
    ticks += assembly_ticks(most, mesh)
    links = {(s, d): int(cells[s, d]) * size for s, d in np.argwhere(cells).tolist()}
    return Moved(cells.sum(axis=0) * size, links, int(ticks), copied, int(pieces.sum()))


def _count_runs(cost: TensorCost, one: Delivery, cells: IntArray) -> IntArray:
    """The runs at both ends of each message, by sender and receiver, where any cells go."""
    found, regions = np.zeros_like(cells), cost.table.regions
    for source, target in np.argwhere(cells).tolist():
        had = regions[int(one.held.numbers[one.row][source])]
        bounds = had.bounds()
        assert bounds is not None, "who sends cells has some"
        for block in one.blocks[target]:
            sent = (had & block.fresh).regions
            found[source, target] += count_runs(sent, Box.from_bounds(*bounds)) + count_runs(sent, block.box)
    return found
