"""Nodes that are refused, and have no body that could stand in their place: whole.

results without cells ────────────────────────► known, whatever they are computed from
results of known shapes, of numbers of NumPy ─► `ops.opaque`: whole on a device
others ───────────────────────────────────────► refused, or between two stages
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Mapping, Sequence
from math import prod
from types import MappingProxyType
from typing import Any

import numpy as np

from tapestry_plan import ops
from tapestry_plan.ir import Tensor, UnsupportedOp
from tapestry_plan.onnx import tuning
from tapestry_plan.onnx.importers.learned import OF_ROWS, ROW
from tapestry_plan.onnx.inference import Way, infer_model
from tapestry_plan.onnx.nodes import (
    CEIL_POOLS,
    Importing,
    Node,
    NotOfGraphs,
    is_number,
    schema_of,
)
from tapestry_plan.onnx.replacing.rounds import PlaceNodes, find_cut, open_extents
from tapestry_sets.limits import quote

FROM_VALUES = "has a shape that follows from values"
"""Of an output, why it cannot be declared."""


class NotWhole(UnsupportedOp):
    """A node that no operator of a graph can be, whole or in parts; the message says why."""


class NotRun(NotWhole):
    """A node that neither ONNX's reference nor ONNX Runtime takes, whatever its values are."""


class RunsWhole(UnsupportedOp):
    """A node that its importer holds for wrong, and that ONNX Runtime or ONNX's reference runs."""


def reads_of(node: Node) -> list[str]:
    """What a node and the graphs inside it read, each once."""
    return list(dict.fromkeys(name for name in (*node.inputs, *(node.captured or ())) if name))


def _type_of(at: Importing, name: str) -> Any:
    """The type of a model tensor, as ONNX writes it."""
    from onnx import helper

    dtype = at.tensors[name].dtype if name in at.tensors else at.value(name).dtype
    return helper.make_tensor_type_proto(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), at.shape(name))


def add_whole(at: Importing, node: Node, why: str = "", *, place: PlaceNodes, declared: bool = True) -> None:
    """Add a node to the graph as an operator that runs it whole, since it was refused for a reason.

    A Loop or Scan runs in parts along the axes that its rounds do not mix (`find_cut`), for which `place` adds the
    nodes of its body to a graph of their own; one of `OF_ROWS` in parts of the rows.

    With `declared` a Loop, an If or a Scan has the shapes that the model declares where none are found. Results without
    cells are known, and so are those of a node that reads nothing which a run is given.

    Raises
    ------
    NotWhole
        Where the shapes of its results follow from values, it draws, and reads nothing that a run is given, or, as
        NotRun, neither ONNX's reference nor ONNX Runtime takes it.
    NotOfGraphs
        Where it makes what no graph has.
    """
    from onnx import helper

    if not _operands_of(at, node):
        _compute(at, node)
        return
    cut, work = find_cut(at, node, place)
    follows = cut.follows if cut is not None else {}
    if cut is not None:
        node = cut.node
        for name, array in cut.constants.items():
            at.bind(name, array)
    split = {name for name, axes in follows.items() if any(axes)}
    operands = _operands_of(at, node, split)
    inferred = _infer_node(at, node, split)
    for value in inferred.graph.output:
        if cut is not None and not _has_shape(value) and value.type.tensor_type.elem_type:
            kind = helper.make_tensor_type_proto(value.type.tensor_type.elem_type, cut.shapes[value.name])
            value.type.CopyFrom(kind)
    if declared and node.captured is not None:
        for value in inferred.graph.output:
            _take_declared(value, at.declared.get(value.name))
    results = [_shape_and_dtype(node, value) for value in inferred.graph.output]
    if _bind_if_empty(at, node, inferred, results):
        return
    if _has_rows(node, inferred):
        values = (*inferred.graph.input, *inferred.graph.output)
        follows = {one.name: (ROW, *[""] * (len(one.type.tensor_type.shape.dim) - 1)) for one in values}
        split = {value.name for value in values}
    kept = {}
    for value, (shape, dtype) in zip(list(inferred.graph.output), results, strict=True):
        if 0 in shape:
            at.bind_computed(node, value.name, np.empty(shape, dtype))
            inferred.graph.output.remove(value)
        else:
            kept[value.name] = shape, dtype
    names = [*operands, *kept] if split else []
    if split:
        open_extents(inferred, follows)
    text = ops.encode_model(inferred)
    parts = "in parts of its rows" if cut is None else "in parts of all its rounds"
    kinds = f"{node.operator} of ONNX, run {parts if split else 'whole on one device'}"
    made = ops.add_op(
        ops.opaque.op,
        *(at.tensor(name) for name in operands),
        name=node.name,
        model=text,
        shapes=tuple(shape for shape, _ in kept.values()),
        dtypes=tuple(dtype for _, dtype in kept.values()),
        why=f"{kinds}: {why}" if why else kinds,
        follows=tuple(
            follows.get(name) or ("",) * len(kept[name][0] if name in kept else at.shape(name)) for name in names
        )
        or None,
        inside=work.inside or None,
        rounds=work.rounds,
    )
    for name, result in zip(kept, [made] if isinstance(made, Tensor) else made, strict=True):
        at.bind(name, result)


def _compute(at: Importing, node: Node) -> None:
    """Bind what a node makes of values that are all known: its operator is one that no graph has."""
    if node.op_type in ops.RANDOM_OPS:
        raise NotWhole(f"{node.where} draws, and reads nothing that a run is given")
    given = {name: at.value(name) for name in reads_of(node)}
    at.spend(node, sum(value.nbytes for value in given.values()))
    try:
        made = run_node(at, node, given)
    except NotWhole as error:
        raise NotRun(str(error)) from None
    for name, value in made.items():
        if not isinstance(value, np.ndarray) or not is_number(value.dtype):
            raise NotOfGraphs(f"{node.where}: its output {quote(name)} is not a tensor of numbers of NumPy")
        at.spend(node, value.nbytes)
        at.bind_computed(node, name, value)


def bind_without_cells(at: Importing, node: Node) -> bool:
    """Bind the results of a node, if none has a cell, and tell whether that is so.

    Raises
    ------
    NotRun
        Where inference finds such results, but who runs nodes whole does not take operands of these shapes.
    """
    try:
        inferred = _infer_node(at, node)
        if not _operands_of(at, node) and not all(map(_has_shape, inferred.graph.output)):
            inferred = infer_model(inferred, "run")  # of values that are known, which no inference looks at
        results = [_shape_and_dtype(node, value) for value in inferred.graph.output]
    except ValueError:
        return False
    return _bind_if_empty(at, node, inferred, results)


def _bind_if_empty(at: Importing, node: Node, inferred: Any, results: Sequence[tuple[tuple[int, ...], str]]) -> bool:
    if not all(0 in shape for shape, _ in results):
        return False
    if _count_read(at, node) < tuning.INFERENCE_NBYTES // 2:  # else the process has no room for so many zeros
        try:
            infer_model(inferred, "run")
        except ValueError as error:
            raise NotRun(f"{node.where}: {error}") from None
    for value, (shape, dtype) in zip(inferred.graph.output, results, strict=True):
        at.bind_computed(node, value.name, np.empty(shape, dtype))
    return True


def check_runs(at: Importing, node: Node, why: str) -> None:
    """Refuse a small node that its importer does not take, for a reason, where nobody who runs nodes whole does either.

    Nodes with graphs inside are not looked at: those may run for long.

    Raises
    ------
    NotRun
        Where a run of the node fails on zeros, and on ones.
    """
    if node.captured is not None:
        return
    try:
        inferred = _infer_node(at, node)
        results = [_shape_and_dtype(node, value) for value in inferred.graph.output]
    except ValueError:
        return  # who adds it as an operator that runs whole says so
    made = sum(prod(shape) * np.dtype(dtype).itemsize for shape, dtype in results)
    if made + _count_read(at, node) > tuning.INFERENCE_NBYTES // 64:
        return
    try:
        infer_model(inferred, "run")
    except ValueError:
        said = why.removeprefix(f"{node.where}: ")
        raise NotRun(f"{node.where}: {said}; neither ONNX Runtime nor ONNX's reference takes it so either") from None


def refuse_if_runs(at: Importing, node: Node, error: ValueError) -> RunsWhole:
    """What refuses a small node that is wrong for its importer, and right for those who run nodes whole.

    They are shown all its known values, and zeros or ones for others. Nodes with graphs inside are not looked at: those
    may run for long.

    Raises
    ------
    ValueError
        The importer's own error, where the node does not run.
    """
    names = reads_of(node)
    is_asked = node.captured is None and not any(map(at.lacks_cells, names))
    nbytes = sum(prod(at.shape(name)) * np.dtype(at.dtype_of(name)).itemsize for name in names) if is_asked else 0
    if not is_asked or nbytes > tuning.INFERENCE_NBYTES // 64:
        raise error
    types = {name: _type_of(at, name) for name in names if not at.is_known(name)}
    values = {name: at.value(name) for name in names if name not in types}
    try:
        told = _infer_node(at, node).graph.output
        made = infer_model(model_of_node(at, node, types, values), "all").graph.output
    except ValueError:
        raise error from None
    if not all(one == other for one, other in zip(told, made, strict=True) if _has_shape(one)):
        raise error  # such as of a scale that broadcasts what it changes, which some run
    return RunsWhole(str(error))


def _count_read(at: Importing, node: Node) -> int:
    """Bytes of what an operator that runs a node whole reads."""
    return sum(prod(at.shape(name)) * np.dtype(at.dtype_of(name)).itemsize for name in _operands_of(at, node))


def _operands_of(at: Importing, node: Node, split: Collection[str] = ()) -> list[str]:
    """What an operator that runs a node whole reads; other values are part of it, but for those that are split."""
    return [n for n in reads_of(node) if n in split or not at.is_known(n) or _is_operand(at.value(n))]


def _infer_node(at: Importing, node: Node, split: Collection[str] = ()) -> Any:
    """The model of a node, with the types of its outputs."""
    operands = _operands_of(at, node, split)
    inside = [name for name in reads_of(node) if name not in operands]
    model = model_of_node(
        at, node, {name: _type_of(at, name) for name in operands}, {name: at.value(name) for name in inside}
    )
    return _infer(at, node, model)


def _infer(at: Importing, node: Node, model: Any) -> Any:
    """A node's model with the types of its outputs, by ONNX or, where it does not tell them, by ONNX Runtime.

    Raises
    ------
    NotRun
        Where neither takes it.
    """
    try:
        if node.operator in OF_ROWS:
            return _infer_rows(model)
        inferred = infer_model(model, "run" if _is_miscounted(at, node) else "onnx")
        ops.check_reference(ops.encode_model(inferred))
        if all(map(_has_shape, inferred.graph.output)):
            return inferred
    except ValueError as error:
        is_onnx = schema_of(node.op_type, at.opsets.get(node.domain, at.opset), node.domain) is not None
        why, inferred = str(error) if is_onnx else "ONNX has no such operator", None
    if not ops.is_in_runtime(node.operator):
        if inferred is None:
            raise NotRun(f"{node.where}: {why}") from None
        return inferred
    try:
        return infer_model(model, "runtime")
    except ValueError as error:
        if inferred is None:
            raise NotRun(f"{node.where}: {why}; ONNX Runtime does not take it: {error}") from None
        return inferred


def _infer_rows(model: Any) -> Any:
    """The model of a node of `OF_ROWS` with the types of its outputs: those of one row, if it is given a matrix."""
    inputs = [value.type.tensor_type.shape for value in model.graph.input]
    if [len(shape.dim) for shape in inputs] != [2]:
        return infer_model(model, "run")
    one = type(model)()
    one.CopyFrom(model)
    one.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 1
    one = infer_model(one, "run")
    for value in (*one.graph.input, *one.graph.output):
        value.type.tensor_type.shape.dim[0].CopyFrom(inputs[0].dim[0])
    return one


def _has_rows(node: Node, inferred: Any) -> bool:
    """Whether a node of `OF_ROWS` is given a matrix, whose rows its results have."""
    return node.operator in OF_ROWS and [len(v.type.tensor_type.shape.dim) for v in inferred.graph.input] == [2]


def _is_miscounted(at: Importing, node: Node) -> bool:
    """Whether ONNX's inference counts windows of a pool that nobody computes."""
    is_pool = node.operator in CEIL_POOLS and bool(node.attrs.get("ceil_mode"))
    return is_pool and at.opset <= tuning.MISCOUNTED_OPSET


def _has_shape(value: Any) -> bool:
    """Whether a value is known not to be a tensor, or its type and all of its shape are known."""
    if value.type.WhichOneof("value") != "tensor_type":
        return value.type.WhichOneof("value") is not None
    tensor = value.type.tensor_type
    is_shaped = tensor.HasField("shape") and all(dim.HasField("dim_value") for dim in tensor.shape.dim)
    return bool(tensor.elem_type and is_shaped)


def _take_declared(value: Any, declared: Any) -> None:
    """Give an output of a Loop, an If or a Scan the shape that the model declares, where nobody found another one.

    Of these alone: what a body makes follows from shapes more often than from values, and runs compare it.
    """
    if declared is None or _has_shape(value):
        return
    found, said = value.type.tensor_type, declared.type.tensor_type
    pairs = list(zip(found.shape.dim, said.shape.dim, strict=False))
    fits = not found.HasField("shape") or len(found.shape.dim) == len(said.shape.dim)
    if found.elem_type in (0, said.elem_type) and fits and all(one.dim_value in (0, n.dim_value) for one, n in pairs):
        value.type.CopyFrom(declared.type)


def _is_operand(array: Any) -> bool:
    """Whether a known value is read by an operator, and not part of it: shapes, axes and what no graph has are."""
    return is_number(array.dtype) and array.size > tuning.SHAPE_CELLS


def model_of_node(at: Importing, node: Node, types: Mapping[str, Any], values: Mapping[str, Any]) -> Any:
    """A model of one node: its inputs by type, the values that are part of it, and its outputs that are read."""
    from onnx import NodeProto, helper, numpy_helper

    proto = NodeProto()
    proto.CopyFrom(node.proto)
    proto.name = ""
    has_seed = any(attribute.name == "seed" for attribute in proto.attribute)
    if node.op_type in ops.RANDOM_OPS and not node.domain and not has_seed:
        # ONNX leaves the seed open; a fixed one lets every device, and the run that is compared with, draw the same.
        seed = zlib.crc32(node.name.encode()) % 2**16
        proto.attribute.append(helper.make_attribute("seed", seed if node.op_type == "Dropout" else float(seed)))
    graph = helper.make_graph(
        [proto],
        node.op_type,
        [helper.make_value_info(name, kind) for name, kind in types.items()],
        [helper.make_empty_tensor_value_info(name) for name in node.outputs if name],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in values.items()],
    )
    opsets = [helper.make_opsetid(domain, version) for domain, version in sorted(at.opsets.items())]
    return helper.make_model(graph, opset_imports=opsets, ir_version=max(tuning.IR_VERSION, at.ir_version))


def _shape_and_dtype(node: Node, value: Any) -> tuple[tuple[int, ...], str]:
    from onnx import TensorProto, helper

    kind = value.type.WhichOneof("value")
    where = f"{node.where}: its output {quote(value.name)}"
    if kind != "tensor_type":
        told = "of no known type" if kind is None else f"a {kind.removesuffix('_type')}"
        raise NotOfGraphs(f"{where} is {told}, not a tensor")
    tensor = value.type.tensor_type
    dims = list(tensor.shape.dim)
    if not tensor.HasField("shape") or not all(dim.HasField("dim_value") for dim in dims):
        raise NotWhole(f"{where} {FROM_VALUES}")
    shape = tuple(int(dim.dim_value) for dim in dims)
    dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type) if tensor.elem_type else np.dtype(object)
    if not is_number(dtype):
        label = TensorProto.DataType.Name(tensor.elem_type)
        raise NotOfGraphs(f"{where} has elements of type {label}, which are not numbers of NumPy")
    return shape, str(dtype.name)


def run_node(
    at: Importing, node: Node, given: Mapping[str, Any], types: Mapping[str, Any] = MappingProxyType({})
) -> dict[str, Any]:
    """What a node makes of values, by ONNX Runtime or ONNX's reference: arrays, lists and dicts.

    Types are those that the model declares of values which do not tell theirs, such as dicts.

    Raises
    ------
    UnsupportedOp
        Where neither runs it.
    """
    model = model_of_node(at, node, {n: types.get(n) or _type_of_value(value) for n, value in given.items()}, {})
    # What is not ONNX's may end ONNX Runtime, and with it this process: another one is asked first.
    fault = _find_fault(node, model)
    try:
        results = ops.run_model(ops.encode_model(model), given, runtime=not fault)
    except ValueError as error:
        raise NotWhole(f"{node.where}: {error}{fault}") from None
    return dict(zip(filter(None, node.outputs), results, strict=True))


def _find_fault(node: Node, model: Any) -> str:
    """Why a process of its own does not take a model, by ONNX's inference or ONNX Runtime; empty where it does."""
    fault = ""
    ways: tuple[Way, ...] = ("onnx", "runtime")
    for way in ways[bool(node.domain) :]:
        try:
            infer_model(model, way)
            return ""
        except ValueError as error:
            fault = f"; ONNX Runtime does not take it: {error}" if way == "runtime" else ""
    return fault


def _type_of_value(value: Any) -> Any:
    """The type of a value as ONNX writes it; none of what may be absent, or has no elements to tell it."""
    from onnx import TensorProto, TypeProto, helper

    if isinstance(value, list):
        kinds = [_type_of_value(one) for one in value]
        made = TypeProto()
        if kinds and all(kind.WhichOneof("value") == "tensor_type" for kind in kinds):
            elements = {kind.tensor_type.elem_type for kind in kinds}
            if len(elements) == 1:
                made = helper.make_sequence_type_proto(helper.make_tensor_type_proto(elements.pop(), None))
        return made
    if not isinstance(value, np.ndarray):
        return TypeProto()
    is_text = value.dtype.kind in "OSU"
    code = TensorProto.STRING if is_text else helper.np_dtype_to_tensor_dtype(value.dtype)
    return helper.make_tensor_type_proto(code, value.shape)
