"""Time against memory: plans of several caps against every choice of layouts."""

from __future__ import annotations

from itertools import pairwise, product
from math import inf
from typing import Any

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from tapestry_plan import Device, Graph, InfeasiblePlan, Link, Mesh, NotFound, ops, pareto, plan
from tapestry_plan.search.caps import by_memory
from tapestry_plan.search.caps.capped import solve_capped
from tapestry_plan.search.prices.costs.problem import Problem
from tapestry_plan.search.prices.costs.variables import Asked
from tapestry_plan.steps import Alloc, Choices, Free, lower

MESH = Mesh((2,), link=Link(1e-8, 1e8), device=Device(1e9, 1e10))


def some_graph(words: list[str]) -> Graph:
    g = Graph()
    h = x = g.input("x", (8, 8))
    for k, word in enumerate(words):
        if word == "product":
            h = h @ g.input(f"w{k}", (8, 8))
        elif word == "turned":
            h = h + x.T
        else:
            h = ops.relu(h)
    g.output(h, "y")
    return g


def list_pairs(problem: Problem) -> list[tuple[int, int]]:
    """Of each choice of layouts its picoseconds and the most bytes on a device at once, each block by itself."""
    out = []
    for choice in product(*map(range, problem.sizes)):
        layouts: dict[Any, Any] = {(v.kind, v.name): v.layouts[choice[at]] for at, v in enumerate(problem.variables)}
        steps = lower(problem.graph, problem.mesh, Choices(layouts, tuple(problem.asked_outputs)), apart=True)
        buffers = {buffer.id: buffer for buffer in steps.buffers}
        now, most = [0] * problem.mesh.size, 0
        for step in steps.steps:
            if isinstance(step, Alloc | Free):
                sign = 1 if isinstance(step, Alloc) else -1
                now[buffers[step.buffer].device] += sign * -(-buffers[step.buffer].nbytes // 64) * 64
                most = max(most, *now)
        out.append((problem.count_cost(choice)[0], most))
    return out


@pytest.mark.heavy(2)
@settings(max_examples=max(5, settings.default.max_examples // 20))
@given(st.lists(st.sampled_from(["product", "turned", "relu"]), min_size=1, max_size=3), st.integers(1, 5))
@example(["product", "relu", "product"], 4)
@example(["product", "product"], 2)
def test_each_plan_is_the_best_of_its_memory(words: list[str], points: int) -> None:
    """No choice of layouts takes less time in as little memory, and the last plan has the least that there is."""
    g = some_graph(words)
    problem = Problem(g, Asked(MESH, apart=True))
    count = 1
    for size in problem.sizes:
        count *= size
    assume(count <= 2000)
    pairs = list_pairs(problem)
    plans = pareto(g, MESH, points=points, expand=False, fuse=False)
    assert 1 <= len(plans) <= points and plans[0].seconds == plan(g, MESH, expand=False, fuse=False).seconds
    for one in plans:
        peak = max(one.peak_nbytes)
        best = min((ticks for ticks, most in pairs if most <= peak), default=inf)
        # The fastest plan has blocks over others, so that it may need less than it would with each in its own place.
        is_apart = all(buffer.is_apart for buffer in one.buffers)
        assert one.gap == 0 and (round(one.seconds * 1e12) == best or (not is_apart and one.seconds * 1e12 < best))
    assert all(
        max(one.peak_nbytes) > max(two.peak_nbytes) and one.seconds < two.seconds for one, two in pairwise(plans)
    )
    if points > 1:
        least = min(most for _, most in pairs)
        fastest = min(ticks for ticks, most in pairs if most <= least)
        assert max(plans[-1].peak_nbytes) <= least or plans[-1].seconds * 1e12 == pytest.approx(fastest)


def test_a_graph_without_operators_has_one_plan() -> None:
    g = Graph()
    g.output(g.input("x", (4,)), "y")
    assert len(pareto(g, MESH)) == 1
    with pytest.raises((InfeasiblePlan, NotFound), match="64 bytes a device do"):
        plan(g, MESH, memory_nbytes=0)


def test_an_error_says_what_would_do() -> None:
    """Each number of bytes that is said is enough, for as many devices."""
    g = some_graph(["product", "product"])
    with pytest.raises(InfeasiblePlan, match="bytes a device do; with 4 devices") as error:
        plan(g, MESH, memory_nbytes=100, expand=False)
    words = str(error.value).replace(",", "").split()
    do = [k for k, word in enumerate(words) if word in ("do;", "do:")]
    here, there = int(words[do[0] - 4]), int(words[do[1] - 1])
    assert max(plan(g, MESH, memory_nbytes=here, expand=False).peak_nbytes) == here
    more = Mesh((4,), link=MESH.link, device=MESH.device)
    assert max(plan(g, more, memory_nbytes=there, expand=False).peak_nbytes) <= there < here
    with pytest.raises(InfeasiblePlan):
        plan(g, MESH, memory_nbytes=here - 1, expand=False)


def test_what_was_found_of_one_cap_is_not_sought_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Caps between what a plan was asked to need and what it needs have that plan; each plan is what `plan` gives."""
    g, mesh, asked = Graph(), Mesh((3,)), []
    x = g.input("x", (60, 32))
    h = t = ops.exp(x)
    for k in range(4):
        h = ops.tanh(h @ g.input(f"w{k}", (32, 32)))
    g.output(h + t, "y")

    def noted(problem: Problem, caps: Any, *more: Any, **named: Any) -> Any:
        asked.append(max(caps))
        return solve_capped(problem, caps, *more, **named)

    monkeypatch.setattr(by_memory, "solve_capped", noted)
    _, least = pareto(g, mesh, points=3, fuse=False)
    needed = max(least.peak_nbytes)
    assert len([cap for cap in asked if cap >= needed]) == 1 and len(asked) == len(set(asked))
    assert plan(g, mesh, memory_nbytes=needed, fuse=False).seconds == least.seconds
