"""Caps that nothing keeps are refused at once, with what would do; caps that a plan keeps never are."""

from __future__ import annotations

import random
from itertools import chain, combinations, product
from math import prod
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from tapestry_plan import Device, Graph, InfeasiblePlan, Link, Mesh, NotFound, ShardPlan, load_onnx, ops, pareto, plan
from tapestry_plan.search.caps import by_memory
from tapestry_plan.search.caps.least import find_small, list_same
from tapestry_plan.search.caps.needed import find_overfull, find_unrunnable
from tapestry_plan.search.neighbors.fusing import fuse_neighbors, join_neighbors
from tapestry_plan.search.prices.added.derived import derive_layouts
from tapestry_plan.search.prices.added.memory import Memory, MemoryOfMany
from tapestry_plan.search.prices.costs.problem import Problem
from tapestry_plan.search.prices.costs.variables import Asked
from tapestry_plan.search.writing import lower_choice
from tests.capped_choices import FEW, MAX_CHOICES, WORDS, every_choice, grown, most_held, slow
from tests.exec.run.test_every_kind_of_plan import make_graph


@FEW
@given(WORDS)
@example(["twice", "product"])
@example(["product", "turned"])
def test_what_an_operator_needs_is_needed_by_every_plan(words: list[str]) -> None:
    problem = Problem(grown(words), Asked(slow(2, 1e8)))
    assume(prod(problem.sizes) <= MAX_CHOICES)
    known = every_choice(problem, 7)
    mean, most = MemoryOfMany(problem, is_mean=True), MemoryOfMany(problem, is_mean=False)
    for one in known:
        assert find_unrunnable(problem, one.held) is None and find_overfull(problem, one.held, []) is None
        assert 2 * int(mean.count(one.choice).max()) <= sum(one.held)
        each = [Memory(problem, device).count(one.choice).max() for device in (0, 1)]
        assert most.count(one.choice).max() >= max(each)
    short = find_unrunnable(problem, (0, 0))
    assert short is not None and 0 < short.nbytes <= min(max(one.held) for one in known)


@FEW
@given(st.lists(st.sampled_from(["product", "relu", "sum"]), min_size=2, max_size=3))
@example(["product", "relu", "relu"])
def test_what_an_operator_needs_in_any_block_is_needed_by_every_plan(words: list[str]) -> None:
    """Of every choice of layouts each set of blocks is written down: none runs in less."""
    problem = join_neighbors(Problem(grown(words), Asked(slow(2, 1e8))), ())
    assume(prod(problem.sizes) <= MAX_CHOICES)
    least = 2**60
    for choice in list(product(*map(range, problem.sizes)))[::5]:
        joined = problem.list_joined(choice)
        for some in chain.from_iterable(combinations(joined.items(), n) for n in range(len(joined) + 1)):
            after, rows, _ = fuse_neighbors(problem, choice, dict(some))
            held = most_held(lower_choice(after, rows, None, capped=True))
            assert find_unrunnable(problem, held) is None
            least = min(least, max(held))
    short = find_unrunnable(problem, (0, 0))
    assert short is not None and 0 < short.nbytes <= least


def test_the_operator_that_does_not_fit_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A product of 4 × 8 by 8 × 2,000 on two devices reads 64 or 32 kB and makes 16: no search is made."""
    monkeypatch.setattr(by_memory, "solve_capped", lambda *_: pytest.fail("a search was made"))
    g = Graph()
    g.output(ops.relu(g.op("matmul", g.input("x", (4, 8)), g.input("w", (8, 2000)), name="wide")))
    with pytest.raises(InfeasiblePlan, match=r"one device holds 48,\d+ bytes or more: what operator 'wide' reads"):
        plan(g, Mesh((2,)), memory_nbytes=1000, fuse=False)
    with pytest.raises(InfeasiblePlan, match=r"one device holds 48,\d+ bytes or more: what operator 'relu' reads"):
        plan(g, Mesh((2,)), memory_nbytes=1000)  # in one block with the product
    with pytest.raises(InfeasiblePlan, match=r"devices have .1000, 2000. bytes; .* bytes more on each device do"):
        plan(g, Mesh((2,), device=(Device(1e9, memory_nbytes=1000), Device(1e9, memory_nbytes=2000))))


@pytest.mark.heavy(2)
def test_devices_that_may_be_idle_do_not_hide_what_all_need() -> None:
    """Neighbors of views run on some devices alone too: a bound on one device would be 0 bytes."""
    g, mesh = load_onnx("tests/models/gpt2.onnx"), Mesh((4,))
    with pytest.raises(
        NotFound,
        match="every plan needs 66,304 bytes or more, each block in a place of its own; 167,040 bytes a device do",
    ) as error:
        plan(g, mesh, memory_nbytes=1000)
    assert error.value.found_nbytes == 167_040 < max(error.value.fastest.peak_nbytes)


def test_layouts_of_little_memory_leave_no_device_full() -> None:
    g = Graph()
    x = g.input("x", (64, 64))
    g.output(ops.tanh(ops.exp(x).flip(0)) + ops.exp(x))
    plain = Problem(g, Asked(Mesh((4,))))
    problem = Problem(g, Asked(Mesh((4,)), derived=derive_layouts(plain, ())))
    small = find_small(problem, list_same(problem), lambda: False)
    each = [Memory(problem, device).count(small).max() for device in range(4)]
    assert max(each) == 3 * (64 * 64 * 4 // 4)  # of x and of both exponentials, or of these and of their sum


def test_a_plan_that_needs_much_less_is_given_where_all_that_need_nearly_as_much_need_more() -> None:
    """All layouts that are looked at first need a little more than the cap; under a lower one others are."""
    g = make_graph(random.Random(96))
    asked: dict[str, Any] = {"placement": "single", "expand": False}
    mesh = Mesh((2, 2), link=Link(1e-9, 1e9), device=Device(1e7, 1e12))
    fast = plan(g, mesh, **asked)
    found = plan(g, mesh, memory_nbytes=max(fast.peak_nbytes) - 1, **asked)
    assert max(found.peak_nbytes) < max(fast.peak_nbytes) and 0 <= found.gap < 1e-3
    assert fast.seconds <= found.bound <= found.seconds
    again = ShardPlan.from_json(found.to_json())
    assert (again, again.steps, again.buffers) == (found, found.steps, found.buffers)
    assert tuple(found.program(device).peak_nbytes for device in range(4)) == found.peak_nbytes


def test_what_does_is_no_more_than_the_fastest_plan_needs() -> None:
    g = Graph()
    x = g.input("x", (60, 32))
    h = t = ops.exp(x)
    for k in range(4):
        h = ops.tanh(h @ g.input(f"w{k}", (32, 32)))
    g.output(h + t, "y")
    peak = max(plan(g, Mesh((3,)), fuse=False).peak_nbytes)
    with pytest.raises(InfeasiblePlan, match=f" {peak:,} bytes a device do"):
        plan(g, Mesh((3,)), memory_nbytes=10_000, fuse=False)
    ends = [max(p.peak_nbytes) for p in pareto(g, Mesh((3,)), points=3, fuse=False)]
    assert ends[0] == peak and len(ends) > 1 and ends == sorted(ends, reverse=True)
