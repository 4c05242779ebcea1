"""A sieve: how many strided parts of one memory hold each byte.

How many integers several progressions cover together has no closed form that is short: it is a sum over all their
common elements. So counts are kept for a block of memory at a time, and each part raises its own; what that may cost
is bounded before it begins.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from math import gcd
from typing import Any

import numpy as np

from tapestry_sets.alias import tuning
from tapestry_sets.integers import Item, Nest, count, elements, explicit
from tapestry_sets.limits import TooHard, TooManyPieces, check_pieces, note_help

Bounded = tuple[int, int, Nest]
"""Start, length and tail; see `nest.Item`."""
Columns = np.ndarray[Any, Any]


class Sieve:
    """Counts of parts in a span that begins at 0.

    Parameters
    ----------
    parts : iterable of (start, length, tail)
    lists : sequence of array
        Parts that are listed, ascending.

    Examples
    --------
    >>> sieve = Sieve([(0, 13, ((1, 3, 0),)), (0, 9, ((1, 4, 0),)), (2, 5, ())], [])
    >>> sieve.sizes(), sieve.items(2)
    ((9, 4), [Item(start=0, length=7, tail=((1, 6, 0),)), Item(start=3, length=2, tail=())])
    """

    def __init__(self, parts: Iterable[Bounded], lists: Sequence[Columns]) -> None:
        often = Counter(parts)
        lengths = [x for start, length, tail in often for x in (start, length, *(y for level in tail for y in level))]
        self.width = 1 if lists else max(1, gcd(*lengths))
        self.parts = sorted((_divided(part, self.width), min(n, tuning.MIN_MEMBERS)) for part, n in often.items())
        self.lists = lists
        ends = [start + length for (start, length, _), _ in self.parts] + [int(z[-1]) + 1 for z in lists if len(z)]
        self.span = max(ends, default=0)
        self._sizes: tuple[int, ...] | None = None

    @property
    def work(self) -> int:
        """About how many counts are raised."""
        raised = sum(count(tail, 0, n) * (tuning.LISTED_COST if len(tail) > 1 else 1) for (_, n, tail), _ in self.parts)
        turns = sum(n // tuning.SIEVE_BLOCK + 1 for (_, n, _), _ in self.parts)
        return self.span + raised + tuning.TURN_COST * turns + tuning.LISTED_COST * sum(map(len, self.lists))

    def check(self) -> None:
        """Raise TooHard if the work is too much."""
        if self.work > tuning.MAX_WORK:
            raise TooHard(
                f"the bytes that {len(self.parts) + len(self.lists)} parts of arrays read: to count them takes about "
                f"{self.work} steps, more than {tuning.MAX_WORK}; ask for the overlap of two of them, or about fewer"
            )

    def blocks(self) -> Iterator[tuple[int, np.ndarray[Any, np.dtype[np.int32]]]]:
        """Yield counts block by block, and where each begins; a count stops to matter above `MIN_MEMBERS`."""
        self.check()
        note_help("listed")
        ahead, open_ = 0, []
        for low in range(0, self.span, tuning.SIEVE_BLOCK):
            high = min(low + tuning.SIEVE_BLOCK, self.span)
            while ahead < len(self.parts) and self.parts[ahead][0][0] < high:
                open_.append(self.parts[ahead])
                ahead += 1
            counts = np.zeros(high - low, np.int32)
            for part, weight in open_:
                _raise(counts, low, part, weight)
            for z in self.lists:
                counts[z[np.searchsorted(z, low) : np.searchsorted(z, high)] - low] += 1
            open_ = [(part, weight) for part, weight in open_ if part[0] + part[1] > high]
            yield low, counts

    def sizes(self) -> tuple[int, ...]:
        """Return how many integers one part or more hold, and how many two or more; TooHard if that is too much."""
        if self._sizes is None:
            totals = [0] * tuning.MIN_MEMBERS
            for _, counts in self.blocks():
                for k in range(tuning.MIN_MEMBERS):
                    totals[k] += int(np.count_nonzero(counts > k))
            self._sizes = tuple(total * self.width for total in totals)
        return self._sizes

    def items(self, least: int) -> list[Item]:
        """Return the integers that so many parts hold as few items; TooManyPieces if they are not few."""
        begins, ends, many = [], [], 0
        for low, counts in self.blocks():
            change = np.flatnonzero(np.diff(np.concatenate([[False], counts >= least, [False]])))
            many += len(change) // 2
            if many > tuning.MAX_RUNS:
                raise TooManyPieces(
                    f"the bytes that {least} of several arrays read are more than {tuning.MAX_RUNS} runs of bytes; "
                    "nbytes and nbytes_shared count them, overlap(a, b) tells what two members share"
                )
            begins.append(change[::2] + low)
            ends.append(change[1::2] + low)
        runs = zip(np.concatenate(begins).tolist(), np.concatenate(ends).tolist(), strict=True)
        found = explicit.merge((a * self.width, (b - a) * self.width, ()) for a, b in runs)
        check_pieces(len(found), "the bytes that several arrays share", "nbytes and nbytes_shared need none")
        return sorted(found, key=lambda item: item[0])


def _divided(part: Bounded, f: int) -> Bounded:
    start, length, tail = part
    return start // f, length // f, tuple([(on // f, period // f, phase // f) for on, period, phase in tail])


def _raise(counts: np.ndarray[Any, np.dtype[np.int32]], low: int, part: Bounded, by: int) -> None:
    """Add to the counts, of which the first is that of `low`, of all that a part holds."""
    start, length, tail = part
    a, b = max(start, low), min(start + length, low + len(counts))
    if a >= b:
        return
    if not tail:
        counts[a - low : b - low] += by
    elif len(tail) > 1:
        counts[elements(tail, a - start, b - start) + (start - low)] += by
    else:
        on, period, phase = tail[0]
        first = a - (a - start - phase) % period  # where the block around a or the one before it begins
        if on <= (b - first) // period:
            for z in range(first, first + on):
                counts[z + (a - z + period - 1) // period * period - low : b - low : period] += by
        else:
            for z in range(first, b, period):
                counts[max(z, a) - low : max(a, min(z + on, b)) - low] += by
