"""Hypothesis strategies shared by the tests."""

from __future__ import annotations

from math import prod
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
    fill_into,
    interleave,
    pad,
    repeat,
    roll,
    tile,
)
from tapestry_sets.views.kinds.choosing import AsStrided
from tests.oracles import listed, marked

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
def array_subscripts(draw: st.DrawFn, shape: tuple[int, ...]) -> Any:
    """A NumPy index for a shape with at most one array among integers, slices, Ellipsis and newaxis.

    The array is a list or array of integers of one or two axes, or a mask of one or two axes of the shape.
    """
    key = [k for k in draw(subscripts(shape)) if k is not None and k is not Ellipsis]
    if not key:
        return tuple(key)
    extras = draw(st.lists(st.sampled_from([None, None, Ellipsis]), max_size=3))
    if Ellipsis in extras:
        extras = [None, Ellipsis]
        key += [slice(None)] * (len(shape) - len(key))
    at = draw(st.integers(0, len(key) - 1))
    n = shape[at]
    form = draw(st.sampled_from(["list", "array", "table", "mask", "mask of two"]))

    def mask(*extents: int) -> np.ndarray:
        cells = prod(extents)
        return np.array(draw(st.lists(st.booleans(), min_size=cells, max_size=cells)), bool).reshape(extents)

    if form == "mask of two" and at + 1 < len(key):
        key[at : at + 2] = [mask(n, shape[at + 1])]
    elif form.startswith("mask"):
        key[at] = mask(n)
    else:
        indices = draw(index_lists(n)) if n else []
        rows = 2 if form == "table" and len(indices) % 2 == 0 else 1
        array = np.array(indices, int).reshape(rows, len(indices) // rows)
        key[at] = array if rows == 2 else indices if form == "list" else array[0]
    for extra in extras:
        key.insert(draw(st.integers(0, len(key))), extra)
    return tuple(key)


@st.composite
def factorizations(draw: st.DrawFn, size: int) -> tuple[int, ...]:
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
        new = draw(factorizations(view.size))
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
    old = ["roll", "repeat", "tile", "pad", "windows", "diagonal", "split", "deal"]
    choice = draw(st.sampled_from([*old, "take", "mask", "repeat_each", "sample", "fill", "strides", "swizzle"]))
    if choice in ("sample", "fill"):
        return draw(by_setts(view, array, choice == "fill"))
    if choice == "take":
        indices = draw(index_lists(n))
        return view.take(indices, axis), np.take(array, indices, axis)
    if choice == "mask":
        mask = np.array(draw(st.lists(st.booleans(), min_size=n, max_size=n)))
        key = (slice(None),) * (axis % rank) + (mask,)
        return view[key], array[key]
    if choice == "strides":
        return draw(by_strides(view, array))
    if choice == "swizzle":
        return draw(swizzled(view, array))
    if choice == "repeat_each":
        counts = draw(st.lists(st.integers(0, 2), min_size=n, max_size=n))
        return repeat(view, counts, axis), np.repeat(array, counts, axis)
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


def index_lists(n: int, longest: int = 9) -> st.SearchStrategy[list[int]]:
    """Indices of an axis of extent n >= 1: any, in equal steps, and blocks that come again some places farther."""
    anywhere = st.lists(st.integers(-n, n - 1), max_size=longest)
    any_step = st.integers(-n, n)
    steps = st.builds(lambda a, by, m: [(a + by * k) % n for k in range(m)], any_step, any_step, st.integers(1, 7))
    block = st.lists(st.integers(0, n - 1), min_size=1, max_size=4)
    again = st.builds(
        lambda base, by, m: [(b + by * k) % n for k in range(m) for b in base], block, any_step, st.integers(2, 3)
    )
    return anywhere | steps | again


@st.composite
def by_strides(draw: st.DrawFn, view: View, array: np.ndarray) -> tuple[View, np.ndarray]:
    """Cells of a view that is not empty by strides in its row-major order, as NumPy's as_strided has them of a copy."""
    shape = tuple(draw(st.lists(st.integers(1, 4), max_size=3)))
    strides = [draw(st.integers(-3, 3)) for _ in shape]
    reaches = [(n - 1) * by for n, by in zip(shape, strides, strict=True)]
    low, high = sum(r for r in reaches if r < 0), sum(r for r in reaches if r > 0)
    if high - low >= view.size:
        shape, strides, low, high = (), [], 0, 0
    offset = draw(st.integers(-low, view.size - 1 - high))
    flat = np.ascontiguousarray(array).ravel()
    cells = np.lib.stride_tricks.as_strided(flat[offset:], shape, [by * flat.itemsize for by in strides])
    return view.apply(AsStrided(shape, tuple(strides), offset)), cells


@st.composite
def swizzled(draw: st.DrawFn, view: View, array: np.ndarray) -> tuple[View, np.ndarray]:
    """A view that is not empty, bits of its numbers flipped by others, above or below them."""
    most = (view.size & -view.size).bit_length() - 1  # so many low bits are free in each number
    bits = draw(st.integers(0, min(most, 3)))
    base = draw(st.integers(0, most - bits))
    shift = bits + draw(st.integers(0, 2))
    x = np.arange(view.size)
    mask = (1 << bits) - 1
    if base + shift + bits <= most and draw(st.booleans()):
        numbers = x ^ (x >> base & mask) << base + shift
        shift = -shift
    else:
        numbers = x ^ (x >> base + shift & mask) << base
    return view.swizzle(bits, base, shift), array.reshape(-1)[numbers].reshape(array.shape)


@st.composite
def by_setts(draw: st.DrawFn, view: View, array: np.ndarray, filled: bool) -> tuple[View, np.ndarray]:
    """A view at a region of nested setts; or the parts of a view at a region and around it, each put back reversed."""
    region = Region(view.shape, [Sett(*draw(nestings(7, 2))) for _ in view.shape])
    if not filled:
        axes = [sorted(listed(s.stripes, (0, n))) for s, n in zip(region.setts, region.shape, strict=True)]
        return view.sample(region), array[np.ix_(*axes)]
    parts = [part for part in (region, *(~region).members) if not part.is_empty]
    out = np.empty_like(array)
    for part in parts:
        out[marked(part)] = array[marked(part)][::-1]  # all axes of the part reversed, in row-major order
    return fill_into(parts, [view.sample(part).flip() for part in parts]), out


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
