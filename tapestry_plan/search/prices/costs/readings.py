"""What each layout makes, holds and reads of stored tensors, as numbers of regions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property, partial
from math import prod

import numpy as np

from tapestry_plan.ir import Graph, OpNode, Stored, cells_of
from tapestry_plan.search import tuning
from tapestry_plan.search.prices.costs.merging import Makers, Merges, list_orders, price_merges
from tapestry_plan.search.prices.costs.tensors import TensorCost, Use, Variable, hold_parts, hold_whole
from tapestry_plan.search.prices.costs.variables import Asked, Declared
from tapestry_plan.search.prices.costs.variants import Given
from tapestry_plan.search.prices.moves import BOX, FLAT, HOSTED, PADDED, PARTED, Held, RegionTable
from tapestry_plan.search.sums.elimination import IntArray
from tapestry_plan.steps import (
    Hosting,
    IndexBlock,
    Layout,
    is_padded,
    list_hosted,
    list_images,
    list_stored,
    list_viewed,
    may_pad,
    may_write,
    unite,
)
from tapestry_sets.limits import quote
from tapestry_sets.regions import Box, DisjointRegions


class Numbered(Declared):
    """A problem's variables with what they make, hold and read of stored tensors.

    Parameters
    ----------
    graph : Graph
    asked : Asked
    """

    def __init__(self, graph: Graph, asked: Asked) -> None:
        super().__init__(graph, asked)
        self.tensors = self._tensor_costs()
        self.made: dict[int, list[TensorCost]] = {}
        for cost in self.tensors:
            self.made.setdefault(cost.producer, []).append(cost)

    def needs(self, node: OpNode, box: Box | None) -> dict[str, DisjointRegions]:
        """The exact cells of each stored tensor that an index box of an operator reads."""
        names = list_stored(self.graph, node.inputs)
        if box is None:
            return {}
        key = "needs", self.kind(node), box
        return dict(zip(names, self.known.fact(key, lambda: self._needs_now(node, box)), strict=True))

    def _needs_now(self, node: OpNode, box: Box) -> tuple[DisjointRegions, ...]:
        out: dict[str, list[DisjointRegions]] = {name: [] for name in list_stored(self.graph, node.inputs)}
        for operand in range(len(node.inputs)):
            for stored, region in self.reads.of_operand(node, operand, box).items():
                out[stored].append(region)
        return tuple(unite(regions, self.graph.stored[name].shape) for name, regions in out.items())

    def _tensor_costs(self) -> list[TensorCost]:
        """Tables for every stored tensor that can move: made by an operator, or given a place of its own."""
        for tensor in self.graph.stored.values():
            if tensor.shape not in self.known.tables:
                self.known.tables[tensor.shape] = RegionTable(tensor.shape)
        self.tables = {name: self.known.tables[tensor.shape] for name, tensor in self.graph.stored.items()}
        self.uses: dict[str, list[Use]] = {name: [] for name in self.graph.stored}
        costs = self._list_costs()
        for k, node in enumerate(self.order):
            self.asked.meter.tell("costs", k, 2 * len(self.order))
            self._add_uses(node)
        self._add_outputs()
        for cost in costs:
            cost.uses = self.uses[cost.tensor.name]
            if cost.tensor.name not in self.asked_outputs:
                cost.only_partial = frozenset(
                    k for k, use in enumerate(cost.uses) if self.variables[use.variable].kind == "output"
                )
        return costs

    def _list_costs(self) -> list[TensorCost]:
        """The stored tensors as their producers make them, in the order of the graph, without consumers yet."""
        makers = {out: (node, k) for node in self.order for k, out in enumerate(node.outputs)}
        costs = []
        for name, tensor in self.graph.stored.items():
            if prod(tensor.shape) > tuning.MAX_CELLS:
                raise ValueError(f"tensor {quote(name)} of shape {quote(tensor.shape)} has more than 2**60 cells")
            if name in makers:
                costs.append(self._cost_of(*makers[name], self.graph.stored[self.stored_as(name)]))
            elif ("source", name) in self.position:
                costs.append(self._cost_of_source(tensor, self.position["source", name]))
        return costs

    def _cost_of_source(self, tensor: Stored, at: int) -> TensorCost:
        table = self.tables[tensor.name]
        held = hold_whole(self.known, table, self.number_held(self.variables[at]))
        landing = self._find_landing(tensor.name)
        return TensorCost(tensor, table, at, held, tensor.itemsize, landing=landing, shares=landing is not None)

    def _cost_of(self, node: OpNode, output: int, tensor: Stored) -> TensorCost:
        at = self.position["operator", node.name]
        written = np.dtype(self.graph.written_dtypes(node.name)[output]).itemsize
        held = self.known.fact(("made", self.kind(node), output), lambda: self._number_made(node, output, tensor))
        landing = self._find_landing(node.outputs[output])
        shares = landing is not None and self._shares_out("operator", node.name, self.asked.fix)
        merges = None if landing is None else self._price_merges(node, output, held, landing, written)
        table = self.tables[tensor.name]
        return TensorCost(tensor, table, at, held, written, landing=landing, shares=shares, merges=merges)

    def _price_merges(self, node: OpNode, output: int, held: Held, landing: Use, itemsize: int) -> Merges | None:
        """What merging in stages takes; None where no stages are."""
        orders = list_orders(self.graph.ops[node.op].monoid, self.asked.fan_in)
        rests, table = self.variables[landing.variable].layouts, self.tables[node.outputs[output]]
        layouts = self.variables[self.position["operator", node.name]].layouts

        def made() -> Merges | None:
            signature = self.graph.signature(node.name)
            makers = Makers(signature.outputs[output], signature.reductions, layouts, rests, orders)
            return price_merges(makers, table, held, landing.numbers, itemsize, self.mesh, self.asked.fan_in)

        return self.known.fact(("merges", self.kind(node), output, self.known.identity(rests), orders), made)

    def _find_landing(self, name: str) -> Use | None:
        """Where a tensor may land."""
        place = self.position.get(("landing", name))
        return None if place is None else Use(place, self.number_held(self.variables[place]))

    def _add_outputs(self) -> None:
        for name in self.graph.stored:
            position = self.position.get(("output", name))
            if position is not None:
                self.uses[name].append(self._output_use(name, position))

    def _output_use(self, name: str, position: int, given: Given = ()) -> Use:
        """A tensor brought to where it lies at the end: a place of its own, or that of the input that it is tied to."""
        place = self.variables[position]
        return Use(position, self.number_held(place), given, tied=name if place.kind == "source" else "")

    def _number_made(self, node: OpNode, output: int, tensor: Stored) -> Held:
        signature = self.graph.signature(node.name)
        table = self.tables[tensor.name]
        options = self._variable("operator", node.name).layouts
        made = partial(signature.output_regions, output, shape=tensor.shape)
        regions = list_images(signature, signature.outputs[output], self._list_blocks(options)[0], made)
        empty = table.number(DisjointRegions(tensor.shape))
        cut = signature.reductions
        parts = [option.count_parts(cut) for option in options]
        which = np.array([option.number_parts(cut) for option in options])
        return hold_parts(self.known, self._number_blocks(options, table, regions), np.array(parts), which, empty)

    def number_held(self, variable: Variable) -> IntArray:
        """Region numbers of what the layouts of a source or an output hold, by (layout, device)."""
        shape, table = self.graph.stored[variable.name].shape, self.tables[variable.name]

        key = "tensor", shape, self.known.identity(variable.layouts)

        def numbered() -> IntArray:
            blocks, _ = self._list_blocks(variable.layouts)
            cells = [cells_of(block, shape) if isinstance(block, Box) else block.cells for block in blocks]
            return self._number_blocks(variable.layouts, table, cells)

        return self.known.fact(key, numbered)

    def _add_uses(self, node: OpNode) -> None:
        at = self.position["operator", node.name]
        for use, name in self._list_uses(node, at):
            self.uses[name].append(use)

    def _list_uses(self, node: OpNode, at: int, given: Given = ()) -> Iterator[tuple[Use, str]]:
        """How an operator reads each stored tensor behind its inputs."""
        viewed = list_viewed(self.graph, node.inputs)
        for name, numbers in self._number_read(node).items():
            apart, ways, loose = (
                self.number_apart(node, name),
                self._list_ways(node, name),
                self._list_loose(node, name),
            )
            yield Use(at, numbers, given, viewed=name in viewed, apart=apart, ways=ways, loose=loose), name

    def _number_read(self, node: OpNode) -> dict[str, IntArray]:
        """Region numbers of what an operator reads of stored tensors through its inputs, by (layout, device)."""
        found = self.known.fact(("read", self.kind(node)), lambda: self._number_read_now(node))
        return dict(zip(list_stored(self.graph, node.inputs), found, strict=True))

    def _number_read_now(self, node: OpNode) -> tuple[IntArray, ...]:
        options = self._variable("operator", node.name).layouts
        blocks, _ = self._list_blocks(options)
        read: dict[str, list[list[DisjointRegions]]] = {name: [] for name in list_stored(self.graph, node.inputs)}
        for operand, name in enumerate(node.inputs):
            found = self.reads.of_blocks(node, operand, blocks)
            for k, stored in enumerate(self.graph.source(name).stored):
                read[stored].append([regions[k] for regions in found])
        out = []
        for name, lists in read.items():
            shape = self.graph.stored[name].shape
            regions = lists[0] if len(lists) == 1 else [unite(some, shape) for some in zip(*lists, strict=True)]
            out.append(self._number_blocks(options, self.tables[name], regions))
        return tuple(out)

    def number_apart(self, node: OpNode, stored: str) -> tuple[IntArray, ...]:
        """Region numbers of what each operand of an operator reads of a tensor; none where only one reads it."""
        reading = [k for k, name in enumerate(node.inputs) if stored in self.graph.source(name).stored]
        if len(reading) < 2:
            return ()
        options = self._variable("operator", node.name).layouts
        blocks, _ = self._list_blocks(options)

        def made() -> tuple[IntArray, ...]:
            out = []
            for k in reading:
                at = self.graph.source(node.inputs[k]).stored.index(stored)
                found = [regions[at] for regions in self.reads.of_blocks(node, k, blocks)]
                out.append(self._number_blocks(options, self.tables[stored], found))
            return tuple(out)

        behind = list_stored(self.graph, node.inputs).index(stored)
        return self.known.fact(("apart", self.kind(node), behind), made)

    def _list_ways(self, node: OpNode, stored: str) -> tuple[IntArray, ...]:
        """For each operand that reads a tensor how it has its block, by layout and device; none where all lie apart."""
        reading = [k for k, name in enumerate(node.inputs) if stored in self.graph.source(name).stored]
        (hosting,) = self._host([stored])
        read = list_stored(self.graph, node.inputs)

        def made() -> tuple[IntArray, ...]:
            found = [self._list_ways_of(node, k, stored, hosting) for k in reading]
            return tuple(map(self.known.share, found)) if any(each.any() for each in found) else ()

        is_several = stored in self._padded_twice
        return self.known.fact(("ways", self.kind(node), read.index(stored), self._host(read), is_several), made)

    @cached_property
    def _padded_twice(self) -> frozenset[str]:
        """The tensors that several operands read with padding, of which one block may serve another."""
        counts: Counter[str] = Counter()
        for node in self.order:
            for k in range(len(node.inputs)):
                if may_pad(self.reads, node, k):
                    counts.update({names[k] for names in self.list_readings(node) if names[k] in self.graph.stored})
        return frozenset(name for name, count in counts.items() if count > 1)

    def _list_ways_of(self, node: OpNode, operand: int, stored: str, hosting: Hosting) -> IntArray:
        """The same of one operand."""
        blocks, places = self.list_blocks(node)
        signature, source = self.graph.signature(node.name), self.graph.source(node.inputs[operand])
        declared = signature.inputs[operand]
        every = (PARTED * hosting.rows | FLAT) if hosting.gathered else 0
        ways = np.full(len(blocks) + 1, every, np.int64)  # the last one is of idle devices
        seen = self.reads.list_seen(signature, declared, blocks)
        if source.direct and may_pad(self.reads, node, operand):
            numbers = {block: self._number_box(node, operand, block, stored) for block in dict.fromkeys(seen)}
            for k, block in enumerate(seen):
                if (number := numbers[block]) is not None:
                    ways[k] = (ways[k] & ~FLAT) | PADDED | number << BOX
        elif not source.direct and hosting.viewed and may_write(self.reads, node, operand):
            hostings = self._host(source.stored)
            at = source.stored.index(stored)
            hosted = {
                block: list_hosted(self.reads, node, operand, block, hostings)[at] for block in dict.fromkeys(seen)
            }
            for k, block in enumerate(seen):
                if hosted[block]:
                    ways[k] = (ways[k] & ~FLAT) | HOSTED
        return ways[places]

    def _number_box(self, node: OpNode, operand: int, block: IndexBlock, stored: str) -> int | None:
        """The number of the box of a block that is padded; None for others."""
        if not is_padded(self.reads, node, operand, block):
            return None
        signature = self.graph.signature(node.name)
        box = signature.input_box(operand, block) if isinstance(block, Box) else None
        assert box is not None, "it is padded"
        if stored not in self._padded_twice:
            return 0
        return self.tables[stored].number_box(signature.inputs[operand].pad, box)

    def _list_loose(self, node: OpNode, stored: str) -> tuple[IntArray, ...]:
        """For each operand that reads a tensor on which axes its buffer reaches further than the cells that it takes.

        Axes are bits of a number, by layout and device. None where runs take no time.
        """
        reading = [k for k, name in enumerate(node.inputs) if stored in self.graph.source(name).stored]
        if not self.mesh.prices_runs or not any(self.graph.source(node.inputs[k]).direct for k in reading):
            return ()

        def made() -> tuple[IntArray, ...]:
            blocks, places = self._list_blocks(self._variable("operator", node.name).layouts)
            found = []
            for k in reading:
                # What is behind a view is brought into the box around it.
                direct = self.graph.source(node.inputs[k]).direct
                each = [self._find_loose(node, k, stored, block) if direct else 0 for block in blocks]
                found.append(self.known.share(np.array([*each, 0], np.int64)[places]))
            return tuple(found) if any(each.any() for each in found) else ()

        behind = list_stored(self.graph, node.inputs).index(stored)
        return self.known.fact(("loose", self.kind(node), behind), made)

    def _find_loose(self, node: OpNode, operand: int, stored: str, block: IndexBlock) -> int:
        """The axes, as bits, on which an operand's block reaches further than the cells of a tensor that it takes."""
        if not isinstance(block, Box):  # only operators that work cell by cell have others: these take just their cells
            return 0
        box = self.graph.signature(node.name).input_box(operand, block)
        bounds = self.reads.of_operand(node, operand, block)[stored].bounds()
        if box is None or bounds is None:
            return 0
        sides = zip(box.start, box.stop, *bounds, strict=True)
        return sum((low < first or end < high) << axis for axis, (low, high, first, end) in enumerate(sides))

    def _number_blocks(
        self, options: Sequence[Layout], table: RegionTable, regions: Sequence[DisjointRegions]
    ) -> IntArray:
        """Numbers by (layout, device) of the regions of the layouts' blocks; equal ones are one array."""
        numbers = [table.number(region) for region in (*regions, DisjointRegions(table.shape))]
        return self.known.share(np.array(numbers, np.int64)[self._list_blocks(options)[1]])
