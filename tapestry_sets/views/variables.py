"""Variables: memory of its own, from what a caller writes."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from tapestry_sets.limits import as_int, extents_of, quote
from tapestry_sets.views.view import Allocation, DType, width_of


def allocate(
    shape: int | Sequence[int],
    name: str | None = None,
    dtype: DType | None = None,
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
    >>> from tapestry_sets import allocate
    >>> A = allocate((27,), name="A", dtype="float32")
    >>> A.shape, A.itemsize
    ((27,), 4)
    """
    extents = extents_of((shape,), "allocate: shape")
    bytes_ = None if dtype is None else width_of(dtype, "allocate")
    cell = bytes_ if itemsize is None else as_int(itemsize, "allocate: itemsize")
    if bytes_ is not None and cell != bytes_:
        raise ValueError(
            f"allocate: dtype {quote(dtype)} has {bytes_} bytes but itemsize is {quote(itemsize)}; give one of them"
        )
    fields = Allocation._check(extents, "" if name is None else name, 1 if cell is None else cell, color, "allocate")
    made: Allocation = Allocation._of(*fields)
    return made
