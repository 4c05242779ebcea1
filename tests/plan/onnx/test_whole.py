"""Nodes without declaration: as the operators that define them, whole in a graph, in stages, or refused."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from onnx import TensorProto, helper, numpy_helper, parser

from tapestry_exec import BackendUnavailable, StepFailed, evaluate, run, run_stages
from tapestry_plan import Device, Graph, Mesh, ShardPlan, Tensor, UnsupportedOp, operator, ops, plan
from tapestry_plan.onnx import StagedModel, list_supported, load_onnx, supported, to_onnx, tuning
from tapestry_plan.onnx.examples import read_example
from tapestry_plan.onnx.inference import infer_model
from tapestry_plan.ops import evaluators
from tests.onnx_cases import BLOCKS, MICROSOFT, NodeCase
from tests.onnx_models import model_of, ort, random

make = helper.make_node
X = np.array([[0, 2, 0], [3, 0, 1]], np.float32)


def typed(model: Any, **outputs: int) -> Any:
    """The model with other element types of its outputs."""
    for value in model.graph.output:
        value.type.tensor_type.elem_type = outputs.get(value.name, value.type.tensor_type.elem_type)
    return model


# -- by ONNX's definition, and whole ------------------------------------------------------------------------


def test_what_onnx_defines_by_others_is_sharded_as_they_are() -> None:
    nodes = [make("Relu", ["x"], ["a"]), make("MeanVarianceNormalization", ["a"], ["y"], name="norm")]
    model = model_of(nodes, {"x": (4, 3, 5, 6)})
    graph = load_onnx(model, opaque=False)
    assert {node.op for node in graph.nodes.values()} >= {"mean", "divide"} and "opaque" not in graph.ops
    assert all(name == "Relu_0" or name.startswith("norm/") for name in graph.nodes)
    x = random(4, 3, 5, 6)
    np.testing.assert_allclose(evaluate(graph, {"x": x})["y"], ort(model, {"x": x})[0], rtol=1e-4, atol=1e-6)


def test_definitions_take_the_attributes_of_the_node() -> None:
    """Given ones, and defaults."""
    for attrs, slope in (({"alpha": 0.5}, 0.5), ({}, 1.0)):
        model = model_of([make("Swish", ["x"], ["y"], **attrs)], {"x": (2, 3)})
        model.opset_import[0].version = 24
        found = evaluate(load_onnx(model, opaque=False), {"x": X})["y"]
        np.testing.assert_allclose(found, X / (1 + np.exp(-slope * X)), rtol=1e-6)


S = np.random.default_rng(5).normal(size=(4, 6)).astype(np.float32)
LEARNED = "ai.onnx.ml"
"""A domain of ONNX's of whose nodes some have no declaration."""
ZEROS = {"domain": LEARNED, "keys_floats": [0.0], "values_floats": [1.0], "default_float": 0.0}
UNDECLARED = [make("Relu", ["x"], ["a"], name="before"), make("LabelEncoder", ["a"], ["y"], name="whole", **ZEROS)]


def undeclared(nodes: Any = UNDECLARED, shape: tuple[int, ...] = S.shape) -> Any:
    """A model, with nodes that have no declaration."""
    model = model_of(nodes, {"x": shape})
    model.opset_import.append(helper.make_opsetid(LEARNED, 3))
    return model


def none_above(x: Any) -> Any:
    """1 where a cell is not above 0, and so 0 behind a Relu, else 0."""
    return (x <= 0).astype(np.float32)


@pytest.mark.parametrize("devices", [1, 2, 3])
def test_a_node_without_declaration_runs_whole(devices: int) -> None:
    model = undeclared()
    graph = load_onnx(model)
    found = plan(graph, Mesh(devices), fix={"before": {"i0": devices}})
    result = run(found, {"x": S}, verify=True)
    np.testing.assert_allclose(result.outputs["y"], ort(model, {"x": S})[0], rtol=1e-5, atol=1e-6)
    assert found.sharding["whole"] == {} and result.nbytes_moved == found.nbytes_moved
    cost = found.opaque["whole"]
    assert (cost.nbytes_read, cost.nbytes_written) == (S.nbytes, S.nbytes)
    assert cost.nbytes_moved == sum(found.stage["whole"].nbytes_received) == (devices > 1) * result.nbytes_moved
    why = found.explain("whole").splitlines()[2]
    assert why.startswith("  opaque: ai.onnx.ml::LabelEncoder of ONNX, run whole on one device: its operator is not")


@pytest.mark.parametrize("slow", ["memory", "arithmetic"])
def test_what_runs_whole_takes_as_long_as_its_bytes_at_least(slow: str) -> None:
    """The least time of a device, by hand, of every plan; so the bound has it too."""
    x = np.zeros((64, 64), np.float32)
    rates = {"memory": (1e12, 1e6), "arithmetic": (1e5, 1e12)}[slow]
    device = Device(flop_per_second=rates[0], memory_nbytes_per_second=rates[1], launch_seconds=1e-3)
    graph = load_onnx(undeclared([make("LabelEncoder", ["x"], ["y"], name="whole", **ZEROS)], x.shape))
    found = plan(graph, Mesh(2, device=device))
    cells = 2 * x.size
    least = 1e-3 + max(cells / rates[0], 4 * cells / rates[1])
    assert found.opaque["whole"].seconds == pytest.approx(least, rel=1e-9)
    assert found.seconds >= found.bound >= least * (1 - 1e-9)


def test_documents_carry_what_runs_whole() -> None:
    """And nothing else is needed to run them, but the reference implementation."""
    found = plan(load_onnx(undeclared()), Mesh(2))
    again = ShardPlan.from_json(found.to_json())
    assert again == found
    for backend in ("numpy", "serial", "processes"):
        made = run(again, {"x": S}, backend=backend).outputs["y"]
        np.testing.assert_allclose(made, none_above(S), rtol=1e-5, atol=1e-6)


def test_they_run_once_and_what_they_make_is_sent() -> None:
    """Whatever their readers are split into, and however cheap the work is taken to be."""
    middle = make("LabelEncoder", ["a"], ["d"], name="whole", **ZEROS)
    graph = load_onnx(undeclared([UNDECLARED[0], middle, make("Exp", ["d"], ["y"], name="after")]))
    for space in ("mesh", "all"):
        for fix in ({}, {"whole": {}}):
            found = plan(graph, Mesh(4), fix={"before": {"i0": 4}, "after": {"i0": 4}, **fix}, space=space)
            assert list(found.placement["whole"]) == [0]
            assert sum(row.nbytes for row in found.transfers() if row.tensor == "d") == 3 * S[0].nbytes
            np.testing.assert_allclose(run(found, {"x": S}, verify=True).outputs["y"], np.exp(none_above(S)), rtol=1e-5)
    again = plan(graph, Mesh(4), like=found, fix={"whole": {}})
    assert list(again.placement["whole"]) == [0]


def test_onnx_runtime_is_asked_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of several outputs and integers too; where it is not installed ONNX's reference runs them."""
    inner = model_of([make("TopK", ["x", "k"], ["v", "y"])], {"x": (4, 6)}, constants={"k": np.array([2])})
    inner = typed(inner, y=TensorProto.INT64)
    inner.graph.output.insert(0, helper.make_tensor_value_info("v", TensorProto.FLOAT, (4, 2)))
    g = Graph()
    dtypes, x = ["float32", "int64"], np.random.default_rng(1).normal(size=(4, 6)).astype(np.float32)
    v, y = ops.opaque(g.input("x", (4, 6)), model=ops.encode_model(inner), shapes=[(4, 2)] * 2, dtypes=dtypes)
    g.output(v, "v"), g.output(y, "y")
    made, asked = plan(g, Mesh(2)), []
    session, reference = evaluators._run_session, evaluators._run_reference
    monkeypatch.setattr(evaluators, "_run_session", lambda *given: (asked.append("runtime"), session(*given))[1])
    monkeypatch.setattr(evaluators, "_run_reference", lambda *given: (asked.append("reference"), reference(*given))[1])
    for backend in ("serial", "onnxruntime"):
        found = run(made, {"x": x}, backend=backend).outputs["y"]
        np.testing.assert_array_equal(found, np.argsort(-x, axis=1)[:, :2])
    assert asked == ["runtime", "runtime"]
    evaluators._open_session.cache_clear()
    monkeypatch.setattr(evaluators, "_find_runtime", lambda: None)
    found = run(made, {"x": x}, backend="serial").outputs["y"]
    np.testing.assert_array_equal(found, np.argsort(-x, axis=1)[:, :2])
    assert asked[2:] == ["runtime", "reference"]
    evaluators._open_session.cache_clear()


ROIS = np.array([[0, 0, 0, 3, 3], [0, 1, 1, 5, 5]], np.float32)
QUANTIZED = {
    "w": np.arange(-40, 40, dtype=np.int8).reshape(1, 5, 16),
    "r": np.arange(-32, 32, dtype=np.int8).reshape(1, 4, 16),
    "b": random(1, 32),
    **{name: np.array([0.05], np.float32) for name in ("ws", "rs")},
    **{name: np.zeros(1, np.int8) for name in ("wz", "rz")},
}
BOXES = np.array([[[0, 0, 1, 1], [0, 0.1, 1, 1.1], [0, 3, 1, 4]]], np.float32)
ONLY_THERE = [
    NodeCase("MaxRoiPool", {"x": random(1, 3, 6, 6), "r": ROIS}, {}, {"pooled_shape": [2, 2]}),
    NodeCase(
        "DynamicQuantizeLSTM",
        {"x": random(3, 2, 5)},
        QUANTIZED,
        {"hidden_size": 4},
        ("y", "h", "c"),
        reads=("x", "w", "r", "b", "", "", "", "", "ws", "wz", "rs", "rz"),
        domain="com.microsoft",
    ),
    NodeCase("NonMaxSuppression", {"b": BOXES, "s": np.array([[[0.9, 0.8, 0.7]]], np.float32)}, {"m": np.array([3])}),
    NodeCase("NonMaxSuppression", {"b": BOXES, "s": np.array([[[0.9, 0.8, 0.7]]], np.float32)}),
    NodeCase("Unique", {"x": np.array([[2, 1], [1, 1], [2, 1]], np.float32)}, {}, {"sorted": 0, "axis": 0}),
]


@pytest.mark.parametrize("case", ONLY_THERE, ids=str)
def test_what_onnx_s_reference_does_not_run_onnx_runtime_does(case: NodeCase) -> None:
    """In a graph, or between two stages."""
    wanted = ort(case.model, case.inputs)
    try:
        found = run(plan(load_onnx(case.model), Mesh(2)), case.inputs, verify=True).outputs
    except UnsupportedOp:
        found = staged(case.model, case.inputs).outputs
    for name, array in zip(case.outputs, wanted, strict=True):
        np.testing.assert_allclose(found[name], array, rtol=1e-6)


@pytest.mark.parametrize("scale", [1.0, 0.37])
def test_regions_that_are_known_are_pooled_in_parts(scale: float) -> None:
    """Bins overlap, are empty where a region lies outside, and hold one cell where it is too small."""
    rng = np.random.default_rng(3)
    rois = np.concatenate([rng.integers(0, 2, (9, 1)), rng.uniform(-6, 24, (9, 4))], axis=1).astype(np.float32)
    rois[:5, 3:] = rois[:5, 1:3] + rng.uniform(0, 9, (5, 2))
    x = random(2, 3, 7, 9, seed=5)
    attrs = {"pooled_shape": [3, 2], "spatial_scale": scale}
    case = NodeCase("MaxRoiPool", {"x": x}, {"rois": rois}, attrs)
    p = plan(load_onnx(case.model, opaque=False), Mesh(3))
    found = run(p, {"x": x}).outputs["y"]
    np.testing.assert_array_equal(found, ort(case.model, {"x": x})[0])
    assert all(p.sharding.values()) and (found == 0).any()


def test_what_a_node_needs_is_bound_between_stages_rather_than_run_whole() -> None:
    """Sizes, and then the part of the image that is resized, are inputs that the host holds."""
    part = np.array([0, 0, 0.2, 0.3, 1, 1, 0.7, 0.9], np.float32)
    feeds = {"x": random(1, 2, 6, 7), "part": part, "sizes": np.array([1, 2, 5, 4])}
    attrs = {"mode": "linear", "coordinate_transformation_mode": "tf_crop_and_resize"}
    case = NodeCase("Resize", feeds, {}, attrs, reads=("x", "part", "", "sizes"))
    found = staged(case.model, feeds)
    assert not found.whole and "resize" in {node.op for s in found.stages for node in s.graph.nodes.values()}
    np.testing.assert_allclose(found.outputs["y"], ort(case.model, feeds)[0], rtol=1e-5)


def test_what_neither_runs_is_refused_by_name_and_reason() -> None:
    """ONNX Runtime knows the operator, and has no kernel for CPUs."""
    case = NodeCase("BiasSoftmax", {"x": X, "b": X}, {}, {"axis": 1, "is_inner_broadcast": 1}, domain="com.microsoft")
    with pytest.raises(UnsupportedOp, match=r"(?s)BiasSoftmax of domain.*ONNX Runtime does not take it: .*BiasSoftmax"):
        load_onnx(case.model)
    for feeds in (case.inputs, None):
        with pytest.raises(UnsupportedOp, match=r"'BiasSoftmax_0'(?s:.)*ONNX Runtime does not take it: .*NOT_IMPL"):
            StagedModel(case.model, feeds)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("(int4[4,6] x) => (uint4[4,6] y) { y = BitCast <to = 21> (x) }", "has fewer bits than its bytes"),
        ("(float[2,4] x, float[4] s) => (y, v) { y, v = SimplifiedLayerNormalization (x, s) }", "its output 1"),
        (
            "(float[3,32] x, uint8[6,2,8] w, float[12] s, int32[32] g) => (float[3,6] y) "
            "{ y = com.microsoft.MatMulNBits <K = 32, N = 6, block_size = 16> (x, w, s, , g) }",
            "g_idx are not supported",
        ),
        (
            "(float[2,3,16] x, int64[2,3] i, float[9,4] c, float[9,4] s) => (y) "
            "{ y = com.microsoft.RotaryEmbedding <scale: float = 2.0> (x, i, c, s) }",
            "a scale are not supported",
        ),
    ],
)
def test_what_a_declaration_does_not_take_runs_whole(text: str, why: str) -> None:
    model = parser.parse_model(f'<ir_version: 11, opset_import: ["" : 26, "com.microsoft" : 1]> agraph {text}')
    (node,) = load_onnx(model).nodes.values()
    assert node.op == "opaque" and why in node.attrs["why"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "(float[3,32] x, uint8[6,2,8] w, float[12,2] s) => (float[3,6] y) "
            "{ y = com.microsoft.MatMulNBits <K = 32, N = 6, block_size = 16> (x, w, s) }",
            r"scales \(12, 2\); N = 6, K = 32 and blocks of 16 make it \(6, 2, 8\) and \(6, 2\)$",
        ),
        (
            "(float[2,3,4] x, float[3] s, float[0] b) => (float[2,3,4] y) { y = InstanceNormalization (x, s, b) }",
            r"tensor 'b' of shape \(0,\) has no cells; .* nor ONNX's reference takes it so either$",
        ),
        (
            "(float[2,3] x, float[0] s) => (uint8[2,3] y) { y = QuantizeLinear (x, s) }",
            r"tensor 's' of shape \(0,\) has no cells; .* nor ONNX's reference takes it so either$",
        ),
    ],
)
def test_operands_that_nobody_takes_are_refused_as_a_model_is_read(text: str, says: str) -> None:
    """In one line, by the node: not in the run, by ONNX Runtime."""
    model = parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]> agraph {text}')
    node = model.graph.node[0].op_type
    with pytest.raises(ValueError, match=rf"^load_onnx: the model: node '{node}_0' \({node}\): .*{says}"):
        load_onnx(model)
    with pytest.raises(ValueError, match=says):
        StagedModel(model)
    shapes = {value.name: [dim.dim_value for dim in value.type.tensor_type.shape.dim] for value in model.graph.input}
    feeds = {name: np.ones(shape, np.uint8 if name == "w" else np.float32) for name, shape in shapes.items()}
    with pytest.raises(Exception, match=f"Non-zero status code returned while running {node} node"):
        ort(model, feeds)


def test_draws_of_onnx_runtime_are_the_same_in_each_run() -> None:
    node = make("Multinomial", ["x"], ["y"], sample_size=9, seed=3.0)
    model = ops.encode_model(typed(model_of([node], {"x": (2, 3)}), y=TensorProto.INT32))
    g = Graph()
    g.output(ops.opaque(g.input("x", (2, 3)), model=model, shapes=[(2, 9)], dtypes=["int32"]), "y")
    first, second = (run(plan(g, Mesh(2)), {"x": X}, verify=True).outputs["y"] for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert first.shape == (2, 9) and len(set(first.ravel().tolist())) > 1


ENDLESS = """<ir_version: 8, opset_import: ["" : 21]> agraph (float[2] x) => (float[2] y) {
  y = Loop (, , x) <body = b (int64 i, bool c, float[2] a) => (bool d, float[2] e) { d = Identity(c) e = Abs(a) }>
}"""


@pytest.mark.parametrize("runtime", [True, False])
def test_loops_without_end_are_ended(runtime: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluators.tuning, "OPAQUE_SECONDS", 0.2)
    model = ops.encode_model(parser.parse_model(ENDLESS))
    with pytest.raises(ValueError, match=r"it was not done after 0\.2 s.*give the Loop fewer rounds"):
        ops.run_model(model, {"x": np.ones(2, np.float32)}, runtime=runtime)


@pytest.mark.parametrize("runtime", [True, False])
def test_what_rounds_make_is_stacked(runtime: bool) -> None:
    """Numbers to a vector, matrices to three axes."""
    text = """<ir_version: 8, opset_import: ["" : 21]>
    agraph (float[2, 3] x, int64 n) => (float[2, 3] y, float[m] s, z) {
      y, s, z = Loop (n, , x)
        <body = b (int64 i, bool c, float[2, 3] a) => (bool d, float[2, 3] e, float f, float[2, 3] g)
        { d = Identity(c) e = Add(a, x) f = ReduceSum <keepdims = 0> (e) g = Identity(e) }>
    }"""
    feeds = {"x": X, "n": np.array(4)}
    _, s, z = ops.run_model(ops.encode_model(parser.parse_model(text)), feeds, runtime=runtime)
    np.testing.assert_array_equal(s, X.sum() * np.arange(2, 6))
    np.testing.assert_array_equal(z, X * np.arange(2, 6)[:, None, None])


def test_they_are_written_as_the_nodes_that_they_were() -> None:
    """With known values inside, of other domains, and as a plan."""
    cases = [*(case for case in ONLY_THERE if case.op in ("MaxRoiPool", "DynamicQuantizeLSTM"))]
    for model, feeds in [(undeclared(), {"x": S}), *((case.model, case.inputs) for case in cases)]:
        graph = load_onnx(model)
        written = to_onnx(plan(graph, Mesh(2)))
        assert [node.op_type for node in written.graph.node] == [node.op_type for node in model.graph.node]
        for found, wanted in zip(ort(written, feeds), ort(model, feeds), strict=True):
            np.testing.assert_array_equal(found, wanted)
        assert "opaque" in load_onnx(written).ops


def test_they_are_not_written_into_an_opset_that_has_another_operator() -> None:
    inner = model_of([make("Det", ["x"], ["y"])], {"x": (2, 2)})
    del inner.opset_import[:]
    inner.opset_import.append(helper.make_opsetid("", 21))
    g = Graph()
    x = g.input("x", (2, 2))
    g.output(ops.opaque(x, model=ops.encode_model(inner), shapes=[()], dtypes=["float32"]), "y")
    g.output(ops.rms_normalization(x, g.input("s", (2,))), "z")  # of opset 23
    with pytest.raises(UnsupportedOp, match="its Det is of opset 21, and another one in opset 23"):
        to_onnx(g)


def test_a_gpu_leaves_what_runs_whole_to_the_host() -> None:
    found = plan(load_onnx(undeclared()), Mesh(2))
    with pytest.raises((ValueError, RuntimeError), match=r"\['opaque'\] have block functions that need NumPy"):
        run(found, {"x": S}, backend="simulated")


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("model", "no base64!", "is not an ONNX model in base64"),
        ("model", "", "model has no nodes"),
        ("shapes", [[2, 3], [2, 3]], "shapes has 2 entries, the model 1 output"),
        ("shapes", [[2, 0]], "extents are at least 1"),
        ("dtypes", ["float32", "int8"], "dtypes has 2 names"),
        ("dtypes", ["none"], "is not a dtype of NumPy"),
    ],
)
def test_documents_that_lie_are_refused(field: str, value: Any, says: str) -> None:
    document = load_onnx(undeclared()).to_dict()
    (entry,) = (one for one in document["order"] if one.get("op") == "opaque")
    entry["attrs"][field] = value
    with pytest.raises(ValueError, match=says):
        Graph.from_json(json.dumps(document))


def test_models_of_documents_read_no_files() -> None:
    model = model_of([make("Add", ["x", "w"], ["y"])], {"x": (2, 3)}, constants={"w": X})
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="/etc/hostname")
    with pytest.raises(ValueError, match="stores tensors in files, which operators do not read"):
        ops.opaque(Graph().input("x", (2, 3)), model=ops.encode_model(model), shapes=[(2, 3)], dtypes=["float32"])


def test_another_result_than_declared_is_an_error() -> None:
    g = Graph()
    model = ops.encode_model(model_of([make("Hardmax", ["x"], ["y"])], {"x": (2, 3)}))
    g.output(ops.opaque(g.input("x", (2, 3)), model=model, shapes=[(3, 2)], dtypes=["float32"]), "y")
    with pytest.raises(
        StepFailed, match=r"Hardmax.: output 0 comes out as float32\(2, 3\); float32\(3, 2\) is declared"
    ):
        run(plan(g, Mesh(1)), {"x": X})


def test_graphs_inside_nodes_read_what_is_outside() -> None:
    body = helper.make_graph(
        [make("Add", ["h", "z"], ["out"])], "body", [], [helper.make_tensor_value_info("out", 1, None)]
    )
    drawn = [make("RandomNormalLike", ["h"], ["r"]), make("Sub", ["r", "r"], ["d"]), make("Sub", ["d", "h"], ["out"])]
    other = helper.make_graph(drawn, "body", [], [helper.make_tensor_value_info("out", 1, None)])
    nodes = [
        make("Exp", ["x"], ["h"]),
        make("ReduceMax", ["x"], ["m"], keepdims=0),
        make("Cast", ["m"], ["c"], to=TensorProto.BOOL),
        make("If", ["c"], ["y"], name="choose", then_branch=body, else_branch=other),
    ]
    model = model_of(nodes, {"x": (2, 3), "z": (3,)})
    graph = load_onnx(model)
    assert len(graph.nodes["choose"].inputs) == 3
    assert "both branches cannot run" in graph.nodes["choose"].attrs["why"]
    for x in (X, 0 * X):
        feeds = {"x": x, "z": random(3)}
        np.testing.assert_allclose(evaluate(graph, feeds)["y"], ort(model, feeds)[0], rtol=1e-6)


# -- refusals ------------------------------------------------------------------------------------------------


def test_without_opaque_all_refused_nodes_are_in_one_message() -> None:
    nodes = [
        make("LabelEncoder", ["x"], ["a"], name="one", **ZEROS),
        make("TopK", ["x", "k"], ["b", "i"], name="two"),
        make("LabelEncoder", ["a"], ["c"], name="three", **ZEROS),
        make("Mine", ["x"], ["d"], name="four", domain="com.example"),
    ]
    model = undeclared(nodes)
    model.graph.input.append(helper.make_tensor_value_info("k", TensorProto.INT64, (1,)))
    model.opset_import.append(helper.make_opsetid("com.example", 1))
    del model.graph.output[:]
    model.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in "bcd")
    with pytest.raises(UnsupportedOp) as refused:
        load_onnx(model, opaque=False)
    text = str(refused.value)
    assert "4 nodes have an operator that is not supported" in text and text.count("\n  node") == 4
    assert "node 'two' (TopK): its input 1 (k) is 'k'" in text and "node 'three': LabelEncoder" in text
    del model.graph.node[1:3], model.graph.output[0:2]
    for reader in (load_onnx, StagedModel):
        with pytest.raises(UnsupportedOp, match=r"1 node has .*\n  node 'four': Mine of domain 'com\.ex") as refused:
            reader(model)
        assert "neither ONNX nor an installed ONNX Runtime has it" in str(refused.value)
        assert "StagedModel plans" not in str(refused.value), "which does not have it either"


def test_nodes_that_nobody_has_are_in_one_message() -> None:
    """Those too that read what others of them would make; not those that would run whole."""
    nodes = [
        make("Foo", ["x"], ["a"], name="one", domain="com.example"),
        make("LabelEncoder", ["a"], ["b"], name="two", **ZEROS),
        make("Bar", ["b"], ["c"], name="three", domain="com.example"),
    ]
    model = undeclared(nodes)
    model.opset_import.append(helper.make_opsetid("com.example", 1))
    del model.graph.output[:]
    model.graph.output.append(helper.make_empty_tensor_value_info("c"))
    for reader in (load_onnx, StagedModel):
        with pytest.raises(UnsupportedOp, match=r"2 nodes have (?s:.)*'one': Foo (?s:.)*'three': Bar ") as refused:
            reader(model)
        assert "'two'" not in str(refused.value) and "value_info" not in str(refused.value)


def test_models_that_end_shape_inference_are_refused() -> None:
    """Another process has it; this one and the next question live on.

    It reads that many places before its list of dims: a few of them are the heap's and need not end it.
    """
    nodes = [make("GatherND", ["x", "i"], ["y"], name="it", batch_dims=-(2**30))]
    with pytest.raises(ValueError, match="ONNX's shape inference ends on it"):
        infer_model(model_of(nodes, {"x": (2, 3)}, constants={"i": np.zeros((2, 1), np.int64)}))
    assert infer_model(undeclared()).graph.node


@settings(deadline=None, max_examples=30)
@given(
    st.sampled_from(["axis", "batch_dims", "select_last_index", "blocksize"]),
    st.integers(-(2**63), 2**63 - 1),
    st.sampled_from(["Hardmax", "LayerNormalization", "GatherND", "ArgMax", "DepthToSpace"]),
)
def test_wrong_numbers_are_refused_or_run(name: str, number: int, op: str) -> None:
    node = make(op, ["x", "x"][: 1 + (op in ("LayerNormalization", "GatherND"))], ["y"], **{name: number})
    try:
        graph = load_onnx(model_of([node], {"x": (2, 4, 1, 3)}))
    except ValueError as error:
        assert str(error).startswith("load_onnx: ")
    else:
        assert graph.outputs


# -- one's own -----------------------------------------------------------------------------------------------


def _scaled(xp: Any, inputs: Any, outputs: Any, shard: Any) -> None:
    xp.multiply(inputs[0], shard.attrs["by"], out=outputs[0])


@operator(block=_scaled)
def scaled(x: Tensor, by: float = 2.0, *, name: str | None = None) -> Tensor:
    """x times a number."""


@pytest.mark.parametrize("op", [scaled, scaled.op])
def test_operators_of_ones_own_are_given_by_domain_and_type(op: Any) -> None:
    model = model_of([make("Scale", ["x"], ["y"], domain="com.example", by=3.0)], {"x": (2, 3)})
    model.opset_import.append(helper.make_opsetid("com.example", 1))
    graph = load_onnx(model, ops={"com.example::Scale": op})
    found = plan(graph, Mesh(3), fix={"Scale_0": {"i1": 3}})
    np.testing.assert_array_equal(run(found, {"x": X}).outputs["y"], 3 * X)
    with pytest.raises(UnsupportedOp, match=r"Scale of domain 'com\.example'"):
        load_onnx(model)
    del model.opset_import[0]
    assert load_onnx(model, ops={"com.example::Scale": op}).nodes, "none of ONNX's own operators"


def test_they_also_take_the_place_of_onnx_s() -> None:
    own = replace(scaled.op, attributes=())
    model = model_of([make("Relu", ["c"], ["d"]), make("Add", ["x", "d"], ["y"])], {"x": (2, 3)}, constants={"c": X})
    graph = load_onnx(model, ops={"Relu": own})
    assert "scaled" in graph.ops, "which is not evaluated as ONNX's"
    floats = replace(own, dtype=ops.sin.op.dtype)
    integers = model_of([make("Relu", ["x"], ["y"])], {"x": (2, 3)}, dtype=TensorProto.INT32)
    with pytest.raises(UnsupportedOp, match=r"\(Relu\): .* operand 0 is int32"):
        load_onnx(integers, ops={"Relu": floats})  # and ONNX's does not take its place
    for wrong in (5, {"Relu": 5}, {5: own}):
        with pytest.raises(TypeError, match="ops"):
            load_onnx(model, ops=wrong)


def test_every_operator_of_onnx_is_listed() -> None:
    found = {one.operator: one for one in list_supported()}
    how = {name: one.how for name, one in found.items()}
    assert how["Conv"] == "imported" and how["Unique"] == "opaque" and how["SwiGLU"] == "defined"
    assert {f"{LEARNED}::{name}" for name in ("ZipMap", "TreeEnsemble", "TreeEnsembleRegressor")} < how.keys()
    assert how[f"{LEARNED}::Scaler"] == "imported" and how[f"{LEARNED}::SVMClassifier"] == "opaque"
    assert "refused" not in how.values() and how["SequenceMap"] == "opaque"
    assert how["Shape"] == how["Constant"] == "folded"
    assert found["ArgMax"].dtypes[:11] == (
        *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
        *("float16", "float32", "float64"),
    )
    assert {"float8_e4m3fn", "int4", "uint4"} <= set(found["DequantizeLinear"].dtypes)
    assert found["com.microsoft::FastGelu"].dtypes == ("float16", "float32", "float64", "bfloat16")
    assert found["com.microsoft::QAttention"].dtypes == ("int8", "uint8")
    assert not {"int2", "int4", "uint2", "uint4", "float4_e2m1fn"} & set(found["BitCast"].dtypes)
    assert {"bool", "bfloat16", "float8_e5m2", "int64"} <= set(found["BitCast"].dtypes)
    assert found["ReduceMean"].dtypes == found["IsInf"].dtypes == ("float16", "float32", "float64", "bfloat16")


def test_to_tell_of_one_operator_imports_models_of_that_one_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = list[str]()

    def note(model: Any, **options: Any) -> Any:
        seen.extend(f"{node.domain}::{node.op_type}".removeprefix("::") for node in model.graph.node)
        return load_onnx(model, **options)

    monkeypatch.setattr(supported, "load_onnx", note)
    for name in ("com.microsoft::QAttention", "Conv"):  # of which one has no schema that tells its dtypes
        seen.clear()
        supported._look_at.cache_clear()
        assert [one.operator for one in list_supported(name)] == [name] and set(seen) == {name}
    seen.clear()
    supported._look_at.cache_clear()
    with pytest.raises(ValueError, match=r"ONNX has no operator 'Convv'; nearest of \d+ operators: 'Conv'"):
        list_supported("Conv", "Convv")
    with pytest.raises(TypeError, match=r"list_supported: names must be texts, not 5"):
        list_supported(5)  # type: ignore[arg-type]
    assert not seen


def test_dtypes_that_are_not_listed_run_whole() -> None:
    """The nodes for which fewer are listed than ONNX has."""
    nodes = {
        "int4": make("BitCast", ["x"], ["y"], to=TensorProto.UINT4),
        "int32": make("ReduceMean", ["x"], ["y"], keepdims=0),
    }
    for dtype, node in nodes.items():
        code = TensorProto.DataType.Value(dtype.upper())
        model = model_of([node], {"x": (4,)}, opset=26, dtype=code)
        assert [one.op for one in load_onnx(model).nodes.values()] == ["opaque"]
        assert dtype not in next(list_supported(node.op_type)).dtypes


def test_each_operator_that_is_imported_has_an_example_of_its_own() -> None:
    """By which it is known how it is sharded: what has index axes, and what is a view or a known value."""
    found = {one.operator: one for one in list_supported()}
    for name in found:
        example = read_example(name)
        assert (example is None) == (found[name].how == "opaque"), name
        if example is not None:
            kinds = [f"{node.domain}::{node.op_type}".removeprefix("::") for node in example.graph.node]
            assert kinds.count(name) == 1 and (len(kinds) == 1 or "Sequence" in name)
    axes = {name: one.axes for name, one in found.items()}
    assert axes["Conv"] == (("conv", ("n", "c", "h", "w", "+ci", "+kh", "+kw")),)
    assert axes["Softmax"] == (("softmax", ("i0", "i1")),) and axes["If"][-1] == ("where", ("i0",))
    instead = {name: one.instead for name, one in found.items()}
    assert instead["LSTM"] == instead["RNN"] == (("recurrence_step", ("d", "b", "j")),)
    assert ("max", ("i0", "i1", "+i2")) in instead["Softmax"] and not instead["Conv"] and not instead["NonZero"]
    assert axes["ai.onnx.ml::SVMRegressor"] == (("opaque", ("n",)),) and not axes["ai.onnx.ml::ZipMap"]
    assert axes["ai.onnx.ml::Normalizer"][1] == ("sum", ("i0", "+i1"))
    whole = {name for name, one in found.items() if one.how in ("imported", "defined") and not one.axes}
    views = {"Concat", "DepthToSpace", "Dropout", "Expand", "Flatten", "Identity", "Pad", "Reshape", "Slice", "Split"}
    views |= {"SpaceToDepth", "Squeeze", "Tile", "Transpose", "Unsqueeze", "CenterCropPad"}
    views |= {f"{BLOCKS}::ReorderInput", f"{BLOCKS}::ReorderOutput", f"{MICROSOFT}::ExpandDims", f"{MICROSOFT}::Pad"}
    views |= {f"{LEARNED}::FeatureVectorizer"}
    known = {"ConstantOfShape", "EyeLike", "Range", "BlackmanWindow", "HammingWindow", "HannWindow"}
    of_sequences = {"ConcatFromSequence", "SplitToSequence"}
    of_sequences |= {f"Sequence{what}" for what in ("At", "Construct", "Empty", "Erase", "Insert", "Length")}
    assert whole == views | known | of_sequences


# -- stages --------------------------------------------------------------------------------------------------


def staged(model: Any, feeds: dict[str, Any], devices: int = 2, first: bool = False) -> Any:
    """The model run in stages; its feeds are given with the model, or with the run."""
    return run_stages(
        StagedModel(model, feeds if first else None), {} if first else feeds, lambda graph: plan(graph, Mesh(devices))
    )


@pytest.mark.parametrize("first", [True, False])
def test_shapes_that_follow_from_values_end_a_stage(first: bool) -> None:
    nodes = [
        make("Relu", ["x"], ["a"]),
        make("NonZero", ["a"], ["i"]),
        make("Transpose", ["i"], ["t"]),
        make("GatherND", ["a", "t"], ["g"]),
        make("Exp", ["g"], ["y"]),
    ]
    model = model_of(nodes, {"x": (2, 3)})
    found = staged(model, {"x": X}, first=first)
    np.testing.assert_allclose(found.outputs["y"], np.exp([2, 3, 1]), rtol=1e-6)
    assert found.whole == ("node 'NonZero_1' (NonZero)",) or found.whole == ("node 'NonZero_0' (NonZero)",)
    assert found.nbytes_whole == X.nbytes and len(found.plans) == 2
    first_stage, last = found.stages
    assert first_stage.behind == 3 and last.behind == 0 and not last.reasons
    assert "a shape that follows from values" in str(first_stage)
    with pytest.raises(UnsupportedOp, match=r"(?s)shape that follows from values.*StagedModel"):
        load_onnx(model)


def test_values_that_importers_need_are_bound() -> None:
    """A computed k, and a shape that an input has: no node runs whole."""
    nodes = [
        make("ReduceSum", ["n"], ["k"], keepdims=1),
        make("TopK", ["x", "k"], ["v", "i"]),
        make("Reshape", ["v", "s"], ["y"]),
    ]
    model = model_of(nodes, {"x": (2, 3)})
    for name in ("n", "s"):
        model.graph.input.append(helper.make_tensor_value_info(name, TensorProto.INT64, (2,)))
    feeds = {"x": X, "n": np.array([1, 1]), "s": np.array([1, -1])}
    found = staged(model, feeds)
    np.testing.assert_array_equal(found.outputs["y"], ort(model, feeds)[0])
    assert not found.whole and found.stages[0].wanted == ("k",)
    with pytest.raises(ValueError, match="depends on the input 's', which is not given"):
        staged(model, {"x": X, "n": feeds["n"]})
    assert {node.op for one in found.plans for node in one.graph.nodes.values()} == {"sum", "top_k"}


WORDS = np.array([*"abcdef"], object)
IMAGE = np.random.default_rng(7).normal(size=(4, 6)).astype(np.float32)


def classifier(way: str) -> Any:
    """A label for each row, and further nodes that read or make strings; the labels are stored in one way."""
    nodes = [
        make("Relu", ["x"], ["a"]),
        make("ArgMax", ["a"], ["i"], axis=1, keepdims=0),
        make("Gather", ["labels", "i"], ["names"]),
        make("Constant", [], ["two"], value_strings=["u", "v"]),
        make("Concat", ["names", "two"], ["six"], axis=0),
        make("Reshape", ["six", "shape"], ["table"]),
        make("Equal", ["names", "b"], ["is_b"]),
        make("Cast", ["is_b"], ["weight"], to=TensorProto.FLOAT),
        make("Mul", ["weight", "ones"], ["y"]),
    ]
    stored = numpy_helper.from_array(WORDS, "labels")
    if way == "constant":
        nodes.insert(0, make("Constant", [], ["labels"], value=stored))
    if way == "strings":
        nodes.insert(0, make("Constant", [], ["labels"], value_strings=list(WORDS)))
    small = {"shape": np.array([2, 3]), "b": np.array("b", object), "ones": np.ones(4, np.float32)}
    inside = [numpy_helper.from_array(array, name) for name, array in small.items()]
    outputs = [helper.make_tensor_value_info("table", TensorProto.STRING, (2, 3))]
    outputs.append(helper.make_tensor_value_info("y", TensorProto.FLOAT, (4,)))
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, IMAGE.shape)
    graph = helper.make_graph(nodes, "g", [x], outputs, [*inside, *([stored] if way == "stored" else [])])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 12 if way == "strings" else 21)])


@pytest.mark.heavy(2)
@pytest.mark.parametrize("way", ["stored", "constant", "strings"])
def test_nodes_that_read_or_make_strings_run_whole(way: str) -> None:
    """What stands before and behind them is planned; an older opset is converted as ever."""
    model = classifier(way)
    found = staged(model, {"x": IMAGE}, devices=3)
    wanted = np.append(WORDS[np.maximum(IMAGE, 0).argmax(axis=1)], ["u", "v"])
    np.testing.assert_array_equal(found.outputs["table"], wanted.reshape(2, 3))
    np.testing.assert_array_equal(found.outputs["y"], (wanted[:4] == "b").astype(np.float32))
    ops_of = [[node.op for node in one.graph.nodes.values()] for one in found.stages]
    assert ops_of[0] == ["relu", "argmax"] and ops_of[-1] == ["astype", "multiply"]
    assert {name.rpartition("(")[2] for name in found.whole} == {"Gather)", "Concat)", "Reshape)", "Equal)"}
    with pytest.raises(UnsupportedOp, match=r"reads 'labels', which holds strings.*; StagedModel plans it in stages"):
        load_onnx(model)
    with pytest.raises(UnsupportedOp, match="reads 'labels', which holds strings") as refused:
        load_onnx(model, opaque=False)
    assert "StagedModel" not in str(refused.value)


def test_strings_that_make_numbers_are_inside_a_graph() -> None:
    """A table of words by a number, in a loop of which no value is a string."""
    text = """<ir_version: 8, opset_import: ["" : 21]> agraph (float[2, 3] x) => (float[2, 3] y) {
      n = Constant <value = int64 {3}> ()
      y = Loop (n, , x) <body = b (int64 i, bool c, float[2, 3] s) => (bool d, float[2, 3] t) {
        words = Constant <value_strings = ["b", "c", "b"]> ()
        b = Constant <value_string = "b"> ()
        word = Gather (words, i)
        q = Equal (word, b)
        f = Cast <to = 1> (q)
        t = Add (s, f)
        d = Identity (c) }>
    }"""
    graph = load_onnx(parser.parse_model(text))
    np.testing.assert_array_equal(run(plan(graph, Mesh(2)), {"x": X}, verify=True).outputs["y"], X + 2)


def test_strings_that_are_known_need_no_run() -> None:
    nodes = [make("Gather", ["labels", "i"], ["y"]), make("Identity", ["labels"], ["z"])]
    inside = [numpy_helper.from_array(WORDS, "labels"), numpy_helper.from_array(np.array([[2, 0]]), "i")]
    outputs = [helper.make_empty_tensor_value_info(name) for name in "yz"]
    found = StagedModel(helper.make_model(helper.make_graph(nodes, "g", [], outputs, inside)))
    assert found.stage is None and found.outputs["y"].tolist() == [["c", "a"]]
    np.testing.assert_array_equal(found.outputs["z"], WORDS)


def _as_bytes(tensor: Any) -> None:
    tensor.ClearField("string_data")
    tensor.raw_data = bytes(8 * len(WORDS))


def _in_a_file(tensor: Any) -> None:
    tensor.ClearField("string_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="labels.bin")


@pytest.mark.parametrize(
    ("break_it", "says"),
    [
        (_as_bytes, "tensor 'labels' has its strings as bytes, or in a file"),
        (_in_a_file, "tensor 'labels' has its strings as bytes, or in a file"),
        (lambda tensor: tensor.string_data.append(b"g"), "tensor 'labels' holds 7 values; dims .* need 6"),
        (lambda tensor: tensor.string_data.__setitem__(0, b"\xff"), "tensor 'labels' cannot be read: 'utf-8'"),
    ],
)
@pytest.mark.parametrize("reader", [load_onnx, StagedModel])
def test_strings_that_are_not_as_onnx_has_them_are_refused(
    break_it: Any, says: str, reader: Any, tmp_path: Path
) -> None:
    model = classifier("stored")
    break_it(next(one for one in model.graph.initializer if one.name == "labels"))
    (tmp_path / "labels.bin").write_bytes(bytes(8 * len(WORDS)))
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(ValueError, match=says):
        reader(tmp_path / "m.onnx")


def looped(rounds: int | None, declared: str) -> Any:
    """A loop of many rounds, or of as many as values ask for."""
    goes_on = "Less (m, most)" if rounds is None else "Identity (c)"
    count = "" if rounds is None else "n"
    text = f"""<ir_version: 8, opset_import: ["" : 21]> agraph (float[2, 3] x) => (float[{declared}] y) {{
      a = Abs (x)
      n = Constant <value = int64 {{{rounds or 0}}}> ()
      y = Loop ({count}, , a) <body = b (int64 i, bool c, float[2, 3] s) => (bool d, float[2, 3] t) {{
        most = Constant <value = float {{100}}> ()
        t = Add (s, a)
        m = ReduceSum <keepdims = 0> (t)
        d = {goes_on} }}>
    }}"""
    return parser.parse_model(text)


@pytest.mark.parametrize("rounds", [None, 300])
def test_loops_of_declared_shapes_run_whole_in_a_graph(rounds: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "MAX_INLINED_NODES", 64)
    graph = load_onnx(looped(rounds, "2, 3"))
    assert [node.op for node in graph.nodes.values()] == ["abs", "opaque"]
    found = run(plan(graph, Mesh(2)), {"x": X}, verify=True).outputs["y"]
    np.testing.assert_allclose(found, X * (rounds + 1 if rounds else 17), rtol=1e-3)
    if rounds is None:
        with pytest.raises(UnsupportedOp, match="StagedModel plans it in stages"):
            load_onnx(looped(rounds, "a, b"))
    else:  # one round tells the shapes
        other = run(plan(load_onnx(looped(rounds, "a, b")), Mesh(2)), {"x": X}).outputs["y"]
        np.testing.assert_allclose(other, found, rtol=1e-6)
    np.testing.assert_allclose(staged(looped(rounds, "a, b"), {"x": X}).outputs["y"], found, rtol=1e-6)


def test_declared_shapes_that_a_run_contradicts_are_told() -> None:
    graph = load_onnx(looped(None, "3, 2"))
    with pytest.raises(StepFailed, match=r"output 0 comes out as float32\(2, 3\); float32\(3, 2\) is declared"):
        run(plan(graph, Mesh(2)), {"x": X})


def test_sequences_and_empty_tensors() -> None:
    """A sequence that nodes make and take apart needs no host; one that is given is taken apart there."""
    nodes = [
        make("Exp", ["x"], ["e"]),
        make("SequenceConstruct", ["e", "x"], ["s"]),
        make("ConcatFromSequence", ["s"], ["c"], axis=0),
        make("Neg", ["c"], ["y"]),
    ]
    found = staged(model_of(nodes, {"x": (2, 3)}), {"x": X})
    np.testing.assert_allclose(found.outputs["y"], -np.concatenate([np.exp(X), X]), rtol=1e-6)
    assert not found.whole and len(found.plans) == 1
    given = model_of([*nodes[:1], *nodes[2:]], {"x": (2, 3)})
    given.graph.input.append(helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT, [2, 3]))
    found = staged(given, {"x": X, "s": [np.exp(X), X]})
    np.testing.assert_allclose(found.outputs["y"], -np.concatenate([np.exp(X), X]), rtol=1e-6)
    assert len(found.whole) == 1
    nodes = [make("NonZero", ["x"], ["i"]), make("Neg", ["i"], ["y"])]
    assert staged(typed(model_of(nodes, {"x": (2, 3)}), y=7), {"x": 0 * X}).outputs["y"].shape == (2, 0)


HEAD = '<ir_version: 10, opset_import: ["" : 21, "ai.onnx.ml" : 3]> agraph '
PROBABILITIES = np.array([[0.2, -0.5, 0.3], [1, 0, 0.25]], np.float32)
ZIPPED = "(float[2,3] p) => (seq(map({key}, float)) z, float[2,3] y) {{ a = Relu(p) "
ZIPPED += "z = ai.onnx.ml.ZipMap <classlabels_{key}s = {labels}> (a) y = Exp(a) }}"
TEXTS = '["a", "b", "c"]'
GIVEN = "({kind} d) => (float[1,n] y) {{ c = ai.onnx.ml.{made} (d) y = Neg(c) }}"
MAPS = {
    "numbers zipped": (ZIPPED.format(key="int64", labels="[7, 5, -1]"), {"p": PROBABILITIES}, ["relu", "exp"]),
    "texts zipped": (ZIPPED.format(key="string", labels=TEXTS), {"p": PROBABILITIES}, ["relu", "exp"]),
    "known values zipped": (
        "() => (seq(map(int64, float)) z) { p = Constant <value = float[1,2] {1, 2}> () "
        "z = ai.onnx.ml.ZipMap <classlabels_int64s = [3, 4]> (p) }",
        {},
        [],
    ),
    "cast": (
        GIVEN.format(kind="map(int64, float)", made='CastMap <cast_to = "TO_FLOAT">'),
        {"d": {4: 1.5, -2: 2.0, 9: 0.1}},
        ["negative"],
    ),
    "cast to places": (
        GIVEN.format(kind="map(int64, float)", made='CastMap <cast_to = "TO_FLOAT", map_form = "SPARSE", max_map = 5>'),
        {"d": {3: 1.5, 0: 2.0}},
        ["negative"],
    ),
    "vector of numbers": (
        GIVEN.format(kind="map(int64, float)", made="DictVectorizer <int64_vocabulary = [3, 1, 2]>"),
        {"d": {2: 5.0, 3: -1.0}},
        ["negative"],
    ),
    "vector of texts": (
        GIVEN.format(kind="map(string, float)", made=f"DictVectorizer <string_vocabulary = {TEXTS}>"),
        {"d": {"c": 5.0, "a": -1.0}},
        ["negative"],
    ),
    "given and returned": ("(map(string, float) d) => (map(string, float) d) {}", {"d": {"c": 0.5}}, []),
}


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("name", MAPS)
def test_maps_are_dicts_of_nodes_that_run_whole(name: str, first: bool) -> None:
    text, feeds, planned = MAPS[name]
    model = parser.parse_model(HEAD + text)
    found = staged(model, feeds, devices=3, first=first)
    assert list(found.outputs) == [value.name for value in model.graph.output]
    for made, wanted in zip(found.outputs.values(), ort(model, feeds), strict=True):
        if isinstance(wanted, np.ndarray):
            np.testing.assert_allclose(made, wanted, rtol=1e-6)
        else:
            assert type(made) is type(wanted) and made == wanted
    (graph,) = [stage.graph for stage in found.stages if stage.graph is not None] or [Graph()]
    assert [node.op for node in graph.nodes.values()] == planned
    if planned:
        with pytest.raises(UnsupportedOp, match="StagedModel plans it in stages"):
            load_onnx(model)


def test_numbers_of_numpy_in_maps_are_those_of_python() -> None:
    text = MAPS["vector of numbers"][0]
    given = {np.int64(2): np.float32(5), np.uint8(3): -1}
    found = staged(parser.parse_model(HEAD + text), {"d": given})
    np.testing.assert_array_equal(found.outputs["y"], [[1, 0, -5]])
    assert found.nbytes_whole == 32


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (X, r"feeds\['d'\] is an array of shape \(2, 3\) .* the input is a map: give a dict of texts to float32$"),
        ({1: 2.0}, r"feeds\['d'\] has the key 1, the input has texts there: convert it$"),
        ({"a": "b"}, r"feeds\['d'\]\['a'\] is 'b', the input has float32 there: convert it$"),
        ({}, r"stage 0 makes 'y' of shape \(3,\), the model declares \(1, n\)"),  # ONNX Runtime takes no empty ones
    ],
)
def test_maps_that_are_not_as_declared_are_refused(given: Any, says: str) -> None:
    text = MAPS["vector of texts"][0]
    with pytest.raises(ValueError, match=says) as refused:
        staged(parser.parse_model(HEAD + text), {"d": given})
    assert "\n" not in str(refused.value) and len(str(refused.value)) < 300


def test_numbers_beyond_a_map_s_dtype_are_refused() -> None:
    text = "(map(int64, float) d) => (float[1,n] y) { y = ai.onnx.ml.CastMap (d) }"
    for key in (2**63, 1.5):
        with pytest.raises(ValueError, match=f"has the key {key}, the input has int64 there: convert it"):
            staged(parser.parse_model(HEAD + text), {"d": {key: 1.0}})


def test_a_sequence_is_given_as_a_list() -> None:
    """An empty one too, whose elements the model declares."""
    model = parser.parse_model(HEAD + "(seq(float[2]) q) => (int64 y) { y = SequenceLength(q) }")
    assert staged(model, {"q": []}).outputs["y"] == 0 and staged(model, {"q": [X[0], X[1]]}).outputs["y"] == 2
    with pytest.raises(ValueError, match="the input is a sequence: give a list of its elements"):
        staged(model, {"q": X})


def test_stages_say_what_is_wrong_with_inputs() -> None:
    model = model_of([make("NonZero", ["x"], ["y"])], {"x": (2, 3)})
    for feeds, says in (
        ({"z": X}, r"StagedModel: the model: feeds names 'z'.*known inputs: 'x'"),
        ({"x": X.T}, r"feeds\['x'\] of shape \(3, 2\) says 3 on axis 0"),
        ({"x": X.astype(np.float64)}, r"feeds\['x'\] has dtype float64, the input has float32"),
        ({}, "is not given"),
    ):
        with pytest.raises(ValueError, match=says):
            staged(model, feeds)
    done = StagedModel(model, {"x": X})
    assert done.stage is None and done.outputs["y"].shape == (2, 3), "nothing was to be planned"
    with pytest.raises(ValueError, match="all stages are done"):
        done.advance({})


@settings(deadline=None, max_examples=15)
@given(
    st.lists(st.sampled_from(["NonZero", "Relu", "Unique", "Hardmax", "Compress"]), min_size=1, max_size=5), st.data()
)
def test_chains_of_any_nodes_run_in_stages(kinds: list[str], data: Any) -> None:
    """Against the reference, which runs all at once; stages never run a node twice."""
    from onnx.reference import ReferenceEvaluator

    nodes, at = [], "x"
    for k, kind in enumerate(kinds):
        out = f"t{k}"
        if kind == "NonZero":
            nodes += [make(kind, [at], [f"i{k}"]), make("Cast", [f"i{k}"], [out], to=TensorProto.FLOAT)]
        elif kind == "Compress":
            nodes += [make("Constant", [], [f"c{k}"], value=numpy_helper.from_array(np.array([True])))]
            nodes += [make(kind, [at, f"c{k}"], [out])]
        else:
            nodes.append(make(kind, [at], [out]))
        at = out
    model = model_of([*nodes, make("Identity", [at], ["y"])], {"x": (2, 3)})
    x = np.array(data.draw(st.lists(st.sampled_from([-1.0, 0.0, 2.0]), min_size=6, max_size=6)), np.float32).reshape(
        2, 3
    )
    (wanted,) = ReferenceEvaluator(model).run(None, {"x": x})
    found = staged(model, {"x": x})
    np.testing.assert_array_equal(found.outputs["y"], wanted)
    assert len(set(found.whole)) == len(found.whole)


def test_a_backend_that_is_not_there_is_told_as_ever() -> None:
    model = StagedModel(model_of([make("Relu", ["x"], ["y"])], {"x": (2, 3)}), {"x": X})
    with pytest.raises((ValueError, BackendUnavailable), match="none"):
        run_stages(model, {}, lambda graph: plan(graph, Mesh(1)), backend="none")


def test_models_are_told_from_other_things() -> None:
    with pytest.raises(TypeError, match=r"model is 5; give an onnx\.ModelProto"):
        ops.encode_model(5)
    case = ONLY_THERE[0]
    with pytest.raises(ValueError, match="does not implement it"):
        ops.check_reference(ops.encode_model(case.model))


def test_a_loop_without_a_condition_begins() -> None:
    """In stages: ONNX's reference would take a condition that is not given for a false one, and make no round."""
    step = [
        helper.make_node("Add", ["acc", "x"], ["acc2"]),
        helper.make_node("ReduceSum", ["acc2"], ["s"], keepdims=0),
        helper.make_node("Constant", [], ["most"], value=numpy_helper.from_array(np.float32(10))),
        helper.make_node("Less", ["s", "most"], ["more"]),
    ]
    floats = partial(helper.make_tensor_value_info, elem_type=TensorProto.FLOAT, shape=[2, 3])
    inner = [helper.make_tensor_value_info("i", TensorProto.INT64, [])]
    inner += [helper.make_tensor_value_info("c", TensorProto.BOOL, []), floats("acc")]
    made = [helper.make_tensor_value_info("more", TensorProto.BOOL, []), floats("acc2")]
    loop = helper.make_node("Loop", ["n", "", "x"], ["y"], body=helper.make_graph(step, "step", inner, made))
    model = model_of([loop], {"x": (2, 3)}, constants={"n": np.array(10)})
    del model.graph.output[:]
    model.graph.output.append(floats("y"))
    x = np.abs(np.random.default_rng(0).normal(size=(2, 3))).astype(np.float32)
    (wanted,) = ort(model, {"x": x})
    assert not np.array_equal(wanted, x)
    found = run_stages(StagedModel(model), {"x": x}, lambda graph: plan(graph, Mesh(2))).outputs["y"]
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


@pytest.mark.parametrize("past", [0, 2])
def test_heads_of_one_direction_see_all_that_is_past(past: int) -> None:
    rng = np.random.default_rng(4)
    feeds = {name: rng.standard_normal((2, 3, 4)).astype(np.float32) for name in "qkv"}
    reads: tuple[str, ...] = ("q", "k", "v")
    if past:
        feeds |= {name: rng.standard_normal((2, 2, past, 2)).astype(np.float32) for name in ("pk", "pv")}
        reads += ("", "", "", "pk", "pv")
    attrs, outputs = {"num_heads": 2, "unidirectional": 1}, ("y", "nk", "nv")[: 3 if past else 1]
    case = NodeCase("MultiHeadAttention", feeds, {}, attrs, outputs, reads=reads, domain="com.microsoft")
    found = run(plan(load_onnx(case.model), Mesh(2)), case.inputs).outputs["y"]
    np.testing.assert_allclose(found, ort(case.model, case.inputs)[0], rtol=1e-4, atol=1e-5)
