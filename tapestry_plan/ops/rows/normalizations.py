"""Operators that scale rows and channels: softmax and the normalizations."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial, wraps
from typing import Any

from tapestry_plan.autodiff import adjoints
from tapestry_plan.ir import (
    Attrs,
    Axis,
    Block,
    LinearForm,
    Normalization,
    Op,
    Operand,
    Shape,
    Shard,
    Signature,
    Softmax,
    Tensor,
    project,
    same_anywhere,
)
from tapestry_plan.ops import expansions
from tapestry_plan.ops.declaration import add_op, operator
from tapestry_plan.ops.operands import axis_of, floating, ints_of, need_vector, per_row, spatial_names, touched, writes
from tapestry_sets.limits import quote


def _batch_norm_signature(shapes: Sequence[Shape], attrs: Attrs) -> Signature:
    x = shapes[0]
    names = () if len(x) == 2 else spatial_names(x, "operand 0")
    _need_channels(shapes, ("scale", "bias", "mean", "variance"))
    axes = tuple(map(Axis, ("n", "c", *names), x))
    return Signature(axes, (touched(axes), *[touched(axes, ["c"])] * 4), (touched(axes),))


def _need_channels(shapes: Sequence[Shape], words: Sequence[str]) -> None:
    """Raise ValueError unless the operands after the first have one value for each of its channels."""
    for what, shape in zip(words, shapes[1:], strict=True):
        need_vector(shape, shapes[0][1], f"the {what}", "operand 0's channels (axis 1)")


def _batch_norm(xp: Any, out: Any, x: Any, scale: Any, bias: Any, mean: Any, variance: Any, epsilon: float) -> None:
    factor = scale / xp.sqrt(variance + out.dtype.type(epsilon))
    offset = bias - mean * factor
    column = (-1, *(1,) * (x.ndim - 2))
    for n in range(x.shape[0]):
        xp.multiply(x[n], factor.reshape(column), out=out[n])
        xp.add(out[n], offset.reshape(column), out=out[n])


def _local_response_signature(shapes: Sequence[Shape], attrs: Attrs) -> Signature:
    (x,) = shapes
    names = spatial_names(x, "operand 0")
    (size,) = ints_of(attrs.get("size"), 1, "size", 1)
    axes = tuple(map(Axis, ("n", "c", *names), x))
    forms: list[LinearForm] = [{"n": 1}, {"c": 1, "": -((size - 1) // 2)}, *({name: 1} for name in names)]
    read = Operand(project(axes, forms, [1, size, *(1 for _ in names)]), pad=0.0)
    return Signature(axes, (read,), (touched(axes),))


def _local_response_block(xp: Any, inputs: Sequence[Any], outputs: Sequence[Any], shard: Shard) -> None:
    (x,), (out,) = inputs, outputs
    attrs = shard.attrs
    size, channels = attrs["size"], out.shape[1]
    center = (size - 1) // 2
    squares = shard.workspace[: x[0].size * out.dtype.itemsize].view(out.dtype).reshape(x.shape[1:])
    for n in range(x.shape[0]):
        xp.multiply(x[n], x[n], out=squares)
        out[n] = squares[:channels]
        for k in range(1, size):
            xp.add(out[n], squares[k : k + channels], out=out[n])
        xp.multiply(out[n], out.dtype.type(attrs["alpha"] / size), out=out[n])
        xp.add(out[n], out.dtype.type(attrs["bias"]), out=out[n])
        xp.power(out[n], out.dtype.type(-attrs["beta"]), out=out[n])
        xp.multiply(out[n], x[n, center : center + channels], out=out[n])


def _local_response_workspace(shard: Shard, itemsize: int) -> int:
    box = shard.input_boxes[0]
    return math.prod(box.shape[1:]) * itemsize if box is not None else 0


def row_signature(shapes: Sequence[Shape], first: int, last: int) -> Signature:
    """An index point for each row; a row is what the axes first to last of operand 0 span."""
    x = shapes[0]
    names = ["" if first <= k < last else f"i{k}" for k in range(len(x))]
    axes = tuple(Axis(name, n) for name, n in zip(names, x, strict=True) if name)
    whole, vector = touched(axes, names, x), touched(axes, names[first:last], x[first:last])
    return Signature(axes, (whole, *(vector for _ in shapes[1:])), (whole,))


def axis_signature(shapes: Sequence[Shape], attrs: Attrs) -> Signature:
    """An index point for each row along the attribute `axis`."""
    axis = axis_of(attrs.get("axis"), len(shapes[0]))
    return row_signature(shapes, axis, axis + 1)


def _in_single(write: Callable[..., None]) -> Callable[..., None]:
    """The same, in float32 where the operands are float16: sums and squares of a row are beyond its range."""

    @wraps(write)
    def widened(xp: Any, out: Any, *operands: Any, **attrs: Any) -> None:
        if out.dtype != "float16":
            write(xp, out, *operands, **attrs)
            return
        wide = xp.empty(out.shape, "float32")
        write(xp, wide, *[x if x is None else x.astype("float32") for x in operands], **attrs)
        out[...] = wide

    return widened


@_in_single
def write_softmax(xp: Any, out: Any, x: Any, axis: int) -> None:
    xp.subtract(x, xp.max(x, axis=axis, keepdims=True), out=out)
    xp.exp(out, out=out)
    xp.divide(out, xp.sum(out, axis=axis, keepdims=True), out=out)


@_in_single
def _log_softmax(xp: Any, out: Any, x: Any, axis: int) -> None:
    xp.subtract(x, xp.max(x, axis=axis, keepdims=True), out=out)
    xp.subtract(out, xp.log(xp.sum(xp.exp(out), axis=axis, keepdims=True)), out=out)


def _tail_signature(shapes: Sequence[Shape], attrs: Attrs) -> Signature:
    """An index point for each row of the axes from the attribute `axis` on, which the scale and a bias have."""
    x = shapes[0]
    axis = axis_of(attrs["axis"], len(x))
    for what, shape in zip(("scale", "bias"), shapes[1:], strict=False):
        if shape != x[axis:]:
            raise ValueError(
                f"the {what} has shape {quote(shape)}; {quote(x[axis:])} is needed, the normalized axes of operand 0"
            )
    return row_signature(shapes, axis, len(x))


@_in_single
def _layer_norm(xp: Any, out: Any, x: Any, scale: Any, bias: Any = None, *, axis: int, epsilon: float) -> None:
    over = tuple(range(x.ndim - scale.ndim, x.ndim))
    xp.subtract(x, xp.mean(x, axis=over, keepdims=True), out=out)
    variance = xp.mean(out * out, axis=over, keepdims=True)
    xp.divide(out, xp.sqrt(variance + out.dtype.type(epsilon)), out=out)
    xp.multiply(out, scale, out=out)
    if bias is not None:
        xp.add(out, bias, out=out)


@_in_single
def _rms_norm(xp: Any, out: Any, x: Any, scale: Any, axis: int, epsilon: float) -> None:
    over = tuple(range(x.ndim - scale.ndim, x.ndim))
    xp.multiply(x, x, out=out)
    mean = xp.mean(out, axis=over, keepdims=True)
    xp.divide(x, xp.sqrt(mean + out.dtype.type(epsilon)), out=out)
    xp.multiply(out, scale, out=out)


def _over_tail(
    op: Op, operands: tuple[Tensor, *tuple[Tensor | None, ...]], axis: int, epsilon: float, name: str | None
) -> Tensor:
    """What an operator on the axes from `axis` on makes; graphs count them from the end."""
    rank = operands[0].ndim
    first = axis_of(axis, rank, f"{op.name}: ")
    return add_op(op, *operands, name=name, axis=first - rank, epsilon=float(epsilon))


def _grouped_signature(shapes: Sequence[Shape], attrs: Attrs, axis: str = "g") -> Signature:
    """An index point for each batch item and group, or channel: it reads and writes all cells of that."""
    x = shapes[0]
    names = spatial_names(x, "operand 0")
    (groups,) = ints_of(attrs.get("groups"), 1, "groups", 1) if axis == "g" else x[1:2]
    if x[1] % groups:
        raise ValueError(
            f"groups is {groups}, which does not divide the {x[1]} channels of operand 0 of shape {x}; give a divisor"
        )
    _need_channels(shapes, ("scale", "bias"))
    width = x[1] // groups
    axes = (Axis("n", x[0]), Axis(axis, groups))
    whole = Operand(project(axes, [{"n": 1}, {axis: width}, *({} for _ in names)], (1, width, *x[2:])))
    channel = Operand(project(axes, [{axis: width}], (width,)))
    return Signature(axes, (whole, channel, channel), (whole,))


def _group_norm_block(xp: Any, inputs: Sequence[Any], outputs: Sequence[Any], shard: Shard) -> None:
    _write_groups(xp, outputs[0], *inputs, width=shard.signature.outputs[0].projection.shape[1], **shard.attrs)


@_in_single
def _write_groups(
    xp: Any, out: Any, x: Any, scale: Any, bias: Any, *, width: int, epsilon: float, groups: int = 0
) -> None:
    for n in range(x.shape[0]):
        for first in range(0, x.shape[1], width):
            channels = slice(first, first + width)
            target, column = out[n, channels], (-1, *(1,) * (x.ndim - 2))
            xp.subtract(x[n, channels], xp.mean(x[n, channels]), out=target)
            variance = xp.mean(target * target)
            xp.multiply(
                target, scale[channels].reshape(column) / xp.sqrt(variance + out.dtype.type(epsilon)), out=target
            )
            xp.add(target, bias[channels].reshape(column), out=target)


def _softmax_form(shard: Shard) -> Softmax | None:
    """None along another axis than the last one, along which cells lie side by side."""
    rank = len(shard.output_boxes[0].shape)
    return Softmax() if axis_of(shard.attrs["axis"], rank) == rank - 1 else None


def _normalization(shard: Shard, is_centered: bool) -> Normalization:
    return Normalization(shard.attrs["epsilon"], is_centered, len(shard.input_boxes) > 2)


def _by_rows(block: Block, signature: Callable[[Sequence[Shape], Attrs], Signature], flop: int) -> dict[str, Any]:
    """What operators with an index point for each row declare; `flop` operations for each value of a row."""
    return {"block": block, "signature": signature, "flop": per_row(flop), "dtype": floating}


@operator(
    block=writes(_batch_norm),
    signature=_batch_norm_signature,
    flop=2.0,
    dtype=floating,
    expansions=(expansions.factor_offset,),
    local=same_anywhere,
)
def batch_normalization(
    x: Tensor,
    scale: Tensor,
    bias: Tensor,
    mean: Tensor,
    variance: Tensor,
    *,
    epsilon: float = 1e-5,
    name: str | None = None,
) -> Tensor:
    """scale·(x − mean)/√(variance + epsilon) + bias, with given statistics for each channel (axis 1).

    Parameters
    ----------
    x : Tensor of shape (n, channels, …)
        Of a floating dtype.
    scale, bias, mean, variance : Tensor of shape (channels,)
        Of x's dtype.
    epsilon : float

    Returns
    -------
    Tensor of x's shape and dtype

    Raises
    ------
    ValueError
        For shapes or dtypes that do not fit.

    Examples
    --------
    >>> from tapestry_exec import evaluate
    >>> from tapestry_plan import Graph, ops
    >>> g = Graph()
    >>> scale, bias, mean, variance = (g.constant(f"c{k}", [value]) for k, value in enumerate([2.0, 10.0, 1.0, 4.0]))
    >>> x = g.constant("x", [[1.0], [3.0]])
    >>> _ = g.output(ops.batch_normalization(x, scale, bias, mean, variance, epsilon=0), "y")
    >>> evaluate(g, {})["y"].tolist()
    [[10.0], [12.0]]

    References
    ----------
    ONNX BatchNormalization at inference.
    """


@operator(
    block=_local_response_block,
    signature=_local_response_signature,
    flop=lambda signature, attrs: 2.0 * attrs["size"] + 4.0,
    dtype=floating,
    workspace=_local_response_workspace,
    adjoint=adjoints.Through(expansions.local_response),
)
def local_response_normalization(
    x: Tensor,
    size: int,
    *,
    alpha: float = 1e-4,
    beta: float = 0.75,
    bias: float = 1.0,
    name: str | None = None,
) -> Tensor:
    """x / (bias + alpha/size · Σ x²)^beta, the sum taken over `size` channels around each.

    Parameters
    ----------
    x : Tensor of shape (n, channels, …)
        Of a floating dtype, with one to three spatial axes.
    size : int
        At least 1.
    alpha, beta, bias : float

    Returns
    -------
    Tensor of x's shape and dtype

    Raises
    ------
    ValueError
        For another shape or dtype, or a size below 1.

    Examples
    --------
    >>> from tapestry_exec import evaluate
    >>> from tapestry_plan import Graph, ops
    >>> g = Graph()
    >>> x = g.constant("x", [[[3.0], [4.0]]])
    >>> _ = g.output(ops.local_response_normalization(x, 2, alpha=2.0, beta=1.0), "y")
    >>> evaluate(g, {})["y"].round(4).tolist()
    [[[0.1154], [0.2353]]]

    References
    ----------
    ONNX LRN: the window of channel c begins at c − (size − 1) // 2.
    """


@operator(
    **_by_rows(writes(write_softmax), axis_signature, 4),
    expansions=(expansions.exp_sum,),
    adjoint=adjoints.softmax,
    work=_softmax_form,
    local=same_anywhere,
    rows=True,
)
def softmax(x: Tensor, axis: int = -1, *, name: str | None = None) -> Tensor:
    """exp(x) / Σ exp(x) along an axis, which no plan splits.

    Parameters
    ----------
    x : Tensor of a floating dtype
    axis : int

    Returns
    -------
    Tensor of x's shape and dtype

    Raises
    ------
    ValueError
        For another dtype, and an axis that x has not.

    Examples
    --------
    >>> from tapestry_exec import evaluate
    >>> from tapestry_plan import Graph, ops
    >>> g = Graph()
    >>> x = g.constant("x", [[0.0, 0.0], [0.0, 1000.0]])
    >>> _ = g.output(ops.softmax(x), "y")
    >>> evaluate(g, {})["y"].tolist()
    [[0.5, 0.5], [0.0, 1.0]]
    >>> [axis.name for axis in g.signature("softmax").axes]  # what plans split: rows
    ['i0']

    References
    ----------
    ONNX Softmax.
    """


@operator(
    **_by_rows(writes(_log_softmax), axis_signature, 4),
    expansions=(expansions.minus_logsumexp,),
    adjoint=adjoints.log_softmax,
    local=same_anywhere,
    rows=True,
)
def log_softmax(x: Tensor, axis: int = -1, *, name: str | None = None) -> Tensor:
    """x − log Σ exp(x) along an axis, which no plan splits.

    Parameters
    ----------
    x : Tensor of a floating dtype
    axis : int

    Returns
    -------
    Tensor of x's shape and dtype

    Raises
    ------
    ValueError
        For another dtype, and an axis that x has not.

    Examples
    --------
    >>> from tapestry_exec import evaluate
    >>> from tapestry_plan import Graph, ops
    >>> g = Graph()
    >>> x = g.constant("x", [[0.0, 0.0], [0.0, 1000.0]])
    >>> _ = g.output(ops.log_softmax(x), "y")
    >>> evaluate(g, {})["y"].round(3).tolist()
    [[-0.693, -0.693], [-1000.0, 0.0]]

    References
    ----------
    ONNX LogSoftmax.
    """


@operator(
    **_by_rows(writes(_layer_norm), _tail_signature, 8),
    expansions=(expansions.moments,),
    local=same_anywhere,
    work=partial(_normalization, is_centered=True),
)
def layer_normalization(
    x: Tensor,
    scale: Tensor,
    bias: Tensor | None = None,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    name: str | None = None,
) -> Tensor:
    """x centered and scaled to variance 1 over the axes from `axis` on, which no plan splits, times scale, plus bias.

    Parameters
    ----------
    x : Tensor of a floating dtype
    scale, bias : Tensor of shape ``x.shape[axis:]``
        Of x's dtype; the bias may be left out.
    axis : int
    epsilon : float

    Returns
    -------
    Tensor of x's shape and dtype

    Raises
    ------
    ValueError
        For shapes or dtypes that do not fit, and an axis that x has not.

    Examples
    --------
    >>> from tapestry_exec import evaluate
    >>> from tapestry_plan import Graph, ops
    >>> g = Graph()
    >>> x, scale = g.constant("x", [[1.0, 3.0], [10.0, 30.0]]), g.constant("scale", [1.0, 2.0])
    >>> _ = g.output(ops.layer_normalization(x, scale, epsilon=0), "y")
    >>> evaluate(g, {})["y"].tolist()
    [[-1.0, 2.0], [-1.0, 2.0]]

    References
    ----------
    ONNX LayerNormalization.
    """
    return _over_tail(layer_normalization.op, (x, scale, bias), axis, epsilon, name)


@operator(
    **_by_rows(writes(_rms_norm), _tail_signature, 5),
    expansions=(expansions.root_mean_square,),
    local=same_anywhere,
    work=partial(_normalization, is_centered=False),
)
def rms_normalization(
    x: Tensor, scale: Tensor, *, axis: int = -1, epsilon: float = 1e-5, name: str | None = None
) -> Tensor:
    """x divided by its root mean square over the axes from `axis` on, which no plan splits, times scale.

    Parameters
    ----------
    x : Tensor of a floating dtype
    scale : Tensor of shape ``x.shape[axis:]``

    Returns
    -------
    Tensor of x's shape and dtype

    Raises
    ------
    ValueError
        For shapes or dtypes that do not fit, and an axis that x has not.

    Examples
    --------
    >>> from tapestry_exec import evaluate
    >>> from tapestry_plan import Graph, ops
    >>> g = Graph()
    >>> x, scale = g.constant("x", [[3.0, 4.0]]), g.constant("scale", [1.0, 1.0])
    >>> _ = g.output(ops.rms_normalization(x, scale, epsilon=0), "y")
    >>> evaluate(g, {})["y"].round(4).tolist()
    [[0.8485, 1.1314]]

    References
    ----------
    ONNX RMSNormalization; Zhang and Sennrich, "Root mean square layer normalization", 2019.
    """
    return _over_tail(rms_normalization.op, (x, scale), axis, epsilon, name)


@operator(**_by_rows(_group_norm_block, _grouped_signature, 8), expansions=(expansions.by_groups,))
def group_normalization(
    x: Tensor, scale: Tensor, bias: Tensor, groups: int, *, epsilon: float = 1e-5, name: str | None = None
) -> Tensor:
    """x centered and scaled to variance 1 over each group of channels, then scaled and shifted channel by channel.

    Plans split the batch axis n and the groups g; what is normalized together, a group's channels and the spatial
    axes, is read whole.

    Parameters
    ----------
    x : Tensor of shape (n, channels, …)
        One to three spatial axes.
    scale, bias : Tensor of shape (channels,)
    groups : int
        A divisor of the channels.

    Returns
    -------
    Tensor of x's shape and dtype

    Raises
    ------
    ValueError
        For shapes or dtypes that do not fit, and groups that do not divide the channels.

    Examples
    --------
    >>> from tapestry_exec import evaluate
    >>> from tapestry_plan import Graph, ops
    >>> g = Graph()
    >>> x = g.constant("x", [[[1.0], [3.0], [10.0], [30.0]]])
    >>> scale, bias = g.constant("scale", [1.0] * 4), g.constant("bias", [0.0] * 4)
    >>> _ = g.output(ops.group_normalization(x, scale, bias, groups=2, epsilon=0), "y")
    >>> evaluate(g, {})["y"].tolist()
    [[[-1.0], [1.0], [-1.0], [1.0]]]

    References
    ----------
    ONNX GroupNormalization, opset 21; Wu and He, "Group normalization", 2018.
    """


@operator(**_by_rows(_group_norm_block, partial(_grouped_signature, axis="c"), 8), expansions=(expansions.by_groups,))
def instance_normalization(
    x: Tensor, scale: Tensor, bias: Tensor, *, epsilon: float = 1e-5, name: str | None = None
) -> Tensor:
    """As `group_normalization`, each channel a group of its own: plans split the axes n and c.

    Parameters
    ----------
    x : Tensor of shape (n, channels, …)
        Of a floating dtype, with one to three spatial axes.
    scale, bias : Tensor of shape (channels,)
    epsilon : float

    Returns
    -------
    Tensor of x's shape and dtype

    Raises
    ------
    ValueError
        For shapes or dtypes that do not fit.

    Examples
    --------
    >>> from tapestry_exec import evaluate
    >>> from tapestry_plan import Graph, ops
    >>> g = Graph()
    >>> x = g.constant("x", [[[1.0, 3.0]]])
    >>> scale, bias = g.constant("scale", [1.0]), g.constant("bias", [5.0])
    >>> _ = g.output(ops.instance_normalization(x, scale, bias, epsilon=0), "y")
    >>> evaluate(g, {})["y"].tolist()
    [[[4.0, 6.0]]]

    References
    ----------
    ONNX InstanceNormalization.
    """
