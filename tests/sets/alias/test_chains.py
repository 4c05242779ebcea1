"""Chains of up to twelve views over up to three allocations, every question against lists of cells.

What a view reads is read off the same steps done by NumPy on arrays that hold a number of its own for each cell. The
views answer from sets alone: the tally says that no question was decided by a list of cells.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tapestry_sets import (
    Allocation,
    View,
    allocate,
    concatenate,
    contains,
    has_internal_overlap,
    internal_overlap,
    overlap,
    overlap_sizes,
    overlaps,
    same_elements,
    stack,
    tally,
)
from tests.strategies import one_more

Known = tuple[View, np.ndarray]
STEPS = 12
MAX_CELLS = 300
EXAMPLES = 10_000
"""For each of the five families below in the thorough profile."""


def families(function: object) -> object:
    """Run as many examples as the profile says, and ten thousand of each family in the thorough one."""
    most = EXAMPLES if settings.default.max_examples >= 5000 else settings.default.max_examples // 2
    return settings(max_examples=most, suppress_health_check=list(HealthCheck))(function)


@st.composite
def joined(draw: st.DrawFn, pool: list[Known]) -> Known:
    """Two views of the pool side by side, one after the other, or as rows."""
    (a, x), (b, y) = draw(st.sampled_from(pool)), draw(st.sampled_from(pool))
    if a.shape == b.shape and draw(st.booleans()):
        axis = draw(st.integers(0, a.rank))
        return stack([a, b], axis), np.stack([x, y], axis)
    if a.rank and a.rank == b.rank and a.shape[1:] == b.shape[1:]:
        return concatenate([a, b]), np.concatenate([x, y])
    return concatenate([a.ravel(), b.ravel()]), np.concatenate([x.ravel(), y.ravel()])


@st.composite
def pools(
    draw: st.DrawFn, allocations: int, steps: int = STEPS, joins: int = 4
) -> tuple[list[Allocation], list[Known]]:
    """Allocations, and views made of them one step after another; each step goes on from an earlier view."""
    homes: list[Allocation] = []
    pool: list[Known] = []
    first = 1
    for k in range(allocations):
        shape = tuple(draw(st.lists(st.sampled_from([4, 6, 3, 5, 2, 7, 8]), min_size=1, max_size=3)))
        home = allocate(shape, name="ABC"[k])
        homes.append(home)
        pool.append((home, np.arange(first, first + home.size).reshape(shape)))
        first += home.size
    for _ in range(draw(st.integers(1, steps))):
        if draw(st.integers(0, joins)) == 0:
            new = draw(joined(pool))
        else:
            new = draw(one_more(*(pool[-1] if draw(st.integers(0, 3)) else draw(st.sampled_from(pool)))))
        if new[0].size <= MAX_CELLS:
            pool.append(new)
    return homes, pool


@st.composite
def pairs(draw: st.DrawFn, allocations: int, steps: int = STEPS, joins: int = 4) -> tuple[Known, Known]:
    """The last view of a pool and another one, with NumPy's values."""
    _, pool = draw(pools(allocations, steps, joins))
    return pool[-1], draw(st.sampled_from(pool))


def cells(values: np.ndarray) -> set[int]:
    """The cells read; 0 stands for a constant."""
    return set(values.ravel().tolist()) - {0}


def check(one: Known, two: Known) -> None:
    """Ask everything about two views, compare with their lists of cells, and see that none was listed."""
    with tally() as decided:
        ask(one, two)
    assert decided.listed == 0 and decided.closed > 0


def ask(one: Known, two: Known) -> None:
    (a, x), (b, y) = one, two
    assert a.shape == x.shape and b.shape == y.shape
    mine, theirs = cells(x), cells(y)
    common = mine & theirs
    assert overlaps(a, b) == bool(common)
    found = overlap(a, b)
    assert found.size == len(common)
    assert overlap_sizes([a, b]).tolist() == [[len(mine), len(common)], [len(common), len(theirs)]]
    if common:
        at = found.witness
        assert at is not None and x[at.a] == y[at.b] and int(x[at.a]) in common
    else:
        assert found.witness is None
    assert contains(a, b) == (theirs <= mine) and contains(b, a) == (mine <= theirs)
    assert same_elements(a, b) == (mine == theirs)
    for view, values in (one, two):
        often = Counter(values.ravel().tolist())
        twice = any(n > 1 for z, n in often.items() if z)
        assert has_internal_overlap(view) == twice
        found_twice = internal_overlap(view)
        assert (found_twice is not None) == twice
        if found_twice is not None:
            assert found_twice.a != found_twice.b and values[found_twice.a] == values[found_twice.b] != 0


@given(pairs(1))
@families
def test_views_of_one_allocation(pair: tuple[Known, Known]) -> None:
    check(*pair)


@given(pairs(2))
@families
def test_views_of_two_allocations(pair: tuple[Known, Known]) -> None:
    check(*pair)


@given(pairs(3))
@families
def test_views_of_three_allocations(pair: tuple[Known, Known]) -> None:
    check(*pair)


@given(pairs(3, joins=1))
@families
def test_views_that_are_often_joined(pair: tuple[Known, Known]) -> None:
    check(*pair)


@given(pairs(1, joins=50))
@families
def test_long_chains(pair: tuple[Known, Known]) -> None:
    check(*pair)
