"""Plans that keep another one's choices, and alternatives, whose totals and causes such plans confirm."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from tapestry_plan import (
    Alternative,
    Graph,
    InfeasiblePlan,
    Link,
    Mesh,
    NotFound,
    PlannedTransfer,
    ShardPlan,
    load_onnx,
    ops,
    plan,
)
from tapestry_plan.rewrite import fix_bits
from tapestry_plan.search import plan_or_spill
from tapestry_plan.steps import least_memory, spill, tell_cells
from tests.exec.run.test_every_kind_of_plan import make_graph, make_plan
from tests.layered_models import bert, gpt2

RESNET = Path(__file__).resolve().parents[2] / "models" / "resnet.onnx"
MODELS: dict[str, Callable[[], Any]] = {
    "bert": partial(bert, 1, batch=2, length=16, width=64),
    "gpt2": partial(gpt2, 1, batch=2, length=16, width=64),
    "resnet": partial(onnx.load, RESNET),
}
PLAIN = {"fuse": False, "expand": False, "space": "mesh"}


@cache
def loaded(name: str) -> Graph:
    return load_onnx(MODELS[name]())


def replan(g: Graph, p: ShardPlan, node: str, other: Alternative) -> ShardPlan:
    """The plan that an alternative tells of, also where it does not keep the caps of the other one."""
    try:
        return plan(g, p.mesh, like=p, fix={node: other.sharding})
    except NotFound as error:
        found: ShardPlan = error.fastest
        return found


def check_alternative(g: Graph, p: ShardPlan, node: str, other: Alternative) -> int:
    """An alternative's totals are those of the plan that has it, and its causes make the difference."""
    q = replan(g, p, node, other)
    assert q.stage[node].sharding == other.sharding
    assert (q.seconds, q.nbytes_moved) == (other.seconds, other.nbytes_moved)
    assert {name: parts for name, parts in q.sharding.items() if name not in around(p, node)} == {
        name: parts for name, parts in p.sharding.items() if name not in around(p, node)
    }
    assert other.is_chosen == (other.sharding == p.stage[node].sharding)
    if other.is_chosen:
        assert q == p and all(one.more_seconds == one.more_nbytes == 0 for one in other.causes)
    else:
        assert sum(one.more_seconds for one in other.causes) == pytest.approx(q.seconds - p.seconds, abs=1e-15)
        moved, held = (
            sum(one.more_nbytes for one in other.causes if (one.what == "holds") == is_held)
            for is_held in (False, True)
        )
        assert moved == q.nbytes_moved - p.nbytes_moved
        assert held == sum(q.nbytes_placed) - sum(p.nbytes_placed)
    return sum(check_sample(q, node, other, k) for k in range(len(other.causes)))


def around(p: ShardPlan, node: str) -> set[str]:
    """An operator, and what is inside of its block."""
    return {node, *(name for name, block in p._lookups.blocks.items() if block == node)}


def check_sample(q: ShardPlan, node: str, other: Alternative, number: int) -> bool:
    """A transfer that is named is one of the plan that has the alternative, and no other one of it is larger."""
    cause = other.causes[number]
    if cause.what in ("works", "holds"):
        assert cause.sample is None
        return False
    stage = re.compile(rf"landing\.\d+ {re.escape(cause.tensor)}")  # the stages before the last one
    is_landing = cause.reader == f"landing {cause.tensor}"
    rows = [
        row
        for row in q.transfers(tensor=cause.tensor)
        if row.consumer == cause.reader or (is_landing and stage.fullmatch(row.consumer))
    ]
    assert sum(row.nbytes for row in rows) == cause.nbytes[1]
    assert not rows or (cause.what == "merges") == any(row.part >= 0 for row in rows)
    if cause.sample is None:
        return False
    seen = cause.sample
    pairs = dict[tuple[str, int, int], list[PlannedTransfer]]()
    for row in rows:
        pairs.setdefault((row.consumer, row.source, row.target), []).append(row)
    assert seen.nbytes == max(sum(row.nbytes for row in mine) for mine in pairs.values())
    assert (seen.source, seen.target, seen.cells, seen.nbytes) in [
        (*ends, tell_cells([region for row in mine for region in row.regions]), sum(row.nbytes for row in mine))
        for (_, *ends), mine in pairs.items()
    ]
    assert f"{seen.cells} from device {seen.source} to {seen.target}" in "; ".join(other.reasons)
    return True


CASES = [(name, mesh, asked) for name in MODELS for mesh in ((4,), (2, 2)) for asked in ({}, PLAIN)]
FIRST = [("bert", (2, 2), {}), ("gpt2", (4,), PLAIN), ("resnet", (4,), {})]


@pytest.mark.parametrize(
    ("name", "shape", "asked"),
    [pytest.param(*case, marks=() if case in FIRST else pytest.mark.heavy) for case in CASES],
)
def test_alternatives_of_networks_are_the_plans_that_have_them(name: str, shape: Any, asked: dict[str, Any]) -> None:
    g = loaded(name)
    p = plan(g, Mesh(shape), **asked)
    assert bool(p.fused) == (not asked) and plan(g, p.mesh, like=p) == p
    rng = random.Random(str((name, shape, asked)))
    nodes = rng.sample(sorted(p.graph.nodes), 3)
    told = [(node, one) for node in nodes for one in rng.sample(p.alternatives[node], 2)]
    assert sum(check_alternative(g, p, node, one) for node, one in told)


@pytest.mark.parametrize("begin", [0, *(pytest.param(k, marks=pytest.mark.heavy(16)) for k in range(2, 32, 2))])
def test_plans_of_every_kind_are_kept(begin: int) -> None:
    for seed in range(begin, begin + 2):
        rng = random.Random(seed)
        g = make_graph(rng)
        p, _ = make_plan(g, rng)
        q = plan(g, p.mesh, like=p)
        assert q == p and q.steps == p.steps
        read = ShardPlan.from_json(p.to_json())
        assert plan(g, p.mesh, like=read) == plan(read.graph, p.mesh, like=read) == p
        node = rng.choice(sorted(p.graph.nodes))
        others = p.alternatives[node]
        assert read.alternatives[node] == others
        for one in rng.sample(others, min(len(others), 2)):
            check_alternative(g, p, node, one)


def perceptron(width: int = 64) -> Graph:
    g = Graph("perceptron")
    h = ops.relu(ops.matmul(g.input("x", (32, 64)), g.input("w", (64, width)), name="fc"), name="act")
    g.output(ops.softmax(ops.matmul(h, g.input("v", (width, 8)), name="out"), name="shares"), "y")
    return g


def test_devices_stay_in_the_order_in_which_they_were() -> None:
    """`fix` lays parts in the order of the devices; a plan whose parts lie otherwise is kept as it is."""
    g = Graph()
    x = g.input("x", (8, 8))
    g.output(ops.exp(x, name="rows")[::-1] + ops.tanh(x, name="others"), "y")
    p = plan(g, Mesh(4), fuse=False, fix={"others": {"i0": 4}})
    assert p.placement["rows"] != p.placement["others"] and p.nbytes_moved == 0
    assert plan(g, Mesh(4), fuse=False, fix=dict(p.sharding)).nbytes_moved > 0
    assert plan(g, Mesh(4), like=p).placement == p.placement


def test_axes_of_the_mesh_say_which_device_has_which_part() -> None:
    g, mesh = perceptron(), Mesh((2, 2))
    p = plan(g, mesh, fuse=False, expand=False)
    for cut in ({"m": ("x",), "n": ("y",)}, {"m": ("y",), "n": ("x",)}):
        q = plan(g, mesh, like=p, fix={"fc": cut})
        wanted = plan(g, mesh, fuse=False, expand=False, fix={"fc": cut})
        assert q.placement["fc"] == wanted.placement["fc"]
        assert {name: q.placement[name] for name in ("act", "out")} == {
            name: p.placement[name] for name in ("act", "out")
        }


def test_parts_that_the_space_does_not_have_can_be_asked_for() -> None:
    g = perceptron()
    p = plan(g, Mesh(4), fuse=False, expand=False)
    assert {"m": 3} not in [one.sharding for one in p.alternatives["fc"]]
    assert plan(g, Mesh(4), like=p, fix={"fc": {"m": 3}}).sharding["fc"] == {"m": 3}


def test_a_plan_beyond_the_cap_of_the_kept_one_has_none() -> None:
    """Of a capped plan explanations say which others exceed the cap; it is insisted on by giving it."""
    g, mesh = Graph(), Mesh((2, 2))
    x = g.input("x", (64, 64))
    for k, width in enumerate((128, 32, 128)):
        x = ops.relu(ops.matmul(x, g.input(f"w{k}", (x.shape[1], width)), name=f"p{k}"), name=f"r{k}")
    g.output(x, "y")
    fast = plan(g, mesh, fuse=False)
    most = max(fast.peak_nbytes) * 9 // 10
    p = plan(g, mesh, fuse=False, memory_nbytes=most)
    assert f"(a device may have {most:,} B)" in p.explain("p2")
    beyond = said = 0
    for node in ("p0", "p1", "p2"):
        said += sum(need.over_nbytes > 0 for need in p.explain(node).needs)
        for one in p.alternatives[node]:
            q = plan(g, mesh, like=p, fix={node: one.sharding})
            assert ShardPlan.from_json(q.to_json()) == q
            if max(q.peak_nbytes) <= most:
                assert q.choices.memory_nbytes == (most,) * 4
                continue
            assert q.choices.memory_nbytes == q.peak_nbytes
            beyond += 1
            with pytest.raises(NotFound, match="the choices of like with fix need"):
                plan(g, mesh, like=p, fix={node: one.sharding}, memory_nbytes=most)
    assert beyond == said > 0


def test_the_same_bits_spilling_and_caps_are_kept() -> None:
    g = Graph()
    x = g.input("x", (64, 64))
    waits = ops.exp(x, name="waits")
    g.output(ops.exp(ops.tanh(waits) + ops.relu(x[::-1])) + waits, "y")
    p = plan(g, Mesh(1), fuse=False)
    q = spill(p, least_memory(p))
    assert any(q.nbytes_spilled) and plan(g, Mesh(1), like=q) == q
    with pytest.raises(NotFound, match=r"the choices of like need .* host memory") as caught:
        plan(g, Mesh(1), like=p, memory_nbytes=min(p.peak_nbytes) - 64)
    assert caught.value.fastest.sharding == p.sharding
    assert plan_or_spill(g, Mesh(1), like=p, memory_nbytes=max(q.peak_nbytes)).nbytes_spilled == q.nbytes_spilled
    with pytest.raises(InfeasiblePlan):
        plan_or_spill(g, Mesh(1), like=p, memory_nbytes=100)
    same = plan(perceptron(), Mesh(2), same_bits=True)
    assert plan(perceptron(), Mesh(2), like=same) == same and list(fix_bits(perceptron()).nodes) != []


def test_progress_goes_to_its_end() -> None:
    told: list[tuple[int, int, str]] = []
    p = plan(perceptron(), Mesh(2))
    plan(perceptron(), Mesh(2), like=p, progress=lambda *one: told.append(one))
    assert told and told[-1][0] == told[-1][1] and told[-1][2] == "done"


REFUSED: dict[str, tuple[Callable[[ShardPlan], Any], str]] = {
    "another mesh": (lambda p: plan(perceptron(), Mesh(4), like=p), r"another mesh, whose shape is \(2,\), not \(4,\)"),
    "other links": (
        lambda p: plan(perceptron(), Mesh(2, link=Link(1e-6, 1e9)), like=p),
        "another mesh, whose link is .* give its own mesh, like.mesh",
    ),
    "a graph that has less": (
        lambda p: plan(Graph(), Mesh(2), like=p),
        "another graph; it has an operator '.*', and the graph given has not: give the graph that it was made of",
    ),
    "a graph that has more": (
        lambda p: plan(more(), Mesh(2), like=p),
        "another graph; it has no operator 'late', which the graph given has",
    ),
    "another shape": (
        lambda p: plan(perceptron(32), Mesh(2), like=p),
        r"another graph; its input 'w' is float32 of shape \(64, 64\), not float32 of shape \(64, 32\)",
    ),
    "steps": (lambda p: plan(p.graph, Mesh(2), like=p.with_steps(p.steps)), "steps somebody wrote"),
    "more wishes": (
        lambda p: plan(p.graph, Mesh(2), like=p, expand=False, space="mesh"),
        "expand, space cannot be given with like",
    ),
    "an unknown operator": (
        lambda p: plan(p.graph, Mesh(2), like=p, fix={"nothing": {}}),
        "has no operator 'nothing'; known operators",
    ),
    "an operator in a block": (
        lambda p: plan(p.graph, Mesh(2), like=p, fix={"fc": {}}),
        "no operator 'fc', but the block 'act' that it is inside of",
    ),
    "an unknown axis": (
        lambda p: plan(p.graph, Mesh(2), like=p, fix={"act": {"z": 2}}),
        r"fix\['act'\]: there is no axis 'z'",
    ),
}


def more() -> Graph:
    g = perceptron()
    g.output(ops.relu(g.tensor("shares"), name="late"), "z")
    return g


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_kept_is_refused(case: str) -> None:
    ask, message = REFUSED[case]
    p = plan(perceptron(), Mesh(2))
    assert p.fused
    with pytest.raises(ValueError, match=message):
        ask(p)


def test_constants_of_a_document_are_those_of_the_graph() -> None:
    g = Graph()
    weights = np.arange(64 * 32, dtype=np.float32).reshape(64, 32)
    g.output(ops.relu(ops.matmul(g.input("x", (8, 64)), g.constant("w", weights), name="fc"), name="act"), "y")
    p = plan(g, Mesh(2))
    read = ShardPlan.from_json(p.to_json())
    assert read.graph.stored["w"].data is None
    q = plan(g, Mesh(2), like=read)
    assert q == p and q.graph.stored["w"].data is not None
    other = Graph()
    other.output(
        ops.relu(ops.matmul(other.input("x", (8, 64)), other.constant("w", weights + 1), name="fc"), name="act"), "y"
    )
    with pytest.raises(ValueError, match="another graph; its operators, their attributes or its constants differ"):
        plan(other, Mesh(2), like=read)


def test_reasons_say_what_moves_merges_and_is_replicated() -> None:
    g = Graph()
    x, w = g.input("x", (256, 512)), g.constant("w", np.ones((512, 512), np.float32))
    g.output(ops.relu(ops.matmul(x, w, name="fc"), name="act"), "y")
    p = plan(g, Mesh(4), fuse=False, fix={"fc": {"n": 4}}, layout={"x": {1: 4}})
    told = {tuple(one.sharding.items()): list(one.reasons) for one in p.alternatives["fc"]}
    assert told[("n", 4),] == [
        "receives 1,572,864 B of input x (131,072 B of it are cells [0, 256)×[0, 128) from device 0 to 1)"
    ]
    assert "would replicate constant w: 4 copies, 1 now (+3,145,728 B)" in told[("m", 4),]
    merged = next(reason for reason in told[("k", 4),] if "parts" in reason)
    assert "of result fc in 4 parts, which are merged (" in merged
    assert any(one.startswith("would receive nothing of input x, 1,572,864 B now (-") for one in told[("k", 4),])
    (still,) = p.alternatives["act"][0].reasons
    assert still == "what it reads lies where it runs, and what it makes where it is read"


def test_explanations_are_tables_in_notebooks() -> None:
    text = plan(perceptron(), Mesh(2)).explain("fc")
    assert text.node == "act" and text.splitlines()[0] == text.lines[0] and text.alternatives
    markup = text._repr_html_()
    assert markup.count("<tr>") == 1 + len(text.alternatives) and "<td" in markup
    assert all(reason in text for one in text.alternatives for reason in one.reasons)


def test_merges_in_stages_have_the_bytes_of_each_stage() -> None:
    """As the stages of the plan that has it receive them; stages of one tensor are one cause."""
    g = Graph()
    a, b = g.input("a", (8, 4096)), g.input("b", (4096, 8))
    g.output(ops.relu(ops.matmul(a, b, name="mm"), name="r"), "y")
    mesh, seen = Mesh(8, link=Link(1e-6, 1e9)), set[int]()
    for fix in ({"mm": {"k": 8}, "r": {}}, {"mm": {"m": 8}, "r": {}}, {"mm": {"k": 8}, "r": {"i0": 8}}):
        p = plan(g, mesh, fix=fix)
        for one in p.explain("mm").alternatives:
            q = plan(g, mesh, like=p, fix={"mm": one.sharding})
            there = [[sum(s.nbytes_received) for s in each.stages if s.op == "landing"] for each in (p, q)]
            causes = [cause for cause in one.causes if cause.reader == "landing mm"]
            assert len(causes) <= 1 and not any(cause.reader.startswith("landing.") for cause in one.causes)
            for cause in causes:
                before, after = cause.stage_nbytes
                assert list(after) == (there[1] if len(there[1]) > 1 else [])
                assert cause.nbytes == ((0 if one.is_chosen and not there[0] else sum(there[0])), sum(there[1]))
                assert list(before) == (there[0] if len(there[0]) > 1 else [])
                if after:
                    seen.add(len(after))
                    words = f"in {cause.parts} parts, which are merged in {len(after)} stages of {after[0]:,} B"
                    assert words in "\n".join(one.reasons) and cause.parts == 2 ** len(after)
            assert bool(causes) or there[0] == there[1] == []
    assert seen == {2, 3}
