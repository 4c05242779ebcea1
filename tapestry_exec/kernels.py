"""Work as launches of the kernels in kernels.cu: pure arithmetic, without a GPU and without CuPy.

A strided copy is brought to its normal form (fewest dimensions, the target's innermost run inside, the largest item
that both sides allow), and as many as fit are put into one launch's parameters. What was worked out for one set of
copies is kept: only addresses change from launch to launch.

The kernels were run on a CPU and compiled for GPUs, but not yet run on a GPU.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.resources import files
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tapestry_exec.strided import Transfer

Ints = tuple[int, ...]
Struct = NDArray[np.void]
"""A C struct by value: a structured array of rank 0."""

SOURCE = files("tapestry_exec").joinpath("kernels.cu").read_text(encoding="utf-8")
"""CUDA C++ of all kernels."""
OPTIONS = ("-std=c++17", "-fmad=false")
"""Of NVRTC: products and sums round separately, as NumPy's."""

RANK, TRANSFERS, GUARDS = 8, 10, 16
THREADS, CELLS = 256, 4
TILE = THREADS * CELLS
"""Cells of one block at a time."""
MOST_CELLS = 1 << 31
"""Indices are of 32 bits: larger copies are cut."""
MOST_BLOCKS = 1 << 16
"""Of one launch; beyond, blocks take several tiles."""
ITEM_NBYTES = 16
"""Of the largest item."""
KEPT = 4096
"""Sets of copies whose launches are remembered."""

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
STRUCTS = GUARD, TRANSFER, BATCH
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
            wide, factor = widened(part, unit, src, dst)
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


# ---------------------------------------------------------------------------------------------- normal forms


def normal_forms(transfer: Transfer) -> list[Transfer]:
    """The same copy in at most eight dimensions, each part of at most 2³¹ cells.

    Extents of 1 are dropped, target strides made positive and sorted, the largest first, neighbours merged where
    both sides and the guards allow; guards on one dimension cut its extent, guards that always hold are dropped.

    Returns
    -------
    list of Transfer
        Of rank 1 at least. Usually one; none where no cell is copied.

    Examples
    --------
    >>> normal_forms(Transfer((4, 1, 6), 0, (6, 9, 1), 5, (6, 9, 1)))
    [Transfer(dims=(24,), src_offset=0, src_strides=(1,), dst_offset=5, dst_strides=(1,), guards=())]
    """
    upward = _upward(transfer)
    plain = None if upward is None else _without_guards(upward)
    if plain is None:
        return []
    merged = _merged(_sorted(plain))
    return [part for low in _of_rank(merged) for part in _of_size(low)]


def _upward(transfer: Transfer) -> Transfer | None:
    """Without extents of 1 and with target strides of at least 0; None if it is empty."""
    if 0 in transfer.dims:
        return None
    keep = [k for k, n in enumerate(transfer.dims) if n > 1]
    found = _picked(transfer, keep)
    turned = [k for k in range(len(keep)) if (found.dst_strides[k], found.src_strides[k]) < (0, 0)]
    for k in turned:
        found = _turned(found, k)
    return found


def _picked(transfer: Transfer, axes: Sequence[int]) -> Transfer:
    """Dimensions of a copy, in this order; others must have extent 1."""

    def pick(values: Ints) -> Ints:
        return tuple(values[k] for k in axes)

    return replace(
        transfer,
        dims=pick(transfer.dims),
        src_strides=pick(transfer.src_strides),
        dst_strides=pick(transfer.dst_strides),
        guards=tuple(replace(guard, coefficients=pick(guard.coefficients)) for guard in transfer.guards),
    )


def _turned(transfer: Transfer, k: int) -> Transfer:
    """Index i of dimension k counted from its end."""
    last = transfer.dims[k] - 1
    moved = _shifted(transfer, k, last)
    return replace(
        moved,
        src_strides=_with(moved.src_strides, k, -moved.src_strides[k]),
        dst_strides=_with(moved.dst_strides, k, -moved.dst_strides[k]),
        guards=tuple(replace(g, coefficients=_with(g.coefficients, k, -g.coefficients[k])) for g in moved.guards),
    )


def _shifted(transfer: Transfer, k: int, by: int) -> Transfer:
    """The copy's cells from index `by` of dimension k on."""
    return replace(
        transfer,
        src_offset=transfer.src_offset + by * transfer.src_strides[k],
        dst_offset=transfer.dst_offset + by * transfer.dst_strides[k],
        guards=tuple(
            replace(g, low=g.low - by * g.coefficients[k], high=g.high - by * g.coefficients[k])
            for g in transfer.guards
        ),
    )


def _with(values: Ints, k: int, value: int) -> Ints:
    return (*values[:k], value, *values[k + 1 :])


def _without_guards(transfer: Transfer) -> Transfer | None:
    """Guards that say something about two dimensions and more; the others cut extents. None if no cell is left."""
    single = next((g for g in transfer.guards if sum(map(bool, g.coefficients)) == 1), None)
    if single is None:
        return _with_open_guards(transfer)
    axis = next(k for k, c in enumerate(single.coefficients) if c)
    first, last = _range_of(single.coefficients[axis], single.low, single.high)
    first, last = max(first, 0), min(last, transfer.dims[axis] - 1)
    if first > last:
        return None
    others = tuple(guard for guard in transfer.guards if guard is not single)
    cut = _shifted(replace(transfer, guards=others), axis, first)
    return _without_guards(replace(cut, dims=_with(cut.dims, axis, last - first + 1)))


def _range_of(c: int, low: int, high: int) -> tuple[int, int]:
    """The first and last i with low <= c·i < high."""
    if c < 0:
        c, low, high = -c, 1 - high, 1 - low
    return -(-low // c), (high - 1) // c


def _with_open_guards(transfer: Transfer) -> Transfer | None:
    """Without guards that hold everywhere; None if one holds nowhere."""
    still = []
    for guard in transfer.guards:
        ends = [c * (n - 1) for c, n in zip(guard.coefficients, transfer.dims, strict=True)]
        least, most = sum(min(e, 0) for e in ends), sum(max(e, 0) for e in ends)
        if most < guard.low or least >= guard.high or guard.low >= guard.high:
            return None
        if least < guard.low or most >= guard.high:
            still.append(guard)
    return replace(transfer, guards=tuple(still))


def _sorted(transfer: Transfer) -> Transfer:
    """Neighbouring cells of the target next to each other in the index, so that their stores go together."""
    order = sorted(
        (k for k, n in enumerate(transfer.dims) if n > 1),
        key=lambda k: (-abs(transfer.dst_strides[k]), -abs(transfer.src_strides[k])),
    )
    return _picked(transfer, order)


def _merged(transfer: Transfer) -> Transfer:
    """Neighbouring dimensions as one, where the outer one goes on where the inner one ends."""
    forms = (transfer.src_strides, transfer.dst_strides, *(guard.coefficients for guard in transfer.guards))
    dims: list[int] = []
    steps: list[Ints] = []
    for n, *step in zip(transfer.dims, *forms, strict=True):
        if dims and steps[-1] == tuple(s * n for s in step):
            dims[-1] *= n
            steps[-1] = tuple(step)
        else:
            dims.append(n)
            steps.append(tuple(step))
    if not dims:
        dims, steps = [1], [(0,) * len(forms)]
    src, dst, *coefficients = zip(*steps, strict=True)
    guards = tuple(replace(g, coefficients=c) for g, c in zip(transfer.guards, coefficients, strict=True))
    return Transfer(tuple(dims), transfer.src_offset, src, transfer.dst_offset, dst, guards)


def _of_rank(transfer: Transfer) -> Iterator[Transfer]:
    """Parts of at most eight dimensions: the smallest extents are counted out."""
    if len(transfer.dims) <= RANK:
        yield transfer
        return
    k = min(range(len(transfer.dims)), key=lambda axis: (transfer.dims[axis], axis))
    rest = [axis for axis in range(len(transfer.dims)) if axis != k]
    for i in range(transfer.dims[k]):
        part = _with_open_guards(_picked(_shifted(transfer, k, i), rest))
        if part is not None:
            yield from _of_rank(part)


def _of_size(transfer: Transfer) -> Iterator[Transfer]:
    """Parts of less than 2³¹ cells: the largest extent is halved."""
    if prod(transfer.dims) < MOST_CELLS:
        yield transfer
        return
    k = max(range(len(transfer.dims)), key=lambda axis: transfer.dims[axis])
    half = transfer.dims[k] // 2
    yield from _of_size(replace(transfer, dims=_with(transfer.dims, k, half)))
    rest = _shifted(transfer, k, half)
    yield from _of_size(replace(rest, dims=_with(transfer.dims, k, transfer.dims[k] - half)))


def widened(transfer: Transfer, nbytes: int, src: int | None, dst: int) -> tuple[Transfer, int]:
    """The same copy in items as large as runs, strides and addresses allow, and how many old ones make a new one.

    Parameters
    ----------
    transfer : Transfer
        In a normal form.
    nbytes : int
        Of its items: a power of two.
    src, dst : int
        Addresses of the arrays, or their remainders by 16; None for a fill, whose source strides are 0.

    Examples
    --------
    >>> widened(Transfer((3, 8), 4, (12, 1), 0, (8, 1)), 4, 0, 0)
    (Transfer(dims=(3, 2), src_offset=1, src_strides=(3, 1), dst_offset=0, dst_strides=(2, 1), guards=()), 4)
    """
    runs = transfer.dst_strides[-1] == 1 and (src is None or transfer.src_strides[-1] == 1)
    if not runs or any(guard.coefficients[-1] for guard in transfer.guards):
        return transfer, 1
    outer = (*transfer.src_strides[:-1], *transfer.dst_strides[:-1], transfer.src_offset, transfer.dst_offset)
    factor = ITEM_NBYTES // nbytes
    while factor > 1 and (
        any(value % factor for value in (*outer, transfer.dims[-1]))
        or (src or 0) % (factor * nbytes)
        or dst % (factor * nbytes)
    ):
        factor //= 2
    if factor == 1:
        return transfer, 1
    return _in_wider(transfer, factor), factor


def _in_wider(transfer: Transfer, factor: int) -> Transfer:
    """Each `factor` items of the innermost dimension as one."""
    return replace(
        transfer,
        dims=(*transfer.dims[:-1], transfer.dims[-1] // factor),
        src_offset=transfer.src_offset // factor,
        src_strides=(*(s // factor for s in transfer.src_strides[:-1]), transfer.src_strides[-1]),
        dst_offset=transfer.dst_offset // factor,
        dst_strides=(*(s // factor for s in transfer.dst_strides[:-1]), 1),
    )


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
