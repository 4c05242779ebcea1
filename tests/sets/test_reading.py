"""Which indices read which cells, against the values that NumPy reads."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapestry_sets import View, allocate
from tapestry_sets.reading import are_read, cell_read, has_one_inverse, invert, listed, sampled
from tests.oracles import memory_for, read_view
from tests.strategies import views


def numbers_of(values: np.ndarray) -> set[int]:
    """The row-major numbers of the cells read; 0 stands for a constant."""
    return {int(v) - 1 for v in values.ravel()} - {-1}


@given(views(length=5))
def test_lists_are_the_numbers_read(pair: tuple[View, np.ndarray]) -> None:
    view, values = pair
    (home,) = view.allocations
    pieces = [piece for piece in view.pieces if piece.source == 0]
    found = listed(pieces, view.shape, home.shape)
    assert found.tolist() == sorted(numbers_of(values)) and found.dtype == np.int64


@given(views(length=4), st.integers(1, 40))
def test_samples_are_some_of_the_numbers_read(pair: tuple[View, np.ndarray], many: int) -> None:
    view, values = pair
    (home,) = view.allocations
    pieces = [piece for piece in view.pieces if piece.source == 0]
    found = sampled(pieces, view.shape, home.shape, many)
    read = numbers_of(values)
    assert set(found.tolist()) <= read and (len(found) <= many)
    if many >= view.size:
        assert set(found.tolist()) == read


@given(views(length=5, cells=200))
def test_numbers_that_are_read_are_told_from_the_others(pair: tuple[View, np.ndarray]) -> None:
    view, values = pair
    (home,) = view.allocations
    pieces = [piece for piece in view.pieces if piece.source == 0]
    found = are_read(pieces, view.shape, home.shape, np.arange(home.size))
    assert (found is None) == (not all(map(has_one_inverse, pieces)))
    if found is not None:
        assert set(np.flatnonzero(found).tolist()) == numbers_of(values)


@given(views(length=4, cells=100))
def test_an_only_inverse_is_found(pair: tuple[View, np.ndarray]) -> None:
    view, values = pair
    memory = memory_for([view])
    read = read_view(view, memory)
    for piece in view.pieces:
        if piece.source < 0 or not has_one_inverse(piece):
            continue
        home = view.allocations[piece.source]
        for index in np.ndindex(view.shape):
            cell = cell_read(piece, index)
            if cell is not None:
                assert read[index] == memory[home][cell] == values[index]
                back = invert(piece.map, cell)
                assert back is not None and cell_read(piece, back) == cell


def test_numbers_beyond_int64_are_refused() -> None:
    A = allocate((2**33, 2**33))
    view = A[:4, :4]
    for ask in (lambda: listed(view.pieces, view.shape, A.shape), lambda: sampled(view.pieces, view.shape, A.shape, 5)):
        with pytest.raises(OverflowError, match="more cells than int64"):
            ask()
    with pytest.raises(OverflowError, match="more cells than int64"):
        are_read(view.pieces, view.shape, A.shape, np.arange(3))
    with pytest.raises(OverflowError, match="more indices than int64"):
        sampled(A.pieces, A.shape, A.shape, 5)
    B = allocate((2**62,))
    spread = sampled(B[1:].pieces, (2**62 - 1,), B.shape, 1000)
    assert len(np.unique(spread)) == 1000 and np.ptp(spread.astype(float)) > 2**61
    assert are_read(B[1::2].pieces, (2**61,), B.shape, np.array([0, 1, 2**62 - 1])).tolist() == [False, True, True]  # type: ignore[union-attr]
