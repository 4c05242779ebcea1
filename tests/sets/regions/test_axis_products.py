"""Unions of products of indices, against points listed one by one."""

from __future__ import annotations

from itertools import product
from math import prod

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tapestry_sets.limits import TooHard, limits
from tapestry_sets.regions import AxisSets, axis_products
from tests.sets.regions.test_axis_sets import N, plain, sets

products = st.lists(st.tuples(sets(), sets()).filter(lambda pair: all(map(len, pair))), max_size=5)


def points(one: AxisSets) -> set[tuple[int, ...]]:
    return set(product(*map(plain, one)))


@given(products)
@example([(((0, 8, 2),), ((0, 3, 1),)), (((0, 8, 2),), ((0, 3, 1),))])
@example([(((0, 8, 2),), ((0, 3, 1),)), (((0, 4, 1),), ((0, 3, 1),)), (((2, 2, 1),), ((1, 5, 1),))])
def test_unions(many: list[AxisSets]) -> None:
    union = set().union(*map(points, many))
    assert axis_products.count_union(many) == len(union)
    assert [axis_products.size_of(one) for one in many] == [len(points(one)) for one in many]
    grid = np.indices((N, N)).reshape(2, -1)
    held = axis_products.hold_each(many, list(grid))
    assert {(int(x), int(y)) for x, y in grid[:, held].T} == union


@given(st.tuples(sets(), sets()).filter(lambda pair: all(map(len, pair))), products)
@example((((0, 9, 1),), ((0, 9, 1),)), [(((0, 9, 1),), ((0, 8, 1),)), (((0, 6, 2),), ((9, 9, 1),))])
def test_a_point_beside(one: AxisSets, many: list[AxisSets]) -> None:
    rest = points(one) - set().union(*map(points, many))
    found = axis_products.find_beside(one, many)
    assert (found is None) == (not rest)
    assert found is None or found in rest
    for two in many:
        both = axis_products.meet(one, two)
        assert (points(one) & points(two)) == (set() if both is None else points(both))


@pytest.mark.parametrize("n", [10, 10**12])
def test_sizes_of_any_length(n: int) -> None:
    """A frame of four products that share their corners."""
    rows, columns = ((0, 5 * n - 1, 1),), ((0, 7 * n - 1, 1),)
    first, last = ((0, 0, 1),), ((5 * n - 1, 5 * n - 1, 1),)
    left, right = ((0, 0, 1),), ((7 * n - 1, 7 * n - 1, 1),)
    frame: list[AxisSets] = [(first, columns), (last, columns), (rows, left), (rows, right)]
    assert axis_products.count_union(frame) == 2 * (12 * n) - 4
    assert axis_products.find_beside((rows, columns), frame) is not None
    assert axis_products.find_beside((first, columns), frame[2:] + frame[:1]) is None


def test_what_takes_too_many_branches_is_refused() -> None:
    """Each product leaves another index of an axis out, so that all that any of them share are different."""
    n = 14
    many = [tuple([((1, 2, 1),) if k == axis else ((0, 2, 1),) for k in range(n)]) for axis in range(n)]
    assert axis_products.count_union(many) == 3**n - 1
    with limits(budget=100), pytest.raises(TooHard, match=r"limits\(budget"):
        axis_products.count_union(many)
    assert prod([3] * n) == 3**n
