"""Bounded linear equations against all digits, listed, and against isl."""

from __future__ import annotations

import random
from itertools import product
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tapestry_sets import TooHard, limits
from tapestry_sets.limits import OPEN
from tapestry_sets.solvers import isl, tuning
from tapestry_sets.solvers.equation import WeightedTerms, count, count_met, equal_sums, meet, solve

Digits = tuple[int, ...]


def total_of(digits: Digits, terms: WeightedTerms) -> int:
    return sum(x * step for x, (_, step) in zip(digits, terms, strict=True))


def every(terms: WeightedTerms) -> dict[Digits, int]:
    """All digits and their totals."""
    return {digits: total_of(digits, terms) for digits in product(*(range(n) for n, _ in terms))}


def terms_of(most: int) -> st.SearchStrategy[list[tuple[int, int]]]:
    return st.lists(st.tuples(st.integers(1, 5), st.integers(-most, most)), max_size=5)


some_terms = st.sampled_from([4, 12, 40, 300]).flatmap(terms_of)


@given(some_terms, st.data())
@example([(4, 6), (3, 4), (2, 9)], None)
def test_solutions_are_those_of_the_list(terms: list[tuple[int, int]], data: st.DataObject | None) -> None:
    totals = every(terms)
    near = st.integers(min(totals.values()) - 2, max(totals.values()) + 2)
    total = 17 if data is None else data.draw(st.sampled_from(sorted(set(totals.values()))) | near)
    found = solve(total, terms)
    wanted = [digits for digits, t in totals.items() if t == total]
    assert found in wanted if wanted else found is None
    assert count(total, terms) == len(wanted)


@given(some_terms, st.data())
def test_solutions_counted_in_halves_are_as_many(terms: list[tuple[int, int]], data: st.DataObject) -> None:
    totals = every(terms)
    total = data.draw(st.integers(min(totals.values()) - 2, max(totals.values()) + 2))
    with patch.object(tuning, "SEARCHED", 0):
        assert count(total, terms) == sum(t == total for t in totals.values())


def test_sums_of_prime_steps_are_counted_as_numpy_counts_them() -> None:
    """Twelve of each of eight primes: the sums of four of them are as many as the remainders of all."""
    steps = (100003, 10007, 1009, 101, 99991, 9973, 997, 97)
    ours, theirs = ([*every([(12, step) for step in four]).values()] for four in (steps[:4], steps[4:]))
    terms = [(12, step) for step in steps[:4]] + [(12, -step) for step in steps[4:]]
    wanted = len(np.intersect1d(ours, np.array(theirs) + 55, assume_unique=True))
    assert wanted > 100 and count(55, terms) == wanted


@given(some_terms)
def test_equal_sums_are_found_where_there_are_some(terms: list[tuple[int, int]]) -> None:
    totals = every(terms)
    found = equal_sums(terms)
    if len(set(totals.values())) == len(totals):
        assert found is None
    else:
        assert found is not None
        one, two = found
        assert one != two and totals[one] == totals[two]


@given(st.lists(st.tuples(st.integers(1, 10**9), st.integers(-(10**12), 10**12)), max_size=3), st.data())
def test_planted_solutions_of_any_size_are_found(terms: list[tuple[int, int]], data: st.DataObject) -> None:
    planted = tuple(data.draw(st.integers(0, n - 1)) for n, _ in terms)
    with limits(budget=40_000):
        found = solve(total_of(planted, terms), terms)
    assert found is not None and total_of(found, terms) == total_of(planted, terms)
    assert all(0 <= x < n for x, (n, _) in zip(found, terms, strict=True))


@given(st.integers(2, 10**6), st.data())
def test_blocks_of_any_size_have_as_many_solutions(scale: int, data: st.DataObject) -> None:
    """All steps and the total times a factor, and one step more that is shorter than it."""
    terms = data.draw(terms_of(30))
    total = data.draw(st.integers(-60, 120))
    blocks = [(n, step * scale) for n, step in terms]
    wanted = sum(t == total for t in every(terms).values())
    assert count(total * scale, blocks) == wanted == count(total * scale + 1, [*blocks, (scale, 1)])
    if wanted:
        found = solve(total * scale + scale - 1, [*blocks, (scale, 1)])
        assert found is not None and found[-1] == scale - 1


def test_rows_are_counted_at_any_size() -> None:
    """3 of 7 columns in every second row against 2 of 5 rows in every third column: a product of axes."""
    n = 10**12
    ours = [(n // 2, 2 * n), (n // 7, 7), (3, 1)]
    theirs = [(n // 5, 5 * n), (2, n), (n // 3, 3)]
    terms = [*ours, *[(m, -step) for m, step in theirs]]
    rows = sum(x % 2 == 0 and x % 5 < 2 for x in range(10)) * (n // 10)
    short = sum(y % 7 < 3 and y % 3 == 0 for y in range(21))
    end = n // 21 * 21
    columns = n // 21 * short + sum(y % 7 < 3 and y % 3 == 0 for y in range(end, n) if y < n // 7 * 7)
    assert count(0, terms) == rows * columns


@pytest.mark.parametrize("case", range(12))
def test_interleaved_steps_are_decided_as_isl_does(case: int) -> None:
    pytest.importorskip("islpy")
    rng = random.Random(f"equation {case}")
    terms = [(rng.randint(2, 50), rng.randint(1, 10**4)) for _ in range(rng.randint(3, 5))]
    total = rng.randrange(sum((n - 1) * step for n, step in terms))
    names = [f"x{k}" for k in range(len(terms))]
    shown = " + ".join(f"{step}{x}" for x, (_, step) in zip(names, terms, strict=True))
    bounds = " and ".join(f"0 <= {x} < {n}" for x, (n, _) in zip(names, terms, strict=True))
    empty = isl.read_set(f"{{ [{', '.join(names)}] : {shown} = {total} and {bounds} }}").is_empty()
    found = solve(total, terms)
    assert (found is None) == empty
    assert found is None or total_of(found, terms) == total


Axes = tuple[tuple[tuple[int, int], ...], ...]
axes_of_two = st.sampled_from([4, 12, 40, 300]).flatmap(
    lambda most: st.lists(st.lists(st.tuples(st.integers(1, 4), st.integers(-most, most)), max_size=2), max_size=3)
)


@given(axes_of_two, axes_of_two, st.integers(-60, 60))
@example([[(2, 9)], [(2, 3)], [(2, 1)]], [[(5, 5)]], 2)
@example([[(4, 6)], [(3, 4)]], [[(2, -9)]], 17)
def test_strided_forms_meet_as_their_lists_do(one: list[Any], two: list[Any], offset: int) -> None:
    mine, theirs = (tuple(map(tuple, axes)) for axes in (one, two))

    def listed(axes: Axes) -> set[int]:
        return set(every([level for levels in axes for level in levels]).values())

    wanted = bool(listed(mine) & {offset + x for x in listed(theirs)})
    assert meet((7, mine), (7 + offset, theirs)) is wanted
    assert meet((offset, theirs), (0, mine)) is wanted


@st.composite
def rows_of_rows(draw: st.DrawFn) -> tuple[int, Axes]:
    """Digits of nested rows in any order, most of which take up their row without a gap, and some reach past it."""
    row, axes = 1, []
    for _ in range(draw(st.integers(0, 3))):
        step, wide = draw(st.sampled_from([1, 1, 2, 3, -1, -2])), draw(st.integers(1, 7))
        axes.append(((draw(st.integers(1, wide)), step * row),))
        row *= draw(st.integers(max(1, wide - 1), wide + 2))
    return draw(st.integers(-40, 40)), tuple(draw(st.permutations(axes)))


@given(rows_of_rows(), rows_of_rows())
@example((5, ()), (0, (((3, 4),), ((4, 1),))))  # one cell
@example((0, (((7, 1),), ((5, 10),))), (3, (((43, 1),),)))  # a run that is cut by rows, and its last short row
@example((0, (((12, 6),), ((2, 4),))), (2, (((3, 24),), ((4, 5),), ((2, 1),))))
def test_what_strided_forms_share_is_counted_as_in_their_lists(one: tuple[int, Axes], two: tuple[int, Axes]) -> None:
    def listed(form: tuple[int, Axes]) -> list[int]:
        return [form[0] + x for x in every([level for levels in form[1] for level in levels]).values()]

    ours, theirs = listed(one), listed(two)
    found, again = count_met(one, two), count_met(two, one)
    wanted = len(set(ours) & set(theirs))
    assert found in (OPEN, wanted) and again in (OPEN, wanted)
    steps_of = [[abs(step) for ((n, step),) in form[1] if n > 1] for form in (one, two)]
    if all(len(steps) < 2 for steps in steps_of):
        assert found == wanted, "two digits always have a closed form"


@pytest.mark.parametrize("scale", [1, 10**6, 10**15])
def test_what_rows_share_is_counted_at_any_size(scale: int) -> None:
    """Rows of 12 cells: every third row from column 5 against every second row and column; a run against columns."""
    n = 60 * scale
    every_third, blocks = (5, (((n // 3, 36),), ((7, 1),))), (0, (((n // 2, 24),), ((6, 2),)))
    assert count_met(every_third, blocks) == n // 6 * 3
    run, columns = (7, (((12 * n - 14, 1),),)), (1, (((n, 12),), ((2, 3),)))
    assert count_met(run, columns) == 2 * n - 2


def test_what_many_remainders_decide_is_left_open() -> None:
    """Half rows of 1024 against half rows of 1025: as many remainders as a row has cells."""
    ours, theirs = (0, (((1025, 1024),), ((512, 1),))), (0, (((1024, 1025),), ((512, 1),)))
    assert count_met(ours, theirs) is OPEN
    assert count_met((0, (((5, 2),), ((5, 3),))), (0, (((9, 1),),))) is OPEN, "two choices of digits make one number"


close_steps = st.integers(30, 300).flatmap(
    lambda base: st.lists(
        st.tuples(st.integers(1, 3), st.integers(-4, 4)).map(lambda ab: max(1, ab[0] * base + ab[1])), max_size=5
    )
)


@given(close_steps, st.data())
def test_what_near_multiples_leave_over_proves_no_more_than_is_so(steps: list[int], data: st.DataObject) -> None:
    """Steps near multiples of one, where the proof that there is no solution is tried first."""
    terms = [(data.draw(st.integers(1, 5)), step) for step in steps]
    totals = set(every(terms).values())
    total = data.draw(st.integers(0, max(totals)) | st.sampled_from(sorted(totals)))
    with patch.object(tuning, "FIRST_SEARCHED", 0):
        found = solve(total, terms)
    assert (found is not None) == (total in totals)
    assert found is None or total_of(found, terms) == total


def test_sums_that_come_close_to_a_number_and_cannot_reach_it_are_told_apart_at_once() -> None:
    """By 12224, the ones of these steps are -1, 0, 2, -1 and 1: with the tens of the number they make fewer ones."""
    terms = [(min(10_000, 89643481 // step + 1), step) for step in (12223, 12224, 36674, 61119, 85569)]
    with patch.object(isl, "available", lambda: False):
        assert solve(89643481, terms) is None
    planted = sum(7 * step for _, step in terms)
    assert solve(planted, terms) is not None


def test_what_takes_too_long_is_refused_or_given_to_isl() -> None:
    """Six steps near each other, whose sums are as many as the numbers that they reach; none is the total."""
    counts, steps = (6, 31, 40, 11, 16, 23), (4670536, 4873297, 4910508, 5861728, 6799890, 8710866)
    terms, total = list(zip(counts, steps, strict=True)), 129804604
    halves = [np.unique([*every(half).values()]) for half in (terms[:3], terms[3:])]
    assert not np.isin(total - halves[1], halves[0]).any()
    if isl.available():
        assert solve(total, terms) is None
        with (
            patch.object(isl, "MAX_OPERATIONS", 10),
            pytest.raises(TooHard, match="more than 10 operations"),
        ):
            solve(total, terms)
    with patch.object(isl, "available", lambda: False), pytest.raises(TooHard, match="pip install islpy"):
        solve(total, terms)
    with limits(budget=20), pytest.raises(TooHard, match="more than 5 remainders"):
        count(total, terms)
