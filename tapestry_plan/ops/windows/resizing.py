"""Resizing by nearest cells or by interpolation, and views that trade channels for space.

Output o of an axis lies at α·o + β among the input's cells, α = b/a a fraction. With o = a·q + r it reads, for each r,
cells at a fixed distance from b·q: so the projection has the quotient q, and a box over all r::

    linear    2 cells    ──●─x───●──           weights 1 − t and t
    cubic     4 cells    ●───●─x───●───●       a polynomial of the distance, in two pieces
    antialias            the same curves, as wide as an output's step where outputs lie further apart than cells
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tapestry_plan.ir import (
    Attrs,
    Backward,
    LinearForm,
    Operand,
    Shape,
    Shard,
    Signature,
    Tensor,
    once_for_shard,
    project,
)
from tapestry_plan.ops import tuning
from tapestry_plan.ops.declaration import add_op, operator
from tapestry_plan.ops.operands import need_rank, number_axes, touched
from tapestry_sets.limits import check_arguments, is_int, quote

Int64 = NDArray[np.int64]
MODES = ("nearest", "linear", "cubic")
"""How `resize` finds the value of a cell: the nearest one, or between two or four on each axis.

Examples
--------
>>> from tapestry_plan import Graph, ops
>>> ops.resize(Graph().input("x", (1, 1, 4, 4)), (1, 1, 8, 8), mode=ops.MODES[1]).shape
(1, 1, 8, 8)
"""
COORDINATES = (
    *("half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners"),
    *("half_pixel_symmetric", "tf_half_pixel_for_nn", "tf_crop_and_resize"),
)
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


class _ResizedAxis(NamedTuple):
    """What is known of one axis."""

    extent: int
    size: int
    scale: Fraction
    place: tuple[Fraction, Fraction]
    """α and β."""
    attrs: Attrs

    @property
    def is_linear(self) -> bool:
        """Whether an output lies between two cells, whatever their place in the tensor."""
        return self.attrs["mode"] == "linear" and not self.shrinks and not self.attrs.get("exclude_outside")

    @property
    def shrinks(self) -> bool:
        """Whether an output's curve is wider than that of a cell."""
        return bool(self.attrs.get("antialias")) and self.scale < 1

    def list_taps(self, o: Any, xp: Any = np) -> tuple[Any, Any]:
        """The cells that outputs read and their weights, one row for each output; those beyond an end are its last."""
        above, below = _places(o, self.place)
        if self.attrs["mode"] == "nearest":
            cells, weights = _round(above, below, self.attrs["nearest"])[:, None], xp.ones((len(o), 1))
        else:
            is_cubic = self.attrs["mode"] == "cubic"
            stretch = float(self.scale) if self.shrinks else 1.0
            width = math.ceil((2 if is_cubic else 1) / stretch)
            steps = xp.arange(1 - width, width + 1)[None]
            cells = (above // below)[:, None] + steps
            apart = abs(steps - (above % below / below)[:, None]) * stretch
            weights = (
                _cubic(apart, self.attrs.get("cubic", tuning.CUBIC), xp) if is_cubic else (1 - apart).clip(0.0, 1.0)
            )
            if self.attrs.get("exclude_outside"):
                weights = xp.where((cells >= 0) & (cells < self.extent), weights, 0.0)
            if self.shrinks or self.attrs.get("exclude_outside"):
                total = weights.sum(axis=1, keepdims=True)
                weights = weights / xp.where(total == 0, 1.0, total)
        first = cells[:, :1] + (weights != 0).argmax(axis=1)[:, None]
        cells = xp.where(weights != 0, cells, first).clip(0, self.extent - 1)  # what has no weight is not read
        return cells, weights

    def find_outside(self, o: Any) -> Any:
        """Which outputs lie outside the tensor and get another value; None where none may."""
        if self.attrs["coordinates"] != "tf_crop_and_resize":
            return None
        above, below = _places(o, self.place)
        return (above < 0) | (above > (self.extent - 1) * below)


def _cubic(apart: Any, a: float, xp: Any) -> Any:
    """The weight of cells at distances, in two polynomials with a slope of `a` at distance 1."""
    near = (apart * (a + 2) - (a + 3)) * apart * apart + 1
    far = ((apart * a - 5 * a) * apart + 8 * a) * apart - 4 * a
    return xp.where(apart <= 1, near, xp.where(apart < 2, far, 0.0))


def _place(n: int, m: int, scale: Fraction, coordinates: str, part: tuple[Fraction, Fraction]) -> tuple[Fraction, ...]:
    """α and β of an axis of n cells that gets m."""
    half = Fraction(1, 2)
    # ONNX keeps the fraction of a factor that gives no whole extent: its last cell falls short of the end.
    length = n * scale if math.floor(n * scale) == m else Fraction(m)
    match coordinates:
        case "align_corners":  # the last cells lie on each other
            return ((n - 1) / (length - 1) if m > 1 else Fraction(0)), Fraction(0)
        case "asymmetric":
            return 1 / scale, Fraction(0)
        case "pytorch_half_pixel" if m == 1:
            return Fraction(0), Fraction(0)
        case "half_pixel_symmetric":
            return 1 / scale, half / scale - half + Fraction(n, 2) * (1 - m / (n * scale))
        case "tf_half_pixel_for_nn" if scale != 1:  # where it is, the axis stays, as in ONNX Runtime
            return 1 / scale, half / scale
        case "tf_half_pixel_for_nn":
            return Fraction(1), Fraction(0)
        case "tf_crop_and_resize":
            begin, end = part
            if m == 1:
                return Fraction(0), (begin + end) * (n - 1) / 2
            return (end - begin) * (n - 1) / (length - 1), begin * (n - 1)
    return 1 / scale, half / scale - half


def _round(above: Int64, below: int, how: str) -> Int64:
    """Places, as fractions, rounded to cells, which may lie outside the tensor."""
    if how == "floor":
        return above // below
    if how == "ceil":
        return -(-above // below)
    if how == "round_prefer_ceil":
        return (2 * above + below) // (2 * below)
    return -((below - 2 * above) // (2 * below))


def _list_along(shape: Shape, attrs: Attrs) -> list[_ResizedAxis]:
    """What is known of every axis.

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
    part = attrs.get("part") or ((0.0, 1.0),) * len(shape)
    if len(part) != len(shape) or not all(len(one) == 2 and all(map(math.isfinite, one)) for one in part):
        raise ValueError(f"part is {quote(part)}; give where it begins and ends on each axis of {quote(shape)}")
    found = []
    for n, m, scale, (begin, end) in zip(shape, sizes, exact, part, strict=True):
        ends = (
            Fraction(begin).limit_denominator(tuning.MAX_DENOMINATOR),
            Fraction(end).limit_denominator(tuning.MAX_DENOMINATOR),
        )
        alpha, beta = _place(n, m, scale, attrs["coordinates"], ends)
        most = max(abs(alpha), abs(beta)).numerator * max(m, 1) * alpha.denominator * beta.denominator
        if most >= 2**62:
            raise ValueError(
                f"scales {quote(scales)} and part {quote(part)} are fractions of too large numbers; round them"
            )
        found.append(_ResizedAxis(n, m, scale, (alpha, beta), attrs))
    return found


def _resize_signature(shapes: Sequence[Shape], attrs: Attrs) -> Signature:
    (x,) = shapes
    every = _list_along(x, attrs)
    axes = number_axes(attrs["sizes"])
    forms: list[LinearForm] = []
    box, splits = [], {}
    for axis, along in zip(axes, every, strict=True):
        step, period = along.place[0].numerator, along.place[0].denominator
        low, high = _reach(along)
        if period > 1:
            splits[axis.name] = period
        forms.append({f"{axis.name}//" if period > 1 else axis.name: step, "": low})
        box.append(high - low + 1)
    read = Operand(project(axes, forms, box, splits), pad=0.0, extents=x)
    return Signature(axes, (read,), (touched(axes),))


def _reach(along: _ResizedAxis) -> tuple[int, int]:
    """The first and the last cell that outputs a·q … a·q + a − 1 read, relative to b·q."""
    o = np.arange(along.size)
    cells, _ = along.list_taps(o)
    runs = along.place[0].numerator * (o // along.place[0].denominator)
    return int((cells.min(axis=1) - runs).min()), int((cells.max(axis=1) - runs).max())


class _Taps(NamedTuple):
    """What the outputs of a block read along one axis."""

    axis: int
    along: _ResizedAxis
    begin: int
    end: int
    start: int
    """Of the input's block."""
    used: list[int]
    """Which columns of the cells have weights."""
    is_plain: bool
    """Whether each output is one cell."""
    goes_outside: bool
    listed: tuple[Any, Any, Any]
    """What `find` gives, by NumPy."""

    def find(self, xp: Any) -> tuple[list[Any], list[Any], Any]:
        """Cells by tap, weights by tap, and which outputs lie outside."""
        return self.listed if xp is np else self.make(xp)

    def make(self, xp: Any) -> tuple[list[Any], list[Any], Any]:
        """The same, computed where it is used: numbers of cells need not be brought there."""
        o = xp.arange(self.begin, self.end)
        cells, weights = self.along.list_taps(o, xp)
        outside = self.along.find_outside(o) if self.goes_outside else None
        return [cells[:, t] - self.start for t in self.used], [weights[:, t] for t in self.used], outside

    def is_same(self, extent: int) -> bool:
        """Whether an axis of an input's block is that of the output's."""
        cells = self.listed[0][0]
        n = self.end - self.begin
        return self.is_plain and not self.goes_outside and extent == n and bool((cells == np.arange(n)).all())


@once_for_shard
def _list_taps(shard: Shard) -> list[_Taps]:
    """Of the axes along which something changes."""
    extents, box = shard.signature.inputs[0].extents, shard.input_boxes[0]
    assert extents is not None and box is not None, "the signature of resize says where its tensor ends"
    made = list[_Taps]()
    for k, along in enumerate(_list_along(extents, shard.attrs)):
        begin, end = shard.range(f"i{k}")
        o = np.arange(begin, end)
        known, outside = along.list_taps(o)[1], along.find_outside(o)
        used = [t for t in range(known.shape[1]) if (known[:, t] != 0).any()] or [0]
        is_plain = along.attrs["mode"] == "nearest" or (len(used) == 1 and bool((known[:, used[0]] == 1).all()))
        goes_outside = outside is not None and bool(outside.any())
        taps = _Taps(k, along, begin, end, box.start[k], used, is_plain, goes_outside, ((), (), None))
        taps = taps._replace(listed=taps.make(np))
        if not taps.is_same(box.shape[k]):
            made.append(taps)
    return made


def _resize_block(xp: Any, inputs: Sequence[Any], outputs: Sequence[Any], shard: Shard) -> None:
    (out,) = outputs
    made = inputs[0]
    for each in _list_taps(shard):
        cells, weights, outside = each.find(xp)
        column = (-1, *(1,) * (out.ndim - each.axis - 1))
        taps = [xp.take(made, one, axis=each.axis) for one in cells]
        if each.is_plain:
            made = taps[0]
        else:
            shares = [one.astype(out.dtype).reshape(column) for one in weights]
            if each.along.is_linear and len(taps) == 2:
                made = taps[0] + (taps[1] - taps[0]) * shares[1]
            else:
                made = taps[0] * shares[0]
                for tap, share in zip(taps[1:], shares[1:], strict=True):
                    made = made + tap * share
        if outside is not None:
            made = xp.where(outside.reshape(column), out.dtype.type(shard.attrs.get("outside", 0)), made)
    out[...] = made


def _resize_adjoint(b: Backward) -> list[Tensor | None]:
    """Each input cell receives what outputs take of it: a product with the axis's matrix, axis after axis."""
    (x,), grad = b.inputs, b.grad
    for k, along in enumerate(_list_along(x.shape, b.attrs)):
        n, o = along.extent, np.arange(grad.shape[k])
        cells, weights = along.list_taps(o)
        outside = along.find_outside(o)
        matrix = np.zeros((len(o), n))
        np.add.at(matrix, (o[:, None], cells), weights if outside is None else weights * ~outside[:, None])
        if np.array_equal(matrix, np.eye(len(o), n)):
            continue
        rows = grad.moveaxis(k, -1)
        taken = x.graph.constant(x.graph._fresh("resizing"), matrix.astype(x.dtype))
        made = rows.reshape(rows.size // len(o), len(o)) @ taken
        grad = made.reshape(*rows.shape[:-1], n).moveaxis(-1, k)
    return [grad]


def _resize_dtype(dtypes: Sequence[str], attrs: Attrs) -> tuple[str, ...]:
    if attrs.get("mode") != "nearest" and np.dtype(dtypes[0]).kind != "f":
        raise ValueError(f"operand 0 is {dtypes[0]}, but interpolation works on floating numbers; cast it")
    return (dtypes[0],)


FLOP = {"linear": 3.0, "cubic": 8.0}
"""Floating-point operations of an output on each axis."""


@operator(
    block=_resize_block,
    signature=_resize_signature,
    flop=lambda signature, attrs: 1.0 if attrs["mode"] == "nearest" else FLOP[attrs["mode"]] * len(signature.axes),
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
    cubic: float = tuning.CUBIC,
    antialias: bool = False,
    exclude_outside: bool = False,
    part: Sequence[Sequence[float]] | None = None,
    outside: float = 0.0,
    name: str | None = None,
) -> Tensor:
    """x with other extents, each cell the nearest one of x, or interpolated between two or four on each axis.

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
    mode : "nearest", "linear" or "cubic"
    coordinates : one of `COORDINATES`
        How output o is placed among the cells of x.
    nearest : "round_prefer_floor", "round_prefer_ceil", "floor" or "ceil"
        How places are rounded in nearest mode.
    cubic : float
        The slope of cubic weights at distance 1.
    antialias : bool
        Whether what shrinks is interpolated among all cells that an output's step is over.
    exclude_outside : bool
        Whether cells beyond the ends have no weight; else they are as the last ones.
    part : sequence of (begin, end), optional
        For "tf_crop_and_resize": the part of each axis that is resized, from 0 to 1. It may reach beyond.
    outside : float
        Of outputs that lie there.

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
    how = {
        "mode": mode,
        "coordinates": coordinates,
        "nearest": nearest,
        "cubic": float(cubic),
        "antialias": antialias,
        "exclude_outside": exclude_outside,
        "outside": float(outside),
        **({} if part is None else {"part": tuple(tuple(map(float, one)) for one in part)}),
    }
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
