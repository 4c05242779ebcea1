"""The NumPy backend: every device of the mesh is an arena of bytes in this process.

A product of nested stripes is a strided view with one axis for each level of each coordinate, so that packing,
unpacking and reading through views are plain strided assignments: no index arrays, except where a view
renumbers cells across rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from types import EllipsisType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tapestry_exec.strided import (
    KEPT,
    Ints,
    Transfer,
    between,
    domain_of,
    filled,
    linear_offset,
    outside,
    packed,
    row_major,
    through,
    unpacked,
)
from tapestry_exec.trace import Phase
from tapestry_plan import ALIGNMENT_NBYTES, Buffer, Monoid, Op, Shard, ShardPlan, aligned, components_of, merged
from tapestry_sets import Box, Piece, Region, TooManyPieces

Array = NDArray[Any]

POISON_FLOAT = 0xFF  # all bits set is a NaN in every IEEE format
POISON_OTHER = 0xA5
MAX_ITEM_NBYTES = 1 << 20
"""Runs of cells up to so many bytes are moved as one item; longer ones lose nothing to the loop over them."""
WORTH_ANOTHER_COPY = 512
"""Beginning a copy takes about as long as so many turns of a loop."""
MAX_POINTS = 1 << 20
"""Points whose coordinates are listed at once where a view is no strided copy."""


class NumpyBackend:
    """Devices of a mesh as arenas in this process.

    Arenas that are closed are kept for the next run on the same object: memory that was touched before is
    faster. A run that begins before another one ended gets arenas of its own.
    """

    name = "numpy"

    def __init__(self) -> None:
        self._closed: list[list[NDArray[np.uint8]]] = []

    def alone(self) -> AbstractContextManager[None]:
        """Keep others away while a run is on: nobody needs to."""
        return nullcontext()

    def check(self, ops: Mapping[str, Op], runs: Iterable[tuple[Op, int]]) -> None:
        """Refuse, before the first step, operators that do not run here; all do."""

    def recorded(self, plan: ShardPlan) -> None:
        """A run that is kept to be run again at once: none."""

    def forget(self, plan: ShardPlan, error: BaseException | None) -> bool:
        """Whether a run that failed was being recorded: none is."""
        return False

    def remember(self, plan: ShardPlan, result: Any) -> None:
        """Keep a run to run it again at once: nothing is kept."""

    spans: None = None
    """No work is put into lanes: it is done when the host goes on."""

    def start_clocks(self) -> None:
        """Times are the host's."""

    def times(self, begin: float) -> list[Phase]:
        """Times are the host's."""
        return []

    def open(self, nbytes: Sequence[int], payload_nbytes: Sequence[int] = ()) -> list[NumpyDevice]:
        """One device for each arena size, in bytes; payloads need no room beside them."""
        try:
            kept = self._closed.pop()
        except IndexError:
            kept = []
        kept += [np.empty(0, np.uint8)] * (len(nbytes) - len(kept))
        arenas = [arena if arena.nbytes >= n else aligned_bytes(n) for arena, n in zip(kept, nbytes, strict=False)]
        return [NumpyDevice(arena) for arena in arenas]

    def close(self, devices: Sequence[NumpyDevice]) -> None:
        """Take the devices' arenas back."""
        self._closed = [[device.memory for device in devices]]

    def place(self, array: Array, regions: Sequence[Region], tensor: str) -> Array:
        """Pack cells of a host array for a device; a view of it where they are contiguous there."""
        if len(regions) == 1 and regions[0].is_box:
            cells = array[_slices(regions[0], (0,) * array.ndim)]
            if cells.flags.c_contiguous:
                return cells.reshape(-1)
        return pack(array, (0,) * array.ndim, regions)

    def move(self, payload: Array, src: int, dst: int) -> Array:
        """Hand a packed payload from device `src` to device `dst`."""
        return payload

    def fetch(self, payload: Array) -> Array:
        """A packed payload as a host array."""
        return payload

    def synchronize(self) -> None:
        """Wait until everything launched is done; here everything is."""

    def arrive(self) -> None:
        """Have what was fetched; here it is there."""


class NumpyDevice:
    """One device: an arena of bytes, and the buffers that lie in it.

    The device reaches its own arena only. Cells come and go as packed payloads.

    Parameters
    ----------
    memory : array of uint8
        The arena.
    """

    def __init__(self, memory: NDArray[np.uint8]) -> None:
        self.memory = memory
        self.peak_nbytes = 0
        self._arrays: dict[int, Array] = {}
        self._fresh: dict[int, tuple[int, ...]] = {}

    def alloc(self, buffer: Buffer, tensor_shape: Sequence[int]) -> None:
        """Take a buffer's place: its cells are poisoned, those outside the tensor get the buffer's fill."""
        taken = aligned(buffer.nbytes)
        self.peak_nbytes = max(self.peak_nbytes, buffer.offset + taken)
        self._arrays[buffer.id] = np.ndarray(buffer.shape, buffer.dtype, self.memory, buffer.offset)
        # Poisoned just before the first use, unless that writes every cell.
        self._fresh[buffer.id] = tuple(tensor_shape)

    def free(self, buffer: Buffer) -> None:
        """Give a buffer's place back."""
        del self._arrays[buffer.id]
        self._fresh.pop(buffer.id, None)

    def _array(self, buffer: Buffer) -> Array:
        array = self._arrays[buffer.id]
        tensor_shape = self._fresh.pop(buffer.id, None)
        if tensor_shape is not None:
            poison = POISON_FLOAT if array.dtype.kind in "fc" else POISON_OTHER
            self.memory[buffer.offset : buffer.offset + buffer.nbytes].fill(poison)
            if buffer.fill is not None:
                _fill(outside(buffer.shape, buffer.start, tensor_shape), array, buffer.fill)
        return array

    def _target(self, buffer: Buffer, regions: Sequence[Region]) -> Array:
        """The array of a buffer whose cells in `regions` are about to be written."""
        if buffer.id in self._fresh and len(regions) == 1 and regions[0].size == self._arrays[buffer.id].size:
            del self._fresh[buffer.id]
        return self._array(buffer)

    def pack(self, buffer: Buffer, regions: Sequence[Region]) -> Array:
        """The regions' cells, each region row-major, as one contiguous payload."""
        return pack(self._array(buffer), buffer.start, regions)

    def spill(self, buffer: Buffer) -> Array:
        """All cells of a buffer, as one payload; also those that nothing wrote."""
        return self.pack(buffer, (Region.full(buffer.shape, buffer.start),))

    def unpack(self, payload: Array, buffer: Buffer, regions: Sequence[Region]) -> None:
        """Write a payload that `pack` made of the same regions."""
        unpack(payload, self._target(buffer, regions), buffer.start, regions)

    def copy(self, src: Buffer, dst: Buffer, regions: Sequence[Region]) -> None:
        """Copy cells between two buffers of this device."""
        source, target = self._array(src), self._target(dst, regions)
        where = src.shape, src.start, dst.shape, dst.start, tuple(regions)
        strided_copies(between, source.itemsize, *where).carry(source, target)

    def gather(self, src: Buffer, dst: Buffer, piece: Piece, regions: Sequence[Region]) -> None:
        """Fill cells of a view's block through one of the view's pieces."""
        target = self._array(dst) if piece.guards else self._target(dst, regions)
        source = target if src.id == dst.id else self._array(src)
        for region in regions:
            read_piece(piece, source, src.box, target, dst.start, region)

    def merge(
        self,
        monoid: Monoid,
        attrs: Mapping[str, Any],
        parts: Sequence[Buffer],
        output: Buffer,
        regions: Sequence[Region],
        fan_in: int | None,
    ) -> None:
        """Merge partial results in the order given, and unwrap what comes out."""
        target = self._target(output, regions)
        if monoid.is_plain and (fan_in is None or len(parts) <= 2):
            self._merge_in_place(getattr(np, monoid.ufunc), parts, target, output.start, regions)
            return
        states = [components_of(self.pack(part, regions)) for part in parts]
        merged_cells = monoid.unwrap(np, merged(monoid, np, states, fan_in), attrs)
        unpack(np.ascontiguousarray(merged_cells, target.dtype), target, output.start, regions)

    def _merge_in_place(
        self, ufunc: Any, parts: Sequence[Buffer], target: Array, start: Ints, regions: Sequence[Region]
    ) -> None:
        first, *others = parts
        where = first.shape, first.start, target.shape, start, tuple(regions)
        strided_copies(between, target.itemsize, *where).carry(self._array(first), target)
        for region in regions:
            for part in others:
                source = self._array(part)
                for t in between(part.shape, part.start, target.shape, start, (region,)):
                    mine = _strided(target, t.dst_offset, t.dims, t.dst_strides)
                    theirs = _strided(source, t.src_offset, t.dims, t.src_strides)
                    ufunc(mine, theirs, out=mine)

    def launch(
        self,
        op: Op,
        inputs: Sequence[tuple[Buffer, Box] | None],
        outputs: Sequence[tuple[Buffer, Box]],
        shard: Shard,
        workspace: Buffer | None,
    ) -> None:
        """Run an operator's block function on blocks of this device's buffers."""
        read = [None if item is None else _read_only(self._block(*item)) for item in inputs]
        write = [self._block(*item) for item in outputs]
        scratch = np.empty(0, np.uint8) if workspace is None else self._array(workspace)
        told = Shard(shard.index, shard.signature, shard.attrs, shard.input_boxes, shard.output_boxes, scratch)
        op.block(np, read, write, told)

    def _block(self, buffer: Buffer, box: Box) -> Array:
        return block_of(self._array(buffer), buffer.start, box)


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
    copies = strided_copies(packed, array.itemsize, array.shape, start, tuple(regions))
    payload = np.empty(copies.size, array.dtype)
    copies.carry(array, payload)
    return payload


def unpack(payload: Array, array: Array, start: Ints, regions: Sequence[Region]) -> None:
    """Scatter what `pack` gathered from the same regions; ValueError when the sizes differ."""
    copies = strided_copies(unpacked, array.itemsize, array.shape, start, tuple(regions))
    if payload.size != copies.size:
        raise ValueError(f"unpack: the payload has {payload.size} cells, the regions have {copies.size}")
    copies.carry(payload, array)


def copy_region(source: Array, source_start: Ints, target: Array, target_start: Ints, region: Region) -> None:
    """Copy a region's cells between two contiguous arrays over boxes of the same coordinates."""
    where = source.shape, source_start, target.shape, target_start, (region,)
    strided_copies(between, source.itemsize, *where).carry(source, target)


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


@dataclass(frozen=True, slots=True)
class StridedCopies:
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
        if source.dtype != target.dtype:
            raise TypeError(f"carry: cells are {source.dtype}, the target's are {target.dtype}; convert them first")
        for item, dims, src_offset, src_strides, dst_offset, dst_strides in self.views:
            mine = np.ndarray(dims, item or target.dtype, target, dst_offset, dst_strides)
            mine[...] = np.ndarray(dims, item or source.dtype, source, src_offset, src_strides)


@lru_cache(maxsize=KEPT)
def strided_copies(form: Callable[..., tuple[Transfer, ...]], itemsize: int, *where: Any) -> StridedCopies:
    """What a function of `strided` gives for arguments, as copies of items of so many bytes.

    Raises
    ------
    ValueError
        When a transfer has guards: here pieces with guards are cut into transfers without.
    """
    transfers = form(*where)
    guarded = next((t for t in transfers if t.guards), None)
    if guarded is not None:
        raise ValueError(f"strided_copies: {guarded} has guards; cut it into transfers without")
    views = tuple(view for t in transfers for view in _ordered(_in_runs(t, itemsize)))
    return StridedCopies(views, sum(t.size for t in transfers))


def _in_runs(t: Transfer, itemsize: int) -> _Views:
    """A transfer in bytes; the dimension of which the cells lie together on both sides becomes part of the item."""
    along = [k for k in range(len(t.dims)) if t.src_strides[k] == t.dst_strides[k] == 1]
    nbytes = t.dims[along[0]] * itemsize if along else 0
    item = None
    kept = list(range(len(t.dims)))
    if len(kept) > 1 and 0 < nbytes <= MAX_ITEM_NBYTES:
        item = np.dtype((np.void, nbytes))
        kept.remove(along[0])
    return _Views(
        item,
        tuple(t.dims[k] for k in kept),
        t.src_offset * itemsize,
        tuple(t.src_strides[k] * itemsize for k in kept),
        t.dst_offset * itemsize,
        tuple(t.dst_strides[k] * itemsize for k in kept),
    )


def _ordered(views: _Views) -> Iterator[_Views]:
    """Two copies where NumPy's innermost loop would have two turns only; it goes along the target's least stride."""
    last = min(range(len(views.dims)), key=lambda k: abs(views.dst_strides[k]), default=None)
    if last is None or views.dims[last] != 2 or prod(views.dims) < 2 * WORTH_ANOTHER_COPY:
        yield views
        return
    dims, src, dst = (seq[:last] + seq[last + 1 :] for seq in (views.dims, views.src_strides, views.dst_strides))
    for k in range(2):
        src_offset = views.src_offset + k * views.src_strides[last]
        yield _Views(views.item, dims, src_offset, src, views.dst_offset + k * views.dst_strides[last], dst)


def _fill(transfers: Sequence[Transfer], target: Array, value: float) -> None:
    for t in transfers:
        _strided(target, t.dst_offset, t.dims, t.dst_strides)[...] = value


def block_of(array: Array, start: Ints, box: Box) -> Array:
    """The cells of a box in an array that begins at `start`, as a view; rank 0 stays an array."""
    if box.shape == array.shape and box.start == start:
        return array
    where: list[Any] = [slice(a - s, a - s + n) for a, s, n in zip(box.start, start, box.shape, strict=True)]
    view: Array = array[(*where, ...)]
    return view


def contiguous(array: Array) -> Array:
    """The array itself if it is contiguous in row-major order, else a copy that is; rank 0 stays rank 0."""
    return array if array.flags.c_contiguous else np.array(array, order="C")


def _slices(region: Region, start: Ints) -> tuple[slice | EllipsisType, ...]:
    """Where a region that is a box, perhaps empty, lies in an array that begins at `start`.

    The ellipsis keeps the one cell of rank 0 an array, which can be written.
    """
    spans = region.spans
    where = (slice(span[0] - s, span[1] - s) for span, s in zip(spans, start, strict=True) if span is not None)
    return (*where, ...)


def _strided(array: Array, offset: int, dims: Ints, strides: Ints) -> Array:
    """A view of a contiguous array by offset and strides in elements; NumPy checks that it stays inside."""
    size = array.itemsize
    return np.ndarray(dims, array.dtype, array, offset * size, [s * size for s in strides])


def _read_only(view: Array) -> Array:
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
        source = contiguous(sources[pieces[0].source])
        linear = linear_offset(pieces[0], Box.of(source.shape))
        if linear is not None:
            return _read_only(_strided(source, linear[1], whole.shape, linear[0]))
    out = np.empty(whole.shape, dtype)
    for piece in pieces:
        source = contiguous(sources[piece.source]) if piece.source >= 0 else out
        read_piece(piece, source, Box.of(source.shape), out, whole.start, Region.full(whole.shape))
    return out


def read_piece(piece: Piece, source: Array, source_box: Box, target: Array, target_start: Ints, region: Region) -> None:
    """Write the view's cells in `region` for which `piece` holds.

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
        fills = filled(piece, target_box, (region,))
        if fills is not None:
            _fill(fills, target, piece.fill)
            return
    else:
        where = piece, source_box, target_box, (region,)
        if through(*where) is not None:
            strided_copies(through, source.itemsize, *where).carry(source, target)
            return
    flat_source, flat_target = source.reshape(-1), target.reshape(-1)
    for at, read in index_pairs(piece, source_box, target_box, (region,)):
        flat_target[at] = piece.fill if read is None else flat_source[read]


def index_pairs(
    piece: Piece, source_box: Box, target_box: Box, regions: Sequence[Region]
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64] | None]]:
    """The general way to read through a piece: numbers of cells in the target's and in the source's block.

    The cells' coordinates are listed, in bounded chunks, and the chain is evaluated on them. A constant piece reads
    no cells: None.
    """
    strides = np.array(row_major(target_box.shape), np.int64)
    for region in regions:
        try:
            cells, guarded = (region & domain_of(piece, region.shape)).members, False
        except TooManyPieces:
            cells, guarded = (region,), True
        for points in (points for member in cells for points in _point_chunks(member)):
            if guarded:
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
        for axis, sett in enumerate(guard.region.setts):
            low = guard.region.start[axis]
            high = low + guard.region.shape[axis]
            inside = (at[:, axis] >= low) & (at[:, axis] < high)
            members = sett.elements(low, high)
            place = np.searchsorted(members, at[:, axis])
            found = members[np.minimum(place, max(len(members) - 1, 0))] == at[:, axis] if len(members) else False
            hold &= inside & found
    return hold


def _point_chunks(region: Region) -> Iterator[NDArray[np.int64]]:
    """The region's points, at most about `MAX_POINTS` at a time."""
    axes = [sett.elements(a, a + n) for sett, a, n in zip(region.setts, region.start, region.shape, strict=True)]
    yield from _chunks(axes, [])


def _chunks(axes: list[NDArray[np.int64]], fixed: list[NDArray[np.int64]]) -> Iterator[NDArray[np.int64]]:
    inner = prod(len(axis) for axis in axes[1:])
    if len(axes) > 1 and inner > MAX_POINTS:
        for x in axes[0]:
            yield from _chunks(axes[1:], [*fixed, np.array([x])])
        return
    step = max(1, MAX_POINTS // max(inner, 1))
    rows = axes[0] if axes else np.zeros(1, np.int64)
    for k in range(0, len(rows), step):
        grid = np.meshgrid(*fixed, *([rows[k : k + step]] if axes else []), *axes[1:], indexing="ij")
        yield np.stack([axis.ravel() for axis in grid], axis=-1) if grid else np.zeros((1, 0), np.int64)
