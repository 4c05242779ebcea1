"""Rewrites of selections: valid graphs in, valid graphs out, the same cells, and cascades that are no longer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from tapestry_exec import evaluate
from tapestry_plan import Graph, Tensor, concat
from tapestry_plan.ops import relu
from tapestry_plan.rewrite import (
    Change,
    Rewrite,
    motion,
    move_selection,
    selected_view,
    simplify_selection,
    simplify_selections,
)
from tapestry_sets import interleave, pad, repeat, roll, stack, tile
from tests.cascades import Case, cascades
from tests.oracles import read_view

N = 10**9


def values_of(graph: Graph, name: str, arrays: dict[str, np.ndarray]) -> np.ndarray:
    """The values of a tensor, read cell by cell through the pieces of its selections."""
    view = selected_view(graph, name)
    return read_view(view, {a: arrays[a.name] for a in view.allocations})


@given(cascades())
def test_simplified_cascades_show_the_same_cells_and_are_no_longer(case: Case) -> None:
    g, tensor, arrays, values = case
    if tensor.name not in g.selections:
        return
    g.output(tensor, "out")
    before = g.to_json()
    found = simplify_selection(g, tensor.name)
    assert g.to_json() == before, "the graph given is not changed"
    found.graph.validate()
    assert Graph.from_json(found.graph.to_json()).to_json() == found.graph.to_json()
    name = found.graph.outputs["out"]
    np.testing.assert_array_equal(values_of(found.graph, name, arrays), values)
    assert len(found.graph.selections) <= len(g.selections)
    assert bool(found.changes) == (found.graph is not g)
    if name in found.graph.selections:
        assert not simplify_selection(found.graph, name).changes, "a second time changes nothing"


@given(cascades())
def test_moved_cascades_show_the_same_cells(case: Case) -> None:
    g, tensor, arrays, values = case
    if tensor.name not in g.selections:
        return
    g.output(tensor, "out")
    placement = {name: k for k, name in enumerate(arrays)}
    found = move_selection(g, tensor.name, placement, 0)
    found.graph.validate()
    np.testing.assert_array_equal(values_of(found.graph, found.graph.outputs["out"], arrays), values)


# --------------------------------------------------------------------------------------------------- named rewrites

Make = Callable[[Tensor, Tensor], Tensor]

SHORTER: list[tuple[str, Make, tuple[str, ...]]] = [
    ("a slice of a concat reads one part", lambda x, y: concat([x, y])[9:], ("slice",)),
    ("a slice of a slice", lambda x, y: x[1:][::2], ("slice",)),
    ("pads that are not seen", lambda x, y: pad(x, 3)[3:-3, 3:-3], ()),
    ("part of the pads", lambda x, y: pad(x, [(3, 3), (0, 0)], "edge")[3:9], ("slice",)),
    ("there and back", lambda x, y: x.T.T, ()),
    ("backwards twice", lambda x, y: x.flip(0).flip(0), ()),
    (
        "a permutation of a permutation",
        lambda x, y: x[None].permute_dims((1, 0, 2)).permute_dims((1, 2, 0))[0],
        ("permute_dims",),
    ),
    ("reshapes", lambda x, y: x.reshape(4, 12).reshape(48), ("reshape",)),
    ("reshape and back", lambda x, y: x.reshape(48).reshape(8, 6), ()),
    ("a concat of slices of one tensor", lambda x, y: concat([x[:3], x[3:5], x[5:]]), ()),
    ("a concat of neighboring slices", lambda x, y: concat([x[1:3], x[3:6]]), ("slice",)),
    ("a concat of strided slices", lambda x, y: concat([x[0:4:2], x[4:8:2]]), ("slice",)),
    ("an interleave of strided slices", lambda x, y: interleave([x[0::2], x[1::2]]), ()),
    ("an interleave of three", lambda x, y: interleave([x[k::3] for k in range(3)]), ()),
    ("a stack of all rows", lambda x, y: stack([x[k] for k in range(8)]), ()),
    ("every second of a repetition", lambda x, y: repeat(x, 2, 0)[::2], ()),
    ("one of the tiles", lambda x, y: tile(x, (3, 1))[8:16], ()),
    ("rolled there and back", lambda x, y: roll(roll(x, 3, 0), -3, 0), ()),
    ("a concat with nothing of the other", lambda x, y: concat([x, y])[:8], ()),
    ("one broadcast row", lambda x, y: x[None].broadcast_to((5, 8, 6))[3], ()),
]


@pytest.mark.parametrize(("make", "labels"), [case[1:] for case in SHORTER], ids=[case[0] for case in SHORTER])
def test_cascades_that_fold(make: Make, labels: tuple[str, ...]) -> None:
    found, g, tensor = simplified(make, 1)
    if found.graph.outputs["out"] in found.graph.selections:
        (change,) = found.changes
        assert change.selection == tensor.name and change.after == labels and len(change.before) > len(labels)
    else:
        assert labels == () and found.graph.outputs["out"] == "x" and not found.graph.selections
    arrays = {"x": np.arange(1, 49).reshape(8, 6), "y": np.arange(49, 97).reshape(8, 6)}
    expected = values_of(g, tensor.name, arrays)
    np.testing.assert_array_equal(values_of(found.graph, found.graph.outputs["out"], arrays), expected)


def simplified(make: Make, scale: int) -> tuple[Rewrite, Graph, Tensor]:
    g = Graph()
    x, y = g.input("x", (8 * scale, 6)), g.input("y", (8 * scale, 6))
    tensor = make(x, y)
    g.output(tensor, "out")
    return simplify_selection(g, tensor.name), g, tensor


NARROWER: list[tuple[str, Make]] = [
    ("broadcast", lambda x, y: x.broadcast_to((5, *x.shape))[:, ::2, 1]),
    ("repeat", lambda x, y: repeat(x, 4, 1)[::2, 8:]),
    ("tile", lambda x, y: tile(x, (1, 4))[::2]),
    ("concat", lambda x, y: concat([x, y], 1)[::2, 2:9]),
    ("permute_dims", lambda x, y: x.T[:, 4:].broadcast_to((3, 6, x.shape[0] - 4))),
    ("pad", lambda x, y: pad(x, 2, "reflect")[2:, 2:4]),
    ("stack", lambda x, y: stack([x, y], 1)[::2, :, 3:]),
    ("interleave", lambda x, y: interleave([x, y], 1)[::2, 5:]),
    ("windows", lambda x, y: x.sliding_windows(3, axis=1)[4:, 2:]),
    ("reshape", lambda x, y: x.reshape(-1, 2, 6)[:, 1].reshape(-1)),
]


@pytest.mark.parametrize("scale", [1, N])
@pytest.mark.parametrize("make", [case[1] for case in NARROWER], ids=[case[0] for case in NARROWER])
def test_slices_go_below_what_copies_and_joins(make: Make, scale: int) -> None:
    """Moved to a device of its own, each stored tensor is first cut to what is seen of it; all else reads that."""
    g = Graph()
    tensor = make(g.input("x", (8 * scale, 6)), g.input("y", (8 * scale, 6)))
    found = motion(g, tensor.name, {"x": "one", "y": "two"}, "here")
    assert not found.local
    before = {a.name: cells.size for a, cells in selected_view(g, tensor.name).cells.items()}
    assert {m.tensor: m.pack.size for m in found.messages} == before
    made = move_selection(g, tensor.name, {"x": "one", "y": "two"}, "here").graph
    assert {a.name: cells.size for a, cells in selected_view(made, tensor.name).cells.items()} == before
    if scale == 1:
        arrays = {"x": np.arange(1, 49).reshape(8, 6), "y": np.arange(49, 97).reshape(8, 6)}
        expected = values_of(g, tensor.name, arrays)
        np.testing.assert_array_equal(values_of(made, tensor.name, arrays), expected)


def test_of_two_cascades_of_a_length_the_narrower_is_taken() -> None:
    found, _, tensor = simplified(lambda x, y: x.broadcast_to((5, 8, 6))[:, ::2], 1)
    assert found.changes == (Change(tensor.name, ("broadcast", "slice"), ("slice", "broadcast")),)
    found, _, tensor = simplified(lambda x, y: x.T[:, 4:], 1)
    assert found.changes == (Change(tensor.name, ("permute_dims", "slice"), ("slice", "permute_dims")),)


def test_only_the_parts_that_are_seen_are_joined() -> None:
    found, _, tensor = simplified(lambda x, y: concat([x, y, pad(x, [(3, 3), (0, 0)]), y])[9:14], 1)
    assert found.graph.selections[tensor.name].inputs == ("y",)


def test_sizes_do_not_matter() -> None:
    found, _, _ = simplified(
        lambda x, y: interleave([concat([x[0::2], y[0::2]]), concat([x[1::2], y[1::2]])])[: 8 * N], N
    )
    assert found.graph.outputs["out"] == "x"


# ------------------------------------------------------------------------------------------------------- in graphs


def network() -> tuple[Graph, dict[str, np.ndarray]]:
    g = Graph("net")
    x, w = g.input("x", (8, 6)), g.input("w", (6, 4))
    h = relu(x.T.T @ w, name="h")
    halves = concat([h[:4], h[4:]])
    twice = concat([halves, halves], 1)
    g.output(relu(twice[:, :4], name="y"), "y")
    g.output(halves, "h")
    g.output(h[::2].T, "t")
    rng = np.random.default_rng(0)
    arrays = {"x": rng.standard_normal((8, 6)), "w": rng.standard_normal((6, 4))}
    return g, {name: array.astype(np.float32) for name, array in arrays.items()}


def test_a_graph_is_simplified_and_computes_the_same() -> None:
    g, inputs = network()
    found = simplify_selections(g)
    assert found.rule == "simplify_selections"
    found.graph.validate()
    assert found.graph.nodes["y"].inputs == ("h",) and found.graph.nodes["matmul"].inputs == ("x", "w")
    assert found.graph.outputs == {"y": "y", "h": "h", "t": g.outputs["t"]}
    assert [s.label for s in found.graph.selections.values()] == ["slice", "permute_dims"]
    expected, result = evaluate(g, inputs), evaluate(found.graph, inputs)
    for name in expected:
        np.testing.assert_array_equal(result[name], expected[name])
    assert {change.selection for change in found.changes} <= set(g.selections)


def test_selections_that_others_read_stay() -> None:
    g = Graph()
    x = g.input("x", (8, 6))
    part = x[2:6]
    g.output(part, "part")
    g.output(part[1:], "inner")
    found = simplify_selections(g)
    assert [s.shape for s in found.graph.selections.values()] == [(4, 6), (3, 6)]
    inner = found.graph.outputs["inner"]
    assert found.graph.selections[inner].inputs == ("x",)
    assert found.changes[0].before == ("slice", "slice") and found.changes[0].after == ("slice",)


def test_names_of_new_selections_are_free() -> None:
    """The selection keeps its name, though its cascade begins with one that would like it."""
    g = Graph()
    x = g.input("x", (8, 6))
    tensor = x.broadcast_to((5, 8, 6))[:, ::2].T
    g.output(relu(tensor), "y")
    found = simplify_selection(g, tensor.name)
    assert found.graph.nodes["relu"].inputs == (tensor.name,)
    assert found.graph.selections[tensor.name].shape == tensor.shape


def test_a_moved_selection_is_packed_and_unpacked() -> None:
    g, inputs = network()
    name = g.nodes["y"].inputs[0]
    found = move_selection(g, name, {"h": 1}, consumer=0)
    assert found.rule == "move_selection"
    np.testing.assert_array_equal(evaluate(found.graph, inputs)["y"], evaluate(g, inputs)["y"])


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda g: simplify_selection(g, "nope"), "no tensor 'nope'"),
        (lambda g: simplify_selection(g, "x"), "simplify_selection: 'x' is a stored tensor"),
        (lambda g: move_selection(g, "x", {}, 0), "'x' is a stored tensor"),
    ],
)
def test_wrong_input(act: Callable[[Graph], Any], message: str) -> None:
    g = Graph()
    g.input("x", (4, 6)).flip(0)
    with pytest.raises(ValueError, match=message):
        act(g)
