"""Swizzles against ``x ^ ((x & mask) >> shift)``, cell by cell, and at sizes where nothing can be listed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from tapestry_sets import TooManyPieces, View, allocate, limits, overlap, overlaps, to_isl
from tapestry_sets.limits import tally
from tapestry_sets.solvers import isl
from tapestry_sets.views import AsStrided, Swizzle, scatter_terms
from tests.oracles import memory_for, read_view
from tests.strategies import subscripts


def swizzled(x: np.ndarray, bits: int, base: int, shift: int) -> np.ndarray:
    """CuTe's formula: the mask of the bits that flip, moved onto those that are flipped."""
    mask = ((1 << bits) - 1) << (base + max(0, shift))
    return x ^ ((x & mask) >> shift if shift >= 0 else (x & mask) << -shift)


@st.composite
def swizzles(draw: st.DrawFn) -> tuple[tuple[int, ...], int, int, int]:
    """A shape, and bits, base and shift under which no number leaves it."""
    bits, base, beyond = draw(st.integers(0, 3)), draw(st.integers(0, 2)), draw(st.integers(0, 2))
    shift = draw(st.sampled_from([1, -1])) * (bits + beyond)
    top = base + max(0, -shift) + bits
    assume(top <= 7)
    shape = draw(st.sampled_from([(4, 2), (2, 3), (3,), (1,), (5, 1), ()]))
    factor = 1 << (top if bits else 0)
    return draw(st.sampled_from([(*shape, factor), (factor, *shape)])), bits, base, shift


@pytest.mark.heavy(2)
@given(st.data(), swizzles())
@example(None, ((3, 4), 2, 0, 3))  # of the last block there is half
@example(None, ((12,), 2, 0, 2))
@example(None, ((64,), 0, 2, 0))
def test_each_index_reads_the_cell_of_the_formula(data: Any, case: tuple[tuple[int, ...], int, int, int]) -> None:
    shape, *of = case
    A = allocate(shape, name="A")
    memory, view = memory_for([A]), A.swizzle(*of)
    numbers = swizzled(np.arange(A.size), *of)
    expected = memory[A].reshape(-1)[numbers].reshape(shape)
    np.testing.assert_array_equal(read_view(view, memory), expected)
    assert len(view.pieces) <= 1 << of[0]
    assert view.same_elements(A) and not view.has_internal_overlap() and view.is_contiguous()
    assert view.swizzle(*of).same_view(A)
    if data is None:
        return
    one, two = data.draw(subscripts(shape)), data.draw(subscripts(shape))
    there, here = expected[one], memory[A][two]
    assert overlaps(view[one], A[two]) == bool(np.isin(there, here).any())
    assert overlap(view[one], A[two]).size == np.intersect1d(there, here).size
    both = np.intersect1d(there, expected[two])
    assert overlap(view[one], view[two]).size == both.size


def test_isl_and_the_adjoint_read_the_same_cells() -> None:
    A = allocate((4, 16), name="A")
    view = A.swizzle(2, 1, 3)
    numbers = swizzled(np.arange(64), 2, 1, 3)
    relation = to_isl(view)[A]
    for x in range(0, 64, 5):
        point = isl.point_set(divmod(x, 16))
        assert isl.a_point(point.apply(relation)) == divmod(int(numbers[x]), 16)
    gradient, given_back = np.zeros(64), np.arange(64.0)
    for term in scatter_terms(view.pieces, view.shape, A.shape):
        read = np.lib.stride_tricks.as_strided(
            given_back[term.read.offset :], term.read.shape, [8 * by for by in term.read.strides]
        )
        gradient[list(term.place.setts[0].elements(0, 64))] += read.sum(axis=term.summed).reshape(-1)
    expected = np.zeros(64)
    np.add.at(expected, numbers, given_back)
    np.testing.assert_array_equal(gradient, expected)


def test_questions_cost_the_same_at_any_size() -> None:
    """A column of 16 bytes of each row is 8 columns of memory, one a row of 8: of n rows an eighth each."""
    with mock.patch.object(isl, "_islpy", side_effect=AssertionError("isl is asked")):
        for rows in (64, 8 * 10**9, 1 << 60):
            A = allocate((rows, 64), name="A", itemsize=2)
            view = A.swizzle(3, 3, 3)
            with tally() as asked:
                assert overlap(view[:, :8], A[:, 8:16]).size == rows
                assert not overlaps(view[:, :8], view[:, 8:16])
                assert not overlaps(view[::2], A[1::2])
                assert overlap(view[3::8, :8], A[:, 24:32]).size == rows
                assert view[:, :32].contains(view[:, 3:9]) and view.same_elements(A)
            assert asked.total == asked.closed


def test_other_layouts_are_swizzled_in_memory() -> None:
    """CuTe's composition of a swizzle and a layout, here columns of 8: the layout's numbers are swizzled."""
    memory = allocate((64,), name="memory")
    layout = AsStrided((8, 8), (1, 8))
    view = memory.swizzle(3, 0, 3).apply(layout)
    values = memory_for([memory])
    numbers = np.arange(8)[:, None] + 8 * np.arange(8)
    np.testing.assert_array_equal(read_view(view, values), values[memory][swizzled(numbers, 3, 0, 3)])


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda v: v.swizzle(2, 1, 1), ValueError, r"a shift of 1 for 2 bits .*; it must be >= 2, or <= -2"),
        (lambda v: v.swizzle(-1, 0, 1), ValueError, r"bits -1 and base 0 must be >= 0"),
        (lambda v: v.swizzle(1, -1, 1), ValueError, r"bits 1 and base -1 must be >= 0"),
        (
            lambda v: v.swizzle(2, 1, 2),
            ValueError,
            r"\(6, 10\) has 60 cells, not a multiple of 2\*\*3: bits 1 to 2 are",
        ),
        (lambda v: v.swizzle(1, 0, -2), ValueError, r"60 cells, not a multiple of 2\*\*3: bits 2 to 2 are flipped"),
        (lambda v: v.swizzle(2.0, 0, 2), TypeError, "swizzle: bits must be an integer, not 2.0"),
        (lambda v: v.apply(Swizzle(1, 0, 1), v), ValueError, "swizzle: takes one source, not 2"),
    ],
)
def test_swizzles_that_are_none_are_refused(make: Callable[[View], Any], error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        make(allocate((6, 10)))


def test_many_patterns_are_refused_as_pieces() -> None:
    view = allocate((1 << 40,)).swizzle(20, 0, 20)
    with pytest.raises(TooManyPieces, match=r"swizzle of 20 bits: .*fewer bits, or a part"):
        _ = view.pieces
    with limits(max_pieces=4), pytest.raises(TooManyPieces):
        _ = allocate((64,)).swizzle(3, 0, 3).pieces


def test_a_swizzle_of_no_bits_is_the_view_itself() -> None:
    A = allocate((4, 1, 1, 1), name="A")
    assert A.swizzle(0, 0, 0) == A and read_view(A.swizzle(0, 0, 0), memory_for([A])).ravel().tolist() == [1, 2, 3, 4]
