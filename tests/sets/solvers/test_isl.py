"""The bridge to isl: what is translated is what was meant, and its absence is said clearly."""

from __future__ import annotations

import sys
from itertools import product
from typing import Any
from unittest.mock import patch

import islpy
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tapestry_sets import (
    AffineMap,
    Box,
    DisjointRegions,
    DisjointSetts,
    IndexProjection,
    Region,
    Sett,
    Stripe,
    TooHard,
    TooManyPieces,
    View,
    allocate,
    limits,
)
from tapestry_sets.interop import tuning
from tapestry_sets.interop.from_isl import from_isl
from tapestry_sets.limits.budget import OPEN
from tapestry_sets.solvers import isl
from tapestry_sets.views import IndexMap, Relinearize
from tests.oracles import cell_read, listed, listed_points
from tests.strategies import nestings, regions_in_one_box, stripes, views, windows


def points_in(found: islpy.Set, rank: int) -> set[tuple[int, ...]]:
    every: list[tuple[int, ...]] = []

    def take(point: islpy.Point) -> None:
        every.append(tuple(point.get_coordinate_val(islpy.dim_type.set, i).to_python() for i in range(rank)))

    found.foreach_point(take)
    return set(every)


def clipped(found: islpy.Set, window: tuple[int, int]) -> set[int]:
    return {z for (z,) in points_in(found & islpy.Set(f"{{ [z] : {window[0]} <= z < {window[1]} }}"), 1)}


@given(stripes(), windows())
def test_a_stripe_is_its_isl_set(s: Stripe, window: tuple[int, int]) -> None:
    assert clipped(isl.to_isl(s), window) == listed([s], window)


@given(nestings(), nestings(), windows())
def test_setts_and_unions_are_their_isl_sets(one: list[Stripe], two: list[Stripe], window: tuple[int, int]) -> None:
    assert clipped(isl.to_isl(Sett(*one)), window) == listed(one, window)
    union = Sett(*one) | Sett(*two)
    assert clipped(isl.to_isl(union), window) == listed(one, window) | listed(two, window)


@given(nestings(), nestings())
def test_the_algebra_is_isls(one: list[Stripe], two: list[Stripe]) -> None:
    s, t = Sett(*one), Sett(*two)
    a, b = isl.to_isl(s), isl.to_isl(t)
    assert isl.to_isl((s & t).setts()).is_equal(a & b)
    assert isl.to_isl(s | t).is_equal(a | b)
    assert isl.to_isl(s - t).is_equal(a - b)
    assert isl.to_isl(~s).is_equal(a.complement())
    assert (s <= t) == a.is_subset(b)


@given(regions_in_one_box(2))
def test_regions_are_their_isl_sets(two: tuple[Region, Region]) -> None:
    r, s = two
    assert points_in(isl.to_isl(r), r.rank) == listed_points(r)
    assert points_in(isl.to_isl(r | s), r.rank) == listed_points(r) | listed_points(s)


@given(nestings(), nestings(), windows())
def test_a_lazy_intersection_is_its_isl_set(one: list[Stripe], two: list[Stripe], window: tuple[int, int]) -> None:
    both = isl.to_isl(Sett(*one) & Sett(*two))
    assert clipped(both, window) == listed(one, window) & listed(two, window)


# ---------------------------------------------------------------------------------------------------- maps to isl


def graph(relation: islpy.Map, ranks: tuple[int, int], box: Box) -> dict[tuple[int, ...], set[tuple[int, ...]]]:
    """What a relation takes each point of a box to."""
    inside = relation.intersect_domain(isl.box_set(box.start, box.stop))
    found: dict[tuple[int, ...], set[tuple[int, ...]]] = {}
    for point in points_in(inside.wrap().flatten(), sum(ranks)):
        found.setdefault(point[: ranks[0]], set()).add(point[ranks[0] :])
    return found


@st.composite
def affine_maps(draw: st.DrawFn, max_rank: int = 3) -> AffineMap:
    """Small affine maps, those of rank 0 on either side among them."""
    rank, out = draw(st.integers(0, max_rank)), draw(st.integers(0, max_rank))
    c = st.integers(-4, 4)
    rows = tuple(tuple(draw(c) for _ in range(rank)) for _ in range(out))
    return AffineMap(rows, tuple(draw(c) for _ in range(out)), rank)


def small_box(rank: int) -> Box:
    return Box((-1,) * rank, (4,) * rank)


@given(affine_maps())
def test_an_affine_map_is_its_isl_map(m: AffineMap) -> None:
    box = small_box(m.in_rank)
    assert graph(isl.to_isl(m), (m.in_rank, m.out_rank), box) == {x: {m.apply(x)} for x in box.points()}


@st.composite
def projections(draw: st.DrawFn) -> IndexProjection:
    """Projections of small rank, some with split axes."""
    rank = draw(st.integers(1, 2))
    splits = draw(st.lists(st.tuples(st.integers(0, rank - 1), st.integers(1, 4)), max_size=2, unique=True))
    out = draw(st.integers(1, 2))
    c = st.integers(-3, 3)
    rows = tuple(tuple(draw(c) for _ in range(rank + 2 * len(splits))) for _ in range(out))
    shape = tuple(draw(st.integers(1, 3)) for _ in range(out))
    return IndexProjection(AffineMap(rows, tuple(draw(c) for _ in range(out))), shape, tuple(splits))


def block(p: IndexProjection, at: tuple[int, ...]) -> set[tuple[int, ...]]:
    """The cells of a block, as the definition reads."""
    columns = (*at, *(v for a, q in p.splits for v in (at[a] // q, at[a] % q)))
    start = [
        b + sum(c * x for c, x in zip(row, columns, strict=True))
        for row, b in zip(p.map.matrix, p.map.offset, strict=True)
    ]
    return set(product(*(range(a, a + n) for a, n in zip(start, p.shape, strict=True))))


@given(projections())
def test_a_projection_relates_a_point_to_each_cell_of_its_block(p: IndexProjection) -> None:
    box = small_box(p.index_rank)
    assert graph(isl.to_isl(p), (p.index_rank, p.map.out_rank), box) == {x: block(p, x) for x in box.points()}


@given(views())
def test_a_view_relates_its_cells_to_those_it_reads(pair: tuple[View, np.ndarray]) -> None:
    view, values = pair
    for allocation, relation in isl.to_isl(view).items():
        read = {
            index: {tuple(map(int, np.unravel_index(int(value) - 1, allocation.shape)))}
            for index, value in np.ndenumerate(values)
            if value  # padding reads nothing
        }
        assert graph(relation, (view.rank, allocation.rank), Box.of(view.shape)) == read


def test_boxes_steps_and_implicit_sets_have_an_isl_form() -> None:
    assert points_in(isl.to_isl(Box((-1, 2), (2, 1))), 2) == {(-1, 2), (0, 2)}
    renumber = Relinearize((2, 6), (4, 3))
    box = Box.of((2, 6))
    assert graph(isl.to_isl(renumber), (2, 2), box) == {x: {renumber.apply(x)} for x in box.points()}
    chain = IndexMap((AffineMap(((1, 0), (0, 2)), (0, 1)), Relinearize((4, 6), (24,))))
    assert graph(isl.to_isl(chain), (2, 1), Box.of((4, 3))) == {x: {chain.apply(x)} for x in Box.of((4, 3)).points()}
    assert isl.to_isl(Relinearize((0, 3), (3, 0))).is_empty()
    skew = IndexProjection(AffineMap(((1, 1), (1, -1)), (0, 0)), (1, 1)).image(Box.of((3, 3)))
    assert points_in(isl.to_isl(skew), 2) == {(i + j, i - j) for i in range(3) for j in range(3)}
    with pytest.raises(ValueError, match="in_rank"):
        isl.to_isl(AffineMap((), ()))


# ------------------------------------------------------------------------------------------------------ from isl


@given(nestings(), nestings())
def test_setts_and_unions_come_back_from_isl(one: list[Stripe], two: list[Stripe]) -> None:
    for given_set in (Sett(*one), Sett(*one) | Sett(*two)):
        found = from_isl(isl.to_isl(given_set))
        assert isinstance(found, DisjointSetts)
        assert found.same_points(given_set)


@given(nestings(max_period=40))
@example([Stripe(6, 2), Stripe(8, 1, phase=5), Stripe(6, 1, phase=6)])
def test_a_nest_comes_back_as_few_setts(one: list[Stripe]) -> None:
    """Nearly always as one; {0, 2, 3, 5} of 8 as {0} and {2, 3, 5}."""
    found = from_isl(isl.to_isl(Sett(*one)))
    assert isinstance(found, DisjointSetts)
    assert len(found) <= 2, f"{Sett(*one)!r} became {found!r}"


@given(nestings(), nestings(), windows())
def test_bounded_sets_come_back_as_regions(one: list[Stripe], two: list[Stripe], window: tuple[int, int]) -> None:
    whole = isl.to_isl(Sett(*one)) | isl.to_isl(Sett(*two))
    found = from_isl(whole, within=Box((window[0],), (window[1] - window[0],)))
    assert isinstance(found, DisjointRegions)
    assert {z for (z,) in listed_points(found)} == listed(one, window) | listed(two, window)


@given(regions_in_one_box(2))
def test_regions_come_back_from_isl(two: tuple[Region, Region]) -> None:
    r, s = two
    for given_set in (r, r | s, r - s):
        box = Box(r.start, r.shape)
        found = from_isl(isl.to_isl(given_set), within=box)
        assert isinstance(found, DisjointRegions)
        assert listed_points(found) == listed_points(given_set)
        if not given_set.size or r.rank == 0:
            continue
        tight = from_isl(isl.to_isl(given_set))
        assert isinstance(tight, DisjointRegions)
        assert listed_points(tight) == listed_points(given_set)
        assert tight.bounds() == (tight.start, tuple(np.add(tight.start, tight.shape).tolist()))


@given(affine_maps())
def test_affine_maps_come_back_from_isl(m: AffineMap) -> None:
    assert from_isl(isl.to_isl(m)) == m


@given(projections())
def test_projections_come_back_from_isl(p: IndexProjection) -> None:
    try:
        found = from_isl(isl.to_isl(p))
    except ValueError as error:  # isl may write the floors of a split in another way
        assert p.splits and ("give within=" in str(error) or "is not a single expression" in str(error))
        return
    if isinstance(found, AffineMap):
        found = IndexProjection(found, (1,) * found.out_rank)
    assert isinstance(found, IndexProjection)
    for x in small_box(p.index_rank).points():
        assert block(found, x) == block(p, x)


@given(views(cells=60))
def test_maps_of_views_come_back_as_pieces(pair: tuple[View, np.ndarray]) -> None:
    view, values = pair
    for allocation, relation in isl.to_isl(view).items():
        pieces = from_isl(relation, within=view.shape)
        if isinstance(pieces, AffineMap):  # a view of rank 0 reads one cell
            assert view.rank == 0
            assert np.ravel_multi_index(pieces.offset, allocation.shape) == int(values) - 1
            continue
        assert isinstance(pieces, tuple)
        for index, value in np.ndenumerate(values):
            read = [cell for piece in pieces if (cell := cell_read(piece, index)) is not None]
            assert len(read) == int(value > 0)
            assert not read or np.ravel_multi_index(read[0], allocation.shape) == value - 1


def test_floors_of_floors_come_back_at_once() -> None:
    """isl took ten minutes to compare this relation with the pieces as a relation."""
    relation = (
        "{ [x0 = 0, x1 = 0, x2, x3] -> [y0, y1, y2 = 9x2 + x3 - 6y0 - 3y1] : 0 <= x2 <= 1 and 0 <= x3 <= 8 and "
        "0 <= y1 <= 1 and -2 + 9x2 + x3 - 6y0 <= 3y1 <= 9x2 + x3 - 6y0 }"
    )
    pieces = from_isl(relation)
    assert isinstance(pieces, tuple)
    for i, j in np.ndindex(2, 9):
        cells = [cell for piece in pieces if (cell := cell_read(piece, (0, 0, i, j))) is not None]
        assert cells == [tuple(map(int, np.unravel_index(9 * i + j, (3, 2, 3))))]


TEXTS = [
    "{ [z] : z mod 5 < 2 or z mod 7 < 3 }",
    "{ [z] : exists k, m : 0 <= z - 9k < 5 and z - 9k = 2m }",
    "{ [z] : (z >= 0 and z mod 2 = 0) or (z < 0 and z mod 2 = 0) }",
    "{ [z] : 3 <= z < 40 and (z + 2*floor(z/6)) mod 5 < 2 }",
    "{ [z] : 7 * floor(z/3) mod 11 >= 5 }",
    "{ [i, j] : 0 <= i <= j < 6 }",
    "{ [i, j] : 0 <= i < 5 and 0 <= j < 8 and (i + j) mod 3 = 0 }",
    "{ [i, j] : (0 <= i < 4 and 0 <= j < 9 and j mod 2 = 1) or (i = 7 and 2 <= j < 5) }",
    "{ A[[i] -> [j]] : 0 <= i < 3 and j = 2 }",
    "{ [] }",
    "{ [i, j] : false }",
]


@pytest.mark.parametrize("text", TEXTS)
def test_hand_written_sets_are_read_as_isl_reads_them(text: str) -> None:
    found: Any = from_isl(text)
    expected = islpy.Set(text).flatten().reset_tuple_id()
    assert isl.to_isl(found).is_equal(expected)
    if isinstance(found, DisjointRegions):
        assert listed_points(found) == points_in(expected, found.rank)
    else:
        assert isinstance(found, DisjointSetts)
        assert set(found.elements(-50, 50).tolist()) == clipped(expected, (-50, 50))


def test_what_isl_knows_as_functions_becomes_maps() -> None:
    assert from_isl("{ S[i, j] -> [2i + 1, j - i] }") == AffineMap(((2, 0), (-1, 1)), (1, 0))
    assert from_isl(islpy.MultiAff("{ [i] -> [3 - i] }")) == AffineMap(((-1,),), (3,))
    assert from_isl(islpy.Aff("{ [i] -> [(2i + 4)] }")) == AffineMap(((2,),), (4,))
    rows = from_isl("{ [i] -> [j] : 2i - 1 <= j < 2i + 2 }")
    assert rows == IndexProjection(AffineMap(((2,),), (-1,)), (3,))
    heads = from_isl("{ [i] -> [floor(i/4), i mod 4] }")
    assert isinstance(heads, IndexProjection)
    assert [heads((i,)).start for i in (-1, 0, 6)] == [(-1, 3), (0, 0), (1, 2)]
    halves = from_isl("{ [i] -> [j] : 2j = i and 0 <= i < 9 }")
    assert isinstance(halves, tuple)
    assert [[cell_read(p, (i,)) for p in halves] for i in (0, 1, 8)] == [[(0,)], [None], [(4,)]]
    assert from_isl("{ [i] -> [j] : false }", within=(3,)) == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{ [z] : 0 <= z < }", r"line 1, column 18, at '}'"),
        ("{ [z] :\n w > 3 }", r"line 2, column 2, at 'w > 3 }': unknown identifier"),
        ("{ [z : z > 0 }", r"line 1, column 6"),
        ("hello", r"line 1, column 1, at 'hello'"),
        ("", r"line 1, column 1"),
        ("[N] -> { [z] : z = N*z }", r"line 1, column 22"),
        ("{ [z] : z = 3 } and more", "'and more' follows the closing brace"),
        ("[N] -> { [z] : 0 <= z < N }", "parameters N; fix"),
        ("{ [z] : z >= 3 }", "neither bounded nor periodic; give within="),
        ("{ [i, j] : i > j }", "not bounded; give within="),
        ("{ [i] -> [j] : i <= j }", r"lexmin|not one block of constant shape"),
        ("{ [i] -> [j] : 0 <= j < i }", "not one block of constant shape"),
        ("{ [i] -> [i] : i > 0 }", "neither every point nor bounded; give within="),
        ("{ [i, j] -> [floor((i + 2j)/3)] }", "more than i/q; give within="),
    ],
)
def test_what_is_not_expressed_is_said(text: str, message: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match=message):
        from_isl(text)
    assert capfd.readouterr() == ("", "")  # isl keeps silent


def test_spaces_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="2 spaces"):
        from_isl(islpy.UnionSet("{ A[i] : i = 0; B[i] : i = 1 }"))
    assert from_isl(islpy.UnionSet("{ A[i] : i = 3 }")) == DisjointRegions((1,), [Region.full((1,), (3,))], (3,))
    with pytest.raises(ValueError, match=r"rank 1 where .* needs rank 2"):
        from_isl("{ [i, j] }", within=(3,))


def test_answers_that_need_too_much_are_refused() -> None:
    with limits(max_pieces=20), pytest.raises(TooManyPieces):
        from_isl("{ [i, j] : 0 <= i <= j < 50 }")
    deep = isl.to_isl(Sett(Stripe(50001, 50002)) & Stripe(50009, 50010))
    with limits(max_pieces=20), pytest.raises((TooManyPieces, TooHard)):
        from_isl(deep)


def classes(parts: list[tuple[int, int, int]], within: tuple[int, int]) -> tuple[str, list[int]]:
    """Numbers z with (z - phase) mod period < on for one of some (on, period, phase): isl's text, and some of them."""
    text = " or ".join(f"(z - {phase}) mod {period} < {on}" for on, period, phase in parts)
    held = [z for z in range(*within) if any((z - phase) % period < on for on, period, phase in parts)]
    return f"{{ [z] : {text} }}", held


def test_unions_of_many_classes_are_read_part_by_part() -> None:
    """isl compares two unions of twenty parts for minutes, and those of three were refused where they are clipped."""
    text, held = classes([(1, 13, -3), (1, 3, 0), (1, 6, 1)], (-37, 63))
    clip: Any = from_isl(text, within=Box((-37,), (100,)))
    assert [z for (z,) in clip.points().tolist()] == held
    own = [(1 + k * 7 % 5, 400, 10 * k + k * 3 % 6) for k in range(40)]
    text, held = classes(own, (-500, 900))
    found: Any = from_isl(text)
    assert found.elements(-500, 900).tolist() == held


def test_a_hundred_boxes_are_read() -> None:
    corners = [(11 * (k // 10), 10 * (k % 10), 1 + k % 7, 1 + k * 5 % 9) for k in range(100)]
    text = " or ".join(f"{i} <= x < {i + h} and {j} <= y < {j + w}" for i, j, h, w in corners)
    mask = np.zeros((110, 100), bool)
    for i, j, h, w in corners:
        mask[i : i + h, j : j + w] = True
    found: Any = from_isl(f"{{ [x, y] : {text} }}", within=mask.shape)
    assert np.array_equal(found.points(), np.argwhere(mask))


def test_refusals_do_not_repeat_long_sets() -> None:
    text, _ = classes([(1, 97 + k, k) for k in range(60)], (0, 1))
    with patch.object(tuning, "MAX_OPERATIONS", 1000), pytest.raises(TooHard, match="more than 1000 op") as refused:
        from_isl(text)
    assert len(str(refused.value)) < 500


def test_periods_of_any_length_are_read() -> None:
    big = Sett(Stripe(10**9, 10**9 + 7), Stripe(10**4, 10**5), Stripe(3, 4))
    found: Any = from_isl(isl.to_isl(big))
    assert found.same_points(big) and len(found) == 1
    half = allocate((10**9, 10**9))[::2].origins().popitem()[1]
    again: Any = from_isl(isl.to_isl(half))
    assert again.size == 5 * 10**17


@given(nestings(), nestings(), windows())
def test_the_last_rung_answers_as_listed(one: list[Stripe], two: list[Stripe], window: tuple[int, int]) -> None:
    s, t = Sett(*one).nest, Sett(*two).nest
    a, b = listed(one, window), listed(two, window)
    assert isl.nests_first_common((s, t), *window) == min(a & b, default=None)


def test_the_last_rung_stops_when_its_operations_are_used_up() -> None:
    s, t = ((370121, 5920770, 3845551), (1, 5, 0)), ((1454776, 5657284, 4771152), (1, 25, 0))
    assert isl.nests_first_common((s, t), -3008300, 304871740, operations=10) is OPEN
    assert isl.nests_first_common((s, t), -3008300, 304871740) == 39370181  # the limit does not stay


def test_empty_unions_are_empty_isl_sets() -> None:
    assert isl.to_isl(DisjointSetts()).is_empty()
    assert isl.to_isl(DisjointRegions((2, 3))).is_empty()
    assert isl.to_isl(DisjointRegions((2, 3))).dim(islpy.dim_type.set) == 2


def test_what_is_not_a_set_is_refused() -> None:
    with pytest.raises(TypeError, match="not int"):
        isl.to_isl(3)
    with pytest.raises(TypeError, match="not int"):
        from_isl(3)


def test_without_islpy_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "islpy", None)
    assert not isl.available()
    with pytest.raises(ImportError, match="pip install islpy"):
        isl.to_isl(Stripe(1, 1))
