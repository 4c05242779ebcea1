"""Pictures against pictures drawn by hand and against the sets' own points."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
from hypothesis import given

from tapestry_sets import Region, Sett, Stripe, draw
from tests.oracles import listed, listed_points
from tests.strategies import nestings, regions_in_one_box, windows


@given(nestings(), windows())
def test_text_marks_the_elements(levels: list[Stripe], window: tuple[int, int]) -> None:
    points = listed(levels, window)
    picture = draw.text(Sett(*levels), start=window[0], stop=window[1])
    assert picture == "".join("1" if z in points else "." for z in range(*window))


@given(nestings(), nestings(), windows())
def test_text_marks_overlaps(one: list[Stripe], two: list[Stripe], window: tuple[int, int]) -> None:
    a, b = listed(one, window), listed(two, window)
    picture = draw.text(Sett(*one), Sett(*two), start=window[0], stop=window[1])
    assert picture == "".join(".12X"[(z in a) + 2 * (z in b)] for z in range(*window))


@given(regions_in_one_box(2))
def test_the_raster_of_regions_has_a_bit_for_each(two: tuple[Region, Region]) -> None:
    cells = draw.raster(*two)
    assert cells.ndim == 3
    for i, region in enumerate(two):
        assert int((cells >> i & 1).sum()) == len(listed_points(region))
        for point in listed_points(region):
            at = (0,) * (3 - region.rank) + tuple(np.subtract(point, region.start))
            assert cells[at] >> i & 1


def test_pictures_of_each_rank() -> None:
    assert draw.text(Region.full(())) == "1"
    assert draw.text(Region.from_slices((7,), slice(1, 6, 2))) == ".1.1.1."
    assert draw.text(Region.from_bounds((2, 4), (0, 1), (2, 3))) == ".11.\n.11."
    assert draw.text(Region.from_bounds((2, 2, 3), (1, 0, 0), (2, 1, 2))) == "...\n...\n\n11.\n..."


def test_svg_is_xml_with_a_square_for_each_cell() -> None:
    root = ElementTree.fromstring(draw.svg(Stripe(2, 3), Stripe(1, 1), stop=10))
    squares = list(root)
    assert len(squares) == 10
    colours = [square.attrib["fill"] for square in squares]
    assert colours == [draw.COLOURS[(z % 5 < 2) + 2 * (z % 2 == 0)] for z in range(10)]


def test_str_is_the_picture_and_repr_is_not() -> None:
    s = Sett(Stripe(6, 1), Stripe(2, 1))
    assert str(s) == "11.11.."
    assert repr(s) == "Sett(Stripe(5, 2), Stripe(2, 1))"
    assert str(Sett(Stripe(1, 99))) == "1" + 63 * "." + "... (period 100)"
    assert str(Region.full((10**6, 2))) == repr(Region.full((10**6, 2)))
    assert str(~Region.from_bounds((2, 3), (0, 0), (1, 2))) == "..1\n111"


def test_notebooks_get_text_and_a_drawing() -> None:
    bundle = Sett(Stripe(2, 1))._repr_mimebundle_()
    assert bundle["text/plain"] == "Sett(Stripe(2, 1))\n11."
    assert bundle["image/svg+xml"].startswith("<svg")
    small, large = Region.full((2, 2)), Region.full((10**6, 2))
    assert set(small._repr_mimebundle_()) == {"text/plain", "image/svg+xml"}
    assert large._repr_mimebundle_() == {"text/plain": repr(large)}


def test_what_cannot_be_drawn_is_refused() -> None:
    with pytest.raises(ValueError, match="more than 16384"):
        draw.text(Sett(Stripe(1, 10**9)))
    with pytest.raises(ValueError, match="rank 4"):
        draw.text(Region.full((2, 2, 2, 2)))
    with pytest.raises(ValueError, match="in one box"):
        draw.text(Region.full((2,)), Region.full((3,)))
    with pytest.raises(ValueError, match="at least one set"):
        draw.text()
