"""Outlines of boxes say what enumerated points say, and cost the same at any size."""

from __future__ import annotations

import re
import time
import xml.etree.ElementTree as ElementTree
from itertools import pairwise
from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapestry_sets import AffineMap, Box, DisjointRegions, IndexProjection, Region, Sett, Stripe
from tapestry_sets.draw import box_picture, mimebundle
from tests.drawings import SVG, assert_legible, read
from tests.oracles import in_nesting, listed_points
from tests.strategies import nestings, regions_in_one_box

Point = tuple[int, ...]
BIG = 10**9


def span_of(element: ElementTree.Element) -> tuple[int, int, int]:
    lo, hi, held = (int(element.attrib[f"data-{key}"]) for key in ("lo", "hi", "held"))
    assert element.findtext(f"{SVG}title") == f"[{lo}, {hi}): {held}"
    return lo, hi, held


def assert_axis_is(axis: ElementTree.Element, start: int, extent: int, held: set[int]) -> None:
    """The bar of an axis shows exactly these indices of it: as runs, or as how many of them each part has."""
    assert (int(axis.attrib["data-start"]), int(axis.attrib["data-extent"])) == (start, extent)
    assert int(axis.attrib["data-held"]) == len(held)
    frame, *marks = axis
    (wide,) = re.findall(r"^M0 0H(\d+)V", frame.attrib["d"])
    spans = [span_of(mark) for mark in marks]
    assert sum(many for *_, many in spans) == len(held), "each index that is held is in one mark"
    for mark, (lo, hi, many) in zip(marks, spans, strict=True):
        assert many == sum(z in held for z in range(lo, hi)) > 0
        assert ("fill-opacity" in mark.attrib) == (many < hi - lo)
        left, right = map(float, re.findall(r"^M(.+) 0H([^V]+)V", mark.attrib["d"])[0])
        assert left == pytest.approx((lo - start) * int(wide) / extent, abs=0.01)
        assert right == pytest.approx(max((hi - start) * int(wide) / extent, left + 1), abs=0.01)


def assert_text_is(line: str, start: int, extent: int, held: set[int]) -> None:
    """The line of an axis has its range, the bar of its parts and the count, and its words name no other index."""
    found = re.fullmatch(r"(.+) \[(-?\d+), (-?\d+)\) +([.+#]*) +(\d+) of (\d+): (.+)", line)
    assert found is not None, line
    assert (int(found[2]), int(found[3])) == (start, start + extent)
    assert (int(found[5]), int(found[6])) == (len(held), extent)
    bar, many = found[4], len(found[4])
    assert many == min(32, extent)
    for mark, (lo, hi) in zip(
        bar, pairwise(start + extent * k // many for k in range(many + 1)) if many else (), strict=True
    ):
        there = sum(z in held for z in range(lo, hi))
        assert mark == (".#"[there > 0] if there in (0, hi - lo) else "+")
    if found[7] == "all":
        assert held == set(range(start, start + extent))
    elif found[7] == "none":
        assert not held
    elif re.match(r"-?\d+:", found[7]):
        said = [range(*map(int, part.split(":"))) for part in found[7].split(", ")]
        assert {z for run in said for z in run} == held


def assert_outline_is(x: Region | DisjointRegions, points: set[Point]) -> None:
    picture = box_picture(x)
    root = ElementTree.fromstring(picture.svg)
    assert_legible(read(picture.svg))
    lines = picture.text.split("\n")
    axes = [e for e in root.iter(f"{SVG}g") if "data-axis" in e.attrib]
    assert [e.attrib["data-axis"] for e in axes] == [f"axis {k}" for k in range(x.rank)]
    for k, (start, extent) in enumerate(zip(x.start, x.shape, strict=True)):
        held = {p[k] for p in points}
        assert_axis_is(axes[k], start, extent, held)
        assert_text_is(lines[k], start, extent, held)
    (size,) = [int(e.attrib["data-size"]) for e in root.iter(f"{SVG}g") if "data-size" in e.attrib]
    assert size == len(points)
    assert lines[x.rank].startswith(f"{len(points)} of {prod(x.shape)} points")
    hulls = [e.attrib for e in root.iter(f"{SVG}path") if "data-region" in e.attrib]
    if x.rank and points:
        assert len(hulls) == len(x.regions)
        for hull in hulls:
            lo, hi = (tuple(map(int, hull[key].split(","))) for key in ("data-lo", "data-hi"))
            inside = {p for p in points if all(a <= z < b for a, z, b in zip(lo, p, hi, strict=True))}
            for k in range(x.rank):
                assert {lo[k], hi[k] - 1} <= {p[k] for p in inside}


@given(regions_in_one_box(2, max_rank=4))
def test_an_outline_of_a_product_is_its_points(two: tuple[Region, Region]) -> None:
    assert_outline_is(two[0], listed_points(two[0]))


@given(regions_in_one_box(2))
def test_an_outline_of_a_union_is_its_points(two: tuple[Region, Region]) -> None:
    one, other = two
    assert_outline_is(one | other, listed_points(one) | listed_points(other))


@given(nestings(40, 3), st.integers(33, 200), st.integers(-50, 50))
def test_an_outline_of_a_long_axis_is_its_indices(levels: list[Stripe], n: int, start: int) -> None:
    held = {(z,) for z in range(start, start + n) if in_nesting(levels, z)}
    assert_outline_is(Region((n,), [Sett(*levels)], (start,)), held)


@given(nestings(12, 2), st.integers(1, 40))
def test_the_outline_of_a_long_period_is_its_elements(levels: list[Stripe], extra: int) -> None:
    nest = [Stripe(extra + 33, 65), *levels]
    s = Sett(*nest)
    bundle = mimebundle(s)
    if s.period <= 64:
        return
    held = {z for z in range(s.period) if in_nesting(nest, z)}
    assert_text_is(bundle["text/plain"].split("\n")[-1], 0, s.period, held)
    axes = [e for e in ElementTree.fromstring(bundle["image/svg+xml"]).iter(f"{SVG}g") if "data-axis" in e.attrib]
    (axis,) = axes
    assert axis.attrib["data-axis"] == "one period"
    assert_axis_is(axis, 0, s.period, held)


def scaled(s: Sett, by: int) -> Sett:
    """The same pattern, each index so many times."""
    return Sett(*(Stripe(t.on * by, t.off * by, t.phase * by) for t in s.stripes))


def marks_of(svg: str) -> list[tuple[int, ...]]:
    return [span_of(e) for e in ElementTree.fromstring(svg).iter(f"{SVG}path") if "data-held" in e.attrib]


@pytest.mark.heavy(2)
@given(st.lists(nestings(6, 2), min_size=1, max_size=5))
def test_an_outline_says_the_same_of_axes_a_billion_times_as_long(axes: list[list[Stripe]]) -> None:
    shape = [12] * len(axes)
    small = Region(shape, [Sett(*levels) for levels in axes])
    large = Region([n * BIG for n in shape], [scaled(s, BIG) for s in small.setts])
    few, many = box_picture(small), box_picture(large)
    drawn, expected = marks_of(many.svg), [tuple(z * BIG for z in span) for span in marks_of(few.svg)]
    assert drawn == expected
    size = re.search(r'data-size="(\d+)"', many.svg)
    assert size is not None and int(size[1]) == len(listed_points(small)) * BIG ** len(axes)


@pytest.mark.parametrize(
    "x",
    [
        Region.full((10**18, 10**18)),
        Region.from_slices((10**6, 10**6), (slice(1, 10**6, 2), slice(0, 10**6, 3))),
        Region((10**18,) * 5, [Sett(Stripe(6, 10**9), Stripe(1, 2))] * 5),
        ~Region.from_bounds((10**18,) * 4, (1,) * 4, (10**9,) * 4),
        Sett(Stripe(10**12, 10**15), Stripe(10**6, 10**6), Stripe(3, 2)),
    ],
    ids=["full", "slices", "nested", "around", "sett"],
)
def test_sets_of_any_size_are_shown_at_once(x: Region | DisjointRegions | Sett) -> None:
    def shown() -> float:
        began = time.perf_counter()
        bundle = x._repr_mimebundle_()
        took = time.perf_counter() - began
        assert set(bundle) == {"text/plain", "image/svg+xml", "text/html"}
        assert len(bundle["image/svg+xml"]) < 60_000
        assert_legible(read(bundle["image/svg+xml"]))
        return took

    assert min(shown() for _ in range(4)) < 0.2  # 40 ms on a quiet machine


def test_an_implicit_set_is_shown_by_its_hull() -> None:
    skew = IndexProjection(AffineMap(((1, 1), (1, -1)), (0, 0)), (1, 1)).image(Box.of((100, 100)))
    words = skew._repr_mimebundle_()["text/plain"].split("\n")[1:]
    assert words == [
        "axis 0 [0, 199)                                    all within 0:199",
        "axis 1 [-99, 100)                                  all within -99:100",
        "10000 of 39601 points, ≈25.3 %",
    ]


def test_a_share_is_not_rounded_to_all() -> None:
    almost = ~Region.from_bounds((10**6, 10**6), (0, 0), (1, 1))
    assert box_picture(almost).text.split("\n")[2] == "999999999999 of 1000000000000 points, over 99.9 %"
    assert box_picture(Region.full((3, 70))).text.endswith("210 of 210 points, 100 %")


@given(st.lists(st.tuples(st.integers(2, 9), st.integers(0, 8), st.integers(1, 9)), min_size=3, max_size=3))
def test_a_part_of_a_solid_lies_where_its_indices_say(axes: list[tuple[int, int, int]]) -> None:
    """The last two axes are the front, the one before goes back, up and to the right: read back from the lines."""
    shape = tuple(n for n, _, _ in axes)
    spans = [(min(a, n - 1), min(a + more, n)) for n, a, more in axes]
    region = Region.from_slices(shape, tuple(slice(*span) for span in spans))
    root = ElementTree.fromstring(box_picture(region).svg)
    frame = next(e.attrib["d"] for e in root.iter(f"{SVG}path") if "H0ZM0 0l" in e.attrib["d"])
    wide, tall, deep = (float(re.search(rule, frame)[1]) for rule in (r"H(\d+)V", r"V(\d+)H", r"l(\d+) -"))  # type: ignore[index]
    (drawn,) = [e.attrib["d"] for e in root.iter(f"{SVG}path") if "data-region" in e.attrib]
    x, y, width, height = map(float, re.findall(r"^M(\S+) (\S+)h(\S+?)v(\S+?)h", drawn)[0])
    depth = float(re.findall(r"m0 0l(\S+) -", drawn)[0])
    (front, back), (above, under), (left, right) = spans
    at = front * deep / shape[0]
    wanted = left * wide / shape[2] + at, above * tall / shape[1] - at
    sides = (right - left) * wide / shape[2], (under - above) * tall / shape[1], (back - front) * deep / shape[0]
    np.testing.assert_allclose((x, y, width, height, depth), (*wanted, *sides), rtol=1e-4, atol=1e-3)
