"""ONNX's cases of single operators: what is imported gives what ONNX wants, and the rest is refused in words."""

from __future__ import annotations

import zlib
from collections import Counter

import pytest

from tests.node_cases import DEVICES, OFF, PASSED, SLOW_MODULES, judge, load_cases

SHARE = 16
"""One case in so many is tried by default; which ones is fixed by their names."""


def test_a_sample_of_cases_on_one_and_on_three_devices() -> None:
    cases = [case for case in load_cases(SLOW_MODULES) if zlib.crc32(case.name.encode()) % SHARE == 0]
    found = {(case.name, devices): judge(case, devices) for case in cases for devices in DEVICES}
    bad = {key: verdict for key, verdict in found.items() if verdict.kind in ("wrong", "error") and key[0] not in OFF}
    assert not bad and len(cases) > 80
    kinds = Counter(verdict.kind for verdict in found.values())
    assert kinds["pass"] > 60 and kinds["bound"] > 5 and kinds["refused"] > 30


@pytest.mark.heavy
@pytest.mark.parametrize("devices", DEVICES)
def test_all_cases_pass_or_are_refused(devices: int) -> None:
    found = {case.name: judge(case, devices) for case in load_cases()}
    bad = {name: verdict for name, verdict in found.items() if verdict.kind in ("wrong", "error") and name not in OFF}
    assert not bad
    kinds = Counter(verdict.kind for verdict in found.values())
    assert all(kinds[kind] >= least for kind, least in PASSED.items())
