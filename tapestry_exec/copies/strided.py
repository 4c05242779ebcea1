"""Strided copies: a region, or a view's piece, as nested strides between two arrays.

Everything here is arithmetic on integers; each backend carries the copies out in its own way. A product of
nested stripes has one dimension for each level of each axis; clipped last periods are copies of their own. No
coordinates are listed. What is found is kept, as plans are run many times.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import chain, pairwise, product
from math import prod

from msgspec import Struct

from tapestry_exec.copies import tuning
from tapestry_plan.steps import Buffer, Linear, find_strides, linearize, row_major
from tapestry_sets.digits import Digits, Ints, join_digits
from tapestry_sets.integers import StridedRun
from tapestry_sets.limits import OPEN, TooManyPieces, ask_one
from tapestry_sets.regions import AffineMap, Box, DisjointRegions, Region
from tapestry_sets.views import IndexMap, Piece, Relinearize, piece_domain


class Guard(Struct, frozen=True):
    """Which cells of a strided copy are copied: those with ``low <= Σ coefficients·index < high``.

    Parameters
    ----------
    coefficients : tuple of int
        One for each dimension of the copy.
    low, high : int
    """

    coefficients: Ints
    low: int
    high: int


class Transfer(Struct, frozen=True):
    """One strided copy: ``dst[dst_offset + Σ i·dst_strides] = src[src_offset + Σ i·src_strides]`` for i in `dims`.

    Parameters
    ----------
    dims : tuple of int
        Extents of the index, row-major; empty for one cell.
    src_offset, dst_offset : int
        In elements, from the beginning of each array.
    src_strides, dst_strides : tuple of int
        In elements; they may be 0 (the source's: broadcast) or negative.
    guards : tuple of Guard
        Cells for which one of them does not hold are left alone.
    """

    dims: Ints
    src_offset: int
    src_strides: Ints
    dst_offset: int
    dst_strides: Ints
    guards: tuple[Guard, ...] = ()

    @property
    def size(self) -> int:
        """How many cells the index has, guarded ones too."""
        return prod(self.dims)

    @property
    def forms(self) -> Digits:
        """The places in the target and in the source, and the bounds of the guards, as forms of the index's digits."""
        strides = self.dst_strides, self.src_strides, *(guard.coefficients for guard in self.guards)
        origin = self.dst_offset, self.src_offset, *(0,) * len(self.guards)
        return Digits(origin, tuple(zip(self.dims, *strides, strict=True)))

    @property
    def bounds(self) -> tuple[tuple[int, int], ...]:
        """The interval [low, high) of each guard."""
        return tuple((guard.low, guard.high) for guard in self.guards)

    @classmethod
    def of(cls, forms: Digits, bounds: Sequence[tuple[int, int]] = ()) -> Transfer:
        """Return the copy of given `forms` and `bounds`."""
        dims, dst, src, *bounded = forms.columns()
        dst_offset, src_offset, *starts = forms.origin
        each = zip(bounded, bounds, starts, strict=True)
        guards = tuple(Guard(steps, low - at, high - at) for steps, (low, high), at in each)
        return cls(dims, src_offset, src, dst_offset, dst, guards)

    def swap(self) -> Transfer:
        """The same cells from `dst` to `src`."""
        return Transfer(self.dims, self.dst_offset, self.dst_strides, self.src_offset, self.src_strides, self.guards)

    def collapse(self) -> Transfer:
        """The same copy in the fewest dimensions: none of extent 1, neighbors merged where both sides are even.

        Examples
        --------
        >>> Transfer((2, 1, 3, 4), 0, (24, 7, 4, 1), 5, (12, 7, 4, 1)).collapse()
        Transfer(dims=(2, 12), src_offset=0, src_strides=(24, 1), dst_offset=5, dst_strides=(12, 1), guards=())
        """
        origin, digits = self.forms
        return Transfer.of(Digits(origin, join_digits(digits)), self.bounds)


# ---------------------------------------------------------------------------------------------------- regions


@lru_cache(maxsize=tuning.KEPT)
def pack_transfers(strides: Ints, start: Ints, regions: tuple[Region, ...]) -> tuple[Transfer, ...]:
    """From an array over a box to a payload of rank 1 that holds the regions one after the other, each row-major.

    Parameters
    ----------
    strides : tuple of int
        Of the source array, in elements.
    start : tuple of int
        The cell that comes first in it.
    regions : tuple of Region
        Inside the box that it holds, in absolute coordinates.

    Returns
    -------
    tuple of Transfer
        Disjoint in the payload; together they write each of its cells.

    Examples
    --------
    >>> pack_transfers((4, 1), (0, 0), (Region.from_slices((3, 4), (slice(1, 3), slice(0, 4, 2))),))
    (Transfer(dims=(4,), src_offset=4, src_strides=(2,), dst_offset=0, dst_strides=(1,), guards=()),)
    """
    found: list[Transfer] = []
    at = 0
    for region in regions:
        axes = region.grids()
        ranks = row_major([sum(run.size for run in runs) for runs in axes])
        found += [_transfer(runs, _cells(runs, strides, start), _places(runs, ranks, at)) for runs in product(*axes)]
        at += region.size
    return tuple(found)


@lru_cache(maxsize=tuning.KEPT)
def unpack_transfers(strides: Ints, start: Ints, regions: tuple[Region, ...]) -> tuple[Transfer, ...]:
    """From the payload that `pack_transfers` fills to the array over the box."""
    return tuple(transfer.swap() for transfer in pack_transfers(strides, start, regions))


@lru_cache(maxsize=tuning.KEPT)
def between(
    src_strides: Ints, src_start: Ints, dst_strides: Ints, dst_start: Ints, regions: tuple[Region, ...]
) -> tuple[Transfer, ...]:
    """From an array over one box to an array over another box of the same coordinates.

    Parameters
    ----------
    src_strides, src_start, dst_strides, dst_start : tuple of int
        Of the arrays, as of `pack_transfers`.
    regions : tuple of Region
        Inside both.

    Examples
    --------
    >>> between((1,), (0,), (1,), (2,), (Region.from_bounds((6,), (3,), (5,)),))
    (Transfer(dims=(2,), src_offset=3, src_strides=(1,), dst_offset=1, dst_strides=(1,), guards=()),)
    """
    arrays = (dst_strides, dst_start), (src_strides, src_start)
    return tuple(map(Transfer.of, together(arrays, regions)))


@lru_cache(maxsize=tuning.KEPT)
def together(arrays: tuple[tuple[Ints, Ints], ...], regions: tuple[Region, ...]) -> tuple[Digits, ...]:
    """Where the cells of regions lie in several arrays over boxes of the same coordinates: a form for each array.

    Parameters
    ----------
    arrays : tuple of (strides, start)
        As of `pack_transfers`.
    regions : tuple of Region
        Inside all of them.

    Examples
    --------
    >>> together((((1,), (0,)), ((1,), (2,))), (Region.from_bounds((6,), (3,), (5,)),))
    (Digits(origin=(3, 1), digits=((2, 1, 1),)),)
    """
    return tuple(
        _digits_of(runs, [_cells(runs, steps, start) for steps, start in arrays])
        for region in regions
        for runs in product(*region.grids())
    )


@lru_cache(maxsize=tuning.KEPT)
def outside(shape: Ints, start: Ints, tensor_shape: Ints) -> tuple[Transfer, ...]:
    """The cells of a box that lie outside the tensor, each once, as fills: the source is one cell, its strides 0.

    Parameters
    ----------
    shape, start : tuple of int
        The box that the contiguous array holds; it may reach outside the tensor, or not touch it.
    tensor_shape : tuple of int

    Examples
    --------
    >>> outside((4,), (-1,), (3,))
    (Transfer(dims=(), src_offset=0, src_strides=(), dst_offset=0, dst_strides=(), guards=()),)
    """
    strides = row_major(shape)
    found: list[Transfer] = []
    low, high = [0] * len(shape), list(shape)
    for axis, (s, n, extent) in enumerate(zip(start, shape, tensor_shape, strict=True)):
        before = min(max(-s, 0), n)
        inside = min(max(extent - s, before), n)
        for a, b in ((0, before), (inside, n)):
            low[axis], high[axis] = a, b
            found += _slab(low, high, strides)
        low[axis], high[axis] = before, inside
    return tuple(found)


def _slab(low: Sequence[int], high: Sequence[int], strides: Ints) -> list[Transfer]:
    dims = tuple(b - a for a, b in zip(low, high, strict=True))
    if 0 in dims:
        return []
    offset = sum(a * s for a, s in zip(low, strides, strict=True))
    return [Transfer(dims, 0, (0,) * len(dims), offset, strides).collapse()]


def _transfer(runs: Sequence[StridedRun], src: Linear, dst: Linear) -> Transfer:
    return Transfer.of(_digits_of(runs, (dst, src)))


def _digits_of(runs: Sequence[StridedRun], forms: Sequence[Linear]) -> Digits:
    """The fewest digits that count through a grid of which each form has its steps, a digit each, and its start."""
    counts = [n for run in runs for n, _ in run.levels]
    digits = zip(counts, *[steps for steps, _ in forms], strict=True)
    return Digits(tuple([offset for _, offset in forms]), join_digits(digits))


def _cells(runs: Sequence[StridedRun], strides: Ints, start: Ints) -> Linear:
    """Where a grid's cells lie in an array that begins at `start`."""
    offset = sum((run.first - a) * s for run, a, s in zip(runs, start, strides, strict=True))
    return tuple(step * s for run, s in zip(runs, strides, strict=True) for _, step in run.levels), offset


def _places(runs: Sequence[StridedRun], ranks: Ints, at: int) -> Linear:
    """The places of a grid's cells in the packed region: consecutive ranks on each axis."""
    offset = at + sum(run.rank * s for run, s in zip(runs, ranks, strict=True))
    steps: list[int] = []
    for run, s in zip(runs, ranks, strict=True):
        steps += [s * inner for inner in row_major([n for n, _ in run.levels])]
    return tuple(steps), offset


# ------------------------------------------------------------------------------------- reading through views


def lay_block(buffer: Buffer, block: Box, piece: Piece | None) -> Linear:
    """Strides of a block in a buffer, and the place of its first cell behind the buffer's, in elements.

    Parameters
    ----------
    buffer : Buffer
    block : Box
        In the same coordinates, or with a piece in those of a view.
    piece : Piece or None
        Of the view, through which all of the block is read.

    Raises
    ------
    ValueError
        When the block's cells do not lie at even strides there.
    """
    if piece is None:
        strides = buffer.strides
        return strides, sum((a - b) * s for a, b, s in zip(block.start, buffer.start, strides, strict=True))
    found = None if buffer.within else find_strides(piece, buffer.box, block)
    if found is None:
        raise ValueError(f"lay_block: {block} of a view does not lie at even strides in {buffer}, through {piece}")
    return found


@lru_cache(maxsize=tuning.KEPT)
def domain_of(piece: Piece, shape: Ints) -> DisjointRegions:
    """The cells of a view of this shape that read through a piece."""
    return piece_domain(piece, Box.of(shape))


@lru_cache(maxsize=tuning.KEPT)
def through(piece: Piece, src_box: Box, dst_box: Box, regions: tuple[Region, ...]) -> tuple[Transfer, ...] | None:
    """From a source's block to a view's block, through one of the view's pieces that is not a constant.

    Parameters
    ----------
    piece : Piece
    src_box : Box
        What the contiguous source array holds, in the source's coordinates.
    dst_box : Box
        What the contiguous target array holds, in the view's coordinates.
    regions : tuple of Region
        Cells to be written, in the view's coordinates; those for which the piece's guards do not hold are
        left out.

    Returns
    -------
    tuple of Transfer, or None
        None where the piece cannot be copied by strides, also not by the digits of its numberings, or its domain
        shatters.

    Raises
    ------
    ValueError
        If the piece is a constant: see `fill_transfers`.
    """
    if piece.source < 0:
        raise ValueError(f"through: {piece} is a constant and reads no source; its cells are fill_transfers(piece, …)")
    linear = linearize(piece, src_box)
    if linear is None:
        return _through_digits(piece, src_box, dst_box, regions)
    return _written(piece, linear, dst_box, regions)


def _through_digits(
    piece: Piece, src_box: Box, dst_box: Box, regions: tuple[Region, ...]
) -> tuple[Transfer, ...] | None:
    """The same where a view renumbers cells first: by the digits of both numberings, in which the rest may be strided.

    Of 6 channels that are 3 × 2 turned around, a view's channel c has the digits (c // 2, c % 2), and reads channel
    3 · (c % 2) + c // 2: strided along each digit. None where extents have no digits in common, as 4 × 9 and 6 × 6, or
    cells are not boxes.
    """
    steps = piece.map.steps
    if not steps or not isinstance(steps[0], Relinearize) or 0 in steps[0].from_shape:
        return None
    old, new = steps[0].from_shape, steps[0].to_shape
    weights = sorted({*row_major(old), *row_major(new), prod(old)}, reverse=True)
    if any(a % b for a, b in pairwise(weights)):
        return None
    digits = tuple((b, a // b) for a, b in pairwise(weights))  # of each what it weighs, and how many there are
    rows = [[w // weight if weight <= w < weight * n else 0 for w, _ in digits] for weight, n in _axes(new)]
    split = AffineMap(tuple(map(tuple, rows)), (0,) * len(rows), len(digits))
    rest = Piece(piece.source, (), IndexMap((split, *steps[1:]), len(digits)))
    linear = linearize(rest, src_box) or linearize(rest, src_box, Box.of(tuple(n for _, n in digits)))
    members = ask_one((TooManyPieces,), lambda: [m for region in regions for m in members_of(piece, region)])
    if linear is None or members is OPEN or not all(member.is_box for member in members):
        return None
    mine = [[n for w, n in digits if weight <= w < weight * size] for weight, size in _axes(old)]
    strides = [
        stride * w // weight
        for (weight, size), stride in zip(_axes(old), row_major(dst_box.shape), strict=True)
        for w, _ in digits
        if weight <= w < weight * size
    ]
    origin = sum(a * stride for a, stride in zip(dst_box.start, row_major(dst_box.shape), strict=True))
    made = []
    for member in members:
        spans = [span for span in member.spans if span is not None]
        if len(spans) < len(old):
            continue
        cuts = [list(_cut_digits(*span, sizes)) for span, sizes in zip(spans, mine, strict=True)]
        for each in product(*cuts):
            low, dims = zip(*chain.from_iterable(each), strict=True) if any(each) else ((), ())
            src = linear[1] + sum(a * s for a, s in zip(low, linear[0], strict=True))
            dst = sum(a * s for a, s in zip(low, strides, strict=True)) - origin
            made.append(Transfer(tuple(dims), src, linear[0], dst, tuple(strides)).collapse())
    return tuple(made)


def _axes(shape: Ints) -> list[tuple[int, int]]:
    """Of each axis what a step weighs in row-major order, and its extent."""
    return list(zip(row_major(shape), shape, strict=True))


def _cut_digits(low: int, high: int, sizes: Sequence[int]) -> Iterator[tuple[tuple[int, int], ...]]:
    """An interval of numbers as boxes of their digits, of each the first one and how many."""
    if low >= high:
        return
    if not sizes:  # an axis of one cell has no digits
        yield ()
        return
    inner = prod(sizes[1:])
    (first, begin), (last, end) = divmod(low, inner), divmod(high, inner)
    if first == last:
        yield from (((first, 1), *rest) for rest in _cut_digits(begin, end, sizes[1:]))
        return
    if begin:
        yield from (((first, 1), *rest) for rest in _cut_digits(begin, inner, sizes[1:]))
        first += 1
    if first < last:
        yield ((first, last - first), *((0, n) for n in sizes[1:]))
    if end:
        yield from (((last, 1), *rest) for rest in _cut_digits(0, end, sizes[1:]))


@lru_cache(maxsize=tuning.KEPT)
def fill_transfers(piece: Piece, dst_box: Box, regions: tuple[Region, ...]) -> tuple[Transfer, ...] | None:
    """The cells of a view's block that a constant piece fills; the source is one cell, its strides 0.

    None where the piece's domain shatters. The parameters are those of `through`.
    """
    return _written(piece, ((0,) * len(dst_box.shape), 0), dst_box, regions)


def members_of(piece: Piece, region: Region) -> Sequence[Region]:
    """A region's cells for which a piece holds."""
    return (region & domain_of(piece, region.shape)).members


def _written(piece: Piece, linear: Linear, dst_box: Box, regions: Sequence[Region]) -> tuple[Transfer, ...] | None:
    """Copies to the regions' cells for which a piece holds, by what they read; None where they are too many grids."""
    grids = ask_one((TooManyPieces,), lambda: [runs for region in regions for runs in _grids_of(piece, region)])
    if grids is OPEN:
        return None
    strides = row_major(dst_box.shape)
    return tuple(_transfer(runs, _read(runs, linear), _cells(runs, strides, dst_box.start)) for runs in grids)


def _grids_of(piece: Piece, region: Region) -> Iterator[tuple[StridedRun, ...]]:
    for member in members_of(piece, region):
        yield from product(*member.grids())


def _read(runs: Sequence[StridedRun], linear: Linear) -> Linear:
    """Where a grid of the view's cells reads a source of which each element's offset is linear."""
    coefficients, offset = linear
    offset += sum(c * run.first for c, run in zip(coefficients, runs, strict=True))
    return tuple(c * step for c, run in zip(coefficients, runs, strict=True) for _, step in run.levels), offset
