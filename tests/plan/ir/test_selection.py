"""Selections are maps: each cell has one source cell. The check agrees with reading the pieces cell by cell."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tapestry_plan import Graph
from tapestry_plan.ir import check_pieces, check_selection
from tapestry_plan.ir.selection import domain_of
from tapestry_sets import AffineMap, Box, Region, Stripe, TooHard, hstack, pad, repeat
from tapestry_sets.views import (
    Broadcast,
    Concat,
    Diagonal,
    Guard,
    IndexMap,
    Interleave,
    Pad,
    Piece,
    Relinearize,
    Repeat,
    Reshape,
    Roll,
    Slice,
    SlidingWindow,
    Stack,
    Tile,
)
from tests.oracles import cell_read
from tests.strategies import factorizations

Shape = tuple[int, ...]
N = 10**9


@dataclass(frozen=True)
class Pieces:
    """A view kind from outside: whatever pieces it is given."""

    shape: Shape
    parts: tuple[Piece, ...]

    def out_shape(self, shapes: Sequence[Shape]) -> Shape:
        return self.shape

    def pieces(self, shapes: Sequence[Shape]) -> tuple[Piece, ...]:
        return self.parts


def listed_fault(pieces: Sequence[Piece], shape: Shape, shapes: Sequence[Shape]) -> set[Shape]:
    """The cells that have two readers, none, or one outside its source: read one by one."""
    wrong = set()
    for cell in product(*map(range, shape)):
        found = [(p, at) for p in pieces if (at := cell_read(p, cell)) is not None]
        outside = [at for p, at in found if p.source >= 0 and at not in Box.of(shapes[p.source])]
        if len(found) != 1 or outside:
            wrong.add(cell)
    return wrong


# ---------------------------------------------------------------------------------------- against enumeration


@st.composite
def axis_sets(draw: st.DrawFn, shape: Shape) -> Region:
    slices = []
    for n in shape:
        a, b = sorted(draw(st.lists(st.integers(0, n), min_size=2, max_size=2)))
        slices.append(draw(st.sampled_from([slice(None), slice(None), slice(a, b), slice(a % 2, None, 2)])))
    return Region.from_slices(shape, tuple(slices))


@st.composite
def affine_maps(draw: st.DrawFn, rank: int, out_rank: int) -> AffineMap:
    """Mostly one axis for each coordinate, sometimes a skewed map."""
    rows = []
    for k in range(out_rank):
        row = [0] * rank
        for _ in range(draw(st.sampled_from([1, 1, 1, 2]))):
            if rank:
                row[draw(st.sampled_from([k % rank, draw(st.integers(0, rank - 1))]))] = draw(
                    st.sampled_from([1, 2, -1])
                )
        rows.append(tuple(row))
    return AffineMap(tuple(rows), tuple(draw(st.integers(-1, 5)) for _ in range(out_rank)), rank)


@st.composite
def piece_lists(draw: st.DrawFn) -> tuple[list[Piece], Shape, list[Shape]]:
    """Pieces of a view that often are not a partition, and that often read outside their source."""
    shape = tuple(draw(st.lists(st.integers(1, 5), max_size=3)))
    shapes = [tuple(draw(st.lists(st.integers(1, 12), max_size=2))) for _ in range(2)]
    size = int(np.prod(shape))
    middle = draw(st.just(shape) | factorizations(size))
    head = draw(axis_sets(middle))
    pieces = []
    regions = [head, *(~head).members] if draw(st.booleans()) else [head, draw(axis_sets(middle))]
    if draw(st.booleans()) and len(regions) > 2:
        regions.pop()
    for region in regions:
        source = draw(st.sampled_from([0, 0, 1, -1]))
        home = () if source < 0 else shapes[source]
        steps = [] if middle == shape else [Relinearize(shape, middle)]
        guard = Guard(len(steps), region)
        affine = draw(affine_maps(len(middle), len(home)))
        pieces.append(
            Piece(source, (guard,), IndexMap((*steps, affine), len(shape)), 0.0 if source < 0 else None),
        )
    return pieces, shape, shapes


@given(piece_lists())
def test_the_verdict_is_that_of_reading_cell_by_cell(case: tuple[list[Piece], Shape, list[Shape]]) -> None:
    pieces, shape, shapes = case
    wrong = listed_fault(pieces, shape, shapes)
    if not wrong:
        check_pieces(pieces, shape, shapes, "kind")
        return
    with pytest.raises(ValueError, match=r"^kind: ") as raised:
        check_pieces(pieces, shape, shapes, "kind")
    named = re.search(r"cell \(([-\d, ]*)\)", str(raised.value))
    assert named is not None
    assert tuple(int(x) for x in named[1].split(",") if x.strip()) in wrong


def test_the_named_cell_is_the_first_without_a_reader() -> None:
    shape = (5, 6)
    held = [Region.from_slices(shape, (slice(3), slice(None))), Region.from_slices(shape, (slice(3, 5), slice(0, 4)))]
    pieces = [Piece(-1, (Guard(0, r),), IndexMap((AffineMap((), (), 2),)), 0.0) for r in held]
    with pytest.raises(ValueError, match=r"no piece reads for cell \(3, 4\)"):
        check_pieces(pieces, shape, [], "kind")


# ------------------------------------------------------------------------------------------- the kinds that exist

KINDS: list[tuple[Any, tuple[Shape, ...]]] = [
    (Slice(((None, None, -2), (1, 5, 2))), ((7, 9),)),
    (Reshape((9, 7)), ((7, 9),)),
    (Broadcast((4, 7, 9)), ((7, 1),)),
    (Diagonal(-1), ((7, 9),)),
    (SlidingWindow((3,), (2,), (2,), (1,)), ((7, 9),)),
    (Pad(((1, 2), (0, 3))), ((7, 9),)),
    (Pad(((1, 2), (0, 3)), "reflect"), ((7, 9),)),
    (Pad(((5, 20), (0, 3)), "wrap"), ((7, 9),)),
    (Repeat(3, 1), ((7, 9),)),
    (Tile((2, 1, 3)), ((7, 9),)),
    (Roll(3, 1), ((7, 9),)),
    (Concat(1), ((7, 9), (7, 1), (7, 0))),
    (Stack(2), ((7, 9), (7, 9))),
    (Interleave(0), ((4, 9), (4, 9), (3, 9))),
]


@pytest.mark.parametrize("scale", [1, N])
@pytest.mark.parametrize(("kind", "shapes"), KINDS, ids=lambda x: type(x).__name__)
def test_every_kind_is_a_map_at_every_size(kind: Any, shapes: tuple[Shape, ...], scale: int) -> None:
    if isinstance(kind, Broadcast | Reshape):
        kind = type(kind)((*kind.shape[:-1], kind.shape[-1] * scale))
        grown = tuple((*s[:-1], s[-1] * scale) if s[-1] != 1 else s for s in shapes)
    elif isinstance(kind, Concat):
        grown = tuple((s[0] * scale, *s[1:]) for s in shapes)
    else:
        grown = tuple((*s[:-1], s[-1] * scale) for s in shapes)
    check_selection(kind, grown)


def test_a_guard_behind_a_reshape_that_would_shatter_is_decided() -> None:
    """The halves of the columns of (n, n + 1) seen as (n + 1, n): thousands of boxes, or two sets of numbers."""
    there, back = (N, N + 1), (N + 1, N)
    step = Relinearize(back, there)
    halves = [Region.from_slices(there, (slice(None), s)) for s in (slice(N // 2), slice(N // 2, None))]
    pieces = [Piece(0, (Guard(1, half),), IndexMap((step,))) for half in halves]
    check_pieces(pieces, back, [there], "halves")
    assert domain_of(pieces[0], back).size == N * (N // 2)
    gap = Piece(0, (Guard(1, Region.from_slices(there, (slice(None), slice(N // 2 + 1, None)))),), pieces[1].map)
    with pytest.raises(ValueError, match=rf"no piece reads for cell \(0, {N // 2}\)"):
        check_pieces([pieces[0], gap], back, [there], "halves")


def test_what_cannot_be_decided_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows backwards, then a reshape, then half of the columns: too many products, so isl is asked, if there is one."""
    turn = AffineMap(((-1, 0), (0, 1)), (N, 0))
    there, back = (N, N + 1), (N + 1, N)
    half = Guard(2, Region.from_slices(there, (slice(None), slice(N // 2))))
    piece = Piece(0, (half,), IndexMap((turn, Relinearize(back, there))))
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "islpy", None)
        with pytest.raises(TooHard, match=r"^kind: whether .* islpy.*; make the view of several simpler selections"):
            check_pieces([piece], back, [there], "kind")
    with pytest.raises(ValueError, match="no piece reads for cell") as raised:
        check_pieces([piece], back, [there], "kind")
    named = re.search(r"cell \((\d+), (\d+)\)", str(raised.value))
    assert named is not None and cell_read(piece, (int(named[1]), int(named[2]))) is None


# ----------------------------------------------------------------------------------------------- kinds that lie


def slab(axis: int, start: int, stop: int, source: int, shift: int, shape: Shape) -> Piece:
    """Cells start <= x[axis] < stop of a view of rank 2, which read x moved by `shift` along the axis."""
    low, high = [0, 0], list(shape)
    low[axis], high[axis] = start, stop
    offset = [shift if a == axis else 0 for a in range(2)]
    move = AffineMap.select(2, [(0, 1), (1, 1)], offset)
    return Piece(source, (Guard(0, Region.from_bounds(shape, low, high)),), IndexMap((move,)))


@pytest.mark.parametrize(
    ("pieces", "message"),
    [
        ([slab(0, 0, 4, 0, 0, (6, 5)), slab(0, 3, 6, 1, -3, (6, 5))], r"pieces 0 and 1 both read for cell \(3, 0\)"),
        ([slab(0, 0, 4, 0, 0, (6, 5)), slab(0, 5, 6, 1, -4, (6, 5))], r"no piece reads for cell \(4, 0\)"),
        ([slab(0, 0, 4, 0, 0, (6, 5)), slab(0, 4, 6, 1, -5, (6, 5))], r"cell \(4, 0\) reads \(-1, 0\) of source 1 of"),
        ([slab(0, 0, 6, 1, 0, (6, 5))], r"cell \(3, 0\) reads \(3, 0\) of source 1 of shape \(3, 5\)"),
        ([slab(0, 0, 6, 2, 0, (6, 5))], "piece 0 reads source 2, but there are 2"),
        ([Piece(0, (), IndexMap((), 1))], "piece 0 maps rank 1 to rank 1"),
        ([], r"no piece reads for cell \(0, 0\)"),
        (
            [Piece(0, (), IndexMap((Relinearize((0, 5), (5, 0)), AffineMap.identity(2))))],
            r"piece 0 renumbers \(0, 5\), which has no cells; the view has \(6, 5\)",
        ),
    ],
)
def test_kinds_that_are_not_maps_are_refused(pieces: list[Piece], message: str) -> None:
    kind, shapes = Pieces((6, 5), tuple(pieces)), ((6, 5), (3, 5))
    with pytest.raises(ValueError, match=f"^pieces: {message}"):
        check_selection(kind, shapes)
    g = Graph()
    tensors = [g.input(name, shape) for name, shape in zip("ab", shapes, strict=True)]
    before = g.to_json()
    with pytest.raises(ValueError, match=f"^pieces: {message}"):
        g.select(kind, *tensors)
    assert g.to_json() == before


def test_a_kind_from_outside_that_is_a_map_is_taken() -> None:
    pieces = (slab(0, 0, 4, 0, 0, (6, 5)), slab(0, 4, 6, 1, -4, (6, 5)))
    g = Graph()
    view = g.select(Pieces((6, 5), pieces), g.input("a", (6, 5)), g.input("b", (3, 5)))
    assert view.shape == (6, 5)
    g.validate()


@pytest.mark.parametrize(
    "word",
    [
        lambda a, b: a.take(99),
        lambda a, b: a[1:, [0, 9]],
        lambda a, b: hstack([b, a]),
        lambda a, b: repeat(a, [1, 2]),
        lambda a, b: pad(a, 1, padding=lambda shape: b),
    ],
)
def test_a_word_of_several_selections_that_is_refused_leaves_none(word: Any) -> None:
    g = Graph()
    a, b = g.input("a", (4, 6)), g.input("b", (3,))
    before = g.to_json()
    with pytest.raises((IndexError, ValueError)):
        word(a, b)
    assert g.to_json() == before
    assert a[1:].name == "slice" and a[1:].name == "slice_1" and a[1:].name == "slice_2"


def test_views_without_cells_have_nothing_to_check() -> None:
    check_pieces([], (0, 5), [(3,)], "kind")
    check_selection(Slice(((2, 2, None),)), [(4, 4)])


# ---------------------------------------------------------------------------------------------------- documents


def document() -> dict[str, Any]:
    g = Graph()
    a, b = g.input("a", (4, 3)), g.input("b", (2, 3))
    g.output(g.select(Concat(0), a, b, name="both")[::2])
    found: dict[str, Any] = json.loads(g.to_json())
    return found


def bounds_of(piece: dict[str, Any], axis: int) -> list[list[int]]:
    stripes: list[list[int]] = piece["guards"][0]["region"]["setts"][axis]
    return stripes


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda d: d["order"][0]["pieces"].pop(), r"selection 'both' \(concat\): no piece reads for cell \(4, 0\)"),
        (
            lambda d: d["order"][0]["pieces"].append(d["order"][0]["pieces"][0]),
            r"pieces 0 and 2 both read for cell \(0, 0\)",
        ),
        (lambda d: d["order"][0].update(inputs=[], pieces=[]), "selection 'both' .*reads no tensor; a selection views"),
        (lambda d: d["order"][1].update(shape=[4, 3]), r"selection 'slice' \(slice\): cell \(3, 0\) reads \(6, 0\)"),
        (
            lambda d: d["order"][0].update(dtype="float64"),
            r"selection 'both' .*dtype float64, but it reads \['float32'\]",
        ),
    ],
)
def test_documents_with_selections_that_are_not_maps_are_refused(edit: Any, message: str) -> None:
    Graph.from_json(json.dumps(document()))
    changed = document()
    edit(changed)
    with pytest.raises(ValueError, match=message):
        Graph.from_json(json.dumps(changed))


@given(st.integers(2, 40), st.integers(1, 3))
@example(40, 1)
def test_many_sources(count: int, rank: int) -> None:
    shapes = [(3,) * rank] * count
    for kind in (Concat(rank - 1), Stack(0), Interleave(0)):
        check_selection(kind, shapes)


def test_nested_stripes_as_guards() -> None:
    """A kind of two interleaved patterns of stripes, and the same with one cell too many."""
    shape = (12 * N,)
    one = Region(shape, [Stripe(5, 7)])
    (two,) = (~one).members

    def reading(region: Region) -> Piece:
        return Piece(0, (Guard(0, region),), IndexMap((), 1))

    check_pieces([reading(one), reading(two)], shape, [shape], "stripes")
    with pytest.raises(ValueError, match=r"pieces 0 and 1 both read for cell \(4,\)"):
        check_pieces([reading(one), reading(Region(shape, [Stripe(8, 4, phase=4)]))], shape, [shape], "stripes")
