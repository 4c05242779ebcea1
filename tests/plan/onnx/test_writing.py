"""Graphs written as ONNX models: read again they are the same, and ONNX Runtime gives what they give."""

from __future__ import annotations

import random
import warnings
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from msgspec.structs import replace

from tapestry_exec import evaluate
from tapestry_plan import Graph, Mesh, ShardPlan, UnsupportedOp, concat, load_onnx, ops, plan, same_graph
from tapestry_plan.ir import BUILTIN_OPS, CellBlock
from tapestry_plan.onnx import WRITERS, light_model, to_onnx
from tapestry_plan.onnx.walks import DRAWING
from tapestry_sets.views import Pad, PermuteDims, ViewKind
from tests.exec.run.test_every_kind_of_plan import make_graph
from tests.exec.run.test_same_bits import of_floats
from tests.layered_models import bert, gpt, gpt2, vit
from tests.node_cases import load_cases
from tests.sets.views.test_kinds import EVERY

SHARE = 24
"""One in so many of ONNX's cases is read by every test run, all by ``--all``."""


def run_there(graph: Graph, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What ONNX Runtime gives for the model that is written, which ONNX's own checker has looked at."""
    model = to_onnx(graph)
    onnx.checker.check_model(model, full_check=True)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return dict(zip(graph.outputs, session.run(list(graph.outputs), feeds), strict=True))


def assert_agrees(graph: Graph, feeds: dict[str, np.ndarray], wide: float = 1e-5) -> None:
    wanted = evaluate(graph, feeds)
    for name, found in run_there(graph, feeds).items():
        assert (found.dtype, found.shape) == (wanted[name].dtype, wanted[name].shape)
        np.testing.assert_allclose(found, wanted[name], rtol=wide, atol=wide)


# -- what came from a model ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["squeezenet", "shufflenet", "inception_v2"])
def test_networks_come_back_the_same(name: str) -> None:
    graph = load_onnx(light_model(name))
    assert same_graph(load_onnx(to_onnx(graph)), graph)


@pytest.mark.parametrize("made", [gpt(2), bert(1), gpt2(1), vit(1)], ids=["gpt", "bert", "gpt2", "vit"])
def test_transformers_come_back_the_same(made: Any) -> None:
    graph = load_onnx(made)
    assert same_graph(load_onnx(to_onnx(graph)), graph)


@pytest.mark.parametrize("name", ["bert", "gpt2", "resnet"])
def test_exported_networks_come_back_the_same_and_run_there(name: str) -> None:
    graph = load_onnx(f"tests/models/{name}.onnx")
    assert same_graph(load_onnx(to_onnx(graph)), graph)
    assert_agrees(graph, of_floats(graph), 2e-4)


@lru_cache(maxsize=1)
def cases() -> list[Any]:
    return [case for case in load_cases() if "_expanded" not in case.name]


def read_case(case: Any) -> Graph | None:
    """The graph of a case of ONNX's, with small operands known; None of one that is refused."""
    names = [value.name for value in case.model.graph.input]
    given = dict(zip(names, case.data_sets[0][0], strict=False)) if case.data_sets else {}
    small = {name: array for name, array in list(given.items())[1:] if getattr(array, "size", 99) < 64}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for values in ({}, small):
            try:
                graph = load_onnx(case.model, values=values, fold=False, opaque=False)
            except (ValueError, TypeError):
                continue
            # a view of all is written as another one: definitions, whose parts are named after the node, have such
            return None if any("/" in name for name in (*graph.nodes, *graph.selections)) else graph
    return None


def is_read(graph: Graph) -> bool:
    """Whether something reads every input: another one is known to a graph only while its model says so."""
    used = {s for n in graph.nodes.values() for name in n.inputs for s in graph.source(name).stored}
    used |= {s for name in graph.outputs.values() for s in graph.source(name).stored}
    return all(name in used for name, stored in graph.stored.items() if stored.kind == "input")


def depends_on_constants(graph: Graph, node: Any) -> bool:
    """Whether all that an operator reads is constant."""
    return all(graph.stored[s].kind == "constant" for name in node.inputs for s in graph.source(name).stored)


def comes_back_otherwise(graph: Graph) -> bool:
    """Whether some view is of constants alone, or a slice of all, or some result is read by nobody."""
    used = {name for node in graph.nodes.values() for name in node.inputs} | set(graph.outputs.values())
    used |= {name for view in graph.selections.values() for name in view.inputs}
    views = graph.selections.values()
    return (
        any(all(graph.stored[s].kind == "constant" for s in graph.source(view.name).stored) for view in views)
        or any(view.label == "slice" and view.shape == graph.source(view.inputs[0]).shape for view in views)
        or any(not used.intersection(node.outputs) for node in graph.nodes.values())
    )


@pytest.mark.parametrize("begin", [0, *(pytest.param(k, marks=pytest.mark.heavy) for k in range(1, SHARE))])
def test_cases_of_single_operators_come_back_the_same(begin: int) -> None:
    """Those that can be imported, but for those that are refused with a reason.

    Some views come back as others, what is made of constants comes back as a constant, and what nobody reads does not.
    """
    tried = 0
    for case in cases()[begin::SHARE]:
        graph = read_case(case)
        labels = set() if graph is None else {view.label for view in graph.selections.values()}
        if graph is None or not is_read(graph) or labels & {"diagonal", "repeat", "sliding_window"}:
            continue
        if any(depends_on_constants(graph, node) for node in graph.nodes.values()) or comes_back_otherwise(graph):
            continue
        try:
            written = to_onnx(graph)
        except UnsupportedOp as error:
            assert any(word in str(error) for word in ("'sum_pool'", "windows", "sizes do not")), error
            continue
        assert same_graph(load_onnx(written, fold=False), graph), case.name
        tried += 1
    assert tried > 30


@pytest.mark.heavy
def test_every_operator_that_is_written_is_among_the_cases() -> None:
    graphs = filter(None, map(read_case, cases()))
    own = {
        "linear",
        "silu",
        "unpack_blocks",
        "not_equal",
        "erf",
        "iota",
        "opaque",
        "recurrence_step",
        *DRAWING,
    }  # which no model here becomes, or a large one alone
    assert WRITERS.keys() - {node.op for graph in graphs for node in graph.nodes.values()} <= own


# -- what did not ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(20))
def test_random_programs_give_the_same_there(seed: int) -> None:
    graph = make_graph(random.Random(seed))
    assert_agrees(graph, of_floats(graph, seed), 1e-4)
    again = load_onnx(to_onnx(graph))
    assert same_graph(load_onnx(to_onnx(again)), again)


@pytest.mark.parametrize(("kind", "shapes"), EVERY, ids=lambda x: type(x).__name__)
def test_every_kind_of_view_is_written(kind: ViewKind, shapes: tuple[tuple[int, ...], ...]) -> None:
    """By nodes, or by a table of its cells; too large a table is refused with the view's name."""
    g = Graph()
    view = g.select(kind, *(g.input(f"x{k}", shape) for k, shape in enumerate(shapes)), name="view")
    g.output(ops.relu(view), "y")
    assert_agrees(g, {name: 2 * array - 1 for name, array in of_floats(g).items()})


def test_a_view_of_one_number_as_it_is_is_written() -> None:
    """It has no axes, hence no order of them to write."""
    g = Graph()
    one = g.select(PermuteDims(()), g.input("x", ()), name="view")
    g.output(ops.where(g.input("is", (), "bool").broadcast_to(()), one, ops.relu(one)), "y")
    assert_agrees(g, {"x": np.array(-3, np.float32), "is": np.array(False)})


def test_a_view_of_too_many_cells_is_refused_by_name() -> None:
    g = Graph()
    g.output(ops.relu(g.input("x", (2**21 + 3,)).sliding_windows((4,))), "y")
    with pytest.raises(UnsupportedOp, match=r"view 'sliding_window'.*8,388,608 cells are more than the 1,048,576"):
        to_onnx(g)


def test_operators_of_our_own_are_written_in_several() -> None:
    g = Graph()
    x, w, b = g.input("x", (3, 4)), g.input("w", (4, 5)), g.input("b", (5,))
    y = ops.silu(ops.linear(x, w, b))
    g.output(ops.where(ops.not_equal(y, ops.linear(x, w)), y, ops.erf(y)), "y")
    assert_agrees(g, of_floats(g))
    again = load_onnx(to_onnx(g))
    assert same_graph(load_onnx(to_onnx(again)), again)


@pytest.mark.parametrize(
    ("bits", "zeros"), [(1, None), (2, "uint8"), (4, "uint8"), (4, "float32"), (8, "uint8"), (8, None)]
)
def test_numbers_of_few_bits_are_written_as_what_unpacks_them(bits: int, zeros: str | None) -> None:
    """Three blocks of a row, whose zeros fill no byte."""
    g, rng = Graph(), np.random.default_rng(bits)
    packed, scales = g.input("packed", (4, 3, 5), "uint8"), g.input("scales", (4, 3))
    feeds = {"packed": rng.integers(0, 256, (4, 3, 5), np.uint8), "scales": rng.random((4, 3), np.float32)}
    given = []
    if zeros:
        shape = (4, -(-3 * bits // 8)) if zeros == "uint8" else (4, 3)
        feeds["zeros"] = rng.integers(0, 256, shape).astype(zeros)
        given = [g.input("zeros", shape, zeros)]
    g.output(ops.unpack_blocks(packed, scales, *given, bits=bits), "y")
    wanted = evaluate(g, feeds)["y"]
    np.testing.assert_array_equal(run_there(g, feeds)["y"], wanted)
    np.testing.assert_array_equal(evaluate(load_onnx(to_onnx(g), opaque=False), feeds)["y"], wanted)


def test_names_of_outputs_are_the_labels() -> None:
    """Also of tensors with several labels, of inputs and constants, and where a label is another tensor's name."""
    g = Graph()
    x, c = g.input("x", (4,)), g.constant("c", np.arange(4, dtype=np.float32))
    first = ops.relu(x + c, name="first")
    second = ops.exp(first, name="second")
    for tensor, label in [(first, "second"), (second, "first"), (first, "again"), (x, "same"), (c, "known")]:
        g.output(tensor, label)
    assert_agrees(g, of_floats(g))
    again = load_onnx(to_onnx(g))
    assert list(again.outputs) == list(g.outputs) and same_graph(load_onnx(to_onnx(again)), again)
    h = Graph()
    one, two = h.input("one", (4,)), h.input("two", (4,))
    h.output(ops.add(one, two), "one")
    with pytest.raises(UnsupportedOp, match="output 'one' is called like the input 'one'"):
        to_onnx(h)


def test_what_onnx_does_not_have_is_listed_with_reasons() -> None:
    g = Graph()
    x = g.input("x", (6, 6))
    g.output(ops.var(x, 0, name="spread"), "v")
    g.output(ops.argmax(x, name="largest"), "a")
    with pytest.raises(UnsupportedOp, match=r"does not have 2 of the graph's parts") as error:
        to_onnx(g)
    for told in ("operator 'spread': its operator is 'var'", "operator 'largest': it looks through all axes"):
        assert told in str(error.value)


def test_what_only_has_the_name_of_an_operator_is_refused() -> None:
    g = Graph()
    mine = replace(BUILTIN_OPS["relu"], block=CellBlock(lambda xp, outs, ins, attrs: xp.negative(ins[0], out=outs[0])))
    g.output(g.op(mine, g.input("x", (4,)), name="mine"), "y")
    with pytest.raises(UnsupportedOp, match=r"operator 'mine': its operator is called 'relu', and is another one"):
        to_onnx(g)


def test_defaults_are_said_where_onnx_has_others() -> None:
    g = Graph()
    x, i = g.input("x", (4, 6)), g.input("i", (4, 2), "int64")
    g.output(ops.take_along_axis(x, i), "y")
    feeds = {"x": np.arange(24, dtype=np.float32).reshape(4, 6), "i": np.array([[0, 5], [1, 1], [2, 0], [5, 4]])}
    assert_agrees(g, feeds)


@pytest.mark.parametrize("dtype", ["bool", "int8", "int16", "uint8", "float16", "float64", "complex64"])
@pytest.mark.parametrize("name", ["add", "maximum", "matmul", "less", "relu", "negative"])
def test_dtypes_that_an_operator_of_onnx_does_not_take_are_refused(name: str, dtype: str) -> None:
    """ONNX's own checker, which looks at types too, takes every model that is written."""
    g, function = Graph(), getattr(ops, name)
    x = g.input("x", (3, 3), dtype)
    try:
        made = function(x) if name in ("relu", "negative") else function(x, g.input("y", (3, 3), dtype))
    except (TypeError, ValueError):
        return  # it takes none of these here either
    g.output(made, "z")
    try:
        model = to_onnx(g)
    except UnsupportedOp as error:
        assert f"takes no {dtype}" in str(error)
        return
    onnx.checker.check_model(model, full_check=True)


def test_remainders_are_written_where_onnx_has_them() -> None:
    g = Graph()
    x, y = g.input("x", (4,), "int64"), g.input("y", (4,), "int64")
    g.output(x % y, "z")
    assert_agrees(g, {"x": np.array([5, -5, 5, -5]), "y": np.array([3, 3, -3, -3])})
    h = Graph()
    h.output(h.input("x", (4,)) % h.input("y", (4,)), "z")
    model = to_onnx(h)
    assert model.opset_import[0].version == 28 and same_graph(load_onnx(model), h)


def test_the_sign_of_a_zero_is_kept() -> None:
    g = Graph()
    g.output(g.input("x", (2,)).view(Pad(((1, 0),), value=-0.0)), "y")
    found = run_there(g, {"x": np.ones(2, np.float32)})["y"]
    assert np.signbit(found[0]) and found.tolist() == [0, 1, 1]


def test_constants_without_values_are_refused() -> None:
    g = load_onnx(light_model("squeezenet"))
    p = ShardPlan.from_json(plan(g, Mesh((1,))).to_json())
    with pytest.raises(ValueError, match=r"names constant .* without its values"):
        to_onnx(p.graph)


def test_a_model_may_be_of_a_later_opset() -> None:
    def versions() -> Iterator[int]:
        for make in (ops.relu, ops.gelu, lambda x: ops.rms_normalization(x, x[0])):
            g = Graph()
            g.output(make(concat([g.input("x", (2, 4)), g.input("y", (2, 4))])), "z")
            yield to_onnx(g).opset_import[0].version

    assert list(versions()) == [18, 20, 23]
