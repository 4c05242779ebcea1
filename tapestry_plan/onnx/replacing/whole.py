"""Nodes that are refused, and have no body that could stand in their place: whole.

results of known shapes, of numbers of NumPy ─► `ops.opaque`: whole on a device
others ───────────────────────────────────────► refused, or between two stages
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from tapestry_plan import ops
from tapestry_plan.ir import Tensor, UnsupportedOp
from tapestry_plan.onnx import tuning
from tapestry_plan.onnx.inference import infer_model
from tapestry_plan.onnx.nodes import Importing, Node, NotOfGraphs, is_number
from tapestry_sets.limits import quote

RANDOM_OPS = frozenset(
    {"RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Multinomial", "Bernoulli"}
)
"""Never evaluated in advance: each run is to draw anew."""


FROM_VALUES = "has a shape that follows from values"
"""Of an output, why it cannot be declared."""


MISREAD = frozenset({"GRU", "LSTM", "RNN"})
"""Operators of ONNX that its reference implementation runs otherwise than ONNX says: without a word it takes the usual
activations for others, and leaves out lengths of sequences."""


class NotWhole(UnsupportedOp):
    """A node that no operator of a graph can be, whole or in parts; the message says why."""


def reads_of(node: Node) -> list[str]:
    """What a node and the graphs inside it read, each once."""
    return list(dict.fromkeys(name for name in (*node.inputs, *(node.captured or ())) if name))


def _type_of(at: Importing, name: str) -> Any:
    """The type of a model tensor, as ONNX writes it."""
    from onnx import helper

    dtype = at.tensors[name].dtype if name in at.tensors else at.value(name).dtype
    return helper.make_tensor_type_proto(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), at.shape(name))


def add_whole(at: Importing, node: Node, why: str = "") -> None:
    """Add a node to the graph as an operator that runs it whole, since it was refused for a reason.

    Raises
    ------
    NotWhole
        Where the shapes of its results follow from values, it reads nothing that a run is given, or ONNX's reference
        does not implement it.
    NotOfGraphs
        Where it makes what no graph has.
    """
    reads = reads_of(node)
    inside = [name for name in reads if at.is_known(name) and not _is_operand(at.value(name))]
    operands = [name for name in reads if name not in inside]
    if not operands:
        raise NotWhole(f"{node.where} reads nothing that a run is given")
    model = model_of_node(
        at, node, {name: _type_of(at, name) for name in operands}, {name: at.value(name) for name in inside}
    )
    try:
        inferred = infer_model(model)
    except ValueError as error:
        raise NotWhole(f"{node.where}: {error}") from None
    found = [_shape_and_dtype(node, k, value) for k, value in enumerate(inferred.graph.output)]
    text = ops.encode_model(inferred)
    try:
        ops.open_reference(text)
    except ValueError as error:
        raise NotWhole(f"{node.where}: {error}") from None
    kinds = f"{node.operator} of ONNX, run whole by its reference implementation"
    made = ops.add_op(
        ops.opaque.op,
        *(at.tensor(name) for name in operands),
        name=node.name,
        model=text,
        shapes=tuple(shape for shape, _ in found),
        dtypes=tuple(dtype for _, dtype in found),
        why=f"{kinds}: {why}" if why else kinds,
    )
    results = [made] if isinstance(made, Tensor) else list(made)
    for name, result in zip(filter(None, node.outputs), results, strict=True):
        at.bind(name, result)


def _is_operand(array: Any) -> bool:
    """Whether a known value is read by an operator, and not part of it: shapes, axes and what no graph has are."""
    return is_number(array.dtype) and array.size > tuning.SHAPE_CELLS


def model_of_node(at: Importing, node: Node, types: Mapping[str, Any], values: Mapping[str, Any]) -> Any:
    """A model of one node: its inputs by type, the values that are part of it, and its outputs that are read."""
    from onnx import NodeProto, helper, numpy_helper

    if node.op_type in MISREAD and not node.domain:
        raise NotWhole(
            f"{node.where}: ONNX's reference implementation does not heed all that a {node.op_type} is given"
        )
    proto = NodeProto()
    proto.CopyFrom(node.proto)
    proto.name = ""
    if node.op_type == "Loop" and not node.domain and not node.input(1):  # the reference takes none for a false one
        proto.input[:] = [node.input(0), f"{node.name}.condition", *node.inputs[2:]]
        values = {**values, f"{node.name}.condition": np.asarray(True)}
    has_seed = any(attribute.name == "seed" for attribute in proto.attribute)
    if node.op_type in RANDOM_OPS and not node.domain and not has_seed:
        # ONNX leaves the seed open; a fixed one lets every device, and the run that is compared with, draw the same.
        proto.attribute.append(helper.make_attribute("seed", float(zlib.crc32(node.name.encode()) % 2**16)))
    graph = helper.make_graph(
        [proto],
        node.op_type,
        [helper.make_value_info(name, kind) for name, kind in types.items()],
        [helper.make_empty_tensor_value_info(name) for name in node.outputs if name],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in values.items()],
    )
    opsets = [helper.make_opsetid(domain, version) for domain, version in sorted(at.opsets.items())]
    return helper.make_model(graph, opset_imports=opsets, ir_version=max(tuning.IR_VERSION, at.ir_version))


def _shape_and_dtype(node: Node, k: int, value: Any) -> tuple[tuple[int, ...], str]:
    from onnx import TensorProto, helper

    kind = value.type.WhichOneof("value")
    where = f"{node.where}: its output {quote(value.name)}"
    if kind != "tensor_type":
        raise NotOfGraphs(f"{where} is {kind or 'of no known type'}, not a tensor")
    tensor = value.type.tensor_type
    dims = list(tensor.shape.dim)
    if not tensor.HasField("shape") or not all(dim.HasField("dim_value") for dim in dims):
        raise NotWhole(f"{where} {FROM_VALUES}")
    shape = tuple(int(dim.dim_value) for dim in dims)
    dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type) if tensor.elem_type else np.dtype(object)
    if not is_number(dtype):
        label = TensorProto.DataType.Name(tensor.elem_type)
        raise NotOfGraphs(f"{where} has elements of type {label}, which are not numbers of NumPy")
    if 0 in shape:
        raise NotOfGraphs(f"{where} of shape {quote(shape)} has no cells")
    return shape, str(dtype.name)


def run_node(at: Importing, node: Node, given: Mapping[str, Any]) -> dict[str, Any]:
    """What a node makes of values, by ONNX's reference: arrays, or lists of them.

    Raises
    ------
    UnsupportedOp
        Where the reference does not run it.
    """
    from onnx import TypeProto

    model = model_of_node(at, node, dict.fromkeys(given, TypeProto()), {})
    try:
        results = ops.run_reference(ops.encode_model(model), given)
    except ValueError as error:
        raise NotWhole(f"{node.where}: {error}") from None
    return dict(zip(filter(None, node.outputs), results, strict=True))
