"""What is read where a tensor is read: the stored ones behind it, and their cells."""

from __future__ import annotations

from collections.abc import Iterable

from tapestry_plan.ir import Graph, Source
from tapestry_plan.search.cost import unite
from tapestry_sets.regions import DisjointRegions
from tapestry_sets.views import piece_image


def stored_behind(graph: Graph, names: Iterable[str]) -> list[str]:
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
