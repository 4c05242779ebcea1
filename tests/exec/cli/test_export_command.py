"""`tapestry export`: what it prints and writes, and what it says of wrong input."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import onnx
import pytest
from click.testing import CliRunner, Result

from tapestry_exec.cli import main
from tapestry_plan import Graph, Mesh, load_onnx, ops, plan
from tapestry_plan.onnx import to_onnx

GPT2 = "tests/models/gpt2.onnx"


def called(*words: str) -> Result:
    return CliRunner().invoke(main, ["export", *words, "--quiet"])


def test_chunks_are_printed_as_the_plan_tells_them() -> None:
    found = called(GPT2, "--mesh", "2x2", "--space", "mesh", "--to", "dask")
    assert found.exit_code == 0
    told = plan(load_onnx(GPT2), Mesh((2, 2)), space="mesh").to_dask_chunks()
    assert found.stdout == f"{told.to_code()}\n"


def test_what_is_refused_is_told_with_the_reason(tmp_path: Path) -> None:
    g = Graph()
    g.output(ops.relu(g.input("x", (8, 8)), name="act"), "y")
    model = tmp_path / "model.onnx"
    onnx.save(to_onnx(g), model)
    pieces = "x=0[:2];1[2:4];0[4:6];1[6:]"
    found = called(str(model), "--mesh", "2", "--no-fuse", "--to", "dask", "--layout", pieces)
    assert found.exit_code == 1 and "outputs['y'] = " in found.stdout
    assert "refused: tensor 'x': device 0 has 32 cells of it that do not make a box" in found.stderr
    assert re.search(r"error: 1 of \d+ tensors and outputs are not told by dask", found.stderr)


def test_a_model_says_where_its_tensors_lie(tmp_path: Path) -> None:
    target = tmp_path / "sharded.onnx"
    asked = ("tests/models/resnet.onnx", "--mesh", "2", "--space", "mesh", "--to", "onnx")
    assert called(*asked, "--output", str(target)).exit_code == 0
    model = onnx.load(target)
    assert model.configuration[0].num_devices == 2
    assert any(node.device_configurations for node in model.graph.node)
    assert [path.name for path in tmp_path.iterdir()] == ["sharded.onnx"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((GPT2, "--to", "onnx"), "name its file with --output"),
        ((GPT2, "--to", "numpy"), "'numpy' is not one of 'jax', 'dtensor', 'dask', 'onnx'"),
        ((GPT2,), "Missing option '--to'"),
        (("nothing.onnx", "--to", "dask"), "there is no file 'nothing.onnx'"),
        ((GPT2, "--to", "dask", "--output", "nowhere/x.py"), "nowhere"),
        ((GPT2, "--to", "onnx", "--mesh", "3", "--output", "x.onnx"), "cells; those of ONNX are even"),
    ],
)
def test_wrong_input_is_named(words: tuple[str, ...], message: str) -> None:
    found = called(*words)
    assert found.exit_code == 2 and message in " ".join(found.stderr.split()), found.stderr
    assert not Path("x.onnx").exists()


def test_the_code_needs_no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who plans need not have what others run it with."""
    for library, package in (("jax", "jax"), ("dtensor", "torch")):
        monkeypatch.setitem(sys.modules, package, None)
        found = called(GPT2, "--to", library, "--mesh", "2", "--space", "mesh")
        assert "placed[" in found.stdout and compile(found.stdout, library, "exec")
