"""Cells of one allocation, read through pieces, against cells that NumPy lists."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given

from tapestry_sets import Allocation, TooHard, TooManyPieces, View, allocate, isl, overlap, overlaps
from tapestry_sets.arrays import MEMORY, Strided
from tapestry_sets.cells import Cells, read_cells
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
    """Where closed forms end and views are large isl takes over: with the setts taken away, the answers stay."""
    pytest.importorskip("islpy")
    with patch.object(Cells, "listed", lambda self, limit: None):
        answers_stay_without_setts(pair[0])


@given(views(length=3))
def test_listed_cells_answer_alike(pair: tuple[View, np.ndarray]) -> None:
    """Where closed forms end the cells of a small view are listed: with the setts taken away, the answers stay."""
    answers_stay_without_setts(pair[0])


def answers_stay_without_setts(view: View) -> None:
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
    c = replace(A.sliding_windows(3).cells[A], setts=None)
    with pytest.raises(TooHard, match="the witness do not"):
        _ = c.size


# ----------------------------------------------------------------------------------------------------- hard cases


def cascade(periods: int) -> tuple[Allocation, View]:
    """4 of 7, then p // 2 of p for 11, 13, 17, 19, 23, each reshaped from the last; 95,040 cells in each period."""
    moduli = [(7, 4), *((p, p // 2) for p in (11, 13, 17, 19, 23))]
    A = view = allocate((prod(p for p, _ in moduli) * periods,))
    for p, on in moduli:
        view = view.ravel()[: view.size // p * p].reshape(-1, p)[:, :on]
    return A, view


def cascade_reads(numbers: np.ndarray) -> np.ndarray:
    """Say for each number whether the cascade reads it, level by level from the ranks."""
    keep = np.ones(len(numbers), bool)
    ranks = numbers
    for p, on in [(7, 4), (11, 5), (13, 6), (17, 8), (19, 9), (23, 11)]:
        row, at = np.divmod(ranks, p)
        keep &= at < on
        ranks = row * on + np.minimum(at, on - 1)
    return keep


@pytest.mark.parametrize("periods", [1, 10**12])
def test_a_cascade_is_measured_without_counting(periods: int) -> None:
    A, view = cascade(periods)
    assert not view.is_contiguous() and not view.has_internal_overlap()
    assert view.cells[A].size == view.size
    assert overlaps(view, A[3::11]) and not overlaps(view, A[6::7])


def test_a_cascade_is_listed_where_it_is_counted() -> None:
    A, view = cascade(1)
    every = np.flatnonzero(cascade_reads(np.arange(A.size)))
    assert view.cells[A].size == len(every) == 4 * 5 * 6 * 8 * 9 * 11 * 1
    found = overlap(view, A[3::11])
    assert found.size == int((every % 11 == 3).sum())
    at = found.witness
    assert at is not None and at.cell[0] in every and at.cell == (3 + 11 * at.b[0],)
    assert view.contains(view[::3]) and not view[::3].contains(view)


def test_interleaved_strides_are_listed() -> None:
    """Sums of steps 36674, 61119 and 85569, 30 of each: no few setts, but only 27,000 cells."""
    A = allocate((36674 * 29 + 61119 * 29 + 85569 * 29 + 1,))
    i = np.arange(30)
    sums = 36674 * i[:, None, None] + 61119 * i[:, None] + 85569 * i
    c = MEMORY.apply(Strided(5, (30, 30, 30), (36674, 61119, 85569), 1)).cells[MEMORY]
    assert A.size == sums.max() + 1
    assert c.size == len(np.unique(sums)) and not c.is_run() and not c.is_empty


@pytest.mark.parametrize("n", [4, 10, 10**3, 10**15])
def test_diagonals_are_one_progression(n: int) -> None:
    B = allocate((n, n))
    diagonal = B.diagonal()
    assert diagonal.cells[B].size == n
    found = overlap(diagonal, B[::5])
    assert found.size == len(range(0, n, 5)) == diagonal.cells[B].count_common(B[::5].cells[B])


def test_isl_gives_up_within_its_limit() -> None:
    """What neither setts nor lists decide goes to isl, which is stopped, and answers the next question."""
    pytest.importorskip("islpy")
    c = MEMORY.apply(Strided(5, (300, 300, 300), (36674, 61119, 85569), 1)).cells[MEMORY]
    assert not c.is_run()
    with pytest.raises(TooHard, match=r"view of shape \(300, 300, 300, 1\)"):
        _ = c.size
    points = c.to_isl()
    with pytest.raises(TooHard, match="stopped"):
        isl.bounded(lambda: isl.count_points(points, 10**9), TooHard("stopped"), 1000)
    assert isl.bounded(lambda: isl.a_point(points), TooHard("stopped")) is not None


@pytest.mark.parametrize("n", [10, 10**7])
def test_gaps_at_the_ends_are_no_run(n: int) -> None:
    """Sums of 3s and 5s leave out 1, 2, 4 and 7, whatever fills up between."""
    pytest.importorskip("islpy")
    gaps = MEMORY.apply(Strided(0, (n, n), (3, 5), 1))
    assert not gaps.is_contiguous()
    assert overlaps(gaps, MEMORY[7:9]) and not overlaps(gaps, MEMORY[7:8])
