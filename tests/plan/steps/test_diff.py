"""What differs between two plans, line by line, against what the plans themselves say."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from tapestry_plan import Device, Graph, Link, Mesh, ShardPlan, ops, plan
from tapestry_plan.steps import least_memory, spill
from tapestry_sets.limits import Units


def layer(rows: int = 64) -> Graph:
    g = Graph()
    h = ops.relu(g.op("matmul", g.input("x", (rows, 64)), g.input("w", (64, 32)), name="first"), name="relu")
    g.output(g.op("matmul", h, g.input("v", (32, 64)), name="second"), "y")
    return g


def totals(text: str) -> dict[str, tuple[float, float]]:
    """The lines of totals, read back: by name both numbers."""
    rows = re.findall(r"^(\w+) +([\d,.]+) (?:us|B) -> +([\d,.]+) (?:us|B) \(", text, re.MULTILINE)
    return {name: (float(a.replace(",", "")), float(b.replace(",", ""))) for name, a, b in rows}


def test_a_plan_differs_in_nothing_from_itself_written_and_read() -> None:
    p = plan(layer(), Mesh(4))
    again = p.diff(ShardPlan.from_json(p.to_json()))
    assert str(p.diff(p)) == str(again) == "" and not again and repr(again) == "PlanDifference(none)"
    assert again._repr_html_() == "<p>The plans do not differ.</p>"


def test_the_totals_are_those_of_the_plans() -> None:
    g = layer()
    p, q = plan(g, Mesh(4)), plan(g, Mesh(4), fix={"first": {"k": 4}, "second": {"k": 4}})
    found = totals(str(p.diff(q)))
    assert found["moved"] == (p.nbytes_moved, q.nbytes_moved) and p.nbytes_moved != q.nbytes_moved
    assert found["placed"] == (sum(p.nbytes_placed), sum(q.nbytes_placed))
    assert found["time"] == pytest.approx((p.seconds * 1e6, q.seconds * 1e6), abs=0.005)
    assert "spilled" not in found  # nothing is, in either
    turned = totals(str(q.diff(p)))
    assert turned == {name: (b, a) for name, (a, b) in found.items()}


def test_operators_are_listed_where_their_parts_lie_elsewhere() -> None:
    g = layer()
    p, q = plan(g, Mesh(4), fix={"first": {"m": 4}}), plan(g, Mesh(4), fix={"first": {"n": 4}, "relu": {"i0": 4}})
    lines = str(p.diff(q)).splitlines()
    assert "first: m:4 -> n:4" in lines
    named = {line.partition(":")[0] for line in lines} & set(g.nodes)
    assert named == {name for name in g.nodes if p.placement[name] != q.placement[name]}


def test_the_same_parts_on_other_devices_are_told() -> None:
    g, turned = Graph(), Graph()
    for one, view in ((g, False), (turned, True)):
        e = ops.exp(one.input("x", (64,)), name="e")
        one.output(ops.tanh(e.flip() if view else e, name="t"))
    text = str(plan(g, Mesh(4), fuse=False).diff(plan(turned, Mesh(4), fuse=False)))
    assert re.search(r"^[et]: i0:4 -> i0:4, on other devices$", text, re.MULTILINE)


def test_machines_graphs_expansions_and_memory_are_told() -> None:
    p = plan(layer(), Mesh(4))
    other = plan(layer(), Mesh((2,), device=Device(1e12)))
    text = str(p.diff(other))
    assert "mesh.shape: (4,) -> (2,)" in text and "mesh.device: Device(" in text and "mesh.link" not in text
    g = Graph()
    g.output(ops.relu(g.input("x", (8,)), name="alone"))
    assert "alone: not in the plan -> " in str(p.diff(plan(g, Mesh(4)))) and "first: " in str(p.diff(plan(g, Mesh(4))))
    waits = Graph()
    early = ops.exp(waits.input("x", (64, 64)))
    waits.output(early @ waits.input("w", (64, 64)) @ waits.input("v", (64, 64)) + early)
    roomy = plan(waits, Mesh(1), fuse=False)
    small = spill(roomy, max(least_memory(roomy)))
    assert totals(str(roomy.diff(small)))["spilled"] == (0, sum(small.nbytes_spilled)) and sum(small.nbytes_spilled) > 0


def test_an_expanded_operator_is_told() -> None:
    h = Graph()
    h.output(
        ops.tanh(
            h.op(
                "conv",
                ops.exp(h.input("x", (1, 8, 1024))),
                h.input("w", (8, 8, 3)),
                name="c",
                dilations=(4,),
                pads=(4, 4),
            )
        )
    )
    mesh = Mesh(4, device=Device(1e9, 1e12), link=Link(1e-7, 1e9))
    whole, split = plan(h, mesh, expand=False), plan(h, mesh, expand=["space_to_batch", "split_axes"])
    assert split.expanded["c"] == "space_to_batch"
    assert f"c: {' '.join(f'{a}:{n}' for a, n in whole.sharding['c'].items())} -> expanded by space_to_batch" in str(
        whole.diff(split)
    )


def test_operators_have_their_costs_and_transfers_their_bytes() -> None:
    g = layer()
    p, q = plan(g, Mesh(4), fix={"first": {"m": 4}}), plan(g, Mesh(4), fix={"first": {"n": 4}, "relu": {"i0": 4}})
    found = p.diff(q)
    row = next(row for row in found.operators if row.node == "first")
    assert (row.before, row.after) == ("m:4", "n:4")
    assert row.seconds == (p.stage["first"].seconds, q.stage["first"].seconds)
    assert row.nbytes == tuple(sum(one.stage["first"].nbytes_received) for one in (p, q))
    moved = [Counter[tuple[str, str]](), Counter[tuple[str, str]]()]
    for plan_, count in zip((p, q), moved, strict=True):
        for transfer in plan_.transfers():
            count[transfer.tensor, transfer.consumer] += transfer.nbytes
    wanted = {
        key: (moved[0][key], moved[1][key]) for key in moved[0].keys() | moved[1] if moved[0][key] != moved[1][key]
    }
    assert {(row.tensor, row.consumer): (row.before, row.after) for row in found.transfers} == wanted != {}
    assert sum(after - before for before, after in wanted.values()) == q.nbytes_moved - p.nbytes_moved
    html = found._repr_html_()
    cells = re.findall(r"<td[^>]*>([^<]*)</td>", html)
    assert {"first", "m:4 → n:4", f"{p.nbytes_moved:,} B", f"{q.nbytes_moved:,} B"} <= {*cells}
    assert f"{Units().seconds(row.seconds[0])} → {Units().seconds(row.seconds[1])}" in cells
    assert all(f"{after - before:+,} B" in cells for before, after in wanted.values())
    assert len(repr(found)) <= 200 and repr(found).startswith("PlanDifference(time ")
    assert f"moved {p.nbytes_moved:,} -> {q.nbytes_moved:,} B" in repr(found)


@pytest.mark.parametrize("wrong", [None, 3, "plan", Graph()])
def test_what_is_no_plan_is_refused_by_name(wrong: object) -> None:
    with pytest.raises(TypeError, match=r"diff: other must be a ShardPlan"):
        plan(layer(), Mesh(2)).diff(wrong)  # type: ignore[arg-type]


def test_transfers_that_alone_differ_are_a_difference() -> None:
    g = Graph()
    for name in ("a", "b"):
        g.output(ops.relu(g.input(name, (8, 8)), name=f"{name} op"), f"{name} out")
    fix = {f"{name} op": {"i0": 2} for name in ("a", "b")}
    p, q = (plan(g, Mesh(2), fix=fix, layout={name: {1: 2}}) for name in ("a", "b"))
    found = p.diff(q)
    assert not found.totals and not found.settings and not found.operators
    assert found and {(one.tensor, one.before, one.after) for one in found.transfers} == {("a", 128, 0), ("b", 0, 128)}
    assert str(found).splitlines() == ["a for a op: 128 B -> 0 B", "b for b op: 0 B -> 128 B"]
    assert repr(found) == "PlanDifference(2 tensors moved otherwise)"
    assert "do not differ" not in found._repr_html_()


class Counted(tuple[Any, ...]):
    """A tuple that counts how often it is gone through."""

    times = 0

    def __iter__(self) -> Iterator[Any]:
        Counted.times += 1
        return super().__iter__()

    def __reversed__(self) -> Iterator[Any]:
        Counted.times += 1
        return iter(self[::-1])


def test_what_is_inside_of_blocks_is_found_once_and_not_for_each_operator() -> None:
    g = Graph()
    x = g.input("x", (4, 4))
    for k in range(40):
        x = ops.tanh(ops.relu(ops.exp(x @ g.input(f"w{k}", (4, 4)))))
    g.output(x, "y")
    p = plan(g, Mesh(1), expand=False)
    assert len(p.fused) == 120
    q = replace(p, fused=Counted(p.fused), expansions=Counted(p.expansions))
    Counted.times = 0
    assert not q.diff(q).operators
    told = [q.explain(name) for name in g.nodes]
    assert Counted.times < 20
    firsts = {pair.first: pair.second for pair in p.fused}
    for name, text in zip(g.nodes, told, strict=True):
        block = _ends_in(name, firsts)
        inside = [one for one in g.nodes if one in firsts and _ends_in(one, firsts) == block]
        assert text.splitlines()[0].startswith(f"{name}: in one block with {block}," if block != name else f"{name} (")
        assert f"one block of {', '.join(inside)} and {block}" in text


def _ends_in(name: str, firsts: dict[str, str]) -> str:
    while name in firsts:
        name = firsts[name]
    return name
