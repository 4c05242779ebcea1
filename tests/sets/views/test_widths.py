"""Elements of other widths and strides in words, against NumPy's own views of bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tapestry_sets import allocate, as_view, concatenate, overlap, overlaps, pad
from tapestry_sets.views import Allocation
from tests.oracles import memory_for, read_view
from tests.strategies import shapes, subscripts, views

WIDTHS = {1: "u1", 2: "u2", 4: "f4", 8: "f8", 16: "c16", 3: "V3", 6: "S6"}


@st.composite
def arrays(draw: st.DrawFn) -> tuple[Any, np.ndarray]:
    """A view of memory and the same view of an array whose elements are their own numbers, by some basic index."""
    shape = (*draw(shapes(2, 4)), draw(st.sampled_from([0, 1, 2, 4, 6, 8, 12, 24])))
    key = draw(subscripts(shape))
    width = draw(st.sampled_from([1, 2, 4]))
    numbers = np.arange(np.prod(shape, dtype=int)).astype(WIDTHS[width].replace("f", "u")).reshape(shape)
    order = draw(st.permutations(range(numbers[key].ndim)))
    home = allocate(shape, itemsize=width)
    return home[key].permute_dims(order), numbers[key].transpose(order)


@given(arrays(), st.sampled_from(list(WIDTHS.values())))
def test_wider_elements_are_where_numpy_has_them(case: tuple[Any, np.ndarray], dtype: str) -> None:
    view, array = case
    width, cell = np.dtype(dtype).itemsize, array.itemsize
    try:
        wide = array.view(dtype)
    except ValueError:
        with pytest.raises(ValueError, match="view_as: "):
            view.view_as(dtype)
        return
    if width % cell:  # NumPy divides cells, too
        with pytest.raises(ValueError, match="which do not divide them; allocate the memory in cells of fewer bytes"):
            view.view_as(dtype)
        return
    found = view.view_as(dtype)
    if width == cell:
        assert found is view
        return
    assert found.shape == (*wide.shape, width // cell)
    cells = np.ascontiguousarray(wide).view(array.dtype).reshape(found.shape)
    read = read_view(found, memory_for([found])) - 1
    assert (read == cells).all()
    assert found.nbytes == wide.nbytes and found.itemsize == cell


@given(views(5), st.integers(2, 4))
@example((allocate(()), np.ones(())), 2)
def test_elements_are_refused_that_do_not_lie_together(case: tuple[Any, np.ndarray], many: int) -> None:
    view, values = case
    values = np.asarray(values)
    n = values.shape[-1] if values.ndim else 1
    good = bool(values.ndim) and n % many == 0
    if good and values.size:
        groups = values.reshape(*values.shape[:-1], n // many, many)
        good = bool((groups[..., 1:] == groups[..., :-1] + 1).all() and values.min() > 0)
    try:
        found = view.view_as(f"V{many}")
    except ValueError:
        assert not good
        return
    assert good and found.shape == (*view.shape[:-1], n // many, many)


def test_a_page_of_halves_and_floats() -> None:
    """Blocks of several widths over one storage, as paged caches have them."""
    storage = allocate((10**6, 96), name="storage", dtype="uint8")
    keys, scales = storage[:, :64].view_as("float16"), storage[:, 64:].view_as("float32")
    assert keys.shape == (10**6, 32, 2) and scales.shape == (10**6, 8, 4)
    assert not overlaps(keys, scales)
    assert overlap(storage[:, 2:66].view_as("float16"), scales).nbytes == 2 * 10**6


def test_real_arrays_and_described_ones_agree() -> None:
    x = np.zeros((4, 12), np.uint8)
    described = as_view(x)[..., 0].view_as("f4")
    assert described == as_view(x.view("f4"))


@given(st.data())
def test_as_strided_reads_what_numpys_does(data: st.DataObject) -> None:
    n = 40  # beyond the farthest reach, 3 · 3 · 4
    shape = tuple(data.draw(st.lists(st.integers(0, 4), max_size=3)))
    strides = tuple(data.draw(st.integers(-4, 4)) for _ in shape)
    reaches = [(m - 1) * by for m, by in zip(shape, strides, strict=True)]
    low, high = sum(r for r in reaches if r < 0), sum(r for r in reaches if r > 0)
    offset = data.draw(st.integers(-low, n - 1 - high))
    base = allocate((5, 8))
    numbers = np.arange(n)
    wanted = np.lib.stride_tricks.as_strided(numbers[offset:], shape, [8 * by for by in strides])
    view = base.as_strided(shape, strides, offset)
    assert view.shape == wanted.shape
    assert (read_view(view, memory_for([view])) - 1 == wanted).all()


A: Allocation = allocate((4, 6), name="A", dtype="uint16")


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: A.view_as("u1"), ValueError, "dtype 'u1' has 1 bytes, and a cell of .* has 2"),
        (lambda: A.view_as("V3"), ValueError, "dtype 'V3' has 3 bytes"),
        (
            lambda: A.view_as("f8"),
            ValueError,
            r"4 cells of 2 bytes, which do not divide the last axis of shape \(4, 6\)",
        ),
        (lambda: A[0, 0].view_as("f4"), ValueError, r"the last axis of shape \(\)"),
        (lambda: A.T.view_as("f4"), ValueError, "are not one after the other in memory along the last axis"),
        (lambda: A[:, 1:5].broadcast_to((2, 4, 4))[..., ::-1].view_as("f4"), ValueError, "before it is sliced"),
        (lambda: pad(A, ((0, 0), (1, 1))).view_as("f4"), ValueError, "are not one after the other"),
        (lambda: A.view_as(None), TypeError, "dtype None is not one of NumPy's"),
        (lambda: A.view_as("word"), TypeError, "dtype 'word' is not one of NumPy's; give one such as 'float32'"),
        (lambda: A.view_as(object), ValueError, "holds references to objects"),
        (lambda: A.view_as("U"), ValueError, "has no size; give it one, as in 'S8'"),
        (lambda: concatenate([A, allocate((4, 6))]).view_as("f4"), ValueError, "cells of different bytes"),
        (lambda: allocate(4, dtype="word"), TypeError, "allocate: dtype 'word' is not one of NumPy's"),
        (lambda: A.as_strided((2, 3), (1,)), ValueError, r"strides \(1,\) for shape \(2, 3\); give one for each axis"),
        (lambda: A.as_strided(4, 8), ValueError, r"reads cells 0 to 24 of a source of shape \(4, 6\), which has 24"),
        (lambda: A.as_strided(4, 1.5), TypeError, "as_strided: strides"),
        (lambda: A.as_strided((-1,), (1,)), ValueError, "must be >= 0"),
        (lambda: A.as_strided(4, 1, None), TypeError, "as_strided: offset must be an integer"),
    ],
)
def test_wrong_input(call: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        call()
