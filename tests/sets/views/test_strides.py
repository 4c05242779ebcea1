"""Offsets and strides of views against the cells that they read, and bytes against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given

from tapestry_sets import allocate, as_view, concatenate, interleave, pad, stack, tile
from tests.oracles import is_layout
from tests.strategies import views


def steps_of(cells: np.ndarray) -> tuple[int | None, tuple[int, ...] | None]:
    """The offset, where an axis may go by several strides, and the strides where it goes by one; None if they fail."""
    if not cells.size or cells.min() < 0 or not is_layout(cells):
        return None, None
    first = int(cells[(0,) * cells.ndim])
    beside = [tuple(int(a == b) for a in range(cells.ndim)) for b in range(cells.ndim)]
    strides = [int(cells[at]) - first if n > 1 else 0 for at, n in zip(beside, cells.shape, strict=True)]
    total = sum((i * by for i, by in zip(np.indices(cells.shape), strides, strict=True)), np.full(cells.shape, first))
    return first, tuple(strides) if (total == cells).all() else None


@given(views(5))
def test_strides_are_found_where_there_are_any(case: tuple[Any, np.ndarray]) -> None:
    view, values = case
    assert (view.offset, view.strides) == steps_of(np.asarray(values) - 1)  # where the allocation holds 1, 2, 3, …


@given(views(5))
def test_equal_views_have_equal_strides(case: tuple[Any, np.ndarray]) -> None:
    view, _ = case
    simple = view.simplify()
    assert (simple.offset, simple.strides) == (view.offset, view.strides)


def test_strides_of_huge_views() -> None:
    n = 10**12
    A = allocate((n, n), name="A")
    assert (A[5:, ::-3].T.offset, A[5:, ::-3].T.strides) == (6 * n - 1, (-3, n))
    assert concatenate([A[:7], A[7:]]).strides == (n, 1)
    assert interleave([A[::2], A[1::2]]).strides == (n, 1)
    assert stack([A[0], A[4], A[8]]).strides == (4 * n, 1)
    assert stack([A[0], A[4], A[9]]).strides is None
    assert tile(A, 2).strides is pad(A, 1).strides is A[:, 1:].ravel().strides is None


def test_strides_of_real_arrays_are_their_bytes() -> None:
    x = np.zeros((6, 8), np.float32)[1::2, ::-3]
    view = as_view(x)
    assert view.strides == (*x.strides, 1) and view.offset == x.__array_interface__["data"][0]
    assert view.nbytes == x.nbytes


@given(views(4))
def test_bytes_are_numpys(case: tuple[Any, np.ndarray]) -> None:
    view, values = case
    assert view.itemsize == 1 and view.nbytes == np.asarray(values).astype(np.int8).nbytes


def test_bytes_of_a_dtype_and_of_several() -> None:
    A, B = allocate((4, 6), dtype="float32", name="A"), allocate((2,), itemsize=2, name="B")
    assert A[::2].broadcast_to((5, 2, 6)).nbytes == np.broadcast_to(np.zeros((2, 6), "f4"), (5, 2, 6)).nbytes == 240
    assert A.T.itemsize == 4 and A[:0].nbytes == 0
    with pytest.raises(ValueError, match="cells of different bytes: 4 in A, 2 in B; ask its allocations"):
        _ = concatenate([A.ravel(), B]).itemsize
