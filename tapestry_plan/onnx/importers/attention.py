"""Attention of ONNX's own and of com.microsoft, with keys and values of before."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import prod

import numpy as np
from msgspec import Struct

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
    """Causal attention whose heads of queries share those of keys, over a cache of keys and values of before.

    The cache grows, or has room for what comes; a sequence's new keys stand behind those that it has, which `seqlens_k`
    says in the run, unless it is known that all sequences are as long as the keys are.
    """
    attrs, heads, groups = node.attrs, node.attrs["num_heads"], node.attrs["kv_num_heads"]
    if any(node.inputs[9:]) or any(node.outputs[3:]):
        raise refusal(node, "position_ids, a bias, sinks and the scores as outputs are not supported")
    for key, usual in (("smooth_softmax", (-1, 0)), ("qk_output", (0,))):
        if attrs.get(key, usual[0]) not in usual:
            raise refusal(node, f"{key} {attrs[key]} is not supported")
    q, k, v = (_by_head(x, n) for x, n in zip(_apart(at, node, heads, groups), (heads, groups, groups), strict=True))
    before = [None if at.lacks_cells(name) else at.tensor(name) for name in node.inputs[3:5] if name]
    length, past = q.shape[2], 0 if not before or before[0] is None else before[0].shape[2]
    cache = _Cache.of(at, node, length, past)
    if not cache.is_full:
        return _of_lengths(at, node, cache, (q, k, v), [x for x in before if x is not None])
    if attrs.get("do_rotary"):
        turns = [at.tensor(name)[past : past + length] for name in _tables(node)]
        q, k = (_turned(x, *turns, interleaved=bool(attrs.get("rotary_interleaved"))) for x in (q, k))
    if past:
        k, v = (concat([one, x], axis=2) for one, x in zip(before, (k, v), strict=True) if one is not None)
    window, mask = attrs.get("local_window_size", -1), None
    if past or window != -1:
        apart = np.arange(length)[:, None] + past - np.arange(past + length)
        seen = (apart >= 0) & ((apart < window) | (window == -1))
        hidden = np.where(seen, 0, -np.inf).astype(q.dtype)[None, None]
        mask = at.graph.constant(f"{node.name}.hidden", hidden)
    return _grouped(node, q, k, v, mask)


def _grouped(node: Node, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Result:
    how = {"scale": node.attrs.get("scale") or None, "softcap": node.attrs.get("softcap") or None}
    made = ops.attention(q, k, v, mask, causal=mask is None, name=node.name, **how)
    batch, heads, length, width = made.shape
    return [made.permute_dims((0, 2, 1, 3)).reshape(batch, length, heads * width), k, v]


def _apart(at: Importing, node: Node, heads: int, groups: int) -> list[Tensor]:
    """Queries, keys and values, which may be packed: heads of one behind those of the other."""
    if node.input(1) and node.input(2):
        return [at.tensor(name) for name in node.inputs[:3]]
    packed = at.tensor(node.inputs[0])
    width = packed.shape[-1] // (heads + 2 * groups)
    if node.input(1) or node.input(2) or width * (heads + 2 * groups) != packed.shape[-1]:
        raise ValueError(
            f"queries have shape {quote(packed.shape)}; without keys and values the last extent is that of "
            f"{heads} + 2 · {groups} heads"
        )
    ends = [0, heads * width, (heads + groups) * width, packed.shape[-1]]
    return [packed[..., begin:end] for begin, end in pairwise(ends)]


def _tables(node: Node) -> Sequence[str]:
    if not (node.input(7) and node.input(8)):
        raise ValueError("do_rotary needs cos_cache and sin_cache")
    return node.inputs[7:9]


class _Cache(Struct, frozen=True):
    """How long sequences and caches are.

    Parameters
    ----------
    past, room : int
        Positions of the cache before, and of that after.
    ends : Tensor, optional
        (batch,): the position of each sequence's last key; None where these fill the cache, so that all are known.
    begins : Tensor or int
        (batch,): how many keys each sequence has before; 0 where all begin.
    """

    past: int
    room: int
    ends: Tensor | None
    begins: Tensor | int

    @property
    def is_full(self) -> bool:
        """Whether each sequence has all keys."""
        return self.ends is None

    @classmethod
    def of(cls, at: Importing, node: Node, length: int, past: int) -> _Cache:
        if not (node.input(5) and node.input(6)):
            raise ValueError("seqlens_k and total_sequence_length are needed")
        total, room = _find_room(at, node, length, past)
        last = at.value(node.inputs[5]) if at.is_known(node.inputs[5]) else None
        if last is not None and total == past + length and (last == total - 1).all():
            return cls(past, room, None, past)
        batch = at.shape(node.inputs[0])[0]
        if prod(at.shape(node.inputs[5])) != batch:
            raise ValueError(f"seqlens_k has shape {quote(at.shape(node.inputs[5]))}; one number for each of {batch}")
        ends = ops.astype(at.tensor(node.inputs[5]).reshape(batch), "int64")
        if total == length:
            return cls(past, room, ends, 0)
        begins = ops.maximum(ends - (length - 1), 0)
        if total is None:  # a run that is told of as many keys as are new begins
            whole = at.tensor(node.inputs[6]).reshape(1)
            is_first = ops.equal(whole, at.graph.constant(f"{node.name}.length", np.asarray(length, whole.dtype)))
            begins = ops.where(is_first, at.graph.constant(f"{node.name}.first", np.zeros(1, np.int64)), begins)
        return cls(past, room, ends, begins)


def _find_room(at: Importing, node: Node, length: int, past: int) -> tuple[int | None, int]:
    """The total length, where it is known, and the positions of the cache after: as many, or those of before.

    A cache that has room stays as it is, another one grows. Where the run says the total length, the model must declare
    how many positions come out.
    """
    if not past:
        return length, length
    if at.is_known(node.inputs[6]):
        total = int(at.value(node.inputs[6]).reshape(()))
        if total != past + length and not length <= total <= past:
            raise ValueError(
                f"total_sequence_length is {total}; with {past} positions of before and {length} new ones it is "
                f"{past + length}, or at most {past} where the cache has room"
            )
        return total, max(total, past)
    declared = at.declared.get(node.outputs[1] if len(node.outputs) > 1 else "")
    room = None if declared is None else declared.type.tensor_type.shape.dim[2].dim_value
    if room == past + length:
        return room, room
    if room != past:
        at.constant(node, 6, "total_sequence_length")  # says that it must be known
    return None, past


def _of_lengths(
    at: Importing, node: Node, cache: _Cache, given: tuple[Tensor, ...], before: Sequence[Tensor]
) -> Result:
    """Attention over sequences of their own lengths: each one's keys in its cache, zeros behind them.

    ::

        before   a b c ·      2 positions      ─►   a b x y 0
        new      x y
    """
    (q, k, v), length, rows = given, given[0].shape[2], at.graph
    assert cache.ends is not None, "the others are full"
    batch = q.shape[0]

    def numbers(name: str, count: int, *shape: int) -> Tensor:
        return rows.constant(f"{node.name}.{name}", np.arange(count).reshape(shape))

    begins = cache.begins
    if isinstance(begins, int):
        begins = rows.constant(f"{node.name}.begins", np.zeros(batch, np.int64))
    places = begins.reshape(batch, 1) + numbers("new", length, 1, length)
    if node.attrs.get("do_rotary"):
        turns = [ops.take(at.tensor(name), places, 0).expand_dims(1) for name in _tables(node)]
        q, k = (_turned(x, *turns, interleaved=bool(node.attrs.get("rotary_interleaved"))) for x in (q, k))
    if before or cache.room > length:
        keys = numbers("keys", cache.room, 1, cache.room)
        behind = keys - begins.reshape(batch, 1)
        last = rows.constant(f"{node.name}.last", np.asarray(cache.past + length))
        found = ops.where(ops.less(behind, length), behind + cache.past, last)
        found = ops.where(ops.less(behind, 0), keys, found).reshape(batch, 1, cache.room, 1)
        none = rows.constant(f"{node.name}.none", np.zeros((), k.dtype))
        k, v = (_placed([*before[n : n + 1], x], none, found) for n, x in enumerate((k, v)))
    ahead = places.reshape(batch, 1, length, 1) - numbers("places", cache.room, 1, 1, 1, cache.room)
    seen = ops.greater_equal(ahead, 0)
    window = node.attrs.get("local_window_size", -1)
    if window != -1:
        seen = ops.logical_and(seen, ops.less(ahead, window))
    ends = cache.ends.reshape(batch, 1, 1, 1)
    seen = ops.logical_and(seen, ops.less_equal(numbers("all", cache.room, 1, 1, 1, cache.room), ends))
    return _grouped(node, q, k, v, seen)


def _placed(parts: Sequence[Tensor], zero: Tensor, found: Tensor) -> Tensor:
    """Cells of what stands one behind the other, with zeros last, at the numbers of a sequence's positions."""
    batch, heads, _, width = parts[-1].shape
    joined = concat([*parts, zero.broadcast_to((batch, heads, 1, width))], axis=2)
    return ops.take_along_axis(joined, found.broadcast_to((batch, heads, found.shape[2], width)), 2)


def _turned(x: Tensor, cos: Tensor, sin: Tensor, *, interleaved: bool) -> Tensor:
    """Pairs of cells turned by the angles of their positions: halves, or neighbors; those behind them stay."""
    pairs, rest = cos.shape[-1], x.shape[-1] - 2 * cos.shape[-1]
    if rest < 0 or cos.shape != sin.shape or cos.shape[-2] != x.shape[2]:
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
