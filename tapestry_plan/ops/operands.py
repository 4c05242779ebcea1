"""Shared parts of operators' declarations: shapes, dtypes and attributes.

Block functions get dense input blocks that cover exactly ``shard.input_boxes`` (cells outside the tensor hold
the operand's padding), fill C-contiguous output blocks in place, and find their way by the names of the index
axes only. Cells of a strided window's block that lie between the windows are never read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest
from math import prod
from typing import Any

import numpy as np

from tapestry_plan.ir import (
    SHORT_DTYPES,
    Attrs,
    Axis,
    Block,
    CellBlock,
    LinearForm,
    Operand,
    Shape,
    Shard,
    Signature,
    check_dtype,
    project,
)
from tapestry_sets.limits import is_int, quote, skip_checks

_project = skip_checks(project)

SPATIAL = {1: ("w",), 2: ("h", "w"), 3: ("d", "h", "w")}
"""Names of the spatial axes, by how many there are."""


# -- dtype rules ---------------------------------------------------------------------------------------


def same_dtype(dtypes: Sequence[str], attrs: Attrs) -> tuple[str, ...]:
    """All operands have the dtype of the first, and so has the result."""
    for k, dtype in enumerate(dtypes):
        if dtype != dtypes[0]:
            raise ValueError(f"operand {k} is {dtype}, operand 0 is {dtypes[0]}; cast them to one dtype")
    if dtypes[0] in SHORT_DTYPES:
        raise ValueError(f"operand 0 is {dtypes[0]}, which is moved and cast only; cast it to float32")
    return (dtypes[0],)


def of_kinds(kinds: str, but: str, result: str = "") -> Callable[[Sequence[str], Attrs], tuple[str, ...]]:
    """The rule of an operator on one dtype of some kinds, as NumPy has them, that makes the same one or the result."""

    def rule(dtypes: Sequence[str], attrs: Attrs) -> tuple[str, ...]:
        if np.dtype(dtypes[0]).kind not in kinds or dtypes[0] in SHORT_DTYPES:
            raise ValueError(f"operand 0 is {dtypes[0]}, but {but}; cast it")
        same = same_dtype(dtypes, attrs)
        return (result,) if result else same

    return rule


arithmetic = of_kinds("iufc", "truth values have no such sum, product or quotient")
numeric = of_kinds("iuf", "the operator works on numbers")
floating = of_kinds("f", "the operator works on floating numbers")
subtracted = of_kinds("iufc", "truth values are not subtracted: write x ^ y for those that differ")
integral = of_kinds("iub", "the operator works on integers or truth values")
truth = of_kinds("b", "the operator works on truth values")


def to_truth(dtypes: Sequence[str], attrs: Attrs) -> tuple[str, ...]:
    """All operands have one dtype; the result says what is true of them."""
    same_dtype(dtypes, attrs)
    return ("bool",)


def named_dtype(name: Any, where: str = "") -> str:
    """NumPy's name of a dtype that an attribute of an operator gives; `where` begins the error."""
    dtype = check_dtype(name, where)
    if np.dtype(dtype).kind not in "fiub" and dtype not in SHORT_DTYPES:
        raise ValueError(f"{where}dtype is {dtype}; give one of real numbers, integers or truth values")
    return dtype


def need_indices(dtype: str, what: str) -> None:
    """Raise ValueError for a dtype that counts nothing."""
    if np.dtype(dtype).kind not in "iu":
        raise ValueError(f"{what} is {dtype}, but indices are integers; cast it")


# -- shapes and attributes -----------------------------------------------------------------------------


def need_rank(shape: Shape, wanted: int, what: str, axes: str) -> None:
    """Raise ValueError for a shape of another rank."""
    if len(shape) != wanted:
        raise ValueError(f"{what} has shape {quote(shape)}, rank {len(shape)}; rank {wanted} is needed ({axes})")


def need_vector(shape: Shape, size: int, what: str, of: str) -> None:
    """Raise ValueError for a shape other than (size,)."""
    if shape != (size,):
        raise ValueError(f"{what} has shape {quote(shape)}; {(size,)} is needed, one value for each of {of}")


def ints_of(value: Any, rank: int, what: str, least: int) -> tuple[int, ...]:
    """An int, meaning the same on every axis, or one int for each axis."""
    values = tuple(value) if isinstance(value, Sequence) else (value,) * rank
    if len(values) != rank or not all(is_int(v, least) for v in values):
        raise ValueError(f"{what} is {quote(value)}; give an integer >= {least}, or {rank} of them")
    return values


def axis_of(axis: Any, rank: int, where: str = "") -> int:
    """A position from the front for an axis that may be counted from the end; `where` begins the error."""
    if not is_int(axis, -rank, rank - 1):
        raise ValueError(f"{where}axis is {quote(axis)}; a tensor of rank {rank} has the axes {-rank} to {rank - 1}")
    return axis % rank


def number_axes(shape: Shape) -> tuple[Axis, ...]:
    """Index axes i0, i1, … of a shape: of an operator that works on each cell by itself.

    Parameters
    ----------
    shape : tuple of int

    Returns
    -------
    tuple of Axis

    Examples
    --------
    >>> from tapestry_plan import ops
    >>> [(axis.name, axis.size) for axis in ops.number_axes((4, 6))]
    [('i0', 4), ('i1', 6)]
    """
    return tuple(Axis(f"i{k}", n) for k, n in enumerate(shape))


def align_axes(shape: Shape, axes: Sequence[Axis]) -> list[LinearForm]:
    """One form for each axis of an operand that is broadcast, as NumPy does, to the index axes."""
    lead = len(axes) - len(shape)
    return [{} if n == 1 else {axes[lead + k].name: 1} for k, n in enumerate(shape)]


def common_shape(shapes: Sequence[Shape]) -> Shape:
    """The shape that shapes broadcast to, as in NumPy."""
    extents = [set(column) - {1} for column in zip_longest(*(shape[::-1] for shape in shapes), fillvalue=1)]
    if any(len(others) > 1 for others in extents):
        listed = " and ".join(quote(shape) for shape in shapes)
        raise ValueError(
            f"operands of shapes {listed} do not broadcast; aligned at the last axis, extents must be equal or 1"
        )
    return tuple(others.pop() if others else 1 for others in reversed(extents))  # of any size, as NumPy's are not


def spatial_names(shape: Shape, what: str) -> tuple[str, ...]:
    """Names of the axes behind the batch and channel axes of a shape."""
    if len(shape) - 2 not in SPATIAL:
        raise ValueError(
            f"{what} has shape {quote(shape)}, rank {len(shape)}; "
            "it needs a batch axis, a channel axis and one to three spatial axes"
        )
    return SPATIAL[len(shape) - 2]


# -- signatures and blocks -----------------------------------------------------------------------------


def touched(
    axes: Sequence[Axis],
    coordinates: Sequence[str | LinearForm] | None = None,
    shape: Sequence[int] | None = None,
    splits: Mapping[str, int] | None = None,
    **fields: Any,
) -> Operand:
    """The operand of which each index point touches a cell, or all cells along some axes.

    Parameters
    ----------
    axes : sequence of Axis
        The index space.
    coordinates : sequence of str or LinearForm, optional
        For each axis of the tensor the index axis that it follows, or a linear form; ``""`` where all of it is
        touched. By default the axes of the index space.
    shape : sequence of int, optional
        Extents of what is touched along the axes ``""``, by default 1; the others do not matter.
    splits, **fields
        As in `project` and `Operand`.

    Examples
    --------
    >>> axes = (Axis("i0", 4), Axis("i1", 6))
    >>> touched(axes, ["i1", ""], (6, 9)).projection([0, 5])
    Box(start=(5, 0), shape=(1, 9))
    """
    found = [axis.name for axis in axes] if coordinates is None else coordinates
    forms: list[LinearForm] = [one if isinstance(one, Mapping) else {one: 1} if one else {} for one in found]
    block = None if shape is None else [1 if form else n for form, n in zip(forms, shape, strict=True)]
    return Operand(_project(axes, forms, block, splits), **fields)


def elementwise_signature(shapes: Sequence[Shape], attrs: Attrs) -> Signature:
    """Index axes i0, i1, … of the operands' common shape; each point reads one cell of each and writes one."""
    axes = number_axes(common_shape(shapes))
    return Signature(axes, tuple(touched(axes, align_axes(shape, axes)) for shape in shapes), (touched(axes),))


def ufunc(name: str) -> Block:
    """The block that applies one function of the array namespace to all operands."""

    def write(xp: Any, outputs: Sequence[Any], inputs: Sequence[Any], attrs: Attrs) -> None:
        getattr(xp, name)(*inputs, out=outputs[0])

    return CellBlock(write, in_place=True)


def writes(formula: Callable[..., None], in_place: bool = False, begins_as: int | None = None) -> Block:
    """The block of a formula ``(xp, out, *inputs, **attributes)`` that writes the only output.

    It may say that it writes no cell of `out` before it has read the operands' there, and reads none afterwards; or
    with which operand's cells it begins, by `begin_as`.
    """

    def write(xp: Any, outputs: Sequence[Any], inputs: Sequence[Any], attrs: Attrs) -> None:
        formula(xp, outputs[0], *inputs, **attrs)

    return CellBlock(write, in_place=in_place, begins_as=begins_as)


def spatial_of(shard: Shard) -> tuple[str, ...]:
    """Names of the spatial axes, in the tensor's order whatever the order of the index axes."""
    present = {axis.name for axis in shard.signature.axes}
    return tuple(name for name in SPATIAL[3] if name in present)


def per_row(flop: int) -> Callable[[Signature, Attrs], float]:
    """So many operations for each value of a row."""
    return lambda signature, attrs: float(flop * prod(signature.inputs[0].projection.shape))
