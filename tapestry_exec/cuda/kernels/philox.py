"""Launches that write random words and numbers: Philox counters, numbered by the cells of the whole tensor."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from math import prod

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tapestry_exec.copies import MAX_CELLS, RANK
from tapestry_exec.cuda.kernels.structs import WORDS, CStruct, Launch, check_addresses, reverse_to_rank, write_index
from tapestry_exec.cuda.tuning import KEPT, LANES, MAX_BLOCKS, THREADS
from tapestry_sets.digits import Ints
from tapestry_sets.limits import quote


def random_words(
    out: int, key: tuple[int, int], start: Ints, shape: Ints, extents: Ints, each: int = 1
) -> list[Launch]:
    """Launches that write the words of the cells in a box of a tensor, as `tapestry_plan`'s generators number them.

    Parameters
    ----------
    out : int
        Address of a contiguous uint32 array of shape (*shape, each).
    key : tuple of int
        Two words.
    start, shape : tuple of int
        The box.
    extents : tuple of int
        The tensor's shape: the words of cell number f, row-major, are those from number ``f·each`` on.
    each : int
        Words of a cell.

    Returns
    -------
    list of Launch

    References
    ----------
    Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", 2011; Random123, philox4x32-10.

    Examples
    --------
    >>> [(one.entry, one.grid) for one in random_words(0, (7, 0), (0, 0), (3, 100), (9, 100))]
    [('philox_words', (1, 1, 1))]
    """
    check_addresses("random_words", 4, [out])
    return [
        Launch("philox_words", grid, (THREADS, 1, 1), (struct, np.uint64(out + 4 * at)))
        for struct, at, grid in _fill_words(key, start, shape, extents, each)
    ]


def random_uniforms(
    out: int, key: tuple[int, int], start: Ints, shape: Ints, extents: Ints, dtype: str, low: float, high: float
) -> list[Launch]:
    """Launches that write random numbers in [low, high): ``low + (high − low)·u``, below `high` however it rounds.

    Parameters
    ----------
    out : int
        Address of a contiguous array of that dtype and shape.
    key, start, shape, extents
        As for `random_words`.
    dtype : "float32" or "float64"
        u is one word's 24 bits, or 53 bits of two words.
    low, high : float

    Examples
    --------
    >>> [one.entry for one in random_uniforms(0, (7, 0), (0, 0), (3, 100), (9, 100), "float64", 0, 1)]
    ['philox_float64']
    """
    if dtype not in LANES:
        raise ValueError(f"random_uniforms: dtype {quote(dtype)} is not one of {', '.join(LANES)}")
    made = np.dtype(dtype)
    check_addresses("random_uniforms", made.itemsize, [out])
    least, most = made.type(low), made.type(high)
    ends = least, most - least, np.nextafter(most, least)
    return [
        Launch(f"philox_{dtype}", grid, (THREADS, 1, 1), (struct, np.uint64(out + 4 * at), *ends))
        for struct, at, grid in _fill_words(key, start, shape, extents, made.itemsize // 4)
    ]


class Rows(Struct, frozen=True):
    """Runs of words of a tensor that lie one after the other in a block.

    Parameters
    ----------
    axes : tuple of (extent, stride)
        What numbers the runs, row-major; strides in words of the tensor.
    first : int
        Word of the tensor at which run 0 begins.
    run : int
        Words of a run.
    at : int
        Word of the block at which run 0 begins.
    """

    axes: tuple[tuple[int, int], ...]
    first: int
    run: int
    at: int = 0

    @classmethod
    def of(cls, start: Ints, shape: Ints, extents: Ints, each: int) -> Rows:
        """Of a box of a tensor with so many words for each cell."""
        strides = [each * prod(extents[k + 1 :]) for k in range(len(extents))]
        lead = len(shape)
        while lead and (lead == len(shape) or shape[lead] == extents[lead]):
            lead -= 1
        axes: list[tuple[int, int]] = []
        for n, stride in zip(shape[:lead], strides[:lead], strict=True):
            if axes and axes[-1][1] == n * stride:
                axes[-1] = axes[-1][0] * n, stride
            elif n > 1:
                axes.append((n, stride))
        first = sum(a * s for a, s in zip(start, strides, strict=True))
        return cls(tuple(axes), first, each * prod(shape[lead:]))

    @property
    def groups(self) -> int:
        """Groups of four words, from a multiple of four on, that hold any run."""
        is_whole = all(word % 4 == 0 for word in (self.first, *(stride for _, stride in self.axes)))
        return -(-self.run // 4) if is_whole else (self.run + 6) // 4

    def parts(self) -> Iterator[Rows]:
        """The same words in parts that a launch numbers."""
        count = prod(n for n, _ in self.axes)
        if len(self.axes) < RANK and count * self.groups < MAX_CELLS:
            yield self
        elif not self.axes:
            half = self.run // 8 * 4
            yield from replace(self, run=half).parts()
            yield from Rows((), self.first + half, self.run - half, self.at + half).parts()
        else:
            (n, stride), *inner = self.axes
            below = count // n * self.run
            step = 1 if len(self.axes) >= RANK or n == 1 else -(-n // 2)
            for k in range(0, n, step):
                some = min(step, n - k)
                axes = (*([(some, stride)] if some > 1 else []), *inner)
                yield from Rows(axes, self.first + k * stride, self.run, self.at + k * below).parts()


@lru_cache(maxsize=KEPT)
def _fill_words(
    key: tuple[int, int], start: Ints, shape: Ints, extents: Ints, each: int
) -> tuple[tuple[CStruct, int, tuple[int, int, int]], ...]:
    """Structs, the word of the block where each begins, and grids."""
    if 0 in shape:
        return ()
    found = []
    for part in Rows.of(start, shape, extents, each).parts():
        work = np.zeros((), WORDS)
        write_index(work, (*(n for n, _ in part.axes), part.groups))
        work["strides"] = reverse_to_rank([*(stride for _, stride in part.axes), 0])
        work["first"], work["run"] = part.first, part.run
        work["key0"], work["key1"] = key
        work.flags.writeable = False
        found.append((work, part.at, (min(-(-int(work["total"]) // THREADS), MAX_BLOCKS), 1, 1)))
    return tuple(found)
