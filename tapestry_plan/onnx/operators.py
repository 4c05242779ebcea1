"""The table of ONNX operators, and one small function for each that adds it to a graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from types import MappingProxyType
from typing import Any, cast

import numpy as np

from tapestry_plan import ops
from tapestry_plan.ir import BUILTIN_OPS, SHORT_DTYPES, SHORT_FLOATS, Op, Tensor
from tapestry_plan.onnx import tuning
from tapestry_plan.onnx.importers import attention as onnx_attention
from tapestry_plan.onnx.importers import blocked as onnx_blocked
from tapestry_plan.onnx.importers import drawn as onnx_drawn
from tapestry_plan.onnx.importers import fourier as onnx_fourier
from tapestry_plan.onnx.importers import fused as onnx_fused
from tapestry_plan.onnx.importers import indices as onnx_indices
from tapestry_plan.onnx.importers import learned as onnx_learned
from tapestry_plan.onnx.importers import microsoft as onnx_microsoft
from tapestry_plan.onnx.importers import quantized as onnx_quantized
from tapestry_plan.onnx.importers import recurrent as onnx_recurrent
from tapestry_plan.onnx.importers import sampling as onnx_sampling
from tapestry_plan.onnx.importers import views as onnx_views
from tapestry_plan.onnx.importers import windows as onnx_windows
from tapestry_plan.onnx.nodes import (
    NO_CELLS,
    Array,
    Import,
    Importing,
    Node,
    NotOfGraphs,
    Result,
    TooLargeToFold,
    axes_of,
    refusal,
)
from tapestry_plan.onnx.walks import DOMAIN, DRAWING, KIND, SCALING, STEP, TAKE
from tapestry_plan.ops import Operator
from tapestry_sets.limits import FrozenDict, describe, quote
from tapestry_sets.views import ExpandDims, Repeat, Squeeze

Adder = Callable[[Importing, Node], Result]


def _alike(function: Operator[..., Tensor], names: Mapping[str, str] = MappingProxyType({}), **defaults: Any) -> Adder:
    """The operator with ONNX's attributes, by the same names or those given; defaults are the same, or those given."""
    truths = {name for name, default in function.op.defaults if isinstance(default, bool)}  # which ONNX has as 0 and 1

    def add(at: Importing, node: Node) -> Result:
        known = {names.get(key, key): key for key in node.attrs}
        attrs = defaults | {name: node.attrs[key] for name, key in known.items() if name in function.op.attributes}
        attrs |= {name: bool(attrs[name]) for name in truths.intersection(attrs)}
        return function(*at.inputs(node), name=node.name, **attrs)

    return add


def _same(count: int, *types: str, **others: Operator[..., Tensor]) -> dict[str, Import]:
    """Types of ONNX, of so many inputs: of the same name here but for case and underscores, or given as keywords."""
    named = {name.replace("_", ""): getattr(ops, name) for name in BUILTIN_OPS}
    functions = {one: named[one.lower()] for one in types} | others
    return {one: Import(_alike(function), count, count) for one, function in functions.items()}


def _divide(at: Importing, node: Node) -> Result:
    return ops.add_op(ops.divide.op, *at.inputs(node), name=node.name)  # integers too, which round toward zero


def _alias(at: Importing, node: Node) -> Result:
    if node.op_type == "Dropout":
        training, ratio = at.constant(node, 2, "training_mode"), node.input(1)
        drops = not ratio or not at.is_known(ratio) or at.value(ratio).any()
        if training is not None and bool(training) and drops:
            return _drop(at, node)
        if len(node.outputs) > 1 and node.outputs[1]:
            # at inference nothing is dropped
            at.bind_computed(node, node.outputs[1], at.fill(node, np.True_, at.shape(node.inputs[0])))
    at.alias(node.outputs[0], node.inputs[0])
    return None


def _drop(at: Importing, node: Node) -> Result:
    """Dropout in training; of a seed ONNX's reference, and its own cases, have numbers that no other draws."""
    given = at.constant(node, 1, "ratio")
    ratio = 0.5 if given is None else float(given.reshape(()))
    if "seed" in node.attrs:
        raise refusal(node, "training mode with a seed is not supported: its numbers are those of ONNX's reference")
    if not 0 <= ratio < 1:
        raise refusal(node, f"training mode with a ratio of {ratio} is not supported, only from 0 to below 1")
    return onnx_drawn.dropout(at, node, ratio)


def _shape_of(at: Importing, node: Node) -> Result:
    shape = at.shape(node.inputs[0])
    at.bind(node.outputs[0], np.array(shape[node.attrs.get("start", 0) : node.attrs.get("end", len(shape))], np.int64))
    return None


def _size_of(at: Importing, node: Node) -> Result:
    at.bind(node.outputs[0], np.array(prod(at.shape(node.inputs[0])), np.int64))
    return None


def _cast(at: Importing, node: Node) -> Result:
    return _cast_to(node, at.tensor(node.inputs[0]), at.dtype(node.attrs["to"]))


def _cast_like(at: Importing, node: Node) -> Result:
    x, like = node.inputs
    dtype = at.dtype_of(like)
    if at.is_known(x) and (dtype == "bfloat16" or (np.dtype(dtype).kind in "iuf" and dtype not in SHORT_DTYPES)):
        at.bind_computed(node, node.outputs[0], at.value(x).astype(dtype))
        return None
    return _cast_to(node, at.tensor(x), dtype)


def _cast_to(node: Node, x: Tensor, dtype: str) -> Tensor:
    """A cast; to floats of 8 bits with the largest one in place of those beyond it, unless the node says otherwise."""
    saturates = bool(node.attrs.get("saturate", 1))
    if dtype == "float8_e8m0fnu" and x.dtype != dtype:
        raise refusal(node, "casts to FLOAT8E8M0, powers of two, are not supported")
    if dtype.startswith("float8") and saturates and np.dtype(x.dtype).kind in "iuf" and x.dtype not in SHORT_DTYPES:
        limits = ops.quantized.limits_of(dtype)
        x = ops.clip(x, float(limits.min), float(limits.max))
    return ops.astype(x, dtype, name=node.name)


def _folded(function: Callable[..., Tensor]) -> Adder:
    """One operand after the other, from the left."""

    def add(at: Importing, node: Node) -> Result:
        first, *others = at.inputs(node)
        for k, other in enumerate(others):
            first = function(first, other, name=node.name if k == len(others) - 1 else None)
        return first

    return add


def _mean(at: Importing, node: Node) -> Result:
    return ops.add_n(*at.inputs(node)) / len(node.inputs)


def _pow(at: Importing, node: Node) -> Result:
    base, exponent = at.inputs(node)
    if np.dtype(base.dtype).kind != "f" and np.dtype(exponent.dtype).kind == "f":
        wide = np.promote_types(base.dtype, exponent.dtype).name
        powers = ops.pow(ops.astype(base, wide), ops.astype(exponent, wide))
        return ops.astype(powers, base.dtype, name=node.name)
    return ops.pow(base, ops.astype(exponent, base.dtype), name=node.name)


def _bit_shift(at: Importing, node: Node) -> Result:
    shift = {"LEFT": ops.bitwise_left_shift, "RIGHT": ops.bitwise_right_shift}[node.attrs["direction"]]
    return shift(*at.inputs(node), name=node.name)


def _bit_cast(at: Importing, node: Node) -> Result:
    return ops.bitcast(at.tensor(node.inputs[0]), at.dtype(node.attrs["to"]), name=node.name)


def _isinf(at: Importing, node: Node) -> Result:
    (x,) = at.inputs(node)
    found = ops.isinf(x, name=node.name)
    left_out = [
        other
        for other, side in ((ops.less, "detect_positive"), (ops.greater, "detect_negative"))
        if not node.attrs.get(side, 1)
    ]
    if left_out:
        zero = at.graph.constant(f"{node.name}.zero", np.zeros((), x.dtype))
        for other in left_out:
            found = ops.logical_and(found, other(x, zero))
    return found


def _einsum(at: Importing, node: Node) -> Result:
    return ops.einsum(node.attrs["equation"], *at.inputs(node), name=node.name)


def _trilu(at: Importing, node: Node) -> Result:
    x, k = at.tensor(node.inputs[0]), at.constant(node, 1, "k")
    upper, (rows, columns) = bool(node.attrs.get("upper", 1)), x.shape[-2:]
    shift = 0 if k is None else max(-rows, min(columns, int(k.reshape(()))))
    mask = _triangle(at, node, np.arange(rows)[:, None] + shift, np.arange(columns)[None, :], upper)
    return ops.where(mask, x, at.graph.constant(f"{node.name}.zero", np.zeros((), x.dtype)), name=node.name)


def _triangle(at: Importing, node: Node, first: Array, last: Array, upper: bool) -> Tensor:
    """Where columns are not before (else: not behind) what each row begins with: stored if few bytes, else computed."""
    try:
        at.spend(node, first.size * last.size)
    except TooLargeToFold:
        rows, columns = (
            at.graph.constant(f"{node.name}.{what}", v) for what, v in (("rows", first), ("columns", last))
        )
        return (ops.less_equal if upper else ops.greater_equal)(rows, columns, name=f"{node.name}.mask")
    return at.graph.constant(f"{node.name}.mask", first <= last if upper else first >= last)


def _constant_of_shape(at: Importing, node: Node) -> Result:
    from onnx import numpy_helper

    shape = at.ints(node, 0, "input") or []
    stored = node.attrs.get("value")
    value = np.zeros((), np.float32) if stored is None else numpy_helper.to_array(stored)
    at.bind_computed(node, node.outputs[0], at.fill(node, value, shape))
    return None


def _stashed(normalize: Callable[[Importing, Node, list[Tensor], str | None], Tensor]) -> Adder:
    """A normalization in the dtype that `stash_type` names, or in the operands' where that is wider."""

    def add(at: Importing, node: Node) -> Result:
        operands = at.inputs(node)
        _check_floating(node, operands)
        own, stash = operands[0].dtype, at.dtype(node.attrs.get("stash_type", tuning.FLOAT))
        wide = np.promote_types(own, stash).name
        if stash not in (own, "float32", "float64"):
            raise refusal(node, f"stash_type {stash} is not supported for operands of {own}, only float32 or float64")
        if wide == own:
            return normalize(at, node, operands, node.name)
        return ops.astype(normalize(at, node, [ops.astype(x, wide) for x in operands], None), own, name=node.name)

    return add


def _check_floating(node: Node, operands: list[Tensor]) -> None:
    for k, x in enumerate(operands):
        if np.dtype(x.dtype).kind != "f" and x.dtype not in SHORT_FLOATS:
            raise ValueError(f"its input {k} is {x.dtype}; floating numbers are needed: cast it")


def _normalize_rows(at: Importing, node: Node, operands: list[Tensor], name: str | None) -> Tensor:
    """A scale and a bias of other axes than the normalized ones too, which change them after the normalization."""
    x, *factors = operands
    how = {key: node.attrs[key] for key in ("axis", "epsilon") if key in node.attrs}
    (axis,) = axes_of([how.get("axis", -1)], x.ndim, "axis")
    fitted = [_fit_tail(one, x.shape[axis:]) for one in factors]
    fits = all(one.shape == x.shape[axis:] for one in fitted)
    if fits or not all(_is_spread(one, x.shape) for one in factors):
        return ops.layer_normalization(x, *fitted, name=name, **how)  # or it says what it takes
    made = ops.layer_normalization(x, _ones(at, node, x.dtype, x.shape[axis:]), **how)
    made = ops.multiply(made, factors[0], name=None if factors[1:] else name)
    return ops.add(made, factors[1], name=name) if factors[1:] else made


def _is_spread(x: Tensor, shape: Sequence[int]) -> bool:
    """Whether a tensor broadcasts to a shape, and does not make it larger."""
    return x.ndim <= len(shape) and all(n in (1, m) for n, m in zip(x.shape[::-1], shape[::-1], strict=False))


def _fit_tail(x: Tensor, shape: Sequence[int]) -> Tensor:
    """A tensor that broadcasts to the normalized axes, of their shape; others as they are."""
    more = x.ndim - len(shape)
    if any(n != 1 for n in x.shape[: max(0, more)]):
        return x
    inner = x.squeeze(tuple(range(more))) if more > 0 else x
    return inner.broadcast_to(shape) if inner.shape != tuple(shape) and _is_spread(inner, shape) else inner


def _ones(at: Importing, node: Node, dtype: str, shape: Sequence[int]) -> Tensor:
    return at.graph.constant(f"{node.name}.one", np.ones((), dtype)).broadcast_to(shape)


def _layer_normalization(at: Importing, node: Node) -> Result:
    """With the mean and 1/√(variance + epsilon) in `stash_type`, where something reads them: two reductions."""
    made = _stashed(_normalize_rows)(at, node)
    if not any(node.outputs[1:]):
        return made
    x = ops.astype(at.tensor(node.inputs[0]), at.dtype(node.attrs.get("stash_type", tuning.FLOAT)))
    axes = tuple(range(node.attrs.get("axis", -1) % x.ndim, x.ndim))
    mean = ops.mean(x, axes, keepdims=True)
    apart = x - mean
    variance = ops.mean(apart * apart, axes, keepdims=True)
    return [cast(Tensor, made), mean, ops.reciprocal(ops.sqrt(variance + node.attrs.get("epsilon", 1e-5)))]


def _rms_normalization(at: Importing, node: Node, operands: list[Tensor], name: str | None) -> Tensor:
    x, scale = operands
    (axis,) = axes_of([node.attrs.get("axis", -1)], x.ndim, "axis")
    how = {"axis": axis, "epsilon": node.attrs.get("epsilon", 1e-5)}
    fitted = _fit_tail(scale, x.shape[axis:])
    if fitted.shape == x.shape[axis:] or not _is_spread(scale, x.shape):
        return ops.rms_normalization(x, fitted, name=name, **how)
    made = ops.rms_normalization(x, _ones(at, node, x.dtype, x.shape[axis:]), **how)
    return ops.multiply(made, scale, name=name)


def _group_normalization(at: Importing, node: Node, operands: list[Tensor], name: str | None) -> Tensor:
    x, scale, bias = operands
    groups = node.attrs["num_groups"]
    if groups < 1 or x.shape[1] % groups:
        raise ValueError(
            f"num_groups is {groups}, which does not divide the {quote(x.shape[1])} channels of shape {quote(x.shape)}"
        )
    if at.opset < 21:  # one value for each group then
        scale, bias = (v.view(Repeat(x.shape[1] // groups, 0)) for v in (scale, bias))
    return ops.group_normalization(x, scale, bias, groups, epsilon=node.attrs.get("epsilon", 1e-5), name=name)


def _batch_normalization(at: Importing, node: Node) -> Result:
    """By the mean and variance given, or in training by those of the batch, which the running ones take in."""
    if not node.attrs.get("training_mode"):
        return _alike(ops.batch_normalization)(at, node)
    x, scale, bias, *running = at.inputs(node)
    axes, keep = (0, *range(2, x.ndim)), float(node.attrs.get("momentum", 0.9))
    mean = ops.mean(x, axes)
    apart = x - mean.reshape(-1, *(1,) * (x.ndim - 2))
    own = mean, ops.mean(apart * apart, axes)
    made = ops.batch_normalization(x, scale, bias, *own, epsilon=node.attrs.get("epsilon", 1e-5), name=node.name)
    return [made, *(before * keep + now * (1 - keep) for before, now in zip(running, own, strict=True))]


def _lp_normalization(at: Importing, node: Node) -> Result:
    x, axis, p = at.tensor(node.inputs[0]), node.attrs.get("axis", -1), node.attrs.get("p", 2)
    if p not in (1, 2):
        raise refusal(node, f"p = {p} is not supported, only 1 and 2")
    norm = ops.p_norm(x, p, lambda powers: ops.sum(powers, (axis,), keepdims=True))
    one, zero = (at.graph.constant(f"{node.name}.{n}", np.asarray(n, x.dtype)) for n in (1, 0))
    return ops.divide(x, ops.where(ops.equal(norm, zero), one, norm), name=node.name)  # rows of zeros stay zeros


def _clip(at: Importing, node: Node) -> Result:
    low, high = at.constant(node, 1, "min"), at.constant(node, 2, "max")
    bounds = [None if bound is None else bound.reshape(()).item() for bound in (low, high)]
    return ops.clip(at.tensor(node.inputs[0]), *bounds, name=node.name)


def _matmul(at: Importing, node: Node) -> Result:
    a, b = at.inputs(node)
    gone = []
    if b.ndim == 1:
        b = b.view(ExpandDims((1,)))
        gone.append(-1)
    if a.ndim == 1:
        a = a.view(ExpandDims((0,)))
        gone.append(-2)
    product = ops.matmul(a, b, name=node.name)
    return product.view(Squeeze(tuple(gone))) if gone else product


def _itself(x: Tensor) -> Tensor:
    return x


def _square(x: Tensor) -> Tensor:
    return x * x


def _reduce(
    function: Operator[..., Tensor],
    before: Callable[[Tensor], Tensor] = _itself,
    after: Callable[[Tensor], Tensor] = _itself,
) -> Adder:
    """A reduction, in the operand's dtype, of what is made of each cell, and what is made of the result."""

    def add(at: Importing, node: Node) -> Result:
        x, axes = at.tensor(node.inputs[0]), at.ints(node, 1, "axes")
        is_noop = node.attrs.get("noop_with_empty_axes") and not axes
        if is_noop and (before is not _itself or after is not _itself):
            raise refusal(node, "noop_with_empty_axes without axes is not supported: versions differ on what it gives")
        if is_noop:
            return x
        how = {"axis": tuple(axes) if axes else None, "keepdims": bool(node.attrs.get("keepdims", 1))}
        return after(ops.add_op(function.op, before(x), name=node.name, **how))

    return add


# -- indices -------------------------------------------------------------------------------------------


def _gather(at: Importing, node: Node) -> Result:
    x, axis = at.tensor(node.inputs[0]), node.attrs.get("axis", 0)
    known = at.is_known(node.inputs[1]) and at.value(node.inputs[1]).size <= tuning.VIEWED_INDICES
    return ops.take(x, at.value(node.inputs[1]) if known else at.tensor(node.inputs[1]), axis, name=node.name)


def _one_hot(at: Importing, node: Node) -> Result:
    depth = at.constant(node, 1, "depth")
    assert depth is not None, "it is needed"
    if depth.size != 1:
        raise ValueError(f"depth has shape {quote(depth.shape)}; one number is needed")
    indices = at.tensor(node.inputs[0])
    if np.dtype(indices.dtype).kind == "f":
        indices = ops.astype(indices, "int64")
    axis, count = node.attrs.get("axis", -1), int(depth.reshape(()))
    if at.is_known(node.inputs[2]):
        off, on = at.value(node.inputs[2]).tolist()
        dtype = at.value(node.inputs[2]).dtype.name
        if np.dtype(dtype).kind in "biuf":
            return ops.one_hot(indices, count, axis=axis, on=on, off=off, dtype=dtype, name=node.name)
    values = at.tensor(node.inputs[2])
    if values.shape != (2,):
        raise ValueError(f"values has shape {quote(values.shape)}; off and on are needed")
    hot = ops.one_hot(indices, count, axis=axis, dtype="bool", name=f"{node.name}.hot")
    return ops.where(hot, values[1], values[0], name=node.name)


def _cumsum(at: Importing, node: Node) -> Result:
    axis = at.ints(node, 1, "axis") or [0]
    how = {key: bool(node.attrs.get(key)) for key in ("exclusive", "reverse")}
    return ops.add_op(ops.cumulative_sum.op, at.tensor(node.inputs[0]), name=node.name, axis=axis[0], **how)


def _top_k(at: Importing, node: Node) -> Result:
    k = at.ints(node, 1, "k") or [0]
    x, attrs = at.tensor(node.inputs[0]), node.attrs
    if k == [0]:
        raise NotOfGraphs(NO_CELLS)
    return list(ops.top_k(x, k[0], attrs.get("axis", -1), largest=bool(attrs.get("largest", 1)), name=node.name))


def _depth_to_space(at: Importing, node: Node) -> Result:
    return ops.depth_to_space(at.tensor(node.inputs[0]), node.attrs["blocksize"], mode=node.attrs.get("mode", "DCR"))


def _space_to_depth(at: Importing, node: Node) -> Result:
    return ops.space_to_depth(at.tensor(node.inputs[0]), node.attrs["blocksize"], mode=node.attrs.get("mode", "DCR"))


# -- the table -----------------------------------------------------------------------------------------

_ROWS: dict[str, Import] = {
    **_same(1, "Abs", "Ceil", "Exp", "Floor", "IsNaN", "Log", "Reciprocal", "Round", "Sign", "Sqrt"),
    **_same(1, "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Cos", "Cosh", "Sin", "Sinh", "Tan", "Tanh"),
    **_same(1, "Celu", "Elu", "Erf", "Gelu", "HardSigmoid", "HardSwish", "LeakyRelu", "LogSoftmax", "Mish", "Relu"),
    **_same(1, "Selu", "Sigmoid", "Softmax", "Softplus", "Softsign", "ThresholdedRelu"),
    **_same(1, "Det", "GlobalAveragePool", "GlobalMaxPool"),
    **_same(1, BitwiseNot=ops.bitwise_invert, LRN=ops.local_response_normalization, Neg=ops.negative),
    **_same(1, Not=ops.logical_not),
    **_same(2, "Add", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Equal", "Greater", "Less", "PRelu"),
    **_same(2, And=ops.logical_and, Mul=ops.multiply, Or=ops.logical_or, Sub=ops.subtract, Xor=ops.logical_xor),
    **_same(2, GreaterOrEqual=ops.greater_equal, LessOrEqual=ops.less_equal),
    **_same(3, "InstanceNormalization", "ScatterND", "Where", ScatterElements=ops.put_along_axis),
    "ArgMax": Import(onnx_indices.best(ops.argmax)),
    "ArgMin": Import(onnx_indices.best(ops.argmin)),
    "Attention": Import(
        onnx_attention.attention, 3, 7, idle=("qk_matmul_output_mode",)
    ),  # which is that of another output
    "AveragePool": Import(onnx_windows.average_pool),
    "BatchNormalization": Import(_batch_normalization, 5, 5, idle=("momentum",)),  # which is that of training
    "Bernoulli": Import(onnx_drawn.bernoulli),
    "BitCast": Import(_bit_cast, moves=True),
    "BitShift": Import(_bit_shift, 2, 2),
    "Cast": Import(_cast, idle=("round_mode",), moves=True),
    "CastLike": Import(_cast_like, 2, 2, idle=("round_mode",), moves=True),
    "Clip": Import(_clip, 1, 3),
    "Col2Im": Import(onnx_indices.col2im, 3, 3),
    "Concat": Import(onnx_views.concat, 1, None, moves=True),
    "ConstantOfShape": Import(_constant_of_shape),
    "Conv": Import(onnx_windows.conv, 2, 3),
    "ConvInteger": Import(onnx_quantized.conv_integer, 2, 4),
    "ConvTranspose": Import(onnx_windows.conv_transpose, 2, 3),
    "CumSum": Import(_cumsum, 2, 2),
    "CumProd": Import(onnx_indices.cumulative_product, 2, 2),
    "DFT": Import(onnx_fourier.dft, 1, 3),
    "DeformConv": Import(onnx_sampling.deform_conv, 3, 5),
    "DepthToSpace": Import(_depth_to_space, moves=True),
    "DequantizeLinear": Import(onnx_quantized.dequantize_linear, 2, 3),
    "Div": Import(_divide, 2, 2),
    "Dropout": Import(_alias, 1, 3, idle=("seed",), moves=True),
    "DynamicQuantizeLinear": Import(onnx_quantized.dynamic_quantize),
    "Einsum": Import(_einsum, 1, None),
    "Expand": Import(onnx_views.expand, 2, 2, moves=True),
    "EyeLike": Import(onnx_indices.eye_like),
    "Flatten": Import(onnx_views.flatten, moves=True),
    "GRU": Import(onnx_recurrent.recurrent("gru"), 3, 6, idle=("hidden_size",)),
    "Gather": Import(_gather, 2, 2, moves=True),
    "GatherElements": Import(_alike(ops.take_along_axis, axis=0), 2, 2, moves=True),
    "GatherND": Import(onnx_indices.gather_nd, 2, 2, moves=True),
    "Gemm": Import(_alike(ops.gemm, {"transA": "trans_a", "transB": "trans_b"}), 2, 3),
    "GlobalLpPool": Import(onnx_windows.global_lp_pool),
    "GridSample": Import(onnx_sampling.grid_sample, 2, 2),
    "GroupNormalization": Import(_stashed(_group_normalization), 3, 3),
    "Hardmax": Import(onnx_indices.hardmax),
    "Identity": Import(_alias, moves=True),
    "IsInf": Import(_isinf),
    "LayerNormalization": Import(_layer_normalization, 2, 3),
    "LSTM": Import(onnx_recurrent.recurrent("lstm"), 3, 8, idle=("hidden_size",)),
    "LpNormalization": Import(_lp_normalization),
    "LpPool": Import(onnx_windows.lp_pool),
    "MatMul": Import(_matmul, 2, 2),
    "MatMulInteger": Import(onnx_quantized.matmul_integer, 2, 4),
    "Max": Import(_folded(ops.maximum), 1, None),
    "MaxPool": Import(onnx_indices.max_pool, idle=("storage_order",)),  # which is that of the indices
    "MaxUnpool": Import(onnx_indices.max_unpool, 2, 3),
    "MaxRoiPool": Import(onnx_sampling.max_roi_pool, 2, 2),
    "Mean": Import(_mean, 1, None),
    "Min": Import(_folded(ops.minimum), 1, None),
    "Mod": Import(_alike(ops.remainder, {"fmod": "truncate"}), 2, 2),
    "MelWeightMatrix": Import(onnx_fourier.mel_weights, 5, 5),
    "Multinomial": Import(onnx_drawn.multinomial),
    "OneHot": Import(_one_hot, 3, 3),
    "Pad": Import(onnx_views.pad, 2, 4, moves=True),
    "Pow": Import(_pow, 2, 2),
    "QLinearConv": Import(onnx_quantized.qlinear_conv, 8, 9),
    "QLinearMatMul": Import(onnx_quantized.qlinear_matmul, 8, 8),
    "QuantizeLinear": Import(onnx_quantized.quantize_linear, 2, 3, idle=("saturate",)),  # integers always do
    "RMSNormalization": Import(_stashed(_rms_normalization), 2, 2),
    "RNN": Import(onnx_recurrent.recurrent("rnn"), 3, 6, idle=("hidden_size",)),
    "RandomNormal": Import(onnx_drawn.drawn(onnx_drawn.NORMAL), 0, 0, idle=("seed",)),
    "RandomNormalLike": Import(onnx_drawn.drawn(onnx_drawn.NORMAL), idle=("seed",), moves=True),
    "RandomUniform": Import(onnx_drawn.drawn(onnx_drawn.UNIFORM), 0, 0, idle=("seed",)),
    "RandomUniformLike": Import(onnx_drawn.drawn(onnx_drawn.UNIFORM), idle=("seed",), moves=True),
    "Range": Import(onnx_indices.range_of, 3, 3),
    "ReduceL1": Import(_reduce(ops.sum, ops.abs), 1, 2),
    "ReduceL2": Import(_reduce(ops.sum, _square, ops.sqrt), 1, 2),
    "ReduceLogSum": Import(_reduce(ops.sum, after=ops.log), 1, 2),
    "ReduceLogSumExp": Import(_reduce(ops.logsumexp), 1, 2),
    "ReduceMax": Import(_reduce(ops.max), 1, 2),
    "ReduceMean": Import(_reduce(ops.mean), 1, 2),
    "ReduceMin": Import(_reduce(ops.min), 1, 2),
    "ReduceProd": Import(_reduce(ops.prod), 1, 2),
    "ReduceSum": Import(_reduce(ops.sum), 1, 2),
    "ReduceSumSquare": Import(_reduce(ops.sum, _square), 1, 2),
    "Reshape": Import(onnx_views.reshape, 2, 2, moves=True),
    "Resize": Import(onnx_windows.resize, 1, 4),
    "ReverseSequence": Import(onnx_indices.reverse_sequence, 2, 2),
    "RoiAlign": Import(onnx_sampling.roi_align, 3, 3),
    "STFT": Import(onnx_fourier.stft, 2, 4),
    "Slice": Import(onnx_views.slice, 3, 5, moves=True),
    "SpaceToDepth": Import(_space_to_depth, moves=True),
    "Split": Import(onnx_views.split, 1, 2, moves=True),
    "Squeeze": Import(onnx_views.squeeze, 1, 2, moves=True),
    "Sum": Import(_alike(ops.add_n), 1, None),
    "TensorScatter": Import(onnx_indices.tensor_scatter, 2, 3),
    "Tile": Import(onnx_views.tile, 2, 2, moves=True),
    "TopK": Import(_top_k, 2, 2, idle=("sorted",)),  # any order will do where it is 0
    "Transpose": Import(onnx_views.transpose, moves=True),
    "Trilu": Import(_trilu, 1, 2),
    "Unsqueeze": Import(onnx_views.unsqueeze, 2, 2, moves=True),
    "com.microsoft::Attention": Import(onnx_attention.fused_attention, 2, 7, idle=("mask_filter_value",)),
    "SimplifiedLayerNormalization": Import(_stashed(_rms_normalization), 2, 2),  # of ONNX Runtime's, in no domain
    "com.microsoft::EmbedLayerNormalization": Import(
        onnx_microsoft.embedded, 7, 9, idle=("mask_index_type",), gaps=(1, 4)
    ),
    "com.microsoft::DequantizeLinear": Import(onnx_quantized.dequantize_linear, 2, 3),
    "com.microsoft::DynamicQuantizeMatMul": Import(onnx_quantized.matmul_of_bytes, 3, 5),
    "com.microsoft::ExpandDims": Import(onnx_views.expand_dims, 2, 2, moves=True),
    "com.microsoft::FusedConv": Import(onnx_fused.convolution, 2, 4),
    "com.microsoft::FusedGemm": Import(onnx_fused.product, 2, 3),
    "com.microsoft::GatherBlockQuantized": Import(onnx_quantized.gathered_blocks, 3, 4),
    "com.microsoft::GatherND": Import(onnx_indices.gather_nd, 2, 2, moves=True),
    "com.microsoft::Gelu": Import(onnx_microsoft.gelu("none")),
    "com.microsoft::GridSample": Import(onnx_sampling.grid_sample, 2, 2),
    "com.microsoft::MatMulIntegerToFloat": Import(onnx_quantized.matmul_to_float, 4, 7),
    "com.microsoft::MatMulNBits": Import(onnx_quantized.matmul_of_few_bits, 3, 6, idle=("accuracy_level",)),
    "com.microsoft::NhwcMaxPool": Import(onnx_indices.nhwc_max_pool),
    "com.microsoft::Pad": Import(onnx_views.pad, 2, 3, moves=True),
    "com.microsoft::QGemm": Import(onnx_quantized.qgemm, 6, 9),
    "com.microsoft::QLinearAdd": Import(
        onnx_quantized.of_numbers(onnx_quantized.added, (0, 3), 6, rounds_last=True), 7, 8, gaps=(2, 5)
    ),
    "com.microsoft::QLinearAveragePool": Import(
        onnx_quantized.of_numbers(onnx_quantized.pooled, (0,), 3, rounds_last=True), 4, 5, gaps=(2,)
    ),
    "com.microsoft::QLinearConv": Import(onnx_quantized.qlinear_conv, 8, 9),
    "com.microsoft::QLinearConcat": Import(onnx_quantized.qlinear_concat, 5, None),
    "com.microsoft::QLinearGlobalAveragePool": Import(onnx_quantized.qlinear_average, 5, 5),
    "com.microsoft::QLinearLeakyRelu": Import(
        onnx_quantized.of_numbers(onnx_quantized.leaky, (0,), 3), 4, 5, gaps=(2,)
    ),
    "com.microsoft::QLinearMul": Import(
        onnx_quantized.of_numbers(onnx_quantized.multiplied, (0, 3), 6, rounds_last=True), 7, 8, gaps=(2, 5)
    ),
    "com.microsoft::QLinearSoftmax": Import(onnx_quantized.of_numbers(onnx_quantized.shared, (0,), 3), 5, 5, gaps=(2,)),
    "com.microsoft::QLinearWhere": Import(onnx_quantized.of_numbers(onnx_quantized.chosen, (1, 4), 7), 9, 9),
    "com.microsoft::QuantizeLinear": Import(onnx_quantized.quantize_linear, 2, 3),
    "com.microsoft::QLinearSigmoid": Import(onnx_quantized.of_numbers(onnx_quantized.bent, (0,), 3), 4, 5, gaps=(2,)),
    "com.microsoft::RotaryEmbedding": Import(onnx_attention.rotary_embedding, 4, 4, idle=("num_heads",)),
    "com.microsoft::BiasGelu": Import(onnx_microsoft.gelu("none"), 2, 2),
    "com.microsoft::FastGelu": Import(onnx_microsoft.gelu("tanh"), 1, 2),
    "com.microsoft::FusedMatMul": Import(onnx_microsoft.fused_matmul, 2, 2),
    "com.microsoft::GroupQueryAttention": Import(
        onnx_attention.group_query_attention,
        *(7, 17),
        idle=("k_quant_type", "v_quant_type", "kv_cache_bit_width"),
        gaps=(1, 2, 3, 4),
    ),
    "com.microsoft::QAttention": Import(onnx_attention.quantized_attention, 5, 9, idle=("mask_filter_value",)),
    "com.microsoft::MultiHeadAttention": Import(
        onnx_attention.multi_head_attention, 1, 10, idle=("mask_filter_value",)
    ),
    "com.microsoft::QuickGelu": Import(onnx_microsoft.quick_gelu),
    "com.microsoft::SkipLayerNormalization": Import(onnx_microsoft.skip_normalization, 3, 5),
    "com.microsoft::SkipSimplifiedLayerNormalization": Import(onnx_microsoft.skip_normalization, 3, 4),
    "com.microsoft::Trilu": Import(_trilu, 1, 2),
    "com.microsoft.nchwc::AveragePool": Import(onnx_blocked.average_pool),
    "com.microsoft.nchwc::Conv": Import(onnx_blocked.conv, 2, 4),
    "com.microsoft.nchwc::GlobalAveragePool": Import(onnx_blocked.global_average_pool),
    "com.microsoft.nchwc::GlobalMaxPool": Import(onnx_blocked.global_max_pool),
    "com.microsoft.nchwc::MaxPool": Import(onnx_blocked.max_pool, idle=("storage_order",)),
    "com.microsoft.nchwc::ReorderInput": Import(onnx_blocked.reorder_input),
    "com.microsoft.nchwc::ReorderOutput": Import(onnx_blocked.reorder_output),
    "com.microsoft.nchwc::Upsample": Import(onnx_blocked.upsample),
    f"{onnx_learned.DOMAIN}::ArrayFeatureExtractor": Import(onnx_learned.extracted, 2, 2, moves=True),
    f"{onnx_learned.DOMAIN}::Binarizer": Import(onnx_learned.binarizer),
    f"{onnx_learned.DOMAIN}::FeatureVectorizer": Import(onnx_learned.joined, 1, None),
    f"{onnx_learned.DOMAIN}::Imputer": Import(
        onnx_learned.imputer, idle=("replaced_value_float", "replaced_value_int64")
    ),  # of which the one of the other kind says nothing
    f"{onnx_learned.DOMAIN}::LinearClassifier": Import(onnx_learned.classifier, idle=("multi_class",)),
    f"{onnx_learned.DOMAIN}::LinearRegressor": Import(onnx_learned.regressor),
    f"{onnx_learned.DOMAIN}::Normalizer": Import(onnx_learned.normalizer),
    f"{onnx_learned.DOMAIN}::OneHotEncoder": Import(onnx_learned.encoded),
    f"{onnx_learned.DOMAIN}::Scaler": Import(onnx_learned.scaler),
    f"{DOMAIN}::{KIND}": Import(onnx_recurrent.own_operator, 3, 5),
    f"{DOMAIN}::{STEP}": Import(onnx_recurrent.own_operator, 3, 5),
    f"{DOMAIN}::{TAKE}": Import(onnx_recurrent.own_operator, 2, 2),
    **{f"{DOMAIN}::{name}": Import(onnx_recurrent.own_operator, 0, 1) for name in sorted(DRAWING)},
    **{f"{DOMAIN}::{name}": Import(onnx_recurrent.own_operator, 2, 3) for name in sorted(SCALING)},
}
IMPORTERS: dict[str, Import] = FrozenDict(_ROWS)
"""What each operator of ONNX becomes, and how many inputs it takes; others join as ``"domain::Type"``."""


def importers_of(given: Mapping[str, Any]) -> dict[str, Import]:
    """The table, with operators that are given as ``"domain::Type"``: each takes the node's inputs and attributes.

    Raises
    ------
    TypeError
        For what is neither an `Op` nor a function under `operator`.
    """
    found = dict(IMPORTERS)
    for key, value in given.items():
        op = getattr(value, "op", value)
        if not isinstance(key, str) or not isinstance(op, Op):
            raise TypeError(
                f"load_onnx: ops[{quote(key)}] is {describe(value)}; give the declaration of an operator, an Op or a "
                'function under `operator`, by the domain and type of its nodes, as "com.example::Type"'
            )
        found[key] = Import(_given(op), 0, None)
    return found


def _given(op: Op) -> Adder:
    """A node as an operator that is given: its operands in order, those left out None, and all of its attributes."""

    def add(at: Importing, node: Node) -> Result:
        operands = [at.tensor(name) if name else None for name in node.inputs]
        attrs = {key: node.attrs[key] for key in node.attrs}
        made = at.graph.op(op, *operands, name=node.name, **attrs)
        return made if isinstance(made, Tensor) else list(made)

    return add


NOT_ADDED: dict[str, Import] = FrozenDict({"Shape": Import(_shape_of), "Size": Import(_size_of)})
"""Operators that never come into the graph, since shapes are known."""
