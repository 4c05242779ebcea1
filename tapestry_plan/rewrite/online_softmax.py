"""Attention by key blocks: a softmax and the sum of products that reads it, with a running maximum and sum."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tapestry_plan.ir import Op, OpNode, Signature, Tensor
from tapestry_plan.rewrite.derivation import rule
from tapestry_plan.rewrite.derived import Derived, part_of
from tapestry_plan.rewrite.draft import Draft, NotApplicable
from tapestry_plan.rewrite.rules import along, application, cuts_of, private_maker
from tapestry_sets.limits import quote
from tapestry_sets.regions import Box

RunningState = tuple[Tensor, Tensor, Tensor]
"""Maximum, sum of exponentials and sum of products so far."""


@rule(
    requires="a sum of products over a coordinate along which one of its inputs is a softmax that it alone reads",
    keeps="values up to rounding",
)
def key_blocks(draft: Draft, at: str, parts: int | Sequence[int] = 2) -> None:
    """Softmax and the sum of products that reads it, block by block, with a running maximum and sum.

    Only one block's exponentials are there at a time. The blocks of what the softmax reads are slices of it, so
    scores that are concatenated of blocks are never put together.

    Parameters
    ----------
    at : str
        The sum of products.
    parts : int, or the sizes of the blocks

    References
    ----------
    Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018; Dao et al., "FlashAttention", 2022.
    """
    node, signature = draft.node(at), draft.signature(at)
    operand, scores, axis = _weights(draft, node)
    row = signature.inputs[operand].projection.map.matrix[axis]
    moved = [k for k, factor in enumerate(row) if factor]
    if len(moved) != 1 or row[moved[0]] != 1 or signature.axes[moved[0]].kind != "reduction":
        raise NotApplicable(f"no reduction axis counts coordinate {axis} of input {operand}")
    if any(read.at_start_of for read in signature.inputs):
        raise NotApplicable("it has an input that is added once, which must not be rescaled; expand it first")
    named = signature.axes[moved[0]].name
    to_output = _place(signature, operand, axis, draft.tensor(scores).shape)
    soft = draft.maker(node.inputs[operand])
    assert soft is not None, "found above"
    running: RunningState | None = None
    for k, (low, high) in enumerate(cuts_of(signature.axes[moved[0]].size, parts, named)):
        with draft.scope(f"{at}.block{k}"):
            block = _exponentials(draft, node, operand, scores, axis, (moved[0], low, high), k)
            running = block if running is None else _rescale(draft, running, block, to_output)
    assert running is not None, "there is a block"
    with draft.scope(at):
        result = draft.op("divide", running[2], to_output(running[1]))
    draft.become(at, [result])
    draft.remove(soft.name)


def _weights(draft: Draft, node: OpNode) -> tuple[int, str, int]:
    """The input that is a softmax, what the softmax reads, and its axis."""
    op = _core(draft, node)
    if op.reduction != "sum" or "prod_sum" not in [e.__name__ for e in op.expansions]:
        raise NotApplicable(f"the declaration of {op.name} lists no expansion 'prod_sum'; it is not a sum of products")
    for k in range(len(node.inputs)):
        first = draft.maker(node.inputs[k])
        if first is None or "exp_sum" not in [e.__name__ for e in _core(draft, first).expansions]:
            continue
        private_maker(draft, node, k)
        soft = draft.signature(first.name)
        projection = soft.outputs[0].projection
        if soft.inputs[0].projection != projection or len(soft.inputs) != 1:
            raise NotApplicable(f"{quote(first.name)} writes other cells than it reads")
        wide = [c for c, row in enumerate(projection.map.matrix) if not any(row)]
        if len(wide) == 1:
            return k, first.inputs[0], wide[0]
    raise NotApplicable("no input is an operator's result whose declaration lists the expansion 'exp_sum'")


def _core(draft: Draft, node: OpNode) -> Op:
    """The operator of a node, or the one of which it does a part."""
    op = draft.ops[node.op]
    return op.of[0] if isinstance(op, Derived) and op.form == "part" else op


def _place(signature: Signature, operand: int, axis: int, shape: Sequence[int]) -> Callable[[Tensor], Tensor]:
    """A function that lets a tensor with an entry for each row of weights be broadcast to the operator's output."""
    rows = signature.inputs[operand].projection.map.matrix
    outs = signature.outputs[0].projection.map.matrix
    order = [next((c for c, row in enumerate(rows) if c != axis and any(row) and row == out), None) for out in outs]
    kept = [c for c in order if c is not None]
    gone = tuple(c for c in range(len(rows)) if c not in kept)
    if len(set(kept)) != len(kept) or any(shape[c] > 1 for c in gone if c != axis):
        raise NotApplicable("rows of the softmax are not rows of the result")
    new = tuple(k for k, c in enumerate(order) if c is None)
    ranks = tuple(sorted(kept).index(c) for c in kept)

    def view(tensor: Tensor) -> Tensor:
        if new == gone and kept == sorted(kept):
            return tensor
        found = tensor.squeeze(gone)
        found = found if list(ranks) == sorted(ranks) else found.permute_dims(ranks)
        return found.expand_dims(new) if new else found

    return view


def _exponentials(
    draft: Draft, node: OpNode, operand: int, scores: str, axis: int, block: tuple[int, int, int], number: int
) -> RunningState:
    """Maximum, sum of exponentials and sum of products of one block."""
    k, low, high = block
    tensor = draft.tensor(scores)
    part = draft.slice(tensor, along(Box.of(tensor.shape), axis, low, high))
    # Rows of a block that a mask leaves nothing of: −inf − (−inf) would not be a number.
    least = float(np.finfo(part.dtype).min)
    top = draft.op("clip", draft.op("max", part, axis=axis, keepdims=True), min=least)
    weights = draft.op("exp", draft.op("subtract", part, top))
    total = draft.op("sum", weights, axis=axis, keepdims=True)
    whole = application(draft, node)
    box = along(whole.box, k, low, high)
    inputs = []
    for number, (name, have, want) in enumerate(zip(node.inputs, whole.windows(), whole.windows(box), strict=True)):
        assert have is not None and want is not None, "factors are read by every part"
        start = tuple(a - o for a, o in zip(want.start, have.start, strict=True))
        cut = Box(start, want.shape)
        inputs.append(weights if number == operand else draft.slice(draft.tensor(name), cut))
    return top, total, draft.op(part_of(whole.op), *inputs, name="products", **whole.part(box))


def _rescale(
    draft: Draft,
    one: RunningState,
    two: RunningState,
    to_output: Callable[[Tensor], Tensor],
) -> RunningState:
    """The running state after one more block."""
    top = draft.op("maximum", one[0], two[0])
    factors = [draft.op("exp", draft.op("subtract", state[0], top)) for state in (one, two)]
    totals = [draft.op("multiply", state[1], f) for state, f in zip((one, two), factors, strict=True)]
    sums = [draft.op("multiply", state[2], to_output(f)) for state, f in zip((one, two), factors, strict=True)]
    return top, draft.op("add", *totals), draft.op("add", *sums)
