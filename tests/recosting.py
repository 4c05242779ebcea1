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
    """Picoseconds and bytes of a plan, stage by stage, as `ticks` and `nbytes`; bytes written anew, as `copied`.

    Of meshes whose devices do products and other work at one rate.
    """

    def __init__(self, plan: ShardPlan) -> None:
        self.plan, self.graph, self.mesh = plan, plan.graph, plan.mesh
        self.buffers: dict[int, Buffer] = {each.id: each for each in plan.buffers}
        self.known: dict[Any, Read] = {}
        self.sent: defaultdict[Any, defaultdict[tuple[int, int], int]] = defaultdict(lambda: defaultdict(int))
        self.runs: defaultdict[Any, defaultdict[tuple[int, int], int]] = defaultdict(lambda: defaultdict(int))
        self.merged: defaultdict[Any, defaultdict[int, int]] = defaultdict(lambda: defaultdict(int))
        self.worked: defaultdict[str, list[float]] = defaultdict(list)
        self.assembled: defaultdict[Any, defaultdict[int, int]] = defaultdict(lambda: defaultdict(int))
        self.copied = [0] * self.mesh.size
        for step in plan.steps:
            if isinstance(step, Copy) and step.piece is None and step.src != HOST:
                self._exchange(step)
            elif isinstance(step, Reduce):
                target = self.buffers[step.output]
                cells = sum(region.size for region in step.regions)
                wide = max(np.dtype(self.buffers[k].dtype).itemsize for k in step.inputs)
                self.merged[step.node, target.tensor][target.device] += len(step.inputs) * cells * wide
            elif isinstance(step, Compute):
                self.worked[step.node].append(self._work(step))
        self.nbytes = sum(n for each in self.sent.values() for n in each.values())
        self.ticks = sum(
            round(stage_seconds(self.mesh, each, self.runs[key]) * 1e12) for key, each in self.sent.items()
        )
        self.ticks += sum(round(max(map(self._merge, each.items())) * 1e12) for each in self.merged.values())
        self.ticks += sum(round(max(each) * 1e12) for each in self.worked.values())
        self.ticks += sum(round(max(map(self._assemble, each.items())) * 1e12) for each in self.assembled.values())

    def _exchange(self, step: Copy) -> None:
        source, target = self.buffers[step.src], self.buffers[step.dst]
        nbytes = sum(region.size for region in step.regions) * np.dtype(source.dtype).itemsize
        shape = self.graph.stored[step.tensor].shape
        is_inside = all(a >= 0 and a + m <= n for a, m, n in zip(target.start, target.shape, shape, strict=True))
        if source.device != target.device:
            self.sent[step.node, step.tensor][source.device, target.device] += nbytes
            if self.mesh.prices_runs:
                pieces = sum(count_runs_by_cells(step.regions, end.start, end.shape) for end in (source, target))
                self.runs[step.node, step.tensor][source.device, target.device] += pieces
        elif is_inside and step.node != "(place)":  # what has padding is written anew, all of it: see `_work`
            self.assembled[step.node, step.tensor][target.device] += nbytes

    def _assemble(self, item: tuple[int, int]) -> float:
        return item[1] / self.mesh.devices[item[0]].memory_nbytes_per_second

    def _merge(self, item: tuple[int, int]) -> float:
        rates = self.mesh.devices[item[0]]
        return rates.launch_seconds + item[1] / rates.memory_nbytes_per_second

    def _work(self, step: Compute) -> float:
        """Seconds of one shard: its launch, its arithmetic or its traffic, and what it must write anew."""
        node, signature = self.graph.nodes[step.node], self.graph.signature(step.node)
        op = self.graph.ops[node.op]
        read: defaultdict[str, set[tuple[int, ...]]] = defaultdict(set)
        anew = 0
        for operand, name in enumerate(node.inputs):
            box = signature.input_box(operand, step.index)
            if box is None:
                continue
            cells = self._follow(self.graph, name, box.start, box.shape)
            for _, stored, cell in filter(None, cells.values()):
                read[stored].add(cell)
            wide = np.dtype(self.graph.source(name).dtype).itemsize
            anew += 0 if self._is_strided(list(cells.values()), box.shape) else len(cells) * wide
        traffic = sum(len(cells) * self.graph.stored[name].itemsize for name, cells in read.items())
        for made in map(self.buffers.__getitem__, step.outputs):
            traffic += self._count_written(step, made) * np.dtype(made.dtype).itemsize
        rates = self.mesh.devices[step.device]
        flop = op.flop_per_point(signature, node.attrs) * step.index.size
        start = rates.launch_seconds + rates.operand_seconds * (len(node.inputs) + len(node.outputs))
        busy = max(flop / rates.flop_per_second, traffic / rates.memory_nbytes_per_second)
        self.copied[step.device] += anew
        return start + busy + anew / rates.memory_nbytes_per_second

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

    def _is_strided(self, cells: list[tuple[int, str, tuple[int, ...]] | None], shape: tuple[int, ...]) -> bool:
        """Whether a block lies at even distances along each axis, in the box around its cells, read as one piece."""
        if None in cells or len({number for number, _, _ in filter(None, cells)}) != 1:
            return False
        at = np.array([cell for _, _, cell in filter(None, cells)], np.int64).reshape(len(cells), -1)
        if not at.shape[1]:
            return True
        extents = at.max(axis=0) - at.min(axis=0) + 1
        strides = np.append(np.cumprod(extents[::-1])[::-1][1:], 1)
        offsets = ((at - at.min(axis=0)) @ strides).reshape(shape)
        steps = [np.diff(offsets, axis=axis) for axis in range(len(shape))]
        return all(each.size == 0 or (each == each.flat[0]).all() for each in steps)
