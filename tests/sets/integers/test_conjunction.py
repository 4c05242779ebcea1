"""The common elements of many nests, rung by rung, against listed integers."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from math import lcm, prod
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapestry_sets import Stripe, TooHard, limits
from tapestry_sets.integers import conjunction, nest, tuning
from tapestry_sets.integers.nest import Nest
from tapestry_sets.limits import attempt
from tapestry_sets.limits import current as limits_in_force
from tapestry_sets.limits.budget import OPEN, Budget, Open, Question
from tapestry_sets.solvers import isl
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
    "isl": {"NEST_LEAPS": 0},
    "pieces": {"NEST_LEAPS": 0, "isl": False, "MASK_SPAN": 0, "MAX_TABLE": 0},
    "halves": {"MASK_SPAN": 0},
}


def only(rung: str) -> ExitStack:
    """Leave one rung of the ladder standing."""
    stack = ExitStack()
    for name, value in RUNGS[rung].items():
        patch = (
            mock.patch.object(isl, "available", lambda: False)
            if name == "isl"
            else mock.patch.object(tuning, name, value)
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


@given(every=several, f=st.integers(2, 9), r=st.integers(-9, 9), window=windows())
def test_a_factor_of_all_lengths_changes_nothing(every: list[Levels], f: int, r: int, window: tuple[int, int]) -> None:
    points = [z for z in range(*window) if all(in_nesting(levels, (z - r) // f) for levels in every)]
    blocks = [nest.shift(nest.scale(s, f), r) for s in raw(every)]
    for some in (blocks, blocks[:2]):
        held = [z for z in range(*window) if all(in_nesting(s, (z - r) // f) for s in every[: len(some)])]
        assert conjunction.count(some, *window) == len(held)
        assert conjunction.first(some, *window) == min(held, default=None)
        assert conjunction.is_disjoint(some, *window) == (not held)
    assert conjunction.is_disjoint(blocks) == conjunction.is_disjoint(raw(every))
    assert conjunction.count(blocks, *window) == len(points)


def test_a_question_has_one_budget_whatever_it_asks() -> None:
    every = [((600, 1501, 7), (2, 3, 0)), ((500, 1205, 0), (3, 5, 1)), ((900, 2003, 1), (5, 7, 2))]
    with limits(budget=2000), Question() as work:
        asked = 0
        with pytest.raises(TooHard, match=r"the budget is 2000; ask within a shorter range.*limits\(budget="):
            while True:
                conjunction.count(every, asked, asked + 10**6)
                asked += 1
        assert 1 < asked < 2000
        assert work.left < 0
    with limits(budget=2000):
        alone = conjunction.count(every, 0, 10**6)  # a question of its own
    z = np.arange(10**6, dtype=np.int64)
    keep = np.ones(len(z), bool)
    for levels in every:
        rest = z
        for on, period, phase in levels:
            rest = (rest - phase) % period
            keep &= rest < on
    assert alone == int(keep.sum())


def test_an_attempt_takes_at_most_half_of_what_is_left() -> None:
    with limits(budget=1000), Question() as work:
        with pytest.raises(TooHard), Question(attempt=True) as half:
            conjunction.spend(half, 501, "pairs", [])
        assert work.left == 500


def test_isl_is_asked_once_in_a_question() -> None:
    asked = []

    def no_answer(*args: object, **_: object) -> Open:
        asked.append(args)
        return OPEN

    every = [((10, n, n // 2),) for n in (600011, 600043, 600053, 600071)]
    with (
        mock.patch.object(isl, "available", lambda: True),
        mock.patch.object(isl, "nests_first_common", no_answer),
        Question(),
    ):
        for lo in (10**6, 10**7):
            with suppress(TooHard):
                conjunction.first(every, lo, 10**15)
    assert len(asked) == 1


def test_common_elements_far_beyond_int64_are_counted() -> None:
    s, t, u = ((1, 2**45, 3),), ((2**40 + 1, 2**45 + 2, 3), (1, 2, 0)), ((2**44, 2**44 + 6, 3), (1, 6, 0))
    for lo in (0, 2**70, -(2**90)):
        moved = [nest.shift(every, lo) for every in (s, t, u)]
        assert conjunction.count(moved, lo, lo + 2**60) == conjunction.count((s, t, u), 0, 2**60)


def test_long_runs_are_counted_one_by_one() -> None:
    s, t, u = (((p // 2, p, 0),) for p in (100003, 100019, 100043))
    z = np.arange(10**7)
    both = (z % 100003 < 50001) & (z % 100019 < 50009) & (z % 100043 < 50021)
    with mock.patch.object(isl, "available", lambda: False):
        assert conjunction.count((s, t, u), 0, 10**7) == np.count_nonzero(both)
        assert conjunction.first((s, t, u), 60000) == int(np.flatnonzero(both[60000:])[0]) + 60000
        far = conjunction.first((s, t, u), 10**12)
    assert far is not None and all(nest.contains(v, far) for v in (s, t, u))


@given(st.lists(nestings(12, 2), min_size=3, max_size=3), windows())
def test_runs_add_up_to_the_listed_elements(every: list[list[Stripe]], window: tuple[int, int]) -> None:
    s = tuple(nest.canonical([stripe.level for stripe in levels]) for levels in every)
    both = sum(all(in_nesting(levels, z) for levels in every) for z in range(*window))
    if all(v and v != nest.EMPTY for v in s):
        assert conjunction._count_runs(s, *window, Budget(100_000)) == both


def test_an_attempt_takes_at_most_its_steps_inside_a_question_and_outside() -> None:
    def left() -> int:
        with Question() as budget:
            return budget.left

    assert attempt(left, 7) == 7 and attempt(left) == limits_in_force().budget
    with Question() as budget:
        assert attempt(left, 7) == 7 and attempt(left) == budget.left // 2
