"""Runs of plans under a memory cap, whose arenas are laid out anew: the values, and the peaks that were predicted."""

from __future__ import annotations

import numpy as np
import pytest

from tapestry_exec import run
from tapestry_plan import Device, Graph, Link, Mesh, ops, pareto
from tapestry_plan.steps import Alloc, Free, ShardPlan


def first_fit(p: ShardPlan, device: int) -> int:
    """The largest arena where each buffer takes the lowest free place as it comes."""
    there: dict[int, tuple[int, int]] = {}
    most = 0
    for step in p.steps:
        if isinstance(step, Alloc | Free):
            buffer = p.buffers[step.buffer]
            if buffer.device == device and isinstance(step, Free):
                del there[buffer.id]
            elif buffer.device == device:
                size, begin = -(-buffer.nbytes // 64) * 64, 0
                for low, high in sorted(there.values()):
                    if low - begin >= size:
                        break
                    begin = max(begin, high)
                there[buffer.id] = begin, begin + size
                most = max(most, begin + size)
    return most


@pytest.mark.heavy(2)
@pytest.mark.parametrize("widths", [(8, 32, 8, 8), (24, 32, 8, 24)])
def test_plans_of_less_memory_give_the_same_values(widths: tuple[int, ...]) -> None:
    g = Graph()
    h = x = g.input("x", (16, widths[0]))
    for k, width in enumerate((*widths[1:], widths[0])):
        h = ops.relu(h @ g.input(f"w{k}", (h.shape[1], width)))
    g.output(h + x, "y")
    rng = np.random.default_rng(1)
    feeds = {name: rng.standard_normal(t.shape).astype(np.float32) for name, t in g.stored.items() if t.kind == "input"}
    wanted = feeds["x"]
    for k in range(4):
        wanted = np.maximum(wanted @ feeds[f"w{k}"], 0)
    packed = 0
    for p in pareto(g, Mesh((3,), link=Link(1e-8, 1e8), device=Device(1e9, 1e10)), points=6):
        done = run(p, feeds, verify=True)
        assert done.peak_nbytes == p.peak_nbytes
        assert np.allclose(done.outputs["y"], wanted + feeds["x"], rtol=1e-3, atol=1e-3)
        packed += any(first_fit(p, d) > p.peak_nbytes[d] for d in range(3))
    assert packed, "an arena is laid out better than its buffers come"
