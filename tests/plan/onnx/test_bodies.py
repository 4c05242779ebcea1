"""Nodes that other nodes stand in for: functions of ONNX's own, branches and rounds inside them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper, parser
from onnx.reference import ReferenceEvaluator

from tapestry_exec import evaluate, run, run_stages
from tapestry_plan import Mesh, UnsupportedOp, plan
from tapestry_plan.onnx import IMPORTERS, StagedModel, load_onnx, tuning
from tapestry_plan.onnx.replacing.bodies import _Rounds
from tests.node_cases import SLOW_MODULES, as_array, load_cases
from tests.onnx_cases import NodeCase, floats, i64, ints, two
from tests.onnx_models import model_of, ort, random

make = helper.make_node

FUNCTIONS = [
    NodeCase("Swish", {"x": floats(4, 6)}, {}, {"alpha": 0.7}, opset=24),
    NodeCase("Shrink", {"x": floats(4, 6)}, {}, {"lambd": 0.4}, opset=18),
    NodeCase("MeanVarianceNormalization", {"x": floats(2, 3, 4, 5)}, opset=18),
    NodeCase("CenterCropPad", {"x": floats(5, 8)}, {"shape": i64(8, 3)}, opset=18),
    NodeCase("AffineGrid", {"theta": floats(2, 2, 3)}, {"size": i64(2, 3, 4, 5)}, {"align_corners": 1}, opset=20),
    NodeCase(
        "RotaryEmbedding",
        {"x": floats(2, 3, 4, 8), "c": floats(10, 4), "s": floats(10, 4, seed=2), "p": ints(0, 10, 2, 4)},
        opset=23,
    ),
    NodeCase(
        "NegativeLogLikelihoodLoss",
        {"x": floats(3, 5, 4), "t": ints(0, 5, 3, 4), "w": np.abs(floats(5))},
        {},
        {"ignore_index": 2},
        opset=13,
    ),
    two("SoftmaxCrossEntropyLoss", floats(6, 5), ints(0, 5, 6), reduction="none"),
]


@pytest.mark.parametrize("case", FUNCTIONS, ids=str)
@pytest.mark.parametrize("devices", [1, 2])
def test_functions_of_onnx_are_their_bodies(case: NodeCase, devices: int) -> None:
    assert case.op not in IMPORTERS
    graph = load_onnx(case.model)
    cuts = {
        name: {axis.name: 2}
        for name in graph.nodes
        for axis in graph.signature(name).axes[:1]
        if axis.kind == "parallel" and axis.size >= devices > 1
    }
    found = run(plan(graph, Mesh((devices,)), fix=cuts, expand=False), case.inputs).outputs["y"]
    (wanted,) = ReferenceEvaluator(case.model).run(None, {**case.inputs, **case.constants})
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-6)


def test_what_an_importer_refuses_its_body_may_do() -> None:
    """Attention with keys of before, and with outputs beside the first."""
    names = ("q", "k", "v", "pk", "pv")
    shapes = ((1, 2, 3, 4), (1, 2, 3, 4), (1, 2, 3, 4), (1, 2, 5, 4), (1, 2, 5, 4))
    feeds = {name: floats(*shape, seed=k) for k, (name, shape) in enumerate(zip(names, shapes, strict=True))}
    outputs = ("y", "present_key", "present_value")
    case = NodeCase("Attention", feeds, {}, {"is_causal": 1}, outputs, 23, ("q", "k", "v", "", "pk", "pv"))
    found = evaluate(load_onnx(case.model), feeds)
    for name, wanted in zip(outputs, ReferenceEvaluator(case.model).run(None, feeds), strict=True):
        np.testing.assert_allclose(found[name], wanted, rtol=1e-5, atol=1e-6)


def test_names_inside_bodies_are_nobody_else_s() -> None:
    """Two nodes of one name, and tensors called as those inside a body would be."""
    nodes = [
        make("Swish", ["x"], ["twice/y"], name="twice"),
        make("Swish", ["twice/y"], ["twice/X_scaled"], name="twice"),
        make("Add", ["twice/X_scaled", "x"], ["y"]),
    ]
    made = model_of(nodes, {"x": (3,)}, opset=24)
    x = random(3)
    np.testing.assert_allclose(
        evaluate(load_onnx(made), {"x": x})["y"], ReferenceEvaluator(made).run(None, {"x": x})[0], rtol=1e-5
    )


# -- rounds --------------------------------------------------------------------------------------------------


def value(name: str, dtype: int = TensorProto.FLOAT, shape: Any = None) -> Any:
    return helper.make_tensor_value_info(name, dtype, shape)


def loop_model(trips: int | None, stop_at: int = 99, weight: Any = None) -> Any:
    """h = tanh(h · w + x) for so many rounds, h of each round stacked."""
    inner = [
        make("MatMul", ["h", "w"], ["hw"]),
        make("Add", ["hw", "x"], ["sum"]),
        make("Tanh", ["sum"], ["next"]),
        make("Less", ["i", "last"], ["on"]),
    ]
    stored = [numpy_helper.from_array(random(4, 4, seed=3) if weight is None else weight, "w")]
    body = helper.make_graph(
        inner,
        "body",
        [value("i", TensorProto.INT64, ()), value("go", TensorProto.BOOL, ()), value("h")],
        [value("on", TensorProto.BOOL, ()), value("next"), value("sum")],
        stored,
    )
    known = {"last": np.array(stop_at), "true": np.array(True)}
    known |= {} if trips is None else {"trips": np.array(trips)}
    node = make("Loop", ["" if trips is None else "trips", "true", "x"], ["last_h", "all"], "rounds", body=body)
    return model_of([node], {"x": (2, 4)}, ("last_h", "all"), known)


@pytest.mark.parametrize(("trips", "stop_at", "rounds"), [(3, 99, 3), (9, 1, 2), (None, 2, 3)])
def test_loops_are_unrolled(trips: int | None, stop_at: int, rounds: int) -> None:
    made, x = loop_model(trips, stop_at), random(2, 4)
    graph = load_onnx(made)
    assert [node.op for node in graph.nodes.values()].count("tanh") == rounds
    assert sum(tensor.kind == "constant" for tensor in graph.stored.values()) == 1, "the weights are there once"
    for found, wanted in zip(evaluate(graph, {"x": x}).values(), ort(made, {"x": x}), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (
            loop_model(100_000, 10**6),
            "'rounds' .Loop.: its rounds of 4 nodes each, more than 20, stand for more nodes than the 80 that",
        ),
        (loop_model(0), "'rounds' .Loop.: its output 'all' has no cells, since it has no rounds"),
    ],
)
def test_loops_that_are_refused(made: Any, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "MAX_INLINED_NODES", 64)
    with pytest.raises(UnsupportedOp, match=says):
        load_onnx(made)


GOES_ON = {
    "as it was given": "on = Identity (go) on_ = Identity (on) now = Add (n, one)",
    "as it was given, at once": "now = Add (n, one)",
    "always": "on_ = Constant <value = bool {1}> () now = Add (n, one)",
    "by a stored truth": "on_ = Identity (true) now = Add (n, one)",
    "by the number of the round": "on_ = Less (i, last) now = Add (n, one)",
    "by a number that it carries": "now = Add (n, one) t = Mul (now, one) on_ = Less (t, last)",
}
"""How a Loop's body makes its condition, and counts."""


def long_loop(way: str, last: int, *, scans: bool = False) -> Any:
    """A Loop of 100,000 rounds at most, which goes on while some number is below `last`."""
    condition = "go" if way == "as it was given, at once" else "on_"
    text = f"""<ir_version: 10, opset_import: ["" : 21]> agraph (float[3] x) => (float[3] y{", float[k, 3] z" * scans})
        <int64 most = {{100000}}, int64 one = {{1}}, int64 zero = {{0}}, int64 last = {{{last}}}, bool true = {{1}},
        float w = {{0.99}}>
    {{
        m, y{", z" * scans} = Loop (most, true, zero, x) <body = step (int64 i, bool go, int64 n, float[3] h)
            => (bool {condition}, int64 now, float[3] next{", float[3] row" * scans})
            {{ {GOES_ON[way]} next = Mul (h, w) {"row = Neg (next)" * scans} }}>
    }}"""
    return parser.parse_model(text)


@pytest.mark.parametrize("scans", [False, True])
@pytest.mark.parametrize("way", GOES_ON)
def test_loops_that_are_too_long_are_refused_before_a_round_is_added(
    way: str, scans: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_Rounds, "add", lambda *_: pytest.fail("a round is added"))
    with pytest.raises(
        UnsupportedOp, match=r"'Loop_0' .Loop.: its rounds of \d nodes? each, more than [\d,]+, stand for"
    ):
        load_onnx(long_loop(way, 10**6, scans=scans), opaque=False)


@pytest.mark.parametrize("way", ["by the number of the round", "by a number that it carries"])
def test_loops_that_end_soon_are_unrolled_whatever_they_may_have(way: str) -> None:
    made, x = long_loop(way, 4), random(3)
    graph = load_onnx(made, opaque=False)
    assert 4 <= len(graph.nodes) <= 5
    np.testing.assert_allclose(evaluate(graph, {"x": x})["y"], ort(made, {"x": x})[0], rtol=1e-6)


def test_loops_that_are_too_long_run_whole() -> None:
    made, x = long_loop("always", 0, scans=True), random(3)
    made.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.array(3000), "most"))
    staged = run_stages(StagedModel(made, {"x": x}), {}, lambda graph: plan(graph, Mesh(2)))
    for name, wanted in zip(("y", "z"), ort(made, {"x": x}), strict=True):
        np.testing.assert_allclose(staged.outputs[name], wanted, rtol=1e-5)
    assert staged.whole == ("node 'Loop_0' (Loop)",)


def test_loops_that_go_on_by_values_of_a_run_are_refused() -> None:
    inner = [make("Add", ["h", "x"], ["next"]), make("ReduceMax", ["h"], ["top"], keepdims=0)]
    inner.append(make("Less", ["top", "ten"], ["on"]))
    body = helper.make_graph(
        inner,
        "body",
        [value("i", TensorProto.INT64, ()), value("go", TensorProto.BOOL, ()), value("h")],
        [value("on", TensorProto.BOOL, ()), value("next")],
    )
    node = make("Loop", ["trips", "", "x"], ["y"], "rounds", body=body)
    made = model_of([node], {"x": (2, 4)}, constants={"trips": np.array(3), "ten": np.float32(10)})
    with pytest.raises(UnsupportedOp, match="whether it goes on after round 0 is which the model computes from 'x'"):
        load_onnx(made)


@pytest.mark.parametrize("backward", [0, 1])
def test_scans_are_unrolled(backward: int) -> None:
    inner = [make("Mul", ["s", "w"], ["t"]), make("Add", ["t", "a"], ["u"]), make("Identity", ["u"], ["v"])]
    body = helper.make_graph(inner, "body", [value("s"), value("a")], [value("u"), value("v")])
    node = make(
        "Scan",
        ["first", "xs"],
        ["last", "y"],
        num_scan_inputs=1,
        body=body,
        scan_input_axes=[1],
        scan_output_axes=[1],
        scan_input_directions=[backward],
        scan_output_directions=[1 - backward],
    )
    made = model_of([node], {"first": (3,), "xs": (3, 4)}, ("last", "y"), {"w": random(3, seed=4)})
    feeds = {"first": random(3), "xs": random(3, 4, seed=2)}
    found = evaluate(load_onnx(made), feeds)
    for name, wanted in zip(("last", "y"), ort(made, feeds), strict=True):
        np.testing.assert_allclose(found[name], wanted, rtol=1e-5)


def test_cases_of_functions_with_rounds() -> None:
    """Linear attention is a scan over positions, of which ONNX Runtime has nothing yet."""
    cases = [case for case in load_cases(SLOW_MODULES) if case.name in NAMES]
    assert len(cases) == len(NAMES)
    for case in cases:
        graph = load_onnx(case.model)
        ((given, wanted),) = case.data_sets
        feeds = {value.name: as_array(one) for value, one in zip(case.model.graph.input, given, strict=True)}
        for found, one in zip(evaluate(graph, feeds).values(), wanted, strict=True):
            np.testing.assert_allclose(found, as_array(one), rtol=1e-3, atol=1e-6)


NAMES = {"test_linear_attention_gated_delta", "test_flexattention_soft_cap", "test_causal_conv_with_state_basic"}


BATCHED = """<ir_version: 3, opset_import: ["" : 8]> agraph ({lengths} float[4, 2] i, float[4, 3, 2] x)
    => (float[4, 2] y, float[4, 3, 1, 2] z) {{
  y, z = Scan ({name}, i, x) <num_scan_inputs: int = 1, directions: ints = [{back}], body: graph = step
    (float[2] sum, float[2] next) => (float[2] more, float[1, 2] row) {{
      more = Add (sum, next)
      row = Unsqueeze <axes: ints = [0]> (more)
    }}>
}}"""


@pytest.mark.parametrize("back", [0, 1])
@pytest.mark.parametrize("lengths", [False, True])
def test_a_scan_of_opset_8_walks_each_sequence_of_a_batch(back: int, lengths: bool) -> None:
    """Also those that end early: their states stay, and zeros are made behind them."""
    text = BATCHED.format(lengths="int64[4] n," * lengths, name="n" if lengths else '""', back=back)
    model = parser.parse_model(text)
    feeds: dict[str, Any] = {"i": floats(4, 2), "x": floats(4, 3, 2, seed=2)}
    if lengths:
        feeds["n"] = np.array([1, 3, 2, 3])
    found = run(plan(load_onnx(model, opaque=False), Mesh(3)), feeds).outputs
    for name, wanted in zip("yz", ort(model, feeds), strict=True):
        np.testing.assert_allclose(found[name], wanted, rtol=1e-6)
