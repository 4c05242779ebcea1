"""Exact costs: cells needed minus cells held, counted on regions without expanding them.

All regions of one tensor are unions of products of one-dimensional sets. Each distinct set of an axis gets a
number, and the size of an intersection of products is the product of the sizes along the axes. So the bytes of
thousands of pairs of layouts are array arithmetic, at a cost that does not depend on the tensor's size.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial, reduce
from itertools import product
from math import prod
from typing import Any, cast

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from tapestry_plan.ir import Attrs, Op, Signature
from tapestry_plan.rewrite import open_block
from tapestry_plan.search import tuning
from tapestry_plan.search.prices.along import Exchanged, Spreads, count_along, list_own, part_operands
from tapestry_plan.search.prices.runs import RunReads
from tapestry_plan.search.sums.elimination import IntArray
from tapestry_plan.steps import MAX_STAGE_SECONDS, Mesh, list_senders, number_ports, unite
from tapestry_sets.batch import RegionArray
from tapestry_sets.integers import DisjointSetts, Sett
from tapestry_sets.regions import Box, DisjointRegions, Region

Flags = NDArray[np.bool_]
TICKS_PER_SECOND = 10**12
"""Modeled time is counted in whole picoseconds, so that sums and comparisons are exact."""


class Meets(Struct, frozen=True):
    """Intersections of some regions of a tensor, each a union of products of sets of its axes.

    Parameters
    ----------
    members : array of int64, (different ones, members, axes)
        By union and axis the numbers of sets, all 0 behind the last member.
    at : array of int64, (meets,)
        Which of these each meet is.
    """

    members: IntArray
    at: IntArray


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
    _many: IntArray = field(default_factory=lambda: np.zeros(0, np.int64))
    """The numbers of members, as far as they were asked for."""
    _axes: range = range(0)
    _pairs: list[IntArray] = field(default_factory=list)
    """Of each axis, by two numbers of sets: cells that both have, -1 where nobody has asked."""
    _met: list[IntArray] = field(default_factory=list)
    """Likewise: the number of what both have."""
    _spans_of: list[dict[tuple[int, int], int]] = field(default_factory=list)
    """Of each axis the intervals, by first cell and end."""
    _bounds: dict[int, tuple[IntArray, NDArray[np.bool_]]] = field(default_factory=dict)
    _batches: dict[int, tuple[RegionArray, IntArray]] = field(default_factory=dict)
    _spreads: dict[tuple[tuple[int, ...], bool], Spreads] = field(default_factory=dict)
    _hulls: IntArray = field(default_factory=lambda: np.zeros((0, 1, 2), np.int64))
    _followed: dict[tuple[int, int, int], int] = field(default_factory=dict)
    """By an axis and the numbers of two of its sets: places of the one whose next one is of the other."""
    _places: dict[tuple[int, int], NDArray[np.bool_]] = field(default_factory=dict)
    """By an axis and the number of a set which places it has, of short axes."""
    _extents: list[tuple[int, ...]] = field(default_factory=list)
    """By region the extents of the box around it, with 0 for one more axis where it is not a box."""
    _boxes: dict[tuple[float | None, Box], int] = field(default_factory=dict)
    """Padded blocks, with what they are padded with, by number."""
    _within: dict[tuple[int, int], bool] = field(default_factory=dict)
    """By two regions whether the one has no cell that the other lacks."""

    def __post_init__(self) -> None:
        # Number 0 of every axis is the empty set: an absent member then counts nothing.
        # A tensor of rank 0 has one cell, which an axis of extent 1 counts.
        self._axes = range(len(self.shape) or 1)
        self._axis_setts = [{} for _ in self._axes]
        self._axis_list = [[Sett.empty()] for _ in self._axes]
        self._axis_spans = [[(0, 0)] for _ in self._axes]
        self._pairs, self._met = ([np.zeros((0, 0), np.int64) for _ in self._axes] for _ in range(2))
        self._spans_of = [{} for _ in self._axes]

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
            if span is not None:
                self._spans_of[axis][span] = numbers[sett]
        return numbers[sett]

    def is_within(self, one: int, other: int) -> bool:
        """Whether a region has no cell that another lacks, by their numbers."""
        found = self._within.get((one, other))
        if found is None:
            found = self._within[one, other] = one == other or self.regions[one] <= self.regions[other]
        return found

    def sizes(self, *numbers: IntArray) -> IntArray:
        """|R_a ∩ R_b ∩ …| for arrays of region numbers that broadcast together, in cells."""
        shape = np.broadcast_shapes(*(n.shape for n in numbers))
        total = np.zeros(shape, np.int64)
        rows = self._rows()
        # Other regions of the table may have many members; those that are asked about say how far to look.
        many = self._count_members()
        for picks in product(*(range(int(many[n].max()) if n.size else 0) for n in numbers)):
            chosen = [rows[n, pick] for n, pick in zip(numbers, picks, strict=True)]
            if not all(each.any() for each in chosen):
                continue  # none of these regions has so many members
            cells = np.ones(shape, np.int64)
            for axis in self._axes:
                cells *= self._axis_sizes(axis, [c[..., axis] for c in chosen])
            total += cells
        return total

    def number_box(self, fill: float | None, box: Box) -> int:
        """The number of a padded block, with what it is padded with."""
        return self._boxes.setdefault((fill, box), len(self._boxes))

    def hold_boxes(self, one: IntArray, two: IntArray) -> Flags:
        """Whether padded blocks have all of others, padded with the same, by their numbers."""
        boxes = list(self._boxes)
        pairs, at = _list_tuples([one, two], [len(boxes)] * 2)
        found = [boxes[a][0] == boxes[b][0] and boxes[a][1].contains(boxes[b][1]) for a, b in pairs.tolist()]
        return np.array(found, bool)[at]

    def list_extents(self, numbers: IntArray) -> tuple[IntArray, Flags]:
        """Extents of the boxes around regions, (…, axes), and which of them are boxes."""
        for region in self.regions[len(self._extents) :]:
            bounds = region.bounds()
            shape = () if bounds is None else tuple(b - a for a, b in zip(*bounds, strict=True))
            shape = shape if bounds is not None else (0,) * len(self.shape)
            is_box = bounds is not None and prod(shape) == region.size
            self._extents.append((*shape, int(is_box)))
        every = np.array(self._extents, np.int64)[numbers]
        return every[..., :-1], every[..., -1] > 0

    def may_lie(self, made: IntArray, blocks: IntArray, ways: IntArray) -> Flags:
        """Whether what devices made may be made in blocks that have all of it, by region numbers that broadcast."""
        (mine, are_boxes), (theirs, _) = self.list_extents(made), self.list_extents(blocks)
        parted: Flags = (ways & PARTED) > 0
        flat: Flags = (ways & FLAT) > 0
        if self.shape:
            parted = parted & (mine[..., -1] > 1)
            run: Flags = np.ones(np.broadcast_shapes(made.shape, blocks.shape), bool)
            tails = [np.cumprod(each[..., :0:-1], axis=-1)[..., ::-1] for each in (mine, theirs)]
            for axis in range(len(self.shape) - 1):
                run &= (mine[..., axis] <= 1) | (tails[0][..., axis] == tails[1][..., axis])
            flat = flat & run
        # Over other index axes, where they are boxes, others may lie otherwise.
        loose = ((ways & (PARTED | FLAT)) > 0) & ~are_boxes
        return parted | flat | loose | ((ways & ANYHOW) > 0)

    def list_sets(self, numbers: IntArray) -> IntArray:
        """The sets whose product a region is, by number, (…, rank): 0 for nothing, -1 for no one product."""
        many = self._count_members()[numbers][..., None]
        sets: IntArray = np.where(many > 1, -1, self._rows()[numbers, 0])
        return sets

    def spread(self, shape: tuple[int, ...], finely: bool) -> Spreads:
        """The ways in which the tensor's axes are laid along the axes of a mesh of some shape."""
        return self._spreads.setdefault((shape, finely), Spreads(shape, finely=finely))

    def count_along_axis(self, axis: int, *sets: IntArray) -> IntArray:
        """Cells along an axis that sets of it have in common, by their numbers: arrays that broadcast."""
        return self._axis_sizes(axis, sets)

    def count_followed(self, axis: int, ones: Sequence[IntArray], others: Sequence[IntArray]) -> IntArray:
        """Cells along an axis that some sets of it have in common, and whose next one others have."""
        bounds, odd = self._list_bounds(axis)
        low, high = (reduce(pick, [bounds[i, k] for i in ones]) for k, pick in ((0, np.maximum), (1, np.minimum)))
        first, end = (reduce(pick, [bounds[i, k] for i in others]) for k, pick in ((0, np.maximum), (1, np.minimum)))
        steps: IntArray = np.maximum(np.minimum(high, end - 1) - np.maximum(low, first - 1), 0)
        if odd.any():
            mixed = reduce(np.logical_or, [odd[i] for i in (*ones, *others)])
            met = [
                reduce(partial(self._number_meets, axis), [np.broadcast_to(i, steps.shape)[mixed] for i in some])
                for some in (ones, others)
            ]
            rows, codes = _list_tuples(met, [len(self._axis_list[axis])] * 2)
            steps[mixed] = np.array([self._count_set_followed(axis, *row) for row in rows.tolist()], np.int64)[codes]
        return steps

    def _count_set_followed(self, axis: int, one: int, other: int) -> int:
        key = axis, one, other
        if key not in self._followed:
            last = (self.shape[axis] if self.shape else 1) - 1
            if last < tuning.MAX_LISTED_EXTENT:
                places = [self._list_places(axis, k) for k in (one, other)]
                self._followed[key] = int(np.count_nonzero(places[0][:-1] & places[1][1:]))
                return self._followed[key]
            mine, theirs = (self._axis_list[axis][k] for k in (one, other))
            self._followed[key] = mine.count_common(theirs.shift(-1), 0, last) if last > 0 else 0
        return self._followed[key]

    def _list_places(self, axis: int, number: int) -> Flags:
        """Which places of an axis a set has, each listed."""
        if (axis, number) not in self._places:
            sett, extent = self._axis_list[axis][number], self.shape[axis] if self.shape else 1
            has = self._places[axis, number] = np.zeros(extent, bool)
            for one in [sett] if isinstance(sett, Sett) else sett.members:
                has[Region((extent,), (one,)).points()[:, 0]] = True
        return self._places[axis, number]

    def has_place(self, axis: int, sets: Sequence[IntArray], at: IntArray) -> Flags:
        """Whether sets of an axis, by their numbers, all have a place on it."""
        bounds, odd = self._list_bounds(axis)
        has: Flags = reduce(np.logical_and, [(bounds[i, 0] <= at) & (at < bounds[i, 1]) | odd[i] for i in sets])
        has &= (at >= 0) & (at < (self.shape[axis] if self.shape else 1))
        for i in sets if odd.any() else ():
            numbers, places = (np.broadcast_to(each, has.shape) for each in (i, at))
            some = np.nonzero(has & odd[numbers])
            rows, codes = _list_tuples([numbers[some], places[some]], [len(bounds), max(1, *self.shape, 1)])
            found = [place in self._axis_list[axis][number] for number, place in rows.tolist()]
            has[some] = np.array(found, bool)[codes]
        return has

    def list_reaches(self, axis: int) -> IntArray:
        """By set of an axis a first place and an end between which it lies: the whole axis if it is not an interval."""
        bounds, odd = self._list_bounds(axis)
        found: IntArray = np.where(odd[:, None], np.array([0, self.shape[axis] if self.shape else 1]), bounds)
        return found

    def list_members(self, numbers: IntArray) -> IntArray:
        """By region the numbers of the sets whose products it is, (…, members, axes), all 0 behind the last one."""
        return _leave_out_missing(self._rows()[numbers])

    def list_hulls(self, numbers: IntArray) -> IntArray:
        """The boxes around regions, by first place and end, (…, axes, 2); all 0 for nothing."""
        new = [region.bounds() for region in self.regions[len(self._hulls) :]]
        if new:
            axes = len(self._axes)
            rows = [[(0, 0)] * axes if each is None else [*zip(*each, strict=True)] or [(0, 1)] for each in new]
            self._hulls = np.concatenate([self._hulls.reshape(-1, axes, 2), np.array(rows, np.int64)])
        return self._hulls[numbers]

    def take(self, numbers: IntArray) -> Meets:
        """Some regions by number, to be met with others."""
        found, at = _renumber(numbers, len(self.regions))
        return Meets(_leave_out_missing(self._rows()[found]), at)

    def meet(self, some: Meets, numbers: IntArray) -> Meets:
        """What each of some meets has in common with a region more, by number."""
        pairs, at = _list_tuples([some.at, numbers], [len(some.members), len(self.regions)])
        members = self._rows()
        step = max(1, tuning.MAX_EXCHANGES // (some.members.shape[1] * members.shape[1] * len(self._axes)))
        found = []
        for first in range(0, max(1, len(pairs)), step):
            one, two = pairs[first : first + step].T
            found.append(self._meet_members(some.members[one], _leave_out_missing(members[two])))
        most = max(each.shape[1] for each in found)
        every = [np.pad(each, ((0, 0), (0, most - each.shape[1]), (0, 0))) for each in found]
        distinct, alike = list_classes(np.concatenate(every).reshape(len(pairs), -1))
        return Meets(distinct.reshape(len(distinct), most, len(self._axes)), alike[at])

    def _meet_members(self, one: IntArray, two: IntArray) -> IntArray:
        """The members of intersections of unions, row by row: those of pairs of their members that are not empty."""
        shape = len(one), one.shape[1] * two.shape[1], len(self._axes)
        made = np.empty(shape, np.int64)
        for axis in self._axes:
            pairs = one[:, :, None, axis], two[:, None, :, axis]
            made[..., axis] = self._number_meets(axis, *np.broadcast_arrays(*pairs)).reshape(shape[:2])
        made[(made == 0).any(axis=-1)] = 0
        # Those that are there come first.
        order = np.argsort(made[..., 0] == 0, axis=1, kind="stable")
        return _leave_out_missing(np.take_along_axis(made, order[..., None], axis=1))

    def count_shared(self, meets: Meets, others: IntArray) -> tuple[IntArray, IntArray]:
        """Cells that meets share with each of some regions.

        Returns
        -------
        sizes, numbers : arrays (others, columns) and (meets,)
            What meet m shares with other region h is ``sizes[h, numbers[m]]``: meets that nothing tells apart have one
            column.
        """
        theirs = _leave_out_missing(self._rows()[others])
        cells = []
        for axis in self._axes:  # an axis has few different sets
            rows, here = np.unique(theirs[..., axis], return_inverse=True)
            columns, there = np.unique(meets.members[..., axis], return_inverse=True)
            sizes = self._axis_sizes(axis, [rows[:, None], columns])
            cells.append((sizes, here.reshape(theirs.shape[:2]), there.reshape(meets.members.shape[:2])))
        total = np.zeros((len(others), len(meets.members)), np.int64)
        for j, k in product(range(theirs.shape[1]), range(meets.members.shape[1])):
            some = np.flatnonzero(meets.members[:, k, 0])
            each = (sizes[here[:, j]][:, there[some, k]] for sizes, here, there in cells)
            total[:, some] += reduce(np.multiply, each)
        distinct, alike = list_classes(np.ascontiguousarray(total.T))
        return distinct.T, alike[meets.at]

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

    def _count_members(self) -> IntArray:
        """How many members each region has."""
        if len(self._many) < len(self._members):
            self._many = np.array([len(members) for members in self._members])
        return self._many if len(self._many) else np.zeros(1, np.int64)

    def _axis_sizes(self, axis: int, ids: Sequence[IntArray]) -> IntArray:
        """Sizes of intersections of one axis' sets: of intervals from their bounds, of others counted once."""
        bounds, odd = self._list_bounds(axis)
        sizes: IntArray = reduce(np.minimum, [bounds[i, 1] for i in ids]) - reduce(
            np.maximum, [bounds[i, 0] for i in ids]
        )
        np.maximum(sizes, 0, out=sizes)
        if odd.any():
            mixed = reduce(np.logical_or, [odd[i] for i in ids])
            sizes[mixed] = self._count_common(axis, [np.broadcast_to(i, sizes.shape)[mixed] for i in ids])
        return sizes

    def _list_bounds(self, axis: int) -> tuple[IntArray, NDArray[np.bool_]]:
        """First cells and ends of the sets of an axis, and which of them are not intervals, which have none."""
        spans, known = self._axis_spans[axis], self._bounds.get(axis)
        if known is None or len(known[0]) < len(spans):
            bounds = np.array([span or (0, 0) for span in spans], np.int64)
            known = self._bounds[axis] = bounds, np.array([span is None for span in spans])
        return known

    def _count_common(self, axis: int, ids: Sequence[IntArray]) -> IntArray:
        """Sizes of intersections of sets of an axis that are not intervals: each combination is counted once."""
        # Many sets are met in pairs. What comes out is numbered as a set of its own: there are far fewer of these than
        # combinations, since most share nothing, or the same.
        while len(ids) > 2:
            one, two, *rest = ids
            ids = [self._number_meets(axis, one, two), *rest]
        if len(ids) == 1:
            ids = [ids[0], ids[0]]
        base = _give_room(len(self._axis_spans[axis]))
        if base**2 > tuning.MAX_CODES:
            return self._count_sparsely(axis, ids)
        table = self._pairs[axis] = _grow(self._pairs[axis], base)
        flat, codes = table.reshape(-1), ids[0] * base + ids[1]
        new = _list_unknown(flat, codes)
        flat[new] = self._count_pairs(axis, new // base, new % base)
        found: IntArray = flat[codes]
        return found

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
        base = _give_room(len(self._axis_spans[axis]))
        found: IntArray
        if base**2 > tuning.MAX_CODES:
            rows, codes = _list_tuples([one, two], [base] * 2)
            found = np.array([self._number_meet(axis, *row) for row in rows.tolist()], np.int64)[codes]
            return found
        table = self._met[axis] = _grow(self._met[axis], base)
        flat, codes = table.reshape(-1), one * base + two
        new = _list_unknown(flat, codes)
        flat[new] = [self._number_meet(axis, *divmod(code, base)) for code in new.tolist()]
        found = flat[codes]
        return found

    def _number_meet(self, axis: int, a: int, b: int) -> int:
        """The number of the set that two sets of an axis have in common."""
        key = axis, min(a, b), max(a, b)
        if key not in self._meets:
            one, two = self._axis_list[axis][a], self._axis_list[axis][b]
            first, second = self._axis_spans[axis][a], self._axis_spans[axis][b]
            if a == b or min(a, b) == 0:
                self._meets[key] = min(a, b)
            elif first is not None and second is not None:
                low, high = max(first[0], second[0]), min(first[1], second[1])
                self._meets[key] = self._number_span(axis, low, high) if low < high else 0
            else:
                common = (one & two).setts(within=(0, self.shape[axis]))
                whole = common.members[0] if len(common.members) == 1 else common
                self._meets[key] = self._axis_number(axis, whole, None) if common.members else 0
        return self._meets[key]

    def _number_span(self, axis: int, low: int, high: int) -> int:
        """The number of an interval of an axis."""
        if (low, high) not in self._spans_of[axis]:
            side = Region.from_bounds((self.shape[axis],), (low,), (high,))
            self._spans_of[axis][low, high] = self._axis_number(axis, side.setts[0], (low, high))
        return self._spans_of[axis][low, high]


def _leave_out_missing(members: IntArray) -> IntArray:
    """Members of unions, (unions, members, axes), without columns in which nobody has one; one column at least."""
    there = (members[..., 0] != 0).any(axis=0)
    return members[:, : max(1, int(there.sum()))]


def _give_room(count: int) -> int:
    """Sides of a table for so many sets: it grows seldom, as they get more."""
    return max(16, 1 << (count - 1).bit_length())


def _grow(table: IntArray, side: int) -> IntArray:
    """A table of pairs with room for more, -1 where nobody has asked."""
    if len(table) >= side:
        return table
    out = np.full((side, side), -1)
    out[: len(table), : len(table)] = table
    return out


def _list_unknown(table: IntArray, codes: IntArray) -> IntArray:
    """The codes, each once, whose entries of a table nobody has asked for."""
    return np.unique(codes[table[codes] < 0])


def _list_tuples(columns: Sequence[IntArray], sizes: Sequence[int]) -> tuple[IntArray, IntArray]:
    """The distinct tuples of some numbers below sizes, one row for each, and where each tuple's row is."""
    rows, codes = np.zeros((1, 0), np.int64), np.zeros((), np.int64)
    for column, size in zip(columns, sizes, strict=True):
        found, codes = _renumber(codes * size + column, len(rows) * size)
        rows = np.column_stack([rows[found // size], found % size])
    return rows, codes


def list_classes(rows: IntArray) -> tuple[IntArray, IntArray]:
    """Distinct rows, and for each row the number of its class."""
    seen: dict[bytes, int] = {}
    classes = np.array([seen.setdefault(row.tobytes(), len(seen)) for row in rows], np.int64)
    first = np.unique(classes, return_index=True)[1]
    return rows[first], classes


def _renumber(codes: IntArray, many: int) -> tuple[IntArray, IntArray]:
    """The distinct ones of some codes below `many`, ascending, and for each code its number among them."""
    if many > min(tuning.MAX_CODES, tuning.CODES_A_NUMBER * codes.size):
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


PADDED, HOSTED, PARTED, FLAT, ANYHOW, BESIDE, FREE = (1 << k for k in range(7))
"""How an operand has its block of a tensor, as bits.

``PADDED``: it has cells outside of the tensor, and is gathered in any case; which box that is stands in front of the
bits. ``HOSTED``: it is made in the block of a view where the device has no more than is read. ``PARTED``: what the
device made may be made in the block, its rows apart; ``FLAT``: as one run of cells; ``ANYHOW``: wherever it lies,
in several blocks too, for bounds. ``BESIDE``: the tensor lies in two places, so that nothing is made in its block.
``FREE``: nothing is priced.
"""
BOX = FREE.bit_length()
"""The first bit of the number of a padded block's box, see `RegionTable.number_box`."""


class OperandBlocks(Struct, frozen=True):
    """The blocks of a tensor that the operands of one consumer take, one operand after the other.

    Parameters
    ----------
    numbers : tuple of array of int64, (classes, devices)
        For each operand the region numbers of the tensor's cells.
    ways : tuple of array of int64, (classes, devices)
        For each operand how it has its block; empty where blocks lie apart and have no padding.
    loose : tuple of array of int64, (classes, devices)
        For each operand the axes, as bits of a number, on which its buffer reaches further than the tensor's cells that
        it takes: no run goes on past their ends. Empty where none does.
    """

    numbers: tuple[IntArray, ...]
    ways: tuple[IntArray, ...] = ()
    loose: tuple[IntArray, ...] = ()


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
        takes = [each[theirs] for each in new]
        sizes = [
            np.where(some[:, None], table.sizes(n[theirs]), 0) for n, some in zip(blocks.numbers, takes, strict=True)
        ]
        several = taken if len(taken) > 1 else []
        few = [[one for one in map(each.__getitem__, theirs) if one is not None] for each in several]
        apart = [list_own(first, each, spreads, table.count_along_axis) for each in few]

        ways = [each[theirs] for each in blocks.ways] or [np.zeros_like(sizes[0])] * len(sizes)
        needed = [each[theirs] for each in blocks.numbers]

        def assemble(row: int, own: IntArray) -> None:
            """What each device has itself of what consumers need is told for one holder after the other."""
            at = mine[row]
            is_part, has_all = int(held.parts[at] > 1), table.sizes(held.numbers[at])
            copied = np.zeros_like(sizes[0])
            every = zip(sizes, needed, ways, takes, [next(each) for each in apart] or [own], strict=True)
            for size, need, way, some, has in every:
                nbytes = np.where(has < size, has, 0)
                if not is_part:
                    nbytes = np.where((way & PADDED) > 0, has, nbytes)
                    is_made = (has == has_all) & (has > 0) & some[:, None]
                    is_made &= ((way & (PADDED | HOSTED)) > 0) | (has < size)
                    if is_made.any():
                        is_made &= table.may_lie(held.numbers[at], need, way)
                    is_larger = (has == size) & ((has_all > size) | ((way & BESIDE) > 0)) & ((way & PADDED) == 0)
                    nbytes = np.where(((way & HOSTED) > 0) & is_larger, size, np.where(is_made, 0, nbytes))
                copied += np.where(((way & FREE) > 0) | ~some[:, None], 0, nbytes)
            assembled[:, at, theirs] = _list_most(copied, mesh) * itemsizes[is_part]

        put(mine, theirs, count_along(first, second, spreads, mesh, table.count_along_axis, assemble))
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
    wanted, at_ = _list_tuples([*listed, *loose], sides)
    holding, holds = np.unique(held.numbers, return_inverse=True)
    holds = holds.reshape(held.numbers.shape)
    others = np.append(holding, table.number(DisjointRegions.full(table.shape)))
    fresh = counts, numbers = _count_fresh(table, wanted[:, :many], others)
    copied, which = _list_copied(table, wanted[:, : len(listed)], taken, known, others, fresh, itemsizes)
    runs = None
    if mesh.prices_runs:
        # Holders of parts of a sum come behind the others: what these send is not put into a block with padding.
        reads = RunReads(table, _list_fresh, wanted, taken, wanted[:, len(listed) :])
        every = [reads.count(holding, fresh, is_part=False)]
        if (held.parts > 1).any():
            every.append(reads.count(holding, fresh, is_part=True))
        found, classes = list_classes(np.ascontiguousarray(np.concatenate(every).T))
        both, numbers = _list_tuples([numbers, classes], [counts.shape[1], len(found)])
        counts, runs = counts[:, both[:, 0]], found.T[:, both[:, 1]]
    # Where all devices receive the same some may copy other cells: such classes have columns of their own.
    pairs, which = _list_tuples([numbers, which], [counts.shape[1], copied.shape[1]])
    rows, columns = _list_tuples(list(np.moveaxis(which[at_], -1, 0)), [len(pairs)] * mesh.size)
    received, same = pairs[rows, 0], np.arange(len(rows))
    if len(pairs) > counts.shape[1]:
        received, same = _list_tuples(list(received.T), [counts.shape[1]] * mesh.size)
    sends = holds if runs is None else holds + np.where(held.parts > 1, len(holding), 0)[:, None]
    given = counts[:-1] if runs is None else np.tile(counts[:-1], (len(runs) // len(holding), 1))
    exchanged = _Exchange(given, sends, received, held.groups, mesh, runs).count()
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


def _list_copied(
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
        Of the tuples, what `_count_fresh` says.

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
        counts, numbers = fresh if len(mine) == 1 else _count_fresh(table, given, others)
        # What operands before the next one take together is one region: of many the terms would double with each.
        united = [_unite_numbers(table, *united, read)] if k + 1 < len(mine) else []
        one = _CopiedOf.of(table, read, way, earlier[: first + k], counts, numbers, others[:-1])
        parts += one.columns
        said.append(one)
    rows, ways = _list_tuples([each for each, _ in parts], [size for _, size in parts])
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
        As `_count_fresh` says.
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
            pairs, at = _list_tuples([other, way & PADDED], [len(table.regions), 2])
            names, padded = pairs.T
            there = (table.sizes(names[:, None], holding[None, :]) == has) & (has > 0)
            there &= (padded[:, None] > 0) | (table.sizes(names)[:, None] > has)
            distinct, alike = list_classes(there.astype(np.int64))
            rows.append(distinct > 0)
            classes.append((alike[at], len(distinct)))
        tuples, whose = _list_tuples([each for each, _ in classes], [size for _, size in classes])
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
                pairs, at = _list_tuples([self.names[name], way], [len(table.regions), int(self.ways.max()) + 1])
                lies = table.may_lie(self.holding[:, None], pairs[None, :, 0], pairs[None, :, 1])[:, at]
                cells = np.where(is_made & lies, cells - has, cells)
        is_hosted, is_beside = (way & HOSTED) > 0, (way & BESIDE) > 0
        if is_hosted.any():
            is_larger = np.where(holds_all, has > size, (states == 2)) | is_beside
            cells = cells + np.where(is_hosted & is_larger, size, 0)
        merged = np.where(is_served, 0, arrived) + np.where(is_hosted & ((states == 2) | is_beside), size, 0)
        own = np.where(shared == left, 0, shared)
        return np.where(is_free, 0, cells), np.where(is_free, 0, merged), np.where(is_free, 0, own)


def _unite_numbers(table: RegionTable, *numbers: IntArray) -> IntArray:
    """Numbers of unions of regions, row by row."""
    tuples, at = _list_tuples(numbers, [len(table.regions)] * len(numbers))
    made = [table.number(unite([table.regions[n] for n in row], table.shape)) for row in tuples.tolist()]
    found: IntArray = np.array(made, np.int64)[at]
    return found


class _Exchange:
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
    terms = [(sign, *table.count_shared(some, others)) for sign, some in _list_fresh(table, wanted)]
    tuples, numbers = _list_tuples([n for _, _, n in terms], [sizes.shape[1] for _, sizes, _ in terms])
    counts = np.zeros((len(others), len(tuples)), np.int64)
    for (sign, sizes, _), column in zip(terms, tuples.T, strict=True):
        counts += sign * sizes[:, column]
    distinct, alike = list_classes(np.ascontiguousarray(counts.T))
    return distinct.T, alike[numbers]


def _list_fresh(table: RegionTable, wanted: IntArray) -> list[tuple[int, Meets]]:
    """last − ∪ earlier for rows of regions, by inclusion and exclusion: terms with their signs."""
    *earlier, last = wanted.T
    signed = [(1, table.take(last))]
    for column in earlier:
        met = [(-sign, table.meet(some, column)) for sign, some in signed]
        signed += [(sign, some) for sign, some in met if some.members.any()]
    return signed


def transfer_ticks(
    busiest: IntArray, rounds: IntArray, runs: IntArray, itemsize: int | IntArray, mesh: Mesh
) -> IntArray:
    """Modeled time of transfer stages, in picoseconds: the slowest of the ports, which work at the same time.

    A port takes its latency for each round of messages, the bytes of the device that sends or receives the most through
    it, and the runs of the one whose messages have the most of them. Messages of which no device sends, nor receives,
    more than k are sent in k rounds: in each round every device sends at most one and receives at most one, as the
    edges of a bipartite graph are colored (Kőnig 1916).

    Parameters
    ----------
    busiest, rounds, runs : arrays of int64, (ports, …)
        As in `Transfers`.
    itemsize : int or array that broadcasts to the stages
        Bytes of a cell.
    mesh : Mesh
    """
    seconds = np.zeros(busiest.shape[1:])
    for link, most, messages, pieces in zip(mesh.ports, busiest, rounds, runs, strict=True):
        taken = messages * link.latency_seconds + most.astype(np.float64) * itemsize / link.nbytes_per_second
        seconds = np.maximum(seconds, taken + pieces * link.run_seconds if link.run_seconds else taken)
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


def assembly_ticks(assembled: IntArray, mesh: Mesh) -> IntArray:
    """Modeled time to copy own cells beside others, at the memory's bandwidth of the slowest device.

    Parameters
    ----------
    assembled : array of int64, (kinds of devices, …)
        The most bytes that a device of each kind copies.
    mesh : Mesh
    """
    rates = [device.memory_nbytes_per_second for device, _ in mesh.kinds]
    seconds = [nbytes / rate for nbytes, rate in zip(assembled, rates, strict=True)]
    return to_ticks(reduce(np.maximum, seconds))


def compute_seconds(
    flop: NDArray[np.float64],
    nbytes: IntArray,
    mesh: Mesh,
    launches: int | IntArray = 1,
    *,
    operands: int = 0,
    product: float = 1.0,
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
    product : float
        How much of the arithmetic is that of products, see `find_product_share`.
    copied : int or array that broadcasts to them
        Bytes that a shard must write anew before it can read them, see `count_copied`.
    """
    products = np.array([d.flop_per_second for d in mesh.devices])
    cells = np.array([d.cell_rate for d in mesh.devices])
    if product in (0.0, 1.0) or (products == cells).all():
        busy = flop / (products if product else cells)
    else:
        busy = flop * (product / products + (1 - product) / cells)
    memory = np.array([d.memory_nbytes_per_second for d in mesh.devices])
    start = np.array([d.launch_seconds + operands * d.operand_seconds for d in mesh.devices])
    seconds: NDArray[np.float64] = launches * start + np.maximum(busy, nbytes / memory) + copied / memory
    return seconds


def find_product_share(op: Op, attrs: Attrs, signature: Signature, flop: float, cells: int) -> float:
    """How much of an operator's arithmetic is that of products: all, none, or in a block what its operators say.

    Parameters
    ----------
    op : Op
    attrs : mapping
    signature, flop, cells
        As of `is_product`.
    """
    block = open_block(op, attrs)
    if block is None:
        return float(is_product(signature, flop, cells))
    found = []
    for one, mine, given in (
        (block.first, block.first_signature, block.first_attrs),
        (block.second, block.second_signature, block.second_attrs),
    ):
        sides = [
            *(mine.input_box(k, mine.index) for k in range(len(mine.inputs))),
            *(mine.output_box(k, mine.index) for k in range(len(mine.outputs))),
        ]
        its_flop = one.flop_per_point(mine, given) * mine.index.size
        its_cells = sum(box.size for box in sides if box is not None)
        found.append((its_flop, find_product_share(one, given, mine, its_flop, its_cells)))
    total = sum(its_flop for its_flop, _ in found)
    return sum(its_flop * share for its_flop, share in found) / total if total else 0.0


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
    reads = [each.index_axes for each in signature.inputs]
    summed = any(sum(axis in mine for mine in reads) > 1 for axis in signature.reductions)
    return summed or flop > tuning.PRODUCT_FLOP_A_CELL * cells


def to_ticks(seconds: NDArray[np.float64]) -> IntArray:
    """Seconds as whole picoseconds; what takes longer than is counted exactly counts as long as that.

    A choice that has none of these is priced exactly, and all others at most: what is proven of it holds. `write_plan`
    refuses one that has.
    """
    return cast(IntArray, np.rint(np.minimum(seconds, MAX_STAGE_SECONDS) * TICKS_PER_SECOND).astype(np.int64))
