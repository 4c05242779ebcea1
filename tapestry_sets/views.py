"""Views: NumPy's words for slicing, reshaping and assembling memory, every one an alias.

A view kind is one small frozen class with two methods, `out_shape` and `pieces`; nothing else in the package names
a kind, so that a new one is written in one place. A `View` is a kind over other views, and at the end of the chain
stand allocations.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import prod
from types import EllipsisType
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np

from tapestry_sets import draw
from tapestry_sets.affine import AffineMap, Box, as_ints
from tapestry_sets.cells import Cells, local_setts, read_cells
from tapestry_sets.maps import (
    Guard,
    IndexMap,
    Piece,
    Relinearize,
    Step,
    compose_pieces,
    identity_piece,
    piece_domain,
)
from tapestry_sets.nest import EMPTY, Nest
from tapestry_sets.region import Region, Regions
from tapestry_sets.sett import Setts
from tapestry_sets.strided import Levels, Strided, at_index, contiguous, cut_axis, flip_axis, nest_of, renumber
from tapestry_sets.stripe import as_int

Shape = tuple[int, ...]
Shapes = tuple[Shape, ...]
PadMode = Literal["constant", "edge", "reflect", "symmetric", "wrap"]
Triple = tuple[int | None, int | None, int | None]
Key = int | slice | EllipsisType | None


@runtime_checkable
class ViewKind(Protocol):
    """A way to make a view of one or more sources. Any class with these two methods is one.

    A kind of one source may also have ``strided(shapes, source)``, which takes the source's strided form to its own
    or returns None (see `tapestry_sets.strided`): a short way to the same answers. From the strided form of a source
    that lies in memory row by row it also says which of the source's cells the view reads, by their row-major
    numbers, so that chains which need too many setts are still answered (see `tapestry_sets.cells.filled`).
    """

    def out_shape(self, shapes: Shapes) -> Shape:
        """Return the view's shape from its sources' shapes, or raise a ValueError that says what is wrong."""

    def pieces(self, shapes: Shapes) -> tuple[Piece, ...]:
        """Return the pieces of the view; their domains must partition it."""


# ------------------------------------------------------------------------------- what several kinds have in common


def _axis(axis: int, rank: int, what: str) -> int:
    a = as_int(axis, f"{what}: axis")
    if not -rank <= a < rank:
        raise np.exceptions.AxisError(
            f"{what}: axis {a} is out of range for a shape of rank {rank}; give one in [{-rank}, {rank})"
        )
    return a % rank


def _axes(axes: Iterable[int], rank: int, what: str) -> Shape:
    found = tuple(_axis(a, rank, what) for a in axes)
    if len(set(found)) < len(found):
        raise ValueError(f"{what}: axes {found} name an axis twice")
    return found


def _only(shapes: Shapes, what: str) -> Shape:
    if len(shapes) != 1:
        raise ValueError(f"{what}: takes one source, not {len(shapes)}")
    return shapes[0]


def _one(steps: Sequence[Step], rank: int, source: int = 0, guards: tuple[Guard, ...] = ()) -> Piece:
    return Piece(source, guards, IndexMap._of(tuple(steps), rank))


def _count(start: int, stop: int, step: int) -> int:
    """How many integers range(start, stop, step) holds; len() of a range has a limit of 63 bits."""
    return max(0, -((start - stop) // step))


def _put(shape: Shape, axis: int, *extents: int) -> Shape:
    """The shape with one axis replaced by others."""
    return (*shape[:axis], *extents, *shape[axis + 1 :])


def _band(shape: Shape, axis: int, start: int, stop: int, prefix: int = 0) -> Guard:
    """The guard start <= x[axis] < stop."""
    low, high = [0] * len(shape), list(shape)
    low[axis], high[axis] = start, stop
    return Guard(prefix, Region.from_bounds(shape, low, high))


def _drop(rank: int, axis: int) -> AffineMap:
    """The map that forgets one axis."""
    return AffineMap.select(rank, [(a, 1) for a in range(rank) if a != axis])


def _move(rank: int, axis: int, offset: int, coefficient: int = 1) -> AffineMap:
    """The map x[axis] -> coefficient·x[axis] + offset."""
    terms = [(a, coefficient if a == axis else 1) for a in range(rank)]
    return AffineMap.select(rank, terms, [offset if a == axis else 0 for a in range(rank)])


def _same_but(shapes: Shapes, axis: int, what: str) -> None:
    for k, shape in enumerate(shapes):
        if len(shape) != len(shapes[0]) or _put(shape, axis, 0) != _put(shapes[0], axis, 0):
            raise ValueError(
                f"{what}: source {k} has shape {shape}, source 0 has {shapes[0]}; they must agree except on axis {axis}"
            )


# ------------------------------------------------------------------------------------------- kinds with one source


@dataclass(frozen=True, slots=True)
class Slice:
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
        shape = _only(shapes, "slice")
        if len(self.slices) > len(shape):
            raise IndexError(f"slice: {len(self.slices)} slices for shape {shape}; give at most {len(shape)}")
        counts = [_count(*slice(*s).indices(n)) for s, n in zip(self.slices, shape, strict=False)]
        return (*counts, *shape[len(counts) :])

    def pieces(self, shapes: Shapes) -> tuple[Piece, ...]:
        shape = shapes[0]
        terms, offset = [], []
        for axis, n in enumerate(shape):
            start, _, step = slice(*self.slices[axis]).indices(n) if axis < len(self.slices) else (0, n, 1)
            terms.append((axis, step))
            offset.append(start)
        return (_one([AffineMap.select(len(shape), terms, offset)], len(shape)),)

    def strided(self, shapes: Shapes, source: Strided) -> Strided | None:
        offset, axes = source
        out = list(axes)
        for axis, s in enumerate(self.slices):
            start, stop, step = slice(*s).indices(shapes[0][axis])
            count, levels = -((start - stop) // step), axes[axis]
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


@dataclass(frozen=True, slots=True)
class Index:
    """One position on each of some axes, which go: ``x[..., i, ...]`` as (axis, i) pairs.

    References
    ----------
    NumPy integer indexing; ONNX Gather with a scalar index.
    """

    at: tuple[tuple[int, int], ...]

    def _places(self, shape: Shape) -> dict[int, int]:
        axes = _axes((a for a, _ in self.at), len(shape), "index")
        places = {}
        for axis, (_, i) in zip(axes, self.at, strict=True):
            if not -shape[axis] <= i < shape[axis]:
                raise IndexError(f"index {i} is out of bounds for axis {axis} with size {shape[axis]} of shape {shape}")
            places[axis] = i % shape[axis]
        return places

    def out_shape(self, shapes: Shapes) -> Shape:
        shape = _only(shapes, "index")
        places = self._places(shape)
        return tuple(n for axis, n in enumerate(shape) if axis not in places)

    def pieces(self, shapes: Shapes) -> tuple[Piece, ...]:
        places = self._places(shapes[0])
        kept = iter(range(len(shapes[0])))
        terms = [None if axis in places else (next(kept), 1) for axis in range(len(shapes[0]))]
        offset = [places.get(axis, 0) for axis in range(len(shapes[0]))]
        rank = len(shapes[0]) - len(places)
        return (_one([AffineMap.select(rank, terms, offset)], rank),)

    def strided(self, shapes: Shapes, source: Strided) -> Strided:
        places = self._places(shapes[0])
        offset = source[0] + sum([at_index(source[1][axis], i) for axis, i in places.items()])
        return offset, tuple([levels for axis, levels in enumerate(source[1]) if axis not in places])


@dataclass(frozen=True, slots=True)
class ExpandDims:
    """New axes of extent 1 at the given positions of the result.

    References
    ----------
    NumPy expand_dims and newaxis; ONNX Unsqueeze.
    """

    axes: tuple[int, ...]

    def out_shape(self, shapes: Shapes) -> Shape:
        shape = _only(shapes, "expand_dims")
        rank = len(shape) + len(self.axes)
        new = _axes(self.axes, rank, "expand_dims")
        old = iter(shape)
        return tuple(1 if axis in new else next(old) for axis in range(rank))

    def pieces(self, shapes: Shapes) -> tuple[Piece, ...]:
        rank = len(shapes[0]) + len(self.axes)
        new = _axes(self.axes, rank, "expand_dims")
        kept: list[tuple[int, int] | None] = [(a, 1) for a in range(rank) if a not in new]
        return (_one([AffineMap.select(rank, kept)], rank),)

    def strided(self, shapes: Shapes, source: Strided) -> Strided:
        rank = len(shapes[0]) + len(self.axes)
        new = _axes(self.axes, rank, "expand_dims")
        old = iter(source[1])
        return source[0], tuple([((1, 0),) if axis in new else next(old) for axis in range(rank)])


@dataclass(frozen=True, slots=True)
class Squeeze:
    """Drop axes of extent 1: the given ones, or all.

    References
    ----------
    NumPy squeeze; ONNX Squeeze.
    """

    axes: tuple[int, ...] | None = None

    def _gone(self, shape: Shape) -> Shape:
        if self.axes is None:
            return tuple(axis for axis, n in enumerate(shape) if n == 1)
        gone = _axes(self.axes, len(shape), "squeeze")
        for axis in gone:
            if shape[axis] != 1:
                raise ValueError(
                    f"squeeze: axis {axis} of shape {shape} has extent {shape[axis]}; only extent 1 can be dropped"
                )
        return gone

    def out_shape(self, shapes: Shapes) -> Shape:
        shape = _only(shapes, "squeeze")
        gone = self._gone(shape)
        return tuple(n for axis, n in enumerate(shape) if axis not in gone)

    def pieces(self, shapes: Shapes) -> tuple[Piece, ...]:
        gone = self._gone(shapes[0])
        kept = iter(range(len(shapes[0])))
        terms = [None if axis in gone else (next(kept), 1) for axis in range(len(shapes[0]))]
        rank = len(shapes[0]) - len(gone)
        return (_one([AffineMap.select(rank, terms)], rank),)

    def strided(self, shapes: Shapes, source: Strided) -> Strided:
        gone = self._gone(shapes[0])
        return source[0], tuple([levels for axis, levels in enumerate(source[1]) if axis not in gone])


@dataclass(frozen=True, slots=True)
class Permute:
    """Axis k of the view is axis axes[k] of the source.

    References
    ----------
    NumPy transpose, Array API permute_dims; ONNX Transpose; poprithms dimShuffle.
    """

    axes: tuple[int, ...]

    def _order(self, shape: Shape) -> Shape:
        axes = _axes(self.axes, len(shape), "permute_dims")
        if len(axes) != len(shape):
            raise ValueError(f"permute_dims: axes {self.axes} are {len(axes)} for shape {shape}; name each axis once")
        return axes

    def out_shape(self, shapes: Shapes) -> Shape:
        shape = _only(shapes, "permute_dims")
        return tuple(shape[a] for a in self._order(shape))

    def pieces(self, shapes: Shapes) -> tuple[Piece, ...]:
        order = self._order(shapes[0])
        return (_one([AffineMap.permutation([order.index(a) for a in range(len(order))])], len(order)),)

    def strided(self, shapes: Shapes, source: Strided) -> Strided:
        return source[0], tuple([source[1][a] for a in self._order(shapes[0])])


@dataclass(frozen=True, slots=True)
class Flip:
    """Reverse the given axes.

    References
    ----------
    NumPy flip; poprithms reverse.
    """

    axes: tuple[int, ...]

    def out_shape(self, shapes: Shapes) -> Shape:
        shape = _only(shapes, "flip")
        _axes(self.axes, len(shape), "flip")
        return shape

    def pieces(self, shapes: Shapes) -> tuple[Piece, ...]:
        shape = shapes[0]
        axes = _axes(self.axes, len(shape), "flip")
        terms = [(a, -1 if a in axes else 1) for a in range(len(shape))]
        offset = [n - 1 if a in axes else 0 for a, n in enumerate(shape)]
        return (_one([AffineMap.select(len(shape), terms, offset)], len(shape)),)

    def strided(self, shapes: Shapes, source: Strided) -> Strided:
        offset, out = source[0], list(source[1])
        for axis in _axes(self.axes, len(shapes[0]), "flip"):
            more, out[axis] = flip_axis(out[axis])
            offset += more
        return offset, tuple(out)


@dataclass(frozen=True, slots=True)
class Reshape:
    """The same cells in row-major order under another shape; one extent may be -1. Never a copy.

    References
    ----------
    NumPy reshape; ONNX Reshape; Tapestry's document on nested striding.
    """

    shape: tuple[int, ...]

    def out_shape(self, shapes: Shapes) -> Shape:
        old = _only(shapes, "reshape")
        size = prod(old)
        if prod(self.shape) == size and (not self.shape or min(self.shape) >= 0):
            return self.shape
        known = prod(n for n in self.shape if n != -1)
        free = self.shape.count(-1)
        if free > 1 or any(n < -1 for n in self.shape):
            raise ValueError(f"reshape: shape {self.shape} may hold one -1, and otherwise extents >= 0")
        if free and known and size % known == 0:
            return tuple(size // known if n == -1 else n for n in self.shape)
        if free or known != size:
            count = "a multiple of " if free else ""
            raise ValueError(f"reshape: cannot view shape {old} [{size} elements] as {self.shape} [{count}{known}]")
        return self.shape

    def pieces(self, shapes: Shapes) -> tuple[Piece, ...]:
        new = self.out_shape(shapes)
        return (_one([Relinearize._of(new, shapes[0])], len(new)),)

    def strided(self, shapes: Shapes, source: Strided) -> Strided | None:
        shape = self.out_shape(shapes) if -1 in self.shape else self.shape
        axes = renumber(source[1], shape)
        return None if axes is None else (source[0], axes)


@dataclass(frozen=True, slots=True)
class Broadcast:
    """Axes of extent 1, and new leading axes, repeated to a shape.

    References
    ----------
    NumPy broadcast_to; ONNX Expand.
    """

    shape: tuple[int, ...]

    def out_shape(self, shapes: Shapes) -> Shape:
        old = _only(shapes, "broadcast_to")
        extra = len(self.shape) - len(old)
        if any(n < 0 for n in self.shape):
            raise ValueError(f"broadcast_to: extents of shape {self.shape} must be >= 0")
        if extra < 0 or any(n not in (1, m) for n, m in zip(old, self.shape[max(extra, 0) :], strict=False)):
            raise ValueError(
                f"broadcast_to: shape {old} cannot become {self.shape}; aligned at the right, "
                "each extent must stay or be 1"
            )
        return self.shape

    def pieces(self, shapes: Shapes) -> tuple[Piece, ...]:
        old, rank = shapes[0], len(self.shape)
        extra = rank - len(old)
        terms = [None if n == 1 and self.shape[extra + a] != 1 else (extra + a, 1) for a, n in enumerate(old)]
        return (_one([AffineMap.select(rank, terms)], rank),)

    def strided(self, shapes: Shapes, source: Strided) -> Strided:
        old = (1,) * (len(self.shape) - len(shapes[0])) + shapes[0]
        axes: tuple[Levels, ...] = (((1, 0),),) * (len(self.shape) - len(shapes[0])) + source[1]
        return source[0], tuple([a if n == m else ((m, 0),) for a, n, m in zip(axes, old, self.shape, strict=True)])


@dataclass(frozen=True, slots=True)
class Diagonal:
    """Cells with x[axis2] - x[axis1] = offset, as the last axis of the view.

    References
    ----------
    NumPy diagonal.
    """

    offset: int = 0
    axis1: int = 0
    axis2: int = 1

    def _plan(self, shape: Shape) -> tuple[int, int, int]:
        a, b = _axes((self.axis1, self.axis2), len(shape), "diagonal")
        n = min(shape[a] - max(0, -self.offset), shape[b] - max(0, self.offset))
        return a, b, max(0, n)

    def out_shape(self, shapes: Shapes) -> Shape:
        shape = _only(shapes, "diagonal")
        a, b, n = self._plan(shape)
        return (*(m for axis, m in enumerate(shape) if axis not in (a, b)), n)

    def pieces(self, shapes: Shapes) -> tuple[Piece, ...]:
        shape = shapes[0]
        a, b, _ = self._plan(shape)
        rank = len(shape) - 1
        kept = iter(range(rank - 1))
        terms = [(rank - 1, 1) if axis in (a, b) else (next(kept), 1) for axis in range(len(shape))]
        offset = [0] * len(shape)
        offset[a], offset[b] = max(0, -self.offset), max(0, self.offset)
        return (_one([AffineMap.select(rank, terms, offset)], rank),)

    def strided(self, shapes: Shapes, source: Strided) -> Strided | None:
        a, b, n = self._plan(shapes[0])
        one, two = source[1][a], source[1][b]
        if len(one) > 1 or len(two) > 1:
            return None
        offset = source[0] + max(0, -self.offset) * one[0][1] + max(0, self.offset) * two[0][1]
        kept = [levels for axis, levels in enumerate(source[1]) if axis not in (a, b)]
        return offset, (*kept, ((n, one[0][1] + two[0][1]),))


@dataclass(frozen=True, slots=True)
class Window:
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
        axes = _axes(self.axes, len(shape), "sliding_windows")
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
                    f"but axis {axis} of shape {shape} has {shape[axis]}"
                )
            plan[axis] = (size, step, dilation, (shape[axis] - reach) // step + 1)
        return plan

    def out_shape(self, shapes: Shapes) -> Shape:
        shape = _only(shapes, "sliding_windows")
        plan = self._plan(shape)
        return (
            *(plan[a][3] if a in plan else n for a, n in enumerate(shape)),
            *(p[0] for p in plan.values()),
        )

    def pieces(self, shapes: Shapes) -> tuple[Piece, ...]:
        shape = shapes[0]
        plan = self._plan(shape)
        rank = len(shape) + len(plan)
        rows = [[int(j == a) for j in range(rank)] for a in range(len(shape))]
        for k, (axis, (_, step, dilation, _)) in enumerate(plan.items()):
            rows[axis][axis] = step
            rows[axis][len(shape) + k] = dilation
        return (_one([AffineMap(tuple(map(tuple, rows)), (0,) * len(shape), rank)], rank),)

    def strided(self, shapes: Shapes, source: Strided) -> Strided | None:
        plan = self._plan(shapes[0])
        out = list(source[1])
        for axis, (size, step, dilation, n) in plan.items():
            if len(source[1][axis]) > 1:
                return None
            by = source[1][axis][0][1]
            out[axis] = ((n, step * by),)
            out.append(((size, dilation * by),))
        return source[0], tuple(out)


@dataclass(frozen=True, slots=True)
class Pad:
    """Cells around the source: constants, or cells of the source itself.

    Parameters
    ----------
    widths : tuple of (before, after)
        One pair for each axis, >= 0.
    mode : str
        "constant", "edge", "reflect", "symmetric" or "wrap".
    value : float
        For mode "constant".

    References
    ----------
    NumPy pad; ONNX Pad.
    """

    widths: tuple[tuple[int, int], ...]
    mode: PadMode = "constant"
    value: float = 0

    def out_shape(self, shapes: Shapes) -> Shape:
        shape = _only(shapes, "pad")
        if self.mode not in ("constant", "edge", "reflect", "symmetric", "wrap"):
            raise ValueError(f"pad: mode {self.mode!r} must be constant, edge, reflect, symmetric or wrap")
        if len(self.widths) != len(shape):
            raise ValueError(f"pad: {len(self.widths)} widths for shape {shape}; give (before, after) for each axis")
        for axis, (before, after) in enumerate(self.widths):
            if before < 0 or after < 0:
                raise ValueError(f"pad: widths {before, after} of axis {axis} must be >= 0")
            if self.mode != "constant" and before + after and not shape[axis]:
                raise ValueError(f"pad: axis {axis} of shape {shape} is empty; only mode 'constant' can extend it")
        return tuple(n + before + after for n, (before, after) in zip(shape, self.widths, strict=True))

    def pieces(self, shapes: Shapes) -> tuple[Piece, ...]:
        shape, out = shapes[0], self.out_shape(shapes)
        if self.mode == "constant":
            return self._constant_pieces(shape, out)
        pieces = []
        for choice in product(*(self._segments(n, w) for n, w in zip(shape, self.widths, strict=True))):
            region = Region.from_bounds(out, [s[0] for s in choice], [s[1] for s in choice])
            terms = [(axis, s[2]) if s[2] else None for axis, s in enumerate(choice)]
            m = AffineMap.select(len(shape), terms, [s[3] for s in choice])
            pieces.append(_one([m], len(shape), guards=(Guard(0, region),)))
        return tuple(pieces)

    def _constant_pieces(self, shape: Shape, out: Shape) -> tuple[Piece, ...]:
        """The source, then for each axis the cells before and after it that no earlier axis has taken."""
        low = [before for before, _ in self.widths]
        high = [before + n for n, (before, _) in zip(shape, self.widths, strict=True)]
        m = AffineMap.select(len(shape), [(a, 1) for a in range(len(shape))], [-b for b in low])
        pieces = [_one([m], len(shape), guards=(Guard(0, Region.from_bounds(out, low, high)),))]
        nowhere = IndexMap((AffineMap((), (), len(shape)),))
        for axis, n in enumerate(out):
            for start, stop in ((0, low[axis]), (high[axis], n)):
                a = [*low[:axis], start, *(0,) * (len(out) - axis - 1)]
                b = [*high[:axis], stop, *out[axis + 1 :]]
                if all(x < y for x, y in zip(a, b, strict=True)):
                    pieces.append(Piece(-1, (Guard(0, Region.from_bounds(out, a, b)),), nowhere, self.value))
        return tuple(pieces)

    def _segments(self, n: int, widths: tuple[int, int]) -> list[tuple[int, int, int, int]]:
        """(start, stop, coefficient, offset): where the view runs through the source in one direction."""
        before, after = widths
        end = before + n + after
        if not end:
            return []
        if self.mode == "edge" or (self.mode == "reflect" and n == 1):
            parts = [(0, before, 0, 0), (before, before + n, 1, -before), (before + n, end, 0, n - 1)]
            return [p for p in parts if p[0] < p[1]]
        turn = {"reflect": n - 1, "symmetric": n, "wrap": n}[self.mode]
        segments = []
        for k in range(-before // turn, (end - before - 1) // turn + 1):
            start, stop = max(0, before + k * turn), min(end, before + (k + 1) * turn)
            if self.mode == "wrap" or k % 2 == 0:
                segments.append((start, stop, 1, -before - k * turn))
            else:  # backwards, from the far end of the source
                segments.append((start, stop, -1, before + k * turn + (n - 1)))
        return segments


@dataclass(frozen=True, slots=True)
class Repeat:
    """Each cell along an axis `count` times in a row.

    References
    ----------
    NumPy repeat; ONNX Resize, nearest and integer scales.
    """

    count: int
    axis: int

    def out_shape(self, shapes: Shapes) -> Shape:
        shape = _only(shapes, "repeat")
        axis = _axis(self.axis, len(shape), "repeat")
        if self.count < 0:
            raise ValueError(f"repeat: count {self.count} must be >= 0")
        return _put(shape, axis, shape[axis] * self.count)

    def pieces(self, shapes: Shapes) -> tuple[Piece, ...]:
        shape, out = shapes[0], self.out_shape(shapes)
        axis = _axis(self.axis, len(shape), "repeat")
        split = Relinearize(out, _put(shape, axis, shape[axis], self.count))
        return (_one([split, _drop(len(shape) + 1, axis + 1)], len(shape)),)


@dataclass(frozen=True, slots=True)
class Tile:
    """The whole source `reps[k]` times along axis k; missing leading reps are 1.

    References
    ----------
    NumPy tile; ONNX Tile.
    """

    reps: tuple[int, ...]

    def _plan(self, shape: Shape) -> tuple[Shape, Shape]:
        """Source shape and reps, of equal rank."""
        rank = max(len(shape), len(self.reps))
        if any(r < 0 for r in self.reps):
            raise ValueError(f"tile: reps {self.reps} must be >= 0")
        return (1,) * (rank - len(shape)) + shape, (1,) * (rank - len(self.reps)) + self.reps

    def out_shape(self, shapes: Shapes) -> Shape:
        shape, reps = self._plan(_only(shapes, "tile"))
        return tuple(n * r for n, r in zip(shape, reps, strict=True))

    def pieces(self, shapes: Shapes) -> tuple[Piece, ...]:
        shape, reps = self._plan(shapes[0])
        split = tuple(n for pair in zip(reps, shape, strict=True) for n in pair)
        new = len(shape) - len(shapes[0])
        kept: list[tuple[int, int] | None] = [(2 * a + 1, 1) for a in range(new, len(shape))]
        steps: list[Step] = [Relinearize(self.out_shape(shapes), split), AffineMap.select(len(split), kept)]
        return (_one(steps, len(shape)),)


@dataclass(frozen=True, slots=True)
class Roll:
    """Cells moved by `shift` along an axis, around its end.

    References
    ----------
    NumPy roll.
    """

    shift: int
    axis: int

    def out_shape(self, shapes: Shapes) -> Shape:
        shape = _only(shapes, "roll")
        _axis(self.axis, len(shape), "roll")
        return shape

    def pieces(self, shapes: Shapes) -> tuple[Piece, ...]:
        shape = shapes[0]
        axis = _axis(self.axis, len(shape), "roll")
        n = shape[axis]
        k = self.shift % n if n else 0
        if not k:
            return (identity_piece(len(shape)),)
        head = _one([_move(len(shape), axis, n - k)], len(shape), guards=(_band(shape, axis, 0, k),))
        tail = _one([_move(len(shape), axis, -k)], len(shape), guards=(_band(shape, axis, k, n),))
        return head, tail


# --------------------------------------------------------------------------------------- kinds with many sources


@dataclass(frozen=True, slots=True)
class Concat:
    """Sources one after the other along an axis.

    References
    ----------
    NumPy concatenate; ONNX Concat.
    """

    axis: int = 0

    def _plan(self, shapes: Shapes) -> int:
        if not shapes:
            raise ValueError("concatenate: needs at least one source")
        axis = _axis(self.axis, len(shapes[0]), "concatenate")
        _same_but(shapes, axis, "concatenate")
        return axis

    def out_shape(self, shapes: Shapes) -> Shape:
        axis = self._plan(shapes)
        return _put(shapes[0], axis, sum(shape[axis] for shape in shapes))

    def pieces(self, shapes: Shapes) -> tuple[Piece, ...]:
        axis, out = self._plan(shapes), self.out_shape(shapes)
        pieces, start = [], 0
        for source, shape in enumerate(shapes):
            stop = start + shape[axis]
            if start < stop:
                guard = _band(out, axis, start, stop)
                pieces.append(_one([_move(len(out), axis, -start)], len(out), source, (guard,)))
            start = stop
        return tuple(pieces)


@dataclass(frozen=True, slots=True)
class Stack:
    """Sources of one shape along a new axis.

    References
    ----------
    NumPy stack; ONNX ConcatFromSequence with new_axis = 1.
    """

    axis: int = 0

    def _plan(self, shapes: Shapes) -> int:
        if not shapes:
            raise ValueError("stack: needs at least one source")
        for k, shape in enumerate(shapes):
            if shape != shapes[0]:
                raise ValueError(f"stack: source {k} has shape {shape}, source 0 has {shapes[0]}; they must agree")
        return _axis(self.axis, len(shapes[0]) + 1, "stack")

    def out_shape(self, shapes: Shapes) -> Shape:
        axis = self._plan(shapes)
        return (*shapes[0][:axis], len(shapes), *shapes[0][axis:])

    def pieces(self, shapes: Shapes) -> tuple[Piece, ...]:
        axis, out = self._plan(shapes), self.out_shape(shapes)
        step = _drop(len(out), axis)
        return tuple(
            _one([step], len(out), source, (_band(out, axis, source, source + 1),)) for source in range(len(shapes))
        )


@dataclass(frozen=True, slots=True)
class Interleave:
    """Cells of k sources in turn along an axis: cell i of source s becomes cell i·k + s.

    The sources' extents on the axis must be what is left by ``y[s::k]``: equal, or one more for the first few.

    References
    ----------
    Tapestry, "Tensor View Selections": interleave.
    """

    axis: int = 0

    def _plan(self, shapes: Shapes) -> int:
        if not shapes:
            raise ValueError("interleave: needs at least one source")
        axis = _axis(self.axis, len(shapes[0]), "interleave")
        _same_but(shapes, axis, "interleave")
        extents = [shape[axis] for shape in shapes]
        total = sum(extents)
        wanted = [_count(s, total, len(shapes)) for s in range(len(shapes))]
        if extents != wanted:
            raise ValueError(
                f"interleave: extents {extents} on axis {axis} do not take turns; {total} cells in {len(shapes)} "
                f"sources need {wanted}"
            )
        return axis

    def out_shape(self, shapes: Shapes) -> Shape:
        axis = self._plan(shapes)
        return _put(shapes[0], axis, sum(shape[axis] for shape in shapes))

    def pieces(self, shapes: Shapes) -> tuple[Piece, ...]:
        axis, k = self._plan(shapes), len(shapes)
        rounds = shapes[0][axis]
        rank = len(shapes[0])
        # the last round may be partial: the renumbering is that of the full rounds
        split = _put(shapes[0], axis, rounds, k)
        steps: list[Step] = [Relinearize(_put(shapes[0], axis, rounds * k), split), _drop(rank + 1, axis + 1)]
        return tuple(
            _one(steps, rank, source, (_band(split, axis + 1, source, source + 1, prefix=1),))
            for source in range(k)
            if shapes[source][axis]
        )


# ----------------------------------------------------------------------------------------------------- the view


@dataclass(frozen=True, slots=True, eq=False, init=False)
class View:
    """A shape over cells of memory: a view kind over other views. Compared and hashed by identity.

    Make one with `allocate` and its methods; nothing is computed before a question is asked.

    Examples
    --------
    >>> A = allocate((4, 6), name="A")
    >>> A[1:, ::2].reshape(9)
    View((9,) of A)
    """

    shape: tuple[int, ...]
    kind: ViewKind | None
    sources: tuple[View, ...]
    _cache: dict[str, object] = field(repr=False)

    def __init__(self, shape: Shape, kind: ViewKind | None, sources: tuple[View, ...]) -> None:
        _set_shape(self, shape)
        _set_kind(self, kind)
        _set_sources(self, sources)
        _set_cache(self, {})

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def ndim(self) -> int:
        """Number of axes, under NumPy's name."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of cells of the view, repeated ones included."""
        return prod(self.shape)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a view of rank 0")
        return self.shape[0]

    __contains__ = None  # a view has places, not values: `3 in view` has no meaning

    def __repr__(self) -> str:
        names = ", ".join(a.name or f"{a.shape}" for a in self.allocations)
        return f"View({self.shape} of {names})"

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        return draw.views_mimebundle(self)

    @property
    def allocations(self) -> tuple[Allocation, ...]:
        """The allocations at the end of the chain, in order of first appearance; pieces number them."""
        return self._composed()[0]

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """The pieces of the whole chain: sources are positions in `allocations`, their domains partition the view."""
        return self._composed()[1]

    def _composed(self) -> tuple[tuple[Allocation, ...], tuple[Piece, ...]]:
        if isinstance(self, Allocation):  # not kept: it would hold itself
            return (self,), (identity_piece(self.rank),)
        done = self._cache.get("composed")
        if done is None:
            for view in _chain(self) or _in_order(self):
                view._cache["composed"] = _compose(view)
            done = self._cache["composed"]
        return done  # type: ignore[return-value]

    # -- memory ---------------------------------------------------------------------------------------

    def as_nest(self) -> tuple[Allocation, Nest] | None:
        """Return the one allocation that the view reads and its cells there as one nest, where that is quickly had.

        The nest holds the row-major numbers of the cells in [0, the allocation's size); it repeats with that period.
        None where the view has several sources, or reads cells that are not one nest: `cells` has them then.

        Examples
        --------
        >>> A = allocate((27,))
        >>> A.reshape(3, 3, 3)[:2, :2, :2].as_nest()[1]
        ((14, 27, 0), (5, 9, 0), (2, 3, 0))
        """
        found = self._cache.get("nest", False)
        if found is not False:
            return found  # type: ignore[return-value]
        strided = _strided(self)
        if strided is None:
            nested = None
        else:
            home, form = strided
            nest = EMPTY if 0 in home.shape else nest_of(form, prod(home.shape))
            nested = None if nest is None else (home, nest)
        if self.kind is not None:  # an allocation would hold itself
            self._cache["nest"] = nested
        return nested

    @property
    def cells(self) -> Mapping[Allocation, Cells]:
        """The cells that the view reads, for each allocation that it reads at all."""
        found = self._cache.get("cells")
        if found is None:
            allocations, pieces = self._composed()
            chain = _chained(self)
            each = (read_cells(pieces, k, self.shape, a.shape, a.size, chain) for k, a in enumerate(allocations))
            found = {a: c for a, c in zip(allocations, each, strict=True) if not c.is_empty}
            if self.kind is not None:  # an allocation would hold itself
                self._cache["cells"] = found
        return found  # type: ignore[return-value]

    def origins(self) -> dict[Allocation, Regions]:
        """Return the cells that the view reads of each allocation, in the allocation's coordinates.

        Raises
        ------
        TooManyPieces
            If they need more regions than can be written out.

        Examples
        --------
        >>> A = allocate((4, 6), name="A")
        >>> print(A[:, 1:5:3].origins()[A])
        .1..1.
        .1..1.
        .1..1.
        .1..1.

        References
        ----------
        poprithms, memory/alias: Tensor::regions.
        """
        return {allocation: c.regions() for allocation, c in self.cells.items()}

    def contains(self, other: View) -> bool:
        """Return whether this view reads every cell of memory that `other` reads.

        Examples
        --------
        >>> A = allocate((10,))
        >>> A[::2].contains(A[2::4]), A[2::4].contains(A[::2])
        (True, False)
        """
        if not isinstance(other, View):
            raise TypeError(_no_view("View.contains: the other", other))
        mine = self.cells
        return all(a in mine and c.issubset(mine[a]) for a, c in other.cells.items())

    def same_elements(self, other: View) -> bool:
        """Return whether both views read the same cells of memory, in whatever order and number."""
        if not isinstance(other, View):
            raise TypeError(_no_view("View.same_elements: the other", other))
        return self.contains(other) and other.contains(self)

    def has_internal_overlap(self) -> bool:
        """Return whether the view reads some cell of memory at two of its indices.

        Examples
        --------
        >>> A = allocate((10,))
        >>> A.sliding_windows(3).has_internal_overlap(), A[::-3].has_internal_overlap()
        (True, False)
        """
        box = Box.of(self.shape)
        constant = sum(piece_domain(piece, box).size for piece in self.pieces if piece.source < 0)
        return self.size - constant > sum(c.size for c in self.cells.values())

    def is_contiguous(self) -> bool:
        """Return whether the cells that the view reads are one gapless run of one allocation, in whatever order.

        Examples
        --------
        >>> A = allocate((10,))
        >>> concatenate([A[5:10], A[0:5]]).is_contiguous(), A[::2].is_contiguous()
        (True, False)
        """
        found = list(self.cells.values())
        return not found or (len(found) == 1 and found[0].is_run())

    # -- one source -----------------------------------------------------------------------------------

    def apply(self, kind: ViewKind, *others: View) -> View:
        """Return the view of a kind over this view and others.

        Examples
        --------
        >>> a, b = allocate((3,), name="a"), allocate((2,), name="b")
        >>> a.apply(Concat(0), b).shape
        (5,)
        """
        if not others:
            return View(kind.out_shape((self.shape,)), kind, (self,))
        sources = (self, *others)
        for k, source in enumerate(others, 1):
            if not isinstance(source, View):
                raise TypeError(_no_view(f"{type(kind).__name__}: source {k}", source))
        return View(kind.out_shape(tuple(s.shape for s in sources)), kind, sources)

    def __getitem__(self, key: Key | tuple[Key, ...]) -> View:
        """Return the view under integers, slices, Ellipsis and None, with NumPy's meaning."""
        plain = _plain_slices(key if isinstance(key, tuple) else (key,), self.shape)
        if plain is not None:
            return View(plain[0], Slice(plain[1]), (self,))
        view = self
        for kind in parse_index(key, self.shape):
            view = view.apply(kind)
        return view

    def reshape(self, *shape: int | Sequence[int]) -> View:
        """Return the same cells in row-major order under another shape; one extent may be -1.

        Raises
        ------
        ValueError
            If the sizes differ.

        Examples
        --------
        >>> allocate((4, 6)).reshape(-1, 3).shape
        (8, 3)
        """
        return self.apply(Reshape(_shape_of(shape, "reshape")))

    def ravel(self) -> View:
        """Return the cells in row-major order."""
        return self.reshape(self.size)

    def flatten(self) -> View:
        """Return the cells in row-major order; as `ravel`, an alias."""
        return self.reshape(self.size)

    def permute_dims(self, axes: Sequence[int]) -> View:
        """Return the view whose axis k is this one's axis axes[k]."""
        return self.apply(Permute(as_ints(axes, "permute_dims: axes")))

    def transpose(self, *axes: int | Sequence[int]) -> View:
        """Return the view with axes in the given order, by default reversed."""
        order = _shape_of(axes, "transpose") if axes else tuple(reversed(range(self.rank)))
        return self.permute_dims(order)

    @property
    def T(self) -> View:
        """The view with its axes reversed."""
        return self.transpose()

    def flip(self, axis: int | Sequence[int] | None = None) -> View:
        """Return the view with the given axes, by default all, reversed."""
        return self.apply(Flip(tuple(range(self.rank)) if axis is None else _axis_tuple(axis, "flip")))

    def squeeze(self, axis: int | Sequence[int] | None = None) -> View:
        """Return the view without the given axes, by default all, of extent 1."""
        return self.apply(Squeeze(None if axis is None else _axis_tuple(axis, "squeeze")))

    def expand_dims(self, axis: int | Sequence[int]) -> View:
        """Return the view with new axes of extent 1 at the given positions of the result."""
        return self.apply(ExpandDims(_axis_tuple(axis, "expand_dims")))

    def broadcast_to(self, shape: Sequence[int]) -> View:
        """Return the view repeated to a shape."""
        return self.apply(Broadcast(_shape_of((shape,), "broadcast_to")))

    def diagonal(self, offset: int = 0, axis1: int = 0, axis2: int = 1) -> View:
        """Return the cells with x[axis2] - x[axis1] = offset as the last axis."""
        return self.apply(Diagonal(as_int(offset, "diagonal: offset"), axis1, axis2))

    def sliding_windows(
        self,
        size: int | Sequence[int],
        step: int | Sequence[int] = 1,
        dilation: int | Sequence[int] = 1,
        axis: int | Sequence[int] | None = None,
    ) -> View:
        """Return all windows of `size` cells along the given axes, by default the leading ones.

        Examples
        --------
        >>> allocate((10, 8)).sliding_windows((3, 3), step=2).shape
        (4, 3, 3, 3)
        """
        n = len(size) if not isinstance(size, int) else len(_axis_tuple(axis, "axis")) if axis is not None else 1
        axes = tuple(range(n)) if axis is None else _axis_tuple(axis, "sliding_windows")
        each = [_per_axis(value, n, what) for what, value in (("size", size), ("step", step), ("dilation", dilation))]
        return self.apply(Window(each[0], each[1], each[2], axes))


# a frozen class sets its own slots through their descriptors: several times as fast as object.__setattr__
_slots: Any = View
_set_shape, _set_kind = _slots.shape.__set__, _slots.kind.__set__
_set_sources, _set_cache = _slots.sources.__set__, _slots._cache.__set__


@dataclass(frozen=True, slots=True, eq=False, repr=False, init=False)
class Allocation(View):
    """A variable: a view of memory of its own. Make one with `allocate`.

    Parameters
    ----------
    shape, kind, sources
        As for a view; `kind` is None and there are no sources.
    name : str
        For messages and pictures.
    itemsize : int
        Bytes of a cell.
    """

    name: str
    itemsize: int

    def __init__(
        self,
        shape: Shape,
        kind: ViewKind | None = None,
        sources: tuple[View, ...] = (),
        name: str = "",
        itemsize: int = 1,
    ) -> None:
        View.__init__(self, shape, kind, sources)
        _set_name(self, name)
        _set_itemsize(self, itemsize)

    def __repr__(self) -> str:
        return f"Allocation({self.shape}, name={self.name!r}, itemsize={self.itemsize})"


_slots = Allocation
_set_name, _set_itemsize = _slots.name.__set__, _slots.itemsize.__set__


def allocate(
    shape: int | Sequence[int], name: str | None = None, dtype: object = None, itemsize: int | None = None
) -> Allocation:
    """Return a variable: a view of memory of its own.

    Parameters
    ----------
    shape : int or sequence of int
        Extents, >= 0.
    name : str, optional
        For messages and pictures.
    dtype : NumPy dtype, optional
        Gives the bytes of a cell.
    itemsize : int, optional
        Bytes of a cell, 1 by default.

    Raises
    ------
    ValueError
        If an extent is negative, or `dtype` and `itemsize` disagree.

    Examples
    --------
    >>> A = allocate((27,), name="A", dtype="float32")
    >>> A.shape, A.itemsize
    ((27,), 4)
    """
    extents = _shape_of((shape,), "allocate")
    for axis, n in enumerate(extents):
        if n < 0:
            raise ValueError(f"allocate: extent {n} of axis {axis} in shape {extents} must be >= 0")
    bytes_ = np.dtype(dtype).itemsize if dtype is not None else None  # type: ignore[call-overload]
    if bytes_ is not None and itemsize not in (None, bytes_):
        raise ValueError(f"allocate: dtype {dtype} has {bytes_} bytes but itemsize is {itemsize}; give one of them")
    cell = bytes_ if itemsize is None else as_int(itemsize, "allocate: itemsize")
    if cell is not None and cell < 1:
        raise ValueError(f"allocate: itemsize {cell} must be >= 1 byte")
    return Allocation(extents, None, (), name or "", cell or 1)


def _strided(view: View) -> tuple[Allocation, Strided] | None:
    """The allocation and the strided form, where a view has one source after the other and keeps that form."""
    chain: list[View] = []
    done: object = False
    while view.kind is not None:
        done = view._cache.get("strided", False)
        if done is not False:
            break
        chain.append(view)
        if len(view.sources) != 1 or 0 in view.shape:
            done = None
            break
        view = view.sources[0]
    found: Any = (view, contiguous(view.shape)) if done is False else done
    for view in reversed(chain):
        if found is not None:
            step = getattr(view.kind, "strided", None)
            form = step((view.sources[0].shape,), found[1]) if step is not None else None
            found = None if form is None else (found[0], form)
        view._cache["strided"] = found
    return found  # type: ignore[no-any-return]


class _Ranked(NamedTuple):
    """What a view reads, by the row-major numbers of the last of its sources that lists its cells in ascending order.

    Parameters
    ----------
    sets : tuple of Setts
        Each is filled with the next, so that the first holds that source's cells; none if it is the allocation.
    size : int
        How many cells that source has.
    form : Strided or None
        The view over that source; None if the view's cells are the filled sets, in any order and number.
    """

    sets: tuple[Setts, ...]
    size: int
    form: Strided | None

    @property
    def cells(self) -> tuple[Setts, ...] | None:
        """The sets with the view's own as last, if it is not all cells; None if it is not one nest."""
        nest = () if self.form is None else nest_of(self.form, self.size)
        return None if nest is None else _longer(self.sets, Setts._of((nest,)))


EVERY = Setts._of(((),))
MAX_CHAIN = 64
"""Longer chains of filled sets are not held."""


def _longer(sets: tuple[Setts, ...], ink: Setts) -> tuple[Setts, ...] | None:
    if ink == EVERY:
        return sets
    return (*sets, ink) if len(sets) < MAX_CHAIN else None


def _chained(view: View) -> tuple[Setts, ...]:
    """The sets each of which is filled with the next, so that the first holds the view's cells; none if not known."""
    ranked = None if 0 in view.shape else _ranked(view)
    sets = None if ranked is None else ranked.cells
    return () if sets is None else sets or (EVERY,)


def _ranked(view: View) -> _Ranked | None:
    above: list[View] = []
    while view.kind is not None and "ranked" not in view._cache and len(view.sources) == 1 and 0 not in view.shape:
        above.append(view)
        view = view.sources[0]
    if view.kind is None:
        found: Any = None if 0 in view.shape else _Ranked((), view.size, contiguous(view.shape))
    else:
        found = view._cache.get("ranked")
    for view in reversed(above):
        if found is not None:
            found = _ranked_over(view, view.sources[0], found)
        view._cache["ranked"] = found
    return found  # type: ignore[no-any-return]


def _ranked_over(view: View, source: View, inner: _Ranked) -> _Ranked | None:
    """The ranked form of a view, made of that of its one source."""
    step = getattr(view.kind, "strided", None)
    form = step((source.shape,), inner.form) if step is not None and inner.form is not None else None
    if form is not None:
        return inner._replace(form=form)
    sets, size = inner.cells, source.size
    if sets is None:
        return None
    if inner.form is not None and _ascends(inner.form):
        form = step((source.shape,), contiguous(source.shape)) if step is not None else None
        if form is not None:
            return _Ranked(sets, size, form)
        own = _local(view, source)
        longer = None if own is None else _longer(sets, own)
        return None if longer is None else _Ranked(longer, size, None)
    # in another order the numbers are lost, but what reads all cells still reads the same
    own = _local(view, source)
    return _Ranked(sets, size, None) if own is not None and own.count(0, size) == size else None


def _local(view: View, source: View) -> Setts | None:
    """The row-major numbers of a view's one source that it reads, if they are few setts."""
    assert view.kind is not None, "only an allocation has no kind"
    return local_setts(view.kind.pieces((source.shape,)), view.shape, source.shape)


def _ascends(form: Strided) -> bool:
    """Whether a strided view lists its cells in ascending order, none twice."""
    reach = 0
    for levels in reversed(form[1]):
        for count, by in reversed(levels):
            if count > 1 and by <= reach:
                return False
            reach += (count - 1) * by
    return True


def _chain(view: View) -> list[View]:
    """As `_in_order` where each of these views has one source, the usual case; empty where one has more."""
    order = [view]
    while len(view.sources) == 1:
        (view,) = view.sources
        if view.kind is None or "composed" in view._cache:
            return order[::-1]
        order.append(view)
    return []


def _in_order(view: View) -> list[View]:
    """The views below and including `view` that are not composed yet, sources before what reads them."""
    order: list[View] = []
    seen: set[View] = set()
    stack = [(view, False)]
    while stack:
        v, ready = stack.pop()
        if ready:
            order.append(v)
        elif v.kind is not None and v not in seen and "composed" not in v._cache:
            seen.add(v)
            stack.append((v, True))
            stack += [(s, False) for s in v.sources]
    return order


def _compose(view: View) -> tuple[tuple[Allocation, ...], tuple[Piece, ...]]:
    """Allocations and pieces of a view whose sources are composed."""
    assert view.kind is not None, "only an allocation has no kind"
    if len(view.sources) == 1:
        (source,) = view.sources
        if isinstance(source, Allocation) and 0 not in view.shape:
            own = view.kind.pieces((source.shape,))
            if not any(piece.guards for piece in own):  # they read the allocation as they are
                return (source,), own
        allocations, pieces = source._composed()
        return allocations, compose_pieces(view.kind.pieces((source.shape,)), (pieces,), view.shape)
    number: dict[Allocation, int] = {}
    inner: dict[int, Sequence[Piece]] = {}
    for k, source in enumerate(view.sources):
        allocations, pieces = source._composed()
        to = {i: number.setdefault(a, len(number)) for i, a in enumerate(allocations)}
        inner[k] = pieces if all(i == j for i, j in to.items()) else [_renumbered(p, to) for p in pieces]
    outer = view.kind.pieces(tuple(s.shape for s in view.sources))
    return tuple(number), compose_pieces(outer, inner, view.shape)


def _renumbered(piece: Piece, to: Mapping[int, int]) -> Piece:
    return piece if piece.source < 0 else Piece(to[piece.source], piece.guards, piece.map)


# -------------------------------------------------------------------------------------------- reading arguments


def _no_view(what: str, x: object) -> str:
    return (
        f"{what} is a {type(x).__name__}, not a View; as_view makes an array one, and the functions overlaps, "
        "contains and same_elements take both"
    )


def _shape_of(args: Sequence[int | Sequence[int]], what: str) -> Shape:
    """A shape given as one sequence, one integer, or several integers."""
    if len(args) == 1 and (type(args[0]) is tuple or isinstance(args[0], (Sequence, np.ndarray))):
        return as_ints(args[0], what)
    return as_ints(args, what)


def _axis_tuple(axis: int | Sequence[int], what: str) -> Shape:
    return as_ints(axis, what) if isinstance(axis, (Sequence, np.ndarray)) else (as_int(axis, what),)


def _per_axis(value: int | Sequence[int], n: int, what: str) -> Shape:
    values = as_ints(value, what) if isinstance(value, (Sequence, np.ndarray)) else (as_int(value, what),) * n
    if len(values) != n:
        raise ValueError(f"sliding_windows: {what} {values} has {len(values)} values for {n} axes")
    return values


_PLAIN = (int, type(None))


def _plain_slices(keys: tuple[Key, ...], shape: Shape) -> tuple[Shape, tuple[Triple, ...]] | None:
    """The shape and the triples of a `Slice`, where a subscript is nothing else and drops nothing; a short way."""
    if len(keys) > len(shape):
        return None
    counts, triples = [], []
    for key, n in zip(keys, shape, strict=False):
        if type(key) is not slice:
            return None
        start, stop, step = triple = key.start, key.stop, key.step
        if type(start) not in _PLAIN or type(stop) not in _PLAIN or type(step) not in _PLAIN or step == 0:
            return None
        if start is None and stop is None and step is None:
            counts.append(n)
        else:
            start, stop, step = key.indices(n)
            count = -((start - stop) // step)
            counts.append(count if count > 0 else 0)
        triples.append(triple)
    while triples and triples[-1] == (None, None, None):
        triples.pop()
    if not triples:
        return None
    return (*counts, *shape[len(counts) :]), tuple(triples)


def parse_index(key: Key | tuple[Key, ...], shape: Shape) -> list[ViewKind]:
    """Return the view kinds that a NumPy subscript stands for, to be applied one after another.

    Raises
    ------
    IndexError
        If `key` names more axes than `shape` has.

    Examples
    --------
    >>> parse_index((slice(1, None), 0), (4, 5))
    [Slice(slices=((1, None, None),)), Index(at=((1, 0),))]
    """
    keys = _without_ellipsis(key if isinstance(key, tuple) else (key,), shape)
    slices: list[tuple[int | None, int | None, int | None]] = []
    at: list[tuple[int, int]] = []
    new: list[int] = []
    out_axis = 0
    for key in keys:
        if key is None:
            new.append(out_axis)
            out_axis += 1
        elif isinstance(key, slice):
            slices.append(_slice_triple(key, len(slices)))
            out_axis += 1
        else:
            at.append((len(slices), _position(key, len(slices))))
            slices.append((None, None, None))
    while slices and slices[-1] == (None, None, None):
        slices.pop()
    kinds: list[ViewKind] = []
    if slices:
        kinds.append(Slice(tuple(slices)))
    if at:
        kinds.append(Index(tuple(at)))
    if new:
        kinds.append(ExpandDims(tuple(new)))
    return kinds


def _without_ellipsis(keys: tuple[Key, ...], shape: Shape) -> tuple[Key, ...]:
    used = sum(key is not None and key is not Ellipsis for key in keys)
    dots = [k for k, key in enumerate(keys) if key is Ellipsis]
    if len(dots) > 1:
        raise IndexError("an index can only have a single ellipsis ('...')")
    if used > len(shape):
        raise IndexError(f"too many indices: shape {shape} has {len(shape)} axes, but {used} were indexed")
    if not dots:
        return keys
    full = (slice(None),) * (len(shape) - used)
    return keys[: dots[0]] + full + keys[dots[0] + 1 :]


def _position(key: object, axis: int) -> int:
    if isinstance(key, (list, np.ndarray)) and np.shape(key):
        raise TypeError(
            f"index of axis {axis} is a {type(key).__name__} of shape {np.shape(key)}; a view takes integers, slices, "
            "Ellipsis and None, no arrays or masks"
        )
    return as_int(key, f"index of axis {axis}")


def _slice_triple(key: slice, axis: int) -> tuple[int | None, int | None, int | None]:
    start, stop, step = (
        None if v is None else as_int(v, f"slice of axis {axis}") for v in (key.start, key.stop, key.step)
    )
    if step == 0:
        raise ValueError(f"slice step cannot be zero (axis {axis})")
    return start, stop, step


# ------------------------------------------------------------------------------------------------- free functions


def concatenate(views: Sequence[View], axis: int = 0) -> View:
    """Return the views one after the other along an axis."""
    return _many(Concat(axis), views, "concatenate")


def stack(views: Sequence[View], axis: int = 0) -> View:
    """Return views of one shape along a new axis."""
    return _many(Stack(axis), views, "stack")


def interleave(views: Sequence[View], axis: int = 0) -> View:
    """Return the views' cells in turn along an axis.

    Examples
    --------
    >>> a = allocate((7,), name="a")
    >>> [p.map.apply((3,)) for p in interleave([a[0::2], a[1::2]]).pieces][1]
    (3,)
    """
    return _many(Interleave(axis), views, "interleave")


def pad(
    view: View,
    widths: int | Sequence[int] | Sequence[Sequence[int]],
    mode: PadMode = "constant",
    value: float = 0,
) -> View:
    """Return the view with cells around it.

    Parameters
    ----------
    view : View
    widths : int, (before, after), or one (before, after) for each axis
    mode : str
        "constant", "edge", "reflect", "symmetric" or "wrap".
    value : float
        For mode "constant".
    """
    try:
        pairs = np.broadcast_to(np.asarray(widths), (view.rank, 2)).tolist()
    except ValueError:
        raise ValueError(f"pad: widths {widths!r} must be an integer, a pair, or {view.rank} pairs") from None
    whole = tuple((as_int(a, "pad: width"), as_int(b, "pad: width")) for a, b in pairs)
    return view.apply(Pad(whole, mode, value))


def repeat(view: View, count: int, axis: int | None = None) -> View:
    """Return each cell `count` times in a row along an axis; without an axis, of the flattened view."""
    flat = view.ravel() if axis is None else view
    return flat.apply(Repeat(as_int(count, "repeat: count"), 0 if axis is None else axis))


def tile(view: View, reps: int | Sequence[int]) -> View:
    """Return the whole view repeated `reps[k]` times along axis k."""
    return view.apply(Tile(_axis_tuple(reps, "tile: reps")))


def roll(view: View, shift: int | Sequence[int], axis: int | Sequence[int] | None = None) -> View:
    """Return the view's cells moved by `shift` along an axis, around its end; without an axis, flattened."""
    if axis is None:
        total = sum(_axis_tuple(shift, "roll: shift"))
        return view.ravel().apply(Roll(total, 0)).reshape(view.shape)
    axes, shifts = _axis_tuple(axis, "roll: axis"), _axis_tuple(shift, "roll: shift")
    n = max(len(axes), len(shifts))
    axes, shifts = axes * (n // len(axes)), shifts * (n // len(shifts))
    if len(axes) != len(shifts):
        raise ValueError(f"roll: {len(shifts)} shifts {shifts} for {len(axes)} axes {axes}")
    for a, k in zip(axes, shifts, strict=True):
        view = view.apply(Roll(k, a))
    return view


def _many(kind: ViewKind, views: Sequence[View], what: str) -> View:
    if not views:
        raise ValueError(f"{what}: needs at least one view")
    if not isinstance(views[0], View):
        raise TypeError(_no_view(f"{what}: source 0", views[0]))
    return views[0].apply(kind, *views[1:])
