"""Operators of ONNX that become selections, one function each."""

from __future__ import annotations

import builtins
from math import prod

import numpy as np

from tapestry_plan.onnx.nodes import Importing, Node, Result, axes_of
from tapestry_sets.limits import quote
from tapestry_sets.views import Broadcast, Concat, ExpandDims, Pad, PermuteDims, Reshape, Slice, Squeeze, Tile


def reshape(at: Importing, node: Node) -> Result:
    wanted = at.ints(node, 1, "shape") or []
    old = at.shape(node.inputs[0])
    if not node.attrs.get("allowzero"):
        if any(n == 0 and k >= len(old) for k, n in enumerate(wanted)):
            raise ValueError(f"shape {wanted} copies an axis that the input of shape {old} has not")
        wanted = [old[k] if n == 0 else n for k, n in enumerate(wanted)]
    return at.view(node, Reshape(tuple(wanted)), node.inputs[0])


def flatten(at: Importing, node: Node) -> Result:
    shape = at.shape(node.inputs[0])
    axis = node.attrs.get("axis", 1)
    if not -len(shape) <= axis <= len(shape):
        raise ValueError(f"axis is {axis}; a tensor of shape {quote(shape)} is cut at {-len(shape)} to {len(shape)}")
    return at.view(node, Reshape((prod(shape[:axis]), prod(shape[axis:]))), node.inputs[0])


def squeeze(at: Importing, node: Node) -> Result:
    axes = at.ints(node, 1, "axes")
    return at.view(node, Squeeze(None if axes is None else tuple(axes)), node.inputs[0])


def unsqueeze(at: Importing, node: Node) -> Result:
    return at.view(node, ExpandDims(tuple(at.ints(node, 1, "axes") or ())), node.inputs[0])


def expand_dims(at: Importing, node: Node) -> Result:
    axis = at.ints(node, 1, "axis") or ()
    if len(axis) != 1:
        raise ValueError(f"axis is {quote(list(axis))}; one number is needed")
    return at.view(node, ExpandDims(tuple(axis)), node.inputs[0])


def transpose(at: Importing, node: Node) -> Result:
    rank = len(at.shape(node.inputs[0]))
    return at.view(node, PermuteDims(tuple(node.attrs.get("perm", range(rank)[::-1]))), node.inputs[0])


def concat(at: Importing, node: Node) -> Result:
    some = [name for name in node.inputs if 0 not in at.shape(name)] or node.inputs[:1]
    return at.view(node, Concat(node.attrs["axis"]), *some)


def expand(at: Importing, node: Node) -> Result:
    wanted = np.broadcast_shapes(at.shape(node.inputs[0]), tuple(at.ints(node, 1, "shape") or ()))
    return at.view(node, Broadcast(wanted), node.inputs[0])


def slice(at: Importing, node: Node) -> Result:
    shape = at.shape(node.inputs[0])
    starts, ends = at.ints(node, 1, "starts") or [], at.ints(node, 2, "ends") or []
    axes = axes_of(at.ints(node, 3, "axes") or range(len(starts)), len(shape))
    steps = at.ints(node, 4, "steps") or [1] * len(starts)
    if not len(starts) == len(ends) == len(axes) == len(steps):
        raise ValueError(f"starts {starts}, ends {quote(ends)}, axes {axes} and steps {steps} are not equally many")
    cuts: list[tuple[int | None, int | None, int | None]] = [(None, None, None)] * len(shape)
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        # Backward from far before the front ONNX begins with the first one, where Python takes none.
        cuts[axis] = (max(start, -shape[axis]) if step < 0 else start, end, step)
    ranges = [range(*builtins.slice(*cut).indices(n)) for cut, n in zip(cuts, shape, strict=True)]
    if ranges == [range(n) for n in shape] and at.are_written(node.inputs[1:]):
        return at.tensor(node.inputs[0])  # at all sizes; else the graph has the view at each, and plans can be bound
    return at.view(node, Slice(tuple(cuts)), node.inputs[0])


def split(at: Importing, node: Node) -> Result:
    shape = at.shape(node.inputs[0])
    (axis,) = axes_of([node.attrs.get("axis", 0)], len(shape), "axis")
    parts, count = at.ints(node, 1, "split"), len(node.outputs)
    if node.attrs.get("num_outputs", count) != count:
        raise ValueError(f"num_outputs is {node.attrs['num_outputs']}, but the node has {count} outputs")
    if parts is None:
        size = -(-shape[axis] // count)
        parts = [min(size, shape[axis] - k * size) for k in range(count)]
    if sum(parts) != shape[axis] or min(parts) < 0:
        raise ValueError(f"split into {parts} does not sum up to axis {axis} of shape {quote(shape)}")
    out, begin = [], 0
    for part in parts:
        cuts = ((None, None, None),) * axis + ((begin, begin + part, None),)
        whole = part == shape[axis]
        out.append(at.tensor(node.inputs[0]) if whole else at.view(node, Slice(cuts), node.inputs[0]))
        begin += part
    return out


def pad(at: Importing, node: Node) -> Result:
    x = at.tensor(node.inputs[0])
    pads = at.ints(node, 1, "pads") or []
    axes = axes_of(at.ints(node, 3, "axes") or range(x.ndim), x.ndim)
    if len(pads) != 2 * len(axes):
        raise ValueError(f"pads is {pads}; two for each of the axes {axes} are needed")
    value = at.constant(node, 2, "constant_value")
    fill = 0 if value is None else value.reshape(()).item()
    widths = [(0, 0)] * x.ndim
    for axis, before, after in zip(axes, pads[: len(axes)], pads[len(axes) :], strict=True):
        widths[axis] = (before, after)
    if any(a < 0 or b < 0 for a, b in widths):  # ONNX crops with negative widths
        crop = tuple((max(0, -a), n - max(0, -b), None) for n, (a, b) in zip(x.shape, widths, strict=True))
        x = x.view(Slice(crop))
    kept = tuple((max(0, a), max(0, b)) for a, b in widths)
    if not any(map(any, kept)) and at.are_written(node.inputs[1:]):
        return x
    return x.view(Pad(kept, node.attrs.get("mode", "constant"), fill), name=node.name)


def tile(at: Importing, node: Node) -> Result:
    return at.view(node, Tile(tuple(at.ints(node, 1, "repeats") or ())), node.inputs[0])
