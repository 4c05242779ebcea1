"""Digits, joined, turned and cut apart, against their points, listed digit by digit."""

from __future__ import annotations

from itertools import product
from math import prod

from hypothesis import example, given
from hypothesis import strategies as st

from tapestry_sets import Region
from tapestry_sets.digits.cutting import clip_form, keep_in_nest, split_form, unflatten
from tapestry_sets.digits.digits import Digits, join_digits, make_steps_positive
from tapestry_sets.integers.nest import canonical
from tapestry_sets.limits import OPEN, Open
from tapestry_sets.views.normal.patches import in_region
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


@given(boxes(2), st.integers(0, 2))
@example(Digits((0, 0), ((4, 6, 12), (6, 1, 2))), 0)
def test_joined_digits_count_through_the_same_points(box: Digits, at: int) -> None:
    idle = (*box.digits[:at], (1, 5, 5), *box.digits[at:])
    found = join_digits(idle)
    assert points(Digits(box.origin, found)) == points(box)
    assert join_digits(found) == found and all(digit[0] > 1 for digit in found)
    outer, inner = found[:-1], found[1:]
    assert not any(a[1:] == tuple(b[0] * step for step in b[1:]) for a, b in zip(outer, inner, strict=True))


@given(st.lists(st.tuples(st.integers(2, 4), st.integers(2, 4)), min_size=1, max_size=3), st.integers(-9, 9))
def test_what_is_split_in_two_is_joined_again(parts: list[tuple[int, int]], step: int) -> None:
    """Each digit of a number written in two halves is one digit again, and all of them together are one."""
    digits, by = [], step
    for a, b in parts:
        digits += [(a, by, 3 * by), (b, by * a, 3 * by * a)]
        by *= a * b
    size = prod(count for count, _, _ in digits)
    assert join_digits(digits[::-1]) == ((size, step, 3 * step),)


@given(boxes(3), st.integers(0, 2))
def test_turned_digits_hold_the_same_points(box: Digits, form: int) -> None:
    origin, digits = make_steps_positive(*box, form)
    assert sorted(points(Digits(origin, tuple(digits)))) == sorted(points(box))
    assert all(digit[1 + form] >= 0 for digit in digits)
    low, high = box.bounds(form)
    assert low == origin[form] and {low, high} <= {point[form] for point in points(box)}


@given(boxes(3), st.permutations(range(3)), st.integers(-5, 5))
def test_forms_are_picked_dropped_and_shifted(box: Digits, order: list[int], by: int) -> None:
    assert points(box.pick_forms(order)) == [tuple(point[f] for f in order) for point in points(box)]
    assert points(box.drop_form(1)) == [(point[0], point[2]) for point in points(box)]
    assert points(box.shift_form(1, by)) == [(point[0], point[1] + by, point[2]) for point in points(box)]


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
