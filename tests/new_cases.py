"""Examples that no run has tried yet: drawn from a number, say the date, and repeated by one command.

    pytest --new 20261123       property tests in an order and with examples that the number says, until time is over
    pytest NODE --repeat CASE   a property test with one example alone, as a run that failed printed it

By default Hypothesis draws the same examples in every run, so that a run's verdict is that of the code. What `--new`
finds decides nothing: `.ci/run` prints it and goes on. An example is not repeated by its seed, because what Hypothesis
draws from one depends also on the modules that are loaded; it is repeated by its choices, which the command holds.
"""

from __future__ import annotations

import re
import shlex
import time
import zlib
from ast import literal_eval
from collections.abc import Callable, Iterator
from typing import Any

import hypothesis
import pytest
from hypothesis.internal.conjecture import engine

NEW_SECONDS = 45
"""After this long, from the first test on, a run with new examples begins no further test."""
NEW_EXAMPLES = 100
"""Of each test that a run with new examples comes to."""
SHRINK_SECONDS = 10
"""For making one failing example smaller; Hypothesis takes up to five minutes, longer than such a run may last."""
REPEAT = "repeat"
"""Under this name a report holds the command that repeats its failure."""


class NewCases:
    """A plug-in that keeps the property tests and draws their order and examples from a number."""

    def __init__(self, number: str) -> None:
        self.number = number
        self.end = 0.0
        self.is_over = f"{NEW_SECONDS} s are over"
        engine.MAX_SHRINKING_SECONDS = SHRINK_SECONDS

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        self.end = time.monotonic() + NEW_SECONDS
        config.hook.pytest_deselected(items=[item for item in items if not is_property(item)])
        items[:] = sorted(filter(is_property, items), key=lambda item: zlib.crc32(self.seed_of(item).encode()))

    def pytest_runtest_setup(self, item: pytest.Function) -> None:
        if time.monotonic() > self.end:
            pytest.skip(self.is_over)
        hypothesis.seed(self.seed_of(item))(item.function)

    def seed_of(self, item: pytest.Item) -> str:
        return f"{self.number} {item.nodeid}"


class Repeated:
    """A plug-in that runs one property test with one example, ``VERSION:BLOB`` as a command holds it."""

    def __init__(self, case: str) -> None:
        self.version, _, blob = case.partition(":")
        if not blob:
            raise pytest.UsageError(f"--repeat {case}: take VERSION:BLOB as the run that failed printed it")
        self.blob = blob.encode()

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        if len(items) != 1 or not is_property(items[0]):
            raise pytest.UsageError(f"--repeat is for one property test, and {len(items)} tests are named; name it")

    def pytest_runtest_setup(self, item: pytest.Function) -> None:
        hypothesis.reproduce_failure(self.version, self.blob)(item.function)


def is_property(item: pytest.Item) -> bool:
    """Whether Hypothesis draws a test's arguments."""
    return bool(getattr(getattr(item, "obj", None), "is_hypothesis_test", False))


def command_of(item: pytest.Item, error: BaseException, chain: Callable[[BaseException], Iterator[Any]]) -> str:
    """The command that repeats a failing example; empty where no drawn example failed."""
    for one in chain(error):
        for note in getattr(one, "__notes__", ()):
            if found := re.search(r"@reproduce_failure\((?P<version>'[^']*'), (?P<blob>b'[^']*')\)", note):
                case = f"{literal_eval(found['version'])}:{literal_eval(found['blob']).decode()}"
                marks = ["-m", "gpu"] if item.get_closest_marker("gpu") else []
                return shlex.join(["python", "-m", "pytest", *marks, item.nodeid, "--repeat", case])
    return ""
