"""What the expansions of one operator cost at best, by how what they read is made and how their result lies.

An expansion is a part of a larger graph. All that the rest has to know of it is what it costs for each way in which
what it reads is made, and its result lies. So everything within is chosen at once::

    x ──── sum ── divide ── … ── add ── q, k, v        (layout of x's maker, layout of add) ─► ticks, bytes

Operators of one structure, which read what is made alike, have one such table.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cached_property
from math import prod

import numpy as np
from msgspec import Struct

from tapestry_plan.ir import Stored
from tapestry_plan.search import tuning
from tapestry_plan.search.expansions.joint import JointProblem
from tapestry_plan.search.prices.added import asks_for_splits
from tapestry_plan.search.prices.costs import Asked, Option, Problem, TensorCost, Use, Variable, Variants
from tapestry_plan.search.prices.moves import Held, list_classes
from tapestry_plan.search.sums.elimination import minimize_beside
from tapestry_plan.search.sums.reduction import Factor, IntArray
from tapestry_plan.steps import list_stored, pull_back, unite
from tapestry_sets.regions import DisjointRegions


class Granted(Struct, frozen=True):
    """What the expansions of an operator cost at best, by how what they read is made and how their result lies.

    Parameters
    ----------
    ticks, nbytes : array of int64, (…, ways)
        An axis for each variable of what is read, and one for the ways in which the result may lie.
    held : Held, or None
        The result in each of these ways; None for one way, with every result on every device.
    is_exact : bool
        Whether larger tables would say no more.
    """

    ticks: IntArray
    nbytes: IntArray
    held: Held | None = None
    is_exact: bool = True

    def hold(self, cost: TensorCost, devices: int) -> Held:
        """How devices hold the result, a tensor of a problem."""
        if self.held is not None:
            return self.held
        full = cost.table.number(DisjointRegions.full(cost.tensor.shape))
        everywhere = np.full((1, devices), full)
        return Held(everywhere, np.ones(1, np.int64), np.zeros_like(everywhere))

    def is_as(self, other: Granted) -> bool:
        """Whether the results lie in the same ways, at the same costs."""
        if (self.held is None) != (other.held is None):
            return False
        mine, theirs = (
            (one.ticks, one.nbytes, *((one.held.numbers, one.held.parts, one.held.groups) if one.held else ()))
            for one in (self, other)
        )
        return all(map(np.array_equal, mine, theirs))


class ReadTensor(Struct, frozen=True):
    """A tensor as a problem has it: how it is made, and where it may land, which are variables of it."""

    cost: TensorCost
    producer: Variable
    landing: Variable | None

    @property
    def scope(self) -> tuple[int, ...]:
        """Of the problem: who makes the tensor, and where it lands."""
        return (self.cost.producer, *([self.cost.landing.variable] if self.cost.landing else []))


class Alone(JointProblem):
    """The expansions of one operator, with some of the tensors that they read made as another problem has them.

    The others, and all that expansions add to what is read, are on every device.
    """

    def __init__(self, variants: Variants, asked: Asked, read: Mapping[str, ReadTensor]) -> None:
        self.given = read
        super().__init__(variants, asked)

    @cached_property
    def open(self) -> frozenset[str]:
        """All but what is given to the graph itself: nobody knows who else reads it."""
        given = (name for name, made in self.given.items() if made.cost.tensor.kind != "result")
        return frozenset(self.graph.stored) - frozenset(given)

    def _declare_sources(self, asked: Asked) -> None:
        for name, made in self.given.items():
            self._add(Variable(name, "source", made.producer.axes, made.producer.layouts))

    def _declare_landings(self) -> None:
        super()._declare_landings()
        for name, made in self.given.items():
            if made.landing is not None:
                self._add(Variable(name, "landing", made.landing.axes, made.landing.layouts))

    def _cost_of_source(self, tensor: Stored, at: int) -> TensorCost:
        cost = self.given[tensor.name].cost
        landing = cost.landing and Use(self.position["landing", tensor.name], cost.landing.numbers)
        table = self.tables[tensor.name]
        return TensorCost(
            tensor, table, at, cost.held, cost.part_itemsize, landing=landing, shares=cost.shares, merges=cost.merges
        )

    def reads_no_more(self) -> bool:
        """Whether expansions read no cells but those that the operator reads."""
        (node,) = self.variants.original.nodes.values()
        at = self.position["operator", node.name]
        for name in list_stored(self.graph, node.inputs):
            cells: dict[bool, list[DisjointRegions]] = {True: [], False: []}
            for use in self.uses[name]:
                cells[use.variable == at] += self._list_largest(name, np.unique(use.numbers))
            mine, others = (unite(cells[is_mine], self.graph.stored[name].shape) for is_mine in (True, False))
            if others - mine:
                return False
        return True

    def _list_largest(self, name: str, numbers: IntArray) -> list[DisjointRegions]:
        """Those of a tensor's regions, by number, that do not all lie in the largest one."""
        table = self.tables[name]
        sizes = table.sizes(numbers)
        first = numbers[sizes.argmax()]
        others = numbers[table.sizes(numbers, first[None]) < sizes]
        return [table.regions[n] for n in (first, *others)]

    def list_read(self) -> list[int]:
        """The variables of what is read, in the order of `ReadTensor.scope`."""
        kinds = ("source", "landing")
        return [self.position[kind, name] for name in self.given for kind in kinds if (kind, name) in self.position]


def find_granted(
    problem: Problem, chosen: Mapping[int, Variants], entries: int, laid: Collection[str] = ()
) -> tuple[dict[int, Granted | None], dict[int, dict[str, ReadTensor]]]:
    """What the expansions of operators cost, of alike ones once, and what they read that it depends on.

    Parameters
    ----------
    problem : Problem
    chosen : mapping
        Operators, by position, each with the variants of a graph of one that is alike.
    entries : int
        Of one tensor's table; where more are needed its consumers are counted one by one.
    laid : collection of str
        Operators of whose expansions only the work is counted.
    """
    found: dict[int, Granted | None] = {}
    read: dict[int, dict[str, ReadTensor]] = {}
    asking = {id(each): _asks(problem, each) for each in chosen.values()}
    known: dict[object, Granted | None] = {}
    for at, variants in chosen.items():
        asks = asking[id(variants)] or problem.variables[at].name in laid
        read[at] = {} if asks else _list_made(problem, at, variants, chosen.keys())
        key = id(variants), asks, *(_said(name, made) for name, made in read[at].items())
        if key not in known:
            known[key] = _find_now(problem, variants, read[at], asks, entries)
        found[at] = known[key]
    return found, read


def _said(name: str, made: ReadTensor) -> tuple[object, ...]:
    """All that what expansions cost depends on, of what they read: arrays are shared, so ids say which."""
    held = made.cost.held
    landing = made.cost.landing and id(made.cost.landing.numbers)
    ids = id(held.numbers), id(held.parts), id(held.groups)
    return name, *ids, made.cost.part_itemsize, made.cost.shares, landing


def _list_made(problem: Problem, at: int, variants: Variants, open_: Collection[int]) -> dict[str, ReadTensor]:
    """What an operator reads that it is counted how to get, by its name in the graph of one operator."""
    (alone,) = variants.original.nodes.values()
    names = list_stored(variants.original, alone.inputs)
    node = problem.graph.nodes[problem.variables[at].name]
    out: dict[str, ReadTensor] = {}
    entries, taken = problem.sizes[at], set[int]()
    for name, real in zip(names, list_stored(problem.graph, node.inputs), strict=True):
        costs = [cost for cost in problem.tensors if cost.tensor.name == real]
        mine = [cost for cost in costs if any(use.variable == at for use in cost.uses)]
        if len(mine) != 1 or mine[0].producer in open_ or mine[0].producer in taken:
            continue
        before = (use.variable for cost in costs for use in cost.uses if use.variable < at)
        if any(problem.variables[v].kind == "operator" for v in before):
            continue  # what has arrived for these need not be moved
        place = problem.position.get(("landing", real))
        if (place is None) != (mine[0].landing is None):
            continue  # expansions may let it land, though there was no room for these tables here
        made = ReadTensor(
            mine[0], problem.variables[mine[0].producer], None if place is None else problem.variables[place]
        )
        entries *= prod(problem.sizes[v] for v in made.scope)
        if entries > tuning.FIRST_FACTOR_ENTRIES:
            break
        taken.add(mine[0].producer)
        out[name] = made
    return out


def _asks(problem: Problem, variants: Variants) -> bool:
    """Whether expansions have views through which they, or those around them, may be offered split axes."""
    outs = [out for choice in variants.choices for option in choice.options for out in option.outputs]
    reads = [(one.node, reading.names) for one in variants.present for reading in one.readings]
    return not all(variants.graph.source(out).direct for out in outs) or asks_for_splits(
        variants.graph, problem.mesh.size, reads, problem.known
    )


def _find_now(
    problem: Problem, variants: Variants, read: Mapping[str, ReadTensor], asks: bool, entries: int
) -> Granted | None:
    """What the expansions of an operator cost at best, None if not known; `asks` as of `_asks`."""
    if not _are_fresh(variants):
        return None
    asked = Asked(problem.mesh, space=problem.asked.space, known=problem.known, stop=problem.asked.stop)
    joint = Alone(variants, asked, read)
    if not joint.reads_no_more():
        return None
    if asks:
        return _count_work(joint)
    # Where the outputs go is not part of it.
    ends = {at for at, variable in enumerate(joint.variables) if variable.kind == "output"}
    search, bound = joint.factors(entries)
    inner, is_exact = [factor for factor in bound if ends.isdisjoint(factor.scope)], bound is search
    own, options, beside = len(joint.variables), variants.choices[0].options, joint.list_read()
    lasts = [_find_last(problem, joint, option) for option in options]
    if None in lasts:  # its result may be anywhere
        sizes = [n - (at == own) for at, n in enumerate(joint.sizes)]
        chosen = [_keep(factor, own, slice(1, None)) for factor in inner]
        ticks, nbytes = minimize_beside(sizes, chosen, beside)
        return Granted(ticks[..., None], nbytes[..., None], is_exact=is_exact)
    sizes = [1 if at == own else n for at, n in enumerate(joint.sizes)]
    found, rows = [], []
    for value, last in enumerate(lasts, 1):
        assert last is not None, "there is no other one left"
        chosen = [_keep(factor, own, slice(value, value + 1)) for factor in inner]
        found.append(minimize_beside(sizes, chosen, [*beside, last.producer]))
        rows.append(np.column_stack([last.held.numbers, last.held.parts, last.held.groups]))
    # Of the ways that leave the same on all devices the cheapest one stands for all.
    distinct, classes = list_classes(np.concatenate(rows))
    ticks, nbytes = (np.concatenate(each, axis=-1) for each in zip(*found, strict=True))
    best = [np.full((*ticks.shape[:-1], len(distinct)), np.iinfo(np.int64).max) for _ in range(2)]
    for way, group in enumerate(classes.tolist()):
        t, n = ticks[..., way], nbytes[..., way]
        better = (t < best[0][..., group]) | ((t == best[0][..., group]) & (n < best[1][..., group]))
        best[0][..., group], best[1][..., group] = np.where(better, (t, n), (best[0][..., group], best[1][..., group]))
    devices = problem.mesh.size
    held = Held(distinct[:, :devices], distinct[:, devices], distinct[:, devices + 1 :])
    return Granted(best[0], best[1], held, is_exact)


def _count_work(joint: JointProblem) -> Granted:
    """The least work of an operator's expansions, whatever their layouts: no device's share is below the mean.

    The mean is that of devices as fast as any of them.
    """
    own = len(joint.variables)
    made = []
    for given, node, read in joint.read:
        least = np.array(joint.count_fastest(node, read).max() // joint.mesh.size)
        made.append(joint._restrict(given, Factor((), least, np.zeros((), np.int64))))
    chosen = [_keep(factor, own, slice(1, None)) for factor in made]
    sizes = [1 if at < own else n - (at == own) for at, n in enumerate(joint.sizes)]
    ticks, nbytes = minimize_beside(sizes, chosen, [])
    return Granted(ticks[None], nbytes[None])


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
