"""The closed forms on raw nests: against enumeration, against isl, at every size, with and without the fallback."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import lcm
from unittest import mock

import islpy
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tapestry_sets import Stripe, TooHard, TooManyPieces, limits
from tapestry_sets.integers import explicit, nest, pairs, tuning, unions
from tapestry_sets.integers.nest import EMPTY, Nest
from tapestry_sets.limits.budget import OPEN
from tapestry_sets.solvers import isl
from tests.oracles import in_nesting, listed
from tests.strategies import nestings, windows

BIG = 10**9 + 7
Levels = list[Stripe]


def canonical(levels: Levels) -> Nest:
    return nest.canonical([s.level for s in levels])


def held(s: Nest, window: tuple[int, int]) -> set[int]:
    return listed([Stripe(on, period - on, phase) for on, period, phase in s], window)


def scaled(s: Nest, factor: int = BIG) -> Nest:
    return nest.canonical(nest.scale(s, factor))


@contextmanager
def without_shortcuts(isl_after: int = tuning.ISL_AFTER) -> Iterator[None]:
    """Let every branch of the recursions work, also where one AND of two masks would do."""
    with mock.patch.object(tuning, "MASK_BITS", 0), mock.patch.object(tuning, "ISL_AFTER", isl_after):
        yield


@given(nestings(), windows())
def test_the_canonical_form_holds_the_same_integers(levels: Levels, window: tuple[int, int]) -> None:
    s = canonical(levels)
    assert held(s, window) == listed(levels, window)
    assert nest.canonical(s) == s


@given(nestings())
def test_every_block_of_the_canonical_form_begins_and_ends_with_an_element(levels: Levels) -> None:
    s = canonical(levels)
    for depth, (on, _, _) in enumerate(s):
        inside = s[depth + 1 :]
        assert s == EMPTY or (nest.contains(inside, 0) and nest.contains(inside, on - 1))


@given(nestings(), st.integers(-60, 60))
def test_find_and_rfind_are_the_nearest_elements(levels: Levels, z: int) -> None:
    s = canonical(levels)
    if s == EMPTY:
        return
    span = 2 * nest.period(s)
    assert nest.find(s, z) == min(listed(levels, (z, z + span)))
    assert nest.rfind(s, z) == max(listed(levels, (z - span, z + 1)))


@given(nestings(), windows())
def test_bits_elements_and_count_agree_with_the_list(levels: Levels, window: tuple[int, int]) -> None:
    s, (lo, hi) = canonical(levels), window
    points = listed(levels, window)
    assert nest.bits(s, lo, hi) == sum(1 << (z - lo) for z in points)
    assert nest.elements(s, lo, hi).tolist() == sorted(points)
    assert nest.count(s, lo, hi) == len(points)


@given(nestings(), windows())
def test_runs_partition_the_window_in_order(levels: Levels, window: tuple[int, int]) -> None:
    elements: list[int] = []
    for run in nest.runs(canonical(levels), *window):
        assert run.rank == len(elements)
        grid = [run.first]
        for count, step in run.levels:
            grid = [z + j * step for z in grid for j in range(count)]
        assert len(grid) == run.size
        elements += grid
    assert elements == sorted(listed(levels, window))


@given(nestings(), windows(longest=200))
def test_the_form_in_a_window_is_right_there(levels: Levels, window: tuple[int, int]) -> None:
    assert held(nest.in_window(canonical(levels), *window), window) == listed(levels, window)


@given(st.integers(0, 2**70))
def test_items_of_a_mask_hold_its_bits(mask: int) -> None:
    found = [
        z
        for item in explicit.from_bits(mask)
        for z in range(item.start, item.start + item.length)
        if nest.contains(item.tail, z - item.start)
    ]
    assert sorted(found) == [z for z in range(71) if mask >> z & 1]


@given(nestings(), nestings(), windows())
def test_two_nests_in_a_window(one: Levels, two: Levels, window: tuple[int, int]) -> None:
    s, t, (lo, hi) = canonical(one), canonical(two), window
    both = listed(one, window) & listed(two, window)
    for isl_after in (tuning.ISL_AFTER, 0):  # 0: all but the plainest cases go to isl
        with without_shortcuts(isl_after):
            assert pairs.first_in_both(s, t, lo, hi) == min(both, default=None)
            assert pairs.is_disjoint(s, t, lo, hi) == (not both)
            assert pairs.is_subset(s, t, lo, hi) == (listed(one, window) <= listed(two, window))
    with without_shortcuts():
        assert pairs.count_in_both(s, t, lo, hi) == len(both)
    assert pairs.count_in_both(s, t, lo, hi) == len(both)
    assert pairs.first_in_both(s, t, lo, hi) == min(both, default=None)


@given(nestings(), nestings(), st.integers(-40, 40))
@example([Stripe(2, 2), Stripe(1, 1)], [Stripe(3, 5), Stripe(1, 1, 1)], 0)
def test_two_nests_on_the_line(one: Levels, two: Levels, lo: int) -> None:
    s, t = canonical(one), canonical(two)
    common = lcm(nest.period(s), nest.period(t))
    both = [z for z in range(lo, lo + common) if in_nesting(one, z) and in_nesting(two, z)]
    for isl_after in (tuning.ISL_AFTER, 0):
        with without_shortcuts(isl_after):
            assert pairs.is_disjoint(s, t) == (not both)
            assert pairs.first_in_both(s, t, lo) == min(both, default=None)
    with without_shortcuts():
        assert pairs.count_in_both(s, t, lo, lo + common) == len(both)
        assert pairs.count_in_both(s, t, lo, lo + 5 * common + 3) == 5 * len(both) + sum(
            z < lo + 3 for z in both
        ) + sum(in_nesting(one, z) and in_nesting(two, z) for z in range(lo + common, lo + 3))


@given(nestings(), nestings())
def test_explicit_answers_hold_what_they_should_once(one: Levels, two: Levels) -> None:
    s, t = canonical(one), canonical(two)
    period = range(lcm(nest.period(s), nest.period(t)))
    for answer, wanted in ((explicit.meet(s, t), True), (unions.subtract([s], [t]), False)):
        times = [sum(nest.contains(piece, z) for piece in answer) for z in period]
        assert times == [int(in_nesting(one, z) and in_nesting(two, z) == wanted) for z in period]
        assert all(nest.canonical(piece) == piece for piece in answer)


@given(nestings(), nestings(), windows(longest=200))
def test_explicit_answers_in_a_window(one: Levels, two: Levels, window: tuple[int, int]) -> None:
    s, t = canonical(one), canonical(two)
    for answer, wanted in (
        (explicit.meet_within(s, t, *window), True),
        (unions.subtract([s], [t], window), False),
    ):
        times = [sum(nest.contains(piece, z) for piece in answer) for z in range(*window)]
        assert times == [int(in_nesting(one, z) and in_nesting(two, z) == wanted) for z in range(*window)]


@given(nestings(), nestings(), windows())
def test_scaled_nests_have_scaled_answers_without_isl(one: Levels, two: Levels, window: tuple[int, int]) -> None:
    s, t, (lo, hi) = canonical(one), canonical(two), window
    big_s, big_t = scaled(s), scaled(t)
    both = listed(one, window) & listed(two, window)
    with mock.patch.object(isl, "available", lambda: False):
        first = pairs.first_in_both(big_s, big_t, BIG * lo, BIG * hi)
        assert first == (BIG * min(both) if both else None)
        assert pairs.is_disjoint(big_s, big_t) == pairs.is_disjoint(s, t)
        assert pairs.count_in_both(big_s, big_t, BIG * lo, BIG * hi) == BIG * len(both)
        assert pairs.is_subset(big_s, big_t, BIG * lo, BIG * hi) == (listed(one, window) <= listed(two, window))
    # near an edge of a huge block a window is short, though the block is not
    edge = BIG * lo
    near = [z for z in range(edge - 4, edge + 4) if in_nesting(one, z // BIG)]
    assert nest.elements(big_s, edge - 4, edge + 4).tolist() == near
    assert nest.bits(big_s, edge - 4, edge + 4) == sum(1 << (z - edge + 4) for z in near)


@st.composite
def huge_nests(draw: st.DrawFn) -> Nest:
    """Nests of unrelated, long periods."""
    period = draw(st.integers(10**3, 10**7))
    on = draw(st.integers(1, period))
    levels = [(on, period, draw(st.integers(0, period - 1)))]
    inner = draw(st.integers(2, max(2, on)))
    levels.append((draw(st.integers(1, inner)), inner, draw(st.integers(0, inner - 1))))
    return nest.canonical(levels)


@given(huge_nests(), huge_nests(), st.integers(-(10**7), 10**7))
def test_huge_nests_meet_where_isl_says_so(s: Nest, t: Nest, lo: int) -> None:
    hi = lo + 2 * 10**7
    both = islpy.Set(f"{{ [z] : {lo} <= z < {hi} }}") & isl.nest_set(s) & isl.nest_set(t)
    assert pairs.is_disjoint(s, t, lo, hi) == both.is_empty()
    assert pairs.is_disjoint(s, t) == (isl.nest_set(s) & isl.nest_set(t)).is_empty()
    z = pairs.first_in_both(s, t, lo, hi)
    if z is not None:
        assert lo <= z < hi
        assert nest.contains(s, z)
        assert nest.contains(t, z)
        assert pairs.count_in_both(s, t, lo, z) == 0


def test_two_items_that_lie_within_each_other_are_not_joined() -> None:
    one, two = (0, 9, ((1, 4, 0),)), (2, 9, ((1, 4, 0),))
    assert explicit.merge([one, two]) == [one, two]
    assert explicit.merge([two, one]) == [two, one]
    assert explicit.merge([one, (10, *one[1:])]) == [(0, 19, ((9, 10, 0), (1, 4, 0)))]


def test_no_integers_are_looked_at_whatever_the_period() -> None:
    assert nest.contains_each(((1, 1 << 63, 0),), np.empty(0, np.int64)).tolist() == []


def test_a_coprime_period_is_counted_as_a_product() -> None:
    s, t = ((50001, 100003, 0), (1, 2, 0)), ((50009, 100019, 0), (2, 3, 0))
    count = pairs.count_in_both(s, t, 0, 100003 * 100019)
    assert count == nest.count(s, 0, 100003) * nest.count(t, 0, 100019)


def test_a_period_with_a_common_factor_is_counted_residue_by_residue() -> None:
    s, t = ((7, 10, 1), (1, 3, 0)), ((11, 14, 3), (2, 3, 1))
    listed_count = sum(nest.contains(s, z) and nest.contains(t, z) for z in range(70))
    assert pairs.count_in_both(s, t, 5, 5 + 70 * 10**12) == listed_count * 10**12


@pytest.mark.parametrize("n", [10, 10**3, 10**6, 10**9])
@pytest.mark.parametrize("step", [7, 64, 10**4 + 7])
def test_a_block_of_a_cube_is_counted_against_a_stride(n: int, step: int) -> None:
    # the residues of the stride share out the block's elements between them
    block = nest.canonical([(n * n * (n // 2), n**3, 0), (n * (n // 2), n * n, 0), (n // 2, n, 3)])
    window = (17, n**3 - 5)
    residues = range(step) if step < 100 else (0, 1, step - 1)
    counts = [pairs.count_in_both(block, ((1, step, r),), *window) for r in residues]
    if step < 100:
        assert sum(counts) == nest.count(block, *window)
    if n == 10:
        assert counts == [sum(nest.contains(block, z) and z % step == r for z in range(*window)) for r in residues]


def test_too_hard_is_said_and_names_the_way_out() -> None:
    # sparse points inside blocks of unrelated periods: one pair of blocks in about 100,000 has a common point
    s = nest.canonical([(10**9, 2 * 10**9 + 11, 0), (1, 9_999_991, 7)])
    t = nest.canonical([(10**9 + 5, 2 * 10**9 + 33, 3), (1, 10_000_019, 5)])
    with (
        mock.patch.object(isl, "available", lambda: False),
        limits(budget=2000),
        pytest.raises(TooHard, match="install islpy"),
    ):
        pairs.first_in_both(s, t, 0, 10**16)
    s, t = (nest.canonical([x[0], (1, 200_003 - 7 * k, 5)]) for k, x in enumerate((s, t)))
    with pytest.raises(TooHard, match="shorter range"):
        pairs.count_in_both(s, t, 0, 10**17)


@pytest.mark.parametrize("n", [10, 10**3, 10**6 + 1, 10**9, 10**12, 10**12 + 1, 10**18])
def test_fixed_stripes_take_the_same_steps_in_any_window(n: int) -> None:
    thirds, nested = ((1, 3, 0),), ((3, 6, 0), (1, 2, 0))  # nested: 0 and 2 modulo 6
    with mock.patch.object(pairs, "stripes_first_common", wraps=pairs.stripes_first_common) as steps:
        for other in (((1, 3, 1),), ((1, 6, 1),), ((5, 12, 1), (1, 4, 0))):  # all disjoint from both
            for s in (thirds, nested):
                assert pairs.first_in_both(s, other, 0, n) is None
                assert pairs.first_in_both(other, s, 0, n) is None
                assert pairs.count_in_both(s, other, 0, n) == 0
                assert explicit.meet_within(s, other, 0, n) == []
        left = unions.subtract([thirds], [((1, 2, 1),)], (0, n))
        met = explicit.meet_within(nested, ((1, 5, 2),), 0, n)
        assert steps.call_count < 400
    assert sum(nest.count(piece, 0, n) for piece in left) == len(range(0, n, 6))
    # 0 or 2 modulo 6 and 2 modulo 5: 12 or 2 modulo 30
    assert sum(nest.count(piece, 0, n) for piece in met) == len(range(2, n, 30)) + len(range(12, n, 30))


def test_a_search_goes_on_by_itself_where_isl_gives_up() -> None:
    s = nest.canonical([(10**9, 2 * 10**9 + 11, 0), (1, 9_999_991, 7)])
    t = nest.canonical([(10**9 + 5, 2 * 10**9 + 33, 3), (1, 10_000_019, 5)])
    with mock.patch.object(isl, "nests_first_common", return_value=OPEN):
        with limits(budget=2000), pytest.raises(TooHard, match="shorter range"):
            pairs.first_in_both(s, t, 0, 10**16)
        with mock.patch.object(tuning, "ISL_AFTER", 0):
            s, t = ((7, 2003, 0), (1, 2, 0)), ((5, 3001, 1), (1, 2, 1))
            wanted = next(z for z in range(100, 10**6) if z % 2003 in (0, 2, 4, 6) and (z - 1) % 3001 in (1, 3))
            assert pairs.first_in_both(s, t, 100, 10**9) == wanted


HARD_TO_FIND = (
    ((24104675, 33574000, 18245700), (675, 3013000, 0), (3, 112, 0)),
    ((97465602318472536, 170322432147678550, 164943696744402261), (36, 276476250, 0)),
)
"""Nests whose least common element takes isl more operations than it is given; whether there is one takes few."""


@pytest.mark.parametrize("window", [None, (0, 10**17), (10**6, 10**20)])
def test_whether_nests_meet_is_asked_of_isl_and_not_where(window: tuple[int, int] | None) -> None:
    s, t = map(nest.canonical, HARD_TO_FIND)
    lo, hi = window or (0, lcm(s[0][1], t[0][1]))
    wanted = (isl.nest_set(s) & isl.nest_set(t) & isl.box_set((lo,), (hi,), name="z")).is_empty()
    with mock.patch.object(isl, "nests_first_common", side_effect=AssertionError("asked for the least element")):
        assert pairs.is_disjoint(s, t, *(window or ())) == wanted


def test_without_isl_a_hard_pair_of_nests_is_refused() -> None:
    s, t = map(nest.canonical, HARD_TO_FIND)
    with mock.patch.object(isl, "nests_disjoint", return_value=OPEN), limits(budget=500), pytest.raises(TooHard):
        pairs.is_disjoint(s, t)


def test_isl_takes_over_where_the_search_ends() -> None:
    s = ((370121, 5920770, 3845551), (1, 5, 0))
    t = ((1454776, 5657284, 4771152), (1, 25, 0))
    with mock.patch.object(tuning, "ISL_AFTER", 0), mock.patch.object(tuning, "MASK_BITS", 0):
        z = pairs.first_in_both(s, t, -3008300, 304871740)
    assert z == 39370181
    assert nest.contains(s, z)
    assert nest.contains(t, z)


def test_too_many_pieces_is_said_and_names_the_query_that_needs_none() -> None:
    s, t = ((50001, 100003, 0),), ((50009, 100019, 0),)
    with pytest.raises(TooManyPieces, match=r"count_common, first_common, isdisjoint and issubset list nothing"):
        explicit.meet(s, t)
    with pytest.raises(TooManyPieces, match="elements"):
        nest.runs(((7, 10, 0), (2, 3, 0)), 0, 10**6)
