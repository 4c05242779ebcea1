"""Every function of the array API that is no operator with each argument replaced by wrong values."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tapestry_exec import evaluate
from tapestry_plan import Graph, Tensor
from tapestry_plan.ops import array_api
from tests.wrong_arguments import Row, ask, faults_of, is_dtype

FUNCTIONS = {
    name: each
    for name, each in vars(array_api).items()
    if not name.startswith("_")
    and inspect.isfunction(each)
    and not hasattr(each, "op")
    and (each.__module__ == array_api.__name__ or each.__module__ == "tapestry_sets.views.functions")
}
"""What the module defines, and what it takes from views; the rest is operators, and their helpers."""


def x(*shape: int) -> Tensor:
    return Graph().input("x", shape or (3, 4))


def pair(first: str, second: str, *shapes: tuple[int, ...], **more: Any) -> Callable[[], dict[str, Any]]:
    def given() -> dict[str, Any]:
        g = Graph()
        one, two = shapes or ((3, 4), (3, 4))
        return {first: g.input("x", one), second: g.input("y", two), **more}

    return given


def of(*shape: int, name: str = "x", **more: Any) -> Callable[[], dict[str, Any]]:
    return lambda: {name: x(*shape), **more}


def on_device(**given: Any) -> Callable[[], dict[str, Any]]:
    return lambda: {**given, "device": Graph()}


def several(name: str, **more: Any) -> Callable[[], dict[str, Any]]:
    def given() -> dict[str, Any]:
        g = Graph()
        return {name: (g.input("x", (3,)), g.input("y", (3,))), **more}

    return given


OWN_DTYPE = {"dtype": lambda value: value is None or is_dtype(value) or hasattr(value, "dtype")}
VIEWS: dict[str, Any] = {
    "known": {"V": lambda value: isinstance(value, Tensor)},
    "by_type": True,
    "raises": (IndexError,),
}
TWO = ("x1", "x2")
GIVEN: dict[str, Callable[[], dict[str, Any]]] = {
    **{name: of() for name in ("positive", "square", "trunc", "log2", "log10", "isfinite", "zeros_like", "ones_like")},
    **{name: pair(*TWO) for name in ("hypot", "logaddexp", "floor_divide", "vecdot")},
    **{name: of() for name in ("count_nonzero", "diff", "unstack", "sort", "argsort", "tril", "triu", "flip")},
    "tensordot": pair(*TWO, (3, 4), (4, 3), axes=1),
    "searchsorted": pair(*TWO, (3,), (4,)),
    "matrix_transpose": of(),
    "permute_dims": of(axes=(1, 0)),
    "broadcast_to": of(shape=(2, 3, 4)),
    "squeeze": of(1, 4, axis=0),
    "moveaxis": of(source=0, destination=1),
    "reshape": of(shape=(4, 3)),
    "expand_dims": of(),
    "full_like": of(fill_value=2.0),
    "asarray": on_device(obj=[1.0, 2.0]),
    "full": on_device(shape=(2, 3), fill_value=1.0),
    **{name: on_device(shape=(2, 3)) for name in ("zeros", "ones", "empty")},
    "arange": on_device(start=3, stop=9, step=2),
    "linspace": on_device(start=0, stop=1, num=5),
    "eye": on_device(n_rows=3, n_cols=4),
    "meshgrid": several("arrays"),
    "isdtype": lambda: {"dtype": "float32", "kind": "real floating"},
    "can_cast": lambda: {"from_": "int8", "to": "int16"},
    "finfo": lambda: {"type": "float32"},
    "iinfo": lambda: {"type": "int32"},
    "result_type": lambda: {"arrays_and_dtypes": (x(), 1)},
    "broadcast_arrays": several("views"),
    "repeat": of(name="view", count=2, axis=0),
    "roll": of(name="view", shift=1, axis=0),
    "stack": several("views"),
    "tile": of(name="view", reps=2),
    "concat": several("views"),
}
SAYS = {
    "floor_divide": {"x2": "divisor"},
    "permute_dims": {"axes": "axis"},
    "moveaxis": {"source": "axes", "destination": "places"},
    "asarray": {"obj": "array of dtype"},
}
ROWS = {
    name: Row(
        FUNCTIONS[name],
        given,
        takes=OWN_DTYPE if name in ("asarray", "full", "zeros", "ones", "empty", "arange", "linspace", "eye") else {},
        says=SAYS.get(name, {}),
        **(VIEWS if FUNCTIONS[name].__module__ == "tapestry_sets.views.functions" else {}),
    )
    for name, given in GIVEN.items()
}


def test_each_function_is_walked() -> None:
    assert FUNCTIONS.keys() == ROWS.keys(), "give a right call of it above"


@pytest.mark.parametrize("name", ROWS)
def test_a_wrong_argument_is_refused_by_name(name: str) -> None:
    row = ROWS[name]
    ask(row, row.given())
    assert not faults_of(name, row)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda t: array_api.diff(t, n=-1), "diff: n is -1; give how many times"),
        (lambda t: array_api.tensordot(t, t, axes=([2], [0])), "tensordot: axes: axis is 2"),
        (lambda t: array_api.tensordot(t, t, axes=([0, 0], [0, 0])), "names an axis twice"),
        (lambda t: array_api.tensordot(t, t, axes=3), "tensordot: axes is 3; give from 0 to 2"),
        (lambda t: array_api.sort(t, axis=2), "sort: axis is 2; a tensor of rank 2"),
        (lambda t: array_api.searchsorted(t, t), r"x1 has shape \(4, 6\); give a vector"),
        (lambda t: array_api.arange(1, 2, 0, device=t.device), "steps other than 0"),
        (lambda t: array_api.arange(math.nan, device=t.device), "give finite numbers"),
        (lambda t: array_api.linspace(1, 2, -3, device=t.device), "linspace: num is -3"),
        (
            lambda t: array_api.full((2,), [1, 2], device=t.device),
            r"fill_value is an array of shape \(2,\); give a number",
        ),
        (lambda t: array_api.zeros((2,), dtype="U3", device=t.device), "full: dtype 'U3' is of texts"),
        (lambda t: array_api.asarray([1j], dtype="float32", device=t.device), "asarray: obj has dtype complex128"),
        (lambda t: array_api.finfo("int8"), "finfo: type is int8; give a floating dtype"),
        (lambda t: t // 0, "//: the divisor is 0; give a finite number other than 0"),
        (lambda t: t // -math.inf, "//: the divisor is -inf"),
    ],
)
def test_numbers_that_make_no_sense_are_refused(call: Callable[[Tensor], Any], says: str) -> None:
    g = Graph()
    t = g.input("x", (4, 6))
    with pytest.raises(ValueError, match=says):
        call(t)
    assert list(g.stored) == ["x"] and not g.nodes and not g.selections


@pytest.mark.parametrize("k", [-(10**20), -9, -4, 0, 6, 10**20])
def test_diagonals_far_outside_are_all_cells_or_none(k: int) -> None:
    g = Graph()
    t = g.input("x", (4, 6))
    data = np.arange(1.0, 25, dtype="float32").reshape(4, 6)
    g.output(array_api.tril(t, k=k), "low")
    g.output(array_api.triu(t, k=k), "high")
    found = evaluate(g, {"x": data})
    near = max(-9, min(k, 9))
    np.testing.assert_array_equal(found["low"], np.tril(data, near))
    np.testing.assert_array_equal(found["high"], np.triu(data, near))
