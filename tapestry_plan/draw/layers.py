"""Drawings of directed graphs in layers: each node after those that it follows, edges from layer to layer.

Layers are by longest path, nodes that follow none just before the first that follows them; edges over several layers
bend around what lies between. The order in a layer is by the mean place of neighbors, and the places are the nearest
ones to these means that do not overlap.

References
----------
K. Sugiyama, S. Tagawa, M. Toda: Methods for visual understanding of hierarchical system structures, 1981.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Literal, get_args

from msgspec import Struct

from tapestry_plan.draw import tuning
from tapestry_sets.draw import canvas
from tapestry_sets.limits import quote

Direction = Literal["right", "down"]


class LayerNode(Struct, frozen=True):
    """A drawing, what it is known by, and the nodes that it follows, all of which come before it."""

    key: str
    after: tuple[str, ...]
    drawing: canvas.Drawing

    def along(self, is_down: bool) -> int:
        """Its length in the direction in which the layers follow each other."""
        return self.drawing.height if is_down else self.drawing.width

    def across(self, is_down: bool) -> int:
        """Its length in the other direction."""
        return self.drawing.width if is_down else self.drawing.height


class _Slot(Struct):
    """A node in its layer, or where an edge passes a layer: its breadth across the layer, and its center there."""

    key: str
    breadth: int
    center: float = 0.0


def layered(nodes: Sequence[LayerNode], direction: Direction | None = None) -> canvas.Drawing:
    """Nodes in layers, with an arrow from each to those that follow it.

    Parameters
    ----------
    nodes : sequence of LayerNode
        At least one.
    direction : "right" or "down", optional
        From the first to the last layer; by default "right" where that is not too wide.

    Raises
    ------
    ValueError
        For another direction.

    Examples
    --------
    >>> box = canvas.Drawing(40, 20, ())
    >>> drawn = layered([LayerNode("a", (), box), LayerNode("b", ("a",), box)], "right")
    >>> drawn.width, drawn.height
    (116, 20)
    """
    if direction not in (None, *get_args(Direction)):
        raise ValueError(f"draw: direction is {quote(direction)}; it must be one of {list(get_args(Direction))}")
    depths = _depths(nodes)
    by_key = {node.key: node for node in nodes}
    longest: dict[int, int] = {}
    for node in nodes:
        longest[depths[node.key]] = max(longest.get(depths[node.key], 0), node.along(False))
    wide = sum(longest.values()) + tuning.BETWEEN_LAYERS * len(longest)
    room = min(tuning.MAX_RIGHT, canvas.page_width() * 3 // 2)
    is_down = direction == "down" or (direction is None and wide > room)
    layers, edges = _slots(nodes, depths, is_down)
    _order(layers, edges)
    _place(layers, edges)
    return _drawn(by_key, layers, edges, is_down)


def _depths(nodes: Sequence[LayerNode]) -> dict[str, int]:
    """The layer of each node."""
    depths: dict[str, int] = {}
    first: dict[str, int] = {}
    for node in nodes:
        depths[node.key] = 1 + max((depths[key] for key in node.after), default=-1)
    for node in nodes:
        for key in node.after:
            first[key] = min(first.get(key, depths[node.key]), depths[node.key])
    for node in nodes:
        if not node.after and node.key in first:
            depths[node.key] = first[node.key] - 1
    return depths


Edges = dict[str, list[str]]
"""For each slot those of the next layer to which a line goes from it."""


def _slots(nodes: Sequence[LayerNode], depths: Mapping[str, int], is_down: bool) -> tuple[list[list[_Slot]], Edges]:
    """The layers, in which lines that pass have slots too; all lines from a node pass a layer in one."""
    layers: list[list[_Slot]] = [[] for _ in range(max(depths.values()) + 1)]
    edges: Edges = {}
    for node in nodes:
        layers[depths[node.key]].append(_Slot(node.key, node.across(is_down)))
    reach: dict[str, int] = {}
    for node in nodes:
        for key in node.after:
            at = reach.setdefault(key, depths[key])
            for layer in range(at + 1, depths[node.key]):
                edges.setdefault(_lane(key, layer - 1, depths), []).append(_lane(key, layer, depths))
                layers[layer].append(_Slot(_lane(key, layer, depths), tuning.LANE))
                reach[key] = layer
            edges.setdefault(_lane(key, depths[node.key] - 1, depths), []).append(node.key)
    return layers, edges


def _lane(key: str, layer: int, depths: Mapping[str, int]) -> str:
    """What is known of a node in a later layer: the node itself, or the line that passes."""
    return key if depths[key] == layer else f"lane {layer} {key}"


def _neighbors(edges: Edges) -> tuple[Edges, Edges]:
    back: Edges = {}
    for one, others in edges.items():
        for other in others:
            back.setdefault(other, []).append(one)
    return back, edges


def _order(layers: list[list[_Slot]], edges: Edges) -> None:
    """Sort each layer by the mean place of the neighbors in the layer before, and on the way back of those after."""
    places = {slot.key: float(k) for layer in layers for k, slot in enumerate(layer)}
    for sweep in range(2 * tuning.SWEEPS):
        near = _neighbors(edges)[sweep % 2]
        for layer in layers if sweep % 2 == 0 else reversed(layers):
            layer.sort(key=lambda slot: _mean([places[key] for key in near.get(slot.key, ())], places[slot.key]))
            places |= {slot.key: float(k) for k, slot in enumerate(layer)}


def _mean(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise


def _place(layers: list[list[_Slot]], edges: Edges) -> None:
    """Set the centers: as near to the neighbors' as the slots' breadths allow."""
    back, forth = _neighbors(edges)
    centers: dict[str, float] = {}
    for layer in layers:
        _apart(layer, [0.0] * len(layer), centers)
    for sweep in range(2 * tuning.SWEEPS):
        for layer in layers if sweep % 2 == 0 else reversed(layers):
            wanted = [
                _mean([centers[k] for k in (*back.get(s.key, ()), *forth.get(s.key, ()))], s.center) for s in layer
            ]
            _apart(layer, wanted, centers)
    least = min(slot.center - slot.breadth / 2 for layer in layers for slot in layer)
    for layer in layers:
        for slot in layer:
            slot.center -= least


def _apart(layer: Sequence[_Slot], wanted: Sequence[float], centers: dict[str, float]) -> None:
    """Put slots where the sum of the squared distances from the wanted centers is least, in order, without overlap."""
    offsets = [0.0]
    for one, two in pairwise(layer):
        gap = tuning.LANE if tuning.LANE in (one.breadth, two.breadth) else tuning.BETWEEN_NODES
        offsets.append(offsets[-1] + (one.breadth + two.breadth) / 2 + gap)
    blocks: list[tuple[float, int]] = []  # sum and number of the wanted places that are merged: pool adjacent violators
    for want, offset in zip(wanted, offsets, strict=False):
        total, count = want - offset, 1
        while blocks and blocks[-1][0] / blocks[-1][1] >= total / count:
            before, number = blocks.pop()
            total, count = total + before, count + number
        blocks.append((total, count))
    found = [total / count for total, count in blocks for _ in range(count)]
    for slot, place, offset in zip(layer, found, offsets, strict=False):
        slot.center = centers[slot.key] = round(place + offset, 1)


Span = tuple[float, float, float]
"""Where a slot begins and ends in the direction of the layers, and its center across."""


def _drawn(
    by_key: Mapping[str, LayerNode], layers: Sequence[Sequence[_Slot]], edges: Edges, is_down: bool
) -> canvas.Drawing:
    """The nodes at their places, centered in their layers, and the lines between."""
    spans, length = _spans(by_key, layers, is_down)
    parts = _lines(by_key, spans, edges, is_down)
    for number, (key, node) in enumerate(by_key.items()):
        begin, _, center = spans[key]
        x, y = _turned(begin, round(center - node.across(is_down) / 2), is_down)
        parts += [f'<g transform="translate({x:g},{y:g})" data-number="{number}">', *node.drawing.parts, "</g>"]
    breadth = round(max(slot.center + slot.breadth / 2 for layer in layers for slot in layer) + 0.5)
    width, height = (breadth, length) if is_down else (length, breadth)
    return canvas.Drawing(width, height, tuple(parts))


def _spans(
    by_key: Mapping[str, LayerNode], layers: Sequence[Sequence[_Slot]], is_down: bool
) -> tuple[dict[str, Span], int]:
    """Where each slot is, and how long the layers are in all."""
    spans: dict[str, Span] = {}
    begin = 0
    for layer in layers:
        own = {slot.key: by_key[slot.key].along(is_down) for slot in layer if slot.key in by_key}
        length = max(own.values())
        for slot in layer:
            start = begin + (length - own.get(slot.key, length)) // 2
            spans[slot.key] = (start, start + own.get(slot.key, length), slot.center)
        begin += length + tuning.BETWEEN_LAYERS
    return spans, begin - tuning.BETWEEN_LAYERS


def _turned(along: float, across: float, is_down: bool) -> tuple[float, float]:
    return (across, along) if is_down else (along, across)


def _lines(by_key: Mapping[str, LayerNode], spans: Mapping[str, Span], edges: Edges, is_down: bool) -> list[str]:
    """The edges as curves, straight where they pass a layer, each with a head where it reaches a node."""

    def point(along: float, across: float) -> str:
        x, y = _turned(along, across, is_down)
        return f"{x:g} {y:g}"

    parts = []
    numbers = {key: k for k, key in enumerate(by_key)}
    for one, others in edges.items():
        _, begin, center = spans[one]
        source = one if one in by_key else one.split(" ", 2)[2]
        for other in others:
            arrive, leave, there = spans[other]
            middle, stop = (begin + arrive) / 2, arrive - (5 if other in by_key else 0)
            d = f"M{point(begin, center)}C{point(middle, center)} {point(middle, there)} {point(stop, there)}"
            d += "" if other in by_key else f"L{point(leave, there)}"
            parts.append(f'<path d="{d}" fill="none" stroke="{canvas.INK}"/>')
            if other in by_key:
                head = f"M{point(arrive, there)}L{point(arrive - 7, there - 3.5)}L{point(arrive - 7, there + 3.5)}z"
                ends = f"{numbers[source]} {numbers[other]}"
                parts.append(f'<path d="{head}" fill="{canvas.INK}" data-edge="{ends}"/>')
    return parts
