"""Integers of few bits that stand for numbers, cell by cell: value = (integer − zero point) · scale.

    quantize    number / scale, rounded, + zero point, within the dtype      requantize    the same of number · ratio
    dequantize  (integer − zero point) · scale                               center        integer − zero point

Scales and zero points broadcast against what they are of: one for all, one for each index of an axis, which need not be
the last one, or one for each cell, as a view that repeats those of blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tapestry_plan.autodiff import adjoints
from tapestry_plan.ir import SHORT_DTYPES, SHORT_FLOATS, Attrs, Block, CellBlock, Shape, Signature, Tensor
from tapestry_plan.ops.cells.activations import Formula, in_tiles
from tapestry_plan.ops.declaration import add_op, operator
from tapestry_plan.ops.operands import align_axes, axis_of, common_shape, named_dtype, number_axes, touched
from tapestry_sets.limits import quote

WIDE = "float32"
FLOATS = ("float16", "float32", "float64")


def limits_of(dtype: str) -> Any:
    """The largest and the smallest number of a dtype, as `min` and `max`."""
    if dtype not in SHORT_DTYPES:
        return np.iinfo(dtype)
    import ml_dtypes

    limits: Any = ml_dtypes.finfo if dtype in SHORT_FLOATS else ml_dtypes.iinfo
    return limits(dtype)


def divided_in(dtypes: Sequence[str], precision: str | None) -> str:
    """The dtype in which numbers are divided by their scale: that given, or the first operand's that is floating."""
    return precision or next((dtype for dtype in dtypes if dtype in FLOATS), WIDE)


def added_in(dtype: Any) -> Any:
    """The dtype in which zero points are added, of 32 bits at least."""
    return np.promote_types(dtype, WIDE)


def centered_in(dtype: Any, wide: Any) -> Any:
    """The dtype that holds every difference of two integers of a dtype."""
    return wide if np.dtype(dtype).itemsize < 4 else np.dtype("int64")


def along(shape: Shape, axis: int, rank: int) -> Shape:
    """The shape in which scales of a shape broadcast: those of rank 1 lie along an axis of an operand of some rank."""
    return (*shape, *(1,) * ((rank if axis >= 0 else 0) - axis - 1)) if len(shape) == 1 else shape


def _signature(shapes: Sequence[Shape], attrs: Attrs) -> Signature:
    """Index axes i0, i1, … of the common shape; each point reads a cell of each operand, and writes one."""
    first, *others = shapes
    axis, rank = attrs.get("axis", -1), len(first)
    if any(len(shape) == 1 for shape in others):  # else it says nothing
        axis_of(axis, max(1, rank))
    wide = [first, *(along(shape, axis, rank) for shape in others)]
    axes = number_axes(common_shape(wide))
    reads = [align_axes(one, axes)[: len(shape)] for one, shape in zip(wide, shapes, strict=True)]
    return Signature(axes, tuple(touched(axes, forms) for forms in reads), (touched(axes),))


def _with_scales(formula: Formula) -> Block:
    """The block of a formula ``(xp, x, *scales, out, **attributes)``, whose scales broadcast against x."""
    tiles = in_tiles(formula, takes_out=True)

    def write(xp: Any, outputs: Sequence[Any], inputs: Sequence[Any], attrs: Attrs) -> None:
        (x, *others), how = inputs, dict(attrs)
        axis = how.pop("axis")
        tiles.write(xp, outputs, [x, *(one.reshape(along(one.shape, axis, x.ndim)) for one in others)], how)

    return CellBlock(write)


def _is_integer(dtype: str) -> bool:
    return (dtype in SHORT_DTYPES - SHORT_FLOATS) or (dtype not in SHORT_DTYPES and np.dtype(dtype).kind in "iu")


def _need_integers(dtype: str, zeros: Sequence[str], what: str) -> None:
    """Raise ValueError for a zero point of another dtype than what it is of, which must be of integers then."""
    for zero in zeros:
        if dtype in SHORT_FLOATS:
            raise ValueError(f"operand 2 is a zero point, which {what} of {dtype} have not; leave it out")
        if zero != dtype:
            raise ValueError(f"operand 2 is {zero}, a zero point of {what} whose dtype is {dtype}; cast it")


def _need_numbers(dtype: str, k: int, what: str) -> None:
    if dtype not in (*FLOATS, *SHORT_FLOATS):
        raise ValueError(f"operand {k} is {dtype}, but {what} is a floating number; cast it")


def _integral_dtype(attrs: Attrs, zeros: Sequence[str]) -> str:
    """The dtype of what is quantized, whose zero point has it too."""
    made = named_dtype(attrs["dtype"])
    is_few = _is_integer(made) and (made in SHORT_DTYPES or np.dtype(made).itemsize <= 2)  # float32 has them all
    if not is_few and (made not in SHORT_FLOATS or made == "bfloat16"):
        raise ValueError(
            f"dtype is {made}; numbers are quantized to integers of 16 bits or fewer, or to floats of 8 bits or fewer"
        )
    _need_integers(made, zeros, "numbers")
    return made


def _quantize_dtype(dtypes: Sequence[str], attrs: Attrs) -> tuple[str, ...]:
    _need_real(dtypes[0])
    _need_numbers(dtypes[1], 1, "a scale")
    if attrs.get("precision") not in (None, *FLOATS):
        raise ValueError(f"precision is {quote(attrs['precision'])}; numbers are divided in {', '.join(FLOATS)}")
    return (_integral_dtype(attrs, dtypes[2:]),)


def _requantize_dtype(dtypes: Sequence[str], attrs: Attrs) -> tuple[str, ...]:
    _need_real(dtypes[0])
    if dtypes[1] != WIDE:
        raise ValueError(f"operand 1 is {dtypes[1]}, but a ratio is {WIDE}; cast it")
    if not _is_integer(named_dtype(attrs["dtype"])):
        raise ValueError(f"dtype is {attrs['dtype']}; sums are quantized to integers")
    return (_integral_dtype(attrs, dtypes[2:]),)


def _dequantize_dtype(dtypes: Sequence[str], attrs: Attrs) -> tuple[str, ...]:
    is_integer = _is_integer(dtypes[0]) and (dtypes[0] in SHORT_DTYPES or np.dtype(dtypes[0]).itemsize <= 4)
    if not is_integer and dtypes[0] not in SHORT_FLOATS:  # differences of larger ones do not fit int64
        raise ValueError(
            f"operand 0 is {dtypes[0]}; integers of 32 bits or fewer, and floats of 8 bits or fewer, stand for numbers"
        )
    _need_numbers(dtypes[1], 1, "a scale")
    made = named_dtype(attrs.get("dtype") or dtypes[1])
    if made not in (*FLOATS, *SHORT_FLOATS):
        raise ValueError(f"dtype is {made}; what integers stand for are floating numbers")
    _need_integers(dtypes[0], dtypes[2:], "integers")
    return (made,)


def _center_dtype(dtypes: Sequence[str], attrs: Attrs) -> tuple[str, ...]:
    made = named_dtype(attrs["dtype"])
    if made not in ("float32", "float64") or not _is_integer(dtypes[0]) or np.dtype(dtypes[0]).itemsize > 2:
        raise ValueError(
            f"operand 0 is {dtypes[0]} and dtype {made}; the differences of integers of 16 bits or fewer are numbers "
            "of float32 or float64"
        )
    if dtypes[1] != dtypes[0]:
        raise ValueError(f"operand 1 is {dtypes[1]}, a zero point of integers of {dtypes[0]}; cast it")
    return (made,)


def _need_real(dtype: str) -> None:
    if dtype not in SHORT_DTYPES and np.dtype(dtype).kind not in "iuf":
        raise ValueError(f"operand 0 is {dtype}; numbers are quantized: cast it")


def _saturate(xp: Any, out: Any, made: Any, zero: Any, rounds_last: bool = False) -> None:
    """The nearest numbers of the output's dtype, even ones of two, the least of NaN; what is made is overwritten."""
    bounds = limits_of(out.dtype.name)
    if not rounds_last:
        xp.rint(made, out=made)
    made = made.astype(added_in(made.dtype), copy=False)
    if zero is not None:
        xp.add(made, zero.astype(made.dtype), out=made)
    if rounds_last:
        xp.rint(made, out=made)
    xp.fmax(made, made.dtype.type(float(bounds.min)), out=made)  # also where it is NaN, as in ONNX Runtime
    xp.minimum(made, made.dtype.type(float(bounds.max)), out=made)
    out[...] = made


def _quantize(
    xp: Any,
    x: Any,
    scale: Any,
    zero: Any = None,
    *,
    out: Any,
    dtype: str,
    precision: str | None = None,
    rounds_last: bool,
    saturate: bool,
) -> None:
    kind = divided_in((x.dtype.name, scale.dtype.name), precision)
    made = xp.empty(out.shape, kind)
    xp.divide(x.astype(kind, copy=False), scale.astype(kind, copy=False), out=made)
    if dtype not in SHORT_FLOATS:
        _saturate(xp, out, made, zero, rounds_last)
        return
    if saturate and dtype != "float4_e2m1fn":  # whose casts do
        largest = float(limits_of(dtype).max)
        xp.clip(made, made.dtype.type(-largest), made.dtype.type(largest), out=made)
    out[...] = made


def _requantize(xp: Any, x: Any, ratio: Any, zero: Any = None, *, out: Any, dtype: str) -> None:
    made = xp.empty(out.shape, WIDE)
    xp.multiply(x.astype(WIDE, copy=False), ratio, out=made)
    _saturate(xp, out, made, zero)


def _dequantize(xp: Any, x: Any, scale: Any, zero: Any = None, *, out: Any, dtype: str | None = None) -> None:
    wide = added_in(out.dtype)
    made = out if out.dtype == wide else xp.empty(out.shape, wide)
    if zero is None:
        made[...] = x
    else:
        held = centered_in(x.dtype, wide)
        into = made if held == wide else xp.empty(out.shape, held)
        into[...] = x
        xp.subtract(into, zero.astype(held), out=into)
        if into is not made:
            made[...] = into
    xp.multiply(made, scale.astype(wide, copy=False), out=made)
    if made is not out:
        out[...] = made


def _center(xp: Any, x: Any, zero: Any, *, out: Any, dtype: str) -> None:
    out[...] = x
    xp.subtract(out, zero.astype(out.dtype), out=out)


@operator(
    block=_with_scales(_quantize),
    signature=_signature,
    rows=True,
    flop=5.0,
    dtype=_quantize_dtype,
    adjoint=adjoints.none,
)
def quantize(
    x: Tensor,
    scale: Tensor,
    zero: Tensor | None = None,
    *,
    dtype: Any,
    precision: Any = None,
    axis: int = -1,
    rounds_last: bool = False,
    saturate: bool = True,
    name: str | None = None,
) -> Tensor:
    """round(x / scale) + zero, the even one of two, within the numbers of a dtype, cell by cell.

    Parameters
    ----------
    x : Tensor of numbers
    scale : Tensor of a floating dtype
    zero : Tensor of the dtype, optional
        The integer that stands for 0; by default 0. All three broadcast against each other.
    dtype : dtype, or its name
        Of integers; or of floats of 8 bits or fewer, which are rounded as casts round them and have no zero.
    precision : dtype, or its name, optional
        In which x is divided by its scale; by default the first floating dtype of theirs, float32 where neither is.
    axis : int
        Of x, along which a scale and a zero of rank 1 lie.
    rounds_last : bool
        Whether to round x / scale + zero, as ONNX Runtime's sums and products do: at halves these differ.
    saturate : bool
        Whether floats of 8 bits are the largest one where x is beyond it, and not infinite or none.

    Returns
    -------
    Tensor of the broadcast shape, of the dtype

    Raises
    ------
    ValueError
        For dtypes that do not fit, and shapes that do not broadcast.

    Examples
    --------
    >>> import numpy as np
    >>> from tapestry_exec import evaluate
    >>> from tapestry_plan import Graph, ops
    >>> g = Graph()
    >>> x, scale, zero = g.constant("x", [0.25, 0.75, 99.0]), g.constant("scale", 0.5), g.constant("zero", np.uint8(3))
    >>> _ = g.output(ops.quantize(x, scale, zero, dtype="uint8"), "y")
    >>> evaluate(g, {})["y"].tolist()
    [3, 5, 201]

    References
    ----------
    ONNX QuantizeLinear.
    """
    within = None if precision is None else named_dtype(precision, "quantize: precision: ")
    wanted = named_dtype(dtype, "quantize: ")
    operands = (x, scale) if zero is None else (x, scale, zero)
    how = {"precision": within, "axis": axis, "rounds_last": rounds_last, "saturate": saturate}
    return add_op(quantize.op, *operands, name=name, dtype=wanted, **how)


@operator(
    block=_with_scales(_requantize),
    signature=_signature,
    rows=True,
    flop=5.0,
    dtype=_requantize_dtype,
    adjoint=adjoints.none,
)
def requantize(
    x: Tensor, ratio: Tensor, zero: Tensor | None = None, *, dtype: Any, axis: int = -1, name: str | None = None
) -> Tensor:
    """round(x · ratio) + zero, the even one of two, within the numbers of a dtype, cell by cell; in float32.

    Parameters
    ----------
    x : Tensor of numbers
        Sums of products of integers, of which there is one exact number each.
    ratio : Tensor of float32
        The operands' scales by the result's.
    zero : Tensor of the dtype, optional
        The integer that stands for 0; by default 0. All three broadcast against each other.
    dtype : dtype, or its name
        Of integers.
    axis : int
        Of x, along which a ratio and a zero of rank 1 lie.

    Returns
    -------
    Tensor of the broadcast shape, of the dtype

    Raises
    ------
    ValueError
        For dtypes that do not fit, and shapes that do not broadcast.

    Examples
    --------
    >>> import numpy as np
    >>> from tapestry_exec import evaluate
    >>> from tapestry_plan import Graph, ops
    >>> g = Graph()
    >>> total, ratio = g.constant("total", [10, 30, 5000]), g.constant("ratio", np.float32(0.05))
    >>> _ = g.output(ops.requantize(total, ratio, dtype="int8"), "y")
    >>> evaluate(g, {})["y"].tolist()
    [0, 2, 127]

    References
    ----------
    ONNX QLinearConv, QLinearMatMul.
    """
    operands = (x, ratio) if zero is None else (x, ratio, zero)
    return add_op(requantize.op, *operands, name=name, dtype=named_dtype(dtype, "requantize: "), axis=axis)


@operator(
    block=_with_scales(_dequantize),
    signature=_signature,
    rows=True,
    flop=3.0,
    dtype=_dequantize_dtype,
    adjoint=adjoints.dequantize,
)
def dequantize(
    integers: Tensor,
    scale: Tensor,
    zero: Tensor | None = None,
    *,
    dtype: Any = None,
    axis: int = -1,
    name: str | None = None,
) -> Tensor:
    """(integers − zero) · scale, the numbers that integers stand for, cell by cell.

    Parameters
    ----------
    integers : Tensor of integers, or of floats of 8 bits or fewer
    scale : Tensor of a floating dtype
    zero : Tensor of the integers' dtype, optional
        The integer that stands for 0; by default 0. All three broadcast against each other.
    dtype : dtype, or its name, optional
        Of floating numbers, by default the scale's; those of 16 bits or fewer are computed in float32 and rounded once.
    axis : int
        Of the integers, along which a scale and a zero of rank 1 lie.

    Returns
    -------
    Tensor of the broadcast shape, of the dtype

    Raises
    ------
    ValueError
        For dtypes that do not fit, and shapes that do not broadcast.

    Examples
    --------
    >>> import numpy as np
    >>> from tapestry_exec import evaluate
    >>> from tapestry_plan import Graph, ops
    >>> g = Graph()
    >>> x, zero = g.constant("x", np.uint8([0, 3, 255])), g.constant("zero", np.uint8(3))
    >>> _ = g.output(ops.dequantize(x, g.constant("scale", 0.5), zero), "y")
    >>> evaluate(g, {})["y"].tolist()
    [-1.5, 0.0, 126.0]

    References
    ----------
    ONNX DequantizeLinear.
    """
    operands = (integers, scale) if zero is None else (integers, scale, zero)
    wanted = None if dtype is None else named_dtype(dtype, "dequantize: ")
    return add_op(dequantize.op, *operands, name=name, dtype=wanted, axis=axis)


@operator(
    block=_with_scales(_center), signature=_signature, rows=True, flop=2.0, dtype=_center_dtype, adjoint=adjoints.none
)
def center(
    integers: Tensor, zero: Tensor, *, dtype: Any = "float32", axis: int = -1, name: str | None = None
) -> Tensor:
    """integers − zero as floating numbers, which hold every difference of the integers exactly, cell by cell.

    Parameters
    ----------
    integers, zero : Tensor of one dtype of integers, of 16 bits or fewer
        They broadcast against each other.
    dtype : float32 or float64
        In which exact sums of products of so many of them have room.
    axis : int
        Of the integers, along which zeros of rank 1 lie.

    Returns
    -------
    Tensor of the broadcast shape, of the dtype

    Raises
    ------
    ValueError
        For dtypes that do not fit, and shapes that do not broadcast.

    Examples
    --------
    >>> import numpy as np
    >>> from tapestry_exec import evaluate
    >>> from tapestry_plan import Graph, ops
    >>> g = Graph()
    >>> x, zero = g.constant("x", np.uint8([0, 3, 255])), g.constant("zero", np.uint8(3))
    >>> _ = g.output(ops.center(x, zero), "y")
    >>> evaluate(g, {})["y"].tolist()
    [-3.0, 0.0, 252.0]

    References
    ----------
    ONNX MatMulInteger, ConvInteger: their operands.
    """
    return add_op(center.op, integers, zero, name=name, dtype=named_dtype(dtype, "center: "), axis=axis)
