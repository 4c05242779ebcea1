"""Launches of strided copies and fills: gathers, scatters and copies alike, several in one launch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tapestry_exec.copies import ITEM_NBYTES, Transfer, normal_forms, widen
from tapestry_exec.cuda.kernels.structs import BATCH, CStruct, Launch, reverse_to_rank, write_index
from tapestry_exec.cuda.tuning import GUARDS, KEPT, MAX_BLOCKS, THREADS, TILE, TRANSFERS
from tapestry_sets.limits import quote


class _Prepared(Struct, frozen=True, eq=False):
    """Strided copies of one item size, as many as one launch takes."""

    item_nbytes: int
    batch: CStruct

    @property
    def grid(self) -> tuple[int, int, int]:
        return min(int(self.batch["tiles"]), MAX_BLOCKS), 1, 1


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
    units = [raw[k : k + unit] for k in range(0, len(raw), unit)]
    if len(set(units)) == 1:
        return [_fill(one, units[0], dst) for one in _prepared(still, len(raw), None, dst % ITEM_NBYTES)]
    return [launch for k in range(len(units)) for launch in _fill_part(still, units, k, dst)]


def _fill_part(transfers: Sequence[Transfer], units: Sequence[bytes], k: int, dst: int) -> list[Launch]:
    """Write unit k of each element, whose other units differ."""
    every = len(units)
    part = tuple(
        replace(t, dst_offset=t.dst_offset * every + k, dst_strides=tuple(s * every for s in t.dst_strides))
        for t in transfers
    )
    return [_fill(one, units[k], dst) for one in _prepared(part, len(units[k]), None, dst % ITEM_NBYTES)]


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
        raise ValueError(
            f"{transfer}: target strides {quote(transfer.dst_strides)} must not be 0 where the extent is above 1"
        )


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


def _batches(transfers: Sequence[Transfer]) -> Iterator[CStruct]:
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


def _batch(transfers: Sequence[Transfer]) -> CStruct:
    batch = np.zeros((), BATCH)
    tile = guard = 0
    for row, transfer in zip(batch["transfers"], transfers, strict=False):
        write_index(row, transfer.dims)
        row["dst"], row["src"] = transfer.dst_offset, transfer.src_offset
        row["dst_strides"], row["src_strides"] = map(reverse_to_rank, (transfer.dst_strides, transfer.src_strides))
        row["first_tile"], row["first_guard"], row["guards"] = tile, guard, len(transfer.guards)
        for g in transfer.guards:
            batch["guards"][guard] = reverse_to_rank(g.coefficients), g.low, g.high
            guard += 1
        tile += -(-transfer.size // TILE)
    batch["count"], batch["tiles"] = len(transfers), tile
    batch.flags.writeable = False
    return batch
