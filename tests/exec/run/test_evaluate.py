"""The unsharded run against NumPy, and the comparison of results."""

from __future__ import annotations

import dataclasses
import gc
import hashlib
import weakref
from copy import copy
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tapestry_exec import CupyBackend, NumpyBackend, difference, evaluate, run
from tapestry_exec.run.evaluate import bind
from tapestry_exec.simulated import namespace as simulated
from tapestry_plan import Axis, Graph, Mesh, Op, Operand, Signature, Tensor, load_onnx, ops, plan, project
from tapestry_plan.ir import tuning
from tapestry_plan.ops import relu
from tapestry_sets.limits import put_item


def model() -> tuple[Graph, dict[str, np.ndarray], np.ndarray]:
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((4, 6)).astype(np.float32), rng.standard_normal((6, 5)).astype(np.float32)
    g = Graph()
    a = g.input("x", (4, 6))
    h = g.op("relu", a @ g.constant("w", w))
    g.output(h.T.reshape(4, 5)[::-1], "y")
    g.output(h, "h")
    return g, {"x": x}, np.maximum(x @ w, 0)


def test_views_and_operators_agree_with_numpy() -> None:
    g, inputs, h = model()
    out = evaluate(g, inputs)
    np.testing.assert_allclose(out["h"], h, rtol=1e-6)
    np.testing.assert_array_equal(out["y"], out["h"].T.reshape(4, 5)[::-1])


def test_any_tensor_can_be_asked_for() -> None:
    g, inputs, h = model()
    (product,) = [node.outputs[0] for node in g.nodes.values() if node.op == "matmul"]
    out = evaluate(g, inputs, outputs=[product, "x"])
    assert set(out) == {product, "x"}
    np.testing.assert_allclose(np.maximum(out[product], 0), h, rtol=1e-6)
    np.testing.assert_array_equal(out["x"], inputs["x"])
    with pytest.raises(ValueError, match="no tensor 'nothing'"):
        evaluate(g, inputs, outputs=["nothing"])


def test_outputs_are_the_callers_own() -> None:
    g, inputs, _ = model()
    g.output(g.tensor("x"), "same")
    out = evaluate(g, inputs)
    out["same"][...] = 0
    assert inputs["x"].any()


def window(xp, inputs, outputs, shard):  # type: ignore[no-untyped-def]
    outputs[0][...] = inputs[0][:-2] + inputs[0][1:-1] + inputs[0][2:]


def padded_signature(shapes, attrs):  # type: ignore[no-untyped-def]
    axes = (Axis("i", shapes[0][0]),)
    return Signature(
        axes, (Operand(project(axes, [{"i": 1, "": -1}], (3,)), pad=10.0),), (Operand(project(axes, [{"i": 1}])),)
    )


def test_padding_reaches_the_block() -> None:
    g = Graph()
    g.output(g.op(Op("window3", padded_signature, window), g.input("x", (4,))), "y")
    out = evaluate(g, {"x": np.arange(4, dtype=np.float32)})
    assert out["y"].tolist() == [11.0, 3.0, 6.0, 15.0]


def test_intermediate_results_are_released() -> None:
    """A chain of 50 tensors of 8 MB stays far below 400 MB."""
    import tracemalloc

    g = Graph()
    x = g.input("x", (2_000_000,))
    for _ in range(50):
        x = g.op("relu", x)
    g.output(x, "y")
    value = np.ones(2_000_000, np.float32)
    tracemalloc.start()
    evaluate(g, {"x": value})
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 60e6


# -- inputs and constants --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({}, "'x' is missing; give an array of float32, shape \\(4, 6\\)"),
        ({"x": np.ones((4, 6), np.float32), "z": 1}, "no input 'z'; known inputs: 'x'"),
        ({"x": np.ones((6, 4), np.float32)}, "input 'x' has shape \\(6, 4\\); shape \\(4, 6\\) is needed"),
        ({"x": np.ones((4, 6))}, "input 'x' has dtype float64; float32 is needed"),
        ({"x": [[1.0] * 6] * 4}, "input 'x' has dtype float64; float32 is needed"),
    ],
)
def test_unfit_inputs_are_named(inputs: dict[str, object], message: str) -> None:
    g, _, _ = model()
    with pytest.raises(ValueError, match=message):
        evaluate(g, inputs)


def test_inputs_need_not_be_contiguous() -> None:
    g, inputs, h = model()
    out = evaluate(g, {"x": np.asfortranarray(inputs["x"])})
    np.testing.assert_allclose(out["h"], h, rtol=1e-6)


def stripped() -> tuple[Graph, np.ndarray]:
    """A graph as a document makes it: constants by name, shape, dtype and SHA-256 only."""
    g, _, _ = model()
    return Graph.from_json(g.to_json()), g.stored["w"].data


def test_constants_that_a_document_names_are_given() -> None:
    _, inputs, h = model()
    bare, w = stripped()
    np.testing.assert_allclose(evaluate(bare, inputs, {"w": w})["h"], h, rtol=1e-6)


@pytest.mark.parametrize(
    ("constants", "message"),
    [
        ({}, "constant 'w' is named but not carried"),
        ({"w": np.ones((6, 5), np.float32)}, "constant 'w' has other values than the plan was made for"),
        ({"w": np.ones((5, 6), np.float32)}, "constant 'w' has shape"),
        ({"w": np.ones((6, 5))}, "constant 'w' has dtype float64"),
        ({"v": np.ones(1)}, "no constant 'v'"),
    ],
)
def test_unfit_constants_are_named(
    constants: dict[str, np.ndarray], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuning, "CARRIED_NBYTES", 0)  # as for larger weights
    _, inputs, _ = model()
    with pytest.raises(ValueError, match=message):
        evaluate(stripped()[0], inputs, constants)


def test_constants_come_from_their_files(tmp_path: Path) -> None:
    w = np.arange(30, dtype=np.float32).reshape(6, 5)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 6])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, 5])
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])], "g", [x], [y], [numpy_helper.from_array(w, "w")]
    )
    file = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)]), file)
    bare = Graph.from_json(load_onnx(file).to_json())
    value = np.ones((4, 6), np.float32)
    np.testing.assert_allclose(evaluate(bare, {"x": value})["y"], value @ w, rtol=1e-6)
    file.unlink()
    with pytest.raises(ValueError, match=r"constant 'w': its file .* does not exist"):
        evaluate(bare, {"x": value})


def test_a_constant_from_an_array_file(tmp_path: Path) -> None:
    g, inputs, _ = model()
    w = g.stored["w"].data
    assert w is not None
    np.save(tmp_path / "w.npy", w)
    digest = hashlib.sha256(w.tobytes()).hexdigest()
    named = dataclasses.replace(g.stored["w"], data=None, path=str(tmp_path / "w.npy"), sha256=digest)
    put_item(g.stored, "w", named)
    np.testing.assert_array_equal(bind(g, inputs)["w"], w)


# -- comparison ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("found", "reference", "expected"),
    [
        (np.array([1.0, 2.0]), np.array([1.0, 2.0]), 0.0),
        (np.array([1.0, 3.0]), np.array([1.0, 4.0]), 0.25),
        (np.array([0.0]), np.array([0.0]), 0.0),
        (np.array([1e-9]), np.array([0.0]), np.inf),
        (np.array([np.nan, 1.0]), np.array([np.nan, 1.0]), 0.0),
        (np.array([np.nan, 1.0]), np.array([1.0, 1.0]), np.inf),
        (np.array([1.0, 1.0]), np.array([np.nan, 1.0]), np.inf),
        (np.array([np.inf]), np.array([np.inf]), 0.0),
        (np.array([np.inf]), np.array([-np.inf]), np.inf),
        (np.array([1, 2]), np.array([1, 2]), 0.0),
        (np.array([True]), np.array([False]), np.inf),
        (np.ones(2), np.ones(3), np.inf),
        (np.ones(2, np.float32), np.ones(2), np.inf),
        (np.ones(0), np.ones(0), 0.0),
        (np.array([3 + 4j]), np.array([0 + 5j]), np.abs(3 - 1j) / 5),
    ],
)
def test_difference(found: np.ndarray, reference: np.ndarray, expected: float) -> None:
    assert difference(found, reference) == pytest.approx(expected)


def test_arguments_of_wrong_types_are_named() -> None:
    g = Graph()
    g.output(g.input("x", (2,)), "y")
    with pytest.raises(TypeError, match=r"evaluate: graph must be a Graph, not {} of type dict"):
        evaluate({}, {"x": np.ones(2, np.float32)})  # type: ignore[arg-type]
    with pytest.raises(
        TypeError, match=r"inputs must be a mapping from strings, not .* of type list; it maps names to arrays"
    ):
        evaluate(g, [np.ones(2, np.float32)])  # type: ignore[arg-type]


def test_arrays_in_a_devices_memory_are_refused_before_anything_runs() -> None:
    g = Graph()
    g.output(relu(g.input("x", (2, 3))), "y")
    there = simulated.cupy(1).zeros((2, 3), np.float32)
    message = r"input 'x' is a tapestry_exec\..*DeviceArray that is not in host memory .*cupy\.asnumpy"
    for backend in (NumpyBackend(), CupyBackend(cupy=simulated.cupy(1))):
        with pytest.raises(TypeError, match=message):
            run(plan(g, Mesh(1)), {"x": there}, backend=backend)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_verified_inputs_must_be_finite(value: float) -> None:
    g = Graph()
    mask = g.constant("mask", np.full((2, 3), -np.inf, np.float32))
    g.output(g.op("maximum", g.input("x", (2, 3)), mask), "y")
    p, x = plan(g, Mesh(1)), np.zeros((2, 3), np.float32)
    assert run(p, {"x": x}, verify=True).difference == {"y": 0.0}
    x[1, 2] = x[0, 1] = value
    steps: list[int] = []
    message = rf"input 'x' has 2 values that are not finite, the first is {value} at \(0, 1\)"
    with pytest.raises(ValueError, match=message):
        run(p, {"x": x}, verify=True, progress=lambda done, total, name: steps.append(done))
    assert not steps
    run(p, {"x": x})


def test_what_is_kept_of_a_graph_goes_with_its_nodes() -> None:
    """A graph is evaluated between its changes, beside a copy with other nodes of the same names."""
    g = Graph()
    x = g.input("x", (4, 6))
    made = ops.softmax(x, axis=-1, name="last")
    other = copy(g)
    feeds = {"x": np.random.default_rng(0).random((4, 6)).astype(np.float32)}

    def softmax(axis: int) -> np.ndarray:
        return np.exp(feeds["x"]) / np.exp(feeds["x"]).sum(axis, keepdims=True)

    for _ in range(2):
        np.testing.assert_allclose(evaluate(g, feeds, outputs=[made.name])[made.name], softmax(-1), rtol=1e-6)
    other._remove(other.nodes["last"])
    again = ops.softmax(Tensor(other, "x"), axis=0, name="last")
    for _ in range(2):
        np.testing.assert_allclose(evaluate(other, feeds, outputs=[again.name])[again.name], softmax(0), rtol=1e-6)
        np.testing.assert_allclose(evaluate(g, feeds, outputs=[made.name])[made.name], softmax(-1), rtol=1e-6)
    twice = ops.add(made, made, name="twice")
    found = evaluate(g, feeds, outputs=[twice.name, made.name])
    np.testing.assert_array_equal(found[twice.name], found[made.name] * 2)


def test_a_graph_that_nobody_holds_is_not_kept() -> None:
    g = Graph()
    g.output(ops.relu(g.input("x", (3,))), "y")
    evaluate(g, {"x": np.ones(3, np.float32)})
    seen = weakref.ref(g)
    del g
    gc.collect()
    assert seen() is None
