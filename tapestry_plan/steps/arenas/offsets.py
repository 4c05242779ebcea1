"""Offset assignment: places in one arena for blocks whose lifetimes are known.

To find the least arena is NP-hard (dynamic storage allocation); here blocks are placed one by one, where nothing
that lives at the same time lies, in several orders and by two rules, until all of them fit. Where they do not, orders
are searched from the bottom up, as far as that is little work (`search_offsets`)::

    byte │ ░░░  d?   each block lies at 0 or on another one, so some order of their places, the lowest first, leads to
         │ aaabbb    any places. It is given up where what is left does not fit above the last one at some moment.
         └─────── moment

References
----------
M. R. Garey, D. S. Johnson, Computers and Intractability (1979), problem SR2: dynamic storage allocation.
Y. Pisarchyk, J. Lee, Efficient Memory Management for Deep Neural Net Inference, MLSys 2020: greedy by size.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tapestry_plan.steps import tuning


class Stay(NamedTuple):
    """A block that lies in an arena from one moment to another one, both included."""

    first: int
    last: int
    nbytes: int


def count_most(stays: Iterable[Stay]) -> int:
    """The most bytes that lie there at once."""
    change: dict[int, int] = {}
    for stay in stays:
        change[stay.first] = change.get(stay.first, 0) + stay.nbytes
        change[stay.last + 1] = change.get(stay.last + 1, 0) - stay.nbytes
    most = now = 0
    for moment in sorted(change):
        now += change[moment]
        most = max(most, now)
    return most


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


def search_offsets(stays: Sequence[Stay], memory_nbytes: int) -> tuple[list[int] | None, bool]:
    """The same, where orders are searched beyond the simple ones; and whether it is proved, without any, that none are.

    Examples
    --------
    >>> search_offsets([Stay(0, 1, 64), Stay(1, 2, 64), Stay(0, 3, 64)], 128)
    (None, True)
    """
    offsets = assign_offsets(stays, memory_nbytes)
    return (offsets, False) if offsets is not None else _Upward(stays, memory_nbytes).search()


class _Upward:
    """Places from the bottom up: each block on those below it, in an order of their places."""

    def __init__(self, stays: Sequence[Stay], memory_nbytes: int) -> None:
        self.stays, self.memory = stays, memory_nbytes
        self.some = [k for k, stay in enumerate(stays) if stay.nbytes]
        # Of moments those at which something comes: what lies at another one lies at the last of these before it.
        firsts = sorted({stays[k].first for k in self.some})
        self.spans = {k: [m for m, t in enumerate(firsts) if stays[k].first <= t <= stays[k].last] for k in self.some}
        self.height = [0] * len(firsts)
        self.rest = [0] * len(firsts)
        for k in self.some:
            for m in self.spans[k]:
                self.rest[m] += stays[k].nbytes
        self.places: dict[int, int] = {}
        self.seen: set[tuple[frozenset[int], tuple[int, ...], int]] = set()
        self.left = tuning.MAX_PLACINGS

    def search(self) -> tuple[list[int] | None, bool]:
        """Places, or none and whether there are none."""
        if len(self.some) > tuning.MAX_PLACED:
            return None, False
        if self._place(0):
            return [self.places.get(k, 0) for k in range(len(self.stays))], False
        return None, self.left > 0

    def _place(self, floor: int) -> bool:
        """Places for all blocks that have none, none of them below a floor."""
        if len(self.places) == len(self.some):
            return True
        state = frozenset(self.places), tuple(self.height), floor
        if state in self.seen or self.left <= 0:
            return False
        self.seen.add(state)
        if any(n and max(h, floor) + n > self.memory for h, n in zip(self.height, self.rest, strict=True)):
            return False
        lows = {k: max(self.height[m] for m in self.spans[k]) for k in self.some if k not in self.places}
        tried: set[tuple[int, int, int]] = set()
        for k in sorted(lows, key=lambda k: (lows[k], -self.stays[k].nbytes * len(self.spans[k]))):
            span, low = self.spans[k], lows[k]
            alike = span[0], span[-1], self.stays[k].nbytes
            if low < floor or alike in tried:
                continue
            tried.add(alike)
            self.left -= 1
            before = [self.height[m] for m in span]
            self._put(k, [low + self.stays[k].nbytes] * len(span), -1)
            self.places[k] = low
            if self._place(low):
                return True
            del self.places[k]
            self._put(k, before, 1)
        return False

    def _put(self, k: int, heights: Sequence[int], sign: int) -> None:
        for m, height in zip(self.spans[k], heights, strict=True):
            self.height[m] = height
            self.rest[m] += sign * self.stays[k].nbytes


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
