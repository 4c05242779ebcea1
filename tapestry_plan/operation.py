"""One operator of a graph: its shards, what each reads and writes, and what neighbours share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise, product

from tapestry_plan.graph import Graph, OpNode
from tapestry_plan.signature import Signature, parts_of
from tapestry_sets import Box, Regions


@dataclass(frozen=True, slots=True)
class ShardRegions:
    """One part of an operator's work.

    Parameters
    ----------
    index : Box
        Part of the index space.
    inputs, outputs : tuple of Regions
        Cells that it reads and writes, in the coordinates of the operands.
    """

    index: Box
    inputs: tuple[Regions, ...]
    outputs: tuple[Regions, ...]


@dataclass(frozen=True, slots=True)
class Operation:
    """An operator node and what follows from its signature.

    Examples
    --------
    >>> from tapestry_plan import Graph, linear, operation, sharing
    >>> g = Graph()
    >>> y = linear(g.input("x", (8, 6)), g.input("w", (6, 4)), name="fc1")
    >>> op = operation(g, "fc1")
    >>> [axis.name for axis in op.signature.axes]
    ['m', 'n', 'k']
    >>> [part.index.shape for part in op.shard({"batch": 3})]
    [(3, 4, 6), (3, 4, 6), (2, 4, 6)]
    >>> sharing(op, "batch")
    (0, 24)
    """

    graph: Graph
    node: OpNode

    @property
    def signature(self) -> Signature:
        """Index axes and operand projections."""
        return self.graph.signature(self.node.name)

    def region(self, index: Box) -> ShardRegions:
        """What the index points of a box read and write."""
        signature = self.signature
        shapes = [self.graph.source(name).shape for name in self.node.inputs]
        outputs = []
        for k, name in enumerate(self.node.outputs):
            image = signature.outputs[k].projection.image(index, within=self.graph.stored[name].shape)
            assert isinstance(image, Regions), "validated signatures write products"
            outputs.append(image)
        inputs = tuple(signature.input_region(k, index, shape) for k, shape in enumerate(shapes))
        return ShardRegions(index, inputs, tuple(outputs))

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
        """
        return tuple(self.region(box) for box in self._boxes(parts))

    def _boxes(self, parts: Mapping[str, int]) -> Iterator[Box]:
        counts = [1] * len(self.signature.axes)
        for name, count in parts.items():
            axis = self.signature.axis(name)
            size = self.signature.axes[axis].size
            if not 1 <= count <= size:
                raise ValueError(
                    f"shard: {count} parts of axis {name!r} of {self.node.name!r}, which has {size} index points; "
                    f"give a number from 1 to {size}"
                )
            counts[axis] = count
        cuts = [parts_of(axis.size, n) for axis, n in zip(self.signature.axes, counts, strict=True)]
        for spans in product(*cuts):
            yield Box.from_bounds(tuple(lo for lo, _ in spans), tuple(hi for _, hi in spans))


def operation(graph: Graph, name: str) -> Operation:
    """The operator called `name`; ValueError when the graph has none."""
    if name not in graph.nodes:
        raise ValueError(f"graph {graph.name!r} has no operator {name!r}; it has {list(graph.nodes)[:12]}")
    return Operation(graph, graph.nodes[name])


def sharing(op: Operation, axis: str, parts: int = 2) -> tuple[int, ...]:
    """Cells of each input that two neighbouring shards along an axis both read: the most at any cut.

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
    """
    shards = op.shard({axis: parts})
    pairs = list(pairwise(shards))
    return tuple(
        max((one.inputs[k].count_common(two.inputs[k]) for one, two in pairs), default=0)
        for k in range(len(op.node.inputs))
    )
