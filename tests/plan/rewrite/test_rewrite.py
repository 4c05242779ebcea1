"""Rewrites: the same results as before on random graphs and on every operator, refusals with reasons, replays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tapestry_exec import difference, evaluate, run
from tapestry_plan import (
    Axis,
    Graph,
    Mesh,
    Op,
    Operand,
    ShardPlan,
    Signature,
    Tensor,
    concat,
    operation,
    ops,
    plan,
    project,
)
from tapestry_plan.ir import BUILTIN_OPS
from tapestry_plan.ops import linear, matmul, relu, softmax
from tapestry_plan.rewrite import (
    RULES,
    Derivation,
    NotApplicable,
    Rule,
    compose,
    expand,
    find,
    fold,
    forward,
    fuse,
    key_blocks,
    move,
    recompute,
    rewrite,
    rule,
    rules,
    shard,
    simplify,
    unfuse,
)
from tapestry_sets.limits import drop_item, put_item
from tests.cutting import backwards
from tests.rewriting import ROUNDING, Arrays, floats, graph_of, same


def parts_of_document(graph: Graph) -> tuple[Any, ...]:
    return graph.stored, graph.nodes, graph.selections, graph.outputs


# -- shards ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fan_in", [None, 2, 3])
def test_states_of_reductions_are_merged_and_unwrapped(fan_in: int | None) -> None:
    x = floats(x=(5, 23))["x"] * 3 + 100
    tried = 0
    for op in (op for op in BUILTIN_OPS.values() if op.has_states):
        for attrs in ({"axis": 1},):
            g, (t,) = graph_of({"x": x})
            try:
                g.output(g.op(op.name, t, name="r", **attrs), "y")
            except ValueError:
                continue
            tried += 1
            for parts in (1, 2, 5, 7):
                h = same(g, shard.apply(g, "r", axis="i1", parts=parts, fan_in=fan_in), {"x": x}, 1e-6)
                assert sum(node.op == f"state({op.name})" for node in h.nodes.values()) == parts
            same(g, shard.apply(g, "r", axis="i0", parts=3), {"x": x})
    assert tried >= 4, "variance, standard deviation, log-sum-exp, argmax"


def test_a_part_of_a_part_is_a_part() -> None:
    arrays = floats(x=(13, 9), w=(9, 8), b=(8,))
    g, tensors = graph_of(arrays)
    g.output(linear(*tensors, name="l"), "y")
    h = shard.apply(g, "l", axis="batch", parts=(3, 10))
    h = shard.apply(h, "l.1", axis="in", parts=4, fan_in=2)
    h = same(g, shard.apply(h, "l.1.2", axis="out", parts=3), arrays, ROUNDING)
    assert {node.op for node in h.nodes.values()} == {"part(linear)", "merge(linear)"}


@pytest.mark.parametrize("fan_in", [2, 3, 4, 7])
def test_the_tree_of_a_reduction_has_the_fan_in_asked_for(fan_in: int) -> None:
    arrays = {name: (100 * a).astype(np.int64) for name, a in floats(x=(3, 40), w=(40, 4)).items()}
    g, (x, w) = graph_of(arrays)
    g.output(matmul(x, w, name="m"), "y")
    h = same(g, shard.apply(g, "m", axis="k", parts=11, fan_in=fan_in), arrays)
    merges = [node for node in h.nodes.values() if node.op == "merge(matmul)"]
    assert max(len(node.inputs) for node in merges) == fan_in and sum(len(n.inputs) - 1 for n in merges) == 10


def cells_read(graph: Graph, node: str, points: Sequence[tuple[int, ...]], operand: int) -> set[tuple[int, ...]]:
    """Cells of an input that index points read, listed one by one through the projections."""
    signature = graph.signature(node)
    shape = graph.source(graph.nodes[node].inputs[operand]).shape
    return {
        cell
        for point in points
        for projection in signature.inputs[operand].projections
        for cell in projection(point).points()
        if all(0 <= c < n for c, n in zip(cell, shape, strict=True))
    }


def read_of(graph: Graph, node: str, name: str, shape: tuple[int, ...], inputs: Arrays) -> set[int]:
    """Numbers of the cells of a graph input that a node's exact regions touch, through its selections."""
    numbers = {**inputs, name: np.arange(np.prod(shape), dtype=inputs[name].dtype).reshape(shape)}
    found: set[int] = set()
    for k, tensor in enumerate(graph.nodes[node].inputs):
        if graph.source(tensor).stored == (name,):
            (array,) = evaluate(graph, numbers, outputs=[tensor]).values()
            cells = graph.signature(node).input_region(k, graph.signature(node).index, array.shape).points()
            found |= {int(array[tuple(cell)]) for cell in cells}
    return found


WINDOWS = [
    ((1, 2, 9, 8), (3, 2, 3, 3), {"pads": 1}),
    ((1, 2, 13, 8), (3, 2, 3, 3), {"strides": 2, "pads": (1, 0, 2, 1)}),
    ((1, 2, 14, 9), (3, 2, 3, 2), {"dilations": 3, "pads": 2}),
    ((1, 4, 9, 7), (6, 2, 3, 3), {"groups": 2}),
]


@pytest.mark.parametrize(("x", "w", "attrs"), WINDOWS, ids=["padded", "strided", "dilated", "grouped"])
@pytest.mark.parametrize("axis", ["h", "c", "ci", "kw"])
def test_parts_share_what_enumeration_says(x: Any, w: Any, attrs: Any, axis: str) -> None:
    arrays = {"x": np.zeros(x), "w": np.zeros(w)}
    g, tensors = graph_of(arrays)
    g.output(g.op("conv", *tensors, name="op", **attrs), "y")
    h = shard.apply(g, "op", axis=axis, parts=2)
    shards = operation(g, "op").shard({axis: 2})
    for operand, name in enumerate(arrays):
        listed = [cells_read(g, "op", list(part.index.points()), operand) for part in shards]
        read = [read_of(h, f"op.{k}", name, arrays[name].shape, arrays) for k in range(2)]
        for cells, numbers in zip(listed, read, strict=True):
            assert {int(np.ravel_multi_index(cell, arrays[name].shape)) for cell in cells} == numbers
        common = shards[0].inputs[operand].count_common(shards[1].inputs[operand])
        assert len(listed[0] & listed[1]) == len(read[0] & read[1]) == common


# -- the documents' figures ------------------------------------------------------------------------------

BATCH, IN, OUT = 100, 6, 8


def linear_relu() -> tuple[Graph, Arrays]:
    arrays = floats(X=(BATCH, IN), W=(IN, OUT), b=(OUT,))
    g, tensors = graph_of(arrays)
    g.output(relu(linear(*tensors, name="Z"), name="Y"))
    return g, arrays


def shapes_of(graph: Graph, op: str) -> list[tuple[tuple[int, ...], ...]]:
    """Shapes of the inputs and of the result of each node of an operator."""
    return [
        (*(graph.source(name).shape for name in node.inputs), graph.stored[node.outputs[0]].shape)
        for node in graph.nodes.values()
        if node.op == op
    ]


def test_linear_by_batch_shares_weights_and_bias() -> None:
    """Linear.fig8: X and Y in rows, W and b whole, Y their concatenation."""
    g, arrays = linear_relu()
    h = same(g, shard.apply(g, "Z", axis="batch", parts=2), arrays)
    assert shapes_of(h, "part(linear)") == [((50, IN), (IN, OUT), (OUT,), (50, OUT))] * 2
    assert [h.nodes[f"Z.{k}"].inputs[1:] for k in range(2)] == [("W", "b")] * 2
    assert h.selections["Z"].label == "concat" and h.selections["Z"].inputs == ("Z.0", "Z.1")


def test_linear_by_out_shares_the_input() -> None:
    """Linear.fig12: columns of W and Y and cells of b, X whole."""
    g, arrays = linear_relu()
    h = same(g, shard.apply(g, "Z", axis="out", parts=2), arrays)
    assert shapes_of(h, "part(linear)") == [((BATCH, IN), (IN, 4), (4,), (BATCH, 4))] * 2
    assert [h.nodes[f"Z.{k}"].inputs[0] for k in range(2)] == ["X"] * 2


def test_linear_by_in_is_a_tree_of_sums() -> None:
    """ProdSum.fig4: columns of X meet rows of W; the bias is added once; partial results are summed."""
    g, arrays = linear_relu()
    h = same(g, shard.apply(g, "Z", axis="in", parts=2), arrays, ROUNDING)
    assert shapes_of(h, "part(linear)") == [
        ((BATCH, 3), (3, OUT), (OUT,), (BATCH, OUT)),
        ((BATCH, 3), (3, OUT), (BATCH, OUT)),
    ]
    assert shapes_of(h, "merge(linear)") == [((BATCH, OUT),) * 3]


def test_linear_is_matmul_and_add_and_matmul_is_prod_and_sum() -> None:
    """Matmul.fig1 and ProdSum.fig1: V = X[batch, in, 1] · W[1, in, out], summed over in; and the way back."""
    g, arrays = linear_relu()
    first = same(g, expand.apply(g, "Z", into="matmul_add"), arrays, ROUNDING)
    assert shapes_of(first, "matmul") == [((BATCH, IN), (IN, OUT), (BATCH, OUT))]
    assert shapes_of(first, "add") == [((BATCH, OUT), (OUT,), (BATCH, OUT))]
    second = same(g, expand.apply(first, "Z.matmul", into="prod_sum"), arrays, ROUNDING)
    assert shapes_of(second, "multiply") == [((BATCH, IN, 1), (1, IN, OUT), (BATCH, IN, OUT))]
    assert shapes_of(second, "sum") == [((BATCH, IN, OUT), (BATCH, OUT))]
    end = next(name for name, node in second.nodes.items() if node.op == "sum")
    back = fold.apply(second, end, op="matmul", inputs=("X", "W"), into="prod_sum")
    assert shapes_of(same(g, back, arrays, ROUNDING), "matmul") == shapes_of(first, "matmul")
    end = next(name for name, node in back.nodes.items() if node.op == "add")
    back = fold.apply(back, end, op="linear", inputs=("X", "W", "b"), into="matmul_add")
    assert shapes_of(same(g, back, arrays), "linear") == shapes_of(g, "linear")


def test_matmul_by_in_as_prod_and_sum() -> None:
    """ProdSum.fig3: each part multiplies its own columns and rows and sums them; a merge completes the sum."""
    arrays = floats(X=(10, 6), W=(6, 3))
    g, (x, w) = graph_of(arrays)
    g.output(matmul(x, w, name="Y"))
    h = expand.apply(g, "Y", into="prod_sum")
    end = next(name for name, node in h.nodes.items() if node.op == "sum")
    h = shard.apply(h, end, axis="i1", parts=2)
    h = shard.apply(h, next(name for name, node in h.nodes.items() if node.op == "multiply"), axis="i1", parts=2)
    h = same(g, h, arrays, ROUNDING)
    assert shapes_of(h, "part(multiply)") == [((10, 3, 1), (1, 3, 3), (10, 3, 3))] * 2


def test_the_chain_of_two_operators_becomes_fused_shards() -> None:
    """Operator₁ => Operator₂ by batch: shard the first, push through the second, fuse each pair."""
    g, arrays = linear_relu()
    steps = Derivation().then(shard, "Z", axis="batch", parts=2).then(forward, "Y")
    h = same(g, steps.replay(g), arrays)
    assert [h.nodes[f"Y.{k}"].inputs for k in range(2)] == [("Z.0",), ("Z.1",)]
    assert "Z" not in h.selections and "Z" not in h.stored, "the whole between the two is gone"
    h = same(g, steps.then(fuse, "Y.0").then(fuse, "Y.1").replay(g), arrays)
    assert shapes_of(h, "fused(part(linear),part(relu))") == [((50, IN), (IN, OUT), (OUT,), (50, OUT))] * 2
    assert len(h.nodes) == 2 and h.outputs == {"Y": "Y"}
    other = shard.apply(fuse.apply(g, "Y"), "Y", axis="i0", parts=2)
    assert shapes_of(same(g, other, arrays), "part(fused(linear,relu))") == shapes_of(
        h, "fused(part(linear),part(relu))"
    )


@pytest.mark.parametrize("shape", [(2, 3, 12), (1, 3, 11), (2, 3, 9, 8)])
@pytest.mark.parametrize("dilation", [2, 3])
@pytest.mark.parametrize("stride", [1, 2])
def test_a_dilated_convolution_is_a_dense_one_of_phases(shape: tuple[int, ...], dilation: int, stride: int) -> None:
    g, rng = Graph(), np.random.default_rng(0)
    rank = len(shape) - 2
    arrays = {"x": rng.random(shape, np.float32), "w": rng.random((4, 3, *(3, 2)[:rank]), np.float32)}
    x, w = (g.input(name, array.shape) for name, array in arrays.items())
    strides = (1, stride)[:rank]
    g.output(g.op("conv", x, w, strides=strides, dilations=(dilation, 1)[:rank], pads=(1, 2) * rank, name="Y"))
    h = same(g, expand.apply(g, "Y", into="space_to_batch"), arrays, ROUNDING)
    (made,) = h.nodes.values()
    assert made.attrs["dilations"] == (1,) * rank and h.tensor(made.inputs[0]).shape[0] == shape[0] * dilation


def test_a_sparse_convolution_is_dense_ones_interleaved() -> None:
    """Conv.fig3: a kernel that skips every other row reads X[::2] and X[1::2] densely; Y interleaves the results."""
    arrays = floats(X=(100, 1, 10, 10), F=(128, 1, 3, 3))
    g, (x, f) = graph_of(arrays)
    g.output(g.op("conv", x, f, name="Y", dilations=(2, 1)))
    assert g.stored["Y"].shape == (100, 128, 6, 8)
    h = same(g, expand.apply(g, "Y", into="interleaved"), arrays, ROUNDING)
    assert shapes_of(h, "conv") == [((100, 1, 5, 10), (128, 1, 3, 3), (100, 128, 3, 8))] * 2
    assert all(node.attrs["dilations"] == (1, 1) for node in h.nodes.values())
    assert h.selections["Y"].label == "interleave"


FIGURES = [
    [("shard", "Z", {"axis": "batch", "parts": 2}), ("forward", "Y", {}), ("fuse", "Y.0", {}), ("fuse", "Y.1", {})],
    [("shard", "Z", {"axis": "in", "parts": 3, "fan_in": 2})],
    [("fuse", "Y", {}), ("shard", "Y", {"axis": "i1", "parts": 2})],
    [("expand", "Z", {"into": "prod_sum"})],
]


@pytest.mark.parametrize("devices", [1, 2, 4])
@pytest.mark.parametrize("steps", FIGURES, ids=["by batch", "by in", "fused", "prod and sum"])
def test_rewritten_graphs_are_planned_saved_and_run(steps: Any, devices: int) -> None:
    g, arrays = linear_relu()
    derivation = Derivation()
    for name, at, given_ in steps:
        derivation = derivation.then(name, at, **given_)
    h = derivation.replay(g)
    saved = ShardPlan.from_json(plan(h, Mesh((devices,))).to_json())
    result = run(saved, arrays, verify=True)
    assert result.nbytes_moved == saved.nbytes_moved
    assert difference(result.outputs["Y"], evaluate(g, arrays)["Y"]) <= ROUNDING


def test_a_fused_operator_is_cut_by_the_planner_like_any_other() -> None:
    g, arrays = linear_relu()
    h = fuse.apply(g, "Y")
    for axis in ("i0", "i1"):
        p = plan(h, Mesh((4,)), fix={"Y": {axis: 4}})
        assert p.sharding["Y"] == {axis: 4} and p.nbytes_moved == 0
        assert difference(run(p, arrays, verify=True).outputs["Y"], evaluate(g, arrays)["Y"]) == 0


def test_the_beginning_of_a_tensor_is_not_a_tensor_itself() -> None:
    """Parts read such slices: the same cells in the same places, but fewer."""
    g = Graph()
    x = g.input("x", (10, 6))
    g.output(relu(x[:5]), "a")
    g.output(x[:5], "b")
    arrays = floats(x=(10, 6))
    for found in (evaluate(g, arrays), run(plan(g, Mesh((2,))), arrays).outputs):
        np.testing.assert_array_equal(found["b"], arrays["x"][:5])
        np.testing.assert_array_equal(found["a"], np.maximum(arrays["x"][:5], 0))


# -- convolutions ------------------------------------------------------------------------------------------


@st.composite
def convolutions(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]:
    rank = draw(st.integers(1, 2))
    each = st.integers(1, 3)
    kernel = [draw(st.integers(1, 3)) for _ in range(rank)]
    attrs: dict[str, Any] = {
        "strides": tuple(draw(each) for _ in range(rank)),
        "dilations": tuple(draw(each) for _ in range(rank)),
        "pads": tuple(draw(st.integers(0, 2)) for _ in range(2 * rank)),
        "groups": draw(st.integers(1, 2)),
    }
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, attrs["dilations"], strict=True)]
    extents = [n + draw(st.integers(0, 7)) for n in reach]
    x = (draw(st.integers(1, 2)), 2, *extents)
    return x, (2 * draw(st.integers(1, 2)), 2 // attrs["groups"], *kernel), attrs


@settings(max_examples=60)
@given(convolutions(), st.data())
def test_strides_dilations_and_groups_are_said_by_selections_too(case: Any, data: st.DataObject) -> None:
    """Exact on integers: every expansion that applies, and again on what it built, down to dense convolutions."""
    x, w, attrs = case
    rng = np.random.default_rng(0)
    arrays = {name: rng.integers(-9, 9, shape) for name, shape in (("x", x), ("w", w), ("b", w[:1]))}
    g, tensors = graph_of(arrays)
    g.output(g.op("conv", *tensors, name="y", **attrs))
    h = g
    while sparse := [n.name for n in h.nodes.values() if n.op == "conv" and not is_dense(n.attrs)]:
        names = data.draw(st.permutations([e.__name__ for e in BUILTIN_OPS["conv"].expansions]))
        steps = (name for name in names if sparse[0] in find_one(h, sparse[0], name))
        h = expand.apply(h, sparse[0], into=next(steps))
    same(g, h, arrays)


def is_dense(attrs: Mapping[str, Any]) -> bool:
    return {attrs.get("groups", 1), *np.ravel(attrs["strides"]), *np.ravel(attrs["dilations"])} == {1}


def find_one(graph: Graph, at: str, into: str) -> list[str]:
    """The place, if the expansion applies there."""
    try:
        expand.apply(graph, at, into=into)
    except NotApplicable:
        return []
    return [at]


def test_halos_between_parts_are_what_enumeration_says() -> None:
    """A convolution pushed behind a sharded one reads its neighbors' rows only where its windows overlap them."""
    arrays = floats(x=(1, 2, 12, 5), w=(2, 2, 3, 3))
    g, (x, w) = graph_of(arrays)
    between = g.op("conv", x, w, name="a", pads=1)
    g.output(g.op("conv", between, w, name="c", pads=1), "y")
    h = shard.apply(g, "a", axis="h", parts=(3, 5, 4))
    h = same(g, forward.apply(h, "c"), arrays)
    rows = [(0, 3), (3, 8), (8, 12)]
    for k, (low, high) in enumerate(rows):
        points = product(range(1), range(2), range(low, high), range(5), range(2), range(3), range(3))
        needed = {cell[2] for cell in cells_read(g, "c", list(points), 0)}
        held = h.source(h.nodes[f"c.{k}"].inputs[0])
        assert held.shape == (1, 2, len(needed), 5)
        neighbors = {name for j, name in enumerate(("a.0", "a.1", "a.2")) if needed & set(range(*rows[j]))}
        assert set(held.stored) == neighbors
        assert len(needed - set(range(low, high))) == (k > 0) + (k < 2)


# -- expansions --------------------------------------------------------------------------------------------


def test_an_operator_declared_here_is_expanded_and_folded() -> None:
    def square(inputs: Sequence[Tensor], attrs: Any) -> Tensor:
        """x · x."""
        product: Tensor = inputs[0].graph.op("multiply", inputs[0], inputs[0])
        return product

    signature = BUILTIN_OPS["negative"].signature
    op = Op("square", signature, lambda xp, i, o, shard: xp.multiply(i[0], i[0], out=o[0]), expansions=(square,))
    arrays = floats(x=(4, 5))
    g, (x,) = graph_of(arrays)
    g.output(g.op(op, x, name="s"), "y")
    h = same(g, expand.apply(g, "s"), arrays)
    end = next(iter(h.nodes))
    back = same(g, fold.apply(h, end, op="square", inputs=("x",), into="square"), arrays)
    assert [node.op for node in back.nodes.values()] == ["square"]
    with pytest.raises(NotApplicable, match="where the expansion has"):
        fold.apply(back, end, op="square", inputs=("x",), into="square")


# -- attention -----------------------------------------------------------------------------------------------


def scores_and_values(masked: bool = False) -> tuple[Graph, Arrays]:
    arrays = floats(q=(2, 3, 5, 4), k=(2, 3, 12, 4), v=(2, 3, 12, 6))
    arrays["q"] *= 20
    g, (q, k, v) = graph_of(arrays)
    scores = matmul(q, k.mT, name="s")
    if masked:
        mask = np.where(np.arange(12) > 2 * np.arange(5)[:, None], -np.inf, 0).astype(np.float32)
        scores = scores + g.constant("mask", mask)
    g.output(matmul(softmax(scores, name="p"), v, name="o"), "y")
    return g, arrays


@pytest.mark.parametrize("parts", [1, 2, 3, 5, 12, (1, 7, 4)])
@pytest.mark.parametrize("masked", [False, True])
def test_attention_by_key_blocks(parts: Any, masked: bool) -> None:
    g, arrays = scores_and_values(masked)
    h = same(g, key_blocks.apply(g, "o", parts=parts), arrays, ROUNDING)
    assert not any(node.op == "softmax" for node in h.nodes.values()) and find(g, key_blocks) == ["o"]


def test_scores_by_key_blocks_are_never_put_together() -> None:
    g, arrays = scores_and_values()
    steps = Derivation().then(shard, "s", axis="n", parts=3).then(key_blocks, "o", parts=3)
    h = same(g, steps.replay(g), arrays, ROUNDING)
    assert max(h.stored[out].shape[-1] for node in h.nodes.values() for out in node.outputs) == 6
    assert "s" not in h.selections


@pytest.mark.parametrize("axis", ["b0", "b1", "m"])
def test_attention_by_head_and_by_query_block(axis: str) -> None:
    g, arrays = scores_and_values()
    steps = Derivation().then(shard, "s", axis=axis, parts=2).then(forward, "p").then(forward, "o")
    h = same(g, steps.replay(g), arrays)
    assert {"s", "p"}.isdisjoint(h.selections)
    for k in range(2):
        steps = steps.then(key_blocks, f"o.{k}", parts=(5, 7))
    same(g, steps.replay(g), arrays, ROUNDING)


def turned(name: str) -> Op:
    """A built-in operator under another name, its index axes backwards."""
    op = BUILTIN_OPS[name]

    def signature(shapes: Any, attrs: Any) -> Signature:
        return backwards(op.signature(shapes, attrs))

    return replace(op, name=f"other_{name}", signature=signature)


def attention_of(ops: Mapping[str, Op]) -> tuple[Graph, Arrays]:
    arrays = floats(q=(2, 3, 5, 4), k=(2, 3, 12, 4), v=(2, 3, 12, 6))
    g, (q, k, v) = graph_of(arrays)
    weights = g.op(ops["softmax"], g.op(ops["relu"], g.op(ops["matmul"], q, k.mT, name="s"), name="r"), name="p")
    g.output(g.op(ops["matmul"], weights, v, name="o"), "y")
    return g, arrays


@pytest.mark.parametrize(
    "steps",
    [
        [("fuse", "r", {}), ("fuse", "p", {}), ("compose", "o", {})],
        [("shard", "s", {"axis": "m", "parts": 2}), ("forward", "r", {}), ("forward", "p", {}), ("forward", "o", {})],
        [("shard", "s", {"axis": "n", "parts": 3}), ("forward", "r", {}), ("key_blocks", "o", {"parts": 3})],
        [("expand", "p", {"into": "exp_sum"}), ("expand", "o", {"into": "prod_sum"})],
    ],
    ids=["one block", "query blocks", "key blocks", "expanded"],
)
def test_no_rule_looks_at_names_or_at_the_order_of_axes(steps: Any) -> None:
    plain = {name: BUILTIN_OPS[name] for name in ("matmul", "relu", "softmax")}
    derivation = Derivation()
    for name, at, given_ in steps:
        derivation = derivation.then(name, at, **given_)
    (g, arrays), (other, _) = attention_of(plain), attention_of({name: turned(name) for name in plain})
    one, two = same(g, derivation.replay(g), arrays, ROUNDING), same(other, derivation.replay(other), arrays, ROUNDING)
    assert two.draw().text.replace("other_", "") == one.draw().text
    assert all(
        np.array_equal(a, b)
        for a, b in zip(evaluate(one, arrays).values(), evaluate(two, arrays).values(), strict=True)
    )


# -- random graphs -------------------------------------------------------------------------------------------

UNARY, BINARY = ("relu", "negative", "abs"), ("add", "subtract", "multiply")


@st.composite
def integer_graphs(draw: st.DrawFn) -> Graph:
    """Up to nine operators and views on matrices of integers, some of them read several times."""
    g = Graph()
    n = draw(st.integers(2, 5))
    tensors = [g.input("x", (n, n), "int64"), g.input("y", (n, n), "int64")]
    for _ in range(draw(st.integers(2, 9))):
        a, b = (draw(st.sampled_from(tensors[-4:])) for _ in range(2))
        what = draw(
            st.sampled_from(["unary", "binary", "linear", "matmul", "sum", "max", "concat", "T", "flip", "row"])
        )
        if what == "unary":
            made = g.op(draw(st.sampled_from(UNARY)), a)
        elif what == "binary":
            made = g.op(draw(st.sampled_from(BINARY)), a, b)
        elif what == "linear":
            made = linear(a, b, g.constant(g._fresh("bias"), np.arange(n)))
        elif what == "matmul":
            made = matmul(a, b)
        elif what in ("sum", "max"):
            row = g.op(what, a, axis=draw(st.integers(0, 1)), keepdims=True)
            made = g.op("add", row, b)
        elif what == "concat":
            cut, axis = draw(st.integers(1, n - 1)), draw(st.integers(0, 1))
            made = concat([a[:cut], b[cut:]] if axis == 0 else [a[:, :cut], b[:, cut:]], axis)
        else:
            made = {"T": a.T, "flip": a.flip(0), "row": a[draw(st.integers(0, n - 1))][None].broadcast_to((n, n))}[what]
        tensors.append(made)
    g.output(tensors[-1], "last")
    if draw(st.booleans()):
        g.output(tensors[-2], "before")
    return g


def arguments(draw: Any, graph: Graph, rule: Rule, at: str) -> dict[str, Any]:
    if rule is shard:
        axis = draw(st.sampled_from(graph.signature(at).axes))
        return {"axis": axis.name, "parts": draw(st.integers(1, axis.size)), "fan_in": draw(st.sampled_from([None, 2]))}
    return {}


@given(integer_graphs(), st.data())
def test_random_derivations_keep_results_and_replay(g: Graph, data: st.DataObject) -> None:
    n = next(iter(g.stored.values())).shape[0]
    rng = np.random.default_rng(n)
    arrays = {name: rng.integers(-5, 6, (n, n)) for name in ("x", "y")}
    before = g.to_json()
    h, steps = g, Derivation()
    for _ in range(data.draw(st.integers(1, 8))):
        rule = data.draw(st.sampled_from([shard, shard, forward, forward, fuse, compose, unfuse, expand, simplify]))
        anywhere = rule is shard or data.draw(st.integers(0, 3)) == 0
        places = sorted(rule.places(h)) if anywhere else find(h, rule)
        if not places:
            continue
        at = data.draw(st.sampled_from(places))
        given_ = arguments(data.draw, h, rule, at)
        untouched = parts_of_document(h)
        copies = tuple(map(dict, untouched))
        try:
            made = rewrite(h, rule, at, **given_)
        except NotApplicable as error:
            assert anywhere, "find and rewrite agree"
            assert str(error).startswith(f"{rule.name} at {at!r}: ") and len(str(error)) > len(at) + 12
            continue
        finally:
            assert parts_of_document(h) == copies, "the graph given is not changed"
        assert made.rule == rule.name and (made.changes or made.graph is h)
        assert h.outputs.keys() == made.graph.outputs.keys()
        h, steps = same(g, made.graph, arrays), steps.then(rule, at, **given_)
    assert g.to_json() == before
    again = Derivation.from_json(steps.to_json())
    assert again == steps
    assert parts_of_document(again.replay(g)) == parts_of_document(h)


# -- conditions ----------------------------------------------------------------------------------------------


def chain() -> Graph:
    g = Graph()
    x, w, b = g.input("x", (8, 6)), g.input("w", (6, 4)), g.input("b", (4,))
    y = relu(linear(x, w, b, name="l"), name="r")
    g.output(softmax(y, name="s"), "y")
    g.output(y.T, "t")
    return g


REFUSALS: list[tuple[Rule, str, dict[str, Any], str]] = [
    (shard, "nowhere", {"axis": "m"}, "there is no operator 'nowhere'"),
    (shard, "l", {"axis": "q"}, "there is no index axis 'q'; known axes"),
    (shard, "l", {"axis": "n", "parts": 5}, "5 parts of axis 'n', which has 4 points"),
    (shard, "l", {"axis": "n", "parts": 0}, "0 parts of axis 'n'"),
    (shard, "l", {"axis": "n", "parts": (3, 2)}, r"sizes >= 1 that sum to 4"),
    (shard, "l", {"axis": "k", "parts": 3, "fan_in": 1}, "fan_in is 1; a tree merges at least 2"),
    (forward, "r", {}, "no input is a concatenation"),
    (forward, "r", {"operand": 3}, "there is no input 3; it has 1"),
    (fuse, "l", {}, "'x' is not itself the result of an operator"),
    (fuse, "s", {}, "'r' is also read elsewhere, or is an output"),
    (unfuse, "r", {}, "relu is one operator; only a block of two can be taken apart"),
    (expand, "r", {}, r"relu lists no expansion; there are no expansions"),
    (
        expand,
        "l",
        {"into": "exp_sum"},
        "linear lists no expansion 'exp_sum'; known expansions: 'matmul_add'",
    ),
    (fold, "r", {"op": "linear", "inputs": ("x", "w"), "into": "prod_sum"}, "where the expansion has|would stand"),
    (key_blocks, "s", {}, "lists no expansion 'prod_sum'"),
    (key_blocks, "l", {}, "no input is an operator's result whose declaration lists the expansion 'exp_sum'"),
    (simplify, "permute_dims", {}, "shortest already"),
    (simplify, "r", {}, "'r' is a stored tensor, not a selection; give one of those"),
    (move, "nope", {"placement": {"r": 0}, "consumer": 1}, "no tensor 'nope'"),
]


@pytest.mark.parametrize(
    ("rule", "at", "given_", "reason"), REFUSALS, ids=[f"{r[0].name}-{r[3][:30]}" for r in REFUSALS]
)
def test_what_does_not_apply_is_refused_with_the_reason(rule: Rule, at: str, given_: Any, reason: str) -> None:
    g = chain()
    before = g.to_json()
    with pytest.raises(NotApplicable, match=reason):
        rule.apply(g, at, **given_)
    assert g.to_json() == before


def test_names_that_a_block_is_taken_apart_with_are_kept() -> None:
    g = Graph()
    g.output(relu(linear(g.input("x", (8, 6)), g.input("w", (6, 4)), g.input("b", (4,)), name="l"), name="r"), "y")
    g.output(relu(g.input("z", (4,)), name="other"))
    block = fuse.apply(g, "r")
    apart = unfuse.apply(block, "r", name="l")
    assert [*apart.nodes] == ["other", "l", "r"] and apart.nodes["l"].outputs == ("l",)
    called = unfuse.apply(block, "r", name="x", result="product")
    assert called.nodes["x"].outputs == ("product",) and called.nodes["r"].inputs == ("product",)
    for given_, said in (
        ({"name": "other"}, "'other' is the name of an operator already; give name= another one"),
        ({"name": "r"}, "'r' is the name of an operator already; give name= another one"),
        ({"name": "x"}, "'x' is the name of a tensor already; give result= another one"),
        ({"result": "w"}, "'w' is the name of a tensor already; give result= another one"),
    ):
        with pytest.raises(NotApplicable, match=f"unfuse at 'r': {said}"):
            unfuse.apply(block, "r", **given_)


@pytest.mark.parametrize(("name", "what"), [("r", "an operator"), ("x", "a tensor")])
def test_what_is_computed_again_has_a_name_of_its_own(name: str, what: str) -> None:
    g = Graph()
    h = relu(g.input("x", (4,)), name="h")
    g.output(relu(h, name="r") + relu(h, name="s"), "y")
    assert "again" in recompute.apply(g, "h", name="again").nodes
    with pytest.raises(NotApplicable, match=f"'{name}' is the name of {what} already; give name= another one"):
        recompute.apply(g, "h", name=name)


def test_a_fault_while_fusing_is_not_taken_for_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    def faulty(*args: Any) -> None:
        raise ValueError("planted")

    g = chain()
    assert find(g, fuse) == ["r"]
    monkeypatch.setattr(rules, "_join", faulty)
    replayed = partial(Derivation().then(fuse, "r").replay, g)
    for asked in (partial(find, g, fuse), partial(fuse.apply, g, "r"), replayed):
        with pytest.raises(ValueError, match=r"^planted$") as raised:
            asked()
        assert raised.type is ValueError


def test_a_fault_of_an_expansion_is_not_taken_for_a_refusal() -> None:
    def faulty(inputs: Sequence[Tensor], attrs: Any) -> Tensor:
        raise ValueError("planted")

    g = Graph()
    op = replace(BUILTIN_OPS["negative"], name="odd", expansions=(faulty,))
    g.output(g.op(op, g.input("x", (4,)), name="n"))
    for asked in (partial(find, g, expand), partial(expand.apply, g, "n")):
        with pytest.raises(ValueError, match=r"^planted$") as raised:
            asked()
        assert raised.type is ValueError
    assert list(g.nodes) == ["n"]


def test_an_operator_of_two_outputs_stands_for_none_of_one() -> None:
    def twice(inputs: Sequence[Tensor], attrs: Any) -> tuple[Tensor, ...]:
        return inputs[0], inputs[0]

    g = chain()
    put_item(g.ops, "pair", replace(BUILTIN_OPS["top_k"], name="pair", expansions=(twice,)))
    asked: dict[str, Any] = {"op": "pair", "inputs": ("x",), "into": "twice", "attrs": {"k": 2}}
    with pytest.raises(NotApplicable, match="it has 1 outputs, and pair has 2"):
        fold.apply(g, "r", **asked)
    assert find(g, fold, **asked) == []


WRONG: list[tuple[Rule, str, dict[str, Any], str]] = [
    (fold, "r", {"op": "odd", "inputs": ("x",), "into": "any"}, "odd"),
    (fold, "r", {"op": "linear", "inputs": ("x", "x"), "into": "prod_sum"}, r"linear '\w\.folded': operand 0"),
    (fold, "r", {"op": "linear", "inputs": ("x", "nope"), "into": "prod_sum"}, "no tensor 'nope'"),
    (fold, "r", {"op": "linear", "inputs": ("x", "w"), "into": "sums"}, "lists no expansion into='sums'; known"),
    (move, "permute_dims", {"placement": {}, "consumer": 1}, "the placement has no device for tensor 'r'"),
]


@pytest.mark.parametrize(("rule", "at", "given_", "reason"), WRONG, ids=[f"{w[0].name}-{w[3][:30]}" for w in WRONG])
def test_arguments_wrong_at_any_place_are_value_errors(rule: Rule, at: str, given_: Any, reason: str) -> None:
    g = chain()
    before = g.to_json()
    for asked in (partial(rule.apply, g, at, **given_), partial(find, g, rule, **given_)):
        with pytest.raises(ValueError, match=reason) as raised:
            asked()
        assert not isinstance(raised.value, NotApplicable) and g.to_json() == before


def test_windows_are_not_read_cell_by_cell() -> None:
    g = Graph()
    y = relu(g.input("x", (1, 1, 8, 8)), name="r")
    g.output(g.op("conv", y, g.input("w", (2, 1, 3, 3)), name="c"))
    with pytest.raises(NotApplicable, match="conv reads coordinate 2 in windows"):
        fuse.apply(g, "c")
    h = same(g, compose.apply(g, "c"), floats(x=(1, 1, 8, 8), w=(2, 1, 3, 3)))
    assert {axis.name for axis in h.signature("c").axes} == {"n", "ci"}


def test_an_axis_that_would_compute_again_is_not_cut() -> None:
    g = Graph()
    a = relu(g.input("x", (4, 5)), name="r")
    g.output(matmul(a, g.input("w", (5, 6)), name="m"))
    with pytest.raises(NotApplicable, match="each part along n of matmul would compute all of it again"):
        fuse.apply(g, "m")


def test_a_concatenation_read_as_a_whole_does_not_move_on() -> None:
    g = Graph()
    x = g.input("x", (4, 6))
    g.output(softmax(concat([relu(x), x], 1), name="s"))
    with pytest.raises(NotApplicable, match="every part of it would read all of coordinate 1 of input 0"):
        forward.apply(g, "s")


def test_results_in_turns_are_not_concatenated() -> None:
    """An operator whose axis writes every other column: parts along it are not blocks of the result."""

    def signature(shapes: Any, attrs: Any) -> Signature:
        axes = (Axis("i", shapes[0][0]), Axis("j", 2))
        out = project(axes, [{"i": 1, "j": shapes[0][0]}])
        turns = project(axes, [{"i": 2, "j": 1}])
        return Signature(axes, (Operand(out),), (Operand(turns),))

    def block(xp: Any, inputs: Any, outputs: Any, shard_: Any) -> None:
        outputs[0][...] = 0

    g = Graph()
    op = Op("turns", lambda shapes, attrs: signature([(shapes[0][0] // 2,)], attrs), block)
    g.output(g.op(op, g.input("x", (8,)), name="t"))
    with pytest.raises(NotApplicable, match="write coordinate 0 of output 0 in turns"):
        shard.apply(g, "t", axis="j", parts=2)
    assert shapes_of(shard.apply(g, "t", axis="i", parts=2), "part(turns)") == [((6,), (4,))] * 2


# -- the engine ----------------------------------------------------------------------------------------------


def test_rules_from_outside_are_applied_found_recorded_and_replayed() -> None:
    @rule(requires="two negations, one after the other", keeps="every bit")
    def cancel(draft: Any, at: str) -> None:
        """−(−x) = x."""
        node = draft.node(at)
        below = draft.maker(node.inputs[0])
        if node.op != "negative" or below is None or below.op != "negative":
            raise NotApplicable("it is not a negation of a negation")
        draft.become(at, [draft.tensor(below.inputs[0])])

    try:
        g = Graph()
        g.output(g.op("negative", g.op("negative", relu(g.input("x", (3,)), name="r"), name="one"), name="two"), "y")
        arrays = floats(x=(3,))
        assert find(g, cancel) == ["two"]
        h = same(g, Derivation().then(cancel, "two").replay(g), arrays)
        assert h.outputs == {"y": "r"}
        with pytest.raises(NotApplicable, match="step 1: cancel at 'two': there is no operator 'two'"):
            Derivation().then(cancel, "two").then(cancel, "two").replay(g)
    finally:
        drop_item(RULES, "cancel")
    with pytest.raises(NotApplicable, match="there is no rule 'cancel'"):
        Derivation().then("cancel", "two").replay(g)


def test_what_no_rule_touches_keeps_its_names() -> None:
    g = chain()
    h = shard.apply(g, "l", axis="batch", parts=2)
    assert {name: h.nodes[name] for name in ("r", "s")} == {name: g.nodes[name] for name in ("r", "s")}
    assert h.outputs == g.outputs and h.selections["permute_dims"] == g.selections["permute_dims"]
    assert rewrite(g, shard, "l", axis="batch", parts=2).changes[0].before == ("linear",)


def test_selections_move_and_shrink_as_their_own_functions_say() -> None:
    g = Graph()
    x, y = g.input("x", (8, 6)), g.input("y", (8, 6))
    g.output(relu(concat([x, y], 1)[2:, 1:4], name="r"))
    assert find(g, simplify) == ["slice"]
    h = same(g, simplify.apply(g, "slice"), floats(x=(8, 6), y=(8, 6)))
    assert h.source("slice").stored == ("x",) and "concat" not in h.selections
    same(g, move.apply(g, "slice", placement={"x": 0, "y": 1}, consumer=1), floats(x=(8, 6), y=(8, 6)))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "not a JSON document"),
        ("{}", "format is None"),
        ('{"format": "tapestry-derivation/0", "steps": []}', r"derivation/1'; write it anew with Derivation\.to_json"),
        ('{"format": "tapestry-derivation/1"}', "missing required field `steps`"),
        ('{"format": "tapestry-derivation/1", "steps": [], "note": 1}', "unknown field `note`"),
        (
            '{"format": "tapestry-derivation/1", "steps": [{"rule": "r", "at": "a", "arguments": {}, "where": "b"}]}',
            r"unknown field `where` - at `\$\.steps\[0\]`",
        ),
        (
            '{"format": "tapestry-derivation/1", "steps": [{"rule": "r", "at": 1, "arguments": {}}]}',
            r"got `int` - at `\$\.steps\[0\]\.at`",
        ),
    ],
)
def test_what_is_not_a_derivation_is_refused(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        Derivation.from_json(text)


def test_costs_do_not_depend_on_sizes() -> None:
    n = 10**9
    g = Graph()
    x, w = g.input("x", (n, n)), g.input("w", (n, n))
    g.output(relu(linear(x, w, name="l"), name="r"))
    h = Derivation().then(shard, "l", axis="batch", parts=4).then(forward, "r").then(fuse, "r.3").replay(g)
    assert h.stored["r.3"].shape == (n // 4, n)
    for one, two in pairwise(h.nodes[f"r.{k}"].name for k in range(4)):
        assert one != two


@pytest.mark.parametrize(("first", "step", "count"), [(2, 1, 8), (9, -1, 5), (1, 3, 3), (0, 2, 5)])
def test_operators_that_begin_anywhere_are_sharded(first: int, step: int, count: int) -> None:
    """What an operator reads need not begin at a tensor's first cell."""

    def signature(shapes: Any, attrs: Any) -> Signature:
        axes = (Axis("i", count),)
        return Signature(
            axes, (Operand(project(axes, [{"i": step, "": first}])),), (Operand(project(axes, [{"i": 1}])),)
        )

    def block(xp: Any, inputs: Any, outputs: Any, shard: Any) -> None:
        begin = shard.input_boxes[0].start[0]
        for k, i in enumerate(range(*shard.range("i"))):
            outputs[0][k] = inputs[0][first + step * i - begin]

    g = Graph()
    g.output(g.op(Op("pick", signature, block), g.input("x", (10,), "float64"), name="pick"), "y")
    values = np.arange(10.0)
    wanted = evaluate(g, {"x": values})["y"]
    np.testing.assert_array_equal(wanted, values[[first + step * i for i in range(count)]])
    for parts in (2, 3):
        halves = shard.apply(g, "pick", axis="i", parts=parts)
        np.testing.assert_array_equal(evaluate(halves, {"x": values})["y"], wanted)
        if parts < count // 2:
            again = shard.apply(halves, "pick.0", axis="i", parts=2)
            np.testing.assert_array_equal(evaluate(again, {"x": values})["y"], wanted)


@pytest.mark.parametrize("size", [2, 3, 7])
def test_resizes_are_sharded(size: int) -> None:
    g = Graph()
    g.output(ops.resize(g.input("x", (5,), "float64"), (size,), name="r"), "y")
    wanted = evaluate(g, {"x": np.arange(5.0)})["y"]
    found = evaluate(shard.apply(g, "r", axis="i0", parts=2), {"x": np.arange(5.0)})["y"]
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(
    ("make", "operands"),
    [
        (lambda x: ops.softmax(x, 1), 0),
        (lambda x: ops.log_softmax(x, 1), 0),
        (lambda x, s, b: ops.layer_normalization(x, s, b), 2),
        (lambda x, s: ops.rms_normalization(x, s), 1),
    ],
)
@pytest.mark.parametrize("devices", [2, 3, 5])
def test_rows_are_sharded_along_their_own_axis_once_expanded(make: Any, operands: int, devices: int) -> None:
    """Each operator of the expansion in parts of the row: no part sees a whole row."""
    rng = np.random.default_rng(0)
    arrays = {"x": rng.normal(size=(3, 300)), **{f"v{k}": rng.normal(size=300) for k in range(operands)}}
    g = Graph()
    y = make(*(g.input(name, a.shape, "float64") for name, a in arrays.items()))
    g.output(y, "y")
    (node,) = g.nodes
    wide = expand.apply(g, node, into=g.ops[g.nodes[node].op].expansions[0].__name__)
    fix = {}
    for name in wide.nodes:
        rows = [axis.name for axis in wide.signature(name).axes if axis.size == 300]
        if rows:
            fix[name] = {rows[-1]: devices}
    made = plan(wide, Mesh((devices,)), fix=fix)
    assert len(fix) >= 2 and all(made.sharding[name] == axes for name, axes in fix.items())
    found = run(made, arrays, verify=True)
    np.testing.assert_allclose(found.outputs["y"], evaluate(g, arrays)["y"], rtol=1e-12, atol=1e-12)
    assert found.nbytes_moved == made.nbytes_moved < 3 * 300 * 8
