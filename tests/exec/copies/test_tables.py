"""Reading through tables: views at lists of indices that follow no rule, against NumPy's own indexing."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapestry_exec import run
from tapestry_exec.copies import arrays
from tapestry_plan import Graph, Mesh, ShardPlan, gradient, ops, plan
from tapestry_sets import View, allocate
from tapestry_sets.regions import Box, Region
from tapestry_sets.views import Lookup, tuning
from tests.strategies import views


@given(st.data(), views(5, 150))
def test_views_with_tables_are_read_as_numpy_reads_them(data: st.DataObject, pair: tuple[View, np.ndarray]) -> None:
    """All of a view, and a part of it from and into blocks that begin elsewhere."""
    view, array = pair
    with mock.patch.object(tuning, "MAX_READINGS", 0):  # every list of indices is a table
        (A,) = view.allocations
        memory = np.arange(1, A.size + 1).reshape(A.shape)
        read = arrays.read_view(view.pieces, [memory], view.shape, "int64")
        np.testing.assert_array_equal(read, array)
        low = [data.draw(st.integers(0, n)) for n in view.shape]
        high = [data.draw(st.integers(a, n)) for a, n in zip(low, view.shape, strict=True)]
        part = Region.from_bounds(view.shape, low, high)
        out = np.full([n + 2 for n in view.shape], -1)
        for piece in view.pieces:
            arrays.read_piece(piece, memory, Box.of(A.shape), out, (-1,) * view.rank, part)
        expected = np.full_like(out, -1)
        inside = tuple(slice(a + 1, b + 1) for a, b in zip(low, high, strict=True))
        expected[(*inside, ...)] = array[(*[slice(a, b) for a, b in zip(low, high, strict=True)], ...)]
        np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("axis", [0, 1])
def test_a_plan_reads_rows_at_a_list_of_indices_in_one_step(axis: int) -> None:
    rows = np.random.default_rng(0).permutation(400)[:120]
    g = Graph()
    x = g.input("x", (400, 400), "float64")
    g.output(ops.exp(ops.take(x, rows, axis=axis)), "y")
    made = plan(g, Mesh((2,)))
    again = ShardPlan.from_json(made.to_json())
    values = np.random.default_rng(1).normal(size=(400, 400))
    result = run(again, {"x": values}, verify=True)
    np.testing.assert_allclose(result.outputs["y"], np.exp(np.take(values, rows, axis)))
    tables = [step for step in again.steps if any(isinstance(s, Lookup) for s in _map_steps(step))]
    assert len(tables) == 2  # one a device


def _map_steps(step: object) -> tuple[object, ...]:
    piece = getattr(step, "piece", None)
    return () if piece is None else piece.map.steps


def test_a_row_that_is_read_twice_receives_both_gradients() -> None:
    rows = np.random.default_rng(0).integers(0, 50, 120)
    g = Graph()
    x = g.input("x", (50, 4), "float64")
    loss = g.output(ops.sum(ops.exp(ops.take(x, rows))), "loss")
    (grad,) = gradient(loss, [x])
    g.output(grad, "dx")
    values = np.random.default_rng(1).normal(size=(50, 4))
    expected = np.zeros((50, 4))
    np.add.at(expected, rows, np.exp(values[rows]))
    result = run(plan(g, Mesh((2,))), {"x": values}, verify=True)
    np.testing.assert_allclose(result.outputs["dx"], expected)
    assert allocate((50, 4)).take(rows, axis=0).shape == (120, 4)
