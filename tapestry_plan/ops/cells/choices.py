"""Comparisons, logic, choices by truth values, and changes of dtype."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tapestry_plan.autodiff import adjoints
from tapestry_plan.ir import Attrs, Tensor
from tapestry_plan.ops.declaration import add_op, operator
from tapestry_plan.ops.operands import integral, named_dtype, of_kinds, to_truth, truth, ufunc, writes


def _chosen(dtypes: Sequence[str], attrs: Attrs) -> tuple[str, ...]:
    """A truth value chooses between two operands of one dtype."""
    if dtypes[0] != "bool":
        raise ValueError(
            f"operand 0 is {dtypes[0]}, but a choice is made by truth values; compare it or cast it to bool"
        )
    if dtypes[1] != dtypes[2]:
        raise ValueError(f"operand 2 is {dtypes[2]}, operand 1 is {dtypes[1]}; cast them to one dtype")
    return (dtypes[1],)


_floating_truth = of_kinds("f", "only floating numbers may be infinite or none", "bool")
_shifted = of_kinds("iu", "bits of integers are shifted")


def _astype_dtype(dtypes: Sequence[str], attrs: Attrs) -> tuple[str, ...]:
    if "dtype" not in attrs:
        raise ValueError("the attribute dtype is missing; give the dtype to cast to")
    if np.dtype(dtypes[0]).kind not in "fiub":
        raise ValueError(f"operand 0 is {dtypes[0]}; casts are between real numbers, integers and truth values")
    return (named_dtype(attrs["dtype"]),)


def _where(xp: Any, out: Any, condition: Any, a: Any, b: Any) -> None:
    xp.copyto(out, b)
    xp.copyto(out, a, where=condition)


def _astype(xp: Any, out: Any, x: Any, dtype: str) -> None:
    out[...] = x


@operator(block=ufunc("equal"), dtype=to_truth, adjoint=adjoints.none)
def equal(a: Tensor | float, b: Tensor | float, *, name: str | None = None) -> Tensor:
    """Whether a = b, cell by cell."""


@operator(block=ufunc("not_equal"), dtype=to_truth, adjoint=adjoints.none)
def not_equal(a: Tensor | float, b: Tensor | float, *, name: str | None = None) -> Tensor:
    """Whether a ≠ b, cell by cell."""


@operator(block=ufunc("less"), dtype=to_truth, adjoint=adjoints.none)
def less(a: Tensor | float, b: Tensor | float, *, name: str | None = None) -> Tensor:
    """Whether a < b, cell by cell."""


@operator(block=ufunc("less_equal"), dtype=to_truth, adjoint=adjoints.none)
def less_equal(a: Tensor | float, b: Tensor | float, *, name: str | None = None) -> Tensor:
    """Whether a ≤ b, cell by cell."""


@operator(block=ufunc("greater"), dtype=to_truth, adjoint=adjoints.none)
def greater(a: Tensor | float, b: Tensor | float, *, name: str | None = None) -> Tensor:
    """Whether a > b, cell by cell."""


@operator(block=ufunc("greater_equal"), dtype=to_truth, adjoint=adjoints.none)
def greater_equal(a: Tensor | float, b: Tensor | float, *, name: str | None = None) -> Tensor:
    """Whether a ≥ b, cell by cell."""


@operator(block=ufunc("isnan"), dtype=_floating_truth, adjoint=adjoints.none)
def isnan(x: Tensor, *, name: str | None = None) -> Tensor:
    """Whether x is not a number, cell by cell."""


@operator(block=ufunc("isinf"), dtype=_floating_truth, adjoint=adjoints.none)
def isinf(x: Tensor, *, name: str | None = None) -> Tensor:
    """Whether x is infinite, of either sign, cell by cell."""


@operator(block=ufunc("logical_not"), dtype=truth, adjoint=adjoints.none)
def logical_not(x: Tensor, *, name: str | None = None) -> Tensor:
    """Whether x is false, cell by cell."""


@operator(block=ufunc("logical_and"), dtype=truth, adjoint=adjoints.none)
def logical_and(a: Tensor | float, b: Tensor | float, *, name: str | None = None) -> Tensor:
    """Whether a and b are both true, cell by cell."""


@operator(block=ufunc("logical_or"), dtype=truth, adjoint=adjoints.none)
def logical_or(a: Tensor | float, b: Tensor | float, *, name: str | None = None) -> Tensor:
    """Whether a or b is true, cell by cell."""


@operator(block=ufunc("logical_xor"), dtype=truth, adjoint=adjoints.none)
def logical_xor(a: Tensor | float, b: Tensor | float, *, name: str | None = None) -> Tensor:
    """Whether just one of a and b is true, cell by cell."""


@operator(block=ufunc("invert"), dtype=integral)
def bitwise_invert(x: Tensor, *, name: str | None = None) -> Tensor:
    """Each bit of x turned over, cell by cell."""


@operator(block=ufunc("bitwise_and"), dtype=integral)
def bitwise_and(a: Tensor | float, b: Tensor | float, *, name: str | None = None) -> Tensor:
    """The bits that a and b both have, cell by cell."""


@operator(block=ufunc("bitwise_or"), dtype=integral)
def bitwise_or(a: Tensor | float, b: Tensor | float, *, name: str | None = None) -> Tensor:
    """The bits that a or b has, cell by cell."""


@operator(block=ufunc("bitwise_xor"), dtype=integral)
def bitwise_xor(a: Tensor | float, b: Tensor | float, *, name: str | None = None) -> Tensor:
    """The bits that just one of a and b has, cell by cell."""


@operator(block=ufunc("left_shift"), dtype=_shifted)
def bitwise_left_shift(a: Tensor | float, b: Tensor | float, *, name: str | None = None) -> Tensor:
    """The bits of a moved up by b places, cell by cell."""


@operator(block=ufunc("right_shift"), dtype=_shifted)
def bitwise_right_shift(a: Tensor | float, b: Tensor | float, *, name: str | None = None) -> Tensor:
    """The bits of a moved down by b places, cell by cell; signs are kept."""


@operator(block=writes(_where), dtype=_chosen, adjoint=adjoints.where)
def where(condition: Tensor, a: Tensor | float, b: Tensor | float, *, name: str | None = None) -> Tensor:
    """The cell of a where the condition is true, that of b elsewhere; all three broadcast against each other.

    Parameters
    ----------
    condition : Tensor of dtype bool
    a, b : Tensor
        Of one dtype.

    Raises
    ------
    ValueError
        If the condition holds no truth values, a and b differ in dtype, or the shapes do not broadcast.

    References
    ----------
    ONNX Where.
    """


@operator(block=writes(_astype, in_place=True), dtype=_astype_dtype, adjoint=adjoints.astype)
def astype(x: Tensor, dtype: Any, *, name: str | None = None) -> Tensor:
    """x with its numbers as another dtype, as `numpy.ndarray.astype` makes them; x itself if it has the dtype.

    Floating numbers become integers by rounding toward zero; numbers become true unless they are zero.

    Raises
    ------
    ValueError
        For a name that is not a dtype of NumPy, or a dtype of complex numbers, strings or times.

    References
    ----------
    ONNX Cast.
    """
    wanted = named_dtype(dtype, "astype: ")
    return x if x.dtype == wanted else add_op(astype.op, x, name=name, dtype=wanted)


def widened(x: Tensor) -> Tensor:
    """Truth values and short integers in the default integer dtype, as the array API and NumPy sum them."""
    short = isinstance(x, Tensor) and np.dtype(x.dtype).kind in "biu"
    return astype(x, "uint64" if x.dtype.startswith("u") else "int64") if short else x
