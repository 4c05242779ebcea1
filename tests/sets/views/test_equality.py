"""Laws of ``==``: views of one memory are equal exactly where they read the same, in whatever order they are asked."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tapestry_sets import View, allocate, concatenate, interleave, pad, roll
from tests.oracles import memory_for, read_view
from tests.strategies import one_more


@st.composite
def chains(draw: st.DrawFn) -> list[View]:
    """Views of one shape and one memory: chains of kinds, the same said in other ways, and some a little beside."""
    shape = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)))
    view, array = allocate(shape, name="A"), np.zeros(shape)
    for _ in range(draw(st.integers(1, 5))):
        more, same = draw(one_more(view, array))
        if 0 < more.size <= 200:
            view, array = more, same
    rows = view.reshape(view.size)
    cut = draw(st.integers(0, view.size))
    every = [
        view,
        view.simplify(),
        concatenate([rows[:cut], rows[cut:]]).reshape(view.shape),
        interleave([rows[::2], rows[1::2]]).reshape(view.shape),
        view.flip().reshape(view.size)[::-1].reshape(view.shape),
        roll(roll(rows, cut), -cut).reshape(view.shape),
        pad(rows, (2, 1), "edge")[2:-1].reshape(view.shape),
        roll(rows, 1).reshape(view.shape),
        pad(rows[1:], (1, 0), draw(st.sampled_from(["edge", "constant", "symmetric"]))).reshape(view.shape)
        if view.size > 1
        else view,
    ]
    return draw(st.lists(st.sampled_from(every), min_size=3, max_size=4))


def of_many_patches() -> list[View]:
    """A view of more patches than are spelled out, the same by other kinds, and with two cells swapped."""
    A = allocate((1201,), name="A")
    indices = [k * k % 1201 for k in range(1200)]  # no two steps in a row are equal
    swapped = [*indices[:300], indices[301], indices[300], *indices[302:]]
    view = A.take(indices)
    return [view, concatenate([view[:411], view[411:]]), A.take(swapped)]


@given(chains())
@example(of_many_patches())
def test_equality_is_that_of_what_is_read(views: list[View]) -> None:
    memory = memory_for(views)
    read = [read_view(view, memory) for view in views]
    for (one, a), (two, b) in product(zip(views, read, strict=True), repeat=2):
        same = np.array_equal(a, b, equal_nan=True)
        assert (one == two) == same
        assert one.same_view(two) == same
        assert (one in {two}) == same
        if same:
            assert hash(one) == hash(two)


@given(chains())
def test_a_simplified_view_equals_the_view_both_ways(views: list[View]) -> None:
    for view in views:
        simple = view.simplify()
        assert view == simple and simple == view
        assert hash(view) == hash(simple)
        assert simple in {view} and view in {simple}
        assert {view: 1}[simple] == 1


@pytest.mark.heavy(2)
@pytest.mark.parametrize("mode", ["reflect", "wrap"])
def test_views_whose_patches_take_too_long_to_compare_are_decided_all_the_same(mode: str) -> None:
    a = allocate((4, 4, 4, 4, 4))
    view = pad(pad(a, 1, mode)[..., 1:], 2, mode)
    again = concatenate([view[:3], view[3:]])
    assert view == again and again == view and again in {view}
