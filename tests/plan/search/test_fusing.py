"""Neighbors in one block: the best of all graphs with some of them fused, the bound below all, the same bits."""

from __future__ import annotations

import random
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tapestry_exec import run
from tapestry_plan import Device, Graph, Link, Mesh, ShardPlan, load_onnx, ops, plan, same_graph
from tapestry_plan.ir import NotApplicable
from tapestry_plan.ops import exp, relu
from tapestry_plan.rewrite import fuse
from tapestry_plan.steps import tell_sharding
from tests.exec.run.test_every_kind_of_plan import make_graph
from tests.recosting import Recosting

SHAPE = (4, 6)
STEPS = ["tanh", "relu", "add", "product", "softmax", "sum", "flip", "row"]


def chained(steps: list[str]) -> Graph:
    """Operators one after the other, each on what the one before made and on inputs of its own."""
    g = Graph()
    x = g.input("x", SHAPE)
    for k, step in enumerate(steps):
        if step == "add":
            x = g.op("add", x, g.input(f"a{k}", x.shape), name=f"n{k}")
        elif step == "row":
            x = g.op("multiply", x, g.input(f"a{k}", x.shape[1:]), name=f"n{k}")
        elif step == "product":
            x = g.op("matmul", x, g.input(f"w{k}", (x.shape[1], 5)), name=f"n{k}")
        elif step == "softmax":
            x = g.op("softmax", x, axis=1, name=f"n{k}")
        elif step == "sum":
            x = g.op("sum", x, axis=(1,), keepdims=True, name=f"n{k}")
        elif step == "flip":
            x = g.op("negative", x[::-1], name=f"n{k}")
        else:
            x = g.op(step, x, name=f"n{k}")
    g.output(x, "y")
    return g


def fused_in_every_way(g: Graph) -> list[Graph]:
    """The graph with each choice of neighbors in one block, none of whose axes is whole that was cut before."""
    found = []
    for chosen in product([False, True], repeat=len(g.nodes) - 1):
        made: Graph | None = g
        for k, wanted in enumerate(chosen, 1):
            if wanted and made is not None:
                axes = [(axis.size, axis.kind, axis.parts) for axis in made.signature(f"n{k}").axes]
                try:
                    made = fuse.apply(made, f"n{k}")
                except NotApplicable:
                    made = None
                if made is not None and axes != [(a.size, a.kind, a.parts) for a in made.signature(f"n{k}").axes]:
                    made = None
        if made is not None:
            found.append(made)
    return found


def test_axes_of_a_block_have_one_name_everywhere() -> None:
    """Those of its last operator, after which it is named: what is printed can be asked for, of any graph."""
    g = Graph()
    y = ops.conv(g.input("x", (2, 3, 8, 8)), g.input("w", (4, 3, 3, 3)), pads=1, name="conv")
    h = ops.relu(y + g.input("b", (4, 1, 1)), name="act")
    z = ops.matmul(ops.relu(h.reshape(8, 64), name="before"), g.input("v", (64, 16)), name="product")
    g.output(z, "y")
    p = plan(g, Mesh(4), expand=False)
    assert {name for name, block in p._lookups.blocks.items() if block == "act"} == {"conv", "add"}
    said = p.sharding["act"]
    assert said and p.graph.signature("act").axes == g.signature("act").axes
    assert said == p.stage["act"].sharding
    text = p.explain("act")
    assert text.splitlines()[0] == f"act (conv+add+relu): {tell_sharding(said)}"
    assert f"one block of conv ({tell_sharding(p.sharding['conv'])}), add and act" in text
    assert [one.sharding for one in text.alternatives if one.is_chosen] == [said]
    for one in text.alternatives:
        again = plan(g, Mesh(4), fix={"act": one.sharding}, expand=False)
        assert again.sharding["act"] == one.sharding
    again = plan(g, Mesh(4), fix={name: parts for name, parts in p.sharding.items() if name in g.nodes}, expand=False)
    assert again.sharding["act"] == said and again.sharding["conv"] == p.sharding["conv"]


@pytest.mark.heavy(2)
@settings(max_examples=max(20, settings.default.max_examples // 10))
@given(
    st.lists(st.sampled_from(STEPS), min_size=1, max_size=4),
    st.sampled_from([2, 3, 4]),
    st.sampled_from(
        [
            Device(1e9, 1e9),
            Device(1e7, 1e9),
            Device(1e9, 1e9, 1e-7),
            Device(1e9, 1e8, operand_seconds=1e-8, packed_nbytes_per_second=1e8),
        ]
    ),
    st.sampled_from([Link(0, 1e8), Link(1e-8, 1e12), Link(1e-6, 1e9)]),
    st.sampled_from([{}, {0: 2}, {1: 2}]),
)
def test_the_plan_is_the_best_of_all_graphs_with_neighbors_fused(
    steps: list[str], devices: int, device: Device, link: Link, rows: dict[int, int]
) -> None:
    g, mesh = chained(steps), Mesh(devices, device=device, link=link)
    asked: dict[str, Any] = {"expand": False, "layout": {"x": rows} if rows else None}
    p, apart = plan(g, mesh, fuse=True, **asked), plan(g, mesh, fuse=False, **asked)
    ways = [plan(one, mesh, fuse=False, **asked) for one in fused_in_every_way(g)]
    best = min(each.seconds for each in ways)
    assert all(each.gap == 0 for each in ways)
    assert p.bound <= best + 1e-15 and p.seconds <= apart.seconds
    if p.gap < 1e-9:
        assert p.seconds == pytest.approx(best, rel=1e-9)
    check_runs(g, p, apart)


def check_runs(g: Graph, p: ShardPlan, apart: ShardPlan) -> None:
    """The plan runs as predicted, with the bits of one whose operators are apart in the same layouts."""
    rng = np.random.default_rng(0)
    feeds = {t.name: rng.normal(size=t.shape).astype(t.dtype) for t in g.stored.values() if t.kind == "input"}
    made = run(p, feeds, verify=True)
    assert (made.nbytes_moved, made.peak_nbytes) == (p.nbytes_moved, p.peak_nbytes)
    assert same_graph(p.derivation.replay(g), p.graph)
    assert ShardPlan.from_json(p.to_json()) == p
    if p.sharding.items() <= apart.sharding.items():
        for label, array in run(apart, feeds).outputs.items():
            np.testing.assert_array_equal(made.outputs[label], array)


def layer() -> Graph:
    g = Graph()
    x, w, b = g.input("x", (64, 32)), g.input("w", (32, 48)), g.input("b", (48,))
    h = g.op("matmul", x, w, name="product")
    g.output(exp(relu(g.op("add", h, b, name="bias"), name="act"), name="last"), "y")
    return g


def test_a_product_and_what_follows_it_cell_by_cell_is_one_block() -> None:
    mesh = Mesh(4, device=Device(1e9, 1e12, 1e-6))
    p, apart = plan(layer(), mesh, fuse=True), plan(layer(), mesh, fuse=False)
    assert [pair.first for pair in p.fused] == ["product", "bias", "act"] and list(p.graph.nodes) == ["last"]
    assert apart.seconds - p.seconds >= 2.999e-6 and p.gap == 0  # three launches fewer
    assert p.explain("bias").startswith("bias: in one block with last, so that what is between them is not stored")
    check_runs(layer(), p, apart)


def test_operators_inside_of_a_block_answer_by_their_names() -> None:
    mesh = Mesh(4, device=Device(1e9, 1e12, 1e-6))
    p, apart = plan(layer(), mesh, fuse=True), plan(layer(), mesh, fuse=False)
    assert len(p.fused) == 3 and p.sharding == apart.sharding
    assert p.placement == apart.placement  # the same layouts, those inside of the block too
    assert {p.stage[name].node for name in ("product", "bias", "act", "last")} == {"last"}
    cut = f" ({tell_sharding(p.sharding['product'])})"
    assert f"one block of product{cut}, bias, act and last" in p.explain("product")
    assert "act: i0:2 i1:2, in one block with last -> i0:2 i1:2" in str(p.diff(apart)).splitlines()
    changed = p.to_json().replace('"first":"bias"', '"first":"bios"')
    with pytest.raises(ValueError, match=r"sha256|digest|edited|plan\.fused"):
        ShardPlan.from_json(changed)


def test_what_the_user_names_and_what_others_read_stays_apart() -> None:
    mesh = Mesh(4, device=Device(1e9, 1e12, 1e-6))
    p = plan(layer(), mesh, fuse=True, fix={"act": {"i0": 4}})
    assert [(pair.first, pair.second) for pair in p.fused] == [("product", "bias")]
    g = layer()
    g.output(g.tensor("act"), "also")
    assert [(pair.first, pair.second) for pair in plan(g, mesh, fuse=True).fused] == [
        ("product", "bias"),
        ("bias", "act"),
    ]


def test_operators_that_read_one_tensor_stay_apart() -> None:
    """Of two that read x the first pays for what arrives; in one block they would read it once."""
    g = Graph()
    h = relu(g.input("x", (8, 8)), name="h")
    g.output(g.op("add", exp(h, name="e"), h, name="sum"), "y")
    p = plan(g, Mesh(2, device=Device(1e9, 1e9, 1e-6)), fuse=True)
    assert p.fused == () and p.gap == 0


@pytest.mark.parametrize("devices", [1, 2])
@pytest.mark.parametrize(
    "readers",
    [(("sum", 0), ("sum", 1)), (("sum", 0), ("relu", 0)), (("sum", 0), ("sum", 1), ("exp", 0))],
    ids=lambda readers: "-".join(f"{op}{axis}" for op, axis in readers),
)
def test_equal_operators_are_apart_where_each_is_one_block_with_its_reader(
    readers: tuple[tuple[str, int], ...], devices: int
) -> None:
    """One operator for several readers is in no block; and which is better what is asked for besides does not say."""
    g = Graph()
    x = g.input("x", (2, 8), dtype="int32")
    for op, axis in readers:
        h = x.astype("int64") if op == "sum" else x.astype("float32")
        g.output(ops.sum(h, axis=axis) if op == "sum" else getattr(ops, op)(h))
    mesh = Mesh(devices, device=Device(1e9, 1e10, 1e-7))
    p, apart = plan(g, mesh), plan(g, mesh, unify=False)
    assert p.seconds <= apart.seconds and p.bound <= apart.bound
    named = plan(g, mesh, fix={"astype": apart.sharding["astype"]}, space=p.space)
    assert p.bound <= named.seconds


def test_equal_operators_are_apart_where_what_is_behind_them_is_one_block_then() -> None:
    """Neither of two equal ones is in a block: but the sum of one is, where it lies as no reader of the other wants."""
    g = Graph()
    x = g.input("x", (4, 4, 256))
    h, again = g.op("exp", x, name="h"), g.op("exp", x, name="again")
    for axis in (1, 2):
        g.output(ops.softmax(h, axis=axis))
    g.output(ops.softmax(ops.sum(again, axis=2), axis=0))
    g.output(ops.relu(again))
    mesh = Mesh((4,), device=Device(1e15, 4e9, 1e-6), link=Link(8e-7, 1e9))
    p, apart = (plan(g, mesh, unify=unify, expand=False) for unify in (True, False))
    assert apart.fused and apart.gap == 0
    assert p.bound <= p.seconds <= apart.seconds


def test_neighbors_are_apart_where_that_is_asked_for() -> None:
    assert plan(layer(), Mesh(4), fuse=False).fused == () != plan(layer(), Mesh(4), fuse=True).fused


def test_a_neighbor_that_is_asked_for_phases_is_fused_in_even_blocks() -> None:
    g = Graph()
    h = exp(relu(g.input("x", (12,)), name="first"), name="second")
    g.output(g.op("tanh", h.reshape(4, 3).T, name="last"), "y")
    g.output(h[:6] * 2.0, "half")
    for asked in ({}, {"fix": {"last": {"i0": 3}}}):
        p = plan(g, Mesh(3, device=Device(1e9, 1e9, 1e-6)), fuse=True, **asked)
        assert p.bound <= p.seconds
        check_runs(g, p, plan(g, Mesh(3, device=Device(1e9, 1e9, 1e-6)), fuse=False, **asked))


def test_expanded_operators_are_fused_too() -> None:
    g = Graph()
    g.output(relu(g.op("softmax", g.input("x", (1, 512)), axis=1, name="soft"), name="last"), "y")
    mesh = Mesh(4, device=Device(1e7, 1e9, 1e-7), link=Link(1e-9, 1e9))
    apart, p = plan(g, mesh, fuse=False), plan(g, mesh, fuse=True)
    assert apart.expanded and p.expanded == apart.expanded
    assert p.fused and p.bound <= p.seconds < apart.seconds
    check_runs(g, p, apart)


@pytest.mark.parametrize("dtypes", [["float32"], ["float32", "float64"], ["float64", "float32", "int32"]])
def test_a_long_chain_takes_the_place_of_three_tensors(dtypes: list[str]) -> None:
    """What is between its operators lies in two rooms by turns, one of which is the output's where that is as large."""
    g = Graph()
    h = g.input("x", (64, 64))
    for k in range(9):
        h = exp(h) if len(dtypes) == 1 else h.astype(dtypes[k % len(dtypes)])
        h = g.op("tanh", h) if h.dtype != "int32" else h + 1
    g.output(h, "y")
    p, apart = plan(g, Mesh(2)), plan(g, Mesh(2), fuse=False)
    assert len(p.graph.nodes) < len(apart.graph.nodes) / 4
    largest = 8 if "float64" in dtypes else 4
    assert max(p.peak_nbytes) <= 32 * 64 * (4 + 3 * largest if len(dtypes) > 1 else 12)
    check_runs(g, p, apart)


@pytest.mark.heavy(2)
@pytest.mark.parametrize("devices", [12, 16])
def test_landings_that_settled_makers_would_not_ask_for_are_in_the_plan(devices: int) -> None:
    """Parts are merged in stages between layouts that other operators have once blocks are written down."""
    g = load_onnx(Path(__file__).parents[2] / "models" / "gpt2.onnx")
    p = plan(g, Mesh((devices,)))
    assert p.fused and p.choices.merged
    again = Recosting(p)
    assert (again.ticks, again.nbytes) == (round(p.seconds * 1e12), p.nbytes_moved)


@pytest.mark.parametrize("fuse", [False, True])
@pytest.mark.parametrize("seed", [5, 69, 75, 80, 95, 106])
def test_blocks_that_go_on_at_the_start_of_an_axis_are_copied_in_the_search_too(seed: int, fuse: bool) -> None:
    """They are in two pieces; a number, or a row that all of them read, is not."""
    p = plan(make_graph(random.Random(seed)), Mesh((3,)), fuse=fuse)
    again = Recosting(p)
    assert p.gap == 0 and (again.ticks, again.nbytes) == (round(p.seconds * 1e12), p.nbytes_moved)
