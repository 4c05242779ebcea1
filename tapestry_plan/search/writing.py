"""Layouts that were chosen, written down as a plan: its steps, what each stage moves, and what else was compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from tapestry_plan.ir import OpNode
from tapestry_plan.rewrite import Draft, split_axes
from tapestry_plan.search.kept.comparing import Comparison, summarize
from tapestry_plan.search.neighbors.fusing import fuse_neighbors
from tapestry_plan.search.prices.added import KeptProblem, Split
from tapestry_plan.search.prices.costs import TICKS_PER_SECOND, Moved, Problem
from tapestry_plan.search.solving import Solved, count_work
from tapestry_plan.steps import (
    MAX_STAGE_SECONDS,
    Alike,
    Choices,
    Expansions,
    Layout,
    Lowered,
    OnDemand,
    ShardPlan,
    Stage,
    Written,
    lower,
    lower_alike,
    pack,
    tell_rule,
    unite,
)
from tapestry_sets.limits import FrozenDict, put_fields, quote
from tapestry_sets.regions import Box, DisjointRegions


class Candidate(Struct, frozen=True):
    """Layouts of a graph, and what they cost: their plan is written down where it is asked for.

    Parameters
    ----------
    problem : Problem
        Of the graph with its operators apart.
    blocks : Problem
        The same where neighbors may be in one block, if they may; else the problem itself.
    solved : Solved
        Of `blocks`.
    fan_in : int, optional
    bound : float
        Seconds that no plan takes less than, of all that were compared so far.
    before, after : tuple of Expansions
        What is said of expansions that led to the graph, and of others.
    """

    problem: Problem
    blocks: Problem
    solved: Solved
    fan_in: int | None
    bound: float
    before: tuple[Expansions, ...] = ()
    after: tuple[Expansions, ...] = ()
    known: dict[str, Any] = field(default_factory=dict)
    """What was worked out of these layouts."""

    @classmethod
    def of(cls, problem: Problem, blocks: Problem, solved: Solved, fan_in: int | None) -> Candidate:
        bound = min(solved.ticks, solved.bound_ticks) / TICKS_PER_SECOND
        return cls(problem, blocks, solved, fan_in, bound)

    @property
    def seconds(self) -> float:
        return self.solved.ticks / TICKS_PER_SECOND

    @property
    def cost(self) -> tuple[int, int]:
        """Picoseconds and bytes moved."""
        return self.solved.ticks, self.cost_apart[1]

    @property
    def cost_apart(self) -> tuple[int, int]:
        """The same of the layouts with all operators apart."""
        if "cost" not in self.known:
            self.known["cost"] = self.problem.count_cost(self.solved.choice)
        found: tuple[int, int] = self.known["cost"]
        return found

    @property
    def placed(self) -> tuple[int, ...]:
        """The layouts, or others that cost as much and place as few bytes as is found."""
        if "placed" not in self.known:
            self.known["placed"] = self.solved.placed().choice
        choice: tuple[int, ...] = self.known["placed"]
        return choice

    @property
    def is_fused(self) -> bool:
        """Whether neighbors may be in one block."""
        return self.blocks is not self.problem

    @property
    def is_expanded(self) -> bool:
        """Whether the graph is one that expansions made."""
        return any(one.chosen is not None for one in self.before)

    @property
    def work(self) -> int:
        """What finding them took, in entries of tables."""
        return count_work(self.problem, self.solved)

    def lower_bound(self, seconds: float) -> Candidate:
        """The same with a bound that is at most another one."""
        return replace(self, bound=min(self.bound, seconds))

    def write(self) -> ShardPlan:
        """The plan."""
        if "plan" not in self.known:
            self.known["plan"] = write_plan(self.blocks, self.placed, 0, self.fan_in)
        plan: ShardPlan = self.known["plan"]
        # What is read of operators over split axes is read through other views than the tables have (`splitting`).
        is_split = any(one.split for one in plan.expansions)
        # What blocks of neighbors make may not lie with its rows apart, though what each of these makes may.
        more = round(plan.seconds * TICKS_PER_SECOND) - self.solved.ticks
        if not is_split and (more < 0 or (more and not plan.fused)):
            raise AssertionError(f"the plan takes {plan.seconds} s, the cost tables say {self.seconds}")
        expansions = (*self.before, *plan.expansions, *self.after)
        return replace(plan, expansions=expansions, bound=min(plan.seconds, self.bound))


def write_plan(
    problem: Problem,
    choice: Sequence[int],
    bound_ticks: int,
    fan_in: int | None,
    caps: Sequence[int] | None = None,
    lowered: Lowered | None = None,
) -> ShardPlan:
    """The plan of a choice of layouts, in arenas of some memory if they are given it.

    `lowered` has its steps, in these arenas, where they are written down already.
    """
    joined = problem.list_joined(choice)
    problem, choice, expansions = split_chosen(problem, choice)
    problem, choice, fused = fuse_neighbors(problem, choice, joined) if joined else (problem, choice, ())
    if problem.asked.apart != (caps is not None):  # it is priced as it is written
        layouts = Choices(name_layouts(problem, choice), tuple(sorted(problem.asked_outputs)), fan_in)
        problem = KeptProblem(problem.graph, replace(problem.asked, apart=caps is not None), layouts)
        choice = problem.kept
    graph, mesh = problem.graph, problem.mesh
    choices = _name_choices(problem, choice, fan_in)
    if caps is not None:
        choices = replace(choices, memory_nbytes=tuple(caps))
    if lowered is not None:
        alike = Alike(lowered, lowered.devices)
    elif caps is None:
        alike = lower_alike(graph, mesh, choices, problem.reads, partial(problem.asked.meter.tell, "steps"))
    else:
        packed = pack(lower(graph, mesh, choices, reads=problem.reads), caps).lowered
        alike = Alike(packed, packed.devices)
    lowered = alike.lowered
    if alike.is_all:
        choices.remember(graph, mesh, Written(lowered.buffers, lowered.steps, lowered.outputs))
    moved = problem.count_moved(choice)
    predicted = _list_links(moved, lowered.devices)
    if predicted != lowered.moved:
        raise AssertionError(f"the steps move {lowered.moved}, the cost tables say {predicted}")
    arriving: dict[str, list[Moved]] = {}
    for (_, consumer), value in moved.items():
        arriving.setdefault(consumer, []).append(value)
    stages = [_stage(problem, node, choice, arriving.get(node.name, ())) for node in problem.order]
    stages += _output_stages(problem, moved)
    ticks = sum(m.ticks for m in moved.values())
    ticks += sum(int(problem.compute[at][choice[at]]) for at in range(len(problem.variables)))
    _check_seconds(stages)
    totals = np.zeros(mesh.size, np.int64)
    for m in moved.values():
        totals += m.nbytes
    return ShardPlan(
        graph=graph,
        mesh=mesh,
        choices=choices,
        stages=tuple(stages),
        nbytes_received=tuple(int(n) for n in totals),
        nbytes_by_link=_sum_links(moved),
        nbytes_placed=alike.nbytes_placed,
        nbytes_local=_sum_copied(problem, choice, moved),
        peak_nbytes=alike.peak_nbytes,
        flop=tuple(sum(stage.flop[d] for stage in stages) for d in range(mesh.size)),
        seconds=ticks / TICKS_PER_SECOND,
        bound=min(ticks, bound_ticks) / TICKS_PER_SECOND,
        space=problem.asked.space,
        alternatives=OnDemand(
            [node.name for node in problem.order], Comparison(graph, mesh, choices, problem.asked.space)
        ),
        expansions=expansions,
        fused=fused,
    )


def _list_links(
    moved: Mapping[tuple[str, str], Moved], devices: Sequence[int]
) -> dict[tuple[str, str], dict[tuple[int, int], int]]:
    """Bytes from device to device for each (tensor, consumer) with any, as far as some devices send or receive them."""
    here, known = set(devices), dict[int, dict[tuple[int, int], int]]()
    for m in moved.values():
        if id(m.links) not in known:  # alike tensors have one object
            known[id(m.links)] = {ends: n for ends, n in m.links.items() if not here.isdisjoint(ends)}
    return {key: known[id(m.links)] for key, m in moved.items() if known[id(m.links)]}


def _sum_links(moved: Mapping[tuple[str, str], Moved]) -> dict[tuple[int, int], int]:
    """Bytes from device to device."""
    times = Counter(id(m.links) for m in moved.values())
    total: Counter[tuple[int, int]] = Counter()
    for links in {id(m.links): m.links for m in moved.values()}.values():
        for ends, nbytes in links.items():
            total[ends] += times[id(links)] * nbytes
    return dict(total)


def _sum_copied(problem: Problem, choice: Sequence[int], moved: Mapping[tuple[str, str], Moved]) -> tuple[int, ...]:
    """Bytes that each device writes anew to read operands."""
    total = sum((m.copied for m in moved.values()), np.zeros(problem.mesh.size, np.int64))
    for node in problem.order:
        row = choice[problem.position["operator", node.name]]
        total += problem.count_copied(node, slice(row, row + 1))[0]
    return tuple(total.tolist())


def _stage(problem: Problem, node: OpNode, choice: Sequence[int], mine: Sequence[Moved]) -> Stage:
    at = problem.position["operator", node.name]
    variable = problem.variables[at]
    option = variable.layouts[choice[at]]
    signature = problem.graph.signature(node.name)
    got = sum((m.nbytes for m in mine), np.zeros(problem.mesh.size, np.int64))
    ticks = sum(m.ticks for m in mine) + int(problem.compute[at][choice[at]])
    boxes = option.boxes
    return Stage(
        node=node.name,
        op=node.op,
        sharding=summarize(variable.axes, option),
        nbytes_received=tuple(int(n) for n in got),
        nbytes_shared=problem.known.fact(
            ("shared", problem.kind(node), choice[at]), lambda: _shared_nbytes(problem, node, boxes)
        ),
        flop=tuple(problem.graph.ops[node.op].count_flop(signature, node.attrs, boxes)),
        seconds=ticks / TICKS_PER_SECOND,
        work_seconds=problem.known.fact(
            ("seconds", problem.kind(node), choice[at]), lambda: problem.count_seconds(node, choice[at])
        ),
    )


def _check_seconds(stages: Sequence[Stage]) -> None:
    """Refuse stages that take longer than is counted."""
    for stage in stages:
        if stage.seconds >= MAX_STAGE_SECONDS:
            raise ValueError(
                f"plan: {quote(stage.node)} ({stage.op}) takes {MAX_STAGE_SECONDS:.0f} s or more in the "
                "plan that is found, and longer ones are not told apart; give smaller extents, higher rates, or fix it"
            )


def _output_stages(problem: Problem, moved: Mapping[tuple[str, str], Moved]) -> list[Stage]:
    """What is moved beside operators: partial results merged where they land, outputs brought to what was asked for."""
    return [
        Stage(
            node=consumer,
            op=consumer.partition(" ")[0].partition(".")[0],
            sharding={},
            nbytes_received=tuple(m.nbytes.tolist()),
            nbytes_shared=0,
            flop=(0.0,) * problem.mesh.size,
            seconds=m.ticks / TICKS_PER_SECOND,
        )
        for (_, consumer), m in moved.items()
        if consumer not in problem.graph.nodes and m.ticks
    ]


def _shared_nbytes(problem: Problem, node: OpNode, boxes: Sequence[Box | None]) -> int:
    """Bytes that more than one device reads: what all read, less the bytes of the union."""
    by_tensor: dict[str, list[DisjointRegions]] = {}
    for box in boxes:
        for name, region in problem.needs(node, box).items():
            by_tensor.setdefault(name, []).append(region)
    total = 0
    for name, regions in by_tensor.items():
        tensor = problem.graph.stored[name]
        every = sum(region.size for region in regions)
        total += (every - unite(regions, tensor.shape).size) * tensor.itemsize
    return total


def split_chosen(problem: Problem, choice: Sequence[int]) -> tuple[Problem, Sequence[int], tuple[Expansions, ...]]:
    """The same choice where operators with periodic blocks are written over more index axes, in boxes of these."""
    ways = {node.name: _list_ways(problem, node) for node in problem.order}
    compared = {name: tuple(map(name_split, each)) for name, each in ways.items() if each}
    layouts = {name: _chosen(problem, problem.graph.nodes[name], choice) for name in compared}
    chosen = {name: layout for name, layout in layouts.items() if layout.digits}
    if not chosen:
        return problem, choice, tuple(Expansions(name, each) for name, each in compared.items())
    draft, stands = Draft(problem.graph), {}
    for name, layout in chosen.items():
        before = set(draft.nodes)
        split_axes.on(draft, name, **tell_rule(layout.digits))
        (stands[name],) = set(draft.nodes) - before
    made = draft.done()
    # What stands for an operator runs where the operator would, as the costs were counted.
    order = [stands.get(node.name, node.name) for node in problem.graph.order()]
    put_fields(made, nodes=FrozenDict((name, made.nodes[name]) for name in order))
    plain = {stands[name]: replace(layout, digits=()) for name, layout in chosen.items()}
    derived = {
        name: tuple(layout for layout in each if not layout.digits)
        for name, each in problem.asked.derived.items()
        if name not in chosen
    }
    only = {name: (one,) for name, one in plain.items()}
    split = Problem(made, replace(problem.asked, derived={**derived, **only}))
    rows = []
    for variable in split.variables:
        if variable.kind == "operator" and variable.name in plain:
            rows.append(variable.layouts.index(plain[variable.name]))
        else:
            at = problem.position[variable.kind, variable.name]
            rows.append(variable.layouts.index(problem.variables[at].layouts[choice[at]]))
    expansions = tuple(
        Expansions(name, each, name_split(layout.digits), (stands[name],), split=_list_split(layout.digits))
        if (layout := layouts[name]).digits
        else Expansions(name, each)
        for name, each in compared.items()
    )
    return split, rows, expansions


def _list_ways(problem: Problem, node: OpNode) -> list[Split]:
    """The digits of an operator's axes in which it is compared with itself, each once."""
    variable = problem.variables[problem.position["operator", node.name]]
    return list(dict.fromkeys(layout.digits for layout in variable.layouts if layout.digits))


def _list_split(digits: Split) -> Split:
    return tuple(one for one in digits if not one.is_whole)


def name_split(digits: Split) -> str:
    return f"{split_axes.name} {' '.join(map(str, _list_split(digits)))}"


def lower_choice(problem: Problem, choice: Sequence[int], fan_in: int | None, *, capped: bool = False) -> Lowered:
    """The steps of chosen layouts; as they are under a cap, blocks do not stay for later readers."""
    choices = _name_choices(problem, choice, fan_in)
    if capped:
        choices = replace(choices, memory_nbytes=(0,) * problem.mesh.size)
    return lower(problem.graph, problem.mesh, choices, reads=problem.reads)


def _name_choices(problem: Problem, choice: Sequence[int], fan_in: int | None) -> Choices:
    """The same, with what was asked for."""
    layouts = name_layouts(problem, choice)
    lands = {cost.landing.variable for cost in problem.tensors if cost.landing is not None and cost.lands_in(choice)}
    nowhere = {place for place, at in problem.position.items() if place[0] == "landing" and at not in lands}
    landed = {place: layout for place, layout in layouts.items() if place not in nowhere}
    merged = {cost.tensor.name: problem.find_merge(cost, choice) for cost in problem.tensors if cost.merges is not None}
    in_stages = {name: order for name, order in merged.items() if order is not None}
    return Choices(landed, tuple(sorted(problem.asked_outputs)), fan_in, in_stages)


def name_layouts(problem: Problem, choice: Sequence[int]) -> dict[tuple[str, str], Layout]:
    """The chosen layouts, by what has them."""
    return {place: problem.variables[at].layouts[choice[at]] for place, at in problem.position.items()}


def _chosen(problem: Problem, node: OpNode, choice: Sequence[int]) -> Layout:
    at = problem.position["operator", node.name]
    return problem.variables[at].layouts[choice[at]]
