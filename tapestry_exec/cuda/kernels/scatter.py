"""Launches of scatters in a fixed order, without atomic operations."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from msgspec import Struct

from tapestry_exec.copies import MAX_CELLS
from tapestry_exec.cuda.kernels.merge import name_merge
from tapestry_exec.cuda.kernels.structs import SCATTER, CStruct, Launch, check_addresses, walk_parts
from tapestry_exec.cuda.tuning import KEPT, MAX_BLOCKS, MAX_SHARES, SCATTER_THREADS, THREADS
from tapestry_sets.digits import Ints

REPLACE = 8
"""The number of the function that puts the second value in the place of the first."""


class Strided(Struct, frozen=True):
    """Cells of an array on a device: the address at index 0, and strides in cells: of the turns, and of the lanes.

    Parameters
    ----------
    address : int
    strides : tuple of int
        One for each axis of the lanes.
    turn : int
        From one turn to the next.
    """

    address: int
    strides: Ints
    turn: int = 0


def scatters(
    function: str, dtype: str, turns: int, lanes: Ints, out: Strided, at: Strided, updates: Strided
) -> list[Launch]:
    """Launches of ``out[at[k, l], l] = function(out[at[k, l], l], updates[k, l])`` for each lane l, k by k.

    Each cell gets its updates in their order, however many there are: the result is one, without atomic operations.

    Parameters
    ----------
    function : str
        One of `MERGES`, or "replace".
    dtype : str
        One of `DTYPES`, of `out` and `updates`; `at` holds int64.
    turns : int
    lanes : tuple of int
        Extents. Two lanes never write one cell.
    out, at, updates : Strided
        `at` counts cells of `out` from the lane's own.

    Returns
    -------
    list of Launch
        Empty where there are no updates.

    Raises
    ------
    ValueError
        For an unknown function or dtype, a wrong address or wrong strides, or 2³¹ turns.

    Examples
    --------
    >>> rows, at = Strided(0, (1,)), Strided(4096, (0,), 1)
    >>> [(one.entry, one.grid) for one in scatters("add", "float32", 100, (768,), rows, at, Strided(8192, (1,), 768))]
    [('scatter_float32', (3, 64, 1))]
    """
    cell, code = (name_merge("add", dtype)[0], REPLACE) if function == "replace" else name_merge(function, dtype)
    size = np.dtype(dtype).itemsize
    check_addresses("scatters", size, (out.address, updates.address))
    check_addresses("scatters", 8, (at.address,))
    if turns >= MAX_CELLS or {len(out.strides), len(at.strides), len(updates.strides)} != {len(lanes)}:
        raise ValueError(
            f"scatters: {turns} turns of lanes {lanes} with {out}, {at}, {updates}: wrong strides or turns"
        )
    launches = []
    for struct, offsets in _fill_scatters(turns, lanes, out.strides, at.strides, updates.strides):
        work = struct.copy()
        work["at_turn"], work["updates_turn"] = at.turn, updates.turn
        moves = zip((out, at, updates), offsets, (size, 8, size), strict=True)
        work["out"]["address"], work["at"]["address"], work["updates"]["address"] = (
            place.address + n * each for place, n, each in moves
        )
        grid = min(-(-int(work["total"]) // THREADS), MAX_BLOCKS), 1 << int(work["bits"]), 1
        launches.append(Launch(f"scatter_{cell}", grid, (THREADS, 1, 1), (work, np.uint32(code))))
    return launches


@lru_cache(maxsize=KEPT)
def _fill_scatters(turns: int, lanes: Ints, *strides: Ints) -> tuple[tuple[CStruct, Ints], ...]:
    """Structs but for addresses and turns, and the cells by which each place's address is moved on."""
    if not turns:
        return ()
    found = []
    for work, steps, origin in walk_parts(SCATTER, lanes, strides):
        work["turns"], work["bits"] = turns, _share_bits(turns, int(work["total"]))
        work["out"]["strides"], work["at"]["strides"], work["updates"]["strides"] = steps
        found.append((work, origin))
    return tuple(found)


def _share_bits(turns: int, lanes: int) -> int:
    """Into how many parts a lane's cells are shared out: enough threads to fill a GPU, not more than turns."""
    wanted = min(SCATTER_THREADS // lanes, turns, MAX_SHARES)
    return max(wanted, 1).bit_length() - 1
