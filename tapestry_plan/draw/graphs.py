"""Pictures of graphs: tensors, operators and selections in layers, and the cells that chosen shards read and write.

Graphs are taken by their verbs, so that this module imports them not and they can draw themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce
from operator import or_
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from tapestry_plan.draw import tuning
from tapestry_plan.draw.folded import folded_drawing, folded_lines
from tapestry_plan.draw.folding import fold
from tapestry_plan.draw.layers import Direction, LayerNode, layered
from tapestry_plan.draw.nodes import boxed, color_key, cut_box, plain_box, round_box, short, word
from tapestry_plan.draw.plots import Plot
from tapestry_plan.draw.projections import index_boxes, index_plot, operand_plots, plain
from tapestry_plan.ir import Operation, Parts
from tapestry_sets.draw import Picture, canvas
from tapestry_sets.limits import OPEN, TooManyPieces, ask_one, cut_text, list_names, quote, tell_count
from tapestry_sets.regions import Box, DisjointRegions
from tapestry_sets.views import piece_image


def draw_graph(
    graph: Any,
    order: Sequence[Any],
    shards: Mapping[str, Parts] | None = None,
    direction: Direction | None = None,
    folded: bool | None = None,
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
    folded : bool, optional
        Whether repeated blocks are drawn once; by default of large graphs.
    """
    if folded and shards:
        raise ValueError("draw: shards are drawn in graphs that are not folded; leave one of shards and folded out")
    count = len(graph.stored) + len(order)
    if folded or (folded is None and not shards and count > tuning.SHOWN_NODES):
        return _draw_folded(graph, direction)
    sharded = dict(_sharded(graph, shards or {}))
    title = f"graph {plain(graph.name)}" + ("" if graph.stored else " is empty: it has no tensors yet")
    lines = [*_lines(graph, order, title), *(line for one in sharded.values() for line in ["", *one.lines()])]

    def draw() -> tuple[str, str]:
        nodes = list(_nodes(graph, order, sharded))
        drawn = [layered(nodes, direction), color_key()] if nodes else []
        return "\n".join(lines), canvas.document(canvas.below(drawn, 14), title)

    return canvas.draw_twice(draw)


def _draw_folded(graph: Any, direction: Direction | None) -> Picture:
    """A picture in which each repeated block is once."""
    parts = fold(graph)
    title = f"graph {plain(graph.name)}, repeated blocks drawn once"
    text = "\n".join([title, *folded_lines(graph, parts)])

    def draw() -> tuple[str, str]:
        drawn = [folded_drawing(graph, parts, direction), color_key()] if parts else []
        return text, canvas.document(canvas.below(drawn, 14), title)

    return canvas.draw_twice(draw)


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
            yield f"  {stored.kind:8} {word(stored.name)}: {stored.dtype}{list(stored.shape)}"
    for item in items:
        reads = ", ".join(map(word, item.inputs))
        if hasattr(item, "op"):
            outs = ", ".join(f"{word(name)}: {list(graph.stored[name].shape)}" for name in item.outputs)
            yield f"  op       {outs} = {word(item.op)}({reads})"
        else:
            yield f"  view     {word(item.name)}: {list(item.shape)} = {word(item.label)}({reads})"
    for label, name in graph.outputs.items():
        yield f"  output   {word(label)} = {word(name)}"


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
        lines = [short(name), f"{stored.dtype} {list(stored.shape)}"]
        lines += [f"{kind}"] if kind != "result" else []
        lines += [f"output {short(label)}" for label in labels.get(name, ())]
        return boxed(f"tensor {name}", after, lines, kind, plots.get(name, ()), plain_box)

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
            lines = [short(item.label), f"{short(item.name)} {list(item.shape)}"]
            lines += [f"output {short(label)}" for label in labels.get(item.name, ())]
            yield boxed(f"view {item.name}", after, lines, "view", plots.get(item.name, ()), round_box)
            continue
        yield _op_node(graph, item, after, sharded.get(item.name))
        for name in item.outputs:
            yield tensor(name, "result", [f"op {item.name}"])


def _op_node(graph: Any, item: Any, after: Sequence[str], sharded: _Sharded | None) -> LayerNode:
    """An operator with its index axes, and its index space where shards of it are drawn."""
    axes = graph.signature(item.name).axes
    lines = [short(item.op), *([short(item.name)] if item.name != item.op else [])]
    for kind in ("parallel", "reduction"):
        words = ", ".join(f"{axis.name} {axis.size}" for axis in axes if axis.kind == kind)
        lines += [f"{kind} {cut_text(words, 48)}"] if words else []
    parts = 0 if sharded is None else len(sharded.index.cells)
    caption = f"index space, {tell_count(parts, 'part')}"
    plots = () if sharded is None else (replace(sharded.index, caption=caption),)
    return boxed(f"op {item.name}", after, lines, "op", plots, cut_box)


def _caption(plot: Plot, node: Any) -> str:
    verb = "written" if plot.role.startswith("output") else "read"
    through = ", through views" if plot.role.endswith("through") else ""
    return f"{verb} by {short(node.name)}{through}"
