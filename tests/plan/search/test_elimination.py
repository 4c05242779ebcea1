"""Elimination against every assignment tried in turn."""

from __future__ import annotations

from itertools import product

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tapestry_plan.search.elimination import Factor, alternatives, evaluate, minimize


@st.composite
def problems(draw: st.DrawFn) -> tuple[list[int], list[Factor]]:
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=5))
    factors = []
    for _ in range(draw(st.integers(0, 6))):
        scope = tuple(sorted(draw(st.sets(st.integers(0, len(sizes) - 1), max_size=3))))
        shape = tuple(sizes[v] for v in scope)
        rng = np.random.default_rng(draw(st.integers(0, 2**32)))
        factors.append(Factor(scope, rng.integers(0, 4, shape), rng.integers(0, 4, shape)))
    return sizes, factors


def best_of_all(sizes: list[int], factors: list[Factor]) -> tuple[int, int]:
    return min(
        tuple(
            sum(int(table[tuple(choice[v] for v in f.scope)]) for f, table in zip(factors, tables, strict=True))
            for tables in ([f.ticks for f in factors], [f.nbytes for f in factors])
        )
        for choice in product(*map(range, sizes))
    )


@given(problems())
def test_minimum_is_the_best_of_all(problem: tuple[list[int], list[Factor]]) -> None:
    sizes, factors = problem
    found = minimize(sizes, factors)
    assert found.exact
    assert (found.ticks, found.nbytes) == best_of_all(sizes, factors) == evaluate(found.choice, factors)
    assert found.bound_ticks == found.ticks


@given(problems(), st.integers(1, 8))
def test_split_buckets_bound_from_below(problem: tuple[list[int], list[Factor]], cap: int) -> None:
    sizes, factors = problem
    found = minimize(sizes, factors, cap=cap)
    best, _ = best_of_all(sizes, factors)
    assert found.bound_ticks <= best <= found.ticks
    assert (found.ticks, found.nbytes) == evaluate(found.choice, factors)


@given(problems())
def test_alternatives_are_evaluations(problem: tuple[list[int], list[Factor]]) -> None:
    sizes, factors = problem
    choice = [0] * len(sizes)
    ticks, nbytes = alternatives(0, choice, factors, sizes[0])
    for value in range(sizes[0]):
        assert (ticks[value], nbytes[value]) == evaluate([value, *choice[1:]], factors)


def test_entries_are_those_of_the_tables_that_are_made() -> None:
    """Three variables in a row, the middle one last: tables of 2 x 3, of 3 x 4, and of 3 for what both leave."""
    first, second = (np.zeros(shape, np.int64) for shape in ((2, 3), (3, 4)))
    found = minimize([2, 3, 4], [Factor((0, 1), first, first), Factor((1, 2), second, second)])
    assert found.entries == 2 * 3 + 3 * 4 + 3


def test_large_costs_stay_exact() -> None:
    near = 2**53 + 1  # not a float64
    found = minimize([2], [Factor((0,), np.array([near, near - 1]), np.array([0, 9]))])
    assert (found.choice, found.ticks) == ((1,), near - 1)
