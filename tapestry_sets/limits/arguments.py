"""Integers as callers write them: checked, and turned into Python's own."""

from __future__ import annotations

from operator import index

import numpy as np


def as_int(value: object, what: str) -> int:
    """Return `value` as a Python integer, or say what must be an integer.

    Parameters
    ----------
    value : object
        A Python or NumPy integer. Booleans and floats are refused: they are more often a slip than a size.
    what : str
        How the error message names the value, such as ``"Stripe: on"``.

    Returns
    -------
    int

    Raises
    ------
    TypeError
        If `value` is a bool or not an integer.

    Examples
    --------
    >>> as_int(np.int32(7), "size")
    7
    """
    if type(value) is int:
        return value
    if isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{what} must be an integer, not the truth value {value!r}; write int({value!r}) if meant")
    try:
        return index(value)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"{what} must be an integer, not {value!r} of type {type(value).__name__}") from None
