"""What a process is told before it begins: the programs of its devices, and where everything lies in shared memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tapestry_exec.processes.segments import lay_out
from tapestry_exec.processes.tuning import HEAD_NBYTES
from tapestry_exec.run import Deployed, DevicePart, Source, list_parts, list_placed
from tapestry_plan.steps import Recv


class SharedCells(Struct, frozen=True):
    """A place in shared memory, of cells in row-major order."""

    at: int
    shape: tuple[int, ...]
    dtype: str

    @property
    def nbytes(self) -> int:
        """Of the cells."""
        return _count_nbytes(self.shape, self.dtype)


class Layout(Struct, frozen=True):
    """Where everything lies in the shared memory of a plan's processes.

    Parameters
    ----------
    boards : SharedCells
        By device: the step that it is at, the bytes that it has sent, and the turn of its process that was its last.
    feeds : mapping of str to SharedCells
        Inputs, and constants that are placed in every run.
    parcels : mapping of (source, target, tag) to (number, SharedCells)
        Parcels between devices; a parcel's head lies in front of its cells.
    outputs : tuple of SharedCells
        Of the outputs' blocks, in the order of `ShardPlan.outputs`.
    nbytes : int
    """

    boards: SharedCells
    feeds: Mapping[str, SharedCells]
    parcels: Mapping[tuple[int, int, int], tuple[int, SharedCells]]
    outputs: tuple[SharedCells, ...]
    nbytes: int


class Setup(Struct, frozen=True):
    """What one process is told.

    Parameters
    ----------
    parts : tuple of DevicePart
        Of its devices.
    layout : Layout
        With the parcels of these devices alone.
    outputs : mapping of int to tuple of SharedCells
        By device, of the outputs' blocks that lie there.
    constants : mapping of str to SharedCells
        Where constants lie while they are placed, in a segment of their own.
    files : mapping of str to Source
        Constants that lie in files, of which the process reads what it needs.
    """

    parts: tuple[DevicePart, ...]
    layout: Layout
    outputs: Mapping[int, tuple[SharedCells, ...]]
    constants: Mapping[str, SharedCells]
    files: Mapping[str, Source]


def lay_out_run(what: Deployed) -> Layout:
    """Where feeds, parcels and outputs of a plan lie."""
    prepared, graph = what.prepared, what.prepared.plan.graph
    buffers = prepared.work.buffers
    given = () if what.stays is None else (at for steps in what.stays.given.values() for at in steps)
    left = prepared.steps if what.stays is None else what.stays.steps
    names = [name for name in list_placed((*left, *given)) if name not in what.apart]
    shapes = [(graph.stored[name].shape, graph.stored[name].dtype) for name in names]
    received = [at for at in prepared.steps if isinstance(at.step, Recv)]
    keys = [(at.step.peer, at.device, at.step.tag) for at in received if isinstance(at.step, Recv)]
    cells = [
        ((sum(region.size for region in at.step.regions),), buffers[at.step.dst].dtype)
        for at in received
        if isinstance(at.step, Recv)
    ]
    blocks = [block for output in prepared.outputs for block in output.blocks]
    taken = [
        ((region.size if k not in what.own else 0,), buffers[number].dtype) for k, (number, region) in enumerate(blocks)
    ]
    board = ((prepared.plan.mesh.size, 3), "int64")
    sizes = [
        _count_nbytes(*board),
        *(_count_nbytes(*each) for each in shapes),
        *(HEAD_NBYTES + _count_nbytes(*each) for each in cells),
        *(_count_nbytes(*each) for each in taken),
    ]
    *places, end = lay_out(sizes)
    boards, *slots = [SharedCells(at, *each) for at, each in zip(places, [board, *shapes, *cells, *taken], strict=True)]
    parcels, outputs = slots[len(names) : len(names) + len(keys)], slots[len(names) + len(keys) :]
    return Layout(
        boards,
        dict(zip(names, slots, strict=False)),
        {key: (k, replace(s, at=s.at + HEAD_NBYTES)) for k, (key, s) in enumerate(zip(keys, parcels, strict=True))},
        tuple(outputs),
        end,
    )


def lay_out_constants(what: Deployed) -> tuple[dict[str, SharedCells], int]:
    """Where constants lie while they are placed, and how many bytes they take."""
    names = [] if what.stays is None else [n for n in list_placed(what.stays.placing) if n not in what.apart]
    stored = what.prepared.plan.graph.stored
    *places, end = lay_out(what.constants[name].nbytes for name in names)
    return {
        name: SharedCells(at, stored[name].shape, stored[name].dtype) for name, at in zip(names, places, strict=True)
    }, end


def list_setups(
    what: Deployed, layout: Layout, constants: Mapping[str, SharedCells], groups: Sequence[Sequence[int]]
) -> Iterator[Setup]:
    """What each process is told."""
    files = {name: one for name, one in what.constants.items() if isinstance(one, Source)}
    parts = list(list_parts(what))
    for group in groups:
        mine = tuple(parts[device] for device in group)
        parcels = {key: slot for key, slot in layout.parcels.items() if not set(key[:2]).isdisjoint(group)}
        outputs = {part.device: tuple(layout.outputs[k] for k, _, _ in part.outputs) for part in mine}
        yield Setup(mine, replace(layout, parcels=parcels, outputs=()), outputs, constants, files)


def _count_nbytes(shape: Sequence[int], dtype: str) -> int:
    return int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
