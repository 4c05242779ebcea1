"""Programs: what one device does by itself. Of a copy between devices it has its own half::

    device 0    compute a ─► send 7 ─► compute b …          right behind what wrote the cells
                               ╲
    device 1    compute c ────── recv 7 ─► compute d …      where the cells are used

A tag is a number that both ends work out alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from tapestry_plan.ir import Graph
from tapestry_plan.steps.documents import read_written, require_fields, seal, to_plain, unseal
from tapestry_plan.steps.misfits import find_misfit
from tapestry_plan.steps.step import (
    HOST,
    KEPT,
    OWN,
    READ,
    WRITTEN,
    Buffer,
    Collective,
    Compute,
    Copy,
    Fetch,
    GroupedStep,
    Output,
    ProgramStep,
    Recv,
    Send,
    Written,
    list_buffers,
    renumber,
    ungroup,
)
from tapestry_plan.steps.tags import Tags

PROGRAM_FORMAT = "tapestry-program/3"


class Program(Struct, frozen=True):
    """The steps of one device, in order.

    Whatever devices run them, and how fast, none waits for another one for ever: each waits only for cells that a
    device sends which is not waiting, or whose wait is over before.

    Parameters
    ----------
    device : int
    buffers : tuple of Buffer
        Numbered from 0.
    steps : tuple of ProgramStep
        Where collectives were asked for, with those that it takes part in: all their devices begin one together.
    outputs : tuple of Output
        The plan's outputs, each with what this device has of it at the end.
    """

    device: int
    buffers: tuple[Buffer, ...]
    steps: tuple[GroupedStep, ...]
    outputs: tuple[Output, ...]

    def __repr__(self) -> str:
        return (
            f"Program(device {self.device}: {len(self.steps)} steps, {len(self.buffers)} buffers, an arena of "
            f"{self.peak_nbytes:,} B)"
        )

    @property
    def peak_nbytes(self) -> int:
        """How far the device's arena reaches."""
        return max((buffer.offset + buffer.room for buffer in self.buffers if buffer.within is None), default=0)

    def to_json(self) -> str:
        """The program as a JSON document with its own SHA-256; operators are named as in the plan's graph."""
        return seal({"format": PROGRAM_FORMAT, **to_plain(self)})

    @classmethod
    def from_json(cls, text: str | bytes) -> Program:
        """A program from its JSON document; nothing is imported or run.

        Raises
        ------
        PlanVersionError
            For text that is not JSON, another format or version, or a document that was edited.
        """
        return unseal(text, "program document", PROGRAM_FORMAT, "make it again: plan.program(device)", cls._from_plain)

    @classmethod
    def _from_plain(cls, entry: dict[str, Any]) -> Program:
        require_fields(entry, cls.__struct_fields__)
        written = read_written({name: value for name, value in entry.items() if name != "device"}, GroupedStep)
        made = cls(entry["device"], written.buffers, written.steps, written.outputs)
        wrong = find_misfit(made, cls, "$")
        if wrong is not None:
            raise ValueError(wrong)
        return made


def write_program(device: int, written: Written, steps: Sequence[GroupedStep] | None = None) -> Program:
    """The program of a device whose steps are known: each send behind what wrote its cells, buffers numbered from 0.

    Its steps are those that are written, or others on the same buffers.
    """
    mine = sorted((buffer for buffer in written.buffers if buffer.device == device), key=lambda buffer: buffer.id)
    numbers = {buffer.id: k for k, buffer in enumerate(mine)}
    other = {n: k for n, k in numbers.items() if n != k}
    return Program(
        device,
        tuple(_number(buffer, numbers) for buffer in mine),
        tuple(renumber(step, other) for step in _hoist(written.steps if steps is None else steps)),
        tuple(
            replace(
                out,
                blocks=tuple((numbers[n], region) for n, region in out.blocks if n in numbers),
                replicas=tuple((numbers[n], region) for n, region in out.replicas if n in numbers),
            )
            for out in written.outputs
        ),
    )


def _number(buffer: Buffer, numbers: Mapping[int, int]) -> Buffer:
    """A buffer under another number, as is the one within or over which it lies."""
    within = buffer.within and replace(buffer.within, buffer=numbers[buffer.within.buffer])
    over = None if buffer.over is None else numbers[buffer.over]
    return replace(buffer, id=numbers[buffer.id], within=within, over=over)


def _hoist(steps: Sequence[GroupedStep]) -> Iterator[GroupedStep]:
    return (steps[at] for at in order_hoisted(steps))


def order_hoisted(steps: Sequence[GroupedStep]) -> Iterator[int]:
    """The numbers of one device's steps, each send right behind the last step before it that wrote to its buffer."""
    written: dict[int, int] = {}
    sends: defaultdict[int, list[int]] = defaultdict(list)
    for at, step in enumerate(steps):
        if isinstance(step, Send):
            sends[written[step.src]].append(at)
        changed = [step.buffer] if isinstance(step, Fetch) else list_buffers(step, WRITTEN)  # of collectives all
        written.update(dict.fromkeys(changed, at))
    for at, step in enumerate(steps):
        if not isinstance(step, Send):
            yield at
            yield from sends.get(at, ())


class DeviceStep(NamedTuple):
    """A step of one device, with the number of the plan's step that it is, or is one half of."""

    number: int
    device: int
    step: ProgramStep


def split_steps(graph: Graph, written: Written) -> Iterator[DeviceStep]:
    """The steps of all devices, in order; a copy between two is one of each of them, its `Send` first."""
    home, tags = {buffer.id: buffer.device for buffer in written.buffers}, Tags(graph)
    for k, step in enumerate(written.steps):
        halves = _cut_copy(home, tags, step)
        if halves:
            send, recv = halves
            yield DeviceStep(k, recv.peer, send)
            yield DeviceStep(k, send.peer, recv)
        else:
            device = step.device if isinstance(step, Compute) else home[list_buffers(step, OWN)[0]]
            yield DeviceStep(k, device, step)


def cut_steps(
    graph: Graph, buffers: Sequence[Buffer], steps: Iterable[GroupedStep], device: int
) -> Iterator[GroupedStep]:
    """Of the steps of all devices those of one, and of its copies to and from others its own half."""
    return _cut_steps({buffer.id: buffer.device for buffer in buffers}, Tags(graph), steps, device)


def _cut_steps(home: Mapping[int, int], tags: Tags, steps: Iterable[GroupedStep], device: int) -> Iterator[GroupedStep]:
    for step in steps:
        if isinstance(step, Collective):
            mine = tuple(ungroup(_cut_steps(home, tags, step.steps, device)))
            if mine:
                at = tuple(k for k, one in enumerate(mine) if isinstance(one, Send | Recv))
                yield replace(step, steps=mine, at=at)
        elif halves := _cut_copy(home, tags, step):
            send, recv = halves
            if device in (send.peer, recv.peer):
                yield send if device == recv.peer else recv
        elif any(home[n] == device for table in (READ, WRITTEN, KEPT) for n in list_buffers(step, table)):
            yield step


def _cut_copy(home: Mapping[int, int], tags: Tags, step: GroupedStep) -> tuple[Send, Recv] | None:
    """The two halves of a copy between devices; None of any other step."""
    if not isinstance(step, Copy) or step.src == HOST or home[step.src] == home[step.dst]:
        return None
    source, target = home[step.src], home[step.dst]
    tag = tags.take(step.node, step.tensor, source, target)
    send = Send(tag, target, step.node, step.tensor, step.src, step.regions)
    return send, Recv(tag, source, step.node, step.tensor, step.dst, step.regions)
