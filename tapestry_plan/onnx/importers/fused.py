"""Convolutions and products of com.microsoft with what ONNX Runtime's optimizer put into them: a sum, and a curve."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tapestry_plan import ops
from tapestry_plan.ir import Tensor
from tapestry_plan.onnx.importers import windows
from tapestry_plan.onnx.nodes import Importing, Node, Result, refusal
from tapestry_sets.limits import quote

CURVES: dict[str, tuple[Callable[..., Tensor], int]] = {
    "Relu": (ops.relu, 0),
    "Sigmoid": (ops.sigmoid, 0),
    "Tanh": (ops.tanh, 0),
    "Softplus": (ops.softplus, 0),
    "Softsign": (ops.softsign, 0),
    "LeakyRelu": (ops.leaky_relu, 1),
    "Elu": (ops.elu, 1),
    "ThresholdedRelu": (ops.thresholded_relu, 1),
    "Clip": (ops.clip, 2),
    "HardSigmoid": (ops.hard_sigmoid, 2),
    "Selu": (ops.selu, 2),
    "Celu": (ops.celu, 1),
    "HardSwish": (ops.hard_swish, 0),
}
"""What `activation` may say, and how many numbers each takes."""


def curved(node: Node, x: Tensor, kind: str, numbers: Sequence[float]) -> Tensor:
    """The curve that a node puts behind its result, if any, of so many numbers."""
    if not kind:
        return x
    if kind not in CURVES:
        raise refusal(node, f"activation {quote(kind)} is not supported, only {quote(list(CURVES))}")
    curve, count = CURVES[kind]
    if kind == "HardSwish" and len(numbers) == 2 and not np.allclose(numbers, (1 / 6, 0.5)):
        raise refusal(node, f"activation HardSwish of {quote(list(numbers))} is not supported, only of 1/6 and 0.5")
    if len(numbers) < count:
        raise ValueError(f"activation {kind} takes {count} numbers, {quote(list(numbers))} are given")
    return curve(x, *map(float, numbers[:count]), name=node.name)


def convolution(at: Importing, node: Node) -> Result:
    """A convolution, what is added to it, and a curve of the sum."""
    made = windows.conv(at, node)
    if node.input(3):
        made = made + _of_shape(at, node, 3, made)
    return curved(node, made, node.attrs.get("activation", ""), node.attrs.get("activation_params", ()))


def _of_shape(at: Importing, node: Node, k: int, made: Tensor) -> Tensor:
    more = at.tensor(node.inputs[k])
    if more.shape != made.shape:
        raise ValueError(
            f"its input {k} has shape {quote(more.shape)}; that of the result, {quote(made.shape)}, is needed"
        )
    return more


def product(at: Importing, node: Node) -> Result:
    """A Gemm, and a curve of it."""
    attrs = node.attrs
    how: dict[str, Any] = {"trans_a": bool(attrs.get("transA", 0)), "trans_b": bool(attrs.get("transB", 0))}
    how |= {key: float(attrs.get(key, 1.0)) for key in ("alpha", "beta")}
    made = ops.gemm(*at.inputs(node), **how)
    kind = attrs.get("activation", "")
    wanted = ("alpha", "gamma") if kind == "Selu" else ("alpha", "beta")
    numbers = [attrs[key] for key in (f"activation_{each}" for each in wanted) if key in attrs]
    return curved(node, made, kind, numbers)
