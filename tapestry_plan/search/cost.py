"""Exact costs: cells needed minus cells held, counted on regions without expanding them.

All regions of one tensor are unions of products of one-dimensional sets. Each distinct set of an axis gets a
number, and the size of an intersection of products is the product of the sizes along the axes. So the bytes of
thousands of pairs of layouts are array arithmetic, at a cost that does not depend on the tensor's size.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from itertools import combinations, product
from typing import Any, cast

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from tapestry_plan.search import tuning
from tapestry_plan.search.elimination import IntArray
from tapestry_plan.steps import Mesh
from tapestry_sets.digits import point_of
from tapestry_sets.integers import Sett
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
    _axis_setts: list[dict[Sett | None, int]] = field(default_factory=list)
    _axis_spans: list[list[tuple[int, int] | None]] = field(default_factory=list)
    _members: list[list[tuple[int, ...]]] = field(default_factory=list)
    _counts: dict[tuple[int, frozenset[int]], int] = field(default_factory=dict)
    _listed: IntArray = field(default_factory=lambda: np.zeros((0, 1, 1), np.int64))
    _extents: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        # Number 0 of every axis is the empty set: an absent member then counts nothing.
        # A tensor of rank 0 has one cell, which an axis of extent 1 counts.
        self._extents = self.shape or (1,)
        self._axis_setts = [{None: 0} for _ in self._extents]
        self._axis_spans = [[(0, 0)] for _ in self._extents]

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
        if not self.shape:
            return (self._axis_number(0, Sett(), (0, 1)),)
        axes = zip(member.setts, member.spans, strict=True)
        return tuple(self._axis_number(axis, sett, span) for axis, (sett, span) in enumerate(axes))

    def _axis_number(self, axis: int, sett: Sett, span: tuple[int, int] | None) -> int:
        numbers = self._axis_setts[axis]
        if sett not in numbers:
            numbers[sett] = len(numbers)
            self._axis_spans[axis].append(span)
        return numbers[sett]

    def sizes(self, *numbers: IntArray) -> IntArray:
        """|R_a ∩ R_b ∩ …| for arrays of region numbers that broadcast together, in cells."""
        shape = np.broadcast_shapes(*(n.shape for n in numbers))
        total = np.zeros(shape, np.int64)
        rows = self._rows()
        for picks in product(range(rows.shape[1]), repeat=len(numbers)):
            chosen = [rows[n, pick] for n, pick in zip(numbers, picks, strict=True)]
            cells = np.ones(shape, np.int64)
            for axis in range(len(self._extents)):
                cells *= self._axis_sizes(axis, [c[..., axis] for c in chosen])
            total += cells
        return total

    def _rows(self) -> IntArray:
        """Axis-set numbers of every region's members: (regions, most members, rank)."""
        if len(self._listed) != len(self._members):
            most = max(map(len, self._members))
            rows = np.zeros((len(self._members), max(most, 1), len(self._extents)), np.int64)
            for k, members in enumerate(self._members):
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
        base = len(self._axis_spans[axis])
        if base ** len(ids) > tuning.MAX_CODES:
            return self._count_sparsely(axis, ids)
        codes = reduce(lambda code, i: code * base + i, ids)
        table = np.zeros(base ** len(ids), np.int64)
        table[codes] = 1
        for code in np.flatnonzero(table).tolist():
            table[code] = self._count_set_common(axis, point_of(code, (base,) * len(ids)))
        return cast(IntArray, table[codes])

    def _count_sparsely(self, axis: int, ids: Sequence[IntArray]) -> IntArray:
        """As `_count_common`, where most combinations do not occur: set by set, those that do are numbered anew."""
        base = len(self._axis_spans[axis])
        rows, codes = np.arange(base)[:, None], ids[0]
        for i in ids[1:]:
            found, codes = _renumber(codes * base + i, len(rows) * base)
            rows = np.column_stack([rows[found // base], found % base])
        return np.array([self._count_set_common(axis, row) for row in rows.tolist()], np.int64)[codes]

    def _count_set_common(self, axis: int, row: Sequence[int]) -> int:
        """Cells that some sets of an axis share, in closed form."""
        key = axis, frozenset(row)
        if key not in self._counts:
            sets = list(self._axis_setts[axis])
            chosen = [sett for k in sorted(key[1]) if (sett := sets[k]) is not None]
            self._counts[key] = 0 if 0 in row else _count(chosen, self._extents[axis])
        return self._counts[key]


def _renumber(codes: IntArray, many: int) -> tuple[IntArray, IntArray]:
    """The distinct ones of some codes below `many`, ascending, and for each code its number among them."""
    if many > tuning.MAX_CODES:
        found, numbers = np.unique(codes, return_inverse=True)
        return found, numbers.reshape(codes.shape)
    occurs = np.zeros(many, bool)
    occurs[codes] = True
    return np.flatnonzero(occurs), (np.cumsum(occurs) - 1)[codes]


def _count(sets: Sequence[Sett], extent: int) -> int:
    """Elements of [0, extent) that all the sets hold."""
    if len(sets) == 1:
        return sets[0].count(0, extent)
    if len(sets) == 2:
        return sets[0].count_common(sets[1], 0, extent)
    first, second, *rest = sets
    common = (first & second).setts(within=(0, extent))
    return sum(_count([member, *rest], extent) for member in common.members)


class Held(Struct, frozen=True):
    """The cells that the layouts of a producer leave on the devices, by class of layouts.

    Parameters
    ----------
    numbers : array of int64, (classes, devices)
        Region number held by each device.
    parts : array of int64, (classes,)
        Number of partial results that make up the tensor, 1 for complete values.
    """

    numbers: IntArray
    parts: IntArray


def count_received(table: RegionTable, held: Held, needs: Sequence[IntArray]) -> tuple[IntArray, IntArray]:
    """Cells that each device receives for the last of several consumers of a tensor.

    A device that holds H and was given N₁, …, Nₖ₋₁ before receives |N_k − H − ∪ N_i| cells; of a tensor in r
    partial results, r·|N_k − ∪ N_i| − |(N_k − ∪ N_i) ∩ H|.

    Parameters
    ----------
    table : RegionTable
    held : Held
    needs : sequence of arrays (classes_k, devices)
        Region numbers that the consumers need, in the order in which they run.

    Returns
    -------
    received, fresh : arrays of int64, (held classes, classes_1, …, classes_k, devices)
        Cells that come from other devices, and cells |N_k − ∪ N_i| that no consumer had asked for before.
    """
    count = len(needs)
    last = _spread(needs[-1], count, count)
    earlier = [_spread(need, k + 1, count) for k, need in enumerate(needs[:-1])]
    fresh = _count_without(table, [last], earlier)
    holder = _spread(held.numbers, 0, count)
    parts = held.parts.reshape((-1,) + (1,) * (count + 1))
    return parts * fresh - _count_without(table, [last, holder], earlier), fresh


def _spread(numbers: IntArray, axis: int, count: int) -> IntArray:
    """Reshape (classes, devices) so that classes lie along `axis` of count + 1 class axes."""
    shape = [1] * (count + 1) + [numbers.shape[1]]
    shape[axis] = numbers.shape[0]
    return numbers.reshape(shape)


def _count_without(table: RegionTable, meet: Sequence[IntArray], taken: Sequence[IntArray]) -> IntArray:
    """|∩ meet − ∪ taken| by inclusion and exclusion."""
    total: IntArray = table.sizes(*meet)
    for k in range(1, len(taken) + 1):
        for some in combinations(taken, k):
            total = total + (-1) ** k * table.sizes(*meet, *some)
    return total


def transfer_ticks(cells: IntArray, itemsize: int | IntArray, mesh: Mesh) -> IntArray:
    """Modeled time of one transfer stage, in picoseconds: latency plus the busiest receiver's bytes.

    The bytes of a cell are one number, or broadcast to the stages.
    """
    most = cells.max(axis=-1).astype(np.float64) * itemsize
    seconds = np.where(most > 0, mesh.link.latency_seconds + most / mesh.link.nbytes_per_second, 0.0)
    return to_ticks(seconds)


def merge_ticks(cells: IntArray, parts: IntArray, itemsize: int | IntArray, mesh: Mesh) -> IntArray:
    """Modeled time to merge partial results: every part is read once, at the memory's bandwidth."""
    most = cells.max(axis=-1).astype(np.float64) * itemsize
    seconds = np.where(parts > 1, parts * most / mesh.device.memory_nbytes_per_second, 0.0)
    return to_ticks(seconds)


def compute_seconds(flop: float, nbytes: int, mesh: Mesh) -> float:
    """Modeled time of one shard: its arithmetic or its memory traffic, whichever takes longer."""
    return max(flop / mesh.device.flop_per_second, nbytes / mesh.device.memory_nbytes_per_second)


def to_ticks(seconds: NDArray[np.float64]) -> IntArray:
    """Seconds as whole picoseconds."""
    if seconds.size and float(seconds.max()) > tuning.MAX_STAGE_SECONDS:
        raise ValueError(
            f"a stage is modeled to take {float(seconds.max()):.3g} s, more than the {tuning.MAX_STAGE_SECONDS:.0f} s "
            "that are counted exactly; check the mesh's rates"
        )
    return cast(IntArray, np.rint(seconds * TICKS_PER_SECOND).astype(np.int64))


def unite(regions: Iterable[DisjointRegions], shape: tuple[int, ...]) -> DisjointRegions:
    """The union of regions of one tensor."""
    total = DisjointRegions(shape)
    for region in regions:
        if not region.size or region <= total:
            continue
        total = region if total <= region else total | region
    return total
