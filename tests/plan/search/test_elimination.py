"""Elimination against every assignment tried in turn."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapestry_plan.search import tuning
from tapestry_plan.search.sums.elimination import (
    Factor,
    alternatives,
    evaluate,
    improve,
    list_order,
    minimize,
    minimize_beside,
)
from tapestry_plan.search.sums.reduction import leave_out_dominated


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


@given(problems(), st.integers(1, 8), st.sampled_from([0, 10**9]))
def test_split_buckets_bound_from_below(problem: tuple[list[int], list[Factor]], cap: int, rough: int) -> None:
    sizes, factors = problem
    found = minimize(sizes, factors, cap=cap, rough=rough)
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


@given(problems(), st.data())
def test_the_least_beside_some_values_is_that_of_all_assignments_with_them(
    problem: tuple[list[int], list[Factor]], data: st.DataObject
) -> None:
    sizes, factors = problem
    beside = data.draw(st.permutations(range(len(sizes))))[: data.draw(st.integers(0, 2))]
    every = minimize_beside(sizes, factors, beside)
    assert every[0].shape == every[1].shape == tuple(sizes[v] for v in beside)
    for values in product(*(range(sizes[v]) for v in beside)):
        given = dict(zip(beside, values, strict=True))
        rest = product(*([given[v]] if v in given else range(n) for v, n in enumerate(sizes)))
        found = tuple(int(each[values]) for each in every)
        assert found == min(evaluate(choice, factors) for choice in rest)


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
    """Random tables with bytes that have a common divisor, or none, and some that do not fit one number.

    Ticks are seldom apart, so that bytes decide; and they begin above 0, which packing takes off and adds again.
    """
    rng = np.random.default_rng(0)
    for width in (1, 12, 4096, 3 * 2**40) * 4:
        factors = []
        for scope in ((0, 1, 2), (0, 1), (1, 3), (2, 3), (0,)):
            shape = tuple((5, 2, 6, 3)[v] for v in scope)
            factors.append(Factor(scope, 5 + rng.integers(0, 2, shape), width * rng.integers(1, 9, shape)))
        best = best_of_all([5, 2, 6, 3], factors)
        for least, block in ((0, 2**15), (0, 7), (0, 1), (10**9, 2**15)):
            monkeypatch.setattr(tuning, "MIN_PACKED_ENTRIES", least)
            monkeypatch.setattr(tuning, "BLOCK_ENTRIES", block)
            found = minimize([5, 2, 6, 3], factors, reduces=False)
            assert (found.ticks, found.nbytes) == best and found.bound_ticks == best[0]


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


def test_what_is_dominated_makes_room_for_a_proof() -> None:
    """The three variables with a third value each that is never taken: without those their table fits."""
    equal = np.array([[0, 1, 9], [1, 0, 9], [9, 9, 19]])
    differ = np.array([[1, 0, 9], [0, 1, 9], [9, 9, 19]])
    factors = [Factor(s, t, 0 * t) for s, t in (((0, 1), equal), ((0, 2), equal), ((1, 2), differ))]
    found, plain = minimize([3] * 3, factors, cap=8), minimize([3] * 3, factors, cap=8, reduces=False)
    assert (found.exact, found.bound_ticks, found.ticks) == (True, 1, 1)
    assert (plain.exact, plain.bound_ticks) == (False, 0)
    with pytest.raises(AttributeError):
        found.exact = False  # type: ignore[misc]


def test_tables_are_split_as_the_entries_in_all_are_used_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table may take a quarter of what is left: 8 of 32 entries; then 20 are left, and the second one is split."""
    monkeypatch.setattr(tuning, "MIN_SPLIT_ENTRIES", 1)
    equal, zero = np.array([[0, 1], [1, 0]]), np.zeros((2, 2), np.int64)
    one = [((0, 1), equal), ((0, 2), equal), ((1, 2), 1 - equal)]
    two = one + [((a + 3, b + 3), table) for (a, b), table in one]
    for many, scopes, total, exact in (
        (3, one, 32, True),
        (3, one, 31, False),
        (6, two, 32, False),
        (6, two, 32 + 14, True),
        (6, two, 32 + 7, False),
    ):
        factors = [Factor(scope, table.copy(), zero) for scope, table in scopes]
        found = minimize([2] * many, factors, total=total, reduces=False)
        assert found.exact == exact, (many, total)


def test_who_adds_the_fewest_edges_goes_first() -> None:
    """Seeded graphs of nine variables."""
    rng = np.random.default_rng(0)
    for _ in range(40):
        sizes = rng.integers(1, 5, 9).tolist()
        pairs = [(a, b) for a, b in combinations(range(9), 2) if rng.random() < 0.3]
        factors = [Factor(pair, *(np.zeros([sizes[v] for v in pair], np.int64),) * 2) for pair in pairs]
        assert list_order(sizes, factors) == order_of(sizes, factors)


def order_of(sizes: list[int], factors: list[Factor]) -> list[int]:
    """The order by its definition: missing edges, then entries around, then the number."""
    around = {v: {w for f in factors if v in f.scope for w in f.scope} - {v} for v in range(len(sizes))}
    order = []
    while around:
        keys = {
            v: (
                sum(b not in around[a] for a, b in combinations(mine, 2)),
                int(np.prod([sizes[w] for w in mine])),
                v,
            )
            for v, mine in around.items()
        }
        order.append(first := min(keys, key=keys.__getitem__))
        mine = around.pop(first)
        for v in mine:
            around[v] = (around[v] | mine) - {v, first}
    return order


@given(problems(), st.integers(0, 3))
def test_moves_end_where_none_is_better(problem: tuple[list[int], list[Factor]], seed: int) -> None:
    sizes, factors = problem

    def costs(var: int, choice: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        return alternatives(var, choice, factors, sizes[var])

    begin = [size - 1 for size in sizes]
    assert improve(begin, costs, seed=seed, values=0) == tuple(begin)
    found = improve(begin, costs, seed=seed)
    assert evaluate(found, factors) <= evaluate(begin, factors)
    for var, size in enumerate(sizes):
        for value in range(size):
            moved = [*found[:var], value, *found[var + 1 :]]
            assert evaluate(found, factors) <= evaluate(moved, factors)
