"""The rules: shard, forward, fuse and compose, expand and fold, selections.

What a rule decides about an operator follows from its declaration: signature, projections, monoid, expansions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from math import prod
from operator import attrgetter
from typing import Any

from tapestry_plan.ir import CellBlock, Op, Operand, OpNode, Selection, Signature, Tensor, parts_of
from tapestry_plan.rewrite.derivation import rule
from tapestry_plan.rewrite.derived import Derived, Whole, merge_of, part_of, state_of
from tapestry_plan.rewrite.draft import Draft, NotApplicable, as_tuple
from tapestry_plan.rewrite.fusion import Fusion, fuse_ops, open_block
from tapestry_plan.rewrite.motion import check_selection
from tapestry_plan.rewrite.selections import move_in, simplify_in
from tapestry_sets.limits import list_names, quote
from tapestry_sets.regions import Box

# -- shards ----------------------------------------------------------------------------------------------


@rule(
    requires="an index axis with at least as many points as parts",
    keeps="values to the bit along a parallel axis; along a reduction axis up to the order of merging",
)
def shard(draft: Draft, at: str, axis: str, parts: int | Sequence[int] = 2, fan_in: int | None = None) -> None:
    """Let parts of an operator, each on the blocks that it reads, do the operator's work.

    Along a parallel axis their results are concatenated; along a reduction axis they are merged in their order, in a
    tree of `fan_in` at a time. Where an operand splits the axis into blocks, a part that begins inside a block and
    ends outside of it is two nodes, cut at the block's end.

    Parameters
    ----------
    at : str
        The node.
    axis : str
        Index axis that is cut.
    parts : int, or the sizes of the parts
        A number of parts means parts as even as possible, larger ones first.
    fan_in : int, optional
        All at once by default.
    """
    node, axes = draft.node(at), draft.signature(at).axes
    k = next((k for k, one in enumerate(axes) if axis in (one.name, one.alias)), None)
    if k is None:
        known = list_names([one.name for one in axes], axis, "axes")
        raise NotApplicable(f"there is no index axis {quote(axis)}; {known}")
    _shard(draft, node, k, cuts_of(axes[k].size, parts, axis), fan_in)


def cuts_of(size: int, parts: int | Sequence[int], axis: str) -> tuple[tuple[int, int], ...]:
    if isinstance(parts, bool) or not isinstance(parts, int | Sequence) or isinstance(parts, str):
        raise ValueError(f"parts of axis {quote(axis)} is {quote(parts)}; give their number, or a list of their sizes")
    if isinstance(parts, int):
        if not 1 <= parts <= size:
            raise NotApplicable(f"{parts} parts of axis {quote(axis)}, which has {size} points; give 1 to {size}")
        return parts_of(size, parts)
    if sum(parts) != size or min(parts, default=0) < 1:
        raise NotApplicable(
            f"parts of sizes {quote(list(parts))} of axis {quote(axis)}; sizes >= 1 that sum to {size} are needed"
        )
    return tuple(pairwise(accumulate(parts, initial=0)))


def application(draft: Draft, node: OpNode) -> Whole:
    """The operator application that a node is, or is a part of."""
    op = draft.ops[node.op]
    if isinstance(op, Derived) and op.form == "part":
        return Whole.of_part(op.of[0], node.attrs)
    signature = draft.signature(node.name)
    present = [draft.source(name) for name in node.inputs]
    shapes, dtypes = tuple(s.shape for s in present), tuple(s.dtype for s in present)
    return Whole(op, node.attrs, shapes, dtypes, signature, signature.index)


def _shard(draft: Draft, node: OpNode, axis: int, cuts: Sequence[tuple[int, int]], fan_in: int | None) -> None:
    whole = application(draft, node)
    reduced = whole.signature.axes[axis].kind == "reduction"
    cuts = [piece for cut in cuts for piece in _in_blocks(whole, axis, cut)]
    boxes = [along(whole.box, axis, low, high) for low, high in cuts]
    orders = [] if reduced else [_order(whole, boxes, k) for k in range(len(node.outputs))]
    windows = _find_windows(draft, node, whole)
    made = [_part(draft, node, whole, box, f"{node.name}.{k}", reduced, windows) for k, box in enumerate(boxes)]
    if reduced:
        results = _merge_parts(draft, node, whole.op, made, fan_in)
    else:
        results = [draft.joined([made[k][output] for k in order], c) for output, (c, order) in enumerate(orders)]
    draft.become(node.name, results)


def _find_windows(draft: Draft, node: OpNode, whole: Whole) -> tuple[Box | None, ...]:
    """The coordinates that a node's inputs have: of a part those that were cut out for it, else of whole tensors."""
    op = draft.ops[node.op]
    if isinstance(op, Derived) and op.form == "part":
        return whole.windows()
    return tuple(Box.of(shape) for shape in whole.shapes)


def _in_blocks(whole: Whole, axis: int, cut: tuple[int, int]) -> list[tuple[int, int]]:
    """A part as pieces, none of which begins inside a block of a split axis and ends outside of it."""
    operands = (*whole.signature.inputs, *whole.signature.outputs)
    blocks = {q for o in operands for p in o.projections for a, q in p.splits if a == axis}
    (low, high), first = cut, whole.box.start[axis]
    for q in sorted(blocks):
        within = (first + low) % q
        if within and within + high - low > q:
            end = low + q - within
            return [piece for cut in ((low, end), (end, high)) for piece in _in_blocks(whole, axis, cut)]
    return [cut]


def along(box: Box, axis: int, low: int, high: int) -> Box:
    start, shape = list(box.start), list(box.shape)
    start[axis] += low
    shape[axis] = high - low
    return Box(tuple(start), tuple(shape))


def _part(
    draft: Draft, node: OpNode, whole: Whole, box: Box, name: str, partial: bool, windows: Sequence[Box | None]
) -> tuple[Tensor, ...]:
    """A part of a node, on slices of the node's own inputs; its results, or the components of its state."""
    given = iter(node.inputs)
    inputs = []
    with draft.scope(name):
        for have, want in zip(windows, whole.windows(box), strict=True):
            tensor = None if have is None else draft.tensor(next(given))
            if tensor is not None and have is not None and want is not None:
                start = tuple(a - o for a, o in zip(want.start, have.start, strict=True))
                inputs.append(draft.slice(tensor, Box(start, want.shape)))
        op = state_of(whole.op) if partial and whole.op.has_states else part_of(whole.op)
        return draft.add(op, *inputs, name=name, **whole.part(box))


def _order(whole: Whole, boxes: Sequence[Box], output: int) -> tuple[int, list[int]]:
    """The coordinate of an output along which the parts write one after another, and their order along it."""
    if len(boxes) == 1:
        return 0, [0]
    blocks, frame = [whole.outputs(box)[output] for box in boxes], whole.outputs()[output]
    moving = {c for one, two in pairwise(blocks) for c in range(one.rank) if one.start[c] != two.start[c]}
    if len(moving) != 1:
        raise NotApplicable(f"output {output} moves along coordinates {quote(sorted(moving))}; one is needed")
    (c,) = moving
    order = sorted(range(len(blocks)), key=lambda k: blocks[k].start[c])
    ends = [frame.start[c], *(blocks[k].stop[c] for k in order)]
    if any(blocks[k].start[c] != end for k, end in zip(order, ends, strict=False)) or ends[-1] != frame.stop[c]:
        raise NotApplicable(f"the parts write coordinate {c} of output {output} in turns, not one after the other")
    return c, order


def _merge_parts(
    draft: Draft, node: OpNode, op: Op, states: Sequence[tuple[Tensor, ...]], fan_in: int | None
) -> list[Tensor]:
    """One result from partial ones, merged in their order, so many at a time."""
    if len(node.outputs) != 1:
        raise NotApplicable(f"it has {len(node.outputs)} outputs; only a single one can be merged")
    width = len(states) if fan_in is None else fan_in
    if width < 2 and len(states) > 1:
        raise NotApplicable(f"fan_in is {fan_in}; a tree merges at least 2 at a time")
    attrs: dict[str, Any] = {}
    if op.has_states:
        attrs = {"merge.dtype": draft.source(node.inputs[0]).dtype}
        attrs |= {key: value for key, value in node.attrs.items() if key in op.attributes}
    level, depth = list(states), 0
    while len(level) > 1 or (depth == 0 and op.has_states):
        groups = [level[k : k + width] for k in range(0, len(level), max(width, 1))]
        if op.has_states and len(groups) == 1:
            attrs |= {"merge.result": draft.stored[node.outputs[0]].dtype}
        level = [_merge(draft, op, group, f"{node.name}.merge{depth}.{k}", attrs) for k, group in enumerate(groups)]
        depth += 1
    return list(level[0])


def _merge(
    draft: Draft, op: Op, states: Sequence[tuple[Tensor, ...]], name: str, attrs: Mapping[str, Any]
) -> tuple[Tensor, ...]:
    if len(states) == 1 and "merge.result" not in attrs:
        return states[0]
    return draft.add(merge_of(op), *(c for state in states for c in state), name=name, **attrs)


# -- forward -----------------------------------------------------------------------------------------------


@rule(
    requires="an input that is put together of boxes along one coordinate, which an index axis moves along",
    keeps="values, as shard does; a part reads only the boxes that it needs, halos from its neighbors",
)
def forward(draft: Draft, at: str, operand: int | None = None, fan_in: int | None = None) -> None:
    """Push a concatenation through the operator that reads it: a part of the operator for each of its parts.

    Parameters
    ----------
    at : str
        The node that reads it.
    operand : int, optional
        Which of its inputs: the first that is a concatenation by default.
    fan_in : int, optional
        As for shard, where the coordinate is reduced.
    """
    node, signature = draft.node(at), draft.signature(at)
    candidates = range(len(node.inputs)) if operand is None else [operand]
    found = next(((k, c) for k in candidates if (c := _seams(draft, node, k)) is not None), None)
    if found is None:
        raise NotApplicable("no input is a concatenation of boxes along one coordinate")
    k, (coordinate, ends) = found
    axis, cuts = _match_axis(signature, k, coordinate, ends)
    _shard(draft, node, axis, cuts, fan_in)


def _seams(draft: Draft, node: OpNode, operand: int) -> tuple[int, list[int]] | None:
    """The coordinate along which an input is put together, and where its boxes begin; None if it is not."""
    if not 0 <= operand < len(node.inputs):
        raise NotApplicable(f"there is no input {operand}; it has {len(node.inputs)}")
    tiles = draft.tiles(node.inputs[operand]) or ()
    moving = {c for one, two in pairwise(tiles) for c in range(one.box.rank) if one.box.start[c] != two.box.start[c]}
    if len(moving) != 1:
        return None
    (c,) = moving
    return c, sorted({tile.box.start[c] for tile in tiles} - {0})


def _match_axis(signature: Signature, operand: int, coordinate: int, seams: Sequence[int]) -> tuple[int, Any]:
    """The index axis that moves along a coordinate, and cuts of it whose parts read each mostly from one side."""
    projection = signature.inputs[operand].projection
    row = projection.map.matrix[coordinate][: len(signature.axes)]
    moves = [
        (signature.axes[k].kind == "parallel", abs(f), k) for k, f in enumerate(row) if f and signature.axes[k].size > 1
    ]
    if not moves:
        raise NotApplicable(f"every part of it would read all of coordinate {quote(coordinate)} of input {operand}")
    _, step, axis = max(moves, key=lambda m: (m[0], m[1], -m[2]))
    size = signature.axes[axis].size
    first = projection.bounding_box(along(signature.index, axis, 0, 1))
    middle = first.start[coordinate] + (first.shape[coordinate] - 1) // 2
    if row[axis] > 0:
        inner = {-((middle - seam) // step) for seam in seams}
    else:
        inner = {(middle - seam) // step + 1 for seam in seams}
    ends = [0, *sorted(k for k in inner if 0 < k < size), size]
    if len(ends) == 2:
        raise NotApplicable(f"all of its windows along coordinate {quote(coordinate)} lie in one part")
    return axis, tuple(pairwise(ends))


# -- two in one block ------------------------------------------------------------------------------------


@rule(
    requires="an input that only this operator reads, cell by cell, made by an operator that writes it cell by cell",
    keeps="values to the bit; what is between the two is never stored; both cut along the same axes",
)
def fuse(draft: Draft, at: str, operand: int | None = None) -> None:
    """Put an operator and the one whose result it reads into one block.

    Parameters
    ----------
    at : str
        The node that reads.
    operand : int, optional
        The input between the two; the first for which it is possible by default.
    """
    _fuse(draft, at, operand, strict=True)


@rule(
    requires="an input that only this operator reads, made by an operator that writes it cell by cell",
    keeps="values to the bit; axes along which the two do not line up are no longer cut",
)
def compose(draft: Draft, at: str, operand: int | None = None) -> None:
    """As fuse, for any two: axes along which a part would compute a cell that another one computes become whole."""
    _fuse(draft, at, operand, strict=False)


def _fuse(draft: Draft, at: str, operand: int | None, strict: bool) -> None:
    node = draft.node(at)
    reasons: list[str] = []
    for k in range(len(node.inputs)) if operand is None else [operand]:
        try:
            first = private_maker(draft, node, k)
            _join(draft, first, node, _fusion(draft, first, node, strict))
            return
        except NotApplicable as error:
            reasons.append(f"input {k}: {error}")
    raise NotApplicable("; ".join(reasons) or "it has no inputs")


def private_maker(draft: Draft, node: OpNode, operand: int) -> OpNode:
    """The node that makes an input, which nothing but `node` reads."""
    if not 0 <= operand < len(node.inputs):
        raise NotApplicable(f"there is no such input; it has {len(node.inputs)}")
    name = node.inputs[operand]
    first = draft.maker(name)
    if first is None:
        raise NotApplicable(f"{quote(name)} is not itself the result of an operator")
    if draft.is_output(name) or [item.name for item in draft.readers(name)] != [node.name]:
        raise NotApplicable(f"{quote(name)} is also read elsewhere, or is an output")
    return first


def _fusion(draft: Draft, first: OpNode, node: OpNode, strict: bool) -> dict[str, Any]:
    """The attributes of the fused operator; NotApplicable where the two do not fit."""
    between = first.outputs[0]
    at = tuple(k for k, name in enumerate(node.inputs) if name == between)
    inputs = (*first.inputs, *(name for name in node.inputs if name != between))
    attrs: dict[str, Any] = {
        "fused.first": tuple(first.attrs.items()),
        "fused.second": tuple(node.attrs.items()),
        "fused.of": tuple(draft.source(name).shape for name in inputs),
        "fused.inputs": len(first.inputs),
        "fused.at": at,
        "fused.whole": (),
        "fused.dtype": draft.stored[between].dtype,
    }
    one, two = draft.ops[first.op], draft.ops[node.op]
    fuse_ops(one, two)
    found = Fusion.of(one, two, attrs)
    unlike = found.unlike_cells()
    rows = found.reader().projection.map.matrix
    makes_whole = {
        axis.name
        for k, axis in enumerate(draft.signature(node.name).axes)
        if any(owner is None and row[k] for owner, row in zip(found.owners(), rows, strict=True))
    }
    whole = [name for name in unlike if not strict or name in makes_whole]
    return {**attrs, "fused.whole": tuple(sorted(whole))}


def _join(draft: Draft, first: OpNode, node: OpNode, attrs: Mapping[str, Any]) -> None:
    between = first.outputs[0]
    names = (*first.inputs, *(name for name in node.inputs if name != between))
    op = fuse_ops(draft.ops[first.op], draft.ops[node.op])
    made = draft.add(op, *map(draft.tensor, names), name=f"{node.name}.fused", **attrs)
    new = draft.maker(made[0].name)
    assert new is not None, "an operator was added"
    draft.become(node.name, made)
    draft.remove(first.name)
    draft.rename_node(new.name, node.name)


@rule(requires="a block of two operators, as fuse and compose make it", keeps="values to the bit")
def unfuse(draft: Draft, at: str, name: str | None = None, result: str | None = None) -> None:
    """Say a block in the two operators that it is made of: `fuse`, reversed.

    Parameters
    ----------
    at : str
        The block, whose name the operator that ends it has then.
    name : str, optional
        Of the operator that begins it; no other operator may have it.
    result : str, optional
        Of what that operator makes, if it is called otherwise; no other tensor may have it.
    """
    node = draft.node(at)
    block = open_block(draft.ops[node.op], node.attrs)
    if block is None:
        raise NotApplicable(f"{node.op} is one operator; only a block of two can be taken apart")
    operands = list(map(draft.tensor, node.inputs))
    count = len(block.first_signature.inputs)
    if name is not None:
        draft.check_free(name, "node", "name")
    if (called := name if result is None else result) is not None:
        draft.check_free(called, "tensor", "result")
    (between,) = draft.add(block.first, *operands[:count], name=name or f"{at}.first", **block.first_attrs)
    if called is not None and between.name != called:
        draft.rename(between.name, called)
        between = draft.tensor(called)
    others = block.operands_of_second(operands[count:], between)
    made = draft.add(block.second, *others, name=f"{at}.second", **block.second_attrs)
    new = draft.maker(made[0].name)
    assert new is not None, "an operator was added"
    draft.become(at, made)
    draft.rename_node(new.name, at)


# -- expansions ------------------------------------------------------------------------------------------


@rule(
    requires="an operator whose declaration lists an expansion, which takes its shapes and attributes",
    keeps="values up to rounding; for integers exactly",
)
def expand(draft: Draft, at: str, into: str | None = None) -> None:
    """Say an operator in other ones, as its declaration does.

    Parameters
    ----------
    at : str
        The node.
    into : str, optional
        The name of the expansion; the first one that applies by default.
    """
    node = draft.node(at)
    op = draft.ops[node.op]
    known = {expansion.__name__: expansion for expansion in op.expansions}
    if not known or (into is not None and into not in known):
        said = "" if into is None else f" {quote(into)}"
        raise NotApplicable(
            f"the declaration of {op.name} lists no expansion{said}; {list_names(known, into, 'expansions')}"
        )
    reasons = []
    for name in known if into is None else [into]:
        mark = len(draft.nodes), len(draft.selections)
        try:
            with draft.scope(at):
                found = known[name](tuple(map(draft.tensor, node.inputs)), node.attrs)
        except NotApplicable as error:
            if (len(draft.nodes), len(draft.selections)) != mark:
                raise
            reasons.append(f"{name}: {error}")
            continue
        draft.become(at, as_tuple(found))
        return
    raise NotApplicable("; ".join(reasons))


@rule(
    requires="an operator that works cell by cell, wherever its cells are, and factors that multiply to its axes",
    keeps="values to the bit",
)
def split_axes(
    draft: Draft, at: str, sizes: Mapping[str, Sequence[int]], first: Mapping[str, int] | None = None
) -> None:
    """Do the work of an operator over several index axes in place of one, between two reshapes.

    What is every fourth cell of the one axis is then a block of the last of the others, and may be cut as such::

        y = tanh(x), 12 cells                    i0:  0 1 2 3 | 4 5 6 7 | 8 9 10 11
        sizes {"i0": (3, 4)}                     i1 = 1 has the cells 1, 5 and 9
        y = tanh(x.reshape(3, 4)).reshape(12)

    Parameters
    ----------
    at : str
        The node.
    sizes : mapping of str to sequence of int
        Index axes by name: the sizes of the axes that stand for each, whose product is its own.
    first : mapping of str to int, optional
        The point at which an axis begins then, 0 by default; those before it come last.
    """
    with draft.scope(at):
        draft.become(at, (_make_split(draft, draft.node(at), sizes, first or {}),))


def _make_split(draft: Draft, node: OpNode, sizes: Mapping[str, Sequence[int]], first: Mapping[str, int]) -> Tensor:
    """Return what an operator gives, made over split index axes; NotApplicable where it does not work cell by cell."""
    signature = draft.signature(node.name)
    names = [axis.name for axis in signature.axes]
    for name, factors in sizes.items():
        if name not in names:
            raise NotApplicable(f"there is no index axis {quote(name)}; {list_names(names, name, 'axes')}")
        n = signature.axes[names.index(name)].size
        if min(factors, default=0) < 1 or prod(factors) != n:
            raise NotApplicable(
                f"factors {quote(list(factors))} of axis {quote(name)}, which has {n} points; they must multiply to it"
            )
    for name, point in first.items():
        if name not in names:
            raise NotApplicable(
                f"there is no index axis {quote(name)} that could begin at {quote(point)}; "
                + list_names(names, name, "axes")
            )
        n = signature.axes[names.index(name)].size
        if not 0 <= point < n:
            raise NotApplicable(f"axis {quote(name)} begins at {quote(point)}; it has the points 0 to {n - 1}")
    op = draft.ops[node.op]
    reads = follow_inputs(op, signature)
    factors_of = [tuple(sizes.get(name, (axis.size,))) for name, axis in zip(names, signature.axes, strict=True)]
    inputs = []
    for name, axes in zip(node.inputs, reads, strict=True):
        tensor = draft.tensor(name)
        rank = len(axes)
        #  a broadcast axis stays one cell along all that stand for it
        at_end = range(len(names) - rank, len(names))
        new = [(1,) * len(factors_of[j]) if k is None else factors_of[k] for j, k in zip(at_end, axes, strict=True)]
        shape = tuple(n for part in new for n in part)
        for c, k in enumerate(axes):
            tensor = _rotate(draft, tensor, c, 0 if k is None else first.get(names[k], 0))
        inputs.append(tensor if shape == tensor.shape else tensor.reshape(shape))
    before = draft.tensor(node.outputs[0])
    wanted = tuple(n for part in factors_of for n in part)
    (made,) = draft.add(op, *inputs, name=f"{node.name}.split", **node.attrs)
    if made.shape != wanted:
        raise NotApplicable(f"{node.op} gives {quote(list(made.shape))} over axes {quote(list(wanted))}")
    made = made.reshape(before.shape)
    for k, name in enumerate(names):
        made = _rotate(draft, made, k, -first.get(name, 0) % before.shape[k])
    return made


def _rotate(draft: Draft, tensor: Tensor, axis: int, first: int) -> Tensor:
    """A tensor from some point of an axis on, what is before it behind it."""
    if not first:
        return tensor
    around = (slice(None),) * axis
    return draft.joined([tensor[(*around, slice(first, None))], tensor[(*around, slice(first))]], axis)


def follow_inputs(op: Op, signature: Signature) -> tuple[tuple[int | None, ...], ...]:
    """The index axis that each axis of each input follows, of an operator that may work over split axes.

    Raises
    ------
    NotApplicable
        Where it does not work cell by cell.
    """
    if not isinstance(op.block, CellBlock) or len(signature.outputs) != 1:
        raise NotApplicable(f"{op.name} may look at where its cells are")
    *reads, writes = (follow_cells(signature, operand) for operand in (*signature.inputs, *signature.outputs))
    if writes != tuple(range(len(signature.axes))):
        raise NotApplicable(f"{op.name} does not write its index axes cell by cell")
    for k, axes in enumerate(reads):
        if axes is None:
            raise NotApplicable(f"{op.name} does not read input {k} cell by cell")
    return tuple(axes for axes in reads if axes is not None)


def follow_cells(signature: Signature, operand: Operand) -> tuple[int | None, ...] | None:
    """The index axis that each axis of an operand follows cell by cell, None for one that is broadcast.

    None for an operand of which a point touches several cells, or others than these. An axis of an operand stands as
    far from the last one as the index axis that it follows, or would.
    """
    projection = operand.projection
    rank, count = len(projection.shape), len(signature.axes)
    if operand.also or projection.splits or operand.at_start_of or any(n != 1 for n in projection.shape):
        return None
    found: list[int | None] = []
    for c, (row, offset) in enumerate(zip(projection.map.matrix, projection.map.offset, strict=True)):
        used = [k for k, a in enumerate(row) if a]
        k = count - rank + c
        if offset or k < 0 or used not in ([], [k]) or (used and row[k] != 1):
            return None
        found.append(k if used else None)
    return tuple(found)


@rule(
    requires="that the place is what an expansion of the operator, on the inputs given, would build",
    keeps="values up to rounding; for integers exactly",
)
def fold(
    draft: Draft, at: str, op: str, inputs: Sequence[str], into: str, attrs: Mapping[str, Any] | None = None
) -> None:
    """The way back from an expansion: one operator in place of the operators that its expansion builds.

    Parameters
    ----------
    at : str
        The last node of what was built.
    op : str
        The operator that stands for it.
    inputs : sequence of str
        Its inputs.
    into : str
        The name of its expansion.
    attrs : mapping, optional
        Its attributes.

    Raises
    ------
    ValueError
        For an operator that is not known, does not take these inputs and attributes, or lists no such expansion.
    """
    node, given = draft.node(at), tuple(map(draft.tensor, inputs))
    outputs = draft.add(op, *given, name=f"{at}.folded", **dict(attrs or {}))
    new = draft.maker(outputs[0].name)
    assert new is not None, "an operator was added"
    known = {expansion.__name__: expansion for expansion in draft.ops[new.op].expansions}
    if into not in known:
        raise ValueError(
            f"fold: the declaration of {op} lists no expansion into={quote(into)}; "
            + list_names(known, into, "expansions")
        )
    if len(outputs) != len(node.outputs):
        raise NotApplicable(f"it has {len(node.outputs)} outputs, and {op} has {len(outputs)}")
    with draft.scope(f"{at}.trial"):
        built = known[into](given, new.attrs)
    trial = [t.name for t in as_tuple(built)]
    for one, two in zip(trial, node.outputs, strict=True):
        _check_same(draft, one, two, set(inputs))
    _discard(draft, trial, set(inputs))
    olds = node.inputs
    draft.become(at, outputs)
    _discard(draft, olds, set(inputs))
    draft.rename_node(new.name, at)


def _check_same(draft: Draft, one: str, two: str, leaves: set[str]) -> None:
    """Raise NotApplicable unless two tensors are built by the same operators and views over the same leaves."""
    if one == two:
        return
    a, b = _find_item(draft, one), _find_item(draft, two)
    if one in leaves or two in leaves or a is None or b is None or _kind(a, one) != _kind(b, two):
        raise NotApplicable(f"{quote(two)} is {_describe(b)} where the expansion has {_describe(a)}")
    for below in zip(a.inputs, b.inputs, strict=True):
        _check_same(draft, *below, leaves)


def _find_item(draft: Draft, name: str) -> OpNode | Selection | None:
    return draft.selections.get(name) or draft.maker(name)


def _kind(item: OpNode | Selection, tensor: str) -> Any:
    """What an item does, apart from names."""
    if isinstance(item, Selection):
        return len(item.inputs), item.shape, item.pieces
    return len(item.inputs), item.op, dict(item.attrs), item.outputs.index(tensor)


def _describe(item: OpNode | Selection | None) -> str:
    return "an input" if item is None else item.op if isinstance(item, OpNode) else item.label


def _discard(draft: Draft, names: Sequence[str], kept: set[str]) -> None:
    """Remove what makes tensors that nothing reads, and what only that reads."""
    stack = list(names)
    while stack:
        name = stack.pop()
        if name in kept or draft.readers(name) or draft.is_output(name):
            continue
        if name in draft.selections:
            below = list(draft.selections[name].inputs)
            draft.sweep([name])
            stack += below
        elif (node := draft.maker(name)) is not None and not _is_read(draft, node):
            draft.remove(node.name)
            stack += node.inputs


def _is_read(draft: Draft, node: OpNode) -> bool:
    return any(draft.readers(out) or draft.is_output(out) for out in node.outputs)


# -- selections --------------------------------------------------------------------------------------------


@rule(requires="a selection that has a shorter cascade", keeps="every cell", places=attrgetter("selections"))
def simplify(draft: Draft, at: str) -> None:
    """As `simplify_selection`."""
    check_selection(draft, at, "simplify_selection")
    if not simplify_in(draft, at):
        raise NotApplicable("its cascade is the shortest already")


@rule(requires="a selection over stored tensors with places", keeps="every cell", places=attrgetter("selections"))
def move(draft: Draft, at: str, placement: Mapping[str, int], consumer: int) -> None:
    """As `move_selection`: the holders pack cells, then the consumer makes the view of them."""
    move_in(draft, at, dict(placement), consumer)
