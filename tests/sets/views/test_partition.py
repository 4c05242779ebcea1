"""Whether regions partition a box and pieces are a view: against the cells, listed one by one."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapestry_sets import AffineMap, Region, TooHard, TooManyPieces, View
from tapestry_sets.solvers import isl
from tapestry_sets.views import Guard, IndexMap, Piece, Relinearize
from tapestry_sets.views.pieces import partition
from tapestry_sets.views.pieces.partition import check_regions, check_view, first_gap, first_shared
from tests.oracles import cell_read, marked
from tests.strategies import regions_in_one_box, views


@given(st.integers(1, 4).flatmap(lambda n: regions_in_one_box(n, at_zero=True)))
def test_regions_partition_their_box_or_a_point_says_why(regions: tuple[Region, ...]) -> None:
    count = sum(marked(region).astype(int) for region in regions)
    if (count == 1).all():
        check_regions(regions, "regions")
        return
    with pytest.raises(ValueError, match="share the point" if (count > 1).any() else "no region holds the point"):
        check_regions(regions, "regions")
    shared = first_shared(regions)
    if shared is not None:
        point, j, k = shared
        assert j < k and marked(regions[j])[point] and marked(regions[k])[point]
    else:
        assert first_gap(regions) == tuple(np.argwhere(count == 0)[0].tolist())


@given(st.integers(0, 3).flatmap(lambda n: regions_in_one_box(n + 1, at_zero=True)))
def test_a_region_and_what_it_leaves_are_a_partition(regions: tuple[Region, ...]) -> None:
    parts = [regions[0], *(~regions[0]).members]
    check_regions(parts, "regions")
    assert first_gap(parts) is None and first_shared(parts) is None


def faults(
    pieces: Sequence[Piece], shape: tuple[int, ...], shapes: Sequence[tuple[int, ...]]
) -> dict[str, set[tuple[int, ...]]]:
    """The cells of a view that are read twice, not at all, or outside their source."""
    found: dict[str, set[tuple[int, ...]]] = {"both read": set(), "no piece reads": set(), "inside its source": set()}
    for cell in product(*map(range, shape)):
        read = [(p.source, at) for p in pieces if (at := cell_read(p, cell)) is not None]
        if not read:
            found["no piece reads"].add(cell)
        if len(read) > 1:
            found["both read"].add(cell)
        for source, at in read:
            if source >= 0 and not all(0 <= x < n for x, n in zip(at, shapes[source], strict=True)):
                found["inside its source"].add(cell)
    return found


@st.composite
def altered(draw: st.DrawFn, pieces: tuple[Piece, ...]) -> list[Piece]:
    """Pieces with one dropped, doubled, moved, or cut by one more guard; or as they are."""
    out = list(pieces)
    if not out:
        return out
    k = draw(st.integers(0, len(out) - 1))
    change = draw(st.sampled_from(["none", "drop", "double", "move", "cut"]))
    piece = out[k]
    if change == "drop":
        del out[k]
    elif change == "double":
        out.append(piece)
    elif change == "move":
        by = draw(st.lists(st.integers(-1, 2), min_size=piece.map.out_rank, max_size=piece.map.out_rank))
        move = AffineMap.select(len(by), [(a, 1) for a in range(len(by))], by)
        out[k] = Piece(piece.source, piece.guards, piece.map.then(IndexMap((move,), len(by))), piece.fill)
    elif change == "cut" and piece.map.in_rank:
        shape = tuple(draw(st.integers(1, 9)) for _ in range(piece.map.in_rank))
        out[k] = Piece(piece.source, (Guard(0, Region.full(shape)), *piece.guards), piece.map, piece.fill)
    return out


@given(views(3, 60), st.data())
def test_pieces_are_a_view_or_a_cell_says_why(pair: tuple[View, np.ndarray], data: st.DataObject) -> None:
    """The same verdict, and a cell that is at fault, by sets and by isl."""
    view, _ = pair
    pieces, shapes = data.draw(altered(view.pieces)), [a.shape for a in view.allocations]
    wrong = faults(pieces, view.shape, shapes)
    agrees(pieces, view.shape, shapes, wrong)
    with mock.patch.object(partition, "piece_domain", side_effect=TooManyPieces("as if there were too many")):
        agrees(pieces, view.shape, shapes, wrong)


def agrees(
    pieces: list[Piece], shape: tuple[int, ...], shapes: list[tuple[int, ...]], wrong: dict[str, set[tuple[int, ...]]]
) -> None:
    try:
        check_view(pieces, shape, shapes, "view")
    except ValueError as error:
        why = next(why for why in wrong if why in str(error))
        cell = str(error).split("cell ")[1].split(")")[0] + ")"
        assert cell in {str(found) for found in wrong[why]}, (error, wrong)
    else:
        assert not any(wrong.values()), wrong


def test_misfits_are_refused() -> None:
    piece = Piece(1, (), IndexMap((), 1))
    with pytest.raises(ValueError, match="v: piece 0 reads source 1, but there are 1"):
        check_view([piece], (3,), [(3,)], "v")
    with pytest.raises(ValueError, match=r"v: piece 0 maps rank 1 to rank 1; the view's shape is \(3, 1\)"):
        check_view([piece], (3, 1), [(3,), (3,)], "v")
    with pytest.raises(ValueError, match=r"v: no piece reads for cell \(0, 0\)"):
        check_view([], (3, 1), [], "v")
    check_view([], (3, 0), [], "v")


def test_a_renumbering_without_cells_is_refused() -> None:
    none = Piece(0, (), IndexMap((Relinearize((0,), (3, 0)),), 1))
    with pytest.raises(ValueError, match=r"piece 0 renumbers \(0,\), which has no cells; the view has \(2,\)"):
        check_view([none], (2,), [(3, 0)], "pieces")
    check_view([none], (0,), [(3, 0)], "pieces")


def test_sizes_do_not_matter() -> None:
    n = 10**12
    half = Guard(1, Region.from_slices((n, n + 1), (slice(None), slice(n // 2))))
    rest = Guard(1, Region.from_slices((n, n + 1), (slice(None), slice(n // 2, None))))
    chain = IndexMap((Relinearize((n + 1, n), (n, n + 1)),))
    check_view([Piece(0, (half,), chain), Piece(1, (rest,), chain)], (n + 1, n), [(n, n + 1)] * 2, "halves")
    with pytest.raises(ValueError, match=r"halves: no piece reads for cell "):
        check_view([Piece(0, (half,), chain)], (n + 1, n), [(n, n + 1)], "halves")


def test_without_isl_what_needs_it_says_so() -> None:
    piece = Piece(0, (), IndexMap((), 1))
    with (
        mock.patch.object(partition, "piece_domain", side_effect=TooManyPieces("too many")),
        mock.patch.object(isl, "available", return_value=False),
        pytest.raises(
            TooHard, match=r"whether the pieces partition .* and isl, which might decide it, is not installed"
        ),
    ):
        check_view([piece], (3,), [(3,)], "v")
