"""Pictures of a plan: on which devices the cells of its inputs begin, and those of its outputs end."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tapestry_plan.draw import tuning
from tapestry_plan.draw.plots import Plot
from tapestry_plan.draw.projections import plain
from tapestry_plan.steps import HOST, Copy, Output, ShardPlan
from tapestry_sets.draw import Picture, canvas
from tapestry_sets.limits import check_arguments, cut_text, list_names, quote
from tapestry_sets.regions import Box, DisjointRegions, Region
from tapestry_sets.views import Guard, Piece, piece_domain


@check_arguments(names="give names of inputs, constants and outputs, as ['x', 'y']")
def show_placement(plan: ShardPlan, names: Collection[str] | None = None, *, title: str = "") -> Picture:
    """A picture of where tensors lie: the cells of inputs that each device begins with, of outputs that it ends with.

    Cells that several devices have are marked ``X`` and counted.

    Parameters
    ----------
    plan : ShardPlan
    names : collection of str, optional
        Inputs, constants and outputs of the graph; by default its inputs and outputs, the first eight.
    title : str
        The words above the picture.

    Returns
    -------
    Picture

    Raises
    ------
    ValueError
        For names that are not of such tensors.

    Examples
    --------
    Of y, which is x flipped, the devices have what they have of x, and nothing moves:

    >>> from tapestry_plan import Graph, Mesh, ops, plan
    >>> g = Graph()
    >>> _ = g.output(ops.tanh(ops.exp(g.input("x", (8,))).flip()), "y")
    >>> show_placement(plan(g, Mesh((2,))))
    x, an input: float32 (8,)
    0 2 4 6
    11110000
    0  device 0 has [4:8]: 4 of 8 cells
    1  device 1 has [0:4]: 4 of 8 cells
    <BLANKLINE>
    y, an output: float32 (8,)
    0 2 4 6
    00001111
    0  device 0 has [0:4]: 4 of 8 cells
    1  device 1 has [4:8]: 4 of 8 cells
    """
    graph = plan.graph
    starts = [name for name, tensor in graph.stored.items() if tensor.kind != "result"]
    ends = {output.name: output for output in plan.outputs}
    known = [*starts, *(name for name in ends if name not in starts)]
    for name in names or ():
        if name not in known:
            raise ValueError(
                f"show_placement: {quote(name)} is not an input, a constant or an output; "
                + list_names(known, name, "tensors that begin or end the graph")
            )
    chosen = [name for name in known if name in ends or graph.stored[name].kind == "input"] if names is None else names
    drawn = list(dict.fromkeys(chosen))
    plots = []
    for name in drawn[: tuning.SHOWN_TENSORS] if names is None else drawn:
        if name in starts:
            tensor = graph.stored[name]
            words = "an input" if tensor.kind == "input" else "a constant"
            plots.append(_plot(name, words, tensor.dtype, tensor.shape, _begin(plan, name)))
        if name in ends:
            output = ends[name]
            plots.append(_plot(name, "an output", output.dtype, output.shape, _end(plan, output)))
    left = len(drawn) - tuning.SHOWN_TENSORS if names is None else 0
    note = [f"{left:,} more not drawn: name the tensors to draw"] if left > 0 else []
    lines = [cut_text(title, 100)] if title else []
    body = [canvas.below([plot.drawing() for plot in plots], 18), *map(canvas.as_drawn, note)]
    return Picture(
        "\n".join([*lines, "\n\n".join([*(plot.text() for plot in plots), *note])]),
        canvas.document(canvas.below(body, 18), title),
    )


def _plot(name: str, words: str, dtype: str, shape: Sequence[int], cells: Sequence[DisjointRegions]) -> Plot:
    caption = f"{plain(name)}, {words}: {dtype} {tuple(shape)}"
    return Plot(words.split()[-1], caption, (), Box.of(tuple(shape)), tuple(cells), parts="device")


def _begin(plan: ShardPlan, name: str) -> list[DisjointRegions]:
    """The cells of an input that each device begins with."""
    shape = plan.graph.stored[name].shape
    found = [DisjointRegions(shape) for _ in range(plan.mesh.size)]
    for step in plan.steps:
        if isinstance(step, Copy) and step.src == HOST and step.tensor == name and not step.piece:
            device = plan.buffers[step.dst].device
            for region in step.regions:
                found[device] = found[device] | region
    return found


def _end(plan: ShardPlan, output: Output) -> list[DisjointRegions]:
    """The cells of an output that each device ends with, seen through the views of what is stored."""
    source = plan.graph.source(output.tensor)
    found = [DisjointRegions(output.shape) for _ in range(plan.mesh.size)]
    for number, region in (*output.blocks, *output.replicas):
        buffer = plan.buffers[number]
        for piece in source.pieces:
            if piece.source is not None and source.stored[piece.source] == buffer.tensor:
                found[buffer.device] = found[buffer.device] | _see(piece, region, output.shape)
    return found


def _see(piece: Piece, region: Region, shape: tuple[int, ...]) -> DisjointRegions:
    """The cells of a view that read some cells through one of its pieces."""
    guards = *piece.guards, Guard(len(piece.map.steps), region)
    return piece_domain(Piece(piece.source, guards, piece.map, piece.fill), Box.of(shape))
