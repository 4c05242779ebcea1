"""Pictures of nested levels are read back and must be what the definition of nesting says."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapestry_sets import DisjointSetts, Sett, Stripe
from tapestry_sets.draw import levels_svg, levels_text, show_levels
from tests.drawings import assert_legible, holders, read
from tests.oracles import in_nesting, listed
from tests.strategies import nestings, windows


def offset_in_block(stripes: list[Stripe], z: int) -> int | None:
    """How far z is into its block of the innermost of nested stripes, None if it is in none: the definition."""
    for stripe in stripes:
        z = (z - stripe.phase) % (stripe.on + stripe.off)
        if z >= stripe.on:
            return None
    return z


def expected_row(stripes: list[Stripe], z: int) -> str:
    at = offset_in_block(stripes, z)
    if at is None:
        return "."
    begins, ends = at == 0, at == stripes[-1].on - 1
    return "|" if begins and ends else "[" if begins else "]" if ends else "="


@given(nestings(), windows())
def test_levels_are_written_as_the_definition_reads(levels: list[Stripe], window: tuple[int, int]) -> None:
    _, *rows, elements = levels_text(levels, *window).split("\n")
    n = window[1] - window[0]
    assert len(rows) == len(levels)
    for k, row in enumerate(rows, 1):
        assert row.startswith(f"{k}: on {levels[k - 1].on}, off {levels[k - 1].off}, phase {levels[k - 1].phase}")
        if n:
            assert row[-n:] == "".join(expected_row(levels[:k], z) for z in range(*window))
    if n:
        assert elements[-n:] == "".join(".1"[in_nesting(levels, z)] for z in range(*window))


@given(nestings(), windows())
def test_levels_are_drawn_as_the_definition_reads(levels: list[Stripe], window: tuple[int, int]) -> None:
    drawing = read(levels_svg(levels, *window, title="Levels"))
    assert_legible(drawing)
    assert len(drawing.squares) == window[1] - window[0]
    assert set(holders(drawing)) == {str(z) for z in listed(levels, window)}
    for k in range(1, len(levels) + 1):
        inside = [z for level, lo, hi in drawing.bars if level == k for z in range(lo, hi)]
        assert sorted(inside) == sorted(listed(levels[:k], window))


@given(nestings(), windows())
def test_the_levels_of_a_sett_end_in_its_elements(levels: list[Stripe], window: tuple[int, int]) -> None:
    shown = set(holders(read(levels_svg(Sett(*levels), *window))))
    assert shown == {str(z) for z in listed(levels, window)}


def test_levels_of_what_has_none() -> None:
    assert levels_text(Sett(), 0, 5).split("\n")[-1] == "elements  11111"
    assert levels_text(Sett.empty(), 0, 5).split("\n")[-1].split() == ["elements", "....."]
    assert levels_text(Stripe(2, 1)).split("\n")[1].split() == ["1:", "on", "2,", "off", "1,", "phase", "0", "[]."]


@given(nestings(), st.integers(-(10**20), 10**20), st.integers(0, 70))
def test_levels_are_legible_far_away(levels: list[Stripe], start: int, length: int) -> None:
    drawing = read(levels_svg(levels, start, start + length))
    assert_legible(drawing)
    assert set(holders(drawing)) == {str(z) for z in listed(levels, (start, start + length))}
    columns = sorted(s.x + s.wide / 2 for s in drawing.squares)
    for w in drawing.words:
        if re.fullmatch(r"-?\d+", w.words) and w.bottom < 20:  # a coordinate, above the bars
            assert int(w.words) == start + columns.index((w.left + w.right) / 2)


def test_levels_far_away_and_long_ones() -> None:
    far = 10**18
    shown = read(levels_svg([Stripe(6, 4), Stripe(2, 1)], far, far + 20))
    assert_legible(shown)
    assert sorted(holders(shown)) == [str(far + z) for z in (0, 1, 3, 4, 10, 11, 13, 14)]
    assert_legible(read(levels_svg([Stripe(300, 120, 5), Stripe(30, 11), Stripe(4, 3)], 0, 1024)))


def test_what_has_no_levels_is_refused() -> None:
    with pytest.raises(TypeError, match="draw one of its members"):
        levels_text(DisjointSetts([Sett(Stripe(1, 1))]))
    with pytest.raises(TypeError, match="not 3 at level 1"):
        levels_svg([Stripe(1, 1), 3])
    with pytest.raises(ValueError, match="more than 1024; give start and stop"):
        levels_svg(Sett(Stripe(1, 2000)))
    with pytest.raises(ValueError, match="cells of 40 levels are more than 16384"):
        levels_text([Stripe(1, 0)] * 40, 0, 1000)


def test_a_picture_of_levels_shows_and_prints() -> None:
    levels = show_levels(Sett(Stripe(5, 2), Stripe(2, 1)), stop=14, title="Levels")
    assert levels.text == "Levels\n" + levels_text(Sett(Stripe(5, 2), Stripe(2, 1)), 0, 14)


@pytest.mark.parametrize("bad", [1.0, True, "3"])
def test_windows_are_integers(bad: object) -> None:
    with pytest.raises(TypeError, match="stop must be an integer"):
        levels_text(Stripe(1, 1), stop=bad)  # type: ignore[arg-type]
