"""Row-major numbers: the points of a box from zero, counted with the last axis fastest, one by one or as columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

Bools = np.ndarray[Any, np.dtype[np.bool_]]
Int64Array = np.ndarray[Any, np.dtype[np.int64]]


def number_of(point: Iterable[Any], shape: Sequence[int]) -> Any:
    """Return the row-major number of a point of the box of `shape`: an integer, or an array where coordinates are.

    Examples
    --------
    >>> number_of((1, 2), (2, 5)), number_of(np.array([[0, 1], [3, 2]]), (2, 5))
    (7, array([3, 7]))
    """
    number = 0
    for x, n in zip(point, shape, strict=True):
        number = number * n + x
    return number


def point_of(number: Any, shape: Sequence[int]) -> tuple[Any, ...]:
    """Return the point of a row-major number, or of an array of them; the outermost coordinate takes the rest.

    Examples
    --------
    >>> point_of(7, (2, 5)), point_of(np.array([3, 7]), (2, 5))
    ((1, 2), (array([0, 1]), array([3, 2])))
    """
    point = []
    for n in shape[:0:-1]:
        number, x = divmod(number, n)
        point.append(x)
    return (number, *reversed(point)) if shape else ()


def points_of(numbers: Int64Array, shape: Sequence[int]) -> Int64Array:
    """Return the points of an array of row-major numbers, one in each row."""
    out = np.empty((len(numbers), len(shape)), np.int64)
    for axis, column in enumerate(point_of(numbers, shape)):
        out[:, axis] = column
    return out
