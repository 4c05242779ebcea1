"""Words for what a batch of sequences is kept in: pages of a pool, and consecutive parts of one axis."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tapestry_sets import View, allocate, overlap, overlap_matrix, overlap_sizes, overlaps
from tests.machine_pace import slower
from tests.oracles import memory_for, read_view

# --------------------------------------------------------------------------------------------------------- pages


@st.composite
def sequences(draw: st.DrawFn) -> tuple[int, int, list[int], int]:
    """Pages of a pool, rows of a page, a table, and a length that its pages hold."""
    pages, rows = draw(st.integers(1, 6)), draw(st.integers(1, 4))
    table = draw(st.lists(st.integers(0, pages - 1), max_size=7))
    return pages, rows, table, draw(st.integers(0, len(table) * rows))


def slots(table: list[int], rows: int, length: int) -> np.ndarray:
    """The rows of the flat pool, by vLLM's formula."""
    return np.array([table[r // rows] * rows + r % rows for r in range(length)], int)


@given(sequences(), sequences())
@example((3, 2, [2, 0], 3), (3, 2, [0, 1], 4))
def test_a_sequence_in_pages_reads_its_slots(one: Any, two: Any) -> None:
    pages, rows, table, length = one
    flat = allocate((pages * rows, 3), name="pool")
    memory = memory_for([flat])
    read = flat.paged(table, rows, length)
    at = slots(table, rows, length)
    np.testing.assert_array_equal(read_view(read, memory), memory[flat][at])
    pool = flat.reshape(pages, rows, 3)
    junk = [*table[: -(-length // rows)], -1, 10**9]
    assert pool.paged(junk, length=length).same_view(read)
    assert pool.paged(table).same_view(flat[slots(table, rows, len(table) * rows)])
    other = [page % pages for page in two[2]]
    many = min(two[3], len(other) * rows)
    there = slots(other, rows, many)
    beside = flat.paged(other, rows, many)
    common = np.intersect1d(at, there)
    assert overlaps(read, beside) == bool(len(common))
    assert overlap(read, beside).size == 3 * len(common)
    assert read.has_internal_overlap() == (len(set(at.tolist())) < len(at))


def test_a_page_is_one_of_the_first_axis_and_all_other_axes_follow() -> None:
    pool = allocate((8, 4, 2, 5), name="pool")
    assert pool.paged([1, 1, 7]).shape == (12, 2, 5)
    assert pool.paged([3, 2], length=5).shape == (5, 2, 5)
    assert pool.paged([], length=0).shape == (0, 2, 5)
    assert pool.reshape(32, 2, 5).paged(np.array([3, 2], np.int32), block=4, length=5) == pool.paged([3, 2], length=5)
    assert allocate((0, 4, 2)).paged([]).shape == (0, 2)
    assert allocate((3, 0, 2)).paged([1]).shape == (0, 2)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda p: p.paged([0, 8]), IndexError, r"paged: page 8, number 1 of the table, .* pool's 8, \[0, 8\); where"),
        (lambda p: p.paged([0, -1]), IndexError, r"page -1, number 1 of the table, .* give its length"),
        (lambda p: p.paged([0, 1], length=9), ValueError, r"length 9 where 2 pages of 4 rows hold 8; give one in"),
        (lambda p: p.paged([0, 1], length=-1), ValueError, r"length -1 where 2 pages of 4 rows hold 8"),
        (lambda p: p.paged([0], length=2.0), TypeError, r"paged: length must be an integer, not 2.0"),
        (
            lambda p: p[1:].paged([0], block=4),
            ValueError,
            r"blocks of 4 rows .* \(7, 4\); .* without a block the first two",
        ),
        (lambda p: p.paged([0], block=3), ValueError, r"blocks of 3 rows in a pool of shape \(8, 4\); its first axis"),
        (lambda p: p.paged([0], block=0), ValueError, r"blocks of 0 rows .* block >= 1"),
        (lambda p: p[0].paged([0]), ValueError, r"shape \(4,\), where \(pages, block, …\) is needed; give block"),
        (lambda p: p.paged(np.zeros((2, 2), int)), TypeError, r"table is an array of shape \(2, 2\) of int64; give"),
        (lambda p: p.paged(np.zeros(2)), TypeError, r"table is an array of shape \(2,\) of float64; give integers in"),
        (lambda p: p.paged([[0, 1]]), TypeError, r"paged: table\[0\] must be an integer"),
        (lambda p: p.paged(3), TypeError, r"paged: table must be a sequence of integers, not 3"),
    ],
)
def test_pages_that_are_none_are_refused(make: Callable[[View], Any], error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        make(allocate((8, 4), name="pool"))


# ---------------------------------------------------------------------------------------------- ragged batches


@given(st.lists(st.integers(0, 5), max_size=6), st.integers(0, 1))
def test_sequences_of_a_ragged_batch_are_consecutive_parts(lengths: list[int], axis: int) -> None:
    shape = [3, 3]
    shape[axis] = sum(lengths)
    A = allocate(shape, name="A")
    memory, cuts = memory_for([A]), np.cumsum(lengths)[:-1]
    parts = A.ragged(lengths, axis)
    expected = np.split(memory[A], cuts, axis) if lengths else []
    assert len(parts) == len(expected) == len(lengths)
    for part, array in zip(parts, expected, strict=True):
        np.testing.assert_array_equal(read_view(part, memory), array)
    counts = np.diag([3 * n for n in lengths]) if lengths else np.zeros((0, 0), int)
    if parts:
        np.testing.assert_array_equal(overlap_sizes(parts), counts)
        np.testing.assert_array_equal(overlap_matrix(parts), counts > 0)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (
            lambda v: v.ragged([4, 4]),
            ValueError,
            r"2 lengths add up to 8, but axis 0 .* extent 9; .* and a slice leaves",
        ),
        (lambda v: v.ragged([4, 7]), ValueError, r"add up to 11, but axis 0 of shape \(9, 2\) has extent 9; they must"),
        (lambda v: v.ragged([10, -1]), ValueError, r"ragged: lengths\[1\] is -1; lengths must be >= 0"),
        (lambda v: v.ragged([4.0, 5]), TypeError, r"ragged: lengths\[0\] must be an integer, not 4.0"),
        (lambda v: v.ragged(9), TypeError, r"ragged: lengths must be a sequence of integers, not 9"),
        (lambda v: v.ragged([9], 2), np.exceptions.AxisError, r"ragged: axis 2 is out of range"),
        (lambda v: v.ragged(np.array([[9]])), TypeError, r"array of shape \(1, 1\) of int64; give integers in one row"),
    ],
)
def test_lengths_that_do_not_fit_are_refused(make: Callable[[View], Any], error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        make(allocate((9, 2)))


def test_all_pairs_of_a_thousand_sequences_are_apart_soon() -> None:
    """A row of the benchmarks holds this to 50 ms; here only that it is no question for each of a million pairs."""
    lengths = np.random.default_rng(0).integers(1, 2048, 1000)
    tokens = allocate((int(lengths.sum()), 16, 64), name="tokens")
    start = time.process_time()
    matrix = overlap_matrix(tokens.ragged(lengths))
    assert time.process_time() - start < 2 * slower()
    np.testing.assert_array_equal(matrix, np.eye(1000, dtype=bool))
