"""Unions of many members, listed as blocks, swept and joined: against the listed integers."""

from __future__ import annotations

from itertools import pairwise
from math import lcm
from unittest import mock

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from tapestry_sets import DisjointSetts, Sett, Stripe, TooManyPieces
from tapestry_sets.integers import blocks, unions
from tapestry_sets.integers.nest import Nest, canonical, scale, shift
from tests.oracles import listed, members
from tests.strategies import nestings, windows

Levels = list[Stripe]
Pairs = list[tuple[int, int]]


def pairs_of(found: blocks.Blocks) -> Pairs:
    return list(zip(found.starts.tolist(), found.stops.tolist(), strict=True))


def points_of(found: blocks.Blocks) -> set[int]:
    return {z for start, stop in pairs_of(found) for z in range(start, stop)}


def nest_of(levels: Levels) -> Nest:
    return canonical([stripe.level for stripe in levels])


def apart(every: list[Levels], window: tuple[int, int]) -> list[tuple[Levels, set[int]]]:
    """Return those of some nestings that share nothing with one before them, and what they hold in a window."""
    held: set[int] = set()
    kept = []
    for levels in every:
        points = listed(levels, window)
        if held.isdisjoint(points):
            kept.append((levels, points))
            held |= points
    return kept


@given(st.lists(nestings(12, 3), max_size=4), windows())
def test_blocks_of_disjoint_nests_hold_their_elements(every: list[Levels], window: tuple[int, int]) -> None:
    kept = apart(every, window)
    found = blocks.listed([nest_of(levels) for levels, _ in kept], *window)
    assert points_of(found) == set().union(*(points for _, points in kept))
    assert found.starts.tolist() == sorted(found.starts.tolist())
    assert all(start < stop for start, stop in pairs_of(found))
    assert sum(stop - start for start, stop in pairs_of(found)) == sum(len(points) for _, points in kept)
    if window[0] < window[1]:
        assert len(pairs_of(found)) <= blocks.many([nest_of(levels) for levels, _ in kept], *window) + 2 * len(kept)


@given(nestings(12, 3), nestings(9, 2), windows(), st.sampled_from([1, 10**9, 10**19]))
def test_a_sweep_tells_what_lies_in_one_or_in_both(
    one: Levels, two: Levels, window: tuple[int, int], size: int
) -> None:
    a, b = listed(one, window), listed(two, window)
    ours, theirs = (
        blocks.listed([scale(nest_of(levels), size)], size * window[0], size * window[1]) for levels in (one, two)
    )
    for wanted, points in ((blocks.OUTSIDE, a - b), (blocks.COMMON, a & b), (blocks.EITHER, a ^ b)):
        found = pairs_of(blocks.sweep(ours, theirs, wanted))
        assert {z for start, stop in found for z in range(start // size, stop // size)} == points
        assert all(not start % size and not stop % size for start, stop in found)
        assert all(stop < start for (_, stop), (start, _) in pairwise(found))  # no two touch


@given(
    st.sets(st.integers(0, 179)),
    st.sampled_from([60, 90, 180]),
    st.lists(st.integers(1, 60), max_size=4),
    st.booleans(),
    st.sampled_from([1, 10**9, 10**19]),
)
@example(set(range(0, 180, 5)) | {1}, 180, [5], True, 1)  # a run without an end, and a block beside one of it
@example(set(range(3, 180, 6)) - {9}, 180, [6], True, 10**19)  # a run across the end of the period
def test_joined_blocks_hold_what_was_listed(
    bits: set[int], span: int, distances: list[int], repeats: bool, size: int
) -> None:
    points = {z for z in bits if z < span}
    held = DisjointSetts._of(unions.joined_cheaply([((size, span * size, z * size),) for z in points]))
    found = blocks.sweep(blocks.listed(held._nests, 0, span * size), blocks.listed([], 0, span * size), blocks.OUTSIDE)
    with mock.patch.object(blocks.tuning, "RUN_BLOCKS", 2):
        made = DisjointSetts._of(blocks.joined(found, 0, span * size, [d * size for d in distances], repeats))
    assert {z for z in range(span) if z * size in made and (z + 1) * size - 1 in made} == points
    assert made.count(0, span * size) == size * len(points)
    if repeats:
        assert all((z + span) * size in made for z in points)
        assert made.count(span * size, 2 * span * size) == size * len(points)


@given(st.lists(nestings(9, 2), min_size=1, max_size=3), st.lists(nestings(7, 2), min_size=1, max_size=3), windows())
def test_unions_by_blocks_are_those_of_the_listed_integers(
    one: list[Levels], two: list[Levels], window: tuple[int, int]
) -> None:
    whole = (0, lcm(*(levels[0].period for levels in (*one, *two) if levels)))
    assume(whole[1] < 5000)
    ours, theirs = apart(one, whole), apart(two, whole)
    xs, ys = (DisjointSetts([Sett(*levels) for levels, _ in each]) for each in (ours, theirs))
    a, b = (set().union(*(points for _, points in each)) for each in (ours, theirs))
    with mock.patch.object(unions.tuning, "MAX_MET_PAIRS", 0):
        results = {
            "-": (xs - ys, a - b),
            "^": (xs ^ ys, a ^ b),
            "|": (xs | ys, a | b),
            "~": (~xs, set(range(*whole)) - a),
        }
        results["&"] = ((xs & ys).setts(), a & b)
        c, d = (set().union(*(listed(levels, window) for levels, _ in each)) for each in (ours, theirs))
        near = [
            (xs.difference(ys, window), c - d),
            (xs.symmetric_difference(ys, window), c ^ d),
            (xs.intersection(ys, window), c & d),
        ]
    for found, points in results.values():
        assert members(found, whole) == points
        assert sum(s.count(*whole) for s in found.members) == len(points)  # disjoint
        assert all((z + whole[1] in found) == (z in points) for z in range(whole[0], whole[1], 7))
        assert DisjointSetts(found.members) == found
    for found, points in near:
        assert members(found, window) == points


@pytest.mark.parametrize("size", [1, 10**9, 10**16])
def test_unions_of_coprime_periods_have_few_members(size: int) -> None:
    s = Sett(Stripe(4, 19, 11)).scale(size)
    for stripe in (Stripe(3, 12, 8), Stripe(5, 12, 1), Stripe(2, 9, 3)):
        s = s | Sett(stripe).scale(size)
    outside = (23 - 4) * (15 - 3) * (17 - 5) * (11 - 2)  # the Chinese remainder theorem
    assert s.count() == (23 * 15 * 17 * 11 - outside) * size
    assert len(s) < 400


def test_what_will_have_too_many_pieces_is_foreseen_from_a_sample() -> None:
    s = Sett(Stripe(4, 19, 11)) | Stripe(3, 12, 8) | Stripe(5, 12, 1) | Stripe(2, 9, 3)
    with mock.patch.object(unions.tuning, "MAX_LISTED_BLOCKS", 1 << 16):
        with pytest.raises(TooManyPieces, match=r"difference: about \d+ pieces, since \d+ integers have \d+"):
            s | Stripe(7, 22) | Stripe(3, 28, 2)
        dense = [((10**9, 10**12, 10**10 * k), (1, 2 + k, 0)) for k in range(8)]  # a block holds far more than a sample
        xs, ys = DisjointSetts._of(dense), DisjointSetts._of([((1, 10**12, 10**11 + k * k),) for k in range(8)])
        assert (xs - ys).count() == xs.count()


def test_a_sweep_of_many_members_is_not_quadratic() -> None:
    ours = [shift(((1, 10**6, 0),), 97 * k) for k in range(8000)]
    theirs = [shift(((1, 10**6, 0),), 89 * k) for k in range(8000)]
    a, b = {97 * k for k in range(8000)}, {89 * k for k in range(8000)}
    xs, ys = DisjointSetts._of(ours), DisjointSetts._of(theirs)
    assert (xs ^ ys).elements(0, 10**6).tolist() == sorted(a ^ b)
    assert xs.intersection(ys).elements(0, 10**6).tolist() == sorted(a & b)
