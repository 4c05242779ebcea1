"""Tables in index maps: lists of indices that follow no rule, as one step of one piece."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tapestry_sets import (
    AffineMap,
    Box,
    Region,
    TooManyPieces,
    View,
    allocate,
    concatenate,
    overlap,
    overlaps,
    pad,
    to_isl,
)
from tapestry_sets.solvers import isl
from tapestry_sets.views import (
    Guard,
    IndexMap,
    Lookup,
    Piece,
    Relinearize,
    Step,
    piece_domain,
    piece_from_dict,
    piece_image,
    piece_to_dict,
    reading,
    runs_of,
    scatter_terms,
    tuning,
)
from tests.machine_pace import slower
from tests.oracles import after_step, cell_read, listed_points, memory_for, read_view
from tests.sets.views.test_adjoint import one_by_one, scattered
from tests.strategies import subscripts, views


@contextmanager
def tables_alone() -> Iterator[None]:
    """Every list of indices is a table, also those that are few runs."""
    with mock.patch.object(tuning, "MAX_READINGS", 0):
        yield


# ------------------------------------------------------------------------------------------------ chains of steps


@st.composite
def chains_with_tables(draw: st.DrawFn) -> tuple[IndexMap, tuple[int, ...]]:
    """A chain of lookups, maps of single terms and renumberings, and a shape whose points it takes."""
    shape = box = draw(st.sampled_from([(4,), (3, 4), (2, 3, 2), (6, 2)]))
    steps: list[Step] = []
    for _ in range(draw(st.integers(1, 5))):
        rank = len(box)
        choice = draw(st.sampled_from(["table", "table", "map", "reshape"]))
        if choice == "table":
            axis = draw(st.integers(0, rank - 1))
            table = draw(st.lists(st.integers(0, 6), min_size=box[axis], max_size=box[axis] + 2))
            steps.append(Lookup(rank, axis, table))
            box = (*box[:axis], max(table) + 1, *box[axis + 1 :])
        elif choice == "map":
            axes = draw(st.lists(st.none() | st.integers(0, rank - 1), min_size=1, max_size=3))
            rows: list[tuple[int, int] | None] = []
            offsets, out = [], []
            for axis in axes:
                c = draw(st.sampled_from([1, 1, 2, -1]))
                n = 1 if axis is None else (box[axis] - 1) * abs(c) + 1
                b = draw(st.integers(0, 2)) + (n - 1 if c < 0 else 0)
                rows.append(None if axis is None else (axis, c))
                offsets.append(b)
                out.append(b + (n if c > 0 else 1))
            steps.append(AffineMap.select(rank, rows, offsets))
            box = tuple(out)
        else:
            size = int(np.prod(box))
            to = draw(st.sampled_from([n for n in range(1, size + 1) if size % n == 0]))
            steps.append(Relinearize(box, (size // to, to)))
            box = (size // to, to)
    return IndexMap(tuple(steps), len(shape)), shape


@given(chains_with_tables())
@example(
    (IndexMap((Lookup(2, 0, (1, 0, 2)), Lookup(2, 1, (0, 0, 1, 0)), AffineMap(((0, 0),), (3,), in_rank=2)), 2), (3, 4))
)
def test_chains_stay_what_they_are_when_simplified(case: tuple[IndexMap, tuple[int, ...]]) -> None:
    chain, shape = case
    simple = chain.simplify()
    points = list(np.ndindex(*shape))
    expected = []
    for at in points:
        for step in chain.steps:
            at = after_step(step, at)
        expected.append(tuple(at))
    assert [simple.apply(p) for p in points] == [chain.apply(p) for p in points] == expected
    given_points = np.array(points, np.int64)
    np.testing.assert_array_equal(chain.apply_array(given_points), np.array(expected).reshape(len(points), -1))
    np.testing.assert_array_equal(simple.apply_array(given_points), np.array(expected).reshape(len(points), -1))
    assert simple.simplify() == simple
    relation = to_isl(chain).intersect_domain(isl.box_set((0,) * len(shape), shape))
    there = to_isl(simple).intersect_domain(isl.box_set((0,) * len(shape), shape))
    assert relation.is_equal(there)
    for p, cell in zip(points[:3], expected, strict=False):
        assert isl.a_point(isl.point_set(p).apply(relation)) == cell


@given(st.data(), chains_with_tables())
def test_images_and_domains_of_pieces_with_tables(data: st.DataObject, case: tuple[IndexMap, tuple[int, ...]]) -> None:
    chain, shape = case
    points = list(np.ndindex(*shape))
    prefix = data.draw(st.integers(0, len(chain.steps)))
    at = [IndexMap(chain.steps[:prefix], len(shape)).apply(p) for p in points]
    box = tuple(np.max(at, axis=0).tolist())
    low = [data.draw(st.integers(0, n)) for n in box]
    high = [data.draw(st.integers(a, n + 1)) for a, n in zip(low, box, strict=True)]
    piece = Piece(0, (Guard(prefix, Region.from_bounds([n + 1 for n in box], low, high)),), chain)
    held = {p for p in points if cell_read(piece, p) is not None}
    assert listed_points(piece_domain(piece, Box.of(shape))) == held
    read = {cell_read(piece, p) for p in held}
    found = piece_image(piece, Box.of(shape))
    assert {p for r in found.regions for p in listed_points(r)} == read


def test_slices_around_a_table_cut_and_scale_it() -> None:
    A = allocate((100, 8), name="A")
    table = np.random.default_rng(1).permutation(100)[:40]
    view = A[::-1][:, 2:].take(table, axis=0)
    (piece,) = view[3::2, ::-1].pieces
    look_up, rest = piece.map.steps
    assert isinstance(look_up, Lookup) and look_up.table == tuple((99 - table[3::2]).tolist())
    assert rest == AffineMap(((1, 0), (0, -1)), (0, 7))
    (piece,) = view[7].pieces
    assert piece.map.steps == (AffineMap(((0,), (1,)), (99 - int(table[7]), 2)),)
    (piece,) = view.take(np.argsort(table), axis=0).pieces  # in order, but of no equal steps
    assert piece.map.steps[0].table == tuple(np.sort(99 - table)[::-1].tolist())
    (piece,) = view[:2].pieces
    assert all(isinstance(step, AffineMap) for step in piece.map.steps)  # of two entries each is a step
    (piece,) = view[4:20].pieces
    assert len(piece.map.steps[0].table) == 16


# ---------------------------------------------------------------------------------------------- views with tables


@given(views(6, 120))
@example((allocate((3, 1), name="A").take([0, 0, 2], axis=0).T.reshape(3), np.array([1, 1, 3])))
def test_views_read_through_tables_what_they_read(pair: tuple[View, np.ndarray]) -> None:
    """As chains of random kinds are tested elsewhere, but that every list of indices is a table."""
    view, array = pair
    with tables_alone():
        (A,) = view.allocations
        memory = {A: np.arange(1, A.size + 1).reshape(A.shape)}
        np.testing.assert_array_equal(np.nan_to_num(read_view(view, memory)), array)
        for piece in view.pieces:
            again = piece_from_dict(json.loads(json.dumps(piece_to_dict(piece))))
            assert again == piece and hash(again) == hash(piece)
        read = set(array[array > 0].tolist())
        if A in view.cells:
            assert view.cells[A].size == len(read)
            expected = listed_points(view.origins()[A].cells) if hasattr(view.origins()[A], "cells") else None
            assert expected is None or len(expected) == len(read)
        if view.size and view.size < 50:
            grad = np.arange(1, view.size + 1).reshape(view.shape)
            terms = scatter_terms(view.pieces, view.shape, A.shape)
            np.testing.assert_array_equal(scattered(terms, grad, A.size), one_by_one(view, grad, 0, A.shape))
        simple = view.simplify()
        assert simple.same_view(view) and simple == view
        assert hash(simple) == hash(view)


@given(st.data(), views(4, 100), st.lists(st.integers(-4, 4), min_size=1, max_size=8))
def test_pairs_of_views_with_tables_against_enumeration(
    data: st.DataObject, pair: tuple[View, np.ndarray], entries: list[int]
) -> None:
    view, array = pair
    if not view.rank or not view.shape[0]:
        return
    (A,) = view.allocations
    n = view.shape[0]
    indices = [x % n for x in entries]
    key = data.draw(subscripts((len(indices), *view.shape[1:])))
    with tables_alone():
        one, there = view.take(indices, axis=0)[key], array[indices][key]
        other, here = A.reshape(-1)[::2], np.arange(1, A.size + 1, 2)
        for two, values in ((other, here), (view, array)):
            common = np.intersect1d(there[there > 0], values[values > 0])
            assert overlaps(one, two) == bool(len(common))
            found = overlap(one, two)
            assert found.size == len(common)
            if found.witness is not None:
                assert there[found.witness.a] == values[found.witness.b] in common
        assert view.contains(one) and one.same_view(view.take(indices, axis=0)[key])
        assert one.has_internal_overlap() == (len(np.unique(there[there > 0])) < np.count_nonzero(there > 0))


def test_equal_views_with_long_tables_are_equal_however_they_were_made() -> None:
    A = allocate((40_000, 16), name="A")
    table = np.random.default_rng(0).permutation(40_000)[:10_000]
    view = A.take(table, axis=0)
    for same in (
        A.take(table[::-1], axis=0)[::-1],
        A.take(np.sort(table), axis=0).take(np.argsort(np.argsort(table)), axis=0),
        A[::-1].take(39_999 - table, axis=0),
        A[:, ::-1].take(table, axis=0).fliplr(),
    ):
        assert same == view and view == same and same.same_view(view) and hash(same) == hash(view)
    assert A.take(table[::-1], axis=0) != view and not A.take(table[::-1], axis=0).same_view(view)
    two = concatenate([A.take(table[:5000], axis=0), A.take(table[5000:], axis=0)])
    assert two.same_elements(view) and len(two.pieces) == 2


@pytest.mark.heavy(2)
def test_a_hundred_thousand_indices_are_one_piece() -> None:
    A = allocate((10**9, 64), name="A")
    table = np.random.default_rng(0).integers(0, 10**9, 100_000)
    view = A.take(table, axis=0)
    start = time.process_time()
    assert len(view.pieces) == len(view[::7, 3:].pieces) == len(view.reshape(-1)[5:].pieces) == 1
    assert len(pad(view, 1).pieces) == len(concatenate([view, A]).pieces) + 3
    assert view == A.take(table[::-1], axis=0)[::-1] and hash(view) == hash(view[:][:])
    assert time.process_time() - start < 20 * slower()
    with pytest.raises(TooManyPieces, match="a table of 100000 indices"):
        to_isl(view)
    with pytest.raises(TooManyPieces):
        piece_image(view.pieces[0], Region.full(view.shape), A.shape)


def test_few_runs_need_no_table() -> None:
    A = allocate((1000,), name="A")
    assert not any(isinstance(s, Lookup) for p in A[[*range(500, 900), *range(100)]].pieces for s in p.map.steps)
    again = [k + 7 * j for j in range(60) for k in (0, 5, 3)]
    assert len(A[again].pieces) == 2  # a list that goes on as it began


# ----------------------------------------------------------------------------------------------------- the step


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: Lookup(1, 1, (0,)), ValueError, r"axis 1 is not one of 1; give one in \[0, 1\)"),
        (lambda: Lookup(0, 0, (0,)), ValueError, "axis 0 is not one of 0"),
        (lambda: Lookup(1, 0, ()), ValueError, "the table is empty"),
        (lambda: Lookup(1, 0, (1, 2**62)), ValueError, r"holds 4611686018427387904; its entries must be in"),
        (lambda: Lookup(1, 0, (1.5,)), TypeError, r"Lookup: table\[0\] must be an integer, not 1.5"),
        (lambda: Lookup(1, True, (1,)), TypeError, "Lookup: axis must be an integer"),
        (lambda: Lookup(1, 0, (3, 4)).apply((2,)), IndexError, r"2 is not in \[0, 2\), the places of the table"),
        (lambda: IndexMap((Lookup(2, 0, (3, 4)),), 1), ValueError, "step 0 takes rank 2 where rank 1 arrives: Lookup"),
        (
            lambda: piece_from_dict({"source": 0, "guards": [], "map": {"steps": [LONELY], "in_rank": 1}}),
            ValueError,
            r"the table is empty; .* - at `\$.map.steps\[0\]`",
        ),
    ],
)
def test_tables_that_are_none_are_refused(make: Callable[[], Any], error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        make()


LONELY = {"step": "lookup", "rank": 1, "axis": 0, "table": []}


@given(st.lists(st.integers(-5, 5), min_size=1, max_size=12))
def test_runs_make_up_a_table(table: list[int]) -> None:
    runs = list(runs_of(table))
    assert [run.first + run.step * k for run in runs for k in range(run.length)] == table
    assert [run.at for run in runs] == np.cumsum([0, *(run.length for run in runs)])[:-1].tolist()


def test_long_tables_are_shown_in_few_words() -> None:
    assert repr(Lookup(1, 0, range(3))) == "Lookup(rank=1, axis=0, table=(0, 1, 2))"
    assert repr(Lookup(1, 0, range(3000))).endswith("table=(0, 1, 2, 3, 4, 5, 6, 7, … 3000 in all))")


def test_cells_are_found_back_through_tables() -> None:
    lookup = Lookup(2, 0, (7, 3, 7))
    piece = Piece(0, (), IndexMap((lookup,)))
    assert reading.invert(piece.map, (7, 5)) == (0, 5) and reading.invert(piece.map, (4, 5)) is None
    assert reading.has_one_inverse(piece)
    guarded = Piece(0, (Guard(0, Region.from_bounds((3, 9), (1, 0), (3, 9))),), piece.map)
    assert not reading.has_one_inverse(guarded)  # place 0 reads 7 too, but the guard leaves place 2 alone
    A = allocate((9, 9), name="A")
    assert memory_for([A])[A].shape == (9, 9)
