"""The common elements of many nests, rung by rung, against listed integers."""

from __future__ import annotations

from contextlib import ExitStack
from math import lcm
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapestry_sets import Stripe, TooHard, conjunction, isl, nest
from tapestry_sets.nest import Nest
from tests.oracles import in_nesting, listed
from tests.strategies import nestings, windows

Levels = list[Stripe]
several = st.lists(nestings(8, 2), min_size=3, max_size=4)
RUNGS = {
    "as it is": {},
    "isl": {"LEAPS": 0},
    "pieces": {"LEAPS": 0, "isl": False, "MASK_SPAN": 0, "TABLE_LIMIT": 0},
    "halves": {"MASK_SPAN": 0},
}


def only(rung: str) -> ExitStack:
    """Leave one rung of the ladder standing."""
    stack = ExitStack()
    for name, value in RUNGS[rung].items():
        patch = (
            mock.patch.object(isl, "available", lambda: False)
            if name == "isl"
            else mock.patch.object(conjunction, name, value)
        )
        stack.enter_context(patch)
    return stack


def raw(every: list[Levels]) -> list[Nest]:
    return [nest.canonical(s.level for s in levels) for levels in every]


@pytest.mark.parametrize("rung", RUNGS)
@given(every=several, window=windows())
def test_a_window_of_a_conjunction(rung: str, every: list[Levels], window: tuple[int, int]) -> None:
    points = set.intersection(*(listed(levels, window) for levels in every))
    with only(rung):
        assert conjunction.first(raw(every), *window) == min(points, default=None)
        assert conjunction.is_disjoint(raw(every), *window) == (not points)
        assert conjunction.count(raw(every), *window) == len(points)


@pytest.mark.parametrize("rung", RUNGS)
@given(every=several, lo=st.integers(-40, 40))
def test_the_whole_line_of_a_conjunction(rung: str, every: list[Levels], lo: int) -> None:
    common = lcm(*(levels[0].period for levels in every if levels))
    points = [z for z in range(lo, lo + common) if all(in_nesting(levels, z) for levels in every)]
    with only(rung):
        assert conjunction.is_disjoint(raw(every)) == (not points)
        assert conjunction.first(raw(every), lo) == min(points, default=None)
        assert conjunction.count(raw(every), lo, lo + common) == len(points)
        assert conjunction.count(raw(every), lo, lo + 10**9 * common + 5) == 10**9 * len(points) + sum(
            all(in_nesting(levels, z) for levels in every) for z in range(lo, lo + 5)
        )


def test_coprime_periods_of_any_length_meet_and_multiply() -> None:
    primes = (4294967291, 4294967279, 4294967231, 100003, 100019)
    every = [((n // 2, n, n // 3),) for n in primes]
    common = lcm(*primes)
    assert not conjunction.is_disjoint(every)
    expected = 1
    for n in primes:
        expected *= n // 2
    assert conjunction.count(every, 7, 7 + common) == expected
    z = conjunction.first(every, 10**20)
    assert z is not None
    assert all((z - n // 3) % n < n // 2 for n in primes)


def test_what_has_no_answer_in_bounds_is_said() -> None:
    every = [((n // 2, n, 0),) for n in (4294967291, 4294967279, 4294967231)]
    with pytest.raises(TooHard, match=r"periods \[4294967291, 4294967279, 4294967231\].*shorter range"):
        conjunction.count(every, 0, 10**20)
