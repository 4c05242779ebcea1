"""The timeline of each device: the known future from which eviction chooses."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct, field

from tapestry_plan.steps.layouts.mesh import align
from tapestry_plan.steps.step import HOST, READ, WRITTEN, Buffer, Copy, ProgramStep, Written, list_buffers


class StepUse(Struct, frozen=True):
    """The buffers of one device that a step needs at once, and those that it writes."""

    at: int
    """The step's number; after the last one for outputs that are placed, in whole or in part, after their last use."""
    buffers: tuple[int, ...]
    written: frozenset[int]


class Timeline(Struct):
    """The life of one device: the buffers that each step uses, and those that the host places."""

    device: int
    buffers: dict[int, Buffer] = field(default_factory=dict)
    uses: list[StepUse] = field(default_factory=list)
    placings: dict[int, list[tuple[int, Copy]]] = field(default_factory=dict)
    """For each buffer the copies from the host into it, with their numbers."""
    outputs: set[int] = field(default_factory=set)


def list_timelines(written: Written, devices: Iterable[int]) -> dict[int, Timeline]:
    """The timeline of each of some devices."""
    timelines = {device: Timeline(device) for device in devices}
    home = {buffer.id: timelines.get(buffer.device) for buffer in written.buffers}
    for buffer in written.buffers:
        if buffer.device in timelines:
            timelines[buffer.device].buffers[buffer.id] = buffer
    for at, step in enumerate(written.steps):
        if is_placing(step):
            assert isinstance(step, Copy), "only copies place"
            timeline = home[step.dst]
            if timeline is not None:
                timeline.placings.setdefault(step.dst, []).append((at, step))
            continue
        changed = list_buffers(step, WRITTEN)
        used = dict.fromkeys((*list_buffers(step, READ), *changed))
        for timeline in {id(home[n]): home[n] for n in used}.values():
            if timeline is not None:
                mine = tuple(n for n in used if home[n] is timeline)
                timeline.uses.append(StepUse(at, mine, frozenset(mine).intersection(changed)))
    _add_outputs(written, home)
    return timelines


def _add_outputs(written: Written, home: dict[int, Timeline | None]) -> None:
    """Outputs stay; those that the host places cells of after their last use are used once more, each for itself."""
    for number in dict.fromkeys(n for out in written.outputs for n, _ in (*out.blocks, *out.replicas)):
        timeline = home[number]
        if timeline is not None:
            timeline.outputs.add(number)
    for timeline in {id(timeline): timeline for timeline in home.values()}.values():
        if timeline is not None:
            last = {n: use.at for use in timeline.uses for n in use.buffers}
            late = {n for n, placed in timeline.placings.items() if n in last and placed[-1][0] > last[n]}
            again = timeline.outputs - last.keys() | timeline.outputs & late
            timeline.uses += [StepUse(len(written.steps), (n,), frozenset()) for n in sorted(again)]


def is_placing(step: ProgramStep) -> bool:
    """Whether a step brings cells of an input or constant from the host."""
    return isinstance(step, Copy) and step.src == HOST and step.piece is None


def find_widest(timeline: Timeline) -> tuple[StepUse | None, int]:
    """The step that needs the most bytes at once, and how many."""
    widest, most = None, 0
    for use in timeline.uses:
        nbytes = sum(align(timeline.buffers[n].nbytes) for n in use.buffers)
        if nbytes > most:
            widest, most = use, nbytes
    return widest, most
