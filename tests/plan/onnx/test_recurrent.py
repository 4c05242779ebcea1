"""Recurrent layers: split by direction and batch, with sequences that end early, as ONNX Runtime has them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from tapestry_exec import StepFailed, evaluate, run
from tapestry_plan import Graph, Mesh, UnsupportedOp, ops, plan, same_graph
from tapestry_plan.onnx import load_onnx, to_onnx
from tests.onnx_cases import NODES, NodeCase, floats
from tests.onnx_models import difference, ort

LAYERS = [case for case in NODES if case.op in ("LSTM", "GRU", "RNN")]


@pytest.mark.parametrize("case", LAYERS, ids=str)
def test_layers_are_split_by_direction_and_batch(case: NodeCase) -> None:
    """The numbers of steps are read in the run too, where they are constants of the model."""
    feeds = {**case.inputs, **case.constants}
    model = NodeCase(case.op, feeds, {}, case.attrs, case.outputs, reads=case.reads or tuple(feeds)).model
    graph, wanted = load_onnx(model), ort(model, feeds)
    (name,) = [node.name for node in graph.nodes.values() if node.op == "recurrence"]
    for axis in graph.signature(name).axes:
        fix = {name: {axis.name: min(2, axis.size)}}
        found = run(plan(graph, Mesh((2,)), fix=fix, expand=False), feeds).outputs
        for key, one in zip(case.outputs, wanted, strict=True):
            assert difference(found[key], one) < 1e-5


def test_batches_may_come_first() -> None:
    """ONNX Runtime has no layout 1: the axes are moved outside."""
    shapes = {"x": (5, 3, 4), "w": (2, 18, 4), "r": (2, 18, 6), "b": (2, 36), "h": (2, 3, 6)}
    feeds = {name: floats(*shape, seed=k) for k, (name, shape) in enumerate(shapes.items())}
    attrs = {"hidden_size": 6, "direction": "bidirectional"}
    reads = ("x", "w", "r", "b", "", "h")
    y, y_h = ort(NodeCase("GRU", feeds, {}, attrs, ("y", "y_h"), reads=reads).model, feeds)
    moved = {**feeds, "x": feeds["x"].swapaxes(0, 1), "h": feeds["h"].swapaxes(0, 1)}
    model = NodeCase("GRU", moved, {}, {**attrs, "layout": 1}, ("y", "y_h"), reads=reads).model
    found = run(plan(load_onnx(model), Mesh((2,))), moved).outputs
    assert difference(found["y"], y.transpose(2, 0, 1, 3)) < 1e-5
    assert difference(found["y_h"], y_h.transpose(1, 0, 2)) < 1e-5


def test_what_is_declared_of_an_output_that_nobody_reads_is_compared() -> None:
    feeds = {"x": floats(5, 3, 4), "w": floats(1, 24, 4, seed=1), "r": floats(1, 24, 6, seed=2)}
    model = NodeCase("LSTM", feeds, {}, {"hidden_size": 6}, ("y", "y_h")).model
    unread = next(value for value in model.graph.output if value.name == "y")
    model.graph.output.remove(unread)
    model.graph.value_info.append(helper.make_tensor_value_info("y", TensorProto.FLOAT, [5, 1, 3, 6]))
    (wanted,) = ort(model, feeds)
    assert difference(run(plan(load_onnx(model), Mesh((2,))), feeds).outputs["y_h"], wanted) < 1e-5
    model.graph.value_info[0].type.tensor_type.shape.dim[3].dim_value = 7
    with pytest.raises(ValueError, match=r"tensor 'y' comes out with shape \(5, 1, 3, 6\), the model declares"):
        load_onnx(model)


def layer(**attrs: Any) -> Any:
    shapes = {"x": (2, 3, 4), "w": (2, 6, 4), "r": (2, 6, 6)}
    feeds = {name: floats(*shape) for name, shape in shapes.items()}
    return NodeCase("RNN", feeds, {}, {"hidden_size": 6, "direction": "bidirectional", **attrs}).model


@pytest.mark.parametrize(
    ("attrs", "says"),
    [
        (
            {"direction": "forward"},
            r"R has shape \(2, 6, 6\); 1 direction of 1 × hidden_size rows and hidden_size columns needed",
        ),
        ({"direction": "sideways"}, "direction is 'sideways'; known are"),
        ({"hidden_size": 5}, r"R has shape \(2, 6, 6\)"),
        ({"clip": -1.0}, "clip is -1.0; give a number above 0"),
        ({"activations": ["Tanh"]}, "rnn takes 1 for each direction"),
        ({"activations": ["Wave", "Wave"]}, r"activations is \('wave',\); rnn takes 1 of"),
    ],
)
def test_layers_that_are_refused(attrs: dict[str, Any], says: str) -> None:
    with pytest.raises((ValueError, UnsupportedOp), match=says):
        load_onnx(layer(**attrs))


ACTIVATIONS = {
    "LSTM": ["Sigmoid", "Tanh", "Tanh", "HardSigmoid", "Softsign", "Elu"],
    "GRU": ["Sigmoid", "Tanh", "HardSigmoid", "LeakyRelu"],
    "RNN": ["Tanh", "Relu"],
}


@pytest.mark.heavy(4)
@pytest.mark.parametrize("op", ACTIVATIONS)
@pytest.mark.parametrize("ends", [False, True])
def test_each_direction_may_have_activations_of_its_own(op: str, ends: bool) -> None:
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[op]
    shapes = {"x": (5, 2, 4), "w": (2, gates * 3, 4), "r": (2, gates * 3, 3), "b": (2, gates * 6)}
    feeds: dict[str, Any] = {name: floats(*shape, seed=k) for k, (name, shape) in enumerate(shapes.items())}
    if ends:
        feeds["n"] = np.array([5, 3], np.int32)
    attrs = {"hidden_size": 3, "direction": "bidirectional", "activations": ACTIVATIONS[op]}
    case = NodeCase(op, feeds, {}, attrs, ("y", "y_h"))
    graph = load_onnx(case.model, opaque=False)
    assert sum(node.op == "recurrence" for node in graph.nodes.values()) == 2
    found = run(plan(graph, Mesh((3,))), feeds).outputs
    for name, wanted in zip(("y", "y_h"), ort(case.model, feeds), strict=True):
        assert difference(found[name], wanted) < 1e-5


def test_a_sequence_without_steps_keeps_its_first_state() -> None:
    shapes = {"x": (3, 2, 4), "w": (1, 6, 4), "r": (1, 6, 6), "h": (1, 2, 6)}
    feeds = {name: floats(*shape, seed=k) for k, (name, shape) in enumerate(shapes.items())}
    feeds["n"] = np.array([0, 3], np.int32)
    case = NodeCase("RNN", feeds, {}, {"hidden_size": 6}, ("y", "y_h"), reads=("x", "w", "r", "", "n", "h"))
    found = run(plan(load_onnx(case.model), Mesh((2,))), feeds).outputs
    assert not found["y"][:, 0, 0].any() and difference(found["y_h"][:, 1], found["y"][2, :, 1]) == 0
    np.testing.assert_array_equal(found["y_h"][0, 0], feeds["h"][0, 0])


# -- the way back ----------------------------------------------------------------------------------------

WAYS = [
    (op, direction, ends, more)
    for op, kinds in {"RNN": ({},), "GRU": ({}, {"linear_before_reset": 1}), "LSTM": ({}, {"input_forget": 1})}.items()
    for direction in ("forward", "reverse", "bidirectional")
    for ends in (False, True)
    for more in kinds
]


@pytest.mark.parametrize(("op", "direction", "ends", "more"), WAYS[::4] + [WAYS[-1]])
def test_layers_come_back_the_same_and_run_in_onnx_runtime(
    op: str, direction: str, ends: bool, more: dict[str, Any]
) -> None:
    gates, d = {"LSTM": 4, "GRU": 3, "RNN": 1}[op], 1 + (direction == "bidirectional")
    shapes = {"x": (5, 2, 4), "w": (d, gates * 3, 4), "r": (d, gates * 3, 3), "b": (d, gates * 6), "h": (d, 2, 3)}
    if op == "LSTM":
        shapes |= {"c": (d, 2, 3), "p": (d, 9)}
    feeds: dict[str, Any] = {name: floats(*shape, seed=k) for k, (name, shape) in enumerate(shapes.items())}
    if ends:
        feeds["n"] = np.array([5, 3], np.int32)
    reads = ("x", "w", "r", "b", "n" if ends else "", "h", *(("c", "p") if op == "LSTM" else ()))
    attrs = {"hidden_size": 3, "direction": direction, "clip": 0.9, **more}
    outputs = ("y", "y_h", "y_c")[: 3 if op == "LSTM" else 2]
    model = NodeCase(op, feeds, {}, attrs, outputs, reads=reads).model
    graph = load_onnx(model, opaque=False)
    written = to_onnx(graph)
    assert same_graph(load_onnx(written), graph)
    for found, wanted in zip(ort(written, feeds), ort(model, feeds), strict=True):
        assert difference(found, wanted) < 1e-5


@pytest.mark.parametrize("names", [("affine", "elu"), ("hardsigmoid", "leakyrelu"), ("scaledtanh", "thresholdedrelu")])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_every_activation_is_written(names: tuple[str, str], dtype: str) -> None:
    """Of float64 with all of its digits, which attributes of ONNX have not; and in three directions."""
    g, wide = Graph(), {"activations": names, "alphas": (0.3, 0.7), "betas": (0.1, 0.4)}
    x, r, h = g.input("x", (3, 3, 2, 6), dtype), g.input("r", (3, 6, 2), dtype), g.input("h", (3, 2, 2), dtype)
    g.output(ops.recurrence(x, r, h, kind="gru", **wide), "y")
    feeds = {n: floats(*s.shape, seed=k).astype(dtype) for k, (n, s) in enumerate(g.stored.items()) if n in "xrh"}
    written = to_onnx(g)
    assert same_graph(load_onnx(written), g)
    bound = {"float16": 2e-3, "float32": 1e-6, "float64": 1e-12}[dtype]
    assert difference(ort(written, feeds)[0], evaluate(g, feeds)["y"]) < bound


def test_a_function_that_is_another_one_is_read_as_what_it_does() -> None:
    """Its declaration says one thing, its nodes another: the nodes count."""
    g = Graph()
    x, r, h = g.input("x", (2, 1, 1, 3)), g.input("r", (1, 3, 3)), g.input("h", (1, 1, 3))
    g.output(ops.recurrence(x, r, h, kind="rnn"), "y")
    written = to_onnx(g)
    (scan,) = (node for node in written.functions[0].node if node.op_type == "Scan")
    (curve,) = (node for node in scan.attribute[0].g.node if node.op_type == "Tanh")
    curve.op_type = "Sigmoid"
    feeds = {"x": floats(2, 1, 1, 3), "r": floats(1, 3, 3, seed=1), "h": floats(1, 1, 3, seed=2)}
    graph = load_onnx(written)
    assert "recurrence" not in {node.op for node in graph.nodes.values()}
    assert difference(evaluate(graph, feeds)["y"], ort(written, feeds)[0]) < 1e-6
    written.functions[0].doc_string = "no declaration"
    assert difference(evaluate(load_onnx(written), feeds)["y"], ort(written, feeds)[0]) < 1e-6


# -- lengths that no sequence has ----------------------------------------------------------------------------

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1, "ReverseSequence": 0}
"""Operators that take numbers of steps, and how many gates they have."""


def with_lengths(op: str, lengths: list[int], known: str) -> tuple[Any, dict[str, Any]]:
    """A model of three steps of two sequences, and what it is given; operands that are `known` are constants of it."""
    gates = GATES[op]
    feeds = {"x": floats(3, 2, 4), "n": np.array(lengths, np.int32 if gates else np.int64)}
    if gates:
        feeds |= {"w": floats(1, 2 * gates, 4, seed=1), "r": floats(1, 2 * gates, 2, seed=2)}
    constants = {name: feeds.pop(name) for name in known}
    reads, attrs = (("x", "w", "r", "", "n"), {"hidden_size": 2}) if gates else (("x", "n"), {})
    return NodeCase(op, feeds, constants, attrs, ("y",), reads=reads).model, feeds


@pytest.mark.parametrize("op", GATES)
@pytest.mark.parametrize(("lengths", "index"), [([9, -1], 9), ([2, 5], 5), ([-1, 2], -1), ([0, 4], 4)])
def test_lengths_that_no_sequence_has_are_refused(op: str, lengths: list[int], index: int) -> None:
    """At import where they are known, in the run where they are not, and by ONNX Runtime both ways."""
    says = f"sequence_lens is {lengths}; a sequence has from 0 to 3 steps"
    for known in ("n", "xn" if op == "ReverseSequence" else "xwrn"):
        model, feeds = with_lengths(op, lengths, known)
        with pytest.raises(ValueError) as refused:
            load_onnx(model)
        assert says in str(refused.value) and f"({op})" in str(refused.value)
        with pytest.raises(Exception, match=r"Invalid (value/s in sequence_lens|sequence length)"):
            ort(model, feeds)
    model, feeds = with_lengths(op, lengths, "")
    graph = load_onnx(model)
    for devices in (1, 2):
        with pytest.raises(StepFailed, match=rf"sequence_lens'.*an index is outside 0 … 3, .*{index}"):
            run(plan(graph, Mesh(devices)), feeds)
    with pytest.raises(Exception, match=r"Invalid (value/s in sequence_lens|sequence length)"):
        ort(model, feeds)
    with pytest.raises(Exception, match="indices element out of data bounds"):  # so does what is written of the graph
        ort(to_onnx(graph), feeds)


@pytest.mark.parametrize("op", GATES)
@pytest.mark.parametrize("lengths", [[0, 2], [3, 3], [1, 3]])
def test_lengths_from_none_to_all_steps_are_taken(op: str, lengths: list[int]) -> None:
    for known in ("n", ""):
        model, feeds = with_lengths(op, lengths, known)
        (wanted,) = ort(model, feeds)
        graph = load_onnx(model)
        for backend in ("numpy", "onnxruntime"):
            assert difference(run(plan(graph, Mesh(2)), feeds, backend=backend).outputs["y"], wanted) < 1e-5
        assert difference(ort(to_onnx(graph), feeds)[0], wanted) < 1e-5
        assert known or same_graph(load_onnx(to_onnx(graph)), graph)  # what follows from known ones is folded there


@pytest.mark.parametrize("axis", [0, 1, -1, -2])
def test_gathers_without_negative_indices_go_through_onnx(axis: int) -> None:
    """Of any rank of indices, also none; what is below 0 ends a run, also ONNX Runtime's, and known ones the graph."""
    for shape in ((), (2,), (2, 2)):
        g = Graph()
        x = g.input("x", (3, 4))
        g.output(ops.take(x, g.input("i", shape, "int64"), axis, from_end=False), "y")
        feeds = {"x": floats(3, 4), "i": np.full(shape, 2)}
        wanted = np.take(feeds["x"], feeds["i"], axis)
        again = load_onnx(to_onnx(g))
        assert same_graph(again, g)
        for found in (evaluate(g, feeds)["y"], evaluate(again, feeds)["y"], ort(to_onnx(g), feeds)[0]):
            np.testing.assert_array_equal(found, wanted)
        feeds["i"] = np.full(shape, -1)
        with pytest.raises(IndexError, match="an index is outside 0 … "):
            evaluate(g, feeds)
        with pytest.raises(Exception, match="out of data bounds"):
            ort(to_onnx(g), feeds)
    with pytest.raises(IndexError, match="some below 0; give indices from 0, or from_end=True"):
        ops.take(x, [0, -1], axis, from_end=False)
