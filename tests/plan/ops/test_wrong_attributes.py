"""What an operator's function refuses, `Graph.op` and documents refuse too: a wrong attribute never waits for a run.

One right call of each operator is changed in one place. Whatever is taken runs, and its document is read again.
"""

from __future__ import annotations

import json
import math
import random
from typing import Any

import numpy as np
import pytest

from tapestry_exec import evaluate
from tapestry_plan import Graph, ops
from tests.cutting import Case
from tests.operator_cases import CASES

ODD: tuple[Any, ...] = (
    None, 1.0, 2.5, True, False, "0", "x", "none", "", (), [], [0.5], -1, -2, -5, 0, 1, 2, 3, 7, (0, 1), (0, 0), [-1],
    np.int64(1), np.array(1), np.array([0, 1]), 10**20, -(10**20), np.True_, np.float32(1), slice(None), {0}, {0: 1},
    math.nan, math.inf, -math.inf, b"1", [None], range(2), 2**63, 2**32, (1, 2, 3, 4), [1, 1], 1e308, 1e-300, -0.5, 1.5,
    [[1, 2], [3]], object(), int, len,
)  # fmt: skip
DTYPES = ("bool", "int8", "uint8", "float16", "float64", "int64", "complex64", "float32")
SIZED = {"size", "depth"}
"""Attributes that say how much memory an operator takes."""
CHANGES = 700
MOST_CELLS = 10**6
NAMED = (
    "operand",
    "attribute",
    "dtype",
    "shape",
    "low",
    "cast it",
    "argument",
    "extent",
    "kernel",
    "window",
    "axis",
    "mask",
)
"""What messages name in place of the attribute that was changed: one that it does not fit."""


def changes() -> list[tuple[Case, dict[str, Any], tuple[str, ...], str]]:
    """Right calls with one attribute or dtype changed, and what is changed."""
    rng, found = random.Random(7), []
    for _ in range(CHANGES):
        case = rng.choice(CASES)
        attrs, dtypes = dict(case.attrs), list(case.dtypes or (case.dtype,) * len(case.shapes))
        names = getattr(ops, case.op).op.attributes
        if names and (not dtypes or rng.random() < 0.7):
            name = rng.choice(names)
            value = rng.choice(ODD)
            if name in SIZED and isinstance(value, int | float) and abs(value) > 10:
                continue
            attrs[name] = value
            if rng.random() < 0.1:
                del attrs[name]
        else:
            k = rng.randrange(len(dtypes))
            name, dtypes[k] = str(k), rng.choice(DTYPES)
            dtypes = [dtypes[k]] * len(dtypes) if rng.random() < 0.5 else dtypes
        found.append((case, attrs, tuple(dtypes), name))
    return found


def ask(case: Case, attrs: dict[str, Any], dtypes: tuple[str, ...], by_name: bool) -> str | Graph:
    """The graph of a call, or why it is refused."""
    g = Graph()
    operands = [g.input(f"x{k}", shape, dtypes[k]) for k, shape in enumerate(case.shapes)]
    before = list(g.stored)
    function = getattr(ops, case.op)
    try:
        if by_name:
            made = g.op(case.op, *operands, **attrs)
        elif case.op == "einsum":
            made = function(attrs.get("equation"), *operands)
        else:
            made = function(*(operands or [g]), **attrs)
    except (ValueError, TypeError) as error:
        assert (list(g.stored), dict(g.nodes), dict(g.selections)) == (before, {}, {})
        return str(error)
    for k, tensor in enumerate(made if isinstance(made, tuple) else (made,)):
        g.output(tensor, f"y{k}")
    return g


def test_a_wrong_attribute_or_dtype_is_refused_before_it_runs() -> None:
    refused = 0
    for case, attrs, dtypes, what in changes():
        where = (case.op, what, attrs, dtypes)
        by_function, by_name = (ask(case, attrs, dtypes, is_by_name) for is_by_name in (False, True))
        is_alike = isinstance(by_function, Graph) or isinstance(by_name, str)
        assert is_alike or case.op == "divide" or attrs.get(what) is None, (where, by_function)  # ONNX divides integers
        for made in (by_function, by_name):
            if isinstance(made, str):
                refused += 1
                assert any(name in made for name in (what, *NAMED)) and len(made) < 600, (where, made)
                continue
            assert Graph.from_json(made.to_json()).to_json() == made.to_json(), where
            if max(math.prod(t.shape) for t in made.stored.values()) > MOST_CELLS:
                continue
            feeds = {t.name: np.ones(t.shape, t.dtype) for t in made.stored.values() if t.kind == "input"}
            with np.errstate(all="ignore"):
                found = evaluate(made, feeds)
            for name, tensor in made.outputs.items():
                stored = made.tensor(tensor)
                assert (found[name].shape, found[name].dtype) == (stored.shape, np.dtype(stored.dtype)), where
    assert refused > CHANGES / 2


def test_an_attribute_that_an_operator_needs_is_named() -> None:
    for case in CASES:
        op = getattr(ops, case.op).op
        for name in op.needed:
            attrs = {key: value for key, value in case.attrs.items() if key != name}
            with pytest.raises(ValueError, match=f"{case.op}.*attribute {name} is missing"):
                g = Graph()
                dtypes = case.dtypes or (case.dtype,) * len(case.shapes)
                g.op(case.op, *(g.input(f"x{k}", s, dtypes[k]) for k, s in enumerate(case.shapes)), **attrs)


@pytest.mark.parametrize(
    ("op", "attrs", "says"),
    [
        ("uniform", {"low": 2.0}, "low=2.0 and high=1.0 must be finite, low < high"),
        ("normal", {"scale": math.nan}, "scale=nan must be finite"),
        ("bernoulli", {"p": 1.5}, "p=1.5 must be a probability"),
        ("integers", {"low": 3, "high": 3}, "low=3 and high=3: .* holds 0 integers"),
        ("integers", {"low": 0, "high": 300, "dtype": "uint8"}, "low=0 and high=300 do not fit uint8"),
        ("uniform", {"seed": -1}, r"seed=-1 must be an integer in \[0, 2\*\*32\)"),
        ("uniform", {"stream": None}, "stream=None must be an integer"),
        ("uniform", {"dtype": "int64"}, "dtype 'int64' must be float32 or float64"),
    ],
)
def test_generators_of_documents_and_of_names_are_checked_too(op: str, attrs: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Graph().op(op, **{"shape": (3, 4), "seed": 1, "stream": 0, **attrs})
    right = {"low": 0, "high": 9} if op == "integers" else {}
    g = Graph()
    g.output(g.op(op, shape=(3, 4), seed=1, stream=0, **right), "y")
    data = json.loads(g.to_json())
    data["order"][0]["attrs"].update({key: "x" if value != value else value for key, value in attrs.items()})
    with pytest.raises(ValueError, match=r"seed=|stream|p=|low=|scale|dtype|holds|do not fit"):
        Graph.from_json(json.dumps(data))


def test_a_power_a_difference_and_a_variance_that_are_no_numbers_are_refused() -> None:
    g = Graph()
    x, b = g.input("x", (3,), "int64"), g.input("b", (3,), "bool")
    before = list(g.stored)
    for call, says in {
        lambda: x**-1: "pow: -1 is a negative power of int64, which no integers are; cast tensor 'x'",
        lambda: ops.pow(x, -2): "pow: -2 is a negative power",
        lambda: b - True: "operand 0 is bool, but truth values are not subtracted: write x",
        lambda: b - b: "truth values are not subtracted",
        lambda: ops.relu(b): "operand 0 is bool, but the operator works on numbers",
        lambda: x.astype("float32").var(ddof=3): "correction is 3.0, and 3 values are reduced; it must be less",
        lambda: x.astype("float32").std(correction=9): "correction is 9.0, and 3 values are reduced",
        lambda: x.clip(-(10**20), 1): "min -100000000000000000000 is beyond int64",
        lambda: x.astype("U3"): "dtype 'U3' is of texts; give numbers or booleans",
    }.items():
        with pytest.raises(ValueError, match=says.replace("(", r"\(")):
            call()
    assert [name for name in g.stored if name not in before and "astype" not in name] == []
    assert evaluate_of(2**x)([-1, 0, 2]) == "raises"


def evaluate_of(tensor: Any) -> Any:
    """An error that only values show names the operator in a note."""

    def run(values: list[int]) -> str:
        tensor.graph.output(tensor, "y")
        try:
            evaluate(tensor.graph, {"x": np.array(values), "b": np.ones(3, bool)})
        except ValueError as error:
            assert error.__notes__ == ["in operator 'pow' (pow) of graph 'graph'"]
            return "raises"
        return "answers"

    return run
