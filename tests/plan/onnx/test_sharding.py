"""A plan's tensors in its ONNX model: what a sharding means, against what the plan's steps hold."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from tapestry_exec import evaluate
from tapestry_plan import Graph, Mesh, NotExported, UnsupportedOp, load_onnx, ops, plan, same_graph
from tapestry_plan.onnx import to_onnx
from tests.exec.run.test_same_bits import of_floats
from tests.plan.steps.test_exports import held


def cells_of(spec: Any, shape: tuple[int, ...]) -> dict[int, set[tuple[int, ...]]]:
    """By device the cells that a sharding gives it: parts in row-major order, each on a device or on a group."""
    groups = {entry.key: list(entry.value) for entry in spec.index_to_device_group_map}
    parts = [1] * len(shape)
    for cut in spec.sharded_dim:
        (simple,) = cut.simple_sharding
        assert simple.dim_value == shape[cut.axis] and simple.dim_value % simple.num_shards == 0
        parts[cut.axis] = simple.num_shards
    places = list(product(*map(range, parts)))
    assert len(places) == len(spec.device)
    out: dict[int, set[tuple[int, ...]]] = {}
    for at, number in zip(places, spec.device, strict=True):
        spans = [range(k * (n // m), (k + 1) * (n // m)) for k, n, m in zip(at, shape, parts, strict=True)]
        for device in groups.get(number, [number]):
            assert device >= 0 and device not in out
            out[device] = set(product(*spans))
    return out


def check(model: Any, p: Any) -> int:
    onnx.checker.check_model(model, full_check=True)
    (configuration,) = model.configuration
    assert (configuration.num_devices, len(configuration.device)) == (p.mesh.size,) * 2 and model.ir_version >= 11
    lies, seen = held(p), set[str]()
    for node in model.graph.node:
        for one in node.device_configurations:
            assert one.configuration_id == configuration.name
            assert {spec.tensor_name for spec in one.sharding_spec} <= {*node.input, *node.output}
            for spec in one.sharding_spec:
                seen.add(spec.tensor_name)
                if spec.tensor_name in lies:
                    told = cells_of(spec, p.graph.stored[spec.tensor_name].shape)
                    assert told.keys() == set(range(p.mesh.size))
                    assert all(told[device] <= lies[spec.tensor_name][device] for device in told)
    return len(seen)


@pytest.mark.parametrize("mesh", [Mesh(2), Mesh((2, 2))])
@pytest.mark.parametrize("name", ["gpt2", "resnet"])
def test_networks_say_where_their_tensors_lie(name: str, mesh: Mesh) -> None:
    g = load_onnx(f"tests/models/{name}.onnx")
    p = plan(g, mesh, space="mesh", fuse=False, expand=False)
    model = to_onnx(p)
    assert check(model, p) >= 30
    assert same_graph(load_onnx(model, fold=False), load_onnx(to_onnx(p.graph), fold=False))
    feeds = of_floats(g)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    given = {one.name: feeds[one.name] for one in session.get_inputs()}
    for label, array in zip(p.graph.outputs, session.run(None, given), strict=True):
        np.testing.assert_allclose(evaluate(g, feeds)[label], array, rtol=1e-3, atol=1e-4)


def graph(rows: int = 8) -> Graph:
    g = Graph()
    g.output(ops.exp(ops.relu(g.input("x", (rows, 6)), name="a"), name="b"), "y")
    return g


def test_groups_are_told_where_several_devices_have_a_part() -> None:
    p = plan(graph(), Mesh((2, 2)), fix={"a": {"i0": ("y",)}, "b": {"i0": ("x", "y")}}, fuse=False)
    model = to_onnx(p)
    assert check(model, p) == 3
    specs = {one.tensor_name: one for node in model.graph.node for one in node.device_configurations[0].sharding_spec}
    assert list(specs["a"].device) == [-1, -2] and list(specs["y"].device) == [0, 1, 2, 3]
    assert [list(entry.value) for entry in specs["a"].index_to_device_group_map] == [[0, 2], [1, 3]]


def test_what_onnx_cannot_say_is_refused() -> None:
    with pytest.raises(
        NotExported, match=r"tensor '\w+': parts along axis 0 are 3, 2, 2 cells; those of ONNX are even"
    ):
        to_onnx(plan(graph(7), Mesh(3), fix={"a": {"i0": 3}, "b": {"i0": 3}}, fuse=False))
    with pytest.raises(NotExported, match="device 2 has none of it"):
        to_onnx(plan(graph(), Mesh(3), fix={"a": {"i0": 2}, "b": {"i0": 2}}, fuse=False))
    with pytest.raises(UnsupportedOp, match=r"fused\(relu,exp\)"):
        to_onnx(plan(graph(), Mesh(2)))
