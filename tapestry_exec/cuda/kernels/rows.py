"""Launches of softmax and of normalizations: a block of threads for each row."""

from __future__ import annotations

import numpy as np

from tapestry_exec.copies import MAX_CELLS
from tapestry_exec.cuda.kernels.epilogue import check_floats
from tapestry_exec.cuda.kernels.structs import Launch, check_addresses
from tapestry_exec.cuda.tuning import MAX_BLOCKS, THREADS

KINDS = "softmax", "centered", "plain"
"""In the kernels' order."""


def rows_of(
    kind: str,
    out: int,
    x: int,
    rows: int,
    columns: int,
    dtype: str,
    *,
    scale: int | None = None,
    bias: int | None = None,
    epsilon: float = 0.0,
) -> list[Launch]:
    """Launches of functions of the rows of a contiguous matrix; the result may be the matrix itself.

    Parameters
    ----------
    kind : "softmax", "centered" or "plain"
        exp(x) / Σ exp(x); (x - mean) / √(variance + epsilon) · scale + bias; the same without the mean.
    out, x : int
        Addresses of the matrices.
    rows, columns : int
    dtype : "float32" or "float64"
    scale, bias : int or None
        Addresses of one value for each column; a softmax has none, the others may do without a bias.
    epsilon : float

    Returns
    -------
    list of Launch
        Empty where there are no cells.

    Raises
    ------
    ValueError
        For an unknown kind or dtype, a scale that is missing or too much, an address that is not a multiple of the
        dtype's size, or too many rows or columns.

    Examples
    --------
    >>> [(one.entry, one.grid) for one in rows_of("softmax", 0, 4096, 12, 128, "float32")]
    [('rows_float32', (12, 1, 1))]
    """
    itemsize, _ = check_floats("rows_of", dtype, "none")
    if kind not in KINDS or (scale is None) != (kind == "softmax") or (bias is not None and scale is None):
        raise ValueError(f"rows_of: {kind} is a softmax without scale and bias, or centered or plain with a scale")
    check_addresses("rows_of", itemsize, [one for one in (out, x, scale, bias) if one is not None])
    if max(rows, columns) >= MAX_CELLS:
        raise ValueError(f"rows_of: {rows} rows of {columns} cells; less than {MAX_CELLS} of each are numbered")
    if not rows * columns:
        return []
    args = (
        *(np.uint64(one or 0) for one in (out, x, scale, bias)),
        *(np.uint32(rows), np.uint32(columns), np.dtype(dtype).type(epsilon), np.uint32(KINDS.index(kind))),
    )
    return [Launch(f"rows_{dtype}", (min(rows, MAX_BLOCKS), 1, 1), (THREADS, 1, 1), args)]
