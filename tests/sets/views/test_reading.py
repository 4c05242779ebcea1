"""Which indices read which cells, against the values that NumPy reads."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tapestry_sets import Region, View, allocate
from tapestry_sets.views.pieces.reading import (
    are_read,
    cell_read,
    count_cells,
    first_within,
    has_one_inverse,
    in_coordinates,
    indices_within,
    invert,
    is_skew,
    listed,
    sampled,
)
from tests.oracles import listed_points, memory_for, read_view
from tests.strategies import views


def numbers_of(values: np.ndarray) -> set[int]:
    """The row-major numbers of the cells read; 0 stands for a constant."""
    return {int(v) - 1 for v in values.ravel()} - {-1}


@given(views(length=5))
def test_lists_are_the_numbers_read(pair: tuple[View, np.ndarray]) -> None:
    view, values = pair
    (home,) = view.allocations
    pieces = [piece for piece in view.pieces if piece.source == 0]
    found = listed(pieces, view.shape, home.shape)
    assert found.tolist() == sorted(numbers_of(values)) and found.dtype == np.int64


@given(views(length=4), st.integers(1, 40))
def test_samples_are_some_of_the_numbers_read(pair: tuple[View, np.ndarray], many: int) -> None:
    view, values = pair
    (home,) = view.allocations
    pieces = [piece for piece in view.pieces if piece.source == 0]
    found = sampled(pieces, view.shape, home.shape, many)
    read = numbers_of(values)
    assert set(found.tolist()) <= read and (len(found) <= many)
    if many >= view.size:
        assert set(found.tolist()) == read


@given(views(length=5, cells=200))
def test_numbers_that_are_read_are_told_from_the_others(pair: tuple[View, np.ndarray]) -> None:
    view, values = pair
    (home,) = view.allocations
    pieces = [piece for piece in view.pieces if piece.source == 0]
    found = are_read(pieces, view.shape, home.shape, np.arange(home.size))
    assert (found is None) == (not all(map(has_one_inverse, pieces)))
    if found is not None:
        assert set(np.flatnonzero(found).tolist()) == numbers_of(values)


@given(st.integers(1, 6), st.integers(1, 6), st.integers(-3, 3), st.booleans(), st.sampled_from([(), (-1,)]))
@example(3, 3, 0, True, (-1,))  # a diagonal is a step that only its guard reads: not what is inverted
def test_numbers_between_diagonals_are_told_from_the_others(
    rows: int, columns: int, k: int, upper: bool, shape: tuple[int, ...]
) -> None:
    home = allocate((rows, columns), name="A")
    view, values = (home.triu(k), np.triu) if upper else (home.tril(k), np.tril)
    wanted = values(1 + np.arange(home.size).reshape(home.shape), k)
    view = view.reshape(shape or view.shape)
    found = are_read(
        [piece for piece in view.pieces if piece.source == 0], view.shape, home.shape, np.arange(home.size)
    )
    assert found is not None and set(np.flatnonzero(found).tolist()) == numbers_of(wanted)


@given(views(length=4, cells=100))
def test_an_only_inverse_is_found(pair: tuple[View, np.ndarray]) -> None:
    view, values = pair
    memory = memory_for([view])
    read = read_view(view, memory)
    for piece in view.pieces:
        if piece.source < 0 or not has_one_inverse(piece):
            continue
        home = view.allocations[piece.source]
        for index in np.ndindex(view.shape):
            cell = cell_read(piece, index)
            if cell is not None:
                assert read[index] == memory[home][cell] == values[index]
                back = invert(piece.map, cell)
                assert back is not None and cell_read(piece, back) == cell


# ------------------------------------------------------------------------------------------- diagonals and regions


@given(st.lists(st.integers(2, 7), min_size=1, max_size=3), st.data())
def test_steps_are_read_off_as_coordinates(home: list[int], data: st.DataObject) -> None:
    """Of a map from a box into an allocation; what else is returned is right, too."""
    size = int(np.prod(home))
    counts = data.draw(st.lists(st.integers(2, 4), min_size=1, max_size=2))
    if data.draw(st.booleans()):
        rows = [[data.draw(st.integers(-2, 2)) for _ in counts] for _ in home]
        ends = [[c * (n - 1) for c, n in zip(row, counts, strict=True)] for row in rows]
        origin = [-sum(min(0, e) for e in end) + data.draw(st.integers(0, 2)) for end in ends]
        inside = all(x + sum(max(0, e) for e in end) < n for x, end, n in zip(origin, ends, home, strict=True))
        first = int(np.ravel_multi_index(origin, home)) if all(x < n for x, n in zip(origin, home, strict=True)) else 0
        steps = [
            sum(c * int(np.prod(home[k + 1 :])) for k, c in enumerate(column)) for column in zip(*rows, strict=True)
        ]
        small = all(2 * abs(c) < n for row, n in zip(rows[1:], home[1:], strict=True) for c in row)
    else:
        inside, small = False, False
        first = data.draw(st.integers(0, size - 1))
        steps = [data.draw(st.integers(-size, size)) for _ in counts]
    found = in_coordinates((first, tuple(zip(counts, steps, strict=True))), home)
    if inside and small:
        assert found is not None
    if found is not None:
        piece, shape = found
        assert shape == tuple(counts)
        for digits in np.ndindex(*counts):
            number = first + sum(x * step for x, step in zip(digits, steps, strict=True))
            assert piece.map.apply(digits) == tuple(np.unravel_index(number, home))


@given(st.data())
def test_a_diagonal_meets_a_region_where_both_do(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(2, 7), min_size=2, max_size=3)))
    A = allocate(shape)
    a, b = data.draw(st.permutations(range(len(shape))))[:2]
    flipped = A.flip(data.draw(st.sets(st.integers(0, len(shape) - 1)).map(tuple)))
    view = flipped.diagonal(data.draw(st.integers(-1, 1)), a, b)
    if data.draw(st.booleans()):
        steps = [data.draw(st.sampled_from([1, 2, -1])) for _ in view.shape]
        view = view[tuple(slice(None, None, step) for step in steps)]
    (piece,) = view.pieces
    lows, highs, steps = (
        tuple(data.draw(st.integers(lo, hi)) for hi in ends)
        for lo, ends in ((0, [n - 1 for n in shape]), (1, shape), (1, [3 for _ in shape]))
    )
    region = Region.from_slices(shape, tuple(map(slice, lows, highs, steps)))
    assert is_skew(piece)
    axes = indices_within(piece, view.shape, region)
    points = listed_points(region)
    indices = [at for at in np.ndindex(view.shape) if cell_read(piece, at) in points]
    assert first_within(axes) == (min(indices) if indices else None)
    assert count_cells(piece, axes) == len({cell_read(piece, at) for at in indices})


def test_numbers_beyond_int64_are_refused() -> None:
    A = allocate((2**33, 2**33))
    view = A[:4, :4]
    for ask in (lambda: listed(view.pieces, view.shape, A.shape), lambda: sampled(view.pieces, view.shape, A.shape, 5)):
        with pytest.raises(OverflowError, match="more cells than int64"):
            ask()
    with pytest.raises(OverflowError, match="more cells than int64"):
        are_read(view.pieces, view.shape, A.shape, np.arange(3))
    with pytest.raises(OverflowError, match="more indices than int64"):
        sampled(A.pieces, A.shape, A.shape, 5)
    B = allocate((2**62,))
    spread = sampled(B[1:].pieces, (2**62 - 1,), B.shape, 1000)
    assert len(np.unique(spread)) == 1000 and np.ptp(spread.astype(float)) > 2**61
    assert are_read(B[1::2].pieces, (2**61,), B.shape, np.array([0, 1, 2**62 - 1])).tolist() == [False, True, True]  # type: ignore[union-attr]
