"""The normal form of views: equality, simplification, the mirror; NumPy and enumeration are the truth."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapestry_sets import (
    AffineMap,
    Allocation,
    DisjointRegions,
    ImplicitRegion,
    Region,
    Sett,
    Stripe,
    View,
    allocate,
    concatenate,
    fill_into,
    interleave,
    overlaps,
    pad,
    repeat,
    roll,
    stack,
    tile,
)
from tapestry_sets.views import Concat, Derived, Guard, IndexMap, Piece, Relinearize, Stack
from tapestry_sets.views.pieces.reading import invert
from tests.oracles import listed_points, read_view
from tests.strategies import factorizations, nestings, view_pairs, views

WORDS = [
    *("split", "deal", "transpose", "flip", "reshape", "roll", "expand", "broadcast", "stack", "fill", "pad", "tile"),
    *("repeat", "take", "nested", "slice_of_permute"),
]


def kinds_in(view: View) -> int:
    """Count the kinds that a view is made of."""
    found, todo = {}, [view]
    while todo:
        v = todo.pop()
        if isinstance(v, Derived) and id(v) not in found:
            found[id(v)] = v
            todo += v.sources
    return len(found)


def values(view: View, base: Allocation) -> np.ndarray:
    """Read a view of one allocation that holds 1, 2, 3, …; constants are 0."""
    return read_view(view, {base: np.arange(1, base.size + 1).reshape(base.shape)})


def base_of(view: View) -> Allocation:
    while view.sources:
        view = view.sources[0]
    assert isinstance(view, Allocation)
    return view


# ---------------------------------------------------------------------------------------------------- strided forms


@st.composite
def cut_and_joined(draw: st.DrawFn) -> Callable[[], View]:
    """Some slices of one matrix, put together along an old axis or a new one."""
    flip, size = draw(st.booleans()), draw(st.integers(1, 4))
    cuts = draw(
        st.lists(
            st.tuples(st.integers(0, 11), st.sampled_from([1, 2, 3, -1]), st.integers(0, 2)), min_size=1, max_size=9
        )
    )
    if draw(st.booleans()):  # at even distances, so that they may fold
        start, by, step = draw(st.integers(0, 3)), draw(st.integers(0, 3)), draw(st.sampled_from([1, 2]))
        cuts = [(start + k * by, step, 0) for k in range(len(cuts))]
    is_stacked, is_cut_again = draw(st.booleans()), draw(st.booleans())

    def make() -> View:
        base = allocate((5, 12)).T if flip else allocate((12, 5))
        parts = [base[start::step][:size, column : column + 3] for start, step, column in cuts]
        if is_stacked:
            return stack([part[:1] for part in parts if part.size] or [base[:1]], axis=1)
        view = concatenate(parts)
        return concatenate([view, view[::-1]], 1) if is_cut_again else view

    return make


@given(cut_and_joined())
def test_strided_forms_of_joined_views_are_those_of_their_patches(make: Callable[[], View]) -> None:
    view = make()
    with patch.object(Concat, "join_strided", None), patch.object(Stack, "join_strided", None):
        by_patches = make().strided_form()
    found = view.strided_form()
    assert (found is None) == (by_patches is None)
    if found is not None:
        offset, axes = found[1]
        read = np.full((), offset)
        for levels in axes:
            for n, by in levels:
                read = np.add.outer(read, np.arange(n) * by)
        assert read.reshape(view.shape).tolist() == (values(view, base_of(view)) - 1).tolist()


# ------------------------------------------------------------------------------------------------ rules of rewriting


@st.composite
def rewritten(draw: st.DrawFn, view: View) -> View:
    """The same view said in another way, by a rule that changes nothing."""
    word = draw(st.sampled_from(WORDS))
    order = draw(st.permutations(range(view.rank)))
    if word == "transpose":
        return view.permute_dims(order).permute_dims([order.index(a) for a in range(view.rank)])
    if word == "flip":
        return view.flip().flip()
    if word == "reshape":
        return view.reshape(draw(factorizations(view.size))).reshape(view.shape)
    if word == "expand":
        return view.expand_dims(0).squeeze(0)
    if word == "broadcast":
        return view.broadcast_to((3, *view.shape))[draw(st.integers(0, 2))]
    if not view.rank or not view.size:
        return view[...]
    return draw(along(view, word, draw(st.integers(0, view.rank - 1))))


@st.composite
def along(draw: st.DrawFn, view: View, word: str, axis: int) -> View:
    """As `rewritten`, along an axis."""
    n = view.shape[axis]

    def at(key: slice | int, v: View = view) -> View:
        return v[(slice(None),) * axis + (key,)]

    if word in ("split", "nested"):
        cuts = sorted(draw(st.lists(st.integers(0, n), min_size=1, max_size=3)))
        parts = [at(slice(a, b)) for a, b in zip([0, *cuts], [*cuts, n], strict=True)]
        if word == "nested":
            parts = [concatenate(parts[:2], axis), *parts[2:]]
        return concatenate(parts, axis)
    k = draw(st.integers(1, 3))
    if word == "deal":
        return interleave([at(slice(s, None, k)) for s in range(k)], axis)
    if word == "stack":
        return stack([at(i) for i in range(n)], axis)
    if word == "roll":
        shift = draw(st.integers(-5, 5))
        return roll(roll(view, shift, axis), -shift, axis)
    if word == "tile":
        return at(slice(0, n), tile(view, [k if a == axis else 1 for a in range(view.rank)]))
    if word == "repeat":
        return at(slice(None, None, k), repeat(view, k, axis))
    if word == "take":
        return view.take(range(n), axis)
    if word == "fill":
        region = Region(view.shape, [Sett(*draw(nestings(7, 2))) if a == axis else Sett() for a in range(view.rank)])
        parts = [region, *(~region).members]
        return fill_into(parts, [view.sample(part) for part in parts])
    if word == "slice_of_permute":
        low = draw(st.integers(0, n))
        last = view.permute_dims([*(a for a in range(view.rank) if a != axis), axis])
        back = [*range(axis), view.rank - 1, *range(axis, view.rank - 1)]
        sliced = [last[..., :low].permute_dims(back), at(slice(low, None))]
        return concatenate(sliced, axis)
    before, after = draw(st.integers(0, 3)), draw(st.integers(0, 3))
    mode = draw(st.sampled_from(["constant", "edge", "wrap", "reflect", "symmetric"]))
    wide = pad(view, [(before, after) if a == axis else (0, 0) for a in range(view.rank)], mode)
    return at(slice(before, before + n), wide)


@given(st.data(), views(length=7))
def test_views_that_rules_say_are_the_same_are_equal(data: st.DataObject, pair: tuple[View, np.ndarray]) -> None:
    view, _ = pair
    other = data.draw(rewritten(data.draw(rewritten(view))))
    assert view == other and other == view
    assert hash(view) == hash(other)
    assert view.same_view(other) and other.same_view(view)


@given(view_pairs(length=4))
def test_the_same_view_is_the_same_cell_at_each_index(pair: tuple[Any, ...]) -> None:
    one, x, two, y, _ = pair
    same = x.shape == y.shape and np.array_equal(x, y)
    assert one.same_view(two) == same
    if x.size or not same:
        assert (one == two) == same
    if one == two:
        assert hash(one) == hash(two)


@given(st.data(), views(length=5))
def test_views_that_differ_in_one_cell_are_not_equal(data: st.DataObject, pair: tuple[View, np.ndarray]) -> None:
    view, values = pair
    base = base_of(view)
    if not view.size or base.size < 2:
        return
    flat = view.ravel()
    at = data.draw(st.integers(0, view.size - 1))
    cell = data.draw(st.integers(0, base.size - 1))
    other = concatenate([flat[:at], base.ravel()[cell : cell + 1], flat[at + 1 :]]).reshape(view.shape)
    same = bool(values.ravel()[at] == cell + 1)
    assert (view == other) == view.same_view(other) == same


def test_examples_of_equal_views() -> None:
    A = allocate((24,), name="A")
    assert A[1:][1:] == A[2:] and A[2:] != A[3:][:21] and A[1:-1] == A[:-1][1:]
    B = A.reshape(4, 6)
    assert B.T.T == B and B.reshape(6, 4).reshape(4, 6) == B and B.reshape(24) == A and B != A
    assert concatenate([A[:3], A[3:]]) == A == interleave([A[0::2], A[1::2]]) == A[::-1][::-1]
    assert roll(A, 5) != A and roll(roll(A, 5), -5) == A and roll(A, 24) == A
    assert stack([B[0], B[2]]) == B[::2][:2] and stack([B[0], B[1], B[3]]) != B[:3]
    assert repeat(A, 2)[::2] == A and tile(A, 2)[24:] == A
    assert A != "A" and A.__eq__(3) is NotImplemented


def test_memory_is_told_apart_by_what_it_is() -> None:
    A, B = allocate((6,), name="A"), allocate((6,), name="A")
    assert A[:] == A and A[:] == A and hash(A) == hash(A[:]) and A != B and A[:] != B
    assert A.recolor("red") == A and len({A, A[:], A.reshape(2, 3).ravel(), B}) == 2
    assert A[:0] == A[3:3] and A[:0] != B[:0] and A[:0].same_view(B[:0]) and hash(A[:0]) == hash(A[3:3])
    C = allocate((0, 3))
    assert C[:] == C and hash(C) == hash(C[:]) and allocate((0, 3)) != C


@pytest.mark.parametrize("value", [0, -1.5, float("inf"), float("nan")])
def test_constants_are_compared_by_value(value: float) -> None:
    A = allocate((4,))
    assert pad(A, 2, value=value) == pad(pad(A, 1, value=value), 1, value=value)
    assert pad(A, 2, value=value) != pad(A, 2, value=7) and pad(A, 2, value=value) != pad(A, (1, 3), value=value)
    assert pad(A, 2, value=value)[:2] == pad(allocate((0,)), (2, 0), value=value)
    assert hash(pad(A, 2, value=value)[:2]) == hash(pad(allocate((0,)), (2, 0), value=value))


@pytest.mark.parametrize("n", [10, 10**9])
def test_sizes_play_no_part(n: int) -> None:
    A = allocate((n, n + 1), name="A")
    assert concatenate([A[:3], A[3:]]) == A and interleave([A[:, 0::2], A[:, 1::2]], 1) == A
    assert A.reshape(n + 1, n).T.T.reshape(n, n + 1) == A
    padded = pad(A, 2, "reflect")
    assert padded[2:-2, 2:-2] == A and concatenate([padded[:1], padded[1:]]) == padded
    assert padded.flip() == pad(A.flip(), 2, "reflect") and pad(A.T, 2, "reflect") == padded.T
    assert padded != pad(A, 2, "symmetric")


def test_equality_of_shattering_views_is_decided_part_by_part() -> None:
    """Rows of 7 of a half-column slice: a stage of its own, and still the same after rewriting."""
    n = 10**6
    A = allocate((n * (n + 1),), name="A")
    size = n * (n // 2) // 7 * 7
    odd = A.reshape(n, n + 1)[:, : n // 2].reshape(n * (n // 2))[:size].reshape(size // 7, 7)[:, :3]
    assert odd == odd.T.T and concatenate([odd[:5], odd[5:]]) == odd and odd[:100][3:] == odd[3:100]
    assert odd != odd.flip(0) and hash(odd) == hash(odd.T.T)
    assert kinds_in(odd.T.T.T.T.flip(1).flip(1).simplify()) <= kinds_in(odd)


# ------------------------------------------------------------------------------------------------------ simplify


@given(views(length=12))
def test_simplified_views_read_the_same_and_are_short(pair: tuple[View, np.ndarray]) -> None:
    view, expected = pair
    simple = view.simplify()
    np.testing.assert_array_equal(values(simple, base_of(view)), expected)
    assert simple == view and hash(simple) == hash(view)
    assert simple.simplify() is simple
    assert kinds_in(simple) <= kinds_in(view)
    if view.as_nest() is not None:  # one strided view
        assert kinds_in(simple) <= 6


@given(st.data(), views(length=6))
def test_edits_that_change_nothing_do_not_lengthen_a_view(data: st.DataObject, pair: tuple[View, np.ndarray]) -> None:
    view, expected = pair
    shortest = kinds_in(view.simplify())
    edited = view
    for _ in range(3):
        edited = data.draw(rewritten(edited))
    np.testing.assert_array_equal(values(edited.simplify(), base_of(view)), expected)
    assert kinds_in(edited.simplify()) <= max(shortest, 6) or len(view.pieces) > 1


@pytest.mark.parametrize(
    ("make", "wanted"),
    [
        (lambda A: A.T.T, lambda A: A),
        (lambda A: A[:], lambda A: A),
        (lambda A: A[1:][1:], lambda A: A[2:]),
        (lambda A: A[1:, ::2].flip(0).flip(0), lambda A: A[1:, ::2]),
        (lambda A: A.flip(1)[:, 2:], lambda A: A[:, 3::-1]),
        (lambda A: A.reshape(24).reshape(6, 4).reshape(3, 8), lambda A: A.reshape(3, 8)),
        (lambda A: A.T[:2].T, lambda A: A[:, :2]),
        (lambda A: A.T.reshape(6, 2, 2).reshape(6, 4), lambda A: A.T),
        (lambda A: A[0][2], lambda A: A[0, 2]),
        (lambda A: concatenate([A[:2], A[2:]]), lambda A: A),
        (lambda A: interleave([A[:, 0::2], A[:, 1::2]], 1)[1:], lambda A: A[1:]),
        (lambda A: pad(pad(A, 1), 2), lambda A: pad(A, 3)),
        (lambda A: pad(A[1:][1:], 1), lambda A: pad(A[2:], 1)),
        (lambda A: pad(A, 3)[2:-2, 2:-2], lambda A: pad(A, 1)),
        (lambda A: roll(roll(A, 1, 0), 2, 0), lambda A: roll(A, 3, 0)),
        (lambda A: A.reshape(24).sliding_windows(3)[:, 0], lambda A: A.reshape(24)[:22]),
        (lambda A: roll(roll(A, 1, 0), (2, 3), (0, 1)), lambda A: roll(A, (3, 3), (0, 1))),
    ],
)
def test_simplified_as_one_would_write_it(make: Callable[[View], View], wanted: Callable[[View], View]) -> None:
    A = allocate((4, 6), name="A")
    assert make(A) == wanted(A)
    assert kinds_in(make(A).simplify()) <= max(kinds_in(wanted(A)), kinds_in(wanted(A).simplify()))


def random_edit(view: View, r: np.random.Generator) -> View:
    """An edit that keeps a view as simple as it is: one that is undone, or one that moves axes."""
    n, axis = view.shape[0], int(r.integers(view.rank))
    word = ("transpose", "flip", "both", "reshape", "split", "deal", "pad", "tile", "roll")[int(r.integers(9))]
    if word == "transpose":
        return view.permute_dims([int(a) for a in r.permutation(view.rank)])
    if word == "flip":
        return view.flip(axis)
    if word == "both":
        return view.flip(axis).T.T.flip(axis)
    if word == "reshape":
        return view.reshape(view.size).reshape(view.shape)
    if word == "split":
        cut = int(r.integers(n + 1))
        return concatenate([view[:cut], view[cut:]])
    if word == "deal":
        return interleave([view[0::2], view[1::2]])
    if word == "pad":
        return pad(view, [(1, 2)] + [(0, 0)] * (view.rank - 1), "edge")[1 : 1 + n]
    if word == "tile":
        return tile(view, (2,) + (1,) * (view.rank - 1))[n:]
    return roll(view, int(r.integers(9)), view.shape.index(8))


@pytest.mark.heavy(2)
def test_a_thousand_edits_do_not_grow_a_view() -> None:
    """Each edit and each question costs the same, and the view holds as little, after 1,000 edits as after 100."""
    r = np.random.default_rng(0)
    A = allocate((6, 8, 10), name="A")
    view, seconds, kinds = A[:, :, 1:], [], []
    other = A[1:, 2:5, ::2]
    for _ in range(1000):
        view = random_edit(view, r)
        start = time.process_time()
        view = view.simplify()
        overlaps(view, other)
        seconds.append(time.process_time() - start)
        kinds.append(kinds_in(view))
    assert max(kinds) <= 9 and max(len(view.pieces) for view in (view, view.T)) <= 8
    assert sorted(seconds[-300:])[150] < 4 * sorted(seconds[:300])[150] + 0.01


def test_pieces_of_a_chain_of_edits_do_not_grow() -> None:
    r = np.random.default_rng(1)
    view: View = pad(allocate((6, 8, 8), name="A"), ((0, 0), (0, 0), (1, 1)))
    for _ in range(60):
        view = random_edit(view, r)
    assert len(view.pieces) <= 40


# ------------------------------------------------------------------------------------------------------- mirror


@st.composite
def regions_of(draw: st.DrawFn, shape: tuple[int, ...]) -> Region:
    return Region(shape, [Sett(*draw(nestings(7, 2))) for _ in shape])


@given(st.data(), views(length=6))
def test_preimages_are_the_indices_that_read_the_cells(data: st.DataObject, pair: tuple[View, np.ndarray]) -> None:
    view, read = pair
    base = base_of(view)
    cells = data.draw(regions_of(base.shape))
    wanted = {1 + int(np.ravel_multi_index(p, base.shape)) if p else 1 for p in listed_points(cells)}
    found = view.preimage(cells)
    points = {tuple(p) for p in found.points().tolist()}
    assert points == {tuple(map(int, p)) for p in np.argwhere(np.isin(read, list(wanted)))}
    assert found.size == len(points)
    assert found.shape == view.shape


@given(views(length=5), views(length=2))
def test_laws_of_the_mirror(pair: tuple[View, np.ndarray], other: tuple[View, np.ndarray]) -> None:
    """The image of a preimage lies in the cells, and indices that read alike are found together."""
    view, read = pair
    base = base_of(view)
    cells = view.origins().get(base)
    if cells is None:
        return
    whole = view.preimage({base: cells})
    assert whole.size == int((read > 0).sum())
    if not view.has_internal_overlap():
        first = Region.from_slices(view.shape, tuple(slice(0, 1) for _ in view.shape))
        mine = view[tuple(slice(0, 1) for _ in view.shape)]
        if mine.cells:
            back = view.preimage({base: mine.origins()[base]})
            assert {tuple(p) for p in back.points().tolist()} == listed_points(first)


@pytest.mark.parametrize("n", [12, 12 * 10**8])
def test_preimages_at_every_size(n: int) -> None:
    A = allocate((n, n), name="A")
    found = A.T[::3, 1:].preimage(Region.from_slices((n, n), (slice(0, n, 2), slice(3, 9))))
    assert isinstance(found, DisjointRegions)
    assert found.size == 2 * (n // 2 - 1) and found.bounds() == ((1, 1), (3, n - 2))
    assert A.flip(0).preimage(Region.from_slices((n, n), (slice(0, 1),))).bounds() == ((n - 1, 0), (n, n))


def test_a_shattering_preimage_is_held_lazily() -> None:
    n = 10**4
    A = allocate((n, n + 1), name="A")
    found = A.reshape(n + 1, n).preimage(Region.from_slices((n, n + 1), (slice(None), slice(0, n // 2))))
    assert isinstance(found, ImplicitRegion)
    assert (0, n // 2) not in found and (1, 0) not in found and (1, 1) in found


def test_a_preimage_needs_cells_of_the_views_memory() -> None:
    A, B = allocate((4,), name="A"), allocate((6,), name="B")
    both = concatenate([A, B])
    with pytest.raises(ValueError, match="made of A, B; give a mapping"):
        both.preimage(Region.full((4,)))
    with pytest.raises(ValueError, match=r"box of shape \(5,\) from \(0,\), where the allocation 'A' has the shape"):
        A.preimage(Region.full((5,)))
    with pytest.raises(TypeError, match="cells must be a Region or DisjointRegions, not list"):
        A.preimage({A: [1, 2]})  # type: ignore[dict-item]
    assert both.preimage({A: Region.full((4,)), B: Region.from_slices((6,), (slice(5, 6),))}).size == 5
    assert pad(A, 2)[:2].preimage({A: Region.full((4,))}).is_empty


def test_same_view_takes_views_only() -> None:
    with pytest.raises(TypeError, match="the other is a int, not a View"):
        allocate((3,)).same_view(3)  # type: ignore[arg-type]


# ---------------------------------------------------------------------------------------------- kinds from outside


class Snake:
    """Every second row backwards, as two pieces that renumber twice."""

    def out_shape(self, shapes: tuple[tuple[int, ...], ...]) -> tuple[int, ...]:
        return shapes[0]

    def pieces(self, shapes: tuple[tuple[int, ...], ...]) -> tuple[Piece, ...]:
        rows, n = shapes[0]
        split = Relinearize((rows, n), (rows // 2, 2, n))
        made = []
        for odd, (c, b) in enumerate([(1, 0), (-1, n - 1)]):
            guard = Guard(1, Region.from_bounds((rows // 2, 2, n), (0, odd, 0), (rows // 2, odd + 1, n)))
            made.append(Piece(0, (guard,), IndexMap((split, AffineMap(((2, 1, 0), (0, 0, c)), (0, b))))))
        return tuple(made)


@pytest.mark.parametrize("n", [6, 6 * 10**9])
def test_a_kind_from_outside_is_compared_and_simplified(n: int) -> None:
    A = allocate((n, n), name="A")
    assert A.apply(Snake()).apply(Snake()) == A and A.apply(Snake()) != A
    assert interleave([A[0::2], A[1::2, ::-1]]) == A.apply(Snake())
    assert kinds_in(A.apply(Snake()).T.T.simplify()) == 1
    assert A.apply(Snake()).apply(Snake()).simplify() is A


class Scrambled:
    """Cell k of n reads cell k·7919 mod n: no few patches, so that it is memory to what reads it."""

    def out_shape(self, shapes: tuple[tuple[int, ...], ...]) -> tuple[int, ...]:
        return shapes[0]

    def pieces(self, shapes: tuple[tuple[int, ...], ...]) -> tuple[Piece, ...]:
        (n,) = shapes[0]
        steps = (AffineMap(((7919,),), (0,)), Relinearize((n * n,), (n, n)), AffineMap(((0, 1),), (0,)))
        return (Piece(0, (), IndexMap(steps)),)


def test_views_of_no_few_patches_stand_for_themselves() -> None:
    A = allocate((100_003,), name="A")
    one = A.apply(Scrambled())
    assert one == one[:] and one.reshape(1, -1)[0] == one and one != one[::-1]
    assert one[1:][1:].simplify() == one[2:] and kinds_in(one[1:][1:][1:].simplify()) == 2
    B = allocate((11,), name="B")
    assert B.apply(Scrambled()) == B.apply(Scrambled())
    assert values(B.apply(Scrambled()).simplify(), B).tolist() == [1 + k * 7919 % 11 for k in range(11)]


def test_isl_decides_where_patches_do_not() -> None:
    pytest.importorskip("islpy")
    A = allocate((30_011,), name="A")
    one, two = A.apply(Scrambled()), A.apply(Scrambled())
    assert one != two  # not known without isl
    assert one.same_view(two) and not one.same_view(two[::-1])


# -------------------------------------------------------------------- the behaviors of poprithms' chain tests


def zeros(shape: tuple[int, ...]) -> View:
    size = int(np.prod(shape, dtype=object))
    return pad(allocate((0,)), (0, size)).reshape(shape)


def masked(view: View, region: Region) -> View:
    """The view with 0 outside a region."""
    return view.sample(region).fill_into(region, zeros(view.shape))


def test_canonicalize() -> None:
    """Cyclic permutations around reshapes: the identity after all."""
    A = allocate((4, 5, 6, 7), name="A")
    chain = A.permute_dims((1, 2, 3, 0)).permute_dims((1, 2, 3, 0)).reshape(20 * 42 // 20, 20).reshape(6, 7, 4, 5)
    assert chain.permute_dims((1, 2, 3, 0)).permute_dims((1, 2, 3, 0)) == A
    assert chain.permute_dims((1, 2, 3, 0)).permute_dims((1, 2, 3, 0)).simplify() is A


def test_map_to_empty() -> None:
    """What two disjoint masks leave is constant, whatever was under them."""
    A = allocate((10,), name="A")
    evens, odds = Region((10,), [Stripe(1, 1)]), Region((10,), [Stripe(1, 1, 1)])
    both = masked(masked(A, evens), odds)
    assert both == zeros((10,)) and kinds_in(both.simplify()) <= 2 and both.cells == {}


def test_rubix_twist() -> None:
    A = allocate((2, 3), name="A")
    assert A.flip(0).T.flip(1).T == A and A.flip(0).T.flip(1).T.simplify() is A


def test_reverse_goes_past_permutations() -> None:
    A = allocate((2, 3, 5, 7), name="A")
    assert A.flip(0).permute_dims((1, 2, 3, 0)) == A.permute_dims((1, 2, 3, 0)).flip(3)
    B = allocate((2, 3, 5), name="B")
    assert B.flip((0, 1)).permute_dims((1, 2, 0)) == B.permute_dims((1, 2, 0)).flip((0, 2))
    C = allocate((20, 30, 50), name="C")
    sliced = C[:15, :25, :45].permute_dims((1, 2, 0))
    assert sliced == C.permute_dims((1, 2, 0))[:25, :45, :15] and kinds_in(sliced.simplify()) == 2
    D = allocate((10,), name="D")
    assert D[7:10].flip() == D.flip()[:3] and kinds_in(D[7:10].flip().simplify()) == 1


def test_redundant_sample_and_fill() -> None:
    """Sampling a fill by a region that holds it, and filling back, changes nothing; by another region it does."""
    A = allocate((5,), name="A")
    r0, r1, r2 = (Region((15,), [Stripe(on, 15 - on, phase)]) for on, phase in ((5, 5), (3, 6), (7, 4)))
    filled = A.fill_into(r0, zeros((15,)))
    assert masked(filled, r2) == filled and masked(filled, r1) != filled
    assert kinds_in(masked(masked(filled, r2), r2).simplify()) <= 2
    B = allocate((2,), name="B")
    short = B.fill_into(Region((5,), [Stripe(2, 3)]), zeros((5,)))
    assert masked(short, Region((5,), [Stripe(3, 2, 4)])) == short


@given(st.data(), views(length=3))
def test_a_sample_of_a_fill_gives_the_filled_view_back(data: st.DataObject, pair: tuple[View, np.ndarray]) -> None:
    view, _ = pair
    region = data.draw(regions_of(tuple(n + data.draw(st.integers(0, 3)) for n in view.shape)))
    if region.counts != view.shape:
        return
    assert view.fill_into(region, zeros(region.shape)).sample(region) == view


def test_expand_goes_past_what_does_not_mix_with_it() -> None:
    A = allocate((3,), name="A").reshape(1, 3)
    assert A.T.broadcast_to((3, 2)) == A.broadcast_to((2, 3)).T
    B = allocate((4, 1, 5, 1), name="B")
    twice = B.broadcast_to((4, 1, 5, 8)).broadcast_to((4, 7, 5, 8)).flip((0, 2, 3))
    assert B.flip((0, 3, 2)).broadcast_to((4, 7, 5, 8)) == twice
    C = allocate((5, 1, 7, 2), name="C")
    assert C[:, :, :3].broadcast_to((5, 8, 3, 2)) == C.broadcast_to((5, 8, 7, 2))[:, :, :3]
    D = allocate((2, 3, 1, 4, 5, 1), name="D")
    late = D.reshape(3, 2, 1, 2, 10, 1).broadcast_to((3, 2, 99, 2, 10, 98))
    assert late == D.broadcast_to((2, 3, 99, 4, 5, 98)).reshape(3, 2, 99, 2, 10, 98)
    E = allocate((7, 1), name="E")
    narrow, wide = Region((10, 1), [Stripe(7, 3, 1), Sett()]), Region((10, 4), [Stripe(7, 3, 1), Sett()])
    filled = E.fill_into(narrow, zeros((10, 1))).broadcast_to((10, 4))
    assert filled == E.broadcast_to((7, 4)).fill_into(wide, zeros((10, 4)))


def test_a_longer_chain_of_single_cells() -> None:
    """A target that poprithms' own passes leave open."""
    A = allocate((20, 100, 100), name="A")
    one = A[:1, :1, :1].reshape(()).broadcast_to((1, 100, 100)).reshape(100, 100)[:1, :1]
    chain = one.reshape(()).broadcast_to((100, 100))
    assert chain == A[:1, :1, :1].reshape(1, 1).broadcast_to((100, 100)) and kinds_in(chain.simplify()) == 2


def test_resize_by_whatever_way() -> None:
    """Upsampling with the axis rolled to the back first, and other detours; the last one poprithms leaves open."""
    A = allocate((2, 3, 5, 7), name="A")
    rolled = A.permute_dims((0, 2, 3, 1)).reshape(2, 5, 7, 3, 1).broadcast_to((2, 5, 7, 3, 10)).reshape(2, 5, 7, 30)
    direct = A.reshape(2, 3, 1, 5, 7).broadcast_to((2, 3, 10, 5, 7)).reshape(2, 30, 5, 7)
    assert rolled.permute_dims((0, 3, 1, 2)) == direct == repeat(A, 10, 1)
    assert kinds_in(rolled.permute_dims((0, 3, 1, 2)).simplify()) <= 3
    B = allocate((2, 3, 5), name="B")
    assert B.permute_dims((1, 2, 0)).reshape(1, 30) == B.permute_dims((1, 2, 0)).reshape(30, 1).T
    back = B.permute_dims((0, 2, 1)).reshape(2, 5, 3, 1).broadcast_to((2, 5, 3, 7)).reshape(2, 5, 21)
    assert back.permute_dims((0, 2, 1)).reshape(2, 3, 7, 5) == B.reshape(2, 3, 1, 5).broadcast_to((2, 3, 7, 5))
    open_one = A.permute_dims((1, 2, 3, 0)).reshape(210, 1).broadcast_to((210, 11)).reshape(105, 22).T
    assert open_one.reshape(2, 11, 3, 5, 7) == A.reshape(2, 1, 3, 5, 7).broadcast_to((2, 11, 3, 5, 7))


def test_neighbors_of_one_type_merge() -> None:
    A = allocate((12, 13), name="A")
    chain = A[1:11, 2:12].reshape(5, 20).reshape(20, 5).reshape(1, 1, 100)
    assert chain == A[1:11, 2:12].reshape(1, 1, 100) and kinds_in(chain.simplify()) == 2
    B = allocate((2, 3, 5), name="B")
    flips = B.flip((1, 2)).flip((0, 1)).flip((0, 1, 2)).flip(1).flip(0)
    assert flips == B.flip(0) and kinds_in(flips.simplify()) == 1
    C = allocate((100,), name="C")
    assert C[10:90][::2] == C.sample(Sett(Stripe(80, 20, 10), Stripe(1, 1))) == C[10:90:2]
    D = allocate((97,), name="D")
    assert D[::2][::3][::5] == D[::30] and kinds_in(D[::2][::3][::5].simplify()) == 1
    E = allocate((3400,), name="E")
    twice = E.sample(Stripe(100, 100)).sample(Stripe(19, 6))
    assert twice == E.sample(Sett(Stripe(100, 100), Stripe(19, 6)))


def test_fills_merge_or_stay() -> None:
    A = allocate((10,), name="A")

    def spread(view: View, by: int) -> View:
        n = view.shape[0] * by
        return view.fill_into(Region((n,), [Stripe(1, by - 1)]), zeros((n,)))

    assert spread(spread(spread(A, 2), 3), 5) == spread(A, 30)
    B = allocate((70,), name="B")
    first = B.fill_into(Region((180,), [Stripe(7, 11)]), zeros((180,)))
    n = 180 // 13 * 30 + 180 % 13
    r1 = Region((n,), [Stripe(13, 17)])
    both = first.fill_into(r1, zeros((n,)))
    assert both.sample(r1) == first and both.sample(r1).sample(Region((180,), [Stripe(7, 11)])) == B
    mirrored = B.flip().fill_into(Region((180,), [Stripe(7, 11, 11)]), zeros((180,)))
    assert first.flip() == mirrored


@pytest.mark.parametrize(
    ("shape", "upper", "out", "between"),
    [
        ((5, 7, 9), (2, 2, 9), (2, 2, 3, 3), (5, 7, 3, 3)),
        ((5, 7, 9), (5, 7, 9), (5, 1, 7, 1, 3, 3), (5, 1, 7, 1, 3, 3)),
        ((), (), (1, 1), (1, 1)),
        ((5, 6, 7, 8), (1, 2, 7, 8), (1, 2, 4, 2, 7), (5, 6, 4, 2, 7)),
        ((8, 9), (8, 1), (4, 2, 1), (4, 2, 9)),
        ((7, 8, 9), (7, 8, 1), (4, 2, 7, 1), (4, 2, 7, 9)),
        ((6, 7, 8, 9), (2, 7, 8, 1), (2, 4, 2, 7, 1), (6, 4, 2, 7, 9)),
        ((3,), (1,), (1, 1, 1), (3, 1, 1)),
    ],
)
def test_a_reshape_goes_past_a_slice(
    shape: tuple[int, ...], upper: tuple[int, ...], out: tuple[int, ...], between: tuple[int, ...]
) -> None:
    A = allocate(shape, name="A")
    sliced = A[tuple(slice(0, n) for n in upper)].reshape(out)
    assert sliced == A.reshape(between)[tuple(slice(0, n) for n in out)]
    assert kinds_in(sliced.simplify()) <= 2


@pytest.mark.parametrize(
    ("shape", "upper", "out"),
    [
        ((20, 100, 100), (1, 1, 1), ()),
        ((20, 100, 100), (1, 1, 10), (1, 10)),
        ((3, 4), (1, 4), (2, 1, 2)),
        ((4, 4, 4), (4, 1, 4), (8, 1, 2)),
        ((4, 4, 4), (4, 1, 4), (2, 2, 2, 1, 2)),
    ],
)
def test_a_reshape_of_a_slice_is_short_where_they_do_not_swap(
    shape: tuple[int, ...], upper: tuple[int, ...], out: tuple[int, ...]
) -> None:
    A = allocate(shape, name="A")
    chain = A[tuple(slice(0, n) for n in upper)].reshape(out)
    assert kinds_in(chain.simplify()) <= 2
    np.testing.assert_array_equal(
        values(chain, A), values(A, A)[tuple(slice(0, n) for n in upper)].reshape(out)
    ) if A.size < 1000 else None


def test_the_mirror_of_a_chain() -> None:
    """A reshape, a permutation, a reversal and a sample, and what the mirror makes of the sample's cells."""
    A = allocate((10, 20, 30), name="A")
    bijection = A.reshape(5, 10, 120).permute_dims((1, 2, 0)).flip(2)
    region = Region((10, 120, 5), [Stripe(1, 1), Stripe(1, 1), Sett()])
    chain = bijection.sample(region)
    found = bijection.preimage(chain.origins())
    assert found.same_points(DisjointRegions((10, 120, 5), (region,)))
    (piece,) = bijection.pieces
    for at in ((0, 0, 0), (9, 119, 4), (3, 77, 2)):
        assert invert(piece.map, piece.map.apply(at)) == at
    assert chain.preimage(Region.full((10, 20, 30))).size == chain.size


def test_a_sample_is_slices_and_reshapes() -> None:
    """Two of every five rows by slices, reshapes and concatenations alone."""
    A = allocate((17, 13), name="A")
    region = Region((17, 13), [Sett(Stripe(2, 3)), Sett(Stripe(5, 2), Stripe(1, 1))])
    rows = concatenate([A[:15].reshape(3, 5, 13)[:, :2].reshape(6, 13), A[15:17]])
    assert A.sample(region) == concatenate([rows[:, k : k + 5 : 2] for k in (0, 7)], 1)


def test_identities_go() -> None:
    A = allocate((10, 20), name="A")
    chain = A.reshape(10, 20).broadcast_to((10, 20)).permute_dims((0, 1)).flip(())[:10, :20]
    assert chain == A and chain.simplify() is A and chain != allocate((20, 20)) and chain != A.reshape(20, 10)


def test_simplified_chains_do_the_same_to_memory() -> None:
    rng = np.random.default_rng(0)
    A, x = allocate((10, 10), name="A"), rng.integers(1, 99, (10, 10))
    chain = A.flip((0, 1))[2:9, 4:8].flatten()[::2]
    np.testing.assert_array_equal(read_view(chain.simplify(), {A: x}), np.flip(x)[2:9, 4:8].reshape(-1)[::2])
    B, y = allocate((7, 8), name="B"), rng.integers(1, 99, (7, 8))
    other = B[1:6, 1:7].reshape(6, 5).broadcast_to((2, 6, 5)).flip(1).permute_dims((1, 2, 0)).flatten()[::2]
    expected = np.broadcast_to(y[1:6, 1:7].reshape(6, 5), (2, 6, 5))[:, ::-1].transpose(1, 2, 0).reshape(-1)[::2]
    np.testing.assert_array_equal(read_view(other.simplify(), {B: y}), expected)


def test_the_hash_of_a_long_chain_is_that_of_the_view_it_is() -> None:
    """Also where it goes through cells that are not spelled out."""
    A, B = allocate((6, 8), name="A"), allocate((100_003,), name="B")
    view: View = pad(A, 1)
    opaque: View = B.apply(Scrambled())
    for _ in range(40):
        view, opaque = view.T.flip(0).flip(0).T, opaque[::-1]
    assert hash(view) == hash(pad(A, 1)) and view == pad(A, 1)
    assert hash(opaque) == hash(B.apply(Scrambled()))
