"""Models as graphs: every operator and network against ONNX Runtime, and what wrong models get."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from tapestry_plan import onnx_import
from tapestry_plan.graph import Graph, Shard, UnsupportedOp
from tapestry_plan.onnx_import import (
    IMPORTERS,
    before_softmax,
    demo_model,
    he_random,
    light_model,
    load_onnx,
    read_constant,
)
from tapestry_sets import IndexMap

Array = NDArray[Any]
MODELS = Path(__file__).parent.parent / "models"


# -- the reference, and a plain evaluation of graphs -------------------------------------------------------


def ort(model: Any, feeds: dict[str, Array], names: Sequence[str] | None = None) -> list[Array]:
    """The outputs of a model, or any of its tensors, by ONNX Runtime."""
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


# -- networks ----------------------------------------------------------------------------------------------


def check_network(model: Any) -> Graph:
    names = before_softmax(model)
    graph = load_onnx(model, outputs=names)
    graph.validate()
    assert tuple(graph.outputs) == names
    feeds = random_feeds(graph)
    actual = evaluate(graph, feeds)
    for name, wanted in zip(names, ort(model, feeds, names), strict=True):
        assert wanted.std() > 0.01 * np.abs(wanted).max(), "the reference is flat, it would accept anything"
        assert difference(actual[name], wanted) < 1e-4
    return graph


def test_squeezenet_equals_onnx_runtime() -> None:
    graph = check_network(demo_model())
    assert len([node for node in graph.nodes.values() if node.op == "conv"]) == 26
    assert len(graph.selections) >= 8  # the concatenations
    assert 0.6e9 < graph.flop() < 0.8e9


def test_small_resnet_equals_onnx_runtime() -> None:
    graph = check_network(onnx.load(MODELS / "resnet.onnx"))
    assert "node_Conv_232" in graph.nodes  # names are kept


@pytest.mark.heavy
def test_alexnet_equals_onnx_runtime() -> None:
    graph = check_network(light_model("bvlc_alexnet"))
    assert {"lrn", "conv", "gemm", "max_pool"} <= {node.op for node in graph.nodes.values()}


@pytest.mark.heavy
def test_resnet50_equals_onnx_runtime() -> None:
    graph = check_network(light_model("resnet50"))
    assert 8e9 < graph.flop() < 8.4e9


@pytest.mark.heavy
def test_vgg_like_zfnet_equals_onnx_runtime() -> None:
    check_network(light_model("zfnet512"))


# -- every operator ----------------------------------------------------------------------------------------

IMAGE = {"x": (2, 4, 9, 8)}
i64 = np.int64


def random(*shape: int, seed: int = 1) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


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
    assert tried == set(IMPORTERS)


@given(
    st.sampled_from(["SAME_UPPER", "SAME_LOWER", "VALID"]),
    st.tuples(*[st.integers(6, 12)] * 2),
    st.tuples(*[st.integers(1, 4)] * 2),
    st.tuples(*[st.integers(1, 3)] * 2),
    st.sampled_from(["Conv", "MaxPool", "AveragePool"]),
)
def test_auto_pad_equals_onnx_runtime(auto: str, extents: Any, kernel: Any, strides: Any, op: str) -> None:
    # ONNX Runtime computes negative pads for strides beyond the kernel, and then refuses them.
    steps = [min(k, s) for k, s in zip(kernel, strides, strict=True)]
    attrs: dict[str, Any] = {"auto_pad": auto, "strides": steps, "kernel_shape": list(kernel)}
    constants = {"w": random(2, 1, *kernel)} if op == "Conv" else {}
    node = helper.make_node(op, ["x", *constants], ["y"], **attrs)
    model = model_of([node], {"x": (1, 1, *extents)}, ["y"], constants)
    graph = load_onnx(model)
    feeds = random_feeds(graph)
    assert difference(evaluate(graph, feeds)["y"], ort(model, feeds)[0]) < 1e-5


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
    code = "import sys, tapestry_plan.onnx_import; sys.exit('onnx' in sys.modules)"
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
    with pytest.raises(ValueError, match=r"output 'b' is no tensor of the model; its own outputs are \['y'\]"):
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


# -- weights -----------------------------------------------------------------------------------------------


def test_weights_are_a_function_of_seed_and_name() -> None:
    a, b, c = demo_model(0), demo_model(0), demo_model(1)
    assert a.SerializeToString(deterministic=True) == b.SerializeToString(deterministic=True)
    one, other = weights_of(a), weights_of(c)
    assert one.keys() == other.keys() and len(one) == 52
    assert all(not np.array_equal(one[name], other[name]) for name in one)


def test_weights_keep_the_magnitude_of_values() -> None:
    weights = weights_of(demo_model())
    kernel = weights["fire2/expand3x3_w_0"]
    assert kernel.std() == pytest.approx((2 / np.prod(kernel.shape[1:])) ** 0.5, rel=0.05)
    assert abs(weights["fire2/expand3x3_b_0"]).max() < 1


def test_gemm_and_normalisations_get_fitting_values() -> None:
    nodes = [
        helper.make_node("ConstantOfShape", ["shape"], ["w"], value=helper.make_tensor("v", 1, [1], [0.02])),
        helper.make_node("Gemm", ["x", "w", "b"], ["h"], transB=1),
        helper.make_node("BatchNormalization", ["h", "s", "b", "m", "v"], ["y"]),
    ]
    ones = np.ones(400, np.float32)
    constants = {"shape": np.array([400, 50]), "b": ones, "s": ones, "m": ones, "v": -ones}
    model = he_random(model_of(nodes, {"x": (3, 50)}, ["y"], constants))
    weights = weights_of(model)
    assert set(weights) == {"w", "b", "s", "m", "v"} and model.graph.node[0].op_type == "Gemm"
    assert weights["w"].std() == pytest.approx((2 / 50) ** 0.5, rel=0.05)
    assert weights["v"].min() >= 0.5 and weights["v"].max() <= 1.5
    assert weights["s"].mean() == pytest.approx(1, abs=0.05) and abs(weights["m"]).max() < 0.6
    check_network(model)


def test_scalars_stay() -> None:
    model = model_of([helper.make_node("Mul", ["x", "half"], ["y"])], {"x": (3,)}, ["y"], {"half": np.float32(0.5)})
    assert weights_of(he_random(model))["half"] == 0.5


def weights_of(model: Any) -> dict[str, Array]:
    return {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}


def test_the_demo_model_is_complete() -> None:
    model = demo_model()
    onnx.checker.check_model(model)
    assert [value.name for value in model.graph.input] == ["data_0"]
    assert model.opset_import[0].version == onnx_import.TARGET_OPSET
    with pytest.raises(ValueError, match=r"no network 'alexnot' in .*; there are .*squeezenet"):
        light_model("alexnot")


def test_values_before_softmax_are_found() -> None:
    folder = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
    assert before_softmax(folder / "light_squeezenet.onnx") == ("r65",)
    assert before_softmax(light_model("resnet50")) == ("r174",)
    graph = load_onnx(demo_model())
    (name,) = before_softmax(graph)
    (softmax,) = graph.source(graph.outputs["softmaxout_1"]).stored
    assert graph.nodes[softmax].op == "softmax" and graph.nodes[softmax].inputs == (name,)
    assert before_softmax(onnx.load(MODELS / "resnet.onnx")) == ("relu_12", "mean")


# -- wrong models ------------------------------------------------------------------------------------------


def relu_model(**changes: Any) -> Any:
    return model_of([helper.make_node("Relu", ["x"], ["y"])], {"x": (2, 3)}, **changes)


def test_what_is_no_model(tmp_path: Path) -> None:
    whole = relu_model().SerializeToString()
    for name, data in (("text", b"hello, world\n"), ("empty", b""), ("zeros", bytes(100))):
        path = tmp_path / f"{name}.onnx"
        path.write_bytes(data)
        with pytest.raises(
            ValueError, match=rf"{name}.onnx: this is no ONNX model, or it is truncated \[{len(data)} bytes"
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
        helper.make_node("Gather", ["x", "i"], ["a"], name="first"),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Fancy", ["b"], ["c"], name="second", domain="com.example"),
        helper.make_node("If", ["p"], ["y"], name="third", then_branch=branch("c"), else_branch=branch("b")),
    ]
    model = model_of(nodes, {"x": (3,), "i": (2,), "p": ()})
    model.opset_import.append(helper.make_opsetid("com.example", 1))
    with pytest.raises(UnsupportedOp) as error:
        load_onnx(model)
    text = str(error.value)
    assert "3 nodes" in text and "'Relu'" not in text
    assert "node 'first': Gather of domain 'ai.onnx', opset 21" in text
    assert "node 'second': Fancy of domain 'com.example'" in text
    assert "node 'third': If of domain 'ai.onnx', opset 21, with a graph inside" in text


def branch(name: str) -> Any:
    node = helper.make_node("Identity", [name], ["out"])
    return helper.make_graph([node], "branch", [], [helper.make_tensor_value_info("out", 1, None)])


@pytest.mark.parametrize(
    ("node", "says"),
    [
        (helper.make_node("MaxPool", ["x"], ["y", "where"], kernel_shape=[2]), "output of indices"),
        (helper.make_node("Reshape", ["x", "computed"], ["y"]), "'computed', which the model computes"),
        (helper.make_node("Cast", ["x"], ["y"], to=TensorProto.FLOAT16), "casting float32 to float16"),
        (helper.make_node("BatchNormalization", ["x", *"bbbb"], ["y"], training_mode=1), "training mode"),
        (helper.make_node("Dropout", ["x", "", "yes"], ["y"]), "training mode"),
    ],
)
def test_what_an_operator_cannot_do_is_said(node: Any, says: str) -> None:
    model = model_of([node], {"x": (1, 2, 8), "computed": (2,), "b": (2,)}, constants={"yes": np.array(True)})
    with pytest.raises(UnsupportedOp, match=says):
        load_onnx(model)


def test_random_operators_are_not_evaluated_in_advance() -> None:
    with pytest.raises(UnsupportedOp, match="RandomNormal"):
        load_onnx(model_of([helper.make_node("RandomNormal", [], ["y"], shape=[2])], {}))


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
        ({"z": [2, 3]}, r"shapes names 'z', which is no input; the inputs are \['x'\]"),
        ({"x": [2]}, r"\(2,\) has rank 1, the input has rank 2: \(n, 3\)"),
        ({"x": [2, 4]}, "says 4 on axis 1, but the model fixes it to 3"),
        ({"x": [0, 3]}, "extents are at least 1"),
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
    with pytest.raises(ValueError, match=r"node 'sum' \(Add\) reads 'nothing', which no earlier node makes"):
        load_onnx(missing)


def test_operands_that_do_not_fit_name_the_node() -> None:
    model = model_of([helper.make_node("Add", ["x", "z"], ["y"], name="sum")], {"x": (2,), "z": (3,)})
    with pytest.raises(ValueError, match=r"node 'sum' \(Add\): .*\(2,\) and \(3,\) do not broadcast"):
        load_onnx(model)
    pool = model_of([helper.make_node("MaxPool", ["x"], ["y"], name="pool")], {"x": (1, 1, 4)})
    with pytest.raises(ValueError, match=r"node 'pool' \(MaxPool\): the attribute 'kernel_shape' is missing"):
        load_onnx(pool)


def test_sparse_and_string_tensors() -> None:
    sparse = relu_model()
    values = numpy_helper.from_array(random(1), "few")
    places = numpy_helper.from_array(np.array([1]), "at")
    sparse.graph.sparse_initializer.append(helper.make_sparse_tensor(values, places, [4]))
    with pytest.raises(ValueError, match="initializer 'few' is sparse"):
        load_onnx(sparse)
    with pytest.raises(ValueError, match="tensor 'words' holds strings"):
        load_onnx(relu_model(constants={"words": np.array(["a"], object)}))
    with pytest.raises(ValueError, match="input 'x' has elements of type STRING"):
        load_onnx(model_of([helper.make_node("Identity", ["x"], ["y"])], {"x": (2,)}, dtype=TensorProto.STRING))
    with pytest.raises(ValueError, match="input 'x' has elements of type BFLOAT16"):
        load_onnx(model_of([helper.make_node("Relu", ["x"], ["y"])], {"x": (2,)}, dtype=TensorProto.BFLOAT16))


# -- external data -----------------------------------------------------------------------------------------


def external_model(path: Path, location: str, **entries: int) -> Path:
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
    for entries in ({"length": 8}, {"offset": 9}, {"offset": 4, "length": 4}):
        with pytest.raises(ValueError, match="the file has 7 bytes; it is truncated"):
            load_onnx(external_model(tmp_path / "m.onnx", "w.bin", **entries))
