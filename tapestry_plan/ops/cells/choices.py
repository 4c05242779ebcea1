"""Comparisons, logic, choices by truth values, and changes of dtype."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tapestry_plan.autodiff import adjoints
from tapestry_plan.ir import Attrs, Op, Shard, Tensor
from tapestry_plan.ops.operands import (
    add_op,
    binary,
    binary_function,
    counted,
    declare,
    elementwise_signature,
    integral,
    named_dtype,
    same_dtype,
    to_truth,
    truth,
    ufunc,
    unary,
    unary_function,
)


def _chosen(dtypes: Sequence[str], attrs: Attrs) -> tuple[str, ...]:
    """A truth value chooses between two operands of one dtype."""
    if dtypes[0] != "bool":
        raise ValueError(
            f"operand 0 is {dtypes[0]}, but a choice is made by truth values; compare it or cast it to bool"
        )
    if dtypes[1] != dtypes[2]:
        raise ValueError(f"operand 2 is {dtypes[2]}, operand 1 is {dtypes[1]}; cast them to one dtype")
    return (dtypes[1],)


def _floating_truth(dtypes: Sequence[str], attrs: Attrs) -> tuple[str, ...]:
    if np.dtype(dtypes[0]).kind != "f":
        raise ValueError(f"operand 0 is {dtypes[0]}, but only floating numbers may be infinite or none; cast it")
    return ("bool",)


def _shifted(dtypes: Sequence[str], attrs: Attrs) -> tuple[str, ...]:
    if np.dtype(dtypes[0]).kind not in "iu":
        raise ValueError(f"operand 0 is {dtypes[0]}, but bits of integers are shifted; cast it")
    return same_dtype(dtypes, attrs)


def _cast_dtype(dtypes: Sequence[str], attrs: Attrs) -> tuple[str, ...]:
    if "dtype" not in attrs:
        raise ValueError("the attribute dtype is missing; give the dtype to cast to")
    if np.dtype(dtypes[0]).kind not in "fiub":
        raise ValueError(f"operand 0 is {dtypes[0]}; casts are between real numbers, integers and truth values")
    return (named_dtype(attrs["dtype"]),)


def _where_block(xp: Any, inputs: Sequence[Any], outputs: Sequence[Any], shard: Shard) -> None:
    condition, a, b = inputs
    (out,) = outputs
    xp.copyto(out, b)
    xp.copyto(out, a, where=condition)


def _cast_block(xp: Any, inputs: Sequence[Any], outputs: Sequence[Any], shard: Shard) -> None:
    outputs[0][...] = inputs[0]


# -- declarations --------------------------------------------------------------------------------------

declare(
    Op("equal", binary, ufunc("equal"), dtype=to_truth, adjoint=adjoints.none),
    Op("not_equal", binary, ufunc("not_equal"), dtype=to_truth, adjoint=adjoints.none),
    Op("less", binary, ufunc("less"), dtype=to_truth, adjoint=adjoints.none),
    Op("less_equal", binary, ufunc("less_equal"), dtype=to_truth, adjoint=adjoints.none),
    Op("greater", binary, ufunc("greater"), dtype=to_truth, adjoint=adjoints.none),
    Op("greater_equal", binary, ufunc("greater_equal"), dtype=to_truth, adjoint=adjoints.none),
    Op("isnan", unary, ufunc("isnan"), dtype=_floating_truth, adjoint=adjoints.none),
    Op("isinf", unary, ufunc("isinf"), dtype=_floating_truth, adjoint=adjoints.none),
    Op("logical_not", unary, ufunc("logical_not"), dtype=truth, adjoint=adjoints.none),
    Op("logical_and", binary, ufunc("logical_and"), dtype=truth, adjoint=adjoints.none),
    Op("logical_or", binary, ufunc("logical_or"), dtype=truth, adjoint=adjoints.none),
    Op("logical_xor", binary, ufunc("logical_xor"), dtype=truth, adjoint=adjoints.none),
    Op("bitwise_not", unary, ufunc("invert"), dtype=integral),
    Op("bitwise_and", binary, ufunc("bitwise_and"), dtype=integral),
    Op("bitwise_or", binary, ufunc("bitwise_or"), dtype=integral),
    Op("bitwise_xor", binary, ufunc("bitwise_xor"), dtype=integral),
    Op("shift_left", binary, ufunc("left_shift"), dtype=_shifted),
    Op("shift_right", binary, ufunc("right_shift"), dtype=_shifted),
    Op("where", counted(elementwise_signature, 3, 3), _where_block, dtype=_chosen, adjoint=adjoints.where),
    Op("cast", unary, _cast_block, dtype=_cast_dtype, attributes=("dtype",), adjoint=adjoints.cast),
)

# -- functions on graph tensors ------------------------------------------------------------------------

equal = binary_function("equal", "Whether a = b, cell by cell.")
not_equal = binary_function("not_equal", "Whether a ≠ b, cell by cell.")
less = binary_function("less", "Whether a < b, cell by cell.")
less_equal = binary_function("less_equal", "Whether a ≤ b, cell by cell.")
greater = binary_function("greater", "Whether a > b, cell by cell.")
greater_equal = binary_function("greater_equal", "Whether a ≥ b, cell by cell.")
isnan = unary_function("isnan", "Whether x is no number, cell by cell.")
isinf = unary_function("isinf", "Whether x is infinite, of either sign, cell by cell.")
logical_not = unary_function("logical_not", "Whether x is false, cell by cell.")
logical_and = binary_function("logical_and", "Whether a and b are both true, cell by cell.")
logical_or = binary_function("logical_or", "Whether a or b is true, cell by cell.")
logical_xor = binary_function("logical_xor", "Whether just one of a and b is true, cell by cell.")
bitwise_not = unary_function("bitwise_not", "Each bit of x turned over, cell by cell.")
bitwise_and = binary_function("bitwise_and", "The bits that a and b both have, cell by cell.")
bitwise_or = binary_function("bitwise_or", "The bits that a or b has, cell by cell.")
bitwise_xor = binary_function("bitwise_xor", "The bits that just one of a and b has, cell by cell.")
shift_left = binary_function("shift_left", "The bits of a moved up by b places, cell by cell.")
shift_right = binary_function("shift_right", "The bits of a moved down by b places, cell by cell; signs are kept.")


def where(condition: Tensor, a: Tensor, b: Tensor, *, name: str | None = None) -> Tensor:
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
    return add_op("where", condition, a, b, name=name)


def cast(x: Tensor, dtype: str, *, name: str | None = None) -> Tensor:
    """x with its numbers as another dtype, as `numpy.ndarray.astype` makes them; x itself if it has the dtype.

    Floating numbers become integers by rounding toward zero; numbers become true unless they are zero.

    Raises
    ------
    ValueError
        For what is no dtype of NumPy, or a dtype of complex numbers, strings or times.

    References
    ----------
    ONNX Cast.
    """
    return x if x.dtype == dtype else add_op("cast", x, name=name, dtype=dtype)
