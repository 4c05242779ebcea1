"""Notebooks are kept as they are written: without outputs, and with nothing of the machine that ran them.

That they run is seen by pytest itself, which collects them with nbmake.
"""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

NOTEBOOKS = sorted((Path(__file__).resolve().parent.parent / "notebooks").glob("*.ipynb"))


def cells(path: Path, kind: str) -> list[dict[str, Any]]:
    return [cell for cell in json.loads(path.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == kind]


def test_there_are_notebooks() -> None:
    assert NOTEBOOKS


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_has_no_outputs(path: Path) -> None:
    for cell in cells(path, "code"):
        assert cell["outputs"] == [] and cell["execution_count"] is None, f"clear the outputs of {path.name}"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_says_nothing_of_a_machine(path: Path) -> None:
    whole = json.loads(path.read_text(encoding="utf-8"))
    assert whole["metadata"] == {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    assert all(cell["metadata"] == {} for cell in whole["cells"])
    assert len({cell["id"] for cell in whole["cells"]}) == len(whole["cells"])


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_each_cell_that_shows_something_asserts_something(path: Path) -> None:
    imports, *rest = cells(path, "code")
    assert "import" in "".join(imports["source"])
    for cell in rest:
        nodes = list(ast.walk(ast.parse("".join(cell["source"]))))
        assert any(isinstance(node, ast.Assert) for node in nodes), f"{path.name}, {cell['id']} checks nothing"
