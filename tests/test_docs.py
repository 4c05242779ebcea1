"""README is true: its Python runs and prints what it says, its names exist, its words are the project's own."""

from __future__ import annotations

import contextlib
import io
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()


def test_the_examples_print_what_readme_says() -> None:
    examples = re.findall(r"```python\n(.*?)```\s*prints\s*```text\n(.*?)```", README, re.S)
    assert len(examples) == README.count("```python")
    for code, printed in examples:
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile(code, "README.md", "exec"), {})
        assert out.getvalue() == printed


def test_the_map_of_the_code_is_complete() -> None:
    listed = README.split("## The code")[1].split("A view kind is")[0]
    for package in ("tapestry_sets", "tapestry_plan", "tapestry_exec"):
        for path in (ROOT / package).glob("[a-z]*.py"):
            assert re.search(rf"\b{path.stem}\b", listed), f"README's map lacks {package}/{path.name}"


def test_links_lead_somewhere() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False).stdout.split()
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert (ROOT / target).exists() and (not listed or target in listed), f"{target} is not a tracked file"


def test_the_overlap_example_of_the_command_line() -> None:
    from click.testing import CliRunner

    from tapestry_exec.cli.commands import main

    text = re.search(r"tapestry overlap '(.*?)'", README).group(1)  # type: ignore[union-attr]
    result = CliRunner().invoke(main, ["overlap", text])
    assert result.exit_code == 0 and "A[12]" in result.output


def test_no_tracked_text_names_a_place_on_one_machine() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False).stdout.split()
    for name in listed:
        path = ROOT / name
        if path.suffix in {".py", ".md", ".toml", ".ipynb"} and path.is_file():
            places = re.findall(r"(?<![\w.])/(?:home|root|Users|work)/\w+", path.read_text(errors="ignore"))
            assert not places, f"{name} names {places[0]}"
