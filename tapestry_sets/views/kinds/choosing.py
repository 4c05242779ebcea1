"""Kinds that choose cells of one source: slices, indices, diagonals, windows, samples, lists of indices, strides."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import prod

import numpy as np
from msgspec import Struct

from tapestry_sets.digits import Int64Array, Levels, Strided, at_index, cut_axis, renumber
from tapestry_sets.limits import Value, put_fields, quote
from tapestry_sets.regions import AffineMap, Region
from tapestry_sets.views import tuning
from tapestry_sets.views.kinds import kind
from tapestry_sets.views.kinds.axis_maps import AxisMaps, Looked, put_map
from tapestry_sets.views.kinds.kind import AxisRow, OneMap, Shapes, Triple
from tapestry_sets.views.pieces import numbering
from tapestry_sets.views.pieces.lookup import Lookup
from tapestry_sets.views.pieces.maps import INT64_MAX, Relinearize, Shape, put_extents
from tapestry_sets.views.pieces.piece import Piece


class Slice(OneMap, Struct, frozen=True):
    """Basic slicing: for each leading axis (start, stop, step) as in Python's slices, None included.

    Examples
    --------
    >>> Slice(((None, None, -2), (1, 3, None))).out_shape(((5, 4),))
    (3, 2)

    References
    ----------
    NumPy basic indexing; ONNX Slice.
    """

    slices: tuple[Triple, ...]

    def out_shape(self, shapes: Shapes) -> Shape:
        shape = kind.only_shape(shapes, "slice")
        if len(self.slices) > len(shape):
            raise IndexError(f"slice: {len(self.slices)} slices for shape {quote(shape)}; give at most {len(shape)}")
        counts = [kind.count_range(*_cut(s, n)) for s, n in zip(self.slices, shape, strict=False)]
        return (*counts, *shape[len(counts) :])

    def rows(self, shape: Shape) -> list[AxisRow]:
        cuts = [_cut(s, n) for s, n in zip(self.slices, shape, strict=False)]
        cuts += [(0, n, 1) for n in shape[len(cuts) :]]
        return [(start, (axis, step)) for axis, (start, _, step) in enumerate(cuts)]

    def strided(self, shapes: Shapes, source: Strided) -> Strided | None:
        cuts: list[Cut] = []
        for axis, s in enumerate(self.slices):
            start, stop, step = _cut(s, shapes[0][axis])
            cuts.append((axis, start, -((start - stop) // step), step))
        return cut_strided(source, cuts)


def _cut(triple: Triple, extent: int) -> tuple[int, int, int]:
    """A slice of so many places as a range; a step past them all is as one that just leaves, which memory can have."""
    start, stop, step = slice(*triple).indices(extent)
    most = max(extent, 1)
    return start, stop, max(-most, min(step, most))


Cut = tuple[int, int, int, int]
"""(axis, start, count, step): ``start + k*step`` for 0 <= k < count stay of an axis."""


def cut_strided(source: Strided, cuts: Sequence[Cut]) -> Strided | None:
    """Return the strided form of a source of which `count` >= 1 places stay on some axes; None if it has none.

    Examples
    --------
    >>> cut_strided((0, (((4, 6),), ((6, 1),))), [(1, 4, 2, -3)])
    (4, (((4, 6),), ((2, -3),)))
    """
    offset, axes = source
    out = list(axes)
    for axis, start, count, step in cuts:
        levels = axes[axis]
        if len(levels) == 1:  # the usual case of `cut_axis`
            by = levels[0][1]
            offset += start * by
            out[axis] = ((count, step * by),)
            continue
        found = cut_axis(levels, start, count, step)
        if found is None:
            return None
        offset += found[0]
        out[axis] = found[1]
    return offset, tuple(out)


class Index(OneMap, Struct, frozen=True):
    """One position on each of some axes, which go: ``x[..., i, ...]`` as (axis, i) pairs.

    References
    ----------
    NumPy integer indexing; ONNX Gather with a scalar index.
    """

    at: tuple[tuple[int, int], ...]

    def _places(self, shape: Shape) -> dict[int, int]:
        axes = kind.axes_of((a for a, _ in self.at), len(shape), "index")
        places = {}
        for axis, (_, i) in zip(axes, self.at, strict=True):
            if not -shape[axis] <= i < shape[axis]:
                raise IndexError(
                    f"index {i} is out of bounds for axis {axis} with size {quote(shape[axis])} of shape {quote(shape)}"
                )
            places[axis] = i % shape[axis]
        return places

    def out_shape(self, shapes: Shapes) -> Shape:
        shape = kind.only_shape(shapes, "index")
        places = self._places(shape)
        return tuple(n for axis, n in enumerate(shape) if axis not in places)

    def rows(self, shape: Shape) -> list[AxisRow]:
        places = self._places(shape)
        return [(places.get(axis, 0), *terms) for axis, (_, *terms) in enumerate(kind.kept_rows(len(shape), places))]

    def strided(self, shapes: Shapes, source: Strided) -> Strided:
        offset, out = source[0], list(source[1])
        for axis, i in sorted([(axis % len(out), i) for axis, i in self.at], reverse=True):  # which are checked
            offset += at_index(out.pop(axis), i % shapes[0][axis])
        return offset, tuple(out)


class Diagonal(OneMap, Struct, frozen=True):
    """Cells with x[axis2] - x[axis1] = offset, as the last axis of the view.

    References
    ----------
    NumPy diagonal.
    """

    offset: int = 0
    axis1: int = 0
    axis2: int = 1

    def _plan(self, shape: Shape) -> tuple[int, int, int]:
        a, b = kind.axes_of((self.axis1, self.axis2), len(shape), "diagonal")
        n = min(shape[a] - max(0, -self.offset), shape[b] - max(0, self.offset))
        return a, b, max(0, n)

    def out_shape(self, shapes: Shapes) -> Shape:
        shape = kind.only_shape(shapes, "diagonal")
        a, b, n = self._plan(shape)
        return (*(m for axis, m in enumerate(shape) if axis not in (a, b)), n)

    def rows(self, shape: Shape) -> list[AxisRow]:
        a, b, _ = self._plan(shape)
        rows, last = kind.kept_rows(len(shape), (a, b)), len(shape) - 2
        rows[a], rows[b] = (max(0, -self.offset), (last, 1)), (max(0, self.offset), (last, 1))
        return rows


class SlidingWindow(OneMap, Struct, frozen=True):
    """Sliding windows over some axes: each axis becomes the window's position, its offsets come last.

    Parameters
    ----------
    size, step, dilation, axes : tuple of int
        One value for each windowed axis: cells in a window, cells between windows, cells between two
        cells of a window; all >= 1.

    References
    ----------
    NumPy sliding_window_view; ONNX Conv and pooling attributes kernel_shape, strides, dilations.
    """

    size: tuple[int, ...]
    step: tuple[int, ...]
    dilation: tuple[int, ...]
    axes: tuple[int, ...]

    def _plan(self, shape: Shape) -> dict[int, tuple[int, int, int, int]]:
        """For each windowed axis: size, step, dilation, number of windows."""
        axes = kind.axes_of(self.axes, len(shape), "sliding_windows")
        if not len(self.size) == len(self.step) == len(self.dilation) == len(axes):
            raise ValueError(f"sliding_windows: {self} must give one size, step and dilation for each axis")
        plan = {}
        for axis, size, step, dilation in zip(axes, self.size, self.step, self.dilation, strict=True):
            if size < 1 or step < 1 or dilation < 1:
                raise ValueError(f"sliding_windows: size, step and dilation of axis {axis} must be >= 1 in {self}")
            reach = (size - 1) * dilation + 1
            if reach > shape[axis]:
                raise ValueError(
                    f"sliding_windows: a window of {size} cells, dilation {dilation}, covers {reach} cells, "
                    f"but axis {axis} of shape {quote(shape)} has {quote(shape[axis])}"
                )
            plan[axis] = (size, step, dilation, (shape[axis] - reach) // step + 1)
        return plan

    def out_shape(self, shapes: Shapes) -> Shape:
        shape = kind.only_shape(shapes, "sliding_windows")
        plan = self._plan(shape)
        return (*(plan[a][3] if a in plan else n for a, n in enumerate(shape)), *(p[0] for p in plan.values()))

    def rows(self, shape: Shape) -> list[AxisRow]:
        rows = kind.kept_rows(len(shape), ())
        for k, (axis, (_, step, dilation, _)) in enumerate(self._plan(shape).items(), len(shape)):
            rows[axis] = (0, (axis, step), (k, dilation))
        return rows


class AsStrided(Value):
    """Index i reads the source's cell number ``offset + sum(i * strides)``, in row-major order; strides in cells.

    Parameters
    ----------
    shape : tuple of int
        Of the view.
    strides : tuple of int
        One for each axis; negative ones and 0 too.
    offset : int
        The number of the cell at index (0, …, 0).

    Examples
    --------
    >>> AsStrided((2, 3), (4, 2)).out_shape(((9,),))
    (2, 3)

    References
    ----------
    NumPy lib.stride_tricks.as_strided; PyTorch as_strided.
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    __slots__ = __match_args__ = ("shape", "strides", "offset")

    def __init__(self, shape: tuple[int, ...], strides: tuple[int, ...], offset: int = 0) -> None:
        put_fields(self, shape=shape, strides=strides, offset=offset)

    def out_shape(self, shapes: Shapes) -> Shape:
        source = kind.only_shape(shapes, "as_strided")
        if len(self.shape) != len(self.strides):
            raise ValueError(
                f"as_strided: strides {quote(self.strides)} for shape {quote(self.shape)}; give one for each axis"
            )
        if min(self.shape, default=0) < 0:
            raise ValueError(f"as_strided: extents of shape {quote(self.shape)} must be >= 0")
        reaches = [(n - 1) * by for n, by in zip(self.shape, self.strides, strict=True)]
        low, high = self.offset + sum([r for r in reaches if r < 0]), self.offset + sum([r for r in reaches if r > 0])
        if 0 not in self.shape and not 0 <= low <= high < prod(source):
            raise ValueError(
                f"as_strided: shape {quote(self.shape)} with strides {quote(self.strides)} from {self.offset} reads "
                f"cells {low} to {high} of a source of shape {source}, which has {prod(source)}"
            )
        return self.shape

    def pieces(self, shapes: Shapes) -> tuple[Piece, ...]:
        flat = AffineMap((self.strides,), (self.offset,), len(self.shape))
        unravel = [Relinearize((prod(shapes[0]),), shapes[0])] if len(shapes[0]) != 1 else []
        return (kind.one_piece([flat, *unravel]),)

    def strided(self, shapes: Shapes, source: Strided) -> Strided | None:
        axes = renumber(source[1], (prod(shapes[0]),))
        if axes is None or len(axes[0]) > 1:
            return None
        by = axes[0][0][1]
        own = [((n, step * by),) for n, step in zip(self.shape, self.strides, strict=True)]
        return source[0] + self.offset * by, tuple(own)


class Sample(Struct, frozen=True):
    """The source's cells in a region, in ascending order along each axis: a slice by nested stripes.

    Parameters
    ----------
    region : Region
        In the source's box, which starts at zero. The view's shape is `region.counts`: a region without points
        makes every extent 0.

    Examples
    --------
    >>> from tapestry_sets import Sett, Stripe
    >>> Sample(Region((14,), [Sett(Stripe(5, 2), Stripe(2, 1))])).out_shape(((14,),))
    (8,)

    References
    ----------
    poprithms, memory/alias: settsample.
    """

    region: Region

    def __post_init__(self) -> None:
        kind.check_from_zero(self.region, "sample: region")

    def out_shape(self, shapes: Shapes) -> Shape:
        shape = kind.only_shape(shapes, "sample")
        if self.region.shape != shape:
            raise ValueError(
                f"sample: the region is in a box of shape {quote(self.region.shape)}, not of the source's shape "
                f"{quote(shape)}; write Region({quote(shape)}, …)"
            )
        return self.region.counts

    def _readings(self) -> list[numbering.AxisReading]:
        return [numbering.reading_of_elements(s, n) for s, n in zip(self.region.nests, self.region.shape, strict=True)]

    def pieces(self, shapes: Shapes) -> tuple[Piece, ...]:
        if self.region.is_empty:
            return ()
        return (numbering.piece_of(self.region.counts, self._readings()),)

    def strided(self, shapes: Shapes, source: Strided) -> Strided | None:
        offset, axes = source
        out = []
        for levels, reading, count in zip(axes, self._readings(), self.region.counts, strict=True):
            found = _read_axis(levels, reading, count)
            if found is None:
                return None
            offset += found[0]
            out.append(found[1])
        return offset, tuple(out)


class Take(Struct, frozen=True):
    """The source's places at a list of indices along an axis, in the list's order; negative ones count from the end.

    Lists that go on in equal steps, or as they began, are few pieces without a table; others are one piece with it.

    Examples
    --------
    >>> Take((2, 0, -1), 1).out_shape(((4, 5),))
    (4, 3)

    References
    ----------
    NumPy take and indexing by one array; ONNX Gather with constant indices.
    """

    indices: tuple[int, ...]
    axis: int = 0

    def _plan(self, shape: Shape) -> tuple[int, list[int]]:
        """The axis, and the indices counted from its start."""
        axis = kind.axis_of(self.axis, len(shape), "take")
        n = shape[axis]
        least = min(self.indices, default=0)
        if self.indices and not -n <= least <= max(self.indices) < n:
            k, i = next((k, i) for k, i in enumerate(self.indices) if not -n <= i < n)
            raise IndexError(
                f"take: index {i}, number {k}, is out of bounds for axis {axis} with size {n} of shape {quote(shape)}; "
                + (f"give one in [{-n}, {n})" if n else "the axis is empty")
            )
        return axis, [i + n if i < 0 else i for i in self.indices] if least < 0 else list(self.indices)

    def out_shape(self, shapes: Shapes) -> Shape:
        shape = kind.only_shape(shapes, "take")
        axis, indices = self._plan(shape)
        return put_extents(shape, axis, len(indices))

    def _table(self, n: int) -> Int64Array:
        """The indices, which `out_shape` has checked, counted from the start of an axis of n."""
        table = np.array(self.indices, np.int64)
        return np.where(table < 0, table + n, table)

    def pieces(self, shapes: Shapes) -> tuple[Piece, ...]:
        shape = shapes[0]
        axis, indices = self._plan(shape)
        out = put_extents(shape, axis, len(indices))
        found = numbering.few_readings(indices)
        if found is None:
            return (kind.one_piece([Lookup(len(shape), axis, indices)]),)
        others = [numbering.whole(n) for n in out]
        return tuple(numbering.piece_of(out, [*others[:axis], one, *others[axis + 1 :]]) for one in found)

    def by_axis(self, shapes: Shapes) -> tuple[AxisMaps] | None:
        (shape,) = shapes
        axis = kind.axis_of(self.axis, len(shape), "take")
        if shape[axis] > INT64_MAX:
            return None
        return (put_map(len(shape), axis, Looked((axis,), self._table(shape[axis]))),)

    def strided(self, shapes: Shapes, source: Strided) -> Strided | None:
        n, head = shapes[0][self.axis], self.indices[: tuning.SHORT_TABLE]
        if len({(b - a) % n for a, b in pairwise(head)}) > len(self.indices).bit_length():
            return None  # levels have a step each, and each doubles the length at least
        axis, indices = self._plan(shapes[0])
        found = numbering.few_readings(indices) or ()
        read = _read_axis(source[1][axis], found[0], len(indices)) if len(found) == 1 else None
        if read is None:
            return None
        return source[0] + read[0], (*source[1][:axis], read[1], *source[1][axis + 1 :])


def _read_axis(levels: Levels, reading: numbering.AxisReading, count: int) -> tuple[int, Levels] | None:
    """The offset and the levels of an axis that reads `count` places of another; None if they do not align."""
    found = reading.levels(count)
    if found is None:
        return None
    first, own = found
    if len(own) == 1 and own[0][0] == count:
        return cut_axis(levels, first, count, own[0][1])
    if len(levels) > 1:
        return None
    by = levels[0][1]
    return first * by, tuple([(n, step * by) for n, step in own])
