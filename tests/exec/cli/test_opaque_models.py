"""Models with nodes that have no declaration, on the command line: told, refused, and listed."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from onnx import helper

from tapestry_exec.cli.operators import EVERY_DTYPE
from tapestry_plan import ShardPlan
from tests.exec.cli.test_cli import call, refused
from tests.onnx_models import model_of


@pytest.fixture
def model(tmp_path: Path) -> Path:
    nodes = [helper.make_node("Relu", ["x"], ["a"], name="r"), helper.make_node("Det", ["a"], ["y"], name="whole")]
    (tmp_path / "m.onnx").write_bytes(model_of(nodes, {"x": (4, 2, 2)}).SerializeToString())
    return tmp_path / "m.onnx"


def test_plans_tell_what_is_opaque(model: Path) -> None:
    words = ("plan", model, "--mesh", 2, "--fix", "r=i0:2", "--quiet")
    told = call(*words).stdout
    assert "opaque: 1 operator of ONNX without a declaration here, run whole: whole; 32 B moved for them" in told
    assert ShardPlan.from_json(call(*words, "--json").stdout).opaque == {"whole": 32}
    assert "opaque: Det of ONNX, run whole on one device" in call(*words, "--explain", "whole").stdout
    page = model.parent / "page.html"
    assert call(*words, "--html", page).exit_code == 0
    assert "32 B move for what runs whole on one device: whole" in page.read_text()
    result = call("run", model, "--mesh", 2, "--fix", "r=i0:2", "--verify", "--quiet")
    assert result.exit_code == 0 and "32 B predicted, 32 B counted, equal" in result.stdout


@pytest.mark.parametrize("command", [("plan", "--mesh", "2", "--quiet"), ("show",)])
def test_no_opaque_refuses(model: Path, command: tuple[str, ...]) -> None:
    refused(call(command[0], model, *command[1:], "--no-opaque"), "node 'whole': Det of domain 'ai.onnx'")
    assert call(command[0], model, *command[1:]).exit_code == 0


def test_models_whose_shapes_follow_from_values_run_in_stages(folder: Path) -> None:
    x = np.random.default_rng(1).normal(size=(4, 6)).astype(np.float32)
    np.save("x.npy", x)
    words = ("run", "staged.onnx", "--mesh", 2, "--input", "x=x.npy", "--quiet")
    told = call(*words, "--verify", "--save", "out.npz").stdout
    assert "stage 0: 1 operator planned, 1 node whole between stages" in told and "stage 1: 1 operator planned" in told
    wanted = -np.array(np.nonzero(x > 0))
    np.testing.assert_array_equal(np.load("out.npz")["y"], wanted)
    assert f"output y: int64{list(wanted.shape)}\n96 B came to the host" in told
    found = json.loads(call(*words, "--json").stdout)
    assert found["format"] == "tapestry-stages/1" and found["nbytes_whole"] == x.nbytes
    assert [one["behind"] for one in found["stages"]] == [1, 0]
    refused(call(*words, "--no-opaque"), "NonZero of domain 'ai.onnx'")
    refused(call(*words, "--trace", "t.json"), "--trace is of one plan, and shapes of this model follow from values")
    refused(call("run", "staged.onnx", "--input", "z=x.npy", "--quiet"), "the model has no input 'z'")


def test_what_stands_before_a_shape_that_follows_from_values_is_planned(folder: Path) -> None:
    words = ("plan", "staged.onnx", "--mesh", 2, "--quiet")
    told = call(*words)
    assert told.exit_code == 0 and "staged.onnx on 2 devices" in told.stdout
    said = ("stage 0: 1 operator planned", "has a shape that follows from values", "1 node behind", "`tapestry run`")
    assert all(one in told.stdout for one in said)
    document = call(*words, "--json")
    assert all(one in document.stderr for one in said) and document.stderr.count("\n") == 1
    p = ShardPlan.from_json(document.stdout)
    assert [node.op for node in p.graph.nodes.values()] == ["relu"]
    refused(call(*words, "--no-opaque"), "NonZero of domain 'ai.onnx'")


def test_values_that_decide_shapes_are_not_drawn(tmp_path: Path) -> None:
    made = model_of([helper.make_node("TopK", ["x", "k"], ["y", "i"])], {"x": (2, 3)})
    made.graph.input.append(helper.make_tensor_value_info("k", 7, (1,)))
    (tmp_path / "m.onnx").write_bytes(made.SerializeToString())
    np.save(tmp_path / "k.npy", np.array([2]))
    words = ("run", tmp_path / "m.onnx", "--mesh", 2, "--quiet")
    refused(call(*words), "--value k=")
    assert "output y: float32[2, 2]" in call(*words, "--input", f"k={tmp_path / 'k.npy'}").stdout


def test_operators_of_onnx_are_listed() -> None:
    found = {one["operator"]: one for one in json.loads(call("ops", "--onnx", "--json").stdout)["operators"]}
    assert found["Conv"]["how"] == "imported" and found["Conv"]["dtypes"][:3] == ["float16", "float32", "float64"]
    assert found["NonZero"]["how"] == "opaque" and set(found["NonZero"]["dtypes"]) >= set(EVERY_DTYPE)
    assert found["MatMulInteger"]["parts"][0] == {"op": "matmul", "axes": ["m", "n", "+k"]}
    told = call("ops", "--onnx").stdout
    assert f"{len(found)} operators of ONNX" in told
    rows = {line.split()[0]: line.split()[1:] for line in told.splitlines() if len(line.split()) > 2}
    assert rows["Gemm"][:5] == ["imported", "gemm", "m", "n", "+k"] and rows["Constant"] == ["folded", "known"]
    assert rows["Reshape"][:2] == ["imported", "views"] and rows["NonZero"][:2] == ["opaque", "whole"]
    assert {"float8_e4m3fn,", "int4,"} <= set(rows["DequantizeLinear"])
    refused(call("ops", "conv", "--onnx"), "--onnx lists all operators of ONNX")
    assert "dtypes floats" in call("ops", "sin").stdout
