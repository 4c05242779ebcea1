"""One of each thing that can be added, written here, outside the packages: it works everywhere, nothing else changes.

A view kind, an operator, an ONNX operator, a rewrite, an expansion, a backend, a rung of the ladder, a picture and an
export, of a plan and of a set.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from tapestry_exec import evaluate, run
from tapestry_exec.numpy import NumpyBackend
from tapestry_exec.run import BACKENDS
from tapestry_plan import (
    Axis,
    Backward,
    Graph,
    Mesh,
    Op,
    Operand,
    ShardPlan,
    Signature,
    Tensor,
    gradient,
    operation,
    ops,
    plan,
    project,
)
from tapestry_plan.draw import show_projection
from tapestry_plan.onnx import IMPORTERS, Import, Importing, Node, load_onnx
from tapestry_plan.ops import operator, relu
from tapestry_plan.rewrite import RULES, Derivation, Draft, NotApplicable, Rule, expand, find, rule
from tapestry_plan.steps import HOST, Copy
from tapestry_sets import AffineMap, Region, Stripe, allocate, overlap, overlaps, roll, tally
from tapestry_sets.alias import RUNGS, CellQuestion, Cells, Rung
from tapestry_sets.draw import Picture, canvas
from tapestry_sets.limits import OPEN, Open, drop_item, put_item
from tapestry_sets.views import Guard, IndexMap, Piece
from tests.handing_out import row_of


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
    (dx,) = gradient(ops.sum(g.tensor("squares"), keepdims=True), [g.tensor("x")])
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


@operator(block=lambda xp, inputs, outputs, shard: xp.multiply(inputs[0], shard.attrs["by"], out=outputs[0]))
def scaled(x: Tensor, by: float = 2.0, *, name: str | None = None) -> Tensor:
    """x times a number: the function's signature is the declaration."""


def test_an_operator_is_one_function() -> None:
    g = Graph()
    g.output(scaled(relu(g.input("x", (5, 8))), by=3.0, name="three"), "y")
    x = np.random.default_rng(1).standard_normal((5, 8)).astype(np.float32)
    for cut in ("i0", "i1"):
        result = run(plan(g, Mesh((3,)), fix={"three": {cut: 3}}), {"x": x}, verify=True)
        np.testing.assert_array_equal(result.outputs["y"], np.maximum(x, 0) * np.float32(3))


# -- an operator of ONNX: one function, and its row in the table of importers


def import_squares(at: Importing, node: Node) -> Tensor:
    """``com.example::SumOfSquares`` becomes the operator above."""
    (x,) = at.inputs(node)
    return at.graph.op(sum_of_squares(), x, name=node.name)


def foreign_model() -> Any:
    """A model of two nodes, the second of a domain that nobody knows."""
    onnx = pytest.importorskip("onnx")
    nodes = [
        onnx.helper.make_node("Relu", ["x"], ["h"], name="relu"),
        onnx.helper.make_node("SumOfSquares", ["h"], ["y"], name="squares", domain="com.example"),
    ]
    ends = [onnx.helper.make_tensor_value_info(name, 1, shape) for name, shape in (("x", [7, 10]), ("y", [7]))]
    versions = [onnx.helper.make_opsetid("", 20), onnx.helper.make_opsetid("com.example", 1)]
    return onnx.helper.make_model(onnx.helper.make_graph(nodes, "g", ends[:1], ends[1:]), opset_imports=versions)


def test_an_operator_of_onnx_is_one_function_and_one_row() -> None:
    with pytest.raises(ValueError, match=r"SumOfSquares of domain 'com.example'"):
        load_onnx(foreign_model())
    with row_of(IMPORTERS, "com.example::SumOfSquares", Import(import_squares)):
        g = load_onnx(foreign_model())
    x = np.random.default_rng(2).standard_normal((7, 10)).astype(np.float32)
    p = plan(g, Mesh((3,)), fix={"squares": {"k": 3}})
    got = run(p, {"x": x}, verify=True).outputs["y"]
    np.testing.assert_allclose(got, (np.maximum(x, 0) ** 2).sum(1), rtol=1e-5)


# -- a rewrite: one function under `@rule`


@pytest.fixture
def once() -> Iterator[Rule]:
    """Rectifying twice is rectifying once."""

    @rule("a relu that reads a relu", "every value")
    def once(draft: Draft, at: str) -> None:
        node = draft.node(at)
        below = draft.maker(node.inputs[0])
        if node.op != "relu" or below is None or below.op != "relu":
            raise NotApplicable(f"{at!r} is not a relu of a relu")
        draft.become(at, [draft.tensor(node.inputs[0])])

    yield once
    drop_item(RULES, "once")


def test_a_rewrite_applies_refuses_is_recorded_and_replayed(once: Rule) -> None:
    g = Graph()
    h = relu(relu(g.input("x", (4, 6)), name="first"), name="second")
    g.output(ops.sum(h, name="total", keepdims=True), "y")
    x = np.random.default_rng(3).standard_normal((4, 6)).astype(np.float32)
    steps = Derivation().then("once", "second").then("shard", "first", axis="i0", parts=2)
    for shorter in (once.apply(g, "second"), Derivation.from_json(steps.to_json()).replay(g)):
        assert "second" not in shorter.nodes
        np.testing.assert_array_equal(evaluate(shorter, {"x": x})["y"], evaluate(g, {"x": x})["y"])
    with pytest.raises(NotApplicable, match="'first' is not a relu of a relu"):
        once.apply(g, "first")


# -- an expansion: one function in the operator's declaration


def times_itself(inputs: Sequence[Tensor], attrs: Any) -> Tensor:
    """x · x, where numbers have signs."""
    (x,) = inputs
    if x.dtype.startswith("uint"):
        raise NotApplicable(f"{x.name!r} is {x.dtype}")
    return x * x


def test_an_expansion_applies_refuses_and_is_planned() -> None:
    relus = relu(Graph().input("x", (1,))).graph.ops["relu"]
    square = replace(
        relus, name="square", block=lambda xp, i, o, s: xp.square(i[0], out=o[0]), expansions=(times_itself,)
    )
    g = Graph()
    g.output(g.op(square, g.input("x", (4, 6)), name="signed"), "y")
    g.output(g.op(square, g.input("n", (4, 6), "uint8"), name="counts"), "z")
    assert find(g, expand) == ["signed"]
    with pytest.raises(NotApplicable, match="times_itself: 'n' is uint8"):
        expand.apply(g, "counts")
    arrays = {"x": np.arange(-12, 12, dtype=np.float32).reshape(4, 6), "n": np.ones((4, 6), np.uint8)}
    p = plan(g, Mesh((2,)), expand=["times_itself"])
    assert [found.considered for found in p.expansions if found.node == "signed"] == [("times_itself",)]
    for outputs in (evaluate(expand.apply(g, "signed"), arrays), run(p, arrays, verify=True).outputs):
        np.testing.assert_array_equal(outputs["y"], arrays["x"] ** 2)


# -- a backend: one class, as an object or by a row in the table of backends


class Tracing(NumpyBackend):
    """NumPy's backend, noting which device sends how many cells to which."""

    name = "tracing"

    def __init__(self) -> None:
        super().__init__()
        self.sent: Counter[tuple[int, int]] = Counter()

    def move(self, payload: np.ndarray, src: int, dst: int) -> np.ndarray:
        self.sent[src, dst] += payload.nbytes
        return super().move(payload, src, dst)


def test_a_backend_is_an_object(monkeypatch: pytest.MonkeyPatch) -> None:
    g, x, expected = network()
    p = plan(g, Mesh((3,)), fix={"squares": {"k": 3}})
    backend = Tracing()
    result = run(p, {"x": x}, backend=backend, verify=True, memory_nbytes=max(p.peak_nbytes))
    np.testing.assert_allclose(result.outputs["y"], expected, rtol=1e-5)
    assert p.nbytes_moved and {link: n for link, n in backend.sent.items() if n} == result.nbytes_by_link


def test_a_backend_has_a_name_by_one_row() -> None:
    g, x, expected = network()
    with row_of(BACKENDS, "tracing", (__name__, "Tracing")):
        result = run(plan(g, Mesh((2,))), {"x": x}, backend="tracing")
    np.testing.assert_allclose(result.outputs["y"], expected, rtol=1e-5)


# -- a rung: one function, and its row in the ladder of a question


def meet_where_alike(a: Cells, b: Cells) -> bool | Open:
    """Two views of the same pieces meet in every cell that they have."""
    return not a.is_empty if a.pieces == b.pieces and a.shape == b.shape else OPEN


def test_a_rung_answers_in_its_turn_and_leaves_the_rest_open(monkeypatch: pytest.MonkeyPatch) -> None:
    a = allocate((4, 6))
    rolled, other = roll(a, 3, 1)[:, :4], roll(a, 2, 1)[:, :4]
    question = CellQuestion.MEETS
    monkeypatch.setitem(RUNGS, question, (Rung(meet_where_alike), *RUNGS[question]))
    with tally() as decided:
        assert overlaps(rolled, rolled) and overlaps(rolled, other)
        assert not overlaps(rolled, roll(a, 3, 1)[:, 4:])
    assert decided.rungs["meet_where_alike"] == 1 and decided.closed == 3


def test_a_fault_in_a_rung_surfaces(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(a: Cells, b: Cells) -> bool:
        raise KeyError("planted")

    monkeypatch.setitem(RUNGS, CellQuestion.MEETS, (Rung(fail), *RUNGS[CellQuestion.MEETS]))
    view = roll(allocate((4, 6)), 3, 1)[:, :4]
    with pytest.raises(KeyError, match="planted"):
        overlaps(view, view)


# -- a picture: one function that returns a `Picture`


def show_links(shard_plan: ShardPlan) -> Picture:
    """Bytes from each device (rows) to each (columns)."""
    devices = range(shard_plan.mesh.size)
    rows = [[shard_plan.nbytes_by_link.get((a, b), 0) for b in devices] for a in devices]
    words = [canvas.written(8, 20 * (a + 1), " ".join(map(str, row))) for a, row in enumerate(rows)]
    drawing = canvas.Drawing(200, 20 * len(rows) + 8, tuple(words))
    return Picture("\n".join(" ".join(map(str, row)) for row in rows), canvas.document(drawing, "bytes by link"))


def test_a_picture_is_shown_as_all_pictures_are() -> None:
    g, _, _ = network()
    p = plan(g, Mesh((3,)), fix={"squares": {"k": 3}})
    shown = show_links(p)._repr_mimebundle_()
    assert sum(map(int, shown["text/plain"].split())) == p.nbytes_moved
    assert shown["image/svg+xml"].startswith("<svg") and "bytes by link" in shown["image/svg+xml"]


# -- an export of a set: one function of its public fields


def to_condition(stripe: Stripe) -> str:
    """A stripe as a condition in Python or C, for a variable that counts from the stripe's phase on."""
    return f"(x - {stripe.phase}) % {stripe.period} < {stripe.on}"


def test_an_export_of_a_set_says_what_the_set_says() -> None:
    stripe = Stripe(3, 4, 2)
    assert to_condition(stripe) == "(x - 2) % 7 < 3"
    assert [eval(to_condition(stripe), {"x": x}) for x in range(40)] == [x in stripe for x in range(40)]


# -- an export of a plan: one function of its public fields


def transfers(shard_plan: ShardPlan) -> list[tuple[int, int, str, int]]:
    """Rows for other tools: from device, to device, tensor, bytes."""
    buffers = {buffer.id: buffer for buffer in shard_plan.buffers}
    rows: Counter[tuple[int, int, str]] = Counter()
    for step in shard_plan.steps:
        if isinstance(step, Copy) and step.src != HOST:
            src, dst = buffers[step.src], buffers[step.dst]
            if src.device != dst.device:
                cells = sum(region.size for region in step.regions)
                rows[src.device, dst.device, step.tensor] += cells * np.dtype(src.dtype).itemsize
    return [(*key, n) for key, n in sorted(rows.items())]


@pytest.mark.parametrize("cut", ["c", "k"])
def test_an_export_says_what_the_plan_says(cut: str) -> None:
    g, _, _ = network()
    p = plan(g, Mesh((3,)), fix={"squares": {cut: 3}, "relu": {"i0": 3}}, layout={"x": {0: 3}})
    by_link: Counter[tuple[int, int]] = Counter()
    for src, dst, _, nbytes in transfers(p):
        by_link[src, dst] += nbytes
    assert by_link == p.nbytes_by_link and (cut == "c" or by_link)
    assert transfers(ShardPlan.from_json(p.to_json(), ops={"sum_of_squares": sum_of_squares()})) == transfers(p)


def test_a_saved_graph_keeps_the_view_kind_as_its_pieces() -> None:
    g, x, expected = network()
    again = Graph.from_json(g.to_json(), ops={"sum_of_squares": sum_of_squares()})
    put_item(again.stored, "w", g.stored["w"])
    np.testing.assert_allclose(evaluate(again, {"x": x})["y"], expected, rtol=1e-5)
