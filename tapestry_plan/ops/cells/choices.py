"""Comparisons, choices by truth values, and changes of dtype, cell by cell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tapestry_plan.autodiff import adjoints
from tapestry_plan.ir import SHORT_DTYPES, Attrs, Tensor, begin_as
from tapestry_plan.ops.declaration import add_op, operator
from tapestry_plan.ops.operands import named_dtype, of_kinds, to_truth, ufunc, writes


def _chosen(dtypes: Sequence[str], attrs: Attrs) -> tuple[str, ...]:
    """A truth value chooses between two operands of one dtype."""
    if dtypes[0] != "bool":
        raise ValueError(
            f"operand 0 is {dtypes[0]}, but a choice is made by truth values; compare it or cast it to bool"
        )
    if dtypes[1] != dtypes[2]:
        raise ValueError(f"operand 2 is {dtypes[2]}, operand 1 is {dtypes[1]}; cast them to one dtype")
    return (dtypes[1],)


FEW_BITS = frozenset({"float4_e2m1fn", "int2", "int4", "uint2", "uint4"})
"""Dtypes each of whose numbers has a byte, and needs less."""

_floating_truth = of_kinds("f", "only floating numbers may be infinite or none", "bool")


def _astype_dtype(dtypes: Sequence[str], attrs: Attrs) -> tuple[str, ...]:
    if "dtype" not in attrs:
        raise ValueError("the attribute dtype is missing; give the dtype to cast to")
    if np.dtype(dtypes[0]).kind not in "fiub" and dtypes[0] not in SHORT_DTYPES:
        raise ValueError(f"operand 0 is {dtypes[0]}; casts are between real numbers, integers and truth values")
    return (named_dtype(attrs["dtype"]),)


def _bitcast_dtype(dtypes: Sequence[str], attrs: Attrs) -> tuple[str, ...]:
    (made,) = _astype_dtype(dtypes, attrs)
    for name in (dtypes[0], made):
        if name in FEW_BITS:
            raise ValueError(f"{name} has fewer bits than its bytes; bits of whole bytes are read as others: cast it")
    own, other = (8 * np.dtype(name).itemsize for name in (dtypes[0], made))
    if own != other:
        raise ValueError(f"operand 0 is {dtypes[0]}, of {own} bits, dtype is {made}, of {other}: give one of as many")
    return (made,)


def _where(xp: Any, out: Any, condition: Any, a: Any, b: Any) -> None:
    begin_as(xp, out, b)
    xp.copyto(out, a, where=condition)


def _astype(xp: Any, out: Any, x: Any, dtype: str) -> None:
    out[...] = x


def _bitcast(xp: Any, out: Any, x: Any, dtype: str) -> None:
    out[...] = x.view(out.dtype)


@operator(block=ufunc("equal"), dtype=to_truth, adjoint=adjoints.none)
def equal(a: Tensor | float, b: Tensor | float, *, name: str | None = None) -> Tensor:
    """Whether a = b, cell by cell.

    Parameters
    ----------
    a, b : Tensor, or one of them a number
        Of one dtype; they broadcast against each other.

    Returns
    -------
    Tensor of truth values, of the broadcast shape

    Raises
    ------
    ValueError
        For operands of two dtypes, or shapes that do not broadcast.

    Examples
    --------
    >>> from tapestry_exec import evaluate
    >>> from tapestry_plan import Graph, ops
    >>> g = Graph()
    >>> _ = g.output(ops.equal(g.constant("a", [1, 2, 3]), 2), "y")
    >>> evaluate(g, {})["y"].tolist()
    [False, True, False]

    References
    ----------
    ONNX Equal; Array API equal.
    """


@operator(block=ufunc("not_equal"), dtype=to_truth, adjoint=adjoints.none)
def not_equal(a: Tensor | float, b: Tensor | float, *, name: str | None = None) -> Tensor:
    """Whether a ≠ b, cell by cell.

    Parameters
    ----------
    a, b : Tensor, or one of them a number
        Of one dtype; they broadcast against each other.

    Returns
    -------
    Tensor of truth values, of the broadcast shape

    Raises
    ------
    ValueError
        For operands of two dtypes, or shapes that do not broadcast.

    Examples
    --------
    >>> from tapestry_exec import evaluate
    >>> from tapestry_plan import Graph, ops
    >>> g = Graph()
    >>> _ = g.output(ops.not_equal(g.constant("a", [1, 2, 3]), 2), "y")
    >>> evaluate(g, {})["y"].tolist()
    [True, False, True]

    References
    ----------
    Array API not_equal.
    """


@operator(block=ufunc("less"), dtype=to_truth, adjoint=adjoints.none)
def less(a: Tensor | float, b: Tensor | float, *, name: str | None = None) -> Tensor:
    """Whether a < b, cell by cell.

    Parameters
    ----------
    a, b : Tensor, or one of them a number
        Of one dtype; they broadcast against each other.

    Returns
    -------
    Tensor of truth values, of the broadcast shape

    Raises
    ------
    ValueError
        For operands of two dtypes, or shapes that do not broadcast.

    Examples
    --------
    >>> from tapestry_exec import evaluate
    >>> from tapestry_plan import Graph, ops
    >>> g = Graph()
    >>> _ = g.output(ops.less(g.constant("a", [1, 2, 3]), 2), "y")
    >>> evaluate(g, {})["y"].tolist()
    [True, False, False]

    References
    ----------
    ONNX Less; Array API less.
    """


@operator(block=ufunc("less_equal"), dtype=to_truth, adjoint=adjoints.none)
def less_equal(a: Tensor | float, b: Tensor | float, *, name: str | None = None) -> Tensor:
    """Whether a ≤ b, cell by cell.

    Parameters
    ----------
    a, b : Tensor, or one of them a number
        Of one dtype; they broadcast against each other.

    Returns
    -------
    Tensor of truth values, of the broadcast shape

    Raises
    ------
    ValueError
        For operands of two dtypes, or shapes that do not broadcast.

    Examples
    --------
    >>> from tapestry_exec import evaluate
    >>> from tapestry_plan import Graph, ops
    >>> g = Graph()
    >>> _ = g.output(ops.less_equal(g.constant("a", [1, 2, 3]), 2), "y")
    >>> evaluate(g, {})["y"].tolist()
    [True, True, False]

    References
    ----------
    ONNX LessOrEqual; Array API less_equal.
    """


@operator(block=ufunc("greater"), dtype=to_truth, adjoint=adjoints.none)
def greater(a: Tensor | float, b: Tensor | float, *, name: str | None = None) -> Tensor:
    """Whether a > b, cell by cell.

    Parameters
    ----------
    a, b : Tensor, or one of them a number
        Of one dtype; they broadcast against each other.

    Returns
    -------
    Tensor of truth values, of the broadcast shape

    Raises
    ------
    ValueError
        For operands of two dtypes, or shapes that do not broadcast.

    Examples
    --------
    >>> from tapestry_exec import evaluate
    >>> from tapestry_plan import Graph, ops
    >>> g = Graph()
    >>> _ = g.output(ops.greater(g.constant("a", [1, 2, 3]), 2), "y")
    >>> evaluate(g, {})["y"].tolist()
    [False, False, True]

    References
    ----------
    ONNX Greater; Array API greater.
    """


@operator(block=ufunc("greater_equal"), dtype=to_truth, adjoint=adjoints.none)
def greater_equal(a: Tensor | float, b: Tensor | float, *, name: str | None = None) -> Tensor:
    """Whether a ≥ b, cell by cell.

    Parameters
    ----------
    a, b : Tensor, or one of them a number
        Of one dtype; they broadcast against each other.

    Returns
    -------
    Tensor of truth values, of the broadcast shape

    Raises
    ------
    ValueError
        For operands of two dtypes, or shapes that do not broadcast.

    Examples
    --------
    >>> from tapestry_exec import evaluate
    >>> from tapestry_plan import Graph, ops
    >>> g = Graph()
    >>> _ = g.output(ops.greater_equal(g.constant("a", [1, 2, 3]), 2), "y")
    >>> evaluate(g, {})["y"].tolist()
    [False, True, True]

    References
    ----------
    ONNX GreaterOrEqual; Array API greater_equal.
    """


@operator(block=ufunc("isnan"), dtype=_floating_truth, adjoint=adjoints.none)
def isnan(x: Tensor, *, name: str | None = None) -> Tensor:
    """Whether x is not a number, cell by cell.

    Parameters
    ----------
    x : Tensor of a floating dtype

    Returns
    -------
    Tensor of truth values, of x's shape

    Raises
    ------
    ValueError
        For another dtype.

    Examples
    --------
    >>> from tapestry_exec import evaluate
    >>> from tapestry_plan import Graph, ops
    >>> g = Graph()
    >>> _ = g.output(ops.isnan(g.constant("x", [0.0, float("nan"), float("inf")])), "y")
    >>> evaluate(g, {})["y"].tolist()
    [False, True, False]

    References
    ----------
    ONNX IsNaN; Array API isnan.
    """


@operator(block=ufunc("isinf"), dtype=_floating_truth, adjoint=adjoints.none)
def isinf(x: Tensor, *, name: str | None = None) -> Tensor:
    """Whether x is infinite, of either sign, cell by cell.

    Parameters
    ----------
    x : Tensor of a floating dtype

    Returns
    -------
    Tensor of truth values, of x's shape

    Raises
    ------
    ValueError
        For another dtype.

    Examples
    --------
    >>> from tapestry_exec import evaluate
    >>> from tapestry_plan import Graph, ops
    >>> g = Graph()
    >>> _ = g.output(ops.isinf(g.constant("x", [0.0, float("nan"), float("-inf")])), "y")
    >>> evaluate(g, {})["y"].tolist()
    [False, False, True]

    References
    ----------
    ONNX IsInf; Array API isinf.
    """


@operator(block=writes(_where, begins_as=2), dtype=_chosen, adjoint=adjoints.where)
def where(condition: Tensor, a: Tensor | float, b: Tensor | float, *, name: str | None = None) -> Tensor:
    """The cell of a where the condition is true, that of b elsewhere; all three broadcast against each other.

    Parameters
    ----------
    condition : Tensor of dtype bool
    a, b : Tensor
        Of one dtype.

    Returns
    -------
    Tensor of the broadcast shape and that dtype

    Raises
    ------
    ValueError
        If the condition holds no truth values, a and b differ in dtype, or the shapes do not broadcast.

    Examples
    --------
    >>> from tapestry_exec import evaluate
    >>> from tapestry_plan import Graph, ops
    >>> g = Graph()
    >>> x = g.constant("x", [-2.0, 3.0])
    >>> _ = g.output(ops.where(x > 0, x, 0), "y")
    >>> evaluate(g, {})["y"].tolist()
    [0.0, 3.0]

    References
    ----------
    ONNX Where; Array API where.
    """


@operator(block=writes(_astype, in_place=True), dtype=_astype_dtype, adjoint=adjoints.astype)
def astype(x: Tensor, dtype: Any, *, name: str | None = None) -> Tensor:
    """x with its numbers as another dtype, as `numpy.ndarray.astype` makes them; x itself if it has the dtype.

    Floating numbers become integers by rounding toward zero; numbers become true unless they are zero.

    Parameters
    ----------
    x : Tensor
    dtype : dtype, or its name

    Returns
    -------
    Tensor of x's shape and that dtype

    Raises
    ------
    ValueError
        For a name that is not a dtype of NumPy, or a dtype of complex numbers, strings or times.

    Examples
    --------
    >>> from tapestry_exec import evaluate
    >>> from tapestry_plan import Graph, ops
    >>> g = Graph()
    >>> _ = g.output(ops.astype(g.constant("x", [-1.7, 0.0, 2.7]), "int32"), "y")
    >>> evaluate(g, {})["y"].tolist()
    [-1, 0, 2]

    References
    ----------
    ONNX Cast; Array API astype.
    """
    wanted = named_dtype(dtype, "astype: ")
    return x if x.dtype == wanted else add_op(astype.op, x, name=name, dtype=wanted)


@operator(block=writes(_bitcast), dtype=_bitcast_dtype, adjoint=adjoints.none)
def bitcast(x: Tensor, dtype: Any, *, name: str | None = None) -> Tensor:
    """The bits of x, cell by cell, as numbers of another dtype that has as many.

    Parameters
    ----------
    x : Tensor
    dtype : dtype, or its name

    Returns
    -------
    Tensor of x's shape and that dtype

    Raises
    ------
    ValueError
        For a dtype of more or fewer bits, or one of less than 8.

    Examples
    --------
    >>> import numpy as np
    >>> from tapestry_exec import evaluate
    >>> from tapestry_plan import Graph, ops
    >>> g = Graph()
    >>> _ = g.output(ops.bitcast(g.constant("x", np.array([1.0, -2.0], "float32")), "int32"), "y")
    >>> [hex(n) for n in evaluate(g, {})["y"].view("uint32").tolist()]
    ['0x3f800000', '0xc0000000']

    References
    ----------
    ONNX BitCast.
    """
    wanted = named_dtype(dtype, "bitcast: ")
    return x if x.dtype == wanted else add_op(bitcast.op, x, name=name, dtype=wanted)


def widened(x: Tensor) -> Tensor:
    """Truth values and short integers in the default integer dtype, as the array API and NumPy sum them."""
    short = isinstance(x, Tensor) and np.dtype(x.dtype).kind in "biu"
    return astype(x, "uint64" if x.dtype.startswith("u") else "int64") if short else x
