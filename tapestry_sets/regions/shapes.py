"""Shapes, axes and basic indices as callers write them: checked, and turned into plain tuples of integers.

A box is a shape and its first point: the points ``start <= point < start + shape``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from math import prod
from types import EllipsisType

import numpy as np

from tapestry_sets.digits import Ints
from tapestry_sets.limits import as_int, as_ints, quote

BoxKey = slice | int | EllipsisType | tuple[slice | int | EllipsisType, ...]
"""A basic index of NumPy without newaxis."""


def checked_box(shape: Iterable[int], start: Iterable[int] | None) -> tuple[Ints, Ints]:
    """Return shape and start of a box; without a start it begins at zero.

    Raises
    ------
    ValueError
        If an extent is negative or the lengths differ.
    """
    # as tuples of ints, since 2 and 2.0 or True and 1 are the same key to a cache
    shape = as_ints(shape, "Region: shape")
    return _box(shape, None if start is None else as_ints(start, "Region: start"))


@lru_cache(maxsize=1 << 14)
def _box(shape: Ints, start: Ints | None) -> tuple[Ints, Ints]:
    for axis, n in enumerate(shape):
        if n < 0:
            raise ValueError(f"Region: extents must be >= 0, not {n} on axis {axis} of shape {quote(shape)}")
    if start is None:
        return shape, (0,) * len(shape)
    if len(start) != len(shape):
        raise ValueError(f"Region: start {quote(start)} must have one entry for each axis of shape {quote(shape)}")
    return shape, start


def reshaped(shape: Sequence[int], old: Ints) -> Ints:
    """Return the shape that ``reshape(shape)`` of the shape `old` has; one extent may be -1.

    Raises
    ------
    ValueError
        If the sizes differ.

    Examples
    --------
    >>> reshaped((-1, 2), (3, 4))
    (6, 2)
    """
    new, _ = checked_box(_with_extent(as_ints(shape, "reshape: shape"), old), None)
    if prod(new) != prod(old):
        raise ValueError(f"reshape: cannot view shape {old} [{prod(old)} points] as {quote(new)} [{quote(prod(new))}]")
    return new


def _with_extent(shape: Ints, old: Ints) -> Ints:
    """Return the shape with -1 replaced by what the other extents leave of the old shape's size."""
    if -1 not in shape:
        return shape
    size, known = prod(old), prod(n for n in shape if n != -1)
    if shape.count(-1) > 1 or known < 1 or size % known:
        raise ValueError(
            f"reshape: shape {quote(shape)} may hold one -1, which the other extents [product {known}] must leave "
            f"of the {size} points of shape {quote(old)}"
        )
    return tuple(size // known if n == -1 else n for n in shape)


def per_axis(values: Sequence[int], shape: Ints, what: str) -> Ints:
    """Return one integer for each axis of a shape, or raise ValueError."""
    out = as_ints(values, what)
    if len(out) != len(shape):
        raise ValueError(f"{what} {quote(out)} must have one entry for each axis of shape {quote(shape)}")
    return out


def permutation(perm: Sequence[int] | None, rank: int) -> Ints:
    """Return the axes in a new order; negative ones count from the last.

    Raises
    ------
    AxisError
        If an axis is out of range.
    ValueError
        If an axis is missing or given twice.
    """
    if perm is None:
        return tuple(reversed(range(rank)))
    given = as_ints(perm, "transpose: perm")
    order = tuple(_axis(axis, rank, "transpose") for axis in given)
    if len(order) != rank or len(set(order)) != rank:
        raise ValueError(f"transpose: perm {quote(given)} must hold each of 0 to {rank - 1} once")
    return order


def chosen_axes(axes: Sequence[int] | int | None, rank: int, verb: str) -> frozenset[int]:
    """Return the axes that are meant: all of them for None; negative ones count from the last.

    Raises
    ------
    AxisError
        If an axis is out of range.
    ValueError
        If an axis is given twice.
    """
    if axes is None:
        return frozenset(range(rank))
    given = as_ints(axes if isinstance(axes, Iterable) else (axes,), f"{verb}: axes")
    found = frozenset(_axis(axis, rank, verb) for axis in given)
    if len(found) != len(given):
        raise ValueError(f"{verb}: axes {quote(given)} name an axis of rank {rank} twice")
    return found


def _axis(axis: int, rank: int, verb: str) -> int:
    if not -rank <= axis < rank:
        raise np.exceptions.AxisError(f"{verb}: axis {axis} is out of range for rank {rank}")
    return axis % rank


def lead_of_broadcast(narrow: Ints, wide: Ints, verb: str) -> int:
    """Return how many axes broadcasting puts before those of `narrow` to make `wide`, or raise ValueError."""
    lead = len(wide) - len(narrow)
    if lead < 0 or any(n not in (1, m) for n, m in zip(narrow, wide[max(lead, 0) :], strict=False)):
        raise ValueError(f"{verb}: shape {quote(narrow)} does not broadcast to {quote(wide)}")
    return lead


def select_ranges(shape: Ints, key: BoxKey) -> tuple[range, ...]:
    """Return for each axis the positions that a basic index selects; an int selects one.

    Raises
    ------
    IndexError
        If there are more entries than axes, or an int is out of range.
    TypeError
        If an entry is not a slice, int or Ellipsis.
    """
    entries = spell_out(shape, key)
    return tuple(_range(k, n, axis) for axis, (k, n) in enumerate(zip(entries, shape, strict=True)))


def spell_out(shape: Ints, key: BoxKey) -> list[object]:
    """Return an entry of a basic index for each axis, where an Ellipsis, or what is not given, is whole axes."""
    entries = key if isinstance(key, tuple) else (key,)
    given = sum(k is not Ellipsis for k in entries)
    if len(entries) - given > 1:
        raise IndexError(f"index {quote(entries)} has more than one Ellipsis")
    if given > len(shape):
        raise IndexError(f"index {quote(entries)} has too many entries for shape {quote(shape)}")
    fill = (slice(None),) * (len(shape) - given)
    at = next((i for i, k in enumerate(entries) if k is Ellipsis), len(entries))
    return [*entries[:at], *fill, *entries[at + 1 :]]


def length(r: range) -> int:
    """Return how many positions a range has; len() stops at the machine's word."""
    return max(0, (r.stop - r.start + r.step - (1 if r.step > 0 else -1)) // r.step)


def _range(k: object, n: int, axis: int) -> range:
    if isinstance(k, slice):
        start, stop, step = (
            None if v is None else as_int(v, f"slice {what} on axis {axis}")
            for v, what in ((k.start, "start"), (k.stop, "stop"), (k.step, "step"))
        )
        if step == 0:
            raise ValueError(f"slice step on axis {axis} must not be 0")
        return range(*slice(start, stop, step).indices(n))
    try:
        i = as_int(k, "index")
    except TypeError:
        raise TypeError(
            f"index on axis {axis} must be a slice, an int or Ellipsis, not {quote(k)}; use reshape for newaxis"
        ) from None
    if not -n <= i < n:
        raise IndexError(f"index {i} is out of range for axis {axis} of extent {n}")
    return range(i % n, i % n + 1)
