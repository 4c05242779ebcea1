"""Whether equal operators may better run where their readers are, each for one, than once for all.

A result that is there once lies in one way, and whoever wants it in another one has it moved::

    x ─► exp ─┬─► softmax of rows           x ─► exp ─► softmax of rows
              └─► softmax of columns        x ─► exp ─► softmax of columns      nothing moves, exp runs twice
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from msgspec.structs import replace

from tapestry_plan.ir import Graph
from tapestry_plan.search import tuning
from tapestry_plan.search.neighbors.fusing import list_private
from tapestry_plan.search.prices.costs import Problem
from tapestry_plan.search.solving import Solved
from tapestry_plan.search.sums.elimination import minimize
from tapestry_plan.steps import list_stored


def may_be_better_apart(
    apart: Graph, unified: Mapping[str, str], problem: Problem, found: Solved, *, fuses: bool
) -> bool:
    """Whether a graph may have a better plan where equal operators, or inputs in one copy, are not one.

    It has none where the work alone takes longer: each operator at its best, and those that are there once now again.
    But operators take less in one block, and any two may be one here that are none in the other graph: where equal ones
    are apart, what stands behind them lies in other ways. Of a large graph it is said to have one only where that is
    found near the plan of the other one.

    Parameters
    ----------
    apart : Graph
        With equal operators as they were given.
    unified : mapping of str to str
        Equal operators and constants that are not there, or not read, any more, with those that stand for them.
    problem, found : Problem and Solved
        Of the graph in which they are one.
    fuses : bool
        Whether operators may be in one block.
    """
    again = [name for name in unified if name in apart.nodes]
    if not again:
        return bool(unified) and problem.asked.placement == "single"
    least = {v.name: int(t.min()) for v, t in zip(problem.variables, problem.compute, strict=True) if t.size}
    work = sum(int(ticks.min()) for ticks in problem.compute) + sum(least[unified[name]] for name in again)
    is_small = len(apart.nodes) <= tuning.MAX_APART
    if found.ticks < work and not (fuses and is_small and _has_blocks(apart)):
        return False
    return is_small or _is_better_near(apart, again, unified, problem, found)


def _has_blocks(graph: Graph) -> bool:
    """Whether one operator alone reads what some operator makes."""
    private = list_private(graph)
    return any(out in private for node in graph.nodes.values() for out in node.outputs)


def _is_better_near(
    apart: Graph, again: list[str], unified: Mapping[str, str], problem: Problem, found: Solved
) -> bool:
    """Whether other layouts of equal operators, and of those beside them, take less time than a plan has it."""
    whole = Problem(apart, replace(problem.asked, derived={}))
    equal = {*again, *(unified[name] for name in again)}
    made = {tensor for name in equal for tensor in apart.nodes[name].outputs}
    read = {tensor for name in equal for tensor in list_stored(apart, apart.nodes[name].inputs)}
    free = equal | {
        node.name
        for node in whole.order
        if not made.isdisjoint(list_stored(apart, node.inputs)) or not read.isdisjoint(node.outputs)
    }
    kept = []
    for variable in whole.variables:
        rows, at = np.arange(len(variable.layouts)), problem.position.get((variable.kind, variable.name))
        layout = None if at is None else problem.variables[at].layouts[found.choice[at]]
        if variable.name not in free and layout in variable.layouts:
            rows = rows[[variable.layouts.index(layout)]]
        kept.append(rows)
    close = whole.restrict(kept)
    near = minimize(close.sizes, close.factors(tuning.NEAR_FACTOR_ENTRIES)[0])
    choice = [int(rows[value]) for rows, value in zip(kept, near.choice, strict=True)]
    return whole.count_cost(choice)[0] < found.ticks
