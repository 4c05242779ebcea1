"""Scans and sorts along a whole axis: running sums, and the largest cells with their places."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tapestry_plan.autodiff import adjoints
from tapestry_plan.ir import Attrs, Shape, Shard, Signature, Tensor, same_anywhere
from tapestry_plan.ops.cells.choices import widened
from tapestry_plan.ops.declaration import add_op, operator
from tapestry_plan.ops.operands import axis_of, numeric, per_row, touched
from tapestry_plan.ops.rows.normalizations import axis_signature, row_signature
from tapestry_sets.limits import is_int, quote


def _cumulative_sum_block(xp: Any, inputs: Sequence[Any], outputs: Sequence[Any], shard: Shard) -> None:
    (x,), (out,) = inputs, outputs
    axis = shard.attrs["axis"] % x.ndim
    x, target = xp.moveaxis(x, axis, 0), xp.moveaxis(out, axis, 0)
    if shard.attrs["reverse"]:
        x, target = x[::-1], target[::-1]
    if shard.attrs["exclusive"]:
        target[0] = 0
        x, target = x[:-1], target[1:]
    if len(x):
        target[...] = xp.cumsum(x, axis=0, dtype=out.dtype)


def _top_k_signature(shapes: Sequence[Shape], attrs: Attrs) -> Signature:
    (x,) = shapes
    axis, k = axis_of(attrs["axis"], len(x)), attrs.get("k")
    if not is_int(k, 1, x[axis]):
        raise ValueError(
            f"k is {quote(k)}; axis {axis} of shape {x} has {x[axis]} cells: give an integer from 1 to that"
        )
    whole = row_signature(shapes, axis, axis + 1)
    written = touched(whole.axes, ["" if n == axis else f"i{n}" for n in range(len(x))], (k,) * len(x))
    return Signature(whole.axes, whole.inputs, (written, written))


def _top_k_dtype(dtypes: Sequence[str], attrs: Attrs) -> tuple[str, ...]:
    return (*numeric(dtypes, attrs), "int64")


def _top_k_block(xp: Any, inputs: Sequence[Any], outputs: Sequence[Any], shard: Shard) -> None:
    x, (values, places) = inputs[0], outputs
    axis = shard.attrs["axis"] % x.ndim
    k, n = shard.attrs["k"], x.shape[axis]
    rows = xp.moveaxis(x, axis, -1)
    if shard.attrs["largest"]:
        # Stable from the end: equal cells come out in their own order once it is turned round.
        order = n - 1 - xp.argsort(rows[..., ::-1], axis=-1, kind="stable")[..., ::-1]
    else:
        order = xp.argsort(rows, axis=-1, kind="stable")
    first = order[..., :k]
    xp.moveaxis(values, axis, -1)[...] = xp.take_along_axis(rows, first, axis=-1)
    xp.moveaxis(places, axis, -1)[...] = first


def _sort_flop(signature: Signature, attrs: Attrs) -> float:
    """n log n comparisons of a row."""
    n = max(signature.inputs[0].projection.shape, default=1)
    return n * max(1.0, math.log2(n))


@operator(
    block=_cumulative_sum_block,
    signature=axis_signature,
    flop=per_row(1),
    dtype=numeric,
    adjoint=adjoints.cumulative_sum,
    local=same_anywhere,
)
def cumulative_sum(
    x: Tensor, axis: int | None = None, *, exclusive: bool = False, reverse: bool = False, name: str | None = None
) -> Tensor:
    """Running sums along an axis, which no plan splits.

    Parameters
    ----------
    x : Tensor of a dtype of numbers
        Short integers and truth values are widened first.
    axis : int, optional
        May be left out of a vector.
    exclusive : bool
        Leave out the cell itself: the first sum is 0.
    reverse : bool
        Sum from the end.

    Returns
    -------
    Tensor of x's shape; of x's dtype, or the widened one

    Raises
    ------
    ValueError
        For an axis that x has not, or none of a tensor of several axes.

    Examples
    --------
    >>> from tapestry_exec import evaluate
    >>> from tapestry_plan import Graph, ops
    >>> g = Graph()
    >>> x = g.constant("x", [1, 2, 3])
    >>> _ = g.output(ops.cumulative_sum(x), "sums"), g.output(ops.cumulative_sum(x, exclusive=True), "before")
    >>> {name: array.tolist() for name, array in evaluate(g, {}).items()}
    {'sums': [1, 3, 6], 'before': [0, 1, 3]}

    References
    ----------
    ONNX CumSum; Array API cumulative_sum.
    """
    if axis is None and x.ndim != 1:
        raise ValueError(f"cumulative_sum: x has shape {quote(x.shape)}; name the axis")
    how = {"exclusive": bool(exclusive), "reverse": bool(reverse)}
    return add_op(cumulative_sum.op, widened(x), name=name, axis=axis or 0, **how)


@operator(
    block=_top_k_block,
    signature=_top_k_signature,
    flop=_sort_flop,
    dtype=_top_k_dtype,
    adjoint=adjoints.top_k,
    local=same_anywhere,
)
def top_k(x: Tensor, k: int, axis: int = -1, *, largest: bool = True, name: str | None = None) -> tuple[Tensor, Tensor]:
    """The k largest cells along an axis, which no plan splits, in order, and their places.

    Parameters
    ----------
    x : Tensor of a dtype of numbers
        Without NaN.
    k : int
        From 1 to the axis's extent.
    largest : bool
        Or else the smallest, smallest first.

    Returns
    -------
    tuple of Tensor
        Values, of x's dtype, and places, int64. Of equal cells the first comes first.

    Raises
    ------
    ValueError
        For a k that is not an integer or does not fit the axis.

    Examples
    --------
    >>> from tapestry_exec import evaluate
    >>> from tapestry_plan import Graph, ops
    >>> g = Graph()
    >>> values, places = ops.top_k(g.constant("x", [[1.0, 9.0, 4.0]]), 2)
    >>> _ = g.output(values, "values"), g.output(places, "places")
    >>> {name: array.tolist() for name, array in evaluate(g, {}).items()}
    {'values': [[9.0, 4.0]], 'places': [[1, 2]]}

    References
    ----------
    ONNX TopK, sorted.
    """
