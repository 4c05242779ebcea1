"""Sequences that a model makes and takes apart are lists at import, against ONNX Runtime; others are the host's."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, parser

from tapestry_exec import run, run_stages
from tapestry_plan import Mesh, Tensor, UnsupportedOp, operator, plan
from tapestry_plan.onnx import StagedModel, load_onnx
from tapestry_plan.onnx.order import read_nodes
from tapestry_plan.onnx.replacing.sequences import find_sequences
from tests.onnx_models import difference, model_of, ort, random

make = helper.make_node
HEAD = '<ir_version: 8, opset_import: ["" : 18]> agraph '
TWO = "(float[4,6] x, float[4,6] z) => (float[%s] y) <int64 i = {%d}> { s = SequenceConstruct(x, z) %s }"
ONE = "(float[4,6] x) => (float[%s] y) <int64 i = {%d}, int64 four = {4}, int64[2] parts = {5,1}> { %s }"
MODELS = {
    "at": TWO % ("4,6", -1, "y = SequenceAt(s, i)"),
    "joined": TWO
    % ("8,6", 0, "a = SequenceInsert(s, x, i) b = SequenceErase(a, i) y = ConcatFromSequence <axis=0> (b)"),
    "beside": TWO % ("4,6,2", 0, "y = ConcatFromSequence <axis=-1, new_axis=1> (s)"),
    "counted": TWO % ("", 0, "t = Identity(s) u = SequenceErase(t) n = SequenceLength(u) y = Cast <to=1> (n)"),
    "one by one": ONE % ("6", 2, "s = SplitToSequence <axis=0, keepdims=0> (x) y = SequenceAt(s, i)"),
    "kept": ONE % ("4,1", -6, "s = SplitToSequence <axis=1> (x) y = SequenceAt(s, i)"),
    "in fours": ONE % ("4,2", 1, "s = SplitToSequence <axis=1> (x, four) y = SequenceAt(s, i)"),
    "parts": ONE % ("4,1", 1, "s = SplitToSequence <axis=-1, keepdims=0> (x, parts) y = SequenceAt(s, i)"),
    "begun": ONE % ("4,6", 0, "e = SequenceEmpty() s = SequenceInsert(e, x) y = SequenceAt(s, i)"),
}


def model_in(text: str) -> Any:
    return parser.parse_model(HEAD + text)


def feeds_of(model: Any) -> dict[str, Any]:
    return {value.name: random(4, 6, seed=k) for k, value in enumerate(model.graph.input)}


@pytest.mark.parametrize("name", MODELS)
def test_they_are_views_in_one_graph(name: str) -> None:
    model = model_in(MODELS[name])
    graph, feeds = load_onnx(model, opaque=False), feeds_of(model)
    assert not graph.nodes
    given = {key: array for key, array in feeds.items() if key in graph.stored}
    found = run(plan(graph, Mesh(2)), given).outputs["y"]
    np.testing.assert_array_equal(found, ort(model, feeds)[0])


STEPS = ("insert", "insert at", "erase", "erase at", "same", "join", "take", "split")


@settings(deadline=None, max_examples=25)
@given(st.lists(st.tuples(st.sampled_from(STEPS), st.integers(-9, 9), st.booleans()), min_size=1, max_size=9))
def test_programs_on_lists_give_what_onnx_runtime_gives(steps: list[tuple[str, int, bool]]) -> None:
    """A list and a tensor of rows, each step of one or the other."""
    nodes, constants = [make("SequenceConstruct", ["x", "x0"], ["s"])], {}
    held, list_name, tensor, count = 2, "s", "x", 0
    inputs = {"x": (2, 3), **{f"x{k}": (2, 3) for k in range(len(steps))}}

    def number(value: Any) -> str:
        nonlocal count
        count += 1
        constants[f"c{count}"] = np.array(value)
        return f"c{count}"

    for k, (step, wanted, is_old) in enumerate(steps):
        made, row = f"m{k}", tensor if is_old else f"x{k}"
        place = [number(wanted % (2 * held + 1) - held)] if held else []
        if step.startswith("insert"):
            nodes.append(make("SequenceInsert", [list_name, row, *(place if "at" in step else [])], [made]))
            list_name, held = made, held + 1
        elif step.startswith("erase") and held > 1:
            at = [number(wanted % (2 * held) - held)] if "at" in step else []
            nodes.append(make("SequenceErase", [list_name, *at], [made]))
            list_name, held = made, held - 1
        elif step == "same":
            nodes.append(make("Identity", [list_name], [made]))
            list_name = made
        elif step == "take":
            nodes.append(make("SequenceAt", [list_name, number(wanted % (2 * held) - held)], [made]))
            tensor = made
        elif step == "join":
            nodes += [make("ConcatFromSequence", [list_name], [f"{made}j"], axis=0)]
            last = number([wanted % (2 * held - 1)]), number([wanted % (2 * held - 1) + 2])
            nodes += [make("Slice", [f"{made}j", *last], [made])]
            tensor = made
        elif step == "split":
            nodes.append(make("SplitToSequence", [tensor], [made], axis=0, keepdims=1))
            list_name, held = made, 2
            nodes += [
                make("Concat", [tensor, f"x{k}"], [f"{made}w"], axis=0),
                make("Slice", [f"{made}w", number([1]), number([3])], [f"{made}t"]),
            ]
            tensor = f"{made}t"
            nodes += [make("ConcatFromSequence", [made], [f"{made}b"], axis=0), make("SequenceEmpty", [], [f"{made}e"])]
            nodes += [make("SequenceInsert", [f"{made}e", f"{made}b"], [f"{made}s"])]
            list_name, held = f"{made}s", 1
    nodes += [make("ConcatFromSequence", [list_name], ["all"], axis=0), make("Concat", ["all", tensor], ["y"], axis=0)]
    model = model_of(nodes, inputs, constants=constants)
    graph, feeds = load_onnx(model, opaque=False), {name: random(2, 3, seed=k) for k, name in enumerate(inputs)}
    assert not graph.nodes
    given = {name: array for name, array in feeds.items() if name in graph.stored}
    np.testing.assert_array_equal(run(plan(graph, Mesh(1)), given).outputs["y"], ort(model, feeds)[0])


@pytest.mark.parametrize("place", [-2, -1, 0, 1, 2])
def test_a_tensor_comes_before_the_place_that_is_counted_from_behind(place: int) -> None:
    nodes = [make("SequenceConstruct", ["a", "b"], ["s"]), make("SequenceInsert", ["s", "c", "i"], ["t"])]
    nodes += [make("ConcatFromSequence", ["t"], ["y"], axis=0)]
    model = model_of(nodes, dict.fromkeys("abc", (1, 2)), constants={"i": np.array(place)})
    feeds = {name: random(1, 2, seed=k) for k, name in enumerate("abc")}
    found = run(plan(load_onnx(model), Mesh(1)), feeds).outputs["y"]
    np.testing.assert_array_equal(found, ort(model, feeds)[0])


def test_where_nothing_is_found_there_are_no_tensors() -> None:
    text = "(float[5,4] x) => (int64 y) { n = NonZero(x) s = SplitToSequence <axis=1> (n) y = SequenceLength(s) }"
    for x in (np.zeros((5, 4), np.float32), np.eye(5, 4, dtype=np.float32)):
        found = run_stages(StagedModel(model_in(text)), {"x": x}, lambda graph: plan(graph, Mesh(2)))
        assert found.outputs["y"] == np.count_nonzero(x)
    model = model_in("(float[0,4] x) => (int64 y) { s = SplitToSequence(x) y = SequenceLength(s) }")
    assert (
        run_stages(StagedModel(model), {"x": np.zeros((0, 4), np.float32)}, lambda g: plan(g, Mesh(1))).outputs["y"]
        == 0
    )


def test_a_long_chain_that_the_host_has_is_found_in_one_pass() -> None:
    """Each of 4,000 sequences is looked at once, where one was taken out in each pass before: quadratic work."""
    nodes = [make("SequenceConstruct", ["x"], ["s0"])]
    nodes += [make("SequenceInsert", [f"s{k}", "x"], [f"s{k + 1}"]) for k in range(4000)]
    read = list(read_nodes(helper.make_graph(nodes, "chain", [], [])))
    looked = Counter[str]()

    class Outputs(frozenset[str]):
        def __contains__(self, name: object) -> bool:
            looked[str(name)] += 1
            return frozenset.__contains__(self, name)

    assert not find_sequences(read, Outputs({"s4000"}), ())
    assert sum(looked.values()) <= 3 * len(read)


def test_a_place_that_a_run_says_waits_for_it() -> None:
    """What the sequence is made of is not computed again in the stage behind it."""
    text = "(float[4,6] x, int64 i) => (float[4,6] y) { a = Relu(x) b = Neg(x) s = SequenceConstruct(a, b) "
    model = model_in(f"{text} c = SequenceAt(s, i) y = Exp(c) }}")
    with pytest.raises(UnsupportedOp, match=r"SequenceAt.*its input 1 .position. is 'i', an input of .*--value i="):
        load_onnx(model, opaque=False)
    x = random(4, 6)
    found = run(plan(load_onnx(model, values={"i": 1}), Mesh(2)), {"x": x}).outputs["y"]
    assert difference(found, ort(model, {"x": x, "i": np.array(1)})[0]) < 1e-6
    text = "(float[4,6] x) => (float[4,6] y) { a = Relu(x) m = ReduceMax <keepdims=0> (a) n = Cast <to=7> (m) "
    model = model_in(f"{text} i = Sub(n, n) s = SequenceConstruct(a, x) c = SequenceAt(s, i) y = Exp(c) }}")
    staged = run_stages(StagedModel(model), {"x": x}, lambda graph: plan(graph, Mesh(2)))
    kinds = [[node.op for node in stage.graph.nodes.values()] for stage in staged.stages if stage.graph is not None]
    assert kinds == [["relu", "max", "astype", "subtract"], ["exp"]] and not staged.whole
    assert difference(staged.outputs["y"], ort(model, {"x": x})[0]) < 1e-6


def test_sequences_that_others_read_are_the_host_s() -> None:
    """Of an output, of a Loop's body, and what is made of these or of an input."""
    text = (
        "(float[4,6] x) => (float[4,6] y, seq(float[4,6]) t) <int64 i = {0}> { a = Relu(x) s = SequenceConstruct(a, x) "
    )
    model = model_in(f"{text} t = SequenceInsert(s, a) c = SequenceAt(t, i) y = Exp(c) }}")
    with pytest.raises(UnsupportedOp, match="StagedModel"):
        load_onnx(model)
    found = run_stages(StagedModel(model), {"x": random(4, 6)}, lambda graph: plan(graph, Mesh(2)))
    wanted = ort(model, {"x": random(4, 6)})
    assert difference(found.outputs["y"], wanted[0]) < 1e-6
    for one, other in zip(found.outputs["t"], wanted[1], strict=True):
        np.testing.assert_array_equal(one, other)
    assert [where.split("'")[1] for where in found.whole][:2] == ["SequenceConstruct_0", "SequenceInsert_0"]


def test_what_a_sequence_has_not_is_refused() -> None:
    for text, says in (
        (TWO % ("4,6", 2, "y = SequenceAt(s, i)"), r"SequenceAt_0.*position is 2; the sequence has the places -2 to 1"),
        (
            TWO % ("4,6", -3, "t = SequenceErase(s, i) y = ConcatFromSequence <axis=0> (t)"),
            "SequenceErase_0.*position is -3",
        ),
        (TWO % ("4,6", 3, "t = SequenceInsert(s, x, i) y = ConcatFromSequence <axis=0> (t)"), "has the places -2 to 2"),
        (ONE % ("4,6", 0, "e = SequenceEmpty() y = ConcatFromSequence <axis=0> (e)"), "the sequence is empty"),
        (TWO % ("4,6", 0, "t = SequenceInsert(s) y = SequenceAt(t, i)"), "has 1 input; SequenceInsert takes 2 to 3"),
        (TWO % ("4,6", 0, "t = SplitToSequence() y = SequenceAt(t, i)"), "has 0 inputs; SplitToSequence takes 1 to 2"),
        (
            ONE % ("4,6", 0, "s = SplitToSequence <axis=1> (x, i) y = SequenceAt(s, i)"),
            "split is 0; a number of at least 1",
        ),
        (ONE % ("4,6", 0, "s = SplitToSequence <axis=0> (x, parts) y = SequenceAt(s, i)"), "the extent 4 of axis 0"),
        (ONE % ("4,6", 0, "s = SplitToSequence <axis=2> (x) y = SequenceAt(s, i)"), "axis is 2"),
    ):
        with pytest.raises(ValueError, match=says):
            load_onnx(model_in(text))


def test_a_sequence_of_very_many_tensors_is_the_host_s() -> None:
    text = (
        "(float[9000] x) => (float[1] y) <int64 i = {8999}> { s = SplitToSequence <axis=0> (x) y = SequenceAt(s, i) }"
    )
    with pytest.raises(UnsupportedOp, match="9,000 tensors are more than the 4,128 that a model may unroll to"):
        load_onnx(model_in(text))
    found = run_stages(StagedModel(model_in(text)), {"x": random(9000)}, lambda graph: plan(graph, Mesh(2)))
    np.testing.assert_array_equal(found.outputs["y"], random(9000)[-1:])


@operator(block=lambda xp, inputs, outputs, shard: outputs[0].__setitem__(..., inputs[1]))
def last(a: Tensor, b: Tensor, *, name: str | None = None) -> Tensor:
    """The second operand."""


def test_an_operator_of_ones_own_reads_none() -> None:
    """One that takes the place of ONNX's: then nobody makes a sequence of it."""
    nodes = [make("SequenceConstruct", ["x", "x"], ["y"])]
    graph = load_onnx(model_of(nodes, {"x": (2, 3)}), ops={"SequenceConstruct": last})
    assert [node.op for node in graph.order()] == ["last"]


def test_strings_and_known_tensors_are_held_too() -> None:
    words = helper.make_tensor("w", TensorProto.STRING, [2], ["a", "b"])
    nodes = [
        make("SequenceConstruct", ["w", "w"], ["s"]),
        make("ConcatFromSequence", ["s"], ["all"], axis=0),
        make("Equal", ["all", "all"], ["same"]),
        make("Cast", ["same"], ["t"], to=TensorProto.FLOAT),
        make("Add", ["x", "t"], ["y"]),
    ]
    model = model_of(nodes, {"x": (4,)})
    model.graph.initializer.append(words)
    graph = load_onnx(model, opaque=False)
    np.testing.assert_array_equal(run(plan(graph, Mesh(2)), {"x": random(4)}).outputs["y"], random(4) + 1)
