"""Launches of direct convolutions, from blocks that hold the halo."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod

import numpy as np
from msgspec import Struct

from tapestry_exec.copies import MAX_CELLS
from tapestry_exec.cuda.kernels.epilogue import check_floats
from tapestry_exec.cuda.kernels.structs import CONVOLUTION, CStruct, Launch, check_addresses
from tapestry_exec.cuda.tuning import CELLS, FEW_CHANNELS, HEIGHT, KEPT, TALL, THREADS
from tapestry_sets.digits import Ints


class Convolving(Struct, frozen=True):
    """A direct convolution of blocks: x holds the halo, so that every cell that is read lies in it.

    Output cell o of channel c is ``activation(Σ w[c, i, k] · x[channel of i, o·strides + k·dilations] + bias[c])``.

    Parameters
    ----------
    dtype : "float32" or "float64"
    samples, groups : int
    channels, width : int
        Of each group: read, and made. Group g reads channels from ``g·channels`` on.
    extents, kernel, strides, dilations : tuple of int
        Of one to three spatial axes: output cells, cells of the kernel, steps in x from one output cell and from one
        kernel cell to the next.
    x_strides, w_strides, out_strides : tuple of int
        In cells, one for each axis of each array: samples or output channels, channels, spatial axes.
    activation : str
        One of `ACTIVATIONS`.
    """

    dtype: str
    samples: int
    groups: int
    channels: int
    width: int
    extents: Ints
    kernel: Ints
    strides: Ints
    dilations: Ints
    x_strides: Ints
    w_strides: Ints
    out_strides: Ints
    activation: str = "none"


def convolutions(work: Convolving, out: int, x: int, w: int, bias: int | None = None) -> list[Launch]:
    """Launches of a direct convolution.

    Each cell adds its products in one order, channels and in each the kernel's cells row-major, with fused
    multiply-adds from 0, and then the bias.

    Parameters
    ----------
    work : Convolving
    out, x, w : int
        Addresses of the blocks' first cells.
    bias : int or None
        Address of one value for each output channel, contiguous.

    Returns
    -------
    list of Launch
        Empty where there is no output cell.

    Raises
    ------
    ValueError
        For an unknown dtype or activation, other than one to three spatial axes, addresses that are not multiples of
        the dtype's size, or too many cells.

    Examples
    --------
    >>> row = Convolving("float32", 1, 1, 3, 16, (30,), (3,), (1,), (1,), (96, 32, 1), (9, 3, 1), (480, 30, 1))
    >>> [(one.entry, one.grid) for one in convolutions(row, 0, 4096, 8192)]
    [('convolution_float32x16', (1, 1, 1))]
    """
    check_addresses("convolutions", np.dtype(work.dtype).itemsize, [out, x, w] if bias is None else [out, x, w, bias])
    entry, blocks, struct = _convolution(work)
    if not blocks:
        return []
    args = struct, np.uint64(out), np.uint64(x), np.uint64(w), np.uint64(bias or 0)
    return [Launch(entry, (blocks, 1, 1), (THREADS, 1, 1), args)]


@lru_cache(maxsize=KEPT)
def _convolution(work: Convolving) -> tuple[str, int, CStruct]:
    code = check_floats("convolutions", work.dtype, work.activation)[1]
    tall = _tall(work.dtype, work.width)
    cells, depth = prod(work.extents), work.channels * prod(work.kernel)
    cell_tiles, channel_tiles = -(-cells // _span(work.dtype, tall)), -(-work.width // tall)
    blocks = cell_tiles * channel_tiles * work.groups * work.samples
    _check_convolution(work, max(cells, depth, blocks, work.width * work.groups))
    arrays = work.x_strides, work.w_strides, work.out_strides
    strides = ((*steps[:2], *_extend_to_three(steps[2:], 0)) for steps in arrays)
    spatial = (_extend_to_three(each, 1) for each in (work.extents, work.kernel, work.strides, work.dilations))
    counts = work.channels, work.width, depth, cells, cell_tiles, channel_tiles, work.groups, code
    struct = np.array((*strides, *spatial, *counts), CONVOLUTION)
    struct.flags.writeable = False
    return f"convolution_{work.dtype}x{tall}", blocks, struct


def _extend_to_three(values: Ints, one: int) -> Ints:
    """Spatial axes from the left filled up to three."""
    return (*(one,) * (3 - len(values)), *values)


def _check_convolution(work: Convolving, most: int) -> None:
    rank = len(work.extents)
    lengths = [len(v) for v in (work.kernel, work.strides, work.dilations)]
    of_arrays = [len(v) - 2 for v in (work.x_strides, work.w_strides, work.out_strides)]
    if rank not in (1, 2, 3) or {*lengths, *of_arrays} != {rank}:
        raise ValueError(f"convolutions: {work} must have one to three spatial axes, the same ones throughout")
    if most >= MAX_CELLS:
        raise ValueError(f"convolutions: {work} counts up to {most}; less than {MAX_CELLS} is numbered")


def _tall(dtype: str, width: int) -> int:
    """Channels that a block makes: those that leave the fewest idle, of two the more."""
    *large, one = TALL[dtype]
    return one if width <= FEW_CHANNELS else min(large, key=lambda tall: (-(-width // tall) * tall, -tall))


def _span(dtype: str, tall: int) -> int:
    """Cells of each channel that a block makes: rows of threads share channels."""
    return THREADS * CELLS // max(1, tall // HEIGHT[dtype])


def count_blocks(dtype: str, out: Ints, groups: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """Blocks of threads that a direct convolution takes, and cells that they compute, those in vain counted.

    Parameters
    ----------
    dtype : "float32" or "float64"
    out : tuple of int
        Shape of what is made: samples, channels, cells.
    groups : sequence of (width, count)
        Channels that a group makes, and how many groups there are of this width.

    Examples
    --------
    >>> count_blocks("float32", (1, 256, 14, 14), [(256, 1)])
    (8, 65536)
    """
    blocks = cells = 0
    for width, count in groups:
        tall = _tall(dtype, width)
        span = _span(dtype, tall)
        tiles = -(-prod(out[2:]) // span) * count * out[0]
        blocks += tiles * -(-width // tall)
        cells += tiles * span * padded_channels(dtype, width)
    return blocks, cells


def padded_channels(dtype: str, width: int) -> int:
    """Channels that the blocks of a convolution compute for so many, those that come to nothing too.

    Of few channels each is computed alone, and reads as much as four that share what they read.

    Examples
    --------
    >>> [padded_channels("float32", width) for width in (1, 5, 20, 64)]
    [4, 16, 32, 64]
    """
    tall = _tall(dtype, width)
    return 4 * width if tall == 1 else -(-width // tall) * tall
