"""Nothing that graphs and plans hand out can change them: each container is immutable, or made anew for each who asks.

A graph grows by its methods. Its dictionaries show what it has; nobody else can write to them.
"""

from __future__ import annotations

from functools import cache
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import tapestry_plan
from tapestry_exec import run
from tapestry_plan import Graph, Mesh, ShardPlan, gradient, load_onnx, operation, ops, plan
from tapestry_plan.onnx import operators
from tapestry_plan.rewrite import Derivation, Draft, derivation
from tapestry_plan.steps import spill
from tests.handing_out import is_mutable, live

PASSED_OVER = {"ShardPlan.kept"}
"""Answers that are kept with a plan by who makes them: they are no part of it."""


def network() -> Graph:
    g = Graph()
    x, w = g.input("x", (4, 6)), g.constant("w", np.ones((6, 4), "float32"))
    g.output(ops.softmax(ops.relu(x @ w)[1:, ::2], axis=1), "y")
    return g


def imported() -> Graph:
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 4]) for name in ("x", "y")]
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Relu", ["h"], ["y"])]
    stored = helper.make_tensor("w", TensorProto.FLOAT, (4, 4), np.ones(16, "float32"))
    return load_onnx(helper.make_model(helper.make_graph(nodes, "g", ends[:1], ends[1:], [stored])), shapes={"n": 4})


@cache
def values_of_plans() -> dict[str, Any]:
    g = network()
    p = plan(g, Mesh((2,)), fix={"matmul": {"m": 2}})
    slopes = network()
    x = slopes.tensor("x")
    gradient(ops.sum(slopes.tensor("softmax"), keepdims=True), [x])
    return {
        "graph": g,
        "graph of ONNX": imported(),
        "graph of gradients": slopes,
        "draft": Draft(g),
        "tensor": g.tensor("x"),
        "node": g.nodes["matmul"],
        "selection": next(iter(g.selections.values())),
        "constant": g.stored["w"],
        "declaration": g.ops["matmul"],
        "signature": g.signature("matmul"),
        "operation": operation(g, "matmul"),
        "plan": p,
        "plan read": ShardPlan.from_json(p.to_json()),
        "plan that spills": spill(p, max(p.peak_nbytes)),
        "alternatives": p.alternatives["relu"],
        "derivation": Derivation().then("expand", "softmax", into="by_parts"),
        "mesh": Mesh((2, 2)),
    }


@pytest.mark.heavy(2)
@pytest.mark.parametrize("what", list(values_of_plans()))
def test_no_value_hands_out_a_container_that_it_keeps(what: str) -> None:
    assert live(values_of_plans()[what], PASSED_OVER) == set()


def test_what_a_graph_hands_out_cannot_be_written_to() -> None:
    g = network()
    p, before = plan(g, Mesh((2,))), g.to_json()
    feed = {"x": np.arange(24, dtype="float32").reshape(4, 6)}
    text, outputs = p.to_json(), run(p, feed).outputs["y"].tobytes()
    for held in (g.nodes, g.stored, g.selections, g.outputs, g.ops, g.unread, g.nodes["softmax"].attrs):
        for change in ("clear", "popitem", "update", "setdefault", "pop"):
            with pytest.raises(TypeError, match="never changes"):
                getattr(held, change)("y")
    for held in (p.placement, p.placement["softmax"], p.sharding, p.nbytes_by_link, p.stage, p.stages[0].sharding):
        with pytest.raises(TypeError, match="never changes"):
            held.clear()
    with pytest.raises(ValueError, match="read-only"):
        g.stored["w"].data[:] = 0  # type: ignore[index]
    assert g.to_json() == before and p.to_json() == text
    assert run(p, feed).outputs["y"].tobytes() == outputs


def test_an_array_that_a_graph_holds_stays_its_owner_s() -> None:
    w, g = np.ones((6, 4), "float32"), Graph()
    g.constant("w", w)
    assert w.flags.writeable and np.shares_memory(w, g.stored["w"].data)


def test_the_attributes_of_a_node_are_no_container_of_the_caller() -> None:
    axes, g = [0, 1], Graph()
    ops.sum(g.input("x", (3, 4)), axis=axes)
    axes.append(7)
    assert g.nodes["sum"].attrs["axis"] == (0, 1)


@pytest.mark.parametrize("module", [tapestry_plan, derivation, operators, ops], ids=lambda module: module.__name__)
def test_exported_tables_cannot_be_changed(module: ModuleType) -> None:
    public = {name: each for name, each in vars(module).items() if not name.startswith("_")}
    assert {name for name, each in public.items() if is_mutable(each)} == set()
