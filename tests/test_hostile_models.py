"""Hostile models end in an exit status and one line: no traceback, at most 10 s of processor time, at most 1 GB."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.hostile_models import CLASSES, COUNT, make, plan_all

SAMPLE = [k for k in range(COUNT) if k // len(CLASSES) % 8 == k % 8]
"""About every eighth, of each class some."""


def test_a_sample_ends_in_words(tmp_path: Path) -> None:
    found = plan_all(SAMPLE, tmp_path)
    assert {k % len(CLASSES) for k in SAMPLE} == set(range(len(CLASSES))) and len(found) == len(SAMPLE) > 30
    assert not {(one.model, one.kind): one.fault for one in found if one.fault}
    assert {one.status for one in found} == {0, 2}, "some are planned, some refused"


@pytest.mark.heavy(12)
@pytest.mark.parametrize("number", range(len(CLASSES)), ids=[one.__name__ for one in CLASSES])
def test_all_end_in_words(number: int, tmp_path: Path) -> None:
    chosen = range(number, COUNT, len(CLASSES))
    found = plan_all(chosen, tmp_path)
    assert len(found) == len(chosen)
    assert not {(one.model, one.kind): one.fault for one in found if one.fault}


def test_the_models_are_the_same_in_each_run() -> None:
    assert make(11) == make(11) and make(11) != make(11 + len(CLASSES))
