"""Neighbors in one block: what is between them is not stored, and one launch does for both.

Which neighbors may be one block follows from the graph (`pick_neighbors`), and what they cost so from their layouts
(`prices/blocks.py`). So layouts are searched with their best blocks, and the graph is rewritten as a last step::

    graph ─► picks ─► problem with blocks ─► layouts ─► the rule `fuse`, where neighbors lie together ─► plan
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import prod

from tapestry_plan.ir import Graph, OpNode
from tapestry_plan.rewrite import Draft, fuse
from tapestry_plan.search import tuning
from tapestry_plan.search.prices.added import FusedProblem, KeptProblem, Pick, can_join
from tapestry_plan.search.prices.costs import Problem, is_product
from tapestry_plan.steps import Choices, Fused, list_stored
from tapestry_sets.limits import FrozenDict, put_fields


def join_neighbors(problem: Problem, pinned: Collection[str]) -> Problem:
    """The problem where neighbors may be in one block, but for some operators; itself where there are none."""
    picks = pick_neighbors(problem, pinned)
    return FusedProblem(problem, picks) if picks else problem


def pick_neighbors(problem: Problem, pinned: Collection[str]) -> dict[str, Pick]:
    """The operators that may be one block with one that they read, by name, in the order in which they run.

    The second one must be all that reads the first one's result, and both read no tensor in common; no other operator
    that runs between them reads what the first one does, so that what has arrived for others is the same.
    """
    graph, order = problem.graph, problem.order
    place = {node.name: k for k, node in enumerate(order)}
    makers = {out: node for node in order for out in node.outputs}
    private = list_private(graph)
    readers: dict[str, list[int]] = {}
    for node in order:
        for name in list_stored(graph, node.inputs):
            readers.setdefault(name, []).append(place[node.name])
    found = dict[str, Pick]()
    # What each operator reads, and where it runs, together with those that are picked for it.
    behind: dict[str, set[str]] = {}
    chain: dict[str, set[int]] = {}

    def moves(name: str) -> bool:
        return graph.stored[name].kind == "result" or ("source", name) in problem.position

    def stays(node: OpNode) -> bool:
        op = graph.ops[node.op]  # of a block that needs NumPy all would run on the host
        return node.name in pinned or op.points_per_launch is not None or op.host_only

    for node in order:
        mine = behind[node.name] = set(list_stored(graph, node.inputs))
        here = chain[node.name] = {place[node.name]}
        if stays(node):
            continue
        for operand, name in enumerate(node.inputs):
            first = makers.get(name)
            if first is None or first.outputs != (name,) or private.get(name) != node.name or stays(first):
                continue
            theirs, there = behind[first.name], chain[first.name]
            since = min(there)
            others = (k for t in theirs if moves(t) for k in readers[t] if k not in there)
            if theirs & (mine - {name}) or any(since < k < place[node.name] for k in others):
                continue
            if len(there) < tuning.MAX_BLOCK_OPERATORS and can_join(problem, first, node, operand):
                found[node.name] = Pick(first.name, operand)
                mine |= theirs
                here |= there
                break
    return found


def list_private(graph: Graph) -> dict[str, str]:
    """The tensors that one operator alone reads, as they are, with its name."""
    readers: dict[str, set[str | None]] = {name: {None} for name in graph.outputs.values()}
    for node in graph.nodes.values():
        for name in node.inputs:
            readers.setdefault(name, set()).add(node.name)
    for selection in graph.selections.values():
        for name in selection.inputs:
            readers.setdefault(name, set()).add(None)
    return {name: one for name, some in readers.items() if len(some) == 1 and (one := next(iter(some))) is not None}


def write_blocks(problem: Problem, joined: Mapping[str, str]) -> tuple[Graph, tuple[Fused, ...]]:
    """The graph of a problem where some operators are in one block with one that they read; and which these are.

    What is left runs in the order in which it did.
    """
    draft, fused = Draft(problem.graph), list[Fused]()
    for node in problem.order:
        if node.name in joined:
            first = joined[node.name]
            operand = draft.nodes[node.name].inputs.index(draft.nodes[first].outputs[0])
            fuse.on(draft, node.name, operand=operand)
            fused.append(Fused(first, node.name, operand))
    made = draft.done()
    kept = [node.name for node in problem.order if node.name in made.nodes]
    put_fields(made, nodes=FrozenDict((name, made.nodes[name]) for name in kept))
    return made, tuple(fused)


def list_makers_inside(given: Graph, made: Graph) -> dict[str, str]:
    """Results of a graph that one made of it does not have, with their operators, but for those called like these."""
    return {
        name: node.name
        for node in given.nodes.values()
        for name in node.outputs
        if name not in made.stored and name not in made.selections and name != node.name
    }


def fuse_neighbors(
    problem: Problem, choice: Sequence[int], joined: Mapping[str, str]
) -> tuple[Problem, Sequence[int], tuple[Fused, ...]]:
    """The same layouts where some operators are in one block with one that they read; and which these are.

    Parameters
    ----------
    problem, choice
    joined : mapping
        These operators by name, each with the one whose result stays inside.

    Returns
    -------
    problem, choice, fused
        Of the graph with blocks; and which neighbors these are, in the order in which the rule `fuse` takes them.
    """
    made, fused = write_blocks(problem, joined)
    if not fused:
        return problem, choice, ()
    layouts = {place: problem.variables[at].layouts[choice[at]] for place, at in problem.position.items()}
    choices = Choices(layouts, tuple(sorted(problem.asked_outputs)), problem.asked.fan_in)
    after = KeptProblem(made, problem.asked, choices)
    return after, after.kept, fused


def is_product_node(graph: Graph, node: OpNode) -> bool:
    """Whether an operator counts as a product, whatever its layout."""
    signature = graph.signature(node.name)
    flop = graph.ops[node.op].flop_per_point(signature, node.attrs) * signature.index.size
    return is_product(signature, flop, sum(prod(graph.source(name).shape) for name in (*node.inputs, *node.outputs)))
