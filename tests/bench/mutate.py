"""Change the code a little, many times, and see whether the tests notice: which corners does no test guard?

python tests/bench/mutate.py [MODULE …] [--write] [--anew] [--seed N] [--size N]

    pip install '.[mutate]'
    python tests/bench/mutate.py tapestry_sets/integers/stripe.py     one module; without a name all of them
    python tests/bench/mutate.py --write                              rows go to tests/bench/results/mutants.md

cosmic-ray lists every mutant of a module: another operator, another number, a condition turned round. A seeded sample
of 40 is drawn from them, each of another place, and the tests that fit the module are run on each until one fails.
What is changed and run is a copy of the working tree in a temporary folder, never the tree itself.

- Modules, their fitting tests and the arguments about equivalent mutants stand in `tests/bench/mutants/*.toml`. A
  mutant that outlives `tests` meets `wider` before it counts as a survivor. Both are files of tests, or modules whose
  docstrings have examples.
- A mutant is *killed* by a test that fails, by a crash, or by taking over four times the processor time that the tests
  take on the code as it is (*timeout*). It is *equivalent* where no input can tell it from the code; each has its
  argument.
- Changes of annotations, those that compile to the same code, and `strict` of a `zip` are no mutants. That is an
  assertion: while lengths are equal, as it says, no input can tell.
- The order of the sample depends on the lines' text alone, so that a change of other lines leaves it as it is.
- Outcomes are kept in `build/mutants.sqlite`: a run that was cut short goes on where it ended, and survivors are tried
  again. `--anew` forgets the outcomes of the modules that are run.

Each run of the tests is a fork of this process, which has imported the libraries but nothing of ours: Linux and macOS.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import importlib
import os
import platform
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
import tomllib
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import date
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

HERE = Path(__file__).resolve()
ROOT = HERE.parents[2]
RESULTS = HERE.with_name("results") / "mutants.md"
MODULES = HERE.with_name("mutants")
SESSION = ROOT / "build" / "mutants.sqlite"
SEED, SIZE = 40, 40
LIBRARIES = ["numpy", "pytest", "hypothesis", "msgspec", "islpy", "onnx", "sympy", "scipy", "click", "rich"]
"""What tests import besides our code: imported once here, so that a fork has it."""
MEMORY_NBYTES = 8 << 30
NEEDLESS = ("core/ExceptionReplacer",)
"""Operators left out: this one names a class that no module imports, so that any test of the handler kills it."""
PYTEST = ["-x", "-q", "--tb=no", "-rfE", "-p", "no:cacheprovider"]
OPTIONS = ["-o", "addopts=--strict-markers --doctest-modules --ignore=tests/bench"]
HEAD = "| module | on | mutants | tried | killed | of these by time | equivalent | survived | processor time | tests |"


class Module(NamedTuple):
    """A module of the list, the tests that fit it, and why some of its mutants are equivalent."""

    path: str
    tests: list[str]
    wider: list[str]
    equivalent: list[dict[str, str]]
    """operator, line, becomes, why."""

    def argument(self, mutant: Mutant) -> str:
        """Why a mutant is equivalent, or nothing."""
        keys = ("operator", "line", "becomes")
        return next((it["why"] for it in self.equivalent if all(it[key] == getattr(mutant, key) for key in keys)), "")


class Mutant(NamedTuple):
    """One change of one module."""

    operator: str
    occurrence: int
    """Which of the places that the operator could change, as cosmic-ray counts them."""
    start: tuple[int, int]
    end: tuple[int, int]
    line: str
    """The text of the line that changes, and what it becomes."""
    becomes: str
    code: str
    key: str
    """Names the mutant as long as its line stands."""


class Outcome(NamedTuple):
    """How one run of the tests ended."""

    has_passed: bool
    seconds: float
    """Processor time."""
    note: str
    """The test that failed, or that the time was over."""


def modules() -> list[Module]:
    """Return the modules of the list, in order."""
    rows = [row for path in sorted(MODULES.glob("*.toml")) for row in tomllib.loads(path.read_text())["module"]]
    return [Module(row["path"], row["tests"], row.get("wider", []), row.get("equivalent", [])) for row in rows]


class Source:
    """The text of a module and all of its mutants."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.text = (ROOT / path).read_text()
        self.lines = self.text.split("\n")
        self.running = _running_code(self.text)

    @cached_property
    def places(self) -> dict[str, list[tuple[str, int, tuple[int, int], tuple[int, int]]]]:
        """Operator, occurrence, start and end of each mutant, by the place that it changes."""
        from cosmic_ray import plugins
        from cosmic_ray.ast import ast_nodes, get_ast

        nodes = list(ast_nodes(get_ast(self.text)))
        found: dict[str, list[Any]] = {}
        for name in plugins.operator_names():
            operator = plugins.get_operator(name)
            if operator.arguments() or name in NEEDLESS:
                continue
            spots = (spot for node in nodes for spot in operator().mutation_positions(node))
            for occurrence, (start, end) in enumerate(spots):
                found.setdefault(self._place(start), []).append((name, occurrence, start, end))
        return found

    def _place(self, start: tuple[int, int]) -> str:
        """A name of a place that changes of other lines leave as it is."""
        line = self.lines[start[0] - 1]
        which = self.lines[: start[0] - 1].count(line)
        return f"{line.strip()}|{which}|{start[1]}"

    @property
    def count(self) -> int:
        """How many mutants the module has."""
        return sum(map(len, self.places.values()))

    def sample(self, seed: int, size: int) -> Iterator[Mutant]:
        """Draw mutants of different places."""
        drawn = 0
        for place in sorted(self.places, key=lambda place: _hash(seed, self.path, place)):
            changes = self.places[place]
            for change in sorted(changes, key=lambda it: _hash(seed, self.path, place, it[0], changes.index(it))):
                if mutant := self._mutant(place, *change):
                    yield mutant
                    drawn += 1
                    break
            if drawn == size:
                return

    def _mutant(
        self, place: str, name: str, occurrence: int, start: tuple[int, int], end: tuple[int, int]
    ) -> Mutant | None:
        """Make one change; None where nothing that runs is changed."""
        from cosmic_ray import plugins
        from cosmic_ray.mutating import mutate_code

        code = mutate_code(self.text, plugins.get_operator(name)(), occurrence)
        if code is None or _running_code(code) in (None, self.running):
            return None
        old, new = _changed(self.lines, code.split("\n"))
        key = _hash(self.path, place, name, new)
        return Mutant(name.removeprefix("core/"), occurrence, start, end, old, new, code, key)


def _hash(*words: object) -> str:
    return hashlib.sha256(repr(words).encode()).hexdigest()[:32]


def _running_code(text: str) -> str | None:
    """The syntax tree without annotations and `zip`'s assertions; None where the text is no Python."""
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return None
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                node.returns = None
            case ast.arg():
                node.annotation = None
            case ast.AnnAssign():
                node.annotation = ast.Constant(None)
            case ast.Call(func=ast.Name(id="zip")):
                node.keywords = []
    return ast.dump(tree)


def _changed(old: list[str], new: list[str]) -> tuple[str, str]:
    """The lines in which two texts differ."""
    start = next(i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b)
    end = next((i for i, (a, b) in enumerate(zip(old[::-1], new[::-1], strict=False)) if a != b))
    end = min(end, min(len(old), len(new)) - start)
    return tuple("\n".join(it[start : len(it) - end]).strip() for it in (old, new))  # type: ignore[return-value]


class Copy:
    """A copy of the working tree, in which one module at a time is changed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT, capture_output=True, check=True, text=True,
        ).stdout  # fmt: skip
        for name in filter(None, listed.split("\0")):
            if (ROOT / name).is_file():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, folder / name)
        self.clean: dict[tuple[str, ...], float] = {}
        """Processor time of tests on the code as it is."""

    def seconds(self, tests: Sequence[str]) -> float:
        """Run tests on the code as it is, once.

        Raises:
            SystemExit: They fail.
        """
        key = tuple(tests)
        if key not in self.clean:
            for keep_bytecode in (True, False):  # the second is timed: it compiles nothing, as on mutants
                outcome = self.run(tests, 3600, keep_bytecode)
            if not outcome.has_passed:
                log = (self.folder / "log").read_text()
                raise SystemExit(f"{' '.join(tests)} fails on the code as it is:\n{log}")
            self.clean[key] = outcome.seconds
        return self.clean[key]

    def meets(self, mutant: Mutant, module: Module) -> Outcome:
        """Run the tests on a mutant: the fitting ones, then the wider ones."""
        path = self.folder / module.path
        outcome = Outcome(True, 0.0, "")
        for tests in filter(None, (module.tests, module.wider)):
            seconds = self.seconds(tests)
            shutil.rmtree(path.parent / "__pycache__", ignore_errors=True)
            original = path.read_text()
            path.write_text(mutant.code)
            try:
                outcome = self.run(tests, 4 * seconds + 2)
            finally:
                path.write_text(original)
            if not outcome.has_passed:
                break
        return outcome

    def run(self, tests: Sequence[str], seconds: float, keep_bytecode: bool = False) -> Outcome:
        """Run tests in a fork of this process, in the copy, for a number of seconds of processor time."""
        log = self.folder / "log"
        child = os.fork()
        if not child:
            _run_here(self.folder, tests, int(seconds) + 1, keep_bytecode, log)
        started = time.monotonic()
        try:
            pid, status, usage = os.wait4(child, os.WNOHANG)
            while not pid:
                if time.monotonic() - started > 20 * seconds + 60:
                    os.killpg(child, signal.SIGKILL)
                time.sleep(0.02)
                pid, status, usage = os.wait4(child, os.WNOHANG)
        except BaseException:
            with suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)
            raise
        spent = usage.ru_utime + usage.ru_stime
        if os.WIFSIGNALED(status):
            is_late = os.WTERMSIG(status) in (signal.SIGXCPU, signal.SIGKILL)
            return Outcome(False, spent, "timeout" if is_late else signal.Signals(os.WTERMSIG(status)).name)
        text = log.read_text(errors="replace")
        failed = re.search(r"^(?:FAILED|ERROR) (?:tests/)?(.*?)(?: - |$)", text, re.M)
        last = text.strip().split("\n")[-1]
        return Outcome(os.WEXITSTATUS(status) == 0, spent, failed[1] if failed else last)


def _run_here(folder: Path, tests: Sequence[str], seconds: int, keep_bytecode: bool, log: Path) -> None:
    """Become a process that runs tests in a folder; never returns."""
    try:
        os.setsid()
        out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for stream in (1, 2):
            os.dup2(out, stream)
        os.chdir(folder)
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_NBYTES, MEMORY_NBYTES))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        sys.dont_write_bytecode = not keep_bytecode
        os.environ["PYTHONPATH"] = str(folder)
        if not keep_bytecode:
            os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
        ours = (ROOT, HERE.parent)
        sys.path[:] = [str(folder), *(entry for entry in sys.path if Path(entry or ".").resolve() not in ours)]
        import pytest

        code = int(pytest.main([*PYTEST, *OPTIONS, *tests]))
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(70)


class Row(NamedTuple):
    """What became of a module's sample."""

    module: Module
    mutants: int
    killed: int
    late: int
    seconds: float
    equivalent: list[tuple[Mutant, str]]
    survivors: list[Mutant]

    def __str__(self) -> str:
        tried = self.killed + len(self.equivalent) + len(self.survivors)
        tests = ", ".join(Path(test).name.removesuffix(".py") for test in self.module.tests)
        cells = [self.killed, self.late, len(self.equivalent), len(self.survivors), f"{self.seconds:.0f} s", tests]
        cells = [f"`{self.module.path}`", date.today(), f"{self.mutants:,}", tried, *cells]
        return "| " + " | ".join(map(str, cells)) + " |"


def try_module(copy: Copy, module: Module, seed: int, size: int, is_anew: bool) -> Row:
    """Try a sample of a module's mutants, those that have no outcome yet."""
    from cosmic_ray.work_db import WorkDB, use_db
    from cosmic_ray.work_item import MutationSpec, TestOutcome, WorkerOutcome, WorkItem, WorkResult

    source = Source(module.path)
    sample = list(source.sample(seed, size))
    SESSION.parent.mkdir(exist_ok=True)
    counts: Counter[str] = Counter()
    equivalent, survivors = [], []
    started, total = time.perf_counter(), 0.0
    with use_db(SESSION, WorkDB.Mode.create) as session:
        known = {item.job_id for item in session.work_items}
        for mutant in sample:
            if mutant.key not in known:
                name = f"core/{mutant.operator}"
                spec = MutationSpec(module.path, name, mutant.occurrence, mutant.start, mutant.end)
                session.add_work_item(WorkItem.single(mutant.key, spec))
        kept = {} if is_anew else dict(session.results)
        print(f"{module.path}: {len(sample)} of {source.count:,} mutants", flush=True)
        for number, mutant in enumerate(sample, 1):
            result = kept.get(mutant.key)
            if why := module.argument(mutant):
                equivalent.append((mutant, why))
                continue
            if result is None or not result.is_killed:
                outcome = copy.meets(mutant, module)
                total += outcome.seconds
                result = WorkResult(
                    WorkerOutcome.NORMAL,
                    f"{outcome.seconds:.1f} s, {outcome.note}",
                    TestOutcome.SURVIVED if outcome.has_passed else TestOutcome.KILLED,
                    f"- {mutant.line}\n+ {mutant.becomes}",
                )
                session.set_result(mutant.key, result)
                word = "SURVIVED" if outcome.has_passed else "killed"
                print(f"{number:3}/{len(sample)} {word} {result.output} | {mutant.operator}", flush=True)
                if outcome.has_passed:
                    print(f"    {mutant.start[0]:4} - {mutant.line}\n         + {mutant.becomes}", flush=True)
            counts["killed"] += result.is_killed
            counts["late"] += result.is_killed and str(result.output).endswith("timeout")
            if not result.is_killed:
                survivors.append(mutant)
    seconds = copy.seconds(module.tests)
    row = Row(module, source.count, counts["killed"], counts["late"], seconds, equivalent, survivors)
    print(f"{row}\n    {total:.0f} s of processor time, {time.perf_counter() - started:.0f} s", flush=True)
    return row


def table(rows: Iterable[Row], before: str) -> str:
    """Return the table as Markdown: rows that were made now, and those of the table before."""
    kept = {line.split("`")[1]: line for line in before.split("\n") if line.startswith("| `")}
    kept |= {row.module.path: str(row) for row in rows}
    listed = {module.path: module for module in modules()}
    lines = [kept[path] for path in listed if path in kept]
    counts = [[int(cell.replace(",", "")) for cell in line.split(" | ")[2:8]] for line in lines]
    sums = [f"{sum(column):,}" for column in zip(*counts, strict=True)]
    sums += [f"{100 * sum(row[4] for row in counts) / max(1, sum(row[1] for row in counts)):.1f} % equivalent", ""]
    lines.append("| " + " | ".join(["all", "", *sums]) + " |")
    why = ["| module | operator | line | becomes | why no input differs |", "|---|---|---|---|---|"]
    for path, module in listed.items():
        for it in module.equivalent:
            cells = [path, it["operator"], *(_as_code(it[key]) for key in ("line", "becomes")), it["why"]]
            why.append("| " + " | ".join(cells) + " |")
    about = [
        f"# Mutants, {date.today()}",
        "",
        f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}. "
        f"Written by `python tests/bench/mutate.py --write`: of each module {SIZE} changes drawn by seed {SEED}, 20 "
        "examples a property. Processor time is that of the fitting tests on the code as it is.",
        "",
        HEAD,
        re.sub(r"[^|]+", "---", HEAD),
    ]
    return "\n".join([*about, *lines, "", "## Equivalent", "", *why]) + "\n"


def _as_code(text: str) -> str:
    joined = " ".join(text.split()).replace("|", "\\|")
    return f"`{joined}`" if joined else "(nothing)"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("modules", nargs="*", metavar="MODULE")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--anew", action="store_true")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--size", type=int, default=SIZE)
    arguments = parser.parse_args()
    listed = modules()
    if unknown := set(arguments.modules) - {module.path for module in listed}:
        parser.error(f"not in tests/bench/mutants/*.toml: {sorted(unknown)}")
    if arguments.write and (arguments.seed, arguments.size) != (SEED, SIZE):
        parser.error(f"the table is of seed {SEED} and {SIZE} mutants")
    os.environ |= {"HYPOTHESIS_PROFILE": "unshrunk", "OPENBLAS_NUM_THREADS": "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    for name in LIBRARIES:
        with suppress(ImportError):
            importlib.import_module(name)
    chosen = [module for module in listed if not arguments.modules or module.path in arguments.modules]
    rows = []
    with TemporaryDirectory(prefix="mutants") as folder:
        copy = Copy(Path(folder))
        for module in chosen:
            rows.append(try_module(copy, module, arguments.seed, arguments.size, arguments.anew))
            if arguments.write:
                RESULTS.write_text(table(rows, RESULTS.read_text() if RESULTS.exists() else ""))
    survivors = [(row.module.path, mutant) for row in rows for mutant in row.survivors]
    for path, mutant in survivors:
        print(f"{path}:{mutant.start[0]} {mutant.operator}\n  - {mutant.line}\n  + {mutant.becomes}")
    raise SystemExit(f"{len(survivors)} survived" if survivors else 0)


if __name__ == "__main__":
    main()
