"""Recurrent layers split by the cells of their states: step by step, with the states moved, against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tapestry_exec import evaluate, run
from tapestry_plan import Device, Graph, Mesh, ShardPlan, ops, plan, rewrite, same_graph
from tapestry_plan.ir import NotApplicable
from tapestry_plan.onnx import load_onnx, to_onnx
from tapestry_plan.ops import tuning
from tapestry_plan.search.expansions import expanding
from tests.onnx_cases import NodeCase, floats
from tests.onnx_models import difference, ort

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
LAYERS: list[tuple[str, dict[str, Any]]] = [
    ("LSTM", {}),
    ("LSTM", {"input_forget": 1, "clip": 0.9}),
    ("GRU", {"linear_before_reset": 1}),
    ("GRU", {"activations": ["HardSigmoid", "Softsign"]}),
    ("RNN", {"activations": ["Relu"]}),
]


def layer(op: str, attrs: dict[str, Any], steps: int, batch: int, width: int, dtype: str = "float32") -> Any:
    """A model of one layer, and what it is given: a first state, and for an LSTM a cell and looks at it."""
    gates = GATES[op]
    shapes = {"x": (steps, batch, 8), "w": (1, gates * width, 8), "r": (1, gates * width, width)}
    shapes |= {"b": (1, 2 * gates * width), "h": (1, batch, width)}
    if op == "LSTM":
        shapes |= {"c": (1, batch, width), "p": (1, 3 * width)}
    feeds = {name: (floats(*shape, seed=k) * 0.3).astype(dtype) for k, (name, shape) in enumerate(shapes.items())}
    reads = ("x", "w", "r", "b", "", "h", *(("c", "p") if op == "LSTM" else ()))
    outputs = ("y", "y_h", "y_c")[: 3 if op == "LSTM" else 2]
    return NodeCase(op, feeds, {}, {"hidden_size": width, **attrs}, outputs, reads=reads).model, feeds


def steps_of(made: ShardPlan) -> dict[str, int]:
    """How many parts each step's cells have."""
    return {n.name: made.sharding[n.name].get("j", 1) for n in made.graph.order() if n.op == "recurrence_step"}


@pytest.mark.heavy(2)
@pytest.mark.parametrize(("op", "attrs"), LAYERS, ids=str)
@pytest.mark.parametrize("devices", [2, 3, 4])
def test_a_wide_layer_of_one_sequence_is_split_by_its_cells(op: str, attrs: dict[str, Any], devices: int) -> None:
    """Each run counts the bytes of every transfer, and raises where they are not those of the plan."""
    model, feeds = layer(op, attrs, 5, 1, 256)
    graph = load_onnx(model, opaque=False)
    made = plan(graph, Mesh((devices,)))
    assert [one.chosen for one in made.expansions if "by_steps" in one.considered] == ["by_steps"]
    parts = list(steps_of(made).values())
    assert parts.count(devices) >= 5 and (len(parts) > 5 or set(parts) == {devices})
    assert made.gap == 0 and made.seconds < plan(graph, Mesh((devices,)), expand=False).seconds
    found = run(made, feeds)
    assert found.nbytes_moved == made.nbytes_moved > 0
    for name, wanted in zip(("y", "y_h", "y_c"), ort(model, feeds), strict=False):
        assert difference(found.outputs[name], wanted) < 1e-5
    again = run(made, feeds, backend="serial").outputs
    assert all(one.tobytes() == found.outputs[name].tobytes() for name, one in again.items())
    for name, one in run(made, feeds, backend="simulated").outputs.items():
        assert difference(one, found.outputs[name]) < 1e-5, "whose products are others"


def test_every_device_sends_its_cells_to_all_others_once_a_step() -> None:
    """Those of the state alone: each device keeps its own cells of an LSTM's other state, and its weights."""
    g, (steps, width) = Graph(), (6, 128)
    x, w, h = g.input("x", (steps, 1, 1, 4 * width)), g.input("w", (1, 4 * width, width)), g.input("h", (1, 1, width))
    y, _ = ops.recurrence(x, w, h, g.input("c", (1, 1, width)))
    g.output(y, "y")
    for devices in (2, 4):
        made = plan(g, Mesh((devices,)))
        assert set(steps_of(made).values()) == {devices}
        assert made.nbytes_moved == (steps - 1) * (devices - 1) * width * 4


@pytest.mark.parametrize("backend", ["numpy", "processes"])
def test_the_same_bits_come_out_in_processes(backend: str) -> None:
    model, feeds = layer("LSTM", {}, 3, 2, 24)
    made = plan(load_onnx(model), Mesh((2,)), expand=["by_steps"])
    wanted = run(made, feeds, backend="serial").outputs
    for name, one in run(made, feeds, backend=backend).outputs.items():
        assert one.tobytes() == wanted[name].tobytes()


@pytest.mark.heavy(3)
@pytest.mark.parametrize("batch", [1, 2, 64])
@pytest.mark.parametrize("width", [4, 48])
@pytest.mark.parametrize("op", ["LSTM", "GRU"])
def test_no_plan_is_worse_than_one_of_the_whole_layer(op: str, width: int, batch: int) -> None:
    """Where sequences are many it stays whole, or takes no longer in steps."""
    graph = load_onnx(layer(op, {"linear_before_reset": 1} if op == "GRU" else {}, 4, batch, width)[0])
    for mesh in (Mesh((3,)), Mesh((2, 2))):
        assert plan(graph, mesh).seconds <= plan(graph, mesh, expand=False).seconds


@pytest.mark.parametrize("kind", ["gru", "lstm"])
def test_no_graph_of_steps_is_solved_twice(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The likely one comes again among the variants of an LSTM, and in blocks of a GRU, which stays whole."""
    g, gates = Graph(), {"gru": 3, "lstm": 4}[kind]
    x = g.input("x", (2, 1, 1, gates * 16))
    for k in range(2):
        r, h = g.input(f"r{k}", (1, gates * 16, 16)), [g.input(f"h{k}{n}", (1, 1, 16)) for n in range(gates - 2)]
        y = ops.recurrence(x, r, *h, kind=kind)
        y = y if kind == "gru" else y[0]
        x = ops.matmul(y, g.input(f"w{k}", (16, gates * 16)))
    g.output(x, "y")
    solved, solve = list[tuple[str, ...]](), expanding.solve_graph

    def counted(request: Any, graph: Graph, *known: Any) -> Any:
        solved.append(tuple(graph.nodes))
        return solve(request, graph, *known)

    monkeypatch.setattr(expanding, "solve_graph", counted)
    made = plan(g, Mesh((2,)))
    assert len(solved) == len(set(solved)) and any("step" in name for names in solved for name in names)
    assert made.seconds <= plan(g, Mesh((2,)), expand=False).seconds


def test_layers_of_many_steps_stay_as_they_are() -> None:
    g, steps = Graph(), tuning.MAX_STEPS + 1
    x, w, h = g.input("x", (steps, 1, 1, 8)), g.input("w", (1, 8, 8)), g.input("h", (1, 1, 8))
    g.output(ops.recurrence(x, w, h, kind="rnn", name="walk"), "y")
    with pytest.raises(NotApplicable, match="17 steps; up to 16 become operators"):
        rewrite.expand.apply(g, "walk", into="by_steps")
    assert [node.op for node in plan(g, Mesh((2,))).graph.order()] == ["recurrence"]


@pytest.mark.parametrize(("op", "attrs"), LAYERS, ids=str)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_steps_give_what_the_layer_gives(op: str, attrs: dict[str, Any], dtype: str) -> None:
    """Half precision keeps its states wide from step to step: the results are equal, to the last bit or nearly."""
    model, feeds = layer(op, attrs, 4, 3, 5, dtype)
    graph = load_onnx(model, opaque=False)
    (walk,) = [node.name for node in graph.order() if node.op == "recurrence"]
    steps = rewrite.expand.apply(graph, walk, into="by_steps")
    assert "recurrence" not in {node.op for node in steps.order()}
    wanted, bound = evaluate(graph, feeds), {"float16": 1e-3, "float32": 1e-6, "float64": 1e-14}[dtype]
    for name, one in evaluate(steps, feeds).items():
        assert one.dtype == wanted[name].dtype and difference(one, wanted[name]) < bound


@pytest.mark.parametrize(("op", "attrs"), LAYERS, ids=str)
def test_steps_come_back_the_same_and_run_in_onnx_runtime(op: str, attrs: dict[str, Any]) -> None:
    model, feeds = layer(op, attrs, 3, 2, 6)
    graph = load_onnx(model, opaque=False)
    (walk,) = [node.name for node in graph.order() if node.op == "recurrence"]
    steps = rewrite.expand.apply(graph, walk, into="by_steps")
    written = to_onnx(steps)
    assert same_graph(load_onnx(written), steps)
    for found, wanted in zip(ort(written, feeds), ort(model, feeds), strict=True):
        assert difference(found, wanted) < 1e-5


def test_a_plan_of_steps_is_said_again_by_its_document() -> None:
    model, feeds = layer("GRU", {"linear_before_reset": 1}, 3, 1, 128)
    made = plan(load_onnx(model), Mesh((2,)))
    again = ShardPlan.from_json(made.to_json())
    assert steps_of(again) == steps_of(made) and set(steps_of(made).values()) == {2}
    for name, one in run(again, feeds).outputs.items():
        np.testing.assert_array_equal(one, run(made, feeds).outputs[name])


@pytest.mark.parametrize(
    ("shapes", "kind", "says"),
    [
        ([(1, 2, 4, 3), (1, 4, 3, 3), (1, 2, 3)], "lstm", "3 operands, .* a step of lstm takes 4 to 5, the first with"),
        ([(1, 2, 2, 3), (1, 1, 3, 3), (1, 2, 3)], "rnn", "a step of rnn takes 3, the first with 1 gate"),
        (
            [(1, 2, 1, 3), (1, 1, 3, 4), (1, 2, 3)],
            "rnn",
            r"operand 1 has shape \(1, 1, 3, 4\); \(1, 1, 3, 3\)",
        ),
        ([(2, 1, 3), (1, 1, 3, 3), (1, 2, 3)], "rnn", "rank 4 is needed"),
        ([(1, 2, 1, 3), (1, 1, 3, 3), (1, 2, 3)], "rn", "kind is 'rn'; it must be one of"),
    ],
)
def test_steps_that_do_not_fit_are_refused(shapes: list[tuple[int, ...]], kind: str, says: str) -> None:
    g = Graph()
    operands = [g.input(f"x{k}", shape) for k, shape in enumerate(shapes)]
    with pytest.raises(ValueError, match=says):
        ops.recurrence_step(*operands, kind=kind)


@pytest.mark.parametrize("steps", [1, 2, 7])
def test_a_layer_goes_through_its_weights_at_each_step(steps: int) -> None:
    """And once through all else: of one sequence no product has more to do than the memory."""
    g, width, device = Graph(), 64, Device(launch_seconds=0, operand_seconds=0)
    x, w, h = g.input("x", (steps, 1, 1, width)), g.input("w", (1, width, width)), g.input("h", (1, 1, width))
    y = g.output(ops.recurrence(x, w, h, kind="rnn"), "y")
    nbytes = 4 * (2 * y.size + h.size + steps * w.size)
    made = plan(g, Mesh(1, device=device), expand=False)
    assert made.seconds == pytest.approx(nbytes / device.memory_nbytes_per_second, rel=1e-3)


def test_so_does_one_that_is_a_part_or_in_one_block_with_what_it_reads() -> None:
    """Passes of an operator's inputs are told in the order of the block's."""
    g = Graph()
    x, w, h = g.input("x", (5, 1, 4, 8)), g.input("w", (1, 8, 8)), g.input("h", (1, 4, 8))
    walk = ops.recurrence(ops.add(x, x, name="twice"), w, h, kind="rnn", name="walk")
    g.output(walk, "y")
    for made in (
        rewrite.compose.apply(g, "walk"),
        rewrite.shard.apply(g, "walk", axis="b", parts=2),
    ):
        nodes = [node for node in made.order() if "recurrence" in node.op]
        found = [made.ops[one.op].count_passes(made.signature(one.name), one.attrs) for one in nodes]
        assert all(sorted(one)[-1] == 5 and sum(one) == 5 + len(one) - 1 for one in found)
        weights = {node.inputs[passes.index(5)] for node, passes in zip(nodes, found, strict=True)}
        assert {made.source(name).stored for name in weights} == {("w",)}
