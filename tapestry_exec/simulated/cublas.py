"""A stand-in for the library of cuBLAS, with the calls that products take: by addresses, columns first.

Each product is an operation of the handle's stream on exactly the cells that cuBLAS reads and writes, so that the
checker sees them. A handle without a workspace of its own cannot be used while a stream is captured.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec import Struct
from numpy.lib.stride_tricks import as_strided

from tapestry_exec.run import one_blas_thread
from tapestry_exec.simulated.machine import HostArray, Machine, Queue

DTYPES: dict[int, np.dtype[Any]] = {
    number: np.dtype(name)
    for number, name in ((0, "float32"), (1, "float64"), (2, "float16"), (4, "complex64"), (5, "complex128"))
}
"""By cudaDataType."""
SUMS: dict[int, tuple[int, ...]] = {68: (0, 2, 4), 77: (0,), 70: (1, 5)}
"""By cublasComputeType the kinds of matrices that it goes with here."""
DEFAULT = -1
"""Of cublasGemmAlgo: the library's own choice."""
DONE, NOT_INITIALIZED, INVALID_VALUE, NOT_SUPPORTED = 0, 1, 7, 15
"""Values of cublasStatus."""


class Opened(Struct):
    """A handle: its stream, and its workspace's address, if it has one of its own."""

    stream: Queue
    workspace: int = 0


class CublasLibrary:
    """The library on one machine; each call gives its status."""

    workspace_nbytes = 1024
    """What it asks for, in the place of what a GPU's takes: it works in none."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._opened: dict[int, Opened] = {}
        self._count = 0

    def cublasCreate_v2(self, handle: Any) -> int:
        """Make a handle in the current device's default stream."""
        self._count += 1
        handle._obj.value = self._count
        self._opened[self._count] = Opened(self._machine.nulls[self._machine.device])
        return DONE

    def cublasDestroy_v2(self, handle: int) -> int:
        """Forget a handle."""
        return DONE if self._opened.pop(handle, None) else NOT_INITIALIZED

    def cublasSetStream_v2(self, handle: int, stream: int) -> int:
        """Let a handle work in a stream; its workspace is the library's own again."""
        if handle not in self._opened:
            return NOT_INITIALIZED
        self._opened[handle] = Opened(self._machine.stream(stream))
        return DONE

    def cublasSetWorkspace_v2(self, handle: int, workspace: int, nbytes: int) -> int:
        """Give a handle memory to work in."""
        if handle not in self._opened:
            return NOT_INITIALIZED
        self._machine.checker.span(workspace, nbytes, "cuBLAS's workspace")
        self._opened[handle].workspace = workspace
        return DONE

    def cublasGemmStridedBatchedEx(
        self, handle: int, transa: int, transb: int, m: int, n: int, k: int, alpha: Any,
        A: int, Atype: int, lda: int, strideA: int, B: int, Btype: int, ldb: int, strideB: int, beta: Any,
        C: int, Ctype: int, ldc: int, strideC: int, batchCount: int, computeType: int, algo: int,
    ) -> int:  # fmt: skip
        """Put C = alpha · op(A) · op(B) + beta · C into the handle's stream, for each matrix of a stack."""
        found = self._opened.get(handle)
        if found is None:
            return NOT_INITIALIZED
        stacked = (m, k, transa, lda), (k, n, transb, ldb), (m, n, 0, ldc)
        if min(m, n, k, batchCount, strideA, strideB, strideC) < 0 or any(
            step < max(c if t else r, 1) for r, c, t, step in stacked
        ):
            return INVALID_VALUE
        is_known = algo == DEFAULT and not beta._obj[0]
        if {Atype, Btype, Ctype} - set(SUMS.get(computeType, ())) or not is_known:
            return NOT_SUPPORTED
        if not found.workspace and found.stream.capture is not None:
            return NOT_SUPPORTED
        places = (A, Atype, strideA), (B, Btype, strideB), (C, Ctype, strideC)
        a, b, c = (
            self._matrices(*place, batchCount, *one) for place, one in zip(places, stacked, strict=True)
        )  # fmt: skip
        if any(np.may_share_memory(one, c) and np.shares_memory(one, c) for one in (a, b)):
            return INVALID_VALUE  # cuBLAS writes while it reads
        sums, scale = np.result_type(DTYPES[Ctype], np.float32), alpha._obj[0]

        def run() -> None:
            with one_blas_thread():  # as steps have it: a graph is launched by itself
                c[...] = scale * np.matmul(a.astype(sums), b.astype(sums))

        self._machine.submit("cublasGemmStridedBatchedEx", [a, b], [c], run, found.stream)
        return DONE

    def _matrices(
        self, at: int, kind: int, step: int, count: int, rows: int, columns: int, transposed: int, lead: int
    ) -> HostArray:
        """The cells of a stack of matrices, columns first, or rows first where transposed."""
        size = DTYPES[kind].itemsize
        near, far = (lead, 1) if transposed else (1, lead)
        reach = 1 + (count - 1) * step + (rows - 1) * near + (columns - 1) * far
        cells = self._machine.checker.span(at, reach * size, "a matrix")
        whole = cells.of(cells.memory.data).view(DTYPES[kind])
        return as_strided(whole, (count, rows, columns), (step * size, near * size, far * size))
