"""What neighbors cost in one block, as a sum of tables.

::

    x ─► exp ─► t ─► · w ─► y         exp reads x, writes t; the product reads t and w, writes y
    x ─► (exp ─► · w) ─► y            the block reads x and w, writes y

Neighbors can be one block where every device makes just what it reads itself. Then nothing else is different: the
block needs the cells that its first operator needed, and makes what its last one made. So in a chain of such neighbors
the layout of the last one says those of all, and what a block of some of them takes, in each of its layouts. A chain is
best cut where the shortest way leads through its blocks; the lengths of that way are shares of its operators::

    exp   · w   relu         d(k): the least time of the first k, in blocks
     ●─────●─────●─────●     share of operator k: d(k) - d(k - 1)
     0    d(1)  d(2)  d(3)   of neighbors in a row no block takes less than the sum of their shares

Where two neighbors do not lie together, a block begins behind that place. What it takes beyond its shares, at least, is
a table over both. So the tables together are a lower bound of every plan with blocks, and mostly are what it takes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from math import prod
from typing import Self

import numpy as np
from msgspec import Struct
from msgspec.structs import replace as replace_struct

from tapestry_plan.ir import Graph, NotApplicable, OpNode, Selection
from tapestry_plan.rewrite import Draft, Fusion, fuse
from tapestry_plan.search import tuning
from tapestry_plan.search.prices.costs import Problem, TensorCost, compute_seconds, find_product_share, to_ticks
from tapestry_plan.search.prices.moves import ANYHOW, PADDED
from tapestry_plan.search.sums.elimination import Factor, IntArray
from tapestry_plan.steps import align, list_stored
from tapestry_sets.limits import put_item
from tapestry_sets.regions import Box

NEVER = tuning.MAX_WEIGHED // 2
"""Picoseconds of a block that cannot be: more than any plan takes."""


class Pick(Struct, frozen=True):
    """Two neighbors that may be one block: the first makes an operand of the second."""

    first: str
    operand: int


class Chain(Struct, frozen=True):
    """Operators each of which may be one block with the next, from the first to the last; and what blocks of them cost.

    Parameters
    ----------
    names : tuple of str
    at : tuple of int
        Their variables.
    prices : ChainPrices
    """

    names: tuple[str, ...]
    at: tuple[int, ...]
    prices: ChainPrices

    def list_runs(self, choice: Sequence[int]) -> Iterator[tuple[int, int]]:
        """The operators that lie together in some layouts, as the numbers of the first and the last one of each run."""
        begin, rows = 0, [choice[at] for at in self.at]
        for k in range(1, len(rows) + 1):
            if k == len(rows) or not self.prices.lies_behind(k, rows):
                yield begin, k - 1
                begin = k

    def count_ticks(self, choice: Sequence[int]) -> int:
        """Picoseconds of all of them in their best blocks, in some layouts."""
        rows = [choice[at] for at in self.at]
        return sum(int(self.prices.least[i, j][rows[j]]) for i, j in self.list_runs(choice))

    def list_joined(self, choice: Sequence[int]) -> Iterator[str]:
        """Those that are in one block with the one before them; of blocks that take the same time in the largest."""
        rows = [choice[at] for at in self.at]
        for begin, last in self.list_runs(choice):
            while last > begin:
                first = next(i for i in range(begin, last + 1) if self._is_best(begin, i, last, rows))
                yield from self.names[first + 1 : last + 1]
                last = first - 1

    def _is_best(self, begin: int, first: int, last: int, rows: Sequence[int]) -> bool:
        """Whether the best way through some operators ends with a block of the last ones."""
        before = int(self.prices.least[begin, first - 1][rows[first - 1]]) if first > begin else 0
        ticks = before + int(self.prices.ticks[first, last][rows[last]])
        return ticks == int(self.prices.least[begin, last][rows[last]])


class ChainPrices(Struct, frozen=True):
    """What blocks of a chain's operators cost, in picoseconds by layout of their last one.

    Parameters
    ----------
    alike : list of array
        For each operator and layout the first layout in which all devices have the same boxes.
    behind : list of array
        For each operator and layout that layout of the one before in which every device makes just what is read; -1
        where there is none.
    rows : dict of array
        By the numbers of the first and the last operator, and the last one's layout, the layout of the first one that
        lies together with it; -1 where there is none.
    ticks, least : dict of array
        By the numbers of the first and the last operator: what one block of them takes, and what they take at least in
        several; `NEVER` where no layouts of the others lie together with that of the last.
    shares : list of array
        For each operator and layout what it adds at least.
    begun : list of array
        For each operator and layout what it takes more at least where it does not lie together with the one before.
    """

    alike: list[IntArray]
    behind: list[IntArray]
    rows: dict[tuple[int, int], IntArray]
    ticks: dict[tuple[int, int], IntArray]
    least: dict[tuple[int, int], IntArray]
    shares: list[IntArray]
    begun: list[IntArray]

    def lies_behind(self, k: int, rows: Sequence[int]) -> bool:
        """Whether an operator reads just what the one before makes on each device."""
        return bool(self.behind[k][rows[k]] == self.alike[k - 1][rows[k - 1]])

    def tell_apart(self, k: int) -> IntArray:
        """What an operator takes more where it does not lie together with the one before: by layout of both."""
        together = self.alike[k - 1][:, None] == self.behind[k][None, :]
        return np.where(together, 0, self.begun[k][None, :])


class FusedProblem(Problem):
    """A problem whose neighbors are in one block where they lie so that they can be, and that takes less time.

    Its tables are a lower bound of what any layouts cost so; `count_cost` says what they do cost.

    Parameters
    ----------
    problem : Problem
    picks : mapping
        Operators that may be one block with one that they read.
    """

    is_sum = False

    def __init__(self, problem: Problem, picks: Mapping[str, Pick]) -> None:
        self.__dict__.update(vars(problem))
        self.__dict__.pop("touching", None)
        self.picks = picks
        self.chains = [price_chain(problem, names, picks) for names in list_chains(picks)]
        own = list(problem.own)
        for chain in self.chains:
            key = "chain", self.known.identity(chain.prices)
            for k, at in enumerate(chain.at):
                own[at] = self._own_table(at, self.known.share(chain.prices.shares[k]))
                if k and chain.prices.begun[k].any():
                    own.append(self._tell_apart(key, chain, k))
        self.own = own
        self.tensors = [self._loosen(cost) for cost in problem.tensors]

    def _loosen(self, cost: TensorCost) -> TensorCost:
        """What passes inside of blocks is not copied into padding: of neighbors apart no more than they take."""
        if len(cost.uses) != 1 or cost.tensor.name != self._passing.get(cost.uses[0].variable):
            return cost
        (use,) = cost.uses
        ways = tuple(self.known.share(np.where(way & PADDED, way | ANYHOW, way)) for way in use.ways)
        may = all(way is other for way, other in zip(ways, use.ways, strict=True))
        return cost if may else replace_struct(cost, uses=[replace_struct(use, ways=ways)], made={})

    @cached_property
    def _passing(self) -> dict[int, str]:
        """By the variable of who reads it what passes between neighbors that may be in one block."""
        return {
            self.position["operator", name]: self.graph.nodes[name].inputs[pick.operand]
            for name, pick in self.picks.items()
        }

    def _tell_apart(self, key: tuple[object, ...], chain: Chain, k: int) -> Factor:
        """What an operator takes more where it does not lie together with the one before, as a table."""
        scope = chain.at[k - 1], chain.at[k]
        turned = scope[0] > scope[1]

        def made() -> tuple[IntArray, IntArray]:
            ticks = chain.prices.tell_apart(k)
            ticks = np.ascontiguousarray(ticks.T) if turned else ticks
            return ticks, np.zeros_like(ticks)

        return Factor((min(scope), max(scope)), *self.known.fact((*key, k, turned), made))

    def around(self, operators: Collection[int]) -> tuple[Self, list[int]]:
        """The tables of some operators alone, with the chains that they are in, and their variables."""
        made, free = super().around(operators)
        made.chains = [chain for chain in self.chains if not set(free).isdisjoint(chain.at)]
        return made, free

    def count_cost(self, choice: Sequence[int]) -> tuple[int, int]:
        """Picoseconds and bytes of the chosen layouts, with their best blocks."""
        ticks, nbytes = super().count_cost(choice)
        for chain in self.chains:
            ticks += chain.count_ticks(choice) - sum(int(self.compute[at][choice[at]]) for at in chain.at)
        return ticks, nbytes

    def list_needed(self, node: OpNode) -> Iterator[IntArray]:
        """The same of an operator alone, and of each block that it may be in: there by layout of the block's last."""
        yield from super().list_needed(node)
        for chain in self.chains:
            if node.name not in chain.names:
                continue
            k, nodes = chain.names.index(node.name), [self.graph.nodes[name] for name in chain.names]
            for (i, j), ticks in chain.prices.ticks.items():
                some = np.flatnonzero(ticks < NEVER)
                if i <= k <= j and i < j and some.size:
                    yield self._count_held(nodes, i, j, [chain.prices.rows[m, j][some] for m in range(i, j + 1)])

    def _count_held(self, nodes: Sequence[OpNode], first: int, last: int, rows: Sequence[IntArray]) -> IntArray:
        """Bytes that lie on each device where a block runs, by layout, but for what stays inside."""
        inside = {name for node in nodes[first:last] for name in node.outputs}
        held = np.zeros((len(rows[0]), self.mesh.size), np.int64)
        for node, mine in zip(nodes[first : last + 1], rows, strict=True):
            for name, nbytes in self.count_traffic(node).items():
                held += 0 if name in inside else align(nbytes[mine])
        return held

    def list_joined(self, choice: Sequence[int]) -> dict[str, str]:
        """The operators that are in one block with one that they read, as chosen, each with that one."""
        return {name: self.picks[name].first for chain in self.chains for name in chain.list_joined(choice)}


def list_chains(picks: Mapping[str, Pick]) -> Iterator[list[str]]:
    """Operators that may all be one block, from the first to the last."""
    firsts = {pick.first for pick in picks.values()}
    for last in picks:
        if last not in firsts:
            chain = [last]
            while chain[-1] in picks:
                chain.append(picks[chain[-1]].first)
            yield chain[::-1]


def can_join(problem: Problem, first: OpNode, node: OpNode, operand: int) -> bool:
    """Whether the rule `fuse` takes two neighbors as they are, and leaves each axis that can be cut one that can."""
    key = "joins", problem.kind(first), operand, problem.kind(node)

    def made() -> bool:
        draft = Draft(take_out(problem.graph, [first, node]))
        return _join(draft, problem.graph, first.name, node.name) is not None

    return problem.known.fact(key, made)


def _join(draft: Draft, graph: Graph, first: str, second: str) -> Fusion | None:
    """Put two operators of a draft in one block; None where the rule refuses, or makes an axis whole."""
    one, two = draft.nodes[first], draft.nodes[second]
    ops = draft.ops[one.op], draft.ops[two.op]
    try:
        fuse.on(draft, second, operand=two.inputs.index(one.outputs[0]))
    except NotApplicable:
        return None
    ways = ([(axis.size, axis.kind, axis.parts) for axis in g.signature(second).axes] for g in (draft, graph))
    if next(ways) != next(ways):
        return None
    return Fusion.of(*ops, draft.nodes[second].attrs)


def take_out(graph: Graph, nodes: Sequence[OpNode]) -> Graph:
    """A graph of some operators, on the views that they read, of tensors that are there; its output is the last one's.

    Each but the last is read by others of them alone.
    """
    made = Graph(graph.name, graph.ops)
    for node in nodes:
        put_item(made.nodes, node.name, node)
    ours = {name for node in nodes for name in node.outputs}
    for selection in _list_views(graph, nodes):
        put_item(made.selections, selection.name, selection)
    for name in list_stored(graph, [name for node in nodes for name in node.inputs]):
        stored = graph.stored[name]
        given = stored.kind == "result" and name not in ours
        put_item(made.stored, name, replace(stored, kind="input") if given else stored)
    for name in nodes[-1].outputs:
        put_item(made.stored, name, graph.stored[name])
        put_item(made.outputs, name, name)
    return made


def _list_views(graph: Graph, nodes: Sequence[OpNode]) -> list[Selection]:
    """The selections that some operators read through."""
    found: set[str] = set()
    left = [name for node in nodes for name in node.inputs]
    while left:
        name = left.pop()
        if name in graph.selections and name not in found:
            found.add(name)
            left += graph.selections[name].inputs
    return [selection for name, selection in graph.selections.items() if name in found]


# -- prices ------------------------------------------------------------------------------------------------


def price_chain(problem: Problem, names: Sequence[str], picks: Mapping[str, Pick]) -> Chain:
    """What blocks of a chain's operators cost: worked out once for all chains of one structure."""
    nodes = [problem.graph.nodes[name] for name in names]
    operands = tuple(picks[name].operand for name in names[1:])
    read = (problem._host(list_stored(problem.graph, node.inputs)) for node in nodes)
    key = "chain", operands, *map(problem.kind, nodes), *read
    at = tuple(problem.position["operator", name] for name in names)
    return Chain(tuple(names), at, problem.known.fact(key, lambda: _price_now(problem, nodes)))


class _InOne(Struct, frozen=True):
    """An operator that is several in one, whatever its layout."""

    flop_per_point: float
    operands: int
    product: float
    """How much of its arithmetic is that of products."""


def _price_now(problem: Problem, nodes: Sequence[OpNode]) -> ChainPrices:
    places = [problem.list_blocks(node)[1] for node in nodes]
    alike = [_number_alike(mine) for mine in places]
    blocks, joined = _list_blocks(problem, nodes)
    behind = [np.full(len(mine), -1) for mine in places]
    for k in range(1, len(nodes)):
        if k in joined:
            behind[k] = _find_behind(problem, joined[k], nodes[k - 1], nodes[k], places[k - 1], places[k])
    work = [_WorkOf.of(problem, nodes, k) for k in range(len(nodes))]
    ticks: dict[tuple[int, int], IntArray] = {}
    least: dict[tuple[int, int], IntArray] = {}
    rows: dict[tuple[int, int], IntArray] = {}
    for j in range(len(nodes)):
        rows[j, j] = np.arange(len(places[j]))
        ticks[j, j] = problem.compute[problem.position["operator", nodes[j].name]]
        for i in range(j)[::-1]:
            rows[i, j] = np.where(rows[i + 1, j] >= 0, behind[i + 1][rows[i + 1, j]], -1)
            ticks[i, j] = np.full(len(places[j]), NEVER)
            some = np.flatnonzero(rows[i, j] >= 0)
            if some.size and (i, j) in blocks:
                mine = [(work[k], rows[k, j][some]) for k in range(i, j + 1)]
                ticks[i, j][some] = _count_ticks(problem, blocks[i, j], mine)
        for i in range(j + 1):
            # The last block of the best ones begins anywhere.
            ways = [ticks[i, j]]
            for m in range(i + 1, j + 1):
                before = least[i, m - 1][rows[m - 1, j]] + ticks[m, j]
                ways.append(np.where(rows[i, j] >= 0, before, NEVER))
            least[i, j] = np.minimum.reduce(ways)
    shares, begun = _share(rows, least, len(nodes))
    return ChainPrices(alike, behind, rows, ticks, least, shares, begun)


def _share(
    rows: Mapping[tuple[int, int], IntArray], least: Mapping[tuple[int, int], IntArray], count: int
) -> tuple[list[IntArray], list[IntArray]]:
    """What operators add at least to those before them, and take more at least where none of these is in the block."""
    whole: list[IntArray] = []  # from the first one that may lie together with it
    shares: list[IntArray] = []
    for j in range(count):
        first = np.full(len(rows[j, j]), j)
        for i in range(j)[::-1]:
            first[rows[i, j] >= 0] = i
        whole.append(np.choose(first, [least[i, j] for i in range(j + 1)]))
        before = np.where(rows[j - 1, j] >= 0, whole[j - 1][rows[j - 1, j]], 0) if j else 0
        shares.append(whole[j] - before)
    begun = [np.full(len(rows[j, j]), NEVER) for j in range(count)]
    for j in range(count):
        for i in range(1, j + 1):
            some = np.flatnonzero(rows[i, j] >= 0)
            mine = rows[i, j][some]
            before = np.where(rows[i - 1, j][some] >= 0, whole[i - 1][rows[i - 1, j][some]], 0)
            np.minimum.at(begun[i], mine, least[i, j][some] - (whole[j][some] - before))
    begun[0] = np.zeros_like(begun[0])
    return shares, begun


class _WorkOf(Struct, frozen=True):
    """What one of a chain's operators does, by layout and device, but for what passes inside of a block."""

    points: IntArray
    """Points of its index space."""
    nbytes: IntArray
    """Of all that it reads and writes."""
    before: IntArray
    """Of these what it reads of the one before."""
    after: IntArray
    """Of these what it writes."""
    copied: IntArray
    """Bytes that it writes anew to read views."""
    packed: IntArray
    """Bytes of operands that it packs, as a contraction."""

    @classmethod
    def of(cls, problem: Problem, nodes: Sequence[OpNode], k: int) -> _WorkOf:
        node = nodes[k]
        parts, places = problem.list_blocks(node)
        sizes = [part.size if isinstance(part, Box) else 0 for part in parts]  # of boxes alone there are blocks
        traffic, again = problem.count_traffic(node), problem.count_again(node)
        between = nodes[k - 1].outputs[0] if k else None
        copied = problem.count_copied(node)
        return cls(
            np.array([*sizes, 0], np.int64)[places],
            sum((*traffic.values(), *again.values()), np.zeros_like(copied)),
            np.zeros_like(copied) if between is None else traffic[between] + again.get(between, 0),
            sum((traffic[name] for name in node.outputs), np.zeros_like(copied)),
            copied,
            problem.count_packed(node) if problem.mesh.prices_packing else np.zeros_like(copied),
        )


def _count_ticks(problem: Problem, block: _InOne, mine: Sequence[tuple[_WorkOf, IntArray]]) -> IntArray:
    """Picoseconds of a block in some layouts, each operator's own, as the block that it is."""
    last, rows = mine[-1]
    points = last.points[rows]
    nbytes, copied, packed = (np.zeros_like(points) for _ in range(3))
    for k, (work, rows) in enumerate(mine):
        nbytes += work.nbytes[rows]
        copied += work.copied[rows]
        packed += work.packed[rows]
        if k:
            nbytes -= work.before[rows]
        if work is not last:
            nbytes -= work.after[rows]
    flop = np.float64(block.flop_per_point) * points.astype(np.float64)
    seconds = compute_seconds(
        flop,
        nbytes,
        problem.mesh,
        operands=block.operands,
        product=block.product,
        copied=copied,
        packed=packed,
    )
    return to_ticks(np.where(points == 0, 0.0, seconds).max(axis=1))


def _list_blocks(problem: Problem, nodes: Sequence[OpNode]) -> tuple[dict[tuple[int, int], _InOne], dict[int, Fusion]]:
    """The blocks that the rule makes, by their first and last operator, and how each reads the one before it."""
    blocks: dict[tuple[int, int], _InOne] = {}
    joined: dict[int, Fusion] = {}
    alone = take_out(problem.graph, nodes)
    for i in range(len(nodes) - 1):
        draft = Draft(alone)
        for j in range(i + 1, len(nodes)):
            found = _join(draft, problem.graph, nodes[j - 1].name, nodes[j].name)
            if found is None:
                break
            if j == i + 1:
                joined[j] = found
            node, signature = draft.nodes[nodes[j].name], draft.signature(nodes[j].name)
            operands = (*node.inputs, *node.outputs)
            per_point = draft.ops[node.op].flop_per_point(signature, node.attrs)
            cells = sum(prod(draft.source(name).shape) for name in operands)
            flop = per_point * signature.index.size
            product = find_product_share(draft.ops[node.op], node.attrs, signature, flop, cells)
            blocks[i, j] = _InOne(per_point, len(operands), product)
    return blocks, joined


def _number_alike(places: IntArray) -> IntArray:
    """For each layout the first one in which all devices have the same boxes."""
    seen: dict[bytes, int] = {}
    return np.array([seen.setdefault(row.tobytes(), k) for k, row in enumerate(places)], np.int64)


def _find_behind(
    problem: Problem, joined: Fusion, first: OpNode, second: OpNode, firsts: IntArray, seconds: IntArray
) -> IntArray:
    """For each layout of the second operator that of the first one which makes just what it reads, -1 for none."""
    known = {block: k for k, block in enumerate(problem.list_blocks(first)[0])}
    made = []
    for block in problem.list_blocks(second)[0]:
        if isinstance(block, Box):
            cells = joined.cells(block)  # where only padding is read, the first one has nothing to do
            made.append(-1 if cells is None else known.get(joined.made_by(cells), -2))
        else:
            made.append(-2)
    made.append(-1)  # of devices that have nothing
    wanted = np.array(made, np.int64)[seconds]
    rows: dict[bytes, int] = {}
    for k, row in enumerate(firsts):
        rows.setdefault(row.tobytes(), k)
    return np.array([rows.get(row.tobytes(), -1) for row in wanted], np.int64)
