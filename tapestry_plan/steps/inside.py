"""Operators inside of blocks: what each device computes of them follows from its part of the block."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct

from tapestry_plan.ir import Attrs, Axis, Graph, Op
from tapestry_plan.rewrite import open_block
from tapestry_sets.limits import quote
from tapestry_sets.regions import Box


class Inside(Struct, frozen=True):
    """An operator whose result stays inside of a block.

    Parameters
    ----------
    axes : tuple of Axis
        Of its index space.
    boxes : tuple of (Box or None)
        What each device computes of it, None for nothing.
    """

    axes: tuple[Axis, ...]
    boxes: tuple[Box | None, ...]

    @property
    def sharding(self) -> dict[str, int]:
        """Its split index axes and their numbers of parts."""
        boxes = [box for box in self.boxes if box is not None]
        parts = (len({(box.start[k], box.shape[k]) for box in boxes}) for k in range(len(self.axes)))
        return {axis.name: n for axis, n in zip(self.axes, parts, strict=True) if n > 1}


def open_blocks(
    graph: Graph, fused: Iterable[tuple[str, str]], boxes: Mapping[str, tuple[Box | None, ...]]
) -> dict[str, Inside]:
    """What each device computes of the operators inside of blocks, by their names.

    Parameters
    ----------
    graph : Graph
        With the blocks.
    fused : iterable of (str, str)
        The first and the second one of each two that are one block, under the name of the second one, in the order in
        which they were put together.
    boxes : mapping
        What each device computes of the graph's operators.

    Raises
    ------
    ValueError
        For two that are not one block of the graph.
    """
    parts: dict[str, tuple[Op, Attrs, tuple[Box | None, ...]]] = {}
    found: dict[str, Inside] = {}
    for first, second in reversed(list(fused)):
        if second not in parts and second in graph.nodes and second in boxes:
            node = graph.nodes[second]
            parts[second] = graph.ops[node.op], node.attrs, boxes[second]
        block = open_block(*parts[second][:2]) if second in parts else None
        if block is None or first in graph.nodes or first in parts:
            raise ValueError(f"plan.fused: {quote(first)} and {quote(second)} are not one block of the plan's graph")
        cells = [None if box is None else block.cells(box) for box in parts[second][2]]
        mine = tuple(None if one is None else block.made_by(one) for one in cells)
        parts[first] = block.first, block.first_attrs, mine
        found[first] = Inside(block.first_signature.axes, mine)
    return dict(reversed(found.items()))
