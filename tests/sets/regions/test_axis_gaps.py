"""Points that are in none of many products, against points listed one by one."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tapestry_sets.limits import OPEN, Budget
from tapestry_sets.regions import AxisSets, axis_gaps, axis_products, tuning
from tests.sets.regions.test_axis_products import points
from tests.sets.regions.test_axis_sets import sets

some = st.tuples(sets(), sets()).filter(lambda pair: all(map(len, pair)))


@given(some, st.lists(some, max_size=12))
@example((((0, 5, 1),), ((0, 3, 1),)), [(((k, 4 + k, 2),), ((0, 3, 1),)) for k in (0, 1)])
def test_gaps(one: AxisSets, many: list[AxisSets]) -> None:
    rest = points(one) - set().union(*map(points, many))
    found = axis_gaps.find_gap(one, axis_products.meet_each(one, many), Budget(10**6))
    assert found is None if not rest else found in rest
    assert axis_products.lies_in(one, many) == (not rest)
    beside = axis_products.find_beside(one, many)
    assert beside is None if not rest else beside in rest


@pytest.mark.parametrize("n", [96, 96 * 10**9, 96 * 10**15])
def test_grids_of_any_size(n: int) -> None:
    h = n // 8
    whole = (((0, n - 1, 1),),) * 3
    tiles = [tuple([((i * h, (i + 1) * h - 1, 1),) for i in at]) for at in product(range(8), repeat=3)]
    assert axis_products.find_beside(whole, tiles) is None
    found = axis_products.find_beside(whole, tiles[:77] + tiles[78:])
    assert found is not None and axis_products.hold(tiles[77], found)
    rows = [(((k, n - 12 + k, 12),), *whole[1:]) for k in range(12)]
    assert axis_products.find_beside(whole, rows) is None
    found = axis_products.find_beside(whole, rows[:7] + rows[8:])
    assert found is not None and found[0] % 12 == 7


@pytest.mark.parametrize("n", [12, 48])
def test_tiles_take_no_more_steps_than_there_are_tiles(n: int) -> None:
    tiles = [tuple([((8 * i, 8 * i + 7, 1),) for i in at]) for at in product(range(n), repeat=2)]
    budget = Budget(10**6)
    assert axis_gaps.find_gap((((0, 8 * n - 1, 1),),) * 2, tiles, budget) is None
    assert budget.spent <= len(tiles)


def test_columns_and_what_is_left_open() -> None:
    rng = np.random.default_rng(1)
    pages = np.unique(rng.integers(0, 10**9, 3000))
    whole: AxisSets = (((0, 10**9, 1),), ((0, 3, 1),))
    parts: list[AxisSets] = [(pages[k::7], ((0, 3, 1),)) for k in range(7)]
    assert axis_gaps.find_gap((pages, ((1, 2, 1),)), parts, Budget(10**6)) is None
    found = axis_gaps.find_gap(whole, parts, Budget(10**6))
    assert found is not None and found is not OPEN and found[0] not in pages
    assert axis_gaps.find_gap(whole, parts, Budget(1)) is OPEN
    huge: AxisSets = (((0, 2 * tuning.MAX_INDEX, 1),),)
    assert axis_gaps.find_gap(huge, [(((0, 5, 1),),)], Budget(10**6)) is OPEN
    primes = [(((p - 1, 10**9 * p - 1, p),),) for p in (10007, 10009, 10037)]
    assert axis_gaps.find_gap((((0, 10**9, 1),),), primes, Budget(10**6)) is OPEN
