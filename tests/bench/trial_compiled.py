"""Trial: does compiling the set engine's modules reach a factor of 3 on the documents' examples and listed answers?

    python tests/bench/trial_compiled.py [--rounds N] [--built FOLDER] [--write]

Needs a C compiler and, beside the project's own requirements, `pip install "mypy[mypyc]" cython setuptools`.

Each way copies tapestry_sets into a folder of its own, compiles some modules there, and is asked the same rows in
fresh processes that take turns. A row's figure is the median over its cases of the least time of each case; answers
are compared with plain Python's. `--built` keeps the folders, and compiles only those that are not there yet;
`--write` puts the table into `results/trial_compiled.md`.

The ways:

- *mypyc* compiles five modules of sets as they are, and *Cython* these and those on the 27-element example's path.
- *integers declared* is Cython's pure-Python mode: a .pxd file beside each unchanged module says that parameters
  annotated ``int``, and numbers taken from levels, are 64 bits wide.
- *all declared* goes as far as declarations do: also tuples, lists, what is returned, two classes as C structures, and
  C calls from module to module. It rewrites import lines and one call.

The last two refuse numbers past 2**63, which the engine must answer: they would need plain Python beside them. Their
declarations are derived here from the annotations and from the names below, so that no logic is written twice.

Where the time of listed intersections goes in *all declared*, by `perf`: a tenth to a sixth in the compiled modules, a
twentieth or less in the interpreter's loop, and nearly all of the rest in CPython's memory, tuples, dictionaries and
integers, which declarations do not replace.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import os
import platform
import random
import re
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from datetime import date
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

HERE = Path(__file__).resolve()
ROOT = HERE.parents[2]
PACKAGE = "tapestry_sets"
RESULTS = HERE.parent / "results" / "trial_compiled.md"
LIMIT = 900  # seconds to compile one way's modules
WANTED = 3.0

DECLARED = ("integers/nest.py", "integers/pairs.py", "integers/explicit.py")
AROUND = ("integers/members.py", "integers/unions.py")
SETS = (*DECLARED, *AROUND)
CORE = ("limits/budget.py", "integers/stripe.py", *DECLARED)
VIEWS = (
    *(f"views/{name}.py" for name in ("view", "subscript", "kinds/shaping", "kinds/choosing", "kinds/kind")),
    *(f"digits/{name}.py" for name in ("digits", "progressions", "row_major", "strided")),
    "alias/overlap.py",
)
"""On the path of the 27-element example. `digits/cutting.py` compiles too, but Cython 3.3.1's module does not load."""
NO_ANNOTATIONS = ("-X", "annotation_typing=False")
CHECKED = ("-X", "infer_types=True", "-X", "overflowcheck=True", *NO_ANNOTATIONS)

# ------------------------------------------------------------------------------------------------- declarations

WORDS = """
    P Q a around at b beyond block blocks_s blocks_t d e each end f few first g gs high i into into_s into_t inverse
    last length low lowest n one origin p q r shifts start steps total two
"""
NUMBERS = frozenset(WORDS.split())
"""Names that are numbers wherever a function binds them without ``None``."""
OBJECTS = {"tail": "tuple", "loose": "tuple", "key": "tuple", "starts": "list", "collect": "object"}
"""Other names that are one thing wherever a function binds them; `collect` is a method, and no C function."""
INLINED = frozenset({"all", "any", "list", "set", "sorted", "sum"})
"""Functions whose generators become loops in what is `cdef`; others need a closure, which C functions cannot have."""
TYPES = {
    "int": "long long",
    "bool": "bint",
    "Nest": "tuple",
    "Level": "tuple",
    "Block": "tuple",
    "ShiftedPair": "tuple",
}
CLASSES = {
    "Budget": "cdef public object isl, lists\n    cdef public long long left, most",
    "_Meet": "cdef Budget budget\n    cdef bint are_apart\n    cdef tuple s, t",
}
"""Classes of which C structures are made, and their fields."""


def c_type(annotation: ast.expr | None) -> str:
    """The C type of an annotation, or nothing; ``None`` is a tuple and a list, too."""
    text = ast.unparse(annotation).replace("nests.", "") if annotation else ""
    word = text.removesuffix(" | None")
    if word in TYPES:
        return TYPES[word] if word == text or TYPES[word] == "tuple" else ""
    return next((kind for kind in ("tuple", "list", "dict") if word.startswith(f"{kind}[")), "")


def may_be_none() -> set[str]:
    """Functions that may return ``None``, by their annotations."""
    trees = [ast.parse((ROOT / PACKAGE / name).read_text()) for name in CORE]
    functions = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    return {node.name for node in functions if node.returns and "None" in ast.unparse(node.returns)}


def bound_names(function: ast.FunctionDef, optional: set[str]) -> Iterator[tuple[str, str]]:
    """Names that a function's statements bind, with their C type, if that is known."""
    for node in ast.walk(function):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id, c_type(node.annotation)
        elif isinstance(node, ast.Assign | ast.For):
            value = node.value if isinstance(node, ast.Assign) else None
            called = ast.unparse(value.func).split(".")[-1] if isinstance(value, ast.Call) else ""
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for name in (name for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)):
                if isinstance(name.ctx, ast.Store):
                    kind = "long long" if name.id in NUMBERS else OBJECTS.get(name.id, "")
                    yield name.id, "" if called in optional else kind


def has_closure(function: ast.FunctionDef, way: str) -> bool:
    """Whether a function makes a function, or a generator that Cython does not make a loop of."""
    inlined = set()
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and len(node.args) == 1 and ast.unparse(node.func) in INLINED:
            inlined.add(id(node.args[0]))
        elif isinstance(node, ast.List):  # [*(… for …)]
            inlined |= {id(part.value) for part in node.elts if isinstance(part, ast.Starred)}
    inner = (ast.Lambda, ast.Yield, ast.YieldFrom, ast.FunctionDef)
    return any(
        (isinstance(node, inner) and node is not function)
        or (isinstance(node, ast.GeneratorExp) and (way == "cpdef" or id(node) not in inlined))
        for node in ast.walk(function)
    )


def cannot_be_c(function: ast.FunctionDef, way: str) -> bool:
    """Whether a function keeps its form: it has a closure, an odd signature, or works on masks of any length."""
    given = function.args
    return bool(
        function.name.startswith("__")
        or function.decorator_list
        or given.vararg
        or given.kwarg
        or given.kwonlyargs
        or has_closure(function, way)
        or any(word in ast.unparse(function) for word in ("bits", "mask", "np."))
    )


def declare(function: ast.FunctionDef, whole: bool, optional: set[str], way: str) -> Iterator[str]:
    """The lines that declare one function; with `whole` also tuples and lists, and what is returned."""
    told = {"long long", "bint", "tuple", "list", "dict", "object"} if whole else {"long long"}
    defaults = len(function.args.args) - len(function.args.defaults)
    given = [(arg.arg, c_type(arg.annotation)) for arg in function.args.args]
    words = [
        (f"{kind} {name}" if kind in told else name) + ("=*" if at >= defaults else "")
        for at, (name, kind) in enumerate(given)
    ]
    bound: dict[str, set[str]] = {}
    for name, kind in bound_names(function, optional):
        bound.setdefault(name, set()).add(kind)
    known = {name: kinds.pop() for name, kinds in sorted(bound.items()) if len(kinds) == 1 and name not in dict(given)}
    local = [f"{name}={'cython.longlong' if k == 'long long' else k}" for name, k in known.items() if k in told]
    if local:
        yield f"@cython.locals({', '.join(local)})"
    returned = c_type(function.returns)
    yield f"{way} {returned + ' ' if whole and returned else ''}{function.name}({', '.join(words)})"


def own_functions(path: Path) -> set[str]:
    """Private functions of a module that no other module names."""
    others = [other.read_text() for other in (ROOT / PACKAGE).rglob("*.py") if other.relative_to(ROOT) != path]
    names = re.findall(r"^def (_\w+)", (ROOT / path).read_text(), re.MULTILINE)
    return {name for name in names if not any(f".{name}(" in text or f"import {name}" in text for text in others)}


def declarations(name: str, whole: bool) -> str:
    """The .pxd file of a module: its functions, and with `whole` the classes of which structures are made."""
    path = Path(PACKAGE) / name
    optional, own = may_be_none(), own_functions(path) if whole else set()
    lines = ["cimport cython"]
    if whole and path.stem == "explicit":
        lines.append(f"from {PACKAGE}.limits.budget cimport Budget")
    for node in ast.parse((ROOT / path).read_text()).body:
        if isinstance(node, ast.FunctionDef):
            way = "cdef" if node.name in own else "cpdef"
            lines += [] if cannot_be_c(node, way) else declare(node, whole, optional, way)
        elif whole and isinstance(node, ast.ClassDef) and node.name in CLASSES:
            lines += ["@cython.final", f"cdef class {node.name}:", f"    {CLASSES[node.name]}"]
            for part in node.body:
                if isinstance(part, ast.FunctionDef) and not cannot_be_c(part, "cpdef"):
                    lines += [f"    {line}" for line in declare(part, whole, optional, "cpdef")]
    return "\n".join(lines) + "\n"


def names_declared(text: str) -> set[str]:
    """Names of a .pxd file that other modules may take from C."""
    functions = re.findall(r"^cpdef .*?(\w+)\(", text, re.MULTILINE)
    return {*functions, *re.findall(r"^cdef class (\w+):", text, re.MULTILINE)}


def call_directly(path: Path, declared: dict[str, set[str]]) -> None:
    """Take declared names from C: import lines are split in two, and calls through `nests` go there."""
    doors = {f"{PACKAGE}.limits": f"{PACKAGE}.limits.budget"}
    lines = path.read_text().splitlines(keepends=True)
    for node in reversed(ast.parse("".join(lines)).body):
        home = doors.get(node.module or "", node.module or "") if isinstance(node, ast.ImportFrom) else ""
        if isinstance(node, ast.ImportFrom) and home in declared:
            names = {alias.name for alias in node.names}
            in_c = names & declared[home]
            lines[node.lineno - 1 : node.end_lineno] = [
                f"from {source} import {', '.join(sorted(taken))}\n"
                for source, taken in ((f"cython.cimports.{home}", in_c), (node.module, names - in_c))
                if taken
            ]
    text = re.sub(r"\((self\.\w+) if (.+) else (self\.\w+)\)(\(.+\))\n", r"\1\4 if \2 else \3\4\n", "".join(lines))
    wing, nest = f"{PACKAGE}.integers", f"{PACKAGE}.integers.nest"
    line = f"from {wing} import nest as nests\n"
    if line in text:  # the module stays for what is not declared
        in_c = f"from {nest} import EMPTY\nfrom cython.cimports.{wing} import nest as c_nests\n"
        text = text.replace(line, line + in_c).replace("nests.EMPTY", "EMPTY")
        text = re.sub(r"\bnests\.(\w+)\(", lambda m: f"c_nests.{m[1]}(" if m[1] in declared[nest] else m[0], text)
    path.write_text(text)


# -------------------------------------------------------------------------------------------------------- the ways


def run(command: Iterable[str], folder: Path, seconds: int = LIMIT) -> str:
    """What a command prints, run in a folder; it may import nothing but what lies there."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    kept |= {"CFLAGS": "-O3 -g0", "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run([*command], cwd=folder, env=kept, capture_output=True, text=True, timeout=seconds)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}")
    return done.stdout


def by_mypyc(modules: Iterable[str], folder: Path) -> None:
    """Compile modules as they are by mypyc."""
    code = "import sys; from mypyc.__main__ import main; main()"
    run((sys.executable, "-c", code, "--follow-imports=silent", *(f"{PACKAGE}/{name}" for name in modules)), folder)


def by_cython(modules: Iterable[str], folder: Path, options: Iterable[str] = ()) -> None:
    """Compile modules by Cython, in one process, with the .pxd files that lie beside them."""
    code = "import sys; from Cython.Build.Cythonize import main; sys.exit(main())"
    run((sys.executable, "-c", code, "-i", "-3", *options, *(f"{PACKAGE}/{name}" for name in modules)), folder)


def integers_declared(folder: Path) -> None:
    """Write the .pxd files of some modules with integers alone, and compile them."""
    for name in DECLARED:
        path = folder / PACKAGE / name
        path.with_suffix(".pxd").write_text(declarations(name, whole=False))
    by_cython(SETS, folder, CHECKED)


def all_declared(folder: Path) -> None:
    """Write the .pxd files with all that can be declared, let modules call each other's C functions, and compile."""
    declared = {}
    for name in CORE:
        text = declarations(name, whole=True)
        (folder / PACKAGE / name).with_suffix(".pxd").write_text(text)
        declared[f"{PACKAGE}/{name}"[:-3].replace("/", ".")] = names_declared(text)
    for name in CORE:
        call_directly(folder / PACKAGE / name, declared)
    by_cython((*CORE, *AROUND), folder, CHECKED)


WAYS: dict[str, Callable[[Path], None]] = {
    "plain Python": lambda folder: None,
    "mypyc": lambda folder: by_mypyc(SETS, folder),
    "Cython": lambda folder: by_cython((*SETS, *VIEWS), folder, NO_ANNOTATIONS),
    "integers declared": integers_declared,
    "all declared": all_declared,
}


def build(way: str, folder: Path) -> None:
    """Copy the package into a folder and compile there what a way compiles; a folder that is there already is kept."""
    done = folder / "done"
    if done.exists():
        return
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    shutil.copytree(ROOT / PACKAGE, folder / PACKAGE, ignore=shutil.ignore_patterns("__pycache__"))
    WAYS[way](folder)
    done.touch()


# -------------------------------------------------------------------------------------------------------- the rows


def random_nest(source: random.Random, depth: int, on: int = 64) -> list[tuple[int, int, int]]:
    """Return (on, off, phase) of nested stripes, drawn as `bench_sets.random_nest` does."""
    stripes: list[tuple[int, int, int]] = []
    while len(stripes) < depth and on >= 2:
        period = 2 + source.getrandbits(64) % max(2, on)
        on = 1 + source.getrandbits(64) % period
        stripes.append((on, period - on or 1, source.getrandbits(64) % period))
    return stripes


def rows() -> Iterator[tuple[str, int, list[Callable[[], object]]]]:
    """Each row: its name, how often a case is asked in one go, and its cases."""
    from tapestry_sets import Sett, Stripe, allocate, overlaps

    def example() -> bool:
        base = allocate((27,))
        return overlaps(base.reshape((3, 3, 3))[:2, :2, :2], base[2::5])

    def tiled(x: object, n: int) -> object:
        quarter = x.reshape((n * n // 4, 4))[:, 0:2].reshape((4, n * n // 8))  # type: ignore[attr-defined]
        return quarter[0:2, :].reshape((n // 2, n // 2))

    def tiles(n: int) -> bool:
        base = allocate((n, n))
        return overlaps(tiled(base, n), tiled(base[2:-2, 2:-2], n - 4))

    yield "27-element example, built and asked", 10, [example]
    yield "tiled example, built and asked", 10, [lambda n=n: tiles(n) for n in (24, 24_000, 24 * 10**9)]
    for depth in (1, 2, 3, 4):
        source = random.Random(depth)
        nests = [[Stripe(*level) for level in random_nest(source, depth)] for _ in range(200)]
        drawn = list(pairwise([Sett(*stripes) for stripes in nests]))
        yield f"nests of depth {depth}: (a & b).setts()", 1, [lambda s=s, t=t: (s & t).setts() for s, t in drawn]
        yield f"nests of depth {depth}: a - b", 1, [lambda s=s, t=t: s - t for s, t in drawn]
        yield rf"nests of depth {depth}: a \| b", 1, [lambda s=s, t=t: s | t for s, t in drawn]
        yield f"nests of depth {depth}: a.isdisjoint(b)", 20, [lambda s=s, t=t: s.isdisjoint(t) for s, t in drawn]
        yield f"nests of depth {depth}: Sett(...)", 5, [lambda x=x: Sett(*x) for x in nests]


def ask(folder: Path) -> None:
    """Print a digest of all answers, the seconds of each row's cases, and how answers past 64 bits go."""
    sys.path[0] = str(folder)
    seconds: dict[str, list[float]] = {}
    answers = hashlib.sha256()
    for name, calls, cases in rows():
        answers.update(repr([query() for query in cases]).encode())
        seconds[name] = [least(query, calls) for query in cases]
    print(json.dumps([answers.hexdigest(), seconds, past_64_bits()]))


def least(query: Callable[[], object], calls: int) -> float:
    """Return the seconds of one call: the least of a few rounds of some calls."""
    best = 1.0
    for _ in range(4):
        start = time.perf_counter()
        for _ in range(calls):
            query()
        best = min(best, (time.perf_counter() - start) / calls)
    return best


def past_64_bits() -> str:
    """What a way says to periods past 2**63: the right answer, or an error."""
    from tapestry_sets import Sett, Stripe

    try:
        met = (Sett(Stripe(5, 10**20 - 5)) & Stripe(3, 10**20 - 3, 1)).setts()
    except OverflowError:
        return "refused"
    return "right" if repr(met) == f"DisjointSetts([Sett(Stripe(3, {10**20 - 3}, phase=1))])" else "wrong"


# ------------------------------------------------------------------------------------------------------- the table


class Figures(NamedTuple):
    """What a way has shown so far: its answers' digest, the least seconds of each case, periods past 64 bits."""

    answers: str
    seconds: dict[str, list[float]]
    wide: str

    def merged(self, other: Figures) -> Figures:
        least = {name: list(map(min, times, other.seconds[name])) for name, times in self.seconds.items()}
        return Figures(self.answers, least, self.wide)

    def microseconds(self, row: str) -> float:
        return statistics.median(self.seconds[row]) * 1e6


def measure(folders: dict[str, Path], rounds: int) -> dict[str, Figures]:
    """Ask every way in turn, in fresh processes, and keep the least time of each case."""
    figures: dict[str, Figures] = {}
    for _ in range(rounds):
        for way, folder in folders.items():
            found = Figures(*json.loads(run((sys.executable, str(HERE), "--ask", str(folder)), folder)))
            figures[way] = figures[way].merged(found) if way in figures else found
            if found.answers != next(iter(figures.values())).answers:
                raise SystemExit(f"{way} answers otherwise than plain Python")
    return figures


def table(figures: dict[str, Figures]) -> str:
    """Microseconds of plain Python, and each way's with its factor."""
    plain, *others = figures.values()
    lines = [f"| us (factor) | {' | '.join(figures)} |", "|---|" + "---|" * len(figures)]
    for row in plain.seconds:
        base = plain.microseconds(row)
        cells = [f"{x:.3g} ({base / x:.2f})" for x in (other.microseconds(row) for other in others)]
        lines.append(f"| {row} | {base:.3g} | {' | '.join(cells)} |")
    lines.append("| periods past 2**63 | " + " | ".join(each.wide for each in figures.values()) + " |")
    return "\n".join(lines)


def verdict(figures: dict[str, Figures]) -> str:
    """Which ways reach the factor wanted, on how many rows, and the largest factors."""
    plain, *_ = figures.values()
    said = []
    for way, each in list(figures.items())[1:]:
        factors = {row: plain.microseconds(row) / each.microseconds(row) for row in plain.seconds}
        reached = sum(factor >= WANTED for factor in factors.values())
        best = max(factors, key=factors.__getitem__)
        said.append(f"- {way}: {reached} of {len(factors)} rows reach {WANTED:g}; at most {factors[best]:.2f} ({best})")
    return "\n".join(said)


def machine() -> str:
    names = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    return f"{names[0].partition(':')[2].strip()}, {len(names)} cores, Python {platform.python_version()}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=12, help="how often each way is asked")
    parser.add_argument("--ways", nargs="*", default=list(WAYS), help="some of the ways, by name")
    parser.add_argument("--built", type=Path, help="a folder that keeps what is compiled")
    parser.add_argument("--ask", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--write", action="store_true", help=f"write results/{RESULTS.name}")
    asked = parser.parse_args()
    if asked.ask:
        return ask(asked.ask)
    missing = [name for name in ("mypyc", "Cython", "setuptools") if find_spec(name) is None]
    if missing:
        raise SystemExit(f'{", ".join(missing)} not installed: pip install "mypy[mypyc]" cython setuptools')
    with ExitStack() as stack:
        home = asked.built or Path(stack.enter_context(TemporaryDirectory()))
        ways = dict.fromkeys(["plain Python", *asked.ways])
        folders = {way: home.resolve() / way.replace(" ", "_") for way in ways}
        for way, folder in folders.items():
            build(way, folder)
        figures = measure(folders, asked.rounds)
    text = f"{table(figures)}\n\n{verdict(figures)}\n"
    print(text)
    if asked.write:
        head = f"# Compiling the set engine: a trial, {date.today().isoformat()}\n\n{machine()}\n\n"
        said = f"Made by `python {HERE.relative_to(ROOT)} --write`; the script's first lines say what each way is. "
        said += f"A factor of {WANTED:g} was wanted.\n\n"
        RESULTS.write_text(head + said + text)


if __name__ == "__main__":
    main()
