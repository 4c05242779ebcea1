"""`==` of graph tensors says whether they are the same tensor; where it could pass for a mask it is refused."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import pytest

from tapestry_exec import evaluate
from tapestry_plan import Graph, Tensor


def two() -> tuple[Tensor, Tensor]:
    g = Graph()
    return g.input("x", (4,)), g.input("y", (4,))


def test_tensors_are_equal_where_they_are_one() -> None:
    (x, y), (other, _) = two(), two()
    assert x == Tensor(x.graph, "x") and not operator.ne(x, Tensor(x.graph, "x"))
    assert x != y and x != other and x is not None and x != "x"
    assert len({x, y, other, Tensor(x.graph, "x")}) == 3 and [y, x].index(x) == 1


@pytest.mark.parametrize("number", [0, 1.5, True, np.float32(2), np.int64(0), np.bool_(False)])
@pytest.mark.parametrize("compare", [operator.eq, operator.ne])
def test_a_comparison_with_a_number_is_refused_with_the_function_that_makes_it(compare: Any, number: Any) -> None:
    x, _ = two()
    for one, two_ in ((x, number), (number, x)):
        with pytest.raises(TypeError, match=r"tensor 'x' has no values before a run.*xp\.equal"):
            compare(one, two_)


@pytest.mark.parametrize("truth", [True, False, np.bool_(True)])
@pytest.mark.parametrize("apply", [operator.add, operator.mul, operator.sub, operator.truediv, operator.lt])
def test_truth_values_stand_beside_truth_values_alone(apply: Any, truth: Any) -> None:
    x, y = two()
    before = x.graph.to_json()
    for one, other in ((x, truth), (truth, x), (x * 2.0, x == y)):
        with pytest.raises(TypeError, match=r"stands beside tensor .* of float32.*where\(mask"):
            apply(one, other)
    assert set(x.graph.nodes) == {"multiply"} and before != x.graph.to_json()


def test_masks_are_made_by_functions() -> None:
    x, y = two()
    xp = x.__array_namespace__()
    x.graph.output(xp.where(xp.equal(x, 0.0), y, x), "z")
    a, b = np.array([0, 1, 0, -2], np.float32), np.array([5, 6, 7, 8], np.float32)
    np.testing.assert_array_equal(evaluate(x.graph, {"x": a, "y": b})["z"], np.where(a == 0, b, a))
    mask = x < y
    x.graph.output(mask & True, "m")
    assert evaluate(x.graph, {"x": a, "y": b})["m"].tolist() == (a < b).tolist()
