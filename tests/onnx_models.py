"""Small ONNX models, ONNX Runtime as the reference, and a plain evaluation of graphs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from tapestry_plan import Graph, Shard
from tapestry_sets.views import IndexMap

Array = NDArray[Any]
NOT_IN_RUNTIME = {"CumProd", "TensorScatter"}
"""Operators that ONNX Runtime has not yet, of which ONNX's reference is the judge."""


def random(*shape: int, seed: int = 1) -> Array:
    """Standard normal float32 numbers."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def ort(model: Any, feeds: dict[str, Array], names: Sequence[str] | None = None) -> list[Array]:
    """The outputs of a model, or any of its tensors, by ONNX Runtime; by ONNX's reference where that has not all."""
    if any(node.op_type in NOT_IN_RUNTIME for node in model.graph.node):
        return [np.asarray(array) for array in ReferenceEvaluator(model).run(names, feeds)]
    shown = onnx.ModelProto()
    shown.CopyFrom(model)
    own = [value.name for value in model.graph.output]
    names = list(names or own)
    for name in names:
        if name not in own:
            shown.graph.output.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, None))
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(shown.SerializeToString(), options, ["CPUExecutionProvider"])
    result: list[Array] = session.run(names, feeds)
    return result


def evaluate(graph: Graph, feeds: dict[str, Array]) -> dict[str, Array]:
    """The outputs of a graph, every operator run on whole tensors."""
    values = {name: tensor.data for name, tensor in graph.stored.items() if tensor.kind == "constant"} | feeds
    for node in graph.order():
        inputs = [read(graph, name, values) for name in node.inputs]
        outputs = [np.full(graph.stored[n].shape, np.nan, graph.stored[n].dtype) for n in node.outputs]
        run_whole(graph, node.name, inputs, outputs)
        values.update(zip(node.outputs, outputs, strict=True))
    return {label: read(graph, name, values) for label, name in graph.outputs.items()}


def run_whole(graph: Graph, name: str, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
    node, signature = graph.nodes[name], graph.signature(name)
    boxes = tuple(signature.input_box(k, signature.index) for k in range(len(inputs)))
    out_boxes = tuple(operand.projection.bounding_box(signature.index) for operand in signature.outputs)
    blocks = []
    for k, (box, array) in enumerate(zip(boxes, inputs, strict=True)):
        assert box is not None
        margins = [(max(0, -a), max(0, b - n)) for a, b, n in zip(box.start, box.stop, array.shape, strict=True)]
        fill = signature.inputs[k].pad
        padded = np.pad(array, margins, constant_values=0 if fill is None else fill) if array.ndim else array
        starts = [a + m for a, (m, _) in zip(box.start, margins, strict=True)]
        blocks.append(padded[(..., *(slice(a, a + n) for a, n in zip(starts, box.shape, strict=True)))])
    op = graph.ops[node.op]
    itemsize = outputs[0].itemsize
    nbytes = op.workspace(Shard(signature.index, signature, node.attrs, boxes, out_boxes, None), itemsize)
    scratch = np.empty(nbytes, np.uint8)
    op.block(np, blocks, outputs, Shard(signature.index, signature, node.attrs, boxes, out_boxes, scratch))


def read(graph: Graph, name: str, values: dict[str, Array]) -> Array:
    """A tensor through its selections, point by point."""
    if name in values:
        return values[name]
    source = graph.source(name)
    points = np.argwhere(np.ones(source.shape, bool)).astype(np.int64)
    out = np.zeros(len(points), source.dtype)
    times = np.zeros(len(points), int)
    for piece in source.pieces:
        holds = np.ones(len(points), bool)
        for guard in piece.guards:
            at = IndexMap(piece.map.steps[: guard.prefix], len(source.shape)).apply_array(points)
            low, high = guard.region.bounds() or ((), ())
            assert guard.region.is_box
            holds &= ((at >= low) & (at < high)).all(axis=1)
        times += holds
        if piece.source < 0:
            out[holds] = piece.fill
            continue
        cells = piece.map.apply_array(points[holds])
        out[holds] = values[source.stored[piece.source]][tuple(cells.T)]
    assert (times == 1).all()
    return out.reshape(source.shape)


def difference(actual: Array, wanted: Array) -> float:
    """max |difference| / max |reference|, after the shapes and dtypes are seen to agree."""
    assert actual.shape == wanted.shape and actual.dtype == wanted.dtype
    if not wanted.size:
        return 0.0
    assert not np.isnan(actual.astype(np.float64)).any()
    scale = float(np.abs(wanted.astype(np.float64)).max()) or 1.0
    return float(np.abs(actual.astype(np.float64) - wanted.astype(np.float64)).max()) / scale


def random_feeds(graph: Graph, seed: int = 0) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    inputs = [tensor for tensor in graph.stored.values() if tensor.kind == "input"]
    return {t.name: np.asarray(rng.standard_normal(t.shape) * 2, t.dtype) for t in inputs}


def model_of(
    nodes: Sequence[Any],
    inputs: dict[str, Any],
    outputs: Sequence[str] = ("y",),
    constants: dict[str, Any] | None = None,
    opset: int = 21,
    dtype: int = TensorProto.FLOAT,
) -> Any:
    """A small model; `inputs` gives shapes, where a text is a symbolic axis and None an unknown one."""
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info(name, dtype, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(name, TensorProto.UNDEFINED, None) for name in outputs],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in (constants or {}).items()],
    )
    for value in graph.output:  # an output of unknown type is left to the runtime
        value.type.tensor_type.elem_type = dtype
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
