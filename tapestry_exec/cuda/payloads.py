"""Packed cells on their way between devices and the host, and the pinned memory that they go through."""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec import Struct

from tapestry_exec.copies import Array
from tapestry_exec.cuda.lanes import Lane, Ring, Uses
from tapestry_exec.cuda.tuning import RING_NBYTES, RING_PAYLOADS
from tapestry_plan.steps import HOST, align


class Payload(Struct):
    """Packed cells on their way: where they lie, and who uses the memory.

    Parameters
    ----------
    address, nbytes : int
    dtype : dtype
    gpu : int
        The GPU's number, or HOST for pinned memory.
    uses : Uses
    cells : array, optional
        Of a payload in host memory, the cells.
    lane : Lane, optional
        In which the GPU that it lies on sends.
    """

    address: int
    nbytes: int
    dtype: np.dtype[Any]
    gpu: int
    uses: Uses
    cells: Array | None = None
    lane: Lane | None = None


class Pinned:
    """A ring of pinned memory, through which cells go between host and GPUs."""

    def __init__(self) -> None:
        self._ring = Ring(0)
        self._bytes: Array = np.empty(0, np.uint8)
        self._memory: Any = None

    def reserve(self, cupy: Any, payload_nbytes: int) -> None:
        """Have room for payloads of so many bytes; nothing may be on its way."""
        wanted = ring_nbytes(payload_nbytes)
        self.restart()
        if wanted <= self._ring.nbytes:
            return
        self._memory = cupy.cuda.alloc_pinned_memory(wanted)
        self._bytes = np.frombuffer(self._memory, np.uint8, wanted)
        self._ring = Ring(wanted)

    def restart(self) -> None:
        """Forget who used it: nothing may be on its way."""
        self._ring.restart()

    def take(self, size: int, dtype: np.dtype[Any]) -> Payload:
        """Room for so many cells that nobody uses any more."""
        nbytes = size * dtype.itemsize
        slot = self._ring.take(nbytes)
        # The host itself writes here: no queue can wait for the earlier users of these bytes in its place.
        for mark in slot.uses.all:
            mark.event.synchronize()
        slot.uses.clear()
        cells = self._bytes[slot.offset : slot.offset + nbytes].view(dtype)
        return Payload(self._memory.ptr + slot.offset, nbytes, dtype, HOST, slot.uses, cells)


def ring_nbytes(payload_nbytes: int) -> int:
    """Bytes of a ring for payloads of at most so many bytes: two fit, and more of small ones."""
    # One payload is packed while the one before it is still on its way: two must fit.
    largest = align(max(payload_nbytes, 1))
    return max(2 * largest, min(RING_NBYTES, RING_PAYLOADS * largest))


def cells_of(payload: Payload) -> Array:
    assert payload.cells is not None, "a payload in pinned memory has its cells"
    return payload.cells
