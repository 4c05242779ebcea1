"""Operators of ONNX that find, use or change cells by number, made of gathers, scatters and views."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, prod
from typing import Any

import numpy as np
from msgspec import structs

from tapestry_plan import ops
from tapestry_plan.ir import Tensor, concat
from tapestry_plan.onnx import tuning
from tapestry_plan.onnx.importers import windows as onnx_windows
from tapestry_plan.onnx.importers.recurrent import lengths_of
from tapestry_plan.onnx.nodes import Importing, Node, Result, TooLargeToFold, axes_of, refusal
from tapestry_plan.ops import Operator, expansions
from tapestry_sets.limits import quote
from tapestry_sets.views import pad


def best(function: Operator[..., Tensor]) -> Callable[[Importing, Node], Result]:
    """ArgMax or ArgMin: of equal cells the first, or the last where the node asks for that."""

    def add(at: Importing, node: Node) -> Result:
        x, attrs = at.tensor(node.inputs[0]), node.attrs
        how = {"axis": attrs.get("axis", 0), "keepdims": bool(attrs.get("keepdims", 1)), "name": node.name}
        if not attrs.get("select_last_index"):
            return function(x, **how)
        (axis,) = axes_of([how["axis"]], x.ndim, "axis")
        return (x.shape[axis] - 1) - function(x[(*(slice(None),) * axis, slice(None, None, -1))], **how)

    return add


def hardmax(at: Importing, node: Node) -> Result:
    x = at.tensor(node.inputs[0])
    (axis,) = axes_of([node.attrs.get("axis", -1)], x.ndim, "axis")
    numbers = np.arange(x.shape[axis]).reshape(-1, *(1,) * (x.ndim - axis - 1))
    places = at.graph.constant(f"{node.name}.places", numbers)
    return ops.astype(ops.equal(ops.argmax(x, axis, keepdims=True), places), x.dtype, name=node.name)


def cumulative_product(at: Importing, node: Node) -> Result:
    """Products of runs twice as long, again and again, so that the axis may be split too."""
    x, axes = at.tensor(node.inputs[0]), at.ints(node, 1, "axis") or [0]
    (axis,) = axes_of(axes[:1], x.ndim, "axis")
    back, n, reach = bool(node.attrs.get("reverse")), x.shape[axis], 1

    def shifted(y: Tensor, by: int) -> Tensor:
        widths = [((0, by) if back else (by, 0)) if k == axis else (0, 0) for k in range(y.ndim)]
        cut = slice(by, None) if back else slice(0, n)
        return pad(y, widths, value=1)[(*(slice(None),) * axis, cut)]

    made = shifted(x, 1) if node.attrs.get("exclusive") else x
    while reach < n:
        made, reach = made * shifted(made, reach), 2 * reach
    return made


def eye_like(at: Importing, node: Node) -> Result:
    shape = at.shape(node.inputs[0])
    if len(shape) != 2:
        raise ValueError(f"the input has shape {quote(shape)}; a matrix is needed")
    given = node.attrs.get("dtype")
    like = at.tensors[node.inputs[0]].dtype if node.inputs[0] in at.tensors else at.value(node.inputs[0]).dtype
    dtype, k = like if given is None else at.dtype(given), node.attrs.get("k", 0)
    try:
        at.spend(node, prod(shape) * 8)
    except TooLargeToFold:
        row, column = (ops.iota(at.graph, n, start=first) for n, first in zip(shape, (k, 0), strict=True))
        return ops.astype(ops.equal(row.expand_dims(1), column), dtype, name=node.name)
    at.bind_computed(node, node.outputs[0], np.eye(*shape, k, dtype=dtype))
    return None


def range_of(at: Importing, node: Node) -> Result:
    """Numbers in steps that are too many to be computed at import: each device computes those that it reads."""
    first, limit, step = (at.constant(node, k, label) for k, label in enumerate(("start", "limit", "delta")))
    assert first is not None and limit is not None and step is not None, "they are needed"
    if not first.size == limit.size == step.size == 1 or not step.any():
        raise ValueError("start, limit and delta are one number each, and delta is not 0")
    if first.dtype.name in ("float16", "bfloat16") and node.attrs.get("stash_type", tuning.FLOAT):
        raise refusal(node, f"so many numbers of {first.dtype.name} are not supported; count in float32, and cast")
    apart, each, dtype = limit.item() - first.item(), step.item(), first.dtype.name
    size = max(0, ceil(apart / each) if first.dtype.kind == "f" else -(-apart // each))
    if not size:
        at.bind(node.outputs[0], np.empty(0, dtype))
        return None
    return ops.iota(at.graph, size, start=first.item(), step=step.item(), dtype=dtype, name=node.name)


def reverse_sequence(at: Importing, node: Node) -> Result:
    x, time, batch = at.tensor(node.inputs[0]), node.attrs.get("time_axis", 0), node.attrs.get("batch_axis", 1)
    if {time, batch} != {0, 1}:
        raise ValueError(f"time_axis is {time} and batch_axis {batch}; they are 0 and 1, or 1 and 0")
    ends = lengths_of(at, node, node.inputs[1], x.shape[time])
    numbers = at.graph.constant(f"{node.name}.steps", np.arange(x.shape[time])[:, None])
    where = ops.where(ops.less(numbers, ends), ends - 1 - numbers, numbers)
    where = where.T if time else where
    wide = where.reshape((*where.shape, *(1,) * (x.ndim - 2))).broadcast_to(x.shape)
    return ops.take_along_axis(x, wide, time, name=node.name)


def tensor_scatter(at: Importing, node: Node) -> Result:
    past, update = at.tensor(node.inputs[0]), at.tensor(node.inputs[1])
    mode = node.attrs.get("mode", "linear")
    (axis,) = axes_of([node.attrs.get("axis", -2)], past.ndim, "axis")
    fits = all(n == m or k == axis for k, (n, m) in enumerate(zip(past.shape, update.shape, strict=True)))
    if mode not in ("linear", "circular") or not axis or not fits:
        raise ValueError(
            f"mode {quote(mode)} along axis {axis} of shapes {quote(past.shape)} and {quote(update.shape)}: modes are "
            "linear and circular, the axis is not that of the batch, and the shapes differ along it alone"
        )
    steps = np.arange(update.shape[axis]).reshape(-1, *(1,) * (past.ndim - axis - 1))
    where = at.graph.constant(f"{node.name}.steps", steps)
    if node.input(2):
        where = ops.astype(at.tensor(node.inputs[2]), "int64").reshape(-1, *(1,) * (past.ndim - 1)) + where
    if mode == "circular":
        where = ops.remainder(where, past.shape[axis])
    return ops.put_along_axis(past, where.broadcast_to(update.shape), update, axis, name=node.name)


def gather_nd(at: Importing, node: Node) -> Result:
    x, indices = at.inputs(node)
    shared = node.attrs.get("batch_dims", 0)
    if not 0 <= shared < min(x.ndim, indices.ndim) or x.shape[:shared] != indices.shape[:shared]:
        raise ValueError(f"batch_dims is {shared}, beside shapes {quote(x.shape)} and {quote(indices.shape)}")
    if shared:
        own = np.stack(np.meshgrid(*map(np.arange, x.shape[:shared]), indexing="ij"), axis=-1).astype(indices.dtype)
        own = own.reshape(*own.shape[:-1], *(1,) * (indices.ndim - shared - 1), shared)
        known = at.graph.constant(f"{node.name}.batch", own).broadcast_to((*indices.shape[:-1], shared))
        indices = concat([known, indices], axis=-1)
    return ops.gather_nd(x, indices, name=node.name)


# -- windows ---------------------------------------------------------------------------------------------


def max_pool(at: Importing, node: Node) -> Result:
    """The largest cells of windows, and where something reads them their numbers in the tensor."""
    x = at.tensor(node.inputs[0])
    made = largest(at, node, x)
    if len(node.outputs) < 2 or not node.outputs[1]:
        return made
    kernel = tuple(node.attrs["kernel_shape"])
    said = onnx_windows.window_of(node, x.shape[2:], kernel, crops=True)
    inner, moves = onnx_windows.crop(node, _floating(x), said)
    window = expansions.Window.of(kernel, moves)
    spans = zip(made.shape[2:], window.strides, window.dilations, kernel, window.begins, inner.shape[2:], strict=True)
    reached = ((count - 1) * s + (k - 1) * d + 1 - before - n for count, s, d, k, before, n in spans)
    # By ceil_mode the last windows reach beyond the padding.
    window = structs.replace(window, ends=tuple(map(max, window.ends, reached)))
    cut = expansions.windows_of(inner, window, -np.inf)
    rank, extents, out = len(kernel), x.shape[2:], cut.shape[2 : x.ndim]
    taps = ops.argmax(cut.reshape((*cut.shape[: x.ndim], prod(kernel))), -1)
    order = range(rank)[::-1] if node.attrs.get("storage_order") else range(rank)
    steps = {axis: prod(extents[k] for k in list(order)[place + 1 :]) for place, axis in enumerate(order)}
    inside = np.indices(kernel).reshape(rank, -1)
    table = sum(inside[axis] * window.dilations[axis] * steps[axis] for axis in range(rank))
    begins = np.indices(out)
    first = sum((begins[a] * window.strides[a] - said["pads"][a]) * steps[a] for a in range(rank))
    channels = np.arange(x.shape[0] * x.shape[1]).reshape(*x.shape[:2], *(1,) * rank) * prod(extents)
    constants = {"taps": table, "windows": first, "channels": channels}
    known = {key: at.graph.constant(f"{node.name}.{key}", np.asarray(array)) for key, array in constants.items()}
    number = ops.take(known["taps"], taps) + known["windows"] + known["channels"]
    if not node.attrs.get("storage_order"):
        at.pooled[node.outputs[1]] = x.shape
    return [made, number]


def largest(at: Importing, node: Node, x: Tensor) -> Tensor:
    """The largest cells of windows of a tensor; integers, which are of 8 bits, as floats that hold them."""
    made = onnx_windows.max_pool(at, node, _floating(x))
    return made if made.dtype == x.dtype else ops.astype(made, x.dtype)


def _floating(x: Tensor) -> Tensor:
    if np.dtype(x.dtype).kind == "f":
        return x
    if x.dtype not in ("int8", "uint8"):
        raise ValueError(f"its input 0 is {x.dtype}; floating numbers, or integers of 8 bits, are needed: cast it")
    return ops.astype(x, "float32")


def nhwc_max_pool(at: Importing, node: Node) -> Result:
    """The same of a tensor whose channels are last."""
    return onnx_windows.channels_last(largest(at, node, onnx_windows.channels_first(at.tensor(node.inputs[0]))))


def max_unpool(at: Importing, node: Node) -> Result:
    """Cells back at their numbers, which are those of their own channel, zeros elsewhere.

    The numbers count in the tensor that the result is without output_shape, as in ONNX's reference and its own case
    with output_shape; the result has that tensor in a corner. Those of a MaxPool count in the tensor that it pooled,
    which ONNX says of them: with output_shape they go there, so that all have a place. For some the reference has none
    where strides do not divide an extent; ONNX Runtime, which counts in output_shape, agrees where that is this tensor.
    """
    x, numbers = at.tensor(node.inputs[0]), at.tensor(node.inputs[1])
    kernel, rank = tuple(node.attrs["kernel_shape"]), x.ndim - 2
    window = expansions.Window.of(kernel, onnx_windows.window_of(node, x.shape[2:], kernel))
    spans = zip(x.shape[2:], window.strides, kernel, window.begins, window.ends, strict=True)
    shape = (*x.shape[:2], *((n - 1) * s - a - b + k for n, s, k, a, b in spans))
    wanted = at.ints(node, 2, "output_shape")
    if wanted is not None:
        shape = at.pooled.get(node.inputs[1], shape)
    cells = prod(shape[2:])
    zero = at.graph.constant(f"{node.name}.zero", np.zeros((), x.dtype))
    flat = zero.broadcast_to((*x.shape[:2], cells))
    begins = np.arange(prod(x.shape[:2])).reshape(*x.shape[:2], 1) * cells
    first = at.graph.constant(f"{node.name}.channels", begins.astype(numbers.dtype))
    where = numbers.reshape((*x.shape[:2], -1)) - first
    where = ops.where(ops.less(where, 0), cells, where)  # in another channel: the run says so
    made = ops.put_along_axis(flat, where, x.reshape((*x.shape[:2], -1)), 2).reshape(shape)
    if wanted is None or tuple(wanted) == made.shape:
        return made
    if len(wanted) != made.ndim:
        raise ValueError(f"output_shape is {wanted}; give an extent for each of the {made.ndim} axes")
    grown = [m - n for n, m in zip(made.shape, wanted, strict=True)]
    if any(grown[:2]) or min(grown) < 0 or rank != len(kernel):
        raise ValueError(f"output_shape is {wanted}; {list(made.shape)} fits, or more spatial cells")
    return pad(made, [(0, more) for more in grown])


def col2im(at: Importing, node: Node) -> Result:
    """Windows added up where they lie: a transposed convolution whose weights each hold a single one."""
    x = at.tensor(node.inputs[0])
    image, block = at.ints(node, 1, "image_shape") or [], at.ints(node, 2, "block_shape") or []
    cells = prod(block)
    if x.ndim != 3 or not block or len(image) != len(block) or x.shape[1] % cells:
        raise ValueError(f"blocks of {block} in an image of {image} do not fit an input of shape {quote(x.shape)}")
    channels = x.shape[1] // cells
    window = expansions.Window.of(tuple(block), onnx_windows.window_of(node, image, block))
    out = window.out_shape(tuple(image))
    if prod(out) != x.shape[2]:
        raise ValueError(f"the input has {x.shape[2]} columns; blocks of {block} have {prod(out)} places in {image}")
    reached = [
        (n - 1) * s + (k - 1) * d + 1 for n, s, k, d in zip(out, window.strides, block, window.dilations, strict=True)
    ]
    around = zip(image, reached, window.begins, window.ends, strict=True)
    more = [n - (r - a - b) for n, r, a, b in around]
    ones = np.tile(np.eye(cells, dtype=x.dtype).reshape(cells, 1, *block), (channels, *(1,) * (len(block) + 1)))
    weights = at.graph.constant(f"{node.name}.ones", ones)
    how: dict[str, Any] = {"strides": window.strides, "dilations": window.dilations}
    how["pads"] = *window.begins, *window.ends
    columns = x.reshape((x.shape[0], x.shape[1], *out))
    return ops.conv_transpose(columns, weights, groups=channels, output_padding=tuple(more), name=node.name, **how)
