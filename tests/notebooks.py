"""Notebooks without a kernel: their cells, what each shows, their answers, and the page that they are when they ran."""

from __future__ import annotations

import ast
import contextlib
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

FOLDER = Path(__file__).resolve().parent.parent / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
QUESTION = "**What do you expect?**"
"""What a question begins with; the cell behind it has the answer."""
CODE = re.compile(r"```python\n(.*?)```", re.S)


class Shown(NamedTuple):
    """What a cell of code gave: its place, its last expression's value, and what it printed."""

    at: int
    value: Any
    printed: str


class Exercise(NamedTuple):
    """A task, and the answer that is hidden until it is opened."""

    task: str
    hidden: str


def read_cells(path: Path) -> list[dict[str, Any]]:
    """The cells of a notebook, each with its source as one text."""
    found: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return [{**cell, "source": "".join(cell["source"])} for cell in found]


def list_exercises(path: Path) -> list[Exercise]:
    """The exercises of a notebook."""
    found = []
    for cell in read_cells(path):
        if cell["cell_type"] == "markdown" and cell["source"].startswith("**Exercise "):
            task, _, rest = cell["source"].partition("<details><summary>Answer</summary>\n\n")
            hidden, _, after = rest.partition("\n</details>")
            assert after == "", f"{path.name}, {cell['id']}: an exercise ends with its answer"
            found.append(Exercise(task, hidden))
    return found


def run_code(source: str, name: str, names: dict[str, Any]) -> Any:
    """Run a cell's code in a namespace; the value of its last line, where that is an expression."""
    tree = ast.parse(source)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, name, "exec"), names)
    return eval(compile(ast.Expression(last.value), name, "eval"), names) if isinstance(last, ast.Expr) else None


def run_cells(path: Path, names: dict[str, Any]) -> Iterator[Shown]:
    """Run a notebook's cells in one namespace, as a kernel does."""
    for at, cell in enumerate(read_cells(path)):
        if cell["cell_type"] == "code":
            with contextlib.redirect_stdout(out := io.StringIO()):
                value = run_code(cell["source"], f"{path.stem} {cell['id']}", names)
            yield Shown(at, value, out.getvalue())


def make_page(path: Path, shown: list[Shown], theme: str = "light") -> str:
    """A notebook that has run, as nbconvert makes a page of it; scripts from elsewhere are left out."""
    nbconvert = pytest.importorskip("nbconvert", reason="notebooks become pages by nbconvert")
    nbformat = pytest.importorskip("nbformat")
    formatters = pytest.importorskip("IPython.core.formatters")
    notebook, formatter = nbformat.read(path, as_version=4), formatters.DisplayFormatter()
    for one in shown:
        outputs = notebook.cells[one.at].outputs
        if one.printed:
            outputs.append(nbformat.v4.new_output("stream", name="stdout", text=one.printed))
        if one.value is not None:
            data, metadata = formatter.format(one.value)
            outputs.append(nbformat.v4.new_output("execute_result", data=data, metadata=metadata, execution_count=None))
    page: str = nbconvert.HTMLExporter(theme=theme).from_notebook_node(notebook)[0]
    return re.sub(r"<script[^>]* src=[^>]*></script>", "", page)
