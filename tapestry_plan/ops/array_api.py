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

import builtins
from collections.abc import Callable, Sequence
from functools import wraps
from math import prod as _prod
from typing import Any, Literal, ParamSpec, TypeVar

import numpy as np
from numpy import bool, e, float32, float64, inf, int8, int16, int32, int64, nan, pi, uint8, uint16, uint32, uint64

from tapestry_plan.ir import Graph, Tensor, check_dtype
from tapestry_plan.ops.cells.bits import *
from tapestry_plan.ops.cells.bounds import *
from tapestry_plan.ops.cells.choices import *
from tapestry_plan.ops.cells.curves import *
from tapestry_plan.ops.cells.elementwise import *
from tapestry_plan.ops.indexing import *
from tapestry_plan.ops.operands import axis_of
from tapestry_plan.ops.products.contractions import einsum
from tapestry_plan.ops.products.matrices import *
from tapestry_plan.ops.reductions.reductions import *
from tapestry_plan.ops.reductions.statistics import *
from tapestry_plan.ops.rows.scans import *
from tapestry_sets.limits import as_ints, check_arguments, check_positive, quote, take_array, wrong_type
from tapestry_sets.views import broadcast_arrays, repeat, roll, stack, tile
from tapestry_sets.views import concatenate as concat

newaxis = None
ENTRIES = "an array, nested lists of one length, or a number"
P = ParamSpec("P")
R = TypeVar("R")


def _checked(function: Callable[P, R]) -> Callable[P, R]:
    """A function whose arguments are checked, and which leaves nothing in a graph where it is refused."""
    held = check_arguments(function)

    @wraps(function)
    def whole(*args: P.args, **kwargs: P.kwargs) -> R:
        known = next((one.graph for one in args if isinstance(one, Tensor)), kwargs.get("device"))
        if not isinstance(known, Graph):
            return held(*args, **kwargs)
        with known._all_or_nothing():
            return held(*args, **kwargs)

    return whole


def _dtype(dtype: Any, what: str) -> np.dtype[Any] | None:
    """A dtype, or that of a tensor or an array; None for the one that NumPy chooses."""
    given = dtype.dtype if isinstance(dtype, Tensor | np.ndarray | np.generic) else dtype
    return None if given is None else np.dtype(check_dtype(given, f"{what}: "))


def _cells(values: np.ndarray[Any, Any], dtype: np.dtype[Any] | None, what: str) -> np.ndarray[Any, Any]:
    """Values in a dtype, or as they are; no imaginary part is dropped."""
    if dtype is not None and values.dtype.kind == "c" and dtype.kind != "c":
        raise ValueError(f"{what} has dtype {values.dtype}, which {dtype} does not hold; give its real part")
    return values if dtype is None else values.astype(dtype, copy=False)


def _made(what: str, make: Callable[..., Any], *args: Any, **more: Any) -> Any:
    """What NumPy makes; an error of its own, of sizes beyond all memory, names the arguments that were given."""
    try:
        made = make(*args, **more)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"{what}: {quote(str(error))}; ask for fewer numbers, of a dtype that has them") from None
    if made.dtype.hasobject:
        raise ValueError(f"{what}: {quote(args)} are beyond 64 bits; give smaller numbers")
    return made


def _need_dtype(dtype: Any, what: str) -> np.dtype[Any]:
    """As `_dtype`, where one must be given."""
    found = _dtype(dtype, what)
    if found is None:
        raise wrong_type(None, "a dtype, a tensor or an array", what)
    return found


# -- cell by cell -----------------------------------------------------------------------------------------------


@_checked
def positive(x: Tensor, /) -> Tensor:
    """x itself."""
    return x


@_checked
def square(x: Tensor, /) -> Tensor:
    """x · x, cell by cell."""
    return x * x


@_checked
def trunc(x: Tensor, /) -> Tensor:
    """x without its fraction, cell by cell."""
    return sign(x) * floor(abs(x))


@_checked
def log2(x: Tensor, /) -> Tensor:
    """The logarithm to base 2, cell by cell."""
    return log(x) * (1 / float(np.log(2)))


@_checked
def log10(x: Tensor, /) -> Tensor:
    """The logarithm to base 10, cell by cell."""
    return log(x) * (1 / float(np.log(10)))


@_checked
def hypot(x1: Tensor, x2: Tensor, /) -> Tensor:
    """√(x1² + x2²), where no square overflows."""
    with x1._all_or_nothing():
        a, b = abs(x1), abs(x2)
        top = maximum(a, b)
        ratio = where(top > 0, minimum(a, b) / maximum(top, float(np.finfo(x1.dtype).tiny)), zeros_like(top))
        return top * sqrt(ratio * ratio + 1)


@_checked
def count_nonzero(x: Tensor, /, *, axis: Axes = None, keepdims: builtins.bool = False) -> Tensor:
    """How many values along axes, by default all, are not zero."""
    return sum(x if x.dtype == "bool" else not_equal(x, 0), axis=axis, keepdims=keepdims)


@_checked
def diff(x: Tensor, /, *, axis: int = -1, n: int = 1) -> Tensor:
    """The differences of neighbors along an axis, n times."""
    if n < 0:
        raise ValueError(f"diff: n is {n}; give how many times, an integer >= 0")
    at = axis_of(axis, x.ndim, "diff: ")
    if n >= x.shape[at] > 0:
        raise ValueError(f"diff: n is {quote(n)}, axis {at} has extent {x.shape[at]}; give less, or nothing is left")
    x = x.moveaxis(at, -1)
    for _ in range(n):
        x = x[..., 1:] - x[..., :-1]
    return x.moveaxis(-1, at)


@_checked
def isfinite(x: Tensor, /) -> Tensor:
    """Whether x is neither infinite nor NaN, cell by cell."""
    return logical_not(logical_or(isnan(x), isinf(x)))


@_checked
def logaddexp(x1: Tensor, x2: Tensor, /) -> Tensor:
    """log(exp(x1) + exp(x2)), where no exponential overflows."""
    with x1._all_or_nothing():
        top: Tensor = maximum(x1, x2)
        apart = minimum(x1, x2) - top
        apart = where(equal(x1, x2), zeros_like(apart), apart)  # also of two infinities
        return top + log1p(exp(apart))


@_checked
def floor_divide(x1: Tensor, x2: Tensor | float, /) -> Tensor:
    """The quotient rounded down, cell by cell, as Python has it, beside `remainder`."""
    return x1 // x2


# -- matrices -------------------------------------------------------------------------------------------------


@_checked
def vecdot(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
    """The sum of the products along an axis of both, the others broadcast."""
    return sum(x1.moveaxis(axis, -1) * x2.moveaxis(axis, -1), axis=-1)


@_checked
def tensordot(x1: Tensor, x2: Tensor, /, *, axes: int | tuple[Sequence[int], Sequence[int]] = 2) -> Tensor:
    """The sum of products over pairs of axes: the last of x1 and the first of x2, or those named."""
    if isinstance(axes, int):
        most = builtins.min(x1.ndim, x2.ndim)
        if not 0 <= axes <= most:
            raise ValueError(f"tensordot: axes is {quote(axes)}; give from 0 to {most}, or two rows of axes")
        left, right = list(range(x1.ndim - axes, x1.ndim)), list(range(axes))
    else:
        rows = zip((x1, x2), axes, strict=True)
        left, right = ([axis_of(a, x.ndim, "tensordot: axes: ") for a in row] for x, row in rows)
        if len(set(left)) < len(left) or len(set(right)) < len(right):
            raise ValueError(f"tensordot: axes is {quote(axes)}, which names an axis twice; name it once")
    if [x1.shape[a] for a in left] != [x2.shape[a] for a in right]:
        raise ValueError(
            f"tensordot: axes {left} of shape {quote(x1.shape)} and {right} of {quote(x2.shape)} differ in extent; "
            "what is summed over must be equal"
        )
    kept1 = [a for a in range(x1.ndim) if a not in left]
    kept2 = [a for a in range(x2.ndim) if a not in right]
    shape = (*(x1.shape[a] for a in kept1), *(x2.shape[a] for a in kept2))
    inner = _prod(x1.shape[a] for a in left)
    one = x1.permute_dims((*kept1, *left)).reshape(-1 if inner else 0, inner)
    two = x2.permute_dims((*right, *kept2)).reshape(inner, -1 if inner else 0)
    return (one @ two).reshape(shape)


# -- views ----------------------------------------------------------------------------------------------------


@_checked
def matrix_transpose(x: Tensor, /) -> Tensor:
    """x with its last two axes exchanged."""
    return x.matrix_transpose()


@_checked
def permute_dims(x: Tensor, /, axes: int | Sequence[int]) -> Tensor:
    """x with its axes in another order."""
    return x.permute_dims(axes)


@_checked
def broadcast_to(x: Tensor, /, shape: int | Sequence[int]) -> Tensor:
    """x repeated along axes of extent 1 and new ones, by NumPy's rules."""
    return x.broadcast_to((shape,) if isinstance(shape, int) else shape)


@_checked
def squeeze(x: Tensor, /, axis: int | Sequence[int] | None = None) -> Tensor:
    """x without axes of extent 1: all of them, or those named."""
    return x.squeeze(axis)


@_checked
def flip(x: Tensor, /, *, axis: int | Sequence[int] | None = None) -> Tensor:
    """x in the opposite order along axes, by default all."""
    return x.flip(axis)


@_checked
def moveaxis(x: Tensor, source: int | Sequence[int], destination: int | Sequence[int], /) -> Tensor:
    """x with some axes at other places."""
    return x.moveaxis(source, destination)


@_checked
def reshape(x: Tensor, /, shape: int | Sequence[int]) -> Tensor:
    """x in row-major order under another shape."""
    return x.reshape(shape)


@_checked
def expand_dims(x: Tensor, /, *, axis: int | Sequence[int] = 0) -> Tensor:
    """x with a new axis of extent 1."""
    return x.expand_dims(axis)


@_checked
def unstack(x: Tensor, /, *, axis: int = 0) -> tuple[Tensor, ...]:
    """x at each place of an axis."""
    return tuple(x.unstack(axis))


@_checked
def zeros_like(x: Tensor, /) -> Tensor:
    """Zeros of x's shape and dtype."""
    return full_like(x, 0)


@_checked
def ones_like(x: Tensor, /) -> Tensor:
    """Ones of x's shape and dtype."""
    return full_like(x, 1)


@_checked
def full_like(x: Tensor, /, fill_value: float | builtins.bool) -> Tensor:
    """One value in x's shape and dtype: a constant of one cell, broadcast."""
    is_truth = isinstance(fill_value, builtins.bool) and x.dtype != "bool"  # a fill is cast, as NumPy's is
    one = x._number("full_like", builtins.int(fill_value) if is_truth else fill_value)
    return one.broadcast_to(x.shape) if x.shape else one


# -- from nothing ---------------------------------------------------------------------------------------------


@_checked
def asarray(obj: Any, /, *, dtype: Any = None, device: Graph | None = None) -> Tensor:
    """A constant of a graph with the values of an array, a list or a number; of a tensor, itself, cast if need be."""
    if isinstance(obj, Tensor):
        return obj if dtype is None else astype(obj, dtype)
    graph = _graph(device, "asarray")
    found = take_array(obj, "asarray: obj", ENTRIES)
    return graph.constant(graph._fresh("constant"), _cells(found, _dtype(dtype, "asarray"), "asarray: obj"))


@_checked
def full(shape: int | Sequence[int], fill_value: Any, *, dtype: Any = None, device: Graph | None = None) -> Tensor:
    """One value in a shape: a constant of one cell, broadcast."""
    extents = (shape,) if isinstance(shape, int) else as_ints(shape, "full: shape")
    value = take_array(fill_value, "full: fill_value", "a number")
    if value.ndim:
        raise ValueError(f"full: fill_value is an array of shape {quote(value.shape)}; give a number")
    one = asarray(_cells(value, _dtype(dtype, "full"), "full: fill_value"), device=_graph(device, "full"))
    return one.broadcast_to(extents) if extents else one


@_checked
def zeros(shape: int | Sequence[int], *, dtype: Any = float64, device: Graph | None = None) -> Tensor:
    """Zeros in a shape."""
    return full(shape, 0, dtype=dtype, device=device)


@_checked
def ones(shape: int | Sequence[int], *, dtype: Any = float64, device: Graph | None = None) -> Tensor:
    """Ones in a shape."""
    return full(shape, 1, dtype=dtype, device=device)


empty = zeros  # nothing is left undefined


@_checked
def arange(
    start: float, /, stop: float | None = None, step: float = 1, *, dtype: Any = None, device: Graph | None = None
) -> Tensor:
    """Numbers from start on, before stop, in steps."""
    begin, end = (0, start) if stop is None else (start, stop)
    if step == 0 or not np.isfinite([float(begin), float(end), float(step)]).all():
        raise ValueError(f"arange: start={begin}, stop={end}, step={step}; give finite numbers, and steps other than 0")
    return asarray(
        _made("arange: start, stop, step, dtype", np.arange, begin, end, step, dtype=_dtype(dtype, "arange")),
        device=_graph(device, "arange"),
    )


@_checked
def linspace(
    start: float,
    stop: float,
    /,
    num: int,
    *,
    dtype: Any = None,
    device: Graph | None = None,
    endpoint: builtins.bool = True,
) -> Tensor:
    """So many numbers at equal distances from start to stop."""
    if num < 1:
        raise ValueError(f"linspace: num is {num}; give how many numbers, an integer >= 1")
    if not np.isfinite([float(start), float(stop)]).all():
        raise ValueError(f"linspace: start={start}, stop={stop}; give finite numbers")
    found = _made(
        "linspace: start, stop, num", np.linspace, start, stop, num, endpoint, dtype=_dtype(dtype, "linspace")
    )
    return asarray(found, device=_graph(device, "linspace"))


@_checked
def eye(
    n_rows: int, n_cols: int | None = None, /, *, k: int = 0, dtype: Any = float64, device: Graph | None = None
) -> Tensor:
    """Ones on a diagonal, zeros elsewhere."""
    rows = check_positive(n_rows, "eye: n_rows")
    columns = rows if n_cols is None else check_positive(n_cols, "eye: n_cols")
    return asarray(
        _made("eye: n_rows, n_cols, k", np.eye, rows, columns, k, _need_dtype(dtype, "eye: dtype")),
        device=_graph(device, "eye"),
    )


def _graph(device: Graph | None, what: str) -> Graph:
    if not isinstance(device, Graph):
        raise TypeError(
            f"{what}: device is {quote(device)}; it must be the graph that gets the tensor, such as x.device"
        )
    return device


@_checked
def tril(x: Tensor, /, *, k: int = 0) -> Tensor:
    """The last two axes' cells on and below a diagonal, zeros above."""
    return where(_triangle(x, k, "tril"), x, 0)


@_checked
def triu(x: Tensor, /, *, k: int = 0) -> Tensor:
    """The last two axes' cells on and above a diagonal, zeros below."""
    return where(logical_not(_triangle(x, k - 1, "triu")), x, 0)


def _triangle(x: Tensor, k: int, what: str) -> Tensor:
    if x.ndim < 2:
        raise ValueError(f"{what}: x has shape {quote(x.shape)}; it needs 2 axes or more")
    rows, columns = x.shape[-2:]
    within = builtins.max(-rows, builtins.min(k, columns))  # farther ones are all or none of the cells
    return asarray(np.tri(rows, columns, within, dtype=np.bool_), device=x.graph)


@_checked
def meshgrid(*arrays: Tensor, indexing: Literal["xy", "ij"] = "xy") -> list[Tensor]:
    """Vectors as the coordinates of a grid, each broadcast along the others: views."""
    rank = len(arrays)
    order = [1, 0, *range(2, rank)] if indexing == "xy" and rank > 1 else list(range(rank))
    apart = [x.reshape([x.size if order[a] == k else 1 for a in range(rank)]) for k, x in enumerate(arrays)]
    return list(broadcast_arrays(*apart))


# -- in order -------------------------------------------------------------------------------------------------


@_checked
def sort(x: Tensor, /, *, axis: int = -1, descending: builtins.bool = False, stable: builtins.bool = True) -> Tensor:
    """The values along an axis in order."""
    return top_k(x, x.shape[axis_of(axis, x.ndim, "sort: ")], axis, largest=descending)[0]


@_checked
def argsort(x: Tensor, /, *, axis: int = -1, descending: builtins.bool = False, stable: builtins.bool = True) -> Tensor:
    """The places of the values along an axis in order; of equal ones the first comes first."""
    return top_k(x, x.shape[axis_of(axis, x.ndim, "argsort: ")], axis, largest=descending)[1]


@_checked
def searchsorted(x1: Tensor, x2: Tensor, /, *, side: Literal["left", "right"] = "left") -> Tensor:
    """How many values of an ascending vector come before each value."""
    if x1.ndim != 1:
        raise ValueError(f"searchsorted: x1 has shape {quote(x1.shape)}; give a vector")
    before = less if side == "left" else less_equal
    return sum(before(x1, x2.expand_dims(x2.ndim)), axis=-1)


def isdtype(dtype: Any, kind: Any) -> Any:
    """Whether a dtype is of a kind, as NumPy says."""
    try:
        return np.isdtype(_need_dtype(dtype, "isdtype: dtype"), kind)
    except (TypeError, ValueError) as error:
        raise TypeError(f"isdtype: kind is {quote(kind)}: {quote(str(error))}") from None


def can_cast(from_: Any, to: Any, /) -> Any:
    """Whether a dtype, or a tensor's, can be cast to another without loss, as NumPy says."""
    return np.can_cast(_need_dtype(from_, "can_cast: from_"), _need_dtype(to, "can_cast: to"))


def finfo(type: Any, /) -> Any:
    """Limits of a floating dtype."""
    found = _need_dtype(type, "finfo: type")
    if found.kind != "f":
        raise ValueError(f"finfo: type is {found}; give a floating dtype")
    return np.finfo(found)


def iinfo(type: Any, /) -> Any:
    """Limits of an integer dtype."""
    found = _need_dtype(type, "iinfo: type")
    if found.kind not in "iu":
        raise ValueError(f"iinfo: type is {found}; give a dtype of integers")
    return np.iinfo(found)


def result_type(*arrays_and_dtypes: Any) -> np.dtype[Any]:
    """The dtype of operators on tensors, dtypes and numbers, as NumPy promotes them."""
    given = [np.dtype(x.dtype) if isinstance(x, Tensor) else x for x in arrays_and_dtypes]
    try:
        return np.result_type(*given)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"result_type: arrays_and_dtypes are {quote(given)}: {quote(str(error))}; give tensors, dtypes and numbers"
        ) from None
