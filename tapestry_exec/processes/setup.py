"""What the process of a device is told before it begins: its program, and where everything lies in shared memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tapestry_exec.processes.segments import lay_out
from tapestry_exec.processes.tuning import HEAD_NBYTES
from tapestry_exec.run import Deployed, Residents, StepFacts
from tapestry_plan.ir import Op
from tapestry_plan.steps import HOST, Copy, DeviceStep, Recv
from tapestry_sets.regions import Region


class SharedCells(Struct, frozen=True):
    """A place in shared memory, of cells in row-major order."""

    at: int
    shape: tuple[int, ...]
    dtype: str

    @property
    def nbytes(self) -> int:
        """Of the cells."""
        return _count_nbytes(self.shape, self.dtype)


class OutputSlot(Struct, frozen=True):
    """A block of an output, and the place where its device puts it."""

    buffer: int
    region: Region
    slot: SharedCells


class Layout(Struct, frozen=True):
    """Where everything lies in the shared memory of a plan's processes.

    Parameters
    ----------
    feeds : mapping of str to SharedCells
        Inputs, and constants that are placed in every run.
    parcels : mapping of (source, target, tag) to (number, SharedCells)
        Parcels between devices; a parcel's head lies in front of its cells.
    outputs : tuple of OutputSlot
        In the order of `ShardPlan.outputs`.
    nbytes : int
    """

    feeds: Mapping[str, SharedCells]
    parcels: Mapping[tuple[int, int, int], tuple[int, SharedCells]]
    outputs: tuple[OutputSlot, ...]
    nbytes: int


class Setup(Struct, frozen=True):
    """What one process is told.

    Parameters
    ----------
    device, size : int
    work : StepFacts
        Of this device's buffers and operators.
    ops : mapping of str to Op
    program : tuple of DeviceStep
    stays : Residents, optional
        With the steps of this device alone.
    arena_nbytes : int
    layout : Layout
        Of this device's feeds, parcels and outputs.
    constants : mapping of str to SharedCells
        Where constants lie while they are placed, in a segment of their own.
    """

    device: int
    size: int
    work: StepFacts
    ops: Mapping[str, Op]
    program: tuple[DeviceStep, ...]
    stays: Residents | None
    arena_nbytes: int
    layout: Layout
    constants: Mapping[str, SharedCells]


def lay_out_run(what: Deployed) -> Layout:
    """Where feeds, parcels and outputs of a plan lie."""
    prepared, graph = what.prepared, what.prepared.plan.graph
    buffers = prepared.work.buffers
    given = () if what.stays is None else (at for steps in what.stays.given.values() for at in steps)
    left = prepared.steps if what.stays is None else what.stays.steps
    names = list_placed((*left, *given))
    shapes = [(graph.stored[name].shape, graph.stored[name].dtype) for name in names]
    received = [at for at in prepared.steps if isinstance(at.step, Recv)]
    keys = [(at.step.peer, at.device, at.step.tag) for at in received if isinstance(at.step, Recv)]
    cells = [
        ((sum(region.size for region in at.step.regions),), buffers[at.step.dst].dtype)
        for at in received
        if isinstance(at.step, Recv)
    ]
    blocks = [block for output in prepared.plan.outputs for block in output.blocks]
    taken = [((region.size,), buffers[number].dtype) for number, region in blocks]
    sizes = [
        *(_count_nbytes(*each) for each in shapes),
        *(HEAD_NBYTES + _count_nbytes(*each) for each in cells),
        *(_count_nbytes(*each) for each in taken),
    ]
    *places, end = lay_out(sizes)
    slots = [SharedCells(at, *each) for at, each in zip(places, [*shapes, *cells, *taken], strict=True)]
    parcels, outputs = slots[len(names) : len(names) + len(keys)], slots[len(names) + len(keys) :]
    return Layout(
        dict(zip(names, slots, strict=False)),
        {key: (k, replace(s, at=s.at + HEAD_NBYTES)) for k, (key, s) in enumerate(zip(keys, parcels, strict=True))},
        tuple(OutputSlot(*block, slot) for block, slot in zip(blocks, outputs, strict=True)),
        end,
    )


def lay_out_constants(what: Deployed) -> tuple[dict[str, SharedCells], int]:
    """Where constants lie while they are placed, and how many bytes they take."""
    names = [] if what.stays is None else list_placed(what.stays.placing)
    stored = what.prepared.plan.graph.stored
    *places, end = lay_out(what.constants[name].nbytes for name in names)
    return {
        name: SharedCells(at, stored[name].shape, stored[name].dtype) for name, at in zip(names, places, strict=True)
    }, end


def list_placed(steps: Sequence[DeviceStep]) -> list[str]:
    """The inputs and constants that some steps place from the host."""
    copies = [at.step for at in steps if isinstance(at.step, Copy)]
    return list(dict.fromkeys(step.tensor for step in copies if step.src == HOST and step.piece is None))


def list_setups(what: Deployed, layout: Layout, constants: Mapping[str, SharedCells]) -> Iterator[Setup]:
    """What the process of each device is told."""
    prepared = what.prepared
    work, size = prepared.work, prepared.plan.mesh.size
    arenas = prepared.arenas_nbytes if what.stays is None else what.stays.arenas_nbytes
    programs = prepared.programs if what.stays is None else what.stays.programs
    ops = {node.op: what.ops[node.op] for node in work.nodes.values()}
    for device in range(size):
        buffers = {n: buffer for n, buffer in work.buffers.items() if buffer.device == device}
        numbers = {at.number for at in programs[device]}
        mine = replace(
            work,
            buffers=buffers,
            nodes=dict(work.nodes),
            makers=dict(work.makers),
            shapes=dict(work.shapes),
            shards={k: shard for k, shard in work.shards.items() if k in numbers},
        )
        near = Layout(
            layout.feeds,
            {key: slot for key, slot in layout.parcels.items() if device in key[:2]},
            tuple(one for one in layout.outputs if one.buffer in buffers),
            layout.nbytes,
        )
        stays = what.stays and _keep_own(what.stays, device)
        yield Setup(device, size, mine, ops, programs[device], stays, arenas[device], near, constants)


def _keep_own(stays: Residents, device: int) -> Residents:
    """What is done once, or behind each run, on one device."""

    def mine(steps: Sequence[DeviceStep]) -> tuple[DeviceStep, ...]:
        return tuple(at for at in steps if at.device == device)

    return replace(
        stays,
        placing=mine(stays.placing),
        given={name: mine(steps) for name, steps in stays.given.items()},
        steps=(),
        programs=(),
        carrying=mine(stays.carrying),
    )


def _count_nbytes(shape: Sequence[int], dtype: str) -> int:
    return int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
