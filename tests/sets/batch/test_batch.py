"""Batches of stripes, boxes and regions against enumeration by the definition, and against one pair at a time."""

from __future__ import annotations

import tracemalloc
from itertools import product
from math import gcd, lcm
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from oracles import in_nesting, listed_points
from strategies import regions_in_one_box, shapes, stripes

from tapestry_sets import Box, Region, Sett, Stripe
from tapestry_sets.batch import kernels, tuning
from tapestry_sets.batch.batches import BoxArray, StripeArray
from tapestry_sets.batch.region_arrays import RegionArray
from tapestry_sets.integers.stripe import stripes_count_common, stripes_disjoint, stripes_first_common

HUGE = (1 << 31, 1 << 32, (1 << 53) - 1, 1 << 62, (1 << 63) - 25, 1 << 63, 1 << 64, 10**30)


def level(stripe: Stripe) -> tuple[int, int, int]:
    """The stripe as (on, period, phase), from its public attributes."""
    return stripe.on, stripe.on + stripe.off, stripe.phase


def huge_stripes() -> st.SearchStrategy[Stripe]:
    """Stripes whose periods are near powers of two where one kind of number ends and the next begins."""
    period = st.builds(lambda n, k: n - k, st.sampled_from(HUGE), st.integers(0, 40)) | st.integers(1, 50)
    on = period.flatmap(lambda p: st.tuples(st.sampled_from([1, p // 2 + 1, p]) | st.integers(1, p), st.just(p)))
    return st.builds(lambda ab, q: Stripe(ab[0], ab[1] - ab[0], q), on, st.integers(-(10**20), 10**20))


def whole(x: np.ndarray) -> list[Any]:
    """An array as nested lists, in which every integer is a Python integer."""
    assert x.dtype in (np.dtype(bool), np.dtype(np.int64), np.dtype(object)), x.dtype
    if x.dtype == object:
        assert all(type(v) is int for v in x.ravel()), x
        assert any(not -(1 << 63) <= v < 1 << 63 for v in x.ravel()), "int64 holds all of it"
    return x.tolist()


def few(part: int) -> settings:
    """A part of the profile's examples, for tests that ask many questions of each."""
    return settings(max_examples=settings.default.max_examples // part)


# ----------------------------------------------------------------------------------------------------- stripes


@given(st.lists(stripes(), max_size=5), st.lists(stripes(), max_size=5))
def test_which_of_all_pairs_of_stripes_overlap(left: list[Stripe], right: list[Stripe]) -> None:
    found = StripeArray.of(left)[:, None].overlaps(StripeArray.of(right))
    assert found.shape == (len(left), len(right))
    for (i, s), (j, t) in product(enumerate(left), enumerate(right)):
        meet = any(in_nesting([s], z) and in_nesting([t], z) for z in range(lcm(s.period, t.period)))
        assert found[i, j] == meet, (s, t)
    assert (StripeArray.of(left)[:, None].isdisjoint(StripeArray.of(right)) == ~found).all()


@given(st.lists(st.tuples(stripes(), stripes(), st.integers(-40, 40), st.integers(0, 150)), max_size=5))
def test_first_and_number_of_common_elements_pair_by_pair(
    cases: list[tuple[Stripe, Stripe, int, int]],
) -> None:
    left, right = StripeArray.of(c[0] for c in cases), StripeArray.of(c[1] for c in cases)
    start = [c[2] for c in cases]
    stop = [c[2] + c[3] for c in cases]
    found, value = left.first_common(right, start)
    counts, own = left.count_common(right, start, stop), left.count(start, stop)
    for k, (s, t, lo, n) in enumerate(cases):
        common = [z for z in range(lo, lo + max(n, 2 * s.period * t.period)) if in_nesting([s], z)]
        common = [z for z in common if in_nesting([t], z)]
        assert (found[k], value[k]) == ((True, common[0]) if common else (False, 0)), (s, t, lo)
        assert counts[k] == sum(z < lo + n for z in common), (s, t, lo, n)
        assert own[k] == sum(in_nesting([s], z) for z in range(lo, lo + n)), (s, lo, n)


@given(
    st.lists(huge_stripes(), min_size=1, max_size=4),
    st.lists(huge_stripes(), min_size=1, max_size=4),
    st.integers(-(10**25), 10**25) | st.integers(-99, 99),
    st.integers(0, 10**25) | st.integers(0, 10**9),
)
@example([Stripe(1, (1 << 62) - 1)], [Stripe(1, (1 << 62) - 2)], 1, 1 << 62)
@example([Stripe(2, 3)], [Stripe(3, 4)], 5 - (1 << 63), (1 << 64) - 99)  # start and stop fit, their distance does not
@example([Stripe(1 << 61, 1 << 61)], [Stripe(3, 1 << 31, 5)], -(1 << 62), (1 << 63) - 1)
def test_huge_periods_as_one_pair_at_a_time_in_python_integers(
    left: list[Stripe], right: list[Stripe], start: int, length: int
) -> None:
    a, b = StripeArray.of(left)[:, None], StripeArray.of(right)
    pairs = [[(level(s), level(t)) for t in right] for s in left]
    assert whole(a.overlaps(b)) == [[not stripes_disjoint(s, t) for s, t in row] for row in pairs]
    firsts = [[stripes_first_common(s, t, start) for s, t in row] for row in pairs]
    found, value = a.first_common(b, start)
    assert whole(found) == [[z is not None for z in row] for row in firsts]
    assert whole(value) == [[z or 0 for z in row] for row in firsts]
    counts = [[stripes_count_common(s, t, start, start + length) for s, t in row] for row in pairs]
    assert whole(a.count_common(b, start, start + length)) == counts
    assert whole(a.count(start, start + length)[:, 0]) == [s.count(start, start + length) for s in left]


def test_one_huge_pair_leaves_the_others_in_the_machines_integers() -> None:
    a, b = StripeArray(1, [3, 4294967291, 5]), StripeArray(1, [2, 4294967279, 7])
    found, value = a.first_common(b, 1)
    assert found.all()
    assert value.dtype == object and value.tolist() == [6, 4294967291 * 4294967279, 35]
    assert a[::2].first_common(b[::2], 1).value.dtype == np.int64


def test_counts_that_wrap_on_the_way_are_right() -> None:
    # the sums behind this count pass 2**64 many times; the count itself is one for each common period
    a, b = StripeArray(1, 3), StripeArray(1, 5)
    assert a.count_common(b, 0, 15 * 10**17).tolist() == 10**17
    assert a.count_common(b, 0, 15 * 10**17).dtype == np.int64


@given(st.lists(stripes(), min_size=1, max_size=6), st.data())
def test_a_batch_is_indexed_as_an_array_and_gives_its_stripes_back(left: list[Stripe], data: st.DataObject) -> None:
    batch = StripeArray.of(left)
    assert list(batch) == left and len(batch) == len(left)
    at = data.draw(st.integers(-len(left), len(left) - 1))
    assert batch[at] == left[at]
    part = data.draw(st.slices(len(left)))
    assert list(batch[part]) == left[part]
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=len(left), max_size=len(left))))
    assert list(batch[mask]) == [s for s, keep in zip(left, mask, strict=True) if keep]
    assert batch[None, :, None].batch_shape == (1, len(left), 1)


# ------------------------------------------------------------------------------------------------------- boxes


@st.composite
def boxes(draw: st.DrawFn, scale: int = 1) -> list[Box]:
    """Boxes of one rank, some of them empty."""
    rank = draw(st.integers(0, 3))
    axis = st.tuples(st.integers(-4, 4), st.integers(0, 5))
    made = draw(st.lists(st.tuples(*[axis] * rank), min_size=1, max_size=4))
    return [Box(tuple(scale * lo for lo, _ in box), tuple(scale * n for _, n in box)) for box in made]


@given(boxes())
def test_boxes_against_their_points(items: list[Box]) -> None:
    batch = BoxArray.of(items)
    points = [set(product(*(range(a, a + n) for a, n in zip(b.start, b.shape, strict=True)))) for b in items]
    left = batch[:, None]
    found, value = left.first_common(batch)
    overlaps, counts, common = left.overlaps(batch), left.count_common(batch), left.intersection(batch)
    for i, j in product(range(len(items)), repeat=2):
        both = points[i] & points[j]
        assert overlaps[i, j] == found[i, j] == bool(both)
        assert counts[i, j] == len(both)
        assert tuple(value[i, j]) == (min(both) if both else (0,) * batch.rank)
        assert not both or set(common[i, j].points()) == both
    assert batch.size.tolist() == list(map(len, points))
    assert list(batch) == items
    every = set().union(*points)
    hull = batch.bounds()
    assert (hull is None) == (not every)
    if hull is not None:
        assert hull.start == tuple(min(p[k] for p in every) for k in range(batch.rank))
        assert hull.stop == tuple(max(p[k] for p in every) + 1 for k in range(batch.rank))


@pytest.mark.parametrize("scale", [1 << 20, 1 << 31, 1 << 61, 1 << 70])
@given(items=boxes())
def test_boxes_scaled_beyond_the_machines_integers(scale: int, items: list[Box]) -> None:
    def scaled(box: Box) -> Box:
        return Box(tuple(scale * a for a in box.start), tuple(scale * n for n in box.shape))

    small, large = BoxArray.of(items), BoxArray.of(map(scaled, items))
    factor = scale**small.rank
    expected = [[n * factor for n in row] for row in small[:, None].count_common(small).tolist()]
    assert whole(large[:, None].count_common(large)) == expected
    assert (large.overlap_matrix() == small.overlap_matrix()).all()
    hull = small.bounds()
    assert large.bounds() == (None if hull is None else scaled(hull))


# ----------------------------------------------------------------------------------------------------- regions


def check_regions(left: list[Region], right: list[Region], a: RegionArray, b: RegionArray) -> None:
    """Compare every answer about all pairs with the points, listed."""
    mine, theirs = ([listed_points(r) for r in some] for some in (left, right))
    rows = a[:, None]
    overlaps, counts, (found, value) = rows.overlaps(b), rows.count_common(b), rows.first_common(b)
    assert value.shape == (len(left), len(right), a.rank)
    for (i, p), (j, q) in product(enumerate(mine), enumerate(theirs)):
        both = p & q
        assert overlaps[i, j] == found[i, j] == bool(both), (left[i], right[j])
        assert counts[i, j] == len(both), (left[i], right[j])
        assert tuple(value[i, j]) == (min(both) if both else (0,) * a.rank), (left[i], right[j])
    assert a.size.tolist() == list(map(len, mine))
    every = set().union(*mine)
    hull = a.bounds()
    assert (hull is None) == (not every)
    if hull is not None:
        assert hull.start == tuple(min(z[k] for z in every) for k in range(a.rank))
        assert hull.stop == tuple(max(z[k] for z in every) + 1 for k in range(a.rank))


@given(regions_in_one_box(4))
def test_regions_of_any_form_against_their_points(regions: tuple[Region, ...]) -> None:
    left, right = list(regions), list(regions[:2])
    batch = RegionArray.of(left)
    check_regions(left, right, batch, RegionArray.of(right))
    assert list(batch) == left


@st.composite
def strided(draw: st.DrawFn, max_extent: int = 9) -> tuple[tuple[int, ...], tuple[int, ...], list[Any]]:
    """A box, and rows of (low, high, step) for each of its axes."""
    shape = draw(shapes(3, max_extent))
    start = tuple(draw(st.integers(-5, 5)) for _ in shape)
    ends = [st.tuples(st.integers(lo, lo + n), st.integers(lo, lo + n)) for lo, n in zip(start, shape, strict=True)]
    axes = [st.tuples(end.map(sorted), st.integers(1, 6)) for end in ends]
    rows = draw(st.lists(st.tuples(*axes), min_size=1, max_size=4))
    return shape, start, [[(lo, hi, step) for (lo, hi), step in row] for row in rows]


def as_columns(rows: list[Any], rank: int) -> np.ndarray:
    """The rows as an array (low, high, step) x row x axis."""
    return np.array(rows, np.int64).reshape(len(rows), rank, 3).transpose(2, 0, 1)


@given(strided())
def test_strided_regions_from_columns_against_their_points(case: tuple[Any, Any, list[Any]]) -> None:
    shape, start, rows = case
    batch = RegionArray(shape, *as_columns(rows, len(shape)), start=start)
    regions = list(batch)
    for region, row in zip(regions, rows, strict=True):
        assert listed_points(region) == set(product(*(range(*axis) for axis in row)))
    check_regions(regions, regions, batch, batch)
    check_regions(regions, regions, batch, RegionArray.of(regions))


@given(st.data(), st.sampled_from([1, 10**5, 1 << 24, 1 << 25, 1 << 29, 1 << 30, 10**15, 1 << 62, 10**25]))
def test_strided_regions_in_boxes_of_any_size_as_one_pair_at_a_time(data: st.DataObject, extent: int) -> None:
    bound = st.integers(0, extent) | st.sampled_from([0, 1, extent // 2, extent])
    step = data.draw(st.sampled_from([st.integers(1, extent) | st.integers(1, 9), st.just(1)]))  # or runs alone
    axis = st.tuples(st.tuples(bound, bound).map(sorted), step)
    rows = data.draw(st.lists(st.tuples(axis, axis), min_size=1, max_size=4))
    keys = [tuple(slice(lo, hi, s) for (lo, hi), s in row) for row in rows]
    regions = [Region.from_slices((extent, extent), key) for key in keys]
    batch = RegionArray.of(regions)
    every = [[(r, s) for s in regions] for r in regions]
    assert whole(batch.overlap_matrix()) == [[not r.isdisjoint(s) for r, s in row] for row in every]
    assert whole(batch.count_matrix()) == [[r.count_common(s) for r, s in row] for row in every]
    assert whole(batch[:, None].count_common(batch)) == [[r.count_common(s) for r, s in row] for row in every]
    firsts = [[r.first_common(s) for r, s in row] for row in every]
    found, value = batch[:, None].first_common(batch)
    assert whole(found) == [[p is not None for p in row] for row in firsts]
    assert whole(value) == [[list(p or (0, 0)) for p in row] for row in firsts]
    assert whole(batch.size) == [r.size for r in regions]


@given(st.data(), st.sampled_from([60, 10**6, 10**12, 10**20]))
def test_regions_of_long_blocks_as_one_pair_at_a_time(data: st.DataObject, extent: int) -> None:
    def axis() -> Sett:
        if data.draw(st.booleans()):
            return Sett(data.draw(stripes(min(extent, 40), 1)))
        period = data.draw(st.integers(1, extent))
        on = data.draw(st.integers(1, period))
        return Sett(Stripe(on, period - on, data.draw(st.integers(0, extent))))

    regions = [Region((extent, 9), [axis(), Sett()]) for _ in range(3)]
    regions.append(Region.from_slices((extent, 9), (slice(3, None, 7), slice(None))))
    batch = RegionArray.of(regions)
    every = [[(r, s) for s in regions] for r in regions]
    assert whole(batch.overlap_matrix()) == [[not r.isdisjoint(s) for r, s in row] for row in every]
    assert whole(batch.count_matrix()) == [[r.count_common(s) for r, s in row] for row in every]
    assert whole(batch[:, None].count_common(batch)) == [[r.count_common(s) for r, s in row] for row in every]
    firsts = [[r.first_common(s) for r, s in row] for row in every]
    assert whole(batch[:, None].first_common(batch).value) == [[list(p or (0, 0)) for p in row] for row in firsts]


@pytest.mark.parametrize("bits", [16, 20, 26, 30, 34, 40, 46, 52, 58, 62])
def test_progressions_that_meet_late_whatever_numbers_they_take(bits: int) -> None:
    source = np.random.default_rng(bits)
    extent, longest = 1 << bits, 1 << (bits // 2)
    low = source.integers(0, extent // 8, (40, 1))
    step = source.integers(longest // 2, longest, (40, 1))
    batch = RegionArray((extent,), low, np.full_like(low, extent), step)
    found, value = batch[:, None].first_common(batch)
    counts = batch[:, None].count_common(batch)
    pairs = [(int(a), int(p)) for a, p in zip(low[:, 0], step[:, 0], strict=True)]
    for (i, (a, p)), (j, (b, q)) in product(enumerate(pairs), repeat=2):
        common = lcm(p, q)
        late = max(a, b)
        z = None if (b - a) % gcd(p, q) else a + p * ((b - a) // gcd(p, q) * pow(p // gcd(p, q), -1, q // gcd(p, q)))
        z = None if z is None else late + (z - late) % common
        meet = z is not None and z < extent
        assert (found[i, j], value[i, j, 0]) == (meet, z if meet else 0), (pairs[i], pairs[j])
        assert counts[i, j] == ((extent - 1 - z) // common + 1 if meet else 0), (pairs[i], pairs[j])


@pytest.mark.parametrize("phase", range(12))
def test_blocks_that_a_box_cuts_keep_the_elements_of_both_ends(phase: int) -> None:
    regions = [Region((20,), [Sett(Stripe(5, 7, phase), Stripe(1, 1))])]
    regions.append(Region((20,), [Sett(Stripe(9, 9, phase), Stripe(2, 1))]))
    check_regions(regions, regions, RegionArray.of(regions), RegionArray.of(regions))


def test_slices_of_one_tensor_are_the_ones_that_share_memory_in_numpy() -> None:
    source = np.random.default_rng(0)
    array = np.empty((1024, 1024), np.int8)
    low = source.integers(0, 900, (601, 2))
    high = source.integers(low + 1, 1025)
    step = source.integers(1, 6, (601, 2))
    batch = RegionArray(array.shape, low, high, step)
    matrix, counts = batch.overlap_matrix(), batch.count_matrix()
    assert ((counts > 0) == matrix).all() and counts.dtype == np.int64
    assert (counts[::40, ::30] == batch[::40, None].count_common(batch[::30])).all()
    views = [
        array[tuple(slice(*ends) for ends in zip(*map(np.ndarray.tolist, row), strict=True))]
        for row in zip(low, high, step, strict=True)
    ]
    assert matrix.shape == (601, 601) and (matrix == matrix.T).all() and matrix.diagonal().all()
    for i, j in source.integers(0, 601, (3000, 2)).tolist():
        assert matrix[i, j] == np.shares_memory(views[i], views[j]), (i, j)


@pytest.mark.parametrize("limits", [{}, {"MAX_TABLE": 0}, {"MAX_TABLE": 400}, {"PAIRS_AT_ONCE": 50}])
@pytest.mark.parametrize("numbers", [{}, {"FLOAT_EXACT": 0}])
@pytest.mark.parametrize(("many", "kinds"), [(150, 150), (150, 20), (3, 3)])
def test_all_pairs_of_slices_are_those_whose_masks_meet(
    many: int, kinds: int, limits: dict[str, int], numbers: dict[str, int]
) -> None:
    """Slices that begin anywhere, below 0 too; few different ones, and all different; few periods, short ones."""
    source = np.random.default_rng(many + kinds)
    start, shape = (-30, 5), (61, 47)
    low = source.integers((0, 0), shape, (kinds, 2))
    high = source.integers(low, np.array(shape) + 1)
    step = source.integers(1, 8, (kinds, 2))
    pick = source.integers(0, kinds, many)
    masks = np.zeros((many, *shape), np.float32)
    for mask, k in zip(masks, pick, strict=True):
        mask[tuple(slice(*ends) for ends in zip(low[k], high[k], step[k], strict=True))] = 1
    flat = masks.reshape(many, -1)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in limits.items():
            patch.setattr(tuning, name, value)
        for name, value in numbers.items():
            patch.setattr(kernels, name, value)
        batch = RegionArray(shape, low[pick] + start, high[pick] + start, step[pick], start)
        assert (batch.overlap_matrix() == (flat @ flat.T > 0)).all()
        assert (batch.count_matrix() == flat @ flat.T).all()


# ---------------------------------------------------------------------------------------------- numbers, blocks


@pytest.mark.parametrize("limits", [{"FLOAT_EXACT": 0}, {"FLOAT_EXACT": 0, "INT_EXACT": 0}, {"PAIRS_AT_ONCE": 3}])
@few(4)
@given(regions_in_one_box(4, max_rank=2), st.lists(stripes(), min_size=1, max_size=5))
def test_answers_do_not_depend_on_the_numbers_or_the_blocks(
    limits: dict[str, int], regions: tuple[Region, ...], some: list[Stripe]
) -> None:
    batch, line = RegionArray.of(regions), StripeArray.of(some)

    def answers() -> list[Any]:
        rows, lines = batch[:, None], line[:, None]
        out = [*rows.first_common(batch), rows.count_common(batch), batch.overlap_matrix(), *batch.overlapping_pairs()]
        out += [*lines.first_common(line, -7), lines.count_common(line, -9, 99), line.count(-5, 50)]
        return [*map(np.ndarray.tolist, out), *(x.tolist() for x in line.overlapping_pairs(line[1:]))]

    expected = answers()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in limits.items():
            patch.setattr(tuning if name == "PAIRS_AT_ONCE" else kernels, name, value)
        assert answers() == expected


def test_all_pairs_need_little_memory_beside_the_answer() -> None:
    n = 2000
    low = np.arange(2 * n).reshape(n, 2) % 700
    batch = RegionArray((1024, 1024), low, low + 300, low % 17 + 1)
    tracemalloc.start()
    try:
        batch[:, None].overlaps(batch)
        pairs = tracemalloc.get_traced_memory()[1]
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        batch.overlap_matrix()
        matrix = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    assert pairs < 4 * n * n, f"{pairs} bytes for {n * n} answers of one byte"
    assert matrix < 2 * n * n, f"{matrix} bytes for {n * n} answers of one byte"


@given(regions_in_one_box(5, max_rank=2))
def test_overlapping_pairs_are_those_of_the_matrix(regions: tuple[Region, ...]) -> None:
    batch = RegionArray.of(regions)
    matrix = batch.overlap_matrix()
    assert np.array_equal(batch.overlapping_pairs(), np.nonzero(np.triu(matrix, 1)))
    assert np.array_equal(batch.overlapping_pairs(batch[1:4]), np.nonzero(matrix[:, 1:4]))
    assert np.array_equal(batch.overlap_matrix(batch[2:]), matrix[:, 2:])


# ----------------------------------------------------------------------------------------- other array libraries


@few(4)
@given(strided(), st.lists(stripes(), min_size=2, max_size=4))
def test_a_strict_array_library_gives_the_same(case: tuple[Any, Any, list[Any]], some: list[Stripe]) -> None:
    xp = pytest.importorskip("array_api_strict")
    shape, start, rows = case
    ends = as_columns(rows, len(shape))

    def same(strict: Any, mine: Any) -> None:
        strict, mine = (x if isinstance(x, tuple) else (x,) for x in (strict, mine))
        for x, y in zip(strict, mine, strict=True):
            assert type(x) is type(xp.asarray(0)), "the answer left the library"
            assert np.array_equal(np.from_dlpack(x), y)

    one, two = RegionArray(shape, *map(xp.asarray, ends), start=start), RegionArray(shape, *ends, start=start)
    same(one[:, None].count_common(one), two[:, None].count_common(two))
    same(one[:, None].first_common(one), two[:, None].first_common(two))
    same(one.overlap_matrix(), two.overlap_matrix())
    same(one.overlapping_pairs(), two.overlapping_pairs())
    assert list(one) == list(two) and one.bounds() == two.bounds()
    box, plain = BoxArray(xp.asarray(ends[0]), xp.asarray(ends[2])), BoxArray(ends[0], ends[2])
    same(box[:, None].count_common(box), plain[:, None].count_common(plain))
    same(box[:, None].first_common(box), plain[:, None].first_common(plain))
    same(box.overlap_matrix(), plain.overlap_matrix())
    levels = np.array([level(s) for s in some]).T
    line, flat = StripeArray(*map(xp.asarray, levels)), StripeArray.of(some)
    same(line[:, None].first_common(line, [-3]), flat[:, None].first_common(flat, [-3]))
    same(line[:, None].count_common(line, -9, 200), flat[:, None].count_common(flat, -9, 200))
    same(line.count(-9, 200), flat.count(-9, 200))
    same(line.overlap_matrix(), flat.overlap_matrix())


def test_a_strict_array_library_falls_back_to_python_integers() -> None:
    xp = pytest.importorskip("array_api_strict")
    a = StripeArray(1, xp.asarray([4294967291, 3]))
    found, value = a.first_common(StripeArray(1, xp.asarray([4294967279, 5])), 1)
    assert type(found) is type(a.on)
    assert isinstance(value, np.ndarray) and value.tolist() == [4294967291 * 4294967279, 15]
    deep = Region((30,), [Sett(Stripe(7, 3), Stripe(2, 2), Stripe(1, 1))])
    regions = [deep, Region.from_slices((30,), slice(4, None, 10)), Region((30,), [Stripe(3, 4)])]
    batch, plain = RegionArray.of(regions, xp), RegionArray.of(regions)
    assert type(batch.low) is type(a.on)
    assert np.array_equal(np.from_dlpack(batch.overlap_matrix()), plain.overlap_matrix())
    for mine, theirs in zip(batch[:, None].first_common(batch), plain[:, None].first_common(plain), strict=True):
        assert np.array_equal(np.from_dlpack(mine), theirs)
    counts = np.from_dlpack(batch[:, None].count_common(batch)).tolist()
    assert counts == [[r.count_common(s) for s in regions] for r in regions]


def test_arrays_that_name_no_library_are_of_the_one_that_their_type_is_from() -> None:
    class Plain:  # as CuPy's before version 14
        dtype, shape = np.dtype(np.int64), (1,)

    Plain.__module__ = "numpy.somewhere"
    assert kernels.namespace(Plain()) is np


# --------------------------------------------------------------------------------------------------- small, wrong


def test_batches_without_items_answer_for_no_pair() -> None:
    none = StripeArray([], [], [])
    assert len(none) == 0 and list(none) == []
    some = StripeArray(1, [2, 3])
    assert none[:, None].overlaps(some).shape == (0, 2)
    assert none[:, None].count_common(some, 0, 9).shape == (0, 2)
    assert some[:, None].first_common(none, 0).value.shape == (2, 0)
    assert none.overlap_matrix().shape == (0, 0)
    assert [x.tolist() for x in none.overlapping_pairs()] == [[], []]
    assert [x.tolist() for x in none.overlapping_pairs(some)] == [[], []]
    empty = RegionArray((4, 4), np.zeros((0, 2), int), np.zeros((0, 2), int))
    assert empty.bounds() is None and empty.size.shape == (0,)
    assert empty[:, None].first_common(empty).value.shape == (0, 0, 2)
    assert empty.overlap_matrix().shape == (0, 0)
    boxes = BoxArray(np.zeros((0, 3), int), np.zeros((0, 3), int))
    assert boxes.bounds() is None and boxes.overlap_matrix().shape == (0, 0)


def test_regions_and_boxes_of_no_axes_hold_one_point_or_none() -> None:
    batch = RegionArray.of([Region.full(()), Region.empty(()), Region.full(())])
    assert batch.size.tolist() == [1, 0, 1]
    assert batch.overlap_matrix().tolist() == [[True, False, True], [False, False, False], [True, False, True]]
    assert batch[:, None].first_common(batch).value.shape == (3, 3, 0)
    boxes = BoxArray.of([Box((), ()), Box((), ())])
    assert boxes.size.tolist() == [1, 1] and boxes.overlap_matrix().all()
    assert boxes.bounds() == Box((), ())


def test_one_pair_without_axes_of_a_batch() -> None:
    a, b = StripeArray(1, 2), StripeArray(1, 3, 1)
    assert a.overlaps(b).shape == () and bool(a.overlaps(b))
    assert int(a.first_common(b, 0).value) == 4 and int(a.count_common(b, 0, 600)) == 100
    with pytest.raises(TypeError, match="StripeArray: a batch of no axes has no length"):
        len(a)
    evens, thirds = RegionArray((60,), [0], [60], [2]), RegionArray((60,), [1], [60], [3])
    assert bool(evens.overlaps(thirds)) and int(evens.count_common(thirds)) == 10
    assert repr(evens) == "<RegionArray of batch shape ()>" and repr(a) == "<StripeArray of batch shape ()>"


@pytest.mark.parametrize("period", [2**63 + 1, 10**30])
def test_one_stripe_without_axes_may_have_a_period_beyond_the_machines_integers(period: int) -> None:
    a = StripeArray(1, period, 5 - 3 * period)
    assert a[()] == Stripe(1, period - 1, 5) and a[None][0] == a[()] and a.phase.dtype == object
    assert bool(a.overlaps(StripeArray(1, 2, 1))) and int(a.count(0, 7 * period)) == 7
    assert int(a.first_common(StripeArray([1], 3, (5 + period) % 3 or 3), 6).value[0]) % period == 5


def test_python_integers_beyond_the_machines_are_columns_too() -> None:
    batch = StripeArray(1, [10**30, 3])
    assert batch[0] == Stripe(1, 10**30 - 1) and batch.on.dtype == object
    assert StripeArray(np.array([1], np.uint64), np.array([(1 << 64) - 1], np.uint64))[0] == Stripe(1, (1 << 64) - 2)
    assert StripeArray(np.int8([1]), np.uint8([200]))[0] == Stripe(1, 199)
    assert RegionArray((10**30,), [[5]], [[10**30]], [[10**29]]).size.tolist() == [10]
    assert BoxArray([[10**30]], [[4]])[0] == Box((10**30,), (4,))


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: StripeArray([True], [2]), TypeError, "StripeArray: on must be an integer, not the truth value True"),
        (lambda: StripeArray(np.array([True]), [2]), TypeError, "StripeArray: on must be .* not of bool"),
        (lambda: StripeArray([1], [2.0]), TypeError, r"StripeArray: period must be an integer, not 2.0"),
        (lambda: StripeArray([1], np.array([2.0])), TypeError, "StripeArray: period must be .* not of float64"),
        (lambda: StripeArray([1], [2], "x"), TypeError, "StripeArray: phase must be an integer, not 'x'"),
        (lambda: StripeArray([1, -1], 2), ValueError, "StripeArray: on is -1 in row 1"),
        (lambda: StripeArray([1, 1, 1], [2, 3, 0]), ValueError, "StripeArray: period is 0 in row 2"),
        (lambda: StripeArray(3, [[2, 4]]), ValueError, r"StripeArray: on is 3 in row \(0, 0\); on must be at most"),
        (lambda: StripeArray(3, 2), ValueError, "StripeArray: on is 3 in the only row"),
        (lambda: StripeArray([1, 1], [2, 3, 4]), ValueError, r"StripeArray: .*shapes \(2,\) and \(3,\)"),
        (lambda: StripeArray([[1], [1, 2]], 3), ValueError, "StripeArray: on must have rows of one length"),
        (lambda: StripeArray.of([Stripe(1, 1), Sett()]), TypeError, r"StripeArray.of: item 1 must be a Stripe"),
        (lambda: StripeArray(1, [2, 3]).overlaps(StripeArray(1, [2, 3, 4])), ValueError, r"overlaps: shapes \(2,\)"),
        (lambda: StripeArray(1, [2]).overlaps(Stripe(1, 1)), TypeError, "overlaps: takes a StripeArray, not Stripe"),
        (lambda: StripeArray(1, [2]).count(0, 1.5), TypeError, "count: stop must be an integer, not 1.5"),
        (lambda: StripeArray(1, [2]).count([0, 5], [3, 4]), ValueError, "count: start is 5 in row 1; start must not"),
        (
            lambda: StripeArray(1, [2]).count_common(StripeArray(1, [2]), 3, 1),
            ValueError,
            "count_common: start is 3 in the only row",
        ),
        (lambda: StripeArray(1, [2]).first_common(StripeArray(1, [2]), None), TypeError, "first_common: start"),
        (lambda: StripeArray(1, [[2]]).overlap_matrix(), ValueError, r"overlap_matrix: .* not of shape \(1, 1\)"),
        (lambda: StripeArray(1, 2).overlapping_pairs(), ValueError, r"overlapping_pairs: .* not of shape \(\)"),
        (lambda: BoxArray([[0]], [[-1]]), ValueError, r"BoxArray: an extent is -1 in row \(0, 0\)"),
        (lambda: BoxArray(0, 1), ValueError, "BoxArray: start, shape need a last axis"),
        (lambda: BoxArray([[0.0]], [[1]]), TypeError, "BoxArray: start must be an integer, not 0.0"),
        (lambda: BoxArray.of([]), ValueError, "BoxArray.of: no boxes"),
        (lambda: BoxArray.of([Box((0,), (1,)), Box((), ())]), ValueError, "BoxArray.of: item 1 has rank 0"),
        (lambda: BoxArray.of([((0,), (1,))]), TypeError, "BoxArray.of: item 0 must be a Box"),
        (lambda: BoxArray([[0]], 1).overlaps(BoxArray([[0, 0]], 1)), ValueError, "boxes of rank 1 and boxes of rank 2"),
        (lambda: BoxArray([[0]], 1).overlaps(Box((0,), (1,))), TypeError, "intersection: takes a BoxArray, not Box"),
        (lambda: RegionArray((4,), [[-1]], [[2]]), ValueError, r"RegionArray: low is -1 in row 0; the box is \[0, 4\)"),
        (lambda: RegionArray((4,), [[1]], [[5]]), ValueError, r"RegionArray: high is 5 in row 0; the box is \[0, 4\)"),
        (lambda: RegionArray((4,), [[3]], [[2]]), ValueError, r"RegionArray: low is 3 in row \(0, 0\); low must be at"),
        (lambda: RegionArray((4,), [[0]], [[2]], 0), ValueError, r"RegionArray: step is 0 in row \(0, 0\)"),
        (lambda: RegionArray((4, 4), [[0]], [[2]]), ValueError, r"RegionArray: columns of 1 axes for shape \(4, 4\)"),
        (lambda: RegionArray.of([]), ValueError, "RegionArray.of: no regions"),
        (lambda: RegionArray.of([Region.full((2,)), 3]), TypeError, "RegionArray.of: item 1 must be a Region, not 3"),
        (
            lambda: RegionArray.of([Region.full((2,)), Region.full((3,))]),
            ValueError,
            r"RegionArray.of: .* item 1 has shape \(3,\)",
        ),
        (
            lambda: RegionArray((4,), [[0]], [[2]]).overlaps(RegionArray((5,), [[0]], [[2]])),
            ValueError,
            r"overlaps: both batches must be in one box",
        ),
        (lambda: RegionArray((4,), [[0]], [[2]]).overlaps(3), TypeError, "overlaps: takes a RegionArray, not int"),
    ],
)
def test_wrong_input_is_named_with_its_value_and_the_requirement(make: Any, error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        make()


def test_columns_of_two_libraries_are_refused() -> None:
    xp = pytest.importorskip("array_api_strict")

    class Other:
        dtype, shape = np.dtype(np.int64), (1,)

        def __array_namespace__(self) -> Any:
            return pytest

    with pytest.raises(TypeError, match="columns must be arrays of one library, not array_api_strict and pytest"):
        kernels.namespace(xp.asarray([1]), Other())


def test_sizes_that_multiply_beyond_the_machines_integers() -> None:
    batch = RegionArray((10**12,) * 3, [[0, 0, 0], [0, 0, 0]], [[10**12] * 3, [2, 2, 2]])
    assert whole(batch.size) == [10**36, 8]
    assert whole(batch[:, None].count_common(batch)) == [[10**36, 8], [8, 8]]
    assert whole(batch[1:].size) == [8]
