"""Plans with the same bits on any number of devices: operators in leaves, fixed trees, and what is refused."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from tapestry_exec import evaluate, run
from tapestry_plan import Device, Graph, Link, Mesh, Placed, load_onnx, ops, plan
from tapestry_plan.ir import BUILTIN_OPS
from tapestry_plan.rewrite import NotApplicable, count_leaves, fix_bits, leaves
from tapestry_plan.steps import Reduce
from tests.cutting import Case, close
from tests.exec.run.test_operators_sharded import FIRST, graph_of

MODELS = Path(__file__).parents[2] / "models"
BUSY = {"device": Device(1e6, 1e30), "link": Link(0.0, 1e12)}
"""Work is divided wherever it can be."""


def bits_on(g: Graph, feeds: dict[str, np.ndarray], devices: int, **asked: Any) -> dict[str, bytes]:
    p = plan(g, Mesh((devices,), **BUSY), same_bits=True, **asked)
    r = run(p, feeds)
    assert r.nbytes_moved == p.nbytes_moved
    return {name: array.tobytes() for name, array in r.outputs.items()}


def of_floats(g: Graph, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    inputs = [tensor for tensor in g.stored.values() if tensor.kind == "input"]
    numbers = {x: rng.standard_normal(x.shape) if x.dtype[0] == "f" else rng.integers(0, 2, x.shape) for x in inputs}
    return {x.name: array.astype(x.dtype) for x, array in numbers.items()}


@pytest.mark.parametrize("case", FIRST, ids=lambda case: case.op)
def test_each_operator_has_the_same_bits_however_it_is_cut(case: Case) -> None:
    g, arrays = graph_of(case)
    plain, fixed = evaluate(g, arrays), fix_bits(g)
    wanted = evaluate(fixed, arrays)
    for name, array in wanted.items():
        if array.dtype.kind == "f":
            close(array, plain[name], 2e-3 if array.dtype == np.float16 else 2e-5)
        else:
            np.testing.assert_array_equal(array, plain[name])
    for axis in fixed.signature("it").axes:
        parts = next((n for n in (3, 2, 4) if n <= axis.size and axis.may_have(n)), 1)
        if parts > 1:
            made = bits_on(g, arrays, parts, fix={"it": {axis.name: parts}}, placement="single")
            assert made == {name: array.tobytes() for name, array in wanted.items()}


@pytest.mark.heavy(2)
@given(
    kind=st.sampled_from(["matmul", "sum", "mean", "prod", "var", "logsumexp", "softmax", "conv"]),
    sizes=st.tuples(*[st.integers(2, 24)] * 3),
    dtype=st.sampled_from(["float32", "float64", "float16"]),
    devices=st.sampled_from([2, 3, 4, 5, 8]),
    seed=st.integers(0, 99),
)
@example(kind="sum", sizes=(16, 8, 8), dtype="float32", devices=8, seed=0)
@example(kind="softmax", sizes=(24, 20, 2), dtype="float32", devices=5, seed=0)
def test_random_reductions_have_the_bits_of_one_device(
    kind: str, sizes: tuple[int, int, int], dtype: str, devices: int, seed: int
) -> None:
    a, b, c = sizes
    g = Graph()
    if kind == "matmul":
        y = g.input("x", (a, b), dtype) @ g.input("w", (b, c), dtype)
    elif kind == "conv":
        y = g.op("conv", g.input("x", (2, a, b, 5), dtype), g.input("w", (c, a, 3, 3), dtype), pads=(1,) * 4)
    elif kind == "softmax":
        y = ops.softmax(g.input("x", (a, b), dtype), axis=0)
    else:
        y = g.op(kind, g.input("x", (a, b, c), dtype), axis=(0, 2))
    g.output(ops.tanh(y), "y")
    feeds = of_floats(g, seed)
    assert bits_on(g, feeds, devices) == bits_on(g, feeds, 1)


@pytest.mark.heavy(2)
@pytest.mark.parametrize(("model", "devices"), [("gpt2", (1, 3, 5)), ("resnet", (1, 2))])
def test_networks_have_the_same_bits_on_any_number_of_devices(model: str, devices: tuple[int, ...]) -> None:
    g = load_onnx(MODELS / f"{model}.onnx")
    feeds = of_floats(g)
    found = [bits_on(g, feeds, many) for many in devices]
    assert all(one == found[0] for one in found)


def test_a_sum_has_one_result_and_had_several() -> None:
    g = Graph()
    g.output(ops.sum(g.input("x", (4096,))), "y")
    feeds = of_floats(g)
    loose, same = set(), set()
    for devices in (1, 2, 4, 8):
        fix = {"sum": {"i0": devices}}
        odd = devices + devices // 2  # halves of halves are what NumPy adds, too
        loose.add(run(plan(g, Mesh(odd), fix={"sum": {"i0": odd}}), feeds).outputs["y"].tobytes())
        p = plan(g, Mesh(devices), fix=fix, same_bits=True)
        assert sum(p.flop) == 4096 and p.sharding["sum"] == ({"i0": devices} if devices > 1 else {})
        same.add(run(p, feeds).outputs["y"].tobytes())
    assert len(same) == 1 < len(loose)


def test_merged_parts_and_less_memory_keep_the_bits() -> None:
    g = Graph()
    h = ops.relu(g.input("x", (16, 64)) @ g.input("w", (64, 256)))
    g.output(h @ g.input("v", (256, 64)), "y")
    feeds = of_floats(g)
    rows = plan(g, Mesh(4), same_bits=True, fix={"matmul_1": {"n": 4}})
    merged = plan(g, Mesh(4), same_bits=True, placement="single", fix={"matmul_1": {"k": 4}})
    small = plan(g, Mesh(4), same_bits=True, memory_nbytes=max(rows.peak_nbytes) - 1)
    assert {step.fan_in for step in merged.steps if isinstance(step, Reduce)} == {2}
    assert max(small.peak_nbytes) < max(rows.peak_nbytes)
    assert len({run(p, feeds).outputs["y"].tobytes() for p in (rows, merged, small)}) == 1
    assert type(merged).from_json(merged.to_json()) == merged


@pytest.mark.parametrize("ratio", [2, 3, 5])
def test_unlike_devices_have_the_same_bits(ratio: int) -> None:
    """Parts in proportion to the rates are uneven: the leaves of a reduction are not cut so."""
    g = Graph()
    g.output(g.input("x", (17, 64)) @ g.input("w", (64, 13)), "y")
    feeds = of_floats(g)
    mesh = Mesh(2, device=[Device(1e6 * ratio, 1e30), Device(1e6, 1e30)], link=Link(0.0, 1e12))
    made = run(plan(g, mesh, same_bits=True), feeds).outputs["y"].tobytes()
    assert made == bits_on(g, feeds, 1)["y"]


def test_tensors_in_boxes_cut_no_leaf() -> None:
    """What neighbors ask for cuts no leaf: five rows are one."""
    g = Graph()
    g.output(ops.tanh(g.input("x", (5, 7)) @ g.input("w", (7, 6))), "y")
    feeds, rows = of_floats(g), Placed({0: np.s_[:2], 1: np.s_[2:]})
    for layout in ({"x": rows}, {"y": rows}, {"x": rows, "y": rows}):
        made = run(plan(g, Mesh(2), same_bits=True, layout=layout), feeds).outputs["y"].tobytes()
        assert made == bits_on(g, feeds, 1)["y"]


def test_graphs_and_plans_in_leaves_are_pickled() -> None:
    g = Graph()
    g.output(ops.softmax(ops.tanh(g.input("x", (16, 64)) @ g.input("w", (64, 8)))), "y")
    p = plan(g, Mesh(2), same_bits=True)
    assert pickle.loads(pickle.dumps(p)) == p
    fused = plan(g, Mesh(2, device=Device(launch_seconds=1e-3)), fuse=True)
    assert fused.fused and pickle.loads(pickle.dumps(fused)) == fused


def test_each_leaf_is_a_launch() -> None:
    g = Graph()
    g.output(ops.softmax(g.input("x", (64, 64))))
    mesh = Mesh((2,), device=Device(1e30, 1e30, 1e-3))
    assert [plan(g, mesh, same_bits=same).seconds for same in (False, True)] == [1e-3, 4e-3]


def test_leaves_follow_from_the_operator_alone() -> None:
    g = Graph()
    y = g.op("conv", g.input("x", (4, 16, 8, 8)), g.input("w", (16, 4, 3, 3)), groups=4, pads=(1,) * 4)
    g.output(y)
    signature = g.signature("conv")
    counts = count_leaves(signature)
    assert counts[signature.axis("c")] == 1, "the groups split the channels"
    assert counts[signature.axis("n")] > 1 and np.prod(counts) <= 128
    merged = [counts[k] for k in signature.reductions if counts[k] > 1]
    assert len(merged) <= 1
    again = fix_bits(fix_bits(g))
    assert [node.op for node in again.order()] == ["leaves(conv)"]
    assert Graph.from_json(again.to_json()).to_json() == again.to_json()


@pytest.mark.parametrize(
    ("counts", "error", "said"),
    [
        ((2, 2), ValueError, "a number for each of 3 index axes"),
        ((3, 1, 1), NotApplicable, "3 leaves along axis 'm' of 8; give a divisor of it"),
        ((1, 1, 3), NotApplicable, "3 leaves along reduction axis 'k'; give a power of two"),
        ((0, 1, 1), NotApplicable, "0 leaves along axis 'm'"),
    ],
)
def test_wrong_counts_are_named(counts: tuple[int, ...], error: type[Exception], said: str) -> None:
    g = Graph()
    g.output(g.input("x", (8, 12)) @ g.input("w", (12, 4)))
    with pytest.raises(error, match=said):
        leaves.apply(g, "matmul", counts=counts)


@pytest.mark.parametrize(
    ("op", "counts", "said"),
    [
        ("matmul", [2, 2], "a number for each of 3 index axes"),
        ("matmul", [2.0, 1, 1], "give integers"),
        ("matmul", [3, 1, 1], "3 leaves along axis 'm' of 8; give a divisor of it"),
        ("matmul", [1, 1, 3], "3 leaves along reduction axis 'k'; give a power of two"),
        ("conv", [1, 1, 1, 1, 2, 2, 1], r"reduction axes \['ci', 'kh'\] have several leaves"),
        ("conv", [1, 2, 1, 1, 1, 1, 1], "an operand splits axis 'c' into blocks; give one leaf along it"),
    ],
)
def test_wrong_counts_in_a_document_are_named(op: str, counts: list[Any], said: str) -> None:
    """A document is held to what the rule itself asks for: leaves that it would not make have no tree of merges."""
    g = Graph()
    if op == "matmul":
        it = g.op("matmul", g.input("x", (8, 12)), g.input("w", (12, 4)), name="it")
    else:
        it = g.op("conv", g.input("x", (1, 4, 5, 5)), g.input("w", (4, 2, 4, 3)), groups=2, name="it")
    g.output(it)
    document = leaves.apply(g, "it").to_dict()
    (node,) = document["order"]
    node["attrs"]["leaves.counts"] = counts
    with pytest.raises(ValueError, match=said):
        Graph.from_dict(document)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"expand": ["exp_sum"]}, "with same_bits no operator is expanded"),
        ({"fan_in": 3}, "with same_bits parts are merged two by two"),
        ({"fix": {"sum": {"i1": 3}}}, "axis 'i1' of 4 is cut into equal parts only, not into 3 parts"),
        ({"fix": {"matmul": {"m.in": 2}}}, "axis 'm.in' is not cut"),
    ],
)
def test_what_would_change_bits_is_refused(asked: dict[str, Any], said: str) -> None:
    g = Graph()
    x = g.input("x", (8, 12))
    g.output(x @ g.input("w", (12, 4)))
    g.output(ops.sum(x))
    with pytest.raises(ValueError, match=said):
        plan(g, Mesh((3,)), same_bits=True, **asked)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_powers_have_the_same_bits_in_every_block(dtype: str) -> None:
    """NumPy takes short ways for squares and roots where a block has one exponent."""
    g = Graph()
    a, b = g.input("a", (6, 400), dtype), g.input("b", (6, 1), dtype)
    g.output(ops.pow(a, b, name="power"), "y")
    rng = np.random.default_rng(0)
    feeds = {
        "a": (rng.random((6, 400)) * 2 + 0.5).astype(dtype),
        "b": np.array([[2], [3], [0.5], [1], [-1], [2.5]], dtype),
    }
    whole, rows = (run(plan(g, Mesh((n,)), fix={"power": {"i0": n}}), feeds).outputs["y"] for n in (1, 6))
    assert whole.tobytes() == rows.tobytes()
    wide = np.power(feeds["a"].astype(np.float64), feeds["b"].astype(np.float64))
    np.testing.assert_allclose(whole.astype(np.float64), wide, rtol=2 * np.finfo(dtype).eps)


def test_other_operators_inside_of_a_block_leave_nothing_behind() -> None:
    """One that needs no scratch memory in the place of one that does, before it and after it."""
    g = Graph()
    w = g.constant("w", np.ones((4, 4, 3, 3), np.float32))
    g.output(ops.relu(ops.conv(g.input("x", (1, 4, 12, 12)), w, pads=1)), "y")
    p, feeds = plan(g, Mesh((1,))), {"x": np.ones((1, 4, 12, 12), np.float32)}
    mine = replace(BUILTIN_OPS["conv"], block=lambda xp, ins, outs, shard: outs[0].fill(1), workspace=lambda s, n: 0)
    wanted = run(p, feeds, backend="serial").outputs["y"]
    for asked in ({"conv": mine}, None, {"conv": mine}, None):
        found = run(p, feeds, backend="serial", ops=asked).outputs["y"]
        assert (found == (1 if asked else wanted)).all()
