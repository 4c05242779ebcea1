"""The devices of a process in one loop, once all that their steps call is known by heart.

Devices that take turns lend each other cells and hand parcels over. In one loop, in the plan's order, a cell that is
sent within the process is copied at its receipt from where it lies, as nothing writes there before. What goes to other
processes is sent as early as its program has it, and what comes from there is waited for::

    program of 0   compute a   send 3 to 1   send 4 to 2            compute c
    program of 1   compute b                               recv 3               recv 5 from 2
    one loop       compute a   send 4 to 2   compute b     copy 3   compute c   recv 5
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from enum import Enum, auto
from typing import NamedTuple

from tapestry_exec.run import Member, Rehearsed
from tapestry_plan.steps import Collective, DeviceStep, Recv, Send


class CueKind(Enum):
    """How a step is done in the loop."""

    CALL = auto()
    """By its calls; of cells for another device of the process there are none."""
    COPY = auto()
    """By the calls that copy cells of another device of the process."""
    POST = auto()
    """By its calls, and what copies cells to where another process finds them."""
    ASK = auto()
    """When what another process sends is there."""
    DO = auto()
    """As in the first run: it depends on what is given."""


class Cue(NamedTuple):
    """A step of the loop."""

    device: int
    at: DeviceStep
    kind: CueKind
    part: Rehearsed | None
    """What is known of it; None of what is done as in the first run."""
    sent: int
    """Of a `Send`: the bytes that the device has sent behind it; else -1."""


class Together(NamedTuple):
    """The steps of a process' devices.

    Parameters
    ----------
    cues : list of Cue
        In the order in which they are done.
    near : mapping of int to Counter
        By device the bytes that it sends to others of the process.
    parts : tuple of mapping
        What is known by heart, by device, of which the cues are.
    """

    cues: list[Cue]
    near: Mapping[int, Counter[int]]
    parts: tuple[Mapping[int, Rehearsed], ...]

    def is_of(self, members: Mapping[int, Member]) -> bool:
        """Whether the devices know the same by heart still."""
        return all(one.interpreter.by_heart is known for one, known in zip(members.values(), self.parts, strict=True))


def bring_together(members: Mapping[int, Member]) -> Together | None:
    """One loop over the steps of devices whose runs have begun; None where it is not known what one of them calls."""
    found, near = list[tuple[int, Cue]](), {device: Counter[int]() for device in members}
    for device, member in members.items():
        parts, place, sent = member.interpreter.by_heart, -1, 0
        if member.steps and not parts:
            return None
        for at in member.steps:
            step, part, total = at.step, parts.get(at.number), -1
            kind = CueKind.DO if part is None else CueKind.CALL
            if isinstance(step, Send):  # it follows what its program has before it
                if part is None or part.sent is None:
                    return None
                sent = total = sent + part.sent[1]
                if step.peer in members:
                    near[device][step.peer] += part.sent[1]
                elif part.post is None:
                    return None
                else:
                    kind = CueKind.POST
            else:
                place = at.number
            if isinstance(step, Recv):
                if step.peer not in members:
                    kind = CueKind.ASK
                elif part is None or part.event is None:
                    return None
                else:
                    kind = CueKind.COPY
            if isinstance(step, Collective):  # several devices do it at once
                return None
            found.append((place, Cue(device, at, kind, part, total)))
    found.sort(key=lambda one: one[0])
    parts_of = tuple(member.interpreter.by_heart for member in members.values())
    return Together([cue for _, cue in found], near, parts_of)
