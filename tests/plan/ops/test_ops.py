"""Every operator: whole against ONNX Runtime or NumPy, and cut along every index axis against the whole."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from math import erf
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from tapestry_exec import evaluate
from tapestry_plan import ops
from tapestry_plan.ir import BUILTIN_OPS, Graph, Op, Shard, Tensor
from tapestry_plan.ir.signature import Signature
from tapestry_plan.ops import bernoulli, dropout, integers, normal, uniform
from tapestry_plan.ops.cells.error_function import error_function
from tapestry_plan.ops.windows import convolution
from tapestry_sets import Box
from tests.cutting import Case, backwards, close, cut_boxes, ort, run_cut
from tests.operator_cases import CASES, HARDMAX_OF_4X6


def test_every_operator_has_a_case() -> None:
    """But those whose partial results are states, which have tests of their own."""
    assert {case.op for case in CASES} == {name for name, op in BUILTIN_OPS.items() if not op.has_states}


def all_close(actual: Sequence[Any], wanted: Sequence[Any]) -> None:
    for one, other in zip(actual, wanted, strict=True):
        close(one, other, 2e-3 if other.dtype == np.float16 else 2e-5)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_whole_equals_onnx_runtime_or_numpy(case: Case) -> None:
    arrays = case.arrays()
    all_close(run_cut(BUILTIN_OPS[case.op], case.attrs, arrays), case.expected(arrays))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_cut_of_every_axis_equals_the_whole(case: Case) -> None:
    arrays = case.arrays(1)
    op = BUILTIN_OPS[case.op]
    signature = op.signature([array.shape for array in arrays], case.attrs)
    wanted = case.expected(arrays)
    for axis in signature.axes:
        for parts in {n for n in (2, 3, 5, 7) if n <= axis.size}:
            cut = {axis.name: parts}
            assert sum(not box.is_empty for box in cut_boxes(signature, cut)) == parts
            all_close(run_cut(op, case.attrs, arrays, cut), wanted)
    everywhere = {axis.name: min(2, axis.size) for axis in signature.axes}
    all_close(run_cut(op, case.attrs, arrays, everywhere), wanted)


SINGLE = [
    case
    for case in CASES
    if case.shapes and case.dtype == "float32" and not case.dtypes and not {"dtype", "dtypes"} & case.attrs.keys()
]


@pytest.mark.parametrize(("dtype", "bound"), [("float64", 2e-5), ("float16", 2e-2)])
@pytest.mark.parametrize("case", SINGLE, ids=str)
def test_floats_of_other_widths_equal_single_ones(case: Case, dtype: str, bound: float) -> None:
    """Operands and results that are exact in half precision but for the operator's own rounding."""
    arrays = [array.astype(np.float16).astype(np.float32) for array in case.arrays(4)]
    op = BUILTIN_OPS[case.op]
    shapes = [array.shape for array in arrays]
    cut = {axis.name: min(2, axis.size) for axis in op.signature(shapes, case.attrs).axes}
    made = run_cut(op, case.attrs, [array.astype(dtype) for array in arrays], cut)
    for one, single in zip(made, case.expected(arrays), strict=True):
        assert one.dtype == (dtype if single.dtype.kind == "f" else single.dtype)
        close(one.astype(single.dtype), single, bound)


def test_every_axis_of_every_operator_is_cut() -> None:
    """Some case gives each axis, by name, enough points for three parts that are not empty, of two sizes."""
    most: dict[tuple[str, str], int] = {}
    for case in CASES:
        for axis in BUILTIN_OPS[case.op].signature(list(case.shapes), case.attrs).axes:
            key = case.op, axis.name
            most[key] = max(most.get(key, 1), axis.size)
    few = {key: n for key, n in most.items() if n < 2}
    assert not few


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_order_of_the_index_axes_means_nothing(case: Case) -> None:
    op = BUILTIN_OPS[case.op]

    def reversed_signature(shapes: Any, attrs: Any) -> Signature:
        return backwards(op.signature(shapes, attrs))

    other = replace(op, name="other", signature=reversed_signature)
    arrays = case.arrays(2)
    shapes = [array.shape for array in arrays]
    cut = {axis.name: min(2, axis.size) for axis in op.signature(shapes, case.attrs).axes}
    all_close(run_cut(other, case.attrs, arrays, cut), case.expected(arrays))


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
    assert names("mean", [(1, 2, 8)], axis=(1,)) == (["i0", "i2"], ["i1"])
    assert names("softmax", [(1, 2, 8)], axis=1) == (["i0", "i2"], [])
    assert names("top_k", [(1, 2, 8)], axis=1, k=2) == (["i0", "i2"], [])
    assert names("take", [(5, 6), (2, 3)], axis=1) == (["i0", "i1", "i2"], [])
    assert names("einsum", [(2, 3, 4), (4, 5)], equation="...xy,yz") == (["e0", "x", "z"], ["y"])
    assert names("matrix_products", [(2, 3, 4), (4, 5)]) == (["b0", "m", "n", "k"], [])
    assert names("conv_transpose", [(1, 2, 8), (2, 4, 3)]) == (["n", "c", "w"], ["ci"])
    assert names("attention", [(1, 4, 8, 2), (1, 2, 8, 2), (1, 2, 8, 2)]) == (["b", "h", "s"], [])
    assert names("group_normalization", [(1, 4, 8), (4,), (4,)], groups=2) == (["n", "g"], [])
    assert names("instance_normalization", [(1, 4, 8), (4,), (4,)]) == (["n", "c"], [])
    assert names("put_along_axis", [(5, 6, 7), (2, 6, 3), (2, 6, 3)]) == (["i1"], [])


def test_linear_answers_to_the_seeds_names() -> None:
    signature = BUILTIN_OPS["linear"].signature([(8, 4), (4, 6), (6,)], {})
    assert [signature.axis(name) for name in ("batch", "out", "in")] == [0, 1, 2]
    # P_W = [in, 1] and P_Y = [batch, 1] for one value of out
    column = Box((0, 2, 0), (8, 1, 4))
    assert signature.input_box(1, column) == Box((0, 2), (4, 1))
    assert signature.output_box(0, column) == Box((0, 2), (8, 1))


def test_linear_takes_any_number_of_batch_axes() -> None:
    signature = BUILTIN_OPS["linear"].signature([(2, 3, 8, 4), (4, 6), (6,)], {})
    assert [axis.name for axis in signature.axes] == ["b0", "b1", "m", "n", "k"]
    assert [signature.axis(name) for name in ("batch", "out", "in")] == [2, 3, 4]
    matmul = BUILTIN_OPS["matmul"].signature([(2, 3, 8, 4), (4, 6)], {})
    assert [axis.name for axis in matmul.axes] == ["b0", "b1", "m", "n", "k"]
    assert all(signature.input_box(k, signature.index) == matmul.input_box(k, matmul.index) for k in (0, 1))


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


def test_rows_shared_by_neighbors_follow_from_the_window() -> None:
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
        ("local_response_normalization", [(1, 8, 2, 2)], {"size": 5}, 14),
        ("batch_normalization", [(1, 2)] + [(2,)] * 4, {}, 2),
    ],
)
def test_work_is_counted_for_each_index_point(op: str, shapes: Any, attrs: Any, per_point: float) -> None:
    signature = BUILTIN_OPS[op].signature(shapes, attrs)
    assert BUILTIN_OPS[op].flop_per_point(signature, attrs) == per_point


# -- values ------------------------------------------------------------------------------------------------


def test_integers_divide_toward_zero() -> None:
    a, b = np.array([7, -7, 7, -7, 6, -6, 0]), np.array([2, 2, -2, -2, 3, 3, -5])
    (actual,) = run_cut(BUILTIN_OPS["divide"], {}, [a, b])
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
        monkeypatch.setattr(convolution.tuning, "TILE_NBYTES", nbytes)
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
    i, t = g.input("i", (9, 9), "int64"), g.input("t", (9, 9), "bool")
    made: dict[str, Tensor] = {
        "add_n": ops.add_n(x, x, square),
        "relu": ops.relu(x, name="act"),
        "leaky_relu": ops.leaky_relu(x, 0.2),
        "clip": ops.clip(x, 0, 6),
        "matmul": ops.matmul(x, square),
        "linear": ops.linear(square, square),
        "gemm": ops.gemm(square, square, trans_b=True, alpha=0.5),
        "einsum": ops.einsum("ij,jk", square, square),
        "conv": ops.conv(x, w, strides=2, pads=1, groups=2),
        "conv_transpose": ops.conv_transpose(x, g.input("wt", (4, 3, 2, 2)), strides=2, output_padding=1),
        "max_pool": ops.max_pool(x, 2, strides=2),
        "sum_pool": ops.sum_pool(x, 2, strides=2),
        "average_pool": ops.average_pool(x, [3, 3], strides=[2, 2], pads=[1, 1]),
        "sum": ops.sum(x, 1, keepdims=True),
        "mean": ops.mean(x, [2, 3], keepdims=False),
        "any": ops.any(t, 0, keepdims=True),
        "all": ops.all(t, (0, 1), keepdims=False),
        "batch_normalization": ops.batch_normalization(x, v, v, v, v),
        "local_response_normalization": ops.local_response_normalization(x, 3),
        "softmax": ops.softmax(x, 1),
        "layer_normalization": ops.layer_normalization(square, g.input("u", (9,))),
        "rms_normalization": ops.rms_normalization(square, g.tensor("u")),
        "group_normalization": ops.group_normalization(x, v, v, 2),
        "instance_normalization": ops.instance_normalization(x, v, v),
        "attention": ops.attention(x, x, x, square, causal=True),
        "logical_not": ops.logical_not(t),
        "bitwise_invert": ops.bitwise_invert(i),
        "where": ops.where(t, square, square),
        "astype": ops.astype(i, "float64"),
        "quantize": ops.quantize(x, v, dtype="uint8", axis=1),
        "requantize": ops.requantize(x, v, dtype="int8", axis=1),
        "dequantize": ops.dequantize(ops.astype(i, "int32"), g.tensor("u"), dtype="float64"),
        "center": ops.center(g.input("bytes", (4, 9), "uint8"), g.input("zeros", (4,), "uint8"), axis=0),
        "bitcast": ops.bitcast(i, "float64"),
        "take": ops.take(square, i, 1),
        "take_along_axis": ops.take_along_axis(square, i, 1),
        "gather_nd": ops.gather_nd(square, g.input("two", (5, 2), "int32")),
        "put_along_axis": ops.put_along_axis(square, i, square, reduction="add"),
        "scatter_nd": ops.scatter_nd(square, g.input("one", (5, 1), "int32"), g.input("rows", (5, 9))),
        "one_hot": ops.one_hot(i, 3, axis=0),
        "cumulative_sum": ops.cumulative_sum(square, 0, reverse=True),
        "top_k": ops.top_k(square, 4)[1],
        "iota": ops.iota(g, 5),
        "recurrence": ops.recurrence(
            g.input("steps", (3, 1, 2, 4)), g.input("r", (1, 4, 4)), g.input("first", (1, 2, 4)), kind="rnn"
        ),
        "recurrence_step": ops.recurrence_step(
            g.input("step", (1, 2, 1, 4)), g.input("rows_of", (1, 1, 4, 4)), g.tensor("first"), kind="rnn"
        ),
        "resize": ops.resize(square, scales=(1, 1.5), mode="linear"),
        "uniform": uniform(g, (3,), seed=1),
        "normal": normal(g, (3,), seed=1),
        "bernoulli": bernoulli(g, (3,), seed=1),
        "integers": integers(g, (3,), 0, 9, seed=1),
        "dropout": dropout(x, 0.5, seed=1),
        "opaque": ops.opaque(
            g.input("whole", (4, 6)), model=HARDMAX_OF_4X6, shapes=[(4, 6)], dtypes=["float32"], why="as an example"
        ),
    }
    for name in sorted({case.op for case in CASES} - set(made)):  # the others take tensors only
        case = next(case for case in CASES if case.op == name)
        dtypes = case.dtypes or (case.dtype,) * len(case.shapes)
        operands = [g.input(f"{name}{k}", s, d) for k, (s, d) in enumerate(zip(case.shapes, dtypes, strict=True))]
        made[name] = getattr(ops, name)(*operands)
    makers = {out: node for node in g.nodes.values() for out in node.outputs}
    for name, tensor in made.items():
        assert makers[tensor.name].op == name
    assert "act" in g.nodes and made["conv"].shape == (2, 6, 5, 5)
    assert made["average_pool"].shape == (2, 4, 5, 5) and made["mean"].shape == (2, 4)
    assert made["top_k"].shape == (9, 4) and made["top_k"].dtype == "int64" and made["resize"].shape == (9, 13)
    assert made["conv_transpose"].shape == (2, 3, 19, 19) and made["all"].shape == ()
    assert Graph.from_json(g.to_json()).to_json() == g.to_json()


def test_functions_have_names_and_docstrings_and_are_exported() -> None:
    for name, op in BUILTIN_OPS.items():
        function = getattr(ops, name)
        assert function.op is op and function.__name__ == name and function.__doc__
    themes = [module for name, module in sys.modules.items() if name.startswith("tapestry_plan.ops.")]
    found = [getattr(each, "op", None) for module in themes for each in vars(module).values()]
    declared = {op.name for op in found if isinstance(op, Op)}
    assert declared == set(BUILTIN_OPS)  # no name of a module, such as `math.prod`, hides an operator


def test_the_door_has_no_names_of_others() -> None:
    """`import *` of its modules would bring `math.isfinite`, which takes no tensors."""
    names = {name for name in vars(ops) if not name.startswith("_")} - {"BESIDE_OPERATORS", *ops.BESIDE_OPERATORS}
    modules = {name for name in names if getattr(ops, name) is sys.modules.get(f"tapestry_plan.ops.{name}")}
    assert names - modules == set(BUILTIN_OPS) and "isfinite" not in names
    assert all(hasattr(ops, name) for name in ops.BESIDE_OPERATORS)


def test_functions_that_make_views_only() -> None:
    g = Graph()
    x = g.input("x", (2, 8, 4, 6))
    values = np.arange(2 * 8 * 4 * 6, dtype=np.float32).reshape(2, 8, 4, 6)
    wanted = {
        "taken": (ops.take(x, [[0, -1], [3, 3]], axis=1), values.take([[0, -1], [3, 3]], axis=1)),
        "one": (ops.take(x, 2, axis=1), values[:, 2]),
        "deep": (ops.space_to_depth(x, 2), ort("SpaceToDepth", [values], blocksize=2)),
        "flat": (ops.depth_to_space(x, 2), ort("DepthToSpace", [values], blocksize=2)),
        "crd": (ops.depth_to_space(x, 2, mode="CRD"), ort("DepthToSpace", [values], blocksize=2, mode="CRD")),
    }
    for name, (tensor, _) in wanted.items():
        g.output(tensor, name)
    assert not g.nodes
    for name, array in evaluate(g, {"x": values}).items():
        np.testing.assert_array_equal(array, wanted[name][1])


@pytest.fixture(params=["scipy", "numpy"])
def erf_library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """SciPy's error function, and ours, which takes its place where SciPy is not installed."""
    if request.param == "scipy":
        pytest.importorskip("scipy")
    else:
        monkeypatch.setattr(sys.modules[error_function.__module__], "load_special", lambda library: None)


def test_the_error_function_is_exact_to_a_few_units(erf_library: None) -> None:
    x = np.concatenate([np.linspace(-7, 7, 40001), [0.46875, 4, 1e-300, np.inf, -np.inf]])
    wanted = np.array([erf(v) for v in x])
    np.testing.assert_allclose(error_function(np, x), wanted, rtol=5e-16)
    single = np.array([erf(v) for v in x.astype(np.float32).astype(np.float64)])
    np.testing.assert_allclose(error_function(np, x.astype(np.float32)), single, rtol=5e-7)
    assert np.isnan(error_function(np, np.array([np.nan]))).all()
    half = x[np.abs(x) < 7].astype(np.float16)
    found = error_function(np, half)
    assert found.dtype == np.float16
    np.testing.assert_allclose(found, [erf(v) for v in half.astype(np.float64)], rtol=1e-3)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_the_error_function_writes_where_it_is_told(erf_library: None, dtype: str) -> None:
    x = np.linspace(-3, 3, 24, dtype=dtype).reshape(4, 6)
    wanted, room = error_function(np, x), np.zeros((4, 12), dtype)
    assert error_function(np, x, out=room[:, ::2]).base is room
    assert room[:, ::2].tobytes() == wanted.tobytes() and not room[:, 1::2].any()
    assert error_function(np, x, out=x) is x and x.tobytes() == wanted.tobytes()


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_gelu_does_without_scipy(erf_library: None, approximate: str) -> None:
    x = np.linspace(-5, 5, 101)
    (y,) = run_cut(BUILTIN_OPS["gelu"], {"approximate": approximate}, [x])
    exact = np.array([v * (1 + erf(v / 2**0.5)) / 2 for v in x])
    np.testing.assert_allclose(y, exact, atol=1e-14 if approximate == "none" else 1e-3)


def test_activations_do_not_overflow() -> None:
    x = np.array([-1e30, -1e4, -100, 0, 100, 1e4, 1e30], np.float32)
    with np.errstate(all="raise", under="ignore"):
        for op in ("silu", "softplus", "elu", "selu", "celu", "erf"):
            (y,) = run_cut(BUILTIN_OPS[op], {}, [x])
            assert np.isfinite(y).all(), op


def test_heads_of_queries_read_their_head_of_keys_only() -> None:
    signature = BUILTIN_OPS["attention"].signature([(1, 6, 4, 8), (1, 2, 5, 8), (1, 2, 5, 8)], {})
    boxes = [signature.input_box(1, box) for box in cut_boxes(signature, {"h": 3})]
    assert [(box.start[1], box.shape[1]) for box in boxes if box is not None] == [(0, 1), (0, 2), (1, 1)]
    shared = signature.inputs[1].projection.shared(*cut_boxes(signature, {"h": 2}), within=(1, 2, 5, 8))
    assert shared.size == 0


def test_resizing_by_a_whole_factor_shares_nothing_and_by_a_fraction_its_edges() -> None:
    def shared(n: int, m: int, **attrs: Any) -> int:
        signature = BUILTIN_OPS["resize"].signature([(n,)], {"sizes": (m,), **attrs})
        return int(signature.inputs[0].projection.shared(*cut_boxes(signature, {"i0": 2}), within=(n,)).size)

    assert shared(8, 24, mode="nearest") == 0
    assert shared(8, 16, mode="linear") == 2  # ±1/4 of a cell around the cut
    assert shared(8, 16, mode="linear", coordinates="asymmetric") == 1
    assert shared(12, 18, mode="nearest", coordinates="asymmetric", nearest="floor") == 0


def test_a_transposed_convolution_shares_what_its_window_spans() -> None:
    for kernel, stride, wanted in ((2, 2, 0), (3, 2, 1), (4, 2, 1), (3, 1, 2), (5, 2, 2)):
        signature = BUILTIN_OPS["conv_transpose"].signature(
            [(1, 1, 64, 1), (1, 1, kernel, 1)], {"strides": (stride, 1)}
        )
        size = signature.axes[signature.axis("h")].size
        first = size // 2 // stride * stride
        boxes = [Box((0, 0, a, 0, 0), (1, 1, b - a, 1, 1)) for a, b in ((0, first), (first, size))]
        assert signature.inputs[0].projection.shared(*boxes, within=(1, 1, 64, 1)).size == wanted
