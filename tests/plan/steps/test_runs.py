"""Runs of messages: closed forms against cells that are listed, and plans' times against their steps."""

from __future__ import annotations

import random
import time
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tapestry_plan import Device, Graph, Link, Mesh, ShardPlan, concat, ops, plan
from tapestry_plan.search import tuning as search_tuning
from tapestry_plan.search.prices.moves.regions import RegionTable
from tapestry_plan.search.prices.moves.runs import RunReads, Signed, count_box_runs, count_message_runs
from tapestry_plan.steps import count_runs
from tapestry_sets import Box, DisjointRegions, Region
from tests.exec.run.test_every_kind_of_plan import make_graph
from tests.recosting import Recosting, count_runs_by_cells

SLOW = Link(1e-7, 1e10, 5e-9)


@st.composite
def cells_in_boxes(draw: st.DrawFn) -> tuple[tuple[Region, ...], Box]:
    """A few strided blocks apart from each other, in a box that may reach outside of the tensor."""
    shape = tuple(draw(st.lists(st.integers(1, 5), max_size=3)))
    union = DisjointRegions(shape)
    for _ in range(draw(st.integers(1, 3))):
        cut = []
        for n in shape:
            start = draw(st.integers(0, n - 1))
            cut.append(slice(start, draw(st.integers(start + 1, n)), draw(st.integers(1, 3))))
        union = union | Region.from_slices(shape, tuple(cut))
    low, high = union.bounds() or ((), ())
    more = [(draw(st.integers(0, 2)), draw(st.integers(0, 2))) for _ in shape]
    start = tuple(a - before for a, (before, _) in zip(low, more, strict=True))
    stop = tuple(b + behind for b, (_, behind) in zip(high, more, strict=True))
    return union.members, Box.from_bounds(start, stop)


@given(cells_in_boxes())
def test_runs_are_those_of_the_cells(drawn: tuple[tuple[Region, ...], Box]) -> None:
    regions, box = drawn
    assert count_runs(regions, box) == count_runs_by_cells(regions, box.start, box.shape)


@given(cells_in_boxes(), st.randoms(use_true_random=False))
def test_axes_in_another_order(drawn: tuple[tuple[Region, ...], Box], order: random.Random) -> None:
    """The runs of a turned tensor are those of its cells in its own order; what no axis is cut of is one run in any."""
    regions, box = drawn
    axes = [*range(len(box.shape))]
    order.shuffle(axes)
    turned = tuple(
        Region([one.shape[k] for k in axes], [one.setts[k] for k in axes], [one.start[k] for k in axes])
        for one in regions
    )
    around = Box(tuple(box.start[k] for k in axes), tuple(box.shape[k] for k in axes))
    assert count_runs(turned, around) == count_runs_by_cells(turned, around.start, around.shape)
    whole = tuple(Region.full(one.shape) for one in turned[:1])
    assert count_runs(whole, Box.of(whole[0].shape)) == 1


@given(cells_in_boxes(), st.integers(10**9, 10**9 + 7))
def test_a_large_tensor_costs_no_more(drawn: tuple[tuple[Region, ...], Box], many: int) -> None:
    """With an outermost axis of 10⁹ and more there are so many times the runs, but those that go on to the next one."""
    regions, box = drawn
    if not box.shape:
        return
    far = tuple(Region((many, *one.shape), [Region.full((many,)).setts[0], *one.setts]) for one in regions)
    around = Box((0, *box.start), (many, *box.shape))
    each = count_runs_by_cells(regions, box.start, box.shape)
    first, last = (tuple(a) for a in (box.start, np.array(box.stop) - 1))
    goes_on = any(first in one for one in regions) and any(last in one for one in regions)
    assert count_runs(far, around) == many * each - (many - 1) * goes_on


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 3), st.integers(0, 2)), min_size=1, max_size=3))
@example([(0, 2, 0), (1, 2, 0)])
def test_boxes_in_boxes(sides: list[tuple[int, int, int]]) -> None:
    before, extents, behind = np.array(sides).T
    shape = before + extents + behind
    box = np.concatenate([before, before + extents])
    around = np.concatenate([np.zeros_like(shape), shape])
    region = Region.from_bounds(shape.tolist(), before.tolist(), (before + extents).tolist())
    assert count_box_runs(box, around) == count_runs_by_cells([region], (0,) * len(shape), shape.tolist())
    assert count_box_runs(np.concatenate([before, before]), around) == 0


@pytest.mark.heavy(2)
@pytest.mark.parametrize("seed", range(6))
def test_plans_cost_what_their_steps_do(seed: int) -> None:
    rng = random.Random(seed)
    mesh = Mesh((rng.choice([2, 3, 4, 6]),), link=SLOW, device=Device(1e7, 1e12))
    p = plan(make_graph(rng), mesh)
    counted = Recosting(p)
    assert (counted.ticks, counted.nbytes) == (round(p.seconds * 1e12), p.nbytes_moved)
    again = ShardPlan.from_json(p.to_json())
    assert again.mesh == mesh and again.makespan_seconds == p.makespan_seconds


@pytest.mark.parametrize(("axis", "packed", "unpacked"), [("i2", 4, 4), ("i3", 4 * 12, 4 * 12), ("i1", 1, 2 * 12)])
def test_halos_by_hand(axis: str, packed: int, unpacked: int) -> None:
    """Rows around are a run in each channel, columns cells, channels one run, or rows in a block with padding."""
    g = Graph()
    x, w = g.input("x", (1, 4, 12, 12)), g.input("w", (4, 4, 3, 3))
    g.output(ops.conv(ops.relu(x, name="r"), w, pads=(1, 1), name="c"), "y")
    names = dict(zip(("i1", "i2", "i3"), [one.name for one in g.signature("c").axes][1:4], strict=True))
    fix = {"r": {axis: 2}, "c": {names[axis]: 2}}
    p = plan(g, Mesh(2, link=SLOW), fix=fix, expand=False)
    assert {row.runs for row in p.transfers(tensor="r")} == {packed + unpacked}
    bare = plan(g, Mesh(2, link=Link(1e-7, 1e10)), fix=fix, expand=False)
    assert p.seconds - bare.seconds == pytest.approx((packed + unpacked) * 5e-9)


def test_short_runs_are_avoided() -> None:
    """Rows and columns move the same bytes; where runs take time all is cut so that few of them move."""
    g = Graph()
    h = ops.relu(g.input("x", (64, 64)), name="h")
    g.output(ops.relu(concat([h[1:], h[:1]]), name="down"), "d")
    g.output(ops.relu(concat([h[:, 1:], h[:, :1]], axis=1), name="right"), "r")
    fix = {axis: {name: {axis: 2} for name in g.nodes} for axis in ("i0", "i1")}
    costs = {
        (axis, each): plan(g, Mesh(2, link=Link(1e-9, 1e12, each)), fix=cut, expand=False).seconds
        for axis, cut in fix.items()
        for each in (0.0, 1e-6)
    }
    assert costs["i0", 0.0] == costs["i1", 0.0] and costs["i0", 1e-6] < costs["i1", 1e-6]
    assert plan(g, Mesh(2, link=Link(1e-9, 1e12, 1e-6), device=Device(1e7)), expand=False).sharding["h"] == {"i0": 2}


def test_wrong_rates_are_refused() -> None:
    with pytest.raises(ValueError, match=r"Link: run_seconds is -1.0, it must be finite and >= 0"):
        Link(run_seconds=-1.0)


def draw_cells(draw: st.DrawFn, shape: tuple[int, ...]) -> np.ndarray:
    """Cells of a tensor: some rows, in blocks of columns, or any."""
    cells = np.zeros(shape, bool)
    for _ in range(draw(st.integers(1, 3))):
        some = [np.array(draw(st.lists(st.sampled_from([*range(n)]), min_size=1, max_size=n))) for n in shape]
        cells[np.ix_(*some)] = True
    return cells


def cover(cells: np.ndarray) -> DisjointRegions:
    found = DisjointRegions(cells.shape)
    for point in np.argwhere(cells).tolist():
        found = found | Region.from_bounds(cells.shape, point, [k + 1 for k in point])
    return found


def bound(cells: np.ndarray) -> np.ndarray:
    points = np.argwhere(cells)
    return np.column_stack([points.min(axis=0), points.max(axis=0) + 1])


def tell_runs(cells: np.ndarray, box: np.ndarray) -> int:
    """The runs of cells in the buffer over a box, each place looked at."""
    flat = cells[tuple(slice(low, end) for low, end in box.tolist())].ravel()
    return int(np.count_nonzero(np.diff(flat.astype(np.int8), prepend=0) == 1))


@pytest.mark.parametrize("most", [-1, search_tuning.MAX_PAIRED_PRODUCTS])
@given(data=st.data())
@settings(max_examples=40)
def test_messages_of_many_products(most: int, data: st.DataObject) -> None:
    """However products are paired: what is needed, and was not before, is counted out of what devices hold."""
    shape = tuple(data.draw(st.lists(st.integers(2, 7), min_size=1, max_size=3)))
    held = [draw_cells(data.draw, shape) for _ in range(2)]
    wanted = [(draw_cells(data.draw, shape), draw_cells(data.draw, shape)) for _ in range(2)]
    table = RegionTable(shape)
    number = {key: np.array([table.number(cover(each)) for each in some]) for key, some in (
        ("held", held), ("needed", [one for one, _ in wanted]), ("met", [one & before for one, before in wanted])
    )}  # fmt: skip
    terms = [Signed(1, table.list_members(number["needed"])), Signed(-1, table.list_members(number["met"]))]
    frames, around = (table.list_hulls(number[key]) for key in ("needed", "held"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search_tuning, "MAX_PAIRED_PRODUCTS", most)
        found = count_message_runs(table, table.list_members(number["held"]), around, terms, frames)
    for h, mine in enumerate(held):
        for r, (needed, before) in enumerate(wanted):
            cells = mine & needed & ~before
            assert found[h, r] == tell_runs(cells, bound(mine)) + tell_runs(cells, bound(needed))


def test_many_regions_are_paired_where_they_are_near() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        cells = rng.random((rng.integers(5, 12), rng.integers(2, 7))) < 0.5
        cells[0, 0] = True
        regions = [Region.from_bounds(cells.shape, at, [k + 1 for k in at]) for at in np.argwhere(cells).tolist()]
        assert count_runs(tuple(regions), Box.of(cells.shape)) == tell_runs(cells, bound(np.ones_like(cells)))


def test_irregular_rows_cost_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """Products are met with those that are near, not with all: pairs that are counted grow as rows do."""
    counted = []
    count_followed = RegionTable.count_followed

    def count(self: RegionTable, axis: int, ones: Any, others: Any) -> Any:
        found = count_followed(self, axis, ones, others)
        counted.append(found.size)
        return found

    monkeypatch.setattr(RegionTable, "count_followed", count)
    sizes = []
    for rows in (40, 160):
        g = Graph()
        h = ops.relu(g.input("x", (2000, 8)), name="h")
        g.output(ops.relu(h.take(random.Random(1).sample(range(2000), rows)), name="t"), "y")
        counted.clear()
        plan(g, Mesh(4, link=Link(6e-6, 9e9, 1e-9)))
        sizes.append(sum(counted))
    assert 0 < sizes[1] < 8 * sizes[0]


def test_reasons_and_tables_tell_runs() -> None:
    """Where runs take time, what an alternative's messages pack and unpack is said: as many as its own plan's have."""
    g = Graph()
    h = ops.relu(g.input("x", (64, 64)), name="h")
    g.output(ops.relu(concat([h[1:], h[:1]]), name="down"), "d")
    fix = {"h": {"i1": 2}, "down": {"i1": 2}}
    for link in (Link(1e-9, 1e12, 1e-6), Link(1e-9, 1e12)):
        mesh = Mesh(2, link=link)
        p = plan(g, mesh, fix={"h": {"i0": 2}, "down": {"i0": 2}}, expand=False)
        head = str(p.transfers()).splitlines()[0].split()
        assert ("runs" in head) == mesh.prices_runs and p.transfers()[:1].prices_runs == mesh.prices_runs
        other = next(one for one in p.alternatives["down"] if one.sharding == fix["down"])
        cause = next(one for one in other.causes if one.tensor == "h")
        there = plan(g, mesh, fix={"h": {"i0": 2}, "down": {"i1": 2}}, expand=False)
        runs = [sum(row.runs for row in one.transfers(tensor="h")) for one in (p, there)]
        assert list(cause.runs) == (runs if mesh.prices_runs else [0, 0])
        told = f"{cause.nbytes[1]:,} B in {runs[1]} runs of result h", f"{cause.nbytes[0]:,} B in {runs[0]} runs now"
        assert all((each in other.reasons[0]) == mesh.prices_runs for each in told), other.reasons
        assert ShardPlan.from_json(p.to_json()).alternatives["down"] == p.alternatives["down"]


def test_a_limit_of_time_ends_the_counting_of_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each count takes a second of a clock; what is there then is a plan as its own steps have it, with a bound."""
    g = Graph()
    x = g.input("x", (12, 12))
    for k in range(3):
        x = ops.tanh(x.T @ g.input(f"w{k}", (12, 12)))
    g.output(x, "y")
    mesh, passed, count = Mesh(3, link=SLOW), 0.0, RunReads.count

    def counting(self: RunReads, *given: Any, **named: Any) -> Any:
        nonlocal passed
        passed += 1
        return count(self, *given, **named)

    with monkeypatch.context() as patch:
        patch.setattr(RunReads, "count", counting)
        patch.setattr(time, "monotonic", lambda: passed)
        best = plan(g, mesh)
        counts = passed
        hasty = plan(g, mesh, time_limit_seconds=1.5)
        assert passed - counts <= 3 < counts, "one table more than there was time for"
    assert best.gap == 0 and hasty.bound <= best.seconds <= hasty.seconds
    counted = Recosting(hasty)
    assert (counted.ticks, counted.nbytes) == (round(hasty.seconds * 1e12), hasty.nbytes_moved)
