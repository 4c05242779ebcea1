"""Cells of one allocation, read through pieces, against cells that NumPy lists."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

from tapestry_sets import TooHard, TooManyPieces, View, allocate
from tapestry_sets.cells import read_cells
from tests.oracles import memory_for, read_view
from tests.strategies import views


@given(views())
def test_numbers_are_those_that_the_view_reads(pair: tuple[View, np.ndarray]) -> None:
    view, values = pair
    (home,) = view.allocations
    found = read_cells(view.pieces, 0, view.shape, home.shape, home.size)
    numbers = set((values[values > 0] - 1).tolist())
    assert set(found.explicit().elements(0, home.size).tolist()) == numbers
    assert found.size == len(numbers) and found.is_empty == (not numbers)
    assert {tuple(p) for p in found.regions().points().tolist()} == {
        tuple(int(x) for x in np.unravel_index(z, home.shape)) for z in numbers
    }


@given(views(length=3, cells=60))
def test_index_of_inverts_every_cell(pair: tuple[View, np.ndarray]) -> None:
    view, _ = pair
    memory = memory_for([view])
    values = read_view(view, memory)
    for home, c in view.cells.items():
        for cell in np.ndindex(home.shape):
            index = c.index_of(cell)
            reads = memory[home][cell] in values
            assert (index is not None) == reads
            assert index is None or values[index] == memory[home][cell]


@given(views(length=3))
def test_isl_answers_alike(pair: tuple[View, np.ndarray]) -> None:
    """Where closed forms end isl takes over: with the setts taken away, the answers stay."""
    pytest.importorskip("islpy")
    view, _ = pair
    for c in view.cells.values():
        other = replace(c, setts=None)
        assert other.size == c.size and not other.is_empty
        assert other.is_run() == c.is_run()
        assert other.meets(c) and c.issubset(other) and other.issubset(c)
        assert other.count_common(c) == c.size
        cell = c.a_common_cell(other)
        assert cell is not None and c.index_of(cell) is not None
        with pytest.raises(TooManyPieces, match="answer without"):
            other.regions()


def test_counting_what_only_isl_knows_is_refused_when_large() -> None:
    pytest.importorskip("islpy")
    A = allocate((10**8,))
    c = replace(A[::3].cells[A], setts=None)
    with pytest.raises(TooHard, match="the witness do not"):
        _ = c.size
