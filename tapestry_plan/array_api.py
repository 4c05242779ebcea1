"""The array API standard for tensors of graphs: functions that add operators and views, so a model reads as in NumPy.

``import tapestry_plan.array_api as xp``, or what ``x.__array_namespace__()`` returns. What differs from the standard:

- ``x == y`` compares tensors as objects, since graphs keep them in dictionaries; `equal` compares their values.
- Nothing has values before a run: there is no ``bool(x)``, no ``asarray`` of lists (`Graph.constant` takes arrays) and
  no function whose shapes depend on values (``nonzero``, ``unique_values``, indexing by a computed mask).
- Two operands have one dtype, or one is a Python number.
- Repeats, reshapes and tiles are views.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod as _prod
from typing import Any

import numpy as np
from numpy import (
    bool,
    e,
    float32,
    float64,
    inf,
    int8,
    int16,
    int32,
    int64,
    nan,
    newaxis,
    pi,
    uint8,
    uint16,
    uint32,
    uint64,
)

from tapestry_plan import ops as _ops
from tapestry_plan import statistics as _statistics
from tapestry_plan.graph import Tensor
from tapestry_plan.ops import (
    abs,
    acos,
    acosh,
    asin,
    asinh,
    atan,
    atanh,
    ceil,
    cos,
    cosh,
    exp,
    expm1,
    floor,
    isinf,
    isnan,
    log,
    log1p,
    matmul,
    reciprocal,
    round,
    sign,
    sin,
    sinh,
    sqrt,
    tan,
    tanh,
    where,
)
from tapestry_plan.statistics import argmax, argmin
from tapestry_sets import broadcast_arrays, repeat, roll, stack, tile
from tapestry_sets import concatenate as concat

Axes = int | Sequence[int] | None


# -- two operands, one of which may be a number ---------------------------------------------------------------


def _both(op: str) -> Any:
    def apply(x1: Any, x2: Any, /) -> Any:
        if isinstance(x1, Tensor):
            return x1._with(op, x2)
        if isinstance(x2, Tensor):
            return x2._with(op, x1, swapped=True)
        raise TypeError(f"{apply.__name__}: {x1!r} and {x2!r} are no tensors; give one at least")

    return apply


def _named(name: str, op: str, doc: str) -> Any:
    made = _both(op)
    made.__name__ = made.__qualname__ = name
    made.__doc__ = doc
    return made


add = _named("add", "add", "x1 + x2, cell by cell.")
subtract = _named("subtract", "sub", "x1 − x2, cell by cell.")
multiply = _named("multiply", "mul", "x1 · x2, cell by cell.")
divide = _named("divide", "div", "x1 / x2, cell by cell; of floating numbers.")
pow = _named("pow", "pow", "x1 to the power of x2, cell by cell.")
remainder = _named("remainder", "mod", "The remainder of x1 / x2, with the sign of x2.")
maximum = _named("maximum", "maximum", "The larger of x1 and x2, cell by cell.")
minimum = _named("minimum", "minimum", "The smaller of x1 and x2, cell by cell.")
equal = _named("equal", "equal", "Whether x1 = x2, cell by cell.")
not_equal = _named("not_equal", "not_equal", "Whether x1 ≠ x2, cell by cell.")
less = _named("less", "less", "Whether x1 < x2, cell by cell.")
less_equal = _named("less_equal", "less_equal", "Whether x1 ≤ x2, cell by cell.")
greater = _named("greater", "greater", "Whether x1 > x2, cell by cell.")
greater_equal = _named("greater_equal", "greater_equal", "Whether x1 ≥ x2, cell by cell.")
logical_and = _named("logical_and", "logical_and", "Whether x1 and x2 are both true, cell by cell.")
logical_or = _named("logical_or", "logical_or", "Whether x1 or x2 is true, cell by cell.")
logical_xor = _named("logical_xor", "logical_xor", "Whether just one of x1 and x2 is true, cell by cell.")
bitwise_and = _named("bitwise_and", "bitwise_and", "The bits that x1 and x2 both have, cell by cell.")
bitwise_or = _named("bitwise_or", "bitwise_or", "The bits that x1 or x2 has, cell by cell.")
bitwise_xor = _named("bitwise_xor", "bitwise_xor", "The bits that just one of x1 and x2 has, cell by cell.")
bitwise_left_shift = _named("bitwise_left_shift", "shift_left", "The bits of x1 moved up by x2 places.")
bitwise_right_shift = _named("bitwise_right_shift", "shift_right", "The bits of x1 moved down by x2 places.")
bitwise_invert = _ops.bitwise_not
logical_not = _ops.logical_not
negative = _ops.neg


def positive(x: Tensor, /) -> Tensor:
    """x itself."""
    return x


def square(x: Tensor, /) -> Tensor:
    """x · x, cell by cell."""
    return x * x


def isfinite(x: Tensor, /) -> Tensor:
    """Whether x is neither infinite nor NaN, cell by cell."""
    return _ops.logical_not(_ops.logical_or(_ops.isnan(x), _ops.isinf(x)))


def clip(x: Tensor, /, min: float | None = None, max: float | None = None) -> Tensor:
    """x limited to [min, max]."""
    return _ops.clip(x, min, max)


def logaddexp(x1: Tensor, x2: Tensor, /) -> Tensor:
    """log(exp(x1) + exp(x2)), where no exponential overflows."""
    top: Tensor = maximum(x1, x2)
    return top + _ops.log1p(_ops.exp(minimum(x1, x2) - top))


def floor_divide(x1: Tensor, x2: Tensor | float, /) -> Tensor:
    """⌊x1 / x2⌋, cell by cell, of floating numbers."""
    made: Tensor = _ops.floor(divide(x1, x2))
    return made


# -- reductions -----------------------------------------------------------------------------------------------


def sum(x: Tensor, /, *, axis: Axes = None, keepdims: Any = False) -> Tensor:
    """The sum over axes, by default all."""
    return _ops.reduce_sum(x, axis, keepdims=keepdims)


def prod(x: Tensor, /, *, axis: Axes = None, keepdims: Any = False) -> Tensor:
    """The product over axes, by default all."""
    return _ops.reduce_prod(x, axis, keepdims=keepdims)


def mean(x: Tensor, /, *, axis: Axes = None, keepdims: Any = False) -> Tensor:
    """The mean over axes, by default all."""
    return _ops.reduce_mean(x, axis, keepdims=keepdims)


def max(x: Tensor, /, *, axis: Axes = None, keepdims: Any = False) -> Tensor:
    """The largest value over axes, by default all."""
    return _ops.reduce_max(x, axis, keepdims=keepdims)


def min(x: Tensor, /, *, axis: Axes = None, keepdims: Any = False) -> Tensor:
    """The smallest value over axes, by default all."""
    return _ops.reduce_min(x, axis, keepdims=keepdims)


def var(x: Tensor, /, *, axis: Axes = None, correction: float = 0.0, keepdims: Any = False) -> Tensor:
    """The variance over axes, by default all."""
    return _statistics.reduce_variance(x, axis, correction=correction, keepdims=keepdims)


def std(x: Tensor, /, *, axis: Axes = None, correction: float = 0.0, keepdims: Any = False) -> Tensor:
    """The standard deviation over axes, by default all."""
    return _statistics.reduce_std(x, axis, correction=correction, keepdims=keepdims)


def any(x: Tensor, /, *, axis: Axes = None, keepdims: Any = False) -> Tensor:
    """Whether some value along axes is true."""
    return _ops.reduce_any(x, axis, keepdims=keepdims)


def all(x: Tensor, /, *, axis: Axes = None, keepdims: Any = False) -> Tensor:
    """Whether every value along axes is true."""
    return _ops.reduce_all(x, axis, keepdims=keepdims)


def cumulative_sum(x: Tensor, /, *, axis: int | None = None) -> Tensor:
    """The sums of the values up to each along an axis, which may be left out of a vector."""
    if axis is None and x.ndim != 1:
        raise ValueError(f"cumulative_sum: x has shape {x.shape}; name the axis")
    return _ops.cumsum(x, axis or 0)


# -- matrices -------------------------------------------------------------------------------------------------


def matrix_transpose(x: Tensor, /) -> Tensor:
    """x with its last two axes exchanged."""
    return x.mT


def vecdot(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
    """The sum of the products along an axis of both, the others broadcast."""
    return sum(x1.moveaxis(axis, -1) * x2.moveaxis(axis, -1), axis=-1)


def tensordot(x1: Tensor, x2: Tensor, /, *, axes: int | tuple[Sequence[int], Sequence[int]] = 2) -> Tensor:
    """The sum of products over pairs of axes: the last of x1 and the first of x2, or those named."""
    if isinstance(axes, int):
        left, right = list(range(x1.ndim - axes, x1.ndim)), list(range(axes))
    else:
        left, right = ([a % x.ndim for a in given] for a, x, given in ((0, x1, axes[0]), (1, x2, axes[1])))
    if [x1.shape[a] for a in left] != [x2.shape[a] for a in right]:
        raise ValueError(f"tensordot: axes {left} of shape {x1.shape} and {right} of {x2.shape} differ in extent")
    kept1 = [a for a in range(x1.ndim) if a not in left]
    kept2 = [a for a in range(x2.ndim) if a not in right]
    shape = (*(x1.shape[a] for a in kept1), *(x2.shape[a] for a in kept2))
    inner = _prod(x1.shape[a] for a in left)
    one = x1.permute_dims((*kept1, *left)).reshape(-1 if inner else 0, inner)
    two = x2.permute_dims((*right, *kept2)).reshape(inner, -1 if inner else 0)
    return (one @ two).reshape(shape)


# -- views ----------------------------------------------------------------------------------------------------


def astype(x: Tensor, dtype: Any, /) -> Tensor:
    """x converted to another dtype."""
    return _ops.cast(x, np.dtype(dtype).name)


def reshape(x: Tensor, /, shape: Sequence[int]) -> Tensor:
    """x in row-major order under another shape."""
    return x.reshape(tuple(shape))


def permute_dims(x: Tensor, /, axes: Sequence[int]) -> Tensor:
    """x with its axes in another order."""
    return x.permute_dims(axes)


def broadcast_to(x: Tensor, /, shape: Sequence[int]) -> Tensor:
    """x repeated to a shape."""
    return x.broadcast_to(shape)


def expand_dims(x: Tensor, /, *, axis: int | Sequence[int] = 0) -> Tensor:
    """x with a new axis of extent 1."""
    return x.expand_dims(axis)


def squeeze(x: Tensor, /, axis: int | Sequence[int]) -> Tensor:
    """x without axes of extent 1."""
    return x.squeeze(axis)


def flip(x: Tensor, /, *, axis: Axes = None) -> Tensor:
    """x with axes reversed, by default all."""
    return x.flip(axis)


def moveaxis(x: Tensor, source: int | Sequence[int], destination: int | Sequence[int], /) -> Tensor:
    """x with axes moved to other places."""
    return x.moveaxis(source, destination)


def take(x: Tensor, indices: Any, /, *, axis: int | None = None) -> Tensor:
    """x at indices along an axis: a view for known ones, an operator for a tensor of them."""
    if isinstance(indices, Tensor):
        return _ops.gather(x, indices, axis or 0)
    return x.take(indices, axis)


def unstack(x: Tensor, /, *, axis: int = 0) -> tuple[Tensor, ...]:
    """x at each place of an axis."""
    return tuple(x.unstack(axis))


def zeros_like(x: Tensor, /) -> Tensor:
    """Zeros of x's shape and dtype."""
    return full_like(x, 0)


def ones_like(x: Tensor, /) -> Tensor:
    """Ones of x's shape and dtype."""
    return full_like(x, 1)


def full_like(x: Tensor, /, fill_value: float) -> Tensor:
    """One value in x's shape and dtype: a constant of one cell, broadcast."""
    one = x.graph.constant(x.graph._fresh("number"), np.array(fill_value, x.dtype))
    return one.broadcast_to(x.shape) if x.shape else one


def result_type(*arrays_and_dtypes: Any) -> np.dtype[Any]:
    """The dtype of operators on tensors, dtypes and numbers, as NumPy promotes them."""
    given = [np.dtype(x.dtype) if isinstance(x, Tensor) else x for x in arrays_and_dtypes]
    return np.result_type(*given)


__all__ = [
    "abs",
    "acos",
    "acosh",
    "add",
    "all",
    "any",
    "argmax",
    "argmin",
    "asin",
    "asinh",
    "astype",
    "atan",
    "atanh",
    "bitwise_and",
    "bitwise_invert",
    "bitwise_left_shift",
    "bitwise_or",
    "bitwise_right_shift",
    "bitwise_xor",
    "bool",
    "broadcast_arrays",
    "broadcast_to",
    "ceil",
    "clip",
    "concat",
    "cos",
    "cosh",
    "cumulative_sum",
    "divide",
    "e",
    "equal",
    "exp",
    "expand_dims",
    "expm1",
    "flip",
    "float32",
    "float64",
    "floor",
    "floor_divide",
    "full_like",
    "greater",
    "greater_equal",
    "inf",
    "int8",
    "int16",
    "int32",
    "int64",
    "isfinite",
    "isinf",
    "isnan",
    "less",
    "less_equal",
    "log",
    "log1p",
    "logaddexp",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "matmul",
    "matrix_transpose",
    "max",
    "maximum",
    "mean",
    "min",
    "minimum",
    "moveaxis",
    "multiply",
    "nan",
    "negative",
    "newaxis",
    "not_equal",
    "ones_like",
    "permute_dims",
    "pi",
    "positive",
    "pow",
    "prod",
    "reciprocal",
    "remainder",
    "repeat",
    "reshape",
    "result_type",
    "roll",
    "round",
    "sign",
    "sin",
    "sinh",
    "sqrt",
    "square",
    "squeeze",
    "stack",
    "std",
    "subtract",
    "sum",
    "take",
    "tan",
    "tanh",
    "tensordot",
    "tile",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "unstack",
    "var",
    "vecdot",
    "where",
    "zeros_like",
]
