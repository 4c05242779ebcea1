"""Dominance pruning: one or two eliminations prove which expansions cannot win.

An expansion is given for granted what it reads: beside the layouts of its operator stand those of who makes its result,
each at what the expansion costs at best with its result made so, everything that it reads on every device. How the
result moves on is counted as for any other layout; what it reads does not move. No plan that has the expansion costs
less than the least sum in which its operator has one of these values; where this is more than a plan costs that is
already there, the plan dominates the expansion: it need not be looked at, nor what it would build::

    x ──── norm ──────────── q, k, v      layouts of norm: its own, and those of `add`, at the least that the expansion
                                          costs with `add` in this layout
      (x) ─ sum ─ … ─ add ── q, k, v      x is free, the result is moved to q, k and v from where `add` makes it
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from math import ceil, floor, prod

import msgspec
import numpy as np
from msgspec import Struct

from tapestry_plan.ir import BUILTIN_OPS, Graph, OpNode, Selection
from tapestry_plan.search import tuning
from tapestry_plan.search.cost import TICKS_PER_SECOND, Held
from tapestry_plan.search.elimination import Minimum, minimize, minimize_beside
from tapestry_plan.search.joint import JointProblem
from tapestry_plan.search.problem import Asked, Problem, TensorCost, list_classes
from tapestry_plan.search.reduction import Factor, IntArray
from tapestry_plan.search.sources import pull_back, stored_behind
from tapestry_plan.search.variants import Option, Variants
from tapestry_sets.limits import put_item
from tapestry_sets.regions import DisjointRegions


class Granted(Struct, frozen=True):
    """What the expansions of an operator cost at best, by how their result lies.

    Parameters
    ----------
    ticks : array of int64, (ways,)
    held : Held, or None
        The result in each of these ways; None for one way, with every result on every device.
    """

    ticks: IntArray
    held: Held | None = None


def find_expandable(
    graph: Graph,
    expand: bool | Collection[str],
    pinned: Collection[str] = (),
    kept: Collection[str] = (),
) -> dict[str, Variants]:
    """The operators that have expansions, each with those of a graph of one operator: one object for all alike.

    Parameters
    ----------
    graph : Graph
    expand, pinned, kept
        As of `Variants`.
    """
    kinds: dict[object, Variants] = {}
    out = {}
    for node in graph.order():
        if node.name in pinned or not graph.ops[node.op].expansions:
            continue
        key = _kind(graph, node), tuple(name in kept for name in node.outputs)
        if key not in kinds:
            more = {*kept}.intersection(node.outputs)
            kinds[key] = Variants(_cut_out(graph, node), expand, (), more)
        if kinds[key].choices or kinds[key].without:
            out[node.name] = kinds[key]
    return out


def find_undominated(
    problem: Problem, expandable: Mapping[str, Variants], seconds: float, bound: float
) -> frozenset[str]:
    """The operators whose expansions may be in a plan that costs no more than one that is already there.

    Parameters
    ----------
    problem : Problem
        Of the graph as given.
    expandable : mapping
        Operators, each with the variants of a graph of one that is alike.
    seconds, bound : float
        What the plan costs, and no more than the least sum of the problem's tables.
    """
    ticks, bound_ticks = ceil(seconds * TICKS_PER_SECOND) + 1, floor(bound * TICKS_PER_SECOND)
    chosen = {problem.position["operator", name]: name for name, variants in expandable.items() if variants.choices}
    kinds = {id(variants): variants for variants in expandable.values() if variants.choices}
    found_of = {number: _find_granted(problem, variants) for number, variants in kinds.items()}
    least = {at: found_of[id(expandable[name])] for at, name in chosen.items()}
    alone = {at: found for at, found in least.items() if found is not None}
    sizes = problem.sizes
    allowed: set[int] = set()
    if alone and problem.count_entries() > tuning.MAX_DIRECT_ENTRIES:
        # The bound was proved otherwise; what counts here is how far these tables are below the plan.
        bound_ticks = min(bound_ticks, _minimize_granted(problem, {}, {}).bound_ticks)
    for _ in range(tuning.MAX_ROUNDS if len(alone) == len(least) else 0):
        # Each of the others is paid by how much the plan is above the bound. If even then none of them brings the sum
        # below the bound, any sum with one of them, unpaid, is above the plan.
        reward = ticks - bound_ticks + 1
        found = _minimize_granted(problem, alone, {at: 0 if at in allowed else reward for at in alone})
        if found.bound_ticks >= bound_ticks:
            return frozenset(chosen[at] for at in allowed)
        fresh = {at for at in alone if at not in allowed and found.choice[at] >= sizes[at]}
        if not fresh:
            break
        allowed |= fresh
        only = {at: alone[at] for at in allowed}
        bound_ticks = _minimize_granted(problem, only, dict.fromkeys(only, 0)).bound_ticks
    return frozenset(chosen.values())


def _minimize_granted(problem: Problem, granted: Mapping[int, Granted], paid: Mapping[int, int]) -> Minimum:
    """The least sum where some operators have more values, those of their expansions, which are paid some ticks."""
    # The problem as it is, but that some results can be held in more ways. Who makes them then moves nothing that it
    # reads, and who reads the same after it receives nothing, as nobody knows what is there by then.
    relaxed = copy.copy(problem)
    relaxed.sizes = [n + (len(granted[at].ticks) if at in granted else 0) for at, n in enumerate(problem.sizes)]
    own = list(problem.compute)
    for at, found in granted.items():
        own[at] = problem.known.share(np.concatenate([own[at], found.ticks - paid[at]]))
    relaxed.compute = own
    relaxed.own = relaxed._own_tables()
    relaxed.tensors = [_grant(problem, cost, granted) for cost in problem.tensors]
    wide: dict[tuple[object, ...], tuple[IntArray, IntArray]] = {}
    return minimize(relaxed.sizes, [_widen(factor, relaxed.sizes, wide) for factor in relaxed.factors()[1]])


def _grant(problem: Problem, cost: TensorCost, granted: Mapping[int, Granted]) -> TensorCost:
    """A tensor that its producer may hold in more ways."""
    found = granted.get(cost.producer)
    if found is None:
        return cost
    full = cost.table.number(DisjointRegions.full(cost.tensor.shape))
    everywhere = np.full((1, problem.mesh.size), full)
    more = found.held or Held(everywhere, np.ones(1, np.int64), np.zeros_like(everywhere))
    share = problem.known.share
    both = zip(_rows_of(cost.held), _rows_of(more), strict=True)
    return msgspec.structs.replace(cost, held=Held(*(share(np.concatenate(two)) for two in both)), made={})


def _rows_of(held: Held) -> tuple[IntArray, IntArray, IntArray]:
    return held.numbers, held.parts, held.groups


def _widen(factor: Factor, sizes: Sequence[int], made: dict[tuple[object, ...], tuple[IntArray, IntArray]]) -> Factor:
    """A table with nothing for the values that it does not have yet, the last ones; alike ones stay one object."""
    # A table of an operator with two shardings and a neighbor with three, which has two more values:
    #
    #     4 7 2      4 7 2 0 0
    #     5 1 3  ►   5 1 3 0 0      what an expansion reads is not known yet, so nothing is the bound
    more = tuple((0, sizes[var] - n) for var, n in zip(factor.scope, factor.ticks.shape, strict=True))
    key = id(factor.ticks), id(factor.nbytes), more
    if key not in made:
        made[key] = np.pad(factor.ticks, more), np.pad(factor.nbytes, more)
    return Factor(factor.scope, *made[key])


def _find_granted(problem: Problem, variants: Variants) -> Granted | None:
    """What the expansions of an operator cost with all that they read on every device, None if not known."""
    if not _are_fresh(variants):
        return None
    joint = JointProblem(variants, Asked(problem.mesh, space=problem.asked.space, known=problem.known))
    # Where the outputs go is not part of it.
    ends = {at for at, variable in enumerate(joint.variables) if variable.kind == "output"}
    inner = [factor for factor in joint.factors()[1] if ends.isdisjoint(factor.scope)]
    own, options = len(joint.variables), variants.choices[0].options
    lasts = [_find_last(problem, joint, option) for option in options]
    if None in lasts:  # its result may be anywhere
        sizes = [n - (at == own) for at, n in enumerate(joint.sizes)]
        least = minimize(sizes, [_keep(factor, own, slice(1, None)) for factor in inner])
        return Granted(np.array([least.bound_ticks]))
    sizes = [1 if at == own else n for at, n in enumerate(joint.sizes)]
    ticks, rows = [], []
    for value, last in enumerate(lasts, 1):
        assert last is not None, "there is no other one left"
        chosen = [_keep(factor, own, slice(value, value + 1)) for factor in inner]
        ticks.append(minimize_beside(sizes, chosen, last.producer))
        rows.append(np.column_stack(_rows_of(last.held)))
    # Of the ways that leave the same on all devices the cheapest one stands for all.
    distinct, classes = list_classes(np.concatenate(rows))
    cheapest = np.full(len(distinct), np.iinfo(np.int64).max)
    np.minimum.at(cheapest, classes, np.concatenate(ticks))
    devices = problem.mesh.size
    return Granted(cheapest, Held(distinct[:, :devices], distinct[:, devices], distinct[:, devices + 1 :]))


def _find_last(problem: Problem, joint: JointProblem, option: Option) -> TensorCost | None:
    """The result of an expansion as its last operator makes it, None where it is not simply a new tensor."""
    variants = joint.variants
    if len(option.outputs) != 1 or variants.graph.readers(option.outputs[0]):
        return None  # several results, or one that the expansion itself reads
    maker = variants.graph.maker(option.outputs[0])
    if maker is None or len(maker.outputs) != 1 or maker.name in {choice.node for choice in variants.choices}:
        return None
    (node,) = variants.original.nodes
    mine, *_ = problem.made[problem.position["operator", node]]  # several where its readers are apart
    last, *_ = joint.made[joint.position["operator", maker.name]]
    same = last.tensor.name == mine.tensor.name and last.tensor.shape == mine.tensor.shape
    return last if same and last.held.parts.max() == 1 else None  # partial results may land where the operator's do not


def _keep(factor: Factor, var: int, values: slice) -> Factor:
    """A table with some values of a variable alone."""
    if var not in factor.scope:
        return factor
    at = (*(slice(None),) * factor.scope.index(var), values)
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
    put_item(made.nodes, node.name, node)
    for selection in _views(graph, node):
        put_item(made.selections, selection.name, selection)
    for name in stored_behind(graph, node.inputs):
        stored = graph.stored[name]
        put_item(made.stored, name, replace(stored, kind="input") if stored.kind == "result" else stored)
    for name in node.outputs:
        put_item(made.stored, name, graph.stored[name])
        put_item(made.outputs, name, name)
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
    declared = graph.ops[node.op]
    # Expansions that come along never look at values; others may.
    looks = declared is not BUILTIN_OPS.get(node.op)
    values = tuple((s.dtype, s.name if looks and s.kind == "constant" else "") for s in stored)
    return node.op, repr(sorted(node.attrs.items())), tuple(reads), values
