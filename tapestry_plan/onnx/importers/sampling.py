"""Operators of ONNX that read images at computed places: GridSample, RoiAlign, DeformConv.

Each place has some cells around it, taps, with weights. All taps of all places are one gather along the flattened
image, of which plans split the batch, the channels and the places.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from tapestry_plan import ops
from tapestry_plan.ir import Tensor
from tapestry_plan.onnx import tuning
from tapestry_plan.onnx.importers.windows import check_kernel, window_of
from tapestry_plan.onnx.nodes import Importing, Node, Result, refusal
from tapestry_plan.ops import expansions
from tapestry_sets.limits import quote

TAPS = {"nearest": (0,), "linear": (0, 1), "cubic": (-1, 0, 1, 2)}
"""Cells that a place reads along an axis, relative to the one before it, or to the nearest one."""
OLD_MODES = {"bilinear": "linear", "bicubic": "cubic", "nearest": "nearest"}
"""What modes were called before opset 20, and are by ONNX Runtime's own operator."""


def grid_sample(at: Importing, node: Node) -> Result:
    x, grid = at.inputs(node)
    attrs, rank = node.attrs, x.ndim - 2
    is_new = not node.domain and at.opset >= 20
    said = attrs.get("mode", "linear" if is_new else "bilinear")
    mode = said if is_new else OLD_MODES.get(said, "")
    padding, corners = attrs.get("padding_mode", "zeros"), bool(attrs.get("align_corners"))
    if mode not in TAPS or padding not in ("zeros", "border", "reflection"):
        raise ValueError(
            f"mode is {quote(said)} and padding_mode {quote(padding)}; "
            f"{list(TAPS if is_new else OLD_MODES)} are known, and zeros, …"
        )
    if grid.ndim != x.ndim or grid.shape[0] != x.shape[0] or grid.shape[-1] != rank:
        raise ValueError(
            f"the grid has shape {quote(grid.shape)}; {rank} places of an image of {quote(x.shape)} needed"
        )
    grid = ops.astype(grid, x.dtype)
    out = grid.shape[1:-1]
    places = []
    for k, n in enumerate(x.shape[2:]):
        given = grid[..., rank - 1 - k : rank - k].reshape(x.shape[0], 1, prod(out))  # the last axis comes first
        place = (given + 1.0) * ((n - 1) / 2) if corners else ((given + 1.0) * float(n) - 1.0) * 0.5
        low, high = (0.0, n - 1.0) if corners else (-0.5, n - 0.5)
        if mode == "nearest":
            place = ops.round(place)
        if mode == "cubic":
            pass  # as in PyTorch and ONNX Runtime the taps alone are moved inside
        elif padding == "border":
            inside = ops.logical_and(place >= low, place <= high)
            place = ops.where(inside, place, ops.clip(place, 0.0, n - 1.0))
        elif padding == "reflection":
            place = _reflected(place, low, high)
        places.append(place)
    found = _sampled(at, node, x, places, mode, padding, corners)
    return ops.sum(found, (-1,)).reshape((*x.shape[:2], *out))


def max_roi_pool(at: Importing, node: Node) -> Result:
    """The largest cell of each bin of known regions: over its rows, then over its columns, where masks say which.

    Of an image (batch, channels, height, width) and regions (number of the image, x, y, x, y) comes out what has the
    regions and the channels first, then the bins.
    """
    x, rois = at.tensor(node.inputs[0]), at.constant(node, 1, "rois")
    pooled, scale = tuple(node.attrs["pooled_shape"]), np.float32(node.attrs.get("spatial_scale", 1.0))
    assert rois is not None, "it is needed"
    if x.ndim != 4 or rois.ndim != 2 or rois.shape[1] != 5 or len(pooled) != 2 or min(pooled) < 1:
        raise ValueError(
            f"shapes {quote(x.shape)} and {quote(rois.shape)}, pooled_shape {quote(pooled)}; an image with two spatial "
            "axes, regions of five numbers and two positive extents are needed"
        )
    images = rois[:, 0].astype(np.int64)
    if not ((images >= 0) & (images < x.shape[0])).all():
        raise ValueError(f"rois are of images {quote(images.tolist())}; there are {x.shape[0]}")
    # As ONNX Runtime: ends are rounded away from 0, and bins are counted in single precision.
    ends = np.trunc(rois[:, 1:] * scale + np.copysign(np.float32(0.5), rois[:, 1:] * scale)).astype(np.int64)
    least = at.graph.constant(f"{node.name}.least", np.finfo(np.dtype(x.dtype)).min)
    made, empty = ops.take(x, images), np.zeros((len(rois), 1, *pooled), bool)
    for k, n in enumerate(x.shape[2:]):
        begin, end = ends[:, 1 - k], ends[:, 3 - k]
        each = (np.maximum(end - begin + 1, 1).astype(np.float32) / np.float32(pooled[k]))[:, None]
        bins = np.arange(pooled[k], dtype=np.float32)
        first, last = np.floor(bins * each), np.ceil((bins + 1) * each)
        cells = np.arange(n)
        held = cells >= np.clip(first + begin[:, None], 0, n)[..., None]
        held &= cells < np.clip(last + begin[:, None], 0, n)[..., None]
        none = ~held.any(axis=-1)
        empty |= none[:, None, :, None] if k == 0 else none[:, None, None, :]
        # (regions, 1, bins, cells, 1), then (regions, 1, 1, bins, cells), beside an axis of bins that is new
        shape = (len(rois), 1, pooled[0], n, 1) if k == 0 else (len(rois), 1, 1, pooled[1], n)
        mask = at.graph.constant(f"{node.name}.cells{k}", held.reshape(shape))
        made = ops.max(ops.where(mask, made.expand_dims(2 + k), least), (3 + k,), keepdims=False)
    nothing = at.graph.constant(f"{node.name}.nothing", np.zeros((), x.dtype))
    return ops.where(at.graph.constant(f"{node.name}.empty", empty), nothing, made, name=node.name)


def roi_align(at: Importing, node: Node) -> Result:
    x, rois, batch = at.inputs(node)
    attrs = node.attrs
    ratio, mode = attrs.get("sampling_ratio", 0), attrs.get("mode", "avg")
    if ratio < 1:
        raise refusal(node, "sampling_ratio 0, by which the number of samples depends on the boxes, is not supported")
    if mode not in ("avg", "max"):
        raise ValueError(f"mode is {quote(mode)}; avg and max are known")
    half = attrs.get("coordinate_transformation_mode", "half_pixel" if at.opset >= 16 else "output_half_pixel")
    if half not in ("half_pixel", "output_half_pixel"):
        raise ValueError(f"coordinate_transformation_mode is {quote(half)}; half_pixel and output_half_pixel are known")
    extents = attrs.get("output_height", 1), attrs.get("output_width", 1)
    scaled = rois * float(attrs.get("spatial_scale", 1.0)) - (0.5 if half == "half_pixel" else 0.0)
    spots, places, inside = len(rois.shape) and rois.shape[0], [], []
    for k, n in enumerate(x.shape[2:]):
        begin, end = scaled[:, 1 - k : 2 - k], scaled[:, 3 - k : 4 - k]
        length = end - begin
        length = length if half == "half_pixel" else ops.maximum(length, 1.0)
        steps = (np.arange(extents[k])[:, None] + (np.arange(ratio) + 0.5) / ratio).reshape(-1)
        steps = at.graph.constant(f"{node.name}.steps{k}", (steps / extents[k]).astype(x.dtype))
        place = begin + length * steps
        inside.append(ops.logical_and(place >= -1.0, place <= float(n)))
        places.append(ops.clip(place, 0.0, n - 1.0))
    grid = (spots, extents[0], ratio, extents[1], ratio)
    rows, columns = (spots, extents[0], ratio, 1, 1), (spots, 1, 1, extents[1], ratio)
    at_once = [
        one.reshape(shape).broadcast_to(grid).reshape(spots, 1, prod(grid[1:]))
        for one, shape in zip(places, (rows, columns), strict=True)
    ]
    seen = ops.logical_and(*(one.reshape(shape) for one, shape in zip(inside, (rows, columns), strict=True)))
    seen = ops.astype(seen, x.dtype).reshape(spots, 1, prod(grid[1:]), 1)
    found = _sampled(at, node, ops.take(x, batch), at_once, "linear", "zeros", True) * seen
    split = found.reshape((spots, x.shape[1], *grid[1:], found.shape[-1]))
    if mode == "max":
        return ops.max(split, (3, 5, 6))
    return ops.sum(split, (3, 5, 6)) / float(ratio * ratio)


def deform_conv(at: Importing, node: Node) -> Result:
    x, w, offset = (at.tensor(name) for name in node.inputs[:3])
    if x.ndim != 4:
        raise refusal(node, f"an image of rank {x.ndim} is not supported, only of 4")
    check_kernel(node, w)
    (n, channels, *extents), kernel = x.shape, w.shape[2:]
    groups, shifts = node.attrs.get("group", 1), node.attrs.get("offset_group", 1)
    window = window_of(node, extents, kernel)
    out, cells = offset.shape[2:], prod(kernel)
    if offset.shape[1] != shifts * cells * 2 or channels % shifts or channels != w.shape[1] * groups:
        raise ValueError(
            f"offsets of shape {quote(offset.shape)} and weights of {quote(w.shape)} do not fit {groups} groups, "
            f"{shifts} groups of offsets and an image of {quote(x.shape)}"
        )
    if out != expansions.Window.of(kernel, window).out_shape(tuple(extents)):
        raise ValueError(
            f"offsets of shape {quote(offset.shape)} are not for every place of an image of {quote(x.shape)}"
        )
    moved = offset.reshape(n, shifts, cells, 2, *out)
    taps = np.indices(kernel).reshape(2, cells)
    places = []
    for k in range(2):
        start = np.arange(out[k]) * window["strides"][k] - window["pads"][k]
        begin = taps[k][:, None] * window["dilations"][k] + start
        begin = begin[:, :, None] if k == 0 else begin[:, None, :]
        first = at.graph.constant(f"{node.name}.cells{k}", begin.astype(x.dtype))
        places.append(
            (moved[:, :, :, k : k + 1].reshape(n, shifts, cells, *out) + first).reshape(n, shifts, cells * prod(out))
        )
    found = ops.sum(_sampled(at, node, x, places, "linear", "zeros", True), (-1,))
    found = found.reshape(n, channels, cells, prod(out))
    if node.input(4):
        mask = at.tensor(node.inputs[4]).reshape(n, shifts, 1, cells, prod(out))
        found = (found.reshape(n, shifts, channels // shifts, cells, prod(out)) * mask).reshape(found.shape)
    rows = found.reshape(n, groups, channels // groups, cells, prod(out))
    weights = w.reshape(groups, w.shape[0] // groups, w.shape[1], cells)
    made = ops.einsum("ngckp,gock->ngop", rows, weights).reshape(n, w.shape[0], *out)
    return made + at.tensor(node.inputs[3]).reshape(-1, 1, 1) if node.input(3) else made


# -- parts -----------------------------------------------------------------------------------------------


def _sampled(
    at: Importing, node: Node, x: Tensor, places: Sequence[Tensor], mode: str, padding: str, corners: bool
) -> Tensor:
    """What the taps of each place read, times their weights: (n, channels, places, taps).

    Places are (n, groups, places) for each axis of the image, in its cells; channels of a group share them.
    """
    (n, channels, *extents), (_, groups, count) = x.shape, places[0].shape
    number: Tensor | None = None
    weight: Tensor | None = None
    offsets = np.array(TAPS[mode])
    rank = len(extents)
    for k, (place, extent) in enumerate(zip(places, extents, strict=True)):
        first = place if mode == "nearest" else ops.floor(place)
        taps = at.graph.constant(f"{node.name}.taps{k}", offsets.astype(x.dtype))
        cells = first.expand_dims(-1) + taps
        share = _weights((place - first).expand_dims(-1), taps, mode)
        inside = ops.logical_and(cells >= 0.0, cells <= extent - 1.0)
        if padding == "zeros":
            share = share * ops.astype(inside, x.dtype)
        elif padding == "reflection":
            low, high = (0.0, extent - 1.0) if corners else (-0.5, extent - 0.5)
            cells = ops.where(inside, cells, ops.floor(_reflected(cells, low, high)))
        named = ops.astype(ops.clip(cells, 0.0, extent - 1.0), "int64")
        shape = (n, groups, count, *(len(offsets) if axis == k else 1 for axis in range(rank)))
        step = prod(extents[k + 1 :])
        own = named.reshape(shape) * step if step != 1 else named.reshape(shape)
        number = own if number is None else number + own
        weight = share.reshape(shape) if weight is None else weight * share.reshape(shape)
    assert number is not None and weight is not None, "an image has axes"
    taps_in_all = len(offsets) ** rank
    flat = x.reshape(n, groups, channels // groups, prod(extents))
    where = number.reshape(n, groups, 1, count * taps_in_all)
    found = ops.take_along_axis(flat, where.broadcast_to((*flat.shape[:3], count * taps_in_all)), 3)
    shares = weight.reshape(n, groups, 1, count, taps_in_all)
    return (found.reshape((*flat.shape[:3], count, taps_in_all)) * shares).reshape(n, channels, count, taps_in_all)


def _weights(beyond: Tensor, taps: Tensor, mode: str) -> Tensor:
    """The weights of taps, of places that lie so far behind the first one."""
    if mode == "nearest":
        return beyond * 0.0 + 1.0
    apart = ops.abs(beyond - taps)
    if mode == "linear":
        return 1.0 - apart
    near = ((tuning.CUBIC + 2) * apart - (tuning.CUBIC + 3)) * apart * apart + 1.0
    far = ((tuning.CUBIC * apart - 5 * tuning.CUBIC) * apart + 8 * tuning.CUBIC) * apart - 4 * tuning.CUBIC
    return ops.where(apart <= 1.0, near, far)


def _reflected(place: Tensor, low: float, high: float) -> Tensor:
    """Places folded at the borders until they are inside."""
    span = high - low
    if span <= 0:
        return place * 0.0 + low
    apart = ops.abs(place - low)
    turns = ops.floor(apart / span)
    rest = apart - turns * span
    is_even = ops.equal(turns - ops.floor(turns / 2.0) * 2.0, 0.0)
    folded = ops.where(is_even, rest + low, high - rest)
    return ops.where(ops.logical_and(place >= low, place <= high), place, folded)
