"""Views go to isl's maps and back: the same cells both ways, index by index, of numbers and of symbols."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from tapestry_sets import NonAffineSize, allocate, concatenate, from_isl, overlap_count, pad, symbolic_allocate, to_isl
from tests.strategies import view_pairs, views

islpy = pytest.importorskip("islpy")
sympy = pytest.importorskip("sympy")
N = sympy.Symbol("N", integer=True, positive=True)
M = sympy.Symbol("M", integer=True, nonnegative=True)


def points_of(m: Any) -> dict[tuple[int, ...], tuple[int, ...]]:
    """The cell of each index that a map of isl has, point by point."""
    found: dict[tuple[int, ...], tuple[int, ...]] = {}
    many = m.dim(islpy.dim_type.in_)

    def note(point: Any) -> None:
        every = [point.get_coordinate_val(islpy.dim_type.set, k).to_python() for k in range(m.wrap().n_dim())]
        assert tuple(every[:many]) not in found
        found[tuple(every[:many])] = tuple(every[many:])

    m.wrap().flatten().foreach_point(note)
    return found


def table_of(array: np.ndarray, shape: tuple[int, ...]) -> dict[tuple[int, ...], tuple[int, ...]]:
    """The same of an array that holds one more than the number of each cell, and 0 where none is read."""
    array = np.asarray(array)
    each = [(at, int(array[at]) - 1) for at in np.ndindex(*array.shape) if array[at] > 0]
    return {at: tuple(map(int, np.unravel_index(z, shape))) if shape else () for at, z in each}


@settings(max_examples=30)
@given(views(3, 60))
def test_views_come_back_as_they_were(case: tuple[Any, np.ndarray]) -> None:
    view, array = case
    (home,) = view.allocations
    maps = to_isl(view)
    assert points_of(maps[home]) == table_of(array, home.shape)
    back = from_isl(maps, within=view.shape)
    assert back.shape == view.shape and points_of(to_isl(back)[home]) == table_of(array, home.shape)


@settings(max_examples=30)
@given(view_pairs())
def test_views_without_constants_are_equal(pair: tuple[Any, ...]) -> None:
    for view, array in (pair[:2], pair[2:4]):
        if np.asarray(array).size and np.asarray(array).min() > 0:
            assert from_isl(to_isl(view)) == view


def test_several_allocations_and_pads() -> None:
    A, B = allocate((4, 6), name="A"), allocate((3, 6), name="B")
    view = concatenate([A[::-2], pad(B[1:], 1)[1:-1, 1:-1], A[1:2]])
    assert from_isl(to_isl(view)) == view
    padded = pad(A, 1)
    assert from_isl(to_isl(padded), within=padded.shape) == padded
    assert from_isl(to_isl(padded)).shape == (5, 7), "where it ends, no map says"
    assert from_isl(to_isl(A[:0]), within=(0, 6)) == A[:0] and from_isl(to_isl(A.take([2, 0, 3]))) == A.take([2, 0, 3])
    assert from_isl({A: "{ [i] -> [i, 2i] : 0 <= i < 3 }"}) == A.reshape(24)[:24:8]


def test_large_views_come_back() -> None:
    A = allocate((10**9, 10**6), name="A")
    for view in (A[::3, 5:].T, A.reshape(10**6, 10**3, 10**6)[7, ::2], A.flip()[1:]):
        assert from_isl(to_isl(view)) == view


WORDS: dict[str, Any] = {
    "slice": lambda a: a[1:, ::2],
    "transpose": lambda a: a.T[::3],
    "flip": lambda a: a.flip(0)[:, 1:],
    "rows": lambda a: a.reshape(a.shape[0], a.shape[1] // 3, 3)[:, :, 1:],
    "broadcast": lambda a: a[:, :1].broadcast_to(a.shape)[::2],
    "start": lambda a: a[a.shape[0] // 2 if isinstance(a.shape[0], int) else N :, 2:],
}


@pytest.mark.parametrize("word", WORDS)
def test_symbols_are_parameters_and_back(word: str) -> None:
    A = symbolic_allocate((2 * N, 3 * N), name="A")
    view = WORDS[word](A)
    maps = to_isl(view)
    (m,) = maps.values()
    assert [m.get_dim_name(islpy.dim_type.param, k) for k in range(m.dim(islpy.dim_type.param))] == ["N"]
    back = from_isl(maps)
    counts = overlap_count(back, A), overlap_count(view, A)
    for n in (1, 2, 3, 4):
        assert [[int(x.subs(N, n)) for x in shape] for shape in (back.shape, view.shape)] == [
            [*view.at({N: n}).shape]
        ] * 2
        assert counts[0].subs(N, n) == counts[1].subs(N, n)
        table = np.arange(6 * n * n).reshape(2 * n, 3 * n)
        cells = np.asarray(WORDS[word](table) if word not in ("flip", "broadcast") else BY_NUMPY[word](table))
        assert points_of(m.fix_val(islpy.dim_type.param, 0, n).project_out_all_params()) == table_of(
            cells + 1, table.shape
        )
        assert back.at({N: n}) == view.at({N: n}) and back.at({N: n}).shape == cells.shape


BY_NUMPY = {
    "flip": lambda a: np.flip(a, 0)[:, 1:],
    "broadcast": lambda a: np.broadcast_to(a[:, :1], a.shape)[::2],
}


def test_folded_axes_and_other_symbols() -> None:
    A = symbolic_allocate((N, 4, 6), name="A")
    for view in (A.reshape(N, 24)[:, ::5], A[:, 1:3, ::-2], A.reshape(4 * N, 6)[2:]):
        back = from_isl(to_isl(view))
        for n in (1, 2, 5):
            assert back.at({N: n}) == view.at({N: n})
    shifted = from_isl({A.base: "[N, k] -> { [i] -> [i + k, 0, 5] : 0 <= i < N - k and 0 <= k < N }"})
    (k,) = [s for s in shifted.shape[0].free_symbols if s.name == "k"]
    assert k.is_nonnegative and shifted.at({N: 7, k: 2}) == allocate_like(shifted, {N: 7, k: 2})[2:, 0, 5]
    assert M not in shifted.shape[0].free_symbols


def allocate_like(view: Any, values: dict[Any, int]) -> Any:
    return view.base.at(values)


A = allocate((4, 6), name="A")
S = symbolic_allocate((N, 6), name="S")
EVEN = "[N] -> { [i] -> [i, 0] : 0 <= i < N and i mod 2 = 0 }"
HALVES = "[N] -> { [i] -> [i, 0] : 0 <= 2i < N; [i] -> [i, 1] : N <= 2i < 2N }"
FLOORS = "[N] -> { [i] -> [floor(i/2), 0] : 0 <= i < N }"


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: from_isl({}), ValueError, "a mapping of memory to isl's maps is empty"),
        (lambda: from_isl({3: "{ [i] -> [i] }"}), TypeError, "keys of a mapping must be allocations"),
        (lambda: from_isl({A: "{ [i] : 0 <= i < 3 }"}), TypeError, "is not a map"),
        (lambda: from_isl({A: "{ [i] -> [i] : 0 <= i < 3 }"}), ValueError, "has 2 axes"),
        (lambda: from_isl({A: "{ [i] -> [i, j] : 0 <= i, j < 3 }"}), ValueError, "takes an index to several cells"),
        (lambda: from_isl({A: "{ [i] -> [i, 0] : 0 <= i < 5 }"}), ValueError, "reads outside 'A'"),
        (lambda: from_isl({A: "{ [i] -> [3, 0] : i >= 0 }"}), ValueError, "give within= the view's shape"),
        (lambda: from_isl({A: "{ [i] -> [3, 0] : -2 <= i < 5 }"}), ValueError, "has indices below 0"),
        (lambda: from_isl({A: "{ [i] -> [3, 0] : 0 <= i < 5 }"}, within=(2, 2)), ValueError, "a view of rank 1"),
        (lambda: from_isl({A: "[n] -> { [i] -> [i, n] : 0 <= i < 3 }"}), ValueError, "has parameters n"),
        (lambda: from_isl({S.base: EVEN}), NonAffineSize, "not one function"),
        (lambda: from_isl({S.base: HALVES}), NonAffineSize, "ends at several expressions"),
        (lambda: from_isl({S.base: FLOORS}), NonAffineSize, "takes floors of an index"),
        (lambda: to_isl(symbolic_allocate((N, N)).reshape(N * N)[::5]), NonAffineSize, "cannot tell the index"),
    ],
)
def test_wrong_input(call: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        call()
