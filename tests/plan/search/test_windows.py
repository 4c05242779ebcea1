"""Windows of operators that are planned anew: the best layouts there, by enumeration; alike windows once."""

from __future__ import annotations

from itertools import product
from math import inf

import numpy as np
import pytest

from tapestry_plan import Graph, Mesh, load_onnx, ops
from tapestry_plan.search import solving
from tapestry_plan.search.prices.costs.problem import Problem
from tapestry_plan.search.prices.costs.variables import Asked
from tests.layered_models import gpt


def chain(count: int) -> Graph:
    """Products of one shape, one after the other."""
    g = Graph()
    y = g.input("x", (6, 6))
    for k in range(count):
        y = ops.matmul(y, g.input(f"w{k}", (6, 6)))
    g.output(y, "y")
    return g


@pytest.mark.parametrize("share", [1, 2])
@pytest.mark.parametrize("begin", [0, 1])
def test_a_window_has_the_best_layouts_of_those_that_are_kept(begin: int, share: int) -> None:
    """Beside which none is in a plan of interest: with another one a plan would be out of what is left to search."""
    problem = Problem(chain(3), Asked(Mesh((2,))))
    operators = [problem.position["operator", node.name] for node in problem.order]
    rng = np.random.default_rng(begin)
    for _ in range(3):
        choice = tuple(rng.integers(0, problem.sizes).tolist())
        near, free = problem.around(operators[begin : begin + 2])
        assert set(operators[begin : begin + 2]) <= set(free) and len(free) < len(problem.sizes)
        every = []
        for values in product(*(range(problem.sizes[at]) for at in free)):
            one = list(choice)
            for at, value in zip(free, values, strict=True):
                one[at] = value
            whole, part = problem.count_cost(one), near.count_cost(one)
            every.append((whole, whole[0] - part[0]))
        assert len({beside for _, beside in every}) == 1, "what is beside the window's tables stays as it is"
    kept = [np.arange(value % share, size, share) for value, size in zip(choice, problem.sizes, strict=True)]
    best = (*problem.count_cost(choice), choice)
    for _ in range(3):
        found = solving._replan_windows(problem, kept, best, 4, inf)
        assert found[:2] <= best[:2] and problem.count_cost(found[2]) == found[:2]
        assert all(value in values for value, values in zip(found[2], kept, strict=True))
        best = found
    # No layouts of any two neighbors, and of where what they make lands, are better.
    for k in range(2):
        _, free = problem.around(operators[k : k + 2])
        for values in product(*(kept[at].tolist() for at in free)):
            one = list(best[2])
            for at, value in zip(free, values, strict=True):
                one[at] = value
            assert problem.count_cost(one) >= best[:2]


def test_windows_that_are_alike_are_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = Problem(load_onnx(gpt(8, length=64, width=128, inner=256)), Asked(Mesh((4,))))
    choice = tuple(0 for _ in problem.sizes)
    asked = []
    minimize = solving.minimize
    monkeypatch.setattr(solving, "minimize", lambda *args, **more: asked.append(1) or minimize(*args, **more))
    every = [np.arange(size) for size in problem.sizes]
    best = solving._replan_windows(problem, every, (*problem.count_cost(choice), choice), 32, inf)
    windows = -(-len(problem.order) // 16)
    again = len(asked)
    assert solving._replan_windows(problem, every, best, 32, inf)[:2] <= best[:2]
    assert len(asked) - again < windows - 2, "layers are alike once each has its best layouts"
