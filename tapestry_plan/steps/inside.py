"""Operators inside of blocks: what each device computes of them follows from its part of the block."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from tapestry_plan.ir import Attrs, Axis, Graph, Op
from tapestry_plan.rewrite import Draft, list_readers, open_block, unfuse
from tapestry_plan.steps import tuning
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


def take_apart(graph: Graph, fused: Sequence[tuple[str, str]], made_by: Mapping[str, str]) -> Graph:
    """The graph of a plan with the operators of its blocks apart, as it was before these were put together.

    Parameters
    ----------
    graph, fused
        As of `open_blocks`.
    made_by : mapping of str to str
        Results that the graph does not have, with the operators that make them: what is between the operators of a
        block is called so again, or else like the operator that makes it.
    """
    if not fused:
        return graph
    draft, made = Draft(graph), {operator: tensor for tensor, operator in made_by.items()}
    for first, second in reversed(fused):
        wanted = [name for name in (made.get(first), first) if name is not None]
        free = (name for name in wanted if name not in draft.stored and name not in draft.selections)
        unfuse.on(draft, second, name=first, result=next(free, None) or draft.find_free(first))
    return draft.done()


def list_readers_inside(graph: Graph, fused: Sequence[tuple[str, str]], name: str) -> list[str]:
    """The operators that read another one's results, those inside of blocks under their own names.

    Parameters
    ----------
    graph, fused
        As of `open_blocks`.
    name : str
        An operator of the graph, or one that is inside of a block.
    """
    kept = [second for first, second in fused if first == name]
    if kept:
        return kept

    def find(node: str, pairs: Sequence[tuple[str, str]], op: Op, attrs: Attrs, k: int) -> str:
        """Which operator of a block of some pairs, or the operator itself, has the operand number `k`."""
        last = max((at for at, pair in enumerate(pairs) if pair[1] == node), default=None)
        block = open_block(op, attrs)
        if last is None or block is None:
            return node
        earlier, count = pairs[:last], len(block.first_signature.inputs)
        if k < count:
            return find(pairs[last][0], earlier, block.first, block.first_attrs, k)
        others = [at for at in range(len(block.second_signature.inputs)) if at not in block.at]
        return find(node, earlier, block.second, block.second_attrs, others[k - count])

    made = set(graph.nodes[name].outputs)
    found = [
        find(node.name, fused, graph.ops[node.op], node.attrs, k)
        for node in map(graph.nodes.__getitem__, list_readers(graph, name))
        for k, tensor in enumerate(node.inputs)
        if made & set(graph.source(tensor).stored)
    ]
    return list(dict.fromkeys(found))


def tell_block(op: str) -> str:
    """An operator's name in few words: ``fused(fused(conv,relu),max_pool)`` is ``conv+relu+max_pool``.

    Of a block of many those in the middle are left out, and how many they all are is said.
    """
    parts = _list_parts(op)
    return "+".join(parts) if len(parts) <= tuning.MAX_TOLD_PARTS else f"{parts[0]}+…+{parts[-1]} ({len(parts)} in one)"


def _list_parts(op: str) -> list[str]:
    """The names of the operators that a block is of, in the order in which they run; its own if it is none."""
    if not op.startswith("fused("):
        return [op]
    depth, inner = 0, op[len("fused(") : -1]
    for at, letter in enumerate(inner):
        depth += (letter == "(") - (letter == ")")
        if letter == "," and not depth:
            return [*_list_parts(inner[:at]), *_list_parts(inner[at + 1 :])]
    return [op]
