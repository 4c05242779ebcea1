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

from bisect import bisect
from collections.abc import Iterator, Sequence
from copy import copy
from functools import partial
from itertools import accumulate
from math import prod

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from tapestry_plan.ir import OpNode
from tapestry_plan.search import tuning
from tapestry_plan.search.prices.costs import Problem, TensorCost
from tapestry_plan.search.prices.moves import RegionTable
from tapestry_plan.search.sums.elimination import Factor, IntArray
from tapestry_plan.search.sums.frontier import WEIGHT, Row
from tapestry_plan.steps import Layout, align, find_strided, shard_of


class Holding(Struct, frozen=True):
    """Bytes by layouts of some variables, ascending, from one moment to another one, both counted."""

    scope: tuple[int, ...]
    nbytes: IntArray
    first: int
    last: int


class BoxesOfCells(Struct, frozen=True, eq=False):
    """The blocks in which a device has cells of a tensor, by layout of who holds or reads them.

    Parameters
    ----------
    cells : array of int64, (layouts,)
        Region numbers.
    nbytes : array of int64, (layouts,)
        Of the box around them, in whole cache lines; 0 where there is no block.
    low, high : array of int64, (layouts, rank)
        The box.
    fill : array of int64, (layouts,)
        Which value is outside of the tensor; 0 where the box is inside.
    """

    cells: IntArray
    nbytes: IntArray
    low: IntArray
    high: IntArray
    fill: IntArray


class BlockAsked(Struct, frozen=True):
    """A block that a variable's layouts ask for, at a moment."""

    variable: int
    blocks: BoxesOfCells
    moment: int


Table = tuple[tuple[int, ...], IntArray]
"""A table over some variables."""


class Got(Struct, frozen=True):
    """A block that a device gets for a reading: a product of tables, which is 0 where an earlier block has all of it.

    Parameters
    ----------
    parts : list of Table
        The first is the bytes of the block, where the device has not made all of it; others are 0 or 1.
    moment : int
    """

    parts: list[Table]
    moment: int


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
        self.problem, self.device, self.sizes = problem, device, list(problem.sizes)
        self.holdings: list[Holding] = []
        self.shared: list[tuple[list[Got], int]] = []
        """Blocks that readers share, in tables that would be too large, and their last moment."""
        self.exact = 0
        """How many holdings are not of these."""
        self._run = {problem.position["operator", node.name]: k for k, node in enumerate(problem.order)}
        self._number_moments()
        self._last = self._list_last()
        self._add_all()
        if taken and problem.sizes:
            self._add((0,), np.full(problem.sizes[0], taken), 0, self.moments - 1)
        self._leave_out_moments()
        self._add_means()

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

    def _number_moments(self) -> None:
        """A moment for the start, for each operand that may be merged of parts, computing, landing, and each output."""
        in_parts = {cost.tensor.name for cost in self._costs() if (cost.held.parts > 1).any()}
        graph, now = self.problem.graph, 1
        self._gathers: dict[tuple[int, int, str], int] = {}
        """When an operand's block of a stored tensor is there, by variable and operand."""
        self._views: dict[tuple[int, int], int] = {}
        """When the block of a view is."""
        self._works: dict[int, int] = {}
        for node in self.problem.order:
            at = self.problem.position["operator", node.name]
            for operand, name in enumerate(node.inputs):
                for stored in graph.source(name).stored:
                    self._gathers[at, operand, stored] = now
                    now += stored in in_parts
                self._views[at, operand] = now
            self._works[at] = now
            now += 2
        self._outputs: dict[str, int] = {}
        for name in dict.fromkeys(s for out in graph.outputs.values() for s in graph.source(out).stored):
            self._outputs[name] = now
            now += 1
        self.moments = now + 1

    def _costs(self) -> Iterator[TensorCost]:
        return (cost for costs in self.problem.made.values() for cost in costs)

    def _list_last(self) -> dict[str, int]:
        """The last moment at which each stored tensor is held."""
        graph, last = self.problem.graph, dict[str, int]()
        for node in self.problem.order:
            read = (stored for name in node.inputs for stored in graph.source(name).stored)
            landed = self._works[self.problem.position["operator", node.name]] + 1
            last.update(dict.fromkeys((*node.outputs, *read), landed))
        for name in graph.outputs.values():
            last.update(dict.fromkeys(graph.source(name).stored, self.moments - 1))
        return last

    def _leave_out_moments(self) -> None:
        """Number again the moments that hold something which no moment beside them holds together with all else.

        What is held at the others is held at one of these too, whatever is chosen.
        """
        stays = [(h.first, h.last) for h in self.holdings]
        stays += [(got.moment, last) for group, last in self.shared for got in group]
        begins, ends = {first for first, _ in stays}, {last for _, last in stays}
        most: list[int] = []
        grows = True
        for moment in range(self.moments):
            grows = grows or moment in begins
            if grows and moment in ends:
                most.append(moment)
                grows = False
        most = most or [0]  # nothing is held
        first = np.searchsorted(most, np.arange(self.moments)).tolist()
        last = (np.searchsorted(most, np.arange(self.moments), side="right") - 1).tolist()
        self.holdings = [Holding(h.scope, h.nbytes, first[h.first], last[h.last]) for h in self.holdings]
        self.shared = [([Got(g.parts, first[g.moment]) for g in group], last[end]) for group, end in self.shared]
        self.moments = len(most)

    # -- blocks ------------------------------------------------------------------------------------------

    def _list_readings(self, name: str) -> list[BlockAsked]:
        """The blocks of a stored tensor that are read, one after the other."""
        problem, out = self.problem, []
        for use in problem.uses[name]:
            if use.variable not in self._run:
                place = problem.variables[use.variable]
                moment = self._outputs.get(name, self.moments - 1)
                out.append(BlockAsked(use.variable, self._block(name, use.numbers, place.layouts), moment))
                continue
            node = problem.order[self._run[use.variable]]
            reading = [k for k, read in enumerate(node.inputs) if name in problem.graph.source(read).stored]
            numbers = problem.number_apart(node, name) or (use.numbers,)
            for operand, mine in zip(reading, numbers, strict=True):
                blocks = self._block_of_operand(node, operand, name, mine)
                out.append(BlockAsked(use.variable, blocks, self._gathers[use.variable, operand, name]))
        return out

    def _block(self, name: str, numbers: IntArray, layouts: Sequence[Layout], itemsize: int = 0) -> BoxesOfCells:
        """The boxes around regions by (layout, device) of a stored tensor, on this device."""
        known, table = self.problem.known, self.problem.tables[name]
        itemsize = itemsize or self.problem.graph.stored[name].itemsize
        split = known.share(np.array([bool(layout.digits) for layout in layouts]))
        key = "boxes", self.device, table.shape, itemsize, known.identity(numbers), known.identity(split)
        return known.fact(key, lambda: self._find_boxes(table, numbers[:, self.device], split, itemsize))

    def _find_boxes(self, table: RegionTable, cells: IntArray, split: IntArray, itemsize: int) -> BoxesOfCells:
        found, at = np.unique(cells, return_inverse=True)
        bounds = [table.regions[n].bounds() or ((0,) * len(table.shape),) * 2 for n in found.tolist()]
        low, high = np.array(bounds, np.int64).reshape(len(found), 2, -1)[at].swapaxes(0, 1)
        many = np.where(split, table.sizes(cells), np.where(table.sizes(cells) > 0, np.prod(high - low, axis=1), 0))
        return BoxesOfCells(cells, _aligned(many * itemsize), low, high, np.zeros_like(cells))

    def _block_of_operand(self, node: OpNode, operand: int, name: str, numbers: IntArray) -> BoxesOfCells:
        """The same of an operand's blocks, which reach outside of the tensor where they are padded."""
        problem, signature = self.problem, self.problem.graph.signature(node.name)
        layouts = problem.variables[problem.position["operator", node.name]].layouts
        inside = self._block(name, numbers, layouts)
        pad = signature.inputs[operand].pad
        if pad is None or not problem.graph.source(node.inputs[operand]).direct or any(one.digits for one in layouts):
            return inside

        def made() -> BoxesOfCells:
            boxes = {index: signature.input_box(operand, index) if index else None for index in indices}
            low, high = inside.low.copy(), inside.high.copy()
            for row, index in enumerate(indices):
                if (box := boxes[index]) is not None:
                    low[row], high[row] = box.start, box.stop
            stored = problem.graph.stored[name]
            outside = (low < 0).any(axis=1) | (high > np.array(stored.shape)).any(axis=1)
            nbytes = _aligned(np.prod(high - low, axis=1) * stored.itemsize)
            return BoxesOfCells(
                inside.cells, nbytes, low, high, np.where(outside, 1 + problem.known.key(("pad", pad)), 0)
            )

        indices = [layout.boxes[self.device] for layout in layouts]
        return problem.known.fact(("padded", self.device, problem.kind(node), operand), made)

    def _find_serving(self, table: RegionTable, one: BoxesOfCells, two: BoxesOfCells) -> NDArray[np.bool_]:
        """Whether a block of one has all that a block of two needs, by layouts of both: then it serves as it is."""

        def made() -> NDArray[np.bool_]:
            within: NDArray[np.bool_] = one.nbytes[:, None] > 0
            for axis in range(two.low.shape[1]):
                within = within & (one.low[:, None, axis] <= two.low[:, axis])
                within &= one.high[:, None, axis] >= two.high[:, axis]
            within = within & ((two.fill == 0) | (one.fill[:, None] == two.fill))
            if within.any():
                within &= table.sizes(one.cells[:, None], two.cells[None, :]) == table.sizes(two.cells)
            return within

        known = self.problem.known
        return known.fact(("serves", table.shape, known.identity(one), known.identity(two)), made)

    def _list_others(self, which: NDArray[np.bool_]) -> IntArray:
        """1 where something does not hold, else 0: one object for one table."""
        known = self.problem.known
        return known.fact(("others", known.identity(which)), lambda: 1 - which)

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

    def _add_placed(self, name: str) -> None:
        """An input or constant starts where it is read: who reads what none before him does has a block of it."""
        readings, table = self._list_readings(name), self.problem.tables[name]
        fresh = [((one.variable,), one.blocks.nbytes) for one in readings]
        self._add_blocks(
            table, [BlockAsked(one.variable, one.blocks, 0) for one in readings], fresh, self._last.get(name, 0)
        )

    def _add_made(self, cost: TensorCost) -> None:
        """What a device made is held to the last read; what it has not made it gets as blocks, which are held too."""
        name, problem = cost.tensor.name, self.problem
        if cost.producer not in self._run and not cost.uses:
            return  # what nobody reads is not placed
        start = self._works.get(cost.producer, 0)
        last = self._last.get(name, start)
        layouts = problem.variables[cost.producer].layouts
        whole, parts = (
            self._block(name, cost.held.numbers, layouts, size) for size in (cost.tensor.itemsize, cost.part_itemsize)
        )
        is_parts = cost.held.parts > 1
        held = problem.known.share(np.where(is_parts, parts.nbytes, whole.nbytes))
        landed = None
        if cost.landing is None:
            self._add((cost.producer,), held, start, last)
        else:
            landed = self._block(name, cost.landing.numbers, problem.variables[cost.landing.variable].layouts)
            self._add_landing(cost, held, whole, landed, start, last)
        readings, fresh = self._list_readings(name), list[Table]()
        alone = {problem.uses[name][k].variable for k in cost.only_partial}
        for one in readings:
            found = self._find_fresh(cost, whole, landed, one, is_alone=one.variable in alone)
            fresh.append(((*self._scope(cost), one.variable), found))
        self._add_blocks(cost.table, readings, fresh, last)
        if is_parts.any():
            for k, one in enumerate(readings):
                self._add_parts(cost, whole, readings[:k], one)

    def _scope(self, cost: TensorCost) -> tuple[int, ...]:
        return (cost.producer, cost.landing.variable) if cost.landing else (cost.producer,)

    def _find_fresh(
        self, cost: TensorCost, whole: BoxesOfCells, landed: BoxesOfCells | None, one: BlockAsked, *, is_alone: bool
    ) -> IntArray:
        """Bytes of a reading's block where its device has not made all of it, by layouts of the tensor and the reading.

        Given are what the device made, where it landed, and whether only what is in parts is read.
        """

        def made() -> IntArray:
            is_parts = cost.held.parts[:, None] > 1
            lacks = ~self._find_serving(cost.table, whole, one.blocks)
            out = np.where(is_parts | (lacks & (not is_alone)), one.blocks.nbytes, 0)
            if landed is None:
                return out
            there = np.where(self._find_serving(cost.table, landed, one.blocks), 0, one.blocks.nbytes) * (not is_alone)
            after = np.where(is_parts[:, None], there, np.minimum(out[:, None], there))
            return np.where(cost.lands[:, :, None], after, out[:, None])

        known = self.problem.known
        own = *cost.structure, known.identity(landed), known.identity(one.blocks), is_alone
        return known.fact(("fresh", self.device, *own), made)

    def _add_blocks(
        self, table: RegionTable, readings: Sequence[BlockAsked], fresh: Sequence[Table], last: int
    ) -> None:
        """A block for each reading that no earlier one serves; those of readings that never serve each other apart."""
        groups: list[list[int]] = []
        got = []
        for k, one in enumerate(readings):
            parts, near = [fresh[k]], []
            for j, before in enumerate(readings[:k]):
                serves = self._find_serving(table, before.blocks, one.blocks)
                if serves.any():
                    parts.append(((before.variable, one.variable), self._list_others(serves)))
                    near.append(j)
            got.append(Got(parts, one.moment))
            groups, mine = [g for g in groups if not set(g) & set(near)], [g for g in groups if set(g) & set(near)]
            groups.append([*(j for g in mine for j in g), k])
        for group in groups:
            self._add_group([got[k] for k in sorted(group)], last)

    def _add_group(self, group: list[Got], last: int) -> None:
        """Blocks that may serve for each other: jointly, unless that takes too large a table."""
        tables = [self._multiply(got.parts) for got in group]
        if all(tables):
            for got, (scope, nbytes) in zip(group, filter(None, tables), strict=True):
                self._add(scope, nbytes, got.moment, max(got.moment, last))
        else:
            self.shared.append((group, max(group[-1].moment, last)))

    def _multiply(self, parts: Sequence[Table]) -> Table | None:
        """The product of some tables, over their variables with a choice; None where that takes too large a table."""
        every = sorted({v for mine, _ in parts for v in mine})
        scope = tuple(v for v in every if self.sizes[v] > 1) or (every[0],)  # of hundreds most may have one value left
        if prod(self.sizes[v] for v in scope) > tuning.MAX_HELD_ENTRIES:
            return None

        def made() -> IntArray:
            (first, nbytes), *others = parts
            out = np.broadcast_to(_lay(nbytes, first, scope), [self.sizes[v] for v in scope])
            for mine, counts in others:
                out = out * _lay(counts, mine, scope)
            return out

        known = self.problem.known
        places = {v: k for k, v in enumerate(scope)}
        key = tuple((*(places.get(v, -1) for v in mine), known.identity(table)) for mine, table in parts)
        return scope, known.fact(("product", *key), made)

    def _add_means(self) -> None:
        """Of blocks that readers share in too large a table: at each moment the mean of those that are there."""
        self.exact = len(self.holdings)
        for group, last in self.shared:
            for k, now in enumerate(group):
                until = group[k + 1].moment - 1 if k + 1 < len(group) else last
                for scope, nbytes in (got.parts[0] for got in group[: k + 1]) if now.moment <= until else ():
                    made = _lay(nbytes, scope, tuple(sorted(set(scope)))) // (k + 1)
                    share = self.problem.known.share(made)
                    self.holdings.append(Holding(tuple(sorted(set(scope))), share, now.moment, until))

    def _add_landing(
        self, cost: TensorCost, held: IntArray, whole: BoxesOfCells, landed: BoxesOfCells, start: int, last: int
    ) -> None:
        """Partial results are held until they are merged where they land; the merged cells lie there from then on.

        What is complete is held to the end beside what lands, of which a device that has all of it takes no block.
        """
        scope, known = self._scope(cost), self.problem.known
        own = *cost.structure, known.identity(landed)
        # What is given lands just before it is read, what is made when it has been made.
        first = min((one.moment for one in self._list_readings(cost.tensor.name)), default=last)
        at = start + 1 if cost.producer in self._run else min(first, last)

        def count_more() -> IntArray:
            return np.where(self._find_serving(cost.table, whole, landed), 0, landed.nbytes)

        def count_landing() -> IntArray:
            merging = self._count_parts(cost, whole, landed) + landed.nbytes
            if cost.merges is not None:
                in_stages = cost.merges.count_held(self.device, cost.part_itemsize, cost.tensor.itemsize)
                merging = np.where(self.problem.list_merged(cost), in_stages - held[:, None], merging)
            return np.where(cost.lands, np.where(cost.held.parts[:, None] > 1, merging, count_more()), 0)

        def count_after() -> IntArray:
            after = np.where(cost.held.parts[:, None] > 1, landed.nbytes, held[:, None] + count_more())
            return np.where(cost.lands, after, held[:, None])

        self._add((cost.producer,), held, start, min(at, last))
        self._add(scope, known.fact(("landing", self.device, *own), count_landing), at, min(at, last))
        self._add(scope, known.fact(("landed", self.device, *own), count_after), at + 1, last)

    def _count_parts(self, cost: TensorCost, whole: BoxesOfCells, need: BoxesOfCells) -> IntArray:
        """Bytes of the parts of others while they are merged into a block, by layouts of producer and block."""
        cells = cost.table.sizes(need.cells)[None, :]
        mine = cost.table.sizes(whole.cells[:, None], need.cells[None, :]) == cells
        boxes = np.where(cells > 0, np.prod(need.high - need.low, axis=1), 0)
        total: IntArray = (cost.held.parts[:, None] - mine) * _aligned(boxes * cost.part_itemsize)
        return total

    def _add_parts(self, cost: TensorCost, whole: BoxesOfCells, before: Sequence[BlockAsked], one: BlockAsked) -> None:
        """While a reader gathers, the partial results of others lie beside the block that they make.

        Not of what it shares with readers before it, which is merged; of what shares some cells nothing is counted.
        """
        known = self.problem.known

        def count() -> IntArray:
            nbytes = np.where(cost.held.parts[:, None] > 1, self._count_parts(cost, whole, one.blocks), 0)
            return nbytes if cost.landing is None else np.where(cost.lands[:, :, None], 0, nbytes[:, None, :])

        def count_meets(other: BoxesOfCells) -> NDArray[np.bool_]:
            return np.asarray(cost.table.sizes(other.cells[:, None], one.blocks.cells[None, :]) > 0)

        landing = id(cost.landing.numbers) if cost.landing else 0
        key = "gathered", self.device, *cost.structure, landing, known.identity(one.blocks)
        parts: list[Table] = [((*self._scope(cost), one.variable), known.fact(key, count))]
        for other in before:
            key = "meets", self.device, cost.tensor.shape, known.identity(other.blocks), known.identity(one.blocks)
            meets = known.fact(key, partial(count_meets, other.blocks))
            parts.append(((other.variable, one.variable), self._list_others(meets)))
        if (found := self._multiply(parts)) is not None:
            self._add(*found, one.moment, one.moment)

    def _add_work(self, node: OpNode) -> None:
        """Blocks of views that are not read as they lie are copies of their own; and there is a workspace."""
        problem, at = self.problem, self.problem.position["operator", node.name]
        layouts = problem.variables[at].layouts
        graph, signature = problem.graph, problem.graph.signature(node.name)

        def count(operand: int) -> IntArray:
            source = graph.source(node.inputs[operand])
            out = np.zeros(len(layouts), np.int64)
            for row, layout in enumerate(layouts):
                index = layout.boxes[self.device]
                box = signature.input_box(operand, index) if index is not None else None
                if index is None or box is None or find_strided(problem.reads, node, operand, index) is not None:
                    continue
                out[row] = align(prod(box.shape) * np.dtype(source.dtype).itemsize)
            return out

        def count_scratch() -> IntArray:
            out, itemsize = np.zeros(len(layouts), np.int64), graph.stored[node.outputs[0]].itemsize
            for row, layout in enumerate(layouts):
                index = layout.boxes[self.device]
                if index is not None:
                    out[row] = align(graph.ops[node.op].workspace(shard_of(graph, node, index), itemsize))
            return out

        kind, end = (problem.kind(node), self.device), self._works[at]
        self._add((at,), problem.known.fact(("scratch", *kind), count_scratch), end, end)
        for operand, name in enumerate(node.inputs):
            if not graph.source(name).direct:
                nbytes = problem.known.fact(("view", operand, *kind), partial(count, operand))
                self._add((at,), nbytes, self._views[at, operand], end)

    # -- questions ---------------------------------------------------------------------------------------

    def restrict(self, kept: Sequence[IntArray]) -> Memory:
        """The same over some layouts of each variable."""
        share, cut = self.problem.known.share, dict[tuple[int, ...], IntArray]()
        kept = [share(values) for values in kept]
        made = copy(self)
        made.sizes = [len(values) for values in kept]

        def cut_table(scope: tuple[int, ...], table: IntArray) -> IntArray:
            key = id(table), *(id(kept[v]) for v in scope)
            if key not in cut:
                cut[key] = share(table[np.ix_(*(kept[v] for v in scope))])
            return cut[key]

        exact = self.holdings[: self.exact]
        made.holdings = [Holding(h.scope, cut_table(h.scope, h.nbytes), h.first, h.last) for h in exact]
        made.shared = []
        for group, last in self.shared:
            some = [Got([(scope, cut_table(scope, table)) for scope, table in got.parts], got.moment) for got in group]
            made._add_group(some, last)
        made._add_means()
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
    taken : sequence of int
        As of `Memory`, of each device.
    """

    def __init__(self, problem: Problem, *, is_mean: bool, taken: Sequence[int] = ()) -> None:
        self.is_mean = is_mean
        self.devices = range(0, problem.mesh.size, -(-problem.mesh.size // tuning.MAX_MEMORY_DEVICES))
        some = [taken[device] for device in self.devices] if taken else [0]
        super().__init__(problem, taken=sum(some) // len(some) if is_mean else max(some))

    def _add_all(self) -> None:
        found: dict[tuple[tuple[int, ...], int, int], IntArray] = {}
        mine: dict[tuple[tuple[int, ...], int, int], IntArray]
        for device in self.devices:
            self.device, self.holdings, self.shared, mine = device, [], [], {}
            super()._add_all()
            self._add_means()
            for h in self.holdings:
                key = h.scope, h.first, h.last
                mine[key] = mine[key] + h.nbytes if key in mine else h.nbytes
            for key, nbytes in mine.items():
                before = found.get(key, np.zeros_like(nbytes))
                found[key] = before + nbytes if self.is_mean else np.maximum(before, nbytes)
        self.shared = []
        share = self.problem.known.share
        many = len(self.devices) if self.is_mean else 1
        self.holdings = [Holding(scope, share(n // many), first, last) for (scope, first, last), n in found.items()]


class MemoryOfEach:
    """The bytes that layouts need of several devices: the moments of one device after those of another.

    Parameters
    ----------
    of : dict of int to Memory
        By device; None for the mean of them.
    """

    def __init__(self, of: dict[int | None, Memory]) -> None:
        self.of = of

    def add(self, device: int | None, memory: Memory) -> None:
        """Look at a device more; its moments come last."""
        self.of[device] = memory

    @property
    def moments(self) -> int:
        """How many there are of all devices."""
        return sum(memory.moments for memory in self.of.values())

    def _list_firsts(self) -> list[int]:
        return [0, *accumulate(memory.moments for memory in self.of.values())]

    def list_counts(self, choice: Sequence[int]) -> Iterator[tuple[IntArray, int]]:
        """Of each device bytes at every moment, as chosen, and the number of its first moment."""
        for memory, first in zip(self.of.values(), self._list_firsts(), strict=False):
            yield memory.count(choice), first

    def count(self, choice: Sequence[int]) -> IntArray:
        """Bytes at every moment of every device, as chosen."""
        return np.concatenate([memory.count(choice) for memory in self.of.values()])

    def count_most(self) -> IntArray:
        """Bytes at every moment of every device that no choice exceeds."""
        return np.concatenate([memory.count_most() for memory in self.of.values()])

    def list_row(self, moment: int, weight: int) -> Row:
        """The bytes at a moment of a device."""
        firsts = self._list_firsts()
        at = bisect(firsts, moment) - 1
        return [*self.of.values()][at].list_row(moment - firsts[at], weight)

    def weigh(self, weights: IntArray) -> list[Factor]:
        """The sum over all moments of bytes times weights / `WEIGHT`, as of `Memory`."""
        each = zip(self.of.values(), np.split(weights, self._list_firsts()[1:-1]), strict=True)
        return [factor for memory, mine in each for factor in memory.weigh(mine)]

    def restrict(self, kept: Sequence[IntArray]) -> MemoryOfEach:
        """The same over some layouts of each variable."""
        return MemoryOfEach({device: memory.restrict(kept) for device, memory in self.of.items()})


def _lay(table: IntArray, of: Sequence[int], scope: Sequence[int]) -> IntArray:
    """A table over some variables, of which one may stand twice, along the axes of more of them."""
    sizes = dict(zip(of, table.shape, strict=True))
    places = [np.arange(sizes[v]).reshape([sizes[v] if other == v else 1 for other in scope]) for v in of]
    laid: IntArray = table[tuple(places)]
    return laid


def _aligned(nbytes: IntArray) -> IntArray:
    return -(-nbytes // align(1)) * align(1)
