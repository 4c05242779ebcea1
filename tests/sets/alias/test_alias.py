"""Alias queries against sets of cells that NumPy lists."""

from __future__ import annotations

import pickle
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tapestry_sets import Allocation, Sett, Stripe, View, allocate, concatenate, covers, pad, roll, stack, tally
from tapestry_sets.alias.ladder import cells as cells_module
from tapestry_sets.alias.overlap import (
    contains,
    has_internal_overlap,
    internal_overlap,
    is_contiguous,
    origins,
    overlap,
    overlap_matrix,
    overlap_sizes,
    overlaps,
    same_elements,
)
from tapestry_sets.integers import lazy
from tapestry_sets.limits import count_question
from tapestry_sets.solvers import isl
from tests.oracles import memory_for, read_view
from tests.sets.alias.test_ladder import without_closed_forms
from tests.strategies import view_pairs, views

Pair = tuple[View, np.ndarray, View, np.ndarray, Allocation]


def cells(values: np.ndarray) -> set[int]:
    """The cells read, as row-major numbers; 0 stands for a constant."""
    return {int(v) - 1 for v in np.asarray(values).ravel()} - {-1}


@given(view_pairs())
def test_overlap_is_the_common_cells(pair: Pair) -> None:
    a, x, b, y, base = pair
    common = cells(x) & cells(y)
    assert overlaps(a, b) == bool(common)
    found = overlap(a, b)
    assert bool(found) == bool(common)
    assert found.size == len(common)
    if not common:
        assert found.witness is None and found.regions == {}
        return
    numbers = np.ravel_multi_index(tuple(found.regions[base].points().T), base.shape) if base.rank else np.array([0])
    assert set(np.atleast_1d(numbers).tolist()) == common
    at = found.witness
    assert at is not None
    assert x[at.a] == y[at.b] == np.arange(1, base.size + 1).reshape(base.shape)[at.cell]


def test_a_slice_between_two_reshapes_is_not_forgotten() -> None:
    """A chain that ends in a renumbering to a smaller shape than the allocation's keeps the allocation's rows."""
    A = allocate((4, 6, 4))
    view = A[:, :-2].reshape(64)
    assert overlap(view, A).size == 64 and not overlaps(view, A[:, -2:])


@given(view_pairs())
def test_order_of_cells_does_not_matter(pair: Pair) -> None:
    a, x, b, y, _ = pair
    assert contains(a, b) == (cells(y) <= cells(x))
    assert same_elements(a, b) == (cells(x) == cells(y))


@given(view_pairs())
def test_what_one_view_lacks_of_another_is_named(pair: Pair) -> None:
    a, x, b, y, base = pair
    found = covers([a], b).gap
    assert (found is None) == (cells(y) <= cells(x))
    if found is not None:
        assert found.allocation == base
        number = int(y[found.at]) - 1
        assert number not in cells(x) and number == int(np.arange(base.size).reshape(base.shape)[found.cell])


@given(view_pairs(length=2, cells=60))
def test_it_is_named_alike_where_sets_are_not_held(pair: Pair) -> None:
    """With the setts taken away isl names a cell, and without isl a list does."""
    a, x, b, y, base = pair
    if not cells(x) or not cells(y):
        return
    mine, theirs = (replace(v.cells[base], held=None) for v in (a, b))
    numbers = np.arange(base.size).reshape(base.shape)
    for available in (isl.available(), False):
        with patch.object(isl, "available", lambda known=available: known):
            cell = theirs.cell_beside(mine)
            assert (cell is None) == (cells(y) <= cells(x)) == theirs.issubset(mine)
            assert cell is None or int(numbers[cell]) in cells(y) - cells(x)
            assert theirs.meets(mine) == bool(cells(x) & cells(y))


@pytest.mark.parametrize("n", [10, 10**3, 10**9, 10**15])
def test_what_is_missing_is_found_at_any_size(n: int) -> None:
    A = allocate((n, n + 1), name="A")
    most = concatenate([A[: n // 2], A[n // 2 + 1 :]])
    found = covers([most], A.T).gap
    assert found is not None and found.cell[0] == n // 2 and found.at == found.cell[::-1]
    found = covers([A[:, :-1]], A).gap
    assert found is not None and found.at == found.cell == (0, n)
    assert covers([A], most).gap is None and covers([A], allocate((3,))[:0]).gap is None
    B = allocate((3,))
    found = covers([A], concatenate([A.ravel(), B])).gap
    assert found is not None and found.allocation == B and found.at == (n * (n + 1),) and found.cell == (0,)


@given(views())
def test_one_view(pair: tuple[View, np.ndarray]) -> None:
    view, values = pair
    reads = cells(values)
    assert has_internal_overlap(view) == (int((values != 0).sum()) > len(reads))
    assert is_contiguous(view) == (not reads or max(reads) - min(reads) + 1 == len(reads))
    (home,) = view.allocations
    found = origins(view)
    assert set(found) == ({home} if reads else set())
    points = {tuple(p) for region in found.values() for p in region.points().tolist()}
    assert points == {tuple(int(x) for x in np.unravel_index(z, home.shape)) for z in reads}


@given(views(), views())
def test_views_of_two_allocations_never_overlap(one: tuple[View, np.ndarray], two: tuple[View, np.ndarray]) -> None:
    a, b = one[0], two[0]
    assert not overlaps(a, b)
    assert overlap(a, b).size == 0


@given(view_pairs(length=2), view_pairs(length=2))
def test_views_of_several_allocations(left: Pair, right: Pair) -> None:
    """Concatenated flat views over two allocations share what their parts share."""
    joined = [concatenate([left[k].ravel(), right[k].ravel()]) for k in (0, 2)]
    shared = [len(cells(left[1]) & cells(left[3])), len(cells(right[1]) & cells(right[3]))]
    found = overlap(*joined)
    assert found.size == sum(shared)
    assert {a: r.size for a, r in found.regions.items()} == {
        a: n for a, n in zip((left[4], right[4]), shared, strict=True) if n
    }
    if found:
        memory = memory_for(joined)
        values = [read_view(v, memory) for v in joined]
        at = found.witness
        assert at is not None and at == found.witnesses[found.allocations[0]]
        assert set(found.witnesses) == set(found.allocations) == set(found.regions)
        for allocation, at in found.witnesses.items():
            assert values[0][at.a] == values[1][at.b] == memory[allocation][at.cell]


@given(st.lists(view_pairs(length=2), min_size=1, max_size=2))
def test_matrix_is_all_pairs(pairs: list[Pair]) -> None:
    """Both views of a pair read one allocation, views of different pairs never share a cell."""
    made = [view for a, _, b, _, _ in pairs for view in (a, b)]
    reads = [{(k, z) for z in cells(values)} for k, (_, x, _, y, _) in enumerate(pairs) for values in (x, y)]
    expected = [[bool(one & other) for other in reads] for one in reads]
    np.testing.assert_array_equal(overlap_matrix(made), expected)


@given(st.lists(view_pairs(length=2), min_size=1, max_size=2))
def test_sizes_are_those_of_all_pairs(pairs: list[Pair]) -> None:
    made = [view for a, _, b, _, _ in pairs for view in (a, b)]
    reads = [{(k, z) for z in cells(values)} for k, (_, x, _, y, _) in enumerate(pairs) for values in (x, y)]
    sizes = overlap_sizes(made)
    assert sizes.dtype == np.int64
    np.testing.assert_array_equal(sizes, [[len(one & other) for other in reads] for one in reads])


def test_sizes_of_more_than_64_bits_are_python_integers() -> None:
    A = allocate((4 * 10**9, 4 * 10**9))
    sizes = overlap_sizes([A, A[::2], A[1::2], A[:, :3]])
    assert sizes.dtype == object
    assert sizes.tolist() == [
        [16 * 10**18, 8 * 10**18, 8 * 10**18, 12 * 10**9],
        [8 * 10**18, 8 * 10**18, 0, 6 * 10**9],
        [8 * 10**18, 0, 8 * 10**18, 6 * 10**9],
        [12 * 10**9, 6 * 10**9, 6 * 10**9, 12 * 10**9],
    ]


def test_sizes_of_arrays_are_bytes() -> None:
    x = np.zeros((6, 4), np.int32)
    assert overlap_sizes([x[::2], x[:, 1:3].view(np.int16), x.T]).tolist() == [[48, 24, 48], [24, 48, 48], [48, 48, 96]]


def test_no_views_have_an_empty_matrix() -> None:
    assert overlap_sizes([]).shape == (0, 0)


# --------------------------------------------------------------------------------------- the documents' examples


def test_cells_through_a_reshape() -> None:
    """A[27], B = A.reshape(3,3,3)[:2,:2,:2] against C = A[2::5]: both hold A[12]."""
    A = allocate((27,), name="A")
    B, C = A.reshape(3, 3, 3)[0:2, 0:2, 0:2], A[2::5]
    assert overlaps(B, C)
    found = overlap(B, C)
    assert found.size == 1 and found.witness == ((1, 1, 0), (2,), (12,))
    assert found.regions[A].points().tolist() == [[12]]


def test_second_example_of_the_document() -> None:
    """A[24], B = A.reshape(4,6)[:,3:6] against C = A[0::7]: they meet at A[21]."""
    A = allocate((24,), name="A")
    found = overlap(A.reshape(4, 6)[:, 3:6], A[0::7])
    assert found.size == 1 and found.witness is not None and found.witness.cell == (21,)


def test_sett_of_a_reshaped_slice() -> None:
    """[42] → (6,7)[:, :-1] → (12,3)[:, :-1] is the sett (6,1), (2,1)."""
    A = allocate((42,), name="A")
    view = A.reshape(6, 7)[:, 0:-1].reshape(12, 3)[:, 0:-1].flatten()
    (sett,) = view.cells[A].explicit().members
    assert sett.same_points(Sett(Stripe(6, 1), Stripe(2, 1)), within=(0, 42))


def test_corners_of_a_cube() -> None:
    """Erratum: [0::2, 0::2, 0::2] of 3×3×3 holds 0, 2, 6, 8, 18, 20, 24, 26, the sett (9,9), (3,3), (1,1);
    the printed sett (18,9), (6,3), (2,1) is [:2, :2, :2]."""
    A = allocate((27,), name="A")
    cube = A.reshape(3, 3, 3)
    corners = cube[0::2, 0::2, 0::2].cells[A].explicit()
    assert corners.elements(0, 27).tolist() == [0, 2, 6, 8, 18, 20, 24, 26]
    assert corners.same_points(Sett(Stripe(9, 9), Stripe(3, 3), Stripe(1, 1)), within=(0, 27))
    block = cube[:2, :2, :2].cells[A].explicit()
    assert block.same_points(Sett(Stripe(18, 9), Stripe(6, 3), Stripe(2, 1)), within=(0, 27))


def test_cells_do_not_depend_on_order() -> None:
    """A[8:2:-2] and A[4:10:2] are the same cells."""
    A = allocate((10,), name="A")
    assert same_elements(A[8:2:-2], A[4:10:2])
    assert not same_elements(A[8:2:-2], A[4:10:3])


def tiled(X: View) -> View:
    N = X.shape[0]
    return X.reshape(N * N // 4, 4)[:, 0:2].reshape(4, N * N // 8)[0:2, :].reshape(N // 2, N // 2)


@pytest.mark.parametrize("n", [8, 16, 24, 40])
def test_tiles_against_numpy(n: int) -> None:
    A = allocate((n, n), name="A")
    x = np.arange(1, n * n + 1).reshape(n, n)

    def numpy_tiled(a: np.ndarray) -> np.ndarray:
        m = a.shape[0]
        return a.reshape(m * m // 4, 4)[:, 0:2].reshape(4, m * m // 8)[0:2, :].reshape(m // 2, m // 2)

    for shift in (1, 2, 3, 4):
        inner = (slice(shift, shift + n - 4),) * 2
        common = cells(numpy_tiled(x)) & cells(numpy_tiled(x[inner]))
        found = overlap(tiled(A), tiled(A[inner]))
        assert bool(found) == overlaps(tiled(A), tiled(A[inner])) == bool(common)
        assert found.size == len(common)


@pytest.mark.parametrize("n", [24, 24 * 10**3, 24 * 10**6, 24 * 10**9])
def test_tiles_are_as_few_setts_at_every_size(n: int) -> None:
    A = allocate((n, n), name="A")
    B, C, D = tiled(A), tiled(A[2:-2, 2:-2]), tiled(A[4:, 4:])
    assert not overlaps(B, C) and overlaps(B, D)
    assert len(B.cells[A].explicit().members) == len(C.cells[A].explicit().members) == 1


@pytest.mark.parametrize("n", [24, 24 * 10**3, 24 * 10**6, 24 * 10**9])
def test_tiles_share_as_many_cells_as_rows_and_columns_say(n: int) -> None:
    """The first half of the rows, two of every four columns: D's lie in B's from row and column 4 on."""
    A = allocate((n, n), name="A")
    rows, columns = n // 2 - 4, (n - 4) // 2
    assert overlap(tiled(A), tiled(A[4:, 4:])).size == rows * columns


# ----------------------------------------------------------------------------------------------------- hard cases


def test_set_contiguity_ignores_order() -> None:
    A = allocate((10,))
    assert is_contiguous(concatenate([A[5:10], A[0:5]]))
    assert not is_contiguous(concatenate([A[6:10], A[0:5]]))
    assert not is_contiguous(concatenate([A, allocate((3,))]))
    assert is_contiguous(A[:0])


@pytest.mark.parametrize("n", [4, 1024, 10**6, 10**12])
def test_half_columns_through_a_misaligned_reshape(n: int) -> None:
    """(n, n + 1) → (n + 1, n): what needs 1,535 regions at 1024 is one sett in memory, at every size."""
    A = allocate((n, n + 1))
    half = A[:, : n // 2]
    again = A.reshape(n + 1, n).reshape(n, n + 1)[:, : n // 2]
    assert same_elements(half, again)
    assert len(again.cells[A].explicit().members) == 1
    other = A.reshape(n + 1, n)[:, n // 2 :]
    assert overlaps(half, other)
    assert overlap(half, other).size == n * n // 4  # (row + column) mod n takes each value in each column


@pytest.mark.parametrize("n", [10, 10**3, 10**6, 10**9])
def test_shattering_chains_are_decided_at_every_size(n: int) -> None:
    """Three of every seven cells of a half-column slice: no few setts, but an answer, and a true witness."""
    A = allocate((n * (n + 1),))
    size = n * (n // 2) // 7 * 7
    odd = A.reshape(n, n + 1)[:, : n // 2].reshape(n * (n // 2))[:size].reshape(size // 7, 7)[:, :3]
    found = overlap(odd, A[3::11])
    assert found and overlaps(odd, A[3::11])
    at = found.witness
    assert at is not None and at.cell == (3 + 11 * at.b[0],)
    rank = 7 * at.a[0] + at.a[1]
    assert at.cell == (rank // (n // 2) * (n + 1) + rank % (n // 2),)
    assert not overlaps(odd, A.reshape(n, n + 1)[:, n // 2 :])


def test_constants_are_not_memory() -> None:
    A = allocate((4,))
    padded = pad(A, 2)
    assert overlap(padded, A).size == 4
    assert not overlaps(padded[:2], A) and padded[:2].cells == {}
    assert not padded.has_internal_overlap() and pad(A, 2, "edge").has_internal_overlap()
    assert padded.is_contiguous() and padded[:2].is_contiguous()


# ------------------------------------------------------------------------------------------------ how it was decided


def test_a_tally_tells_how_questions_were_decided() -> None:
    A = allocate((10**6, 10**6), name="A")
    one, two = A[::2], A.reshape(-1, 10**3)[:, 5]
    with tally() as decided:
        assert overlaps(one, two) and contains(A, two) and not is_contiguous(two)
        assert overlap(one, two).size == 10**6 // 2 * 10**3
        assert internal_overlap(two) is None
    assert (decided.closed, decided.isl, decided.listed, decided.total) == (5, 0, 0, 5)
    with tally() as outer, tally() as inner:
        overlaps(one, two)
    assert (outer.total, inner.total) == (0, 1)
    overlaps(one, two)
    assert inner.total == 1


def test_a_tally_tells_what_isl_and_lists_decided() -> None:
    pytest.importorskip("islpy")
    A = allocate((400, 300))
    one = replace(A[:, ::7].cells[A], held=None)
    two = replace(A[3::5].cells[A], held=None)
    three = replace(A[:, 1::7].cells[A], held=None)
    question = count_question(lambda a, b: a.meets(b))
    with tally() as decided:
        assert question(one, two) and not question(one, three)
    assert (decided.closed, decided.isl, decided.listed) == (2, 0, 0)
    with without_closed_forms():
        with tally() as decided:
            assert question(one, two) and not question(one, three)
        assert (decided.closed, decided.isl, decided.listed) == (0, 2, 0)
        with patch.object(isl, "available", lambda: False), tally() as decided:
            assert question(one, two) and not question(one, three)
        assert (decided.closed, decided.isl, decided.listed) == (0, 0, 2)


@pytest.mark.parametrize("n", [17, 10**3 + 1, 10**12 + 1])
def test_what_reads_all_cells_of_a_strided_view_is_asked_as_that_view(n: int) -> None:
    """Half of the columns, under a shape whose rows are cut otherwise, rolled and padded: no strides, but the cells."""
    A = allocate((n, n + 1), name="A")
    half = A[:, : n // 2]
    other = roll(pad(half.reshape(n // 2, n).T, 1, "edge"), 3, 0)
    with tally() as decided:
        assert overlaps(other, A[:, ::3]) and not overlaps(other, A[:, n // 2 :])
        assert overlap(other, A[:, ::3]).size == n * len(range(0, n // 2, 3))
        assert overlap(A[1::2], other).size == n // 2 * (n // 2)
    assert set(decided.rungs) == {"meet", "count_met"}, "by their equation, and by no ladder"
    assert not overlaps(pad(allocate((0,)), 1), allocate((0,)))


def test_an_overlap_is_found_when_a_question_needs_it() -> None:
    A = allocate((10**9, 10**6), name="A")
    with tally() as decided:
        found = overlap(A[::2, 5:], A[1:, ::3].T)
        assert decided.total == 0
        assert found and found.size == (5 * 10**8 - 1) * len(range(6, 10**6, 3))
        assert overlap(A[::2], A[1::2]).nbytes == 0
    assert decided.total == 3 and set(decided.rungs) == {"meet", "count_met"}, "by their equation, and by no ladder"
    assert pickle.loads(pickle.dumps(found)).size == found.size


@pytest.mark.parametrize("n", [10**3, 10**9, 10**15])
def test_diagonals_and_windows_are_counted_in_closed_form_at_any_size(n: int) -> None:
    A = allocate((n, n))
    down = A.diagonal(3)
    windows = A.sliding_windows((3, 2), (5, 7))
    with tally() as decided:
        assert overlap(down, A[::3, 1::4]).size == len(range(6, n - 3, 12))  # 3 | i and i + 3 = 1 modulo 4
        assert overlap(down, A.T.diagonal(-3)[::2]).size == (n - 3 + 1) // 2
        assert not overlaps(A.flip(1).diagonal(), A.diagonal())
        assert overlap(A.ravel()[:: n - 1], A[1::2]).size == n // 2 + 1
        assert overlap(A.reshape(n // 2, 2 * n).diagonal(), A[::2, ::3]).size == len(range(0, n // 2, 3))
        assert covers([A[::3, 1::4]], down).gap == ((0,), A, (0, 3))
        assert not windows.has_internal_overlap() and windows.contains(A[::5, : n - 7 : 7])
        assert overlap(down, A[::3, 1::4]).witness == ((6,), (2, 2), (6, 9))
    assert decided.closed == decided.total == 9


def test_chains_are_compared_without_lists_where_closed_forms_end() -> None:
    """Sets filled into sets, without leaps and without numbers in common: isl decides, lists alone count."""
    pytest.importorskip("islpy")
    A = allocate((2310,))

    def chain(start: int) -> View:
        view: View = A
        for p in (7, 11, 5):
            view = view.ravel()[: view.size // p * p].reshape(-1, p)[:, start : p - 2 + start]
        return view

    one, two = chain(0), chain(2)
    x = np.arange(1, 2311)
    reads = []
    for start in (0, 2):
        values = x
        for p in (7, 11, 5):
            values = values.ravel()[: values.size // p * p].reshape(-1, p)[:, start : p - 2 + start]
        reads.append(cells(values))
    both = reads[0] & reads[1]
    with (
        patch.object(lazy.tuning, "LAZY_LEAPS", 0),
        patch.object(lazy, "_inks", lambda *about: None),
    ):
        with patch.object(cells_module, "in_few_setts", lambda s, extent: s), tally() as decided:
            assert overlaps(one, two) == bool(both) and contains(one, two) == (reads[1] <= reads[0])
        assert not decided.listed
        assert overlap(one, two).size == len(both)


# ------------------------------------------------------------------------------------------------ wrong arguments


@pytest.mark.parametrize(
    ("ask", "names"),
    [
        (overlaps, ("a", "b")),
        (overlap, ("a", "b")),
        (contains, ("a", "b")),
        (same_elements, ("a", "b")),
    ],
)
def test_errors_say_which_argument_is_wrong(ask: Any, names: tuple[str, str]) -> None:
    A = allocate((3,))
    for k, name in enumerate(names):
        wrong: list[Any] = [A, A]
        wrong[k] = 3
        with pytest.raises(TypeError, match=f"^{ask.__name__}: {name}: int is neither a View nor an array"):
            ask(*wrong)
        wrong[k] = np.zeros(2, object)
        with pytest.raises(ValueError, match=f"^{ask.__name__}: {name}: .*Python objects"):
            ask(*wrong)


@pytest.mark.parametrize("ask", [origins, has_internal_overlap, internal_overlap, is_contiguous])
def test_errors_name_the_question(ask: Any) -> None:
    with pytest.raises(TypeError, match=f"^{ask.__name__}: str is neither a View nor an array"):
        ask("A")


def test_bytes_follow_the_item_size() -> None:
    A = allocate((10,), dtype=np.float64)
    assert overlap(A[:6], A[4:]).nbytes == 16


def test_stacked_views_contain_their_parts() -> None:
    A, B = allocate((4,)), allocate((4,))
    both = stack([A, B])
    assert both.contains(A) and both.contains(B[::2]) and not A.contains(both)
    assert set(origins(both)) == {A, B}
