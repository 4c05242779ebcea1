"""Real arrays as views of one address space, so that alias questions can be asked of them too."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tapestry_sets import strided
from tapestry_sets.affine import AffineMap
from tapestry_sets.kinds import Shape, Shapes
from tapestry_sets.maps import IndexMap, Piece
from tapestry_sets.views import Allocation, View, allocate

MEMORY: Allocation = allocate((2**64,), name="memory")
"""The host's address space, one cell for each byte."""


@dataclass(frozen=True, slots=True)
class Strided:
    """A view of bytes by address, shape and strides; its last axis is the bytes of an element.

    Parameters
    ----------
    address : int
        Of the element at index (0, …, 0).
    shape : tuple of int
        Elements on each axis.
    strides : tuple of int
        Bytes from one element to the next on each axis; negative and zero ones too.
    itemsize : int
        Bytes of an element.
    """

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    itemsize: int

    def out_shape(self, shapes: Shapes) -> Shape:
        """Return the array's shape and the bytes of an element."""
        return (*self.shape, self.itemsize)

    def pieces(self, shapes: Shapes) -> tuple[Piece, ...]:
        """Return the one affine map from indices to addresses."""
        return (Piece(0, (), IndexMap((AffineMap(((*self.strides, 1),), (self.address,)),))),)

    def strided(self, shapes: Shapes, source: strided.Strided) -> strided.Strided:
        """Return the address and the strides."""
        axes = [((n, by),) for n, by in zip(self.shape, self.strides, strict=True)]
        return self.address, (*axes, ((self.itemsize, 1),))


def as_view(x: object) -> View:
    """Return a view as it is, and an array with ``__array_interface__`` as a view of the host's memory.

    Parameters
    ----------
    x : View or array

    Returns
    -------
    View
        For an array: of `MEMORY`, with one more axis for the bytes of an element.

    Raises
    ------
    TypeError
        If `x` is neither.
    ValueError
        If the array holds Python objects or has no address.

    Examples
    --------
    >>> a = np.zeros((4, 6), np.float32)
    >>> view = as_view(a[:, ::-2])
    >>> view.shape, view.kind.strides
    ((4, 3, 4), (24, -8))

    References
    ----------
    NumPy, "The array interface protocol", version 3.
    """
    if isinstance(x, View):
        return x
    interface = getattr(x, "__array_interface__", None)
    if interface is None:
        raise TypeError(f"as_view: {type(x).__name__} is neither a View nor an array with __array_interface__")
    return MEMORY.apply(_strided(interface))


def _strided(interface: dict[str, Any]) -> Strided:
    dtype = np.dtype(interface["typestr"])
    if dtype.hasobject:
        raise ValueError("as_view: an array of Python objects holds references, not values; its memory says nothing")
    data = interface.get("data")
    if not isinstance(data, tuple):
        raise ValueError("as_view: the array's __array_interface__ gives no address ('data' is not a tuple)")
    shape = tuple(interface["shape"])
    strides = interface.get("strides")
    if strides is None:  # C-contiguous
        steps = [dtype.itemsize]
        for n in shape[:0:-1]:
            steps.append(steps[-1] * n)
        strides = tuple(reversed(steps[: len(shape)]))
    return Strided(data[0], shape, tuple(strides), dtype.itemsize)
