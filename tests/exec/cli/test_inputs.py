"""What the command line says of inputs: sizes by symbol, and values that are known in advance."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tapestry_exec.cli.planning import parse_shapes, parse_values
from tests.exec.cli.test_cli import call, network, refused
from tests.onnx_models import ort, random


def reshaping() -> Any:
    """A network that reshapes by an input, and clips by another one."""
    nodes = [
        helper.make_node("Reshape", ["x", "shape"], ["r"], "fold"),
        helper.make_node("Clip", ["r", "low"], ["y"], "cut"),
    ]
    inputs = [("x", TensorProto.FLOAT, ("n", 6)), ("shape", TensorProto.INT64, (2,)), ("low", TensorProto.FLOAT, ())]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(*one) for one in inputs],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=8)


def test_a_size_is_given_by_symbol(tmp_path: Path) -> None:
    onnx.save(network("N"), tmp_path / "m.onnx")
    result = call("run", tmp_path / "m.onnx", "--mesh", "2", "--shape", "N=3", "--verify")
    assert result.exit_code == 0, result.stderr
    assert "float32[3, 4, 8, 8]" in result.stdout
    refused(call("plan", tmp_path / "m.onnx", "--shape", "M=3"), "'M'", "known symbols of open axes: 'N'")
    refused(call("plan", tmp_path / "m.onnx", "--shape", "N=3", "--shape", "x=1,3,8,8"), "'N' is 3", "and 1 by")


def test_values_are_given(tmp_path: Path) -> None:
    onnx.save(reshaping(), tmp_path / "m.onnx")
    feeds = {"x": random(4, 6), "shape": np.array([3, -1]), "low": np.array(0.5, np.float32)}
    np.save(tmp_path / "x.npy", feeds["x"])
    np.save(tmp_path / "shape.npy", feeds["shape"])
    for shape in ("shape=3,-1", f"shape={tmp_path / 'shape.npy'}"):
        result = call(
            *("run", tmp_path / "m.onnx", "--mesh", 2, "--shape", "n=4", "--value", shape, "--value", "low=0.5"),
            *("--input", f"x={tmp_path / 'x.npy'}", "--save", tmp_path / "out.npz", "--verify"),
        )
        assert result.exit_code == 0, result.stderr
        with np.load(tmp_path / "out.npz") as saved:
            np.testing.assert_array_equal(saved["y"], ort(reshaping(), feeds)[0])


def test_a_plan_is_run_with_the_values_that_it_was_made_with(tmp_path: Path) -> None:
    onnx.save(reshaping(), tmp_path / "m.onnx")
    given = ("--shape", "n=4", "--value", "shape=3,8", "--value", "low=0")
    made = call("plan", tmp_path / "m.onnx", "--mesh", 2, *given, "--json")
    (tmp_path / "p.json").write_text(made.stdout)
    again = call("run", tmp_path / "m.onnx", "--plan", tmp_path / "p.json", *given)
    assert again.exit_code == 0, again.stderr
    other = call(
        "run", tmp_path / "m.onnx", "--plan", tmp_path / "p.json", *given[:2], "--value", "shape=8,3", *given[4:]
    )
    refused(other, "was made for another model")


def test_an_operand_that_must_be_known_names_the_option(tmp_path: Path) -> None:
    onnx.save(reshaping(), tmp_path / "m.onnx")
    told = call("plan", tmp_path / "m.onnx", "--shape", "n=4")
    assert told.exit_code == 0 and "nothing is planned yet: 'shape' must be known" in told.stdout
    assert "'fold'" in told.stdout and "--value shape=…" in told.stdout


@pytest.mark.parametrize(
    ("value", "part"),
    [
        ("shape", "name=1,3"),
        ("=1", "name=1,3"),
        ("shape=1,x", "'1,x' is neither numbers"),
        ("shape=,", "neither numbers"),
        ("shape=gone.npy", "cannot be read"),
        ("q=1", "values names 'q'"),
        ("shape=1.5,2", "which int64 has not"),
        ("shape=1,2,3", "but the model fixes it to 2"),
        ("low=1,2", "has rank 1, the input has rank 0"),
    ],
)
def test_values_that_cannot_be_taken(tmp_path: Path, value: str, part: str) -> None:
    onnx.save(reshaping(), tmp_path / "m.onnx")
    refused(call("plan", tmp_path / "m.onnx", "--shape", "n=4", "--value", value), part)


def test_values_are_read() -> None:
    assert parse_values(["a=1, 2", "b:0=true", "c=-0.5", "d=", "e=k=3", "f=1e3,inf"]) == {
        "a": [1, 2],
        "b:0": True,
        "c": -0.5,
        "d": [],
        "e=k": 3,
        "f": [1000.0, float("inf")],
    }
    assert parse_shapes(["x=2,3", "n=4"]) == {"x": (2, 3), "n": 4}
