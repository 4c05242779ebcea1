"""Adjoints of views: against sums over the cells that a view reads, one by one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from tapestry_sets import Region, Sett, Stripe, TooManyPieces, View, allocate, concatenate, limits, pad, stack
from tapestry_sets.views import Term, assemble_at, scatter_terms
from tests.oracles import cell_read
from tests.strategies import views


def scattered(terms: list[Term], grad: np.ndarray, size: int) -> np.ndarray:
    """The sum of the terms, each read, summed and placed by NumPy's fancy indexing."""
    total = np.zeros(size, grad.dtype)
    for term in terms:
        at = np.full(term.read.shape, term.read.offset)
        for axis, (n, step) in enumerate(zip(term.read.shape, term.read.strides, strict=True)):
            at += (np.arange(n) * step).reshape([-1 if k == axis else 1 for k in range(len(term.read.shape))])
        values = grad.ravel()[at].sum(axis=term.summed).ravel()
        cells = np.sort(term.place.points()[:, 0])
        assert len(cells) == len(values) == len(set(cells.tolist()))
        total[cells] += values
    return total


def one_by_one(view: View, grad: np.ndarray, source: int, home: tuple[int, ...]) -> np.ndarray:
    total = np.zeros(home, grad.dtype)
    for index in np.ndindex(*view.shape):
        for piece in view.pieces:
            cell = cell_read(piece, index) if piece.source == source else None
            if cell is not None:
                total[cell] += grad[index]
    return total.ravel()


@given(views(cells=80))
def test_each_cell_receives_what_reads_it(pair: tuple[View, np.ndarray]) -> None:
    view, _ = pair
    grad = np.arange(1, view.size + 1).reshape(view.shape)
    for source, home in enumerate(view.allocations):
        terms = scatter_terms(view.pieces, view.shape, home.shape, source)
        np.testing.assert_array_equal(
            scattered(terms, grad, home.size), one_by_one(view, grad, source, home.shape), str(view)
        )


def test_sizes_do_not_matter() -> None:
    n = 10**9
    a = allocate((n, 3 * n))
    assert len(scatter_terms(a.T.pieces, (3 * n, n), a.shape)) == 1
    rows = a.broadcast_to((n, n, 3 * n))
    (term,) = scatter_terms(rows.pieces, rows.shape, a.shape)
    assert term.summed == (1,) and term.read.shape == (3 * n * n, n) and term.place.size == a.size
    windows = a.sliding_windows((3, 3), axis=(0, 1))
    assert len(scatter_terms(windows.pieces, windows.shape, a.shape)) <= 9


def test_windows_that_lie_apart_are_one_term() -> None:
    a = allocate((12,))
    w = a.sliding_windows(3, step=3)
    assert len(scatter_terms(w.pieces, w.shape, (12,))) == 1
    assert len(scatter_terms(a.sliding_windows(3).pieces, (10, 3), (12,))) == 3


def test_every_source_has_its_own_terms() -> None:
    a, b = allocate((4,)), allocate((3,))
    both = concatenate([a, b, a[::-1]])
    grad = np.arange(11)
    kinds = scatter_terms(both.pieces, both.shape, (4,), both.allocations.index(a))
    np.testing.assert_array_equal(scattered(kinds, grad, 4), grad[:4] + grad[7:][::-1])
    kinds = scatter_terms(both.pieces, both.shape, (3,), both.allocations.index(b))
    np.testing.assert_array_equal(scattered(kinds, grad, 3), grad[4:7])


def test_constants_and_empty_views_give_nothing() -> None:
    a = allocate((4,))
    padded = pad(a, 2)
    (term,) = scatter_terms(padded.pieces, padded.shape, (4,))
    assert term.read.offset == 2 and term.read.shape == (4,)
    assert scatter_terms(a[:0].pieces, (0,), (4,)) == []


def test_too_many_terms_are_refused() -> None:
    a = allocate((100, 100))
    w = a.sliding_windows((9, 9), axis=(0, 1))
    with limits(max_pieces=20), pytest.raises(TooManyPieces, match="adjoint of a view"):
        scatter_terms(w.pieces, w.shape, a.shape)


def test_what_is_placed_is_read_back() -> None:
    every_third = Region((10,), [Stripe(1, 2)])
    pair = Region((10,), [Sett(Stripe(2, 8, phase=4))])
    kind = assemble_at([every_third, pair], fill=7.0)
    a, b = allocate((4,), name="a"), allocate((2,), name="b")
    view = a.apply(kind, b)
    assert view.shape == (10,)
    read = [
        next((p.source, p.fill, p.map.apply((i,))) for p in view.pieces if cell_read(p, (i,)) is not None)
        for i in range(10)
    ]
    wanted = {0: (0, 0), 3: (0, 1), 6: (0, 2), 9: (0, 3), 4: (1, 0), 5: (1, 1)}
    for i, (source, fill, cell) in enumerate(read):
        assert (source, cell) == (wanted[i][0], (wanted[i][1],)) if i in wanted else (source, fill) == (-1, 7.0)


def test_places_that_share_a_point_are_refused() -> None:
    with pytest.raises(ValueError, match="share"):
        assemble_at([Region((4,), [Stripe(2, 2)]), Region((4,), [Stripe(1, 3, phase=1)])])


def test_stacked_views() -> None:
    a = allocate((2, 3))
    view = stack([a, a.flip(0)], axis=1)
    grad = np.arange(12).reshape(2, 2, 3)
    found = scattered(scatter_terms(view.pieces, view.shape, a.shape), grad, 6)
    np.testing.assert_array_equal(found.reshape(2, 3), grad[:, 0] + grad[:, 1][::-1])
