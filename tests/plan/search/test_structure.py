"""What is alike is worked out once, whatever it is called; and names decide nothing."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
import pytest
from layered_models import bert, gpt, gpt2, llama, vit

from tapestry_plan import Device, Graph, Link, Mesh, ShardPlan, load_onnx, plan
from tapestry_plan.ops import relu
from tapestry_plan.search import moving
from tapestry_plan.search.prices.added.derived import derive_layouts
from tapestry_plan.search.prices.added.memory import Memory
from tapestry_plan.search.prices.costs import chosen, tensors
from tapestry_plan.search.prices.costs import problem as problems
from tapestry_plan.search.prices.costs.problem import Problem
from tapestry_plan.search.prices.costs.tensors import Known
from tapestry_plan.search.prices.costs.variables import Asked
from tapestry_plan.search.sums import elimination, pruning

MESH = Mesh((2, 2), device=Device(1e12, 1e11), link=Link(1e-6, 1e10))
SMALL = {"batch": 2, "length": 8, "width": 128}


@pytest.mark.parametrize("make", [bert, gpt, gpt2])
def test_layers_that_are_alike_are_worked_out_once(make) -> None:  # type: ignore[no-untyped-def]
    """With more layers there are more variables, and not one fact more."""
    facts = []
    for layers in (3, 6):
        problem = Problem(load_onnx(make(layers, **SMALL)), Asked(MESH))
        problem.factors()
        derive_layouts(problem, ())
        facts.append(Counter(key[0] for key in problem.known.facts))
    assert facts[0] == facts[1] and facts[0]["read"] > 3


def test_bytes_of_layers_that_are_alike_are_counted_once() -> None:
    facts = []
    for layers in (3, 6):
        problem = Problem(load_onnx(gpt(layers, **SMALL)), Asked(MESH))
        before = len(problem.known.facts)
        assert len(Memory(problem).holdings) > 20 * layers
        facts.append(len(problem.known.facts) - before)
    assert facts[0] == facts[1]


def test_regions_of_all_tensors_of_a_shape_have_one_numbering_that_does_not_grow() -> None:
    sizes = []
    for layers in (2, 4):
        problem = Problem(load_onnx(gpt(layers, **SMALL, inner=256)), Asked(MESH))
        sizes.append({shape: len(table.regions) for shape, table in problem.known.tables.items()})
    assert sizes[0] == sizes[1] and max(sizes[0].values()) < 200


def test_a_tensor_read_twice_is_another_structure_than_two_tensors() -> None:
    g = Graph()
    x, y = g.input("x", (8, 8)), g.input("y", (8, 8))
    a, b = relu(x, name="a"), relu(y, name="b")
    g.output(g.op("matmul", a, b, name="two"), "p")
    g.output(g.op("matmul", a, a, name="one"), "q")
    g.output(g.op("matmul", b, a, name="swapped"), "r")
    problem = Problem(g, Asked(MESH))
    kinds = {name: problem.kind(g.nodes[name]) for name in g.nodes}
    assert kinds["a"] == kinds["b"] and kinds["two"] == kinds["swapped"] != kinds["one"]


def chain(names: str, dtype: str = "float32") -> Graph:
    """Two layers that differ in nothing but names, some of which come before others in the alphabet."""
    g = Graph()
    x = g.input(names[0], (4, 16, 32), dtype)
    for k in range(2):
        w = g.input(f"{names[1]}{k}", (1, 32, 32), dtype)
        y = relu(g.op("matmul", x, w, name=f"{names[2]}{k}"), name=f"{names[3]}{k}")
        x = g.op("add", x, y, name=f"{names[4]}{k}")
    g.output(x, "y")
    return g


@pytest.mark.parametrize("names", ["zyxwv", "bcade"])
def test_renaming_operators_and_tensors_changes_nothing(names: str) -> None:
    one, other = plan(chain("abcde"), MESH), plan(chain(names), MESH)
    assert (one.seconds, one.nbytes_moved, one.bound) == (other.seconds, other.nbytes_moved, other.bound)
    assert [stage.sharding for stage in one.stages] == [stage.sharding for stage in other.stages]
    assert one.nbytes_by_link == other.nbytes_by_link and one.peak_nbytes == other.peak_nbytes


def test_cells_of_other_sizes_are_another_structure() -> None:
    one, other = plan(chain("abcde"), MESH), plan(chain("abcde", "float64"), MESH)
    assert other.nbytes_placed == tuple(2 * n for n in one.nbytes_placed)


def test_alternatives_are_compared_when_they_are_asked_for() -> None:
    p = plan(chain("abcde"), MESH, fuse=False)
    assert list(p.alternatives) == list(p.sharding) and "c7" not in p.alternatives
    for node, found in p.alternatives.items():
        assert min(other.seconds for other in found) == pytest.approx(p.seconds, abs=1e-12)
        mine = [other for other in found if other.sharding == p.sharding[node]]
        assert [(other.seconds, other.nbytes_moved) for other in mine] == [(p.seconds, p.nbytes_moved)]
    assert p.alternatives == dict(p.alternatives) == ShardPlan.from_json(p.to_json()).alternatives
    assert sorted(json.loads(p.to_json())["alternatives"]) == sorted(p.alternatives)


def test_alternatives_of_a_graph_that_was_changed_are_refused() -> None:
    g = chain("abcde")
    p = plan(g, MESH, fuse=False)
    relu(g.tensor("e1"), name="late")
    with pytest.raises(ValueError, match="the graph was changed since it was planned"):
        p.explain("c0")


@pytest.mark.parametrize("make", [bert, gpt, gpt2, vit])
def test_models_of_layers_have_as_many_operators_a_layer(make) -> None:  # type: ignore[no-untyped-def]
    size = {"batch": 1, "width": 128} | ({"side": 32} if make is vit else {"length": 8})
    one, two, three = (load_onnx(make(layers, **size)) for layers in (1, 2, 3))
    assert len(three.nodes) - len(two.nodes) == len(two.nodes) - len(one.nodes) > 10
    shapes = [{prod(g.source(name).shape) for name in g.outputs.values()} for g in (one, three)]
    assert (shapes[0] == shapes[1] and make is not gpt) or len(two.nodes) == 32


def test_a_fixed_operator_has_that_layout_alone() -> None:
    """Of a convolution of seven axes on 64 devices there are 35,032: none of them is listed."""
    g = Graph()
    x, w = g.input("x", (64, 64, 64, 64)), g.constant("w", np.zeros((64, 64, 3, 3), np.float32))
    g.output(g.op("conv", x, w, name="c", pads=(1, 1, 1, 1)), "y")
    problem = Problem(g, Asked(Mesh((64,)), fix={"c": {"n": 64}}, space="all"))
    assert problem.sizes[problem.position["operator", "c"]] == 1
    assert not any(key[0] == "options" for key in problem.known.facts)


WATCHED = (
    (problems, "count_transfers"),
    (elimination, "_project_out"),
    (pruning.Part, "send"),
    (pruning.Part, "find_least"),
    (moving, "count_better"),
    (chosen, "_list_deliveries"),
)
"""What makes tables, takes minima of their sums, tries moves, and prices what was chosen."""


def count_work(layers: int, patch: pytest.MonkeyPatch) -> Counter[str]:
    """How often a plan of Llama 2 of 7 billion numbers for 8 devices, or of some of its layers, does each of these."""
    work: Counter[str] = Counter()

    def count(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **named: Any) -> Any:
            work[name] += 1
            return function(*args, **named)

        return counted

    graph = load_onnx(llama(layers))
    with patch.context() as now:
        for place, name in WATCHED:
            now.setattr(place, name, count(name, getattr(place, name)))
        p = plan(graph, Mesh((8,), device=Device(4e14, 3e12), link=Link(5e-6, 3e11)))
    assert p.gap <= 0.005
    return work


@pytest.mark.parametrize("layers", [2, pytest.param(32, marks=pytest.mark.heavy)])
def test_a_plan_of_7_billion_numbers_takes_little_work(layers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 32 layers about as much as of two: each table once, each move once, and each sum of tables few times."""
    most = {"count_transfers": 100, "_list_deliveries": 100, "count_better": 600, "_project_out": 250, "send": 950}
    most |= {"find_least": 1350}
    work = count_work(layers, monkeypatch)
    assert work.keys() == most.keys() and all(work[name] <= many for name, many in most.items()), work


def test_equal_arrays_are_one_object_and_others_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    shapes = [(), (0,), (3,), (2, 3), (6,), (3, 2), (2, 0), (2, 1, 3), (40, 1024)]
    arrays = [rng.integers(-(2**62), 2**62, shape) for shape in shapes for _ in range(3)]
    for alike in (False, True):  # also where the signs of all are the same
        if alike:
            monkeypatch.setattr("tapestry_plan.search.prices.costs.tensors._add_rows", lambda array: b"")
        known = Known()
        kept = [known.share(array) for array in arrays]
        assert all(np.array_equal(one, array) for one, array in zip(kept, arrays, strict=True))
        assert [known.share(array.copy()) is one for one, array in zip(kept, arrays, strict=True)] == [True] * 27
        assert len({id(one) for one in kept}) == len({(one.shape, one.tobytes()) for one in arrays})


def test_arrays_that_differ_in_the_order_of_their_entries_have_other_signs() -> None:
    """Layouts mostly differ so: with one sign for all, each array would be compared with all others."""
    rows = np.array([np.roll(np.repeat(np.arange(8), 128), shift) for shift in range(1024)])
    assert len({tensors._add_rows(row) for row in rows}) == 1024
