"""What layouts need of one device's memory at every moment: tables of bytes, each with the time that it is held.

The moments of a plan are its start, when inputs and weights are placed, three for each operator, gathering what it
reads, computing, and merging partial results where they land, and the end. No device's arena is smaller than the sum of
what stands at a moment; it may be larger, as only blocks are counted that are surely separate, and gaps are not::

    moment              0     1 2 3   4 5 6    7 8 9   10
                      start   first   second   third   end
    weight of second  ─────────────────────
    what first made             ───────────────────           read by second and third
    block that second got               ───────────           if its device has not made all of it
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from tapestry_plan.ir import OpNode
from tapestry_plan.search.elimination import Factor, IntArray
from tapestry_plan.search.problem import Problem, TensorCost, Use
from tapestry_plan.steps import align, shard_of

WEIGHT = 1 << 16
"""Weights of moments are whole numbers of picoseconds for so many bytes, so that bounds are exact."""


class Holding(Struct, frozen=True):
    """Bytes by layouts of some variables, ascending, from one moment to another one, both counted."""

    scope: tuple[int, ...]
    nbytes: IntArray
    first: int
    last: int


class Memory:
    """The bytes that layouts need of a device, at least.

    Parameters
    ----------
    problem : Problem
    device : int
    """

    def __init__(self, problem: Problem, device: int = 0) -> None:
        self.problem, self.device = problem, device
        self.moments = 3 * len(problem.order) + 2
        self.holdings: list[Holding] = []
        self._run = {problem.position["operator", node.name]: k for k, node in enumerate(problem.order)}
        self._last = self._list_last()
        self._first_reads = self._count_first_reads()
        for name, stored in problem.graph.stored.items():
            if stored.kind != "result" and ("source", name) not in problem.position:
                self._add_placed(name)
        for costs in problem.made.values():
            for cost in costs:
                self._add_made(cost)
        for node in problem.order:
            self._add_work(node)

    # -- moments -----------------------------------------------------------------------------------------

    def _list_last(self) -> dict[str, int]:
        """The last moment at which each stored tensor is held."""
        graph, last = self.problem.graph, dict[str, int]()
        for k, node in enumerate(self.problem.order):
            read = (stored for name in node.inputs for stored in graph.source(name).stored)
            last.update(dict.fromkeys((*node.outputs, *read), 3 * k + 3))
        for name in graph.outputs.values():
            last.update(dict.fromkeys(graph.source(name).stored, self.moments - 1))
        return last

    def _moment(self, variable: int) -> int:
        """When a variable's work is done, or an output is placed."""
        return 3 * self._run[variable] + 2 if variable in self._run else self.moments - 1

    def _count_first_reads(self) -> dict[int, int]:
        """For each variable of how many tensors it is the first consumer."""
        counts: dict[int, int] = {}
        for costs in self.problem.made.values():
            for cost in costs:
                if cost.uses:
                    counts[cost.uses[0].variable] = counts.get(cost.uses[0].variable, 0) + 1
        return counts

    # -- holdings ----------------------------------------------------------------------------------------

    def _add(self, scope: Sequence[int], nbytes: IntArray, first: int, last: int) -> None:
        if first <= last and nbytes.any():
            order = sorted(range(len(scope)), key=scope.__getitem__)
            self.holdings.append(Holding(tuple(scope[k] for k in order), nbytes.transpose(order), first, last))

    def _add_placed(self, name: str) -> None:
        """An input or constant starts where it is read; of several readers' needs no more than the mean is certain."""
        uses = self.problem.uses[name]
        table, itemsize = self.problem.tables[name], self.problem.graph.stored[name].itemsize
        for use in uses:
            nbytes = _aligned(table.sizes(use.numbers[:, self.device]) * itemsize) // len(uses)
            self._add((use.variable,), nbytes, 0, self._last.get(name, 0))

    def _add_made(self, cost: TensorCost) -> None:
        """What a device made is held to the last read; what it has not made it gets as blocks, which are held too."""
        start = self._moment(cost.producer) if cost.producer in self._run else 0
        last = self._last.get(cost.tensor.name, start)
        made = cost.held.numbers[:, self.device]
        held = _aligned(cost.table.sizes(made) * cost.itemsizes(cost.held.parts))
        if cost.landing is None:
            self._add((cost.producer,), held, start, last)
        else:
            self._add_landing(cost, held, start, last)
        for group in cost.split():
            blocks = [self._count_block(cost, use, k in group.only_partial) for k, use in enumerate(group.uses)]
            moments = [self._moment(use.variable) for use in group.uses]
            # Readers of the same cells may share a block: at each moment the mean of those who have read is certain.
            for many, moment in enumerate(moments, 1):
                until = moments[many] - 1 if many < len(moments) else max(moment, last)
                for use, block in zip(group.uses[:many], blocks, strict=False):
                    self._add(self._scope(cost, use), block // many, moment, until)
        if cost.uses and self._count_reads(cost, cost.uses[0]) == 1 and (cost.held.parts > 1).any():
            self._add_gathered(cost, cost.uses[0])

    def _scope(self, cost: TensorCost, use: Use) -> tuple[int, ...]:
        places = (cost.landing.variable,) if cost.landing else ()
        return (cost.producer, *places, use.variable)

    def _count_reads(self, cost: TensorCost, use: Use) -> int:
        """How many operands of a consumer read a tensor; 0 for an output."""
        if use.variable not in self._run:
            return 0
        graph, node = self.problem.graph, self.problem.order[self._run[use.variable]]
        return sum(cost.tensor.name in graph.source(name).stored for name in node.inputs)

    def _lands(self, cost: TensorCost) -> NDArray[np.bool_]:
        """Whether a tensor is merged in a place of its own, by layout of its producer and landing."""
        assert cost.landing is not None, "it may land"
        merges: NDArray[np.bool_] = np.any(cost.table.sizes(cost.landing.numbers) > 0, axis=1)
        return (cost.held.parts[:, None] > 1) & merges[None, :]

    def _add_landing(self, cost: TensorCost, held: IntArray, start: int, last: int) -> None:
        """Partial results are held until they are merged where they land; the merged cells lie there from then on."""
        assert cost.landing is not None, "it may land"
        lands, scope = self._lands(cost), (cost.producer, cost.landing.variable)
        merged = _aligned(cost.table.sizes(cost.landing.numbers[:, self.device]) * cost.tensor.itemsize)
        self._add((cost.producer,), held, start, min(start + 1, last))
        self._add(scope, np.where(lands, self._count_parts(cost, cost.landing), 0), start + 1, min(start + 1, last))
        self._add(scope, np.where(lands, merged[None, :], held[:, None]), start + 2, last)

    def _count_parts(self, cost: TensorCost, use: Use) -> IntArray:
        """Bytes of the parts of others and of the block that is made of them, while they are merged for a consumer."""
        made, need = cost.held.numbers[:, self.device], use.numbers[:, self.device]
        cells, mine = cost.table.sizes(need)[None, :], cost.table.sizes(made[:, None], need[None, :])
        others = cost.held.parts[:, None] - (mine == cells)
        total: IntArray = others * _aligned(cells * cost.part_itemsize) + _aligned(cells * cost.tensor.itemsize)
        return total

    def _add_gathered(self, cost: TensorCost, use: Use) -> None:
        """While the first consumer gathers, the partial results of others lie beside the block that they make."""
        nbytes = np.where(cost.held.parts[:, None] > 1, self._count_parts(cost, use), 0)
        if cost.landing is not None:
            nbytes = np.where(self._lands(cost)[:, :, None], 0, nbytes[:, None, :])
        moment = self._moment(use.variable) - 1
        self._add(self._scope(cost, use), nbytes // self._first_reads[use.variable], moment, moment)

    def _count_block(self, cost: TensorCost, use: Use, only_partial: bool) -> IntArray:
        """Bytes of the block with what a consumer needs, by layouts, where its device does not hold all of it."""
        need, single = use.numbers[:, self.device], self._count_reads(cost, use) <= 1
        cells = cost.table.sizes(need)[None, :]

        def lacked(held: IntArray) -> IntArray:
            # Of two operands one may read what the device holds: only what it does not is surely in another block.
            mine = cost.table.sizes(held[:, None], need[None, :])
            return np.where((mine < cells) & (not only_partial), cells if single else cells - mine, 0)

        out = np.where(cost.held.parts[:, None] > 1, cells, lacked(cost.held.numbers[:, self.device]))
        if cost.landing is not None:
            there = lacked(cost.landing.numbers[:, self.device])
            out = np.where(self._lands(cost)[:, :, None], there[None, :, :], out[:, None, :])
        return _aligned(out * cost.tensor.itemsize)

    def _add_work(self, node: OpNode) -> None:
        """Blocks that are read through views are copies of their own; and there is an operator's workspace."""
        problem, at = self.problem, self.problem.position["operator", node.name]
        layouts = problem.variables[at].layouts

        def count() -> IntArray:
            graph, signature = problem.graph, problem.graph.signature(node.name)
            sources = [graph.source(name) for name in node.inputs]
            out = np.zeros(len(layouts), np.int64)
            for row, layout in enumerate(layouts):
                index = layout.boxes[self.device]
                if index is not None:
                    itemsize = graph.stored[node.outputs[0]].itemsize
                    out[row] = align(graph.ops[node.op].workspace(shard_of(graph, node, index), itemsize))
                    for k, source in enumerate(sources):
                        box = None if source.direct else signature.input_box(k, index)
                        if box is not None:
                            out[row] += align(prod(box.shape) * np.dtype(source.dtype).itemsize)
            return out

        nbytes = problem.known.fact(("work", problem.kind(node), self.device), count)
        self._add((at,), nbytes, self._moment(at), self._moment(at))

    # -- questions ---------------------------------------------------------------------------------------

    def restrict(self, kept: Sequence[IntArray]) -> Memory:
        """The same over some layouts of each variable."""
        made = object.__new__(Memory)
        made.__dict__.update(self.__dict__)
        made.holdings = [
            Holding(h.scope, h.nbytes[np.ix_(*(kept[v] for v in h.scope))], h.first, h.last) for h in self.holdings
        ]
        return made

    def count(self, choice: Sequence[int]) -> IntArray:
        """Bytes at every moment, as chosen: no arena is smaller than the most of them."""
        return self._sum([int(h.nbytes[tuple(choice[v] for v in h.scope)]) for h in self.holdings])

    def count_least(self) -> IntArray:
        """Bytes at every moment, whatever is chosen."""
        return self._sum([int(h.nbytes.min()) for h in self.holdings])

    def _sum(self, nbytes: Sequence[int]) -> IntArray:
        change = np.zeros(self.moments + 1, np.int64)
        for holding, n in zip(self.holdings, nbytes, strict=True):
            change[holding.first] += n
            change[holding.last + 1] -= n
        total: IntArray = np.cumsum(change)[:-1]
        return total

    def weigh(self, weights: IntArray) -> list[Factor]:
        """The sum over moments of bytes times weights / `WEIGHT`, rounded down, as tables in place of picoseconds."""
        before = np.concatenate([[0], np.cumsum(weights)])
        by_scope: dict[tuple[int, ...], IntArray] = {}
        for holding in self.holdings:
            weight = int(before[holding.last + 1] - before[holding.first])
            if weight:
                weighed = holding.nbytes * weight // WEIGHT
                by_scope[holding.scope] = by_scope[holding.scope] + weighed if holding.scope in by_scope else weighed
        return [Factor(scope, ticks, np.zeros_like(ticks)) for scope, ticks in by_scope.items()]


def _aligned(nbytes: IntArray) -> IntArray:
    return -(-nbytes // align(1)) * align(1)
