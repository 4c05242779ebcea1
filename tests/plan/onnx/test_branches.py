"""If with a condition that is known at import takes its branch, as ONNX Runtime computes it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from tapestry_exec import evaluate
from tapestry_plan import UnsupportedOp
from tapestry_plan.onnx.models import load_onnx
from tests.onnx_models import ort, random

make = helper.make_node


def branch(nodes: list[Any], outputs: tuple[str, ...] = ("out",), constants: dict[str, Any] | None = None) -> Any:
    weights = [numpy_helper.from_array(np.asarray(value), name) for name, value in (constants or {}).items()]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
    return helper.make_graph(nodes, "branch", [], values, weights)


THEN = branch([make("Add", ["h", "w"], ["t"]), make("Relu", ["t"], ["out"])], constants={"w": random(3, seed=5)})
ELSE = branch([make("Neg", ["h"], ["t"]), make("Mul", ["t", "z"], ["out"])])


def by_rank(then: Any = THEN, other: Any = ELSE) -> Any:
    """Which branch is taken depends on the rows of x: 2 or others."""
    return [
        make("Exp", ["x"], ["h"]),
        make("Shape", ["x"], ["s"]),
        make("Gather", ["s", "zero"], ["rows"]),
        make("Equal", ["rows", "two"], ["c"]),
        make("If", ["c"], ["y"], name="choose", then_branch=then, else_branch=other),
    ]


def model(nodes: Any, outputs: tuple[str, ...] = ("y",), **inputs: Any) -> Any:
    given = {"x": (TensorProto.FLOAT, ("n", 3)), "z": (TensorProto.FLOAT, (3,)), **inputs}
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(name, *one) for name, one in given.items()],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        [numpy_helper.from_array(np.array(0), "zero"), numpy_helper.from_array(np.array(2), "two")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=8)


@pytest.mark.parametrize("rows", [2, 4])
def test_a_condition_that_follows_from_shapes(rows: int) -> None:
    made = model(by_rank())
    feeds = {"x": random(rows, 3), "z": random(3, seed=2)}
    graph = load_onnx(made, shapes={"n": rows})
    np.testing.assert_allclose(evaluate(graph, feeds)["y"], ort(made, feeds)[0], rtol=1e-6)
    assert ("z" in graph.stored) == (rows != 2), "the other branch alone reads z"


@pytest.mark.parametrize("known", [True, False])
def test_a_condition_that_is_given(known: bool) -> None:
    nodes = [make("Exp", ["x"], ["h"]), make("If", ["c"], ["y"], then_branch=THEN, else_branch=ELSE)]
    made = model(nodes, c=(TensorProto.BOOL, ()))
    feeds = {"x": random(2, 3), "z": random(3, seed=2), "c": np.array(known)}
    graph = load_onnx(made, shapes={"n": 2}, values={"c": known})
    np.testing.assert_allclose(evaluate(graph, feeds)["y"], ort(made, feeds)[0], rtol=1e-6)
    with pytest.raises(UnsupportedOp, match=r"'If_0': If .*whose condition 'c' is not known in advance \(give"):
        load_onnx(made, shapes={"n": 2})


@pytest.mark.parametrize("rows", [2, 4])
def test_branches_in_branches_read_names_of_all_around(rows: int) -> None:
    deep = branch([make("Neg", ["h"], ["q"]), make("Mul", ["q", "z"], ["out"])])
    near = branch([make("Add", ["t", "h"], ["out"])])
    inner = make("If", ["c"], ["u"], name="inner", then_branch=near, else_branch=deep)
    outer = branch(
        [make("Sub", ["h", "z"], ["t"]), inner, make("Mul", ["u", "t"], ["v"]), make("Identity", ["h"], ["w"])],
        ("v", "w"),
    )
    nodes = by_rank()[:-1]
    for k in range(2):  # the same names inside, twice
        nodes.append(make("If", ["c"], [f"y{k}", f"e{k}"], name=f"choose{k}", then_branch=outer, else_branch=outer))
    nodes.append(make("Sum", ["y0", "y1", "e0"], ["y"]))
    made = model(nodes)
    feeds = {"x": random(rows, 3), "z": random(3, seed=2)}
    found = evaluate(load_onnx(made, shapes={"n": rows}), feeds)
    np.testing.assert_allclose(found["y"], ort(made, feeds)[0], rtol=1e-5)


def test_a_branch_that_is_not_taken_may_be_anything() -> None:
    strange = branch([make("Unique", ["h"], ["out"])])
    made = model(by_rank(THEN, strange))
    assert load_onnx(made, shapes={"n": 2}).outputs
    with pytest.raises(UnsupportedOp, match="node 'choose/Unique_0': Unique"):
        load_onnx(made, shapes={"n": 4})
    with pytest.raises(ValueError, match=r"dynamic on axis 0 \(n\)"):
        load_onnx(made)


def test_a_condition_that_is_computed_is_refused() -> None:
    nodes = [make("Exp", ["x"], ["h"]), make("ReduceSum", ["h"], ["s"], keepdims=0), make("Cast", ["s"], ["c"], to=9)]
    nodes.append(make("If", ["c"], ["y"], name="choose", then_branch=THEN, else_branch=ELSE))
    with pytest.raises(
        UnsupportedOp, match=r"node 'choose': If .*with a graph inside, whose condition 'c' is not known"
    ):
        load_onnx(model(nodes), shapes={"n": 2})


def test_branches_of_the_wrong_form() -> None:
    nodes = by_rank(branch([make("Relu", ["h"], ["out"])], ("out", "out")))
    with pytest.raises(ValueError, match=r"node 'choose' \(If\): its then_branch has 2 outputs, the node has 1"):
        load_onnx(model(nodes), shapes={"n": 2})
