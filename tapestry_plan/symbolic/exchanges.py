"""What goes from device to device at any size: the cells of each transfer as a set whose parameter is the size.

What is placed, lands, is merged and is brought is asked of the choices, as where steps are written
(`steps/lowering.py`); who gets which cells is said of sets that hold for all sizes of a class::

    need    what the device's part of the index space reads            one box, through projection and views
    had     what it made, or received for operators before             a union
    a holder's cells of need − had come from it, if it is nearest     `list_senders`, on boxes equal at all sizes

So a transfer's cells are right at every size of the class, and so is their number.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from msgspec import Struct

from tapestry_plan.ir import Graph, OpNode, find_written_dtype, map_makers, parts_of
from tapestry_plan.steps import (
    Choices,
    Layout,
    Lot,
    MergeStage,
    Mesh,
    find_landing,
    find_last_place,
    list_given_out,
    list_placed,
    list_senders,
    list_stages_of,
    name_stage,
    tell_producer,
)
from tapestry_plan.symbolic.affine import Affine, Frame, Samples
from tapestry_plan.symbolic.relations import AffineBox, Relations, write_box
from tapestry_sets.interop import NonAffineSize
from tapestry_sets.limits import quote
from tapestry_sets.solvers import isl


class Route(NamedTuple):
    """What is summed up in one row: where cells of a tensor go, and what for."""

    tensor: str
    producer: str
    consumer: str
    source: int
    target: int
    part: int


class HeldBoxes(Struct, frozen=True):
    """What each device has of a tensor: boxes, of which partial results, or lots."""

    boxes: tuple[AffineBox | None, ...]
    parts: tuple[int, ...] | None = None
    lots: tuple[Lot | None, ...] = ()

    def cells(self, device: int) -> Any:
        """The cells of a device that has some."""
        lot = self.lots[device] if self.lots else None
        bounds = self.boxes[device]
        assert bounds is not None, "an idle device has no cells"
        return write_box(bounds) if lot is None else isl.to_isl(lot.cells)

    def list_groups(self) -> list[int]:
        """For each device the number of those that have the same, -1 for one that has nothing.

        Raises
        ------
        Coincidence
            Where boxes are the same at some sizes alone.
        """
        keys: dict[Any, int] = {}
        found = []
        for device, bounds in enumerate(self.boxes):
            part = -1 if self.parts is None else self.parts[device]
            lot = self.lots[device] if self.lots else None
            found.append(-1 if bounds is None else keys.setdefault((part, lot, bounds), len(keys)))
        every = list(keys)
        for k, (part, lot, one) in enumerate(every):
            for other in every[:k]:
                if other[:2] == (part, lot):
                    _tell_apart(one, other[2])
        return found


class Coincidence(NonAffineSize):
    """Two boxes are the same at one size alone, from which on they differ: formulas begin behind it."""


def _tell_apart(one: AffineBox, other: AffineBox) -> None:
    """Raise Coincidence where two boxes that differ as formulas are the same for some m >= 0."""
    where: int | None = None
    for a, b in zip((n for pair in one for n in pair), (n for pair in other for n in pair), strict=True):
        if a == b:
            continue
        if a.slope == b.slope:
            return
        m, rest = divmod(b.constant - a.constant, a.slope - b.slope)
        if rest or m < 0 or (where is not None and where != m):
            return
        where = m
    if where is not None:
        raise Coincidence("two devices hold the same cells at one size, and others at all others")


class Exchanges:
    """The transfers of a plan at the sizes of a frame.

    Parameters
    ----------
    graph : Graph
        The plan's own.
    graphs : sequence of Graph
        The same at several sizes.
    samples : Samples
        These sizes.
    mesh : Mesh
    choices : Choices
        The plan's.
    frame : Frame
    """

    def __init__(
        self,
        graph: Graph,
        graphs: Sequence[Graph],
        samples: Samples,
        mesh: Mesh,
        choices: Choices,
        frame: Frame,
    ) -> None:
        self._graph, self._mesh, self._choices = graph, mesh, choices
        self._relations = Relations(graphs, samples, frame)
        self._makers = map_makers(self._graph)
        self._held: dict[str, HeldBoxes] = {}
        self._kept: dict[str, HeldBoxes] = {}
        self._had: dict[tuple[str, int], Any] = {}
        self._landed: set[str] = set()
        self._seen: dict[Any, Any] = {}
        self.found: defaultdict[Route, list[Any]] = defaultdict(list)
        """The cells of each route, step by step."""
        self.refused: dict[tuple[str, str], str] = {}
        """By tensor and consumer, why its transfers have no formula, from there on."""

    def itemsize(self, route: Route) -> int:
        """Bytes of a cell of what goes: of the tensor, or of what its maker writes as a part."""
        maker = self._makers.get(route.tensor)
        if route.part < 0 or maker is None:
            return self._graph.stored[route.tensor].itemsize
        return np.dtype(find_written_dtype(self._graph, maker, route.tensor)).itemsize

    # -- boxes -------------------------------------------------------------------------------------------

    def _cut(self, layout: Layout, extents: Sequence[Affine], what: str) -> HeldBoxes:
        """What each device has of an index space, or of a tensor, in a layout."""
        cuts = [_cut_axis(layout, axis, extent, what) for axis, extent in enumerate(extents)]
        if layout.lots:
            whole = tuple((Affine(0, 0), extent) for extent in extents)
            return HeldBoxes(tuple(None if lot is None else whole for lot in layout.lots), lots=layout.lots)
        return HeldBoxes(
            tuple(
                None if cell is None else tuple(cut[part] for cut, part in zip(cuts, cell, strict=True))
                for cell in layout.cells
            )
        )

    def _cut_tensor(self, kind: str, name: str, layout: Layout) -> HeldBoxes:
        return self._cut(layout, self._relations.shape(name), f"{kind} {quote(name)}")

    def _shards(self, node: OpNode) -> HeldBoxes:
        layout = self._choices.layouts["operator", node.name]
        return self._cut(layout, self._relations.index_shape(node.name), f"operator {quote(node.name)}")

    def _hold_output(self, node: OpNode, k: int) -> HeldBoxes:
        """What each device makes of an output."""
        signature, layout = self._graph.signature(node.name), self._choices.layouts["operator", node.name]
        boxes = self._shards(node).boxes
        made = tuple(None if box is None else self._relations.hull(node.name, k, box) for box in boxes)
        cut = signature.reductions
        return HeldBoxes(made, tuple(layout.number_parts(cut).tolist()) if layout.count_parts(cut) > 1 else None)

    # -- who gets what -----------------------------------------------------------------------------------

    def run(self) -> None:
        """Find the transfers of all stages, in the order of the graph."""
        for name, layout in list_placed(self._graph, self._choices):
            with self._refusing(name, name_stage("source", name)):
                self._hold(name, self._cut_tensor("source", name, layout))
        for node in self._graph.order():
            for operand in range(len(node.inputs)):
                self._read(node, operand)
            for k, name in enumerate(node.outputs):
                with self._refusing(name, node.name):
                    self._hold(name, self._hold_output(node, k))
            for name in node.outputs:
                self._land(name)
        for name in list_given_out(self._graph):
            self._bring_output(name)

    def _hold(self, name: str, held: HeldBoxes) -> None:
        """A tensor is there; who has complete cells has them for good."""
        self._held[name] = held
        if held.parts is None:
            self._receive(name, {d: held.cells(d) for d, box in enumerate(held.boxes) if box is not None})

    def _receive(self, name: str, cells: dict[int, Any]) -> None:
        for device, some in cells.items():
            before = self._had.get((name, device))
            self._had[name, device] = some if before is None else (before | some).coalesce()

    def _read(self, node: OpNode, operand: int) -> None:
        for stored in self._graph.source(node.inputs[operand]).stored:
            self._land_given(stored)
            if stored in self._held:
                with self._refusing(stored, node.name):
                    self._read_of(node, operand, stored)

    def _read_of(self, node: OpNode, operand: int, stored: str) -> None:
        relation = self._relations.reads(node.name, operand).get(stored)
        if relation is None:
            return
        signature = self._graph.signature(node.name)
        starts = [signature.axis(name) for name in signature.inputs[operand].at_start_of]
        needs = {
            device: self._look(box, relation)
            for device, box in enumerate(self._shards(node).boxes)
            if box is not None and all(box[axis][0] == (0, 0) for axis in starts)
        }
        self._gather(node.name, stored, needs)

    def _look(self, box: AffineBox, relation: Any) -> Any:
        """The cells that an index box reads; of devices with one box, once."""
        key = box, id(relation)
        if key not in self._seen:
            self._seen[key] = write_box(box).apply(relation)
        return self._seen[key]

    def _gather(self, label: str, name: str, needs: dict[int, Any]) -> None:
        """Send each device what it needs and has not, from the nearest of those that hold it."""
        held = self._held[name]
        sends = list_senders(held.list_groups(), self._mesh)
        cells = {d: held.cells(d) for d, box in enumerate(held.boxes) if box is not None}
        producer = tell_producer(self._graph, self._makers, name)
        for device, need in needs.items():
            had = self._had.get((name, device))
            missing = need if had is None else need.subtract(had)
            if missing.is_empty():
                continue
            for holder in np.flatnonzero(sends[:, device]).tolist():
                if holder != device:
                    some = missing.intersect(cells[holder])
                    if not some.is_empty():
                        part = -1 if held.parts is None else held.parts[holder]
                        self.found[Route(name, producer, label, holder, device, part)].append(some)
        self._receive(name, needs)

    # -- landings and outputs ----------------------------------------------------------------------------

    def _land_given(self, name: str) -> None:
        if name not in self._landed and self._graph.stored[name].kind != "result" and name in self._held:
            self._landed.add(name)
            self._land(name)

    def _land(self, name: str) -> None:
        layout = find_landing(self._choices, name)
        if layout is None or name not in self._held:
            return
        with self._refusing(name, name_stage("landing", name)):
            self._land_in(name, layout)

    def _land_in(self, name: str, layout: Layout) -> None:
        rests, held = self._cut_tensor("landing", name, layout), self._held[name]
        order = self._choices.merged.get(name)
        if order is not None and held.parts is not None:
            self._merge(name, rests, list_stages_of(self._graph, self._choices, name, order))
            self._hold(name, rests)
            return
        self._bring(name_stage("landing", name), name, rests)
        if held.parts is None:
            self._kept[name] = held

    def _bring(self, label: str, name: str, rests: HeldBoxes) -> None:
        self._gather(label, name, {d: rests.cells(d) for d, box in enumerate(rests.boxes) if box is not None})
        self._held[name] = rests

    def _merge(self, name: str, rests: HeldBoxes, stages: Sequence[MergeStage]) -> None:
        """Parts are merged stage by stage: what a device has after one is what rests on those that it sends to."""
        boxes = list(rests.boxes)
        after: list[list[AffineBox | None]] = []
        for stage in reversed(stages):
            after.append(boxes)
            boxes = [
                None
                if box is None
                else _hull_all(boxes[d] for d in range(len(boxes)) if k in stage.sources[d].tolist())
                for k, box in enumerate(boxes)
            ]
        for number, (stage, mine) in enumerate(zip(stages, reversed(after), strict=True), 1):
            label = name_stage("landing", name, None if number == len(stages) else number)
            for device in np.flatnonzero(stage.bounds[0]).tolist():
                pairs = zip(stage.sources[device].tolist(), stage.before[device].tolist(), strict=True)
                for source, part in pairs:
                    box = mine[device]
                    if source != device and box is not None:
                        route = Route(name, self._makers[name].name, label, source, device, part)
                        self.found[route].append(write_box(box))

    def _bring_output(self, name: str) -> None:
        self._land_given(name)
        held = self._held.get(name)
        if held is None:
            return
        layout = find_last_place(self._choices, name, held.parts is not None)
        if layout is not None:
            label = name_stage("output", name)
            with self._refusing(name, label):
                self._bring(label, name, self._cut_tensor("output", name, layout))
        elif name in self._kept:
            self._held[name] = self._kept.pop(name)

    @contextmanager
    def _refusing(self, tensor: str, consumer: str) -> Iterator[None]:
        """Note where something cannot be said of a tensor: it has no formulas from there on."""
        try:
            yield
        except Coincidence:
            raise
        except NonAffineSize as error:
            self.refused[tensor, consumer] = str(error)
            self._held.pop(tensor, None)


def _cut_axis(layout: Layout, axis: int, extent: Affine, what: str) -> tuple[tuple[Affine, Affine], ...]:
    """Where the parts along an axis begin and end."""
    parts, n = layout.parts[axis], layout.extents[axis]
    if not extent.slope:
        return tuple((Affine(0, low), Affine(0, high)) for low, high in layout.cuts[axis])
    if layout.lots:
        raise NonAffineSize(f"{what} is placed in boxes by device, which say nothing of other sizes")
    if layout.cuts[axis] != parts_of(n, parts):
        raise NonAffineSize(f"{what} is cut into uneven parts along axis {axis}")
    slope, constant, rest = extent.slope // parts, *divmod(extent.constant, parts)
    assert extent.slope % parts == 0, "the frame's step is a multiple of the parts"
    ends = [Affine(slope * k, constant * k + min(k, rest)) for k in range(parts + 1)]
    return tuple(pairwise(ends))


def _hull_all(boxes: Iterable[AffineBox | None]) -> AffineBox:
    some = [box for box in boxes if box is not None]
    return tuple(
        (_extreme([low for low, _ in ends], -1), _extreme([high for _, high in ends], 1))
        for ends in zip(*some, strict=True)
    )


def _extreme(numbers: Sequence[Affine], sign: int) -> Affine:
    """The greatest of some numbers for all m >= 0, or with sign -1 the least one."""
    for one in numbers:
        if all(sign * (one.slope - n.slope) >= 0 and sign * (one.constant - n.constant) >= 0 for n in numbers):
            return one
    raise Coincidence("which of two ends is further depends on the size")
