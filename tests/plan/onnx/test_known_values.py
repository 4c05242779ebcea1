"""Inputs whose values the user knows, and sizes given by symbol: as ONNX Runtime computes where they are fed."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tapestry_exec import evaluate
from tapestry_plan import UnsupportedOp
from tapestry_plan.onnx.models import load_onnx
from tests.onnx_cases import NODES, NodeCase, floats, i64
from tests.onnx_models import difference, model_of, ort, random

X = floats(3, 4)
IMAGE = floats(1, 2, 4, 5)
WITH_CONSTANTS = [node for node in NODES if node.constants]


def f32(*values: float) -> Any:
    return np.array(values, np.float32)


MORE = [
    NodeCase("Reshape", {"x": X}, {"shape": i64(2, -1)}),
    NodeCase("Expand", {"x": X}, {"shape": i64(2, 1, 4)}),
    NodeCase("Tile", {"x": X}, {"repeats": i64(2, 1)}),
    NodeCase("Pad", {"x": X}, {"pads": i64(1, 0, 0, 2), "value": np.array(1.5, np.float32)}),
    NodeCase("Slice", {"x": X}, {"s": i64(1), "e": i64(9), "a": i64(-1), "t": i64(2)}),
    NodeCase("Clip", {"x": X}, {"low": np.array(-0.5, np.float32), "high": np.array(0.25, np.float32)}),
    NodeCase("ReduceSum", {"x": X}, {"axes": i64(-1)}, {"keepdims": 0}),
    NodeCase("ReduceSum", {"x": X}, {"axes": i64()}, {"noop_with_empty_axes": 1}),
    NodeCase("Resize", {"x": IMAGE}, {"scales": f32(1, 1, 2, 0.6)}, reads=("x", "", "scales")),
    NodeCase("Resize", {"x": IMAGE}, {"sizes": i64(1, 2, 8, 3)}, reads=("x", "", "", "sizes")),
    NodeCase("TopK", {"x": X}, {"k": i64(2)}, outputs=("y", "i")),
    NodeCase("OneHot", {"x": np.array([0, 3, 1])}, {"depth": np.array(4), "values": f32(0, 2)}),
    NodeCase("Trilu", {"x": X}, {"k": np.array(1)}),
    NodeCase("Split", {"x": X}, {"split": i64(1, 3)}, {"axis": 1}, outputs=("y", "z")),
    NodeCase("Squeeze", {"x": X[None]}, {"axes": i64(0)}),
    NodeCase("Unsqueeze", {"x": X}, {"axes": i64(1)}),
    NodeCase("CumSum", {"x": X}, {"axis": np.array(1)}),
    NodeCase("Gather", {"x": X}, {"i": i64(2, 0, 2)}),
    NodeCase("Dropout", {"x": X}, {"ratio": np.array(0.5, np.float32), "training": np.array(False)}),
]


def as_input(node: NodeCase) -> tuple[Any, dict[str, Any]]:
    """The model of a node whose constants are inputs, and what it is fed."""
    reads = node.reads or (*node.inputs, *node.constants)
    feeds = {name: np.asarray(value) for name, value in {**node.inputs, **node.constants}.items()}
    return NodeCase(node.op, feeds, {}, node.attrs, node.outputs, node.opset, reads, node.domain).model, feeds


@pytest.mark.parametrize("name", ["shapes", "values"])
@pytest.mark.parametrize("wrong", [5, "s", [("s", [2, 6])]])
def test_what_is_no_mapping_is_refused_by_name(name: str, wrong: object) -> None:
    with pytest.raises(TypeError, match=f"load_onnx: {name} is .*; give a mapping"):
        load_onnx(b"", **{name: wrong})  # type: ignore[arg-type]


@pytest.mark.parametrize("node", [*WITH_CONSTANTS, *MORE], ids=str)
def test_operands_that_are_known_inputs_equal_onnx_runtime(node: NodeCase) -> None:
    model, feeds = as_input(node)
    graph = load_onnx(model, values=node.constants)
    assert {name for name, tensor in graph.stored.items() if tensor.kind == "input"} <= node.inputs.keys()
    found = evaluate(graph, node.inputs)
    for actual, wanted in zip(found.values(), ort(model, feeds), strict=True):
        assert difference(actual, wanted) < 1e-5


ASKING = [
    node
    for node in MORE
    if node.op not in ("Clip", "Gather", "Dropout") and all(array.size for array in node.constants.values())
]
"""Without those of one value alone, an operand of no cells."""


@pytest.mark.parametrize("node", ASKING, ids=str)
def test_without_its_value_an_operand_is_refused_with_the_mend(node: NodeCase) -> None:
    model, _ = as_input(node)
    with pytest.raises(ValueError, match=r"give (it|the empty value) with values=\{'\w+': .*\} or --value \w+="):
        load_onnx(model, opaque=False)


def test_an_operand_that_is_computed_names_the_inputs_behind_it() -> None:
    nodes = [
        helper.make_node("Add", ["n", "n"], ["twice"]),
        helper.make_node("Concat", ["twice", "m"], ["shape"], axis=0),
        helper.make_node("Reshape", ["x", "shape"], ["y"], name="it"),
    ]
    inputs = [("x", TensorProto.FLOAT, (4, 3)), ("n", TensorProto.INT64, (1,)), ("m", TensorProto.INT64, ("k",))]
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info(*one) for one in inputs],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=8)
    says = r"node 'it' \(Reshape\): its input 1 \(shape\) is 'shape', which the model computes from 'm', 'n'; it must"
    with pytest.raises(UnsupportedOp, match=says):
        load_onnx(model, shapes={"k": 1})
    feeds = {"x": random(4, 3), "n": i64(3), "m": i64(2)}
    found = evaluate(load_onnx(model, values={"n": [3], "m": i64(2)}), {"x": feeds["x"]})
    np.testing.assert_array_equal(found["y"], ort(model, feeds)[0])


def test_numbers_take_the_dtype_and_the_rank_of_the_input() -> None:
    model, feeds = as_input(NodeCase("TopK", {"x": X}, {"k": i64(2)}, outputs=("y", "i")))
    for k in (2, [2], (2,), i64(2)):
        np.testing.assert_array_equal(evaluate(load_onnx(model, values={"k": k}), {"x": X})["i"], ort(model, feeds)[1])
    clip, _ = as_input(NodeCase("Clip", {"x": X}, {"low": np.array(0.1, np.float32)}))
    assert evaluate(load_onnx(clip, values={"low": 0.1}), {"x": X})["y"].min() == np.float32(0.1)


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"q": [2]}, r"values names 'q', which is not an input; known inputs: 'x', 'k'"),
        (
            {"k": np.array([2], np.int32)},
            r"values\['k'\] has dtype int32, the input has int64: convert it with .astype",
        ),
        ({"k": [2.5]}, r"values\['k'\] is \[2.5\], which int64 has not"),
        ({"k": [2**70]}, r"values\['k'\] is .*give an array of int64"),
        ({"k": ["2"]}, r"values\['k'\] is \['2'\]; give an array of int64"),
        (
            {"k": [[2], [2, 3]]},
            r"values\['k'\] is \[\[2\], \[2, 3\]\], whose rows differ in length; give an array of int64, or numbers",
        ),
        ({"k": [2, 3]}, r"values\['k'\] of shape \(2,\) says 2 on axis 0, but the model fixes it to 1"),
        ({"k": [[2]]}, r"values\['k'\] of shape \(1, 1\) has rank 2, the input has rank 1: \(1\)"),
    ],
)
def test_values_that_do_not_fit(values: Any, says: str) -> None:
    model, _ = as_input(NodeCase("TopK", {"x": X}, {"k": i64(2)}, outputs=("y", "i")))
    with pytest.raises(ValueError, match=rf"load_onnx: the model: {says}"):
        load_onnx(model, values=values)


def test_a_value_goes_before_an_initializer_and_is_copied() -> None:
    """Models of old IR versions list their weights as inputs, each with the value that it has by default."""
    model = model_of([helper.make_node("Add", ["x", "w"], ["y"])], {"x": (2,), "w": (2,)}, constants={"w": random(2)})
    given = f32(5, 6)
    graph = load_onnx(model, values={"w": given})
    given[:] = 0
    feeds = {"x": f32(1, 2), "w": f32(5, 6)}
    np.testing.assert_array_equal(evaluate(graph, {"x": feeds["x"]})["y"], ort(model, feeds)[0])


def test_an_overridden_initializer_is_not_read_from_the_file(tmp_path: Any) -> None:
    model = model_of([helper.make_node("Add", ["x", "w"], ["y"])], {"x": (2,), "w": (2,)}, constants={"w": random(2)})
    onnx.save(model, tmp_path / "m.onnx")
    assert load_onnx(tmp_path / "m.onnx").stored["w"].path is not None
    assert load_onnx(tmp_path / "m.onnx", values={"w": [5, 6]}).stored["w"].path is None


# -- sizes by symbol ---------------------------------------------------------------------------------------


def two_batches() -> Any:
    """Two inputs with a batch axis, and what is added to both."""
    nodes = [helper.make_node("Add", ["x", "z"], ["y"])]
    return model_of(nodes, {"x": ("batch", 3), "z": ("batch", 3), "u": ("?", "other")})


def test_sizes_are_given_by_symbol() -> None:
    model = two_batches()
    feeds = {"x": random(4, 3), "z": random(4, 3, seed=2)}
    given: tuple[Any, ...] = (
        {"batch": 4},
        {"batch": np.int64(4)},
        {"batch": [4]},
        {"x": [4, 3]},
        {"x": [4, 3], "batch": 4},
    )
    for shapes in given:
        graph = load_onnx(model, shapes=shapes)
        (wanted,) = ort(model, {**feeds, "u": random(1, 1)})
        np.testing.assert_array_equal(evaluate(graph, feeds)["y"], wanted)
    assert load_onnx(model, values={"x": feeds["x"]}).stored["z"].shape == (4, 3)


@pytest.mark.parametrize(
    ("shapes", "says"),
    [
        (
            {"q": 4},
            r"shapes names 'q', which is neither an input nor an open axis; known inputs: 'x', 'z', 'u'; "
            r"known symbols of open axes: 'batch', 'other'",
        ),
        (
            {"x": [4, 3], "z": [5, 3]},
            r"the symbol 'batch' is 4 by shapes\['x'\] = \(4, 3\) on axis 0 and 5 by shapes\['z'\] = \(5, 3\) on "
            r"axis 0; it stands for one",
        ),
        ({"batch": 4, "x": [5, 3]}, r"the symbol 'batch' is 4 by shapes\['batch'\] = 4 and 5 by shapes\['x'\]"),
        ({"batch": -1}, r"shapes\['batch'\] must be at least 0, not -1"),
        ({"other": 4}, r"dynamic on axis 0 \(batch\); fix it with .*shapes=\{'batch': …\} or --shape batch=…"),
    ],
)
def test_symbols_that_do_not_fit(shapes: Any, says: str) -> None:
    with pytest.raises(ValueError, match=rf"load_onnx: the model: .*{says}"):
        load_onnx(two_batches(), shapes=shapes)


def test_sizes_are_whole_numbers() -> None:
    wrong: tuple[Any, ...] = (2.0, "2", [2.5], True)
    for size in wrong:
        with pytest.raises(TypeError, match=r"load_onnx: the model: shapes\['batch'\]"):
            load_onnx(two_batches(), shapes={"batch": size})
    pair: Any = [2.5, 3]
    with pytest.raises(TypeError, match=r"shapes\['x'\]\[0\]"):
        load_onnx(two_batches(), shapes={"x": pair})


def test_a_mark_is_not_a_symbol() -> None:
    """Some exporters write ``?`` for every open axis, whatever its size."""
    model = model_of([helper.make_node("MatMul", ["x", "z"], ["y"])], {"x": ("?", 3), "z": (3, "?")})
    graph = load_onnx(model, shapes={"x": [2, 3], "z": [3, 5]})
    assert graph.tensor(graph.outputs["y"]).shape == (2, 5)
    value = numpy_helper.to_array(numpy_helper.from_array(random(2, 3)))
    assert evaluate(graph, {"x": value, "z": random(3, 5)})["y"].shape == (2, 5)
