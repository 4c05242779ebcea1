"""Plans under a memory cap against every choice of layouts, each written down as steps and laid out in arenas."""

from __future__ import annotations

from itertools import product
from math import prod
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from tapestry_plan import Graph, InfeasiblePlan, Mesh, NotFound, ops, plan
from tapestry_plan.search.caps.least import LeastMemory, list_same
from tapestry_plan.search.prices.added.memory import Memory
from tapestry_plan.search.prices.costs.problem import Problem
from tapestry_plan.search.prices.costs.variables import Asked
from tapestry_plan.search.sums.frontier import WEIGHT
from tapestry_plan.steps import Choices, Lowered, ShardPlan, lower, spill
from tests.capped_choices import FEW, MAX_CHOICES, WORDS, every_choice, grown, slow


@FEW
@given(WORDS, st.integers(2, 3), st.sampled_from([1e7, 1e9]), st.data())
@example(["product", "relu", "product"], 2, 1e7, None)
@example(["twice", "product", "twice"], 3, 1e9, None)
def test_plans_under_a_cap_against_every_choice(
    words: list[str], devices: int, bandwidth: float, data: st.DataObject | None
) -> None:
    """A plan keeps the cap, no choice that keeps it takes less time, and what is possible is never infeasible."""
    g, mesh = grown(words), slow(devices, bandwidth)
    problem = Problem(g, Asked(mesh, apart=True))
    assume(prod(problem.sizes) <= MAX_CHOICES or data is None)
    known = every_choice(problem)
    some = sorted({max(one.held) for one in known})
    for share in [0.0, 0.5] if data is None else [data.draw(st.floats(0, 1))]:
        cap = some[int(share * (len(some) - 1))]
        best = min(one.cost for one in known if max(one.held) <= cap)
        found = planned(g, mesh, cap, fuse=False)
        assert isinstance(found, ShardPlan) and max(found.peak_nbytes) <= cap
        ticks = round(found.seconds * 1e12)  # the fastest plan of all has blocks in others, and may keep the cap so
        assert (ticks == best[0] or (found.choices.memory_nbytes is None and ticks < best[0])) and found.gap == 0
        in_blocks = planned(g, mesh, cap)
        assert isinstance(in_blocks, ShardPlan) and max(in_blocks.peak_nbytes) <= cap
        assert round(in_blocks.seconds * 1e12) <= best[0] and in_blocks.gap == 0
    less = planned(g, mesh, some[0] - 1, fuse=False)  # the fastest plan may fit, with blocks over others
    assert isinstance(less, InfeasiblePlan | NotFound) or less == plan(g, mesh, expand=False, fuse=False)
    assert isinstance(less, InfeasiblePlan | NotFound) or max(less.peak_nbytes) < some[0]


def planned(g: Graph, mesh: Mesh, cap: int, fuse: bool = True) -> ShardPlan | InfeasiblePlan | NotFound:
    try:
        return plan(g, mesh, memory_nbytes=cap, expand=False, fuse=fuse)
    except (InfeasiblePlan, NotFound) as error:
        return error


@pytest.mark.parametrize("placement", ["free", "single"])
def test_sources_with_a_place_of_their_own_are_counted(placement: Literal["free", "single"]) -> None:
    problem = Problem(grown(["product"], 2, 4), Asked(slow(2, 1e8), placement))
    memory = Memory(problem)
    for one in every_choice(problem):
        assert memory.count(one.choice).max() <= one.held[0]


def test_what_readers_share_is_counted_once_and_what_they_do_not_twice() -> None:
    """A tensor that two operators read: a block for each where one has rows and the other one columns."""
    g = Graph()
    x = g.input("x", (64, 64))
    g.output(ops.relu(ops.relu(x, name="a") + ops.tanh(x, name="b"), name="c"), "y")
    problem = Problem(g, Asked(slow(2, 1e8)))
    memory = Memory(problem)
    for one in every_choice(problem, 3):
        assert memory.count(one.choice).max() == one.held[0]


@FEW
@given(WORDS)
@example(["twice", "product", "sum"])
def test_the_least_memory_against_every_choice(words: list[str]) -> None:
    problem = Problem(grown(words), Asked(slow(2, 1e8)))
    assume(prod(problem.sizes) <= 10 * MAX_CHOICES)
    memory = Memory(problem)
    least = LeastMemory(problem, memory, list_same(problem))
    wanted = min(int(memory.count(choice).max()) for choice in product(*map(range, problem.sizes)))
    assert least.nbytes <= wanted <= least.found_nbytes
    least.close(lambda: False)
    assert memory.count(least.choice).max() == least.found_nbytes == wanted
    assert wanted - 64 < least.nbytes <= wanted


def test_weights_of_moments_are_sums_of_tables() -> None:
    problem = Problem(grown(["product", "relu"]), Asked(slow(2, 1e8)))
    memory = Memory(problem)
    weights = np.arange(memory.moments) * WEIGHT
    tables = memory.weigh(weights)
    for choice in list(product(*map(range, problem.sizes)))[::7]:
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


def test_steps_of_a_plan_under_a_cap_are_written_down_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once for the fastest plan, and once for each choice that is laid out."""
    written = []

    def noted(graph: Graph, mesh: Mesh, choices: Choices, **more: Any) -> Lowered:
        written.append(choices.layouts)
        return lower(graph, mesh, choices, **more)

    for module in ("tapestry_plan.search.writing", "tapestry_plan.steps.alike"):
        monkeypatch.setattr(f"{module}.lower", noted)
    g, mesh = mlp(), Mesh((4,))
    fastest = plan(g, mesh, expand=False)
    before = len(written)
    plan(g, mesh, expand=False, memory_nbytes=fastest.peak_nbytes[0] * 3 // 4)
    assert len(written) > before + 1 and all(one not in written[:k] for k, one in enumerate(written) if k > before)


def test_what_is_said_where_nothing_fits() -> None:
    g, mesh = mlp(), slow(4, 1e9)
    with pytest.raises(InfeasiblePlan, match=r"memory_nbytes is 1,000; every plan has a moment") as error:
        plan(g, mesh, memory_nbytes=1000, fuse=False)
    assert error.value.fastest == plan(g, mesh, fuse=False)
    assert max(spill(error.value.fastest, 71_000).peak_nbytes) <= 71_000


def test_what_was_found_is_enough() -> None:
    """The memory that an error names is that of a plan, which is found when it is asked for."""
    g = Graph()
    g.output(g.op("softmax", g.op("matmul", g.input("x", (16, 32)), g.input("w", (32, 32))), axis=-1))
    mesh = slow(4, 1e9)
    with pytest.raises(NotFound, match="of the graph as given every plan needs 3,072 bytes") as error:
        plan(g, mesh, memory_nbytes=100)
    assert error.value.least_nbytes > 100
    p = plan(g, mesh, memory_nbytes=error.value.found_nbytes)
    assert max(p.peak_nbytes) <= error.value.found_nbytes
    assert all(not entry.considered or entry.chosen is None for entry in p.expansions)


@pytest.mark.heavy(2)
@pytest.mark.parametrize("placement", ["free", "single"])
def test_a_tensor_that_seventy_operators_read(placement: Literal["free", "single"]) -> None:
    """Arrays have 64 axes at most; where most readers have one layout left, these are none of a table's."""
    g = Graph()
    scale, h = g.input("scale", (16,)), g.input("x", (32, 16))
    for k in range(70):
        h = ops.relu(h @ g.input(f"w{k}", (16, 16))) * scale
    g.output(h, "y")
    fast = plan(g, slow(2, 1e8), placement=placement)
    assert fast.gap < 1e-6  # picoseconds of seventy readers are rounded
    if placement == "free":
        assert max(fast.peak_nbytes) == 73_792
        p = plan(g, slow(2, 1e8), memory_nbytes=56_112)
        assert p.gap == 0 and max(p.peak_nbytes) <= 56_112
