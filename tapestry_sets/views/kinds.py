"""View kinds: NumPy's ways of slicing, reshaping and assembling tensors, each one an alias of its sources.

A kind is one small frozen class with two methods, `out_shape` and `pieces`; nothing else in the package names a
kind's nature, so that a new one is written in one place.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, is_dataclass
from itertools import product
from math import prod
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np

from tapestry_sets.digits import Levels, Strided, at_index, cut_axis, flip_axis, renumber
from tapestry_sets.limits import as_int
from tapestry_sets.regions import AffineMap, Region, as_ints
from tapestry_sets.views import numbering as digits
from tapestry_sets.views.partition import check_regions, check_view
from tapestry_sets.views.pieces import Guard, IndexMap, Piece, Relinearize, Step, identity_piece

Shape = tuple[int, ...]
Shapes = tuple[Shape, ...]
PadMode = Literal["constant", "edge", "reflect", "symmetric", "wrap"]
Triple = tuple[int | None, int | None, int | None]


@runtime_checkable
class ViewKind(Protocol):
    """A way to make a view of one or more sources. Any class with these two methods is one.

    A kind of one source may also have ``strided(shapes, source)``, which takes the source's strided form to its own
    or returns None (see `tapestry_sets.digits`): a short way to the same answers. From the strided form of a source
    that lies in memory row by row it also says which of the source's cells the view reads, by their row-major
    numbers, so that chains which need too many setts are still answered (see `tapestry_sets.alias`).
    """

    def out_shape(self, shapes: Shapes) -> Shape:
        """Return the view's shape from its sources' shapes, or raise a ValueError that says what is wrong."""

    def pieces(self, shapes: Shapes) -> tuple[Piece, ...]:
        """Return the pieces of the view; their domains must partition it."""


# ------------------------------------------------------------------------------- what several kinds have in common


def axis_of(axis: int, rank: int, what: str) -> int:
    """Return an axis counted from the first; negative ones count from the end."""
    a = as_int(axis, f"{what}: axis")
    if not -rank <= a < rank:
        mend = f"give one in [{-rank}, {rank})" if rank else "rank 0 has no axes"
        raise np.exceptions.AxisError(f"{what}: axis {a} is out of range for a shape of rank {rank}; {mend}")
    return a % rank


def axes_of(axes: Iterable[int], rank: int, what: str) -> Shape:
    """Return axes counted from the first, of which none may come twice."""
    if type(axes) is tuple and all(type(a) is int and 0 <= a < rank for a in axes) and len(set(axes)) == len(axes):
        return axes  # the usual case, sooner
    found = tuple(axis_of(a, rank, what) for a in axes)
    if len(set(found)) < len(found):
        raise ValueError(f"{what}: axes {found} name an axis twice; name each once")
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
        axes = axes_of((a for a, _ in self.at), len(shape), "index")
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
        offset, axes = source
        gone = set()
        for axis, i in self.at:  # which `out_shape` has checked
            gone.add(axis % len(axes))
            offset += at_index(axes[axis], i % shapes[0][axis])
        return offset, tuple([levels for axis, levels in enumerate(axes) if axis not in gone])


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
        new = axes_of(self.axes, rank, "expand_dims")
        old = iter(shape)
        return tuple(1 if axis in new else next(old) for axis in range(rank))

    def pieces(self, shapes: Shapes) -> tuple[Piece, ...]:
        rank = len(shapes[0]) + len(self.axes)
        new = axes_of(self.axes, rank, "expand_dims")
        kept: list[tuple[int, int] | None] = [(a, 1) for a in range(rank) if a not in new]
        return (_one([AffineMap.select(rank, kept)], rank),)

    def strided(self, shapes: Shapes, source: Strided) -> Strided:
        rank = len(shapes[0]) + len(self.axes)
        new = axes_of(self.axes, rank, "expand_dims")
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
        gone = axes_of(self.axes, len(shape), "squeeze")
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
class PermuteDims:
    """Axis k of the view is axis axes[k] of the source.

    References
    ----------
    NumPy transpose, Array API permute_dims; ONNX Transpose; poprithms dimShuffle.
    """

    axes: tuple[int, ...]

    def _order(self, shape: Shape) -> Shape:
        axes = axes_of(self.axes, len(shape), "permute_dims")
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
        return source[0], tuple([source[1][a] for a in self.axes])  # `out_shape` has checked them


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
        axes_of(self.axes, len(shape), "flip")
        return shape

    def pieces(self, shapes: Shapes) -> tuple[Piece, ...]:
        shape = shapes[0]
        axes = axes_of(self.axes, len(shape), "flip")
        terms = [(a, -1 if a in axes else 1) for a in range(len(shape))]
        offset = [n - 1 if a in axes else 0 for a, n in enumerate(shape)]
        return (_one([AffineMap.select(len(shape), terms, offset)], len(shape)),)

    def strided(self, shapes: Shapes, source: Strided) -> Strided:
        offset, out = source[0], list(source[1])
        for axis in self.axes:  # which `out_shape` has checked
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
        a, b = axes_of((self.axis1, self.axis2), len(shape), "diagonal")
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
class SlidingWindow:
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
        axes = axes_of(self.axes, len(shape), "sliding_windows")
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
class AsStrided:
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
    offset: int = 0

    def out_shape(self, shapes: Shapes) -> Shape:
        source = _only(shapes, "as_strided")
        if len(self.shape) != len(self.strides):
            raise ValueError(f"as_strided: strides {self.strides} for shape {self.shape}; give one for each axis")
        if min(self.shape, default=0) < 0:
            raise ValueError(f"as_strided: extents of shape {self.shape} must be >= 0")
        reaches = [(n - 1) * by for n, by in zip(self.shape, self.strides, strict=True)]
        low, high = self.offset + sum([r for r in reaches if r < 0]), self.offset + sum([r for r in reaches if r > 0])
        if 0 not in self.shape and not 0 <= low <= high < prod(source):
            raise ValueError(
                f"as_strided: shape {self.shape} with strides {self.strides} from {self.offset} reads cells {low} to "
                f"{high} of a source of shape {source}, which has {prod(source)}"
            )
        return self.shape

    def pieces(self, shapes: Shapes) -> tuple[Piece, ...]:
        flat = AffineMap((self.strides,), (self.offset,), len(self.shape))
        return (_one([flat, Relinearize((prod(shapes[0]),), shapes[0])], len(self.shape)),)

    def strided(self, shapes: Shapes, source: Strided) -> Strided | None:
        axes = renumber(source[1], (prod(shapes[0]),))
        if axes is None or len(axes[0]) > 1:
            return None
        by = axes[0][0][1]
        own = [((n, step * by),) for n, step in zip(self.shape, self.strides, strict=True)]
        return source[0] + self.offset * by, tuple(own)


@dataclass(frozen=True, slots=True)
class Pad:
    """Cells around the source: constants, or cells of the source itself.

    Parameters
    ----------
    widths : tuple of (before, after)
        One pair for each axis, >= 0.
    mode : str
        "constant", "edge", "reflect", "symmetric" or "wrap".
    value : float, or tuple of (before, after)
        For mode "constant": one value, or a pair for each axis. A corner has the value of its last axis.

    References
    ----------
    NumPy pad; ONNX Pad.
    """

    widths: tuple[tuple[int, int], ...]
    mode: PadMode = "constant"
    value: float | tuple[tuple[float, float], ...] = 0

    def out_shape(self, shapes: Shapes) -> Shape:
        shape = _only(shapes, "pad")
        if self.mode not in ("constant", "edge", "reflect", "symmetric", "wrap"):
            raise ValueError(
                f"pad: mode {self.mode!r} must be constant, edge, reflect, symmetric or wrap; others make new values"
            )
        if len(self.widths) != len(shape):
            raise ValueError(f"pad: {len(self.widths)} widths for shape {shape}; give (before, after) for each axis")
        if isinstance(self.value, tuple) and len(self.value) != len(shape):
            raise ValueError(f"pad: {len(self.value)} pairs of values for shape {shape}; give one for each axis")
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
        """The source, then for each axis the cells before and after it that no later axis takes."""
        low = [before for before, _ in self.widths]
        high = [before + n for n, (before, _) in zip(shape, self.widths, strict=True)]
        m = AffineMap.select(len(shape), [(a, 1) for a in range(len(shape))], [-b for b in low])
        pieces = [_one([m], len(shape), guards=(Guard(0, Region.from_bounds(out, low, high)),))]
        nowhere = IndexMap((AffineMap((), (), len(shape)),))
        values = self.value if isinstance(self.value, tuple) else ((self.value, self.value),) * len(shape)
        for axis, n in enumerate(out):
            for start, stop, value in ((0, low[axis], values[axis][0]), (high[axis], n, values[axis][1])):
                a = [*(0,) * axis, start, *low[axis + 1 :]]
                b = [*out[:axis], stop, *high[axis + 1 :]]
                if all(x < y for x, y in zip(a, b, strict=True)):
                    pieces.append(Piece(-1, (Guard(0, Region.from_bounds(out, a, b)),), nowhere, value))
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
        axis = axis_of(self.axis, len(shape), "repeat")
        if self.count < 0:
            raise ValueError(f"repeat: count {self.count} must be >= 0")
        return _put(shape, axis, shape[axis] * self.count)

    def pieces(self, shapes: Shapes) -> tuple[Piece, ...]:
        shape, out = shapes[0], self.out_shape(shapes)
        axis = axis_of(self.axis, len(shape), "repeat")
        split = Relinearize(out, _put(shape, axis, shape[axis], self.count))
        return (_one([split, _drop(len(shape) + 1, axis + 1)], len(shape)),)

    def strided(self, shapes: Shapes, source: Strided) -> Strided:
        axes, axis = list(source[1]), axis_of(self.axis, len(shapes[0]), "repeat")
        if self.count > 1:
            axes[axis] = (*axes[axis], (self.count, 0)) if shapes[0][axis] > 1 else ((self.count, 0),)
        return source[0], tuple(axes)


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

    def strided(self, shapes: Shapes, source: Strided) -> Strided:
        shape, reps = self._plan(shapes[0])
        old: tuple[Levels, ...] = (((1, 0),),) * (len(shape) - len(shapes[0])) + source[1]
        axes = [((r, 0), *levels) if r > 1 else levels for levels, r in zip(old, reps, strict=True)]
        return source[0], tuple([a[:1] if n == 1 else a for a, n in zip(axes, shape, strict=True)])


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
        axis_of(self.axis, len(shape), "roll")
        return shape

    def pieces(self, shapes: Shapes) -> tuple[Piece, ...]:
        shape = shapes[0]
        axis = axis_of(self.axis, len(shape), "roll")
        n = shape[axis]
        k = self.shift % n if n else 0
        if not k:
            return (identity_piece(len(shape)),)
        head = _one([_move(len(shape), axis, n - k)], len(shape), guards=(_band(shape, axis, 0, k),))
        tail = _one([_move(len(shape), axis, -k)], len(shape), guards=(_band(shape, axis, k, n),))
        return head, tail


@dataclass(frozen=True, slots=True)
class Sample:
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
        _region_from_zero(self.region, "sample: region")

    def out_shape(self, shapes: Shapes) -> Shape:
        shape = _only(shapes, "sample")
        if self.region.shape != shape:
            raise ValueError(
                f"sample: the region is in a box of shape {self.region.shape}, not of the source's shape {shape}; "
                f"write Region({shape}, …)"
            )
        return self.region.counts

    def _readings(self) -> list[digits.Reading]:
        return [digits.reading_of_elements(s, n) for s, n in zip(self.region.nests, self.region.shape, strict=True)]

    def pieces(self, shapes: Shapes) -> tuple[Piece, ...]:
        if self.region.is_empty:
            return ()
        return (digits.piece_of(self.region.counts, self._readings()),)

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


@dataclass(frozen=True, slots=True)
class Take:
    """The source's places at a list of indices along an axis, in the list's order; negative ones count from the end.

    Lists that go on in equal steps, or as they began, are few pieces; others are one for each run of equal steps.

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
        axis = axis_of(self.axis, len(shape), "take")
        n = shape[axis]
        if self.indices and not -n <= min(self.indices) <= max(self.indices) < n:
            k, i = next((k, i) for k, i in enumerate(self.indices) if not -n <= i < n)
            raise IndexError(
                f"take: index {i}, number {k}, is out of bounds for axis {axis} with size {n} of shape {shape}; "
                + (f"give one in [{-n}, {n})" if n else "the axis is empty")
            )
        return axis, [i + n if i < 0 else i for i in self.indices]

    def out_shape(self, shapes: Shapes) -> Shape:
        shape = _only(shapes, "take")
        axis, indices = self._plan(shape)
        return _put(shape, axis, len(indices))

    def pieces(self, shapes: Shapes) -> tuple[Piece, ...]:
        shape = shapes[0]
        axis, indices = self._plan(shape)
        out = _put(shape, axis, len(indices))
        others = [digits.whole(n) for n in out]
        found = digits.readings_of_indices(indices)
        return tuple(digits.piece_of(out, [*others[:axis], one, *others[axis + 1 :]]) for one in found)

    def strided(self, shapes: Shapes, source: Strided) -> Strided | None:
        axis, indices = self._plan(shapes[0])
        found = digits.readings_of_indices(indices)
        read = _read_axis(source[1][axis], found[0], len(indices)) if len(found) == 1 else None
        if read is None:
            return None
        return source[0] + read[0], (*source[1][:axis], read[1], *source[1][axis + 1 :])


def _region_from_zero(region: object, what: str) -> None:
    if not isinstance(region, Region):
        raise TypeError(f"{what} must be a Region, not {type(region).__name__}; Region(shape, setts) makes one")
    if any(region.start):
        raise ValueError(
            f"{what} must be in a box that starts at zero, not at {region.start}; "
            f"shift it by {tuple(-s for s in region.start)}"
        )


def _read_axis(levels: Levels, reading: digits.Reading, count: int) -> tuple[int, Levels] | None:
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
        axis = axis_of(self.axis, len(shapes[0]), "concatenate")
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
        return axis_of(self.axis, len(shapes[0]) + 1, "stack")

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
        axis = axis_of(self.axis, len(shapes[0]), "interleave")
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


@dataclass(frozen=True, slots=True)
class Fill:
    """Sources assembled by regions: source k's cells take the places of regions[k], in ascending order on each axis.

    Parameters
    ----------
    regions : tuple of Region
        A partition of one box, which starts at zero and is the view's. Source k has the shape `regions[k].counts`;
        where the region has no points, any shape of that rank without cells.

    Raises
    ------
    ValueError
        If the regions are not in one box, two of them share a point, or a point is in none.

    Examples
    --------
    >>> from tapestry_sets import Stripe
    >>> evens = Region((7,), [Stripe(1, 1)])
    >>> Fill((evens, Region((7,), [Stripe(1, 1, phase=1)]))).out_shape(((4,), (3,)))
    (7,)

    References
    ----------
    poprithms, memory/alias: settfill; Tapestry, "Tensor View Selections": interleave.
    """

    regions: tuple[Region, ...]

    def __post_init__(self) -> None:
        regions = tuple(self.regions)
        if not regions:
            raise ValueError("fill_into: needs at least one region")
        for k, region in enumerate(regions):
            _region_from_zero(region, f"fill_into: region {k}")
            if region.shape != regions[0].shape:
                raise ValueError(
                    f"fill_into: region {k} is in a box of shape {region.shape}, region 0 in one of "
                    f"{regions[0].shape}; they must be in one box"
                )
        check_regions(regions, "fill_into")
        object.__setattr__(self, "regions", regions)

    def out_shape(self, shapes: Shapes) -> Shape:
        if len(shapes) != len(self.regions):
            raise ValueError(f"fill_into: {len(shapes)} sources for {len(self.regions)} regions; give one for each")
        for k, (shape, region) in enumerate(zip(shapes, self.regions, strict=True)):
            if shape != region.counts and not (region.is_empty and len(shape) == region.rank and 0 in shape):
                raise ValueError(
                    f"fill_into: source {k} has shape {shape}; region {k} has places for the shape {region.counts}"
                )
        return self.regions[0].shape

    def pieces(self, shapes: Shapes) -> tuple[Piece, ...]:
        shape = self.regions[0].shape
        made = []
        for source, region in enumerate(self.regions):
            if not region.is_empty:
                readings = [digits.reading_of_ranks(s, n) for s, n in zip(region.nests, shape, strict=True)]
                made.append(digits.piece_of(shape, readings, source))
        return tuple(made)

    def strided(self, shapes: Shapes, source: Strided) -> Strided:
        return source  # one region that is the whole box


@dataclass(frozen=True, slots=True)
class Assembled:
    """A view that is no named kind, given by its shape and pieces.

    Parameters
    ----------
    shape : tuple of int
        Of the view.
    parts : tuple of Piece
        Their domains partition the view, and each reads inside its source.
    sources : tuple of tuple of int
        The sources' shapes.

    Raises
    ------
    ValueError
        If a cell is read by two pieces or none, or reads outside its source; decided exactly, without listing cells.

    Examples
    --------
    >>> shift = Piece(0, (), IndexMap((AffineMap(((1,),), (2,)),)))
    >>> Assembled((4,), (shift,), ((6,),)).out_shape(((6,),))
    (4,)
    """

    shape: tuple[int, ...]
    parts: tuple[Piece, ...]
    sources: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        shape = as_ints(self.shape, "assembled: shape")
        sources = tuple(as_ints(source, f"assembled: sources[{k}]") for k, source in enumerate(self.sources))
        for what, one in (("shape", shape), *((f"sources[{k}]", source) for k, source in enumerate(sources))):
            if min(one, default=0) < 0:
                raise ValueError(f"assembled: {what} {one} has a negative extent; extents are >= 0")
        parts = tuple(self.parts)
        for k, part in enumerate(parts):
            if not isinstance(part, Piece):
                raise TypeError(f"assembled: parts[{k}] must be a Piece, not {type(part).__name__}")
        check_view(parts, shape, sources, "assembled")
        object.__setattr__(self, "shape", shape)
        object.__setattr__(self, "parts", parts)
        object.__setattr__(self, "sources", sources)

    def out_shape(self, shapes: Shapes) -> Shape:
        if shapes != self.sources:
            raise ValueError(f"assembled: its sources have the shapes {self.sources}, not {shapes}")
        return self.shape

    def pieces(self, shapes: Shapes) -> tuple[Piece, ...]:
        return self.parts


KINDS: dict[str, type[Any]] = {
    name: value
    for name, value in globals().items()
    if isinstance(value, type) and is_dataclass(value) and hasattr(value, "out_shape") and hasattr(value, "pieces")
}
"""The kinds of this library, by name."""
