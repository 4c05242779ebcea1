"""Scaled dot-product attention, with a mask and with fewer heads of keys and values than of queries."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from tapestry_plan.ir import Attention, Attrs, Axis, LinearForm, Operand, Shape, Shard, Signature, Tensor
from tapestry_plan.ops.declaration import operator
from tapestry_plan.ops.expansions import find_near_keys, matmul_softmax_matmul, split_scale
from tapestry_plan.ops.operands import align_axes, floating, need_rank, touched
from tapestry_sets.limits import is_int, quote


def _attention_signature(shapes: Sequence[Shape], attrs: Attrs) -> Signature:
    """Index axes b, h (heads of queries) and s (queries); the heads of keys are h // group."""
    q, k, v = shapes[:3]
    _check_shapes(q, k, v)
    _check_attributes(attrs)
    group = q[1] // k[1]
    axes = (Axis("b", q[0]), Axis("h", q[1]), Axis("s", q[2]))
    head = "h" if group == 1 else "h//"
    shared = [touched(axes, ["b", head, "", ""], shape, {"h": group} if group > 1 else None) for shape in (k, v)]
    inputs = [touched(axes, ["b", "h", "s", ""], q), *shared]
    if len(shapes) > 3:
        inputs.append(_mask(shapes[3], axes, k[2]))
    return Signature(axes, tuple(inputs), (touched(axes, ["b", "h", "s", ""], v),))


def _check_shapes(q: Shape, k: Shape, v: Shape) -> None:
    for what, shape in (("operand 0", q), ("operand 1", k), ("operand 2", v)):
        need_rank(shape, 4, what, "batch, heads, positions, width")
    if k[:3] != v[:3]:
        raise ValueError(f"the keys have shape {k}, the values {v}; batch, heads and positions must be equal")
    if q[0] != k[0] or q[3] != k[3]:
        raise ValueError(f"the queries have shape {q}, the keys {k}; batch and width must be equal")
    if q[1] % k[1]:
        raise ValueError(f"{q[1]} heads of queries share {k[1]} heads of keys; these must divide those")


def _check_attributes(attrs: Attrs) -> None:
    for side in ("left", "right"):
        if attrs.get(side) is not None and not is_int(attrs[side], 0):
            raise ValueError(f"{side} is {quote(attrs[side])}; give how many keys a query sees on that side, 0 or more")
    if attrs.get("softcap", 0) < 0:
        raise ValueError(f"softcap is {quote(attrs['softcap'])}; give a number > 0, or none")


def _mask(shape: Shape, axes: Sequence[Axis], keys: int) -> Operand:
    """The mask broadcasts to (batch, heads, queries, keys); its last axis is read whole."""
    wanted = (*(axis.size for axis in axes), keys)
    if len(shape) > 4 or any(n not in (1, m) for n, m in zip(shape[::-1], wanted[::-1], strict=False)):
        raise ValueError(
            f"the mask has shape {quote(shape)}; it must broadcast to {wanted}: batch, heads, queries, keys"
        )
    coordinates: list[str | LinearForm] = [*align_axes(shape[:-1], axes), ""]
    return touched(axes, coordinates[: len(shape)], shape)


def _attention_dtype(dtypes: Sequence[str], attrs: Attrs) -> tuple[str, ...]:
    if len(dtypes) > 3 and dtypes[3] not in ("bool", dtypes[0]):
        raise ValueError(f"the mask is {dtypes[3]}; it must be bool, or {dtypes[0]} as the queries are, to be added")
    return floating(dtypes[:3], attrs)


def _attention_block(xp: Any, inputs: Sequence[Any], outputs: Sequence[Any], shard: Shard) -> None:
    q, k, v = inputs[:3]
    (out,) = outputs
    (queries, width), keys, kind = q.shape[2:], k.shape[2], out.dtype.type
    scores, queries_scaled, keys_scaled = _spaces(shard, out.dtype, (queries, keys), (queries, width), (keys, width))
    factors = [kind(factor) for factor in split_scale(shard.attrs, width, out.dtype.name)]
    near = find_near_keys(xp, shard.range("s"), keys, shard.attrs)
    first, group = shard.range("h")[0], _group(shard)
    # One head at a time, whose scores fit the workspace. A shard may begin inside a group of heads: its block of keys
    # begins at that group's head, so heads are numbered in the whole tensor before they are divided by the group.
    for b in range(q.shape[0]):
        for h in range(q.shape[1]):
            shared = (first + h) // group - first // group
            left, right = xp.multiply(q[b, h], factors[0], out=queries_scaled), k[b, shared]
            if factors[1] != 1:
                right = xp.multiply(right, factors[1], out=keys_scaled)
            xp.matmul(left, right.T, out=scores)
            _cap(xp, scores, shard.attrs.get("softcap"))
            if len(inputs) > 3:
                _add_mask(xp, scores, _of_head(inputs[3], b, h))
            if near is not None:
                xp.copyto(scores, kind(-np.inf), where=~near)
            _write_shares(xp, scores)
            xp.matmul(scores, v[b, shared], out=out[b, h])


def _attend(xp: Any, inputs: Sequence[Any], out: Any, nbytes: int, *, shard: Shard) -> None:
    """As the block function, with many heads at once: on a GPU a launch takes longer than a head's arithmetic."""
    #   heads of queries   0 1 2 3 4 5      that share one head of keys are one stack of matrices; where each has its
    #   heads of keys      0 0 0 1 1 1      own, some of them are, as many as have scores of so many bytes
    q, k, v = inputs[:3]
    (batch, heads, queries, width), keys, kind = q.shape, k.shape[2], out.dtype.type
    factors = [kind(factor) for factor in split_scale(shard.attrs, width, out.dtype.name)]
    near = find_near_keys(xp, shard.range("s"), keys, shard.attrs)
    first, group = shard.range("h")[0], _group(shard)
    at_once = max(1, nbytes // max(batch * queries * keys * out.dtype.itemsize, 1))
    begin = 0
    while begin < heads:
        end = min(begin + at_once if group == 1 else ((first + begin) // group + 1) * group - first, heads)
        some, shared = slice(begin, end), slice(begin, end)
        if group > 1:
            own = (first + begin) // group - first // group
            shared = slice(own, own + 1)
        right = k[:, shared] if factors[1] == 1 else k[:, shared] * factors[1]
        scores = xp.matmul(q[:, some] * factors[0], right.swapaxes(-1, -2))
        _cap(xp, scores, shard.attrs.get("softcap"))
        if len(inputs) > 3:
            mask = inputs[3]
            mask = mask[..., some, :, :] if mask.ndim > 2 and mask.shape[-3] > 1 else mask
            _add_mask(xp, scores, xp.broadcast_to(mask, scores.shape))
        if near is not None:
            xp.copyto(scores, kind(-np.inf), where=xp.broadcast_to(~near, scores.shape))
        _write_shares(xp, scores)
        xp.matmul(scores, v[:, shared], out=out[:, some])
        begin = end


def _all_heads(shard: Shard) -> Attention:
    return Attention(partial(_attend, shard=shard))


def _spaces(shard: Shard, dtype: Any, *shapes: tuple[int, int]) -> list[Any]:
    """Matrices in the workspace, one behind the other; the last one where keys are scaled."""
    made, begin = [], 0
    for shape in shapes:
        end = begin + math.prod(shape) * dtype.itemsize
        made.append(shard.workspace[begin:end].view(dtype).reshape(shape) if end <= shard.workspace.size else None)
        begin = end
    return made


def _cap(xp: Any, scores: Any, cap: float | None) -> None:
    """cap · tanh(scores / cap), in place; without a cap they stay."""
    if cap:
        xp.divide(scores, scores.dtype.type(cap), out=scores)
        xp.tanh(scores, out=scores)
        xp.multiply(scores, scores.dtype.type(cap), out=scores)


def _write_shares(xp: Any, scores: Any) -> None:
    """The softmax of each row in its place; rows of −∞ only, queries that see no key, become zeros."""
    top = xp.max(scores, axis=-1, keepdims=True)
    xp.copyto(top, top.dtype.type(0), where=top == -np.inf)
    xp.subtract(scores, top, out=scores)
    xp.exp(scores, out=scores)
    total = xp.sum(scores, axis=-1, keepdims=True)
    xp.copyto(total, total.dtype.type(1), where=total == 0)
    xp.divide(scores, total, out=scores)


def _group(shard: Shard) -> int:
    """Heads of queries that share one head of keys."""
    splits = shard.signature.inputs[1].projection.splits
    return splits[0][1] if splits else 1


def _of_head(mask: Any, b: int, h: int) -> Any:
    """The part of a mask, which broadcasts, for one batch item and head."""
    for at in (b, h) if mask.ndim > 3 else (h,) if mask.ndim > 2 else ():
        mask = mask[at if mask.shape[0] > 1 else 0]
    return mask


def _add_mask(xp: Any, scores: Any, mask: Any) -> None:
    if mask.dtype == bool:
        xp.copyto(scores, scores.dtype.type(-np.inf), where=~mask)
    else:
        xp.add(scores, mask, out=scores)


def _attention_flop(signature: Signature, attrs: Attrs) -> float:
    """For each query: its products with the keys, their softmax, and the weighted sum of the values."""
    (_, _, keys, width), (_, _, _, values) = (signature.inputs[n].projection.shape for n in (1, 2))
    return float(keys * (2 * width + 2 * values + 5))


def _attention_workspace(shard: Shard, itemsize: int) -> int:
    """The scores of one head, its scaled queries and, in half precision, its scaled keys."""
    queries, (keys, width) = shard.length("s"), shard.signature.inputs[1].projection.shape[2:]
    return (queries * (keys + width) + (keys * width if itemsize == 2 else 0)) * itemsize


@operator(
    block=_attention_block,
    signature=_attention_signature,
    flop=_attention_flop,
    dtype=_attention_dtype,
    workspace=_attention_workspace,
    work=_all_heads,
    expansions=(matmul_softmax_matmul,),
    rows=True,
)
def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    *,
    scale: float | None = None,
    causal: bool = False,
    left: int | None = None,
    right: int | None = None,
    softcap: float | None = None,
    name: str | None = None,
) -> Tensor:
    """softmax(scale · q kᵀ + mask) v, for each batch item and head.

    Plans split the batch b, the heads h and the queries s; each part reads the keys and values of its heads whole.
    A query that sees no key gives zeros.

    Heads of queries share those of keys in groups: head h reads head h // (heads / heads of keys).

    Parameters
    ----------
    q : Tensor of shape (batch, heads, queries, width)
    k : Tensor of shape (batch, heads of keys, keys, width)
    v : Tensor of shape (batch, heads of keys, keys, width of values)
    mask : Tensor, optional
        Broadcasts to (batch, heads, queries, keys); added, or where it is of truth values, true for the keys to use.
    scale : float, optional
        1/√width by default.
    causal : bool
        Query s sees the keys 0 … s only.
    left, right : int, optional
        Query s sees the keys s − left … s + right only; a side that is not given has no end.
    softcap : float, optional
        Scores x become softcap · tanh(x / softcap) before the mask is added.

    Returns
    -------
    Tensor of shape (batch, heads, queries, width of values)

    Raises
    ------
    ValueError
        When shapes or dtypes do not fit, the heads of keys do not divide those of queries, or a window or a cap is
        negative.

    Examples
    --------
    >>> from tapestry_plan import Graph
    >>> g = Graph()
    >>> q, kv = g.input("q", (1, 8, 16, 64)), g.input("kv", (1, 2, 20, 64))
    >>> attention(q, kv, kv).shape
    (1, 8, 16, 64)

    References
    ----------
    ONNX Attention; Vaswani et al., "Attention is all you need", 2017; Ainslie et al., "GQA", 2023.
    """
