"""The decorator `operator`: what the signature of a function says is what graphs, documents and gradients know."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Optional

import numpy as np
import pytest

from tapestry_exec import evaluate, run
from tapestry_plan import Backward, Graph, Mesh, Tensor, gradient, operator, plan
from tapestry_plan.ops import add, where


def block(xp: Any, inputs: Sequence[Any], outputs: Sequence[Any], shard: Any) -> None:
    outputs[0][...] = sum(inputs) * shard.attrs["by"]


def adjoint(b: Backward) -> list[Tensor]:
    return [b.grad * b.attrs["by"] for _ in b.inputs]


@operator(block=block, adjoint=adjoint)
def scaled_sum(x: Tensor, *others: Tensor, by: float = 2, name: str | None = None) -> Tensor:  # type: ignore[empty-body]
    """The sum, times a number."""


X = np.arange(12.0).reshape(3, 4)


def test_an_operator_from_outside_is_planned_run_and_differentiated() -> None:
    g = Graph()
    x, y = g.input("x", X.shape, "float64"), g.input("y", X.shape, "float64")
    out = g.output(scaled_sum(x, y, y, by=3, name="mine"), "out")
    for name, grad in zip("xy", gradient(out, [x, y], seed=x), strict=True):
        g.output(grad, f"d{name}")
    found = run(plan(g, Mesh((3,)), fix={"mine": {"i0": 3}}), {"x": X, "y": X + 1}, verify=True).outputs
    np.testing.assert_array_equal(found["out"], (3 * X + 2) * 3)
    np.testing.assert_array_equal(found["dx"], 3 * X)
    np.testing.assert_array_equal(found["dy"], 6 * X)
    again = Graph.from_json(g.to_json(), {"scaled_sum": scaled_sum.op})
    assert again.nodes["mine"] == g.nodes["mine"]


def test_defaults_are_stored_and_attributes_converted() -> None:
    g = Graph()
    x = g.input("x", X.shape)
    first, second = scaled_sum(x), g.op(scaled_sum.op, x)
    assert g.nodes[first.name].attrs == g.nodes[second.name].attrs == {"by": 2.0}
    assert scaled_sum.op.attributes == ("by",) and scaled_sum.__doc__ == "The sum, times a number."


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: scaled_sum(x, to=3), TypeError, "unexpected keyword argument 'to'"),
        (lambda x: scaled_sum(), TypeError, "missing a required argument: 'x'; write scaled_sum"),
        (
            lambda x: scaled_sum(x, 2),
            TypeError,
            r"scaled_sum: others\[0\] must be a Tensor, not 2",
        ),
        (lambda x: x.graph.op(scaled_sum.op), ValueError, "0 operands given; the operator takes 1 to any number"),
        (lambda x: x.graph.op(scaled_sum.op, x, to=3), ValueError, "there is no attribute 'to'"),
        (lambda x: add(1, 2), TypeError, "add: 1 of type int and 2 of type int are not tensors; give one at least"),
        (
            lambda x: add(x, "a"),
            TypeError,
            "add: 'a' of type str stands beside tensor 'x'; give a tensor of the graph, as",
        ),
        (lambda x: where(x, 1, x), ValueError, "a choice is made by truth values"),
    ],
)
def test_wrong_calls_leave_the_graph_as_it_was(call: Any, error: type[Exception], message: str) -> None:
    g = Graph()
    x = g.input("x", X.shape)
    with pytest.raises(error, match=message):
        call(x)
    assert list(g.stored) == ["x"] and not g.nodes


def test_numbers_beside_tensors_are_constants_of_their_dtype() -> None:
    g = Graph()
    x = g.input("x", X.shape, "float32")
    g.output(where(x > 4, add(1, x, name="more"), 0), "y")
    assert g.tensor("more").dtype == "float32"
    np.testing.assert_array_equal(evaluate(g, {"x": X.astype("float32")})["y"], np.where(X > 4, X + 1, 0))


def test_a_function_without_operands_is_refused_where_it_is_declared() -> None:
    with pytest.raises(TypeError, match=r"operator 'halve': no parameter of \(x: 'int'.* is annotated as a Tensor"):

        @operator(block=block)
        def halve(x: int, by: float = 2) -> Tensor:  # type: ignore[empty-body]
            """An operand that is not annotated as one."""


Sheet = Tensor


def test_operands_are_known_by_their_type_and_not_by_its_spelling() -> None:
    @operator(block=block)
    def either(x: Sheet, b: Optional[Tensor] = None, *, by: Optional[float] = None) -> Tensor:  # type: ignore[empty-body]  # noqa: UP045
        """An alias, and a union in another form."""

    g = Graph()
    x = g.input("x", X.shape)
    made = either(x, x, by=3)
    assert either.op.attributes == ("by",) and g.nodes[made.name].attrs == {"by": 3.0}
    assert g.nodes[made.name].inputs == ("x", "x")


def test_annotations_that_cannot_be_read_are_refused() -> None:
    with pytest.raises(TypeError, match=r"operator 'own': parameter 'x' is annotated 'Nowhere', which .*; import what"):

        @operator(block=block)
        def own(x: Nowhere) -> Tensor:  # type: ignore[name-defined,empty-body]  # noqa: F821
            """A name that the module does not have."""

    with pytest.raises(TypeError, match=r"operator 'many': parameter 'xs' is annotated .*; an operand is a `Tensor`"):

        @operator(block=block)
        def many(xs: Sequence[Tensor]) -> Tensor:  # type: ignore[empty-body]
            """Tensors inside another type."""
