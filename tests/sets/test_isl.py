"""The bridge to isl: what is translated is what was meant, and its absence is said clearly."""

from __future__ import annotations

import sys

import islpy
import pytest
from hypothesis import given

from tapestry_sets import Region, Regions, Sett, Setts, Stripe, isl
from tests.oracles import listed, listed_points
from tests.strategies import nestings, regions_in_one_box, stripes, windows


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
def test_the_last_rung_answers_as_listed(one: list[Stripe], two: list[Stripe], window: tuple[int, int]) -> None:
    s, t = Sett(*one).nest, Sett(*two).nest
    a, b = listed(one, window), listed(two, window)
    assert isl.nests_first_common((s, t), *window) == min(a & b, default=None)


def test_the_last_rung_stops_when_its_operations_are_used_up() -> None:
    s, t = ((370121, 5920770, 3845551), (1, 5, 0)), ((1454776, 5657284, 4771152), (1, 25, 0))
    with pytest.raises(isl.OutOfOperations, match=r"first common element of .* in \[-3008300, 304871740\)"):
        isl.nests_first_common((s, t), -3008300, 304871740, operations=10)
    assert isl.nests_first_common((s, t), -3008300, 304871740) == 39370181  # the limit does not stay


def test_empty_unions_are_empty_isl_sets() -> None:
    assert isl.to_isl(Setts()).is_empty()
    assert isl.to_isl(Regions((2, 3))).is_empty()
    assert isl.to_isl(Regions((2, 3))).dim(islpy.dim_type.set) == 2


def test_what_is_no_set_is_refused() -> None:
    with pytest.raises(TypeError, match="not int"):
        isl.to_isl(3)


def test_without_islpy_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "islpy", None)
    assert not isl.available()
    with pytest.raises(ImportError, match="pip install islpy"):
        isl.to_isl(Stripe(1, 1))
