"""Tensors in blocks along the axes of a mesh, as most libraries say where they lie.

::

    mesh (2, 3), axes x and y        device   0      1      2      3      4      5
                                     x, y     0 0    0 1    0 2    1 0    1 1    1 2
    rows of t                                0-3    0-3    0-3    4-7    4-7    4-7     along x, copies along y
    rows of u                                0-1    2-3    4-5    6-7    8-9   10-11    along x, then along y

A block's number along an axis of the tensor must be the row-major number of the device's coordinates on some axes of
the mesh. What lies otherwise is not rounded to something that does: it is refused, with the reason. Only of cells that
a device is given beside an even part of its own, a halo, the part is told, and how wide the halo is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import prod

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from tapestry_plan.ir import Graph
from tapestry_plan.steps.layouts.mesh import Mesh
from tapestry_plan.steps.step import HOST, Buffer, Compute, Copy, Reduce, Step
from tapestry_sets.limits import quote
from tapestry_sets.regions import Box, DisjointRegions, Region


class NotExported(ValueError):
    """A tensor does not lie as a library can say it; the message names the tensor and the reason."""


class MeshPlacement(Struct, frozen=True):
    """Where the blocks of a tensor lie on a mesh.

    Parameters
    ----------
    shape : tuple of int
        Of the tensor.
    kind : str
        "input", "constant" or "result".
    axes : tuple of tuple of str
        For each axis of the tensor the axes of the mesh that it is cut along, the outermost first.
    sizes : tuple of tuple of int
        For each axis of the tensor the extents of its parts, in order.
    halos : tuple of int
        For each axis the cells beside its part that a device is given too, at most: 0 where there are none.
    """

    shape: tuple[int, ...]
    kind: str
    axes: tuple[tuple[str, ...], ...]
    sizes: tuple[tuple[int, ...], ...]
    halos: tuple[int, ...]


class FineMesh(Struct, frozen=True):
    """The axes of a mesh, those whose parts some tensor is cut along taken apart into prime factors.

    A mesh of four devices on one axis cuts tensors in two as well: along an axis ``x.0`` of two, of which each has two
    devices along ``x.1``.
    """

    shape: tuple[int, ...]
    names: tuple[str, ...]

    @classmethod
    def of(cls, mesh: Mesh) -> FineMesh:
        """All axes, in their prime factors."""
        names, shape = list[str](), list[int]()
        for name, extent in zip(mesh.names, mesh.shape, strict=True):
            factors = _list_primes(extent)
            shape += factors
            names += [name] if len(factors) == 1 else [f"{name}.{k}" for k in range(len(factors))]
        return cls(tuple(shape), tuple(names))


def _list_primes(number: int) -> list[int]:
    found, factor = list[int](), 2
    while number > 1:
        while number % factor == 0:
            found.append(factor)
            number //= factor
        factor += 1
    return found


def join_axes(mesh: Mesh, found: Mapping[str, MeshPlacement | str]) -> tuple[FineMesh, dict[str, MeshPlacement | str]]:
    """Placements on a fine mesh where axes that no tensor is cut along in part are whole again."""
    fine = FineMesh.of(mesh)
    extents = dict(zip(fine.names, fine.shape, strict=True))
    placed = [each for one in found.values() if isinstance(one, MeshPlacement) for each in one.axes]
    names: dict[str, str] = {}
    """Of each axis of the fine mesh what it is called."""
    for name in mesh.names:
        mine = [one for one in fine.names if one == name or one.startswith(f"{name}.")]
        is_whole = all(_has_whole(each, mine) for each in placed)
        names |= {one: name if is_whole else one for one in mine}
    shape: dict[str, int] = {}
    for one, name in names.items():
        shape[name] = shape.get(name, 1) * extents[one]

    def join(placement: MeshPlacement) -> MeshPlacement:
        axes = (tuple(dict.fromkeys(names[one] for one in along)) for along in placement.axes)
        return replace(placement, axes=tuple(axes))

    made = {name: one if isinstance(one, str) else join(one) for name, one in found.items()}
    return FineMesh(tuple(shape.values()), tuple(shape)), made


def _has_whole(along: Sequence[str], parts: Sequence[str]) -> bool:
    """Whether all parts of an axis stand side by side, in order, or none is there."""
    at = [along.index(one) for one in parts if one in along]
    return not at or at == list(range(at[0], at[0] + len(parts)))


def list_placements(
    graph: Graph, mesh: Mesh, buffers: Sequence[Buffer], steps: Sequence[Step]
) -> tuple[FineMesh, dict[str, MeshPlacement | str]]:
    """A mesh's axes, and of each tensor that a plan's steps place or make, its placement, or why it has none.

    Of an input or constant it is what devices are given; of a result the complete cells that each device makes, or
    merges first.
    """
    held: dict[str, dict[int, list[Region]]] = {}
    known = {buffer.id: buffer for buffer in buffers}
    for step in steps:
        for number, regions in _list_complete(step):
            buffer = known[number]
            tensor = graph.stored.get(buffer.tensor)
            if tensor is None or buffer.part >= 0:
                continue
            mine = held.setdefault(buffer.tensor, {})
            if regions is None:
                mine.setdefault(buffer.device, [Region.from_bounds(tensor.shape, buffer.box.start, buffer.box.stop)])
            elif isinstance(step, Copy):
                mine.setdefault(buffer.device, []).extend(regions)
            else:
                mine.setdefault(buffer.device, list(regions))
    fine = FineMesh.of(mesh)
    tensors = {name: graph.stored[name] for name in held}
    return join_axes(mesh, {name: _place(t.kind, t.shape, fine, held[name]) for name, t in tensors.items()})


def _list_complete(step: Step) -> Iterable[tuple[int, tuple[Region, ...] | None]]:
    """The buffers in which a step makes or places cells, with these; None for all that the buffer is over."""
    if isinstance(step, Compute):
        return [(number, None) for number in step.outputs]
    if isinstance(step, Reduce):
        return [(step.output, step.regions)]
    return [(step.dst, step.regions)] if isinstance(step, Copy) and step.src == HOST and step.piece is None else []


def _place(
    kind: str, shape: tuple[int, ...], mesh: FineMesh, held: Mapping[int, Sequence[Region]]
) -> MeshPlacement | str:
    boxes: list[Box] = []
    for device in range(prod(mesh.shape)):
        cells = DisjointRegions(shape, held.get(device, ()))
        bounds = cells.bounds()
        if bounds is None:
            return f"device {device} has none of it"
        box = Box.from_bounds(*bounds)
        if cells.size != box.size:
            return f"device {device} has {cells.size} cells of it that do not make a box"
        boxes.append(box)
    return place_boxes(kind, shape, mesh, boxes)


def place_boxes(kind: str, shape: tuple[int, ...], mesh: FineMesh, boxes: Sequence[Box]) -> MeshPlacement | str:
    """The placement of a tensor of which each device has a box; a reason where these are not blocks along its mesh.

    Examples
    --------
    >>> from tapestry_plan.steps.layouts.mesh import Mesh
    >>> from tapestry_sets import Box
    >>> rows, mesh = [Box((4 * k, 0), (4, 6)) for k in (0, 0, 1, 1)], FineMesh.of(Mesh(4))
    >>> mesh.names, place_boxes("result", (8, 6), mesh, rows).axes
    (('x.0', 'x.1'), (('x.0',), ()))
    >>> place_boxes("result", (8, 6), mesh, rows[::-1])
    'parts along axis 0 are not in the order of the mesh: device 0 has part 1'
    """
    axes, sizes, halos, used = list[tuple[str, ...]](), list[tuple[int, ...]](), list[int](), dict[str, int]()
    for axis, extent in enumerate(shape):
        spans = sorted({(box.start[axis], box.stop[axis]) for box in boxes})
        parts = _part_spans(spans, extent)
        if isinstance(parts, str):
            return f"parts along axis {axis} {parts}"
        index = np.array([spans.index((box.start[axis], box.stop[axis])) for box in boxes]).reshape(mesh.shape)
        along = _find_axes(mesh, index, len(spans))
        if isinstance(along, str):
            return f"parts along axis {axis} {along}"
        for name in along:
            if name in used:
                return f"axes {used[name]} and {axis} are both cut along the mesh's axis {quote(name)}"
            used[name] = axis
        axes.append(along)
        sizes.append(tuple(high - low for low, high in parts))
        halos.append(max(max(a - low, high - b) for (low, high), (a, b) in zip(spans, parts, strict=True)))
    return MeshPlacement(shape, kind, tuple(axes), tuple(sizes), tuple(halos))


def _part_spans(spans: Sequence[tuple[int, int]], extent: int) -> list[tuple[int, int]] | str:
    """Parts that make up an axis: what devices have, without cells that their neighbors have too; else a reason."""
    end = 0
    for low, high in spans:
        if low > end:
            return f"leave cells out: {end} to {low - 1}"
        if low < end:
            break
        end = high
    else:
        return list(spans) if end == extent else f"leave cells out: {end} to {extent - 1}"
    if extent % len(spans):
        return f"overlap, and {extent} cells are no {len(spans)} even parts"
    even = extent // len(spans)
    parts = [(k * even, (k + 1) * even) for k in range(len(spans))]
    if any(low > a or high < b for (low, high), (a, b) in zip(spans, parts, strict=True)):
        return f"overlap, and are no {len(spans)} even parts with what lies beside them"
    return parts


def _find_axes(mesh: FineMesh, index: NDArray[np.int64], parts: int) -> tuple[str, ...] | str:
    """The axes of the mesh along which parts are numbered, row-major; a reason where they are not."""
    if parts == 1:
        return ()
    steps: dict[int, int] = {}
    for axis in range(len(mesh.shape)):
        step = int(np.take(index, 1, axis).flat[0] - np.take(index, 0, axis).flat[0])
        if step:
            steps[axis] = step
    order = sorted(steps, key=lambda axis: -steps[axis])
    weights = {axis: prod(mesh.shape[other] for other in order[k + 1 :]) for k, axis in enumerate(order)}
    numbers = np.zeros(mesh.shape, np.int64)
    for axis, weight in weights.items():
        numbers += weight * np.indices(mesh.shape)[axis]
    if (numbers == index).all():
        return tuple(mesh.names[axis] for axis in order)
    if prod(mesh.shape[axis] for axis in order) != parts:
        return f"are {parts}, which axes of the mesh do not make"
    device = int(np.flatnonzero((numbers != index).ravel())[0])
    return f"are not in the order of the mesh: device {device} has part {int(index.flat[device])}"
