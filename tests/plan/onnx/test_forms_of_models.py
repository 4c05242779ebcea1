"""Models in forms that are rare but right: local functions, nodes in no order, outputs that are only named."""

from __future__ import annotations

import random as chance
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper

from tapestry_exec import evaluate
from tapestry_plan import UnsupportedOp
from tapestry_plan.onnx.models import load_onnx
from tests.onnx_cases import NODES, NodeCase, floats
from tests.onnx_models import difference, model_of, ort, random

# -- local functions ---------------------------------------------------------------------------------------


def with_functions(bodies: dict[str, list[Any]], *calls: str) -> Any:
    """A model that calls functions of one input and one output in turn."""
    names = ["x", *(f"t{k}" for k in range(len(calls) - 1)), "y"]
    nodes = [helper.make_node(f, [a], [b], domain="own") for f, a, b in zip(calls, names, names[1:], strict=False)]
    model = model_of(nodes, {"x": (3, 4)})
    opset = [helper.make_opsetid("", 21), helper.make_opsetid("own", 1)]
    model.opset_import.append(opset[1])
    for name, body in bodies.items():
        model.functions.append(helper.make_function("own", name, ["a"], ["b"], body, opset))
    return model


def test_local_functions_in_a_process_that_imported_nothing_else(tmp_path: Path) -> None:
    bodies = {
        "Twice": [helper.make_node("Add", ["a", "a"], ["b"])],
        "Both": [helper.make_node("Twice", ["a"], ["c"], domain="own"), helper.make_node("Relu", ["c"], ["b"])],
    }
    model = with_functions(bodies, "Both", "Twice")
    onnx.save(model, tmp_path / "m.onnx")
    np.save(tmp_path / "x.npy", random(3, 4))
    program = (
        "import sys, numpy as np\n"
        "from tapestry_exec import evaluate\n"
        "from tapestry_plan.onnx import load_onnx\n"
        "x = np.load(sys.argv[1] + '/x.npy')\n"
        "np.save(sys.argv[1] + '/y.npy', evaluate(load_onnx(sys.argv[1] + '/m.onnx'), {'x': x})['y'])\n"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=True, timeout=60)
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), ort(model, {"x": random(3, 4)})[0])


@pytest.mark.parametrize(
    ("bodies", "says"),
    [
        ({"F": [helper.make_node("F", ["a"], ["b"], domain="own")]}, "own::F calls own::F"),
        (
            {
                "F": [helper.make_node("Relu", ["a"], ["c"]), helper.make_node("G", ["c"], ["b"], domain="own")],
                "G": [helper.make_node("F", ["a"], ["b"], domain="own")],
            },
            "own::[FG] calls own::[FG] calls own::[FG]",
        ),
    ],
)
def test_recursive_functions_are_refused(bodies: Any, says: str) -> None:
    with pytest.raises(ValueError, match=rf"local functions are recursive: {says}; export the model without") as error:
        load_onnx(with_functions(bodies, "F"))
    assert "\n" not in str(error.value)


def test_functions_of_one_name_are_refused() -> None:
    model = with_functions({"F": [helper.make_node("Relu", ["a"], ["b"])]}, "F")
    model.functions.append(model.functions[0])
    with pytest.raises(ValueError, match=r"local functions cannot be put in place: .*own::F"):
        load_onnx(model)


def test_functions_that_stand_for_too_many_nodes_are_refused_before_they_are_put_in_place() -> None:
    relu = [helper.make_node("Relu", ["a"], ["b"])]

    def doubled(depth: int) -> Any:
        bodies = {
            f"F{k}": [helper.make_node(f"F{k + 1}", [a], [b], domain="own") for a, b in ("ac", "cb")]
            for k in range(depth)
        }
        return with_functions({**bodies, f"F{depth}": relu}, "F0")

    assert len(load_onnx(doubled(5)).nodes) == 2**5
    with pytest.raises(ValueError, match=rf"stand for {2**60:,} nodes, its 122 nodes may stand for"):
        load_onnx(doubled(60))


# -- order -------------------------------------------------------------------------------------------------


@given(st.integers(0, 10**6), st.sampled_from([12, 21]))
def test_nodes_in_no_order_are_sorted(seed: int, opset: int) -> None:
    rng = chance.Random(seed)
    names, nodes = ["x"], []
    for k in range(rng.randrange(1, 9)):
        name = f"t{k}"
        nodes.append(helper.make_node("Add", [rng.choice(names), rng.choice(names)], [name], name=f"n{k}"))
        names.append(name)
    nodes.append(helper.make_node("Relu", [names[-1]], ["y"]))
    wanted = ort(model_of(nodes, {"x": (2,)}, opset=opset), {"x": random(2)})[0]
    rng.shuffle(nodes)
    graph = load_onnx(model_of(nodes, {"x": (2,)}, opset=opset))
    np.testing.assert_array_equal(evaluate(graph, {"x": random(2)})["y"], wanted)


def test_a_long_chain_backwards_is_sorted() -> None:
    nodes = [helper.make_node("Identity", [f"t{k}"], [f"t{k + 1}"]) for k in range(5000)]
    nodes.append(helper.make_node("Relu", ["t5000"], ["y"]))
    graph = load_onnx(model_of(nodes[::-1], {"t0": (2,)}))
    assert [node.op for node in graph.nodes.values()] == ["relu"]


def test_an_order_that_is_right_stays() -> None:
    nodes = [helper.make_node("Relu", ["x"], [name], name=name) for name in "cab"]
    nodes.append(helper.make_node("Sum", ["a", "b", "c"], ["y"], name="sum"))
    assert list(load_onnx(model_of(nodes, {"x": (2,)})).nodes) == ["c", "a", "b", "sum"]


@pytest.mark.parametrize("length", [1, 2, 3, 40])
def test_a_cycle_is_named(length: int) -> None:
    nodes = [helper.make_node("Add", ["x", f"t{k}"], [f"t{(k - 1) % length}"], name=f"n{k}") for k in range(length)] + [
        helper.make_node("Relu", ["t0"], ["y"], name="last")
    ]
    with pytest.raises(ValueError, match="the model has a cycle: node 'n") as error:
        load_onnx(model_of(nodes, {"x": (2,)}))
    text = str(error.value)
    assert "'last'" not in text and len(text) < 400
    assert text.count("(Add)") == min(length, 8)


# -- outputs that nobody reads -----------------------------------------------------------------------------


X = floats(2, 3, 4)
VECTORS = {"s": floats(4, seed=2), "b": floats(4, seed=3)}
NAMED = [
    NodeCase("LayerNormalization", {"x": X}, VECTORS, outputs=("y", "mean", "inverse")),
    NodeCase("MaxPool", {"x": X}, {}, {"kernel_shape": [2]}, outputs=("y", "where")),
    NodeCase("Dropout", {"x": X}, {}, outputs=("y", "mask")),
    NodeCase("TopK", {"x": X}, {"k": np.array([2])}, outputs=("y", "where")),
]


@pytest.mark.parametrize("node", NAMED, ids=str)
def test_outputs_that_are_only_named_are_not_asked_for(node: NodeCase) -> None:
    model = node.model
    del model.graph.output[1:]
    graph = load_onnx(model)
    assert difference(evaluate(graph, node.inputs)["y"], ort(model, node.inputs)[0]) < 1e-5


def test_of_an_output_that_is_read_and_not_made_the_name_is_said() -> None:
    (case,) = [case for case in NODES if case.op == "SkipSimplifiedLayerNormalization"]
    model = replace(case, outputs=("y", "mean")).model
    for outputs in (["mean"], ["y", "mean"]):
        with pytest.raises(UnsupportedOp, match="its outputs 1 and 2, mean and deviation, are not made"):
            load_onnx(model, outputs=outputs, opaque=False)
    assert load_onnx(model, outputs=["y"]).outputs == {"y": "y"}


@pytest.mark.parametrize("axis", [-1, 1, 0, -2])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_mean_and_deviation_of_layer_normalization(axis: int, dtype: Any) -> None:
    x = floats(2, 3, 4, dtype=dtype)
    scale = floats(*x.shape[axis:], seed=2, dtype=dtype)
    attrs = {"axis": axis, "epsilon": 1e-2}
    node = NodeCase("LayerNormalization", {"x": x}, {"s": scale}, attrs, ("y", "mean", "inverse"))
    found = evaluate(load_onnx(node.model), node.inputs)
    for actual, wanted in zip(found.values(), ort(node.model, node.inputs), strict=True):
        assert difference(actual, wanted) < (1e-5 if dtype == np.float32 else 2e-3)
    only = load_onnx(node.model, outputs=["mean"])
    assert evaluate(only, node.inputs)["mean"].dtype == np.float32


# -- scales ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [np.inf, -np.inf, np.nan, 0.0, -2.0])
def test_scales_without_an_end(scale: float) -> None:
    scales = np.array([1, 1, scale], np.float32)
    node = NodeCase("Resize", {"x": X}, {"scales": scales}, reads=("x", "", "scales"))
    with pytest.raises(ValueError, match=r"node 'Resize_0' \(Resize\): resize: scales is .* must be a finite number"):
        load_onnx(node.model)
