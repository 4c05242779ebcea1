"""Work as launches of the kernels in kernels.cu: pure arithmetic, without a GPU and without CuPy.

Strided copies and fills, merges of partial results, scatters in a fixed order, ends of products of matrices, direct
convolutions and random cells. What is to be done is brought to its normal form (`nests`) and put into structs that go
by value, as much as fits into one launch's parameters; what was worked out once is kept: only addresses change from
launch to launch.

The kernels were run on a CPU and compiled for GPUs, but not yet run on a GPU.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.resources import files
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tapestry_exec.copies import (
    ITEM_NBYTES,
    MOST_CELLS,
    RANK,
    GuardedDigits,
    Transfer,
    normal_digits,
    normal_forms,
    widen,
)
from tapestry_sets.digits import Digits

Ints = tuple[int, ...]
Struct = NDArray[np.void]
"""A C struct by value: a structured array of rank 0."""

SOURCE = files("tapestry_exec.cuda").joinpath("kernels.cu").read_text(encoding="utf-8")
"""CUDA C++ of all kernels."""
OPTIONS = ("-std=c++17", "-fmad=false")
"""Of NVRTC: products and sums round separately, as NumPy's."""

TRANSFERS, GUARDS, PARTS = 10, 16, 32
THREADS, CELLS = 256, 4
TILE = THREADS * CELLS
"""Cells of one block at a time."""
MOST_BLOCKS = 1 << 16
"""Of one launch; beyond, blocks take several tiles."""
KEPT = 4096
"""Sets of copies whose launches are remembered."""
MERGES = "add", "multiply", "minimum", "maximum", "logical_or", "logical_and"
"""Functions that merge two cells, by NumPy's names, in the kernels' order."""
DTYPES = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64"),
)
"""Dtypes that cells are merged in."""
REPLACE = 8
"""The number of the function that puts the second value in the place of the first."""
SCATTER_THREADS, MOST_SHARES = 1 << 16, 256
"""Threads that a scatter should have at least, and parts of a lane at most: each walks through all updates."""
ACTIVATIONS = "none", "relu", "sigmoid", "tanh", "gelu"
"""Functions that end an epilogue, in the kernels' order."""
LANES = {"float32": 4, "float64": 2}
"""Dtypes of epilogues and convolutions, and how many cells 16 bytes hold."""
TALL = {"float32": (64, 16, 1), "float64": (32, 8, 1)}
"""Channels that a block of a convolution makes, by the kernels that there are."""
FEW_CHANNELS = 4
"""Up to so many are made one by one: a block of more would mostly make none."""
HEIGHT = {"float32": 8, "float64": 4}
"""Channels of one thread of these kernels, where there are so many; it makes four cells of each."""

GUARD = np.dtype([("coefficients", np.int64, (RANK,)), ("low", np.int64), ("high", np.int64)], align=True)
TRANSFER = np.dtype(
    [
        ("dst", np.int64),
        ("src", np.int64),
        ("dst_strides", np.int64, (RANK,)),
        ("src_strides", np.int64, (RANK,)),
        ("extents", np.uint32, (RANK,)),
        ("magics", np.uint32, (RANK,)),
        ("shifts", np.uint32, (RANK,)),
        ("total", np.uint32),
        ("first_tile", np.uint32),
        ("rank", np.uint32),
        ("first_guard", np.uint32),
        ("guards", np.uint32),
        ("spare", np.uint32),
    ],
    align=True,
)
BATCH = np.dtype(
    [
        ("count", np.uint32),
        ("tiles", np.uint32),
        ("transfers", TRANSFER, (TRANSFERS,)),
        ("guards", GUARD, (GUARDS,)),
    ],
    align=True,
)
PART = np.dtype([("address", np.uint64), ("strides", np.int64, (RANK,))], align=True)
MERGE = np.dtype(
    [
        ("out", PART),
        ("extents", np.uint32, (RANK,)),
        ("magics", np.uint32, (RANK,)),
        ("shifts", np.uint32, (RANK,)),
        ("total", np.uint32),
        ("rank", np.uint32),
        ("parts", np.uint32),
        ("fan_in", np.uint32),
        ("from", PART, (PARTS,)),
    ],
    align=True,
)
SCATTER = np.dtype(
    [
        ("out", PART),
        ("at", PART),
        ("updates", PART),
        ("at_turn", np.int64),
        ("updates_turn", np.int64),
        ("extents", np.uint32, (RANK,)),
        ("magics", np.uint32, (RANK,)),
        ("shifts", np.uint32, (RANK,)),
        ("total", np.uint32),
        ("rank", np.uint32),
        ("turns", np.uint32),
        ("bits", np.uint32),
    ],
    align=True,
)
CONVOLUTION = np.dtype(
    [
        ("x_strides", np.int64, (5,)),
        ("w_strides", np.int64, (5,)),
        ("out_strides", np.int64, (5,)),
        ("extents", np.uint32, (3,)),
        ("kernel", np.uint32, (3,)),
        ("strides", np.uint32, (3,)),
        ("dilations", np.uint32, (3,)),
        ("channels", np.uint32),
        ("width", np.uint32),
        ("depth", np.uint32),
        ("cells", np.uint32),
        ("cell_tiles", np.uint32),
        ("channel_tiles", np.uint32),
        ("groups", np.uint32),
        ("activation", np.uint32),
    ],
    align=True,
)
WORDS = np.dtype(
    [
        ("first", np.int64),
        ("run", np.int64),
        ("strides", np.int64, (RANK,)),
        ("extents", np.uint32, (RANK,)),
        ("magics", np.uint32, (RANK,)),
        ("shifts", np.uint32, (RANK,)),
        ("total", np.uint32),
        ("rank", np.uint32),
        ("key0", np.uint32),
        ("key1", np.uint32),
    ],
    align=True,
)
STRUCTS = GUARD, TRANSFER, BATCH, PART, MERGE, SCATTER, CONVOLUTION, WORDS
"""What is passed by value, in the order in which the kernel `layout` tells of it."""


@dataclass(frozen=True, slots=True, eq=False)
class Launch:
    """One launch of a kernel.

    Parameters
    ----------
    entry : str
        The kernel's name.
    grid, block : tuple of int
        Extents along x, y and z.
    args : tuple
        NumPy scalars, addresses as np.uint64, and structured arrays of rank 0 for structs by value.
    shared_nbytes : int
        Dynamic shared memory.
    """

    entry: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    args: tuple[Any, ...]
    shared_nbytes: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class _Prepared:
    """Strided copies of one item size, as many as one launch takes."""

    item_nbytes: int
    batch: Struct

    @property
    def grid(self) -> tuple[int, int, int]:
        return min(int(self.batch["tiles"]), MOST_BLOCKS), 1, 1


def layout_of(structs: Sequence[np.dtype[Any]] = STRUCTS) -> list[int]:
    """Size of each struct, then offsets of its fields: what the kernel `layout` finds on the device.

    Examples
    --------
    >>> layout_of([GUARD])
    [80, 0, 64, 72]
    """
    found: list[int] = []
    for struct in structs:
        assert struct.fields is not None
        found += [struct.itemsize, *(struct.fields[name][1] for name in struct.names or ())]
    return found


# ------------------------------------------------------------------------------------------- strided copies


def copies(transfers: Sequence[Transfer], itemsize: int, src: int, dst: int) -> list[Launch]:
    """Launches of strided copies from one array to another: gathers, scatters and copies alike.

    The copies may run at once: no cell is written twice, none that is written is read.

    Parameters
    ----------
    transfers : sequence of Transfer
    itemsize : int
        Bytes of an element.
    src, dst : int
        Addresses of the arrays, multiples of what the element's type asks for.

    Returns
    -------
    list of Launch
        Empty where there is nothing to copy.

    Raises
    ------
    ValueError
        If a copy writes one cell again and again along a dimension, or needs more guards than a launch holds.

    Examples
    --------
    >>> [(one.entry, one.grid) for one in copies([Transfer((3, 64), 0, (128, 1), 0, (64, 1))], 4, 0, 4096)]
    [('copy_16', (1, 1, 1))]
    """
    prepared = _prepared(tuple(transfers), itemsize, src % ITEM_NBYTES, dst % ITEM_NBYTES)
    return [
        Launch(f"copy_{one.item_nbytes}", one.grid, (THREADS, 1, 1), (one.batch, np.uint64(dst), np.uint64(src)))
        for one in prepared
    ]


def fills(transfers: Sequence[Transfer], value: bytes | np.generic, dst: int) -> list[Launch]:
    """Launches that write one value to the targets of strided copies; their sources mean nothing.

    Parameters
    ----------
    transfers : sequence of Transfer
    value : NumPy scalar or bytes
        One element.
    dst : int
        Address of the array.

    Returns
    -------
    list of Launch

    Examples
    --------
    >>> [one.entry for one in fills([Transfer((3, 64), 0, (0, 0), 0, (64, 1))], np.float32(1), 4096)]
    ['fill_16']
    """
    raw = value if isinstance(value, bytes) else value.tobytes()
    still = tuple(replace(t, src_offset=0, src_strides=(0,) * len(t.dims)) for t in transfers)
    unit = _unit_nbytes(len(raw))
    units = sorted({raw[k : k + unit] for k in range(0, len(raw), unit)})
    if len(units) > 1:
        return [launch for k in range(0, len(raw), unit) for launch in _fill_part(still, raw, k, unit, dst)]
    prepared = _prepared(still, len(raw), None, dst % ITEM_NBYTES)
    return [_fill(one, units[0], dst) for one in prepared]


def _fill_part(transfers: Sequence[Transfer], raw: bytes, k: int, unit: int, dst: int) -> list[Launch]:
    """Write bytes k to k + unit of each element, whose other bytes differ."""
    every = len(raw) // unit
    part = tuple(
        replace(t, dst_offset=t.dst_offset * every + k // unit, dst_strides=tuple(s * every for s in t.dst_strides))
        for t in transfers
    )
    return [_fill(one, raw[k : k + unit], dst) for one in _prepared(part, unit, None, dst % ITEM_NBYTES)]


def _fill(one: _Prepared, unit: bytes, dst: int) -> Launch:
    item = np.frombuffer(unit * (one.item_nbytes // len(unit)), f"V{one.item_nbytes}").reshape(())
    return Launch(f"fill_{one.item_nbytes}", one.grid, (THREADS, 1, 1), (one.batch, np.uint64(dst), item))


@lru_cache(maxsize=KEPT)
def _prepared(transfers: tuple[Transfer, ...], itemsize: int, src: int | None, dst: int) -> tuple[_Prepared, ...]:
    """Batches for arrays whose addresses leave these remainders by 16; without a source, targets alone count."""
    unit = _unit_nbytes(itemsize)
    if dst % unit or (src or 0) % unit:
        raise ValueError(
            f"copies: arrays at remainders {src} and {dst} of {ITEM_NBYTES} bytes must be multiples of {unit}, as "
            f"elements of {itemsize} bytes are moved by"
        )
    by_size: dict[int, list[Transfer]] = {}
    for transfer in transfers:
        _check(transfer, src is not None)
        for part in normal_forms(_in_units(transfer, itemsize // unit, src is not None)):
            wide, factor = widen(part, unit, src, dst)
            by_size.setdefault(unit * factor, []).append(wide)
    return tuple(_Prepared(nbytes, batch) for nbytes, parts in by_size.items() for batch in _batches(parts))


def _check(transfer: Transfer, copies: bool) -> None:
    ranks = {len(transfer.dims), len(transfer.src_strides), len(transfer.dst_strides)}
    ranks |= {len(guard.coefficients) for guard in transfer.guards}
    if len(ranks) > 1:
        raise ValueError(f"{transfer}: dims, strides and coefficients must be of one length")
    if copies and any(n > 1 and s == 0 for n, s in zip(transfer.dims, transfer.dst_strides, strict=True)):
        raise ValueError(f"{transfer}: target strides {transfer.dst_strides} must not be 0 where the extent is above 1")


def _unit_nbytes(itemsize: int) -> int:
    """The largest power of two, at most 16, that divides an element's size."""
    return min(itemsize & -itemsize, ITEM_NBYTES)


def _in_units(transfer: Transfer, every: int, has_source: bool) -> Transfer:
    """The same copy with `every` items to the element."""
    if every == 1:
        return transfer
    return Transfer(
        (*transfer.dims, every),
        transfer.src_offset * every,
        (*(s * every for s in transfer.src_strides), int(has_source)),
        transfer.dst_offset * every,
        (*(s * every for s in transfer.dst_strides), 1),
        tuple(replace(guard, coefficients=(*guard.coefficients, 0)) for guard in transfer.guards),
    )


# ------------------------------------------------------------------------------------------------------- merges


def _merging(function: str, dtype: str) -> tuple[str, int]:
    """The cells' type in the kernels' names, and the function's number."""
    if function not in MERGES:
        raise ValueError(f"merges: {function!r} is none of {', '.join(MERGES)}")
    if dtype not in DTYPES:
        raise ValueError(f"merges: dtype {dtype!r} is none of {', '.join(DTYPES)}")
    code = MERGES.index(function)
    if dtype == "bool":
        return "int8", MERGES.index("logical_or" if function in ("add", "maximum", "logical_or") else "logical_and")
    if dtype.startswith("uint"):
        return dtype[1:], code + 4 if function in ("minimum", "maximum") else code
    return dtype, code


def _check_addresses(what: str, unit: int, addresses: Iterable[int]) -> None:
    for address in addresses:
        if address % unit:
            raise ValueError(f"{what}: the address {address} must be a multiple of {unit}, the size of a cell")


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
        dimension. The target is no part.
    fan_in : int, optional
        So many neighbors at a time, level by level, as `tapestry_plan.merge_states`; by default all in a row.

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
    cell, code = _merging(function, dtype)
    itemsize = np.dtype(dtype).itemsize
    target, *parts = places
    width = _checked_width(dims, places, itemsize, fan_in)
    launches = []
    for first in range(0, max(len(parts) - 1, 1), PARTS - 1):
        some = parts[:PARTS] if first == 0 else [target, *parts[first + 1 : first + PARTS]]
        taken = [target, *some]
        for struct, offsets in _merge_structs(dims, tuple(strides for _, strides in taken), width):
            work = struct.copy()
            addresses = [at + n * itemsize for (at, _), n in zip(taken, offsets, strict=True)]
            work["out"]["address"], work["from"]["address"][: len(some)] = addresses[0], addresses[1:]
            blocks = min(-(-int(work["total"]) // THREADS), MOST_BLOCKS)
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
    _check_addresses("merges", itemsize, (address for address, _ in places))
    if any(len(strides) != len(dims) for _, strides in places):
        raise ValueError(f"merges: strides {[s for _, s in places]} must have {len(dims)} values each, as {dims}")
    return PARTS if fan_in is None or fan_in >= count else fan_in


@lru_cache(maxsize=KEPT)
def _merge_structs(dims: Ints, strides: tuple[Ints, ...], width: int) -> tuple[tuple[Struct, Ints], ...]:
    """Structs but for the addresses, and the cells by which each place's is moved on."""
    box = Digits((0,) * len(strides), tuple(zip(dims, *strides, strict=True)))
    found = []
    for part, _ in normal_digits(GuardedDigits(box)):
        counts, *steps = part.columns()
        work = np.zeros((), MERGE)
        _set_index(work, counts)
        work["parts"], work["fan_in"] = len(strides) - 1, width
        for form in range(len(strides)):
            place = work["out"] if form == 0 else work["from"][form - 1]
            place["strides"] = _innermost_first(steps[form])
        found.append((work, part.origin))
    return tuple(found)


def _set_index(work: Struct, dims: Ints) -> None:
    """Write an index's extents, and the magic numbers that divide by them."""
    divisors = [divisor(n) for n in dims]
    work["extents"] = _innermost_first(dims)
    work["magics"] = _innermost_first([magic for magic, _ in divisors])
    work["shifts"] = _innermost_first([shift for _, shift in divisors])
    work["total"], work["rank"] = prod(dims), len(dims)


# ------------------------------------------------------------------------------------ scatters in a fixed order


@dataclass(frozen=True, slots=True)
class Strided:
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
    cell, code = (_merging("add", dtype)[0], REPLACE) if function == "replace" else _merging(function, dtype)
    size = np.dtype(dtype).itemsize
    _check_addresses("scatters", size, (out.address, updates.address))
    _check_addresses("scatters", 8, (at.address,))
    if turns >= MOST_CELLS or {len(out.strides), len(at.strides), len(updates.strides)} != {len(lanes)}:
        raise ValueError(
            f"scatters: {turns} turns of lanes {lanes} with {out}, {at}, {updates}: wrong strides or turns"
        )
    launches = []
    for struct, offsets in _scatter_structs(turns, lanes, out.strides, at.strides, updates.strides):
        work = struct.copy()
        work["at_turn"], work["updates_turn"] = at.turn, updates.turn
        moves = zip((out, at, updates), offsets, (size, 8, size), strict=True)
        work["out"]["address"], work["at"]["address"], work["updates"]["address"] = (
            place.address + n * each for place, n, each in moves
        )
        grid = min(-(-int(work["total"]) // THREADS), MOST_BLOCKS), 1 << int(work["bits"]), 1
        launches.append(Launch(f"scatter_{cell}", grid, (THREADS, 1, 1), (work, np.uint32(code))))
    return launches


@lru_cache(maxsize=KEPT)
def _scatter_structs(turns: int, lanes: Ints, *strides: Ints) -> tuple[tuple[Struct, Ints], ...]:
    """Structs but for addresses and turns, and the cells by which each place's address is moved on."""
    if not turns:
        return ()
    found = []
    box = Digits((0, 0, 0), tuple(zip(lanes, *strides, strict=True)))
    for part, _ in normal_digits(GuardedDigits(box)):
        counts, *steps = part.columns()
        work = np.zeros((), SCATTER)
        _set_index(work, counts)
        work["turns"], work["bits"] = turns, _share_bits(turns, int(work["total"]))
        for name, each in zip(("out", "at", "updates"), steps, strict=True):
            work[name]["strides"] = _innermost_first(each)
        found.append((work, part.origin))
    return tuple(found)


def _share_bits(turns: int, lanes: int) -> int:
    """Into how many parts a lane's cells are shared out: enough threads to fill a GPU, not more than turns."""
    wanted = min(SCATTER_THREADS // lanes, turns, MOST_SHARES)
    return max(wanted, 1).bit_length() - 1


# ------------------------------------------------------------------------------------------------------ epilogue


def epilogues(x: int, bias: int | None, rows: int, columns: int, dtype: str, activation: str = "none") -> list[Launch]:
    """Launches of ``x = activation(x + bias)`` over the rows of a contiguous matrix, in place.

    Parameters
    ----------
    x : int
        Address of the matrix.
    bias : int or None
        Address of one value for each column, contiguous.
    rows, columns : int
    dtype : "float32" or "float64"
    activation : str
        One of `ACTIVATIONS`. ``gelu`` is the exact one; ``relu`` keeps NaNs.

    Returns
    -------
    list of Launch
        Empty where there are no cells, or nothing to do with them.

    Raises
    ------
    ValueError
        For an unknown dtype or activation, an address that is no multiple of the dtype's size, or too long rows.

    Examples
    --------
    >>> [(one.entry, one.grid) for one in epilogues(0, 4096, 8, 128, "float32", "relu")]
    [('epilogue_float32x4', (1, 1, 1))]
    """
    itemsize, code = _checked_floats("epilogues", dtype, activation)
    _check_addresses("epilogues", itemsize, [x] if bias is None else [x, bias])
    if not rows * columns or (bias is None and activation == "none"):
        return []
    if columns >= MOST_CELLS:
        raise ValueError(f"epilogues: rows of {columns} cells are too long; at most {MOST_CELLS - 1} fit")
    whole = columns % LANES[dtype] == 0 and x % ITEM_NBYTES == 0 and (bias or 0) % ITEM_NBYTES == 0
    lanes = LANES[dtype] if whole else 1
    groups = columns // lanes
    fit = (MOST_CELLS - 1) // groups
    launches = []
    for top in range(0, rows, fit):
        total = min(fit, rows - top) * groups
        magic, shift = divisor(groups)
        args = (
            *(np.uint64(x + top * columns * itemsize), np.uint64(bias or 0)),
            *(np.uint32(value) for value in (total, groups, magic, shift, code)),
        )
        grid = min(-(-total // TILE), MOST_BLOCKS), 1, 1
        launches.append(Launch(f"epilogue_{dtype}x{lanes}", grid, (THREADS, 1, 1), args))
    return launches


def _checked_floats(what: str, dtype: str, activation: str) -> tuple[int, int]:
    """The size of a cell and the number of an activation."""
    if dtype not in LANES:
        raise ValueError(f"{what}: dtype {dtype!r} is none of {', '.join(LANES)}")
    if activation not in ACTIVATIONS:
        raise ValueError(f"{what}: activation {activation!r} is none of {', '.join(ACTIVATIONS)}")
    return np.dtype(dtype).itemsize, ACTIVATIONS.index(activation)


# --------------------------------------------------------------------------------------------------- convolution


@dataclass(frozen=True, slots=True)
class Convolving:
    """A direct convolution of blocks: x holds the halo, so that every cell that is read lies in it.

    Output cell o of channel c is ``activation(Σ w[c, i, k] · x[channel of i, o·strides + k·dilations] + bias[c])``.

    Parameters
    ----------
    dtype : "float32" or "float64"
    samples, groups : int
    channels, width : int
        Of each group: read, and made. Group g reads channels from ``g·channels`` on.
    extents, kernel, strides, dilations : tuple of int
        Of one to three spatial axes: output cells, cells of the kernel, steps in x from one output cell and from one
        kernel cell to the next.
    x_strides, w_strides, out_strides : tuple of int
        In cells, one for each axis of each array: samples or output channels, channels, spatial axes.
    activation : str
        One of `ACTIVATIONS`.
    """

    dtype: str
    samples: int
    groups: int
    channels: int
    width: int
    extents: Ints
    kernel: Ints
    strides: Ints
    dilations: Ints
    x_strides: Ints
    w_strides: Ints
    out_strides: Ints
    activation: str = "none"


def convolutions(work: Convolving, out: int, x: int, w: int, bias: int | None = None) -> list[Launch]:
    """Launches of a direct convolution.

    Each cell adds its products in one order, channels and in each the kernel's cells row-major, with fused
    multiply-adds from 0, and then the bias.

    Parameters
    ----------
    work : Convolving
    out, x, w : int
        Addresses of the blocks' first cells.
    bias : int or None
        Address of one value for each output channel, contiguous.

    Returns
    -------
    list of Launch
        Empty where there is no output cell.

    Raises
    ------
    ValueError
        For an unknown dtype or activation, other than one to three spatial axes, addresses that are no multiples of
        the dtype's size, or too many cells.

    Examples
    --------
    >>> row = Convolving("float32", 1, 1, 3, 16, (30,), (3,), (1,), (1,), (96, 32, 1), (9, 3, 1), (480, 30, 1))
    >>> [(one.entry, one.grid) for one in convolutions(row, 0, 4096, 8192)]
    [('convolution_float32x16', (1, 1, 1))]
    """
    _check_addresses("convolutions", np.dtype(work.dtype).itemsize, [out, x, w] if bias is None else [out, x, w, bias])
    entry, blocks, struct = _convolution(work)
    if not blocks:
        return []
    args = struct, np.uint64(out), np.uint64(x), np.uint64(w), np.uint64(bias or 0)
    return [Launch(entry, (blocks, 1, 1), (THREADS, 1, 1), args)]


@lru_cache(maxsize=KEPT)
def _convolution(work: Convolving) -> tuple[str, int, Struct]:
    code = _checked_floats("convolutions", work.dtype, work.activation)[1]
    tall = _tall(work.dtype, work.width)
    cells, depth = prod(work.extents), work.channels * prod(work.kernel)
    cell_tiles, channel_tiles = -(-cells // _span(work.dtype, tall)), -(-work.width // tall)
    blocks = cell_tiles * channel_tiles * work.groups * work.samples
    _check_convolution(work, max(cells, depth, blocks, work.width * work.groups))
    struct = np.zeros((), CONVOLUTION)
    for name in ("x_strides", "w_strides", "out_strides"):
        given = getattr(work, name)
        struct[name] = (*given[:2], *_of_three(given[2:], 0))
    for name in ("extents", "kernel", "strides", "dilations"):
        struct[name] = _of_three(getattr(work, name), 1)
    for name, value in (
        *(("channels", work.channels), ("width", work.width), ("depth", depth), ("cells", cells)),
        *(("cell_tiles", cell_tiles), ("channel_tiles", channel_tiles), ("groups", work.groups), ("activation", code)),
    ):
        struct[name] = value
    struct.flags.writeable = False
    return f"convolution_{work.dtype}x{tall}", blocks, struct


def _of_three(values: Ints, one: int) -> Ints:
    """Spatial axes from the left filled up to three."""
    return (*(one,) * (3 - len(values)), *values)


def _check_convolution(work: Convolving, most: int) -> None:
    rank = len(work.extents)
    lengths = [len(v) for v in (work.kernel, work.strides, work.dilations)]
    of_arrays = [len(v) - 2 for v in (work.x_strides, work.w_strides, work.out_strides)]
    if rank not in (1, 2, 3) or {*lengths, *of_arrays} != {rank}:
        raise ValueError(f"convolutions: {work} must have one to three spatial axes, the same ones throughout")
    if most >= MOST_CELLS:
        raise ValueError(f"convolutions: {work} counts up to {most}; less than {MOST_CELLS} is numbered")


def _tall(dtype: str, width: int) -> int:
    """Channels that a block makes: those that leave the fewest idle, of two the more."""
    *large, one = TALL[dtype]
    return one if width <= FEW_CHANNELS else min(large, key=lambda tall: (-(-width // tall) * tall, -tall))


def _span(dtype: str, tall: int) -> int:
    """Cells of each channel that a block makes: rows of threads share channels."""
    return THREADS * 4 // max(1, tall // HEIGHT[dtype])


def padded_channels(dtype: str, width: int) -> int:
    """Channels that the blocks of a convolution compute for so many, those that come to nothing too.

    Of few channels each is computed alone, and reads as much as four that share what they read.

    Examples
    --------
    >>> [padded_channels("float32", width) for width in (1, 5, 20, 64)]
    [4, 16, 32, 64]
    """
    tall = _tall(dtype, width)
    return 4 * width if tall == 1 else -(-width // tall) * tall


# -------------------------------------------------------------------------------------------------- random words


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
    _check_addresses("random_words", 4, [out])
    return [
        Launch("philox_words", grid, (THREADS, 1, 1), (struct, np.uint64(out + 4 * at)))
        for struct, at, grid in _word_structs(key, start, shape, extents, each)
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
        raise ValueError(f"random_uniforms: dtype {dtype!r} is none of {', '.join(LANES)}")
    made = np.dtype(dtype)
    _check_addresses("random_uniforms", made.itemsize, [out])
    least, most = made.type(low), made.type(high)
    ends = least, most - least, np.nextafter(most, least)
    return [
        Launch(f"philox_{dtype}", grid, (THREADS, 1, 1), (struct, np.uint64(out + 4 * at), *ends))
        for struct, at, grid in _word_structs(key, start, shape, extents, made.itemsize // 4)
    ]


@dataclass(frozen=True, slots=True)
class Rows:
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
        if len(self.axes) < RANK and count * self.groups < MOST_CELLS:
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
def _word_structs(
    key: tuple[int, int], start: Ints, shape: Ints, extents: Ints, each: int
) -> tuple[tuple[Struct, int, tuple[int, int, int]], ...]:
    """Structs, the word of the block where each begins, and grids."""
    if 0 in shape:
        return ()
    found = []
    for part in Rows.of(start, shape, extents, each).parts():
        work = np.zeros((), WORDS)
        _set_index(work, (*(n for n, _ in part.axes), part.groups))
        work["strides"] = _innermost_first([*(stride for _, stride in part.axes), 0])
        work["first"], work["run"] = part.first, part.run
        work["key0"], work["key1"] = key
        work.flags.writeable = False
        found.append((work, part.at, (min(-(-int(work["total"]) // THREADS), MOST_BLOCKS), 1, 1)))
    return tuple(found)


# --------------------------------------------------------------------------------------------------- packing


def _batches(transfers: Sequence[Transfer]) -> Iterator[Struct]:
    """Structs for the kernels, each with as many copies as it holds."""
    taken: list[Transfer] = []
    guards = 0
    for transfer in transfers:
        count = len(transfer.guards)
        if count > GUARDS:
            raise ValueError(f"{transfer}: {count} guards on several dimensions are more than a launch's {GUARDS}")
        if len(taken) == TRANSFERS or guards + count > GUARDS:
            yield _batch(taken)
            taken, guards = [], 0
        taken.append(transfer)
        guards += count
    if taken:
        yield _batch(taken)


def _batch(transfers: Sequence[Transfer]) -> Struct:
    batch = np.zeros((), BATCH)
    tile = guard = 0
    for k, transfer in enumerate(transfers):
        total = prod(transfer.dims)
        count = len(transfer.guards)
        batch["transfers"][k] = _packed(transfer, total, tile, guard)
        for g in transfer.guards:
            batch["guards"][guard] = _innermost_first(g.coefficients), g.low, g.high
            guard += 1
        tile += -(-total // TILE)
        assert count <= GUARDS
    batch["count"], batch["tiles"] = len(transfers), tile
    batch.flags.writeable = False
    return batch


def _packed(transfer: Transfer, total: int, tile: int, guard: int) -> tuple[Any, ...]:
    divisors = [divisor(n) for n in transfer.dims]
    return (
        transfer.dst_offset,
        transfer.src_offset,
        _innermost_first(transfer.dst_strides),
        _innermost_first(transfer.src_strides),
        _innermost_first(transfer.dims),
        _innermost_first([magic for magic, _ in divisors]),
        _innermost_first([shift for _, shift in divisors]),
        total,
        tile,
        len(transfer.dims),
        guard,
        len(transfer.guards),
        0,
    )


def _innermost_first(values: Sequence[int]) -> list[int]:
    return [*reversed(values), *(0,) * (RANK - len(values))]


def divisor(n: int) -> tuple[int, int]:
    """Magic number and shift: x // n == (x·magic // 2³² + x) >> shift for x and n below 2³¹.

    Examples
    --------
    >>> magic, shift = divisor(7)
    >>> (((1000 * magic) >> 32) + 1000) >> shift
    142

    References
    ----------
    Granlund and Montgomery, "Division by invariant integers using multiplication", 1994.
    """
    shift = (n - 1).bit_length()
    return ((1 << 32) * ((1 << shift) - n)) // n + 1, shift
