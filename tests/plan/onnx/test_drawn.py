"""Nodes of ONNX that draw: the same numbers on any split, of the distribution that ONNX says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from tapestry_exec import evaluate, run
from tapestry_plan import Graph, Mesh, UnsupportedOp, ops, plan, same_graph
from tapestry_plan.onnx import StagedModel, load_onnx, to_onnx
from tests.onnx_models import model_of, ort

make = helper.make_node
SHAPE = (60, 50)
X = np.random.default_rng(3).uniform(0, 1, SHAPE).astype(np.float32)
NODES = {
    "RandomUniform": make("RandomUniform", [], ["y"], shape=SHAPE, low=-1.0, high=3.0),
    "RandomUniformLike": make("RandomUniformLike", ["x"], ["y"], low=-1.0, high=3.0),
    "RandomNormal": make("RandomNormal", [], ["y"], shape=SHAPE, mean=1.0, scale=2 / 3**0.5),
    "RandomNormalLike": make("RandomNormalLike", ["x"], ["y"], mean=1.0, scale=2 / 3**0.5),
}


def drawn(model: Any, devices: int = 1, **how: Any) -> dict[str, Any]:
    """What a model draws on so many devices."""
    p = plan(load_onnx(model, opaque=False, **how), Mesh(devices))
    assert devices == 1 or all(p.sharding.values()), "all is split"
    return run(p, {name: X for name, one in p.graph.stored.items() if one.kind == "input"}).outputs


@pytest.mark.parametrize("name", NODES)
def test_numbers_have_the_mean_and_the_spread_that_a_node_says(name: str) -> None:
    """Of 3,000 numbers, to six standard deviations of either."""
    model = model_of([NODES[name]], {"x": SHAPE})
    found = drawn(model)["y"]
    assert found.dtype == np.float32 and found.shape == SHAPE
    assert abs(found.mean() - 1) < 0.13 and abs(found.var() - 4 / 3) < 0.25
    assert ((found >= -1) & (found < 3)).all() == ("Uniform" in name)
    for devices in (2, 3):
        np.testing.assert_array_equal(drawn(model, devices)["y"], found)


def test_each_node_draws_its_own_numbers_in_any_part_of_the_model() -> None:
    nodes = [make("RandomNormal", [], [name], name=f"draw {name}", shape=[4, 9]) for name in "abc"]
    model = model_of(nodes, {}, "abc")
    found = drawn(model)
    assert len({array.tobytes() for array in found.values()}) == 3
    for node in model.graph.node:
        node.name = "one name"  # which ONNX's checker takes
    for name, array in drawn(model).items():
        np.testing.assert_array_equal(array, found[name])
    np.testing.assert_array_equal(drawn(model, outputs=["c"])["c"], found["c"])
    for seed in (5.0, 6.0):
        for node in model.graph.node:
            del node.attribute[1:]
            node.attribute.append(helper.make_attribute("seed", seed))
        again = drawn(model)
        assert len({array.tobytes() for array in (*again.values(), *found.values())}) == 6
        np.testing.assert_array_equal(drawn(model)["a"], again["a"])
        found = again


@pytest.mark.parametrize("kind", ["DOUBLE", "FLOAT16", "BFLOAT16"])
def test_of_other_dtypes(kind: str) -> None:
    code = TensorProto.DataType.Value(kind)
    for node in (make("RandomNormal", [], ["y"], shape=SHAPE), make("RandomUniformLike", ["x"], ["y"])):
        node.attribute.append(helper.make_attribute("dtype", code))
        found = drawn(model_of([node], {"x": SHAPE}), 2)["y"]
        assert found.dtype == helper.tensor_dtype_to_np_dtype(code)
        is_normal = node.op_type == "RandomNormal"
        assert abs(found.astype(float).mean() - (0 if is_normal else 0.5)) < 0.11
        assert abs(found.astype(float).var() - (1 if is_normal else 1 / 12)) < 0.16


@pytest.mark.parametrize("kind", ["FLOAT16", "BFLOAT16"])
@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (-1.0, 3.0), (1.0001, 1.003), (1.0, 1.0001)])
def test_short_numbers_are_rounded_to_none_outside(kind: str, low: float, high: float) -> None:
    """From `low` to below `high`: of 3,000 numbers in single precision some are nearer to `high` than to the last."""
    code = TensorProto.DataType.Value(kind)
    node = make("RandomUniform", [], ["y"], shape=SHAPE, low=low, high=high, dtype=code)
    found = drawn(model_of([node], {}))["y"]
    dtype = helper.tensor_dtype_to_np_dtype(code)
    assert found.dtype == dtype
    values, ends = found.astype(float), (float(np.float32(low)), float(np.float32(high)))
    is_any = not (kind == "BFLOAT16" and low == 1.0001)  # the next one is 1.0078
    assert ((values >= ends[0]) & (values < ends[1])).all() == is_any
    if (low, high) == (0.0, 1.0):
        assert values.max() == float(np.nextafter(dtype.type(1), dtype.type(0)))


def test_of_short_operands() -> None:
    """In float32, and rounded: but for truth, which is exact."""
    x = X.astype(helper.tensor_dtype_to_np_dtype(TensorProto.BFLOAT16))
    model = model_of([make("Bernoulli", ["x"], ["y"])], {"x": SHAPE}, dtype=TensorProto.BFLOAT16)
    found = run(plan(load_onnx(model, opaque=False), Mesh(2)), {"x": x}).outputs["y"]
    assert found.dtype == x.dtype and set(np.unique(found.astype(float))) == {0, 1}


@pytest.mark.parametrize("kind", [0, TensorProto.BOOL, TensorProto.INT64, TensorProto.DOUBLE])
def test_cells_are_true_as_often_as_their_probability(kind: int) -> None:
    node = make("Bernoulli", ["x"], ["y"], **({"dtype": kind} if kind else {}))
    model = model_of([node], {"x": SHAPE})
    found = drawn(model, 3)["y"]
    assert found.dtype == (helper.tensor_dtype_to_np_dtype(kind) if kind else np.float32)
    assert set(np.unique(found).tolist()) == {0, 1}
    for low in (0, 0.25, 0.5, 0.75):
        among = found[(low <= X) & (low + 0.25 > X)].astype(float)
        assert abs(among.mean() - low - 0.125) < 6 * 0.5 / len(among) ** 0.5
    np.testing.assert_array_equal(drawn(model)["y"], found)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_classes_come_as_often_as_their_shares(dtype: Any) -> None:
    """Whatever is added to all logarithms; a class of share 0 never, as the last and the first one."""
    with np.errstate(divide="ignore"):
        x = (np.log([[0, 1, 2, 5], [4, 1, 3, 0]]) + 7).astype(dtype)
    node = make("Multinomial", ["x"], ["y"], sample_size=800, dtype=TensorProto.INT64)
    model = model_of([node], {"x": x.shape}, dtype=helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))
    graph = load_onnx(model, opaque=False)
    found = run(plan(graph, Mesh(2)), {"x": x}).outputs["y"]
    assert found.dtype == np.int64 and found.shape == (2, 800)
    for row, shares in zip(found, ([0, 1, 2, 5], [4, 1, 3, 0]), strict=True):
        counts = np.bincount(row, minlength=4)
        expected = np.array(shares) * 800 / 8
        assert not counts[expected == 0].any()
        some = expected > 0
        assert ((counts - expected)[some] ** 2 / expected[some]).sum() < 30  # chi-squared of two degrees of freedom
    np.testing.assert_array_equal(run(plan(graph, Mesh(1)), {"x": x}).outputs["y"], found)
    one = model_of([make("Multinomial", ["x"], ["y"])], {"x": (5, 1)})
    assert (run(plan(load_onnx(one), Mesh(1)), {"x": np.zeros((5, 1), np.float32)}).outputs["y"] == 0).all()


TRAINED = {"ratio": np.array(0.25, np.float32), "training": np.array(True)}


@pytest.mark.parametrize("kind", ["FLOAT", "DOUBLE", "FLOAT16", "BFLOAT16"])
@pytest.mark.parametrize("has_mask", [False, True])
def test_dropout_in_training_is_split(kind: str, has_mask: bool) -> None:
    code = TensorProto.DataType.Value(kind)
    x = (X + 1).astype(helper.tensor_dtype_to_np_dtype(code))
    outputs = ["y", "mask"][: 1 + has_mask]
    model = model_of([make("Dropout", ["x", *TRAINED], outputs)], {"x": SHAPE}, outputs, TRAINED, dtype=code)
    p = plan(load_onnx(model, opaque=False), Mesh(3))
    assert all(p.sharding.values())
    found = run(p, {"x": x}).outputs
    kept = found["y"] != 0
    assert found["y"].dtype == x.dtype and abs(kept.mean() - 0.75) < 6 * (0.25 * 0.75 / x.size) ** 0.5
    wanted = np.where(kept, x.astype(float) / 0.75, 0)
    np.testing.assert_allclose(
        found["y"].astype(float), wanted, rtol={"BFLOAT16": 1e-2, "FLOAT16": 2e-3}.get(kind, 1e-6)
    )
    if has_mask:
        np.testing.assert_array_equal(found["mask"], kept)


def test_what_onnx_s_reference_draws_of_a_seed_it_draws() -> None:
    """Its own cases of Dropout want these numbers; and a ratio that the run says keeps it whole."""
    model = model_of([make("Dropout", ["x", *TRAINED], ["y"], seed=7)], {"x": SHAPE}, constants=TRAINED)
    with pytest.raises(UnsupportedOp, match="training mode with a seed is not supported: its numbers are those of"):
        load_onnx(model, opaque=False)
    found = run(plan(load_onnx(model), Mesh(2)), {"x": X}).outputs["y"]
    kept = np.random.RandomState(7).uniform(0, 1, SHAPE) >= 0.25
    np.testing.assert_allclose(found, np.where(kept, X / 0.75, 0), rtol=1e-6)
    for ratio in (1.0, -0.5):
        known = {**TRAINED, "ratio": np.array(ratio, np.float32)}
        with pytest.raises(UnsupportedOp, match=f"ratio of {ratio} is not supported, only from 0 to below 1"):
            load_onnx(model_of([make("Dropout", ["x", *TRAINED], ["y"])], {"x": SHAPE}, constants=known), opaque=False)


def test_what_cannot_be_drawn_is_refused() -> None:
    for node, says in (
        (make("RandomUniform", [], ["y"], shape=[3, -2]), "extents are at least 0"),
        (make("RandomUniform", [], ["y"], shape=[3], low=2.0, high=1.0), "only finite ones in this order"),
        (make("RandomNormal", [], ["y"], shape=[3], scale=-1.0), "scale >= 0"),
        (make("RandomNormalLike", ["k"], ["y"]), "its numbers would be int64"),
        (make("Multinomial", ["x"], ["y"], sample_size=0), "sample_size is 0"),
        (make("Bernoulli", ["k"], ["y"]), "its operand is int64"),
    ):
        model = model_of([node], {"x": (2, 3), "k": (2, 3)})
        model.graph.input[1].type.tensor_type.elem_type = TensorProto.INT64
        with pytest.raises(ValueError, match=says):
            load_onnx(model)


def test_numbers_without_cells_or_apart_are_known() -> None:
    nodes = [
        make("RandomUniform", [], ["a"], shape=[2, 3], low=2.0, high=2.0, seed=1.0),
        make("RandomNormal", [], ["b"], shape=[0, 3]),
    ]
    found = StagedModel(model_of(nodes, {}, "ab")).outputs
    np.testing.assert_array_equal(found["a"], np.full((2, 3), 2, np.float32))
    assert found["b"].shape == (0, 3)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_they_come_back_the_same_and_onnx_runtime_draws_as_many_of_each(dtype: str) -> None:
    g = Graph()
    drawn = {
        "uniform": ops.uniform(g, (70, 60), -2, 3, seed=1, dtype=dtype),
        "normal": ops.normal(g, (70, 60), 4, 2, seed=2, dtype=dtype),
        "bernoulli": ops.bernoulli(g, (70, 60), 0.3, seed=3),
        "integers": ops.integers(g, (70, 60), -4, 9, seed=4, dtype="int32"),
        "dropout": ops.dropout(g.input("x", (70, 60), dtype), 0.2, seed=5),
    }
    for name, tensor in drawn.items():
        g.output(tensor, name)
    model, feeds = to_onnx(g), {"x": np.ones((70, 60), dtype)}
    assert same_graph(load_onnx(model), g)
    for (name, found), other in zip(evaluate(g, feeds).items(), ort(model, feeds), strict=True):
        assert found.dtype == other.dtype and (found != other).any(), "ONNX leaves open which numbers they are"
        found, other = found.astype(float), other.astype(float)
        spread = max(1.0, found.std())
        assert abs(found.mean() - other.mean()) < 9 * spread / 4200**0.5, name
        assert abs(found.std() - other.std()) < 0.2 * spread, name
        assert name == "normal" or max(abs(found.min() - other.min()), abs(found.max() - other.max())) < 0.01, name
