"""Outputs that lie where the inputs of the next run lie: published traffic of training, brute force, wrong ties."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from tapestry_exec import run
from tapestry_plan import Device, Graph, Link, Mesh, ShardPlan, gradient, ops, plan
from tapestry_plan.steps import HOST, Copy

H100: dict[str, Any] = {"link": Link(5e-6 / 7, 3e11), "device": Device(4e14, 3e12)}
"""A device sends to the seven others within 5 us, and as fast as it receives."""


def training(rows: int, width: int, inner: int) -> Graph:
    """Two layers, a loss, and weights less their gradients."""
    g = Graph()
    x, t = g.input("x", (rows, width)), g.input("t", (rows, width))
    w, v = g.input("w", (width, inner)), g.input("v", (inner, width))
    away = ops.relu(x @ w) @ v - t
    dw, dv = gradient(ops.sum(away * away), [w, v])
    g.output(w - dw, "new_w")
    g.output(v - dv, "new_v")
    return g


TIE = {"new_w": "w", "new_v": "v"}


def places(p: ShardPlan, tensor: str) -> dict[int, set[tuple[tuple[int, ...], tuple[int, ...]]]]:
    """By device the boxes of an input where it is placed, or of an output where the plan leaves it."""
    out: dict[int, set[tuple[tuple[int, ...], tuple[int, ...]]]] = {}
    output = next((o for o in p.outputs if o.name == tensor), None)
    if output is None:
        for step in p.steps:
            if isinstance(step, Copy) and step.src == HOST and step.tensor == tensor:
                b = p.buffers[step.dst]
                out.setdefault(b.device, set()).add((b.start, b.shape))
        return out
    for number, _ in (*output.blocks, *output.replicas):
        b = p.buffers[number]
        out.setdefault(b.device, set()).add((b.start, b.shape))
    return out


def test_training_over_rows_moves_two_copies_of_the_weights() -> None:
    """Reduce-scatter, sharded update, all-gather: 2·(P − 1)·n bytes in all, a ring's optimum; ZeRO-1 by itself."""
    p = plan(training(65_536, 1024, 4096), Mesh((8,), **H100), tie=TIE)
    assert p.gap == 0
    assert p.nbytes_moved <= 2 * 7 * 4 * 2 * 1024 * 4096 == 469_762_048
    assert p.seconds <= 1_486.6e-6  # textbook data parallel takes 2,171
    assert places(p, "new_w") == places(p, "w")
    assert plan(training(65_536, 1024, 4096), Mesh((8,), **H100)).seconds < p.seconds  # a tie costs something


def test_runs_follow_each_other() -> None:
    p = plan(training(32, 8, 16), Mesh((4,)), tie=TIE)
    rng = np.random.default_rng(0)
    x, t = (rng.random((32, 8)).astype(np.float32) for _ in range(2))
    w, v = rng.random((8, 16)).astype(np.float32) * 0.01, rng.random((16, 8)).astype(np.float32) * 0.01
    for _ in range(2):
        found = run(p, {"x": x, "t": t, "w": w, "v": v})
        h = np.maximum(x @ w, 0)
        away = 2 * (h @ v - t)
        wanted = w - x.T @ ((away @ v.T) * (h > 0)), v - h.T @ away
        w, v = found.outputs["new_w"], found.outputs["new_v"]
        assert np.allclose(w, wanted[0], atol=1e-4) and np.allclose(v, wanted[1], atol=1e-4)
        assert found.nbytes_moved == p.nbytes_moved
    assert all(places(p, new) == places(p, old) for new, old in TIE.items())


@pytest.mark.parametrize("devices", [2, 3])
@pytest.mark.parametrize("wanted", [None, {0: 2}, {}])
def test_the_tied_layout_is_the_best_of_all(devices: int, wanted: dict[int, int] | None) -> None:
    """Every layout of the input, asked for under both names, costs as much or more; the best costs the same."""
    g = Graph()
    w, x = g.input("w", (6, 4)), g.input("x", (4, 6))
    g.output((w - (x @ w @ x).T).T.T + w, "new")
    mesh = Mesh((devices,), link=Link(1e-9, 1e9), device=Device(1e9, 1e9))
    layout = {} if wanted is None else {"w": wanted}
    p = plan(g, mesh, tie={"new": "w"}, layout=layout)
    every = [dict(zip((0, 1), parts, strict=True)) for parts in product(range(1, devices + 1), repeat=2)]
    asked = [parts for parts in every if parts[0] * parts[1] <= devices] if wanted is None else [wanted]
    costs = [plan(g, mesh, layout={"w": parts, "new": parts}).seconds for parts in asked]
    assert p.seconds <= min(costs) * (1 + 1e-12)
    if wanted is not None:
        assert p.seconds == pytest.approx(costs[0], rel=1e-12)
    assert places(p, "new") == places(p, "w")


@pytest.mark.parametrize(
    ("tie", "layout", "kind", "message"),
    [
        ({"old": "w"}, {}, ValueError, r"tie\['old'\]: there is no graph output 'old'; known outputs: 'new', 'seen'"),
        (
            {"new": "z"},
            {},
            ValueError,
            r"tie\['new'\]: 'z' is not a graph input or constant; known inputs and constants: 'w', 'u'",
        ),
        ({"new": "u"}, {}, ValueError, r"output 'new' is float32 of shape \(4, 6\), input 'u' float32 of shape \(6,\)"),
        ({"seen": "w"}, {}, ValueError, "output 'seen' is not a result of an operator"),
        ({"new": "w"}, {"w": {0: 2}, "new": {1: 2}}, ValueError, "tied tensors lie alike, so ask for one of them"),
        ({"new": "w", "again": "w"}, {}, ValueError, "the input 'w' is tied twice"),
        ("new", {}, TypeError, "tie must be .*, not 'new' of type str; it maps outputs to inputs"),
    ],
)
def test_wrong_ties_are_named(tie: Any, layout: dict[str, Any], kind: type[Exception], message: str) -> None:
    g = Graph()
    w, u = g.input("w", (4, 6)), g.input("u", (6,))
    g.output(w + u, "new")
    g.output(w[::-1], "seen")
    if isinstance(tie, dict) and "again" in tie:
        g.output(w - u, "again")
    with pytest.raises(kind, match=message):
        plan(g, Mesh((2,)), tie=tie, layout=layout)
