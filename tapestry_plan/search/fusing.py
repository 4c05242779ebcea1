"""Neighbors in one block: what is between them is not stored, and one launch does for both.

::

    x ─► exp ─► t ─► · w ─► y         exp reads x, writes t; the product reads t and w, writes y
    x ─► (exp ─► · w) ─► y            the block reads x and w, writes y

Neighbors can be one block where every device makes just what it reads itself. Then nothing else is different: the
block needs the cells that its first operator needed, and makes what its last one made. So a plan of the graph with its
operators apart says which neighbors may be fused, and fusing them is a last step.

What any such plan takes at least is a sum of tables too. Of a chain of operators that run as one on a device, the
arithmetic is the sum of theirs, the traffic that of theirs without what stays inside, and the time the longer of the
two. So it is at least as long as the one of the two alone, which is a sum over the operators::

    max(F, B) ≥ F = f₁ + f₂ + …       or ≥ B = (b₁ − t₁) + (b₂ − t₁ − t₂) + …

For each chain the one that is larger in a good plan is taken. It is counted on a device with the largest block; as
blocks that are fused are in proportion, that is the same device for all. The first operator of the chain has the
launch. An operator that runs alone takes no less than its own share. Transfers are those of the graph as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from copy import copy
from math import prod

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from tapestry_plan.ir import Graph, NotApplicable, OpNode
from tapestry_plan.rewrite import Draft, Fusion, fuse
from tapestry_plan.search.prices.cost import TICKS_PER_SECOND, is_product
from tapestry_plan.search.prices.problem import Problem
from tapestry_plan.search.solving import Solved
from tapestry_plan.steps import Fused, Layout, ShardPlan, list_stored
from tapestry_sets.limits import FrozenDict, put_fields


class Pick(Struct, frozen=True):
    """Two neighbors that may be one block: the first makes an operand of the second."""

    first: str
    operand: int


def fuse_plan(
    plan: ShardPlan,
    problem: Problem,
    found: Solved,
    pinned: Collection[str],
    *,
    write: Callable[[Sequence[int], Mapping[str, Pick]], ShardPlan],
    is_better: Callable[[ShardPlan, ShardPlan], bool],
    again: Callable[[Problem], Solved],
) -> ShardPlan:
    """The plan with neighbors in one block, or one that is found better so, with the bound over those too.

    Parameters
    ----------
    plan : ShardPlan
    problem, found : Problem and Solved
        Of the plan's graph, its operators apart.
    pinned : collection of str
        Operators that stay apart.
    write : callable
        Gives the plan of some layouts of the problem, neighbors in one block that may be.
    is_better : callable
    again : callable
        Gives the best layouts of a problem with the same variables.
    """
    picks = pick_neighbors(problem, pinned)
    if not picks:
        return plan
    best, near, lowest = plan, found.choice, 0
    for _ in range(2):  # what takes longer in a chain, arithmetic or traffic, is seen better in a better plan
        least = again(relax(problem, picks, near))
        lowest = max(lowest, least.bound_ticks)
        for choice in dict.fromkeys((near, least.choice)):
            made = write(choice, picks)
            if _list_splits(made) == _list_splits(plan) and is_better(made, best):
                best = replace(made, expansions=plan.expansions, unified=plan.unified)
        if least.choice == near or round(best.seconds * TICKS_PER_SECOND) <= lowest:
            break
        near = least.choice
    return replace(best, bound=min(best.seconds, plan.bound, lowest / TICKS_PER_SECOND))


def _list_splits(plan: ShardPlan) -> dict[str, object]:
    """Which operators work over more index axes."""
    return {one.node: one.split for one in plan.expansions if one.split}


def pick_neighbors(problem: Problem, pinned: Collection[str]) -> dict[str, Pick]:
    """The operators that may be one block with one that they read, by name, in the order in which they run.

    The second one must be all that reads the first one's result, and both read no tensor in common; no other operator
    that runs between them reads what the first one does, so that what has arrived for others is the same.
    """
    graph, order = problem.graph, problem.order
    place = {node.name: k for k, node in enumerate(order)}
    readers: dict[str, list[int]] = {}
    for node in order:
        for name in list_stored(graph, node.inputs):
            readers.setdefault(name, []).append(place[node.name])
    draft, found = Draft(graph), dict[str, Pick]()
    # What each operator reads, and where it runs, together with those that are picked for it.
    behind: dict[str, set[str]] = {}
    chain: dict[str, set[int]] = {}

    def moves(name: str) -> bool:
        return graph.stored[name].kind == "result" or ("source", name) in problem.position

    for node in order:
        mine = behind[node.name] = set(list_stored(graph, node.inputs))
        here = chain[node.name] = {place[node.name]}
        if node.name in pinned or graph.ops[node.op].points_per_launch is not None:
            continue
        for operand, name in enumerate(node.inputs):
            maker = draft.maker(name)
            first = None if maker is None else graph.nodes.get(maker.name)
            if first is None or first.name in pinned or graph.ops[first.op].points_per_launch is not None:
                continue
            theirs, there = behind[first.name], chain[first.name]
            since = min(there)
            others = (k for t in theirs if moves(t) for k in readers[t] if k not in there)
            if theirs & (mine - {name}) or any(since < k < place[node.name] for k in others):
                continue
            if _can_fuse(draft, problem, node, operand, first):
                found[node.name] = Pick(first.name, operand)
                mine |= theirs
                here |= there
                break
    return found


def _can_fuse(draft: Draft, problem: Problem, node: OpNode, operand: int, first: OpNode) -> bool:
    """Whether the rule takes two neighbors as they are, and counts them as the work that they are."""
    try:
        fuse.on(draft, node.name, operand=operand)
    except NotApplicable:
        return False
    made = draft.nodes[node.name]
    signature = draft.signature(node.name)
    same = signature.axes == problem.graph.signature(node.name).axes  # none is whole that was cut before
    devices = problem.mesh.devices
    if any(device.cell_rate != device.flop_per_second for device in devices):
        same = same and (is_product_node(draft, made) or not is_product_node(problem.graph, first))
    draft.undo()
    return same


def is_product_node(graph: Graph, node: OpNode) -> bool:
    """Whether an operator counts as a product, whatever its layout."""
    signature = graph.signature(node.name)
    flop = graph.ops[node.op].flop_per_point(signature, node.attrs) * signature.index.size
    return is_product(signature, flop, sum(prod(graph.source(name).shape) for name in (*node.inputs, *node.outputs)))


# -- the bound ---------------------------------------------------------------------------------------------


def relax(problem: Problem, picks: Mapping[str, Pick], near: Sequence[int]) -> Problem:
    """The same problem, in which operators take no longer than their shares of blocks that they may be in.

    Arithmetic or traffic is counted, by what takes longer in some layouts, `near`; either makes a bound for all.
    """
    made = copy(problem)
    made.__dict__.pop("own", None)
    made.__dict__.pop("touching", None)
    made.compute = list(problem.compute)
    for chain in _list_chains(picks):
        work = [Work.of(problem, name) for name in chain]
        flop = traffic = 0.0
        shares: list[tuple[NDArray[np.float64], NDArray[np.float64]]] = []
        for k, (name, one) in enumerate(zip(chain, work, strict=True)):
            node = problem.graph.nodes[name]
            before = [node.inputs[picks[name].operand]] if k else []
            inside = [*before, *(node.outputs if k + 1 < len(chain) else ())]
            operands = (*node.inputs, *node.outputs)
            count = sum(t not in inside for t in operands)
            start = one.operand_seconds * count + (one.launch_seconds if k == 0 else 0)
            copied = problem.count_copied(node, inside=before)
            start += copied[np.arange(len(one.largest)), one.largest] * one.seconds_per_byte
            nbytes = one.nbytes - sum(one.by_tensor[t] for t in inside)
            shares.append((start + one.flop_seconds, start + nbytes * one.seconds_per_byte))
            row = near[problem.position["operator", name]]
            flop += float(one.flop_seconds[row])
            traffic += float((nbytes * one.seconds_per_byte)[row])
        for name, (arithmetic, memory) in zip(chain, shares, strict=True):
            at = problem.position["operator", name]
            ticks = np.floor((arithmetic if flop >= traffic else memory) * TICKS_PER_SECOND).astype(np.int64)
            made.compute[at] = problem.known.share(np.minimum(ticks, problem.compute[at]))
    return made


def _list_chains(picks: Mapping[str, Pick]) -> Iterator[list[str]]:
    """Operators that may all be one block, from the first to the last."""
    firsts = {pick.first for pick in picks.values()}
    for last in picks:
        if last not in firsts:
            chain = [last]
            while chain[-1] in picks:
                chain.append(picks[chain[-1]].first)
            yield chain[::-1]


class Work(Struct, frozen=True):
    """What an operator does on a device with the largest block, by layout."""

    largest: NDArray[np.int64]
    """The device."""
    nbytes: NDArray[np.float64]
    by_tensor: dict[str, NDArray[np.float64]]
    flop_seconds: NDArray[np.float64]
    seconds_per_byte: NDArray[np.float64]
    launch_seconds: NDArray[np.float64]
    operand_seconds: NDArray[np.float64]

    @classmethod
    def of(cls, problem: Problem, name: str) -> Work:
        at, node = problem.position["operator", name], problem.graph.nodes[name]
        layouts, graph = problem.variables[at].layouts, problem.graph
        sizes = np.array([[box.size if box else 0 for box in layout.boxes] for layout in layouts], np.int64)
        row, largest = np.arange(len(layouts)), sizes.argmax(axis=1)
        by_tensor = {t: cells[row, largest] for t, cells in problem.count_traffic(node).items()}
        per_point = graph.ops[node.op].flop_per_point(graph.signature(name), node.attrs)
        devices = problem.mesh.devices
        fastest = np.array([max(d.flop_per_second, d.cell_rate) for d in devices])[largest]
        return cls(
            largest=largest,
            nbytes=np.sum(list(by_tensor.values()), axis=0),
            by_tensor=by_tensor,
            flop_seconds=per_point * sizes[row, largest] / fastest,
            seconds_per_byte=1 / np.array([d.memory_nbytes_per_second for d in devices])[largest],
            launch_seconds=np.array([d.launch_seconds for d in devices])[largest],
            operand_seconds=np.array([d.operand_seconds for d in devices])[largest],
        )


# -- the last step -----------------------------------------------------------------------------------------


def fuse_neighbors(
    problem: Problem, choice: Sequence[int], picks: Mapping[str, Pick]
) -> tuple[Problem, Sequence[int], tuple[Fused, ...]]:
    """The same layouts where neighbors are one block that lie so that they can be; and which these are.

    Returns
    -------
    problem, choice, fused
        Of the graph with blocks; and which neighbors these are, in the order in which the rule `fuse` takes them.
    """
    chosen = {name: _chosen(problem, choice, name) for name in problem.graph.nodes}
    draft, fused = Draft(problem.graph), list[Fused]()
    for name, pick in picks.items():
        if pick.first not in draft.nodes or name not in draft.nodes:
            continue
        first = draft.nodes[pick.first]
        operand = draft.nodes[name].inputs.index(first.outputs[0])
        one, two = draft.ops[first.op], draft.ops[draft.nodes[name].op]
        try:
            fuse.on(draft, name, operand=operand)
        except NotApplicable:
            continue
        block = Fusion.of(one, two, draft.nodes[name].attrs)
        if _lie_together(block, chosen[pick.first], chosen[name]):
            fused.append(Fused(pick.first, name, operand))
        else:
            draft.undo()
    if not fused:
        return problem, choice, ()
    made = draft.done()
    kept = [node.name for node in problem.order if node.name in made.nodes]
    put_fields(made, nodes=FrozenDict((name, made.nodes[name]) for name in kept))
    blocks = {pair.second for pair in fused}  # which do not work cell by cell, so that phases are not for them
    derived = {
        name: tuple(one for one in each if not (name in blocks and one.digits))
        for name, each in problem.asked.derived.items()
        if name in made.nodes
    }
    after = Problem(made, replace(problem.asked, derived=derived))
    rows = []
    for variable in after.variables:
        at = problem.position[variable.kind, variable.name]
        rows.append(variable.layouts.index(problem.variables[at].layouts[choice[at]]))
    if after.count_cost(rows) >= problem.count_cost(choice):
        return problem, choice, ()
    return after, rows, tuple(fused)


def _chosen(problem: Problem, choice: Sequence[int], name: str) -> Layout:
    at = problem.position["operator", name]
    return problem.variables[at].layouts[choice[at]]


def _lie_together(block: Fusion, first: Layout, second: Layout) -> bool:
    """Whether every device makes of the first operator just what it reads for the second one."""
    if first.digits or second.digits:
        return False
    for made, index in zip(first.boxes, second.boxes, strict=True):
        cells = None if index is None else block.cells(index)
        if (None if cells is None else block.made_by(cells)) != made:
            return False
    return True
