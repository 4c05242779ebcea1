"""What a plan costs, from its steps alone: cells are listed one by one, and nothing of the search is used."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import product
from math import prod
from typing import Any

import numpy as np

from tapestry_plan import Graph, ShardPlan
from tapestry_plan.steps import HOST, Buffer, Compute, Copy, Reduce
from tapestry_sets import Region
from tests.oracles import cell_read
from tests.tiny_plans import stage_seconds

Read = dict[tuple[int, ...], tuple[int, str, tuple[int, ...]] | None]
"""By cell of a block, the stored tensor's cell that it is, and through which piece of the view; None for padding."""


def count_runs_by_cells(regions: Sequence[Region], start: Sequence[int], shape: Sequence[int]) -> int:
    """The runs of cells in a row-major buffer over a box: each cell's place is listed."""
    cells = np.concatenate([region.points() for region in regions])
    strides = [prod(shape[k + 1 :]) for k in range(len(shape))]
    places = np.sort(((cells - np.array(start, np.int64)) * np.array(strides, np.int64)).sum(axis=1))
    return int((np.diff(places) != 1).sum()) + 1


class Recosting:
    """Picoseconds and bytes of a plan, stage by stage, as `ticks` and `nbytes`; bytes copied by device, as `copied`.

    Of meshes whose devices do products and other work at one rate.
    """

    def __init__(self, plan: ShardPlan) -> None:
        self.plan, self.graph, self.mesh = plan, plan.graph, plan.mesh
        self.buffers: dict[int, Buffer] = {each.id: each for each in plan.buffers}
        self.known: dict[Any, Read] = {}
        self.sent: defaultdict[Any, defaultdict[tuple[int, int], int]] = defaultdict(lambda: defaultdict(int))
        self.runs: defaultdict[Any, defaultdict[tuple[int, int], int]] = defaultdict(lambda: defaultdict(int))
        self.merged: defaultdict[Any, defaultdict[int, int]] = defaultdict(lambda: defaultdict(int))
        self.parts: dict[Any, int] = {}
        self.worked: defaultdict[str, list[float]] = defaultdict(list)
        self.assembled: defaultdict[Any, defaultdict[int, int]] = defaultdict(lambda: defaultdict(int))
        self.copied = [0] * self.mesh.size
        self.written: defaultdict[str, defaultdict[int, int]] = defaultdict(lambda: defaultdict(int))
        for step in plan.steps:
            if isinstance(step, Copy) and step.piece is None and step.src != HOST:
                self._exchange(step)
            elif isinstance(step, Copy) and step.piece is not None:
                self._write(step)
            elif isinstance(step, Reduce):
                target = self.buffers[step.output]
                cells = sum(region.size for region in step.regions)
                wide = max(np.dtype(self.buffers[k].dtype).itemsize for k in step.inputs)
                self.merged[step.node, target.tensor][target.device] += len(step.inputs) * cells * wide
                self.parts[step.node, target.tensor] = len(step.inputs)
            elif isinstance(step, Compute):
                self.worked[step.node].append(self._work(step))
        self.nbytes = sum(n for each in self.sent.values() for n in each.values())
        self.ticks = sum(
            round(stage_seconds(self.mesh, each, self.runs[key]) * 1e12) for key, each in self.sent.items()
        )
        for key, each in self.merged.items():
            self.ticks += round(max(self._merge(item, self.parts[key]) for item in each.items()) * 1e12)
        self.ticks += sum(round(max(each) * 1e12) for each in self.worked.values())
        self.ticks += sum(round(max(map(self._assemble, each.items())) * 1e12) for each in self.assembled.values())

    def _exchange(self, step: Copy) -> None:
        source, target = self.buffers[step.src], self.buffers[step.dst]
        nbytes = sum(region.size for region in step.regions) * np.dtype(source.dtype).itemsize
        if source.device != target.device:
            self.sent[step.node, step.tensor][source.device, target.device] += nbytes
            if self.mesh.prices_runs:
                pieces = sum(count_runs_by_cells(step.regions, end.start, end.shape) for end in (source, target))
                self.runs[step.node, step.tensor][source.device, target.device] += pieces
        elif step.node != "(place)" and not self._is_made_there(source, target):
            self.assembled[step.node, step.tensor][target.device] += nbytes
            self.copied[target.device] += nbytes

    def _is_made_there(self, source: Buffer, target: Buffer) -> bool:
        return source.within is not None and source.within.buffer == target.id

    def _write(self, step: Copy) -> None:
        """A view's block is written: with the operator's work, but where it lies in a block that might have been it."""
        target = self.buffers[step.dst]
        if (
            step.piece is None
            or self._is_shared(target.tensor)
            or (step.src != step.dst and self._is_made_there(self.buffers[step.src], target))
        ):
            return
        cells = self._follow(self.graph, target.tensor, target.start, target.shape)
        points = {tuple(map(int, point)) for region in step.regions for point in region.points()}
        number = self.graph.source(target.tensor).pieces.index(step.piece)
        read = [found for point, found in cells.items() if point in points and found and found[0] == number]
        wide = np.dtype(target.dtype).itemsize
        count = len(points) if step.piece.source < 0 else len(read)
        self.copied[target.device] += count * wide
        if step.src != step.dst and self._might_hold(step.tensor, target, [cell for _, _, cell in filter(None, read)]):
            self.assembled[step.node, step.tensor][target.device] += count * wide
        else:
            self.written[step.node][target.device] += count * wide

    def _is_shared(self, view: str) -> bool:
        """Whether several operands read a view: each is priced for a block of its own, which may be written once."""
        return sum(name == view for node in self.graph.nodes.values() for name in node.inputs) > 1

    def _might_hold(self, tensor: str, target: Buffer, read: list[tuple[int, ...]]) -> bool:
        """Whether what is read of a tensor could be made in the block of a view, if it were all that there is."""
        if self.plan.choices.memory_nbytes is not None or self.graph.stored[tensor].kind != "result":
            return False
        readings = [(node, name) for node in self.graph.nodes.values() for name in node.inputs]
        readings = [one for one in readings if tensor in self.graph.source(one[1]).stored]
        maker = next(node for node in self.graph.nodes.values() if tensor in node.outputs)
        touching = [maker, *(node for node, name in readings if name == tensor)]
        rows = all(self.graph.ops[node.op].rows for node in touching)
        cells = self._follow(self.graph, target.tensor, target.start, target.shape)
        every = [found for found in cells.values() if found is not None and found[1] == tensor]
        if sum(name != tensor for _, name in readings) != 1 or len(every) != len(set(read)) or len(every) != len(read):
            return False
        around = np.array(read)
        low, shape = around.min(axis=0), np.ptp(around, axis=0) + 1
        if len(read) != shape.prod() or self.graph.stored[tensor].dtype != target.dtype:
            return False
        at = np.full(shape, -1)
        for place, found in enumerate(cells.values()):
            if found is not None and found[1] == tensor:
                at[tuple(np.array(found[2]) - low)] = place
        steps = [np.unique(np.diff(at, axis=axis)) for axis in range(at.ndim)]
        if any(len(each) > 1 or (each < 1).any() for each in steps):
            return False
        is_run = (np.diff(at.ravel()) == 1).all()
        return bool(is_run or (rows and shape[-1] > 1 and steps[-1][0] == 1))

    def _assemble(self, item: tuple[int, int]) -> float:
        return item[1] / self.mesh.devices[item[0]].memory_nbytes_per_second

    def _merge(self, item: tuple[int, int], parts: int) -> float:
        rates = self.mesh.devices[item[0]]
        start = rates.launch_seconds + rates.operand_seconds * (parts + 1)
        return start + item[1] / rates.memory_nbytes_per_second

    def _work(self, step: Compute) -> float:
        """Seconds of one shard: its launch, its arithmetic or its traffic, and what it must write anew."""
        node, signature = self.graph.nodes[step.node], self.graph.signature(step.node)
        op = self.graph.ops[node.op]
        read: defaultdict[str, set[tuple[int, ...]]] = defaultdict(set)
        for operand, name in enumerate(node.inputs):
            box = signature.input_box(operand, step.index)
            if box is None:
                continue
            cells = self._follow(self.graph, name, box.start, box.shape)
            for _, stored, cell in filter(None, cells.values()):
                read[stored].add(cell)
            taken, source = step.inputs[operand], self.graph.source(name)
            if not source.direct and taken is not None and self.buffers[taken].tensor == name and self._is_shared(name):
                there = sum(all(0 <= x < n for x, n in zip(at, source.shape, strict=True)) for at in cells)
                self.written[step.node][step.device] += there * np.dtype(source.dtype).itemsize
                self.copied[step.device] += there * np.dtype(source.dtype).itemsize
        traffic = sum(len(cells) * self.graph.stored[name].itemsize for name, cells in read.items())
        for made in map(self.buffers.__getitem__, step.outputs):
            traffic += self._count_written(step, made) * np.dtype(made.dtype).itemsize
        rates = self.mesh.devices[step.device]
        flop = op.flop_per_point(signature, node.attrs) * step.index.size
        start = rates.launch_seconds + rates.operand_seconds * (len(node.inputs) + len(node.outputs))
        busy = max(flop / rates.flop_per_second, traffic / rates.memory_nbytes_per_second)
        packed = self._count_packed(step) / (rates.packed_nbytes_per_second or float("inf"))
        return start + busy + packed + self.written[step.node][step.device] / rates.memory_nbytes_per_second

    def _count_packed(self, step: Compute) -> int:
        """Bytes of operands of a contraction, each as a matrix of the axes along which it is read."""
        node, signature = self.graph.nodes[step.node], self.graph.signature(step.node)
        along = [operand.index_axes for operand in signature.inputs]
        if all(sum(axis in mine for mine in along) < 2 for axis in signature.reductions):
            return 0
        sizes = [np.dtype(self.graph.source(name).dtype).itemsize for name in node.inputs]
        shape = step.index.shape
        return sum(n * prod(shape[axis] for axis in mine) for n, mine in zip(sizes, along, strict=True))

    def _count_written(self, step: Compute, made: Buffer) -> int:
        """Cells of an output that the shard writes: its buffer's box is theirs."""
        at = self.graph.nodes[step.node].outputs.index(made.tensor)
        box = self.graph.signature(step.node).output_box(at, step.index)
        assert box is not None
        return box.size

    def _follow(self, graph: Graph, name: str, start: tuple[int, ...], shape: tuple[int, ...]) -> Read:
        """The stored cell of each cell of a block of an operand."""
        key = name, start, shape
        if key not in self.known:
            source = graph.source(name)
            found: Read = {}
            for point in product(*(range(a, a + n) for a, n in zip(start, shape, strict=True))):
                found[point] = None
                if all(0 <= x < n for x, n in zip(point, source.shape, strict=True)):
                    for number, piece in enumerate(source.pieces):
                        cell = cell_read(piece, point)
                        if cell is not None and piece.source >= 0:
                            found[point] = number, source.stored[piece.source], tuple(cell)
            self.known[key] = found
        return self.known[key]
