"""Variables: memory of its own, from what a caller writes."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from tapestry_sets.limits import as_int, extents_of, quote
from tapestry_sets.views.view import Allocation, check_color, width_of


def allocate(
    shape: int | Sequence[int],
    name: str | None = None,
    dtype: object = None,
    itemsize: int | None = None,
    color: Hashable = 0,
) -> Allocation:
    """Return a variable: a view of memory of its own.

    Parameters
    ----------
    shape : int or sequence of int
        Extents, >= 0.
    name : str, optional
        For messages and pictures.
    dtype : NumPy dtype, optional
        Gives the bytes of a cell.
    itemsize : int, optional
        Bytes of a cell, 1 by default.
    color : hashable, optional
        A mark of the user's own; see `View.colors`.

    Raises
    ------
    ValueError
        If an extent is negative, `dtype` and `itemsize` disagree, or `dtype` is of objects.
    TypeError
        If `color` is not hashable.

    Examples
    --------
    >>> A = allocate((27,), name="A", dtype="float32")
    >>> A.shape, A.itemsize
    ((27,), 4)
    """
    extents = extents_of((shape,), "allocate")
    for axis, n in enumerate(extents):
        if n < 0:
            raise ValueError(f"allocate: extent {n} of axis {axis} in shape {quote(extents)} must be >= 0")
    bytes_ = None if dtype is None else width_of(dtype, "allocate")
    if bytes_ is not None and itemsize not in (None, bytes_):
        raise ValueError(f"allocate: dtype {dtype} has {bytes_} bytes but itemsize is {itemsize}; give one of them")
    cell = bytes_ if itemsize is None else as_int(itemsize, "allocate: itemsize")
    if cell is not None and cell < 1:
        raise ValueError(f"allocate: itemsize {cell} must be >= 1 byte")
    if name is not None and not isinstance(name, str):
        raise TypeError(f"allocate: name {quote(name)} is a {type(name).__name__}; give a string")
    return Allocation(extents, name or "", cell or 1, check_color(color, "allocate"))
