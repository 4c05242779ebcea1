"""What is no array of numbers, and what would lose its mask, is refused by name wherever an array is given."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import tapestry_sets as ts
from tapestry_exec import evaluate, run
from tapestry_plan import Graph, Mesh, ShardPlan, load_onnx, ops, plan
from tapestry_plan.ops import array_api
from tapestry_sets import allocate

DATA = np.arange(24, dtype="float32").reshape(4, 6)
MASKED = np.ma.array(DATA, mask=np.eye(4, 6, dtype=bool))
A = allocate((4, 6), name="A")


@cache
def planned() -> ShardPlan:
    g = Graph()
    g.output(ops.relu(g.input("x", (4, 6)) + g.constant("w", DATA)), "y")
    return plan(g, Mesh((2,)))


def empty() -> Graph:
    return Graph()


@cache
def model() -> Any:
    """A model whose input ``axes`` decides a shape, and whose input ``unread`` nobody reads."""
    given = {"x": (1, (4, 6)), "axes": (7, (2,)), "unread": (1, (2,))}
    values = [helper.make_tensor_value_info(name, *one) for name, one in given.items()]
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    node = helper.make_node("Reshape", ["x", "axes"], ["y"])
    return helper.make_model(helper.make_graph([node], "g", values, [out]), opset_imports=[helper.make_opsetid("", 21)])


def unread(value: Any) -> Any:
    graph = load_onnx(model(), values={"axes": [6, 4]})
    return evaluate(graph, {"x": DATA, "unread": value})


ASKED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "run": (lambda v: run(planned(), {"x": v}), "input 'x'"),
    "evaluate": (lambda v: evaluate(planned().graph, {"x": v}), "input 'x'"),
    "a run's constant": (lambda v: run(planned(), {"x": DATA}, constants={"w": v}), "constant 'w'"),
    "a graph's constant": (lambda v: empty().constant("c", v), "constant 'c'"),
    "asarray": (lambda v: array_api.asarray(v, device=empty()), "asarray: obj"),
    "full": (lambda v: array_api.full((2,), v, device=empty()), "full: fill_value"),
    "values of a model": (lambda v: load_onnx(model(), values={"axes": v}), r"values\['axes'\]"),
    "an input that is not read": (unread, "input 'unread', which the graph does not read,"),
    "indices of a tensor": (lambda v: ops.take(empty().input("x", (4, 6)), v), "take: indices"),
}
LISTS: dict[str, Any] = {
    "rows of two lengths": [[1.0], [2.0, 3.0]],
    "None": None,
    "None among numbers": [[None, 1.0]],
    "texts": ["1", "2"],
    "a set": {1, 2},
    "a mapping": {"x": DATA},
    "an iterator": iter([1, 2]),
}


@pytest.mark.parametrize("wrong", list(LISTS))
@pytest.mark.parametrize("name", list(ASKED))
def test_what_is_no_array_is_refused_by_name(name: str, wrong: str) -> None:
    ask, called = ASKED[name]
    if name == "a run's constant" and LISTS[wrong] is None:
        return  # as if it was not given
    with pytest.raises(ValueError, match=rf"{called} is .*(; give|leave it out)") as caught:
        ask(LISTS[wrong])
    assert "inhomogeneous" not in str(caught.value)


@pytest.mark.parametrize("value", [MASKED, [MASKED[0], MASKED[1]], np.ma.masked, np.ma.array(DATA), [np.ma.masked, 1]])
@pytest.mark.parametrize("name", list(ASKED))
def test_a_mask_is_never_lost(name: str, value: Any) -> None:
    ask, called = ASKED[name]
    with pytest.raises(ValueError, match=rf"{called} (is|holds) a masked array, whose mask .* give .*filled\(0\)"):
        ask(value)


def test_filled_cells_are_taken() -> None:
    found = run(planned(), {"x": MASKED.filled(-50)}).outputs["y"]
    np.testing.assert_array_equal(found, np.maximum(np.where(MASKED.mask, -50, DATA) + DATA, 0))


INDICES = np.ma.array([0, 1, 2], mask=[False, True, False])
SETS: dict[str, Callable[[Any], Any]] = {
    "take": lambda m: A.take(m, 0),
    "subscript": lambda m: A[m],
    "subscript of two": lambda m: A[:, m],
    "mask": lambda m: A[np.ma.array([True, False, True, False], mask=[False, True, False, False])],
    "widths of pad": lambda m: ts.pad(A, np.ma.array([1, 1], mask=[False, True])),
    "stripes": lambda m: ts.StripeArray(m + 1, [4, 4, 4], [0, 0, 0]),
    "boxes": lambda m: ts.BoxArray(m[None], [(1, 1, 1)]),
    "chunks": lambda m: ts.chunks((m, slice(0, 4)), (10, 6), (3, 3)),
    "tensor": lambda m: empty().input("x", (4, 6))[m],
}


@pytest.mark.parametrize("name", list(SETS))
def test_masked_indices_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="is a masked array, whose mask would be lost"):
        SETS[name](INDICES)


def test_the_memory_of_a_masked_array_is_its_cells() -> None:
    assert ts.overlap(MASKED[1:], MASKED[:2]).size == 6 * 4
