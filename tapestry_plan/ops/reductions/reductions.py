"""Operators that fold axes: sums, means, maxima."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from tapestry_plan.autodiff import adjoints
from tapestry_plan.ir import Attrs, Axis, LinearForm, Op, Operand, Shape, Shard, Signature, Tensor, project
from tapestry_plan.ops.expansions import pooled_mean, sum_div
from tapestry_plan.ops.operands import (
    add_op,
    axis_of,
    counted,
    declare,
    floating,
    numeric,
    spatial_names,
    stored_attr,
    truth,
    unary_function,
)


def reduce_signature(shapes: Sequence[Shape], attrs: Attrs) -> Signature:
    """One operand, whose axes i0, i1, … are kept or, if the attribute `axes` names them, reduced."""
    (x,) = shapes
    over = _reduced(len(x), attrs)
    axes = tuple(Axis(f"i{k}", n, "reduction" if k in over else "parallel") for k, n in enumerate(x))
    kept: list[LinearForm] = [{} if k in over else {axis.name: 1} for k, axis in enumerate(axes)]
    if not attrs.get("keepdims", True):
        kept = [form for k, form in enumerate(kept) if k not in over]
    read = Operand(project(axes, [{axis.name: 1} for axis in axes]))
    return Signature(axes, (read,), (Operand(project(axes, kept)),))


def _reduced(rank: int, attrs: Attrs) -> frozenset[int]:
    """The axes that are reduced: those of the attribute `axes`, else all."""
    given = attrs.get("axes")
    if given is None:
        return frozenset(range(rank))
    found = [axis_of(axis, rank, "axes") for axis in ((given,) if isinstance(given, int) else given)]
    if len(set(found)) != len(found):
        raise ValueError(f"axes is {given!r}, which names an axis twice")
    return frozenset(found)


def _global_pool_signature(shapes: Sequence[Shape], attrs: Attrs) -> Signature:
    (x,) = shapes
    names = spatial_names(x, "operand 0")
    axes = (
        Axis("n", x[0]),
        Axis("c", x[1]),
        *(Axis(name, size, "reduction") for name, size in zip(names, x[2:], strict=True)),
    )
    read = Operand(project(axes, [{axis.name: 1} for axis in axes]))
    empty: list[LinearForm] = [{} for _ in names]
    return Signature(axes, (read,), (Operand(project(axes, [{"n": 1}, {"c": 1}, *empty])),))


def reduce_block(fold: str, mean: bool = False) -> Any:
    """The block that folds the reduction axes; a mean divides by the count of the whole, not of its part."""

    def block(xp: Any, inputs: Sequence[Any], outputs: Sequence[Any], shard: Shard) -> None:
        (x,), (out,) = inputs, outputs
        signature = shard.signature
        over = tuple(
            k
            for k, row in enumerate(signature.inputs[0].projection.map.matrix)
            if any(row[axis] for axis in signature.reductions)
        )
        getattr(xp, fold)(x, axis=over, keepdims=out.ndim == x.ndim, out=out)
        if mean:
            count = prod(signature.axes[axis].size for axis in signature.reductions)
            xp.divide(out, out.dtype.type(count), out=out)

    return block


# -- declarations --------------------------------------------------------------------------------------


declare(
    Op(
        "global_average_pool",
        counted(_global_pool_signature, 1, 1),
        reduce_block("sum", mean=True),
        1.0,
        "sum",
        floating,
        expansions=(pooled_mean,),
    ),
    Op(
        "global_max_pool",
        counted(_global_pool_signature, 1, 1),
        reduce_block("max"),
        1.0,
        "max",
        adjoint=adjoints.Through(adjoints.spatial_max),
        expansions=(adjoints.spatial_max,),
    ),
    Op(
        "reduce_sum",
        counted(reduce_signature, 1, 1),
        reduce_block("sum"),
        1.0,
        "sum",
        attributes=("axes", "keepdims"),
        adjoint=adjoints.reduce_sum,
    ),
    Op(
        "reduce_mean",
        counted(reduce_signature, 1, 1),
        reduce_block("sum", mean=True),
        1.0,
        "sum",
        floating,
        attributes=("axes", "keepdims"),
        expansions=(sum_div,),
    ),
    Op(
        "reduce_max",
        counted(reduce_signature, 1, 1),
        reduce_block("max"),
        1.0,
        "max",
        attributes=("axes", "keepdims"),
        adjoint=adjoints.reduce_extreme,
    ),
    Op(
        "reduce_min",
        counted(reduce_signature, 1, 1),
        reduce_block("min"),
        1.0,
        "min",
        attributes=("axes", "keepdims"),
        adjoint=adjoints.reduce_extreme,
    ),
    Op(
        "reduce_prod",
        counted(reduce_signature, 1, 1),
        reduce_block("prod"),
        1.0,
        "prod",
        numeric,
        attributes=("axes", "keepdims"),
        adjoint=adjoints.reduce_prod,
    ),
    Op(
        "reduce_any",
        counted(reduce_signature, 1, 1),
        reduce_block("any"),
        1.0,
        "max",
        truth,
        attributes=("axes", "keepdims"),
        adjoint=adjoints.none,
    ),
    Op(
        "reduce_all",
        counted(reduce_signature, 1, 1),
        reduce_block("all"),
        1.0,
        "min",
        truth,
        attributes=("axes", "keepdims"),
        adjoint=adjoints.none,
    ),
)


# -- functions on graph tensors ------------------------------------------------------------------------


global_average_pool = unary_function("global_average_pool", "The mean over all spatial axes, kept with extent 1.")
global_max_pool = unary_function("global_max_pool", "The maximum over all spatial axes, kept with extent 1.")


def reduce_sum(
    x: Tensor, axes: int | Sequence[int] | None = None, *, keepdims: bool = True, name: str | None = None
) -> Tensor:
    """The sum over the given axes, or over all."""
    return _reduce("reduce_sum", x, axes, keepdims, name)


def reduce_mean(
    x: Tensor, axes: int | Sequence[int] | None = None, *, keepdims: bool = True, name: str | None = None
) -> Tensor:
    """The mean over the given axes, or over all."""
    return _reduce("reduce_mean", x, axes, keepdims, name)


def reduce_max(
    x: Tensor, axes: int | Sequence[int] | None = None, *, keepdims: bool = True, name: str | None = None
) -> Tensor:
    """The maximum over the given axes, or over all."""
    return _reduce("reduce_max", x, axes, keepdims, name)


def reduce_min(
    x: Tensor, axes: int | Sequence[int] | None = None, *, keepdims: bool = True, name: str | None = None
) -> Tensor:
    """The minimum over the given axes, or over all."""
    return _reduce("reduce_min", x, axes, keepdims, name)


def reduce_prod(
    x: Tensor, axes: int | Sequence[int] | None = None, *, keepdims: bool = True, name: str | None = None
) -> Tensor:
    """The product over the given axes, or over all."""
    return _reduce("reduce_prod", x, axes, keepdims, name)


def reduce_any(
    x: Tensor, axes: int | Sequence[int] | None = None, *, keepdims: bool = True, name: str | None = None
) -> Tensor:
    """Whether any cell is true, over the given axes or all; of truth values."""
    return _reduce("reduce_any", x, axes, keepdims, name)


def reduce_all(
    x: Tensor, axes: int | Sequence[int] | None = None, *, keepdims: bool = True, name: str | None = None
) -> Tensor:
    """Whether all cells are true, over the given axes or all; of truth values."""
    return _reduce("reduce_all", x, axes, keepdims, name)


def _reduce(op: str, x: Tensor, axes: int | Sequence[int] | None, keepdims: bool, name: str | None) -> Tensor:
    over = None if axes is None else stored_attr(axes)
    return add_op(op, x, name=name, axes=over, keepdims=bool(keepdims))
