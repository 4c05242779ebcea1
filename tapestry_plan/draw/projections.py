"""Projection geometry in pictures: an index space cut into parts, and the cells that each part reads and writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tapestry_plan.draw.plots import Plot
from tapestry_plan.ir import Axis, Operand, Operation, Shape, Signature, cells_of
from tapestry_sets.draw import Picture, canvas
from tapestry_sets.limits import as_int, check_arguments, cut_text, quote
from tapestry_sets.regions import Box, IndexProjection


@check_arguments(op="ask operation(graph, name)")
def show_projection(
    op: Operation | Signature,
    parts: Mapping[str, int] | Box | Sequence[Box] | None = None,
    *,
    shapes: Sequence[Sequence[int]] | None = None,
    title: str = "",
) -> Picture:
    """A picture of an index space with its parts, and of the cells of every operand that each part reads and writes.

    Cells that several parts touch are marked ``X`` and counted: the halo of windows, weights that all read, partial
    results that are to be merged. Places that are read outside a tensor are gray in the drawing and blank in the text.

    Parameters
    ----------
    op : Operation or Signature
    parts : mapping of str to int, Box, or sequence of Box, optional
        Number of parts along each named index axis, or index boxes, which may leave out some of the index space and
        share some; by default the whole index space is one part.
    shapes : sequence of shapes, optional
        Of a signature's inputs. By default those that the operands declare, or else all that is read, which may reach
        outside the tensor where the operand says what is there; the caption says so. An operator's tensors have theirs.
    title : str
        The words above the picture; by default the operator's name.

    Returns
    -------
    Picture

    Raises
    ------
    TypeError
        For an `op` that is neither, and parts that are neither numbers by axis nor boxes.
    ValueError
        For an unknown axis, less than one part or more parts than index points, boxes that are empty or reach out of
        the index space, and shapes that do not fit.

    Examples
    --------
    Two parts of a convolution's rows share a row of what they read:

    >>> from tapestry_plan.ir import Axis, Operand, project
    >>> axes = (Axis("h", 4), Axis("kh", 3, "reduction"))
    >>> x, y = Operand(project(axes, [{"h": 2, "kh": 1}])), Operand(project(axes, [{"h": 1}]))
    >>> show_projection(Signature(axes, (x,), (y,)), {"h": 2}, title="rows")
    rows
    index space: h 4, kh 3 (reduction); 2 parts
    axis h down, axis kh across
      0 2
    0 111
    1 111
    2 222
    3 222
    1  [0:2, :]: 6 of 12 cells
    2  [2:4, :]: 6 of 12 cells
    X  in two or more: 0 of 12 cells
    <BLANKLINE>
    input 0 (9,) at [2·h + kh]
    0 2 4 6 8
    1111X2222
    1  [0:5]: 5 of 9 cells
    2  [4:9]: 5 of 9 cells
    X  in two or more: 1 of 9 cells
    <BLANKLINE>
    output 0 (4,) at [h]
    0 2
    1122
    1  [0:2]: 2 of 4 cells
    2  [2:4]: 2 of 4 cells
    X  in two or more: 0 of 4 cells

    References
    ----------
    Tapestry, "Index Projection Functions": the figures of Linear and of Conv.
    """
    signature = op if isinstance(op, Signature) else op.signature
    boxes = index_boxes(signature, parts, "show_projection")
    plots = [index_plot(signature, boxes)]
    if isinstance(op, Signature):
        plots += signature_plots(signature, boxes, shapes)
    elif shapes is not None:
        raise ValueError("show_projection: shapes are for signatures; an operator's tensors have shapes of their own")
    else:
        plots += operand_plots(op, boxes)
        title = title or (op.node.name if op.node.name == op.node.op else f"{op.node.name}: {op.node.op}")
    lines = [cut_text(title, 100)] if title else []
    text = "\n".join([*lines, "\n\n".join(plot.text() for plot in plots)])
    return canvas.draw_twice(lambda: (text, canvas.document(_arranged(plots), title)))


@check_arguments(op="ask operation(graph, name)", parts="give the boxes of the parts")
def draw_spaces(op: Operation, parts: Sequence[Box]) -> list[str]:
    """The drawing of `show_projection` space by space, as SVG: the index space, then the inputs and the outputs."""
    boxes = index_boxes(op.signature, parts, "draw_spaces")
    plots = [index_plot(op.signature, boxes), *operand_plots(op, boxes)]
    return [canvas.document(plot.drawing(), "", margin=4) for plot in plots]


def _arranged(plots: Sequence[Plot]) -> canvas.Drawing:
    """The index space, below it the inputs side by side, and then the outputs."""
    rows = [[plot.drawing() for plot in plots if plot.role.startswith(role)] for role in ("index", "input", "output")]
    return canvas.below([canvas.beside(row, 28) for row in rows if row], 18)


def index_boxes(
    signature: Signature, parts: Mapping[str, int] | Box | Sequence[Box] | None, what: str
) -> tuple[Box, ...]:
    """Parts of an index space: as even as possible where they are counted by axis, else those given."""
    if parts is None or isinstance(parts, Mapping):
        counts = {k: as_int(n, f"draw: the number of parts of axis {quote(k)}") for k, n in (parts or {}).items()}
        return tuple(signature.boxes(counts, what))
    boxes = (parts,) if isinstance(parts, Box) else tuple(parts)
    for k, box in enumerate(boxes):
        if not isinstance(box, Box):
            raise TypeError(f"{what}: part {k} is {quote(box)}; give a Box, or a number of parts by axis")
        if box.rank != len(signature.axes) or not signature.index.contains(box):
            raise ValueError(
                f"{what}: part {k} is {quote(box)}, outside the index space {quote(signature.index)}; give one inside"
            )
        if box.is_empty:
            raise ValueError(f"{what}: part {k} is {quote(box)}, which has no index points; give it some")
    if not boxes:
        raise ValueError(f"{what}: there are no parts; give at least one index box")
    return boxes


# ------------------------------------------------------------------------------------------------- what is drawn


def index_plot(signature: Signature, boxes: Sequence[Box]) -> Plot:
    """The index space and its parts."""
    words = ", ".join(f"{a.name} {a.size}{_also(a)}" for a in signature.axes)
    count = f"{len(boxes)} parts" if len(boxes) > 1 else "1 part"
    cells = tuple(cells_of(box, signature.index) for box in boxes)
    caption = f"index space: {words or 'one point'}; {count}"
    return Plot("index", caption, tuple(axis.name for axis in signature.axes), signature.index, cells)


def _also(axis: Axis) -> str:
    """The other name of an axis that callers may say, and that it is reduced."""
    words = [*([axis.alias] if axis.alias else []), *(["reduction"] if axis.kind == "reduction" else [])]
    return f" ({', '.join(words)})" if words else ""


def signature_plots(
    signature: Signature, boxes: Sequence[Box], shapes: Sequence[Sequence[int]] | None = None
) -> list[Plot]:
    """The operands of a signature, by their numbers."""
    if shapes is not None and len(shapes) != len(signature.inputs):
        raise ValueError(f"show_projection: {len(shapes)} shapes for {len(signature.inputs)} inputs; give one for each")
    plots = []
    for k in range(len(signature.inputs)):
        given = None if shapes is None else tuple(as_int(n, f"draw: an extent of input {k}") for n in shapes[k])
        frame, operand = _frame_of(signature, k, given), signature.inputs[k]
        is_known = given is not None or operand.extents is not None or not _may_reach_out(operand)
        words = (
            f"input {k}" if is_known else f"input {k}, its shape not given, all that is read, from {frame.start} on,"
        )
        plots.append(_input_plot(signature, k, boxes, frame, words))
    for k, operand in enumerate(signature.outputs):
        plots.append(_output_plot(signature, k, boxes, operand.bounding_box(signature.index), f"output {k}"))
    return plots


def operand_plots(op: Operation, boxes: Sequence[Box]) -> list[Plot]:
    """The operands of an operator, by their names."""
    sides = ("input", _input_plot, op.node.inputs), ("output", _output_plot, op.node.outputs)
    plots = []
    for role, draw, names in sides:
        for k, tensor in enumerate(map(op.graph.tensor, names)):
            words = f"{role} {k}: {plain(tensor.name)} {tensor.dtype}"
            plots.append(draw(op.signature, k, boxes, Box.of(tensor.shape), words))
    return plots


def _may_reach_out(operand: Operand) -> bool:
    """Whether what is read outside the tensor has values too."""
    return operand.pad is not None or operand.outside != "forbid"


def _frame_of(signature: Signature, number: int, shape: Shape | None) -> Box:
    """The box that an input occupies, as given or declared, or else what is read."""
    operand = signature.inputs[number]
    read = operand.bounding_box(signature.index)
    start = operand.origin or (0,) * read.rank
    extents = shape if shape is not None else operand.extents
    if extents is None:
        return read if operand.origin or _may_reach_out(operand) else Box.from_bounds(start, read.stop)
    if len(extents) != read.rank:
        raise ValueError(
            f"show_projection: input {number} has rank {read.rank}, the shape given is {quote(extents)}; give one of "
            "that rank"
        )
    frame = Box(start, extents)
    if not _may_reach_out(operand) and not frame.contains(read):
        raise ValueError(
            f"show_projection: input {number} is read in {quote(read)}, outside the shape given, {quote(extents)}"
        )
    return frame


def _input_plot(signature: Signature, number: int, boxes: Sequence[Box], frame: Box, words: str) -> Plot:
    operand = signature.inputs[number]
    around = frame
    for box in boxes:
        read = signature.input_box(number, box)
        around = around if read is None else around.hull(read)
    cells = signature.input_regions(number, list(boxes), around)
    how = f"as {operand.pad:g}" if operand.pad is not None else f"by the policy {quote(operand.outside)}"
    caption = f"{words} {frame.shape} at {' and '.join(at_text(p, signature) for p in operand.projections)}"
    if operand.at_start_of:
        caption += f", at the start of {', '.join(operand.at_start_of)} only"
    return Plot(f"input {number}", caption, (), frame, tuple(cells), how)


def _output_plot(signature: Signature, number: int, boxes: Sequence[Box], frame: Box, words: str) -> Plot:
    cells = signature.output_regions(number, list(boxes), frame)
    caption = f"{words} {frame.shape} at {at_text(signature.outputs[number].projection, signature)}"
    cut = [k for k in signature.reductions if any(box.shape[k] != signature.axes[k].size for box in boxes)]
    names = ", ".join(signature.axes[k].name for k in cut)
    note = f"partial results, to be merged over {names}" if cut else ""
    return Plot(f"output {number}", caption, (), frame, tuple(cells), note=note)


# ---------------------------------------------------------------------------------------------------- in words


def plain(name: str, most: int = 48) -> str:
    """A name that fits into a line: without characters that are not printed, and not too long."""
    return cut_text(name if name.isprintable() else repr(name), most)


def at_text(projection: IndexProjection, signature: Signature) -> str:
    """Where a projection begins and how far it goes, by the names of the index axes.

    Examples
    --------
    >>> from tapestry_plan.ir import Axis, project
    >>> axes = (Axis("h", 4), Axis("kh", 3, "reduction"))
    >>> at_text(project(axes, [{"h": 2, "kh": -1, "": -1}, {}], [1, 5]), Signature(axes, (), ()))
    '[2·h - kh - 1, 0:5]'
    """
    columns = [axis.name for axis in signature.axes]
    for axis, q in projection.splits:
        columns += [f"{columns[axis]}//{q}", f"{columns[axis]}%{q}"]
    coordinates = []
    for row, offset, extent in zip(projection.map.terms(), projection.map.offset, projection.shape, strict=True):
        terms = [(c, columns[k]) for k, c in row] + ([(offset, "")] if offset or not row else [])
        start = "".join(_term(at, c, name) for at, (c, name) in enumerate(terms))
        if not row and extent > 1:
            coordinates.append(f"{offset}:{offset + extent}")
        else:
            coordinates.append(start if extent == 1 else f"{start} : +{extent}")
    return f"[{', '.join(coordinates)}]"


def _term(at: int, coefficient: int, name: str) -> str:
    sign = ("-" if coefficient < 0 else "") if at == 0 else (" - " if coefficient < 0 else " + ")
    size = abs(coefficient)
    if not name:
        return f"{sign}{size}"
    return f"{sign}{name}" if size == 1 else f"{sign}{size}·{name}"
