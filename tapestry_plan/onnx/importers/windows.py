"""Operators of ONNX that move windows over spatial axes, and resizing, one function each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from math import floor
from typing import Any

from tapestry_plan import ops
from tapestry_plan.ir import Tensor
from tapestry_plan.onnx import tuning
from tapestry_plan.onnx.nodes import NO_CELLS, Importing, Node, NotOfGraphs, OutsideText, Result, axes_of, refusal
from tapestry_sets.limits import quote


def window_of(node: Node, extents: Sequence[int], kernel: Sequence[int], *, crops: bool = False) -> dict[str, Any]:
    """Strides, pads and dilations of a convolution or a pool, auto_pad resolved.

    Where strides leave out cells between windows, pads of `auto_pad` are 0, or with `crops` below: such windows begin
    behind the first cell, as those of pools do in ONNX Runtime.
    """
    strides, dilations, pads = _moves(node, len(kernel))
    auto = _auto_pad(node)
    if auto == "VALID":
        pads = (0,) * len(pads)
    elif auto in ("SAME_UPPER", "SAME_LOWER"):
        total = [
            (-(-n // s) - 1) * s + (k - 1) * d + 1 - n
            for n, s, d, k in zip(extents, strides, dilations, kernel, strict=True)
        ]
        pads = _halves(total if crops else [max(0, n) for n in total], auto)
    return {"strides": strides, "pads": pads, "dilations": dilations}


def _auto_pad(node: Node) -> str:
    auto: str = node.attrs.get("auto_pad", "NOTSET")
    if auto not in ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"):
        raise ValueError(f"auto_pad is {quote(auto)}; NOTSET, VALID, SAME_UPPER and SAME_LOWER are known")
    if auto != "NOTSET" and any(node.attrs.get("pads", ())):
        raise ValueError(f"auto_pad is {quote(auto)} and pads are {quote(list(node.attrs['pads']))}; give one of them")
    return auto


def check_kernel(node: Node, w: Tensor) -> None:
    """Raise ValueError where the attribute kernel_shape is not the shape of the weights' windows."""
    said = node.attrs.get("kernel_shape")
    if said is not None and tuple(said) != w.shape[2:]:
        raise ValueError(
            f"kernel_shape is {quote(list(said))}, but the weights of shape {quote(w.shape)} have windows of "
            f"{quote(list(w.shape[2:]))}; the model contradicts itself: export it again"
        )


def _moves(node: Node, rank: int) -> list[tuple[int, ...]]:
    """Strides, dilations and pads, begins before ends."""
    return [_numbers(node, "strides", rank, 1), _numbers(node, "dilations", rank, 1), _numbers(node, "pads", 2 * rank)]


def _numbers(node: Node, key: str, count: int, least: int = 0) -> tuple[int, ...]:
    """An attribute of so many integers, `least` each where it is not given; where that is 1, none may be less.

    They are checked here, since what is computed from them would divide by 0, or leave some out.
    """
    numbers = tuple(node.attrs.get(key, (least,) * count))
    if len(numbers) != count or (least and min(numbers, default=1) < least):
        each = f"integers >= {least}" if least else "integers"
        raise ValueError(
            f"{key} is {quote(list(numbers))}; {node.op_type} takes {count} {each} here: export the model again"
        )
    return numbers


def _halves(total: Sequence[int], auto: str) -> tuple[int, ...]:
    """Pads before and after, the larger half after the axes unless `auto` says before; halves are cut toward 0."""
    begins = tuple(int(Fraction(n if auto == "SAME_UPPER" else n + 1, 2)) for n in total)
    return begins + tuple(n - begin for n, begin in zip(total, begins, strict=True))


def crop(node: Node, x: Tensor, window: Mapping[str, Any]) -> tuple[Tensor, dict[str, Any]]:
    """A tensor without the cells that pads of `auto_pad` below 0 leave out, and the window with 0 in their place."""
    pads = window["pads"]
    if not _auto_pad(node).startswith("SAME") or min(pads, default=0) >= 0:
        return x, dict(window)
    sides = zip(x.shape[2:], pads[: x.ndim - 2], pads[x.ndim - 2 :], strict=True)
    cuts = (slice(max(0, -begin), n - max(0, -end)) for n, begin, end in sides)
    return x[(slice(None), slice(None), *cuts)], {**window, "pads": tuple(max(0, pad) for pad in pads)}


def conv(at: Importing, node: Node) -> Tensor:
    x, w = at.tensor(node.inputs[0]), at.tensor(node.inputs[1])
    check_kernel(node, w)
    bias = at.tensor(node.inputs[2]) if node.input(2) else None
    window = window_of(node, x.shape[2:], w.shape[2:])
    return ops.conv(x, w, bias, groups=node.attrs.get("group", 1), name=node.name, **window)


def conv_transpose(at: Importing, node: Node) -> Result:
    x, w = at.tensor(node.inputs[0]), at.tensor(node.inputs[1])
    check_kernel(node, w)
    attrs, rank = node.attrs, x.ndim - 2
    strides, dilations, pads = _moves(node, rank)
    more = _numbers(node, "output_padding", rank)
    auto, wanted = _auto_pad(node), attrs.get("output_shape")
    if wanted is not None and len(wanted) not in (rank, rank + 2):
        raise ValueError(f"output_shape is {quote(list(wanted))}; give the {rank} spatial extents of the output")
    if auto == "VALID":
        pads = (0,) * len(pads)
    spans = zip(x.shape[2:], strides, dilations, w.shape[2:], more, strict=True)
    full = [(n - 1) * s + (k - 1) * d + 1 + o for n, s, d, k, o in spans]
    if wanted is not None or auto.startswith("SAME"):
        extents = wanted or [n * s for n, s in zip(x.shape[2:], strides, strict=True)]
        total = [a - b for a, b in zip(full, extents[-rank:], strict=True)]
        if min(total) < 0:
            raise refusal(node, f"an output of {quote(list(extents))} is larger than the {full} cells that are reached")
        pads = _halves(total, auto)
    bias = at.tensor(node.inputs[2]) if node.input(2) else None
    window = {"strides": strides, "pads": pads, "dilations": dilations, "output_padding": more}
    return ops.conv_transpose(x, w, bias, groups=attrs.get("group", 1), name=node.name, **window)


def _pooled(function: Callable[..., Tensor], *options: str) -> Callable[..., Tensor]:
    """A pool with these of ONNX's attributes beside the window's, of a node's operand or another tensor."""

    def add(at: Importing, node: Node, x: Tensor | None = None) -> Tensor:
        x, kernel = at.tensor(node.inputs[0]) if x is None else x, tuple(node.attrs["kernel_shape"])
        given = {key: node.attrs[key] for key in options if key in node.attrs}
        how = {key: value if key == "p" else bool(value) for key, value in given.items()}
        x, window = crop(node, x, window_of(node, x.shape[2:], kernel, crops=True))
        if any(pad >= n for pad, n in zip(window["pads"], kernel * 2, strict=True)):
            raise ValueError(
                f"pads {quote(list(window['pads']))} reach over whole windows of {quote(list(kernel))}; make them "
                "smaller"
            )
        return function(x, kernel, name=node.name, **how, **window)

    return add


average_pool = _pooled(ops.average_pool, "ceil_mode", "count_include_pad")
lp_pool = _pooled(ops.lp_pool, "p", "ceil_mode")


max_pool = _pooled(ops.max_pool, "ceil_mode")


def channels_first(x: Tensor) -> Tensor:
    """(batch, …, channels) as (batch, channels, …)."""
    return x.moveaxis(-1, 1)


def channels_last(x: Tensor) -> Tensor:
    """(batch, channels, …) as (batch, …, channels)."""
    return x.moveaxis(1, -1)


def global_lp_pool(at: Importing, node: Node) -> Result:
    x = at.tensor(node.inputs[0])
    spatial = tuple(range(2, x.ndim))
    return ops.p_norm(x, node.attrs.get("p", 2), lambda powers: ops.sum(powers, spatial, name=node.name, keepdims=True))


POLICIES: Mapping[str, Callable[[Iterable[Fraction]], Fraction] | None] = {
    "stretch": None, "not_larger": min, "not_smaller": max,
}  # fmt: skip
"""Which of the axes' factors all axes get, where sizes are given."""


def resize(at: Importing, node: Node) -> Result:
    attrs, x = node.attrs, at.tensor(node.inputs[0])
    known = {"mode": ops.MODES, "coordinate_transformation_mode": ops.COORDINATES, "nearest_mode": ops.NEAREST}
    known["keep_aspect_ratio_policy"] = tuple(POLICIES)
    for key, values in known.items():
        if attrs.get(key, values[0]) not in values:
            raise refusal(node, f"{key}={quote(attrs[key])} is not supported, only {quote(values)}")
    scales, sizes, roi = at.constant(node, 2, "scales"), at.ints(node, 3, "sizes"), None
    coordinates = attrs.get("coordinate_transformation_mode", "half_pixel")
    if coordinates == "tf_crop_and_resize":
        roi = at.constant(node, 1, "roi")
    axes = axes_of(attrs.get("axes", range(x.ndim)), x.ndim)
    for label, given in (("scales", () if scales is None else scales.reshape(-1).tolist()), ("sizes", sizes or ())):
        if given and len(given) != len(axes):
            raise ValueError(f"{label} is {quote(list(given))}, one for each of the axes {axes} is needed")
    factors, extents = [1.0] * x.ndim, list(x.shape)
    if scales is not None and any(scale <= 0 for scale in scales.reshape(-1).tolist()):
        raise OutsideText(
            f"resize: scales is {quote(tuple(scales.reshape(-1).tolist()))}; each must be a finite number above 0"
        )
    if scales is not None and scales.size:
        for axis, scale in zip(axes, scales.tolist(), strict=True):
            factors[axis] = scale
    for axis, extent in zip(axes, sizes, strict=True) if sizes else ():
        extents[axis] = extent
    choose = POLICIES[attrs.get("keep_aspect_ratio_policy", "stretch")]
    if sizes and choose is not None:
        ratio = choose(Fraction(extents[axis], x.shape[axis]) for axis in axes)
        for axis in axes:
            factors[axis], extents[axis] = float(ratio), floor(ratio * x.shape[axis] + Fraction(1, 2))
    if 0 in extents if sizes else any(0 < factor * n < 1 for factor, n in zip(factors, x.shape, strict=True)):
        raise NotOfGraphs(NO_CELLS)
    part = None
    if coordinates == "tf_crop_and_resize":
        if roi is None or roi.size != 2 * len(axes):
            raise ValueError("tf_crop_and_resize needs roi, with a begin and an end for each axis")
        ends = roi.reshape(2, -1).T.tolist()
        part = [ends[axes.index(axis)] if axis in axes else (0.0, 1.0) for axis in range(x.ndim)]
    how: dict[str, Any] = {
        "mode": attrs.get("mode", "nearest"),
        "nearest": attrs.get("nearest_mode", "round_prefer_floor"),
        "cubic": attrs.get("cubic_coeff_a", tuning.CUBIC),
        "antialias": bool(attrs.get("antialias", 0)),
        "exclude_outside": bool(attrs.get("exclude_outside", 0)),
        "outside": attrs.get("extrapolation_value", 0.0),
    }
    if part is None and tuple(extents) == x.shape and set(factors) == {1.0}:
        return x  # each cell is read where it is, in every mode
    stretch = None if sizes and choose is None else factors
    return ops.resize(
        x, extents if sizes else None, scales=stretch, coordinates=coordinates, part=part, name=node.name, **how
    )
