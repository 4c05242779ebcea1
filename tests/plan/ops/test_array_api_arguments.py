"""Wrong arguments of the array API's functions are refused by name, and leave nothing in the graph."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from tapestry_exec import evaluate
from tapestry_plan import Graph, Tensor
from tapestry_plan.ops import array_api as xp

WORDS = ("matrix_transpose", "permute_dims", "broadcast_to", "squeeze", "flip", "moveaxis")
FUNCTIONS = sorted(
    name
    for name, one in vars(xp).items()
    if inspect.isfunction(one)
    and name[0] != "_"
    and (one.__module__ == xp.__name__ or name in WORDS)
    and name not in ("result_type", "empty")
)
RIGHT: dict[str, Any] = {
    "shape": (24,), "fill_value": 2, "start": 1, "stop": 5, "step": 1, "num": 4, "n_rows": 3, "n_cols": 4, "k": 0,
    "n": 1, "axis": 0, "axes": 1, "keepdims": False, "descending": False, "stable": True, "endpoint": True,
    "indexing": "xy", "side": "left", "source": 0, "destination": 1, "dtype": "float32", "kind": "integral",
    "from_": "int8", "to": "int16", "type": "float32", "obj": [1.0, 2.0],
}  # fmt: skip
OF = {
    ("permute_dims", "axes"): (1, 0),
    ("broadcast_to", "shape"): (2, 4, 6),
    ("squeeze", "axis"): (),
    ("searchsorted", "x1"): "vector",
    ("iinfo", "type"): "int8",
    ("meshgrid", "arrays"): "vector",
    ("tensordot", "x2"): "square",
}
ODD: tuple[Any, ...] = (
    1.5, "x", (), [], [0.5], -9, 7, (0, 0), (5, 6), np.array([0, 1]), 10**20, slice(None), {0}, {0: 1}, math.nan, b"1",
    [None], object(), 1j, [[1, 2], [3]], len,
)  # fmt: skip
SHAPES = {"vector": (6,), "square": (6, 6)}


def calls() -> Iterator[tuple[str, str]]:
    for name in FUNCTIONS:
        for parameter in inspect.signature(getattr(xp, name)).parameters:
            yield name, "x" if parameter == "self" else parameter


def ask(g: Graph, name: str, wrong: str = "", value: Any = None) -> Any:
    """A right call, or one with one wrong argument."""
    args: list[Any] = []
    named: dict[str, Any] = {}
    for p in inspect.signature(getattr(xp, name)).parameters.values():
        known = "x" if p.name == "self" else p.name
        if known == wrong:
            given = value
        elif known == "device":
            given = g
        elif (name, known) in OF and OF[name, known] not in SHAPES:
            given = OF[name, known]
        elif known in RIGHT:
            given = RIGHT[known]
        else:
            given = tensor(g, known, SHAPES.get(OF.get((name, known), ""), (4, 6)))
        if p.kind is p.KEYWORD_ONLY:
            named[p.name] = given
        else:
            args += given if p.kind is p.VAR_POSITIONAL and known == wrong and isinstance(given, list) else [given]
    return getattr(xp, name)(*args, **named)


def tensor(g: Graph, name: str, shape: tuple[int, ...]) -> Tensor:
    return g.tensor(name) if name in g.stored else g.input(name, shape)


def prepared(name: str, wrong: str) -> Graph:
    """A graph that has the operands of a call already."""
    g = Graph()
    for p in inspect.signature(getattr(xp, name)).parameters:
        known = "x" if p == "self" else p
        if known not in (*RIGHT, "device", wrong):
            tensor(g, known, SHAPES.get(OF.get((name, known), ""), (4, 6)))
    return g


@pytest.mark.parametrize("name", FUNCTIONS)
def test_right_calls_are_taken(name: str) -> None:
    ask(prepared(name, ""), name)


@pytest.mark.parametrize(("name", "parameter"), list(calls()))
def test_wrong_arguments_are_refused_by_name(name: str, parameter: str) -> None:
    refused = 0
    for value in ODD:
        g = prepared(name, parameter)
        before = list(g.stored), list(g.selections), list(g.nodes)
        try:
            ask(g, name, parameter, value)
        except (TypeError, ValueError, IndexError) as error:
            said = str(error)
            assert any(word in said for word in (name, parameter, "axis", "dtype", "shape")), (value, said)
            assert "object has no" not in said and len(said) < 500, (value, said)
            assert (list(g.stored), list(g.selections), list(g.nodes)) == before, (value, said)
            refused += 1
    assert refused >= 8 or parameter == "obj", refused


def x(g: Graph) -> Tensor:
    return tensor(g, "x", (4, 6))


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda t: xp.diff(t, n=-1), "diff: n is -1; give how many times"),
        (lambda t: xp.tensordot(t, t, axes=([2], [0])), "tensordot: axes: axis is 2"),
        (lambda t: xp.tensordot(t, t, axes=([0, 0], [0, 0])), "names an axis twice"),
        (lambda t: xp.tensordot(t, t, axes=3), "tensordot: axes is 3; give from 0 to 2"),
        (lambda t: xp.sort(t, axis=2), "sort: axis is 2; a tensor of rank 2"),
        (lambda t: xp.searchsorted(t, t), r"x1 has shape \(4, 6\); give a vector"),
        (lambda t: xp.arange(1, 2, 0, device=t.device), "steps other than 0"),
        (lambda t: xp.arange(math.nan, device=t.device), "give finite numbers"),
        (lambda t: xp.linspace(1, 2, -3, device=t.device), "linspace: num is -3"),
        (lambda t: xp.full((2,), [1, 2], device=t.device), r"fill_value is an array of shape \(2,\); give a number"),
        (lambda t: xp.zeros((2,), dtype="U3", device=t.device), "full: dtype 'U3' is of texts"),
        (lambda t: xp.asarray([1j], dtype="float32", device=t.device), "asarray: obj has dtype complex128"),
        (lambda t: xp.finfo("int8"), "finfo: type is int8; give a floating dtype"),
        (lambda t: t // 0, "//: the divisor is 0; give a finite number other than 0"),
        (lambda t: t // -math.inf, "//: the divisor is -inf"),
    ],
)
def test_numbers_that_make_no_sense_are_refused(call: Callable[[Tensor], Any], says: str) -> None:
    g = Graph()
    t = x(g)
    with pytest.raises(ValueError, match=says):
        call(t)
    assert list(g.stored) == ["x"] and not g.nodes and not g.selections


@pytest.mark.parametrize("k", [-(10**20), -9, -4, 0, 6, 10**20])
def test_diagonals_far_outside_are_all_cells_or_none(k: int) -> None:
    g = Graph()
    data = np.arange(1.0, 25, dtype="float32").reshape(4, 6)
    g.output(xp.tril(x(g), k=k), "low")
    g.output(xp.triu(x(g), k=k), "high")
    found = evaluate(g, {"x": data})
    near = max(-9, min(k, 9))
    np.testing.assert_array_equal(found["low"], np.tril(data, near))
    np.testing.assert_array_equal(found["high"], np.triu(data, near))
