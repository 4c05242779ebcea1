"""Cells of one allocation, read through pieces, against cells that NumPy lists."""

from __future__ import annotations

from math import prod
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from tapestry_sets import (
    Allocation,
    Sett,
    Stripe,
    TooHard,
    TooManyPieces,
    View,
    allocate,
    limits,
    overlap,
    overlaps,
    pad,
    roll,
)
from tapestry_sets.alias.ladder.by_isl import isl_numbers
from tapestry_sets.alias.ladder.cells import filled, read_cells
from tapestry_sets.alias.ladder.known import KnownCells, no_products
from tapestry_sets.alias.memory.arrays import MEMORY
from tapestry_sets.integers import lazy
from tapestry_sets.integers import nest as nest_module
from tapestry_sets.integers.integers import Integers
from tapestry_sets.integers.lazy import Filled
from tapestry_sets.integers.sett import DisjointSetts
from tapestry_sets.integers.together import count_shared, lies_within, some_common
from tapestry_sets.solvers import isl
from tapestry_sets.views.kinds.choosing import AsStrided
from tapestry_sets.views.view import _find_chain
from tests.oracles import memory_for, read_view
from tests.strategies import views


@given(views())
def test_numbers_are_those_that_the_view_reads(pair: tuple[View, np.ndarray]) -> None:
    view, values = pair
    (home,) = view.allocations
    found = read_cells(view.pieces, 0, view.shape, home.shape, home.size)
    numbers = set((values[values > 0] - 1).tolist())
    assert set(found.explicit().elements(0, home.size).tolist()) == numbers
    assert found.size == len(numbers) and found.is_empty == (not numbers)
    assert {tuple(p) for p in found.regions().points().tolist()} == {
        tuple(int(x) for x in np.unravel_index(z, home.shape)) for z in numbers
    }


@given(views(length=3, cells=60))
def test_index_of_inverts_every_cell(pair: tuple[View, np.ndarray]) -> None:
    view, _ = pair
    memory = memory_for([view])
    values = read_view(view, memory)
    for home, c in view.cells.items():
        for cell in np.ndindex(home.shape):
            index = c.index_of(cell)
            reads = memory[home][cell] in values
            assert (index is not None) == reads
            assert index is None or values[index] == memory[home][cell]


@given(views(length=3))
@example((allocate((4,)).take([2, 3, 0], axis=0), np.array([3, 4, 1])))
@example((allocate((6, 4, 4)).reshape(2, 2, 24).permute_dims((2, 1, 0)), np.array([])))  # gaps, unsolved, are hard
@example((roll(allocate((4, 5, 3)), 0, axis=0).swizzle(1, 0, 2), np.array([])))
def test_isl_answers_alike(pair: tuple[View, np.ndarray]) -> None:
    """Where closed forms end and views are large isl takes over: with the setts taken away, the answers stay."""
    pytest.importorskip("islpy")
    with (
        patch.object(KnownCells, "list_numbers", lambda self, limit: None),
        patch.object(isl, "COUNT_OPERATIONS", 100 * isl.COUNT_OPERATIONS),  # gaps of some take isl long to see
        patch.object(isl, "MAX_OPERATIONS", 100 * isl.MAX_OPERATIONS),  # and so does what tables have in common
    ):
        answers_stay_without_setts(pair[0])


@given(views(length=3))
def test_listed_cells_answer_alike(pair: tuple[View, np.ndarray]) -> None:
    """Where closed forms end the cells of a small view are listed: with the setts taken away, the answers stay."""
    answers_stay_without_setts(pair[0])


def answers_stay_without_setts(view: View) -> None:
    for c in view.cells.values():
        other = replace(c, held=None, products=None, find_products=no_products)
        assert other.size == c.size and not other.is_empty
        assert other.is_run() == c.is_run()
        assert other.meets(c) and c.issubset(other) and other.issubset(c)
        assert other.count_common(c) == c.size
        cell = c.a_common_cell(other)
        assert cell is not None and c.index_of(cell) is not None
        with pytest.raises(TooManyPieces, match="answer without"):
            other.regions()


def test_counting_what_only_isl_knows_is_refused_when_large() -> None:
    pytest.importorskip("islpy")
    A = allocate((10**8,))
    c = replace(A.sliding_windows(3).cells[A], held=None, products=None, find_products=no_products)
    with pytest.raises(TooHard, match="the witness do not"):
        _ = c.size


# ------------------------------------------------------------------------- cells held by filling set into set


@st.composite
def misaligned(draw: st.DrawFn, view: View, array: np.ndarray, length: int = 4) -> tuple[View, np.ndarray]:
    """Reshape, slice, and now and then turn around: rows as long as they come, which seldom align."""
    for _ in range(draw(st.integers(1, length))):
        rows = draw(st.sampled_from([d for d in range(1, array.size + 1) if array.size % d == 0]))
        view, array = view.reshape(rows, -1), array.reshape(rows, -1)
        key = []
        for n in array.shape:
            start = draw(st.integers(0, n - 1))
            key.append(slice(start, draw(st.integers(start + 1, n)), draw(st.sampled_from([1, 1, 2, 3]))))
        view, array = view[tuple(key)], array[tuple(key)]
        turn = draw(st.sampled_from(["no"] * 8 + ["transpose", "flip", "roll", "pad"]))
        if turn == "transpose":
            view, array = view.T, array.T
        elif turn == "flip":
            view, array = view.flip(0), np.flip(array, 0)
        elif turn == "roll":
            view, array = roll(view, 1, 1), np.roll(array, 1, 1)
        elif turn == "pad":
            view, array = pad(view, 1), np.pad(array, 1)
    return view, array


Misaligned = tuple[Allocation, View, np.ndarray, View, np.ndarray]


@st.composite
def misaligned_pairs(draw: st.DrawFn) -> Misaligned:
    """Two misaligned chains over one allocation of numbers from 1, one often a part of the other's chain."""
    A = allocate((draw(st.sampled_from([24, 60, 90, 120, 210, 360])),), name="A")
    base = A, np.arange(1, A.size + 1)
    one, x = draw(misaligned(*base))
    two, y = draw(misaligned(*(base if draw(st.booleans()) else (one, x)), 2))
    return (A, one, x, two, y) if draw(st.booleans()) else (A, two, y, one, x)


def numbers_read(values: np.ndarray) -> set[int]:
    return set((values[values > 0] - 1).tolist())


@given(misaligned_pairs())
def test_filled_sets_are_the_cells_read(pair: Misaligned) -> None:
    A, one, x, _, _ = pair
    chain = _find_chain(one)
    if chain:
        assert set(filled(chain).elements(0, A.size).tolist()) == numbers_read(x)
    assert set(one.cells[A].explicit().elements(0, A.size).tolist()) == numbers_read(x) if numbers_read(x) else True


def test_chains_in_ascending_order_are_held_by_filled_sets() -> None:
    """…and so is what reads all of their cells in another order; what else follows another order is not."""
    A = allocate((24, 35))
    half = A.reshape(-1, 7)[:, :4].reshape(-1, 5)[:, 1:4]
    assert len(_find_chain(half)) == 2 and len(_find_chain(half.reshape(-1, 4)[:, 1:])) == 3
    assert (
        _find_chain(half.T.reshape(-1)) == _find_chain(half.T.reshape(-1, 4).flip(0)) == _find_chain(roll(half, 1, 0))
    )
    assert not _find_chain(half.T.reshape(-1, 9)[:, 1:]) and not _find_chain(half[:0])
    assert _find_chain(A.T) == _find_chain(A.T.reshape(-1)) == _find_chain(A)


@given(misaligned_pairs())
def test_questions_about_filled_sets_are_answered_as_listed(pair: Misaligned) -> None:
    A, one, x, two, y = pair
    ours, theirs = _find_chain(one), _find_chain(two)
    if not ours or not theirs:
        return
    mine, other = numbers_read(x), numbers_read(y)
    for s, t in ((filled(ours), filled(theirs)), (filled(ours), filled(theirs).setts(within=(0, A.size)))):
        answers_are(s, t, mine, other, A.size)
        answers_are(t, s, other, mine, A.size)


def answers_are(s: Integers, t: Integers, mine: set[int], other: set[int], extent: int) -> None:
    both = mine & other
    shared = some_common(s, t, 0, extent)
    assert shared in both if both else shared is None
    if isinstance(s, Filled) or isinstance(t, Filled):
        assert shared == min(both, default=None)
    assert count_shared(s, t, 0, extent) == len(both)
    assert lies_within(s, t, 0, extent) == (mine <= other)


@given(misaligned_pairs())
def test_they_are_answered_alike_where_listing_is_all_that_is_left(pair: Misaligned) -> None:
    """Without leaps and without setts by their numbers in the other's outer set."""
    A, one, x, two, y = pair
    ours, theirs = _find_chain(one), _find_chain(two)
    if len(ours) < 2 or len(theirs) < 2:
        return
    with patch.object(lazy.tuning, "LAZY_LEAPS", 0), patch.object(lazy, "_inks", lambda *about: None):
        answers_are(filled(ours), filled(theirs), numbers_read(x), numbers_read(y), A.size)


@given(misaligned_pairs())
def test_blocks_of_a_common_width_are_counted_as_single_cells(pair: Misaligned) -> None:
    A, one, x, two, y = pair
    ours, theirs = _find_chain(one), _find_chain(two)
    if not ours or not theirs:
        return
    w = 10**9
    s, t = (filled([DisjointSetts._of(m.nest for m in link.scale(w).members) for link in c]) for c in (ours, theirs))
    mine, other = numbers_read(x), numbers_read(y)
    assert count_shared(s, t, 0, A.size * w) == len(mine & other) * w
    assert lies_within(s, t, 0, A.size * w) == (mine <= other)
    first = some_common(s, t, 0, A.size * w)
    if isinstance(s, Filled) or isinstance(t, Filled):
        assert first == (min(mine & other) * w if mine & other else None)
    else:
        assert first // w in mine & other if first is not None else not mine & other


@given(misaligned_pairs())
def test_cells_held_by_filled_sets_answer_as_others_do(pair: Misaligned) -> None:
    A, one, x, two, y = pair
    mine, other = numbers_read(x), numbers_read(y)
    if not mine or not other:
        return
    held = [replace(v.cells[A], held=filled(_find_chain(v) or [v.cells[A].explicit()])) for v in (one, two)]
    c, d = held
    assert c.size == len(mine) and not c.is_empty
    assert c.is_run() == (max(mine) - min(mine) + 1 == len(mine))
    assert c.meets(d) == bool(mine & other) and c.issubset(d) == (mine <= other)
    assert c.count_common(d) == len(mine & other)
    assert {int(z) for (z,) in c.common_regions(d).points()} == mine & other
    assert {int(z) for (z,) in c.regions().points()} == mine
    at = c.a_common_cell(d)
    assert at is None if not mine & other else at is not None and at[0] in mine & other


@given(st.integers(0, 2**62), st.integers(0, 2**62), st.integers(2, 40), st.integers(2, 40))
def test_numbers_and_elements_of_arrays_are_those_of_one(at: int, size: int, p: int, q: int) -> None:
    nest = Sett(Stripe(size // 3 + p + 1, size + 7, phase=at), Stripe(p - 1, q, phase=p), Stripe(1, 2)).nest
    s = Sett._of(nest)
    k = np.arange(0, 50) * (p * q)
    k = k[[s.nth(int(n)) < 2**62 for n in k]]
    z = nest_module.nth_each(nest, k)
    assert z.tolist() == [s.nth(int(n)) for n in k] and z.dtype == np.int64
    assert nest_module.rank_each(nest, z).tolist() == k.tolist()


# ----------------------------------------------------------------------------------------------------- hard cases


def cascade(periods: int) -> tuple[Allocation, View]:
    """4 of 7, then p // 2 of p for 11, 13, 17, 19, 23, each reshaped from the last; 95,040 cells in each period."""
    moduli = [(7, 4), *((p, p // 2) for p in (11, 13, 17, 19, 23))]
    A = view = allocate((prod(p for p, _ in moduli) * periods,))
    for p, on in moduli:
        view = view.ravel()[: view.size // p * p].reshape(-1, p)[:, :on]
    return A, view


def cascade_reads(numbers: np.ndarray) -> np.ndarray:
    """Say for each number whether the cascade reads it, level by level from the ranks."""
    keep = np.ones(len(numbers), bool)
    ranks = numbers
    for p, on in [(7, 4), (11, 5), (13, 6), (17, 8), (19, 9), (23, 11)]:
        row, at = np.divmod(ranks, p)
        keep &= at < on
        ranks = row * on + np.minimum(at, on - 1)
    return keep


@pytest.mark.parametrize("periods", [1, 10**12])
def test_a_cascade_is_measured_without_counting(periods: int) -> None:
    A, view = cascade(periods)
    assert not view.is_contiguous() and not view.has_internal_overlap()
    assert view.cells[A].size == view.size
    assert overlaps(view, A[3::11]) and not overlaps(view, A[6::7])


@pytest.mark.heavy(2)
@pytest.mark.parametrize("periods", [1, 10**12])
@pytest.mark.parametrize("step", [5, 12, 1001])
def test_a_cascade_is_counted_against_strides_of_any_step(periods: int, step: int) -> None:
    A, view = cascade(periods)
    every = np.flatnonzero(cascade_reads(np.arange(A.size // periods)))
    P = A.size // periods
    whole, rest = divmod(periods, step // np.gcd(step, P))  # so many common periods, and periods of the cascade
    counted = [int(((every + k * P) % step == 3).sum()) for k in range(step // int(np.gcd(step, P)))]
    assert isinstance(view.cells[A].setts, Filled)
    assert overlap(view, A[3::step]).size == int(whole) * sum(counted) + sum(counted[: int(rest)])


def test_what_is_held_and_too_much_to_list_is_refused() -> None:
    pytest.importorskip("islpy")
    A, view = cascade(10**6)
    other = A[1:]
    for p, on in [(5, 2), (29, 13), (31, 17)]:
        other = other.ravel()[: other.size // p * p].reshape(-1, p)[:, 1 : 1 + on]
    with limits(max_pieces=20), pytest.raises(TooManyPieces, match="too many setts"):
        view.origins()
    assert overlaps(view, other)
    with patch.object(isl, "COUNT_OPERATIONS", 1000), pytest.raises(TooHard, match="needs a scan"):
        _ = overlap(view, other).size


def test_a_cascade_is_listed_where_it_is_counted() -> None:
    A, view = cascade(1)
    every = np.flatnonzero(cascade_reads(np.arange(A.size)))
    assert view.cells[A].size == len(every) == 4 * 5 * 6 * 8 * 9 * 11 * 1
    found = overlap(view, A[3::11])
    assert found.size == int((every % 11 == 3).sum())
    at = found.witness
    assert at is not None and at.cell[0] in every and at.cell == (3 + 11 * at.b[0],)
    assert view.contains(view[::3]) and not view[::3].contains(view)


def test_interleaved_strides_are_listed() -> None:
    """Sums of steps 36674, 61119 and 85569, 30 of each: no few setts, but only 27,000 cells."""
    A = allocate((36674 * 29 + 61119 * 29 + 85569 * 29 + 1,))
    i = np.arange(30)
    sums = 36674 * i[:, None, None] + 61119 * i[:, None] + 85569 * i
    c = A.apply(AsStrided((30, 30, 30), (36674, 61119, 85569))).cells[A]
    assert A.size == sums.max() + 1
    assert c.size == len(np.unique(sums)) and not c.is_run() and not c.is_empty


@pytest.mark.parametrize("n", [200, 201, 10**7, 10**15 + 1])
@pytest.mark.parametrize(("size", "step", "dilation"), [(5, 3, 2), (3, 2, 3), (7, 5, 4), (4, 6, 9)])
def test_windows_with_a_step_and_a_dilation(n: int, size: int, step: int, dilation: int) -> None:
    """A vector longer by so many steps reads as many more of each residue class that windows reach."""
    A = allocate((n,))
    short = 200 + (n - 200) % step
    starts = range((short - (size - 1) * dilation - 1) // step + 1)
    read = {step * i + dilation * j for i in starts for j in range(size)}
    more = (n - short) // step * len({dilation * j % step for j in range(size)})
    view = A.sliding_windows(size, step, dilation)
    assert view.cells[A].size == overlap(view, A).size == len(read) + more
    assert view.origins()[A].size == len(read) + more


def test_windows_of_images_are_products() -> None:
    M = allocate((8, 64, 112, 112))
    w = M.sliding_windows((3, 3), 2, 3, axis=(2, 3))
    one = np.zeros(112, bool)
    one[np.arange(53)[:, None] * 2 + np.arange(3) * 3] = True
    assert w.cells[M].size == overlap(w, M).size == 8 * 64 * int(one.sum()) ** 2
    assert w.origins()[M].size == 8 * 64 * int(one.sum()) ** 2


def test_sums_contain_what_bounds_and_single_cells_say() -> None:
    """Where neither setts nor isl would decide in time."""
    steps = (36674, 61119, 85569)
    A = allocate((10**12,))
    x = A.apply(AsStrided((1000,) * 3, steps, 5))
    with patch.object(isl, "available", return_value=False):
        assert x.contains(x) and x.same_elements(x.flip()) and x.contains(x[:10, :, 0])
        assert x.contains(A[5:6]) and not x.contains(A[:1]) and not x.contains(A[6:7])
        assert not x.same_elements(A.apply(AsStrided((1000,) * 3, steps, 6)))
        assert x.contains(A.apply(AsStrided((1000, 400), steps[:2], 5)))


@pytest.mark.parametrize("n", [4, 10, 10**3, 10**15])
def test_diagonals_are_one_progression(n: int) -> None:
    B = allocate((n, n))
    diagonal = B.diagonal()
    assert diagonal.cells[B].size == n
    found = overlap(diagonal, B[::5])
    assert found.size == len(range(0, n, 5)) == diagonal.cells[B].count_common(B[::5].cells[B])


def test_isl_gives_up_within_its_limit() -> None:
    """What neither setts nor lists decide goes to isl, which is stopped, and answers the next question."""
    pytest.importorskip("islpy")
    c = MEMORY.apply(AsStrided((300, 300, 300), (36674, 61119, 85569), 5)).cells[MEMORY]
    assert not c.is_run()
    with pytest.raises(TooHard, match=r"view of shape \(300, 300, 300\)"):
        _ = c.size
    points = isl_numbers(c)
    with pytest.raises(TooHard, match="stopped"):
        isl.bounded(lambda: isl.count_points(points, 10**9), TooHard("stopped"), 1000)
    assert isl.bounded(lambda: isl.a_point(points), TooHard("stopped")) is not None


@pytest.mark.parametrize("n", [10, 10**7])
def test_gaps_at_the_ends_do_not_count_as_runs(n: int) -> None:
    """Sums of 3s and 5s leave out 1, 2, 4 and 7, whatever fills up between."""
    pytest.importorskip("islpy")
    gaps = MEMORY.apply(AsStrided((n, n), (3, 5)))
    assert not gaps.is_contiguous()
    assert overlaps(gaps, MEMORY[7:9]) and not overlaps(gaps, MEMORY[7:8])
