"""Three hundred random graphs, planned in every way that plans differ, and run: time, bytes, peaks and values."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import numpy as np
import pytest

from tapestry_exec import evaluate, run
from tapestry_plan import Device, Graph, Link, Mesh, NotFound, Placed, ShardPlan, Tensor, concat, plan
from tapestry_plan.ops import exp, relu, softmax, sum, tanh
from tapestry_plan.steps import InfeasiblePlan
from tests.exec.run.test_same_bits import of_floats
from tests.recosting import Recosting
from tests.ways_of_running import Threads, assert_same

KINDS = {
    *("devices permuted", "periodic parts", "uneven parts", "tied", "capped"),
    *("landing", "shared out", "spread from one copy"),
}


def make_graph(rng: random.Random) -> Graph:
    """A few operators on matrices, with views between them; the last one's result may take the first input's place."""
    n, k = rng.choice([8, 12, 24]), rng.choice([6, 8, 10])
    g = Graph()
    tensors = [g.input("x", (n, k)), g.input("z", (n, k))]

    def viewed(t: Tensor) -> Tensor:
        word = rng.choice(["none", "none", "flip", "swap", "riffle", "strides"])
        if word == "flip":
            return t[::-1]
        if word == "swap":
            return concat([t[n // 2 :], t[: n // 2]], 0)
        if word == "riffle":
            return t.reshape(4, -1, k).permute_dims((1, 0, 2)).reshape(n, k)
        return concat([t[::2], t[1::2]], 0) if word == "strides" else t

    for number in range(rng.randint(2, 4)):
        a, b = viewed(rng.choice(tensors[-2:])), viewed(rng.choice(tensors))
        word = rng.choice("uubpws")
        if word == "u":
            made = rng.choice([exp, tanh, relu])(a * 0.25)
        elif word == "b":
            made = a + b
        elif word == "p":
            made = (a @ g.input(f"w{number}", (k, 16))) @ g.input(f"v{number}", (16, k)) * 0.1
        elif word == "w":
            made = tanh(b.T @ a)[: n % k or k] @ g.input(f"u{number}", (k, k)) if n < k else a + sum(b, axis=0)
        else:
            made = softmax(a, axis=rng.choice([0, 1]))
        tensors.append(made if made.shape == (n, k) else relu(a))
    g.output(tensors[-1] * 0.5, "new")
    return g


def make_plan(g: Graph, rng: random.Random) -> tuple[ShardPlan, set[str]]:
    """A plan asked for in some way, and the ways that the question alone says."""
    mesh = Mesh((rng.choice([2, 3, 4, 4]),), link=Link(1e-9, 1e9), device=Device(1e7, rng.choice([1e9, 1e12])))
    asked: dict[str, Any] = {"seed": rng.randrange(9)}
    said = set()
    if rng.random() < 0.3:
        asked["placement"] = "single"
        said.add("spread from one copy")
    if rng.random() < 0.3:
        asked["tie"] = {"new": "x"}
        said.add("tied")
    elif rng.random() < 0.5:
        asked["layout"] = {
            rng.choice([name for name, tensor in g.stored.items() if tensor.kind == "input"]): Placed(
                {rng.randrange(mesh.size): np.s_[:]}
            )
        }
    found = plan(g, mesh, **asked)
    if rng.random() < 0.4:
        cap = max(found.peak_nbytes) * rng.choice([8, 9]) // 10
        try:
            less = plan(g, mesh, memory_nbytes=cap, **asked)
        except (InfeasiblePlan, NotFound):
            return found, said
        assert max(less.peak_nbytes) <= cap
        return less, said | {"capped"}
    return found, said


def kinds_of(p: ShardPlan) -> set[str]:
    found = set()
    if any(each.split for each in p.expansions):
        found.add("periodic parts")
    if any(stage.node.startswith("landing") for stage in p.stages):
        found.add("landing")
    if any(
        f"landing {name}" == stage.node
        for stage in p.stages
        for name, tensor in p.graph.stored.items()
        if tensor.kind == "input"
    ):
        found.add("shared out")
    for boxes in p.placement.values():
        starts = [box.start for device in sorted(boxes) for box in boxes[device]]
        if starts != sorted(starts) and len(set(starts)) == len(starts):
            found.add("devices permuted")
        if len({box.shape for each in boxes.values() for box in each if not box.is_empty}) > 1:
            found.add("uneven parts")
    return found


def check_seed(seed: int) -> set[str]:
    """Plan and run a random graph: the run counts what the plan says, and gives what the graph gives."""
    rng = random.Random(seed)
    g = make_graph(rng)
    p, said = make_plan(g, rng)
    feeds = of_floats(g, seed)
    r = run(p, feeds, backend="serial")
    assert_same(run(p, feeds, backend=Threads()), r)
    assert (r.nbytes_received, dict(r.nbytes_by_link)) == (p.nbytes_received, dict(p.nbytes_by_link))
    assert (r.nbytes_placed, r.peak_nbytes) == (p.nbytes_placed, p.peak_nbytes)
    np.testing.assert_allclose(r.outputs["new"], evaluate(g, feeds)["new"], rtol=2e-4, atol=1e-5)
    assert p.gap >= 0 and p.bound <= p.seconds
    again = Recosting(p)
    assert (again.ticks, again.nbytes) == (round(p.seconds * 1e12), p.nbytes_moved)
    assert tuple(again.copied) == p.nbytes_local
    read = ShardPlan.from_json(p.to_json())
    assert (read, read.steps, read.buffers) == (p, p.steps, p.buffers)
    return said | kinds_of(p)


@pytest.mark.parametrize("begin", [0, *(pytest.param(k, marks=pytest.mark.heavy(60)) for k in range(10, 300, 10))])
def test_plans_of_every_kind_move_and_hold_what_they_say(begin: int) -> None:
    tally = Counter(kind for seed in range(begin, begin + 10) for kind in check_seed(seed))
    assert begin or tally.keys() == KINDS, f"some kind of plan is not tried: {tally}"
