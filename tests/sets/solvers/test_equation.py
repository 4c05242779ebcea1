"""Bounded linear equations against all digits, listed, and against isl."""

from __future__ import annotations

import random
from itertools import product
from unittest.mock import patch

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tapestry_sets import TooHard, limits
from tapestry_sets.solvers import isl
from tapestry_sets.solvers.equation import WeightedTerms, count, equal_sums, solve

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


def test_what_takes_too_long_is_refused_or_given_to_isl() -> None:
    """Five strides that come close to a number and cannot reach it; see the hard cases."""
    terms = [(10_000, step) for step in (12223, 12224, 36674, 61119, 85569)]
    if isl.available():
        assert solve(89643481, terms) is None
        with (
            patch.object(isl, "MAX_OPERATIONS", 10),
            pytest.raises(TooHard, match="more than 10 operations"),
        ):
            solve(89643481, terms)
    with patch.object(isl, "available", lambda: False), pytest.raises(TooHard, match="pip install islpy"):
        solve(89643481, terms)
    with limits(budget=100), pytest.raises(TooHard, match="more than 25 remainders"):
        count(89643481, terms)
