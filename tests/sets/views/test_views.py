"""Every view kind against NumPy, cell by cell."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tapestry_sets import (
    AffineMap,
    Box,
    DisjointSetts,
    Region,
    Sett,
    Stripe,
    TooManyPieces,
    View,
    ViewKind,
    allocate,
    broadcast_arrays,
    concatenate,
    fill_into,
    hstack,
    interleave,
    pad,
    repeat,
    roll,
    stack,
    tile,
    vstack,
)
from tapestry_sets.alias.overlap import overlap, overlaps
from tapestry_sets.alias.pictures import show_views
from tapestry_sets.views import (
    Concat,
    Derived,
    Guard,
    Index,
    IndexMap,
    Pad,
    Piece,
    Relinearize,
    Repeat,
    Reshape,
    Tile,
    piece_image,
)
from tapestry_sets.views.pieces.maps import Step
from tests.oracles import memory_for, read_view
from tests.strategies import array_subscripts, shapes, subscripts, views

FEW = settings(max_examples=settings.default.max_examples // 3)
"""For properties of many views, or of many words."""
MODES = ["constant", "edge", "reflect", "symmetric", "wrap"]


def check(view: View, expected: np.ndarray) -> None:
    """The view reads what NumPy reads, where its one allocation holds 1, 2, 3, …."""
    assert view.shape == expected.shape
    np.testing.assert_array_equal(read_view(view, memory_for([view])), expected)


def source(shape: tuple[int, ...]) -> tuple[View, np.ndarray]:
    view = allocate(shape, name="A")
    return view, np.arange(1, view.size + 1).reshape(shape)


@given(views())
def test_chains_read_what_numpy_reads(pair: tuple[View, np.ndarray]) -> None:
    check(*pair)


# ------------------------------------------------------------------------------------------------------- each kind


@given(st.data(), shapes())
def test_getitem(data: st.DataObject, shape: tuple[int, ...]) -> None:
    view, array = source(shape)
    key = data.draw(subscripts(shape))
    check(view[key], array[key])


@given(st.data(), shapes(min_extent=1))
def test_permute_flip_squeeze_expand(data: st.DataObject, shape: tuple[int, ...]) -> None:
    view, array = source(shape)
    order = data.draw(st.permutations(range(len(shape))))
    check(view.permute_dims(order), array.transpose(order))
    check(view.transpose(*order) if shape else view.T, array.transpose(order))
    check(view.T, array.T)
    axes = tuple(data.draw(st.sets(st.sampled_from(range(len(shape)))))) if shape else ()
    check(view.flip(axes), np.flip(array, axes))
    check(view.flip(), np.flip(array))
    check(view.squeeze(), array.squeeze())
    at = data.draw(st.integers(-len(shape) - 1, len(shape)))
    check(view.expand_dims(at), np.expand_dims(array, at))
    check(view.expand_dims((0, -1)), np.expand_dims(array, (0, -1)))
    check(view[None, ..., None], array[None, ..., None])


@given(st.data(), shapes())
def test_broadcast(data: st.DataObject, shape: tuple[int, ...]) -> None:
    view, array = source(shape)
    more = data.draw(shapes(max_rank=2, max_extent=3))
    new = (*more, *(data.draw(st.integers(0, 3)) if n == 1 else n for n in shape))
    check(view.broadcast_to(new), np.broadcast_to(array, new))


@pytest.mark.parametrize("shape", [(4, 5), (5, 4), (3, 3, 2), (0, 3)])
@pytest.mark.parametrize("offset", [-4, -1, 0, 2, 5])
def test_diagonal(shape: tuple[int, ...], offset: int) -> None:
    view, array = source(shape)
    for a, b in product(range(len(shape)), repeat=2):
        if a != b:
            check(view.diagonal(offset, a, b), np.diagonal(array, offset, a, b))


@given(st.data(), st.tuples(st.integers(1, 7), st.integers(1, 7)))
def test_sliding_windows(data: st.DataObject, shape: tuple[int, int]) -> None:
    view, array = source(shape)
    size = tuple(data.draw(st.integers(1, n)) for n in shape)
    dilation = tuple(
        data.draw(st.integers(1, (n - 1) // (k - 1) if k > 1 else 3)) for n, k in zip(shape, size, strict=True)
    )
    step = tuple(data.draw(st.integers(1, 3)) for _ in shape)
    reach = tuple((k - 1) * d + 1 for k, d in zip(size, dilation, strict=True))
    windows = np.lib.stride_tricks.sliding_window_view(array, reach)
    expected = windows[:: step[0], :: step[1], :: dilation[0], :: dilation[1]]
    check(view.sliding_windows(size, step, dilation), expected)
    check(view.sliding_windows(size, step, dilation, axis=(0, 1)), expected)


@FEW
@given(st.data(), shapes(max_rank=2, max_extent=5, min_extent=1), st.sampled_from(MODES))
def test_pad(data: st.DataObject, shape: tuple[int, ...], mode: Any) -> None:
    """All of NumPy's modes, pads wider than the source included."""
    view, array = source(shape)
    widths: Any = [(data.draw(st.integers(0, 12)), data.draw(st.integers(0, 12))) for _ in shape] or 3
    if mode == "constant":
        check(pad(view, widths, value=-3.5), np.pad(array.astype(float), widths, constant_values=-3.5))
    else:
        check(pad(view, widths, mode), np.pad(array, widths, mode))


@given(st.data(), shapes(min_extent=1), st.integers(0, 3))
def test_repeat_tile_roll(data: st.DataObject, shape: tuple[int, ...], count: int) -> None:
    view, array = source(shape)
    check(repeat(view, count), np.repeat(array, count))
    reps = tuple(data.draw(st.lists(st.integers(0, 2), min_size=1, max_size=4)))
    check(tile(view, reps), np.tile(array, reps))
    shift = data.draw(st.integers(-20, 20))
    check(roll(view, shift), np.roll(array, shift))
    if shape:
        axis = data.draw(st.integers(-len(shape), len(shape) - 1))
        check(repeat(view, count, axis), np.repeat(array, count, axis))
        check(roll(view, shift, axis), np.roll(array, shift, axis))
        check(roll(view, (shift, 1), (0, axis)), np.roll(array, (shift, 1), (0, axis)))


@given(st.data(), shapes())
def test_a_subscript_with_one_array_reads_what_numpy_reads(data: st.DataObject, shape: tuple[int, ...]) -> None:
    """Integers, slices, None and Ellipsis around one array of integers, or a mask of one axis or several."""
    view, array = source(shape)
    key = data.draw(array_subscripts(shape))
    check(view[key], array[key])


@pytest.mark.parametrize(
    "key",
    [
        (slice(None), 0, ..., [1, 2, 0]),  # an Ellipsis parts them even where it stands for no axis
        (slice(None), 0, [1, 2, 0]),
        (0, slice(None), [1, 2, 0]),
        (slice(None), [1, 2, 0], None, 1),
        ([[1, 0], [1, 1]], slice(None), 3),
        (None, 1, np.ones((3, 4), bool), None),
        (0, ..., np.arange(4) > 1, None),
        [[]],
        (slice(None), range(2)),
        (1, (0, 2)),
        (np.array(1), np.array([2, 0], np.uint8)),
    ],
    ids=str,
)
def test_the_axes_of_an_array_stand_where_numpy_puts_them(key: Any) -> None:
    view, array = source((2, 3, 4))
    check(view[key], array[key])


@FEW
@given(st.data(), shapes(min_extent=1))
def test_words_that_permute(data: st.DataObject, shape: tuple[int, ...]) -> None:
    view, array = source((*shape, 2, 3))
    rank = view.rank
    axis = st.integers(-rank, rank - 1)
    a, b = data.draw(axis), data.draw(axis)
    check(view.swapaxes(a, b), array.swapaxes(a, b))
    check(view.moveaxis(a, b), np.moveaxis(array, a, b))
    n = data.draw(st.integers(0, rank))
    old, new = (data.draw(st.permutations(range(rank)))[:n] for _ in range(2))
    check(view.moveaxis(old, new), np.moveaxis(array, old, new))
    check(view.mT, array.mT)
    check(view.matrix_transpose(), np.matrix_transpose(array))
    check(view.fliplr(), np.fliplr(array))
    check(view.flipud(), np.flipud(array))
    turns, plane = data.draw(st.integers(-5, 5)), data.draw(st.permutations(range(rank)))[:2]
    check(view.rot90(turns, plane), np.rot90(array, turns, plane))
    check(view.transpose(None), array.transpose(None))


@given(st.data(), shapes(max_rank=2), st.integers(0, 7))
def test_words_that_split(data: st.DataObject, rest: tuple[int, ...], n: int) -> None:
    view, array = source((*rest, n))
    parts = data.draw(st.integers(1, 4))
    check_each(view.array_split(parts, -1), np.array_split(array, parts, -1))
    cuts = data.draw(st.lists(st.integers(-8, 8), max_size=3))
    check_each(view.split(cuts, -1), np.split(array, cuts, -1))
    check_each(view.unstack(-1), np.unstack(array, axis=-1))
    if n % parts == 0:
        check_each(view.split(parts, -1), np.split(array, parts, -1))


def check_each(made: list[View], expected: Any) -> None:
    assert len(made) == len(expected)
    for view, array in zip(made, expected, strict=True):
        check(view, array)


@given(st.data(), shapes(max_rank=2, max_extent=4, min_extent=1))
def test_words_for_several(data: st.DataObject, shape: tuple[int, ...]) -> None:
    one, two = allocate(shape, name="S"), allocate(shape, name="T")
    memory = memory_for([one, two])
    x, y = memory[one], memory[two]
    check_many(hstack([one, two]), np.hstack([x, y]), memory)
    check_many(vstack([one, two]), np.vstack([x, y]), memory)
    check_many(concatenate([one, two], None), np.concatenate([x, y], None), memory)
    narrow = tuple(data.draw(st.booleans()) for _ in shape)
    key = tuple(slice(0, 1) if cut else slice(None) for cut in narrow)
    for view, expected in zip(broadcast_arrays(one[None], two[key]), np.broadcast_arrays(x[None], y[key]), strict=True):
        check_many(view, expected, memory)


@FEW
@given(st.data(), shapes(max_rank=2, max_extent=5, min_extent=1))
def test_counts_and_values_for_each_place(data: st.DataObject, shape: tuple[int, ...]) -> None:
    view, array = source(shape)
    axis = data.draw(st.none() | st.integers(-len(shape), len(shape) - 1)) if shape else None
    n = array.size if axis is None else shape[axis]
    counts = data.draw(st.lists(st.sampled_from([0, 1, 1, 2, 3]), min_size=n, max_size=n))
    check(repeat(view, counts, axis), np.repeat(array, counts, axis))
    check(repeat(view, [2], axis), np.repeat(array, [2], axis))
    width = st.integers(0, 2)
    value = data.draw(st.lists(st.tuples(*[st.integers(-9, -1)] * 2), min_size=len(shape), max_size=len(shape))) or 7
    widths = {k: data.draw(width | st.tuples(width, width)) for k in range(len(shape))} or 1
    if data.draw(st.booleans()):
        check(pad(view, widths, value=value), np.pad(array, widths, constant_values=value))
    else:
        check(pad(view, 1, value=(-1, -2)), np.pad(array, 1, constant_values=(-1, -2)))


def test_thousands_of_places_repeated_irregularly_are_one_table() -> None:
    n, wide = 3000, 10**9
    counts = np.random.default_rng(5).integers(0, 4, n)
    whole = allocate((n, wide), name="A")
    view, wanted = repeat(whole, counts, 0), np.repeat(np.arange(n), counts)
    assert view.shape == (len(wanted), wide) and len(view.pieces) == 1
    region = Region((n, wide), [Sett(Stripe(1, 6, 3)), Sett()])
    assert view.preimage(region).size == wide * int((wanted % 7 == 3).sum())
    assert view.origins()[whole].size == wide * len(set(wanted.tolist()))
    assert overlaps(view, whole[7:8]) == (7 in wanted)


@FEW
@given(st.data(), shapes(max_rank=2, max_extent=4))
def test_padding_with_memory(data: st.DataObject, shape: tuple[int, ...]) -> None:
    """One cell for all of the padding, or a block of new memory for each side of each axis."""
    view, cell = allocate(shape, name="A"), allocate((1, 1), name="zero", color="padding")
    widths = [(data.draw(st.integers(0, 2)), data.draw(st.integers(0, 2))) for _ in shape] or 0
    shared = pad(view, widths, padding=cell)
    memory = memory_for([view, cell])
    check_many(shared, np.pad(memory[view], widths, constant_values=int(memory[cell][0, 0])), memory)
    apart = pad(view, widths, padding=lambda block: allocate(block, name="block", color="padding"))
    values = read_view(apart, memory_for([apart]))
    assert len(set(values.ravel().tolist())) == apart.size and not apart.has_internal_overlap()
    assert apart.contains(view) and shared.contains(view)
    assert apart.colors() - view.colors() == ({"padding"} if apart.size > view.size else set())
    assert shared.has_internal_overlap() == (shared.size - view.size > 1)


def test_empty_views_have_no_pieces_to_read() -> None:
    view, array = source((0, 3))
    for made, expected in (
        (view.reshape(3, 0), array.reshape(3, 0)),
        (repeat(view, 2, 0), np.repeat(array, 2, 0)),
        (tile(view, (2, 2)), np.tile(array, (2, 2))),
        (roll(view, 1, 0), np.roll(array, 1, 0)),
        (pad(view, 1), np.pad(array, 1)),
        (view[::-1], array[::-1]),
        (concatenate([view, view]), np.concatenate([array, array])),
    ):
        check(made, expected)


@given(st.data(), shapes(min_extent=1, max_extent=4), st.integers(1, 3))
def test_concatenate_stack_interleave(data: st.DataObject, shape: tuple[int, ...], n: int) -> None:
    """Several allocations: each source's cells appear once, where NumPy puts them."""
    made = [allocate(shape, name=f"S{k}") for k in range(n)]
    memory = memory_for(made)
    arrays = [memory[v] for v in made]
    axis = data.draw(st.integers(-len(shape) - 1, len(shape)))
    check_many(stack(made, axis), np.stack(arrays, axis), memory)
    if not shape:
        return
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    check_many(concatenate(made, axis), np.concatenate(arrays, axis), memory)
    together = np.stack(arrays, axis % len(shape) + 1)
    extents = list(shape)
    extents[axis] *= n
    check_many(interleave(made, axis), together.reshape(extents), memory)
    check_many(concatenate([made[0], made[0][::-1]], 0), np.concatenate([arrays[0], arrays[0][::-1]]), memory)


def check_many(view: View, expected: np.ndarray, memory: dict[Any, np.ndarray]) -> None:
    assert view.shape == expected.shape
    np.testing.assert_array_equal(read_view(view, memory), expected)


@given(st.integers(0, 9), st.integers(1, 4))
def test_interleave_undoes_dealing(size: int, k: int) -> None:
    """The hands of a deal, uneven ones too, go back to the pack."""
    view, array = source((2, size))
    check(interleave([view[:, s::k] for s in range(k)], axis=1), array)


def test_long_chains_do_not_recurse() -> None:
    view, array = source((3, 4))
    for _ in range(3000):
        view = view.flip(0)
    check(view, array)


# ----------------------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("ours", "numpys"),
    [
        (lambda v: v.reshape(5, 5), lambda a: a.reshape(5, 5)),
        (lambda v: v.reshape(-1, 5), lambda a: a.reshape(-1, 5)),
        (lambda v: v.reshape(-1, -1), lambda a: a.reshape(-1, -1)),
        (lambda v: v[4], lambda a: a[4]),
        (lambda v: v[:, -7], lambda a: a[:, -7]),
        (lambda v: v[0, 0, 0], lambda a: a[0, 0, 0]),
        (lambda v: v[..., ...], lambda a: a[..., ...]),
        (lambda v: v[::0], lambda a: a[::0]),
        (lambda v: v.permute_dims((0, 0)), lambda a: a.transpose((0, 0))),
        (lambda v: v.permute_dims((0,)), lambda a: a.transpose((0,))),
        (lambda v: v.flip(2), lambda a: np.flip(a, 2)),
        (lambda v: v.flip((0, 0)), lambda a: np.flip(a, (0, 0))),
        (lambda v: v.squeeze(0), lambda a: a.squeeze(0)),
        (lambda v: v.expand_dims(4), lambda a: np.expand_dims(a, 4)),
        (lambda v: v.broadcast_to((4,)), lambda a: np.broadcast_to(a, (4,))),
        (lambda v: v.broadcast_to((2, 4, 5)), lambda a: np.broadcast_to(a, (2, 4, 5))),
        (lambda v: v.diagonal(0, 1, 1), lambda a: a.diagonal(0, 1, 1)),
        (lambda v: concatenate([v, v[:, 1:]]), lambda a: np.concatenate([a, a[:, 1:]])),
        (lambda v: concatenate([v[0, 0], v[0, 0]]), lambda a: np.concatenate([a[0, 0], a[0, 0]])),
        (lambda v: concatenate([]), lambda a: np.concatenate([])),
        (lambda v: stack([v, v[1:]]), lambda a: np.stack([a, a[1:]])),
        (lambda v: stack([v], 4), lambda a: np.stack([a], 4)),
        (lambda v: pad(v, -1), lambda a: np.pad(a, -1)),
        (lambda v: pad(v, ((1, 1),) * 3), lambda a: np.pad(a, ((1, 1),) * 3)),
        (lambda v: pad(v, 1, "mirror"), lambda a: np.pad(a, 1, "mirror")),
        (lambda v: pad(v[:0], 1, "edge"), lambda a: np.pad(a[:0], 1, "edge")),
        (lambda v: repeat(v, -1, 0), lambda a: np.repeat(a, -1, 0)),
        (lambda v: repeat(v, 2, 2), lambda a: np.repeat(a, 2, 2)),
        (lambda v: tile(v, -1), lambda a: np.tile(a, -1)),
        (lambda v: roll(v, 1, 2), lambda a: np.roll(a, 1, 2)),
        (lambda v: v.sliding_windows(5), lambda a: np.lib.stride_tricks.sliding_window_view(a, 5, 0)),
        (lambda v: len(v[0, 0]), lambda a: len(a[0, 0])),
    ],
)
def test_errors_are_of_numpys_types(ours: Callable[[View], Any], numpys: Callable[[np.ndarray], Any]) -> None:
    view, array = source((4, 6))
    with pytest.raises(Exception) as theirs:
        numpys(array)
    with pytest.raises(theirs.type if theirs.type is not TypeError else TypeError):
        ours(view)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda v: v.reshape(5, 5),
            r"reshape: cannot view shape \(4, 6\) \[24 elements\] as \(5, 5\) \[25\]",
        ),
        (lambda v: v[7], r"index 7 is out of bounds for axis 0 with size 4 of shape \(4, 6\)"),
        (lambda v: v.flip(2), r"flip: axis 2 is out of range for a shape of rank 2; give one in \[-2, 2\)"),
        (lambda v: v.squeeze(0), r"squeeze: axis 0 of shape \(4, 6\) has extent 4"),
        (lambda v: concatenate([v, v[:, 1:]]), r"source 1 has shape \(4, 5\), source 0 has \(4, 6\)"),
        (lambda v: interleave([v, v[:2]]), r"extents \[4, 2\] on axis 0 do not take turns; .* need \[3, 3\]"),
        (lambda v: v.sliding_windows(3, dilation=2), r"covers 5 cells, but axis 0 of shape \(4, 6\) has 4"),
        (lambda v: v.sliding_windows((1, 1), step=(1, 1, 1)), r"step \(1, 1, 1\) has 3 values for 2 axes"),
        (lambda v: v.sliding_windows(2, step=0), r"size, step and dilation of axis 0 must be >= 1"),
        (lambda v: pad(v, 1, "mirror"), "mode 'mirror' must be constant, edge"),
        (lambda v: allocate((3, -1)), r"extent -1 of axis 1 in shape \(3, -1\)"),
        (lambda v: allocate(3, dtype="float32", itemsize=8), "has 4 bytes but itemsize is 8"),
        (lambda v: allocate(3, itemsize=0), "itemsize 0 must be >= 1"),
        (lambda v: v[:1, :1].broadcast_to((-2, 1)), r"extents of shape \(-2, 1\) must be >= 0"),
        (lambda v: v[[0, 7]], r"index 7, number 1, is out of bounds for axis 0 with size 4 .*; give one in \[-4, 4\)"),
        (
            lambda v: v[:, np.ones(5, bool)],
            r"shape \(5,\) stands at axis 1 of .* \(4, 6\), whose extents are \(6,\)",
        ),
        (lambda v: v[[1, [2, 3]]], r"index 0 of the subscript is \[1, \[2, 3\]\], whose parts differ in length"),
        (lambda v: v[[1.5]], "index 0 of the subscript is an array of float64; indices are integers, or booleans"),
        (lambda v: v.moveaxis((0, 1), 0), r"moveaxis: 2 axes \(0, 1\) for 1 places \(0,\); give one place for each"),
        (lambda v: v.rot90(1, (0, 1, 0)), r"rot90: axes \(0, 1, 0\) must be two"),
        (lambda v: v.split(5), "split: axis 0 of shape .* has extent 4, which is not divided by 5; array_split"),
        (lambda v: v.array_split(0), "array_split: 0 parts; give 1 or more"),
        (lambda v: v[0, 0].mT, r"mT: shape \(\) has rank 0; a matrix transpose needs 2 axes"),
        (lambda v: repeat(v, [1, 2], 0), r"repeat: 2 counts for axis 0 of shape \(4, 6\); give 1 or 4"),
        (lambda v: roll(v, (1, 2, 3), (0, 1)), r"roll: 3 shifts \(1, 2, 3\) for 2 axes \(0, 1\); give as many, or one"),
        (lambda v: pad(v, 1, "edge", padding=v[0, 0]), "constants; mode 'edge' with value 0 is for none"),
        (lambda v: pad(v, 1, padding=v), r"the padding has shape \(4, 6\); give a view of one cell, or a function"),
        (
            lambda v: pad(v, 1, padding=lambda shape: v),
            r"gave .* for a block; it must give a view of \(1, 6\)",
        ),
        (lambda v: pad(v, ((1, 2), (3, 4), (5, 6))), r"must be one number, a pair, or 2 pairs"),
        (lambda v: pad(v, -2), "pad: widths: -2 must be >= 0; a slice makes a view smaller"),
        (lambda v: broadcast_arrays(v, v[:3]), r"view 1 of shape \(3, 6\) has extent 3 where others have 4"),
    ],
)
def test_errors_name_value_place_and_mend(make: Callable[[View], Any], message: str) -> None:
    with pytest.raises((ValueError, IndexError), match=message):
        make(allocate((4, 6)))


INTEGERS = st.integers(-7, 7)
MISTAKES = st.sampled_from([1.0, 0.5, "a", "1", None, True, 2**70, (), (1.5,), ((1, 2), 3)])
AXIS = st.integers(-2, 2) | st.integers(-4, 4) | MISTAKES
AXES = AXIS | st.tuples(AXIS, AXIS)
SOME = INTEGERS | MISTAKES | st.lists(INTEGERS, max_size=3) | st.lists(INTEGERS | MISTAKES, max_size=3).map(tuple)
SLICE = st.builds(slice, *[st.none() | INTEGERS | MISTAKES] * 3)
KEY = INTEGERS | SLICE | st.sampled_from([slice(None), None, ...]) | SOME
PAIR = st.tuples(INTEGERS, INTEGERS)
WIDTHS = SOME | st.tuples(st.tuples(SOME, SOME), PAIR) | st.dictionaries(AXIS, INTEGERS, max_size=2)
PART = st.sampled_from([0, slice(1), slice(1, 2), (slice(None), 0), (slice(None), slice(1)), ...])

WORDS: dict[str, tuple[Callable[..., Any], Callable[..., Any], st.SearchStrategy[tuple[Any, ...]]]] = {
    "reshape": (lambda v, *a: v.reshape(*a), lambda x, *a: x.reshape(*a), st.lists(SOME, max_size=3).map(tuple)),
    "permute_dims": (lambda v, a: v.permute_dims(a), np.permute_dims, st.tuples(AXES)),
    "transpose": (lambda v, *a: v.transpose(*a), lambda x, *a: x.transpose(*a), st.lists(AXIS, max_size=3).map(tuple)),
    "swapaxes": (lambda v, *a: v.swapaxes(*a), np.swapaxes, st.tuples(AXIS, AXIS)),
    "moveaxis": (lambda v, *a: v.moveaxis(*a), np.moveaxis, st.tuples(AXES, AXES)),
    "flip": (lambda v, a: v.flip(a), np.flip, st.tuples(AXES)),
    "flipud": (lambda v: v.flipud(), np.flipud, st.tuples()),
    "fliplr": (lambda v: v.fliplr(), np.fliplr, st.tuples()),
    "mT": (lambda v: v.mT, lambda x: x.mT, st.tuples()),
    "rot90": (lambda v, *a: v.rot90(*a), np.rot90, st.tuples(SOME, AXES)),
    "squeeze": (lambda v, a: v.squeeze(a), np.squeeze, st.tuples(AXES)),
    "expand_dims": (lambda v, a: v.expand_dims(a), np.expand_dims, st.tuples(AXES)),
    "broadcast_to": (lambda v, a: v.broadcast_to(a), np.broadcast_to, st.tuples(SOME)),
    "diagonal": (lambda v, *a: v.diagonal(*a), np.diagonal, st.tuples(INTEGERS | MISTAKES, AXIS, AXIS)),
    "sliding_windows": (
        lambda v, size, axis: v.sliding_windows(size, axis=axis),
        np.lib.stride_tricks.sliding_window_view,
        st.tuples(SOME, AXES),
    ),
    "take": (lambda v, *a: v.take(*a), np.take, st.tuples(SOME, AXIS)),
    "subscript": (lambda v, k: v[k], lambda x, k: x[k], st.tuples(KEY | st.lists(KEY, max_size=3).map(tuple))),
    "split": (lambda v, *a: v.split(*a), np.split, st.tuples(SOME, AXIS)),
    "array_split": (lambda v, *a: v.array_split(*a), np.array_split, st.tuples(SOME, AXIS)),
    "unstack": (lambda v, a: v.unstack(a), lambda x, a: np.unstack(x, axis=a), st.tuples(AXIS)),
    "repeat": (repeat, np.repeat, st.tuples(SOME, AXIS)),
    "tile": (tile, np.tile, st.tuples(SOME)),
    "roll": (roll, np.roll, st.tuples(SOME, AXES)),
    "pad": (pad, np.pad, st.tuples(WIDTHS, st.sampled_from([*MODES, "mirror", 3]))),
    "pad value": (
        lambda v, value: pad(v, 1, value=value),
        lambda x, value: np.pad(x, 1, constant_values=value),
        st.tuples(WIDTHS.filter(lambda w: not isinstance(w, dict))),
    ),
    "concatenate": (
        lambda v, a, k: concatenate([v, v[k]], a),
        lambda x, a, k: np.concatenate([x, x[k]], a),
        st.tuples(AXIS, PART),
    ),
    "stack": (lambda v, a, k: stack([v, v[k]], a), lambda x, a, k: np.stack([x, x[k]], a), st.tuples(AXIS, PART)),
    "hstack": (lambda v, k: hstack([v, v[k]]), lambda x, k: np.hstack([x, x[k]]), st.tuples(PART)),
    "vstack": (lambda v, k: vstack([v, v[k]]), lambda x, k: np.vstack([x, x[k]]), st.tuples(PART)),
    "broadcast_arrays": (
        lambda v, k: broadcast_arrays(v, v[k]),
        lambda x, k: np.broadcast_arrays(x, x[k]),
        st.tuples(PART),
    ),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("word", WORDS)
@FEW
@given(data=st.data())
def test_wrong_arguments_are_refused_as_numpy_refuses_them(word: str, data: st.DataObject) -> None:
    """Where NumPy raises, so do we, the same class or one of its kind; what NumPy accepts gives the same shapes."""
    ours, theirs, arguments = WORDS[word]
    shape = data.draw(st.sampled_from([(2, 3), (4, 1), (3,), (2, 3, 4), (), (0, 3)]))
    view, array = source(shape)
    args = data.draw(arguments)
    error, made = outcome(ours, view, *args)
    wrong, expected = outcome(theirs, array, *args)
    if wrong is None and error is None:
        many = isinstance(made, (list, tuple))
        assert [x.shape for x in (made if many else [made])] == [x.shape for x in (expected if many else [expected])]
    elif error is None:
        assert is_more(word, args), f"{made} where NumPy has {wrong!r}"
    else:
        known = (TypeError, ValueError, IndexError, np.exceptions.AxisError, TooManyPieces)
        assert len(str(error)) > 25 and type(error) in known, error
        assert is_mistaken(args) or isinstance(error, public(wrong)) or is_stricter(word, args, shape), (error, wrong)


def outcome(f: Callable[..., Any], *args: Any) -> tuple[Exception | None, Any]:
    try:
        return None, f(*args)
    except Exception as error:
        return error, None


def public(error: Exception | None) -> type[BaseException] | tuple[()]:
    """The first class of an error that NumPy's users can name."""
    return () if error is None else next(c for c in type(error).__mro__ if not c.__module__.startswith("numpy._"))


def is_mistaken(x: Any) -> bool:
    """Whether something in the arguments is not an integer, slice or shallow sequence where these belong.

    These are a TypeError (an IndexError in a subscript) before all else, also where NumPy converts them or comes to
    another error first.
    """
    if isinstance(x, slice):
        return any(part is not None and is_mistaken(part) for part in (x.start, x.stop, x.step))
    if isinstance(x, dict):
        return not x or any(map(is_mistaken, (*x.keys(), *x.values())))
    if isinstance(x, (list, tuple)):
        return not x or any(map(is_mistaken, x)) or any(isinstance(y, (list, tuple)) for y in x)
    return isinstance(x, (bool, float)) or x is None or x == 2**70 or (isinstance(x, str) and x not in MODES)


def is_stricter(word: str, args: tuple[Any, ...], shape: tuple[int, ...]) -> bool:
    """Whether this is what the documentation of `tapestry_sets.views.words` says that we refuse and NumPy does not."""
    if word in ("take", "repeat", "tile") and 0 in shape:
        return True  # indices and counts count, also where nothing is read
    if not shape and word in ("take", "repeat", "squeeze"):
        return True  # rank 0 has no axes
    if word == "sliding_windows":
        return args[0] == 0 or 0 in np.ravel(args[0]) or len(set(np.ravel(args[1]).tolist())) < np.size(args[1])
    if word == "pad":
        return not isinstance(args[1], str)  # a mode that is not a word is a TypeError, also where nothing is padded
    if word == "subscript":
        return isinstance(args[0], tuple) and sum(isinstance(k, (list, tuple)) for k in args[0]) > 1
    return (word == "reshape" and min(np.ravel(args)) < -1) or (word == "split" and args[0] == 0)


def is_more(word: str, args: tuple[Any, ...]) -> bool:
    """Whether this is what the documentation says that we accept and NumPy does not."""
    if word == "sliding_windows":
        return isinstance(args[0], int)  # one size for all axes
    if "1180591620717411303424" in repr(args):
        return True  # sizes may be longer than 64 bits can say
    if word == "pad value":
        return args[0] in ([], ())  # of no axis
    if word in ("pad", "roll"):
        return args[0] in ({}, [], ()) or args[1] == ()  # of no axis
    return word == "squeeze" and isinstance(args[0], list)


def test_booleans_and_floats_are_not_integers() -> None:
    view = allocate((4, 6))
    for make in (
        lambda: view.reshape(4.0, 6),
        lambda: view.take(True, 0),
        lambda: view.take([True, False, True, True], 0),
        lambda: allocate((2, 1.5)),
    ):
        with pytest.raises(TypeError):
            make()
    for key in (True, 1.0, "a", [1.0], [[None]], np.array([]), np.array(1.5)):
        with pytest.raises(IndexError):
            view[key]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda v: concatenate([v, np.zeros((4, 6))]), "concatenate: source 1 is a ndarray, not a view"),
        (lambda v: concatenate([np.zeros((4, 6)), v]), "concatenate: source 0 is a ndarray, not a view"),
        (lambda v: stack([v, 3]), "stack: source 1 is a int, not a view"),
        (lambda v: v.contains(np.zeros(3)), "the other is a ndarray, not a View; as_view"),
        (lambda v: v.same_elements(np.zeros(3)), "the other is a ndarray, not a View; as_view"),
        (lambda v: v.diagonal(0.5), "diagonal: offset"),
        (
            lambda v: v[[0, 1], [1, 2]],
            r"\[0, 1\], \[1, 2\]\) has several arrays; .* x.take\(one, axis\)",
        ),
        (lambda v: v[np.zeros(4, bool), [1, 2]], "has several arrays"),
        (
            lambda v: v.sample(~Region.from_bounds((4, 6), (1, 1), (2, 2))),
            "sample: takes one Region, not .* of 4; sample",
        ),
        (lambda v: v.fill_into([Region.full((4, 6))], v), "fill_into: region must be a Region, not list"),
        (lambda v: v.fill_into(Region.full((4, 6)), np.zeros((4, 6))), "into is a ndarray, not a View; as_view"),
        (lambda v: v.reshape(), r"reshape: shape is not given; .*, and \(\(\)\) for rank 0"),
        (lambda v: hstack([v, 3]), "hstack: source 1 is a int, not a view"),
        (lambda v: broadcast_arrays(v, [1]), "broadcast_arrays: source 1 is a list, not a view"),
        (lambda v: 3 in v, "View|Allocation"),
        (lambda v: concatenate(3), "concatenate: takes a sequence of views, not a int"),
        (lambda v: hstack(None), "hstack: takes a sequence of views, not a NoneType"),
        (lambda v: pad(3, 1), "pad: takes a view, not a int"),
        (lambda v: repeat(3, 1), "repeat: takes a view, not a int"),
        (lambda v: tile(3, 1), "tile: takes a view, not a int"),
        (lambda v: roll(3, 1), "roll: takes a view, not a int"),
        (lambda v: pad(v, 1, padding=3), "pad: padding is a int"),
        (lambda v: v.sample(None), r"sample: region is a NoneType; give a Region of shape \(4, 6\)"),
        (lambda v: v.sample([Stripe(1, 1), 3]), "sample: axis 1 takes a Sett or a Stripe, not a int"),
        (lambda v: fill_into(Region.full((4, 6)), [v]), "fill_into: regions is a Region; give DisjointRegions"),
        (lambda v: v.split([1, "x"]), r"split: indices\[1\] must be an integer"),
        (lambda v: allocate((3,), name=5), "allocate: name 5 is a int; give a string"),
        (lambda v: v.apply(Concat(0), 3), "apply: source 1 of Concat is a int"),
    ],
)
def test_what_is_of_no_use_is_refused(make: Callable[[View], Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        make(allocate((4, 6)))


def test_the_shape_of_a_view_is_its_kind_s() -> None:
    a = allocate((4, 6), name="a")
    assert Derived((6,), Index(((0, 3),)), (a,)) == a[3]
    with pytest.raises(ValueError, match=r"Derived: shape \(4,\) for a Index of its sources, which has \(6,\)"):
        Derived((4,), Index(((0, 3),)), (a,))


def test_what_is_equal_has_one_hash_however_it_was_made() -> None:
    p, q = allocate((4,)), allocate((4,))
    for view in (
        concatenate([p, q])[4:],
        stack([p, q])[1],
        pad(concatenate([p, q]), 2)[6:10],
        concatenate([p[:0], q]),
        concatenate([p, q]).reshape(2, 4)[::-1][0],
    ):
        assert view == q and hash(view) == hash(q) and {q: 1}.get(view) == 1


def test_views_are_pickled_and_copied_however_long_their_chain() -> None:
    a = allocate((100,), name="a", itemsize=4, color="red")
    view = a
    for _ in range(3000):
        view = view[::-1]
    for made in (pickle.loads(pickle.dumps(view)), copy.deepcopy(view)):
        (home,) = made.allocations
        assert made.shape == (100,) and (home.name, home.itemsize, home.color) == ("a", 4, "red")
        assert made.cells[home].index_of((7,)) == (7,) and not overlaps(made, a)
    assert copy.copy(view) is view
    one, two = pickle.loads(pickle.dumps((a[::2], concatenate([a[1:], a[:1]]))))
    assert overlaps(one, two) and one.allocations == two.allocations


@pytest.mark.parametrize("kind", [Repeat(1.5, 0), Reshape((24.0,)), Tile((1.5,)), Pad(((1.5, 1), (0, 0)))])  # type: ignore[arg-type]
def test_kinds_of_no_integers_are_refused(kind: ViewKind) -> None:
    with pytest.raises(TypeError, match="is not an int; give integers"):
        allocate((4, 6)).apply(kind)


def test_what_is_not_a_kind_is_refused() -> None:
    with pytest.raises(TypeError, match="apply: 3 is not a view kind, which has the methods out_shape and pieces"):
        allocate((4, 6)).apply(3)  # type: ignore[arg-type]


def test_a_value_is_for_constants() -> None:
    with pytest.raises(ValueError, match="pad: mode 'reflect' takes no value, but value is 3"):
        pad(allocate((4,)), 1, "reflect", value=3)


def test_an_empty_sett_leaves_the_other_axes_their_extents() -> None:
    a = allocate((4, 6))
    values = np.arange(24).reshape(4, 6)
    for none in (DisjointSetts(), Stripe(0, 1), Sett(Stripe(0, 1)), Stripe(1, 9, phase=7)):
        assert a.sample([none, Stripe(2, 1)]).shape == values[[]][:, [0, 1, 3, 4]].shape
        assert a.sample([Stripe(1, 1), none]).shape == values[::2][:, []].shape
    assert allocate((0, 5)).sample([Stripe(1, 1), Stripe(1, 1)]).shape == (0, 3)


def test_a_view_stands_for_its_rows_where_several_are_taken() -> None:
    a = allocate((3, 4, 5))
    values = np.arange(60).reshape(3, 4, 5)
    for ours, theirs in ((concatenate, np.concatenate), (stack, np.stack), (hstack, np.hstack), (vstack, np.vstack)):
        assert ours(a).shape == theirs(values).shape  # type: ignore[arg-type]
        assert ours(a) == ours([a[0], a[1], a[2]])  # type: ignore[arg-type]


def test_a_view_is_walked_by_rows_and_indexed_by_integers_of_any_type() -> None:
    view = allocate((3, 2))
    assert [row.shape for row in view] == [(2,)] * 3
    assert view[np.int64(1), np.array(0)].cells[view].index_of((1, 0)) == ()


# ---------------------------------------------------------------------------------------- a kind from outside


@dataclass(frozen=True, slots=True)
class Snake:
    """Every second row backwards: (i, j) reads (i, j) or (i, n − 1 − j)."""

    def out_shape(self, shapes: tuple[tuple[int, ...], ...]) -> tuple[int, ...]:
        return shapes[0]

    def pieces(self, shapes: tuple[tuple[int, ...], ...]) -> tuple[Piece, ...]:
        rows, n = shapes[0]
        half = -(-rows // 2)
        split = Relinearize((2 * half, n), (half, 2, n))
        made = []
        for odd, (c, b) in enumerate([(1, 0), (-1, n - 1)]):
            steps: tuple[Step, ...] = (split, AffineMap(((2, 1, 0), (0, 0, c)), (0, b)))
            guard = Guard(1, Region.from_bounds((half, 2, n), (0, odd, 0), (half, odd + 1, n)))
            made.append(Piece(0, (guard,), IndexMap(steps)))
        return tuple(made)


def snaked(array: np.ndarray) -> np.ndarray:
    out = array.copy()
    out[1::2] = out[1::2, ::-1]
    return out


@pytest.mark.parametrize("rows", [4, 5])
def test_a_kind_from_outside_works_everywhere(rows: int) -> None:
    """A new kind is written in one place: reading, composing, images, alias queries and drawing follow."""
    assert isinstance(Snake(), ViewKind)
    view, array = source((rows, 3))
    made, expected = view.apply(Snake()), snaked(array)
    check(made, expected)
    check(made[:, 0], expected[:, 0])
    check(made.reshape(3, rows).T, expected.reshape(3, rows).T)
    check(view.flip(0).apply(Snake()), snaked(array[::-1]))
    column = made[:, 0]
    cells = {int(v) - 1 for v in expected[:, 0]}
    found = set()
    for piece in column.pieces:
        image = piece_image(piece, Box.of(column.shape), view.shape)
        found |= {int(np.ravel_multi_index(tuple(p), view.shape)) for p in image.points()}
    assert found == cells
    assert overlaps(column, view[1, 2]) and not overlaps(column, view[:, 1])
    assert overlap(column, view[:, 2]).size == len(cells & {3 * r + 2 for r in range(rows)})
    picture = show_views(column, mode="grid", indices=False)
    assert [line[-3:] for line in picture.text.splitlines()[3 : 3 + rows]] == (["1..", "..1"] * rows)[:rows]
    assert picture.svg.count("<rect") == 3 * rows


# --------------------------------------------------------------------------------------- the documents' examples


def conv1d(x: np.ndarray, w: np.ndarray, dilation: int = 1) -> np.ndarray:
    """Direct sums along the last axis."""
    out = x.shape[-1] - (len(w) - 1) * dilation
    return sum(w[k] * x[..., k * dilation : k * dilation + out] for k in range(len(w)))


@pytest.mark.parametrize(("size", "kernel", "dilation"), [(17, 3, 2), (16, 3, 3), (23, 2, 4), (12, 4, 1)])
def test_dilated_convolution_is_dense_convolutions_interleaved(size: int, kernel: int, dilation: int) -> None:
    """Tapestry, "Tensor View Selections": strided slices → dense convolutions → interleave."""
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((2, size)), rng.standard_normal(kernel)
    X = allocate((2, size), name="X")
    dense = []
    for s in range(dilation):
        strided = read_view(X[:, s::dilation], {X: x})
        dense.append(conv1d(strided, w))
    results = [allocate(d.shape, name=f"Y{s}") for s, d in enumerate(dense)]
    together = interleave(results, axis=1)
    np.testing.assert_allclose(
        read_view(together, dict(zip(results, dense, strict=True))), conv1d(x, w, dilation), atol=1e-12
    )
    # neighbors within one strided slice share data; the slices share none
    parts = [X[:, s::dilation].sliding_windows(kernel, axis=1) for s in range(dilation)]
    assert all(p.has_internal_overlap() for p in parts)
    assert not any(overlaps(p, q) for k, p in enumerate(parts) for q in parts[:k])


def test_strided_convolution_is_a_dense_one_on_slices() -> None:
    """Stride 2 with kernel 2 over x: a dense kernel of one cell over each of two strided slices, added."""
    rng = np.random.default_rng(1)
    x, w = rng.standard_normal(12), rng.standard_normal(2)
    X = allocate((12,), name="X")
    windows = read_view(X.sliding_windows(2, step=2), {X: x})
    slices = [read_view(X[s::2], {X: x}) for s in range(2)]
    np.testing.assert_allclose(windows @ w, conv1d(x, w)[::2])
    np.testing.assert_allclose(w[0] * slices[0] + w[1] * slices[1], conv1d(x, w)[::2])


def test_selection_names_one_source_for_each_cell() -> None:
    """A selection maps each coordinate of a view to a (tensor, coordinate) of exactly one source."""
    a, b = allocate((3, 4), name="a"), allocate((2, 4), name="b")
    memory = memory_for([a, b])
    view = pad(concatenate([a, b])[::-1], ((0, 0), (1, 1)), "reflect")
    np.testing.assert_array_equal(
        read_view(view, memory),
        np.pad(np.concatenate([memory[a], memory[b]])[::-1], ((0, 0), (1, 1)), "reflect"),
    )


def test_views_made_alike_are_equal_however_many_pieces_they_have() -> None:
    A = allocate((10**6,))

    def joined(n: int) -> View:
        return concatenate([A[3 * i : 3 * i + 3] for i in range(n)])

    assert joined(1500) == joined(1500) and hash(joined(1500)) == hash(joined(1500))
    assert joined(1500) != concatenate([A[3 * i : 3 * i + 3] for i in reversed(range(1500))])
    said = repr(joined(1500)[::2])
    assert said.startswith("concatenate([allocate((1000000,))[0:3], ") and said.endswith("[4497:4500]])[::2]")


@pytest.mark.parametrize("use", [np.asarray, lambda v: np.shares_memory(v, np.zeros(3)), lambda v: np.pad(v, 1)])
def test_numpy_is_told_that_views_have_no_values(use: Callable[[View], object]) -> None:
    with pytest.raises(TypeError, match="places and no values"):
        use(allocate((300, 300)))


def test_arrays_compare_with_views_as_a_whole() -> None:
    A = allocate((3,))
    assert (A == np.zeros(3)) is False and (np.zeros(3) == A) is False  # noqa: SIM300


@pytest.mark.parametrize("make", [lambda a: allocate((3,), color=[1]), lambda a: a.recolor([1]), lambda a: a.clone({})])
def test_colors_are_hashable(make: Callable[[View], View]) -> None:
    with pytest.raises(TypeError, match="which has no hash"):
        make(allocate((3,)))


def test_memory_of_objects_is_refused() -> None:
    with pytest.raises(ValueError, match="references to objects"):
        allocate((3,), dtype=object)
