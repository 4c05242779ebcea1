"""cuBLAS's products, called through ctypes: CuPy refuses its own calls of cuBLAS while a stream is recorded.

cuBLAS counts columns first. The bytes of a matrix, read so, are its transpose's, so that operands change places::

    out      =  a      @ b          rows first
    [m, n]      [m, k]   [k, n]

    outᵀ     =  bᵀ     @ aᵀ         columns first: the same bytes
    [n, m]      [n, k]   [k, m]

A transposed operand is a flag, an operand of fewer matrices than the result a step of 0. Matrices whose rows lie one
behind the other are one matrix where they share the other operand.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Sequence
from functools import lru_cache
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from tapestry_exec.cuda.tuning import KEPT, WORKSPACE_NBYTES
from tapestry_sets.digits import Ints

KINDS = {"float16": 2, "float32": 0, "float64": 1, "complex64": 4, "complex128": 5}
"""Dtypes of products, by cuBLAS's numbers (cudaDataType)."""
WIDE = {"float64", "complex128"}
SINGLE, DOUBLE, TF32 = 68, 70, 77
"""In what sums are made (cublasComputeType)."""
LARGEST = 2**31 - 1
"""Extents and steps from row to row are 32-bit integers."""
SUCCESS = 0


class Operand(NamedTuple):
    """A matrix as cuBLAS is told of it: whether it is transposed, and cells from row to row as it lies."""

    is_transposed: int
    step: int


class Products(NamedTuple):
    """Products of matrices by one call for each of `starts`.

    Parameters
    ----------
    rows, columns, depth : int
        Of each result, of its rows and columns, and what is summed over.
    operands : tuple of Operand
        The first, the second, the result.
    steps : tuple of int
        Cells from matrix to matrix, of each.
    batch : int
        Matrices in one call.
    starts : tuple of tuple of int
        For each call the cells before each operand's first one.
    swaps : bool
        Whether the first operand is the second one given: the result lies columns first.
    """

    rows: int
    columns: int
    depth: int
    operands: tuple[Operand, Operand, Operand]
    steps: Ints
    batch: int
    starts: tuple[Ints, ...]
    swaps: bool


StackOfMatrices = tuple[Ints, Ints]
"""Shape and strides, in cells."""


@lru_cache(maxsize=KEPT)
def lay_products(a: StackOfMatrices, b: StackOfMatrices, out: StackOfMatrices) -> Products | None:
    """How cuBLAS is called for ``out = a @ b``, as NumPy's `matmul`; None where an operand must be copied first.

    Parameters
    ----------
    a, b, out : (shape, strides in cells)
        Of matrices, or of stacks of them, whose extents before the last two are broadcast. None is empty.

    Examples
    --------
    Three matrices of rows that lie one behind the other, times one transposed matrix:

    >>> made = lay_products(((3, 4, 5), (20, 5, 1)), ((5, 6), (1, 5)), ((3, 4, 6), (24, 6, 1)))
    >>> made.rows, made.columns, made.depth, made.batch
    (12, 6, 5, 1)
    >>> made.operands
    (Operand(is_transposed=0, step=5), Operand(is_transposed=1, step=5), Operand(is_transposed=0, step=6))
    """
    if _lie(out, 0) is None:  # the result lies columns first: its transpose is bᵀ @ aᵀ
        found = _lay(*(((*s[:-2], *s[:-3:-1]), (*t[:-2], *t[:-3:-1])) for s, t in (b, a, out)))
        return None if found is None else found._replace(swaps=True)
    return _lay(a, b, out)


def _lay(a: StackOfMatrices, b: StackOfMatrices, out: StackOfMatrices) -> Products | None:
    (*extents, rows, columns), depth = out[0], a[0][-1]
    steps = [_broadcast(one, len(extents)) for one in (a, b, out)]
    stack = [(n, *each) for n, *each in zip(extents, *steps, strict=True) if n != 1]
    across = rows, a[1][-2], out[1][-2]
    while stack and stack[-1][2] == 0:  # one second operand for all of these: their rows are rows of one matrix
        n, step, _, made = stack[-1]
        if across[0] > 1 and (step, made) != (across[0] * across[1], across[0] * across[2]):
            break
        across = (n, step, made) if across[0] == 1 else (n * across[0], *across[1:])
        stack.pop()
    rows = across[0]
    first = _lie(((rows, depth), (across[1], a[1][-1])))
    second = _lie((b[0][-2:], b[1][-2:]))
    result = _lie(((rows, columns), (across[2], out[1][-1])), 0)
    if first is None or second is None or result is None:
        return None
    stack = _merged(stack)
    # The longest extent is one call's, if it goes forward in all operands; the others are calls of their own.
    longest = max((n for n, *steps in stack if min(steps) >= 0), default=0)
    chosen = next((k for k, (n, *steps) in enumerate(stack) if n == longest and min(steps) >= 0), len(stack))
    outer, (batch, *inner) = [*stack[:chosen], *stack[chosen + 1 :]], [*stack, (1, 0, 0, 0)][chosen]
    starts = [
        tuple(sum(k * steps[which] for k, (_, *steps) in zip(at, outer, strict=True)) for which in range(3))
        for at in product(*(range(n) for n, *_ in outer))
    ]
    if max(rows, columns, depth, batch, *(one.step for one in (first, second, result))) > LARGEST:
        return None
    return Products(rows, columns, depth, (first, second, result), tuple(inner), batch, tuple(starts), False)


def _broadcast(one: StackOfMatrices, rank: int) -> Ints:
    """Steps of a stack's extents, 0 where it has one matrix for all."""
    shape, steps = one[0][:-2], one[1][:-2]
    return (0,) * (rank - len(shape)) + tuple(s if n > 1 else 0 for n, s in zip(shape, steps, strict=True))


def _merged(stack: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Extents that go on where the one behind them ends, as one."""
    found: list[tuple[int, ...]] = []
    for n, *steps in stack:
        if found and all(before == n * step for before, step in zip(found[-1][1:], steps, strict=True)):
            found[-1] = found[-1][0] * n, *steps
        else:
            found.append((n, *steps))
    return found


def _lie(one: StackOfMatrices, *allowed: int) -> Operand | None:
    """How a matrix lies: rows first, or columns first; None where its cells lie apart."""
    (rows, columns), (down, right) = one[0][-2:], one[1][-2:]
    for is_transposed in allowed or (0, 1):
        n, wide, far, near = (columns, rows, right, down) if is_transposed else (rows, columns, down, right)
        if wide > 1 and near != 1:
            continue
        if n == 1:
            return Operand(is_transposed, max(wide, 1))
        if far >= max(wide, 1):
            return Operand(is_transposed, far)
    return None


class Handle:
    """cuBLAS in one stream, with a workspace of its own: the same bits in every stream and in every run.

    Parameters
    ----------
    cupy : module
    stream : stream
        Of the current device.
    tf32 : bool
        Whether factors of float32 are rounded to TF32's 10 bits.

    Raises
    ------
    RuntimeError
        When cuBLAS refuses a call, by its name and cuBLAS's number of the error.
    """

    def __init__(self, cupy: Any, stream: Any, tf32: bool) -> None:
        self._library = library_of(cupy)
        nbytes = getattr(self._library, "workspace_nbytes", WORKSPACE_NBYTES)
        self._workspace = cupy.cuda.Memory(nbytes)
        self._sums = {kind: DOUBLE if kind in WIDE else SINGLE for kind in KINDS}
        if tf32:
            self._sums["float32"] = TF32
        pairs = {kind: (ctypes.c_double if kind in WIDE else ctypes.c_float) * 2 for kind in KINDS}
        self._factors = {kind: (ctypes.byref(of(1, 0)), ctypes.byref(of(0, 0))) for kind, of in pairs.items()}
        handle = ctypes.c_void_p()
        self._call("cublasCreate_v2", ctypes.byref(handle))
        self._number = handle.value
        # not at the end of the process, when the driver may be gone
        weakref.finalize(self, self._library.cublasDestroy_v2, self._number).atexit = False
        self._call("cublasSetStream_v2", self._number, stream.ptr)
        self._call("cublasSetWorkspace_v2", self._number, self._workspace.ptr, nbytes)

    def multiply(self, laid: Products, dtype: str, first: int, second: int, out: int) -> None:
        """Put products into the stream; operands by their addresses."""
        one, zero = self._factors[dtype]
        kind, sums, nbytes = KINDS[dtype], self._sums[dtype], np.dtype(dtype).itemsize
        (a, b, c), (a_step, b_step, c_step) = laid.operands, laid.steps
        first, second = (second, first) if laid.swaps else (first, second)
        for a_at, b_at, c_at in laid.starts:
            self._call(
                "cublasGemmStridedBatchedEx",
                self._number, b.is_transposed, a.is_transposed, laid.columns, laid.rows, laid.depth, one,
                second + b_at * nbytes, kind, b.step, b_step,
                first + a_at * nbytes, kind, a.step, a_step, zero,
                out + c_at * nbytes, kind, c.step, c_step, laid.batch, sums, -1,
            )  # fmt: skip

    def _call(self, name: str, *args: Any) -> None:
        status = getattr(self._library, name)(*args)
        if status != SUCCESS:
            raise RuntimeError(f"cuBLAS refuses {name}: its error {status}")


_INT, _LONG, _POINTER = ctypes.c_int, ctypes.c_longlong, ctypes.c_void_p
_MATRIX = _POINTER, _INT, _INT, _LONG
ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "cublasCreate_v2": (_POINTER,),
    "cublasDestroy_v2": (_POINTER,),
    "cublasSetStream_v2": (_POINTER, _POINTER),
    "cublasSetWorkspace_v2": (_POINTER, _POINTER, ctypes.c_size_t),
    "cublasGemmStridedBatchedEx": (
        *(_POINTER, _INT, _INT, _INT, _INT, _INT, _POINTER),
        *(*_MATRIX, *_MATRIX, _POINTER, *_MATRIX, _INT, _INT, _INT),
    ),
}
"""What the calls take."""


def library_of(cupy: Any) -> Any:
    """The cuBLAS that CuPy itself uses, or what a stand-in for CuPy has for it.

    Raises
    ------
    OSError
        When it cannot be loaded.
    """
    given = getattr(cupy, "cublas_library", None)
    if given is not None:
        return given
    cupy.cuda.get_cublas_handle()  # CuPy finds it and loads it; by its name it is found again
    found = ctypes.CDLL(f"libcublas.so.{cupy.cuda.runtime.runtimeGetVersion() // 1000}")
    for name, arguments in ARGUMENTS.items():
        getattr(found, name).argtypes = arguments
    return found
