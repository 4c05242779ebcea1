"""Moves of one layout at a time, and sums and minima of tables in another order than that of NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tapestry_plan import Graph, Mesh, ops
from tapestry_plan.search.moving import count_better
from tapestry_plan.search.prices.costs.problem import Problem
from tapestry_plan.search.prices.costs.variables import Asked
from tapestry_plan.search.sums.minima import add_small, find_least_over

SHAPES = st.lists(st.integers(1, 3), max_size=7).map(tuple)


@given(SHAPES, st.sets(st.integers(0, 6)), st.integers(0, 9))
@example((3, 40, 2), {0}, 0)
@example((2, 3, 40), {1}, 0)
def test_least_over_some_axes(shape: tuple[int, ...], kept: set[int], seed: int) -> None:
    table = np.random.default_rng(seed).integers(0, 99, shape)
    axes = tuple(axis for axis in range(len(shape)) if axis not in kept)
    assert np.array_equal(find_least_over(table, kept), table.min(axis=axes))


@given(SHAPES, st.data())
def test_fewer_tables_have_the_same_sum(shape: tuple[int, ...], data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 9)))
    tables = [
        rng.integers(0, 99, [data.draw(st.sampled_from([1, n])) for n in shape])
        for _ in range(data.draw(st.integers(1, 6)))
    ]
    fewer = add_small(tables, shape)
    assert len(fewer) <= len(tables)
    zeros = np.zeros(shape, np.int64)
    assert np.array_equal(sum(fewer, zeros), sum(tables, zeros))


@pytest.mark.heavy(2)
@pytest.mark.parametrize("entries", [100, 1_000_000])
def test_moves_that_are_better_are_counted_in_full(entries: int) -> None:
    """A tensor with seven readers, which are too many to be counted jointly, beside others that are few."""
    graph = Graph()
    x, w = graph.input("x", (12, 18)), graph.input("w", (18, 8))
    read = ops.exp(x)
    for k, one in enumerate((read, read[::-1], read.transpose(1, 0), ops.sum(read, axis=0), read @ w, ops.relu(read))):
        graph.output(ops.relu(one), f"y{k}")
    graph.output(read[:6], "half")
    problem = Problem(graph, Asked(Mesh((2, 2))))
    problem.factors(entries)
    assert problem.counted_alone
    rng, saved = np.random.default_rng(0), 0
    for _ in range(12):
        choice = rng.integers(0, problem.sizes).tolist()
        for var in range(len(problem.sizes)):
            better = list(zip(*(each.tolist() for each in count_better(problem, var, choice)), strict=True))
            there = better[choice[var]]
            beside = np.subtract(problem.count_cost(choice), there)
            moved = [[*choice[:var], value, *choice[var + 1 :]] for value in range(problem.sizes[var])]
            every = [tuple(np.subtract(problem.count_cost(one), beside).tolist()) for one in moved]
            assert min(every) == min(better)
            for exact, found in zip(every, better, strict=True):
                assert found == exact or there <= found < exact
                saved += found != exact
    assert saved
