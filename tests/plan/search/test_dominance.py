"""Operators are left out of the search for expansions only where none of these is in any better plan."""

from __future__ import annotations

from typing import Any
from unittest import mock

import numpy as np
import pytest
from layered_models import bert, gpt
from msgspec.structs import replace

import tapestry_plan.search.expansions.granted as module
import tapestry_plan.search.expansions.joint as joint_module
from tapestry_exec import evaluate, run
from tapestry_plan import Device, Graph, Link, Mesh, Op, Tensor, load_onnx, plan
from tapestry_plan.ir import BUILTIN_OPS
from tapestry_plan.ops import relu, softmax
from tapestry_plan.rewrite.rules import expand
from tapestry_plan.search import tuning
from tapestry_plan.search.expansions.dominance import find_expandable, find_undominated
from tapestry_plan.search.expansions.joint import JointProblem
from tapestry_plan.search.prices.costs.problem import Problem
from tapestry_plan.search.prices.costs.seconds import TICKS_PER_SECOND
from tapestry_plan.search.prices.costs.variables import Asked
from tapestry_plan.search.prices.costs.variants import Variants
from tapestry_plan.search.solving import find_layouts, list_rows, solve
from tapestry_plan.search.sums.elimination import minimize

SLOW = {"device": Device(1e6, 1e12), "link": Link(1e-9, 1e12)}
FAST = {"device": Device(1e15, 1e9), "link": Link(1e-6, 1e9)}


def rows(*shapes: tuple[int, int]) -> Graph:
    """Softmaxes that have nothing to do with each other."""
    g = Graph()
    for k, shape in enumerate(shapes):
        g.output(softmax(g.input(f"x{k}", shape), name=f"s{k}"), f"y{k}")
    return g


def found(g: Graph, mesh: Mesh, expand: Any = True, worse: float = 0.0, bound: int | None = None) -> frozenset[str]:
    """What is undominated beside a plan that takes so many seconds more than the best of the graph as it is."""
    problem = Problem(g, Asked(mesh))
    best = solve(problem)
    ticks, nbytes = problem.count_cost(best.choice)
    cost = ticks + round(worse * TICKS_PER_SECOND), nbytes
    least = best.bound_ticks if bound is None else bound
    return find_undominated(problem, find_expandable(g, expand), cost, least).names


def test_a_long_row_is_undominated_and_many_rows_are_not() -> None:
    """Where the many rows lose more by being expanded than the long ones can gain."""
    g = rows((1, 4096), (1024, 64), (1, 2048), (1024, 32))
    assert found(g, Mesh((2,), **SLOW)) == {"s0", "s2"}  # type: ignore[arg-type]
    assert found(g, Mesh((2,), **FAST)) == frozenset()  # type: ignore[arg-type]
    assert found(g, Mesh((1,), **SLOW)) == frozenset()  # type: ignore[arg-type]


def test_layouts_that_no_better_plan_has_are_left_out_with_expansions_too() -> None:
    g, mesh = rows((1, 4096), (64, 64)), Mesh((4,), **SLOW)  # type: ignore[arg-type]
    problem = Problem(g, Asked(mesh))
    best = solve(problem)
    cost = problem.count_cost(best.choice)
    left = find_undominated(problem, find_expandable(g, True), cost, best.bound_ticks)
    joint = JointProblem(Variants(g, True, g.nodes.keys() - left.names), problem.asked)
    fewer = joint.keep(left.kept)
    assert sum(fewer.sizes) < sum(joint.sizes)
    found, wanted = (one.choose(best.entries, best.ticks, best.bound_ticks) for one in (fewer, joint))
    assert any(found.values) and found.values == wanted.values and found.bound_ticks == wanted.bound_ticks
    above = find_undominated(problem, find_expandable(g, True), (cost[0] + 10**6, cost[1]), best.bound_ticks)
    assert above.names and not above.kept, "of a plan with a gap nothing is known"


@pytest.mark.parametrize(
    ("entries", "total"), [(1, tuning.MIN_JOINT_ENTRIES), (10**7, 8 * 10**7), (10**9, tuning.MAX_ENTRIES)]
)
def test_expansions_are_compared_in_tables_as_large_as_those_of_the_graph_allow(
    entries: int, total: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever tables left layouts out before: a fourth of all that may be gone through is the largest one."""
    g, mesh = rows((1, 4096), (64, 64)), Mesh((4,), **SLOW)  # type: ignore[arg-type]
    problem = Problem(g, Asked(mesh))
    best, seen = solve(problem), []

    def noted(*args: Any, cap: int, total: int) -> Any:
        found = minimize(*args, cap=cap, total=total)
        seen.append((cap, total, found.entries <= total))
        return found

    monkeypatch.setattr(joint_module, "minimize", noted)
    joint = JointProblem(Variants(g, True, frozenset()), problem.asked)
    assert any(joint.choose(entries, best.ticks, best.bound_ticks).values)
    assert set(seen) == {(total // 4, total, True)}


def test_what_a_first_look_kept_is_all_that_later_ones_need() -> None:
    """Long rows are expanded: neither the plan of that graph, nor what is undominated beside it, is another one."""
    g, mesh = rows((1, 4096), (1024, 64), (1, 2048)), Mesh((2,), **SLOW)  # type: ignore[arg-type]
    problem = Problem(g, Asked(mesh))
    best = solve(problem)
    expandable = find_expandable(g, True)
    left = find_undominated(problem, expandable, problem.count_cost(best.choice), best.bound_ticks)
    some = Variants(g, True, g.nodes.keys() - left.chosen)
    other = Problem(some.build_graph(some.normalize([int(not one.given) for one in some.choices]))[0], Asked(mesh))
    with mock.patch.object(tuning, "MAX_DIRECT_ENTRIES", 0):  # as where tables are large
        few, every = (find_layouts(other, known=known) for known in (left.kept, None))
    assert few.ticks == every.ticks < best.ticks
    assert sum(map(len, list_rows(other, left.kept) or ())) < sum(other.sizes)
    cost = other.count_cost(few.choice)
    names = {name: expandable[name] for name in left.names}
    again, anew = (find_undominated(problem, names, cost, best.bound_ticks, known) for known in (left.kept, None))
    assert (again.names, again.chosen, again.ticks, again.nbytes) == (anew.names, anew.chosen, anew.ticks, anew.nbytes)


def test_beside_a_bad_plan_what_cannot_lower_the_bound_is_dominated() -> None:
    g, mesh = rows((64, 8), (64, 16)), Mesh((2,), **FAST)  # type: ignore[arg-type]
    assert found(g, mesh) == frozenset()
    assert found(g, mesh, worse=1.0) == frozenset()
    assert found(g, mesh, worse=1.0, bound=10**12) == {"s0", "s1"}


@pytest.mark.parametrize("rates", [SLOW, FAST], ids=["slow", "fast"])
@pytest.mark.parametrize("devices", [1, 2, 3, 4])
def test_what_is_left_out_costs_more_in_every_plan(devices: int, rates: dict[str, Any]) -> None:
    """Each operator of a chain alone expanded, planned as it then is."""
    g, mesh = Graph(), Mesh((devices,), **rates)
    h = g.op("layer_normalization", g.input("x", (2, 64)), g.input("s", (64,)), g.input("b", (64,)), name="norm")
    h = softmax(h @ g.input("w", (64, 5)), name="short")
    g.output(softmax((h + g.input("c", (2, 5))).mT, name="long", axis=0) @ g.input("v", (2, 3)), "y")
    wanted, whole = found(g, mesh), plan(g, mesh, expand=False)
    for name in ("norm", "short", "long"):
        other = plan(expand.apply(g, name), mesh, expand=False)
        assert name in wanted or other.seconds > whole.seconds


def same(xp: Any, inputs: Any, outputs: Any, shard: Any) -> None:
    outputs[0][...] = inputs[0]


def itself(inputs: Any, attrs: Any) -> Tensor:
    """What an operator that changes nothing is: its input."""
    return inputs[0]


def once(inputs: Any, attrs: Any) -> Tensor:
    """One row is computed, and read many times."""
    (x,) = inputs
    return relu(x[:1]).broadcast_to(x.shape)


COPY = replace(BUILTIN_OPS["relu"], name="copy", block=same, expansions=(itself,))
SPREAD = replace(BUILTIN_OPS["relu"], name="spread", expansions=(once,))


@pytest.mark.parametrize(("op", "into"), [(COPY, "itself"), (SPREAD, "once")], ids=["view of the input", "broadcast"])
def test_views_that_save_their_readers_work_are_never_dominated(op: Op, into: str) -> None:
    """Who reads through such a view has less to read: what the expansion costs alone says nothing about it."""
    g = Graph()
    x = g.input("x", (1, 64)).broadcast_to((16, 64))
    g.output(g.op(op, x, name="c") * g.input("z", (16, 64)), "y")
    mesh = Mesh((2,), **FAST)  # type: ignore[arg-type]
    assert found(g, mesh, [into]) == {"c"}
    p = plan(g, mesh, expand=[into], fuse=False)
    assert p.expanded == {"c": into} and p.seconds < plan(g, mesh, expand=False, fuse=False).seconds
    rng = np.random.default_rng(0)
    inputs = {name: rng.standard_normal(g.stored[name].shape).astype(np.float32) for name in ("x", "z")}
    result, wanted = run(p, inputs), evaluate(g, inputs)
    np.testing.assert_array_equal(result.outputs["y"], wanted["y"])


def test_repeated_operators_are_judged_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twelve equal softmaxes and one of another shape: two problems."""
    posed = []
    real = module.Alone

    def counted(*args: Any) -> Any:
        posed.append(args[0])
        return real(*args)

    monkeypatch.setattr(module, "Alone", counted)
    g = rows(*[(64, 8)] * 12, (64, 4))
    assert found(g, Mesh((4,), **FAST)) == frozenset() and len(posed) == 2  # type: ignore[arg-type]


def test_a_transformer_s_expansions_are_ruled_out_and_named() -> None:
    """Norms and softmaxes of ten layers: none is left out unlooked at, and the bound is that without expansions."""
    g, mesh = load_onnx(gpt(10, length=256, width=64, inner=256)), Mesh((4,), **FAST)  # type: ignore[arg-type]
    p, plain = plan(g, mesh), plan(g, mesh, expand=False)
    assert (p.seconds, p.nbytes_moved, p.bound) == (plain.seconds, plain.nbytes_moved, plain.bound)
    assert len(p.expansions) == 30 and not any(one.left_out for one in p.expansions)


@pytest.mark.heavy(2)
def test_a_gap_is_as_wide_with_expansions_as_without() -> None:
    """Residuals that many read: the plan is not proved, and norms cannot lower what is."""
    g, mesh = load_onnx(bert(1)), Mesh((6,))
    p, plain = plan(g, mesh), plan(g, mesh, expand=False)
    assert p.gap <= plain.gap and (p.seconds, p.nbytes_moved) <= (plain.seconds, plain.nbytes_moved)
    assert all(one.considered and not one.left_out for one in p.expansions)


@pytest.mark.parametrize("view", [lambda t: t[::-1], lambda t: t[:4], lambda t: t[::2]], ids=["flip", "half", "even"])
@pytest.mark.parametrize("devices", [4, 8])
def test_alike_operators_may_have_other_layouts(view: Any, devices: int) -> None:
    """Two equal softmaxes, of which a view offers one more layouts: their tables are not the same."""
    g = Graph()
    x, z = g.input("x", (8, 6)), g.input("z", (8, 6))
    g.output(g.op("tanh", view(softmax(x, axis=1))), "a")
    g.output(softmax(z, axis=1), "b")
    p = plan(g, Mesh((devices,)))
    assert p.gap == 0 and p.seconds <= plan(g, Mesh((devices,)), expand=False).seconds
