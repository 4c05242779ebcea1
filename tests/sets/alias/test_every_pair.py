"""All pairs of many views at once, against sets of cells that NumPy lists."""

from __future__ import annotations

import random
from itertools import product
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapestry_sets import (
    Allocation,
    View,
    allocate,
    concatenate,
    overlap,
    overlap_matrix,
    overlap_sizes,
    overlaps,
    pad,
    roll,
    stack,
    tally,
)
from tapestry_sets.alias import every_pair, tuning
from tapestry_sets.alias.every_pair import Nests, PairRow, along_axes
from tapestry_sets.alias.tuning import MAX_POSITION
from tapestry_sets.digits.strided import Strided
from tapestry_sets.solvers import isl
from tapestry_sets.views import Derived
from tapestry_sets.views.kinds.choosing import AsStrided
from tests.oracles import memory_for, read_view
from tests.strategies import chains, shapes, subscripts, view_pairs, views

BIG = 10**9


# --------------------------------------------------------------------------------------------------- many views


@st.composite
def many_views(draw: st.DrawFn, most: int = 9) -> tuple[list[View], list[set[int]]]:
    """Views of up to three allocations, some of several of them, some twice, and the cells that each reads."""
    extents = st.lists(st.sampled_from([4, 6, 3, 5, 2, 8]), min_size=1, max_size=3)
    bases = [allocate(shape, name=f"A{k}") for k, shape in enumerate(draw(st.lists(extents, min_size=1, max_size=3)))]
    memory = memory_for(bases)
    made: list[View] = []
    for _ in range(draw(st.integers(0, most))):
        base = draw(st.sampled_from(bases))
        if draw(st.integers(0, 3)):
            view = draw(chains(base, memory[base], draw(st.integers(0, 3)), 300))[0]
        else:  # along the axes
            key = draw(subscripts(base.shape))
            view = base[key].flip() if draw(st.booleans()) else base[key].T
        made.append(view)
    if made and draw(st.booleans()):
        made.append(concatenate([v.ravel() for v in draw(st.lists(st.sampled_from(made), min_size=1, max_size=3))]))
    if made and draw(st.booleans()):
        made.append(draw(st.sampled_from(made)))
    return made, [{int(z) for z in read_view(v, memory_for(bases)).ravel() if z > 0} for v in made]


def check_pairs(made: list[View], reads: list[set[int]]) -> None:
    wanted = np.array([[len(one & two) for two in reads] for one in reads], np.int64).reshape(len(made), len(made))
    matrix, sizes = overlap_matrix(made), overlap_sizes(made)
    assert matrix.dtype == bool and sizes.dtype == np.int64
    np.testing.assert_array_equal(matrix, wanted > 0)
    np.testing.assert_array_equal(sizes, wanted)


@given(many_views())
def test_pairs_are_those_of_the_lists(many: tuple[list[View], list[set[int]]]) -> None:
    check_pairs(*many)


@given(many_views())
def test_pairs_are_answered_alike_without_leaps(many: tuple[list[View], list[set[int]]]) -> None:
    with patch.object(tuning, "LEAPS_AT_ONCE", 0), patch.object(tuning, "PAIRS_AT_ONCE", 3):
        check_pairs(*many)


@given(many_views())
def test_pairs_are_answered_alike_one_by_one(many: tuple[list[View], list[set[int]]]) -> None:
    with (
        patch.object(tuning, "MAX_MEMBERS", 0),
        patch.object(every_pair, "along_axes", lambda form, shape: None),
    ):
        check_pairs(*many)


@given(many_views())
def test_positions_beyond_int64_are_answered_alike(many: tuple[list[View], list[set[int]]]) -> None:
    with (
        patch.object(tuning, "MAX_POSITION", 5),
        patch.object(every_pair, "along_axes", lambda form, shape: None),
    ):
        check_pairs(*many)


@given(st.lists(view_pairs(length=2, cells=60), min_size=1, max_size=2), st.sampled_from([BIG, 2**61, 10**25]))
def test_blocks_of_any_size_are_answered_alike(pairs: list[Any], scale: int) -> None:
    """A last axis of `scale` cells, of which each view reads all; one more reads half of it."""
    made, reads = [], []
    for k, (_, x, _, y, base) in enumerate(pairs):
        A = allocate((base.size, scale))
        for values in (x, y):
            cells = sorted({int(v) - 1 for v in values.ravel()} - {-1})[:12]
            made.append(concatenate([A[z : z + 1] for z in cells]) if cells else A[:0])
            reads.append({(k, z) for z in cells})
    made.append(A[:, : scale // 2])
    sizes = overlap_sizes(made).tolist()
    for i, one in enumerate(reads):
        for j, two in enumerate(reads):
            assert sizes[i][j] == len(one & two) * scale
        assert sizes[i][-1] == len({z for k, z in one if k == len(pairs) - 1}) * (scale // 2)
    assert (overlap_matrix(made) == (np.array(sizes, object) > 0)).all()


@st.composite
def joined_views(draw: st.DrawFn) -> tuple[View, np.ndarray[Any, Any]]:
    """A view of two allocations that reads all of some slices, and the numbers that it reads, 0 for none."""
    first, second = allocate((6, 8), name="A"), allocate((5, 8), name="B")
    homes = (first, 1 + np.arange(48).reshape(6, 8)), (second, 49 + np.arange(40).reshape(5, 8))
    columns = draw(st.sampled_from([slice(None), slice(0, 6, 2), slice(7, 2, -1)]))
    parts = []
    for _ in range(draw(st.integers(1, 4))):
        x, v = draw(st.sampled_from(homes))
        rows = slice(draw(st.integers(0, 4)), draw(st.integers(1, 6)), draw(st.sampled_from([1, 2, 3])))
        parts.append((x[rows, columns], v[rows, columns]))
    view, values = concatenate([x for x, _ in parts]), np.concatenate([v for _, v in parts])
    for word in draw(st.lists(st.sampled_from(["pad", "roll", "flip", "stack", "reshape", "wrap"]), max_size=2)):
        if word == "pad":
            view, values = pad(view, 1), np.pad(values, 1)
        elif word == "wrap" and view.size:
            view, values = pad(view, 1, "wrap"), np.pad(values, 1, "wrap")
        elif word == "roll":
            view, values = roll(view, 3, axis=0), np.roll(values, 3, axis=0)
        elif word == "flip":
            view, values = view.flip(0), np.flip(values, 0)
        elif word == "stack":
            view, values = stack([view, view]), np.stack([values, values])
        elif word == "reshape":
            view, values = view.reshape(-1), values.reshape(-1)
    return view, values


@given(st.lists(joined_views(), min_size=1, max_size=4), st.sampled_from([0, 2, 64]))
def test_views_that_join_slices_are_asked_box_by_box(many: list[tuple[View, np.ndarray[Any, Any]]], most: int) -> None:
    """Of equal allocations each has its own memory: the first view's stand for all."""
    homes = {a.name: a for view, _ in many for a in view.allocations}
    made = [_over(view, homes) for view, _ in many]
    with patch.object(tuning, "MAX_BOXES_JOINED", most):
        check_pairs(made, [{int(z) for z in values.ravel() if z > 0} for _, values in many])


def _over(view: View, homes: dict[str | None, Allocation]) -> View:
    """The same view of other allocations."""
    if isinstance(view, Derived):
        first, *others = [_over(source, homes) for source in view.sources]
        return first.apply(view.kind, *others)
    assert isinstance(view, Allocation)
    return homes[view.name]


def test_boxes_that_share_cells_are_counted_once() -> None:
    A = allocate((100, 10**9))
    made = [concatenate([A[:50], A[40:60]]), concatenate([A[10:20], A[70:80]]), A[15:75, ::2]]
    sizes = overlap_sizes(made)
    assert (sizes // 10**8).tolist() == [[600, 100, 225], [100, 200, 50], [225, 50, 300]]


def test_a_thousand_views_agree_with_pairs_asked_one_by_one() -> None:
    rng = random.Random(5)
    A, B = allocate((12, 10, 7), name="A"), allocate((900,), name="B")
    made = []
    for _ in range(300):
        view = rng.choice([A, A, B])
        for _ in range(rng.randint(1, 3)):
            view = view[tuple(slice(rng.randrange(n), None, rng.choice([1, 2, 3])) for n in view.shape)]
            if rng.random() < 0.4:
                view = view.permute_dims(rng.sample(range(view.rank), view.rank))
            if rng.random() < 0.4 and view.size % 6 == 0:
                view = view.reshape(rng.choice([(-1, 2), (3, -1), (-1,), (2, 3, -1)]))
        made.append(view)
    with tally() as decided:
        matrix = overlap_matrix(made)
    assert decided.total == decided.closed == 300 * 301 // 2
    sizes = overlap_sizes(made)
    for _ in range(3000):
        i, j = rng.randrange(300), rng.randrange(300)
        assert matrix[i, j] == overlaps(made[i], made[j])
        assert sizes[i, j] == overlap(made[i], made[j]).size


def test_real_arrays_of_several_buffers() -> None:
    x, y = np.zeros((20, 30), np.int16), np.zeros(50, np.float64)
    made = [x, x[::2], x[1::2], x[:, ::3].T, y[::5], y.view(np.uint8)[3:11], x[4:7, 5:9].view(np.uint8)]
    wanted = [[np.shares_memory(a, b) for b in made] for a in made]
    assert overlap_matrix(made).tolist() == wanted
    assert overlap_sizes(made)[0].tolist() == [1200, 600, 600, 400, 0, 0, 24]


def test_a_listed_question_of_a_matrix_is_counted_as_such() -> None:
    """Sums of three steps with gaps: which cells they share is decided by equations, how many by lists."""
    A = allocate((36674 * 29 + 61119 * 29 + 85569 * 29 + 1,))
    made = [A.apply(AsStrided((30, 30, 20), (36674, 61119, 85569), k)) for k in (0, 36674)]
    with tally() as decided:
        matrix = overlap_matrix(made)
    assert matrix.all() and decided.total == 3 and not decided.listed
    with tally() as decided:
        overlap_sizes(made)
    assert decided.total == 3 == decided.closed + decided.isl + decided.listed


# ------------------------------------------------------------------------------------------------- along the axes


@given(shapes(3, 9, 1), st.data())
def test_what_is_along_the_axes_is_read_off_the_strides(shape: tuple[int, ...], data: st.DataObject) -> None:
    """Whatever is returned is right, and slices in any order of the axes are returned."""
    A = allocate(shape)
    values = np.arange(A.size).reshape(shape)
    sliced = data.draw(st.booleans())
    if sliced:
        key = data.draw(subscripts(shape))
        view, read = A[key], values[key]
        order = data.draw(st.permutations(range(view.rank)))
        view, read = view.permute_dims(order), read.transpose(order)
    else:
        view, read = data.draw(chains(A, values, 3, 500))
    form = view.strided_form()
    if form is None or not view.size:
        return
    axes = along_axes(form[1], shape)
    assert axes is not None or not sliced
    if axes is not None:
        lists = [[z for z in range(lo, hi) if (z - p) % P < on] for lo, hi, on, P, p in axes]
        cells = {tuple(map(int, np.unravel_index(z, shape))) for z in read.ravel()} if shape else {()}
        assert cells == set(product(*lists))


@pytest.mark.parametrize(
    ("form", "shape", "axes"),
    [
        ((0, (((3, 60),), ((60, 1),))), (5, 6, 10), ((0, 3, 1, 1, 0), (0, 6, 1, 1, 0), (0, 10, 1, 1, 0))),
        ((0, (((180, 1),),)), (5, 6, 10), ((0, 3, 1, 1, 0), (0, 6, 1, 1, 0), (0, 10, 1, 1, 0))),
        ((1, (((30, 2),),)), (5, 6, 10), ((0, 1, 1, 1, 0), (0, 6, 1, 1, 0), (1, 10, 1, 2, 1))),
        ((5, (((4, 10),), ((10, 1),))), (5, 6, 10), None),  # from the middle of a row to that of another
        ((0, (((5, 4),), ((2, 1),))), (20,), ((0, 18, 2, 4, 0),)),
        ((3, ()), (2, 2), ((1, 2, 1, 1, 0), (1, 2, 1, 1, 0))),
        ((0, (((2, 7),), ((2, 2),))), (20,), None),
    ],
)
def test_forms_along_the_axes(form: Strided, shape: tuple[int, ...], axes: Any) -> None:
    assert along_axes(form, shape) == axes


# -------------------------------------------------------------------------------------------------- nests in columns


@given(st.lists(views(length=4), min_size=1, max_size=5), st.data())
def test_the_next_element_is_that_of_the_list(made: list[tuple[View, np.ndarray]], data: st.DataObject) -> None:
    rows, cells = [], []
    for k, (view, values) in enumerate(made):
        read = sorted({int(v) - 1 for v in values.ravel()} - {-1})
        if read:
            (home,) = view.allocations
            row = PairRow(k, view, home)
            if row.items:
                rows.append(row)
                cells.append(read)
    if not rows:
        return
    nests = Nests(rows)
    asked = data.draw(st.lists(st.tuples(st.integers(0, len(rows) - 1), st.integers(0, 500)), min_size=1, max_size=30))
    i, z = np.array([k for k, _ in asked]), np.array([x for _, x in asked])
    wanted = [next((c for c in cells[k] if c >= x), MAX_POSITION) for k, x in asked]
    assert nests.next(i, z).tolist() == wanted
    pairs = [(a, b) for a in range(len(rows)) for b in range(len(rows))]
    apart = nests.apart(np.array([a for a, _ in pairs]), np.array([b for _, b in pairs]))
    for (a, b), miss in zip(pairs, apart.tolist(), strict=True):
        assert not (miss and set(cells[a]) & set(cells[b]))


# ------------------------------------------------------------------------------------------------ wrong arguments


@pytest.mark.parametrize("ask", [overlap_matrix, overlap_sizes])
def test_errors_name_the_view_and_the_mend(ask: Any) -> None:
    A = allocate((4,))
    name = ask.__name__
    for views_, message in (
        (3, "views must be a sequence of views and arrays, not one int; write"),
        (A, "not one Allocation"),
        (np.zeros(3), "not one ndarray"),
        ([A, 3], r"views\[1\]: int is neither a View nor an array"),
        ({"a": A}, r"views must be a sequence of views and arrays, not .* of type dict"),
    ):
        with pytest.raises(TypeError, match=f"{name}: .*{message}"):
            ask(views_)
    with pytest.raises(ValueError, match=rf"{name}: views\[0\]: .*Python objects"):
        ask([np.zeros(2, object)])
    assert ask([]).shape == (0, 0)
    assert ask(iter([A, A[:2]])).astype(bool).all()


def test_views_without_cells_share_nothing() -> None:
    A = allocate((4, 0))
    B = allocate((6,))
    made = [A, B[:0], pad(B, 2)[:1], B, roll(B, 1)]
    assert overlap_matrix(made).astype(int).tolist() == [[0] * 5] * 3 + [[0, 0, 0, 1, 1]] * 2
    assert isinstance(made[3], Allocation) and overlap_sizes(made)[3].tolist() == [0, 0, 0, 6, 6]


def test_without_isl_matrices_of_slices_and_reshapes_are_answered() -> None:
    A = allocate((10**6, 10**6 + 1))
    halves = [A[:, : 10**5], A.reshape(10**6 + 1, 10**6)[:, 10**5 :], A[::3], A.T[::2]]
    with patch.object(isl, "_islpy", side_effect=ImportError("blocked")):
        assert overlap_matrix(halves).all()
