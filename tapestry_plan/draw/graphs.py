"""Pictures of graphs: tensors, operators and selections in layers, and the cells that chosen shards read and write.

Graphs are taken by their verbs, so that this module imports them not and they can draw themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from operator import or_
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from tapestry_plan.draw import tuning
from tapestry_plan.draw.layers import Direction, LayerNode, layered
from tapestry_plan.draw.plots import Plot
from tapestry_plan.draw.projections import index_boxes, index_plot, operand_plots, plain
from tapestry_plan.ir import Operation, Parts, fill_draw_graph
from tapestry_sets.draw import Picture, canvas
from tapestry_sets.limits import OPEN, TooManyPieces, ask_one, cut_text, list_names, quote
from tapestry_sets.regions import Box, DisjointRegions
from tapestry_sets.views import piece_image

FILLS = {"input": "#d6eaf8", "constant": "#fdebd0", "result": canvas.PAPER, "op": "#e5e8e8", "view": "#ebdef0"}
"""Colors of the nodes, as the documents have them."""


def draw_graph(
    graph: Any,
    order: Sequence[Any],
    shards: Mapping[str, Parts] | None = None,
    direction: Direction | None = None,
) -> Picture:
    """A picture of a graph; see `Graph.draw`.

    Parameters
    ----------
    graph : Graph
    order : sequence of OpNode and Selection
        Those of the graph, each after what it reads.
    shards : mapping, optional
        For each operator to be shown with its shards, by name, the parts, as `show_projection` takes them.
    direction : "right" or "down", optional
        Where results are; by default "right" for graphs of a few layers.
    """
    sharded = dict(_sharded(graph, shards or {}))
    nodes = list(_nodes(graph, order, sharded))
    title = f"graph {plain(graph.name)}" + ("" if nodes else " is empty: it has no tensors yet")
    lines = [*_lines(graph, order, title), *(line for one in sharded.values() for line in ["", *one.lines()])]
    drawn = [*([layered(nodes, direction)] if nodes else []), *([_key()] if nodes else [])]
    return Picture("\n".join(lines), canvas.document(canvas.below(drawn, 14), title))


class _Sharded(Struct):
    """The plots of an operator: of its index space, and of its inputs and outputs in order."""

    node: Any
    index: Plot
    operands: list[Plot]
    stored: list[tuple[str, Plot]] = field(default_factory=list)

    def lines(self) -> Iterator[str]:
        """As text."""
        yield f"shards of {plain(self.node.name)} ({plain(self.node.op)})"
        for plot in (self.index, *self.operands, *(plot for _, plot in self.stored)):
            yield plot.text()


def _sharded(graph: Any, shards: Mapping[str, Parts]) -> Iterator[tuple[str, _Sharded]]:
    for name, parts in shards.items():
        if name not in graph.nodes:
            raise ValueError(
                f"draw: graph {quote(graph.name)} has no operator {quote(name)}; "
                + list_names(graph.nodes, name, "operators")
            )
        op = Operation(graph, graph.nodes[name])
        boxes = index_boxes(op.signature, parts, f"draw: shards of {quote(name)}")
        operands = operand_plots(op, boxes)
        yield name, _Sharded(op.node, index_plot(op.signature, boxes), operands, list(_behind(op, operands)))


def _behind(op: Operation, operands: Sequence[Plot]) -> Iterator[tuple[str, Plot]]:
    """What the shards read of stored tensors through selections."""
    for plot, name in zip(operands, op.node.inputs, strict=False):
        source = op.graph.source(name)
        if source.direct:
            continue
        for k, stored in enumerate(source.stored):
            shape = op.graph.stored[stored].shape
            cells = ask_one((TooManyPieces,), _pulled, source, k, plot.inside, shape)
            if cells is OPEN:  # the picture has the view itself
                continue
            words = f"{plain(stored)} {op.graph.stored[stored].dtype} {shape} through {plain(name)}"
            yield stored, Plot(f"{plot.role} through", words, (), Box.of(shape), cells)


def _pulled(
    source: Any, number: int, reads: Iterable[DisjointRegions], shape: tuple[int, ...]
) -> tuple[DisjointRegions, ...]:
    """For each set of cells of a view, the cells of a stored tensor that they are."""
    pieces = [piece for piece in source.pieces if piece.source == number]
    images = ((piece_image(piece, read, within=shape) for piece in pieces) for read in reads)
    return tuple(reduce(or_, image, DisjointRegions(shape)) for image in images)


# ---------------------------------------------------------------------------------------------------------- text


def _lines(graph: Any, items: Sequence[Any], title: str) -> Iterator[str]:
    """A line for each tensor, selection and operator."""
    yield title
    for stored in graph.stored.values():
        if stored.kind != "result":
            yield f"  {stored.kind:8} {_word(stored.name)}: {stored.dtype}{list(stored.shape)}"
    for item in items:
        reads = ", ".join(map(_word, item.inputs))
        if hasattr(item, "op"):
            outs = ", ".join(f"{_word(name)}: {list(graph.stored[name].shape)}" for name in item.outputs)
            yield f"  op       {outs} = {_word(item.op)}({reads})"
        else:
            yield f"  view     {_word(item.name)}: {list(item.shape)} = {_word(item.label)}({reads})"
    for label, name in graph.outputs.items():
        yield f"  output   {_word(label)} = {_word(name)}"


def _word(name: str) -> str:
    """A name as a part of a line."""
    return name if name.isprintable() else repr(name)


# ------------------------------------------------------------------------------------------------------- drawing


def _nodes(graph: Any, items: Sequence[Any], sharded: Mapping[str, _Sharded]) -> Iterator[LayerNode]:
    """The nodes of the drawing, each after those that it follows."""
    plots: dict[str, list[Plot]] = {}
    for one in sharded.values():
        names = (*one.node.inputs, *one.node.outputs)
        for plot, name in (*zip(one.operands, names, strict=True), *((p, n) for n, p in one.stored)):
            plots.setdefault(name, []).append(replace(plot, caption=_caption(plot, one.node)))
    labels: dict[str, list[str]] = {}
    for label, name in graph.outputs.items():
        labels.setdefault(name, []).append(label)

    def tensor(name: str, kind: str, after: Sequence[str]) -> LayerNode:
        stored = graph.stored[name]
        lines = [_short(name), f"{stored.dtype} {list(stored.shape)}"]
        lines += [f"{kind}"] if kind != "result" else []
        lines += [f"output {_short(label)}" for label in labels.get(name, ())]
        return _boxed(f"tensor {name}", after, lines, kind, plots.get(name, ()), _plain_box)

    for stored in graph.stored.values():
        if stored.kind != "result":
            yield tensor(stored.name, stored.kind, ())
    made = {name: f"tensor {name}" for name in graph.stored} | {name: f"view {name}" for name in graph.selections}
    for item in items:
        missing = [name for name in item.inputs if name not in made]
        if missing:
            raise ValueError(
                f"draw: {quote(item.name)} reads {quote(missing[0])}, which the graph does not have; validate() it"
            )
        after = [made[name] for name in dict.fromkeys(item.inputs)]
        if not hasattr(item, "op"):
            lines = [_short(item.label), f"{_short(item.name)} {list(item.shape)}"]
            lines += [f"output {_short(label)}" for label in labels.get(item.name, ())]
            yield _boxed(f"view {item.name}", after, lines, "view", plots.get(item.name, ()), _round_box)
            continue
        yield _op_node(graph, item, after, sharded.get(item.name))
        for name in item.outputs:
            yield tensor(name, "result", [f"op {item.name}"])


def _op_node(graph: Any, item: Any, after: Sequence[str], sharded: _Sharded | None) -> LayerNode:
    """An operator with its index axes, and its index space where shards of it are drawn."""
    axes = graph.signature(item.name).axes
    lines = [_short(item.op), *([_short(item.name)] if item.name != item.op else [])]
    for kind in ("parallel", "reduction"):
        words = ", ".join(f"{axis.name} {axis.size}" for axis in axes if axis.kind == kind)
        lines += [f"{kind} {cut_text(words, 48)}"] if words else []
    parts = 0 if sharded is None else len(sharded.index.cells)
    caption = f"index space, {parts} part{'s' * (parts != 1)}"
    plots = () if sharded is None else (replace(sharded.index, caption=caption),)
    return _boxed(f"op {item.name}", after, lines, "op", plots, _cut_box)


def _caption(plot: Plot, node: Any) -> str:
    verb = "written" if plot.role.startswith("output") else "read"
    through = ", through views" if plot.role.endswith("through") else ""
    return f"{verb} by {_short(node.name)}{through}"


def _short(name: str) -> str:
    return plain(name, tuning.SHOWN_NAME)


Outline = Callable[[int, int], str]


def _boxed(
    key: str, after: Sequence[str], lines: Sequence[str], kind: str, plots: Sequence[Plot], shape: Outline
) -> LayerNode:
    """A node of some lines, the first of them bold, and of plots below each other."""
    first = canvas.written(0, canvas.SMALL + 1, lines[0], size=12).replace("<text ", '<text font-weight="bold" ', 1)
    words = [canvas.Drawing(len(lines[0]) * 8, canvas.LINE, (first,)), *map(canvas.as_drawn, lines[1:])]
    body = canvas.below([canvas.below(words, 0), *(plot.drawing() for plot in plots)], 8)
    side, top = (12 if shape is _cut_box else 8), 6
    wide, tall = body.width + 2 * side, body.height + 2 * top
    back = f'<path d="{shape(wide, tall)}" fill="{FILLS[kind]}" stroke="{canvas.FAINT}"/>'
    inside = [f'<g data-node="{kind}">', back, f'<g transform="translate({side},{top})">', *body.parts, "</g>", "</g>"]
    return LayerNode(key, tuple(after), canvas.Drawing(wide, tall, tuple(inside)))


def _plain_box(wide: int, tall: int) -> str:
    return f"M0 0h{wide}v{tall}h-{wide}z"


def _round_box(wide: int, tall: int) -> str:
    r = 8
    across, down = wide - 2 * r, tall - 2 * r
    return (
        f"M{r} 0h{across}a{r} {r} 0 0 1 {r} {r}v{down}a{r} {r} 0 0 1 -{r} {r}"
        f"h-{across}a{r} {r} 0 0 1 -{r} -{r}v-{down}a{r} {r} 0 0 1 {r} -{r}z"
    )


def _cut_box(wide: int, tall: int) -> str:
    c = 9
    across, down = wide - 2 * c, tall - 2 * c
    return f"M{c} 0h{across}l{c} {c}v{down}l-{c} {c}h-{across}l-{c} -{c}v-{down}z"


def _key() -> canvas.Drawing:
    """What the colors of the nodes mean."""
    parts: list[str] = []
    x = 0
    for kind, fill in FILLS.items():
        words = {"op": "operator", "view": "selection, not stored"}.get(kind, kind)
        parts.append(f'<path d="M{x} 1h12v12h-12z" fill="{fill}" stroke="{canvas.FAINT}"/>')
        parts.append(canvas.written(x + 18, canvas.SMALL + 1, words))
        x += 18 + canvas.breadth(words) + 16
    return canvas.Drawing(x, canvas.LINE, tuple(parts))


fill_draw_graph(draw_graph)
