"""Batch normalizations folded into convolutions at import: the numbers of ONNX Runtime, up to rounding."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper

from tapestry_exec import evaluate
from tapestry_plan import load_onnx

KEPT: dict[str, dict[str, Any]] = {
    "what the convolution makes is an output": {"outputs": ["c", "y"]},
    "another operator reads it": {"more": [helper.make_node("Relu", ["c"], ["r"])], "outputs": ["y", "r"]},
    "the mean is an input": {"inputs": ["mean"]},
    "the weights are an input": {"inputs": ["w"]},
    "half precision": {"dtype": np.float16},
}


def model(
    x: tuple[int, ...] = (2, 4, 9, 8),
    w: tuple[int, ...] = (6, 4, 3, 3),
    *,
    bias: bool = True,
    groups: int = 1,
    dtype: Any = np.float32,
    outputs: list[str] | None = None,
    inputs: list[str] | None = None,
    more: list[Any] | None = None,
    seed: int = 0,
    **attrs: Any,
) -> tuple[Any, dict[str, np.ndarray]]:
    """A convolution and a normalization behind it, with the values of its inputs."""
    rng = np.random.default_rng(seed)
    channels = w[:1]
    arrays = {"x": rng.standard_normal(x), "w": rng.standard_normal(w)}
    arrays |= {"b": rng.standard_normal(channels)} if bias else {}
    arrays |= {name: rng.standard_normal(channels) for name in ("scale", "offset", "mean")}
    arrays |= {"variance": rng.random(channels) + 0.1}
    values = {name: array.astype(dtype) for name, array in arrays.items()}
    given = ["x", *(inputs or [])]
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    nodes = [
        helper.make_node("Conv", ["x", "w", *(["b"] if bias else [])], ["c"], name="conv", group=groups),
        helper.make_node("BatchNormalization", ["c", "scale", "offset", "mean", "variance"], ["y"], name="bn", **attrs),
        *(more or []),
    ]
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info(name, kind, values[name].shape) for name in given],
        [helper.make_tensor_value_info(name, kind, None) for name in outputs or ["y"]],
        [numpy_helper.from_array(array, name) for name, array in values.items() if name not in given],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return made, {name: values[name] for name in given}


def run_there(made: Any, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(made.SerializeToString(), options, ["CPUExecutionProvider"])
    return session.run(None, feeds)


@given(
    st.integers(1, 3), st.booleans(), st.sampled_from([1, 2, 4]), st.sampled_from([1e-5, 1e-3, 0.5]), st.integers(0, 99)
)
@example(2, True, 1, 1e-5, 0)
@settings(max_examples=max(20, settings.default.max_examples // 5), deadline=None)
def test_convolutions_take_normalizations_in(rank: int, bias: bool, groups: int, epsilon: float, seed: int) -> None:
    shapes = (2, 4, *(7, 6, 5)[:rank]), (8, 4 // groups, *(3, 2, 1)[:rank])
    made, feeds = model(*shapes, bias=bias, groups=groups, epsilon=epsilon, seed=seed)
    folded, whole = load_onnx(made), load_onnx(made, fold=False)
    assert [node.op for node in folded.nodes.values()] == ["conv"] and len(whole.nodes) == 2
    (wanted,) = run_there(made, feeds)
    for graph in (folded, whole):
        np.testing.assert_allclose(evaluate(graph, feeds)["y"], wanted, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("why", KEPT)
def test_normalizations_stay_where_more_than_they_read_the_convolution(why: str) -> None:
    made, feeds = model(**KEPT[why])
    graph = load_onnx(made)
    assert sorted(node.op for node in graph.nodes.values())[:2] == ["batch_normalization", "conv"]
    wide = 5e-3 if KEPT[why].get("dtype") is np.float16 else 1e-5
    for name, wanted in zip(graph.outputs, run_there(made, feeds), strict=True):
        np.testing.assert_allclose(evaluate(graph, feeds)[name], wanted, rtol=wide, atol=wide)


def test_a_normalization_behind_an_input_stays() -> None:
    made, feeds = model()
    made.graph.node[1].input[0] = "x"
    made.graph.node[0].input[0] = "y"
    made.graph.output[0].name = made.graph.node[0].output[0] = "z"
    for k in range(1, 5):
        array = np.random.default_rng(k).random(4).astype(np.float32)
        made.graph.initializer.append(numpy_helper.from_array(array, f"n{k}"))
        made.graph.node[1].input[k] = f"n{k}"
    conv, norm = made.graph.node
    nodes = [type(norm).FromString(one.SerializeToString()) for one in (norm, conv)]
    del made.graph.node[:]
    made.graph.node.extend(nodes)
    graph = load_onnx(made)
    assert len(graph.nodes) == 2
    np.testing.assert_allclose(evaluate(graph, feeds)["z"], run_there(made, feeds)[0], rtol=1e-5, atol=1e-5)


def test_what_a_normalization_says_is_checked_though_it_is_folded() -> None:
    made, feeds = model(training_mode=1)
    assert len(load_onnx(made).nodes) > 2, "the batch's own mean cannot be folded"
    made, _ = model()
    made.graph.node[1].attribute.append(helper.make_attribute("foo", 3))
    with pytest.raises(ValueError, match=r"bn.*foo"):
        load_onnx(made)
    made, feeds = model(momentum=0.5)
    assert len(load_onnx(made).nodes) == 1
    np.testing.assert_allclose(evaluate(load_onnx(made), feeds)["y"], run_there(made, feeds)[0], rtol=1e-5, atol=1e-5)


def test_what_would_be_infinite_stays() -> None:
    made, _ = model(w=(2, 4, 1, 1))
    by_name = {one.name: one for one in made.graph.initializer}
    by_name["scale"].CopyFrom(numpy_helper.from_array(np.full(2, 1e38, np.float32), "scale"))
    by_name["variance"].CopyFrom(numpy_helper.from_array(np.full(2, 1e-30, np.float32), "variance"))
    with np.errstate(over="ignore"):
        assert len(load_onnx(made).nodes) == 2
