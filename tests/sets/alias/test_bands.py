"""Triangles: cells on one side of a diagonal, against NumPy's tril and triu, and at sizes that no one lists."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tapestry_sets import TooHard, TooManyPieces, View, allocate, concatenate, overlap, overlaps, to_isl
from tapestry_sets.alias.ladder.bands import sum_floors
from tapestry_sets.limits import tally
from tapestry_sets.solvers import isl
from tapestry_sets.views import scatter_terms, tuning
from tests.oracles import memory_for, read_view
from tests.sets.views.test_adjoint import one_by_one, scattered
from tests.strategies import subscripts

SHAPES = st.sampled_from([(4, 6), (7, 7), (1, 5), (6, 1), (2, 5, 4), (9, 3), (2, 0, 3)])


@st.composite
def triangles(draw: st.DrawFn, shape: tuple[int, ...]) -> tuple[View, np.ndarray, View]:
    """A triangle of part of an allocation, sliced and turned again, its values, and the allocation."""
    A = allocate(shape, name="A")
    view: View = A
    array = np.arange(1, A.size + 1).reshape(shape)
    for _ in range(draw(st.integers(1, 3))):
        if array.ndim >= 2 and draw(st.booleans()):
            k, upper = draw(st.integers(-4, 4)), draw(st.booleans())
            view, array = (view.triu(k), np.triu(array, k)) if upper else (view.tril(k), np.tril(array, k))
        elif draw(st.booleans()):
            view, array = view.T, array.T
        else:
            key = draw(subscripts(array.shape))
            view, array = view[key], array[key]
    return view, array, A


@given(st.data(), SHAPES)
def test_triangles_read_what_numpy_keeps(data: st.DataObject, shape: tuple[int, ...]) -> None:
    view, array, A = data.draw(triangles(shape))
    (home,) = view.allocations
    np.testing.assert_array_equal(np.nan_to_num(read_view(view, memory_for([home])), nan=0), reads(view, array, home))
    read = array[array > 0]
    assert overlap(view, A).size == len(np.unique(read))
    assert overlaps(view, A) == bool(len(read)) and A.contains(view)
    assert view.has_internal_overlap() == (len(np.unique(read)) < len(read))
    assert view.same_view(view[...]) and view.same_elements(view)
    if view.size and view.size < 60:
        grad = np.arange(1, view.size + 1).reshape(view.shape)
        terms = scatter_terms(view.pieces, view.shape, home.shape)
        np.testing.assert_array_equal(scattered(terms, grad, home.size), one_by_one(view, grad, 0, home.shape))


@given(st.integers(1, 30), st.integers(1, 12), st.integers(1, 5), st.integers(-6, 6), st.booleans())
@example(window=24, step=7, every=3, k=0, upper=False)
def test_triangles_of_windows_read_what_numpy_keeps(window: int, step: int, every: int, k: int, upper: bool) -> None:
    # the rows are windows of few combs that overlap, so that what they read together is a few sets
    n = window + 9 * step
    view = allocate((n,), name="A").sliding_windows(window, step)[:, ::every]
    array = np.lib.stride_tricks.sliding_window_view(np.arange(1, n + 1), window)[::step, ::every]
    view, array = (view.triu(k), np.triu(array, k)) if upper else (view.tril(k), np.tril(array, k))
    read = [cell for cells in view.cells.values() for cell in cells.explicit().elements(0, n).tolist()]
    assert read == np.unique(array[array > 0] - 1).tolist()


@pytest.mark.parametrize("upper", [False, True])
def test_a_triangle_of_many_windows_reads_few_sets(upper: bool) -> None:
    rows = allocate((10**12,), name="A").sliding_windows(1000, 7)[:, ::3]
    view = rows.triu() if upper else rows.tril()
    (cells,) = view.cells.values()
    n, last = 334, (10**12 - 1000) // 7
    kept = {7 * i + 3 * j for i in range(n) for j in (range(i, n) if upper else range(i + 1))}
    kept |= set() if upper else {7 * i + 3 * j for i in range(n, 3 * n) for j in range(n)}
    # from row n on the lower triangle has whole rows, each of which brings as many new cells as the one before
    more = 0 if upper else (last + 1 - 3 * n) * len({7 * 3 * n + 3 * j for j in range(n)} - kept)
    assert cells.size == len(kept) + more
    assert len(cells.explicit().members) < 20


def reads(view: View, array: np.ndarray, home: Any) -> np.ndarray:
    """The values that a view has whose memory holds what `memory_for` gives."""
    memory = memory_for([home])[home].reshape(-1)
    return np.where(array > 0, memory[np.maximum(array, 1) - 1] if memory.size else array, 0)


@given(st.data(), SHAPES)
@example(None, (7, 7))
def test_pairs_of_triangles_against_enumeration(data: Any, shape: tuple[int, ...]) -> None:
    A = allocate(shape, name="A")
    array = np.arange(1, A.size + 1).reshape(shape)
    if data is None:
        one, mine, two, theirs = A.tril()[::2, 1:], np.tril(array)[::2, 1:], A.triu(-2), np.triu(array, -2)
    else:
        k, low = data.draw(st.integers(-4, 4)), data.draw(st.integers(-4, 4))
        keys = data.draw(subscripts(shape)), data.draw(subscripts(shape))
        one, mine = A.tril(k)[keys[0]], np.tril(array, k)[keys[0]]
        two, theirs = A.triu(low)[keys[1]], np.triu(array, low)[keys[1]]
    for other, values in ((two, theirs), (A[..., ::2], array[..., ::2]), (A.tril(1), np.tril(array, 1))):
        with mock.patch.object(tuning, "MAX_CHAIN", 0):  # so that small ones are not filled sets either
            common = np.intersect1d(mine[mine > 0], values[values > 0])
            assert overlaps(one, other) == bool(len(common))
            found = overlap(one, other)
            assert found.size == len(common)
            if found.witness is not None:
                assert mine[found.witness.a] == values[found.witness.b] in common
            assert other.contains(one) == (len(common) == len(np.unique(mine[mine > 0])))


def test_triangles_of_any_size_are_counted_in_closed_form() -> None:
    truth = None
    with mock.patch.object(isl, "_islpy", side_effect=AssertionError("isl is asked")):
        for n in (60, 6 * 10**4, 6 * 10**9, 6 * 10**30):
            A = allocate((n, n), name="scores")
            causal = A.tril()
            with tally() as asked:
                assert overlap(causal, A).size == n * (n + 1) // 2
                assert overlap(causal, A.triu()).size == n
                assert not overlaps(causal, A.triu(1)) and overlaps(causal.T, A.tril(1 - n))
                assert overlap(causal[::2, ::3], A).size == sum_floors(n // 2, 3, 2, 3)
                assert causal.contains(A.tril(-1)) and not causal.contains(A) and causal.same_elements(A.T.triu().T)
                assert not causal.has_internal_overlap()
                turned = A[::-1].tril()[::-1]  # below the other diagonal
                assert overlap(turned, A).size == overlap(turned, A[:, ::-1].triu()[:, ::-1]).size == n * (n + 1) // 2
                window = overlap(causal, A.triu(-9))  # each row reads ten columns at most
                assert window.size == 10 * n - 45
            assert asked.listed == asked.isl == 0
            answers = [
                overlaps(causal[: n // 2, n // 3 :], A[n // 6 :: 2, ::5]),
                overlaps(causal[: n // 3, n // 2 :], A),
            ]
            truth = truth or answers
            assert answers == truth == [True, False]


def test_diagonals_that_cross_are_decided_by_isl() -> None:
    n = 10**9
    A = allocate((n, n), name="A")
    with tally() as asked:
        assert overlaps(A.tril(), A[::-1].tril()[::-1]) and not overlaps(A.tril(-5), A[:, ::-1].tril(-n)[:, ::-1])
        assert not overlaps(A.triu(n // 2 + 2), A[::-1].triu(n // 2 + 2)[::-1])
    assert asked.isl and not asked.listed
    small = allocate((60, 60), name="small")
    size = np.count_nonzero(np.tril(np.ones((60, 60))) * np.tril(np.ones((60, 60)))[::-1])
    assert overlap(small.tril(), small[::-1].tril()[::-1]).size == size
    with pytest.raises(TooHard, match="counting the cells that two views share"):
        _ = overlap(A.tril(), A[::-1].tril()[::-1]).size


def test_isl_reads_the_same_triangle() -> None:
    A = allocate((5, 7), name="A")
    relation = to_isl(A.tril(1))[A]
    there = isl.read_set("{ [i, j] : 0 <= i < 5 and 0 <= j < 7 and j <= i + 1 }")
    assert relation.range().is_equal(there) and relation.domain().is_equal(there)


def test_triangles_are_parts_of_larger_views() -> None:
    A, B = allocate((6, 6), name="A"), allocate((6, 6), name="B")
    both = concatenate([A.tril(), B.triu()])
    assert overlap(both, A).size == overlap(both, B).size == 21
    assert overlap(A.tril().reshape(-1)[::5], A).size == np.count_nonzero(np.tril(np.ones((6, 6))).reshape(-1)[::5])
    assert len(A.tril(9).pieces) == len(A.tril(-9).pieces) == 1
    assert A.tril(9) == A and A.tril(-9).cells == {}


def test_sums_of_floors_are_sums() -> None:
    rng = np.random.default_rng(0)
    for n, m, a, b in rng.integers(0, 30, (300, 4)).tolist():
        assert sum_floors(n, m + 1, a, b) == sum((a * i + b) // (m + 1) for i in range(n))


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda v: v[0].tril(), ValueError, r"tril, triu: shape \(6,\) has rank 1; a triangle needs 2 axes or more"),
        (lambda v: v.tril(1.0), TypeError, "tril: k must be an integer, not 1.0"),
        (lambda v: v.triu(value="x"), TypeError, "triu: value 'x' must be a real number"),
        (lambda v: allocate((10**9,) * 2).tril().origins(), TooManyPieces, "too many setts"),
    ],
)
def test_triangles_that_are_none_are_refused(make: Callable[[View], Any], error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        make(allocate((4, 6)))
