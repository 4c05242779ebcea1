"""What `explain` says of memory under a limit, against the plans that it tells of."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tapestry_exec import run
from tapestry_plan import Graph, InfeasiblePlan, Mesh, NotFound, ShardPlan, load_onnx, ops, plan
from tapestry_plan.search import plan_or_spill
from tests.exec.run.test_every_kind_of_plan import make_graph
from tests.exec.run.test_same_bits import of_floats


def check(g: Graph, p: ShardPlan, cap: int, node: str, feeds: dict[str, Any] | None = None) -> set[str]:
    """Each alternative, planned: within the cap where it is said, else refused with the bytes that are said."""
    text, found = p.explain(node), set[str]()
    assert len(text.needs) == len(text.alternatives) and f"(a device may have {cap:,} B)" in text
    for one, need in zip(text.alternatives, text.needs, strict=True):
        assert str(need) in text and f"<li>{need}" not in text
        if need.over_nbytes:
            found.add("over")
            assert need.peak_nbytes == cap + need.over_nbytes
            with pytest.raises((NotFound, InfeasiblePlan)) as caught:
                plan(g, p.mesh, like=p, fix={node: one.sharding}, memory_nbytes=cap)
            if isinstance(caught.value, NotFound):
                assert caught.value.found_nbytes == need.peak_nbytes
                assert max(caught.value.fastest.peak_nbytes) == need.peak_nbytes
            else:
                found.add("spilled")
                assert f"{need.peak_nbytes:,} B at once" in str(caught.value)
            continue
        found.add("within")
        q = plan(g, p.mesh, like=p, fix={node: one.sharding}, memory_nbytes=cap)
        assert max(q.peak_nbytes) == need.peak_nbytes <= cap and q.limit_nbytes == (cap,) * p.mesh.size
        if any(q.nbytes_spilled):
            found.add("spilled")
        if feeds is not None:
            assert max(run(q, feeds).peak_nbytes) == need.peak_nbytes
    return found


@pytest.mark.parametrize("begin", [0, *(pytest.param(k, marks=pytest.mark.heavy(16)) for k in range(4, 60, 4))])
def test_alternatives_under_a_cap_are_plans_that_keep_it_or_not(begin: int) -> None:
    found, refused = set[str](), 0
    for seed in range(begin, begin + 4):
        rng = random.Random(seed)
        g, mesh = make_graph(rng), Mesh(rng.choice([2, 3]))
        peak = max(plan(g, mesh).peak_nbytes)
        for share in (rng.choice([80, 90, 100]),):
            cap = peak * share // 100
            try:
                p = plan_or_spill(g, mesh, memory_nbytes=cap)
            except (NotFound, InfeasiblePlan):
                refused += 1
                continue
            node = rng.choice(sorted(p.graph.nodes))
            found |= check(g, p, cap, node, of_floats(g) if seed == begin else None)
    assert found >= {"over", "within"} and refused < 4


def test_plans_that_spill_are_weighed_as_they_spill() -> None:
    g = Graph()
    x = g.input("x", (64, 64))
    waits = ops.exp(x, name="waits")
    g.output(ops.exp(ops.tanh(waits) + ops.relu(x[::-1]), name="last") + waits, "y")
    cap = 49152
    p = plan_or_spill(g, Mesh(1), fuse=False, memory_nbytes=cap)
    assert any(p.nbytes_spilled)
    assert check(g, p, cap, "last", of_floats(g)) == {"within", "spilled"}
    p = plan_or_spill(g, Mesh(2), fuse=False, memory_nbytes=cap // 2)
    assert any(p.nbytes_spilled)
    assert set.union(*(check(g, p, cap // 2, node) for node in p.graph.nodes)) == {"within", "over", "spilled"}


@pytest.mark.heavy(2)
def test_a_limit_is_kept_where_the_fastest_plan_fits_and_in_documents() -> None:
    g = load_onnx("tests/models/resnet.onnx")
    free = plan(g, Mesh(2))
    cap = max(free.peak_nbytes)
    p = plan(g, Mesh(2), memory_nbytes=cap)
    assert p == free and p.limit_nbytes == (cap,) * 2 and free.limit_nbytes is None
    again = ShardPlan.from_json(p.to_json())
    node = next(iter(p.graph.nodes))
    assert again.limit_nbytes == p.limit_nbytes and str(again.explain(node)) == str(p.explain(node))
    assert not free.explain(node).needs and "a device may have" not in free.explain(node)


def test_reports_say_the_memory_of_what_would_be_faster() -> None:
    rng = random.Random(1)
    g, mesh = make_graph(rng), Mesh(rng.choice([2, 3]))
    free = plan(g, mesh)
    cap = max(free.peak_nbytes) * 8 // 10
    p = plan_or_spill(g, mesh, memory_nbytes=cap)
    made, told = p.report(), 0
    for node, one in made.data["explained"].items():
        text = p.explain(node)
        chosen = next(other for other in text.alternatives if other.is_chosen)
        assert f"(a device may have {cap:,} B; what is faster says what it takes of it)" in one["reasons"]
        for other, need in zip(text.alternatives, text.needs, strict=True):
            if other.seconds < chosen.seconds:
                assert str(need) in one["reasons"]
                told += need.over_nbytes > 0
    assert told and "exceeds the memory" not in "".join(o["reasons"] for o in free.report().data["explained"].values())
