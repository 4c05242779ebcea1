"""Elimination against every assignment tried in turn."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapestry_plan.search import tuning
from tapestry_plan.search.elimination import Factor, alternatives, evaluate, minimize, minimize_beside
from tapestry_plan.search.reduction import leave_out_dominated


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
    assert not found.exact or found.bound_ticks == best == found.ticks
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


@given(problems())
def test_the_least_beside_a_value_is_that_of_all_assignments_with_it(problem: tuple[list[int], list[Factor]]) -> None:
    sizes, factors = problem
    for var in range(len(sizes)):
        for value, ticks in enumerate(minimize_beside(sizes, factors, var).tolist()):
            rest = product(*(range(n) if v != var else [value] for v, n in enumerate(sizes)))
            assert ticks == min(evaluate(choice, factors)[0] for choice in rest)


@given(problems(), st.permutations(range(4)))
def test_tables_that_stand_many_times_are_gone_through_once(
    problem: tuple[list[int], list[Factor]], order: list[int]
) -> None:
    """Four copies of one problem that have nothing to do with each other, their tables mixed."""
    sizes, factors = problem
    one = minimize(sizes, factors)
    many = len(sizes)
    copies = [Factor(tuple(v + copy * many for v in f.scope), f.ticks, f.nbytes) for f in factors for copy in order]
    found = minimize(sizes * 4, copies)
    assert (found.ticks, found.nbytes, found.entries) == (4 * one.ticks, 4 * one.nbytes, one.entries)
    assert found.choice == one.choice * 4


def test_pairs_that_are_packed_give_the_same_as_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Random tables with bytes that have a common divisor, or none, and some that do not fit one number."""
    rng = np.random.default_rng(0)
    for width in (1, 4096, 3 * 2**40):
        factors = []
        for scope in ((0, 1, 2), (0, 1), (0,)):
            shape = (5, 4, 6)[: len(scope)]
            factors.append(Factor(scope, rng.integers(0, 3, shape), width * rng.integers(0, 3, shape)))
        found = []
        for least in (0, 10**9):
            monkeypatch.setattr(tuning, "MIN_PACKED_ENTRIES", least)
            found.append(minimize([5, 4, 6], factors))
        assert found[0] == found[1] and (found[0].ticks, found[0].nbytes) == best_of_all([5, 4, 6], factors)


@given(problems())
def test_values_that_are_left_out_are_in_no_best_assignment(problem: tuple[list[int], list[Factor]]) -> None:
    sizes, factors = problem
    kept, left = leave_out_dominated(sizes, factors)
    best = best_of_all(sizes, factors)
    for choice in product(*map(range, sizes)):
        inside = [values.tolist() for values in kept]
        if all(value in some for value, some in zip(choice, inside, strict=True)):
            numbers = [some.index(value) for value, some in zip(choice, inside, strict=True)]
            assert evaluate(numbers, left) == evaluate(choice, factors)
        else:
            assert evaluate(choice, factors) > best


def test_a_dominated_value_is_left_out() -> None:
    """The picture of the module."""
    own = Factor((0,), np.array([5, 2]), np.zeros(2, np.int64))
    with_w = Factor((0, 1), np.array([[1, 4, 2], [3, 5, 1]]), np.zeros((2, 3), np.int64))
    kept, left = leave_out_dominated([2, 3], [own, with_w])
    assert [values.tolist() for values in kept] == [[1], [2]]
    assert [factor.ticks.tolist() for factor in left] == [[2], [[1]]]


def test_a_bucket_in_two_groups_is_no_proof() -> None:
    """Three variables of which a and b, and a and c, shall be equal, and b and c shall not: one of three is broken."""
    equal, zero = np.array([[0, 1], [1, 0]]), np.zeros((2, 2), np.int64)
    factors = [Factor((0, 1), equal, zero), Factor((0, 2), equal, zero), Factor((1, 2), 1 - equal, zero)]
    # Whichever goes first has two tables; with room for neither together each takes what suits it, and all seems well.
    for cap, bound in ((8, 1), (4, 0)):
        found = minimize([2, 2, 2], factors, cap=cap)
        assert (found.ticks, found.bound_ticks, found.exact) == (1, bound, cap == 8)
        assert best_of_all([2, 2, 2], factors) == (1, 0)
