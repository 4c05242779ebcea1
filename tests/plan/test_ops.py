"""Every operator: whole against ONNX Runtime, and cut along every index axis against the whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnxruntime
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.typing import NDArray
from onnx import TensorProto, helper

from tapestry_plan import ops
from tapestry_plan.graph import BUILTIN_OPS, Graph, Op, Shard, Tensor
from tapestry_plan.signature import Signature, parts_of
from tapestry_sets import Box

Array = NDArray[Any]
MERGE: dict[str | None, Any] = {"sum": np.add, "prod": np.multiply, "min": np.minimum, "max": np.maximum}


# -- running blocks ----------------------------------------------------------------------------------------


def poisoned(shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
    """An array that no result may depend on: NaN, or a conspicuous integer."""
    return np.full(shape, np.nan if dtype.kind == "f" else 99, dtype)


def input_block(signature: Signature, k: int, index: Box, array: Array) -> tuple[Box | None, Array | None]:
    """The block of input k as an executor hands it over: only the cells of the exact region are set.

    It is a slice of a larger buffer on purpose, so it is not contiguous.
    """
    box = signature.input_box(k, index)
    if box is None:
        return None, None
    outer = poisoned([n + 1 for n in box.shape], array.dtype)
    block = outer[(..., *(slice(0, n) for n in box.shape))]
    if signature.inputs[k].pad is not None:
        outside = np.ones(box.shape, bool)
        low = [max(0, -a) for a in box.start]
        high = [n - max(0, b - m) for n, b, m in zip(box.shape, box.stop, array.shape, strict=True)]
        outside[tuple(map(slice, low, high))] = False
        block[outside] = signature.inputs[k].pad
    points = signature.input_region(k, index, array.shape).points()
    block[tuple((points - np.array(box.start, np.int64)).T)] = array[tuple(points.T)]
    return box, block


def run_shard(
    op: Op, signature: Signature, attrs: dict[str, Any], arrays: Sequence[Array], index: Box
) -> Any:
    """One shard's output boxes and blocks."""
    blocks = [input_block(signature, k, index, array) for k, array in enumerate(arrays)]
    boxes = [signature.output_box(k, index) for k in range(len(signature.outputs))]
    out_boxes = tuple(box for box in boxes if box is not None)
    dtypes = op.dtype([array.dtype.name for array in arrays], attrs)
    outputs = [poisoned(box.shape, np.dtype(d)) for box, d in zip(out_boxes, dtypes, strict=True)]
    shard = Shard(index, signature, attrs, tuple(box for box, _ in blocks), out_boxes, None)
    nbytes = op.workspace(shard, arrays[0].itemsize)
    shard = Shard(index, signature, attrs, shard.input_boxes, out_boxes, np.full(nbytes, 0xFF, np.uint8))
    kept = [None if block is None else block.copy() for _, block in blocks]
    op.block(np, [block for _, block in blocks], outputs, shard)
    for before, (_, after) in zip(kept, blocks, strict=True):
        if before is not None:
            np.testing.assert_array_equal(before, after, "a block function changed an input")
    return out_boxes, outputs


def run_cut(
    op: Op, attrs: dict[str, Any], arrays: Sequence[Array], cut: dict[str, int] | None = None
) -> list[Array]:
    """All shards of a cut of the index space, merged."""
    shapes = [array.shape for array in arrays]
    signature = op.signature(shapes, attrs)
    whole = [operand.projection.bounding_box(signature.index) for operand in signature.outputs]
    signature.validate(shapes, [box.shape for box in whole], op.name)
    results: list[Array | None] = [None] * len(whole)
    written: list[Array] = [np.zeros(box.shape, bool) for box in whole]
    for index in cut_boxes(signature, cut or {}):
        boxes, blocks = run_shard(op, signature, attrs, arrays, index)
        for k, (box, block) in enumerate(zip(boxes, blocks, strict=True)):
            if results[k] is None:
                results[k] = np.zeros(whole[k].shape, block.dtype)
            at = tuple(map(slice, box.start, box.stop))
            target = results[k]
            assert target is not None
            done = written[k][at]
            target[at] = np.where(done, MERGE.get(op.reduction, np.add)(target[at], block), block)
            assert signature.reductions or not done.any()
            written[k][at] = True
    assert all(mask.all() for mask in written)
    return [array for array in results if array is not None]


def cut_boxes(signature: Signature, cut: dict[str, int]) -> list[Box]:
    """The index boxes of a cut, axis name -> number of parts."""
    pieces: list[tuple[tuple[int, ...], tuple[int, ...]]] = [((), ())]
    for axis in signature.axes:
        ranges = parts_of(axis.size, cut.get(axis.name, 1))
        pieces = [((*start, a), (*shape, b - a)) for start, shape in pieces for a, b in ranges]
    return [Box(start, shape) for start, shape in pieces]


def close(actual: Array, wanted: Array, bound: float = 2e-5) -> None:
    """Same dtype, shape and values, floats within `bound` of the largest."""
    assert actual.dtype == wanted.dtype and actual.shape == wanted.shape
    if actual.dtype.kind != "f":
        np.testing.assert_array_equal(actual, wanted)
        return
    assert not np.isnan(actual).any(), "a result depends on a cell that was not given"
    scale = max(1e-3, float(np.abs(wanted).max()))
    np.testing.assert_allclose(actual, wanted, rtol=0, atol=bound * scale)


# -- the reference -----------------------------------------------------------------------------------------


def ort(op_type: str, arrays: Sequence[Array], opset: int = 21, dtype: Any = None, **attrs: Any) -> Array:
    """A model of one node, run by ONNX Runtime."""
    names = [f"x{k}" for k in range(len(arrays))]
    node = helper.make_node(op_type, names, ["y"], **attrs)
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in zip(names, arrays, strict=True)
    ]
    out_type = helper.np_dtype_to_tensor_dtype(arrays[0].dtype) if dtype is None else dtype
    output = helper.make_tensor_value_info("y", out_type, None)
    graph = helper.make_graph([node], "one", inputs, [output])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    result: Array = session.run(None, dict(zip(names, arrays, strict=True)))[0]
    return result


@dataclass(frozen=True)
class Case:
    """An operator with attributes on random operands, and the ONNX node that says what comes out."""

    op: str
    shapes: tuple[tuple[int, ...], ...]
    attrs: dict[str, Any] = field(default_factory=dict)
    onnx: str = ""
    onnx_attrs: dict[str, Any] = field(default_factory=dict)
    onnx_extra: tuple[Any, ...] = ()
    dtype: str = "float32"
    positive: tuple[int, ...] = ()
    reorder: Callable[[Array], Array] = lambda array: array

    def arrays(self, seed: int = 0) -> list[Array]:
        rng = np.random.default_rng(seed)
        if np.dtype(self.dtype).kind == "i":
            return [rng.integers(-9, 10, shape).astype(self.dtype) for shape in self.shapes]
        arrays = [rng.normal(size=shape).astype(self.dtype) for shape in self.shapes]
        return [np.abs(a) + 0.5 if k in self.positive else a for k, a in enumerate(arrays)]

    def expected(self, arrays: Sequence[Array]) -> Array:
        extra = [np.asarray(value) for value in self.onnx_extra]
        return self.reorder(ort(self.onnx, [*arrays, *extra], **self.onnx_attrs))

    def __str__(self) -> str:
        shown = ",".join("x".join(map(str, shape)) or "scalar" for shape in self.shapes)
        attrs = ",".join(f"{key}={value}" for key, value in self.attrs.items())
        return f"{self.op}[{shown}]{attrs}".replace(" ", "")


f32 = np.float32
CASES = [
    Case("add", ((3, 4, 5), (4, 1)), onnx="Add"),
    Case("add", ((4, 5), (2, 1, 5)), onnx="Add"),
    Case("add", ((), ()), onnx="Add"),
    Case("add", ((5, 3), (5, 3)), onnx="Add", dtype="int64"),
    Case("sub", ((1, 4), (3, 1)), onnx="Sub"),
    Case("mul", ((2, 3, 4), (3, 1)), onnx="Mul", dtype="float64"),
    Case("div", ((5, 3), (3,)), onnx="Div", positive=(1,)),
    Case("sum_n", ((3, 4), (4,), (3, 1), (1, 1)), onnx="Sum"),
    Case("sum_n", ((3, 4),), onnx="Sum"),
    Case("relu", ((7, 5),), onnx="Relu"),
    Case("leaky_relu", ((7, 5),), {"alpha": 0.2}, "LeakyRelu", {"alpha": 0.2}),
    Case("leaky_relu", ((7, 5),), {"alpha": -1.5}, "LeakyRelu", {"alpha": -1.5}),
    Case("clip", ((7, 5),), {"min": -0.5, "max": 0.25}, "Clip", onnx_extra=(f32(-0.5), f32(0.25))),
    Case("clip", ((7, 5),), {"min": 0.1}, "Clip", onnx_extra=(f32(0.1),)),
    Case("sigmoid", ((6, 5),), onnx="Sigmoid"),
    Case("tanh", ((6, 5),), onnx="Tanh"),
    Case("exp", ((6, 5),), onnx="Exp"),
    Case("sqrt", ((6, 5),), onnx="Sqrt", positive=(0,)),
    Case("neg", ((6, 5),), onnx="Neg"),
    Case("abs", ((6, 5),), onnx="Abs"),
    Case("matmul", ((5, 7), (7, 6)), onnx="MatMul"),
    Case("matmul", ((2, 1, 5, 7), (3, 7, 6)), onnx="MatMul"),
    Case("matmul", ((4, 5, 3), (3, 2)), onnx="MatMul", dtype="float64"),
    Case("linear", ((5, 7), (7, 6), (6,)), onnx="Gemm"),
    Case("linear", ((5, 7), (7, 6)), onnx="Gemm"),
    Case(
        "gemm",
        ((7, 5), (6, 7), (5, 1)),
        {"alpha": 0.5, "beta": 2.0, "trans_a": True, "trans_b": True},
        "Gemm",
        {"alpha": 0.5, "beta": 2.0, "transA": 1, "transB": 1},
    ),
    Case("gemm", ((5, 7), (7, 6), ()), onnx="Gemm"),
    Case("gemm", ((5, 7), (7, 6), (1, 6)), {"beta": 0.5}, "Gemm", {"beta": 0.5}),
    Case("conv", ((2, 4, 8, 7), (6, 4, 3, 3), (6,)), {"pads": 1}, "Conv", {"pads": [1, 1, 1, 1]}),
    Case("conv", ((2, 4, 9, 9), (6, 4, 1, 1), (6,)), {}, "Conv"),
    Case("conv", ((1, 4, 9, 9), (6, 4, 1, 1)), {"strides": 2}, "Conv", {"strides": [2, 2]}),
    Case(
        "conv",
        ((2, 6, 9, 8), (9, 2, 3, 2), (9,)),
        {"groups": 3, "strides": (2, 1), "pads": (0, 1, 2, 1)},
        "Conv",
        {"group": 3, "strides": [2, 1], "pads": [0, 1, 2, 1]},
    ),
    Case(
        "conv",
        ((2, 5, 7, 7), (5, 1, 3, 3), (5,)),
        {"groups": 5, "dilations": 2, "pads": 2},
        "Conv",
        {"group": 5, "dilations": [2, 2], "pads": [2, 2, 2, 2]},
    ),
    Case(
        "conv",
        ((2, 3, 11), (4, 3, 4), (4,)),
        {"strides": 3, "pads": (2, 1)},
        "Conv",
        {"strides": [3], "pads": [2, 1]},
    ),
    Case(
        "conv",
        ((2, 2, 5, 6, 5), (4, 2, 2, 3, 1), (4,)),
        {"strides": (1, 2, 2), "pads": (1, 0, 0, 0, 1, 0)},
        "Conv",
        {"strides": [1, 2, 2], "pads": [1, 0, 0, 0, 1, 0]},
    ),
    Case("conv", ((1, 2, 3, 3, 3), (4, 2, 1, 1, 1)), {}, "Conv"),
    Case(
        "max_pool",
        ((2, 3, 9, 8),),
        {"kernel": 3, "strides": 2, "pads": 1},
        "MaxPool",
        {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]},
    ),
    Case(
        "max_pool",
        ((2, 3, 8, 8),),
        {"kernel": (3, 2), "strides": (2, 3), "ceil_mode": True},
        "MaxPool",
        {"kernel_shape": [3, 2], "strides": [2, 3], "ceil_mode": 1},
    ),
    Case(
        "max_pool",
        ((1, 2, 12),),
        {"kernel": 3, "dilations": 2, "pads": (1, 2)},
        "MaxPool",
        {"kernel_shape": [3], "dilations": [2], "pads": [1, 2]},
    ),
    Case(
        "average_pool",
        ((2, 3, 9, 8),),
        {"kernel": 3, "strides": 2, "pads": 1, "extents": (9, 8)},
        "AveragePool",
        {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]},
    ),
    Case(
        "average_pool",
        ((2, 3, 9, 8),),
        {"kernel": 3, "strides": 2, "pads": 1, "extents": (9, 8), "count_include_pad": True},
        "AveragePool",
        {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1], "count_include_pad": 1},
    ),
    Case(
        "average_pool",
        ((1, 2, 8, 8),),
        {"kernel": 3, "strides": 2, "ceil_mode": True, "extents": (8, 8)},
        "AveragePool",
        {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1},
    ),
    Case("average_pool", ((1, 2, 7, 7),), {"kernel": 7}, "AveragePool", {"kernel_shape": [7, 7]}),
    Case(
        "average_pool", ((1, 2, 4, 5, 6),), {"kernel": (2, 2, 3)}, "AveragePool", {"kernel_shape": [2, 2, 3]}
    ),
    Case("global_average_pool", ((2, 5, 7, 3),), onnx="GlobalAveragePool"),
    Case("global_average_pool", ((2, 5, 7),), onnx="GlobalAveragePool"),
    Case("global_max_pool", ((2, 5, 7, 3),), onnx="GlobalMaxPool"),
    Case("reduce_sum", ((3, 5, 7),), {"axes": (0, -1)}, "ReduceSum", onnx_extra=(np.array([0, 2]),)),
    Case("reduce_sum", ((3, 5),), {"keepdims": False}, "ReduceSum", {"keepdims": 0}),
    Case("reduce_sum", ((3, 5),), {"axes": (1,)}, "ReduceSum", onnx_extra=(np.array([1]),), dtype="int64"),
    Case(
        "reduce_mean",
        ((3, 5, 7),),
        {"axes": (1,), "keepdims": False},
        "ReduceMean",
        {"keepdims": 0},
        onnx_extra=(np.array([1]),),
    ),
    Case("reduce_max", ((3, 5, 7),), {"axes": (2,)}, "ReduceMax", onnx_extra=(np.array([2]),)),
    Case(
        "batch_normalization",
        ((2, 5, 4, 3), (5,), (5,), (5,), (5,)),
        {"epsilon": 1e-3},
        "BatchNormalization",
        {"epsilon": 1e-3},
        positive=(4,),
    ),
    Case("batch_normalization", ((6, 5), (5,), (5,), (5,), (5,)), {}, "BatchNormalization", positive=(4,)),
    Case(
        "lrn",
        ((2, 7, 3, 4),),
        {"size": 5, "alpha": 0.5, "beta": 0.75, "bias": 2.0},
        "LRN",
        {"size": 5, "alpha": 0.5, "beta": 0.75, "bias": 2.0},
    ),
    Case("lrn", ((1, 4, 3, 3),), {"size": 1, "alpha": 0.5}, "LRN", {"size": 1, "alpha": 0.5}),
    Case("softmax", ((3, 7, 4),), {"axis": 1, "length": 7}, "Softmax", {"axis": 1}),
    Case("softmax", ((7,),), {"axis": -1, "length": 7}, "Softmax"),
    Case("log_softmax", ((3, 7),), {"axis": -1, "length": 7}, "LogSoftmax"),
    Case(
        "layer_normalization",
        ((3, 5, 4), (5, 4), (5, 4)),
        {"axis": 1, "length": 20},
        "LayerNormalization",
        {"axis": 1},
    ),
    Case(
        "layer_normalization",
        ((3, 5), (5,)),
        {"axis": -1, "length": 5, "epsilon": 1e-2},
        "LayerNormalization",
        {"epsilon": 1e-2},
    ),
]


def test_every_operator_has_a_case() -> None:
    assert {case.op for case in CASES} == set(BUILTIN_OPS)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_whole_equals_onnx_runtime(case: Case) -> None:
    arrays = case.arrays()
    (actual,) = run_cut(BUILTIN_OPS[case.op], case.attrs, arrays)
    close(actual, case.expected(arrays))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_cut_of_every_axis_equals_the_whole(case: Case) -> None:
    arrays = case.arrays(1)
    op = BUILTIN_OPS[case.op]
    signature = op.signature([array.shape for array in arrays], case.attrs)
    wanted = case.expected(arrays)
    for axis in signature.axes:
        for parts in {n for n in (2, 3, 5) if n <= axis.size}:
            (actual,) = run_cut(op, case.attrs, arrays, {axis.name: parts})
            close(actual, wanted)
    everywhere = {axis.name: min(2, axis.size) for axis in signature.axes}
    (actual,) = run_cut(op, case.attrs, arrays, everywhere)
    close(actual, wanted)
