"""Strided copies as values, against cells listed one by one."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tapestry_exec.copies import arrays, strided
from tapestry_exec.copies.strided import (
    Guard,
    Transfer,
    between,
    fill_transfers,
    outside,
    pack_transfers,
    through,
    unpack_transfers,
)
from tapestry_sets import AffineMap, Box, Region, Sett, Stripe, TooHard, View, allocate
from tapestry_sets.views import IndexMap, Piece, identity_piece
from tests.exec.numpy.test_on_numpy import Point, around, needed_block, nested_regions, strides_of
from tests.oracles import memory_for, readers
from tests.strategies import views


def cells_of(transfer: Transfer) -> list[tuple[int, int]]:
    """The (source, target) offsets of a transfer, by its definition, in the order of its index."""
    found = []
    for index in product(*map(range, transfer.dims)):
        values = (sum(c * i for c, i in zip(g.coefficients, index, strict=True)) for g in transfer.guards)
        if all(g.low <= value < g.high for g, value in zip(transfer.guards, values, strict=True)):
            src = transfer.src_offset + sum(i * s for i, s in zip(index, transfer.src_strides, strict=True))
            dst = transfer.dst_offset + sum(i * s for i, s in zip(index, transfer.dst_strides, strict=True))
            found.append((src, dst))
    return found


def pairs(transfers: Sequence[Transfer]) -> list[tuple[int, int]]:
    return [cell for transfer in transfers for cell in cells_of(transfer)]


def place(point: Point, box: Box) -> int:
    """The row-major number of a point in a box."""
    return int(np.ravel_multi_index(tuple(x - a for x, a in zip(point, box.start, strict=True)), box.shape or (1,)))


def offset(point: Point, box: Box) -> int:
    return place(point, box) if point else 0


ints = st.integers(-9, 9)


@st.composite
def transfers(draw: st.DrawFn) -> Transfer:
    """Any strides at all; often even ones, so that there is something to merge."""
    dims = tuple(draw(st.lists(st.integers(0, 4), max_size=5)))

    def strides() -> tuple[int, ...]:
        step, out = draw(ints), list[int]()
        for n in reversed(dims):
            out.append(step)
            step = step * n if draw(st.booleans()) else draw(ints)
        return tuple(reversed(out))

    guards = tuple(Guard(strides(), draw(ints), draw(ints)) for _ in range(draw(st.integers(0, 2))))
    return Transfer(dims, draw(ints), strides(), draw(ints), strides(), guards)


@given(transfers())
def test_a_collapsed_transfer_copies_the_same_cells_in_the_same_order(transfer: Transfer) -> None:
    found = transfer.collapse()
    assert cells_of(found) == cells_of(transfer)
    assert found.size == transfer.size == prod(transfer.dims)
    assert 1 not in found.dims and found.collapse() == found


@given(transfers())
def test_a_swapped_transfer_goes_back(transfer: Transfer) -> None:
    assert cells_of(transfer.swap()) == [(dst, src) for src, dst in cells_of(transfer)]


def test_what_is_even_on_one_side_only_stays_apart() -> None:
    assert Transfer((2, 3), 0, (3, 1), 0, (4, 1)).collapse().dims == (2, 3)
    assert Transfer((2, 3), 0, (3, 1), 0, (3, 1), (Guard((0, 1), 0, 2),)).collapse().dims == (2, 3)
    assert Transfer((2, 3), 0, (3, 1), 0, (3, 1)).collapse().dims == (6,)


@given(nested_regions(), st.data())
def test_a_payload_holds_each_region_row_major(case: tuple[Region, list[Point]], data: st.DataObject) -> None:
    region, points = case
    box = around(data.draw, region)
    found = pairs(pack_transfers(strides_of(box), box.start, (region, region)))
    expected = [(offset(p, box), k) for k, p in enumerate(points * 2)]
    assert sorted(found, key=lambda pair: pair[1]) == expected
    back = pairs(unpack_transfers(strides_of(box), box.start, (region, region)))
    assert sorted(back) == [(k, cell) for cell, k in expected]


@given(nested_regions(), st.data())
def test_between_two_boxes(case: tuple[Region, list[Point]], data: st.DataObject) -> None:
    region, points = case
    one, two = around(data.draw, region), around(data.draw, region)
    found = pairs(between(strides_of(one), one.start, strides_of(two), two.start, (region,)))
    assert sorted(found) == sorted((offset(p, one), offset(p, two)) for p in points)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(-7, 7), st.integers(0, 7)), max_size=3))
def test_outside_lists_each_cell_outside_the_tensor_once(axes: list[tuple[int, int, int]]) -> None:
    tensor, box = tuple(n for n, _, _ in axes), Box(tuple(a for _, a, _ in axes), tuple(m for _, _, m in axes))
    found = pairs(outside(box.shape, box.start, tensor))
    points = product(*(range(a, a + m) for a, m in zip(box.start, box.shape, strict=True)))
    expected = [p for p in points if not all(0 <= x < n for x, n in zip(p, tensor, strict=True))]
    assert sorted(found) == sorted((0, offset(p, box)) for p in expected)


@given(views(), st.data())
def test_pieces_of_views(case: tuple[View, np.ndarray], data: st.DataObject) -> None:
    """What a piece copies is what the index map says point by point, wherever the blocks begin."""
    view, _ = case
    low = tuple(data.draw(st.integers(0, n)) for n in view.shape)
    high = tuple(data.draw(st.integers(a, n)) for a, n in zip(low, view.shape, strict=True))
    region = Region.from_bounds(view.shape, low, high)
    target = Box(low, tuple(max(1, b - a) for a, b in zip(low, high, strict=True)))
    points = [tuple(map(int, p)) for p in region.points()]
    memory = memory_for([view])
    for piece in view.pieces:
        mine = [p for p, holds in zip(points, readers(piece, points), strict=True) if holds]
        if piece.source < 0:
            fills = fill_transfers(piece, target, (region,))
            assert fills is None or sorted(pairs(fills)) == sorted((0, offset(p, target)) for p in mine)
            continue
        _, box = needed_block(view, piece, region, memory)
        found = through(piece, box, target, (region,))
        if found is not None:
            expected = sorted((offset(tuple(map(int, piece.map.apply(p))), box), offset(p, target)) for p in mine)
            assert sorted(pairs(found)) == expected


def test_a_renumbering_across_rows_is_a_strided_copy_by_its_digits() -> None:
    """Of a block of four columns of six: a row of it, and all of it, which are stripes and no box of the numbers."""
    (piece,) = allocate((4, 6), name="A").reshape(24).pieces
    line, block = Box((0,), (24,)), Box((0, 1), (4, 4))
    row, every = Region((24,), [Sett(Stripe(4, 96, phase=7))]), Region((24,), [Sett(Stripe(4, 2, phase=1))])
    assert through(piece, block, line, (row,)) == (Transfer((4,), 4, (1,), 7, (1,)),)
    assert through(piece, block, line, (every,)) is None
    assert through(piece, Box.of((4, 6)), line, (Region.full((24,)),)) == (Transfer((24,), 0, (1,), 0, (1,)),)
    (odd,) = allocate((4, 9), name="B").T.reshape(6, 6).pieces
    assert through(odd, Box.of((4, 9)), Box.of((6, 6)), (Region.full((6, 6)),)) is None, "no common digits"


@given(st.data())
@example(None)
def test_channels_that_are_shuffled_are_strided_copies(data: st.DataObject | None) -> None:
    """Reshapes and transpositions, of which blocks are read: against NumPy's own."""
    if data is None:
        shape, parts, cut = (2, 6, 3), 2, ((0, 2), (1, 5), (0, 3))
    else:
        parts = data.draw(st.sampled_from([2, 3, 4]))
        shape = (data.draw(st.integers(1, 3)), parts * data.draw(st.integers(1, 4)), data.draw(st.integers(1, 4)))
        cut = tuple(data.draw(st.tuples(st.integers(0, n), st.integers(0, n)).map(sorted)) for n in shape)
    n, c, w = shape
    source = np.arange(prod(shape), dtype=np.int32).reshape(shape)
    view = allocate(shape, name="A").reshape(n, parts, c // parts, w).permute_dims((0, 2, 1, 3)).reshape(n, c, w)
    wanted = source.reshape(n, parts, c // parts, w).transpose(0, 2, 1, 3).reshape(shape)
    (piece,) = view.pieces
    slices = tuple(slice(a, b) for a, b in cut)
    block = Box(tuple(a for a, _ in cut), tuple(b - a for a, b in cut))
    found = through(piece, Box.of(shape), block, (Region.from_slices(shape, slices),))
    assert found is not None
    target = np.full(block.shape, -1, np.int32)
    for one in found:
        read = np.lib.stride_tricks.as_strided(
            source.reshape(-1)[one.src_offset :], one.dims, [4 * s for s in one.src_strides]
        )
        np.lib.stride_tricks.as_strided(
            target.reshape(-1)[one.dst_offset :], one.dims, [4 * s for s in one.dst_strides]
        )[...] = read
    np.testing.assert_array_equal(target, wanted[slices])


def test_a_constant_piece_reads_no_source() -> None:
    piece = Piece(-1, (), IndexMap((AffineMap((), (), 1),)), 2.5)
    with pytest.raises(ValueError, match="is a constant and reads no source"):
        through(piece, Box.of(()), Box.of((3,)), (Region.full((3,)),))
    assert fill_transfers(piece, Box.of((3,)), (Region.full((3,)),)) == (Transfer((3,), 0, (0,), 0, (1,)),)


def test_only_too_many_pieces_make_the_general_way(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(piece: Piece, region: Region) -> None:
        raise TooHard("a question of the domain")

    for module in (strided, arrays):
        monkeypatch.setattr(module, "members_of", refuse)
    piece, region = identity_piece(1), Region.full((5,))
    with pytest.raises(TooHard, match="a question of the domain"):
        strided.fill_transfers.__wrapped__(piece, Box.of((5,)), (region,))
    with pytest.raises(TooHard, match="a question of the domain"):
        list(arrays.index_pairs(piece, Box.of((5,)), Box.of((5,)), (region,)))
