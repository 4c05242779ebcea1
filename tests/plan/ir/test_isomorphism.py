"""Graphs that differ in names alone, against matching by brute force, and as JSON documents."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from itertools import permutations, product
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tapestry_plan import Graph, same_graph
from tapestry_plan.ir import OpNode
from tapestry_plan.ops import conv, relu
from tapestry_sets.limits import put_item
from tests.cutting import Case
from tests.graph_recipes import Recipe, built, recipes
from tests.operator_cases import CASES


def renamed(g: Graph, order: Callable[[list[Any]], list[Any]] = lambda items: items) -> Graph:
    """The same graph with other names for everything but inputs and outputs, its tensors and items in another order."""
    document = json.loads(g.to_json())
    names = {t["name"]: t["name"] if t["kind"] == "input" else f"T {k} <&>" for k, t in enumerate(document["tensors"])}
    names |= {item["select"]: f"S{k}" for k, item in enumerate(document["order"]) if "select" in item}
    for tensor in document["tensors"]:
        tensor["name"] = names[tensor["name"]]
    for k, item in enumerate(document["order"]):
        item["inputs"] = [names[name] for name in item["inputs"]]
        if "select" in item:
            item["select"] = names[item["select"]]
        else:
            item["node"], item["outputs"] = f"N{k}", [names[name] for name in item["outputs"]]
    document["outputs"] = {label: names[name] for label, name in document["outputs"].items()}
    document["tensors"], document["order"] = order(document["tensors"]), order(document["order"])
    return Graph.from_json(json.dumps(document))


def matches(one: Graph, other: Graph) -> bool:
    """Whether some matching of nodes, views and constants takes one graph to the other: all of them are tried."""
    if set(one.stored) & {"x", "y"} != set(other.stored) & {"x", "y"}:
        return False
    kinds = [
        (list(g.nodes.values()), list(g.selections.values()), [t for t in g.stored.values() if t.kind == "constant"])
        for g in (one, other)
    ]
    if [len(items) for items in kinds[0]] != [len(items) for items in kinds[1]]:
        return False
    return any(
        taken(one, other, kinds[0], (nodes, views, constants))
        for nodes, views, constants in product(*map(permutations, kinds[1]))
    )


def taken(one: Graph, other: Graph, mine: Any, theirs: Any) -> bool:
    to = {name: name for name, tensor in one.stored.items() if tensor.kind == "input"}
    to |= {a.name: b.name for a, b in zip(mine[1], theirs[1], strict=True)}
    to |= {a.name: b.name for a, b in zip(mine[2], theirs[2], strict=True)}
    for a, b in zip(mine[0], theirs[0], strict=True):
        if (a.op, a.attrs, len(a.outputs)) != (b.op, b.attrs, len(b.outputs)):
            return False
        to |= dict(zip(a.outputs, b.outputs, strict=True))
    reads = all(
        tuple(to[name] for name in a.inputs) == b.inputs
        for a, b in (*zip(mine[0], theirs[0], strict=True), *zip(mine[1], theirs[1], strict=True))
    )
    views = all(a.pieces == b.pieces and a.label == b.label for a, b in zip(mine[1], theirs[1], strict=True))
    return reads and views and {k: to[v] for k, v in one.outputs.items()} == other.outputs


TWINS = ([(0, 0, 0), (0, 0, 0), (1, 2, 2), (1, 3, 3)], [])
CROSSED = ([(0, 0, 0), (0, 0, 0), (1, 2, 3), (1, 2, 3)], [])


@given(recipes(), recipes())
@example(TWINS, CROSSED)
@example(TWINS, TWINS)
@example(([(1, 0, 1)], []), ([(1, 1, 0)], []))
@example(([(0, 0, 0), (0, 0, 0)], [2]), ([(0, 0, 0)], [2]))
def test_two_graphs_are_the_same_where_some_matching_is(one: Recipe, other: Recipe) -> None:
    g, h = built(one), built(other)
    assert same_graph(g, h) == same_graph(h, g) == matches(g, h)


@given(recipes(), st.randoms(use_true_random=False))
def test_names_and_order_do_not_count(recipe: Recipe, random: Any) -> None:
    g = built(recipe)
    h = renamed(g, lambda items: random.sample(items, len(items)))
    assert same_graph(g, h) and matches(g, h)


@given(recipes(12))
def test_a_document_loses_nothing(recipe: Recipe) -> None:
    g = built(recipe)
    again = Graph.from_json(g.to_json())
    assert again.to_json() == g.to_json() and same_graph(g, again)
    assert again.nodes == g.nodes and again.selections == g.selections and again.outputs == g.outputs
    assert [(t.name, t.shape, t.dtype, t.kind) for t in again.stored.values()] == [
        (t.name, t.shape, t.dtype, t.kind) for t in g.stored.values()
    ]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_document_loses_no_attribute_of_any_operator(case: Case) -> None:
    g = Graph()
    made = g.op(case.op, *(g.input(f"x{k}", a.shape, a.dtype.name) for k, a in enumerate(case.arrays())), **case.attrs)
    for tensor in made if isinstance(made, tuple) else (made,):
        g.output(tensor)
    again = Graph.from_json(g.to_json())
    assert same_graph(g, again) and again.to_json() == g.to_json()


def test_a_document_knows_its_constants_by_their_values() -> None:
    g = built(([(7, 0, 0), (3, 0, 2)], [3]))
    (constant,) = [tensor for tensor in Graph.from_json(g.to_json()).stored.values() if tensor.kind == "constant"]
    assert constant.sha256 == hashlib.sha256(np.full((3, 3), 1.5, np.float32).tobytes()).hexdigest()


def base() -> Graph:
    g = Graph("one")
    x, w = g.input("x", (1, 2, 6, 6)), g.constant("w", np.ones((3, 2, 3, 3), np.float32))
    g.output(conv(x[:, :, ::-1], w, strides=2, pads=1), "y")
    return g


def edited(edit: Callable[[Any], object]) -> Graph:
    document = json.loads(base().to_json())
    edit(document)
    return Graph.from_json(json.dumps(document))


def other_input(document: Any) -> None:
    document["tensors"][0]["name"] = "z"
    document["order"][0]["inputs"] = ["z"]


def other_constant(document: Any) -> None:
    document["tensors"][1] = {**document["tensors"][1], "sha256": "0" * 64}
    document["tensors"][1].pop("data", None)


@pytest.mark.parametrize(
    "edit",
    [
        other_input,
        other_constant,
        lambda d: d["order"][0].update(label="other"),
        lambda d: d["outputs"].update(z=d["outputs"]["y"]),
        lambda d: d.update(outputs={"z": d["outputs"]["y"]}),
        lambda d: d.update(outputs={}),
        lambda d: d["tensors"].append({"name": "more", "shape": [1], "dtype": "int8", "kind": "input"}),
    ],
)
def test_whatever_is_not_a_name_counts(edit: Callable[[Any], object]) -> None:
    g, h = base(), edited(edit)
    assert not same_graph(g, h) and not same_graph(h, g) and same_graph(h, edited(edit))


@pytest.mark.parametrize(("one", "other"), [(1, 1.0), (1, True), (0.0, -0.0), ((1, 2), (2, 1)), ("1", 1)])
def test_attributes_count_to_the_bit(one: Any, other: Any) -> None:
    def with_attr(value: Any) -> Graph:
        g = base()
        (node,) = g.nodes.values()
        put_item(
            g.nodes, node.name, OpNode(node.name, node.op, {**node.attrs, "group": value}, node.inputs, node.outputs)
        )
        return g

    assert same_graph(with_attr(one), with_attr(one)) and not same_graph(with_attr(one), with_attr(other))
    assert same_graph(with_attr(float("nan")), with_attr(float("nan")))
    assert same_graph(with_attr(np.float64(0.5)), with_attr(0.5)) and same_graph(with_attr([1, 2]), with_attr((1, 2)))


def test_where_constants_are_kept_does_not_count_but_what_they_are_does() -> None:
    def one(value: float, path: str | None = None) -> Graph:
        g = Graph()
        g.output(g.input("x", (2,)) + g.constant("c", np.array([value, 2], np.float32), path), "y")
        return g

    assert same_graph(one(1), one(1, "weights.bin")) and not same_graph(one(0.0), one(-0.0))
    assert Graph.from_json(one(1, "weights.bin").to_json()).stored["c"].path == "weights.bin"


def test_many_values_that_are_alike() -> None:
    def fans(count: int) -> Graph:
        g = Graph()
        x = g.input("x", (2,))
        for _ in range(count):
            relu(relu(x))
        return g

    assert same_graph(fans(40), fans(40)) and not same_graph(fans(40), fans(39))


def rings(*lengths: int) -> Graph:
    """Values that are alike, each added to the next one of its ring."""
    g = Graph()
    x = g.input("x", (2,))
    for length in lengths:
        ring = [relu(x) for _ in range(length)]
        for k in range(length):
            g.op("add", ring[k], ring[(k + 1) % length])
    return g


def test_values_that_no_neighbors_tell_apart() -> None:
    """Each vertex of a ring has the neighbors of each of another ring: only trials find out which is which."""
    assert not same_graph(rings(6), rings(3, 3)) and same_graph(rings(3, 3), rings(3, 3))
    assert same_graph(rings(6, 3, 3), rings(3, 6, 3)) and same_graph(rings(3, 3, 6), rings(6, 3, 3))
    assert not same_graph(rings(4, 5, 3), rings(6, 3, 3))


def test_wrong_input_is_named() -> None:
    with pytest.raises(TypeError, match="same_graph: other must be a Graph, not 'g'"):
        same_graph(Graph(), "g")  # type: ignore[arg-type]
    g = base()
    (node,) = g.nodes.values()
    put_item(g.nodes, node.name, OpNode(node.name, node.op, node.attrs, ("nothing", "w"), node.outputs))
    with pytest.raises(ValueError, match=r"'nothing'.*is named, but not in the graph; validate"):
        same_graph(g, base())
    put_item(g.nodes, node.name, OpNode(node.name, node.op, node.attrs, (node.outputs[0], "w"), node.outputs))
    with pytest.raises(ValueError, match=f"{node.name}.*is on a cycle"):
        same_graph(base(), g)
