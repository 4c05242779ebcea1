"""Devices of one class hold as much as each other: the steps of all devices are written, and compared."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tapestry_plan import Graph, Mesh, concat, ops, plan
from tapestry_plan.steps import classify_devices, lower
from tapestry_plan.steps.layouts.reads import Reads
from tests.exec.run.test_every_kind_of_plan import make_graph, make_plan


def windows(rng: random.Random) -> Graph:
    """Rows read beyond their blocks, at strides, at the far end, and what is padded there."""
    g = Graph()
    x = g.input("x", (1, 4, rng.choice([13, 16, 24]), 8))
    for number in range(rng.randint(1, 3)):
        w = g.input(f"w{number}", (4, 4, 3, 3))
        x = ops.conv(x, w, pads=rng.choice([0, 1, 1]), strides=rng.choice([1, 1, 2]), dilations=rng.choice([1, 1, 2]))
        x = rng.choice([lambda t: t, ops.relu, lambda t: concat([t[:, :, 1:], t[:, :, :1]], 2)])(x)
        if min(x.shape[2:]) < 6:
            break
    g.output(x + ops.relu(x[:, :, ::-1]), "y")
    return g


HEAVY = pytest.mark.heavy(64)


def check(p) -> bool:  # type: ignore[no-untyped-def]
    """Compare with the steps of all devices; whether some devices stood for others."""
    if p.choices.memory_nbytes is not None:  # arenas are laid out anew then, one by one
        return False
    every = lower(p.graph, p.mesh, p.choices)
    assert (p.peak_nbytes, p.nbytes_placed) == (every.peak_nbytes, every.nbytes_placed)
    assert dict(p.nbytes_by_link) == every.nbytes_by_link
    assert p.nbytes_received == tuple(
        sum(n for (_, to), n in every.nbytes_by_link.items() if to == device) for device in range(p.mesh.size)
    )
    first = classify_devices(p.graph, p.choices, Reads(p.graph))
    assert len(first) == p.mesh.size and all(first[one] == one <= k for k, one in enumerate(first))
    return len(set(first)) < len(first)


@pytest.mark.heavy(2)
@pytest.mark.parametrize("mesh", [Mesh(4), Mesh((2, 3)), Mesh((2, 2, 2))])
def test_peaks_of_windows_are_those_of_all_steps(mesh: Mesh) -> None:
    rng = random.Random(mesh.size)
    plans = []
    for _ in range(2):
        g = windows(rng)
        plans.append(plan(g, mesh, expand=False, placement=rng.choice(["free", "single"])))
        plans.append(
            plan(g, mesh, expand=False, fix={node: {"h": mesh.size // 2} for node in g.nodes if "conv" in node})
        )
    assert {*map(check, plans)} == {True, False}


# Of a few plans it may be that none has devices that are alike: of six from 84 on none had.
@pytest.mark.parametrize("begin, end", [(0, 6), *(pytest.param(k, k + 37, marks=HEAVY) for k in range(6, 191, 37))])
def test_peaks_of_plans_of_every_kind_are_those_of_all_steps(begin: int, end: int) -> None:
    alike = 0
    for seed in range(begin, end):
        rng = random.Random(seed)
        alike += check(make_plan(make_graph(rng), rng)[0])
    assert alike


def test_devices_at_the_ends_do_otherwise_than_those_between() -> None:
    g = Graph()
    g.output(ops.conv(g.input("x", (1, 2, 32, 8)), g.input("w", (2, 2, 3, 3)), pads=1), "y")
    p = plan(g, Mesh(8), fix={"conv": {"h": 8}}, expand=False, layout={"x": {2: 8}})
    # The window of the last device begins further from its end than that of the first one from its beginning.
    assert classify_devices(p.graph, p.choices, Reads(p.graph)) == [0, 1, 1, 1, 1, 1, 1, 7]
    held = 1 * 2 * 4 * 8 * 4, 2 * 2 * 3 * 3 * 4
    assert len(set(p.peak_nbytes[1:7])) == 1 and min(p.peak_nbytes) > sum(held)


def test_a_thousand_devices_are_a_few_classes() -> None:
    g = Graph()
    x, w, v = g.input("x", (4096, 512)), g.input("w", (512, 512)), g.input("v", (512, 512))
    g.output(ops.relu(x @ w) @ v, "y")
    rows = {
        "matmul": {"m": ("x", "y"), "n": "z"},
        "relu": {"i0": ("x", "y"), "i1": "z"},
        "matmul_1": {"m": ("x", "y"), "n": "z"},
    }
    p = plan(g, Mesh((8, 8, 16)), expand=False, fix=rows)
    # Each device holds one of 16 blocks of the columns that all with its rows read: the first, the last, or another.
    assert classify_devices(p.graph, p.choices, Reads(p.graph)) == 64 * [0, *[1] * 14, 15]
    assert p.peak_nbytes == (p.program(1023).peak_nbytes,) * 1024
    assert np.unique(p.nbytes_placed).size == 1


def test_what_several_operators_read_of_a_tensor_is_compared_by_its_order() -> None:
    g = Graph()
    x, w = g.input("x", (512, 512)), g.input("w", (512, 512))
    y = ops.relu(x)
    g.output(y @ w + ops.exp(y), "y")
    p = plan(
        g,
        Mesh(64),
        expand=False,
        fuse=False,
        fix={"relu": {"i0": 64}, "matmul": {"n": 64}, "exp": {"i0": 64}, "add": {"i0": 64}},
    )
    # All read all rows for the product, and for the sum theirs, which lie elsewhere in each: at its ends, or between.
    assert check(p)
    assert len({*classify_devices(p.graph, p.choices, Reads(p.graph))}) == 3
