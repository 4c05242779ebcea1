"""`pytest --all --part 2/8 --table PATH`: a share of every test, and a table in Markdown put together from all shares.

What a part found is kept beside the table, in a folder of its name, so that parts may run on different days and on
different machines, and one that runs again replaces what it found before.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import date
from pathlib import Path

import pytest

from tests.new_cases import REPEAT, is_property

OUTCOMES = "passed", "failed", "skipped"


@dataclass
class Part:
    """What one run found.

    Parameters
    ----------
    number, count : int
        The second of eight parts has 2 and 8.
    examples : int
        Of each property test that does not choose its own number.
    seconds : float
        From the start of the run to its end.
    counts : dict of str to dict of str to int
        Of each outcome, by file.
    costs : dict of str to float
        Seconds of the tests, by file.
    failures : dict of str to str
        What repeats a failing test, by its name.
    """

    number: int
    count: int
    day: str
    commit: str
    machine: str
    examples: int
    seconds: float = 0.0
    counts: dict[str, dict[str, int]] = field(default_factory=dict)
    costs: dict[str, float] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)


def part_numbers(text: str) -> tuple[int, int]:
    """``"2/8"`` as two numbers."""
    try:
        number, count = map(int, text.split("/"))
    except ValueError:
        number, count = 0, 0
    if not 1 <= number <= count:
        raise pytest.UsageError(f"--part {text}: take I/N with 1 <= I <= N, as in 2/8")
    return number, count


def share(items: Sequence[pytest.Item], number: int, count: int) -> list[pytest.Item]:
    """One of `count` shares of about equal cost, in the order of `items`.

    Property tests take most of the time, and tests of one file about equally long. So their names, in order, are dealt
    out like cards, and those of all other tests after them: a share has its part of each file.
    """
    deck = sorted(items, key=lambda item: (not is_property(item), item.nodeid))
    dealt = {item.nodeid for item in deck[number - 1 :: count]}
    return [item for item in items if item.nodeid in dealt]


class EveryTest:
    """A plug-in that runs one part and writes the table."""

    def __init__(self, number: int, count: int, path: Path | None, root: Path, examples: int) -> None:
        self.path = path
        self.start = time.monotonic()
        machine = f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, Python "
        self.part = Part(
            number, count, f"{date.today()}", commit_of(root), machine + platform.python_version(), examples
        )

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        kept = share(items, self.part.number, self.part.count)
        names = {item.nodeid for item in kept}
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in names])
        items[:] = kept

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        name = report.nodeid.split("::")[0]
        counts = self.part.counts.setdefault(name, dict.fromkeys(OUTCOMES, 0))
        self.part.costs[name] = self.part.costs.get(name, 0.0) + report.duration
        if report.failed or report.when == "call" or report.skipped:
            counts[report.outcome] += 1
        if report.failed:
            self.part.failures[report.nodeid] = str(dict(report.user_properties).get(REPEAT, ""))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.part.counts.setdefault(report.nodeid, dict.fromkeys(OUTCOMES, 0))["failed"] += 1
            self.part.failures[report.nodeid] = "it could not be collected"

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.path is None or hasattr(session.config, "workerinput"):
            return
        self.part.seconds = time.monotonic() - self.start
        self.part.costs = {name: round(seconds, 1) for name, seconds in self.part.costs.items()}
        kept = self.path.with_suffix("")
        kept.mkdir(exist_ok=True)
        (kept / f"{self.part.number}-of-{self.part.count}.json").write_text(json.dumps(asdict(self.part)) + "\n")
        parts = [Part(**json.loads(file.read_text())) for file in kept.glob(f"*-of-{self.part.count}.json")]
        self.path.write_text("\n".join(table(parts)) + "\n")


def commit_of(root: Path) -> str:
    """The commit that is checked out, with a + if files differ from it; empty outside a repository."""
    try:
        asked = [
            subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=True).stdout.strip()
            for words in (["rev-parse", "--short", "HEAD"], ["status", "--porcelain", "--untracked-files=no"])
        ]
    except (OSError, subprocess.CalledProcessError):
        return ""
    return asked[0] + "+" * bool(asked[1])


def table(parts: Sequence[Part]) -> Iterator[str]:
    """Parts, files and failures in Markdown, line by line."""
    parts = sorted(parts, key=lambda part: part.number)
    left = sorted({*range(1, parts[0].count + 1)} - {part.number for part in parts})
    yield "# Every test\n"
    yield f"{len(parts)} of {parts[0].count} parts" + (
        f"; part {', '.join(map(str, left))} has not run." if left else "."
    )
    yield "Written by `.ci/run --all --part I/N`; seconds are those of a machine that may have had other work.\n"
    yield "| part | date | commit | machine | examples | passed | failed | skipped | seconds |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for part in parts:
        row = f"| {part.number} | {part.day} | {part.commit} | {part.machine} | {part.examples:,} "
        yield row + cells(total(part.counts.values()), part.seconds)
    yield "| all | | | | " + cells(
        total(c for part in parts for c in part.counts.values()), sum(p.seconds for p in parts)
    )
    yield "\n| file | passed | failed | skipped | seconds |\n|---|---|---|---|---|"
    for name in sorted({name for part in parts for name in part.counts}):
        counts = total(part.counts.get(name, {}) for part in parts)
        yield f"| {name} " + cells(counts, sum(part.costs.get(name, 0.0) for part in parts))
    failures = {name: repeat for part in parts for name, repeat in part.failures.items()}
    if failures:
        yield "\n## Failed\n"
        yield from (f"- `{name}`" + (f": {repeat}" if repeat else "") for name, repeat in sorted(failures.items()))


def total(counts: Iterator[Mapping[str, int]] | Sequence[Mapping[str, int]]) -> Counter[str]:
    return sum(map(Counter, counts), Counter())


def cells(counts: Mapping[str, int], seconds: float) -> str:
    return "".join(f"| {counts[outcome]} " for outcome in OUTCOMES) + f"| {seconds:,.0f} |"
