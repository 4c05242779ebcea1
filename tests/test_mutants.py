"""The lists of tests/bench/mutate.py: modules and tests stand where they say, and arguments are about the code."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
ROWS = [
    row for path in sorted(ROOT.glob("tests/bench/mutants/*.toml")) for row in tomllib.loads(path.read_text())["module"]
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["path"])
def test_arguments_are_about_lines_of_the_module(row: dict[str, Any]) -> None:
    text = (ROOT / row["path"]).read_text()
    assert [path for path in row["tests"] + row.get("wider", []) if not (ROOT / path).exists()] == []
    for mutant in row.get("equivalent", []):
        assert mutant["line"] in text, "the line is gone, and its argument with it"
        assert mutant["line"] != mutant["becomes"] and mutant["why"].strip()


def test_no_module_is_listed_twice() -> None:
    paths = [row["path"] for row in ROWS]
    assert paths and len(set(paths)) == len(paths)
