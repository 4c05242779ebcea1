"""A model's names for its values and nodes, in graphs, plans, and what these are exported to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from tapestry_exec import evaluate
from tapestry_plan import Graph, Mesh, ShardPlan, load_onnx, plan
from tapestry_plan.onnx import light_model, to_onnx

MODELS = Path("tests/models")
NETWORKS = ["bert", "gpt2", "squeezenet"]


def read(name: str) -> onnx.ModelProto:
    return light_model(name) if name == "squeezenet" else onnx.load(MODELS / f"{name}.onnx")


def values_of(model: Any) -> set[str]:
    """What the file calls its inputs, weights and results."""
    made = {name for node in model.graph.node for name in node.output}
    return made | {value.name for value in (*model.graph.input, *model.graph.initializer)}


def makers_of(model: Any) -> dict[str, str]:
    """Of each result of a file the node that makes it."""
    return {name: node.name for node in model.graph.node for name in node.output if node.name}


def cut_channels(graph: Graph) -> dict[str, dict[str, int]]:
    """Even parts for SqueezeNet, whose images have 55 rows: of channels, or of what counts these."""
    axes = {name: [axis.name for axis in graph.signature(name).axes] for name in graph.nodes}
    return {name: {"c" if "c" in mine else mine[1]: 2} for name, mine in axes.items() if len(mine) > 1}


@pytest.mark.heavy(2)
@pytest.mark.parametrize("name", NETWORKS)
def test_names_of_a_file_are_those_of_its_graph_and_plan_and_export(name: str) -> None:
    model = read(name)
    graph, known, makers = load_onnx(model), values_of(model), makers_of(model)
    made = {out: node.name for node in graph.nodes.values() for out in node.outputs}
    extra = {*graph.stored} - known
    assert extra <= {"take"}, "one gather is two operators"
    assert all(makers.get(out, node) == node for out, node in made.items()) and len({*made} & {*makers}) > 20
    mesh, fix = (Mesh(2), cut_channels(graph)) if name == "squeezenet" else (Mesh((2, 2)), {})
    p = plan(graph, mesh, space="mesh", fuse=False, expand=False, fix=fix)
    rows = p.transfers()
    assert len({row.tensor for row in rows}) > 1 and {row.tensor for row in rows} <= known | extra
    assert {*p.to_mesh_axes()} <= known | extra and len(p.to_mesh_axes()) > 20
    assert sum(sum(row.nbytes for row in p.transfers(tensor=one)) for one in {row.tensor for row in rows}) == (
        p.nbytes_moved
    )
    moved = next(row for row in rows if row.producer in graph.nodes)
    assert p.explain(moved.tensor) == p.explain(moved.producer)
    assert p.explain(moved.tensor).startswith(f"{moved.producer} (")

    written = to_onnx(p)
    onnx.checker.check_model(written, full_check=True)
    told = {
        spec.tensor_name
        for node in written.graph.node
        for one in node.device_configurations
        for spec in one.sharding_spec
    }
    assert len(told) > 30 and told <= known | extra
    assert [value.name for value in written.graph.output] == [value.name for value in model.graph.output]
    again = load_onnx(written, fold=False)
    assert {node.outputs for node in again.nodes.values()} >= {node.outputs for node in graph.nodes.values()}


def crossed() -> Any:
    """Nodes that are called like the values of other ones, like weights, like an input, and one without a name."""
    w = numpy_helper.from_array(np.arange(6, dtype=np.float32).reshape(2, 3), "w")
    nodes = [
        helper.make_node("Relu", ["x"], ["b"], "a"),
        helper.make_node("Exp", ["b"], ["a"], "w"),
        helper.make_node("Identity", ["a"], ["same"], "b"),
        helper.make_node("Softplus", ["same"], ["x.0"], "y"),
        helper.make_node("Add", ["x.0", "w"], ["x_"], "x"),
        helper.make_node("Transpose", ["x_"], ["v"], "v"),
        helper.make_node("Split", ["v"], ["Add_0", "Relu_0"], num_outputs=2),
        helper.make_node("Mul", ["Add_0", "a_1"], ["y"], "x_"),
        helper.make_node("Tanh", ["Relu_0"], ["z"], "z"),
    ]
    one = numpy_helper.from_array(np.full((2, 2), 2, np.float32), "a_1")
    x, y, z = (
        helper.make_tensor_value_info(label, TensorProto.FLOAT, shape)
        for label, shape in (("x", (2, 3)), ("y", (2, 2)), ("z", (1, 2)))
    )
    graph = helper.make_graph(nodes, "crossed", [x], [y, z], [w, one])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def test_names_that_others_have_stay_theirs() -> None:
    model = crossed()
    graph = load_onnx(model)
    assert {*graph.stored, *graph.selections} == values_of(model) - {"same"}, "a copy is what is copied"
    assert graph.nodes["a"].outputs == ("b",) and graph.nodes["w"].outputs == ("a",)
    assert graph.nodes["y"].inputs == ("a",) and graph.nodes["x_"].outputs == ("y",)
    assert dict(graph.outputs) == {"y": "y", "z": "z"}
    graph.validate()
    assert Graph.from_json(graph.to_json()).nodes == graph.nodes
    x = np.random.default_rng(0).standard_normal((2, 3)).astype(np.float32)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for found, wanted in zip(evaluate(graph, {"x": x}).values(), session.run(None, {"x": x}), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_what_a_block_does_not_store_is_found_by_its_name() -> None:
    graph = load_onnx(MODELS / "resnet.onnx")
    p = plan(graph, Mesh(2), expand=False)
    assert p.made_by and p.made_by["getitem_3"] == "node_Conv_235" and "getitem_3" not in p.graph.stored
    assert p.explain("getitem_3").startswith("node_Conv_235: in one block with node_relu_1")
    wanted = r"no tensor is 'getitem_3', but the block 'node_relu_1' that it is inside of makes 'relu_1'; ask for that"
    with pytest.raises(ValueError, match=wanted):
        p.transfers(tensor="getitem_3")
    with pytest.raises(ValueError, match=r"no tensor is 'node_relu_1', but 'relu_1', which the operator 'node_relu_1'"):
        p.transfers(tensor="node_relu_1")
    again = ShardPlan.from_json(p.to_json())
    assert again.made_by == p.made_by and again == p
    for tensor, node in p.made_by.items():
        assert tensor in graph.nodes[node].outputs and tensor not in p.graph.stored
    capped = plan(graph, Mesh(2), expand=False, memory_nbytes=max(p.peak_nbytes) * 9 // 10)
    gone = {out for node in graph.nodes.values() for out in node.outputs} - {*capped.graph.stored}
    assert {*capped.made_by} == gone
