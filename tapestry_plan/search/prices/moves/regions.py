"""Sizes of intersections of a tensor's regions, without expanding them.

All regions of one tensor are unions of products of one-dimensional sets. Each distinct set of an axis gets a
number, and the size of an intersection of products is the product of the sizes along the axes. So the cells of
thousands of pairs of layouts are array arithmetic, at a cost that does not depend on the tensor's size.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial, reduce
from itertools import product
from math import prod
from typing import Any

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from tapestry_plan.search import tuning
from tapestry_plan.search.prices.moves.along import Spreads
from tapestry_plan.search.prices.moves.numbering import list_classes, list_tuples, renumber
from tapestry_plan.search.prices.moves.operands import ANYHOW, FLAT, PARTED
from tapestry_plan.search.sums.elimination import IntArray
from tapestry_plan.steps import unite
from tapestry_sets.batch import RegionArray
from tapestry_sets.integers import DisjointSetts, Sett
from tapestry_sets.regions import Box, DisjointRegions, Region

Flags = NDArray[np.bool_]


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
    _known_rows: int = 0
    """How many regions have rows there; behind these is room for more."""
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
    _extents: IntArray = field(default_factory=lambda: np.zeros((0, 1), np.int64))
    """By region the extents of the box around it, with 0 for one more axis where it is not a box."""
    _boxes: dict[tuple[float | None, Box], int] = field(default_factory=dict)
    """Padded blocks, with what they are padded with, by number."""
    _within: dict[tuple[int, int], bool] = field(default_factory=dict)
    """By two regions whether the one has no cell that the other lacks."""
    _less: dict[tuple[int, int], int] = field(default_factory=dict)
    """By two regions the number of what the one has beside the other."""
    _united: dict[tuple[int, int], int] = field(default_factory=dict)
    _cells: dict[int, int] = field(default_factory=dict)

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

    def subtract(self, one: int, other: int) -> int:
        """The number of what a region has beside another, by their numbers: each pair is worked out once."""
        found = self._less.get((one, other))
        if found is None:
            found = self._less[one, other] = self.number(self.regions[one] - self.regions[other])
        return found

    def unite(self, one: int, other: int) -> int:
        """The number of the union of two regions, likewise."""
        found = self._united.get((one, other))
        if found is None:
            found = self.number(unite([self.regions[one], self.regions[other]], self.shape))
            self._united[one, other] = found
        return found

    def count_cells(self, number: int) -> int:
        """The cells of one region."""
        found = self._cells.get(number)
        if found is None:
            found = self._cells[number] = self.regions[number].size
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
        pairs, at = list_tuples([one, two], [len(boxes)] * 2)
        found = [boxes[a][0] == boxes[b][0] and boxes[a][1].contains(boxes[b][1]) for a, b in pairs.tolist()]
        return np.array(found, bool)[at]

    def list_extents(self, numbers: IntArray) -> tuple[IntArray, Flags]:
        """Extents of the boxes around regions, (…, axes), and which of them are boxes."""
        if new := self.regions[len(self._extents) :]:
            rows = []
            for region in new:
                bounds = region.bounds()
                shape = (0,) * len(self.shape)
                if bounds is not None:
                    shape = tuple(b - a for a, b in zip(*bounds, strict=True))
                rows.append((*shape, int(bounds is not None and prod(shape) == region.size)))
            known = self._extents.reshape(-1, len(self.shape) + 1)
            self._extents = np.concatenate([known, np.array(rows, np.int64)])
        every = self._extents[numbers]
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
            rows, codes = list_tuples(met, [len(self._axis_list[axis])] * 2)
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
            rows, codes = list_tuples([numbers[some], places[some]], [len(bounds), max(1, *self.shape, 1)])
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
        found, at = renumber(numbers, len(self.regions))
        return Meets(_leave_out_missing(self._rows()[found]), at)

    def meet(self, some: Meets, numbers: IntArray) -> Meets:
        """What each of some meets has in common with a region more, by number."""
        pairs, at = list_tuples([some.at, numbers], [len(some.members), len(self.regions)])
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
        known, new = self._known_rows, self._members[self._known_rows :]
        if new:
            room, most = len(self._listed), max(self._listed.shape[1], *map(len, new))
            if len(self._members) > room or most > self._listed.shape[1]:  # it grows seldom
                room = max(room, _give_room(len(self._members)))
                rows = np.zeros((room, most, len(self._axes)), np.int64)
                rows[:known, : self._listed.shape[1]] = self._listed[:known]
                self._listed = rows
            for k, members in enumerate(new, known):
                for j, row in enumerate(members):
                    self._listed[k, j] = row
            self._known_rows = len(self._members)
        return self._listed[: self._known_rows]

    def _count_members(self) -> IntArray:
        """How many members each region has."""
        new = self._members[len(self._many) :]
        if new:
            self._many = np.concatenate([self._many, np.array([len(members) for members in new], np.int64)])
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
        rows, codes = list_tuples(ids, [len(self._axis_spans[axis])] * len(ids))
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
            rows, codes = list_tuples([one, two], [base] * 2)
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


def unite_numbers(table: RegionTable, *numbers: IntArray) -> IntArray:
    """Numbers of unions of regions, row by row."""
    tuples, at = list_tuples(numbers, [len(table.regions)] * len(numbers))
    made = [table.number(unite([table.regions[n] for n in row], table.shape)) for row in tuples.tolist()]
    found: IntArray = np.array(made, np.int64)[at]
    return found


def count_fresh(table: RegionTable, wanted: IntArray, others: IntArray) -> tuple[IntArray, IntArray]:
    """|(last − ∪ earlier) ∩ other| for rows of regions, by inclusion and exclusion.

    Returns
    -------
    counts, numbers : arrays (others, columns) and (rows,)
        What a row shares with other regions is in the column of its number.
    """
    terms = [(sign, *table.count_shared(some, others)) for sign, some in list_fresh(table, wanted)]
    tuples, numbers = list_tuples([n for _, _, n in terms], [sizes.shape[1] for _, sizes, _ in terms])
    counts = np.zeros((len(others), len(tuples)), np.int64)
    for (sign, sizes, _), column in zip(terms, tuples.T, strict=True):
        counts += sign * sizes[:, column]
    distinct, alike = list_classes(np.ascontiguousarray(counts.T))
    return distinct.T, alike[numbers]


def list_fresh(table: RegionTable, wanted: IntArray) -> list[tuple[int, Meets]]:
    """last − ∪ earlier for rows of regions, by inclusion and exclusion: terms with their signs."""
    *earlier, last = wanted.T
    signed = [(1, table.take(last))]
    for column in earlier:
        met = [(-sign, table.meet(some, column)) for sign, some in signed]
        signed += [(sign, some) for sign, some in met if some.members.any()]
    return signed
