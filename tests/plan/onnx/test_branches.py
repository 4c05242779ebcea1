"""If with a condition that is known at import takes its branch, as ONNX Runtime computes it."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from tapestry_exec import evaluate, run, run_stages
from tapestry_plan import Mesh, UnsupportedOp, plan
from tapestry_plan.onnx import StagedModel
from tapestry_plan.onnx.models import load_onnx
from tests.onnx_models import ort, random

make = helper.make_node


def branch(nodes: list[Any], outputs: tuple[str, ...] = ("out",), constants: dict[str, Any] | None = None) -> Any:
    weights = [numpy_helper.from_array(np.asarray(value), name) for name, value in (constants or {}).items()]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
    return helper.make_graph(nodes, "branch", [], values, weights)


THEN = branch([make("Add", ["h", "w"], ["t"]), make("Relu", ["t"], ["out"])], constants={"w": random(3, seed=5)})
ELSE = branch([make("Neg", ["h"], ["t"]), make("Mul", ["t", "z"], ["out"])])
WIDE = branch([make("Concat", ["h", "h"], ["out"], axis=0)])
"""A branch with an output of another shape."""


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
    both = load_onnx(made, shapes={"n": 2}, opaque=False)
    np.testing.assert_allclose(evaluate(both, feeds)["y"], ort(made, feeds)[0], rtol=1e-6)


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


def test_a_condition_that_is_computed_is_refused_between_branches_that_differ_in_shape() -> None:
    nodes = [make("Exp", ["x"], ["h"]), make("ReduceSum", ["h"], ["s"], keepdims=0), make("Cast", ["s"], ["c"], to=9)]
    nodes.append(make("If", ["c"], ["y"], name="choose", then_branch=THEN, else_branch=WIDE))
    with pytest.raises(
        UnsupportedOp,
        match=r"node 'choose': If .*a graph inside, whose condition is 'c', which the model computes from 'x'",
    ):
        load_onnx(model(nodes), shapes={"n": 2}, opaque=False)


def test_branches_of_the_wrong_form() -> None:
    nodes = by_rank(branch([make("Relu", ["h"], ["out"])], ("out", "out")))
    with pytest.raises(ValueError, match=r"node 'choose' \(If\): its then_branch has 2 outputs, the node has 1"):
        load_onnx(model(nodes), shapes={"n": 2})


# -- what an If must be --------------------------------------------------------------------------------------


def single(then: Any = THEN, other: Any = ELSE, reads: tuple[str, ...] = ("c",), **attrs: Any) -> list[Any]:
    return [
        make("Exp", ["x"], ["h"]),
        make("If", reads, ["y"], name="choose", then_branch=then, else_branch=other, **attrs),
    ]


def with_condition(value: Any, nodes: list[Any]) -> Any:
    made = model(nodes)
    made.graph.initializer.append(numpy_helper.from_array(np.asarray(value), "c"))
    return made


@pytest.mark.parametrize(
    ("value", "nodes", "says"),
    [
        (1.5, single(), r"its condition 'c' is 1.5 of dtype float64 and shape \(\); one truth value is needed"),
        (np.nan, single(), r"its condition 'c' is nan of dtype float64"),
        (1, single(), r"its condition 'c' is 1 of dtype int64"),
        ([True, False], single(), r"its condition 'c' is \[True, False\] of dtype bool and shape \(2,\)"),
        (True, single(reads=("c", "x")), "has 2 inputs; If takes 1"),
        (True, single(reads=()), "has 0 inputs; If takes 1"),
        (
            True,
            single(foo=1),
            r"its attribute foo = 1 is not one of If in opset 21; known attributes: 'else_branch', 'then_branch'",
        ),
        (True, single(beside=ELSE), r"its attribute beside is not one of If in opset 21"),
        (True, single(then=3), r"its attribute then_branch = 3 is INT, If takes GRAPH"),
        (True, single(branch([], ("nobody",))), "its branch 'branch' gives 'nobody', which no node makes and which is"),
    ],
)
def test_what_no_if_is(value: Any, nodes: list[Any], says: str) -> None:
    with pytest.raises(ValueError, match=rf"node 'choose' \(If\):? .*{says}"):
        load_onnx(with_condition(value, nodes), shapes={"n": 2})


@pytest.mark.parametrize("condition", [True, False])
@pytest.mark.parametrize("name", ["then_branch", "else_branch"])
def test_an_if_has_both_branches(name: str, condition: bool) -> None:
    """ONNX requires both, whichever is taken; what may stand in place of one is nowhere said."""
    nodes = single()
    kept = [one for one in nodes[1].attribute if one.name != name]
    del nodes[1].attribute[:]
    nodes[1].attribute.extend(kept)
    says = rf"node 'choose' \(If\): the attribute '{name}' is missing, which If needs in opset 21: export the model"
    with pytest.raises(ValueError, match=says):
        load_onnx(with_condition(condition, nodes), shapes={"n": 2})


def test_a_branch_with_inputs_is_refused() -> None:
    asking = branch([make("Relu", ["a"], ["out"])])
    asking.input.append(helper.make_tensor_value_info("a", TensorProto.FLOAT, None))
    with pytest.raises(ValueError, match=r"'choose' \(If\): its then_branch has the input 'a'; branches have none"):
        load_onnx(with_condition(True, single(asking)), shapes={"n": 2})


@pytest.mark.parametrize(
    ("twice", "says"),
    [
        (
            branch([make("Relu", ["h"], ["out"]), make("Neg", ["h"], ["out"])]),
            r"tensor 'out' of graph 'branch' is made twice, by node 'Relu_0' \(Relu\) and by node 'Neg_0' \(Neg\)",
        ),
        (
            branch([make("Relu", ["h"], ["out"])], constants={"out": random(3)}),
            "tensor 'out' of graph 'branch' is made twice, by an initializer and by node 'Relu_0'",
        ),
    ],
)
def test_a_branch_that_makes_a_tensor_twice_is_refused_taken_or_not(twice: Any, says: str) -> None:
    for value in (True, False):
        with pytest.raises(ValueError, match=says):
            load_onnx(with_condition(value, single(twice)), shapes={"n": 2})
        deep = branch([make("If", ["c"], ["out"], then_branch=twice, else_branch=twice)])
        with pytest.raises(ValueError, match=says):
            load_onnx(with_condition(value, single(deep)), shapes={"n": 2})


def test_names_of_branches_are_their_own() -> None:
    """A branch may call its result as the If does: it does not read what it makes."""
    same = branch([make("Relu", ["h"], ["y"])], ("y",))
    feeds = {"x": random(2, 3), "z": random(3)}
    graph = load_onnx(with_condition(True, single(same)), shapes={"n": 2})
    np.testing.assert_allclose(evaluate(graph, {"x": feeds["x"]})["y"], np.exp(feeds["x"]), rtol=1e-6)


def test_constants_of_branches_are_named_after_the_if() -> None:
    """Where something is wrong with them, the user finds the If by its name."""
    strange = branch([make("Split", ["w"], ["a", "out"], axis=7)], constants={"w": random(3)})
    with pytest.raises(ValueError, match="node 'choose/Split_0'"):
        load_onnx(with_condition(True, single(strange)), shapes={"n": 2})
    shape = branch([], ("w",), {"w": np.array([3, 2])})
    nodes = [
        make("If", ["c"], ["s"], name="choose", then_branch=shape, else_branch=shape),
        make("Reshape", ["x", "s"], ["y"]),
    ]
    graph = load_onnx(with_condition(True, nodes), shapes={"n": 2})
    np.testing.assert_array_equal(evaluate(graph, {"x": random(2, 3)})["y"], random(2, 3).reshape(3, 2))


def test_a_condition_that_is_too_large_to_fold_says_so() -> None:
    nodes = [
        make("Expand", ["two", "s"], ["e"], name="wide"),
        make("ReduceSum", ["e"], ["q"], keepdims=0),
        make("Cast", ["q"], ["b"], to=9),
        make("If", ["b"], ["u"], name="first", then_branch=THEN, else_branch=WIDE),
        make("ReduceMax", ["u"], ["m"], keepdims=0),
        make("Cast", ["m"], ["b2"], to=9),
        make("If", ["b2"], ["y"], name="second", then_branch=THEN, else_branch=WIDE),
        make("Exp", ["x"], ["h"]),
    ]
    made = model(nodes)
    made.graph.initializer.append(numpy_helper.from_array(np.array([10**9, 100]), "s"))
    large = r"'b', which is not known: node 'wide' \(Expand\) would read and make 800,000,000,024 bytes at import"
    with pytest.raises(UnsupportedOp, match=rf"(?s)'first': If .* whose condition is {large}") as error:
        load_onnx(made, shapes={"n": 2}, opaque=False)
    line = next(line for line in str(error.value).splitlines() if "node 'second'" in line)
    assert "whose condition is 'b2', which depends on node 'first' (If), whose condition is 'b', which is not" in line


# -- many of them --------------------------------------------------------------------------------------------


def chain(count: int, depends: bool) -> Any:
    """Ifs one after the other; where one depends on the other, each decides the next."""
    nodes, before, condition = [make("Exp", ["x"], ["h"])], "h", "c"
    for k in range(count):
        then = branch([make("Neg", [before], ["out"]), make("Not", [condition], ["d"])], ("out", "d"))
        other = branch([make("Abs", [before], ["out"]), make("Not", [condition], ["d"])], ("out", "d"))
        for one in (then, other):
            one.output[1].type.tensor_type.elem_type = TensorProto.BOOL
        nodes.append(make("If", [condition], [f"t{k}", f"c{k}"], then_branch=then, else_branch=other))
        before, condition = f"t{k}", f"c{k}" if depends else "c"
    return with_condition(True, [*nodes, make("Identity", [before], ["y"])])


@pytest.mark.heavy(2)
@pytest.mark.parametrize("depends", [False, True])
def test_many_ifs_take_as_long_as_many_nodes(depends: bool) -> None:
    """Twenty seconds for 1,500 when each looked at all nodes."""
    graph = load_onnx(chain(6, depends), shapes={"n": 2})
    feeds = {"x": random(2, 3)}
    np.testing.assert_allclose(evaluate(graph, feeds)["y"], ort(chain(6, depends), {**feeds, "z": random(3)})[0], 1e-6)
    load_onnx(chain(20, depends), shapes={"n": 2})
    few, many = (fastest(chain(count, depends)) for count in (100, 400))
    assert many < 10 * few, "four times as many"


def fastest(made: Any) -> float:
    def once() -> float:
        begin = time.process_time()
        load_onnx(made, shapes={"n": 2})
        return time.process_time() - begin

    return min(once() for _ in range(2))


def test_an_if_that_only_a_branch_not_taken_needs_is_not_decided() -> None:
    """Its condition is unknown, and nobody asks."""
    nodes = [
        make("Exp", ["x"], ["h"]),
        make("ReduceMax", ["x"], ["m"], keepdims=0),
        make("Cast", ["m"], ["b"], to=9),
        make("If", ["b"], ["u"], name="open", then_branch=THEN, else_branch=WIDE),
        make("If", ["c"], ["y"], name="choose", then_branch=THEN, else_branch=branch([make("Abs", ["u"], ["out"])])),
    ]
    assert load_onnx(with_condition(True, nodes), shapes={"n": 2}).outputs
    with pytest.raises(UnsupportedOp, match=r"node 'open': If .*computes from 'x'"):
        load_onnx(with_condition(False, nodes), shapes={"n": 2}, opaque=False)


# -- conditions that a run computes --------------------------------------------------------------------------


def computed(*tests: str) -> list[Any]:
    """Truth values that each follow from the sum of x."""
    whole = [
        make("Exp", ["x"], ["h"]),
        make("ReduceSum", ["x"], ["s"], keepdims=0),
        make("Cast", ["zero"], ["o"], to=1),
    ]
    return [*whole, *(make(op, ["s", "o"], [name]) for op, name in zip(("Greater", "Less"), tests, strict=False))]


def compare_both(nodes: list[Any], outputs: tuple[str, ...] = ("y",)) -> Any:
    """Plan and run a model on both sides of its condition, as ONNX Runtime runs it."""
    made = model(nodes, outputs)
    graph = load_onnx(made, shapes={"n": 4}, opaque=False)
    made.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 4
    p = plan(graph, Mesh(3))
    for sign in (1, -1):
        given = {"x": sign * abs(random(4, 3)), "z": random(3, seed=2)}
        found = run(p, {name: given[name] for name in graph.stored if name in given}).outputs
        for name, wanted in zip(outputs, ort(made, given), strict=True):
            np.testing.assert_allclose(found[name], wanted, rtol=1e-5, atol=1e-6, err_msg=f"{name}, {sign}")
    return p


def test_a_computed_condition_runs_both_branches_in_parts() -> None:
    p = compare_both([*computed("c"), make("If", ["c"], ["y"], name="choose", then_branch=THEN, else_branch=ELSE)])
    assert p.sharding["Exp_0"] and p.sharding["choose/then/Relu_1"] and p.sharding["choose/y"]
    assert not any(node.op == "opaque" for node in p.graph.nodes.values())


def test_a_computed_condition_chooses_several_outputs() -> None:
    nodes = [make("Neg", ["h"], ["a"]), make("ArgMax", ["h"], ["b"], keepdims=0), make("Less", ["h", "z"], ["d"])]
    other = [make("Mul", ["h", "z"], ["a"]), make("ArgMin", ["h"], ["b"], keepdims=0), make("Less", ["z", "h"], ["d"])]
    branches = [branch(one, ("a", "b", "d")) for one in (nodes, other)]
    for one in branches:
        one.output[1].type.tensor_type.elem_type = TensorProto.INT64
        one.output[2].type.tensor_type.elem_type = TensorProto.BOOL
    choose = make("If", ["c"], ["y", "i", "t"], name="choose", then_branch=branches[0], else_branch=branches[1])
    casts = [make("Cast", ["i"], ["j"], to=1), make("Cast", ["t"], ["u"], to=1)]
    compare_both([*computed("c"), choose, *casts], ("y", "j", "u"))


def test_computed_conditions_within_branches() -> None:
    """Both are computed; the inner one reads what the outer branch made, and what is outside of both."""
    near, far = (branch([make(op, ["q", "z"], [name])], (name,)) for op, name in (("Mul", "a"), ("Add", "b")))
    inner = make("If", ["d"], ["u"], name="inner", then_branch=near, else_branch=far)
    outer = branch([make("Sub", ["h", "z"], ["q"]), inner, make("Add", ["u", "q"], ["p"])], ("p",))
    choose = make("If", ["c"], ["y"], name="choose", then_branch=outer, else_branch=THEN)
    follows = [make("ReduceMax", ["y"], ["m"], keepdims=0), make("Less", ["m", "s"], ["e"])]
    again = make("If", ["e"], ["v"], name="again", then_branch=branch([make("Neg", ["y"], ["out"])]), else_branch=outer)
    compare_both([*computed("c", "d"), choose, *follows, again], ("y", "v"))


def test_what_the_other_branch_makes_of_its_cells_does_not_leak() -> None:
    """They have no sense there: NaN of negative numbers' logarithms, and infinities of a division by zero."""
    then = branch([make("Log", ["x"], ["l"]), make("Div", ["l", "o"], ["out"])])
    nodes = [*computed("c"), make("If", ["c"], ["y"], name="choose", then_branch=ELSE, else_branch=then)]
    made = model(nodes)
    graph = load_onnx(made, shapes={"n": 4})
    x, z = np.tile(np.float32([1, -1, 3]), (4, 1)), random(3)
    with np.errstate(all="ignore"):
        found = run(plan(graph, Mesh(3)), {"x": x, "z": z}).outputs["y"]
    np.testing.assert_allclose(found, -np.exp(x) * z, rtol=1e-6)


def reading_body(operator: str, name: str) -> list[Any]:
    """An If whose condition follows from a Scan or a Loop, in whose body a name is read from outside."""
    a, r, n = (helper.make_tensor_value_info(one, TensorProto.FLOAT, ()) for one in ("a", "r", "n"))
    adds = [make("ReduceSum", [name], ["t"], keepdims=0), make("Add", ["a", "t"], ["n"])]
    if operator == "Scan":
        body = helper.make_graph(adds, "body", [a, r], [n])
        around = make("Scan", ["o", "z"], ["s"], num_scan_inputs=1, body=body)
    else:
        k = helper.make_tensor_value_info("k", TensorProto.INT64, ())
        go, on = (helper.make_tensor_value_info(one, TensorProto.BOOL, ()) for one in ("go", "on"))
        body = helper.make_graph([make("Identity", ["go"], ["on"]), *adds], "body", [k, go, a], [on, n])
        around = make("Loop", ["two", "", "o"], ["s"], body=body)
    then, other = (branch([make(op, ["s"], ["out"])]) for op in ("Neg", "Exp"))
    ends = [make("Greater", ["s", "o"], ["c"]), make("If", ["c"], ["y"], then_branch=then, else_branch=other)]
    return [make("Cast", ["zero"], ["o"], to=1), around, *ends]


@pytest.mark.parametrize("operator", ["Scan", "Loop"])
def test_a_body_that_reads_an_outer_name_leads_to_a_condition(operator: str) -> None:
    """No node before the condition has the name as its own input."""
    compare_both(reading_body(operator, "x"))


@pytest.mark.parametrize("operator", ["Scan", "Loop"])
def test_a_body_that_reads_what_only_a_run_knows_leads_to_a_condition(operator: str) -> None:
    """The shape of the name that is read follows from values; the stage after them has the body."""
    cells = [make("NonZero", ["x"], ["where"]), make("Cast", ["where"], ["cells"], to=1)]
    made = model([*cells, *reading_body(operator, "cells")])
    for sign in (1, 0):
        feeds = {"x": sign * random(2, 3), "z": random(3, seed=2)}
        staged = StagedModel(made, shapes={"n": 2})
        found = run_stages(staged, feeds, lambda graph: plan(graph, Mesh(2))).outputs
        np.testing.assert_allclose(found["y"], ort(made, feeds)[0], rtol=1e-5)


@pytest.mark.parametrize("shape", [(1,), (1, 1)])
def test_a_computed_condition_of_any_rank_keeps_the_shape_of_the_branches(shape: tuple[int, ...]) -> None:
    branches = [branch([make(op, ["s"], ["out"])]) for op in ("Neg", "Exp")]
    nodes = [*computed("c"), make("Reshape", ["c", "w"], ["d"])]
    nodes.append(make("If", ["d"], ["y"], name="choose", then_branch=branches[0], else_branch=branches[1]))
    made = model(nodes)
    made.graph.initializer.append(numpy_helper.from_array(np.array(shape), "w"))
    graph = load_onnx(made, shapes={"n": 4}, opaque=False)
    for x in (random(4, 3), -random(4, 3)):
        found = evaluate(graph, {"x": x})["y"]
        assert found.shape == ()
        np.testing.assert_allclose(found, -x.sum() if x.sum() > 0 else np.exp(x.sum()), rtol=1e-5)


@pytest.mark.parametrize(
    ("nodes", "constants"),
    [
        ([make("RandomNormalLike", ["h"], ["out"])], {}),
        ([make("Gather", ["h", "i"], ["out"])], {}),
        ([make("Unique", ["h"], ["u"]), make("Expand", ["u", "w"], ["out"])], {"w": np.array([4, 3])}),
        ([make("Reshape", ["h", "w"], ["out"])], {"w": np.array([5, 5])}),
        ([make("Cast", ["h"], ["k"], to=7), make("Pow", ["k", "k"], ["p"]), make("Cast", ["p"], ["out"], to=1)], {}),
        (
            [
                make("Gemm", ["h", "h"], ["q"], transA=1),
                make("LabelEncoder", ["q"], ["e"], domain="ai.onnx.ml", keys_floats=[0.0], values_floats=[1.0]),
                make("Add", ["e", "h"], ["out"]),
            ],
            {},
        ),
    ],
)
def test_a_branch_that_does_more_than_compute_runs_whole_where_it_is_taken(nodes: list[Any], constants: Any) -> None:
    """Draws, indices that one branch has checked, powers of integers, shapes by values, what has no declaration."""
    indices = [make("Cast", ["x"], ["k"], to=7), make("ReduceMax", ["k"], ["i"], keepdims=0)]
    choose = make("If", ["c"], ["y"], name="choose", then_branch=THEN, else_branch=branch(nodes, constants=constants))
    made = model([*computed("c"), *indices[: 2 * ("i" in nodes[0].input)], choose])
    made.opset_import.append(helper.make_opsetid("ai.onnx.ml", 3))
    with pytest.raises(UnsupportedOp, match=r"'choose': If .* whose condition is 'c'"):
        load_onnx(made, shapes={"n": 4}, opaque=False)
