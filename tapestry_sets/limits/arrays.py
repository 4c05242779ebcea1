"""Arrays as callers give them: NumPy's, lists, and whatever says how NumPy reads it."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from tapestry_sets.limits import tuning
from tapestry_sets.limits.printable import quote


def take_array(value: Any, what: str, wanted: str) -> np.ndarray[Any, Any]:
    """Return what a caller gives as an array, in its own memory where NumPy can read that.

    Parameters
    ----------
    value : array, list or number
    what : str
        How errors name it.
    wanted : str
        What they say that must be given.

    Raises
    ------
    TypeError
        For what is in a device's memory.
    ValueError
        For masked arrays, and for what is not an array of numbers: rows of several lengths, None, sets.

    Examples
    --------
    >>> take_array([[1, 2], [3, 4]], "input 'x'", "numbers").shape
    (2, 2)
    >>> take_array([[1], [2, 3]], "input 'x'", "numbers of shape (2, 2)")
    Traceback (most recent call last):
    ...
    ValueError: input 'x' is [[1], [2, 3]], whose rows differ in length; give numbers of shape (2, 2)
    """
    refuse_masked(value, what)
    try:
        array = np.asarray(value)
        if array.dtype.hasobject and hasattr(value, "__cuda_array_interface__"):
            raise TypeError("it has __cuda_array_interface__ and no other")
    except ValueError:
        raise ValueError(f"{what} is {quote(value)}, whose rows differ in length; give {wanted}") from None
    except (TypeError, RuntimeError) as error:
        raise TypeError(
            f"{what} is a {type(value).__module__}.{type(value).__qualname__} that is not in host memory "
            f"({quote(error)}); give a NumPy array: cupy.asnumpy(x) of a CuPy array, x.detach().cpu() of a PyTorch "
            "tensor"
        ) from error
    if array.dtype.kind in "OSU" and not hasattr(value, "dtype"):
        raise ValueError(f"{what} is {quote(value)}; give {wanted}")
    return array


def refuse_masked(value: object, what: str) -> None:
    """Raise ValueError for a masked array, or a list that holds one: NumPy would read the cells below its mask.

    Examples
    --------
    >>> refuse_masked(np.ma.array([3, 4], mask=[False, True]), "input 'x'")
    Traceback (most recent call last):
    ...
    ValueError: input 'x' is a masked array, whose mask would be lost; give its cells, as of x.filled(0)
    """
    masked = sys.modules.get("numpy.ma")  # without which there is none
    if masked is not None and _holds(value, masked.MaskedArray, tuning.SHOWN_DEPTH):
        whose = "is" if isinstance(value, masked.MaskedArray) else "holds"
        raise ValueError(f"{what} {whose} a masked array, whose mask would be lost; give its cells, as of x.filled(0)")


def _holds(value: object, kind: type, depth: int) -> bool:
    if isinstance(value, list | tuple):
        return depth > 0 and any(_holds(item, kind, depth - 1) for item in value)
    return isinstance(value, kind)
