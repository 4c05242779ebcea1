"""A view kind and an operator written here, outside the packages, work everywhere at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from tapestry_exec import evaluate, run
from tapestry_plan import (
    Axis,
    Backward,
    Derivation,
    Graph,
    Mesh,
    Op,
    Operand,
    ShardPlan,
    Signature,
    Tensor,
    gradient,
    operation,
    plan,
    project,
    reduce_sum,
    relu,
    show_projection,
)
from tapestry_sets import AffineMap, Guard, IndexMap, Piece, Region, allocate, overlap, overlaps


@dataclass(frozen=True, slots=True)
class Butterfly:
    """The two halves of the last axis swapped, the second one backwards: a view kind of two pieces."""

    def out_shape(self, shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
        (shape,) = shapes
        if shape[-1] % 2:
            raise ValueError(f"butterfly: the last axis of {shape} has {shape[-1]} cells; it must be even")
        return shape

    def pieces(self, shapes: Sequence[tuple[int, ...]]) -> tuple[Piece, ...]:
        (shape,) = shapes
        rank, half = len(shape), shape[-1] // 2
        keep = [tuple(int(i == j) for j in range(rank)) for i in range(rank - 1)]
        last = tuple([0] * (rank - 1) + [1])
        back = tuple([0] * (rank - 1) + [-1])
        low = tuple([0] * rank), (*shape[:-1], half)
        high = tuple([0] * (rank - 1) + [half]), shape
        zeros = (0,) * (rank - 1)
        return (
            Piece(
                0,
                (Guard(0, Region.from_bounds(shape, *low)),),
                IndexMap((AffineMap((*keep, last), (*zeros, half)),), rank),
            ),
            Piece(
                0,
                (Guard(0, Region.from_bounds(shape, *high)),),
                IndexMap((AffineMap((*keep, back), (*zeros, 2 * half - 1)),), rank),
            ),
        )


def butterfly(x: np.ndarray) -> np.ndarray:
    half = x.shape[-1] // 2
    return np.concatenate([x[..., half:], x[..., :half][..., ::-1]], -1)


def test_the_view_kind_reads_what_numpy_reads() -> None:
    x = np.arange(24).reshape(4, 6)
    pieces = Butterfly().pieces(((4, 6),))
    got = np.empty_like(x)
    for at in np.ndindex(4, 6):
        (source,) = [p.map.apply(at) for p in pieces if at in p.guards[0].region]
        got[at] = x[source]
    np.testing.assert_array_equal(got, butterfly(x))


def test_alias_queries_know_it() -> None:
    a = allocate((4, 6), name="A")
    v = a.apply(Butterfly())
    assert overlaps(v[:, 0], a[:, 3]) and not overlaps(v[:, 0], a[:, 2])
    assert overlaps(v[:, 5], a[:, 0])
    found = overlap(v[:, 3:], a)
    assert found.size == 12
    far = allocate((10**9, 6 * 10**9)).apply(Butterfly())
    assert not overlaps(far[:, 0], far[:, 1])


def test_it_is_drawn() -> None:
    v = allocate((2, 6), name="A").apply(Butterfly())
    assert v[:, :3]._repr_mimebundle_()["text/plain"].count("1") >= 6


def sum_of_squares(channels_first: bool = True) -> Op:
    """y[c] = Σ_k x[c, k]², an operator with a reduction axis."""

    def signature(shapes: Sequence[tuple[int, ...]], attrs: Any) -> Signature:
        ((c, k),) = shapes
        axes = (Axis("c", c), Axis("k", k, "reduction"))
        return Signature(axes, (Operand(project(axes, [{"c": 1}, {"k": 1}])),), (Operand(project(axes, [{"c": 1}])),))

    def block(xp: Any, inputs: Sequence[Any], outputs: Sequence[Any], shard: Any) -> None:
        xp.einsum("ck,ck->c", inputs[0], inputs[0], out=outputs[0])

    def adjoint(b: Backward) -> list[Tensor]:
        return [b.grad.expand_dims(1) * b.inputs[0] * 2]

    return Op("sum_of_squares", signature, block, flop=2.0, reduction="sum", adjoint=adjoint)


def network() -> tuple[Graph, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((7, 10)).astype(np.float32)
    w = rng.standard_normal((10, 12)).astype(np.float32)
    g = Graph()
    h = relu(g.input("x", x.shape) @ g.constant("w", w))
    g.output(g.op(sum_of_squares(), h.view(Butterfly()), name="squares"), "y")
    return g, x, (butterfly(np.maximum(x @ w, 0)) ** 2).sum(1)


@pytest.mark.parametrize("devices", [1, 2, 3, 4, 6])
@pytest.mark.parametrize("cut", [None, "c", "k"])
def test_both_are_planned_and_run(devices: int, cut: str | None) -> None:
    g, x, expected = network()
    fix = {} if cut is None else {"squares": {cut: devices}}
    p = plan(g, Mesh((devices,)), fix=fix)
    if cut is not None and devices > 1:
        assert p.sharding["squares"] == {cut: devices}
    result = run(p, {"x": x}, verify=True)
    np.testing.assert_allclose(result.outputs["y"], expected, rtol=1e-5)
    assert result.nbytes_moved == p.nbytes_moved
    np.testing.assert_allclose(evaluate(g, {"x": x})["y"], expected, rtol=1e-5)


def test_a_saved_plan_needs_the_operator_by_name_only() -> None:
    g, x, expected = network()
    op = g.ops["sum_of_squares"]
    text = plan(g, Mesh((3,))).to_json()
    with pytest.raises(ValueError, match="sum_of_squares"):
        ShardPlan.from_json(text)
    again = ShardPlan.from_json(text, ops={"sum_of_squares": op})
    result = run(again, {"x": x}, constants={"w": g.stored["w"].data})
    np.testing.assert_allclose(result.outputs["y"], expected, rtol=1e-5)


@pytest.mark.parametrize(("axis", "parts"), [("c", 3), ("k", 4)])
def test_both_are_rewritten(axis: str, parts: int) -> None:
    """Sharded as graphs, forwarded, saved with a derivation; the view stands between what moves."""
    g, x, expected = network()
    steps = Derivation().then("shard", "squares", axis=axis, parts=parts).then("shard", "relu", axis="i0", parts=2)
    for h in (steps.replay(g), Derivation.from_json(steps.to_json()).replay(g)):
        assert len(h.nodes) > len(g.nodes) + 2
        np.testing.assert_allclose(evaluate(h, {"x": x})["y"], expected, rtol=1e-5)
        np.testing.assert_allclose(run(plan(h, Mesh((2,))), {"x": x}, verify=True).outputs["y"], expected, rtol=1e-5)


def test_both_are_differentiated() -> None:
    g, x, _ = network()
    (dx,) = gradient(reduce_sum(g.tensor("squares")), [g.tensor("x")])
    g.output(dx, "dx")
    w = g.stored["w"].data
    assert w is not None
    found = run(plan(g, Mesh((3,))), {"x": x}, verify=True).outputs["dx"]
    np.testing.assert_allclose(found, 2 * np.maximum(x @ w, 0) @ w.T, rtol=1e-4)


def test_its_projections_are_drawn() -> None:
    g, _, _ = network()
    picture = show_projection(operation(g, "squares"), {"c": 2})
    assert "c 7" in picture.text and "k 12" in picture.text and picture.svg.startswith("<svg")


def test_graphs_with_them_are_drawn() -> None:
    g, _, _ = network()
    assert "butterfly" in g.draw().text and "sum_of_squares" in g.draw().text
