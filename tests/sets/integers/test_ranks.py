"""Fills, samples, rows and unions of two, lazy and listed, against the listed integers and their numbers."""

from __future__ import annotations

import pickle
from bisect import bisect_left
from dataclasses import dataclass
from itertools import combinations, pairwise
from math import lcm
from unittest import mock

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from tapestry_sets import DisjointSetts, Sett, Stripe, TooHard, TooManyPieces, limits
from tapestry_sets.integers import lazy, ranks, unions
from tapestry_sets.integers.integers import Integers
from tapestry_sets.integers.lazy import Filled, Intersection, Sampled
from tapestry_sets.integers.nest import EMPTY, Nest, canonical, contains
from tapestry_sets.integers.together import count_common, first_common, isdisjoint
from tests.oracles import in_nesting, listed, members
from tests.strategies import nestings, stripes, windows

Levels = list[Stripe]
SPAN = 800


@dataclass(frozen=True)
class Case:
    """A set, and its elements in [lo, hi) by the definition."""

    made: Integers
    points: list[int]
    lo: int
    hi: int

    @property
    def numbered(self) -> dict[int, int]:
        """The elements by their numbers."""
        before = bisect_left(self.points, 0)
        return {i - before: z for i, z in enumerate(self.points)}

    def within(self, lo: int, hi: int) -> set[int]:
        assume(self.lo <= lo and hi <= self.hi)
        return {z for z in self.points if lo <= z < hi}


def leaf(levels: Levels) -> Case:
    return Case(Sett(*levels), sorted(listed(levels, (-SPAN, SPAN))), -SPAN, SPAN)


def united(one: Levels, two: Levels) -> Case:
    points = sorted(listed(one, (-SPAN, SPAN)) | listed(two, (-SPAN, SPAN)))
    return Case(Sett(*one) | Sett(*two), points, -SPAN, SPAN)


def filled(outer: Case, ink: Case) -> Case:
    held = set(ink.points)
    points = [z for k, z in outer.numbered.items() if k in held]
    below, above = outer.numbered.get(ink.lo), outer.numbered.get(ink.hi - 1)
    lo = outer.lo if below is None else below
    return Case(outer.made.fill(ink.made), points, lo, outer.hi if above is None else above)


def sampled(inner: Case, at: Case) -> Case:
    held = set(inner.points)
    by_number = {k: z for k, z in at.numbered.items() if inner.lo <= z < inner.hi}
    points = [k for k, z in by_number.items() if z in held]
    if not at.points:
        return Case(inner.made.sample(at.made), [], -SPAN, SPAN)
    return Case(inner.made.sample(at.made), points, min(by_number, default=0), max(by_number, default=0))


def met(one: Case, two: Case) -> Case:
    points = sorted(set(one.points) & set(two.points))
    return Case(one.made & two.made, points, max(one.lo, two.lo), min(one.hi, two.hi))


leaves = nestings(7, 2).map(leaf) | st.builds(united, nestings(6, 2), nestings(5, 1))
cases = st.recursive(
    leaves,
    lambda inner: st.builds(filled, inner, inner) | st.builds(sampled, inner, inner) | st.builds(met, inner, inner),
    max_leaves=3,
)
"""Sets of every class, lazy ones of lazy ones among them."""

lazies = st.builds(filled, cases, cases) | st.builds(sampled, cases, cases)
short = windows(-20, 40)


# ------------------------------------------------------------------------------------------------- fill and sample


@given(nestings(), nestings(), windows())
def test_a_fill_holds_the_elements_whose_numbers_are_in_the_ink(
    outer: Levels, ink: Levels, window: tuple[int, int]
) -> None:
    points = sorted(listed(outer, (-SPAN, SPAN)))
    zero = bisect_left(points, 0)
    wanted = {z for i, z in enumerate(points) if in_nesting(ink, i - zero) and window[0] <= z < window[1]}
    fill = Sett(*outer).fill(Sett(*ink))
    assert {z for z in range(*window) if z in fill} == wanted
    assert members(fill.setts(), window) == wanted
    assert members(fill.setts(within=window), window) == wanted


@given(nestings(), nestings(6), windows(-20, 30))
def test_a_sample_holds_the_numbers_of_the_common_elements(inner: Levels, at: Levels, window: tuple[int, int]) -> None:
    case = sampled(leaf(inner), leaf(at))
    wanted = case.within(*window)
    assert {k for k in range(*window) if k in case.made} == wanted
    assert members(case.made.setts(), window) == wanted
    assert members(case.made.setts(within=window), window) == wanted


@given(lazies, short)
def test_verbs_of_lazy_sets_are_those_of_the_listed_integers(case: Case, window: tuple[int, int]) -> None:
    s, points = case.made, case.within(*window)
    assert {z for z in range(*window) if z in s} == points
    assert s.count(*window) == len(points)
    assert s.elements(*window).tolist() == sorted(points)
    assert s.first(*window) == min(points, default=None)
    assert members(s.setts(within=window), window) == points
    for k in (-2, 0, 3):
        if k in case.numbered and case.lo <= case.numbered[k] < case.hi:
            assert s.nth(k) == case.numbered[k]
            assert s.rank(case.numbered[k]) == k
    if points:
        assert not s.is_empty
        assert s.find(window[0]) == min(points)
    if s.is_empty:
        assert s.find(0) is None
        with pytest.raises(IndexError, match="empty"):
            s.nth(0)
    assert (window[0] in s) == (window[0] + s.period in s)


@given(lazies, st.integers(-9, 9), windows(-9, 20))
def test_lazy_sets_shift_reverse_and_scale_lazily(case: Case, k: int, window: tuple[int, int]) -> None:
    factor = abs(k) % 3 + 1
    points = case.within(-60, 60)
    moved = {
        case.made.shift(k): {z for z in range(*window) if z - k in points},
        case.made.reverse(k): {z for z in range(*window) if k - 1 - z in points},
        case.made.scale(factor): {z for z in range(*window) if z // factor in points},
    }
    for s, wanted in moved.items():
        assert type(s) is type(case.made)
        assert {z for z in range(*window) if z in s} == wanted
        assert s.count(*window) == len(wanted)


@given(lazies, cases, short)
def test_two_sets_of_which_one_is_lazy_combine_as_sets(one: Case, two: Case, window: tuple[int, int]) -> None:
    s, t = one.made, two.made
    a, b = one.within(*window), two.within(*window)
    for x, y in ((s, t), (t, s)):
        assert x.isdisjoint(y, within=window) == (not a & b)
        assert x.first_common(y, *window) == min(a & b, default=None)
        assert x.count_common(y, *window) == len(a & b)
        assert (x & y).elements(*window).tolist() == sorted(a & b)
        assert x.same_points(y, within=window) == (a == b)
    assert s.issubset(t, within=window) == (a <= b)
    assert t.issubset(s, within=window) == (b <= a)
    assert members(s.union(t, within=window), window) == a | b
    assert members(s.intersection(t, within=window), window) == a & b
    assert members(s.difference(t, within=window), window) == a - b
    assert members(s.symmetric_difference(t, within=window), window) == a ^ b
    assert members(s.complement(within=window), window) == set(range(*window)) - a


@given(st.builds(filled, leaves, leaves) | st.builds(sampled, leaves, leaves), leaves)
@example(filled(leaf([Stripe(0, 1)]), leaf([Stripe(1, 1)])), leaf([Stripe(0, 1)]))
def test_decisions_about_lazy_sets_on_the_whole_line(one: Case, two: Case) -> None:
    s, t = one.made, two.made
    window = (0, lcm(s.period, t.period))
    assume(window[1] < 700)
    a, b = one.within(*window), two.within(*window)
    for x, y in ((s, t), (t, s)):
        assert x.isdisjoint(y) == (not a & b)
        assert x.count_common(y) == len(a & b)
    assert (s <= t) == (a <= b)
    assert (t <= s) == (b <= a)
    assert s.same_points(t) == (a == b)
    assert s.is_empty == (not one.within(0, s.period))
    assert members(s | t, window) == a | b
    assert members(t - s, window) == b - a
    assert members(~s, window) == set(range(*window)) - a


@given(nestings(7, 2), nestings(6, 2))
def test_filling_and_sampling_undo_each_other(outer: Levels, other: Levels) -> None:
    s, x = Sett(*outer), Sett(*other)
    if not s.is_empty:
        assert s.fill(x).sample(s).same_points(x)
    assert s.fill(x.sample(s)).same_points(s & x)
    assert s.fill(x) <= s


@given(nestings(6, 2), nestings(5, 2), nestings(4, 1), windows())
def test_fills_are_associative(one: Levels, two: Levels, three: Levels, window: tuple[int, int]) -> None:
    s, x, y = Sett(*one), Sett(*two), Sett(*three)
    assert s.fill(x).fill(y).elements(*window).tolist() == s.fill(x.fill(y)).elements(*window).tolist()


@given(stripes(9), stripes(9), windows())
def test_stripes_are_taken_as_operands(s: Stripe, ink: Stripe, window: tuple[int, int]) -> None:
    assert Sett(s).fill(ink).elements(*window).tolist() == Sett(s).fill(Sett(ink)).elements(*window).tolist()
    assert Sett(s).sample(ink).elements(*window).tolist() == Sett(s).sample(Sett(ink)).elements(*window).tolist()


def test_an_empty_set_samples_to_an_empty_set() -> None:
    seen = Sett().sample(Sett.empty())
    assert seen.is_empty
    assert seen.count() == seen.count(-5, 5) == 0
    assert 0 not in seen
    assert seen.find(3) is None
    assert seen.elements(-3, 3).tolist() == []
    assert seen.setts() == DisjointSetts()
    assert seen.shift(3).is_empty
    assert seen.reverse(3).is_empty
    assert seen.isdisjoint(Sett())
    assert Sett.empty() <= seen
    assert not Sett() <= seen


def test_lazy_sets_are_values() -> None:
    fill = Sett(Stripe(6, 1)).fill(Stripe(2, 1))
    assert pickle.loads(pickle.dumps(fill)) == fill
    assert fill == Sett(Stripe(6, 1)).fill(Stripe(2, 1))
    assert {fill: 1}[Sett(Stripe(6, 1)).fill(Stripe(2, 1))] == 1
    names = {"Filled": Filled, "Sampled": Sampled, "Sett": Sett, "Stripe": Stripe, "Intersection": Intersection}
    assert eval(repr(fill), names) == fill
    assert eval(repr(fill.sample(fill)), names) == fill.sample(fill)
    assert str(fill) == "11.11.."


# ------------------------------------------------------------------------------------------------------ hard cases


@pytest.fixture(scope="module")
def cascade() -> tuple[Filled, np.ndarray]:
    """4 of 7, then half of each of 11, 13, 17, 19 and 23 of what is left, and one period of it by enumeration."""
    s: Integers = Sett(Stripe(4, 3))
    points = np.arange(7 * 11 * 13 * 17 * 19 * 23)
    points = points[points % 7 < 4]
    for p in (11, 13, 17, 19, 23):
        s = s.fill(Stripe(p // 2, p - p // 2))
        points = points[np.arange(len(points)) % p < p // 2]
    assert isinstance(s, Filled)
    return s, points


def test_the_cascade_is_held_without_listing_it(cascade: tuple[Filled, np.ndarray]) -> None:
    s, points = cascade
    period, many = 7 * 11 * 13 * 17 * 19 * 23, len(points)
    assert s.period == period
    assert s.count() == many
    assert np.array_equal(s.elements(0, period), points)
    rng = np.random.default_rng(7)
    for z in [0, -1, 10**18, -(10**18), *rng.integers(-(10**18), 10**18, 50).tolist()]:
        whole, rest = divmod(z, period)
        before = int(np.searchsorted(points, rest))
        assert (z in s) == bool(before < many and points[before] == rest)
        assert s.rank(z) == whole * many + before
        assert s.count(min(z, 0), max(z, 0)) == abs(whole * many + before)
        more, at = divmod(whole * many + before, many)
        assert s.find(z) == more * period + int(points[at])
        block, at = divmod(z, many)
        assert s.nth(z) == block * period + int(points[at])


def test_a_short_window_of_the_cascade_is_listed_though_the_whole_has_too_many_pieces(
    cascade: tuple[Filled, np.ndarray],
) -> None:
    s, points = cascade
    with pytest.raises(TooManyPieces, match="find, nth and count of the filled set need none"):
        s.setts()
    start = 10**17 // s.period * s.period
    window = (start + 20_000, start + 30_000)
    wanted = points[(points >= 20_000) & (points < 30_000)] + start
    assert members(s.setts(within=window), window) == set(wanted.tolist())
    with limits(max_pieces=40):
        assert members(s.setts(within=(start, start + 100)), (start, start + 100)) == {
            start + int(z) for z in points if z < 100
        }


def test_questions_about_the_cascade_and_another_set(cascade: tuple[Filled, np.ndarray]) -> None:
    s, points = cascade
    every, sevens = points.tolist(), Sett(Stripe(1, 6, phase=5))
    assert s.isdisjoint(sevens)
    assert s.first_common(Stripe(1, 100, phase=17), 0) == next(z for z in every if z % 101 == 17)
    assert s.count_common(Stripe(3, 1), 0, s.period) == sum(z % 4 < 3 for z in every)
    assert s.count_common(Stripe(3, 1)) == 3 * len(every)  # coprime periods: the Chinese remainder theorem
    assert s <= s.outer
    assert s <= Sett(Stripe(4, 3))
    assert not s.outer <= s
    assert not Sett(Stripe(4, 3)) <= s


def test_what_is_too_hard_says_so_and_a_short_range_is_answered(cascade: tuple[Filled, np.ndarray]) -> None:
    s, points = cascade
    other = Sett(Stripe(4, 3)).fill(Stripe(2, 1))
    for p in (5, 9, 13, 21, 27):
        other = other.fill(Stripe(p - 2, 2))
    with mock.patch.object(lazy.tuning, "MAX_LISTED", 100), pytest.raises(TooHard, match="ask within a shorter range"):
        s.count_common(other, 0, s.period)
    wanted = [z for z in points.tolist() if z < 3000 and z in other]
    assert s.count_common(other, 0, 3000) == len(wanted)


@pytest.mark.parametrize("size", [1, 10**3, 10**6, 10**12])
def test_fills_and_samples_do_not_depend_on_size(size: int) -> None:
    rows = Sett(Stripe(6, 1)).scale(size)
    fill = rows.fill(Stripe(2 * size, size))
    assert fill.setts() == Sett(Stripe(6, 1), Stripe(2, 1)).scale(size)
    assert fill.setts().sample(rows).setts() == Sett(Stripe(2, 1)).scale(size)
    assert fill.count(0, 7 * size * size) == 4 * size * size


# -------------------------------------------------------------------------------------------------- rows and columns


@given(nestings(12, 3), nestings(9, 2), st.integers(1, 14), windows())
def test_split_parts_every_element_into_row_and_column(
    one: Levels, two: Levels, period: int, window: tuple[int, int]
) -> None:
    s = Sett(*one) | Sett(*two)
    pairs = s.split(period)
    rows = range(window[0] // period - 1, window[1] // period + 1)
    found = [
        period * q + r
        for outer, inner in pairs
        for q in rows
        if in_nesting(outer.stripes, q)
        for r in range(period)
        if in_nesting(inner.stripes, r)
    ]
    assert len(found) == len(set(found))
    assert {z for z in found if window[0] <= z < window[1]} == listed(one, window) | listed(two, window)
    assert DisjointSetts.from_split(pairs, period).same_points(s)


@given(st.lists(st.tuples(nestings(6, 2), nestings(6, 2)), max_size=3), st.integers(1, 7), windows())
def test_from_split_is_the_union_of_rows_and_columns(
    pairs: list[tuple[Levels, Levels]], period: int, window: tuple[int, int]
) -> None:
    made = DisjointSetts.from_split([(Sett(*outer), Sett(*inner)) for outer, inner in pairs], period)
    assert members(made, window) == {
        z
        for z in range(*window)
        if any(in_nesting(outer, z // period) and in_nesting(inner, z % period) for outer, inner in pairs)
    }


@given(nestings(40, 3), st.integers(1, 14), st.integers(0, 9))
def test_split_of_some_rows_parts_what_lies_in_these(levels: Levels, n: int, rows: int) -> None:
    found = [
        n * q + r
        for outer, inner in ranks.split(Sett(*levels).nest, n, rows)
        for q in range(rows)
        if contains(outer, q)
        for r in range(n)
        if contains(inner, r)
    ]
    assert sorted(found) == [z for z in range(rows * n) if in_nesting(levels, z)]


def test_split_lists_what_meets_its_rows_alone() -> None:
    shattered = Sett(Stripe(50_001, 50_002)).nest
    with pytest.raises(TooManyPieces, match="split into rows of 100019"):
        ranks.split(shattered, 100_019)
    assert len(ranks.split(shattered, 100_019, 10)) <= 21
    with pytest.raises(TooManyPieces, match="; ask for less"):
        ranks.split(shattered, 100_019, 10**40, "ask for less")


def test_split_is_flat_in_size_where_the_period_divides() -> None:
    n = 10**9
    assert Sett(Stripe(n // 2 * n, n)).split(n) == ((Sett(Stripe(n // 2, 1)), Sett()),)
    assert Sett(Stripe(1, n - 1)).split(7 * n) == ((Sett(), Sett(Stripe(1, n - 1))),)


def test_wrong_periods_and_pairs_are_refused() -> None:
    with pytest.raises(ValueError, match="split: period must be at least 1, not 0"):
        Sett().split(0)
    with pytest.raises(TypeError, match="split: period must be an integer"):
        Sett().split(2.0)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="from_split: period must be at least 1"):
        DisjointSetts.from_split([], -1)
    with pytest.raises(TypeError, match="must each be a Sett or a Stripe, not 3"):
        DisjointSetts.from_split([(Sett(), 3)], 4)  # type: ignore[list-item]
    with pytest.raises(TooManyPieces, match="split into rows"):
        Sett(Stripe(50001, 50002)).split(100019)


# ---------------------------------------------------------------------------------------------------------- unions


@st.composite
def wholes(draw: st.DrawFn) -> list[tuple[int, int, int]]:
    """Nested levels, of which each block begins with a whole block of the next level; perhaps clipped at its end."""
    levels: list[tuple[int, int, int]] = []
    scale = draw(st.sampled_from([1, 1, 7, 10**6]))
    on = draw(st.integers(1, 4))
    for _ in range(draw(st.integers(1, 4))):
        period = on + draw(st.integers(1, 6))
        levels.insert(0, (on * scale, period * scale, 0))
        on = period * draw(st.integers(1, 4)) - draw(st.integers(0, min(period - 1, 5)))
    on, period, _ = levels[0]
    return [(on, period, draw(st.integers(0, period - 1))), *levels[1:]]


def cut(levels: list[tuple[int, int, int]], at: int, place: int) -> tuple[Nest, Nest]:
    """Cut the blocks of one level into those before and those from a place."""
    (on, period, phase), outside, inside = levels[at], levels[:at], levels[at + 1 :]
    low = [*outside, (place, period, phase), *inside]
    turned = [(b, q, p - place if i == 0 else p) for i, (b, q, p) in enumerate(inside)]
    high = [*outside, (on - place, period, phase + place), *turned]
    return canonical(low), canonical(high)


@given(wholes(), st.data())
def test_what_one_cut_parts_is_merged(levels: list[tuple[int, int, int]], data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(levels) - 1))
    assume(levels[at][0] > 1)
    one, two = cut(levels, at, data.draw(st.integers(1, levels[at][0] - 1)))
    merged = ranks.join(one, two)
    assert merged is not None
    assert Sett._of(merged).same_points(Sett._of(canonical(levels)))


@given(wholes())
def test_outermost_blocks_that_were_dealt_out_are_merged(levels: list[tuple[int, int, int]]) -> None:
    (on, period, phase), *inside = levels
    one, two = (canonical([(on, 2 * period, phase + k * period), *inside]) for k in (0, 1))
    merged = ranks.join(one, two)
    assert merged is not None
    assert Sett._of(merged).same_points(Sett._of(canonical(levels)))


@given(nestings(12, 3), nestings(12, 3))
def test_a_merged_sett_is_never_a_wrong_one(one: Levels, two: Levels) -> None:
    window = (0, lcm(*(s.period for s in (*one[:1], *two[:1]))))
    a, b = listed(one, window), listed(two, window)
    if a & b:
        with pytest.raises(ValueError, match=r"share \d+; write one \| two"):
            Sett(*one).merge(Sett(*two))
        return
    merged = Sett(*one).merge(Sett(*two))
    assert merged is None or listed(merged.stripes, window) == a | b
    if merged is None:
        assert len((Sett(*one) | Sett(*two)).members) > 1


def test_merge_takes_setts_alone() -> None:
    with pytest.raises(TypeError, match=r"merge: takes a Sett, not Stripe\(1, 1\)"):
        Sett().merge(Stripe(1, 1))  # type: ignore[arg-type]


Blocks = list[tuple[int, int, Nest]]
"""Blocks in one common period, ascending: start, length and what is inside."""


def blocks_together(one: Sett, two: Sett) -> tuple[Blocks, int]:
    """List the outermost blocks of two setts in their common period, those that touch as one."""
    common = lcm(one.period, two.period)
    every = sorted(  # as nests, since stripes without a gap are equal at any phase, and what they restart is not
        ((s.nest[0][2] + at) % common, s.nest[0][0], s.nest[1:])
        for s in (one, two)
        for at in range(0, common, s.period)
    )
    out: Blocks = []
    for start, length, inside in every:
        if out and not inside and not out[-1][2] and sum(out[-1][:2]) == start:
            out[-1] = (out[-1][0], out[-1][1] + length, ())
        else:
            out.append((start, length, inside))
    if len(out) > 1 and not out[0][2] and not out[-1][2] and sum(out[-1][:2]) == out[0][0] + common:
        out[0] = (out[-1][0] - common, out.pop()[1] + out[0][1], ())
    return out, common


def are_one_nest(blocks: Blocks, common: int) -> bool:
    """Say whether blocks are equal and at equal distances, in the whole period or in one run of it."""
    if any(block[1:] != blocks[0][1:] for block in blocks):
        return False
    starts = sorted(start for start, _, _ in blocks)
    gaps = [b - a for a, b in pairwise([*starts, starts[0] + common])]
    turn = gaps.index(max(gaps))
    run = gaps[turn + 1 :] + gaps[:turn]
    return len(set(run)) < 2 and min(gaps) >= blocks[0][1]


@given(nestings(12, 3), nestings(9, 2), nestings(7, 1))
@example([Stripe(1, 2)], [Stripe(1, 5, 1)], [Stripe(1, 5, 4)])
@example([Stripe(4, 6)], [Stripe(6, 14, 4)], [])
@example([], [Stripe(3, 1), Stripe(2, 1, phase=2)], [])  # outside lie 1 and 3 modulo 4, each in a gap of a level
@example([Stripe(2, 5)], [Stripe(3, 0), Stripe(1, 1)], [])  # insides that restart at two phases are not equal
def test_no_two_members_of_a_result_merge(one: Levels, two: Levels, three: Levels) -> None:
    s, t, u = Sett(*one), Sett(*two), Sett(*three)
    for result in (s | t, s - t, s ^ t, ~s, (s & t).setts(), (s | t) - u, s.fill(t).setts(), s.sample(t).setts()):
        for a, b in combinations(result.members, 2) if len(result) <= 64 else ():
            blocks, common = blocks_together(a, b)
            assert len(blocks) > 64 or not are_one_nest(blocks, common)
            assert unions.joined(a.nest, b.nest) is None
        again = DisjointSetts(result.members)
        assert again == result


@given(nestings(12, 2), nestings(9, 2))
def test_blocks_that_are_one_nest_are_joined_into_it(one: Levels, two: Levels) -> None:
    s = Sett(*one)
    for t in (Sett(*two) - s).members:
        if not s.is_empty and s.nest and lcm(s.period, t.period) <= 32 * min(s.period, t.period):
            found = unions.joined(s.nest, t.nest)
            window = (-5, lcm(s.period, t.period) + 5)
            assert found is not None or not are_one_nest(*blocks_together(s, t))
            assert found is None or listed(Sett._of(found).stripes, window) == {
                z for z in range(*window) if z in s or z in t
            }


def test_the_constructor_merges_members() -> None:
    assert DisjointSetts([Sett(Stripe(1, 3)), Sett(Stripe(1, 3, 1))]) == DisjointSetts([Sett(Stripe(2, 2))])
    assert DisjointSetts([Sett(Stripe(1, 1)), Sett(Stripe(1, 1, 1))]) == DisjointSetts([Sett()])


# --------------------------------------------------------------------------------------------------- several sets


@given(st.lists(nestings(9, 2), min_size=1, max_size=4), windows())
def test_what_all_of_several_sets_share(every: list[Levels], window: tuple[int, int]) -> None:
    sets = [Sett(*levels) for levels in every]
    common = set.intersection(*(listed(levels, window) for levels in every))
    assert count_common(*sets, start=window[0], stop=window[1]) == len(common)
    assert first_common(*sets, start=window[0], stop=window[1]) == min(common, default=None)
    assert isdisjoint(*sets, within=window) == (not common)


@given(st.lists(nestings(6, 2), min_size=1, max_size=3))
def test_what_all_share_in_a_common_period(every: list[Levels]) -> None:
    sets = [Sett(*levels) for levels in every]
    whole = (0, lcm(*(levels[0].period for levels in every if levels)))
    common = set.intersection(*(listed(levels, whole) for levels in every))
    scale = whole[1] // lcm(*(s.period for s in sets))
    assert count_common(*sets) * scale == len(common)
    assert isdisjoint(*sets) == (not common)
    assert first_common(*sets, start=0) == min(common, default=None)


def test_no_sets_at_all_are_refused() -> None:
    with pytest.raises(ValueError, match="count_common: needs at least one set"):
        count_common()
    with pytest.raises(ValueError, match="first_common: needs at least one set"):
        first_common(start=0)
    with pytest.raises(ValueError, match="isdisjoint: needs at least one set"):
        isdisjoint()


# ------------------------------------------------------------------------------------------------------- raw nests


@given(nestings(8, 2), nestings(8, 2), nestings(8, 2), windows(-40, 60))
def test_raw_fills_and_samples_of_unions(one: Levels, two: Levels, three: Levels, window: tuple[int, int]) -> None:
    union = united(one, two)
    nests, ink = union.made.setts()._nests, [s for s in [canonical(x.level for x in three)] if s != EMPTY]
    wanted = {z for k, z in union.numbered.items() if in_nesting(three, k) and window[0] <= z < window[1]}
    assert {z for z in range(*window) for s in ranks.fill(nests, ink) if contains(s, z)} == wanted
    seen = sampled(leaf(three), union)
    assert {k for k in range(*window) for s in ranks.sample(ink, nests) if contains(s, k)} == seen.within(*window)
