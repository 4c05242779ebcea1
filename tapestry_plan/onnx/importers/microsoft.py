"""Operators of the domain com.microsoft, which ONNX Runtime's optimizer of transformers writes: fused pieces."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tapestry_plan import ops
from tapestry_plan.onnx.nodes import Importing, Node, Result, refusal
from tapestry_sets.limits import quote


def gelu(approximate: str) -> Callable[[Importing, Node], Result]:
    """A curve of the sum of an operand and, where there is one, a bias."""

    def add(at: Importing, node: Node) -> Result:
        operands = [at.tensor(name) for name in node.inputs if name]
        x = operands[0] if len(operands) < 2 else operands[0] + operands[1]
        return ops.gelu(x, approximate, name=node.name)

    return add


def embedded(at: Importing, node: Node) -> Result:
    """The sum of the rows of words, positions and segments, normalized, and how many ones each row of a mask has."""
    if at.lacks_cells(node.inputs[0]) and len(shape := at.shape(node.inputs[0])) == 2 and shape[0]:
        none = np.empty((*shape, at.shape(node.inputs[2])[-1]), at.dtype_of(node.inputs[2]))
        return [none, np.zeros(shape[0], np.int32), none]
    words, segments, mask, places = (at.tensor(node.inputs[k]) if node.input(k) else None for k in (0, 1, 7, 8))
    assert words is not None, "it is needed"
    shapes = [one.shape for one in (words, segments, mask) if one is not None]
    if words.ndim != 2 or len(set(shapes)) > 1:
        raise ValueError(f"input_ids, segment_ids and mask have shapes {quote(shapes)}; (batch, positions) is needed")
    rows = at.tensor(node.inputs[3])
    total = ops.take(at.tensor(node.inputs[2]), words, 0)
    total = total + (rows[: words.shape[1]] if places is None else ops.take(rows, places, 0))
    if segments is not None:
        total = total + ops.take(at.tensor(node.inputs[4]), segments, 0)
    gamma, beta = (at.tensor(node.inputs[k]) for k in (5, 6))
    epsilon = float(node.attrs.get("epsilon", 1e-12))
    made = ops.layer_normalization(total, gamma, beta, axis=-1, epsilon=epsilon, name=node.name)
    if mask is None:
        return [made, at.graph.constant(f"{node.name}.ends", np.zeros(words.shape[0], np.int32)), total]
    ones = ops.equal(mask, at.graph.constant(f"{node.name}.one", np.ones((), mask.dtype)))
    return [made, ops.astype(ops.sum(ops.astype(ones, "int32"), 1), "int32"), total]


def quick_gelu(at: Importing, node: Node) -> Result:
    x = at.tensor(node.inputs[0])
    return ops.multiply(x, ops.sigmoid(x * float(node.attrs.get("alpha", 1.702))), name=node.name)


def fused_matmul(at: Importing, node: Node) -> Result:
    """A product of matrices, with axes exchanged before: the last two, or the first with those of the batch."""
    alpha, orders = float(node.attrs.get("alpha", 1.0)), []
    for name, side in zip(node.inputs, "AB", strict=True):
        order = list(range(len(at.shape(name))))
        if node.attrs.get(f"transBatch{side}") and len(order) > 2:
            order = [*order[1:-1], 0, order[-1]]
        if node.attrs.get(f"trans{side}") and len(order) > 1:
            order[-2:] = order[:-3:-1]
        orders.append(order)
    if min(map(len, orders)) < 2:
        raise refusal(node, "vectors are not supported; give matrices")
    left, right = ([at.shape(name)[k] for k in order] for name, order in zip(node.inputs, orders, strict=True))
    made = at.product_over_none(node, left, right, at.dtype_of(node.inputs[0]))
    if made is not None:
        return made
    sides = (
        x if order == sorted(order) else x.permute_dims(order) for x, order in zip(at.inputs(node), orders, strict=True)
    )
    made = ops.matmul(*sides, name=node.name)
    return made if alpha == 1 else made * alpha


def skip_normalization(at: Importing, node: Node) -> Result:
    """A normalization of a sum, which is the fourth output; the second and the third are not made."""
    is_simple = node.op_type.startswith("SkipSimplified")
    if any(node.outputs[1:3]):
        raise refusal(node, "its outputs 1 and 2, mean and deviation, are not made; nothing reads them at inference")
    bias = 3 if is_simple else 4
    x, skip, gamma = (at.tensor(name) for name in node.inputs[:3])
    total = x + skip if not node.input(bias) else x + skip + at.tensor(node.inputs[bias])
    epsilon = float(node.attrs.get("epsilon", 1e-12))
    if is_simple:
        made = ops.rms_normalization(total, gamma, axis=-1, epsilon=epsilon, name=node.name)
    else:
        beta = at.tensor(node.inputs[3]) if node.input(3) else None
        made = ops.layer_normalization(total, gamma, beta, axis=-1, epsilon=epsilon, name=node.name)
    return [made, made, made, total]
