"""Collectives among a plan's copies: what each is named, against what its copies do to masks of cells."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings

from tapestry_plan import Device, Graph, Link, Mesh, ShardPlan, plan
from tapestry_plan.ops import relu
from tapestry_plan.steps import Buffer, Collective, ungroup
from tests.spilling import Program, planned, programs

Masks = dict[tuple[int, int], np.ndarray]
"""The cells that go from device to device."""


def masks_of(p: ShardPlan, one: Collective) -> tuple[Masks, list[Buffer]]:
    """The cells of each of its copies, and the buffers that they are read from."""
    shape = p.graph.stored[one.tensor].shape
    masks: Masks = {}
    sources = []
    for step in one.copies:
        assert (step.node, step.tensor) == (one.node, one.tensor)
        mask = np.zeros(shape, bool)
        for region in step.regions:
            cells = tuple(region.points().T)
            assert not mask[cells].any()
            mask[cells] = True
        link = p.buffers[step.src].device, p.buffers[step.dst].device
        assert link not in masks
        masks[link] = mask
        sources.append(p.buffers[step.src])
    return masks, sources


def assert_it_is(p: ShardPlan, one: Collective) -> None:
    """The definition of its kind, cell by cell."""
    masks, sources = masks_of(p, one)
    group = one.group
    itemsize = np.dtype(sources[0].dtype).itemsize
    assert {int(mask.sum()) * itemsize for mask in masks.values()} == {one.nbytes}
    links = [(group[0], d) for d in group[1:]] if one.kind == "broadcast" else list(permutations(group, 2))
    assert sorted(masks) == sorted(links)
    if one.kind in ("reduce_scatter", "all_reduce"):
        parts = {buffer.device: buffer.part for buffer in sources}
        assert len({*parts.values()}) == len(group) and min(parts.values()) >= 0
        came = {d: [masks[s, d] for s in group if s != d] for d in group}
        assert all((mask == mine[0]).all() for mine in came.values() for mask in mine)
        total = sum(mine[0].astype(int) for mine in came.values())
        assert set(np.unique(total)) <= ({0, 1} if one.kind == "reduce_scatter" else {0, len(group)})
        return
    assert {buffer.part for buffer in sources} == {-1}
    for source in {source for source, _ in masks}:
        went = [masks[source, d] for d in group if (source, d) in masks]
        if one.kind == "all_to_all":
            assert (sum(mask.astype(int) for mask in went) <= 1).all() and len(went) > 1
        else:
            assert all((mask == went[0]).all() for mask in went)


def megatron() -> ShardPlan:
    """Two products with a function between, replicated outside, weights in one copy: 8 devices."""
    g = Graph()
    x, w, v = g.input("x", (1024, 256)), g.input("w", (256, 1024)), g.input("v", (1024, 256))
    h = relu(g.op("matmul", x, w, name="up"), name="act")
    g.output(g.op("matmul", h, v, name="down"), "y")
    weights = {"x": {}, "w": {1: 8}, "v": {0: 8}, "y": {}}
    return plan(g, Mesh(8), layout=weights, fix={"up": {"n": 8}, "act": {"i1": 8}, "down": {"k": 8}})


def test_megatron_s_mlp_is_a_reduce_scatter_and_an_all_gather() -> None:
    p = megatron()
    scatter, gather = p.collectives()
    assert [one.kind for one in (scatter, gather)] == ["reduce_scatter", "all_gather"]
    assert [one.node for one in (scatter, gather)] == ["landing down", "output down"]
    share = 1024 * 256 * 4 // 8
    for one in (scatter, gather):
        assert (one.group, one.axes, one.nbytes, one.nbytes_moved) == (tuple(range(8)), ("x",), share, share * 56)
        assert_it_is(p, one)
    # Of each device what one all-reduce takes: 2·bs·h·(t − 1)/t elements.
    assert scatter.nbytes_moved + gather.nbytes_moved == p.nbytes_moved == 8 * 1_835_008


def test_a_k_split_product_to_replicated_is_the_same_pair() -> None:
    g = Graph()
    g.output(g.op("matmul", g.input("a", (1024, 1024)), g.input("b", (1024, 1024)), name="product"), "y")
    p = plan(g, Mesh(8), fix={"product": {"k": 8}}, layout={"y": {}})
    assert [one.kind for one in p.collectives()] == ["reduce_scatter", "all_gather"]
    assert sum(one.nbytes_moved for one in p.collectives()) == p.nbytes_moved == 8 * 7_340_032


@pytest.mark.parametrize(
    ("fix", "layout", "kinds"),
    [
        ({"a": {"i0": 4}, "b": {"i1": 4}}, {}, ["all_to_all"]),
        ({"a": {"i0": 4}, "b": {}}, {}, ["all_gather"]),
        ({"a": {"i0": 2}, "b": {"i0": 2, "i1": 2}}, {}, []),
    ],
)
def test_rows_that_become_columns_or_all(
    fix: dict[str, dict[str, int]], layout: dict[str, dict[str, int]], kinds: list[str]
) -> None:
    g = Graph()
    g.output(relu(relu(g.input("x", (16, 16)), name="a"), name="b"), "y")
    p = plan(g, Mesh(4), fix=fix, layout=layout)
    assert [one.kind for one in p.collectives()] == kinds
    for one in p.collectives():
        assert_it_is(p, one)


def test_groups_lie_along_axes_of_the_mesh() -> None:
    """Rows over x, columns over y: each column of the mesh gathers by itself, and uneven parts are nothing."""
    g = Graph()
    g.output(relu(relu(g.input("x", (16, 16)), name="a"), name="b"), "y")
    p = plan(g, Mesh((2, 4)), fix={"a": {"i0": ("x",), "i1": ("y",)}, "b": {"i0": ("x",)}})
    assert [(one.kind, one.group, one.axes) for one in p.collectives()] == [
        ("all_gather", (0, 1, 2, 3), ("y",)),
        ("all_gather", (4, 5, 6, 7), ("y",)),
    ]
    uneven = Graph()
    uneven.output(relu(relu(uneven.input("x", (15, 16)), name="a"), name="b"), "y")
    assert plan(uneven, Mesh(4), fix={"a": {"i0": 4}, "b": {}}).collectives() == ()


def test_one_sender_to_all_is_a_broadcast() -> None:
    g = Graph()
    g.output(g.op("add", g.input("x", (12, 8)), g.input("w", (8,)), name="sum"), "y")
    devices = Device(1e6, 1e12), Link(1e-9, 1e12)
    p = plan(
        g,
        Mesh(4, device=devices[0], link=devices[1]),
        fix={"sum": {"i0": 4}},
        layout={"x": {0: 4}, "w": {0: 1}},
        placement="single",
    )
    kinds = [(one.kind, one.tensor, len(one.copies)) for one in p.collectives()]
    held = [b.device for b in p.buffers if b.tensor == "w"]
    assert kinds == ([("broadcast", "w", 3)] if p.nbytes_moved else []) and len(held) == 4


@settings(max_examples=max(10, settings.default.max_examples // 6))
@given(programs(5))
def test_whatever_is_named_is_what_its_name_says(words: Program) -> None:
    p = planned(words)
    for one in p.collectives():
        assert_it_is(p, one)
    assert tuple(ungroup(p.grouped_steps)) == p.steps
