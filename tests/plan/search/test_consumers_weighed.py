"""Bounds of consumers that are counted one by one: never above what they take together, and higher as weights shift."""

from __future__ import annotations

from itertools import product
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from layered_models import gpt

from tapestry_plan import Device, Graph, Link, Mesh, load_onnx, ops, plan
from tapestry_plan.search import tuning
from tapestry_plan.search.prices.costs.problem import Problem
from tapestry_plan.search.prices.costs.variables import Asked
from tapestry_plan.search.solving import solve
from tapestry_plan.search.sums.elimination import evaluate, minimize
from tapestry_plan.search.sums.reduction import Factor
from tapestry_plan.search.sums.tables import Tables, count_rounding
from tapestry_plan.steps import Facts

SIZES = (2, 3, 2, 2)
VALUES = st.integers(0, 2**50) | st.integers(0, 9)


@given(st.data())
def test_no_weights_say_more_than_the_largest(data: st.DataObject) -> None:
    """Of consumers 1, 2 and 3 of a tensor that 0 makes, for every assignment and after any shifts."""
    single = []
    for consumer in (1, 2, 3):
        shape = (SIZES[0], SIZES[consumer])
        cells = data.draw(st.lists(VALUES, min_size=2 * shape[1], max_size=2 * shape[1]))
        single.append(Factor((0, consumer), np.array(cells).reshape(shape), np.array(cells[::-1]).reshape(shape)))
    known, tables, largest = Facts(), Tables([]), Tables([])
    tables.count_alone(single)
    largest.count_largest(single, SIZES, known)
    every = list(product(*map(range, SIZES)))
    for choice in data.draw(st.lists(st.sampled_from(every), max_size=4)):
        tables.shift_weights(choice, data.draw(st.sampled_from([0.1, 0.5, 5])))
        for at in every:
            most = [max(costs) for costs in zip(*(evaluate(at, [one]) for one in single), strict=True)]
            for bound in (tables.list_bound(known), largest.list_bound(known)):
                assert all(low <= high for low, high in zip(evaluate(at, bound), most, strict=True))
            assert evaluate(at, largest.below)[0] >= most[0] - count_rounding(len(single))


def test_weight_goes_to_those_that_receive() -> None:
    """As drawn in the module: a third of each says 40, a half of two of them 60."""
    zeros = np.zeros((1, 1), np.int64)
    tables = Tables([])
    tables.count_alone([Factor((0, at), np.full((1, 1), n * 10**6), zeros) for at, n in ((1, 60), (2, 60), (3, 0))])
    found = []
    for _ in range(3):
        found.append(minimize([1] * 4, tables.list_bound(Facts())).bound_ticks / 10**6)
        tables.shift_weights((0, 0, 0, 0), 0.5)
    assert found[0] == pytest.approx(40, abs=1e-3) and found[-1] == pytest.approx(60, abs=1e-3)


@pytest.mark.parametrize("limits", [{"MAX_COUNTED_PAIRS": 0}, {"FIRST_FACTOR_ENTRIES": 1}])
def test_consumers_counted_one_by_one_bound_the_plan(limits: dict[str, int]) -> None:
    g = Graph()
    y = ops.softmax(g.input("x", (64, 64)), axis=-1)
    for k in range(3):
        g.output(ops.relu(y @ g.input(f"w{k}", (64, 64))), f"out{k}")
    best = plan(g, Mesh((4,)), expand=False)
    with mock.patch.multiple(tuning, MAX_DIRECT_ENTRIES=0, **limits):
        found = plan(g, Mesh((4,)), expand=False)
    assert best.gap == 0 and found.bound <= best.seconds <= found.seconds
    assert found.bound >= 0.9 * best.seconds


def test_what_reaches_the_bound_leaves_little_to_go_through() -> None:
    """With weights that say most the bound nearly is the optimum, and layouts that have it are the best plan's."""
    mesh = Mesh((2, 4), device=Device(4e14, 3e12), link=Link(5e-6, 3e11))
    problem = Problem(load_onnx(gpt(2)), Asked(mesh))
    found = solve(problem)
    search, bound = problem.factors()
    best = minimize(problem.sizes, search)
    assert bound is search and best.exact and found.ticks == found.bound_ticks == best.ticks
    assert found.entries * 50 < best.entries
