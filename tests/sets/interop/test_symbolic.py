"""Symbolic sizes: conditions and counts agree, size by size, with NumPy's arrays and with the numeric engine."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import sympy
from hypothesis import assume, given
from hypothesis import strategies as st

from tapestry_sets import TooHard, TooManyPieces, limits, overlap, overlaps
from tapestry_sets.alias.ladder.cells import Cells
from tapestry_sets.interop.symbolic import SymbolicView, symbolic_allocate
from tapestry_sets.interop.symbolic_counts import distinct_count, overlap_condition, overlap_count
from tapestry_sets.interop.symbolic_expressions import NonAffineSize

N = sympy.Symbol("N", integer=True, positive=True)
M = sympy.Symbol("M", integer=True, nonnegative=True)
Move = Callable[[Any], Any]


def array(shape: tuple[Any, ...], values: Mapping[Any, int]) -> np.ndarray:
    """An array in which each cell holds its own number."""
    extents = [int(sympy.sympify(n).subs(values)) for n in shape]
    return np.arange(int(np.prod(extents))).reshape(extents)


def same_at(condition: Any, count: Any, one: np.ndarray, two: np.ndarray, values: Mapping[Any, int]) -> None:
    """Assert that a condition and a count are what two arrays of cells show."""
    common = np.intersect1d(one, two)
    assert bool(sympy.sympify(condition).subs(values)) == (common.size > 0), f"{condition} at {values}"
    assert sympy.sympify(count).subs(values) == common.size, f"{count} at {values}"


# ------------------------------------------------------------------------------------------------- named examples


def seeds_cube(a: Any, n: Any) -> tuple[Any, Any]:
    return a.reshape(n, 3, 3)[:2, :2, :2], a[2::5]


def seeds_long_cube(a: Any, n: Any) -> tuple[Any, Any]:
    return a.reshape(3 * n, 3, 3)[: 2 * n, :2, :2], a[2::5]


def flat_cube(a: Any, n: Any) -> tuple[Any, Any]:
    return a[:2, :2, :2], a.reshape(n**3)[2::5]


def tiled(x: Any) -> Any:
    n = x.shape[0]
    quarter, eighth, half = (n * n / 4, n * n / 8, n / 2)
    if isinstance(n, int):
        quarter, eighth, half = n * n // 4, n * n // 8, n // 2
    return x.reshape(quarter, 4)[:, 0:2].reshape(4, eighth)[0:2, :].reshape(half, half)


def tiles_of_the_middle(a: Any, n: Any) -> tuple[Any, Any]:
    return tiled(a), tiled(a[2:-2, 2:-2])


def tiles_of_the_seed(a: Any, n: Any) -> tuple[Any, Any]:
    return tiled(a), tiled(a[1 : 4 * n - 3, 1 : 4 * n - 3])


def every_other_row(a: Any, n: Any) -> tuple[Any, Any]:
    return a.reshape(5, n)[::2], a.reshape(5, n).T[::3]


def steps(a: Any, n: Any) -> tuple[Any, Any]:
    return a[2::7], a[::-4]


def columns_of_tiles(a: Any, n: Any) -> tuple[Any, Any]:
    return a.reshape(n, 8)[:, 1:4], a.reshape(2 * n, 4)[1::3, ::2]


def halves(a: Any, n: Any) -> tuple[Any, Any]:
    return a[:, :n], a[::2, n - 1 :]


def windows_apart(a: Any, n: Any) -> tuple[Any, Any]:
    return a[: n + 3], a[2 * n :: 3]


NAMED = {
    "27 cells": ((9 * N,), seeds_cube),
    "27 N cells": ((27 * N,), seeds_long_cube),
    "N N N cells": ((N, N, N), flat_cube),
    "tiles": ((4 * N, 4 * N), tiles_of_the_middle),
    "tiles of the seed": ((4 * N, 4 * N), tiles_of_the_seed),
    "rows of a flat array": ((5 * N,), every_other_row),
    "steps": ((N,), steps),
    "columns of tiles": ((8 * N,), columns_of_tiles),
    "halves": ((2 * N, 2 * N), halves),
    "windows": ((3 * N,), windows_apart),
}


@pytest.mark.heavy(2)
@pytest.mark.parametrize("name", NAMED)
def test_named_examples_agree_with_arrays_and_the_numeric_engine(name: str) -> None:
    shape, views = NAMED[name]
    b, c = views(symbolic_allocate(shape), N)
    condition, count = overlap_condition(b, c), overlap_count(b, c)
    sizes = [distinct_count(b), distinct_count(c)]
    large = 24 if len(shape) > 2 else 60 if len(shape) > 1 else 300
    for n in range(1, large):
        values = {N: n}
        one, two = views(array(shape, values), n)
        same_at(condition, count, one, two, values)
        assert [s.subs(values) for s in sizes] == [np.unique(one).size, np.unique(two).size]
        x, y = b.at(values), c.at(values)
        assert (x.shape, y.shape) == (one.shape, two.shape)
        assert (overlaps(x, y), overlap(x, y).size) == (bool(condition.subs(values)), count.subs(values))


def test_named_examples_are_decided_at_sizes_that_cannot_be_listed() -> None:
    shape, views = NAMED["columns of tiles"]
    b, c = views(symbolic_allocate(shape), N)
    values = {N: 10**15 + 7}
    assert overlap_count(b, c).subs(values) == overlap(b.at(values), c.at(values)).size > 10**14


def test_conditions_are_short() -> None:
    a = symbolic_allocate((N,))
    assert overlap_condition(a[2::5], a[::3]) == (N >= 13)
    assert overlap_condition(a[::2], a[::-2]) == sympy.Eq(sympy.Mod(N, 2), 1)
    assert overlap_condition(a[::3], a[::-2]) == sympy.Or(
        sympy.Eq(sympy.Mod(N, 2), 1), sympy.And(sympy.Eq(sympy.Mod(N, 2), 0), N >= 4)
    )
    assert overlap_condition(a[::2], a[1::2]) == sympy.false
    assert overlap_condition(a, a[::-3]) == sympy.true
    assert overlap_condition(a, symbolic_allocate((N,))) == sympy.false
    assert overlap_count(a, symbolic_allocate((N,))) == 0
    square = symbolic_allocate((3 * N, 3 * N))
    assert overlap_count(square[::3], square[:, ::3]) == N**2


def test_conditions_of_many_residue_classes_are_written_with_remainders() -> None:
    a = symbolic_allocate((N,))
    b, c = a[5::97], a[::-1][: N // 2 : 3]
    condition, count = overlap_condition(b, c), overlap_count(b, c)
    assert condition.atoms(sympy.Mod)
    for n in range(1, 400):
        cells = array((N,), {N: n})
        same_at(condition, count, cells[5::97], cells[::-1][: n // 2 : 3], {N: n})


def test_two_symbols_are_counted() -> None:
    a = symbolic_allocate((3 * M + N, 4))
    b, c = a[M:, 1:3], a.reshape(12 * M + 4 * N)[: 4 * N : 3]
    condition, count = overlap_condition(b, c), overlap_count(b, c)
    for m in range(13):
        for n in range(1, 17):
            cells = array((3 * M + N, 4), {M: m, N: n})
            same_at(condition, count, cells[m:, 1:3], cells.reshape(-1)[: 4 * n : 3], {M: m, N: n})


def test_axes_of_extent_one_come_and_go() -> None:
    a = symbolic_allocate((N, 4))
    b = a[:, 1:2].squeeze(1).expand_dims(0).squeeze((0,))[None, ::2]
    assert b.rank == 2
    for n in (1, 4, 7):
        cells = array((N, 4), {N: n})[None, ::2, 1]
        assert b.at({N: n}).shape == cells.shape
        same_at(overlap_condition(a, b), overlap_count(a, b), cells, cells, {N: n})


# ------------------------------------------------------------------------------------------------ any chain of words

SHAPES = [(N,), (9 * N,), (N, 4), (N, N), (4 * N, 4 * N), (3, N), (2 * N, 3, N), (N + 2, 6)]


@st.composite
def bounds(draw: st.DrawFn) -> tuple[Any, Any]:
    """A slice's start or stop, for the symbol and as a function of its value."""
    if draw(st.booleans()):
        return None, lambda n: None
    k = draw(st.integers(-5, 5))
    if draw(st.integers(0, 2)):
        return k, lambda n: k
    k = abs(k)
    if draw(st.booleans()):
        return N + k, lambda n: n + k
    return -N - k, lambda n: -n - k


@st.composite
def moves(draw: st.DrawFn, view: SymbolicView) -> tuple[SymbolicView, Move]:
    """A word on a symbolic view, and the same on an array for a value of N."""
    word = draw(
        st.sampled_from(["slice", "slice", "slice", "merge", "split", "flip", "T", "new", "broadcast", "index"])
    )
    rank = view.rank
    axis = draw(st.integers(0, rank - 1)) if rank else 0
    full = (slice(None),) * axis
    if word == "slice" and rank:
        (start, start_at), (stop, stop_at) = draw(bounds()), draw(bounds())
        step = draw(st.sampled_from([None, 1, 2, 3, 5, -1, -2]))
        return view[(*full, slice(start, stop, step))], lambda pair: pair[0][
            (*full, slice(start_at(pair[1]), stop_at(pair[1]), step))
        ]
    if word == "index" and rank:
        i = draw(st.integers(-2, 2))
        return view[(*full, i)], lambda pair: pair[0][(*full, i)]
    if word == "merge" and rank > 1:
        a = draw(st.integers(0, rank - 2))
        new = (*view.shape[:a], view.shape[a] * view.shape[a + 1], *view.shape[a + 2 :])
    elif word == "split" and rank:
        k = draw(st.sampled_from([2, 3, 4]))
        outer = sympy.cancel(view.shape[axis] / k)
        new = (*view.shape[:axis], *((outer, k) if draw(st.booleans()) else (k, outer)), *view.shape[axis + 1 :])
    elif word == "flip":
        return view.flip(), lambda pair: np.flip(pair[0])
    elif word == "T":
        return view.T, lambda pair: pair[0].T
    elif word == "broadcast":
        return view.broadcast_to((2, *view.shape)), lambda pair: np.broadcast_to(pair[0], (2, *pair[0].shape))
    else:
        return view.expand_dims(axis), lambda pair: np.expand_dims(pair[0], axis)
    return view.reshape(new), lambda pair: pair[0].reshape([int(sympy.sympify(n).subs(N, pair[1])) for n in new])


@st.composite
def chains(draw: st.DrawFn, base: SymbolicView) -> tuple[SymbolicView, list[Move]]:
    """A chain of words; those that are refused are left out."""
    view, done = base, []
    for _ in range(draw(st.integers(0, 4))):
        try:
            view, more = draw(moves(view))
        except (ValueError, IndexError):
            continue
        done.append(more)
    return view, done


def follow(cells: np.ndarray, done: list[Move], n: int) -> np.ndarray:
    for move in done:
        cells = move((cells, n))
    return cells


@given(st.data())
def test_any_two_chains_agree_with_arrays_at_every_size(data: st.DataObject) -> None:
    shape = data.draw(st.sampled_from(SHAPES))
    base = symbolic_allocate(shape)
    (b, to_b), (c, to_c) = data.draw(chains(base)), data.draw(chains(base))
    try:
        condition, count, alone = overlap_condition(b, c), overlap_count(b, c), distinct_count(b)
    except (NonAffineSize, TooHard):
        assume(False)
    for n in (1, 2, 3, 4, 7, 12):
        cells = array(shape, {N: n})
        one, two = follow(cells, to_b, n), follow(cells, to_c, n)
        assert tuple(sympy.sympify(m).subs(N, n) for m in b.shape) == one.shape
        same_at(condition, count, one, two, {N: n})
        assert sympy.sympify(alone).subs(N, n) == np.unique(one).size


def numbers(cells: Cells) -> list[int]:
    listed = cells.list_numbers(10**6)
    assert listed is not None
    return [int(z) for z in listed]


@given(st.data())
def test_the_numeric_view_reads_the_same_cells(data: st.DataObject) -> None:
    shape = data.draw(st.sampled_from(SHAPES))
    base = symbolic_allocate(shape, "A")
    b, done = data.draw(chains(base))
    for n in (1, 2, 5):
        memory = base.at({N: n})
        cells = follow(array(shape, {N: n}), done, n)
        view = b.at({N: n})
        assert view.shape == cells.shape
        read = {memory: sorted(set(cells.ravel().tolist()))} if cells.size else {}
        assert {a: numbers(c) for a, c in view.cells.items()} == read


# ------------------------------------------------------------------------------------------------------ refusals


def test_what_is_not_affine_is_named() -> None:
    a = symbolic_allocate((N, N))
    flat = a.reshape(N * N)
    with pytest.raises(NonAffineSize, match=r"\(N\)\*i0 \+ \(1\)\*i1 is not affine"):
        flat[3:10]
    with pytest.raises(NonAffineSize, match="slice before flattening"):
        flat[1::3][2:]
    with pytest.raises(NonAffineSize, match=r"N\*\*2 is not affine in N"):
        symbolic_allocate((N * N,))
    with pytest.raises(NonAffineSize, match="step N must be an integer"):
        a[::N]
    with pytest.raises(NonAffineSize, match="reshape of"):
        symbolic_allocate((N + 1, N)).reshape(N, N + 1)
    rows = symbolic_allocate((30 * N,)).reshape(30, N)
    with pytest.raises(NonAffineSize, match=r"\(N\)\*i is not affine: a symbol times an index"):
        distinct_count(rows[:N, 1:])
    with limits(max_pieces=20), pytest.raises(TooManyPieces, match="take fewer rows"):
        distinct_count(rows[:, 1:])
    with pytest.raises(TooHard, match="more than 20000 classes"):
        distinct_count(symbolic_allocate((N,))[N % 2 :: 30011])
    with pytest.raises(ValueError, match="two symbols are called N"):
        overlap_condition(a, a[sympy.Symbol("N", integer=True, nonnegative=True) :])


def test_what_is_not_a_size_is_refused() -> None:
    real, signed = sympy.Symbol("x"), sympy.Symbol("k", integer=True)
    with pytest.raises(ValueError, match="not known to be an integer"):
        symbolic_allocate((real,))
    with pytest.raises(ValueError, match="may be negative; declare positive=True"):
        symbolic_allocate((signed,))
    with pytest.raises(ValueError, match="may be negative; declare"):
        symbolic_allocate((N - 2,))
    with pytest.raises(TypeError, match=r"not 2\.0"):
        symbolic_allocate((2.0,))
    with pytest.raises(TypeError, match="not 'N'"):
        symbolic_allocate(("N",))
    with pytest.raises(ValueError, match=r"write N = 4\*M"):
        symbolic_allocate((N, N)).reshape(N * N / 4, 4)
    with pytest.raises(ValueError, match="cannot view"):
        symbolic_allocate((N, 4)).reshape(N, 5)
    with pytest.raises(ValueError, match="which mean different places"):
        symbolic_allocate((N,))[N - 5 :]
    with pytest.raises(IndexError, match="out of bounds for axis 0 with size N for some sizes"):
        symbolic_allocate((N,))[3]
    with pytest.raises(ValueError, match="give integers for N"):
        symbolic_allocate((N, M)).at({M: 3})
    with pytest.raises(ValueError, match="cannot become"):
        symbolic_allocate((N,)).broadcast_to((2 * N,))
    with pytest.raises(ValueError, match="not 1"):
        symbolic_allocate((N,)).squeeze(0)


def test_without_sympy_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sympy", None)
    with pytest.raises(ImportError, match="pip install sympy"):
        symbolic_allocate((3,))


@pytest.mark.parametrize("at", [0, 1])
def test_one_part_of_a_reshape_is_answered(at: int) -> None:
    a = symbolic_allocate((2 * N,))
    part, rest = a.reshape(2, N)[at], a[1::3]
    rows = a.reshape(2, N).T[::2, at : at + 1]
    assert distinct_count(part) == N
    assert overlap_condition(part, a.reshape(2, N)[1 - at]) == sympy.false
    for one, many in ((part, 1), (rows, 2)):
        condition, count = overlap_condition(one, rest), overlap_count(one, rest)
        for n in range(1, 14):
            cells = np.arange(2 * n)
            same_at(condition, count, cells.reshape(2, n)[at][::many], cells[1::3], {N: n})
