"""Small BERT and GPT-2: imported, planned and run against ONNX Runtime, and differentiated."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper

from tapestry_exec import evaluate, run
from tapestry_plan import Graph, Mesh, gradient, load_onnx, ops, plan
from tapestry_sets.limits import put_item

MODELS = Path(__file__).parent / "models"
TOLERANCE = 2e-5
"""Of the largest value."""


@cache
def strong(name: str) -> Any:
    """A model whose matrices are ten times as large: so near zero as the stored ones make them a GELU is a line."""
    model = onnx.load(MODELS / f"{name}.onnx")
    read = {one for node in model.graph.node if node.op_type in ("MatMul", "Gemm") for one in node.input}
    for tensor in model.graph.initializer:
        if tensor.name in read and len(tensor.dims) == 2:
            tensor.CopyFrom(numpy_helper.from_array(10 * numpy_helper.to_array(tensor), tensor.name))
    return model


def loaded(name: str, model: Any = None) -> tuple[Graph, dict[str, np.ndarray]]:
    g = load_onnx(model or MODELS / f"{name}.onnx")
    rng = np.random.default_rng(0)
    inputs = {}
    for key, stored in g.stored.items():
        if stored.kind == "input":
            high = 100 if "ids" in key and "type" not in key else 2
            inputs[key] = rng.integers(0 if high > 2 else 1, high, stored.shape).astype(stored.dtype)
    return g, inputs


def by_onnx_runtime(model: Any, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    found: list[np.ndarray] = session.run(None, inputs)
    return found


@pytest.mark.heavy(2)
@pytest.mark.parametrize("name", ["bert", "gpt2"])
@pytest.mark.parametrize("devices", [1, 2, 3])
def test_transformers_run_sharded(name: str, devices: int) -> None:
    g, inputs = loaded(name, strong(name))
    made = plan(g, Mesh((devices,)))
    result = run(made, inputs, verify=True)
    assert result.nbytes_moved == made.nbytes_moved and result.peak_nbytes == made.peak_nbytes
    for found, wanted in zip(result.outputs.values(), by_onnx_runtime(strong(name), inputs), strict=True):
        assert found.shape == wanted.shape
        np.testing.assert_allclose(found, wanted, rtol=0, atol=TOLERANCE * float(np.abs(wanted).max()))
    split = [stage for stage in made.stages if max(stage.sharding.values(), default=1) > 1]
    assert devices == 1 or len(split) > 0.5 * len(made.stages)


@pytest.mark.heavy(2)
@pytest.mark.parametrize("devices", [1, 2])
def test_gpt2_trains(devices: int) -> None:
    """Gradients for an attention weight and the embedding, which is gathered and used again for the logits."""
    g, inputs = loaded("gpt2")
    logits = g.tensor(next(iter(g.outputs.values())))
    loss = ops.sum(logits * logits, keepdims=True)
    names = ["h.0.attn.c_attn.weight", "wte.weight"]
    grads = gradient(loss, [g.tensor(name) for name in names])
    dict.clear(g.outputs)
    for name, grad in zip(names, grads, strict=True):
        g.output(grad, name)
    made = plan(g, Mesh((devices,)))
    found = run(made, inputs, verify=True)
    assert found.nbytes_moved == made.nbytes_moved
    for name in names:
        slope = found.outputs[name]
        length = float(np.linalg.norm(slope))
        stored = g.stored[name]
        assert stored.data is not None
        ends = []
        for step in (0.01, -0.01):
            moved = stored.data + np.float32(step / length) * slope
            put_item(g.stored, name, replace(stored, data=moved, sha256=None))
            ends.append(float(evaluate(g, inputs, outputs=[loss.name])[loss.name].reshape(())))
        put_item(g.stored, name, stored)
        assert abs((ends[0] - ends[1]) / 0.02 / length - 1) < 0.02
