"""Touched chunks against every position looked at, and results put together from their chunks by NumPy."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tapestry_sets import chunks


@st.composite
def cases(draw: st.DrawFn) -> tuple[tuple[int, ...], Any, tuple[Any, ...]]:
    """A shape, a basic index and chunks, even or listed."""
    shape = tuple(draw(st.lists(st.integers(0, 20), min_size=1, max_size=3)))
    key: list[Any] = []
    for n in shape:
        if n and draw(st.integers(0, 4)) == 0:
            key.append(draw(st.integers(-n, n - 1)))
        else:
            end = st.none() | st.integers(-n - 3, n + 3)
            step = draw(st.sampled_from([None, 1, 2, 3, 7, -1, -2, -5]))
            key.append(slice(draw(end), draw(end), step))
    if draw(st.booleans()):
        key = [*key[:1], Ellipsis]
    lengths: list[Any] = []
    for n in shape:
        if draw(st.booleans()):
            lengths.append(draw(st.integers(1, 9)))
            continue
        listed, left = [], n
        while left:
            listed.append(draw(st.integers(1, left)))
            left -= listed[-1]
        lengths.append(tuple(listed))
    return shape, tuple(key), tuple(lengths)


def ends_of(n: int, lengths: Any) -> list[int]:
    """Where each chunk of an axis ends."""
    if isinstance(lengths, int):
        return [min(n, end) for end in range(lengths, n + lengths, lengths)]
    return list(accumulate(lengths))


@given(cases())
@example(((5,), (slice(None, None, -1),), (2,)))
@example(((1,), (slice(0, 0),), (3,)))
def test_results_are_put_together_from_touched_chunks(case: tuple[tuple[int, ...], Any, tuple[Any, ...]]) -> None:
    shape, key, lengths = case
    array = np.arange(np.prod(shape, dtype=int)).reshape(shape)
    wanted = array[key]
    touched = chunks(key, shape, lengths)
    ends = [ends_of(n, c) for n, c in zip(shape, lengths, strict=True)]
    found = np.full(touched.shape, -1)
    numbers = []
    for index, inside, out in touched:
        spans = [(([0, *e])[k], e[k]) for e, k in zip(ends, index, strict=True)]
        chunk = array[tuple(slice(a, b) for a, b in spans)]
        assert (found[out] == -1).all()  # no cell is written twice
        found[out] = chunk[inside]
        numbers.append(index)
        assert chunk[inside].size  # an untouched chunk is not listed
    assert touched.shape == wanted.shape
    np.testing.assert_array_equal(found, wanted)
    assert len(touched) == touched.size == len(numbers) == np.prod(touched.counts, dtype=int)
    assert numbers == sorted(numbers)


def test_no_other_chunk_is_looked_at() -> None:
    touched = chunks((slice(3, None, 10**12), ...), (10**30, 4), (10**6, 2))
    assert touched.counts == (10**18, 2) and touched.size == 2 * 10**18
    first = [next(iter(touched)), *(c for c, _ in zip(iter(touched), range(3), strict=False))][-1]
    assert first.numbers == (10**6, 0) and first.inside[0] == slice(3, 4, 10**12)


@pytest.mark.parametrize(
    ("key", "shape", "lengths", "error", "words"),
    [
        (slice(None), (4,), (0,), ValueError, "lengths 0 on axis 0 must be >= 1"),
        (slice(None), (4,), ((3, 3),), ValueError, "add up to 6, not to its extent 4"),
        (slice(None), (4, 4), (2,), ValueError, "give lengths for each axis"),
        ((0, 0), (4,), (2,), IndexError, "too many entries"),
        (9, (4,), (2,), IndexError, "index 9 is out of range for axis 0"),
        ([1, 2], (4,), (2,), TypeError, "must be a slice, an int or Ellipsis"),
        (slice(None), (4,), (1.5,), TypeError, "length on axis 0"),
    ],
)
def test_wrong_input(key: Any, shape: Any, lengths: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        chunks(key, shape, lengths)
