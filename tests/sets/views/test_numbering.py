"""Readings by digits: ranks, members of nested stripes and lists of indices, against lists of the same."""

from __future__ import annotations

from itertools import accumulate, pairwise, product
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tapestry_sets import Region, Sett, Stripe, TooManyPieces, limits
from tapestry_sets.views import Piece, tuning
from tapestry_sets.views.pieces.numbering import (
    _find_cycle,
    piece_of,
    reading_of_elements,
    reading_of_ranks,
    readings_of_indices,
)
from tests.oracles import cell_read, listed, listed_points
from tests.strategies import index_lists, nestings


def reads(piece: Piece, extent: int) -> list[int | None]:
    """What a piece reads at each place of an axis, None where a guard does not hold."""
    cells = [cell_read(piece, (k,)) for k in range(extent)]
    return [None if cell is None else cell[0] for cell in cells]


@given(nestings(), st.integers(1, 60))
@example([Stripe(3, 7, 2)], 2)
@example([Stripe(6, 4, -1), Stripe(2, 1, 1)], 35)
def test_places_become_elements_and_elements_ranks(levels: list[Stripe], extent: int) -> None:
    """One piece each, whatever the blocks at the ends: no guard is needed to count up, and few to count down."""
    elements = sorted(listed(levels, (0, extent)))
    if not elements:
        return
    nest = Sett(*levels).nest
    up = piece_of((len(elements),), [reading_of_elements(nest, extent)])
    assert reads(up, len(elements)) == elements and not up.guards
    down = piece_of((extent,), [reading_of_ranks(nest, extent)])
    assert reads(down, extent) == [elements.index(z) if z in elements else None for z in range(extent)]
    assert len(down.guards) <= len(nest)


@given(st.lists(st.tuples(nestings(7, 2), st.integers(1, 9)), max_size=3))
def test_readings_of_several_axes_are_their_product(axes: list[tuple[list[Stripe], int]]) -> None:
    region = Region([n for _, n in axes], [Sett(*levels) for levels, _ in axes])
    if region.is_empty:
        return
    points, places = sorted(listed_points(region)), list(product(*map(range, region.counts)))
    pairs = list(zip(region.nests, region.shape, strict=True))
    up = piece_of(region.counts, [reading_of_elements(s, n) for s, n in pairs])
    assert [cell_read(up, place) for place in places] == points
    down = piece_of(region.shape, [reading_of_ranks(s, n) for s, n in pairs])
    place_of = dict(zip(points, places, strict=True))
    box = list(product(*map(range, region.shape)))
    assert [cell_read(down, point) for point in box] == [place_of.get(point) for point in box]


@given(nestings(), st.integers(1, 60))
def test_free_digits_are_levels(levels: list[Stripe], extent: int) -> None:
    elements = sorted(listed(levels, (0, extent)))
    found = reading_of_elements(Sett(*levels).nest, extent).levels(len(elements)) if elements else None
    if found is not None:
        first, digits = found
        sums = [
            first + sum(d * step for d, (_, step) in zip(at, digits, strict=True))
            for at in product(*(range(n) for n, _ in digits))
        ]
        assert sums == elements


@given(index_lists(40, longest=30) | st.lists(st.integers(0, 3), max_size=25))
@example([0, 10, 11, 20, 21, 30, 31])
@example([0, 1, 3, 4, 6, 10, 11, 13, 14, 16, 20, 21])
@example([5])
@example([])
def test_readings_of_indices_read_the_list(indices: list[int]) -> None:
    pieces = [piece_of((len(indices),), [one]) for one in readings_of_indices(indices)]
    every = [reads(piece, len(indices)) for piece in pieces]
    for k, index in enumerate(indices):
        assert [row[k] for row in every if row[k] is not None] == [index]


@given(nestings(9, 2), st.integers(30, 400))
def test_the_elements_of_a_sett_are_few_readings(levels: list[Stripe], extent: int) -> None:
    """A set that goes on for two periods or more is read as it was written: pieces do not grow with its length."""
    elements = Sett(*levels).elements(0, extent).tolist()
    again = Sett(*levels).elements(0, 4 * extent).tolist()
    if len(elements) >= 2 * Sett(*levels).count(0, Sett(*levels).period):
        assert len(readings_of_indices(again)) <= len(readings_of_indices(elements))


def test_indices_in_order_are_few_readings_and_others_are_refused_beyond_the_limit() -> None:
    blocks = [b + 100 * k for k in range(1000) for b in (7, 3, 3, 50)]
    assert len(readings_of_indices(blocks)) <= 3
    assert len(readings_of_indices(list(range(50)) + list(range(80, 10, -7)) + [3] * 40)) == 3
    assert len(readings_of_indices([k // 3 for k in range(3000)])) == 1
    shuffled = np.random.default_rng(0).permutation(3000).tolist()
    with limits(max_pieces=100), pytest.raises(TooManyPieces, match=r"a view at 3000 indices: \d+ or more pieces"):
        readings_of_indices(shuffled)
    assert len(readings_of_indices(shuffled)) <= 1500


def test_sizes_do_not_matter() -> None:
    n = 10**30
    nest = Sett(Stripe(6 * n, 4 * n, n), Stripe(2, 1)).nest
    piece = piece_of((10**40,), [reading_of_elements(nest, 10**45)])
    assert piece.map.apply((0,)) == (n,) and piece.map.apply((4 * n,)) == (11 * n,)
    down = piece_of((10**45,), [reading_of_ranks(nest, 10**45)])
    assert cell_read(down, (11 * n + 3,)) == (4 * n + 2,) and cell_read(down, (11 * n + 2,)) is None


@given(
    st.lists(st.integers(-3, 3), min_size=1, max_size=6),
    st.integers(4, 60),
    st.lists(st.tuples(st.integers(0, 59), st.integers(-2, 2)), max_size=2),
)
@example([1] * 5 + [7], 60, [(50, 1)])  # many places begin as the first half does
def test_cycles_are_those_of_the_definition(steps: list[int], size: int, changes: list[tuple[int, int]]) -> None:
    """In a list that mostly repeats its steps, sought in bytes and step by step."""
    indices = list(accumulate([10**6, *(steps * size)[: size - 1]]))
    for at, by in changes:
        indices[at % size] += by
    wanted = 0
    for c in range(2, size // 2 + 1):
        if len({b - a for a, b in zip(indices, indices[c:], strict=False)}) == 1:
            wanted = c
            break
    if len({b - a for a, b in pairwise(indices)}) == 1:
        wanted = 0
    for least, tries in ((0, 16), (0, 1), (10**6, 16)):
        with patch.object(tuning, "LONG_TABLE", least), patch.object(tuning, "TRIED_CYCLES", tries):
            assert _find_cycle(indices) == wanted
