"""Touched chunks against every position looked at, and results put together from their chunks by NumPy."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from tapestry_sets import chunks


@st.composite
def cases(draw: st.DrawFn, listed_too: bool = False) -> tuple[tuple[int, ...], Any, tuple[Any, ...]]:
    """A shape, a basic index, or one with lists, arrays and masks too, and chunks, even or listed."""
    shape = tuple(draw(st.lists(st.integers(0, 20), min_size=1, max_size=3)))
    key: list[Any] = []
    for n in shape:
        form = draw(st.sampled_from(["list", "array", "mask", "ascending", "other"])) if listed_too else "other"
        if form == "mask":
            key.append(draw(st.lists(st.booleans(), min_size=n, max_size=n)))
            key[-1] = np.array(key[-1], bool) if draw(st.booleans()) or not n else key[-1]
        elif form != "other":
            key.append(draw(st.lists(st.integers(-n, n - 1), max_size=12)) if n else [])
            key[-1] = np.array(key[-1], np.int16) if form == "array" else sorted(key[-1]) if n % 2 else key[-1]
        elif n and draw(st.integers(0, 4)) == 0:
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


def along_each_axis(array: np.ndarray, key: tuple[Any, ...]) -> np.ndarray:
    """What an index selects axis by axis; an Ellipsis stands last, if anywhere."""
    at = 0
    for k in key:
        if k is not Ellipsis:
            one = np.array(k, int) if isinstance(k, list) and not (k and isinstance(k[0], bool)) else k
            array = array[(slice(None),) * at + (one,)]
            at += not isinstance(k, int)
    return array


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


@given(cases(listed_too=True))
@example(((5,), ([4, 0, 4, -5],), (2,)))
@example(((0,), ([],), (3,)))
@example(((6, 4), ([True, False, True, True, False, False], [3, 0]), ((1, 5), 3)))
def test_lists_and_masks_select_axis_by_axis(case: tuple[tuple[int, ...], Any, tuple[Any, ...]]) -> None:
    shape, key, lengths = case
    array = np.arange(np.prod(shape, dtype=int)).reshape(shape)
    wanted = along_each_axis(array, key)
    touched = chunks(key, shape, lengths)
    ends = [ends_of(n, c) for n, c in zip(shape, lengths, strict=True)]
    found = np.full(touched.shape, -1)
    numbers = []
    for index, inside, out in touched:
        chunk = array[tuple(slice(e[k - 1] if k else 0, e[k]) for e, k in zip(ends, index, strict=True))]
        at = np.ix_(*[np.arange(n)[o] for n, o in zip(found.shape, out, strict=True)])
        part = along_each_axis(chunk, inside)
        assert part.size and (found[at] == -1).all()
        found[at] = part
        numbers.append(index)
    assert touched.shape == wanted.shape
    np.testing.assert_array_equal(found, wanted)
    assert touched.size == len(numbers) == len(set(numbers)) and numbers == sorted(numbers)
    assert chunks(key, shape, lengths) == touched and hash(chunks(key, shape, lengths)) == hash(touched)


@given(cases(listed_too=True))
@example(((2, 10), (slice(2, 1), [False] * 9 + [True]), (3, 1)))
def test_chunks_are_those_of_zarr(case: tuple[tuple[int, ...], Any, tuple[Any, ...]]) -> None:
    indexing = pytest.importorskip("zarr.core.indexing")
    grids = pytest.importorskip("zarr.core.chunk_grids")
    shape, key, lengths = case
    plain = [k for k in key if k is not Ellipsis]
    regular = all(isinstance(n, int) for n in lengths) and all(shape)
    forward = all(k.step is None or k.step > 0 for k in plain if isinstance(k, slice))
    assume(regular and forward and all(len(k) for k in plain if isinstance(k, (list, np.ndarray))))
    grid = grids.RegularChunkGrid(chunk_shape=lengths)
    selection = tuple(np.array(k) if isinstance(k, list) else k for k in plain)
    theirs = indexing.OrthogonalIndexer(selection, shape, grid)
    ours = chunks(key, shape, lengths)
    # Where nothing is selected zarr may still read the chunk that an empty slice begins in.
    listed = list(theirs) if 0 not in theirs.shape else []
    assert {tuple(map(int, one.chunk_coords)) for one in listed} == {one.numbers for one in ours}
    assert tuple(theirs.shape) == ours.shape


def test_a_table_of_pages_touches_few_chunks() -> None:
    table = np.random.default_rng(1).integers(0, 10**12, 10_000)
    touched = chunks((table, slice(None, None, 10**9)), (10**12, 10**12), (10**6, 10**6))
    assert touched.shape == (10_000, 1000) and touched.counts == (len(np.unique(table // 10**6)), 1000)
    first = next(iter(touched))
    assert (table[np.arange(10_000)[first.out[0]]] == first.numbers[0] * 10**6 + first.inside[0]).all()


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
        ((1, 2.0), (4, 4), (2, 2), TypeError, r"chunks: the key has 2\.0; give for each axis a slice, an int, a list"),
        (None, (4,), (2,), TypeError, "chunks: the key has None; give"),
        ((None, slice(None)), (4,), (2,), TypeError, "chunks: the key has None; give"),
        (True, (4,), (2,), TypeError, "chunks: the key has True; give"),
        (range(3), (4,), (2,), TypeError, r"chunks: the key has range\(0, 3\); give"),
        (
            [1, 4],
            (4,),
            (2,),
            IndexError,
            r"index 4, number 1, is out of range for axis 0 of extent 4; give one in \[-4, 4",
        ),
        (np.array([0, -5]), (4,), (2,), IndexError, "index -5, number 1, is out of range"),
        ([10**30], (4,), (2,), IndexError, "index 1000000000000000000000000000000, number 0, is out of range"),
        (
            (0, [0]),
            (4, 0),
            (2, 2),
            IndexError,
            "index 0, number 0, is out of range for axis 1 of extent 0, which is em",
        ),
        ([1.5], (4,), (2,), TypeError, r"chunks: indices on axis 0\[0\] must be an integer, not 1.5"),
        ([[1], [2]], (4,), (2,), IndexError, "the indices on axis 0 are a table; give one row"),
        ([[1], [2, 3]], (4,), (2,), IndexError, "the indices on axis 0 are a table"),
        (np.zeros((2, 2), int), (4,), (2,), IndexError, "the indices on axis 0 are a table"),
        ([True, False], (4,), (2,), IndexError, "a mask of 2 on axis 0 of extent 4; give one of as many"),
        ([0], (10**30,), (2,), ValueError, "beyond int64; give a slice"),
        (slice(None), (4,), (1.5,), TypeError, "length on axis 0"),
    ],
)
def test_wrong_input(key: Any, shape: Any, lengths: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        chunks(key, shape, lengths)
