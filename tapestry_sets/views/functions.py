"""NumPy's functions of one view or several, as `words` has the methods; errors and differences are told there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import accumulate, groupby
from typing import Any, TypeVar

import numpy as np

from tapestry_sets.limits import as_int, as_ints, as_items, check_type, quote, refuse_masked
from tapestry_sets.regions import DisjointRegions, Region
from tapestry_sets.views import tuning
from tapestry_sets.views.kinds import shaping
from tapestry_sets.views.kinds.choosing import Slice
from tapestry_sets.views.kinds.joining import Concat, Fill, Interleave, Stack
from tapestry_sets.views.kinds.kind import PadMode, ViewKind, axis_of
from tapestry_sets.views.pieces.maps import Shape, put_extents
from tapestry_sets.views.words import Viewable, apply_all, as_cell, at_once, axis_tuple

V = TypeVar("V", bound=Viewable)
T = TypeVar("T")


@at_once
def concatenate(views: Sequence[V], axis: int | None = 0) -> V:
    """Return the views one after the other along an axis; with None, flattened. Nothing is copied.

    Parameters
    ----------
    views : sequence of View
        Of one shape but for the axis.
    axis : int or None

    Returns
    -------
    View

    Raises
    ------
    ValueError
        If there is none, or shapes do not fit.

    Examples
    --------
    >>> from tapestry_sets import allocate, concatenate, overlap
    >>> keys, new = allocate((6, 4), name="keys"), allocate((2, 4), name="new")
    >>> cache = concatenate([keys, new])
    >>> cache.shape, overlap(cache[5:], new).size  # cells of `new` that rows from 5 on read
    ((8, 4), 8)

    References
    ----------
    NumPy concatenate; Array API concat.
    """
    if axis is None:
        return _many(Concat(0), [view.ravel() for view in _views(views, "concatenate")], "concatenate")
    return _many(Concat(axis), views, "concatenate")


def stack(views: Sequence[V], axis: int = 0) -> V:
    """Return views of one shape along a new axis. Nothing is copied.

    Parameters
    ----------
    views : sequence of View
        Of one shape.
    axis : int
        Of the result, where it is new.

    Returns
    -------
    View

    Raises
    ------
    ValueError
        If there is none, or shapes differ.

    Examples
    --------
    >>> from tapestry_sets import allocate, stack
    >>> real, imaginary = allocate((4, 6), name="real"), allocate((4, 6), name="imaginary")
    >>> both = stack([real, imaginary], axis=-1)
    >>> both.shape, both[..., 1] == imaginary
    ((4, 6, 2), True)

    References
    ----------
    NumPy stack.
    """
    return _many(Stack(axis), views, "stack")


def interleave(views: Sequence[V], axis: int = 0) -> V:
    """Return the views' cells in turn along an axis.

    Examples
    --------
    >>> from tapestry_sets import interleave
    >>> from tapestry_sets.views import allocate
    >>> a = allocate((7,), name="a")
    >>> [p.map.apply((3,)) for p in interleave([a[0::2], a[1::2]]).pieces][1]
    (3,)
    """
    return _many(Interleave(axis), views, "interleave")


def fill_into(regions: DisjointRegions | Sequence[Region], views: Sequence[V]) -> V:
    """Return the views assembled by regions: view k's cells take the places of regions[k], in ascending order.

    Parameters
    ----------
    regions : DisjointRegions or sequence of Region
        A partition of one box from zero, the shape of the result.
    views : sequence of View
        One for each region, of shape `regions[k].counts`.

    Raises
    ------
    ValueError
        If two regions share a point, a point is in none, or a view's shape is not that of its region.

    Examples
    --------
    >>> from tapestry_sets import Region, fill_into
    >>> from tapestry_sets.views import allocate
    >>> a, b = allocate((4,), name="a"), allocate((3,), name="b")
    >>> from tapestry_sets import Stripe
    >>> blocks = Region((7,), [Stripe(2, 2)])
    >>> c = fill_into([blocks, *(~blocks).members], [a, b])
    >>> print(c[2:4].origins()[b])
    11.

    References
    ----------
    poprithms, memory/alias: settfill.
    """
    if isinstance(regions, Region) or not isinstance(regions, (DisjointRegions, Sequence)):
        raise TypeError(
            f"fill_into: regions is a {type(regions).__name__}; give DisjointRegions, or a list, one for each view"
        )
    return _many(Fill(tuple(regions.members if isinstance(regions, DisjointRegions) else regions)), views, "fill_into")


@at_once
def pad(
    view: V,
    widths: int | Sequence[int] | Sequence[Sequence[int]] | Mapping[int, Any],
    mode: PadMode = "constant",
    value: float | Sequence[float] | Sequence[Sequence[float]] = 0,
    padding: V | Callable[[Shape], V] | None = None,
) -> V:
    """Return the view with cells around it: constants, which are not memory, cells of its own, or other memory.

    Parameters
    ----------
    view : View
    widths : int, (before, after), one (before, after) for each axis, or {axis: width or (before, after)}
    mode : str
        "constant", "edge", "reflect", "symmetric" or "wrap".
    value : float, (before, after), or one (before, after) for each axis
        For mode "constant". A corner has the value of its last axis.
    padding : View of one cell, or a function from a shape to a view; optional
        What the padding reads in place of constants: all of it that one cell, or each of its blocks, at most two
        for each axis, what the function gives for the block's shape. So ``padding=allocate`` makes every cell of
        the padding new memory, and ``partial(allocate, color="zeros")`` does so in one color.

    Examples
    --------
    >>> from tapestry_sets import pad
    >>> from tapestry_sets.views import allocate
    >>> a, zero = allocate((2, 2), name="a"), allocate((), name="zero")
    >>> pad(a, 1).has_internal_overlap(), pad(a, 1, padding=zero).has_internal_overlap()
    (False, True)
    >>> apart = pad(a, 1, padding=allocate)
    >>> apart.shape, apart.has_internal_overlap(), len(apart.allocations)
    ((4, 4), False, 5)

    References
    ----------
    NumPy pad, whose modes that compute new values ("linear_ramp", "mean", …) are not views; poprithms,
    memory/alias: pad, BroadcastPadding.
    """
    _one_view(view, "pad")
    check_type(mode, str, "pad: mode")
    pairs = _pairs(_by_axis(widths, view.rank), view.rank, "pad: widths", _width)
    values = _pairs(value, view.rank, "pad: value", partial(as_cell, view))
    if mode != "constant" and any(any(pair) for pair in values):
        raise ValueError(
            f"pad: mode {quote(mode)} takes no value, but value is {quote(value)}; only mode 'constant' has one"
        )
    if padding is not None:
        if mode != "constant" or any(any(pair) for pair in values):
            raise ValueError(
                f"pad: padding stands in place of constants; mode {quote(mode)} with value {quote(value)} is for none"
            )
        if not isinstance(padding, Viewable) and not callable(padding):
            raise TypeError(f"pad: padding is a {type(padding).__name__}; give a view of one cell, or a function")
        return _padded(view, shaping.Pad(pairs), padding)
    same = len({x for pair in values for x in pair}) < 2
    return view.apply(shaping.Pad(pairs, mode, (values[0][0] if values else 0) if same else values))


def _padded(view: V, kind: shaping.Pad, padding: V | Callable[[Shape], V]) -> V:
    """The view between blocks of padding, axis after axis."""
    kind.out_shape((view.shape,))
    for axis, (before, after) in enumerate(kind.widths):
        blocks = [_block(padding, put_extents(view.shape, axis, width)) for width in (before, after) if width]
        if blocks:
            lead = int(before > 0)
            view = concatenate([*blocks[:lead], view, *blocks[lead:]], axis)
    return view


def _block(padding: V | Callable[[Shape], V], shape: Shape) -> V:
    """A block of padding."""
    if not isinstance(padding, Viewable):
        made = padding(shape)
        if not isinstance(made, Viewable) or made.shape != shape:
            raise ValueError(
                f"pad: the padding function gave {quote(made)} for a block; it must give a view of {quote(shape)}"
            )
        return made
    if padding.size != 1:
        raise ValueError(
            f"pad: the padding has shape {quote(padding.shape)}; give a view of one cell, or a function that takes "
            "the shape of a block and returns a view"
        )
    return padding.reshape(()).broadcast_to(shape)


def _by_axis(widths: Any, rank: int) -> Any:
    """Widths given by axis as a list of pairs."""
    if not isinstance(widths, Mapping):
        return widths
    pairs: list[Any] = [(0, 0)] * rank
    for axis, width in widths.items():
        pairs[axis_of(axis, rank, "pad: widths")] = width if isinstance(width, (Sequence, np.ndarray)) else (width,) * 2
    return pairs or np.zeros((0, 2), int)


def _pairs(given: Any, rank: int, what: str, read: Callable[[object, str], T]) -> tuple[tuple[T, T], ...]:
    """One (before, after) for each axis from NumPy's ways to write them."""
    if not rank and isinstance(given, Sequence) and not given:
        return ()
    if type(given) in (int, float):
        one = read(given, what)
        return ((one, one),) * rank
    if _are_pairs(given, rank):
        return tuple([(read(a, what), read(b, what)) for a, b in given])
    refuse_masked(given, what)
    try:
        array = np.asarray(given)
        for one in array.ravel().tolist():  # of which none may be broadcast
            read(one, what)
        pairs = np.broadcast_to(array, (rank, 2)).tolist()
    except ValueError as error:
        if str(error).startswith(what):
            raise
        raise ValueError(f"{what} {quote(given)} must be one number, a pair, or {rank} pairs") from None
    return tuple((read(a, what), read(b, what)) for a, b in pairs)


def _are_pairs(given: object, rank: int) -> bool:
    """Whether it is one pair of numbers for each axis, as most are written."""
    if type(given) is not tuple or len(given) != rank:
        return False
    return all(type(x) is tuple and len(x) == 2 and {type(x[0]), type(x[1])} <= {int, float} for x in given)


def _width(value: object, what: str) -> int:
    width = as_int(value, what)
    if width < 0:
        raise ValueError(f"{what}: {width} must be >= 0; a slice makes a view smaller")
    return width


@at_once
def repeat(view: V, count: int | Sequence[int], axis: int | None = None) -> V:
    """Return each cell `count` times in a row along an axis; without an axis, of the flattened view.

    Parameters
    ----------
    view : View
    count : int, or one int for each place along the axis
    axis : int, optional

    Examples
    --------
    >>> from tapestry_sets import repeat
    >>> from tapestry_sets.views import allocate
    >>> a = allocate((3, 10**9), name="a")
    >>> b = repeat(a, [2, 0, 10**6], axis=0)
    >>> b.shape, b.contains(a[1])
    ((1000002, 1000000000), False)
    """
    flat = _one_view(view, "repeat").ravel() if axis is None else _one_view(view, "repeat")
    at = axis_of(0 if axis is None else axis, flat.rank, "repeat")
    if not isinstance(count, (Sequence, np.ndarray)) or not np.ndim(count):
        return flat.apply(shaping.Repeat(as_int(count, "repeat: count"), at))
    counts, n = as_ints(count, "repeat: counts"), flat.shape[at]
    if len(counts) == 1:
        return flat.apply(shaping.Repeat(counts[0], at))
    if len(counts) != n:
        raise ValueError(f"repeat: {len(counts)} counts for axis {at} of shape {quote(flat.shape)}; give 1 or {n}")
    lead = ((None, None, None),) * at
    runs = [(times, len(list(run))) for times, run in groupby(counts)]
    if len(runs) > tuning.MAX_READINGS and sum(counts) <= tuning.MAX_REPEATED:
        return flat.take(np.repeat(np.arange(n), counts), at)  # one table is asked sooner than many parts
    stops = accumulate(n for _, n in runs)
    cuts = [((*lead, (stop - n, stop, None)), times) for stop, (times, n) in zip(stops, runs, strict=True) if times]
    parts = [flat.apply(Slice(cut)).apply(shaping.Repeat(times, at)) for cut, times in cuts]
    return parts[0].apply(Concat(at), *parts[1:]) if parts else flat.apply(Slice((*lead, (0, 0, None))))


def tile(view: V, reps: int | Sequence[int]) -> V:
    """Return the whole view repeated `reps[k]` times along axis k. Nothing is copied.

    Parameters
    ----------
    view : View
    reps : int or sequence of int
        With fewer numbers than axes, of the last axes; with more, the view gets new first axes.

    Returns
    -------
    View

    Raises
    ------
    ValueError
        If a number is negative.

    Examples
    --------
    >>> from tapestry_sets import allocate, tile
    >>> a = allocate((2, 3), name="a")
    >>> twice = tile(a, (2, 1))
    >>> twice.shape, twice[2:] == a, twice.has_internal_overlap()
    ((4, 3), True, True)

    References
    ----------
    NumPy tile.
    """
    return _one_view(view, "tile").apply(shaping.Tile(axis_tuple(reps, "tile: reps")))


@at_once
def roll(view: V, shift: int | Sequence[int], axis: int | Sequence[int] | None = None) -> V:
    """Return the view's cells moved by `shift` along an axis, around its end; without an axis, flattened.

    Parameters
    ----------
    view : View
    shift : int or sequence of int
    axis : int or sequence of int, optional
        As many as shifts, or one of either.

    Returns
    -------
    View

    Raises
    ------
    ValueError
        If there are other numbers of shifts and axes.

    Examples
    --------
    >>> from tapestry_sets import allocate, concatenate, roll
    >>> ring = allocate((8,), name="ring")
    >>> roll(ring, 3)[:5] == concatenate([ring[5:], ring[:2]])
    True

    References
    ----------
    NumPy roll.
    """
    _one_view(view, "roll")
    shifts = axis_tuple(shift, "roll: shift")
    if axis is None:
        return view.ravel().apply(shaping.Roll(sum(shifts), 0)).reshape(view.shape)
    axes = tuple(axis_of(a, view.rank, "roll") for a in axis_tuple(axis, "roll: axis"))
    if len(axes) != len(shifts) and 1 not in (len(axes), len(shifts)):
        raise ValueError(f"roll: {len(shifts)} shifts {shifts} for {len(axes)} axes {axes}; give as many, or one")
    pairs = zip(
        axes * (len(shifts) if len(axes) == 1 else 1), shifts * (len(axes) if len(shifts) == 1 else 1), strict=True
    )
    return apply_all(view, [shaping.Roll(k, a) for a, k in pairs])


@at_once
def broadcast_arrays(*views: V) -> tuple[V, ...]:
    """Return the views broadcast against each other.

    Raises
    ------
    ValueError
        If two extents of an axis, aligned at the right, differ and neither is 1.

    Examples
    --------
    >>> from tapestry_sets import broadcast_arrays
    >>> from tapestry_sets.views import allocate
    >>> [v.shape for v in broadcast_arrays(allocate((4, 1)), allocate((3,)))]
    [(4, 3), (4, 3)]
    """
    _views(views, "broadcast_arrays")
    rank = max((view.rank for view in views), default=0)
    shape = [1] * rank
    for k, view in enumerate(views):
        for axis, n in enumerate(view.shape, rank - view.rank):
            if n != 1 and shape[axis] not in (1, n):
                raise ValueError(
                    f"broadcast_arrays: view {k} of shape {quote(view.shape)} has extent {n} where others have "
                    f"{quote(shape[axis])}; aligned at the right, extents must agree or be 1: "
                    f"{quote([v.shape for v in views])}"
                )
            shape[axis] = n if n != 1 else shape[axis]
    return tuple(view if view.shape == tuple(shape) else view.broadcast_to(shape) for view in views)


@at_once
def hstack(views: Sequence[V]) -> V:
    """Return the views side by side: along the second axis, or the only one; scalars are vectors of one cell.

    Parameters
    ----------
    views : sequence of View

    Returns
    -------
    View

    Raises
    ------
    ValueError
        If there is none, or shapes do not fit.

    Examples
    --------
    >>> from tapestry_sets import allocate, hstack
    >>> a, b = allocate((2, 3), name="a"), allocate((2, 1), name="b")
    >>> hstack([a, b]).shape, hstack([a[0], b[0]]).shape
    ((2, 4), (4,))

    References
    ----------
    NumPy hstack.
    """
    rows = [view if view.rank else view.reshape(1) for view in _views(views, "hstack")]
    return _many(Concat(0 if rows[0].rank == 1 else 1), rows, "hstack")


@at_once
def vstack(views: Sequence[V]) -> V:
    """Return the views one below the other: along the first axis; vectors are rows.

    Parameters
    ----------
    views : sequence of View

    Returns
    -------
    View

    Raises
    ------
    ValueError
        If there is none, or shapes do not fit.

    Examples
    --------
    >>> from tapestry_sets import allocate, vstack
    >>> a, b = allocate((2, 3), name="a"), allocate((3,), name="b")
    >>> both = vstack([a, b])
    >>> both.shape, both[2] == b
    ((3, 3), True)

    References
    ----------
    NumPy vstack.
    """
    rows = [view if view.rank > 1 else view.reshape(1, view.size) for view in _views(views, "vstack")]
    return _many(Concat(0), rows, "vstack")


def _many(kind: ViewKind, views: Sequence[V], what: str) -> V:
    first, *others = _views(views, what)
    try:
        return first.apply(kind, *others)
    except np.exceptions.AxisError:
        raise
    except ValueError as error:
        if str(error).startswith(what):
            raise
        raise type(error)(f"{what}: {error}") from None


def _views(views: Iterable[V], what: str) -> list[V]:
    """Views given as an iterable of them, which is not empty, or as one view: of its places along the first axis."""
    given: Any = views.unstack() if isinstance(views, Viewable) and views.rank else views
    if isinstance(given, Viewable) or not isinstance(given, Iterable):
        raise TypeError(f"{what}: takes a sequence of views, not a {type(views).__name__}; write [a, b]")
    found: list[V] = list(as_items(given, f"{what}: views", "sequence of views"))
    if not found:
        raise ValueError(f"{what}: needs at least one view")
    for k, view in enumerate(found):
        if not isinstance(view, Viewable):
            raise TypeError(f"{what}: source {k} is a {type(view).__name__}, not a view; as_view makes an array one")
    return found


def _one_view(view: V, what: str) -> V:
    if not isinstance(view, Viewable):
        raise TypeError(f"{what}: takes a view, not a {type(view).__name__}; as_view makes an array one")
    return view
