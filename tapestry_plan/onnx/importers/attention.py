"""Attention of ONNX's own and of com.microsoft, with keys and values of before."""

from __future__ import annotations

import numpy as np

from tapestry_plan import ops
from tapestry_plan.ir import Tensor, concat
from tapestry_plan.onnx.importers.quantized import product
from tapestry_plan.onnx.nodes import Importing, Node, Result, refusal
from tapestry_sets.limits import quote


def attention(at: Importing, node: Node) -> Result:
    attrs = node.attrs
    has_past = any(node.inputs[4:6])
    if any(node.inputs[6:]) or any(node.outputs[3:]):
        raise refusal(node, "lengths of keys, and the scores as outputs, of attention are not supported")
    if has_past and (attrs.get("is_causal") or any(attrs.get(f"{s}_window_size", -1) != -1 for s in ("left", "right"))):
        raise refusal(node, "keys of before beside is_causal or windows are not supported")
    q, k, v = (at.tensor(name) for name in node.inputs[:3])
    mask = at.tensor(node.inputs[3]) if node.input(3) else None
    precision = attrs.get("softmax_precision")
    if precision is not None and at.dtype(precision) != q.dtype:
        raise refusal(node, f"softmax_precision {at.dtype(precision)} is not supported for operands of {q.dtype}")
    flat = q.ndim == 3
    for key in () if flat else ("q_num_heads", "kv_num_heads"):
        if key in attrs:
            raise ValueError(
                f"{key} is {attrs[key]}, but operands of rank 4 say how many heads there are; leave it out"
            )
    if flat:
        heads = attrs["q_num_heads"], attrs["kv_num_heads"], attrs["kv_num_heads"]
        q, k, v = (_by_head(x, n) for x, n in zip((q, k, v), heads, strict=True))
    if has_past:
        k, v = (concat([at.tensor(node.inputs[n]), x], axis=2) for n, x in ((4, k), (5, v)))
    sides = {side: attrs.get(f"{side}_window_size", -1) for side in ("left", "right")}
    out = ops.attention(
        q,
        k,
        v,
        mask,
        scale=attrs.get("scale"),
        causal=bool(attrs.get("is_causal")),
        softcap=attrs.get("softcap") or None,
        name=node.name,
        **{side: None if cells == -1 else cells for side, cells in sides.items()},
    )
    if flat:
        batch, count, length, width = out.shape
        out = out.permute_dims((0, 2, 1, 3)).reshape(batch, length, count * width)
    return [out, k, v]


def _by_head(x: Tensor, heads: int) -> Tensor:
    """(batch, positions, heads · width) as (batch, heads, positions, width), which some operands have already."""
    if x.ndim == 4:
        return x
    batch, length, width = x.shape
    if heads < 1 or width % heads:
        raise ValueError(f"{heads} heads do not divide the width of shape {quote(x.shape)}")
    return x.reshape(batch, length, heads, width // heads).permute_dims((0, 2, 1, 3))


def multi_head_attention(at: Importing, node: Node) -> Result:
    attrs, heads = node.attrs, node.attrs["num_heads"]
    if not (node.input(1) and node.input(2)):
        raise refusal(node, "packed queries, keys and values are not supported; give each of them")
    if any(node.input(k) for k in (8, 9)) or any(node.outputs[3:]):
        raise refusal(node, "lengths of the past, indirections and the scores as outputs are not supported")
    flat = [at.tensor(name) for name in node.inputs[:3]]
    if node.input(3):
        bias, begin = at.tensor(node.inputs[3]), 0
        for n, x in enumerate(flat):
            if x.ndim == 3:
                flat[n] = x + bias[begin : begin + x.shape[-1]]
            begin += x.shape[-1] if x.ndim == 3 else x.shape[1] * x.shape[3]
    q, k, v = (_by_head(x, heads) for x in flat)
    for past, which in ((6, 0), (7, 1)):
        if node.input(past):
            joined = concat([at.tensor(node.inputs[past]), (k, v)[which]], axis=2)
            k, v = (joined, v) if which == 0 else (k, joined)
    mask, past_length = _mask(at, node, k), k.shape[2] - q.shape[2]
    is_causal = bool(attrs.get("unidirectional"))
    if is_causal and past_length:  # the first query comes behind what is past
        hidden = np.triu(np.full((q.shape[2], k.shape[2]), -np.inf, q.dtype), past_length + 1)
        behind = at.graph.constant(f"{node.name}.behind", hidden[None, None])
        mask, is_causal = behind if mask is None else mask + behind, False
    made = ops.attention(q, k, v, mask, scale=attrs.get("scale"), causal=is_causal, name=node.name)
    batch, _, length, width = made.shape
    return [made.permute_dims((0, 2, 1, 3)).reshape(batch, length, heads * width), k, v]


def _mask(at: Importing, node: Node, k: Tensor) -> Tensor | None:
    """What is added to the scores: the bias, and a low number where a key counts as padding."""
    bias = at.tensor(node.inputs[5]) if node.input(5) else None
    if not node.input(4):
        return bias
    padding = at.tensor(node.inputs[4])
    if padding.shape != (k.shape[0], k.shape[2]):
        raise refusal(node, f"a key_padding_mask of shape {quote(padding.shape)} is not supported, only (batch, keys)")
    low = np.asarray(node.attrs.get("mask_filter_value", -10000.0), k.dtype)
    numbers = [at.graph.constant(f"{node.name}.{n}", np.asarray(one, k.dtype)) for n, one in (("low", low), ("no", 0))]
    hidden = ops.where(ops.equal(padding, 0), *numbers).reshape(padding.shape[0], 1, 1, padding.shape[1])
    return hidden if bias is None else hidden + bias


# -- fused with what is before it ------------------------------------------------------------------------


def group_query_attention(at: Importing, node: Node) -> Result:
    """Causal attention whose heads of queries share those of keys, where sequences are of one known length.

    Keys and values of before are those of earlier positions, all of which count.
    """
    attrs, heads, groups = node.attrs, node.attrs["num_heads"], node.attrs["kv_num_heads"]
    if not (node.input(1) and node.input(2)):
        raise refusal(node, "packed queries, keys and values are not supported; give each of them")
    if any(node.inputs[9:]) or any(node.outputs[3:]):
        raise refusal(node, "position_ids, a bias, sinks and the scores as outputs are not supported")
    for key, usual in (("smooth_softmax", (-1, 0)), ("qk_output", (0,))):
        if attrs.get(key, usual[0]) not in usual:
            raise refusal(node, f"{key} {attrs[key]} is not supported")
    q, k, v = (_by_head(at.tensor(name), n) for name, n in zip(node.inputs, (heads, groups, groups), strict=False))
    before = [at.tensor(node.inputs[n]) if node.input(n) else None for n in (3, 4)]
    past = 0 if before[0] is None else before[0].shape[2]
    total, length = past + q.shape[2], q.shape[2]
    ends, whole = at.constant(node, 5, "seqlens_k"), at.constant(node, 6, "total_sequence_length")
    if ends is None or whole is None:
        raise ValueError("seqlens_k and total_sequence_length are needed")
    if (ends != total - 1).any() or (whole != total).any():
        raise refusal(node, "sequences of other lengths than all keys are not supported")
    if attrs.get("do_rotary"):
        if not (node.input(7) and node.input(8)):
            raise ValueError("do_rotary needs cos_cache and sin_cache")
        turns = [at.tensor(node.inputs[n])[past:total] for n in (7, 8)]
        q, k = (_turned(x, *turns, interleaved=bool(attrs.get("rotary_interleaved"))) for x in (q, k))
    k, v = (x if one is None else concat([one, x], axis=2) for one, x in zip(before, (k, v), strict=True))
    window, mask = attrs.get("local_window_size", -1), None
    if past or window != -1:
        apart = np.arange(length)[:, None] + past - np.arange(total)
        seen = (apart >= 0) & ((apart < window) | (window == -1))
        hidden = np.where(seen, 0, -np.inf).astype(q.dtype)[None, None]
        mask = at.graph.constant(f"{node.name}.hidden", hidden)
    how = {"scale": attrs.get("scale") or None, "softcap": attrs.get("softcap") or None}
    made = ops.attention(q, k, v, mask, causal=mask is None, name=node.name, **how)
    return [made.permute_dims((0, 2, 1, 3)).reshape(made.shape[0], length, heads * made.shape[3]), k, v]


def _turned(x: Tensor, cos: Tensor, sin: Tensor, *, interleaved: bool) -> Tensor:
    """Pairs of cells turned by the angles of their positions: halves, or neighbors; those behind them stay."""
    pairs, rest = cos.shape[-1], x.shape[-1] - 2 * cos.shape[-1]
    if rest < 0 or cos.shape != sin.shape or cos.shape[0] != x.shape[2]:
        raise ValueError(f"cos_cache and sin_cache give shapes {quote(cos.shape)} and {quote(sin.shape)} here")
    cells = x[..., : 2 * pairs]
    first, second = (cells[..., ::2], cells[..., 1::2]) if interleaved else (cells[..., :pairs], cells[..., pairs:])
    both = first * cos - second * sin, second * cos + first * sin
    if interleaved:
        made = concat([one.expand_dims(4) for one in both], axis=4).reshape(cells.shape)
    else:
        made = concat(both, axis=3)
    return concat([made, x[..., 2 * pairs :]], axis=3) if rest else made


def quantized_attention(at: Importing, node: Node) -> Result:
    """Queries, keys and values by one product of integers, which are exact on any split, and their attention."""
    attrs, heads = node.attrs, node.attrs["num_heads"]
    if node.input(5) or node.input(8) or any(node.outputs[1:]) or attrs.get("do_rotary"):
        raise refusal(node, "masks, keys of before and rotations are not supported")
    for name in node.inputs[:2]:
        if (dtype := at.dtype_of(name)) not in ("int8", "uint8"):
            raise ValueError(f"{quote(name)} is {dtype}; QAttention multiplies int8 and uint8: quantize it first")
    bias = at.tensor(node.inputs[2])
    total = product(at, node, 0, 1, 6, 7)
    ratio = at.tensor(node.inputs[3]) * at.tensor(node.inputs[4])
    each = ops.astype(total, bias.dtype) * ratio + bias
    width = each.shape[-1] // 3
    if each.ndim != 3 or each.shape[-1] != 3 * width:
        raise ValueError(f"the product has shape {quote(each.shape)}; (batch, positions, 3 · width) is needed")
    q, k, v = (_by_head(each[..., n * width : (n + 1) * width], heads) for n in range(3))
    causal = bool(attrs.get("unidirectional"))
    made = ops.attention(q, k, v, scale=attrs.get("scale"), causal=causal, name=node.name)
    return [made.permute_dims((0, 2, 1, 3)).reshape(*each.shape[:2], width)]
