"""Internal overlap and order of cells, against what NumPy lists."""

from __future__ import annotations

from math import prod
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.lib.stride_tricks import as_strided

from tapestry_sets import (
    Allocation,
    View,
    allocate,
    concatenate,
    has_internal_overlap,
    internal_overlap,
    is_contiguous,
    overlap,
    overlap_matrix,
    overlaps,
    pad,
    roll,
)
from tapestry_sets.alias.ladder import known as known_module
from tapestry_sets.alias.ladder.cells import Cells
from tapestry_sets.alias.memory.arrays import AtAddress
from tapestry_sets.solvers import isl
from tests.oracles import memory_for, read_view
from tests.strategies import view_pairs, views

Pair = tuple[View, np.ndarray, View, np.ndarray, Allocation]


# ------------------------------------------------------------------------------------------------ a cell read twice


def check_twice(view: View, values: np.ndarray) -> None:
    """A view of allocations that hold values >= 1, each its own; 0 is a constant."""
    read = values[values > 0]
    found = view.internal_overlap()
    assert (found is not None) == (len(np.unique(read)) < len(read)) == view.has_internal_overlap()
    if found is not None:
        assert found.a < found.b and all(0 <= x < n for at in found[:2] for x, n in zip(at, view.shape, strict=True))
        assert values[found.a] == values[found.b]
        assert isinstance(found.allocation, Allocation)
        assert values[found.a] == memory_for([view])[found.allocation][found.cell]


@given(views(length=6, cells=300))
def test_a_cell_that_is_read_twice_is_named(pair: tuple[View, np.ndarray]) -> None:
    check_twice(*pair)


@given(view_pairs(length=2, cells=80), view_pairs(length=2, cells=80))
def test_so_it_is_of_several_allocations(left: Pair, right: Pair) -> None:
    view = concatenate([v.ravel() for v in (left[0], right[0], right[2])])
    check_twice(view, read_view(view, memory_for([view])))


@given(views(length=4, cells=120))
def test_halves_find_it_where_products_are_too_many(pair: tuple[View, np.ndarray]) -> None:
    with patch.object(known_module.tuning, "MAX_BOXES", 0):
        check_twice(*pair)


@pytest.mark.parametrize("n", [1, 10**9])
def test_windows_of_a_shattering_chain_overlap(n: int) -> None:
    A = allocate((10, 11, n))
    chain = A[:, :5].reshape(50, n)[:49].reshape(7, 7, n)[:, :3].reshape(21, n)
    assert chain.internal_overlap() is None
    windows = chain.sliding_windows(3, step=2)
    found = windows.internal_overlap()
    assert found is not None and windows.has_internal_overlap()
    rows = np.arange(110).reshape(10, 11)[:, :5].ravel()[:49].reshape(7, 7)[:, :3].ravel()
    for row, at, offset in (found.a, found.b):
        assert found.cell == (*divmod(int(rows[2 * row + offset]), 11), at)


small_strides = st.integers(-9, 9)
shapes = st.lists(st.integers(1, 4), max_size=4)


@given(shapes, st.data())
def test_strided_arrays_of_any_strides(shape: list[int], data: st.DataObject) -> None:
    strides = [data.draw(small_strides) for _ in shape]
    numbers = [sum(x * by for x, by in zip(at, strides, strict=True)) for at in np.ndindex(*shape)]
    array = strided_array(shape, strides)
    found = internal_overlap(array)
    assert (found is not None) == (len(set(numbers)) < len(numbers)) == has_internal_overlap(array)
    if found is not None:
        at = [sum(x * by for x, by in zip(index, strides, strict=False)) for index in found[:2]]
        assert found.a != found.b and at[0] == at[1]


def strided_array(shape: list[int], strides: list[int], dtype: Any = np.uint8) -> np.ndarray:
    """An array of these strides within a buffer: addresses alone are read."""
    low = sum(min(0, (n - 1) * by) for n, by in zip(shape, strides, strict=True))
    high = sum(max(0, (n - 1) * by) for n, by in zip(shape, strides, strict=True))
    buffer = np.zeros(high - low + np.dtype(dtype).itemsize, np.uint8)
    start = buffer[-low : -low + np.dtype(dtype).itemsize].view(dtype)
    return as_strided(start, shape, strides) if shape else start.reshape(())


@pytest.mark.parametrize(
    ("counts", "strides", "overlaps"),
    [
        ((1000, 1000, 1000, 1000, 1000), (1, 10**3, 10**6, 10**9, 10**12), False),
        ((1001, 1000, 1000, 1000, 1000), (1, 10**3, 10**6, 10**9, 10**12), True),
        ((1000, 1000, 1000, 1000, 2), (1, 10**3, 10**6, 10**9, 10**12 - 1), True),
        ((999, 1000, 999, 1000, 2), (1, 10**3, 10**6 + 7, 10**9 + 7001, 10**12 + 7 * 10**6), False),
        ((50, 60, 70, 80, 90), (36674, 61119, 85569, 12223, 12224), True),
        ((10, 11, 12, 13, 14), (10**9 + 7, 10**9 + 9, 998244353, 10**9 + 21, 10**9 + 33), None),
        ((7, 6, 5, 6, 7), (10**9 + 7, 10**9 + 90, 998244353, 10**9 + 2100, 10**9 + 33333), None),
    ],
)
def test_arrays_of_rank_five_with_long_strides_are_decided(
    counts: tuple[int, ...], strides: tuple[int, ...], overlaps: bool | None
) -> None:
    """Those of fewer elements are listed."""
    if overlaps is None:
        sums = np.ravel(sum(np.ix_(*(by * np.arange(n) for n, by in zip(counts, strides, strict=True)))))
        overlaps = len(np.unique(sums)) < len(sums)
    view = allocate((10**18,)).apply(AtAddress((*counts, 1), (*strides, 1)))
    found = view.internal_overlap()
    assert (found is not None) == overlaps == view.has_internal_overlap()
    if found is not None:
        one, two = (sum(x * by for x, by in zip(index, strides, strict=False)) for index in found[:2])
        assert one == two == found.cell[0] and found.a != found.b


# ----------------------------------------------------------------------------------------------------------- in order


def check_order(view: View, values: np.ndarray) -> None:
    for order in ("C", "F"):
        flat = values.ravel(order=order)
        wanted = flat.size == 0 or (flat[0] > 0 and np.array_equal(flat, flat[0] + np.arange(flat.size)))
        assert view.is_contiguous(order) == wanted == is_contiguous(view, order)  # type: ignore[arg-type]


@given(views(length=4))
def test_order_is_that_of_the_values(pair: tuple[View, np.ndarray]) -> None:
    check_order(*pair)


@given(view_pairs(length=1, cells=60), st.integers(0, 60), st.integers(0, 60))
def test_pieces_put_together_are_in_order_or_not(pair: Pair, i: int, j: int) -> None:
    """A flat view cut at two places, put together as it was and in another order."""
    view, values = pair[0].ravel(), pair[1].ravel()
    i, j = sorted((min(i, view.size), min(j, view.size)))
    cuts = [slice(0, i), slice(i, j), slice(j, None)]
    for order in ((0, 1, 2), (1, 0, 2), (0, 2, 1)):
        check_order(concatenate([view[cuts[k]] for k in order]), np.concatenate([values[cuts[k]] for k in order]))


@given(views(length=3, cells=100))
def test_order_is_decided_by_isl_where_products_are_too_many(pair: tuple[View, np.ndarray]) -> None:
    pytest.importorskip("islpy")
    with patch.object(known_module.tuning, "MAX_BOXES", 0):
        check_order(*pair)


@given(shapes, st.data(), st.sampled_from([np.uint8, np.int16, np.float64]))
def test_flags_of_strided_arrays_are_numpys(shape: list[int], data: st.DataObject, dtype: Any) -> None:
    itemsize = np.dtype(dtype).itemsize
    dense = [itemsize * prod(shape[k + 1 :]) for k in range(len(shape))]
    fortran = [itemsize * prod(shape[:k]) for k in range(len(shape))]
    some = st.sampled_from([*dense, *fortran, 0, -itemsize, 2 * itemsize, itemsize + 1])
    any_ = st.lists(some, min_size=len(shape), max_size=len(shape))
    strides = data.draw(st.sampled_from([dense, fortran]) | st.permutations(dense) | any_)
    array = strided_array(shape, strides, dtype)
    assert is_contiguous(array, "C") == array.flags.c_contiguous
    assert is_contiguous(array, "F") == array.flags.f_contiguous
    numbers = {
        int(sum(x * by for x, by in zip(at, strides, strict=True))) + byte
        for at in np.ndindex(*shape)
        for byte in range(itemsize)
    }
    assert is_contiguous(array) == (max(numbers) - min(numbers) + 1 == len(numbers))


def test_orders_of_larger_chains() -> None:
    n = 10**9
    A = allocate((n, n + 1), name="A")
    assert A.is_contiguous("C") and not A.is_contiguous("F") and A.T.is_contiguous("F")
    assert A[5:7].is_contiguous("C") and not A[:, 1:].is_contiguous("C") and A[3, 1:].is_contiguous("F")
    assert A.reshape(n + 1, n).is_contiguous("C") and not A.T.reshape(n, n + 1).is_contiguous("C")
    assert concatenate([A[:5], A[5:]]).is_contiguous("C") and not concatenate([A[5:], A[:5]]).is_contiguous("C")
    assert not pad(A[:2], 1).is_contiguous("C") and not pad(A, 2)[:1].is_contiguous("C")
    assert A[0:0].is_contiguous("C") and A[:1, :1].is_contiguous("F")
    assert not A[:, None].broadcast_to((n, 2, n + 1)).is_contiguous("C")
    assert not roll(A, 1, 0).is_contiguous("C") and roll(roll(A, 1, 0), -1, 0).is_contiguous("C")
    assert not concatenate([A, allocate((1, n + 1))]).is_contiguous("C")


@pytest.mark.parametrize("order", ["c", "K", "A", 1, True])
def test_other_orders_are_refused(order: Any) -> None:
    with pytest.raises(ValueError, match='must be None \\(as a set\\), "C"'):
        allocate((3,)).is_contiguous(order)


def test_without_isl_too_many_products_are_refused() -> None:
    A = allocate((10, 11))
    view = concatenate([A[:3], roll(A[3:7], 1, 0), A[7:]])
    with (
        patch.object(known_module.tuning, "MAX_BOXES", 0),
        patch.object(isl, "available", lambda: False),
        pytest.raises(ValueError, match="in order"),
    ):
        view.is_contiguous("C")
    assert isinstance(view.cells[A], Cells)


def test_a_cell_read_twice_is_named_with_its_own_allocation() -> None:
    a, b = allocate((2,), name="A"), allocate((5,), name="B")
    for view in (concatenate([a, b]).take([0, 6, 6], 0), pad(concatenate([a, b]), [(0, 1)], "edge")):
        found = view.internal_overlap()
        assert found is not None and found.allocation is b and found.cell == (4,)


@pytest.mark.parametrize("shape", [(0,), (0, 3), (4, 0)])
def test_memory_without_cells_meets_nothing(shape: tuple[int, ...]) -> None:
    empty = allocate(shape)
    for view in (empty, empty[:], empty.T):
        assert not overlaps(empty, view) and not overlap(empty, view) and not overlap_matrix([empty, view]).any()


def test_equality_is_symmetric_where_comparing_takes_many_branches() -> None:
    """From one side every patch is cut, from the other one is: only one of them is within the budget."""
    rows = np.random.default_rng(0).integers(0, 2, 500).tolist()
    view = pad(allocate((2, 3)).take(rows, 0), [(3, 2), (1, 1)], "symmetric")
    again = view.T.T
    assert view == again and again == view and view.same_view(again)
