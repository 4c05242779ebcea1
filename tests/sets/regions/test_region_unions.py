"""Unions of regions: insertion, merging, partitions, the verbs of a region; and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from itertools import combinations
from operator import or_
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapestry_sets import DisjointRegions, Region, Sett, Stripe
from tapestry_sets.regions import tuning
from tests.oracles import listed_points
from tests.strategies import regions_in_one_box

Two = tuple[Region, Region]
Three = tuple[Region, Region, Region]
Four = tuple[Region, Region, Region, Region]


# ------------------------------------------------------------------------------------------- strided slices


@st.composite
def progressions(draw: st.DrawFn, n: int) -> range:
    """Positions of a slice of n that is not empty."""
    start = draw(st.integers(0, n - 1))
    return range(start, draw(st.integers(start + 1, n)), draw(st.integers(1, 12)))


@given(st.data(), st.integers(1, 400), st.integers(1, 30))
def test_two_strided_slices_share_what_their_ranges_do(data: st.DataObject, m: int, n: int) -> None:
    a, b, c, d = (data.draw(progressions(k)) for k in (m, n, m, n))
    r, s = (Region.from_slices((m, n), tuple(slice(x.start, x.stop, x.step) for x in xs)) for xs in ((a, b), (c, d)))
    rows, columns = sorted(set(a) & set(c)), sorted(set(b) & set(d))
    assert r.isdisjoint(s) == (not rows or not columns)
    assert r.count_common(s) == len(rows) * len(columns)
    assert r.first_common(s) == ((rows[0], columns[0]) if rows and columns else None)
    common = r & s
    assert common.points().tolist() == [[i, j] for i in rows for j in columns]
    assert all(Region(m.shape, m.setts) == m for m in common.members)


@given(st.data())
def test_distant_progressions_meet_where_the_remainder_theorem_says(data: st.DataObject) -> None:
    n = 10**12
    x, step = data.draw(st.integers(0, 10**9)), data.draw(st.integers(1, 10**6))
    y, more = data.draw(st.integers(0, 10**9)), data.draw(st.integers(1, 10**6))
    z = data.draw(st.integers(0, n - 1))  # both pass through z
    r = Region.from_slices((n,), (slice(min(x, z) + (z - min(x, z)) % step, None, step),))
    s = Region.from_slices((n,), (slice(min(y, z) + (z - min(y, z)) % more, None, more),))
    first = r.first_common(s)
    assert first is not None
    assert first in r
    assert first in s
    assert first[0] <= z
    assert (z - first[0]) % np.lcm(step, more) == 0
    assert r.count_common(s) == (n - 1 - first[0]) // int(np.lcm(step, more)) + 1
    assert (r & s).size == r.count_common(s)


# ---------------------------------------------------------------------------------------- unions


@given(regions_in_one_box(3))
def test_a_union_is_made_of_what_is_apart(three: Three) -> None:
    members: tuple[Region, ...] = ()
    points = set()
    for region in three:
        theirs = listed_points(region)
        if points & theirs:
            with pytest.raises(ValueError, match=r"members .* share the point"):
                DisjointRegions(region.shape, (*members, region), region.start)
            members += (region - DisjointRegions(region.shape, members, region.start)).members
        else:
            members += (region,)
        points |= theirs
        assert listed_points(DisjointRegions(region.shape, members, region.start)) == points


@given(regions_in_one_box(6), st.sampled_from([0, 10**9]))
def test_many_members_are_asked_by_their_bounds(six: tuple[Region, ...], few: int) -> None:
    """Pairs whose bounds do not meet are passed over: answers are those of the points, with and without."""
    with mock.patch.object(tuning, "FEW_PAIRS", few):
        one, two = (reduce(or_, each, DisjointRegions(six[0].shape, (), six[0].start)) for each in (six[:3], six[3:]))
        mine, theirs = (set().union(*map(listed_points, each)) for each in (six[:3], six[3:]))
        assert listed_points(one) == mine and listed_points(two) == theirs
        assert listed_points(one & two) == mine & theirs and listed_points(one - two) == mine - theirs
        assert one.count_common(two) == len(mine & theirs) and one.isdisjoint(two) == (not mine & theirs)
        assert one.first_common(two) == min(mine & theirs, default=None)
        assert one.issubset(two) == (mine <= theirs)
        if mine & theirs:
            with pytest.raises(ValueError, match="share the point"):
                DisjointRegions(one.shape, (*one.members, *two.members), one.start)


def test_thousands_of_members_are_not_compared_pair_by_pair() -> None:
    box = (10**20, 64)
    rows = [Region.from_bounds(box, (i * 10**15, i % 7), (i * 10**15 + 1, 64)) for i in range(3_000)]
    with mock.patch.object(Region, "_first_shared", autospec=True) as asked:
        asked.side_effect = lambda *_: None
        union = DisjointRegions(box, rows)
    assert not asked.called
    with mock.patch.object(Region, "_count_shared", autospec=True, side_effect=Region._count_shared) as asked:
        assert union.count_common(DisjointRegions(box, rows[::3])) == sum(64 - i % 7 for i in range(0, 3_000, 3))
    assert asked.call_count == 1_000
    with pytest.raises(ValueError, match="share the point"):
        DisjointRegions(box, [*rows, rows[-1]])


@pytest.mark.heavy(2)
@given(regions_in_one_box(4))
def test_results_of_the_algebra_are_merged(four: Four) -> None:
    r, s = four[0] | four[1], four[2] | four[3]
    for found in (r, s, r & s, r | s, r ^ s, four[0] & four[1], four[0] | four[1]):
        assert len(found.merge().members) == len(found.members)
    for found in (r - s, ~r, four[0] - four[1], ~four[0]):  # one box less another is left as boxes
        assert (found.members and all(m.is_box for m in found.members)) or found.merge().members == found.members
    for found in (r, s, r & s, r | s, r ^ s, r - s, ~r, four[0] - four[1]):
        assert not any(touching(a, b) for a, b in combinations(found.members, 2))


def touching(a: Region, b: Region) -> bool:
    """Whether two boxes of intervals are one box: they differ on one axis, and are next to each other there."""
    if None in (*a.spans, *b.spans):
        return False
    differ = [(u, v) for u, v in zip(a.spans, b.spans, strict=True) if u != v]
    return len(differ) == 1 and (differ[0][0][1] == differ[0][1][0] or differ[0][1][1] == differ[0][0][0])


@given(regions_in_one_box(4))
def test_merging_keeps_the_points(four: Four) -> None:
    apart: list[Region] = []
    for region in four:
        for piece in region.regions:
            apart += (piece - DisjointRegions(region.shape, apart, region.start)).members
    union = DisjointRegions(four[0].shape, apart, four[0].start)
    merged = union.merge()
    assert listed_points(merged) == listed_points(union)
    assert len(merged.members) <= len(union.members)


@given(regions_in_one_box(3))
def test_partitions_of_one_set_are_the_same_points(three: Three) -> None:
    r, s, t = three
    one = DisjointRegions(r.shape, [*(r & s).members, *(r - s).members], r.start)
    two = DisjointRegions(r.shape, [*(r & t).members, *(r - t).members], r.start)
    assert one.same_points(two)
    assert one.same_points(r)
    assert r.same_points(two)
    assert one <= two
    assert two >= one
    if not r.is_empty:
        first = min(listed_points(r))
        less = two - Region.from_bounds(r.shape, first, np.add(first, 1).tolist(), r.start)
        assert less.size == r.size - 1
        assert less <= one
        assert not one <= less
        assert not one.same_points(less)


@given(st.data(), regions_in_one_box(1))
def test_a_union_of_one_has_the_verbs_of_its_region(data: st.DataObject, one: tuple[Region]) -> None:
    (r,) = one
    union = DisjointRegions(r.shape, [r], r.start)
    order = data.draw(st.permutations(range(r.rank)))
    moves: list[Callable[[Region | DisjointRegions], Region | DisjointRegions]] = [
        lambda x: x.shift((2,) * x.rank),
        lambda x: x.transpose(order),
        lambda x: x.transpose(),
        lambda x: x.flip(),
        lambda x: x.broadcast_to((2, *x.shape)),
        lambda x: x.reduce_to((1,) * x.rank),
        lambda x: x.slice((slice(None, None, -2),) * x.rank),
        lambda x: x & Region.full(x.shape, x.start),
        lambda x: ~x,
        lambda x: x.sample(Region.full(x.shape, x.start)),
        lambda x: x.fill(Region.full(r.counts)),
    ]
    for move in moves:
        assert move(union).same_points(move(r))
    questions = ("size", "rank", "is_empty", "is_full", "is_box", "shape", "start")
    assert [getattr(union, name) for name in questions] == [getattr(r, name) for name in questions]
    assert union.bounds() == r.bounds()
    assert (union.points() == r.points()).all()


def test_unions_are_made_as_regions_are() -> None:
    box, start = (4, 6), (1, -2)
    assert DisjointRegions.full(box, start).members == (Region.full(box, start),)
    assert DisjointRegions.full((3, 0)).members == ()
    assert DisjointRegions.full(()).is_full
    assert DisjointRegions(()).is_empty


def test_members_are_kept_apart_until_merged() -> None:
    rows = [Region.from_bounds((3, 4), (i, 0), (i + 1, 4)) for i in range(3)]
    union = DisjointRegions((3, 4), rows)
    assert union.members == tuple(rows)
    assert union.merge().members == (Region.full((3, 4)),)


# ---------------------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("verb", "like"),
    [
        (lambda r: r.flip(2), lambda a: np.flip(a, 2)),
        (lambda r: r.flip(-3), lambda a: np.flip(a, -3)),
        (lambda r: r.flip((0, 5)), lambda a: np.flip(a, (0, 5))),
        (lambda r: r.flip((0, -2)), lambda a: np.flip(a, (0, -2))),
        (lambda r: r.transpose((0, 2)), lambda a: a.transpose((0, 2))),
        (lambda r: r.transpose((0, 0)), lambda a: a.transpose((0, 0))),
        (lambda r: r.transpose((0,)), lambda a: a.transpose((0,))),
        (lambda r: r.slice((0, 0, 0)), lambda a: a[0, 0, 0]),
        (lambda r: r.slice((3,)), lambda a: a[3]),
        (lambda r: r.slice((0, -5)), lambda a: a[0, -5]),
        (lambda r: r.slice((..., ...)), lambda a: a[..., ...]),
        (lambda r: r.slice(slice(None, None, 0)), lambda a: a[::0]),
        (lambda r: r.slice(slice(0.5, None)), lambda a: a[0.5:]),
        (lambda r: r.broadcast_to((3, 5)), lambda a: np.broadcast_to(a, (3, 5))),
        (lambda r: r.broadcast_to((4,)), lambda a: np.broadcast_to(a, (4,))),
        (lambda r: r.reshape((5, 5)), lambda a: a.reshape((5, 5))),
        (lambda r: r.reshape((-1, -1)), lambda a: a.reshape((-1, -1))),
        (lambda r: r.reshape((-1, 5)), lambda a: a.reshape((-1, 5))),
    ],
)
def test_what_numpy_refuses_is_refused_with_the_same_kind_of_error(
    verb: Callable[[Region | DisjointRegions], object], like: Callable[[np.ndarray], object]
) -> None:
    with pytest.raises((ValueError, IndexError, TypeError)) as theirs:
        like(np.zeros((3, 4)))
    for region in (Region.full((3, 4)), DisjointRegions.full((3, 4)), Region.empty((3, 4))):
        with pytest.raises(theirs.type):
            verb(region)


@pytest.mark.parametrize(
    ("wrong", "kind", "message"),
    [
        (lambda: Region.full((3, 4)).flip(2), np.exceptions.AxisError, "flip: axis 2 is out of range for rank 2"),
        (lambda: Region.full((3, 4)).flip((1, -1)), ValueError, r"flip: axes \(1, -1\) name an axis of rank 2 twice"),
        (lambda: Region.full((3, 4)).flip(True), TypeError, r"flip: axes\[0\] must be an integer, not the truth value"),
        (lambda: Region.full((3, 4)).flip(1.0), TypeError, r"flip: axes\[0\] must be an integer, not 1.0"),
        (lambda: Region.full((3, 4)).transpose((0, 7)), np.exceptions.AxisError, "transpose: axis 7 is out of range"),
        (lambda: Region.full((3, 4)).transpose((1, 1)), ValueError, r"perm \(1, 1\) must hold each of 0 to 1 once"),
        (lambda: Region.full((3, 4)).transpose(1), TypeError, "transpose: perm must be a sequence of integers"),
        (lambda: Region.full((3, 4)).slice(slice(True, None)), TypeError, "slice start on axis 0 must be an integer"),
        (
            lambda: Region.full((3, 4)).slice((..., slice(None, None, 0))),
            ValueError,
            "slice step on axis 1 must not be 0",
        ),
        (
            lambda: Region.full((3, 4)).slice((0, None)),
            TypeError,
            "index on axis 1 must be a slice, an int or Ellipsis",
        ),
        (
            lambda: Region.from_slices((3, 4), (0.0,)),
            TypeError,
            "index on axis 0 must be a slice, an int or Ellipsis, not",
        ),
        (lambda: Region.from_slices((3, 4), (True,)), TypeError, "index on axis 0 must be a slice"),
        (lambda: Region.from_slices((3, 4), (np.array([0]),)), TypeError, "index on axis 0|integer scalar"),
        (lambda: Region.from_slices((3, 4), (..., ...)), IndexError, "has more than one Ellipsis"),
        (lambda: Region.from_slices((3, 4), (0, 0, 0)), IndexError, r"too many entries for shape \(3, 4\)"),
        (lambda: Region.full((3, 4), (0,)), ValueError, r"start \(0,\) must have one entry for each axis of shape"),
        (lambda: Region.full((3, 4.0)), TypeError, r"Region: shape\[1\] must be an integer, not 4.0 of type float"),
        (
            lambda: Region.full((3, 4)).shift((1,)),
            ValueError,
            r"shift: offset \(1,\) must have one entry for each axis",
        ),
        (lambda: Region.full((3, 4)).shift((1, 0.5)), TypeError, r"shift: offset\[1\] must be an integer"),
        (
            lambda: Region((3,), Sett()),
            TypeError,
            "Region: setts must be a sequence of setts and stripes, one for each axis, not Sett()",
        ),
        (lambda: Region((3,), [3]), TypeError, "Region: axis 0 takes a Sett or a Stripe, not 3"),
        (
            lambda: Region((3, 4), [Stripe(1, 1)]),
            ValueError,
            r"1 setts for shape \(3, 4\); give one sett for each axis",
        ),
        (
            lambda: DisjointRegions((3,), Region.full((3,))),
            TypeError,
            "DisjointRegions: members must be a sequence of regions, not Region",
        ),
        (lambda: DisjointRegions((3,), [Sett()]), TypeError, "member 0 must be a Region, not Sett"),
        (lambda: Region.full((3, 4)).reduce_to((2, 4)), ValueError, r"reduce_to: shape \(2, 4\) does not broadcast to"),
        (lambda: Region.full((3, 4)).reshape((12.0,)), TypeError, r"reshape: shape\[0\] must be an integer"),
        (lambda: Region.full((3, 4)).reshape(12.0), TypeError, r"reshape: shape\[0\] must be an integer"),
        (lambda: Region.full((3, 4), (0, 1)).reshape((12,)), ValueError, r"reshape: the box must start at zero"),
        (lambda: (0, True) in Region.full((3, 4)), TypeError, r"Region: point\[1\] must be an integer"),
        (lambda: Region.full((3, 4)).same_points(Region.full((4, 3))), ValueError, "same_points: both regions"),
        (
            lambda: Region.full((3, 4)) >= (3, 4),
            TypeError,
            ">=: takes a Region, DisjointRegions or Reshaped, not tuple",
        ),
    ],
)
def test_wrong_arguments_are_named_with_their_value_and_what_is_meant(
    wrong: Callable[[], object], kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        wrong()


def test_axes_may_be_numpy_integers() -> None:
    r = Region.from_slices((3, 4), (0, slice(1, None)))
    assert r.flip(np.int64(0)) == r.flip(0)
    assert r.transpose(np.array([1, 0])) == r.transpose()
    assert r.slice((np.int8(0),)).same_points(r.slice((0,)))
