"""Operators that fold axes: sums, means, maxima."""

from __future__ import annotations

import builtins
import math
from collections.abc import Sequence
from typing import Any

from tapestry_plan.autodiff import adjoints
from tapestry_plan.ir import Attrs, Axis, Op, Shape, Shard, Signature, Tensor, same_anywhere
from tapestry_plan.ops.cells.choices import widened
from tapestry_plan.ops.declaration import add_op, operator
from tapestry_plan.ops.expansions import pooled_mean, spatial_max, sum_div
from tapestry_plan.ops.operands import arithmetic, axis_of, floating, numeric, spatial_names, touched, truth
from tapestry_sets.limits import quote

Axes = int | Sequence[int] | None


def reduce_signature(shapes: Sequence[Shape], attrs: Attrs) -> Signature:
    """One operand, whose axes i0, i1, … are kept or, if the attribute `axis` names them, reduced."""
    (x,) = shapes
    over = _reduced(len(x), attrs)
    axes = tuple(Axis(f"i{k}", n, "reduction" if k in over else "parallel") for k, n in enumerate(x))
    return _fold(axes, bool(attrs.get("keepdims")))


def _fold(axes: tuple[Axis, ...], keepdims: bool) -> Signature:
    """Every cell is read; the result has no reduction axes, or has them with extent 1."""
    names = ["" if axis.kind == "reduction" else axis.name for axis in axes]
    return Signature(axes, (touched(axes),), (touched(axes, names if keepdims else [name for name in names if name]),))


def _reduced(rank: int, attrs: Attrs) -> frozenset[int]:
    """The axes that are reduced: those of the attribute `axis`, else all."""
    given = attrs.get("axis")
    if given is None:
        return frozenset(range(rank))
    found = [axis_of(axis, rank) for axis in ((given,) if isinstance(given, int) else given)]
    if len(set(found)) != len(found):
        raise ValueError(f"axis is {quote(given)}, which names an axis twice")
    return frozenset(found)


def _global_pool_signature(shapes: Sequence[Shape], attrs: Attrs) -> Signature:
    (x,) = shapes
    spatial = zip(spatial_names(x, "operand 0"), x[2:], strict=True)
    return _fold((Axis("n", x[0]), Axis("c", x[1]), *(Axis(name, size, "reduction") for name, size in spatial)), True)


def _total(op: Op, x: Tensor, axis: Axes, keepdims: bool, name: str | None) -> Tensor:
    """A sum or a product, of short integers as wide ones."""
    over = axis if axis is None or isinstance(axis, int) else tuple(axis)
    with x.graph._all_or_nothing():
        return add_op(op, widened(x), name=name, axis=over, keepdims=bool(keepdims))


def _folded_by(fold: str, merge: str, signature: Any = reduce_signature, mean: bool = False) -> dict[str, Any]:
    """What operators that fold their reduction axes declare; a mean divides by the count of the whole, not a part."""

    def block(xp: Any, inputs: Sequence[Any], outputs: Sequence[Any], shard: Shard) -> None:
        (x,), (out,) = inputs, outputs
        signature = shard.signature
        over = tuple(
            k
            for k, row in enumerate(signature.inputs[0].projection.map.matrix)
            if builtins.any(row[axis] for axis in signature.reductions)
        )
        if not mean:
            getattr(xp, fold)(x, axis=over, keepdims=out.ndim == x.ndim, out=out)
            return
        count = math.prod(signature.axes[axis].size for axis in signature.reductions)
        if out.dtype == "float16":  # as NumPy's mean: the sum, and large counts too, may be beyond float16
            total = xp.sum(x, axis=over, keepdims=out.ndim == x.ndim, dtype="float32")
            out[...] = total / total.dtype.type(count)
        else:
            xp.sum(x, axis=over, keepdims=out.ndim == x.ndim, out=out)
            xp.divide(out, out.dtype.type(count), out=out)

    return {"block": block, "signature": signature, "reduction": merge}


@operator(**_folded_by("sum", "sum", _global_pool_signature, mean=True), dtype=floating, expansions=(pooled_mean,))
def global_average_pool(x: Tensor, *, name: str | None = None) -> Tensor:
    """The mean over all spatial axes, kept with extent 1.

    Parameters
    ----------
    x : Tensor of shape (n, channels, …)
        One to three spatial axes.

    Returns
    -------
    Tensor of shape (n, channels, 1, …)

    Examples
    --------
    >>> from tapestry_exec import evaluate
    >>> from tapestry_plan import Graph, ops
    >>> g = Graph()
    >>> _ = g.output(ops.global_average_pool(g.constant("x", [[[1.0, 2.0, 6.0]]])), "y")
    >>> evaluate(g, {})["y"].tolist()
    [[[3.0]]]

    References
    ----------
    ONNX GlobalAveragePool.
    """


@operator(**_folded_by("max", "max", _global_pool_signature), expansions=(spatial_max,), local=same_anywhere)
def global_max_pool(x: Tensor, *, name: str | None = None) -> Tensor:
    """The maximum over all spatial axes, kept with extent 1.

    Parameters
    ----------
    x : Tensor of shape (n, channels, …)
        One to three spatial axes.

    Returns
    -------
    Tensor of shape (n, channels, 1, …)

    Examples
    --------
    >>> from tapestry_exec import evaluate
    >>> from tapestry_plan import Graph, ops
    >>> g = Graph()
    >>> _ = g.output(ops.global_max_pool(g.constant("x", [[[1.0, 2.0, 6.0]]])), "y")
    >>> evaluate(g, {})["y"].tolist()
    [[[6.0]]]

    References
    ----------
    ONNX GlobalMaxPool.
    """


@operator(**_folded_by("sum", "sum"), dtype=arithmetic, adjoint=adjoints.total, local=same_anywhere)
def sum(x: Tensor, axis: Axes = None, *, keepdims: bool = False, name: str | None = None) -> Tensor:
    """The sum over the given axes, or over all; short integers and truth values are widened first.

    Of float16 the parts of a plan that splits it are float16 too: one beyond 65,504 is infinite; cast first.

    Parameters
    ----------
    x : Tensor of numbers or truth values
    axis : int or sequence of int, optional
        All axes by default.
    keepdims : bool
        Keep the reduced axes, with extent 1.

    Returns
    -------
    Tensor of x's dtype; of integers int64, or uint64, and of truth values int64

    Raises
    ------
    ValueError
        For an axis that x has not, one named twice, and another dtype.

    Examples
    --------
    >>> from tapestry_exec import evaluate
    >>> from tapestry_plan import Graph, ops
    >>> g = Graph()
    >>> x = g.constant("x", [[1.0, 2.0], [3.0, 5.0]])
    >>> _ = g.output(ops.sum(x, axis=1, keepdims=True), "y")
    >>> evaluate(g, {})["y"].tolist()
    [[3.0], [8.0]]

    References
    ----------
    ONNX ReduceSum; Array API sum.
    """
    return _total(sum.op, x, axis, keepdims, name)


def _local_mean(shard: Shard, shapes: Sequence[Shape]) -> Attrs | None:
    """The node's own, where the part has all cells that the mean is over, and divides by their count."""
    whole = shard.signature.index
    is_whole = builtins.all(shard.index.shape[axis] == whole.shape[axis] for axis in shard.signature.reductions)
    return shard.attrs if is_whole else None


@operator(**_folded_by("sum", "sum", mean=True), dtype=floating, expansions=(sum_div,), local=_local_mean)
def mean(x: Tensor, axis: Axes = None, *, keepdims: bool = False, name: str | None = None) -> Tensor:
    """The mean over the given axes, or over all.

    Parameters
    ----------
    x : Tensor of a floating dtype
    axis : int or sequence of int, optional
        All axes by default.
    keepdims : bool
        Keep the reduced axes, with extent 1.

    Returns
    -------
    Tensor of x's dtype

    Raises
    ------
    ValueError
        For an axis that x has not, one named twice, and another dtype.

    Examples
    --------
    >>> from tapestry_exec import evaluate
    >>> from tapestry_plan import Graph, ops
    >>> g = Graph()
    >>> x = g.constant("x", [[1.0, 2.0], [3.0, 5.0]])
    >>> _ = g.output(ops.mean(x, axis=0), "y")
    >>> evaluate(g, {})["y"].tolist()
    [2.0, 3.5]

    References
    ----------
    ONNX ReduceMean; Array API mean.
    """


@operator(**_folded_by("max", "max"), adjoint=adjoints.extreme, local=same_anywhere)
def max(x: Tensor, axis: Axes = None, *, keepdims: bool = False, name: str | None = None) -> Tensor:
    """The maximum over the given axes, or over all.

    Parameters
    ----------
    x : Tensor
    axis : int or sequence of int, optional
        All axes by default.
    keepdims : bool
        Keep the reduced axes, with extent 1.

    Returns
    -------
    Tensor of x's dtype

    Raises
    ------
    ValueError
        For an axis that x has not, and one named twice.

    Examples
    --------
    >>> from tapestry_exec import evaluate
    >>> from tapestry_plan import Graph, ops
    >>> g = Graph()
    >>> x = g.constant("x", [[1.0, 2.0], [3.0, 5.0]])
    >>> _ = g.output(ops.max(x, axis=1), "y")
    >>> evaluate(g, {})["y"].tolist()
    [2.0, 5.0]

    References
    ----------
    ONNX ReduceMax; Array API max.
    """


@operator(**_folded_by("min", "min"), adjoint=adjoints.extreme, local=same_anywhere)
def min(x: Tensor, axis: Axes = None, *, keepdims: bool = False, name: str | None = None) -> Tensor:
    """The minimum over the given axes, or over all.

    Parameters
    ----------
    x : Tensor
    axis : int or sequence of int, optional
        All axes by default.
    keepdims : bool
        Keep the reduced axes, with extent 1.

    Returns
    -------
    Tensor of x's dtype

    Raises
    ------
    ValueError
        For an axis that x has not, and one named twice.

    Examples
    --------
    >>> from tapestry_exec import evaluate
    >>> from tapestry_plan import Graph, ops
    >>> g = Graph()
    >>> x = g.constant("x", [[1.0, 2.0], [3.0, 5.0]])
    >>> _ = g.output(ops.min(x, axis=0), "y")
    >>> evaluate(g, {})["y"].tolist()
    [1.0, 2.0]

    References
    ----------
    ONNX ReduceMin; Array API min.
    """


@operator(**_folded_by("prod", "prod"), dtype=numeric, adjoint=adjoints.product)
def prod(x: Tensor, axis: Axes = None, *, keepdims: bool = False, name: str | None = None) -> Tensor:
    """The product over the given axes, or over all; short integers and truth values are widened first.

    Of float16 the parts of a plan that splits it are float16 too: one beyond 65,504 is infinite; cast first.

    Parameters
    ----------
    x : Tensor of numbers or truth values
    axis : int or sequence of int, optional
        All axes by default.
    keepdims : bool
        Keep the reduced axes, with extent 1.

    Returns
    -------
    Tensor of x's dtype; of integers int64, or uint64, and of truth values int64

    Raises
    ------
    ValueError
        For an axis that x has not, one named twice, and another dtype.

    Examples
    --------
    >>> from tapestry_exec import evaluate
    >>> from tapestry_plan import Graph, ops
    >>> g = Graph()
    >>> x = g.constant("x", [[1.0, 2.0], [3.0, 5.0]])
    >>> _ = g.output(ops.prod(x), "y")
    >>> evaluate(g, {})["y"].tolist()
    30.0

    References
    ----------
    ONNX ReduceProd; Array API prod.
    """
    return _total(prod.op, x, axis, keepdims, name)


@operator(**_folded_by("any", "max"), dtype=truth, adjoint=adjoints.none)
def any(x: Tensor, axis: Axes = None, *, keepdims: bool = False, name: str | None = None) -> Tensor:
    """Whether any cell is true, over the given axes or all; of truth values.

    Parameters
    ----------
    x : Tensor of truth values
    axis : int or sequence of int, optional
        All axes by default.
    keepdims : bool
        Keep the reduced axes, with extent 1.

    Returns
    -------
    Tensor of x's dtype

    Raises
    ------
    ValueError
        For an axis that x has not, one named twice, and another dtype.

    Examples
    --------
    >>> from tapestry_exec import evaluate
    >>> from tapestry_plan import Graph, ops
    >>> g = Graph()
    >>> x = g.constant("x", [[1.0, 2.0], [3.0, 5.0]])
    >>> _ = g.output(ops.any(x > 2, axis=1), "y")
    >>> evaluate(g, {})["y"].tolist()
    [False, True]

    References
    ----------
    Array API any.
    """


@operator(**_folded_by("all", "min"), dtype=truth, adjoint=adjoints.none)
def all(x: Tensor, axis: Axes = None, *, keepdims: bool = False, name: str | None = None) -> Tensor:
    """Whether all cells are true, over the given axes or all; of truth values.

    Parameters
    ----------
    x : Tensor of truth values
    axis : int or sequence of int, optional
        All axes by default.
    keepdims : bool
        Keep the reduced axes, with extent 1.

    Returns
    -------
    Tensor of x's dtype

    Raises
    ------
    ValueError
        For an axis that x has not, one named twice, and another dtype.

    Examples
    --------
    >>> from tapestry_exec import evaluate
    >>> from tapestry_plan import Graph, ops
    >>> g = Graph()
    >>> x = g.constant("x", [[1.0, 2.0], [3.0, 5.0]])
    >>> _ = g.output(ops.all(x > 2, axis=1), "y")
    >>> evaluate(g, {})["y"].tolist()
    [False, True]

    References
    ----------
    Array API all.
    """
