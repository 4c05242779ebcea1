"""What tables of bytes count for a device is what lies there at once when layouts are written down as steps."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from tapestry_plan import Device, Graph, Link, Mesh, Placed, load_onnx, ops
from tapestry_plan.search.prices.added.memory import Memory
from tapestry_plan.search.prices.costs.problem import Problem
from tapestry_plan.search.prices.costs.variables import Asked
from tapestry_plan.search.writing import lower_choice
from tests.capped_choices import grown, most_held
from tests.exec.run.test_every_kind_of_plan import make_graph


def some_choices(problem: Problem, rng: random.Random, many: int) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Some choices of layouts, and the most bytes that lie on each device at once, from the steps."""
    out = []
    for _ in range(many):
        choice = tuple(rng.randrange(size) for size in problem.sizes)
        out.append((choice, most_held(lower_choice(problem, choice, None, capped=True))))
    return out


def asked(rng: random.Random, mesh: Mesh) -> Asked:
    more: dict[str, Any] = {}
    if rng.random() < 0.4:
        more["placement"] = "single"
    if rng.random() < 0.3:
        more["tie"] = {"new": "x"}
    elif rng.random() < 0.5:
        where = rng.choice([{0: mesh.size}, {1: mesh.size}, Placed({rng.randrange(mesh.size): np.s_[:]})])
        more["layout"] = {rng.choice(["x", "new"]): where}
    return Asked(mesh, **more)


@pytest.mark.parametrize("begin", [0, *(pytest.param(k, marks=pytest.mark.heavy) for k in range(8, 80, 8))])
def test_what_is_counted_is_what_lies_there(begin: int) -> None:
    """Through views, from one copy or device, of parts, where they land, tied, on unlike devices: to the byte."""
    for seed in range(begin, begin + 8):
        rng = random.Random(seed)
        devices = rng.choice([2, 3, 4])
        unlike = tuple(Device(rng.choice([1e9, 2e9]), 1e10) for _ in range(devices))
        mesh = Mesh((devices,), link=Link(1e-9, 1e9), device=rng.choice([Device(1e9, 1e10), unlike]))
        problem = Problem(make_graph(rng), asked(rng, mesh))
        device = rng.randrange(devices)
        memory = Memory(problem, device)
        for choice, held in some_choices(problem, rng, 6):
            assert memory.count(choice).max() == held[device], (seed, choice)


def padded() -> Graph:
    """Windows that reach outside of the image, which two operators read."""
    g = Graph()
    x = g.input("x", (1, 4, 12, 12))
    h = ops.conv(x, g.input("w", (4, 4, 3, 3)), pads=(1, 1, 1, 1))
    g.output(ops.max_pool(ops.relu(h), kernel=(3, 3), pads=(1, 1, 1, 1), strides=(2, 2)) @ g.input("v", (6, 6)))
    g.output(ops.conv(x, g.input("u", (2, 4, 5, 5)), pads=(2, 2, 2, 2)))
    return g


def test_padding_is_counted() -> None:
    problem = Problem(padded(), Asked(Mesh((4,))))
    memory = Memory(problem, 1)
    for choice, held in some_choices(problem, random.Random(1), 20):
        assert memory.count(choice).max() == held[1]


def test_what_readers_share_in_tables_that_would_be_too_large_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many readers of one tensor the mean is counted, until few layouts of them are left."""
    monkeypatch.setattr("tapestry_plan.search.tuning.MAX_HELD_ENTRIES", 300)
    problem = Problem(grown(["sum", "sum", "sum", "product"], 12, 8), Asked(Mesh((4,))))
    memory, rng, below = Memory(problem, 2), random.Random(2), 0
    for choice, held in some_choices(problem, rng, 20):
        counted = int(memory.count(choice).max())
        kept = [sorted({value, 0}) for value in choice]
        few = memory.restrict([np.array(rows) for rows in kept])
        at = [rows.index(value) for rows, value in zip(kept, choice, strict=True)]
        assert counted <= held[2] == few.count(at).max()
        below += counted < held[2]
    assert below and memory.shared


def test_models_with_many_readers_are_counted_nearly(pytestconfig: pytest.Config) -> None:
    for name in ("bert", "gpt2") if pytestconfig.getoption("--all") else ("bert",):
        problem = Problem(load_onnx(f"tests/models/{name}.onnx"), Asked(Mesh((4,))))
        memory = Memory(problem, 3)
        for choice, held in some_choices(problem, random.Random(3), 3):
            assert 0.95 * held[3] < memory.count(choice).max() <= held[3]
