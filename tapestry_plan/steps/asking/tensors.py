"""What a plan does with an input, a constant or a view: where it lies, who reads it, and what moves because of it.

A view is stored nowhere. What moves because of it are cells of the tensors behind it: those that arrive for an operator
which reads them through the view::

    x ─► flip ─► relu        cells of x that come from other devices for relu, and that it reads through flip
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
from msgspec.structs import replace

from tapestry_plan.ir import Graph, OpNode
from tapestry_plan.steps import tuning
from tapestry_plan.steps.asking.lookups import has_steps, tell_left_out
from tapestry_plan.steps.asking.reasons import OperandReads
from tapestry_plan.steps.asking.transfers import PlannedTransfer
from tapestry_plan.steps.layouts.cells import unite
from tapestry_plan.steps.layouts.reads import Reads, pull_back
from tapestry_plan.steps.step import HOST, Copy
from tapestry_plan.steps.tags import name_stage
from tapestry_sets.limits import escape_controls, tell_count
from tapestry_sets.regions import DisjointRegions, Region


def is_explained(graph: Graph, name: str) -> bool:
    """Whether a name is that of an input, a constant or a view; what operators make is explained with these."""
    stored = graph.stored.get(name)
    return name in graph.selections or (stored is not None and stored.kind != "result")


def tell_tensor(plan: Any, name: str) -> list[str]:
    """What is said of an input, a constant or a view, sentence by sentence; the first one says what it is."""
    graph: Graph = plan.graph
    source, view = graph.source(name), graph.selections.get(name)
    kind, extents = (graph.stored[name].kind if view is None else "view"), "×".join(map(str, source.shape))
    size = prod(source.shape) * np.dtype(source.dtype).itemsize
    much = f"{size:,} B" if view is None else f"{size:,} B, stored nowhere by itself"
    lines = [f"{_show(name)}: {kind}, {source.dtype} of {extents or 'one cell'}, {much}"]
    if view is not None:
        behind = [f"{graph.stored[one].kind} {_show(one)}" for one in source.stored]
        lines.append(f"{view.label} of {', '.join(map(_show, view.inputs))}: cells of {' and '.join(behind)}")
    readers = _list_readers(graph, name)
    outputs = [label for label, read in graph.outputs.items() if _passes(graph, read, name)]
    if not has_steps(plan):
        names = [*map(_show, readers), *(f"output {_show(label)}" for label in outputs)]
        lines.append(f"read by {', '.join(names)}" if names else "nothing reads it")
        what = "where it lies, how much of it is read, and what moves because of it"
        return [*lines, tell_left_out(plan, what, "tensor", source.stored[0] if source.stored else name)]
    if view is None:
        lines.append(_tell_placed(plan, name))
    shown = pull_back(graph, source, _whole(source.shape))
    total = 0
    for node, operands in readers.items():
        for found in _list_reads(plan, graph.nodes[node], operands, shown):
            lines.append(f"{_show(node)} {found}{_tell_views(graph, graph.nodes[node], operands, name)}")
            total += found.nbytes_received
    for stage, label in _list_stages(graph, source.stored, outputs):
        moved = [row for row in plan._transfers if row.consumer == stage and row.tensor in shown]
        parts = [part for row in moved if (part := _cut(row, shown[row.tensor])) is not None]
        nbytes = sum(part.nbytes for part in parts)
        total += nbytes
        if nbytes:
            lines.append(f"{label}: {nbytes:,} B move{_tell_first(parts)}")
        elif stage.startswith("output"):
            lines.append(f"{label}: nothing moves for it")
    if not readers and not outputs:
        lines.append("nothing reads it")
    lines.append(f"because of it {total:,} B move between devices" if total else "nothing moves because of it")
    return lines


def _whole(shape: Sequence[int]) -> DisjointRegions:
    return DisjointRegions(tuple(shape), [Region.from_bounds(tuple(shape), (0,) * len(shape), tuple(shape))])


def _list_readers(graph: Graph, name: str) -> dict[str, list[int]]:
    """The operators that read a tensor, through views or not, each with the operands that do."""
    found: dict[str, list[int]] = {}
    for node in graph.nodes.values():
        operands = [k for k, read in enumerate(node.inputs) if _passes(graph, read, name)]
        if operands:
            found[node.name] = operands
    return found


def _passes(graph: Graph, read: str, name: str) -> bool:
    """Whether a tensor is another one, or a view of it."""
    todo, seen = [read], {read}
    while todo:
        one = todo.pop()
        if one == name:
            return True
        more = {*(graph.selections[one].inputs if one in graph.selections else ())} - seen
        seen |= more
        todo += more
    return False


def _list_stages(graph: Graph, stored: Sequence[str], outputs: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The stages without an operator in which tensors move, and what is said of each."""
    for name in stored:
        yield name_stage("landing", name), f"{_show(name)} lands before it is read"
        labels = [label for label in outputs if name in graph.source(graph.outputs[label]).stored]
        if labels:
            yield name_stage("output", name), f"output {', '.join(map(_show, labels))}"


def _list_reads(
    plan: Any, node: OpNode, operands: Sequence[int], shown: Mapping[str, DisjointRegions]
) -> Iterator[OperandReads]:
    """What an operator reads of some cells of stored tensors through some of its operands."""
    graph: Graph = plan.graph
    reads = Reads(graph)
    for name, cells in shown.items():
        tensor = graph.stored[name]
        mine: dict[int, DisjointRegions] = {}
        for device, boxes in plan.placement[node.name].items():
            each = [
                reads.of_operand(node, k, box)[name] & cells
                for box in boxes
                for k in operands
                if name in graph.source(node.inputs[k]).stored
            ]
            mine[device] = unite(each, tensor.shape)
        total = sum(one.size for one in mine.values()) * np.dtype(tensor.dtype).itemsize
        if not total:
            continue
        rows = plan._transfers._by_tensor.get(name, ())
        moved = [_cut(row, mine[row.target]) for row in rows if row.consumer == node.name]
        parts = [row for row in moved if row is not None]
        witness = max(parts, key=lambda row: row.nbytes, default=None)
        has_landed = any(row.consumer not in graph.nodes for row in rows)
        yield OperandReads(name, tensor.kind, total, sum(row.nbytes for row in parts), witness, has_landed)


def _cut(row: PlannedTransfer, cells: DisjointRegions) -> PlannedTransfer | None:
    """The part of a transfer that is of some cells."""
    sent = DisjointRegions(cells.shape, row.regions)
    some = sent & cells
    if not some.size:
        return None
    if some.size == sent.size:
        return row
    return replace(row, regions=tuple(some.members), nbytes=row.nbytes // sent.size * some.size)


def _tell_views(graph: Graph, node: OpNode, operands: Sequence[int], name: str) -> str:
    """Through which views an operator reads a tensor, where it does not read it as it is."""
    seen = [node.inputs[k] for k in operands]
    return "" if name in seen else f", through {', '.join(_show(one) for one in dict.fromkeys(seen))}"


def _tell_first(parts: Sequence[PlannedTransfer]) -> str:
    one = max(parts, key=lambda row: row.nbytes)
    return f", as {one.cells} from device {one.source} to {one.target}"


def _tell_placed(plan: Any, name: str) -> str:
    """How much of an input or constant each device is given."""
    buffers, nbytes = {buffer.id: buffer for buffer in plan.buffers}, [0] * plan.mesh.size
    for step in plan.steps:
        if isinstance(step, Copy) and step.src == HOST and step.piece is None and step.tensor == name:
            buffer = buffers[step.dst]
            nbytes[buffer.device] += sum(region.size for region in step.regions) * np.dtype(buffer.dtype).itemsize
    devices: dict[int, list[int]] = {}
    for device, n in enumerate(nbytes):
        if n:
            devices.setdefault(n, []).append(device)
    if not devices:
        return "it is placed on no device"
    told = [
        f"{n:,} B on " + (f"device {some[0]}" if len(some) == 1 else f"each of {tell_count(len(some), 'device')}")
        for n, some in sorted(devices.items(), reverse=True)[: tuning.TOLD_CAUSES]
    ]
    left = len(devices) - len(told)
    return f"placed: {', '.join(told)}{f' and other amounts on {left} more' if left else ''}"


def _show(name: str) -> str:
    return escape_controls(name, "")
