"""Every view kind against NumPy, cell by cell."""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapestry_sets import (
    AffineMap,
    Box,
    IndexMap,
    Pad,
    Piece,
    View,
    allocate,
    concatenate,
    interleave,
    pad,
    piece_domain,
    piece_image,
    repeat,
    roll,
    stack,
    tile,
)
from tests.oracles import memory_for, read_view
from tests.strategies import shapes, subscripts, views


def check(view: View, expected: np.ndarray) -> None:
    """The view reads what NumPy reads, where its one allocation holds 1, 2, 3, …."""
    assert view.shape == expected.shape
    np.testing.assert_array_equal(read_view(view, memory_for([view])), expected)


@given(views())
def test_chains_read_what_numpy_reads(pair: tuple[View, np.ndarray]) -> None:
    view, expected = pair
    check(view, expected)
