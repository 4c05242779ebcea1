"""Models as graphs: every operator against ONNX Runtime, and what wrong models get."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, parser, shape_inference
from onnx.reference import ReferenceEvaluator
from onnxruntime.capi.onnxruntime_pybind11_state import get_all_operator_schema

from tapestry_exec import evaluate as run_whole
from tapestry_exec import run, run_stages
from tapestry_plan import Mesh, UnsupportedOp, plan
from tapestry_plan.onnx import StagedModel
from tapestry_plan.onnx.models import load_onnx, read_constant
from tapestry_plan.onnx.operators import IMPORTERS, NOT_ADDED
from tapestry_plan.onnx.walks import DRAWING, SCALING
from tapestry_plan.onnx.ways import count_ways
from tests.onnx_cases import BLOCKS, MICROSOFT, NODES, NodeCase, floats
from tests.onnx_models import difference, evaluate, model_of, ort, random, random_feeds
from tests.plan.onnx.test_learned import IMPORTED

# -- every operator ----------------------------------------------------------------------------------------

IMAGE = {"x": (2, 4, 9, 8)}
i64 = np.int64


def case(op: str, inputs: dict[str, Any] | None = None, constants: dict[str, Any] | None = None, **attrs: Any) -> Any:
    """A model of one node that reads the inputs and then the constants."""
    inputs = inputs or {"x": (3, 4, 5)}
    reads = [*inputs, *(constants or {})]
    return pytest.param(
        model_of([helper.make_node(op, reads, ["y"], **attrs)], inputs, constants=constants), id=f"{op}"
    )


channel = {"s": abs(random(4)), "b": random(4), "m": random(4), "v": abs(random(4)) + 0.5}
SINGLE = [
    case("Abs"),
    case("Add", {"a": (3, 1), "b": (2, 1, 4)}),
    case("Add", {"a": (3, 1)}, {"b": random(4)}),
    case("Add", {"a": (3, 1)}, {"b": np.float32(2.5)}),
    case("Sub", {"a": (3, 4), "b": (4,)}),
    case("Mul", {"a": (3, 4), "b": (4,)}),
    case("Div", {"a": (3, 4)}, {"b": random(4)}),
    case("Sum", {"a": (3, 4), "b": (4,), "c": (1, 1)}),
    case("Relu"),
    case("LeakyRelu", alpha=0.3),
    case("LeakyRelu"),
    case("Clip", None, {"low": np.float32(-0.5), "high": np.float32(0.5)}),
    case("Clip"),
    case("Sigmoid"),
    case("Tanh"),
    case("Exp"),
    case("Sqrt", {"x": (3, 4)}),
    case("Neg"),
    case("Identity"),
    case("Dropout"),
    case("Cast", to=TensorProto.FLOAT),
    case("MatMul", {"a": (2, 3, 4), "b": (4, 5)}),
    case("MatMul", {"a": (4,), "b": (4, 5)}),
    case("MatMul", {"a": (3, 4), "b": (4,)}),
    case("MatMul", {"a": (4,), "b": (4,)}),
    case("Gemm", {"a": (4, 3)}, {"b": random(5, 4), "c": random(5)}, transA=1, transB=1, alpha=0.5, beta=2.0),
    case("Gemm", {"a": (3, 4)}, {"b": random(4, 5)}),
    case("Conv", IMAGE, {"w": random(6, 2, 3, 3), "b": random(6)}, group=2, pads=[1, 0, 2, 1], strides=[2, 1]),
    case("Conv", IMAGE, {"w": random(6, 4, 3, 2)}, auto_pad="SAME_UPPER", strides=[2, 3]),
    case("Conv", IMAGE, {"w": random(6, 4, 3, 2)}, auto_pad="SAME_LOWER", strides=[2, 1]),
    case("Conv", IMAGE, {"w": random(6, 4, 3, 2)}, auto_pad="VALID", kernel_shape=[3, 2]),
    case("MaxPool", IMAGE, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
    case("MaxPool", IMAGE, kernel_shape=[3, 2], auto_pad="SAME_LOWER", strides=[2, 2]),
    case("AveragePool", IMAGE, kernel_shape=[3, 3], auto_pad="SAME_UPPER", strides=[2, 2]),
    case("AveragePool", IMAGE, kernel_shape=[3, 3], pads=[1, 1, 1, 1], count_include_pad=1),
    case("GlobalAveragePool", IMAGE),
    case("GlobalMaxPool", IMAGE),
    case("BatchNormalization", IMAGE, channel, epsilon=1e-2),
    case("LayerNormalization", {"x": (3, 4)}, {"s": random(4), "b": random(4)}),
    case("LRN", IMAGE, size=3, alpha=0.1, beta=0.5, bias=2.0),
    case("Softmax", axis=1),
    case("Softmax"),
    case("LogSoftmax", axis=0),
    case("ReduceMean", None, {"axes": np.array([0, -1])}, keepdims=0),
    case("ReduceSum", None, {"axes": np.array([1])}),
    case("ReduceSum"),
    case("ReduceSum", None, {"axes": np.array([], i64)}, noop_with_empty_axes=1),
    case("ReduceMax", None, {"axes": np.array([2])}),
    case("Reshape", None, {"shape": np.array([0, -1])}),
    case("Reshape", None, {"shape": np.array([5, 3, 4])}, allowzero=1),
    case("Flatten"),
    case("Flatten", axis=-1),
    case("Flatten", axis=0),
    case("Squeeze", {"x": (1, 3, 1, 2)}, {"axes": np.array([0, -2])}),
    case("Squeeze", {"x": (1, 3, 1, 2)}),
    case("Unsqueeze", None, {"axes": np.array([0, -1])}),
    case("Transpose", perm=[2, 0, 1]),
    case("Transpose"),
    case("Concat", {"a": (2, 3), "b": (2, 1), "c": (2, 4)}, axis=-1),
    case("Concat", {"a": (2, 3)}, {"b": random(1, 3)}, axis=0),
    case("Expand", {"x": (3, 1)}, {"shape": np.array([2, 1, 4])}),
    case(
        "Slice",
        None,
        {
            "starts": np.array([1, -1]),
            "ends": np.array([9, -9]),
            "axes": np.array([1, 2]),
            "steps": np.array([2, -2]),
        },
    ),
    case("Slice", None, {"starts": np.array([-2, 0]), "ends": np.array([2**63 - 1, -1])}),
    case(
        "Slice",
        None,
        {
            "starts": np.array([4]),
            "ends": np.array([-(2**63)]),
            "axes": np.array([-1]),
            "steps": np.array([-1]),
        },
    ),
    case(
        "Slice",
        None,
        {
            "starts": np.array([1, -1]),
            "ends": np.array([2**63 - 1, -(2**63)]),
            "axes": np.array([1, 2]),
            "steps": np.array([2**62, -(2**62)]),
        },
    ),
    case("Pad", {"x": (3, 4)}, {"pads": np.array([1, 0, 2, 3]), "value": np.float32(1.5)}),
    case("Pad", {"x": (3, 4)}, {"pads": np.array([2, 0, 1, 3])}, mode="reflect"),
    case("Pad", {"x": (3, 4)}, {"pads": np.array([2, 0, 1, 3])}, mode="edge"),
    case("Pad", {"x": (3, 4)}, {"pads": np.array([2, 0, 1, 3])}, mode="wrap"),
    case("Pad", {"x": (3, 4)}, {"pads": np.array([-1, 0, 1, -2])}),
]


@pytest.mark.parametrize("model", SINGLE)
def test_each_operator_equals_onnx_runtime(model: Any) -> None:
    graph = load_onnx(model)
    feeds = random_feeds(graph)
    if model.graph.node[0].op_type == "Sqrt":
        feeds = {name: np.abs(array) for name, array in feeds.items()}
    (wanted,) = ort(model, feeds)
    assert difference(evaluate(graph, feeds)["y"], wanted) < 1e-5


def test_split_gives_slices() -> None:
    for attrs, constants in (
        ({"axis": -1}, {"parts": np.array([1, 4, 2])}),
        ({"axis": 1, "num_outputs": 3}, {}),
    ):
        node = helper.make_node("Split", ["x", *constants], ["a", "b", "c"], **attrs)
        model = model_of([node], {"x": (3, 7)}, ["a", "b", "c"], constants)
        graph = load_onnx(model)
        assert not graph.nodes and len(graph.selections) == 3
        feeds = random_feeds(graph)
        for actual, wanted in zip(evaluate(graph, feeds).values(), ort(model, feeds), strict=True):
            np.testing.assert_array_equal(actual, wanted)


def test_every_importer_is_tried() -> None:
    tried = {param.values[0].graph.node[0].op_type for param in SINGLE} | {"Split"}
    tried |= {"ConstantOfShape", "Range"}  # in test_folding: a node of known inputs gets here beyond a budget alone
    tried |= {
        "Bernoulli",
        "Multinomial",
        *(f"Random{kind}" for kind in ("Normal", "NormalLike", "Uniform", "UniformLike")),
    }
    tried |= {
        "MaxRoiPool",
        *(f"tapestry::{name}" for name in DRAWING | SCALING),
        "tapestry::recurrence",
        "tapestry::recurrence_step",
        "tapestry::take",
    }  # in test_whole, test_recurrent; above, in test_drawn
    tried |= {case.key for case in IMPORTED.values()}  # in test_learned
    assert tried | {node.key for node in NODES} == set(IMPORTERS)


@pytest.mark.parametrize("node", NODES, ids=str)
def test_nodes_of_any_dtype_equal_onnx_runtime(node: NodeCase) -> None:
    graph = load_onnx(node.model)
    for actual, wanted in zip(run_whole(graph, node.inputs).values(), ort(node.model, node.inputs), strict=True):
        assert difference(actual, wanted) < 1e-5


def test_known_nodes_that_the_reference_does_not_run_become_operators() -> None:
    """It does not gather from a row of more elements than NumPy's choose takes."""
    constants = {"row": np.arange(100)[None, :], "i": np.array([[8, 0, 2]])}
    taken = helper.make_node("GatherElements", ["row", "i"], ["g"], axis=1)
    added = helper.make_node("Add", ["x", "g"], ["y"])
    model = model_of([taken, added], {"x": (2, 3)}, constants=constants, dtype=TensorProto.INT64)
    graph = load_onnx(model)
    x = np.arange(6).reshape(2, 3)
    np.testing.assert_array_equal(run_whole(graph, {"x": x})["y"], ort(model, {"x": x})[0])
    assert [node.op for node in graph.nodes.values()] == ["take_along_axis", "add"]
    last = helper.make_node("NonZero", ["g"], ["y"], name="last")
    with pytest.raises(UnsupportedOp, match=r"'last': NonZero of domain .* a shape that follows from values"):
        load_onnx(model_of([taken, last], {}, constants=constants, dtype=TensorProto.INT64))


def test_known_indices_are_views_and_computed_ones_are_operators() -> None:
    gathers = [node for node in NODES if node.op == "Gather"]
    known = next(node for node in gathers if "i" in node.constants)
    computed = next(node for node in gathers if "i" in node.inputs)
    assert not load_onnx(known.model).nodes and load_onnx(computed.model).nodes


@given(
    st.sampled_from(["SAME_UPPER", "SAME_LOWER", "VALID"]),
    st.tuples(*[st.integers(6, 12)] * 2),
    st.tuples(*[st.integers(1, 4)] * 2),
    st.tuples(*[st.integers(1, 6)] * 2),
    st.sampled_from(["Conv", "MaxPool", "AveragePool", "LpPool"]),
)
def test_auto_pad_equals_onnx_runtime(auto: str, extents: Any, kernel: Any, strides: Any, op: str) -> None:
    # Strides beyond the kernel make pads below 0, which ONNX Runtime takes of means and norms alone.
    leaps = op in ("AveragePool", "LpPool")
    steps = [s if leaps else min(k, s) for k, s in zip(kernel, strides, strict=True)]
    attrs: dict[str, Any] = {"auto_pad": auto, "strides": steps, "kernel_shape": list(kernel)}
    constants = {"w": random(2, 1, *kernel)} if op == "Conv" else {}
    node = helper.make_node(op, ["x", *constants], ["y"], **attrs)
    model = model_of([node], {"x": (1, 1, *extents)}, ["y"], constants)
    graph = load_onnx(model)
    feeds = random_feeds(graph)
    assert difference(evaluate(graph, feeds)["y"], ort(model, feeds)[0]) < 1e-5


@pytest.mark.parametrize(("extent", "kernel", "stride"), [(6, 1, 3), (10, 1, 5), (12, 2, 6)])
def test_windows_between_which_cells_are_left_out(extent: int, kernel: int, stride: int) -> None:
    """Largest cells too, and their numbers: ONNX's reference has them, where half of what is left out is whole."""
    attrs = {"auto_pad": "SAME_UPPER", "strides": [stride], "kernel_shape": [kernel]}
    one, both = (
        model_of([helper.make_node("MaxPool", ["x"], outputs, **attrs)], {"x": (2, 3, extent)}, outputs)
        for outputs in (["y"], ["y", "i"])
    )
    feeds = random_feeds(load_onnx(one))
    (wanted,) = ReferenceEvaluator(one).run(None, feeds)
    found = run(plan(load_onnx(both), Mesh(2)), feeds).outputs
    assert (found["y"] == wanted).all() and wanted.shape == (2, 3, extent // stride)
    assert (feeds["x"].reshape(-1)[found["i"]] == wanted).all()


@pytest.mark.parametrize("op", ["AveragePool", "LpPool", "MaxPool"])
def test_pads_below_0_that_a_pool_says_itself_are_refused(op: str) -> None:
    pool = helper.make_node(op, ["x"], ["y"], kernel_shape=[2], pads=[-1, 0], name="pool")
    with pytest.raises(ValueError, match=r"node 'pool' .*pads"):
        load_onnx(model_of([pool], {"x": (1, 1, 6)}))


@pytest.mark.parametrize(("auto", "pads"), [("SAME_UPPER", [1, 2, 2, 2]), ("SAME_LOWER", [2, 2, 1, 2])])
def test_auto_pad_counts_the_dilated_window(auto: str, pads: list[int]) -> None:
    # ONNX Runtime refuses dilation here, so it is asked with the pads written out
    constants = {"w": random(1, 1, 2, 3)}
    inputs = {"x": (1, 1, 9, 8)}
    automatic = helper.make_node("Conv", ["x", "w"], ["y"], auto_pad=auto, dilations=[3, 2])
    explicit = helper.make_node("Conv", ["x", "w"], ["y"], pads=pads, dilations=[3, 2])
    graph = load_onnx(model_of([automatic], inputs, ["y"], constants))
    feeds = random_feeds(graph)
    (wanted,) = ort(model_of([explicit], inputs, ["y"], constants), feeds)
    assert difference(evaluate(graph, feeds)["y"], wanted) < 1e-5


def test_even_windows_over_channels_follow_the_definition() -> None:
    # ONNX Runtime takes odd sizes only, and the reference evaluator limits channels by the batch
    model = model_of([helper.make_node("LRN", ["x"], ["y"], size=4, alpha=0.5)], IMAGE)
    graph = load_onnx(model)
    feeds = random_feeds(graph)
    x = feeds["x"]
    squares = np.stack([(x[:, max(0, c - 1) : c + 3] ** 2).sum(axis=1) for c in range(4)], axis=1)
    wanted = x / (1 + np.float32(0.5 / 4) * squares) ** np.float32(0.75)
    assert difference(evaluate(graph, feeds)["y"], wanted) < 1e-5


def test_onnx_is_imported_when_a_model_is() -> None:
    code = "import sys, tapestry_plan.onnx.models; sys.exit('onnx' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# -- what becomes of a model -------------------------------------------------------------------------------


def test_known_values_are_evaluated_in_advance() -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Constant", [], ["zero"], value_ints=[0]),
        helper.make_node("Gather", ["shape", "zero"], ["batch"]),
        helper.make_node("Constant", [], ["rest"], value_ints=[-1]),
        helper.make_node("Concat", ["batch", "rest"], ["wanted"], axis=0),
        helper.make_node("Reshape", ["x", "wanted"], ["flat"]),
        helper.make_node("Transpose", ["w"], ["wt"]),
        helper.make_node("MatMul", ["flat", "wt"], ["y"]),
    ]
    model = model_of(nodes, {"x": (3, 2, 4)}, constants={"w": random(5, 8)})
    graph = load_onnx(model)
    assert [node.op for node in graph.nodes.values()] == ["matmul"]
    assert [s.shape for s in graph.stored.values() if s.kind == "constant"] == [(8, 5)]
    feeds = random_feeds(graph)
    assert difference(evaluate(graph, feeds)["y"], ort(model, feeds)[0]) < 1e-6


def test_nodes_without_names_are_numbered_by_type() -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Neg", ["a"], ["b"], name="mine"),
        helper.make_node("Relu", ["b"], ["y"]),
    ]
    assert list(load_onnx(model_of(nodes, {"x": (2,)})).nodes) == ["Relu_0", "mine", "Relu_1"]


def test_outputs_choose_a_part_of_the_model() -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Frobnicate", ["a"], ["y"]),
    ]
    graph = load_onnx(model_of(nodes, {"x": (2,), "unused": ("n",)}), outputs=["a"])
    assert list(graph.outputs) == ["a"] and list(graph.nodes) == ["Relu_0"]
    with pytest.raises(ValueError, match=r"output 'b' is not a tensor of the model; known outputs: 'y'"):
        load_onnx(model_of(nodes, {"x": (2,)}), outputs=["b"])


def test_initializers_that_are_inputs_are_constants() -> None:
    model = model_of([helper.make_node("Add", ["x", "w"], ["y"])], {"x": (2,), "w": (2,)}, ["y"], {"w": random(2)})
    assert load_onnx(model).stored["w"].kind == "constant"


@pytest.mark.parametrize("axis", [None, 1, 2, 3])
def test_softmax_of_old_opsets_spans_all_trailing_axes(axis: int | None) -> None:
    attrs = {} if axis is None else {"axis": axis}
    model = model_of([helper.make_node("Softmax", ["x"], ["y"], **attrs)], {"x": (2, 3, 4, 5)}, opset=9)
    graph = load_onnx(model)
    feeds = random_feeds(graph)
    assert difference(evaluate(graph, feeds)["y"], ort(model, feeds)[0]) < 1e-6


def test_other_old_operators_are_converted() -> None:
    nodes = [
        helper.make_node("Clip", ["x"], ["a"], min=-0.5, max=0.75),
        helper.make_node("Dropout", ["a"], ["b"], ratio=0.25),
        helper.make_node("Unsqueeze", ["b"], ["c"], axes=[1]),
        helper.make_node("ReduceMean", ["c"], ["y"], axes=[0], keepdims=0),
    ]
    model = model_of(nodes, {"x": (4, 5)}, opset=9)
    graph = load_onnx(model)
    feeds = random_feeds(graph)
    assert difference(evaluate(graph, feeds)["y"], ort(model, feeds)[0]) < 1e-6


def test_bytes_paths_and_models_are_read_alike(tmp_path: Path) -> None:
    model = model_of([helper.make_node("Add", ["x", "w"], ["y"])], {"x": (2,)}, constants={"w": random(2)})
    path = tmp_path / "m.onnx"
    onnx.save(model, path)
    graphs = [load_onnx(source) for source in (model, model.SerializeToString(), path, str(path))]
    assert len({graph.to_json() for graph in graphs[:2]}) == len({graph.to_json() for graph in graphs[2:]}) == 1
    assert graphs[0].stored["w"].path is None
    where = graphs[2].stored["w"].path
    assert where == f"{path}#w"
    np.testing.assert_array_equal(read_constant(where), random(2))
    with pytest.raises(ValueError, match="has no initializer 'v'"):
        read_constant(f"{path}#v")
    with pytest.raises(ValueError, match="not of the form"):
        read_constant(str(path))


def test_symbolic_shapes_can_be_given() -> None:
    model = model_of([helper.make_node("Relu", ["x"], ["y"])], {"x": ("n", 3, None)})
    assert load_onnx(model, shapes={"x": [2, 3, 5]}).stored["x"].shape == (2, 3, 5)


# -- wrong models ------------------------------------------------------------------------------------------


def relu_model(**changes: Any) -> Any:
    return model_of([helper.make_node("Relu", ["x"], ["y"])], {"x": (2, 3)}, **changes)


def test_what_is_not_a_model(tmp_path: Path) -> None:
    whole = relu_model().SerializeToString()
    for name, data in (("text", b"hello, world\n"), ("empty", b""), ("zeros", bytes(100))):
        path = tmp_path / f"{name}.onnx"
        path.write_bytes(data)
        with pytest.raises(
            ValueError, match=rf"{name}.onnx: this is not an ONNX model, or it is truncated \[{len(data)} bytes"
        ):
            load_onnx(path)
    for length in range(len(whole)):
        with pytest.raises(ValueError, match="truncated"):
            load_onnx(whole[:length])
    with pytest.raises(FileNotFoundError, match=r"absent\.onnx"):
        load_onnx(tmp_path / "absent.onnx")
    with pytest.raises(TypeError, match="int given; give a path"):
        load_onnx(3)


def test_unknown_opsets() -> None:
    newest = onnx.defs.onnx_opset_version()
    with pytest.raises(ValueError, match=rf"unknown opset 999 of domain 'ai.onnx'; the newest supported is {newest}"):
        load_onnx(relu_model(opset=999))
    other = relu_model()
    other.opset_import[0].domain = "com.example"
    with pytest.raises(ValueError, match=r"uses the domains \['com.example'\] only"):
        load_onnx(other)


def test_unsupported_operators_are_all_listed() -> None:
    nodes = [
        helper.make_node("NonZero", ["x"], ["a"], name="first"),
        helper.make_node("Relu", ["x"], ["b"]),
        helper.make_node("Fancy", ["b"], ["c"], name="second", domain="com.example"),
        helper.make_node("If", ["p"], ["y"], name="third", then_branch=branch("c"), else_branch=branch("a")),
    ]
    model = model_of(nodes, {"x": (3,), "i": (2,), "p": ()})
    model.opset_import.append(helper.make_opsetid("com.example", 1))
    with pytest.raises(UnsupportedOp) as error:
        load_onnx(model, opaque=False)
    text = str(error.value)
    assert "3 nodes" in text and "'Relu'" not in text
    assert "node 'first': NonZero of domain 'ai.onnx', opset 21" in text
    assert "node 'second': Fancy of domain 'com.example'" in text
    assert "node 'third': If of domain 'ai.onnx', opset 21, with a graph inside" in text
    assert f"\n{count_ways()} (listed by `tapestry ops --onnx`); others" in text and "Softplus" not in text


def branch(name: str) -> Any:
    node = helper.make_node("Identity", [name], ["out"])
    return helper.make_graph([node], "branch", [], [helper.make_tensor_value_info("out", 1, None)])


@pytest.mark.parametrize(
    ("node", "says"),
    [
        (
            helper.make_node("Reshape", ["x", "computed"], ["y"]),
            r"'computed', an input of the model.*--value computed=",
        ),
        (
            helper.make_node("TopK", ["x", "computed"], ["y", "z"]),
            r"input 1 .k. is 'computed', an input of the model.*values=.'computed': …. or --value computed=",
        ),
        (helper.make_node("Dropout", ["x", "", "yes"], ["y"], seed=3), "training mode with a seed"),
    ],
)
def test_what_an_operator_cannot_do_is_said(node: Any, says: str) -> None:
    model = model_of(
        [node],
        {"x": (1, 2, 8), "computed": (2,), "b": (2,)},
        constants={"yes": np.array(True), "three": np.array([3, 3, 3])},
    )
    with pytest.raises(UnsupportedOp, match=says):
        load_onnx(model, opaque=False)


def test_random_operators_are_not_evaluated_in_advance() -> None:
    graph = load_onnx(model_of([helper.make_node("RandomNormal", [], ["y"], shape=[2])], {}), opaque=False)
    assert [node.op for node in graph.order()] == ["normal"] and not graph.folded.nodes


def test_dynamic_axes_are_named() -> None:
    model = model_of([helper.make_node("Relu", ["image"], ["y"])], {"image": (1, "height", 8)})
    with pytest.raises(ValueError) as error:
        load_onnx(model)
    text = str(error.value)
    assert "input 'image' of shape (1, height, 8) is dynamic on axis 1 (height)" in text
    assert "shapes={'image': [1, …, 8]}" in text and "--shape image=1,…,8" in text
    nameless = model_of([helper.make_node("Relu", ["x"], ["y"])], {"x": (None, 3)})
    with pytest.raises(ValueError, match=r"\(\?, 3\) is dynamic on axis 0;"):
        load_onnx(nameless)
    shapeless = model_of([helper.make_node("Relu", ["x"], ["y"])], {"x": None})
    with pytest.raises(ValueError, match="input 'x' has no shape"):
        load_onnx(shapeless)
    assert load_onnx(shapeless, shapes={"x": [4]}).stored["x"].shape == (4,)


@pytest.mark.parametrize(
    ("shapes", "says"),
    [
        ({"z": [2, 3]}, r"shapes names 'z', which is neither an input nor an open axis; known inputs: 'x'"),
        ({"x": [2]}, r"\(2,\) has rank 1, the input has rank 2: \(n, 3\)"),
        ({"x": [2, 4]}, "says 4 on axis 1, but the model fixes it to 3"),
        ({"x": [2, -3]}, r"shapes\['x'\]\[1\] must be at least 0, not -3"),
    ],
)
def test_shapes_that_do_not_fit(shapes: Any, says: str) -> None:
    model = model_of([helper.make_node("Relu", ["x"], ["y"])], {"x": ("n", 3)})
    with pytest.raises(ValueError, match=says):
        load_onnx(model, shapes=shapes)


def test_a_model_that_contradicts_itself() -> None:
    model = relu_model()
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", TensorProto.FLOAT, (2, 4)))
    with pytest.raises(ValueError, match=r"'y' comes out with shape \(2, 3\), the model declares \(2, 4\)"):
        load_onnx(model)
    missing = model_of([helper.make_node("Add", ["x", "nothing"], ["y"], name="sum")], {"x": (2,)})
    with pytest.raises(ValueError, match=r"node 'sum' \(Add\) reads 'nothing', which no node makes"):
        load_onnx(missing)


def pool_that_ceils(op: str, opset: int, tail: str = "y = Flatten (t)") -> onnx.ModelProto:
    """A pool whose last window would begin in the padding, with the shapes that ONNX's inference writes."""
    window = "kernel_shape = [2, 2], strides = [2, 2], pads = [1, 0, 0, 1], ceil_mode = 1"
    model = parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : {opset}]> g (float[1,2,5,4] x) => (y){{ t = {op} <{window}> (x) {tail} }}'
    )
    return shape_inference.infer_shapes(model)


@pytest.mark.heavy(2)
@pytest.mark.parametrize(
    ("op", "opset"),
    [*(("MaxPool", n) for n in (10, 13, 21, 22)), *(("AveragePool", n) for n in (10, 19, 22)), ("LpPool", 18)],
)
def test_windows_that_onnx_s_inference_counts_and_nobody_computes(op: str, opset: int) -> None:
    model, x = pool_that_ceils(op, opset), floats(1, 2, 5, 4)
    (declared,) = (value for value in model.graph.value_info if value.name == "t")
    assert declared.type.tensor_type.shape.dim[3].dim_value == (2 if opset > 21 else 3)
    (wanted,) = ort(model, {"x": x})
    found = run(plan(load_onnx(model), Mesh(2)), {"x": x}).outputs["y"]
    assert found.shape == wanted.shape == (1, 12)
    assert difference(found, wanted) < 2e-6


def test_stages_take_no_word_of_windows_that_nobody_computes() -> None:
    model, x = pool_that_ceils("MaxPool", 13, "y = NonZero (t)"), np.abs(floats(1, 2, 5, 4))
    found = run_stages(StagedModel(model), {"x": x}, lambda graph: plan(graph, Mesh(2)))
    assert (found.outputs["y"] == ort(model, {"x": x})[0]).all()


def test_contradictions_behind_windows_that_nobody_computes() -> None:
    """Other shapes than ONNX's inference writes are wrong there too."""
    for name, tail, wrong in (("t", "y = Relu (t)", (1, 2, 4, 3)), ("y", "y = Relu (t)", (1, 2, 3, 4))):
        model = pool_that_ceils("MaxPool", 13, tail)
        for value in (*model.graph.value_info, *model.graph.output):
            if value.name == name:
                value.CopyFrom(helper.make_tensor_value_info(name, TensorProto.FLOAT, wrong))
        with pytest.raises(ValueError, match=rf"'{name}' comes out with shape .*the model contradicts itself"):
            load_onnx(model)


def test_operands_that_do_not_fit_name_the_node() -> None:
    model = model_of([helper.make_node("Add", ["x", "z"], ["y"], name="sum")], {"x": (2,), "z": (3,)})
    with pytest.raises(ValueError, match=r"node 'sum' \(Add\): .*\(2,\) and \(3,\) do not broadcast"):
        load_onnx(model)
    pool = model_of([helper.make_node("MaxPool", ["x"], ["y"], name="pool")], {"x": (1, 1, 4)})
    with pytest.raises(ValueError, match=r"node 'pool' \(MaxPool\): the attribute 'kernel_shape' is missing"):
        load_onnx(pool)


def test_numbers_of_inputs_are_checked_in_one_place() -> None:
    """ONNX's own schemas say how many inputs each operator takes."""
    history = onnx.defs.get_all_schemas_with_history()
    named = {schema.name for schema in history}
    for name, one in {**IMPORTERS, **NOT_ADDED}.items():
        if name not in named:  # of which ONNX has no schema
            assert "::" in name or name == "SimplifiedLayerNormalization"
            continue
        known_then = {schema.name for schema in history if schema.since_version <= 21}
        schema = onnx.defs.get_schema(name, 21 if name in known_then else onnx.defs.onnx_opset_version())
        variadic = schema.max_input > 2**30
        assert (one.least, one.most) == (schema.min_input, None if variadic else schema.max_input), name


def test_numbers_of_inputs_of_onnx_runtime_s_operators() -> None:
    """Its own schemas say so, and which may be left out; older ones may have fewer optional ones at the end."""
    schemas = [one for one in get_all_operator_schema() if one.domain in (MICROSOFT, BLOCKS)]
    found = {f"{one.domain}::{one.name}": one for one in schemas}
    rows = {name: row for name, row in IMPORTERS.items() if name.startswith(MICROSOFT)}
    assert len(rows) >= 40 and found.keys() >= rows.keys()
    for name, row in rows.items():
        schema = found[name]
        if name.endswith("::QLinearConcat"):  # variadic, by threes
            assert (row.least, row.most, schema.min_input) == (5, None, 3)
            continue
        kinds = [one.option.name for one in schema.inputs]
        assert row.least == schema.min_input and row.most is not None and row.most >= schema.max_input, name
        assert row.gaps == tuple(k for k in range(row.least) if kinds[k] == "Optional"), name


@pytest.mark.parametrize(
    ("op", "reads", "says"),
    [
        ("QLinearMul", ["x"] * 5, "has 5 inputs; QLinearMul takes 7 to 8"),
        ("QLinearSigmoid", ["x"] * 3, "has 3 inputs; QLinearSigmoid takes 4 to 5"),
        ("EmbedLayerNormalization", ["x"] * 5, "has 5 inputs; EmbedLayerNormalization takes 7 to 9"),
        ("QLinearAdd", ["x", "x", "", "", "x", "", "x"], "leaves out its input 3, which QLinearAdd needs"),
        ("QLinearAdd", ["x", "x", "", "x", "x", "", "", "x"], "leaves out its input 6, which QLinearAdd needs"),
        ("Conv", ["x"], "has 1 input; Conv takes 2 to 3"),
        ("QuantizeLinear", ["x"], "has 1 input; QuantizeLinear takes 2 to 3"),  # no scale
        ("Relu", ["x", "x"], "has 2 inputs; Relu takes 1:"),
        ("Relu", [], "has 0 inputs; Relu takes 1:"),
        ("Add", ["x", "x", "x"], "has 3 inputs; Add takes 2:"),
        ("Sum", [], "has 0 inputs; Sum takes 1 or more"),
        ("Concat", ["x", "", "x"], "leaves out its input 1, which Concat needs"),
        ("MatMul", ["", "x"], "leaves out its input 0, which MatMul needs"),
        ("BatchNormalization", ["x", "x"], "has 2 inputs; BatchNormalization takes 5"),
        ("Shape", [], "has 0 inputs; Shape takes 1:"),
        ("Size", ["x", "x"], "has 2 inputs; Size takes 1:"),
    ],
)
def test_nodes_with_too_few_or_too_many_inputs(op: str, reads: list[str], says: str) -> None:
    domain = MICROSOFT if f"{MICROSOFT}::{op}" in IMPORTERS else ""
    model = model_of([helper.make_node(op, reads, ["y"], name="it", domain=domain)], {"x": (2, 2)})
    model.opset_import.append(helper.make_opsetid(MICROSOFT, 1))
    with pytest.raises(ValueError, match=rf"node 'it' \({op}\)") as error:
        load_onnx(model)
    assert f"node 'it' ({op}) {says}" in str(error.value)


def test_an_output_that_an_operator_does_not_make() -> None:
    model = model_of([helper.make_node("Relu", ["x"], ["y", "z"])], {"x": (2,)}, ["y", "z"])
    with pytest.raises(ValueError, match=r"'Relu_0' \(Relu\): its output 1, 'z', is not made here"):
        load_onnx(model)


def test_tensors_are_made_once() -> None:
    twice = [helper.make_node("Relu", ["x"], ["y"], name="one"), helper.make_node("Neg", ["x"], ["y"], name="two")]
    with pytest.raises(ValueError, match=r"'y' is made twice, by node 'one' \(Relu\) and by node 'two' \(Neg\)"):
        load_onnx(model_of(twice, {"x": (2,)}))
    with pytest.raises(ValueError, match=r"'x' is made twice, by an input and by node 'one' \(Relu\)"):
        load_onnx(model_of([helper.make_node("Relu", ["x"], ["x"], name="one")], {"x": (2,)}, ["x"]))
    weights = relu_model(constants={"w": random(2)})
    weights.graph.initializer.append(weights.graph.initializer[0])
    with pytest.raises(ValueError, match="'w' is made twice, by an initializer and by an initializer"):
        load_onnx(weights)


def test_values_that_do_not_fill_their_dims() -> None:
    short = relu_model(constants={"w": random(2, 3)})
    short.graph.initializer[0].raw_data = bytes(20)
    with pytest.raises(ValueError, match=r"'w' holds 20 bytes; dims \[2, 3\] of FLOAT need 24"):
        load_onnx(short)
    typed = relu_model()
    typed.graph.initializer.append(helper.make_tensor("w", TensorProto.FLOAT16, [3], [1.0, 2.0, 3.0]))
    load_onnx(typed)
    typed.graph.initializer[0].dims[0] = 4
    with pytest.raises(ValueError, match=r"'w' holds 3 values; dims \[4\] need 4"):
        load_onnx(typed)
    typed.graph.initializer[0].dims[0] = -3
    with pytest.raises(ValueError, match=r"'w' has dims \[-3\]; none can be negative"):
        load_onnx(typed)
    typed.graph.initializer[0].data_type = 999
    typed.graph.initializer[0].dims[0] = 3
    with pytest.raises(ValueError, match="'w' has elements of type 999"):
        load_onnx(typed)
    inside = model_of([helper.make_node("Constant", [], ["y"], value=short.graph.initializer[0])], {})
    with pytest.raises(ValueError, match="'w' holds 20 bytes"):
        load_onnx(inside)
    packed = relu_model()
    packed.graph.initializer.append(helper.make_tensor("w", TensorProto.INT4, [3], [1, 2, 3]))
    assert "w" not in load_onnx(packed).stored  # two in a byte, and nothing reads it


def test_an_axis_of_extent_0_is_not_an_open_one() -> None:
    nothing = load_onnx(model_of([helper.make_node("Relu", ["x"], ["y"])], {"x": (0, 4)}))
    assert not nothing.nodes and nothing.tensor(nothing.outputs["y"]).shape == (0, 4)
    model = model_of([helper.make_node("ReduceSum", ["x"], ["y"])], {"x": (0, 4)})
    graph = load_onnx(model)  # there is one such tensor alone, so that its sum is known
    assert not graph.nodes and run_whole(graph, {"x": np.empty((0, 4), np.float32)})["y"].tolist() == [[0.0]]
    with pytest.raises(ValueError, match=r"\(\?, 4\) is dynamic on axis 0"):
        load_onnx(model_of([helper.make_node("Relu", ["x"], ["y"])], {"x": (-1, 4)}))


def test_more_cells_than_can_be_counted() -> None:
    model = model_of([helper.make_node("Relu", ["x"], ["y"])], {"x": ("n", 3)})
    for extent in (2**62, 10**30):
        with pytest.raises(ValueError, match=r"input 'x' of shape .* has 2\*\*63 cells or more"):
            load_onnx(model, shapes={"x": [extent, 3]})


def test_messages_are_whole_sentences() -> None:
    """Words are joined by single blanks, in the longest messages too."""
    models = [b"junk", relu_model(opset=999), model_of([helper.make_node("NonZero", ["x"], ["y"])], {"x": (2,)})]
    groups = helper.make_node("Conv", ["x", "w"], ["y"], group=3)
    models.append(model_of([groups], {"x": (1, 4, 5)}, constants={"w": random(2, 2, 3)}))
    models.append(model_of([helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[9])], {"x": (1, 4, 5)}))
    parts = ("check the file, or export", "supported is", "has an operator that is", "takes 2 for each", "extents (5,)")
    for model, part in zip(models, parts, strict=True):
        with pytest.raises(ValueError) as error:
            load_onnx(model)
        assert part in str(error.value) and "   " not in str(error.value)


def test_types_of_several_lines_are_told_in_one() -> None:
    for nodes in ([helper.make_node("a\nb", ["x"], ["y"])] * 2, [helper.make_node("a\nb", ["none"], ["y"])]):
        with pytest.raises(ValueError, match=r"\(a\\nb\)") as error:
            load_onnx(model_of(nodes, {"x": (2,)}))
        assert "\n" not in str(error.value)
    named = model_of([helper.make_node("Relu", ["x"], ["y"], **{"a\nb": 1})], {"x": (2,)})
    fused = helper.make_node("Gelu", ["x"], ["y"], domain="com.microsoft", **{"a\nb": 1})
    other = model_of([fused], {"x": (2,)})
    other.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    for model, says in ((named, "is not one of Relu"), (other, "is not supported")):
        with pytest.raises(UnsupportedOp, match=rf"its attribute a\\nb = 1 {says}") as error:
            load_onnx(model)
        assert "\n" not in str(error.value)
    old = model_of([helper.make_node("SequenceAt", ["x", "x"], ["y"])], {"x": (2,)}, opset=7)
    with pytest.raises(ValueError, match="opset 7 cannot be converted") as error:
        load_onnx(old)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("version", [2**62, -(2**62), 2**31])
def test_versions_beyond_all_of_a_domain(version: int) -> None:
    model = model_of([helper.make_node("Foo", ["x"], ["y"], domain="far")], {"x": (2,)})
    model.opset_import.append(onnx.OperatorSetIdProto(domain="far", version=version))
    with pytest.raises(UnsupportedOp, match="Foo of domain 'far'"):
        load_onnx(model)


def test_elements_that_are_not_numbers() -> None:
    assert load_onnx(relu_model(constants={"words": np.array(["a"], object)})).nodes, "of which nothing is read"
    with pytest.raises(ValueError, match="input 'x' has elements of type STRING"):
        load_onnx(model_of([helper.make_node("Identity", ["x"], ["y"])], {"x": (2,)}, dtype=TensorProto.STRING))
    with pytest.raises(ValueError, match="input 'x' has elements of type COMPLEX64"):
        load_onnx(model_of([helper.make_node("Identity", ["x"], ["y"])], {"x": (2,)}, dtype=TensorProto.COMPLEX64))


# -- external data -----------------------------------------------------------------------------------------


def external_model(path: Path, location: str, **entries: int | str) -> Path:
    """A model beside which, or elsewhere, the two values of its weight lie."""
    model = model_of([helper.make_node("Add", ["x", "w"], ["y"])], {"x": (2,)}, constants={"w": random(2)})
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in {"location": location, **entries}.items():
        tensor.external_data.add(key=key, value=str(value))
    path.write_bytes(model.SerializeToString())
    return path


def test_external_data_beside_the_model(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(b"\0" * 16 + random(2).tobytes())
    path = external_model(tmp_path / "m.onnx", "w.bin", offset=16, length=8)
    weight = load_onnx(path).stored["w"]
    np.testing.assert_array_equal(weight.data, random(2))
    assert weight.path is not None
    np.testing.assert_array_equal(read_constant(weight.path), random(2))
    with pytest.raises(ValueError, match="give the model's path"):
        load_onnx(path.read_bytes())


def test_external_data_elsewhere_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "models"
    folder.mkdir()
    secret = tmp_path / "secret.bin"
    secret.write_bytes(random(2).tobytes())
    os.symlink(secret, folder / "link.bin")
    (folder / "inside.bin").write_bytes(random(2).tobytes())
    inside = str(folder / "inside.bin")  # an absolute place would tie the model to this machine
    for location in ("../secret.bin", str(secret), inside, "link.bin", "a/../../secret.bin", ""):
        path = external_model(folder / "m.onnx", location, length=8)
        with pytest.raises(ValueError, match=r"tensor 'w' is stored in .*, outside the model's folder"):
            load_onnx(path)
        with pytest.raises(ValueError, match="outside the model's folder"):
            read_constant(f"{path}#w")


def test_external_data_that_is_missing_or_short(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"tensor 'w' is stored in 'gone.bin', which does not exist"):
        load_onnx(external_model(tmp_path / "m.onnx", "gone.bin"))
    (tmp_path / "w.bin").write_bytes(b"\0" * 7)
    for entries in ({}, {"length": 8}, {"offset": 9}, {"offset": 4, "length": 4}):
        with pytest.raises(ValueError, match="the file has 7 bytes; it is truncated"):
            load_onnx(external_model(tmp_path / "m.onnx", "w.bin", **entries))


def test_external_data_of_another_length(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(random(2).tobytes() + bytes(30))
    path = external_model(tmp_path / "m.onnx", "w.bin")  # no length: what is needed is taken
    weight = load_onnx(path).stored["w"]
    np.testing.assert_array_equal(weight.data, random(2))
    np.testing.assert_array_equal(read_constant(f"{path}#w"), random(2))
    for length in (4, 12):
        path = external_model(tmp_path / "m.onnx", "w.bin", length=length)
        says = rf"'w.bin' with {length} bytes; dims \[2\] of FLOAT need 8"
        with pytest.raises(ValueError, match=says):
            load_onnx(path)
        with pytest.raises(ValueError, match=says):
            read_constant(f"{path}#w")
    for entries in ({"offset": -4}, {"length": -1}, {"offset": -8, "length": 8}):
        with pytest.raises(ValueError, match=r"at offset .*, length .*; neither can be negative"):
            load_onnx(external_model(tmp_path / "m.onnx", "w.bin", **entries))
    with pytest.raises(ValueError, match="not a number"):
        load_onnx(external_model(tmp_path / "m.onnx", "w.bin", offset="far"))


def test_external_data_is_held_against_its_checksum(tmp_path: Path) -> None:
    data = random(2).tobytes() + bytes(30)
    (tmp_path / "w.bin").write_bytes(data)
    right = hashlib.sha1(data).hexdigest()
    path = external_model(tmp_path / "m.onnx", "w.bin", length=8, checksum=right.upper())
    np.testing.assert_array_equal(load_onnx(path).stored["w"].data, random(2))
    (tmp_path / "w.bin").write_bytes(data[:-1] + b"1")  # behind what is read
    says = rf"'w.bin' with the SHA-1 '{right.upper()}', but the file has [0-9a-f]{{40}}: it was changed"
    with pytest.raises(ValueError, match=says):
        load_onnx(path)
    with pytest.raises(ValueError, match=says):
        read_constant(f"{path}#w")


@pytest.mark.parametrize(
    "cut", [(-5, -9, -1), (-9, -9, -2), (-4, -9, -1), (-5, 0, -1), (9, -9, -3), (-9, 9, 2), (-9, -9, 1)]
)
def test_slices_begin_and_end_where_onnx_runtime_has_them(cut: tuple[int, int, int]) -> None:
    """Backward from far before the front ONNX begins with the first cell, where Python has none."""
    numbers = {name: np.array([number]) for name, number in zip(("start", "end", "step"), cut, strict=True)}
    numbers["axes"] = np.array([0])
    model = model_of(
        [helper.make_node("Slice", ["x", "start", "end", "axes", "step"], ["y"])], {"x": (4, 2)}, constants=numbers
    )
    x = random(4, 2)
    np.testing.assert_array_equal(run_whole(load_onnx(model), {"x": x})["y"], ort(model, {"x": x})[0])


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize(("window", "by", "extent", "pads"), [(4, 3, 3, [0, 0]), (5, 3, 2, [1, 0]), (6, 4, 3, [0, 1])])
def test_one_window_may_be_longer_than_the_padded_extent(
    op: str, window: int, by: int, extent: int, pads: list[int]
) -> None:
    attrs = {"kernel_shape": [window], "strides": [by], "pads": pads, "ceil_mode": 1}
    model = model_of([helper.make_node(op, ["x"], ["y"], **attrs)], {"x": (1, 2, extent)})
    x = random(1, 2, extent)
    found = run_whole(load_onnx(model), {"x": x})["y"]
    np.testing.assert_allclose(found, ort(model, {"x": x})[0], rtol=1e-6)
