"""Expansions: operators written as other operators and views; declarations list them.

Each is a function of an operator's inputs and attributes that builds what gives the same outputs, and raises
NotApplicable where it says nothing. Declarations name it in their field `expansions`; the rule `expand` applies it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from math import gcd, prod, sqrt
from typing import Any, cast

import numpy as np

from tapestry_plan.ir import Attrs, NotApplicable, Tensor, concat
from tapestry_plan.ops import tuning
from tapestry_plan.ops.operands import axis_of
from tapestry_plan.ops.windows.window import Window
from tapestry_sets.limits import quote
from tapestry_sets.views import interleave, pad

Inputs = Sequence[Tensor]


def _op(name: str, *inputs: Tensor, **attrs: Any) -> Tensor:
    return cast(Tensor, inputs[0].graph.op(name, *inputs, **attrs))


# -- matrices --------------------------------------------------------------------------------------------


def matmul_add(inputs: Inputs, attrs: Attrs) -> Tensor:
    """Linear := MatMul + Add, with a gemm's transpositions and factors."""
    a, b = inputs[:2]
    product = _op("matmul", a.T if attrs.get("trans_a") else a, b.T if attrs.get("trans_b") else b)
    if attrs.get("alpha", 1) != 1:
        product = product * attrs["alpha"]
    if len(inputs) < 3:
        return product
    return _op("add", product, inputs[2] if attrs.get("beta", 1) == 1 else inputs[2] * attrs["beta"])


def prod_sum(inputs: Inputs, attrs: Attrs) -> Tensor:
    """MatMul := Prod => Sum: x[…, m, k, 1] · w[…, 1, k, n] summed over k; then Linear's bias.

    References
    ----------
    Tapestry, "Sharding Linear, and Matmul, over the in dimension".
    """
    a, b = inputs[:2]
    products = _op("multiply", a.expand_dims(a.ndim), b.expand_dims(b.ndim - 2))
    total = _op("sum", products, axis=products.ndim - 2, keepdims=False)
    return _op("add", total, inputs[2]) if len(inputs) > 2 else total


# -- rows ------------------------------------------------------------------------------------------------


def exp_sum(inputs: Inputs, attrs: Attrs) -> Tensor:
    """Softmax := exp(x − max) / Σ exp(x − max)."""
    (x,) = inputs
    axis = axis_of(attrs["axis"], x.ndim)
    powers = _op("exp", _op("subtract", x, _op("max", x, axis=axis, keepdims=True)))
    return _op("divide", powers, _op("sum", powers, axis=axis, keepdims=True))


def minus_logsumexp(inputs: Inputs, attrs: Attrs) -> Tensor:
    """Log softmax := x − log Σ exp(x), whose sum is a monoid with a state."""
    (x,) = inputs
    axis = axis_of(attrs["axis"], x.ndim)
    return _op("subtract", x, _op("logsumexp", x, axis=axis, keepdims=True))


def sum_div(inputs: Inputs, attrs: Attrs) -> Tensor:
    """Mean := Sum / count."""
    (x,) = inputs
    given = attrs.get("axis")
    axes = range(x.ndim) if given is None else (given,) if isinstance(given, int) else given
    return _op("sum", x, **attrs) / prod(x.shape[axis] for axis in axes)


def pooled_mean(inputs: Inputs, attrs: Attrs) -> Tensor:
    """Global average pool := Sum over the spatial axes / count."""
    (x,) = inputs
    return _op("sum", x, axis=tuple(range(2, x.ndim)), keepdims=True) / prod(x.shape[2:])


def moments(inputs: Inputs, attrs: Attrs) -> Tensor:
    """Layer normalization := (x − mean) / √(variance + epsilon) · scale + bias."""
    x, scale = inputs[:2]
    axes = tuple(range(axis_of(attrs["axis"], x.ndim), x.ndim))
    count = prod(x.shape[axis] for axis in axes)
    apart = _op("subtract", x, _op("sum", x, axis=axes, keepdims=True) / count)
    variance = _op("sum", _op("multiply", apart, apart), axis=axes, keepdims=True) / count
    scaled = _op("multiply", _op("divide", apart, _op("sqrt", variance + attrs["epsilon"])), scale)
    return _op("add", scaled, inputs[2]) if len(inputs) > 2 else scaled


def factor_offset(inputs: Inputs, attrs: Attrs) -> Tensor:
    """Batch normalization := x · factor + (bias − mean · factor), factor = scale / √(variance + epsilon)."""
    x, scale, bias, mean, variance = inputs
    factor = _op("divide", scale, _op("sqrt", variance + attrs["epsilon"]))
    offset = _op("subtract", bias, _op("multiply", mean, factor))
    tail = tuple(range(1, x.ndim - 1))
    column = [t.expand_dims(tail) if tail else t for t in (factor, offset)]
    return _op("add", _op("multiply", x, column[0]), column[1])


# -- attention -------------------------------------------------------------------------------------------


def split_scale(attrs: Attrs, width: int, dtype: str) -> tuple[float, float]:
    """The factors of queries and keys: their roots in half precision, as ONNX has it, lest products overflow."""
    scale = attrs.get("scale", 1 / sqrt(width))
    return (sqrt(scale), sqrt(scale)) if dtype == "float16" else (scale, 1.0)


def find_near_keys(xp: Any, queries: tuple[int, int], keys: int, attrs: Attrs) -> Any:
    """Which keys each of some queries sees by its place alone, as truth values; None where each sees all of them.

    Key j is seen by query i where −left <= j − i <= right; causal is right = 0.
    """
    left, right = attrs.get("left"), 0 if attrs.get("causal") else attrs.get("right")
    if left is None and right is None:
        return None
    after = xp.arange(keys)[None, :] - xp.arange(*queries)[:, None]
    if left is None:
        return after <= right
    return after >= -left if right is None else (after >= -left) & (after <= right)


def matmul_softmax_matmul(inputs: Inputs, attrs: Attrs) -> Tensor:
    """Attention := softmax(q · scale @ kᵀ + mask) @ v, heads of queries grouped by the head of keys that they share."""
    q, k, v = inputs[:3]
    group = q.shape[1] // k.shape[1]
    grouped = (q.shape[0], k.shape[1], group, *q.shape[2:])
    factors = split_scale(attrs, q.shape[3], q.dtype)
    left, k = q * factors[0], k if factors[1] == 1 else k * factors[1]
    if group > 1:
        left, k, v = left.reshape(grouped), k.expand_dims(2), v.expand_dims(2)
    scores = _op("matmul", left, k.mT)
    if attrs.get("softcap"):
        scores = _op("tanh", scores / attrs["softcap"]) * attrs["softcap"]
    near = find_near_keys(np, (0, q.shape[2]), k.shape[-2], attrs)
    empty = None
    if len(inputs) > 3:
        scores, empty = _mask_scores(scores, _mask(inputs[3], grouped[:3], group), near)
    elif near is not None and near.any(axis=1).all():
        scores = _op("where", _number(scores, "near", near), scores, _number(scores, "least", -np.inf))
    elif near is not None:
        scores, empty = _mask_scores(scores, _number(scores, "near", near), None)
    out = _op("matmul", _op("softmax", scores, axis=-1), v)
    if empty is not None:
        out = _op("where", empty, _number(out, "zero", 0), out)
    return out.reshape((*q.shape[:3], v.shape[-1])) if group > 1 else out


def _mask(mask: Tensor, heads: Sequence[int], group: int) -> Tensor:
    """A mask over (batch, heads, queries, keys) over heads of keys and their groups."""
    if group == 1 or mask.ndim < 3:
        return mask
    if mask.shape[-3] == 1:
        return mask.expand_dims(mask.ndim - 3)
    return mask.reshape((*mask.shape[:-3], *heads[1:3], *mask.shape[-2:]))


def _mask_scores(scores: Tensor, mask: Tensor, near: Any) -> tuple[Tensor, Tensor]:
    """The masked scores, and which queries see no key: these keep scores that softmax can take, and are 0 in the end.

    A softmax of −∞ only would be NaN, and so would be the gradient through it, even where the result is not used.
    """
    seen = None if near is None else _number(scores, "near", near)
    zero, least = _number(scores, "zero", 0), _number(scores, "least", -np.inf)
    if mask.dtype == "bool":
        mask = mask if seen is None else _op("logical_and", mask, seen)
        empty = _op("logical_not", _op("any", mask, axis=-1, keepdims=True))
        return _op("where", _op("logical_or", mask, empty), scores, least), empty
    mask = mask if seen is None else _op("where", seen, mask, least)
    empty = _op("equal", _op("max", mask, axis=-1, keepdims=True), least)
    return _op("add", scores, _op("where", empty, zero, mask)), empty


def _number(like: Tensor, name: str, value: Any) -> Tensor:
    """A constant called after a tensor, in its dtype but for truth values."""
    array = np.asarray(value)
    return like.graph.constant(f"{like.name}.{name}", array if array.dtype == bool else array.astype(like.dtype))


# -- convolutions ----------------------------------------------------------------------------------------


def by_group(inputs: Inputs, attrs: Attrs) -> Tensor:
    """Grouped convolution := one dense convolution for each group, concatenated."""
    x, w = inputs[:2]
    groups = attrs["groups"]
    if groups == 1:
        raise NotApplicable("it has one group; there is nothing to split")
    width, depth = w.shape[0] // groups, w.shape[1]
    dense = {**attrs, "groups": 1}
    parts = []
    for g in range(groups):
        out = slice(g * width, (g + 1) * width)
        bias = [b[out] for b in inputs[2:]]
        parts.append(_op("conv", x[:, g * depth : (g + 1) * depth], w[out], *bias, **dense))
    return concat(parts, 1)


def interleaved(inputs: Inputs, attrs: Attrs) -> Tensor:
    """Dilated convolution := dense ones on strided slices, their results interleaved; along the first dilated axis.

    Output row h = d·t + r reads rows s·h + d·k = d·(s·t + k) + s·r: every d-th row from s·r on, with dilation 1.
    Where d and the stride s have a common factor, all rows that are read are multiples of it, and slices of these
    come first.

    References
    ----------
    Tapestry, "Sparse Strided Convolution Operators".
    """
    x, w = inputs[:2]
    window = Window.of(w.shape[2:], attrs)
    axis = next((a for a, d in enumerate(window.dilations) if d > 1), None)
    if axis is None:
        raise NotApplicable("no axis is dilated")
    rows = window.out_shape(x.shape[2:])[axis]
    common = gcd(window.strides[axis], window.dilations[axis])
    s, d, kernel = window.strides[axis] // common, window.dilations[axis] // common, window.kernel[axis]
    inner = _unpadded(attrs, window, axis, s)
    source, parts = _pad_input(x, window), []
    for r in range(min(d, rows)):
        count = s * (-(-(rows - r) // d) - 1) + kernel
        step = d * common
        first = s * r * common
        parts.append(_op("conv", _every(source, axis + 2, first, step, count), *inputs[1:], **inner))
    return parts[0] if len(parts) == 1 else interleave(parts, axis + 2)


def space_to_batch(inputs: Inputs, attrs: Attrs) -> Tensor:
    """Dilated convolution := one dense convolution of more items, each of every d-th row; along the first dilated axis.

    Output row h = d·t + r reads rows d·(t + k) + r: those of one phase r, which are an item of the batch by themselves.
    So phases may be parts, which share no row.

    References
    ----------
    TensorFlow, ``tf.nn.with_space_to_batch``.
    """
    x, w = inputs[:2]
    window = Window.of(w.shape[2:], attrs)
    axis = next((a for a, d in enumerate(window.dilations) if d > 1 and window.strides[a] == 1), None)
    if axis is None:
        raise NotApplicable("no axis with stride 1 is dilated")
    rows, d, at = window.out_shape(x.shape[2:])[axis], window.dilations[axis], axis + 2
    source = _pad_input(x, window)
    more = -source.shape[at] % d
    if more:
        source = pad(source, [(0, more if k == at else 0) for k in range(x.ndim)])
    #  rows 0 1 2 3 4 5, d = 2     (3, 2): 0 1 | 2 3 | 4 5     phases in front: 0 2 4 and 1 3 5
    n, before, after = x.shape[0], source.shape[1:at], source.shape[at + 1 :]
    apart = source.reshape(n, *before, source.shape[at] // d, d, *after)
    order = (0, at + 1, *(k for k in range(1, x.ndim + 1) if k != at + 1))
    items = apart.permute_dims(order).reshape(n * d, *before, source.shape[at] // d, *after)
    made = _op("conv", items, *inputs[1:], **_unpadded(attrs, window, axis, 1))
    back = (0, *range(2, at + 2), 1, *range(at + 2, x.ndim + 1))
    whole = made.reshape(n, d, *made.shape[1:]).permute_dims(back)
    return _every(whole.reshape(n, *made.shape[1:at], d * made.shape[at], *made.shape[at + 1 :]), at, 0, 1, rows)


def phases(inputs: Inputs, attrs: Attrs) -> Tensor:
    """Strided convolution := a sum of dense ones on strided slices of input and kernel, along the first strided axis.

    Kernel row k = s·u + r reads row s·(h + u) + r: every s-th row from r on, with stride 1.
    """
    x, w = inputs[:2]
    window = Window.of(w.shape[2:], attrs)
    axis = next((a for a, s in enumerate(window.strides) if s > 1 and window.dilations[a] == 1), None)
    if axis is None:
        raise NotApplicable("no axis that is not dilated has a stride")
    rows, s, kernel = window.out_shape(x.shape[2:])[axis], window.strides[axis], window.kernel[axis]
    inner, source, total = _unpadded(attrs, window, axis, 1), _pad_input(x, window), None
    for r in range(min(s, kernel)):
        u = -(-(kernel - r) // s)
        slices = _every(source, axis + 2, r, s, rows - 1 + u), _every(w, axis + 2, r, s, u)
        part = _op("conv", *slices, *(inputs[2:] if r == 0 else ()), **inner)
        total = part if total is None else _op("add", total, part)
    assert total is not None, "a kernel has a row"
    return total


def strided_view(inputs: Inputs, attrs: Attrs) -> Tensor:
    """Strided convolution := a dense one, of whose results a strided selection keeps every so many."""
    x, w = inputs[:2]
    window = Window.of(w.shape[2:], attrs)
    if all(s == 1 for s in window.strides):
        raise NotApplicable("no axis has a stride")
    found = _op("conv", *inputs, **{**attrs, "strides": 1})
    for axis, (n, s) in enumerate(zip(window.out_shape(x.shape[2:]), window.strides, strict=True)):
        found = _every(found, axis + 2, 0, s, n)
    return found


def _unpadded(attrs: Attrs, window: Window, axis: int, stride: int) -> dict[str, Any]:
    """The attributes without padding, with another stride and no dilation along one axis."""
    strides, dilations = list(window.strides), list(window.dilations)
    strides[axis], dilations[axis] = stride, 1
    return {**attrs, "pads": 0, "strides": tuple(strides), "dilations": tuple(dilations)}


def _pad_input(x: Tensor, window: Window) -> Tensor:
    widths = [(0, 0), (0, 0), *zip(window.begins, window.ends, strict=True)]
    return pad(x, widths) if any(map(any, widths)) else x


def _every(x: Tensor, axis: int, first: int, step: int, count: int) -> Tensor:
    """So many cells along an axis, each `step` after the one before."""
    if (first, step, count) == (0, 1, x.shape[axis]):
        return x
    return x[(*(slice(None),) * axis, slice(first, first + step * (count - 1) + 1, step))]


# -- windows, as views and sums of products --------------------------------------------------------------


def windows_einsum(inputs: Inputs, attrs: Attrs) -> Tensor:
    """A convolution as the sum of products of windows and weights."""
    x, w, *bias = inputs
    if np.dtype(x.dtype).kind not in "iuf":
        raise NotApplicable(f"einsum multiplies numbers that are not complex; {quote(x.name)} is {x.dtype}")
    n, spatial, groups = x.shape[0], x.ndim - 2, attrs["groups"]
    windows = windows_of(x, Window.of(w.shape[2:], attrs))
    out = windows.shape[2 : 2 + spatial]
    o, k = "xyz"[:spatial], "uvw"[:spatial]
    cut = windows.reshape(n, groups, w.shape[1], *out, *w.shape[2:])
    weights = w.reshape(groups, w.shape[0] // groups, *w.shape[1:])
    made = _op("einsum", cut, weights, equation=f"ngi{o}{k},gci{k}->ngc{o}").reshape(n, w.shape[0], *out)
    return made + bias[0].reshape(-1, *(1,) * spatial) if bias else made


def windows_max(inputs: Inputs, attrs: Attrs) -> Tensor:
    """The maxima of windows."""
    return _pooled("max", inputs, attrs, float("-inf"))


def windows_sum(inputs: Inputs, attrs: Attrs) -> Tensor:
    """The sums of windows."""
    return _pooled("sum", inputs, attrs, 0.0)


def windows_mean(inputs: Inputs, attrs: Attrs) -> Tensor:
    """The sums of windows over how many of their cells count."""
    (x,) = inputs
    total = _pooled("sum", inputs, attrs, 0.0)
    window, padded = Window.of_pool(x.ndim - 2, attrs), bool(attrs.get("count_include_pad"))
    counts = [window.counts(axis, range(m), x.shape[2 + axis], padded) for axis, m in enumerate(total.shape[2:])]
    whole = reduce(np.multiply.outer, counts, np.ones(()))
    return total / x.graph.constant(x.graph._fresh("counts"), whole.astype(x.dtype))


def _pooled(op: str, inputs: Inputs, attrs: Attrs, fill: float) -> Tensor:
    (x,) = inputs
    if attrs.get("ceil_mode"):
        raise NotApplicable("ceil_mode has windows that reach beyond the padding; pad more instead")
    windows = windows_of(x, Window.of_pool(x.ndim - 2, attrs), fill)
    return _op(op, windows, axis=tuple(range(x.ndim, windows.ndim)), keepdims=False)


def windows_of(x: Tensor, window: Window, fill: float = 0.0) -> Tensor:
    """All windows, as a view: (n, c, *out, *kernel)."""
    padded = pad(x, [(0, 0), (0, 0), *zip(window.begins, window.ends, strict=True)], value=fill)
    return padded.sliding_windows(window.kernel, window.strides, window.dilations, tuple(range(2, x.ndim)))


def spatial_max(inputs: Inputs, attrs: Attrs) -> Tensor:
    """The largest of all spatial cells."""
    (x,) = inputs
    return _op("max", x, axis=tuple(range(2, x.ndim)), keepdims=True)


# -- more rows -------------------------------------------------------------------------------------------


def root_mean_square(inputs: Inputs, attrs: Attrs) -> Tensor:
    """x / √(mean x² + epsilon), times the scale."""
    x, scale = inputs
    mean = _op("mean", x * x, axis=tuple(range(x.ndim - scale.ndim, x.ndim)), keepdims=True)
    return x / _op("sqrt", mean + attrs["epsilon"]) * scale


def local_response(inputs: Inputs, attrs: Attrs) -> Tensor:
    """x / (bias + alpha/size · Σ x² over neighboring channels)^beta."""
    (x,) = inputs
    size = attrs["size"]
    before = (size - 1) // 2
    around = [(0, 0), (before, size - 1 - before), *((0, 0),) * (x.ndim - 2)]
    total = _op("sum", pad(x * x, around).sliding_windows(size, axis=1), axis=(x.ndim,), keepdims=False)
    return cast(Tensor, x / (total * (attrs["alpha"] / size) + attrs["bias"]) ** attrs["beta"])


def by_groups(inputs: Inputs, attrs: Attrs) -> Tensor:
    """Each group of channels, or each channel, centered and scaled to variance 1; then times scale, plus bias."""
    x, scale, bias = inputs
    rows = x.reshape(x.shape[0], attrs.get("groups", x.shape[1]), -1)
    apart = rows - _op("mean", rows, axis=(2,), keepdims=True)
    variance = _op("mean", apart * apart, axis=(2,), keepdims=True)
    made = (apart / _op("sqrt", variance + attrs["epsilon"])).reshape(x.shape)
    column = (-1, *(1,) * (x.ndim - 2))
    return made * scale.reshape(column) + bias.reshape(column)


# -- recurrences -----------------------------------------------------------------------------------------


def by_steps(inputs: Inputs, attrs: Attrs) -> tuple[Tensor, ...]:
    """A recurrence := an operator for each step, whose cells of the state are apart; all states one behind the other.

    A "gru" that resets the state before its product takes two products, one behind the other, in each step.
    """
    x, w, h, *more = inputs
    kind, dtype, (steps, directions, _, rows), width = attrs["kind"], x.dtype, x.shape, h.shape[-1]
    if steps > tuning.MAX_STEPS:
        raise NotApplicable(f"{steps} steps; up to {tuning.MAX_STEPS} become operators")
    if dtype == "float16":  # a recurrence keeps its states wide from step to step
        x, w, h, *more = (_op("astype", one, dtype="float32") for one in inputs)
    each = x.reshape(*x.shape[:3], rows // width, width)
    weights = w.reshape(directions, rows // width, width, width)
    if kind == "lstm" and len(more) > 1:
        more[1] = more[1].reshape(directions, 3, width)
    states: list[list[Tensor]] = []
    for t in range(steps):
        now = each[t : t + 1].squeeze((0,))  # as ONNX, which has no single index, says it
        if kind == "lstm":
            cell = states[-1][1] if states else more[0]
            made = list(cast("Sequence[Tensor]", _op("recurrence_step", now, weights, h, cell, *more[1:], **attrs)))
        elif kind == "gru" and not more:
            made = [_reset_before(now, weights, h, attrs)]
        else:
            made = [_op("recurrence_step", now, weights, h, *([h, *more] if kind == "gru" else []), **attrs)]
        states.append(made)
        h = made[0]
    found = [concat([one.expand_dims(0) for one in every], axis=0) for every in zip(*states, strict=True)]
    return tuple(_op("astype", one, dtype=dtype) if one.dtype != dtype else one for one in found)


def _reset_before(x: Tensor, weights: Tensor, h: Tensor, attrs: Attrs) -> Tensor:
    """A step of a gated unit whose third gate multiplies what is left of the state by weights."""

    def bend(gate: int, state: Tensor, curve: int) -> Tensor:
        own = {key: attrs[key][curve : curve + 1] for key in ("activations", "alphas", "betas") if attrs.get(key)}
        own.setdefault("activations", ("sigmoid", "tanh")[curve : curve + 1])
        operands = x[:, :, gate : gate + 1], weights[:, gate : gate + 1], state
        return _op("recurrence_step", *operands, **{**attrs, **own, "kind": "rnn"})

    z = bend(0, h, 0)
    fresh = bend(2, _op("multiply", bend(1, h, 0), h), 1)
    return _op("add", _op("multiply", 1 - z, fresh), _op("multiply", z, h))
