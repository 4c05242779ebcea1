"""Pairs of small nests, a seeded sample of them in many windows: what `pairs` answers is what a list of them says."""

from __future__ import annotations

from collections.abc import Iterator
from math import lcm
from random import Random
from unittest import mock

import numpy as np
import pytest

from tapestry_sets.integers import nest, pairs, tuning
from tapestry_sets.integers.nest import EMPTY, Nest
from tapestry_sets.integers.pairs import PairSearch
from tapestry_sets.limits import Budget
from tapestry_sets.solvers import isl

SEARCHES = [(tuning.MASK_BITS, tuning.ISL_AFTER), (0, tuning.ISL_AFTER)]
"""Masks of the window, or block by block."""


def is_held(s: Nest, lo: int, hi: int) -> np.ndarray:
    """Which integers of a window a nest holds, level by level."""
    at = np.arange(lo, hi)
    held = np.ones(len(at), bool)
    for on, period, phase in s:
        at = (at - phase) % period
        held &= at < on
    return held


def drawn(rng: Random, depth: int, least: int) -> Nest:
    """A nest of up to `depth` levels with blocks of `1 / least` of their period or more, each level within a block."""
    levels = []
    longest = (0, 12, 40, 150)[depth]
    for _ in range(depth):
        period = rng.randint(2, max(2, longest))
        on = rng.randint(max(1, period // least), period)
        levels.append((on, period, rng.randrange(period)))
        longest = on // 2
    return nest.canonical(levels)


def samples(count: int) -> Iterator[tuple[Nest, Nest, Random]]:
    rng = Random(12)
    whole, none = nest.canonical([]), EMPTY
    for k in range(count):
        s, t = (drawn(rng, rng.randint(1, 3), least=2) for _ in range(2))
        if k % 16 == 0:  # everything or nothing, on either side
            s, t = rng.sample([rng.choice([whole, none]), s], 2)
        yield s, t, rng


@pytest.mark.parametrize("mask_bits, isl_after", SEARCHES)
def test_pairs_in_a_window_are_as_listed(mask_bits: int, isl_after: int) -> None:
    with mock.patch.multiple(tuning, MASK_BITS=mask_bits, ISL_AFTER=isl_after):
        for s, t, rng in samples(1500):
            lo = rng.randint(-300, 300)
            hi = lo + rng.choice([-3, 0, 1, 7, 30, 200, 900])
            both = np.flatnonzero(is_held(s, lo, hi) & is_held(t, lo, hi)) + lo
            first = int(both[0]) if len(both) else None
            assert pairs.first_in_both(s, t, lo, hi) == first
            assert pairs.is_disjoint(s, t, lo, hi) == (first is None)
            assert pairs.count_in_both(s, t, lo, hi) == len(both)
            assert pairs.is_subset(s, t, lo, hi) == bool((is_held(s, lo, hi) <= is_held(t, lo, hi)).all())


@pytest.mark.parametrize("mask_bits, isl_after", SEARCHES)
def test_pairs_on_the_line_are_as_listed(mask_bits: int, isl_after: int) -> None:
    only: list[int] = []
    with mock.patch.multiple(tuning, MASK_BITS=mask_bits, ISL_AFTER=isl_after):
        for s, t, rng in samples(1500):
            common = lcm(nest.period(s), nest.period(t))
            lo = rng.randint(-300, 300)
            both = np.flatnonzero(is_held(s, lo, lo + common) & is_held(t, lo, lo + common)) + lo
            assert pairs.is_disjoint(s, t) == (not len(both))
            assert pairs.first_in_both(s, t, lo) == (int(both[0]) if len(both) else None)
            if len(both) == 1:  # the one common element at either end of the period
                only.append(z := int(both[0]))
                for at in (-z, common - 1 - z):
                    assert not pairs.is_disjoint(nest.shift(s, at), nest.shift(t, at))
            if pairs.surely_disjoint(s, 0, t, 0):
                assert not len(both)
    assert len(only) > 20


def test_of_a_common_period_isl_is_asked_whether_before_where() -> None:
    apart = 0
    with (
        mock.patch.multiple(tuning, MASK_BITS=0, ISL_AFTER=0),
        mock.patch.object(isl, "nests_first_common", side_effect=AssertionError("asked for the least element")),
    ):
        rng = Random(4)
        for _ in range(3000):
            s, t = drawn(rng, 2, least=20), drawn(rng, 2, least=20)
            common, lo = lcm(nest.period(s), nest.period(t)), rng.randint(-300, 300)
            if not (is_held(s, lo, lo + common) & is_held(t, lo, lo + common)).any():
                apart += len(s) > 1 < len(t) and not pairs.surely_disjoint(s, 0, t, 0)
                for hi in (None, lo + common, lo + 3 * common + 7):
                    assert pairs.first_in_both(s, t, lo, hi) is None
    assert apart > 5


def steps_of_a_search(s: Nest, t: Nest, lo: int, hi: int) -> int:
    """How many pairs of blocks a search tries that finds no common element, as a list of them says too."""
    assert not (is_held(s, lo, hi) & is_held(t, lo, hi)).any()
    with mock.patch.object(tuning, "MASK_BITS", 0):
        budget = Budget(10**6)
        assert PairSearch(budget).first(s, 0, t, 0, lo, hi) is None
    return budget.spent


def test_a_long_block_is_entered_once_for_all_short_blocks_in_it() -> None:
    # the comb inside of the short blocks misses that of the long block in each of them
    long, short = ((244, 397, 169), (2, 22, 0)), ((7, 22, 7), (2, 5, 0))
    lo, hi = 288, 3288
    assert steps_of_a_search(long, short, lo, hi) <= 2 + (hi - lo) // 397
    assert steps_of_a_search(short, long, lo, hi) <= 2 + (hi - lo) // 397


def test_blocks_that_lie_alike_are_searched_once() -> None:
    # what the first block does not share with any of the long block's, no block as far from them does
    one, other = ((6, 32, 7), (1, 5, 0)), ((298, 344, 34), (18, 24, 0), (3, 8, 7))
    assert steps_of_a_search(one, other, 11, 911) <= 8
