"""Gathers and scatters: another tensor's values choose the cells.

Indices that are known when the graph is written are views (`Tensor.take`), whose regions are exact. Indices that are
computed may name any cell: an operator that is given them reads, or writes, the indexed axis whole, and plans split
the other axes only. Numbers in steps, which indices are often made of, each device computes for its own part.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from tapestry_plan.autodiff import adjoints
from tapestry_plan.ir import SHORT_DTYPES, Attrs, Axis, Graph, Scatter, Shape, Shard, Signature, Tensor, UpdateBlock
from tapestry_plan.ops import tuning
from tapestry_plan.ops.declaration import add_op, operator
from tapestry_plan.ops.operands import axis_of, named_dtype, need_indices, number_axes, touched
from tapestry_sets.limits import is_int, quote, take_array

COMBINED = {"none": "replace", "add": "add", "mul": "multiply", "min": "minimum", "max": "maximum"}
"""How a scatter may combine an update with the cell that is there: a function of the array namespace, or "replace"."""


def _indexed(dtypes: Sequence[str], attrs: Attrs) -> tuple[str, ...]:
    need_indices(dtypes[1], "operand 1")
    return (dtypes[0],)


def _updated(dtypes: Sequence[str], attrs: Attrs) -> tuple[str, ...]:
    need_indices(dtypes[1], "operand 1")
    if dtypes[2] != dtypes[0]:
        raise ValueError(f"operand 2 is {dtypes[2]}, operand 0 is {dtypes[0]}; cast them to one dtype")
    how = attrs["reduction"]
    if how != "none" and np.dtype(dtypes[0]).kind not in "iuf":
        raise ValueError(f"reduction is {quote(how)}, but operand 0 is {dtypes[0]}; cast it to numbers")
    return (dtypes[0],)


def _need_known(attrs: Attrs) -> None:
    if attrs["reduction"] not in COMBINED:
        raise ValueError(f"reduction is {quote(attrs['reduction'])}; it must be one of {list(COMBINED)}")


# -- gathers -------------------------------------------------------------------------------------------


def _take_signature(shapes: Sequence[Shape], attrs: Attrs) -> Signature:
    x, indices = shapes
    axis = axis_of(attrs["axis"], len(x))
    axes = number_axes((*x[:axis], *indices, *x[axis + 1 :]))
    names, after = [a.name for a in axes], axis + len(indices)
    read = touched(axes, [*names[:axis], "", *names[after:]], x)
    return Signature(axes, (read, touched(axes, names[axis:after])), (touched(axes),))


def _take_block(xp: Any, inputs: Sequence[Any], outputs: Sequence[Any], shard: Shard) -> None:
    x, indices = inputs
    axis = shard.attrs["axis"] % x.ndim
    least = None if shard.attrs.get("from_end", True) else 0
    outputs[0][...] = xp.take(x, _from_front(xp, indices, x.shape[axis], shard, least), axis=axis)


def _from_front(xp: Any, indices: Any, extent: int, shard: Shard, least: int | None = None) -> Any:
    """Indices that may count from the end, unless they have a least one, counted from the front."""
    first = -extent if least is None else least
    if ((indices < first) | (indices >= extent)).any():
        raise IndexError(f"an index is outside {first} … {extent - 1}, the cells of the indexed axis: {quote(indices)}")
    return xp.where(indices < 0, indices + extent, indices)


def _along(shapes: Sequence[Shape], attrs: Attrs) -> int:
    """The axis that the elements of operand 0 are indexed along; operand 1 has operand 0's rank and fits beside it."""
    x, indices = shapes[:2]
    axis = axis_of(attrs["axis"], len(x))
    if len(indices) != len(x) or any(m > n for k, (n, m) in enumerate(zip(x, indices, strict=True)) if k != axis):
        raise ValueError(
            f"operand 1 has shape {quote(indices)}, operand 0 {x}; the indices have its rank and, but for axis "
            f"{axis}, no more cells on any axis"
        )
    return axis


def _take_along_axis_signature(shapes: Sequence[Shape], attrs: Attrs) -> Signature:
    axis = _along(shapes, attrs)
    axes = number_axes(shapes[1])
    read = touched(axes, ["" if k == axis else a.name for k, a in enumerate(axes)], shapes[0])
    return Signature(axes, (read, touched(axes)), (touched(axes),))


def _take_along_axis_block(xp: Any, inputs: Sequence[Any], outputs: Sequence[Any], shard: Shard) -> None:
    x, indices = inputs
    axis = shard.attrs["axis"] % x.ndim
    where = _from_front(xp, indices, x.shape[axis], shard)
    outputs[0][...] = xp.take_along_axis(x, where.astype(np.int64), axis=axis)


def _gather_nd_signature(shapes: Sequence[Shape], attrs: Attrs) -> Signature:
    x, indices = shapes
    depth, outer = _depth(x, indices), len(indices) - 1
    axes = number_axes((*indices[:-1], *x[depth:]))
    names = [a.name for a in axes]
    read = touched(axes, [*[""] * depth, *names[outer:]], x)
    return Signature(axes, (read, touched(axes, [*names[:outer], ""], indices)), (touched(axes),))


def _depth(x: Shape, indices: Shape) -> int:
    """How many axes of operand 0 each row of indices names."""
    if not indices or not 1 <= indices[-1] <= len(x):
        raise ValueError(
            f"operand 1 has shape {quote(indices)}; its last axis names from 1 to {len(x)} axes of operand 0 of shape "
            f"{x}"
        )
    return indices[-1]


def _gather_nd_block(xp: Any, inputs: Sequence[Any], outputs: Sequence[Any], shard: Shard) -> None:
    x, indices = inputs
    outputs[0][...] = x[_cells(xp, x, indices, shard)]


def _cells(xp: Any, x: Any, indices: Any, shard: Shard) -> tuple[Any, ...]:
    return tuple(_from_front(xp, indices[..., k], x.shape[k], shard) for k in range(indices.shape[-1]))


# -- scatters ------------------------------------------------------------------------------------------


def _put_along_axis_signature(shapes: Sequence[Shape], attrs: Attrs) -> Signature:
    """Index axes are the axes of operand 0 beside the indexed one, where the indices cover them."""
    _need_known(attrs)
    axis = _along(shapes, attrs)
    x, indices, updates = shapes
    if updates != indices:
        raise ValueError(
            f"operand 2 has shape {updates}, operand 1 {quote(indices)}; there is one update for each index"
        )
    names = [f"i{k}" if k != axis and n == m else "" for k, (n, m) in enumerate(zip(x, indices, strict=True))]
    axes = tuple(Axis(name, n) for name, n in zip(names, x, strict=True) if name)
    each, few = touched(axes, names, x), touched(axes, names, indices)
    return Signature(axes, (each, few, few), (each,))


def _put_along_axis_block(xp: Any, inputs: Sequence[Any], outputs: Sequence[Any], shard: Shard) -> None:
    form = _elements(shard)
    (named,), updates = form.prepare(xp, inputs)
    rank = updates.ndim
    cells = [xp.arange(n).reshape(-1, *(1,) * (rank - k - 1)) for k, n in enumerate(updates.shape)]
    cells[form.turn] = named
    each = tuple(xp.broadcast_to(cell, updates.shape) for cell in cells)
    _put(xp, outputs[0], each, updates, shard.attrs["reduction"], form.turn)


def _elements(shard: Shard) -> Scatter:
    axis = shard.attrs["axis"] % len(shard.output_boxes[0].shape)

    def prepare(xp: Any, inputs: Sequence[Any]) -> tuple[Sequence[Any], Any]:
        x, indices, updates = inputs
        return (_from_front(xp, indices, x.shape[axis], shard),), updates

    return Scatter(COMBINED[shard.attrs["reduction"]], (axis,), axis, prepare)


def _put(xp: Any, out: Any, cells: tuple[Any, ...], updates: Any, how: str, axis: int) -> None:
    """Set cells, or combine them one update after the other, repeated cells as often as they come.

    Cells repeat only along one axis of the updates. But in NumPy nothing says which of several updates of a cell comes
    first, so they are done in turn.
    """
    if xp is np:
        if how == "none":
            out[cells] = updates
        else:
            getattr(np, COMBINED[how]).at(out, cells, updates)
        return
    for k in range(updates.shape[axis]):
        turn = (*(slice(None),) * axis, slice(k, k + 1))
        where = tuple(cell[turn] for cell in cells)
        given = updates[turn]
        out[where] = given if how == "none" else getattr(xp, COMBINED[how])(out[where], given)


def _scatter_nd_signature(shapes: Sequence[Shape], attrs: Attrs) -> Signature:
    """Index axes are the axes of operand 0 that the indices do not name."""
    _need_known(attrs)
    x, indices, updates = shapes
    depth = _depth(x, indices)
    if updates != (*indices[:-1], *x[depth:]):
        raise ValueError(
            f"operand 2 has shape {updates}; {(*indices[:-1], *x[depth:])} is needed: a row of indices "
            f"{quote(indices)} names cells {quote(x[depth:])} of operand 0"
        )
    rest = [f"i{k}" for k in range(depth, len(x))]
    axes = tuple(map(Axis, rest, x[depth:]))
    each, where = touched(axes, [*[""] * depth, *rest], x), touched(axes, [""] * len(indices), indices)
    given = touched(axes, [*[""] * (len(indices) - 1), *rest], updates)
    return Signature(axes, (each, where, given), (each,))


def _scatter_nd_block(xp: Any, inputs: Sequence[Any], outputs: Sequence[Any], shard: Shard) -> None:
    cells, given = _rows(shard).prepare(xp, inputs)
    rows = tuple(cell.reshape(-1) for cell in cells)
    _put(xp, outputs[0], rows, given, shard.attrs["reduction"], 0)


def _rows(shard: Shard) -> Scatter:
    box = shard.input_boxes[1]
    assert box is not None, "every part reads the indices"

    def prepare(xp: Any, inputs: Sequence[Any]) -> tuple[Sequence[Any], Any]:
        x, indices, updates = inputs
        given = updates.reshape(math.prod(indices.shape[:-1]), *updates.shape[indices.ndim - 1 :])
        each = len(given), *(1,) * (given.ndim - 1)
        return [cell.reshape(each) for cell in _cells(xp, x, indices, shard)], given

    return Scatter(COMBINED[shard.attrs["reduction"]], tuple(range(box.shape[-1])), 0, prepare)


# -- one hot -------------------------------------------------------------------------------------------


def _one_hot_signature(shapes: Sequence[Shape], attrs: Attrs) -> Signature:
    (indices,) = shapes
    depth = attrs.get("depth")
    if not is_int(depth, 1):
        raise ValueError(f"depth is {quote(depth)}; give an integer >= 1")
    axis = axis_of(attrs["axis"], len(indices) + 1)
    axes = number_axes((*indices[:axis], depth, *indices[axis:]))
    where = touched(axes, [a.name for k, a in enumerate(axes) if k != axis])
    return Signature(axes, (where,), (touched(axes),))


def _one_hot_dtype(dtypes: Sequence[str], attrs: Attrs) -> tuple[str, ...]:
    need_indices(dtypes[0], "operand 0")
    return (named_dtype(attrs["dtype"]),)


def _one_hot_block(xp: Any, inputs: Sequence[Any], outputs: Sequence[Any], shard: Shard) -> None:
    (indices,), (out,) = inputs, outputs
    attrs = shard.attrs
    axis = attrs["axis"] % out.ndim
    depth = attrs["depth"]
    begin, end = shard.range(f"i{axis}")
    row = xp.arange(begin, end).reshape(-1, *(1,) * (out.ndim - axis - 1))
    hot = xp.where(indices < 0, indices + depth, indices)
    out[...] = attrs["off"]
    xp.copyto(out, out.dtype.type(attrs["on"]), where=xp.expand_dims(hot, axis) == row)


# -- numbers in steps ----------------------------------------------------------------------------------


def _iota_signature(shapes: Sequence[Shape], attrs: Attrs) -> Signature:
    size = attrs.get("size")
    if shapes:
        raise ValueError(f"{len(shapes)} operands are given; numbers in steps have none")
    if not is_int(size, 1, tuning.MAX_CELLS):
        raise ValueError(f"size is {quote(size)}; give an integer from 1 to 2**60")
    made, first, step = np.dtype(named_dtype(attrs["dtype"])), attrs["start"], attrs["step"]
    given = f"start={quote(first)} and step={quote(step)}"
    if made.kind in "iu" and made.name not in SHORT_DTYPES:
        if not (is_int(first) and is_int(step)):
            raise ValueError(f"{given} must be integers, as dtype {made.name} is")
        ends, bounds = (first, first + (size - 1) * step), np.iinfo(made)
        if min(ends) < bounds.min or max(ends) > bounds.max:
            raise ValueError(f"{given}: some of {quote(size)} numbers do not fit {made.name}; give a wider dtype")
    elif not (math.isfinite(first) and math.isfinite(step)):
        raise ValueError(f"{given} must be finite")
    axes = number_axes((size,))
    return Signature(axes, (), (touched(axes, extents=(size,)),))


def _iota_dtype(dtypes: Sequence[str], attrs: Attrs) -> tuple[str, ...]:
    made = np.dtype(named_dtype(attrs["dtype"]))
    if made.kind not in "iuf" or made.name in SHORT_DTYPES:
        raise ValueError(f"dtype is {made.name}; give one of NumPy's integers or real numbers")
    return (made.name,)


def _iota_block(xp: Any, inputs: Sequence[Any], outputs: Sequence[Any], shard: Shard) -> None:
    (out,), (begin, end), attrs = outputs, shard.range("i0"), shard.attrs
    first, step = attrs["start"], attrs["step"]
    numbers = xp.arange(begin, end)
    if out.dtype.kind == "f":  # as NumPy's arange, whose steps are the first one; rounded once
        numbers, step = numbers.astype("float64"), (first + step) - first
    elif out.dtype == np.uint64:
        numbers = numbers.astype("uint64")
        first, step = (np.uint64(one % 2**64) for one in (first, step))
    out[...] = (numbers * step + first).astype(out.dtype)


@operator(block=_iota_block, signature=_iota_signature, dtype=_iota_dtype)
def iota(
    graph: Graph,
    size: int,
    *,
    start: float = 0,
    step: float = 1,
    dtype: Any = "int64",
    name: str | None = None,
) -> Tensor:
    """Numbers in steps, which no device stores before a run: each computes those of its part.

    Few numbers are better a constant (`Graph.constant`), as their values are then known to who reads them.

    Parameters
    ----------
    graph : Graph
    size : int
        How many, at least 1.
    start, step : float
        The first number, and what each has more than the one before; integers for a dtype of integers. Others are
        numbered in double precision, and rounded once.
    dtype : dtype, or its name

    Returns
    -------
    Tensor of shape (size,)

    Raises
    ------
    ValueError
        For other dtypes than NumPy's integers and real numbers, and for integers that do not fit the dtype.

    Examples
    --------
    >>> from tapestry_exec import evaluate
    >>> from tapestry_plan import Graph, ops
    >>> g = Graph()
    >>> _ = g.output(ops.iota(g, 4, start=10, step=-3), "y")
    >>> evaluate(g, {})["y"].tolist()
    [10, 7, 4, 1]

    References
    ----------
    ONNX Range; NumPy's arange.
    """
    made = np.dtype(named_dtype(dtype, "iota: "))
    first, each = (start, step) if made.kind in "iu" else (float(start), float(step))
    return cast(Tensor, graph.op(iota.op, name=name, size=size, start=first, step=each, dtype=made.name))


@operator(block=_take_block, signature=_take_signature, dtype=_indexed, adjoint=adjoints.take, rows=True)
def take(
    x: Tensor,
    indices: Tensor | Sequence[Any] | NDArray[Any],
    axis: int = 0,
    *,
    from_end: bool = True,
    name: str | None = None,
) -> Tensor:
    """Cells of x along an axis, by index; negative indices count from the end.

    Known indices make a view, with the exact cells that each part reads. A tensor of indices makes an operator that
    plans split along every axis of its result: each part reads x whole along the indexed axis.

    Parameters
    ----------
    x : Tensor
    indices : Tensor of integers, or array-like of int
        Outside −n … n − 1 an error: here if they are known, in the run if they are not.
    axis : int
    from_end : bool
        Whether there may be negative ones; else they are an error too.

    Returns
    -------
    Tensor of shape ``(*x.shape[:axis], *indices.shape, *x.shape[axis + 1:])``

    Examples
    --------
    >>> from tapestry_plan import Graph
    >>> from tapestry_plan.ops import take
    >>> g = Graph()
    >>> x = g.input("x", (5, 6))
    >>> take(x, [[0, 4], [2, 2]]).shape, len(g.nodes)
    ((2, 2, 6), 0)
    >>> take(x, g.input("i", (3,), "int64"), axis=1).shape, len(g.nodes)
    ((5, 3), 1)

    References
    ----------
    ONNX Gather; NumPy's take.
    """
    if isinstance(indices, Tensor):
        return add_op(take.op, x, indices, name=name, axis=axis, from_end=from_end)
    known = take_array(indices, "take: indices", "integers, in lists of one length")
    if not from_end and (known < 0).any():
        raise IndexError(f"take: indices are {quote(known)}, some below 0; give indices from 0, or from_end=True")
    at = axis_of(axis, x.ndim, "take: ")
    with x.graph._all_or_nothing():
        taken = x.take(known.reshape(-1), axis=at)
        return taken if known.ndim == 1 else taken.reshape((*x.shape[:at], *known.shape, *x.shape[at + 1 :]))


@operator(
    block=_take_along_axis_block,
    signature=_take_along_axis_signature,
    dtype=_indexed,
    adjoint=adjoints.take_along_axis,
    rows=True,
)
def take_along_axis(x: Tensor, indices: Tensor, axis: int = -1, *, name: str | None = None) -> Tensor:
    """For each cell of the indices, the cell of x at that index of an axis and at the same place on the others.

    Plans split every axis of the result; each part reads x whole along the indexed axis.

    Parameters
    ----------
    x : Tensor
    indices : Tensor of integers
        Of x's rank, and on the other axes of no more cells. Negative ones count from the end.
    axis : int

    Returns
    -------
    Tensor of the indices' shape and x's dtype

    Raises
    ------
    ValueError
        For shapes that do not fit, and indices of another dtype; one that is outside is an error of the run.

    Examples
    --------
    >>> from tapestry_exec import evaluate
    >>> from tapestry_plan import Graph, ops
    >>> g = Graph()
    >>> x, order = g.constant("x", [[10.0, 20.0, 30.0]]), g.constant("order", [[2, 0, -1]])
    >>> _ = g.output(ops.take_along_axis(x, order), "y")
    >>> evaluate(g, {})["y"].tolist()
    [[30.0, 10.0, 30.0]]

    References
    ----------
    ONNX GatherElements; NumPy's take_along_axis.
    """


@operator(block=_gather_nd_block, signature=_gather_nd_signature, dtype=_indexed, adjoint=adjoints.gather_nd, rows=True)
def gather_nd(x: Tensor, indices: Tensor, *, name: str | None = None) -> Tensor:
    """The part of x at each row of indices, which name its first axes.

    Plans split every axis of the result; each part reads x whole along the axes that are indexed.

    Parameters
    ----------
    x : Tensor
    indices : Tensor of integers
        Of shape (…, depth): each row names the first `depth` axes of x.

    Returns
    -------
    Tensor of shape ``(*indices.shape[:-1], *x.shape[depth:])`` and x's dtype

    Raises
    ------
    ValueError
        For rows that name more axes than x has, and indices of another dtype; one that is outside is an error of
        the run.

    Examples
    --------
    >>> from tapestry_exec import evaluate
    >>> from tapestry_plan import Graph, ops
    >>> g = Graph()
    >>> x, cells = g.constant("x", [[1.0, 2.0], [3.0, 4.0]]), g.constant("cells", [[0, 1], [1, 0]])
    >>> _ = g.output(ops.gather_nd(x, cells), "y")
    >>> evaluate(g, {})["y"].tolist()
    [2.0, 3.0]

    References
    ----------
    ONNX GatherND without batch axes.
    """


@operator(
    block=UpdateBlock(_put_along_axis_block),
    signature=_put_along_axis_signature,
    flop=lambda signature, attrs: float(math.prod(signature.inputs[1].projection.shape)),
    dtype=_updated,
    adjoint=adjoints.scatter("put_along_axis", "take_along_axis"),
    work=_elements,
)
def put_along_axis(
    x: Tensor, indices: Tensor, updates: Tensor, axis: int = 0, *, reduction: str = "none", name: str | None = None
) -> Tensor:
    """x with cells along an axis replaced by updates, or combined with them.

    Plans split the axes beside the indexed one that the indices cover wholly; the others are read and written whole.

    Parameters
    ----------
    x : Tensor
    indices : Tensor of integers
        Of x's rank; a cell named twice keeps one of the updates, or is combined with all.
    updates : Tensor
        Of x's dtype and the indices' shape.
    reduction : "none", "add", "mul", "min" or "max"

    Returns
    -------
    Tensor of x's shape and dtype

    Raises
    ------
    ValueError
        For shapes or dtypes that do not fit, and another reduction; an index that is outside is an error of the run.

    Examples
    --------
    >>> from tapestry_exec import evaluate
    >>> from tapestry_plan import Graph, ops
    >>> g = Graph()
    >>> x, at = g.constant("x", [0.0, 0.0, 0.0]), g.constant("at", [2, 0, 2])
    >>> updates = g.constant("updates", [1.0, 5.0, 10.0])
    >>> _ = g.output(ops.put_along_axis(x, at, updates, reduction="add"), "y")
    >>> evaluate(g, {})["y"].tolist()
    [5.0, 0.0, 11.0]

    References
    ----------
    ONNX ScatterElements.
    """


@operator(
    block=UpdateBlock(_scatter_nd_block),
    signature=_scatter_nd_signature,
    flop=lambda signature, attrs: float(math.prod(signature.inputs[2].projection.shape)),
    dtype=_updated,
    adjoint=adjoints.scatter("scatter_nd", "gather_nd"),
    work=_rows,
)
def scatter_nd(
    x: Tensor, indices: Tensor, updates: Tensor, *, reduction: str = "none", name: str | None = None
) -> Tensor:
    """x with the part at each row of indices, which name its first axes, replaced by an update, or combined with it.

    Plans split the axes that are not indexed; where there are none, the operator stays whole.

    Parameters
    ----------
    x : Tensor
    indices : Tensor of integers
        Of shape (…, depth): each row names the first `depth` axes of x.
    updates : Tensor of shape ``(*indices.shape[:-1], *x.shape[depth:])``
        Of x's dtype.
    reduction : "none", "add", "mul", "min" or "max"

    Returns
    -------
    Tensor of x's shape and dtype

    Raises
    ------
    ValueError
        For shapes or dtypes that do not fit, and another reduction; an index that is outside is an error of the run.

    Examples
    --------
    >>> from tapestry_exec import evaluate
    >>> from tapestry_plan import Graph, ops
    >>> g = Graph()
    >>> x, rows = g.constant("x", [[0.0, 0.0], [1.0, 1.0]]), g.constant("rows", [[1]])
    >>> updates = g.constant("updates", [[7.0, 8.0]])
    >>> _ = g.output(ops.scatter_nd(x, rows, updates), "y")
    >>> evaluate(g, {})["y"].tolist()
    [[0.0, 0.0], [7.0, 8.0]]

    References
    ----------
    ONNX ScatterND.
    """


@operator(block=_one_hot_block, signature=_one_hot_signature, dtype=_one_hot_dtype, adjoint=adjoints.none)
def one_hot(
    indices: Tensor,
    depth: int,
    *,
    axis: int = -1,
    on: float = 1,
    off: float = 0,
    dtype: Any = "float32",
    name: str | None = None,
) -> Tensor:
    """`on` where the new axis has the index of a cell, `off` elsewhere; indices out of range have no `on`.

    Every axis of the result may be split, the new one too.

    Parameters
    ----------
    indices : Tensor of integers
        Negative ones count from the end.
    depth : int
        Cells of the new axis, at least 1.
    axis : int
        Of the result, where the new axis is.
    on, off : float
    dtype : dtype, or its name

    Returns
    -------
    Tensor of the dtype, of one axis more than the indices

    Raises
    ------
    ValueError
        For indices of another dtype, a depth below 1, and an axis that the result has not.

    Examples
    --------
    >>> from tapestry_exec import evaluate
    >>> from tapestry_plan import Graph, ops
    >>> g = Graph()
    >>> _ = g.output(ops.one_hot(g.constant("i", [1, -1, 5]), depth=3), "y")
    >>> evaluate(g, {})["y"].tolist()
    [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [0.0, 0.0, 0.0]]

    References
    ----------
    ONNX OneHot.
    """
    made = named_dtype(dtype, "one_hot: ")
    return add_op(one_hot.op, indices, name=name, depth=depth, axis=axis, on=float(on), off=float(off), dtype=made)
