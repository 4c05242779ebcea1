"""Arithmetic, cell by cell, and what bends it: rectifiers and the sigmoid."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tapestry_plan.autodiff import adjoints
from tapestry_plan.ir import Activation, Addition, Attrs, Shape, Signature, Tensor
from tapestry_plan.ops.declaration import add_op, operator
from tapestry_plan.ops.operands import (
    arithmetic,
    elementwise_signature,
    floating,
    numeric,
    same_dtype,
    subtracted,
    ufunc,
    writes,
)


def _divide(xp: Any, out: Any, a: Any, b: Any) -> None:
    if out.dtype.kind not in "iu":
        xp.divide(a, b, out=out)
        return
    # Integers round toward zero, as in ONNX and C; NumPy's floor_divide rounds down.
    xp.floor_divide(a, b, out=out)
    out[...] += (xp.remainder(a, b) != 0) & ((a < 0) != (b < 0))


def _power(xp: Any, out: Any, a: Any, b: Any) -> None:
    # Squares and cubes of floats are products, thirty times as fast as power: those of all cells whose exponent is 2
    # or 3, whatever the others in the block have. NumPy's own short ways, which a block of one exponent takes and a
    # block of several does not, are avoided: a cell has the same bits in every block.
    if xp is not np or not out.dtype == a.dtype == b.dtype or out.dtype.kind != "f":
        xp.power(a, b, out=out)
        return
    squared, cubed = b == 2, b == 3
    left = ~(squared | cubed)
    if left.any():
        np.power(a, np.array(np.broadcast_to(b, out.shape)), out=out, where=left)
    if not left.all():
        where = True if not left.any() else ~left
        np.multiply(a, a, out=out, where=where)
        if cubed.any():
            np.multiply(out, a, out=out, where=True if cubed.all() else cubed)


def _relu(xp: Any, out: Any, x: Any) -> None:
    xp.maximum(x, 0, out=out)


def _sigmoid(xp: Any, out: Any, x: Any) -> None:
    if np.dtype(out.dtype).itemsize == 2:  # of halves near 1 little is left when 1 is taken off
        single = x.astype(xp.float32)
        _sigmoid(xp, single, single)
        out[...] = single
        return
    # 1/(1 + e⁻ˣ) = (1 + tanh(x/2))/2, which overflows nowhere
    xp.multiply(x, 0.5, out=out)
    xp.tanh(out, out=out)
    xp.multiply(out, 0.5, out=out)
    xp.add(out, 0.5, out=out)


def _leaky_relu(xp: Any, out: Any, x: Any, alpha: float) -> None:
    xp.multiply(x, alpha, out=out)
    if 0 <= alpha <= 1:
        xp.maximum(x, out, out=out)
    else:
        out[...] = xp.where(x < 0, out, x)


def _add_n(xp: Any, out: Any, first: Any, *others: Any) -> None:
    if not others:
        out[...] = first
    for other in others:
        first = xp.add(first, other, out=out)


def _remainder(xp: Any, out: Any, a: Any, b: Any, truncate: bool) -> None:
    (xp.fmod if truncate else xp.remainder)(a, b, out=out)


def _prelu_signature(shapes: Sequence[Shape], attrs: Attrs) -> Signature:
    x, slope = shapes
    made = elementwise_signature(shapes, attrs)
    if made.index_shape != x:
        raise ValueError(f"the slope has shape {slope}; it must broadcast to operand 0's shape {x}")
    return made


def _prelu(xp: Any, out: Any, x: Any, slope: Any) -> None:
    xp.minimum(x, 0, out=out)
    xp.multiply(out, slope, out=out)
    xp.copyto(out, x, where=x > 0)


@operator(block=ufunc("add"), dtype=same_dtype, adjoint=adjoints.add, work=lambda shard: Addition())
def add(a: Tensor | float, b: Tensor | float, *, name: str | None = None) -> Tensor:
    """a + b, cell by cell.

    Parameters
    ----------
    a, b : Tensor, or one of them a number
        Of one dtype; they broadcast against each other.

    Returns
    -------
    Tensor of the broadcast shape and that dtype

    Raises
    ------
    ValueError
        For operands of two dtypes, or shapes that do not broadcast.

    Examples
    --------
    >>> from tapestry_exec import evaluate
    >>> from tapestry_plan import Graph, ops
    >>> g = Graph()
    >>> _ = g.output(ops.add(g.constant("a", [1, 2, 3]), g.constant("b", [[10], [20]])), "y")
    >>> evaluate(g, {})["y"].tolist()
    [[11, 12, 13], [21, 22, 23]]

    References
    ----------
    ONNX Add; Array API add.
    """


@operator(block=ufunc("subtract"), dtype=subtracted, adjoint=adjoints.subtract)
def subtract(a: Tensor | float, b: Tensor | float, *, name: str | None = None) -> Tensor:
    """a - b, cell by cell.

    Parameters
    ----------
    a, b : Tensor, or one of them a number
        Of one dtype of numbers; they broadcast against each other.

    Returns
    -------
    Tensor of the broadcast shape and that dtype

    Raises
    ------
    ValueError
        For operands of another or of two dtypes, or shapes that do not broadcast.

    Examples
    --------
    >>> from tapestry_exec import evaluate
    >>> from tapestry_plan import Graph, ops
    >>> g = Graph()
    >>> _ = g.output(ops.subtract(g.constant("a", [5.0, 7.0]), 1), "y")
    >>> evaluate(g, {})["y"].tolist()
    [4.0, 6.0]

    References
    ----------
    ONNX Sub; Array API subtract.
    """


@operator(block=ufunc("multiply"), dtype=same_dtype, adjoint=adjoints.multiply)
def multiply(a: Tensor | float, b: Tensor | float, *, name: str | None = None) -> Tensor:
    """a · b, cell by cell.

    Parameters
    ----------
    a, b : Tensor, or one of them a number
        Of one dtype; they broadcast against each other.

    Returns
    -------
    Tensor of the broadcast shape and that dtype

    Raises
    ------
    ValueError
        For operands of two dtypes, or shapes that do not broadcast.

    Examples
    --------
    >>> from tapestry_exec import evaluate
    >>> from tapestry_plan import Graph, ops
    >>> g = Graph()
    >>> _ = g.output(ops.multiply(g.constant("a", [1.5, 2.0]), 2), "y")
    >>> evaluate(g, {})["y"].tolist()
    [3.0, 4.0]

    References
    ----------
    ONNX Mul; Array API multiply.
    """


@operator(block=writes(_divide), dtype=arithmetic, adjoint=adjoints.divide)
def divide(a: Tensor | float, b: Tensor | float, *, name: str | None = None) -> Tensor:  # type: ignore[return]
    """a / b, cell by cell, of floating numbers.

    ONNX divides integers too, rounding toward zero: so does the operator ``divide`` of a graph.

    Parameters
    ----------
    a, b : Tensor, or one of them a number
        Of one floating dtype; they broadcast against each other.

    Returns
    -------
    Tensor of the broadcast shape and that dtype

    Raises
    ------
    ValueError
        For integers, which `//` divides.

    Examples
    --------
    >>> from tapestry_exec import evaluate
    >>> from tapestry_plan import Graph, ops
    >>> g = Graph()
    >>> _ = g.output(ops.divide(g.constant("a", [1.0, 3.0]), 2), "y")
    >>> evaluate(g, {})["y"].tolist()
    [0.5, 1.5]

    References
    ----------
    ONNX Div; Array API divide.
    """
    for operand in (a, b):
        if isinstance(operand, Tensor):
            operand._need_fractions()


@operator(
    block=writes(_relu, in_place=True), dtype=numeric, adjoint=adjoints.relu, work=lambda shard: Activation("relu")
)
def relu(x: Tensor, *, name: str | None = None) -> Tensor:
    """max(x, 0), cell by cell.

    Parameters
    ----------
    x : Tensor of a dtype of numbers

    Returns
    -------
    Tensor of x's shape and dtype

    Raises
    ------
    ValueError
        For truth values.

    Examples
    --------
    >>> from tapestry_exec import evaluate
    >>> from tapestry_plan import Graph, ops
    >>> g = Graph()
    >>> _ = g.output(ops.relu(g.constant("x", [-1.5, 0.0, 2.0])), "y")
    >>> evaluate(g, {})["y"].tolist()
    [0.0, 0.0, 2.0]

    References
    ----------
    ONNX Relu.
    """


@operator(
    block=writes(_sigmoid, in_place=True),
    dtype=floating,
    adjoint=adjoints.sigmoid,
    work=lambda shard: Activation("sigmoid"),
)
def sigmoid(x: Tensor, *, name: str | None = None) -> Tensor:
    """1 / (1 + exp(-x)), cell by cell.

    Parameters
    ----------
    x : Tensor of a floating dtype

    Returns
    -------
    Tensor of x's shape and dtype

    Raises
    ------
    ValueError
        For another dtype.

    Examples
    --------
    >>> from tapestry_exec import evaluate
    >>> from tapestry_plan import Graph, ops
    >>> g = Graph()
    >>> _ = g.output(ops.sigmoid(g.constant("x", [-1000.0, 0.0, 1.0])), "y")
    >>> evaluate(g, {})["y"].round(3).tolist()
    [0.0, 0.5, 0.731]

    References
    ----------
    ONNX Sigmoid.
    """


@operator(block=ufunc("reciprocal"), dtype=floating, adjoint=adjoints.slope(lambda x, y, op: -(y * y)))
def reciprocal(x: Tensor, *, name: str | None = None) -> Tensor:
    """1 / x, cell by cell.

    Parameters
    ----------
    x : Tensor of a floating dtype

    Returns
    -------
    Tensor of x's shape and dtype

    Raises
    ------
    ValueError
        For another dtype.

    Examples
    --------
    >>> from tapestry_exec import evaluate
    >>> from tapestry_plan import Graph, ops
    >>> g = Graph()
    >>> _ = g.output(ops.reciprocal(g.constant("x", [0.5, 4.0])), "y")
    >>> evaluate(g, {})["y"].tolist()
    [2.0, 0.25]

    References
    ----------
    ONNX Reciprocal; Array API reciprocal.
    """


@operator(block=writes(_power), dtype=numeric, adjoint=adjoints.pow)
def pow(a: Tensor | float, b: Tensor | float, *, name: str | None = None) -> Tensor:
    """a to the power of b, cell by cell.

    Parameters
    ----------
    a, b : Tensor, or one of them a number
        Of one dtype of numbers; they broadcast against each other.

    Returns
    -------
    Tensor of the broadcast shape and that dtype

    Raises
    ------
    ValueError
        For operands of another or of two dtypes, or shapes that do not broadcast.

    Examples
    --------
    >>> from tapestry_exec import evaluate
    >>> from tapestry_plan import Graph, ops
    >>> g = Graph()
    >>> _ = g.output(ops.pow(g.constant("a", [2.0, 3.0, 4.0]), 3), "y")
    >>> evaluate(g, {})["y"].tolist()
    [8.0, 27.0, 64.0]

    References
    ----------
    ONNX Pow; Array API pow.
    """


@operator(block=writes(_prelu), signature=_prelu_signature, flop=2.0, dtype=floating, adjoint=adjoints.prelu)
def prelu(a: Tensor, b: Tensor, *, name: str | None = None) -> Tensor:
    """a where it is positive, a · b elsewhere; the slope b broadcasts to a's shape.

    Parameters
    ----------
    a, b : Tensor
        Of one floating dtype; they broadcast against each other.

    Returns
    -------
    Tensor of a's shape and dtype

    Raises
    ------
    ValueError
        For operands of another or of two dtypes, or shapes that do not broadcast.

    Examples
    --------
    >>> from tapestry_exec import evaluate
    >>> from tapestry_plan import Graph, ops
    >>> g = Graph()
    >>> _ = g.output(ops.prelu(g.constant("a", [[-2.0, 3.0], [-4.0, 5.0]]), g.constant("slope", [0.5, 0.5])), "y")
    >>> evaluate(g, {})["y"].tolist()
    [[-1.0, 3.0], [-2.0, 5.0]]

    References
    ----------
    ONNX PRelu.
    """


@operator(block=writes(_remainder, in_place=True), dtype=numeric, adjoint=adjoints.remainder)
def remainder(a: Tensor | float, b: Tensor | float, *, truncate: bool = False, name: str | None = None) -> Tensor:
    """The remainder of a after division by b, cell by cell.

    Parameters
    ----------
    a, b : Tensor
        Of one dtype; they broadcast against each other.
    truncate : bool
        Round the quotient toward zero, so that the result has a's sign, as in C; otherwise down, so that it has b's.

    Returns
    -------
    Tensor of the broadcast shape and that dtype

    Raises
    ------
    ValueError
        For truth values, operands of two dtypes, or shapes that do not broadcast.

    Examples
    --------
    >>> from tapestry_exec import evaluate
    >>> from tapestry_plan import Graph, ops
    >>> g = Graph()
    >>> a = g.constant("a", [-7.0, 7.0])
    >>> _ = g.output(ops.remainder(a, 3), "down"), g.output(ops.remainder(a, 3, truncate=True), "toward zero")
    >>> {name: array.tolist() for name, array in evaluate(g, {}).items()}
    {'down': [2.0, 1.0], 'toward zero': [-1.0, 1.0]}

    References
    ----------
    ONNX Mod, where truncate is called fmod.
    """


@operator(block=writes(_add_n), dtype=same_dtype, adjoint=adjoints.add)
def add_n(*tensors: Tensor, name: str | None = None) -> Tensor:
    """The sum of one or more tensors, broadcast against each other, cell by cell.

    Parameters
    ----------
    *tensors : Tensor
        One or more, of one dtype; they broadcast against each other.

    Returns
    -------
    Tensor of the broadcast shape and that dtype

    Raises
    ------
    ValueError
        For none, two dtypes, or shapes that do not broadcast.

    Examples
    --------
    >>> from tapestry_exec import evaluate
    >>> from tapestry_plan import Graph, ops
    >>> g = Graph()
    >>> a, b = g.constant("a", [1, 2]), g.constant("b", [10, 20])
    >>> _ = g.output(ops.add_n(a, b, a), "y")
    >>> evaluate(g, {})["y"].tolist()
    [12, 24]

    References
    ----------
    ONNX Sum.
    """
    if not tensors:
        raise ValueError("add_n: no tensors given; give at least one")
    return add_op(add_n.op, *tensors, name=name)


@operator(block=writes(_leaky_relu), dtype=floating, adjoint=adjoints.leaky_relu)
def leaky_relu(x: Tensor, alpha: float = 0.01, *, name: str | None = None) -> Tensor:
    """x where it is positive, alpha·x elsewhere.

    Parameters
    ----------
    x : Tensor of a floating dtype
    alpha : float
        The slope below 0.

    Returns
    -------
    Tensor of x's shape and dtype

    Raises
    ------
    ValueError
        For another dtype.

    Examples
    --------
    >>> from tapestry_exec import evaluate
    >>> from tapestry_plan import Graph, ops
    >>> g = Graph()
    >>> _ = g.output(ops.leaky_relu(g.constant("x", [-2.0, 3.0]), alpha=0.5), "y")
    >>> evaluate(g, {})["y"].tolist()
    [-1.0, 3.0]

    References
    ----------
    ONNX LeakyRelu.
    """
