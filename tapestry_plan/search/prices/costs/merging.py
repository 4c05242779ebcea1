"""What merging partial results in stages takes, beside merging all of them at once: see `steps.layouts.merging`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from math import prod

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from tapestry_plan.ir import Monoid, Operand
from tapestry_plan.search import tuning
from tapestry_plan.search.prices.costs.seconds import merge_ticks, transfer_ticks
from tapestry_plan.search.prices.moves import Held, RegionTable, count_box_runs
from tapestry_plan.search.sums.elimination import IntArray
from tapestry_plan.steps import (
    Bounds,
    Layout,
    MergeOrder,
    MergeStage,
    Mesh,
    PartTable,
    Space,
    align,
    find_part_table,
    list_candidates,
    list_factors,
    list_merge_stages,
    number_ports,
    project_bounds,
    tell_bounds,
)

NEVER = np.iinfo(np.int64).max
"""Picoseconds of stages that are not there."""
ORDERS: tuple[MergeOrder, ...] = ("near", "far")


class MergeTraffic(Struct, frozen=True):
    """One stage: bytes that each device receives, modeled picoseconds, and runs of messages where these take time."""

    nbytes: IntArray
    links: dict[tuple[int, int], int]
    ticks: int
    runs: int


class Makers(Struct, frozen=True):
    """Who makes a result, and where it may land: layouts of an operator and of the result."""

    operand: Operand
    cut: tuple[int, ...]
    """The axes that are reduced."""
    layouts: tuple[Layout, ...]
    rests: tuple[Layout, ...]
    orders: tuple[MergeOrder, ...]

    def list_rests(self) -> IntArray:
        """First cells and ends of what rests on each device, by place, (places, devices, 2 × rank)."""
        begin, end = (np.array([rest.bounds[k] for rest in self.rests]) for k in (1, 2))
        return np.concatenate([begin, end], axis=2)

    def find_made(self, row: int) -> tuple[Bounds, IntArray]:
        """What each device makes in one of the layouts, and which part of it."""
        layout = self.layouts[row]
        return project_bounds(self.operand, layout), layout.number_parts(self.cut)

    def list_stages(self, row: int, place: int, order: MergeOrder) -> tuple[MergeStage, ...]:
        """The stages of two of the layouts."""
        return list_merge_stages(*self.find_made(row), self.rests[place], order)


class Merges(Struct, frozen=True):
    """What merging in stages takes, by layouts of who makes a result and of where it lands.

    Parameters
    ----------
    makers : Makers
    ticks, nbytes : array of int64, (layouts, places)
        Of the best order, very much where there is none.
    order : array of int64, (layouts, places)
        Which one that is, by its place in `ORDERS`.
    """

    makers: Makers
    ticks: IntArray
    nbytes: IntArray
    order: IntArray

    def restrict(self, rows: IntArray, places: IntArray, share: Callable[[IntArray], IntArray]) -> Merges:
        """The same of some layouts; of rows behind the layouts, which expansions have, there are none."""
        rows = rows[rows < len(self.ticks)]
        layouts = tuple(self.makers.layouts[row] for row in rows)
        makers = replace(self.makers, layouts=layouts, rests=tuple(self.makers.rests[place] for place in places))
        each = (share(table[np.ix_(rows, places)]) for table in (self.ticks, self.nbytes, self.order))
        return Merges(makers, *each)

    def take_better(self, ticks: IntArray, nbytes: IntArray) -> tuple[IntArray, IntArray]:
        """Of merging at once and in stages what takes less, where rows of expansions may follow on the layouts."""
        better, mine = self.list_better(ticks, nbytes), slice(len(self.ticks))
        ticks, nbytes = ticks.copy(), nbytes.copy()
        ticks[mine][better], nbytes[mine][better] = self.ticks[better], self.nbytes[better]
        return ticks, nbytes

    def list_better(self, ticks: IntArray, nbytes: IntArray) -> NDArray[np.bool_]:
        """Where merging in stages takes less than merging at once, by layouts of who makes it and of where it lands."""
        ticks, nbytes = ticks[: len(self.ticks)], nbytes[: len(self.ticks)]
        found: NDArray[np.bool_] = (self.ticks < ticks) | ((self.ticks == ticks) & (self.nbytes < nbytes))
        return found

    def count_held(self, device: int, part_itemsize: int, itemsize: int) -> IntArray:
        """The most bytes of a result, parts and whole, that lie on a device in the stages; 0 where there are none."""
        out = np.zeros_like(self.ticks)
        boxes = self.makers.list_rests()
        known: dict[tuple[bytes, bytes], IntArray] = {}
        for row in np.flatnonzero((self.ticks < NEVER).any(axis=1)).tolist():
            bounds, parts = self.makers.find_made(row)
            places = np.flatnonzero(self.ticks[row] < NEVER)
            key = tell_bounds(bounds) + parts.tobytes(), self.order[row, places].tobytes() + places.tobytes()
            if key not in known:
                busy, low, high = bounds
                made = align(int((high - low)[device].prod()) * part_itemsize) if busy[device] else 0
                seats = find_part_table(bounds, parts)
                assert seats is not None, "there are stages"
                known[key] = np.zeros(len(places), np.int64)
                for number, one in enumerate(self.makers.orders):
                    mine = np.flatnonzero(self.order[row, places] == number)
                    if not mine.size:
                        continue
                    hulls, _ = seats.list_hulls(boxes[places[mine]], one)
                    cells = [_count_cells(hull[:, device]) for hull in hulls]
                    fans = [seats.fans[axis - 1] for axis in seats.order_axes(one)]
                    known[key][mine] = _count_most(made, cells, fans, part_itemsize, itemsize)
            out[row, places] = known[key]
        return out

    def find_order(self, row: int, place: int, ticks: int, nbytes: int) -> MergeOrder | None:
        """The best order, where that is better than merging at once, in so many picoseconds and bytes."""
        if row >= len(self.ticks) or (int(self.ticks[row, place]), int(self.nbytes[row, place])) >= (ticks, nbytes):
            return None
        return ORDERS[int(self.order[row, place])]


def _count_most(
    made: int, cells: Sequence[IntArray], fans: Sequence[int], part_itemsize: int, itemsize: int
) -> IntArray:
    """The most bytes while stages run: what was there, what comes of it, and the parts of others, by place."""
    most, before = np.zeros_like(cells[0]), np.full_like(cells[0], made)
    for number, (mine, fan) in enumerate(zip(cells, fans, strict=True), 1):
        part = align(mine * part_itemsize)
        comes = align(mine * itemsize) if number == len(fans) else part
        most, before = np.maximum(most, before + comes + (fan - 1) * part), comes
    return most


def _count_cells(boxes: IntArray) -> IntArray:
    """Cells of boxes, (…, 2 × rank)."""
    rank = boxes.shape[-1] // 2
    # Whole columns are multiplied, which is several times faster than a product of the few extents of each box.
    extents = (boxes[..., rank + axis] - boxes[..., axis] for axis in range(rank))
    return reduce(np.multiply, extents, np.ones(boxes.shape[:-1], np.int64))


def list_orders(monoid: Monoid | None, fan_in: int | None) -> tuple[MergeOrder, ...]:
    """In which orders parts may be merged: neighbors first where order matters, or a tree of them is asked for."""
    return ORDERS if fan_in is None and (monoid is None or monoid.is_commutative) else ORDERS[:1]


def list_whole(makers: Makers, shape: tuple[int, ...], itemsize: int, mesh: Mesh, space: Space) -> tuple[Layout, ...]:
    """Layouts of a result in which each device has all that it has a part of.

    They are offered for many parts of blocks so small that messages take longer than bytes: then all is merged by all,
    in few of them, sooner than each device merges a share, as `makers.rests` say, and others read it.
    """
    largest = (max(box.size for box in each.boxes if box is not None) for each in makers.rests)
    share = min(largest, default=prod(shape)) * itemsize
    made = set()
    for row, layout in enumerate(makers.layouts):
        parts = layout.count_parts(makers.cut)
        if parts >= tuning.MIN_WHOLE_PARTS and len(list_factors(parts)) > 1:
            bounds, _ = makers.find_made(row)
            nbytes = int((bounds[2] - bounds[1]).prod(axis=1).max()) * itemsize
            made |= {tell_bounds(bounds)} if _pays_whole(parts, nbytes, share, mesh) else set()
    every = list_candidates(shape, mesh, space, replicas=True) if made else ()
    return tuple(one for one in every if prod(one.parts) < mesh.size and tell_bounds(one.bounds) in made)


def _pays_whole(parts: int, nbytes: int, share_nbytes: int, mesh: Mesh) -> bool:
    """Whether merging whole blocks in stages takes less than merging shares, which are read then, over some link.

    Of k parts of n bytes, merged b at a time, Σ(b-1) messages of n bytes go over a link then; else as many that have
    k-1 shares in all, and k-1 more, of a share each, to whoever reads all of it.
    """
    messages = sum(fan - 1 for fan in list_factors(parts))
    more = nbytes * messages - 2 * (parts - 1) * share_nbytes
    return any(more < (parts - 1) * port.latency_seconds * port.nbytes_per_second for port in mesh.ports)


def price_merges(
    makers: Makers, table: RegionTable, held: Held, landed: IntArray, itemsize: int, mesh: Mesh, fan_in: int | None
) -> Merges | None:
    """What merging in stages takes, where that can be; None where it nowhere can.

    Parameters
    ----------
    makers : Makers
    table : RegionTable
        Of the result.
    held : Held
        Its parts, by layout of who makes them.
    landed : array of int64, (places, devices)
        Region numbers of where it may land.
    itemsize : int
        Bytes of a cell of a part.
    mesh : Mesh
    fan_in : int, optional
        How many parts are merged at a time, if that is asked for.
    """
    counts = held.parts.tolist()
    fans = {count: list_factors(count) for count in set(counts)}
    fits = {count for count, each in fans.items() if len(each) > 1 and (fan_in is None or {*each} == {fan_in})}
    rows = [row for row, count in enumerate(counts) if count in fits]
    if not rows:
        return None
    ends, has = table.sizes(landed), table.sizes(held.numbers[rows])
    within = (table.sizes(held.numbers[rows][:, None, :], landed) == ends) & ((has > 0)[:, None, :] == (ends > 0))
    may = within.all(axis=2)
    boxes = makers.list_rests()
    shape = len(counts), len(landed)
    ticks, nbytes, order = np.full(shape, NEVER), np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    known: dict[bytes, list[tuple[IntArray, IntArray]]] = {}
    for row, mine in zip(rows, may, strict=True):
        places = np.flatnonzero(mine)
        bounds, parts = makers.find_made(row)
        key = tell_bounds(bounds) + parts.tobytes()  # several axes that are reduced make the same parts
        if places.size and key not in known:
            seats = find_part_table(bounds, parts)
            unlike = _UnlikeBlocks.of(bounds, seats, boxes[places], mesh) if seats else None
            known[key] = [_price_places(unlike, one, itemsize, mesh) for one in makers.orders if unlike]
        for number, (took, moved) in enumerate(known.get(key, ()) if places.size else ()):
            best = ticks[row, places], nbytes[row, places]
            better = places[(took < best[0]) | ((took == best[0]) & (moved < best[1]))]
            fresh = np.isin(places, better)
            ticks[row, better], nbytes[row, better], order[row, better] = took[fresh], moved[fresh], number
    return None if (ticks == NEVER).all() else Merges(makers, ticks, nbytes, order)


class _UnlikeBlocks(Struct, frozen=True):
    """Who merges what, of blocks that are the same but for where they begin only one each.

    Parameters
    ----------
    seats : PartTable
        Its numbers are places in the arrays that follow.
    devices, many : array of int64, (seats,)
        Who has each seat, and how many devices do just what it does.
    made : array of int64, (1, seats, 2 × rank)
        First cells and ends of what each has a part of, from where its block begins.
    boxes : array of int64, (places, seats, 2 × rank)
        Likewise, of what it has in the end.
    """

    seats: PartTable
    devices: IntArray
    many: IntArray
    made: IntArray
    boxes: IntArray

    @classmethod
    def of(cls, bounds: Bounds, seats: PartTable, boxes: IntArray, mesh: Mesh) -> _UnlikeBlocks:
        blocks = seats.table.reshape(len(seats.table), -1)
        around = np.concatenate(bounds[1:], axis=1)
        begin = np.tile(bounds[1][blocks[:, :1]], 2)
        made, ends = around[blocks] - begin, boxes[:, blocks] - begin
        # Who sits where in a block must have the same links to the others of it, and be a device of the same kind.
        ports = [number_ports(mesh)[blocks[:, :, None], blocks[:, None, :]]] if len(mesh.ports) > 1 else []
        kinds = [_number_kinds(mesh)[blocks]] if mesh.differs else []
        seen: dict[tuple[bytes, ...], int] = {}
        every = (made, np.moveaxis(ends, 1, 0), *ports, *kinds)
        said = [tuple(each[k].tobytes() for each in every) for k in range(len(blocks))]
        classes = np.array([seen.setdefault(one, len(seen)) for one in said])
        first, counts = np.unique(classes, return_index=True, return_counts=True)[1:]
        devices = blocks[first].reshape(-1)
        table = np.arange(devices.size).reshape(len(first), *seats.table.shape[1:])
        bounds_of = devices.size, around.shape[1]  # which a scalar has none of
        return cls(
            PartTable(table, seats.fans),
            devices,
            np.repeat(counts, blocks.shape[1]),
            made[first].reshape(1, *bounds_of),
            ends[:, first].reshape(len(boxes), *bounds_of),
        )


def _number_kinds(mesh: Mesh) -> IntArray:
    """The kind of each device, by number."""
    found = np.zeros(mesh.size, np.int64)
    for number, (_, mine) in enumerate(mesh.kinds):
        found[list(mine)] = number
    return found


def _price_places(unlike: _UnlikeBlocks, order: MergeOrder, itemsize: int, mesh: Mesh) -> tuple[IntArray, IntArray]:
    """Picoseconds and bytes of all stages, by place; `NEVER` where there are none."""
    seats = unlike.seats
    hulls, fits = seats.list_hulls(unlike.boxes, order)
    ticks, nbytes = np.zeros((2, len(unlike.boxes)), np.int64)
    before = unlike.made
    for axis, hull in zip(seats.order_axes(order), hulls, strict=True):
        siblings = seats.list_siblings(axis, len(unlike.devices))
        took, _ = _price_stage(hull, before, unlike.devices, siblings, itemsize, mesh)
        moved = (_count_cells(hull) * unlike.many).sum(axis=1) * (siblings.shape[1] - 1) * itemsize
        ticks, nbytes, before = ticks + took, nbytes + moved, hull
    return np.where(fits, ticks, NEVER), nbytes


def _price_stage(
    boxes: IntArray, before: IntArray, devices: IntArray, siblings: IntArray, itemsize: int, mesh: Mesh
) -> tuple[IntArray, IntArray]:
    """Picoseconds and runs of one stage, by place: of the busiest device through each port, and of who merges most.

    Siblings, by their places among the devices, read from each other what they will have, boxes (places, devices,
    2 × rank), out of what they had before: what one sends is what the others get.
    """
    cells, sent, received = _count_cells(boxes), *np.zeros((2, 1, len(devices), siblings.shape[1]), np.int64)
    if mesh.prices_runs:  # at the end to which they come they are one run, as a block of their own
        whole = np.sign(cells)
        sent = count_box_runs(boxes[:, siblings], before[:, :, None]) + whole[:, siblings]
        received = count_box_runs(boxes[:, :, None], before[:, siblings]) + whole[:, :, None]
    others = siblings != np.arange(len(devices))[:, None]
    ports = number_ports(mesh)[devices[:, None], devices[siblings]]
    busiest, rounds, runs = [], [], []
    for port in range(len(mesh.ports)):
        through = others & (ports == port)
        gets, gives = cells * through.sum(axis=1), (cells[:, siblings] * through).sum(axis=2)
        busiest.append(np.maximum(gets.max(axis=1), gives.max(axis=1)))
        rounds.append([through.sum(axis=1).max()])
        ends = [(each * through).sum(axis=2).max(axis=1) for each in (sent, received)]
        runs.append(np.maximum(*ends))
    kinds = _number_kinds(mesh)[devices]
    most = np.array([cells[:, kinds == kind].max(axis=1, initial=0) for kind in range(len(mesh.kinds))])
    ticks = transfer_ticks(np.array(busiest), np.array(rounds), np.array(runs), itemsize, mesh)
    ticks = ticks + merge_ticks(most, np.array(siblings.shape[1]), itemsize, mesh)
    return ticks, (received * others).sum(axis=(1, 2))


def count_merging(stage: MergeStage, before: Bounds, itemsize: int, mesh: Mesh) -> MergeTraffic:
    """What one stage moves, device by device, of what they had before."""
    busy, low, high = stage.bounds
    cells, devices = (high - low).prod(axis=1), np.flatnonzero(busy)
    nbytes = np.where(busy, cells * (stage.sources.shape[1] - 1) * itemsize, 0)
    links = {
        (source, device): int(cells[device]) * itemsize
        for device in devices.tolist()
        for source in stage.sources[device].tolist()
        if source != device
    }
    boxes, had = (np.concatenate(each[1:], axis=1)[None, devices] for each in (stage.bounds, before))
    siblings = np.searchsorted(devices, stage.sources[devices])
    ticks, runs = _price_stage(boxes, had, devices, siblings, itemsize, mesh)
    return MergeTraffic(nbytes, links, int(ticks[0]), int(runs[0]))
