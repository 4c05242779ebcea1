"""Attention of ONNX's own and of com.microsoft, with keys and values of before."""

from __future__ import annotations

import numpy as np

from tapestry_plan import ops
from tapestry_plan.ir import Tensor, concat
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
