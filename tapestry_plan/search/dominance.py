"""Dominance pruning: one or two eliminations prove which expansions cannot win.

An expansion is taken for what it costs at best: beside the layouts of its operator stand those of who makes its result,
each at the least that the expansion costs with its result made so, and with what it reads made as that is. How the
result moves on is counted as for any other layout. No plan that has the expansion costs less than the least sum in
which its operator has one of these values. Where a plan that is already there costs as little, it dominates the
expansion, which need not be looked at, nor what it would build::

    x ──── norm ──────────── q, k, v      layouts of norm: its own, and those of `add`, for each layout of x at the
                                          least that sum, …, add cost, and moving x to them
    x ──── sum ── … ── add ─ q, k, v      who reads x later has all of it then, as nobody knows what has arrived

Operators that stand many times are looked at once, and so are the tables around them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Self

import msgspec
import numpy as np

from tapestry_plan.ir import BUILTIN_OPS, Graph, OpNode, Selection
from tapestry_plan.search import tuning
from tapestry_plan.search.cost import Held
from tapestry_plan.search.elimination import minimize
from tapestry_plan.search.granted import Granted, ReadTensor, find_granted
from tapestry_plan.search.problem import Problem, TensorCost, Use
from tapestry_plan.search.pruning import find_marginals, is_worth_a_round
from tapestry_plan.search.reduction import Factor, IntArray
from tapestry_plan.search.sources import stored_behind
from tapestry_plan.search.variants import Variants
from tapestry_sets.limits import put_item


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
    problem: Problem, expandable: Mapping[str, Variants], cost: tuple[int, int], bound_ticks: int
) -> frozenset[str]:
    """The operators whose expansions may be in a plan that costs less than one that is already there.

    Where that plan is above its bound, these are those whose expansions may lower the bound.

    Parameters
    ----------
    problem : Problem
        Of the graph as given.
    expandable : mapping
        Operators, each with the variants of a graph of one that is alike.
    cost : tuple of int
        Picoseconds and bytes of the plan.
    bound_ticks : int
        No more than any plan of the graph as given takes.
    """
    some = {name: variants for name, variants in expandable.items() if variants.choices}
    now = grant_all(problem, some) if some else None
    if now is None:
        return frozenset(some)
    # Sums of as many ticks as the plan may have fewer bytes; above the bound, none that reaches it is of interest.
    wanted = cost if bound_ticks >= cost[0] else (bound_ticks, 0)
    most = cost[0] if bound_ticks >= cost[0] else bound_ticks - 1
    widest = tuning.FIRST_PRUNING_ENTRIES
    search, bound = now.factors(tuning.FIRST_FACTOR_ENTRIES)
    while True:
        marginals = find_marginals(now.sizes, bound, cap=widest)
        kept = marginals.list_kept(most)
        left = [at for at, is_more in now.granted.items() if is_more[kept[at]].any()]
        if not left or not all(map(len, kept)):
            return frozenset()
        is_last = now.entries == tuning.MAX_FACTOR_ENTRIES and widest >= tuning.MAX_PRUNING_ENTRIES
        is_done = marginals.exact and bound is search
        widest = min(widest * tuning.PRUNING_GROWTH, tuning.MAX_PRUNING_ENTRIES)
        is_last = is_done or (is_last and not is_worth_a_round(now.sizes, kept))
        now = now.restrict(kept)
        search, bound = now.factors()
        if is_last:
            least = minimize(now.sizes, bound)
            dominated = (least.bound_ticks, least.bound_nbytes) >= wanted
            return frozenset() if dominated else frozenset(problem.variables[at].name for at in left)


def grant_all(problem: Problem, expandable: Mapping[str, Variants]) -> Granting | None:
    """The problem where operators may have values of their expansions; None if of one is not known what it costs.

    Parameters
    ----------
    problem : Problem
    expandable : mapping
        Operators, each with the variants of a graph of one that is alike.
    """
    variants = {problem.position["operator", name]: each for name, each in expandable.items()}
    found, read = find_granted(problem, variants)
    granted = {at: one for at, one in found.items() if one is not None}
    return Granting(problem, granted, read) if len(granted) == len(variants) else None


class Granting(Problem):
    """A problem some of whose operators have more values, those of their expansions.

    Parameters
    ----------
    problem : Problem
    granted : mapping
        Operators, by position, with what their expansions cost.
    read : mapping
        For each of them what it reads that this cost depends on.
    """

    def __init__(
        self, problem: Problem, granted: Mapping[int, Granted], read: Mapping[int, Mapping[str, ReadTensor]]
    ) -> None:
        # The problem as it is, but that some results can be held in more ways. What is read then is counted beside, and
        # who reads the same after it receives nothing of it, as nobody knows what has arrived by then.
        self.__dict__.update(vars(problem))
        share, sizes = self.known.share, problem.sizes
        more = [granted[at].ticks.shape[-1] if at in granted else 0 for at in range(len(sizes))]
        self.sizes = [n + k for n, k in zip(sizes, more, strict=True)]
        self.variables = [
            msgspec.structs.replace(v, layouts=v.layouts + v.layouts[:1] * k) if k else v
            for v, k in zip(self.variables, more, strict=True)
        ]
        self.granted = {at: share(np.repeat([0, 1], (sizes[at], more[at]))) for at in granted}
        """For each of these operators 1 for a value of its expansions, 0 for a layout of its own."""
        self.compute = [share(np.pad(t, (0, k))) if k else t for t, k in zip(problem.compute, more, strict=True)]
        made: dict[tuple[object, ...], tuple[IntArray, IntArray]] = {}
        beside = [self._beside(at, one, read[at], sizes[at], made) for at, one in granted.items()]
        self.own = [*self._own_tables(), *beside]
        self.tensors = [self._grant(cost, granted) for cost in problem.tensors]

    def restrict(self, kept: Sequence[IntArray]) -> Self:
        """The same problem with some values of each variable, by ascending number, as its only ones."""
        made = super().restrict(kept)
        made.granted = {at: self.known.share(is_more[kept[at]]) for at, is_more in self.granted.items()}
        return made

    def _grant(self, cost: TensorCost, granted: Mapping[int, Granted]) -> TensorCost:
        """A tensor that its producer may hold in more ways, or that consumers may have at no cost here."""
        if granted.keys().isdisjoint([cost.producer, *(use.variable for use in cost.uses)]):
            return cost
        share, held = self.known.share, cost.held
        if cost.producer in granted:
            more = granted[cost.producer].hold(cost, self.mesh.size)
            both = (held.numbers, more.numbers), (held.parts, more.parts), (held.groups, more.groups)
            held = Held(*(share(np.concatenate(two)) for two in both))
        uses = [self._free(cost, use) if use.variable in granted else use for use in cost.uses]
        return msgspec.structs.replace(cost, held=held, uses=uses, made={})

    def _free(self, cost: TensorCost, use: Use) -> Use:
        free = self.granted[use.variable]
        more = np.full((int(free.sum()), self.mesh.size), cost.list_largest(use)[0])
        numbers = self.known.share(np.concatenate([use.numbers, more]))
        return msgspec.structs.replace(use, numbers=numbers, free=free)

    def _beside(
        self,
        at: int,
        found: Granted,
        read: Mapping[str, ReadTensor],
        size: int,
        known: dict[tuple[object, ...], tuple[IntArray, IntArray]],
    ) -> Factor:
        """What expansions cost, by how what they read is made; nothing for an operator's own layouts."""
        scope = [*(v for one in read.values() for v in one.scope), at]
        order = sorted(range(len(scope)), key=scope.__getitem__)
        key = id(found), *order  # alike tables are one object, so that elimination knows them
        if key not in known:
            own = [(0, 0)] * (len(scope) - 1) + [(size, 0)]
            ticks, nbytes = (np.pad(table, own).transpose(order) for table in (found.ticks, found.nbytes))
            known[key] = ticks, nbytes
        return Factor(tuple(scope[axis] for axis in order), *known[key])


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
