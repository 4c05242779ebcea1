"""Random numbers by index: Philox4x32-10, whose words depend on a key and a cell's row-major number alone.

So a region of a random tensor is the same, bit for bit, whoever computes it and in whatever parts. Every function works
with the functions of an array namespace, on whatever device its arrays are.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from tapestry_plan.ops import tuning

MULTIPLIERS = 0xD2511F53, 0xCD9E8D57
WEYL = 0x9E3779B9, 0xBB67AE85
ROUNDS = 10
WORD = 0xFFFFFFFF


def words(xp: Any, counters: Any, key: tuple[int, int]) -> Any:
    """Return the four words of each counter.

    Parameters
    ----------
    xp : array namespace
    counters : uint64 array
        The two low words of each 128-bit counter; the two high words are zero.
    key : tuple of int
        Two words of 32 bits.

    Returns
    -------
    uint32 array of shape (*counters.shape, 4)

    Examples
    --------
    >>> import numpy as np
    >>> [hex(w) for w in words(np, np.zeros(1, np.uint64), (0, 0))[0].tolist()]
    ['0x6627e8d5', '0xe169c58d', '0xbc57ac4c', '0x9b00dbd8']

    References
    ----------
    Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", 2011; Random123, philox4x32-10.
    """
    low, high = counters & WORD, counters >> 32
    return philox(xp, (low, high, xp.zeros_like(low), xp.zeros_like(low)), key)


def region_words(
    xp: Any, start: Sequence[int], shape: Sequence[int], extents: Sequence[int], key: tuple[int, int], each: int = 1
) -> Any:
    """Return the words of the cells in a box of a tensor.

    Parameters
    ----------
    xp : array namespace
    start, shape : sequence of int
        The box.
    extents : sequence of int
        The tensor's shape: the words of cell number f, in row-major order, are those from number ``f * each`` on.
    key : tuple of int
        Two words of 32 bits.
    each : int
        How many words a cell has.

    Returns
    -------
    uint32 array of shape (*shape, each)

    Examples
    --------
    >>> import numpy as np
    >>> whole = region_words(np, (0, 0), (5, 7), (5, 7), (1, 2))
    >>> bool((region_words(np, (1, 3), (2, 4), (5, 7), (1, 2)) == whole[1:3, 3:7]).all())
    True
    """
    lead, run, firsts = _rows(start, shape, extents)
    rows = prod(shape[:lead])
    out = xp.empty((rows, run * each), xp.uint32)
    first = xp.zeros((), xp.uint64)
    for axis in range(lead):
        along = xp.arange(start[axis], start[axis] + shape[axis], dtype=xp.uint64) * xp.uint64(firsts[axis] * each)
        first = first[..., None] + along
    first = first.reshape(rows) + xp.uint64(firsts[lead] * each)
    groups = (run * each + 6) // 4
    step = max(1, tuning.TILE_COUNTERS // groups)
    for top in range(0, rows, step):
        part = first[top : top + step]
        counters = (part >> 2)[:, None] + xp.arange(groups, dtype=xp.uint64)
        made = words(xp, counters, key).reshape(len(part), 4 * groups)
        at = (part & 3).astype(xp.int64)[:, None] + xp.arange(run * each)
        out[top : top + step] = xp.take_along_axis(made, at, axis=1)
    return out.reshape(*shape, each)


def _rows(start: Sequence[int], shape: Sequence[int], extents: Sequence[int]) -> tuple[int, int, list[int]]:
    """How many leading axes number the runs of a box, how long a run is, and each axis's stride, at last the offset."""
    lead = len(shape)
    while lead and (lead == len(shape) or shape[lead] == extents[lead]):
        lead -= 1
    strides = [prod(extents[axis + 1 :]) for axis in range(len(extents))]
    run = prod(shape[lead:])
    offset = start[lead] * strides[lead] if shape else 0
    return lead, run, [*strides[:lead], offset]


def philox(xp: Any, counter: Sequence[Any], key: tuple[int, int]) -> Any:
    """Return the four words of counters given by four words each, as uint64 arrays of one shape."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(ROUNDS):
        one, two = c0 * xp.uint64(MULTIPLIERS[0]), c2 * xp.uint64(MULTIPLIERS[1])
        c0, c1, c2, c3 = (two >> 32) ^ c1 ^ k0, two & WORD, (one >> 32) ^ c3 ^ k1, one & WORD
        k0, k1 = (k0 + WEYL[0]) & WORD, (k1 + WEYL[1]) & WORD
    return xp.stack([c0, c1, c2, c3], axis=-1).astype(xp.uint32)
