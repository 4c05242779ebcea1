"""Names that terminals would obey are shown escaped; a disk that is full is named, and nothing is left half-written."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper

from tapestry_exec.cli import main
from tapestry_exec.run import replace_file
from tapestry_plan import ShardPlan, load_onnx

EVIL = "\x1b]0;owned\x07\x1b[2J\r\n\t\u202e\x9b[red]"
OBEYED = re.compile(r"[^\x20-\x7e\n\u2500-\u257f…–·→─█▏▎▍▌▋▊▉]")
"""What is neither printable ASCII nor drawn by us."""


def model_of_two(*, op: str = "Tanh", dims: tuple[Any, ...] = (4, 4)) -> Any:
    x, y = (helper.make_tensor_value_info(name + EVIL, TensorProto.FLOAT, dims) for name in "xy")
    nodes = [
        helper.make_node("Relu", ["x" + EVIL], ["h" + EVIL], name="one" + EVIL),
        helper.make_node(op, ["h" + EVIL], ["y" + EVIL], name="two" + EVIL),
    ]
    graph = helper.make_graph(nodes, "graph" + EVIL, [x], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=8)


def command(tmp_path: Path, model: Any, *arguments: str) -> str:
    file = tmp_path / "m.onnx"
    onnx.save(model, file)
    result = CliRunner().invoke(main, [arguments[0], str(file), *arguments[1:]])
    return result.stdout + result.stderr


@pytest.mark.parametrize(
    "model, arguments",
    [
        (model_of_two(), ["plan"]),
        (model_of_two(), ["plan", "--json"]),
        (model_of_two(), ["plan", "--explain", "one" + EVIL]),
        (model_of_two(), ["plan", "--explain", "one" + EVIL, "--json"]),
        (model_of_two(), ["show"]),
        (model_of_two(), ["show", "--json"]),
        (model_of_two(), ["show", "--op", "one" + EVIL]),
        (model_of_two(), ["show", "--op", "none" + EVIL]),
        (model_of_two(), ["show", "--op", "none" + EVIL, "--debug"]),
        (model_of_two(), ["run", "--json", "--verify"]),
        (model_of_two(), ["run", "--verify"]),
        (model_of_two(), ["run", "--input", "z=1"]),
        (model_of_two(), ["run", "--shape", "x=4"]),
        (model_of_two(op="Tanh" + EVIL), ["plan"]),
        (model_of_two(dims=("rows" + EVIL, 4)), ["plan"]),
        (model_of_two(), ["plan", "--expand", "none" + EVIL]),
        (model_of_two(), ["plan", "--memory", "1"]),
    ],
)
def test_no_output_holds_controls(model: Any, arguments: list[str], tmp_path: Path) -> None:
    shown = command(tmp_path, model, *arguments)
    assert shown and not OBEYED.findall(shown)
    shown = shown.replace(r"\\", "\\")  # in JSON
    assert r"owned\x07" in shown or r"owned\u0007" in shown or "z=1" in shown or "'x'" in shown


def test_the_escaped_document_is_the_same_plan(tmp_path: Path) -> None:
    file = tmp_path / "m.onnx"
    onnx.save(model_of_two(), file)
    p = ShardPlan.from_json(CliRunner().invoke(main, ["plan", str(file), "--json"]).stdout)
    assert [*p.graph.outputs] == ["y" + EVIL] == [*load_onnx(model_of_two()).outputs]


def test_errors_of_the_importer_hold_no_controls() -> None:
    with pytest.raises(ValueError) as caught:
        load_onnx(model_of_two(op="Tanh" + EVIL))
    assert not OBEYED.findall(str(caught.value)) and "owned" in str(caught.value)


# -- disks that are full -----------------------------------------------------------------------------------


def small_model(tmp_path: Path) -> Path:
    file = tmp_path / "m.onnx"
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, (64, 64)) for name in "xy")
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=8), file)
    return file


@pytest.mark.parametrize("option, name", [("--trace", "t.json"), ("--save", "out.npz")])
def test_a_file_that_cannot_be_whole_is_named(option: str, name: str, tmp_path: Path) -> None:
    """The system lets no file of this process grow beyond 100 bytes."""
    file, target = small_model(tmp_path), tmp_path / name
    target.write_text("old")
    text = f"""
import resource, signal
from tapestry_exec.cli import main
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
main(["run", {str(file)!r}, "-q", {option!r}, {str(target)!r}])
"""
    found = subprocess.run([sys.executable, "-B", "-c", text], capture_output=True, text=True)
    assert found.returncode == 2 and str(target) in found.stderr and found.stderr.startswith("error: "), found.stderr
    assert len(found.stderr.splitlines()) == 1
    assert target.read_text() == "old" and {p.name for p in tmp_path.iterdir()} == {"m.onnx", name}


@pytest.mark.parametrize("trace", ["m.onnx", "x.npy", "out.npz", "there/../m.onnx"])
def test_a_trace_replaces_no_file_that_the_run_needs(trace: str, tmp_path: Path) -> None:
    file, given = small_model(tmp_path), tmp_path / "x.npy"
    np.save(given, np.ones((64, 64), "float32"))
    (tmp_path / "there").mkdir()
    before = file.read_bytes(), given.read_bytes()
    asked = ["run", str(file), "-q", "--input", f"x={given}", "--save", str(tmp_path / "out.npz"), "--trace"]
    found = CliRunner().invoke(main, [*asked, str(tmp_path / trace)])
    assert found.exit_code == 2 and "is a file that this run reads or saves; give another name" in found.stderr
    assert (file.read_bytes(), given.read_bytes()) == before and not (tmp_path / "out.npz").exists()
    assert CliRunner().invoke(main, [*asked, str(tmp_path / "t.json")]).exit_code == 0


def test_outputs_replace_no_file_that_the_run_reads(tmp_path: Path) -> None:
    file, given = small_model(tmp_path), tmp_path / "x.npz"
    with open(given, "wb") as target:
        np.save(target, np.ones((64, 64), "float32"))
    before = given.read_bytes()
    found = CliRunner().invoke(main, ["run", str(file), "-q", "--input", f"x={given}", "--save", str(given)])
    assert found.exit_code == 2 and "is a file that this run reads; give another name" in found.stderr
    assert given.read_bytes() == before


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
@pytest.mark.parametrize("arguments", [["--json"], []])
def test_standard_output_that_is_full_is_named(arguments: list[str], tmp_path: Path) -> None:
    with open("/dev/full", "w") as full:
        found = subprocess.run(
            [sys.executable, "-m", "tapestry_exec.cli", "plan", str(small_model(tmp_path)), "-q", *arguments],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert found.returncode == 2
    assert found.stderr == "error: [Errno 28] No space left on device: 'standard output'\n"


def test_pictures_appear_whole(tmp_path: Path) -> None:
    target = tmp_path / "o.svg"
    result = CliRunner().invoke(main, ["overlap", "A[27]; A[:9]; A[2::5]", "--svg", str(target)])
    assert result.exit_code == 0 and target.read_text().startswith("<svg")
    with pytest.raises(OSError, match=r"Too bad: '.*o\.svg'"), replace_file(target):
        raise OSError(28, "Too bad")
    assert [p.name for p in tmp_path.iterdir()] == ["o.svg"]


def test_a_tensor_of_4_terabytes_is_planned_and_not_run(tmp_path: Path) -> None:
    model = helper.make_model(
        helper.make_graph(
            [helper.make_node("Relu", ["x"], ["y"])],
            "g",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, (10**6, 10**6))],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, (10**6, 10**6))],
        ),
        opset_imports=[helper.make_opsetid("", 21)],
        ir_version=8,
    )
    assert "1,000,000,000,000 B" in command(tmp_path, model, "plan", "--units", "exact")
    assert "931.3 GiB" in command(tmp_path, model, "plan")
    if sys.platform == "linux":
        assert (
            "error: run: the arenas of 4 devices, all in this process, take 4,000,000,000,000 bytes, but "
            in command(tmp_path, model, "run", "-q")
        )
