"""What a plan would cost with another sharding of an operator, all its other choices kept; one way for all who ask.

`alternatives` of a plan, and plans that keep another one's choices (`plan(…, like=p, fix=…)`), are found here::

    plan's choices ─► KeptProblem, some operators open ─► tables around these ─► least sum ─► layouts
                                                                                     │
                                                  counted again, place by place ─► causes
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from copy import copy
from functools import cached_property
from itertools import product
from math import prod
from typing import Literal, NamedTuple

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tapestry_plan.ir import Axis, Graph
from tapestry_plan.search import tuning
from tapestry_plan.search.placing import count_held
from tapestry_plan.search.prices.added import KeptProblem, derive_layouts
from tapestry_plan.search.prices.costs import TICKS_PER_SECOND, Asked, Known, Moved, TensorCost, find_cells
from tapestry_plan.search.sums.elimination import Factor, IntArray, minimize
from tapestry_plan.search.sums.reduction import cut_table
from tapestry_plan.steps import (
    TOLD_CAUSES,
    Alternative,
    Cause,
    Choices,
    Layout,
    Mesh,
    Sample,
    Space,
    fill_comparison,
    list_stored,
    name_stage,
    tell_cells,
)

Rows = Mapping[int, IntArray]
"""By variable the numbers of the layouts that it may have; others have the plan's."""


class Comparison:
    """What choices cost with other shardings of operators.

    Parameters
    ----------
    graph, mesh, choices, space
        Of a plan. Its problem is posed when the first operator is asked for: a plan may be kept long, few are asked,
        and the tables take much more memory than it does.
    """

    def __init__(self, graph: Graph, mesh: Mesh, choices: Choices, space: Space) -> None:
        self._graph, self._choices, self._nodes = graph, choices, tuple(graph.nodes)
        apart = choices.memory_nbytes is not None
        self._asked = Asked(mesh, space=space, fan_in=choices.fan_in, known=Known(), apart=apart)

    def __call__(self, node: str) -> tuple[Alternative, ...]:
        """The shardings of an operator from best to worst; none where comparing them would take long."""
        if tuple(self._graph.nodes) != self._nodes:
            raise ValueError("the graph was changed since it was planned, so shardings cannot be compared: plan again")
        problem = self._problem
        at = problem.position["operator", node]
        layouts = problem.variables[at].layouts
        near = _Near.of(problem, {node: np.arange(len(layouts))})
        if near is None:
            return ()
        by_parts: dict[tuple[int, ...], list[int]] = {}
        for row, layout in enumerate(layouts):
            by_parts.setdefault(layout.parts, []).append(row)
        around, kept = _Surroundings(problem, node, self._cost), layouts[0].parts
        choices = [problem.kept if parts == kept else near.choose({at: mine}) for parts, mine in by_parts.items()]
        found = map(around.compare, choices)
        return tuple(sorted(found, key=lambda one: (one.seconds, one.nbytes_moved, not one.is_chosen)))

    def settle(self, wanted: Mapping[str, Layout], exact: Collection[str]) -> tuple[KeptProblem, tuple[int, ...]]:
        """The best choices where some operators are sharded otherwise, all others kept.

        Parameters
        ----------
        wanted : mapping
            By operator a layout with the parts that are asked for.
        exact : collection of str
            Operators that have this very layout; others may have any of these parts that is compared.
        """
        derived, some = dict[str, tuple[Layout, ...]](), dict[str, list[Layout]]()
        for name, layout in wanted.items():
            known = self._problem.variables[self._problem.position["operator", name]].layouts
            if name in exact:
                some[name] = [layout]
            elif layout.parts == known[0].parts:  # it is sharded so
                some[name] = [known[0]]
            else:
                some[name] = [one for one in known if one.parts == layout.parts] or [layout]
            derived[name] = (*self._derived.get(name, ()), *(one for one in some[name] if one not in known))
        problem = KeptProblem(self._graph, replace(self._asked, derived=derived), self._choices, wanted)
        numbers = {
            name: np.array([problem.variables[problem.position["operator", name]].layouts.index(one) for one in mine])
            for name, mine in some.items()
        }
        near = _Near.of(problem, {name: mine for name, mine in numbers.items() if mine.tolist() != [0]}, most=None)
        assert near is not None, "there is no limit"
        return problem, near.choose()

    @cached_property
    def _all(self) -> KeptProblem:
        return KeptProblem(self._graph, self._asked, self._choices, self._nodes)

    @cached_property
    def _derived(self) -> dict[str, tuple[Layout, ...]]:
        """The layouts that neighbors ask for, beyond those of every operator."""
        return derive_layouts(self._all, ())

    @cached_property
    def _problem(self) -> KeptProblem:
        if not self._derived:
            return self._all
        return KeptProblem(self._graph, replace(self._asked, derived=self._derived), self._choices, self._nodes)

    @cached_property
    def _cost(self) -> tuple[int, int]:
        return self._problem.count_cost(self._problem.kept)


fill_comparison(Comparison)


class _Near(Struct, frozen=True):
    """Exact tables of all that depends on some open operators.

    Parameters
    ----------
    problem : KeptProblem
    rows : dict of int to array
        The open variables, ascending, each with the numbers of the layouts that it may have.
    tables : sequence of Factor
        Over these variables, by their places in `rows`.
    """

    problem: KeptProblem
    rows: Rows
    tables: Sequence[Factor]

    @classmethod
    def of(
        cls, problem: KeptProblem, nodes: Mapping[str, IntArray], most: int | None = tuning.MAX_COMPARISONS
    ) -> _Near | None:
        """The tables of operators with the layouts that they may have.

        A tensor whose consumers are too many for one table is counted choice by choice; None where that would be more
        than `most` consumers in all.
        """
        rows = _open_places(problem, nodes)
        near, places = copy(problem), {at: place for place, at in enumerate(rows)}
        near.tensors, near.own = [cost for cost in problem.tensors if not rows.keys().isdisjoint(_scope(cost))], []
        near = near.restrict([rows.get(at, np.zeros(1, np.int64)) for at in range(len(problem.variables))])
        near.entries = tuning.MAX_FACTOR_ENTRIES
        found = [near._own_table(at, near.compute[at]) for at in rows if problem.variables[at].kind == "operator"]
        for cost in near.tensors:
            uses = range(len(cost.uses))
            if all(near._fits(cost, uses[: k + 1]) for k in uses):
                found += [*near._landing_tables(cost), *(near._factor(cost, uses[: k + 1]) for k in uses)]
                continue
            scope = tuple(sorted(set(_scope(cost)) & rows.keys()))
            if most is not None and len(cost.uses) * prod(near.sizes[v] for v in scope) > most:
                return None
            found.append(Factor(scope, *_count_choices(near, cost, scope)))
        tables = []
        for one in found:
            settled = tuple(axis for axis, v in enumerate(one.scope) if v not in places)
            scope = tuple(places[v] for v in one.scope if v in places)
            tables.append(Factor(scope, one.ticks.squeeze(settled), one.nbytes.squeeze(settled)))
        return cls(problem, rows, tables)

    def choose(self, only: Mapping[int, Sequence[int]] | None = None) -> tuple[int, ...]:
        """The layouts that cost least, where some variables have but some of their numbers here."""
        some = [np.array(only[at]) if only and at in only else np.arange(len(mine)) for at, mine in self.rows.items()]
        cut: dict[tuple[int, ...], tuple[IntArray, IntArray]] = {}
        tables = [cut_table(one, [some[v] for v in one.scope], cut) for one in self.tables]
        found = minimize([len(each) for each in some], tables)
        choice = list(self.problem.kept)
        for (at, mine), each, value in zip(self.rows.items(), some, found.choice, strict=True):
            choice[at] = int(mine[each[value]])
        return tuple(choice)


def _open_places(problem: KeptProblem, nodes: Mapping[str, IntArray]) -> Rows:
    """Operators with the layouts that they may have, and where what they make in parts may land, or lie at the end."""
    rows = {problem.position["operator", name]: mine for name, mine in nodes.items()}
    for name, kind in product(nodes, ("landing", "output")):
        for tensor in problem.graph.nodes[name].outputs:
            at = problem.position.get((kind, tensor))
            if at is not None and len(problem.variables[at].layouts) > 1:
                rows[at] = np.arange(len(problem.variables[at].layouts))
    return dict(sorted(rows.items()))


def _scope(cost: TensorCost) -> list[int]:
    """The variables that what moves of a tensor depends on."""
    landing = [cost.landing] if cost.landing else []
    return [cost.producer, *(use.variable for use in (*landing, *cost.uses))]


def _count_choices(problem: KeptProblem, cost: TensorCost, scope: Sequence[int]) -> tuple[IntArray, IntArray]:
    """What moves of a tensor, in picoseconds and bytes by some variables, counted choice by choice."""
    sizes = [problem.sizes[v] for v in scope]
    ticks, nbytes = np.zeros(sizes, np.int64), np.zeros(sizes, np.int64)
    choice = list(problem.kept)
    for at in np.ndindex(*sizes):
        for variable, row in zip(scope, at, strict=True):
            choice[variable] = row
        moved = problem.count_moved_of(cost, choice)
        ticks[at], nbytes[at] = sum(one.ticks for one in moved), sum(int(one.nbytes.sum()) for one in moved)
    return ticks, nbytes


class _Surroundings:
    """What moves around an operator, and what it takes itself: in the plan, and with other layouts.

    Parameters
    ----------
    problem : KeptProblem
    node : str
    cost : tuple of int
        Picoseconds and bytes of the plan.
    """

    def __init__(self, problem: KeptProblem, node: str, cost: tuple[int, int]) -> None:
        self.problem, self.node, self.cost = problem, node, cost
        self.at = problem.position["operator", node]
        rows = _open_places(problem, {node: np.zeros(1, np.int64)})
        self.tensors = [one for one in problem.tensors if not rows.keys().isdisjoint(_scope(one))]
        read = list_stored(problem.graph, problem.graph.nodes[node].inputs)
        self.held = [name for name in read if self._is_free(name)]
        self.before = self._list_arrivals(problem.kept)
        self.counted: dict[tuple[str, tuple[tuple[int, ...], ...]], int] = {}
        """Of inputs and constants, by the blocks that are read, the bytes that devices hold of them."""

    def _is_free(self, name: str) -> bool:
        """Whether a tensor is given, and starts wherever it is read."""
        return self.problem.graph.stored[name].kind != "result" and ("source", name) not in self.problem.position

    def _list_arrivals(self, choice: Sequence[int]) -> dict[tuple[str, str], _Arrival]:
        """What moves, by tensor and reader."""
        return {
            (cost.tensor.name, label): _Arrival(cost, number, moved, number < len(every) - len(cost.uses))
            for cost in self.tensors
            for every in [list(self.problem.list_moved(cost, choice))]
            for number, (label, moved) in enumerate(every)
        }

    def compare(self, choice: Sequence[int]) -> Alternative:
        """What the graph costs with some layouts, and why."""
        problem, variable = self.problem, self.problem.variables[self.at]
        is_chosen = tuple(choice) == problem.kept
        after = self.before if is_chosen else self._list_arrivals(choice)
        work = [int(problem.compute[self.at][row]) for row in (0, choice[self.at])]
        ticks, nbytes = self.cost
        ticks += work[1] - work[0] + sum(_sum_ticks(each) * sign for each, sign in ((after, 1), (self.before, -1)))
        nbytes += sum(_sum_nbytes(each) * sign for each, sign in ((after, 1), (self.before, -1)))
        found = [*self._list_moved(after, choice, is_chosen), *(() if is_chosen else self._list_held(choice))]
        if work[0] != work[1]:
            found.append(Cause("works", "", "", self.node, _seconds(*work), (0, 0)))
        groups = self._group(after)
        found.sort(key=lambda one: (-abs(one.more_seconds), -abs(one.more_nbytes), -one.nbytes[1]))
        causes = tuple(
            replace(one, sample=self._find_sample(after, groups[one.tensor, one.reader], choice))
            if k < TOLD_CAUSES and one.what in ("receives", "merges") and one.nbytes[1]
            else one
            for k, one in enumerate(found)
        )
        layout = variable.layouts[choice[self.at]]
        sharding = summarize(variable.axes, layout)
        on = () if sharding else tuple(device for device, cell in enumerate(layout.cells) if cell is not None)
        return Alternative(sharding, ticks / TICKS_PER_SECOND, nbytes, self.node, is_chosen, causes, on)

    def _list_moved(
        self, after: Mapping[tuple[str, str], _Arrival], choice: Sequence[int], is_chosen: bool
    ) -> Iterator[Cause]:
        """What moves otherwise than in the plan; of the plan itself all that moves."""
        for (name, reader), labels in self._group(after).items():
            every = ((each[key] for key in labels if key in each) for each in (self.before, after))
            places = [sorted(mine, key=lambda one: one.number) for mine in every]
            ticks = [sum(one.moved.ticks for one in mine) for mine in places]
            nbytes = [sum(one.nbytes for one in mine) for mine in places]
            if not nbytes[1] if is_chosen else (ticks[0], nbytes[0]) == (ticks[1], nbytes[1]):
                continue
            tensor = self.problem.graph.stored[name]
            parts = max((self._count_parts(one, choice) for one in places[1]), default=1) if nbytes[1] else 1
            what: Literal["merges", "receives"] = "merges" if parts > 1 else "receives"
            size = prod(tensor.shape) * tensor.itemsize
            each = [tuple(one.nbytes for one in mine) if len(mine) > 1 else () for mine in places]
            moved = nbytes[0], nbytes[1]
            stages = each[0], each[1]
            runs = [sum(one.moved.runs for one in mine) for mine in places]
            yield Cause(
                what, name, tensor.kind, reader, _seconds(*ticks), moved, size, parts, None, stages, (runs[0], runs[1])
            )

    def _group(self, after: Mapping[tuple[str, str], _Arrival]) -> dict[tuple[str, str], list[tuple[str, str]]]:
        """What moves, by tensor and reader: the stages in which a tensor lands together, in their order."""
        found: dict[tuple[str, str], list[tuple[str, str]]] = {}
        for key in dict.fromkeys((*after, *self.before)):
            arrivals = [each[key] for each in (self.before, after) if key in each]
            is_stage = any(one.is_stage for one in arrivals)
            found.setdefault((key[0], name_stage("landing", key[0]) if is_stage else key[1]), []).append(key)
        return found

    def _count_parts(self, place: _Arrival, choice: Sequence[int]) -> int:
        """Of how many partial results what moves is."""
        cost = place.cost
        return 1 if cost.lands_in(choice) and not place.is_stage else int(cost.held.parts[choice[cost.producer]])

    def _find_sample(
        self, after: Mapping[tuple[str, str], _Arrival], keys: Sequence[tuple[str, str]], choice: Sequence[int]
    ) -> Sample:
        """The largest of some transfers, of these the first."""
        place = max(
            (after[key] for key in keys if key in after), key=lambda one: max(one.moved.links.values(), default=0)
        )
        ends, nbytes = max(place.moved.links.items(), key=lambda one: (one[1], -one[0][0], -one[0][1]))
        cells = find_cells(place.cost, choice, place.number, ends, self.problem.mesh, self.problem.known)
        return Sample(*ends, tell_cells(cells), nbytes)

    def _list_held(self, choice: Sequence[int]) -> Iterator[Cause]:
        """The inputs and constants of which devices hold more or less from the start."""
        for name in self.held:
            tensor = self.problem.graph.stored[name]
            held = [self._count_held(name, one) for one in (self.problem.kept, choice)]
            if held[0] != held[1]:
                size = prod(tensor.shape) * tensor.itemsize
                yield Cause("holds", name, tensor.kind, "", (0.0, 0.0), (held[0], held[1]), size)

    def _count_held(self, name: str, choice: Sequence[int]) -> int:
        read = tuple(tuple(use.numbers[choice[use.variable]].tolist()) for use in self.problem.uses[name])
        if (name, read) not in self.counted:
            itemsize = self.problem.graph.stored[name].itemsize
            self.counted[name, read] = int(count_held(self.problem.tables[name], read, (), itemsize))
        return self.counted[name, read]


class _Arrival(NamedTuple):
    """What moves of a tensor for a reader or in a stage, and which of the tensor's transfers that is."""

    cost: TensorCost
    number: int
    moved: Moved
    is_stage: bool

    @property
    def nbytes(self) -> int:
        return int(self.moved.nbytes.sum())


def _sum_ticks(places: Mapping[tuple[str, str], _Arrival]) -> int:
    return sum(one.moved.ticks for one in places.values())


def _sum_nbytes(places: Mapping[tuple[str, str], _Arrival]) -> int:
    return sum(one.nbytes for one in places.values())


def _seconds(before: int, after: int) -> tuple[float, float]:
    return before / TICKS_PER_SECOND, after / TICKS_PER_SECOND


def summarize(axes: Sequence[Axis], option: Layout) -> dict[str, int]:
    """The axes that a layout splits, and in how many parts."""
    return {axis.name: n for axis, n in zip(axes, option.parts, strict=True) if n > 1}
