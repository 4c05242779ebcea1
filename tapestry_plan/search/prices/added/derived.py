"""Layouts that a neighbor asks for: the same even blocks, on other devices, so that nothing moves between the two.

A view between two operators may say that the block which a device reads lies elsewhere. Reversed rows on four devices::

    exp   by rows    0 1 2 3        tanh reads 3 2 1 0: every block moves,
    tanh  by rows    0 1 2 3        unless exp lies as    3 2 1 0

Whether a block that one operator makes holds all that a block of its neighbor reads is asked of the regions, part by
part and without devices. Where each block has one partner, a layout of the one operator says a layout of the other:
its devices permuted, or some of them idle. It is carried on through the graph, from neighbor to neighbor. No kind of
view is named here: flips give reversed devices, rolls shifted ones, slices a part of the mesh.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from copy import copy
from functools import cached_property
from heapq import heapify, heappop, heappush
from itertools import count
from math import inf
from typing import cast

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace
from numpy.typing import NDArray

from tapestry_plan.search import tuning
from tapestry_plan.search.prices.costs import Given, Problem, TensorCost, Use, Variable
from tapestry_plan.search.sums.elimination import IntArray
from tapestry_plan.steps import Layout, SplitAxis
from tapestry_sets.digits import point_of

Seats = tuple[int | None, ...]
"""For each device the number of its part, None for an idle one."""
Cut = tuple[tuple[SplitAxis, ...], tuple[int, ...], tuple[tuple[int, ...], ...]]
"""The digits of the index axes, if these are split, the numbers of parts along them, and their sizes if not even."""
Partners = list[int | None]
"""For each part of a cut the part of another that lies with it, if there is one."""
Mask = NDArray[np.bool_]
Seated = tuple[int, int, int, Cut, Seats, bool]
"""Idle devices, a running number, a variable, one of its cuts, who has which part, and whether that was given."""


class Cuts(Struct, dict=True):
    """The ways in which the layouts of a variable cut it, and who has which part.

    Layouts over split axes are offers: they say how the variable may be cut, not who has which part.

    Parameters
    ----------
    variable : Variable
    most : int
        How many parts may be looked at; of finer cuts there are no more than that.
    """

    variable: Variable
    most: int
    seats: dict[Cut, dict[Seats, None]] = field(default_factory=dict)
    """All placements that are known."""
    like: dict[Cut, Layout] = field(default_factory=dict)
    """A layout of each cut."""
    places: list[tuple[int, int]] = field(default_factory=list)
    """Of every part of every cut, one after the other: a layout and a device that has it."""
    first: dict[Cut, int] = field(default_factory=dict)
    """Where the parts of a cut begin in `places`."""

    def list_all(self) -> None:
        """Look at all layouts."""
        for row, layout in enumerate(self.variable.layouts):
            if layout.lots:  # which are not parts that a neighbor could be cut into
                continue
            cut, seats = (layout.digits, layout.parts, layout.sizes), layout.seats
            if cut not in self.seats:
                devices = {part: device for device, part in enumerate(seats) if part is not None}
                if len(self.places) + len(devices) > self.most:
                    continue
                self.first[cut] = len(self.places)
                self.like[cut] = layout
                self.places += [(row, devices[part]) for part in sorted(devices)]
            known = self.seats.setdefault(cut, {})
            if not layout.digits:
                known[seats] = None

    def copy(self) -> Cuts:
        """The same of an alike variable, to which placements may be added."""
        made = copy(self)
        made.seats = {cut: dict(known) for cut, known in self.seats.items()}
        return made

    @cached_property
    def counts(self) -> dict[Cut, int]:
        """How many parts each cut has."""
        ends = [*list(self.first.values())[1:], len(self.places)]
        return {cut: end - at for (cut, at), end in zip(self.first.items(), ends, strict=True)}

    @cached_property
    def offered(self) -> list[Cut]:
        """The cuts over split axes with a part for each device."""
        devices = len(self.variable.layouts[0].cells)
        return [cut for cut in self.first if cut[0] and self.counts[cut] == devices]

    def numbers(self, by_layout: IntArray) -> IntArray:
        """Region numbers of all parts, from those by layout and device."""
        rows, devices = np.array(self.places, np.int64).reshape(-1, 2).T
        return by_layout[rows, devices]

    def span(self, cut: Cut) -> slice:
        """Where the parts of a cut are in `places`."""
        return slice(self.first[cut], self.first[cut] + self.counts[cut])


class Edge(Struct, dict=True):
    """A tensor between the operator that makes it and one that reads it."""

    problem: Problem
    cost: TensorCost
    use: Use
    numbers: IntArray
    """What is read: by all operands of the reader, or by one of them."""
    maker: Cuts
    reader: Cuts

    @cached_property
    def fits(self) -> Mask:
        """By a part of the maker and a part of the reader: whether the one holds all that the other reads."""
        held = self.cost.held
        arrays = id(held.numbers), id(held.parts), id(self.numbers)  # shared, so that alike ones are one object
        layouts = map(self.problem.known.identity, (self.maker.variable.layouts, self.reader.variable.layouts))
        return self.problem.known.fact(("fits", self.cost.tensor.shape, *arrays, *layouts), self._fit)

    def _fit(self) -> Mask:
        table, held = self.cost.table, self.cost.held
        has, reads = self.maker.numbers(held.numbers), self.reader.numbers(self.numbers)
        is_whole = held.parts[[row for row, _ in self.maker.places]] == 1
        wanted = table.sizes(reads)
        fits = table.sizes(has[:, None], reads[None, :]) == wanted
        return cast(Mask, fits & (wanted > 0) & is_whole[:, None])

    def list_partners(self, of_maker: bool, mine: Cut) -> list[tuple[Cut, Partners]]:
        """Return the cuts of one end whose parts lie each with one part of a cut of the other, and who with whom."""
        #              reads           Each part of the reader must lie with one part of the maker, and each of these
        #            0  1  2  3        with one at most: where 1 lay with 0 as well, nobody would say which of the two
        # holds  0   .  .  .  x        its device has.
        #        1   .  .  x  .
        #        2   .  x  .  .        A part of the maker that nobody reads leaves its device idle; a part of the
        #        3   x  .  .  .        reader that reads nothing may lie anywhere, so that nothing is said.
        ours, other = (self.maker, self.reader) if of_maker else (self.reader, self.maker)
        if mine not in ours.first or not other.first:
            return []
        # Rows are our parts; columns are theirs, the parts of one cut after those of another.
        holds = (self.fits if of_maker else self.fits.T)[ours.span(mine)]
        begins, counts = list(other.first.values()), np.array(list(other.counts.values()))
        by_cut = np.add.reduceat(holds, begins, axis=1, dtype=np.int64)
        alone = holds.sum(axis=0)
        if of_maker:
            may = (by_cut <= 1).all(axis=0) & np.logical_and.reduceat(alone == 1, begins)
        else:  # all parts of the maker must have a device
            may = (by_cut == 1).all(axis=0) & np.logical_and.reduceat(alone <= 1, begins) & (counts <= len(holds))
        found = [theirs for theirs, is_one in zip(other.first, may.tolist(), strict=True) if is_one]
        return [(theirs, _name_partners(holds[:, other.span(theirs)])) for theirs in found]


def _name_partners(holds: Mask) -> Partners:
    """By row the column that is set in it, if there is one."""
    return [int(row.argmax()) if row.any() else None for row in holds]


def derive_layouts(problem: Problem, pinned: Collection[str], stop: float = inf) -> dict[str, tuple[Layout, ...]]:
    """Return for each operator, by name, the layouts that its neighbors ask for beyond those that it has.

    Parameters
    ----------
    problem : Problem
        Its operators have one layout for each cut over split axes that is offered to them (`splits.offer_cuts`).
    pinned : collection of str
        Operators whose layouts the caller gave: they ask others, and get none.
    stop : float
        Of the monotonic clock: what was found by then is returned.

    Returns
    -------
    dict of str to tuple of Layout
        At most `tuning.MAX_DERIVED` for each operator, and as many over split axes: first those that leave the fewest
        devices idle.
    """
    cuts = [_cut(problem, variable).copy() for variable in problem.variables]
    edges = [
        Edge(problem, cost, use, numbers, cuts[cost.producer], cuts[use.variable])
        for cost in problem.tensors
        for use in cost.uses
        for numbers in (use.numbers, *use.apart)
        if use.variable != cost.producer and not _exclude(cost.given, use.given)
    ]
    if not any(edge.use.viewed for edge in edges):
        return {}
    open_ = [at for at, v in enumerate(problem.variables) if v.kind == "operator" and v.name not in pinned]
    walk = _Walk(cuts, edges, open_, stop)
    walk.go()
    return {problem.variables[at].name: tuple(found) for at, found in walk.found.items() if found}


def _cut(problem: Problem, variable: Variable) -> Cuts:
    """The ways in which a variable is cut, one object for all of the same layouts."""

    def made() -> Cuts:
        cuts = Cuts(variable, tuning.MAX_DERIVED_PARTS)
        cuts.list_all()
        return cuts

    return problem.known.fact(("cuts", problem.known.identity(variable.layouts), tuning.MAX_DERIVED_PARTS), made)


def _exclude(one: Given, two: Given) -> bool:
    """Whether no graph has what is there on the one and on the other condition."""
    values = dict(one)
    return any(values.get(number, value) != value for number, value in two)


class _Walk:
    """Carries layouts from neighbor to neighbor until nothing new is found."""

    def __init__(self, cuts: Sequence[Cuts], edges: Sequence[Edge], open_: Collection[int], stop: float) -> None:
        self.cuts, self.open, self.stop = cuts, frozenset(open_), stop
        self.found: dict[int, list[Layout]] = {}
        self.around: dict[int, list[Edge]] = {}
        for edge in edges:
            for at in (edge.cost.producer, edge.use.variable):
                self.around.setdefault(at, []).append(edge)
        self.partners: dict[tuple[int, bool, Cut], list[tuple[Cut, Partners]]] = {}

    def go(self) -> None:
        # Those that leave the fewest devices idle go first, since an operator takes a few only.
        turn = count()
        queue: list[Seated] = []
        for at, edges in self.around.items():
            if at in self.open and not any(edge.use.viewed for edge in edges):
                continue  # what such neighbors have in common they are all offered anyway
            for cut, each in self.cuts[at].seats.items():
                queue += [(seats.count(None), next(turn), at, cut, seats, at in self.open) for seats in each]
        heapify(queue)
        self._carry(queue, turn)
        # Cuts over split axes that nobody asks for may lie with each other: one that is as fine as can be takes the
        # devices in their order, and is carried on in turn.
        for at in sorted(self.open & self.around.keys()):
            for cut in self.cuts[at].offered:
                seats = tuple(range(self.cuts[at].counts[cut]))
                if not self.cuts[at].seats[cut] and self._add(at, cut, seats):
                    self._carry([(0, next(turn), at, cut, seats, False)], turn)

    def _carry(self, queue: list[Seated], turn: Iterator[int]) -> None:
        """Carry placements on from neighbor to neighbor."""
        while queue and time.monotonic() < self.stop:
            _, _, at, cut, seats, is_given = heappop(queue)
            for edge in self.around[at]:
                # What neighbors have in common without a view between them they are all offered anyway.
                if is_given and not edge.use.viewed:
                    continue
                of_maker = at == edge.cost.producer
                other = edge.use.variable if of_maker else edge.cost.producer
                for theirs, partner in self._list_partners(edge, of_maker, cut) if other in self.open else ():
                    new = tuple(None if part is None else partner[part] for part in seats)
                    if self._add(other, theirs, new):
                        heappush(queue, (new.count(None), next(turn), other, theirs, new, False))

    def _add(self, at: int, cut: Cut, seats: Seats) -> bool:
        """Note a placement of an operator's parts; False if it is known, or there are enough."""
        known, found = self.cuts[at].seats[cut], self.found.setdefault(at, [])
        like = self.cuts[at].like[cut]
        # Of those over split axes as many: without these the others would be the same.
        alike = sum(bool(one.digits) == bool(like.digits) for one in found)
        if seats in known or alike >= tuning.MAX_DERIVED:
            return False
        known[seats] = None
        found.append(replace(like, cells=tuple(None if part is None else point_of(part, like.parts) for part in seats)))
        return True

    def _list_partners(self, edge: Edge, of_maker: bool, mine: Cut) -> list[tuple[Cut, Partners]]:
        """Return the cuts of a neighbor whose parts lie each with one part of a cut, and who lies with whom."""
        key = id(edge.fits), of_maker, mine  # alike edges have one table
        if key not in self.partners:
            self.partners[key] = edge.list_partners(of_maker, mine)
        return self.partners[key]
