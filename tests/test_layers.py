"""A wing is entered through its door, importing loads nothing heavy; import-linter holds the layers."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("tapestry_sets", "tapestry_plan", "tapestry_exec")
PATHS = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for package in PACKAGES
    for path in sorted((ROOT / package).rglob("*.py"))
}
"""All modules of ours."""
WINGS = {
    wing: [module for module in PATHS if ".".join(module.split(".")[:2]) == wing]
    for wing in dict.fromkeys(".".join(module.split(".")[:2]) for module in PATHS)
}
"""Their modules, by wing; a package's root is one of its own."""
FOREIGN = {
    "onnx": ("tapestry_plan.onnx", "tapestry_plan.ops"),
    "onnxruntime": ("tapestry_exec.cli", "tapestry_exec.onnxruntime", "tapestry_plan.ops"),
    "islpy": ("tapestry_sets.solvers",),
    "sympy": ("tapestry_sets.solvers", "tapestry_sets.interop"),
    "scipy": ("tapestry_plan.ops", "tapestry_exec.simulated"),
    "cupy": ("tapestry_exec.cuda",),
    "distributed": ("tapestry_exec.dask",),
    "mpi4py": ("tapestry_exec.mpi",),
    "anywidget": ("tapestry_plan.report",),
    "traitlets": ("tapestry_plan.report",),
    "click": ("tapestry_exec.cli",),
    "rich": ("tapestry_exec.cli",),
}
"""The wings that may import each library that a machine may lack or that takes long to load."""
LOADED_WHEN_ASKED_FOR = (
    *FOREIGN,
    "dask",
    "tapestry_exec.cuda",
    "tapestry_exec.simulated",
    "tapestry_exec.onnxruntime",
    "tapestry_exec.dask",
    "tapestry_exec.mpi",
    "tapestry_exec.cli",
    "tapestry_plan.onnx",
)


def wing_of(module: str) -> str:
    return ".".join(module.split(".")[:2])


@cache
def tree_of(module: str) -> ast.Module:
    return ast.parse(PATHS[module].read_text())


def names_behind(door: str) -> set[str]:
    """What a door imports, which is what it offers."""
    nodes = [node for node in tree_of(door).body if isinstance(node, ast.ImportFrom)]
    return {alias.asname or alias.name for node in nodes for alias in node.names}


def own_imports(module: str) -> Iterator[tuple[str, list[str]]]:
    """Modules of ours that a module imports from, and the names; none for ``import module``."""
    for node in ast.walk(tree_of(module)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, []) for alias in node.names if alias.name.split(".")[0] in PACKAGES)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in PACKAGES:
            yield node.module or "", [alias.name for alias in node.names]


@pytest.mark.parametrize("wing", [wing for wing in WINGS if wing not in PACKAGES])
def test_other_wings_are_entered_through_their_doors(wing: str) -> None:
    for module, (owner, names) in ((one, found) for one in WINGS[wing] for found in own_imports(one)):
        if wing_of(owner) == wing or (owner in PACKAGES and {f"{owner}.{name}" for name in names} <= PATHS.keys()):
            continue  # a sibling, or a wing itself as a module
        assert owner.count(".") == 1, f"{module} imports from {owner}: take it from the door {wing_of(owner)}"
        offered = names_behind(owner)
        assert names, f"{module} imports {owner}: import names from it"
        for name in names:
            assert not name.startswith("_"), f"{module} imports the private {name} from {owner}"
            assert name in offered, f"{module} imports {name} from {owner}, whose door does not import it"


@pytest.mark.parametrize("wing", WINGS)
def test_own_code_is_imported_at_the_top(wing: str) -> None:
    """The one exception, the table of backends' wings, names them as text."""
    for module in WINGS[wing]:
        tree = tree_of(module)
        top = {id(node) for block in tree.body for node in (block.body if isinstance(block, ast.If) else [block])}
        for node in ast.walk(tree):
            if isinstance(node, ast.Import | ast.ImportFrom) and id(node) not in top:
                owner = node.module or "" if isinstance(node, ast.ImportFrom) else node.names[0].name
                assert owner.split(".")[0] not in PACKAGES, f"{module} imports {owner} inside a function"


def loaded_first(module: str) -> set[str]:
    """Modules of ours that a module loads before it is there itself."""
    found = set()
    for node in tree_of(module).body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in PACKAGES:
            inside = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= inside if inside <= PATHS.keys() else {node.module or ""}
    return found


def test_there_are_no_cycles() -> None:
    """Within wings too, of which import-linter says nothing; the error names the cycle."""
    TopologicalSorter({module: loaded_first(module) for module in PATHS}).prepare()


PICTURE = re.compile(r"each row stands on rows above it(, or beside it)?:\n\n((?: {4}.+\n)+)")
DRAWN = {
    door: found
    for door, path in PATHS.items()
    if path.stem == "__init__" and (found := PICTURE.search(ast.get_docstring(tree_of(door)) + "\n"))
}
"""Doors that draw the order of their modules, and the pictures."""
INSIDE = [door for door in DRAWN if door not in WINGS]
"""Those of folders inside of a wing, which are entered through them too."""


@pytest.mark.parametrize("door", INSIDE)
def test_folders_inside_of_a_wing_are_entered_through_their_doors(door: str) -> None:
    offered, asked = names_behind(door), set()
    for module in PATHS:
        for owner, names in own_imports(module) if not f"{module}.".startswith(f"{door}.") else ():
            assert not owner.startswith(f"{door}."), f"{module} imports from {owner}: take it from the door {door}"
            asked |= set(names) if owner == door else set()
    assert offered == asked, f"{door} offers what nobody takes, or lacks what is asked for: {sorted(offered ^ asked)}"


@pytest.mark.parametrize("wing", DRAWN)
def test_modules_stand_on_rows_above_as_their_door_draws_them(wing: str) -> None:
    beside, picture = DRAWN[wing].groups()
    rows = [re.split(" {3,}", line.strip())[0].split("  ") for line in picture.splitlines()]
    row_of = {f"{wing}.{name.replace('/', '.')}": k for k, names in enumerate(rows) for name in names}
    assert row_of.keys() <= PATHS.keys(), "a name that is drawn is no module"
    place = {
        module: max((name for name in row_of if f"{module}.".startswith(f"{name}.")), default="") for module in PATHS
    }
    for module in (name for name in PATHS if f"{name}.".startswith(f"{wing}.")):
        if module in DRAWN or module.endswith(".tuning") or (PATHS[module].stem == "__init__" and not place[module]):
            continue
        assert place[module], f"{module} is not drawn"
        for other in (place[name] for name in loaded_first(module) if place.get(name, place[module]) != place[module]):
            if other:
                above = row_of[place[module]] + bool(beside)
                assert row_of[other] < above, f"{module} stands on {other}, which is not drawn above it"


def test_pictures_are_found() -> None:
    assert len(DRAWN) - len(INSIDE) >= 11, "the wings that draw the order of their modules"
    assert len(INSIDE) >= 3, "the folders inside of wings that do"


@cache
def loaded_modules() -> frozenset[str]:
    """What is there once the packages were imported."""
    code = "import tapestry_sets, tapestry_plan, tapestry_exec, sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True)
    return frozenset(done.stdout.split())


@pytest.mark.parametrize("heavy", LOADED_WHEN_ASKED_FOR)
def test_importing_the_packages_loads_nothing_heavy(heavy: str) -> None:
    assert heavy not in loaded_modules()


@pytest.mark.parametrize("library", FOREIGN)
def test_few_wings_import_each_library(library: str) -> None:
    found = {wing_of(module) for module in PATHS if library in libraries_of(module)}
    assert found == set(FOREIGN[library])


@cache
def libraries_of(module: str) -> frozenset[str]:
    """Libraries that a module imports, by a statement, by ``import_module("sympy")``, or through a table of names."""
    found: set[str] = set()
    for node in ast.walk(tree_of(module)):
        match node:
            case ast.Import(names=names):
                found |= {alias.name for alias in names}
            case ast.ImportFrom(module=str(name)):
                found.add(name)
            case ast.Call(func=ast.Name(id="import_module"), args=[ast.Constant(value=str(name))]):
                found.add(name)
            case ast.Dict(values=values):
                found |= {node.value for node in values if isinstance(node, ast.Constant) and is_dotted(node.value)}
    return frozenset(name.split(".")[0] for name in found)


def is_dotted(value: object) -> bool:
    return isinstance(value, str) and "." in value and all(part.isidentifier() for part in value.split("."))


# ------------------------------------------------------------------------------------------------- tables of numbers

FACTS = {
    "tapestry_sets.alias.memory.arrays": "ADDRESSES CUDA ROCM IS_COPIED IS_PADDED NEWEST WORDS FULL_READ_ONLY",
    "tapestry_sets.batch.kernels": "FLOAT_EXACT INT_EXACT INT64",
    "tapestry_sets.draw.theme": "CHANNELS FROM_XYZ CUBIC SLOPE",
    "tapestry_sets.draw.views": "ADDRESSES",
    "tapestry_sets.integers.nest": "EMPTY",
    "tapestry_sets.integers.ramps": "THIRD",
    "tapestry_sets.views.pieces.maps": "INT64_MAX",
    "tapestry_sets.views.pieces.reading": "STRIDE",
    "tapestry_plan.draw.plots": "FRAME",
    "tapestry_plan.ir.monoids": "NOWHERE",
    "tapestry_plan.onnx.replacing.older": "OLDEST_OPSET TARGET_OPSET",
    "tapestry_plan.ops.cells.error_function": "_NEAR _MIDDLE _FAR _SINGLE",
    "tapestry_plan.ops.random.generators": "WORDS",
    "tapestry_plan.ops.random.philox": "MULTIPLIERS WEYL ROUNDS WORD",
    "tapestry_plan.search.prices.costs.seconds": "TICKS_PER_SECOND",
    "tapestry_plan.search.sums.frontier": "WEIGHT",
    "tapestry_plan.steps.layouts.layout": "REPLICAS IDLE",
    "tapestry_plan.steps.step": "HOST",
    "tapestry_exec.cli.terminal": "BROKEN_PIPE",
    "tapestry_exec.cuda.cublas": "SINGLE DOUBLE TF32 LARGEST SUCCESS",
    "tapestry_exec.cuda.kernels.scatter": "REPLACE",
    "tapestry_exec.dask.lines": "CALLER",
    "tapestry_exec.simulated.cublas": "DEFAULT DONE NOT_INITIALIZED INVALID_VALUE NOT_SUPPORTED",
}
"""Numbers that nobody chooses, beside the code that they are of: of a format, an algorithm, a machine's words."""
SWEEP = Path(__file__).parent / "bench" / "results" / "sweep_tuning.md"


def is_number(value: ast.expr | None) -> bool:
    match value:
        case ast.Constant(value=int() | float() as number):
            return not isinstance(number, bool)
        case ast.UnaryOp(operand=operand):
            return is_number(operand)
        case ast.BinOp(left=left, right=right):
            return is_number(left) and is_number(right)
        case ast.Tuple(elts=elements):
            return bool(elements) and all(map(is_number, elements))
    return False


def assigned(module: str) -> Iterator[tuple[int, str, ast.expr | None]]:
    """Line, name and value of each constant of a module."""
    for node in tree_of(module).body:
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = [found.id for target in targets for found in ast.walk(target) if isinstance(found, ast.Name)]
            yield from ((node.lineno, name, node.value) for name in names)


def test_numbers_stand_in_the_tables() -> None:
    found = {
        module: " ".join(name for _, name, value in assigned(module) if is_number(value))
        for module in PATHS
        if not module.endswith(".tuning")
    }
    assert {module: names for module, names in found.items() if names} == FACTS


def tuning_numbers() -> Iterator[str]:
    """What stands below a heading with the word "tuning", by the names that the sweep gives them."""
    for module, path in PATHS.items():
        if module.endswith(".tuning"):
            lines = path.read_text().splitlines()
            for line, name, _ in assigned(module):
                heading = next((text for text in lines[:line][::-1] if re.match("# -{2}", text)), "")
                if "tuning" in heading:
                    yield f"{module.removeprefix('tapestry_').removesuffix('.tuning')}.{name}"


def test_each_tuning_number_has_a_row_in_the_sweep() -> None:
    rows = set(re.findall(r"^\| `([\w.]+)` \|", SWEEP.read_text(), re.M))
    numbers = set(tuning_numbers())
    assert {"sets.integers.SHORT", "sets.batch.PAIRS_AT_ONCE", "exec.cuda.KEPT"} <= numbers
    assert "not decided by" not in SWEEP.read_text(), "questions that a constant decides, or a reason in NOT_SWEPT"
    missing = {name for name in numbers if name not in rows and name.rpartition(".")[0] not in rows}
    assert not missing, f"python tests/bench/sweep_tuning.py --write measures them, or says why not: {sorted(missing)}"
    stale = {row for row in rows - numbers if not any(name.startswith(f"{row}.") for name in numbers)}
    assert not stale, f"rows of the sweep that are not tuning numbers: {sorted(stale)}"


def test_one_prefix_says_most() -> None:
    names = {name for module in PATHS if module.endswith(".tuning") for _, name, _ in assigned(module)}
    assert not {name for name in names if name.split("_")[0] in ("MOST", "LEAST", "FEWEST", "LARGEST", "LONGEST")}
