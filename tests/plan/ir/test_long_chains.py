"""Views of views, thousands of them: every walk over a graph goes on, none recurses."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from tapestry_exec import evaluate, run
from tapestry_plan import Graph, Mesh, ShardPlan, Tensor, gradient, ops, plan, same_graph
from tapestry_plan.rewrite import simplify_selections

Step = Callable[[Tensor, int], Tensor]
X = np.arange(24, dtype=np.float32).reshape(4, 6)


def turned(x: Tensor, k: int) -> Tensor:
    return x.T if k % 2 else x[::-1]


def halved(x: Tensor, k: int) -> Tensor:
    return ops.array_api.concat([x[2:], x[:2]])


def chain(step: Step, times: int) -> Graph:
    """An operator behind many views."""
    g = Graph()
    x = g.input("x", X.shape)
    for k in range(times):
        x = step(x, k)
    g.output(ops.relu(x), "y")
    return g


@pytest.fixture
def shallow() -> Iterator[None]:
    """Little room for recursion: short chains tell as much as long ones."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(300)
    yield
    sys.setrecursionlimit(before)


@pytest.mark.heavy(2)
@pytest.mark.usefixtures("shallow")
@pytest.mark.parametrize(("step", "times"), [(turned, 400), (halved, 130)])
def test_every_walk_goes_through_many_views(step: Step, times: int) -> None:
    g = chain(step, times)
    wanted = X
    for k in range(times):
        wanted = (wanted.T if k % 2 else wanted[::-1]) if step is turned else np.roll(wanted, -2, axis=0)
    g.validate()
    assert same_graph(Graph.from_json(g.to_json()), g)
    p = plan(g, Mesh((2,)))
    assert ShardPlan.from_json(p.to_json()) == p and "relu" in str(p.explain("relu"))
    assert np.array_equal(run(p, {"x": X}).outputs["y"], wanted)
    assert np.array_equal(evaluate(g, {"x": X})["y"], wanted)
    assert len(g.draw({"relu": {"i0": 2}}).text.splitlines()) > times
    assert len(simplify_selections(g).graph.selections) < 10
    (back,) = gradient(ops.array_api.sum(g.tensor("relu")), [g.tensor("x")])
    assert back.shape == X.shape and g.source(back.name).shape == X.shape


@pytest.mark.parametrize("times", [1000, pytest.param(20_000, marks=pytest.mark.heavy)])
def test_thousands_of_views_are_resolved_and_planned(times: int) -> None:
    g = chain(turned, times)
    source = g.source(next(reversed(g.selections)))
    assert source.stored == ("x",) and len(source.pieces) == 1
    assert len(list(g._ordered())) == times + 1
    assert plan(g, Mesh((2,))).nbytes_moved == 0 and "relu" in g.draw().text


def test_a_view_of_itself_is_refused() -> None:
    g = chain(turned, 3)
    last = next(reversed(g.selections))
    document = g.to_dict()
    views = [entry for entry in document["order"] if "select" in entry]
    views[0]["inputs"] = [last]
    with pytest.raises(ValueError, match="cycle"):
        Graph.from_dict(document)


@pytest.mark.parametrize("has_input", [False, True])
def test_a_graph_without_operators_has_an_empty_plan(has_input: bool) -> None:
    g = Graph()
    if has_input:
        g.output(g.input("x", (4,)), "y")
    p = plan(g, Mesh((2,)))
    assert (p.nbytes_moved, p.cost, p.gap, p.sharding) == (0, 0.0, 0.0, {})
    assert ShardPlan.from_json(p.to_json()) == p
    found = run(p, {"x": X[0, :4]} if has_input else {}).outputs
    assert list(found) == ["y"] * has_input and all(np.array_equal(y, X[0, :4]) for y in found.values())
