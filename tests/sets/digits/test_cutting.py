"""Digits cut apart against their points, listed digit by digit."""

from __future__ import annotations

from itertools import product

from hypothesis import example, given
from hypothesis import strategies as st

from tapestry_sets import Region
from tapestry_sets.digits.cutting import clip_form, keep_in_nest, split_form, unflatten
from tapestry_sets.digits.digits import Digits
from tapestry_sets.integers.nest import canonical
from tapestry_sets.limits import OPEN, Open
from tapestry_sets.views.patches import in_region
from tests.oracles import in_nesting
from tests.oracles import in_region as holds
from tests.strategies import regions_in_one_box, stripes


@st.composite
def boxes(draw: st.DrawFn, forms: int) -> Digits:
    """Linear forms of a few digits, with steps of either sign and zero."""
    steps = [st.integers(-15, 15)] * forms
    vector = st.tuples(*steps)
    digits = draw(st.lists(st.tuples(st.integers(2, 5), *steps), max_size=3))
    return Digits(draw(vector), tuple(digits))


def points(box: Digits) -> list[tuple[int, ...]]:
    """List the values of all forms, digit by digit."""
    found = []
    for values in product(*(range(digit[0]) for digit in box.digits)):
        moves = [[k * by for by in digit[1:]] for k, digit in zip(values, box.digits, strict=True)]
        found.append(tuple(sum(column) for column in zip(box.origin, *moves, strict=True)))
    return found


def all_points(parts: list[Digits] | Open) -> list[tuple[int, ...]]:
    assert parts is not OPEN
    assert all(digit[0] > 1 for part in parts for digit in part.digits)
    return sorted(point for part in parts for point in points(part))


@given(boxes(2), st.integers(1, 14), st.none() | st.integers(1, 14))
@example(Digits((0, 0), ((5, 6, 1), (2, 1, 0))), 5, None)  # a row and a cell: quotient and remainder both step
@example(Digits((-1, 0), ((14, 1, 1),)), 7, 2)  # what the last row lacks is not kept
def test_split_is_divmod(box: Digits, q: int, keep: int | None) -> None:
    most = q if keep is None else min(keep, q)
    expected = sorted((p[0] // q, p[1], p[0] % q) for p in points(box) if p[0] % q < most)
    assert all_points(split_form(box, 0, q, 10**6, most)) == expected


@given(boxes(2), st.integers(-40, 40), st.integers(0, 50))
def test_clip_keeps_an_interval(box: Digits, low: int, width: int) -> None:
    found = all_points(clip_form(box, 1, low, low + width, 10**6))
    assert found == sorted(p for p in points(box) if low <= p[1] < low + width)


@given(boxes(2), st.lists(stripes(9, 1), max_size=2))
def test_within_keeps_a_nest(box: Digits, levels: list) -> None:  # type: ignore[type-arg]
    nest = canonical((s.on, s.period, s.phase) for s in levels)
    found = all_points(keep_in_nest(box, 0, nest, 10**6))
    assert found == sorted(p for p in points(box) if in_nesting(levels, p[0]))


@given(st.data(), regions_in_one_box(1))
def test_in_region_keeps_its_points(data: st.DataObject, regions: tuple[Region]) -> None:
    (region,) = regions
    box = data.draw(boxes(1 + region.rank))
    found = all_points(in_region(box, 1, region, 10**6))
    assert found == sorted(p for p in points(box) if holds(region, p[1:]))


@given(boxes(3), st.lists(st.integers(1, 5), max_size=3))
def test_unflattened_forms_are_coordinates(box: Digits, shape: list[int]) -> None:
    def coordinates(z: int) -> tuple[int, ...]:
        low = []
        for n in shape[:0:-1]:
            z, x = divmod(z, n)
            low.append(x)
        return (z, *reversed(low)) if shape else ()

    expected = sorted((p[0], *coordinates(p[1]), p[2]) for p in points(box))
    assert all_points(unflatten(box, 1, shape, 10**6)) == expected


def test_what_shatters_is_refused_before_it_is_listed() -> None:
    n = 10**12
    rows = Digits((0,), ((n, n + 1), (n // 2, 1)))
    assert split_form(rows, 0, n - 1, 1000) is OPEN
    assert clip_form(Digits((0,), ((n, 3), (n, 2))), 0, 5, n, 1000) is OPEN
    assert len(split_form(Digits((0,), ((n, n + 1),)), 0, n, 1)) == 1  # one to the right in each row: no carry
