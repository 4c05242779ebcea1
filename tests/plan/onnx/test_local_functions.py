"""Local functions: put in place as ONNX Runtime computes them, and calls that do not fit are refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from tapestry_exec import evaluate
from tapestry_plan.onnx.models import load_onnx
from tests.onnx_models import model_of, ort, random

make = helper.make_node
OPSETS = [helper.make_opsetid("", 21), helper.make_opsetid("own", 1)]


def elu(**more: Any) -> Any:
    """A function whose alpha is an attribute, with a default."""
    node = make("Elu", ["a"], ["b"])
    node.attribute.add(name="alpha", ref_attr_name="alpha", type=1)
    default = [helper.make_attribute("alpha", 0.5)]
    return helper.make_function("own", "F", ["a"], ["b"], [node], OPSETS, attribute_protos=default, **more)


def calling(function: Any, *calls: Any) -> Any:
    model = model_of([*(calls or [call()])], {"x": (3, 4)})
    model.opset_import.append(OPSETS[1])
    model.functions.append(function)
    return model


def call(name: str = "F", domain: str = "own", reads: tuple[str, ...] = ("x",), **attrs: Any) -> Any:
    return make(name, reads, ["y"], "it", domain=domain, **attrs)


@pytest.mark.parametrize("attrs", [{}, {"alpha": 2.0}])
@pytest.mark.parametrize("is_inside", [False, True])
def test_attributes_of_functions_have_defaults(attrs: dict[str, Any], is_inside: bool) -> None:
    model = calling(elu(), call(**attrs))
    if is_inside:
        model = calling(helper.make_function("own", "G", ["x"], ["y"], [call(**attrs)], OPSETS), call("G"))
        model.functions.append(elu())
    before = model.SerializeToString()
    feeds = {"x": random(3, 4) - np.float32(0.5)}
    np.testing.assert_allclose(evaluate(load_onnx(model), feeds)["y"], ort(model, feeds)[0], rtol=1e-6)
    assert model.SerializeToString() == before


def test_an_attribute_without_a_value_is_the_operator_s() -> None:
    function = elu()
    del function.attribute_proto[:]
    function.attribute.append("alpha")
    model = calling(function)
    feeds = {"x": random(3, 4) - np.float32(0.5)}
    np.testing.assert_allclose(evaluate(load_onnx(model), feeds)["y"], ort(model, feeds)[0], rtol=1e-6)


def twice_given() -> Any:
    node = call(alpha=1.0)
    node.attribute.append(helper.make_attribute("alpha", 2.0))
    return node


@pytest.mark.parametrize(
    ("node", "says"),
    [
        (
            call(foo=3),
            r"node 'it' \(F\): its attribute 'foo' is not one of the local function own::F; known attributes: 'alpha'",
        ),
        (twice_given(), r"node 'it' \(F\): its attribute alpha is given 2 times; give it once"),
        (call(alpha=3), r"\(Elu\): its attribute alpha = 3 is INT, Elu takes FLOAT"),
        (call(reads=("x", "x")), r"node 'it' \(F\) has 2 inputs, the local function own::F has 1"),
        (make("F", ["x"], ["y", "z"], "it", domain="own"), r"node 'it' \(F\) has 2 outputs, the local function own::F"),
    ],
)
def test_calls_that_do_not_fit(node: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        load_onnx(calling(elu(), node))


def test_calls_inside_branches_and_functions_are_checked() -> None:
    value = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    body = helper.make_graph([call(foo=3)], "body", [], [value])
    choose = make("If", ["c"], ["y"], then_branch=body, else_branch=body)
    model = model_of([choose], {"x": (3, 4)}, constants={"c": np.array(True)})
    model.opset_import.append(OPSETS[1])
    model.functions.append(elu())
    with pytest.raises(ValueError, match="its attribute 'foo' is not one of the local function own::F"):
        load_onnx(model)
    outer = helper.make_function("own", "G", ["x"], ["y"], [call(foo=3)], OPSETS)
    model = calling(outer, call("G"))
    model.functions.append(elu())
    with pytest.raises(ValueError, match="its attribute 'foo' is not one of the local function own::F"):
        load_onnx(model)


def test_a_function_of_an_operator_s_name_is_refused_in_onnx_s_domain_alone() -> None:
    """Runtimes may let either count, says ONNX: its inliner takes the function, ONNX Runtime the operator."""
    negative = helper.make_function("", "Relu", ["a"], ["b"], [make("Neg", ["a"], ["b"])], OPSETS)
    for domain in ("", "ai.onnx"):
        negative.domain = domain
        with pytest.raises(ValueError, match=r"node 'it' \(Relu\): opset 21 has an operator Relu, and the model a loc"):
            load_onnx(calling(negative, call("Relu", "")))
    negative.domain = "own"
    model = calling(negative, call("Relu"))
    feeds = {"x": random(3, 4)}
    np.testing.assert_array_equal(evaluate(load_onnx(model), feeds)["y"], ort(model, feeds)[0])


def test_a_function_written_for_another_opset_is_converted() -> None:
    older = elu()
    older.opset_import[0].version = 13
    feeds = {"x": random(3, 4) - np.float32(0.5)}
    wanted = np.where(feeds["x"] < 0, np.float32(0.5) * np.expm1(feeds["x"]), feeds["x"])
    np.testing.assert_allclose(evaluate(load_onnx(calling(older)), feeds)["y"], wanted, rtol=1e-5)


def test_a_function_written_for_another_version_of_a_domain_says_so() -> None:
    older = helper.make_function("own", "F", ["a"], ["b"], [make("Relu", ["a"], ["b"])], OPSETS)
    older.opset_import.append(helper.make_opsetid("other", 2))
    model = calling(older)
    model.opset_import.append(helper.make_opsetid("other", 1))
    with pytest.raises(
        ValueError, match=r"'it' \(F\): the local function own::F is written for version 2 of 'other', the"
    ):
        load_onnx(model)


def test_functions_that_make_a_tensor_twice_are_refused() -> None:
    nodes = [make("Relu", ["a"], ["b"]), make("Neg", ["a"], ["b"])]
    with pytest.raises(ValueError, match=r"tensor 'b' of function 'F' is made twice, by node 'Relu_0' \(Relu\) and by"):
        load_onnx(calling(helper.make_function("own", "F", ["a"], ["b"], nodes, OPSETS)))
    nodes = [make("Relu", ["a"], ["b"]), make("Neg", ["b"], ["a"])]
    with pytest.raises(ValueError, match=r"tensor 'a' of function 'F' is made twice, by an input and by node 'Neg_0'"):
        load_onnx(calling(helper.make_function("own", "F", ["a"], ["b"], nodes, OPSETS)))


def test_a_reference_to_what_the_function_does_not_declare_is_refused() -> None:
    function = elu()
    function.node[0].attribute[0].ref_attr_name = "beta"
    with pytest.raises(
        ValueError, match=r"'Elu_0' \(Elu\) of function 'F': its attribute alpha is the function's beta"
    ):
        load_onnx(calling(function))


def test_tensors_inside_functions_are_checked() -> None:
    value = helper.make_tensor("v", TensorProto.FLOAT, [2, 2], [1.0, 2.0, 3.0, 4.0])
    del value.float_data[3:]
    nodes = [make("Constant", [], ["c"], value=value), make("Add", ["a", "c"], ["b"])]
    with pytest.raises(ValueError, match=r"tensor 'v' holds 3 values; dims \[2, 2\] need 4"):
        load_onnx(calling(helper.make_function("own", "F", ["a"], ["b"], nodes, OPSETS)))
