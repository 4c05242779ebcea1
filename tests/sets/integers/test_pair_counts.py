"""Counts of what two nests share: each way against masks of the definition; identities at any size; what is hard."""

from __future__ import annotations

import random
from itertools import pairwise, product
from math import lcm
from unittest import mock

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tapestry_sets import DisjointSetts, Sett, Stripe, TooHard, limits
from tapestry_sets.integers import conjunction, nest, pair_counts, pairs, tuning
from tapestry_sets.integers.nest import EMPTY, Nest
from tapestry_sets.integers.pair_counts import PairCount
from tapestry_sets.integers.ramps import fold_distances, sum_ramps, sum_residues, sum_steps
from tapestry_sets.integers.stripe import sum_ramp
from tapestry_sets.limits import OPEN, Budget
from tests.oracles import in_nesting
from tests.strategies import nestings

MUCH = 10**9
"""A budget that nothing here uses up."""


def canonical(levels: list[Stripe]) -> Nest:
    return nest.canonical([s.level for s in levels])


def held(levels: list[Stripe], lo: int, hi: int) -> np.ndarray:
    """One level after another, as the definition says."""
    z = np.arange(lo, hi)
    inside = np.ones(len(z), bool)
    for stripe in levels:
        z = (z - stripe.phase) % stripe.period
        inside &= z < stripe.on
    return inside


def random_levels(source: random.Random, depth: int, on: int) -> list[tuple[int, int, int]]:
    """Nested stripes, each of a period up to as long as the block around it."""
    levels: list[tuple[int, int, int]] = []
    while len(levels) < depth and on >= 2:
        period = source.randint(2, on + 1)
        on = source.randint(1, period)
        levels.append((on, period, source.randrange(period)))
    return levels


def random_pair(seed: int, depth: int, on: int) -> tuple[Nest, Nest]:
    """Two nests that are neither empty nor everything."""
    source = random.Random(seed)
    found: list[Nest] = []
    while len(found) < 2:
        s = nest.canonical(random_levels(source, depth, on))
        if s and s != EMPTY:
            found.append(s)
    return found[0], found[1]


def scaled(s: Nest, k: int) -> Nest:
    return nest.scale(s, k)


# ------------------------------------------------------------------ each way


@given(
    nestings(60, 4),
    nestings(60, 4),
    st.integers(-200, 200),
    st.integers(1, 4000),
    st.sampled_from([1, 6, 10**9]),
    st.sampled_from([4, 64, 1 << 13]),
)
@example([Stripe(9, 3), Stripe(1, 1)], [Stripe(20, 5), Stripe(1, 2)], 0, 1000, 1, 4)  # combs: classes modulo 6
@example([Stripe(40, 9), Stripe(3, 2)], [Stripe(50, 7, 3), Stripe(4, 1)], -3, 2500, 10**9, 64)
def test_every_way_counts_what_masks_hold(
    one: list[Stripe], two: list[Stripe], lo: int, length: int, by: int, column: int
) -> None:
    wanted = int(np.count_nonzero(held(one, lo, lo + length) & held(two, lo, lo + length))) * by
    s, t = (scaled(canonical(levels), by) for levels in (one, two))
    assert pairs.count_in_both(s, t, lo * by, (lo + length) * by) == wanted
    if not s or not t or EMPTY in (s, t):
        return
    s, t = (nest.shift(x, -lo * by) for x in (s, t))
    if s[0][1] < t[0][1]:
        s, t = t, s
    with mock.patch.multiple(tuning, COLUMN=column, TABLED=1 if column == 4 else 8, SHORT=0):
        ways = [way for way in PairCount(Budget(MUCH))._ways(s, t, length * by) if way.entries < 10**6]
        assert ways
        assert [way.begin() for way in ways] == [wanted] * len(ways)


@given(nestings(60, 4), nestings(60, 4), st.sampled_from([1, 6, 10**9, 10**20]))
@example([Stripe(10, 10, 9)], [Stripe(7, 3), Stripe(1, 2)], 1)  # a class goes around three times as long
@example([Stripe(6, 7), Stripe(2, 1)], [Stripe(9, 5), Stripe(1, 3)], 10**9)
def test_a_whole_period_is_wound_up(one: list[Stripe], two: list[Stripe], by: int) -> None:
    s, t = canonical(one), canonical(two)
    if not s or not t or EMPTY in (s, t):
        return
    n = lcm(nest.period(s), nest.period(t))
    wanted = int(np.count_nonzero(held(one, 0, n) & held(two, 0, n))) * by
    big = [scaled(s, by), scaled(t, by)]
    assert PairCount(Budget(MUCH)).period(*big) == wanted
    for m, (d, _), (e, _) in pair_counts.list_classes(*big):
        assert PairCount._wind(big[0][:d], big[0][d:], big[1][:e], big[1][e:], m) == wanted
    g = by * nest.period(s) * nest.period(t) // n
    if g < 100:
        assert pair_counts._count_residues(*big, g // by * by) == wanted


@pytest.mark.parametrize("few_blocks", [0, 3, 1 << 60])
@pytest.mark.parametrize("seed", range(12))
def test_walks_of_every_kind_end_alike(seed: int, few_blocks: int) -> None:
    """Pairs at one distance joined or not, stripes summed or gone through block by block."""
    s, t = random_pair(seed, 3, 400)
    n = 3 * nest.period(s) * nest.period(t)
    wanted = (nest.bits(s, 5, n) & nest.bits(t, 5, n)).bit_count()
    with mock.patch.multiple(tuning, FEW_BLOCKS=few_blocks, SHORT=0, COLUMN=1 << 9):
        zero = np.zeros(1, np.int64)
        pair = pair_counts.BlockPairs(zero, zero, zero + 5, zero + n, zero + 7)
        assert PairCount(Budget(MUCH))._walk(s, t, pair, 0, (0, 0)) == 7 * wanted


# ------------------------------------------------------------------ unions


@st.composite
def slotted(draw: st.DrawFn) -> list[Nest]:
    """Nests of one period or two, each in a slot of its own."""
    period, slots = draw(st.sampled_from([(24, 4), (35, 5), (60, 6), (77, 7)])), draw(st.booleans())
    width, members = period[0] // period[1], []
    for k in range(period[1]):
        on = draw(st.integers(0, width))
        inner = draw(st.sampled_from([(), ((1, 2, 0),), ((2, 3, 1),)]))
        long = 1 + (slots and k % 2)
        nested = nest.canonical([(on, period[0] * long, k * width + draw(st.integers(0, width - on))), *inner])
        if on and nested and nested != EMPTY:
            members.append(nested)
    return members or [((1, 5, 0),)]


@given(slotted(), slotted(), st.integers(-99, 99), st.integers(1, 30_000), st.sampled_from([1, 10**9, 10**20]))
def test_unions_are_counted_by_all_blocks_and_by_stripes(
    ss: list[Nest], ts: list[Nest], lo: int, length: int, by: int
) -> None:
    one, two = (sum(nest.bits(s, lo, lo + length) for s in members) for members in (ss, ts))
    wanted = (one & two).bit_count() * by
    ss, ts = ([scaled(s, by) for s in members] for members in (ss, ts))
    lo, hi = lo * by, (lo + length) * by
    assert conjunction.count_two_unions(ss, ts, lo, hi) == wanted
    at_zero = [[nest.shift(s, -lo) for s in members] for members in (ss, ts)]
    groups = product(*(pair_counts._by_period(members) for members in at_zero))
    assert sum(PairCount._group(*pair, hi - lo) for pair in groups) == wanted
    if by == 1:
        assert pair_counts._meet_blocks(*at_zero, length) == wanted
    with mock.patch.object(PairCount, "unions", return_value=OPEN):  # two by two
        assert conjunction.count_two_unions(ss, ts, lo, hi) == wanted


@pytest.mark.heavy(2)
def test_unions_of_hundreds_of_long_blocks_are_counted_at_once() -> None:
    """300 blocks against 300 in a part of a common period: what two by two takes a minute."""
    source = random.Random(1)
    P, Q = 10**12 + 39, 10**12 + 61
    ones = [((source.randrange(1, 10**9), P, k * 3 * 10**9), (2, 5, 0)) for k in range(300)]
    twos = [((source.randrange(1, 10**9), Q, k * 3 * 10**9),) for k in range(300)]
    s, t = (DisjointSetts._of(nest.canonical(x) for x in members) for members in (ones, twos))
    assert s.count_common(t) == s.count() * t.count()
    solid = DisjointSetts._of(x[:1] for x in ones)
    parts = [solid.count_common(t, lo, hi) for lo, hi in pairwise((0, 10**13, 10**20, 10**24 // 3))]
    assert sum(parts) == solid.count_common(t, 0, 10**24 // 3)


def test_unions_that_are_too_hard_two_by_two_are_refused_from_a_sample() -> None:
    source = random.Random(2)
    ss, ts = ([random_pair(source.randrange(10**6), 5, 10**12)[0] for _ in range(40)] for _ in range(2))
    with limits(budget=50), mock.patch.object(PairCount, "common", side_effect=AssertionError), pytest.raises(TooHard):
        conjunction.count_two_unions(ss, ts, 0, 10**18)


# ------------------------------------------------------------------ sums of ramps


@given(
    st.lists(st.tuples(st.integers(1, 10**5), st.integers(0, 10**9)), min_size=1, max_size=40),
    st.integers(0, 10**9),
    st.integers(1, 10**9),
    st.sampled_from([1, 8]),
)
def test_ramps_are_summed_as_one_by_one(each: list[tuple[int, int]], P: int, Q: int, tabled: int) -> None:
    wanted = [sum_ramp(n, P, y, Q) % (1 << 64) for n, y in each]
    n, y = (np.array(column, np.uint64) for column in zip(*each, strict=True))
    with mock.patch.object(tuning, "TABLED", tabled):
        for many in (1, 50):  # alone, and among so many that a table of all values is shorter
            assert sum_ramps(np.tile(n, many), P, np.tile(y, many), Q).tolist() == wanted * many
        assert sum_ramps(n, P, y, Q, is_wide=True).tolist() == wanted
        columns = np.full_like(n, P), np.full_like(n, Q)
        assert sum_ramps(n, columns[0], y, columns[1]).tolist() == wanted
        exact = sum_ramps(n.astype(object), P, y.astype(object), Q).tolist()
    assert [total % (1 << 64) for total in exact] == wanted


@given(st.integers(1, 1 << 45), st.integers(1, 1 << 50), st.integers(0, 1 << 50), st.integers(1, 1 << 50))
def test_wide_ramps_are_right_modulo_2_to_the_64(n: int, P: int, y: int, Q: int) -> None:
    total = sum_ramps(np.array([n], np.uint64), P, np.array([y], np.uint64), Q, is_wide=True)
    assert total.tolist() == [sum_ramp(n, P, y, Q) % (1 << 64)]


@given(st.integers(1, 60), st.integers(0, 10**6), st.integers(1, 200), st.integers(1, 10**6), st.integers(0, 1 << 14))
@example(7, 3, 1, 12, 4)  # a list of all of one step
def test_steps_are_what_ramps_grow_by(n: int, y: int, Q: int, P: int, listed: int) -> None:
    columns = np.array([n, n, n + 1, n + 2], np.uint64), np.array([y, y + 1, y, y], np.uint64)
    with mock.patch.object(tuning, "LISTED_RAMPS", listed):  # looked up from the start, later, or never
        ramps, steps = (column.tolist() for column in sum_steps(columns[0], P, columns[1], Q))
    assert ramps == [
        sum_ramp(many, P, start, Q) % (1 << 64) for many, start in zip(*map(np.ndarray.tolist, columns), strict=True)
    ]
    assert steps[0] == sum((y + P * k) // Q + 1 for k in range(n)) == ramps[1] - ramps[0]


@pytest.mark.parametrize("exponent", [9, 12, 14])
@pytest.mark.parametrize("seed", range(4))
def test_a_window_beyond_int64_is_summed_as_by_python_integers(seed: int, exponent: int) -> None:
    s, t = random_pair(seed, 2, 10**exponent)
    if s[0][1] < t[0][1]:
        s, t = t, s
    if pair_counts.count_blocks(s[1:], s[0][0]) * pair_counts.count_blocks(t[1:], t[0][0]) > 500:
        s, t = s[:1], t[:1]
    length = lcm(s[0][1], t[0][1]) * 3 // 7
    quick, exact = (
        pair_counts.sum_of_stripes(*(pair_counts.list_stripes(x, dtype) for x in (s, t)), length)
        for dtype in (np.int64, object)
    )
    assert quick == exact


def test_periods_that_are_nearly_one_another_are_summed_exactly() -> None:
    """Of these the sum of partial quotients is so long that no bound of a sum is known beforehand."""
    P, Q = 10**12 + 1, 10**12
    s, t = ((10**11, P, 0), (10**10, 3 * 10**10, 5)), ((10**11, Q, 7), (10**9, 10**10, 0))
    length = 10**23 + 12345
    parts = [pairs.count_in_both(s, t, lo, hi) for lo, hi in pairwise((0, 10**15, 10**22, length))]
    assert sum(parts) == pairs.count_in_both(s, t, 0, length)
    assert parts[0] == pairs.count_in_both(s, t, 0, 10**15 // 3) + pairs.count_in_both(s, t, 10**15 // 3, 10**15)


# ------------------------------------------------------------------ distances by residues


@given(
    st.integers(1, 40),
    st.integers(1, 60),
    st.integers(1, 60),
    st.integers(1, 30),
    st.lists(st.tuples(st.integers(-99, 99), st.integers(-60, 40), st.integers(0, 70)), min_size=1, max_size=3),
    st.sampled_from([np.int64, object]),
)
@example(1, 7, 6, 30, [(5, -9, 30)], np.int64)  # fewer distances than classes of them
def test_distances_are_counted_and_summed_by_residue(
    n: int, P: int, Q: int, m: int, each: list[tuple[int, int, int]], dtype: type
) -> None:
    c, lo, size = (np.array(column, dtype) for column in zip(*each, strict=True))
    found = zip(*sum_residues(n, P, c, Q, m, lo, lo + size, dtype), strict=True)
    ours = {(int(at), int(r)): (int(times), int(total)) for at, r, times, total in found if times}
    wanted: dict[tuple[int, int], tuple[int, int]] = {}
    for at, (origin, start, long) in enumerate(each):
        for d in [d for i in range(n) for d in range(start, start + long) if (d - origin + P * i) % Q == 0]:
            times, total = wanted.get((at, d % m), (0, 0))
            wanted[at, d % m] = times + 1, total + d
    assert ours == wanted


@given(nestings(60, 3), nestings(60, 3), st.integers(1, 30), st.sampled_from([1, 10**9, 10**14]))
@example([Stripe(40, 9), Stripe(6, 2)], [Stripe(50, 7, 3), Stripe(9, 3)], 9, 1)  # periods inside with a common factor
@example([Stripe(40, 9), Stripe(7, 2), Stripe(1, 1)], [Stripe(30, 7, 3)], 9, 10**9)  # blocks that another cuts
def test_folded_distances_are_what_masks_hold(one: list[Stripe], two: list[Stripe], n: int, by: int) -> None:
    s, t = canonical(one), canonical(two)
    if not s or not t or EMPTY in (s, t):
        return
    s = nest.shift(s, -s[0][2])
    window = s[0][1] * n
    wanted = (nest.bits(s, 0, window) & nest.bits(t, 0, window)).bit_count() * by
    s, t = scaled(s, by), scaled(t, by)
    for d, e in product(range(1, len(s) + 1), range(1, len(t) + 1)):
        if max([inside[0][1] for inside in (s[d:], t[e:]) if inside], default=0) > 200:
            continue  # periods inside that are not short
        for dtype in (np.int64, object):
            ours, theirs = pair_counts.list_stripes(s[:d], dtype), pair_counts.list_stripes(t[:e], dtype)
            assert fold_distances(ours, s[d:], theirs, t[e:], n, dtype) == wanted


@pytest.mark.parametrize("by", [1, 1000, 10**6])
def test_short_periods_inside_of_long_blocks_are_folded(by: int) -> None:
    """Long blocks with combs of lengths that have little in common, at any length of the blocks."""
    s = nest.canonical([(990_121 * by, 990_300 * by, 173), (389, 586, 0)])
    t = nest.canonical([(871_677 * by, 871_697 * by + 2, 0), (640, 757, 217)])
    lo, hi = 0, 10**9 * by
    with limits(budget=30_000):
        found = pairs.count_in_both(s, t, lo, hi)
        outside = [pairs.count_in_both(s, c, lo, hi) for c in nest.complement(t)]
        assert found + sum(outside) == nest.count(s, lo, hi)
        cut = hi // 3 + 12345
        assert found == pairs.count_in_both(s, t, lo, cut) + pairs.count_in_both(s, t, cut, hi)
    if by == 1:
        every = [(nest.bits(s, x, x + 10**8) & nest.bits(t, x, x + 10**8)).bit_count() for x in range(lo, hi, 10**8)]
        assert found == sum(every)


# ------------------------------------------------------------------ identities at any size


@pytest.mark.parametrize("exponent", [6, 9, 12])
@pytest.mark.parametrize("depth", [2, 3, 4])
@pytest.mark.parametrize("seed", range(5))
def test_counts_of_long_nests_add_up(seed: int, depth: int, exponent: int) -> None:
    s, t = random_pair(seed, depth, 10**exponent)
    source = random.Random(seed)
    common = lcm(nest.period(s), nest.period(t))
    lo, stop = source.randint(-common, common), min(common, 10**15)
    at = sorted(source.randint(0, stop) for _ in range(3))
    ends = [lo, *(lo + x for x in at), lo + stop]
    with limits(budget=MUCH):
        parts = [pairs.count_in_both(s, t, a, b) for a, b in pairwise(ends)]
        whole = pairs.count_in_both(s, t, lo, lo + stop)
        assert sum(parts) == whole
        # what s shares with t and with what is outside of t, on the part where that is asked, is all of s there
        outside = [pairs.count_in_both(s, c, ends[0], ends[1]) for c in nest.complement(t)]
        assert parts[0] + sum(outside) == nest.count(s, ends[0], ends[1])
        period = pairs.count_in_both(s, t, 0, common)
        for k in (1, 3, 10**9):
            assert pairs.count_in_both(s, t, lo, lo + k * common + at[0]) == k * period + parts[0]


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("by", [10**9, 10**18])
def test_blocks_in_the_place_of_elements_are_counted_as_often(seed: int, by: int) -> None:
    s, t = random_pair(seed, 3, 10**5)
    lo, hi = -12345, 10**7 + seed
    wanted = (nest.bits(s, lo, hi) & nest.bits(t, lo, hi)).bit_count()
    with limits(budget=MUCH):
        assert pairs.count_in_both(scaled(s, by), scaled(t, by), lo * by, hi * by) == wanted * by


@pytest.mark.heavy(2)
@pytest.mark.parametrize("exponent", [160, 330])
@pytest.mark.parametrize("depth", [2, 3])
def test_nests_too_long_for_floats_are_counted_or_refused(depth: int, exponent: int) -> None:
    """What estimates of costs are made of is beyond floats here; a way is chosen, or refused, all the same."""
    counted = 0
    for seed in range(6):
        s, t = random_pair(seed, depth, 10**exponent)
        for hi in (10**exponent, 10 ** (2 * exponent)):
            try:
                found = pairs.count_in_both(s, t, 0, hi)
                outside = [pairs.count_in_both(s, c, 0, hi) for c in nest.complement(t)]
            except TooHard:
                continue
            counted += 1
            assert found + sum(outside) == nest.count(s, 0, hi)
    assert counted, "some are easy"


@pytest.mark.parametrize("n", [10**3, 10**6, 10**9, 10**12, 10**15])
def test_combs_inside_of_long_blocks_are_counted_in_classes(n: int) -> None:
    """Every second column of the left half against every third: no block of a comb is looked at by itself."""
    s = nest.canonical([(n // 2, n, 0), (1, 2, 0)])
    t = nest.canonical([(n // 2 + 1, n + 1, 3), (1, 3, 1)])
    lo, hi = 7, n * n // 3
    with limits(budget=10_000):
        found = pairs.count_in_both(s, t, lo, hi)
        middle = hi // 2 + 11
        assert found == pairs.count_in_both(s, t, lo, middle) + pairs.count_in_both(s, t, middle, hi)
        # the two halves of t's comb and the rest of it share out what is in s
        others = [nest.canonical([(n // 2 + 1, n + 1, 3), (1, 3, k)]) for k in (0, 2)]
        solid = nest.canonical([(n // 2 + 1, n + 1, 3)])
        shares = [pairs.count_in_both(s, other, lo, hi) for other in others]
        assert found + sum(shares) == pairs.count_in_both(s, solid, lo, hi)
    if n == 10**3:
        assert found == (nest.bits(s, lo, hi) & nest.bits(t, lo, hi)).bit_count()


@pytest.mark.heavy(2)
@pytest.mark.parametrize(
    ("s", "t", "length"),
    [
        (
            ((336619336, 435804540, 426756287), (18400722, 47867742, 0), (100378, 481588, 0)),
            ((233953912, 244552648, 87677295), (113650, 335176, 0), (1064, 112586, 0)),
            10**15,
        ),
        (
            ((521994035, 605970186, 313116485), (143, 424, 0), (3, 70, 0)),
            ((953320836, 981390477, 405648108), (20, 289, 273)),
            10**18,
        ),
    ],
)
def test_nests_that_were_refused_are_counted(s: Nest, t: Nest, length: int) -> None:
    """Many blocks of each; short periods inside, of which the window's ends hold millions."""
    found = pairs.count_in_both(s, t, 0, length)
    cut = length // 3 + 12345
    with limits(budget=MUCH):
        assert found == pairs.count_in_both(s, t, 0, cut) + pairs.count_in_both(s, t, cut, length)
        assert found + sum(pairs.count_in_both(s, c, 0, length) for c in nest.complement(t)) == nest.count(s, 0, length)


# ------------------------------------------------------------------ what is hard


@pytest.mark.parametrize("weights", [(3, 5, 7), (1, 2, 3, 4, 5), (8, 13, 21, 34, 55, 89), (2,) * 8])
def test_a_count_of_deep_nests_solves_subset_sums(weights: tuple[int, ...]) -> None:
    """So it takes long as the depth grows, by whatever way: to count subset sums is #P-hard."""
    M = sum(weights) + 1

    def nested(each: tuple[int, ...]) -> Nest:
        periods = [4**i * M + w for i, w in enumerate(each)]
        levels, inside = [], 1
        for period in periods:
            levels.insert(0, (inside, period, 0))
            inside += period
        return nest.canonical([(inside, 1 << 80, 0), *levels])

    s_nest, t_nest = nested(weights), nested((0,) * len(weights))
    sums = [
        sum(w for w, x in zip(weights, chosen, strict=True) if x) for chosen in product((0, 1), repeat=len(weights))
    ]
    for c in range(M):
        assert pairs.count_in_both(s_nest, nest.shift(t_nest, c), 0, 1 << 79) == sums.count(c)


@pytest.mark.parametrize("seed", range(6))
def test_what_is_too_hard_is_refused_before_it_begins(seed: int) -> None:
    s, t = random_pair(seed, 3, 10**9)
    with (
        limits(budget=2),
        mock.patch.object(PairCount, "_walk", side_effect=AssertionError),
        mock.patch.object(pair_counts, "sum_of_stripes", side_effect=AssertionError),
        mock.patch.object(pair_counts, "fold_distances", side_effect=AssertionError),
        mock.patch.object(PairCount, "_meet", side_effect=AssertionError),
        pytest.raises(TooHard, match=r"limits\(budget="),
    ):
        pairs.count_in_both(s, t, 0, 10**15)


def test_a_walk_that_is_longer_than_expected_ends_with_its_budget() -> None:
    s, t = random_pair(1, 4, 10**9)
    with mock.patch.object(pair_counts, "estimate_walk", return_value=0), pytest.raises(TooHard, match="budget is 50"):
        pairs.count_in_both(s, t, 0, 10**15, Budget(50))


def test_the_budget_named_suffices() -> None:
    s, t = Sett(Stripe(10**9, 10**9 + 11), Stripe(1, 9972, 7)), Sett(Stripe(10**9 + 5, 10**9 + 28, 3), Stripe(1, 9966))
    with pytest.raises(TooHard) as refused, limits(budget=100):
        s.count_common(t, 0, 10**13)
    budget = int(str(refused.value).split("limits(budget=")[1].split(")")[0])
    with limits(budget=budget):
        found = s.count_common(t, 0, 10**13)
        assert found == s.count_common(t, 0, 10**12) + s.count_common(t, 10**12, 10**13)


def test_levels_are_the_definition() -> None:
    levels = [Stripe(9, 3, 2), Stripe(3, 2, 1)]
    assert held(levels, -20, 40).tolist() == [in_nesting(levels, z) for z in range(-20, 40)]


def test_a_comb_against_long_rows_is_counted_in_one_period() -> None:
    """Rows of a large grid against every third column of a part of them."""
    for n in (100, 10**3, 10**6, 10**9):
        s = ((n, 2 * n, 0),)
        t = nest.canonical([(n - n // 10, n, n // 10), (1, 3, 0)])
        assert pairs.count_in_both(s, t, 0, n * n) == n // 2 * nest.count(t, 0, n)
