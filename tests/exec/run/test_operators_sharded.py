"""Every operator planned with each of its axes cut, and run: equal to the unsharded run, bytes as predicted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from tapestry_exec import CupyBackend, evaluate, run
from tapestry_plan import Graph, Mesh, Op, plan
from tapestry_plan.ir import BUILTIN_OPS
from tests.cutting import Case, backwards, close
from tests.operator_cases import CASES

FIRST = list({case.op: case for case in reversed(CASES)}.values())
"""One case for each operator."""


def graph_of(case: Case, op: Op | None = None) -> tuple[Graph, dict[str, Any]]:
    """A graph of the one operator, or of another declaration of it, and arrays for its inputs."""
    g = Graph()
    arrays = {f"x{k}": array for k, array in enumerate(case.arrays(3))}
    operands = [g.input(name, array.shape, array.dtype.name) for name, array in arrays.items()]
    made = g.op(op or case.op, *operands, name="it", **case.attrs)
    for k, tensor in enumerate(made if isinstance(made, tuple) else (made,)):
        g.output(tensor, f"y{k}")
    return g, arrays


@pytest.mark.heavy(2)
@pytest.mark.parametrize("case", FIRST, ids=lambda case: case.op)
def test_each_axis_is_cut_over_the_devices(backend: str | CupyBackend, case: Case) -> None:
    g, arrays = graph_of(case)
    whole = evaluate(g, arrays)
    for axis in g.signature("it").axes:
        parts = min(3, axis.size)
        if parts < 2:
            continue
        made = plan(g, Mesh((parts,)), fix={"it": {axis.name: parts}}, placement="single")
        assert len({box for boxes in made.placement["it"].values() for box in boxes if not box.is_empty}) == parts
        report = run(made, arrays, verify=True, backend=backend)
        assert sum(report.nbytes_received) == made.nbytes_moved
        for name, array in whole.items():
            if array.dtype.kind == "f":
                close(report.outputs[name], array, 2e-3 if array.dtype == np.float16 else 2e-5)
            else:
                np.testing.assert_array_equal(report.outputs[name], array)


@pytest.mark.heavy(3)
@pytest.mark.parametrize("case", FIRST, ids=lambda case: case.op)
def test_neither_the_name_nor_the_order_of_the_axes_changes_costs(case: Case) -> None:
    op = BUILTIN_OPS[case.op]
    other = replace(op, name="other", signature=lambda shapes, attrs: backwards(op.signature(shapes, attrs)))
    one, two = graph_of(case)[0], graph_of(case, other)[0]
    axes = {axis.name: min(2, axis.size) for axis in one.signature("it").axes if axis.size > 1}
    for fix in [{}, *({"it": {name: parts}} for name, parts in axes.items())]:
        plans = [plan(g, Mesh((2,)), fix=fix, placement="single") for g in (one, two)]
        assert len({(p.cost, p.seconds, p.nbytes_moved, sum(p.peak_nbytes), sum(p.flop)) for p in plans}) == 1


def test_no_operator_is_left_out() -> None:
    assert {case.op for case in FIRST} == {name for name, op in BUILTIN_OPS.items() if not op.has_states}
