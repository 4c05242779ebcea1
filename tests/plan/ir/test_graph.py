"""Graphs: authoring, selections over stored tensors, validation, JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tapestry_exec import evaluate
from tapestry_plan import Graph, UnsupportedOp, concat
from tapestry_plan.ops.cells.elementwise import relu
from tapestry_sets.limits import FrozenDict, put_fields
from tapestry_sets.views import Broadcast


def small() -> Graph:
    g = Graph("small")
    x, w = g.input("x", (4, 6)), g.constant("w", np.arange(12, dtype=np.float32).reshape(6, 2))
    h = relu(x @ w, name="h")
    g.output(relu(concat([h, h.flip(0)], 1)[1:, ::2], name="y"), "out")
    return g


def test_arithmetic_and_views_add_nodes() -> None:
    g = small()
    assert list(g.nodes) == ["matmul", "h", "y"]
    assert [s.label for s in g.selections.values()] == ["flip", "concat", "slice"]
    assert g.tensor("y").shape == (3, 2)


def test_selections_are_read_from_stored_tensors() -> None:
    source = small().source(small().nodes["y"].inputs[0])
    assert source.stored == ("h",)
    values = np.arange(8).reshape(4, 2)
    expected = np.concatenate([values, values[::-1]], 1)[1:, ::2]
    for at in np.ndindex(3, 2):
        reads = [
            piece.map.apply(at)
            for piece in source.pieces
            if all(_prefix(piece, guard.prefix, at) in guard.region for guard in piece.guards)
        ]
        assert [values[r] for r in reads] == [expected[at]]


def _prefix(piece, prefix, at):  # type: ignore[no-untyped-def]
    for step in piece.map.steps[:prefix]:
        at = step.apply(at)
    return at


def test_json_round_trip() -> None:
    g = small()
    again = Graph.from_json(g.to_json())
    assert again.to_json() == g.to_json()
    assert again.stored["w"].sha256 is not None


def test_small_constants_are_in_the_document_and_weights_are_not() -> None:
    g = Graph()
    x = g.input("x", (1, 3), "float64")
    w = g.constant("w", np.linspace(0, 1, 3000).reshape(3, 1000))
    g.output((x * 0.1 + 2) @ w, "y")
    again = Graph.from_json(g.to_json())
    assert again.to_json() == g.to_json() and again.stored["w"].data is None
    values = np.array([[1.0, 2.0, np.pi]])
    wanted = evaluate(g, {"x": values})["y"]
    found = evaluate(again, {"x": values}, {"w": g.stored["w"].data})["y"]
    assert found.tobytes() == wanted.tobytes()


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda d: d["tensors"][1].update(data="00"), "tensor 'number': data is not the bytes of float64"),
        (lambda d: d["tensors"][1].update(data="zz"), "tensor 'number': data is not the bytes"),
        (lambda d: d["tensors"][1].update(data="00" * 8), "tensor 'number': data has another SHA-256"),
        (lambda d: d["tensors"][0].update(name=None), r"Expected `str`, got `null` - at `\$.tensors\[0\].name`"),
        (lambda d: d["order"][0].update(inputs="x"), r"Expected `array`, got `str` - at `\$.order\[0\].inputs`"),
        (
            lambda d: d["order"][0].update(inputs=[["x"], "number"]),
            r"Expected `str`, got `array` - at `\$.order\[0\].inputs\[0\]`",
        ),
        (lambda d: d["order"][0].update(node=None), r"Expected `str`, got `null` - at `\$.order\[0\].node`"),
        (lambda d: d.update(outputs=[]), r"Expected `object`, got `array` - at `\$.outputs`"),
        (lambda d: d.update(outputs={"y": 3}), r"Expected `str`, got `int` - at `\$.outputs\[...\]`"),
        (lambda d: d["order"][0].update(input="x"), r"unknown field `input` - at `\$.order\[0\]`"),
        (lambda d: d.update(note=""), "unknown field `note`"),
    ],
)
def test_documents_that_say_something_else_are_refused(edit: Callable[[Any], Any], message: str) -> None:
    g = Graph()
    g.output(g.input("x", (3,), "float64") * 0.5, "y")
    document = json.loads(g.to_json())
    edit(document)
    with pytest.raises(ValueError, match=message):
        Graph.from_json(json.dumps(document))


def test_operator_order_is_by_dependence_not_by_name() -> None:
    g = small()
    put_fields(g, nodes=FrozenDict(reversed(g.nodes.items())))
    assert [n.name for n in g.order()] == ["matmul", "h", "y"]


def test_flop_of_a_graph() -> None:
    assert small().flop() == 2 * 4 * 2 * 6 + 8 + 6


def test_draw_names_everything() -> None:
    text = small().draw().text
    assert "input    x: float32[4, 6]" in text and "view     flip" in text and "output   out = y" in text


@pytest.mark.parametrize(
    ("act", "error", "message"),
    [
        (lambda g, x: g.input("x", (2,)), ValueError, "has a tensor 'x' already"),
        (lambda g, x: g.input("", (2,)), ValueError, "a tensor is to be called ''; give it a name"),
        (lambda g, x: g.constant("", [1]), ValueError, "a tensor is to be called ''"),
        (lambda g, x: g.input("y", (2, 0)), ValueError, "at least 1: leave a tensor out that has no cells"),
        (lambda g, x: g.input("z", (2, 0)), ValueError, "axis 1 of shape \\(2, 0\\) is 0"),
        (lambda g, x: g.input("z", (2.5,)), TypeError, "must be an integer, not 2.5"),
        (lambda g, x: g.input("z", (True,)), TypeError, "must be an integer, not the truth value True"),
        (lambda g, x: g.input("z", (2,), "float33"), ValueError, "not a dtype"),
        (lambda g, x: g.input("z", (2,), "M8[s]"), ValueError, "dtype 'M8.s.' is of dates; give numbers or booleans"),
        (lambda g, x: g.constant("z", np.array(["a"])), ValueError, "dtype.*<U1.* is of texts; give numbers"),
        (lambda g, x: g.constant("z", np.zeros(2, "f4,i4")), ValueError, "is of records or raw bytes"),
        (lambda g, x: g.constant("z", np.array([None])), ValueError, "objects"),
        (lambda g, x: g.op("frobnicate", x), UnsupportedOp, "no declaration"),
        (lambda g, x: g.op("relu", x, slope=2), ValueError, "no attribute 'slope'; there are no attributes of relu"),
        (lambda g, x: x @ x, ValueError, "matmul"),
        (lambda g, x: x.reshape(5, 5), ValueError, "24 elements"),
        (lambda g, x: g.output(Graph().input("q", (1,))), ValueError, "another graph; make it in this one"),
        (lambda g, x: relu(Graph().input("q", (1,))) + x, ValueError, "another graph; make it in this one"),
        (lambda g, x: x.view(Broadcast((3, 4, 5))), ValueError, "broadcast"),
        (lambda g, x: concat([]), ValueError, "at least one"),
        (lambda g, x: g.tensor("nope"), ValueError, "no tensor 'nope'"),
    ],
)
def test_wrong_authoring_leaves_the_graph_unchanged(act, error, message) -> None:  # type: ignore[no-untyped-def]
    g = Graph()
    x = g.input("x", (4, 6))
    before = g.to_json()
    with pytest.raises(error, match=message):
        act(g, x)
    assert g.to_json() == before and not g.ops


def test_numbers_become_constants_of_the_tensors_dtype() -> None:
    g = Graph()
    x = g.input("x", (2, 3))
    y = g.output(0.1 * (1 - x) / 4 + -x, "y")
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    result = evaluate(g, {"x": values})["y"]
    np.testing.assert_allclose(result, 0.1 * (1 - values) / 4 - values, rtol=1e-6)
    assert y.dtype == result.dtype.name == "float32"
    with pytest.raises(ValueError, match="not of dtype int64"):
        g.input("k", (2,), "int64") + 0.5
    with pytest.raises(TypeError, match="give a tensor"):
        x + "one"  # type: ignore[operator]


def test_operators_need_cells() -> None:
    g = Graph()
    with pytest.raises(ValueError, match=r"shape \(0, 6\) has no cells"):
        relu(g.input("x", (4, 6))[0:0])
    assert not g.nodes


def test_outputs_have_names_of_their_own() -> None:
    g = Graph()
    x = g.input("x", (2,))
    g.output(x, "a")
    with pytest.raises(ValueError, match="an output 'a' already"):
        g.output(x, "a")


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda d: d.update(format="tapestry-graph/99"), "this version reads"),
        (lambda d: d["order"][0].update(op="frobnicate"), "no declaration"),
        (lambda d: d["order"][0].update(inputs=["x", "nothing"]), "'nothing'"),
        (lambda d: d["order"][0].pop("node"), "missing"),
        (lambda d: d["tensors"][0].update(shape=[4, 7]), "matmul|shape|exactly once"),
        (lambda d: d["outputs"].update(out="nothing"), "does not exist"),
        (lambda d: d["order"][0].update(inputs=["h", "w"]), "cycle"),
        (lambda d: d["tensors"][0].update(sha256="00"), "tensor 'x' is of kind 'input' and has sha256, as constants"),
        (lambda d: d["tensors"][0].update(path="x.npy"), "tensor 'x' is of kind 'input' and has path"),
        (lambda d: d["tensors"][0].update(dtype="U3"), "tensor 'x': dtype 'U3' is of texts; give numbers or booleans"),
    ],
)
def test_documents_that_do_not_hold_together_are_refused(edit, message) -> None:  # type: ignore[no-untyped-def]
    document = json.loads(small().to_json())
    edit(document)
    with pytest.raises(ValueError, match=message):
        Graph.from_json(json.dumps(document))


def test_text_that_is_not_json() -> None:
    with pytest.raises(ValueError, match="not a JSON document"):
        Graph.from_json("{")


def test_unknown_tensors_are_refused_with_the_nearest_names() -> None:
    g = Graph("small")
    with pytest.raises(ValueError, match=r"graph 'small' has no tensor 'x'; there are no tensors"):
        g.tensor("x")
    g.op("relu", g.input("weights", (4,)), name="other")
    with pytest.raises(ValueError, match=r"has no tensor 'weight'; known tensors: 'weights', 'other'"):
        g.tensor("weight")
    with pytest.raises(ValueError, match=r"has no tensor '12'; known tensors: 'weights', 'other'"):
        g.source("12")
