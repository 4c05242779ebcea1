"""The strided form of views: each index reads the cell that NumPy reads, and the one nest holds just those cells."""

from __future__ import annotations

from itertools import product
from math import prod
from typing import Any

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from tapestry_sets import Region, Sett, Stripe, View, ViewKind, allocate, overlaps
from tapestry_sets.digits.digits import Levels
from tapestry_sets.digits.strided import Strided, contiguous, cut_axis, renumber
from tapestry_sets.integers import nest
from tapestry_sets.integers.digit_sets import nest_of
from tapestry_sets.views import Allocation, Derived
from tests.oracles import memory_for, read_view
from tests.strategies import factorizations, view_pairs, views


def cells_of(form: Strided) -> np.ndarray:
    """Number the cells in row-major order of the view, digit by digit as the form is defined."""
    offset, axes = form
    every = [level for levels in axes for level in levels]
    cells = [offset + sum(d * by for d, (_, by) in zip(digits, every, strict=True)) for digits in digits_of(every)]
    return np.array(cells, object).reshape([prod(n for n, _ in levels) for levels in axes])


def digits_of(levels: list[tuple[int, int]]) -> product[tuple[int, ...]]:
    return product(*(range(n) for n, _ in levels))


def forms(max_levels: int = 2) -> st.SearchStrategy[Levels]:
    """Levels of one axis, with any steps."""
    level = st.tuples(st.integers(1, 6), st.integers(-40, 40))
    return st.lists(level, min_size=1, max_size=max_levels).map(tuple)


def strided_of(view: View) -> Strided | None:
    """The form of a chain, kind by kind from the allocation."""
    if isinstance(view, Allocation):
        steps = [prod(view.shape[axis + 1 :]) for axis in range(view.rank)]
        return 0, tuple(((n, by),) for n, by in zip(view.shape, steps, strict=True))
    step = getattr(view.kind, "strided", None)
    source = strided_of(view.sources[0]) if step and len(view.sources) == 1 and view.size else None
    return None if source is None else step((view.sources[0].shape,), source)


@given(views())
def test_a_chain_that_keeps_the_form_reads_what_numpy_reads(pair: tuple[View, np.ndarray]) -> None:
    view, values = pair
    form = strided_of(view)
    if form is not None:
        np.testing.assert_array_equal(cells_of(form) + 1, values)


@given(views(5))
def test_the_form_that_a_kind_gives_reads_what_its_pieces_read(pair: tuple[View, np.ndarray]) -> None:
    """Each kind of a chain by itself, over a source that lies in memory row by row."""
    view: View | None = pair[0]
    while isinstance(view, Derived):
        step = getattr(view.kind, "strided", None)
        if step and len(view.sources) == 1 and view.size:
            shape = view.sources[0].shape
            form = step((shape,), contiguous(shape))
            home = allocate(shape)
            values = read_view(home.apply(view.kind), memory_for([home]))
            if form is not None:
                np.testing.assert_array_equal(cells_of(form) + 1, values)
        view = view.sources[0] if len(view.sources) == 1 else None


@given(views())
def test_the_nest_of_a_view_holds_just_the_cells_that_it_reads(pair: tuple[View, np.ndarray]) -> None:
    view, values = pair
    found = view.as_nest()
    if found is not None:
        home, cells = found
        held = [z for z in range(home.size) if nest.contains(cells, z)]
        assert held == sorted(set((values[values > 0] - 1).ravel().tolist()))
        assert cells == nest.canonical(cells) or cells == nest.EMPTY


@given(forms(3), st.integers(-20, 20), st.integers(-20, 20), st.sampled_from([1, 2, 3, 4, -1, -2]))
@example(((4, 100), (5, 1)), 5, 15, 1)
@example(((4, 100), (6, 1)), 1, 24, 3)
def test_a_cut_axis_reads_what_a_slice_of_it_reads(levels: Levels, start: int, stop: int, step: int) -> None:
    whole = cells_of((7, (levels,)))
    at = range(*slice(start, stop, step).indices(len(whole)))
    found = cut_axis(levels, at.start, len(at), step) if at else None
    if found is not None:
        np.testing.assert_array_equal(cells_of((7 + found[0], (found[1],))), whole[start:stop:step])


@given(st.lists(forms(), max_size=3), st.data())
def test_a_renumbered_form_reads_what_a_reshape_reads(axes: list[Levels], data: st.DataObject) -> None:
    whole = cells_of((3, tuple(axes)))
    shape = data.draw(factorizations(whole.size))
    found = renumber(axes, shape)
    if found is not None:
        np.testing.assert_array_equal(cells_of((3, found)), whole.reshape(shape))


@given(st.lists(forms(), max_size=3))
def test_one_nest_holds_the_cells_of_a_form_wherever_it_is_given(axes: list[Levels]) -> None:
    cells = set(cells_of((0, tuple(axes))).ravel().tolist())
    low, high = min(cells), max(cells)
    found = nest_of((-low, tuple(axes)), high - low + 1)
    if found is not None:
        assert {z for z in range(high - low + 1) if nest.contains(found, z)} == {z - low for z in cells}


@given(view_pairs())
def test_the_short_way_and_the_way_by_pieces_agree(pair: Any) -> None:
    one, x, two, y, _ = pair
    shared = bool(set(x[x > 0].ravel().tolist()) & set(y[y > 0].ravel().tolist()))
    assert overlaps(one, two) == shared
    home = one.cells.keys() & two.cells.keys()
    assert any(one.cells[a].meets(two.cells[a]) for a in home) == shared


def test_the_usual_kinds_keep_the_form_and_a_kind_without_it_goes_by_pieces() -> None:
    A = allocate((4, 6, 8))
    nested = Region((24, 8), [Sett(Stripe(6, 2), Stripe(1, 1)), Sett()])
    kept = [A[1:, ::-2], A[2], A.T, A.flip(), A.reshape(24, 8), A[:, :3].reshape(12, 8), A[None], A[:1].squeeze()]
    kept += [A[:, :1].broadcast_to((5, 4, 6, 8)), A.diagonal(), A.sliding_windows((2, 3))]
    kept += [A[:, [5, 3, 1]], A[[2]], A.take([1, 1, 1], 0), A[..., [0, 1, 4, 5]], A.reshape(4, 48)[:, [6, 7, 8]]]
    kept += [
        A.sample(Region.from_slices(A.shape, (slice(1, 3), slice(None, None, 2)))),
        A.reshape(24, 8).sample(nested),
    ]
    assert all(strided_of(view) is not None for view in kept)
    B = allocate((12,))
    assert B[1:].apply(Backwards()).as_nest() is None
    assert overlaps(B[1:].apply(Backwards()), B[11:]) and not overlaps(B[1:].apply(Backwards()), B[:1])


class Backwards:
    """A kind that says nothing of strides."""

    def out_shape(self, shapes: tuple[tuple[int, ...], ...]) -> tuple[int, ...]:
        return shapes[0]

    def pieces(self, shapes: tuple[tuple[int, ...], ...]) -> Any:
        return flip_kind(len(shapes[0])).pieces(shapes)


def flip_kind(rank: int) -> ViewKind:
    kind = allocate((2,) * rank).flip().kind
    assert kind is not None
    return kind
