"""Stripes against enumerated integers and against isl."""

from __future__ import annotations

from itertools import pairwise

import islpy
import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from tapestry_sets import Stripe
from tapestry_sets.integers.stripe import (
    Level,
    first_hit,
    stripe_count,
    stripes_count_common,
    stripes_count_period,
    stripes_disjoint,
    stripes_first_common,
)
from tests.oracles import listed
from tests.strategies import stripes, windows

BIG = 10**9 + 7
levels = stripes(30, 1).map(lambda s: s.level)
huge_levels = st.integers(1, 10**15).flatmap(
    lambda period: st.tuples(st.integers(1, period), st.just(period), st.integers(0, period - 1))
)


def isl_stripe(s: Level) -> islpy.Set:
    on, period, phase = s
    return islpy.Set(f"{{ [z] : exists k : 0 <= z - {phase} - {period} k < {on} }}")


def isl_window(lo: int, hi: int) -> islpy.Set:
    return islpy.Set(f"{{ [z] : {lo} <= z < {hi} }}")


@given(stripes(), windows())
def test_verbs_are_those_of_the_listed_integers(s: Stripe, window: tuple[int, int]) -> None:
    points = listed([s], window)
    assert {z for z in range(*window) if z in s} == points
    assert s.count(*window) == len(points)
    assert s.elements(*window).tolist() == sorted(points)
    assert s.elements(*window).dtype == np.int64
    after = listed([s], (window[0], window[0] + s.period))
    assert s.find(window[0]) == min(after, default=None)


@given(huge_levels, st.integers(-(2**63), 2**63 - 200), st.integers(0, 200))
def test_elements_of_huge_stripes_are_listed_near_any_place(s: Level, lo: int, n: int) -> None:
    on, period, phase = s
    for scale in (1, 2**40):
        stripe = Stripe(on * scale, (period - on) * scale, phase * scale)
        wanted = [z for z in range(lo, lo + n) if (z - phase * scale) % (period * scale) < on * scale]
        assert stripe.elements(lo, lo + n).tolist() == wanted


def test_elements_do_not_depend_on_the_length_of_the_period() -> None:
    assert Stripe(2**70, 5, 10).elements(0, 20).tolist() == [0, 1, 2, 3, 4, *range(10, 20)]
    with pytest.raises(OverflowError, match="do not fit int64"):
        Stripe(1, 0).elements(2**63 - 1, 2**63 + 1)


@given(stripes(12, 1), st.integers(-40, 40))
def test_nth_counts_from_zero_both_ways(s: Stripe, k: int) -> None:
    span = 60 * s.period
    points = sorted(listed([s], (-span, span)))
    origin = sum(z < 0 for z in points)
    assert s.nth(k) == points[origin + k]


@given(stripes(), stripes())
@example(Stripe(3, 0), Stripe(1, 0, 5))
@example(Stripe(0, 3), Stripe(0, 1, 5))
def test_equal_points_are_equal_stripes(s: Stripe, t: Stripe) -> None:
    window = (0, s.period * t.period)
    same = listed([s], window) == listed([t], window)
    assert (s == t) == same
    assert not same or hash(s) == hash(t)


@given(stripes(), st.integers(-30, 30), windows())
def test_shift_moves_every_element(s: Stripe, k: int, window: tuple[int, int]) -> None:
    lo, hi = window
    assert listed([s.shift(k)], (lo + k, hi + k)) == {z + k for z in listed([s], window)}


@given(levels, levels)
def test_disjointness_on_the_line_is_isls(s: Level, t: Level) -> None:
    assert stripes_disjoint(s, t) == (isl_stripe(s) & isl_stripe(t)).is_empty()


@given(huge_levels, huge_levels)
def test_disjointness_of_huge_stripes_is_isls(s: Level, t: Level) -> None:
    assert stripes_disjoint(s, t) == (isl_stripe(s) & isl_stripe(t)).is_empty()


@given(levels, levels, st.integers(-100, 100))
def test_first_common_is_isls(s: Level, t: Level, start: int) -> None:
    both = isl_stripe(s) & isl_stripe(t) & isl_window(start, start + 1000)
    expected = None if both.is_empty() else both.dim_min_val(0).to_python()
    assert stripes_first_common(s, t, start) == expected


@given(huge_levels, huge_levels, st.integers(-(10**16), 10**16))
def test_first_common_of_huge_stripes_is_common_and_first(s: Level, t: Level, start: int) -> None:
    z = stripes_first_common(s, t, start)
    assert (z is None) == stripes_disjoint(s, t)
    if z is not None:
        assert z >= start
        assert all((z - phase) % period < on for on, period, phase in (s, t))
        assert stripes_count_common(s, t, start, z) == 0


@given(levels, levels, windows())
def test_count_common_is_the_number_listed(s: Level, t: Level, window: tuple[int, int]) -> None:
    lo, hi = window[0], window[1] + 3 * s[1] * t[1]
    both = [z for z in range(lo, hi) if all((z - p) % P < a for a, P, p in (s, t))]
    assert stripes_count_common(s, t, lo, hi) == len(both)


@given(levels, levels)
def test_count_period_is_the_number_listed(s: Level, t: Level) -> None:
    common = int(np.lcm(s[1], t[1]))
    both = [z for z in range(common) if all((z - p) % P < a for a, P, p in (s, t))]
    assert stripes_count_period(s, t) == len(both)


@given(levels, levels, windows())
def test_scaled_stripes_have_scaled_answers(s: Level, t: Level, window: tuple[int, int]) -> None:
    big_s, big_t = (tuple(BIG * n for n in level) for level in (s, t))
    lo, hi = window
    first = stripes_first_common(s, t, lo)
    assert stripes_first_common(big_s, big_t, BIG * lo) == (None if first is None else BIG * first)
    assert stripes_disjoint(big_s, big_t) == stripes_disjoint(s, t)
    assert stripes_count_common(big_s, big_t, BIG * lo, BIG * hi) == BIG * stripes_count_common(s, t, lo, hi)


@given(huge_levels, huge_levels, st.integers(-(10**16), 10**16), st.lists(st.integers(0, 10**17), min_size=2))
def test_counts_of_huge_stripes_add_up(s: Level, t: Level, start: int, lengths: list[int]) -> None:
    cuts = [start, *(start + n for n in sorted(lengths))]
    parts = [stripes_count_common(s, t, lo, hi) for lo, hi in pairwise(cuts)]
    assert sum(parts) == stripes_count_common(s, t, cuts[0], cuts[-1])
    assert all(0 <= n <= min(stripe_count(s, cuts[0], cuts[-1]), stripe_count(t, cuts[0], cuts[-1])) for n in parts)


@given(st.integers(0, 60), st.integers(1, 60), st.integers(0, 59), st.integers(0, 59))
def test_first_hit_is_the_first_of_the_multiples(a: int, m: int, u: int, v: int) -> None:
    assume(max(u, v) < m)
    low, high = min(u, v), max(u, v)
    hits = (k for k in range(m) if low <= a * k % m <= high)
    assert first_hit(a, m, low, high) == next(hits, None)


def test_coprime_half_on_stripes_are_counted_without_listing_them() -> None:
    # the same question takes an expansion into 83,339 nested stripes elsewhere
    s, t = Stripe(50001, 50002).level, Stripe(50009, 50010).level
    assert not stripes_disjoint(s, t)
    assert stripes_count_period(s, t) == 50001 * 50009
    assert stripes_count_common(s, t, 0, 100003 * 100019) == 50001 * 50009


def test_huge_coprime_periods_share_zero() -> None:
    # the product of the periods does not fit 64 bits
    s, t = (1, 4294967291, 0), (1, 4294967279, 0)
    assert not stripes_disjoint(s, t)
    assert stripes_first_common(s, t, 0) == 0
    assert stripes_first_common(s, t, 1) == 4294967291 * 4294967279
    assert stripes_count_common(s, t, -10, 10) == 1


@pytest.mark.parametrize(("on", "off"), [(-1, 2), (1, -1), (0, 0)])
def test_negative_or_no_period_is_refused(on: int, off: int) -> None:
    with pytest.raises(ValueError, match=f"on={on}, off={off}"):
        Stripe(on, off)


@pytest.mark.parametrize("bad", [True, np.True_, 1.0, "1", None])
def test_what_is_not_an_integer_is_refused(bad: object) -> None:
    with pytest.raises(TypeError, match="Stripe: on must be an integer"):
        Stripe(bad, 1)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="Stripe: phase must be an integer"):
        Stripe(1, 1, bad)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="element must be an integer"):
        bad in Stripe(1, 1)  # noqa: B015


def test_numpy_integers_are_integers() -> None:
    s = Stripe(np.int32(2), np.uint8(3), np.int64(-1))
    assert s == Stripe(2, 3, -1)
    assert all(type(n) is int for n in s.level)


def test_the_empty_stripe_has_no_elements() -> None:
    s = Stripe(0, 4, 2)
    assert s.find(0) is None
    assert s.elements(-5, 5).tolist() == []
    with pytest.raises(IndexError, match="empty"):
        s.nth(0)
