"""Where a block lies inside an array of other cells: each cell looked up by itself."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tapestry_plan.steps import find_place, is_place, list_place
from tapestry_sets import View
from tapestry_sets.regions import AffineMap, Box
from tapestry_sets.views import IndexMap, Piece, Relinearize
from tests.oracles import after_step, listed_points
from tests.strategies import views


def part_of(data: st.DataObject, shape: tuple[int, ...]) -> Box:
    """All of a tensor, or some of it along a few axes."""
    cut = [data.draw(st.booleans()) for _ in shape]
    low = [data.draw(st.integers(0, n - 1)) if some else 0 for some, n in zip(cut, shape, strict=True)]
    ends = [data.draw(st.integers(a + 1, n)) if some else n for some, a, n in zip(cut, low, shape, strict=True)]
    return Box.from_bounds(low, ends)


@given(views(length=3, cells=200), st.data())
@settings(max_examples=max(100, settings.default.max_examples))
def test_each_cell_of_a_place_reads_its_own_cell(case: tuple[View, np.ndarray], data: st.DataObject) -> None:
    """A block lies in a view's array where the view's map, cell for cell, says the block's coordinates."""
    view, _ = case
    if not view.size or not view.pieces:
        return
    piece = data.draw(st.sampled_from(view.pieces))
    if piece.source < 0:
        return
    shape = view.allocations[piece.source].shape
    guest, host = (part_of(data, each) for each in (shape, view.shape))
    place = find_place(host, guest, piece, shape)
    if place is None:
        return
    strides, first = place
    at = []
    for cell in np.ndindex(*guest.shape):
        element = first + sum(i * s for i, s in zip(cell, strides, strict=True))
        inside = map(int, np.unravel_index(element, host.shape)) if host.shape else ()
        found = tuple(a + i for a, i in zip(host.start, inside, strict=True))
        at.append(found)
        for step in piece.map.steps:
            found = after_step(step, found)
        assert found == tuple(a + i for a, i in zip(guest.start, cell, strict=True))
    cells = list_place(host, guest.shape, place, view.shape)
    assert cells is not None and listed_points(cells) == set(at) and len(set(at)) == guest.size


RESHAPED = Piece(0, (), IndexMap((Relinearize((6, 4), (4, 6)),)))
TWICE = Piece(0, (), IndexMap((AffineMap(((0, 1),), (0,)),)))


@pytest.mark.parametrize(
    ("host", "guest", "piece", "shape", "place"),
    [
        (Box((0, 0), (6, 4)), Box((1, 1), (4, 2)), None, (), ((4, 1), 5)),
        (Box((1, 1), (4, 2)), Box((1, 1), (4, 2)), None, (), ((2, 1), 0)),
        (Box((1, 1), (4, 2)), Box((1, 0), (4, 2)), None, (), None),
        (Box((0,), (4,)), Box((2,), (0,)), None, (), None),
        # Rows of 6 in rows of 4: they lie in the array of all cells; in part of its columns none does.
        (Box((0, 0), (6, 4)), Box((0, 0), (4, 6)), RESHAPED, (4, 6), ((6, 1), 0)),
        (Box((3, 0), (3, 4)), Box((2, 0), (1, 4)), RESHAPED, (4, 6), ((4, 1), 0)),
        (Box((0, 0), (6, 3)), Box((0, 0), (1, 6)), RESHAPED, (4, 6), None),
        (Box((0, 0), (6, 2)), Box((0, 0), (2, 2)), RESHAPED, (4, 6), None),
        # Every row reads the same four cells.
        (Box((0, 0), (3, 4)), Box((0,), (4,)), TWICE, (4,), None),
        (Box((1, 0), (1, 4)), Box((1,), (2,)), TWICE, (4,), ((1,), 1)),
    ],
)  # fmt: skip
def test_known_places(
    host: Box, guest: Box, piece: Piece | None, shape: tuple[int, ...], place: tuple[tuple[int, ...], int] | None
) -> None:
    assert find_place(host, guest, piece, shape) == place


def test_a_place_that_is_told_is_proved() -> None:
    host, guest = Box((0, 0), (6, 4)), Box((0, 0), (2, 6))
    assert is_place(host, guest, ((6, 1), 0), RESHAPED, (4, 6))
    for wrong in (((6, 1), 1), ((4, 1), 0), ((6, 2), 0), ((1, 6), 0), ((6, 1), -1), ((6, 1), 13)):
        assert not is_place(host, guest, wrong, RESHAPED, (4, 6))
    assert is_place(host, Box((2, 1), (1, 3)), ((99, 1), 13), RESHAPED, (4, 6)), "along an axis of one cell any stride"
