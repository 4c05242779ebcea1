"""What a model of few nodes comes to in double precision, rounded once at the end or after each node.

Each node runs alone in ONNX's reference, with numbers in double precision where the model has shorter ones.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
from onnx import NodeProto, TensorProto, shape_inference
from onnx.helper import (
    make_graph,
    make_model,
    make_tensor_value_info,
    np_dtype_to_tensor_dtype,
    tensor_dtype_to_np_dtype,
)
from onnx.reference import ReferenceEvaluator

SHORT = (TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.FLOAT)


def evaluate_exactly(model: Any, feeds: Mapping[str, Any], *, rounds: bool) -> dict[str, Any]:
    """The outputs by name in double precision; with `rounds` every node's outputs are rounded to their own types."""
    model = shape_inference.infer_shapes(model)
    declared = (*model.graph.input, *model.graph.value_info, *model.graph.output)
    types = {value.name: value.type.tensor_type.elem_type for value in declared}
    arrays = {name: _widen(array) for name, array in feeds.items()}
    for node in model.graph.node:
        for name, array in zip(node.output, _run(model, node, arrays), strict=True):
            if name:
                wide = _widen(array)
                is_rounded = rounds and types[name] in SHORT
                arrays[name] = _widen(wide.astype(tensor_dtype_to_np_dtype(types[name]))) if is_rounded else wide
    return {value.name: arrays[value.name] for value in model.graph.output}


def _widen(array: Any) -> Any:
    array = np.asarray(array)
    is_short = np_dtype_to_tensor_dtype(array.dtype) in SHORT
    return array.astype(np.float64) if is_short else array


def _run(model: Any, node: NodeProto, arrays: Mapping[str, Any]) -> list[Any]:
    """A node's outputs; one that would shorten numbers leaves them as they are."""
    alone = NodeProto()
    alone.CopyFrom(node)
    if node.op_type == "Cast" and node.attribute[0].i in SHORT:
        alone.attribute[0].i = TensorProto.DOUBLE
    reads = [name for name in dict.fromkeys(node.input) if name]
    inputs = [make_tensor_value_info(name, np_dtype_to_tensor_dtype(arrays[name].dtype), None) for name in reads]
    outputs = [make_tensor_value_info(name, TensorProto.UNDEFINED, None) for name in node.output if name]
    graph = make_graph([alone], "alone", inputs, outputs)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        one = make_model(graph, opset_imports=model.opset_import)
        found = iter(ReferenceEvaluator(one).run(None, {name: arrays[name] for name in reads}))
    return [next(found) if name else None for name in node.output]
