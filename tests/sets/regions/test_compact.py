"""Results of the algebra of regions are as few members as the picture shows: parts that touch are joined."""

from __future__ import annotations

from itertools import product

from tapestry_sets import DisjointRegions, Region

BOX = (6, 8)


def box(lo: tuple[int, int], hi: tuple[int, int]) -> Region:
    return Region.from_bounds(BOX, lo, hi)


def points(region: Region | DisjointRegions) -> set[tuple[int, ...]]:
    return {point for point in product(*map(range, region.shape)) if point in region}


def test_the_common_part_of_cut_regions_is_one_box() -> None:
    rows = DisjointRegions(BOX, [box((0, 0), (3, 8)), box((3, 0), (6, 8))])
    columns = DisjointRegions(BOX, [box((0, 0), (6, 5)), box((0, 5), (6, 8))])
    middle = box((1, 2), (5, 7))
    for one, other in ((rows, middle), (middle, columns), (rows & middle, columns), (rows, columns)):
        both = one & other
        assert points(both) == points(one) & points(other)
        assert len(both.members) == 1


def test_what_is_left_of_cut_regions_is_joined() -> None:
    rows = DisjointRegions(BOX, [box((i, 0), (i + 1, 8)) for i in range(6)])
    left = rows - box((0, 3), (6, 8))  # the columns 0, 1 and 2 of six rows
    assert left.members == (box((0, 0), (6, 3)),)
    halves = DisjointRegions(BOX, [box((0, 0), (6, 4)), box((0, 4), (6, 8))])
    left = halves - box((2, 0), (6, 8))
    assert left.members == (box((0, 0), (2, 8)),)


def test_a_hole_leaves_four_boxes_however_the_region_was_cut() -> None:
    rows = DisjointRegions(BOX, [box((i, 0), (i + 1, 8)) for i in range(6)])
    for whole in (rows, Region.full(BOX)):
        ring = whole - box((2, 3), (4, 5))
        assert points(ring) == points(Region.full(BOX)) - points(box((2, 3), (4, 5)))
        assert len(ring.members) <= 4
        assert (ring | box((2, 3), (4, 5))).members == (Region.full(BOX),)


def test_a_stripe_less_a_stripe_is_one_member() -> None:
    thirds = Region.from_slices(BOX, (slice(None), slice(0, None, 3)))
    left = Region.full(BOX) - thirds
    assert points(left) == {p for p in points(Region.full(BOX)) if p[1] % 3}
    assert len(left.members) == 1


def test_what_is_filled_with_parts_that_touch_is_one_member() -> None:
    scaffold = Region.from_slices(BOX, (slice(0, None, 2), slice(None)))
    ink = DisjointRegions(
        (3, 8), [Region.from_bounds((3, 8), (0, 0), (3, 5)), Region.from_bounds((3, 8), (0, 5), (3, 8))]
    )
    assert len(ink.members) == 2
    filled = scaffold.fill(ink)
    assert points(filled) == {p for p in points(Region.full(BOX)) if p[0] % 2 == 0}
    assert len(filled.members) == 1


def test_a_region_and_a_reshaped_one_are_met_by_their_points() -> None:
    """Sets held by row-major numbers answer themselves, whichever side of the operator they are on."""
    reshaped = Region.from_slices((4, 12), (slice(None), slice(5))).reshape(BOX)
    numbers = {divmod(z, 8) for z in range(48) if z % 12 < 5}
    middle = box((1, 2), (5, 7))
    inside = points(middle)
    for found, wanted in (
        (middle & reshaped, inside & numbers),
        (middle | reshaped, inside | numbers),
        (middle - reshaped, inside - numbers),
        (middle ^ reshaped, inside ^ numbers),
        (reshaped - middle, numbers - inside),
    ):
        assert {tuple(at) for at in found.points().tolist()} == wanted
