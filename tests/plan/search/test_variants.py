"""Graphs with expansions beside the operators that they say: what is a choice, and which graph choices lead to."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from msgspec.structs import replace

from tapestry_plan import Graph, Tensor, concat, same_graph
from tapestry_plan.ir import BUILTIN_OPS, NotApplicable, is_coarse
from tapestry_plan.ops import conv, relu, softmax
from tapestry_plan.rewrite.rules import expand
from tapestry_plan.search.prices.costs.variants import Variants
from tapestry_plan.search.tuning import MAX_READINGS

ATTENTION = ((1, 2, 4, 3), (1, 2, 4, 3), (1, 2, 4, 5))


def attention() -> Graph:
    g = Graph()
    g.output(g.op("attention", *(g.input(name, shape) for name, shape in zip("qkv", ATTENTION, strict=True)), name="a"))
    return g


def grouped(g: Graph, x: Tensor, name: str) -> Tensor:
    return conv(x, g.input(f"{name}.w", (4, 2, 1, 1)), groups=2, name=name)


# -- what is wanted ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("op", "shapes", "attrs", "coarse"),
    [
        ("softmax", [(4, 6)], {}, True),
        ("softmax", [(4, 6)], {"axis": 0}, True),
        ("softmax", [(4, 1)], {}, False),
        ("log_softmax", [(4, 6)], {}, True),
        ("layer_normalization", [(4, 6), (6,), (6,)], {}, True),
        ("attention", list(ATTENTION), {}, True),
        ("relu", [(4, 6)], {}, False),
        ("matmul", [(4, 6), (6, 3)], {}, False),
        ("linear", [(4, 6), (6, 3), (3,)], {}, False),
        ("mean", [(4, 6)], {"axis": 1}, False),
        ("conv", [(1, 2, 6, 6), (4, 2, 3, 3)], {}, False),
        ("max_pool", [(1, 2, 6, 6)], {"kernel": (3, 3)}, False),
        ("batch_normalization", [(1, 2, 6, 6), (2,), (2,), (2,), (2,)], {}, False),
    ],
)
def test_coarse_operators_work_on_several_cells_at_a_point(op: str, shapes: list, attrs: dict, coarse: bool) -> None:
    """Rows are; windows whose offsets are axes of the index space are not."""
    assert is_coarse(BUILTIN_OPS[op].signature(shapes, attrs)) == coarse


def test_nothing_to_choose() -> None:
    g = Graph()
    x, w = g.input("x", (4, 6)), g.input("w", (6, 3))
    g.output(softmax(relu(x @ w), name="s"))
    assert [c.node for c in Variants(g, True).choices] == ["s"]
    assert Variants(g, True, pinned={"s"}).choices == []
    assert Variants(g, ["moments"]).choices == []
    assert [c.node for c in Variants(g, ["prod_sum"]).choices] == ["matmul"]


# -- which graphs there are ----------------------------------------------------------------------------------


def test_expansions_of_expansions_are_chosen_only_where_these_are() -> None:
    variants = Variants(attention(), True)
    first, second = variants.choices
    assert (first.node, first.given, [o.into for o in first.options]) == ("a", (), ["matmul_softmax_matmul"])
    assert second.given == ((0, 1),) and [o.into for o in second.options] == ["exp_sum"]
    assert second.node in first.options[0].nodes
    found = {values: variants.build_graph(values) for values in product((0, 1), repeat=2)}
    whole, softened, summed = (found[values][0] for values in ((0, 0), (1, 0), (1, 1)))
    assert same_graph(whole, attention()) and same_graph(found[0, 1][0], whole)
    once = expand.apply(attention(), "a")
    assert same_graph(softened, once)
    (inner,) = (node.name for node in once.order() if node.op == "softmax")
    assert same_graph(summed, expand.apply(once, inner))
    assert [len(entries) for _, entries in found.values()] == [1, 1, 2, 2]


def test_each_operator_is_there_where_its_choices_are_so() -> None:
    """Over all values: the operators whose conditions hold are those of the graph, in its order."""
    g = attention()
    h = g.op("log_softmax", relu(g.tensor("a"), name="r"), name="l")
    g.output(h, "z")
    variants = Variants(g, True)
    sizes = [range(1 + len(choice.options)) for choice in variants.choices]
    assert len(sizes) == 3
    for values in product(*sizes):
        there = [p.node.op for p in variants.present if all(values[n] == v for n, v in p.given)]
        assert there == [node.op for node in variants.build_graph(values)[0].order()]


def test_the_graph_given_is_not_changed() -> None:
    g = attention()
    before = g.to_json()
    variants = Variants(g, True)
    variants.build_graph((1, 1))
    assert g.to_json() == before


def test_an_operator_that_reads_a_view_of_an_expansion() -> None:
    """A grouped convolution becomes a concatenation: its consumer reads two tensors in place of one."""
    g = Graph()
    g.output(relu(grouped(g, g.input("x", (1, 4, 5, 5)), "c"), name="r"), "y")
    variants = Variants(g, ["by_group"])
    (last,) = (present for present in variants.present if present.node.name == "r")
    assert sorted(reading.given for reading in last.readings) == [((0, 0),), ((0, 1),)]
    stored = {reading.given[0][1]: variants.graph.source(reading.names[0]).stored for reading in last.readings}
    assert stored[0] == ("c",) and len(stored[1]) == 2
    kept = Variants(g, ["by_group"], kept=["c"])
    assert kept.choices == []


def nothing(inputs: Any, attrs: Any) -> Any:
    return None


def twice(inputs: Any, attrs: Any) -> Any:
    return inputs[0], inputs[0]


@pytest.mark.parametrize(
    ("wrong", "text"), [(nothing, "gives None; it must give a Tensor"), (twice, "gives 2 tensors; the operator has 1")]
)
def test_expansions_that_are_declared_wrongly_are_named(wrong: Any, text: str) -> None:
    g = Graph()
    g.output(g.op(replace(BUILTIN_OPS["softmax"], name="soft", expansions=(wrong,)), g.input("x", (4, 6)), name="s"))
    with pytest.raises(TypeError, match=f"operator 'soft': its expansion '{wrong.__name__}', applied to 's', {text}"):
        Variants(g, True)


def refusing(inputs: Any, attrs: Any) -> Any:
    raise NotApplicable("softmax of this kind is not a quotient")


def faulty(inputs: Any, attrs: Any) -> Any:
    raise ValueError("planted")


def test_a_fault_in_an_expansion_is_not_taken_for_a_refusal() -> None:
    g = Graph()
    own = replace(BUILTIN_OPS["softmax"], name="soft", expansions=(refusing,))
    g.output(g.op(own, g.input("x", (4, 6)), name="s"))
    assert Variants(g, True).choices == []
    g.output(g.op(replace(own, name="softer", expansions=(refusing, faulty)), g.tensor("x"), name="t"))
    with pytest.raises(ValueError, match=r"^planted$") as raised:
        Variants(g, True)
    assert raised.type is ValueError


@pytest.mark.parametrize("dtype", ["bool", "complex64"])
def test_products_of_what_einsum_does_not_multiply_are_left_out(dtype: str) -> None:
    g = Graph()
    y = g.op("conv", g.input("x", (1, 2, 6, 6), dtype), g.input("w", (4, 2, 3, 3), dtype), name="c", strides=2)
    g.output(y)
    found = Variants(g, ["windows_einsum", "phases"]).choices[0]
    assert [option.into for option in found.options] == ["phases"]


# -- no more than there is room for --------------------------------------------------------------------------


def test_variants_of_many_operators_take_no_more_room_than_the_operators() -> None:
    """Two to the power of sixty graphs."""
    g = Graph()
    x = g.input("x", (4, 6))
    for k in range(60):
        x = softmax(x, name=f"s{k}")
    g.output(x)
    variants = Variants(g, True)
    assert len(variants.choices) == 60 and len(variants.present) == 60 * 6
    assert all(len(present.readings) == 1 for present in variants.present)
    made, entries = variants.build_graph([k % 2 for k in range(60)])
    assert len(made.nodes) == 30 + 30 * 5 and sum(entry.chosen is not None for entry in entries) == 30


def test_what_is_read_through_too_many_views_is_not_expanded() -> None:
    g = Graph()
    x = g.input("x", (1, 4, 3, 3))
    together = concat([grouped(g, x, f"c{k}") for k in range(8)], 0)
    g.output(relu(together, name="r"), "y")
    variants = Variants(g, ["by_group"])
    assert all(len(present.readings) <= MAX_READINGS for present in variants.present)
    # Of eight choices between two, those of five operators make 32 readings.
    assert [choice.node for choice in variants.choices] == [f"c{k}" for k in range(5)]
    same, entries = variants.build_graph([0] * len(variants.choices))
    assert same_graph(same, g) and all(entry.chosen is None for entry in entries)
    wanted = {f"c{k}": (("by_group",), ()) if k < 5 else ((), ("by_group",)) for k in range(8)}
    assert {entry.node: (entry.considered, entry.left_out) for entry in entries} == wanted


def dilated() -> Graph:
    g = Graph()
    x, w = g.input("x", (1, 1, 7, 7)), g.input("w", (1, 1, 3, 3))
    g.output(conv(x, w, name="c", dilations=(2, 2), pads=(2, 2, 2, 2)), "y")
    return g


def test_the_deepest_expansions_are_left_out_first() -> None:
    """One too many combinations of views: one of eleven expansions goes, of the third kind of what builds what."""
    variants = Variants(dilated(), ["interleaved", "windows_einsum"])
    assert [option.into for option in variants.choices[0].options] == ["interleaved", "windows_einsum"]
    (shut,) = variants.without
    assert len(shut.given) == 2 and shut.left_out == ("windows_einsum",)
    assert not any(choice.left_out for choice in variants.choices)
    assert sum(len(choice.options) for choice in variants.choices) == 9
    assert all(0 < len(readings) <= MAX_READINGS for readings in variants.results.values())
    values = [1 if choice.options[0].into == "interleaved" else 0 for choice in variants.choices]
    _, entries = variants.build_graph(values)
    assert [entry.considered for entry in entries if entry.left_out] == [()]
    _, whole = variants.build_graph([0] * len(values))
    assert [entry.left_out for entry in whole] == [()]
