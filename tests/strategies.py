"""Hypothesis strategies shared by the tests."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from tapestry_sets import (
    Allocation,
    Region,
    Sett,
    Stripe,
    View,
    allocate,
    concatenate,
    interleave,
    pad,
    repeat,
    roll,
    tile,
)

# ------------------------------------------------------------------------------------------------------ views


def shapes(max_rank: int = 3, max_extent: int = 6, min_extent: int = 0) -> st.SearchStrategy[tuple[int, ...]]:
    """Small shapes, rank 0 and (unless excluded) empty axes among them."""
    return st.lists(st.integers(min_extent, max_extent), max_size=max_rank).map(tuple)


@st.composite
def subscripts(draw: st.DrawFn, shape: tuple[int, ...]) -> Any:
    """A NumPy basic index for a shape: integers, slices with steps of either sign, Ellipsis, newaxis."""
    key: list[Any] = []
    for n in shape[: len(shape) - draw(st.integers(0, len(shape)))]:
        kind = draw(st.sampled_from(["slice", "slice", "slice", "int"] if n else ["slice"]))
        if kind == "int":
            key.append(draw(st.integers(-n, n - 1)))
        else:
            bound = st.none() | st.none() | st.integers(-n - 1, n + 1)
            step = draw(st.none() | st.sampled_from([1, 2, 3, -1, -2]))
            key.append(slice(draw(bound), draw(bound), step))
    if draw(st.integers(0, 3)) == 0:
        key.insert(draw(st.integers(0, len(key))), None)
    if draw(st.integers(0, 3)) == 0:
        key.append(Ellipsis)
    return tuple(key)


@st.composite
def factorisations(draw: st.DrawFn, size: int) -> tuple[int, ...]:
    """A shape of a given size."""
    if size == 0:
        return draw(st.sampled_from([(0,), (0, 3), (2, 0)]))
    shape: list[int] = []
    while size > 1 and len(shape) < 3:
        n = draw(st.sampled_from([d for d in range(1, size + 1) if size % d == 0]))
        shape.append(n)
        size //= n
    return (*shape, size) if size > 1 or not shape else tuple(shape)


@st.composite
def one_more(draw: st.DrawFn, view: View, array: np.ndarray) -> tuple[View, np.ndarray]:
    """A random view kind on a view, and the same by NumPy on an array of its values."""
    rank, shape = view.rank, view.shape
    axis = draw(st.integers(-rank, rank - 1)) if rank else 0
    kinds = ["axis", "axis", "axis", "getitem", "reshape", "reshape", "permute", "flip", "newaxis", "broadcast"]
    choice = draw(st.sampled_from(kinds))
    if choice == "reshape":
        new = draw(factorisations(view.size))
        return view.reshape(new), array.reshape(new)
    if choice == "permute":
        order = draw(st.permutations(range(rank)))
        return view.permute_dims(order), array.transpose(order)
    if choice == "flip":
        axes = draw(st.none() | st.sets(st.integers(0, rank - 1)).map(tuple)) if rank else None
        return view.flip(axes), np.flip(array, axes)
    if choice == "newaxis":
        at = draw(st.integers(0, rank))
        more = view.expand_dims(at)
        return (more, np.expand_dims(array, at)) if draw(st.booleans()) else (more.squeeze(at), array)
    if choice == "broadcast":
        new = (draw(st.integers(1, 2)), *(draw(st.integers(1, 3)) if n == 1 else n for n in shape))
        return view.broadcast_to(new), np.broadcast_to(array, new)
    if choice == "axis" and rank and view.size:
        return draw(along_an_axis(view, array, axis))
    key = draw(subscripts(shape))
    return view[key], array[key]


@st.composite
def along_an_axis(draw: st.DrawFn, view: View, array: np.ndarray, axis: int) -> tuple[View, np.ndarray]:
    """As `one_more`, among the kinds that work along an axis of a view that is not empty."""
    n, rank = view.shape[axis], view.rank
    choice = draw(st.sampled_from(["roll", "repeat", "tile", "pad", "windows", "diagonal", "split", "deal"]))
    if choice == "roll":
        shift = draw(st.integers(-n - 1, n + 1))
        return roll(view, shift, axis), np.roll(array, shift, axis)
    if choice == "repeat":
        count = draw(st.integers(1, 3))
        return repeat(view, count, axis), np.repeat(array, count, axis)
    if choice == "tile":
        reps = tuple(draw(st.lists(st.integers(1, 2), min_size=1, max_size=rank + 1)))
        return tile(view, reps), np.tile(array, reps)
    if choice == "pad":
        mode = draw(st.sampled_from(["constant", "edge", "reflect", "symmetric", "wrap"]))
        widths = [
            (draw(st.integers(0, 3)), draw(st.integers(0, 3))) if a == axis % rank else (0, 0) for a in range(rank)
        ]
        return pad(view, widths, mode), np.pad(array, widths, mode)
    if choice == "windows":
        size = draw(st.integers(1, min(n, 3)))
        dilation = draw(st.integers(1, (n - 1) // (size - 1) if size > 1 else 2))
        step = draw(st.integers(1, 3))
        windows = np.lib.stride_tricks.sliding_window_view(array, (size - 1) * dilation + 1, axis)[..., ::dilation]
        pick = tuple(slice(None, None, step) if a == axis % rank else slice(None) for a in range(rank))
        return view.sliding_windows(size, step, dilation, axis), windows[pick]
    if choice == "diagonal" and rank > 1:
        a, b = draw(st.permutations(range(rank)))[:2]
        offset = draw(st.integers(-2, 2))
        return view.diagonal(offset, a, b), np.diagonal(array, offset, a, b)
    cut = draw(st.integers(0, n))
    pick = [
        tuple(s if a == axis % rank else slice(None) for a in range(rank)) for s in (slice(cut, None), slice(0, cut))
    ]
    if choice == "split":
        return concatenate([view[k] for k in pick], axis), np.concatenate([array[k] for k in pick], axis)
    k = draw(st.integers(1, 3))
    parts = [tuple(slice(s, None, k) if a == axis % rank else slice(None) for a in range(rank)) for s in range(k)]
    dealt = interleave([view[p] for p in parts], axis)
    return dealt, array


@st.composite
def chains(draw: st.DrawFn, base: View, array: np.ndarray, length: int, cells: int) -> tuple[View, np.ndarray]:
    """A chain of random view kinds over a view, and the same chain by NumPy over an array of its values."""
    view = base
    for _ in range(length - draw(st.integers(0, length))):
        more, values = draw(one_more(view, array))
        if more.size > cells:
            break
        view, array = more, values
    return view, array


@st.composite
def views(draw: st.DrawFn, length: int = 4, cells: int = 400) -> tuple[View, np.ndarray]:
    """A random chain over an allocation, and its values where the allocation holds 1, 2, 3, …."""
    base = allocate(draw(st.lists(st.sampled_from([4, 6, 3, 5, 2, 1, 8]), max_size=3)), name="A")
    array = np.arange(1, base.size + 1).reshape(base.shape)
    return draw(chains(base, array, length, cells))


@st.composite
def view_pairs(
    draw: st.DrawFn, length: int = 3, cells: int = 400
) -> tuple[View, np.ndarray, View, np.ndarray, Allocation]:
    """Two random chains over one allocation, with their values where it holds 1, 2, 3, …."""
    base = allocate(draw(st.lists(st.sampled_from([4, 6, 3, 5, 2, 7, 8]), max_size=3)), name="A")
    array = np.arange(1, base.size + 1).reshape(base.shape)
    one, two = draw(chains(base, array, length, cells)), draw(chains(base, array, length, cells))
    return *one, *two, base


# ------------------------------------------------------------------------------------- stripes, setts and regions


def stripes(max_period: int = 12, min_on: int = 0) -> st.SearchStrategy[Stripe]:
    """Stripes of short period, with phases on both sides of zero."""
    period = st.integers(1, max_period)
    on = period.flatmap(lambda p: st.tuples(st.integers(min(min_on, p), p), st.just(p)))
    return st.builds(lambda ab, phase: Stripe(ab[0], ab[1] - ab[0], phase), on, st.integers(-20, 20))


def nestings(max_period: int = 12, max_depth: int = 3) -> st.SearchStrategy[list[Stripe]]:
    """Stripes to be nested, outermost first; mostly not empty."""
    return st.lists(stripes(max_period, 1) | stripes(max_period), max_size=max_depth)


def windows(low: int = -30, longest: int = 80) -> st.SearchStrategy[tuple[int, int]]:
    """Windows (start, stop), empty ones among them."""
    return st.builds(lambda lo, n: (lo, lo + n), st.integers(low, 30), st.integers(0, longest))


@st.composite
def regions_in_one_box(draw: st.DrawFn, count: int, max_rank: int = 3, at_zero: bool = False) -> tuple[Region, ...]:
    """Regions of nested setts and intervals in one box, which may have empty axes or none."""
    shape = tuple(draw(st.lists(st.integers(0, 7) | st.integers(1, 7), max_size=max_rank)))
    start = tuple(0 if at_zero else draw(st.integers(-3, 3)) for _ in shape)

    def axis(n: int, lo: int) -> st.SearchStrategy[Sett]:
        nested = nestings(7).map(lambda levels: Sett(*levels))
        interval = st.tuples(st.integers(0, n), st.integers(0, n)).map(
            lambda ends: Sett.interval(lo + min(ends), lo + max(ends), n)
        )
        return interval | nested

    one = st.tuples(*(axis(n, lo) for n, lo in zip(shape, start, strict=True)))
    return tuple(Region(shape, draw(one), start) for _ in range(count))
