"""Transposed convolutions: the adjoint of a convolution, each cell of its output written once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

from tapestry_plan.ir import Attrs, Axis, Backward, LinearForm, Operand, Shape, Shard, Signature, Tensor, project
from tapestry_plan.ops.declaration import operator
from tapestry_plan.ops.expansions import windows_of
from tapestry_plan.ops.operands import ints_of, need_rank, need_vector, numeric, spatial_names, spatial_of, touched
from tapestry_plan.ops.windows.window import Window, groups_of
from tapestry_sets.limits import quote


def _conv_transpose_signature(shapes: Sequence[Shape], attrs: Attrs) -> Signature:
    # Cell i of the input reaches outputs stride·i … stride·i + kernel - 1, here with stride 2 and a kernel of 3:
    #
    #     output o      0 1 2 3 4 5 6
    #     from i = 0    x x x                  q = o // 2 counts cells of the input: outputs 2·q and 2·q + 1 read
    #     from i = 1        x x x              cells q + low … q + high of it (`_span`), so the axis is split by 2,
    #     from i = 2            x x x          and each output cell is a sum of its own, written once
    x, w = shapes[:2]
    names = spatial_names(x, "operand 0")
    need_rank(w, len(x), "the weight", "channels, output channels of a group, kernel")
    (groups,) = ints_of(attrs["groups"], 1, "groups", 1)
    if x[1] != w[0] or w[0] % groups:
        raise ValueError(
            f"groups is {groups}: operand 0 of shape {x} has {x[1]} channels, the weight of shape {w} takes {w[0]}; "
            "they must be equal, and groups divide them"
        )
    window = Window.of(w[2:], attrs)
    width, depth = w[1], w[0] // groups
    axes = (
        Axis("n", x[0]),
        Axis("c", groups * width),
        *map(Axis, names, _out_extents(x[2:], window, attrs)),
        Axis("ci", depth, "reduction"),
    )
    strides = zip(names, window.strides, strict=True)
    splits = {"c": width, **{name: stride for name, stride in strides if stride > 1}}
    spans = [_span(window, axis) for axis in range(len(names))]
    read: list[LinearForm] = [
        {f"{name}//" if stride > 1 else name: 1, "": low}
        for name, stride, (low, _) in zip(names, window.strides, spans, strict=True)
    ]
    channel: LinearForm = {"c//": depth, "ci": 1}
    box = [1, 1, *(high - low + 1 for low, high in spans)]
    inputs = [
        Operand(project(axes, [{"n": 1}, channel, *read], box, splits), pad=0.0),
        touched(axes, [channel, "c%", *[""] * len(names)], w, splits),
    ]
    if len(shapes) > 2:
        need_vector(shapes[2], groups * width, "the bias", "the output's channels")
        inputs.append(touched(axes, ["c"], at_start_of=("ci",)))
    return Signature(axes, tuple(inputs), (touched(axes, ["n", "c", *names]),))


def _out_extents(extents: Shape, window: Window, attrs: Attrs) -> Shape:
    more = ints_of(attrs["output_padding"], len(extents), "output_padding", 0)
    out = []
    for axis, n in enumerate(extents):
        stride, dilation = window.strides[axis], window.dilations[axis]
        if more[axis] >= max(stride, dilation):
            raise ValueError(
                f"output_padding is {more[axis]} on spatial axis {axis}; it must be below the stride {stride} or the "
                f"dilation {dilation}"
            )
        made = (n - 1) * stride + window.reach[axis] + more[axis] - window.begins[axis] - window.ends[axis]
        if made < 1:
            raise ValueError(
                f"pads of {window.begins[axis]} and {window.ends[axis]} leave {made} cells on spatial axis {axis} of "
                f"extents {quote(extents)}; pad by less"
            )
        out.append(made)
    return tuple(out)


def _span(window: Window, axis: int) -> tuple[int, int]:
    """First and last cell read by outputs stride·q … stride·q + stride − 1, relative to q.

    Output o is reached from cell i by kernel cell k where o = stride·i + dilation·k − begin.
    """
    stride, begin = window.strides[axis], window.begins[axis]
    return -((window.reach[axis] - 1 - begin) // stride), (stride - 1 + begin) // stride


def _conv_transpose_block(xp: Any, inputs: Sequence[Any], outputs: Sequence[Any], shard: Shard) -> None:
    x, w = inputs[:2]
    (out,) = outputs
    names = spatial_of(shard)
    window = Window.of(w.shape[2:], shard.attrs)
    box = shard.input_boxes[0]
    assert box is not None, "a shard reads of operand 0 always"
    out[...] = 0
    for kernel in product(*map(range, window.kernel)):
        cells = [_taps(shard, window, axis, name, kernel[axis]) for axis, name in enumerate(names)]
        if any(count == 0 for _, _, count in cells):
            continue
        written = tuple(slice(o, o + (n - 1) * s + 1, s) for (o, _, n), s in zip(cells, window.strides, strict=True))
        read = tuple(slice(i - low, i - low + n) for (_, i, n), low in zip(cells, box.start[2:], strict=True))
        for channels, groups, taken in _group_parts(shard, w.shape[1]):
            matrix = w[(groups, taken, *kernel)]
            source = x[(slice(None), groups, *read)]
            # (channels of the group, outputs) and (n, channels of the group, …): the channels are summed
            made = xp.moveaxis(xp.tensordot(matrix, source, axes=([0], [1])), 0, 1)
            out[(slice(None), channels, *written)] += made
    if len(inputs) > 2 and inputs[2] is not None:
        out += inputs[2].reshape(-1, *(1,) * len(names))


def _taps(shard: Shard, window: Window, axis: int, name: str, k: int) -> tuple[int, int, int]:
    """For kernel cell k on an axis: the shard's first output, the input cell that it reads, and how many follow."""
    begin, end = shard.range(name)
    stride = window.strides[axis]
    shift = window.dilations[axis] * k - window.begins[axis]  # o = stride·i + shift
    first = -((shift - begin) // stride)
    last = (end - 1 - shift) // stride
    return stride * first + shift - begin, first, max(0, last - first + 1)


def _group_parts(shard: Shard, block_width: int) -> Iterator[tuple[slice, slice, slice]]:
    """For each group of a shard: its output channels, the channels that it reads, its part of the weight's axis 1."""
    begin, width = shard.range("c")[0], shard.extent("c") // shard.attrs["groups"]
    # The weight's block holds all of a group's channels where the shard has more than one group.
    offset = 0 if block_width == width else begin % width
    for group, made, at in groups_of(shard):
        first = made.start + begin - group * width - offset
        yield made, slice(at, at + shard.length("ci")), slice(first, first + made.stop - made.start)


def _conv_transpose_flop(signature: Signature, attrs: Attrs) -> float:
    """Two for each kernel cell that reaches an output: one in `stride` along each axis."""
    kernel = signature.inputs[1].projection.shape[2:]
    strides = ints_of(attrs.get("strides", 1), len(kernel), "strides", 1)
    flop = 2.0
    for k, stride in zip(kernel, strides, strict=True):
        flop *= max(1.0, k / stride)
    return flop


def _adjoint(b: Backward) -> Sequence[Tensor | None]:
    """Its input receives the convolution that it is the adjoint of; its weight products with that one's windows."""
    x, w = b.inputs[:2]
    attrs = {key: b.attrs[key] for key in ("strides", "pads", "dilations", "groups")}
    spatial, groups = x.ndim - 2, attrs["groups"]
    every = (slice(None), slice(None), *(slice(n) for n in x.shape[2:]))
    dx = b.op("conv", b.grad, w, **attrs)[every]
    windows = windows_of(b.grad, Window.of(w.shape[2:], attrs))[every]
    o, k = "xyz"[:spatial], "uvw"[:spatial]
    cut = windows.reshape(x.shape[0], groups, w.shape[1], *x.shape[2:], *w.shape[2:])
    cells = x.reshape(x.shape[0], groups, x.shape[1] // groups, *x.shape[2:])
    dw = b.op("einsum", cut, cells, equation=f"ngc{o}{k},ngi{o}->gic{k}")
    bias = [b.op("sum", b.grad, axis=(0, *range(2, x.ndim)), keepdims=False)] if len(b.inputs) > 2 else []
    return dx, dw.reshape(w.shape), *bias


@operator(
    block=_conv_transpose_block,
    signature=_conv_transpose_signature,
    flop=_conv_transpose_flop,
    reduction="sum",
    dtype=numeric,
    adjoint=_adjoint,
)
def conv_transpose(
    x: Tensor,
    w: Tensor,
    b: Tensor | None = None,
    *,
    strides: int | Sequence[int] = 1,
    pads: int | Sequence[int] = 0,
    dilations: int | Sequence[int] = 1,
    groups: int = 1,
    output_padding: int | Sequence[int] = 0,
    name: str | None = None,
) -> Tensor:
    """The adjoint of a convolution: each cell of x is spread over a window of the output.

    Every index axis may be cut: n, c, the spatial axes of the output, and the reduction ci over the channels of a
    group. The kernel's cells are not index axes. A part of a spatial axis reads all cells that reach the runs of
    `stride` outputs that it has a share in. Without dilation, these are just the cells that it needs where it begins
    and ends with a run and the padding before the axis is a multiple of the stride, else up to one more on either side.

    Parameters
    ----------
    x : Tensor of shape (n, channels, …)
        One to three spatial axes.
    w : Tensor of shape (channels, output channels / groups, …)
    b : Tensor of shape (output channels,), optional
    strides, dilations : int or one for each spatial axis
    pads : int, or one for each spatial axis, or all begins and then all ends
        Cells cut off from the output.
    groups : int
        Output channel c reads the channels of group c // (output channels / groups) only.
    output_padding : int or one for each spatial axis
        Cells added at the output's end; below the stride or the dilation.

    Raises
    ------
    ValueError
        When the shapes, channels or groups do not fit, or nothing is left of the output.

    Examples
    --------
    >>> from tapestry_plan import Graph
    >>> from tapestry_plan.ops import conv_transpose
    >>> g = Graph()
    >>> x, w = g.input("x", (1, 8, 4, 4)), g.input("w", (8, 3, 3, 3))
    >>> conv_transpose(x, w, strides=2, pads=1, output_padding=1).shape
    (1, 3, 8, 8)

    References
    ----------
    ONNX ConvTranspose.
    """
