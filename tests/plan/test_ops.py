"""Every operator: whole against ONNX Runtime, and cut along every index axis against the whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnxruntime
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from onnx import helper

from tapestry_plan import bernoulli, dropout, integers, normal, ops, uniform
from tapestry_plan.graph import BUILTIN_OPS, Graph, Op, Shard, Tensor
from tapestry_plan.signature import Operand, Signature, parts_of
from tapestry_sets import AffineMap, Box, IndexProjection
from tests.oracles import drawn

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


def run_shard(op: Op, signature: Signature, attrs: dict[str, Any], arrays: Sequence[Array], index: Box) -> Any:
    """One shard's output boxes and blocks."""
    blocks = [input_block(signature, k, index, array) for k, array in enumerate(arrays)]
    boxes = [signature.output_box(k, index) for k in range(len(signature.outputs))]
    out_boxes = tuple(box for box in boxes if box is not None)
    dtypes = op.dtype([array.dtype.name for array in arrays], attrs)
    outputs = [poisoned(box.shape, np.dtype(d)) for box, d in zip(out_boxes, dtypes, strict=True)]
    shard = Shard(index, signature, attrs, tuple(box for box, _ in blocks), out_boxes, None)
    nbytes = op.workspace(shard, outputs[0].itemsize)
    shard = Shard(index, signature, attrs, shard.input_boxes, out_boxes, np.full(nbytes, 0xFF, np.uint8))
    kept = [None if block is None else block.copy() for _, block in blocks]
    op.block(np, [block for _, block in blocks], outputs, shard)
    for before, (_, after) in zip(kept, blocks, strict=True):
        if before is not None:
            np.testing.assert_array_equal(before, after, "a block function changed an input")
    return out_boxes, outputs


def run_cut(op: Op, attrs: dict[str, Any], arrays: Sequence[Array], cut: dict[str, int] | None = None) -> list[Array]:
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
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
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
    oracle: Callable[[str, dict[str, Any], Sequence[Array]], Array] | None = None

    def arrays(self, seed: int = 0) -> list[Array]:
        rng = np.random.default_rng(seed)
        if np.dtype(self.dtype).kind == "i":
            return [rng.integers(-9, 10, shape).astype(self.dtype) for shape in self.shapes]
        arrays = [rng.normal(size=shape).astype(self.dtype) for shape in self.shapes]
        return [np.abs(a) + 0.5 if k in self.positive else a for k, a in enumerate(arrays)]

    def expected(self, arrays: Sequence[Array]) -> Array:
        if self.oracle is not None:
            return self.oracle(self.op, self.attrs, arrays)
        extra = [np.asarray(value) for value in self.onnx_extra]
        return self.reorder(ort(self.onnx, [*arrays, *extra], **self.onnx_attrs))

    def __str__(self) -> str:
        shown = ",".join("x".join(map(str, shape)) or "scalar" for shape in self.shapes)
        attrs = ",".join(f"{key}={value}" for key, value in self.attrs.items())
        return f"{self.op}[{shown}]{attrs}".replace(" ", "")


f32 = np.float32
KEY = {"seed": 3, "stream": 5}
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
        {"kernel": 3, "strides": 2, "pads": 1},
        "AveragePool",
        {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]},
    ),
    Case(
        "average_pool",
        ((2, 3, 9, 8),),
        {"kernel": 3, "strides": 2, "pads": 1, "count_include_pad": True},
        "AveragePool",
        {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1], "count_include_pad": 1},
    ),
    Case(
        "average_pool",
        ((1, 2, 8, 8),),
        {"kernel": 3, "strides": 2, "ceil_mode": True},
        "AveragePool",
        {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1},
    ),
    Case("average_pool", ((1, 2, 7, 7),), {"kernel": 7}, "AveragePool", {"kernel_shape": [7, 7]}),
    Case("average_pool", ((1, 2, 4, 5, 6),), {"kernel": (2, 2, 3)}, "AveragePool", {"kernel_shape": [2, 2, 3]}),
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
    Case("softmax", ((3, 7, 4),), {"axis": 1}, "Softmax", {"axis": 1}),
    Case("softmax", ((7,),), {"axis": -1}, "Softmax"),
    Case("log_softmax", ((3, 7),), {"axis": -1}, "LogSoftmax"),
    Case(
        "layer_normalization",
        ((3, 5, 4), (5, 4), (5, 4)),
        {"axis": 1},
        "LayerNormalization",
        {"axis": 1},
    ),
    Case(
        "layer_normalization",
        ((3, 5), (5,)),
        {"axis": -1, "epsilon": 1e-2},
        "LayerNormalization",
        {"epsilon": 1e-2},
    ),
    Case("uniform", (), {"shape": (5, 6), "dtype": "float32", **KEY, "low": -1.0, "high": 2.0}, oracle=drawn),
    Case("uniform", (), {"shape": (7,), "dtype": "float64", **KEY, "low": 0.0, "high": 1.0}, oracle=drawn),
    Case("normal", (), {"shape": (5, 6), "dtype": "float32", **KEY, "loc": 1.0, "scale": 2.0}, oracle=drawn),
    Case("normal", (), {"shape": (3, 7), "dtype": "float64", **KEY, "loc": 0.0, "scale": 1.0}, oracle=drawn),
    Case("bernoulli", (), {"shape": (5, 6), "dtype": "bool", **KEY, "p": 0.4}, oracle=drawn),
    Case("integers", (), {"shape": (5, 6), "dtype": "int64", **KEY, "low": -9, "high": 2**31}, oracle=drawn),
    Case("dropout", ((5, 6),), {"rate": 0.3, **KEY}, oracle=drawn),
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


# -- windows of every kind ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class WindowCase:
    """A convolution or a pool with attributes drawn at random, and a cut of its index space."""

    extents: tuple[int, ...]
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[int, ...]
    groups: int
    channels: int
    filters: int
    batch: int
    cut: tuple[int, ...]

    @property
    def onnx(self) -> dict[str, Any]:
        """The attributes under ONNX's names."""
        return {"strides": list(self.strides), "dilations": list(self.dilations), "pads": list(self.pads)}

    @property
    def attrs(self) -> dict[str, Any]:
        """The attributes under ours."""
        return {"strides": self.strides, "dilations": self.dilations, "pads": self.pads}

    def parts(self, signature: Signature) -> dict[str, int]:
        """The cut, with at most as many parts as points on each axis."""
        sizes = zip(signature.axes, self.cut, strict=False)
        return {axis.name: min(axis.size, parts) for axis, parts in sizes}


@st.composite
def windows(draw: st.DrawFn) -> WindowCase:
    rank = draw(st.integers(1, 3))

    def each(low: int, high: int) -> st.SearchStrategy[tuple[int, ...]]:
        return st.tuples(*[st.integers(low, high)] * rank)

    kernel, dilations = draw(each(1, 3)), draw(each(1, 3))
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    # ONNX Runtime wants pads below the kernel's own extent, dilated or not.
    pads = tuple(draw(st.integers(0, k - 1)) for k in kernel * 2)
    extents = tuple(r + draw(st.integers(0, 6 if rank < 3 else 3)) for r in reach)
    return WindowCase(
        extents,
        kernel,
        draw(each(1, 4)),
        dilations,
        pads,
        draw(st.integers(1, 3)),
        draw(st.integers(1, 3)),
        draw(st.integers(1, 3)),
        draw(st.integers(1, 2)),
        tuple(draw(st.lists(st.integers(1, 3), min_size=9, max_size=9))),
    )


@given(windows(), st.booleans())
def test_conv_with_any_window_and_any_cut(case: WindowCase, with_bias: bool) -> None:
    rng = np.random.default_rng(3)
    shapes = [
        (case.batch, case.channels * case.groups, *case.extents),
        (case.filters * case.groups, case.channels, *case.kernel),
        (case.filters * case.groups,),
    ]
    arrays = [rng.normal(size=shape).astype(np.float32) for shape in shapes[: 3 if with_bias else 2]]
    attrs = {**case.attrs, "groups": case.groups}
    op = BUILTIN_OPS["conv"]
    wanted = ort("Conv", arrays, group=case.groups, **case.onnx)
    parts = case.parts(op.signature([array.shape for array in arrays], attrs))
    (actual,) = run_cut(op, attrs, arrays, parts)
    close(actual, wanted)


@given(windows(), st.booleans())
def test_max_pool_with_any_window_and_any_cut(case: WindowCase, ceil_mode: bool) -> None:
    x = np.random.default_rng(4).normal(size=(case.batch, case.channels, *case.extents)).astype(np.float32)
    attrs = {**case.attrs, "kernel": case.kernel, "ceil_mode": ceil_mode}
    op = BUILTIN_OPS["max_pool"]
    wanted = ort("MaxPool", [x], kernel_shape=list(case.kernel), ceil_mode=int(ceil_mode), **case.onnx)
    (actual,) = run_cut(op, attrs, [x], case.parts(op.signature([x.shape], attrs)))
    close(actual, wanted)


@given(windows(), st.booleans(), st.booleans())
def test_average_pool_with_any_window_and_any_cut(case: WindowCase, ceil_mode: bool, count_include_pad: bool) -> None:
    x = np.random.default_rng(5).normal(size=(case.batch, case.channels, *case.extents)).astype(np.float32)
    flags = {"ceil_mode": ceil_mode, "count_include_pad": count_include_pad}
    attrs = {**case.attrs, **flags, "kernel": case.kernel}
    op = BUILTIN_OPS["average_pool"]
    wanted = average_pool_by_hand(x, case, ceil_mode, count_include_pad)
    (actual,) = run_cut(op, attrs, [x], case.parts(op.signature([x.shape], attrs)))
    close(actual, wanted)


def average_pool_by_hand(x: Array, case: WindowCase, ceil_mode: bool, count_include_pad: bool) -> Array:
    """The definition, window by window, on a tensor padded with NaN where no cell counts."""
    rank = len(case.kernel)
    begins, ends = case.pads[:rank], case.pads[rank:]
    fill = 0.0 if count_include_pad else np.nan
    padded = np.pad(x, [(0, 0), (0, 0), *zip(begins, ends, strict=True)], constant_values=fill)
    beyond = [(0, 0), (0, 0), *((0, s) for s in case.strides)]
    padded = np.pad(padded, beyond, constant_values=np.nan)
    reach = [(k - 1) * d + 1 for k, d in zip(case.kernel, case.dilations, strict=True)]
    views = np.lib.stride_tricks.sliding_window_view(padded, reach, axis=tuple(range(2, 2 + rank)))
    counts = []
    for n, a, b, r, s in zip(case.extents, begins, ends, reach, case.strides, strict=True):
        count = (n + a + b - r) // s + 1
        if ceil_mode and (n + a + b - r) % s and count * s < n + a:
            count += 1
        counts.append(count)
    picked = views[(slice(None), slice(None), *(slice(0, c * s, s) for c, s in zip(counts, case.strides, strict=True)))]
    cells = picked[(..., *(slice(None, None, d) for d in case.dilations))]
    mean: Array = np.nanmean(cells.astype(np.float64), axis=tuple(range(2 + rank, 2 + 2 * rank)))
    return mean.astype(np.float32)


@given(windows(), st.booleans())
def test_the_oracle_for_average_pools_equals_onnx_runtime(case: WindowCase, count_include_pad: bool) -> None:
    # without ceil_mode, where ONNX Runtime's releases differ in what they count
    x = np.random.default_rng(6).normal(size=(1, 1, *case.extents)).astype(np.float32)
    flags = {"count_include_pad": int(count_include_pad)}
    wanted = ort("AveragePool", [x], kernel_shape=list(case.kernel), **flags, **case.onnx)
    close(average_pool_by_hand(x, case, False, count_include_pad), wanted)


@given(st.data())
def test_elementwise_with_any_shapes_and_any_cut(data: st.DataObject) -> None:
    shape = data.draw(st.lists(st.integers(1, 5), max_size=4).map(tuple), "shape")
    shapes = [broadcastable(data, shape) for _ in range(2)]
    arrays = [np.random.default_rng(k).normal(size=s) for k, s in enumerate(shapes)]
    op = BUILTIN_OPS["sub"]
    signature = op.signature(shapes, {})
    (actual,) = run_cut(op, {}, arrays, any_cut(data, signature))
    np.testing.assert_array_equal(actual, arrays[0] - arrays[1])


@given(st.data())
def test_matmul_with_any_shapes_and_any_cut(data: st.DataObject) -> None:
    batch = data.draw(st.lists(st.integers(1, 3), max_size=2).map(tuple), "batch")
    m, n, k = data.draw(st.tuples(*[st.integers(1, 6)] * 3), "m n k")
    shapes = [(*broadcastable(data, batch), m, k), (*broadcastable(data, batch), k, n)]
    arrays = [np.random.default_rng(k).normal(size=s) for k, s in enumerate(shapes)]
    op = BUILTIN_OPS["matmul"]
    (actual,) = run_cut(op, {}, arrays, any_cut(data, op.signature(shapes, {})))
    close(actual, arrays[0] @ arrays[1], 1e-12)


@given(st.data(), st.sampled_from(["sum", "mean", "max"]), st.booleans())
def test_reductions_over_any_axes_and_any_cut(data: st.DataObject, fold: str, keepdims: bool) -> None:
    shape = data.draw(st.lists(st.integers(1, 5), max_size=4).map(tuple), "shape")
    ranks = st.sets(st.sampled_from(range(len(shape)))) if shape else st.just(set())
    axes = tuple(data.draw(ranks, "axes"))
    x = np.random.default_rng(7).normal(size=shape)
    op, attrs = BUILTIN_OPS[f"reduce_{fold}"], {"axes": axes, "keepdims": keepdims}
    (actual,) = run_cut(op, attrs, [x], any_cut(data, op.signature([shape], attrs)))
    wanted = getattr(np, fold)(x, axis=axes, keepdims=keepdims)
    close(actual, np.asarray(wanted), 1e-12)


def broadcastable(data: st.DataObject, shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape that broadcasts to `shape`: leading axes left out, others set to 1."""
    first = data.draw(st.integers(0, len(shape)), "axes left out")
    return tuple(1 if data.draw(st.booleans(), "one") else n for n in shape[first:])


def any_cut(data: st.DataObject, signature: Signature) -> dict[str, int]:
    return {axis.name: data.draw(st.integers(1, axis.size), axis.name) for axis in signature.axes}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_order_of_the_index_axes_means_nothing(case: Case) -> None:
    op = BUILTIN_OPS[case.op]

    def reversed_signature(shapes: Any, attrs: Any) -> Signature:
        return backwards(op.signature(shapes, attrs))

    other = replace(op, name="other", signature=reversed_signature)
    arrays = case.arrays(2)
    shapes = [array.shape for array in arrays]
    cut = {axis.name: min(2, axis.size) for axis in op.signature(shapes, case.attrs).axes}
    (actual,) = run_cut(other, case.attrs, arrays, cut)
    close(actual, case.expected(arrays))


def backwards(signature: Signature) -> Signature:
    """The signature with its index axes in the reverse order."""
    rank = len(signature.axes)

    def turned(operand: Operand) -> Operand:
        p = operand.projection
        rows = tuple((*row[:rank][::-1], *row[rank:]) for row in p.map.matrix)
        splits = tuple((rank - 1 - axis, q) for axis, q in p.splits)
        return replace(operand, projection=IndexProjection(AffineMap(rows, p.map.offset), p.shape, splits))

    inputs, outputs = map(turned, signature.inputs), map(turned, signature.outputs)
    return Signature(signature.axes[::-1], tuple(inputs), tuple(outputs))


# -- signatures --------------------------------------------------------------------------------------------


def names(op: str, shapes: Sequence[tuple[int, ...]], **attrs: Any) -> tuple[list[str], list[str]]:
    """The parallel and the reduction axes of an operator."""
    axes = BUILTIN_OPS[op].signature(shapes, attrs).axes
    parallel = [axis.name for axis in axes if axis.kind == "parallel"]
    return parallel, [axis.name for axis in axes if axis.kind == "reduction"]


def test_axes_have_the_fields_names() -> None:
    assert names("matmul", [(2, 3, 4), (4, 5)]) == (["b0", "m", "n"], ["k"])
    assert names("conv", [(1, 2, 8, 8), (4, 2, 3, 3)]) == (["n", "c", "h", "w"], ["ci", "kh", "kw"])
    assert names("conv", [(1, 2, 8), (4, 2, 3)]) == (["n", "c", "w"], ["ci", "kw"])
    assert names("conv", [(1, 2, 8, 8, 8), (4, 2, 3, 3, 3)])[0] == ["n", "c", "d", "h", "w"]
    assert names("add", [(2, 3), (3,)]) == (["i0", "i1"], [])
    assert names("max_pool", [(1, 2, 8, 8)], kernel=2) == (["n", "c", "h", "w"], ["kh", "kw"])
    assert names("global_average_pool", [(1, 2, 8, 8)]) == (["n", "c"], ["h", "w"])
    assert names("reduce_mean", [(1, 2, 8)], axes=(1,)) == (["i0", "i2"], ["i1"])
    assert names("softmax", [(1, 2, 8)], axis=1) == (["i0", "i2"], [])


def test_linear_answers_to_the_seeds_names() -> None:
    signature = BUILTIN_OPS["linear"].signature([(8, 4), (4, 6), (6,)], {})
    assert [signature.axis(name) for name in ("batch", "out", "in")] == [0, 1, 2]
    # P_W = [in, 1] and P_Y = [batch, 1] for one value of out
    column = Box((0, 2, 0), (8, 1, 4))
    assert signature.input_box(1, column) == Box((0, 2), (4, 1))
    assert signature.output_box(0, column) == Box((0, 2), (8, 1))


def test_a_bias_is_read_by_the_part_that_starts_the_reduction() -> None:
    signature = BUILTIN_OPS["conv"].signature([(1, 4, 8, 8), (6, 4, 3, 3), (6,)], {"pads": 1})
    first, second = cut_boxes(signature, {"ci": 2})
    assert signature.input_box(2, first) == Box((0,), (6,))
    assert signature.input_box(2, second) is None


def test_a_group_reads_its_own_channels_only() -> None:
    signature = BUILTIN_OPS["conv"].signature([(1, 6, 4, 4), (9, 2, 1, 1)], {"groups": 3})
    boxes = [signature.input_box(0, box) for box in cut_boxes(signature, {"c": 3})]
    assert [(box.start[1], box.shape[1]) for box in boxes if box is not None] == [(0, 2), (2, 2), (4, 2)]
    shared = signature.inputs[0].projection.shared(*cut_boxes(signature, {"c": 2}), within=(1, 6, 4, 4))
    assert shared.size == 2 * 16  # the middle group


def test_rows_shared_by_neighbours_follow_from_the_window() -> None:
    for kernel, dilation, stride in ((3, 1, 1), (3, 1, 2), (5, 2, 1), (3, 8, 1), (2, 1, 2)):
        attrs = {"dilations": (dilation, 1), "strides": (stride, 1), "pads": (dilation, 0)}
        signature = BUILTIN_OPS["conv"].signature([(1, 1, 64, 1), (1, 1, kernel, 1)], attrs)
        one, other = cut_boxes(signature, {"h": 2})
        shared = signature.inputs[0].projection.shared(one, other, within=(1, 1, 64, 1))
        assert shared.size == max(0, (kernel - 1) * dilation + 1 - stride)


@pytest.mark.parametrize(
    ("op", "shapes", "attrs", "per_point"),
    [
        ("conv", [(1, 4, 8, 8), (6, 4, 3, 3)], {}, 2),
        ("matmul", [(3, 4), (4, 5)], {}, 2),
        ("relu", [(3, 4)], {}, 1),
        ("softmax", [(3, 4)], {}, 16),
        ("lrn", [(1, 8, 2, 2)], {"size": 5}, 14),
        ("batch_normalization", [(1, 2)] + [(2,)] * 4, {}, 2),
    ],
)
def test_work_is_counted_for_each_index_point(op: str, shapes: Any, attrs: Any, per_point: float) -> None:
    signature = BUILTIN_OPS[op].signature(shapes, attrs)
    assert BUILTIN_OPS[op].flop_per_point(signature, attrs) == per_point


# -- what does not fit -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("op", "shapes", "attrs", "parts"),
    [
        ("add", [(2, 3), (4, 3)], {}, ["(2, 3)", "(4, 3)", "broadcast"]),
        ("add", [(2, 3)], {}, ["1 operands", "takes 2"]),
        ("sum_n", [], {}, ["0 operands"]),
        ("matmul", [(2, 3), (4, 5)], {}, ["3 columns (axis 1)", "4 rows (axis 0)"]),
        ("matmul", [(3,), (3, 5)], {}, ["rank 2 or more"]),
        ("linear", [(2, 3), (3, 5), (4,)], {}, ["the bias", "(4,)", "(5,)"]),
        ("linear", [(2, 3, 3), (3, 5)], {}, ["operand 0", "rank 3", "rank 2"]),
        ("gemm", [(2, 3), (3, 5), (3, 5)], {}, ["(3, 5)", "broadcast to (2, 5)"]),
        ("gemm", [(2, 3), (3, 5)], {"trans_b": True}, ["over 3 values", "over 5"]),
        ("conv", [(1, 3, 8, 8), (4, 2, 3, 3)], {}, ["groups is 1", "3 channels", "takes 2"]),
        ("conv", [(1, 4, 8, 8), (3, 2, 3, 3)], {"groups": 2}, ["groups is 2", "groups divide 3"]),
        ("conv", [(1, 4, 8, 8), (4, 4, 3)], {}, ["the weight", "rank 3", "rank 4"]),
        ("conv", [(4, 8), (4, 8)], {}, ["rank 2", "one to three spatial axes"]),
        ("conv", [(1, 1, 4, 4), (1, 1, 5, 5)], {}, ["(5, 5)", "(4, 4)", "pad more"]),
        ("conv", [(1, 1, 4, 4), (1, 1, 3, 3)], {"strides": 0}, ["strides is 0", ">= 1"]),
        ("conv", [(1, 1, 4, 4), (1, 1, 3, 3)], {"strides": (1, 1, 1)}, ["strides is (1, 1, 1)", "or 2 of"]),
        ("conv", [(1, 1, 4, 4), (1, 1, 3, 3)], {"pads": (0, -1)}, ["pads is (0, -1)"]),
        ("conv", [(1, 1, 4, 4), (1, 1, 3, 3), (2,)], {}, ["the bias", "(2,)", "(1,)"]),
        ("max_pool", [(1, 1, 4, 4)], {}, ["kernel is missing"]),
        ("max_pool", [(1, 1, 4, 4)], {"kernel": 2, "pads": 2}, ["pads of 2", "wholly"]),
        ("reduce_sum", [(2, 3)], {"axes": (2,)}, ["axis is 2", "-2 to 1"]),
        ("reduce_sum", [(2, 3)], {"axes": (1, -1)}, ["names an axis twice"]),
        ("batch_normalization", [(1, 3), (3,), (3,), (2,), (3,)], {}, ["the mean", "(2,)", "(3,)"]),
        ("lrn", [(1, 3, 2, 2)], {"size": 0}, ["size is 0"]),
        ("softmax", [(2, 3)], {"axis": 5}, ["axis is 5"]),
        ("layer_normalization", [(2, 3), (2,)], {}, ["the scale", "(2,)", "(3,)"]),
    ],
)
def test_operands_that_do_not_fit_are_named(op: str, shapes: Any, attrs: Any, parts: list[str]) -> None:
    with pytest.raises(ValueError) as error:
        BUILTIN_OPS[op].signature(shapes, attrs)
    for part in parts:
        assert part in str(error.value)


def test_dtypes_are_not_mixed() -> None:
    g = Graph()
    with pytest.raises(ValueError, match="operand 1 is float64, operand 0 is float32"):
        ops.add(g.input("a", (2,), "float32"), g.input("b", (2,), "float64"))
    with pytest.raises(ValueError, match="operand 0 is int64, but the operator works on floating"):
        ops.exp(g.input("c", (2,), "int64"))
    assert not g.nodes
    with pytest.raises(ValueError, match=r"min is 0.5, which is no value of operand 0's dtype int64"):
        ops.clip(g.input("d", (2,), "int64"), 0.5)
    with pytest.raises(ValueError, match=r"alpha is 0\.5, but operand 0 is int64"):
        ops.gemm(*[g.input(name, (2, 2), "int64") for name in "ef"], alpha=0.5)
    with pytest.raises(ValueError, match="leave no number"):
        ops.clip(g.tensor("a"), float("nan"))
    assert ops.clip(g.tensor("a"), float("-inf"), 3).shape == (2,)


def test_integers_divide_towards_zero() -> None:
    a, b = np.array([7, -7, 7, -7, 6, -6, 0]), np.array([2, 2, -2, -2, 3, 3, -5])
    (actual,) = run_cut(BUILTIN_OPS["div"], {}, [a, b])
    np.testing.assert_array_equal(actual, [3, -3, -3, 3, 2, -2, 0])


def test_sigmoid_and_softmax_do_not_overflow() -> None:
    x = np.array([[-1e4, -100, 0, 100, 1e4]], np.float32)
    with np.errstate(all="raise", under="ignore"):
        (sigmoid,) = run_cut(BUILTIN_OPS["sigmoid"], {}, [x])
        (softmax,) = run_cut(BUILTIN_OPS["softmax"], {}, [x])
    np.testing.assert_allclose(sigmoid, [[0, 0, 0.5, 1, 1]], atol=1e-6)
    np.testing.assert_array_equal(softmax, [[0, 0, 0, 0, 1]])


def test_tiles_of_a_convolution_do_not_change_its_values(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case("conv", ((1, 3, 20, 9), (4, 3, 3, 3), (4,)), {"pads": 1, "strides": (2, 1)})
    arrays = case.arrays()
    (whole,) = run_cut(BUILTIN_OPS["conv"], case.attrs, arrays)
    for nbytes in (1, 3 * 27 * 9 * 4, 7 * 27 * 9 * 4):  # one, three and seven rows of ten
        monkeypatch.setattr(ops, "TILE_NBYTES", nbytes)
        (tiled,) = run_cut(BUILTIN_OPS["conv"], case.attrs, arrays)
        close(tiled, whole, 1e-6)


def test_the_scratch_memory_of_a_convolution_is_bounded() -> None:
    op = BUILTIN_OPS["conv"]
    shapes = [(1, 64, 224, 224), (64, 64, 3, 3)]
    signature = op.signature(shapes, {"pads": 1})
    boxes = (signature.input_box(0, signature.index), signature.input_box(1, signature.index))
    out = signature.output_box(0, signature.index)
    assert out is not None
    nbytes = op.workspace(Shard(signature.index, signature, {"pads": 1}, boxes, (out,), None), 4)
    assert 64 * 9 * 224 * 4 <= nbytes <= 4 << 20
    one_by_one = op.signature([(1, 64, 224, 224), (64, 64, 1, 1)], {})
    assert op.workspace(Shard(one_by_one.index, one_by_one, {}, boxes, (out,), None), 4) == 0


# -- functions on graph tensors ----------------------------------------------------------------------------


def test_functions_add_the_operators_of_their_names() -> None:
    g = Graph()
    x, v = g.input("x", (2, 4, 9, 9)), g.input("v", (4,))
    w, square = g.input("w", (6, 2, 3, 3)), g.input("square", (9, 9))
    made: dict[str, Tensor] = {
        "add": ops.add(x, x),
        "sub": ops.sub(x, square),
        "mul": ops.mul(x, x),
        "div": ops.div(x, x),
        "sum_n": ops.sum_n(x, x, square),
        "relu": ops.relu(x, name="act"),
        "leaky_relu": ops.leaky_relu(x, 0.2),
        "clip": ops.clip(x, 0, 6),
        "sigmoid": ops.sigmoid(x),
        "tanh": ops.tanh(x),
        "exp": ops.exp(x),
        "sqrt": ops.sqrt(x),
        "neg": ops.neg(x),
        "abs": ops.abs(x),
        "matmul": ops.matmul(x, square),
        "linear": ops.linear(square, square),
        "gemm": ops.gemm(square, square, trans_b=True, alpha=0.5),
        "conv": ops.conv(x, w, strides=2, pads=1, groups=2),
        "max_pool": ops.max_pool(x, 2, strides=2),
        "average_pool": ops.average_pool(x, [3, 3], strides=[2, 2], pads=[1, 1]),
        "global_average_pool": ops.global_average_pool(x),
        "global_max_pool": ops.global_max_pool(x),
        "reduce_sum": ops.reduce_sum(x, 1),
        "reduce_mean": ops.reduce_mean(x, [2, 3], keepdims=False),
        "reduce_max": ops.reduce_max(x),
        "batch_normalization": ops.batch_normalization(x, v, v, v, v),
        "lrn": ops.lrn(x, 3),
        "softmax": ops.softmax(x, 1),
        "log_softmax": ops.log_softmax(x),
        "layer_normalization": ops.layer_normalization(square, g.input("u", (9,))),
        "uniform": uniform(g, (3,), seed=1),
        "normal": normal(g, (3,), seed=1),
        "bernoulli": bernoulli(g, (3,), seed=1),
        "integers": integers(g, (3,), 0, 9, seed=1),
        "dropout": dropout(x, 0.5, seed=1),
    }
    assert set(made) == set(BUILTIN_OPS)
    makers = {out: node for node in g.nodes.values() for out in node.outputs}
    for name, tensor in made.items():
        assert makers[tensor.name].op == name
    assert "act" in g.nodes and made["conv"].shape == (2, 6, 5, 5)
    assert made["average_pool"].shape == (2, 4, 5, 5) and made["reduce_mean"].shape == (2, 4)
    assert Graph.from_json(g.to_json()).to_json() == g.to_json()
