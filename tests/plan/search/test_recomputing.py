"""Results that wait long for a late reader are computed again where a memory cap asks for it, and only there."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from tapestry_exec import run
from tapestry_plan import Graph, InfeasiblePlan, Mesh, NotFound, ShardPlan, Tensor, gradient, ops, plan
from tapestry_plan.rewrite import recompute, unify_equal
from tapestry_plan.search.neighbors.recomputing import list_late, list_subsets, run_again
from tapestry_plan.search.prices.costs.problem import Problem
from tapestry_plan.search.prices.costs.variables import Asked
from tests.capped_choices import MAX_CHOICES, every_choice, slow

CHEAP = {"exp": ops.exp, "tanh": ops.tanh, "relu": ops.relu}


def residual(words: list[str], early: int, *, ends_in_x: bool = True) -> Graph:
    """A chain of operators on 64 numbers; its last result is multiplied by an early one, and x is read at the end."""
    g = Graph()
    made: list[Tensor] = [g.input("x", (64,))]
    for k, word in enumerate(words):
        made.append(CHEAP[word](made[-1], name=f"n{k}"))
    y = ops.multiply(made[-1], made[1 + early], name="late")
    g.output(ops.add(y, made[0], name="end") if ends_in_x else y, "y")
    return g


@pytest.mark.heavy(2)
@settings(max_examples=max(2, settings.default.max_examples // 75))
@given(st.lists(st.sampled_from(sorted(CHEAP)), min_size=2, max_size=3), st.integers(0, 1), st.booleans(), st.data())
@example(["exp", "tanh", "exp"], 0, True, None)
@example(["exp", "tanh", "exp"], 0, False, None)
def test_the_best_of_all_graphs_in_which_operators_may_run_again(
    words: list[str], early: int, ends_in_x: bool, data: st.DataObject | None
) -> None:
    g, mesh = residual(words, early, ends_in_x=ends_in_x), slow(2, 1e9)
    graphs = [g, *(run_again(g, some)[0] for some in list_subsets(list_late(g)))]
    problems = [Problem(graph, Asked(mesh)) for graph in graphs]
    assume(sum(prod(problem.sizes) for problem in problems) <= 4 * MAX_CHOICES)
    known = [one for problem in problems for one in every_choice(problem)]
    some = sorted({max(one.held) for one in known})
    for cap in [some[0], some[0] - 1] if data is None else [data.draw(st.sampled_from(some))]:
        fitting = [one.cost for one in known if max(one.held) <= cap]
        try:
            p = plan(g, mesh, memory_nbytes=cap, fuse=False)
        except (InfeasiblePlan, NotFound) as error:
            assert not fitting and isinstance(error, InfeasiblePlan)
            continue
        assert p.gap == 0 and max(p.peak_nbytes) <= cap
        if p.choices.memory_nbytes is None:  # the fastest plan, with blocks over others, keeps the cap
            assert p == plan(g, mesh, fuse=False)
            assert not fitting or round(p.seconds * 1e12) <= min(fitting)[0]
        else:
            assert round(p.seconds * 1e12) == min(fitting)[0]


def test_what_waits_is_made_again_in_less_memory() -> None:
    """tanh(exp(x)) waits for the end, where x is read anyway: both run again, in 65,536 bytes rather than 73,728."""
    g = Graph()
    x = g.input("x", (64, 64))
    h = y = ops.tanh(ops.exp(x))
    for k in range(4):
        y = ops.tanh(y @ g.input(f"w{k}", (64, 64)))
    g.output(y * h + x, "y")
    mesh = slow(2, 1e9)
    fast = plan(g, mesh)
    assert not fast.recomputed and fast == plan(g, mesh, memory_nbytes=max(fast.peak_nbytes))
    assert not plan(g, mesh, memory_nbytes=73_728).recomputed
    p = plan(g, mesh, memory_nbytes=73_727)
    assert p.recomputed == {"tanh_5": "tanh", "exp_1": "exp"} and p.gap == 0 and max(p.peak_nbytes) == 65_536
    assert ("exp_1", "tanh_5") in [(pair.first, pair.second) for pair in p.fused], "what runs again is a block"
    assert ShardPlan.from_json(p.to_json()) == p
    assert [(step.at, step.arguments["by"]) for step in p.derivation.steps if step.rule == "recompute"] == [
        ("tanh", ("multiply",)),
        ("exp", ("tanh_5",)),
    ]
    assert set(p.derivation.replay(g).nodes) == set(p.graph.nodes)
    rng = np.random.default_rng(1)
    values = {name: rng.random((64, 64), np.float32) for name in ["x", *(f"w{k}" for k in range(4))]}
    slower, faster = run(p, values), run(fast, values)
    np.testing.assert_allclose(slower.outputs["y"], faster.outputs["y"], rtol=1e-5)
    assert tuple(slower.peak_nbytes) == p.peak_nbytes


@pytest.mark.heavy(2)
def test_an_activation_runs_again_in_the_backward_pass() -> None:
    """What a layer's product made is kept for its gradient; the activation of it need not be."""
    g = Graph()
    x, weights = g.input("x", (32, 64)), [g.input(f"w{k}", (64, 64)) for k in range(3)]
    h = x
    for w in weights:
        h = h @ w
        h = h * ops.sigmoid(h)
    for w, grad in zip(weights, gradient(ops.sum(h * h), weights), strict=True):
        g.output(w - grad, f"new_{w.name}")
    mesh = slow(2, 1e9)
    fast = plan(g, mesh, fuse=False)
    cap = max(fast.peak_nbytes) * 9 // 10
    p = plan(g, mesh, memory_nbytes=cap, fuse=False)
    assert p.recomputed and max(p.peak_nbytes) <= cap
    rng = np.random.default_rng(1)
    values = {name: rng.random(g.stored[name].shape, np.float32) for name in ("x", "w0", "w1", "w2")}
    ran = run(p, values)
    assert tuple(ran.peak_nbytes) == p.peak_nbytes and ran.nbytes_moved == p.nbytes_moved
    for label, value in run(fast, values).outputs.items():
        np.testing.assert_allclose(ran.outputs[label], value, rtol=1e-4)


def test_products_and_what_saves_nothing_do_not_run_again() -> None:
    g = Graph()
    x, w = g.input("x", (64, 64)), g.input("w", (64, 64))
    h = y = x @ w
    for _ in range(3):
        y = ops.exp(y)
    g.output(y + h + x @ w.T)
    assert list_late(g) == []  # a product
    assert list_late(residual(["exp", "tanh", "exp"], 0, ends_in_x=False)) == []  # x would wait in its place
    late = list_late(residual(["exp", "tanh", "exp"], 0))
    assert [(one.node, one.by, one.before) for one in late] == [("n0", ("late",), ())]
    assert list_late(residual(["exp", "tanh", "exp"], 0), ["n0"]) == []


def test_the_rule_is_the_reverse_of_unify() -> None:
    g = Graph()
    x = g.input("x", (4, 6))
    h = ops.exp(x, name="h")
    g.output(ops.add(ops.relu(h.T, name="a"), ops.tanh(h.T[::-1], name="b")))
    again = recompute.apply(g, "h", by=["b"], name="other")
    assert again.nodes["a"].inputs == g.nodes["a"].inputs and again.source(again.nodes["b"].inputs[0]).stored == (
        "other",
    )
    assert unify_equal(again)[1] == {"other": "h"}
    value = {"x": np.arange(24, dtype=np.float32).reshape(4, 6) / 24}
    one, two = (run(plan(graph, Mesh((2,)), unify=False), value).outputs for graph in (g, again))
    assert all(np.array_equal(one[label], two[label]) for label in one)
    for at, by, says in (("a", (), "no two operators"), ("h", ("add",), "'add' reads none of its results")):
        with pytest.raises(ValueError, match=says):
            recompute.apply(g, at, by=by)
