"""Tensors of extent 0, which a model is given or makes: of each there is one value alone, so that it is known."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper, parser
from onnx.reference import ReferenceEvaluator

from tapestry_exec import run, run_stages
from tapestry_plan import Graph, Mesh, ShardPlan, UnsupportedOp, plan
from tapestry_plan.onnx import StagedModel, load_onnx
from tests.onnx_cases import MICROSOFT, NodeCase
from tests.onnx_models import model_of, ort, random

make = helper.make_node
X = random(6, 4)
EMPTY = np.empty((0, 4), np.float32)
NONE = "int64[1] s = {4}, int64[1] e = {2}"
"""The bounds of a Slice that takes nothing."""


def read(text: str, opset: int = 21) -> Any:
    """A model from `(inputs) => (outputs) <constants> { nodes }`."""
    version = f'<ir_version: 10, opset_import: ["" : {opset}, "com.microsoft" : 1]>'
    return parser.parse_model(f"{version} agraph {text}")


def check(model: Any, feeds: dict[str, Any], **how: Any) -> Graph:
    """The graph of a model, of which plans for 1 and 3 devices make what ONNX Runtime makes."""
    graph = load_onnx(model, **how)
    wanted = dict(zip([value.name for value in model.graph.output], ort(model, feeds), strict=True))
    for devices in (1, 3):
        p = plan(graph, Mesh(devices))
        compare(run(p, feeds, verify=True).outputs, wanted)
        assert ShardPlan.from_json(p.to_json()) == p
    return graph


def compare(found: Any, wanted: Any) -> None:
    assert found.keys() == wanted.keys()
    for name, array in wanted.items():
        assert (found[name].shape, found[name].dtype) == (array.shape, array.dtype)
        np.testing.assert_allclose(found[name], array, rtol=1e-5, atol=1e-6)


A = f"(float[6, 4] x) => (float[m, n] y) <{NONE}> {{ a = Slice (x, s, e) "
W = f"(float[6, 4] x, float[4, 3] w) => (float[m, n] y) <{NONE}> {{ a = Slice (x, s, e) "
MADE: dict[str, tuple[str, int]] = {
    "one after it": (A + "y = Relu (a) }", 0),
    "an output": (A + "b = Relu (x) y = Identity (a) }", 0),
    "a product, of which the other side is computed": (W + "v = Exp (w) b = MatMul (a, v) y = Neg (b) }", 1),
    "a sum over nothing": (W + "b = MatMul (a, w) y = ReduceSum (b) }", 0),
    "a product over nothing": (A + "t = Transpose (a) b = MatMul (t, a) y = Add (b, b) }", 0),
    "a product over nothing, and what is added to it": (
        f"(float[6, 4] x, float[4, 4] c) => (float[4, 4] y) <{NONE}> {{ a = Slice (x, s, e) t = Transpose (a) "
        "d = Exp (c) b = Gemm (t, a, d) y = Neg (b) }",
        3,
    ),
    "joined": (A + "b = Concat <axis = 0> (a, x, a) y = Relu (b) }", 1),
    "split": (
        "(float[6, 4] x) => (float[m, n] y, float[k, n] z) <int64[2] s = {0, 6}> "
        "{ a, b = Split <axis = 0> (x, s) y = Relu (b) z = Relu (a) }",
        1,
    ),
    "nothing gathered": (
        "(float[6, 4] x) => (float[m, n] y) <int64[0] i = {}> { a = Gather (x, i) y = Relu (a) }",
        0,
    ),
    "expanded to nothing": (
        "(float[1, 4] x) => (float[m, n] y) <int64[2] s = {0, 4}> { a = Expand (x, s) y = Relu (a) }",
        0,
    ),
    "cut off": (
        "(float[6, 4] x) => (float[m, n] y) <int64[4] p = {0, -2, 0, -2}> { a = Pad (x, p) y = Relu (a) }",
        0,
    ),
    "filled up": (
        f"(float[6, 4] x) => (float[m, n] y) <{NONE}, int64[4] p = {{1, 0, 2, 0}}, float v = {{2}}> "
        "{ a = Slice (x, s, e) b = Pad (a, p, v) c = Exp (b) y = Add (c, c) }",
        0,
    ),
    "none of the largest": (
        "(float[6, 4] x) => (float[m, n] y, int64[m, n] i) <int64[1] k = {0}> { y, i = TopK (x, k) }",
        0,
    ),
    "repeated no times": (
        "(float[6, 4] x) => (float[m, n] y) <int64[2] r = {0, 2}> { a = Tile (x, r) y = Relu (a) }",
        0,
    ),
    "made of a shape": (
        "(float[6, 4] x) => (float[m, n] y) <int64[2] s = {0, 4}> "
        "{ a = ConstantOfShape (s) b = Add (a, a) c = Concat <axis = 0> (b, x) y = Neg (c) }",
        1,
    ),
    "of another shape": (
        f"(float[6, 4] x) => (float[m, n] y) <{NONE}, int64[2] r = {{2, 0}}> "
        "{ a = Slice (x, s, e) b = Reshape <allowzero = 1> (a, r) y = Relu (b) }",
        0,
    ),
    "nothing written": (
        f"(float[6, 4] x, int64[0, 4] i) => (float[6, 4] y) <{NONE}> "
        "{ a = Slice (x, s, e) b = ScatterElements (x, i, a) y = Neg (b) }",
        2,
    ),
    "normalized, by a scale that is computed": (
        f"(float[6, 4] x, float[4] w) => (float[m, n] y) <{NONE}> "
        "{ a = Slice (x, s, e) v = Exp (w) y = LayerNormalization (a, v) }",
        1,
    ),
    "of com.microsoft": (
        f"(float[6, 4] x, float[4] w) => (float[m, n] y) <{NONE}> "
        "{ a = Slice (x, s, e) v = Exp (w) y = com.microsoft.BiasGelu (a, v) }",
        1,
    ),
    "both branches of an If": (
        f"(float[6, 4] x, float[4, 4] w, bool k) => (float[m, n] y) <{NONE}> {{ a = Slice (x, s, e) y = If (k) <"
        "then_branch = t () => (float[m, n] b) { b = MatMul (a, w) }, "
        "else_branch = u () => (float[m, n] c) { c = Sub (a, a) }> }",
        0,
    ),
}  # and how many operators are left


@pytest.mark.parametrize("what", MADE)
def test_what_a_model_makes_without_cells(what: str) -> None:
    text, count = MADE[what]
    model = read(text)
    kinds = {value.name: value.type.tensor_type for value in model.graph.input}
    feeds: dict[str, Any] = {
        name: np.ones([dim.dim_value for dim in kind.shape.dim], helper.tensor_dtype_to_np_dtype(kind.elem_type))
        for name, kind in kinds.items()
    }
    feeds |= {name: random(*array.shape) for name, array in feeds.items() if array.dtype == np.float32}
    graph = check(model, feeds)
    assert len(graph.nodes) == count
    found = run_stages(StagedModel(model, feeds), {}, lambda one: plan(one, Mesh(2))).outputs
    compare(found, dict(zip(graph.outputs, ort(model, feeds), strict=True)))


GIVEN: dict[str, tuple[str, int]] = {
    "Conv": ("(float[0, 3, 5, 5] x, float[2, 3, 3, 3] w) => (float[b, c, h, k] y) { y = Conv (x, w) }", 21),
    "Conv and BatchNormalization": (
        "(float[0, 1, 5, 5] x) => (float[b, c, h, k] y) <float[1, 1, 1, 1] w = {2}, float[1] v = {3}> "
        "{ a = Conv (x, w) y = BatchNormalization (a, v, v, v, v) }",
        21,
    ),
    "Softmax": ("(float[3, 0] x) => (float[3, 0] y) { y = Softmax (x) }", 21),
    "Resize": (
        "(float[1, 1, 0, 4] x) => (float[a, b, c, d] y) <float[4] s = {1, 1, 2, 2}> { y = Resize (x, , s) }",
        21,
    ),
    "MaxPool": ("(float[0, 3, 5, 5] x) => (float[b, c, h, k] y) { y = MaxPool <kernel_shape = [2, 2]> (x) }", 21),
    "nothing past": (
        "(float[1, 2, 3, 4] q, float[1, 2, 3, 4] k, float[1, 2, 3, 4] v, float[1, 2, 0, 4] pk, float[1, 2, 0, 4] pv) "
        "=> (float[a, b, c, d] y, float[e, f, g, h] nk, float[i, j, l, m] nv) "
        "{ y, nk, nv = Attention (q, k, v, , pk, pv) }",
        23,
    ),
}


@pytest.mark.parametrize("what", GIVEN)
def test_what_a_model_is_given_without_cells(what: str) -> None:
    model = read(*GIVEN[what])
    feeds = {
        value.name: random(*(dim.dim_value for dim in value.type.tensor_type.shape.dim)) for value in model.graph.input
    }
    check(model, feeds)


def test_no_queries_have_no_results() -> None:
    """By ONNX's reference; ONNX Runtime refuses."""
    model = read(
        "(float[1, 2, 0, 4] q, float[1, 2, 3, 4] k, float[1, 2, 3, 4] v) => (float[a, b, c, d] y) "
        "{ y = Attention (q, k, v) }",
        23,
    )
    feeds = {"q": random(1, 2, 0, 4), "k": random(1, 2, 3, 4), "v": random(1, 2, 3, 4)}
    (wanted,) = ReferenceEvaluator(model).run(None, feeds)
    compare(run(plan(load_onnx(model), Mesh(3)), feeds).outputs, {"y": wanted})


F32, U8 = np.float32, np.uint8
QUANTIZED = {"s": F32(0.5), "z": U8(3)}
INTEGERS = {"a": np.empty((2, 0), U8), "b": np.empty((0, 3), U8)}
ROWS = {"w": random(5, 4), "p": random(6, 4), "g": random(4), "c": random(4)}
OVER_NOTHING: dict[str, tuple[NodeCase, Any]] = {
    "QGemm": (NodeCase("QGemm", INTEGERS, QUANTIZED, reads=("a", "s", "z", "b", "s", "z")), np.zeros((2, 3), F32)),
    "QGemm, and what is added": (
        NodeCase("QGemm", INTEGERS | {"c": np.array([1, -2, 7], np.int32)}, QUANTIZED, reads=(*"aszbszc",)),
        np.tile(F32([0.25, -0.5, 1.75]), (2, 1)),
    ),
    "QGemm, quantized again": (
        NodeCase("QGemm", INTEGERS | {"c": np.array([1, -2, 7], np.int32)}, QUANTIZED, reads=(*"aszbszcsz",)),
        np.tile(U8([3, 2, 7]), (2, 1)),  # round(c · 0.5) + 3
    ),
    "MatMulIntegerToFloat": (
        NodeCase("MatMulIntegerToFloat", INTEGERS, QUANTIZED, reads=(*"abss",)),
        np.zeros((2, 3), F32),
    ),
    "MatMulIntegerToFloat, and what is added": (
        NodeCase(
            "MatMulIntegerToFloat",
            INTEGERS | {"c": ROWS["w"][0, :3]},
            QUANTIZED,
            reads=("a", "b", "s", "s", "", "", "c"),
        ),
        np.tile(ROWS["w"][0, :3], (2, 1)),
    ),
    "FusedMatMul": (
        NodeCase("FusedMatMul", {"a": random(4, 0, 2), "b": random(0, 3)}, {}, {"transA": 1}),
        np.zeros((4, 2, 3), F32),
    ),
    "MatMulNBits": (
        NodeCase(
            "MatMulNBits",
            {"a": random(2, 0)},
            {"w": np.empty((3, 0, 8), U8), "s": random(0)},
            {"K": 0, "N": 3, "block_size": 16},
        ),
        np.zeros((2, 3), F32),
    ),
    "EmbedLayerNormalization": (
        NodeCase(
            "EmbedLayerNormalization",
            {"i": np.empty((2, 0), np.int32)},
            ROWS,
            outputs=("e", "y"),
            reads=("i", "", "w", "p", "", "g", "c"),
        ),
        np.zeros(2, np.int32),
    ),
    "QAttention's product": (
        NodeCase(
            "QAttention",
            {"a": np.empty((1, 2, 0), U8), "b": np.empty((0, 12), U8), "c": random(12)},
            {"s": F32(0.5), "m": np.array([2], np.int32)},
            {"num_heads": 2},
            reads=("a", "b", "c", "s", "s", "m"),
        ),
        None,
    ),
    "Resize": (
        NodeCase("Resize", {"x": random(0, 3, 4, 4)}, {"n": np.array([0, 3, 8, 2])}, reads=("x", "", "", "n")),
        np.empty((0, 3, 8, 2), F32),
    ),
    "Resize of some axes": (
        NodeCase(
            "Resize", {"x": random(0, 3, 4, 4)}, {"n": np.array([8, 2])}, {"axes": [2, 3]}, reads=("x", "", "", "n")
        ),
        np.empty((0, 3, 8, 2), F32),
    ),
}
"""Operators that ONNX's reference does not compute in advance, with what they make, by their definitions."""


@pytest.mark.parametrize("what", OVER_NOTHING)
def test_products_over_nothing_are_what_is_added(what: str) -> None:
    """ONNX Runtime leaves what the memory held where something is added to them, so that it judges shapes alone."""
    case, wanted = OVER_NOTHING[what]
    case = case if case.op == "Resize" else replace(case, domain=MICROSOFT)
    graph = load_onnx(case.model, opaque=False)
    if wanted is None:  # every query then sees the same values, those of the bias
        wanted = np.tile(case.inputs["c"][8:], (1, 2, 1))
    else:
        judged = dict(zip(case.outputs, ort(case.model, case.inputs), strict=True))["y"]
        assert (judged.shape, judged.dtype) == (wanted.shape, wanted.dtype)
    for devices in (1, 3):
        found = run(plan(graph, Mesh(devices)), case.inputs, verify=True).outputs["y"]
        assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
        np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_nodes_of_known_values_alone_are_computed() -> None:
    """Of an operator that no graph has, and whose values no inference of shapes looks at."""
    nodes = [make("Inverse", ["a"], ["b"], domain="com.microsoft"), make("Add", ["x", "b"], ["y"])]
    model = model_of(nodes, {"x": (2, 2)}, constants={"a": np.array([[2, 1], [1, 1]], F32)})
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    graph = check(model, {"x": random(2, 2)})
    assert [node.op for node in graph.nodes.values()] == ["add"]


CHAIN = ("Relu", "Transpose", "Slice", "MatMul", "Concat", "ReduceSum", "Softmax", "Pad", "Gather", "Tile", "Add")


@settings(deadline=None, max_examples=40)
@given(data=st.data())
def test_chains_with_and_without_cells_equal_onnx_runtime(data: st.DataObject) -> None:
    """Each node reads what the one before makes; an axis may become one of no cells, and one of some again."""
    small = st.integers(0, 3)
    shape = data.draw(small), data.draw(small)
    kinds = data.draw(st.lists(st.sampled_from(CHAIN), min_size=1, max_size=5))
    nodes, constants, feeds = [], dict[str, Any](), {"t0": random(*shape)}
    for k, kind in enumerate(kinds):
        reads, attrs, rows, columns = [f"t{k}"], dict[str, Any](), *shape
        if kind == "Slice":
            start, stop = data.draw(small), data.draw(small)
            constants |= {f"a{k}": np.array([start]), f"b{k}": np.array([stop])}
            reads += [f"a{k}", f"b{k}"]
            shape = len(range(rows)[start:stop]), columns
        elif kind == "MatMul":
            feeds[f"w{k}"] = random(columns, data.draw(small))
            reads.append(f"w{k}")
            shape = rows, feeds[f"w{k}"].shape[1]
        elif kind == "Add":
            feeds[f"w{k}"] = random(1, columns)
            reads.append(f"w{k}")
        elif kind == "Concat":
            feeds[f"w{k}"] = random(data.draw(small), columns)
            reads.append(f"w{k}")
            attrs, shape = {"axis": 0}, (rows + feeds[f"w{k}"].shape[0], columns)
        elif kind == "ReduceSum":
            constants[f"a{k}"], shape = np.array([0]), (1, columns)
            reads.append(f"a{k}")
        elif kind == "Pad":
            before, behind = data.draw(st.integers(-rows, 2)), data.draw(st.integers(0, 2))
            constants[f"a{k}"], shape = np.array([before, 0, behind, 0]), (rows + before + behind, columns)
            reads.append(f"a{k}")
        elif kind == "Gather":
            count = data.draw(small) if rows else 0
            constants[f"a{k}"], shape = np.arange(count) % max(1, rows), (count, columns)
            reads.append(f"a{k}")
        elif kind == "Tile":
            times = data.draw(small)
            constants[f"a{k}"], shape = np.array([1, times]), (rows, columns * times)
            reads.append(f"a{k}")
        elif kind == "Transpose":
            shape = columns, rows
        nodes.append(make(kind, reads, [f"t{k + 1}"], **attrs))
    nodes += [make("Identity", [f"t{len(kinds)}"], ["y"])]
    model = model_of(nodes, {name: array.shape for name, array in feeds.items()}, constants=constants)
    (wanted,) = ort(model, feeds)
    assert wanted.shape == shape
    p = plan(load_onnx(model), Mesh(data.draw(st.integers(1, 3))))
    np.testing.assert_allclose(run(p, feeds, verify=True).outputs["y"], wanted, rtol=1e-4, atol=1e-5)


# -- in stages -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("bound", "rows"), [(0, 0), (2, 2)])
def test_bounds_that_a_run_computes(bound: int, rows: int) -> None:
    model = read(
        "(float[6, 4] x, int64[1] n) => (float[m, 4] y) <int64[1] z = {0}> { a = Slice (x, z, n) y = Exp (a) }"
    )
    feeds = {"x": X, "n": np.array([bound])}
    found = run_stages(StagedModel(model), feeds, lambda graph: plan(graph, Mesh(2))).outputs["y"]
    assert found.shape == (rows, 4)
    np.testing.assert_allclose(found, ort(model, feeds)[0], rtol=1e-6)


def test_no_hits_and_a_slice_by_their_number() -> None:
    model = read(
        "(float[6, 4] x, bool[6] c) => (float[m, 4] y) <int64[1] z = {0}, int64 first = {0}> { a = Compress <axis = 0> "
        "(x, c) s = Shape (a) n = Gather (s, z) b = Slice (x, z, n) y = Exp (b) }"
    )
    for hits in (0, 2):
        feeds = {"x": X, "c": np.arange(6) < hits}
        found = run_stages(StagedModel(model, feeds), {}, lambda graph: plan(graph, Mesh(2))).outputs["y"]
        np.testing.assert_allclose(found, ort(model, feeds)[0], rtol=1e-6)


# -- sizes ---------------------------------------------------------------------------------------------------

CACHE = """(float[batch, past, 4] before, float[batch, 2, 4] x) => (float[batch, t, 4] now, float[batch, 2, t] y) {
    now = Concat <axis = 1> (before, x) turned = Transpose <perm = [0, 2, 1]> (now) s = MatMul (x, turned)
    y = Softmax (s)
}"""


@pytest.mark.heavy(2)
@pytest.mark.parametrize("shapes", [{"batch": 1, "past": 0}, {"before": (1, 0, 4)}])
def test_the_first_step_of_a_decoder_has_nothing_past(shapes: Any) -> None:
    model, feeds = read(CACHE), {"before": random(1, 0, 4), "x": random(1, 2, 4)}
    graph = check(model, feeds, shapes=shapes)
    assert graph.sizes == {"batch": 1, "past": 0} and len(graph.nodes) == 2
    later = {"before": random(1, 3, 4), "x": random(1, 2, 4)}
    again, first = graph.bind(past=3), plan(graph, Mesh(2))
    for p in (plan(again, Mesh(2)), first.bind(past=3)):
        compare(run(p, later).outputs, dict(zip(("now", "y"), ort(model, later), strict=True)))
    back = plan(again, Mesh(2)).bind(past=0)
    compare(run(back, feeds).outputs, dict(zip(("now", "y"), ort(model, feeds), strict=True)))
    found = run_stages(StagedModel(model, shapes=shapes), feeds, lambda one: plan(one, Mesh(2))).outputs
    compare(found, dict(zip(("now", "y"), ort(model, feeds), strict=True)))


def test_a_batch_of_nothing_has_nothing_to_plan() -> None:
    model, feeds = read(CACHE), {"before": random(0, 3, 4), "x": random(0, 2, 4)}
    assert not check(model, feeds, shapes={"batch": 0, "past": 3}).nodes
    p = plan(load_onnx(model, shapes={"batch": 2, "past": 3}), Mesh(2))
    says = (
        r"bind: at batch=0, past=3 the model comes to other operators .* no operator 'MatMul_0' \(matmul\) there; plan"
    )
    with pytest.raises(ValueError, match=says):
        p.bind(batch=0)
    with pytest.raises(ValueError, match=r"'before'.* has shape \(1, 3, 4\); the model has \(0, 3, 4\)"):
        run(plan(load_onnx(model, shapes={"batch": 0, "past": 3}), Mesh(2)), {"before": random(1, 3, 4)})


# -- recurrences ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", [0, 1])
@pytest.mark.parametrize(("kind", "gates"), [("LSTM", 4), ("GRU", 3), ("RNN", 1)])
def test_walks_of_no_steps_end_where_they_begin(kind: str, gates: int, layout: int) -> None:
    """By ONNX's definition; ONNX Runtime gives what the memory held, or ends the process."""
    states = ("h", "c")[: 1 + (kind == "LSTM")]
    attrs = {"hidden_size": 4, "activations": ["Tanh"], "layout": layout} if kind == "RNN" else {"hidden_size": 4}
    node = make(kind, ["x", "w", "r", "", "", *states], ["y", *(f"{name}_last" for name in states)], **attrs)
    by_batch = bool(attrs.get("layout"))
    shape = (2, 1, 4) if by_batch else (1, 2, 4)
    feeds = {name: random(*shape, seed=k) for k, name in enumerate(states)}
    inputs = {"x": (2, 0, 3) if by_batch else (0, 2, 3), **dict.fromkeys(states, shape)}
    constants = {"w": random(1, 4 * gates, 3), "r": random(1, 4 * gates, 4)}
    graph = load_onnx(model_of([node], inputs, ("y", *(f"{name}_last" for name in states)), constants))
    found = run(plan(graph, Mesh(2)), feeds).outputs
    assert found.pop("y").shape == ((2, 0, 1, 4) if by_batch else (0, 1, 2, 4))
    for name, array in feeds.items():
        np.testing.assert_array_equal(found[f"{name}_last"], array)
    node.input[5:] = [""] * len(states)
    graph = load_onnx(model_of([node], {"x": inputs["x"]}, ("y", "h_last"), constants))
    assert not run(plan(graph, Mesh(2)), {}).outputs["h_last"].any(), "they begin at 0"


# -- what nobody takes ---------------------------------------------------------------------------------------

WRONG: dict[str, tuple[str, str]] = {
    "rows that do not fit": (
        f"(float[6, 4] x, float[3, 4] w) => (float[m, n] y) <{NONE}> {{ a = Slice (x, s, e) y = Add (a, w) }}",
        r"'Add_0' .*Incompatible dimensions",
    ),
    "channels that do not fit": (
        "(float[0, 3, 5, 5] x, float[2, 5, 3, 3] w) => (float[b, c, h, k] y) { y = Conv (x, w) }",
        r"node 'Conv_0' \(Conv\): ONNX Runtime does not run it: .*Input channels C is not equal",
    ),
    "cells that have no place": (
        "(float[6, 4] x) => (float[m, n] y) <int64[2] r = {2, 0}> { y = Reshape <allowzero = 1> (x, r) }",
        r"cannot view shape \(6, 4\) \[24 elements\] as \(2, 0\)",
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_does_not_fit_is_refused(what: str) -> None:
    text, says = WRONG[what]
    model = read(text)
    kinds = {value.name: value.type.tensor_type for value in model.graph.input}
    feeds = {name: random(*(dim.dim_value for dim in kind.shape.dim)) for name, kind in kinds.items()}
    for judge in (lambda: ort(model, feeds), lambda: ReferenceEvaluator(model).run(None, feeds)):
        with pytest.raises(Exception, match=r"(?s)."):
            judge()
    with pytest.raises(ValueError, match=says) as caught:
        load_onnx(model)
    assert "StagedModel" not in str(caught.value), "which does not take it either"
    with pytest.raises(ValueError, match=says):
        StagedModel(model, feeds)


def test_the_largest_of_nothing_is_refused_by_all() -> None:
    model = read("(float[0, 4] x) => (int64[1, 4] y) { y = ArgMax <axis = 0> (x) }")
    for read_it in (load_onnx, lambda one: StagedModel(one, {"x": EMPTY})):
        with pytest.raises(ValueError, match=r"node 'ArgMax_0' \(ArgMax\): .*neither ONNX Runtime nor"):
            read_it(model)


def test_an_operator_of_ones_own_needs_cells() -> None:
    from tapestry_plan import ops

    with pytest.raises(UnsupportedOp, match=r"tensor 'a' of shape \(0, 4\) has no cells; an operator needs some"):
        load_onnx(read(A + "y = Relu (a) }"), ops={"Relu": ops.exp}, opaque=False)


def test_indices_into_nothing_are_refused() -> None:
    """As the model is read: whatever they are, none is of a cell."""
    model = read("(float[0, 4] x, int64[2] i) => (float[2, 4] y) { y = Gather (x, i) }")
    with pytest.raises(ValueError, match=r"\(Gather\): tensor 'x' .* no cells; .*neither ONNX Runtime nor .* takes it"):
        load_onnx(model)


def test_names_that_the_view_of_no_cells_would_take() -> None:
    nodes = [make("Slice", ["x", "s", "e"], ["y"]), make("Relu", ["x"], ["y.cell"]), make("Neg", ["y.cell"], ["z"])]
    nodes += [make("Exp", ["z"], ["broadcast"])]
    model = model_of(nodes, {"x": (6, 4)}, ("y", "z", "broadcast"), {"s": np.array([4]), "e": np.array([2])})
    check(model, {"x": X})
