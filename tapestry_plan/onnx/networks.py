"""Real networks to try things on, with seeded weights, and the tensors to compare them at."""

from __future__ import annotations

import hashlib
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from tapestry_plan.ir import Graph, OpNode
from tapestry_plan.onnx.models import TARGET_OPSET, read_model
from tapestry_plan.onnx.nodes import Array
from tapestry_sets.limits import list_names, quote


def he_random(model: Any, seed: int = 0) -> Any:
    """The model with new weights: seeded, and of the size that keeps values of one magnitude in all layers.

    Weights that ConstantOfShape makes become initializers, so that every runtime computes the same model.

    Parameters
    ----------
    model : onnx.ModelProto
    seed : int
        The values are a function of the seed and the weight's name.

    Returns
    -------
    onnx.ModelProto
        Weights are normal with variance 2 / fan-in, biases small, the scales of normalizations near 1, their
        variances in [0.5, 1.5]. Scalars, and what no operator computes with, stay as they are.

    References
    ----------
    He et al., "Delving Deep into Rectifiers" (arXiv 1502.01852).
    """
    import onnx
    from onnx import numpy_helper

    out = onnx.ModelProto()
    out.CopyFrom(model)
    graph = out.graph
    uses: dict[str, tuple[Any, int]] = {}
    for node in graph.node:
        for k, name in enumerate(node.input):
            uses.setdefault(name, (node, k))
    weights = _weights(graph)
    for name, (shape, dtype) in weights.items():
        array = _he_values(name, shape, dtype, *uses.get(name, (None, 0)), seed)
        if array is not None:
            _put_initializer(graph, numpy_helper.from_array(array, name))
    _drop_unused(graph)
    out.ir_version = max(out.ir_version, 10)
    return out


def _weights(graph: Any) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
    """Shapes and dtypes of the floating initializers and of what ConstantOfShape makes of known shapes."""
    from onnx import helper, numpy_helper

    known = {tensor.name: tensor for tensor in graph.initializer}
    out = {}
    for tensor in graph.initializer:
        dtype = helper.tensor_dtype_to_np_dtype(tensor.data_type)
        if dtype.kind == "f":
            out[tensor.name] = (tuple(tensor.dims), dtype)
    for node in graph.node:
        attrs = {attribute.name: attribute for attribute in node.attribute}
        if node.op_type == "Constant" and "value" in attrs:
            known[node.output[0]] = attrs["value"].t
        if node.op_type == "ConstantOfShape" and node.input[0] in known:
            value = numpy_helper.to_array(attrs["value"].t) if "value" in attrs else np.zeros(1, np.float32)
            if value.dtype.kind == "f":
                shape = numpy_helper.to_array(known[node.input[0]])
                out[node.output[0]] = (tuple(int(n) for n in shape), value.dtype)
    return out


def _he_values(
    name: str, shape: tuple[int, ...], dtype: np.dtype[Any], node: Any, operand: int, seed: int
) -> Array | None:
    """New values of a weight by what its first consumer does with it; None to leave it as it is."""
    if node is None or prod(shape) <= 1:
        return None
    digest = hashlib.sha256(name.encode()).digest()
    rng = np.random.default_rng([seed, int.from_bytes(digest[:8], "big")])
    kind = node.op_type
    if kind == "BatchNormalization" and operand == 4:
        return np.asarray(rng.random(shape) + 0.5, dtype)
    wide = np.float64 if dtype == np.float64 else np.float32
    values = rng.standard_normal(shape, wide)
    if (kind in ("BatchNormalization", "LayerNormalization") and operand == 1) or kind in ("Mul", "Div"):
        values = 1 + 0.1 * values
    elif len(shape) < 2 or kind in ("Add", "Sub", "Sum") or (kind in ("Gemm", "Conv") and operand == 2):
        values *= 0.1
    else:
        values *= (2 / _fan_in(shape, node, operand)) ** 0.5
    return np.asarray(values, dtype)


def _fan_in(shape: tuple[int, ...], node: Any, operand: int) -> int:
    """How many products are summed up for each output value."""
    attrs = {attribute.name: attribute.i for attribute in node.attribute}
    if node.op_type == "MatMul":
        return shape[-2] if operand == 1 else shape[-1]
    if node.op_type == "Gemm":
        transposed = attrs.get("transB" if operand == 1 else "transA", 0)
        return shape[0] if (operand == 1) != bool(transposed) else shape[1]
    return prod(shape[1:])  # Conv: channels of a group times kernel; Transpose of a linear layer: its inputs


def _put_initializer(graph: Any, tensor: Any) -> None:
    for k, old in enumerate(graph.initializer):
        if old.name == tensor.name:
            graph.initializer[k].CopyFrom(tensor)
            return
    for k, node in enumerate(graph.node):
        if tensor.name in node.output:
            del graph.node[k]
            break
    graph.initializer.append(tensor)


def _drop_unused(graph: Any) -> None:
    """Remove initializers that nothing reads, and inputs that are initializers."""
    read = {name for node in graph.node for name in node.input} | {value.name for value in graph.output}
    names = {tensor.name for tensor in graph.initializer}
    for entries in (graph.initializer, graph.input):
        for k in reversed(range(len(entries))):
            name = entries[k].name
            if (entries is graph.initializer and name not in read) or (entries is graph.input and name in names):
                del entries[k]


def light_model(name: str, seed: int = 0) -> Any:
    """A network graph that ships in the onnx package, in a current opset and with `he_random` weights.

    Parameters
    ----------
    name : str
        For instance "squeezenet", "bvlc_alexnet" or "resnet50".
    seed : int

    Returns
    -------
    onnx.ModelProto

    Raises
    ------
    ValueError
        When there is no such network; the message lists those that there are.
    """
    import onnx
    from onnx import version_converter

    folder = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
    there = sorted(path.stem.removeprefix("light_") for path in folder.glob("light_*.onnx"))
    if name not in there:
        raise ValueError(
            f"light_model: there is no network {quote(name)} in {folder}; {list_names(there, name, 'networks')}"
        )
    model = onnx.load(folder / f"light_{name}.onnx")
    return he_random(version_converter.convert_version(model, TARGET_OPSET), seed)


def demo_model(seed: int = 0) -> Any:
    """SqueezeNet from the onnx package with seeded weights, as an onnx.ModelProto (see `light_model`)."""
    return light_model("squeezenet", seed)


RESHAPING = frozenset({"Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose"})
"""Nodes behind which `before_softmax` looks for a softmax."""


def before_softmax(model_or_graph: Any) -> tuple[str, ...]:
    """Names of the tensors whose softmax the outputs are, to compare values that a softmax has not flattened.

    Parameters
    ----------
    model_or_graph : Graph, or anything that `load_onnx` reads

    Returns
    -------
    tuple of str
        For each output the input of the softmax that makes it, reshaped or not; the output itself where no
        softmax does.
    """
    if isinstance(model_or_graph, Graph):
        return tuple(_before_in_graph(model_or_graph, name) for name in model_or_graph.outputs.values())
    model, _ = read_model(model_or_graph)
    makers = {name: node for node in model.graph.node for name in node.output}
    found = []
    for value in model.graph.output:
        node = makers.get(value.name)
        while node is not None and node.op_type in RESHAPING:
            node = makers.get(node.input[0])
        is_softmax = node is not None and node.op_type in ("Softmax", "LogSoftmax")
        found.append(node.input[0] if node is not None and is_softmax else value.name)
    return tuple(dict.fromkeys(found))


def _before_in_graph(graph: Graph, output: str) -> str:
    makers: dict[str, OpNode] = {name: node for node in graph.nodes.values() for name in node.outputs}
    name = output
    while name in graph.selections and len(graph.selections[name].inputs) == 1:
        name = graph.selections[name].inputs[0]
    node = makers.get(name)
    return node.inputs[0] if node is not None and node.op in ("softmax", "log_softmax") else output
