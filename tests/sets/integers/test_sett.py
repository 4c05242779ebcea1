"""DisjointSetts, their unions and lazy intersections against listed integers; the documents' examples; hard cases."""

from __future__ import annotations

import copy
import pickle
import re
from collections.abc import Callable
from functools import partial
from itertools import combinations, product
from math import lcm
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tapestry_sets import DisjointSetts, Intersection, Limits, Sett, Stripe, TooHard, TooManyPieces, limits
from tapestry_sets.integers import (
    count_common,
    digit_sets,
    first_common,
    integers,
    isdisjoint,
    lazy,
    progression_set,
)
from tapestry_sets.integers.integers import Integers
from tests.oracles import in_nesting, listed, members
from tests.strategies import nestings, stripes, windows

Levels = list[Stripe]


def period(*every: Levels) -> tuple[int, int]:
    """Return a window of one common period, a little before and after it."""
    return -7, lcm(*(levels[0].period for levels in every if levels)) + 7


# ------------------------------------------------------------------------------------------------------ one sett


@given(nestings(), windows())
def test_verbs_are_those_of_the_listed_integers(levels: Levels, window: tuple[int, int]) -> None:
    s, points = Sett(*levels), listed(levels, window)
    assert {z for z in range(*window) if z in s} == points
    assert s.count(*window) == len(points)
    assert s.elements(*window).tolist() == sorted(points)
    assert s.is_empty == (not listed(levels, period(levels)))


@given(nestings(), st.integers(-20, 20))
def test_find_and_nth_are_those_of_the_listed_integers(levels: Levels, k: int) -> None:
    s, span = Sett(*levels), 25 * period(levels)[1]
    points = sorted(listed(levels, (-span, span)))
    assert s.find(k) == next((z for z in points if z >= k), None)
    if points:
        assert s.nth(k) == points[sum(z < 0 for z in points) + k]


@given(nestings())
def test_a_period_is_a_period_and_counts_default_to_it(levels: Levels) -> None:
    s, window = Sett(*levels), period(levels)
    assert {z + s.period for z in listed(levels, window)} == listed(
        levels, (window[0] + s.period, window[1] + s.period)
    )
    assert s.count() == len(listed(levels, (0, s.period)))


@given(nestings(), st.integers(-30, 30), windows())
def test_shift_reverse_and_scale(levels: Levels, k: int, window: tuple[int, int]) -> None:
    s = Sett(*levels)
    factor = abs(k) % 4 + 1
    assert members(s.shift(k), window) == {z for z in range(*window) if in_nesting(levels, z - k)}
    assert members(s.reverse(k), window) == {z for z in range(*window) if in_nesting(levels, k - 1 - z)}
    assert members(s.scale(factor), window) == {z for z in range(*window) if in_nesting(levels, z // factor)}


@pytest.mark.parametrize("depth", [1, 2, 3, 4])
@given(data=st.data(), k=st.integers(-99, 99), j=st.integers(-99, 99), f=st.integers(1, 5))
def test_laws_of_shift_reverse_and_scale(depth: int, data: st.DataObject, k: int, j: int, f: int) -> None:
    s = Sett(*data.draw(st.lists(stripes(9, 1), min_size=depth, max_size=depth)))
    assert s.shift(k).shift(j) == s.shift(k + j)
    assert s.shift(k).shift(-k) == s.setts()
    assert s.reverse(k).reverse(k).same_points(s)
    assert s.reverse(k).reverse(j).same_points(s.shift(j - k))
    assert s.shift(j).reverse(k).same_points(s.reverse(k).shift(-j))
    assert s.scale(f).scale(2).same_points(s.scale(2 * f))
    assert s.shift(k).scale(f).same_points(s.scale(f).shift(f * k))
    assert s.reverse(k).scale(f).same_points(s.scale(f).reverse(f * k))
    assert s.scale(f).count(0, f * 99) == f * s.count(0, 99)


@given(nestings(), nestings(), st.integers(-25, 25))
def test_rank_is_the_number_of_an_element(one: Levels, two: Levels, z: int) -> None:
    s = Sett(*one) | Sett(*two)
    points = listed(one, (-25, 25)) | listed(two, (-25, 25))
    assert s.rank(z) == sum(0 <= x < z for x in points) - sum(z <= x < 0 for x in points)
    if z in s:
        assert s.nth(s.rank(z)) == z


@given(nestings(), nestings(), nestings(6), windows())
def test_named_operators_take_a_window(one: Levels, two: Levels, three: Levels, window: tuple[int, int]) -> None:
    a, b = listed(one, window), listed(two, window) & listed(three, window)
    for s, t in ((Sett(*one), Sett(*two) & Sett(*three)), (Sett(*one) | Sett.empty(), Sett(*three) & Sett(*two))):
        assert members(s.intersection(t, within=window), window) == a & b
        assert members(t.union(s, within=window), window) == a | b
        assert members(t.difference(s, within=window), window) == b - a
        assert members(s.symmetric_difference(t, within=window), window) == a ^ b
        assert members(t.complement(within=window), window) == set(range(*window)) - b
        assert members(t.setts(within=window), window) == b


@given(stripes(), nestings(), windows())
def test_operators_take_a_stripe_on_their_left(one: Stripe, two: Levels, window: tuple[int, int]) -> None:
    s, a, b = Sett(*two), listed([one], window), listed(two, window)
    assert set((one & s).elements(*window).tolist()) == a & b
    assert members(one | s, window) == a | b
    assert members(one - s, window) == a - b
    assert members(one ^ s, window) == a ^ b
    assert (one <= s) == (Sett(one) <= s)
    assert (one >= s) == (Sett(one) >= s)


@given(nestings(6, 2), nestings(5, 2), st.integers(-12, 12))
def test_nth_and_find_of_intersections(one: Levels, two: Levels, k: int) -> None:
    both, span = Sett(*one) & Sett(*two), 14 * 30
    points = sorted(listed(one, (-span, span)) & listed(two, (-span, span)))
    if not points:
        with pytest.raises(IndexError, match="empty"):
            both.nth(k)
        return
    assert both.nth(k) == points[sum(z < 0 for z in points) + k]
    assert both.find(k) == next(z for z in points if z >= k)


@given(nestings(8, 2), nestings(9, 2), nestings(5, 1), st.integers(-(10**25), 10**25), st.sampled_from([0, 8]))
def test_far_elements_of_intersections_and_unions_by_number(
    one: Levels, two: Levels, three: Levels, k: int, few: int
) -> None:
    both, either = Sett(*one) & Sett(*two), Sett(*one) | Sett(*two)
    n = lcm(*(levels[0].period for levels in (one, two, three) if levels))
    a, b, c = (listed(levels, (0, n)) for levels in (one, two, three))
    with mock.patch.object(integers.tuning, "CLOSE", few):
        for s, held in ((both, a & b), (either, a | b), (both & Sett(*three), a & b & c), (either & both, a & b)):
            if held:
                block, rest = divmod(k, len(held))
                assert s.nth(k) == block * n + sorted(held)[rest]


def test_far_elements_of_an_intersection_are_found_by_few_counts() -> None:
    s, sparse = Sett(Stripe(10**9, 10**9 + 7), Stripe(2, 1)), Sett(Stripe(1, 10006))
    both, k = s & sparse, 10**14
    with mock.patch.object(Intersection, "_count", autospec=True, side_effect=Intersection._count) as counted:
        z = both.nth(k)
    assert 0 < counted.call_count < 20
    assert z % (2 * 10**9 + 7) < 10**9
    assert z % (2 * 10**9 + 7) % 3 < 2
    assert z % 10007 == 0
    assert both.rank(z) == k


@given(nestings(8, 3), nestings(6, 2), windows())
def test_elements_of_thin_fills_are_those_of_the_numbers(one: Levels, two: Levels, window: tuple[int, int]) -> None:
    outer, ink = Sett(*one), Sett(*two)
    points = sorted(listed(one, (window[0] - 400, window[1] + 400)))
    numbers = {z: i - sum(x < 0 for x in points) for i, z in enumerate(points)}
    held = [z for z in range(*window) if z in numbers and in_nesting(two, numbers[z])]
    far = 3 * 10**18  # where int64 does not hold what is on the way
    with mock.patch.object(lazy.tuning, "WALK_ABOVE", 1):
        assert outer.fill(ink).elements(*window).tolist() == held
        assert (outer | outer).fill(ink).elements(*window).tolist() == held
        moved = outer.shift(far).fill(ink.shift(-outer.rank(-far)))
        assert moved.elements(window[0] + far, window[1] + far).tolist() == [z + far for z in held]


@given(nestings(6, 2), nestings(5, 2), st.integers(-30, 30), windows())
def test_intersections_shift_reverse_and_scale(one: Levels, two: Levels, k: int, window: tuple[int, int]) -> None:
    both, f = Sett(*one) & Sett(*two), abs(k) % 3 + 1

    def inside(z: int) -> bool:
        return in_nesting(one, z) and in_nesting(two, z)

    assert set(both.shift(k).elements(*window).tolist()) == {z for z in range(*window) if inside(z - k)}
    assert set(both.reverse(k).elements(*window).tolist()) == {z for z in range(*window) if inside(k - 1 - z)}
    assert set(both.scale(f).elements(*window).tolist()) == {z for z in range(*window) if inside(z // f)}


@given(nestings(), st.integers(-9, 9), st.integers(-5, 5).filter(bool), windows())
def test_strided_is_what_a_strided_view_sees(levels: Levels, first: int, step: int, window: tuple[int, int]) -> None:
    seen = members(Sett(*levels).strided(first, step), window)
    assert seen == {k for k in range(*window) if in_nesting(levels, first + step * k)}


@given(stripes(), stripes())
def test_single_stripes_are_equal_if_their_points_are(s: Stripe, t: Stripe) -> None:
    window = (0, s.period * t.period)
    assert (Sett(s) == Sett(t)) == (listed([s], window) == listed([t], window))


def test_a_stripe_without_a_gap_restarts_the_pattern_inside_it() -> None:
    assert Sett(Stripe(4, 0), Stripe(1, 2)).elements(0, 9).tolist() == [0, 3, 4, 7, 8]
    assert Sett(Stripe(4, 0), Stripe(1, 1)) == Sett(Stripe(1, 1))


def test_one_set_may_have_several_nested_forms() -> None:
    one, two = Sett(Stripe(5, 4), Stripe(1, 1)), Sett(Stripe(5, 4), Stripe(3, 1), Stripe(1, 1))
    assert one.elements(0, 9).tolist() == two.elements(0, 9).tolist() == [0, 2, 4]
    assert one.same_points(two)


def test_setts_are_values() -> None:
    s = Sett(Stripe(6, 1), Stripe(2, 1))
    assert pickle.loads(pickle.dumps(s)) == s
    assert pickle.loads(pickle.dumps(s | Stripe(1, 6, 2))) == s | Stripe(1, 6, 2)
    assert {s: 1}[Sett(Stripe(6, 1), Stripe(2, 1))] == 1
    assert eval(repr(s), {"Sett": Sett, "Stripe": Stripe}) == s
    union = s | Stripe(1, 6, 2)
    assert eval(repr(union), {"DisjointSetts": DisjointSetts, "Sett": Sett, "Stripe": Stripe}) == union
    assert len(union) == len(union.members)


@given(nestings())
def test_a_sett_is_the_same_before_it_is_asked_and_after(levels: Levels) -> None:
    asked = Sett(*levels)
    assert len(asked.nest) <= len(levels)
    assert Sett(*levels) == asked and hash(Sett(*levels)) == hash(asked)
    assert pickle.loads(pickle.dumps(Sett(*levels))) == asked == copy.copy(Sett(*levels))
    assert Sett(*levels).written == tuple(levels)
    either = asked | Stripe(1, 6, 2)
    fresh = pickle.loads(pickle.dumps(either))
    assert hash(fresh) == hash(either) and fresh == either and fresh.members == either.members


def test_what_a_sett_has_not_is_named() -> None:
    for x, name in ((Sett(Stripe(1, 1)), "Sett"), (Sett(Stripe(1, 1)) | Stripe(1, 2), "DisjointSetts")):
        with pytest.raises(AttributeError, match=f"{name} has no attribute 'elemnts'"):
            x.elemnts  # noqa: B018


def test_members_are_numbered_from_either_end() -> None:
    union = DisjointSetts([Sett(Stripe(1, 8)), Sett(Stripe(1, 5, 1))])
    assert [union[k] for k in (0, 1, -2, -1)] == [*union.members, *union.members]
    for k in (2, 5, -3):
        with pytest.raises(IndexError, match=rf"no member {k}: there are 2; give one in \[-2, 2\)$"):
            union[k]
    with pytest.raises(TypeError, match="member number must be an integer"):
        union["0"]  # type: ignore[index]


# ------------------------------------------------------------------------------------------------------ two sets


@given(nestings(), nestings())
@example([Stripe(0, 1)], [Stripe(3, 4, 1)])
def test_algebra_is_that_of_the_listed_integers(one: Levels, two: Levels) -> None:
    s, t, window = Sett(*one), Sett(*two), period(one, two)
    a, b = listed(one, window), listed(two, window)
    assert members(s | t, window) == a | b
    assert members(s - t, window) == a - b
    assert members(s ^ t, window) == a ^ b
    assert members(~s, window) == set(range(*window)) - a
    assert members((s & t).setts(), window) == a & b
    assert s.isdisjoint(t) == (not a & b)
    assert (s <= t) == (a <= b)
    assert (s >= t) == (a >= b)
    assert s.same_points(t) == (a == b)


@given(nestings(), nestings(), nestings(8), nestings(6), windows())
def test_algebra_of_unions_within_a_window(
    one: Levels, two: Levels, three: Levels, four: Levels, window: tuple[int, int]
) -> None:
    s = Sett(*one).union(Sett(*two), within=window)
    t = Sett(*three).union(Sett(*four), within=window)
    a, b = listed(one, window) | listed(two, window), listed(three, window) | listed(four, window)
    assert members(s, window) == a
    assert members(s.difference(t, within=window), window) == a - b
    assert members((s & t).setts(within=window), window) == a & b
    assert s.isdisjoint(t, within=window) == (not a & b)
    assert s.issubset(t, within=window) == (a <= b)
    assert s.same_points(t, within=window) == (a == b)
    assert s.count_common(t, *window) == len(a & b)
    assert s.first_common(t, *window) == min(a & b, default=None)
    assert s.elements(*window).tolist() == sorted(a)
    assert s.count(*window) == len(a)


@given(nestings(), nestings(), st.integers(-12, 12))
def test_find_and_nth_of_unions(one: Levels, two: Levels, k: int) -> None:
    s, window = Sett(*one) | Sett(*two), (-13 * 144, 13 * 144)
    points = sorted(listed(one, window) | listed(two, window))
    assert s.find(k) == next((z for z in points if z >= k), None)
    if points:
        assert s.nth(k) == points[sum(z < 0 for z in points) + k]


@given(nestings(), nestings(), nestings(6), windows())
def test_the_lazy_intersection_answers_as_a_set(
    one: Levels, two: Levels, three: Levels, window: tuple[int, int]
) -> None:
    both = Sett(*one) & Sett(*two)
    points, other = listed(one, window) & listed(two, window), listed(three, window)
    assert isinstance(both, Intersection)
    assert {z for z in range(*window) if z in both} == points
    assert both.elements(*window).tolist() == sorted(points)
    for cut_below in (lazy.tuning.CUT_BELOW, 0):  # in halves, and one by one
        with mock.patch.multiple(lazy.tuning, WALK_ABOVE=1, CUT_BELOW=cut_below):
            assert both.elements(*window).tolist() == sorted(points)
    assert both.count(*window) == len(points)
    assert both.first(*window) == min(points, default=None)
    for third in (Sett(*three), Sett(*three) & Sett(), Sett(*three) | Sett.empty()):
        assert both.isdisjoint(third, within=window) == (not points & other)
        assert both.issubset(third, within=window) == (points <= other)
        assert both.same_points(third, within=window) == (points == other)
        assert third.issubset(both, within=window) == (other <= points)
        assert third.isdisjoint(both, within=window) == (not points & other)
        assert (both & third).count(*window) == len(points & other)
        assert (both & third).first(*window) == min(points & other, default=None)
        assert (both & third).elements(*window).tolist() == sorted(points & other)
    common = listed(one, period(one, two)) & listed(two, period(one, two))
    assert both.is_empty == (not common)
    assert members(both - Sett(*three), (0, 50)) == {
        z for z in range(50) if in_nesting(one, z) and in_nesting(two, z) and not in_nesting(three, z)
    }


@given(nestings(), nestings(), nestings(6))
def test_intersections_combine_as_sets(one: Levels, two: Levels, three: Levels) -> None:
    window = (-7, 3 * 13)
    both, s = Sett(*one) & Sett(*two), Sett(*three)
    a, b, whole = listed(one, window) & listed(two, window), listed(three, window), set(range(*window))
    assert members((both & s).setts(), window) == a & b
    assert {z for z in range(*window) if z in both & s} == a & b
    assert members(both | s, window) == a | b
    assert members(both ^ s, window) == a ^ b
    assert members(s ^ both, window) == a ^ b
    assert members(s - both, window) == b - a
    assert members(~both, window) == whole - a
    assert (both <= both.setts()) and both.same_points(both.setts())


@given(nestings())
def test_a_set_and_its_complement_share_nothing_and_lack_nothing(levels: Levels) -> None:
    s = Sett(*levels)
    assert s.isdisjoint(~s)
    assert (s | ~s) == DisjointSetts([Sett()])
    assert (s - s).is_empty
    assert (s & s).same_points(s)


# -------------------------------------------------------------------------------------- sums of progressions


@given(
    st.integers(-5, 5),
    st.lists(st.tuples(st.integers(0, 5) | st.integers(1, 5), st.integers(-9, 9)), max_size=3),
    st.integers(0, 4) | st.integers(1, 4),
    st.sampled_from([0, digit_sets.tuning.SUM_SPAN]),
)
def test_progression_set_is_the_sum(first: int, levels: list[tuple[int, int]], width: int, mask_span: int) -> None:
    ranges = [range(count) for count, _ in levels]
    expected = {
        first + sum(j * step for j, (_, step) in zip(js, levels, strict=True)) + t
        for js in product(*ranges)
        for t in range(width)
    }
    with mock.patch.object(digit_sets.tuning, "SUM_SPAN", mask_span):
        found = progression_set(first, levels, width)
    window = (min(expected), max(expected) + 2) if expected else (-50, 50)
    assert members(found, window) == expected
    extent = 2 * (window[1] - window[0])
    wider = progression_set(first, levels, width, extent)
    assert members(wider, (window[0], window[0] + extent)) == expected


def test_progression_set_is_flat_in_size() -> None:
    n = 10**12
    assert progression_set(0, [(n, 2)], width=3, extent=4 * n) == DisjointSetts([Sett.interval(0, 2 * n + 1, 4 * n)])
    grid = progression_set(5, [(n, 2 * n), (n // 2, 3)], extent=2 * n * n + n)
    assert grid.count(0, 2 * n * n + n) == n * (n // 2)


def test_progression_set_refuses_what_it_cannot_mean() -> None:
    with pytest.raises(ValueError, match="count of level 1 must be >= 0, not -2"):
        progression_set(0, [(1, 1), (-2, 1)])
    with pytest.raises(ValueError, match="width must be >= 0, not -1"):
        progression_set(0, [], width=-1)
    with pytest.raises(ValueError, match="extent 5 is shorter than the set, which spans 9"):
        progression_set(0, [(3, 4)], extent=5)
    with pytest.raises(TooManyPieces):
        progression_set(0, [(1049, 36674), (1049, 61119), (1049, 85569)])


# ---------------------------------------------------------------------------------- the documents' examples


def test_document_nested_stripes_of_three_levels() -> None:
    # v1 = (8, 8, -2), v2 = (3, 3, 1), v3 = (1, 1, 0). Erratum: the nesting is modulo on + off of v1, not modulo
    # v1's on, without which neither the document's own period property nor its Example 1 hold.
    s = Sett(Stripe(8, 8, -2), Stripe(3, 3, 1), Stripe(1, 1, 0))
    assert s.period == 16
    assert s.elements(-2, 14).tolist() == [-1, 1, 5]
    assert s.elements(-2 + 16, 14 + 16).tolist() == [15, 17, 21]


def test_document_example_1_two_slices_through_a_reshape() -> None:
    flat = np.arange(42).reshape(6, 7)[:, 0:-1].reshape(12, 3)[:, 0:-1].ravel()
    s = Sett(Stripe(6, 1), Stripe(2, 1))
    assert s.elements(0, 42).tolist() == flat.tolist()
    assert str(s) == "11.11.."


def test_document_example_2_the_corners_of_a_cube() -> None:
    # Erratum: [0::2, 0::2, 0::2] of 3x3x3 is (9, 9), (3, 3), (1, 1); the sett printed there,
    # (18, 9), (6, 3), (2, 1), is [:2, :2, :2].
    cube = np.arange(27).reshape(3, 3, 3)
    corners = Sett(Stripe(9, 9), Stripe(3, 3), Stripe(1, 1))
    assert corners.elements(0, 27).tolist() == [0, 2, 6, 8, 18, 20, 24, 26]
    assert corners.elements(0, 27).tolist() == cube[0::2, 0::2, 0::2].ravel().tolist()
    printed = Sett(Stripe(18, 9), Stripe(6, 3), Stripe(2, 1))
    assert printed.elements(0, 27).tolist() == cube[:2, :2, :2].ravel().tolist()


def test_document_strided_and_nested_views_meet_at_12() -> None:
    block, strided = Sett(Stripe(18, 9), Stripe(6, 3), Stripe(2, 1)), Sett(Stripe(1, 4, 2))
    assert block.first_common(strided, 0, 27) == 12
    assert (block & strided).elements(0, 27).tolist() == [12]


def test_document_halves_of_rows_and_every_seventh_meet_at_21() -> None:
    rows, sevenths = Sett(Stripe(3, 3, 3)), Sett(Stripe(1, 6))
    assert (rows & sevenths).elements(0, 24).tolist() == [21]


# ------------------------------------------------------------------------------------------------- hard cases


def test_half_on_stripes_of_coprime_periods() -> None:
    s, t = Sett(Stripe(50001, 50002)), Sett(Stripe(50009, 50010))
    assert not s.isdisjoint(t)
    assert (s & t).count() == 50001 * 50009
    period, lo, rest = 100003 * 100019, 12345, 7 * 10**9 + 1
    ends = np.arange(-1, rest // 100003 + 2)[:, None] * 100003 + [0, 50001]  # blocks of s, clipped to the rest
    lows, highs = np.clip(ends, lo, lo + rest).T
    below = [z // 100019 * 50009 + np.minimum(z % 100019, 50009) for z in (lows, highs)]  # elements of t in [0, z)
    listed_rest = int((below[1] - below[0]).sum())
    assert (s & t).count(lo, lo + 10**5 * period + rest) == 10**5 * 50001 * 50009 + listed_rest
    with pytest.raises(TooManyPieces, match="count_common"):
        (s & t).setts()


def test_an_intersection_of_any_length_is_asked_without_listing_it() -> None:
    s, t, odd = Sett(Stripe(50001, 50002)), Sett(Stripe(50009, 50010)), Sett(Stripe(1, 1, 1))
    both = s & t
    assert both <= s
    assert not both <= odd
    assert s >= both
    assert not both.isdisjoint(odd)
    assert not odd.isdisjoint(both)
    assert both.isdisjoint(~s)
    assert both.same_points(t & s)
    assert (both & odd).count() == 50001 * 50009
    assert odd.count_common(both) == 50001 * 50009
    z = odd.first_common(both, 10**15)
    assert z is not None
    assert z % 2
    assert z % 100003 < 50001
    assert z % 100019 < 50009
    with pytest.raises(TooManyPieces, match="count_common"):
        both - odd


@pytest.mark.parametrize("size", [10, 10**3, 10**6, 10**9, 10**12])
def test_answers_do_not_depend_on_size(size: int) -> None:
    s, t = Sett(Stripe(6, 1), Stripe(2, 1)).scale(size), Sett(Stripe(1, 4, 2)).scale(size)
    assert s.first_common(t, 0) == 7 * size
    assert s.count_common(t) == 4 * size
    assert s.nth(4 * size) == 7 * size


# ------------------------------------------------------------------------------------------------- wrong input


def test_overlapping_members_are_refused_and_a_shared_element_is_named() -> None:
    with pytest.raises(ValueError, match="share 6"):
        DisjointSetts([Sett(Stripe(1, 1)), Sett(Stripe(1, 2)).difference(Sett(Stripe(1, 11))).members[0]])


def test_what_is_not_a_set_is_refused() -> None:
    s = Sett(Stripe(1, 1))
    with pytest.raises(TypeError, match="not int"):
        s.isdisjoint(3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="stripe 0 must be a Stripe"):
        Sett((1, 1))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="element must be an integer"):
        0.5 in s  # noqa: B015
    with pytest.raises(TypeError, match="member 0 must be a Sett"):
        DisjointSetts([Stripe(1, 1)])  # type: ignore[list-item]


@pytest.mark.parametrize("s", [Sett(Stripe(1, 1)), Sett(Stripe(1, 1)) & Sett(Stripe(1, 2))])
@pytest.mark.parametrize(
    "verb", ["first_common", "count_common", "issubset", "intersection", "union", "difference", "symmetric_difference"]
)
def test_what_is_not_a_set_is_named_with_verb_and_place(s: Any, verb: str) -> None:
    about = (3, 0) if verb == "first_common" else (3,)
    with pytest.raises(TypeError, match=f"^{verb}: other is 3; a set of integers is a Stripe, .*, not int$"):
        getattr(s, verb)(*about)
    for filler, place in (("fill", "ink"), ("sample", "at")):
        with pytest.raises(TypeError, match=f"^{filler}: {place} is 3; a set of integers is a Stripe, .*, not int$"):
            getattr(s, filler)(3)


@pytest.mark.parametrize("ask", [count_common, partial(first_common, start=0), isdisjoint])
def test_which_of_several_is_not_a_set_is_named(ask: Callable[..., object]) -> None:
    with pytest.raises(TypeError, match=r"^\w+: sets\[1\] is 3; a set of integers is a Stripe, .*, not int$"):
        ask(Sett(), 3)


@pytest.mark.parametrize("both", [False, True])
def test_what_is_not_a_window_is_refused(both: bool) -> None:
    s = Sett() & Sett() if both else Sett()
    with pytest.raises(TypeError, match=r"isdisjoint: within must be a pair \(start, stop\), not 5"):
        s.isdisjoint(Stripe(1, 1), within=5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"not 3 values: \(1, 2, 3\)"):
        s.issubset(Stripe(1, 1), within=(1, 2, 3))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"issubset: within\[1\] must be an integer"):
        s.issubset(Stripe(1, 1), within=(1, 2.5))  # type: ignore[arg-type]


def test_elements_inside_periods_beyond_int64() -> None:
    assert Sett(Stripe(2**70, 5, -3), Stripe(1, 2)).elements(0, 10).tolist() == [0, 3, 6, 9]
    assert (Sett(Stripe(1, 4)) & Stripe(2**70, 5)).elements(0, 20).tolist() == [0, 5, 10, 15]
    ends = Sett(Stripe(1, 2**62)).elements(-(2**63), 2**63)
    assert ends.tolist() == [-(2**62) - 1, 0, 2**62 + 1]
    with pytest.raises(OverflowError, match="do not fit int64"):
        Sett(Stripe(1, 4)).elements(2**63 - 3, 2**63 + 3)


def test_half_a_range_is_refused() -> None:
    with pytest.raises(ValueError, match="both start and stop"):
        Sett().count(3)
    with pytest.raises(ValueError, match="lo <= hi"):
        Sett.interval(3, 2, 10)
    with pytest.raises(ValueError, match="at least 1, not 0"):
        Sett().scale(0)
    with pytest.raises(ValueError, match="step must not be 0"):
        Sett().strided(0, 0)
    with pytest.raises(IndexError, match="empty"):
        Sett.empty().nth(0)


REVERSED = {
    "count": lambda s: s.count(5, 3),
    "elements": lambda s: s.elements(5, 3),
    "first": lambda s: s.first(5, 3),
    "first_common": lambda s: s.first_common(Sett(), 5, 3),
    "count_common": lambda s: s.count_common(Sett(), 5, 3),
    "isdisjoint": lambda s: s.isdisjoint(Sett(), within=(5, 3)),
    "issubset": lambda s: s.issubset(Sett(), within=(5, 3)),
    "setts": lambda s: s.setts(within=(5, 3)),
    "intersection": lambda s: s.intersection(Sett(), within=(5, 3)),
    "union": lambda s: s.union(Sett(), within=(5, 3)),
    "difference": lambda s: s.difference(Sett(), within=(5, 3)),
    "symmetric_difference": lambda s: s.symmetric_difference(Sett(), within=(5, 3)),
    "complement": lambda s: s.complement(within=(5, 3)),
}


@pytest.mark.parametrize("verb", REVERSED)
@pytest.mark.parametrize(
    "s",
    [Sett(), Sett.empty(), Sett() | Sett(), Sett() & Sett(), Sett().fill(Sett()), Sett().sample(Sett())],
    ids=lambda s: type(s).__name__,
)
def test_reversed_ranges_are_refused_by_name_and_value(verb: str, s: Integers) -> None:
    with pytest.raises(ValueError, match=rf"^{verb}: .*start.*(5.*3|\(5, 3\))"):
        REVERSED[verb](s)


@given(nestings(), nestings(), st.integers(-9, 9))
def test_empty_ranges_hold_nothing(one: Levels, two: Levels, at: int) -> None:
    s, t = Sett(*one), Sett(*two)
    for x in (s, s | t, s & t, s.fill(t), s.sample(t)):
        assert x.count(at, at) == x.count_common(t, at, at) == 0
        assert x.elements(at, at).tolist() == []
        assert x.first(at, at) is x.first_common(t, at, at) is None
        assert x.isdisjoint(t, within=(at, at))
        assert x.issubset(t, within=(at, at))


def test_the_default_limit_of_pieces_is_the_documented_one() -> None:
    assert Limits().max_pieces == 10_000


@given(nestings(9, 2), nestings(9, 2), st.sampled_from(["union", "difference", "symmetric_difference"]))
@example([Stripe(2, 4)], [Stripe(6, 3, phase=1)], "union")
def test_no_two_members_of_a_simplified_result_merge(one: list[Stripe], two: list[Stripe], verb: str) -> None:
    found = getattr(Sett(*one), verb)(Sett(*two))
    simple = found.simplify()
    np.testing.assert_array_equal(simple.elements(0, found.period), found.elements(0, found.period))
    assert len(simple) <= len(found)
    assert all(a.merge(b) is None for a, b in combinations(simple.members, 2))


def test_a_dozen_members_are_simplified_and_what_is_refused_says_how_far_it_came() -> None:
    found = Sett(Stripe(19, 8), Stripe(5, 3, 1)) - Sett(Stripe(14, 10), Stripe(1, 2, 2))
    simple = found.simplify()
    assert len(found) >= 12 > 8 >= len(simple)
    np.testing.assert_array_equal(simple.elements(0, found.period), found.elements(0, found.period))
    with limits(budget=3000), pytest.raises(TooHard, match=r"\d+ pairs of \d+ members were looked at") as refused:
        found.simplify()
    enough = re.search(r"limits\(budget=(\d+)\)", str(refused.value))
    assert enough is not None
    with limits(budget=int(enough[1])):
        assert found.simplify() == simple


@pytest.mark.parametrize("n", [10**3 + 1, 10**9 + 1, 10**12, 7 * 10**15])
def test_a_difference_in_a_long_window_is_that_of_a_common_period(n: int) -> None:
    nested, fifths = Sett(Stripe(6, 1), Stripe(2, 1)), Sett(Stripe(1, 4, 2))
    left = nested.difference(fifths, within=(0, n))
    shared = sum(z % 7 < 5 and z % 7 % 3 < 2 and z % 5 == 2 for z in range(35))
    part = sum(z % 7 < 5 and z % 7 % 3 < 2 and z % 5 == 2 for z in range(n % 35))
    assert left.count(0, n) == nested.count(0, n) - (n // 35 * shared + part)
    assert nested.union(fifths, within=(0, n)).count(0, n) == left.count(0, n) + fifths.count(0, n)
