"""What operators do by themselves in each layout: arithmetic, memory traffic, and copies to read views."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache, cached_property
from itertools import chain
from math import prod
from typing import Any

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from tapestry_plan.ir import OpNode, shares_of
from tapestry_plan.search.prices.costs.readings import Numbered
from tapestry_plan.search.prices.costs.seconds import (
    compute_seconds,
    count_packed,
    find_product_share,
    repeat_seconds,
    to_ticks,
)
from tapestry_plan.search.sums.elimination import IntArray
from tapestry_plan.steps import (
    IndexBlock,
    Layout,
    Mesh,
    align,
    count_copied,
    is_turned,
    list_seen,
    list_stored,
    may_write,
)
from tapestry_sets.regions import Box


class Worked(Numbered):
    """A problem's variables with the time that each takes by itself.

    Parameters
    ----------
    graph : Graph
    asked : Asked
    """

    @cached_property
    def compute(self) -> list[IntArray]:
        """Modeled picoseconds of each layout of each variable: of operators' work."""
        return [self._compute_ticks(v) for v in range(len(self.variables))]

    def _compute_ticks(self, at: int) -> IntArray:
        """Modeled compute time of each layout."""
        variable = self.variables[at]
        if variable.kind != "operator":
            return self.known.share(np.zeros(len(variable.layouts), np.int64))
        node = self.graph.nodes[variable.name]
        return self._node_ticks(node, self._number_read(node))

    def _node_ticks(self, node: OpNode, read: Mapping[str, IntArray]) -> IntArray:
        """Modeled compute time of an operator in each layout: the slowest device's arithmetic or memory traffic."""
        key = "ticks", self.kind(node), self._host(list_stored(self.graph, node.inputs))
        return self.known.fact(key, lambda: self._node_ticks_now(node, read, self.mesh))

    def count_fastest(self, node: OpNode, read: Mapping[str, IntArray]) -> IntArray:
        """The same if all devices were as fast as any of them: no layout takes less."""
        if not self.mesh.differs:
            return self.known.fact(
                ("bare", self.kind(node)), lambda: self._node_ticks_now(node, read, self.mesh, False)
            )
        mesh = replace(self.mesh, device=self.mesh.fastest)
        return self.known.fact(("fastest", self.kind(node)), lambda: self._node_ticks_now(node, read, mesh, False))

    def count_bare(self, at: int) -> IntArray:
        """Modeled compute time of each layout of an operator, by position, without what it copies."""
        node = self.graph.nodes[self.variables[at].name]
        read = self._number_read(node)
        return self.known.fact(("bare", self.kind(node)), lambda: self._node_ticks_now(node, read, self.mesh, False))

    def count_copied(self, node: OpNode, rows: slice = slice(None), inside: Collection[str] = ()) -> IntArray:
        """Bytes that each device writes anew to read views, by layout and device, but for some tensors.

        What is priced tensor by tensor, with what moves, is not among them (`_list_ways`).
        """
        outside = [k for k, name in enumerate(node.inputs) if name not in inside]
        layouts = self.variables[self.position["operator", node.name]].layouts
        nbytes = np.zeros(self._list_blocks(layouts)[1][rows].shape, np.int64)
        turned = self.known.fact(
            ("turned", self.known.identity(layouts)), lambda: any(is_turned(layout.digits) for layout in layouts)
        )
        for operand in outside:
            if turned or may_write(self.reads, node, operand):
                nbytes += self._count_operand(node, operand, rows)
        return nbytes

    def count_packed(self, node: OpNode, rows: slice = slice(None)) -> IntArray:
        """Bytes of operands that each device packs where an operator is a contraction, by layout and device."""
        blocks, places = self._list_blocks(self.variables[self.position["operator", node.name]].layouts)
        op, signature = self.graph.ops[node.op], self.graph.signature(node.name)
        itemsizes = [np.dtype(self.graph.source(name).dtype).itemsize for name in node.inputs]

        def count() -> IntArray:
            # over digits of axes work operators that go cell by cell, which are none
            boxes = (block if isinstance(block, Box) else None for block in blocks)
            each = [count_packed(op, node.attrs, signature, itemsizes, box) if box else 0 for box in boxes]
            return np.array([*each, 0], np.int64)

        packed: IntArray = self.known.fact(("packed", self.kind(node)), count)
        return packed[places[rows]]

    def _count_operand(self, node: OpNode, operand: int, rows: slice) -> IntArray:
        """The same of one operand, some of whose blocks may have to be written anew."""
        layouts = self.variables[self.position["operator", node.name]].layouts
        blocks, places = self._list_blocks(layouts)
        key = "written anew", self.kind(node), operand, self._host(self.graph.source(node.inputs[operand]).stored)
        if key in self.known.facts or len(places[rows]) == len(places):
            every: IntArray = self.known.fact(key, lambda: self._count_blocks(node, operand, blocks, places))
            return every[rows]
        return self._count_blocks(node, operand, blocks, places[rows])

    def _count_blocks(self, node: OpNode, operand: int, blocks: Sequence[IndexBlock], places: IntArray) -> IntArray:
        """Bytes that devices write anew for an operand, where they have blocks by number."""
        signature = self.graph.signature(node.name)
        nbytes = np.zeros(len(blocks) + 1, np.int64)  # the last one is of idle devices
        wanted = np.unique(places[places >= 0])
        seen = list_seen(signature, signature.inputs[operand], [blocks[k] for k in wanted.tolist()])
        hostings = self._host(self.graph.source(node.inputs[operand]).stored)
        each = {block: count_copied(self.reads, node, operand, block, hostings) for block in dict.fromkeys(seen)}
        nbytes[wanted] = [each[block] for block in seen]
        return nbytes[places]

    def _node_ticks_now(self, node: OpNode, read: Mapping[str, IntArray], mesh: Mesh, copies: bool = True) -> IntArray:
        seconds = self._count_seconds(node, read, mesh, slice(None), copies).max(axis=1)
        return to_ticks(seconds) + self._unwrap_ticks(node, mesh)

    def _unwrap_ticks(self, node: OpNode, mesh: Mesh) -> IntArray:
        """Modeled time to make values of states that no part is missing of, as a mean and squares: a launch each."""
        layouts = self.variables[at := self.position["operator", node.name]].layouts
        if not self.graph.ops[node.op].has_states:
            return np.zeros(len(layouts), np.int64)
        (cost, *_), rates = self.made[at], mesh.devices
        cells = cost.table.sizes(cost.held.numbers)
        each = [
            device.launch_seconds + n * cost.part_itemsize / device.memory_nbytes_per_second
            for device, n in zip(rates, cells.T, strict=True)
        ]
        slowest = np.where(cells > 0, np.stack(each, axis=1), 0.0).max(axis=1)
        return to_ticks(np.where(cost.held.parts > 1, 0.0, slowest))

    def count_seconds(self, node: OpNode, row: int) -> tuple[float, ...]:
        """Modeled seconds of each device's own work, in one layout of an operator."""
        found = self._count_seconds(node, self._number_read(node), self.mesh, slice(row, row + 1))
        return tuple(found[0].tolist())

    def _count_seconds(
        self, node: OpNode, read: Mapping[str, IntArray], mesh: Mesh, rows: slice, copies: bool = True
    ) -> NDArray[np.float64]:
        """Modeled seconds of each device's own work, by layout and device."""
        at = self.position["operator", node.name]
        layouts = self.variables[at].layouts[rows]
        op, signature = self.graph.ops[node.op], self.graph.signature(node.name)
        nbytes = np.zeros((len(layouts), self.mesh.size), np.int64)
        for _, mine in self._list_traffic(at, read, rows):
            nbytes += mine
        for _, mine in self._list_again(node, read, rows):
            nbytes += mine
        *flop, whole = op.count_flop(signature, node.attrs, [*chain(*(one.boxes for one in layouts)), signature.index])
        idle = [[box is None for box in one.boxes] for one in layouts]
        launches: Any = 1
        if op.points_per_launch is not None:
            points = ((box.size if box else 0 for box in one.boxes) for one in layouts)
            launches = np.array([[op.count_launches(signature, node.attrs, n) for n in row] for row in points])
        cells = sum(prod(self.graph.source(name).shape) for name in (*node.inputs, *node.outputs))
        product = find_product_share(op, node.attrs, signature, whole, cells)
        operands = len(node.inputs) + len(node.outputs)
        flops = np.reshape(flop, nbytes.shape)
        copied = self.count_copied(node, rows) if copies else 0
        packed = self.count_packed(node, rows) if mesh.prices_packing else 0
        how: dict[str, Any] = {"operands": operands, "product": product, "copied": copied, "packed": packed}
        each = compute_seconds(flops, nbytes, mesh, launches, inside=self._count_inside(node, layouts, mesh), **how)
        return np.where(np.reshape(idle, nbytes.shape), 0.0, each)

    def _count_inside(self, node: OpNode, layouts: Sequence[Layout], mesh: Mesh) -> float | NDArray[np.float64]:
        """Modeled seconds of what an operator runs inside, by layout and device; 0 of one that runs nothing."""
        signature = self.graph.signature(node.name)
        inner = self.graph.ops[node.op].list_inner(signature, node.attrs)
        if not inner:
            return 0.0
        seconds = cache(lambda shares: repeat_seconds(inner, shares, mesh))
        boxes = [box for one in layouts for box in one.boxes]
        each = [seconds(shares_of(signature, box))[k % mesh.size] if box else 0.0 for k, box in enumerate(boxes)]
        return np.reshape(each, (len(layouts), mesh.size))

    def _list_traffic(self, at: int, read: Mapping[str, IntArray], rows: slice) -> Iterator[tuple[str, IntArray]]:
        """What an operator reads and writes of each tensor, in bytes by layout and device."""
        for name, numbers in read.items():
            yield name, self.tables[name].sizes(numbers[rows]) * self.graph.stored[name].itemsize
        op = self.graph.ops[self.graph.nodes[self.variables[at].name].op]
        for cost in self.made[at]:
            parts = cost.held.parts[rows]
            itemsizes = cost.itemsizes(parts + 1 if op.has_states else parts)  # states are written, also of one part
            yield cost.tensor.name, cost.table.sizes(cost.held.numbers[rows]) * itemsizes[:, None]

    def _list_again(self, node: OpNode, read: Mapping[str, IntArray], rows: slice) -> Iterator[tuple[str, IntArray]]:
        """What an operator goes through a second time, and so on, of what it reads, as its traffic."""
        op = self.graph.ops[node.op]
        if op.passes is None:
            return
        more = dict[str, int]()
        passes = op.count_passes(self.graph.signature(node.name), node.attrs)
        for name, times in zip(node.inputs, passes, strict=True):
            for stored in self.graph.source(name).stored:
                more[stored] = max(times - 1, more.get(stored, 0))
        for name, times in more.items():
            yield name, self.tables[name].sizes(read[name][rows]) * (times * self.graph.stored[name].itemsize)

    def count_again(self, node: OpNode) -> dict[str, IntArray]:
        """The same for all layouts, by tensor."""
        return dict(self._list_again(node, self._number_read(node), slice(None)))

    def count_traffic(self, node: OpNode) -> dict[str, IntArray]:
        """The same for all layouts, by tensor."""
        at = self.position["operator", node.name]
        return dict(self._list_traffic(at, self._number_read(node), slice(None)))

    def list_needed(self, node: OpNode) -> Iterator[IntArray]:
        """Bytes that lie on each device at once where an operator runs, by layout."""
        yield sum(map(align, self.count_traffic(node).values()), np.zeros((1, 1), np.int64))
