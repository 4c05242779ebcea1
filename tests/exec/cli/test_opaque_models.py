"""Models with nodes that have no declaration, on the command line: told, refused, and listed."""

from __future__ import annotations

import json
from pathlib import Path

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
    assert "opaque: Det of ONNX, run whole by its reference" in call(*words, "--explain", "whole").stdout
    page = model.parent / "page.html"
    assert call(*words, "--html", page).exit_code == 0
    assert "32 B move for what runs whole, by ONNX&#x27;s reference: whole" in page.read_text()
    result = call("run", model, "--mesh", 2, "--fix", "r=i0:2", "--verify", "--quiet")
    assert result.exit_code == 0 and "32 B predicted, 32 B counted, equal" in result.stdout


@pytest.mark.parametrize("command", [("plan", "--mesh", "2", "--quiet"), ("show",)])
def test_no_opaque_refuses(model: Path, command: tuple[str, ...]) -> None:
    refused(call(command[0], model, *command[1:], "--no-opaque"), "node 'whole': Det of domain 'ai.onnx'")
    assert call(command[0], model, *command[1:]).exit_code == 0


def test_operators_of_onnx_are_listed() -> None:
    found = {one["operator"]: one for one in json.loads(call("ops", "--onnx", "--json").stdout)["operators"]}
    assert found["Conv"]["how"] == "imported" and found["Conv"]["dtypes"][:3] == ["float16", "float32", "float64"]
    assert found["NonZero"]["how"] == "opaque" and set(found["NonZero"]["dtypes"]) >= set(EVERY_DTYPE)
    assert f"{len(found)} operators of ONNX" in call("ops", "--onnx").stdout
    refused(call("ops", "conv", "--onnx"), "--onnx lists all operators of ONNX")
    assert "dtypes floats" in call("ops", "sin").stdout
