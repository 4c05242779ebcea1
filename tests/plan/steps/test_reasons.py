"""What `explain` says of what shards read, against cells that are looked up one by one."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tapestry_plan import Graph, Mesh, ShardPlan, operation, ops, plan
from tapestry_plan.steps import Compute, PlannedTransfers, tell_cut, tuning
from tapestry_plan.steps.asking.reasons import list_reads
from tests.exec.run.test_every_kind_of_plan import make_graph, make_plan
from tests.oracles import cell_read


def cells_read(p: ShardPlan, node: str, tensor: str, device: int) -> set[tuple[int, ...]]:
    """The cells of a stored tensor that a device's shards read, through views cell by cell."""
    g, found = p.graph, set[tuple[int, ...]]()
    for box in p.placement[node].get(device, ()):
        for name, region in zip(g.nodes[node].inputs, operation(g, node).region(box).inputs, strict=True):
            source = g.source(name)
            for point in (tuple(map(int, point)) for point in region.points()):
                for piece in source.pieces:
                    if piece.source >= 0 and source.stored[piece.source] == tensor:
                        at = cell_read(piece, point)
                        found |= {at} if at is not None else set()
    return found


def check(p: ShardPlan) -> int:
    told = 0
    stages = {stage.node: sum(stage.nbytes_received) for stage in p.stages}
    for node in p.graph.nodes:
        if node not in p.placement:
            continue
        found = list(list_reads(p.graph, node, p.placement[node], p.transfers()))
        assert sum(one.nbytes_received for one in found) == stages[node]
        for one in found:
            itemsize = np.dtype(p.graph.stored[one.tensor].dtype).itemsize
            each = [cells_read(p, node, one.tensor, device) for device in range(p.mesh.size)]
            assert one.nbytes_read == sum(map(len, each)) * itemsize
            assert (one.witness is None) == (one.nbytes_received == 0)
            if one.witness is not None:
                told += 1
                row = one.witness
                assert row in p.transfers(row.source, row.target) and (row.consumer, row.tensor) == (node, one.tensor)
                cells = {tuple(map(int, point)) for region in row.regions for point in region.points()}
                assert cells <= each[row.target] and f"from device {row.source} to {row.target}" in str(one)
            assert str(one) in p.explain(node) or p.explain(node).startswith(f"{node}: ")
    return told


@pytest.mark.parametrize("begin", [0, *(pytest.param(k, marks=pytest.mark.heavy(40)) for k in range(5, 100, 5))])
def test_plans_of_every_kind(begin: int) -> None:
    told = 0
    for seed in range(begin, begin + 5):
        rng = random.Random(seed)
        told += check(make_plan(make_graph(rng), rng)[0])
    assert told > 1


def columns() -> ShardPlan:
    g = Graph()
    x, w = g.input("x", (64, 64)), g.input("w", (64, 64))
    g.output(ops.relu(ops.matmul(x, w, name="product"), name="act").T, "y")
    return plan(g, Mesh(2), fix={"product": {"n": 2}, "act": {"i0": 2}}, fuse=False, expand=False)


def test_it_is_said_in_words() -> None:
    text = columns().explain("act")
    assert (
        "reads 16,384 B of result product; 8,192 B come from other devices, as cells [0, 32)×[32, 64) from device 1"
        in text
    )
    text = columns().explain("product")
    assert "  reads 32,768 B of input x, all of it where it is placed\n" in text
    assert "  reads 16,384 B of input w, all of it where it is placed\n" in text


def test_of_many_devices_steps_are_not_written_down_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    whole, p = columns(), columns()
    expected, stages = whole.explain("act"), own()
    landing = next(stage.node for stage in stages.stages if stage.node not in stages.graph.nodes)
    monkeypatch.setattr(tuning, "TOLD_SHARDS", 1)
    assert (
        "  left out, as it takes the steps of all 2 devices: what it reads of which tensor, and from where; "
        "plan.transfers(consumer='act') writes them, and explain says it then\n"
    ) in p.explain("act")
    assert "written" not in p.__dict__ and p.transfers(consumer="act").nbytes == 8192
    assert p.explain("act") == expected
    assert f"plan.transfers(consumer={landing!r}) writes them" in stages.explain(landing)
    assert stages.transfers(consumer=landing) and " go from device " in stages.explain(landing)


def test_the_transfers_of_a_plan_are_gone_through_once_for_all_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    g = Graph()
    x = g.input("x", (8, 8))
    for k in range(20):
        x = ops.relu(x.T, name=f"turn{k}")
    g.output(x, "y")
    p = plan(g, Mesh(2), fix={f"turn{k}": {"i0": 2} for k in range(20)}, fuse=False)
    told = [p.explain(name) for name in g.nodes]
    assert len(p.transfers()) == 38 and all("come from other devices" in text for text in told[1:])
    monkeypatch.setattr(PlannedTransfers, "__iter__", lambda self: pytest.fail("they are gone through again"))
    assert [p.explain(name) for name in g.nodes] == told


def own(newline: str = "") -> ShardPlan:
    """A product whose sums are cut, so that its parts are merged where they land or the output lies."""
    g = Graph()
    product = ops.matmul(g.input(f"x{newline}", (64, 64)), g.input("w", (64, 64)), name=f"a{newline}")
    g.output(ops.matmul(ops.relu(product, name=f"act{newline}"), g.input("v", (64, 8)), name=f"b{newline}"), "y")
    return plan(g, Mesh(2), fix={f"a{newline}": {"k": 2}, f"b{newline}": {"k": 2}})


def test_stages_without_operators_are_explained() -> None:
    p, found = own(), 0
    for stage in p.stages:
        if stage.node in p.graph.nodes:
            continue
        found += 1
        lines = p.explain(stage.node).splitlines()
        assert lines[0].startswith(f"{stage.node}: ") and f"receives {sum(stage.nbytes_received):,} B" in lines[1]
        rows = [row for row in p.transfers() if row.consumer == stage.node]
        assert len(lines) == 2 + len(rows) and len(rows) > 0
        for line, row in zip(lines[2:], rows, strict=True):
            assert f"{row.nbytes:,} B of result {row.tensor}, {row.cells}" in line
            assert line.endswith(f"go from device {row.source} to {row.target}")
    assert found


def test_names_with_line_breaks_stay_in_their_lines() -> None:
    plain, p = own(), own("\n1")
    for one, other in zip(plain.stages, p.stages, strict=True):
        text = p.explain(other.node)
        assert len(text.splitlines()) == len(plain.explain(one.node).splitlines())
        assert "\n1" not in text and "\\n1" in text
    assert len(str(p.transfers()).splitlines()) == len(str(plain.transfers()).splitlines())


def told_of_whole(on: list[int], devices: int) -> str:
    every = f"of {len(on)} devices" if len(on) < devices else "device"
    where = f"on device {on[0]}" if len(on) == 1 else f"on each {every}"
    return "whole" if devices == 1 else f"whole {where}"


@pytest.mark.parametrize("devices", [1, 2, 3])
def test_it_is_said_who_computes_what_is_whole(devices: int) -> None:
    """One device, or several all of it each: as the steps have it."""
    said = set[str]()
    graphs = [make_graph(random.Random(seed)) for seed in range(3)]
    plans = [plan(g, Mesh(devices), fuse=False) for g in graphs]
    plans.append(plan(columns().graph, Mesh(devices), fix={"product": {}, "act": {}}))
    if devices == 2:
        plans.append(plan(columns().graph, Mesh(2), like=columns(), fix={"act": {}}))
    for p in plans:
        for node in p.placement:
            head = tell_cut(p, node)
            if p.sharding[node]:
                assert "whole" not in head
                continue
            steps = [step for step in p.steps if isinstance(step, Compute) and step.node == p.stage[node].node]
            assert head == told_of_whole([step.device for step in steps], devices)
            assert node not in p.graph.nodes or p.explain(node).splitlines()[0].endswith(f": {head}")
            said.add(head)
    wanted = {1: {"whole"}, 2: {"whole on device 0", "whole on each device"}, 3: {"whole on each device"}}
    assert said >= wanted[devices]


def test_alternatives_say_who_computes_what_is_whole() -> None:
    text = columns().explain("act")
    (whole,) = [one for one in text.alternatives if not one.sharding]
    assert not any(one.devices for one in text.alternatives if one.sharding)
    q = plan(columns().graph, Mesh(2), like=columns(), fix={"act": {}})
    assert tuple(q.placement["act"]) == whole.devices
    assert f"    {tell_cut(q, 'act')} " in text and f">{tell_cut(q, 'act')}</td>" in text._repr_html_()
