"""Real networks as graphs against ONNX Runtime, their seeded weights, and what goes into their softmax."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from tapestry_plan import Graph, load_onnx
from tapestry_plan.onnx import before_softmax, demo_model, he_random, light_model
from tapestry_plan.onnx import models as onnx_import
from tests.onnx_models import difference, evaluate, model_of, ort, random_feeds

Array = NDArray[Any]
MODELS = Path(__file__).resolve().parents[2] / "models"

# -- networks ----------------------------------------------------------------------------------------------


def check_network(model: Any) -> Graph:
    names = before_softmax(model)
    graph = load_onnx(model, outputs=names)
    graph.validate()
    assert tuple(graph.outputs) == names
    feeds = random_feeds(graph)
    actual = evaluate(graph, feeds)
    for name, wanted in zip(names, ort(model, feeds, names), strict=True):
        assert wanted.std() > 0.01 * np.abs(wanted).max(), "the reference is flat, it would accept anything"
        assert difference(actual[name], wanted) < 1e-4
    return graph


def test_squeezenet_equals_onnx_runtime() -> None:
    graph = check_network(demo_model())
    assert len([node for node in graph.nodes.values() if node.op == "conv"]) == 26
    assert len(graph.selections) >= 8  # the concatenations
    assert 0.6e9 < graph.flop() < 0.8e9


def test_small_resnet_equals_onnx_runtime() -> None:
    graph = check_network(onnx.load(MODELS / "resnet.onnx"))
    assert "node_Conv_232" in graph.nodes  # names are kept


@pytest.mark.heavy
def test_alexnet_equals_onnx_runtime() -> None:
    graph = check_network(light_model("bvlc_alexnet"))
    assert {"local_response_normalization", "conv", "gemm", "max_pool"} <= {node.op for node in graph.nodes.values()}


@pytest.mark.heavy
def test_resnet50_equals_onnx_runtime() -> None:
    graph = check_network(light_model("resnet50"))
    assert 8e9 < graph.flop() < 8.4e9


@pytest.mark.heavy
def test_vgg_like_zfnet_equals_onnx_runtime() -> None:
    check_network(light_model("zfnet512"))


# -- weights -----------------------------------------------------------------------------------------------


def test_weights_are_a_function_of_seed_and_name() -> None:
    a, b, c = demo_model(0), demo_model(0), demo_model(1)
    assert a.SerializeToString(deterministic=True) == b.SerializeToString(deterministic=True)
    one, other = weights_of(a), weights_of(c)
    assert one.keys() == other.keys() and len(one) == 52
    assert all(not np.array_equal(one[name], other[name]) for name in one)


def test_weights_keep_the_magnitude_of_values() -> None:
    weights = weights_of(demo_model())
    kernel = weights["fire2/expand3x3_w_0"]
    assert kernel.std() == pytest.approx((2 / np.prod(kernel.shape[1:])) ** 0.5, rel=0.05)
    assert abs(weights["fire2/expand3x3_b_0"]).max() < 1


def test_gemm_and_normalizations_get_fitting_values() -> None:
    nodes = [
        helper.make_node("ConstantOfShape", ["shape"], ["w"], value=helper.make_tensor("v", 1, [1], [0.02])),
        helper.make_node("Gemm", ["x", "w", "b"], ["h"], transB=1),
        helper.make_node("BatchNormalization", ["h", "s", "b", "m", "v"], ["y"]),
    ]
    ones = np.ones(400, np.float32)
    constants = {"shape": np.array([400, 50]), "b": ones, "s": ones, "m": ones, "v": -ones}
    model = he_random(model_of(nodes, {"x": (3, 50)}, ["y"], constants))
    weights = weights_of(model)
    assert set(weights) == {"w", "b", "s", "m", "v"} and model.graph.node[0].op_type == "Gemm"
    assert weights["w"].std() == pytest.approx((2 / 50) ** 0.5, rel=0.05)
    assert weights["v"].min() >= 0.5 and weights["v"].max() <= 1.5
    assert weights["s"].mean() == pytest.approx(1, abs=0.05) and abs(weights["m"]).max() < 0.6
    check_network(model)


def test_scalars_stay() -> None:
    model = model_of([helper.make_node("Mul", ["x", "half"], ["y"])], {"x": (3,)}, ["y"], {"half": np.float32(0.5)})
    assert weights_of(he_random(model))["half"] == 0.5


def weights_of(model: Any) -> dict[str, Array]:
    return {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}


def test_the_demo_model_is_complete() -> None:
    model = demo_model()
    onnx.checker.check_model(model)
    assert [value.name for value in model.graph.input] == ["data_0"]
    assert model.opset_import[0].version == onnx_import.TARGET_OPSET
    with pytest.raises(ValueError, match=r"no network 'alexnot' in .*; nearest of .* networks: 'bvlc_alexnet'"):
        light_model("alexnot")


def test_values_before_softmax_are_found() -> None:
    folder = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
    assert before_softmax(folder / "light_squeezenet.onnx") == ("r65",)
    assert before_softmax(light_model("resnet50")) == ("r174",)
    graph = load_onnx(demo_model())
    (name,) = before_softmax(graph)
    made = graph.source(graph.outputs["softmaxout_1"]).stored
    (softmax,) = (node for node in graph.nodes.values() if node.outputs == made)
    assert softmax.op == "softmax" and softmax.inputs == (name,)
    assert before_softmax(onnx.load(MODELS / "resnet.onnx")) == ("relu_12", "mean")


def test_onnx_is_imported_when_a_network_is_made() -> None:
    code = "import sys, tapestry_plan.onnx.networks; sys.exit('onnx' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
