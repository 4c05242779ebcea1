"""What poprithms' alias graph is tested for, and of its regions what concerns views, in tests of our own.

Left its file under ``tests/memory/alias`` (from "region/" on: under ``tests/memory/nest``), right the tests here.

=====================================  =========================================================================
graph/allocate_0                       test_shapes_are_those_allocated
graph/constructors_0                   test_copies_are_equal_until_one_is_changed
graph/dimshuffle_0                     test_a_cycle_of_axes_comes_round
origins/alias_0                        test_fewer_cells_than_places_is_self_overlap, test_two_stripes_side_by_side
origins/contiguous_0                   test_contiguity_is_of_the_set_of_cells, test_a_rotation_is_contiguous
tensor/basic_0                         test_a_long_chain_of_every_kind
tensor/broadcast_0                     test_self_overlap_comes_and_goes_with_slices_of_a_tiling
tensor/clone_0                         test_a_clone_shares_nothing_with_its_pattern, test_clones_share_within_a_clone
tensor/color_0                         test_slices_have_their_memorys_color_and_joins_have_all
tensor/concat_0                        test_joins_along_the_first_and_the_last_axis
tensor/demo_0                          test_the_demonstration
tensor/dimshuffle_0                    test_axes_are_moved
tensor/expand_0                        test_expansion_from_rank_0, test_an_expanded_join_reads_both
tensor/index_0                         test_index_drops_leading_axes, test_indices_that_do_not_fit, test_rows_of_rows
tensor/modify_0                        test_a_join_becomes_memory
tensor/modify_1                        test_a_join_becomes_the_same_as_another, test_joins_to_memory_and_back,
                                       test_memory_becomes_a_join_of_one_tensor_three_times
tensor/modify_2                        test_memory_becomes_any_kind_of_view, test_a_new_view_loses_its_color
tensor/pad_0                           test_padding_is_shared_or_distinct
tensor/reshape_0                       test_slices_across_a_reshaped_join, test_samples_of_a_reshaped_join
tensor/reverse_0                       test_mirrors, test_an_axis_named_twice_is_refused
tensor/settfill_0                      test_four_tensors_interleaved
tensor/slice_0                         test_slices_put_together_in_another_order
tensor/slices_0                        test_slices_do_not_meet, test_odd_and_even_cells_put_together
tensor/subscript_0                     test_one_row
tensor/upsample_0                      test_repeated_cells_are_aliases, test_shapes_of_repetitions
util/jitter_0                          test_a_graph_grows_only_by_what_is_asked_for
region/settsample_0, region/slice_0    test_samples_of_samples
region/expand_0                        test_expanded_parts_cover_what_the_whole_covers
region/reshape_0, reshape_random_0     test_regions_under_reshapes, test_reshapes_there_and_back
region/permute_0, region/reverse_0     test_regions_under_permutations_and_mirrors
region/sett_operations_random_0        test_sampling_and_filling_are_inverse
=====================================  =========================================================================

Where poprithms is known to be wrong, the right answer is asked for: a rotation is contiguous as a set, and an axis
that is to be reversed twice is refused, as NumPy does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapestry_sets import (
    AliasGraph,
    AliasTensor,
    DisjointRegions,
    Region,
    Sett,
    Stripe,
    concatenate,
    fill_into,
    repeat,
    stack,
    tile,
)
from tapestry_sets.views import Broadcast, Concat, Flip, PermuteDims, Reshape, Sample
from tests.strategies import factorizations, regions_in_one_box

ALL = Sett()


def aliases(g: AliasGraph) -> dict[int, set[int]]:
    """The whole map, by number."""
    return {t.id: {u.id for u in them} for t, them in g.all_aliases().items()}


def rows(regions: Region | DisjointRegions) -> list[str]:
    """A set of rank 2 drawn row by row."""
    cells = np.full(regions.shape, ".")
    cells[tuple(regions.points().T)] = "1"
    return ["".join(row) for row in cells]


# -------------------------------------------------------------------------------------------------------- graph


def test_shapes_are_those_allocated() -> None:
    g = AliasGraph()
    for n in range(10):
        t = g.allocate((n, n))
        assert t.shape == g[t.id].shape == (n, n) and t.size == n * n and t.id == n
    assert aliases(g) == {0: set(), **{n: {n} for n in range(1, 10)}}  # without cells, nothing is shared


def test_copies_are_equal_until_one_is_changed() -> None:
    def build(axes: tuple[int, int]) -> AliasGraph:
        g = AliasGraph()
        a = g.allocate((200,))
        concatenate([a, a, a]).reshape(100, 6).permute_dims(axes).flip(0)
        g.allocate((1, 2, 3))
        return g

    g = build((1, 0))
    h = g.copy()
    assert g == h == h.copy() and g != build((0, 1))
    assert [line.split()[-1] for line in g.table().splitlines()[1:]] == ["0-4"] * 5 + ["5"]
    assert [t.has_internal_overlap() for t in g] == [False, True, True, True, True, False]
    h[5].flip(0)
    assert g != h and len(g) == 6
    assert g.table().splitlines() == [
        "id  name  kind                 ins      shape      outs  color  self-overlap  aliased to",
        "0         allocation                    (200,)     1     0      no            0-4",
        "1         Concat(0)            0, 0, 0  (600,)     2            yes           0-4",
        "2         Reshape((100, 6))    1        (100, 6)   3            yes           0-4",
        "3         PermuteDims((1, 0))  2        (6, 100)   4            yes           0-4",
        "4         Flip((0,))           3        (6, 100)                yes           0-4",
        "5         allocation                    (1, 2, 3)        0      no            5",
    ]
    assert h.table().splitlines()[-1].startswith("6         Flip((0,))")


def test_a_cycle_of_axes_comes_round() -> None:
    g = AliasGraph()
    t = a = g.allocate(range(1, 8))
    for k in range(1, 36):
        t = t.permute_dims((1, 2, 3, 4, 5, 6, 0))
        assert (t.shape == a.shape) == (k % 7 == 0)
    assert t.view.pieces == a[...].view.pieces and len(t.view.pieces[0].map.steps) == 0
    assert t.permute_dims((1, 2, 3, 4, 5, 6, 0)).shape == (2, 3, 4, 5, 6, 7, 1)


# ------------------------------------------------------------------------------------------------------ origins


def test_fewer_cells_than_places_is_self_overlap() -> None:
    """Eleven cells of one allocation and four of another, twice, fill 19 places of a tensor; a last cell its 20."""
    g = AliasGraph()
    first, second, third = g.allocate((11, 1)), g.allocate((1, 2, 2)), g.allocate((1, 1, 1, 1))
    t = concatenate([x.ravel() for x in (first, second, second)])
    assert t.size == 19 and t.has_internal_overlap()
    t = concatenate([t, third.ravel()]).reshape(10, 2)
    assert t.has_internal_overlap() and set(t.origins()) == {first, second, third}
    assert {u.id: regions.size for u, regions in t.origins().items()} == {0: 11, 1: 4, 2: 1}
    distinct = concatenate([first.ravel(), second.ravel(), third.ravel()])
    assert not distinct.has_internal_overlap() and distinct.contains(t)


def test_two_stripes_side_by_side() -> None:
    g = AliasGraph()
    a = g.allocate((2, 16))
    both = concatenate([a.sample([Stripe(1, 1), ALL]), a.sample([Stripe(1, 1, 1), ALL])]).reshape(8, 4)
    assert not both.has_internal_overlap() and both.origins()[a].is_full


def test_contiguity_is_of_the_set_of_cells() -> None:
    g = AliasGraph()
    a = g.allocate((20, 1)).broadcast_to((20, 10)).reshape(10, 20)
    assert a.has_internal_overlap()  # poprithms calls contiguous only what has no self-overlap besides
    b = g.allocate((25, 8))
    assert b.reshape(100, 2).is_contiguous() and b.T.is_contiguous() and b.flip().is_contiguous()
    c = g.allocate((1, 1, 200))
    assert concatenate([c[..., ::2], c[..., 1::2]], 2).reshape(100, 2).is_contiguous()
    assert not c[..., ::2].is_contiguous()
    d = g.allocate((1, 1, 1, 300))
    pairs = concatenate([d[..., 0::3], d[..., 1::3]], 3).reshape(100, 2)
    assert not pairs.is_contiguous() and pairs.origins()[d].size == 200
    e = g.allocate((1000, 5))
    band = e.sample([Stripe(20, 980, 400), ALL])
    assert band.reshape(10, 10).is_contiguous() and band.T.is_contiguous()
    f = g.allocate((50, 4))
    assert not f.sample([ALL, Stripe(2, 2)]).is_contiguous() and f[10:20].is_contiguous()
    assert not concatenate([b.ravel(), f.ravel()]).is_contiguous()  # of two allocations


def test_a_rotation_is_contiguous() -> None:
    g = AliasGraph()
    a = g.allocate((15,), name="a")
    assert concatenate([a[5:10], a[0:5]]).is_contiguous()
    assert not concatenate([a[5:10], a[0:4]]).is_contiguous()
    assert not concatenate([a[6:10], a[0:5]]).is_contiguous()


# ------------------------------------------------------------------------------------------------- tensors: kinds


def test_a_long_chain_of_every_kind() -> None:
    """Slices, joins, reshapes, permutations, mirrors, expansions and samples: sizes, and who reads what."""
    g = AliasGraph()
    a = g.allocate((2, 3, 4), name="a")
    inner = a[0:2, 1:3, 1:3]
    t = concatenate([inner, inner], 2)
    t = concatenate([t, t], 0)
    t = concatenate([t, t], 1).ravel()
    t = t.reshape(t.size, 1).permute_dims((1, 0)).flip(0)
    assert t.shape == (1, 64)
    t = t.broadcast_to((10, 64)).sample([Stripe(1, 1), Stripe(1, 1)])
    more = [g.allocate(t.shape) for _ in range(3)]
    wide = concatenate([more[0], more[1], t, more[2]], 1)
    wide = tile(wide[None], (3, 1, 1)).reshape(15, 128)[::3].ravel()
    out = concatenate([t.ravel(), wide])
    assert out.size == 800
    assert out.same_elements(concatenate([inner[..., ::2].ravel(), *(m.ravel() for m in more)]))
    assert out.overlap(a).size == 4 and [m.overlap(out).size for m in more] == [160] * 3
    assert out.has_internal_overlap() and not inner.has_internal_overlap()
    halves = [Region.from_bounds((4, 3, 4), (lo, 0, 0), (lo + 2, 3, 4)) for lo in (0, 2)]
    assert fill_into(halves, [a, a]).same_elements(a)


def test_self_overlap_comes_and_goes_with_slices_of_a_tiling() -> None:
    g = AliasGraph()
    a = g.allocate((5, 10, 15))
    tiled = tile(a, (6, 3, 2))
    assert tiled.shape == (30, 30, 30) and tiled.has_internal_overlap() and tiled.same_elements(a)
    for corner in (0, 1, 7):  # a window of one period has each cell once, wherever it stands
        window = tiled[corner : corner + 5, corner : corner + 10, corner : corner + 15]
        assert window.shape == a.shape and not window.has_internal_overlap() and window.same_elements(a)
    for start, stop in ((1, 11), (7, 13)):  # more than a period of 5
        column = tiled[start:stop, 1:2, 1:2]
        assert column.shape == (stop - start, 1, 1) and column.has_internal_overlap()
        assert column.overlap(a).size == 5
    assert not tiled[7:12, 1:2, 1:2].has_internal_overlap()


def test_joins_along_the_first_and_the_last_axis() -> None:
    for one, two, first, last in (
        ((3,), (4,), (7,), (7,)),
        ((3, 1), (4, 1), (7, 1), None),
        ((3, 1, 2), (4, 1, 2), (7, 1, 2), None),
        ((3, 4), (3, 5), None, (3, 9)),
        ((3, 1, 2), (3, 1, 4), None, (3, 1, 6)),
    ):
        g = AliasGraph()
        a, b = g.allocate(one), g.allocate(two)
        for axis, shape in ((0, first), (-1, last)):
            if shape is not None:
                joined = concatenate([a, b], axis)
                assert joined.shape == shape and joined.contains(a) and joined.contains(b)
            else:
                with pytest.raises(ValueError, match="they must agree except on axis"):
                    concatenate([a, b], axis)
        assert not a.overlaps(b)


def test_axes_are_moved() -> None:
    g = AliasGraph()
    a = g.allocate((4, 3, 2))
    t = a.permute_dims((1, 2, 0))
    assert t.shape == (3, 2, 4)
    assert t[1].same_elements(a[:, 1]) and t[:, :, 3].same_elements(a[3]) and not t[0].overlaps(a[:, 1])


def test_expansion_from_rank_0() -> None:
    g = AliasGraph()
    scalar = g.allocate(())
    wide = scalar.broadcast_to((1,)).broadcast_to((1, 1, 1)).broadcast_to((5, 4, 3, 2, 1))
    row = g.allocate((1, 4, 3, 2, 1))
    out = concatenate([wide, wide, row, row.broadcast_to((4, 4, 3, 2, 1))])
    assert out.shape == (15, 4, 3, 2, 1)
    assert aliases(g) == {
        **{i: {0, 1, 2, 3, 6} for i in range(4)},
        **{i: {4, 5, 6} for i in (4, 5)},
        6: set(range(7)),
    }
    assert [t.has_internal_overlap() for t in g] == [False, False, False, True, False, True, True]


def test_an_expanded_join_reads_both() -> None:
    g = AliasGraph()
    a, b = g.allocate((1,)), g.allocate((1,))
    wide = concatenate([a, b]).broadcast_to((4, 3, 2))
    assert wide.overlaps(a) and wide.overlaps(b) and wide.has_internal_overlap()
    assert not wide[..., :1].overlaps(b) and not wide[0, 0].has_internal_overlap()


def test_index_drops_leading_axes() -> None:
    for shape, at, expected in (
        ((2, 2, 2, 2), (1, 1), (2, 2)),
        ((1, 2, 3, 4), (0, 1), (3, 4)),
        ((1,) * 8, (0,) * 4, (1,) * 4),
        ((1,), (0,), ()),
        ((1, 2, 3), (0, 0, 0), ()),
        ((), (), ()),
        ((5, 3, 1), (3,), (3, 1)),
    ):
        assert AliasGraph().allocate(shape)[at].shape == expected


@pytest.mark.parametrize(("shape", "at"), [((1, 2), (0, 0, 0)), ((1, 1), (3,)), ((), (0,)), ((2, 2), (3,))])
def test_indices_that_do_not_fit(shape: tuple[int, ...], at: tuple[int, ...]) -> None:
    g = AliasGraph()
    with pytest.raises(IndexError):
        g.allocate(shape)[at]
    assert len(g) == 1


def test_rows_of_rows() -> None:
    a = AliasGraph().allocate((2, 3, 4, 5))
    for i in range(2):
        for j in range(2):
            assert a[(i,)].overlaps(a[j]) == (i == j) and a[(i,)].same_elements(a[j]) == (i == j)
    assert a[0, 0].same_elements(a[0][0]) and a[0].contains(a[0, 0]) and not a[0, 0].contains(a[0])
    assert a[0, 0].overlap(a[0]).size == 20 and not a[0, 0].overlaps(a[0][1])


def test_one_row() -> None:
    for shape, i, expected in (
        ((2, 2, 2), 1, (2, 2)),
        ((1, 2, 3), 0, (2, 3)),
        ((5, 3, 1), 3, (3, 1)),
        ((5,), 2, ()),
        ((1, 2, 3, 4), 0, (2, 3, 4)),
    ):
        a = AliasGraph().allocate(shape)
        assert a[i].shape == expected and a[i].same_elements(a[i : i + 1])


def test_slices_across_a_reshaped_join() -> None:
    g = AliasGraph()
    parts = [g.allocate((300, 100)) for _ in range(3)]
    t = concatenate(parts, 1)[30:280, 20:270].reshape(125, 5, 100)
    twice = concatenate([t, t], 1)
    assert [twice.overlap(part).size for part in parts] == [250 * n for n in (80, 100, 70)]
    assert twice.has_internal_overlap() and not t.has_internal_overlap()


def test_samples_of_a_reshaped_join() -> None:
    """Columns 0, 0, 1, 1, 1, 2 five times in a row: three stripes choose the three allocations."""
    g = AliasGraph()
    parts = [g.allocate((10, n)) for n in (2, 3, 1)]
    t = concatenate(parts, 1).reshape(2, 30)[:, 0:18]
    chosen = [t.sample([ALL, stripe]) for stripe in (Stripe(2, 4, 0), Stripe(3, 3, 2), Stripe(1, 5, 5))]
    for i, part in enumerate(parts):
        for j, sample in enumerate(chosen):
            assert part.overlaps(sample) == (i == j)
            assert part.overlap(sample).size == (6 * part.shape[1] if i == j else 0)


def test_mirrors() -> None:
    g = AliasGraph()
    a = g.allocate((10, 20, 30))
    upper, mirrored = a[:5], a.flip(0)[:5]
    assert not upper.overlaps(mirrored) and mirrored.same_elements(a[5:])
    assert upper.overlaps(a.flip(0)[3:6]) and upper.overlap(a.flip(0)[3:6]).size == 600
    assert a.flip(1).contains(mirrored) and a.flip(1).same_elements(a)
    odd = a.flip()[1:, 1:, 1:][::2, ::2, ::2]
    even = a[::2, ::2, ::2]
    assert odd.overlaps(even) and odd.same_elements(even)  # axes of even extents: both have the even places


def test_an_axis_named_twice_is_refused() -> None:
    with pytest.raises(ValueError, match=r"axes \(0, 0\) name an axis twice"):
        AliasGraph().allocate((3, 4)).flip((0, 0))


def test_four_tensors_interleaved() -> None:
    """
    0000
    0000
    1212
    3333
    1212
    3333
    """
    g = AliasGraph()
    parts = [g.allocate(shape) for shape in ((2, 4), (2, 2), (2, 2), (2, 4))]
    every, columns = Sett(Stripe(4, 0)), [Stripe(1, 1, k) for k in range(2)]
    two = Sett(Stripe(4, 2, 2), Stripe(1, 1))
    places = [
        Region((6, 4), [Stripe(2, 4), every]),
        Region((6, 4), [two, columns[0]]),
        Region((6, 4), [two, columns[1]]),
        Region((6, 4), [Sett(Stripe(3, 3, 3), Stripe(1, 1)), every]),
    ]
    filled = fill_into(places, parts)
    assert filled.shape == (6, 4) and filled.aliases() == (*parts, filled) and not filled.has_internal_overlap()
    part = filled.sample(places[2])
    assert part.aliases() == (parts[2], filled, part) and part.same_elements(parts[2])
    picture = np.array([list(row) for row in ("0000", "0000", "1212", "3333", "1212", "3333")], int)
    order = [2, 0, 1, 3]
    other = fill_into([places[k] for k in order], [parts[k] for k in order])
    for i in range(6):
        for j in range(4):
            cell = filled[i : i + 1, j : j + 1]
            assert cell.same_elements(other[i : i + 1, j : j + 1])
            assert [p.overlaps(cell) for p in parts] == [k == picture[i, j] for k in range(4)]


def test_slices_put_together_in_another_order() -> None:
    g = AliasGraph()
    parts = g.allocate((50,)).reshape(5, 10)
    cut = [parts[i] for i in range(5)]
    order = [1, 2, 3, 0, 4]
    one, two = concatenate([cut[i] for i in order]), stack([cut[i] for i in order]).ravel()
    for i, k in enumerate(order):
        at = slice(10 * i, 10 * i + 10)
        assert one[at].same_elements(two[at]) and one[at].same_elements(cut[k])
        assert one[at].overlaps(cut[i]) == (i == k)


def test_slices_do_not_meet() -> None:
    g = AliasGraph()
    a = g.allocate((50,))
    cut = [a[5 * i : 5 * i + 5] for i in range(10)]
    assert all(cut[i].overlaps(cut[j]) == (i == j) for i in range(10) for j in range(10))
    with pytest.raises(IndexError, match="too many indices"):
        a[:, 0:5]
    assert aliases(g)[0] == set(range(11))


def test_odd_and_even_cells_put_together() -> None:
    g = AliasGraph()
    a = g.allocate((50,))
    odd, even = (concatenate([a[i : i + 1] for i in range(k, 50, 2)]) for k in (1, 0))
    assert odd.shape == even.shape == (25,) and not odd.overlaps(even)
    assert odd.same_elements(a[1::2]) and even.same_elements(a[::2])
    with pytest.raises(ValueError, match="axis 1 is out of range"):
        concatenate([a[:1], a[2:3]], 1)


def test_repeated_cells_are_aliases() -> None:
    g = AliasGraph()
    t = repeat(g.allocate((2,)), 2, 0)
    assert t.shape == (4,) and t.has_internal_overlap()
    for i in range(4):
        for j in range(4):
            assert t[i].overlaps(t[j]) == (i // 2 == j // 2)
    assert not t[1:3].has_internal_overlap() and t[1:].has_internal_overlap()


def test_shapes_of_repetitions() -> None:
    for shape, count, axis, expected in (
        ((2, 2), 3, 0, (6, 2)),
        ((2, 2), 3, 1, (2, 6)),
        ((2, 2, 2), 5, 2, (2, 2, 10)),
        ((2, 2), 1, 0, (2, 2)),
        ((2, 2), 1, 1, (2, 2)),
        ((2,), 0, 0, (0,)),
        ((2, 2), 0, 0, (0, 2)),
        ((2, 2), 0, 1, (2, 0)),
    ):
        t = repeat(AliasGraph().allocate(shape), count, axis)
        assert t.shape == expected and t.has_internal_overlap() == (count > 1)
    for shape, axis in (((2, 2), 4), ((), 0), ((), 4)):
        with pytest.raises(ValueError, match="axis"):
            repeat(AliasGraph().allocate(shape), 1, axis)


# -------------------------------------------------------------------------------------- clones, colors, padding


def test_a_clone_shares_nothing_with_its_pattern() -> None:
    g = AliasGraph()
    t = g.allocate((50, 50))[5:45, 5:45].ravel().reshape(20, 80).T
    u = t.clone()
    assert not u.overlaps(t) and u.shape == t.shape and len(g) == 10
    assert [type(a.kind) for a in list(g)[:5]] == [type(a.kind) for a in list(g)[5:]]
    assert u.origins()[g[5]].bounds() == t.origins()[g[0]].bounds() == ((5, 5), (45, 45))


def test_clones_share_within_a_clone() -> None:
    g = AliasGraph()
    parts = [g.allocate((10, 10)) for _ in range(3)]
    out = concatenate(parts).reshape(5, 60)
    clone, alone = out.clone(), parts[0].clone()
    assert {t.id for t in clone.aliases()} == set(range(5, 10))
    assert not clone.overlaps(alone) and not clone.overlaps(out) and alone.aliases() == (alone,)
    assert aliases(g) == {
        **{k: {k, 3, 4} for k in range(3)},
        **{k: set(range(5)) for k in (3, 4)},
        **{k: {k, 8, 9} for k in range(5, 8)},
        **{k: set(range(5, 10)) for k in (8, 9)},
        10: {10},
    }


def test_slices_have_their_memorys_color_and_joins_have_all() -> None:
    g = AliasGraph()
    sliced = g.allocate((50,), color=7)[7:17]
    assert sliced.has_color(7) and not sliced.has_color(5)
    both = concatenate([sliced, g.allocate((50,), color=10)])
    assert [both.has_color(c) for c in (5, 7, 10)] == [False, True, True]
    assert both[:10].colors() == {7} and both[10:].colors() == {10} and both[:0].colors() == set()
    assert both.clone().colors() == {7, 10} and both.clone(color=3).colors() == {3}


def test_padding_is_shared_or_distinct() -> None:
    black, red, white = "black", "red", "white"
    g = AliasGraph()
    a = g.allocate((5, 5), color=black)
    distinct = g.pad(a, ((1, 2), (1, 3)), color=red, shared=False)
    assert distinct.shape == (8, 9) and not distinct.has_internal_overlap() and distinct.colors() == {black, red}
    assert sum(regions.size for regions in distinct.origins().values()) == 72
    assert distinct[1:6, 1:6].same_elements(a) and distinct[1:6, 1:6].colors() == {black}
    shared = g.pad(a, ((0, 3), (0, 4)), color=white)
    assert shared.shape == (8, 9) and shared.has_internal_overlap() and shared.colors() == {black, white}
    scalar = next(t for t in shared.origins() if t != a)
    assert scalar.shape == () and shared[5:].same_elements(scalar) and shared[:5, :5].same_elements(a)
    assert shared.overlap(distinct).size == 25 and not distinct.overlaps(scalar)
    one = g.pad(a, ((0, 0), (0, 1)))[:1]  # a single cell of padding does not overlap itself
    assert not one.has_internal_overlap() and one.size == 6
    assert g.pad(a, 0) == a and g.pad(a[0, 0], ()).rank == 0


# -------------------------------------------------------------------------------------------------------- edits


def test_a_join_becomes_memory() -> None:
    """
          bar   out0              bar       out0
         /     /                 /         /
      in0 -- both -- out1     in0       both -- out1
      in1 --/                 in1
         \\                      \
          foo                     foo
    """
    g = AliasGraph()
    in0, in1 = g.allocate((3, 5), name="in0"), g.allocate((4, 5), name="in1")
    bar, foo = in0.reshape(5, 3), in1.reshape(20, 1)
    both = concatenate([in0, in1])
    out0, out1 = both.permute_dims((1, 0)), both.ravel()
    left, right, above = {in0.id, bar.id}, {in1.id, foo.id}, {both.id, out0.id, out1.id}
    assert aliases(g) == {
        **dict.fromkeys(left, left | above),
        **dict.fromkeys(right, right | above),
        **dict.fromkeys(above, left | right | above),
    }
    both.to_allocation(color=7)
    parted = {i: part for part in (left, right, above) for i in part}
    assert aliases(g) == parted and out0.has_color(7) and not out0.has_color(0)
    in0.to_allocation(color=11)
    assert aliases(g) == parted and in0.has_color(11) and not in0.has_color(0) and bar.colors() == {11}


def test_a_join_becomes_the_same_as_another() -> None:
    """
      in0 -- src -- out0        in0 -- src -- out0
                                          \
       in1 -- dst -- out1        in1      dst -- out1
             /   \\                            \
      in2 --/    out2           in2 -- foo    out2
         \\- foo
    """
    g = AliasGraph()
    in0 = g.allocate((4, 8))
    src = in0.flip(1)
    out0 = src.ravel()
    in1, in2 = g.allocate((4, 5)), g.allocate((4, 3))
    dst = concatenate([in1, in2], 1)
    out1, foo, out2 = dst.ravel(), in2[:, 0:2], dst.flip(1)
    above, one = {dst.id, out1.id, out2.id}, {in0.id, src.id, out0.id}
    assert aliases(g) == {
        **dict.fromkeys(one, one),
        in1.id: {in1.id} | above,
        **{i: {in2.id, foo.id} | above for i in (in2.id, foo.id)},
        **{i: {in1.id, in2.id, foo.id} | above for i in above},
    }
    dst.to_identity(src)
    assert aliases(g) == {
        **dict.fromkeys(one | above, one | above),
        in1.id: {in1.id},
        **{i: {in2.id, foo.id} for i in (in2.id, foo.id)},
    }
    assert out2[:, 0].same_elements(in0[:, 0]) and in1.outs == () and dst.ins == (src,)


def test_joins_to_memory_and_back() -> None:
    g = AliasGraph()
    xs, ys = [], []
    for i in range(4):
        xs.append(g.allocate((3, 5)))
        if i % 2:
            ys.append(concatenate(xs[-2:]))
    z = concatenate(ys)
    before = g.copy()
    for y in ys:
        y.to_allocation(0)
    cut = g.copy()
    assert cut != before
    assert aliases(g) == {
        **{x.id: {x.id} for x in xs},
        **{y.id: {y.id, z.id} for y in ys},
        z.id: {ys[0].id, ys[1].id, z.id},
    }
    for k, y in enumerate(ys):
        y.to_view(Concat(0), *xs[2 * k : 2 * k + 2])
    assert g == before and aliases(g) == aliases(before)
    for y in ys:
        y.to_allocation(0)
    assert g == cut
    assert all(x.ins == x.outs == () for x in xs)
    assert all(y.ins == () and y.outs == (z,) for y in ys) and z.ins == tuple(ys) and z.outs == ()


def test_memory_becomes_a_join_of_one_tensor_three_times() -> None:
    g, h = AliasGraph(), AliasGraph()
    x, y = g.allocate((2, 3)), g.allocate((6, 3))
    y.to_view(Concat(0), x, x, x)
    assert y.has_internal_overlap() and y.ins == (x, x, x) and x.outs == (y,)
    x = h.allocate((2, 3))
    concatenate([x, x, x])
    assert g == h


def test_a_new_view_loses_its_color() -> None:
    g = AliasGraph()
    a, b = g.allocate((3, 4), color=0), g.allocate((6, 4), color=3)
    b.to_view(Concat(0), a, a)
    assert b.has_internal_overlap() and not b.has_color(3) and b.has_color(0) and b.color is None


def _sampled(g: AliasGraph) -> bool:
    """Two samples of one tensor, of which one was memory before."""
    a, b = g.allocate((10, 10)), g.allocate((5, 5))
    odd = a.sample([Stripe(1, 1, 1), Stripe(1, 1)])
    b.to_view(Sample(Region((10, 10), [Stripe(1, 1), Stripe(1, 1)])), a)
    return b.overlaps(a) and a.overlaps(odd) and not b.overlaps(odd) and b.same_elements(a[::2, ::2])


def _mirrored(g: AliasGraph) -> bool:
    a, b = g.allocate((2,)), g.allocate((2,))
    ends = a[0:1], b[1:2]
    b.to_view(Flip((0,)), a)
    return ends[0].same_elements(ends[1])


def _became(shape: Sequence[int], out: Sequence[int], kind: Any, aliased: bool = False) -> Callable[[AliasGraph], bool]:
    def edit(g: AliasGraph) -> bool:
        a, b = g.allocate(shape), g.allocate(out)
        b.to_view(kind, a)
        return b.same_elements(a) and b.has_internal_overlap() == aliased

    return edit


@pytest.mark.parametrize(
    "edit",
    [
        _sampled,
        _mirrored,
        _became((2, 3, 4), (3, 4, 2), PermuteDims((1, 2, 0))),
        _became((2, 3), (6,), Reshape((6,))),
        _became((2, 1, 1), (2, 6, 11), Broadcast((2, 6, 11)), aliased=True),
    ],
    ids=["sample", "flip", "permute", "reshape", "broadcast"],
)
def test_memory_becomes_any_kind_of_view(edit: Callable[[AliasGraph], bool]) -> None:
    assert edit(AliasGraph())


# ------------------------------------------------------------------------------------------- the demonstration


def test_the_demonstration() -> None:
    """Two tensors side by side, reshaped, under a third; a part of that, turned about both axes and transposed.

    ::

        00011              0001100011   ->   222222
        00011  x 10   ->   0001100011        222222   ->   000022 ... 000022
                           (5 rows under     011000
                           3 rows of 2)      (4 rows)
    """
    g = AliasGraph()
    parts = [g.allocate(shape, name=name) for name, shape in (("a", (10, 3)), ("b", (10, 2)), ("c", (3, 10)))]
    wide = concatenate(parts[:2], 1).reshape(5, 10)
    part = concatenate([parts[2], wide])[1:7, 2:8]
    flat = part.flip().T.ravel()
    assert flat.size == 36 and not flat.has_internal_overlap()
    table = g.table(origins=True).splitlines()
    assert table[:11] == [
        "id  name  kind                                 ins   shape    outs  color  self-overlap  aliased to",
        "0   a     allocation                                 (10, 3)  3     0      no            0, 3-9",
        "1   b     allocation                                 (10, 2)  3     0      no            1, 3-9",
        "2   c     allocation                                 (3, 10)  5     0      no            2, 5-9",
        "3         Concat(1)                            0, 1  (10, 5)  4            no            0, 1, 3-9",
        "4         Reshape((5, 10))                     3     (5, 10)  5            no            0, 1, 3-9",
        "5         Concat(0)                            2, 4  (8, 10)  6            no            0-9",
        "6         Slice(((1, 7, None), (2, 8, None)))  5     (6, 6)   7            no            0-9",
        "7         Flip((0, 1))                         6     (6, 6)   8            no            0-9",
        "8         PermuteDims((1, 0))                  7     (6, 6)   9            no            0-9",
        "9         Reshape((36,))                       8     (36,)                 no            0-9",
    ]
    assert table[13:17] == ["0   [0 a] (10, 3): (Sett(), Sett())", *table[14:16], "3   [0 a] (10, 3): (Sett(), Sett())"]
    assert table[-3][:22] == "9   [0 a] (10, 3): (Se" and table[-1] == (
        "    [2 c] (3, 10): (Sett(Stripe(2, 1, phase=1)), Sett(Stripe(6, 4, phase=2)))"
    )
    memory = np.split(np.arange(80), [30, 50])
    arrays = [m.reshape(p.shape) for m, p in zip(memory, parts, strict=True)]
    joined = np.concatenate([arrays[2], np.concatenate(arrays[:2], 1).reshape(5, 10)])[1:7, 2:8]
    order = np.flip(joined).T.ravel()
    marks = "".join("0" if z < 30 else "1" if z < 50 else "2" for z in order)
    assert marks == "000022000022000022111122111122000022"
    for k, z in enumerate(order.tolist()):
        assert [p.overlaps(flat[k]) for p in parts] == [m == marks[k] for m in "012"]
        owner = int(marks[k])
        found = flat[k].overlap(parts[owner]).witness
        assert found is not None and arrays[owner][found.cell] == z
    assert rows(flat.origins()[parts[0]]) == ["..1", "111"] * 4 + ["..."] * 2
    assert rows(flat.origins()[parts[1]]) == ["11", ".."] * 4 + [".."] * 2
    assert rows(flat.origins()[parts[2]]) == ["." * 10, "..111111..", "..111111.."]


# ------------------------------------------------------------------------------------------------------ growing


class Toy:
    """Another program's tensors: memory without inputs, mirrors of one, joins of several; grown where asked."""

    def __init__(self, outputs: dict[str, list[str]]) -> None:
        names = [*outputs, *(name for outs in outputs.values() for name in outs)]
        self.inputs = {name: [k for k, outs in outputs.items() if name in outs] for name in names}
        self.graph, self.history = AliasGraph(), list[str]()

    def make(self, name: str, ins: tuple[AliasTensor, ...]) -> AliasTensor:
        self.history.append(name)
        if not ins:
            return self.graph.allocate((1,), color=17)
        return ins[0].flip(0) if len(ins) == 1 else concatenate(ins)

    def extend(self, *wanted: str) -> None:
        found = self.graph.grow(wanted, self.inputs.__getitem__, self.make)
        assert [t.name for t in found] == list(wanted)
        for name in self.history:  # each once, and behind what it reads
            at = self.history.index(name)
            assert self.history.count(name) == 1 and all(k in self.history[:at] for k in self.inputs[name])


def test_a_graph_grows_only_by_what_is_asked_for() -> None:
    chain = Toy({"0": ["1"], "1": ["2"], "2": ["3"]})
    chain.extend("1")
    chain.extend("0")
    assert chain.history == ["0", "1"]
    chain.extend("3")
    assert chain.history == ["0", "1", "2", "3"]

    diamond = Toy({"0": ["1", "2", "3"], "1": ["4"], "2": ["4"], "3": ["4"], "5": ["6"]})
    diamond.extend("1", "3")
    assert sorted(diamond.history) == ["0", "1", "3"]
    diamond.extend("6", "4")
    assert sorted(diamond.history) == list("0123456")
    g = diamond.graph
    assert g["5"].overlaps(g["6"]) and not g["5"].overlaps(g["0"]) and g["4"].overlaps(g["0"])
    assert g["4"].shape == (3,) and g["4"].has_internal_overlap() and g["6"].colors() == {17}


# -------------------------------------------------------------------------------------- regions, as views have them


def test_samples_of_samples() -> None:
    """What a sample holds of another set: here and there a part of it, at any size."""
    g = AliasGraph()
    for n in (10, 10**7, 10**18):
        a = g.allocate((n, 8))
        even, odd = a.sample([Stripe(1, 1), Stripe(1, 1)]), a.sample([Stripe(1, 1, 1), Stripe(1, 1)])
        assert even.shape == odd.shape == (n // 2, 4) and not even.overlaps(odd)
        assert even.same_elements(a[::2, ::2]) and even.overlap(a[::2]).size == 2 * n
        corner = even[: n // 4, 1:3]
        assert corner.origins()[a].bounds() == ((0, 2), (2 * (n // 4) - 1, 5))
    b = g.allocate((4, 6, 8)).sample([Stripe(1, 1)] * 3)
    assert b[1:1].size == 0 and not b[1:1].overlaps(b) and b[0:1, 0:1, 1:3].shape == (1, 1, 2)
    with pytest.raises(ValueError, match="not of the source's shape"):
        b.sample(Region((4, 6, 8), [ALL] * 3))


def test_expanded_parts_cover_what_the_whole_covers() -> None:
    g = AliasGraph()
    a = g.allocate((4, 1, 3))
    parts = [
        a.sample([Stripe(1, 1), ALL, Stripe(1, 2)]),
        a.sample([Stripe(1, 1), ALL, Stripe(2, 1, 1)]),
        a.sample([Stripe(1, 1, 1), ALL, ALL]),
    ]
    wide = [p.broadcast_to((5, p.shape[0], 6, p.shape[2])) for p in parts]
    assert all(w.has_internal_overlap() and w.same_elements(p) for w, p in zip(wide, parts, strict=True))
    assert not any(wide[i].overlaps(wide[j]) for i in range(3) for j in range(i))
    assert a.broadcast_to((5, 4, 6, 3)).same_elements(concatenate([w.ravel() for w in wide]))
    assert g.allocate(()).broadcast_to((1, 2, 3)).has_internal_overlap()


@pytest.mark.parametrize(
    ("shape", "cut", "new", "expected"),
    [
        ((5, 10), (slice(1, 4), slice(None)), (10, 5), ["....."] * 2 + ["11111"] * 6 + ["....."] * 2),
        ((5, 10), (slice(1, 4), slice(1, 9)), (10, 5), ["....."] * 2 + [".1111", "1111."] * 3 + ["....."] * 2),
        (
            (10, 5),
            (slice(2, 9), slice(0, 4)),
            (5, 10),
            ["." * 10, *["1111.1111."] * 3, "1111......"],
        ),
    ],
    ids=["whole rows", "rows cut on both sides", "rows that come to stand side by side"],
)
def test_regions_under_reshapes(
    shape: tuple[int, int], cut: tuple[slice, slice], new: tuple[int, int], expected: list[str]
) -> None:
    """A slice, seen by a reshape of the same memory: drawn in the new rows, in two regions at most."""
    g = AliasGraph()
    a = g.allocate(shape)
    as_new = g.allocate(new)
    a.to_view(Reshape(shape), as_new)
    found = a[cut].origins()[as_new]
    assert rows(found) == expected and len(found.members) <= 2


@given(st.data())
def test_reshapes_there_and_back(data: st.DataObject) -> None:
    (region,) = data.draw(regions_in_one_box(1, at_zero=True))
    g = AliasGraph()
    a = g.allocate(region.shape)
    new = data.draw(factorizations(a.size))
    t = a.sample(region)
    assert t.reshape(t.size).same_elements(t)
    through = a.reshape(new).reshape(a.shape).sample(region)
    assert through.same_elements(t) and through.view.cells.keys() == t.view.cells.keys()
    found = t.origins()
    assert found[a].same_points(region) if region.size else found == {}


@given(st.data())
def test_regions_under_permutations_and_mirrors(data: st.DataObject) -> None:
    (region,) = data.draw(regions_in_one_box(1, at_zero=True))
    order = data.draw(st.permutations(range(region.rank)))
    g = AliasGraph()
    a = g.allocate(region.shape)
    moved = a.permute_dims(order)
    assert moved.shape == tuple(region.shape[k] for k in order)
    same = (
        moved.sample([region.setts[k] for k in order])
        if not region.is_empty
        else moved.sample(Region.empty(moved.shape))
    )
    assert same.same_elements(a.sample(region))
    if region.rank and region.size:
        axis = data.draw(st.integers(0, region.rank - 1))
        mirror = a.flip(axis).sample(region.flip(axis))
        assert mirror.shape == region.counts and mirror.same_elements(a.sample(region))
        assert mirror[..., :1].overlap(a.sample(region)).size == mirror[..., :1].size


@given(st.data())
def test_sampling_and_filling_are_inverse(data: st.DataObject) -> None:
    """What is filled into a region is what a sample there gives; the rest stays as it was."""
    at, other = data.draw(regions_in_one_box(2, at_zero=True))
    g = AliasGraph()
    ink, paper = g.allocate(at.counts, name="ink"), g.allocate(at.shape, name="paper")
    t = ink.fill_into(at, paper)
    assert t.shape == at.shape and not t.has_internal_overlap()
    assert t.sample(at).same_elements(ink) and t.overlap(paper).size == paper.size - at.size
    both = t.sample(other)
    assert both.overlap(ink).size == at.count_common(other)
    assert paper.contains(paper.sample(other)) and both.overlaps(paper) == (other.size > at.count_common(other))
    rest = t.overlap(paper).regions
    assert (rest[paper].same_points(~at)) if rest else at.size == paper.size
