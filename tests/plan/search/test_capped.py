"""Plans under a memory cap against every choice of layouts, each written down as steps and laid out in arenas."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tapestry_plan import Device, Graph, InfeasiblePlan, Link, Mesh, NotFound, Tensor, ops, plan
from tapestry_plan.search.memory import WEIGHT, Memory
from tapestry_plan.search.problem import Asked, Problem
from tapestry_plan.steps import ChosenLayouts, ShardPlan, lower, spill


def grown(words: list[str], rows: int = 4, columns: int = 6) -> Graph:
    """A graph of one operator for each word, mostly on what the one before made."""
    g = Graph()
    h: Tensor = g.input("x", (rows, columns))
    start = h
    for k, word in enumerate(words):
        if word == "product":
            h = g.op("matmul", h, g.input(f"w{k}", (h.shape[1], 6)), name=f"n{k}")
        elif word == "turned":
            h = g.op("matmul", h, g.input(f"w{k}", (8, h.shape[1])).T, name=f"n{k}")
        elif word == "sum":
            h = ops.add(h, start, name=f"n{k}") if h.shape == start.shape else ops.relu(h, name=f"n{k}")
        elif word == "twice":
            h = ops.add(h, h.flip(0), name=f"n{k}")
        else:
            h = ops.relu(h, name=f"n{k}")
    g.output(h, "y")
    return g


FEW = settings(max_examples=max(10, settings.default.max_examples // 20))
"""Every choice of layouts of a graph is lowered, which takes seconds."""
WORDS = st.lists(st.sampled_from(["product", "turned", "relu", "sum", "twice"]), min_size=1, max_size=3)


def every_choice(problem: Problem) -> list[tuple[tuple[int, ...], tuple[int, int], tuple[int, ...]]]:
    """Each choice of layouts with its picoseconds and bytes that move, and the peaks of its arenas."""
    out = []
    for choice in product(*map(range, problem.sizes)):
        layouts = {(v.kind, v.name): v.layouts[choice[at]] for at, v in enumerate(problem.variables)}
        steps = lower(
            ChosenLayouts(
                problem.graph, problem.mesh, layouts, problem.order, problem.operand_needs, problem.asked_outputs
            )
        )
        out.append((choice, problem.count_cost(choice), steps.peak_nbytes))
    return out


def slow(devices: int, bandwidth: float) -> Mesh:
    return Mesh((devices,), link=Link(1e-8, bandwidth), device=Device(1e9, 1e10))


@FEW
@given(WORDS, st.sampled_from([1e7, 1e9]), st.data())
@example(["product", "relu", "product"], 1e7, None)
def test_plans_under_a_cap_against_every_choice(words: list[str], bandwidth: float, data: st.DataObject | None) -> None:
    """A plan keeps the cap, no choice that keeps it is below the bound, and what is possible is never infeasible."""
    g, mesh = grown(words), slow(2, bandwidth)
    known = [(cost, max(peaks)) for _, cost, peaks in every_choice(Problem(g, Asked(mesh)))]
    some = sorted({peak for _, peak in known})
    for share in [0.0, 0.5] if data is None else [data.draw(st.floats(0, 1))]:
        cap = some[int(share * (len(some) - 1))]
        best = min(cost for cost, peak in known if peak <= cap)
        found = planned(g, mesh, cap)
        assert not isinstance(found, InfeasiblePlan)
        if isinstance(found, NotFound):
            assert found.least_nbytes <= cap < found.found_nbytes
        else:
            assert max(found.peak_nbytes) <= cap
            assert round(found.bound * 1e12) <= best[0] <= round(found.seconds * 1e12)
    assert isinstance(planned(g, mesh, some[0] - 1), InfeasiblePlan | NotFound)


def planned(g: Graph, mesh: Mesh, cap: int) -> ShardPlan | InfeasiblePlan | NotFound:
    try:
        return plan(g, mesh, memory_nbytes=cap, expand=False)
    except (InfeasiblePlan, NotFound) as error:
        return error


@FEW
@given(WORDS, st.integers(0, 1))
@example(["twice", "product"], 0)
@example(["product", "twice"], 1)
def test_no_arena_is_smaller_than_what_is_counted(words: list[str], device: int) -> None:
    problem = Problem(grown(words), Asked(slow(2, 1e8)))
    memory = Memory(problem, device)
    least = memory.count_least()
    for choice, _, peaks in every_choice(problem):
        counted = memory.count(choice)
        assert (least <= counted).all() and counted.max() <= peaks[device]


@pytest.mark.parametrize("placement", ["free", "single"])
def test_sources_with_a_place_of_their_own_are_counted(placement: str) -> None:
    problem = Problem(grown(["product"], 2, 4), Asked(slow(2, 1e8), placement))  # type: ignore[arg-type]
    memory = Memory(problem)
    for choice, _, peaks in every_choice(problem):
        assert memory.count(choice).max() <= peaks[0]


def test_weights_of_moments_are_sums_of_tables() -> None:
    problem = Problem(grown(["product", "relu"]), Asked(slow(2, 1e8)))
    memory = Memory(problem)
    weights = np.arange(memory.moments) * WEIGHT
    tables = memory.weigh(weights)
    for choice, _, _ in every_choice(problem)[::7]:
        weighed = sum(int(table.ticks[tuple(choice[v] for v in table.scope)]) for table in tables)
        assert weighed == int((memory.count(choice) * np.arange(memory.moments)).sum())


def mlp(width: int = 64) -> Graph:
    g = Graph()
    h = g.op("matmul", g.input("x", (16, width)), g.input("w", (width, 4 * width)), name="up")
    g.output(g.op("matmul", ops.relu(h), g.input("v", (4 * width, width)), name="down"))
    return g


def test_weights_are_split_where_copies_do_not_fit() -> None:
    """Fast: rows, with all weights on each device. In half of the memory the weights are split."""
    g, mesh = mlp(), slow(4, 1e9)
    fast = plan(g, mesh)
    tight = plan(g, mesh, memory_nbytes=max(fast.peak_nbytes) // 2)
    assert max(tight.peak_nbytes) <= max(fast.peak_nbytes) // 2
    assert tight.seconds > fast.seconds and fast.bound <= tight.bound <= tight.seconds
    assert max(tight.nbytes_placed) < max(fast.nbytes_placed)


def test_what_is_said_where_nothing_fits() -> None:
    g, mesh = mlp(), slow(4, 1e9)
    with pytest.raises(InfeasiblePlan, match=r"memory_nbytes is 1,000; every plan has a moment") as error:
        plan(g, mesh, memory_nbytes=1000)
    assert error.value.fastest == plan(g, mesh)
    assert max(spill(error.value.fastest, 71_000).peak_nbytes) <= 71_000


def test_what_was_found_is_enough() -> None:
    """The memory that an error names is that of a plan, which is found when it is asked for."""
    g = Graph()
    g.output(g.op("softmax", g.op("matmul", g.input("x", (16, 32)), g.input("w", (32, 32))), axis=-1))
    mesh = slow(4, 1e9)
    with pytest.raises(NotFound, match="plans that were laid out in arenas keeps that") as error:
        plan(g, mesh, memory_nbytes=100)
    assert error.value.least_nbytes > 100
    p = plan(g, mesh, memory_nbytes=error.value.found_nbytes)
    assert max(p.peak_nbytes) <= error.value.found_nbytes
    assert all(not entry.considered or entry.chosen is None for entry in p.expansions)
