"""Data flows one way: sets -> plan -> exec, a wing imports those below it, through doors, without cycles."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("tapestry_sets", "tapestry_plan", "tapestry_exec")
FILES = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
RANKS = {
    f"{package}.{wing}": (PACKAGES.index(package), rank)
    for contract in CONTRACTS
    for package in contract.get("containers", ())
    for rank, wing in enumerate(reversed(contract["layers"]))
}
"""Wings as (package, place from the ground up)."""


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(path): path for path in FILES}


def wing_of(module: str) -> str:
    return ".".join(module.split(".")[:2])


@cache
def imports(path: Path) -> list[tuple[str, bool]]:
    """Modules of ours that a file imports, and whether at the top; siblings that are modules count as themselves."""
    tree, me = ast.parse(path.read_text()), name_of(path)
    top = {id(node) for node in tree.body}
    for block in tree.body:
        if isinstance(block, ast.If):  # TYPE_CHECKING blocks count as the top
            top.update(id(node) for node in block.body)
    found = []
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            whole = [f"{node.module}.{alias.name}" for alias in node.names]
            near = node.module in PACKAGES or wing_of(node.module) == wing_of(me)
            names = [name if near and name in MODULES else node.module for name in whole]
        found += [(name, id(node) in top) for name in names if name.split(".")[0] in PACKAGES]
    return found


@cache
def is_for_types(path: Path, name: str) -> bool:
    """Whether a module is imported under TYPE_CHECKING, which orders no code."""
    blocks = [b for b in ast.parse(path.read_text()).body if isinstance(b, ast.If)]
    return any("TYPE_CHECKING" in ast.unparse(b.test) and name in ast.unparse(b) for b in blocks)


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_go_down_and_through_doors(path: Path) -> None:
    me = name_of(path)
    for name, at_top in imports(path):
        assert at_top, f"{me} imports {name} inside a function"
        if wing_of(name) == wing_of(me) and me not in PACKAGES:
            continue
        assert name in RANKS, f"{me} imports {name}, which is behind a door, or a root, which is for users"
        below = me in PACKAGES or RANKS[name] < RANKS[wing_of(me)] or is_for_types(path, name)
        assert below, f"{me} imports {name}, a back edge"


def test_there_are_no_cycles() -> None:
    edges = {
        name: {other for other, _ in imports(path) if other != name and not is_for_types(path, other)}
        for name, path in MODULES.items()
    }
    done: set[str] = set()

    def visit(module: str, stack: tuple[str, ...]) -> None:
        assert module not in stack, f"cycle: {' -> '.join((*stack, module))}"
        if module not in done:
            for below in edges.get(module, ()):
                visit(below, (*stack, module))
            done.add(module)

    for module in edges:
        visit(module, ())


@pytest.mark.parametrize("heavy", ["onnx", "onnxruntime", "islpy", "sympy", "scipy", "cupy", "rich", "click"])
def test_importing_the_packages_loads_nothing_heavy(heavy: str) -> None:
    code = f"import tapestry_sets, tapestry_plan, tapestry_exec, sys; sys.exit({heavy!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def test_few_files_import_each_foreign_world() -> None:
    homes = {
        "onnx": {"tapestry_plan/onnx/models.py", "tapestry_plan/onnx/networks.py"},
        "onnxruntime": {"tapestry_exec/cli/commands.py"},
        "islpy": {"tapestry_sets/solvers/isl.py"},
        "sympy": {"tapestry_sets/solvers/expressions.py", "tapestry_sets/interop/symbolic.py"},
        "cupy": {"tapestry_exec/cuda/backend.py"},
        "rich": {"tapestry_exec/cli/commands.py"},
        "click": {"tapestry_exec/cli/commands.py"},
    }
    assert all((ROOT / home).is_file() for files in homes.values() for home in files)
    for path in FILES:
        text, me = path.read_text(), str(path.relative_to(ROOT))
        for node in ast.walk(ast.parse(text)):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
                names = re.findall(r"'([\w.]+)'", ast.unparse(node))
            for name in names:
                home = homes.get(name.split(".")[0])
                assert home is None or me in home, f"{me} imports {name}; only {', '.join(sorted(home))} may"
