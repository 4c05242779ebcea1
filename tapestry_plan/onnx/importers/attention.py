"""Attention of ONNX's own and of com.microsoft, with keys and values of before."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from math import prod
from typing import Any

import numpy as np
from msgspec import Struct

from tapestry_plan import ops
from tapestry_plan.ir import Tensor, concat
from tapestry_plan.onnx.importers.quantized import product
from tapestry_plan.onnx.nodes import Importing, Node, OutsideText, Result, refusal
from tapestry_sets.limits import quote
from tapestry_sets.views import pad


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
    if mask is not None and mask.ndim and mask.shape[-1] < k.shape[2] and at.opset >= 24:
        # Also where one column could be broadcast: ONNX's reference, and its function, pad first.
        behind = [(0, 0)] * (mask.ndim - 1) + [(0, k.shape[2] - mask.shape[-1])]
        mask = pad(mask, behind, value=False if mask.dtype == "bool" else -np.inf)
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
    heads = node.attrs["num_heads"]
    if any(node.input(k) for k in (8, 9)) or any(node.outputs[3:]):
        raise refusal(node, "lengths of the past, indirections and the scores as outputs are not supported")
    flat = _unpacked(at, node)
    if node.input(3):
        if len(flat) != sum(map(bool, node.inputs[:3])):
            raise refusal(node, "a bias of packed queries, keys and values is not supported; add it before")
        bias, begin = at.tensor(node.inputs[3]), 0
        for n, x in enumerate(flat):
            if x.ndim == 3:
                flat[n] = x + bias[begin : begin + x.shape[-1]]
            begin += x.shape[-1] if x.ndim == 3 else x.shape[1] * x.shape[3]
    q, k, v = (_by_head(x, heads) for x in flat)
    k, v = (
        concat([at.tensor(node.inputs[n]), x], axis=2) if node.input(n) and not at.lacks_cells(node.inputs[n]) else x
        for n, x in ((6, k), (7, v))
    )
    mask = _padding(at, node, 4, q, k, 3 * k.shape[0] + 2)
    if node.input(5):
        more = at.tensor(node.inputs[5])
        mask = more if mask is None else mask + more
    return [_attend(at, node, q, k, v, mask), k, v]


def _unpacked(at: Importing, node: Node) -> list[Tensor]:
    """Queries, keys and values, (batch, positions, heads · width), of which the last may be packed: head by head.

    No processor of ONNX Runtime's takes packed ones; they are what their parts are.
    """
    names = [name for name in node.inputs[:3] if name]
    given = [at.tensor(name) for name in names]
    last, missing = given[-1], 3 - len(given)
    if not missing:
        return given
    if node.input(2) or last.ndim != 5 or last.shape[3] != missing + 1:
        raise ValueError(
            f"{quote(names[-1])} has shape {quote(last.shape)}; without all of queries, keys and "
            f"values, (batch, positions, heads, {missing + 1}, width) is needed"
        )
    batch, length = last.shape[:2]
    parts = [last[:, :, :, n : n + 1].reshape(batch, length, -1) for n in range(missing + 1)]
    return [*given[:-1], *parts]


def _attend(at: Importing, node: Node, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    """Attention, (batch, positions, heads · width); with `unidirectional` the first query is behind what is past."""
    is_causal, past = bool(node.attrs.get("unidirectional")), k.shape[2] - q.shape[2]
    if is_causal and past:
        hidden = np.triu(np.full((q.shape[2], k.shape[2]), -np.inf, q.dtype), past + 1)
        behind = at.graph.constant(f"{node.name}.behind", hidden[None, None])
        mask, is_causal = behind if mask is None else mask + behind, False
    scale = node.attrs.get("scale") or None
    made = ops.attention(q, k, v, mask, scale=scale, causal=is_causal, name=node.name)
    batch, heads, length, width = made.shape
    return made.permute_dims((0, 2, 1, 3)).reshape(batch, length, heads * width)


def _padding(at: Importing, node: Node, number: int, q: Tensor, k: Tensor, longer: int) -> Tensor | None:
    """What is added to the scores: a low number where a key counts as padding, as one of com.microsoft's masks says.

    These are ends, one for each sequence, or in a longer vector with more behind them; numbers above 0 for keys that
    count, (batch, keys) or (batch, queries, keys).
    """
    if not node.input(number):
        return None
    _need_integers(at, node.inputs[number])
    mask, batch, queries, keys = at.tensor(node.inputs[number]), k.shape[0], q.shape[2], k.shape[2]

    def constant(name: str, value: Any, dtype: str) -> Tensor:
        return at.graph.constant(f"{node.name}.{name}", np.asarray(value, dtype))

    if mask.shape in ((batch,), (longer,)):
        places = constant("keys", np.arange(keys).reshape(1, 1, 1, keys), mask.dtype)
        seen = ops.less(places, mask[:batch].reshape(batch, 1, 1, 1))
        if mask.shape == (2 * batch,) != (batch,):  # ends, then begins
            seen = ops.logical_and(seen, ops.greater_equal(places, mask[batch:].reshape(batch, 1, 1, 1)))
    elif mask.shape in ((batch, keys), (batch, queries, keys)):
        shape = (batch, 1, mask.shape[1] if mask.ndim == 3 else 1, keys)
        seen = ops.greater(mask, constant("zero", 0, mask.dtype)).reshape(shape)
    else:
        raise refusal(
            node,
            f"a mask of shape {quote(mask.shape)} is not supported, only {(batch,)}, {(longer,)}, {(batch, keys)} and "
            f"{(batch, queries, keys)}",
        )
    low = node.attrs.get("mask_filter_value", -10000.0)
    return ops.where(seen, constant("no", 0, k.dtype), constant("low", low, k.dtype))


def _need_integers(at: Importing, name: str) -> None:
    if np.dtype(dtype := at.dtype_of(name)).kind not in "iu":
        raise ValueError(f"{quote(name)} is {dtype}; integers are needed: cast it")


# -- fused with what is before it ------------------------------------------------------------------------


def group_query_attention(at: Importing, node: Node) -> Result:
    """Causal attention whose heads of queries share those of keys, over a cache of keys and values of before.

    The cache grows, or has room for what comes; a sequence's new keys stand behind those that it has, which `seqlens_k`
    says in the run, unless it is known that all sequences are as long as the keys are.
    """
    attrs, heads, groups = node.attrs, node.attrs["num_heads"], node.attrs["kv_num_heads"]
    if node.input(9) or any(node.inputs[12:]) or any(node.outputs[3:]):
        raise refusal(node, "position_ids, quantized caches, norms and the scores as outputs are not supported")
    usually = {"qk_output": (0,), "causal": (1,), "sliding_window_cache": (0,)}
    for key, usual in usually.items():
        if attrs.get(key, usual[0]) not in usual:
            raise refusal(node, f"{key} {attrs[key]} is not supported")
    q, k, v = (_by_head(x, n) for x, n in zip(_apart(at, node, heads, groups), (heads, groups, groups), strict=True))
    before, length = _before(at, node, (k.shape, v.shape)), q.shape[2]
    past = before[0].shape[2] if before else 0
    cache = _Cache.of(at, node, length, past)
    if not cache.is_full:
        return _of_lengths(at, node, cache, (q, k, v), before)
    if attrs.get("do_rotary"):
        turns = [at.tensor(name)[past : past + length] for name in _tables(node)]
        q, k = (_turned(x, *turns, interleaved=bool(attrs.get("rotary_interleaved"))) for x in (q, k))
    if past:
        k, v = (concat([one, x], axis=2) for one, x in zip(before, (k, v), strict=True))
    window, mask = attrs.get("local_window_size", -1), None
    if past or window != -1:
        apart = np.arange(length)[:, None] + past - np.arange(past + length)
        seen = (apart >= 0) & ((apart < window) | (window == -1))
        hidden = np.where(seen, 0, -np.inf).astype(q.dtype)[None, None]
        mask = at.graph.constant(f"{node.name}.hidden", hidden)
    return _grouped(at, node, q, k, v, mask)


def _grouped(at: Importing, node: Node, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Result:
    how = {"scale": node.attrs.get("scale") or None, "softcap": node.attrs.get("softcap") or None}
    keys, values, is_smooth = k, v, node.attrs.get("smooth_softmax", -1) == 1
    if node.input(10) or node.input(11) or is_smooth:
        mask = _add_bias(at, node, q, k, mask)
        keys, values, mask = _add_sink(at, node, q, k, v, mask, is_smooth)
    made = ops.attention(q, keys, values, mask, causal=mask is None, name=node.name, **how)
    batch, heads, length, width = made.shape
    return [made.permute_dims((0, 2, 1, 3)).reshape(batch, length, heads * width), k, v]


def _add_bias(at: Importing, node: Node, q: Tensor, k: Tensor, mask: Tensor | None) -> Tensor:
    """What is added to the scores: that of the node, and low numbers where a query does not see a key."""
    length, keys = q.shape[2], k.shape[2]

    def constant(name: str, value: Any) -> Tensor:
        return at.graph.constant(f"{node.name}.{name}", np.asarray(value, q.dtype))

    is_all = mask is None or mask.dtype != "bool"  # sequences that fill the cache
    if mask is None:
        mask = constant("ahead", np.triu(np.full((length, keys), -np.inf), 1)[None, None])
    elif mask.dtype == "bool":
        mask = ops.where(mask, constant("no", 0), constant("low", -np.inf))
    if not node.input(10):
        return mask
    bias, every = at.tensor(node.inputs[10]), (q.shape[0], q.shape[1], length)
    if (
        bias.ndim != 4
        or bias.shape[3] > keys
        or (is_all and bias.shape[3] < keys)
        or any(n not in (1, m) for n, m in zip(bias.shape[:3], every, strict=True))
    ):
        raise ValueError(
            f"{quote(node.inputs[10])} has shape {quote(bias.shape)}; (batch or 1, heads or 1, queries, keys) of "
            f"{quote((*every, keys))} is needed"
        )
    return mask + pad(bias, [(0, 0)] * 3 + [(0, keys - bias.shape[3])], value=0)


def _add_sink(
    at: Importing, node: Node, q: Tensor, k: Tensor, v: Tensor, mask: Tensor, is_smooth: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Keys, values and what is added to scores, with a key more that all queries see, whose value is zero.

    Its score is that of its head: the numbers of the others add up to less than 1. Queries times its cells are zero::

        scores  a b c       s     softmax over four
        values  x y z       0
    """
    (batch, groups, keys, width), heads, length = k.shape, q.shape[1], q.shape[2]
    if node.input(11):
        score = at.tensor(node.inputs[11])
        if score.shape != (heads,):
            raise ValueError(f"{quote(node.inputs[11])} has shape {quote(score.shape)}; {(heads,)} is needed")
    elif is_smooth:
        score = at.graph.constant(f"{node.name}.sink", np.zeros(heads, q.dtype))
    else:
        return k, v, mask
    none = at.graph.constant(f"{node.name}.nothing", np.zeros((), k.dtype))
    k = concat([k, none.broadcast_to((batch, groups, 1, width))], axis=2)
    v = concat([v, none.broadcast_to((batch, groups, 1, v.shape[3]))], axis=2)
    column = score.reshape(1, heads, 1, 1).broadcast_to((mask.shape[0], heads, length, 1))
    return k, v, concat([mask.broadcast_to((mask.shape[0], heads, length, keys)), column], axis=3)


def _before(at: Importing, node: Node, shapes: Sequence[Sequence[int]]) -> list[Tensor]:
    """Keys and values of before; none where they have no positions."""
    names = [name for name in node.inputs[3:5] if name]
    found = [at.shape(name) for name in names]
    if found and (len({shape[2:3] for shape in found}) > 1 or len(found) < 2):
        raise ValueError(f"past_key and past_value have shapes {quote(found)}; give both, of as many positions")
    for name, shape, new in zip(names, found, shapes, strict=False):
        if (*shape[:2], *shape[3:]) != (*new[:2], new[3]):
            raise ValueError(
                f"{quote(name)} has shape {quote(shape)}; (batch, heads, positions, width) as of {quote(tuple(new))} "
                "is needed"
            )
    return [] if any(map(at.lacks_cells, names)) else [at.tensor(name) for name in names]


def _apart(at: Importing, node: Node, heads: int, groups: int) -> list[Tensor]:
    """Queries, keys and values, which may be packed: heads of one behind those of the other."""
    given = [at.tensor(name) for name in node.inputs[:3] if name]
    if heads < 1 or groups < 1 or any(x.ndim != 3 for x in given):
        raise ValueError(
            f"num_heads is {heads}, kv_num_heads {groups}, and operands have shapes {quote([x.shape for x in given])}; "
            "numbers above 0 are needed, and (batch, positions, heads · width)"
        )
    if node.input(1) and node.input(2):
        return given
    packed = given[0]
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
        _need_integers(at, node.inputs[5])
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
    return _grouped(at, node, q, k, v, seen)


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


def rotary_embedding(at: Importing, node: Node) -> Result:
    """Pairs of cells of each head turned by the angles of their positions, which one number begins, or each has."""
    x, attrs, tables = at.tensor(node.inputs[0]), node.attrs, node.inputs[2:4]
    if attrs.get("is_packed_batching") or attrs.get("scale", 1.0) != 1:
        raise refusal(node, "packed batches and a scale are not supported")
    if x.ndim not in (3, 4):
        raise ValueError(
            f"its input 0 has shape {quote(x.shape)}; (batch, positions, heads · width) or (batch, heads, positions, "
            "width) is needed: reshape it"
        )
    if attrs.get("interleaved", 0) not in (0, 1):
        raise OutsideText(f"interleaved is {attrs['interleaved']}; 0 and 1 are known")
    flat, width, turned = x.ndim == 3, 2 * at.shape(tables[0])[-1], attrs.get("rotary_embedding_dim", 0)
    if turned and not attrs.get("num_heads"):
        raise ValueError("rotary_embedding_dim needs num_heads")
    if turned not in (0, width):
        raise ValueError(
            f"rotary_embedding_dim is {turned}; cos_cache of shape {at.shape(tables[0])} turns {width} cells"
        )
    if flat:
        x = _by_head(x, attrs["num_heads"] if turned else x.shape[-1] // max(width, 1))
    batch, _, length, _ = x.shape
    places, numbers = ops.astype(at.tensor(node.inputs[1]), "int64"), np.arange(length)
    if places.shape == (1,):
        places = places + at.graph.constant(f"{node.name}.positions", numbers)
    elif places.shape != (batch, length):
        raise ValueError(f"position_ids has shape {quote(places.shape)}; (1,) or {(batch, length)} is needed")
    known = None
    if at.is_known(node.inputs[1]):
        known = at.value(node.inputs[1]).astype(np.int64) + (numbers if places.ndim == 1 else 0)
    turns = [ops.take(at.tensor(name), places if known is None else known, 0) for name in tables]
    turns = [one.expand_dims(1) if places.ndim == 2 else one for one in turns]
    made = _turned(x, *turns, interleaved=bool(attrs.get("interleaved")))
    return made.permute_dims((0, 2, 1, 3)).reshape(batch, length, -1) if flat else made


def fused_attention(at: Importing, node: Node) -> Result:
    """Queries, keys and values by one product, and their attention."""
    if any(node.inputs[6:]) or any(node.outputs[2:]):
        raise refusal(node, "lengths of the past and the scores as outputs are not supported")
    each = ops.matmul(at.tensor(node.inputs[0]), at.tensor(node.inputs[1]), name=f"{node.name}.product")
    if node.input(2):
        each = each + at.tensor(node.inputs[2])
    bias = at.tensor(node.inputs[5]) if node.input(5) else None
    return _of_product(at, node, each, node.attrs.get("qkv_hidden_sizes"), 3, 4, bias)


def quantized_attention(at: Importing, node: Node) -> Result:
    """Queries, keys and values by one product of integers, which are exact on any split, and their attention."""
    for name in node.inputs[:2]:
        if (dtype := at.dtype_of(name)) not in ("int8", "uint8"):
            raise ValueError(f"{quote(name)} is {dtype}; QAttention multiplies int8 and uint8: quantize it first")
    bias = at.tensor(node.inputs[2])
    total = product(at, node, 0, 1, 6, 7)
    ratio = at.tensor(node.inputs[3]) * at.tensor(node.inputs[4])
    return _of_product(at, node, ops.astype(total, bias.dtype) * ratio + bias, None, 5, 8)


def _of_product(
    at: Importing,
    node: Node,
    each: Tensor,
    widths: Sequence[int] | None,
    masked: int,
    before: int,
    bias: Tensor | None = None,
) -> Result:
    """The attention of queries, keys and values that lie side by side, and the keys and values for what comes next.

    `masked` and `before` are the numbers of the inputs that say what is padding, and hold keys and values of before,
    (2, batch, heads, positions, width).
    """
    for key in ("do_rotary", "past_present_share_buffer"):
        if node.attrs.get(key):
            raise refusal(node, f"{key} {node.attrs[key]} is not supported")
    width = each.shape[-1] // 3
    widths = [width] * 3 if widths is None else list(widths)
    if each.ndim != 3 or len(widths) != 3 or sum(widths) != each.shape[-1] or widths[0] != widths[1]:
        raise ValueError(
            f"the product has shape {quote(each.shape)}; (batch, positions, {' + '.join(map(str, widths))}) is needed, "
            "with queries as wide as keys"
        )
    ends = [0, *accumulate(widths)]
    q, k, v = (_by_head(each[..., begin:end], node.attrs["num_heads"]) for begin, end in pairwise(ends))
    if node.input(before) and not at.lacks_cells(node.inputs[before]):
        past = at.tensor(node.inputs[before])
        if past.ndim != 5:
            raise ValueError(
                f"{quote(node.inputs[before])} has shape {quote(past.shape)}; (2, batch, heads, positions, width) is "
                "needed"
            )
        k, v = (concat([past[n : n + 1].squeeze((0,)), x], axis=2) for n, x in enumerate((k, v)))
    is_idle = bool(node.input(masked)) and at.shape(node.inputs[masked]) in ((1, 1), (k.shape[0], 1))
    mask = None if is_idle else _padding(at, node, masked, q, k, 2 * k.shape[0])
    if bias is not None:
        mask = bias if mask is None else mask + bias
    made = _attend(at, node, q, k, v, mask)
    if not any(node.outputs[1:]):
        return made
    if k.shape != v.shape:
        raise refusal(node, "keys and values of different widths as one output are not supported")
    return [made, concat([k.expand_dims(0), v.expand_dims(0)], axis=0)]
