"""Unions of one to four small setts, a seeded sample: numbers, places and members as a list of them says."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import numpy as np

from tapestry_sets import DisjointSetts, Sett, Stripe
from tests.oracles import listed

SPAN = 2000


def samples(count: int) -> Iterator[tuple[DisjointSetts, list[int], Random]]:
    """Unions of blocks that lie apart in one period or two, some with a comb inside, and their elements around 0."""
    rng = Random(7)
    for _ in range(count):
        period, nestings = rng.randint(5, 30), []
        start = place = rng.randint(-9, 9)
        for _ in range(rng.randint(1, 4)):
            on = rng.randint(1, 5)
            inner = [Stripe(1, rng.randint(1, 2))] if rng.random() < 0.5 else []
            if place + on <= start + period:
                nestings.append([Stripe(on, period - on, place), *inner])
            place += on + rng.randint(1, 3)
        points = sorted(set().union(*(listed(levels, (-SPAN, SPAN)) for levels in nestings)))
        yield DisjointSetts([Sett(*levels) for levels in nestings]), points, rng


def test_numbers_and_elements_of_small_unions_are_as_listed() -> None:
    seen = set()
    for union, points, rng in samples(150):
        seen.add(len(union))
        before = sum(z < 0 for z in points)
        numbers = [rng.randint(-60, 60) for _ in range(8)]
        numbers = [k for k in numbers if 0 <= before + k < len(points)]
        assert [union.nth(k) for k in numbers] == [points[before + k] for k in numbers]
        assert [union.rank(points[before + k]) for k in numbers] == numbers
        z = rng.randint(-90, 90)
        assert union.first(z) == next(x for x in points if x >= z)
        assert union.first(z, z + 3) == next((x for x in points if z <= x < z + 3), None)
        assert (z in union) == (z in points)
        assert union.setts(within=(z, z + 50)).elements(z, z + 50).tolist() == [x for x in points if z <= x < z + 50]
        assert union.elements(z, z + 50).tolist() == [x for x in points if z <= x < z + 50]
    assert seen >= {1, 2, 3}


def test_few_elements_by_number_are_those_of_the_list() -> None:
    # one number in 999: they are found one by one, not among all elements
    ink = Sett(Stripe(1, 998))
    for outer in (Sett(Stripe(2, 1)), Sett(Stripe(6, 1), Stripe(2, 1)), Sett(Stripe(1, 6)) | Stripe(1, 10, 3)):
        held = outer.elements(0, 200_000)
        np.testing.assert_array_equal(outer.fill(ink).elements(0, 200_000), held[::999])


def test_what_does_not_reach_into_a_window_is_no_member_there() -> None:
    union = Sett(Stripe(1, 9)) | Stripe(1, 6, 3)
    assert len(union.setts()) == 2
    for window, wanted in (((0, 3), [0]), ((1, 10), [3]), ((4, 10), []), ((0, 4), [0, 3])):
        found = union.setts(within=window)
        assert found.elements(*window).tolist() == wanted
        assert len(found) <= len(wanted)
