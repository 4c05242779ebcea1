"""Pictures are read back and must be the sets that enumeration finds; and they can be read at all."""

from __future__ import annotations

import re
import time
import xml.etree.ElementTree as ElementTree
from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapestry_sets import DisjointRegions, Region, Sett, Stripe, TooHard, allocate
from tapestry_sets.draw import canvas, tuning
from tapestry_sets.draw import sets as draw
from tests.drawings import SVG, assert_legible, holders, name_of, read
from tests.oracles import in_nesting, listed, listed_points
from tests.strategies import nestings, regions_in_one_box, windows

# ---------------------------------------------------------------------------------------------------------- text


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


@given(nestings(), windows(), st.integers(1, 90))
def test_text_with_axes_reads_back(levels: list[Stripe], window: tuple[int, int], wrap: int) -> None:
    picture = draw.text(Sett(*levels), start=window[0], stop=window[1], axes=True, wrap=wrap)
    if window[0] == window[1]:
        assert picture == ""
        return
    ruler, *lines = picture.split("\n")
    folded = window[1] - window[0] > wrap
    margin = max(len(re.match(r" *-?\d+ ", line)[0]) for line in lines) if folded else 0  # type: ignore[index]
    heads = [int(line[:margin]) for line in lines] if folded else [window[0]]
    marks = {head + k: mark for head, line in zip(heads, lines, strict=True) for k, mark in enumerate(line[margin:])}
    assert sorted(marks) == list(range(*window))
    assert {z for z, mark in marks.items() if mark == "1"} == listed(levels, window)
    for label in re.finditer(r"\S+", ruler):
        assert int(label[0]) == label.start() - margin + (0 if folded else window[0])


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


def test_text_with_axes_of_each_rank() -> None:
    assert draw.text(Region.full(()), axes=True) == "1"
    assert draw.text(Region.full((2, 3), (8, 4)), axes=True) == "\n".join(
        ["axis 0 down, axis 1 across", "  4 6", "8 111", "9 111"]
    )
    assert draw.text(Region.full((2, 1, 2), (-1, 10, 0)), axes=True) == "\n".join(
        ["[-1, :, :]", "   0", "10 11", "", "[0, :, :]", "   0", "10 11"]
    )


def test_thirty_two_sets_have_marks_of_their_own() -> None:
    sets = [Stripe(1, 31, k) for k in range(32)]
    assert draw.text(*sets) == canvas.MARKS
    with pytest.raises(ValueError, match="33 sets are more than 32"):
        draw.text(*sets, Stripe(1, 1))


# ------------------------------------------------------------------------------------------------------- drawings


@given(nestings(), nestings(), windows(), st.integers(1, 90))
def test_a_drawing_of_setts_reads_back(
    one: list[Stripe], two: list[Stripe], window: tuple[int, int], wrap: int
) -> None:
    a, b = listed(one, window), listed(two, window)
    drawing = read(draw.svg(Sett(*one), Sett(*two), start=window[0], stop=window[1], wrap=wrap, names=["a", "b"]))
    assert_legible(drawing)
    assert len(drawing.squares) == window[1] - window[0]
    assert holders(drawing) == {str(z): frozenset([1] * (z in a) + [2] * (z in b)) for z in a | b}
    for square in drawing.squares:
        if square.at is not None:  # where it is drawn is where it says it is
            left, top = min(s.x for s in drawing.squares), min(s.y for s in drawing.squares)
            row, column = (square.y - top) / square.tall, (square.x - left) / square.wide
            assert int(square.at) == window[0] + row * wrap + column
    legend = [w.words for w in drawing.words if " of " in w.words]
    n = window[1] - window[0]
    both = f"in two or more: {len(a & b)} of {n} cells"
    assert legend == [f"a: {len(a)} of {n} cells", f"b: {len(b)} of {n} cells", both]


@given(st.lists(nestings(), min_size=3, max_size=9), windows(longest=40))
def test_a_drawing_of_many_sets_reads_back(nests: list[list[Stripe]], window: tuple[int, int]) -> None:
    names = [f"set {k}" for k in range(len(nests))]
    picture = draw.show(*(Sett(*levels) for levels in nests), start=window[0], stop=window[1], names=names)
    drawing = read(picture.svg)
    assert_legible(drawing)
    held = {z: frozenset(k for k, levels in enumerate(nests, 1) if in_nesting(levels, z)) for z in range(*window)}
    assert holders(drawing) == {str(z): sets for z, sets in held.items() if sets}
    both = sum(len(sets) > 1 for sets in held.values())
    each = [sum(k in sets for sets in held.values()) for k in range(1, len(nests) + 1)]
    expected = [f"set {k}: {n} of {len(held)} cells" for k, n in enumerate(each)]
    expected.append(f"in two or more: {both} of {len(held)} cells")
    assert [w.words for w in drawing.words if " of " in w.words] == expected
    assert [line[3:] for line in picture.text.split("\n") if " of " in line] == expected


@given(regions_in_one_box(2))
def test_a_drawing_of_regions_reads_back(two: tuple[Region, Region]) -> None:
    drawing = read(draw.svg(*two, names=["a", "b"], title="Two regions"))
    assert_legible(drawing)
    a, b = map(listed_points, two)
    assert len(drawing.squares) == prod(two[0].shape)
    assert holders(drawing) == {name_of(p): frozenset([1] * (p in a) + [2] * (p in b)) for p in a | b}


@given(regions_in_one_box(1))
def test_the_order_of_drawn_cells_is_that_of_the_points(one: tuple[Region]) -> None:
    squares = [s for s in read(draw.svg(*one)).squares if s.at is not None]
    if one[0].rank == 2:
        squares.sort(key=lambda s: (s.y, s.x))
        assert [s.at for s in squares] == [name_of(p) for p in sorted(listed_points(one[0]))]
    elif one[0].rank == 3:  # planes do not fold here, so that they stand from left to right
        width = one[0].shape[2] * 14
        planes = {s.at.split(",")[0] for s in squares if s.at}
        for plane in planes:
            inside = [s for s in squares if s.at and s.at.split(",")[0] == plane]
            assert max(s.x for s in inside) - min(s.x for s in inside) < width
            inside.sort(key=lambda s: (s.y, s.x))
            own = sorted(p for p in listed_points(one[0]) if p[0] == int(plane))
            assert [s.at for s in inside] == [name_of(p) for p in own]


@given(st.integers(-(10**20), 10**20), st.integers(1, 60))
def test_coordinates_stand_above_their_cells(start: int, length: int) -> None:
    drawing = read(draw.svg(Region.full((length,), (start % 10**18,)), names=["full"]))
    assert_legible(drawing)
    centers = {s.x + s.wide / 2: s.at for s in drawing.squares}
    labels = [w for w in drawing.words if re.fullmatch(r"-?\d+", w.words)]
    assert labels
    for label in labels:
        assert centers[(label.left + label.right) / 2] == label.words


@given(st.text(max_size=12), st.text(max_size=12))
def test_any_name_and_title_is_well_formed(name: str, title: str) -> None:
    drawing = read(draw.svg(Stripe(1, 1), names=[name], title=title))
    assert any(w.words.endswith(": 1 of 2 cells") for w in drawing.words)


def test_a_drawing_has_paper_of_its_own_and_a_title() -> None:
    root = ElementTree.fromstring(draw.svg(Stripe(1, 1), title="Even numbers"))
    paper = next(root.iter(f"{SVG}path")).attrib
    assert paper["fill"] == "#ffffff" and paper["d"] == f"M0 0H{root.attrib['width']}V{root.attrib['height']}H0Z"
    assert root.findtext(f"{SVG}title") == "Even numbers"


def test_cells_are_as_large_as_asked_for() -> None:
    assert {s.wide for s in read(draw.svg(Stripe(1, 1), cell=20)).squares} == {20}
    assert {s.wide for s in read(draw.svg(Region.full((2, 300)))).squares} == {3}


# -------------------------------------------------------------------------------------------------------- reprs


def test_str_is_the_picture_and_repr_is_not() -> None:
    s = Sett(Stripe(6, 1), Stripe(2, 1))
    assert str(s) == "11.11.."
    assert repr(s) == "Sett(Stripe(5, 2), Stripe(2, 1))"
    assert str(Sett(Stripe(1, 99))) == "1" + 63 * "." + "... (period 100)"
    assert str(Sett(Stripe(2, 98, 70))) == "from 70: 11" + 62 * "." + "... (period 100)"
    assert str(Region.full((10**6, 2))) == repr(Region.full((10**6, 2)))
    assert str(~Region.from_bounds((2, 3), (0, 0), (1, 2))) == "..1\n111"


def test_notebooks_get_text_and_a_drawing() -> None:
    bundle = Sett(Stripe(2, 1))._repr_mimebundle_()
    assert bundle["text/plain"] == "Sett(Stripe(2, 1))\n11."
    drawing = read(bundle["image/svg+xml"])
    assert_legible(drawing)
    assert set(holders(drawing)) == {str(z) for z in range(24) if z % 3 < 2}
    small, large = Region.full((2, 2)), Region.full((10**6, 2))
    assert set(small._repr_mimebundle_()) == {"text/plain", "image/svg+xml", "text/html"}
    outline = large._repr_mimebundle_()
    assert set(outline) == set(small._repr_mimebundle_())
    assert outline["text/plain"].startswith(f"{large!r}\naxis 0 [0, ")


def test_notebooks_draw_the_levels_of_a_nest() -> None:
    drawing = read(Sett(Stripe(6, 1), Stripe(2, 1))._repr_mimebundle_()["image/svg+xml"])
    assert_legible(drawing)
    assert {level for level, *_ in drawing.bars} == {1, 2}
    assert set(holders(drawing)) == {str(z) for z in range(28) if z % 7 in (0, 1, 3, 4)}


def large_setts() -> st.SearchStrategy[Sett]:
    size = st.integers(0, 10**19) | st.integers(0, 10**4) | st.integers(0, 9)
    level = st.tuples(size, size, st.integers(-(10**19), 10**19)).filter(lambda level: level[0] + level[1] > 0)
    return st.lists(level, max_size=4).map(lambda levels: Sett(*(Stripe(*level) for level in levels)))


@given(large_setts(), large_setts())
def test_pictures_without_being_asked_are_bounded_and_true(s: Sett, t: Sett) -> None:
    for shown in (s, s & t, s.fill(t), s.sample(t)):
        bundle = shown._repr_mimebundle_()
        assert len(bundle["text/plain"]) < 2 * len(repr(shown)) + 500
        if "image/svg+xml" in bundle:
            drawing = read(bundle["image/svg+xml"])
            assert_legible(drawing)
            assert len(drawing.squares) <= 64 and len(bundle["image/svg+xml"]) < 60_000
            assert all(int(z) in shown for z in holders(drawing))


class TooLong:
    """A set that cannot list its elements."""

    period = 12

    def elements(self, start: int, stop: int) -> np.ndarray:
        raise TooHard(f"elements: [{start}, {stop}) is too long")

    def __repr__(self) -> str:
        return "TooLong()"


def test_a_set_too_hard_to_list_is_shown_by_its_name_and_not_drawn() -> None:
    assert draw.summary(TooLong()) == "TooLong()"
    assert draw.mimebundle(TooLong()) == {"text/plain": "TooLong()"}
    with pytest.raises(TooHard, match="too long"):
        draw.svg(TooLong())


@pytest.mark.parametrize(
    "shape", [(64, 64, 64), (10**9, 10**9), (0, 5), (64, 64), (4097,), (2,) * 12, (16, 16, 16), (1, 10**6), ()]
)
def test_boxes_of_any_shape_have_a_repr_for_notebooks(shape: tuple[int, ...]) -> None:
    began = time.perf_counter()
    bundle = Region.full(shape)._repr_mimebundle_()
    assert time.perf_counter() - began < 5
    drawn = len(shape) <= 3 and prod(shape) in range(1, 4097) and all(n <= 64 for n in shape)
    assert len(read(bundle["image/svg+xml"]).squares) == (prod(shape) if drawn else 0)
    assert len(bundle["image/svg+xml"]) < 500_000


def test_the_repr_of_a_period_that_python_cannot_write() -> None:
    primes = [p for p in range(2, 40_000) if all(p % d for d in range(2, int(p**0.5) + 1))]
    long = Sett(Stripe(1, prod(primes[:2000]) - 1))
    assert "over 2**" in draw.summary(long)


def test_an_intersection_is_drawn_by_its_elements() -> None:
    both = Sett(Stripe(2, 2)) & Stripe(1, 2)
    assert draw.summary(both) == "1........1.."
    shown = holders(read(draw.mimebundle(both)["image/svg+xml"]))
    assert set(shown) == {str(z) for z in range(24) if z % 4 < 2 and z % 3 == 0}


# -------------------------------------------------------------------------------------------------- pictures, errors


def test_a_picture_shows_and_prints() -> None:
    picture = draw.show(Stripe(1, 1), stop=6, title="Even", names=["even"])
    assert str(picture) == repr(picture) == picture.text == "Even\n0 2 4\n1.1.1.\n1  even: 3 of 6 cells"
    bundle = picture._repr_mimebundle_()
    assert bundle.pop("text/html").startswith('<div class="tapestry-picture">')
    assert bundle == {"text/plain": picture.text, "image/svg+xml": picture.svg}


def test_sets_are_shown_over_a_common_period() -> None:
    """A period of the first set alone would hide where the others differ from it."""
    assert draw.text(Stripe(2, 1), Stripe(3, 4)) == draw.text(Stripe(2, 1), Stripe(3, 4), stop=21)
    held = [(z % 3 < 2) + (z % 7 < 3) for z in range(21)]
    picture = draw.show(Stripe(2, 1), Stripe(3, 4))
    assert (
        f"1  Stripe(2, 1): 14 of 21 cells\n2  Stripe(3, 4): 9 of 21 cells\nX  in two or more: {held.count(2)} of 21"
        in (picture.text)
    )


def test_long_periods_are_shown_in_part_and_said_to_be() -> None:
    long, short = Sett(Stripe(50001, 50002)), Stripe(1, 6)
    picture = draw.show(long, short, names=["long", "short"], title="both")
    first, *_, last = picture.text.splitlines()
    assert first == f"both: [0, 4096) of a common period of {100003 * 7} integers"
    assert last == f"X  in two or more: {len(range(0, 4096, 7))} of 4096 cells"
    assert "a common period of 700021 integers" in picture.svg and len(read(picture.svg).squares) == 4096
    assert draw.show(long, start=49000).text.startswith("[49000, 53096) of a period of 100003 integers\n")


def test_what_cannot_be_drawn_is_refused() -> None:
    with pytest.raises(ValueError, match="more than 16384; give start and stop"):
        draw.text(Sett(Stripe(1, 10**9)))
    with pytest.raises(ValueError, match="rank 4; slice it"):
        draw.text(Region.full((2, 2, 2, 2)))
    with pytest.raises(ValueError, match="in one box"):
        draw.text(Region.full((2,)), Region.full((3,)))
    with pytest.raises(ValueError, match="more than 16384; slice it"):
        draw.svg(DisjointRegions((10**9, 10**9), [Region.full((10**9, 10**9))]))
    with pytest.raises(ValueError, match="at least one set"):
        draw.text()
    with pytest.raises(ValueError, match="slice a region instead"):
        draw.text(Region.full((4,)), stop=2)
    with pytest.raises(TypeError, match=r"argument 1 must be a Stripe.*not 7"):
        draw.text(Stripe(1, 1), 7)
    with pytest.raises(TypeError, match="both be sets of integers or both regions"):
        draw.text(Stripe(1, 1), Region.full((2,)))
    with pytest.raises(TypeError, match="show_views"):
        draw.text(allocate((3,)))


@pytest.mark.parametrize("bad", [1.0, True, "3", None])
def test_windows_and_sizes_are_integers(bad: object) -> None:
    with pytest.raises(TypeError, match="start must be an integer"):
        draw.text(Stripe(1, 1), start=bad)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="wrap must be an integer"):
        draw.text(Stripe(1, 1), axes=True, wrap=bad)  # type: ignore[arg-type]
    if bad is not None:
        with pytest.raises(TypeError, match="cell must be an integer"):
            draw.svg(Stripe(1, 1), cell=bad)  # type: ignore[arg-type]


def test_sizes_and_names_fit() -> None:
    with pytest.raises(ValueError, match="cell must be at least 1, not 0"):
        draw.svg(Stripe(1, 1), cell=0)
    with pytest.raises(ValueError, match="wrap must be at least 1, not -2"):
        draw.show(Stripe(1, 1), wrap=-2)
    with pytest.raises(ValueError, match="sequence of 2 strings"):
        draw.svg(Stripe(1, 1), Stripe(1, 2), names=["one"])
    with pytest.raises(ValueError, match="sequence of 2 strings"):
        draw.show(Stripe(1, 1), Stripe(1, 2), names="ab")


# ------------------------------------------------------------------------------------------------------ narrow pages


@given(nestings(), nestings(), windows(longest=300))
def test_a_drawing_for_narrow_pages_shows_the_same(
    one: list[Stripe], two: list[Stripe], window: tuple[int, int]
) -> None:
    a, b = listed(one, window), listed(two, window)
    picture = draw.show(Sett(*one), Sett(*two), start=window[0], stop=window[1], names=["the first set of them", "b"])
    wide = read(picture.svg)
    assert bool(picture.narrow) == (wide.width > tuning.NARROW_PAGE)
    if not picture.narrow:
        return
    narrow = read(picture.narrow)
    assert_legible(narrow)
    assert narrow.width <= tuning.NARROW_PAGE + 48  # the margins, and a last label
    assert len(narrow.squares) == len(wide.squares)
    assert holders(narrow) == {str(z): frozenset([1] * (z in a) + [2] * (z in b)) for z in a | b}
    assert {s.wide for s in narrow.squares} == {14.0}, "cells of a line are folded, not shrunk"


def test_words_wrap_on_narrow_pages_and_nothing_is_lost() -> None:
    title = "Some words above a picture that are too long for a page of 400 pixels, as titles are"
    picture = draw.show(Stripe(1, 1), stop=4, title=title, names=["those integers that can be halved " * 2])
    words = [w.words for w in read(picture.narrow).words]
    assert title.split() == " ".join(words).split()[: len(title.split())]
    assert "those integers that can be halved those integers that can be halved" in " ".join(words)
    assert len(words) > len(read(picture.svg).words)


def test_pages_are_wide_again_after_an_error() -> None:
    def fail() -> tuple[str, str]:
        if canvas.page_width() < tuning.PAGE:
            raise ValueError("narrow")
        return "", draw.svg(Stripe(1, 1), stop=60)

    with pytest.raises(ValueError, match="narrow"):
        canvas.draw_twice(fail)
    assert canvas.page_width() == tuning.PAGE
