"""Subscripts: ``x[...]`` as view kinds, with NumPy's meaning."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from types import EllipsisType
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tapestry_sets.limits import as_int, quote, refuse_masked
from tapestry_sets.views.kinds.choosing import Cut, Index, Slice, Take
from tapestry_sets.views.kinds.kind import Triple, ViewKind
from tapestry_sets.views.kinds.shaping import ExpandDims, PermuteDims, Reshape
from tapestry_sets.views.pieces.maps import Shape

Key = int | slice | EllipsisType | None | Sequence[Any] | np.ndarray[Any, Any]
"""What one axis, or several, may be indexed by."""

_ALL: Triple = (None, None, None)


def plain_slices(keys: tuple[Key, ...], shape: Shape) -> tuple[Shape, tuple[Triple, ...], list[Cut]] | None:
    """The shape, triples and cuts of a `Slice`, where a subscript is nothing else and drops nothing; a short way."""
    if len(keys) > len(shape):
        return None
    counts, triples, cuts = list(shape), [], []
    last = 0
    for axis, key in enumerate(keys):
        if type(key) is not slice:
            return None
        triple = start, stop, step = key.start, key.stop, key.step
        if not (
            (start is None or type(start) is int)
            and (stop is None or type(stop) is int)
            and (step is None or (type(step) is int and step))
        ):
            return None
        triples.append(triple)
        if start is None and stop is None and step is None:
            continue
        start, stop, step = key.indices(counts[axis])
        count = -((start - stop) // step)
        counts[axis] = count = count if count > 0 else 0
        cuts.append((axis, start, count, step))
        last = axis + 1
    if not last:
        return None
    del triples[last:]
    return tuple(counts), tuple(triples), cuts


def parse_index(key: Key | tuple[Key, ...], shape: Shape) -> list[ViewKind]:
    """Return the view kinds that a NumPy subscript stands for, to be applied one after another.

    Raises
    ------
    IndexError
        If `key` names more axes than `shape` has, or an array or mask does not fit.
    TypeError
        If there are two arrays.

    Examples
    --------
    >>> parse_index((slice(1, None), 0), (4, 5))
    [Slice(slices=((1, None, None),)), Index(at=((1, 0),))]
    >>> parse_index((slice(None), [2, 0]), (4, 5))
    [Take(indices=(2, 0), axis=1)]
    """
    keys = _for_each_axis(key if isinstance(key, tuple) else (key,), shape)
    slices: list[Triple] = []
    at: list[tuple[int, int]] = []
    new: list[int] = []
    found: _Gathered | None = None
    for one in keys:
        if one is None:
            new.append(len(slices) - len(at) + len(new))
        elif type(one) is slice:
            slices.append(_slice_triple(one, len(slices)))
        elif type(one) is _Gathered:
            found = replace(one, axis=len(slices) - len(at))
            slices += [_ALL] * one.used
        elif one is not Ellipsis:
            at.append((len(slices), _position(one, len(slices))))
            slices.append(_ALL)
    while slices and slices[-1] == _ALL:
        slices.pop()
    kinds: list[ViewKind] = [Slice(tuple(slices))] if slices else []
    if at:
        kinds.append(Index(tuple(at)))
    if found is not None:
        for kind in kinds:
            shape = kind.out_shape((shape,))
        return kinds + _gather_kinds(found, shape) + _order_kinds(keys)
    return [*kinds, ExpandDims(tuple(new))] if new else kinds


class _Gathered(Struct, frozen=True):
    """One array in a subscript: its integers, their shape, and the axis where it stands, of those that integers leave.

    A mask numbers the cells of all its axes together, in row-major order; `mask` is then its shape.
    """

    axis: int
    indices: tuple[int, ...]
    shape: Shape
    mask: Shape | None

    @property
    def used(self) -> int:
        return 1 if self.mask is None else len(self.mask)


def _gathered(key: object, what: str) -> _Gathered:
    array = _as_array(key, what)
    if array.dtype == bool:
        indices = tuple(np.flatnonzero(array).tolist())
        return _Gathered(0, indices, (len(indices),), array.shape)
    return _Gathered(0, tuple(array.ravel().tolist()), array.shape, None)


def _as_array(key: object, what: str) -> np.ndarray[Any, Any]:
    """The array of integers or booleans that a list or array in a subscript is."""
    refuse_masked(key, what)
    try:
        array = np.asarray(key)
    except ValueError:
        raise ValueError(
            f"{what} is {quote(key)}, whose parts differ in length; an array of indices has one shape"
        ) from None
    if not array.size and not isinstance(key, np.ndarray):
        return np.zeros(array.shape, np.int64)
    if array.dtype.kind in "iub":
        return array
    if array.dtype.kind == "f" and not isinstance(key, np.ndarray):  # so NumPy reads integers of which int64 holds some
        whole = np.asarray(key, object)
        array = whole if all(type(i) is int for i in whole.flat) else array
    if array.dtype == object and all(type(i) is int for i in array.flat):  # beyond 64 bits
        return array
    raise IndexError(f"{what} is an array of {array.dtype}; indices are integers, or booleans of the axis's extent")


def _gather_kinds(found: _Gathered, shape: Shape) -> list[ViewKind]:
    """The kinds that take cells at an array of indices or a mask along an axis of a view."""
    axis = found.axis
    if found.mask is None:
        return _take_kinds(found, axis, shape)
    there = shape[axis : axis + len(found.mask)]
    if there != found.mask:
        raise IndexError(
            f"a boolean index of shape {quote(found.mask)} stands at axis {axis} of shape {quote(shape)}, whose "
            f"extents are {there}; they must agree"
        )
    merged = (*shape[:axis], prod(there), *shape[axis + len(there) :])
    take = Take(found.indices, axis)
    return [take] if len(there) == 1 else [Reshape(merged), take]


def _take_kinds(found: _Gathered, axis: int, shape: Shape) -> list[ViewKind]:
    take = Take(found.indices, axis)
    if len(found.shape) == 1:
        return [take]
    return [take, Reshape((*shape[:axis], *found.shape, *shape[axis + 1 :]))]


def take_kinds(indices: object, axis: int, shape: Shape) -> list[ViewKind]:
    """Return the kinds that take an array of places along an axis of a shape, which becomes the array's axes.

    Raises
    ------
    TypeError
        If the array is not of integers.

    Examples
    --------
    >>> take_kinds([[0, 1], [2, 1]], 1, (4, 5))
    [Take(indices=(0, 1, 2, 1), axis=1), Reshape(shape=(4, 2, 2))]
    """
    try:
        found = _gathered(indices, "take: indices")
    except IndexError as error:
        raise TypeError(str(error)) from None
    if found.mask is not None:
        raise TypeError("take: indices is an array of booleans; x[mask] takes the cells where a mask is true")
    return _take_kinds(found, axis, shape)


def _order_kinds(keys: Sequence[object]) -> list[ViewKind]:
    """The kinds that put the axes of an array first, where NumPy does, and new axes where None stands.

    An integer beside an array counts as an array. If something stands between two of them, their axes come first.
    """
    layout: list[str] = []
    for one in keys:
        if isinstance(one, _Gathered):
            layout += ["array"] * len(one.shape)
        elif one is None or isinstance(one, slice):
            layout.append("new" if one is None else "kept")
    kinds: list[ViewKind] = []
    if _is_parted(keys):
        old = [what for what in layout if what != "new"]
        moved = [axis for axis, what in enumerate(old) if what == "array"]
        kinds.append(PermuteDims((*moved, *(axis for axis, what in enumerate(old) if what == "kept"))))
        layout.sort(key=lambda what: what != "array")
    if "new" in layout:
        kinds.append(ExpandDims(tuple(axis for axis, what in enumerate(layout) if what == "new")))
    return kinds


def _is_parted(keys: Sequence[object]) -> bool:
    """Whether something stands between an array and an integer."""
    if not any(isinstance(one, _Gathered) for one in keys):
        return False
    advanced = [k for k, one in enumerate(keys) if not (one is None or one is Ellipsis or isinstance(one, slice))]
    return advanced[-1] - advanced[0] >= len(advanced)


def _for_each_axis(given: Sequence[object], shape: Shape) -> list[object]:
    """The keys, with arrays read, and slices for the axes that have none; an Ellipsis stays as a mark."""
    keys = list(given)
    used, dots, arrays = len(keys), -1, 0
    for k, key in enumerate(given):
        if key is None:
            used -= 1
        elif key is Ellipsis:
            if dots >= 0:
                raise IndexError("an index can only have a single ellipsis ('...'); write ':' for each axis of others")
            dots = k
            used -= 1
        elif isinstance(key, (list, tuple, range)) or (isinstance(key, np.ndarray) and key.ndim):
            keys[k] = array = _gathered(key, f"index {k} of the subscript")
            used += array.used - 1
            arrays += 1
    if arrays > 1:
        raise TypeError(
            f"the subscript {quote(given)} has several arrays; a view takes one: x.take(one, axis).take(two, axis) "
            "reads all combinations, x.reshape(-1)[numbers] single cells by their row-major numbers"
        )
    if used > len(shape):
        raise IndexError(
            f"too many indices: shape {quote(shape)} has {len(shape)} axes, but {used} were indexed; expand_dims "
            "makes more"
        )
    if dots >= 0 or arrays:
        at = dots + 1 if dots >= 0 else len(keys)
        keys[at:at] = [slice(None)] * (len(shape) - used)
    return keys


def _position(key: object, axis: int) -> int:
    try:
        return as_int(key, f"index of axis {axis}")
    except TypeError as error:
        raise IndexError(f"{error}; a view takes integers, slices, Ellipsis, None and one array of indices") from None


def _slice_triple(key: slice, axis: int) -> tuple[int | None, int | None, int | None]:
    start, stop, step = (
        None if v is None else as_int(v, f"slice of axis {axis}") for v in (key.start, key.stop, key.step)
    )
    if step == 0:
        raise ValueError(f"slice step cannot be zero (axis {axis})")
    return start, stop, step
