"""Views built anew from patches read what the patches say, in few kinds."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapestry_sets import View, allocate, interleave, pad, roll
from tapestry_sets.views import Derived, tuning
from tapestry_sets.views.kinds.choosing import AsStrided
from tapestry_sets.views.normal.assemble import Assembly
from tapestry_sets.views.normal.patches import Constant, Flat, strided_patch
from tests.oracles import memory_for, read_view
from tests.strategies import factorizations


def kinds_of(view: View) -> list[str]:
    """The names of the kinds of a chain, the last first."""
    names = []
    while isinstance(view, Derived):
        names.append(type(view.kind).__name__)
        (view,) = view.sources
    return names


def built(home: View, cell: int, levels: list[tuple[int, int]], shape: tuple[int, ...]) -> View:
    flat = Flat(prod(shape), (strided_patch(cell, tuple(levels), home),), 0)
    return Assembly(lambda _: home, home).view(flat, shape)


@given(st.data(), st.lists(st.integers(1, 6), max_size=3).map(tuple))
def test_a_strided_view_is_built_of_at_most_six_kinds(data: st.DataObject, home: tuple[int, ...]) -> None:
    """Any steps inside any memory: windows, diagonals, reversed and repeated axes among them."""
    A = allocate(home, name="A")
    levels: list[tuple[int, int]] = []
    low = high = 0
    for _ in range(data.draw(st.integers(0, 4))):
        step = data.draw(st.integers(-(A.size // 2), A.size // 2))
        room = (A.size - 1 - (high - low)) // abs(step) if step else 3
        count = data.draw(st.integers(1, min(room, 3) + 1))
        low, high = min(low, low + (count - 1) * step), max(high, high + (count - 1) * step)
        levels.append((count, step))
    cell = data.draw(st.integers(-low, A.size - 1 - high))
    counts = [count for count, _ in levels]
    shape = data.draw(factorizations(prod(counts)) | st.just(tuple(counts)))
    view = built(A, cell, levels, shape)
    cells = cell + sum(
        (np.arange(n) * by)[(...,) + (None,) * (len(levels) - 1 - k)] for k, (n, by) in enumerate(levels)
    )
    expected = 1 + np.broadcast_to(cells, counts).reshape(shape)
    np.testing.assert_array_equal(read_view(view, memory_for([A])), expected)
    assert len(kinds_of(view)) <= 6


@pytest.mark.parametrize(
    ("home", "cell", "levels", "shape", "names"),
    [
        ((4, 6), 0, [(24, 1)], (4, 6), []),
        ((4, 6), 6, [(18, 1)], (3, 6), ["Slice"]),
        ((4, 6), 23, [(24, -1)], (4, 6), ["Slice"]),
        ((4, 6), 2, [(4, 6)], (4,), ["Index"]),
        ((4, 6), 9, [], (), ["Index"]),
        ((4, 6), 0, [(6, 1), (4, 6)], (6, 4), ["PermuteDims"]),
        ((4, 6), 0, [(4, 7)], (4,), ["Slice", "Reshape"]),
        ((10,), 0, [(8, 1), (3, 1)], (8, 3), ["SlidingWindow"]),
        ((6, 8), 0, [(4, 8), (6, 1), (3, 8), (3, 1)], (4, 6, 3, 3), ["SlidingWindow"]),
        ((3,), 0, [(4, 0), (3, 1)], (4, 3), ["Broadcast"]),
        ((4, 1), 0, [(4, 1), (5, 0)], (4, 5), ["Broadcast"]),
        ((10**9, 10**9), 3 * 10**9, [(10**9 - 3, 10**9), (10**9, 1)], (10**9 - 3, 10**9), ["Slice"]),
        ((11,), 0, [(2, 5), (2, 3), (2, 1)], (2, 4), ["Reshape", "AsStrided"]),
    ],
)
def test_built_as_one_would_write_it(
    home: tuple[int, ...], cell: int, levels: list[tuple[int, int]], shape: tuple[int, ...], names: list[str]
) -> None:
    assert kinds_of(built(allocate(home), cell, levels, shape)) == names


def test_parts_are_padded_rolled_concatenated_and_filled() -> None:
    A, B = allocate((6, 8), name="A"), allocate((6, 8), name="B")
    assert kinds_of(pad(pad(A, 1), 2).simplify()) == ["Pad"]
    assert kinds_of(roll(roll(A, 1, 1), 2, 1).simplify()) == ["Roll"]
    dealt = interleave([A, B]).flip(0).flip(0).simplify()
    assert type(dealt.kind).__name__ in ("Interleave", "Fill") and dealt.sources == (A, B)


def test_constants_are_pads_of_nothing() -> None:
    A = allocate((4, 6))
    flat = Flat(6, (strided_patch(0, ((6, 0),), Constant(2.5)),), 0)
    view = Assembly(lambda _: A, A).view(flat, (2, 3))
    assert read_view(view, memory_for([A])).tolist() == [[2.5] * 3] * 2 and view.cells == {}
    assert len(kinds_of(view)) <= 6


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (AsStrided((2,), (1, 1)), r"strides \(1, 1\) for shape \(2,\); give one for each axis"),
        (AsStrided((-1,), (1,)), r"extents of shape \(-1,\) must be >= 0"),
        (AsStrided((3,), (4,), 2), r"reads cells 2 to 10 of a source of shape \(9,\), which has 9"),
        (AsStrided((3,), (-4,), 2), "reads cells -6 to 2"),
    ],
)
def test_strides_that_leave_memory_are_refused(kind: AsStrided, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        allocate((9,)).apply(kind)


@pytest.mark.parametrize("words", [0, 1])
def test_a_single_cell_is_taken_by_its_strides_too(words: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of rank 0 there are no strides to list."""
    monkeypatch.setattr(tuning, "STRIDED_WORDS", words)
    home = allocate((4, 6))
    for shape in ((), (1, 1)):
        view = built(home, 5, [], shape)
        assert view.shape == shape
        assert read_view(view, memory_for([home])).ravel().tolist() == memory_for([home])[home].ravel()[5:6].tolist()
