"""What is tried is limited by work that is counted, not by a clock: a busy machine gives the same plan."""

from __future__ import annotations

import time
from itertools import count
from typing import Any

import pytest

from tapestry_plan import Graph, Mesh, ops, plan
from tests.capped_choices import slow


def waiting() -> Graph:
    """What waits for the end is made again, in less memory."""
    g = Graph()
    x = g.input("x", (64, 64))
    h = y = ops.tanh(ops.exp(x))
    for k in range(4):
        y = ops.tanh(y @ g.input(f"w{k}", (64, 64)))
    g.output(y * h + x, "y")
    return g


def chain() -> Graph:
    g = Graph()
    h = x = g.input("x", (48, 64))
    for k in range(3):
        h = ops.softmax(h @ g.input(f"w{k}", (64, 64)), axis=-1)
    g.output(h + x, "y")
    return g


@pytest.mark.parametrize(
    ("graph", "mesh", "share"),
    [
        (waiting(), slow(2, 1e9), 0.9),
        (chain(), slow(3, 1e8), 0.8),
        (chain(), slow(2, 1e9), 1.0),
    ],
)
def test_a_clock_that_runs_away_changes_no_plan(
    graph: Graph, mesh: Mesh, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each look at the clock finds it a minute later."""
    asked: dict[str, Any] = {}
    if share < 1:
        asked["memory_nbytes"] = int(share * max(plan(graph, mesh).peak_nbytes))
    wanted = plan(graph, mesh, **asked)
    minutes = count(0, 60)
    monkeypatch.setattr(time, "monotonic", lambda: float(next(minutes)))
    assert plan(graph, mesh, **asked) == wanted
    assert next(minutes), "the clock is not asked: is it another one?"
