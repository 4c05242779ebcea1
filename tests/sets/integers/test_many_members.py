"""Sets of many members, of many stripes, and in long windows: what is counted and listed in parts, or refused."""

from __future__ import annotations

import random
import time
from functools import reduce
from itertools import combinations, count, product
from math import lcm, prod
from operator import and_, or_
from unittest import mock

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tapestry_sets import DisjointSetts, Sett, Stripe, TooManyPieces
from tapestry_sets.integers import (
    lazy,
    nest,
    tuning,
    unions,
)
from tapestry_sets.integers.nest import EMPTY
from tests.machine_pace import slower
from tests.oracles import members
from tests.strategies import nestings


@pytest.mark.heavy(2)
@given(st.data(), st.lists(st.integers(1, 12), min_size=1, max_size=3))
def test_many_members_of_few_periods(data: st.DataObject, periods: list[int]) -> None:
    """Blocks of one period that lie in the gaps of others, and blocks with an inside among them."""
    unions_of: list[DisjointSetts] = []
    for P in periods:
        found: list[Sett] = []
        for p in data.draw(st.sets(st.integers(0, 4 * P), max_size=8)):
            for s in (Sett(Stripe(1, 4 * P, p)), Sett(*data.draw(nestings(4 * P)))):
                if all(s.isdisjoint(t) for t in found):
                    found.append(s)
        unions_of.append(DisjointSetts(found))
    window = (-5, 700)
    points = [set(u.elements(*window).tolist()) for u in unions_of]
    for (u, a), (v, b) in product(zip(unions_of, points, strict=True), repeat=2):
        assert members(u - v, window) == a - b
        assert members(u | v, window) == a | b
        assert members((u & v).setts(), window) == a & b
        assert members(~u, window) == set(range(*window)) - a
        assert members(u.difference(v, within=(3, 90)), (3, 90)) == {z for z in a - b if 3 <= z < 90}


def test_the_complement_of_thousands_of_points_of_one_period() -> None:
    P = 100_003
    points = random.Random(1).sample(range(P), 3000)
    outside = ~DisjointSetts([Sett(Stripe(1, P - 1, p)) for p in points])
    assert set(range(P)) - set(outside.elements(0, P).tolist()) == set(points)
    assert outside.count(0, P) == P - 3000 == sum(s.count(0, P) for s in outside)
    assert outside.count_common(Stripe(1, P - 1, points[0])) == 0


@pytest.mark.heavy(2)
def test_thousands_of_points_of_one_period() -> None:
    P, source = 100_003, random.Random(2)
    some, others = (source.sample(range(P), 2000) for _ in range(2))
    a, b = (DisjointSetts([Sett(Stripe(1, P - 1, p)) for p in points]) for points in (some, others))
    window = (-P, 2 * P)
    for found, points in (
        (a - b, {*some} - {*others}),
        (a | b, {*some, *others}),
        ((a & b).setts(), {*some} & {*others}),
    ):
        assert members(found, window) == {p + k * P for p in points for k in (-1, 0, 1)}
    assert members(a.difference(b, within=(5, 9_000)), (5, 9_000)) == {p for p in some if 5 <= p < 9_000} - {*others}


def test_what_has_too_many_pieces_is_refused_before_any_is_listed() -> None:
    source = random.Random(3)
    a, b = (DisjointSetts([Sett(Stripe(1, P - 1, p)) for p in source.sample(range(P), 300)]) for P in (10_007, 10_009))
    with mock.patch.object(unions.explicit, "meet_each", side_effect=AssertionError("listed")):
        for ask in (lambda: a | b, lambda: a - b, lambda: (a & b).setts()):
            with pytest.raises(TooManyPieces, match=r"lists too many blocks|about \d+ pieces"):
                ask()


def test_seven_half_on_stripes_are_counted_in_a_range() -> None:
    periods = (7, 11, 13, 17, 19, 23, 29)
    every = Sett() & Sett()
    for n in periods:
        every = every & Stripe(n // 2, n - n // 2)
    assert every.count() == 3 * 5 * 6 * 8 * 9 * 11 * 14
    count = every.count(0, 10**9)
    one, two = (np.ones(m, bool) for m in (7 * 11 * 13 * 17, 19 * 23 * 29))
    for cells, group in ((one, periods[:4]), (two, periods[4:])):
        for n in group:
            cells &= np.arange(len(cells)) % n < n // 2
    # modulo the first four, z is one of 17017 residues; its further residues run through those of the others
    places = np.flatnonzero(one)
    order = np.arange(10**9 // len(one) + 1) * len(one)
    seen = 0
    for x in places.tolist():
        z = order + x
        seen += int(two[z[z < 10**9] % len(two)].sum())
    assert count == seen


def test_half_columns_through_a_reshape_of_coprime_extents() -> None:
    # rows of 1025, half of each, met with the left half of rows of 1024: 1,535 pieces when listed
    n = 1024
    s, t = Sett(Stripe(n // 2, n + 1 - n // 2)), Sett(Stripe(n // 2, n // 2))
    cells = np.zeros((n, n + 1), bool)
    cells[:, : n // 2] = True
    both = cells.reshape(n + 1, n)[:, : n // 2]
    assert s.count_common(t, 0, n * (n + 1)) == int(both.sum())
    listed_once = np.concatenate([piece.elements(0, cells.size) for piece in (s & t).setts().members])
    wanted = np.flatnonzero(cells.ravel() & (np.arange(cells.size) % n < n // 2))
    assert np.array_equal(np.sort(listed_once), wanted)


def test_long_lists_of_lazy_sets_are_made_in_parts() -> None:
    s, t = Sett(Stripe(2, 1)), Sett(Stripe(3, 2))
    both = np.arange(10**7)
    both = both[(both % 3 < 2) & (both % 5 < 3)]
    with mock.patch.object(lazy.tuning, "WALK_ABOVE", 1 << 16):
        np.testing.assert_array_equal((s & t).elements(0, 10**7), both)
        seen = s.sample(t).elements(0, 10**6)
        filled = s.fill(t).elements(0, 10**6)
    np.testing.assert_array_equal(seen, np.flatnonzero(np.isin(t.elements(0, 2 * 10**6)[: 10**6] % 3, [0, 1])))
    np.testing.assert_array_equal(filled, s.elements(0, 10**6)[np.arange(len(s.elements(0, 10**6))) % 5 < 3])
    with pytest.raises(TooManyPieces, match=r"elements: 400000000000 elements in .* a shorter range"):
        (s & t).elements(0, 10**12)


@st.composite
def unions_of_points(draw: st.DrawFn) -> DisjointSetts:
    """Several single points, or blocks, of one or two periods: more choices of two members than are multiplied out."""
    period = draw(st.integers(13, 60))
    points = draw(st.sets(st.integers(0, period - 1), min_size=7, max_size=12))
    nested = draw(st.booleans())
    members = [Sett(Stripe(1, period - 1, z)) for z in sorted(points)]
    if nested:
        members = [Sett(Stripe(3, 2 * period - 3, 5 * z), Stripe(1, 1)) for z in range(len(points)) if 5 * z < period]
    return DisjointSetts(members)


@given(unions_of_points(), unions_of_points(), st.integers(-300, 300), st.integers(0, 20_000), st.integers(0, 3))
def test_unions_are_counted_whole(a: DisjointSetts, b: DisjointSetts, lo: int, length: int, table: int) -> None:
    """Products, masks of whole unions, tables in two halves: all count as the listed elements do."""
    z = np.arange(lo, lo + length)
    wanted = sum(1 for x in z.tolist() if x in a and x in b)
    with (
        mock.patch.object(tuning, "MAX_TABLE", (1 << 24, 64, 1, 1 << 24)[table]),
        mock.patch.object(tuning, "BITS_A_CHOICE", 1 if table == 3 else 1 << 14),
    ):
        assert lazy._count_unions((a, b), lo, lo + length, 144) == wanted if length else True
    assert a.count_common(b, lo, lo + length) == wanted


def test_unions_of_hundreds_of_points_are_a_product() -> None:
    source = random.Random(1)
    points = [sorted(source.sample(range(period), 300)) for period in (100003, 100019)]
    a, b = (
        DisjointSetts([Sett(Stripe(1, period - 1, z)) for z in some])
        for period, some in zip((100003, 100019), points, strict=True)
    )
    assert a.count_common(b) == 300 * 300
    period, stop = 100003 * 100019, 10**12
    whole, rest = divmod(stop, period)
    # the point of the least z with z = x mod 100003 and z = y mod 100019, for each x and y
    inverse = pow(100003, -1, 100019)
    x, y = (np.array(some, dtype=object) for some in points)
    z = x[:, None] + 100003 * ((y[None, :] - x[:, None]) * inverse % 100019)
    assert a.count_common(b, 0, stop) == whole * 90_000 + int((z < rest).sum())


@pytest.mark.parametrize("primes", [11, 15])
def test_many_coprime_stripes_are_counted_stretch_by_stretch(primes: int) -> None:
    periods = (7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61)[:primes]
    every = reduce(and_, [Sett(Stripe(n // 2, n - n // 2)) for n in periods], Sett() & Sett())
    lo, hi = 12_345_678, 12_345_678 + 5 * tuning.MASK_SPAN + 4321
    z = np.arange(lo, hi)
    held = np.logical_and.reduce([z % n < n // 2 for n in periods])
    assert every.count(lo, hi) == int(held.sum())
    assert every.count(0, every.period) == prod(n // 2 for n in periods)


@given(st.lists(nestings(12, 2), max_size=7))
@example([[Stripe(1, 5)], [Stripe(2, 4, phase=1)], [Stripe(1, 8, phase=2)], []])
def test_nests_that_are_not_close_are_apart(every: list[list[Stripe]]) -> None:
    some = [Sett(*levels).nest for levels in every]
    close = set(unions.close_pairs(some))
    for i, j in combinations(range(len(some)), 2):
        if (i, j) not in close and EMPTY not in (some[i], some[j]):
            period = lcm(*(s[0][1] for s in (some[i], some[j]) if s))
            assert not any(nest.contains(some[i], z) and nest.contains(some[j], z) for z in range(period))


@given(st.lists(nestings(12, 1), max_size=7), st.integers(0, 7))
@example([[Stripe(1, 5)], [Stripe(1, 5, phase=2)], [Stripe(2, 2)], [Stripe(3, 9, phase=11)]], 2)
def test_close_pairs_of_two_lists_are_those_of_one_list(every: list[list[Stripe]], n: int) -> None:
    some = [Sett(*levels).nest for levels in every]
    n = min(n, len(some))
    across = {(i, j) for i, j in unions.close_pairs(some) if i < n <= j}
    assert {(i, j) for i, j in unions.close_pairs(some, n)} == across


def test_two_lists_are_not_compared_each_with_itself() -> None:
    # 12,000 members lie on each other modulo 5, where none of them meets the other list's: all pairs were looked at
    many = [((2, 10**7, 5 * k + 1),) for k in range(12_000)]
    few = [((1, 10**7 + 5, 5 * k),) for k in range(4)]

    began = time.process_time()
    assert not list(unions.close_pairs([*many, *few], len(many)))
    assert time.process_time() - began < 0.2 * slower()


def test_a_union_of_a_thousand_members_compares_neighbors_alone() -> None:
    members = [Sett(Stripe(2, 10**7 - 2, 7 * z + z * z % 3)) for z in range(1000)]
    assert len(list(unions.close_pairs([m.nest for m in members]))) == 0
    assert DisjointSetts(members).count(0, 10**7) == 2000
    with pytest.raises(ValueError, match="share 8; write one"):
        DisjointSetts([*members, Sett(Stripe(1, 10**7 - 1, 8))])


@pytest.mark.parametrize("extra", [None, 5, 999_999_000])
def test_few_elements_in_a_union_of_thousands_are_looked_up(extra: int | None) -> None:
    rng = random.Random(5)
    halves = [Sett(Stripe(p // 2, p - p // 2, rng.randrange(p))) for p in (11, 13, 17, 19, 23)]
    union = reduce(or_, halves)
    assert len(union.setts().members) > 1000
    held = [z for z in rng.sample(range(10**9), 400) if any(z in s for s in halves)][:150]
    points = held if extra is None else [*held, next(z for z in count(extra) if not any(z in s for s in halves))]
    few = DisjointSetts([Sett(Stripe(1, 10**9 + 6, z)) for z in points])
    assert few.issubset(union, within=(0, 10**9)) == (extra is None)
    twice = few & Sett(Stripe(1, 1, min(points) % 2))  # every second integer, the first point among them
    kept = [z for z in points if (z - min(points)) % 2 == 0]
    assert twice.issubset(union, within=(0, 10**9)) == all(any(z in s for s in halves) for z in kept)
