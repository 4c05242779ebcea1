"""What moves where layouts are chosen: counted tensor by tensor by region algebra, apart from the tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np
from msgspec import Struct

from tapestry_plan.search import tuning
from tapestry_plan.search.prices.costs.merging import count_merging
from tapestry_plan.search.prices.costs.seconds import assembly_ticks, merge_ticks, transfer_ticks
from tapestry_plan.search.prices.costs.tensors import Known, TensorCost, Use, hold_whole
from tapestry_plan.search.prices.moves import ANYHOW, BESIDE, BOX, FLAT, HOSTED, PADDED, PARTED, Held
from tapestry_plan.search.sums.elimination import IntArray
from tapestry_plan.steps import Bounds, MergeOrder, MergeStage, Mesh, count_runs, list_senders, number_ports
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
    use, value : Use and int
        Who gets it, in one layout.
    given, fresh : tuple of int
        By device the numbers of the cells that it was given before, and of those that it needs beside them.
    copied : tuple of int
        By device bytes of its own that it copies beside them.
    """

    held: Held
    row: int
    use: Use
    value: int
    given: tuple[int, ...]
    fresh: tuple[int, ...]
    copied: tuple[int, ...]


class _OwnBlock(NamedTuple):
    """What a device has of a tensor, by number, and how an operand has it."""

    number: int
    way: int


class Assembling:
    """Bytes of a tensor that devices copy of what they have, consumer by consumer, in a layout of its producer.

    What a device copies depends on what it made and on the blocks that it has, and on nothing else: devices, layouts
    and tensors in which these are the same are counted once.
    """

    def __init__(self, cost: TensorCost, row: int, known: Known) -> None:
        self.cost, self.known, self.parts = cost, known, int(cost.held.parts[row])
        self.made: list[int] = cost.held.numbers[row].tolist()
        self.complete: list[tuple[_OwnBlock, ...]] = [()] * len(self.made)
        """The blocks that each device has."""
        if self.parts == 1:
            self.complete = [(_OwnBlock(number, 0),) for number in self.made]

    def land(self, use: Use, value: int) -> None:
        """Let it lie in a place of its own, complete."""
        self.take(use, value)
        self.made, self.parts = use.numbers[value].tolist(), 1

    def take(self, use: Use, value: int) -> tuple[int, ...]:
        """Let a consumer have its blocks; give the bytes that each device copies for that."""
        tensor = self.cost.tensor
        said = "copied", tensor.shape, tensor.itemsize, self.cost.part_itemsize, self.parts > 1
        facts, found = self.known.facts, [0] * len(self.made)
        for k, numbers in enumerate(use.apart or (use.numbers,)):
            ways = use.ways[k][value].tolist() if use.ways else [0] * len(self.made)
            for device, block in enumerate(map(_OwnBlock, numbers[value].tolist(), ways)):
                key = *said, self.made[device], self.complete[device], block
                nbytes = facts.get(key)
                if nbytes is None:
                    nbytes = facts[key] = self._count(device, block)
                found[device] += nbytes
                self.complete[device] = *self.complete[device], block
        return tuple(found)

    def _count(self, device: int, block: _OwnBlock) -> int:
        table, itemsize, way = self.cost.table, self.cost.tensor.itemsize, block.way
        need, made = table.count_cells(block.number), self.made[device]
        if not need:
            return 0
        serving = next((one for one in self.complete[device] if self._serves(one, block)), None)
        if serving is not None:
            is_larger = way & BESIDE or table.count_cells(serving.number) > need
            return need * itemsize if way & HOSTED and is_larger else 0
        missing = block.number
        for one in self.complete[device]:
            missing = table.subtract(missing, one.number)
        copied = (need - table.count_cells(missing)) * itemsize
        if self.parts == 1 and self._holds_made(device, block, made):
            copied -= table.count_cells(made) * itemsize
        if self.parts > 1 and (left := table.count_cells(table.subtract(missing, made))):
            copied += (table.count_cells(missing) - left) * self.cost.part_itemsize
        return copied + (need * itemsize if way & HOSTED and way & BESIDE else 0)

    def _serves(self, one: _OwnBlock, block: _OwnBlock) -> bool:
        """Whether a block that a device has serves as it is."""
        table = self.cost.table
        if not table.is_within(block.number, one.number):
            return False
        if not block.way & PADDED:
            return True
        boxes = (np.array([each.way >> BOX]) for each in (one, block))
        return bool(one.way & PADDED and table.hold_boxes(*boxes)[0])

    def _holds_made(self, device: int, block: _OwnBlock, made: int) -> bool:
        """Whether what the device made is made in a block that is gathered, the first that has all of it."""
        table, may = self.cost.table, PARTED | FLAT | ANYHOW
        if not table.count_cells(made) or not block.way & may or not table.is_within(made, block.number):
            return False
        for one in self.complete[device][1:]:
            is_gathered = one.way & PADDED or table.count_cells(one.number) > table.count_cells(made)
            if is_gathered and table.is_within(made, one.number) and not block.way & ANYHOW:
                return False
        return bool(table.may_lie(np.array([made]), np.array([block.number]), np.array([block.way]))[0])


def count_each(
    cost: TensorCost, choices: Sequence[Sequence[int]], said: Sequence[object], mesh: Mesh, known: Known
) -> list[tuple[Moved, ...]]:
    """What moves of one tensor for each consumer, in each of some choices."""
    keys = [_tell_rows(cost, choice, said) for choice in choices]
    new = {
        key: [*_list_deliveries(cost, choice, mesh, known)]
        for key, choice in zip(keys, choices, strict=True)
        if key not in known.facts
    }
    every = (one for each in new.values() for one in each if isinstance(one, Delivery))
    exchanged = iter(_count_exchanged(mesh, cost, [*every], known))
    for key, each in new.items():
        moved = (next(exchanged) if isinstance(one, Delivery) else _count_merged(cost, one, mesh) for one in each)
        known.facts[key] = tuple(moved)
    return [known.facts[key] for key in keys]


def _tell_rows(cost: TensorCost, choice: Sequence[int], said: Sequence[object]) -> tuple[object, ...]:
    """All that says what moves of one tensor, as chosen."""
    rows = [(use.structure, choice[use.variable], k in cost.only_partial) for k, use in enumerate(cost.uses)]
    landing = (id(cost.landing.numbers), choice[cost.landing.variable]) if cost.landing else None
    return "moved", *said, choice[cost.producer], landing, *rows


def _count_merged(cost: TensorCost, one: Merging, mesh: Mesh) -> Moved:
    found = count_merging(one.stage, one.before, cost.part_itemsize, mesh)
    return Moved(found.nbytes, found.links, found.ticks, np.zeros(mesh.size, np.int64), found.runs)


def find_cells(
    cost: TensorCost, choice: Sequence[int], number: int, ends: tuple[int, int], mesh: Mesh, known: Known
) -> list[Region]:
    """Which cells go from one device to another where something moves: by its number among those of `count_each`."""
    (one,) = islice(_list_deliveries(cost, choice, mesh, known, has_copies=False), number, number + 1)
    source, target = ends
    if isinstance(one, Delivery):
        regions = cost.table.regions
        return list((regions[int(one.held.numbers[one.row][source])] & regions[one.fresh[target]]).regions)
    _, low, high = one.stage.bounds
    return [Region.full((high - low)[target].tolist(), low[target].tolist())]


def _list_deliveries(
    cost: TensorCost, choice: Sequence[int], mesh: Mesh, known: Known, *, has_copies: bool = True
) -> Iterator[Delivery | Merging]:
    """Where a tensor moves: the stages in which it lands, then one consumer after the other.

    What devices copy of their own is counted unless it is not asked for.
    """
    table, held, row = cost.table, cost.held, choice[cost.producer]
    nothing = (table.number(DisjointRegions(table.shape)),) * mesh.size
    given: tuple[int, ...] = nothing
    near, is_doubled = Assembling(cost, row, known), False
    if cost.landing is not None and cost.lands_in(choice):
        place = choice[cost.landing.variable]
        order = find_merge(cost, choice, mesh, known)
        if order is None or cost.merges is None:
            yield _land_at_once(cost, choice, known)
        else:
            before, _ = cost.merges.makers.find_made(row)
            for stage in cost.merges.makers.list_stages(row, place, order):
                yield Merging(stage, before)
                before = stage.bounds
        # From here on the tensor is complete and lies there; what a device had complete before it has still.
        if held.parts[row] == 1:
            given = tuple(held.numbers[row].tolist())
        is_doubled = held.parts[row] == 1
        held, row = hold_whole(known, table, cost.landing.numbers[place][None, :]), 0
        if has_copies:
            near.land(cost.landing, place)
    for k, use in enumerate(cost.uses):
        value, fresh, copied = choice[use.variable], nothing, (0,) * mesh.size
        before_this = given
        if k not in cost.only_partial or held.parts[row] > 1:
            if has_copies:
                copied = near.take(use.double(known.share) if is_doubled else use, value)
            needs = use.numbers[value].tolist()
            fresh = tuple(map(table.subtract, needs, given))
            if k + 1 < len(cost.uses):
                given = tuple(map(table.unite, given, fresh))
        yield Delivery(held, row, use, value, before_this, fresh, copied)


def _list_blocks(cost: TensorCost, one: Delivery, device: int) -> Iterator[Brought]:
    """What a device brings for each operand, in turn, that it was not given before."""
    table, use, is_part = cost.table, one.use, one.held.parts[one.row] > 1
    given = one.given[device]
    for k, numbers in enumerate(use.apart or (use.numbers,)):
        need = int(numbers[one.value, device])
        fresh = table.subtract(need, given)
        bounds = table.regions[fresh if is_part else need].bounds()
        if not table.count_cells(fresh) or bounds is None:
            continue
        given = table.unite(given, fresh)
        loose = int(use.loose[k][one.value, device]) if use.loose and not is_part else 0
        sides = [(a - (loose >> axis & 1), b) for axis, (a, b) in enumerate(zip(*bounds, strict=True))]
        yield Brought(table.regions[fresh], Box.from_bounds([a for a, _ in sides], [b for _, b in sides]))


def find_merge(cost: TensorCost, choice: Sequence[int], mesh: Mesh, known: Known) -> MergeOrder | None:
    """Which parts are merged first where a tensor lands in stages, as chosen; None where all are merged at once."""
    if cost.merges is None or cost.landing is None:
        return None
    (at_once,) = _count_exchanged(mesh, cost, [_land_at_once(cost, choice, known)], known)
    where = choice[cost.producer], choice[cost.landing.variable]
    return cost.merges.find_order(*where, at_once.ticks, int(at_once.nbytes.sum()))


def _land_at_once(cost: TensorCost, choice: Sequence[int], known: Known) -> Delivery:
    """A tensor lands in one stage."""
    assert cost.landing is not None, "it may land"
    row, place = choice[cost.producer], choice[cost.landing.variable]
    landed = tuple(cost.landing.numbers[place].tolist())
    nothing = (cost.table.number(DisjointRegions(cost.table.shape)),) * len(landed)
    copied = Assembling(cost, row, known).take(cost.landing, place)
    return Delivery(cost.held, row, cost.landing, place, nothing, landed, copied)


def _count_exchanged(mesh: Mesh, cost: TensorCost, stages: Sequence[Delivery], known: Known) -> list[Moved]:
    """What moves in some stages of one tensor, in each of which devices need cells that they were not given before.

    Of all stages in which devices hold, need and copy the same it is counted once.
    """
    keys = [_tell_exchange(mesh, cost, one) for one in stages]
    new = {key: one for key, one in zip(keys, stages, strict=True) if key not in known.facts}
    left, step = [*new], max(1, tuning.MAX_EXCHANGES // mesh.size**2)
    for first in range(0, len(left), step):
        some = left[first : first + step]
        known.facts.update(zip(some, _count_exchanged_now(mesh, cost, [new[key] for key in some]), strict=True))
    return [known.facts[key] for key in keys]


def _tell_exchange(mesh: Mesh, cost: TensorCost, one: Delivery) -> tuple[object, ...]:
    """All that says what moves in a stage."""
    held, row, sizes = one.held, one.row, (cost.tensor.itemsize, cost.part_itemsize)
    has = held.numbers[row].tobytes(), held.groups[row].tobytes(), int(held.parts[row])
    # Runs depend on the blocks that cells come to as well.
    blocks = (*one.use.structure, one.value, one.given) if mesh.prices_runs else ()
    return "exchanged", cost.tensor.shape, sizes, has, one.fresh, one.copied, blocks


def _count_exchanged_now(mesh: Mesh, cost: TensorCost, stages: Sequence[Delivery]) -> Iterator[Moved]:
    table, ports = cost.table, number_ports(mesh)
    parts = np.array([one.held.parts[one.row] for one in stages])
    size = cost.itemsizes(parts)
    sends = np.array([list_senders(one.held.groups[one.row].tolist(), mesh) for one in stages])
    had = np.array([one.held.numbers[one.row] for one in stages])
    wanted, copied = (np.array([getattr(one, name) for one in stages]) for name in ("fresh", "copied"))
    cells = np.where(sends & (ports >= 0), table.sizes(had[:, :, None], wanted[:, None, :]), 0)
    pieces = np.zeros_like(cells)
    if mesh.prices_runs:
        pieces = np.array([_count_runs(cost, one, mine) for one, mine in zip(stages, cells, strict=True)])
    busiest, rounds, runs = (
        np.array([_list_busiest(np.where(ports == port, each, 0)) for port in range(len(mesh.ports))])
        for each in (cells, np.sign(cells), pieces)
    )
    fresh = table.sizes(wanted)
    most, assembled = (
        np.array([each[:, list(mine)].max(axis=1) for _, mine in mesh.kinds]) for each in (fresh, copied)
    )
    ticks = transfer_ticks(busiest, rounds, runs, size, mesh) + merge_ticks(most, parts, size, mesh)
    ticks += assembly_ticks(assembled, mesh)
    nbytes = cells * size[:, None, None]
    for one, own, took, many in zip(nbytes, copied, ticks.tolist(), pieces.sum(axis=(1, 2)).tolist(), strict=True):
        ends = np.nonzero(one)
        links = dict(zip(zip(*(end.tolist() for end in ends), strict=True), one[ends].tolist(), strict=True))
        yield Moved(one.sum(axis=0), links, took, own, many)


def _list_busiest(sent: IntArray) -> IntArray:
    """The most that one device sends, or receives, by stage, of what goes from one to another."""
    found: IntArray = np.maximum(sent.sum(axis=1).max(axis=1), sent.sum(axis=2).max(axis=1))
    return found


def _count_runs(cost: TensorCost, one: Delivery, cells: IntArray) -> IntArray:
    """The runs at both ends of each message, by sender and receiver, where any cells go."""
    found, regions = np.zeros_like(cells), cost.table.regions
    blocks = [list(_list_blocks(cost, one, device)) for device in range(len(cells))]
    for source, target in np.argwhere(cells).tolist():
        had = regions[int(one.held.numbers[one.row][source])]
        bounds = had.bounds()
        assert bounds is not None, "who sends cells has some"
        for block in blocks[target]:
            sent = (had & block.fresh).regions
            found[source, target] += count_runs(sent, Box.from_bounds(*bounds)) + count_runs(sent, block.box)
    return found
