"""Many arrays in one memory: which of them touch, and how many read each byte.

What each array reads is a few *parts*, nests of bytes between a lowest and a highest address. Parts that miss each
other as intervals of addresses, or as arcs modulo a period that is common among them, are told apart by sorting. What
is left is asked pair by pair, in columns where the parts are single stripes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import cached_property, partial
from itertools import combinations, pairwise
from math import prod
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np

from tapestry_sets.alias import tuning
from tapestry_sets.alias.ladder.cells import Cells
from tapestry_sets.alias.memory.sieve import Columns, Sieve
from tapestry_sets.batch import answer_axis
from tapestry_sets.digits import Bools, Int64Array, Progression, as_interval, progression, reach, split_progression
from tapestry_sets.integers import (
    DisjointSetts,
    Nest,
    clip,
    count,
    ends_of,
    explicit_setts,
    from_items,
    members,
    repeat,
    runs,
)
from tapestry_sets.limits import (
    OPEN,
    REFUSALS,
    TooHard,
    TooManyPieces,
    ask_one,
    check_pieces,
    current,
    limits,
    quote,
    retell,
)
from tapestry_sets.views import Allocation, View

T = TypeVar("T")


# ------------------------------------------------------------------------------------------------------ the parts


class Part(NamedTuple):
    """Bytes that one member reads: {start + t : t in tail, 0 <= t < length}, of which both ends are read.

    If there are `cells`, these are what is read, and start and length only bound it.
    """

    member: int
    start: int
    length: int
    tail: Nest
    cells: Cells | None

    @property
    def is_solid(self) -> bool:
        """Whether all bytes between the ends are read."""
        return not self.tail and self.cells is None

    @property
    def size(self) -> int:
        """How many bytes are read."""
        return count(self.tail, 0, self.length) if self.cells is None else self.cells.size

    def listed(self, origin: int, extent: int) -> Columns | None:
        """Return the bytes of cells, counted from an origin and ascending; None where they cannot be listed."""
        assert self.cells is not None, "what is bounded by its ends and its tail is not listed"
        if isinstance(self.cells.setts, DisjointSetts):
            return self.cells.setts.elements(0, extent) - origin
        z = self.cells.list_numbers(tuning.MAX_SCAN)
        return None if z is None else z - origin

    def nest(self, size: int) -> Nest:
        """Return the bytes as a nest that repeats with the memory's size."""
        return repeat(self.length, size, self.start, self.tail)


def parts_of(member: int, view: View) -> Iterator[tuple[Allocation, Part]]:
    """Yield the part of each allocation that a member reads."""
    nested = view.as_nest()
    if nested is not None:
        yield from ((nested[0], part) for part in _parts_of_nest(member, nested[1], prod(nested[0].shape)))
        return
    for home, cells in view.cells.items():
        if isinstance(cells.setts, DisjointSetts) and len(cells.setts.members) <= tuning.MANY_SETTS:
            for s in cells.setts.members:
                yield from ((home, part) for part in _parts_of_nest(member, s.nest, cells.extent))
        else:
            low, high = _ends(cells)
            yield home, Part(member, low, high - low, (), cells)


def _parts_of_nest(member: int, nest: Nest, size: int) -> Iterator[Part]:
    if nest and nest[0][1] == size and 0 < nest[0][0] <= size - nest[0][2]:  # the usual case: one block
        yield Part(member, nest[0][2], nest[0][0], nest[1:], None)
    else:
        item = clip(nest, 0, size)
        if item is not None:
            yield Part(member, *item, None)


def _ends(cells: Cells) -> tuple[int, int]:
    """Return a range of row-major numbers that holds all cells, as short as is known at once."""
    if cells.setts is None and cells.sums is not None:
        return cells.sums[0], cells.sums[0] + reach(cells.sums[1]) + 1
    ends = ends_of(cells.around, cells.extent)
    return (0, 0) if ends is None else (ends[0], ends[1] + 1)


class Forest:
    """Which members are known to share memory, directly or through others: union-find."""

    __slots__ = ("parent",)

    def __init__(self, n: int) -> None:
        self.parent = list(range(n))

    def root(self, i: int) -> int:
        """Return the member that stands for all that are joined to member i."""
        parent = self.parent
        while parent[i] != i:
            parent[i] = i = parent[parent[i]]
        return i

    def join(self, i: int, j: int) -> None:
        """Note that two members share memory."""
        i, j = self.root(i), self.root(j)
        if i != j:
            self.parent[max(i, j)] = min(i, j)

    def trees(self) -> list[list[int]]:
        """Return those that are joined, two or more together, in order."""
        together: dict[int, list[int]] = {}
        for member in range(len(self.parent)):
            together.setdefault(self.root(member), []).append(member)
        return [members for members in together.values() if len(members) > 1]


class Space:
    """The parts that lie in one memory, in columns.

    Parameters
    ----------
    home : Allocation
    parts : sequence of Part
    keys : sequence of hashable
        The members' names, for messages.
    """

    def __init__(self, home: Allocation, parts: Sequence[Part], keys: Sequence[Hashable]) -> None:
        self.home, self.parts, self.keys = home, parts, keys
        self.origin = min(part.start for part in parts)
        self.size = home.size
        span = max(part.start + part.length for part in parts) - self.origin
        self.dtype: Any = np.int64 if span < tuning.MAX_POSITION else object
        self.member = np.array([part.member for part in parts], np.int64)
        self.low = np.array([part.start - self.origin for part in parts], self.dtype)
        self.high = self.low + np.array([part.length for part in parts], self.dtype)
        self.solid = np.array([part.is_solid for part in parts], np.bool_)
        self.levels = self._level_columns()
        self.shallow = np.array([len(part.tail) < 2 and part.cells is None for part in parts], np.bool_)
        self.stripes = self._stripe_columns()

    def _level_columns(self) -> list[tuple[Columns, Columns, Columns]]:
        """Return on, period and phase of each level of the tails; a period of 0 where there is no such level."""
        depth = max(len(part.tail) for part in self.parts)
        columns = np.zeros((depth, 3, len(self.parts)), self.dtype)
        for k, part in enumerate(self.parts):
            if part.tail:
                columns[: len(part.tail), :, k] = part.tail
        return [(on, period, phase) for on, period, phase in columns]

    def _stripe_columns(self) -> tuple[Columns, ...]:
        """Return low, high, on, period and phase of the shallow parts as clipped stripes, which `batch` compares."""
        one, zero = np.ones_like(self.low), np.zeros_like(self.low)
        if not self.levels:
            return self.low, self.high, one, one, zero
        on, period, phase = self.levels[0]
        solid = period == 0
        period = np.where(solid, one, period)
        return self.low, self.high, np.where(solid, one, on), period, np.where(solid, zero, (self.low + phase) % period)

    def arcs(self, at: Columns, period: int) -> tuple[Columns, Columns]:
        """Return, modulo a period, where an arc that holds all of a part begins, and how long it is."""
        start, length = self.low[at], self.high[at] - self.low[at]
        alive = np.ones(len(at), np.bool_)
        for on, P, phase in self.levels:
            alive = alive & (P[at] > 0) & (P[at] % period == 0)
            start = np.where(alive, start + phase[at], start)
            length = np.where(alive, on[at], length)
        return np.where(length < period, start % period, 0 * start), np.minimum(length, period)

    def periods(self, at: Columns) -> list[int]:
        """Return the most frequent periods of some parts."""
        seen: Counter[int] = Counter()
        for _, period, _ in self.levels:
            values, counts = np.unique(period[at], return_counts=True)
            seen.update(dict(zip(map(int, values), map(int, counts), strict=True)))
        return [P for P, _ in seen.most_common(tuning.MAX_PERIODS + 1) if P][: tuning.MAX_PERIODS]

    # -- apart for sure -------------------------------------------------------------------------------

    def tangles(self, at: Columns) -> Iterator[Columns]:
        """Yield those of some parts that sorting does not tell apart, two or more at a time."""
        todo = [(at, 0)]
        while todo:
            at, turn = todo.pop()
            if len(at) <= tuning.FEW_PARTS or turn == tuning.MAX_TURNS:
                yield at
                continue
            labels = self._told_apart(at)
            if labels is None:
                yield at
            else:
                todo += [(some, turn + 1) for some in _alike(at, labels)]

    def _told_apart(self, at: Columns) -> Columns | None:
        """Return which parts may touch, as equal labels; None if all of them may."""
        labels = _touching(self.low[at], self.high[at])
        if labels.any():
            return labels
        for period in self.periods(at):
            start, length = self.arcs(at, period)
            labels = _touching_on_circle(start, length, period)
            if labels.any():
                return labels
        return None

    # -- pairs ----------------------------------------------------------------------------------------

    def candidates(self, at: Columns) -> Iterator[tuple[Columns, Columns]]:
        """Yield pairs of some parts that may share bytes, each pair at least once, many at a time."""
        ways = [(self.low[at], self.high[at], at)]
        circles = [(period, *self.arcs(at, period)) for period in self.periods(at)]
        ways += [_unrolled(start, length, period, at) for period, start, length in circles]
        ranked = [_sorted_way(*way) for way in ways]
        _, ids, ends = min(ranked, key=lambda way: int(way[0]))
        for i, j in _pairs_within(ids, ends):
            keep = (self.low[i] < self.high[j]) & (self.low[j] < self.high[i]) & (i != j)
            i, j = i[keep], j[keep]
            for period, _, _ in circles:
                (s, m), (t, n) = self.arcs(i, period), self.arcs(j, period)
                keep = ((t - s) % period < m) | ((s - t) % period < n)
                i, j = i[keep], j[keep]
            yield i, j

    def meet_each(self, i: Columns, j: Columns) -> Bools:
        """Return for pairs of shallow parts whether they share a byte."""
        if not len(i):
            return np.zeros(0, np.bool_)
        zero = min(self.low[i].min(), self.low[j].min())  # small numbers are compared faster
        pair: list[Columns] = []
        for at in (i, j):
            low, high, on, period, phase = (column[at] for column in self.stripes)
            pair += [low - zero, high - zero, on, period, (phase - zero) % period]
        return np.asarray(answer_axis("overlaps", tuple(pair))[0], np.bool_)  # type: ignore[arg-type]

    def meet(self, i: int, j: int) -> bool:
        """Return whether two parts share a byte."""
        one, two = self.parts[i], self.parts[j]
        low, high = max(one.start, two.start), min(one.start + one.length, two.start + two.length)
        if low >= high:
            return False
        if one.is_solid and two.is_solid:
            return True

        def tell(error: TooHard) -> TooHard:
            names = f"{quote(self.keys[one.member])} and {quote(self.keys[two.member])}"
            return TooHard(f"shared_memory: whether {names} share bytes: {error}")

        if one.cells is not None or two.cells is not None:
            return retell(tell, self._cells(one).meets, self._cells(two))
        return retell(tell, members.some_in_both, one.nest(self.size), two.nest(self.size), low, high) is not None

    def _cells(self, part: Part) -> Cells:
        if part.cells is not None:
            return part.cells
        setts = DisjointSetts._of((part.nest(self.size),))
        return Cells((part.length,), (), self.home.shape, self.size, setts)

    # -- together for sure ----------------------------------------------------------------------------

    def join(self, forest: Forest) -> None:
        """Join all members that share a byte, directly or through others."""
        for at in self.tangles(self._joined_alike(forest)):
            if len(at) > tuning.FEW_PARTS:
                self._join_solid(at, forest)
                self._join_tangled(at, forest)
            else:
                self._join_met(combinations(at.tolist(), 2), forest)

    def _joined_alike(self, forest: Forest) -> Columns:
        """Join members with equal parts, and return one part of each kind."""
        first: dict[tuple[Any, ...], int] = {}
        for k, part in enumerate(self.parts):
            key = part[1:] if part.cells is None else (k,)
            j = first.setdefault(key, k)
            if j != k:
                forest.join(part.member, self.parts[j].member)
        return np.fromiter(first.values(), np.int64, len(first))

    def _join_met(self, pairs: Iterable[tuple[int, int]], forest: Forest) -> None:
        """Join the members of those pairs of parts that share a byte, unless they are joined."""
        for i, j in pairs:
            a, b = self.parts[i].member, self.parts[j].member
            if forest.root(a) != forest.root(b) and self.meet(i, j):
                forest.join(a, b)

    def _join_each(self, i: Columns, j: Columns, forest: Forest) -> None:
        """Join the members of pairs of parts."""
        for a, b in zip(self.member[i].tolist(), self.member[j].tolist(), strict=True):
            forest.join(a, b)

    def _join_solid(self, at: Columns, forest: Forest) -> None:
        """Join solid parts that touch, and others whose first or last byte lies in one of them."""
        solid = at[self.solid[at]]
        if not len(solid):
            return
        order = solid[np.argsort(self.low[solid], kind="stable")]
        reached = np.maximum.accumulate(self.high[order])
        touch = self.low[order[1:]] < reached[:-1]
        self._join_each(order[:-1][touch], order[1:][touch], forest)
        begin = np.flatnonzero(np.concatenate([[True], ~touch]))
        low, high = self.low[order[begin]], reached[np.append(begin[1:], len(order)) - 1]
        others = np.array([k for k in at[~self.solid[at]].tolist() if self.parts[k].cells is None], np.int64)
        for edge in (self.low[others], self.high[others] - 1):
            place = np.searchsorted(low, edge, side="right") - 1
            inside = (place >= 0) & (edge < high[np.maximum(place, 0)])
            self._join_each(others[inside], order[begin[place[inside]]], forest)

    def _join_tangled(self, at: Columns, forest: Forest) -> None:
        root = np.zeros(len(self.parts), np.int64)
        if self._is_one(at, forest, root):
            return
        for i, j in self.candidates(at):
            keep = root[i] != root[j]
            if keep.any():
                self._join_pairs(i[keep], j[keep], forest)
                if self._is_one(at, forest, root):
                    return

    def _join_pairs(self, i: Columns, j: Columns, forest: Forest) -> None:
        shallow = self.shallow[i] & self.shallow[j]
        meet = self.meet_each(i[shallow], j[shallow])
        self._join_each(i[shallow][meet], j[shallow][meet], forest)
        self._join_met(zip(i[~shallow].tolist(), j[~shallow].tolist(), strict=True), forest)

    def _is_one(self, at: Columns, forest: Forest, root: Columns) -> bool:
        """Note the roots of some parts, and return whether they all have one."""
        found = [forest.root(member) for member in self.member[at].tolist()]
        root[at] = found
        return min(found) == max(found)

    def sharing(self) -> Int64Array:
        """Return all pairs of members that share a byte here, the smaller number first, (pairs, 2) and in order."""
        members = int(self.member.max()) + 1
        found = [np.empty(0, np.int64)]
        for at in self.tangles(np.arange(len(self.parts))):
            for i, j in self.candidates(at):
                shallow = self.shallow[i] & self.shallow[j]
                meet = np.zeros(len(i), np.bool_)
                meet[shallow] = self.meet_each(i[shallow], j[shallow])
                for k in np.flatnonzero(~shallow).tolist():
                    meet[k] = self.meet(int(i[k]), int(j[k]))
                a, b = self.member[i[meet]], self.member[j[meet]]
                apart = a != b
                found.append((np.minimum(a, b) * members + np.maximum(a, b))[apart])
        return np.stack(np.divmod(np.unique(np.concatenate(found)), members), 1)


# -------------------------------------------------------------------------------------- intervals, arcs and labels


def _touching(low: Columns, high: Columns) -> Columns:
    """Return a label for each interval [low, high), the same for those that overlap, also through others.

    Examples
    --------
    >>> _touching(np.array([5, 0, 7, 3]), np.array([6, 2, 9, 8])).tolist()
    [1, 0, 1, 1]
    """
    order = np.argsort(low, kind="stable")
    reached = np.maximum.accumulate(high[order])
    labels = np.zeros(len(low), np.int64)
    labels[order[1:]] = np.cumsum(low[order[1:]] >= reached[:-1])
    return labels


def _touching_on_circle(start: Columns, length: Columns, period: int) -> Columns:
    """Return what `_touching` does of arcs, 0 <= start < period.

    Examples
    --------
    >>> _touching_on_circle(np.array([8, 0, 4]), np.array([3, 2, 2]), 10).tolist()
    [1, 1, 0]
    """
    end = start + length
    labels = _touching(start, end)
    beyond = end.max() - period
    if beyond > 0:  # arcs that go past the period's end all hold its last integer
        last = labels[int(np.argmax(end))]
        labels[np.isin(labels, labels[start < beyond])] = last
    labels -= labels.min()
    return labels


def _alike(at: Columns, labels: Columns) -> list[Columns]:
    """Return the items of each label that two or more have."""
    order = np.argsort(labels, kind="stable")
    cuts = np.flatnonzero(np.diff(labels[order])) + 1
    begin, end = np.concatenate([[0], cuts]), np.concatenate([cuts, [len(at)]])
    several = end - begin > 1
    return [at[order[i:j]] for i, j in zip(begin[several].tolist(), end[several].tolist(), strict=True)]


Way = tuple[Columns, Columns, Columns]
"""Intervals, by their low and high ends, and which part each of them is of."""


def _unrolled(start: Columns, length: Columns, period: int, at: Columns) -> Way:
    """Return arcs as intervals: those that go past the period's end also begin before 0."""
    twice = start + length > period
    low = np.concatenate([start, start[twice] - period])
    return low, low + np.concatenate([length, length[twice]]), np.concatenate([at, at[twice]])


def _sorted_way(low: Columns, high: Columns, ids: Columns) -> tuple[int, Columns, Columns]:
    """Return how many pairs of intervals overlap, whose they are by their lower ends, and where partners end."""
    order = np.argsort(low, kind="stable")
    low = low[order]
    ends = np.searchsorted(low, high[order], side="left")
    return int((ends - np.arange(len(low)) - 1).sum()), ids[order], ends


def _pairs_within(ids: Columns, ends: Columns) -> Iterator[tuple[Columns, Columns]]:
    """Yield the pairs (ids[k], ids[m]) for k < m < ends[k], a few at first and more later."""
    place = np.arange(len(ids))
    many = np.maximum(ends - place - 1, 0)
    before = np.concatenate([[0], np.cumsum(many)])
    at, room = 0, tuning.FIRST_PAIRS
    while at < len(ids):
        stop = max(at + 1, int(np.searchsorted(before, before[at] + room, side="right")) - 1)
        k = np.repeat(place[at:stop], many[at:stop])
        m = k + 1 + np.arange(len(k)) - np.repeat(before[at:stop] - before[at], many[at:stop])
        if len(k):
            yield ids[k], ids[m]
        at, room = stop, min(2 * room, tuning.MAX_PAIRS_AT_ONCE)


# ----------------------------------------------------------------------------------------------- bytes of several


class Cover:
    """How many members read each byte of one memory.

    Where the periods of all parts divide one another, bytes have digits in which parts are boxes; the boxes are swept
    axis by axis. Else few sets are joined one after the other, and many are sieved; see `sieve`.

    Parameters
    ----------
    home : Allocation
    parts : sequence of Part
        Those of one member share no byte.
    """

    def __init__(self, home: Allocation, parts: Sequence[Part]) -> None:
        self.home, self.parts, self.extent = home, parts, home.size
        self.start = min(part.start for part in parts)
        self.stop = max(part.start + part.length for part in parts)
        periods = {P for part in parts for _, P, _ in part.tail}
        self.radices = tuple(sorted(periods, reverse=True))
        self.boxes = self._boxes()

    def _boxes(self) -> Columns | None:
        """Return the parts as boxes of digits, (boxes, digits, 2); None where they are not boxes."""
        if any(P % Q for P, Q in pairwise(self.radices)) or any(part.cells is not None for part in self.parts):
            return None
        found: list[list[tuple[int, int]]] = []
        for part in self.parts:
            boxes = self._boxes_of(part)
            if boxes is None:
                return None
            found += boxes
        dtype: Any = np.int64 if self.stop - self.start < tuning.MAX_POSITION else object
        return np.array(found, dtype).reshape(len(found), len(self.radices) + 1, 2)

    def _boxes_of(self, part: Part) -> list[list[tuple[int, int]]] | None:
        out: list[list[tuple[int, int]]] = []
        found = ask_one((TooManyPieces,), lambda: list(runs(part.tail, 0, part.length)))
        if found is OPEN:
            return None
        for run in found:
            boxes = _digits(progression(part.start - self.start + run.first, run.levels), self.radices)
            if boxes is None:
                return None
            out += boxes
        return out

    def size(self, least: int) -> int:
        """Return how many bytes one or two members at least read; TooHard if that takes too long."""
        if self.boxes is not None:
            spans = _covered(self.boxes, least)
            return sum(prod(v - u for u, v in lead) * int((high - low).sum()) for lead, low, high in spans)
        return self._in_turn(lambda: self._joined_size(least), lambda: self._sieve.sizes()[least - 1])

    def setts(self, least: int, origin: int, extent: int) -> DisjointSetts:
        """Return the bytes that one or two members at least read, from an origin on, with an extent as period."""
        if self.boxes is None:
            ways = partial(self._joined, least, origin, extent), partial(self._sieved, least, origin, extent)
            return cast(DisjointSetts, retell(lambda error: TooManyPieces(str(error)), self._in_turn, *ways))
        nests: list[Nest] = []
        for lead, low, high in _covered(self.boxes, least):
            check_pieces(len(nests) + len(low), "the bytes that arrays share", "nbytes and nbytes_shared need none")
            for u, v in zip(low.tolist(), high.tolist(), strict=True):
                sides = list(zip(lead, self.radices, strict=True))
                first = self.start - origin + sum(a * P for (a, _), P in sides) + u
                p = progression(first, [*((b - a, P) for (a, b), P in sides), (v - u, 1)])
                nests += [member.nest for member in explicit_setts(p, extent).members]
        return DisjointSetts._joined(nests)

    def _in_turn(self, joined: Callable[[], T], sieved: Callable[[], T]) -> T:
        """Answer by joining sets or by the sieve: first by what is quick, and by the other if the first refuses."""
        short = self.stop - self.start <= tuning.FEW_BYTES
        few = len({part[1:4] for part in self.parts}) <= tuning.FEW_JOINED
        if few and not short:
            found = ask_one(REFUSALS, joined)
            return sieved() if found is OPEN else found
        if not few and len(self.parts) > tuning.MAX_JOINED:
            return sieved()
        found = ask_one((TooHard,), sieved)
        return joined() if found is OPEN else found

    @cached_property
    def _sieve(self) -> Sieve:
        bounded = [(part.start - self.start, part.length, part.tail) for part in self.parts if part.cells is None]
        return Sieve(bounded, [self._list(part) for part in self.parts if part.cells is not None])

    def _list(self, part: Part) -> Columns:
        z = part.listed(self.start, self.extent) if part.size <= tuning.MAX_SCAN else None
        if z is None:
            raise TooHard(
                f"the bytes that several arrays read: {part.size} bytes of one make too many setts, and more than "
                f"{tuning.MAX_SCAN} are not listed; ask for the overlap of two of them"
            )
        return z

    def _sieved(self, least: int, origin: int, extent: int) -> DisjointSetts:
        items = self._sieve.items(least)
        moved = (item._replace(start=item.start + self.start - origin) for item in items)
        return DisjointSetts._of(from_items(moved, 0, extent))

    def _joined_size(self, least: int) -> int:
        span = self.stop - self.start
        with limits(max_pieces=min(tuning.MAX_JOINED, current().max_pieces)):
            return self._joined(least, self.start, span).count(0, span)

    def _joined(self, least: int, origin: int, extent: int) -> DisjointSetts:
        """Return what `setts` does, joining the members' sets one after the other."""
        layers = [DisjointSetts()] * least  # layers[k]: what k + 1 members read
        for member in sorted({part.member for part in self.parts}):
            mine = self._setts_of(member, origin, extent)
            for k in range(least - 1, 0, -1):
                more = (layers[k - 1] & mine).setts(within=(0, extent))
                layers[k] = layers[k].union(more, within=(0, extent))
            layers[0] = layers[0].union(mine, within=(0, extent))
        return layers[-1]

    def _setts_of(self, member: int, origin: int, extent: int) -> DisjointSetts:
        mine = (item for part in self.parts if part.member == member for item in _explicit(part, self.extent))
        return DisjointSetts._of([repeat(length, extent, start - origin, tail) for start, length, tail in mine])


def _explicit(part: Part, extent: int) -> list[tuple[int, int, Nest]]:
    """Return a part as bounded nests: start, length and tail."""
    if part.cells is None:
        return [(part.start, part.length, part.tail)]
    items = (clip(s.nest, 0, extent) for s in part.cells.explicit().members)
    return [item for item in items if item is not None]


def _digits(p: Progression, radices: Sequence[int]) -> list[list[tuple[int, int]]] | None:
    """Return a progression as disjoint boxes of digits, most significant first; None if they are not boxes.

    Examples
    --------
    >>> _digits((5, ((3, 10), (4, 1))), (10,)), _digits((8, ((5, 1),)), (10,))
    ([[(0, 3), (5, 9)]], [[(0, 1), (8, 10)], [(1, 2), (0, 3)]])
    """
    if not radices:
        span = as_interval(p)
        return None if span is None else [[span]]
    out: list[list[tuple[int, int]]] = []
    for high, rest in split_progression(p, radices[0]):
        span = as_interval(high)
        inner = None if span is None else _digits(rest, radices[1:])
        if span is None or inner is None:
            return None
        out += [[span, *box] for box in inner]
    return out


def _covered(boxes: Columns, least: int) -> Iterator[tuple[tuple[tuple[int, int], ...], Columns, Columns]]:
    """Yield the cells that lie in at least so many boxes, as disjoint ones: sides, and intervals of the last digit."""
    if len(boxes) < least:
        return
    if boxes.shape[1] == 1:
        low, high = _covered_line(boxes[:, 0, 0], boxes[:, 0, 1], least)
        if len(low):
            yield (), low, high
        return
    cuts = np.unique(boxes[:, 0, :]).tolist()
    for u, v in pairwise(cuts):
        active = (boxes[:, 0, 0] <= u) & (boxes[:, 0, 1] > u)
        for lead, low, high in _covered(boxes[active, 1:], least):
            yield ((u, v), *lead), low, high


def _covered_line(low: Columns, high: Columns, least: int) -> tuple[Columns, Columns]:
    """Return the integers that lie in at least so many intervals, as few intervals.

    Examples
    --------
    >>> [x.tolist() for x in _covered_line(np.array([0, 2, 4]), np.array([3, 5, 9]), 2)]
    [[2, 4], [3, 5]]
    """
    cuts, place = np.unique(np.concatenate([low, high]), return_inverse=True)
    change = np.bincount(place[: len(low)], minlength=len(cuts)) - np.bincount(place[len(low) :], minlength=len(cuts))
    enough = np.concatenate([[False], np.cumsum(change) >= least])
    return cuts[enough[1:] & ~enough[:-1]], cuts[~enough[1:] & enough[:-1]]
