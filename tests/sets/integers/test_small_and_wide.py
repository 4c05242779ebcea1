"""Every pair of small stripes, and the ends of 64 bits: where a small change of the code shows at once."""

from __future__ import annotations

from itertools import product
from math import lcm

import numpy as np
import pytest

from tapestry_sets import Sett, Stripe
from tapestry_sets.integers import nest
from tapestry_sets.integers.stripe import (
    Level,
    first_hit,
    stripe_count,
    stripes_count_common,
    stripes_count_period,
    stripes_disjoint,
    stripes_first_common,
)

LEAST, BEYOND = -(2**63), 2**63
SMALL = [(on, period, phase) for period in range(1, 7) for on in range(1, period + 1) for phase in range(period)]
INT64_ENDS = [LEAST, LEAST + 1, -1, 0, 1, BEYOND - 2, BEYOND - 1]


def holds(s: Level, z: int) -> bool:
    on, period, phase = s
    return (z - phase) % period < on


@pytest.mark.parametrize("period", range(1, 7))
def test_every_pair_of_small_stripes_is_answered_as_listed(period: int) -> None:
    for s, t in product((s for s in SMALL if s[1] == period), SMALL):
        common = lcm(s[1], t[1])
        both = [z for z in range(2 * common + 3) if holds(s, z) and holds(t, z)]
        each = [z for z in both if z < common]
        assert stripes_count_period(s, t) == len(each)
        assert stripes_disjoint(s, t) == (not both)
        for start in range(common):
            assert stripes_first_common(s, t, start) == next((z for z in both if z >= start), None)
        for start, stop in ((0, common), (1, common + 3), (common // 2, 2 * common), (2, 2)):
            wanted = sum(start <= z < stop for z in both)
            assert stripes_count_common(s, t, start, stop) == wanted


@pytest.mark.parametrize("modulus", range(1, 14))
def test_every_first_hit_of_small_moduli_is_the_first(modulus: int) -> None:
    for step, low in product(range(2 * modulus), range(modulus)):
        for high in range(low, modulus):
            hits = (k for k in range(modulus) if low <= step * k % modulus <= high)
            assert first_hit(step, modulus, low, high) == next(hits, None)


def test_every_small_stripe_is_counted_in_every_small_window() -> None:
    for s, start in product(SMALL, range(-7, 8)):
        for stop in range(start - 2, start + 14):
            assert stripe_count(s, start, stop) == sum(holds(s, z) for z in range(start, stop))


@pytest.mark.parametrize("period", [2**60 + 1, 2**61 - 1, 2**61, 2**61 + 3, 2**62 - 1])
@pytest.mark.parametrize("phase", [0, 1, 2**60 - 7])
def test_elements_between_the_ends_of_int64(period: int, phase: int) -> None:
    """More places between the first and the last element than int64 holds: the window is cut in two."""
    stripe = Stripe(2, period - 2, phase)
    first = LEAST + (phase - LEAST) % period
    starts = range(first - period, BEYOND, period)
    wanted = [z for start in starts for z in (start, start + 1) if LEAST <= z < BEYOND]
    assert stripe.elements(LEAST, BEYOND).tolist() == wanted
    assert Sett(stripe).elements(LEAST, BEYOND).tolist() == wanted
    nested = nest.canonical([(2**20, period, phase), (1, 2**19, 3)])
    inside = [z for start in starts for z in (start + 3, start + 2**19 + 3) if LEAST <= z < BEYOND]
    assert nest.elements(nested, LEAST, BEYOND).tolist() == inside


@pytest.mark.parametrize("lo", [LEAST, BEYOND - 5])
def test_elements_at_one_end_of_int64(lo: int) -> None:
    wanted = [z for z in range(lo, lo + 5) if z % 2 == 0]
    assert Stripe(1, 1).elements(lo, lo + 5).tolist() == wanted
    # the window goes on, but no element of it does
    far = Stripe(1, 2**70 - 1, wanted[0])
    assert far.elements(lo - 2**69, lo + 2**69).tolist() == wanted[:1]
    assert nest.elements((far.level,), lo - 2**69, lo + 2**69).tolist() == wanted[:1]
    with pytest.raises(OverflowError, match="do not fit int64"):
        Stripe(1, 1).elements(lo - 9, lo + 9)


@pytest.mark.parametrize("period", [1, 2, 3, 2**31, 2**61 + 1, 2**62, 2**62 + 1, 2**63 - 1, 2**63, 2**64 + 3])
def test_membership_at_the_ends_of_int64(period: int) -> None:
    at = np.array(INT64_ENDS, np.int64)
    for on, phase in product({1, period // 2 or 1, period - 1 or 1}, {0, 1 % period, period - 1}):
        level = (on, period, phase)
        for ends in (at, at[:3], at[-3:], at[2:5]):
            assert nest.contains_each((level,), ends).tolist() == [holds(level, z) for z in ends.tolist()]


@pytest.mark.parametrize("exponent", [58, 59, 60, 61, 62])
def test_numbers_and_places_where_int64_ends(exponent: int) -> None:
    """`nth_each` and `rank_each` step over to Python's integers before int64 is too short."""
    for period in (2**exponent - 1, 2**exponent, 2**exponent + 1):
        s = nest.canonical([(2**20 + 1, period, 5), (1, 2**10, 0)])
        turns = 2**62 // period
        each = 2**10 + 1
        numbers = np.array([-turns * each, -1, 0, 1, each - 1, each, turns * each - 1], np.int64)
        wanted = [n // each * period + 5 + n % each * 2**10 for n in numbers.tolist()]
        assert nest.nth_each(s, numbers).tolist() == wanted
        assert nest.rank_each(s, np.array(wanted, np.int64)).tolist() == numbers.tolist()


@pytest.mark.parametrize("turns", [2, 3, 1000, 10**9])
def test_runs_of_any_length_are_joined(turns: int) -> None:
    """A block's runs repeat as one more digit, what is clipped at each end stays by itself."""
    for s in (((1, 8, 0),), ((5, 8, 0),), ((5, 8, 0), (1, 2, 0)), ((9, 16, 0), (3, 6, 0), (1, 2, 0))):
        period = s[0][1]
        assert len(nest.runs(s, 0, turns * period)) == 1
        clipped = nest.runs(s, 1, (turns + 1) * period + 2)
        assert len(clipped) <= 1 + 2 * len(s)
        assert sum(run.size for run in clipped) == nest.count(s, 1, (turns + 1) * period + 2)
    # neighbors that go on at one distance are one digit
    assert [run.levels for run in nest.runs(((1, 8, 0),), 0, 8 * turns)] == [((turns, 8),)]
    assert [run.levels for run in nest.runs((), 3, 3 + turns)] == [((turns, 1),)]


def small_nests() -> list[nest.Nest]:
    inner = [(on, period, phase) for on, period, phase in SMALL if 2 <= period <= 4 and on < period]
    outer = [(5, 7, 0), (6, 8, 3), (4, 4, 1), (3, 10, 9)]
    found = {nest.canonical([x, y]) for x, y in product(outer, inner)}
    found |= {nest.canonical([(13, 17, 2), x, y]) for x, y in product(outer, inner[:3])}
    return sorted({(), nest.EMPTY, *((s,) for s in SMALL if s[0] < s[1]), *found})


def test_every_small_nest_is_cut_to_every_small_window() -> None:
    for s in small_nests():
        held = [z for z in range(-4, 40) if nest.contains(s, z)]
        for lo, n in product(range(-4, 12, 3), (-1, 0, 1, 2, 5, 11, 28)):
            inside = [z for z in held if lo <= z < lo + n]
            item = nest.clip(s, lo, lo + n)
            assert nest.count(s, lo, lo + n) == len(inside)
            assert nest.elements(s, lo, lo + n).tolist() == inside
            assert nest.bits(s, lo, lo + n) == sum(1 << (z - lo) for z in inside)
            assert (item is None) == (not inside)
            if item is not None:
                assert (item.start, item.length) == (inside[0], inside[-1] - inside[0] + 1)
                assert [item.start + t for t in range(item.length) if nest.contains(item.tail, t)] == inside
            if s != nest.EMPTY and inside:
                assert (nest.find(s, lo), nest.rfind(s, lo + n - 1)) == (inside[0], inside[-1])


def test_every_small_nest_has_its_numbers_and_runs() -> None:
    for s in small_nests():
        held = [z for z in range(-60, 60) if nest.contains(s, z)]
        each = np.arange(-20, 21)
        assert nest.contains_each(s, each).tolist() == [z in held for z in each.tolist()]
        for lo, hi in product((-5, 0, 3), (-6, 2, 9, 40)):
            covered = [z for first, stop in nest.solid_runs(s, lo, hi) for z in range(first, stop)]
            assert covered == [z for z in held if lo <= z < hi]
        if s == nest.EMPTY:
            continue
        before = sum(z < 0 for z in held)
        signed = [sum(0 <= h < z for h in held) - sum(z <= h < 0 for h in held) for z in each.tolist()]
        assert nest.rank_each(s, each).tolist() == signed
        numbers = [k for k in range(-8, 9) if 0 <= before + k < len(held)]
        wanted = [held[before + k] for k in numbers]
        assert nest.nth_each(s, np.array(numbers)).tolist() == wanted
        assert [nest.nth(s, k) for k in numbers] == wanted


def test_numbers_near_zero_in_periods_beyond_int64() -> None:
    for s in (((5, 2**64, 0),), ((7, 2**65, 0), (1, 2, 0))):
        wanted = [z for z in range(7) if nest.contains(s, z)]
        numbers = np.arange(len(wanted))
        assert nest.nth_each(s, numbers).tolist() == wanted
        assert nest.rank_each(s, np.array(wanted)).tolist() == numbers.tolist()
    odd = ((1, 2, 1),)
    assert nest.rank_each(odd, np.array([-3, -1, 0, 1, 3, 2**62])).tolist() == [-2, -1, 0, 0, 1, 2**61]


def test_every_small_nest_is_turned_moved_and_stretched() -> None:
    for s in small_nests():
        held = {z for z in range(-40, 80) if nest.contains(s, z)}
        for k in (-9, 0, 1, 5):
            assert {z for z in range(30) if nest.contains(nest.reverse(s, k), z)} == {
                z for z in range(30) if k - 1 - z in held
            }
            assert {z for z in range(30) if nest.contains(nest.shift(s, k), z)} == {
                z for z in range(30) if z - k in held
            }
        assert {z for z in range(30) if nest.contains(nest.scale(s, 3), z)} == {z for z in range(30) if z // 3 in held}
        outside = [z for c in nest.complement(s) for z in range(30) if nest.contains(c, z)]
        assert sorted(outside) == [z for z in range(30) if z not in held]


def test_every_union_of_two_small_nests_is_a_mask() -> None:
    every = small_nests()
    for s, t in zip(every, every[::3] * 3, strict=False):
        for lo, n in product((-3, 0, 4), (-1, 0, 1, 6, 25)):
            wanted = sum(1 << (z - lo) for z in range(lo, lo + n) if nest.contains(s, z) or nest.contains(t, z))
            assert nest.union_bits([s, t], lo, lo + n) == wanted


@pytest.mark.parametrize("phase", [0, 1, 2])
@pytest.mark.parametrize("hi", [10, 11, 12, 13])
def test_a_stripe_stays_itself_in_a_window(phase: int, hi: int) -> None:
    for s in (((1, 3, phase),), ((1, 2, phase % 2),), ((2, 3, phase),)):
        assert nest.in_window(s, 0, hi) == s


def test_a_level_that_changes_nothing_goes() -> None:
    for (on, period, _), turns, phase in product([s for s in SMALL if s[0] < s[1]], (1, 2, 3), (0, 1, 4)):
        for gap in range(period - on + 1):  # the block ends in the gap after the last element, or at its end
            outer = (turns * period - gap, turns * period, phase)
            assert nest.canonical([outer, (on, period, 0)]) == ((on, period, phase % period),)
        cut = (turns * period - (period - on) - 1, turns * period, phase)  # the last element of each turn is missing
        assert nest.canonical([cut, (on, period, 0)]) != ((on, period, phase % period),)
