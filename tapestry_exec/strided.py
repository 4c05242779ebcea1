"""Strided copies: what a region, or a view's piece, means as nested strides between two contiguous arrays.

Everything here is arithmetic on integers; each backend carries the copies out in its own way.
"""

from __future__ import annotations

from dataclasses import dataclass

Ints = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Guard:
    """Which cells of a strided copy are copied: those with ``low <= Σ coefficients·index < high``.

    Parameters
    ----------
    coefficients : tuple of int
        One for each dimension of the copy.
    low, high : int
    """

    coefficients: Ints
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class Transfer:
    """One strided copy: ``dst[dst_offset + Σ i·dst_strides] = src[src_offset + Σ i·src_strides]`` for i in `dims`.

    Parameters
    ----------
    dims : tuple of int
        Extents of the index, row-major; empty for one cell.
    src_offset, dst_offset : int
        In elements, from the beginning of each array.
    src_strides, dst_strides : tuple of int
        In elements; they may be 0 (the source's: broadcast) or negative.
    guards : tuple of Guard
        Cells for which one of them does not hold are left alone.
    """

    dims: Ints
    src_offset: int
    src_strides: Ints
    dst_offset: int
    dst_strides: Ints
    guards: tuple[Guard, ...] = ()
