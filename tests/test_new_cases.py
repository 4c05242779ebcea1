"""Runs with new examples and runs in parts, of test files made up here; each is a process of its own."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.every_test import part_numbers
from tests.new_cases import Repeated

ROOT = Path(__file__).resolve().parents[1]
FILE = """
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

@given(st.lists(st.integers(0, 10**9)))
def test_planted(numbers):
    with Path("drawn.txt").open("a") as file:
        print(numbers, file=file)
    assert sum(numbers) < 10**6, "planted"

@pytest.mark.parametrize("n", range(3))
@given(number=st.integers())
def test_sound(n, number):
    assert number * 0 == 0

@pytest.mark.heavy
@pytest.mark.parametrize("n", range(8))
def test_without_examples(n):
    assert n != 5
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "conftest.py").write_text("from tests.conftest import *\n")
    (tmp_path / "pyproject.toml").write_text(
        f'[tool.pytest.ini_options]\npythonpath = ["{ROOT.as_posix()}"]\n'
        'markers = ["heavy: large", "gpu: needs a GPU"]\nfilterwarnings = ["error"]\n'
    )
    (tmp_path / "test_it.py").write_text(FILE)
    return tmp_path


def ran(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """What pytest says in a process that loads no plug-in but Hypothesis, which takes a second."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "_hypothesis_pytestplugin", *words]
    env = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=120)


def drawn(folder: Path) -> list[str]:
    """Examples that a run has tried, which are forgotten then."""
    file = folder / "drawn.txt"
    lines = file.read_text().splitlines()
    file.unlink()
    return lines


@pytest.mark.heavy(2)
def test_a_number_says_the_examples_and_one_command_repeats_what_fails(folder: Path) -> None:
    found = ran(folder, "--new", "20261123")
    assert found.returncode == 1 and "1 failed, 3 passed, " in found.stdout, found.stdout + found.stderr
    first = drawn(folder)
    assert ran(folder, "--new", "20261123", "test_it.py::test_planted").returncode == 1
    assert drawn(folder) == first
    ran(folder, "--new", "20261124", "test_it.py::test_planted")
    assert drawn(folder) != first

    (command,) = re.findall(r"^python -m pytest (.* --repeat .*)$", found.stdout, re.MULTILINE)
    again = ran(folder, *shlex.split(command))
    assert again.returncode == 1 and "AssertionError: planted" in again.stdout
    assert drawn(folder) == ["[1000000]"], "the one example, made as small as it gets"


@pytest.mark.heavy(8)
def test_no_test_begins_when_time_is_over(folder: Path) -> None:
    with (folder / "conftest.py").open("a") as file:
        file.write("import tests.new_cases\ntests.new_cases.NEW_SECONDS = -1\n")
    found = ran(folder, "--new", "20261123")
    assert found.returncode == 0 and "4 skipped, 8 deselected" in found.stdout, found.stdout + found.stderr


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (lambda: Repeated("6.0"), "--repeat 6.0: take VERSION:BLOB"),
        (lambda: Repeated("6.0:AAA=").pytest_collection_modifyitems([]), "0 tests are named; name it"),
        (lambda: part_numbers("9/8"), "--part 9/8: take I/N with 1 <= I <= N, as in 2/8"),
        (lambda: part_numbers("half"), "--part half: take I/N"),
    ],
)
def test_what_cannot_be_meant_is_refused(asked: Callable[[], object], said: str) -> None:
    with pytest.raises(pytest.UsageError, match=re.escape(said)):
        asked()


@pytest.mark.heavy(8)
def test_parts_take_each_test_once_and_make_one_table(folder: Path) -> None:
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
    texts = []
    for number in (2, 1, 1):
        ran(folder, "--all", "--part", f"{number}/2", "--table", "table.md", "--hypothesis-seed", "0")
        texts.append((folder / "table.md").read_text())
    assert "1 of 2 parts; part 1 has not run." in texts[0]
    for text in texts[1:]:
        assert "2 of 2 parts.\n" in text
        (row,) = re.findall(r"^\| test_it\.py (.*)$", text, re.MULTILINE)
        assert row.startswith("| 10 | 2 | 0 |"), "12 tests, each once, also when a part has run again"
        (named,) = re.findall(r"^- `test_it.py::test_without_examples\[5\]`(.*)$", text, re.MULTILINE)
        assert not named, "a test without examples is repeated by its name"
        assert re.search(
            r"^- `test_it.py::test_planted`: python -m pytest test_it.py::test_planted --repeat ", text, re.M
        )
    parts = re.findall(r"^\| (\d) \| [-\d]{10} \|.*\| (\d) \| (\d) \| 0 \| \d+ \|$", texts[2], re.MULTILINE)
    assert [number for number, _, _ in parts] == ["1", "2"]
    assert [int(passed) + int(failed) for _, passed, failed in parts] == [6, 6]
