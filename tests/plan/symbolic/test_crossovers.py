"""Where another plan is the best: those given, bound to each size, and those that are found, planned at each size."""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from tapestry_plan import (
    Crossovers,
    Device,
    Graph,
    Link,
    Mesh,
    NotFound,
    PlanVersionError,
    ShardPlan,
    crossovers,
    least_memory,
    load_onnx,
    pareto,
    plan,
)
from tapestry_plan.steps import spill
from tapestry_plan.steps.documents import seal
from tapestry_plan.symbolic import candidates
from tests.open_models import open_batch
from tests.plan.symbolic.test_binding import APART, attention

FIX: list[dict[str, Any]] = [{"y": {"n": 2}, "scores": {"m": 2}}, {"y": {"b0": 2}, "scores": {"b0": 2}}]


@cache
def plans() -> tuple[ShardPlan, ...]:
    """One that cuts tokens, and one that cuts sequences, of which there are two at least."""
    return tuple(plan(attention(batch=n), Mesh(2), fix=fix, **APART) for n, fix in zip((2, 8), FIX, strict=True))


@pytest.mark.parametrize("by", ["seconds", "nbytes_moved"])
def test_the_best_plan_is_the_best_of_those_bound(by: Any) -> None:
    made = plans()
    found = crossovers(made, "batch", range(1, 8), by=by, search=False)
    assert found.planned_at == (2, 8) and found.others == {"seq": 6}
    last = None
    for size, best, each in zip(found.sizes, found.best, found.found, strict=True):
        costs: dict[int, Any] = {}
        for k, p in enumerate(made):
            try:
                bound = p.bind(batch=size)
            except ValueError:
                assert each[k] is None
                continue
            here = each[k]
            assert here is not None and (here.seconds, here.nbytes_moved) == (bound.seconds, bound.nbytes_moved)
            costs[k] = getattr(bound, by)
        assert best is not None and costs[best] == min(costs.values())
        if last in costs and costs[last] == min(costs.values()):
            assert best == last
        last = best
    changes = [k for k in range(1, 7) if found.best[k] != found.best[k - 1]]
    assert [point.size for point in found.points] == [found.sizes[k] for k in changes] and changes


def test_what_crossovers_tell() -> None:
    found = crossovers(plans(), "batch", [8, 1, 2, 2], search=False)
    assert found.sizes == (1, 2, 8) and found.bounds == found.gaps == (None,) * 3
    assert "by seconds, of 2 plans at 3 sizes, 1 to 8, seq=6" in str(found)
    assert "no others were planned, which may be better" in str(found)
    assert len(str(found).splitlines()) == 2 + 2 + len(found.points)
    assert found._repr_html_().count("<tr>") == 2 + len(found.points)
    assert json.loads(found.to_json())["sizes"] == [1, 2, 8]


def test_wrong_crossovers() -> None:
    p = plans()[1]
    wrong: list[tuple[Any, str]] = [
        (lambda: crossovers([], "batch", [1]), "no plan is given"),
        (lambda: crossovers([p], "batch", []), "no size is given"),
        (lambda: crossovers([p], "batch", [0]), "at least 1, not 0"),
        (lambda: crossovers([p], None, [2]), "several symbols; name one"),
        (lambda: crossovers([p], "bach", [2]), "'bach' is not a symbol"),
        (lambda: crossovers([p, p.bind(seq=7)], "batch", [2]), "plan 1 is of .*; bind the other symbols alike"),
        (
            lambda: crossovers([p], "batch", [1], search=False),
            "plan 0 can be bound at none of the sizes: bind: the plan cuts",
        ),
        (lambda: crossovers(p, "batch", [0]), "at least 1, not 0"),
        (lambda: crossovers(p.with_steps(p.steps), "batch", [2]), "plan 0 has steps that somebody wrote"),
    ]
    for ask, said in wrong:
        with pytest.raises(ValueError, match=re.compile(said)):
            ask()


def test_a_size_that_a_plan_has_no_memory_for() -> None:
    small, large = plan(attention(), Mesh(2), memory_nbytes=3500), plan(attention(batch=64), Mesh(2))
    found = crossovers([small, large], "batch", [2, 64], search=False)
    assert found.best[1] == 1 and found.found[1][0] is None and found.found[0][0] is not None


# -- plans that are found ----------------------------------------------------------------------------------

ROWS, INNER, COLUMNS, ITEM = "N", 16, 8, 4


@cache
def product() -> Any:
    """A product of N rows."""
    shapes = {"x": [ROWS, INNER], "w": [INNER, COLUMNS], "y": [ROWS, COLUMNS]}
    x, w, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items())
    node = helper.make_node("MatMul", ["x", "w"], ["y"], "product")
    return helper.make_model(helper.make_graph([node], "g", [x, w], [y]))


HALVES = {"layout": {name: {0: 2} for name in "xwy"}}
SLOW = Mesh(2, link=Link(0.0, 1e9), device=Device(1e18, 1e18))
"""Devices on which nothing but bytes counts, a nanosecond each."""


def halved(size: int) -> Graph:
    return load_onnx(product(), shapes={ROWS: size})


def split(extent: int) -> tuple[slice, slice]:
    half = -(-extent // 2)
    return slice(half), slice(half, extent)


def count_by_hand(size: int) -> int:
    """The least nanoseconds of all ways to share the product, counted on masks of cells.

    Each device has half of the rows of x, of w, and of y in the end. Partial sums go to those that have the cells of y.
    """
    whole = slice(None)
    ways: list[list[tuple[slice, ...] | None]] = [[(whole,) * 3, None], [None, (whole,) * 3], [(whole,) * 3] * 2]
    for axis, extent in enumerate((size, COLUMNS, INNER)):
        ways.append([tuple(part if k == axis else whole for k in range(3)) for part in split(extent)])
    has = {name: np.zeros((2, *shape), bool) for name, shape in (("x", (size, INNER)), ("w", (INNER, COLUMNS)))}
    has["y"] = np.zeros((2, size, COLUMNS), bool)
    for cells in has.values():
        for device, rows in enumerate(split(cells.shape[1])):
            cells[device, rows] = True
    found = []
    for way in ways:
        points = np.zeros((2, size, COLUMNS, INNER), bool)
        for device, box in enumerate(way):
            if box is not None:
                points[(device, *box)] = True
        from_others = [
            points.any(axis=2) & ~has["x"],
            points.any(axis=1).swapaxes(1, 2) & ~has["w"],
            points.any(axis=3)[::-1] & has["y"] & ~points.all(axis=3),
        ]
        found.append(sum(int(cells.sum(axis=(1, 2)).max()) * ITEM for cells in from_others))
    return min(found)


@cache
def found_by_hand() -> Crossovers:
    return crossovers(plan(halved(4), SLOW, **HALVES), ROWS, range(1, 51))


@pytest.mark.heavy(2)
def test_a_crossover_is_where_it_is_computed_to_be() -> None:
    """In parts of the sum 32 (N + 1) or 32 N bytes go to a device, with rows w's 256: more from 9 rows on."""
    found = found_by_hand()
    assert [point.size for point in found.points] == [2, 9] and found.planned_at == (4, 9)
    assert [dict(p.sharding) for p in found.plans] == [{"product": {"k": 2}}, {"product": {"m": 2}}]
    assert found.best == (None,) + (0,) * 7 + (1,) * 42
    assert "has 1 points, not 2 parts; give at most" in found.unplanned[1] and list(found.unplanned) == [1]
    for size, best, each, gap in list(zip(found.sizes, found.best, found.found, found.gaps, strict=True))[1:]:
        assert best is not None and gap == 0
        one = each[best]
        assert one is not None and round(one.seconds * 1e9) == count_by_hand(size) == min(32 * (size + size % 2), 256)


def check(found: Crossovers, **options: Any) -> None:
    """No plan that is made for one size alone is better there, but for the gap; each figure is of a plan that is bound.

    Left of each crossover the plan from before is at least as good.
    """
    mesh = found.plans[0].mesh
    for k, size in enumerate(found.sizes):
        best, gap = found.best[k], found.gaps[k]
        if best is None:
            continue
        for number, one in enumerate(found.found[k]):
            if one is not None:
                bound = found.plans[number].bind({found.symbol: size})
                assert (one.seconds, one.nbytes_moved) == (bound.seconds, bound.nbytes_moved)
        mine = found.found[k][best]
        alone = plan(found.plans[0].graph.bind({found.symbol: size}), mesh, **options)
        assert mine is not None and gap is not None and mine.seconds <= alone.seconds
        assert mine.seconds * (1 - gap) <= alone.seconds * (1 + 1e-12) and found.bounds[k] == alone.bound
        if k and found.best[k - 1] not in (best, None):
            after = found.plans[best]
            try:
                there = after.bind({found.symbol: found.sizes[k - 1]}).seconds
            except ValueError:
                continue
            before = found.found[k - 1][found.best[k - 1] or 0]
            assert before is not None and before.seconds <= there


@pytest.mark.heavy(2)
def test_fifty_sizes_of_a_product() -> None:
    check(found_by_hand(), **HALVES)


@pytest.mark.heavy(8)
@pytest.mark.parametrize("devices", [2, 4])
@pytest.mark.parametrize("name", ["bert", "gpt2"])
def test_fifty_sizes_of_a_transformer(name: str, devices: int) -> None:
    found = crossovers(plan(load_onnx(open_batch(name), shapes={"batch": 8}), Mesh(devices)), "batch", range(1, 51))
    check(found)
    assert len(found.points) >= 3 and None not in found.best
    assert sum(gap == 0 for gap in found.gaps) >= 40 and max(gap for gap in found.gaps if gap is not None) < 0.01


@pytest.mark.heavy(2)
def test_a_plan_of_another_size_may_be_better_than_one_that_was_planned_for_it() -> None:
    """Where a gap is left all candidates are bound: BERT at a batch of 3 is such a size."""
    first = plan(load_onnx(open_batch("bert"), shapes={"batch": 1}), Mesh(2))
    found = crossovers(first, "batch", [1, 3])
    alone = plan(first.graph.bind(batch=3), Mesh(2))
    one = found.found[1][0]
    assert one is not None and found.best == (0, 0)
    assert (one.seconds < alone.seconds) == (alone.gap > 0) and found.bounds[1] == alone.bound


@pytest.mark.heavy(2)
def test_what_was_asked_for_is_asked_again() -> None:
    fix = {"y": {"n": 2}}
    options = {"fix": fix, "forbid": {"scores": {"b0": 2}}, "space": "mesh", "placement": "single", **APART}
    p = plan(attention(), Mesh(2), memory_nbytes=10**6, **options)
    assert p.asked == {**options, "memory_nbytes": 10**6}
    found = crossovers(p.bind(batch=3), "batch", [1, 2, 3, 5])
    assert found.best[0] is not None and "forbid['scores']: axis 'b0' has 1 points" in found.unplanned[1]
    found = crossovers(p.bind(batch=3), "batch", [2, 3, 5])
    assert None not in found.best and found.plans[0].asked == p.asked
    check(found, memory_nbytes=10**6, **options)
    for one in found.plans:
        assert one.sharding["y"] == fix["y"] and one.sharding["scores"] != {"b0": 2} and not one.expanded
        assert one.space == "mesh" and one.limit_nbytes == (10**6, 10**6)


def test_what_is_known_is_not_planned_again(monkeypatch: pytest.MonkeyPatch) -> None:
    p, planned = plan(halved(4), SLOW, **HALVES), []

    def count(graph: Graph, mesh: Mesh, **options: Any) -> ShardPlan:
        planned.append(graph.sizes[ROWS])
        return plan(graph, mesh, **options)

    monkeypatch.setattr(candidates, "plan", count)
    told: list[tuple[int, int, str]] = []
    found = crossovers([p, p.bind(N=12)], ROWS, [4, 12], progress=lambda *one: told.append(one))
    assert planned == [12] and found.best == (0, 2) and found.gaps == (0, 0)
    assert told == [(0, 4, "N=4"), (1, 4, "N=12"), (2, 4, "N=4"), (3, 4, "N=12"), (4, 4, "done")]


@pytest.mark.heavy(2)
def test_less_memory_than_any_plan_needs_at_a_size() -> None:
    p = plan(attention(), Mesh(2), memory_nbytes=3500)
    found = crossovers(p, "batch", [2, 64])
    assert found.best == (0, None) and "memory_nbytes is 3,500" in found.unplanned[64] and found.gaps[1] is None
    assert "not planned at 64: plan: memory_nbytes is 3,500" in str(found)
    spilled = spill(p, least_memory(p))
    if any(spilled.nbytes_spilled):
        assert crossovers(spilled, "batch", [2]).best == (0,)


def test_a_plan_that_spills_is_compared_with_others_that_may(monkeypatch: pytest.MonkeyPatch) -> None:
    fastest = plan(attention(batch=8), Mesh(2))
    least = max(least_memory(fastest))
    p = spill(fastest, least)
    assert any(p.nbytes_spilled) and p.asked == {}
    found = crossovers(p, "batch", [8])
    assert found.best[0] is not None and found.plans[found.best[0]].limit_nbytes == (least, least)
    assert found.found[0][0] is not None
    uneven = spill(fastest, [least, least + 64])
    with pytest.raises(ValueError, match="spills in other memory than can be asked for; give search=lambda g"):
        crossovers(uneven, "batch", [8])


def test_a_plan_of_which_it_is_not_known_what_was_asked() -> None:
    p = plan(attention(), Mesh(2))
    saved = ShardPlan.from_json(p.to_json()).bind(attention())
    assert saved == p and saved.asked is None and p.asked == {}
    mixed = plan(p.graph, p.mesh, like=p, fix={"y": {"n": 2}})
    for one in (saved, mixed):
        with pytest.raises(ValueError, match=r"what was asked for of plan 0 is not known.* give search=lambda g: plan"):
            crossovers(one, "batch", [2])
        assert crossovers(one, "batch", [2], search=False).best == (0,)
    found = crossovers(saved, "batch", [2, 3], search=lambda g: plan(g, Mesh(2)))
    assert found.best == crossovers(p, "batch", [2, 3]).best and found.gaps == (0, 0)
    for make in (lambda g: p, lambda g: None):
        with pytest.raises(TypeError, match=r"crossovers: search made .* of the graph at .*'batch': 3"):
            crossovers(p, "batch", [3], search=make)
    kept = plan(p.graph, p.mesh, like=p, memory_nbytes=10**6)
    assert kept.asked == {"memory_nbytes": 10**6}
    wrong = json.loads(p.to_json()) | {"asked": {}}
    wrong.pop("sha256")
    with pytest.raises(PlanVersionError, match="a plan has no field 'asked'"):
        ShardPlan.from_json(seal(wrong))


def test_plans_of_less_memory_are_planned_in_it_again() -> None:
    for one in pareto(attention(), Mesh(2), points=3)[1:]:
        assert one.asked is not None and max(one.peak_nbytes) <= one.asked["memory_nbytes"]


def test_a_graph_that_was_changed_is_not_planned_as_it_was_read() -> None:
    g = attention()
    g.output(g.tensor("y") + 1.0, "z")
    with pytest.raises(ValueError, match="has not the operators that the plan is of"):
        crossovers(plan(g, Mesh(2)), "batch", [2, 3])


def test_where_a_model_ends() -> None:
    """A size that the model cannot have: no plan has it."""

    def refuse(graph: Graph) -> ShardPlan:
        raise NotFound("there is none", None, 0, 0)

    p = plan(halved(4), SLOW, **HALVES)
    found = crossovers(p, ROWS, [2, 3], search=refuse)
    assert found.best == (0, 0) and found.unplanned == {2: "there is none", 3: "there is none"}
    assert "not planned at 2, 3: there is none" in str(found) and found.gaps == (None, None)
    with pytest.raises(ValueError, match="plan 0 can be bound at none of the sizes: bind: the plan cuts"):
        crossovers(p, ROWS, [1], search=refuse)


def test_bytes_are_proved_where_there_are_none() -> None:
    found = crossovers(plan(attention(), Mesh(2)), "batch", [2, 3], by="nbytes_moved")
    assert found.bounds == (0, 0)
    for each, best, gap in zip(found.found, found.best, found.gaps, strict=True):
        one = each[best or 0]
        assert one is not None and gap == (0 if one.nbytes_moved == 0 else 1)
