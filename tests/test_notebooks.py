"""Notebooks are kept as they are written, without outputs; they ask before they tell, and their answers are right.

That they run in a kernel is seen as the site is made, and with `--all` by nbmake, which pytest collects them with.
"""

from __future__ import annotations

import ast
import json
import re
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from tests.notebooks import (
    CODE,
    FOLDER,
    NOTEBOOKS,
    QUESTION,
    Shown,
    list_exercises,
    make_page,
    read_cells,
    run_cells,
    run_code,
)
from tests.pages import open_page, start_chromium

LINK = re.compile(r"\]\(([^)#\s]+)\)")
each = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


@cache
def ran(path: Path) -> tuple[dict[str, Any], list[Shown]]:
    """The names that a notebook leaves, and what its cells showed; without sliders, which need a kernel."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "ipywidgets", None)
        names: dict[str, Any] = {}
        return names, list(run_cells(path, names))


@cache
def page_of(path: Path) -> str:
    return make_page(path, ran(path)[1])


# -------------------------------------------------------------------------------------------------- how they are kept


def test_there_are_notebooks() -> None:
    assert [path.name[0] for path in NOTEBOOKS] == [str(k + 1) for k in range(len(NOTEBOOKS))] and len(NOTEBOOKS) >= 5


@each
def test_a_notebook_has_no_outputs(path: Path) -> None:
    for cell in read_cells(path):
        if cell["cell_type"] == "code":
            assert cell["outputs"] == [] and cell["execution_count"] is None, f"clear the outputs of {path.name}"


@each
def test_a_notebook_says_nothing_of_a_machine(path: Path) -> None:
    whole = json.loads(path.read_text(encoding="utf-8"))
    assert whole["metadata"] == {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    assert all(cell["metadata"] == {} for cell in whole["cells"])
    assert len({cell["id"] for cell in whole["cells"]}) == len(whole["cells"])


@each
def test_each_cell_that_shows_something_asserts_something(path: Path) -> None:
    imports, *rest = (cell for cell in read_cells(path) if cell["cell_type"] == "code")
    assert "import" in imports["source"]
    for cell in rest:
        assert asserts(cell["source"]), f"{path.name}, {cell['id']} checks nothing"


def asserts(source: str) -> bool:
    return any(isinstance(node, ast.Assert) for node in ast.walk(ast.parse(source)))


# ------------------------------------------------------------------------------------------------------ what they ask


@each
def test_a_notebook_asks_before_it_tells(path: Path) -> None:
    cells = read_cells(path)
    asked = [at for at, cell in enumerate(cells) if cell["cell_type"] == "markdown" and QUESTION in cell["source"]]
    assert len(asked) >= 3
    for at in asked:
        assert cells[at]["source"].partition(QUESTION)[2].count("?") >= 1
        assert cells[at + 1]["cell_type"] == "code", f"{path.name}: run the answer right behind {cells[at]['id']}"


@each
def test_what_is_expected_is_shown(path: Path) -> None:
    """Behind each question something is printed or drawn: an assertion that holds would show nothing."""
    cells, shown = read_cells(path), {one.at: one for one in ran(path)[1]}
    for at, cell in enumerate(cells):
        if cell["cell_type"] == "markdown" and QUESTION in cell["source"]:
            assert shown[at + 1].printed or shown[at + 1].value is not None, (
                f"{path.name}: nothing follows {cell['id']}"
            )


@each
def test_hidden_answers_run_and_are_right(path: Path) -> None:
    exercises = list_exercises(path)
    assert len(exercises) >= 3
    for number, exercise in enumerate(exercises, 1):
        assert exercise.task.startswith(f"**Exercise {number}.**") and "```" not in exercise.task
        codes = CODE.findall(exercise.hidden)
        assert codes and any(map(asserts, codes)), f"{path.name}: the answer to exercise {number} checks nothing"
        names = dict(ran(path)[0])
        for code in codes:
            run_code(code, f"{path.stem}, answer {number}", names)


@each
def test_a_notebook_ends_with_a_summary_and_the_next_one(path: Path) -> None:
    cells = read_cells(path)
    assert cells[-1]["cell_type"] == "markdown" and "## Summary" in cells[-1]["source"]
    later = NOTEBOOKS[NOTEBOOKS.index(path) + 1 :]
    following = later[0].name if later else NOTEBOOKS[0].name
    assert "Next: " in cells[-1]["source"] and following in LINK.findall(cells[-1]["source"])
    for cell in cells:
        if cell["cell_type"] == "markdown":
            for target in LINK.findall(cell["source"]):
                assert target.startswith("https://") or (FOLDER / target).exists(), f"{path.name} links to {target}"


# ----------------------------------------------------------------------------------------------------- how they look


class Pictures(HTMLParser):
    """The pictures of a page, each with what it says to those who do not see it; those in frames are not among them."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.told: list[bool] = []
        self.inside = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        own = dict(attrs)
        if tag == "img":
            self.told.append(bool(own.get("alt")) and "No description" not in str(own["alt"]))
        elif tag == "iframe":
            self.told.append(bool(own.get("title")))
        elif tag == "svg":
            said = own.get("role") == "img" and bool(own.get("aria-label") or own.get("aria-labelledby"))
            self.told.append(said or own.get("aria-hidden") == "true")
        elif tag == "title" and self.told and self.inside:
            self.told[-1] = True
        self.inside = tag in ("svg", "title") and own.get("role", "img") == "img"


@pytest.mark.heavy
@each
def test_pictures_say_what_they_show(path: Path) -> None:
    told = Pictures(page_of(path)).told
    assert len(told) >= 3 and all(told), f"{told.count(False)} of {len(told)} pictures say nothing"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with start_chromium() as found:
        yield found


LAID_OUT = """() => {
  const outside = (one) => one.getBoundingClientRect().right > document.documentElement.clientWidth + 1;
  const shown = [...document.querySelectorAll("svg, img, iframe")].filter((one) => one.checkVisibility());
  const drawn = (one) => [...one.querySelectorAll("svg")].filter((svg) => svg.checkVisibility()).length;
  const page = document.documentElement;
  return {
    outside: shown.filter(outside).length,
    sideways: Math.max(0, page.scrollWidth - page.clientWidth),
    drawn: [...document.querySelectorAll(".tapestry-picture")].map(drawn),
  };
}"""
"""How many pictures reach beyond a page, how far it scrolls sideways, and how many drawings of each picture show."""


@pytest.mark.heavy
@each
@pytest.mark.parametrize("width", [400, 1100])
def test_pictures_fit_the_page(browser: Any, path: Path, width: int, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text(page_of(path), "utf-8")
    with open_page(browser, page, width=width) as opened:
        found = opened.page.evaluate(LAID_OUT)
        assert (found["outside"], found["sideways"]) == (0, 0)
        assert set(found["drawn"]) <= {1}  # the wide or the narrow one
        failed = [line for line in opened.printed if line.startswith("error")]
        assert all("Failed to load resource" in line for line in failed), failed  # nbconvert's own, from elsewhere


# ------------------------------------------------------------------------------------------------------ opening them


def test_the_extra_that_opens_notebooks_brings_the_widgets() -> None:
    project = tomllib.loads((FOLDER.parent / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    assert f"{project['name']}[widgets]" in extras["notebook"]  # of this name, or another package would be installed
    brought = {re.split(r"[<>=\[; ]", one)[0] for one in (*extras["notebook"], *extras["widgets"])}
    assert {"jupyterlab", "anywidget", "ipywidgets"} <= brought
