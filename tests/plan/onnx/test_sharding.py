"""A plan's tensors in its ONNX model: what a sharding means, against what the plan's steps hold."""

from __future__ import annotations

import random
from itertools import product
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from tapestry_exec import evaluate
from tapestry_plan import Graph, Mesh, NotExported, ShardPlan, load_onnx, ops, plan, same_graph
from tapestry_plan.onnx import to_onnx
from tapestry_plan.rewrite import Derivation
from tapestry_plan.steps import take_apart
from tests.exec.run.test_every_kind_of_plan import make_graph
from tests.exec.run.test_same_bits import of_floats
from tests.plan.steps.test_exports import held

POINTS = 400
"""Of operators with more index points so many are looked at."""


def cells_of(spec: Any, shape: tuple[int, ...]) -> dict[int, set[tuple[int, ...]]]:
    """By device the cells that a sharding gives it."""
    return {device: set(product(*spans)) for device, spans in parts_of(spec, shape).items()}


def parts_of(spec: Any, shape: tuple[int, ...]) -> dict[int, list[range]]:
    """By device the part that a sharding gives it: parts in row-major order, each on a device or on a group."""
    groups = {entry.key: list(entry.value) for entry in spec.index_to_device_group_map}
    parts = [1] * len(shape)
    for cut in spec.sharded_dim:
        (simple,) = cut.simple_sharding
        assert simple.dim_value == shape[cut.axis] and simple.dim_value % simple.num_shards == 0
        parts[cut.axis] = simple.num_shards
    places = list(product(*map(range, parts)))
    assert len(places) == len(spec.device)
    out: dict[int, list[range]] = {}
    for at, number in zip(places, spec.device, strict=True):
        spans = [range(k * (n // m), (k + 1) * (n // m)) for k, n, m in zip(at, shape, parts, strict=True)]
        for device in groups.get(number, [number]):
            assert device >= 0 and device not in out
            out[device] = spans
    return out


def check(model: Any, p: Any) -> int:
    """Results lie as steps make them; operands as operators read them, whole and on the devices that do."""
    onnx.checker.check_model(model, full_check=True)
    (configuration,) = model.configuration
    assert (configuration.num_devices, len(configuration.device)) == (p.mesh.size,) * 2 and model.ir_version >= 11
    apart = apart_of(p)
    lies, seen = held(p), set[str]()
    labels, made_of = {label: name for label, name in apart.outputs.items() if name in apart.stored}, dict[str, Any]()
    for node in model.graph.node:
        for one in node.device_configurations:
            assert one.configuration_id == configuration.name
            names = [spec.tensor_name for spec in one.sharding_spec]
            assert {*names} <= {*node.input, *node.output} and len({*names}) == len(names)
            made = [name for name in node.output if labels.get(name, name) in lies]
            assert {*made} <= {*names}
            for spec in one.sharding_spec:
                tensor = labels.get(spec.tensor_name, spec.tensor_name)
                seen.add(spec.tensor_name)
                if spec.tensor_name in node.output:
                    told = made_of[tensor] = cells_of(spec, apart.stored[tensor].shape)
                    assert tensor not in lies or told == lies[tensor]
                    continue
                told = parts_of(spec, apart.source(tensor).shape)  # which has all parts, each on some device
                operators = {each for output in node.output if output in lies for each in lies[output]}
                assert not operators or operators <= told.keys()
    assert made_of.keys() >= {tensor for node in apart.nodes.values() for tensor in node.outputs}
    check_inside(p, apart, made_of)
    return len(seen)


def apart_of(p: ShardPlan) -> Graph:
    return take_apart(p.graph, [(pair.first, pair.second) for pair in p.fused], p.made_by)


def check_inside(p: ShardPlan, apart: Graph, told: dict[str, dict[int, set[tuple[int, ...]]]]) -> None:
    """What stays inside of a block is where the operator behind it reads it, index point by index point."""
    rng = random.Random(0)
    for pair in reversed(p.fused):
        node, signature = apart.nodes[pair.second], apart.signature(pair.second)
        (made,), (between,) = node.outputs, apart.nodes[pair.first].outputs
        write, read = signature.outputs[0].projection, signature.inputs[node.inputs.index(between)].projection
        shape = signature.index_shape
        is_small = np.prod(shape) <= POINTS
        points = [tuple(map(rng.randrange, shape)) for _ in range(POINTS)]
        found: dict[int, set[tuple[int, ...]]] = {device: set() for device in told[made]}
        for point in product(*map(range, shape)) if is_small else points:
            written, wanted = (set(product(*map(range, box.start, box.stop))) for box in (write(point), read(point)))
            for device, cells in told[made].items():
                if cells & written:
                    found[device] |= wanted
        assert found == told[between] if is_small else all(found[d] <= told[between][d] for d in found)


def before_fusion(g: Graph, p: ShardPlan) -> Graph:
    """What a plan made of a graph before it put operators in blocks."""
    steps = Derivation()
    for step in p.derivation.steps:
        steps = steps if step.rule == "fuse" else steps.then(step.rule, step.at, **step.arguments)
    return steps.replay(g)


@pytest.mark.heavy(2)
@pytest.mark.parametrize(("mesh", "fuse"), [(Mesh(2), True), (Mesh((2, 2)), True), (Mesh((2, 2)), False)])
@pytest.mark.parametrize("name", ["bert", "gpt2", "resnet"])
def test_networks_say_where_their_tensors_lie(name: str, mesh: Mesh, fuse: bool) -> None:
    g = load_onnx(f"tests/models/{name}.onnx")
    p = plan(g, mesh, space="mesh", fuse=fuse)
    model = to_onnx(p)
    assert bool(p.fused) == fuse and check(model, p) >= 30
    assert same_graph(load_onnx(model, fold=False), before_fusion(g, p))
    if not fuse or mesh.size > 2:
        return
    feeds = of_floats(g)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    given = {one.name: feeds[one.name] for one in session.get_inputs()}
    wanted = evaluate(g, feeds)
    for label, array in zip(p.graph.outputs, session.run(None, given), strict=True):
        np.testing.assert_allclose(wanted[label], array, rtol=1e-3, atol=1e-4)


def test_blocks_are_written_as_their_operators() -> None:
    """A chain of three, in one block: each is a node, what is between them lies where it is made."""
    g = Graph()
    x, w = g.input("x", (8, 6)), g.input("w", (6, 4))
    g.output(ops.exp(ops.tanh(ops.matmul(x, w, name="mm"), name="t"), name="e"), "y")
    p = plan(g, Mesh((2, 2)), space="mesh")
    assert len(p.graph.nodes) == 1 and len(p.fused) == 2
    cut = {int(axis[1]): n for axis, n in p.sharding["e"].items()}
    model = to_onnx(p)
    assert check(model, p) == 5
    assert [(node.op_type, *node.output) for node in model.graph.node] == [
        ("MatMul", "mm"), ("Tanh", "t"), ("Exp", "y")
    ]  # fmt: skip
    first, second, _ = specs_of(model)
    assert cut and axes_of(first["x"]) | axes_of(first["w"]) == axes_of(first["mm"]) == cut
    assert axes_of(second["mm"]) == axes_of(second["t"]) == cut
    assert same_graph(load_onnx(model), g)


@pytest.mark.parametrize("seed", range(12))
def test_what_is_taken_apart_is_the_graph_before_it_was_put_together(seed: int) -> None:
    g = make_graph(random.Random(seed))
    p = plan(g, Mesh(2))
    assert same_graph(apart_of(p), before_fusion(g, p))
    assert {node.name for node in apart_of(p).nodes.values()} == {*p.placement}


def graph(rows: int = 8) -> Graph:
    g = Graph()
    g.output(ops.exp(ops.relu(g.input("x", (rows, 6)), name="a"), name="b"), "y")
    return g


def test_groups_are_told_where_several_devices_have_a_part() -> None:
    p = plan(graph(), Mesh((2, 2)), fix={"a": {"i0": ("y",)}, "b": {"i0": ("x", "y")}}, fuse=False)
    model = to_onnx(p)
    assert check(model, p) == 3
    first, second = specs_of(model)
    assert list(first["a"].device) == [-1, -2] and list(second["y"].device) == [0, 1, 2, 3]
    assert [list(entry.value) for entry in first["a"].index_to_device_group_map] == [[0, 2], [1, 3]]
    assert list(second["a"].device) == [0, 1, 2, 3]  # as the second operator reads it


def specs_of(model: Any) -> list[dict[str, Any]]:
    """By node what is said of each tensor."""
    return [{one.tensor_name: one for one in node.device_configurations[0].sharding_spec} for node in model.graph.node]


def axes_of(spec: Any) -> dict[int, int]:
    return {cut.axis: cut.simple_sharding[0].num_shards for cut in spec.sharded_dim}


def test_operands_are_cut_as_their_operator_reads_them() -> None:
    """Both sides of a sum along the axis that is summed, both addends alike, whatever made them."""
    g = Graph()
    x, w, z = g.input("x", (8, 8)), g.input("w", (8, 8)), g.input("z", (8, 8))
    product_ = ops.matmul(ops.relu(x, name="a"), w, name="mm")
    g.output(ops.add(product_, ops.exp(z, name="b"), name="sum"), "y")
    fix = {"a": {"i0": 4}, "mm": {"k": 4}, "b": {"i1": 4}, "sum": {"i0": 4}}
    model = to_onnx(plan(g, Mesh(4), fix=fix, fuse=False, expand=False))
    by_name = {node.name: specs for node, specs in zip(model.graph.node, specs_of(model), strict=True)}
    assert axes_of(by_name["a"]["a"]) == {0: 4}
    assert axes_of(by_name["mm"]["a"]) == {1: 4} and axes_of(by_name["mm"]["w"]) == {0: 4}
    assert axes_of(by_name["sum"]["mm"]) == axes_of(by_name["sum"]["b"]) == axes_of(by_name["sum"]["y"]) == {0: 4}
    assert axes_of(by_name["b"]["b"]) == {1: 4}


def test_devices_that_have_nothing_are_in_no_group() -> None:
    p = plan(graph(), Mesh(3), fix={"a": {"i0": 2}, "b": {"i0": 2}}, fuse=False)
    model = to_onnx(p)
    assert check(model, p) == 3 and list(specs_of(model)[0]["a"].device) == [0, 1]


def test_what_onnx_cannot_say_is_refused() -> None:
    with pytest.raises(
        NotExported,
        match=r"'a' at operator 'a': parts along axis 0 are 3, 2, 2 cells; those of ONNX are even; 'x' at operator 'a'",
    ):
        to_onnx(plan(graph(7), Mesh(3), fix={"a": {"i0": 3}, "b": {"i0": 3}}, fuse=False))
    with pytest.raises(NotExported, match="'a' at operator 'a': parts along axis 0 are 3, 2, 2 cells"):
        to_onnx(plan(graph(7), Mesh(3), fix={"b": {"i0": 3}}))  # in one block


def test_an_operand_lies_where_it_is_read_though_some_shards_read_none_of_it() -> None:
    """What is added after a sum over both parts of a product is read by one of the devices."""
    g = Graph()
    a, b, c = g.input("a", (4, 8)), g.input("b", (8, 6)), g.input("c", (6,))
    g.output(ops.relu(ops.gemm(a, b, c, name="g"), name="r"), "y")
    specs = specs_of(to_onnx(plan(g, Mesh(2), fix={"g": {"k": 2}, "r": {"i0": 2}}, fuse=False)))
    first = next(each for each in specs if "a" in each)
    assert axes_of(first["a"]) == {1: 2} and axes_of(first["b"]) == {0: 2}
    assert axes_of(first["c"]) == {} and list(first["c"].device) == [0]
