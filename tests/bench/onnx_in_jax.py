"""Networks of ONNX in jax.numpy, node by node: what programs of JAX say of the same values by the same names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from onnx import helper, numpy_helper


def run_nodes(model: Any, given: Mapping[str, Any], at: Callable[[str, Any], Any]) -> dict[str, Any]:
    """All values of a model by name, each as `at` gives it back; nodes whose results are given are left out."""
    values = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer} | dict(given)
    for node in model.graph.node:
        if all(name in values for name in node.output):
            continue
        attrs = {one.name: helper.get_attribute_value(one) for one in node.attribute}
        made = NODES[node.op_type](attrs, *(values[name] if name else None for name in node.input))
        for name, value in zip(node.output, made if isinstance(made, (list, tuple)) else [made], strict=True):
            values[name] = at(name, value)
    return values


def _gemm(a: Mapping[str, Any], x: Any, w: Any, b: Any = None) -> Any:
    made = (x.T if a.get("transA") else x) @ (w.T if a.get("transB") else w) * a.get("alpha", 1.0)
    return made if b is None else made + a.get("beta", 1.0) * b


def _normalize(a: Mapping[str, Any], x: Any, scale: Any, bias: Any) -> Any:
    over = tuple(range(a.get("axis", -1) % x.ndim, x.ndim))
    apart = x - x.mean(over, keepdims=True)
    return apart / jnp.sqrt((apart**2).mean(over, keepdims=True) + a.get("epsilon", 1e-5)) * scale + bias


def _reshape(a: Mapping[str, Any], x: Any, shape: Any) -> Any:
    return x.reshape([x.shape[k] if n == 0 else int(n) for k, n in enumerate(np.asarray(shape))])


def _expand(a: Mapping[str, Any], x: Any, shape: Any) -> Any:
    return jnp.broadcast_to(x, np.broadcast_shapes(x.shape, tuple(map(int, np.asarray(shape)))))


def _split(a: Mapping[str, Any], x: Any, sizes: Any = None) -> Any:
    if sizes is None:
        return jnp.split(x, a["num_outputs"], a.get("axis", 0))
    return jnp.split(x, np.cumsum(np.asarray(sizes))[:-1], a.get("axis", 0))


def _pads(a: Mapping[str, Any]) -> list[tuple[int, int]]:
    pads = a.get("pads", [0, 0, 0, 0])
    return list(zip(pads[:2], pads[2:], strict=True))


def _conv(a: Mapping[str, Any], x: Any, w: Any, b: Any = None) -> Any:
    made = jax.lax.conv_general_dilated(
        x,
        w,
        a.get("strides", [1, 1]),
        _pads(a),
        None,
        a.get("dilations", [1, 1]),
        feature_group_count=a.get("group", 1),
    )
    return made if b is None else made + b[:, None, None]


def _max_pool(a: Mapping[str, Any], x: Any) -> Any:
    window = (1, 1, *a["kernel_shape"])
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, window, (1, 1, *a["strides"]), [(0, 0), (0, 0), *_pads(a)])


NODES: dict[str, Callable[..., Any]] = {
    "Add": lambda a, x, y: x + y,
    "Conv": _conv,
    "Expand": _expand,
    "Gather": lambda a, x, i: jnp.take(x, i, axis=a.get("axis", 0)),
    "GatherElements": lambda a, x, i: jnp.take_along_axis(x, i, axis=a.get("axis", 0)),
    "Gelu": lambda a, x: jax.nn.gelu(x, approximate=a.get("approximate", b"none") == b"tanh"),
    "Gemm": _gemm,
    "IsNaN": lambda a, x: jnp.isnan(x),
    "LayerNormalization": _normalize,
    "MatMul": lambda a, x, y: x @ y,
    "MaxPool": _max_pool,
    "Mul": lambda a, x, y: x * y,
    "Pow": lambda a, x, y: x**y,
    "ReduceMean": lambda a, x, over: x.mean(tuple(map(int, np.asarray(over))), keepdims=bool(a.get("keepdims", 1))),
    "Relu": lambda a, x: jnp.maximum(x, 0),
    "Reshape": _reshape,
    "Softmax": lambda a, x: jax.nn.softmax(x, axis=a.get("axis", -1)),
    "Split": _split,
    "Tanh": lambda a, x: jnp.tanh(x),
    "Transpose": lambda a, x: x.transpose(a["perm"]),
    "Where": lambda a, c, x, y: jnp.where(c, x, y),
}
