"""Dominance pruning: one or two eliminations prove which expansions cannot win.

An expansion is given for granted what surrounds it: beside the layouts of its operator stands one more value, "said in
others", at which nothing around it moves and it costs what it costs alone, at best. No plan that has the expansion
costs less than the least sum in which its operator has that value; where this is more than a plan costs that is
already there, the plan dominates the expansion: it need not be looked at, nor what it would build.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import ceil, floor, prod

import numpy as np

from tapestry_plan.ir import Graph, OpNode, Selection
from tapestry_plan.search import tuning
from tapestry_plan.search.cost import TICKS_PER_SECOND
from tapestry_plan.search.elimination import Factor, IntArray, Minimum, minimize
from tapestry_plan.search.joint import JointProblem
from tapestry_plan.search.problem import Asked, Problem, pull_back, stored_behind
from tapestry_plan.search.variants import Variants
from tapestry_sets.regions import DisjointRegions


def find_undominated(
    problem: Problem, variants: Variants, factors: Sequence[Factor], seconds: float, bound: float
) -> frozenset[str]:
    """The operators whose expansions may be in a plan that costs no more than one that is already there.

    Parameters
    ----------
    problem : Problem
        Of the graph as given.
    variants : Variants
    factors : sequence of Factor
        The problem's tables that bound every plan from below.
    seconds, bound : float
        What the plan costs, and no more than the least sum of the tables.
    """
    ticks, bound_ticks = ceil(seconds * TICKS_PER_SECOND) + 1, floor(bound * TICKS_PER_SECOND)
    chosen = {problem.position["operator", c.node]: c.node for c in variants.choices if not c.given}
    kinds: dict[object, int | None] = {}
    least = {at: _least_ticks(problem, variants, name, kinds) for at, name in chosen.items()}
    alone = {at: found for at, found in least.items() if found is not None}
    sizes = problem.sizes
    allowed: set[int] = set()
    for _ in range(tuning.MAX_ROUNDS if len(alone) == len(least) else 0):
        # Each of the others is paid by how much the plan is above the bound. If even then none of them brings the sum
        # below the bound, any sum with one of them, unpaid, is above the plan.
        reward = ticks - bound_ticks + 1
        costs = {at: found - (0 if at in allowed else reward) for at, found in alone.items()}
        found = _with_value(factors, costs, sizes)
        if found.bound_ticks >= bound_ticks:
            return frozenset(chosen[at] for at in allowed)
        fresh = {at for at in alone if at not in allowed and found.choice[at] == sizes[at]}
        if not fresh:
            break
        allowed |= fresh
        bound_ticks = _with_value(factors, {at: alone[at] for at in allowed}, sizes).bound_ticks
    return frozenset(chosen.values())


def _with_value(factors: Iterable[Factor], costs: Mapping[int, int], sizes: Sequence[int]) -> Minimum:
    """The least sum where some variables have one more value: every table is zero there, but it has a cost."""
    # A table of an operator with two shardings and a neighbor with three; the new value "expanded" is last:
    #
    #     4 7 2      4 7 2
    #     5 1 3  ►   5 1 3      what an expansion and its neighbors exchange is not known yet, so nothing is the bound
    #                0 0 0
    wide = []
    padded: dict[tuple[object, ...], tuple[IntArray, IntArray]] = {}
    for factor in factors:
        more = tuple((0, int(var in costs)) for var in factor.scope)
        key: tuple[object, ...] = (id(factor.ticks), id(factor.nbytes), more)
        if key not in padded:  # alike tables stay one object
            padded[key] = np.pad(factor.ticks, more), np.pad(factor.nbytes, more)
        wide.append(Factor(factor.scope, *padded[key]))
    for at, cost in costs.items():
        key = (sizes[at], cost)
        if key not in padded:
            ticks = np.zeros(sizes[at] + 1, np.int64)
            ticks[-1] = cost
            padded[key] = ticks, np.zeros_like(ticks)
        wide.append(Factor((at,), *padded[key]))
    return minimize([n + (at in costs) for at, n in enumerate(sizes)], wide)


def _least_ticks(problem: Problem, variants: Variants, name: str, kinds: dict[object, int | None]) -> int | None:
    """What the cheapest expansion of an operator costs with all that it reads on every device, None if not known."""
    graph, node = problem.graph, problem.graph.nodes[name]
    key = _kind(graph, node)
    if key not in kinds:
        kinds[key] = _least_alone(problem, Variants(_cut_out(graph, node), variants.expand))
    return kinds[key]


def _least_alone(problem: Problem, variants: Variants) -> int | None:
    if not _are_fresh(variants):
        return None
    joint = JointProblem(variants, Asked(problem.mesh, space=problem.asked.space, known=problem.known))
    # Where the outputs go is not part of it.
    ends = {at for at, variable in enumerate(joint.variables) if variable.kind == "output"}
    inner = [factor for factor in joint.factors()[1] if ends.isdisjoint(factor.scope)]
    own = len(joint.variables)
    sizes = [n - (at == own) for at, n in enumerate(joint.sizes)]
    return minimize(sizes, [_without_first(factor, own) for factor in inner]).bound_ticks


def _without_first(factor: Factor, var: int) -> Factor:
    """A table without the first value of a variable."""
    if var not in factor.scope:
        return factor
    at = (*(slice(None),) * factor.scope.index(var), slice(1, None))
    return Factor(factor.scope, factor.ticks[at], factor.nbytes[at])


def _are_fresh(variants: Variants) -> bool:
    """Whether who reads what expansions end in reads as many cells, of tensors that they make: no work is saved."""
    single = all(len(node.outputs) == 1 for node in variants.original.nodes.values())
    outs = [out for choice in variants.choices for option in choice.options for out in option.outputs]
    return all(_is_fresh(variants, out, single) for out in outs)


def _is_fresh(variants: Variants, tensor: str, may_be_view: bool) -> bool:
    graph = variants.graph
    source = graph.source(tensor)
    makers = [graph.maker(name) for name in source.stored]
    if any(maker is None or maker.name in variants.original.nodes for maker in makers):
        return False
    if source.direct:
        return True
    behind = pull_back(graph, source, DisjointRegions.full(source.shape))
    return may_be_view and sum(region.size for region in behind.values()) == prod(source.shape)


def _cut_out(graph: Graph, node: OpNode) -> Graph:
    """A graph of one operator, on the views that it reads, of tensors that are there."""
    made = Graph(graph.name, graph.ops)
    made.nodes[node.name] = node
    for selection in _views(graph, node):
        made.selections[selection.name] = selection
    for name in stored_behind(graph, node.inputs):
        stored = graph.stored[name]
        made.stored[name] = replace(stored, kind="input") if stored.kind == "result" else stored
    for name in node.outputs:
        made.stored[name] = graph.stored[name]
        made.outputs[name] = name
    return made


def _views(graph: Graph, node: OpNode) -> list[Selection]:
    """The selections that an operator reads through."""
    found: set[str] = set()
    left = list(node.inputs)
    while left:
        name = left.pop()
        if name in graph.selections and name not in found:
            found.add(name)
            left += graph.selections[name].inputs
    return [selection for name, selection in graph.selections.items() if name in found]


def _kind(graph: Graph, node: OpNode) -> object:
    """What the cost of an operator's expansions depends on: equal for the same operator of repeated blocks."""
    numbers: dict[str, int] = {}
    reads = []
    for source in map(graph.source, node.inputs):
        behind = [numbers.setdefault(name, len(numbers)) for name in source.stored]
        reads.append((source.shape, source.dtype, source.stored_shapes, source.pieces, tuple(behind)))
    stored = [graph.stored[name] for name in numbers]
    values = tuple((s.dtype, s.name if s.kind == "constant" else "") for s in stored)
    return node.op, repr(sorted(node.attrs.items())), tuple(reads), values
