"""One operator of a graph: its shards, the cells that each reads and writes, and those that neighbors share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise

from msgspec import Struct

from tapestry_plan.ir.cover import check_cover, check_partition
from tapestry_plan.ir.graph import Graph
from tapestry_plan.ir.pictures import Shown
from tapestry_plan.ir.signature import Operand, Signature
from tapestry_plan.ir.tensors import OpNode
from tapestry_sets.limits import Public, check_arguments, check_fields, cut_text, quote
from tapestry_sets.regions import Box, DisjointRegions


class ShardRegions(Struct, frozen=True):
    """One part of an operator's work.

    Parameters
    ----------
    index : Box
        Part of the index space.
    inputs, outputs : tuple of DisjointRegions
        Cells that it reads and writes, in the coordinates of the operands.
    """

    index: Box
    inputs: tuple[DisjointRegions, ...]
    outputs: tuple[DisjointRegions, ...]


class Operation(Shown, Struct, frozen=True, metaclass=Public):
    """An operator node, with the regions and costs that follow from its signature.

    Examples
    --------
    >>> from tapestry_plan import Graph, operation
    >>> from tapestry_plan.ops import linear
    >>> from tapestry_plan import count_shared
    >>> g = Graph()
    >>> y = linear(g.input("x", (8, 6)), g.input("w", (6, 4)), name="fc1")
    >>> op = operation(g, "fc1")
    >>> [axis.name for axis in op.signature.axes]
    ['m', 'n', 'k']
    >>> [part.index.shape for part in op.shard({"batch": 3})]
    [(3, 4, 6), (3, 4, 6), (2, 4, 6)]
    >>> count_shared(op, "batch")
    (0, 24)
    """

    graph: Graph
    node: OpNode

    def __repr__(self) -> str:
        name, op = cut_text(quote(self.node.name), 30), cut_text(self.node.op, 20)
        return f"Operation({name}: {op}, {cut_text(repr(self.signature), 120)})"

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def signature(self) -> Signature:
        """Index axes and operand projections.

        Examples
        --------
        >>> from tapestry_plan import Graph, operation
        >>> g = Graph()
        >>> _ = g.input("x", (8, 6)) @ g.input("w", (6, 4))
        >>> operation(g, "matmul").signature
        Signature(m:8, n:4, k:6 summed; 2 inputs, 1 output)
        """
        return self.graph.signature(self.node.name)

    @check_arguments
    def region(self, index: Box) -> ShardRegions:
        """The cells that the index points of a box read and write.

        Examples
        --------
        >>> from tapestry_plan import Graph, operation
        >>> from tapestry_sets import Box
        >>> g = Graph()
        >>> _ = g.input("x", (8, 6)) @ g.input("w", (6, 4))
        >>> found = operation(g, "matmul").region(Box((0, 0, 0), (8, 1, 6)))  # the first column
        >>> [cells.size for cells in found.inputs], found.outputs[0].bounds()
        ([48, 6], ((0, 0), (8, 1)))
        """
        return self._regions([index])[0]

    def _regions(self, boxes: Sequence[Box]) -> tuple[ShardRegions, ...]:
        """What each of many index boxes reads and writes."""
        signature, graph = self.signature, self.graph
        sides = (
            (signature.inputs, signature.input_regions, [graph.source(name).shape for name in self.node.inputs]),
            (signature.outputs, signature.output_regions, [graph.stored[name].shape for name in self.node.outputs]),
        )
        found = [
            [
                _spread(boxes, self._used(operand), partial(regions, k, shape=shapes[k]))
                for k, operand in enumerate(given)
            ]
            for given, regions, shapes in sides
        ]
        nothing: list[tuple[DisjointRegions, ...]] = [()] * len(boxes)
        return tuple(map(ShardRegions, boxes, *(zip(*side, strict=True) if side else nothing for side in found)))

    def _used(self, operand: Operand) -> tuple[int, ...]:
        """Index axes on which an operand's region depends."""
        rank = len(self.signature.axes)
        axes = {self.signature.axis(name) for name in operand.at_start_of}
        for projection in operand.projections:
            for row in projection.map.terms():
                axes |= {k if k < rank else projection.splits[(k - rank) // 2][0] for k, _ in row}
        return tuple(sorted(axes))

    @check_arguments
    def shard(self, parts: Mapping[str, int]) -> tuple[ShardRegions, ...]:
        """Cut the index space into parts as even as possible, in row-major order of the parts.

        Parameters
        ----------
        parts : mapping of str to int
            Number of parts along each named index axis; axes not named stay whole.

        Raises
        ------
        ValueError
            For an unknown axis, and for less than one part or more parts than index points.

        Examples
        --------
        >>> from tapestry_plan import Graph, operation
        >>> g = Graph()
        >>> _ = g.input("x", (8, 6)) @ g.input("w", (6, 4))
        >>> [part.index.shape for part in operation(g, "matmul").shard({"m": 3, "k": 2})]
        [(3, 4, 3), (3, 4, 3), (3, 4, 3), (3, 4, 3), (2, 4, 3), (2, 4, 3)]
        """
        return self._regions(list(self.signature.boxes(parts, f"shard: operator {quote(self.node.name)}")))

    @check_arguments
    def check_shards(self, shards: Sequence[ShardRegions]) -> None:
        """Check that shards, however they were made, are this operator's work: all of it, once.

        Raises
        ------
        ValueError
            When there is no shard; when one lists more or fewer operands than the operator has, or regions of another
            shape than the operand's; when the index boxes do not partition the index space; when what a shard says
            that it reads or writes is not the projection of its own index; and when the shards' outputs do not cover
            a tensor exactly.

        Examples
        --------
        >>> from tapestry_plan import Graph, operation
        >>> from tapestry_plan.ops import linear
        >>> g = Graph()
        >>> y = linear(g.input("x", (8, 6)), g.input("w", (6, 4)), name="fc1")
        >>> op = operation(g, "fc1")
        >>> op.check_shards(op.shard({"batch": 3}))
        >>> op.check_shards(op.shard({"batch": 3})[1:])
        Traceback (most recent call last):
        ...
        tapestry_plan.ir.cover.NoPartition: shards of 'fc1': no part has (0, 0, 0);
        each point must be in exactly one part
        """
        what = f"shards of {quote(self.node.name)}"
        if not shards:
            raise ValueError(f"{what}: there is none; the operator needs at least one shard")
        for k, shard in enumerate(shards):
            self._check_operands(f"{what}: shard {k}", shard)
        check_partition([shard.index for shard in shards], self.signature.index, what)
        for k, (shard, own) in enumerate(zip(shards, self._regions([shard.index for shard in shards]), strict=True)):
            for role, have, need in (("input", shard.inputs, own.inputs), ("output", shard.outputs, own.outputs)):
                for number, (cells, image) in enumerate(zip(have, need, strict=True)):
                    if cells is not image and not cells.same_points(image):
                        raise ValueError(
                            f"{what}: shard {k} says that {role} {number} is {quote(cells)}; the projection of its "
                            f"index {quote(shard.index)} is {quote(image)}"
                        )
        self._check_outputs(shards, what)

    def _check_operands(self, what: str, shard: ShardRegions) -> None:
        for role, have, names in (
            ("inputs", shard.inputs, self.node.inputs),
            ("outputs", shard.outputs, self.node.outputs),
        ):
            if len(have) != len(names):
                raise ValueError(f"{what} lists {len(have)} {role}; the operator has {len(names)}")
            for cells, name in zip(have, names, strict=True):
                box = Box.of(self.graph.tensor(name).shape)
                if (cells.start, cells.shape) != (box.start, box.shape):
                    raise ValueError(
                        f"{what} has a region in the box {quote(cells.start)} + {quote(cells.shape)} of {quote(name)}, "
                        f"which is a tensor of shape {quote(box.shape)}"
                    )

    def _check_outputs(self, shards: Sequence[ShardRegions], what: str) -> None:
        """Each cell of an output is written by one parallel part; the parts of a reduction write it together."""
        parallel = [k for k, axis in enumerate(self.signature.axes) if axis.kind == "parallel"]
        firsts = {tuple((s.index.start[k], s.index.shape[k]) for k in parallel): s for s in shards}
        for number, name in enumerate(self.node.outputs):
            cells = [shard.outputs[number] for shard in firsts.values()]
            check_cover(cells, Box.of(self.graph.stored[name].shape), f"{what}: output {number} ({quote(name)})")


def _spread(
    boxes: Sequence[Box], used: tuple[int, ...], regions: Callable[[Sequence[Box]], list[DisjointRegions]]
) -> list[DisjointRegions]:
    """The regions of many boxes, of which those that are alike along the axes that matter are asked once."""
    keys = [(box.is_empty, *[(box.start[k], box.shape[k]) for k in used]) for box in boxes]
    first = dict(zip(keys, boxes, strict=True))
    known = dict(zip(first, regions(list(first.values())), strict=True))
    return [known[key] for key in keys]


@check_arguments
def operation(graph: Graph, name: str) -> Operation:
    """The operator called `name`; ValueError when the graph has none.

    Examples
    --------
    >>> from tapestry_plan import Graph, operation
    >>> g = Graph()
    >>> _ = g.op("matmul", g.input("x", (8, 6)), g.input("w", (6, 4)), name="fc")
    >>> upper = operation(g, "fc").shard({"m": 2})[0]  # which cells does the upper half of the rows touch?
    >>> [cells.size for cells in upper.inputs], [cells.size for cells in upper.outputs]
    ([24, 24], [16])
    """
    return Operation(graph, graph._node(name))


@check_arguments
def count_shared(op: Operation, axis: str, parts: int = 2) -> tuple[int, ...]:
    """Cells of each input that two neighboring shards along an axis both read: the most at any cut.

    Parameters
    ----------
    op : Operation
    axis : str
        Index axis that is cut.
    parts : int
        Number of shards, at least 2.

    Returns
    -------
    tuple of int
        One count for each input, in cells.

    Examples
    --------
    >>> from tapestry_plan import Graph, count_shared, operation, ops
    >>> g = Graph()
    >>> _ = ops.conv(g.input("x", (1, 3, 16, 16)), g.input("w", (8, 3, 3, 3)), pads=1, name="c")
    >>> count_shared(operation(g, "c"), "h")  # of image and weights: two rows of halo, and all weights
    (96, 216)
    """
    shards = op.shard({axis: parts})
    pairs = list(pairwise(shards))
    return tuple(
        max((one.inputs[k].count_common(two.inputs[k]) for one, two in pairs), default=0)
        for k in range(len(op.node.inputs))
    )
