"""Where a tensor lies, said device by device: boxes of its cells, of any sizes, on any devices.

::

    Placed({0: np.s_[:3], 2: np.s_[3:, :4], 5: [np.s_[3:6, 4:], np.s_[6:, 4:]]})

              columns 0-3   4-7
    rows 0-2      0          0        device 0 has whole rows, 2 and 5 have what is left, 5 in two boxes;
    rows 3-5      2          5        all other devices have nothing
    rows 6-       2          5

Devices may hold the same boxes, as replicas. Every cell lies somewhere, and two devices that share a cell have all in
common: so who sends a cell is said by the layout alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import prod
from types import EllipsisType
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import force_setattr

from tapestry_plan.ir import Axis, cells_of
from tapestry_plan.steps.layouts.layout import Layout, Lot, leave_out_even, parse_layout
from tapestry_plan.steps.layouts.mesh import Mesh
from tapestry_sets.limits import Public, as_int, check_fields, cut_text, freeze_dicts, quote
from tapestry_sets.regions import Box, DisjointRegions

Spans = tuple[tuple[int, int], ...]


class Placed(Struct, frozen=True, metaclass=Public):
    """Where a tensor lies: by device, the boxes of its cells.

    Parameters
    ----------
    by_device : mapping of int to boxes
        A `Box`, or an index as NumPy takes it (``np.s_[:3]``, ``np.s_[3:, :4]``, ``...`` for the whole tensor), as
        ``sharding.devices_indices_map(shape)`` of JAX has them by device; or a list of these. Devices that are not
        named hold nothing.

    Examples
    --------
    >>> import numpy as np
    >>> from tapestry_plan import Graph, Mesh, Placed, plan
    >>> g = Graph()
    >>> x, w = g.input("x", (8, 4)), g.input("w", (4, 4))
    >>> _ = g.output(x @ w, "y")
    >>> where = Placed({0: np.s_[:3], 1: np.s_[3:]})
    >>> p = plan(g, Mesh(2), layout={"x": where, "w": Placed({1: ...}), "y": where})
    >>> p.nbytes_placed, p.nbytes_by_link
    ((48, 144), {(1, 0): 64})
    """

    by_device: Mapping[int, Any]

    def __post_init__(self) -> None:
        check_fields(self)
        made: dict[int, tuple[Any, ...]] = {}
        for device, value in self.by_device.items():
            number = as_int(device, "Placed: a device")
            items = tuple(value) if isinstance(value, list) else (value,)
            for item in items:
                _check_item(item, f"Placed: device {number}")
            made[number] = items
        force_setattr(self, "by_device", freeze_dicts(made))

    def __hash__(self) -> int:
        return hash(repr(sorted(self.by_device.items())))


def lay_tensor(wanted: Mapping[Any, Any] | Placed, shape: Sequence[int], mesh: Mesh, where: str) -> Layout:
    """The layout of a tensor that lies as asked for: in parts along its axes, or in boxes by device.

    Raises
    ------
    TypeError, ValueError
        For what `parse_layout` or `lay_boxes` refuses, and for boxes where parts are wanted; `where` begins the text.
    """
    if isinstance(wanted, Placed):
        return lay_boxes(wanted, shape, mesh, where)
    for axis, value in wanted.items():
        if _has_boxes(value):
            raise TypeError(
                f"{where}: {quote(axis)} has {_show(value)}, where a number of parts or names of mesh axes are wanted; "
                "boxes by device are a Placed({0: np.s_[:3], 1: np.s_[3:]})"
            )
    axes = [Axis(str(k), n) for k, n in enumerate(shape)]
    return parse_layout(axes, {str(axis): value for axis, value in wanted.items()}, mesh, where)


def _has_boxes(value: Any) -> bool:
    return isinstance(value, Box | slice | EllipsisType) or (
        isinstance(value, tuple | list) and any(map(_has_boxes, value))
    )


def _show(index: Any) -> str:
    """An index as it is written in brackets: ``[:3, ...]``."""

    def show(one: Any) -> str:
        if one is ...:
            return "..."
        if not isinstance(one, slice):
            return quote(one)
        ends = ["" if end is None else quote(end) for end in (one.start, one.stop)]
        return ":".join(ends if one.step is None else [*ends, quote(one.step)])

    return cut_text(f"[{', '.join(map(show, index if isinstance(index, tuple | list) else (index,)))}]")


def lay_boxes(placed: Placed, shape: Sequence[int], mesh: Mesh, where: str) -> Layout:
    """The layout of a tensor that lies so; `where` begins what errors say.

    Raises
    ------
    ValueError
        For devices that the mesh does not have, boxes that do not lie in the tensor, cells that no device has, and
        devices that have some cells in common and not all.
    """
    lots: list[tuple[Box, ...]] = [()] * mesh.size
    for device, items in placed.by_device.items():
        if not 0 <= device < mesh.size:
            raise ValueError(f"{where}: there is no device {device}; the mesh has devices 0 to {mesh.size - 1}")
        boxes = (_read_box(item, shape, f"{where}: device {device}") for item in items)
        lots[device] = tuple(sorted(boxes, key=lambda box: (box.start, box.shape)))
    check_lots(lots, tuple(shape), where)
    grid, extents, rank = _find_grid(tuple(shape), lots), tuple(shape), len(shape)
    if grid is not None:
        return grid
    cells = tuple((0,) * rank if lot else None for lot in lots)
    return Layout(extents, (1,) * rank, cells, lots=tuple(Lot(lot, extents) if lot else None for lot in lots))


def _check_item(item: Any, where: str) -> None:
    entries = item if isinstance(item, tuple) else (item,)
    if not isinstance(item, Box) and not all(isinstance(one, slice | EllipsisType) for one in entries):
        raise TypeError(
            f"{where} has {quote(item)}; give a Box, slices as np.s_[:3, 2:], ... for the whole tensor, or a list of "
            "such"
        )


def _read_box(item: Any, shape: Sequence[int], where: str) -> Box:
    """A box of a tensor, which lies in it and is not empty."""
    box = item if isinstance(item, Box) else _read_slices(item if isinstance(item, tuple) else (item,), shape, where)
    inside = len(box.start) == len(shape) and Box.of(shape).contains(box)
    if not inside or not prod(box.shape):
        what = "is empty" if inside else "does not lie in it"
        raise ValueError(f"{where} has {box} of a tensor of shape {quote(list(shape))}, which {what}")
    return box


def _read_slices(index: Sequence[Any], shape: Sequence[int], where: str) -> Box:
    """The box of an index of slices; those that are missing at the end, or where ... stands, take all."""
    if index.count(...) > 1:
        raise ValueError(f"{where} has the index {_show(index)}, with ... more than once; give it once at most")
    if len(index) - index.count(...) > len(shape):
        raise ValueError(
            f"{where} has the index {_show(index)} of {len(index) - index.count(...)} axes, of a tensor of shape "
            f"{quote(list(shape))}; give a slice for each of {len(shape)} axes at most"
        )
    at = index.index(...) if ... in index else len(index)
    before, after = index[:at], index[at + 1 :]
    every = (*before, *[slice(None)] * (len(shape) - len(before) - len(after)), *after)
    bounds = []
    for axis, (one, n) in enumerate(zip(every, shape, strict=True)):
        if one.step not in (None, 1):
            raise ValueError(f"{where} has steps of {quote(one.step)} on axis {axis}; boxes have steps of 1")
        low, high = (
            end if value is None else as_int(value, f"{where}: axis {axis}") + n * (value < 0)
            for value, end in ((one.start, 0), (one.stop, n))
        )
        if not 0 <= low < high <= n:
            raise ValueError(
                f"{where} has cells {low} to {high} of axis {axis}, which has {n}; give 0 <= begin < end <= {n}"
            )
        bounds.append((low, high))
    return Box(tuple(low for low, _ in bounds), tuple(high - low for low, high in bounds))


def check_lots(lots: Sequence[tuple[Box, ...]], shape: tuple[int, ...], where: str) -> None:
    """Raise ValueError unless each cell is in one box of each device that has it, and such devices have all alike."""
    holders: dict[tuple[Box, ...], int] = {}
    for device, lot in enumerate(lots):
        holders.setdefault(lot, device)
    boxes = [(box, device) for lot, device in holders.items() for box in lot]
    rank = len(shape)
    low = np.array([box.start for box, _ in boxes], np.int64).reshape(len(boxes), rank)
    high = low + np.array([box.shape for box, _ in boxes], np.int64).reshape(len(boxes), rank)
    for k, (box, device) in enumerate(boxes):
        meets = ((low[k] < high[:k]) & (low[:k] < high[k])).all(axis=1)
        if meets.any():
            other, there = boxes[int(meets.argmax())]
            if there == device:
                raise ValueError(f"{where}: device {device} has {other} and {box}, which share cells; give each once")
            raise ValueError(
                f"{where}: device {there} has {other} and device {device} has {box}, which share some cells and not "
                "all; devices that have a cell in common hold the same boxes"
            )
    if sum(prod(box.shape) for box, _ in boxes) < prod(shape):
        missing = DisjointRegions.full(shape)
        for box, _ in boxes:
            missing = missing - cells_of(box, shape)
        bounds = missing.bounds()
        assert bounds is not None, "fewer cells are held than there are"
        raise ValueError(
            f"{where}: no device has {missing.size:,} of its {prod(shape):,} cells, among {quote(list(bounds[0]))} to "
            f"{quote(list(bounds[1]))}; every cell lies somewhere"
        )


def _find_grid(shape: tuple[int, ...], lots: Sequence[tuple[Box, ...]]) -> Layout | None:
    """The layout in parts along the axes, where the boxes are those of a grid; else None."""
    if any(len(lot) > 1 for lot in lots):
        return None
    boxes = [lot[0] if lot else None for lot in lots]
    cuts = [_cut_axis(axis, boxes) for axis in range(len(shape))]
    if any(cut is None for cut in cuts):
        return None
    numbers = [{span: k for k, span in enumerate(cut or ())} for cut in cuts]
    cells = tuple(
        None if box is None else tuple(which[span] for which, span in zip(numbers, _spans(box), strict=True))
        for box in boxes
    )
    parts = tuple(map(len, numbers))
    sizes = [tuple(high - low for low, high in which) for which in numbers]
    return Layout(shape, parts, cells, sizes=leave_out_even(shape, sizes))


def _cut_axis(axis: int, boxes: Sequence[Box | None]) -> list[tuple[int, int]] | None:
    """The spans of boxes along an axis, where each ends where the next begins; else None."""
    spans = sorted({_spans(box)[axis] for box in boxes if box is not None})
    return spans if all(one[1] == two[0] for one, two in pairwise(spans)) else None


def _spans(box: Box) -> Spans:
    return tuple((low, low + n) for low, n in zip(box.start, box.shape, strict=True))
