"""Signs, bounds and whole numbers, cell by cell."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tapestry_plan.autodiff import adjoints
from tapestry_plan.ir import Attrs, Tensor
from tapestry_plan.ops.declaration import add_op, operator
from tapestry_plan.ops.operands import floating, numeric, of_kinds, same_dtype, ufunc, writes
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


def _clip(xp: Any, out: Any, x: Any, min: float | None = None, max: float | None = None) -> None:
    if min is None and max is None:
        out[...] = x
    if min is not None:
        x = xp.maximum(x, out.dtype.type(min), out=out)
    if max is not None:
        xp.minimum(x, out.dtype.type(max), out=out)


@operator(block=ufunc("negative"), dtype=of_kinds("if", "it has no negative numbers"), adjoint=adjoints.negative)
def negative(x: Tensor, *, name: str | None = None) -> Tensor:
    """-x, cell by cell.

    Parameters
    ----------
    x : Tensor of a signed dtype of numbers

    Returns
    -------
    Tensor of x's shape and dtype

    Raises
    ------
    ValueError
        For a dtype without negative numbers.

    Examples
    --------
    >>> from tapestry_exec import evaluate
    >>> from tapestry_plan import Graph, ops
    >>> g = Graph()
    >>> _ = g.output(ops.negative(g.constant("x", [-1.5, 2.0])), "y")
    >>> evaluate(g, {})["y"].tolist()
    [1.5, -2.0]

    References
    ----------
    ONNX Neg; Array API negative.
    """


@operator(block=ufunc("absolute"), dtype=numeric, adjoint=adjoints.slope(lambda x, y, op: op("sign", x)))
def abs(x: Tensor, *, name: str | None = None) -> Tensor:
    """The absolute value, cell by cell.

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
    >>> _ = g.output(ops.abs(g.constant("x", [-1.5, 2.0])), "y")
    >>> evaluate(g, {})["y"].tolist()
    [1.5, 2.0]

    References
    ----------
    ONNX Abs; Array API abs.
    """


@operator(block=ufunc("sign"), dtype=numeric, adjoint=adjoints.none)
def sign(x: Tensor, *, name: str | None = None) -> Tensor:
    """-1, 0 or 1, as x is negative, zero or positive, cell by cell.

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
    >>> _ = g.output(ops.sign(g.constant("x", [-1.5, 0.0, 2.0])), "y")
    >>> evaluate(g, {})["y"].tolist()
    [-1.0, 0.0, 1.0]

    References
    ----------
    ONNX Sign; Array API sign.
    """


@operator(block=ufunc("floor"), dtype=floating, adjoint=adjoints.none)
def floor(x: Tensor, *, name: str | None = None) -> Tensor:
    """The largest whole number that is not above x, cell by cell.

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
    >>> _ = g.output(ops.floor(g.constant("x", [-1.5, 2.7])), "y")
    >>> evaluate(g, {})["y"].tolist()
    [-2.0, 2.0]

    References
    ----------
    ONNX Floor; Array API floor.
    """


@operator(block=ufunc("ceil"), dtype=floating, adjoint=adjoints.none)
def ceil(x: Tensor, *, name: str | None = None) -> Tensor:
    """The smallest whole number that is not below x, cell by cell.

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
    >>> _ = g.output(ops.ceil(g.constant("x", [-1.5, 2.2])), "y")
    >>> evaluate(g, {})["y"].tolist()
    [-1.0, 3.0]

    References
    ----------
    ONNX Ceil; Array API ceil.
    """


@operator(block=ufunc("rint"), dtype=floating, adjoint=adjoints.none)
def round(x: Tensor, *, name: str | None = None) -> Tensor:
    """The nearest whole number, the even one of two, cell by cell.

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
    >>> _ = g.output(ops.round(g.constant("x", [0.5, 1.5, 2.5])), "y")
    >>> evaluate(g, {})["y"].tolist()
    [0.0, 2.0, 2.0]

    References
    ----------
    ONNX Round; Array API round.
    """


@operator(block=ufunc("maximum"), dtype=same_dtype, adjoint=adjoints.chosen("greater"))
def maximum(a: Tensor | float, b: Tensor | float, *, name: str | None = None) -> Tensor:
    """The larger of a and b, cell by cell; NaN where either is.

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
    >>> _ = g.output(ops.maximum(g.constant("a", [1.0, 5.0]), 3), "y")
    >>> evaluate(g, {})["y"].tolist()
    [3.0, 5.0]

    References
    ----------
    ONNX Max; Array API maximum.
    """


@operator(block=ufunc("minimum"), dtype=same_dtype, adjoint=adjoints.chosen("less"))
def minimum(a: Tensor | float, b: Tensor | float, *, name: str | None = None) -> Tensor:
    """The smaller of a and b, cell by cell; NaN where either is.

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
    >>> _ = g.output(ops.minimum(g.constant("a", [1.0, 5.0]), 3), "y")
    >>> evaluate(g, {})["y"].tolist()
    [1.0, 3.0]

    References
    ----------
    ONNX Min; Array API minimum.
    """


@operator(block=writes(_clip, in_place=True), dtype=_bounded, adjoint=adjoints.clip)
def clip(x: Tensor, min: float | None = None, max: float | None = None, *, name: str | None = None) -> Tensor:
    """x limited to [min, max]; a bound that is None or infinite does not limit.

    Parameters
    ----------
    x : Tensor
    min, max : float, optional
        Numbers of x's dtype.

    Returns
    -------
    Tensor of x's shape and dtype

    Raises
    ------
    ValueError
        For bounds that leave no number, or are none of the dtype.

    Examples
    --------
    >>> from tapestry_exec import evaluate
    >>> from tapestry_plan import Graph, ops
    >>> g = Graph()
    >>> _ = g.output(ops.clip(g.constant("x", [-5.0, 0.5, 5.0]), -1, 1), "y")
    >>> evaluate(g, {})["y"].tolist()
    [-1.0, 0.5, 1.0]

    References
    ----------
    ONNX Clip; Array API clip.
    """
    low = None if min == float("-inf") else min
    high = None if max == float("inf") else max
    return add_op(clip.op, x, name=name, min=low, max=high)
