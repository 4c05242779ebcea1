"""Programs: what one device does by itself. A copy between devices is a half on either side::

device 0    compute a ─► send 7 ─► compute b …                  send: right behind what wrote the cells
                           ╲
device 1    compute c ────── recv 7 ─► compute d …              recv: where the cells are used
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from tapestry_plan.ir import Graph
from tapestry_plan.steps.lowering import Tags
from tapestry_plan.steps.step import (
    HOST,
    KEPT,
    READ,
    WRITTEN,
    Buffer,
    Copy,
    Fetch,
    Output,
    ProgramStep,
    Recv,
    Send,
    Step,
    list_buffers,
    renumber,
)


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
    outputs : tuple of Output
        The plan's outputs, each with what this device has of it at the end.
    """

    device: int
    buffers: tuple[Buffer, ...]
    steps: tuple[ProgramStep, ...]
    outputs: tuple[Output, ...]


def write_program(
    device: int, buffers: Iterable[Buffer], steps: Sequence[ProgramStep], outputs: Iterable[Output]
) -> Program:
    """The program of a device whose steps are known: each send behind what wrote its cells, buffers numbered from 0."""
    mine = sorted((buffer for buffer in buffers if buffer.device == device), key=lambda buffer: buffer.id)
    numbers = {buffer.id: k for k, buffer in enumerate(mine)}
    other = {n: k for n, k in numbers.items() if n != k}
    return Program(
        device,
        tuple(replace(buffer, id=numbers[buffer.id]) for buffer in mine),
        tuple(renumber(step, other) for step in _hoist(steps)),
        tuple(
            replace(
                out,
                blocks=tuple((numbers[n], region) for n, region in out.blocks if n in numbers),
                replicas=tuple((numbers[n], region) for n, region in out.replicas if n in numbers),
            )
            for out in outputs
        ),
    )


def _hoist(steps: Sequence[ProgramStep]) -> Iterator[ProgramStep]:
    """The steps, each send right behind the last one before it that wrote to its buffer."""
    written: dict[int, int] = {}
    sends: defaultdict[int, list[Send]] = defaultdict(list)
    for at, step in enumerate(steps):
        if isinstance(step, Send):
            sends[written[step.src]].append(step)
        changed = [step.buffer] if isinstance(step, Fetch) else list_buffers(step, WRITTEN)
        written.update(dict.fromkeys(changed, at))
    for at, step in enumerate(steps):
        if not isinstance(step, Send):
            yield step
            yield from sends.get(at, ())


def cut_steps(graph: Graph, buffers: Iterable[Buffer], steps: Iterable[Step], device: int) -> Iterator[ProgramStep]:
    """Of the steps of all devices those of one, and of its copies to and from others its own half."""
    home, tags = {buffer.id: buffer.device for buffer in buffers}, Tags(graph)
    for step in steps:
        if isinstance(step, Copy) and step.src != HOST and home[step.src] != home[step.dst]:
            source, target = home[step.src], home[step.dst]
            tag = tags.take(step.node, step.tensor, source, target)
            if device == source:
                yield Send(tag, target, step.node, step.tensor, step.src, step.regions)
            elif device == target:
                yield Recv(tag, source, step.node, step.tensor, step.dst, step.regions)
        elif any(home[n] == device for table in (READ, WRITTEN, KEPT) for n in list_buffers(step, table)):
            yield step
