"""Results that overwrite what they are computed from: the block of an operand whose last reader writes them.

An operator that reads each cell of an operand before it writes the same cell of its result, and none afterwards, needs
no second place for that (`CellBlock.in_place`); nor does one whose result is an operand with few other cells, such as a
scatter into a cache, which then writes these alone (`UpdateBlock`)::

    x ████████      tanh ►  y ████████          x, then y: two blocks at once

    x ████████      tanh ►  y ████████          y in the place of x: one block
                            the same bytes

Whether it may is seen by the steps alone: nobody reads the operand's block behind that step, nothing else lies there,
and both blocks are the same box. A weight that a training step replaces is so replaced where it lies; in a deployment
that carries it nothing is left to copy. Constants stay as they are: deployments keep them for the next run.

Under a memory cap blocks lie apart, as `nest` has it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from tapestry_plan.ir import Graph, is_in_place
from tapestry_plan.steps.step import READ, Buffer, Compute, Free, ProgramStep, list_buffers


def list_overwritten(
    graph: Graph, buffers: Sequence[Buffer], steps: Sequence[ProgramStep], taken: Collection[int]
) -> dict[int, int]:
    """By buffer the first one of those that have its place, as each may overwrite the one before.

    Parameters
    ----------
    graph : Graph
    buffers, steps
        Of some devices; a buffer's number is its place.
    taken : collection of int
        Buffers within others, and those that others lie in: these stay where they are.
    """
    last, freed = dict[int, int](), dict[int, int]()
    for at, step in enumerate(steps):
        if isinstance(step, Free):
            freed[step.buffer] = at
        else:
            last.update(dict.fromkeys(list_buffers(step, READ), at))
    found: dict[int, int] = {}
    for at, step in enumerate(steps):
        if not isinstance(step, Compute) or len(step.outputs) != 1 or step.outputs[0] in taken:
            continue
        end = freed.get(step.outputs[0], len(steps))  # what nobody reads may be given back first
        free = {
            number
            for number in step.inputs
            if number is not None and last[number] == at and freed.get(number, end) < end and number not in taken
        }
        able = [number for number in list_able(graph, buffers, step) if number in free]
        if able:  # what came from the host rather than a result: of state that is carried on nothing is copied then
            before = min(able, key=lambda number: _is_made(graph, buffers[number]))
            found[step.outputs[0]] = found.get(before, before)
    return found


def list_able(graph: Graph, buffers: Mapping[int, Buffer] | Sequence[Buffer], step: Compute) -> list[int]:
    """The buffers that a step may overwrite if nobody reads them any more: one block each, the same as its result."""
    node = graph.nodes[step.node]
    block = graph.ops[node.op].block
    if len(node.outputs) != 1 or not any(is_in_place(block, k) for k in range(len(step.inputs))):
        return []
    signature, made = graph.signature(step.node), buffers[step.outputs[0]]
    #  NumPy's product of complex numbers has other last bits where it overwrites one of them.
    if np.dtype(made.dtype).kind == "c" or signature.reductions or signature.output_box(0, step.index) != made.box:
        return []
    pieces = step.pieces or (None,) * len(step.inputs)
    able: dict[int, bool] = {}
    for k, (number, piece) in enumerate(zip(step.inputs, pieces, strict=True)):
        if number is None:
            continue
        read = buffers[number]
        same = (read.start, read.shape, read.dtype, read.part, read.fill, piece) == (
            made.start,
            made.shape,
            made.dtype,
            -1,
            None,
            None,
        )
        is_read_so = same and is_in_place(block, k) and signature.reads_where_it_writes(k)
        able[number] = able.get(number, True) and is_read_so and not _is_constant(graph, read)
    return [number for number, is_able in able.items() if is_able]


def _is_constant(graph: Graph, buffer: Buffer) -> bool:
    """Whether a buffer has cells of constants."""
    stored = graph.source(buffer.tensor).stored
    return any(graph.stored[name].kind == "constant" for name in stored)


def _is_made(graph: Graph, buffer: Buffer) -> bool:
    stored = graph.stored.get(buffer.tensor)
    return stored is None or stored.kind == "result"
