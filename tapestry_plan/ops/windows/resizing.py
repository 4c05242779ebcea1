"""Resizing by nearest cells or linear interpolation, and views that trade channels for space.

Output o of an axis lies at α·o + β among the input's cells, α = b/a a fraction. With o = a·q + r it reads, for each r,
cells at a fixed distance from b·q: so the projection has the quotient q, and a box over all r.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tapestry_plan.ir import Attrs, Backward, LinearForm, Operand, Shape, Shard, Signature, Tensor, project
from tapestry_plan.ops import tuning
from tapestry_plan.ops.declaration import add_op, operator
from tapestry_plan.ops.operands import need_rank, number_axes, touched
from tapestry_sets.limits import check_arguments, is_int, quote

Int64 = NDArray[np.int64]
MODES = ("nearest", "linear")
"""How `resize` finds the value of a cell: the nearest one, or between two on each axis.

Examples
--------
>>> from tapestry_plan import Graph, ops
>>> ops.resize(Graph().input("x", (1, 1, 4, 4)), (1, 1, 8, 8), mode=ops.MODES[1]).shape
(1, 1, 8, 8)
"""
COORDINATES = ("half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners")
"""How `resize` may place outputs among the cells of its operand, by ONNX's names.

Examples
--------
>>> from tapestry_plan import Graph, ops
>>> g = Graph()
>>> [ops.resize(g.input(how, (1, 1, 4, 4)), (1, 1, 8, 8), coordinates=how).shape for how in ops.COORDINATES[:2]]
[(1, 1, 8, 8), (1, 1, 8, 8)]
"""
NEAREST = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
"""How `resize` rounds places in nearest mode, by ONNX's names.

Examples
--------
>>> from tapestry_plan import Graph, ops
>>> ops.resize(Graph().input("x", (1, 1, 4, 4)), (1, 1, 8, 8), nearest=ops.NEAREST[2]).shape
(1, 1, 8, 8)
"""


def _places(o: Int64, place: tuple[Fraction, Fraction]) -> tuple[Int64, int]:
    """Where outputs lie among the input's cells: numerators over one denominator, in exact integers."""
    alpha, beta = place
    below = alpha.denominator * beta.denominator
    return o * (alpha.numerator * beta.denominator) + beta.numerator * alpha.denominator, below


def _place(n: int, m: int, scale: Fraction, coordinates: str) -> tuple[Fraction, Fraction]:
    """α and β of an axis of n cells that gets m."""
    half = Fraction(1, 2)
    if coordinates == "align_corners":
        # The last cells lie on each other where the factor gives a whole extent. ONNX keeps the fraction of one that
        # does not, so that its last cell falls short of the end.
        length = n * scale if math.floor(n * scale) == m else Fraction(m)
        return ((n - 1) / (length - 1) if m > 1 else Fraction(0)), Fraction(0)
    if coordinates == "asymmetric":
        return 1 / scale, Fraction(0)
    if coordinates == "pytorch_half_pixel" and m == 1:
        return Fraction(0), Fraction(0)
    return 1 / scale, half / scale - half


def _first_cells(o: Int64, place: tuple[Fraction, Fraction], attrs: Attrs) -> Int64:
    """The cell that an output reads, the first one of two in linear mode; it may lie outside the tensor."""
    above, below = _places(o, place)
    how = "floor" if attrs["mode"] == "linear" else attrs["nearest"]
    if how == "floor":
        return above // below
    if how == "ceil":
        return -(-above // below)
    if how == "round_prefer_ceil":
        return (2 * above + below) // (2 * below)
    return -((below - 2 * above) // (2 * below))


def _places_of(shape: Shape, attrs: Attrs) -> list[tuple[Fraction, Fraction]]:
    """α and β of every axis.

    Raises
    ------
    ValueError
        For sizes and scales that do not fit the shape or each other, and unknown modes.
    """
    sizes = attrs.get("sizes")
    if not isinstance(sizes, tuple) or len(sizes) != len(shape) or not all(is_int(m, 1) for m in sizes):
        raise ValueError(f"sizes is {quote(sizes)}; give an integer >= 1 for each axis of the shape {quote(shape)}")
    for key, known in (("mode", MODES), ("coordinates", COORDINATES), ("nearest", NEAREST)):
        if attrs.get(key, known[0]) not in known:
            raise ValueError(f"{key} is {quote(attrs[key])}; known are {known}")
    scales = attrs.get("scales") or tuple(Fraction(m, n) for n, m in zip(shape, sizes, strict=True))
    if len(scales) != len(shape) or any(scale <= 0 for scale in scales):
        raise ValueError(f"scales is {quote(scales)}; give a positive number for each axis of the shape {quote(shape)}")
    exact = [
        Fraction(scale).limit_denominator(tuning.MAX_DENOMINATOR) if attrs.get("scales") else scale for scale in scales
    ]
    coordinates = attrs["coordinates"]
    return [_place(n, m, scale, coordinates) for n, m, scale in zip(shape, sizes, exact, strict=True)]


def _resize_signature(shapes: Sequence[Shape], attrs: Attrs) -> Signature:
    (x,) = shapes
    places = _places_of(x, attrs)
    axes = number_axes(attrs["sizes"])
    forms: list[LinearForm] = []
    box, splits = [], {}
    for axis, n, place in zip(axes, x, places, strict=True):
        step, period = place[0].numerator, place[0].denominator
        low, high = _reach(n, axis.size, place, attrs)
        if period > 1:
            splits[axis.name] = period
        forms.append({f"{axis.name}//" if period > 1 else axis.name: step, "": low})
        box.append(high - low + 1)
    read = Operand(project(axes, forms, box, splits), pad=0.0, extents=x)
    return Signature(axes, (read,), (touched(axes),))


def _reach(n: int, m: int, place: tuple[Fraction, Fraction], attrs: Attrs) -> tuple[int, int]:
    """The first and the last cell that outputs a·q … a·q + a − 1 read, relative to b·q."""
    o = np.arange(m)
    first = _first_cells(o, place, attrs)
    last = first + (_weights(o, place) != 0) if attrs["mode"] == "linear" else first
    runs = place[0].numerator * (o // place[0].denominator)
    return int((first.clip(0, n - 1) - runs).min()), int((last.clip(0, n - 1) - runs).max())


def _weights(o: Int64, place: tuple[Fraction, Fraction]) -> NDArray[np.float64]:
    """The share of the second cell of linear interpolation."""
    above, below = _places(o, place)
    return above % below / below


def _resize_block(xp: Any, inputs: Sequence[Any], outputs: Sequence[Any], shard: Shard) -> None:
    (out,) = outputs
    extents, box = shard.signature.inputs[0].extents, shard.input_boxes[0]
    assert extents is not None and box is not None, "the signature of resize says where its tensor ends"
    made = inputs[0]
    for k, (n, place) in enumerate(zip(extents, _places_of(extents, shard.attrs), strict=True)):
        begin, end = shard.range(f"i{k}")
        o = xp.arange(begin, end)  # computed where they are used, the cells' numbers need not be brought there
        first = _first_cells(o, place, shard.attrs)
        lower = xp.take(made, first.clip(0, n - 1) - box.start[k], axis=k)
        if shard.attrs["mode"] == "linear" and _weights(np.arange(begin, end), place).any():
            share = _weights(o, place)
            second = (first + (share != 0)).clip(0, n - 1) - box.start[k]
            column = share.astype(out.dtype).reshape(-1, *(1,) * (out.ndim - k - 1))
            lower = lower + (xp.take(made, second, axis=k) - lower) * column
        made = lower
    out[...] = made


def _resize_adjoint(b: Backward) -> list[Tensor | None]:
    """Each input cell receives what outputs take of it: a product with the axis's matrix, axis after axis."""
    (x,), grad = b.inputs, b.grad
    for k, (n, place) in enumerate(zip(x.shape, _places_of(x.shape, b.attrs), strict=True)):
        o = np.arange(grad.shape[k])
        first = _first_cells(o, place, b.attrs)
        share = _weights(o, place) if b.attrs["mode"] == "linear" else np.zeros(len(o))
        matrix = np.zeros((len(o), n))
        np.add.at(matrix, (o, first.clip(0, n - 1)), 1 - share)
        np.add.at(matrix, (o, (first + (share != 0)).clip(0, n - 1)), share)
        if np.array_equal(matrix, np.eye(len(o), n)):
            continue
        rows = grad.moveaxis(k, -1)
        taken = x.graph.constant(x.graph._fresh("resizing"), matrix.astype(x.dtype))
        made = rows.reshape(rows.size // len(o), len(o)) @ taken
        grad = made.reshape(*rows.shape[:-1], n).moveaxis(-1, k)
    return [grad]


def _resize_dtype(dtypes: Sequence[str], attrs: Attrs) -> tuple[str, ...]:
    if attrs.get("mode") == "linear" and np.dtype(dtypes[0]).kind != "f":
        raise ValueError(f"operand 0 is {dtypes[0]}, but interpolation works on floating numbers; cast it")
    return (dtypes[0],)


@operator(
    block=_resize_block,
    signature=_resize_signature,
    flop=lambda signature, attrs: 3.0 * len(signature.axes) if attrs["mode"] == "linear" else 1.0,
    dtype=_resize_dtype,
    adjoint=_resize_adjoint,
)
def resize(
    x: Tensor,
    sizes: Sequence[int] | None = None,
    *,
    scales: Sequence[float] | None = None,
    mode: str = "nearest",
    coordinates: str = "half_pixel",
    nearest: str = "round_prefer_floor",
    name: str | None = None,
) -> Tensor:
    """x with other extents, each cell the nearest one of x, or interpolated between two on each axis.

    Every axis of the result may be split. With a factor a/b the outputs come in runs of a, each b cells further on: a
    part reads, for every run that it has a share in, the cells from the first to the last that a run needs. Parts that
    are cut between runs share nothing where a whole factor repeats nearest cells, and a neighbor or two where cells
    are interpolated.

    Parameters
    ----------
    x : Tensor
    sizes : sequence of int, optional
        Extents of the result, one for each axis.
    scales : sequence of float, optional
        Factors, one for each axis; without sizes the result has ⌊extent · factor⌋ cells. A factor is taken to be the
        nearest fraction with a denominator up to 4096. Without scales the factors are those of the sizes.
    mode : "nearest" or "linear"
    coordinates : "half_pixel", "pytorch_half_pixel", "asymmetric" or "align_corners"
        How output o is placed among the cells of x.
    nearest : "round_prefer_floor", "round_prefer_ceil", "floor" or "ceil"
        How places are rounded in nearest mode.

    Raises
    ------
    ValueError
        For sizes or scales that do not fit x, neither of both, or unknown modes; for interpolated integers.

    Examples
    --------
    >>> from tapestry_plan import Graph
    >>> from tapestry_plan.ops import resize
    >>> g = Graph()
    >>> x = g.input("x", (1, 3, 8, 8))
    >>> resize(x, (1, 3, 12, 16), mode="linear", name="up").shape
    (1, 3, 12, 16)
    >>> g.signature("up").inputs[0].projection.splits
    ((2, 3), (3, 2))

    References
    ----------
    ONNX Resize.
    """
    if sizes is None:
        if scales is None:
            raise ValueError("resize: give sizes or scales")
        if len(scales) != x.ndim:
            raise ValueError(
                f"resize: scales is {quote(tuple(scales))}; give one for each axis of the shape {quote(x.shape)}"
            )
        for scale in scales:
            if not (math.isfinite(scale) and scale > 0):
                raise ValueError(
                    f"resize: scales is {quote(tuple(scales))}; {quote(scale)} must be a finite number above 0"
                )
        exact = [Fraction(float(scale)).limit_denominator(tuning.MAX_DENOMINATOR) for scale in scales]
        sizes = [math.floor(n * scale) for n, scale in zip(x.shape, exact, strict=True)]
    given = None if scales is None else tuple(float(scale) for scale in scales)
    how = {"mode": mode, "coordinates": coordinates, "nearest": nearest}
    return add_op(resize.op, x, name=name, sizes=tuple(int(m) for m in sizes), scales=given, **how)


@check_arguments
def depth_to_space(x: Tensor, block: int, *, mode: str = "DCR") -> Tensor:
    """Channels laid out as blocks of block × block cells: (n, c, h, w) to (n, c/block², h·block, w·block), as a view.

    Parameters
    ----------
    x : Tensor of shape (n, channels, h, w)
    block : int
        Its square divides the channels.
    mode : "DCR" or "CRD"
        Whether the block's place is in the outer or the inner part of the channel's number.

    Returns
    -------
    Tensor of shape (n, channels/block², h·block, w·block)

    Raises
    ------
    ValueError
        For another rank or mode, and channels that the block's square does not divide.

    Examples
    --------
    >>> from tapestry_exec import evaluate
    >>> from tapestry_plan import Graph, ops
    >>> g = Graph()
    >>> x = g.constant("x", [[[[1.0]], [[2.0]], [[3.0]], [[4.0]]]])
    >>> _ = g.output(ops.depth_to_space(x, 2), "y")
    >>> evaluate(g, {})["y"].tolist(), len(g.nodes)
    ([[[[1.0, 2.0], [3.0, 4.0]]]], 0)

    References
    ----------
    ONNX DepthToSpace.
    """
    need_rank(x.shape, 4, "depth_to_space: x", "n, channels, h, w")
    n, c, h, w = x.shape
    if block < 1 or c % block**2 or mode not in ("DCR", "CRD"):
        raise ValueError(
            f"depth_to_space: block={block}, mode={quote(mode)}; the block's square must divide the {c} channels of "
            f"shape {quote(x.shape)}, and the mode be 'DCR' or 'CRD'"
        )
    depth = c // block**2
    with x.graph._all_or_nothing():
        if mode == "DCR":
            cut = x.reshape(n, block, block, depth, h, w).permute_dims((0, 3, 4, 1, 5, 2))
        else:
            cut = x.reshape(n, depth, block, block, h, w).permute_dims((0, 1, 4, 2, 5, 3))
        return cut.reshape(n, depth, h * block, w * block)


@check_arguments
def space_to_depth(x: Tensor, block: int, *, mode: str = "DCR") -> Tensor:
    """Blocks of block × block cells laid out as channels, the inverse of `depth_to_space` in the same mode, as a view.

    Parameters
    ----------
    x : Tensor of shape (n, channels, h, w)
    block : int
        It divides h and w.
    mode : "DCR" or "CRD"
        Whether the block's place becomes the outer or the inner part of the channel's number.

    Returns
    -------
    Tensor of shape (n, channels·block², h/block, w/block)

    Raises
    ------
    ValueError
        For another rank or mode, and extents that the block does not divide.

    Examples
    --------
    >>> from tapestry_exec import evaluate
    >>> from tapestry_plan import Graph, ops
    >>> g = Graph()
    >>> x = g.constant("x", [[[[1.0, 2.0], [3.0, 4.0]]]])
    >>> _ = g.output(ops.space_to_depth(x, 2), "y")
    >>> evaluate(g, {})["y"].ravel().tolist(), ops.depth_to_space(ops.space_to_depth(x, 2), 2).shape == x.shape
    ([1.0, 2.0, 3.0, 4.0], True)

    References
    ----------
    ONNX SpaceToDepth.
    """
    need_rank(x.shape, 4, "space_to_depth: x", "n, channels, h, w")
    n, c, h, w = x.shape
    if block < 1 or h % block or w % block:
        raise ValueError(
            f"space_to_depth: block={block} must divide the spatial extents {(h, w)} of shape {quote(x.shape)}"
        )
    if mode not in ("DCR", "CRD"):
        raise ValueError(f"space_to_depth: mode={quote(mode)}; it is 'DCR' or 'CRD'")
    with x.graph._all_or_nothing():
        blocks = x.reshape(n, c, h // block, block, w // block, block)
        cut = blocks.permute_dims((0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4))
        return cut.reshape(n, c * block**2, h // block, w // block)
