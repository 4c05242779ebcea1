"""What is computed at import has a budget of bytes; beyond it nodes become operators and views, or are refused."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from tapestry_exec import evaluate, run
from tapestry_plan import Graph, Mesh, ShardPlan, plan, same_graph
from tapestry_plan.ir import FoldedNodes
from tapestry_plan.onnx import StagedModel, load_onnx, to_onnx, tuning
from tapestry_sets import limits
from tests.onnx_models import difference, model_of, ort, random, random_feeds

ONES = np.ones(1, np.float32)
MOST = 16 * 2**20
"""Bytes that an import of a small model that asks for huge values may take."""


def sums(made: list[Any], constants: dict[str, Any], x: Any = (1,)) -> Any:
    """A model that adds the sum of what nodes make of constants, named c, to its input."""
    after = [helper.make_node("ReduceSum", ["c"], ["sum"], keepdims=0), helper.make_node("Add", ["x", "sum"], ["y"])]
    return model_of([*made, *after], {"x": x}, constants=constants)


def doublings(n: int) -> list[Any]:
    names = ["one", *(f"twice_{k}" for k in range(n - 1)), "c"]
    return [helper.make_node("Concat", [a, a], [b], axis=0) for a, b in pairwise(names)]


def one(op: str, *reads: str, **attrs: Any) -> list[Any]:
    return [helper.make_node(op, reads, ["c"], **attrs)]


COLUMN, ROW = np.ones((50_000, 1), np.float32), np.ones((1, 50_000), np.float32)
LARGE: dict[str, Callable[[], Any]] = {
    "ConstantOfShape": lambda: sums(one("ConstantOfShape", "s"), {"s": [30_000, 30_000]}),
    "Expand": lambda: sums(one("Expand", "one", "s"), {"one": ONES, "s": [10**9]}),
    "Tile": lambda: sums(one("Tile", "one", "s"), {"one": ONES, "s": [10**9]}),
    "Pad": lambda: sums(one("Pad", "one", "s"), {"one": ONES, "s": [0, 10**9]}),
    "Resize": lambda: sums(
        one("Resize", "a", "", "s", mode="nearest"),
        {"a": np.ones((1, 1, 10, 10), np.float32), "s": np.array([1, 1, 1e4, 1e4], np.float32)},
    ),
    "OneHot": lambda: sums(
        one("OneHot", "i", "n", "v"), {"i": np.arange(1000), "n": 10**6, "v": np.array([0, 1], np.float32)}
    ),
    "MatMul": lambda: sums(one("MatMul", "a", "b"), {"a": COLUMN, "b": ROW}),
    "Add": lambda: sums(one("Add", "a", "b"), {"a": COLUMN, "b": ROW}),
    "Einsum": lambda: sums(one("Einsum", "a", "b", equation="ij,jk->ik"), {"a": COLUMN, "b": ROW}),
    "doublings by Concat": lambda: sums(doublings(24), {"one": ONES}),
    "Trilu": lambda: model_of([helper.make_node("Trilu", ["x"], ["y"])], {"x": (60_000, 60_000)}),
    "Dropout's mask": lambda: model_of(
        [helper.make_node("Dropout", ["x"], ["a", "m"]), helper.make_node("Where", ["m", "a", "x"], ["y"])],
        {"x": (60_000, 60_000)},
    ),
}


def peak_of(load: Callable[[], Graph]) -> int:
    """Bytes that Python and NumPy held at most beside what they held before."""
    tracemalloc.start()
    try:
        load()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", LARGE)
def test_large_values_are_not_made(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "FOLDED_NBYTES", 2**20)
    model = LARGE[name]()
    assert peak_of(lambda: load_onnx(model)) < MOST + 4 * model.ByteSize()


@pytest.mark.parametrize(
    "nodes, constants",
    [
        (one("HannWindow", "n"), {"n": 10**9}),
    ],
)
def test_what_has_no_operator_is_refused(nodes: list[Any], constants: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"node '\w+' \(\w+\).*bytes at import, where [\d,]+ are left of the [\d,]+"):
        load_onnx(sums(nodes, constants), opaque=False)


@pytest.mark.parametrize(("dtype", "first", "step"), [("float32", 0.1, 0.3), ("int32", 90, -2)])
def test_many_numbers_in_steps_are_computed_where_they_are_read(
    dtype: str, first: float, step: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuning, "FOLDED_NBYTES", 100)
    monkeypatch.setattr(tuning, "FOLDED_TIMES", 0)
    given = {"a": np.asarray(first, dtype), "b": np.asarray(first + 31.5 * step, dtype), "d": np.asarray(step, dtype)}
    numbers = helper.make_node("Range", ["a", "b", "d"], ["c"])
    code = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    model = model_of([numbers, helper.make_node("Add", ["x", "c"], ["y"])], {"x": (32,)}, constants=given, dtype=code)
    graph = load_onnx(model)
    p, x = plan(graph, Mesh(4)), np.arange(32).astype(dtype)
    assert p.sharding["Range_0"] == {"i0": 4} and not p.nbytes_moved
    (wanted,) = ReferenceEvaluator(model).run(None, {"x": x})
    np.testing.assert_array_equal(run(p, {"x": x}).outputs["y"], wanted)
    assert same_graph(load_onnx(to_onnx(graph)), graph)


@pytest.mark.parametrize("k", [-2, 0, 3])
def test_a_large_unit_matrix_is_a_comparison(k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "FOLDED_NBYTES", 100)
    monkeypatch.setattr(tuning, "FOLDED_TIMES", 0)
    nodes = [helper.make_node("EyeLike", ["x"], ["e"], k=k), helper.make_node("Add", ["x", "e"], ["y"])]
    x = np.arange(63, dtype=np.float32).reshape(7, 9)
    found = run(plan(load_onnx(model_of(nodes, {"x": (7, 9)})), Mesh(3)), {"x": x}).outputs["y"]
    np.testing.assert_array_equal(found, x + np.eye(7, 9, k, dtype=np.float32))


def test_work_of_the_reference_is_bounded_too() -> None:
    """No bytes to speak of: 100 to the power of 26 products."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    names = [f"v{k}" for k in letters]
    node = helper.make_node("Einsum", names, ["c"], equation=",".join(letters) + "->")
    model = sums([node], dict.fromkeys(names, np.ones(100, np.float32)))
    assert "einsum" in {node.op for node in load_onnx(model).nodes.values()}


def test_the_budget_is_that_of_the_whole_import(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many values, each of them small enough."""
    monkeypatch.setattr(tuning, "FOLDED_NBYTES", 10**6)
    monkeypatch.setattr(tuning, "FOLDED_TIMES", 0)
    nodes = [helper.make_node("Range", ["a", "b", "d"], [f"c{k}"]) for k in range(40)]
    nodes += [helper.make_node("Sum", ["x", *(f"c{k}" for k in range(40))], ["y"])]
    model = model_of(nodes, {"x": (10_000,)}, constants={"a": 0, "b": 10_000, "d": 1}, dtype=TensorProto.INT64)
    assert sum(node.op == "iota" for node in load_onnx(model).nodes.values()) == 28  # the first 12 are known


def test_why_a_value_is_not_known_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "FOLDED_NBYTES", 0)
    monkeypatch.setattr(tuning, "FOLDED_TIMES", 0)
    nodes = [helper.make_node("Add", ["s", "s"], ["t"]), helper.make_node("Reshape", ["x", "t"], ["y"])]
    with pytest.raises(ValueError, match=r"which is not known: node 'Add_0' \(Add\) would read"):
        load_onnx(model_of(nodes, {"x": (3, 4)}, constants={"s": [2, 4]}))


CONSTANT = {"a": random(2, 3), "b": random(3, 4), "v": random(3), "s": np.array([4, 2, 3]), "one": ONES}
FOLDED = {
    "MatMul": one("MatMul", "a", "b"),
    "Transpose": one("Transpose", "a"),
    "Tile": [*one("Tile", "a", "r")],
    "Add": one("Add", "a", "v"),
    "Concat": one("Concat", "a", "a", axis=1),
    "Expand": one("Expand", "a", "s"),
    "ConstantOfShape": one("ConstantOfShape", "s", value=helper.make_tensor("", TensorProto.FLOAT, [1], [2.5])),
    "ConstantOfShape, zeros": one("ConstantOfShape", "s"),
    "Trilu": one("Trilu", "b"),
    "doublings": doublings(5),
}


@pytest.mark.parametrize("name", FOLDED)
@pytest.mark.parametrize("most", [0, 2**20])
def test_results_do_not_depend_on_the_budget(name: str, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "FOLDED_NBYTES", most)
    monkeypatch.setattr(tuning, "FOLDED_TIMES", 0)
    model = sums(FOLDED[name], CONSTANT | {"r": np.array([2, 2])}, (2,))
    graph = load_onnx(model)
    assert len(graph.nodes) == 1 if most else len(graph.nodes) >= 2
    feeds = random_feeds(graph)
    assert difference(evaluate(graph, feeds)["y"], ort(model, feeds)[0]) < 1e-6


@pytest.mark.parametrize("most", [0, 2**20])
@pytest.mark.parametrize("upper", [0, 1])
@pytest.mark.parametrize("shift", [None, -5, -1, 0, 2, 9])
def test_triangles_are_stored_or_computed(
    upper: int, shift: int | None, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuning, "FOLDED_NBYTES", most)
    monkeypatch.setattr(tuning, "FOLDED_TIMES", 0)
    constants = {} if shift is None else {"k": shift}
    model = model_of(
        [helper.make_node("Trilu", ["x", *constants], ["y"], upper=upper)], {"x": (2, 3, 5)}, ["y"], constants
    )
    graph = load_onnx(model)
    assert len(graph.nodes) == (1 if most else 2)
    feeds = random_feeds(graph)
    np.testing.assert_array_equal(evaluate(graph, feeds)["y"], ort(model, feeds)[0])


def test_many_known_indices_are_read_by_an_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "VIEWED_INDICES", 5)
    for count in (5, 6):
        indices = np.arange(count) % 4 - 2
        model = model_of([helper.make_node("Gather", ["x", "i"], ["y"])], {"x": (3, 2)}, constants={"i": indices})
        graph = load_onnx(model)
        assert len(graph.nodes) == count - 5
        feeds = random_feeds(graph)
        np.testing.assert_array_equal(evaluate(graph, feeds)["y"], feeds["x"][indices])


def test_forty_doublings_say_what_was_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """The view in place of the value has too many parts; the error names the node where it began."""
    monkeypatch.setattr(tuning, "FOLDED_NBYTES", 2**12)
    nodes = [helper.make_node("Concat", [f"d{k}"] * 2, [f"d{k + 1}"], axis=0, name=f"double{k}") for k in range(40)]
    nodes += [helper.make_node("ReduceSum", ["d40"], ["t"], keepdims=0), helper.make_node("Add", ["x", "t"], ["y"])]
    says = r"it reads what the import cannot know: node 'double1?\d' \(Concat\) would read"
    with limits(max_pieces=100), pytest.raises(ValueError, match=says):
        load_onnx(model_of(nodes, {"x": (2,)}, constants={"d0": np.ones(1, np.float32)}))


W = np.arange(12, dtype=np.float32).reshape(3, 4)


@pytest.mark.parametrize(
    ("nodes", "folded"),
    [
        ([], FoldedNodes(0, 0)),
        (
            [helper.make_node("Neg", ["w"], ["a"]), helper.make_node("Add", ["y0", "a"], ["y"])],
            FoldedNodes(1, W.nbytes),
        ),
        (
            [
                helper.make_node("Neg", ["w"], ["a"]),
                helper.make_node("Exp", ["a"], ["b"]),
                helper.make_node("Add", ["y0", "b"], ["y"]),
            ],
            FoldedNodes(2, W.nbytes),
        ),
        (
            [
                helper.make_node("Neg", ["w"], ["a"]),
                helper.make_node("Exp", ["a"], ["b"]),
                helper.make_node("Add", ["y0", "y0"], ["y"]),
            ],
            FoldedNodes(0, 0),
        ),
        (
            [helper.make_node("Constant", [], ["b"], value_float=2.0), helper.make_node("Add", ["y0", "b"], ["y"])],
            FoldedNodes(0, 0),
        ),
        ([helper.make_node("Shape", ["x"], ["s"]), helper.make_node("Reshape", ["y0", "s"], ["y"])], FoldedNodes(0, 0)),
        (
            [
                helper.make_node("Shape", ["x"], ["s"]),
                helper.make_node("ConstantOfShape", ["s"], ["c"]),
                helper.make_node("Add", ["y0", "c"], ["y"]),
            ],
            FoldedNodes(1, W.nbytes),
        ),
    ],
    ids=["nothing", "one", "a value between", "what nobody reads", "a constant", "a shape", "filled"],
)
def test_what_is_computed_at_import_is_counted(nodes: list[Any], folded: FoldedNodes) -> None:
    """Nodes and bytes, counted by hand; plans and their documents keep that."""
    first = helper.make_node("Mul", ["x", "w"], ["y0" if nodes else "y"])
    graph = load_onnx(model_of([first, *nodes], {"x": W.shape}, constants={"w": W}))
    assert graph.folded == folded
    made = plan(graph, Mesh(2))
    assert made.graph.folded == folded
    assert ShardPlan.from_json(made.to_json()).graph.folded == folded and Graph().folded is None


def test_normalizations_that_are_folded_and_stages_are_counted() -> None:
    """A weight of 2 x 3 x 1 and a bias of 2 are made of one normalization; of a stage, what it computed itself."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"]),
        helper.make_node("BatchNormalization", ["a", "one", "one", "one", "one"], ["b"]),
        helper.make_node("NonZero", ["b"], ["y"]),
    ]
    one = np.ones(2, np.float32)
    known = {"w": np.ones((2, 3, 1), np.float32), "one": one}
    assert load_onnx(model_of(nodes[:2], {"x": (1, 3, 4)}, ["b"], known)).folded == FoldedNodes(1, (6 + 2) * 4)
    model = model_of(nodes, {"x": (1, 3, 4)}, constants=known)
    model.graph.node.insert(0, helper.make_node("Neg", ["one"], ["w0"]))
    model.graph.node[1].input.append("w0")
    stage = StagedModel(model).stage
    assert stage is not None and stage.graph is not None
    assert stage.graph.folded == FoldedNodes(1, one.nbytes)
