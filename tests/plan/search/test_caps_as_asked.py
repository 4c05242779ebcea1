"""Laws of plans under caps, whatever else is asked for: no more time in more memory, no bound above a plan."""

from __future__ import annotations

import random
from math import prod
from typing import Any, NamedTuple

import pytest

from tapestry_plan import Device, Link, Mesh
from tapestry_plan.search.arguments import CapOptions
from tapestry_plan.search.caps.by_memory import PlansByMemory
from tapestry_plan.search.planner import prepare
from tapestry_plan.steps import InfeasiblePlan, NotFound, ShardPlan
from tests.capped_choices import every_choice, grown
from tests.exec.run.test_every_kind_of_plan import make_graph


class Question(NamedTuple):
    """A random graph, how it is asked for, and its plans."""

    asked: str
    planned: PlansByMemory
    parts: tuple[float, ...]
    """What each device may have of the memory of the largest one."""

    def within(self, cap: int) -> ShardPlan | None:
        try:
            return self.planned.within(self.caps(cap))
        except (InfeasiblePlan, NotFound):
            return None

    def caps(self, cap: int) -> list[int]:
        return [int(cap * part) for part in self.parts]

    def reach(self, nbytes: tuple[int, ...]) -> int:
        """The least cap that so many bytes by device keep."""
        return max(
            next(k for k in range(n, 3 * n + 2) if int(k * p) >= n) for n, p in zip(nbytes, self.parts, strict=True)
        )


def draw(seed: int, *, small: bool, fuse: bool) -> Question:
    """One that less memory changes: from one copy, tied, with a layout, or on devices that differ."""
    rng = random.Random(f"caps as asked {seed}")
    while True:
        devices = rng.choice([2, 3] if small else [3, 4])
        words = [rng.choice(["product", "turned", "relu", "sum", "twice"]) for _ in range(rng.randint(1, 3))]
        g = grown(words, rng.choice([12, 32]), rng.choice([6, 24])) if small else make_graph(rng)
        word, out = rng.choice(["single", "tied", "laid", "unlike"]), next(iter(g.outputs))
        asked: dict[str, Any] = {"expand": False, "fuse": fuse}
        if word == "single":
            asked["placement"] = "single"
        elif word == "tied" and g.source(g.outputs[out]).shape == g.stored["x"].shape:
            asked["tie"] = {out: "x"}
        elif word == "laid":
            asked["layout"] = {rng.choice(["x", out]): {rng.choice([0, 1]): devices}}
        link = Link(rng.choice([1e-10, 1e-8]), rng.choice([1e8, 1e9, 1e10]))
        unlike = tuple(Device(rng.choice([5e8, 1e9, 2e9]), rng.choice([5e9, 1e10])) for _ in range(devices))
        mesh = Mesh((devices,), link=link, device=unlike if word == "unlike" else Device(1e9, 1e10))
        parts = tuple(rng.choice([1, 1, 0.75]) if word == "unlike" else 1 for _ in range(devices))
        planned = prepare(g, mesh, CapOptions(**asked))
        problem = planned._posed(planned._graphs[0]).problem
        least = planned._find_least(problem)
        if max(least) < 0.95 * max(planned.fastest.peak_nbytes) and (not small or 20 < prod(problem.sizes) <= 400):
            return Question(word, planned, parts)


@pytest.mark.parametrize("fuse", [False, True], ids=["apart", "in blocks"])
@pytest.mark.parametrize("begin", [0, *(pytest.param(k, marks=pytest.mark.heavy) for k in (3, 21))])
def test_the_best_of_every_choice(begin: int, fuse: bool) -> None:
    """Small graphs: a plan keeps its caps, costs what the best choice of layouts does, and says so.

    With `fuse` the choices are those of the graph as given and of it with the blocks of the fastest plan.
    """
    for seed in range(begin, begin + 2):
        one = draw(seed, small=True, fuse=fuse)
        graphs = [one.planned._graphs[0], *(other.graph for other in one.planned._others)]
        problems = [one.planned._posed(graph).problem for graph in graphs]
        known = [(tried.cost[0], one.reach(tried.held)) for each in problems for tried in every_choice(each)]
        top = one.reach(one.planned.fastest.peak_nbytes)
        caps = sorted({needed for _, needed in known if needed < top})
        for cap in {caps[0], caps[len(caps) // 2], caps[-1]} if caps else ():
            best, found = min(ticks for ticks, needed in known if needed <= cap), one.within(cap)
            assert found is not None, (seed, one.asked, cap)
            assert all(n <= c for n, c in zip(found.peak_nbytes, one.caps(cap), strict=True))
            assert round(found.bound * 1e12) <= best, (seed, one.asked, cap)
            # Results that run again may do better than any layouts of these graphs, and so may other blocks.
            assert found.gap == 0 and round(found.seconds * 1e12) <= best, (seed, one.asked, cap)
            others = found.recomputed or found.graph.nodes.keys() not in [graph.nodes.keys() for graph in graphs]
            assert others or round(found.seconds * 1e12) == best, (seed, one.asked, cap)


@pytest.mark.parametrize("fuse", [False, True], ids=["apart", "in blocks"])
@pytest.mark.parametrize("begin", [0, *(pytest.param(k, marks=pytest.mark.heavy(16)) for k in (12, 38))])
def test_more_memory_never_takes_more_time(begin: int, fuse: bool) -> None:
    """And no bound is above a plan of a lower cap; where there is a plan in less memory there is one in more."""
    for seed in range(begin, begin + 2):
        one = draw(seed, small=False, fuse=fuse)
        least = one.planned._find_least(one.planned._posed(one.planned._graphs[0]).problem)
        low, high = one.reach(least), one.reach(one.planned.fastest.peak_nbytes)
        before: ShardPlan | None = None
        for cap in range(low, high, max((high - low) // 4, 1)):
            found = one.within(cap)
            assert found is not None, (seed, one.asked, cap)
            if before is not None:
                assert found.seconds <= before.seconds and found.bound <= before.seconds, (seed, one.asked, cap)
            assert all(n <= c for n, c in zip(found.peak_nbytes, one.caps(cap), strict=True))
            assert one.planned.fastest.seconds <= found.seconds and found.bound <= found.seconds
            before = found
