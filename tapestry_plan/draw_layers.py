"""Drawings of directed graphs in layers: each node after those that it follows, edges from layer to layer.

Layers are by longest path, nodes that follow none just before the first that follows them; edges over several layers
bend around what lies between. The order in a layer is by the mean place of neighbours, and the places are the nearest
ones to these means that do not overlap.

References
----------
K. Sugiyama, S. Tagawa, M. Toda: Methods for visual understanding of hierarchical system structures, 1981.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from tapestry_sets import canvas

Direction = Literal["right", "down"]

WIDEST_RIGHT = 1400
"""Graphs whose layers are wider than this in all are drawn downwards without being asked."""

BETWEEN_LAYERS, BETWEEN_NODES, LANE = 36, 14, 6
"""Pixels between layers, between the nodes of a layer, and across an edge that passes a layer."""

SWEEPS = 4
"""How often the layers are ordered, there and back, and then placed."""


@dataclass(frozen=True, slots=True)
class Node:
    """A drawing, what it is known by, and the nodes that it follows, all of which come before it."""

    key: str
    after: tuple[str, ...]
    drawing: canvas.Drawing


@dataclass(slots=True)
class _Slot:
    """A node in its layer, or where an edge passes a layer: its breadth across the layer, and its centre there."""

    key: str
    breadth: int
    centre: float = 0.0


def layered(nodes: Sequence[Node], direction: Direction | None = None) -> canvas.Drawing:
    """Nodes in layers, with an arrow from each to those that follow it.

    Parameters
    ----------
    nodes : sequence of Node
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
    >>> drawn = layered([Node("a", (), box), Node("b", ("a",), box)], "right")
    >>> drawn.width, drawn.height
    (116, 20)
    """
    if direction not in (None, *get_args(Direction)):
        raise ValueError(f"draw: direction is {direction!r}; it must be one of {list(get_args(Direction))}")
    depths = _depths(nodes)
    by_key = {node.key: node for node in nodes}
    wide = sum(_longest(by_key, depths, layer, False) + BETWEEN_LAYERS for layer in range(max(depths.values()) + 1))
    is_down = direction == "down" or (direction is None and wide > WIDEST_RIGHT)
    layers, edges = _slots(nodes, depths, is_down)
    _order(layers, edges)
    _place(layers, edges)
    return _drawn(by_key, layers, edges, is_down)


def _longest(by_key: Mapping[str, Node], depths: Mapping[str, int], layer: int, is_down: bool) -> int:
    drawings = [node.drawing for node in by_key.values() if depths[node.key] == layer]
    return max((drawing.height if is_down else drawing.width for drawing in drawings), default=0)


def _depths(nodes: Sequence[Node]) -> dict[str, int]:
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


def _slots(nodes: Sequence[Node], depths: Mapping[str, int], is_down: bool) -> tuple[list[list[_Slot]], Edges]:
    """The layers, in which lines that pass have slots too; all lines from a node pass a layer in one."""
    layers: list[list[_Slot]] = [[] for _ in range(max(depths.values()) + 1)]
    edges: Edges = {}
    for node in nodes:
        breadth = node.drawing.width if is_down else node.drawing.height
        layers[depths[node.key]].append(_Slot(node.key, breadth))
    reach: dict[str, int] = {}
    for node in nodes:
        for key in node.after:
            at = reach.setdefault(key, depths[key])
            for layer in range(at + 1, depths[node.key]):
                edges.setdefault(_lane(key, layer - 1, depths), []).append(_lane(key, layer, depths))
                layers[layer].append(_Slot(_lane(key, layer, depths), LANE))
                reach[key] = layer
            edges.setdefault(_lane(key, depths[node.key] - 1, depths), []).append(node.key)
    return layers, edges


def _lane(key: str, layer: int, depths: Mapping[str, int]) -> str:
    """What is known of a node in a later layer: the node itself, or the line that passes."""
    return key if depths[key] == layer else f"lane {layer} {key}"


def _neighbours(edges: Edges) -> tuple[Edges, Edges]:
    back: Edges = {}
    for one, others in edges.items():
        for other in others:
            back.setdefault(other, []).append(one)
    return back, edges


def _order(layers: list[list[_Slot]], edges: Edges) -> None:
    """Sort each layer by the mean place of the neighbours in the layer before, and on the way back of those after."""
    places = {slot.key: float(k) for layer in layers for k, slot in enumerate(layer)}
    for sweep in range(2 * SWEEPS):
        near = _neighbours(edges)[sweep % 2]
        for layer in layers if sweep % 2 == 0 else reversed(layers):
            layer.sort(key=lambda slot: _mean([places[key] for key in near.get(slot.key, ())], places[slot.key]))
            places |= {slot.key: float(k) for k, slot in enumerate(layer)}


def _mean(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise


def _place(layers: list[list[_Slot]], edges: Edges) -> None:
    """Set the centres: as near to the neighbours' as the slots' breadths allow."""
    back, forth = _neighbours(edges)
    centres: dict[str, float] = {}
    for layer in layers:
        _apart(layer, [0.0] * len(layer), centres)
    for sweep in range(2 * SWEEPS):
        for layer in layers if sweep % 2 == 0 else reversed(layers):
            wanted = [
                _mean([centres[k] for k in (*back.get(s.key, ()), *forth.get(s.key, ()))], s.centre) for s in layer
            ]
            _apart(layer, wanted, centres)
    least = min(slot.centre - slot.breadth / 2 for layer in layers for slot in layer)
    for layer in layers:
        for slot in layer:
            slot.centre -= least


def _apart(layer: Sequence[_Slot], wanted: Sequence[float], centres: dict[str, float]) -> None:
    """Put slots where the sum of the squared distances from the wanted centres is least, in order, without overlap."""
    offsets = [0.0]
    for one, two in zip(layer, layer[1:], strict=False):
        gap = LANE if LANE in (one.breadth, two.breadth) else BETWEEN_NODES
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
        slot.centre = centres[slot.key] = round(place + offset, 1)


def _drawn(
    by_key: Mapping[str, Node], layers: Sequence[Sequence[_Slot]], edges: Edges, is_down: bool
) -> canvas.Drawing:
    """The nodes at their places, centred in their layers, and the lines between."""
    begins: list[int] = []
    depth = 0
    lengths = [
        max((by_key[s.key].drawing[1 if is_down else 0] for s in layer if s.key in by_key), default=0)
        for layer in layers
    ]
    for length in lengths:
        begins.append(depth)
        depth += length + BETWEEN_LAYERS
    ends: dict[str, tuple[float, float, float]] = {}  # of each slot: where it begins and ends along, its centre across
    parts: list[str] = []
    for layer, begin, length in zip(layers, begins, lengths, strict=True):
        for slot in layer:
            if slot.key not in by_key:
                ends[slot.key] = (begin, begin + length, slot.centre)
                continue
            drawing = by_key[slot.key].drawing
            own = drawing.height if is_down else drawing.width
            start = begin + (length - own) // 2
            ends[slot.key] = (start, start + own, slot.centre)
            x, y = start, round(slot.centre - slot.breadth / 2)
            x, y = (y, x) if is_down else (x, y)
            parts += [f'<g transform="translate({x},{y})">', *drawing.parts, "</g>"]
    lines = _lines(by_key, ends, edges, (lambda a, c: (c, a)) if is_down else (lambda a, c: (a, c)))
    across = round(max(slot.centre + slot.breadth / 2 for layer in layers for slot in layer) + 0.5)
    along = depth - BETWEEN_LAYERS
    return canvas.Drawing(*((across, along) if is_down else (along, across)), tuple([*lines, *parts]))


def _lines(
    by_key: Mapping[str, Node],
    ends: Mapping[str, tuple[float, float, float]],
    edges: Edges,
    turned: Callable[[float, float], tuple[float, float]],
) -> list[str]:
    """The edges as curves, straight where they pass a layer, each with a head where it reaches a node."""

    def point(along: float, across: float) -> str:
        x, y = turned(along, across)
        return f"{x:g} {y:g}"

    parts = []
    for one, others in edges.items():
        _, begin, centre = ends[one]
        for other in others:
            arrive, leave, there = ends[other]
            middle, stop = (begin + arrive) / 2, arrive - (5 if other in by_key else 0)
            d = f"M{point(begin, centre)}C{point(middle, centre)} {point(middle, there)} {point(stop, there)}"
            d += "" if other in by_key else f"L{point(leave, there)}"
            parts.append(f'<path d="{d}" fill="none" stroke="{canvas.INK}"/>')
            if other in by_key:
                head = f"M{point(arrive, there)}L{point(arrive - 7, there - 3.5)}L{point(arrive - 7, there + 3.5)}z"
                parts.append(f'<path d="{head}" fill="{canvas.INK}"/>')
    return parts
