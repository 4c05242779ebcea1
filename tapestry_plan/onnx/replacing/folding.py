"""Values that are computed at import: what that may cost, known before anything is made.

inputs known ─► bytes read + bytes made ─► within the budget ─► ONNX's reference evaluates the node
                (by shape inference)    └► beyond it ─────────► an operator or view of the graph, else refused
"""

from __future__ import annotations

from math import ceil, prod
from typing import Any

import numpy as np

from tapestry_plan.onnx import tuning
from tapestry_plan.onnx.nodes import Array, Importing, Node, TooLargeToFold
from tapestry_sets.limits import quote

# fmt: off
QUICK = frozenset({
    "Abs", "Acos", "Acosh", "Add", "And", "ArgMax", "ArgMin", "Asin", "Asinh", "Atan", "Atanh", "BitShift",
    "BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor", "Cast", "CastLike", "Ceil", "Clip", "Compress",
    "Concat", "Constant", "ConstantOfShape", "Cos", "Cosh", "CumSum", "DepthToSpace", "DequantizeLinear", "Div",
    "Equal", "Erf", "Exp", "Expand", "EyeLike", "Flatten", "Floor", "Gather", "Greater", "GreaterOrEqual",
    "Identity", "IsInf", "IsNaN", "Less", "LessOrEqual", "Log", "Max", "Mean", "Min", "Mod", "Mul", "Neg",
    "NonZero", "Not", "Or", "Pad", "Pow", "QuantizeLinear", "Range", "Reciprocal", "ReduceL1", "ReduceL2",
    "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum",
    "ReduceSumSquare", "Relu", "Reshape", "Round", "Shape", "Sigmoid", "Sign", "Sin", "Sinh", "Size", "Slice",
    "Softmax", "SpaceToDepth", "Split", "Sqrt", "Squeeze", "Sub", "Sum", "Tan", "Tanh", "Tile", "Transpose",
    "Trilu", "Unsqueeze", "Where", "Xor",
})
# fmt: on
"""Operators that the reference implementation evaluates by a few calls of NumPy; others may loop over cells."""

SIZED_BY_VALUES = {"Compress": 1, "NonZero": 64, "Unique": 32}
"""Operators whose results are as large as their values say, and at most so many times as large as what they read."""


def evaluate(node: Node, at: Importing) -> list[Array]:
    """The results of a node whose inputs are known, by ONNX's reference implementation.

    Raises
    ------
    TooLargeToFold
        If the import would read and make more bytes than it may; nothing has been made then.
    ValueError
        If the reference implementation does not evaluate the node.
    """
    from onnx import TensorProto, helper
    from onnx.reference import ReferenceEvaluator

    given = {name: at.value(name) for name in node.inputs if name}
    at.spend(node, _count_nbytes(node, at, given))
    inputs = [_declare(name, array) for name, array in given.items()]
    outputs = [helper.make_tensor_value_info(name, TensorProto.UNDEFINED, None) for name in node.outputs if name]
    graph = helper.make_graph([node.proto], "known", inputs, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", at.opset)])
    try:
        with np.errstate(all="ignore"):
            results = ReferenceEvaluator(model).run(None, given)
    except Exception as error:  # whatever the implementation of any operator raises
        raise ValueError(f"{node.where} cannot be evaluated in advance: {error}") from None
    arrays = iter([np.asarray(result) for result in results])
    return [next(arrays) if name else np.empty(0) for name in node.outputs]


def _declare(name: str, array: Array) -> Any:
    from onnx import helper

    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)


def _count_nbytes(node: Node, at: Importing, given: dict[str, Array]) -> int:
    """How many bytes a node reads and makes; more where it takes longer than that tells."""
    read = sum(array.nbytes for array in given.values())
    nbytes = read + _made_nbytes(node, at, given, read)
    if node.op_type == "Einsum":
        nbytes = max(nbytes, 8 * _einsum_points(node, [array.shape for array in given.values()]))
    return nbytes if node.op_type in QUICK else nbytes * tuning.CELLWISE_TIMES


def _made_nbytes(node: Node, at: Importing, given: dict[str, Array], read: int) -> int:
    """Bytes of a node's results, by ONNX's shape inference."""
    from onnx import helper, numpy_helper, shape_inference

    if node.op_type in SIZED_BY_VALUES:
        return SIZED_BY_VALUES[node.op_type] * read
    if node.op_type == "Range" and len(given) == 3:  # of which shape inference knows some dtypes only
        first, limit, step = (float(array.reshape(())) for array in given.values())
        return max(0, ceil((limit - first) / step)) * next(iter(given.values())).itemsize if step else 0
    small = [numpy_helper.from_array(array, name) for name, array in given.items() if array.size <= tuning.SHAPE_CELLS]
    outputs = [helper.make_empty_tensor_value_info(name) for name in node.outputs if name]
    inputs = [_declare(name, array) for name, array in given.items()]
    graph = helper.make_graph([node.proto], "known", inputs, outputs, small)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", at.opset)])
    try:
        inferred = shape_inference.infer_shapes(model).graph.output
    except Exception as error:  # shape inference raises whatever its C++ raises
        raise ValueError(f"{node.where} cannot be evaluated in advance: {' '.join(str(error).split())}") from None
    return sum(_nbytes_of(node, value) for value in inferred)


def _nbytes_of(node: Node, value: Any) -> int:
    from onnx import helper

    tensor = value.type.tensor_type
    dims = list(tensor.shape.dim)
    if not tensor.HasField("shape") or not all(dim.HasField("dim_value") for dim in dims):
        raise TooLargeToFold(
            f"{node.where} would be evaluated in advance, but how many bytes output {quote(value.name)} takes is not "
            "known before; store its values in the model"
        )
    itemsize = helper.tensor_dtype_to_np_dtype(tensor.elem_type).itemsize if tensor.elem_type else 8
    return prod(max(0, int(dim.dim_value)) for dim in dims) * int(itemsize)


def _einsum_points(node: Node, shapes: list[tuple[int, ...]]) -> int:
    """How many products an einsum sums up: the product of the extents of all its letters."""
    terms = str(node.attrs.get("equation", "")).replace(" ", "").split("->")[0].split(",")
    extents: dict[str, int] = {}
    for term, shape in zip(terms, shapes, strict=False):
        letters, rank = term.replace("...", ""), len(shape)
        named = list(letters) if "..." not in term else list(letters) + [f"…{k}" for k in range(rank - len(letters))]
        for letter, extent in zip(named, sorted(shape) if "..." in term else shape, strict=False):
            extents[letter] = max(extents.get(letter, 1), extent)
    return prod(extents.values())
