"""Offset assignment: places in one arena for blocks whose lifetimes are known.

To find the least arena is NP-hard (dynamic storage allocation); here blocks are placed one by one, where nothing
that lives at the same time lies, in several orders and by two rules, until all of them fit.

References
----------
M. R. Garey, D. S. Johnson, Computers and Intractability (1979), problem SR2: dynamic storage allocation.
Y. Pisarchyk, J. Lee, Efficient Memory Management for Deep Neural Net Inference, MLSys 2020: greedy by size.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Stay(NamedTuple):
    """A block that lies in an arena from one moment to another one, both included."""

    first: int
    last: int
    nbytes: int


def assign_offsets(stays: Sequence[Stay], memory_nbytes: int) -> list[int] | None:
    """An offset for each stay, so that no two that share a moment share a byte.

    Parameters
    ----------
    stays : sequence of Stay
    memory_nbytes : int
        Bytes of the arena.

    Returns
    -------
    list of int, or None
        None where none was found; that there is none is not proved by it.

    Examples
    --------
    The first and the last one are never there together:

    >>> assign_offsets([Stay(0, 1, 64), Stay(1, 2, 64), Stay(2, 3, 64)], 128)
    [0, 64, 0]
    >>> assign_offsets([Stay(0, 1, 64), Stay(1, 2, 64), Stay(0, 3, 64)], 128) is None
    True
    """
    first, last, nbytes = np.array(stays, np.int64).reshape(-1, 3).T
    for order, tight in product(_orders(first, last, nbytes), (False, True)):
        offsets = _place(first, last, nbytes, order, memory_nbytes, tight)
        if offsets is not None:
            return [int(offset) for offset in offsets]
    return None


def _orders(
    first: NDArray[np.int64], last: NDArray[np.int64], nbytes: NDArray[np.int64]
) -> Iterator[NDArray[np.int64]]:
    """In which order stays are placed: first the largest, those of most bytes × moments, the longest, the earliest."""
    length = last - first + 1
    for keys in ((first, -length, -nbytes), (first, -nbytes * length), (first, -nbytes, -length), (-nbytes, first)):
        yield np.lexsort(keys)


def _place(
    first: NDArray[np.int64],
    last: NDArray[np.int64],
    nbytes: NDArray[np.int64],
    order: NDArray[np.int64],
    memory_nbytes: int,
    tight: bool,
) -> NDArray[np.int64] | None:
    """Offsets in the first gap that is large enough, or in the tightest one; None where there is none."""
    low, done = np.zeros(len(order), np.int64), np.zeros(len(order), bool)
    for k in order:
        if not nbytes[k]:
            continue
        beside = np.flatnonzero(done & (first <= last[k]) & (last >= first[k]))
        beside = beside[np.argsort(low[beside], kind="stable")]
        begins = np.concatenate(([0], np.maximum.accumulate(low[beside] + nbytes[beside])))
        room = np.concatenate((low[beside], [memory_nbytes])) - begins
        fits = np.flatnonzero(room >= nbytes[k])
        if not len(fits):
            return None
        low[k] = begins[fits[np.argmin(room[fits])] if tight else fits[0]]
        done[k] = True
    return low
