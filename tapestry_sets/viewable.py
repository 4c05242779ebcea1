"""NumPy's words for views, written once for everything that a view kind can be applied to.

`Viewable` turns each word into view kinds; a class that has a shape and says how a kind is applied to it (a view of
memory, a tensor of an alias graph, a tensor of a program) has them all. The functions are for several of them.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from math import prod
from types import EllipsisType
from typing import Self, TypeVar

import numpy as np

from tapestry_sets.affine import as_ints
from tapestry_sets.kinds import (
    Broadcast,
    Concat,
    Diagonal,
    ExpandDims,
    Flip,
    Index,
    Interleave,
    Pad,
    PadMode,
    Permute,
    Repeat,
    Reshape,
    Roll,
    Shape,
    Slice,
    Squeeze,
    Stack,
    Tile,
    Triple,
    ViewKind,
    Window,
)
from tapestry_sets.stripe import as_int

Key = int | slice | EllipsisType | None
V = TypeVar("V", bound="Viewable")


class Viewable:
    """Something of a shape that view kinds can be applied to: NumPy's words in terms of `apply`."""

    __slots__ = ()

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Extents."""

    @abstractmethod
    def apply(self, kind: ViewKind, *others: Self) -> Self:
        """Return what a view kind makes of this and others."""

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

    def __getitem__(self, key: Key | tuple[Key, ...]) -> Self:
        """Return the view under integers, slices, Ellipsis and None, with NumPy's meaning."""
        view = self
        for kind in parse_index(key, self.shape):
            view = view.apply(kind)
        return view

    def reshape(self, *shape: int | Sequence[int]) -> Self:
        """Return the same cells in row-major order under another shape; one extent may be -1.

        Raises
        ------
        ValueError
            If the sizes differ.

        Examples
        --------
        >>> from tapestry_sets.views import allocate
        >>> allocate((4, 6)).reshape(-1, 3).shape
        (8, 3)
        """
        return self.apply(Reshape(extents_of(shape, "reshape")))

    def ravel(self) -> Self:
        """Return the cells in row-major order."""
        return self.reshape(self.size)

    def flatten(self) -> Self:
        """Return the cells in row-major order; as `ravel`, an alias."""
        return self.reshape(self.size)

    def permute_dims(self, axes: Sequence[int]) -> Self:
        """Return the view whose axis k is this one's axis axes[k]."""
        return self.apply(Permute(as_ints(axes, "permute_dims: axes")))

    def transpose(self, *axes: int | Sequence[int]) -> Self:
        """Return the view with axes in the given order, by default reversed."""
        order = extents_of(axes, "transpose") if axes else tuple(reversed(range(self.rank)))
        return self.permute_dims(order)

    @property
    def T(self) -> Self:
        """The view with its axes reversed."""
        return self.transpose()

    def flip(self, axis: int | Sequence[int] | None = None) -> Self:
        """Return the view with the given axes, by default all, reversed."""
        return self.apply(Flip(tuple(range(self.rank)) if axis is None else _axis_tuple(axis, "flip")))

    def squeeze(self, axis: int | Sequence[int] | None = None) -> Self:
        """Return the view without the given axes, by default all, of extent 1."""
        return self.apply(Squeeze(None if axis is None else _axis_tuple(axis, "squeeze")))

    def expand_dims(self, axis: int | Sequence[int]) -> Self:
        """Return the view with new axes of extent 1 at the given positions of the result."""
        return self.apply(ExpandDims(_axis_tuple(axis, "expand_dims")))

    def broadcast_to(self, shape: Sequence[int]) -> Self:
        """Return the view repeated to a shape."""
        return self.apply(Broadcast(extents_of((shape,), "broadcast_to")))

    def diagonal(self, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Self:
        """Return the cells with x[axis2] - x[axis1] = offset as the last axis."""
        return self.apply(Diagonal(as_int(offset, "diagonal: offset"), axis1, axis2))

    def sliding_windows(
        self,
        size: int | Sequence[int],
        step: int | Sequence[int] = 1,
        dilation: int | Sequence[int] = 1,
        axis: int | Sequence[int] | None = None,
    ) -> Self:
        """Return all windows of `size` cells along the given axes, by default the leading ones.

        Examples
        --------
        >>> from tapestry_sets.views import allocate
        >>> allocate((10, 8)).sliding_windows((3, 3), step=2).shape
        (4, 3, 3, 3)
        """
        n = len(size) if not isinstance(size, int) else len(_axis_tuple(axis, "axis")) if axis is not None else 1
        axes = tuple(range(n)) if axis is None else _axis_tuple(axis, "sliding_windows")
        each = [_per_axis(value, n, what) for what, value in (("size", size), ("step", step), ("dilation", dilation))]
        return self.apply(Window(each[0], each[1], each[2], axes))


# -------------------------------------------------------------------------------------------- reading arguments


def extents_of(args: Sequence[int | Sequence[int]], what: str) -> Shape:
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


def plain_slices(keys: tuple[Key, ...], shape: Shape) -> tuple[Shape, tuple[Triple, ...]] | None:
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


def concatenate(views: Sequence[V], axis: int = 0) -> V:
    """Return the views one after the other along an axis."""
    return _many(Concat(axis), views, "concatenate")


def stack(views: Sequence[V], axis: int = 0) -> V:
    """Return views of one shape along a new axis."""
    return _many(Stack(axis), views, "stack")


def interleave(views: Sequence[V], axis: int = 0) -> V:
    """Return the views' cells in turn along an axis.

    Examples
    --------
    >>> from tapestry_sets.views import allocate
    >>> a = allocate((7,), name="a")
    >>> [p.map.apply((3,)) for p in interleave([a[0::2], a[1::2]]).pieces][1]
    (3,)
    """
    return _many(Interleave(axis), views, "interleave")


def pad(
    view: V,
    widths: int | Sequence[int] | Sequence[Sequence[int]],
    mode: PadMode = "constant",
    value: float = 0,
) -> V:
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


def repeat(view: V, count: int, axis: int | None = None) -> V:
    """Return each cell `count` times in a row along an axis; without an axis, of the flattened view."""
    flat = view.ravel() if axis is None else view
    return flat.apply(Repeat(as_int(count, "repeat: count"), 0 if axis is None else axis))


def tile(view: V, reps: int | Sequence[int]) -> V:
    """Return the whole view repeated `reps[k]` times along axis k."""
    return view.apply(Tile(_axis_tuple(reps, "tile: reps")))


def roll(view: V, shift: int | Sequence[int], axis: int | Sequence[int] | None = None) -> V:
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


def _many(kind: ViewKind, views: Sequence[V], what: str) -> V:
    if not views:
        raise ValueError(f"{what}: needs at least one view")
    if not isinstance(views[0], Viewable):
        raise TypeError(f"{what}: source 0 is a {type(views[0]).__name__}, not a View; as_view makes an array one")
    return views[0].apply(kind, *views[1:])
