"""Every operand and attribute of every operator replaced by wrong values, and attributes in `Graph.op` by name."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from tapestry_plan import Graph, Tensor, ops
from tests.cutting import Case
from tests.operator_cases import CASES
from tests.wrong_arguments import WRONG, Row, ask, check, faults_of, signature_of

OPERATORS = {name: each for name, each in vars(ops).items() if hasattr(each, "op")}
OTHERS = [Case(name, ((3, 4),), {"axis": 1}) for name in ("argmax", "argmin", "logsumexp", "std", "var")]
EXAMPLES: dict[str, Case] = {}
for one in (*CASES, *OTHERS):
    if one.op not in EXAMPLES or len(one.attrs) > len(EXAMPLES[one.op].attrs):
        EXAMPLES[one.op] = one
SAYS = {
    "gemm": {name: f"{name}|multiplied over" for name in ("trans_a", "trans_b")},  # 0 and 1 are truth values
    "layer_normalization": {"axis": "axis|normalized axes"},
    **{name: {"kernel": "kernel|spatial axis"} for name in ("average_pool", "max_pool", "sum_pool")},
    "rms_normalization": {"axis": "axis|normalized axes"},
}
TAKES = {"take": {"indices": "Tensor | Sequence[Any] | NDArray[Any] | int"}}


def operands(case: Case) -> tuple[Graph, list[Tensor]]:
    g = Graph()
    dtypes = case.dtypes or (case.dtype,) * len(case.shapes)
    return g, [g.input(f"in{k}", shape, dtypes[k]) for k, shape in enumerate(case.shapes)]


def row_of(name: str) -> Row:
    """The operator's function on the operands and attributes of its richest case."""
    case, call = EXAMPLES[name], OPERATORS[name]
    tensors = [p.name for p in signature_of(call) if "Tensor" in str(p.annotation)]

    def given() -> dict[str, Any]:
        graph, inputs = operands(case)
        found: dict[str, Any] = {"graph": graph} if any(p.name == "graph" for p in signature_of(call)) else {}
        for p in signature_of(call):
            if p.name in tensors and inputs:
                found[p.name] = inputs if p.kind is p.VAR_POSITIONAL else inputs.pop(0)
        return found | case.attrs

    # An operand that may be a number is named by the tensor beside it.
    numbers = [p.name for p in signature_of(call) if p.name in tensors and "float" in str(p.annotation)]
    takes = dict.fromkeys(numbers, "Tensor | float | bool") | TAKES.get(name, {})
    return Row(call, given, takes, says=SAYS.get(name, {}) | dict.fromkeys(numbers, f"^{name}: "))


@pytest.mark.parametrize("name", OPERATORS)
def test_a_wrong_argument_is_refused_by_name(name: str) -> None:
    row = row_of(name)
    assert isinstance(ask(row, row.given()), Tensor | tuple)
    assert not faults_of(name, row)


def by_name(case: Case, **attrs: Any) -> Any:
    graph, inputs = operands(case)
    return graph.op(case.op, *inputs, **case.attrs | attrs)


@pytest.mark.parametrize("name", OPERATORS)
def test_so_it_is_where_the_operator_is_added_by_name(name: str) -> None:
    row, found = row_of(name), []
    for p in row.parameters():
        if p.name in OPERATORS[name].op.attributes:
            said = {"attrs": row.says.get(p.name, rf"\b{p.name}\b")}
            one = Row(partial(by_name, EXAMPLES[name]), partial(dict, attrs={p.name: None}), says=said)
            is_admitted, attrs = row.admits(p), one.parameters()[-1]
            faults = (check(one, attrs, value, not is_admitted(value)) for value in WRONG)
            found += [f"{name}: {p.name}: {fault}" for fault in faults if fault]
    assert not found


def test_documents_of_graphs_hold_no_wrong_attribute() -> None:
    g = Graph()
    g.output(ops.softmax(g.input("x", (3, 4)), axis=1, name="y"))
    document = g.to_dict()
    (entry,) = (one for one in document["order"] if one.get("op") == "softmax")
    entry["attrs"]["axis"] = 1.5
    with pytest.raises(ValueError, match=r"node 'y': axis must be an integer, not 1.5"):
        Graph.from_dict(document)


def test_integers_and_truth_values_of_numpy_are_taken() -> None:
    g = Graph()
    x = g.input("x", (3, 4))
    ops.sum(x, np.int64(1), keepdims=np.True_, name="y")
    ops.max(x, np.array([0, 1]), name="z")
    assert g.nodes["y"].attrs == {"axis": 1, "keepdims": True} and type(g.nodes["y"].attrs["axis"]) is int
    assert g.nodes["z"].attrs["axis"] == (0, 1)


def test_operators_are_walked() -> None:
    assert EXAMPLES.keys() == OPERATORS.keys()
    assert sum(len(row_of(name).parameters()) for name in OPERATORS) > 200
