"""Operators that work cell by cell."""

from __future__ import annotations

import math
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
    of_kinds,
    same_dtype,
    subtracted,
    ufunc,
    writes,
)
from tapestry_sets.limits import check_cell


def _bounded(dtypes: Sequence[str], attrs: Attrs) -> tuple[str, ...]:
    """The bounds of a clip are values of its operand's dtype, and leave some of its numbers."""
    least, most = attrs.get("min"), attrs.get("max")
    if math.inf == least or -math.inf == most or least != least or most != most:
        raise ValueError(f"min={least}, max={most} leave no number; give finite bounds, or None")
    for key in ("min", "max"):
        bound = attrs.get(key)
        if bound is not None and np.dtype(dtypes[0]).kind in "iub":
            check_cell(bound, np.dtype(dtypes[0]), key)
    return (dtypes[0],)


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
    # 1/(1 + e⁻ˣ) = (1 + tanh(x/2))/2, which overflows nowhere
    xp.multiply(x, 0.5, out=out)
    xp.tanh(out, out=out)
    xp.multiply(out, 0.5, out=out)
    xp.add(out, 0.5, out=out)


def _clip(xp: Any, out: Any, x: Any, min: float | None = None, max: float | None = None) -> None:
    if min is None and max is None:
        out[...] = x
    if min is not None:
        x = xp.maximum(x, out.dtype.type(min), out=out)
    if max is not None:
        xp.minimum(x, out.dtype.type(max), out=out)


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
    """a + b, cell by cell."""


@operator(block=ufunc("subtract"), dtype=subtracted, adjoint=adjoints.subtract)
def subtract(a: Tensor | float, b: Tensor | float, *, name: str | None = None) -> Tensor:
    """a - b, cell by cell."""


@operator(block=ufunc("multiply"), dtype=same_dtype, adjoint=adjoints.multiply)
def multiply(a: Tensor | float, b: Tensor | float, *, name: str | None = None) -> Tensor:
    """a · b, cell by cell."""


@operator(block=writes(_divide), dtype=arithmetic, adjoint=adjoints.divide)
def divide(a: Tensor | float, b: Tensor | float, *, name: str | None = None) -> Tensor:  # type: ignore[return]
    """a / b, cell by cell, of floating numbers.

    ONNX divides integers too, rounding toward zero: so does the operator ``divide`` of a graph.

    Raises
    ------
    ValueError
        For integers, which `//` divides.
    """
    for operand in (a, b):
        if isinstance(operand, Tensor):
            operand._need_fractions()


@operator(
    block=writes(_relu, in_place=True), dtype=numeric, adjoint=adjoints.relu, work=lambda shard: Activation("relu")
)
def relu(x: Tensor, *, name: str | None = None) -> Tensor:
    """max(x, 0), cell by cell."""


@operator(
    block=writes(_sigmoid, in_place=True),
    dtype=floating,
    adjoint=adjoints.sigmoid,
    work=lambda shard: Activation("sigmoid"),
)
def sigmoid(x: Tensor, *, name: str | None = None) -> Tensor:
    """1 / (1 + exp(-x)), cell by cell."""


@operator(block=ufunc("tanh"), dtype=floating, adjoint=adjoints.tanh, work=lambda shard: Activation("tanh"))
def tanh(x: Tensor, *, name: str | None = None) -> Tensor:
    """The hyperbolic tangent, cell by cell."""


@operator(block=ufunc("exp"), dtype=floating, adjoint=adjoints.slope(lambda x, y, op: y))
def exp(x: Tensor, *, name: str | None = None) -> Tensor:
    """The exponential, cell by cell."""


@operator(block=ufunc("sqrt"), dtype=floating, adjoint=adjoints.slope(lambda x, y, op: 0.5 / y))
def sqrt(x: Tensor, *, name: str | None = None) -> Tensor:
    """The square root, cell by cell."""


@operator(block=ufunc("negative"), dtype=of_kinds("if", "it has no negative numbers"), adjoint=adjoints.negative)
def negative(x: Tensor, *, name: str | None = None) -> Tensor:
    """-x, cell by cell."""


@operator(block=ufunc("absolute"), dtype=numeric, adjoint=adjoints.slope(lambda x, y, op: op("sign", x)))
def abs(x: Tensor, *, name: str | None = None) -> Tensor:
    """The absolute value, cell by cell."""


@operator(block=ufunc("sign"), dtype=numeric, adjoint=adjoints.none)
def sign(x: Tensor, *, name: str | None = None) -> Tensor:
    """-1, 0 or 1, as x is negative, zero or positive, cell by cell."""


@operator(block=ufunc("log"), dtype=floating, adjoint=adjoints.slope(lambda x, y, op: 1 / x))
def log(x: Tensor, *, name: str | None = None) -> Tensor:
    """The natural logarithm, cell by cell."""


@operator(block=ufunc("log1p"), dtype=floating, adjoint=adjoints.slope(lambda x, y, op: 1 / (x + 1)))
def log1p(x: Tensor, *, name: str | None = None) -> Tensor:
    """log(1 + x), cell by cell, exact for small x too."""


@operator(block=ufunc("expm1"), dtype=floating, adjoint=adjoints.slope(lambda x, y, op: y + 1))
def expm1(x: Tensor, *, name: str | None = None) -> Tensor:
    """exp(x) - 1, cell by cell, exact for small x too."""


@operator(block=ufunc("reciprocal"), dtype=floating, adjoint=adjoints.slope(lambda x, y, op: -(y * y)))
def reciprocal(x: Tensor, *, name: str | None = None) -> Tensor:
    """1 / x, cell by cell."""


@operator(block=ufunc("floor"), dtype=floating, adjoint=adjoints.none)
def floor(x: Tensor, *, name: str | None = None) -> Tensor:
    """The largest whole number that is not above x, cell by cell."""


@operator(block=ufunc("ceil"), dtype=floating, adjoint=adjoints.none)
def ceil(x: Tensor, *, name: str | None = None) -> Tensor:
    """The smallest whole number that is not below x, cell by cell."""


@operator(block=ufunc("rint"), dtype=floating, adjoint=adjoints.none)
def round(x: Tensor, *, name: str | None = None) -> Tensor:
    """The nearest whole number, the even one of two, cell by cell."""


@operator(block=ufunc("sin"), dtype=floating, adjoint=adjoints.slope(lambda x, y, op: op("cos", x)))
def sin(x: Tensor, *, name: str | None = None) -> Tensor:
    """The sine, cell by cell."""


@operator(block=ufunc("cos"), dtype=floating, adjoint=adjoints.slope(lambda x, y, op: -op("sin", x)))
def cos(x: Tensor, *, name: str | None = None) -> Tensor:
    """The cosine, cell by cell."""


@operator(block=ufunc("tan"), dtype=floating, adjoint=adjoints.slope(lambda x, y, op: y * y + 1))
def tan(x: Tensor, *, name: str | None = None) -> Tensor:
    """The tangent, cell by cell."""


@operator(block=ufunc("arcsin"), dtype=floating, adjoint=adjoints.slope(lambda x, y, op: 1 / op("sqrt", 1 - x * x)))
def asin(x: Tensor, *, name: str | None = None) -> Tensor:
    """The inverse sine, cell by cell."""


@operator(block=ufunc("arccos"), dtype=floating, adjoint=adjoints.slope(lambda x, y, op: -1 / op("sqrt", 1 - x * x)))
def acos(x: Tensor, *, name: str | None = None) -> Tensor:
    """The inverse cosine, cell by cell."""


@operator(block=ufunc("arctan"), dtype=floating, adjoint=adjoints.slope(lambda x, y, op: 1 / (x * x + 1)))
def atan(x: Tensor, *, name: str | None = None) -> Tensor:
    """The inverse tangent, cell by cell."""


@operator(block=ufunc("sinh"), dtype=floating, adjoint=adjoints.slope(lambda x, y, op: op("cosh", x)))
def sinh(x: Tensor, *, name: str | None = None) -> Tensor:
    """The hyperbolic sine, cell by cell."""


@operator(block=ufunc("cosh"), dtype=floating, adjoint=adjoints.slope(lambda x, y, op: op("sinh", x)))
def cosh(x: Tensor, *, name: str | None = None) -> Tensor:
    """The hyperbolic cosine, cell by cell."""


@operator(block=ufunc("arcsinh"), dtype=floating, adjoint=adjoints.slope(lambda x, y, op: 1 / op("sqrt", x * x + 1)))
def asinh(x: Tensor, *, name: str | None = None) -> Tensor:
    """The inverse hyperbolic sine, cell by cell."""


@operator(block=ufunc("arccosh"), dtype=floating, adjoint=adjoints.slope(lambda x, y, op: 1 / op("sqrt", x * x - 1)))
def acosh(x: Tensor, *, name: str | None = None) -> Tensor:
    """The inverse hyperbolic cosine, cell by cell."""


@operator(block=ufunc("arctanh"), dtype=floating, adjoint=adjoints.slope(lambda x, y, op: 1 / (1 - x * x)))
def atanh(x: Tensor, *, name: str | None = None) -> Tensor:
    """The inverse hyperbolic tangent, cell by cell."""


@operator(block=writes(_power), dtype=numeric, adjoint=adjoints.pow)
def pow(a: Tensor | float, b: Tensor | float, *, name: str | None = None) -> Tensor:
    """a to the power of b, cell by cell."""


@operator(block=ufunc("maximum"), dtype=same_dtype, adjoint=adjoints.chosen("greater"))
def maximum(a: Tensor | float, b: Tensor | float, *, name: str | None = None) -> Tensor:
    """The larger of a and b, cell by cell; NaN where either is."""


@operator(block=ufunc("minimum"), dtype=same_dtype, adjoint=adjoints.chosen("less"))
def minimum(a: Tensor | float, b: Tensor | float, *, name: str | None = None) -> Tensor:
    """The smaller of a and b, cell by cell; NaN where either is."""


@operator(block=writes(_prelu), signature=_prelu_signature, flop=2.0, dtype=floating, adjoint=adjoints.prelu)
def prelu(a: Tensor, b: Tensor, *, name: str | None = None) -> Tensor:
    """a where it is positive, a · b elsewhere; the slope b broadcasts to a's shape."""


@operator(block=writes(_remainder, in_place=True), dtype=numeric, adjoint=adjoints.remainder)
def remainder(a: Tensor | float, b: Tensor | float, *, truncate: bool = False, name: str | None = None) -> Tensor:
    """The remainder of a after division by b, cell by cell.

    Parameters
    ----------
    a, b : Tensor
        Of one dtype; they broadcast against each other.
    truncate : bool
        Round the quotient toward zero, so that the result has a's sign, as in C; otherwise down, so that it has b's.

    References
    ----------
    ONNX Mod, where truncate is called fmod.
    """


@operator(block=writes(_add_n), dtype=same_dtype, adjoint=adjoints.add)
def add_n(*tensors: Tensor, name: str | None = None) -> Tensor:
    """The sum of one or more tensors, broadcast against each other, cell by cell."""
    if not tensors:
        raise ValueError("add_n: no tensors given; give at least one")
    return add_op(add_n.op, *tensors, name=name)


@operator(block=writes(_leaky_relu), dtype=floating, adjoint=adjoints.leaky_relu)
def leaky_relu(x: Tensor, alpha: float = 0.01, *, name: str | None = None) -> Tensor:
    """x where it is positive, alpha·x elsewhere."""


@operator(block=writes(_clip, in_place=True), dtype=_bounded, adjoint=adjoints.clip)
def clip(x: Tensor, min: float | None = None, max: float | None = None, *, name: str | None = None) -> Tensor:
    """x limited to [min, max]; a bound that is None or infinite does not limit.

    References
    ----------
    ONNX Clip.
    """
    low = None if min == float("-inf") else min
    high = None if max == float("inf") else max
    return add_op(clip.op, x, name=name, min=low, max=high)
