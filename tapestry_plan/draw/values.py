"""Pictures of what plans are made of: meshes, operators and their signatures, tensors, derivations, stages.

Each has a text and a drawing of the same; a notebook shows the drawing where a cell ends with such a value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from math import prod
from typing import Any

from tapestry_plan.draw import tuning
from tapestry_plan.draw.graphs import draw_graph
from tapestry_plan.draw.layers import LayerNode, layered
from tapestry_plan.draw.nodes import boxed, cut_box, plain_box, round_box, short
from tapestry_plan.draw.projections import show_projection
from tapestry_plan.ir import Op, Operation, OpNode, Pictures, Selection, Signature, Tensor, count_shared, fill_pictures
from tapestry_plan.rewrite import Derivation, Derived
from tapestry_plan.steps import Alternative, Mesh, Stage, tell_link, tell_seconds, tell_sharding
from tapestry_sets.digits import point_of
from tapestry_sets.draw import Picture, canvas
from tapestry_sets.limits import Units, cut_text, quote, tell_count

DEVICE, LINKS = "#e5e8e8", canvas.COLORS[1:]
"""Fill of a device, and the colors of links, in the order of `Mesh.ports`."""


def draw_value(value: Any) -> Picture:
    """The picture of a value that draws itself."""
    return next(_DRAWN[kind] for kind in type(value).__mro__ if kind in _DRAWN)(value)


def _draw(text: Sequence[str], drawing: Callable[[], canvas.Drawing], title: str) -> Picture:
    """A picture of these lines, whose drawing is laid out for wide and for narrow pages."""
    words = "\n".join([title, *text])
    return canvas.draw_twice(lambda: (words, canvas.document(drawing(), title)))


# ---------------------------------------------------------------------------------------------------------- meshes


def _draw_mesh(mesh: Mesh) -> Picture:
    axes = " × ".join(f"{name} {n}" for name, n in zip(mesh.names, mesh.shape, strict=True))
    title = f"mesh of {tell_count(mesh.size, 'device')}: {axes}"
    said = list(_say_mesh(mesh))
    is_small = mesh.size <= tuning.SHOWN_DEVICES
    text = [*(_mesh_text(mesh) if is_small else []), *said]

    def drawing() -> canvas.Drawing:
        grids = [canvas.beside([_plane(mesh, at) for at in product(*map(range, mesh.shape[:-2]))], 20)]
        lines = [_line_said(mesh, line) for line in said]
        return canvas.below([*(grids if is_small else []), canvas.below(lines, 0)], 12)

    return _draw(text, drawing, title)


def _say_mesh(mesh: Mesh) -> list[str]:
    """Links and devices in words; of devices that differ each kind."""
    lines = []
    for name, n, port in zip(mesh.names, mesh.shape, mesh.ports_of_axes, strict=True):
        shared = [other for other, at in zip(mesh.names, mesh.ports_of_axes, strict=True) if at == port]
        one = f", one for {' and '.join(shared)}" if len(shared) > 1 else ""
        lines.append(f"along {name}: {n} devices, {tell_link(mesh.ports[port])}{one}")
    for device, numbers in mesh.kinds:
        who = "each device" if len(mesh.kinds) == 1 else f"device {', '.join(map(str, numbers))}"
        memory = "" if device.memory_nbytes is None else f", {device.memory_nbytes:,} B of memory"
        lines.append(
            f"{cut_text(who, 40)}: {device.flop_per_second / 1e12:g} TFLOP/s, "
            f"{device.memory_nbytes_per_second / 1e9:g} GB/s{memory}"
        )
    return [*lines, f"to the host: {tell_link(mesh.host)}"]


def _line_said(mesh: Mesh, line: str) -> canvas.Drawing:
    """A line of words, before those of an axis a stroke of its link's color."""
    words = canvas.as_drawn(line)
    axis = next((k for k, name in enumerate(mesh.names) if line.startswith(f"along {name}:")), None)
    stroke = [] if axis is None else [_stroke(mesh, axis, 0, 7, 20, 7)]
    moved = ('<g transform="translate(28,0)">', *words.parts, "</g>")
    return canvas.Drawing(28 + words.width, words.height, (*stroke, *moved))


def _stroke(mesh: Mesh, axis: int, x: float, y: float, right: float, below: float) -> str:
    color = LINKS[mesh.ports_of_axes[axis] % len(LINKS)]
    return f'<path d="M{x:g} {y:g}L{right:g} {below:g}" stroke="{color}" stroke-width="3" data-link="{axis}"/>'


def _mesh_text(mesh: Mesh) -> list[str]:
    """The numbers of the devices, a line for each row of the mesh."""
    width = len(str(mesh.size - 1))
    columns = mesh.shape[-1]
    rows = [range(first, first + columns) for first in range(0, mesh.size, columns)]
    lines = []
    for k, row in enumerate(rows):
        if k and len(mesh.shape) > 2 and k % mesh.shape[-2] == 0:
            lines.append("")
        lines.append(" - ".join(f"{device:>{width}}" for device in row))
    return lines


def _plane(mesh: Mesh, at: Sequence[int]) -> canvas.Drawing:
    """The devices of a plane of the last two axes, with the links between neighbors."""
    rows, columns = (1, *mesh.shape)[-2:]
    first = sum(c * prod(mesh.shape[k + 1 :]) for k, c in enumerate(at))
    parts, top = [], 18 if at else 0
    if at:
        words = ", ".join(f"{name} {c}" for name, c in zip(mesh.names, at, strict=False))
        parts.append(canvas.written(0, canvas.SMALL, words))
    across, down = len(mesh.shape) - 1, len(mesh.shape) - 2
    for row, column in product(range(rows), range(columns)):
        x, y = column * (tuning.WIDE + tuning.APART), top + row * (tuning.TALL + tuning.APART)
        if column + 1 < columns:
            parts.append(
                _stroke(
                    mesh,
                    across,
                    x + tuning.WIDE,
                    y + tuning.TALL / 2,
                    x + tuning.WIDE + tuning.APART,
                    y + tuning.TALL / 2,
                )
            )
        if row + 1 < rows:
            parts.append(
                _stroke(
                    mesh,
                    down,
                    x + tuning.WIDE / 2,
                    y + tuning.TALL,
                    x + tuning.WIDE / 2,
                    y + tuning.TALL + tuning.APART,
                )
            )
        number = first + row * columns + column
        place = ",".join(map(str, point_of(number, mesh.shape)))
        parts.append(f'<g transform="translate({x},{y})" data-device="{number}" data-place="{place}">')
        parts.append(f'<path d="{plain_box(tuning.WIDE, tuning.TALL)}" fill="{DEVICE}" stroke="{canvas.FAINT}"/>')
        parts += [canvas.written(tuning.WIDE / 2, tuning.TALL / 2 + 4, str(number), "middle", size=12), "</g>"]
    return canvas.Drawing(
        columns * (tuning.WIDE + tuning.APART) - tuning.APART,
        top + rows * (tuning.TALL + tuning.APART) - tuning.APART,
        tuple(parts),
    )


# ------------------------------------------------------------------------------------------- operators and tensors


def _draw_projection(what: Operation | Signature) -> Picture:
    """The index space in two parts along an axis, and what each part reads and writes."""
    axis = _telling_axis(what)
    title = f"signature, {'whole' if axis is None else f'in two parts along {axis}'}"
    return show_projection(
        what, None if axis is None else {axis: 2}, title=title if isinstance(what, Signature) else ""
    )


def _telling_axis(what: Operation | Signature) -> str | None:
    """The first axis along which two parts share a part of an operand, as a halo, or else that can be cut at all."""
    signature = what if isinstance(what, Signature) else what.signature
    axes = [one.name for one in signature.axes if one.kind == "parallel" and one.may_have(2)]
    if isinstance(what, Operation):
        sizes = [prod(what.graph.tensor(name).shape) for name in what.node.inputs]
        for axis in axes:
            if any(0 < n < size for n, size in zip(count_shared(what, axis), sizes, strict=True)):
                return axis
    return next(iter(axes), None)


def _draw_op(op: Op) -> Picture:
    lines = [f"partial results merge by {op.monoid.name}" if op.monoid else "nothing is merged"]
    for what, names in (
        ("attributes", [f"{name} = {dict(op.defaults)[name]!r}" if name in dict(op.defaults) else name
                        for name in op.attributes]),
        ("expansions", [each.__name__ for each in op.expansions]),
        ("made of", [one.name for one in op.of] if isinstance(op, Derived) else []),
    ):  # fmt: skip
        lines += [f"{what}: {cut_text(', '.join(names), 200)}"] if names else []
    lines += ["it has a gradient of its own"] if op.adjoint else []
    lines += ["it needs NumPy arrays: it runs on no GPU"] if op.host_only else []
    title = f"operator {short(op.name)}"
    return _draw(lines, lambda: canvas.below(map(canvas.as_drawn, lines), 0), title)


def _draw_tensor(tensor: Tensor) -> Picture:
    """Who makes a tensor, and who reads it."""
    graph, name = tensor.graph, tensor.name
    items: list[OpNode | Selection] = [*graph.nodes.values(), *graph.selections.values()]
    makers = [item for item in items if name in item.outputs]
    readers = [item for item in items if name in item.inputs]
    form = f"{tensor.dtype}{list(tensor.shape)}"
    kind = graph.stored[name].kind if name in graph.stored else "view"
    labels = [f"output {short(label)}" for label, each in graph.outputs.items() if each == name]
    lines = [form, kind if kind != "result" else "result, stored", *labels]
    said = [f"made by {short(item.name)}: {_verb(item)}" for item in makers if item.name != name or hasattr(item, "op")]
    said += [f"read by {short(item.name)}: {_verb(item)}" for item in readers[: tuning.SHOWN_READERS]]
    more = len(readers) - tuning.SHOWN_READERS
    said += [f"and by {more} more"] if more > 0 else []

    def drawing() -> canvas.Drawing:
        nodes = [_item(item, ()) for item in makers]
        shape = round_box if kind == "view" else plain_box
        nodes.append(boxed("own", [node.key for node in nodes], [short(name), *lines], kind, (), shape))
        nodes += [_item(item, ["own"]) for item in readers[: tuning.SHOWN_READERS]]
        rest = [canvas.as_drawn(said[-1])] if more > 0 else []
        return canvas.below([layered(nodes), *rest])

    return _draw([*lines, *said], drawing, f"tensor {short(name)}")


def _verb(item: Any) -> str:
    return short(item.op if hasattr(item, "op") else item.label)


def _item(item: Any, after: Sequence[str]) -> LayerNode:
    kind, shape = ("op", cut_box) if hasattr(item, "op") else ("view", round_box)
    words = [_verb(item), *([short(item.name)] if item.name != _verb(item) else [])]
    return boxed(f"{kind} {item.name}", after, words, kind, (), shape)


# --------------------------------------------------------------------------------------------- rewrites and stages


def _draw_derivation(steps: Derivation) -> Picture:
    """The rules one after the other, each with its place and arguments."""
    shown = steps.steps[: tuning.SHOWN_STEPS]
    said = [(one.rule, f"at {short(one.at)}", *(cut_text(f"{k} = {quote(v)}", 44) for k, v in one.arguments.items()))
            for one in shown]  # fmt: skip
    more = [f"and {len(steps.steps) - len(shown):,} more steps"] if len(steps.steps) > len(shown) else []
    count = len(steps.steps)
    title = f"derivation of {tell_count(count, 'step')}" + ("" if count else ": the graph as given")

    def drawing() -> canvas.Drawing:
        nodes = [boxed(f"{k}", [f"{k - 1}"] if k else [], words, "op", (), cut_box) for k, words in enumerate(said)]
        return canvas.below([*([layered(nodes)] if nodes else []), *map(canvas.as_drawn, more)])

    return _draw([*(f"{k}  {' '.join(words)}" for k, words in enumerate(said)), *more], drawing, title)


def _draw_stage(stage: Stage) -> Picture:
    """What each device receives and computes, as bars."""
    cut, taken = tell_sharding(stage.sharding), Units().seconds(stage.seconds)
    title = f"stage {short(stage.node)} ({short(stage.op)}): {cut}, {taken}"
    count = min(len(stage.nbytes_received), tuning.SHOWN_DEVICES)
    work = stage.work_seconds or (0.0,) * count
    columns: list[tuple[str, list[tuple[float, str]], str]] = [
        ("receives", [(n, f"{n:,} B") for n in stage.nbytes_received[:count]], canvas.COLORS[1]),
        ("computes", [(n, Units().seconds(n)) for n in work[:count]], canvas.COLORS[2]),
        ("does", [(n, f"{n:,.0f} FLOP") for n in stage.flop[:count]], canvas.COLORS[3]),
    ]
    rows = [f"device {d} " + ", ".join(f"{verb} {each[d][1]}" for verb, each, _ in columns) for d in range(count)]
    left = len(stage.nbytes_received) - count
    notes = [f"its devices share {stage.nbytes_shared:,} B", *([f"and {left} more devices"] if left else [])]

    def drawing() -> canvas.Drawing:
        bars = [_bars(f"each device {verb}", each, color) for verb, each, color in columns]
        return canvas.below([canvas.beside(bars, 24), *map(canvas.as_drawn, notes)], 10)

    return _draw([*rows, *notes], drawing, title)


def _draw_alternative(one: Alternative) -> Picture:
    """What another sharding changes, cause by cause: by how much longer the graph takes, as bars, and in words."""
    cut = tell_sharding(one.sharding)
    told = "its own sharding" if one.is_chosen else "another sharding, all else kept"
    title = f"{short(one.node)} cut {cut} ({told}): {tell_seconds(one)}, {one.nbytes_moved:,} B moved"
    shown = [] if one.is_chosen else list(enumerate(one.causes))[: len(one.reasons)]
    sides = (
        ("reason adds", canvas.COLORS[1], [(k, each.more_seconds) for k, each in shown if each.more_seconds > 0]),
        ("reason saves", canvas.COLORS[2], [(k, -each.more_seconds) for k, each in shown if each.more_seconds < 0]),
    )

    def drawing() -> canvas.Drawing:
        bars = [
            _bars(f"each {verb}", [(n, Units().seconds(n)) for _, n in some], color, [k for k, _ in some])
            for verb, color, some in sides
            if some
        ]
        words = [canvas.as_drawn(f"{k}  {reason}") for k, reason in enumerate(one.reasons)]
        return canvas.below([*([canvas.beside(bars, 24)] if bars else []), canvas.below(words, 2)], 10)

    return _draw([f"{k}  {reason}" for k, reason in enumerate(one.reasons)], drawing, title)


def _bars(
    head: str, values: Sequence[tuple[float, str]], color: str, numbers: Sequence[int] | None = None
) -> canvas.Drawing:
    """A row for each value, with its number, a bar to scale and the value in words."""
    most = max((value for value, _ in values), default=0) or 1
    parts = [canvas.written(0, canvas.SMALL, head)]
    longest = max((canvas.breadth(words) for _, words in values), default=0)
    for k, (value, words) in enumerate(values):
        y = 20 + k * canvas.LINE
        wide = round(value / most * tuning.BAR, 1)
        parts.append(canvas.written(0, y + canvas.SMALL, str(k if numbers is None else numbers[k])))
        parts.append(f'<path d="M24 {y}h{wide:g}v12h-{wide:g}z" fill="{color}" data-bar="{k}" data-value="{value:g}"/>')
        parts.append(canvas.written(24 + wide + 4, y + canvas.SMALL, words))
    width = max(28 + tuning.BAR + longest, canvas.breadth(head))
    return canvas.Drawing(width, 20 + len(values) * canvas.LINE, tuple(parts))


_DRAWN: dict[type, Callable[[Any], Picture]] = {
    Mesh: _draw_mesh,
    Operation: _draw_projection,
    Signature: _draw_projection,
    Op: _draw_op,
    Tensor: _draw_tensor,
    Derivation: _draw_derivation,
    Stage: _draw_stage,
    Alternative: _draw_alternative,
}
"""What draws the values of each type."""

fill_pictures(Pictures(draw_graph, draw_value))
