"""Is a reshape a view? As NumPy does it, and as PyTorch answered once for a table of tensors."""

from __future__ import annotations

import json
from math import prod
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapestry_sets import allocate, concatenate, pad, reshape_is_view
from tests.strategies import chains

TORCH = json.loads(Path(__file__).with_name("torch_views.json").read_text())
"""What `tests/sets/alias/torch_views.py` printed: shape, strides, new shape, and whether `Tensor.view` took it."""


@st.composite
def strided(draw: st.DrawFn) -> tuple[np.ndarray, tuple[int, ...]]:
    """An array of few strides that often go on in each other, and a shape of as many elements."""
    shape = tuple(draw(st.lists(st.sampled_from([1, 2, 3, 4, 6, 0]), max_size=4)))
    strides: list[int] = []
    step = draw(st.sampled_from([4, 8, -4, 6, 0]))
    for n in reversed(shape):
        strides.append(step)
        step = draw(st.sampled_from([step * max(n, 1)] * 3 + [4, -8, 0]))
    base = np.zeros(1 << 16, np.uint8)[1 << 15 :]
    low = sum((n - 1) * by for n, by in zip(shape, reversed(strides), strict=True) if by < 0 and n)
    start = base[-low : -low + 4].view(np.float32) if low else base[:4].view(np.float32)
    array = np.lib.stride_tricks.as_strided(start, shape, tuple(reversed(strides)))
    return array, draw(st.sampled_from(shapes_of(array.size)))


def shapes_of(size: int) -> list[tuple[int, ...]]:
    """Shapes of a size, some with extents of 1."""
    found = [(size,), (1, size), (size, 1)] + [(a, size // a) for a in (2, 3, 4, 6) if size % a == 0]
    found += [(a, b, size // a // b) for a in (1, 2, 3, 4) for b in (1, 2, 3) if size % (a * b) == 0]
    return [*found, *([()] if size == 1 else []), *([(0, 5), (3, 0, 2)] if not size else [])]


@given(strided(), st.sampled_from(["C", "F"]))
def test_numpy_agrees(case: tuple[np.ndarray, tuple[int, ...]], order: Literal["C", "F"]) -> None:
    array, shape = case
    found = reshape_is_view(array, shape, order)
    try:
        made = np.reshape(array, shape, order=order, copy=False)
    except ValueError:
        assert not found.numpy and not found.torch and found.strides is None
        return
    assert found.numpy
    if found.strides is not None:
        assert found.strides == tuple(by if n > 1 else 0 for n, by in zip(made.shape, made.strides, strict=True))


@given(st.data())
def test_views_are_as_arrays_of_their_strides(data: st.DataObject) -> None:
    base = allocate(data.draw(st.sampled_from([(4, 6), (2, 3, 4), (24,)])), name="A")
    memory = np.arange(1, base.size + 1).reshape(base.shape)
    view, array = data.draw(chains(base, memory, 3, 100))
    shape = data.draw(st.sampled_from(shapes_of(view.size)))
    found = reshape_is_view(view, shape)
    made = view.reshape(shape)
    if found and view.size:
        assert made.strides == found.strides
        cells = np.asarray(array).reshape(shape)
        corner = cells.ravel()[0]
        steps = [int(np.take(cells, 1, axis=k).ravel()[0] - corner) if n > 1 else 0 for k, n in enumerate(shape)]
        assert tuple(steps) == found.strides
    elif view.size and view.strides is not None and not found.numpy:
        assert made.strides is None


@pytest.mark.parametrize("case", TORCH, ids=lambda c: f"{c[0]}:{c[1]}->{c[2]}")
def test_pytorch_agrees(case: list[Any]) -> None:
    shape, strides, new, taken = case
    reach = sum((n - 1) * by for n, by in zip(shape, strides, strict=True) if n)
    view = allocate((reach + 1,)).as_strided(shape, strides)
    assert reshape_is_view(view, new).torch == taken
    array = np.lib.stride_tricks.as_strided(np.zeros(reach + 1, np.float32), shape, [4 * by for by in strides])
    assert reshape_is_view(array, new).torch == taken


def test_the_table_has_both_answers() -> None:
    assert len(TORCH) > 100 and 20 < sum(taken for *_, taken in TORCH) < len(TORCH) - 20
    assert all(prod(shape) == prod(new) for shape, _, new, _ in TORCH)


def test_views_without_strides_are_copies_before() -> None:
    A = allocate((4, 6), name="A")
    for view in (A[:, :4].reshape(16), pad(A, 1), concatenate([A[2:], A[:2]])):
        found = reshape_is_view(view, -1)
        assert not found and "has no strides" in repr(found)
    joined = concatenate([A[:, :2], A[:, 2:]], axis=1)
    assert reshape_is_view(joined, (24,)).strides == (1,)


def test_large_views_and_reasons() -> None:
    A = allocate((10**9, 10**9), name="A")
    assert reshape_is_view(A[::2], (5 * 10**8, 10**5, 10**4)).strides == (2 * 10**9, 10**4, 1)
    assert repr(reshape_is_view(A.T, 10**18)) == (
        "ReshapeView(a copy: 1 is not 1000000000 * 1000000000, where axes 0 and 1 would be one)"
    )
    assert reshape_is_view(A[::-1], A.shape).numpy and not reshape_is_view(A[::-1], A.shape).torch
    fields = np.zeros(6, np.dtype([("a", "i1"), ("b", "f4")]))["b"]
    assert reshape_is_view(fields, (2, 3)).numpy and "whole elements" in repr(reshape_is_view(fields, (2, 3)))


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: reshape_is_view("x", 3), TypeError, "reshape_is_view: x: str is neither a View nor an array"),
        (lambda: reshape_is_view(np.zeros(4), (3,)), ValueError, r"cannot view shape \(4,\) \[4 elements\]"),
        (lambda: reshape_is_view(np.zeros(4), 4, "K"), ValueError, "order 'K' must be"),
        (lambda: reshape_is_view(np.zeros(4), 2.0), TypeError, "reshape_is_view: shape"),
    ],
)
def test_wrong_input(call: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        call()
