"""The array API standard for tensors of graphs: functions that add operators and views, so a model reads as in NumPy.

``from tapestry_plan import array_api as xp``, or what ``x.__array_namespace__()`` returns. What differs from the
standard:

- ``x == y`` compares tensors as objects, since graphs keep them in dictionaries; `equal` compares their values.
- Nothing has values before a run: there is no ``bool(x)`` and no function whose shapes depend on values (``nonzero``,
  ``unique_values``, indexing by a computed mask).
- Where a tensor is made from nothing, the graph is its device: ``xp.zeros((2, 3), device=x.device)``.
- Two operands have one dtype, or one is a Python number, which is of that dtype; integers are divided by ``//``.
- There are no complex numbers; sorts are along whole axes, and not of NaN.
- Repeats, reshapes and tiles are views.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod as _prod
from typing import Any

import numpy as np
from numpy import bool, e, float32, float64, inf, int8, int16, int32, int64, nan, pi, uint8, uint16, uint32, uint64

from tapestry_plan.ir import Graph, Tensor
from tapestry_plan.ops.cells.choices import *
from tapestry_plan.ops.cells.elementwise import *
from tapestry_plan.ops.indexing import *
from tapestry_plan.ops.products.contractions import einsum
from tapestry_plan.ops.products.matrices import *
from tapestry_plan.ops.reductions.reductions import *
from tapestry_plan.ops.reductions.statistics import *
from tapestry_plan.ops.rows.scans import *
from tapestry_sets.limits import quote, take_array
from tapestry_sets.views import broadcast_arrays, repeat, roll, stack, tile
from tapestry_sets.views import concatenate as concat

newaxis = None
ENTRIES = "an array, nested lists of one length, or a number"

# -- cell by cell -----------------------------------------------------------------------------------------------


def positive(x: Tensor, /) -> Tensor:
    """x itself."""
    return x


def square(x: Tensor, /) -> Tensor:
    """x · x, cell by cell."""
    return x * x


def trunc(x: Tensor, /) -> Tensor:
    """x without its fraction, cell by cell."""
    return sign(x) * floor(abs(x))


def log2(x: Tensor, /) -> Tensor:
    """The logarithm to base 2, cell by cell."""
    return log(x) * (1 / float(np.log(2)))


def log10(x: Tensor, /) -> Tensor:
    """The logarithm to base 10, cell by cell."""
    return log(x) * (1 / float(np.log(10)))


def hypot(x1: Tensor, x2: Tensor, /) -> Tensor:
    """√(x1² + x2²), where no square overflows."""
    with x1._all_or_nothing():
        a, b = abs(x1), abs(x2)
        top = maximum(a, b)
        ratio = where(top > 0, minimum(a, b) / maximum(top, float(np.finfo(x1.dtype).tiny)), zeros_like(top))
        return top * sqrt(ratio * ratio + 1)


def count_nonzero(x: Tensor, /, *, axis: Axes = None, keepdims: Any = False) -> Tensor:
    """How many values along axes, by default all, are not zero."""
    return sum(x if x.dtype == "bool" else not_equal(x, 0), axis=axis, keepdims=keepdims)


def diff(x: Tensor, /, *, axis: int = -1, n: int = 1) -> Tensor:
    """The differences of neighbors along an axis, n times."""
    x = x.moveaxis(axis, -1)
    for _ in range(n):
        x = x[..., 1:] - x[..., :-1]
    return x.moveaxis(-1, axis)


def isfinite(x: Tensor, /) -> Tensor:
    """Whether x is neither infinite nor NaN, cell by cell."""
    return logical_not(logical_or(isnan(x), isinf(x)))


def logaddexp(x1: Tensor, x2: Tensor, /) -> Tensor:
    """log(exp(x1) + exp(x2)), where no exponential overflows."""
    with x1._all_or_nothing():
        top: Tensor = maximum(x1, x2)
        apart = minimum(x1, x2) - top
        apart = where(equal(x1, x2), zeros_like(apart), apart)  # also of two infinities
        return top + log1p(exp(apart))


def floor_divide(x1: Tensor, x2: Tensor | float, /) -> Tensor:
    """The quotient rounded down, cell by cell, as Python has it, beside `remainder`."""
    return x1 // x2


# -- matrices -------------------------------------------------------------------------------------------------


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
        raise ValueError(
            f"tensordot: axes {left} of shape {quote(x1.shape)} and {right} of {quote(x2.shape)} differ in extent"
        )
    kept1 = [a for a in range(x1.ndim) if a not in left]
    kept2 = [a for a in range(x2.ndim) if a not in right]
    shape = (*(x1.shape[a] for a in kept1), *(x2.shape[a] for a in kept2))
    inner = _prod(x1.shape[a] for a in left)
    one = x1.permute_dims((*kept1, *left)).reshape(-1 if inner else 0, inner)
    two = x2.permute_dims((*right, *kept2)).reshape(inner, -1 if inner else 0)
    return (one @ two).reshape(shape)


# -- views ----------------------------------------------------------------------------------------------------


matrix_transpose = Tensor.matrix_transpose
permute_dims = Tensor.permute_dims
broadcast_to = Tensor.broadcast_to
squeeze = Tensor.squeeze
flip = Tensor.flip
moveaxis = Tensor.moveaxis


def reshape(x: Tensor, /, shape: Sequence[int]) -> Tensor:
    """x in row-major order under another shape."""
    return x.reshape(tuple(shape))


def expand_dims(x: Tensor, /, *, axis: int | Sequence[int] = 0) -> Tensor:
    """x with a new axis of extent 1."""
    return x.expand_dims(axis)


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


# -- from nothing ---------------------------------------------------------------------------------------------


def asarray(obj: Any, /, *, dtype: Any = None, device: Graph | None = None) -> Tensor:
    """A constant of a graph with the values of an array, a list or a number; of a tensor, itself, cast if need be."""
    if isinstance(obj, Tensor):
        return obj if dtype is None else astype(obj, dtype)
    graph = _graph(device, "asarray")
    return graph.constant(graph._fresh("constant"), np.asarray(take_array(obj, "asarray: obj", ENTRIES), dtype))


def full(shape: int | Sequence[int], fill_value: float, *, dtype: Any = None, device: Graph | None = None) -> Tensor:
    """One value in a shape: a constant of one cell, broadcast."""
    extents = (shape,) if isinstance(shape, int) else tuple(shape)
    one = asarray(
        np.asarray(take_array(fill_value, "full: fill_value", "a number"), dtype), device=_graph(device, "full")
    )
    return one.broadcast_to(extents) if extents else one


def zeros(shape: int | Sequence[int], *, dtype: Any = float64, device: Graph | None = None) -> Tensor:
    """Zeros in a shape."""
    return full(shape, 0, dtype=dtype, device=device)


def ones(shape: int | Sequence[int], *, dtype: Any = float64, device: Graph | None = None) -> Tensor:
    """Ones in a shape."""
    return full(shape, 1, dtype=dtype, device=device)


empty = zeros  # nothing is left undefined


def arange(
    start: float, /, stop: float | None = None, step: float = 1, *, dtype: Any = None, device: Graph | None = None
) -> Tensor:
    """Numbers from start on, before stop, in steps."""
    begin, end = (0, start) if stop is None else (start, stop)
    return asarray(np.arange(begin, end, step, dtype=dtype), device=_graph(device, "arange"))


def linspace(
    start: float, stop: float, /, num: int, *, dtype: Any = None, device: Graph | None = None, endpoint: Any = True
) -> Tensor:
    """So many numbers at equal distances from start to stop."""
    return asarray(np.linspace(start, stop, num, endpoint, dtype=dtype), device=_graph(device, "linspace"))


def eye(
    n_rows: int, n_cols: int | None = None, /, *, k: int = 0, dtype: Any = float64, device: Graph | None = None
) -> Tensor:
    """Ones on a diagonal, zeros elsewhere."""
    return asarray(np.eye(n_rows, n_cols, k, dtype), device=_graph(device, "eye"))


def _graph(device: Graph | None, what: str) -> Graph:
    if not isinstance(device, Graph):
        raise TypeError(
            f"{what}: device is {quote(device)}; it must be the graph that gets the tensor, such as x.device"
        )
    return device


def tril(x: Tensor, /, *, k: int = 0) -> Tensor:
    """The last two axes' cells on and below a diagonal, zeros above."""
    return where(_triangle(x, k, "tril"), x, 0)


def triu(x: Tensor, /, *, k: int = 0) -> Tensor:
    """The last two axes' cells on and above a diagonal, zeros below."""
    return where(logical_not(_triangle(x, k - 1, "triu")), x, 0)


def _triangle(x: Tensor, k: int, what: str) -> Tensor:
    if x.ndim < 2:
        raise ValueError(f"{what}: x has shape {quote(x.shape)}; it needs 2 axes or more")
    rows, columns = x.shape[-2:]
    return asarray(np.tri(rows, columns, k, dtype=np.bool_), device=x.graph)


def meshgrid(*arrays: Tensor, indexing: str = "xy") -> list[Tensor]:
    """Vectors as the coordinates of a grid, each broadcast along the others: views."""
    if indexing not in ("xy", "ij"):
        raise ValueError(f"meshgrid: indexing is {quote(indexing)}; it is 'xy' or 'ij'")
    rank = len(arrays)
    order = [1, 0, *range(2, rank)] if indexing == "xy" and rank > 1 else list(range(rank))
    apart = [x.reshape([x.size if order[a] == k else 1 for a in range(rank)]) for k, x in enumerate(arrays)]
    return list(broadcast_arrays(*apart))


# -- in order -------------------------------------------------------------------------------------------------


def sort(x: Tensor, /, *, axis: int = -1, descending: Any = False, stable: Any = True) -> Tensor:
    """The values along an axis in order."""
    return top_k(x, x.shape[axis], axis, largest=descending)[0]


def argsort(x: Tensor, /, *, axis: int = -1, descending: Any = False, stable: Any = True) -> Tensor:
    """The places of the values along an axis in order; of equal ones the first comes first."""
    return top_k(x, x.shape[axis], axis, largest=descending)[1]


def searchsorted(x1: Tensor, x2: Tensor, /, *, side: str = "left") -> Tensor:
    """How many values of an ascending vector come before each value."""
    if side not in ("left", "right"):
        raise ValueError(f"searchsorted: side is {quote(side)}; it is 'left' or 'right'")
    before = less if side == "left" else less_equal
    return sum(before(x1, x2.expand_dims(x2.ndim)), axis=-1)


def isdtype(dtype: Any, kind: Any) -> Any:
    """Whether a dtype is of a kind, as NumPy says."""
    return np.isdtype(np.dtype(dtype), kind)


def can_cast(from_: Any, to: Any, /) -> Any:
    """Whether a dtype, or a tensor's, can be cast to another without loss, as NumPy says."""
    return np.can_cast(np.dtype(from_.dtype if isinstance(from_, Tensor) else from_), np.dtype(to))


def finfo(type: Any, /) -> Any:
    """Limits of a floating dtype."""
    return np.finfo(np.dtype(type.dtype if isinstance(type, Tensor) else type))


def iinfo(type: Any, /) -> Any:
    """Limits of an integer dtype."""
    return np.iinfo(np.dtype(type.dtype if isinstance(type, Tensor) else type))


def result_type(*arrays_and_dtypes: Any) -> np.dtype[Any]:
    """The dtype of operators on tensors, dtypes and numbers, as NumPy promotes them."""
    given = [np.dtype(x.dtype) if isinstance(x, Tensor) else x for x in arrays_and_dtypes]
    return np.result_type(*given)
