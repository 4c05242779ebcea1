"""Numbers of few bits are moved and cast; nodes compute with bfloat16 in float32, and round what they make."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from tapestry_exec import run
from tapestry_plan import Graph, Mesh, ops, plan
from tapestry_plan.onnx import load_onnx
from tests.onnx_cases import MICROSOFT, NodeCase, floats, ints
from tests.onnx_models import ort, random

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
WIDE = np.array([[-1e9, -448.1, -3.6, -0.0], [0.03, 1.5, 60000.0, np.inf]], np.float32)


def run_split(graph: Graph, feeds: dict[str, Any]) -> np.ndarray:
    fix = {name: {"i0": 2} for name in graph.nodes if "i0" in {axis.name for axis in graph.signature(name).axes}}
    found: np.ndarray = run(plan(graph, Mesh((2,)), fix=fix, expand=False), feeds).outputs["y"]
    return found


@pytest.mark.parametrize("to", ["FLOAT8E4M3FN", "FLOAT8E4M3FNUZ", "FLOAT8E5M2", "FLOAT8E5M2FNUZ", "BFLOAT16", "INT4"])
@pytest.mark.parametrize("saturate", [0, 1])
def test_casts_are_those_of_the_reference_on_two_devices(to: str, saturate: int) -> None:
    x = np.clip(WIDE, -7, 7) if to == "INT4" else WIDE
    attrs = {"to": getattr(TensorProto, to), "saturate": saturate}
    model = NodeCase("Cast", {"x": x}, {}, attrs, opset=21).model
    graph = load_onnx(model)
    (wanted,) = ReferenceEvaluator(model).run(None, {"x": x})
    found = run_split(graph, {"x": x})
    assert found.dtype == wanted.dtype and Graph.from_json(graph.to_json()).to_json() == graph.to_json()
    np.testing.assert_array_equal(found.view(np.uint8), np.asarray(wanted).view(np.uint8))


def test_a_network_in_bfloat16_is_rounded_after_each_node() -> None:
    x, w, b = random(4, 8).astype(BFLOAT16), random(8, 6, seed=2).astype(BFLOAT16), random(6, seed=3).astype(BFLOAT16)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"]),
        helper.make_node("Add", ["m", "b"], ["a"]),
        helper.make_node("Relu", ["a"], ["r"]),
        helper.make_node("Transpose", ["r"], ["t"]),
        helper.make_node("ReduceSum", ["t", "axes"], ["y"], keepdims=0),
    ]
    kind = TensorProto.BFLOAT16
    graph_proto = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", kind, x.shape)],
        [helper.make_tensor_value_info("y", kind, None)],
        [
            helper.make_tensor("w", kind, w.shape, w.tobytes(), raw=True),
            helper.make_tensor("b", kind, b.shape, b.tobytes(), raw=True),
            helper.make_tensor("axes", TensorProto.INT64, (1,), [0]),
        ],
    )
    graph = load_onnx(helper.make_model(graph_proto, opset_imports=[helper.make_opsetid("", 21)], ir_version=10))
    single = np.float32
    product = (x.astype(single) @ w.astype(single)).astype(BFLOAT16)
    total = (product.astype(single) + b.astype(single)).astype(BFLOAT16)
    wanted = np.maximum(total.astype(single), 0).T.sum(0).astype(BFLOAT16)
    found = run_split(graph, {"x": x})
    assert found.dtype == BFLOAT16
    np.testing.assert_allclose(found.astype(single), wanted.astype(single), rtol=2**-7)


def test_nothing_else_computes_with_numbers_of_few_bits() -> None:
    g = Graph()
    x = g.input("x", (4, 6), "float8_e5m2")
    for add in (lambda: x + x, lambda: ops.exp(x), lambda: ops.matmul(x, x.T)):
        with pytest.raises(ValueError, match="float8_e5m2"):
            add()
    g.output(ops.astype(x.T.reshape(2, 12), "float32"), "y")
    values = floats(4, 6).astype(ml_dtypes.float8_e5m2)
    np.testing.assert_array_equal(run_split(g, {"x": values}), values.astype(np.float32).T.reshape(2, 12))


@pytest.mark.parametrize("kind", ["INT4", "UINT4", "FLOAT8E4M3FN", "FLOAT8E5M2"])
def test_onnx_runtime_runs_nodes_that_read_short_numbers(kind: str) -> None:
    """Whose arrays it does not take from Python: the model that it is given casts wide ones."""
    data = ints(0, 8, 48, 40).astype(helper.tensor_dtype_to_np_dtype(getattr(TensorProto, kind)))
    given, known = {"i": ints(-5, 5, 2, 3), "s": floats(3, 40)}, {"x": data}
    attrs = {"gather_axis": 0, "quantize_axis": 0, "block_size": 16}  # along one axis: no declaration takes that

    def case(inputs: Any, constants: Any) -> NodeCase:
        return NodeCase("GatherBlockQuantized", inputs, constants, attrs, reads=("x", "i", "s"), domain=MICROSOFT)

    graph = load_onnx(case(given | known, {}).model)
    assert [node.op for node in graph.nodes.values()] == ["opaque"]
    found = run(plan(graph, Mesh(2)), given | known).outputs["y"]
    np.testing.assert_array_equal(found, ort(case(given, known).model, given)[0])


def test_onnx_runtime_runs_nodes_that_make_short_numbers() -> None:
    x = floats(3, 4).astype(helper.tensor_dtype_to_np_dtype(TensorProto.BFLOAT16))
    graph = load_onnx(NodeCase("ScaledSiLU", {"x": x}, domain=MICROSOFT).model)
    assert [node.op for node in graph.nodes.values()] == ["opaque"]
    found = run(plan(graph, Mesh(2)), {"x": x}).outputs["y"]
    wide = x.astype(np.float32)
    assert found.dtype == x.dtype and abs(found.astype(np.float32) - wide / (1 + np.exp(-wide))).max() < 0.02
