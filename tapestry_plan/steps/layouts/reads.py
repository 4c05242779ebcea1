"""Reads: the cells of stored tensors that operators read, through the views between them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from tapestry_plan.ir import Graph, Operand, OpNode, Signature, Source
from tapestry_plan.rewrite import follow_cells
from tapestry_plan.steps.layouts.cells import Facts, unite
from tapestry_plan.steps.layouts.layout import Lot, PeriodicBlock
from tapestry_sets.digits import Ints
from tapestry_sets.regions import Box, DisjointRegions
from tapestry_sets.views import piece_image

IndexBlock = Box | PeriodicBlock | Lot


class Reads:
    """What the operators of a graph read: each answer is worked out once for all operators of one structure.

    Parameters
    ----------
    graph : Graph
    known : Facts, optional
        Answers that reads of several graphs share.
    """

    def __init__(self, graph: Graph, known: Facts | None = None) -> None:
        self.graph, self.known = graph, Facts() if known is None else known
        self._source_keys: dict[str, int] = {}
        self._kinds: dict[tuple[str, tuple[str, ...]], int] = {}

    def of_operand(self, node: OpNode, operand: int, box: Box) -> dict[str, DisjointRegions]:
        """The exact cells of the stored tensors that one operand reads for an index box, through its selections."""
        key = "operand", self.kind(node), operand, box
        found = self.known.fact(key, lambda: self.of_blocks(node, operand, [box])[0])
        return dict(zip(self.graph.source(node.inputs[operand]).stored, found, strict=True))

    def of_blocks(self, node: OpNode, operand: int, blocks: Sequence[IndexBlock]) -> list[tuple[DisjointRegions, ...]]:
        """The exact cells of the stored tensors that one operand reads for each of many blocks, made together."""
        signature = self.graph.signature(node.name)
        declared, name = signature.inputs[operand], node.inputs[operand]
        source = self.graph.source(name)
        # Other operators may read a tensor of this structure in the same way.
        starts = tuple(map(signature.axis, declared.at_start_of))
        read = "image", self.known.key(declared), starts, self.source_key(name)
        seen = self.list_seen(signature, declared, blocks)
        fresh = [block for block in dict.fromkeys(seen) if (*read, block) not in self.known.facts]
        made = partial(signature.input_regions, operand, shape=source.shape)
        for block, region in zip(fresh, _make_images(signature, declared, fresh, made), strict=True):
            self.known.facts[*read, block] = tuple(pull_back(self.graph, source, region).values())
        return [self.known.facts[*read, block] for block in seen]

    def list_seen(self, signature: Signature, operand: Operand, blocks: Sequence[IndexBlock]) -> list[IndexBlock]:
        """As `list_seen`; for blocks that are kept it is worked out once, whichever operand looks at the same axes."""
        if id(blocks) not in self.known.kept:
            return list_seen(signature, operand, blocks)
        looked = tuple(sorted(operand.index_axes)), tuple(map(signature.axis, operand.at_start_of))
        key = "seen", id(blocks), len(signature.axes), *looked
        return self.known.fact(key, lambda: list_seen(signature, operand, blocks))

    def source_key(self, name: str) -> int:
        """A number for how a tensor is read from stored ones, whatever they are called."""
        found = self._source_keys.get(name)
        if found is None:
            source = self.graph.source(name)
            read = source.shape if source.direct else source.pieces
            found = self._source_keys[name] = self.known.key((read, source.shape, source.dtype, source.stored_shapes))
        return found

    def kind(self, node: OpNode) -> int:
        """A number for the structure of an operator: what it is, how it reads, and which of what it reads is the same.

        Operators of one kind read and make alike, whatever they and their tensors are called. A product of a tensor
        with itself is of another kind than one of two tensors.
        """
        found = self._kinds.get((node.name, node.inputs))
        if found is None:
            behind = list_stored(self.graph, node.inputs)
            reads = tuple(
                (self.source_key(name), tuple(behind.index(stored) for stored in self.graph.source(name).stored))
                for name in node.inputs
            )
            declared = self.known.identity(self.graph.ops[node.op])
            said = "kind", declared, repr(sorted(node.attrs.items())), reads
            found = self._kinds[node.name, node.inputs] = self.known.key(said)
        return found


def list_stored(graph: Graph, names: Iterable[str]) -> list[str]:
    """The stored tensors behind some tensors, each once."""
    return list(dict.fromkeys(stored for name in names for stored in graph.source(name).stored))


def list_viewed(graph: Graph, names: Iterable[str]) -> set[str]:
    """The stored tensors that some tensors are views of."""
    return {stored for source in map(graph.source, names) if not source.direct for stored in source.stored}


def pull_back(graph: Graph, source: Source, region: DisjointRegions) -> dict[str, DisjointRegions]:
    """The cells of each stored tensor behind some cells of a viewed one."""
    if source.direct:
        return {source.stored[0]: region}
    out: dict[str, DisjointRegions] = {}
    for k, name in enumerate(source.stored):
        shape = graph.stored[name].shape
        images = [piece_image(piece, region, within=shape) for piece in source.pieces if piece.source == k]
        out[name] = unite(images, shape)
    return out


def list_images(
    signature: Signature,
    operand: Operand,
    blocks: Sequence[IndexBlock],
    made: Callable[[list[Box]], list[DisjointRegions]],
) -> list[DisjointRegions]:
    """The cells of an operand for some blocks: for boxes as they are made together, for periodic ones axis by axis."""
    seen = list_seen(signature, operand, blocks)
    distinct = list(dict.fromkeys(seen))
    found = dict(zip(distinct, _make_images(signature, operand, distinct, made), strict=True))
    return [found[block] for block in seen]


def _make_images(
    signature: Signature,
    operand: Operand,
    distinct: Sequence[IndexBlock],
    made: Callable[[list[Box]], list[DisjointRegions]],
) -> list[DisjointRegions]:
    """The same of blocks that touch different cells."""
    boxes = [block for block in distinct if isinstance(block, Box)]
    images = iter(made(boxes) if boxes else [])
    return [next(images) if isinstance(b, Box) else _follow(signature, operand, b) for b in distinct]


def _follow(signature: Signature, operand: Operand, block: PeriodicBlock | Lot) -> DisjointRegions:
    """The cells of an operand for a periodic block of an operator that works cell by cell."""
    followed = follow_cells(signature, operand)
    assert followed is not None, "only operators that work cell by cell are offered periodic blocks"
    return block.cells.reduce_to([1 if k is None else signature.axes[k].size for k in followed])


def list_seen(signature: Signature, operand: Operand, blocks: Sequence[IndexBlock]) -> list[IndexBlock]:
    """For each of some blocks one that touches the same cells of an operand: blocks that it takes for equal are one.

    A product reads the rows of x whichever columns it makes: along an axis that an operand does not depend on, a block
    of one point stands for all.

    Examples
    --------
    >>> from tapestry_plan import Graph
    >>> g = Graph()
    >>> _ = g.output(g.op("matmul", g.input("x", (8, 6)), g.input("w", (6, 4)), name="product"))
    >>> signature, blocks = g.signature("product"), [Box((0, 0, 0), (4, 2, 6)), Box((0, 2, 0), (4, 2, 6))]
    >>> [[block.start for block in list_seen(signature, signature.inputs[k], blocks)] for k in range(2)]
    [[(0, 0, 0), (0, 0, 0)], [(0, 0, 0), (0, 2, 0)]]
    """
    kept = sorted(operand.index_axes)
    if len(kept) == len(signature.axes):
        return list(blocks)
    starts = [signature.axis(name) for name in operand.at_start_of]  # the block is read there only
    made: dict[tuple[Ints, Ints, tuple[bool, ...]], Box] = {}

    def see(block: IndexBlock) -> IndexBlock:
        if not isinstance(block, Box) or 0 in block.shape:
            return block
        start, shape = block.start, block.shape
        key = tuple([start[k] for k in kept]), tuple([shape[k] for k in kept]), tuple([start[k] > 0 for k in starts])
        if key not in made:
            first, extents = [0] * len(start), [1] * len(shape)
            for k, is_later in zip(starts, key[2], strict=True):
                first[k] = int(is_later)
            for k, at, n in zip(kept, *key[:2], strict=True):
                first[k], extents[k] = at, n
            made[key] = Box(tuple(first), tuple(extents))
        return made[key]

    return list(map(see, blocks))
