"""Sets pulled back through the last steps of a view, against the cells that NumPy reads."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapestry_sets import View, allocate, overlap, overlaps, pad, tally
from tapestry_sets.alias.ladder.cells import Cells
from tapestry_sets.alias.ladder.preimage import congruent, turned
from tapestry_sets.alias.ladder.rungs import count_before_turn, find_before_turn, is_subset_before_turn
from tapestry_sets.integers.sett import DisjointSetts
from tapestry_sets.limits import OPEN, REFUSALS, ask_one
from tapestry_sets.solvers import isl
from tests.sets.alias.test_ladder import without_closed_forms


def values_of(first: int, levels: list[tuple[int, int]]) -> list[int]:
    """The sums of steps, each as often as it is reached."""
    values = [first]
    for count, step in levels:
        values = [v + j * step for v in values for j in range(count)]
    return values


@given(st.integers(-30, 30), st.lists(st.tuples(st.integers(2, 7), st.integers(1, 40)), max_size=3), st.data())
def test_congruent_elements_are_those_of_a_remainder(
    first: int, levels: list[tuple[int, int]], data: st.DataObject
) -> None:
    b, c = data.draw(st.integers(-20, 20)), data.draw(st.integers(1, 12))
    found = [v for at, steps in congruent((first, tuple(levels)), b, c) for v in values_of(at, list(steps))]
    assert set(found) == {v for v in values_of(first, levels) if (v - b) % c == 0}
    if len(set(values_of(first, levels))) == prod(n for n, _ in levels):
        assert len(found) == len(set(found))


def factors(draw: st.DrawFn, n: int) -> tuple[int, ...]:
    """A shape of a size."""
    shape = []
    for _ in range(draw(st.integers(0, 2))):
        shape.append(draw(st.sampled_from([d for d in range(1, n + 1) if n % d == 0])))
        n //= shape[-1]
    return tuple(draw(st.permutations([*shape, n])))


@st.composite
def reshaped(draw: st.DrawFn, steps: int = 3) -> tuple[View, np.ndarray]:
    """A view by slices, reshapes and permutations, and the numbers that it reads."""
    shape = draw(st.sampled_from([(4, 6, 5), (12, 7), (6, 10), (3, 8, 4)]))
    view: View = allocate(shape, name="A")
    array = np.arange(view.size).reshape(shape)
    for _ in range(draw(st.integers(1, steps))):
        new = factors(draw, view.size)
        view, array = view.reshape(new), array.reshape(new)
        if draw(st.booleans()):
            order = draw(st.permutations(range(view.rank)))
            view, array = view.permute_dims(order), array.transpose(order)
        key = tuple(
            draw(st.sampled_from([slice(None), slice(1, None), slice(None, None, -2), slice(0, -1)])) for _ in new
        )
        if 0 not in array[key].shape:
            view, array = view[key], array[key]
    return view, array


def cells_of(view: View) -> Cells:
    """What the view reads of its one allocation, held as nothing but its pieces."""
    (home,) = view.allocations
    known = view.cells[home]
    return Cells(known.shape, known.pieces, known.home, known.extent, None)


@given(reshaped(), st.lists(st.tuples(st.integers(0, 119), st.integers(1, 30), st.integers(1, 9)), max_size=2))
def test_what_is_pulled_back_is_what_the_turn_takes_into_the_set(
    pair: tuple[View, np.ndarray], stripes: list[tuple[int, int, int]]
) -> None:
    view, _ = pair
    cells = cells_of(view)
    found = turned(cells.pieces[0], cells.shape, cells.home)
    if found is None:
        return
    _, turn = found
    wanted: set[int] = set()
    sets = []
    for first, count, step in stripes:
        values = set(range(first, min(first + count * step, cells.extent), step)) - wanted
        sets += [(v, ()) for v in sorted(values)]
        wanted |= values
    pulled = DisjointSetts._of(turn.pull(sets))
    expected = [u for u in range(turn.extent) if turn.apply(u) in wanted]
    assert pulled.elements(0, turn.extent).tolist() == expected


@given(reshaped(), reshaped())
def test_answers_before_the_last_turn_are_those_of_listed_cells(
    one: tuple[View, np.ndarray], two: tuple[View, np.ndarray]
) -> None:
    (view, x), (other, y) = one, two
    if view.allocations[0].shape != other.allocations[0].shape:
        return
    mine, theirs = set(x.ravel().tolist()), set(y.ravel().tolist())
    held = other.cells[other.allocations[0]]
    for a, b in ((cells_of(view), held), (cells_of(view), cells_of(other))):
        asked = (
            (find_before_turn, a, b),
            (is_subset_before_turn, a, b),
            (is_subset_before_turn, b, a),
            (count_before_turn, a, b),
        )
        answers = [ask_one(REFUSALS, *question) for question in asked]
        if any(answer is OPEN for answer in answers):
            continue
        z, inside, around, many = answers
        assert (z is not None) == bool(mine & theirs) and (z is None or z in mine & theirs)
        assert (inside, around, many) == (mine <= theirs, theirs <= mine, len(mine & theirs))


@st.composite
def shifted(draw: st.DrawFn) -> tuple[View, np.ndarray]:
    """A pad, renumbered and cut as in Transformer-XL's shift or otherwise, and the numbers it reads, -1 for none."""
    shape = draw(st.sampled_from([(2, 4, 5), (2, 5, 4), (6, 7), (5, 3, 4)]))
    widths = [draw(st.sampled_from([(0, 0), (0, 0), (1, 0), (0, 1), (2, 1)])) for _ in shape]
    view, array = pad(allocate(shape, name="A"), tuple(widths)), np.arange(prod(shape)).reshape(shape)
    array = np.pad(array, widths, constant_values=-1)
    for _ in range(draw(st.integers(1, 2))):
        lead = draw(st.integers(0, 1)) if view.rank > 1 else 0
        new = (*view.shape[:lead], *factors(draw, prod(view.shape[lead:])))
        view, array = view.reshape(new), array.reshape(new)
        slices = [slice(None), slice(None), slice(1, None), slice(0, -1), slice(None, None, 2), slice(None, None, -2)]
        key = tuple(draw(st.sampled_from(slices)) for _ in new)
        if 0 not in array[key].shape:
            view, array = view[key], array[key]
    return view, array


@given(
    shifted(), st.lists(st.sampled_from([slice(None), slice(1, None), slice(None, None, 2)]), min_size=3, max_size=3)
)
def test_a_pad_is_asked_before_its_last_renumbering(one: tuple[View, np.ndarray], key: list[slice]) -> None:
    view, x = one
    if not view.allocations or not (x >= 0).any():
        return
    (home,) = view.allocations
    part = tuple(key[: home.rank])
    mine, theirs = set(x.ravel().tolist()) - {-1}, set(np.arange(home.size).reshape(home.shape)[part].ravel().tolist())
    a, b = cells_of(view), home[part].cells[home]
    z, many = ask_one(REFUSALS, find_before_turn, a, b), ask_one(REFUSALS, count_before_turn, a, b)
    inside, around = ask_one(REFUSALS, is_subset_before_turn, a, b), ask_one(REFUSALS, is_subset_before_turn, b, a)
    if z is not OPEN:
        assert (z is not None) == bool(mine & theirs) and (z is None or z in mine & theirs)
    assert many in (OPEN, len(mine & theirs))
    assert inside in (OPEN, mine <= theirs) and around in (OPEN, theirs <= mine)


def test_transformer_xls_shift_is_counted_at_any_size() -> None:
    """Every other row of the shifted scores against every third of the scores: cells i·k + j of rows of k and k + 1."""
    for q, k in ((40, 60), (10**6, 2 * 10**6)):
        scores = allocate((2, q, k))
        shift = pad(scores, ((0, 0), (0, 0), (1, 0))).reshape(2, k + 1, q)[:, 1:].reshape(2, q, k)
        with tally() as decided:
            many = overlap(shift[:, ::2], scores[:, 1::3, ::5]).size
        assert not decided.listed
        if k == 60:
            numbers = np.pad(np.arange(2 * q * k).reshape(2, q, k), ((0, 0), (0, 0), (1, 0)), constant_values=-1)
            read = numbers.reshape(2, k + 1, q)[:, 1:].reshape(2, q, k)[:, ::2]
            assert many == len(np.intersect1d(read, np.arange(2 * q * k).reshape(2, q, k)[:, 1::3, ::5]))


@pytest.mark.heavy(2)
def test_a_view_that_shatters_is_asked_before_its_last_renumbering() -> None:
    for scale in (1, 10**9):
        home = allocate((10_000, 30_000, 7_000 * scale))
        one = home.permute_dims((2, 1, 0)).reshape(8 * scale, 250_000, 3_500, 300)[
            1::3, 1_762::-3, 1_004:1_050:2, 81::-1
        ]
        row, beside = home[81, 29_999:, :], home[301:, 5:8, ::7]
        with tally() as decided:
            answers = overlaps(one, row), overlaps(one, beside)
        assert (decided.isl, decided.listed) == (0, 0)
        if isl.available():
            with without_closed_forms():
                assert answers == (overlaps(one, row), overlaps(one, beside))


def test_no_list_is_made_where_isl_decides() -> None:
    home = allocate((12, 35))
    one = home.T.reshape(20, 21)[::3, ::2].reshape(-1)[1::3]
    two = home[1::2, ::3].reshape(-1)[::2]
    cells, others = (view.cells[home] for view in (one, two))
    mine, theirs = (set(c.list_numbers(10**6).tolist()) for c in (cells, others))
    with without_closed_forms(), tally() as decided:
        assert overlaps(one, two) == bool(mine & theirs)
    assert (decided.isl, decided.listed) == ((1, 0) if isl.available() else (0, 1))
