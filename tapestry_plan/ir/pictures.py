"""The one hook through which a graph draws itself: the wing `draw` stands above graphs and fills it in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tapestry_sets.draw import Picture
from tapestry_sets.regions import Box

Parts = Mapping[str, int] | Box | Sequence[Box]
"""How an operator is cut: parts by index axis, or boxes of its index space."""


DrawGraph = Callable[..., Picture]
"""``(graph, its items in order, shards, direction)``: draws a graph, with what the given shards read and write."""

draw_graph: DrawGraph


def fill_draw_graph(function: DrawGraph) -> None:
    """Let graphs draw themselves by this function; `draw` calls it once."""
    global draw_graph
    draw_graph = function
