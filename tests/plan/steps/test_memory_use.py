"""What arenas hold, step by step: against buffers followed one by one, and what a run counts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tapestry_plan import Graph, HeldBuffer, Mesh, ShardPlan, least_memory, load_onnx, plan
from tapestry_plan.ops import linear, matmul, relu
from tapestry_plan.steps import Alloc, Free, spill
from tests.graph_recipes import Recipe, built, recipes

MODELS = Path(__file__).parents[2] / "models"


def check(p: ShardPlan) -> None:
    """Follow the buffers of each device by themselves."""
    buffers = {buffer.id: buffer for buffer in p.buffers}
    for device, use in enumerate(p.memory):
        assert use.device == device and use.arena_nbytes == p.peak_nbytes[device]
        told = dict(use.held)
        assert list(told) == sorted(told)
        there: dict[int, None] = {}
        seen: list[tuple[int, frozenset[int]]] = []
        for number, step in enumerate(p.steps):
            changes = isinstance(step, Alloc | Free) and buffers[step.buffer].device == device
            assert changes == (number in told)
            if isinstance(step, Alloc | Free) and changes:
                there = {n: None for n in [*there, step.buffer] if (n in there) != (n == step.buffer)}
            own, places = set[int](), set[int]()
            for one in map(buffers.__getitem__, there):  # others lie within these, or over them
                place = one.id if one.over is None else one.over
                if one.within is None and place not in places:
                    own.add(one.id)
                    places.add(place)
            held = sum(-(-buffers[number].nbytes // 64) * 64 for number in own)
            assert told.get(number, held) == held
            seen.append((held, frozenset(own)))
        most = max((held for held, _ in seen), default=0)
        assert use.peak_nbytes == most <= use.arena_nbytes
        if most:
            assert seen[use.peak_step][0] == most and all(held < most for held, _ in seen[: use.peak_step])
            assert {one.buffer.id for one in use.at_peak} == seen[use.peak_step][1]
            assert all(one.first <= use.peak_step <= one.last for one in use.at_peak)
            assert sum(one.nbytes for one in use.at_peak) == most
            sizes = [one.nbytes for one in use.at_peak]
            assert sizes == sorted(sizes, reverse=True)


@settings(max_examples=40)
@given(recipes(), st.integers(1, 4))
def test_random_plans(recipe: Recipe, devices: int) -> None:
    check(plan(built(recipe), Mesh(devices)))


@pytest.mark.parametrize("name", ["bert", "gpt2", "resnet"])
def test_networks(name: str) -> None:
    p = plan(load_onnx(MODELS / f"{name}.onnx"), Mesh(4))
    check(p)
    check(spill(p, max(least_memory(p))))


def small() -> ShardPlan:
    """A product with a part for each device, of a weight turned around and a bias; scratch memory for the block."""
    g = Graph()
    x, w, b = g.input("x", (8, 6)), g.constant("w", np.eye(6, dtype=np.float32)), g.input("b", (6,))
    y = relu(linear(x, w.T, b, name="product"), name="act")
    g.output(matmul(y, y.T, name="last"), "y")
    return plan(g, Mesh(2), fix={"product": {"k": 2}, "last": {"m": 2}}, expand=False)


def test_what_each_buffer_is_is_told() -> None:
    p = small()
    buffers = {buffer.id: buffer for buffer in p.buffers}
    told = {one.what for use in p.memory for one in use.at_peak}
    assert told <= {"input", "constant", "result", "view, written anew", "scratch memory", "part 0 of a result",
                    "part 1 of a result"}  # fmt: skip
    assert {one.buffer.tensor for use in p.memory for one in use.at_peak} <= {b.tensor for b in buffers.values()}


def test_tables() -> None:
    use = small().memory[0]
    lines = str(use).splitlines()
    assert lines[0] == (
        f"device 0 holds {use.peak_nbytes:,} B at step {use.peak_step}; its arena has {use.arena_nbytes:,} B"
    )
    assert lines[1].split() == ["bytes", "tensor", "what", "cells", "from", "step", "to", "step"]
    assert len(lines) == 2 + len(use.at_peak) and len(repr(use)) <= 200 and str(use.peak_step) in repr(use)
    html = use._repr_html_()
    assert html.count("<tr>") == 1 + len(use.at_peak) and html.count("</td>") == 6 * len(use.at_peak)


def test_long_tables_end_in_a_line() -> None:
    p = plan(load_onnx(MODELS / "gpt2.onnx"), Mesh(4))
    use = p.memory[0]
    left = use.at_peak[20:]
    assert left and isinstance(left[0], HeldBuffer)
    rest = f"and {len(left)} more of {sum(one.nbytes for one in left):,} B"
    assert str(use).splitlines()[-1] == rest and f"<p>{rest}</p>" in use._repr_html_()


def test_a_plan_of_nothing_holds_nothing() -> None:
    g = Graph()
    g.output(g.input("x", (4, 4)), "y")
    p = plan(g, Mesh(2))
    check(p)
    idle = [use for use in p.memory if not use.peak_nbytes]
    assert all((use.peak_step, use.at_peak) == (-1, ()) for use in idle)
    assert all(str(use) == f"device {use.device} holds nothing" and "-1" not in repr(use) for use in idle)
    assert all(use._repr_html_() == f"<p>{use}</p>" for use in idle)
