"""Alias queries against sets of cells that NumPy lists."""

from __future__ import annotations

import numpy as np
from hypothesis import given

from tapestry_sets import Allocation, View
from tapestry_sets.alias import (
    contains,
    has_internal_overlap,
    is_contiguous,
    origins,
    overlap,
    overlaps,
    same_elements,
)
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


@given(view_pairs())
def test_order_of_cells_does_not_matter(pair: Pair) -> None:
    a, x, b, y, _ = pair
    assert contains(a, b) == (cells(y) <= cells(x))
    assert same_elements(a, b) == (cells(x) == cells(y))


@given(views())
def test_one_view(pair: tuple[View, np.ndarray]) -> None:
    view, values = pair
    reads = cells(values)
    assert has_internal_overlap(view) == (int((values != 0).sum()) > len(reads))
    assert is_contiguous(view) == (not reads or max(reads) - min(reads) + 1 == len(reads))
    found = origins(view)
    assert {a.size and sum(r.size for r in found.values()) for a in view.allocations} <= {len(reads), 0}
