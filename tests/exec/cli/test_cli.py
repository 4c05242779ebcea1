"""The command line: the main job, and one clear line with exit status 2 for every wrong input."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner, Result
from onnx import TensorProto, helper, numpy_helper

from tapestry_exec.cli import commands as cli
from tapestry_exec.cli.commands import first_difference, main
from tapestry_exec.cli.planning import parse_nbytes, parse_shapes
from tapestry_plan import Graph, Mesh, ShardPlan, load_onnx, ops, plan
from tapestry_plan.onnx import to_onnx
from tapestry_plan.steps import tell_cut
from tapestry_sets.views import Concat


def call(*args: object) -> Result:
    return CliRunner().invoke(main, [str(arg) for arg in args], prog_name="tapestry")


def refused(result: Result, *parts: str) -> None:
    """One line on stderr that says what is wrong, nothing on stdout, status 2."""
    assert result.exit_code == 2, (result.stdout, result.stderr, result.exception)
    lines = [
        line for line in result.stderr.splitlines() if not re.fullmatch(r"planning .*: ([\d.]+ s|\d+ % \(.*\))", line)
    ]
    assert len(lines) == 1 and lines[0].startswith("error: "), result.stderr
    for part in parts:
        assert part in lines[0], lines[0]
    assert result.stdout == ""


def network(batch: int | str = 2, op: str = "Relu", opset: int = 21) -> onnx.ModelProto:
    rng = np.random.default_rng(0)
    w = rng.standard_normal((4, 3, 3, 3)).astype(np.float32)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, 3, 8, 8])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [batch, 4, 8, 8])
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], "conv", pads=[1, 1, 1, 1]),
        helper.make_node(op, ["c"], ["y"], "act"),
    ]
    graph = helper.make_graph(nodes, "g", [x], [y], [numpy_helper.from_array(w, "w")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    onnx.save(network(), tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


# -- what works ------------------------------------------------------------------------------------------


def test_demo() -> None:
    result = call("demo", "--mesh", "2x2", "--units", "exact")
    assert result.exit_code == 0, (result.stderr, result.exception)
    moved = re.search(r"bytes moved: ([\d,]+ B) predicted, ([\d,]+ B) counted, equal", result.stdout)
    assert moved is not None and moved[1] == moved[2] and moved[1] != "0 B"
    apart = re.search(r"largest difference from ONNX Runtime .*: ([\d.e-]+) \(bound", result.stdout)
    assert apart is not None and float(apart[1]) < 1e-4
    assert "SqueezeNet on 4 devices" in result.stdout
    assert len(re.findall(r"^ n\d+ ", result.stdout, re.M)) == 29, "convolutions and what ends them are blocks"
    said = [line for line in result.stderr.splitlines() if " % (" not in line]
    assert len(said) == 2, "what takes long is said; how far it is only where the machine has other work"


def test_demo_without_onnx_runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    result = call("demo", "--mesh", "3", "--seed", "1")
    assert result.exit_code == 0, result.stderr
    assert "largest difference from the unsharded run before softmax" in result.stdout


def test_demo_fails_when_the_values_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "difference", lambda *_: 0.5)
    result = call("demo", "--mesh", "1")
    assert result.exit_code == 1
    assert result.stderr.splitlines()[-1].startswith("error: the run differs from ONNX Runtime")


def test_plan_prints_what_moves(file: Path) -> None:
    result = call("plan", file, "--mesh", "2x2")
    assert result.exit_code == 0, result.stderr
    for part in ("m.onnx on 4 devices", "conv", "act", "pulled", "shared", "peak", "bytes moved: ", "gap 0.0%"):
        assert part in result.stdout


def test_plan_compares_the_layouts_asked_for(file: Path) -> None:
    assert "(gap 0.0%, space 'all')" in call("plan", file, "--mesh", "2x2").stdout
    assert "(gap 0.0%, space 'mesh')" in call("plan", file, "--mesh", "2x2", "--space", "mesh").stdout
    refused(call("plan", file, "--space", "some"), "--space", "mesh", "all")


def test_plans_of_less_and_less_memory(file: Path) -> None:
    result = call("pareto", file, "--mesh", "2", "--points", "3", "--units", "exact")
    assert result.exit_code == 0, result.stderr
    rows = re.findall(r"^ *([\d,]+) B +([\d.e-]+) s ", result.stdout, re.M)
    peaks, seconds = ([float(row[k].replace(",", "")) for row in rows] for k in range(2))
    assert 1 <= len(rows) <= 3 and peaks == sorted(peaks, reverse=True) and seconds == sorted(seconds)
    refused(call("pareto", file, "--points", "3", "--memory", "1GB"), "--memory")
    refused(call("pareto", file, "--points", "0"), "points is 0", "from 1 to 100")


def test_a_run_goes_on_from_its_checkpoint(file: Path, tmp_path: Path) -> None:
    there, first, rest = tmp_path / "saved", tmp_path / "first.npz", tmp_path / "rest.npz"
    asked = "--mesh", "2", "--no-fuse"
    result = call("run", file, *asked, "--checkpoints", there, "--every", "1e-9", "--save", first)
    assert result.exit_code == 0 and "counted, equal" in result.stdout, (result.stderr, result.exception)
    result = call("run", file, *asked, "--resume", there, "--save", rest)
    assert result.exit_code == 0 and "went on from a checkpoint behind step" in result.stdout, result.stderr
    assert "as predicted of what was left to do" in result.stdout and "counted, equal" not in result.stdout
    with np.load(first) as one, np.load(rest) as other:
        assert one.files == other.files and all(one[name].tobytes() == other[name].tobytes() for name in one.files)
    refused(call("run", file, "--after", "conv"), "--after says when to save; say where, by --checkpoints")
    refused(
        call("run", file, "--mesh", "2", "--checkpoints", there, "--every", "-1"), "give a number of seconds above 0"
    )
    refused(call("run", file, "--mesh", "2", "--resume", tmp_path / "none"), "there is no folder")
    refused(call("run", file, "--mesh", "4", "--resume", there), "is of another plan")


def test_plan_for_a_machine(file: Path, tmp_path: Path) -> None:
    whole = json.loads(call("plan", file, "--machine", "h100x8", "--json").stdout)["mesh"]
    some = json.loads(call("plan", file, "--machine", "h100x8", "--mesh", "2x2", "--json").stdout)["mesh"]
    assert (whole["shape"], some["shape"]) == ([8], [2, 2]) and whole["device"] == some["device"] != [1e11, 2e10, 0.0]
    (tmp_path / "mine.toml").write_text(
        "shape = [2, 2]\n[link]\nx = {latency_seconds = 1e-6, nbytes_per_second = 1e9}\n"
        "y = {latency_seconds = 1e-6, nbytes_per_second = 1e10}"
    )
    mine = json.loads(call("plan", file, "--machine", tmp_path / "mine.toml", "--json").stdout)
    assert mine["mesh"]["link"] == [[1e-6, 1e9, 0.0], [1e-6, 1e10, 0.0]] and mine["space"] == "mesh"
    refused(call("plan", file, "--machine", "h100"), "no machine 'h100'", "h100x64")
    refused(call("plan", file, "--machine", tmp_path / "none.toml"), "none.toml")
    refused(call("plan", file, "--machine", "h100x8", "--mesh", "3x3"), "8 devices", "(3, 3) are 9")


def test_plan_explains(file: Path) -> None:
    result = call("plan", file, "--mesh", "2", "--no-fuse", "--explain", "conv")
    assert result.exit_code == 0 and result.stdout.startswith("conv (conv): ")
    block = call("plan", file, "--mesh", "2", "--explain", "conv")
    assert block.exit_code == 0 and block.stdout.startswith("conv: in one block with act, ")
    refused(call("plan", file, "--mesh", "2", "--explain", "nothing"), "view or output 'nothing'")


def test_run_and_verify(file: Path, tmp_path: Path) -> None:
    result = call("run", file, "--mesh", "3", "--verify", "--trace", tmp_path / "t.json", "--save", tmp_path / "o.npz")
    assert result.exit_code == 0, (result.stderr, result.exception)
    assert re.search(r"output y: float32\[2, 4, 8, 8\], difference from the unsharded run [\d.e-]+", result.stdout)
    assert json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    assert np.load(tmp_path / "o.npz")["y"].shape == (2, 4, 8, 8)


def test_run_reads_inputs(file: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((2, 3, 8, 8), np.float32))
    assert call("run", file, "--input", f"x={tmp_path / 'x.npy'}", "--save", tmp_path / "o.npz").exit_code == 0
    assert not np.load(tmp_path / "o.npz")["y"].any()


def test_seeds_make_inputs(file: Path, tmp_path: Path) -> None:
    found = []
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        assert call("run", file, "--mesh", 2, "--seed", seed, "--save", tmp_path / f"{name}.npz").exit_code == 0
        found.append(np.load(tmp_path / f"{name}.npz")["y"])
    np.testing.assert_array_equal(found[0], found[1])
    assert (found[0] != found[2]).any()


def test_a_saved_plan_runs(file: Path, tmp_path: Path) -> None:
    made = call("plan", file, "--mesh", "2x2", "--json")
    assert made.exit_code == 0
    (tmp_path / "plan.json").write_text(made.stdout)
    assert ShardPlan.from_json(made.stdout).mesh.shape == (2, 2)
    result = call("run", file, "--plan", tmp_path / "plan.json", "--verify")
    assert result.exit_code == 0, (result.stderr, result.exception)


def long_row(axis: int = 1) -> onnx.ModelProto:
    """A softmax over so long a row that eight devices together are faster, though they read it several times."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 65536]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Softmax", ["x"], ["y"], "row", axis=axis)], "g", [x], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def test_operators_are_expanded_if_wanted(tmp_path: Path) -> None:
    file, made = tmp_path / "m.onnx", tmp_path / "p.json"
    onnx.save(long_row(), file)
    ways: list[list[str]] = [[], ["--expand", "exp_sum"], ["--no-expand"], ["--expand", "matmul_add"]]
    plans = [ShardPlan.from_json(call("plan", file, "--mesh", 8, "--json", *way).stdout) for way in ways]
    assert [list(p.expanded.values()) for p in plans] == [["exp_sum"], ["exp_sum"], [], []]
    assert plans[0].seconds == plans[1].seconds < plans[2].seconds == plans[3].seconds
    assert "expanded by exp_sum" in call("plan", file, "--mesh", 8, "--explain", "row").stdout
    told = "the bound has expansions of row with their operators apart"
    assert [told in call("plan", file, "--mesh", n).stdout for n in (1, 8)] == [True, False]
    made.write_text(plans[0].to_json())
    result = call("run", file, "--plan", made, "--verify", "--units", "exact")
    assert result.exit_code == 0, result.stderr
    found = re.search(r"bytes moved: ([\d,]+) B predicted, ([\d,]+) B counted, equal", result.stdout)
    assert found is not None and found[1] == found[2] == f"{plans[0].nbytes_moved:,}" != "0"
    assert "bytes moved: 0 B predicted" in call("run", file, "--mesh", 8, "--no-expand").stdout


def test_a_plan_with_the_same_bits_runs_from_its_file(file: Path, tmp_path: Path) -> None:
    made = tmp_path / "p.json"
    made.write_text(call("plan", file, "--mesh", 2, "--same-bits", "--json").stdout)
    assert "predicted" in call("run", file, "--plan", made).stdout


def test_wrong_expansions(file: Path, tmp_path: Path) -> None:
    other, made = tmp_path / "other.onnx", tmp_path / "p.json"
    refused(call("plan", file, "--expand", "exp_sums"), "'exp_sums', which no declaration lists", "exp_sum")
    refused(call("plan", file, "--expand", "exp_sum", "--no-expand"), "cannot both be given")
    onnx.save(long_row(), other)
    made.write_text(call("plan", other, "--mesh", 8, "--json").stdout)
    refused(call("run", other, "--plan", made, "--no-expand"), "--plan gives one that is made")
    refused(call("run", other, "--plan", made, "--space", "all"), "--plan gives one that is made")
    refused(call("run", other, "--plan", made, "--machine", "cpu4"), "--plan gives one that is made")
    refused(call("run", other, "--plan", made, "--same-bits"), "--plan gives one that is made")
    refused(call("run", file, "--plan", made), "another model", "cannot be expanded as the plan's were", "'row'")
    onnx.save(long_row(axis=0), other)
    refused(call("run", other, "--plan", made), "another model", "'row")


def test_open_shapes_are_given(tmp_path: Path) -> None:
    onnx.save(network("N"), tmp_path / "m.onnx")
    result = call("run", tmp_path / "m.onnx", "--mesh", "2", "--shape", "x=1,3,8,8", "--verify")
    assert result.exit_code == 0, result.stderr
    assert "float32[1, 4, 8, 8]" in result.stdout


def test_the_seed_example_of_aliasing() -> None:
    """Tapestry's document on nested striding, Example 3: B and C meet at A[12]."""
    result = call("overlap", "A[27]; A.reshape(3,3,3)[:2,:2,:2]; A[2::5]")
    assert result.exit_code == 0
    assert "aliases at A[12]: cell [1, 1, 0] of the first, [2] of the second; 1 cell shared" in result.stdout
    rows = [line.split()[-1] for line in result.stdout.splitlines() if line.endswith((".", "X"))]
    assert rows == ["11.11....11.11.............", "..2....2....2....2....2....", "............X.............."]


def test_all_pairs_of_views() -> None:
    assert call("overlap", "A[10]; A[:4]; A[3:6]; A[7:]", "--exit-code").exit_code == 1
    assert call("overlap", "A[10]; A[:4]; A[3:6]", "--exit-code", "--json").exit_code == 1
    assert call("overlap", "A[10]; A[:4]; A[4:6]; A[7:]", "--exit-code").exit_code == 0
    result = call("overlap", "A[10]; B[3]; A[:4]; A[3:6]; B[::2]")
    assert result.exit_code == 0
    assert result.stdout.count("  and  ") == 3
    assert result.stdout.count("no common cell") == 2


def test_large_views_are_drawn_in_part() -> None:
    result = call("overlap", "A[1000000000000]; A[::2]; A[::3]")
    assert result.exit_code == 0
    assert "166,666,666,667 cells shared" in result.stdout
    assert "[0, 64): around a shared cell" in result.stdout and "166666666667 of 1000000000000 cells" in result.stdout


def test_pairs_of_views_as_json_table_and_svg(tmp_path: Path) -> None:
    text = "A[4, 6]; B = A[:, 3:6]; B; A.reshape(24)[0::7]"
    pairs = json.loads(call("overlap", text, "--json").stdout)
    witness = {"allocation": "A", "a": [3, 0], "b": [3], "cell": [3, 3]}
    pair = {"a": "B", "b": "A.reshape(24)[0::7]", "cells": 1, "witness": witness}
    assert pairs == {"format": "tapestry-overlap/1", "pairs": [pair]}
    result = call("overlap", text, "--table", "--svg", tmp_path / "p.svg")
    assert result.exit_code == 0 and "self-overlap" in result.stdout and "[:, 3:6]" in result.stdout
    assert (tmp_path / "p.svg").read_text().count("<rect") > 24
    refused(call("overlap", text, "--svg", tmp_path / "none" / "p.svg"), "none")
    refused(call("overlap", text, "--table", "--json"), "give one of them")


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys\nfrom click.testing import CliRunner\nfrom tapestry_exec.cli import main\n"
        "assert 'Plan and run' in CliRunner().invoke(main, ['--help']).output\n"
        "heavy = {'onnx', 'onnxruntime', 'rich', 'islpy', 'sympy'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


# -- what is refused -------------------------------------------------------------------------------------


@pytest.mark.parametrize("mesh", ["0", "-1", "2x", "x2", "2x0", "1000000000", "99999x99999", "many", "", "2.5", "4x-1"])
@pytest.mark.parametrize("command", [("demo",), ("plan", "m.onnx"), ("run", "m.onnx")])
def test_wrong_meshes(command: tuple[str, ...], mesh: str) -> None:
    refused(call(*command, f"--mesh={mesh}"), "mesh")


def test_a_file_that_is_missing(tmp_path: Path) -> None:
    refused(call("plan", tmp_path / "none.onnx"), "there is no file", "none.onnx")
    refused(call("run", tmp_path), "is a folder; give a file in it")


@pytest.mark.parametrize("content", [b"", b"not a model", b"\x00" * 100, b"PK\x03\x04 zip"])
def test_a_file_that_is_not_onnx(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "m.onnx").write_bytes(content)
    refused(call("run", tmp_path / "m.onnx"), "m.onnx")


@pytest.mark.parametrize("kept", [0.3, 0.6, 0.95])
def test_a_truncated_model(file: Path, kept: float) -> None:
    content = file.read_bytes()
    file.write_bytes(content[: int(len(content) * kept)])
    refused(call("run", file), "m.onnx")


def test_an_unknown_opset(tmp_path: Path) -> None:
    onnx.save(network(opset=9999), tmp_path / "m.onnx")
    refused(call("plan", tmp_path / "m.onnx"), "opset", "9999")


def test_an_unsupported_operator(tmp_path: Path) -> None:
    onnx.save(network(op="NonZero"), tmp_path / "m.onnx")
    refused(call("plan", tmp_path / "m.onnx", "--no-opaque"), "act", "NonZero", "21")


def test_open_shapes_without_a_shape(tmp_path: Path) -> None:
    onnx.save(network("N"), tmp_path / "m.onnx")
    refused(call("plan", tmp_path / "m.onnx"), "'x'", "axis 0", "N", "--shape")


@pytest.mark.parametrize("shape", ["x", "x=", "=1,2", "x=1,a", "x=1,3,8,-8", "x=1;3"])
def test_shapes_that_cannot_be_read(file: Path, shape: str) -> None:
    refused(call("plan", file, f"--shape={shape}"), "--shape", "name=1,3,224,224")


@pytest.mark.parametrize("extent", ["9" * 30, str(2**63), "9" * 5000])
def test_absurd_shapes(tmp_path: Path, extent: str) -> None:
    onnx.save(network("N"), tmp_path / "m.onnx")
    refused(call("plan", tmp_path / "m.onnx", "--shape", f"x={extent},3,8,8"), "x")


def test_inputs_that_no_machine_holds(tmp_path: Path) -> None:
    """A plan may be made for other machines; what is run here has to fit."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2**38]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=8), tmp_path / "m.onnx")
    refused(
        call("run", tmp_path / "m.onnx"), "the arenas of 4 devices, all in this process, take 1,099,511,627,776 bytes"
    )


@pytest.mark.parametrize("shape", ["q=1,3,8,8", "x=1,3,8", "x=2,4,8,8", "x=0,3,8,8"])
def test_shapes_that_do_not_fit(file: Path, shape: str) -> None:
    refused(call("plan", file, "--shape", shape))


def test_external_data_that_is_missing_or_outside(tmp_path: Path) -> None:
    model = network()
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    assert call("plan", tmp_path / "m.onnx", "--mesh", 2).exit_code == 0
    (tmp_path / "w.bin").unlink()
    refused(call("plan", tmp_path / "m.onnx"), "w.bin")
    moved = onnx.load(tmp_path / "m.onnx", load_external_data=False)
    for entry in moved.graph.initializer[0].external_data:
        if entry.key == "location":
            entry.value = "../secret.bin"
    (tmp_path / "sub").mkdir()
    (tmp_path / "secret.bin").write_bytes(b"\0" * 432)
    (tmp_path / "sub" / "m.onnx").write_bytes(moved.SerializeToString())
    refused(call("plan", tmp_path / "sub" / "m.onnx"), "secret.bin")


@pytest.mark.parametrize(
    ("array", "part"),
    [
        (np.zeros((1, 3, 8, 8), np.float32), "shape (2, 3, 8, 8) is needed"),
        (np.zeros((2, 3, 8, 8)), "float32 is needed"),
        (np.array([{}]), "holds Python objects; save an array of numbers"),
    ],
)
def test_inputs_that_do_not_fit(file: Path, tmp_path: Path, array: np.ndarray, part: str) -> None:
    np.save(tmp_path / "x.npy", array)
    refused(call("run", file, "--input", f"x={tmp_path / 'x.npy'}"), "x", part)


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (b"junk", "is not a .npy file; write the array with numpy.save"),
        (b"", "is not a .npy file"),
        (b"PK\x03\x04", "is not a .npy file"),
        (b"\x80\x04\x95 pickled", "is not a .npy file"),
        (b"\x93NUMPY", "is damaged or truncated"),
        (b"\x93NUMPY\x01\x00\x05\x00{'a':", "is damaged or truncated"),
        (None, "is damaged or truncated"),
    ],
)
def test_files_that_are_not_arrays(file: Path, tmp_path: Path, content: bytes | None, part: str) -> None:
    np.save(tmp_path / "x.npy", np.zeros((2, 3, 8, 8), np.float32))
    whole = (tmp_path / "x.npy").read_bytes()
    (tmp_path / "x.npy").write_bytes(whole[:-5] if content is None else content)
    result = call("run", file, "--input", f"x={tmp_path / 'x.npy'}")
    refused(result, "--input 'x=", "x.npy", part)
    assert "pickle" not in result.stderr.replace("allow_pickle", "")


@pytest.mark.parametrize("given", ["x", "x=", "=f.npy", "q=f.npy", "x=missing.npy"])
def test_inputs_that_cannot_be_read(file: Path, given: str) -> None:
    refused(call("run", file, f"--input={given}"), "--input")


def test_a_plan_that_was_edited(file: Path, tmp_path: Path) -> None:
    text = call("plan", file, "--mesh", "2", "--json").stdout
    plan_file = tmp_path / "plan.json"
    document = json.loads(text)
    for changed, part in (
        (text.replace('"fan_in":null', '"fan_in":2', 1), "edited"),
        (json.dumps({**document, "format": "tapestry-plan/0"}), "tapestry-plan/0"),
        ("[]", "format"),
        ("{", "not a JSON document"),
        (text[: len(text) // 2], "not a JSON document"),
    ):
        plan_file.write_text(changed)
        refused(call("run", file, "--plan", plan_file), part)
    refused(call("run", file, "--plan", tmp_path / "none.json"), "there is no file")
    refused(call("run", file, "--plan", plan_file, "--mesh", "2"), "cannot both be given")


def test_a_plan_of_another_model(file: Path, tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text(call("plan", file, "--mesh", "2", "--json").stdout)
    model = network()
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.zeros((4, 3, 3, 3), np.float32), "w"))
    onnx.save(model, file)
    refused(call("run", file, "--plan", tmp_path / "plan.json"), "another model", "'w'")


def test_a_plan_runs_no_model_but_its_own(file: Path, tmp_path: Path) -> None:
    made = tmp_path / "p.json"
    made.write_text(call("plan", file, "--mesh", "2", "--no-fuse", "--json").stdout)
    other = tmp_path / "other.onnx"
    onnx.save(network(op="Sigmoid"), other)
    refused(call("run", other, "--plan", made), "another model", "relu", "sigmoid")
    heavier = network()
    heavier.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.ones((4, 3, 3, 3), np.float32), "w"))
    onnx.save(heavier, other)
    refused(call("run", other, "--plan", made), "another model", "'w'", "SHA-256")
    onnx.save(network(batch=3), other)
    refused(call("run", other, "--plan", made), "tensor 'x' has shape [2, 3, 8, 8] in the plan, [3, 3, 8, 8] in")
    attributes = network()
    attributes.graph.node[0].attribute[0].ints[:] = [0, 2, 0, 2]
    attributes.graph.node[0].attribute.append(helper.make_attribute("dilations", [1, 1]))
    attributes.graph.node[0].attribute[0].ints[:] = [2, 1, 0, 1]
    onnx.save(attributes, other)
    refused(call("run", other, "--plan", made), "operator 'conv' has attrs", "[1, 1, 1, 1]", "[2, 1, 0, 1]")
    renamed = network()
    renamed.graph.node[1].output[0] = renamed.graph.output[0].name = "z"
    onnx.save(renamed, other)
    refused(call("run", other, "--plan", made), "output 'y' is only in the plan")
    longer = network()
    longer.graph.node.append(helper.make_node("Flatten", ["y"], ["flat"], "flatten"))
    longer.graph.output[0].CopyFrom(helper.make_tensor_value_info("flat", TensorProto.FLOAT, [2, 256]))
    onnx.save(longer, other)
    refused(call("run", other, "--plan", made), "selection 'flat' is only in the model")
    moved = tmp_path / "elsewhere" / "m.onnx"
    moved.parent.mkdir()
    onnx.save(network(), moved)
    assert call("run", moved, "--plan", made, "--verify").exit_code == 0


def test_views_between_operators_are_compared_too() -> None:
    """However a graph was written down, it is the same; other cells are not."""

    def graph(start: int) -> Graph:
        g = Graph()
        x = g.input("x", (8,))
        a = g.op("relu", x, name="a")
        g.output(g.op("add", a, x[start : start + 4].view(Concat(0), x[:4]), name="b"), "y")
        return g

    known = Graph.from_dict(graph(2).to_dict())
    assert first_difference(known, graph(2)) is None
    assert first_difference(known, Graph.from_dict(known.to_dict())) is None
    assert first_difference(known, graph(3)) == "selection 'slice' selects other cells"


@pytest.mark.parametrize("option", ["--save", "--trace"])
def test_targets_are_checked_before_the_work(file: Path, tmp_path: Path, option: str) -> None:
    refused(call("run", file, option, tmp_path / "missing" / "out"), option, "the folder of", "does not exist")
    refused(call("run", file, option, tmp_path), "is a folder")
    assert list(tmp_path.iterdir()) == [file]


def test_outputs_are_saved_under_the_suffix_that_says_so(file: Path, tmp_path: Path) -> None:
    refused(call("run", file, "--save", tmp_path / "a.npy"), "--save", "a.npy", "does not end in .npz")
    assert list(tmp_path.iterdir()) == [file]
    (tmp_path / "a.npz").write_bytes(b"before")
    assert call("run", file, "--mesh", 2, "--save", tmp_path / "a.npz").exit_code == 0
    assert np.load(tmp_path / "a.npz")["y"].shape == (2, 4, 8, 8)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.npz", "m.onnx"]


@pytest.fixture
def waiting(tmp_path: Path) -> Path:
    """A model with a tensor that waits while others are made."""
    read = [("y0", "y0"), ("y1", "y0"), ("y2", "y1"), ("y3", "y0"), ("y4", "x")]
    made = [("Add", a, b, f"y{k}" if k < len(read) else "y") for k, (a, b) in enumerate(read, 1)]
    nodes = [helper.make_node("Exp", ["x"], ["y0"], "first")]
    nodes += [helper.make_node(op, [a, b], [out], f"make_{out}") for op, a, b, out in made]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [64, 64]) for name in "xy")
    graph = helper.make_graph(nodes, "g", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    onnx.save(model, tmp_path / "waiting.onnx")
    return tmp_path / "waiting.onnx"


def test_less_memory_spills(waiting: Path, tmp_path: Path) -> None:
    """The plan and the run name the bytes, and the values are the same."""
    block = 64 * 64 * 4
    assert "spilled" not in call("plan", waiting, "--mesh", 1).stdout
    made = call("plan", waiting, "--mesh", 1, "--memory", 3 * block)
    assert made.exit_code == 0, made.stderr
    assert " spilled " in made.stdout and "bytes spilled to host memory and back: 48 KiB" in made.stdout
    values = []
    for name, options in (("whole", ()), ("less", ("--memory", "48KiB"))):
        told = ("--save", tmp_path / f"{name}.npz", "--verify", "--units", "exact")
        result = call("run", waiting, "--mesh", 1, *options, *told)
        assert result.exit_code == 0, result.stderr
        values.append(np.load(tmp_path / f"{name}.npz")["y"].tobytes())
    assert (
        f"bytes spilled to host memory and back: {3 * block:,} B predicted, {3 * block:,} B counted, equal"
        in result.stdout
    )
    assert re.search(
        rf"spilled +counted\s.*\s0 .* {3 * block:,} B +{3 * block:,} B +{3 * block:,} B +{3 * block:,} B",
        result.stdout,
        re.S,
    )
    assert values[0] == values[1]


def test_a_plan_that_does_not_fit_is_searched_once(waiting: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    searched = []

    def counted(*args: Any, **kwargs: Any) -> ShardPlan:
        searched.append(kwargs)
        return plan(*args, **kwargs)

    monkeypatch.setattr("tapestry_plan.search.planner.plan", counted)
    assert " spilled " in call("plan", waiting, "--mesh", 1, "--memory", 3 * 64 * 64 * 4).stdout
    assert len(searched) == 1


def test_a_saved_plan_runs_in_less_memory(waiting: Path, tmp_path: Path) -> None:
    for name, options in (("whole", ()), ("less", ("--memory", "48KiB"))):
        made = call("plan", waiting, "--mesh", 1, "--no-fuse", "--json", *options)
        (tmp_path / f"{name}.json").write_text(made.stdout)
        result = call("run", waiting, "--plan", tmp_path / f"{name}.json", "--memory", "48KiB")
        assert result.exit_code == 0, result.stderr
        assert "bytes spilled to host memory and back: 48 KiB predicted, 48 KiB counted" in result.stdout
    assert sum(ShardPlan.from_json((tmp_path / "less.json").read_text()).nbytes_spilled) == 49152
    refused(
        call("run", waiting, "--plan", tmp_path / "less.json", "--memory", "40KiB"),
        "give the plan that it was made from",
    )
    refused(
        call("run", waiting, "--plan", tmp_path / "whole.json", "--memory", "40KiB"),
        "device 0 needs 49,152 B at once in step ",
        "compute for operator 'make_y",
        "memory is 40,960 B",
        "give at least 49,152 B",
    )


def test_help_says_what_memory_does() -> None:
    for command in ("plan", "run"):
        assert "what does not fit waits in host memory" in " ".join(call(command, "--help").stdout.split())


def test_memory_that_is_too_small(file: Path) -> None:
    refused(call("plan", file, "--memory", "1KB"), "1,000")
    refused(call("plan", file, "--memory", "much"), "--memory 'much' is not a size")
    refused(call("run", file, "--memory", "64"))


def test_a_trace_that_cannot_be_written(file: Path, tmp_path: Path) -> None:
    refused(call("run", file, "--mesh", 2, "--trace", tmp_path / "no" / "t.json"), "trace")


@pytest.mark.parametrize(
    ("views", "part"),
    [
        ("A[27]; A[:3]", "two views or more, 1 given"),
        ("", "two views or more, 0 given"),
        ("A[4,6]; A.reshape(5,5); A", "cannot view shape (4, 6) [24 elements] as (5, 5) [25]"),
        ("A[4]; A[9]; A", "index 9 is out of bounds for axis 0 with size 4"),
        ("A[:4]; A", "'A' has no memory yet"),
        ("A[-4]; A; A", "extent -4"),
        ("A[4]; B; A", "'B' is not declared"),
        ("A[4]; A.reshape(2, 2", "at character 16, '(2, 2': '(' was never closed; write memory and views with"),
        ("A[4,6; A", "cannot read 'A[4,6; A' at character 6, '; A'; write memory and views with semicolons"),
        ("A[4]; A[1 2]; A", "at character 9, '1 2]; A': Perhaps you forgot a comma?; write"),
        ("A[4]\nA[2]\nB = = A", "at line 3, character 5, '= A'; write"),
        ("A[4]; A\0", "null bytes; write memory"),
        ("A[4]; A.tofile('x'); A", "no method 'tofile'"),
        ("A[4]; A.__class__; A", "means nothing here"),
        ("A[4]; open('x'); A", "no function 'open'"),
        ("A[4]; (lambda: A)(); A", "cannot be called"),
        ("A[4]; import os; A", "only declarations"),
        ("A[4]; A + A; A", "means nothing here"),
        ("A[4]; 3; A", "'3' is not a view"),
        ("A[4]; A[True]; A", "means nothing here"),
        ("A[4]; A.flip(7); A", "axis 7"),
        ("A[4]; A.flip(None, 1, 2); A", "flip"),
        ("A[2]; B[3]; concatenate([A, B], 1); A", "axis 1"),
        ("A[4]; A[-'x']; A", "needs a number"),
        ("A[4]; concatenate([A, 1]); A", "concatenate: item 1 of the list is 1; every item must be a view"),
        ("A[4]; stack([[A]]); A", "stack: item 0 of the list is ["),
        ("A[4]; concatenate(A); A", "concatenate needs a list of views first"),
        ("A[4]; interleave([]); A", "interleave needs a list of views first"),
        ("A[4]; concat(); A", "concat needs a list of views first"),
        ("A[4]; roll(1, A); A", "roll needs a view first, 1 is given"),
        ("A[4]; tile(); A", "tile needs a view first, nothing is given"),
        ("A[4]; A.flip(**A); A", "** means nothing"),
        ("(" * 5000, "overlap"),
    ],
)
def test_views_that_cannot_be_read(views: str, part: str) -> None:
    refused(call("overlap", views), part)


def test_unknown_commands_and_options(file: Path) -> None:
    refused(call("knit"), "knit")
    refused(call("plan"), "MODEL")
    refused(call("plan", file, "--color"), "--color")
    refused(call("demo", "--seed", "-1"), "seed")


# -- reading options -------------------------------------------------------------------------------------


def test_sizes() -> None:
    assert [parse_nbytes(text) for text in ("16GB", "512MiB", "1000000", "1.5 kb", "2T", None)] == [
        16 * 10**9,
        512 * 2**20,
        10**6,
        1500,
        2 * 10**12,
        None,
    ]


def test_names_of_inputs_may_hold_signs() -> None:
    assert parse_shapes(["a=b:0=1,2"]) == {"a=b:0": (1, 2)}


def test_numbers_that_overflow_are_no_warning_of_numpy(tmp_path: Path) -> None:
    g = Graph()
    g.output(g.input("x", (4,)) ** 3, "y")
    onnx.save(to_onnx(g), tmp_path / "cube.onnx")
    np.save(tmp_path / "x.npy", np.full(4, 1e30, np.float32))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        given = "--input", f"x={tmp_path / 'x.npy'}", "--save", tmp_path / "y.npz"
        result = call("run", tmp_path / "cube.onnx", "--mesh", "2", "-q", *given)
    assert result.exit_code == 0, result.output
    assert np.isposinf(np.load(tmp_path / "y.npz")["y"]).all()


def test_plans_say_why_their_operators_are_sharded_so(tmp_path: Path) -> None:
    """What is said is what plans with another sharding come to, made for it alone."""
    g = Graph()
    x = ops.exp(ops.relu(g.input("x", (64, 96)), name="first"), name="rows")
    g.output(ops.exp(ops.relu(x.T, name="columns"), name="last"), "y")
    file = tmp_path / "m.onnx"
    file.write_bytes(to_onnx(g).SerializeToString())
    asked = "plan", file, "--mesh", "2", "--no-fuse", "--quiet", "--layout", "x=0:2", "--fix", "last=i0:2"
    said = call(*asked).stdout.partition("why (")[2].splitlines()
    ours = plan(load_onnx(file), Mesh(2), fuse=False, layout={"x": {0: 2}}, fix={"last": {"i0": 2}})
    assert said[0] == "most received first; of others: --explain OPERATOR):" and ours.nbytes_moved
    chosen = {
        found[1]: (found[2], said[k + 1])
        for k, line in enumerate(said)
        if (found := re.match(r"  (\w+) \((.+)\): ", line))
    }
    most = max(ours.stages, key=lambda one: sum(one.nbytes_received))
    assert chosen[most.node][0] == tell_cut(ours, most.node)
    told = re.fullmatch(r"    with (\w+):(\d+) instead ([+-][\d.]+) us, ([+-][\d,]+) B: .+", chosen[most.node][1])
    assert told is not None, chosen[most.node][1]
    other = plan(ours.graph, Mesh(2), like=ours, fix={most.node: {told[1]: int(told[2])}})
    assert other.nbytes_moved - ours.nbytes_moved == int(told[4].replace(",", ""))
    assert (other.seconds - ours.seconds) * 1e6 == pytest.approx(float(told[3]), abs=0.006)
    assert "why" not in call("plan", file, "--mesh", "1").stdout, "on one device there is no choice"
