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

from collections.abc import Callable, Sequence
from copy import copy
from functools import partial
from math import prod

import numpy as np
from msgspec import Struct

from tapestry_plan.ir import OpNode
from tapestry_plan.search import tuning
from tapestry_plan.search.prices.cost import RegionTable
from tapestry_plan.search.prices.problem import Problem, TensorCost, Use
from tapestry_plan.search.sums.elimination import Factor, IntArray
from tapestry_plan.search.sums.frontier import WEIGHT, Row
from tapestry_plan.steps import align, shard_of


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
    taken : int
        Bytes that are held at every moment beside: what a device has less than the one with the most memory.
    """

    def __init__(self, problem: Problem, device: int = 0, taken: int = 0) -> None:
        self.problem, self.device = problem, device
        self.moments = 3 * len(problem.order) + 2
        self.holdings: list[Holding] = []
        self._run = {problem.position["operator", node.name]: k for k, node in enumerate(problem.order)}
        self._last = self._list_last()
        self._first_reads = self._count_first_reads()
        self._add_all()
        if taken and problem.sizes:
            self._add((0,), np.full(problem.sizes[0], taken), 0, self.moments - 1)
        self._leave_out_moments()

    def _add_all(self) -> None:
        """All that the device holds."""
        for name, stored in self.problem.graph.stored.items():
            if stored.kind != "result" and ("source", name) not in self.problem.position:
                self._add_placed(name)
        for costs in self.problem.made.values():
            for cost in costs:
                self._add_made(cost)
        for node in self.problem.order:
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

    def _leave_out_moments(self) -> None:
        """Number again the moments that hold something which no moment beside them holds together with all else.

        What is held at the others is held at one of these too, whatever is chosen.
        """
        begins, ends = {h.first for h in self.holdings}, {h.last for h in self.holdings}
        most: list[int] = []
        grows = True
        for moment in range(self.moments):
            grows = grows or moment in begins
            if grows and moment in ends:
                most.append(moment)
                grows = False
        most = most or [0]  # nothing is held
        first = np.searchsorted(most, np.arange(self.moments))
        last = np.searchsorted(most, np.arange(self.moments), side="right") - 1
        self.holdings = [Holding(h.scope, h.nbytes, int(first[h.first]), int(last[h.last])) for h in self.holdings]
        self.moments = len(most)

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
        if first <= last:
            order = sorted(range(len(scope)), key=scope.__getitem__)
            known = self.problem.known

            def shared() -> IntArray | None:
                return known.share(nbytes.transpose(order)) if nbytes.any() else None

            held = known.fact(("bytes", known.identity(nbytes), *order), shared)
            if held is not None:
                self.holdings.append(Holding(tuple(scope[k] for k in order), held, first, last))

    def _known(
        self, what: str, cost: TensorCost, uses: Sequence[Use], make: Callable[[], IntArray], *more: int
    ) -> IntArray:
        """Bytes by layouts of who makes a tensor, where it lands, and who reads it: worked out once for alike ones."""
        landing = id(cost.landing.numbers) if cost.landing else 0
        key = what, self.device, *cost.structure, landing, *(id(use.numbers) for use in uses), *more
        return self.problem.known.fact(key, make)

    def _add_placed(self, name: str) -> None:
        """An input or constant starts where it is read: who reads what none before him does has a block of it."""
        uses, last = self.problem.uses[name], self._last.get(name, 0)
        table, itemsize = self.problem.tables[name], self.problem.graph.stored[name].itemsize
        fact = self.problem.known.fact
        blocks = [
            fact(
                ("read bytes", self.device, table.shape, itemsize, id(use.numbers)),
                partial(self._count_read, table, use, itemsize),
            )
            for use in uses
        ]
        single = [self._count_reads(name, use) <= 1 for use in uses]
        fresh = self._count_fresh(table, itemsize, (), uses, blocks, single)
        for k, use in enumerate(uses):
            if fresh is not None:
                self._add([one.variable for one in uses[: k + 1]], fresh[k], 0, last)
            else:  # the mean of what they read is certain
                self._add((use.variable,), self.problem.known.share(blocks[k] // len(uses)), 0, last)

    def _count_read(self, table: RegionTable, use: Use, itemsize: int) -> IntArray:
        return _aligned(table.sizes(use.numbers[:, self.device]) * itemsize)

    def _add_made(self, cost: TensorCost) -> None:
        """What a device made is held to the last read; what it has not made it gets as blocks, which are held too."""
        if cost.producer not in self._run and not cost.uses:
            return  # what nobody reads is not placed
        start = self._moment(cost.producer) if cost.producer in self._run else 0
        last = self._last.get(cost.tensor.name, start)
        held = self._known("held bytes", cost, [], partial(self._count_held, cost))
        if cost.landing is None:
            self._add((cost.producer,), held, start, last)
        else:
            self._add_landing(cost, held, start, last)
        for group in cost.split():
            blocks = [self._count_block(cost, use, k in group.only_partial) for k, use in enumerate(group.uses)]
            moments = [self._moment(use.variable) for use in group.uses]
            by = self._scope(cost)
            single = [self._count_reads(cost.tensor.name, use) <= 1 for use in group.uses]
            fresh = self._count_fresh(cost.table, cost.tensor.itemsize, by, group.uses, blocks, single)
            for k, (use, moment) in enumerate(zip(group.uses, moments, strict=True)):
                if fresh is not None:
                    scope = *by, *(one.variable for one in group.uses[: k + 1])
                    self._add(scope, fresh[k], moment, max(moment, last))
                    continue
                # Readers may share a block: at each moment the mean of those who have read is certain.
                until = moments[k + 1] - 1 if k + 1 < len(moments) else max(moment, last)
                for use, block in zip(group.uses[: k + 1], blocks, strict=False):
                    self._add((*by, use.variable), self.problem.known.share(block // (k + 1)), moment, until)
        if cost.uses and self._count_reads(cost.tensor.name, cost.uses[0]) == 1 and (cost.held.parts > 1).any():
            self._add_gathered(cost, cost.uses[0])

    def _count_held(self, cost: TensorCost) -> IntArray:
        return _aligned(cost.table.sizes(cost.held.numbers[:, self.device]) * cost.itemsizes(cost.held.parts))

    def _scope(self, cost: TensorCost) -> tuple[int, ...]:
        return (cost.producer, cost.landing.variable) if cost.landing else (cost.producer,)

    def _count_reads(self, name: str, use: Use) -> int:
        """How many operands of a consumer read a tensor; 0 for an output."""
        if use.variable not in self._run:
            return 0
        graph, node = self.problem.graph, self.problem.order[self._run[use.variable]]
        return sum(name in graph.source(operand).stored for operand in node.inputs)

    def _count_fresh(
        self,
        table: RegionTable,
        itemsize: int,
        made: Sequence[int],
        uses: Sequence[Use],
        blocks: Sequence[IntArray],
        single: Sequence[bool],
    ) -> list[IntArray] | None:
        """Of blocks that consumers have one after the other, what is not in one before, by layouts of all so far.

        Given are the tables of blocks, by layouts of what made the tensor and of the consumer. None where a table would
        be too large.
        """
        variables = [*made, *(use.variable for use in uses)]
        if prod(self.problem.sizes[v] for v in variables) > tuning.MAX_HELD_ENTRIES or len(set(variables)) < len(
            variables
        ):
            return None if len(uses) > 1 else list(blocks)
        key = "fresh", self.device, table.shape, itemsize, *map(id, blocks), *(id(use.numbers) for use in uses), *single
        # The blocks are kept with what is found, so that no other ones have their ids.
        return self.problem.known.fact(
            key,
            lambda: (
                [
                    self._find_fresh(table, itemsize, len(made), uses[: k + 1], blocks[k], single[k])
                    for k in range(len(uses))
                ],
                blocks,
            ),
        )[0]

    def _find_fresh(
        self, table: RegionTable, itemsize: int, many: int, uses: Sequence[Use], block: IntArray, single: bool
    ) -> IntArray:
        *before, last = uses
        need = last.numbers[:, self.device]
        left = np.expand_dims(block, tuple(range(many, many + len(before))))
        for k, use in enumerate(before):
            seen = use.numbers[:, self.device]
            both = table.sizes(seen[:, None], need[None, :])
            # A block that has all of it serves as it is, else there is another one; of two operands that read through
            # different ones only cells that nobody read before are certain.
            if single:
                left = left * np.expand_dims(both < table.sizes(need), _beside(many, k, len(before)))
            else:
                left = left - np.expand_dims(_aligned(both * itemsize), _beside(many, k, len(before)))
        return np.maximum(left, 0)

    def _add_landing(self, cost: TensorCost, held: IntArray, start: int, last: int) -> None:
        """Partial results are held until they are merged where they land; the merged cells lie there from then on.

        What is complete is held to the end beside what lands, of which a device that has all of it takes no block.
        """
        assert cost.landing is not None, "it may land"
        landing, scope = cost.landing, (cost.producer, cost.landing.variable)
        # What is given lands just before it is read, what is made when it has been made.
        first = min((self._moment(use.variable) for use in cost.uses), default=last)
        at = start + 1 if cost.producer in self._run else min(first - 1, last)

        def count_more() -> IntArray:
            cells = cost.table.sizes(landing.numbers[:, self.device])
            mine = cost.table.sizes(cost.held.numbers[:, self.device, None], landing.numbers[None, :, self.device])
            return np.where(mine < cells, _aligned(cells * cost.tensor.itemsize), 0)

        def count_landing() -> IntArray:
            more = np.where(cost.held.parts[:, None] > 1, self._count_parts(cost, landing), count_more())
            return np.where(cost.lands, more, 0)

        def count_after() -> IntArray:
            merged = _aligned(cost.table.sizes(landing.numbers[:, self.device]) * cost.tensor.itemsize)
            after = np.where(cost.held.parts[:, None] > 1, merged[None, :], held[:, None] + count_more())
            return np.where(cost.lands, after, held[:, None])

        self._add((cost.producer,), held, start, min(at, last))
        self._add(scope, self._known("landing", cost, [], count_landing), at, min(at, last))
        self._add(scope, self._known("landed", cost, [], count_after), at + 1, last)

    def _count_parts(self, cost: TensorCost, use: Use) -> IntArray:
        """Bytes of the parts of others and of the block that is made of them, while they are merged for a consumer."""
        made, need = cost.held.numbers[:, self.device], use.numbers[:, self.device]
        cells, mine = cost.table.sizes(need)[None, :], cost.table.sizes(made[:, None], need[None, :])
        others = cost.held.parts[:, None] - (mine == cells)
        total: IntArray = others * _aligned(cells * cost.part_itemsize) + _aligned(cells * cost.tensor.itemsize)
        return total

    def _add_gathered(self, cost: TensorCost, use: Use) -> None:
        """While the first consumer gathers, the partial results of others lie beside the block that they make."""
        many, moment = self._first_reads[use.variable], self._moment(use.variable) - 1

        def count() -> IntArray:
            nbytes = np.where(cost.held.parts[:, None] > 1, self._count_parts(cost, use), 0)
            if cost.landing is not None:
                nbytes = np.where(cost.lands[:, :, None], 0, nbytes[:, None, :])
            mean: IntArray = nbytes // many
            return mean

        self._add((*self._scope(cost), use.variable), self._known("gathered", cost, [use], count, many), moment, moment)

    def _count_block(self, cost: TensorCost, use: Use, only_partial: bool) -> IntArray:
        """Bytes of the block with what a consumer needs, by layouts, where its device does not hold all of it."""
        single = self._count_reads(cost.tensor.name, use) <= 1

        def count() -> IntArray:
            return self._count_block_now(cost, use, only_partial, single)

        return self._known("block", cost, [use], count, only_partial, single)

    def _count_block_now(self, cost: TensorCost, use: Use, only_partial: bool, single: bool) -> IntArray:
        need = use.numbers[:, self.device]
        cells = cost.table.sizes(need)[None, :]

        def lacked(held: IntArray) -> IntArray:
            # Of two operands one may read what the device holds: only what it does not is surely in another block.
            mine = cost.table.sizes(held[:, None], need[None, :])
            return np.where((mine < cells) & (not only_partial), cells if single else cells - mine, 0)

        out = np.where(cost.held.parts[:, None] > 1, cells, lacked(cost.held.numbers[:, self.device]))
        if cost.landing is not None:
            there = lacked(cost.landing.numbers[:, self.device])[None, :, :]
            both = np.minimum(out[:, None, :], there)
            if not single:
                mine = cells - lacked(cost.held.numbers[:, self.device])
                both = np.maximum(there - mine[:, None, :], 0)
            after = np.where(cost.held.parts[:, None, None] > 1, there, both)
            out = np.where(cost.lands[:, :, None], after, out[:, None, :])
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
        share, cut = self.problem.known.share, dict[tuple[int, ...], IntArray]()
        kept = [share(values) for values in kept]
        made = copy(self)
        made.holdings = []
        for h in self.holdings:
            key = id(h.nbytes), *(id(kept[v]) for v in h.scope)
            if key not in cut:
                cut[key] = share(h.nbytes[np.ix_(*(kept[v] for v in h.scope))])
            made.holdings.append(Holding(h.scope, cut[key], h.first, h.last))
        return made

    def count(self, choice: Sequence[int]) -> IntArray:
        """Bytes at every moment, as chosen: no arena is smaller than the most of them."""
        return self._sum([int(h.nbytes[tuple(choice[v] for v in h.scope)]) for h in self.holdings])

    def count_least(self) -> IntArray:
        """Bytes at every moment, whatever is chosen."""
        return self._sum([int(h.nbytes.min()) for h in self.holdings])

    def count_most(self) -> IntArray:
        """Bytes at every moment that no choice exceeds."""
        return self._sum([int(h.nbytes.max()) for h in self.holdings])

    def _sum(self, nbytes: Sequence[int]) -> IntArray:
        change = np.zeros(self.moments + 1, np.int64)
        for holding, n in zip(self.holdings, nbytes, strict=True):
            change[holding.first] += n
            change[holding.last + 1] -= n
        total: IntArray = np.cumsum(change)[:-1]
        return total

    def list_row(self, moment: int, weight: int) -> Row:
        """The bytes at a moment."""
        held = [h for h in self.holdings if h.first <= moment <= h.last]
        return Row([Factor(h.scope, h.nbytes, h.nbytes) for h in held], weight)

    def weigh(self, weights: IntArray) -> list[Factor]:
        """The sum over moments of bytes times weights / `WEIGHT`, rounded down, as tables in place of picoseconds."""
        before = np.concatenate([[0], np.cumsum(weights)])
        weighed: dict[tuple[int, ...], dict[int, int]] = {}
        for number, holding in enumerate(self.holdings):
            weight = int(before[holding.last + 1] - before[holding.first])
            if weight:
                weighed.setdefault(holding.scope, {})[number] = weight
        # Where the same bytes are weighed alike there is one table, so that elimination goes through it once.
        tables: dict[tuple[tuple[int, int], ...], tuple[IntArray, IntArray]] = {}
        factors = []
        for scope, mine in weighed.items():
            key = tuple((id(self.holdings[number].nbytes), weight) for number, weight in mine.items())
            if key not in tables:
                each = [self.holdings[number].nbytes * weight // WEIGHT for number, weight in mine.items()]
                tables[key] = sum(each[1:], each[0]), np.zeros_like(each[0])
            factors.append(Factor(scope, *tables[key]))
        return factors


class MemoryOfMany(Memory):
    """The bytes that layouts need of many devices: of each block the mean, or what the fullest of them has.

    Where a device may be idle it may need nothing, as all lies on others. The mean of some devices is no more than the
    fullest of them needs, whatever the layouts; what each block takes where it takes most is enough for any.

    Parameters
    ----------
    problem : Problem
    is_mean : bool
    """

    def __init__(self, problem: Problem, *, is_mean: bool) -> None:
        self.is_mean = is_mean
        self.devices = range(0, problem.mesh.size, -(-problem.mesh.size // tuning.MAX_MEMORY_DEVICES))
        super().__init__(problem)

    def _add_all(self) -> None:
        found: dict[tuple[tuple[int, ...], int, int], IntArray] = {}
        mine: dict[tuple[tuple[int, ...], int, int], IntArray]
        for device in self.devices:
            self.device, self.holdings, mine = device, [], {}
            super()._add_all()
            for h in self.holdings:
                key = h.scope, h.first, h.last
                mine[key] = mine[key] + h.nbytes if key in mine else h.nbytes
            for key, nbytes in mine.items():
                before = found.get(key, np.zeros_like(nbytes))
                found[key] = before + nbytes if self.is_mean else np.maximum(before, nbytes)
        share = self.problem.known.share
        many = len(self.devices) if self.is_mean else 1
        self.holdings = [Holding(scope, share(n // many), first, last) for (scope, first, last), n in found.items()]


def _beside(many: int, k: int, before: int) -> tuple[int, ...]:
    """The axes of a table, but for those of a consumer before the last one and of the last one."""
    return tuple(axis for axis in range(many + before) if axis != many + k)


def _aligned(nbytes: IntArray) -> IntArray:
    return -(-nbytes // align(1)) * align(1)
