"""Views as nodes of ONNX, found from what they read.

A view is a chain of maps from its cells to those of its source; nodes make it the other way round::

    view cell ──► permute ──► renumber ──► select ──► source cell
    y = Reshape(Transpose…)   ◄── Reshape ◄── Slice ◄── x
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from math import prod
from typing import Any, Literal, Protocol

import numpy as np

from tapestry_plan.ir import Selection, cells_of
from tapestry_plan.onnx import tuning
from tapestry_sets.regions import AffineMap, Box
from tapestry_sets.views import (
    Broadcast,
    Concat,
    Lookup,
    Pad,
    Piece,
    Relinearize,
    Reshape,
    Shape,
    Step,
    Take,
    Tile,
    ViewKind,
    piece_domain,
)

WHOLE: dict[str, tuple[str, Callable[[Shape], ViewKind]]] = {
    "reshape": ("Reshape", Reshape),
    "broadcast": ("Expand", Broadcast),
}
"""Labels of views that one node makes, told the view's shape."""


class Writer(Protocol):
    """What views are written to."""

    def node(self, kind: str, inputs: Sequence[str], out: str = "", **attrs: Any) -> str:
        """Add a node with one output, and return its name: as it is asked for, or a new one."""
        ...

    def number(self, values: Any) -> str:
        """Add integers as a constant, and return its name."""
        ...

    def need(self, opset: int) -> None:
        """Let the model be of this version of ONNX's operators, or of a later one."""
        ...

    def scalar(self, value: Any, dtype: str) -> str:
        """Add a number as a constant, and return its name."""
        ...


class NotWritten(ValueError):
    """Something that ONNX does not have."""


def write_view(to: Writer, view: Selection, names: Sequence[str], shapes: Sequence[Shape], out: str) -> None:
    """Write the nodes of a view of tensors of these names and shapes, the last one of which makes `out`.

    Raises
    ------
    NotWritten
        For a view that no few nodes make, of more cells than are listed.
    """
    try:
        _write_by_nodes(to, view, names, shapes, out)
    except NotWritten as error:
        _write_table(to, view, names, shapes, out, str(error))


def _write_by_nodes(to: Writer, view: Selection, names: Sequence[str], shapes: Sequence[Shape], out: str) -> None:
    if view.label == "tile" and _write_tile(to, view, names, shapes, out):
        return
    if view.label == "take" and _write_take(to, view, names, shapes, out):
        return
    if len(view.pieces) > 1 or view.pieces[0].source < 0 or view.pieces[0].guards:
        _write_pieces(to, view, names, shapes, out)
        return
    if view.label in WHOLE:
        node, kind = WHOLE[view.label]
        if _makes(kind(view.shape), tuple(shapes), view):
            to.node(node, [names[0], to.number(view.shape)], out)
            return
    steps = list(_part_steps(view.shape, view.pieces[0].map.steps))
    befores = [view.shape, *(_find_shape(steps, k, shapes[0]) for k in range(1, len(steps)))]
    _check_steps(steps, shapes[0], befores)
    name = names[0]
    for k in reversed(range(len(steps))):
        after = befores[k + 1] if k + 1 < len(steps) else tuple(shapes[0])
        name = _write_step(to, steps[k], name, after, befores[k], out if k == 0 else "")


def _part_steps(shape: Shape, steps: Sequence[Step]) -> Iterator[Step]:
    """The steps of a chain, with a choice of the first cells where one numbers some of those of the next."""
    first = steps[0] if steps else None
    if first is None or (isinstance(first, Relinearize) and first.from_shape != shape):
        yield AffineMap.identity(len(shape))  # the view's cells are the first ones of these
    for k, step in enumerate(steps):
        yield step
        after = steps[k + 1] if k + 1 < len(steps) else None
        if isinstance(step, Relinearize) and isinstance(after, Relinearize) and step.to_shape != after.from_shape:
            yield AffineMap.identity(len(step.to_shape))


def _makes(kind: ViewKind, shapes: tuple[Shape, ...], view: Selection) -> bool:
    """Whether a kind of view makes a view of tensors of these shapes."""
    try:
        return kind.out_shape(shapes) == view.shape and _same_pieces(kind.pieces(shapes), view.pieces)
    except ValueError:
        return False


def _same_pieces(ones: Sequence[Piece], others: Sequence[Piece]) -> bool:
    """Whether pieces are the same, steps that change nothing left out."""
    return list(map(_simplify, ones)) == list(map(_simplify, others))


def _simplify(piece: Piece) -> Piece:
    if any(guard.prefix for guard in piece.guards):  # which say behind which step they stand
        return piece
    return Piece(piece.source, piece.guards, piece.map.simplify(), piece.fill)


def _check_steps(steps: Sequence[Step], source: Shape, befores: Sequence[Shape]) -> None:
    """Raise NotWritten, before anything is written, for a chain that nodes do not make."""
    for k, step in enumerate(steps):
        if isinstance(step, AffineMap):
            last = k == len(steps) - 1
            _check_reach(step, source if last else _find_shape(steps, k + 1, source), befores[k])
        elif not isinstance(step, Lookup) and k == len(steps) - 1 and step.to_shape != tuple(source):
            raise NotWritten(f"it renumbers {step.to_shape}, where {tuple(source)} is read")


def _check_reach(step: AffineMap, source: Sequence[int], shape: Shape) -> None:
    """Raise NotWritten where some cells of a step would be read outside: those that a step before it leaves out."""
    for axis, (row, first) in enumerate(zip(_list_read(step), step.offset, strict=True)) if 0 not in shape else ():
        last = first + sum(c * (shape[k] - 1) for k, c in row)
        if min(first, last) < 0 or max(first, last) >= source[axis]:
            raise NotWritten("it chooses some of the cells behind a step that has more of them")


def _list_read(step: AffineMap) -> list[list[tuple[int, int]]]:
    """For each axis of the source the view's axis that it is read along, and the step; none of one that stays."""
    read = [[(k, c) for k, c in enumerate(row) if c] for row in step.matrix]
    used = [k for row in read for k, _ in row]
    if any(len(row) > 1 for row in read) or len(used) != len(set(used)):
        raise NotWritten("it reads an axis along several axes, or several axes along one")
    return read


def _find_shape(steps: Sequence[Step], k: int, source: Shape) -> Shape:
    """The extents between a step of a chain and the one behind it, counted from the view."""
    before, after = steps[k - 1], steps[k]
    if not isinstance(before, AffineMap | Lookup):
        return before.to_shape
    if not isinstance(after, AffineMap | Lookup):
        return after.from_shape
    raise NotWritten("it chooses cells in two steps, of which extents between are not known")


def _write_step(to: Writer, step: Step, name: str, source: Shape, shape: Shape, out: str) -> str:
    if isinstance(step, Lookup):
        return to.node("Gather", [name, to.number(np.asarray(step.column))], out, axis=step.axis)
    if isinstance(step, AffineMap):
        return _write_map(to, step, name, source, shape, out)
    return to.node("Reshape", [name, to.number(shape)], out)


def _write_map(to: Writer, step: AffineMap, name: str, source: Shape, shape: Shape, out: str) -> str:
    """Cells at even steps along each axis, axes in another order, gone or new ones: as few nodes as do."""
    read = _list_read(step)
    used = [k for row in read for k, _ in row]
    nodes: list[tuple[str, list[Any], dict[str, Any]]] = []
    slices = list(_list_slices(read, step.offset, source, shape))
    if slices:
        axes, starts, ends, steps = zip(*slices, strict=True)
        nodes.append(("Slice", [starts, ends, axes, steps], {}))
    gone = [axis for axis, row in enumerate(read) if not row]
    if gone:
        nodes.append(("Squeeze", [gone], {}))
    kept = sorted(used)
    order = [used.index(k) for k in kept]
    if order != sorted(order):
        nodes.append(("Transpose", [], {"perm": order}))
    new = [k for k in range(len(shape)) if k not in kept]
    leads = new == list(range(len(new)))  # which Expand puts there by itself
    is_wide = any(shape[k] > 1 for k in new)
    if new and not (leads and is_wide):
        nodes.append(("Unsqueeze", [new], {}))
    if is_wide:
        nodes.append(("Expand", [shape], {}))
    for number, (kind, values, attrs) in enumerate(nodes):
        is_last = number == len(nodes) - 1
        name = to.node(kind, [name, *map(to.number, values)], out if is_last else "", **attrs)
    if nodes:
        return name
    # All cells as they are, a view all the same.
    if not source:  # and no axes, which helpers of ONNX do not write
        return to.node("Reshape", [name, to.number(())], out)
    return to.node("Transpose", [name], out, perm=list(range(len(source))))


def _list_slices(
    read: Sequence[Sequence[tuple[int, int]]], offset: Sequence[int], source: Shape, shape: Shape
) -> Iterator[tuple[int, int, int, int]]:
    """Axis, start, end and step of the axes of which not all cells are read, in order."""
    for axis, (row, first) in enumerate(zip(read, offset, strict=True)):
        count, step = (shape[row[0][0]], row[0][1]) if row else (1, 1)
        if (first, count, step) != (0, source[axis], 1):
            end = first + (count - 1) * step + (1 if step > 0 else -1)
            yield axis, first, tuning.BEFORE_ALL if end < 0 else end, step


# -- views of several pieces -----------------------------------------------------------------------------


def _write_pieces(to: Writer, view: Selection, names: Sequence[str], shapes: Sequence[Shape], out: str) -> None:
    """Concatenations, tiles and paddings: of each kind the one that the shapes allow, if it has these pieces."""
    given = tuple(shapes)
    ranks = {len(shape) for shape in shapes}
    for axis in range(len(view.shape)) if ranks == {len(view.shape)} else ():
        fits = all(
            n == m for shape in shapes for k, (n, m) in enumerate(zip(shape, view.shape, strict=True)) if k != axis
        )
        if fits and sum(shape[axis] for shape in shapes) == view.shape[axis] and _makes(Concat(axis), given, view):
            to.node("Concat", list(names), out, axis=axis)
            return
    if len(names) == 1 and ranks == {len(view.shape)}:
        for pad in _list_pads(view, shapes[0]):
            if _makes(pad, given, view):
                assert not isinstance(pad.value, tuple), "one value all around"
                pads = [before for before, _ in pad.widths] + [after for _, after in pad.widths]
                value = [to.scalar(pad.value, view.dtype)] if pad.mode == "constant" else []
                to.need(19 if pad.mode == "wrap" else 0)
                to.node("Pad", [names[0], to.number(pads), *value], out, mode=pad.mode)
                return
        if _write_tile(to, view, names, shapes, out):
            return
    raise NotWritten(f"it is made of {len(view.pieces)} pieces as no node is")


def _write_take(to: Writer, view: Selection, names: Sequence[str], shapes: Sequence[Shape], out: str) -> bool:
    """Write a view of given indices along one axis; return whether it is one."""
    if len(shapes) != 1 or len(shapes[0]) != len(view.shape):
        return False
    for axis, n in enumerate(view.shape):
        line = Box((0,) * len(view.shape), tuple(n if k == axis else 1 for k in range(len(view.shape))))
        read = np.zeros(n, np.int64)
        for piece in view.pieces:
            points = (cells_of(line, view.shape) & piece_domain(piece, Box.of(view.shape))).points()
            read[points[:, axis]] = piece.map.apply_array(points)[:, axis]
        if _makes(Take(tuple(read.tolist()), axis), tuple(shapes), view):
            to.node("Gather", [names[0], to.number(read)], out, axis=axis)
            return True
    return False


def _write_tile(to: Writer, view: Selection, names: Sequence[str], shapes: Sequence[Shape], out: str) -> bool:
    """Write a view that repeats its source whole; return whether it is one."""
    if len(shapes) != 1 or len(shapes[0]) != len(view.shape):
        return False
    reps = tuple(m // n for n, m in zip(shapes[0], view.shape, strict=True))
    if not _makes(Tile(reps), tuple(shapes), view):
        return False
    to.node("Tile", [names[0], to.number(reps)], out)
    return True


def _write_table(
    to: Writer, view: Selection, names: Sequence[str], shapes: Sequence[Shape], out: str, why: str
) -> None:
    """Any view: its sources and constants as one line of cells, of which a table says who is where."""
    #   sources  ──► Reshape(-1) ──► Concat with the constants ──► Gather(table) ──► Reshape
    count = prod(view.shape)
    if count > tuning.MAX_TABLE_CELLS:
        raise NotWritten(f"{why}, and its {count:,} cells are more than the {tuning.MAX_TABLE_CELLS:,} that are listed")
    fills = {repr(piece.fill): piece.fill for piece in view.pieces if piece.source < 0}  # -0.0 is not 0.0
    begins = [0, *accumulate(map(prod, shapes))]
    table = np.zeros(view.shape, np.int64)
    for piece in view.pieces:
        points = piece_domain(piece, Box.of(view.shape)).points()
        if piece.source < 0:
            cells: Any = begins[-1] + list(fills).index(repr(piece.fill))
        else:
            shape, read = tuple(shapes[piece.source]), tuple(piece.map.apply_array(points).T)
            cells = begins[piece.source] + (np.ravel_multi_index(read, shape) if shape else 0)
        table[tuple(points.T)] = cells
    lines = [to.node("Reshape", [name, to.number([-1])]) for name in names]
    lines += [to.node("Reshape", [to.scalar(value, view.dtype), to.number([1])]) for value in fills.values()]
    line = lines[0] if len(lines) == 1 else to.node("Concat", lines, axis=0)
    found = to.node("Gather", [line, to.number(table)], axis=0)
    to.node("Reshape", [found, to.number(view.shape)], out)


def _list_pads(view: Selection, source: Shape) -> Iterator[Pad]:
    """The paddings that may have a view's pieces: one of these has the source's cells in their order."""
    fills = {piece.fill for piece in view.pieces if piece.source < 0}
    value = next(iter(fills)) if len(fills) == 1 else None
    modes: list[Literal["constant", "edge", "reflect", "wrap"]] = ["constant"] if fills else ["edge", "reflect", "wrap"]
    for piece in view.pieces:
        step = piece.map.steps[0] if len(piece.map.steps) == 1 else None
        if (
            piece.source != 0
            or not isinstance(step, AffineMap)
            or step.matrix != AffineMap.identity(len(source)).matrix
        ):
            continue
        before = tuple(-a for a in step.offset)
        after = tuple(m - n - a for n, m, a in zip(source, view.shape, before, strict=True))
        if min((*before, *after), default=-1) >= 0 and len(fills) < 2:
            yield from (
                Pad(tuple(zip(before, after, strict=True)), mode, 0.0 if value is None else value) for mode in modes
            )
