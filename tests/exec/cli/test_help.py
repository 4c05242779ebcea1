"""Help texts: each has examples, and each example runs; what shells complete; near names for wrong ones."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest
from click.shell_completion import BashComplete, FishComplete, ShellComplete, ZshComplete
from click.testing import CliRunner

from tapestry_exec.cli import main
from tapestry_exec.cli.terminal import Command
from tests.exec.cli.test_cli import call, refused

PRESENT = {"calibrate", "demo", "explain", "export", "ops", "overlap", "pareto", "plan", "run", "schema", "show"} | {
    *("sizes", "transfers", "verify")
}
EXAMPLES = [(name, line) for name, one in main.commands.items() for line in one.examples]  # type: ignore[attr-defined]
ROOT = Path(__file__).resolve().parents[3]


def test_the_commands_are_those_that_are_promised() -> None:
    assert set(main.commands) == PRESENT


@pytest.mark.parametrize("name", ["", *sorted(PRESENT)])
def test_each_help_has_examples_whole_in_a_line(name: str) -> None:
    words = [name] if name else []
    shown = CliRunner().invoke(main, [*words, "--help"]).stdout
    listed = shown.partition("\nExamples:\n")[2].splitlines()
    command = main.commands[name] if name else main
    assert isinstance(command, Command) and command.examples
    assert [line.strip() for line in listed] == list(command.examples)
    assert all(line.strip().startswith(f"tapestry {name}".rstrip()) for line in listed)
    assert "--debug" in shown and ("--json" in shown or not name)


@pytest.mark.heavy(2)
@pytest.mark.parametrize("line", [line for _, line in EXAMPLES if "calibrate" not in line and "demo" not in line])
def test_each_example_runs(line: str, folder: Path) -> None:
    """As a shell would run it, `> FILE` too, beside a model, its plan and an input."""
    before, _, target = line.partition(" > ")
    program, *words = shlex.split(before)
    result = CliRunner().invoke(main, words)
    assert program == "tapestry" and result.exit_code == 0, (result.stderr, result.exception)
    assert result.stdout or "--output" in line
    if target:
        (folder / target).write_text(result.stdout)
        assert CliRunner().invoke(main, ["verify", target]).exit_code == 0


@pytest.mark.heavy
@pytest.mark.parametrize("line", [line for _, line in EXAMPLES if "calibrate" in line or "demo" in line])
def test_examples_that_take_seconds_run_too(line: str, folder: Path) -> None:
    result = CliRunner().invoke(main, shlex.split(line)[1:])
    assert result.exit_code == 0, (result.stderr, result.exception)


def test_the_examples_of_the_group_are_those_of_commands() -> None:
    for line in main.examples:  # type: ignore[attr-defined]
        words = shlex.split(line)
        assert words[1] in main.commands and isinstance(main.commands[words[1]], click.Command)


# -- what shells complete ------------------------------------------------------------------------------------

SHELLS = {"bash_source": BashComplete, "zsh_source": ZshComplete, "fish_source": FishComplete}


def completed(words: list[str], incomplete: str, shell: type[ShellComplete] = BashComplete) -> list[str]:
    found = shell(main, {}, "tapestry", "_TAPESTRY_COMPLETE").get_completions(words, incomplete)
    return [item.value for item in found]


@pytest.mark.parametrize("name", SHELLS)
def test_the_documented_lines_complete(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`_TAPESTRY_COMPLETE=bash_source tapestry` prints a script that asks the command again."""
    assert name in (ROOT / "tapestry_exec" / "README.md").read_text()
    if name == "bash_source":  # the script itself asks which bash there is
        monkeypatch.setattr(BashComplete, "_check_version", staticmethod(lambda: None))
    monkeypatch.setenv("_TAPESTRY_COMPLETE", name)
    script = CliRunner().invoke(main, [], prog_name="tapestry")
    assert script.exit_code == 0 and f"_TAPESTRY_COMPLETE={name.replace('source', 'complete')}" in script.stdout
    assert completed([], "ex", SHELLS[name]) == ["explain", "export"]


def test_what_is_completed(folder: Path) -> None:
    assert completed([], "tr") == ["transfers"]
    assert {"--machine", "--mesh", "--memory"} <= set(completed(["plan", "model.onnx"], "--m"))
    assert completed(["plan", "model.onnx", "--machine"], "h100x6") == ["h100x64", "h100x6"]  # the latter: a file
    assert completed(["plan", "model.onnx", "--space"], "m") == ["mesh"]
    assert completed(["ops"], "soft") == ["softmax", "softplus", "softsign"]
    assert completed(["show"], "gem") == ["gemm", "gem"]
    assert completed(["explain", "plan.json"], "c") == ["conv"]
    assert completed(["explain", "plan.json", "conv"], "") == ["conv", "act"]
    assert completed(["explain", "model.onnx"], "c") == completed(["explain", "none.json"], "c") == []
    assert "plan" in completed(["schema"], "p")


# -- near names ------------------------------------------------------------------------------------------------


def test_near_names_are_told(folder: Path) -> None:
    refused(call("plann", "model.onnx"), "no such command 'plann'; nearest of 14 commands: 'plan'")
    refused(call("plan", "model.onnx", "--mehs", 2), "No such option", "--mehs", "--mesh")
    refused(call("explain", "plan.json", "cnov"), "or output 'cnov'; known names: 'conv'", "'conv'")
    refused(call("plan", "model.onnx", "--machine", "h100x88"), "no machine 'h100x88'", "'h100x8'")
    refused(call("ops", "sofmax"), "no operator 'sofmax'; nearest of", "'softmax'")
    refused(call("show", "mathmul"), "no operator 'mathmul'; nearest of", "'matmul'")


def test_first_lines_of_helps_are_sentences() -> None:
    for name in PRESENT:
        first = (main.commands[name].help or "").partition("\n\n")[0]
        assert re.search(r"[.]\s*$", first), name
