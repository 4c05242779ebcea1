"""Real arrays against numpy.shares_memory and against the bytes that they hold."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapestry_sets.alias import (
    contains,
    has_internal_overlap,
    is_contiguous,
    origins,
    overlap,
    overlap_matrix,
    overlaps,
    same_elements,
)
from tapestry_sets.arrays import MEMORY, as_view


class Strided:
    """Something with an array interface and no memory behind it."""

    def __init__(self, address: int, shape: tuple[int, ...], strides: tuple[int, ...], typestr: str = "|u1") -> None:
        self.__array_interface__ = {
            "version": 3,
            "data": (address, False),
            "shape": shape,
            "strides": strides,
            "typestr": typestr,
        }


def addresses(x: np.ndarray) -> set[int]:
    """Every byte's address, from pointer and strides."""
    start = x.__array_interface__["data"][0]
    elements = sum(
        (
            np.arange(n).reshape(-1, *(1,) * (x.ndim - 1 - k)) * s
            for k, (n, s) in enumerate(zip(x.shape, x.strides, strict=True))
        ),
        np.zeros((1,) * x.ndim, int),
    )
    elements = np.broadcast_to(elements, x.shape)
    return {int(start + e + t) for e in elements.ravel() for t in range(x.itemsize)}


@st.composite
def arrays(draw: st.DrawFn, base: np.ndarray) -> np.ndarray:
    """A strided view of bytes under a random dtype: negative and zero strides, odd offsets."""
    dtype = np.dtype(draw(st.sampled_from(["u1", "<i2", "<f4", "<c16", "S3"])))
    offset = draw(st.integers(0, 40))
    array = np.ndarray((draw(st.integers(0, (len(base) - offset) // dtype.itemsize)),), dtype, base.data, offset)
    if draw(st.booleans()):
        rows = draw(st.integers(1, 4))
        array = array[: len(array) // rows * rows].reshape(rows, -1)
    key = tuple(slice(None, None, draw(st.sampled_from([1, 2, 3, -1, -2]))) for _ in range(array.ndim))
    array = array[key]
    return np.broadcast_to(array, (2, *array.shape)) if draw(st.integers(0, 4)) == 0 else array


@given(st.data())
def test_arrays_share_the_bytes_that_they_share(data: st.DataObject) -> None:
    base = np.zeros(96, np.uint8)
    a, b = data.draw(arrays(base)), data.draw(arrays(base))
    x, y = addresses(a), addresses(b)
    assert overlaps(a, b) == np.shares_memory(a, b) == bool(x & y)
    found = overlap(a, b)
    assert found.size == found.nbytes == len(x & y)
    assert contains(a, b) == (y <= x) and same_elements(a, b) == (x == y)
    assert has_internal_overlap(a) == (a.nbytes > len(x))
    assert is_contiguous(a) == (not x or max(x) - min(x) + 1 == len(x))
    if found:
        at = found.witness
        assert at is not None and at.cell[0] in x & y
        for array, index in ((a, at.a), (b, at.b)):
            first = array[tuple(slice(i, i + 1) for i in index[:-1])]
            assert first.__array_interface__["data"][0] + index[-1] == at.cell[0]


def test_structured_fields_are_apart() -> None:
    """Two fields of one array: PyTorch and others call such views aliases; byte for byte they are not."""
    table = np.zeros(5, [("a", "<i4"), ("b", "<f8")])
    assert not overlaps(table["a"], table["b"])
    assert overlaps(table, table["b"])
    assert overlaps(table["b"], table["b"][::-2])


def test_negative_and_zero_strides() -> None:
    a = np.zeros((4, 6), np.float32)
    assert same_elements(a, a[::-1, ::-1])
    assert as_view(a[:, ::-2]).kind.strides == (24, -8)
    wide = np.broadcast_to(a[0], (10**6, 6))
    assert overlap(wide, a).nbytes == 24 and has_internal_overlap(wide)
    assert not overlaps(a[:, ::2], a[:, 1::2])


def test_the_bytes_of_an_array_can_be_listed() -> None:
    """The address space has 2⁶⁴ cells; the few that an array reads are listed all the same."""
    a = np.zeros((3, 4), np.int32)[:, ::2]
    found = origins(a)[MEMORY]
    assert {z for (z,) in found.points().tolist()} == addresses(a)


def test_arrays_and_views_mix() -> None:
    a = np.zeros(8, np.uint8)
    b = np.zeros(8, np.uint8)
    window = MEMORY[a.__array_interface__["data"][0] :][:4]
    assert overlaps(window, a) and not overlaps(window, b)
    np.testing.assert_array_equal(overlap_matrix([a, b, window]), [[1, 0, 1], [0, 1, 0], [1, 0, 1]])


@pytest.mark.parametrize(
    ("one", "other", "answer"),
    [
        # numpy.shares_memory takes 20 s for the first and more than 25 s for the second
        (((1049,) * 3, (36674, 61119, 85569), 0), ((1049,) * 2, (12223, 12224), 64023025), False),
        (((10_000,) * 5, (12223, 12224, 36674, 61119, 85569), 0), ((1,), (1,), 89643481), False),
        (((10_000,) * 5, (12223, 12224, 36674, 61119, 85569), 0), ((1,), (1,), 12223 * 7 + 85569 * 3), True),
    ],
)
def test_bounded_strided_overlap_is_decided(one: Any, other: Any, answer: bool) -> None:
    pytest.importorskip("islpy")
    a, b = (Strided(address, shape, strides) for shape, strides, address in (one, other))
    assert overlaps(a, b) == answer
    if answer:
        at = overlap(a, b).witness
        assert at is not None
        assert at.cell[0] == sum(i * s for i, s in zip(at.a, (*one[1], 1), strict=True)) == other[2]


def test_what_is_no_array_is_refused() -> None:
    with pytest.raises(TypeError, match="list is neither a View nor an array"):
        overlaps([1, 2], np.zeros(2))
    with pytest.raises(ValueError, match="Python objects"):
        as_view(np.zeros(2, object))
    broken = Strided(0, (2,), (1,))
    broken.__array_interface__["data"] = None
    with pytest.raises(ValueError, match="no address"):
        as_view(broken)
