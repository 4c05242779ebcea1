"""Questions that tensor programs raise about memory, at real sizes: run as a script; each row is built and asked anew.

python tests/bench/bench_programs.py            prints the table
python tests/bench/bench_programs.py --write    also writes it to tests/bench/results/bench_programs.md
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable
from datetime import date
from itertools import groupby
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from bench_sets import RESULTS as SETS_RESULTS
from bench_sets import machine, shown

from tapestry_sets import tally
from tests.tensor_programs import ASKS, PROGRAMS, Numbers, Program, Views

RESULTS = SETS_RESULTS.with_name("bench_programs.md")
AIM = 1e-3
"""What a question is to take at most, built and asked, in seconds; of many views a matrix is many questions."""
ROUNDS = 15
PEER_CELLS = 5 * 10**6
"""NumPy is asked where the arrays of cell numbers together are no longer."""


class Answered(NamedTuple):
    """Seconds to build the views and to ask as well, what decided, and NumPy's seconds on arrays of cell numbers."""

    program: Program
    views: int
    built: float
    both: float
    by: str
    peer: float | None


def best_of(work: Callable[[], tuple[float, float]]) -> tuple[float, float]:
    """Return the round with the least total: (built, built and asked); long ones are not repeated often."""
    best = work()
    for _ in range(ROUNDS if best[1] < 0.05 else 2):
        best = min(best, work(), key=lambda pair: pair[1])
    return best


def decided_by(program: Program) -> str:
    """Return which rungs decide, and whether isl or a list of cells helps."""
    views = program.views(Views, **program.real)
    with tally() as kept:
        ASKS[program.ask].views(*views)
    rungs = ", ".join(f"{name} {n}" if n > 1 else name for name, n in kept.rungs.items())
    helped = [f"{n} {what}" for what, n in (("isl", kept.isl), ("listed", kept.listed)) if n]
    return "; ".join([rungs or "before the ladder", *helped])


def ask_numpy(program: Program) -> float | None:
    """Return NumPy's seconds for the same on arrays of cell numbers, made before; None where these are too long."""
    sizes: list[int] = [view.size for view in program.views(Views, **program.real)]
    homes = {a: a.size for view in program.views(Views, **program.real) for a in view.allocations}
    if sum(sizes) + sum(homes.values()) > PEER_CELLS:
        return None
    arrays: list[np.ndarray[Any, Any]] = list(program.views(Numbers(), **program.real))
    start = perf_counter()
    assert ASKS[program.ask].numbers(*arrays) == program.answer(**program.real)
    return perf_counter() - start


def answer(program: Program) -> Answered:
    """Ask a question at its real size, built anew each time; the answer must be the one by hand."""
    ask, wanted = ASKS[program.ask].views, program.answer(**program.real)

    def once() -> tuple[float, float]:
        start = perf_counter()
        views = program.views(Views, **program.real)
        built = perf_counter() - start
        assert ask(*views) == wanted, program.name
        return built, perf_counter() - start

    built, both = best_of(once)
    many = len(program.views(Views, **program.real))
    return Answered(program, many, built, both, decided_by(program), ask_numpy(program))


def table(rows: list[Answered]) -> list[str]:
    """Return the rows as Markdown, a table for each group."""
    lines = []
    for group, each in groupby(rows, key=lambda row: row.program.group):
        lines += [f"## {group}", "", "| question | built and asked | built | <= 1 ms | decided by | NumPy |"]
        lines += ["|---|---|---|---|---|---|"]
        for row in each:
            many = f" ({row.views} views)" if row.views > 2 else ""
            reached = "yes" if row.both <= AIM else "**no**"
            peer = "-" if row.peer is None else shown(row.peer)
            cells = (row.program.question + many, shown(row.both), shown(row.built), reached, row.by, peer)
            lines.append(f"| {' | '.join(cells)} |")
        lines.append("")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help=f"also write the table to {RESULTS.name}")
    parser.add_argument("--only", metavar="NAME", help="ask one question, by its function's name")
    given = parser.parse_args()
    rows = [answer(p) for p in PROGRAMS if given.only in (None, p.name)]
    versions = f"NumPy {np.__version__}, islpy {importlib.import_module('islpy').version.VERSION_TEXT}"
    within = sum(row.both <= AIM for row in rows)
    head = [
        f"# Questions of tensor programs, {date.today().isoformat()}",
        "",
        f"{machine()}, {versions}",
        "",
        f"{within} of {len(rows)} questions take at most {shown(AIM)}, views built and asked; none is refused, and",
        "each answer is the one by hand. NumPy's column is the question alone, on arrays of cell numbers made before,",
        f"where these are at most {PEER_CELLS:,} long; np.shares_memory knows no pads, tables and constants.",
        "",
    ]
    text = "\n".join([*head, *table(rows)])
    print(text)
    if given.write:
        Path(RESULTS).write_text(text)


if __name__ == "__main__":
    main()
