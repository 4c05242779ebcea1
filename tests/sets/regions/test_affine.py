"""Index projections against enumerated index points."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from sympy import floor, symbols

from tapestry_sets import AffineMap, Box, DisjointRegions, ImplicitRegion, IndexProjection, Region, TooHard

SMALL = st.integers(-3, 3)
Points = set[tuple[int, ...]]


def box_points(box: Box) -> Points:
    return set(product(*(range(a, b) for a, b in zip(box.start, box.stop, strict=True))))


def points_of(found: DisjointRegions | Region | ImplicitRegion) -> Points:
    return {tuple(p) for p in found.points().tolist()}


def columns(point: tuple[int, ...], splits: tuple[tuple[int, int], ...]) -> tuple[int, ...]:
    return point + tuple(x for a, q in splits for x in (point[a] // q, point[a] % q))


def touched(p: IndexProjection, point: tuple[int, ...]) -> Points:
    """The block of one index point, from the definition."""
    x = columns(point, p.splits)
    start = [
        b + sum(c * v for c, v in zip(row, x, strict=True)) for row, b in zip(p.map.matrix, p.map.offset, strict=True)
    ]
    return set(product(*(range(s, s + n) for s, n in zip(start, p.shape, strict=True))))


@st.composite
def boxes(draw: st.DrawFn, rank: int, extent: int = 5, empty: bool = True) -> Box:
    start = [draw(st.integers(-4, 4)) for _ in range(rank)]
    return Box(tuple(start), tuple(draw(st.integers(0 if empty else 1, extent)) for _ in range(rank)))


@st.composite
def projections(draw: st.DrawFn, separable: bool | None = None) -> IndexProjection:
    """Random projections; where `separable`, each index axis belongs to at most one coordinate."""
    rank, out = draw(st.integers(0, 3)), draw(st.integers(0, 3))
    splits = tuple(
        (draw(st.integers(0, rank - 1)), draw(st.integers(1, 4))) for _ in range(draw(st.integers(0, 2)) if rank else 0)
    )
    if separable:  # two splits of one axis are not independent of each other
        splits = splits[:1]
    width = rank + 2 * len(splits)
    matrix = [[draw(SMALL | st.just(0)) for _ in range(width)] for _ in range(out)]
    if separable:
        for k in range(width):
            owner = draw(st.integers(0, max(out - 1, 0)))
            for r in range(out):
                matrix[r][k] = matrix[r][k] if r == owner else 0
        for a, _ in splits:  # the axis and its parts together would be shared
            for r in range(out):
                matrix[r][a] = 0
    offset = tuple(draw(SMALL) for _ in range(out))
    shape = tuple(draw(st.integers(1, 3)) for _ in range(out))
    return IndexProjection(AffineMap(tuple(map(tuple, matrix)), offset, width), shape, splits)


@st.composite
def regions(draw: st.DrawFn, rank: int) -> Region:
    """A product of strided slices in a box that may start anywhere."""
    box = draw(boxes(rank, 7))
    slices = tuple(slice(draw(st.integers(0, 3)), None, draw(st.integers(1, 3))) for _ in range(rank))
    return Region.from_slices(box.shape, slices, box.start)


# ----------------------------------------------------------------------------------------------------------- boxes


@given(st.data(), st.integers(0, 3))
def test_boxes_are_sets_of_points(data: st.DataObject, rank: int) -> None:
    a, b = data.draw(boxes(rank)), data.draw(boxes(rank))
    x, y = box_points(a), box_points(b)
    assert a.size == len(x) and a.is_empty == (not x)
    common = a.intersect(b)
    assert (x & y) == (set() if common is None else box_points(common))
    assert a.contains(b) == (y <= x)
    assert points_of(a.to_region(b)) == (x & y)
    hull = a.hull(b)
    assert hull.contains(a) and hull.contains(b)
    assert list(a.points()) == sorted(x)
    assert all((p in a) == (p in x) for p in y)


def test_box_errors_name_the_axis() -> None:
    with pytest.raises(ValueError, match="extent -1 of axis 1"):
        Box((0, 0), (2, -1))
    with pytest.raises(ValueError, match=r"start .* has 1 axes but shape .* has 2"):
        Box((0,), (2, 2))
    with pytest.raises(TypeError, match=r"Box: shape\[0\]"):
        Box((0,), (1.5,))  # type: ignore[arg-type]


# ----------------------------------------------------------------------------------------------------- affine maps


@st.composite
def affine_maps(draw: st.DrawFn, in_rank: int, out_rank: int) -> AffineMap:
    matrix = tuple(tuple(draw(SMALL) for _ in range(in_rank)) for _ in range(out_rank))
    return AffineMap(matrix, tuple(draw(SMALL) for _ in range(out_rank)), in_rank)


@given(st.data(), st.tuples(*[st.integers(0, 3)] * 3))
def test_affine_maps_compute_matrix_times_point(data: st.DataObject, ranks: tuple[int, int, int]) -> None:
    a, b, c = ranks
    m, n = data.draw(affine_maps(a, b)), data.draw(affine_maps(b, c))
    point = tuple(data.draw(st.integers(-(10**20), 10**20)) for _ in range(a))
    expected = np.array(m.matrix, object).reshape(b, a) @ np.array(point, object) + np.array(m.offset, object)
    assert m.apply(point) == tuple(expected.tolist())
    assert m.then(n).apply(point) == n.apply(m.apply(point))
    assert AffineMap.identity(a).then(m) == m == m.then(AffineMap.identity(b))
    assert m.is_identity == (m == AffineMap.identity(a))


def test_affine_map_errors() -> None:
    with pytest.raises(ValueError, match="2 rows but 1 offsets"):
        AffineMap(((1,), (2,)), (0,))
    with pytest.raises(ValueError, match=r"row 1 \(1,\) has 1 columns where 2"):
        AffineMap(((1, 2), (1,)), (0, 0))
    with pytest.raises(ValueError, match="is not an order of the axes"):
        AffineMap.permutation((0, 0))


# --------------------------------------------------------------------------------------------------------- images


@given(st.data(), projections(separable=True))
def test_separable_images_are_regions(data: st.DataObject, p: IndexProjection) -> None:
    box = data.draw(boxes(p.index_rank))
    image = p.image(box)
    expected: Points = set().union(*(touched(p, x) for x in box_points(box)))
    assert isinstance(image, DisjointRegions)
    assert points_of(image) == expected
    assert image.size == len(expected)
    frame = data.draw(boxes(len(p.shape), 9))
    clipped = p.image(box, frame)
    assert isinstance(clipped, DisjointRegions) and clipped.shape == frame.shape and clipped.start == frame.start
    assert points_of(clipped) == expected & box_points(frame)


@given(st.data(), projections())
def test_images_are_exact(data: st.DataObject, p: IndexProjection) -> None:
    box = data.draw(boxes(p.index_rank, 4))
    image = p.image(box)
    expected: Points = set().union(*(touched(p, x) for x in box_points(box)))
    assert points_of(image) == expected
    assert image.size == len(expected)
    assert image.is_empty == (not expected)
    frame = data.draw(boxes(len(p.shape), 9))
    assert points_of(p.image(box, frame)) == expected & box_points(frame)
    assert p.image(box, frame).size == len(expected & box_points(frame))


@given(st.data(), projections())
def test_images_of_strided_index_regions(data: st.DataObject, p: IndexProjection) -> None:
    region = data.draw(regions(p.index_rank))
    expected: Points = set().union(*(touched(p, x) for x in points_of(region)))
    assert points_of(p.image(region)) == expected


@given(st.data(), projections())
def test_bounding_box_is_tight(data: st.DataObject, p: IndexProjection) -> None:
    box = data.draw(boxes(p.index_rank, 4, empty=False))
    cells = sorted(set().union(*(touched(p, x) for x in box_points(box))))
    low = tuple(min(c[k] for c in cells) for k in range(len(p.shape)))
    high = tuple(max(c[k] for c in cells) + 1 for k in range(len(p.shape)))
    assert p.bounding_box(box) == Box.from_bounds(low, high)
    assert p(box.start) == Box(min(touched(p, box.start), default=()), p.shape)


@given(st.data(), projections())
def test_shared_is_the_intersection_of_images(data: st.DataObject, p: IndexProjection) -> None:
    one, two = data.draw(boxes(p.index_rank, 3, empty=False)), data.draw(boxes(p.index_rank, 3, empty=False))
    image = [set().union(*(touched(p, x) for x in box_points(b))) for b in (one, two)]
    assert points_of(p.shared(one, two)) == image[0] & image[1]


@given(st.data(), projections())
def test_preimage_is_what_meets_the_region(data: st.DataObject, p: IndexProjection) -> None:
    space = data.draw(boxes(p.index_rank, 4))
    region = data.draw(regions(len(p.shape)))
    target = points_of(region)
    expected = {x for x in box_points(space) if touched(p, x) & target}
    found = p.preimage(region, space)
    assert points_of(found) == expected
    assert found.size == len(expected)


@given(st.data(), projections(), projections())
def test_then_chains_blocks(data: st.DataObject, p: IndexProjection, q: IndexProjection) -> None:
    assume(q.index_rank == len(p.shape))
    try:
        both = p.then(q)
    except ValueError as error:
        assert q.splits or "only boxes" in str(error)
        return
    point = tuple(data.draw(SMALL) for _ in range(p.index_rank))
    assert touched(both, point) == set().union(*(touched(q, y) for y in touched(p, point)))


@given(st.data(), projections(separable=True))
def test_marginal_is_one_step(data: st.DataObject, p: IndexProjection) -> None:
    assume(p.index_rank and not p.splits)
    axis = data.draw(st.integers(0, p.index_rank - 1))
    point = [data.draw(SMALL) for _ in range(p.index_rank)]
    before = p(point).start
    point[axis] += 1
    assert p.marginal(axis) == tuple(b - a for a, b in zip(before, p(point).start, strict=True))


# ------------------------------------------------------------------------------------------------ the documents' cases


def linear(batch: int, inner: int, out: int, by: str) -> dict[str, tuple[IndexProjection, tuple[int, ...]]]:
    """Linear sharded by `batch` or by `out`, with the tensors' shapes."""
    b = 1 if by == "batch" else 0
    o = 1 - b
    return {
        "X": (IndexProjection(AffineMap(((b,), (0,)), (0, 0)), (1 if b else batch, inner)), (batch, inner)),
        "W": (IndexProjection(AffineMap(((0,), (o,)), (0, 0)), (inner, 1 if o else out)), (inner, out)),
        "b": (IndexProjection(AffineMap(((o,),), (0,)), (1 if o else out,)), (out,)),
        "Y": (
            IndexProjection(AffineMap(((b,), (o,)), (0, 0)), (1 if b else batch, 1 if o else out)),
            (batch, out),
        ),
    }


@pytest.mark.parametrize("by", ["batch", "out"])
def test_linear_projections(by: str) -> None:
    """Tapestry, Index Projection Functions. Erratum: sharded by out, P_W is [in, 1] and P_Y is [batch, 1]."""
    batch, inner, out = 12, 5, 8
    n = batch if by == "batch" else out
    tensors = linear(batch, inner, out, by)
    if by == "out":
        assert tensors["W"][0].shape == (inner, 1) and tensors["Y"][0].shape == (batch, 1)
    head, tail = Box((0,), (n // 4,)), Box((n // 4,), (n - n // 4,))
    for name, (p, shape) in tensors.items():
        whole = p.image(Box.of((n,)), shape)
        assert isinstance(whole, DisjointRegions) and whole.size == np.prod(shape)
        shared = p.shared(head, tail, shape)
        varies = any(p.marginal(0))
        assert shared.size == (0 if varies else np.prod(shape)), name
        assert isinstance(shared, DisjointRegions)
        if varies:  # coherent index ranges give coherent blocks
            image = p.image(head, shape)
            assert isinstance(image, DisjointRegions) and image.is_box


def test_convolution_windows_overlap() -> None:
    """A 3×3 kernel: neighbors along an axis share two rows, as the figures of the documents show."""
    conv = IndexProjection(AffineMap(((1, 0), (0, 1)), (0, 0)), (3, 3))
    assert conv((0, 0)) == Box((0, 0), (3, 3))
    assert conv.marginal(0) == (1, 0)
    left, right = Box((0, 0), (4, 4)), Box((0, 4), (4, 4))
    assert conv.bounding_box(left) == Box((0, 0), (6, 6))
    shared = conv.shared(left, right)
    assert shared.bounds() == ((0, 4), (6, 6))


def test_strided_convolution_leaves_gaps() -> None:
    """Windows of 2 with stride 3 leave a gap after each; windows of 3 with stride 2 share single cells."""
    gaps = IndexProjection(AffineMap(((3,),), (0,)), (2,)).image(Box.of((4,)))
    assert points_of(gaps) == {(x,) for x in (0, 1, 3, 4, 6, 7, 9, 10)}
    assert isinstance(gaps, DisjointRegions) and len(gaps.members) == 1
    dense = IndexProjection(AffineMap(((2,),), (0,)), (3,))
    assert points_of(dense.shared(Box((0,), (2,)), Box((2,), (2,)))) == {(4,)}


def test_negative_strides_count_backwards() -> None:
    back = IndexProjection(AffineMap(((-1,),), (7,)), (1,))
    assert back.bounding_box(Box((0,), (3,))) == Box((5,), (3,))


def test_mixed_signs_are_not_the_two_corners() -> None:
    """i − j over 4×4: projecting two corners gives [0, 1); the truth is [−3, 4)."""
    p = IndexProjection(AffineMap(((1, -1),), (0,)), (1,))
    assert p.bounding_box(Box.of((4, 4))) == Box((-3,), (7,))
    image = p.image(Box.of((4, 4)))
    assert isinstance(image, DisjointRegions) and image.is_box and image.bounds() == ((-3,), (4,))


def test_skewed_image_answers_without_listing() -> None:
    p = IndexProjection(AffineMap(((1, 1), (1, -1)), (0, 0)), (1, 1))
    n = 10**9
    image = p.image(Box.of((n, n)))
    assert isinstance(image, ImplicitRegion)
    assert image.size == n * n
    assert (n, 0) in image and (n, 1) not in image
    assert image.bounds() == ((0, 1 - n), (2 * n - 1, n))
    assert image.isdisjoint(Box((0, 1), (1, 1)))
    part = p.image(Box.of((n, n)), (n, n))
    assert not part.is_empty
    with pytest.raises(TooHard, match="ask is_empty"):
        _ = part.size


@pytest.mark.parametrize("scale", [1, 10**3, 10**9])
def test_images_do_not_grow_with_sizes(scale: int) -> None:
    """Rows of a convolution, stride 2, kernel 3: one interval at every size."""
    p = IndexProjection(AffineMap(((2, 1),), (-1,)), (1,))
    image = p.image(Box.of((8 * scale, 3)))
    assert isinstance(image, DisjointRegions) and image.bounds() == ((-1,), (16 * scale,)) and len(image.members) == 1


def test_split_axes_follow_groups() -> None:
    """The group of output channel c is c // q: channels 3 to 8 of 4 per group touch groups 0, 1 and 2."""
    p = IndexProjection(AffineMap(((0, 2, 0),), (0,)), (2,), ((0, 4),))
    assert p.image(Box((3,), (6,))).bounds() == ((0,), (6,))
    assert p((9,)) == Box((4,), (2,))


# ------------------------------------------------------------------------------------------------------- sympy


def test_from_exprs_reads_affine_expressions() -> None:
    sympy = pytest.importorskip("sympy")
    i, n = sympy.symbols("i n", integer=True)
    p = IndexProjection.from_exprs([i, n], start=[2 * i, n - 1, 5], shape=[3, 1, 2])
    assert p == IndexProjection(AffineMap(((2, 0), (0, 1), (0, 0)), (0, -1, 5)), (3, 1, 2))
    q = IndexProjection.from_exprs([i, n], start=[sympy.floor(i / 4) + n, sympy.Mod(i, 4)], shape=[1, 1])
    assert q.splits == ((0, 4),)
    assert q((11, 10)) == Box((12, 3), (1, 1))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("i*n", "not affine"),
        ("i**2", "not affine"),
        ("i/2", "must be an integer"),
        ("i + 1/3", "must be an integer"),
        ("i + k", "uses k"),
        ("floor(n*i/2)", "not affine"),
        ("Abs(i)", "not affine"),
    ],
)
def test_from_exprs_names_what_is_not_affine(text: str, reason: str) -> None:
    sympy = pytest.importorskip("sympy")
    i, n, k = sympy.symbols("i n k", integer=True)
    expr: Any = sympy.sympify(text, locals={"i": i, "n": n, "k": k})
    with pytest.raises(ValueError, match=reason):
        IndexProjection.from_exprs([i, n], start=[expr], shape=[1])


def test_projection_errors() -> None:
    m = AffineMap(((1,),), (0,))
    with pytest.raises(ValueError, match="extent 0 of coordinate 0"):
        IndexProjection(m, (0,))
    with pytest.raises(ValueError, match="2 extents but the map has 1"):
        IndexProjection(m, (1, 1))
    with pytest.raises(ValueError, match=r"split \(3, 2\)"):
        IndexProjection(AffineMap(((1, 0, 0),), (0,)), (1,), ((3, 2),))
    with pytest.raises(ValueError, match="is empty"):
        IndexProjection(m, (1,)).bounding_box(Box((0,), (0,)))
    with pytest.raises(ValueError, match="rank 2 where rank 1"):
        IndexProjection(m, (1,)).image(Box.of((2, 2)))
    with pytest.raises(ValueError, match="axis 1 is not in"):
        IndexProjection(m, (1,)).marginal(1)
    with pytest.raises(ValueError, match="is split by 4"):
        IndexProjection(AffineMap(((0, 1, 0),), (0,)), (1,), ((0, 4),)).marginal(0)


def test_within_must_be_a_box_or_a_shape_of_the_images_rank() -> None:
    p = IndexProjection(AffineMap(((1,),), (0,)), (1,))
    with pytest.raises(TypeError, match="within: 5 is neither a Box nor a shape"):
        p.image(Box.of((2,)), 5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="within: rank 3 where rank 1 is needed"):
        p.image(Box.of((2,)), (1, 2, 3))


def test_interleaved_strides_are_counted_and_decided() -> None:
    """Strides 36674, 61119, 85569 over 30³: isl and barvinok need more than 20 s for the number of elements."""
    strides = (36674, 61119, 85569)
    image = IndexProjection(AffineMap((strides,), (0,)), (1,)).image(Box.of((30, 30, 30)))
    sums = {sum(i * s for i, s in zip(x, strides, strict=True)) for x in product(range(30), repeat=3)}
    assert image.size == len(sums)
    inside, outside = max(sums) // 2, max(sums) // 2
    while inside not in sums:
        inside += 1
    while outside in sums:
        outside += 1
    assert (inside,) in image and (outside,) not in image
    assert image.bounds() == ((0,), (max(sums) + 1,))


def test_an_empty_selection_has_an_empty_image() -> None:
    """floor(i / 4) + i mod 2: two splits of one axis, of no points at all."""
    p = IndexProjection(AffineMap(((0, 1, 0, 0, 1),), (0,)), (1,), ((0, 4), (0, 2)))
    for none in (Box((0,), (0,)), Region.empty((3,)), DisjointRegions((3,))):
        assert p.image(none).is_empty and p.image(none, (5,)).shape == (5,)


@pytest.mark.parametrize("n", [8, 10**5, 10**9])
def test_two_splits_of_one_axis_are_not_independent(n: int) -> None:
    """2·floor(i / 4) - floor(i / 2) is 0 or -1, however far i goes."""
    i = symbols("i", integer=True)
    p = IndexProjection.from_exprs([i], start=[floor(i / 4) * 2 - floor(i / 2)], shape=[1])
    assert p.bounding_box(Box((0,), (n,))) == Box((-1,), (2,))
    assert p.bounding_box(Box((2,), (2,))) == Box((-1,), (1,))
    assert points_of(p.image(Box((0,), (n,)))) == {(-1,), (0,)}


def test_small_images_are_listed() -> None:
    """Four index points a row, two splits, 96 cells of blocks: isl needs seconds to list them."""
    p = IndexProjection(AffineMap(((1, 1, 2, 0, 0, 1), (1, -1, 0, 1, 2, 0)), (0, 3), 6), (2, 2), ((0, 3), (1, 3)))
    box = Box((1, 5), (4, 6))
    image = p.image(box)
    assert isinstance(image, ImplicitRegion)
    expected: Points = set().union(*(touched(p, x) for x in box_points(box)))
    assert points_of(image) == expected and image.size == len(expected)
    low, high = np.min(list(expected), axis=0), np.max(list(expected), axis=0) + 1
    assert image.bounds() == (tuple(low.tolist()), tuple(high.tolist()))
    assert p.bounding_box(box) == Box.from_bounds(*image.bounds())
    half = Box(tuple(low.tolist()), (int(high[0] - low[0]), 4))
    assert points_of(image & half) == expected & box_points(half)
    assert not image.isdisjoint(half) and (image <= half) == (expected <= box_points(half))
    assert image.same_points(image) and not image.same_points(half)
    assert all(point in image for point in expected) and tuple(high.tolist()) not in image


def test_large_skewed_images_answer_or_are_refused_within_a_limit() -> None:
    p = IndexProjection(AffineMap(((36674, 61119, 85569), (1, 1, 1)), (0, 0)), (1, 1))
    image = p.image(Box.of((10**6,) * 3))
    assert isinstance(image, ImplicitRegion)
    assert (0, 0) in image and (36674, 1) in image and (1, 1) not in image
    with pytest.raises(TooHard, match=r"ImplicitRegion\.size"):
        _ = IndexProjection(AffineMap(((3, 5, 7), (1, 1, 1)), (0, 0)), (1, 1)).image(Box.of((10**6,) * 3)).size


@pytest.mark.parametrize("within", [None, Box((0,), (9,))])
def test_an_empty_box_shares_nothing(within: Box | None) -> None:
    window = IndexProjection(AffineMap(((2,),), (1,)), (3,))
    some, none = Box((1,), (4,)), Box((2,), (0,))
    for one, other in ((some, none), (none, some), (none, none)):
        shared = window.shared(one, other, within)
        assert shared.is_empty and shared.size == 0
        assert within is None or (shared.start, shared.shape) == (within.start, within.shape)
    with pytest.raises(ValueError, match="other"):
        window.shared(some, Box((0, 0), (0, 2)))
