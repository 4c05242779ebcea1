"""Regions and views copied between NumPy arrays: packing, unpacking, and reading through pieces.

A product of nested stripes is a strided view with one axis for each level of each coordinate, so that these are plain
strided assignments: no index arrays, except where a view renumbers cells across rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from itertools import chain, product
from math import prod
from operator import setitem
from types import EllipsisType
from typing import Any, NamedTuple

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from tapestry_exec.copies import tuning
from tapestry_exec.copies.strided import (
    Transfer,
    fill_transfers,
    members_of,
    pack_transfers,
    through,
    unpack_transfers,
)
from tapestry_plan.steps import ALIGNMENT_NBYTES, Linear, linearize, row_major
from tapestry_sets.digits import Ints
from tapestry_sets.limits import OPEN, TooManyPieces, ask_one
from tapestry_sets.regions import Box, Region
from tapestry_sets.views import IndexMap, Lookup, Piece

Array = NDArray[Any]
Form = Callable[..., tuple[Transfer, ...]]
"""A function of `strided`."""


def aligned_bytes(nbytes: int) -> NDArray[np.uint8]:
    raw = np.empty(nbytes + ALIGNMENT_NBYTES, np.uint8)
    skip = -raw.ctypes.data % ALIGNMENT_NBYTES
    return raw[skip : skip + nbytes]


# ------------------------------------------------------------------------------------------ strided regions


def pack(array: Array, start: Ints, regions: Sequence[Region]) -> Array:
    """Gather the cells of regions into one contiguous array, each region row-major.

    Parameters
    ----------
    array : contiguous array
        Holds the box of cells that begins at `start`.
    start : tuple of int
    regions : sequence of Region
        Inside that box, in absolute coordinates.

    Returns
    -------
    array of rank 1

    Examples
    --------
    >>> from tapestry_sets import Region
    >>> a = np.arange(12).reshape(3, 4)
    >>> pack(a, (0, 0), [Region.from_slices((3, 4), (slice(1, 3), slice(0, 4, 2)))]).tolist()
    [4, 6, 8, 10]
    """
    return Strips.of(array, row_major(array.shape), start, regions, pack_transfers).gather()


def unpack(payload: Array, array: Array, start: Ints, regions: Sequence[Region]) -> None:
    """Scatter what `pack` gathered from the same regions; ValueError when the sizes differ, TypeError the dtypes."""
    Strips.of(array, row_major(array.shape), start, regions, unpack_transfers).scatter(payload)


class _Views(NamedTuple):
    """Equal strided views of two arrays, for the constructor of NumPy's arrays; offsets and strides in bytes.

    An item is a cell, or a whole run of cells that lies together on both sides: NumPy moves it at once, where
    it would begin a loop for each run.
    """

    item: np.dtype[Any] | None
    dims: Ints
    src_offset: int
    src_strides: Ints
    dst_offset: int
    dst_strides: Ints


class StridedCopies(Struct, frozen=True):
    """Transfers as NumPy carries them out."""

    views: tuple[_Views, ...]
    size: int
    """Cells in all."""

    def carry(self, source: Array, target: Array) -> None:
        """Copy between two contiguous arrays; NumPy checks that it stays inside them.

        Raises
        ------
        TypeError
            When their dtypes differ: cells are copied, not converted.
        """
        for mine, theirs in self.list_views(source, target):
            mine[...] = theirs

    def list_views(self, source: Array, target: Array) -> Iterator[tuple[Array, Array]]:
        """The views of the target, each with that of the source whose cells it gets; errors as of `carry`."""
        _check_dtypes("carry", source.dtype, target.dtype)
        for item, dims, src_offset, src_strides, dst_offset, dst_strides in self.views:
            mine = np.ndarray(dims, item or target.dtype, target, dst_offset, dst_strides)
            yield mine, np.ndarray(dims, item or source.dtype, source, src_offset, src_strides)


class Pairs(Struct, frozen=True, eq=False):
    """Where cells lie in two arrays, of which one gets those of the other in every run: its views are made once.

    Parameters
    ----------
    source, target : contiguous array
    regions : sequence of Region
    size : int
        Cells in all.
    calls : tuple of callable
        Each copies some of the cells, all together all of them.
    """

    source: Array
    target: Array
    regions: Sequence[Region]
    size: int
    calls: tuple[Callable[[], object], ...]

    @classmethod
    def of(cls, source: Array, target: Array, regions: Sequence[Region], form: Form, *where: Any) -> Pairs:
        """The views by a function of `strided`, whose arguments `where` and the regions are."""
        copies = strided_copies(form, source.itemsize, *where, tuple(regions))
        calls = tuple(partial(setitem, mine, ..., theirs) for mine, theirs in copies.list_views(source, target))
        return cls(source, target, regions, copies.size, calls)


class Strips(Struct, frozen=True, eq=False):
    """Where cells lie in an array that are packed, or unpacked, in every run: its views are made once.

    Parameters
    ----------
    array : contiguous array
    regions : sequence of Region
        Inside the box that it holds.
    size : int
        Cells in all.
    parts : tuple
        Views of the array, each with how its cells lie in a payload: extents, item, offset and strides in bytes.
    only : array or None
        The view that fills a payload in the view's own order.
    is_typed : bool
        Whether its items are the array's, not runs of these.
    dtype : numpy.dtype
        Of the array.
    """

    array: Array
    regions: Sequence[Region]
    size: int
    parts: tuple[tuple[Array, Ints, np.dtype[Any], int, Ints], ...]
    only: Array | None
    is_typed: bool
    dtype: np.dtype[Any]

    @classmethod
    def of(cls, array: Array, strides: Ints, start: Ints, regions: Sequence[Region], form: Form) -> Strips:
        """The views of an array by `pack_transfers` or `unpack_transfers`, whose arguments these are."""
        copies = strided_copies(form, array.itemsize, strides, start, tuple(regions))
        parts = []
        for item, dims, offset, steps, at, places in copies.views:
            if form is unpack_transfers:
                offset, steps, at, places = at, places, offset, steps
            kind = item or array.dtype
            parts.append((np.ndarray(dims, kind, array, offset, steps), dims, kind, at, places))
        only = parts[0][0] if len(parts) == 1 and _is_ordered(*parts[0]) else None
        if only is not None and only.dtype != array.dtype and only.size <= tuning.FEW_PACKED:
            cells, unit = only.dtype.itemsize // array.itemsize, array.itemsize
            only = np.ndarray((*only.shape, cells), array.dtype, array, offset, (*only.strides, unit))
        is_typed = only is not None and only.dtype == array.dtype
        return cls(array, regions, copies.size, tuple(parts), only, is_typed, array.dtype)

    def fill(self, payload: Array) -> None:
        """Write the cells into a payload."""
        for call in self.list_filling(payload):
            call()

    def list_filling(self, payload: Array) -> tuple[Callable[[], object], ...]:
        """The calls that do so, for who fills the same memory in every run."""
        return tuple(
            partial(setitem, np.ndarray(dims, kind, payload, at, strides), ..., view)
            for view, dims, kind, at, strides in self.parts
        )

    def list_runs(self, nbytes: int) -> list[memoryview]:
        """The memory of the cells in a payload's order, if it is in pieces of so many bytes and more; else none.

        Who can write many pieces of memory at once need not pack them.
        """
        begin, memory = self.array.__array_interface__["data"][0], self.array.reshape(-1).view(np.uint8).data
        found: list[memoryview] = []
        for view, dims, kind, _, strides in sorted(self.parts, key=lambda part: part[3]):
            if strides != tuple(n * kind.itemsize for n in row_major(dims)):
                return []
            inner, length = len(dims), kind.itemsize
            while inner and (dims[inner - 1] == 1 or view.strides[inner - 1] == length):
                inner -= 1
                length *= dims[inner]
            if length < nbytes:
                return []
            first = view.__array_interface__["data"][0] - begin
            for at in product(*map(range, dims[:inner])):
                start = first + sum(k * step for k, step in zip(at, view.strides, strict=False))
                found.append(memory[start : start + length])
        return found

    def gather(self) -> Array:
        """A payload of the cells, as `pack` makes it."""
        only = self.only
        if only is not None:
            cells = only.copy().ravel()  # `flatten` loops over shorter runs
            return cells if self.is_typed else cells.view(self.dtype)
        payload = np.empty(self.size, self.dtype)
        self.fill(payload)
        return payload

    def scatter(self, payload: Array) -> None:
        """Write a payload, as `unpack` does.

        Raises
        ------
        TypeError
            When its cells are of another dtype.
        ValueError
            When it has another number of cells.
        """
        if payload.dtype is not self.dtype or payload.size != self.size:
            self._check(payload)
        for view, dims, kind, at, strides in self.parts:
            view[...] = np.ndarray(dims, kind, payload, at, strides)

    def list_scattering(self, payload: Array) -> list[Callable[[], object]]:
        """The calls that do the same, also with what comes into the payload's memory later; errors as of `scatter`."""
        self._check(payload)
        return [
            partial(setitem, view, ..., np.ndarray(dims, kind, payload, at, strides))
            for view, dims, kind, at, strides in self.parts
        ]

    def _check(self, payload: Array) -> None:
        _check_dtypes("unpack", payload.dtype, self.array.dtype)
        if payload.size != self.size:
            raise ValueError(f"unpack: the payload has {payload.size} cells, the regions have {self.size}")


def _is_ordered(view: Array, dims: Ints, kind: np.dtype[Any], at: int, strides: Ints) -> bool:
    """Whether a payload that one view fills holds its cells in the view's own order."""
    return at == 0 and strides == tuple(n * kind.itemsize for n in row_major(dims))


def _check_dtypes(place: str, cells: np.dtype[Any], target: np.dtype[Any]) -> None:
    if cells != target:
        raise TypeError(f"{place}: cells are {cells}, the target's are {target}; convert them first")


@lru_cache(maxsize=tuning.KEPT)
def strided_copies(form: Form, itemsize: int, *where: Any) -> StridedCopies:
    """The result of a function of `strided` for arguments, as copies of items of so many bytes.

    Raises
    ------
    ValueError
        When a transfer has guards: here pieces with guards are cut into transfers without.
    """
    transfers = form(*where)
    guarded = next((t for t in transfers if t.guards), None)
    if guarded is not None:
        raise ValueError(f"strided_copies: {guarded} has guards; cut it into transfers without")
    most = tuning.MAX_PACKED_ITEM_NBYTES if form is pack_transfers else tuning.MAX_ITEM_NBYTES
    views = tuple(view for t in transfers for view in _ordered(_in_runs(t, itemsize, most)))
    return StridedCopies(views, sum(t.size for t in transfers))


def _in_runs(t: Transfer, itemsize: int, most: int) -> _Views:
    """A transfer in bytes; the dimension of which the cells lie together on both sides becomes part of an item.

    An item has so many bytes at most.
    """
    along = [k for k in range(len(t.dims)) if t.src_strides[k] == t.dst_strides[k] == 1]
    nbytes = t.dims[along[0]] * itemsize if along else 0
    item = None
    kept = list(range(len(t.dims)))
    if len(kept) > 1 and 0 < nbytes <= most:
        item = np.dtype((np.void, nbytes))
        kept.remove(along[0])
    src, dst = (tuple(steps[k] * itemsize for k in kept) for steps in (t.src_strides, t.dst_strides))
    return _Views(item, tuple(t.dims[k] for k in kept), t.src_offset * itemsize, src, t.dst_offset * itemsize, dst)


def _ordered(views: _Views) -> Iterator[_Views]:
    """Two copies where NumPy's innermost loop would have two turns only; it goes along the target's least stride."""
    last = min(range(len(views.dims)), key=lambda k: abs(views.dst_strides[k]), default=None)
    if last is None or views.dims[last] != 2 or prod(views.dims) < 2 * tuning.WORTH_ANOTHER_COPY:
        yield views
        return
    dims, src, dst = (seq[:last] + seq[last + 1 :] for seq in (views.dims, views.src_strides, views.dst_strides))
    for k in range(2):
        src_offset = views.src_offset + k * views.src_strides[last]
        yield _Views(views.item, dims, src_offset, src, views.dst_offset + k * views.dst_strides[last], dst)


def fill_cells(transfers: Sequence[Transfer], target: Array, value: float) -> None:
    for t in transfers:
        strided_view(target, t.dst_offset, t.dims, t.dst_strides)[...] = value


def block_of(array: Array, start: Ints, box: Box) -> Array:
    """The cells of a box in an array that begins at `start`, as a view; rank 0 stays an array."""
    if box.shape == array.shape and box.start == start:
        return array
    where: list[Any] = [slice(a - s, a - s + n) for a, s, n in zip(box.start, start, box.shape, strict=True)]
    return array[(*where, ...)]


def make_contiguous(array: Array) -> Array:
    """The array itself if it is contiguous in row-major order, else a copy that is; rank 0 stays rank 0."""
    return array if array.flags.c_contiguous else np.array(array, order="C")


def slices_of(region: Region, start: Ints) -> tuple[slice | EllipsisType, ...]:
    """Where a region that is a box, perhaps empty, lies in an array that begins at `start`.

    The ellipsis keeps the one cell of rank 0 an array, which can be written.
    """
    spans = region.spans
    where = (slice(span[0] - s, span[1] - s) for span, s in zip(spans, start, strict=True) if span is not None)
    return (*where, ...)


def strided_view(array: Array, offset: int, dims: Ints, strides: Ints) -> Array:
    """A view of a contiguous array by offset and strides in elements; NumPy checks that it stays inside."""
    size = array.itemsize
    return np.ndarray(dims, array.dtype, array, offset * size, [s * size for s in strides])


def read_only(view: Array) -> Array:
    view = view.view()
    view.flags.writeable = False
    return view


# ------------------------------------------------------------------------------------- reading through views


def read_view(pieces: Sequence[Piece], sources: Sequence[Array], shape: Sequence[int], dtype: str) -> Array:
    """A view of whole arrays: no copy where one strided view does, else an array of its own.

    Parameters
    ----------
    pieces : sequence of Piece
        They partition the view.
    sources : sequence of arrays
        By the pieces' source numbers.
    shape : sequence of int
        Of the view.
    dtype : str

    Returns
    -------
    array of that shape
    """
    whole = Box.of(tuple(shape))
    if len(pieces) == 1 and pieces[0].source >= 0 and not pieces[0].guards:
        source = make_contiguous(sources[pieces[0].source])
        linear = linearize(pieces[0], Box.of(source.shape))
        if linear is not None:
            return read_only(strided_view(source, linear[1], whole.shape, linear[0]))
    out = np.empty(whole.shape, dtype)
    for piece in pieces:
        source = make_contiguous(sources[piece.source]) if piece.source >= 0 else out
        read_piece(piece, source, Box.of(source.shape), out, whole.start, Region.full(whole.shape))
    return out


def read_piece(piece: Piece, source: Array, source_box: Box, target: Array, target_start: Ints, region: Region) -> int:
    """Write the view's cells in `region` for which `piece` holds; return how many there are.

    Parameters
    ----------
    piece : Piece
    source : contiguous array
        Over `source_box` of the piece's source; not read by a constant piece.
    source_box : Box
    target : contiguous array
        Over the view's coordinates from `target_start`.
    target_start : tuple of int
    region : Region
        In the view's coordinates.
    """
    target_box = Box(target_start, target.shape)
    if piece.fill is not None:
        fills = fill_transfers(piece, target_box, (region,))
        if fills is not None:
            fill_cells(fills, target, piece.fill)
            return sum(t.size for t in fills)
    else:
        where = piece, source_box, target_box, (region,)
        if through(*where) is not None:
            strided = strided_copies(through, source.itemsize, *where)
            strided.carry(source, target)
            return strided.size
        written = _read_tables(piece, source, source_box, target, target_start, region)
        if written is not None:
            return written
    flat_source, flat_target = source.reshape(-1), target.reshape(-1)
    count = 0
    for at, read in index_pairs(piece, source_box, target_box, (region,)):
        flat_target[at] = piece.fill if read is None else flat_source[read]
        count += len(at)
    return count


def _read_tables(
    piece: Piece, source: Array, source_box: Box, target: Array, target_start: Ints, region: Region
) -> int | None:
    """As `read_piece`, by NumPy's take along axes, where tables come first and what follows is strided; else None."""
    steps = piece.map.steps
    tables = [step for step in steps if isinstance(step, Lookup)]
    if not tables or tables != list(steps[: len(tables)]) or any(guard.prefix for guard in piece.guards):
        return None
    rest = Piece(piece.source, (), IndexMap(steps[len(tables) :], piece.map.in_rank))
    linear = linearize(rest, source_box)
    cells = OPEN if linear is None else ask_one((TooManyPieces,), members_of, piece, region)
    if linear is None or cells is OPEN:
        return None
    count = 0
    for member in cells:
        at = _elements(member)
        count += prod(map(len, at))
        if all(map(len, at)):
            read = list(at)
            for table in tables:
                read[table.axis] = table.column[read[table.axis]]
            _write_product(
                target, [x - s for x, s in zip(at, target_start, strict=True)], _product(source, linear, read)
            )
    return count


def _product(source: Array, linear: Linear, axes: Sequence[NDArray[np.int64]]) -> Array:
    """What a contiguous array holds at a product of indices, of which offsets in elements are a linear form."""
    steps, offset = linear
    low = [int(x.min()) for x in axes]
    reach = [int(x.max()) - a + 1 for x, a in zip(axes, low, strict=True)]
    found = strided_view(source, offset + sum(c * a for c, a in zip(steps, low, strict=True)), tuple(reach), steps)
    for axis, (x, a, n) in enumerate(zip(axes, low, reach, strict=True)):
        if len(x) != n or not _is_run(x):
            found = found.take(x - a, axis)
    return found


def _write_product(target: Array, at: Sequence[NDArray[np.int64]], values: Array) -> None:
    """Write values to a product of an array's indices, of which each axis ascends."""
    if all(map(_is_run, at)):
        target[tuple([slice(int(x[0]), int(x[-1]) + 1) for x in at])] = values
    else:
        target[np.ix_(*at)] = values


def _is_run(x: NDArray[np.int64]) -> bool:
    """Whether integers go on by ones."""
    return int(x[-1]) - int(x[0]) + 1 == len(x) and bool((np.diff(x) == 1).all())


def _elements(region: Region) -> list[NDArray[np.int64]]:
    """A region's indices on each axis."""
    return [sett.elements(a, a + n) for sett, a, n in zip(region.setts, region.start, region.shape, strict=True)]


def index_pairs(
    piece: Piece, source_box: Box, target_box: Box, regions: Sequence[Region]
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64] | None]]:
    """The general way to read through a piece: numbers of cells in the target's and in the source's block.

    The cells' coordinates are listed, in bounded chunks, and the chain is evaluated on them. A constant piece reads
    no cells: None.
    """
    strides = np.array(row_major(target_box.shape), np.int64)
    for region in regions:
        cells = ask_one((TooManyPieces,), members_of, piece, region)
        for points in chain.from_iterable(map(_point_chunks, (region,) if cells is OPEN else cells)):
            if cells is OPEN:
                points = points[_guards_hold(piece, points)]
            at = (points - np.array(target_box.start, np.int64)) @ strides
            if piece.source < 0:
                yield at, None
                continue
            read = piece.map.apply_array(points) - np.array(source_box.start, np.int64)
            yield at, read @ np.array(row_major(source_box.shape), np.int64)


def _guards_hold(piece: Piece, points: NDArray[np.int64]) -> NDArray[np.bool_]:
    hold = np.ones(len(points), bool)
    for guard in piece.guards:
        prefix = type(piece.map)(piece.map.steps[: guard.prefix], piece.map.in_rank)
        at = prefix.apply_array(points)
        where = guard.region
        for column, sett, low, n in zip(at.T, where.setts, where.start, where.shape, strict=True):
            hold &= np.isin(column, sett.elements(low, low + n))
    return hold


def _point_chunks(region: Region) -> Iterator[NDArray[np.int64]]:
    """The region's points, at most about `MAX_POINTS` at a time."""
    yield from _chunks(_elements(region), [])


def _chunks(axes: list[NDArray[np.int64]], fixed: list[NDArray[np.int64]]) -> Iterator[NDArray[np.int64]]:
    inner = prod(len(axis) for axis in axes[1:])
    if len(axes) > 1 and inner > tuning.MAX_POINTS:
        for x in axes[0]:
            yield from _chunks(axes[1:], [*fixed, np.array([x])])
        return
    step = max(1, tuning.MAX_POINTS // max(inner, 1))
    rows = axes[0] if axes else np.zeros(1, np.int64)
    for k in range(0, len(rows), step):
        grid = np.meshgrid(*fixed, *([rows[k : k + step]] if axes else []), *axes[1:], indexing="ij")
        yield np.stack([axis.ravel() for axis in grid], axis=-1) if grid else np.zeros((1, 0), np.int64)
