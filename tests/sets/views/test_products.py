"""Cells as products of indices, axis by axis, against NumPy's values and indices listed one by one."""

from __future__ import annotations

from itertools import product
from math import prod

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tapestry_sets import TooManyPieces, allocate, find_missing, limits, overlap, overlaps, pad, repeat, roll, tile
from tapestry_sets.limits import OPEN, tally
from tapestry_sets.regions import axis_sets
from tapestry_sets.views import Pad, Roll, Take, Tile, View
from tapestry_sets.views.kinds.axis_maps import Folded
from tapestry_sets.views.pieces.reading import cell_read
from tapestry_sets.views.products import read_product
from tapestry_sets.views.view import Derived, _find_product
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
def test_a_product_is_what_a_view_reads(pair: tuple[View, np.ndarray]) -> None:
    view, _ = pair
    found = _find_product(view)
    if found is None:
        return
    (home,) = view.allocations
    memory = memory_for([view])
    values = read_view(view, memory)
    cells = {tuple(cell) for cell in np.ndindex(home.shape) if memory[home][tuple(cell)] in values}
    assert set(product(*(axis_sets.to_array(s).tolist() for s in found.sets))) == cells
    assert found.size == len(cells) and found.is_empty == (not cells)
    for cell in np.ndindex(home.shape):
        index = found.index_of(cell)
        assert index is not OPEN or cell in cells
        if index is not OPEN:
            assert (index is not None) == (cell in cells)
            assert index is None or values[index] == memory[home][cell]


def test_most_views_of_pads_and_tables_are_products() -> None:
    for view in (pad(A, 1, "wrap"), pad(A, 9, "symmetric")[3:], roll(A, 1, 0), A.take([3, 1, 1], axis=1), tile(A, 2)):
        assert _find_product(view[1:, ::2]) is not None
    assert _find_product(A.diagonal()) is None  # one axis moves along two
    assert _find_product(A.reshape(6, 5)[1:]) is None  # rows cut unevenly


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
    assert read_product((3,), [(A.diagonal().kind, (5, 6))]) is None if isinstance(A.diagonal(), Derived) else True
    assert Pad(((0, 0),)).by_axis((4,))[0].axes == (0,)
    assert Take((1,), -1).by_axis((10**19, 3)) is not None and Take((1,), 0).by_axis((10**19, 3)) is None
    assert [m.axes for m in Tile((2, 1)).by_axis((4,))] == [(1,)]
    assert [m.axes for m in Roll(1, 0).by_axis((4, 2))] == [(0,), (1,)]
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
    missing = find_missing(ends[:3], ends[-3:][::2])
    assert missing is not None and missing.cell == (10**30 - 2,)
    windows = pad(line, 2, "wrap").sliding_windows((9,), step=1000)[-3:]
    w = overlap(windows, line[::-1][:5000]).witness
    assert w is not None and origin(windows, w.a) == w.cell
    wide = allocate((2**62,))
    column = wide.take([0, 2**62 - 1, 5, 2**61, 2**61 + 1, 7, -3], 0)
    beside = find_missing(column, wide[1::2])
    assert beside is not None and beside.cell == (1,)
    rows = allocate((10**4, 10**10)).take(np.random.default_rng(0).permutation(10**4)[:300], 0)
    (home,) = rows.allocations
    assert sum(r.size for r in overlap(rows, home[:50, :60]).regions.values()) == overlap(rows, home[:50, :60]).size


def test_a_pad_that_goes_around_often_meets_in_closed_form() -> None:
    p = pad(allocate((5, 7)), 1000, "reflect")
    values = np.pad(np.arange(35).reshape(5, 7), 1000, "reflect")
    assert overlap(p[::3, 1::2], p[1::4, ::3]).size == len(np.intersect1d(values[::3, 1::2], values[1::4, ::3]))
