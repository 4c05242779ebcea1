"""Progressions against their listed elements."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapestry_sets import TooManyPieces
from tapestry_sets.digits.progressions import (
    Progression,
    as_interval,
    clip_progression,
    combine,
    count_distinct,
    interleaved_copies,
    progression,
    reach,
    separate,
    split_progression,
)
from tapestry_sets.integers.digit_sets import axis_setts, explicit_setts

RAW = st.lists(st.tuples(st.integers(1, 4), st.integers(-9, 9)), max_size=3)
FIRST = st.integers(-20, 20)


def elements(p: Progression) -> set[int]:
    first, levels = p
    return {
        first + sum(j * s for j, (_, s) in zip(at, levels, strict=True))
        for at in product(*(range(n) for n, _ in levels))
    }


@given(FIRST, RAW)
def test_canonical_form_keeps_the_set(first: int, raw: list[tuple[int, int]]) -> None:
    p = progression(first, raw)
    points = elements((first, tuple(raw)))
    assert elements(p) == points
    steps = [s for _, s in p[1]]
    assert steps == sorted(steps, reverse=True) and all(n > 1 and s > 0 for n, s in p[1])
    assert p == progression(*p)
    assert (p[0], p[0] + reach(p[1])) == (min(points), max(points))
    solid = as_interval(p)
    if solid is not None:
        assert points == set(range(*solid))
    assert count_distinct(p) == len(points)
    if interleaved_copies(p[1]) == 1:
        assert len(points) == len(list(product(*(range(n) for n, _ in p[1]))))


@given(FIRST, RAW, st.integers(1, 12))
def test_split_is_divmod(first: int, raw: list[tuple[int, int]], q: int) -> None:
    p = progression(first, raw)
    pairs = [set(product(elements(high), elements(low))) for high, low in split_progression(p, q)]
    assert set().union(*pairs) == {divmod(v, q) for v in elements(p)}
    if interleaved_copies(p[1]) == 1:  # no element twice: the products share none either
        assert sum(map(len, pairs)) == len(elements(p))


@given(FIRST, RAW, st.integers(-40, 40), st.integers(0, 60))
def test_clip_is_the_part_in_the_window(first: int, raw: list[tuple[int, int]], start: int, width: int) -> None:
    p = progression(first, raw)
    parts = [elements(part) for part in clip_progression(p, start, start + width)]
    assert set().union(*parts) == {v for v in elements(p) if start <= v < start + width}
    if interleaved_copies(p[1]) == 1:
        assert sum(map(len, parts)) == len(set().union(*parts))


@given(FIRST, RAW, st.integers(-40, 40), st.integers(1, 60))
def test_setts_of_an_axis(first: int, raw: list[tuple[int, int]], start: int, extent: int) -> None:
    p = progression(first, raw)
    setts = axis_setts(p, start, extent)
    found = [v for s in setts for v in s.elements(start, start + extent).tolist()]
    assert sorted(found) == sorted(v for v in elements(p) if start <= v < start + extent)


@given(FIRST, st.lists(st.tuples(st.integers(-3, 3), FIRST, RAW), max_size=2), st.integers(1, 4))
def test_combine_adds(offset: int, raw: list[tuple[int, int, list[tuple[int, int]]]], width: int) -> None:
    terms = [(c, progression(first, levels)) for c, first, levels in raw]
    sums = {offset}
    for c, p in terms:
        sums = {s + c * v for s in sums for v in elements(p)}
    assert elements(combine(offset, terms, width)) == {s + t for s in sums for t in range(width)}


def test_what_shatters_is_refused_at_once() -> None:
    with pytest.raises(TooManyPieces, match="rows of"):
        split_progression((0, ((10**6, 10**6 + 1), (10**5, 1))), 10**6)
    with pytest.raises(TooManyPieces, match="interleave"):
        explicit_setts(progression(0, [(1049, 36674), (1049, 61119), (1049, 85569)]), 2**64)
    assert sorted(split_progression((0, ((10**12, 6),)), 4)) == [
        ((0, ((5 * 10**11, 3),)), (0, ())),
        ((1, ((5 * 10**11, 3),)), (2, ())),
    ]


@given(FIRST, RAW)
def test_separated_copies_hold_the_same(first: int, raw: list[tuple[int, int]]) -> None:
    p = progression(first, raw)
    parts = separate(p)
    assert sorted(set().union(*(elements(part) for part in parts))) == sorted(elements(p))
    if len(p[1]) == 2 and interleaved_copies(p[1]) > 1 and len(parts) > 1:
        assert sum(len(elements(part)) for part in parts) == len(elements(p))


def test_windows_separate_at_every_size() -> None:
    n = 10**18
    assert separate((0, ((n, 3), (5, 2)))) == [(0, ((3 * (n // 2) + 2, 2),)), (3, ((3 * (n // 2) + 2, 2),))]
    assert separate((7, ((2, n), (2, n - 1)))) == [(7, ((2, n), (2, n - 1)))]
