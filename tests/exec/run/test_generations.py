"""Generations: how often all devices begin again, and what is said when none is left."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tapestry_exec import StepFailed
from tapestry_exec.run import GenerationEnded, Generations, PreparedPlan
from tests.exec.run.test_side_by_side import made
from tests.exec.sent_bytes import list_copies

SENT = [(one.number, one.nbytes) for one in list_copies(made()[0]) if one.source == 0]
"""What device 0 sends, with the steps."""


def ended(step: int = 5, error: Exception | None = None) -> GenerationEnded:
    return GenerationEnded(1, step, str(error or "device 1 died"), [SENT[0][1], None, None, None], error)


class Attempts:
    """Raises one error after the other, and gives 7 behind the last one."""

    def __init__(self, *errors: GenerationEnded) -> None:
        self.left: Iterator[GenerationEnded] = iter(errors)
        self.tried = 0

    def __call__(self) -> int:
        self.tried += 1
        for error in self.left:
            raise error
        return 7


def test_all_begin_again_as_often_as_asked() -> None:
    prepared = PreparedPlan(made()[0])
    found, faults = Generations(2, 1.0).begin(prepared, Attempts(ended(), ended()))
    assert found == 7 and [(one.generation, one.device, one.step) for one in faults] == [(1, 1, 5), (2, 1, 5)]
    assert faults[0].nbytes_sent == (SENT[0][1], None, None, None)
    assert faults[0].nbytes_by_step == dict(SENT[:1])
    with pytest.raises(StepFailed, match=r"^device 1 died \(generation 3 of at most 3\)$"):
        Generations(2, 1.0).begin(prepared, Attempts(ended(), ended(), ended()))
    with pytest.raises(StepFailed, match=r"^device 1 died$"):
        Generations(0, 1.0).begin(prepared, Attempts(ended()))


def test_an_error_that_comes_again_at_the_same_step_is_raised() -> None:
    prepared, hot = PreparedPlan(made()[0]), FloatingPointError("too hot")
    again = Attempts(ended(5, hot), ended(5, hot))
    with pytest.raises(
        StepFailed, match=r"^step 5 \(.*failed: FloatingPointError: too hot \(generation 2 of at most 6\)"
    ):
        Generations(5, 1.0).begin(prepared, again)
    assert again.tried == 2
    assert Generations(5, 1.0).begin(prepared, Attempts(ended(5, hot), ended(6, hot), ended(5, hot)))[0] == 7


def test_what_the_run_before_had_left_is_lost() -> None:
    prepared, once = PreparedPlan(made()[0]), Attempts(ended())
    with pytest.raises(StepFailed, match=r"generation 1 of at most 6\); .* give the carried inputs again"):
        Generations(5, 1.0).begin(prepared, once, goes_on=True)
    assert once.tried == 1
