"""Operators that work in leaves: blocks of one size that no plan divides, so that results have the same bits anywhere.

Rounding depends on how a block is cut. A product of other rows goes through other kernels of the BLAS, a sum of other
cells adds them in another order: five numbers of devices give five results. A leaf is always computed alone, from
copies that lie alike, whoever computes it::

    k = 4096 of a product     |  leaf 0 |  leaf 1 |  leaf 2 |  leaf 3 |
    on 1 device                   └─── + ───┘          └─── + ───┘
                                       └──────── + ────────┘
    on 2 devices              one adds 0 + 1, the other 2 + 3; who reads the product adds the two

How many leaves there are follows from the operator alone. Plans cut parallel axes between leaves, and the reduction
axis into equal parts, so that what a device merges is a branch of the one tree.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import product
from math import prod
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from tapestry_plan.ir import (
    AROUND,
    DERIVED,
    Attrs,
    Axis,
    CellBlock,
    Graph,
    Monoid,
    Op,
    Operand,
    OpNode,
    Shape,
    Shard,
    Signature,
    components_of,
    make_empty,
    merge_states,
)
from tapestry_plan.rewrite import tuning
from tapestry_plan.rewrite.derivation import Derivation, rule
from tapestry_plan.rewrite.derived import (
    Derived,
    core_attributes,
    derive_op,
    once_for_attributes,
    require_attributes,
    signature_of,
    slices_within,
    through,
)
from tapestry_plan.rewrite.draft import Draft, NotApplicable
from tapestry_sets.limits import quote
from tapestry_sets.regions import AffineMap, Box, IndexProjection

LEAF_ATTRIBUTES = ("leaves.counts", "leaves.of", "leaves.around")


class Leaf(Struct, frozen=True):
    """A block of the operator's index space, and the blocks of the operands that it reads and writes."""

    index: Box
    inputs: tuple[Box | None, ...]
    outputs: tuple[Box, ...]


class Leaves(Struct, frozen=True):
    """An operator's application, cut into leaves.

    Parameters
    ----------
    signature : Signature
        The operator's own.
    attrs : mapping
        The operator's own.
    counts : tuple of int
        How many leaves there are along each index axis: a divisor of its size.
    """

    signature: Signature
    attrs: Attrs
    counts: tuple[int, ...]

    @property
    def extents(self) -> tuple[int, ...]:
        """Index points of a leaf along each axis."""
        return tuple(n // count for n, count in zip(self.signature.index_shape, self.counts, strict=True))

    def digits(self) -> Signature:
        """The signature in which an index axis numbers leaves, and another one the points of a leaf.

        The points are axes of their own, not wider blocks, so that what is read in steps is read exactly.
        """
        axes: list[Axis] = []
        columns: list[tuple[tuple[int, int], ...]] = []
        """For each old axis its new ones, and the step in old points of each."""
        for axis, count, extent in zip(self.signature.axes, self.counts, self.extents, strict=True):
            at = len(axes)
            if count == 1:
                axes.append(replace(axis, parts="one"))
                columns.append(((at, 1),))
                continue
            axes.append(replace(axis, size=count, parts="equal" if axis.kind == "reduction" else "any"))
            columns.append(((at, extent),))
            if extent > 1:
                axes.append(replace(axis, name=f"{axis.name}.in", size=extent, alias="", parts="one"))
                columns[-1] += ((at + 1, 1),)

        def changed(projection: IndexProjection) -> IndexProjection:
            old, rank = len(columns), len(axes)
            rows = []
            for row in projection.map.matrix:
                new = [0] * rank
                for factor, places in zip(row[:old], columns, strict=True):
                    for at, step in places:
                        new[at] += factor * step
                rows.append((*new, *row[old:]))
            splits = tuple((columns[axis][0][0], q) for axis, q in projection.splits)
            map_ = AffineMap(tuple(rows), projection.map.offset, rank + 2 * len(splits))
            return IndexProjection(map_, projection.shape, splits)

        def moved(operand: Operand) -> Operand:
            names = [self.signature.axis(name) for name in operand.at_start_of]
            start = tuple(axes[at].name for axis in names for at, _ in columns[axis])
            return replace(through(operand, changed), at_start_of=start)

        sides = (tuple(map(moved, side)) for side in (self.signature.inputs, self.signature.outputs))
        return Signature(tuple(axes), *sides)

    def within(self, box: Box) -> list[list[Leaf]]:
        """The leaves of a box of `digits`: in each list those of one block of the outputs, in the order of merging."""
        spans = self._list_spans(box)
        is_merged = [axis.kind == "reduction" for axis in self.signature.axes]
        outer = product(*([(0, 0)] if merged else each for merged, each in zip(is_merged, spans, strict=True)))
        found = []
        for fixed in outer:
            each = zip(is_merged, spans, fixed, strict=True)
            inner = product(*(span if merged else [own] for merged, span, own in each))
            found.append([self._leaf(Box(*zip(*chosen, strict=True)) if chosen else Box((), ())) for chosen in inner])
        return found

    def _list_spans(self, box: Box) -> list[list[tuple[int, int]]]:
        """For each index axis of the operator: (start, extent) of the leaves in a box of `digits`."""
        ranges = iter(zip(box.start, box.shape, strict=True))
        spans = []
        for count, extent in zip(self.counts, self.extents, strict=True):
            first, many = next(ranges)
            if count == 1:
                spans.append([(first, many)])
                continue
            begin, width = next(ranges) if extent > 1 else (0, 1)
            spans.append([(leaf * extent + begin, width) for leaf in range(first, first + many)])
        return spans

    def _leaf(self, index: Box) -> Leaf:
        signature = self.signature
        inputs = tuple(signature.input_box(k, index) for k in range(len(signature.inputs)))
        outputs = tuple(operand.projection.bounding_box(index) for operand in signature.outputs)
        return Leaf(index, inputs, outputs)

    def shard(self, leaf: Leaf, workspace: Any) -> Shard:
        """What the operator's block function is told of a leaf."""
        return Shard(leaf.index, self.signature, self.attrs, leaf.inputs, leaf.outputs, workspace)


@once_for_attributes
def _known_leaves(op: Op, attrs: Attrs) -> Leaves:
    """What a node's attributes say."""
    require_attributes(attrs, LEAF_ATTRIBUTES[:-1])
    core = core_attributes(op, attrs)
    if "leaves.around" in attrs:
        core[AROUND] = attrs["leaves.around"]
    signature = signature_of(op, tuple(map(tuple, attrs["leaves.of"])), core)
    counts = tuple(attrs["leaves.counts"])
    _check_counts(signature, counts)
    return Leaves(signature, core, counts)


@once_for_attributes
def _list_leaves(op: Op, index: Box, attrs: Attrs) -> list[list[Leaf]]:
    return _known_leaves(op, attrs).within(index)


@lru_cache(maxsize=1024)
def leaves_of(op: Op) -> Derived:
    """The operator that does another one's work leaf by leaf.

    Its block function gives the other one's a fresh, contiguous copy of what each leaf reads, and merges the states of
    the leaves of a reduction in a binary tree of neighbors.

    Examples
    --------
    >>> from tapestry_plan.ir import BUILTIN_OPS
    >>> leaves_of(BUILTIN_OPS["matmul"]).name
    'leaves(matmul)'
    """

    def signature(shapes: Sequence[Shape], attrs: Attrs) -> Signature:
        found = _known_leaves(op, attrs)
        wanted = tuple(map(tuple, attrs["leaves.of"]))
        if tuple(map(tuple, shapes)) != wanted:
            raise ValueError(f"the inputs have shapes {quote(list(shapes))}; the leaves are of {quote(list(wanted))}")
        return found.digits()

    def block(xp: Any, inputs: Sequence[Any], outputs: Sequence[Any], shard: Shard) -> None:
        found = _known_leaves(op, shard.attrs)
        for leaves in _list_leaves(op, shard.index, shard.attrs):
            states = []
            for leaf in leaves:
                made = _compute(xp, op, found, leaf, inputs, outputs, shard)
                if op.monoid is None:
                    _write(outputs, shard.output_boxes, leaf.outputs, made)
                else:
                    states.append(components_of(made[0]))
            if op.monoid is not None:
                _write_state(xp, op.monoid, states, outputs[0], shard.output_boxes[0], leaves[0].outputs[0])

    def workspace(shard: Shard, itemsize: int) -> int:
        found = _known_leaves(op, shard.attrs)
        leaves = _list_leaves(op, shard.index, shard.attrs)
        return max((op.workspace(found.shard(leaf, None), itemsize) for each in leaves for leaf in each), default=0)

    def flop(signature: Signature, attrs: Attrs) -> float:
        found = _known_leaves(op, attrs)
        return op.flop_per_point(found.signature, found.attrs)

    return derive_op(
        "leaves",
        [op],
        signature=signature,
        block=block,
        flop=flop,
        reduction=op.reduction,
        dtype=lambda dtypes, attrs: op.dtype(dtypes, core_attributes(op, attrs)),
        workspace=workspace,
        attributes=(*op.attributes, *LEAF_ATTRIBUTES),
        points_per_launch=lambda signature, attrs: prod(_known_leaves(op, attrs).extents),
    )


def _compute(
    xp: Any, op: Op, found: Leaves, leaf: Leaf, inputs: Sequence[Any], outputs: Sequence[Any], shard: Shard
) -> list[Any]:
    """Run the operator's block function on a leaf, from copies that lie alike for whoever makes them."""
    given: list[Any] = []
    for array, frame, box in zip(inputs, shard.input_boxes, leaf.inputs, strict=True):
        if frame is None or box is None:
            given.append(None)
        else:
            given.append(xp.array(array[slices_within(box, frame)], copy=True, order="C"))
    made = [make_empty(xp, box.shape, out.dtype) for box, out in zip(leaf.outputs, outputs, strict=True)]
    op.block(xp, given, made, found.shard(leaf, shard.workspace))
    return made


def _write(outputs: Sequence[Any], frames: Sequence[Box], boxes: Sequence[Box], made: Sequence[Any]) -> None:
    for out, frame, box, cells in zip(outputs, frames, boxes, made, strict=True):
        out[slices_within(box, frame)] = cells


def _write_state(xp: Any, monoid: Monoid, states: Sequence[Any], out: Any, frame: Box, box: Box) -> None:
    """Merge the states of leaves, and write what comes of it component by component."""
    merged = merge_states(monoid, xp, states, fan_in=2)
    for component, cells in zip(components_of(out), merged, strict=True):
        component[slices_within(box, frame)] = cells


DERIVED.update(leaves=leaves_of)


# -- the rule --------------------------------------------------------------------------------------------


@rule(
    requires="an operator, and for each index axis a number of leaves that divides it",
    keeps="values up to rounding; the bits are then the same however a plan cuts the operator",
)
def leaves(draft: Draft, at: str, counts: Sequence[int] | None = None) -> None:
    """Let an operator work leaf by leaf, in blocks that no plan divides.

    Parameters
    ----------
    at : str
        The node.
    counts : sequence of int, optional
        How many leaves along each index axis; along one reduction axis at most, and there a power of two. By default
        as many as `count_leaves` says.
    """
    node, signature = draft.node(at), draft.signature(at)
    found = count_leaves(signature) if counts is None else tuple(counts)
    _check_counts(signature, found)
    around = {"leaves.around": node.attrs[AROUND]} if AROUND in node.attrs else {}
    attrs = {key: value for key, value in node.attrs.items() if key != AROUND}
    shapes = tuple(draft.source(name).shape for name in node.inputs)
    op, inputs = leaves_of(draft.ops[node.op]), [draft.tensor(name) for name in node.inputs]
    told = {**attrs, **around, "leaves.counts": found, "leaves.of": shapes}
    with draft.scope(at):
        made = draft.add(op, *inputs, name=f"{at}.leaves", **told)
    draft.become(at, made)
    draft.rename_node(f"{at}.leaves", at)


def _check_counts(signature: Signature, counts: Sequence[int]) -> None:
    if len(counts) != len(signature.axes):
        raise ValueError(f"counts is {quote(list(counts))}; give a number for each of {len(signature.axes)} index axes")
    if any(not isinstance(count, int) or isinstance(count, bool) for count in counts):
        raise ValueError(f"counts is {quote(list(counts))}; give integers")
    merged = []
    split = _split_axes(signature)
    for k, (axis, count) in enumerate(zip(signature.axes, counts, strict=True)):
        if count < 1 or axis.size % count:
            raise NotApplicable(f"{count} leaves along axis {quote(axis.name)} of {axis.size}; give a divisor of it")
        if count > 1 and k in split:
            raise NotApplicable(f"an operand splits axis {quote(axis.name)} into blocks; give one leaf along it")
        if count > 1 and axis.kind == "reduction":
            merged.append(axis.name)
            if count & (count - 1):
                raise NotApplicable(f"{count} leaves along reduction axis {quote(axis.name)}; give a power of two")
    if len(merged) > 1:
        raise NotApplicable(f"reduction axes {quote(merged)} have several leaves; only one may, or no tree is the same")


def count_leaves(signature: Signature) -> tuple[int, ...]:
    """How many leaves an operator has along each index axis: few of little work, more of much work.

    The parallel axes are cut first, then the longest reduction axis, into halves. It is always the longest side of a
    leaf that is cut, by its least factor.

    Examples
    --------
    >>> from tapestry_plan.ir import BUILTIN_OPS
    >>> count_leaves(BUILTIN_OPS["matmul"].signature([(4096, 4096), (4096, 1000)], {}))
    (8, 2, 8)
    """
    sizes = list(signature.index_shape)
    counts = [1] * len(sizes)
    is_much = signature.index.size >= tuning.LEAF_POINTS * tuning.FEW_LEAVES
    parallel = set(range(len(sizes))) - set(signature.reductions) - _split_axes(signature)
    _cut(sizes, counts, parallel, tuning.LEAVES if is_much else tuning.FEW_LEAVES)
    longest = max(signature.reductions, key=lambda k: sizes[k], default=None)
    if longest is not None and longest not in _split_axes(signature):
        most = tuning.FEW_LEAVES if is_much else max(2, tuning.FEW_LEAVES // prod(counts))
        _cut(sizes, counts, {longest}, most * prod(counts), only=2)
    return tuple(counts)


def _cut(sizes: list[int], counts: list[int], axes: set[int], most: int, only: int | None = None) -> None:
    """Cut the longest of some sides of a leaf again and again, into `most` leaves at most."""
    axes = set(axes)
    while axes:
        k = max(axes, key=lambda a: (sizes[a], -a))
        factor = _least_factor(sizes[k])
        if factor == 1 or prod(counts) * factor > most or only not in (None, factor):
            axes.remove(k)
            continue
        sizes[k] //= factor
        counts[k] *= factor


def _split_axes(signature: Signature) -> set[int]:
    """Index axes that an operand splits into blocks, as the groups of a convolution do."""
    operands = (*signature.inputs, *signature.outputs)
    return {axis for operand in operands for one in operand.projections for axis, _ in one.splits}


def _least_factor(n: int) -> int:
    """The least prime factor up to the number of leaves; 1 where there is none."""
    return next((p for p in range(2, min(n, tuning.LEAVES) + 1) if n % p == 0), 1)


def fix_bits(graph: Graph) -> Graph:
    """Return a graph whose results have the same bits however its operators are cut: those that round work in leaves.

    Operators that work cell by cell stay as they are, since a cell's bits depend on nothing else there, and those of
    integers, which do not round.

    Examples
    --------
    >>> from tapestry_plan import Graph
    >>> from tapestry_plan.ops import tanh
    >>> g = Graph()
    >>> y = g.output(tanh(g.input("x", (8, 4)) @ g.input("w", (4, 2))), "y")
    >>> [node.op for node in fix_bits(g).order()]
    ['leaves(matmul)', 'tanh']
    """
    steps = Derivation()
    for node in graph.order():
        if _rounds(graph, node):
            steps = steps.then(leaves, node.name)
    return steps.replay(graph)


def _rounds(graph: Graph, node: OpNode) -> bool:
    """Whether a node's bits may depend on how it is cut."""
    op, signature = graph.ops[node.op], graph.signature(node.name)
    if isinstance(op, Derived) and op.form == "leaves":
        return False
    projections = [one for operand in (*signature.inputs, *signature.outputs) for one in operand.projections]
    is_coarse = signature.reductions or any(prod(one.shape) > 1 for one in projections)
    if isinstance(op.block, CellBlock) and not is_coarse:
        return False
    dtypes = (graph.tensor(name).dtype for name in (*node.inputs, *node.outputs))
    return any(dtype.startswith(("float", "bfloat", "complex")) for dtype in dtypes)
