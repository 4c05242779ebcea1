"""The NumPy backend: every device of the mesh is an arena of bytes in this process.

A product of nested stripes is a strided view with one axis for each level of each coordinate, so that packing,
unpacking and reading through views are plain strided assignments: no index arrays, except where a view
renumbers cells across rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import product
from math import prod
from types import EllipsisType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tapestry_plan import ALIGNMENT_NBYTES, Buffer, Monoid, Shard, aligned, components_of, merged
from tapestry_sets import AffineMap, Box, Piece, Region, Regions, Run, TooManyPieces, piece_domain

Array = NDArray[Any]
Ints = tuple[int, ...]
Linear = tuple[tuple[int, ...], int]
"""Coefficients of the view's coordinates and a constant: an element's offset, in elements."""

POISON_FLOAT = 0xFF  # all bits set is a NaN in every IEEE format
POISON_OTHER = 0xA5
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

    def open(self, nbytes: Sequence[int]) -> list[NumpyDevice]:
        """One device for each arena size, in bytes."""
        try:
            kept = self._closed.pop()
        except IndexError:
            kept = []
        kept += [np.empty(0, np.uint8)] * (len(nbytes) - len(kept))
        arenas = [arena if arena.nbytes >= n else _aligned_bytes(n) for arena, n in zip(kept, nbytes, strict=False)]
        return [NumpyDevice(arena) for arena in arenas]

    def close(self, devices: Sequence[NumpyDevice]) -> None:
        """Take the devices' arenas back."""
        self._closed = [[device.memory for device in devices]]

    def place(self, array: Array, regions: Sequence[Region]) -> Array:
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
        raw = self.memory[buffer.offset : buffer.offset + buffer.nbytes]
        self._arrays[buffer.id] = raw.view(buffer.dtype).reshape(buffer.shape)
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
                _fill_outside(array, buffer.start, tensor_shape, buffer.fill)
        return array

    def _target(self, buffer: Buffer, regions: Sequence[Region]) -> Array:
        """The array of a buffer whose cells in `regions` are about to be written."""
        if buffer.id in self._fresh and len(regions) == 1 and regions[0].size == self._arrays[buffer.id].size:
            del self._fresh[buffer.id]
        return self._array(buffer)

    def pack(self, buffer: Buffer, regions: Sequence[Region]) -> Array:
        """The regions' cells, each region row-major, as one contiguous payload."""
        return pack(self._array(buffer), buffer.start, regions)

    def unpack(self, payload: Array, buffer: Buffer, regions: Sequence[Region]) -> None:
        """Write a payload that `pack` made of the same regions."""
        unpack(payload, self._target(buffer, regions), buffer.start, regions)

    def copy(self, src: Buffer, dst: Buffer, regions: Sequence[Region]) -> None:
        """Copy cells between two buffers of this device."""
        source, target = self._array(src), self._target(dst, regions)
        for region in regions:
            copy_region(source, src.start, target, dst.start, region)

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
        for region in regions:
            sources = [self._array(part) for part in parts]
            views = [
                _aligned_views(target, output.start, source, part.start, region)
                for source, part in zip(sources, parts, strict=True)
            ]
            for pairs in zip(*views, strict=True):
                state = merged(monoid, np, [components_of(theirs) for _, theirs in pairs], fan_in)
                pairs[0][0][...] = monoid.unwrap(np, state, attrs)

    def _merge_in_place(
        self, ufunc: Any, parts: Sequence[Buffer], target: Array, start: Ints, regions: Sequence[Region]
    ) -> None:
        for region in regions:
            for k, part in enumerate(parts):
                source = self._array(part)
                for mine, theirs in _aligned_views(target, start, source, part.start, region):
                    if k == 0:
                        mine[...] = theirs
                    else:
                        ufunc(mine, theirs, out=mine)

    def launch(
        self,
        block: Callable[..., None],
        inputs: Sequence[tuple[Buffer, Box] | None],
        outputs: Sequence[tuple[Buffer, Box]],
        shard: Shard,
        workspace: Buffer | None,
    ) -> None:
        """Run a block function on blocks of this device's buffers."""
        read = [None if item is None else _read_only(self._block(*item)) for item in inputs]
        write = [self._block(*item) for item in outputs]
        scratch = np.empty(0, np.uint8) if workspace is None else self._array(workspace)
        told = Shard(shard.index, shard.signature, shard.attrs, shard.input_boxes, shard.output_boxes, scratch)
        block(np, read, write, told)

    def _block(self, buffer: Buffer, box: Box) -> Array:
        return block_of(self._array(buffer), buffer.start, box)


def _aligned_bytes(nbytes: int) -> NDArray[np.uint8]:
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
    payload = np.empty(sum(region.size for region in regions), array.dtype)
    for cells, packed in _packed_views(payload, array, start, regions):
        packed[...] = cells
    return payload


def unpack(payload: Array, array: Array, start: Ints, regions: Sequence[Region]) -> None:
    """Scatter what `pack` gathered from the same regions; ValueError when the sizes differ."""
    wanted = sum(region.size for region in regions)
    if payload.size != wanted:
        raise ValueError(f"unpack: the payload has {payload.size} cells, the regions have {wanted}")
    for cells, packed in _packed_views(payload, array, start, regions):
        cells[...] = packed


def copy_region(source: Array, source_start: Ints, target: Array, target_start: Ints, region: Region) -> None:
    """Copy a region's cells between two contiguous arrays over boxes of the same coordinates."""
    for mine, theirs in _aligned_views(target, target_start, source, source_start, region):
        mine[...] = theirs


def _packed_views(
    payload: Array, array: Array, start: Ints, regions: Sequence[Region]
) -> Iterator[tuple[Array, Array]]:
    at = 0
    for region in regions:
        if region.is_box:
            cells = array[_slices(region, start)]
            yield cells, payload[at : at + cells.size].reshape(cells.shape)
            at += cells.size
            continue
        part = payload[at : at + region.size]
        at += region.size
        axes = region.grids()
        strides = row_major(array.shape)
        ranks = row_major([sum(run.size for run in runs) for runs in axes])
        for runs in product(*axes):
            yield _grid_view(array, strides, start, runs), _rank_view(part, ranks, runs)


def _aligned_views(
    one: Array, one_start: Ints, two: Array, two_start: Ints, region: Region
) -> Iterator[tuple[Array, Array]]:
    if region.is_box:
        yield one[_slices(region, one_start)], two[_slices(region, two_start)]
        return
    strides = row_major(one.shape), row_major(two.shape)
    for runs in product(*region.grids()):
        yield _grid_view(one, strides[0], one_start, runs), _grid_view(two, strides[1], two_start, runs)


def block_of(array: Array, start: Ints, box: Box) -> Array:
    """The cells of a box in an array that begins at `start`, as a view; rank 0 stays an array."""
    where: tuple[Any, ...] = tuple(slice(a - s, a - s + n) for a, s, n in zip(box.start, start, box.shape, strict=True))
    view: Array = array[(*where, ...)]
    return view


def contiguous(array: Array) -> Array:
    """The array itself if it is contiguous in row-major order, else a copy that is; rank 0 stays rank 0."""
    return array if array.flags.c_contiguous else np.array(array, order="C")


def row_major(shape: Sequence[int]) -> Ints:
    """Strides, in elements, of a contiguous array of this shape."""
    strides = [1] * len(shape)
    for k in range(len(shape) - 2, -1, -1):
        strides[k] = strides[k + 1] * shape[k + 1]
    return tuple(strides)


def _slices(region: Region, start: Ints) -> tuple[slice | EllipsisType, ...]:
    """Where a region that is a box, perhaps empty, lies in an array that begins at `start`.

    The ellipsis keeps the one cell of rank 0 an array, which can be written.
    """
    spans = region.spans
    where = (slice(span[0] - s, span[1] - s) for span, s in zip(spans, start, strict=True) if span is not None)
    return (*where, ...)


def _strided(array: Array, offset: int, dims: Sequence[int], strides: Sequence[int]) -> Array:
    """A view of a contiguous array by offset and strides in elements; NumPy checks that it stays inside."""
    size = array.itemsize
    return np.ndarray(tuple(dims), array.dtype, array, offset * size, tuple(s * size for s in strides))


def _grid_view(array: Array, strides: Ints, start: Ints, runs: Sequence[Run]) -> Array:
    offset = sum((run.first - a) * s for run, a, s in zip(runs, start, strides, strict=True))
    dims = [n for run in runs for n, _ in run.levels]
    steps = [step * s for run, s in zip(runs, strides, strict=True) for _, step in run.levels]
    return _strided(array, offset, dims, steps)


def _rank_view(packed: Array, strides: Ints, runs: Sequence[Run]) -> Array:
    """The places of a grid's cells in the packed region: consecutive ranks on each axis."""
    offset = sum(run.rank * s for run, s in zip(runs, strides, strict=True))
    dims: list[int] = []
    steps: list[int] = []
    for run, s in zip(runs, strides, strict=True):
        counts = [n for n, _ in run.levels]
        dims += counts
        steps += [s * inner for inner in row_major(counts)]
    return _strided(packed, offset, dims, steps)


def _fill_outside(array: Array, start: Ints, tensor_shape: Sequence[int], fill: float) -> None:
    """Set the cells that lie outside the tensor, slab by slab."""
    for axis, (s, n, extent) in enumerate(zip(start, array.shape, tensor_shape, strict=True)):
        before, inside = min(max(-s, 0), n), min(max(extent - s, 0), n)
        lead = (slice(None),) * axis
        array[(*lead, slice(0, before))] = fill
        array[(*lead, slice(inside, n))] = fill


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
    whole = Region.full(tuple(shape))
    if len(pieces) == 1 and pieces[0].source >= 0 and not pieces[0].guards:
        source = contiguous(sources[pieces[0].source])
        linear = _linear_offset(pieces[0], Box.of(source.shape))
        if linear is not None:
            (runs,) = product(*whole.grids())
            return _read_only(_linear_view(source, linear, runs).reshape(tuple(shape)))
    out = np.empty(tuple(shape), dtype)
    start = (0,) * out.ndim
    for piece in pieces:
        source = contiguous(sources[piece.source]) if piece.source >= 0 else out
        read_piece(piece, source, Box.of(source.shape), out, start, whole)
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
    try:
        cells = (region & domain_of(piece, region.shape)).members
    except TooManyPieces:
        _read_points(piece, source, source_box, target, target_start, (region,), guarded=True)
        return
    if piece.source < 0:
        for member in cells:
            for runs in product(*member.grids()):
                _grid_view(target, row_major(target.shape), target_start, runs)[...] = piece.fill
        return
    linear = _linear_offset(piece, source_box)
    if linear is None:
        _read_points(piece, source, source_box, target, target_start, cells, guarded=False)
        return
    strides = row_major(target.shape)
    for member in cells:
        for runs in product(*member.grids()):
            _grid_view(target, strides, target_start, runs)[...] = _linear_view(source, linear, runs)


@lru_cache(maxsize=4096)
def domain_of(piece: Piece, shape: Ints) -> Regions:
    """The cells of a view of this shape that read through a piece."""
    return piece_domain(piece, Box.of(shape))


def _linear_view(source: Array, linear: Linear, runs: Sequence[Run]) -> Array:
    coefficients, offset = linear
    offset += sum(c * run.first for c, run in zip(coefficients, runs, strict=True))
    dims = [n for run in runs for n, _ in run.levels]
    steps = [c * step for c, run in zip(coefficients, runs, strict=True) for _, step in run.levels]
    return _strided(source, offset, dims, steps)


def _linear_offset(piece: Piece, box: Box) -> Linear | None:
    """The source's element offset as one linear form of the view's coordinates, where it is one.

    It is after affine steps, and after a renumbering at the end whose cells lie in the source's block in the
    order of their numbers. Otherwise None.
    """
    rank = piece.map.in_rank
    rows: list[tuple[int, ...]] = [tuple(int(i == j) for j in range(rank)) for i in range(rank)]
    offsets = [0] * rank
    steps = piece.map.steps
    for k, step in enumerate(steps):
        if isinstance(step, AffineMap):
            rows, offsets = _through(step, rows, offsets, rank)
            continue
        if k + 1 < len(steps) or not _in_number_order(box, step.to_shape):
            return None
        number = _combined(row_major(step.from_shape), rows, offsets, rank)
        base = sum(a * s for a, s in zip(box.start, row_major(step.to_shape), strict=True))
        return number[0], number[1] - base
    strides = row_major(box.shape)
    total = _combined(strides, rows, offsets, rank)
    return total[0], total[1] - sum(a * s for a, s in zip(box.start, strides, strict=True))


def _through(
    step: AffineMap, rows: list[tuple[int, ...]], offsets: list[int], rank: int
) -> tuple[list[tuple[int, ...]], list[int]]:
    combined = [_combined(row, rows, offsets, rank) for row in step.matrix]
    return [row for row, _ in combined], [c + b for (_, c), b in zip(combined, step.offset, strict=True)]


def _combined(weights: Sequence[int], rows: Sequence[tuple[int, ...]], offsets: Sequence[int], rank: int) -> Linear:
    row = tuple(sum(w * r[j] for w, r in zip(weights, rows, strict=True)) for j in range(rank))
    return row, sum(w * b for w, b in zip(weights, offsets, strict=True))


def _in_number_order(box: Box, shape: Sequence[int]) -> bool:
    """Whether a block of a tensor of this shape is a run of consecutive row-major numbers.

    So it is when, after leading extents of 1, at most one axis is cut and all later ones are whole.
    """
    axes = [k for k, n in enumerate(box.shape) if n > 1]
    return not axes or all(box.shape[k] == shape[k] for k in range(axes[0] + 1, len(shape)))


def _read_points(
    piece: Piece,
    source: Array,
    source_box: Box,
    target: Array,
    target_start: Ints,
    cells: Sequence[Region],
    guarded: bool,
) -> None:
    """The general way: list the cells' coordinates, in bounded chunks, and evaluate the chain on them."""
    flat_source, flat_target = source.reshape(-1), target.reshape(-1)
    for region in cells:
        for points in _point_chunks(region):
            if guarded:
                points = points[_guards_hold(piece, points)]
            at = (points - np.array(target_start, np.int64)) @ np.array(row_major(target.shape), np.int64)
            if piece.source < 0:
                flat_target[at] = piece.fill
                continue
            read = piece.map.apply_array(points) - np.array(source_box.start, np.int64)
            flat_target[at] = flat_source[read @ np.array(row_major(source.shape), np.int64)]


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
