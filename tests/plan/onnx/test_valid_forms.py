"""Forms of nodes that ONNX or ONNX Runtime takes beside the usual ones: sharded, or whole where importers refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from tapestry_exec import run
from tapestry_plan import Mesh, UnsupportedOp, ops, plan
from tapestry_plan.onnx import load_onnx
from tests.onnx_cases import floats
from tests.onnx_models import model_of, ort

F = np.float32


def model_of_node(
    op: str, given: dict[str, Any], outputs: int = 1, *, opset: int = 21, known: tuple[str, ...] = (), **attrs: Any
) -> Any:
    """A model of one node that reads arrays in their order, some of which are constants."""
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
        for name, value in given.items()
        if name not in known
    ]
    names = [f"y{k}" for k in range(outputs)]
    graph = helper.make_graph(
        [helper.make_node(op, list(given), names, name="node", **attrs)],
        "g",
        inputs,
        [helper.make_empty_tensor_value_info(name) for name in names],
        [numpy_helper.from_array(given[name], name) for name in known],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def on_devices(model: Any, feeds: dict[str, Any], opaque: bool = False) -> list[Any]:
    """What a plan for three devices makes, in the order of the outputs; its predicted bytes are counted."""
    made = plan(load_onnx(model, opaque=opaque), Mesh((3,)))
    found = run(made, feeds)
    assert found.nbytes_moved == made.nbytes_moved
    return [found.outputs[value.name] for value in model.graph.output]


# -- sharded ------------------------------------------------------------------------------------------------------


@pytest.mark.heavy(2)
@pytest.mark.parametrize("op", ["LayerNormalization", "RMSNormalization"])
@pytest.mark.parametrize("shape", [(1, 4), (4,), (3, 1), (1,), (1, 1), (1, 3, 4), (2, 1, 4), (2, 3, 4), (2, 1, 1)])
def test_scales_that_broadcast(op: str, shape: tuple[int, ...]) -> None:
    """To the normalized axes, or to those before them too."""
    given = {"x": floats(2, 3, 4), "scale": floats(*shape, seed=1)}
    has_bias = op == "LayerNormalization"
    model = model_of_node(op, given, opset=21 if has_bias else 23, axis=1)
    x = given["x"].astype(np.float64)
    apart = x - x.mean((1, 2), keepdims=True) if has_bias else x
    wanted = apart / np.sqrt((apart * apart).mean((1, 2), keepdims=True) + 1e-5) * given["scale"]
    np.testing.assert_allclose(on_devices(model, given)[0], wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shape", [(1, 4), (1,), (2, 3, 1), (1, 3, 4)])
@pytest.mark.parametrize("scale", [(4,), (2, 1, 4)])
def test_biases_that_broadcast(shape: tuple[int, ...], scale: tuple[int, ...]) -> None:
    given = {"x": floats(2, 3, 4), "scale": floats(*scale, seed=1), "bias": floats(*shape, seed=2)}
    model = model_of_node("LayerNormalization", given)
    x = given["x"].astype(np.float64)
    apart = x - x.mean(-1, keepdims=True)
    wanted = apart / np.sqrt((apart * apart).mean(-1, keepdims=True) + 1e-5) * given["scale"] + given["bias"]
    np.testing.assert_allclose(on_devices(model, given)[0], wanted, rtol=1e-5, atol=1e-6)


def test_scales_that_do_not_broadcast() -> None:
    for op, opset in (("LayerNormalization", 21), ("RMSNormalization", 23)):
        for shape in ((3,), (5, 2, 3, 4), (2, 2, 4)):
            model = model_of_node(op, {"x": floats(2, 3, 4), "scale": floats(*shape)}, opset=opset)
            with pytest.raises(ValueError, match=r"the scale has shape .*; \(4,\) is needed, the normalized axes") as e:
                load_onnx(model)
            assert not isinstance(e.value, UnsupportedOp)


@pytest.mark.parametrize("width", [1, 2, 3])
@pytest.mark.parametrize("kind", [np.bool_, F])
def test_attention_whose_mask_ends_before_the_keys(width: int, kind: Any) -> None:
    """As ONNX's reference: the keys behind do not count, also where one column could be broadcast."""
    given: dict[str, Any] = {"q": floats(2, 4, 5, 8), "k": floats(2, 2, 3, 8, seed=1), "v": floats(2, 2, 3, 8, seed=2)}
    mask = floats(5, width, seed=3)
    given["mask"] = np.logical_or(mask > 0, np.arange(width) == 0) if kind is np.bool_ else mask
    model = model_of_node("Attention", given, opset=24)
    wanted = ReferenceEvaluator(model).run(None, given)[0]
    np.testing.assert_allclose(on_devices(model, given)[0], wanted, rtol=1e-5, atol=1e-6)
    if width == 1:
        assert np.allclose(wanted, np.repeat(given["v"], 2, 1)[:, :, :1])


@pytest.mark.parametrize("opset", [12, 21, 22])
@pytest.mark.parametrize("order", [0, 1])
@pytest.mark.parametrize(
    "window",
    [
        {"kernel_shape": [3, 2], "strides": [2, 3], "pads": [1, 0, 1, 1]},
        {"kernel_shape": [3, 2], "strides": [2, 3], "pads": [1, 0, 1, 1], "dilations": [2, 1]},
        {"kernel_shape": [2, 3], "strides": [3, 2]},
        {"kernel_shape": [2, 2], "strides": [2, 2], "pads": [1, 1, 1, 1]},
    ],
)
def test_indices_of_windows_beyond_the_padding(window: dict[str, Any], order: int, opset: int) -> None:
    """Up to opset 21 ONNX's inference counts windows that nobody computes."""
    given = {"x": floats(2, 3, 7, 8)}
    model = model_of_node("MaxPool", given, 2, opset=opset, ceil_mode=1, storage_order=order, **window)
    for one, other in zip(on_devices(model, given), ort(model, given), strict=True):
        assert one.dtype == other.dtype and one.shape == other.shape and (one == other).all()


# -- whole --------------------------------------------------------------------------------------------------------


def product_of_vectors(cells: int) -> tuple[Any, dict[str, Any]]:
    """A product of 4 cells by weights of some rows, which its importer does not take and ONNX Runtime runs."""
    weights = np.random.default_rng(0).integers(-9, 9, (cells, 3)).astype(np.int8)
    node = helper.make_node("DynamicQuantizeMatMul", ["x", "b", "s"], ["y"], "node", domain="com.microsoft")
    model = model_of([node], {"x": (4,)}, constants={"b": weights, "s": np.array(0.5, np.float32)})
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    return model, {"x": floats(4)}


def test_what_an_importer_holds_for_wrong_runs_whole_where_it_runs() -> None:
    model, given = product_of_vectors(4)
    graph = load_onnx(model)
    assert [node.op for node in graph.nodes.values()] == ["opaque"]
    assert (on_devices(model, given, opaque=True)[0] == ort(model, given)[0]).all()


def test_by_a_flag_it_is_refused() -> None:
    model, _ = product_of_vectors(4)
    with pytest.raises(UnsupportedOp, match=r"ONNX Runtime or ONNX's reference runs it so, but opaque=False, or --no-"):
        load_onnx(model, opaque=False)


def test_what_nobody_runs_is_refused_as_before() -> None:
    model, _ = product_of_vectors(5)
    with pytest.raises(ValueError, match=r"node 'node' \(DynamicQuantizeMatMul\): ") as caught:
        load_onnx(model)
    assert not isinstance(caught.value, UnsupportedOp)


def test_pools_that_run_whole_have_the_shapes_of_runs() -> None:
    """A pad as long as a window is wrong for the importer; ONNX Runtime says the same."""
    given = {"x": floats(1, 2, 7, 8)}
    model = model_of_node("MaxPool", given, ceil_mode=1, kernel_shape=[2, 2], pads=[2, 0, 0, 0])
    with pytest.raises(ValueError, match="reach over whole windows") as caught:
        load_onnx(model)
    assert not isinstance(caught.value, UnsupportedOp)


# -- in words -----------------------------------------------------------------------------------------------------


def test_a_declaration_by_the_type_alone_lacks_the_domain() -> None:
    node = helper.make_node("FancyOp", ["x"], ["y"], domain="my.dom")
    model = model_of([node], {"x": (4,)})
    model.opset_import.append(helper.make_opsetid("my.dom", 1))
    with pytest.raises(UnsupportedOp, match=r"'FancyOp', which lacks the domain: give it as 'my.dom::FancyOp'"):
        load_onnx(model, ops={"FancyOp": ops.relu})
    assert [node.op for node in load_onnx(model, ops={"my.dom::FancyOp": ops.relu}).nodes.values()] == ["relu"]
