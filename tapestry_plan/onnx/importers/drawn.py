"""Operators of ONNX that draw: each cell is a function of a seed, the name of the node's result and its number.

So any split draws the same, and a part of a model what the whole draws. ONNX leaves the numbers open, also those of a
given seed.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from tapestry_plan import ops
from tapestry_plan.ir import SHORT_DTYPES, Tensor
from tapestry_plan.onnx import tuning
from tapestry_plan.onnx.nodes import Importing, Node, Result, refusal
from tapestry_plan.ops import Operator
from tapestry_sets.limits import quote

Numbers = tuple[Operator[..., Tensor], tuple[str, str], tuple[float, float]]
"""A generator, and the names and defaults of ONNX's two numbers of its distribution."""
UNIFORM: Numbers = (ops.uniform, ("low", "high"), (0.0, 1.0))
NORMAL: Numbers = (ops.normal, ("mean", "scale"), (0.0, 1.0))


def drawn(numbers: Numbers) -> Callable[[Importing, Node], Result]:
    """RandomUniform and RandomNormal, of a shape that the node says, or of its operand's."""
    function, names, usual = numbers

    def add(at: Importing, node: Node) -> Result:
        attrs, like = node.attrs, node.input(0)
        shape = at.shape(like) if like else tuple(int(n) for n in attrs["shape"])
        own = at.dtype_of(like) if like else at.dtype(tuning.FLOAT)
        dtype = at.dtype(attrs["dtype"]) if attrs.get("dtype") else own
        first, second = (float(attrs.get(name, default)) for name, default in zip(names, usual, strict=True))
        if any(n < 0 for n in shape):
            raise ValueError(f"shape is {quote(shape)}; extents are at least 0")
        if np.dtype(dtype).kind != "f" and dtype not in SHORT_DTYPES:
            raise ValueError(f"its numbers would be {dtype}; they are floating ones: give it such a dtype")
        if function is ops.uniform and not first <= second < np.inf:
            raise refusal(node, f"low = {first} and high = {second} are not supported, only finite ones in this order")
        wide = "float64" if dtype == "float64" else "float32"
        ends = _ends(first, second, dtype) if function is ops.uniform and dtype != wide else (first, second)
        if prod(shape) == 0 or (function is ops.uniform and (first == second or ends[0] > ends[1])):
            at.bind_computed(node, node.outputs[0], at.fill(node, np.asarray(first, dtype), shape))
            return None
        made = function(at.graph, shape, first, second, dtype=wide, name=node.name, **_key(node))
        if function is ops.uniform and dtype != wide:  # which rounding may reach
            made = ops.clip(made, *ends)
        return ops.astype(made, dtype)

    return add


def _ends(low: float, high: float, dtype: str) -> tuple[float, float]:
    """The first number of a dtype from `low` on, and the last one below `high`."""
    first, last = (np.asarray(n).astype(dtype) for n in (low, high))
    above, below = (np.asarray(n).astype(dtype) for n in (np.inf, -np.inf))
    first = np.nextafter(first, above) if float(first) < low else first
    last = np.nextafter(last, below) if float(last) >= high else last
    return float(first), float(last)


def bernoulli(at: Importing, node: Node) -> Result:
    """True where a number from 0 to 1 is below the cell's probability."""
    x, own = at.tensor(node.inputs[0]), at.dtype_of(node.inputs[0])
    dtype = at.dtype(node.attrs["dtype"]) if node.attrs.get("dtype") else own
    share = ops.uniform(at.graph, x.shape, dtype=_wide(x), **_key(node))
    return ops.astype(ops.less(share, ops.astype(x, _wide(x))), dtype, name=node.name)


def multinomial(at: Importing, node: Node) -> Result:
    """The first class whose share and those before it come to more than a number from 0 to 1."""
    x, count = ops.astype(at.tensor(node.inputs[0]), _wide(at.tensor(node.inputs[0]))), node.attrs.get("sample_size", 1)
    dtype = at.dtype(node.attrs.get("dtype", tuning.INT32))
    if x.ndim != 2 or count < 1 or dtype not in ("int32", "int64"):
        raise ValueError(
            f"sample_size is {count} and dtype {dtype}, beside an operand of shape {quote(x.shape)}: give a number "
            "above 0, int32 or int64, and (batch, classes)"
        )
    sums = ops.cumulative_sum(ops.exp(x - ops.max(x, (1,), keepdims=True)), 1)
    picks = ops.uniform(at.graph, (x.shape[0], count), dtype=x.dtype, **_key(node)) * sums[:, -1:]
    behind = ops.greater_equal(picks.expand_dims(2), sums.expand_dims(1))
    return ops.astype(ops.sum(ops.astype(behind, dtype), (2,)), dtype, name=node.name)


def dropout(at: Importing, node: Node, ratio: float) -> Sequence[Tensor]:
    """Dropout in training, with the mask of what is kept where something reads it."""
    x = at.tensor(node.inputs[0])
    values = ops.astype(x, _wide(x)) if x.dtype in SHORT_DTYPES else x
    if not (len(node.outputs) > 1 and node.outputs[1]):
        return [ops.astype(ops.dropout(values, ratio, name=node.name, **_key(node)), x.dtype)]
    share = ops.uniform(at.graph, x.shape, **_key(node))
    kept = ops.greater_equal(share, at.graph.constant(f"{node.name}.ratio", np.float32(ratio)))
    zero = at.graph.constant(f"{node.name}.zero", np.zeros((), values.dtype))
    return [ops.astype(ops.where(kept, values * (1 / (1 - ratio)), zero, name=node.name), x.dtype), kept]


def _wide(x: Tensor) -> str:
    """The dtype of the numbers that are drawn beside an operand."""
    if np.dtype(x.dtype).kind != "f" and x.dtype not in SHORT_DTYPES:
        raise ValueError(f"its operand is {x.dtype}; floating numbers are needed: cast it")
    return "float64" if x.dtype == "float64" else "float32"


def _key(node: Node) -> dict[str, Any]:
    """The seed that the node says, and a stream of its own, by its first output: several may have one name."""
    seed = node.attrs.get("seed")
    word = 0 if seed is None else zlib.crc32(struct.pack("<d", seed))
    return {"seed": word, "stream": zlib.crc32(next(filter(None, node.outputs), "").encode())}
