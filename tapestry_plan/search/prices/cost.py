"""Exact costs: cells needed minus cells held, counted on regions without expanding them.

All regions of one tensor are unions of products of one-dimensional sets. Each distinct set of an axis gets a
number, and the size of an intersection of products is the product of the sizes along the axes. So the bytes of
thousands of pairs of layouts are array arithmetic, at a cost that does not depend on the tensor's size.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from itertools import combinations, product
from typing import Any, cast

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from tapestry_plan.ir import Operand, Signature
from tapestry_plan.search import tuning
from tapestry_plan.search.prices.along import Exchanged, Spreads, count_along
from tapestry_plan.search.sums.elimination import IntArray
from tapestry_plan.steps import Mesh, list_senders, number_ports
from tapestry_sets.batch import RegionArray
from tapestry_sets.integers import DisjointSetts, Sett
from tapestry_sets.regions import DisjointRegions, Region

TICKS_PER_SECOND = 10**12
"""Modeled time is counted in whole picoseconds, so that sums and comparisons are exact."""


class RegionTable(Struct):
    """Sizes of intersections of a tensor's regions, by number.

    Parameters
    ----------
    shape : tuple of int
        The tensor's extents.

    Examples
    --------
    >>> from tapestry_sets import Region
    >>> table = RegionTable((8, 8))
    >>> top = table.number(DisjointRegions((8, 8), [Region.from_bounds((8, 8), (0, 0), (5, 8))]))
    >>> low = table.number(DisjointRegions((8, 8), [Region.from_bounds((8, 8), (3, 0), (8, 8))]))
    >>> table.sizes(np.array([top]), np.array([low])).tolist()
    [16]
    """

    shape: tuple[int, ...]
    regions: list[DisjointRegions] = field(default_factory=list)
    _numbers: dict[frozenset[Any], int] = field(default_factory=dict)
    _axis_setts: list[dict[Sett | DisjointSetts, int]] = field(default_factory=list)
    _axis_spans: list[list[tuple[int, int] | None]] = field(default_factory=list)
    _members: list[list[tuple[int, ...]]] = field(default_factory=list)
    _axis_list: list[list[Sett | DisjointSetts]] = field(default_factory=list)
    """The same sets of each axis, by number."""
    _counts: dict[tuple[int, frozenset[int]], int] = field(default_factory=dict)
    _meets: dict[tuple[int, int, int], int] = field(default_factory=dict)
    """By an axis and the numbers of two of its sets, the number of what they have in common."""
    _listed: IntArray = field(default_factory=lambda: np.zeros((0, 1, 1), np.int64))
    _axes: range = range(0)
    _pairs: list[IntArray] = field(default_factory=list)
    """Of each axis, by two numbers of sets: cells that both have, -1 where nobody has asked."""
    _batches: dict[int, tuple[RegionArray, IntArray]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # Number 0 of every axis is the empty set: an absent member then counts nothing.
        # A tensor of rank 0 has one cell, which an axis of extent 1 counts.
        self._axes = range(len(self.shape) or 1)
        self._axis_setts = [{} for _ in self._axes]
        self._axis_list = [[Sett.empty()] for _ in self._axes]
        self._axis_spans = [[(0, 0)] for _ in self._axes]
        self._pairs = [np.zeros((0, 0), np.int64) for _ in self._axes]

    def number(self, region: DisjointRegions) -> int:
        """The number of a region, a new one when it was not seen before."""
        key = frozenset(member.nests for member in region.members)
        found = self._numbers.get(key)
        if found is None:
            found = self._numbers[key] = len(self.regions)
            self.regions.append(region)
            self._members.append([self._axis_row(member) for member in region.members])
        return found

    def _axis_row(self, member: Region) -> tuple[int, ...]:
        axes = zip(member.setts or [Sett()], member.spans or [(0, 1)], strict=True)
        return tuple(self._axis_number(axis, sett, span) for axis, (sett, span) in enumerate(axes))

    def _axis_number(self, axis: int, sett: Sett | DisjointSetts, span: tuple[int, int] | None) -> int:
        numbers = self._axis_setts[axis]
        if sett not in numbers:
            numbers[sett] = len(self._axis_list[axis])
            self._axis_list[axis].append(sett)
            self._axis_spans[axis].append(span)
        return numbers[sett]

    def sizes(self, *numbers: IntArray) -> IntArray:
        """|R_a ∩ R_b ∩ …| for arrays of region numbers that broadcast together, in cells."""
        shape = np.broadcast_shapes(*(n.shape for n in numbers))
        total = np.zeros(shape, np.int64)
        rows = self._rows()
        # Other regions of the table may have many members; those that are asked about say how far to look.
        many = np.array([len(members) for members in self._members] or [0])
        for picks in product(*(range(int(many[n].max()) if n.size else 0) for n in numbers)):
            chosen = [rows[n, pick] for n, pick in zip(numbers, picks, strict=True)]
            if not all(each.any() for each in chosen):
                continue  # none of these regions has so many members
            cells = np.ones(shape, np.int64)
            for axis in self._axes:
                cells *= self._axis_sizes(axis, [c[..., axis] for c in chosen])
            total += cells
        return total

    def list_sets(self, numbers: IntArray) -> IntArray:
        """The sets whose product a region is, by number, (…, rank): 0 for nothing, -1 for no one product."""
        many = np.array([len(members) for members in self._members] or [0])[numbers][..., None]
        sets: IntArray = np.where(many > 1, -1, self._rows()[numbers, 0])
        return sets

    def count_along_axis(self, axis: int, one: IntArray, two: IntArray) -> IntArray:
        """Cells along an axis that two sets of it have in common, by their numbers: arrays that broadcast."""
        return self._axis_sizes(axis, [one, two])

    def count_meets(self, rows: IntArray, others: IntArray) -> list[tuple[IntArray, IntArray]]:
        """Cells that intersections of some regions share with each of some others, as terms of a sum.

        Parameters
        ----------
        rows : array of int64, (meets, regions)
            Numbers of regions that are intersected.
        others : array of int64, (others,)
            Numbers of regions.

        Returns
        -------
        list of (sizes, numbers) : arrays (others, columns) and (meets,)
            What meet m shares with other region h is the sum of ``sizes[h, numbers[m]]`` over the terms. Meets that
            nothing tells apart have one column.
        """
        # A term for each member of each region. In a term the sizes along the axes are multiplied, and an axis has few
        # different sets: their intersections are counted once, and those that are alike beside all others are one.
        members, terms = self._rows(), []
        picked = range(members.shape[1])
        for pick, *picks in product(picked, repeat=1 + rows.shape[1]):
            here = members[others, pick]
            chosen = np.stack([members[rows[:, k], p] for k, p in enumerate(picks)], axis=-1)
            if not here.any() or not chosen.all(axis=(1, 2)).any():
                continue
            axes = [self._count_along(axis, here[:, axis], chosen[:, axis]) for axis in self._axes]
            tuples, numbers = _list_tuples([codes for _, codes in axes], [sizes.shape[1] for sizes, _ in axes])
            columns = (sizes[:, codes] for (sizes, _), codes in zip(axes, tuples.T, strict=True))
            terms.append((reduce(np.multiply, columns), numbers))
        return terms

    def _count_along(self, axis: int, others: IntArray, rows: IntArray) -> tuple[IntArray, IntArray]:
        """Sizes along an axis of sets' meets with other sets, (others, columns), and each meet's column."""
        base = len(self._axis_spans[axis])
        meets, numbers = _list_tuples(list(rows.T), [base] * rows.shape[1])
        sets, places = np.unique(others, return_inverse=True)
        sizes = self._axis_sizes(axis, [*meets.T, sets[:, None]])
        distinct, alike = np.unique(sizes, axis=1, return_inverse=True)
        return distinct[places], alike.reshape(-1)[numbers]

    def _rows(self) -> IntArray:
        """Axis-set numbers of every region's members: (regions, most members, rank)."""
        known, new = len(self._listed), self._members[len(self._listed) :]
        if new:
            most = max(self._listed.shape[1], *map(len, new))
            rows = np.zeros((len(self._members), most, len(self._axes)), np.int64)
            rows[:known, : self._listed.shape[1]] = self._listed
            for k, members in enumerate(new, known):
                for j, row in enumerate(members):
                    rows[k, j] = row
            self._listed = rows
        return self._listed

    def _axis_sizes(self, axis: int, ids: Sequence[IntArray]) -> IntArray:
        """Sizes of intersections of one axis' sets: of intervals from their bounds, of others counted once."""
        spans = self._axis_spans[axis]
        bounds = np.array([span or (0, 0) for span in spans], np.int64)
        sizes: IntArray = reduce(np.minimum, [bounds[i, 1] for i in ids]) - reduce(
            np.maximum, [bounds[i, 0] for i in ids]
        )
        np.maximum(sizes, 0, out=sizes)
        odd = np.array([span is None for span in spans])
        if odd.any():
            mixed = reduce(np.logical_or, [odd[i] for i in ids])
            sizes[mixed] = self._count_common(axis, [np.broadcast_to(i, sizes.shape)[mixed] for i in ids])
        return sizes

    def _count_common(self, axis: int, ids: Sequence[IntArray]) -> IntArray:
        """Sizes of intersections of sets of an axis that are not intervals: each combination is counted once."""
        # Many sets are met in pairs. What comes out is numbered as a set of its own: there are far fewer of these than
        # combinations, since most share nothing, or the same.
        while len(ids) > 2:
            one, two, *rest = ids
            ids = [self._number_meets(axis, one, two), *rest]
        if len(ids) == 1:
            ids = [ids[0], ids[0]]
        base = len(self._axis_spans[axis])
        if base**2 > tuning.MAX_CODES:
            return self._count_sparsely(axis, ids)
        codes, table = ids[0] * base + ids[1], self._pair_table(axis)
        wanted = np.zeros(len(table), bool)
        wanted[codes] = True
        new = np.flatnonzero(wanted & (table < 0))
        table[new] = self._count_pairs(axis, new // base, new % base)
        found: IntArray = table[codes]
        return found

    def _pair_table(self, axis: int) -> IntArray:
        """The table of an axis' pairs as one row, with room for the sets that came since it was asked last."""
        base, known = len(self._axis_spans[axis]), self._pairs[axis]
        if len(known) < base:  # they are numbered behind those that were there
            self._pairs[axis] = np.full((base, base), -1)
            self._pairs[axis][: len(known), : len(known)] = known
        return self._pairs[axis].ravel()

    def _count_sparsely(self, axis: int, ids: Sequence[IntArray]) -> IntArray:
        """As `_count_common`, where most combinations do not occur: set by set, those that do are numbered anew."""
        rows, codes = _list_tuples(ids, [len(self._axis_spans[axis])] * len(ids))
        return self._count_pairs(axis, *rows.T)[codes]

    def _count_pairs(self, axis: int, one: IntArray, two: IntArray) -> IntArray:
        """Cells that pairs of sets of an axis share, by their numbers: of many, single nests are counted together."""
        if len(one) < tuning.MIN_BATCHED:
            return np.array([self._count_set_common(axis, row) for row in zip(one.tolist(), two.tolist(), strict=True)])
        many, places = self._batch(axis)
        out = np.zeros(len(one), np.int64)
        at = places[one], places[two]
        single = (at[0] >= 0) & (at[1] >= 0)
        out[single] = many[at[0][single]].count_common(many[at[1][single]])
        for k in np.flatnonzero(~single).tolist():
            out[k] = self._count_set_common(axis, (int(one[k]), int(two[k])))
        return out

    def _batch(self, axis: int) -> tuple[RegionArray, IntArray]:
        """The sets of an axis that are single nests as one batch, and the place of each set in it, -1 for others."""
        every = self._axis_list[axis]
        if axis not in self._batches or len(self._batches[axis][1]) < len(every):
            single = [(k, sett) for k, sett in enumerate(every) if isinstance(sett, Sett)]
            places = np.full(len(every), -1)
            places[[k for k, _ in single]] = range(len(single))
            box = (self.shape[axis] if self.shape else 1,)
            self._batches[axis] = RegionArray.of(Region(box, (sett,)) for _, sett in single), places
        return self._batches[axis]

    def _count_set_common(self, axis: int, row: Sequence[int]) -> int:
        """Cells that two sets of an axis share, in closed form."""
        key = axis, frozenset(row)
        if key not in self._counts:
            one, two = (self._axis_list[axis][k] for k in row)
            self._counts[key] = one.count_common(two, 0, self.shape[axis])
        return self._counts[key]

    def _number_meets(self, axis: int, one: IntArray, two: IntArray) -> IntArray:
        """The numbers of what pairs of sets of an axis have in common."""
        rows, codes = _list_tuples([one, two], [len(self._axis_spans[axis])] * 2)
        found: IntArray = np.array([self._number_meet(axis, *row) for row in rows.tolist()], np.int64)[codes]
        return found

    def _number_meet(self, axis: int, a: int, b: int) -> int:
        """The number of the set that two sets of an axis have in common."""
        key = axis, min(a, b), max(a, b)
        if key not in self._meets:
            one, two = self._axis_list[axis][a], self._axis_list[axis][b]
            if a == b or min(a, b) == 0:
                self._meets[key] = min(a, b)
            else:
                common = (one & two).setts(within=(0, self.shape[axis]))
                whole = common.members[0] if len(common.members) == 1 else common
                self._meets[key] = self._axis_number(axis, whole, None) if common.members else 0
        return self._meets[key]


def _list_tuples(columns: Sequence[IntArray], sizes: Sequence[int]) -> tuple[IntArray, IntArray]:
    """The distinct tuples of some numbers below sizes, one row for each, and where each tuple's row is."""
    rows, codes = np.zeros((1, 0), np.int64), np.zeros((), np.int64)
    for column, size in zip(columns, sizes, strict=True):
        found, codes = _renumber(codes * size + column, len(rows) * size)
        rows = np.column_stack([rows[found // size], found % size])
    return rows, codes


def _renumber(codes: IntArray, many: int) -> tuple[IntArray, IntArray]:
    """The distinct ones of some codes below `many`, ascending, and for each code its number among them."""
    if many > tuning.MAX_CODES:
        found, numbers = np.unique(codes, return_inverse=True)
        return found, numbers.reshape(codes.shape)
    occurs = np.zeros(many, bool)
    occurs[codes] = True
    return np.flatnonzero(occurs), (np.cumsum(occurs) - 1)[codes]


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

    The axes are those of the classes: of the holders, and of each consumer in turn.
    """

    cells: IntArray
    """Cells that devices receive, each counted once for each device."""
    fresh: IntArray
    """By kind of device, then by class: the most cells that one needs and that no consumer had asked for before."""
    busiest: IntArray
    """By port, then by class: the most cells that one device sends through it, or receives."""
    rounds: IntArray
    """By port, then by class: the most messages that one device sends through it, or receives."""


def count_transfers(table: RegionTable, held: Held, needs: Sequence[IntArray], mesh: Mesh) -> Transfers:
    """Cells that devices exchange for the last of several consumers of a tensor.

    A device that was given N₁, …, Nₖ₋₁ before needs N_k − ∪ N_i now. Of each group of devices that hold the same cells
    it reads from one, as `list_senders` says, unless it is of the group itself. So a device that holds H sends it
    |(N_k − ∪ N_i) ∩ H| cells, and tensors in partial results need nothing else: each part is a group of its own.

    Parameters
    ----------
    table : RegionTable
    held : Held
    needs : sequence of arrays (classes_k, devices)
        Region numbers that the consumers need, in the order in which they run.
    mesh : Mesh
    """
    if len(needs) == 1 and mesh.size >= tuning.MIN_ALONG_DEVICES:
        return _count_one_consumer(table, held, needs[0], mesh)
    return _count_by_pairs(table, held, needs, mesh)


def _count_one_consumer(table: RegionTable, held: Held, need: IntArray, mesh: Mesh) -> Transfers:
    """As `count_transfers` of one consumer: along the axes of the mesh where layouts are products along them."""
    has, wants = table.list_sets(held.numbers), table.list_sets(need)
    for finely in (False, True):
        spreads = Spreads(mesh, finely=finely)
        holders = [spreads.find(*one) for one in zip(has, held.groups, strict=True)]
        consumers = [spreads.find(sets) for sets in wants]
        if None not in holders and None not in consumers:
            break
    (mine, others), (theirs, rest) = _part(holders), _part(consumers)
    shape, ports = (len(holders), len(consumers)), len(mesh.ports)
    cells, (busiest, rounds) = np.zeros(shape, np.int64), np.zeros((2, ports, *shape), np.int64)

    def put(rows: IntArray, columns: IntArray, found: Exchanged | Transfers) -> None:
        at = np.ix_(rows, columns)
        cells[at] = found.cells
        for port in range(ports):
            busiest[port][at], rounds[port][at] = found.busiest[port], found.rounds[port]

    if mine.size and theirs.size:
        first, second = ([one for one in each if one is not None] for each in (holders, consumers))
        put(mine, theirs, count_along(first, second, spreads, table.count_along_axis))
    for rows, columns in ((others, theirs), (np.arange(len(holders)), rest)):
        if rows.size and columns.size:
            few = Held(held.numbers[rows], held.parts[rows], held.groups[rows])
            put(rows, columns, _count_by_pairs(table, few, [need[columns]], mesh))
    fresh = _list_most(table.sizes(need), mesh)
    return Transfers(cells, np.broadcast_to(fresh[:, None, :], (len(fresh), *shape)), busiest, rounds)


def _part(found: Sequence[object]) -> tuple[IntArray, IntArray]:
    """The places of what was found, and of what was not."""
    there = np.array([one is not None for one in found], bool)
    return np.flatnonzero(there), np.flatnonzero(~there)


def _list_most(cells: IntArray, mesh: Mesh) -> IntArray:
    """The most cells that a device of each kind has, of cells by (…, device)."""
    by_kind = [cells[..., list(mine)] for _, mine in mesh.kinds] if mesh.differs else [cells]
    return np.stack([mine.max(axis=-1) for mine in by_kind])


def _count_by_pairs(table: RegionTable, held: Held, needs: Sequence[IntArray], mesh: Mesh) -> Transfers:
    """As `count_transfers`, from every device to every other one."""
    # The cells that two devices exchange depend on what one holds and what the other needs, of which there are few
    # different ones: a matrix is counted once, and the tables of all classes look them up.
    #
    #       needed  u0 u1 u2 …          class of holders a:  h0 h1 h2 h3      by sender s and receiver d, masked by who
    #     held h0    4  0  2            of consumers b:      u0 u0 u1 u2      reads from whom:  counts[h_s, u_d]
    #          h1    0  4  2            sums over d: what s sends; over s: what d receives
    spread = [_spread(need, k, len(needs)) for k, need in enumerate(needs)]
    wanted, at = _list_tuples(spread, [len(table.regions)] * len(needs))
    holding, holds = np.unique(held.numbers, return_inverse=True)
    whole = table.number(DisjointRegions.full(table.shape))
    counts, numbers = _count_fresh(table, wanted, np.append(holding, whole))
    at, fresh = numbers[at], counts[-1]
    ports = number_ports(mesh)
    if int(counts.max(initial=0)) * mesh.size < np.iinfo(np.int32).max:
        counts = counts.astype(np.int32)  # half as much to go through; sums over devices fit too
    classes, flat = len(held.numbers), at.reshape(-1, mesh.size)
    cells = np.zeros((classes, len(flat)), np.int64)
    busiest = np.zeros((len(mesh.ports), classes, len(flat)), np.int64)
    rounds = np.zeros_like(busiest)
    step = max(1, tuning.MAX_EXCHANGES // mesh.size**2)
    for row, (groups, mine) in enumerate(zip(held.groups, holds.reshape(held.numbers.shape), strict=True)):
        sends = list_senders(groups.tolist(), mesh)
        links = [sends & (ports == port) for port in range(len(mesh.ports))]
        for first in range(0, len(flat), step):
            some = slice(first, first + step)
            exchanged = counts[mine][:, flat[some]]  # by sender, class of consumers, receiver
            for port, link in enumerate(links):
                through = exchanged * link[:, None, :]
                received = through.sum(axis=0)
                cells[row, some] += received.sum(axis=-1)
                busiest[port, row, some] = np.maximum(through.sum(axis=-1).max(axis=0), received.max(axis=-1))
                messages = through > 0
                sent, got = messages.sum(axis=-1).max(axis=0), messages.sum(axis=0).max(axis=-1)
                rounds[port, row, some] = np.maximum(sent, got)
    shape = (classes, *at.shape[:-1])
    most = _list_most(fresh[at], mesh)
    most = np.broadcast_to(most[:, None], (len(most), *shape))
    return Transfers(cells.reshape(shape), most, busiest.reshape(-1, *shape), rounds.reshape(-1, *shape))


def _spread(numbers: IntArray, axis: int, count: int) -> IntArray:
    """Reshape (classes, devices) so that classes lie along `axis` of `count` class axes."""
    shape = [1] * count + [numbers.shape[1]]
    shape[axis] = numbers.shape[0]
    return numbers.reshape(shape)


def _count_fresh(table: RegionTable, wanted: IntArray, others: IntArray) -> tuple[IntArray, IntArray]:
    """|(last − ∪ earlier) ∩ other| for rows of regions, by inclusion and exclusion.

    Returns
    -------
    counts, numbers : arrays (others, columns) and (rows,)
        What a row shares with other regions is in the column of its number.
    """
    *earlier, last = range(wanted.shape[1])
    signed: list[tuple[int, IntArray, IntArray]] = []
    for many in range(len(earlier) + 1):
        for some in combinations(earlier, many):
            signed += [((-1) ** many, *term) for term in table.count_meets(wanted[:, [*some, last]], others)]
    tuples, numbers = _list_tuples([n for _, _, n in signed], [sizes.shape[1] for _, sizes, _ in signed])
    counts = np.zeros((len(others), len(tuples)), np.int64)
    for (sign, sizes, _), column in zip(signed, tuples.T, strict=True):
        counts += sign * sizes[:, column]
    return counts, np.broadcast_to(numbers, wanted.shape[:1])


def transfer_ticks(busiest: IntArray, rounds: IntArray, itemsize: int | IntArray, mesh: Mesh) -> IntArray:
    """Modeled time of transfer stages, in picoseconds: the slowest of the ports, which work at the same time.

    A port takes its latency for each round of messages, and the bytes of the device that sends or receives the most
    through it. Messages of which no device sends, nor receives, more than k are sent in k rounds: in each round every
    device sends at most one and receives at most one, as the edges of a bipartite graph are colored (Kőnig 1916).

    Parameters
    ----------
    busiest, rounds : arrays of int64, (ports, …)
        As in `Transfers`.
    itemsize : int or array that broadcasts to the stages
        Bytes of a cell.
    mesh : Mesh
    """
    seconds = np.zeros(busiest.shape[1:])
    for link, most, messages in zip(mesh.ports, busiest, rounds, strict=True):
        nbytes = most.astype(np.float64) * itemsize
        seconds = np.maximum(seconds, messages * link.latency_seconds + nbytes / link.nbytes_per_second)
    return to_ticks(seconds)


def merge_ticks(fresh: IntArray, parts: IntArray, itemsize: int | IntArray, mesh: Mesh) -> IntArray:
    """Modeled time to merge partial results: every part is read once, at the memory's bandwidth of the slowest device.

    Parameters
    ----------
    fresh : array of int64, (kinds of devices, …)
        The most cells that a device of each kind merges.
    parts, itemsize : arrays that broadcast to the stages
    mesh : Mesh
    """
    slowest = np.zeros(fresh.shape[1:])
    for (device, _), cells in zip(mesh.kinds, fresh, strict=True):
        nbytes = parts * (cells.astype(np.float64) * itemsize)
        seconds = device.launch_seconds + nbytes / device.memory_nbytes_per_second
        slowest = np.maximum(slowest, np.where((parts > 1) & (cells > 0), seconds, 0.0))
    return to_ticks(slowest)


def compute_seconds(
    flop: NDArray[np.float64],
    nbytes: IntArray,
    mesh: Mesh,
    launches: int | IntArray = 1,
    *,
    operands: int = 0,
    product: bool = True,
    copied: int | IntArray = 0,
) -> NDArray[np.float64]:
    """Modeled time of shards: their launches, and their arithmetic or their memory traffic, whichever takes longer.

    Parameters
    ----------
    flop, nbytes : arrays (…, devices)
    mesh : Mesh
    launches : int or array that broadcasts to them
    operands : int
        How many a shard reads and writes.
    product : bool
        Whether the operator is one, see `is_product`.
    copied : int or array that broadcasts to them
        Bytes that a shard must write anew before it can read them, see `count_copied`.
    """
    arithmetic = np.array([d.flop_per_second if product else d.cell_rate for d in mesh.devices])
    memory = np.array([d.memory_nbytes_per_second for d in mesh.devices])
    start = np.array([d.launch_seconds + operands * d.operand_seconds for d in mesh.devices])
    seconds: NDArray[np.float64] = launches * start + np.maximum(flop / arithmetic, nbytes / memory) + copied / memory
    return seconds


def is_product(signature: Signature, flop: float, cells: int) -> bool:
    """Whether an operator does arithmetic on what it has read before, as products and convolutions do.

    These sum over an axis along which at least two operands are read, or do very much with each cell, such as an
    attention, whose keys every query reads. What others do to a cell takes as long as going through it.

    Parameters
    ----------
    signature : Signature
    flop : float
        Of the whole index space.
    cells : int
        Of all operands together.
    """
    reads = [_list_axes(each) for each in signature.inputs]
    summed = any(sum(axis in mine for mine in reads) > 1 for axis in signature.reductions)
    return summed or flop > tuning.PRODUCT_FLOP_A_CELL * cells


def _list_axes(operand: Operand) -> set[int]:
    """The index axes along which an operand's cells are others."""
    out = set()
    for one in (operand.projection, *operand.also):
        columns = [*range(one.index_rank), *(axis for axis, _ in one.splits for _ in range(2))]  # c//q and c%q
        out |= {columns[k] for row in one.map.matrix for k, factor in enumerate(row) if factor}
    return out


def to_ticks(seconds: NDArray[np.float64]) -> IntArray:
    """Seconds as whole picoseconds."""
    if seconds.size and float(seconds.max()) > tuning.MAX_STAGE_SECONDS:
        raise ValueError(
            f"a stage is modeled to take {float(seconds.max()):.3g} s, more than the {tuning.MAX_STAGE_SECONDS:.0f} s "
            "that are counted exactly; check the mesh's rates"
        )
    return cast(IntArray, np.rint(seconds * TICKS_PER_SECOND).astype(np.int64))
