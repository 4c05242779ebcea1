"""The documents are true: their Python prints what they say, their links lead somewhere, their tables fit."""

from __future__ import annotations

import ast
import contextlib
import doctest
import io
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

import tapestry_plan.rewrite
import tapestry_sets.views
from tapestry_exec.run import BACKENDS
from tapestry_plan.rewrite import RULES
from tapestry_sets.alias import RUNGS, CellQuestion
from tapestry_sets.alias import tuning as alias_numbers
from tapestry_sets.integers import tuning as integers_numbers
from tapestry_sets.limits import Limits
from tapestry_sets.regions import tuning as regions_numbers
from tapestry_sets.solvers import isl
from tapestry_sets.views.kinds import KINDS

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("tapestry_sets", "tapestry_plan", "tapestry_exec")
README = (ROOT / "README.md").read_text()
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *(ROOT / p / "README.md" for p in PACKAGES)]
DRAWN = re.compile(r"```python\n((?:(?!```).)*?^picture = .*?)```.*?!\[[^\]]+\]\(([\w/]+\.svg)\)", re.S | re.M)
EXAMPLE = re.compile(r"```python\n(.*?)```\s*prints\s*```text\n(.*?)```", re.S)
SESSION = re.compile(r"```pycon\n(.*?)```", re.S)
TO_ADD = {"view kind", "operator", "ONNX operator", "backend", "rung", "picture", "rewrite", "expansion", "export"}


def tracked() -> list[str]:
    return subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False).stdout.split()


def examples(page: Path) -> list[tuple[str, str]]:
    return EXAMPLE.findall(page.read_text())


@pytest.mark.parametrize(
    ("code", "printed"),
    [pytest.param(*e, id=f"{p.relative_to(ROOT)}-{k}") for p in PAGES for k, e in enumerate(examples(p))],
)
def test_the_examples_print_what_they_say(code: str, printed: str) -> None:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(code, "example", "exec"), {})
    assert out.getvalue() == printed


SESSIONS = [page for page in PAGES if "```pycon" in page.read_text()]


@pytest.mark.parametrize("page", SESSIONS, ids=lambda p: str(p.relative_to(ROOT)))
def test_the_sessions_of_a_page_print_what_they_say(page: Path) -> None:
    """One session a page: what a block defines, later ones use."""
    text = "\n".join(SESSION.findall(page.read_text()))
    session = doctest.DocTestParser().get_doctest(text, {}, page.name, str(page), 0)
    told: list[str] = []
    found = doctest.DocTestRunner(verbose=False).run(session, out=told.append)
    assert found.attempted > 30 and not found.failed, "".join(told)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_example_says_what_it_prints(page: Path) -> None:
    assert len(examples(page)) == page.read_text().count("```python")


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    files = tracked()
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        path = (page.parent / target).resolve()
        assert path.exists(), f"{page.name} links to {target}"
        assert not files or str(path.relative_to(ROOT)) in files, f"{target} is not a tracked file"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_files_that_are_named_exist(page: Path) -> None:
    for name in re.findall(r"(?<![\w./])(?:tests|tapestry_\w+)/[\w/]+\.(?:py|md)", page.read_text()):
        assert (ROOT / name).exists(), f"{page.name} names {name}"


def test_readme_is_short() -> None:
    assert len(README.split()) <= 1000, "README is for strangers; the rest belongs to docs/ or to a package's README"


def test_the_overlap_example_of_the_command_line() -> None:
    from click.testing import CliRunner

    from tapestry_exec.cli.commands import main

    text = re.search(r"tapestry overlap '(.*?)'", README).group(1)  # type: ignore[union-attr]
    result = CliRunner().invoke(main, ["overlap", text])
    assert result.exit_code == 0 and "A[12]" in result.output


@pytest.mark.parametrize("page", [ROOT / "README.md", ROOT / "docs" / "tour.md"], ids=lambda p: p.name)
def test_pictures_are_those_that_the_examples_draw(page: Path) -> None:
    drawn = DRAWN.findall(page.read_text())
    assert drawn
    for code, target in drawn:
        names: dict[str, Any] = {}
        with contextlib.redirect_stdout(io.StringIO()):
            exec(compile(code, page.name, "exec"), names)
        assert (page.parent / target).read_text().strip() == names["picture"].svg.strip(), f"draw {target} anew"


def test_no_tracked_text_names_a_place_on_one_machine() -> None:
    for name in tracked():
        path = ROOT / name
        if path.suffix in {".py", ".md", ".toml", ".ipynb"} and path.is_file():
            places = re.findall(r"(?<![\w.])/(?:home|root|Users|work)/\w+", path.read_text(errors="ignore"))
            assert not places, f"{name} names {places[0]}"


# -- the packages' READMEs -------------------------------------------------------------------------------------------


def rows_of(page: str, head: str) -> list[list[str]]:
    """The rows of the table whose header starts with these words, cells stripped."""
    table = page.split(f"\n{head}", 1)[1].split("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table]


def wings_of(package: str) -> list[str]:
    """The package's wings as the import contract lists them, the lowest first."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (layers,) = [c["layers"] for c in contracts if c.get("containers") == [package]]
    return list(reversed(layers))


def imported_wings(package: str, wing: str) -> set[str]:
    """The other wings of the package that the wing's files import, for their types too."""
    found = set()
    for path in (ROOT / package / wing).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module:
                parts = node.module.split(".")
                found |= {parts[1]} if parts[0] == package and parts[1:] else set()
                found |= {alias.name for alias in node.names} if parts == [package] else set()
    return found - {wing}


@pytest.mark.parametrize("package", PACKAGES)
def test_the_wings_table_fits_the_folders(package: str) -> None:
    page = (ROOT / package / "README.md").read_text()
    rows = rows_of(page, "| wing | question | may import | start reading at |")
    wings = wings_of(package)
    assert [row[0] for row in rows] == wings, f"{package}/README.md lists the wings from the ground up"
    folders = {path.parent.name for path in (ROOT / package).glob("*/__init__.py")}
    assert folders == set(wings)
    for at, (wing, question, listed, start) in enumerate(rows):
        door = (ROOT / package / wing / "__init__.py").read_text()
        assert question.endswith("?") and door.startswith(f'"""{question}\n'), f"{wing}'s door asks: {question}"
        names = {name for name in re.split(r",\s*", listed) if name != "–"}
        assert names <= set(wings[:at]), f"{package}/README.md: {wing} may import only wings above it in the table"
        actual = imported_wings(package, wing) & set(wings[:at])
        assert actual <= names, f"{package}/README.md: {wing} imports {', '.join(sorted(actual))}"
        place = start.strip("`")
        assert place.startswith(f"{wing}/") and (ROOT / package / place).is_file(), f"{place} is not there"


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_readme_is_one_screen(package: str) -> None:
    assert len((ROOT / package / "README.md").read_text().splitlines()) <= 60


@pytest.mark.parametrize("package", PACKAGES)
def test_files_named_in_a_package_readme_exist(package: str) -> None:
    page = (ROOT / package / "README.md").read_text()
    wings = "|".join(wings_of(package))
    for name in re.findall(rf"(?<![\w/.])(?:{wings})/[\w/]*(?:\.py)?", page):
        assert (ROOT / package / name).exists(), f"{package}/README.md names {name}"


def test_what_can_be_added_stands_in_a_table() -> None:
    """Each of the things that a reader may add has a row in at least one package."""
    pages = [(ROOT / package / "README.md").read_text() for package in PACKAGES]
    listed = {row[0] for page in pages for row in rows_of(page, "| to add a … | touch |")}
    assert listed >= TO_ADD


def test_one_of_each_that_a_table_lists_is_added_from_outside() -> None:
    says = "`tests/test_extension.py` adds one of each from outside"
    tests = (ROOT / "tests" / "test_extension.py").read_text()
    pages = [page for page in ((ROOT / package / "README.md").read_text() for package in PACKAGES) if says in page]
    assert len(pages) == 2
    for row in (row for page in pages for row in rows_of(page, "| to add a … | touch |")):
        assert re.search(rf"\ban? {row[0]}\b", tests, re.I), f"tests/test_extension.py adds no {row[0]}"


def rungs_of(text: str) -> list[list[str]]:
    """The rows of a drawn ladder: rung, by, way, budget, left open by."""
    lines = [re.split(r"\s{2,}", line.strip()) for line in text.splitlines()]
    drawn = [line for line in lines if len(line) == 5]
    assert drawn[0][:2] == ["rung", "by"]
    return drawn[1:]


LADDERS = [
    (ROOT / "tapestry_sets" / "README.md").read_text().split("```text")[1].split("```")[0],
    ast.get_docstring(ast.parse((ROOT / "tapestry_sets" / "alias" / "ladder" / "rungs.py").read_text())) or "",
]


@pytest.mark.parametrize("text", LADDERS, ids=["README", "rungs.py"])
def test_the_drawn_ladder_is_the_one_that_is_climbed(text: str) -> None:
    """Each rung, in its order, under the name that a tally prints, with what helps it."""
    helps = {"closed": "", "closed *": "", "isl": "isl", "list": "listed"}
    climbed = [(rung.ask.__name__, rung.help) for rung in RUNGS[CellQuestion.NUMBER]]
    assert [(name, helps[by]) for name, by, *_ in rungs_of(text)] == climbed


@pytest.mark.parametrize("text", LADDERS, ids=["README", "rungs.py"])
def test_the_drawn_budgets_are_those_that_are_set(text: str) -> None:
    budgets = {
        "find_on_axes": regions_numbers.MAX_PROGRESSIONS,
        "find_in_bands": alias_numbers.MAX_LINES,
        "leap_blocks": integers_numbers.BLOCKS,
        "find_by_rows": Limits().max_pieces,
        "find_on_diagonal": alias_numbers.MAX_SETTS,
        "try_samples": alias_numbers.SAMPLE,
        "find_before_turn": alias_numbers.MAX_PRODUCTS,
        "leap_with_isl": isl.NEST_OPERATIONS,
        "try_around": alias_numbers.TRIED,
        "solve_sums": alias_numbers.MAX_PAIRS,
        "find_by_isl": isl.MAX_OPERATIONS,
        "find_in_listed_sets": integers_numbers.MAX_LISTED,
        "find_by_list": alias_numbers.MAX_SCAN,
    }
    assert {name: budget.split()[0] for name, _, _, budget, _ in rungs_of(text)} == {
        name: f"{number:,}" for name, number in budgets.items()
    }


def test_the_limits_page_says_how_much_is_listed() -> None:
    page = (ROOT / "docs" / "limits.md").read_text()
    assert f"past {alias_numbers.MAX_SCAN:,} cells of a view and {integers_numbers.MAX_LISTED:,} elements" in page


@pytest.mark.parametrize("package", PACKAGES)
def test_edges_that_point_up_are_listed(package: str) -> None:
    """Imports for types alone, which no contract sees, stand in the package's README."""
    wings = wings_of(package)
    up = {(wing, other) for at, wing in enumerate(wings) for other in imported_wings(package, wing) & set(wings[at:])}
    listed = set(re.findall(r"`(\w+)` → `(\w+)`", (ROOT / package / "README.md").read_text()))
    assert listed == up


# -- what the tables of additions say is touched ----------------------------------------------------------------------


def test_view_kinds_are_named_in_their_wings_door() -> None:
    assert {kind.__name__ for kind in KINDS.values()} <= vars(tapestry_sets.views).keys()


def test_view_kinds_are_read_from_the_modules_that_the_table_names() -> None:
    """A kind elsewhere would be written as its pieces, as one from outside is."""
    page = (ROOT / "tapestry_sets" / "README.md").read_text()
    (row,) = (row for row in rows_of(page, "| to add a … | touch |") if row[0] == "view kind")
    there = {path.name for path in (ROOT / "tapestry_sets" / "views" / "kinds").glob("*.py")}
    read = {f"{kind.__module__.rsplit('.', 1)[1]}.py" for kind in KINDS.values()}
    assert set(re.findall(r"`(\w+\.py)`", row[1])) == read == there - {"__init__.py", "kind.py", "axis_maps.py"}


def test_rewrites_are_named_in_their_wings_door() -> None:
    door = vars(tapestry_plan.rewrite)
    assert [name for name, rule in RULES.items() if door.get(name) is not rule] == []


@pytest.mark.parametrize("wing", ["tapestry_sets/draw", "tapestry_plan/draw"])
def test_pictures_are_named_in_their_wings_door(wing: str) -> None:
    door = (ROOT / wing / "__init__.py").read_text()
    for path in (ROOT / wing).glob("*.py"):
        for name in re.findall(r"^def (show\w*)", path.read_text(), re.M):
            assert re.search(rf"import .*\b{name}\b", door), f"{wing}'s door does not import {name}"


def test_each_backends_wing_is_in_the_contract() -> None:
    assert {f"tapestry_exec.{wing}" for wing in wings_of("tapestry_exec")} >= {wing for wing, _ in BACKENDS.values()}
