"""Cells as products of indices, axis by axis, against NumPy's values and indices listed one by one."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tapestry_sets import (
    Region,
    Sett,
    Stripe,
    TooManyPieces,
    allocate,
    concatenate,
    covers,
    interleave,
    limits,
    overlap,
    overlap_matrix,
    overlaps,
    pad,
    repeat,
    roll,
    stack,
    tile,
)
from tapestry_sets.limits import OPEN, tally
from tapestry_sets.regions import axis_sets
from tapestry_sets.views import Pad, Roll, Take, Tile, View
from tapestry_sets.views.kinds.axis_maps import Folded
from tapestry_sets.views.pieces.reading import cell_read
from tapestry_sets.views.products import read_index, read_products, reads_each_once
from tests.oracles import memory_for, read_view
from tests.strategies import views

A = allocate((5, 6), name="A")


def origin(view: View, index: tuple[int, ...]) -> tuple[int, ...]:
    """The cell that one index reads, piece by piece."""
    (cell,) = [cell for piece in view.pieces if (cell := cell_read(piece, index)) is not None]
    return cell


@given(views(length=5))
@example((pad(A, 2, "reflect")[3:, ::2], np.empty(0)))
@example((pad(A, ((7, 1), (2, 9)), "symmetric")[::3], np.empty(0)))
@example((roll(A, 2, 1)[:, 1:3].sliding_windows((2, 2)), np.empty(0)))
@example((tile(A, (2, 3))[4:6, 5:9], np.empty(0)))
@example((repeat(A, 3, 0)[2:5].T, np.empty(0)))
@example((A.take([4, 0, 4, 1, 3], axis=0).reshape(5, 2, 3)[1:, 1], np.empty(0)))
@example((A.reshape(30)[::2], np.empty(0)))
@example((A[:, None, 2].broadcast_to((3, 5, 5)), np.empty(0)))
@example((A.reshape(30)[3:23], np.empty(0)))
@example((A.reshape(30)[1:29:4], np.empty(0)))
@example((A.reshape(3, 10)[::2, 1:8].reshape(14)[2:11], np.empty(0)))
@example((A.take([4, 0, 2], axis=0).reshape(18)[:15], np.empty(0)))
@example((A.reshape(30).take([0, 1, 2, 6, 7, 8, 20, 14, 13], axis=0), np.empty(0)))
@example((concatenate([A[3:], A[:4]])[1:, ::2], np.empty(0)))
@example((allocate((3, 4, 2)).take([2, 0], 0).reshape(4, 4)[:, 1:3], np.empty(0)))
@example((allocate((3, 4, 2)).take([2, 0], 0).reshape(2, 1, 2, 2, 2)[:, :, 1, :, ::-1].reshape(8), np.empty(0)))
@example((allocate((6, 4)).reshape(4, 6)[1:3, 2:5], np.empty(0)))
@example((stack([A[0], A[2], A[0]], axis=1)[1:, 1:], np.empty(0)))
@example((interleave([A[:3], A[2:]], axis=0)[2:4], np.empty(0)))
def test_a_product_is_what_a_view_reads(pair: tuple[View, np.ndarray]) -> None:
    view, _ = pair
    every = read_products(view)
    if every is None:
        return
    memory = memory_for([view])
    values = read_view(view, memory)
    assert set(every) == {home for home in view.allocations if np.isin(memory[home], values).any()}
    for home, found in every.items():
        cells = {tuple(cell) for cell in np.ndindex(home.shape) if memory[home][tuple(cell)] in values}
        points = [set(product(*(axis_sets.to_array(s).tolist() for s in sets))) for sets in found.each]
        assert set().union(*points) == cells and all(points)
        assert found.size == len(cells) and found.is_empty == (not cells)
        for cell in np.ndindex(home.shape):
            index = found.index_of(cell)
            assert index is not OPEN or cell in cells
            if index is not OPEN:
                assert (index is not None) == (cell in cells)
                assert index is None or (
                    values[index] == memory[home][cell] and read_index(view, index) == (home, cell)
                )
        again = found.find_twice()
        read = values[np.isin(values, memory[home])]
        if again is None:
            assert len(np.unique(read)) == len(read)
        elif again is not OPEN:
            assert again[0] != again[1] and values[again[0]] == values[again[1]]


AXIS_SETS = st.sampled_from([(0, 0, 1), (1, 4, 3), (0, 4, 2), (2, 4, 1), (4, 4, 1), (0, 5, 1), (1, 5, 2), (3, 29, 1)])


@given(views(length=5), st.lists(AXIS_SETS, min_size=6, max_size=6))
@example((pad(A, 2, "reflect")[3:, ::2], np.empty(0)), [(1, 4, 3), (0, 4, 2)])
@example((pad(A[:1], 2, "edge"), np.empty(0)), [(0, 0, 1), (0, 5, 1)])
@example((pad(A, ((7, 1), (2, 9)), "symmetric")[::3], np.empty(0)), [(0, 4, 2), (2, 4, 1)])
@example((pad(A, 1).sliding_windows((3, 3)), np.empty(0)), [(0, 4, 2), (0, 5, 1)])
@example((A.sliding_windows((3, 2), (2, 1))[..., ::2, :], np.empty(0)), [(1, 4, 3), (1, 5, 2)])
@example((repeat(A, 3, 0)[2:5].T, np.empty(0)), [(0, 4, 2), (1, 5, 2)])
@example((repeat(A, 9, 0), np.empty(0)), [(0, 4, 2), (1, 5, 2)])
@example((tile(A, (2, 3))[4:6, 5:9], np.empty(0)), [(0, 0, 1), (1, 5, 2)])
@example((A.take([4, 0, 4, 1, 3], axis=0).reshape(5, 2, 3)[1:, 1], np.empty(0)), [(1, 4, 3), (3, 29, 1)])
@example((allocate((30,)).reshape(5, 6), np.empty(0)), [(3, 29, 1)])
@example((allocate((30,)).reshape(5, 6)[::-1], np.empty(0)), [(0, 5, 1)])
@example((A[:, None, 2].broadcast_to((3, 5, 5)), np.empty(0)), [(2, 4, 1), (0, 5, 1)])
@example((allocate((1, 1)).reshape(()), np.empty(0)), [(0, 0, 1), (0, 0, 1)])
def test_the_indices_that_read_a_product_of_cells(
    pair: tuple[View, np.ndarray], wanted: list[tuple[int, int, int]]
) -> None:
    view, _ = pair
    every = read_products(view)
    memory = memory_for([view])
    values = read_view(view, memory)
    for home, found in (every or {}).items():
        sets = tuple([axis_sets.meet((p,), ((0, n - 1, 1),)) for p, n in zip(wanted, home.shape, strict=False)])
        cells = memory[home][np.ix_(*map(axis_sets.to_array, sets))]
        each = list(found.readers(sets))
        if OPEN in each:
            continue
        read = [i for s in each for i in product(*(axis_sets.to_array(t).tolist() for t in s))]
        assert len(set(read)) == len(read)
        assert set(read) == set(map(tuple, np.argwhere(np.isin(values, cells)).tolist()))
        regions = Region(home.shape, [nest_sett(s, n) for s, n in zip(sets, home.shape, strict=True)])
        assert view.preimage({home: regions}).size == len(read)


def nest_sett(s: axis_sets.AxisSet, extent: int) -> Sett:
    """A set of at most one progression as a sett."""
    return Sett._of(*axis_sets.nests_of(s, extent)) if len(s) else Sett(Stripe(0, 1))


@given(views(length=5))
@example((pad(A, 2, "reflect"), np.empty(0)))
@example((pad(A, 1, "edge")[1:], np.empty(0)))
@example((pad(A, 1, "edge")[1:-1, 1:], np.empty(0)))
@example((pad(A, 1)[1:, 2:].reshape(-1, 2)[1:].reshape(-1), np.empty(0)))
@example((pad(A, 3).sliding_windows((3, 3), 3)[1:2], np.empty(0)))
@example((A.take([4, 0, 3, 1], axis=0), np.empty(0)))
@example((A[:, None, 2].broadcast_to((3, 5, 5)), np.empty(0)))
def test_a_cell_that_is_read_twice(pair: tuple[View, np.ndarray]) -> None:
    view, _ = pair
    values = read_view(view, memory_for([view])) if 0 not in view.shape else np.empty(0)
    read = values[values >= 1]
    is_twice = len(np.unique(read)) < len(read)
    assert not (is_twice and reads_each_once(view))
    found = view.internal_overlap()
    assert (found is not None) == is_twice
    if found is not None:
        assert found.a != found.b and values[found.a] == values[found.b]


def test_most_views_of_pads_and_tables_are_products() -> None:
    for view in (pad(A, 1, "wrap"), pad(A, 9, "symmetric")[3:], roll(A, 1, 0), A.take([3, 1, 1], axis=1), tile(A, 2)):
        (found,) = (read_products(view[1:, ::2]) or {}).values()
        assert len(found.each) == 1
    assert read_products(A.diagonal()) is None  # one axis moves along two
    (found,) = (read_products(A.reshape(6, 5)[1:]) or {}).values()
    assert len(found.each) == 2  # a row is cut


@pytest.mark.parametrize("mode", ["constant", "edge", "wrap", "reflect", "symmetric"])
@pytest.mark.parametrize("windows", [False, True])
@pytest.mark.parametrize("n", [8, 8 * 10**9])
def test_the_halo_of_two_tiles_of_a_padded_image(mode: str, windows: bool, n: int) -> None:
    """Sizes to 10^9 cost the same; at the small one cells are counted by NumPy."""
    image = allocate((n, n))
    padded = pad(image, 1, mode)
    rows = padded.sliding_windows((3, 3)) if windows else padded
    half = n // 2 if windows else n // 2 + 2
    one, two = rows[:half], rows[n // 2 :]
    with tally() as decided:
        o = overlap(one, two)
        size = o.size
    assert set(decided.rungs) <= {"meet_closed", "find_on_axes", "count_on_axes"}, decided
    assert size == {"wrap": 4 * n}.get(mode, 2 * n)
    w = o.witness
    assert w is not None and origin(one, w.a) == w.cell == origin(two, w.b)
    if n == 8:
        pads = {"constant": {"constant_values": -1}}.get(mode, {})
        values = np.pad(np.arange(n * n).reshape(n, n), 1, mode, **pads)
        if windows:
            values = np.lib.stride_tricks.sliding_window_view(values, (3, 3))
        both = np.intersect1d(values[:half], values[n // 2 :])
        assert size == len(both[both >= 0])


@pytest.mark.parametrize("widths", [10**9, 10**18])
def test_pads_that_go_around_often_are_answered(widths: int) -> None:
    for mode in ("wrap", "reflect", "symmetric"):
        assert overlap(pad(A, widths, mode), A).size == 30
        assert overlap(pad(A, widths, mode)[:2, : 10**9], A).size in (10, 12, 6, 5, 15, 20)


@given(st.lists(st.integers(0, 39), max_size=12), st.lists(st.integers(-40, 39), max_size=12), st.booleans())
@example([0, 0], [], False)
def test_pages(one: list[int], two: list[int], sliced: bool) -> None:
    pages = allocate((40, 4, 3), name="pages")
    a, b = pages.take(one, axis=0), pages.take(two, axis=0)
    values = np.arange(480).reshape(40, 4, 3)
    x, y = values[one], values[two]
    if sliced:
        b, y = pages.reshape(40 * 4, 3)[7::3], values.reshape(160, 3)[7::3]
    both = np.intersect1d(x, y)
    assert overlaps(a, b) == bool(len(both))
    o = overlap(a, b)
    assert o.size == len(both)
    assert a.contains(b) == bool(np.isin(y, x).all()) and b.contains(a) == bool(np.isin(x, y).all())
    assert a.is_contiguous() == (len(x) < 1 or len(np.unique(x)) == x.max() - x.min() + 1)
    if len(both):
        assert o.witness is not None and origin(a, o.witness.a) == o.witness.cell == origin(b, o.witness.b)
        assert sum(r.size for r in o.regions.values()) == len(both)


def test_ten_thousand_pages_take_no_pieces() -> None:
    order = np.random.default_rng(0).permutation(40_000)
    pages = allocate((40_000, 16, 8, 64), dtype="float16")
    one, two = pages.take(order[:10_000], axis=0), pages.take(order[10_000:20_000], axis=0)
    shared = pages.take(np.concatenate([order[10_000:10_100], order[:3]]), axis=0)
    with tally() as decided:
        assert not overlaps(one, two)
        assert overlap(one, shared).size == 3 * 16 * 8 * 64
        assert overlap(one, pages[:20_000, :, 2:4]).size == int((order[:10_000] < 20_000).sum()) * 16 * 2 * 64
        rows = pages.reshape(40_000 * 16, 512)[::3]
        assert overlap(one, rows).size == sum(len(range(-page * 16 % 3, 16, 3)) for page in order[:10_000]) * 512
    assert not (decided.isl or decided.listed)
    with limits(max_pieces=1000), pytest.raises(TooManyPieces):
        _ = overlap(one, pages).regions


def test_kinds_that_read_no_axis_of_their_own_have_no_map() -> None:
    assert read_products(A.diagonal()) is None
    assert Pad(((0, 0),)).by_axis(((4,),))[0][0].axes == (0,)
    assert Take((1,), -1).by_axis(((10**19, 3),)) is not None and Take((1,), 0).by_axis(((10**19, 3),)) is None
    assert [m.axes for m in Tile((2, 1)).by_axis(((4,),))[0]] == [(1,)]
    assert [m.axes for m in Roll(1, 0).by_axis(((4, 2),))[0]] == [(0,), (1,)]
    assert prod(pad(A, 1).shape) == 56


@given(
    st.integers(1, 9),
    st.integers(0, 5),
    st.sampled_from(["wrap", "reflect", "symmetric"]),
    st.integers(0, 60),
    st.integers(1, 14),
    st.integers(1, 2000),
)
@example(5, 2, "reflect", 0, 3, 1500)
def test_steps_that_go_around_often(n: int, start: int, mode: str, first: int, step: int, many: int) -> None:
    """With and without turn by turn, against the definition."""
    if mode == "reflect" and n == 1:
        n = 2
    folded = Folded((0,), start, n, n - (mode == "reflect"), mode != "wrap")
    period = folded.turn * (1 + folded.mirrored)

    def reads(z: int) -> int:
        r = (z - start) % period
        return r if r < folded.turn else n - 1 - (r - folded.turn)

    steps = (axis_sets.steps_from(first, first + (many - 1) * step, step),)
    wanted = {reads(z) for z in range(first, first + many * step, step)}
    for found in (folded.image(steps), folded._many_turns(steps)):
        if found is not OPEN:
            assert set(axis_sets.to_array(found).tolist()) == wanted
    for z in range(n):
        assert set(
            axis_sets.to_array(axis_sets.meet(steps, folded.before(z, first, first + many * step))).tolist()
        ) == {x for x in range(first, first + many * step, step) if reads(x) == z}


def test_axes_of_any_length_are_answered() -> None:
    """Positions beyond int64, and columns beside long slices."""
    line = allocate((10**30,))
    ends = pad(line, 1, "wrap")
    missing = covers([ends[:3]], ends[-3:][::2]).gap
    assert missing is not None and missing.cell == (10**30 - 2,)
    windows = pad(line, 2, "wrap").sliding_windows((9,), step=1000)[-3:]
    w = overlap(windows, line[::-1][:5000]).witness
    assert w is not None and origin(windows, w.a) == w.cell
    wide = allocate((2**62,))
    column = wide.take([0, 2**62 - 1, 5, 2**61, 2**61 + 1, 7, -3], 0)
    beside = covers([column], wide[1::2]).gap
    assert beside is not None and beside.cell == (1,)
    rows = allocate((10**4, 10**10)).take(np.random.default_rng(0).permutation(10**4)[:300], 0)
    (home,) = rows.allocations
    assert sum(r.size for r in overlap(rows, home[:50, :60]).regions.values()) == overlap(rows, home[:50, :60]).size


def test_a_pad_that_goes_around_often_meets_in_closed_form() -> None:
    p = pad(allocate((5, 7)), 1000, "reflect")
    values = np.pad(np.arange(35).reshape(5, 7), 1000, "reflect")
    assert overlap(p[::3, 1::2], p[1::4, ::3]).size == len(np.intersect1d(values[::3, 1::2], values[1::4, ::3]))


def cut_sequence(pages: View, table: Sequence[int], cut: int) -> View:
    """A sequence of pages in rows, without the last few."""
    _, block, width = pages.shape
    return pages.take(table, axis=0).reshape(len(table) * block, width)[: len(table) * block - cut]


@given(
    st.lists(st.integers(0, 11), min_size=1, max_size=8),
    st.lists(st.integers(0, 11), min_size=1, max_size=8),
    st.integers(0, 3),
    st.integers(0, 3),
)
@example([3, 7, 0, 11], [3, 5, 0, 2], 1, 3)
@example([3, 7, 3, 11], [3, 5, 0, 2], 1, 3)
def test_sequences_whose_last_page_is_cut(one: list[int], two: list[int], cut: int, other: int) -> None:
    pages = allocate((12, 4, 2), name="pages")
    values = np.arange(96).reshape(12, 4, 2)
    a, b = cut_sequence(pages, one, cut), cut_sequence(pages, two, other)
    x = values[one].reshape(-1, 2)[: len(one) * 4 - cut]
    y = values[two].reshape(-1, 2)[: len(two) * 4 - other]
    with tally() as decided:
        assert overlap(a, b).size == len(np.intersect1d(x, y)) and overlaps(a, b) == np.isin(x, y).any()
        assert a.contains(b) == np.isin(y, x).all() and a.same_elements(b) == (set(x.flat) == set(y.flat))
        missing = covers([a], b).gap
        assert (missing is None) == np.isin(y, x).all()
        assert missing is None or (np.ravel_multi_index(missing.cell, (12, 4, 2)) == y[missing.at]) & ~np.isin(
            y[missing.at], x
        )
        joined = concatenate([a, b])
        assert overlap(joined, pages).size == len(np.union1d(x, y))
        twice = joined.internal_overlap()
        assert (twice is None) == (len(np.unique(np.concatenate([x, y]))) == x.size + y.size)
        assert twice is None or twice.a != twice.b
        for view, array in ((a, x), (joined, np.concatenate([x, y]))):
            assert view.is_contiguous("C") == (array.ravel() == array[0, 0] + np.arange(array.size)).all()
            again = view.internal_overlap()
            assert again is None or array[again.a] == array[again.b] == np.ravel_multi_index(again.cell, (12, 4, 2))
    assert not (decided.isl or decided.listed)


def test_many_cut_pages_take_no_pieces() -> None:
    order = np.random.default_rng(0).permutation(40_000)
    pages = allocate((40_000, 16, 128), dtype="float16")
    one, two = cut_sequence(pages, order[:10_000], 5), cut_sequence(pages, order[9_999:20_000], 3)
    with tally() as decided, limits(max_pieces=10):
        assert overlaps(one, two) and overlap(one, two).size == 11 * 128
        assert not one.contains(two) and not one.has_internal_overlap()
        assert overlap(one, pages.reshape(640_000, 128)[::3]).size % 128 == 0
        assert cut_sequence(pages, [*order[:10_000], order[3]], 1).internal_overlap() is not None
    assert not (decided.isl or decided.listed)


def test_rows_that_nowhere_align_with_pages_are_answered() -> None:
    """Rows of three over pages of 128: pieces are compared as far as the budget goes, then cells are listed."""
    pages, order = allocate((300, 16, 8)), np.random.default_rng(0).permutation(300)[:225]
    one = pages.take(order, axis=0).reshape(-1, 32).reshape(-1, 3)[2000:7600:3, 0:3:2]
    values = np.arange(300 * 128).reshape(300, 16, 8)[order].reshape(-1, 3)[2000:7600:3, 0:3:2]
    two = pages[::2, 3:]
    both = np.intersect1d(values, np.arange(300 * 128).reshape(300, 16, 8)[::2, 3:])
    for budget in (100_000, 2_000):
        with limits(budget=budget):
            assert overlap(one.permute_dims((1, 0)), two).size == len(both)


def test_products_whose_union_shatters_are_asked_without_it() -> None:
    """The setts of all of them together may be too many; nothing but an explicit answer needs them."""
    plane, numbers = allocate((1007, 1009)), np.arange(1007 * 1009).reshape(1007, 1009)
    slanted, arrays = [], []
    for a, b in ((0, 1), (2, 4)):
        slanted.append(concatenate([plane[a::3, b::7][:150, :90], plane[b::5, a::11][:150, :90]]))
        arrays.append(np.concatenate([numbers[a::3, b::7][:150, :90], numbers[b::5, a::11][:150, :90]]))
    with limits(max_pieces=3):
        assert overlap_matrix(slanted).tolist() == [[True, True], [True, True]]
        assert overlap(*slanted).size == len(np.intersect1d(*arrays))
        assert slanted[0].contains(slanted[1]) is False
