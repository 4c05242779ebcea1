"""Launches that end products of matrices: a bias and an activation, in place."""

from __future__ import annotations

import numpy as np

from tapestry_exec.copies import ITEM_NBYTES, MAX_CELLS
from tapestry_exec.cuda.kernels.structs import Launch, check_addresses, divisor
from tapestry_exec.cuda.tuning import LANES, MAX_BLOCKS, THREADS, TILE
from tapestry_sets.limits import quote

ACTIVATIONS = "none", "relu", "sigmoid", "tanh", "gelu"
"""Functions that end an epilogue or a convolution, in the kernels' order."""


def epilogues(
    x: int, bias: int | None, rows: int, columns: int, dtype: str, activation: str = "none", period: int = 0
) -> list[Launch]:
    """Launches of ``x = activation(x + bias)`` over the rows of a contiguous matrix, in place.

    Parameters
    ----------
    x : int
        Address of the matrix.
    bias : int or None
        Address of one value for each column, contiguous; with a period of one for each row.
    rows, columns : int
    dtype : "float32" or "float64"
    activation : str
        One of `ACTIVATIONS`. ``gelu`` is the exact one; ``relu`` keeps NaNs.
    period : int
        Rows after which the values of a bias for rows begin again; 0 where it is of columns.

    Returns
    -------
    list of Launch
        Empty where there are no cells, or nothing to do with them.

    Raises
    ------
    ValueError
        For an unknown dtype or activation, an address that is not a multiple of the dtype's size, or too long rows.

    Examples
    --------
    >>> [(one.entry, one.grid) for one in epilogues(0, 4096, 8, 128, "float32", "relu")]
    [('epilogue_float32x4', (1, 1, 1))]
    """
    itemsize, code = check_floats("epilogues", dtype, activation)
    check_addresses("epilogues", itemsize, [x] if bias is None else [x, bias])
    if not rows * columns or (bias is None and activation == "none"):
        return []
    if columns >= MAX_CELLS:
        raise ValueError(f"epilogues: rows of {columns} cells are too long; at most {MAX_CELLS - 1} fit")
    by_column = 0 if period else bias or 0
    whole = columns % LANES[dtype] == 0 and x % ITEM_NBYTES == 0 and by_column % ITEM_NBYTES == 0
    lanes = LANES[dtype] if whole else 1
    groups = columns // lanes
    fit = (MAX_CELLS - 1) // groups
    if period:  # each launch begins with the first value
        fit = max(fit // period, 1) * period
    launches = []
    for top in range(0, rows, fit):
        total = min(fit, rows - top) * groups
        magic, shift = divisor(groups)
        args = (
            *(np.uint64(x + top * columns * itemsize), np.uint64(bias or 0)),
            *(np.uint32(value) for value in (total, groups, magic, shift, period, code)),
        )
        grid = min(-(-total // TILE), MAX_BLOCKS), 1, 1
        launches.append(Launch(f"epilogue_{dtype}x{lanes}", grid, (THREADS, 1, 1), args))
    return launches


def check_floats(what: str, dtype: str, activation: str) -> tuple[int, int]:
    """The size of a cell and the number of an activation."""
    if dtype not in LANES:
        raise ValueError(f"{what}: dtype {quote(dtype)} is not one of {', '.join(LANES)}")
    if activation not in ACTIVATIONS:
        raise ValueError(f"{what}: activation {quote(activation)} is not one of {', '.join(ACTIVATIONS)}")
    return np.dtype(dtype).itemsize, ACTIVATIONS.index(activation)
