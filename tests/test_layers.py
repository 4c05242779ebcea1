"""Data flows one way: sets -> plan -> exec, each package through one door, without cycles."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("tapestry_sets", "tapestry_plan", "tapestry_exec")
BELOW = {
    "tapestry_sets": (),
    "tapestry_plan": ("tapestry_sets",),
    "tapestry_exec": ("tapestry_sets", "tapestry_plan"),
}
FILES = [path for package in PACKAGES for path in sorted((ROOT / package).glob("*.py"))]


def exported(package: str) -> set[str]:
    """The names in a package's ``__all__``, which may be those of modules too."""
    tree = ast.parse((ROOT / package / "__init__.py").read_text())
    lists = [n.value for n in tree.body if isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) == "__all__"]
    return {name for found in lists for name in ast.literal_eval(found)}


def imports(path: Path) -> list[tuple[str, bool]]:
    """Modules of ours that a file imports, and whether inside a function."""
    found = []
    tree = ast.parse(path.read_text())
    top = {id(node) for node in tree.body}
    for block in tree.body:
        if isinstance(block, ast.If):  # TYPE_CHECKING blocks count as the top
            top.update(id(node) for node in block.body)
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module]
            if node.module in PACKAGES:
                modules = {p.stem for p in (ROOT / node.module).glob("*.py")} - exported(node.module)
                names = [f"{node.module}.{a.name}" if a.name in modules else node.module for a in node.names]
        found += [(name, id(node) in top) for name in names if name.split(".")[0] in PACKAGES]
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda p: f"{p.parent.name}/{p.name}")
def test_imports_go_down_and_through_the_door(path: Path) -> None:
    package = path.parent.name
    for name, at_top in imports(path):
        owner = name.split(".")[0]
        assert at_top, f"{path.name} imports {name} inside a function"
        assert owner == package or owner in BELOW[package], f"{path.name} imports {name}, a back edge"
        assert owner == package or "." not in name, f"{path.name} goes past the door of {owner} to {name}"


@pytest.mark.parametrize("package", PACKAGES)
def test_no_cycles(package: str) -> None:
    edges = {
        f"{package}.{path.stem}": {name for name, _ in imports(path) if name.startswith(f"{package}.")}
        for path in FILES
        if path.parent.name == package and path.stem != "__init__"
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


@pytest.mark.parametrize("heavy", ["onnx", "onnxruntime", "islpy", "sympy", "cupy", "dask", "rich", "click"])
def test_importing_the_packages_loads_nothing_heavy(heavy: str) -> None:
    code = f"import tapestry_sets, tapestry_plan, tapestry_exec, sys; sys.exit({heavy!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def test_few_files_import_each_foreign_world() -> None:
    homes = {
        "onnx": ("onnx_import.py", "networks.py"),
        "islpy": ("isl.py",),
        "cupy": ("on_cupy.py",),
        "dask": ("on_dask.py",),
    }
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text())):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            for name in names:
                home = homes.get(name.split(".")[0])
                assert home is None or path.name in home, f"{path.name} imports {name}; only {home} may"
