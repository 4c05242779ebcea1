"""The documents are true: their Python prints what they say, their links lead somewhere, their tables fit."""

from __future__ import annotations

import ast
import builtins
import contextlib
import doctest
import inspect
import io
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any, get_args, get_origin, get_type_hints

import numpy as np
import onnx.parser
import pytest

import tapestry_plan
import tapestry_plan.ops
import tapestry_plan.rewrite
import tapestry_sets
import tapestry_sets.views
from tapestry_exec import Deployment, RunResult
from tapestry_exec.run import BACKENDS
from tapestry_plan import Graph, Mesh, Operation, PlannedTransfers, ShardPlan, Tensor, ops
from tapestry_plan.onnx import to_onnx
from tapestry_plan.rewrite import RULES
from tapestry_sets import (
    AffineMap,
    AliasTensor,
    Box,
    DisjointRegions,
    DisjointSetts,
    Overlap,
    Region,
    Sett,
    Stripe,
    View,
)
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
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md")),
    *sorted((ROOT / "docs").glob("*.md")),
    *(ROOT / package / "README.md" for package in PACKAGES),
]
DRAWN = re.compile(r"```python\n((?:(?!```).)*?^picture = .*?)```.*?!\[[^\]]+\]\(([\w/]+\.svg)\)", re.S | re.M)
EXAMPLE = re.compile(r"```python\n(.*?)```\s*prints\s*```text\n(.*?)```", re.S)
COMMANDS = re.compile(r"```sh\n(.*?)```", re.S)
SETS_UP = re.compile(
    r"python3? (-m (venv|pytest)|tests/bench/)|\. \.venv/bin/activate$|pip install|ruff|mypy|lint-imports|sphinx-build|"
    r"(\.venv/bin/)?tapestry demo$"
)
"""Commands that only a fresh environment can follow: `.ci/run` does."""
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
    if "import jax" in code:
        pytest.importorskip("jax", reason="JAX is not installed; `.ci/run --all` runs this where it is")
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


def commands() -> list[Any]:
    """The lines of the documents' shells that call the command `tapestry`, but README's, which are followed in a clean
    clone; measuring a machine takes long."""
    lines = [
        (page, line)
        for page in PAGES[1:]
        for block in COMMANDS.findall(page.read_text())
        for line in block.splitlines()
    ]
    return [
        pytest.param(line, id=f"{page.relative_to(ROOT)}: {line}", marks=[pytest.mark.heavy] * ("calibrate" in line))
        for page, line in lines
        if not SETS_UP.match(line)
    ]


@pytest.mark.parametrize("line", commands())
def test_the_commands_run(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each line by itself, in a folder with a model and its plan, with the shell's `&&` and `>`."""
    from click.testing import CliRunner

    from tapestry_exec.cli.commands import main

    monkeypatch.chdir(tmp_path)
    Path("model.onnx").write_bytes(small_model(is_open="batch=" in line))
    Path("plan.json").write_text(CliRunner().invoke(main, ["plan", "model.onnx", "--mesh", "2x2", "--json"]).stdout)
    for command in line.split(" && "):
        words, _, target = command.partition(" > ")
        name, *arguments = shlex.split(words)
        assert name == "tapestry", f"{name} is neither `tapestry` nor what sets something up"
        result = CliRunner().invoke(main, arguments)
        if found := re.search(r"pip install (jax|torch)", result.stderr):
            pytest.skip(f"{found[1]} is not installed")
        assert result.exit_code == 0, result.stderr
        assert result.stdout or list(tmp_path.iterdir())
        if target:
            Path(target).write_text(result.stdout)


FOLLOW = """
import contextlib, io, pathlib, shlex, sys
import tapestry_exec, tapestry_plan, tapestry_sets
from click.testing import CliRunner
from tapestry_exec.cli.commands import main
from importlib.util import find_spec

site, examples, lines, models = sys.argv[1], *map(eval, sys.argv[2:])
for package in (tapestry_sets, tapestry_plan, tapestry_exec):
    assert package.__file__.startswith(site), package.__file__
for code, printed in examples:
    if "import jax" in code and not find_spec("jax"):
        continue
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(compile(code, "README.md", "exec"), {})
    assert out.getvalue() == printed, (code, out.getvalue())
for line in lines:
    pathlib.Path("model.onnx").write_bytes(models["batch=" in line])
    for command in line.split(" && "):
        words, _, target = command.partition(" > ")
        result = CliRunner().invoke(main, shlex.split(words)[1:])
        assert result.exit_code == 0 and (result.stdout or target), (command, result.stderr)
        if target:
            pathlib.Path(target).write_text(result.stdout)
print("followed", len(examples), "examples and", len(lines), "commands")
"""
"""What a new process does of README, in its order, with the packages in a folder."""


@pytest.mark.heavy(2)
def test_a_clean_clone_does_what_the_readme_says(tmp_path: Path) -> None:
    """What Git has is built, installed beside the libraries that are here, and asked what README asks: with no network,
    and nothing of this checkout. A fresh environment with its downloads is what `.ci/run` makes."""
    pytest.importorskip("hatchling", reason="hatchling, which builds the wheel, is missing")
    if not tracked():
        pytest.skip("a source distribution has no history to clone")
    clone, site, work = tmp_path / "clone", tmp_path / "site", tmp_path / "work"
    work.mkdir()

    def call(*words: object) -> str:
        alone = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        settings = {**alone, "PYTHONPATH": str(site), "PYTHONIOENCODING": "utf-8"}
        ended = subprocess.run(
            list(map(str, words)), cwd=work, env=settings, capture_output=True, text=True, check=False
        )
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    call("git", "clone", "--quiet", "--shared", ROOT, clone)
    offline = ("--no-index", "--no-deps", "--no-build-isolation", "--disable-pip-version-check", "--quiet")
    call(sys.executable, "-m", "pip", "install", *offline, "--target", site, clone)
    page = clone / "README.md"
    blocks = [line for block in COMMANDS.findall(page.read_text()) for line in block.splitlines()]
    (begin,) = (line for line in blocks if line.endswith("tapestry demo"))
    assert begin == "python3 -m venv .venv && .venv/bin/pip install . && .venv/bin/tapestry demo"
    assert "predicted and counted equal" in call(site / "bin" / "tapestry", "demo")
    lines = [line for line in blocks if line.startswith("tapestry ")]
    assert {*re.findall(r"\btapestry (\w+) ", "\n".join(lines))} >= {"plan", "transfers", "run", "overlap", "show"}
    models = {is_open: small_model(is_open) for is_open in (False, True)}
    said = call(sys.executable, "-c", FOLLOW, site, examples(page), lines, models)
    assert said == f"followed {len(examples(page))} examples and {len(lines)} commands\n" and len(examples(page)) >= 4


OPEN = onnx.parser.parse_model(
    '<ir_version: 8, opset_import: ["" : 21]>'
    "agraph (float[batch, 4] x) => (float[4, batch] y) { a = Relu(x) b = Transpose(a) y = Exp(b) }"
)


@cache
def small_model(is_open: bool = False) -> bytes:
    """Two operators; with batches of any size, in a model that is open."""
    if is_open:
        return bytes(OPEN.SerializeToString())
    g = Graph()
    hidden = ops.relu(ops.matmul(g.input("x", (8, 16)), g.constant("w", np.ones((16, 8), np.float32)), name="up"))
    g.output(ops.relu(hidden, name="act"), "y")
    made: bytes = to_onnx(g).SerializeToString()
    return made


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_block_of_code_is_run_or_printed(page: Path) -> None:
    """Blocks are Python, which prints a text; a text alone, which is a picture; a shell's; or taken from elsewhere."""
    kinds = re.findall(r"^```(\S+)", page.read_text(), re.M)
    assert {*kinds} <= {"python", "pycon", "text", "sh", "{include}", "{toctree}"}


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
    assert len(README.split()) <= 900, "README is for strangers; the rest belongs to docs/ or to a package's README"


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


# -- docstrings ------------------------------------------------------------------------------------------------------

PUBLIC = [(package, name) for package in map(sys.modules.get, PACKAGES) for name in package.__all__]  # type: ignore[union-attr]
OPERATORS = [(tapestry_plan.ops, name) for name in vars(tapestry_plan.ops) if not name.startswith("_")]
WINGS = {path.stem for path in (ROOT / "tapestry_plan" / "ops").iterdir()}
NAMED = PUBLIC + [(module, name) for module, name in OPERATORS if name not in WINGS]
"""Public names by whose they are; of the operators' wing all but its modules."""

SETS = (Stripe, Sett, DisjointSetts, Region, DisjointRegions, View, Overlap)
ASKED = (
    *SETS,
    AffineMap,
    AliasTensor,
    Box,
    Graph,
    Tensor,
    Operation,
    Mesh,
    ShardPlan,
    PlannedTransfers,
    Deployment,
    RunResult,
)
"""What users have in hand: its methods have examples too, those that it inherits in the class that has them."""


@cache
def words_behind(package: str) -> dict[str, tuple[str, str]]:
    """The strings that stand behind assignments, by the name that is assigned to: module, and text."""
    found = {}
    for path in (ROOT / package).rglob("*.py"):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        body = ast.parse(path.read_text()).body
        for line, words in pairwise(body):
            if isinstance(words, ast.Expr) and isinstance(words.value, ast.Constant):
                target = line.targets[0] if isinstance(line, ast.Assign) else getattr(line, "target", None)
                if isinstance(target, ast.Name) and isinstance(words.value.value, str):
                    found[target.id] = module, words.value.value
    return found


def own_words(package: ModuleType, name: str) -> str:
    """What stands in a public object's own docstring, or behind the assignment that makes it."""
    given = getattr(package, name)
    if isinstance(given, type) and given.__module__.startswith("tapestry"):
        return vars(given).get("__doc__") or ""
    if inspect.isroutine(given) or isinstance(given, ModuleType):
        return given.__doc__ or ""
    return words_behind(package.__name__.partition(".")[0]).get(name, ("", ""))[1]


def test_every_public_name_has_an_example() -> None:
    assert len(NAMED) > 250
    assert [name for package, name in NAMED if ">>> " not in own_words(package, name)] == []


def users_of(kind: type) -> Iterator[tuple[str, Any]]:
    """The public methods of a class, and the properties."""
    for name in dir(kind):
        given = inspect.getattr_static(kind, name)
        made = given.__func__ if isinstance(given, classmethod | staticmethod) else given
        made = getattr(made, "fget", None) or getattr(made, "func", None) or made
        if not name.startswith("_") and inspect.isroutine(made):
            yield name, inspect.unwrap(made)


@pytest.mark.parametrize("kind", ASKED, ids=lambda kind: kind.__name__)
def test_every_method_that_users_call_has_an_example(kind: type) -> None:
    assert [name for name, method in users_of(kind) if ">>> " not in (method.__doc__ or "")] == []


def names_from_nowhere(text: str) -> set[str]:
    """Names that examples read and neither import nor define: those of the module that they stand in."""
    read, bound = set(), {*dir(builtins)}
    for node in ast.walk(ast.parse("".join(one.source for one in doctest.DocTestParser().get_examples(text)))):
        if isinstance(node, ast.Name):
            (read if isinstance(node.ctx, ast.Load) else bound).add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            bound.add(node.name)
        elif isinstance(node, ast.arg):
            bound.add(node.arg)
        elif isinstance(node, ast.alias):
            bound.add(node.asname or node.name.partition(".")[0])
        elif isinstance(node, ast.ExceptHandler):
            bound.add(node.name or "")
    return read - bound


def test_examples_can_be_pasted() -> None:
    """They bring along what they use: who reads them in an editor or on a page has no module around them."""
    texts = [(name, own_words(package, name)) for package, name in NAMED]
    texts += [(name, method.__doc__ or "") for kind in ASKED for name, method in users_of(kind)]
    assert {name: missing for name, text in texts if (missing := names_from_nowhere(text))} == {}


@cache
def texts_that_run(module: str) -> frozenset[str]:
    """The docstrings whose examples a run of the doctests finds in a module."""
    finder = doctest.DocTestFinder(exclude_empty=True)
    return frozenset(test.docstring for test in finder.find(sys.modules[module]) if test.examples and test.docstring)


def test_the_examples_of_public_names_are_found() -> None:
    """No wrapper hides one from the run of the doctests."""
    hidden = []
    for package, name in NAMED:
        given = getattr(package, name)
        if isinstance(given, type) or inspect.isroutine(given):
            text = own_words(package, name)
            if text and text not in texts_that_run(inspect.unwrap(given).__module__):
                hidden.append(name)
    assert hidden == []


DATA = sorted({(p.__name__.partition(".")[0], name) for p, name in NAMED if not callable(getattr(p, name))})


@pytest.mark.parametrize(("package", "name"), [pytest.param(*each, id=each[1]) for each in DATA])
def test_the_examples_behind_assignments_run(package: str, name: str) -> None:
    """Those that a run of the doctests does not find: of values, which have no docstring."""
    if name in words_behind(package):
        module, text = words_behind(package)[name]
        examples = doctest.DocTestParser().get_doctest(text, dict(vars(sys.modules[module])), name, None, None)
        assert examples.examples
        assert doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(examples).failed == 0
    else:
        assert isinstance(getattr(sys.modules[package], name), ModuleType)


def test_public_functions_say_what_they_take() -> None:
    """An editor completes nothing of a parameter that is hinted `object`, or not at all."""
    vague = []
    for package, name in NAMED:
        if inspect.isroutine(getattr(package, name)):
            function: Callable[..., Any] = inspect.unwrap(getattr(package, name))
            hints = {each.name: str(each.annotation) for each in inspect.signature(function).parameters.values()}
            vague += [(name, what, hint) for what, hint in hints.items() if re.search(r"\b(object|_empty)\b", hint)]
    assert vague == []


def test_what_alias_questions_take_is_named() -> None:
    """Views, arrays of any library and other memory: each is one of the types that `overlap` is hinted with."""
    hint = get_type_hints(tapestry_sets.overlap)["a"]
    assert {View, np.ndarray} <= {get_origin(one) or one for one in get_args(hint)}
    told = {name for one in get_args(hint) if isinstance(one, type) for name in vars(one)}
    assert {"__array_interface__", "__dlpack__", "__cuda_array_interface__", "__buffer__", "view"} <= told


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


@cache
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
