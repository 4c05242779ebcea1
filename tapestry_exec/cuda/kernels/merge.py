"""Launches that merge partial results, in a row or in a tree."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from tapestry_exec.cuda.kernels.structs import MERGE, CStruct, Launch, check_addresses, walk_parts
from tapestry_exec.cuda.tuning import KEPT, MAX_BLOCKS, PARTS, THREADS
from tapestry_sets.digits import Ints
from tapestry_sets.limits import quote

MERGES = "add", "multiply", "minimum", "maximum", "logical_or", "logical_and"
"""Functions that merge two cells, by NumPy's names, in the kernels' order."""
DTYPES = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64"),
)
"""Dtypes that cells are merged in."""


def name_merge(function: str, dtype: str) -> tuple[str, int]:
    """The cells' type in the kernels' names, and the function's number."""
    if function not in MERGES:
        raise ValueError(f"merges: {quote(function)} is not one of {', '.join(MERGES)}")
    if dtype not in DTYPES:
        raise ValueError(f"merges: dtype {quote(dtype)} is not one of {', '.join(DTYPES)}")
    code = MERGES.index(function)
    if dtype == "bool":
        return "int8", MERGES.index("logical_or" if function in ("add", "maximum", "logical_or") else "logical_and")
    if dtype.startswith("uint"):
        return dtype[1:], code + 4 if function in ("minimum", "maximum") else code
    return dtype, code


def merges(
    function: str, dtype: str, dims: Ints, places: Sequence[tuple[int, Ints]], fan_in: int | None = None
) -> list[Launch]:
    """Launches that merge partial results in their order, one after the other or in a tree.

    Parameters
    ----------
    function : str
        One of `MERGES`.
    dtype : str
        One of `DTYPES`.
    dims : tuple of int
        Extents of the index of the cells that are merged.
    places : sequence of (address, strides)
        Of the target and then of each part: the address of the cell at index 0, and strides in cells, one for each
        dimension. The target is not one of them.
    fan_in : int, optional
        So many neighbors at a time, level by level, as `tapestry_plan.ir.merge_states`; by default all in a row.

    Returns
    -------
    list of Launch
        One, unless there are more than `PARTS` parts or 2³¹ cells.

    Raises
    ------
    ValueError
        For an unknown function or dtype, a wrong place, or a tree of more than `PARTS` parts.

    Examples
    --------
    >>> [one.entry for one in merges("add", "uint8", (5,), [(0, (1,)), (64, (1,)), (128, (1,))])]
    ['merge_int8']
    """
    cell, code = name_merge(function, dtype)
    itemsize = np.dtype(dtype).itemsize
    target, *parts = places
    width = _checked_width(dims, places, itemsize, fan_in)
    launches = []
    for first in range(0, max(len(parts) - 1, 1), PARTS - 1):
        some = parts[:PARTS] if first == 0 else [target, *parts[first + 1 : first + PARTS]]
        taken = [target, *some]
        for struct, offsets in _fill_merges(dims, tuple(strides for _, strides in taken), width):
            work = struct.copy()
            addresses = [at + n * itemsize for (at, _), n in zip(taken, offsets, strict=True)]
            work["out"]["address"], work["from"]["address"][: len(some)] = addresses[0], addresses[1:]
            blocks = min(-(-int(work["total"]) // THREADS), MAX_BLOCKS)
            launches.append(Launch(f"merge_{cell}", (blocks, 1, 1), (THREADS, 1, 1), (work, np.uint32(code))))
    return launches


def _checked_width(dims: Ints, places: Sequence[tuple[int, Ints]], itemsize: int, fan_in: int | None) -> int:
    """How many parts are merged at a time: all of them, unless in a tree."""
    count = len(places) - 1
    if count < 1:
        raise ValueError(f"merges: {len(places)} places are given; give a target and at least one part")
    if fan_in is not None and fan_in < 2:
        raise ValueError(f"merges: fan_in is {fan_in}; at least 2 are merged at a time")
    if fan_in is not None and fan_in < count and count > PARTS:
        raise ValueError(f"merges: a tree of {count} parts, {fan_in} at a time, is too large; at most {PARTS} fit")
    check_addresses("merges", itemsize, (address for address, _ in places))
    if any(len(strides) != len(dims) for _, strides in places):
        raise ValueError(
            f"merges: strides {quote([s for _, s in places])} must have {len(dims)} values each, as {quote(dims)}"
        )
    return PARTS if fan_in is None or fan_in >= count else fan_in


@lru_cache(maxsize=KEPT)
def _fill_merges(dims: Ints, strides: tuple[Ints, ...], width: int) -> tuple[tuple[CStruct, Ints], ...]:
    """Structs but for the addresses, and the cells by which each place's is moved on."""
    found = []
    for work, steps, origin in walk_parts(MERGE, dims, strides):
        work["parts"], work["fan_in"] = len(steps) - 1, width
        work["out"]["strides"], work["from"]["strides"][: len(steps) - 1] = steps[0], steps[1:]
        found.append((work, origin))
    return tuple(found)
