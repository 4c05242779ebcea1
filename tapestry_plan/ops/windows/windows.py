"""Pools: windows that move over spatial axes, folded."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tapestry_plan.ir import Attrs, Axis, Shape, Shard, Signature, Tensor, once_for_shard
from tapestry_plan.ops.cells import curves
from tapestry_plan.ops.declaration import operator
from tapestry_plan.ops.expansions import windows_max, windows_mean, windows_sum
from tapestry_plan.ops.operands import floating, numeric, spatial_names, spatial_of, touched
from tapestry_plan.ops.windows.window import Window, offsets_of
from tapestry_sets.limits import check_arguments


def _pool_signature(shapes: Sequence[Shape], attrs: Attrs, pad: float = 0.0, has_extents: bool = False) -> Signature:
    (x,) = shapes
    names = spatial_names(x, "operand 0")
    window = Window.of_pool(len(names), attrs)
    for axis, (before, after, reach) in enumerate(zip(window.begins, window.ends, window.reach, strict=True)):
        if max(before, after) >= reach:
            raise ValueError(
                f"pads of {before} and {after} on spatial axis {axis} leave windows of {reach} cells wholly "
                "in the padding; pad by less than the window"
            )
    out = map(Axis, ("n", "c", *names), (*x[:2], *window.out_shape(x[2:], bool(attrs.get("ceil_mode")))))
    axes = (*out, *(Axis(f"k{name}", size, "reduction") for name, size in zip(names, window.kernel, strict=True)))
    read = touched(axes, ["n", "c", *window.forms(names)], pad=pad, extents=x if has_extents else None)
    return Signature(axes, (read,), (touched(axes, ["n", "c", *names]),))


def _folded_by(fold: str, merge: str, pad: float = 0.0) -> dict[str, Any]:
    """What pools that fold windows by a function of the array namespace declare."""

    def block(xp: Any, inputs: Sequence[Any], outputs: Sequence[Any], shard: Shard) -> None:
        _fold_windows(getattr(xp, fold), inputs[0], outputs[0], shard)

    return {"block": block, "signature": partial(_pool_signature, pad=pad), "reduction": merge, "rows": True}


def _average_pool_block(xp: Any, inputs: Sequence[Any], outputs: Sequence[Any], shard: Shard) -> None:
    (out,) = outputs
    _fold_windows(xp.add, inputs[0], out, shard)
    counts = _count_cells(shard)
    if all((c == c[0]).all() for c in counts):
        xp.divide(out, out.dtype.type(math.prod(int(c[0]) for c in counts)), out=out)
        return
    for axis, count in enumerate(counts):
        ends = [0, *(np.flatnonzero(np.diff(count)) + 1).tolist(), len(count)]
        for begin, end in pairwise(ends):  # cells of one count at a time: the counts need no array on the device
            part = out[(..., slice(begin, end), *(slice(None),) * (len(counts) - axis - 1))]
            xp.divide(part, out.dtype.type(count[begin]), out=part)


@once_for_shard
def _count_cells(shard: Shard) -> list[NDArray[np.intp]]:
    """Along each axis how many cells of a window count toward its average."""
    extents = shard.signature.inputs[0].extents
    assert extents is not None, "the signature of average_pool says where its tensor ends"
    names, padded = spatial_of(shard), bool(shard.attrs.get("count_include_pad"))
    window = Window.of_pool(len(names), shard.attrs)
    spans = [range(*shard.range(name)) for name in names]
    return [window.counts(axis, span, extents[2 + axis], padded) for axis, span in enumerate(spans)]


@once_for_shard
def _list_offsets(shard: Shard) -> list[tuple[slice, ...]]:
    """The cells that each kernel offset reads, of one batch item."""
    names = spatial_of(shard)
    window = Window.of_pool(len(names), shard.attrs)
    return [(slice(None), *cells) for cells in offsets_of(shard, window, names)]


def _fold_windows(fold: Any, x: Any, out: Any, shard: Shard) -> None:
    """Fold each window, one kernel offset after the other, a batch item at a time."""
    first, *others = _list_offsets(shard)
    for n in range(out.shape[0]):
        out[n] = x[n][first]
        for cells in others:
            fold(out[n], x[n][cells], out=out[n])


def _local_pool(shard: Shard, shapes: Sequence[Shape]) -> Attrs:
    """A block holds its padding."""
    return {**shard.attrs, "pads": 0}


def _local_average(shard: Shard, shapes: Sequence[Shape]) -> Attrs | None:
    """None where a mean at the edge is over fewer cells."""
    pads = shard.attrs["pads"]
    is_padded = any(pads) if isinstance(pads, Sequence) else bool(pads)
    is_uneven = shard.attrs["ceil_mode"] or (is_padded and not shard.attrs["count_include_pad"])
    return None if is_uneven else {**shard.attrs, "pads": 0}


@operator(**_folded_by("maximum", "max", float("-inf")), dtype=floating, expansions=(windows_max,), local=_local_pool)
def max_pool(
    x: Tensor,
    kernel: int | Sequence[int],
    *,
    strides: int | Sequence[int] = 1,
    pads: int | Sequence[int] = 0,
    dilations: int | Sequence[int] = 1,
    ceil_mode: bool = False,
    name: str | None = None,
) -> Tensor:
    """The maximum of each window; the parameters are those of `conv`.

    With `ceil_mode` a last window may reach beyond the padding.

    Parameters
    ----------
    x : Tensor of shape (n, channels, …)
        Of a floating dtype, with one to three spatial axes.
    kernel : int or sequence of int
        Cells of a window on each spatial axis.
    strides, dilations : int or sequence of int
        From a window to the next one, and from a cell of a window to the next one.
    pads : int or sequence of int
        Cells before each spatial axis, then behind each.
    ceil_mode : bool
        Whether a last window may reach beyond the padding.

    Returns
    -------
    Tensor of shape (n, channels, …) and x's dtype

    Raises
    ------
    ValueError
        For another shape or dtype, and windows that do not fit.

    Examples
    --------
    >>> from tapestry_exec import evaluate
    >>> from tapestry_plan import Graph, ops
    >>> g = Graph()
    >>> x = g.constant("x", [[[1.0, 5.0, 2.0, 3.0, 9.0]]])
    >>> _ = g.output(ops.max_pool(x, 3, strides=2), "y")
    >>> evaluate(g, {})["y"].tolist()
    [[[5.0, 9.0]]]

    References
    ----------
    ONNX MaxPool.
    """


@operator(
    block=_average_pool_block,
    signature=partial(_pool_signature, has_extents=True),
    reduction="sum",
    dtype=floating,
    expansions=(windows_mean,),
    local=_local_average,
    rows=True,
)
def average_pool(
    x: Tensor,
    kernel: int | Sequence[int],
    *,
    strides: int | Sequence[int] = 1,
    pads: int | Sequence[int] = 0,
    dilations: int | Sequence[int] = 1,
    ceil_mode: bool = False,
    count_include_pad: bool = False,
    name: str | None = None,
) -> Tensor:
    """The mean of each window; the parameters are those of `max_pool`.

    With `count_include_pad` the cells of the padding count, as zeros; cells beyond it never do.

    Parameters
    ----------
    x : Tensor of shape (n, channels, …)
        Of a floating dtype, with one to three spatial axes.
    kernel : int or sequence of int
        Cells of a window on each spatial axis.
    strides, dilations : int or sequence of int
        From a window to the next one, and from a cell of a window to the next one.
    pads : int or sequence of int
        Cells before each spatial axis, then behind each.
    ceil_mode : bool
        Whether a last window may reach beyond the padding.
    count_include_pad : bool
        Whether cells of the padding count.

    Returns
    -------
    Tensor of shape (n, channels, …) and x's dtype

    Raises
    ------
    ValueError
        For another shape or dtype, and windows that do not fit.

    Examples
    --------
    >>> from tapestry_exec import evaluate
    >>> from tapestry_plan import Graph, ops
    >>> g = Graph()
    >>> x = g.constant("x", [[[1.0, 5.0, 2.0, 3.0, 9.0]]])
    >>> _ = g.output(ops.average_pool(x, 2, strides=2, ceil_mode=True), "y")
    >>> evaluate(g, {})["y"].tolist()
    [[[3.0, 2.5, 9.0]]]

    References
    ----------
    ONNX AveragePool.
    """


@operator(**_folded_by("add", "sum"), dtype=numeric, expansions=(windows_sum,))
def sum_pool(
    x: Tensor,
    kernel: int | Sequence[int],
    *,
    strides: int | Sequence[int] = 1,
    pads: int | Sequence[int] = 0,
    dilations: int | Sequence[int] = 1,
    ceil_mode: bool = False,
    name: str | None = None,
) -> Tensor:
    """The sum of each window, the padding being zeros; the parameters are those of `max_pool`.

    Parameters
    ----------
    x : Tensor of shape (n, channels, …)
        Of a dtype of numbers, with one to three spatial axes.
    kernel : int or sequence of int
        Cells of a window on each spatial axis.
    strides, dilations : int or sequence of int
        From a window to the next one, and from a cell of a window to the next one.
    pads : int or sequence of int
        Cells before each spatial axis, then behind each.
    ceil_mode : bool
        Whether a last window may reach beyond the padding.

    Returns
    -------
    Tensor of shape (n, channels, …) and x's dtype

    Raises
    ------
    ValueError
        For another shape or dtype, and windows that do not fit.

    Examples
    --------
    >>> from tapestry_exec import evaluate
    >>> from tapestry_plan import Graph, ops
    >>> g = Graph()
    >>> x = g.constant("x", [[[1.0, 5.0, 2.0, 3.0, 9.0]]])
    >>> _ = g.output(ops.sum_pool(x, 2, pads=1, strides=2), "y")
    >>> evaluate(g, {})["y"].tolist()
    [[[1.0, 7.0, 12.0]]]
    """


@check_arguments
def lp_pool(x: Tensor, kernel: int | Sequence[int], *, p: int = 2, name: str | None = None, **window: Any) -> Tensor:
    """(Σ |x|ᵖ)^(1/p) over each window: powers, their `sum_pool`, and the root, each an operator of its own.

    Parameters
    ----------
    x : Tensor of a floating dtype
    p : int
        At least 1.
    **window
        The other parameters of `sum_pool`.

    Raises
    ------
    ValueError
        For a p below 1, another shape or dtype, and windows that do not fit.

    Examples
    --------
    >>> from tapestry_exec import evaluate
    >>> from tapestry_plan import Graph, ops
    >>> g = Graph()
    >>> x = g.constant("x", [[[3.0, 4.0, 0.0]]])
    >>> _ = g.output(ops.lp_pool(x, 2), "y")
    >>> evaluate(g, {})["y"].tolist()
    [[[5.0, 4.0]]]

    References
    ----------
    ONNX LpPool.
    """
    return p_norm(x, p, lambda powers: sum_pool(powers, kernel, name=name, **window))


@check_arguments
def p_norm(x: Tensor, p: int, total: Callable[[Tensor], Tensor]) -> Tensor:
    """(Σ |x|ᵖ)^(1/p), the sum being what `total` makes of the powers.

    Parameters
    ----------
    x : Tensor of a floating dtype
    p : int
        At least 1.
    total : callable
        ``(powers) -> Tensor``.

    Returns
    -------
    Tensor of x's dtype

    Raises
    ------
    ValueError
        For a p below 1, and integers in x.

    Examples
    --------
    >>> from tapestry_exec import evaluate
    >>> from tapestry_plan import Graph, ops
    >>> g = Graph()
    >>> x = g.constant("x", [[3.0, 4.0], [6.0, 8.0]])
    >>> _ = g.output(ops.p_norm(x, 2, lambda powers: powers.sum(axis=1)), "y")
    >>> evaluate(g, {})["y"].tolist()
    [5.0, 10.0]

    References
    ----------
    ONNX ReduceL1, ReduceL2.
    """
    if p < 1:
        raise ValueError(f"p is {p}; give an integer >= 1")
    floating([x.dtype], {})
    with x._all_or_nothing():
        if p == 1:
            return total(abs(x))
        if p == 2:
            return curves.sqrt(total(x * x))
        return total(abs(x) ** p) ** (1 / p)
