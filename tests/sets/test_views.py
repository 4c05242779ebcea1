"""Every view kind against NumPy, cell by cell."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapestry_sets import (
    AffineMap,
    Box,
    Guard,
    IndexMap,
    Piece,
    Region,
    Relinearize,
    View,
    ViewKind,
    allocate,
    concatenate,
    interleave,
    pad,
    piece_image,
    repeat,
    roll,
    stack,
    tile,
)
from tapestry_sets.alias import overlap, overlaps
from tapestry_sets.draw import views_svg, views_text
from tapestry_sets.maps import Step
from tests.oracles import memory_for, read_view
from tests.strategies import shapes, subscripts, views

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
    ],
)
def test_errors_name_value_place_and_mend(make: Callable[[View], Any], message: str) -> None:
    with pytest.raises((ValueError, IndexError), match=message):
        make(allocate((4, 6)))


def test_booleans_and_floats_are_no_integers() -> None:
    view = allocate((4, 6))
    for make in (
        lambda: view[True],
        lambda: view[1.0],
        lambda: view.reshape(4.0, 6),
        lambda: allocate((2, 1.5)),
    ):
        with pytest.raises(TypeError):
            make()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda v: concatenate([v, np.zeros((4, 6))]), "Concat: source 1 is a ndarray, not a View"),
        (lambda v: concatenate([np.zeros((4, 6)), v]), "concatenate: source 0 is a ndarray, not a View"),
        (lambda v: stack([v, 3]), "Stack: source 1 is a int, not a View"),
        (lambda v: v.contains(np.zeros(3)), "the other is a ndarray, not a View; as_view"),
        (lambda v: v.same_elements(np.zeros(3)), "the other is a ndarray, not a View; as_view"),
        (lambda v: v.diagonal(0.5), "diagonal: offset"),
        (lambda v: v[np.zeros((4, 6), bool)], r"index of axis 0 is a ndarray of shape \(4, 6\); a view takes"),
        (lambda v: v[0, [1, 2]], r"index of axis 1 is a list of shape \(2,\); a view takes"),
        (lambda v: 3 in v, "View|Allocation"),
    ],
)
def test_what_is_of_no_use_is_refused(make: Callable[[View], Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        make(allocate((4, 6)))


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
    assert views_text(column).splitlines() == ["A", *(["1..", "..1"] * rows)[:rows]]
    assert views_svg(column)[view].count("<rect") == 3 * rows


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
    # neighbours within one strided slice share data; the slices share none
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
