"""Test profiles: `default` for every run, `thorough` for the full families (`pytest --all`)."""

from __future__ import annotations

import os
import zlib

import pytest
from hypothesis import HealthCheck, settings

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

HEAVY_SAMPLE = 4
"""One heavy test in this many runs by default; which ones is fixed by their names."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all", action="store_true", help="run every heavy test and the thorough profile")


def pytest_configure(config: pytest.Config) -> None:
    chosen = "thorough" if config.getoption("--all") else os.environ.get("HYPOTHESIS_PROFILE", "default")
    settings.load_profile(chosen)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--all"):
        return
    dropped = [
        item
        for item in items
        if item.get_closest_marker("heavy") and zlib.crc32(item.nodeid.encode()) % HEAVY_SAMPLE
    ]
    if dropped:
        config.hook.pytest_deselected(items=dropped)
        items[:] = [item for item in items if item not in set(dropped)]
