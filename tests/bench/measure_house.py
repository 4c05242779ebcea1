"""Measure how the code is laid out: lines, folders, exports, import chains, functions, calls, imports' time.

    python tests/bench/measure_house.py [ROOT] [--before ROOT] [--write]

ROOT is a checkout, this one by default. Flat packages and packages of wings are counted alike. `--before` measures a
second checkout and prints both beside each other; `--write` puts the table into `results/measure_house.md`.

What is counted:

- A *code line* holds a token that is neither a comment nor part of a docstring. Line length is as it stands (120).
- A *chain* of imports follows `from … import` statements that run at import (not those under TYPE_CHECKING). "Followed"
  means that a name taken from a door counts as an import of the module that defines it; "with doors" counts the door as
  a module of its own.
- A *function* is counted without docstrings and lines that hold a comment alone, in both columns; functions inside
  functions count themselves and in the outer one.
- *Calls* are those of functions of the three packages while one overlap is built and answered, after one warm-up. The
  module changes *by caller* where a function of ours calls one in another file, and *in order* where one call and the
  next are in two files, whoever called.
- *Import time* is the processor time of a fresh interpreter that imports NumPy and the package, less that of one that
  imports NumPy alone.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import os
import subprocess
import sys
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

HERE = Path(__file__).resolve()
PACKAGES = ("tapestry_sets", "tapestry_plan", "tapestry_exec")
LONG_FUNCTION, LONG_FILE, RUNS = 25, 900, 10
LAYOUT_TOKENS = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}
QUESTION = """
import json, sys
from tapestry_sets import allocate, overlap

def ask():
    A = allocate((27,))
    o = overlap(A.reshape(3, 3, 3)[:2, :2, :2], A[2::5])
    return o.size, o.witness

packages = tuple(f"{sys.argv[1]}/{name}/" for name in ("tapestry_sets", "tapestry_plan", "tapestry_exec"))
changes, files = 0, []

def watch(frame, event, arg):
    global changes
    if event != "call" or not frame.f_code.co_filename.startswith(packages):
        return
    files.append(frame.f_code.co_filename)
    caller = frame.f_back.f_code.co_filename
    changes += caller.startswith(packages) and caller != frame.f_code.co_filename

ask()
sys.setprofile(watch)
ask()
sys.setprofile(None)
in_order = sum(one != other for one, other in zip(files, files[1:]))
print(json.dumps([len(files), changes, in_order, len(set(files))]))
"""


@dataclass(slots=True)
class Module:
    """One file: its counts, the names that it defines, and those that it takes from modules of ours."""

    name: str
    path: Path
    lines: int
    code: int
    comments: int
    functions: list[int]
    imports: int
    defined: set[str]
    taken: list[tuple[str, str]] = field(default_factory=list)

    @property
    def is_door(self) -> bool:
        return self.path.name == "__init__.py"


def docstring_lines(tree: ast.AST) -> set[int]:
    """Lines that docstrings stand on."""
    found: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.body:
            first = node.body[0]
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                found.update(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    return found


def count_lines(text: str, docstrings: set[int]) -> tuple[int, int]:
    """Code lines and comments."""
    code: set[int] = set()
    comments = 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        comments += token.type == tokenize.COMMENT
        if token.type not in LAYOUT_TOKENS:
            code.update(range(token.start[0], token.end[0] + 1))
    return len(code - docstrings), comments


def comment_lines(text: str) -> set[int]:
    """Lines that hold a comment and nothing else."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return {token.start[0] for token in tokens if token.type == tokenize.COMMENT and token.line.lstrip()[0] == "#"}


def function_lengths(tree: ast.AST, spared: set[int]) -> Iterator[int]:
    """Lines of each function from `def` to its end, without those that are spared."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield len(set(range(node.lineno, (node.end_lineno or 0) + 1)) - spared)


def statements_at_import(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements that run when the module is imported."""
    for node in body:
        yield node
        if isinstance(node, ast.If):
            branches = node.orelse if "TYPE_CHECKING" in ast.unparse(node.test) else [*node.body, *node.orelse]
            yield from statements_at_import(branches)
        elif isinstance(node, ast.Try):
            yield from statements_at_import(node.body)


def names_taken(tree: ast.Module, name: str, is_door: bool) -> Iterator[tuple[str, str]]:
    """(module, name) of each `from … import` of ours, relative ones made absolute."""
    for node in statements_at_import(tree.body):
        if not isinstance(node, ast.ImportFrom):
            continue
        source = node.module or ""
        if node.level:
            above = name.split(".")[: None if is_door and node.level == 1 else -(node.level - is_door)]
            source = ".".join([*above, *([node.module] if node.module else [])])
        if source.split(".")[0] in PACKAGES:
            for alias in node.names:
                yield source, alias.name


def import_lines(tree: ast.Module) -> int:
    """Lines of import statements, which doors and the line length alone can multiply."""
    found = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    return sum((node.end_lineno or node.lineno) - node.lineno + 1 for node in found)


def names_defined(tree: ast.Module) -> set[str]:
    """Names that a module's own statements bind, imports left aside."""
    found: set[str] = set()
    for node in statements_at_import(tree.body):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found.update(name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name))
    return found


def read_modules(root: Path) -> dict[str, Module]:
    """Every Python file of the three packages, by dotted name."""
    modules = {}
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            text = path.read_text()
            tree = ast.parse(text)
            docstrings = docstring_lines(tree)
            code, comments = count_lines(text, docstrings)
            taken = list(names_taken(tree, name, path.name == "__init__.py"))
            lengths = list(function_lengths(tree, docstrings | comment_lines(text)))
            lines, defined = len(text.splitlines()), names_defined(tree)
            modules[name] = Module(name, path, lines, code, comments, lengths, import_lines(tree), defined, taken)
    return modules


def follow(modules: dict[str, Module], source: str, name: str) -> str:
    """The module that defines a name: through doors, as far as they lead."""
    while True:
        if f"{source}.{name}" in modules:
            return f"{source}.{name}"
        onward = [
            module
            for module, taken in modules[source].taken
            if module != source and (taken == name or (taken == "*" and name in modules[module].defined))
        ]
        if not modules[source].is_door or not onward:
            return source
        source = onward[-1]


def imports_between(modules: dict[str, Module], followed: bool) -> dict[str, set[str]]:
    """For each module, those that it imports."""
    edges: dict[str, set[str]] = {}
    for module in modules.values():
        found = set()
        for source, name in module.taken:
            whole = f"{source}.{name}" if f"{source}.{name}" in modules else source
            found.add(follow(modules, source, name) if followed else whole)
        edges[module.name] = found - {module.name}
    if followed:  # doors are read through: they are not modules of the chain
        doors = {name for name, module in modules.items() if module.is_door}
        edges = {name: found - doors for name, found in edges.items() if name not in doors}
    return edges


def longest_chain(edges: dict[str, set[str]], within: str = "") -> list[str]:
    """The longest path of imports among modules whose names start with `within`."""

    @cache
    def chain(name: str) -> tuple[str, ...]:
        below = (chain(other) for other in sorted(edges.get(name, ())) if other.startswith(within))
        return (name, *max(below, key=len, default=()))

    return list(max((chain(name) for name in edges if name.startswith(within)), key=len))


def exported(modules: dict[str, Module], package: str) -> int:
    """How many names the root's `__all__` lists."""
    for node in ast.parse(modules[package].path.read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return len(ast.literal_eval(node.value))
    return 0


def largest_folder(root: Path, modules: dict[str, Module], package: str) -> tuple[int, str]:
    """Modules and sub-packages in the fullest folder of a package; the door is not counted."""
    entries: Counter[str] = Counter()
    for module in modules.values():
        home = module.path.parent if not module.is_door else module.path.parent.parent
        if home != root and home.is_relative_to(root / package):
            entries[str(home.relative_to(root))] += 1
    folder, count = max(entries.items(), key=lambda entry: entry[1])
    return count, folder


def environment(root: Path, cache: str = "") -> dict[str, str]:
    """This checkout's packages; byte code goes to a folder of our own, so that no checkout is written to."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    threads = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    return kept | threads | {"PYTHONPATH": str(root), "PYTHONPYCACHEPREFIX": cache}


def processor_seconds(root: Path, statement: str, cache: str) -> float:
    """User and system time of one fresh interpreter that runs a statement."""
    code = f"{statement}\nimport time\nprint(time.process_time())"
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment(root, cache), cwd=root, capture_output=True, text=True, check=True
    )
    return float(done.stdout)


def import_milliseconds(root: Path) -> dict[str, tuple[float, float]]:
    """Least and median milliseconds beyond NumPy's, by package; the runs take turns."""
    statements = {name: f"import numpy, {name}" for name in PACKAGES} | {"numpy": "import numpy"}
    seconds: dict[str, list[float]] = {name: [] for name in statements}
    with TemporaryDirectory() as cache:
        for statement in statements.values():
            processor_seconds(root, statement, cache)  # writes the byte code
        for _ in range(RUNS):
            for name, statement in statements.items():
                seconds[name].append(processor_seconds(root, statement, cache))
    least, middle = min(seconds["numpy"]), median(seconds["numpy"])
    return {name: (1e3 * (min(seconds[name]) - least), 1e3 * (median(seconds[name]) - middle)) for name in PACKAGES}


def share(part: int, whole: int, digits: int = 1) -> str:
    return f"{100 * part / whole:.{digits}f}" if whole else "–"


def measure_sizes(root: Path, modules: dict[str, Module]) -> Iterator[tuple[str, str]]:
    by_package = {p: [m for m in modules.values() if m.name.split(".")[0] == p] for p in PACKAGES}
    for package, members in by_package.items():
        yield f"code lines, {package}", f"{sum(m.code for m in members):,}"
    yield "**code lines, all Python**", f"**{sum(m.code for m in modules.values()):,}**"
    yield "of these, in import statements", f"{sum(m.imports for m in modules.values()):,}"
    device = [path for package in PACKAGES for path in (root / package).rglob("*") if path.suffix in {".cu", ".h"}]
    yield "lines of .cu and .h", f"{sum(len(path.read_text().splitlines()) for path in device):,}"
    for package, members in by_package.items():
        count, folder = largest_folder(root, modules, package)
        yield f"modules and sub-packages in the fullest folder, {package}", f"{count} ({folder})"
        yield f"modules, {package}", f"{sum(not m.is_door for m in members)}"
    long_files = sorted((m.lines for m in modules.values() if m.lines > LONG_FILE), reverse=True)
    yield (
        f"files over {LONG_FILE} lines (the longest)",
        f"{len(long_files)} ({max(m.lines for m in modules.values()):,})",
    )
    for package in PACKAGES:
        yield f"names exported by {package}", f"{exported(modules, package)}"


def measure_style(modules: dict[str, Module]) -> Iterator[tuple[str, str]]:
    for package in (*PACKAGES, ""):
        members = [m for m in modules.values() if m.name.startswith(package)]
        lengths = [n for m in members for n in m.functions]
        long = sum(n > LONG_FUNCTION for n in lengths)
        name = package or "all"
        yield (
            f"functions over {LONG_FUNCTION} lines, {name}",
            f"{long} of {len(lengths):,} ({share(long, len(lengths))} %)",
        )
        yield (
            f"comments per 100 code lines, {name}",
            share(sum(m.comments for m in members), sum(m.code for m in members)),
        )


def measure_chains(modules: dict[str, Module]) -> Iterator[tuple[str, str]]:
    for followed, words in ((True, "doors followed"), (False, "with doors")):
        edges = imports_between(modules, followed)
        for package in (*PACKAGES, ""):
            yield (
                f"longest chain of imports, {words}, {package or 'all three'}",
                str(len(longest_chain(edges, package))),
            )


def measure(root: Path) -> dict[str, str]:
    """Every row for one checkout."""
    modules = read_modules(root)
    rows = dict(measure_sizes(root, modules)) | dict(measure_chains(modules)) | dict(measure_style(modules))
    with TemporaryDirectory() as cache:
        command = [sys.executable, "-c", QUESTION, str(root)]
        done = subprocess.run(
            command, env=environment(root, cache), cwd=root, capture_output=True, text=True, check=True
        )
    words = ("calls", "changes of module by caller", "changes of module in order", "modules")
    rows |= {f"one overlap: {word}": str(n) for word, n in zip(words, json.loads(done.stdout), strict=True)}
    for package, (least, middle) in import_milliseconds(root).items():
        rows[f"import of {package} beyond NumPy, ms of processor time, min / median of {RUNS}"] = (
            f"{least:.0f} / {middle:.0f}"
        )
    return rows


def table(columns: dict[str, dict[str, str]]) -> str:
    head = ["| | " + " | ".join(columns) + " |", "|---|" + "---|" * len(columns)]
    keys = list(dict.fromkeys(key for rows in columns.values() for key in rows))
    return "\n".join(
        head + [f"| {key} | " + " | ".join(rows.get(key, "–") for rows in columns.values()) + " |" for key in keys]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("root", nargs="?", type=Path, default=HERE.parents[2])
    parser.add_argument("--before", type=Path)
    parser.add_argument("--chains", action="store_true", help="also print the longest chains, module by module")
    parser.add_argument("--write", action="store_true", help="write results/measure_house.md")
    asked = parser.parse_args()
    roots = ({"before": asked.before} if asked.before else {}) | {"after" if asked.before else "now": asked.root}
    text = table({name: measure(root.resolve()) for name, root in roots.items()})
    print(text)
    if asked.chains:
        edges = imports_between(read_modules(asked.root.resolve()), followed=True)
        for package in (*PACKAGES, ""):
            print(f"\n{package or 'all three'}: " + " > ".join(longest_chain(edges, package)))
    if asked.write:
        head = f"# The layout of the code\n\nMade by `python {HERE.relative_to(HERE.parents[2])}"
        said = " ROOT --before ROOT --write`; the script's first lines say what is counted.\n\n"
        (HERE.parent / "results" / "measure_house.md").write_text(f"{head}{said}{text}\n")


if __name__ == "__main__":
    main()
