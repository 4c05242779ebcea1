"""Attributes of another type than ONNX's, numbers that are too few or out of range: refused by node and name."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import AttributeProto, defs, helper

from tapestry_exec import evaluate
from tapestry_plan import UnsupportedOp
from tapestry_plan.onnx.models import load_onnx
from tapestry_plan.onnx.operators import IMPORTERS
from tests.onnx_cases import NODES
from tests.onnx_models import model_of, ort, random
from tests.plan.onnx.test_attributes import MORE

OTHER: tuple[Any, ...] = (3, 1.5, "a", [3], [1.5], ["a"], helper.make_tensor("t", 1, [1], [3.0]))
"""A value of each type that an attribute of an imported operator has, or may be mistaken for."""
CASES = {case.op: case for case in [*MORE, *NODES] if defs.has(case.op, case.domain) and case.op in IMPORTERS}
TYPED = [
    (op, name) for op in sorted(CASES) for name in defs.get_schema(op, CASES[op].opset).attributes if op in IMPORTERS
]


def with_attribute(model: Any, *attributes: Any) -> Any:
    """A copy of the model whose node has these attributes in place of others of their names."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    (node,) = copy.graph.node
    kept = [one for one in node.attribute if one.name not in {new.name for new in attributes}]
    del node.attribute[:]
    node.attribute.extend([*kept, *attributes])
    return copy


@pytest.mark.parametrize(("op", "name"), TYPED)
def test_every_attribute_of_another_type_is_refused(op: str, name: str) -> None:
    case = CASES[op]
    wanted = defs.get_schema(op, case.opset).attributes[name].type.value
    for value in OTHER:
        made = helper.make_attribute(name, value)
        if made.type == wanted:
            continue
        with pytest.raises(
            UnsupportedOp, match=rf"\({op}\): its attribute {name} = .* is {type_name(made.type)}, {op} takes "
        ):
            load_onnx(with_attribute(case.model, made))


def type_name(code: int) -> str:
    return str(AttributeProto.AttributeType.Name(code))


def test_attributes_that_say_two_things() -> None:
    plain = model_of([helper.make_node("Elu", ["x"], ["y"], name="it")], {"x": (2,)})
    one, two = helper.make_attribute("alpha", 1.0), helper.make_attribute("alpha", 2.0)
    with pytest.raises(UnsupportedOp, match=r"'it' \(Elu\): its attribute alpha is given 2 times; give it once"):
        load_onnx(with_attribute(plain, one, two))
    one.i = 3
    with pytest.raises(UnsupportedOp, match=r"attribute alpha = 1.0 is beside a value of INT, Elu takes FLOAT"):
        load_onnx(with_attribute(plain, one))
    with pytest.raises(UnsupportedOp, match=r"attribute alpha = None is UNDEFINED, Elu takes FLOAT"):
        load_onnx(with_attribute(plain, AttributeProto(name="alpha")))


SQUARE = {"x": (1, 4, 8, 8), "w": (4, 4, 3, 3)}


@pytest.mark.parametrize(
    ("op", "reads", "attrs", "says"),
    [
        ("Conv", "xw", {"auto_pad": "SAME_UPPER", "strides": [0, 0]}, r"strides is \[0, 0\]; Conv takes 2 integers >="),
        ("Conv", "xw", {"auto_pad": "SAME_UPPER", "strides": [1]}, r"strides is \[1\]; Conv takes 2"),
        ("Conv", "xw", {"dilations": [1, -1]}, r"dilations is \[1, -1\]; Conv takes 2 integers >= 1 here"),
        ("Conv", "xw", {"pads": [1, 1]}, r"pads is \[1, 1\]; Conv takes 4 integers here"),
        (
            "AveragePool",
            "x",
            {"auto_pad": "SAME_UPPER", "strides": [0, 0], "kernel_shape": [2, 2]},
            r"strides is \[0, 0\]; AveragePool takes",
        ),
        ("ConvTranspose", "xw", {"output_padding": [0]}, r"output_padding is \[0\]; ConvTranspose takes 2 integers"),
        ("ConvTranspose", "xw", {"output_shape": [9]}, r"output_shape is \[9\]; give the 2 spatial extents"),
    ],
)
def test_numbers_of_windows_are_checked(op: str, reads: str, attrs: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=rf"node 'it' \({op}\): {says}"):
        load_onnx(model_of([helper.make_node(op, list(reads), ["y"], name="it", **attrs)], SQUARE))


@pytest.mark.parametrize(
    ("node", "constants", "says"),
    [
        (helper.make_node("Split", ["x"], ["y", "z"], axis=-3), {}, r"axis is -3; a tensor of rank 2 has the axes -2"),
        (helper.make_node("Pad", ["x", "p", "", "a"], ["y"]), {"p": [1, 1], "a": [5]}, r"axes is \[5\]; a tensor of"),
        (
            helper.make_node("Pad", ["x", "p", "", "a"], ["y"]),
            {"p": [1] * 4, "a": [1, -1]},
            r"axes is \[1, -1\]; .*each once",
        ),
        (helper.make_node("Pad", ["x", "p"], ["y"]), {"p": [1, 1]}, r"pads is \[1, 1\]; two for each of the axes"),
        (
            helper.make_node("Slice", ["x", "b", "e", "a"], ["y"]),
            {"b": [0, 1], "e": [1, 2], "a": [0, -2]},
            r"axes is \[0, -2\]; .*each once",
        ),
        (helper.make_node("Slice", ["x", "b", "e"], ["y"]), {"b": [0, 1], "e": [1]}, "are not equally many"),
        (
            helper.make_node("Resize", ["x", "", "s"], ["y"], axes=[0]),
            {"s": np.array([2, 2], np.float32)},
            r"scales is \[2.0, 2.0\], one for each of the axes \[0\] is needed",
        ),
        (
            helper.make_node("Reshape", ["x", "s"], ["y"]),
            {"s": np.array([2.5, 4])},
            r"its input 1 \(shape\) has dtype float64; integers are needed",
        ),
    ],
)
def test_axes_and_counts_are_checked(node: Any, constants: dict[str, Any], says: str) -> None:
    """Of a square tensor, where another axis would do as well."""
    with pytest.raises(ValueError, match=says):
        load_onnx(model_of([node], {"x": (4, 4)}, tuple(node.output), constants))


@pytest.mark.parametrize("given", [{"n": np.array(4)}, {"x": np.array(4)}, {"x": np.array([4])}, {"n": np.int32(4)}])
def test_sizes_may_be_numpy_s(given: dict[str, Any]) -> None:
    model = model_of([helper.make_node("Relu", ["x"], ["y"])], {"x": ("n",)})
    graph = load_onnx(model, shapes=given)
    np.testing.assert_array_equal(evaluate(graph, {"x": random(4)})["y"], ort(model, {"x": random(4)})[0])


@pytest.mark.parametrize("given", [{"n": np.array(4.5)}, {"x": np.array(None)}, {"x": np.array([[4]])}])
def test_sizes_of_numpy_that_are_none(given: dict[str, Any]) -> None:
    model = model_of([helper.make_node("Relu", ["x"], ["y"])], {"x": ("n",)})
    with pytest.raises(TypeError, match=r"shapes\['[nx]'\].* must be an integer, not "):
        load_onnx(model, shapes=given)
