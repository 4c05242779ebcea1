"""Plans for devices that differ: against all layouts of the space, cells counted one by one, each at its own rates."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tapestry_plan import Device, Graph, InfeasiblePlan, Link, Mesh, NotFound, ShardPlan, ops, pareto, plan
from tapestry_plan.search.prices.costs.problem import Problem
from tapestry_plan.search.prices.costs.variables import Asked
from tapestry_plan.steps import Choices, Layout, Space, list_candidates, lower, pack
from tapestry_plan.steps.layouts.layout import list_teams
from tests.tiny_plans import make_chain

RATES = st.tuples(
    st.sampled_from([1e9, 3e9, 1e10]),
    st.sampled_from([1e10, 4e10]),
    st.sampled_from([0.0, 4e-9]),
    st.none(),
    st.sampled_from([None, 5e8]),
    st.sampled_from([0.0, 1e-9]),
    st.sampled_from([None, 1e9]),
)
"""Of a device: arithmetic, memory, starting, no limit of memory, cell by cell, starting by operand, packing."""


def list_ranges(layout: Layout) -> list[list[range] | None]:
    """Each device's ranges."""
    ends = [None if box is None else zip(box.start, box.stop, strict=True) for box in layout.boxes]
    return [None if spans is None else [range(*span) for span in spans] for spans in ends]


@pytest.mark.heavy(2)
@settings(max_examples=max(6, settings.default.max_examples // 10))
@given(st.lists(RATES, min_size=2, max_size=2), st.sampled_from([1e8, 1e9, 1e12]), st.sampled_from(["all", "mesh"]))
@example([(1e9, 1e10, 0.0), (3e9, 4e10, 0.0)], 1e12, "all")
@example([(1e10, 1e10, 4e-9), (1e9, 4e10, 0.0)], 1e9, "all")
@example([(1e9, 1e10, 4e-9), (1e10, 4e10, 0.0)], 1e8, "mesh")
@example([(1e9, 1e10, 0.0, None, None, 0.0, None), (1e9, 1e10, 0.0, None, None, 1e-9, 1e9)], 1e12, "all")
def test_the_plan_is_the_best_of_all_layouts(rates: list[tuple[float, ...]], bandwidth: float, space: Space) -> None:
    mesh = Mesh(len(rates), link=Link(1e-9, bandwidth), device=[Device(*each) for each in rates])
    g, tiny, names = make_chain(mesh)
    spaces = [[*map(list_ranges, list_candidates(extents, mesh, space))] for extents, *_ in tiny.stages]
    # The last operator is an output: a partial one is merged at the end, which the oracle does not model.
    spaces[2] = [layout for layout in spaces[2] if all(r is None or len(r[2]) == 5 for r in layout)]
    best = min(tiny.cost(list(choice), set()) for choice in product(*spaces))
    p = plan(g, mesh, forbid={names[2]: {"k": 2}}, space=space, fuse=False)
    found = round(p.seconds * 1e12), p.nbytes_moved
    bound = round(p.bound * 1e12)
    assert bound <= found[0] and found <= best
    if not any(stage.op == "landing" for stage in p.stages):  # the oracle's readers pull all parts
        layouts = [[None] * len(rates) for _ in names]  # type: list[list[list[range] | None]]
        for layout, name in zip(layouts, names, strict=True):
            for device, (box,) in p.placement[name].items():
                layout[device] = [range(*span) for span in zip(box.start, box.stop, strict=True)]
        assert tiny.cost(layouts, set()) == found == best


def test_work_is_shared_out_by_speed_whatever_the_order() -> None:
    g = Graph()
    g.output(ops.relu(g.input("x", (96, 64)) @ g.input("w", (64, 64))))
    slow, fast = Device(1e11, 1e11), Device(3e11, 3e11)
    took = []
    for order in ([slow, fast, slow, fast], [fast, fast, slow, slow], [slow, slow, fast, fast]):
        p = plan(g, Mesh(4, device=order))
        assert (p.gap, p.nbytes_moved) == (0, 0)
        most = max(p.flop)
        assert p.flop == tuple(most if one is fast else most / 3 for one in order)
        took.append(p.seconds)
    assert took[0] == took[1] == took[2] == pytest.approx(plan(g, Mesh(4, device=slow)).seconds / 2, rel=1e-3)


def test_a_device_that_is_far_too_slow_idles_wherever_it_stands() -> None:
    g = Graph()
    g.output(ops.relu(g.input("x", (64, 64)) @ g.input("w", (64, 64)), name="y"))
    slow, fast = Device(1e3, 1e3, 1.0), Device(1e11, 1e11)
    alone = plan(g, Mesh(2, device=fast)).seconds
    for at in range(3):
        mesh = Mesh(3, device=[slow if k == at else fast for k in range(3)])
        for space in ("all", "mesh"):
            p = plan(g, mesh, space=space)  # type: ignore[arg-type]
            assert at not in p.placement["y"] and (p.gap, p.seconds) == (0, alone)


def test_teams_are_the_fastest_devices_by_each_rate() -> None:
    a, b, c = Device(1e9, 3e9), Device(2e9, 2e9), Device(3e9, 1e9)
    assert set(list_teams(Mesh(3, device=[a, b, c]))) == {(0, 1, 2), (1, 2), (2,), (0, 1), (0,)}
    nodes = Mesh((2, 2), device=[c, c, a, a])
    assert {option.cells for option in list_candidates((4,), nodes, "mesh") if option.cells[2:] == (None, None)} == {
        ((0,), (1,), None, None),
        ((0,), (0,), None, None),
        ((0,), None, None, None),
    }


@given(st.integers(1, 40), st.lists(st.integers(1, 9), min_size=2, max_size=5))
def test_parts_are_in_proportion(n: int, speeds: list[int]) -> None:
    """Parts cover the axis, none is empty, and each is within one of its share where that is above one."""
    mesh = Mesh(len(speeds), device=[Device(1e9 * speed, 1e9) for speed in speeds])
    found = [option for option in list_candidates((n,), mesh, "all") if option.sizes]
    for option in found:
        (sizes,) = option.sizes
        working = [speed for speed, cell in zip(speeds, option.cells, strict=True) if cell is not None]
        assert sum(sizes) == n and min(sizes) > 0
        spans = [box for box in option.boxes if box is not None]
        assert {box.start[0] for box in spans} == {sum(sizes[:k]) for k in range(len(sizes))}
        if len(working) == len(sizes) and min(n * speed / sum(working) for speed in working) >= 1:
            assert all(abs(n * speed / sum(working) - size) < 1 for speed, size in zip(working, sizes, strict=True))


def test_equal_devices_are_one() -> None:
    device = Device(1e9, 1e9)
    mesh = Mesh((2, 2), device=[Device(1e9, 1e9) for _ in range(4)])
    assert mesh == Mesh((2, 2), device=device) and not mesh.differs
    assert list_candidates((8, 8), mesh, "all") == list_candidates((8, 8), Mesh((2, 2)), "all")


def test_documents_and_regrouped_meshes_keep_each_device() -> None:
    devices = [Device(1e11 * (1 + k), 1e11, memory_nbytes=10**6 + k) for k in range(4)]
    mesh = Mesh((2, 2), device=devices)
    assert mesh.regroup((4,)).devices == tuple(devices) and mesh.regroup((2,)).devices == tuple(devices[:2])
    g = Graph()
    g.output(ops.relu(g.input("x", (8, 8))))
    p = plan(g, mesh)
    assert ShardPlan.from_json(p.to_json()) == p and ShardPlan.from_json(p.to_json()).mesh.devices == tuple(devices)


# -- memory ---------------------------------------------------------------------------------------------------


def _two_products() -> Graph:
    g = Graph()
    h = g.input("x", (16, 64)) @ g.input("w", (64, 256))
    g.output(ops.relu(h) @ g.input("v", (256, 64)))
    return g


def test_plans_keep_the_memory_of_each_device() -> None:
    g, rates = _two_products(), (1e9, 1e10)
    link = Link(1e-8, 1e9)
    free = plan(g, Mesh(4, link=link, device=Device(*rates)))
    for limits in ([80_000] * 4, [200_000, 50_000, 200_000, 60_000], [50_000, 140_000, 140_000, 140_000]):
        mesh = Mesh(4, link=link, device=[Device(*rates, memory_nbytes=n) for n in limits])
        p = plan(g, mesh)
        assert all(peak <= n for peak, n in zip(p.peak_nbytes, limits, strict=True))
        assert free.seconds <= p.bound <= p.seconds and max(free.peak_nbytes) > min(limits)
    same = Mesh(4, link=link, device=Device(*rates, memory_nbytes=80_000))
    asked = plan(g, Mesh(4, link=link, device=Device(*rates)), memory_nbytes=80_000)
    assert plan(g, same).seconds == asked.seconds
    assert max(plan(g, same, memory_nbytes=60_000).peak_nbytes) <= 60_000
    assert all(max(one.peak_nbytes) <= 80_000 for one in pareto(g, same, points=3))


@pytest.mark.parametrize("caps", [(2500, 1400), (1400, 2500), (1800, 1700), (1000, 4000)])
def test_plans_in_unlike_memories_are_the_best_of_all_choices(caps: tuple[int, int]) -> None:
    g = Graph()
    g.output(ops.relu(g.input("x", (8, 16)) @ g.input("w", (16, 12)), name="y"))
    link, rates = Link(1e-8, 1e9), [(1e9, 1e10), (2e9, 1e10)]
    mesh = Mesh(2, link=link, device=[Device(*each, 0.0, cap) for each, cap in zip(rates, caps, strict=True)])
    problem = Problem(g, Asked(mesh))
    best = None
    for choice in product(*map(range, problem.sizes)):
        layouts = {(v.kind, v.name): v.layouts[choice[at]] for at, v in enumerate(problem.variables)}
        packed = pack(
            lower(g, mesh, Choices(layouts, tuple(problem.asked_outputs)), apart=True), caps
        ).lowered.peak_nbytes
        if all(peak <= cap for peak, cap in zip(packed, caps, strict=True)):
            cost = problem.count_cost(choice)
            best = cost if best is None else min(best, cost)
    if best is None:
        with pytest.raises((InfeasiblePlan, NotFound)):
            plan(g, mesh, expand=False, fuse=False)
        return
    p = plan(g, mesh, expand=False, fuse=False)
    assert round(p.bound * 1e12) <= best[0] == round(p.seconds * 1e12)


def test_what_lacks_memory_is_told() -> None:
    g = _two_products()
    mesh = Mesh(2, device=[Device(memory_nbytes=4096), Device(memory_nbytes=10**6)])
    with pytest.raises(
        (InfeasiblePlan, NotFound), match=r"devices have \[4096, 1000000\] bytes; .* bytes more on each"
    ):
        plan(g, mesh)
    assert mesh.limit_memory() == (4096, 10**6) and mesh.limit_memory(5000) == (4096, 5000)
    assert Mesh(2).limit_memory() is None and Mesh(2).limit_memory(7) == (7, 7)
