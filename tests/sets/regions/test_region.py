"""Regions and their unions against listed points and NumPy."""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from math import prod

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tapestry_sets import DisjointRegions, Region, Sett, Stripe, TooManyPieces
from tapestry_sets.regions import unflatten
from tests.oracles import listed_points, marked
from tests.strategies import regions_in_one_box, subscripts

Pair = tuple[Region, Region]
Four = tuple[Region, Region, Region, Region]


def points_of(cells: np.ndarray, start: Iterable[int] | None = None) -> set[tuple[int, ...]]:
    origin = tuple(start) if start is not None else (0,) * cells.ndim
    if not cells.ndim:
        return {()} if cells else set()
    return {tuple(int(z) for z in np.add(point, origin)) for point in np.argwhere(cells)}


# ------------------------------------------------------------------------------------------------------ algebra


@given(regions_in_one_box(1))
def test_verbs_are_those_of_the_listed_points(one: tuple[Region]) -> None:
    (r,) = one
    points = listed_points(r)
    box = np.argwhere(np.ones(r.shape, bool)) + np.array(r.start, int) if r.rank else [()]
    assert {tuple(int(z) for z in p) for p in box if tuple(p) in r} == points
    assert r.size == len(points)
    assert list(map(tuple, r.points().tolist())) == sorted(points)
    assert r.is_empty == (not points)


@given(regions_in_one_box(2))
def test_algebra_is_that_of_the_listed_points(two: Pair) -> None:
    r, s = two
    a, b = listed_points(r), listed_points(s)
    assert listed_points(r & s) == a & b
    assert listed_points(r | s) == a | b
    assert listed_points(r - s) == a - b
    assert listed_points(r ^ s) == a ^ b
    assert listed_points(~r) == listed_points(Region.full(r.shape, r.start)) - a
    assert (r <= s) == (a <= b)
    assert (r >= s) == (a >= b)
    assert r.same_points(s) == (a == b)


@given(regions_in_one_box(4))
def test_algebra_of_unions(four: Four) -> None:
    r, s = four[0] | four[1], four[2] | four[3]
    a, b = listed_points(r), listed_points(s)
    assert listed_points(r & s) == a & b
    assert listed_points(r | s) == a | b
    assert listed_points(r - s) == a - b
    assert r.isdisjoint(s) == (not a & b)
    assert r.count_common(s) == len(a & b)
    assert r.first_common(s) == min(a & b, default=None)
    assert (r <= s) == (a <= b)
    assert list(map(tuple, r.points().tolist())) == sorted(a)
    assert DisjointRegions(r.shape, r.members, r.start) == r


@given(regions_in_one_box(2))
def test_bounds_are_tight(two: Pair) -> None:
    r = two[0] | two[1]
    points = np.array(sorted(listed_points(r)))
    if not points.size and not (r.rank == 0 and r.size):
        assert r.bounds() is None
    elif r.rank:
        assert r.bounds() == (tuple(points.min(0)), tuple(points.max(0) + 1))


@given(regions_in_one_box(1))
@example((Region((3,), [Sett(Stripe(3, 0, phase=2), Stripe(1, 1))], start=(1,)),))
def test_is_box_is_whether_the_bounds_are_full(one: tuple[Region]) -> None:
    (r,) = one
    bounds = r.bounds()
    if bounds is not None:
        assert r.is_box == (prod(v - u for u, v in zip(*bounds, strict=True)) == r.size)


@given(regions_in_one_box(1))
def test_grids_are_the_elements_of_each_axis_in_order(one: tuple[Region]) -> None:
    (r,) = one
    for axis, runs in enumerate(r.grids()):
        elements: list[int] = []
        for run in runs:
            assert run.rank == len(elements)
            grid = [run.first]
            for count, step in run.levels:
                grid = [z + j * step for z in grid for j in range(count)]
            elements += grid
        assert r.is_empty or elements == sorted({point[axis] for point in listed_points(r)})


@pytest.mark.parametrize("n", [10, 10**3 + 1, 10**6, 10**9 + 1, 10**12, 10**20])
def test_slices_of_boxes_of_any_extent(n: int) -> None:
    box = (n, 4)
    evens, odds = (Region.from_slices(box, (slice(k, None, 2), slice(None))) for k in (0, 1))
    thirds = Region.from_slices(box, (slice(None, None, 3), slice(1, 3)))
    assert evens.isdisjoint(odds)
    assert (evens & odds).is_empty
    assert evens.first_common(odds) is None
    assert evens.size == 4 * -(-n // 2)
    assert odds.first_common(thirds) == (3, 1)
    assert odds.count_common(thirds) == (odds & thirds).size == 2 * ((n - 4) // 6 + 1)
    seen = thirds.slice((slice(None, None, -3), slice(None)))
    assert seen.shape == (-(-n // 3), 4)
    assert seen.size == (thirds.size if n % 3 == 1 else 0)


def test_one_extent_of_a_shape_may_be_left_open() -> None:
    r = Region((3, 4), [Sett(), Stripe(1, 1)])
    assert r.reshape((-1, 2)).same_points(r.reshape((6, 2)))
    with pytest.raises(ValueError, match=r"shape \(-1, 5\) may hold one -1"):
        r.reshape((-1, 5))
    with pytest.raises(ValueError, match=r"shape \(-1, -1\) may hold one -1"):
        r.reshape((-1, -1))
    with pytest.raises(ValueError, match=r"shape \(-1, 0\) may hold one -1"):
        Region.full((0, 4)).reshape((-1, 0))


def test_what_is_not_a_sequence_is_refused() -> None:
    with pytest.raises(TypeError, match="Region: shape must be a sequence of integers, one for each axis, not 3"):
        Region.full(3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="Region: point must be a sequence of integers, one for each axis, not 1"):
        1 in Region.full((3,))  # type: ignore[operator]  # noqa: B015


# -------------------------------------------------------------------------------------------- against NumPy


@given(st.data(), regions_in_one_box(2))
def test_moves_are_numpys(data: st.DataObject, two: Pair) -> None:
    r = two[0] | two[1]
    cells, rank = marked(r), r.rank
    axes = (
        [axis - rank * data.draw(st.booleans()) for axis in data.draw(st.sets(st.integers(0, rank - 1)))]
        if rank
        else []
    )
    order = [axis - rank * data.draw(st.booleans()) for axis in data.draw(st.permutations(range(rank)))]
    by = data.draw(st.tuples(*(st.integers(-5, 5),) * rank))
    flipped = {axis % rank for axis in axes} if rank else set()
    assert listed_points(r.flip(axes)) == points_of(np.flip(cells, tuple(flipped)), r.start)
    assert listed_points(r.flip()) == points_of(np.flip(cells), r.start)
    assert listed_points(r.transpose(order)) == points_of(cells.transpose(order), (r.start[i] for i in order))
    assert listed_points(r.shift(by)) == points_of(cells, np.add(r.start, by).tolist())


@given(st.data(), regions_in_one_box(2, at_zero=True))
def test_from_slices_and_slice_are_numpys(data: st.DataObject, two: Pair) -> None:
    r = two[0] | two[1]
    key = tuple(k for k in data.draw(subscripts(r.shape)) if k is not None)
    selected = np.zeros(r.shape, bool)
    selected[key] = True
    assert listed_points(Region.from_slices(r.shape, key)) == points_of(selected)
    # an int keeps its axis here
    ranges = tuple(slice(k, k + 1 or None) if isinstance(k, int) else k for k in key)
    assert listed_points(r.slice(ranges)) == points_of(marked(r)[ranges])


@given(st.data(), regions_in_one_box(2, at_zero=True))
def test_broadcast_and_reduce_are_numpys(data: st.DataObject, two: Pair) -> None:
    r = two[0] | two[1]
    lead = data.draw(st.lists(st.integers(0, 3), max_size=2))
    wide = (*lead, *(data.draw(st.integers(0, 3)) if n == 1 else n for n in r.shape))
    assert listed_points(r.broadcast_to(wide)) == points_of(np.broadcast_to(marked(r), wide))
    kept = data.draw(st.integers(0, r.rank))
    narrow = tuple(1 if data.draw(st.booleans()) else n for n in r.shape[kept:])
    cells = marked(r).any(axis=tuple(range(kept)))
    for axis, n in enumerate(narrow):
        cells = cells.any(axis=axis, keepdims=True) if n == 1 else cells
    assert listed_points(r.reduce_to(narrow)) == points_of(np.asarray(cells))


@given(st.data(), regions_in_one_box(2, at_zero=True))
def test_flatten_and_reshape_are_numpys(data: st.DataObject, two: Pair) -> None:
    r = two[0] | two[1]
    cells = marked(r)
    flat = r.flatten()
    assert [z in flat for z in range(cells.size)] == cells.ravel().tolist()
    sizes = [n for n in range(1, cells.size + 1) if cells.size % n == 0] or [0]
    first = data.draw(st.sampled_from(sizes))
    second = data.draw(st.sampled_from([n for n in sizes if first and cells.size // first % n == 0] or [3]))
    new = (first, second, cells.size // (first * second)) if first else (0, second)
    assert listed_points(r.reshape(new).explicit()) == points_of(cells.reshape(new))
    assert listed_points(unflatten(flat, new)) == points_of(cells.reshape(new))


# --------------------------------------------------------------------------- the documents' examples, hard cases


def test_document_reshape_of_a_product_may_need_two_regions() -> None:
    r = Region((3, 4), [Sett(), Stripe(1, 1, 1)])
    cells = np.zeros((3, 4), bool)
    cells[:, 1::2] = True
    assert str(r) == ".1.1\n.1.1\n.1.1"
    moved = r.reshape((4, 3))
    assert len(moved.members) == 2
    assert listed_points(moved.explicit()) == points_of(cells.reshape(4, 3))


def test_document_block_of_a_cube_as_a_sett() -> None:
    block = Region.from_slices((3, 3, 3), (slice(2),) * 3).flatten()
    assert block.same_points(Sett(Stripe(18, 9), Stripe(6, 3), Stripe(2, 1)), within=(0, 27))
    assert block.elements(0, 27).tolist() == np.arange(27).reshape(3, 3, 3)[:2, :2, :2].ravel().tolist()


def test_reshape_of_a_half_column_slice_between_coprime_extents() -> None:
    n = 1024
    half = Region.from_slices((n, n + 1), (slice(None), slice(0, n // 2)))
    moved = half.reshape((n + 1, n))
    cells = np.zeros((n, n + 1), bool)
    cells[:, : n // 2] = True
    found = np.zeros((n + 1, n), bool)
    for member in moved.members:
        at = member.points()
        assert not found[at[:, 0], at[:, 1]].any()
        found[at[:, 0], at[:, 1]] = True
    assert (found == cells.reshape(n + 1, n)).all()
    assert len(moved.members) <= 1535


@pytest.mark.parametrize("n", [8, 10**3, 10**6, 10**9, 10**12])
def test_reshapes_that_keep_rows_together_cost_the_same_at_every_size(n: int) -> None:
    half = Region.from_bounds((n, 4, n), (0, 1, 0), (n, 3, n // 2))
    there = half.reshape((4 * n, n))
    assert len(there.members) == 1
    assert there.size == half.size == n * 2 * (n // 2)
    assert there.reshape((n, 4, n)).same_points(half)


def test_a_reshape_into_too_many_boxes_says_so() -> None:
    half = Region.from_slices((10**5, 10**5 + 1), (slice(None), slice(0, 5 * 10**4)))
    there = half.reshape((10**5 + 1, 10**5))
    assert there.size == half.size
    with pytest.raises(TooManyPieces, match="more than 10000; size, `in`, isdisjoint, count_common"):
        len(there.members)
    assert half.flatten().count(0, 10**10) == half.size - half.flatten().count(10**10, 10**5 * (10**5 + 1))


def test_rank_0_and_empty_axes() -> None:
    full, empty = Region.full(()), Region.empty(())
    assert (full.size, empty.size, full.points().shape) == (1, 0, (1, 0))
    assert () in full
    assert () not in empty
    assert (full & full).size == 1
    assert (full - full).is_empty
    assert (~empty).same_points(full)
    assert full.reshape((1, 1)).size == 1
    assert Region.full((2, 0)).is_empty
    assert Region.full((2, 0)).reshape((0, 5)).shape == (0, 5)
    assert Region.full((2, 0)).flatten().is_empty


def test_sizes_are_python_integers_of_any_size() -> None:
    n = 10**12
    r = Region.from_bounds((n, n, n), (0, 0, 0), (n, n - 1, n))
    assert r.size == n * (n - 1) * n
    assert (r & Region.from_slices((n, n, n), (slice(None, None, 2),))).size == n // 2 * (n - 1) * n


def test_what_is_left_of_a_box_and_the_box_make_the_whole() -> None:
    box = Region.from_bounds((4, 6, 8), (1, 2, 0), (3, 3, 8))
    rest = ~box
    assert rest.size == 4 * 6 * 8 - box.size
    assert len(rest.members) == 4
    assert (rest | box).members == (Region.full((4, 6, 8)),)


def test_neighboring_boxes_are_joined() -> None:
    box = (8, 8)
    left, right = Region.from_bounds(box, (0, 0), (8, 3)), Region.from_bounds(box, (0, 3), (8, 8))
    assert (left | right) == DisjointRegions(box, [Region.full(box)])
    four = Region.from_bounds(box, (0, 0), (4, 4)) | Region.from_bounds(box, (0, 4), (4, 8)) | left | right
    assert len(four.members) == 1


def test_regions_are_values() -> None:
    r = Region.from_slices((6, 9), (slice(1, 4), slice(None, None, 2)), (2, -1))
    assert pickle.loads(pickle.dumps(r)) == r
    assert pickle.loads(pickle.dumps(~r)) == ~r
    assert hash(r) == hash(Region((6, 9), r.setts, (2, -1)))
    assert eval(repr(r), {"Region": Region, "Sett": Sett, "Stripe": Stripe}) == r


# --------------------------------------------------------------------------------------------------- wrong input


def test_boxes_that_differ_are_refused_and_named() -> None:
    r, s = Region.full((3, 4)), Region.full((3, 5))
    for verb in (r.isdisjoint, r.count_common, r.__and__, r.__or__, r.__sub__, r.issubset, r.first_common):
        with pytest.raises(ValueError, match=r"\(3, 4\).*\(3, 5\)"):
            verb(s)
    with pytest.raises(ValueError, match=r"from \(0, 0\).*from \(1, 0\)"):
        r | r.shift((1, 0))
    with pytest.raises(TypeError, match="not tuple"):
        r & (1, 2)  # type: ignore[operator]
    for verb in (r.__and__, r.__or__, r.__sub__, r.__xor__):
        with pytest.raises(TypeError, match="not tuple"):
            verb((1, 2))  # type: ignore[arg-type]


def test_a_region_outside_its_box_is_refused() -> None:
    with pytest.raises(ValueError, match=r"\[2, 9\) on axis 1 is outside the box \[0, 8\)"):
        Region.from_bounds((4, 8), (0, 2), (4, 9))
    with pytest.raises(
        ValueError, match=r"on axis 0 is outside the box \[1, 5\) of shape \(4,\); need 1 <= lo <= hi <= 5$"
    ):
        Region.from_bounds((4,), (0,), (4,), start=(1,))
    with pytest.raises(IndexError, match="index 4 is out of range for axis 0 of extent 4"):
        Region.from_slices((4, 8), (4,))
    with pytest.raises(IndexError, match="too many"):
        Region.from_slices((4,), (0, 0))


def test_wrong_shapes_are_refused() -> None:
    r = Region.full((3, 4))
    with pytest.raises(ValueError, match=r"cannot view shape \(3, 4\) \[12 points\] as \(5, 5\) \[25\]"):
        r.reshape((5, 5))
    with pytest.raises(ValueError, match="does not broadcast to"):
        r.broadcast_to((3, 5))
    with pytest.raises(ValueError, match="does not broadcast to"):
        r.reduce_to((3, 5))
    with pytest.raises(ValueError, match="must start at zero"):
        r.shift((1, 0)).flatten()
    with pytest.raises(ValueError, match="hold each of 0 to 1 once"):
        r.transpose((0, 0))
    with pytest.raises(ValueError, match="axis 2 is out of range"):
        r.flip(2)
    with pytest.raises(ValueError, match="not -1 on axis 1"):
        Region.full((3, -1))
    with pytest.raises(ValueError, match="one sett for each axis"):
        Region((3, 4), [Sett()])
    with pytest.raises(ValueError, match="one entry for each axis"):
        (1, 2, 3) in r  # noqa: B015
    with pytest.raises(TypeError, match=r"shape\[0\] must be an integer"):
        Region.full((True, 2))


def test_members_that_overlap_or_are_elsewhere_are_refused() -> None:
    r = Region.from_bounds((4, 4), (0, 0), (2, 2))
    with pytest.raises(ValueError, match=r"share the point \(1, 1\)"):
        DisjointRegions((4, 4), [r, Region.from_bounds((4, 4), (1, 1), (3, 3))])
    with pytest.raises(ValueError, match="member 0 is in the box"):
        DisjointRegions((4, 5), [r])
