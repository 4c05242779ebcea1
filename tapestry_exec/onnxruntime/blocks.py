"""Blocks as graphs of their own: what one device does of an operator, in the coordinates of its blocks.

::

    conv, pads 1, rows 8-16 of 32     reads rows 7-17, padded as they lie in the buffer
    conv, pads 0, rows 0-8 of 8       reads rows 0-10                                       the same numbers

That holds where an operator gives the same wherever its cells lie, and where the operator over the blocks has the
shard's index space; else there is no such graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from tapestry_exec.copies import Array
from tapestry_plan.ir import BUILTIN_OPS, Attrs, Graph, Op, Shard, Tensor
from tapestry_plan.rewrite import open_block


class NotLocal(ValueError):
    """A block that is not an operator over its own cells."""


class Given(NamedTuple):
    """A block that is read: what it is, and its cells where they never change."""

    shape: tuple[int, ...]
    dtype: str
    value: Array | None = None


def make_graph(op: Op, shard: Shard, given: Sequence[Given | None]) -> Graph:
    """The graph of a block: inputs x0, x1, … for what it is given in each run, and the output y.

    Raises
    ------
    NotLocal
        Where the operator over the blocks is another one.
    """
    graph, tensors = Graph("block"), list[Tensor | None]()
    for k, one in enumerate(given):
        if one is None:
            tensors.append(None)
        elif one.value is None:
            tensors.append(graph.input(f"x{k}", one.shape, one.dtype))
        else:
            tensors.append(graph.constant(f"x{k}", one.value))
    graph.output(add_block(graph, op, shard, tensors), "y")
    return graph


def add_whole(graph: Graph, op: Op, attrs: Attrs, tensors: Sequence[Tensor | None]) -> Tensor:
    """Add a whole operator to a graph, with the attributes that it has; else as `add_block`."""
    fusion = open_block(op, attrs)
    if fusion is not None:
        count = len(fusion.first_signature.inputs)
        between = add_whole(graph, fusion.first, fusion.first_attrs, tensors[:count])
        rest = iter(tensors[count:])
        total = len(fusion.second_signature.inputs)
        operands = [between if k in fusion.at else next(rest) for k in range(total)]
        return add_whole(graph, fusion.second, fusion.second_attrs, operands)
    return _add_op(graph, op, tensors, dict(attrs))


def add_block(graph: Graph, op: Op, shard: Shard, tensors: Sequence[Tensor | None]) -> Tensor:
    """Add a block to a graph, behind the tensors that it is given.

    Raises
    ------
    NotLocal
        As `make_graph`; operators of the block that came before may be there then.
    """
    fusion = open_block(op, shard.attrs)
    if fusion is not None:
        count = len(fusion.first_signature.inputs)
        one, two = fusion.plan(shard)
        if one is None or any(two.input_boxes[k] != one.output_boxes[0] for k in fusion.at):
            raise NotLocal("the second operator reads padding, or not all that the first one makes")
        between, rest = add_block(graph, fusion.first, one, tensors[:count]), iter(tensors[count:])
        operands = [between if k in fusion.at else next(rest) for k in range(len(two.input_boxes))]
        return add_block(graph, fusion.second, two, operands)
    if op is not BUILTIN_OPS.get(op.name):
        raise NotLocal(f"{op.name} is an operator of the user's")
    found = op.attributes_of_blocks(shard, [tensor.shape for tensor in tensors if tensor is not None])
    if found is None:
        raise NotLocal(f"{op.name} depends on where its cells lie")
    made = _add_op(graph, op, tensors, {key: value for key, value in found.items() if value is not None})
    signature = graph.signature(made.name)
    if signature.index_shape != shard.index.shape or made.shape != shard.output_boxes[0].shape:
        raise NotLocal(f"over its blocks {op.name} has another index space")
    return made


def _add_op(graph: Graph, op: Op, tensors: Sequence[Tensor | None], attrs: dict[str, Any]) -> Tensor:
    if op is not BUILTIN_OPS.get(op.name):
        raise NotLocal(f"{op.name} is an operator of the user's")
    if op.has_states:
        raise NotLocal(f"{op.name} makes states")
    while tensors and tensors[-1] is None:
        tensors = tensors[:-1]
    if any(tensor is None for tensor in tensors):
        raise NotLocal("an operand before others is not there")
    try:
        made = graph.op(op, *tensors, **attrs)
    except ValueError as error:
        raise NotLocal(str(error)) from None
    if not isinstance(made, Tensor):
        raise NotLocal(f"{op.name} has several outputs")
    return made
