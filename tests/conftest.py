"""Test profiles: `default` for every run, `thorough` for full families (`--all`), `quick` and `unshrunk` for tools.

`thorough` tries 1,000 examples of each property, twenty times those of every run, and the heavy families whole:
an hour or two of one core. `--all --part 3/8` takes an eighth of it.
"""

from __future__ import annotations

import os

# One BLAS thread for each test process: several that share the cores slow each other down many times.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import gc
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings

from tapestry_exec import BackendUnavailable, CupyBackend
from tapestry_exec.simulated import shim
from tests.every_test import EveryTest, part_numbers
from tests.new_cases import NEW_EXAMPLES, REPEAT, NewCases, Repeated, command_of
from tests.pages import start_chromium

settings.register_profile(
    "default",
    max_examples=50,
    deadline=None,
    derandomize=True,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.register_profile(
    "thorough",
    max_examples=1000,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)

settings.register_profile("quick", settings.get_profile("default"), max_examples=20)
# For tests/bench/mutate.py: that an example fails is enough.
settings.register_profile(
    "unshrunk", settings.get_profile("quick"), phases=(Phase.explicit, Phase.generate), report_multiple_bugs=False
)
settings.register_profile(
    "new",
    settings.get_profile("default"),
    max_examples=NEW_EXAMPLES,
    phases=(Phase.generate, Phase.shrink),
    report_multiple_bugs=False,
)

NO_COMPILER = "no C++ compiler: kernels are not run on the CPU; install g++"
COMPILED_EXAMPLES = (
    "tapestry_exec.cuda.backend.NoDevicePath",
    "tapestry_exec.cuda.gpus.KernelError",
    "tapestry_exec.cuda.gpus.RawKernel",
    "tapestry_exec.simulated.backend.SimulatedBackend",
    "tapestry_exec.simulated.shim.compile_source",
    "tapestry_exec.simulated.shim.kernels_of",
)
"""Docstrings whose examples run kernels on the CPU."""
HEAVY_SAMPLE = 8
"""One heavy test in this many runs by default, and in N of those marked `heavy(N)`; their names say which ones."""

SECONDS_OF_A_CELL = 30
"""A cell of a notebook that takes longer fails."""

GPU_TESTS = (
    "tests/exec/cuda/test_deployed.py",
    "tests/exec/cuda/test_device_paths.py",
    "tests/exec/cuda/test_gpu_options.py",
    "tests/exec/cuda/test_kernels.py",
    "tests/exec/cuda/test_on_cupy.py",
    "tests/exec/cuda/test_cublas.py",
    "tests/exec/run/test_operators_sharded.py",
    "tests/exec/run/test_progress.py",
    "tests/exec/run/test_run.py",
    "tests/exec/run/test_run_spilled.py",
    "tests/exec/run/test_trace.py",
    "tests/sets/alias/test_array_protocols.py",
)
"""Files with tests marked `gpu`. `-m gpu` reads no others: they may import what a machine with a GPU does not have."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all", action="store_true", help="run every heavy test and the thorough profile")
    parser.addoption(
        "--part", metavar="I/N", default="1/1", help="run one of N shares of the tests, of about equal cost"
    )
    parser.addoption("--table", metavar="PATH", help="write what ran, file by file, as a table in Markdown")
    parser.addoption(
        "--new", metavar="NUMBER", help="run property tests with examples drawn from a number, for a minute"
    )
    parser.addoption("--repeat", metavar="CASE", help="run one property test with one example, as a failure printed it")


def pytest_configure(config: pytest.Config) -> None:
    option, register = config.getoption, config.pluginmanager.register
    # No option of pyproject.toml's, which is read where nbmake is missing too. The default run has the notebooks' cells
    # run once, by test_notebooks; the site runs them in a kernel.
    if option("--all") and config.pluginmanager.hasplugin("nbmake"):
        config.option.nbmake, config.option.nbmake_timeout = True, SECONDS_OF_A_CELL
    chosen = "thorough" if option("--all") else "new" if option("--new") else ""
    settings.load_profile(chosen or os.environ.get("HYPOTHESIS_PROFILE", "default"))
    if config.option.markexpr == "gpu":
        register(OnGpu())
    if option("--new"):
        register(NewCases(option("--new")))
    if option("--repeat"):
        register(Repeated(option("--repeat")))
    path = option("--table")
    if path or option("--part") != "1/1":
        numbers = part_numbers(option("--part"))
        register(EveryTest(*numbers, path and Path(path), config.rootpath, settings.default.max_examples))


class OnGpu:
    """A plug-in that passes over the files without tests for a GPU."""

    def pytest_ignore_collect(self, collection_path: Path, config: pytest.Config) -> bool | None:
        if collection_path.suffix and collection_path not in [config.rootpath / name for name in GPU_TESTS]:
            return True
        return None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    on_gpu = [item for item in items if item.get_closest_marker("gpu")]
    if unknown := sorted({item.nodeid.split("::")[0] for item in on_gpu} - set(GPU_TESTS)):
        raise pytest.UsageError(
            f"{', '.join(unknown)}: has tests marked gpu; name it in GPU_TESTS of tests/conftest.py"
        )
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
    if config.getoption("--all") or config.getoption("--repeat"):
        return
    dropped = [
        item
        for item in items
        if (marker := item.get_closest_marker("heavy"))
        and zlib.crc32(item.nodeid.encode()) % (*marker.args, HEAVY_SAMPLE)[0]
    ]
    if dropped:
        config.hook.pytest_deselected(items=dropped)
        gone = set(dropped)
        items[:] = [item for item in items if item not in gone]


def _no_gpu() -> str:
    """Why nothing can run on a GPU here; empty if it can."""
    try:
        CupyBackend().gpus_of(1)
    except BackendUnavailable as error:
        return str(error)
    return ""


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[object]:
    """Look for no garbage while tests are collected, nor later among the many objects that these are."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


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


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium for the pages of a module; gone behind it, since its loop of events would be in the way of others."""
    with start_chromium() as found:
        yield found


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    report = yield
    if call.excinfo and (command := command_of(item, call.excinfo.value, _chain)):
        report.user_properties.append((REPEAT, command))
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    failed = terminalreporter.stats.get("failed", [])
    if commands := [command for report in failed for name, command in report.user_properties if name == REPEAT]:
        terminalreporter.section("to repeat what failed")
        for command in commands:
            terminalreporter.line(command)
