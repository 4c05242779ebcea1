"""Long work on the command line: what stderr shows of it, and Ctrl-C that leaves nothing half done."""

from __future__ import annotations

import io
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper

from tapestry_exec import run
from tapestry_exec.cli import tuning
from tapestry_exec.cli.commands import main, progress_bar
from tests.exec.run.test_progress import made


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(monkeypatch: pytest.MonkeyPatch, stream: io.StringIO, after: float, quiet: bool = False) -> str:
    """What the progress of a run leaves on stderr."""
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(tuning, "SHOWN_AFTER", after)
    monkeypatch.setenv("TERM", "xterm")
    p, inputs = made()
    with progress_bar("running", quiet) as progress:
        run(p, inputs, progress=progress)
    return stream.getvalue()


def test_short_runs_say_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(monkeypatch, Terminal(), 60.0) == ""
    assert shown(monkeypatch, io.StringIO(), 60.0) == ""


def test_long_runs_have_a_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    text = shown(monkeypatch, Terminal(), 0.0)
    assert "running" in text and "100%" in text
    assert text.endswith("\x1b[2K"), "the bar is wiped off at the end"


def test_long_runs_have_lines_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = shown(monkeypatch, io.StringIO(), 0.0).splitlines()
    tenths = [int(re.fullmatch(r"running: (\d+) % \(\d+ of \d+ steps, \S+\)", line)[1]) for line in lines]  # type: ignore[index]
    assert tenths == sorted(set(tenths)) and tenths[-1] == 100


def test_long_plans_have_lines_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    onnx.save(slow_network(16, 3), tmp_path / "m.onnx")
    monkeypatch.setattr(tuning, "SHOWN_AFTER", 0.0)
    for command in (["plan"], ["pareto", "--points", "2"]):
        result = CliRunner().invoke(main, [*command, str(tmp_path / "m.onnx"), "--mesh", "2x2"])
        lines = [line for line in result.stderr.splitlines() if "%" in line]
        tenths = [int(re.fullmatch(r"planning m.onnx for 4 devices: (\d+) % \(.*\)", line)[1]) for line in lines]  # type: ignore[index]
        assert result.exit_code == 0 and tenths == sorted({*tenths}) and tenths[-1] == 100 and len(tenths) > 3
        assert re.fullmatch(r"planning m.onnx for 4 devices: [\d.]+ s", result.stderr.splitlines()[-1])


@pytest.mark.parametrize("stream", [io.StringIO, Terminal])
def test_quiet_says_nothing(monkeypatch: pytest.MonkeyPatch, stream: Callable[[], io.StringIO]) -> None:
    assert shown(monkeypatch, stream(), 0.0, quiet=True) == ""


def test_quiet_commands_leave_stderr_empty(tmp_path: Path) -> None:
    onnx.save(slow_network(16, 3), tmp_path / "m.onnx")
    for command in (["run", str(tmp_path / "m.onnx")], ["plan", str(tmp_path / "m.onnx")]):
        result = CliRunner().invoke(main, [*command, "--quiet"])
        assert result.exit_code == 0 and result.stderr == "" and "bytes moved" in result.stdout


def slow_network(n: int = 1024, layers: int = 400) -> onnx.ModelProto:
    """Products of square matrices, one after the other."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [n, n]) for name in ("t0", f"t{layers}"))
    nodes = [helper.make_node("MatMul", [f"t{k}", "t0"], [f"t{k + 1}"], f"m{k}") for k in range(layers)]
    graph = helper.make_graph(nodes, "slow", [x], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


@pytest.mark.heavy(2)
@pytest.mark.skipif(sys.platform == "win32", reason="there, a test cannot send Ctrl-C to one process")
def test_ctrl_c_on_the_command_line(tmp_path: Path) -> None:
    """A real SIGINT in the middle of a run: one line, status 130, and no file."""
    onnx.save(slow_network(), tmp_path / "m.onnx")
    command = [
        sys.executable,
        "-m",
        "tapestry_exec.cli",
        "run",
        "m.onnx",
        "--trace",
        "t.json",
        "--save",
        "o.npz",
    ]
    root = Path(tuning.__file__).parents[2]
    env = {**os.environ, "PYTHONPATH": str(root)}

    def heed() -> None:
        """A process that a shell starts in the background ignores Ctrl-C, and so do those that it starts."""
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    with subprocess.Popen(command, cwd=tmp_path, env=env, stdout=-1, stderr=-1, text=True, preexec_fn=heed) as process:
        assert process.stderr is not None and process.stdout is not None
        try:
            before = next(line for line in process.stderr if line.startswith("running: "))
            process.send_signal(signal.SIGINT)
            out, err = process.stdout.read(), process.stderr.read()
            assert process.wait(60) == 130, (before, err)
        finally:
            process.kill()
    assert "running: 100 %" not in before and out == ""
    assert [line for line in err.splitlines() if not line.startswith("running: ")] == ["error: stopped by Ctrl-C"]
    assert [path.name for path in tmp_path.iterdir()] == ["m.onnx"]
