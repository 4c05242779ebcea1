"""How tensors are read from stored ones, through selections: one after the other, every one after what it reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from tapestry_plan.ir.tensors import OpNode, Selection, Source, Stored
from tapestry_sets.limits import quote
from tapestry_sets.views import compose_pieces, identity_piece

if TYPE_CHECKING:
    from tapestry_plan.ir.graph import Graph


def source_of(stored: Stored) -> Source:
    """How a stored tensor is read: as it is."""
    shape = stored.shape
    return Source(shape, stored.dtype, (stored.name,), (identity_piece(len(shape)),), (shape,))


def compose(selection: Selection, below: Sequence[Source]) -> Source:
    """How a selection is read from stored tensors, by how the tensors are that it reads itself."""
    shapes = {name: shape for source in below for name, shape in zip(source.stored, source.stored_shapes, strict=True)}
    names = tuple(shapes)
    renumbered = tuple(
        tuple(
            piece if piece.source < 0 else replace(piece, source=names.index(source.stored[piece.source]))
            for piece in source.pieces
        )
        for source in below
    )
    pieces = compose_pieces(selection.pieces, renumbered, selection.shape)
    return Source(selection.shape, selection.dtype, names, pieces, tuple(shapes.values()))


def map_makers(graph: Graph) -> dict[str, OpNode]:
    """The operator that makes each result, by name."""
    return {name: node for node in graph.nodes.values() for name in node.outputs}


def find_written_dtype(graph: Graph, maker: OpNode, name: str) -> str:
    """The dtype that the maker of a tensor writes: of partial results where it makes them."""
    return graph.written_dtypes(maker.name)[maker.outputs.index(name)]


def list_in_order(roots: Sequence[OpNode | Selection]) -> Iterator[OpNode | Selection]:
    """Nodes and selections, every one after what it reads."""
    makers = {out: item for item in roots for out in item.outputs}
    done: dict[int, bool] = {}  # False for those that wait on the stack for what they read
    for root in roots:
        stack: list[tuple[OpNode | Selection, bool]] = [(root, False)]
        while stack:
            item, ready = stack.pop()
            if done.get(id(item)):
                continue
            done[id(item)] = ready
            if ready:
                yield item
                continue
            stack.append((item, True))
            for name in item.inputs:
                below = makers.get(name)
                found = below is None or done.get(id(below))
                if found is False:
                    raise ValueError(f"node {quote(item.name)} is part of a cycle through {quote(name)}")
                if below is not None and not found:
                    stack.append((below, False))
