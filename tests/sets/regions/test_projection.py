"""Projections counted backwards, steps, neighbors and many images at once, against enumerated index points."""

from __future__ import annotations

from itertools import product
from unittest.mock import patch

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tapestry_sets import AffineMap, Box, DisjointRegions, ImplicitRegion, IndexProjection, Region
from tapestry_sets.solvers import isl

Points = set[tuple[int, ...]]
SMALL = st.integers(-3, 3)


@st.composite
def projections(draw: st.DrawFn, extents: tuple[int, ...], splits: tuple[tuple[int, int], ...] = ()) -> IndexProjection:
    out, width = draw(st.integers(0, 2)), len(extents) + 2 * len(splits)
    rows = tuple(tuple(draw(SMALL) for _ in range(width)) for _ in range(out))
    offset, shape = tuple(draw(SMALL) for _ in range(out)), tuple(draw(st.integers(1, 3)) for _ in range(out))
    return IndexProjection(AffineMap(rows, offset, width), shape, splits)


SPACES = st.lists(st.integers(1, 6), min_size=1, max_size=3).map(tuple)


@st.composite
def boxes(draw: st.DrawFn, extents: tuple[int, ...]) -> Box:
    start = tuple(draw(st.integers(0, n - 1)) for n in extents)
    return Box(start, tuple(draw(st.integers(0, n - a)) for n, a in zip(extents, start, strict=True)))


def touched(p: IndexProjection, box: Box) -> Points:
    """The cells of a box of index points, block by block, from the definition."""
    cells: Points = set()
    for point in box.points():
        x = [*point, *(y for a, q in p.splits for y in (point[a] // q, point[a] % q))]
        start = [
            b + sum(c * v for c, v in zip(row, x, strict=True))
            for row, b in zip(p.map.matrix, p.map.offset, strict=True)
        ]
        cells |= set(product(*(range(s, s + n) for s, n in zip(start, p.shape, strict=True))))
    return cells


def points_of(found: DisjointRegions | Region | ImplicitRegion) -> Points:
    return {tuple(point) for point in found.points().tolist()}


def mirrored(box: Box, axis: int, extent: int) -> Box:
    start = tuple(extent - a - n if k == axis else a for k, (a, n) in enumerate(zip(box.start, box.shape, strict=True)))
    return Box(start, box.shape)


@given(st.data(), SPACES)
def test_reversed_touches_what_the_mirrored_index_touches(data: st.DataObject, extents: tuple[int, ...]) -> None:
    axis = data.draw(st.integers(0, len(extents) - 1))
    whole = [q for q in range(1, extents[axis] + 1) if extents[axis] % q == 0]
    splits = tuple((axis, data.draw(st.sampled_from(whole))) for _ in range(data.draw(st.integers(0, 2))))
    p = data.draw(projections(extents, splits))
    back = p.reversed(axis, extents[axis])
    box = data.draw(boxes(extents))
    assert touched(back, box) == touched(p, mirrored(box, axis, extents[axis]))
    assert back.reversed(axis, extents[axis]) == p
    assert back.relative_start(extents) == p.relative_start(extents)


@given(st.data(), SPACES)
def test_offsets_are_relative_starts_and_adjustments(data: st.DataObject, extents: tuple[int, ...]) -> None:
    p = data.draw(projections(extents))
    relative = p.relative_start(extents)
    again = IndexProjection.from_relative_start(p.map.matrix, relative, p.shape, extents)
    assert again == p or not p.map.matrix
    # the smallest cell that any index point is mapped to, without the relative start, is 0 where all count one way
    for k, row in enumerate(p.map.matrix):
        if all(c <= 0 for c in row):
            lowest = min(c[k] for c in touched(p, Box.of(extents)))
            assert lowest == relative[k]


def test_reversing_uneven_splits_is_refused() -> None:
    p = IndexProjection(AffineMap(((0, 1, 0),), (0,)), (1,), ((0, 3),))
    with pytest.raises(ValueError, match="axis 0 of extent 8 is split by 3, which does not divide it"):
        p.reversed(0, 8)
    with pytest.raises(ValueError, match=r"axis 1 is not in \[0, 1\)"):
        p.reversed(1, 8)
    unused = IndexProjection(AffineMap(((1, 0, 0),), (0,)), (1,), ((0, 3),))
    assert unused.reversed(0, 8)((0,)) == unused((7,))


def gap(p: IndexProjection, point: tuple[int, ...], axis: int) -> bool:
    """Whether some coordinate lies between the block of a point and that of the next one."""
    following = tuple(x + (k == axis) for k, x in enumerate(point))
    one, two = p(point), p(following)
    return any(max(a, b) > min(a + n, b + n) for a, b, n in zip(one.start, two.start, p.shape, strict=True))


@given(st.data(), st.lists(st.integers(1, 14), min_size=1, max_size=2).map(tuple))
def test_coherence_by_every_pair_of_neighbors(data: st.DataObject, extents: tuple[int, ...]) -> None:
    count = data.draw(st.integers(0, 2))
    splits = tuple((data.draw(st.integers(0, len(extents) - 1)), data.draw(st.integers(1, 5))) for _ in range(count))
    p = data.draw(projections(extents, splits))
    gaps = {
        (axis, point)
        for axis, n in enumerate(extents)
        for point in product(*(range(m - (k == axis)) for k, m in enumerate(extents)))
        if gap(p, point, axis)
    }
    found = p.first_incoherence(extents)
    assert found in gaps if gaps else found is None


@given(st.data(), SPACES)
@example(None, (3, 3))
def test_many_images_are_the_images(data: st.DataObject | None, extents: tuple[int, ...]) -> None:
    if data is None:
        p = IndexProjection(AffineMap(((3, 0), (0, 1)), (0, -1)), (2, 1))
        several = [Box((0, 0), (2, 3)), Box((0, 0), (0, 3)), Box((0, 0), (1, 1)), Box((2, 2), (1, 1))]
    else:
        p = data.draw(projections(extents))
        several = data.draw(st.lists(boxes(extents), max_size=6))
    frame = Box((-2,) * len(p.shape), (7,) * len(p.shape))
    for box, image in zip(several, p.images(several, frame), strict=True):
        assert (image.start, image.shape) == (frame.start, frame.shape)
        assert points_of(image) == {c for c in touched(p, box) if c in frame}


def test_sizes_do_not_matter_and_isl_is_not_asked() -> None:
    n = 10**9
    rows = IndexProjection(AffineMap(((2, 1, 0), (0, 0, -1)), (-1, n - 1)), (1, 1))
    index = Box.of((n // 2, 3, n))
    with patch.object(isl, "_islpy", side_effect=ImportError("islpy is blocked")):
        assert rows.bounding_box(index) == Box((-1, 0), (n + 1, n))
        assert rows.image(index).size == (n + 1) * n
        half = Box((0, 0, 0), (n // 4, 3, n)), Box((n // 4, 0, 0), (n // 4, 3, n))
        assert rows.shared(*half).size == n
        back = rows.reversed(0, n // 2)
        assert back.image(half[0]).same_points(rows.image(half[1], Box(*_box(back.image(half[0])))))
        assert rows.first_incoherence((n // 2, 3, n)) == (0, (0, 0, 0))
        assert rows.reversed(2, n).map.matrix[1] == (0, 0, 1)


def _box(found: DisjointRegions | ImplicitRegion) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return found.start, found.shape
