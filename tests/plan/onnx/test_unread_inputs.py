"""Inputs that a model has and its graph does not need: ONNX Runtime takes them, and so does a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tapestry_exec import evaluate, run
from tapestry_plan import Graph, Mesh, ShardPlan, plan
from tapestry_plan.onnx.models import load_onnx
from tests.exec.cli.test_cli import call, refused
from tests.onnx_models import ort, random


def model() -> Any:
    """It reads x and reshapes by `shape`; nothing reads `like`, whose first axis is as long as x's, or `words`."""
    nodes = [helper.make_node("Relu", ["x"], ["r"]), helper.make_node("Reshape", ["r", "shape"], ["y"], name="fold")]
    inputs = [
        ("x", TensorProto.FLOAT, ("n", 6)),
        ("like", TensorProto.INT32, ("n", "m")),
        ("shape", TensorProto.INT64, (2,)),
        ("words", TensorProto.STRING, (1,)),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(*one) for one in inputs],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=8)


FEEDS: dict[str, Any] = {
    "x": random(4, 6),
    "like": np.zeros((4, 9), np.int32),
    "shape": np.array([3, 8]),
    "words": np.array(["a"], object),
}


def loaded() -> Graph:
    return load_onnx(model(), shapes={"n": 4}, values={"shape": [3, 8]})


@pytest.mark.parametrize(
    ("shapes", "values", "says"),
    [
        ({"like": [4, -2]}, {}, r"shapes\['like'\]\[1\] must be at least 0, not -2"),
        ({"shape": ""}, {}, r"shapes\['shape'\] must be a shape, or one number, not '' of type str"),
        ({"like": {4, 6}}, {}, r"shapes\['like'\] must be a shape, or one number, not \{.*\} of type set"),
        (
            {"like": [4, 3]},
            {"like": np.zeros((4, 9), np.int32)},
            r"shapes\['like'\] is \(4, 3\) and values\['like'\] is of shape \(4, 9\); give one of them, or the same",
        ),
    ],
)
def test_what_is_said_of_inputs_that_are_not_read_fits_too(shapes: Any, values: Any, says: str) -> None:
    with pytest.raises((ValueError, TypeError), match=says):
        load_onnx(model(), shapes={"n": 4, **shapes}, values={"shape": [3, 8], **values})


def test_what_the_graph_does_not_need_may_be_given() -> None:
    (wanted,) = ort(model(), FEEDS)
    graph = loaded()
    np.testing.assert_array_equal(evaluate(graph, FEEDS)["y"], wanted)
    p = plan(graph, Mesh((2,)))
    saved = ShardPlan.from_json(p.to_json())
    assert saved == p and saved.to_json() == p.to_json()
    for one in (p, saved):
        np.testing.assert_array_equal(run(one, FEEDS, verify=True).outputs["y"], wanted)
        np.testing.assert_array_equal(run(one, {"x": FEEDS["x"]}).outputs["y"], wanted)


def test_documents_keep_it_and_those_without_are_as_before() -> None:
    graph = loaded()
    again = Graph.from_json(graph.to_json())
    assert again.unread == graph.unread and again.to_json() == graph.to_json()
    assert graph.unread["like"].shape == (4, None) and graph.unread["words"].dtype is None
    bare = Graph()
    bare.output(bare.input("x", (2,)))
    assert "unread" not in bare.to_dict()


@pytest.mark.parametrize(
    ("name", "array", "says"),
    [
        ("like", np.zeros((5, 9), np.int32), r"'like'.* has shape \(5, 9\); the model has \(4, any\)"),
        ("like", np.zeros(4, np.int32), r"'like'.* has shape \(4,\); the model has \(4, any\)"),
        ("like", np.zeros((4, 9), np.int64), r"'like'.* has dtype int64; the model has int32"),
        ("shape", np.array([8, 3]), "'shape' has another value than load_onnx was given"),
        ("shape", np.array([3, 8, 1]), r"'shape'.* has shape \(3,\); the model has \(2\)"),
        ("unknown", np.zeros(3), "the graph has no input 'unknown'"),
    ],
)
def test_it_is_checked(name: str, array: Any, says: str) -> None:
    graph = loaded()
    feeds = {**FEEDS, name: array}
    with pytest.raises(ValueError, match=says):
        evaluate(graph, feeds)
    with pytest.raises(ValueError, match=says):
        run(plan(graph, Mesh((2,))), feeds)


def test_of_a_weight_that_is_an_input_another_value_is_refused() -> None:
    add = helper.make_node("Add", ["x", "w"], ["y"])
    x, w, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xwy")
    weight = helper.make_tensor("w", TensorProto.FLOAT, [2], [1.0, 2.0])
    made = helper.make_model(helper.make_graph([add], "g", [x, w], [y], [weight]), ir_version=8)
    made.opset_import[0].version = 21
    with pytest.raises(ValueError, match="no input 'w'"):
        evaluate(load_onnx(made), {"x": random(2), "w": random(2)})


def test_the_command_takes_it(tmp_path: Path) -> None:
    onnx.save(model(), tmp_path / "m.onnx")
    np.save(tmp_path / "like.npy", FEEDS["like"])
    given = ("run", tmp_path / "m.onnx", "--mesh", 2, "--shape", "n=4", "--value", "shape=3,8", "--input")
    found = call(*given, f"like={tmp_path / 'like.npy'}")
    assert found.exit_code == 0, found.stderr
    np.save(tmp_path / "like.npy", FEEDS["like"][1:])
    refused(
        call(*given, f"like={tmp_path / 'like.npy'}"),
        "'n' is 4 by shapes['n'] = 4",
        "and 3 by feeds['like']",
    )
