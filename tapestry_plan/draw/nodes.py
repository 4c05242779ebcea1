"""Nodes of drawings of graphs: boxes of words and plots, and what their colors mean."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tapestry_plan.draw import tuning
from tapestry_plan.draw.layers import LayerNode
from tapestry_plan.draw.plots import Plot
from tapestry_plan.draw.projections import plain
from tapestry_sets.draw import canvas

FILLS = {"input": "#d6eaf8", "constant": "#fdebd0", "result": canvas.PAPER, "op": "#e5e8e8", "view": "#ebdef0"}
"""Colors of the nodes, as the documents have them."""


def word(name: str) -> str:
    """A name as a part of a line."""
    return name if name.isprintable() else repr(name)


def short(name: str) -> str:
    """A name as it is in a node."""
    return plain(name, tuning.SHOWN_NAME)


Outline = Callable[[int, int], str]


def boxed(
    key: str, after: Sequence[str], lines: Sequence[str], kind: str, plots: Sequence[Plot], shape: Outline
) -> LayerNode:
    """A node of some lines, the first of them bold, and of plots below each other."""
    first = canvas.written(0, canvas.SMALL + 1, lines[0], size=12).replace("<text ", '<text font-weight="bold" ', 1)
    words = [canvas.Drawing(len(lines[0]) * 8, canvas.LINE, (first,)), *map(canvas.as_drawn, lines[1:])]
    body = canvas.below([canvas.below(words, 0), *(plot.drawing() for plot in plots)], 8)
    side, top = (12 if shape is cut_box else 8), 6
    wide, tall = body.width + 2 * side, body.height + 2 * top
    back = f'<path d="{shape(wide, tall)}" fill="{FILLS[kind]}" stroke="{canvas.FAINT}"/>'
    inside = [f'<g data-node="{kind}">', back, f'<g transform="translate({side},{top})">', *body.parts, "</g>", "</g>"]
    return LayerNode(key, tuple(after), canvas.Drawing(wide, tall, tuple(inside)))


def plain_box(wide: int, tall: int) -> str:
    return f"M0 0h{wide}v{tall}h-{wide}z"


def round_box(wide: int, tall: int) -> str:
    r = 8
    across, down = wide - 2 * r, tall - 2 * r
    return (
        f"M{r} 0h{across}a{r} {r} 0 0 1 {r} {r}v{down}a{r} {r} 0 0 1 -{r} {r}"
        f"h-{across}a{r} {r} 0 0 1 -{r} -{r}v-{down}a{r} {r} 0 0 1 {r} -{r}z"
    )


def cut_box(wide: int, tall: int) -> str:
    c = 9
    across, down = wide - 2 * c, tall - 2 * c
    return f"M{c} 0h{across}l{c} {c}v{down}l-{c} {c}h-{across}l-{c} -{c}v-{down}z"


def color_key() -> canvas.Drawing:
    """What the colors of the nodes mean."""
    parts: list[str] = []
    x = 0
    for kind, fill in FILLS.items():
        words = {"op": "operator", "view": "selection, not stored"}.get(kind, kind)
        parts.append(f'<path d="M{x} 1h12v12h-12z" fill="{fill}" stroke="{canvas.FAINT}"/>')
        parts.append(canvas.written(x + 18, canvas.SMALL + 1, words))
        x += 18 + canvas.breadth(words) + 16
    return canvas.Drawing(x, canvas.LINE, tuple(parts))
