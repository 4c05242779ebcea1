"""What several views read together, against sets of cells that NumPy lists."""

from __future__ import annotations

from collections import Counter
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tapestry_sets import allocate, concatenate, covers, limits, tally
from tapestry_sets.solvers import isl
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
    found = covers(many, view)
    assert bool(found) == (not lacking) == bool(covers(iter(many), view))
    assert (found.gap is None) == (not lacking)
    if found.gap is not None:
        (home,) = view.allocations
        assert found.gap.allocation == home and int(values[found.gap.at]) in lacking
        assert int(values[found.gap.at]) - 1 == number_of(found.gap.cell, home.shape)


@given(several())
def test_what_is_read_twice_is_found_with_its_readers(
    case: tuple[list[Any], list[np.ndarray], Any, np.ndarray],
) -> None:
    many, arrays, view, values = case
    (home,) = view.allocations
    check_twice(covers(many, view), arrays, cells(values), home.shape)
    check_twice(covers(many), arrays, set(range(1, home.size + 1)) if many else set(), home.shape)


@st.composite
def interleaved(draw: st.DrawFn) -> tuple[list[Any], list[np.ndarray], Any, np.ndarray]:
    """Views whose steps lie within each other: their numbers are sums, and no few setts."""
    base = allocate((2000,), name="A")
    array = np.arange(1, 2001)
    whole = [base, array]
    found = []
    for _ in range(draw(st.integers(2, 4))):
        shape = draw(st.lists(st.integers(2, 5), min_size=3, max_size=4))
        steps = draw(st.lists(st.integers(1, 99), min_size=len(shape), max_size=len(shape)))
        first = draw(st.integers(0, 200))
        view = base[first:].as_strided(shape, steps)
        found.append((view, np.lib.stride_tricks.as_strided(array[first:], shape, [8 * by for by in steps])))
    one, values = draw(st.sampled_from([whole, [base[3:1500:3], array[3:1500:3]], found.pop()]))
    return [v for v, _ in found], [x for _, x in found], one, values


@given(interleaved())
def test_views_of_interleaved_steps_cover_what_they_read(
    case: tuple[list[Any], list[np.ndarray], Any, np.ndarray],
) -> None:
    test_views_cover_what_they_read_together.hypothesis.inner_test(case)  # type: ignore[attr-defined]
    test_what_is_read_twice_is_found_with_its_readers.hypothesis.inner_test(case)  # type: ignore[attr-defined]


def test_cells_that_windows_read_twice_are_found_beside_others() -> None:
    """Sums of steps are no products, but the indices that read a few of them may be."""
    base, array = allocate((3000,), name="A"), np.arange(1, 3001)
    for shape, steps in [((2, 2, 2), (1, 1, 1)), ((3, 4, 5), (7, 11, 13)), ((5, 2, 3, 4), (6, 1, 2, 3))]:
        view = base.as_strided(shape, steps)
        values = np.lib.stride_tricks.as_strided(array, shape, [8 * by for by in steps])
        for wanted in (slice(3, 5), slice(3, 1500, 3), slice(20, 24), slice(5, 6)):
            check_twice(covers([view], base[wanted]), [values], set(array[wanted].tolist()), (3000,))
        of, cells_of = base[2:].as_strided(shape, steps), values + 2  # whose numbers are sums of steps, too
        check_twice(covers([view], of), [values], set(cells_of.ravel().tolist()), (3000,))


def test_a_gap_between_sums_of_steps_is_found_at_once() -> None:
    """Sums of which none are few setts: 150,000 runs each, which took 3.3 s to be listed."""
    base = allocate((10**6,), name="A")
    steps = [(9973, 7919, 6007, 5003), (9967, 7907, 5987, 4999)]
    both = [base.as_strided((20,) * 4, by) for by in steps]
    with limits(max_pieces=100), tally() as t:
        assert covers(both, base).gap == ((1,), base.allocations[0], (1,))
    assert t.closed and not t.listed


def check_twice(found: Any, arrays: list[np.ndarray], wanted: set[int], shape: tuple[int, ...]) -> None:
    read = Counter(x for array in arrays for x in array.ravel().tolist() if x in wanted)
    assert (found.twice is None) == (max(read.values(), default=0) < 2)
    assert found.exactly_once == (read == Counter(wanted))
    assert ("exactly once" in repr(found)) == found.exactly_once
    if found.twice is not None:
        first, second, a, b, _, cell = found.twice
        assert (first, a) < (second, b)
        assert int(arrays[first][a]) == int(arrays[second][b]) == number_of(cell, shape) + 1
        assert number_of(cell, shape) + 1 in wanted


def number_of(cell: tuple[int, ...], shape: tuple[int, ...]) -> int:
    return int(np.ravel_multi_index(cell, shape)) if shape else 0


@given(views(), views())
def test_other_memory_covers_nothing(one: tuple[Any, np.ndarray], two: tuple[Any, np.ndarray]) -> None:
    assert bool(covers([one[0]], two[0])) == (not cells(np.asarray(two[1])))
    assert covers([one[0], two[0]], two[0])


@pytest.mark.parametrize("n", [12, 12 * 10**3, 12 * 10**9, 12 * 10**15])
def test_tiles_at_any_size(n: int) -> None:
    A = allocate((n, n), name="A")
    h = n // 3
    tiles = [A[i * h : (i + 1) * h, j * h : (j + 1) * h] for i in range(3) for j in range(3)]
    with tally() as decided:
        assert covers(tiles, A) and covers([*tiles, A[::5]], A.T) and covers(tiles[:3], A[: h // 2, ::7])
        found = covers(tiles[:4] + tiles[5:], A).gap
        assert found is not None and all(h <= x < 2 * h for x in found.cell)
        assert covers([A[k::7] for k in range(7)], A) and not covers([A[k::7] for k in range(1, 7)], A)
        found = covers([A.ravel()[: n * n // 2 + 5], A[::-1].ravel()[: n * n // 2 - 4]], A).gap
        assert found is not None and found.cell[0] == n // 2 and found.cell[1] >= n - 4
    assert not decided.listed


@pytest.mark.parametrize("n", [12, 12 * 10**9])
def test_shards_are_exact_at_any_size_without_isl(n: int) -> None:
    """Blocks, cyclic shards, block-cyclic ones, triangles; with a halo, and a hole."""
    A = allocate((n, n), name="A")
    blocks = [A[k * n // 4 : (k + 1) * n // 4, j * n // 3 : (j + 1) * n // 3] for k in range(4) for j in range(3)]
    cyclic = [A[k::4, j::3] for k in range(4) for j in range(3)]
    block_cyclic = [A.reshape(n // 6, 3, 2, n)[:, k] for k in range(3)]
    triangles = [A.tril(), A.triu(1)]
    with patch.object(isl, "_islpy", side_effect=ImportError("no isl here")), tally() as decided:
        for shards in (blocks, cyclic, block_cyclic, triangles, [A]):
            found = covers(shards)
            assert found.exactly_once and repr(found).startswith("Coverage(exactly once, by ")
            assert covers(shards, A.T).exactly_once
        halo = covers([A[: n // 2 + 1], A[n // 2 :]])
        assert halo and not halo.exactly_once and halo.twice is not None and halo.twice.cell[0] == n // 2
        assert (halo.twice.a, halo.twice.b) == ((n // 2, halo.twice.cell[1]), (0, halo.twice.cell[1]))
        hole = covers([*cyclic[:5], *cyclic[6:]])
        assert not hole and hole.twice is None and hole.gap is not None
        assert (hole.gap.cell[0] % 4, hole.gap.cell[1] % 3) == (1, 2)
        inner = covers([A[: n // 2], A[n // 2 - 1 :]], A[n // 2 :, 3:])
        assert inner.exactly_once, "what is read twice is beside what is to be covered"
        beside = covers([A[:, :5], A[:, 3:]], A[1:3])
        assert beside.twice is not None and beside.twice.cell[0] in (1, 2) and beside.twice.cell[1] in (3, 4)
    assert decided.listed == decided.isl == 0


def test_windows_hold_cells_twice_within_what_is_asked() -> None:
    A = allocate((12,), name="A")
    windows = A.sliding_windows(3, 4)  # each cell at most once
    assert covers([windows], windows).exactly_once and repr(covers([windows])) == "Coverage(gap at A[3])"
    near = A.sliding_windows(3, 2)
    found = covers([near], A[5:])
    assert found.twice is not None and (found.twice.first, found.twice.second) == (0, 0) and found.twice.cell[0] >= 6
    assert covers([near], A[1:2]).exactly_once
    assert repr(covers([A, near], A[:1])) == "Coverage(twice at A[0] = views[0][0] = views[1][0, 0])"
    assert (
        "covers by closed form in" in covers([near])._repr_mimebundle_()["text/plain"] or not covers([near]).decisions
    )
    assert covers([A[:6], A[6:]]).explain().startswith("Coverage(exactly once, by 2 views)\n")


def test_no_views_leave_all_out_and_are_shown_in_words() -> None:
    A = allocate((3, 4), name="A")
    found = covers([], A[1:])
    assert not found and found.gap is not None and found.gap.cell[0] in (1, 2) and found.twice is None
    assert found._repr_mimebundle_()["text/plain"].startswith("Coverage(gap at A[1, 0])")


def test_arrays_need_what_they_are_to_cover() -> None:
    x = np.zeros(8)
    assert covers([x[:4], x[4:]], x).exactly_once and not covers([x[:5], x[4:]], x).exactly_once
    with pytest.raises(ValueError, match="give the array that they are to cover"):
        covers([x])


def test_arrays_are_covered_byte_by_byte() -> None:
    x = np.zeros((8, 8), np.float32)
    assert covers([x[:4], x[4:]], x) and covers([x.view(np.uint8)[:, ::2], x.view(np.uint8)[:, 1::2]], x)
    found = covers((x.view(np.uint8)[:, ::2],), x).gap
    assert found is not None and found.at[-1] % 2 == 1
    assert not covers([x.copy()], x)


def test_several_memories() -> None:
    A, B = allocate((6,), name="A"), allocate((4,), name="B")
    both = concatenate([A[::2], B])
    assert covers([B, A[:1], A[2:]], both) and covers([both], B)
    found = covers([B[1:], A], both).gap
    assert found is not None and (found.allocation, found.cell, found.at) == (B, (0,), (3,))


A = allocate((4, 6), name="A")


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: covers(A, A), "covers: views must be a sequence of views and arrays, not one Allocation"),
        (lambda: covers([A, 3], A), r"covers: views\[1\]: int is neither a View nor an array"),
        (lambda: covers([A], "A"), "covers: of: str is neither"),
        (lambda: covers([A, None], A), r"covers: views\[1\]: NoneType is neither"),
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
