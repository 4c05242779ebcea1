"""Drawings are legible on light and dark pages, to color-blind readers and to those who hear them."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapestry_sets import Region, Sett, Stripe, allocate, overlap, show_views
from tapestry_sets.draw import Picture, canvas, show, show_levels, theme
from tapestry_sets.draw import levels as draw_levels
from tests.drawings import SVG

Floats = np.ndarray[tuple[int, ...], np.dtype[np.float64]]

VISIONS = {
    "normal": np.eye(3),
    "protan": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deutan": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritan": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}
"""What light those without one kind of cone see: the matrices of Machado, Oliveira and Fernandes, 2009."""

LEAST_APART = 15
"""CIE 1976: from about 2.3 on a difference is seen when colors touch; these are told apart at a distance."""


def light(color: str) -> Floats:
    shown = np.array([int(color[k : k + 2], 16) for k in (1, 3, 5)]) / 255
    return np.where(shown <= 0.04045, shown / 12.92, ((shown + 0.055) / 1.055) ** 2.4)


def contrast(one: str, two: str) -> float:
    low, high = sorted(float(light(c) @ [0.2126, 0.7152, 0.0722]) for c in (one, two))
    return (high + 0.05) / (low + 0.05)


def lab(of: Floats) -> Floats:
    xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]) @ of
    f = np.cbrt(xyz / [0.95047, 1.0, 1.08883])
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def shown_in(svg: str, scheme: str) -> dict[tuple[str, str], str]:
    """What a page of this scheme shows in place of each color, as the drawing's style says."""
    style = ElementTree.fromstring(svg).findtext(f"{SVG}style") or ""
    two = r"light-dark\((#\w{6}),(#\w{6})\)"
    named = {m[1]: m.groups()[1:] for m in re.finditer(rf"(--tapestry-\w+):var\(--jp-[\w-]+,{two}\)", style)}
    found = {}
    for what, color, other, value in re.findall(r'\.tapestry \[(\w+)="(#\w{6})"\]\{(\w+):([^}]+)\}', style):
        assert what == other
        pair = named[value[4:-1]] if value.startswith("var(") else re.fullmatch(two, value).groups()  # type: ignore[index, union-attr]
        found[what, color] = pair[scheme == "dark"]
    return found


def pictures() -> list[str]:
    A = allocate((27,), name="A")
    return [
        show(*(Stripe(1, 7, k) for k in range(8))).svg,
        show_levels(Sett(Stripe(40, 10), Stripe(9, 1), Stripe(3, 1), Stripe(1, 1))).svg,
        show_views(A.reshape(3, 3, 3)[:2, :2, :2], A[2::5], names=["B", "C"]).svg,
        overlap(allocate((9, 9))[1:], A)._repr_mimebundle_()["image/svg+xml"],
    ]


# ----------------------------------------------------------------------------------------------------------- colors


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_words_and_marks_are_legible_on_what_is_below_them(scheme: str) -> None:
    for svg in pictures():
        shown = shown_in(svg, scheme)
        assert {what for what, _ in shown} == {"fill", "stroke"}
        paper, ink = shown["fill", canvas.PAPER], shown["fill", canvas.INK]
        assert contrast(ink, paper) >= 7
        for (what, color), seen in shown.items():
            if what == "fill" and color in canvas.COLORS[1:]:  # white digits stand on these, or dark ones
                assert contrast(seen, paper) >= 4.5, color
            if what == "fill" and color in draw_levels.TINTS:
                assert contrast(seen, ink) >= 4.5, color
            if what == "stroke":
                assert contrast(seen, paper) >= 3, color


@pytest.mark.parametrize("vision", VISIONS)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_fills_differ_to_each_reader(vision: str, scheme: str) -> None:
    shown = shown_in(pictures()[0], scheme)
    fills = [shown["fill", color] for color in canvas.COLORS[1:]]
    seen = [lab(np.clip(np.asarray(VISIONS[vision]) @ light(color), 0, 1)) for color in fills]
    for (one, a), (two, b) in combinations(zip(fills, seen, strict=True), 2):
        assert np.linalg.norm(a - b) >= LEAST_APART, f"{one} and {two}"


@given(st.integers(0, 0xFFFFFF).map("#{:06x}".format), st.integers(0, 0xFFFFFF).map("#{:06x}".format))
def test_dark_pages_keep_the_contrast_of_any_two_colors(one: str, other: str) -> None:
    least = float(light("#111111") @ [0.2126, 0.7152, 0.0722])  # what is darker becomes white
    pair = [max(light(c) @ [0.2126, 0.7152, 0.0722], least) for c in (one, other)]
    dark = [theme.dark_of(c) for c in (one, other)]
    expected = (max(pair) + 0.05) / (min(pair) + 0.05)
    assert contrast(*dark) == pytest.approx(expected, rel=0.06)  # channels have 8 bits
    if expected > 1.1:
        assert (pair[0] < pair[1]) == (contrast(dark[0], "#000000") > contrast(dark[1], "#000000")), "light turns dark"


def test_contrast_is_that_of_the_standard() -> None:
    assert theme.contrast("#767676", "#ffffff") == pytest.approx(4.54, abs=0.01)
    assert theme.contrast("#0000ff", "#ffffff") == pytest.approx(8.59, abs=0.01)


def test_colors_stand_as_attributes_too() -> None:
    for svg in pictures():
        for element in ElementTree.fromstring(svg).iter(f"{SVG}rect"):
            assert "style" not in element.attrib and "class" not in element.attrib
        assert 'fill="var(' not in svg and f'fill="{canvas.PAPER}"' in svg


# ------------------------------------------------------------------------------------------------------------ pages


def test_the_style_concerns_no_other_part_of_a_page() -> None:
    for svg in pictures():
        style = re.sub(r"@[^{]+\{", "", ElementTree.fromstring(svg).findtext(f"{SVG}style") or "")
        selectors = [one.strip() for rule in re.findall(r"([^{}]+)\{", style) for one in rule.split(",")]
        assert len(selectors) > 5
        for one in selectors:
            assert re.fullmatch(r"([\[.][^ ]+ )?\.tapestry( [^ ]+)?", one), one


def test_each_picture_of_a_page_has_ids_of_its_own() -> None:
    one = show(Stripe(1, 1), title="One & only <b>")
    page = f"<div>{one.to_html()}{one.to_html()}{Region.full((2, 2))._repr_mimebundle_()['text/html']}</div>"
    root = ElementTree.fromstring(page)
    ids = [element.attrib["id"] for element in root.iter() if "id" in element.attrib]
    assert len(ids) == len(set(ids)) == 6
    words = {e.attrib["id"]: e.text for e in root.iter() if "id" in e.attrib}
    for drawing in root.iter(f"{SVG}svg"):
        assert drawing.attrib["role"] == "img"
        assert drawing.attrib["aria-labelledby"] in ids and drawing.attrib["aria-describedby"] in ids
    first = next(root.iter(f"{SVG}svg")).attrib
    assert words[first["aria-labelledby"]] == "One & only <b>"
    assert words[first["aria-describedby"]] == "Stripe(1, 1): 1 of 2 cells"


def test_a_description_says_what_the_legend_and_the_captions_say() -> None:
    A = allocate((27,), name="A")
    svg = show_views(A.reshape(3, 3, 3)[:2, :2, :2], A[2::5], names=["B", "C"]).svg
    told = ElementTree.fromstring(svg).findtext(f"{SVG}desc")
    assert told is not None
    assert told.startswith("A (27,); B: 8 of 27 cells; C: 5 of 27 cells; shared: 1 of 27 cells; B[1, 1, 0] and C[2]")


def test_where_drawings_are_stripped_the_text_is_left() -> None:
    root = ElementTree.fromstring(Picture("1<2\n1.", show(Stripe(1, 1)).svg).to_html())
    assert root.findtext("pre") == "1<2\n1."


def test_pointing_costs_a_fifth_of_a_drawing_at_most() -> None:
    A = allocate((40, 50), name="A")
    for svg in (show(Stripe(2, 2), Stripe(1, 2), stop=500).svg, show_views(A[::2], A[3:]).svg, *pictures()):
        tips = re.findall("<title>[^<]*</title></rect>", svg)
        rules = [line for line in svg.split("\n") if ":hover" in line or "pointer-events" in line]
        assert len(rules) == 2
        assert sum(map(len, tips + rules)) <= 0.2 * len(svg)
        for place, tip in re.findall('data-at="([^"]*)"><title>([^<]*)</title></rect>', svg):
            assert place == tip
    assert len(re.findall("</title></rect>", show_views(A[::2], A[3:]).svg)) > 2_000
