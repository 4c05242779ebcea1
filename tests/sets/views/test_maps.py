"""Pieces and chains against points taken through them one step at a time."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapestry_sets import AffineMap, Box, Region, TooManyPieces, View, allocate, concatenate, interleave, limits, pad
from tapestry_sets.solvers import isl
from tapestry_sets.views import (
    Allocation,
    Guard,
    IndexMap,
    Piece,
    Relinearize,
    compose_pieces,
    identity_piece,
    piece_domain,
    piece_image,
)
from tapestry_sets.views.documents import piece_from_dict, piece_to_dict
from tapestry_sets.views.pieces.piece import simplify_piece
from tests.machine_pace import slower
from tests.oracles import memory_for, read_view, readers
from tests.strategies import factorizations, views

Points = set[tuple[int, ...]]


def cells(shape: Sequence[int]) -> list[tuple[int, ...]]:
    return list(product(*map(range, shape)))


@st.composite
def boxes_in(draw: st.DrawFn, shape: tuple[int, ...]) -> Box:
    """A box inside a shape, sometimes empty."""
    start = [draw(st.integers(0, n)) for n in shape]
    return Box(tuple(start), tuple(draw(st.integers(0, n - a)) for a, n in zip(start, shape, strict=True)))


# ---------------------------------------------------------------------------------------------------------- chains


@given(st.data(), st.integers(1, 60))
def test_relinearize_is_numpys_reshape(data: st.DataObject, size: int) -> None:
    old, new = data.draw(factorizations(size)), data.draw(factorizations(size))
    step = Relinearize(old, new)
    chain = IndexMap((step,))
    points = np.array(cells(old), np.int64).reshape(size, len(old))
    expected = np.stack(np.unravel_index(np.arange(size), new), axis=-1)
    assert [step.apply(p) for p in cells(old)] == [tuple(p) for p in expected.tolist()]
    np.testing.assert_array_equal(chain.apply_array(points), expected)
    assert chain.then(IndexMap((Relinearize(new, old),))).simplify() == IndexMap((), len(old))


def test_relinearize_leaves_the_outermost_extent_free() -> None:
    assert Relinearize((2, 6), (4, 3)).apply((5, 0)) == (10, 0)


@given(views())
def test_simplified_chains_take_points_to_the_same_places(pair: tuple[View, np.ndarray]) -> None:
    view, _ = pair
    memory_rank = view.allocations[0].rank
    for piece in view.pieces:
        assert piece.map.simplify().simplify() == piece.map.simplify()
        assert [piece.map.simplify().apply(p) for p in cells(view.shape)[:9]] == [
            piece.map.apply(p) for p in cells(view.shape)[:9]
        ]
        points = [p for p, holds in zip(cells(view.shape), readers(piece, cells(view.shape)), strict=True) if holds]
        array = np.array(points, np.int64).reshape(len(points), view.rank)
        images = piece.map.apply_array(array)
        assert images.shape == (len(points), 0 if piece.source < 0 else memory_rank)
        assert [piece.map.apply(p) for p in points] == [tuple(x) for x in images.tolist()]


def test_apply_array_refuses_what_overflows() -> None:
    m = IndexMap((AffineMap(((2**40,),), (0,)),))
    assert m.apply((2**40,)) == (2**80,)
    with pytest.raises(OverflowError, match="int64"):
        m.apply_array(np.array([[2**40]]))
    with pytest.raises(OverflowError, match="int64"):
        IndexMap((Relinearize((2**40, 2**40), (2**80,)),)).apply_array(np.array([[0, 0]]))
    with pytest.raises(ValueError, match=r"shape \(3,\) where \(n, 1\)"):
        m.apply_array(np.array([1, 2, 3]))


def test_chain_errors() -> None:
    with pytest.raises(ValueError, match="step 1 takes rank 2 where rank 1 arrives"):
        IndexMap((AffineMap(((1,),), (0,)), Relinearize((2, 3), (6,))))
    with pytest.raises(ValueError, match=r"24 elements and .* has 25"):
        Relinearize((4, 6), (5, 5))
    with pytest.raises(ValueError, match="IndexMap: in_rank is -3; give the number of input axes, or leave it out"):
        IndexMap((AffineMap(((1, 0),), (0,)),), -3)
    with pytest.raises(ValueError, match="give in_rank"):
        IndexMap(())
    with pytest.raises(ValueError, match="guard prefix 2"):
        Piece(0, (Guard(2, Region.full((3,))),), IndexMap((), 1))
    with pytest.raises(ValueError, match="has rank 2 where the chain has rank 1"):
        Piece(0, (Guard(0, Region.full((3, 3))),), IndexMap((), 1))
    with pytest.raises(ValueError, match="a constant has source -1 and a fill"):
        Piece(-1, (), IndexMap((AffineMap((), (), 1),)))


# ------------------------------------------------------------------------------------------------- images, domains


@given(st.data(), views())
def test_piece_images_and_domains(data: st.DataObject, pair: tuple[View, np.ndarray]) -> None:
    """For cells in a box: what a piece reads, and where it does, are what single points say."""
    view, _ = pair
    box = data.draw(boxes_in(view.shape))
    inside = [p for p in cells(view.shape) if p in box]
    for piece in view.pieces:
        domain: Points = {p for p, holds in zip(inside, readers(piece, inside), strict=True) if holds}
        found = piece_domain(piece, box)
        assert {tuple(p) for p in found.points().tolist()} == domain and found.size == len(domain)
        image = {piece.map.apply(p) for p in domain}
        home = () if piece.source < 0 else view.allocations[piece.source].shape
        read = piece_image(piece, box, home)
        assert {tuple(p) for p in read.points().tolist()} == image and read.size == len(image)
        assert read.shape == home
        assert piece_image(piece, box).size == len(image)


@given(st.data(), st.lists(st.lists(st.integers(-2, 3), min_size=3, max_size=3), min_size=1, max_size=2))
def test_domains_under_slanted_maps(data: st.DataObject, matrix: list[list[int]]) -> None:
    """Several axes add up to a coordinate of which few values, or none, are read: what single points say."""
    offset = tuple(data.draw(st.integers(-4, 4)) for _ in matrix)
    ends = st.tuples(st.integers(0, 8), st.integers(0, 9), st.integers(1, 3))
    cuts = [slice(*data.draw(ends)) for _ in matrix]
    guard = Guard(1, Region.from_slices((9,) * len(matrix), tuple(cuts)))
    piece = Piece(0, (guard,), IndexMap((AffineMap(tuple(map(tuple, matrix)), offset),)))
    box = data.draw(boxes_in((4, 5, 6)))
    inside = [p for p in cells((4, 5, 6)) if p in box]
    wanted = {p for p, holds in zip(inside, readers(piece, inside), strict=True) if holds}
    found = piece_domain(piece, box)
    assert {tuple(p) for p in found.points().tolist()} == wanted and found.size == len(wanted)


@given(st.data(), views(length=3, cells=100))
def test_pieces_of_disjoint_boxes_add_up(data: st.DataObject, pair: tuple[View, np.ndarray]) -> None:
    """Cutting a box in two cuts domains in two and images into a union."""
    view, _ = pair
    if not view.rank:
        return
    axis = data.draw(st.integers(0, view.rank - 1))
    cut = data.draw(st.integers(0, view.shape[axis]))
    low = Box.of((*view.shape[:axis], cut, *view.shape[axis + 1 :]))
    start = tuple(cut if a == axis else 0 for a in range(view.rank))
    high = Box(start, tuple(n - s for n, s in zip(view.shape, start, strict=True)))
    for piece in view.pieces:
        home = () if piece.source < 0 else view.allocations[piece.source].shape
        both = piece_image(piece, low, home) | piece_image(piece, high, home)
        assert both.same_points(piece_image(piece, Box.of(view.shape), home))


@given(views(length=3, cells=60))
def test_isl_reads_pieces_alike(pair: tuple[View, np.ndarray]) -> None:
    islpy = pytest.importorskip("islpy")
    view, _ = pair
    for piece in view.pieces:
        if piece.source < 0:
            continue
        domain = [p for p, holds in zip(cells(view.shape), readers(piece, cells(view.shape)), strict=True) if holds]
        names = ", ".join(f"x{k}" for k in range(view.rank))
        bounds = " and ".join(["true", *(f"0 <= x{k} < {n}" for k, n in enumerate(view.shape))])
        relation = isl.to_isl(piece).intersect_domain(islpy.Set(f"{{ [{names}] : {bounds} }}"))
        pairs = "; ".join(f"[{', '.join(map(str, p))}] -> [{', '.join(map(str, piece.map.apply(p)))}]" for p in domain)
        if domain:
            assert relation.is_equal(islpy.Map(f"{{ {pairs} }}"))
        else:
            assert relation.is_empty()


def test_images_of_a_large_padded_reshape() -> None:
    """A pad, a reshape and a stride over 10^12 cells: a few products, the same as for 10^2."""
    n = 10**6
    a = allocate((n, n))
    view = pad(a, 2).reshape((n + 4) * (n + 4))[:: n + 4].reshape(n + 4)
    read = [piece_image(p, Box.of(view.shape), a.shape) for p in view.pieces if p.source == 0]
    assert sum(r.size for r in read) == 0
    assert sum(piece_domain(p, Box.of(view.shape)).size for p in view.pieces) == n + 4


def test_shattering_images_are_refused_not_guessed() -> None:
    """(n, n + 1) → (n + 1, n) of a half-column slice needs n + n/2 − 1 products; at 1024 that is 1,535."""
    for n, products in ((8, 11), (1024, 1535)):
        half = allocate((n, n + 1)).reshape(n * (n + 1)).reshape(n, n + 1)[:, : n // 2]
        piece = Piece(0, (), IndexMap((Relinearize((n, n + 1), (n + 1, n)),)))
        image = piece_image(piece, Box.of(half.shape), (n + 1, n))
        assert image.size == n * (n // 2)
        assert len(image.members) <= products
    n = 10**6
    with pytest.raises(TooManyPieces, match="ask overlaps"):
        piece_image(Piece(0, (), IndexMap((Relinearize((n, n + 1), (n + 1, n)),))), Box.of((n, n // 2)), (n + 1, n))


# --------------------------------------------------------------------------------------- composition, plain data


@given(views())
def test_composition_is_reading_twice(pair: tuple[View, np.ndarray]) -> None:
    """The pieces of a view of a view read what reading the inner view first gives."""
    view, _ = pair
    if isinstance(view, Allocation):
        return
    (inner,) = set(view.sources) if len(set(view.sources)) == 1 else (None,)
    if inner is None:
        return
    outer = view.kind.pieces(tuple(s.shape for s in view.sources))
    memory = memory_for([view])
    first = read_view(inner, memory)
    stand_in = allocate(inner.shape)
    above = stand_in.apply(view.kind, *[stand_in] * (len(view.sources) - 1))
    twice = read_view(above, {stand_in: first})
    for shape in (None, view.shape):
        composed = compose_pieces(outer, [inner.pieces] * len(view.sources), shape)
        np.testing.assert_array_equal(_read(composed, view.shape, inner, memory), twice)


def _read(pieces: Sequence[Piece], shape: tuple[int, ...], inner: View, memory: dict[View, np.ndarray]) -> np.ndarray:
    out = np.full(shape, np.nan)
    for piece in pieces:
        for p, holds in zip(cells(shape), readers(piece, cells(shape)), strict=True):
            if holds:
                assert np.isnan(out[p])
                source = None if piece.source < 0 else memory[inner.allocations[piece.source]]
                out[p] = piece.fill if source is None else source[piece.map.apply(p)]
    return out


def test_compose_names_the_missing_source() -> None:
    with pytest.raises(ValueError, match=r"reads source 1; given are \[0\]"):
        compose_pieces([identity_piece(1, source=1)], [[identity_piece(1)]])


def test_simplify_drops_pieces_that_never_apply() -> None:
    guard = Guard(0, Region.from_slices((10,), (slice(5, 10),)))
    assert simplify_piece(Piece(0, (guard,), IndexMap((), 1)), Box.of((4,))) is None
    assert simplify_piece(Piece(0, (guard,), IndexMap((), 1)), Box((5,), (3,))) == identity_piece(1)


@given(views())
def test_pieces_survive_json(pair: tuple[View, np.ndarray]) -> None:
    view, _ = pair
    for piece in view.pieces:
        assert piece_from_dict(json.loads(json.dumps(piece_to_dict(piece), allow_nan=False))) == piece


def test_infinite_fill_survives_json() -> None:
    view = pad(allocate((2,)), 1, value=float("-inf"))
    back = [piece_from_dict(json.loads(json.dumps(piece_to_dict(p), allow_nan=False))) for p in view.pieces]
    assert tuple(back) == view.pieces
    assert [p.fill for p in back] == [None, float("-inf"), float("-inf")]


def test_the_last_round_of_a_deal_may_be_partial() -> None:
    """Three columns dealt to two sources: the renumbering is of four, and what would lie in the fourth is nowhere."""
    A = allocate((4, 3))
    dealt = interleave([A[:, 1:], A[:, :1]], 1)
    for view in (dealt, dealt.reshape(12), concatenate([dealt.reshape(12), A.ravel()[:2]])[::-1]):
        assert sum(piece_domain(piece, Box.of(view.shape)).size for piece in view.pieces) == view.size


@given(views(length=8, cells=300))
def test_pieces_of_long_chains_read_what_numpy_reads(pair: tuple[View, np.ndarray]) -> None:
    """Guards that are pulled, joined and dropped on the way change nothing, and no piece is left that never reads."""
    view, values = pair
    np.testing.assert_array_equal(read_view(view, memory_for([view])), values)
    assert len(view.pieces) <= max(1, view.size)


def test_many_pieces_are_composed_soon_and_within_limits() -> None:
    """Pads, tiles and reshapes in turn, each of which cuts what the others left."""
    A = allocate((5, 5, 8), name="A")
    view = pad(pad(A, ((0, 0), (8, 5), (0, 0)), "wrap").reshape(8, 5, 18), ((2, 4), (0, 0), (0, 0)), "symmetric")
    view = pad(view.reshape(5, 18, 14), ((0, 0), (7, 3), (0, 0)), "reflect")
    start = time.process_time()
    pieces = view.pieces
    assert time.process_time() - start < 2 * slower()
    assert 10 < len(pieces) < 200
    again = pad(view.sources[0], ((0, 0), (7, 3), (0, 0)), "reflect")
    with limits(max_pieces=12), pytest.raises(TooManyPieces, match=r"composition of views: .* more than 12; ask about"):
        _ = again.pieces
    assert again.pieces == pieces
