"""Runs that devices pack and unpack, for all layouts at once: `steps.layouts.runs` in numbers of sets.

Which cells a message brings is a sum of signs: of the cells needed, less those that came before, each met with what the
sender has. Whether a cell is among them and its next one too is the product of two such sums, so that both are counted
pair of terms by pair of terms, each in closed form by the sets of the axes. A device has its cells in the box around
them, and brings others into the box around what an operand takes; where that has padding on an axis, or reaches
further, a run ends at the end of the axis.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from itertools import product
from typing import Any, NamedTuple, Protocol

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from tapestry_plan.search import tuning
from tapestry_plan.search.sums.elimination import IntArray
from tapestry_plan.steps import chain_axes, list_near
from tapestry_sets.regions import DisjointRegions


class Sets(Protocol):
    """What is asked of a table of regions about the sets of its axes, by number: arrays that broadcast."""

    def count_along_axis(self, axis: int, *sets: IntArray) -> IntArray:
        """The coordinates that all have."""

    def count_followed(self, axis: int, ones: Sequence[IntArray], others: Sequence[IntArray]) -> IntArray:
        """The coordinates that all of some have, and whose next one all of others have."""

    def has_place(self, axis: int, sets: Sequence[IntArray], at: IntArray) -> NDArray[np.bool_]:
        """Whether all have a coordinate."""

    def list_reaches(self, axis: int) -> IntArray:
        """By set of an axis a first coordinate and an end between which it lies."""

    regions: list[DisjointRegions]
    """By number those that are products of such sets, or unions of them."""

    def number(self, region: DisjointRegions) -> int:
        """The number of a region."""

    def list_members(self, numbers: IntArray) -> IntArray:
        """By region the numbers of the sets whose products it is, (…, members, axes), all 0 behind the last one."""

    def list_hulls(self, numbers: IntArray) -> IntArray:
        """The boxes around regions, by first place and end, (…, axes, 2)."""


class Met(Protocol):
    """Intersections of regions: the members of different ones, and which of these each row is."""

    @property
    def members(self) -> IntArray: ...
    @property
    def at(self) -> IntArray: ...


class Signed(Struct, frozen=True):
    """A term of what is brought: products of sets with a sign.

    Parameters
    ----------
    sign : int
    members : array of int64, (rows, members, axes)
        By row the numbers of sets, all 0 behind the last member.
    """

    sign: int
    members: IntArray


def count_message_runs(
    sets: Sets, held: IntArray, around: IntArray, terms: Sequence[Signed], frames: IntArray
) -> IntArray:
    """Runs at both ends of messages that bring some terms of what devices hold, (holdings, rows).

    Parameters
    ----------
    sets : Sets
    held : array of int64, (holdings, members, axes)
        By holding the numbers of sets, all 0 behind the last member.
    around : array of int64, (holdings, axes, 2)
        The boxes around them: first coordinates and ends.
    terms : sequence of Signed
    frames : array of int64, (rows, axes, 2)
        By row the box of the buffer that the cells come to; -1 where no cell can lie at its end on an axis.
    """
    rows = len(frames)
    found = np.zeros((len(held), rows), np.int64)
    if held.shape[1] * sum(term.members.shape[1] for term in terms) > tuning.MAX_PAIRED_PRODUCTS:
        return _count_scattered(sets, held, around, terms, frames)
    step = max(1, tuning.MAX_EXCHANGES // max(1, len(held)))
    for first in range(0, rows, step):
        at = slice(first, first + step)
        some = [Signed(term.sign, term.members[at]) for term in terms]
        some = [term for term in some if term.members.any()]
        for one in some:
            for k, mine in _list_members(one.members, held):
                found[:, at] += 2 * one.sign * _multiply(sets, held[:, k], mine)
        for one, other in product(some, repeat=2):
            for (k, mine), (j, theirs) in product(_list_members(one.members, held), _list_members(other.members, held)):
                ends = _count_followed(sets, (held[:, k], held[:, j]), around, (mine, theirs), frames[at])
                found[:, at] -= one.sign * other.sign * ends
    return found


def _list_members(members: IntArray, held: IntArray) -> Iterator[tuple[int, IntArray]]:
    """Each of the products of a term with each of those that devices hold, by number."""
    for k, j in product(range(held.shape[1]), range(members.shape[1])):
        if members[:, j].any() and held[:, k].any():
            yield k, members[:, j]


def _multiply(sets: Sets, held: IntArray, mine: IntArray) -> IntArray:
    """Cells that products of sets have in common, (holdings, rows)."""
    cells = np.ones((len(held), len(mine)), np.int64)
    for axis in range(held.shape[1]):
        (some, here), (others, there) = _find_different(held[:, [axis]]), _find_different(mine[:, [axis]])
        cells *= sets.count_along_axis(axis, some[:, 0, None], others[:, 0])[here[:, None], there]
    return cells


def _count_followed(
    sets: Sets, held: tuple[IntArray, IntArray], around: IntArray, terms: tuple[IntArray, IntArray], frames: IntArray
) -> IntArray:
    """Cells of one term whose next one is of another, in the buffers of both ends together, (holdings, rows)."""
    _, ends = chain_axes(_list_followed(sets, held, around, terms, frames))
    found: IntArray = np.broadcast_to(ends, (2, len(around), len(frames))).sum(axis=0)
    return found


def _list_followed(
    sets: Sets, held: tuple[IntArray, IntArray], around: IntArray, terms: tuple[IntArray, IntArray], frames: IntArray
) -> Iterator[tuple[IntArray, IntArray, NDArray[np.bool_]]]:
    """Of each axis what `chain_axes` takes, (holdings, rows); the buffers of both ends differ in where a run wraps."""
    for axis in range(around.shape[1]):
        # Few rows differ in what they have of one axis: each combination is counted once.
        mine = np.column_stack([held[0][:, axis], held[1][:, axis], around[:, axis]])
        theirs = np.column_stack([terms[0][:, axis], terms[1][:, axis], frames[:, axis]])
        (some, here), (others, there) = _find_different(mine), _find_different(theirs)
        a, b, begin, end = (some[:, k, None] for k in range(4))
        c, d, low, high = others.T
        at = here[:, None], there
        steps = sets.count_followed(axis, (a, c), (b, d))[at]
        goes_on = sets.has_place(axis, (a, c), end - 1) & sets.has_place(axis, (b, d), begin)
        comes_on = sets.has_place(axis, (a, c), high - 1) & sets.has_place(axis, (b, d), low)
        yield sets.count_along_axis(axis, a, b, c, d)[at], steps, np.stack([goes_on[at], comes_on[at]])


class _Products(NamedTuple):
    """Products of sets, whose they are, and their signs: those of all holdings, or of all rows, one after the other."""

    sets: IntArray
    of: IntArray
    signs: IntArray

    @classmethod
    def list(cls, members: IntArray, sign: int = 1) -> _Products:
        of, k = np.nonzero(members.any(axis=-1))
        return cls(members[of, k], of, np.full(len(of), sign))


def _count_scattered(
    sets: Sets, held: IntArray, around: IntArray, terms: Sequence[Signed], frames: IntArray
) -> IntArray:
    """As `count_message_runs`, of regions with many products: only those are paired that touch."""
    every = [_Products.list(term.members, term.sign) for term in terms]
    needed = _Products(*(np.concatenate(each) for each in zip(*every, strict=True)))
    mine = _Products.list(held)
    found = np.zeros(len(held) * len(frames), np.int64)
    met = _find_met(sets, needed, mine)  # (which needed, which held), by the needed one and then the holding
    cells = np.ones(len(met[0]), np.int64)
    for axis in range(held.shape[2]):
        cells *= sets.count_along_axis(axis, needed.sets[met[0], axis], mine.sets[met[1], axis])
    spots = mine.of[met[1]] * len(frames) + needed.of[met[0]]
    np.add.at(found, spots, 2 * needed.signs[met[0]] * cells)
    # What is met is looked up by the needed product and the holding together.
    keys = met[0] * len(held) + mine.of[met[1]]
    for one, other in _pair_near(sets, needed, around, frames):
        at, which = _spread(np.searchsorted(met[0], one), np.searchsorted(met[0], one, side="right"))
        one, other, first = one[which], other[which], met[1][at]
        wanted = other * len(held) + mine.of[first]
        at, which = _spread(np.searchsorted(keys, wanted), np.searchsorted(keys, wanted, side="right"))
        one, other, first, second = one[which], other[which], first[which], met[1][at]
        of = mine.of[first], needed.of[one]
        ends = _count_each_followed(
            sets,
            (mine.sets[first], needed.sets[one]),
            (mine.sets[second], needed.sets[other]),
            (around[of[0]], frames[of[1]]),
        )
        np.subtract.at(found, of[0] * len(frames) + of[1], needed.signs[one] * needed.signs[other] * ends)
    return found.reshape(len(held), len(frames))


def _find_met(sets: Sets, needed: _Products, mine: _Products) -> tuple[IntArray, IntArray]:
    """Which products have a cell in common, by both numbers: those of the first ascending, then those of the second."""
    (some, here), (others, there) = _find_different(needed.sets), _find_different(mine.sets)
    meets = np.ones((len(some), len(others)), bool)
    for axis in range(some.shape[1]):
        (a, at), (b, to) = (np.unique(each[:, axis], return_inverse=True) for each in (some, others))
        meets &= (sets.count_along_axis(axis, a[:, None], b) > 0)[at[:, None], to]
    order = np.argsort(there, kind="stable")  # the products of each kind together
    begins = np.searchsorted(there[order], np.arange(len(others) + 1))
    kinds = [np.flatnonzero(row) for row in meets]
    lists = [np.sort(np.concatenate([order[begins[k] : begins[k + 1]] for k in each] or [order[:0]])) for each in kinds]
    found = [lists[k] for k in here.tolist()]
    one = np.repeat(np.arange(len(here)), [len(each) for each in found])
    return one, np.concatenate(found) if found else one


def _pair_near(
    sets: Sets, needed: _Products, around: IntArray, frames: IntArray
) -> Iterator[tuple[IntArray, IntArray]]:
    """Pairs of products of the same rows where a cell of the one may be followed by one of the other, some at a time.

    The next cell is one further on an axis, or the same there, or the first of a buffer behind its last.
    """
    order = np.argsort(needed.of, kind="stable")
    reaches = np.stack([sets.list_reaches(axis)[needed.sets[:, axis]] for axis in range(needed.sets.shape[1])], axis=1)
    edges = np.unique(around, axis=0)
    held: list[tuple[IntArray, IntArray]] = []
    for mine in np.split(order, np.flatnonzero(np.diff(needed.of[order])) + 1):
        boxes = np.concatenate([frames[needed.of[mine[:1]]], edges])
        step = max(1, tuning.MAX_EXCHANGES // max(1, len(mine)))
        for first in range(0, len(mine), step):
            some = mine[first : first + step]
            near = list_near(reaches[some], reaches[mine], boxes)
            held.append((some[near[0]], mine[near[1]]))
            if sum(len(one) for one, _ in held) > tuning.MAX_NEAR_PAIRS:
                yield _join(held)
                held = []
    if held:
        yield _join(held)


def _join(held: Sequence[tuple[IntArray, IntArray]]) -> tuple[IntArray, IntArray]:
    one, other = (np.concatenate(each) for each in zip(*held, strict=True))
    return one, other


def _spread(first: IntArray, end: IntArray) -> tuple[IntArray, IntArray]:
    """The numbers of some ranges one after the other, and which range each is of."""
    many = end - first
    which = np.repeat(np.arange(len(many)), many)
    return np.arange(many.sum()) - np.repeat(np.cumsum(many) - many, many) + first[which], which


def _count_each_followed(
    sets: Sets, ones: tuple[IntArray, IntArray], others: tuple[IntArray, IntArray], buffers: tuple[IntArray, IntArray]
) -> IntArray:
    """As `_count_followed`, row by row: what is held and needed, (rows, axes) each, and the buffers' boxes."""
    common = np.ones(len(ones[0]), np.int64)
    ends = [np.zeros_like(common), np.zeros_like(common)]
    for axis in range(ones[0].shape[1]):
        a, c, b, d = (each[:, axis] for each in (*ones, *others))
        steps = common * sets.count_followed(axis, (a, c), (b, d))
        for k, box in enumerate(buffers):
            first, last = box[:, axis, 0], box[:, axis, 1] - 1
            some = np.flatnonzero(ends[k])
            goes_on = sets.has_place(axis, (a[some], c[some]), last[some])
            goes_on &= sets.has_place(axis, (b[some], d[some]), first[some])
            kept = np.zeros_like(common)
            kept[some] = np.where(goes_on, ends[k][some], 0)
            ends[k] = steps + kept
        common *= sets.count_along_axis(axis, a, b, c, d)
    return ends[0] + ends[1]


def _find_different(rows: IntArray) -> tuple[IntArray, IntArray]:
    """Rows that differ, and which of these each row is."""
    found, which = np.unique(rows, axis=0, return_inverse=True)
    return found, which.reshape(-1)


class RunReads:
    """The runs of messages that bring what a consumer needs, by what their senders hold.

    Parameters
    ----------
    table : Sets
        Of regions, and of the sets of its axes.
    list_fresh : callable
        What rows of regions have in their last one and in none before, as terms with signs.
    wanted : array of int64, (tuples, columns)
    taken : sequence of sequence of int
        What consumers need, and what their operands take; and by consumer the columns with the latter.
    loose : array of int64, (tuples, operands)
        As of `OperandBlocks`; without columns where no buffer reaches further.
    """

    def __init__(
        self,
        table: Sets,
        list_fresh: Callable[[Any, IntArray], Sequence[tuple[int, Met]]],
        wanted: IntArray,
        taken: Sequence[Sequence[int]],
        loose: IntArray,
    ) -> None:
        self.table, self.list_fresh, self.wanted, self.loose = table, list_fresh, wanted, loose
        *before, self.mine = taken
        self.before = list(range(len(before)))

    def count(self, holding: IntArray, fresh: tuple[IntArray, IntArray], is_part: bool) -> IntArray:
        """Runs at both ends together, (holdings, tuples).

        Parameters
        ----------
        holding : array of int64
            Region numbers of what devices hold.
        fresh : tuple
            What holders of regions give, a row each and one more, by column, and the column of each tuple.
        is_part : bool
            Whether that is of parts of a sum.
        """
        table = self.table
        found = np.zeros((len(holding), len(self.wanted)), np.int64)
        counts, numbers = fresh
        some = np.flatnonzero(np.any(counts[:-1] > 0, axis=0)[numbers])
        if not some.size:
            return found
        members, around = table.list_members(holding), table.list_hulls(holding)
        for k, column in enumerate(self.mine):
            columns = [*self.before, *self.mine[:k], column]
            given = self.wanted[some][:, columns]
            terms = [Signed(sign, each.members[each.at]) for sign, each in self.list_fresh(table, given)]
            frames = self._list_frames(given, None if is_part or not self.loose.size else self.loose[some, k], is_part)
            found[:, some] += count_message_runs(table, members, around, terms, frames)
        return found

    def _list_frames(self, given: IntArray, loose: IntArray | None, is_part: bool) -> IntArray:
        """The boxes of the buffers that cells come to, (tuples, axes, 2), where an operand is given some columns."""
        last = given[:, -1]
        if is_part and given.shape[1] > 1:
            last = _subtract_numbers(self.table, given)
        frames = self.table.list_hulls(last)
        if loose is not None:
            axes = np.arange(frames.shape[1])
            frames = np.where((loose[:, None] >> axes & 1)[..., None] > 0, -1, frames)
        return frames


def _subtract_numbers(table: Sets, given: IntArray) -> IntArray:
    """Numbers of the last regions of rows less those before."""
    rows, at = np.unique(given, axis=0, return_inverse=True)
    regions = table.regions
    made = [
        table.number(reduce(lambda left, n: left - regions[n], before, regions[last]))
        for *before, last in rows.tolist()
    ]
    found: IntArray = np.array(made, np.int64)[at.reshape(-1)]
    return found


def count_box_runs(boxes: IntArray, around: IntArray) -> IntArray:
    """Of how many runs boxes are in the row-major buffers over others that they lie in, (…, 2 × rank).

    Examples
    --------
    >>> columns, rows = [0, 2, 4, 6], [1, 0, 3, 8]
    >>> count_box_runs(np.array([columns, rows]), np.array([0, 0, 4, 8])).tolist()
    [4, 1]
    """
    (low, high), (first, end) = (np.split(each, 2, axis=-1) for each in (boxes, around))
    extents, is_whole = high - low, (low == first) & (high == end)
    steps = np.maximum(extents - 1, 0)
    axes = range(extents.shape[-1])
    common, followed = chain_axes((extents[..., k], steps[..., k], is_whole[..., k]) for k in axes)
    found: IntArray = np.broadcast_to(np.where(common > 0, common - followed, 0), is_whole.shape[:-1])
    return found
