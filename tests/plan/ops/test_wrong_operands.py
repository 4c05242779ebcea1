"""Every operator with every operand in turn replaced by what is not a tensor: an error that names the operand."""

from __future__ import annotations

from inspect import Parameter, signature
from typing import Any

import numpy as np
import pytest

from tapestry_plan import Graph, Mesh, Tensor, ops

WRONG = (None, 5, "x", 1.5, object(), [], {}, b"", np.array([object()], object), Mesh((2,)), Tensor, [0] * 10_000)
OPERATORS = {name: each for name, each in vars(ops).items() if hasattr(each, "op")}


def operands_of(name: str) -> list[Parameter]:
    """The parameters that take one tensor."""
    found = signature(OPERATORS[name]).parameters.values()
    return [p for p in found if "Tensor" in str(p.annotation) and p.kind is not p.VAR_POSITIONAL]


def walked(name: str) -> list[Parameter]:
    """Those that take a tensor, None or a number; an array of indices is something else."""
    return [p for p in operands_of(name) if "Sequence" not in p.annotation]


def call(name: str, graph: Graph, **given: Any) -> Any:
    """An operator of tensors, but for the operands that are given, and of ones where an attribute has no default."""
    args, named = [], {}
    for p in signature(OPERATORS[name]).parameters.values():
        if p in operands_of(name):
            value = given.get(p.name) if p.name in given else graph.input(p.name, (1, 2, 4, 4))
        elif p.default is p.empty and p.kind is not p.VAR_POSITIONAL:
            value = graph if p.name == "graph" else 1
        else:
            continue
        if p.kind is p.KEYWORD_ONLY:
            named[p.name] = value
        else:
            args.append(value)
    return OPERATORS[name](*args, **named)


def is_allowed(p: Parameter, value: Any) -> bool:
    """Whether an annotation admits a value."""
    return (value is None and "None" in p.annotation) or (isinstance(value, int | float) and "float" in p.annotation)


@pytest.mark.parametrize(("name", "operand"), [(name, p) for name in OPERATORS for p in walked(name)])
def test_a_wrong_operand_is_a_type_error_that_names_it(name: str, operand: Parameter) -> None:
    for wrong in WRONG:
        if is_allowed(operand, wrong):
            continue
        g = Graph()
        with pytest.raises(TypeError) as info:
            call(name, g, **{operand.name: wrong})
        said = str(info.value)
        places = [f"{name}: "] if "float" in operand.annotation else [f"{name}: {operand.name} must be "]
        assert any(place in said for place in places), said
        assert len(said) < 500 and not g.nodes and not g.selections


def test_operators_are_walked() -> None:
    assert len(OPERATORS) > 100 and sum(len(walked(name)) for name in OPERATORS) > 150
