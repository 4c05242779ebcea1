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
from math import prod
from typing import Self

import msgspec
import numpy as np
from msgspec import Struct

from tapestry_plan.ir import BUILTIN_OPS, Graph, OpNode
from tapestry_plan.search import tuning
from tapestry_plan.search.expansions.granted import Granted, ReadTensor, find_granted
from tapestry_plan.search.prices.added import take_out
from tapestry_plan.search.prices.costs import Problem, TensorCost, Use, Variants
from tapestry_plan.search.prices.moves import ANYHOW, FREE, Held
from tapestry_plan.search.solving import KeptLayouts, list_rows
from tapestry_plan.search.sums.elimination import minimize
from tapestry_plan.search.sums.pruning import find_marginals, is_worth_a_round
from tapestry_plan.search.sums.reduction import Factor, IntArray


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
            kinds[key] = Variants(take_out(graph, [node]), expand, (), more)
        if kinds[key].choices or kinds[key].without:
            out[node.name] = kinds[key]
    return out


class Undominated(Struct, frozen=True):
    """The operators whose expansions may be in a plan that costs less than one that is already there.

    Parameters
    ----------
    names : frozenset of str
    chosen : frozenset of str
        Those of them that are expanded where the sum of what is certain is least.
    ticks, nbytes : int
        That least sum: no plan of any expansions costs less, nor fewer bytes for as many picoseconds.
    kept : mapping
        By kind and name of a variable its layouts, and the rows of those that may be in a plan, of any of the
        expansions, that takes no longer than the one that is there; empty where that is not known.
    """

    names: frozenset[str]
    chosen: frozenset[str]
    ticks: int
    nbytes: int
    kept: KeptLayouts = {}


def find_undominated(
    problem: Problem,
    expandable: Mapping[str, Variants],
    cost: tuple[int, int],
    bound_ticks: int,
    known: KeptLayouts | None = None,
    laid: Collection[str] = (),
) -> Undominated:
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
    known : mapping, optional
        What was kept beside a plan that cost no less, with these expansions and maybe others: nothing else is looked
        at.
    laid : collection of str
        Operators whose expansions have layouts that places say which are asked for: of these only the work is counted.
    """
    # Sums of as many ticks as the plan may have fewer bytes; above the bound, none that reaches it is of interest.
    wanted = cost if bound_ticks >= cost[0] else (bound_ticks, 0)
    most = cost[0] if bound_ticks >= cost[0] else bound_ticks - 1
    left = {name: variants for name, variants in expandable.items() if variants.choices}
    found = Undominated(frozenset(left), frozenset(left), 0, 0)
    granting: Granting | None = None
    # Of what is within expansions most is settled by small tables.
    for entries in (tuning.FIRST_FACTOR_ENTRIES, tuning.MAX_FACTOR_ENTRIES):
        before, granting = granting, grant_all(problem, left, entries, laid) if left else None
        if granting is None or (before is not None and granting.is_as(before)):  # what was found is found again
            break
        rows = list_rows(problem, known or {})
        found = _list_left(granting if rows is None else granting.keep(rows), wanted, most)
        if bound_ticks < cost[0]:  # layouts above the bound may be in a better plan
            found = msgspec.structs.replace(found, kept={})
        left = {name: variants for name, variants in left.items() if name in found.names}
        if granting.is_exact:
            break
    return found


def _list_left(now: Granting, wanted: tuple[int, int], most: int) -> Undominated:
    """The operators of which an expansion is in a sum of at most so many ticks that is below what is wanted."""
    none, first = Undominated(frozenset(), frozenset(), *wanted), now
    level, finest = 0, len(now.LEVELS) - 1
    while True:
        search, bound = now.factors_of(level)
        growth = 1 if level >= finest else tuning.PRUNING_GROWTH  # the largest tables take seconds
        marginals = find_marginals(
            now.sizes, bound, cap=tuning.MAX_PRUNING_ENTRIES // growth, most=most, stop=now.asked.stop
        )
        kept = marginals.list_kept(most)
        left = [at for at, is_more in now.granted.items() if is_more[kept[at]].any()]
        if not left or not all(map(len, kept)):
            return none
        is_exact = marginals.exact and bound is search and not now.is_loose
        is_worth = is_worth_a_round(now.sizes, kept)
        # Where nobody knows how a result lies, larger tables say little more.
        finest = len(now.LEVELS) - 1 if any(at in now.placed for at in left) else 0
        is_last = level >= finest and not is_worth
        now = now.restrict(kept)
        if is_exact or is_last:
            least = minimize(now.sizes, now.factors_of(level)[1])
            if (least.bound_ticks, least.bound_nbytes) >= wanted:
                return none
            chosen = [at for at in left if now.granted[at][least.choice[at]]]
            names, expanded = (frozenset(now.variables[at].name for at in some) for some in (left, chosen))
            rows = zip(first.variables, first.own_layouts, now.rows, strict=True)
            layouts: KeptLayouts = {(v.kind, v.name): (each, some) for v, each, some in rows}
            return Undominated(names, expanded, least.bound_ticks, least.bound_nbytes, layouts)
        if not is_worth or marginals.exact:  # larger tables are made once smaller ones leave nothing out
            level = min(level + 1, finest)


def grant_all(
    problem: Problem, expandable: Mapping[str, Variants], entries: int, laid: Collection[str] = ()
) -> Granting | None:
    """The problem where operators may have values of their expansions; None if of one is not known what it costs.

    Parameters
    ----------
    problem : Problem
    expandable : mapping
        Operators, each with the variants of a graph of one that is alike.
    entries : int
        Of one tensor's table within an expansion; where more are needed its consumers are counted one by one.
    laid : collection of str
        As of `find_undominated`.
    """
    variants = {problem.position["operator", name]: each for name, each in expandable.items()}
    found, read = find_granted(problem, variants, entries, laid)
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

    LEVELS = (
        (tuning.FIRST_FACTOR_ENTRIES, tuning.FIRST_FACTOR_ENTRIES),
        (tuning.MAX_FACTOR_ENTRIES // tuning.PRUNING_GROWTH, tuning.FIRST_FACTOR_ENTRIES),
        (tuning.MAX_FACTOR_ENTRIES, tuning.FIRST_FACTOR_ENTRIES),
        (tuning.MAX_FACTOR_ENTRIES, tuning.MAX_FACTOR_ENTRIES),
    )
    """Entries of one tensor's tables, and of the part of them that is over values of expansions."""

    def __init__(
        self, problem: Problem, granted: Mapping[int, Granted], read: Mapping[int, Mapping[str, ReadTensor]]
    ) -> None:
        # The problem as it is, but that some results can be held in more ways. What is read then is counted beside, and
        # who reads the same after it receives nothing of it, as nobody knows what has arrived by then.
        self.__dict__.update(vars(problem))
        share, sizes = self.known.share, problem.sizes
        more = [granted[at].ticks.shape[-1] if at in granted else 0 for at in range(len(sizes))]
        self.sizes = [n + k for n, k in zip(sizes, more, strict=True)]
        self.own_layouts = [v.layouts for v in problem.variables]
        self.variables = [
            msgspec.structs.replace(v, layouts=v.layouts + v.layouts[:1] * k) if k else v
            for v, k in zip(self.variables, more, strict=True)
        ]
        self.granted = {at: share(np.repeat([0, 1], (sizes[at], more[at]))) for at in granted}
        """For each of these operators 1 for a value of its expansions, 0 for a layout of its own."""
        self.costs = granted
        self.is_exact = all(one.is_exact for one in granted.values())
        self.placed = frozenset(at for at, one in granted.items() if one.held is not None)
        """Those of them of which it is known how results of expansions lie."""
        # Who reads the result through views may read what an expansion makes through fewer, as it lies.
        viewed = {
            use.variable for cost in problem.tensors for use in cost.uses if cost.producer in granted and use.viewed
        }
        is_operator = [variable.kind == "operator" for variable in problem.variables]
        work = [one.ticks for one in problem.own[: len(sizes)]]
        for at in viewed:
            if is_operator[at]:
                work[at] = share(work[at] - (problem.compute[at] - problem.count_bare(at)))
        self.compute = [share(np.pad(t, (0, k))) if k else t for t, k in zip(work, more, strict=True)]
        between = [self._widen(factor, more) for factor in problem.own[len(sizes) :]]
        made: dict[tuple[object, ...], tuple[IntArray, IntArray]] = {}
        beside = [self._beside(at, one, read[at], sizes[at], made) for at, one in granted.items()]
        self.own = [*self._own_tables(), *between, *beside]
        self.tensors = [self._grant(cost, granted) for cost in problem.tensors]
        self.base = {id(cost): one for cost, one in zip(self.tensors, problem.tensors, strict=True)}
        """The tensors as the problem has them."""
        self.rows = [np.arange(n) for n in sizes]
        """The numbers that the layouts of each variable have there."""
        self.level, self.is_loose = 0, False

    def is_as(self, other: Granting) -> bool:
        """Whether another one of the same problem has the same values of expansions, at the same costs."""
        if self.costs.keys() != other.costs.keys():
            return False
        return all(one.is_as(other.costs[at]) for at, one in self.costs.items())

    def factors_of(self, level: int) -> tuple[list[Factor], list[Factor]]:
        """The tables of one of the levels."""
        self.level, self.is_loose = level, False
        return self.factors(self.LEVELS[level][0])

    def keep(self, rows: Sequence[IntArray]) -> Self:
        """The same problem with some layouts of each variable, and all values of expansions."""
        none = np.zeros(0, np.int64)
        more = [np.flatnonzero(self.granted[at]) if at in self.granted else none for at in range(len(self.sizes))]
        return self.restrict([np.concatenate(two) for two in zip(rows, more, strict=True)])

    def restrict(self, kept: Sequence[IntArray]) -> Self:
        """The same problem with some values of each variable, by ascending number, as its only ones."""
        made = super().restrict(kept)
        made.granted = {at: self.known.share(is_more[kept[at]]) for at, is_more in self.granted.items()}
        made.tensors = [msgspec.structs.replace(c, made={}) if c.producer in self.granted else c for c in made.tensors]
        made.base = {id(cost): self.base[id(old)] for cost, old in zip(made.tensors, self.tensors, strict=True)}
        made.rows = [rows[some[some < len(rows)]] for rows, some in zip(self.rows, kept, strict=True)]
        return made

    def _make_tables(self, cost: TensorCost, uses: Sequence[Use], whole: bool) -> tuple[IntArray, IntArray]:
        """As of any problem: tables that are there of layouts alone, and those of expansions' values beside them."""
        free = uses[-1].free
        # Where it has landed a tensor lies as it does for any other problem.
        is_more = self.granted.get(cost.producer) if id(cost) in self.base else None
        if free is not None:
            paid, share = np.flatnonzero(free == 0), self.known.share
            shape = len(cost.held.parts), *(len(use.numbers) for use in uses)
            out = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
            if paid.size:
                last = msgspec.structs.replace(uses[-1], free=None).cut(lambda rows: share(rows[paid]))
                out[0][..., paid], out[1][..., paid] = self._make_tables(cost, [*uses[:-1], last], whole)
            return out
        if is_more is None:
            return self._known_tables(cost, uses, whole)
        first = len(is_more) - int(is_more.sum())  # they come behind the layouts
        both = self._list_own(cost, uses, whole, first), self._list_more(cost, uses, whole, first)
        ticks, nbytes = (np.concatenate(each) for each in zip(*both, strict=True))
        return ticks, nbytes

    def _list_own(self, cost: TensorCost, uses: Sequence[Use], whole: bool, count: int) -> tuple[IntArray, IntArray]:
        """The part of a tensor's tables that is over layouts of who makes it: cut from one that is there, or made."""
        if not count:
            shape = 0, *(len(use.numbers) for use in uses)
            return np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        base = self.base[id(cost)]
        there = {use.variable: use for use in base.uses if use.variable not in self.granted}
        if base.landing is None and len(there) == len(base.uses) and all(use.variable in there for use in uses):
            found = self.known.facts.get(self._name_tables(base, [there[use.variable] for use in uses], whole))
            if found is not None:
                at = np.ix_(*(self.rows[v] for v in (cost.producer, *(use.variable for use in uses))))
                return found[0][at], found[1][at]
        return self._known_tables(_hold_some(self, cost, slice(count)), uses, whole)

    def _list_more(self, cost: TensorCost, uses: Sequence[Use], whole: bool, first: int) -> tuple[IntArray, IntArray]:
        """The part over values of its expansions."""
        shape = self.sizes[cost.producer] - first, *(len(use.numbers) for use in uses)
        some, uses = _hold_some(self, cost, slice(first, None)), [self._loosen(cost, use) for use in uses]
        most = shape[0] * prod(len(use.numbers) for use in cost.uses)
        if len(uses) == 1 or cost.only_partial or most <= self.LEVELS[self.level][1]:
            return self._known_tables(some, uses, whole) if shape[0] else (np.zeros(shape, np.int64),) * 2
        # Where the tables would be large: what the first one receives, which is in a table by itself, and what another
        # one alone would receive beyond that, as all together receive no less than any of them alone.
        self.is_loose = True
        out = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        if len(uses) == len(cost.uses):
            spread = [(shape[0], *(n if at == k else 1 for at, n in enumerate(shape[1:]))) for k in range(len(uses))]
            alone = [self._known_tables(some, [self._loosen(cost, use, FREE)], True) for use in uses]
            for k in range(2):
                before, *others = (one[k].reshape(around) for one, around in zip(alone, spread, strict=True))
                for more in others:
                    np.maximum(out[k], more - before, out=out[k])
        return out

    def _known_tables(self, cost: TensorCost, uses: Sequence[Use], whole: bool) -> tuple[IntArray, IntArray]:
        made = super()._make_tables
        return self.known.fact(self._name_tables(cost, uses, whole), lambda: made(cost, uses, whole))

    def _name_tables(self, cost: TensorCost, uses: Sequence[Use], whole: bool) -> tuple[object, ...]:
        return "tables", *super()._said(cost), whole, 0, *(use.structure for use in uses)

    def _said(self, cost: TensorCost) -> tuple[int | tuple[int, ...], ...]:
        said = super()._said(cost)
        return (*said, self.LEVELS[self.level][1]) if cost.producer in self.granted else said

    def _widen(self, factor: Factor, more: Sequence[int]) -> Factor:
        """A table over neighbors, which says nothing of values of expansions."""
        room = [(0, more[v]) for v in factor.scope]
        if not any(after for _, after in room):
            return factor
        key = "widened", self.known.identity(factor.ticks), *room
        ticks = self.known.fact(key, lambda: np.pad(factor.ticks, room))
        return Factor(factor.scope, ticks, self.known.share(np.zeros_like(ticks)))

    def _grant(self, cost: TensorCost, granted: Mapping[int, Granted]) -> TensorCost:
        """A tensor that its producer may hold in more ways, or that consumers may have at no cost here."""
        if granted.keys().isdisjoint([cost.producer, *(use.variable for use in cost.uses)]):
            return cost
        share, held = self.known.share, cost.held
        if cost.producer in granted:
            more = granted[cost.producer].hold(cost, self.mesh.size)
            both = (held.numbers, more.numbers), (held.parts, more.parts), (held.groups, more.groups)
            held = Held(*(share(np.concatenate(two)) for two in both))
        uses = list(cost.uses)
        if len(uses) > 1 and any(use.variable in granted for use in uses):
            uses = [self._loosen(cost, use) for use in uses]  # how others have it depends on how an expansion reads it
        uses = [self._free(cost, use) if use.variable in granted else use for use in uses]
        return msgspec.structs.replace(cost, held=held, uses=uses, made={})

    def _loosen(self, cost: TensorCost, use: Use, bits: int = ANYHOW) -> Use:
        """How a consumer may have a tensor at best, whatever stands for who makes it and who else reads it."""
        # What is gathered for several operands may be there already, and what a device makes may serve who reads it.
        may_serve = bool(use.apart) or (cost.tensor.kind == "result" and not self.asked.apart)
        return use.loosen(self.known.share, bits) if may_serve else use

    def _free(self, cost: TensorCost, use: Use) -> Use:
        free = self.granted[use.variable]
        more = np.full((int(free.sum()), self.mesh.size), cost.list_largest(use)[0])
        share = self.known.share
        numbers, *apart = (share(np.concatenate([each, more])) for each in (use.numbers, *use.apart))
        ways, loose = (
            tuple(share(np.concatenate([each, np.zeros_like(more)])) for each in every)
            for every in (use.ways, use.loose)
        )
        return msgspec.structs.replace(use, numbers=numbers, free=free, apart=tuple(apart), ways=ways, loose=loose)

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
        key = id(found), size, *order  # alike tables are one object, so that elimination knows them
        if key not in known:
            own = [(0, 0)] * (len(scope) - 1) + [(size, 0)]
            ticks, nbytes = (np.pad(table, own).transpose(order) for table in (found.ticks, found.nbytes))
            known[key] = ticks, nbytes
        return Factor(tuple(scope[axis] for axis in order), *known[key])


def _hold_some(problem: Problem, cost: TensorCost, rows: slice) -> TensorCost:
    """A tensor that its producer may hold in some of its ways."""
    held, share = cost.held, problem.known.share
    some = Held(*(share(each[rows]) for each in (held.numbers, held.parts, held.groups)))
    return msgspec.structs.replace(cost, held=some, made={})


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
