"""Tensors in blocks, and these along the axes of a mesh, as most libraries say where they lie.

::

    mesh (2, 3), axes x and y        device   0      1      2      3      4      5
                                     x, y     0 0    0 1    0 2    1 0    1 1    1 2
    rows of t                                0-3    0-3    0-3    4-7    4-7    4-7     along x, copies along y
    rows of u                                0-1    2-3    4-5    6-7    8-9   10-11    along x, then along y

A block's number along an axis of the tensor must be the row-major number of the device's coordinates on some axes of
the mesh. What lies otherwise is not rounded to something that does: it is refused, with the reason. Two things are told
beside a placement, for libraries have no word for them: cells that a device is given beside an even part of its own, a
halo, and axes of the mesh along which one device alone has the tensor and the others idle, where libraries have copies.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import islice, product
from math import prod
from typing import TypeVar

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from tapestry_plan.ir import Graph
from tapestry_plan.steps import tuning
from tapestry_plan.steps.layouts.cells import unite
from tapestry_plan.steps.layouts.mesh import Mesh
from tapestry_plan.steps.step import HOST, Buffer, Compute, Copy, Output, Reduce, Step
from tapestry_sets.limits import Public, quote
from tapestry_sets.regions import Box, DisjointRegions, Region

Called = TypeVar("Called", bound=Hashable)


class NotExported(ValueError):
    """A tensor does not lie as a library can say it; the message names the tensor and the reason.

    Examples
    --------
    >>> from tapestry_plan import Graph, Mesh, ops, plan
    >>> g = Graph()
    >>> _ = g.output(ops.relu(g.input("x", (3,)), name="act"), "y")
    >>> plan(g, Mesh(4), fix={"act": {"i0": 3}}).to_mesh_axes()["act"]
    Traceback (most recent call last):
        ...
    tapestry_plan.steps.exports.placements.NotExported: tensor 'act': device 3 has none of it
    """


class TensorBlocks(Struct, frozen=True):
    """A tensor cut into parts axis by axis, and the devices that have each block.

    Parameters
    ----------
    shape : tuple of int
        Of the tensor.
    kind : str
        "input", "constant", "result" or "output".
    sizes : tuple of tuple of int
        For each axis of the tensor the extents of its parts, in order.
    halos : tuple of int
        For each axis the cells beside its part that a device is given too, at most: 0 where there are none.
    devices : tuple of tuple of int
        The devices that have each block, of the blocks in row-major order.
    """

    shape: tuple[int, ...]
    kind: str
    sizes: tuple[tuple[int, ...], ...]
    halos: tuple[int, ...]
    devices: tuple[tuple[int, ...], ...]


class MeshPlacement(TensorBlocks, frozen=True, metaclass=Public):
    """TensorBlocks along the axes of a mesh.

    Parameters
    ----------
    axes : tuple of tuple of str
        For each axis of the tensor the axes of the mesh that it is cut along, the outermost first.
    idle : tuple of str
        The axes of the mesh along which one device has the tensor and the others have none of it. Along axes that are
        neither here nor in `axes` there are copies.

    Examples
    --------
    >>> from tapestry_plan import Graph, Mesh, ops, plan
    >>> g = Graph()
    >>> _ = g.output(ops.relu(g.input("x", (7, 4)), name="act"), "y")
    >>> found = plan(g, Mesh(2), fix={"act": {"i0": 2}}).to_mesh_axes().placements["act"]
    >>> found.axes, found.sizes
    ((('x',), ()), ((4, 3), (4,)))
    """

    axes: tuple[tuple[str, ...], ...]
    idle: tuple[str, ...] = ()


class FineMesh(Struct, frozen=True):
    """The axes of a mesh, those whose parts some tensor is cut along taken apart into factors.

    A mesh of four devices on one axis cuts tensors in two as well: along an axis ``x.0`` of two, of which each has two
    devices along ``x.1``.

    Parameters
    ----------
    shape : tuple of int
    names : tuple of str
    owners : tuple of int
        The axis of the mesh that each is a part of.
    """

    shape: tuple[int, ...]
    names: tuple[str, ...]
    owners: tuple[int, ...]

    @classmethod
    def list_all(cls, mesh: Mesh) -> Iterator[FineMesh]:
        """All axes in their prime factors, the smallest first, then in other orders; not more than can be tried.

        Examples
        --------
        >>> [fine.shape for fine in FineMesh.list_all(Mesh((6, 1)))]
        [(2, 3, 1), (3, 2, 1)]
        """
        orders = [list(islice(_list_orders(_list_primes(n)), tuning.TRIED_ORDERS)) for n in mesh.shape]
        for factors in islice(product(*orders), tuning.TRIED_ORDERS):
            taken, names, owners = {*mesh.names}, list[str](), list[int]()
            for axis, (name, mine) in enumerate(zip(mesh.names, factors, strict=True)):
                for k in range(len(mine)):
                    called = name if len(mine) == 1 else f"{name}.{k}"
                    while len(mine) > 1 and called in taken:
                        called += "_"
                    taken.add(called)
                    names.append(called)
                    owners.append(axis)
            yield cls(tuple(n for mine in factors for n in mine), tuple(names), tuple(owners))


def _list_primes(number: int) -> list[int]:
    found, factor = list[int](), 2
    while number > 1:
        while number % factor == 0:
            found.append(factor)
            number //= factor
        factor += 1
    return found or [1]


def _list_orders(factors: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Each order of some numbers once."""
    if not factors:
        yield ()
    for first in sorted(set(factors)):
        rest = list(factors)
        rest.remove(first)
        for order in _list_orders(rest):
            yield first, *order


class Lying(Struct, frozen=True):
    """Where a plan's tensors lie, and where its outputs end; a reason for what is not in blocks.

    Parameters
    ----------
    mesh : Mesh
    tensors, outputs : dict of str to TensorBlocks or str
    """

    mesh: Mesh
    tensors: dict[str, TensorBlocks | str]
    outputs: dict[str, TensorBlocks | str]


def find_blocks(
    graph: Graph, mesh: Mesh, buffers: Sequence[Buffer], steps: Sequence[Step], outputs: Sequence[Output]
) -> Lying:
    """Where a plan's steps place or make the tensors of its graph, and where its outputs are in the end.

    Of an input or constant it is what devices are given; of a result the complete cells that each device makes, or
    merges first.
    """
    held: dict[str, dict[int, dict[int, list[Region]]]] = {}
    """Of each tensor, on each device, the cells in each buffer; where it spills, inputs are placed again in others."""
    known = {buffer.id: buffer for buffer in buffers}
    for step in steps:
        for number, regions in _list_complete(step):
            buffer = known[number]
            tensor = graph.stored.get(buffer.tensor)
            if tensor is None or buffer.part >= 0:
                continue
            mine = held.setdefault(buffer.tensor, {}).setdefault(buffer.device, {})
            if isinstance(step, Copy):
                mine.setdefault(number, []).extend(regions or ())
            elif not mine:
                whole = Region.from_bounds(tensor.shape, buffer.box.start, buffer.box.stop)
                mine[number] = [whole] if regions is None else list(regions)
    stored = graph.stored
    tensors = {name: _cut(stored[name].kind, stored[name].shape, mine) for name, mine in held.items()}
    return Lying(mesh, tensors, {output.name: _find_end(graph, known, output) for output in outputs})


def _list_complete(step: Step) -> Iterable[tuple[int, tuple[Region, ...] | None]]:
    """The buffers in which a step makes or places cells, with these; None for all that the buffer is over."""
    if isinstance(step, Compute):
        return [(number, None) for number in step.outputs]
    if isinstance(step, Reduce):
        return [(step.output, step.regions)]
    return [(step.dst, step.regions)] if isinstance(step, Copy) and step.src == HOST and step.piece is None else []


def _find_end(graph: Graph, buffers: Mapping[int, Buffer], output: Output) -> TensorBlocks | str:
    source = graph.source(output.tensor)
    if not source.direct:
        return f"it is a view of {', '.join(map(quote, source.stored))}, which is not made apart"
    held: dict[int, dict[int, list[Region]]] = {}
    for number, region in (*output.blocks, *output.replicas):
        held.setdefault(buffers[number].device, {}).setdefault(number, []).append(region)
    return _cut("output", output.shape, held)


def _cut(kind: str, shape: tuple[int, ...], held: Mapping[int, Mapping[int, Sequence[Region]]]) -> TensorBlocks | str:
    boxes: dict[int, Box] = {}
    for device in sorted(held):
        cells = unite([DisjointRegions(shape, mine) for mine in held[device].values()], shape)
        bounds = cells.bounds()
        if bounds is None:
            continue
        box = Box.from_bounds(*bounds)
        if cells.size != box.size:
            return f"device {device} has {cells.size} cells of it that do not make a box"
        boxes[device] = box
    return cut_boxes(kind, shape, boxes)


def cut_boxes(
    kind: str, shape: tuple[int, ...], boxes: Mapping[int, Box], are_reads: bool = False
) -> TensorBlocks | str:
    """The blocks of a tensor of which devices have boxes; a reason where these are not blocks.

    Of boxes that are reads the parts are even: cells between them, which nobody reads, are in these too.

    Examples
    --------
    >>> from tapestry_sets import Box
    >>> cut_boxes("result", (8, 6), {k: Box((k // 2 * 4, 0), (4, 6)) for k in range(4)})
    TensorBlocks(shape=(8, 6), kind='result', sizes=((4, 4), (6,)), halos=(0, 0), devices=((0, 1), (2, 3)))
    >>> cut_boxes("result", (8, 6), {0: Box((0, 0), (3, 6)), 1: Box((4, 0), (4, 6))})
    'parts along axis 0 leave cells out: 3 to 3'
    """
    sizes, halos, every = list[tuple[int, ...]](), list[int](), list[list[tuple[int, int]]]()
    for axis, extent in enumerate(shape):
        spans = sorted({(box.start[axis], box.stop[axis]) for box in boxes.values()})
        parts = _part_evenly(spans, extent) if are_reads else _part_spans(spans, extent)
        if isinstance(parts, str):
            return f"parts along axis {axis} {parts}"
        every.append(spans)
        sizes.append(tuple(high - low for low, high in parts))
        halos.append(max(max(a - low, high - b, 0) for (low, high), (a, b) in zip(spans, parts, strict=True)))
    groups: dict[tuple[int, ...], list[int]] = {at: [] for at in product(*(range(len(spans)) for spans in every))}
    for device, box in boxes.items():
        spans_of = zip(every, box.start, box.stop, strict=True)
        groups[tuple([spans.index((low, high)) for spans, low, high in spans_of])].append(device)
    for at, group in groups.items():
        if not group:
            return f"no device has its block {at}"
    return TensorBlocks(shape, kind, tuple(sizes), tuple(halos), tuple(map(tuple, groups.values())))


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
    parts = _part_evenly(spans, extent)
    if isinstance(parts, str):
        return parts
    if any(low > a or high < b for (low, high), (a, b) in zip(spans, parts, strict=True)):
        return f"overlap, and do not make {len(spans)} even parts with what lies beside them"
    return parts


def _part_evenly(spans: Sequence[tuple[int, int]], extent: int) -> list[tuple[int, int]] | str:
    """As many even parts as there are spans, each with cells of its own span; else a reason."""
    if extent % len(spans):
        return f"are {len(spans)}, of {extent} cells, which make no even parts"
    even = extent // len(spans)
    parts = [(k * even, (k + 1) * even) for k in range(len(spans))]
    if any(low >= b or high <= a for (low, high), (a, b) in zip(spans, parts, strict=True)):
        return f"do not make {len(spans)} even parts with what lies beside them"
    return parts


# -- along a mesh ------------------------------------------------------------------------------------------


def place_all(
    mesh: Mesh, found: Mapping[Called, TensorBlocks | str]
) -> tuple[FineMesh, dict[Called, MeshPlacement | str]]:
    """The factors of a mesh's axes along which most tensors are cut, and of each its placement or a reason."""
    best: tuple[int, FineMesh, dict[Called, MeshPlacement | str]] | None = None
    for fine in FineMesh.list_all(mesh):
        placed = {key: one if isinstance(one, str) else place_blocks(one, fine) for key, one in found.items()}
        refused = sum(isinstance(one, str) for one in placed.values())
        if best is None or refused < best[0]:
            best = refused, fine, placed
        if not refused:
            break
    assert best is not None, "a mesh has an axis"
    return best[1:]


def place_blocks(blocks: TensorBlocks, mesh: FineMesh) -> MeshPlacement | str:
    """TensorBlocks along the axes of a mesh; a reason where they are not.

    Examples
    --------
    >>> from tapestry_sets import Box
    >>> rows, mesh = [Box((4 * k, 0), (4, 6)) for k in (0, 0, 1, 1)], next(FineMesh.list_all(Mesh(4)))
    >>> mesh.names, place_blocks(cut_boxes("result", (8, 6), dict(enumerate(rows))), mesh).axes
    (('x.0', 'x.1'), (('x.0',), ()))
    >>> place_blocks(cut_boxes("result", (8, 6), dict(enumerate(rows[::-1]))), mesh)
    'parts along axis 0 are not in the order of the mesh: device 0 has part 1'
    >>> place_blocks(cut_boxes("result", (8, 6), {0: rows[0], 2: rows[2]}), mesh).idle
    ('x.1',)
    """
    parts = tuple(map(len, blocks.sizes))
    numbers = np.full(prod(mesh.shape), -1)
    for number, group in enumerate(blocks.devices):
        numbers[list(group)] = number
    numbers = numbers.reshape(mesh.shape)
    places = [np.unique(along) for along in np.nonzero(numbers >= 0)]
    if (numbers[np.ix_(*places)] < 0).any() or any(
        1 < len(along) < n for along, n in zip(places, mesh.shape, strict=True)
    ):
        return f"device {int(np.argmax(numbers.ravel() < 0))} has none of it"
    idle = tuple(name for name, along, n in zip(mesh.names, places, mesh.shape, strict=True) if len(along) < n)
    numbers = np.broadcast_to(numbers[np.ix_(*places)], mesh.shape)
    axes, used = list[tuple[str, ...]](), dict[str, int]()
    for axis, index in enumerate(np.unravel_index(numbers, parts) if parts else ()):
        along = _find_axes(mesh, index, parts[axis])
        if isinstance(along, str):
            return f"parts along axis {axis} {along}"
        for name in along:
            if name in used:
                return f"axes {used[name]} and {axis} are both cut along the mesh's axis {quote(name)}"
            used[name] = axis
        axes.append(along)
    return MeshPlacement(blocks.shape, blocks.kind, blocks.sizes, blocks.halos, blocks.devices, tuple(axes), idle)


def _find_axes(mesh: FineMesh, index: NDArray[np.int64], parts: int) -> tuple[str, ...] | str:
    """The axes of the mesh along which parts are numbered, row-major; a reason where they are not."""
    if parts == 1:
        return ()
    steps: dict[int, int] = {}
    for axis, extent in enumerate(mesh.shape):
        step = int(np.take(index, 1, axis).flat[0] - np.take(index, 0, axis).flat[0]) if extent > 1 else 0
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
        return (
            f"are {parts}, not on devices that lie along axes of the mesh; plan with space='mesh', or fix its operator "
            "along these axes by their names"
        )
    device = int(np.flatnonzero((numbers != index).ravel())[0])
    return f"are not in the order of the mesh: device {device} has part {int(index.flat[device])}"


def join_axes(
    mesh: Mesh, fine: FineMesh, found: Mapping[Called, MeshPlacement]
) -> tuple[FineMesh, dict[Called, MeshPlacement]]:
    """Placements on a fine mesh where axes that none of them is cut along in part are whole again."""
    placed = [each for one in found.values() for each in (*one.axes, one.idle)]
    names: dict[str, str] = {}
    """Of each axis of the fine mesh what it is called."""
    for axis, name in enumerate(mesh.names):
        mine = [one for one, owner in zip(fine.names, fine.owners, strict=True) if owner == axis]
        is_whole = all(_has_whole(each, mine) for each in placed)
        names |= {one: name if is_whole else one for one in mine}
    shape, owners = dict[str, int](), dict[str, int]()
    for one, n, owner in zip(fine.names, fine.shape, fine.owners, strict=True):
        shape[names[one]] = shape.get(names[one], 1) * n
        owners[names[one]] = owner

    def join(placement: MeshPlacement) -> MeshPlacement:
        *axes, idle = (tuple(dict.fromkeys(names[one] for one in each)) for each in (*placement.axes, placement.idle))
        return replace(placement, axes=tuple(axes), idle=idle)

    joined = FineMesh(tuple(shape.values()), tuple(shape), tuple(owners.values()))
    return joined, {key: join(one) for key, one in found.items()}


def _has_whole(along: Sequence[str], parts: Sequence[str]) -> bool:
    """Whether all parts of an axis stand side by side, in order, or none is there."""
    at = [along.index(one) for one in parts if one in along]
    return not at or at == list(range(at[0], at[0] + len(parts)))
