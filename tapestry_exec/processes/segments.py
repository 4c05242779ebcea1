"""Memory that processes share: without a name, so that it is gone with the last of them."""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from tapestry_plan.steps import align


class Segment:
    """Bytes that processes share, which pass on the descriptor of its file.

    Parameters
    ----------
    file : int
        The descriptor, which the segment owns.
    nbytes : int
    """

    def __init__(self, file: int, nbytes: int) -> None:
        self.file, self.nbytes = file, nbytes
        self.room = mmap.mmap(file, max(nbytes, 1))
        self.bytes: NDArray[np.uint8] = np.frombuffer(self.room, np.uint8)

    @classmethod
    def create(cls, nbytes: int) -> Segment:
        """New memory, all of it taken now.

        Raises
        ------
        MemoryError
            Where there is not as much.
        """
        if hasattr(os, "memfd_create"):
            file = os.memfd_create("tapestry", os.MFD_CLOEXEC)
        else:
            with tempfile.TemporaryFile() as unnamed:
                file = os.dup(unnamed.fileno())
        try:
            if hasattr(os, "posix_fallocate"):  # else a page that cannot be had ends the process when it is touched
                os.posix_fallocate(file, 0, max(nbytes, 1))
            else:
                os.ftruncate(file, max(nbytes, 1))
        except OSError as error:
            os.close(file)
            raise MemoryError(
                f"run: {nbytes:,} bytes of memory that processes share cannot be had ({error.strerror}); give the "
                "model smaller extents, or use backend='numpy', which shares none"
            ) from None
        return cls(file, nbytes)

    def close(self) -> None:
        """Close the file; the memory goes with the last view of it, in any process."""
        if self.file >= 0:
            os.close(self.file)
            self.file = -1


def lay_out(sizes: Iterable[int], begin: int = 0) -> Iterator[int]:
    """Places for blocks of so many bytes, one behind the other, and the end of the last one."""
    for nbytes in sizes:
        yield begin
        begin += align(nbytes)
    yield begin
