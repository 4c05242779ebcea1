"""NumPy's numbers stand where Python's do; arrays and other things beside tensors are refused by name."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tapestry_exec import evaluate
from tapestry_plan import Graph, Tensor, ops
from tapestry_plan.ops import array_api

VALUES = np.array([[1.5, -2.25, 3.0], [0.5, 7.0, -1.0]], np.float32)
WHOLE = np.array([[3, -2, 7], [1, 9, -5]], np.int32)


def result(make: Callable[[Any], Tensor], array: Any = VALUES) -> Any:
    g = Graph()
    g.output(make(g.input("x", array.shape, array.dtype.name)), "y")
    return evaluate(g, {"x": array})["y"]


ARITHMETIC = [operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod, operator.lt, operator.ge]
BITS = [operator.lshift, operator.rshift, operator.and_, operator.or_, operator.xor]


@pytest.mark.parametrize("kind", [float, np.float64, np.float32, np.float16, np.array, np.int64, np.uint8])
@pytest.mark.parametrize("apply", [*ARITHMETIC, operator.truediv, operator.pow])
def test_numbers_of_numpy_on_either_side(kind: Any, apply: Any) -> None:
    """As Python's number there: of the tensor's dtype."""
    number = kind(2)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(result(lambda x: apply(x, number)), apply(VALUES, 2.0))
        wanted = apply(2.0, VALUES)
        found = result(lambda x: apply(number, x))
    np.testing.assert_allclose(found, wanted, rtol=1e-6)
    assert found.dtype == wanted.dtype


@pytest.mark.parametrize("kind", [int, np.int64, np.int8, np.uint16])
@pytest.mark.parametrize("apply", [*ARITHMETIC, *BITS])
def test_whole_numbers_of_numpy_on_either_side(kind: Any, apply: Any) -> None:
    number, array = kind(3), abs(WHOLE)
    np.testing.assert_array_equal(result(lambda x: apply(x, number), array), apply(array, number))
    np.testing.assert_array_equal(result(lambda x: apply(number, x), array), apply(number, array))


@pytest.mark.parametrize("number", [1j, np.complex64(2 + 1j), np.array(1j), "2", np.str_("2"), None, [2], np.ones(1)])
def test_what_is_not_a_number_is_refused(number: Any) -> None:
    """The imaginary part of a complex number was dropped."""
    x = Graph().input("x", (2, 3))
    for apply in (operator.mul, operator.sub, operator.floordiv):
        with pytest.raises(TypeError):
            apply(x, number)
        with pytest.raises(TypeError):
            apply(number, x)


def test_truth_values_of_numpy() -> None:
    mask = VALUES > 1
    np.testing.assert_array_equal(result(lambda x: x & np.True_, mask), mask)
    np.testing.assert_array_equal(result(lambda x: np.False_ | x, mask), mask)


def test_axes_and_attributes_may_be_numpy_s() -> None:
    axes: list[Any] = [np.int64(0), np.int8(-1), np.array(1), (np.int64(0), np.int32(1))]
    alike: list[Any] = [0, -1, 1, (0, 1)]
    for axis, plain in zip(axes, alike, strict=True):
        g = Graph()
        g.output(g.input("x", (2, 3)).sum(axis), "y")
        np.testing.assert_array_equal(evaluate(g, {"x": VALUES})["y"], VALUES.sum(axis=plain))
    bounds: tuple[Any, Any] = (np.float32(0), np.float64(2))
    np.testing.assert_array_equal(result(lambda x: x.argmax(np.int64(1))), VALUES.argmax(1))
    np.testing.assert_array_equal(result(lambda x: ops.clip(x, *bounds)), np.clip(VALUES, np.float32(0), np.float32(2)))
    slope = result(lambda x: ops.leaky_relu(x, np.float64(0.5)))
    np.testing.assert_array_equal(slope, np.where(VALUES > 0, VALUES, VALUES * np.float32(0.5)))
    spread = result(lambda x: x.var(ddof=np.int64(1)))
    np.testing.assert_allclose(spread, VALUES.var(ddof=1), rtol=1e-6)


def test_axes_that_are_not() -> None:
    x = Graph().input("x", (2, 3))
    with pytest.raises(TypeError, match=r"argmax: axis must be an integer or None, not \(0, 1\)"):
        x.argmax((0, 1))  # type: ignore[arg-type]
    for axis in (0.0, "0", True, np.float32(0)):
        with pytest.raises(TypeError, match="sum: axis must be "):
            x.sum(axis)  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf, np.float32("nan")])
def test_corrections_are_finite(wrong: float) -> None:
    x: Any = Graph().input("x", (2, 3))
    calls: list[Callable[[], Any]] = [lambda: x.var(ddof=wrong), lambda: ops.std(x, correction=wrong)]
    for call in calls:
        with pytest.raises(ValueError, match=r"(var|std) .*: correction is -?(nan|inf); it must be a finite number"):
            call()
    assert not x.graph.nodes


def test_einsum_of_arrays_is_refused_by_operand() -> None:
    x = Graph().input("x", (2, 3))
    array = np.ones((2, 3), np.float32)
    says = r"einsum: operands\[{}\] must be a Tensor, not an array of shape \(2, 3\) and dtype float32"
    with pytest.raises(TypeError, match=says.format(0)):
        array_api.einsum("ij->j", array)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=says.format(1)):
        array_api.einsum("ij,ij->j", x, array)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"einsum: operands\[0\] must be a Tensor, not 3"):
        ops.einsum("->", 3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"add_n: tensors\[1\] must be a Tensor, not an array"):
        ops.add_n(x, array)  # type: ignore[arg-type]


def test_bounds_of_clip_are_numbers() -> None:
    x: Any = Graph().input("x", (2, 3))
    calls: list[Callable[[], Any]] = [lambda: x.clip(x, x), lambda: array_api.clip(x, max=np.zeros(3))]  # type: ignore[arg-type]
    for call in calls:
        with pytest.raises(TypeError, match=r"clip: (min|max) must be a number or None"):
            call()


def test_a_tensor_of_rank_0_is_not_iterated_over() -> None:
    """It was empty, so that sums over it were 0."""
    g = Graph()
    x, s = g.input("x", (2, 3)), g.input("s", ())
    with pytest.raises(TypeError, match="iteration over a view of rank 0"):
        iter(s)
    assert [row.shape for row in x] == [(3,), (3,)]
    first, second = x
    g.output(second - first, "y")
    np.testing.assert_array_equal(evaluate(g, {"x": VALUES, "s": VALUES[0, 0]})["y"], VALUES[1] - VALUES[0])
