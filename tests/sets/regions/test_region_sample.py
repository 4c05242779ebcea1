"""Sample, fill and fill into: products within products, against NumPy's ``np.ix_``."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapestry_sets import DisjointRegions, Region, Sett, Stripe, TooManyPieces, limits
from tapestry_sets.integers import nest as nests
from tapestry_sets.integers import ranks
from tests.oracles import in_nesting, listed_points, marked
from tests.strategies import nestings, regions_in_one_box, windows

Three = tuple[Region, Region, Region]


def grid(region: Region) -> tuple[np.ndarray, ...]:
    """The elements of each axis by the definition, counted from the box's start, as an open mesh."""
    if not listed_points(region):
        return np.ix_(*([[]] * region.rank))
    axes = zip(region.setts, region.start, region.shape, strict=True)
    return np.ix_(*([z - lo for z in range(lo, lo + n) if in_nesting(s.stripes, z)] for s, lo, n in axes))


def inked(shape: tuple[int, ...]) -> st.SearchStrategy[DisjointRegions]:
    """Unions of two regions in a box from zero."""

    def axis(n: int) -> st.SearchStrategy[Sett]:
        ends = st.tuples(st.integers(0, n), st.integers(0, n))
        return nestings(7).map(lambda levels: Sett(*levels)) | ends.map(
            lambda pair: Sett.interval(min(pair), max(pair), n)
        )

    one = st.tuples(*map(axis, shape)).map(lambda setts: Region(shape, setts))
    return st.tuples(one, one).map(lambda two: two[0] | two[1])


@given(nestings(), nestings(), windows(longest=200))
def test_sample_on_an_axis_is_the_ranks_of_what_is_common(
    s: list[Stripe], at: list[Stripe], window: tuple[int, int]
) -> None:
    places = [z for z in range(*window) if in_nesting(at, z)]
    found = ranks.sample_within([Sett(*s).nest], [Sett(*at).nest], *window, 0, len(places))
    seen = [k for piece in found for k in range(len(places)) if in_nesting(Sett._of(piece).stripes, k)]
    assert sorted(seen) == [k for k, z in enumerate(places) if in_nesting(s, z)]


@given(nestings(), nestings(), windows(longest=200))
def test_fill_on_an_axis_is_the_places_of_the_ranks(
    ink: list[Stripe], at: list[Stripe], window: tuple[int, int]
) -> None:
    places = [z for z in range(*window) if in_nesting(at, z)]
    found = ranks.fill_within([Sett(*at).nest], 0, [Sett(*ink).nest], *window)
    filled = [z for piece in found for z in range(*window) if in_nesting(Sett._of(piece).stripes, z)]
    assert sorted(filled) == [z for k, z in enumerate(places) if in_nesting(ink, k)]


@given(regions_in_one_box(3))
def test_sample_is_numpys_selection_by_an_open_mesh(three: Three) -> None:
    at, x = three[0], three[1] | three[2]
    seen = x.sample(at)
    assert seen.shape == at.counts
    assert (marked(seen) == marked(x)[grid(at)]).all() if at.rank else marked(seen) == (marked(x) & marked(at))
    one = three[1].sample(at)
    assert (marked(one) == marked(three[1])[grid(at)]).all() or not at.rank


@given(st.data(), regions_in_one_box(1))
def test_fill_is_numpys_assignment_by_an_open_mesh(data: st.DataObject, one: tuple[Region]) -> None:
    (scaffold,) = one
    ink = data.draw(inked(scaffold.counts))
    expected = np.zeros(scaffold.shape, bool)
    if scaffold.rank:
        expected[grid(scaffold)] = marked(ink)
    else:
        expected = marked(ink) & marked(scaffold)
    assert (marked(scaffold.fill(ink)) == expected).all()
    assert (marked(ink.fill_into(scaffold)) == expected).all()
    for member in ink.members:
        assert member.fill_into(scaffold).same_points(scaffold.fill(member))


@given(st.data(), regions_in_one_box(2))
def test_fill_and_sample_undo_each_other(data: st.DataObject, two: tuple[Region, Region]) -> None:
    r, x = two
    ink = data.draw(inked(r.counts))
    if not r.is_empty:
        assert r.fill(ink).sample(r).same_points(ink)
    assert r.fill(x.sample(r)).same_points(r & x)


@given(st.data(), regions_in_one_box(2, at_zero=True))
def test_a_slice_is_a_sample_at_the_slice(data: st.DataObject, two: tuple[Region, Region]) -> None:
    x = two[0] | two[1]
    bound = st.none() | st.integers(-8, 8)
    step = st.none() | st.integers(1, 4)
    key = tuple(slice(data.draw(bound), data.draw(bound), data.draw(step)) for _ in x.shape)
    at = Region.from_slices(x.shape, key)
    if not at.is_empty:
        assert x.sample(at).same_points(x.slice(key))


def test_the_pictures_of_poprithms() -> None:
    block = Region.from_bounds((4, 7), (1, 2), (3, 6))
    where = Region((4, 7), [Stripe(1, 1), Stripe(1, 1)])
    assert str(block.sample(where)) == "....\n.11."
    ink = Region((3, 3), [Stripe(2, 1), Stripe(1, 1)])
    scaffold = Region((4, 7), [Sett(Stripe(3, 1, 1)), Sett(Stripe(4, 3, 2), Stripe(2, 1))])
    assert str(scaffold) == ".......\n..11.1.\n..11.1.\n..11.1."
    assert str(ink.fill_into(scaffold)) == ".......\n..1..1.\n..1..1.\n......."


@pytest.mark.parametrize("n", [12, 10**6 + 8, 10**12])
def test_periodic_axes_cost_the_same_at_every_size(n: int) -> None:
    thirds = Region((n,), [Stripe(1, 2)])
    evens = Region.from_slices((n,), (slice(None, None, 2),))
    seen = thirds.sample(evens)
    assert seen.shape == (-(-n // 2),)
    assert seen.size == (n - 1) // 6 + 1
    assert len(seen.members) == 1
    assert evens.fill(seen).same_points(thirds & evens)


def test_what_shatters_says_so_and_names_the_views() -> None:
    n = 10**10
    scaffold, ink = Region((2 * n,), [Stripe(1, 1)]), Region((n,), [Stripe(50_001, 50_002)])
    assert scaffold.fill(ink).size == ink.size
    dense = Region((n + n // 2 + n,), [Sett(Stripe(50_021, 50_036))])
    many = Region(dense.counts, [Stripe(50_001, 50_002)])
    with limits(max_pieces=200), pytest.raises(TooManyPieces, match=r"views \(allocate"):
        dense.fill(many)
    with limits(max_pieces=200), pytest.raises(TooManyPieces, match=r"views \(allocate"):
        Region((10**10,), [Stripe(50_001, 50_002)]).sample(Region((10**10,), [Stripe(50_021, 50_036)]))


def test_rank_0_and_empty_places() -> None:
    full, empty = Region.full(()), Region.empty(())
    assert full.sample(full).is_full
    assert full.sample(empty).is_empty
    assert full.fill(full).is_full
    assert empty.fill(full).is_empty
    nothing = Region.empty((3, 4))
    assert Region.full((3, 4)).sample(nothing).shape == nothing.counts == (0, 0)
    assert nothing.fill(Region.full((0, 0))).is_empty


def test_a_place_that_is_not_a_product_is_refused() -> None:
    corners = Region.from_bounds((4, 4), (0, 0), (1, 1)) | Region.from_bounds((4, 4), (3, 3), (4, 4))
    with pytest.raises(ValueError, match="sample: at must be a product, a union of one member, not of 2"):
        Region.full((4, 4)).sample(corners)
    with pytest.raises(ValueError, match="fill: the region must be a product"):
        corners.fill(Region.full((2, 2)))
    with pytest.raises(ValueError, match="fill_into: scaffold must be a product"):
        Region.full((2, 2)).fill_into(corners)
    one = DisjointRegions((4, 4), [Region.from_bounds((4, 4), (1, 1), (3, 4))])
    assert one.fill(Region.full((2, 3))).same_points(one)
    assert Region.full((4, 4)).sample(one).is_full


def test_ink_in_another_box_is_refused_and_both_are_named() -> None:
    scaffold = Region.from_bounds((4, 4), (1, 1), (3, 4))
    with pytest.raises(ValueError, match=r"shape \(2, 3\) from zero.*not in \(2, 2\) from \(0, 0\)"):
        scaffold.fill(Region.full((2, 2)))
    with pytest.raises(ValueError, match=r"not in \(2, 3\) from \(1, 0\)"):
        scaffold.fill(Region.full((2, 3), (1, 0)))
    with pytest.raises(ValueError, match=r"one box, not shape \(4, 4\).*and shape \(4, 5\)"):
        scaffold.sample(Region.full((4, 5)))
    with pytest.raises(TypeError, match="sample: takes a Region, DisjointRegions or Reshaped, not Sett"):
        scaffold.sample(Sett())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="fill: ink must be a Region, DisjointRegions or Reshaped, not tuple"):
        scaffold.fill((2, 3))  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="fill_into: scaffold must be a Region or DisjointRegions, not Reshaped"):
        Region.full((2, 3)).fill_into(scaffold.reshape((16,)))  # type: ignore[arg-type]


def test_a_window_of_two_periods_is_one_piece_where_the_line_is() -> None:
    odds = [((1, 2, 1),)]
    assert ranks.sample_within([((6, 10, 7),)], odds, 0, 20, 0, 10) == ranks.sample([((6, 10, 7),)], odds)
    assert ranks.fill_within(odds, 0, [((3, 5, 3),)], 0, 20) == ranks.fill(odds, [((3, 5, 3),)])


def test_an_axis_without_places_has_no_ranks() -> None:
    assert ranks.sample_within([()], [nests.EMPTY], 0, 9, 0, 0) == []
    assert ranks.sample_within([nests.EMPTY], [()], 0, 9, 0, 9) == []
    assert ranks.sample_within([((1, 2, 0),)], [((1, 2, 1),)], 0, 9, 0, 4) == []
    assert ranks.fill_within([nests.EMPTY], 0, [()], 0, 9) == []
    assert ranks.fill_within([()], 0, [nests.EMPTY], 0, 9) == []
