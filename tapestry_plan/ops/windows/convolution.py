"""Convolutions over one to three spatial axes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from tapestry_plan.autodiff import adjoints
from tapestry_plan.ir import (
    Attrs,
    Axis,
    Call,
    Correlation,
    LinearForm,
    ListedBlock,
    Shape,
    Shard,
    Signature,
    Tensor,
    once_for_shard,
)
from tapestry_plan.ops import expansions, tuning
from tapestry_plan.ops.declaration import operator
from tapestry_plan.ops.operands import ints_of, need_rank, need_vector, same_dtype, spatial_names, spatial_of, touched
from tapestry_plan.ops.windows.window import Window, groups_of, offsets_of


def _conv_signature(shapes: Sequence[Shape], attrs: Attrs) -> Signature:
    x, w = shapes[:2]
    names = spatial_names(x, "operand 0")
    need_rank(w, len(x), "the weight", "output channels, channels of a group, kernel")
    (groups,) = ints_of(attrs["groups"], 1, "groups", 1)
    if w[0] % groups or x[1] != w[1] * groups:
        raise ValueError(
            f"groups is {groups}: operand 0 of shape {x} has {x[1]} channels and the weight of shape {w} takes "
            f"{w[1]} for each group and makes {w[0]}; channels must be groups·{w[1]}, and groups divide {w[0]}"
        )
    window = Window.of(w[2:], attrs)
    kernel = tuple(f"k{name}" for name in names)
    axes = (
        Axis("n", x[0]),
        Axis("c", w[0]),
        *map(Axis, names, window.out_shape(x[2:])),
        Axis("ci", w[1], "reduction"),
        *(Axis(name, size, "reduction") for name, size in zip(kernel, w[2:], strict=True)),
    )
    channel, splits = group_channel(w, groups)
    inputs = [
        touched(axes, ["n", channel, *window.forms(names)], splits=splits, pad=0.0),
        touched(axes, ["c", "ci", *kernel]),
    ]
    if len(shapes) > 2:
        need_vector(shapes[2], w[0], "the bias", "the output's channels")
        inputs.append(touched(axes, ["c"], at_start_of=("ci", *kernel)))
    return Signature(axes, tuple(inputs), (touched(axes, ["n", "c", *names]),))


def group_channel(weight: Shape, groups: int) -> tuple[LinearForm, dict[str, int]]:
    """The channel that output channel c reads at ci: (c // channels of a group)·weight[1] + ci."""
    if groups == 1:
        return {"ci": 1}, {}
    width = weight[0] // groups
    if width == 1:
        return {"c": weight[1], "ci": 1}, {}
    return {"c//": weight[1], "ci": 1}, {"c": width}


def _conv_calls(xp: Any, inputs: Sequence[Any], outputs: Sequence[Any], shard: Shard) -> Iterator[Call]:
    x, w = inputs[:2]
    bias = inputs[2] if len(inputs) > 2 else None
    (out,) = outputs
    if _is_depthwise(shard, out.dtype.itemsize):
        for n in range(x.shape[0]):
            yield partial(_conv_depthwise, xp, x[n], w, bias, out[n], shard)
        return
    list_part = _direct_calls if _is_direct(shard) else _unfolded_calls
    for n in range(x.shape[0]):
        for _, channels, first in _list_groups(shard):
            read = slice(first, first + w.shape[1])
            add = None if bias is None else bias[channels]
            given = xp, x[n, read], w[channels], add, out[n, channels], shard
            if w[channels].flags.c_contiguous:
                yield from list_part(*given)
            else:
                yield partial(_run_apart, list_part, *given)


def _run_apart(list_part: Any, xp: Any, x: Any, w: Any, *rest: Any) -> None:
    """Bring weights together that lie apart, once for all calls."""
    for call in list_part(xp, x, xp.ascontiguousarray(w), *rest):
        call()


@once_for_shard
def _window(shard: Shard) -> Window:
    # The kernel's extents are those of its index axes: the weight's shape is not always at hand.
    return Window.of([shard.extent(f"k{name}") for name in spatial_of(shard)], shard.attrs)


@once_for_shard
def _is_direct(shard: Shard) -> bool:
    """Whether the block of a shard is the output's block itself: one kernel cell, no stride."""
    kernel = [shard.length(f"k{name}") for name in spatial_of(shard)]
    return all(n == 1 for n in (*_window(shard).strides, *kernel))


def _is_depthwise(shard: Shard, itemsize: int) -> bool:
    """Whether each output channel reads one channel of its own, in cells that sums do not make much worse."""
    return itemsize > 2 and _has_own_channels(shard)


@once_for_shard
def _has_own_channels(shard: Shard) -> bool:
    return shard.extent("ci") == 1 and shard.extent("c") == shard.attrs["groups"] > 1


@once_for_shard
def _list_groups(shard: Shard) -> list[tuple[int, slice, int]]:
    return list(groups_of(shard))


@once_for_shard
def _list_offsets(shard: Shard) -> list[tuple[slice, ...]]:
    return list(offsets_of(shard, _window(shard), spatial_of(shard)))


def _conv_depthwise(xp: Any, x: Any, w: Any, bias: Any, out: Any, shard: Shard) -> None:
    """One product and sum for each kernel cell, over some channels at a time, which stay in cache."""
    #   out[channels] = w[channels, 0, 0] · x[channels, rows 0, 2, …] + w[channels, 0, 1] · x[…] + …
    count = _channels_at_once(shard, out.dtype.itemsize)
    around = (slice(None), *(None,) * (out.ndim - 1))
    scratch = shard.workspace[: count * math.prod(out.shape[1:]) * out.dtype.itemsize].view(out.dtype)
    kernel = w.reshape(len(w), -1)
    for begin in range(0, len(w), count):
        some = slice(begin, min(begin + count, len(w)))
        target = out[some]
        term = scratch[: target.size].reshape(target.shape)
        for k, cells in enumerate(_list_offsets(shard)):
            read, factor = x[(some, *cells)], kernel[some, k][around]
            if k == 0:
                xp.multiply(read, factor, out=target)
            else:
                xp.multiply(read, factor, out=term)
                target += term
        if bias is not None:
            target += bias[some][around]


def _channels_at_once(shard: Shard, itemsize: int) -> int:
    """Channels of a depthwise convolution whose results fit into a quarter of TILE_NBYTES, at least one."""
    channels, cells = _count_plane(shard)
    return max(1, min(channels, tuning.TILE_NBYTES // 4 // max(itemsize * cells, 1)))


@once_for_shard
def _count_plane(shard: Shard) -> tuple[int, int]:
    """Channels of the block, and cells of one."""
    return shard.length("c"), math.prod(shard.length(name) for name in spatial_of(shard))


def _direct_calls(xp: Any, x: Any, w: Any, bias: Any, out: Any, shard: Shard) -> Iterator[Call]:
    """One kernel cell, no stride: a product of matrices on the tensor itself."""
    # A block inside a larger buffer is brought together first: one product is faster than one for each row, and has
    # the same bits wherever blocks lie.
    yield _multiply(xp, w, x, out)
    if bias is not None:
        yield partial(xp.add, out, bias.reshape(-1, *(1,) * (out.ndim - 1)), out=out)


def _unfolded_calls(xp: Any, x: Any, w: Any, bias: Any, out: Any, shard: Shard) -> Iterator[Call]:
    """Windows unfolded into columns, a tile of rows at a time, each multiplied while it is in cache."""
    #             one column for each output of the tile
    #           ┌──────────────┐
    #  weight · │ ci, kh, kw   │ = out[:, the tile's rows]
    #           └──────────────┘
    # A window's cells are copied side by side, so that one product of matrices does all kernel cells at once. The tile
    # is as high as fits into a core's own cache: the product reads the columns before they are written back to memory.
    offsets, stride = _list_offsets(shard), _window(shard).strides[0]
    depth, kernel = x.shape[0], len(offsets)
    row = math.prod(out.shape[2:])
    height, _ = _tile(shard, out.dtype.itemsize)
    scratch = shard.workspace[: depth * kernel * height * row * out.dtype.itemsize].view(out.dtype)
    flat = out.reshape(out.shape[0], -1) if out.flags.c_contiguous else None
    for top in range(0, out.shape[1], height):
        rows = min(height, out.shape[1] - top)
        columns = scratch[: depth * kernel * rows * row].reshape(depth, kernel, rows, *out.shape[2:])
        for k, cells in enumerate(offsets):
            first = cells[0].start + top * stride
            read = x[(slice(None), slice(first, first + (rows - 1) * stride + 1, stride), *cells[1:])]
            yield partial(xp.copyto, columns[:, k], read)
        tile = out[:, top : top + rows] if flat is None else flat[:, top * row : (top + rows) * row]
        yield _multiply(xp, w, columns.reshape(depth * kernel, -1), tile)
        if bias is not None:
            yield partial(xp.add, tile, bias.reshape(-1, *(1,) * (tile.ndim - 1)), out=tile)


def _multiply(xp: Any, w: Any, columns: Any, out: Any) -> Call:
    """The product of weights, which lie together, and columns, all but whose first axes are one axis."""
    w = w.reshape(len(w), -1)
    if not columns.flags.c_contiguous or not (out.ndim == 2 or out.flags.c_contiguous):
        return partial(_multiply_apart, xp, w, columns, out)
    return partial(xp.matmul, w, columns.reshape(len(columns), -1), out=out.reshape(len(out), -1))


def _multiply_apart(xp: Any, w: Any, columns: Any, out: Any) -> None:
    """The same of blocks in larger buffers: brought together before, and what is made lies beside it first."""
    matrices = w, columns.reshape(len(columns), -1)
    if out.ndim == 2 or out.flags.c_contiguous:
        xp.matmul(*matrices, out=out.reshape(len(out), -1))
    else:
        xp.copyto(out, xp.matmul(*matrices).reshape(out.shape))


def _tile(shard: Shard, itemsize: int) -> tuple[int, int]:
    """Rows of one tile, as many as fit into TILE_NBYTES, at least one; and the bytes of a row."""
    height, cells = _count_rows(shard)
    row = itemsize * cells
    return max(1, min(height, tuning.TILE_NBYTES // row)), row


@once_for_shard
def _count_rows(shard: Shard) -> tuple[int, int]:
    """Rows of the block, and cells of the windows of one."""
    names = spatial_of(shard)
    read = "ci", *(f"k{name}" for name in names), *names[1:]
    return shard.length(names[0]), math.prod(shard.length(name) for name in read)


def _conv_workspace(shard: Shard, itemsize: int) -> int:
    if _is_depthwise(shard, itemsize):
        return _channels_at_once(shard, itemsize) * itemsize * math.prod(shard.length(k) for k in spatial_of(shard))
    if _is_direct(shard):
        return 0
    return math.prod(_tile(shard, itemsize))


def _correlation(shard: Shard) -> Correlation:
    window, bias = _window(shard), 2 if len(shard.input_boxes) > 2 else None
    groups = tuple(((made.start, made.stop), first) for _, made, first in groups_of(shard))
    return Correlation(0, 1, bias, window.strides, window.dilations, groups)


def _local_conv(shard: Shard, shapes: Sequence[Shape]) -> Attrs | None:
    """A block holds its padding; None where parts of several groups are in it, or channels that are not read."""
    found = {**shard.attrs, "pads": 0}
    if shard.attrs.get("groups", 1) > 1:
        begin, end = shard.range("c")
        width = shard.extent("c") // shard.attrs["groups"]
        first, last = begin // width, (end - 1) // width
        found["groups"] = last - first + 1
        is_cut = (begin % width or end % width) and first != last
        if is_cut or shapes[0][1] != found["groups"] * shapes[1][1]:
            return None
    return found


@operator(
    block=ListedBlock(_conv_calls),
    signature=_conv_signature,
    flop=2.0,
    reduction="sum",
    dtype=same_dtype,
    workspace=_conv_workspace,
    expansions=(
        expansions.by_group,
        expansions.interleaved,
        expansions.space_to_batch,
        expansions.phases,
        expansions.strided_view,
        expansions.windows_einsum,
    ),
    adjoint=adjoints.Through(expansions.windows_einsum),
    work=_correlation,
    local=_local_conv,
    rows=True,
)
def conv(
    x: Tensor,
    w: Tensor,
    b: Tensor | None = None,
    *,
    strides: int | Sequence[int] = 1,
    pads: int | Sequence[int] = 0,
    dilations: int | Sequence[int] = 1,
    groups: int = 1,
    name: str | None = None,
) -> Tensor:
    """A convolution (a correlation, as in all networks) over one to three spatial axes.

    Parameters
    ----------
    x : Tensor of shape (n, channels, …)
    w : Tensor of shape (output channels, channels / groups, …)
    b : Tensor of shape (output channels,), optional
    strides, dilations : int or one for each spatial axis
    pads : int, or one for each spatial axis, or all begins and then all ends
        Cells of zeros around x.
    groups : int
        Output channel c reads the channels of group c // (output channels / groups) only.

    Raises
    ------
    ValueError
        When the shapes, channels or groups do not fit, or the window is larger than the padded tensor.

    Examples
    --------
    >>> from tapestry_plan import Graph
    >>> from tapestry_plan.ops import conv
    >>> g = Graph()
    >>> x, w = g.input("x", (1, 3, 8, 8)), g.input("w", (16, 3, 3, 3))
    >>> conv(x, w, strides=2, pads=1).shape
    (1, 16, 4, 4)

    References
    ----------
    ONNX Conv; Tapestry, "Sharding convolution".
    """
