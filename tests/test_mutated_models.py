"""Changed models are imported or refused in clear lines: no other error, at most 10 s of processor time and 1 GB."""

from __future__ import annotations

import pytest

from tests.mutated_models import COUNT, import_all, make

SAMPLE = range(0, COUNT, 17)
"""About sixty, as many of bytes as of structure."""
SHARES = 8


def test_a_sample_ends_in_words() -> None:
    found = import_all(SAMPLE)
    assert not {(one.model, one.kind): one.fault for one in found if one.fault}
    assert len(found) == len(SAMPLE) > 55 and {one.kind for one in found} == {"bytes", "structure"}
    assert {one.status for one in found} == {0, 2}, "some are imported, some refused"


@pytest.mark.heavy
@pytest.mark.parametrize("share", range(SHARES))
def test_all_end_in_words(share: int) -> None:
    chosen = range(share, COUNT, SHARES)
    found = import_all(chosen)
    assert not {(one.model, one.kind): one.fault for one in found if one.fault}
    assert len(found) == len(chosen)


def test_the_models_are_the_same_in_each_run() -> None:
    assert make(7) == make(7) != make(9)
    assert make(8) == make(8) != make(10)
