"""Operators that work cell by cell."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import Any

import numpy as np

from tapestry_plan.autodiff import adjoints
from tapestry_plan.ir import Activation, Addition, Attrs, Op, Shape, Shard, Signature, Tensor
from tapestry_plan.ops.operands import (
    add_op,
    binary,
    binary_function,
    common_shape,
    counted,
    declare,
    elementwise_signature,
    floating,
    numeric,
    same_dtype,
    ufunc,
    unary,
    unary_function,
)


def _bounded(dtypes: Sequence[str], attrs: Attrs) -> tuple[str, ...]:
    """The bounds of a clip are values of its operand's dtype."""
    for key in ("min", "max"):
        bound = attrs.get(key)
        if bound is not None and np.dtype(dtypes[0]).kind in "iub" and bound != np.dtype(dtypes[0]).type(bound):
            raise ValueError(f"{key} is {bound!r}, which is no value of operand 0's dtype {dtypes[0]}; round it")
    return (dtypes[0],)


def _div_block(xp: Any, inputs: Sequence[Any], outputs: Sequence[Any], shard: Shard) -> None:
    a, b = inputs
    if outputs[0].dtype.kind not in "iu":
        xp.divide(a, b, out=outputs[0])
        return
    # Integers round toward zero, as in ONNX and C; NumPy's floor_divide rounds down.
    xp.floor_divide(a, b, out=outputs[0])
    outputs[0][...] += (xp.remainder(a, b) != 0) & ((a < 0) != (b < 0))


def _relu_block(xp: Any, inputs: Sequence[Any], outputs: Sequence[Any], shard: Shard) -> None:
    xp.maximum(inputs[0], 0, out=outputs[0])


def _sigmoid_block(xp: Any, inputs: Sequence[Any], outputs: Sequence[Any], shard: Shard) -> None:
    # 1/(1 + e⁻ˣ) = (1 + tanh(x/2))/2, which overflows nowhere
    (out,) = outputs
    xp.multiply(inputs[0], 0.5, out=out)
    xp.tanh(out, out=out)
    xp.multiply(out, 0.5, out=out)
    xp.add(out, 0.5, out=out)


def _clip_block(xp: Any, inputs: Sequence[Any], outputs: Sequence[Any], shard: Shard) -> None:
    low, high = shard.attrs.get("min"), shard.attrs.get("max")
    (x,), (out,) = inputs, outputs
    if low is None and high is None:
        out[...] = x
        return
    if low is not None:
        x = xp.maximum(x, out.dtype.type(low), out=out)
    if high is not None:
        xp.minimum(x, out.dtype.type(high), out=out)


def _leaky_relu_block(xp: Any, inputs: Sequence[Any], outputs: Sequence[Any], shard: Shard) -> None:
    (x,), (out,) = inputs, outputs
    alpha = shard.attrs.get("alpha", 0.01)
    xp.multiply(x, alpha, out=out)
    if 0 <= alpha <= 1:
        xp.maximum(x, out, out=out)
    else:
        out[...] = xp.where(x < 0, out, x)


def _sum_n_block(xp: Any, inputs: Sequence[Any], outputs: Sequence[Any], shard: Shard) -> None:
    (out,) = outputs
    if len(inputs) == 1:
        out[...] = inputs[0]
        return
    xp.add(inputs[0], inputs[1], out=out)
    for more in inputs[2:]:
        xp.add(out, more, out=out)


def _signed(dtypes: Sequence[str], attrs: Attrs) -> tuple[str, ...]:
    """Numbers that have a sign."""
    if np.dtype(dtypes[0]).kind not in "if":
        raise ValueError(f"operand 0 is {dtypes[0]}, which has no negative numbers; cast it")
    return (dtypes[0],)


def _mod_block(xp: Any, inputs: Sequence[Any], outputs: Sequence[Any], shard: Shard) -> None:
    remainder = xp.fmod if shard.attrs.get("truncate") else xp.remainder
    remainder(*inputs, out=outputs[0])


def _prelu_signature(shapes: Sequence[Shape], attrs: Attrs) -> Signature:
    x, slope = shapes
    if common_shape(shapes) != x:
        raise ValueError(f"the slope has shape {slope}; it must broadcast to operand 0's shape {x}")
    return elementwise_signature(shapes, attrs)


def _prelu_block(xp: Any, inputs: Sequence[Any], outputs: Sequence[Any], shard: Shard) -> None:
    (x, slope), (out,) = inputs, outputs
    xp.minimum(x, 0, out=out)
    xp.multiply(out, slope, out=out)
    xp.copyto(out, x, where=x > 0)


# -- declarations --------------------------------------------------------------------------------------


declare(
    Op("add", binary, ufunc("add"), dtype=same_dtype, adjoint=adjoints.add, work=lambda shard: Addition()),
    Op("sub", binary, ufunc("subtract"), dtype=same_dtype, adjoint=adjoints.sub),
    Op("mul", binary, ufunc("multiply"), dtype=same_dtype, adjoint=adjoints.mul),
    Op("div", binary, _div_block, dtype=same_dtype, adjoint=adjoints.div),
    Op("sum_n", counted(elementwise_signature, 1, None), _sum_n_block, dtype=same_dtype, adjoint=adjoints.add),
    Op("relu", unary, _relu_block, adjoint=adjoints.relu, work=lambda shard: Activation("relu")),
    Op("leaky_relu", unary, _leaky_relu_block, dtype=floating, attributes=("alpha",), adjoint=adjoints.leaky_relu),
    Op("clip", unary, _clip_block, dtype=_bounded, attributes=("min", "max"), adjoint=adjoints.clip),
    Op(
        "sigmoid",
        unary,
        _sigmoid_block,
        dtype=floating,
        adjoint=adjoints.sigmoid,
        work=lambda shard: Activation("sigmoid"),
    ),
    Op(
        "tanh",
        unary,
        ufunc("tanh"),
        dtype=floating,
        adjoint=adjoints.tanh,
        work=lambda shard: Activation("tanh"),
    ),
    Op("exp", unary, ufunc("exp"), dtype=floating, adjoint=adjoints.exp),
    Op("sqrt", unary, ufunc("sqrt"), dtype=floating, adjoint=adjoints.sqrt),
    Op("neg", unary, ufunc("negative"), dtype=_signed, adjoint=adjoints.neg),
    Op("abs", unary, ufunc("absolute"), dtype=numeric, adjoint=adjoints.abs),
    Op("sign", unary, ufunc("sign"), dtype=numeric, adjoint=adjoints.none),
    Op("log", unary, ufunc("log"), dtype=floating, adjoint=adjoints.log),
    Op("log1p", unary, ufunc("log1p"), dtype=floating, adjoint=adjoints.log1p),
    Op("expm1", unary, ufunc("expm1"), dtype=floating, adjoint=adjoints.expm1),
    Op("reciprocal", unary, ufunc("reciprocal"), dtype=floating, adjoint=adjoints.reciprocal),
    Op("floor", unary, ufunc("floor"), dtype=floating, adjoint=adjoints.none),
    Op("ceil", unary, ufunc("ceil"), dtype=floating, adjoint=adjoints.none),
    Op("round", unary, ufunc("rint"), dtype=floating, adjoint=adjoints.none),
    Op("sin", unary, ufunc("sin"), dtype=floating, adjoint=adjoints.sin),
    Op("cos", unary, ufunc("cos"), dtype=floating, adjoint=adjoints.cos),
    Op("tan", unary, ufunc("tan"), dtype=floating, adjoint=adjoints.tan),
    Op("asin", unary, ufunc("arcsin"), dtype=floating, adjoint=adjoints.asin),
    Op("acos", unary, ufunc("arccos"), dtype=floating, adjoint=adjoints.acos),
    Op("atan", unary, ufunc("arctan"), dtype=floating, adjoint=adjoints.atan),
    Op("sinh", unary, ufunc("sinh"), dtype=floating, adjoint=adjoints.sinh),
    Op("cosh", unary, ufunc("cosh"), dtype=floating, adjoint=adjoints.cosh),
    Op("asinh", unary, ufunc("arcsinh"), dtype=floating, adjoint=adjoints.asinh),
    Op("acosh", unary, ufunc("arccosh"), dtype=floating, adjoint=adjoints.acosh),
    Op("atanh", unary, ufunc("arctanh"), dtype=floating, adjoint=adjoints.atanh),
    Op("pow", binary, ufunc("power"), dtype=numeric, adjoint=adjoints.pow),
    Op("maximum", binary, ufunc("maximum"), dtype=same_dtype, adjoint=adjoints.chosen("greater")),
    Op("minimum", binary, ufunc("minimum"), dtype=same_dtype, adjoint=adjoints.chosen("less")),
    Op("mod", binary, _mod_block, dtype=numeric, attributes=("truncate",), adjoint=adjoints.mod),
    Op("prelu", counted(_prelu_signature, 2, 2), _prelu_block, 2.0, dtype=floating, adjoint=adjoints.prelu),
)


# -- functions on graph tensors ------------------------------------------------------------------------


add = binary_function("add", "a + b, cell by cell.")
sub = binary_function("sub", "a - b, cell by cell.")
mul = binary_function("mul", "a · b, cell by cell.")
div = binary_function("div", "a / b, cell by cell; integers round toward zero.")
relu = unary_function("relu", "max(x, 0), cell by cell.")
sigmoid = unary_function("sigmoid", "1 / (1 + exp(-x)), cell by cell.")
tanh = unary_function("tanh", "The hyperbolic tangent, cell by cell.")
exp = unary_function("exp", "The exponential, cell by cell.")
sqrt = unary_function("sqrt", "The square root, cell by cell.")
neg = unary_function("neg", "-x, cell by cell.")
abs = unary_function("abs", "The absolute value, cell by cell.")
sign = unary_function("sign", "-1, 0 or 1, as x is negative, zero or positive, cell by cell.")
log = unary_function("log", "The natural logarithm, cell by cell.")
log1p = unary_function("log1p", "log(1 + x), cell by cell, exact for small x too.")
expm1 = unary_function("expm1", "exp(x) - 1, cell by cell, exact for small x too.")
reciprocal = unary_function("reciprocal", "1 / x, cell by cell.")
floor = unary_function("floor", "The largest whole number that is not above x, cell by cell.")
ceil = unary_function("ceil", "The smallest whole number that is not below x, cell by cell.")
round = unary_function("round", "The nearest whole number, the even one of two, cell by cell.")
sin = unary_function("sin", "The sine, cell by cell.")
cos = unary_function("cos", "The cosine, cell by cell.")
tan = unary_function("tan", "The tangent, cell by cell.")
asin = unary_function("asin", "The inverse sine, cell by cell.")
acos = unary_function("acos", "The inverse cosine, cell by cell.")
atan = unary_function("atan", "The inverse tangent, cell by cell.")
sinh = unary_function("sinh", "The hyperbolic sine, cell by cell.")
cosh = unary_function("cosh", "The hyperbolic cosine, cell by cell.")
asinh = unary_function("asinh", "The inverse hyperbolic sine, cell by cell.")
acosh = unary_function("acosh", "The inverse hyperbolic cosine, cell by cell.")
atanh = unary_function("atanh", "The inverse hyperbolic tangent, cell by cell.")
pow = binary_function("pow", "a to the power of b, cell by cell.")
maximum = binary_function("maximum", "The larger of a and b, cell by cell; NaN where either is.")
minimum = binary_function("minimum", "The smaller of a and b, cell by cell; NaN where either is.")
prelu = binary_function("prelu", "a where it is positive, a · b elsewhere; the slope b broadcasts to a's shape.")


def mod(a: Tensor, b: Tensor, *, truncate: bool = False, name: str | None = None) -> Tensor:
    """What is left of a after division by b, cell by cell.

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
    return add_op("mod", a, b, name=name, truncate=bool(truncate))


def sum_n(*tensors: Tensor, name: str | None = None) -> Tensor:
    """The sum of one or more tensors, broadcast against each other, cell by cell."""
    if not tensors:
        raise ValueError("sum_n: no tensors given; give at least one")
    return add_op("sum_n", *tensors, name=name)


def leaky_relu(x: Tensor, alpha: float = 0.01, *, name: str | None = None) -> Tensor:
    """x where it is positive, alpha·x elsewhere."""
    return add_op("leaky_relu", x, name=name, alpha=float(alpha))


def clip(x: Tensor, min: float | None = None, max: float | None = None, *, name: str | None = None) -> Tensor:
    """x limited to [min, max]; a bound that is None or infinite does not limit.

    References
    ----------
    ONNX Clip.
    """
    low = None if min == float("-inf") else min
    high = None if max == float("inf") else max
    for bound in (low, high):
        if bound is not None and not isfinite(bound):
            raise ValueError(f"clip: min={min}, max={max} leave no number; give finite bounds, or None")
    return add_op("clip", x, name=name, min=low, max=high)
