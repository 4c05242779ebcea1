"""The search chooses among operators and their expansions: against plans of every graph that rewrites make."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

import tapestry_plan.search.expansions.dominance as dominance
import tapestry_plan.search.expansions.joint as joint
from tapestry_exec import evaluate, run
from tapestry_plan import (
    Device,
    Graph,
    Link,
    Mesh,
    NotFound,
    Op,
    Operand,
    ShardPlan,
    Signature,
    Tensor,
    concat,
    plan,
    same_graph,
)
from tapestry_plan.ir import BUILTIN_OPS
from tapestry_plan.ops import exp, softmax
from tapestry_plan.rewrite import NotApplicable, split_axes
from tapestry_plan.rewrite.rules import expand
from tapestry_plan.search import tuning
from tapestry_plan.search.expansions.dominance import Granting, Undominated, grant_all
from tapestry_plan.search.prices.costs.seconds import TICKS_PER_SECOND
from tapestry_plan.search.sums.elimination import minimize
from tapestry_plan.search.sums.pruning import find_marginals
from tapestry_plan.search.tuning import MIN_JOINT_ENTRIES
from tapestry_sets import AffineMap, IndexProjection
from tapestry_sets.limits import put_fields

SLOW = {"device": Device(1e6, 1e12), "link": Link(1e-9, 1e12)}
"""Devices of little arithmetic, with much bandwidth: what divides the work wins."""

FAST = {"device": Device(1e15, 1e9), "link": Link(1e-6, 1e9)}
"""Devices that wait for memory: what reads a tensor several times loses."""

COARSE = ("softmax", "log_softmax", "attention", "layer_normalization", "rms_normalization", "instance_normalization")
"""Operators that work on whole rows, and so have no shards inside of one."""

DEPTH = 3
"""How deep expansions of what expansions build are documented to go."""


# -- every graph that rewrites make --------------------------------------------------------------------------


def rewritten(
    g: Graph, names: Collection[str] | None = None, pinned: Collection[str] = (), kept: Collection[str] = ()
) -> Iterator[tuple[Graph, dict[str, str]]]:
    """Every graph that comes of expanding some operators, and which they were."""

    def walk(g: Graph, left: Mapping[str, int], done: dict[str, str]) -> Iterator[tuple[Graph, dict[str, str]]]:
        if not left:
            yield g, done
            return
        (at, depth), *others = left.items()
        yield from walk(g, dict(others), done)
        op = g.nodes[at].op
        if depth >= DEPTH or (names is None and op not in COARSE):
            return
        for expansion in g.ops[op].expansions:
            into = expansion.__name__
            if names is not None and into not in names:
                continue
            try:
                h = expand.apply(g, at, into=into)
            except NotApplicable:
                continue
            if all(h.outputs[label] in h.stored for label in kept):
                new = [name for name in h.nodes if name not in g.nodes or name == at]
                # What stands for an operator runs when the operator would: what arrives for one consumer is there
                # for the next, so that the order counts.
                order = [one for name in g.nodes for one in (new if name == at else [name])]
                put_fields(h, nodes={name: h.nodes[name] for name in order})
                yield from walk(h, {**dict(others), **dict.fromkeys(new, depth + 1)}, {**done, at: into})

    yield from walk(g, {node.name: 0 for node in g.order() if node.name not in pinned}, {})


def cheapest(
    g: Graph, mesh: Mesh, names: Collection[str] | None = None, *, fuse: bool = False, **asked: Any
) -> tuple[float, int]:
    """Seconds and bytes of the best plan of all of them, each planned as it is, operators apart or in blocks."""
    kept = [label for label in asked.get("layout", {}) if label in g.outputs]
    found = rewritten(g, names, {*asked.get("fix", {}), *asked.get("forbid", {})}, kept)
    split = [split_axes.name] if names is None else False
    plans = [plan(h, mesh, expand=split, unify=False, fuse=fuse, **asked) for h, _ in found]
    return min((p.seconds, p.nbytes_moved) for p in plans)


def inputs_of(g: Graph) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {s.name: rng.standard_normal(s.shape).astype(s.dtype) for s in g.stored.values() if s.kind == "input"}


def check_runs(g: Graph, p: ShardPlan) -> None:
    """The plan runs as predicted and gives what the graph as written gives; its derivation leads to its graph."""
    inputs = inputs_of(g)
    found, wanted = run(p, inputs, verify=True), evaluate(g, inputs)
    assert (found.nbytes_moved, found.peak_nbytes) == (p.nbytes_moved, p.peak_nbytes)
    for label, value in wanted.items():
        assert found.outputs[label].shape == value.shape and found.outputs[label].dtype == value.dtype
        np.testing.assert_allclose(found.outputs[label], value, rtol=1e-4, atol=1e-5)
    assert same_graph(p.derivation.replay(g), p.graph)
    expanded = [step for step in p.derivation.steps if step.rule not in ("unify", "fuse")]
    assert p.expanded.keys() == {step.at for step in expanded}
    assert all(p.expanded[step.at] == step.arguments.get("into", p.expanded[step.at]) for step in expanded)


# -- small graphs --------------------------------------------------------------------------------------------


def row(shape: tuple[int, ...] = (1, 4096), axis: int = -1) -> Graph:
    g = Graph()
    g.output(g.op("softmax", g.input("x", shape), axis=axis, name="s"), "y")
    return g


def between_products() -> Graph:
    g = Graph()
    h = g.op("matmul", g.input("x", (2, 6)), g.input("w", (6, 64)), name="a")
    g.output(g.op("matmul", g.op("softmax", h, name="s"), g.input("v", (64, 2)), name="b"), "y")
    return g


def attention(heads: int = 1, shared: int = 1, causal: bool = False, masked: bool = False) -> Graph:
    g = Graph()
    q, k, v = g.input("q", (1, heads, 2, 3)), g.input("k", (1, shared, 8, 3)), g.input("v", (1, shared, 8, 3))
    mask = [g.input("mask", (2, 8))] if masked else []
    g.output(g.op("attention", q, k, v, *mask, causal=causal, name="att"), "y")
    return g


def normalized() -> Graph:
    """Two operators that have expansions, one of which also reads what the other makes."""
    g = Graph()
    h = g.op("layer_normalization", g.input("x", (2, 64)), g.input("s", (64,)), g.input("b", (64,)), name="norm")
    g.output(h + g.op("softmax", h, name="soft"), "y")
    return g


def by_groups() -> Graph:
    g = Graph()
    h = g.op("instance_normalization", g.input("x", (1, 2, 3, 4)), g.input("s", (2,)), g.input("b", (2,)), name="norm")
    g.output(h.reshape((6, 4)).mT, "y")
    g.output(g.op("log_softmax", h, axis=1, name="soft"), "z")
    return g


GRAPHS = {
    "row": row(),
    "columns": row((3, 7, 2), 1),
    "between products": between_products(),
    "attention": attention(),
    "attention, shared keys": attention(2, 1, causal=True),
    "attention, mask": attention(masked=True),
    "normalized": normalized(),
    "by groups": by_groups(),
}


@pytest.mark.heavy(3)
@pytest.mark.parametrize("rates", [SLOW, FAST], ids=["slow", "fast"])
@pytest.mark.parametrize("devices", [2, 3, 4])
@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("fuse", [False, True], ids=["apart", "in blocks"])
def test_the_plan_is_the_best_of_all_variants(name: str, devices: int, rates: dict[str, Any], fuse: bool) -> None:
    g, mesh = GRAPHS[name], Mesh((devices,), **rates)
    p = plan(g, mesh, fuse=fuse)
    assert (p.seconds, p.nbytes_moved) == cheapest(g, mesh, fuse=fuse)
    assert p.bound <= p.seconds and p.gap == 0
    check_runs(g, p)


KINDS = ["softmax", "log_softmax", "layer", "rms", "linear", "mean", "add", "relu", "view"]


@st.composite
def programs(draw: st.DrawFn) -> Graph:
    """A few operators, most of which have expansions, and views, on matrices."""
    g = Graph()
    made: list[Tensor] = [g.input("x", (draw(st.sampled_from([2, 3, 4])), draw(st.sampled_from([2, 5, 16]))))]
    for k in range(draw(st.integers(1, 4))):
        x = draw(st.sampled_from(made))
        width = x.shape[1]
        kind = draw(st.sampled_from(KINDS))
        name = f"n{k}"
        match kind:
            case "softmax" | "log_softmax":
                made.append(g.op(kind, x, axis=draw(st.sampled_from([0, 1])), name=name))
            case "layer":
                scale, bias = g.input(f"s{k}", (width,)), g.input(f"b{k}", (width,))
                made.append(g.op("layer_normalization", x, scale, bias, name=name))
            case "rms":
                made.append(g.op("rms_normalization", x, g.input(f"s{k}", (width,)), name=name))
            case "linear":
                out = draw(st.sampled_from([2, 4]))
                made.append(g.op("linear", x, g.input(f"w{k}", (width, out)), g.input(f"b{k}", (out,)), name=name))
            case "mean":
                made.append(g.op("mean", x, axis=(draw(st.sampled_from([0, 1])),), keepdims=True, name=name))
            case "add":
                made.append(g.op("add", x, draw(st.sampled_from([t for t in made if t.shape == x.shape])), name=name))
            case "relu":
                made.append(g.op("relu", x, name=name))
            case _:
                made.append(draw(st.sampled_from([x.mT, x[::-1], x[:, : max(1, width // 2)]])))
    for k, t in enumerate(dict.fromkeys([draw(st.sampled_from(made[1:])), made[-1]])):
        g.output(t, f"y{k}")
    return g


@st.composite
def asked_for(draw: st.DrawFn, g: Graph) -> dict[str, Any]:
    """Arguments of `plan`."""
    asked: dict[str, Any] = {"placement": draw(st.sampled_from(["free", "single"]))}
    layout = {"x": {1: 2}} if draw(st.booleans()) else {}
    stored = sorted(label for label, name in g.outputs.items() if name in g.stored)
    if stored and draw(st.booleans()):
        label = draw(st.sampled_from(stored))
        layout[label] = {0: min(2, g.tensor(g.outputs[label]).shape[0])}
    if g.nodes and draw(st.booleans()):
        node = draw(st.sampled_from(sorted(g.nodes)))
        axis = g.signature(node).axes[0]
        asked["fix"] = {node: {axis.name: min(2, axis.size)}}
    return {**asked, "layout": layout}


FEW_ENTRIES = ((20, 20), (10**6, 20), (10**6, 10**6))
"""So few in the tables of the first rounds that values of expansions are counted loosely."""

NAMES: list[tuple[str, ...] | None] = [
    None,
    ("matmul_add", "prod_sum"),
    ("prod_sum", "exp_sum", "sum_div"),
    ("sum_div", "minus_logsumexp", "moments", "root_mean_square"),
]


@pytest.mark.heavy(2)
@given(st.data())
@settings(max_examples=settings.default.max_examples // 3)
def test_of_any_program_the_plan_is_the_best_of_all_variants(data: st.DataObject) -> None:
    g = data.draw(programs())
    asked, names = data.draw(asked_for(g)), data.draw(st.sampled_from(NAMES))
    rates = st.tuples(st.sampled_from([1e6, 1e9, 1e12]), st.sampled_from([1e9, 1e12]))
    link = Link(data.draw(st.sampled_from([0.0, 1e-9, 1e-6])), data.draw(st.sampled_from([1e8, 1e12])))
    device = Device(*data.draw(rates), packed_nbytes_per_second=data.draw(st.sampled_from([None, 1e9])))
    mesh = Mesh((data.draw(st.sampled_from([2, 3, 4])),), device=device, link=link)
    with pytest.MonkeyPatch.context() as patch:
        granted: list[Granting | None] = []
        patch.setattr(dominance, "grant_all", lambda *args: granted.append(grant_all(*args)) or granted[-1])
        patch.setattr(Granting, "LEVELS", data.draw(st.sampled_from([Granting.LEVELS, FEW_ENTRIES])))
        p = plan(g, mesh, expand=True if names is None else names, unify=False, fuse=False, **asked)
    best = cheapest(g, mesh, names, **asked)
    for problem, level in product(filter(None, granted), range(3)):
        least = minimize(problem.sizes, problem.factors_of(level)[1])
        assert (least.bound_ticks, least.bound_nbytes) <= (round(best[0] * TICKS_PER_SECOND), best[1])
    # Where a tensor has many consumers in some variant they are counted one by one, and the gap says so.
    assert p.bound <= best[0] <= p.seconds
    assert (p.seconds, p.nbytes_moved) == best or p.gap > 0
    check_runs(g, p)


@pytest.mark.parametrize(
    "names",
    [("by_group",), ("interleaved",), ("strided_view", "by_group"), ("phases", "windows_mean"), ("windows_einsum",)],
    ids="+".join,
)
@pytest.mark.parametrize("last", [True, False], ids=["read", "read by nothing"])
def test_expansions_that_end_in_views(names: tuple[str, ...], last: bool) -> None:
    """Who reads the operator's output then reads others through the view."""
    g = Graph()
    x, w = g.input("x", (1, 4, 6, 3)), g.input("w", (4, 2, 2, 1))
    h = g.op("conv", x, w, groups=2, strides=(2, 1), dilations=(2, 1), pads=(1, 0, 1, 0), name="c")
    h = g.op("average_pool", h, kernel=(2, 1), strides=(1, 1), name="p")
    g.output(h[:, :, ::-1], "mid")
    if last:
        g.output(g.op("relu", h, name="last"), "out")
    for rates in (SLOW, FAST):
        mesh = Mesh((3,), **rates)  # type: ignore[arg-type]
        p = plan(g, mesh, expand=names, fuse=False)
        assert (p.seconds, p.nbytes_moved) == cheapest(g, mesh, names)
        assert {entry.node for entry in p.expansions} <= {"c", "p"} and p.expansions
        check_runs(g, p)


@pytest.mark.heavy(2)
def test_places_that_are_asked_for_reach_through_expansions() -> None:
    """x lies in two parts on three devices: beside the expansion of n0 they do for n1 too, which stays as it is."""
    g = Graph()
    x = g.input("x", (2, 5))
    h = g.op("rms_normalization", x, g.input("s0", (5,)), axis=-1, epsilon=1e-5, name="n0")
    g.output(g.op("log_softmax", h, axis=0, name="n1"), "y0")
    t = g.op("softmax", x, axis=0, name="n2")
    t = g.op("layer_normalization", t, g.input("s3", (5,)), g.input("b3", (5,)), axis=-1, epsilon=1e-5, name="n3")
    g.output(t, "y1")
    mesh = Mesh((3,), device=Device(1e9, 1e12), link=Link(0.0, 1e8))
    asked: dict[str, Any] = {"fix": {"n2": {"i1": 2}}, "layout": {"x": {1: 2}, "y0": {0: 2}}}
    p = plan(g, mesh, unify=False, fuse=False, **asked)
    assert (p.seconds, p.nbytes_moved) == cheapest(g, mesh, **asked) and p.gap == 0
    assert p.expanded.keys() == {"n0", "n3"} and p.sharding["n1"] == {"i1": 2}
    check_runs(g, p)


def test_what_stands_for_an_operator_runs_where_it_would() -> None:
    """Two operators read one tensor: which is first decides what it costs. Rewriting alone would put the sum last."""
    g = Graph()
    x = g.input("x", (4, 16))
    g.output(g.op("mean", x, axis=(0,), keepdims=True, name="mean"), "y")
    g.output(g.op("matmul", x, g.input("w", (16, 4)), name="product"), "z")
    mesh = Mesh((3,), device=Device(1e9, 1e12), link=Link(1e-6, 1e12))
    asked, names = {"layout": {"x": {1: 2}}}, ("prod_sum", "sum_div")
    p = plan(g, mesh, expand=names, fuse=False, **asked)  # type: ignore[arg-type]
    assert (p.seconds, p.nbytes_moved) == cheapest(g, mesh, names, **asked) and p.gap == 0
    normal = plan(normalized(), Mesh((4,), **SLOW), fuse=False)  # type: ignore[arg-type]
    assert [node.op for node in normal.graph.order()][-1] == "add" and set(normal.expanded) == {"norm", "soft"}


# -- where it pays, and where it does not --------------------------------------------------------------------


def test_a_long_row_is_expanded_where_arithmetic_is_slow() -> None:
    """Two devices reduce the two halves of the row and exchange one partial maximum and one partial sum each."""
    g = row((1, 4096))
    whole, p = (plan(g, Mesh((2,), **SLOW), expand=expand, fuse=False) for expand in (False, True))  # type: ignore[arg-type]
    assert p.expanded == {"s": "exp_sum"} and whole.expanded == {}
    assert p.seconds < 0.65 * whole.seconds
    assert p.nbytes_moved == 2 * 2 * 4
    assert [node.op for node in p.graph.order()] == ["max", "subtract", "exp", "sum", "divide"]
    assert all(max(stage.sharding.values()) == 2 for stage in p.stages)


def test_a_row_is_left_whole_where_memory_is_slow() -> None:
    g = row((1, 4096))
    p = plan(g, Mesh((2,), **FAST))  # type: ignore[arg-type]
    assert p.expanded == {} and list(p.graph.nodes) == ["s"] and p.graph is g
    assert [(entry.node, entry.considered, entry.chosen) for entry in p.expansions] == [("s", ("exp_sum",), None)]


def test_many_rows_are_left_whole() -> None:
    """Rows are divided among devices without any exchange."""
    p = plan(row((64, 64)), Mesh((4,), **SLOW))  # type: ignore[arg-type]
    assert p.expanded == {} and p.nbytes_moved == 0


def test_a_sharded_row_is_expanded_and_not_gathered() -> None:
    """The input lies in eight parts of a row: partial maxima and sums travel, in three messages, the row stays."""
    g, mesh = row((1, 1 << 16)), Mesh((8,), link=Link(1e-6, 1e9))
    asked = {"layout": {"x": {1: 8}, "y": {1: 8}}}
    whole, p = plan(g, mesh, expand=False, **asked), plan(g, mesh, **asked)  # type: ignore[arg-type]
    assert p.expanded == {"s": "exp_sum"}
    assert p.nbytes_moved == 2 * 8 * 3 * 4 and whole.nbytes_moved >= 7 * (1 << 16) // 8 * 4
    assert p.seconds < whole.seconds


def test_attention_is_expanded_down_to_sums() -> None:
    """One query head over four devices: what attention builds has a softmax, which is expanded in turn."""
    g = attention()
    p = plan(g, Mesh((4,), **SLOW))  # type: ignore[arg-type]
    assert list(p.expanded.values()) == ["matmul_softmax_matmul", "exp_sum"]
    assert p.seconds < plan(g, Mesh((4,), **SLOW), expand=False).seconds  # type: ignore[arg-type]
    assert p.seconds < plan(g, Mesh((4,), **SLOW), expand=["matmul_softmax_matmul"]).seconds  # type: ignore[arg-type]


def test_attention_with_many_heads_is_left_whole() -> None:
    p = plan(attention(heads=4, shared=4), Mesh((4,), **FAST))  # type: ignore[arg-type]
    assert p.expanded == {} and p.nbytes_moved == 0 and p.sharding["att"] == {"h": 4}


def test_a_million_variants_are_compared_at_once() -> None:
    """Twenty rows, each after the one before: all are expanded, and the bound over all 2²⁰ graphs is met."""
    g = Graph()
    x = g.input("x", (2, 4096))
    for k in range(20):
        x = g.op("softmax", x + g.input(f"c{k}", (2, 4096)), name=f"s{k}")
    g.output(x)
    p = plan(g, Mesh((4,), **SLOW))  # type: ignore[arg-type]
    assert p.expanded == {f"s{k}": "exp_sum" for k in range(20)} and p.gap == 0
    assert p.seconds < 0.67 * plan(g, Mesh((4,), **SLOW), expand=False).seconds  # type: ignore[arg-type]


# -- where all variants cannot be compared at once --------------------------------------------------------------


def fan(shape: tuple[int, int], ops: Sequence[str], added: Sequence[int]) -> Graph:
    """Operators that read one tensor, some of whose results are added up, the others given out."""
    g = Graph()
    h = g.op("relu", g.input("x", shape), name="h")
    made = [g.op(op, h, name=f"n{k}") for k, op in enumerate(ops)]
    total = made[0]
    for k in range(1, len(made)):
        if k in added:
            total = total + made[k]
        else:
            g.output(made[k], f"o{k}")
    g.output(total, "y")
    return g


@pytest.mark.heavy(2)
@pytest.mark.parametrize(
    ("shape", "devices", "ops", "added"),
    [
        ((1, 64), 2, ["softmax"] * 3 + ["log_softmax"] * 2, (1, 4)),
        ((2, 32), 4, ["relu", "log_softmax", "softmax", "softmax", "relu"], (2, 3, 4)),
    ],
    ids=["two at once", "one"],
)
def test_expansions_are_tried_where_consumers_are_too_many(
    shape: tuple[int, int], devices: int, ops: list[str], added: tuple[int, ...]
) -> None:
    """Every expansion reads the tensor several times more: its consumers cannot be counted jointly."""
    g, mesh = fan(shape, ops, added), Mesh((devices,), device=Device(1e9, 1e9), link=Link(1e-9, 1e9))
    p = plan(g, mesh, time_limit_seconds=60, unify=False, fuse=False)
    assert p.expanded and p.seconds < plan(g, mesh, expand=False, unify=False, fuse=False).seconds
    assert p.bound <= cheapest(g, mesh)[0] and (p.seconds, p.nbytes_moved) == cheapest(g, mesh)
    check_runs(g, p)
    for name in ("n1", "n2"):
        if name not in p.expanded and p.gap:
            assert "not found better (the gap is not closed) where expanded by" in p.explain(name)


def test_nothing_is_tried_without_time() -> None:
    g = fan((1, 64), ["softmax"] * 3 + ["log_softmax"] * 2, (1, 4))
    mesh = Mesh((2,), device=Device(1e9, 1e9), link=Link(1e-9, 1e9))
    hasty, p = (plan(g, mesh, time_limit_seconds=limit, unify=False) for limit in (0, 60))
    assert p.seconds < hasty.seconds and hasty.bound <= plan(g, mesh, expand=False, unify=False).seconds
    assert {entry.node for entry in hasty.expansions if entry.left_out} == {f"n{k}" for k in range(5)}
    assert "no time" in hasty.explain("n0")


def test_tables_do_not_grow_far_beyond_those_of_the_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four operators over one small tensor: without a limit, thirty-seven million entries beside one thousand."""
    caps = []

    def capped(*args: Any, cap: int, **named: Any) -> Any:
        caps.append(cap)
        return find_marginals(*args, cap=cap, **named)

    monkeypatch.setattr(joint, "find_marginals", capped)
    g = Graph()
    x = g.input("x", (4, 6))
    s, b = g.input("s", (6,)), g.input("b", (6,))
    g.output(g.op("softmax", g.op("layer_normalization", x, s, b, name="ln"), name="s0"), "a")
    for k, op in enumerate(("log_softmax", "softmax")):
        g.output(g.op(op, x, name=f"n{k}"), f"y{k}")
    p = plan(g, Mesh((4,)), placement="single")
    assert caps and all(cap <= MIN_JOINT_ENTRIES for cap in caps)
    whole = plan(g, Mesh((4,)), placement="single", expand=False)
    assert p.bound <= p.seconds <= whole.seconds and whole.gap == 0


# -- what is asked for ---------------------------------------------------------------------------------------


def test_fixed_operators_are_not_expanded() -> None:
    g, mesh = normalized(), Mesh((4,), **SLOW)  # type: ignore[arg-type]
    assert set(plan(g, mesh).expanded) == {"norm", "soft"}
    axis = g.signature("soft").axes[0].name
    for asked in ({"fix": {"soft": {axis: 2}}}, {"forbid": {"soft": {axis: 2}}}):
        p = plan(g, mesh, fuse=False, **asked)  # type: ignore[arg-type]
        assert set(p.expanded) == {"norm"} and "soft" in p.graph.nodes
        assert {entry.node for entry in p.expansions} == {"norm"}
        assert (p.sharding["soft"] == {axis: 2}) == ("fix" in asked)
        check_runs(g, p)


def test_only_named_expansions_are_considered() -> None:
    g, mesh = normalized(), Mesh((4,), **SLOW)  # type: ignore[arg-type]
    assert plan(g, mesh, expand=["exp_sum"]).expanded == {"soft": "exp_sum"}
    assert plan(g, mesh, expand=("moments",)).expanded == {"norm": "moments"}
    for none in (False, [], ["matmul_add"]):
        p = plan(g, mesh, expand=none)
        assert p.expanded == {} and p.expansions == () and p.graph is g


def test_an_output_whose_layout_is_asked_for_stays_a_tensor() -> None:
    """The expansion for heads that share keys ends in a view, which could not be laid out."""
    g, mesh = attention(2, 1), Mesh((4,), **SLOW)  # type: ignore[arg-type]
    p = plan(g, mesh, layout={"y": {2: 2}})
    assert "att" in plan(g, mesh).expanded and p.expanded == {} and p.sharding["att"]
    check_runs(g, p)


@pytest.mark.parametrize(
    ("wrong", "kind", "text"),
    [
        ("exp_sum", TypeError, r"expand must be .*, not 'exp_sum'.*\['exp_sum'\]"),
        (None, TypeError, "expand must be .*, not None"),
        (2, TypeError, "expand must be .*, not 2"),
        ({"exp_sum": True}, TypeError, "give True, False, or names of expansions"),
        (
            ["exp_sums"],
            ValueError,
            "expand has 'exp_sums', which no declaration lists; nearest of .* expansions: 'exp_sum'",
        ),
        ([3], TypeError, r"expand\[0\] must be a string, not 3"),
    ],
)
def test_wrong_values_of_expand(wrong: Any, kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=text):
        plan(row(), Mesh((2,)), expand=wrong)


def test_memory_is_not_exceeded_for_speed() -> None:
    """The expansion is faster; where only the operator fits, the operator is planned."""
    g, mesh = row(), Mesh((2,), **SLOW)  # type: ignore[arg-type]
    whole, fast = plan(g, mesh, expand=False), plan(g, mesh)
    small, large = sorted((max(whole.peak_nbytes), max(fast.peak_nbytes)))
    assert small < large and fast.expanded
    tight = plan(g, mesh, memory_nbytes=small)
    assert max(tight.peak_nbytes) <= small and bool(tight.expanded) == (max(fast.peak_nbytes) == small)
    assert tight.bound <= fast.seconds
    assert plan(g, mesh, memory_nbytes=large).expanded == fast.expanded
    with pytest.raises(NotFound, match="of the graph as given every plan needs"):
        plan(g, mesh, memory_nbytes=1)


# -- what is said --------------------------------------------------------------------------------------------


def test_explain_says_what_was_expanded_and_why() -> None:
    p = plan(attention(), Mesh((4,), **SLOW))  # type: ignore[arg-type]
    text = p.explain("att")
    assert "expanded by matmul_softmax_matmul" in text
    (first,) = (entry for entry in p.expansions if entry.node == "att")
    assert all(name in text for name in first.nodes)
    for entry in p.expansions:
        for name in entry.nodes:
            if name in p.graph.nodes:
                assert f"for {entry.node}, expanded by {entry.chosen}" in p.explain(name)
    kept = plan(row(), Mesh((2,), **FAST))  # type: ignore[arg-type]
    assert "no better where expanded by exp_sum, in operators that are apart" in kept.explain("s")
    assert kept.apart == ("s",) and "s" not in p.apart
    with pytest.raises(ValueError, match="no operator, input, constant, view or output 'nope'"):
        p.explain("nope")


def test_more_names_make_no_slower_plan() -> None:
    """A dilated convolution whose expansions end in views, and have such in turn: more than can be read through."""
    g = Graph()
    x, w = g.input("x", (1, 1, 7, 7)), g.input("w", (1, 1, 3, 3))
    g.output(g.op("conv", x, w, dilations=(2, 2), pads=(2, 2, 2, 2), name="c"), "y")
    mesh = Mesh((2,), **SLOW)  # type: ignore[arg-type]
    few, many = plan(g, mesh, expand=["interleaved"]), plan(g, mesh, expand=["interleaved", "windows_einsum"])
    assert few.expanded["c"] == "interleaved" and few.seconds < plan(g, mesh, expand=False).seconds
    assert (many.seconds, many.nbytes_moved) <= (few.seconds, few.nbytes_moved)
    check_runs(g, many)


def test_explain_says_what_was_not_compared() -> None:
    """Seven convolutions in groups beside one another: there are 128 ways to read their concatenation."""
    g = Graph()
    x = g.input("x", (1, 2, 2))
    made = [g.op("conv", x, g.input(f"w{k}", (2, 1, 1)), groups=2, name=f"c{k}") for k in range(7)]
    g.output(g.op("relu", concat(made, 1), name="r"), "y")
    p = plan(g, Mesh((2,), **FAST), expand=["by_group"])  # type: ignore[arg-type]
    assert "not compared with what it is expanded by by_group: too many" in p.explain("c6")
    assert "better" in p.explain("c0") and "not compared" not in p.explain("c0")
    assert ShardPlan.from_json(p.to_json()).expansions == p.expansions


@pytest.mark.parametrize("g", [attention(2, 1, causal=True), normalized()], ids=["attention", "normalized"])
@pytest.mark.parametrize("rates", [SLOW, FAST], ids=["slow", "fast"])
def test_plans_with_expansions_are_documents(g: Graph, rates: dict[str, Any]) -> None:
    p = plan(g, Mesh((4,), **rates))
    back = ShardPlan.from_json(p.to_json())
    assert back.expansions == p.expansions and back.derivation == p.derivation and back.expanded == p.expanded
    assert (back.seconds, back.bound, back.nbytes_moved) == (p.seconds, p.bound, p.nbytes_moved)
    assert back.to_json() == p.to_json()
    assert same_graph(back.derivation.replay(g), back.graph)


# -- no hidden rules -----------------------------------------------------------------------------------------


def renamed(op: Op) -> Op:
    """An operator under another name, with its index axes in another order."""

    def signature(shapes: Sequence[tuple[int, ...]], attrs: Mapping[str, Any]) -> Signature:
        found = op.signature(shapes, attrs)
        rank = len(found.axes)
        order = sorted(range(rank), key=lambda k: (k * 5 + 2) % 7)

        def moved(p: IndexProjection) -> IndexProjection:
            rows = tuple((*(line[k] for k in order), *line[rank:]) for line in p.map.matrix)
            splits = tuple((order.index(axis), q) for axis, q in p.splits)
            return IndexProjection(AffineMap(rows, p.map.offset, p.map.in_rank), p.shape, splits)

        def turned(operands: Sequence[Operand]) -> tuple[Operand, ...]:
            return tuple(replace(o, projection=moved(o.projection), also=tuple(map(moved, o.also))) for o in operands)

        return Signature(tuple(found.axes[k] for k in order), turned(found.inputs), turned(found.outputs))

    return replace(op, name=f"zz_{op.name}", signature=signature)


@pytest.mark.parametrize("rates", [SLOW, FAST], ids=["slow", "fast"])
@pytest.mark.parametrize("devices", [2, 3, 4])
def test_names_and_orders_of_axes_change_no_choice(devices: int, rates: dict[str, Any]) -> None:
    """Which operators are wanted follows from their projections."""

    def build(turned: bool) -> Graph:
        def said(name: str) -> Op:
            return renamed(BUILTIN_OPS[name]) if turned else BUILTIN_OPS[name]

        g = Graph()
        h = g.op(said("matmul"), g.input("x", (3, 5)), g.input("w", (5, 32)), name="m")
        h = g.op(said("layer_normalization"), h, g.input("s", (32,)), g.input("b", (32,)), name="norm")
        g.output(g.op(said("softmax"), h, axis=-1, name="soft"), "y")
        return g

    one, two = (plan(build(turned), Mesh((devices,), **rates)) for turned in (False, True))
    assert (one.seconds, one.nbytes_moved, one.bound) == (two.seconds, two.nbytes_moved, two.bound)
    assert (one.expanded, one.expansions, one.sharding) == (two.expanded, two.expansions, two.sharding)
    assert (one.peak_nbytes, one.flop) == (two.peak_nbytes, two.flop)


def test_more_operators_than_are_compared_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """By default they are left out, and the bound is of the graph as given; names have them compared."""
    monkeypatch.setattr(tuning, "MAX_COMPARED", 0)
    every = Undominated(frozenset(["s"]), frozenset(["s"]), 0, 0)
    monkeypatch.setattr("tapestry_plan.search.expansions.expanding.find_undominated", lambda *_, **__: every)
    g = Graph()
    g.output(softmax(exp(g.input("x", (4, 64))), name="s"), "y")
    mesh = Mesh((4,))
    left = plan(g, mesh)
    assert [(e.node, e.considered, e.chosen, e.left_out) for e in left.expansions] == [("s", (), None, ("exp_sum",))]
    assert left.seconds == plan(g, mesh, expand=False).seconds and left.gap == 0
    (asked,) = plan(g, mesh, expand=["exp_sum"]).expansions[:1]
    assert asked.considered == ("exp_sum",) and not asked.left_out


def test_expansions_that_pay_in_blocks_are_tried_beside_others() -> None:
    """A normalization pays only where its operators are in blocks, and the logarithm behind it is expanded anyway."""
    g = Graph()
    h = g.op("multiply", x := g.input("x", (1, 4096)), x)
    norm = g.op("layer_normalization", h, g.input("s", (4096,)), g.input("b", (4096,)), axis=-1, name="norm")
    g.output(g.op("tanh", h), "t")
    g.output(g.op("log_softmax", norm, axis=1, name="log"), "y")
    mesh = Mesh((3,), device=Device(1e8, 1e8), link=Link(1e-8, 1e10))
    p = plan(g, mesh)
    assert p.expanded == {"norm": "moments", "log": "minus_logsumexp"}
    assert p.seconds == cheapest(g, mesh, fuse=True)[0]
