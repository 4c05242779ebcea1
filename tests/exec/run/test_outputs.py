"""Outputs in the layout that was asked for, replicas and idle devices included."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapestry_exec import run
from tapestry_plan import Graph, Mesh, ShardPlan, plan
from tapestry_plan.ops import relu


@pytest.mark.heavy(2)
@given(st.integers(1, 6), st.integers(0, 1), st.data())
def test_layouts_of_outputs(devices: int, axis: int, data: st.DataObject) -> None:
    shape = (6, 5)
    parts = data.draw(st.integers(1, min(devices, shape[axis])))
    g = Graph()
    x, w = g.input("x", (6, 4)), g.input("w", (4, 5))
    h = g.op("matmul", x, w, name="mm")
    last = data.draw(st.sampled_from(["matmul", "relu", "input"]))
    g.output({"matmul": h, "relu": relu(h), "input": g.input("y", shape)}[last], "out")
    cut = data.draw(st.sampled_from(["m", "n", "k"]))
    sizes = {"m": 6, "n": 5, "k": 4}
    fix = {"mm": {cut: data.draw(st.integers(1, min(devices, sizes[cut])))}}
    p = plan(g, Mesh((devices,)), layout={"out": {axis: parts}}, fix=fix)
    rng = np.random.default_rng(0)
    inputs = {
        name: rng.standard_normal(tensor.shape).astype(np.float32)
        for name, tensor in g.stored.items()
        if tensor.kind == "input"
    }
    product = inputs["x"] @ inputs["w"]
    expected = {"matmul": product, "relu": np.maximum(product, 0), "input": inputs.get("y")}[last]
    for asked in (p, ShardPlan.from_json(p.to_json())):
        result = run(asked, inputs, verify=True)
        np.testing.assert_allclose(result.outputs["out"], expected, rtol=1e-5, atol=1e-6)
        assert result.nbytes_moved == p.nbytes_moved
