"""Test profiles: `default` for every run, `thorough` for full families (`--all`), `quick` and `unshrunk` for tools."""

from __future__ import annotations

import os

# One BLAS thread for each test process: several that share the cores slow each other down many times.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import platform
import zlib
from collections import Counter
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings

from tapestry_exec import BackendUnavailable, CupyBackend
from tapestry_exec.simulated import shim

settings.register_profile(
    "default",
    max_examples=200,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.register_profile(
    "thorough",
    max_examples=5000,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)

settings.register_profile("quick", settings.get_profile("default"), max_examples=20)
# For tests/bench/mutate.py: that an example fails is enough.
settings.register_profile(
    "unshrunk", settings.get_profile("quick"), phases=(Phase.explicit, Phase.generate), report_multiple_bugs=False
)

NO_COMPILER = "no C++ compiler: kernels are not run on the CPU; install g++"
COMPILED_EXAMPLES = (
    "tapestry_exec.simulated.backend.SimulatedBackend",
    "tapestry_exec.simulated.shim.compile_source",
    "tapestry_exec.simulated.shim.kernels_of",
)
"""Docstrings whose examples run kernels on the CPU."""
HEAVY_SAMPLE = 4
"""One heavy test in this many runs by default; which ones is fixed by their names."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all", action="store_true", help="run every heavy test and the thorough profile")
    parser.addoption("--table", metavar="PATH", help="write what ran, file by file, as a table in Markdown")


def pytest_configure(config: pytest.Config) -> None:
    chosen = "thorough" if config.getoption("--all") else os.environ.get("HYPOTHESIS_PROFILE", "default")
    settings.load_profile(chosen)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    on_gpu = [item for item in items if item.get_closest_marker("gpu")]
    if "gpu" not in config.option.markexpr:
        config.hook.pytest_deselected(items=on_gpu)
        items[:] = [item for item in items if not item.get_closest_marker("gpu")]
    elif on_gpu and (missing := _no_gpu()):
        for item in on_gpu:
            item.add_marker(pytest.mark.skip(reason=missing))
    if shim.found_compiler() is None:
        for item in items:
            if item.name in COMPILED_EXAMPLES:
                item.add_marker(pytest.mark.skip(reason=NO_COMPILER))
    if config.getoption("--all"):
        return
    dropped = [
        item for item in items if item.get_closest_marker("heavy") and zlib.crc32(item.nodeid.encode()) % HEAVY_SAMPLE
    ]
    if dropped:
        config.hook.pytest_deselected(items=dropped)
        items[:] = [item for item in items if item not in set(dropped)]


def _no_gpu() -> str:
    """Why nothing can run on a GPU here; empty if it can."""
    try:
        CupyBackend().gpus_of(1)
    except BackendUnavailable as error:
        return str(error)
    return ""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    return (yield from _without_compiler())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    return (yield from _without_compiler())


def _without_compiler() -> Iterator[None]:
    """Skip what fails for want of a C++ compiler: kernels cannot be run on the CPU then."""
    try:
        return (yield)
    except Exception as error:
        if shim.found_compiler() is None and any(map(_is_compiler_missing, _chain(error))):
            pytest.skip(NO_COMPILER)
        raise


def _is_compiler_missing(error: BaseException) -> bool:
    return isinstance(error, FileNotFoundError) and "g++" in str(error)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """An error, what it came from, and the members of groups."""
    seen: list[BaseException] = []
    left = [error]
    while left:
        one = left.pop()
        if one is None or any(one is other for other in seen):
            continue
        seen.append(one)
        left += [one.__cause__, one.__context__, *getattr(one, "exceptions", ())]
        yield one


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    path = config.getoption("--table")
    if path:
        Path(path).write_text(_table(terminalreporter, "thorough" if config.getoption("--all") else "default"))


def _table(reporter: pytest.TerminalReporter, profile: str) -> str:
    """Counts and seconds of each test file."""
    counts: dict[str, Counter[str]] = {}
    seconds: Counter[str] = Counter()
    for outcome in ("passed", "failed", "error", "skipped"):
        for report in reporter.stats.get(outcome, []):
            name = report.nodeid.split("::")[0]
            counts.setdefault(name, Counter())[outcome] += 1
            seconds[name] += getattr(report, "duration", 0.0)
    examples = settings.get_profile(profile).max_examples
    lines = [
        "# Every test",
        "",
        f"{date.today()}, {platform.processor() or platform.machine()}, {os.cpu_count()} cores, "
        f"Python {platform.python_version()}; {examples} examples for each property. Written by "
        "`.ci/run --all`.",
        "",
        "| file | passed | failed | skipped | seconds |",
        "|---|---|---|---|---|",
    ]
    for name in sorted(counts):
        c = counts[name]
        lines.append(f"| {name} | {c['passed']} | {c['failed'] + c['error']} | {c['skipped']} | {seconds[name]:.0f} |")
    total = sum(counts.values(), Counter())
    bad = total["failed"] + total["error"]
    lines.append(f"| all | {total['passed']} | {bad} | {total['skipped']} | {sum(seconds.values()):.0f} |")
    return "\n".join(lines) + "\n"
