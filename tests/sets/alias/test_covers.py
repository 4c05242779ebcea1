"""What several views read together, against sets of cells that NumPy lists."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tapestry_sets import allocate, concatenate, covers, find_missing, tally
from tests.strategies import chains, views


@st.composite
def several(draw: st.DrawFn) -> tuple[list[Any], list[np.ndarray], Any, np.ndarray]:
    """A few views of one allocation, one more, and their values where it holds 1, 2, 3, …."""
    base = allocate(draw(st.lists(st.sampled_from([4, 6, 3, 5, 2]), max_size=3)), name="A")
    array = np.arange(1, base.size + 1).reshape(base.shape)
    each = [draw(chains(base, array, 3, 300)) for _ in range(draw(st.integers(0, 4)))]
    one, values = draw(chains(base, array, 2, 300))
    return [v for v, _ in each], [np.asarray(x) for _, x in each], one, np.asarray(values)


def cells(values: np.ndarray) -> set[int]:
    return set(values.ravel().tolist()) - {0}


@given(several())
@example(([], [], allocate((3,))[:0], np.zeros(0)))
def test_views_cover_what_they_read_together(case: tuple[list[Any], list[np.ndarray], Any, np.ndarray]) -> None:
    many, arrays, view, values = case
    lacking = cells(values).difference(*map(cells, arrays))
    assert covers(many, view) == (not lacking)
    assert covers(iter(many), view) == (not lacking)
    found = find_missing(many, view)
    assert (found is None) == (not lacking)
    if found is not None:
        (home,) = view.allocations
        assert found.allocation == home and int(values[found.at]) in lacking
        assert int(values[found.at]) - 1 == (np.ravel_multi_index(found.cell, home.shape) if home.shape else 0)


@given(views(), views())
def test_other_memory_covers_nothing(one: tuple[Any, np.ndarray], two: tuple[Any, np.ndarray]) -> None:
    assert covers([one[0]], two[0]) == (not cells(np.asarray(two[1])))
    assert covers([one[0], two[0]], two[0])


@pytest.mark.parametrize("n", [12, 12 * 10**3, 12 * 10**9, 12 * 10**15])
def test_tiles_at_any_size(n: int) -> None:
    A = allocate((n, n), name="A")
    h = n // 3
    tiles = [A[i * h : (i + 1) * h, j * h : (j + 1) * h] for i in range(3) for j in range(3)]
    with tally() as decided:
        assert covers(tiles, A) and covers([*tiles, A[::5]], A.T) and covers(tiles[:3], A[: h // 2, ::7])
        found = find_missing(tiles[:4] + tiles[5:], A)
        assert found is not None and all(h <= x < 2 * h for x in found.cell)
        assert covers([A[k::7] for k in range(7)], A) and not covers([A[k::7] for k in range(1, 7)], A)
        found = find_missing([A.ravel()[: n * n // 2 + 5], A[::-1].ravel()[: n * n // 2 - 4]], A)
        assert found is not None and found.cell[0] == n // 2 and found.cell[1] >= n - 4
    assert not decided.listed


def test_arrays_are_covered_byte_by_byte() -> None:
    x = np.zeros((8, 8), np.float32)
    assert covers([x[:4], x[4:]], x) and covers([x.view(np.uint8)[:, ::2], x.view(np.uint8)[:, 1::2]], x)
    found = find_missing((x.view(np.uint8)[:, ::2],), x)
    assert found is not None and found.at[-1] % 2 == 1
    assert not covers([x.copy()], x)


def test_several_memories() -> None:
    A, B = allocate((6,), name="A"), allocate((4,), name="B")
    both = concatenate([A[::2], B])
    assert covers([B, A[:1], A[2:]], both) and covers([both], B)
    found = find_missing([B[1:], A], both)
    assert found is not None and (found.allocation, found.cell, found.at) == (B, (0,), (3,))


A = allocate((4, 6), name="A")


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: covers(A, A), "covers: views must be a sequence of views and arrays, not one Allocation"),
        (lambda: covers([A, 3], A), r"covers: views\[1\]: int is neither a View nor an array"),
        (lambda: covers([A], "A"), "covers: view: str is neither"),
        (lambda: find_missing([A, None], A), r"find_missing: a: views\[1\]: NoneType is neither"),
    ],
)
def test_wrong_input(call: Any, words: str) -> None:
    with pytest.raises(TypeError, match=words):
        call()


@pytest.mark.parametrize("n", [20, 200, 1024])
def test_two_triangles_cover_the_square(n: int) -> None:
    """Together they are too many setts to be held, where some cells are tried first."""
    A = allocate((n, n), name="A")
    assert covers([A.tril(), A.triu(1)], A) and covers([A.triu(), A.tril(-1)], A.T)
    assert not covers([A.tril(), A.triu(2)], A) and not covers([A.tril(-1), A.triu(1)], A)
