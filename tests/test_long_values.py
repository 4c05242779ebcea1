"""Whatever is given, an error's message stays short and printable: long values are cut, controls are escaped."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tapestry_sets as ts
from tapestry_exec import check_plan, evaluate, run
from tapestry_plan import Device, Graph, Link, Mesh, Op, ShardPlan, gradient, load_onnx, ops, plan, rewrite
from tapestry_plan.rewrite import Derivation
from tapestry_sets import AffineMap, AliasGraph, Box, IndexProjection, Region, Sett, Stripe, allocate
from tapestry_sets.limits import quote
from tapestry_sets.views import kind_from_dict

MOST = 1000
"""Characters of a message: four or five values of 200, and the words between them."""
NAME = "n" * 20_000
CONTROLS = "\x1b[2J\x07\u202e\n" * 2_000


class Shown:
    """What others' classes may show."""

    def __repr__(self) -> str:
        return CONTROLS


HUGE: dict[str, Any] = {
    "long text": NAME,
    "controls": CONTROLS,
    "long shape": (2,) * 500,
    "long names": [NAME, CONTROLS] * 50,
    "nested": [[NAME] * 10] * 10,
    "many digits": 10**6000,
    "many digits below 0": -(10**6000),
    "shape of many digits": (10**6000, -(10**6000)),
    "large array": np.arange(2_000),
    "array of texts": np.array([NAME, CONTROLS]),
    "array of objects": np.array([NAME, None], object),
    "mapping": {NAME + str(i): i for i in range(30)},
    "mapping to texts": {"m": NAME, "k": [CONTROLS]},
    "set": {NAME, CONTROLS},
    "bytes": NAME.encode()[:2_000],
    "type": int,
    "object": Shown(),
    "slice": slice(NAME, CONTROLS),
    "float": 1e300,
}


def is_short(message: str) -> bool:
    return len(message) <= MOST and message.replace("\n", "").isprintable()


A = allocate((4, 6), name="A")
N = Sett(Stripe(3, 4))


def graph() -> Graph:
    g = Graph()
    g.output(ops.relu(g.input("x", (4, 6)) @ g.constant("w", np.ones((6, 4), "float32"))), "y")
    return g


G = graph()
X = G.tensor("x")
P = plan(G, Mesh((2,)))
FEED = {"x": np.ones((4, 6), "float32")}
MODEL = helper.make_model(
    helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"], name="r")],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 4])],
    )
)


def changed(document: str, *place: str | int) -> Callable[[Any], str]:
    """A document with another value at one place."""

    def change(value: Any) -> str:
        data = json.loads(document)
        inner = data
        for part in place[:-1]:
            inner = inner[part]
        inner[place[-1]] = value
        return json.dumps(data)

    return change


def model_with(value: Any) -> Any:
    model = onnx.ModelProto()
    model.CopyFrom(MODEL)
    node = model.graph.node[0]
    node.name = node.op_type = str(value)
    return model


SETS: dict[str, Callable[[Any], Any]] = {
    "Stripe": lambda v: Stripe(v, v),
    "Stripe phase": lambda v: Stripe(2, 3, v),
    "Sett": lambda v: Sett(v),
    "Sett.interval": lambda v: Sett.interval(0, v, 5),
    "Sett in": lambda v: N.count(v, v),
    "Sett |": lambda v: N | v,
    "Sett.scale": lambda v: N.scale(v),
    "Sett.fill": lambda v: N.fill(v),
    "Box": lambda v: Box(v, (4, 5)),
    "Box stop": lambda v: Box((4, 5), v),
    "AffineMap": lambda v: AffineMap(v, (1, 2)),
    "AffineMap offset": lambda v: AffineMap(((1,),), v),
    "IndexProjection": lambda v: IndexProjection(AffineMap(((1,),), (0,)), v),
    "Region": lambda v: Region(v, (N,)),
    "Region setts": lambda v: Region((4, 6), v),
    "Region &": lambda v: Region((4, 6), (N, N)) & v,
    "Region.reshape": lambda v: Region((4, 6), (N, N)).reshape(v),
    "Region of v": lambda v: Region(v, v),
    "StripeArray": lambda v: ts.StripeArray(v, v, v),
    "BoxArray": lambda v: ts.BoxArray(v, v),
    "allocate": lambda v: allocate(v),
    "allocate name": lambda v: allocate((4, 6), name=v)[7],
    "allocate itemsize": lambda v: allocate((4, 6), itemsize=v),
    "symbolic_allocate": lambda v: ts.symbolic_allocate(v),
    "view[v]": lambda v: A[v],
    "view[:v]": lambda v: A[:, v:v],
    "view[..., v]": lambda v: A[..., v],
    "reshape": lambda v: A.reshape(v),
    "reshape two": lambda v: A.reshape(v, v),
    "transpose": lambda v: A.transpose(v),
    "take": lambda v: A.take(v, 0),
    "take axis": lambda v: A.take([1], v),
    "broadcast_to": lambda v: A.broadcast_to(v),
    "pad": lambda v: ts.pad(A, v),
    "tile": lambda v: ts.tile(A, v),
    "roll": lambda v: ts.roll(A, v, v),
    "repeat": lambda v: ts.repeat(A, v),
    "concatenate": lambda v: ts.concatenate([A, v]),
    "concatenate shapes": lambda v: ts.concatenate([A, allocate(v)]),
    "stack axis": lambda v: ts.stack([A, A], v),
    "overlap": lambda v: ts.overlap(A, v),
    "overlaps": lambda v: ts.overlaps(v, v),
    "overlap_matrix": lambda v: ts.overlap_matrix([A, v]),
    "shared_memory": lambda v: ts.shared_memory(v),
    "origins": lambda v: ts.origins(v),
    "AliasGraph.allocate": lambda v: AliasGraph().allocate(v),
    "kind_from_dict": lambda v: kind_from_dict(v),
    "kind document": lambda v: kind_from_dict({"kind": "Flip", "axes": v}),
    "AliasGraph document": lambda v: AliasGraph.from_json(changed(AliasGraph().to_json(), "nodes")(v)),
    "from_isl": lambda v: ts.from_isl(v),
    "from_mlir": lambda v: ts.from_mlir(v),
    "from_cute": lambda v: ts.from_cute(A, v),
    "chunks": lambda v: ts.chunks(v, (10, 6), (3, 3)),
    "chunks shape": lambda v: ts.chunks((slice(1, 9, 2), slice(0, 4)), v, (3, 3)),
    "limits": lambda v: ts.limits(budget=v).__enter__(),
}
PLANS: dict[str, Callable[[Any], Any]] = {
    "Graph": lambda v: Graph(v).tensor("x"),
    "input": lambda v: Graph().input(v, (4,)),
    "input shape": lambda v: Graph().input("x", v),
    "input dtype": lambda v: Graph().input("x", (4,), v),
    "input of a long name": lambda v: Graph().input(NAME, v),
    "input twice": lambda v: (lambda g: (g.input(v, (4,)), g.input(v, (4,))))(Graph()),
    "constant": lambda v: Graph().constant("c", v),
    "constant name": lambda v: Graph().constant(v, np.ones(3)),
    "tensor": lambda v: G.tensor(v),
    "node": lambda v: G.node(v),
    "signature": lambda v: G.signature(v),
    "output": lambda v: graph().output(v),
    "output name": lambda v: (lambda g: (g.output(g.tensor("x"), v), g.output(g.tensor("x"), v)))(graph()),
    "x[v]": lambda v: X[v],
    "x + v": lambda v: X + v,
    "x @ v": lambda v: X @ v,
    "x.reshape": lambda v: X.reshape(v),
    "x.sum": lambda v: X.sum(v),
    "relu": lambda v: ops.relu(v),
    "softmax axis": lambda v: ops.softmax(X, axis=v),
    "einsum": lambda v: ops.einsum(v, X, X),
    "conv": lambda v: ops.conv(X, X, strides=v),
    "Op": lambda v: Op(v, lambda s: s),
    "gradient": lambda v: gradient(X, v),
    "gradient of": lambda v: gradient(v, [X]),
    "rewrite": lambda v: rewrite.Draft(v),
    "Mesh": lambda v: Mesh(v),
    "Mesh names": lambda v: Mesh((2, 2), names=v),
    "Mesh link": lambda v: Mesh((2, 2), link=v),
    "Mesh device": lambda v: Mesh((2, 2), device=v),
    "Mesh.machine": lambda v: Mesh.machine(v),
    "Device": lambda v: Device(flops=v),
    "Link": lambda v: Link(v, v),
    "plan": lambda v: plan(v, Mesh((2,))),
    "plan mesh": lambda v: plan(G, v),
    "plan fix": lambda v: plan(G, Mesh((2,)), fix=v),
    "plan fix of": lambda v: plan(G, Mesh((2,)), fix={"matmul": v}),
    "plan fix axis": lambda v: plan(G, Mesh((2,)), fix={"matmul": {"m": v}}),
    "plan fix operator": lambda v: plan(G, Mesh((2,)), fix={v: {"m": 2}}),
    "plan forbid": lambda v: plan(G, Mesh((2,)), forbid=v),
    "plan layout": lambda v: plan(G, Mesh((2,)), layout={"x": v}),
    "plan tie": lambda v: plan(G, Mesh((2,)), tie=v),
    "plan space": lambda v: plan(G, Mesh((2,)), space=v),
    "plan expand": lambda v: plan(G, Mesh((2,)), expand=v),
    "plan memory": lambda v: plan(G, Mesh((2,)), memory_nbytes=v),
    "explain": lambda v: P.explain(v),
    "ShardPlan.from_json": lambda v: ShardPlan.from_json(v),
    "ShardPlan document": lambda v: ShardPlan.from_json(changed(P.to_json(), "steps", 0)(v)),
    "ShardPlan step": lambda v: ShardPlan.from_json(changed(P.to_json(), "steps", 0, "kind")(v)),
    "ShardPlan field": lambda v: ShardPlan.from_json(changed(P.to_json(), "mesh")(v)),
    "Graph.from_json": lambda v: Graph.from_json(v),
    "Graph document": lambda v: Graph.from_json(changed(G.to_json(), "stored")(v)),
    "Graph node": lambda v: Graph.from_json(changed(G.to_json(), "nodes", 0)(v)),
    "Graph node op": lambda v: Graph.from_json(changed(G.to_json(), "nodes", 0, "op")(v)),
    "Graph node name": lambda v: Graph.from_json(changed(G.to_json(), "nodes", 0, "name")(v)),
    "Graph node inputs": lambda v: Graph.from_json(changed(G.to_json(), "nodes", 0, "inputs")(v)),
    "Derivation.from_json": lambda v: Derivation.from_json(v),
    "load_onnx": lambda v: load_onnx(v),
    "load_onnx shapes": lambda v: load_onnx(MODEL, shapes=v),
    "load_onnx shape": lambda v: load_onnx(MODEL, shapes={"x": v}),
    "load_onnx shape of": lambda v: load_onnx(MODEL, shapes={v: (3, 4)}),
    "load_onnx values": lambda v: load_onnx(MODEL, values={"x": v}),
    "load_onnx outputs": lambda v: load_onnx(MODEL, shapes={"n": 3}, outputs=v),
    "load_onnx outputs of": lambda v: load_onnx(MODEL, shapes={"n": 3}, outputs=[v]),
    "load_onnx of a model": lambda v: load_onnx(model_with(v)),
}
RUNS: dict[str, Callable[[Any], Any]] = {
    "run": lambda v: run(v, FEED),
    "run inputs": lambda v: run(P, v),
    "run input": lambda v: run(P, {"x": v}),
    "run other input": lambda v: run(P, FEED | {v: 3}),
    "run constants": lambda v: run(P, FEED, constants=v),
    "run backend": lambda v: run(P, FEED, backend=v),
    "run memory": lambda v: run(P, FEED, memory_nbytes=v),
    "run verify": lambda v: run(P, FEED, verify=v),
    "evaluate": lambda v: evaluate(G, {"x": v}),
    "evaluate names": lambda v: evaluate(G, FEED | {v: 3}),
    "check_plan": lambda v: check_plan(v),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("value", list(HUGE))
@pytest.mark.parametrize("doors", [SETS, PLANS, RUNS], ids=["sets", "plans", "runs"])
def test_messages_are_short_and_printable(doors: dict[str, Callable[[Any], Any]], value: str) -> None:
    refused = 0
    for name, call in doors.items():
        try:
            call(HUGE[value])
        except Exception as error:
            assert is_short(str(error)), (name, type(error), len(str(error)), quote(str(error)))
            refused += 1
    assert refused > len(doors) / 2


def test_a_plans_steps_are_shown_in_a_line_each() -> None:
    p = plan(load_onnx(Path(__file__).parent / "models" / "gpt2.onnx"), Mesh((2, 2)))
    for value in (*p.steps, *p.buffers, *p.outputs, *p.program(1).steps):
        assert len(repr(value)) <= 200 and repr(value).startswith(type(value).__name__ + "(")
        assert repr(value).endswith(")") and "\n" not in repr(value)
