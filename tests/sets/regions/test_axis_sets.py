"""Sets of indices of one axis, against Python's own sets."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tapestry_sets.limits import OPEN
from tapestry_sets.regions import AxisSet, axis_sets

N = 40


@st.composite
def sets(draw: st.DrawFn) -> AxisSet:
    """A column, or disjoint progressions of one step, of integers in [0, N)."""
    if draw(st.booleans()):
        return np.array(sorted(draw(st.sets(st.integers(0, N - 1), max_size=8))), np.int64)
    step = draw(st.integers(1, 5))
    out = []
    for first in draw(st.lists(st.integers(0, 4), max_size=3, unique_by=lambda z: z % step)):
        last = draw(st.integers(first, N - 1))
        out.append(axis_sets.steps_from(first, last, step))
    return tuple(out)


def plain(s: AxisSet) -> set[int]:
    """The integers, from the definition."""
    return set(s.tolist()) if isinstance(s, np.ndarray) else {z for a, b, by in s for z in range(a, b + 1, by)}


def check_form(s: AxisSet) -> None:
    """A column ascends; progressions share nothing and end at their last."""
    if isinstance(s, np.ndarray):
        assert (np.diff(s) > 0).all()
    else:
        assert sum((b - a) // by + 1 for a, b, by in s) == len(plain(s))
        assert all(a <= b and (b - a) % by == 0 and (a < b or by == 1) for a, b, by in s)


@given(sets(), st.integers(-3, N + 3))
def test_one_set(s: AxisSet, z: int) -> None:
    held = plain(s)
    assert axis_sets.size_of(s) == len(held)
    assert axis_sets.is_nothing(s) == (not held)
    assert axis_sets.hold(s, z) == (z in held)
    assert axis_sets.to_array(s).tolist() == sorted(held)
    around = np.arange(-3, N + 3)
    assert axis_sets.hold_each(s, around).tolist() == [x in held for x in around.tolist()]
    if held:
        assert (axis_sets.least(s), axis_sets.greatest(s)) == (min(held), max(held))
        starts, stops = axis_sets.runs_of(s)
        assert {x for a, b in zip(starts, stops, strict=True) for x in range(a, b)} == held
        assert (starts[1:] > stops[:-1]).all()


@given(sets(), st.integers(0, N), st.integers(0, N), st.integers(-9, 9), st.sampled_from([-3, -1, 1, 2, 10**20]))
def test_moved_and_cut(s: AxisSet, lo: int, hi: int, start: int, step: int) -> None:
    cut = axis_sets.clip(s, lo, hi)
    check_form(cut)
    assert plain(cut) == {z - lo for z in plain(s) if lo <= z < hi}
    if not isinstance(s, np.ndarray) or abs(step) < 100:
        moved = axis_sets.change(s, start, step)
        check_form(moved)
        assert plain(moved) == {start + step * z for z in plain(s)}


@given(st.lists(sets(), max_size=3))
@example([((0, 0, 1), (4, 4, 1)), ((1, 3, 2),)])
@example([((0, 8, 2), (1, 9, 2))])
def test_unions(parts: list[AxisSet]) -> None:
    found = axis_sets.unite(parts)
    if found is OPEN:
        assert len({by for part in parts for a, b, by in part if a < b}) > 1
        return
    check_form(found)
    assert plain(found) == set().union(*map(plain, parts))


@given(st.lists(sets(), max_size=3))
def test_sums(parts: list[AxisSet]) -> None:
    found = axis_sets.add(parts)
    if found is not OPEN:
        wanted = {0}
        for part in parts:
            wanted = {y + z for y in wanted for z in plain(part)}
        check_form(found)
        assert plain(found) == wanted


def test_sums_of_windows_are_never_open() -> None:
    windows = [((0, 4 * 10**12, 4),), ((0, 2, 1),)]
    assert axis_sets.add(windows) == ((0, 4 * 10**12, 4), (1, 4 * 10**12 + 1, 4), (2, 4 * 10**12 + 2, 4))
    assert axis_sets.add([((0, 10**12, 1),), ((0, 6, 3),)]) == ((0, 10**12 + 6, 1),)


@given(sets(), sets())
def test_two_sets(s: AxisSet, t: AxisSet) -> None:
    met = axis_sets.meet(s, t)
    check_form(met)
    assert plain(met) == plain(s) & plain(t)
    assert axis_sets.first_beside(s, t) == min(plain(s) - plain(t), default=None)


def test_what_is_beside_a_long_set_is_found_by_bisection() -> None:
    assert axis_sets.first_beside(((0, 10**30, 1),), ((0, 10**30, 2),)) == 1
    assert axis_sets.first_beside(((0, 10**30, 3),), ((0, 3 * 10**20, 3),)) == 3 * 10**20 + 3
    assert axis_sets.first_beside(((0, 2**62, 1),), np.array([0, 1, 2, 5])) == 3
    assert axis_sets.first_beside(np.array([3, 5, 2**62]), ((1, 2**62 + 1, 2),)) == 2**62


@pytest.mark.parametrize("size", [1, 10**9])
def test_progressions_meet_in_closed_form(size: int) -> None:
    found = axis_sets.meet(((0, 30 * size, 2),), ((0, 30 * size, 3), (1, 1, 1)))
    assert axis_sets.size_of(found) == 5 * size + 1


@given(st.lists(st.integers(0, N), max_size=9))
def test_columns_of_listed_integers(values: list[int]) -> None:
    found = axis_sets.column_of(np.array(values, np.int64))
    check_form(found)
    assert plain(found) == set(values)
    assert isinstance(found, tuple) or len(found) > 2


@given(st.sets(st.integers(0, 400), min_size=80), st.sets(st.integers(0, 400), min_size=80), st.booleans())
@example(set(range(0, 400, 2)), set(range(1, 400, 2)), False)
@example(set(range(0, 400, 2)), set(range(0, 400, 5)), True)
def test_many_runs(one: set[int], two: set[int], far: bool) -> None:
    """More runs than progressions may be: as sequences of a ragged batch that are cut."""
    move = 10**18 if far else 0
    s, t = (axis_sets.unite([((z + move, z + move, 1),) for z in held]) for held in (one, two))
    assert s is not OPEN and t is not OPEN
    met = axis_sets.meet(s, t)
    assert {z - move for z in axis_sets.each_of(met)} == one & two
    assert axis_sets.size_of(s) == len(one)
    around = np.arange(-3, 410) + move
    assert axis_sets.hold_each(s, around).tolist() == [int(z) - move in one for z in around]
    beside = axis_sets.first_beside(s, t)
    assert beside == min((z + move for z in one - two), default=None)
    longer = axis_sets.change(s, -5, -3)
    assert axis_sets.size_of(longer) == len(one)
