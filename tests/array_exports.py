"""Arrays for the tests of memory: random views of two buffers, and wrappers that speak one protocol each."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

# --------------------------------------------------------------------------------------------------- what is true


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


def pointer(x: np.ndarray) -> int:
    return x.__array_interface__["data"][0]


def offsets(shape: Sequence[int], strides: Sequence[int]) -> np.ndarray:
    """How far each element lies from the first, all of them."""
    axes = enumerate(zip(shape, strides, strict=True))
    each = [np.arange(n).reshape(-1, *(1,) * (len(shape) - 1 - k)) * s for k, (n, s) in axes]
    return np.broadcast_to(sum(each, np.zeros((1,) * len(shape), int)), shape)


def addresses(x: np.ndarray) -> set[int]:
    """Every byte's address, from pointer and strides."""
    elements = offsets(x.shape, x.strides)
    return {int(pointer(x) + e + t) for e in elements.ravel() for t in range(x.itemsize)}


# ----------------------------------------------------------------------------------------------- random views of NumPy

TABLE = np.dtype([("a", "<i2"), ("b", "<f4", (2,)), ("c", "u1")])
DTYPES = [np.dtype(name) for name in ("u1", "<i2", "<f4", ">f8", "<c16", "S3", "<U1", "?", "<M8[s]")]


@st.composite
def strided_views(draw: st.DrawFn, base: np.ndarray) -> np.ndarray:
    """Any strides within a buffer of bytes: overlaps, zeros, negative ones, elements that lie across each other."""
    dtype = draw(st.sampled_from(DTYPES))
    shape = tuple(draw(st.lists(st.integers(0, 4), max_size=3)))
    strides = tuple(draw(st.integers(-7, 12)) for _ in shape)
    moves = [(n - 1) * by for n, by in zip(shape, strides, strict=True)] if 0 not in shape else []
    low, high = sum(m for m in moves if m < 0), sum(m for m in moves if m > 0) + dtype.itemsize
    if high - low > len(base):
        return np.ndarray((0,), dtype, base.data)
    offset = draw(st.integers(-low, len(base) - high))
    return np.ndarray(shape, dtype, base.data, offset, strides)


@st.composite
def sliced_views(draw: st.DrawFn, base: np.ndarray) -> np.ndarray:
    """Slices, transposes, fields and broadcasts of a buffer of bytes under a random dtype from an odd offset on."""
    dtype = draw(st.sampled_from([*DTYPES, TABLE]))
    offset = draw(st.integers(0, 40))
    found = np.ndarray((draw(st.integers(0, (len(base) - offset) // dtype.itemsize)),), dtype, base.data, offset)
    if draw(st.booleans()):
        rows = draw(st.integers(1, 4))
        found = found[: len(found) // rows * rows].reshape(rows, -1)
    if dtype.names and draw(st.booleans()):
        found = found[draw(st.sampled_from(dtype.names))]
    step = st.sampled_from([1, 2, 3, -1, -2])
    found = found[tuple(slice(draw(st.none() | st.integers(0, 3)), None, draw(step)) for _ in range(found.ndim))]
    if draw(st.integers(0, 2)) == 0:
        found = found.transpose(draw(st.permutations(range(found.ndim))))
    return np.broadcast_to(found, (2, *found.shape)) if draw(st.integers(0, 4)) == 0 else found


def views(base: np.ndarray) -> st.SearchStrategy[np.ndarray]:
    return st.one_of(strided_views(base), sliced_views(base))


BASES = [np.zeros(96, np.uint8), np.zeros(64, np.uint8)]


@st.composite
def two_views(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    """Two views, mostly of one buffer."""
    one = draw(st.sampled_from([0, 0, 0, 1]))
    return draw(views(BASES[0])), draw(views(BASES[one]))


def steps_of(count: int, step: int, dtype: str = "u1") -> np.ndarray:
    return np.ndarray((count,), dtype, BASES[0].data, 0, (step,))


# ----------------------------------------------------------------------------------------------- protocols, one alone


class OnlyDLPack:
    """NumPy's DLPack and nothing else."""

    def __init__(self, x: np.ndarray) -> None:
        self._x = x

    def __dlpack__(self, **more: Any) -> object:
        return self._x.__dlpack__(**more)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._x.__dlpack_device__()


class OldDLPack(OnlyDLPack):
    """As before version 1.0, which knows one keyword."""

    def __dlpack__(self, stream: object = None) -> object:
        assert stream is None
        return self._x.__dlpack__()


new_capsule = ctypes.pythonapi.PyCapsule_New
new_capsule.restype = ctypes.py_object
new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
name_of_capsule = ctypes.pythonapi.PyCapsule_GetName
name_of_capsule.restype, name_of_capsule.argtypes = ctypes.c_char_p, [ctypes.py_object]


class Exported:
    """A DLPack exporter of any numbers, its structure written byte by byte as DLPack's header has it."""

    def __init__(
        self,
        address: int,
        shape: tuple[int, ...],
        strides: tuple[int, ...] | None = None,
        bits: int = 8,
        lanes: int = 1,
        device: tuple[int, int] = (1, 0),
        byte_offset: int = 0,
        version: tuple[int, int] | None = None,
        flags: int = 0,
        code: int = 1,
    ) -> None:
        rank = len(shape)
        self.shape = (ctypes.c_int64 * rank)(*shape)
        self.strides = None if strides is None else (ctypes.c_int64 * rank)(*strides)
        at = [0 if x is None else ctypes.addressof(x) for x in (self.shape, self.strides)]
        tensor = struct.pack("@PiiiBBHPPQ", address, *device, rank, code, bits, lanes, *at, byte_offset)
        nothing = (0, 0)  # a context and a deleter
        head = b"" if version is None else struct.pack("@IIPPQ", *version, *nothing, flags)
        self.block = ctypes.create_string_buffer(head + tensor + struct.pack("@PP", *nothing))
        self.name = b"dltensor" if version is None else b"dltensor_versioned"
        self.device = device
        self.asked: list[dict[str, Any]] = []
        self.capsules: list[object] = []

    def __dlpack__(self, **more: Any) -> object:
        self.asked.append(more)
        self.capsules.append(new_capsule(ctypes.addressof(self.block), self.name, None))
        return self.capsules[-1]

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device


class OnlyInterface:
    """An array interface and nothing else."""

    def __init__(self, x: np.ndarray) -> None:
        self._x = x

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return self._x.__array_interface__


class OnlyCuda:
    """A CUDA array interface and nothing else, over addresses that nobody has."""

    def __init__(
        self, address: int, shape: tuple[int, ...], strides: tuple[int, ...] | None = None, typestr: str = "<f4"
    ) -> None:
        self.__cuda_array_interface__ = {
            "version": 3,
            "data": (address, False),
            "shape": shape,
            "strides": strides,
            "typestr": typestr,
            "stream": None,
        }


class OnlyArray:
    """``__array__`` and nothing else: it may return a copy."""

    def __init__(self, x: np.ndarray) -> None:
        self._x = x

    def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray:
        return self._x


def as_memoryview(x: np.ndarray) -> memoryview:
    return memoryview(x)


def as_strict(x: np.ndarray) -> Any:
    return pytest.importorskip("array_api_strict").asarray(x, copy=False)


def as_torch(x: np.ndarray) -> Any:
    return pytest.importorskip("torch").from_numpy(x)
