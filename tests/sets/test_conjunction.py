"""The common elements of many nests, rung by rung, against listed integers."""

from __future__ import annotations

from contextlib import ExitStack
from math import lcm, prod
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapestry_sets import Stripe, TooHard, conjunction, isl, nest
from tapestry_sets.nest import Nest
from tests.oracles import in_nesting, listed
from tests.strategies import nestings, windows

Levels = list[Stripe]
gapped = st.integers(2, 12).flatmap(lambda n: st.builds(Stripe, st.integers(n // 3 + 1, n), st.integers(1, n)))
"""Stripes with gaps that are neither all nor nothing, so that several of them are a conjunction."""
several = st.lists(
    st.tuples(gapped, gapped).map(list) | gapped.map(lambda s: [s]) | nestings(8, 2), min_size=3, max_size=4
)
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


@pytest.mark.parametrize("rung", RUNGS)
def test_periods_that_all_share_a_factor_are_counted(rung: str) -> None:
    every = [((1200, 2372, 1866), (1, 2, 0)), ((900, 4336, 3212),), ((700, 1452, 1272), (2, 3, 0))]
    lo = 25951
    z = np.arange(4336 * 2372 // 4, dtype=np.int64) + lo
    first, second, third = ((z - phase) % period for period, phase in ((2372, 1866), (4336, 3212), (1452, 1272)))
    held = (first < 1200) & (first % 2 == 0) & (second < 900) & (third < 700) & (third % 3 < 2)
    with only(rung):
        assert conjunction.count(every, lo, lo + len(z)) == int(held.sum())
    few = [((5, 6, 0), (2, 3, 0)), ((3, 4, 0), (2, 3, 0)), ((7, 8, 0), (3, 5, 0))]
    with only(rung):
        assert conjunction.count(few, 0, 48) == 2 * sum(all(nest.contains(s, z) for s in few) for z in range(24))
    some = [((5, 2 * 1009, 3),), ((7, 2 * 1013, 0),), ((9, 2 * 1019, 1),)]  # modulo 2 and three primes
    halves = [[sum((z + phase) % 2 == r for z in range(n)) for r in (0, 1)] for n, phase in ((5, 3), (7, 0), (9, 1))]
    with only(rung):
        assert conjunction.count(some, 0, 2 * 1009 * 1013 * 1019) == sum(map(prod, zip(*halves, strict=True)))


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
