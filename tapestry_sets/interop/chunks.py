"""Chunks of Zarr, xarray or Dask arrays: which of them a strided selection touches, and where each lands in the result.

    positions   0 . . 3 . . 6 . . 9 . .      an axis of 12, [::3]
    chunks      |-------|-------|------|     of 4, 4 and 4
    touched     0       1       2            0: 0, 3 -> 0, 1   1: 6 - 4 = 2 -> 2   2: 9 - 8 = 1 -> 3

No other chunk is looked at: from one touched chunk the next follows by a division, or by a search in uneven ones.
A list of indices, or a mask, is sorted by chunk.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from math import prod
from typing import Any, NamedTuple, TypeAlias, cast

import numpy as np
from msgspec import Struct

from tapestry_sets.digits import Int64Array
from tapestry_sets.limits import Value, as_int, as_ints, put_fields, quote, refuse_masked
from tapestry_sets.regions import BoxKey, length, select_ranges, spell_out
from tapestry_sets.views import INT64_MAX

ChunkKey: TypeAlias = "BoxKey | list[Any] | np.ndarray[Any, Any] | tuple[Any, ...]"


class Chunk(NamedTuple):
    """A chunk that is touched.

    Attributes
    ----------
    numbers : tuple of int
        The chunk's number on each axis.
    inside : tuple of slice, int or array of int
        The positions selected, in the chunk's own coordinates: ``chunk[inside]`` is what is read of it; an array where
        the axis is selected by one.
    out : tuple of slice or array of int
        Where that lands in the result, whose axes are those that are not selected by an int.

    Arrays on several axes are meant axis by axis, as Zarr's ``oindex`` and xarray's ``isel`` have them: ``np.ix_``.
    """

    numbers: tuple[int, ...]
    inside: tuple[slice | int | Int64Array, ...]
    out: tuple[slice | Int64Array, ...]


class TouchedChunks(Value):
    """The chunks that a selection touches, in row-major order; made by `chunks`.

    Attributes
    ----------
    shape : tuple of int
        Of the result.
    counts : tuple of int
        How many chunks are touched along each axis.
    """

    __slots__ = ("_axes", "_kept", "counts", "shape")
    __match_args__ = ("_axes", "_kept")
    shape: tuple[int, ...]
    counts: tuple[int, ...]
    _axes: tuple[_Axis | _ListedAxis, ...]
    _kept: tuple[bool, ...]

    def __init__(self, axes: tuple[_Axis | _ListedAxis, ...], kept: tuple[bool, ...]) -> None:
        shape = tuple([axis.count for axis, keep in zip(axes, kept, strict=True) if keep])
        put_fields(self, _axes=axes, _kept=kept, shape=shape, counts=tuple([axis.touched for axis in axes]))

    @property
    def size(self) -> int:
        """How many chunks are touched."""
        return prod(self.counts)

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[Chunk]:
        for touched in _each_choice(self._axes):
            inside = [one.inside if keep else one.first for one, keep in zip(touched, self._kept, strict=True)]
            out = [one.out for one, keep in zip(touched, self._kept, strict=True) if keep]
            yield Chunk(tuple([one.number for one in touched]), tuple(inside), tuple(out))

    def __repr__(self) -> str:
        return f"<{self.size} touched chunks, {' x '.join(map(str, self.counts)) or 1}; result of shape {self.shape}>"


class _Touched(NamedTuple):
    """One chunk of an axis: its number, what is read of it, and where that lands."""

    number: int
    inside: slice | Int64Array
    out: slice | Int64Array

    @property
    def first(self) -> int:
        """The first position, of a slice."""
        assert isinstance(self.inside, slice), "an axis of one index is a slice"
        return cast(int, self.inside.start)


class _Axis(Struct, frozen=True):
    """The positions selected on an axis, and where its chunks end: at every multiple of an int, or as listed."""

    positions: range
    ends: int | tuple[int, ...]

    def span(self, z: int) -> tuple[int, int, int]:
        """Return the chunk that holds a position: its number, start and end."""
        if isinstance(self.ends, int):
            number = z // self.ends
            return number, number * self.ends, (number + 1) * self.ends
        number = bisect_right(self.ends, z)
        return number, self.ends[number - 1] if number else 0, self.ends[number]

    @property
    def count(self) -> int:
        """How many positions are selected."""
        return length(self.positions)

    @property
    def touched(self) -> int:
        """How many chunks are touched."""
        many, step = length(self.positions), abs(self.positions.step)
        if isinstance(self.ends, int) and many:
            last = self.positions.start + (many - 1) * self.positions.step
            apart = abs(last // self.ends - self.positions.start // self.ends)
            return apart + 1 if step <= self.ends else many
        return sum(1 for _ in self)

    def __iter__(self) -> Iterator[_Touched]:
        many, step = length(self.positions), abs(self.positions.step)
        ascends = self.positions.step > 0
        first = self.positions.start if ascends else self.positions.start + (many - 1) * self.positions.step
        at = 0
        while at < many:
            z = first + at * step
            number, low, high = self.span(z)
            end = min(many, at + -(-(high - z) // step))
            inside = slice(z - low, first + (end - 1) * step + 1 - low, step)
            out = slice(at, end, 1) if ascends else slice(many - 1 - at, many - 1 - end if end < many else None, -1)
            yield _Touched(number, inside, out)
            at = end


class _ListedAxis(Struct, frozen=True):
    """As `_Axis`, with the positions in whatever order, as the bytes of an array of int64."""

    table: bytes
    ends: int | tuple[int, ...]

    @property
    def positions(self) -> Int64Array:
        return np.frombuffer(self.table, np.int64)

    @property
    def count(self) -> int:
        """How many positions are selected."""
        return len(self.table) // 8

    @property
    def numbers(self) -> Int64Array:
        """The chunk of each position."""
        if isinstance(self.ends, int):
            return self.positions // min(self.ends, INT64_MAX)
        return np.searchsorted(np.array(self.ends), self.positions, "right").astype(np.int64)

    @property
    def touched(self) -> int:
        """How many chunks are touched."""
        return len(np.unique(self.numbers))

    def __iter__(self) -> Iterator[_Touched]:
        z, numbers = self.positions, self.numbers
        order = np.argsort(numbers, kind="stable")
        starts = np.flatnonzero(np.diff(numbers[order], prepend=-1))
        for at in np.split(order, starts[1:]) if len(z) else ():
            number = int(numbers[at[0]])
            low = number * self.ends if isinstance(self.ends, int) else self.ends[number - 1] if number else 0
            in_a_row = at[-1] - at[0] == len(at) - 1
            yield _Touched(number, z[at] - low, slice(int(at[0]), int(at[-1]) + 1, 1) if in_a_row else at)


def _each_choice(axes: Sequence[_Axis | _ListedAxis]) -> Iterator[tuple[_Touched, ...]]:
    """Yield a touched chunk of each axis, in row-major order; an axis is gone through anew, and never listed."""
    if not axes:
        yield ()
        return
    for one in axes[0]:
        for others in _each_choice(axes[1:]):
            yield (one, *others)


def chunks(key: ChunkKey, shape: Sequence[int], chunk_shape: Sequence[int | Sequence[int]]) -> TouchedChunks:
    """Return the chunks of an array that an index touches, without looking at the others.

    Parameters
    ----------
    key : slice, int, Ellipsis, list or array of int or bool, or a tuple of these
        As in ``array[key]``; negative steps and indices too. Lists and arrays are of one axis, each selects along its
        own, in their order, repeated indices and all; a mask has the axis's extent.
    shape : sequence of int
        Of the array.
    chunk_shape : sequence of int, or of sequences of int
        For each axis the length of its chunks, the last of which may be shorter, or the lengths of all, as Dask has
        them in ``array.chunks``.

    Returns
    -------
    TouchedChunks
        Its `size` is exact and, for slices and chunks of one length, found without a loop.

    Raises
    ------
    IndexError
        If the key does not fit the shape, or has a new axis, which `reshape` makes, or a table of several rows.
    TypeError
        If an index or a length is not an integer, or `chunk_shape` is not a sequence.
    ValueError
        If an extent is negative, a length is not positive, or lengths do not add up to their axis.

    Examples
    --------
    >>> from tapestry_sets import chunks
    >>> touched = chunks(slice(7, None, 10**9), (10**12,), (10**6,))  # a thousand of a million chunks
    >>> touched.size, next(iter(touched))
    (1000, Chunk(numbers=(0,), inside=(slice(7, 8, 1000000000),), out=(slice(0, 1, 1),)))
    >>> for chunk in chunks((1, slice(5, None, -3)), (2, 8), ((1, 1), (3, 5))):
    ...     print(chunk)
    Chunk(numbers=(1, 0), inside=(0, slice(2, 3, 3)), out=(slice(1, 0, -1),))
    Chunk(numbers=(1, 1), inside=(0, slice(2, 3, 3)), out=(slice(0, None, -1),))
    >>> for chunk in chunks([9, 0, 8, -1], (10,), (4,)):
    ...     print(chunk)
    Chunk(numbers=(0,), inside=(array([0]),), out=(slice(1, 2, 1),))
    Chunk(numbers=(2,), inside=(array([1, 0, 1]),), out=(array([0, 2, 3]),))

    References
    ----------
    Zarr, `OrthogonalIndexer`; zarr-python issue 843: a strided selection visits every chunk between its ends.
    """
    extents = as_ints(shape, "chunks: shape")
    if min(extents, default=0) < 0:
        raise ValueError(f"chunks: shape {quote(extents)} has a negative extent; extents are >= 0")
    if not isinstance(chunk_shape, Sequence) or isinstance(chunk_shape, (str, bytes)):
        raise TypeError(
            f"chunks: chunk_shape must be a sequence, one length or several for each axis, not {quote(chunk_shape)}"
        )
    if len(chunk_shape) != len(extents):
        given = f"chunk_shape {quote(tuple(chunk_shape))} for shape {quote(extents)}"
        raise ValueError(f"chunks: {given}; give lengths for each axis")
    for entry in key if isinstance(key, tuple) else (key,):
        is_index = hasattr(type(entry), "__index__") and not isinstance(entry, (bool, np.bool_))
        if not (is_index or entry is Ellipsis or isinstance(entry, (slice, list, np.ndarray))):
            raise TypeError(
                f"chunks: the key has {quote(entry)}; give for each axis a slice, an int, a list of indices or a "
                "mask, or Ellipsis for all that are left"
            )
    entries = spell_out(extents, cast(BoxKey, key))
    tables = [
        None if _is_plain(k) else _read_table(cast(Any, k), n, axis)
        for axis, (k, n) in enumerate(zip(entries, extents, strict=True))
    ]
    plain = tuple([k if table is None else slice(None) for k, table in zip(entries, tables, strict=True)])
    axes: list[_Axis | _ListedAxis] = []
    for axis, (positions, table) in enumerate(zip(select_ranges(extents, cast(BoxKey, plain)), tables, strict=True)):
        ends = _read_ends(chunk_shape[axis], extents[axis], axis)
        axes.append(_Axis(positions, ends) if table is None else _ListedAxis(table.tobytes(), ends))
    return TouchedChunks(tuple(axes), tuple([isinstance(k, slice) for k in plain]))


def _is_plain(entry: object) -> bool:
    """Whether an entry of a key is a slice or an int, not a list or an array."""
    return not isinstance(entry, list) and not (isinstance(entry, np.ndarray) and entry.ndim)


def _read_table(indices: Sequence[Any] | Int64Array, n: int, axis: int) -> Int64Array:
    """Indices along an axis of n, or a mask of it, as positions from its start."""
    deep = indices.ndim > 1 if isinstance(indices, np.ndarray) else any(map(_is_row, indices))
    if deep:
        raise IndexError(f"chunks: the indices on axis {axis} are a table; give one row of indices an axis")
    refuse_masked(indices, f"chunks: indices on axis {axis}")
    table = np.asarray(indices)
    if table.dtype == bool:
        if len(table) != n:
            raise IndexError(f"chunks: a mask of {len(table)} on axis {axis} of extent {n}; give one of as many")
        return np.flatnonzero(table)
    if n > INT64_MAX:
        raise ValueError(f"chunks: an array of indices on axis {axis} of extent {n}, beyond int64; give a slice")
    found = table
    if table.dtype.kind != "i":
        checked = as_ints(indices, f"chunks: indices on axis {axis}")
        found = np.array(checked, np.int64 if all(-n <= i < n for i in checked) else object)
    outside = (found < -n) | (found >= n)
    if outside.any():
        at = int(outside.argmax())
        raise IndexError(
            f"chunks: index {found[at]}, number {at}, is out of range for axis {axis} of extent {n}"
            + (f"; give one in [{-n}, {n})" if n else ", which is empty")
        )
    found = found.astype(np.int64)
    return np.where(found < 0, found + n, found)


def _is_row(x: object) -> bool:
    return isinstance(x, (list, tuple)) or (isinstance(x, np.ndarray) and x.ndim > 0)


def _read_ends(lengths: int | Sequence[int], n: int, axis: int) -> int | tuple[int, ...]:
    """Return the length of an axis's chunks, or where each of listed chunks ends."""
    listed = (
        as_ints(lengths, f"chunks: lengths on axis {axis}")
        if isinstance(lengths, Sequence) and not isinstance(lengths, str)
        else None
    )
    every = (as_int(lengths, f"chunks: the length on axis {axis}"),) if listed is None else listed
    if min(every, default=1) < 1:
        raise ValueError(f"chunks: lengths {quote(lengths)} on axis {axis} must be >= 1")
    if listed is None:
        return every[0]
    if sum(listed) != n:
        raise ValueError(f"chunks: lengths {lengths} on axis {axis} add up to {sum(listed)}, not to its extent {n}")
    return tuple(accumulate(listed))
