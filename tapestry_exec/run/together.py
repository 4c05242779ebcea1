"""Devices that one process or thread has, in one loop, once all that their steps call is known by heart.

Devices that take turns lend each other cells and hand parcels over. In one loop, in the plan's order, a cell that is
sent within the group is copied at its receipt from where it lies, as nothing writes there before. What goes to others
is sent as early as its program has it, and what comes from there is waited for::

    program of 0   compute a   send 3 to 1   send 4 to 2            compute c
    program of 1   compute b                               recv 3               recv 5 from 2
    one loop       compute a   send 4 to 2   compute b     copy 3   compute c   recv 5
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from enum import Enum, auto
from time import perf_counter
from typing import Any, NamedTuple

from tapestry_exec.run import tuning
from tapestry_exec.run.interpreter import Interpreter
from tapestry_exec.run.rehearsed import Rehearsed
from tapestry_exec.run.room import count_cores
from tapestry_plan.steps import Alloc, Collective, DeviceStep, Free, Recv, Send

Played = tuple[Interpreter, Sequence[DeviceStep]]
"""Who does the steps of a device in a run that has begun, and what these are."""


class CueKind(Enum):
    """How a step is done in the loop."""

    CALL = auto()
    """By its calls; of cells for another device of the group there are none."""
    COPY = auto()
    """By the calls that copy cells of another device of the group."""
    POST = auto()
    """By its calls, and what copies cells to where another process finds them."""
    ASK = auto()
    """When what another process or thread sends is there."""
    DO = auto()
    """As where each device is by itself."""


class Cue(NamedTuple):
    """A step of the loop."""

    at: DeviceStep
    kind: CueKind
    part: Rehearsed | None
    """What is called; None where the interpreter knows."""
    sent: int
    """Of a `Send`: the bytes that the device has sent behind it; else -1."""


class Together(NamedTuple):
    """The steps of a group of devices.

    Parameters
    ----------
    cues : list of Cue
        In the order in which they are done.
    near : mapping of int to Counter
        By device the bytes that it sends to others of the group.
    parts : tuple of mapping
        What is known by heart, by device, of which the cues are.
    """

    cues: list[Cue]
    near: Mapping[int, Counter[int]]
    parts: tuple[Mapping[int, Rehearsed], ...]

    def is_of(self, group: Mapping[int, Played]) -> bool:
        """Whether the devices are these, and know the same by heart still."""
        parts = (interpreter.by_heart for interpreter, _ in group.values())
        return self.near.keys() == group.keys() and all(map(lambda a, b: a is b, parts, self.parts))


def find_together(group: Mapping[int, Played]) -> Together | None:
    """The loop of devices whose runs have begun, made when they first go through it; None where it is not known."""
    first = next(iter(group.values()))[0].rehearsal
    if first is None or not any(interpreter.by_heart for interpreter, _ in group.values()):
        return None
    if first.together is None or not first.together.is_of(group):
        first.together = _bring_together(group)
    return first.together


def _bring_together(group: Mapping[int, Played]) -> Together | None:
    """The loop; None where a device does not know by heart what it exchanges with others."""
    found, near = list[tuple[int, Cue]](), {device: Counter[int]() for device in group}
    for device, (interpreter, steps) in group.items():
        parts, place, sent = interpreter.by_heart, -1, 0
        if steps and not parts:
            return None
        lies = _list_lying(group, interpreter, steps)
        for at in steps:
            step, part, total = at.step, parts.get(at.number), -1
            kind = CueKind.DO if part is None else CueKind.CALL
            if isinstance(step, Send):  # it follows what its program has before it
                if part is None or part.sent is None:
                    return None
                sent = total = sent + part.sent[1]
                if step.peer in group:
                    near[device][step.peer] += part.sent[1]
                else:
                    kind = CueKind.DO if part.post is None else CueKind.POST
            else:
                place = at.number
            if isinstance(step, Recv):
                if step.peer not in group:
                    kind = CueKind.ASK
                elif part is None or part.event is None:
                    return None
                else:
                    kind = CueKind.COPY
            if isinstance(step, Collective):  # several devices do it at once
                return None
            if part is not None and isinstance(step, Alloc | Free) and step.buffer in lies:
                part = part._replace(calls=())
            found.append((place, Cue(at, kind, None if kind in (CueKind.DO, CueKind.ASK) else part, total)))
    found.sort(key=lambda one: one[0])
    return Together([cue for _, cue in found], near, tuple(one.by_heart for one, _ in group.values()))


def _list_lying(group: Mapping[int, Played], interpreter: Interpreter, steps: Sequence[DeviceStep]) -> set[int]:
    """Buffers whose places need not be taken or given back, as who reads there is in the loop, or has copies."""
    parts = interpreter.by_heart
    lent = {
        at.step.src
        for at in steps
        if isinstance(at.step, Send) and at.step.peer not in group
        if (part := parts.get(at.number)) is None or part.post is None
    }
    settled: Collection[int] = getattr(interpreter.memory, "settled", ())
    return set(settled) - lent


class Ensemble:
    """Does the steps of devices in one loop.

    Parameters
    ----------
    together : Together
    group : mapping of int to Played
    boards : mapping of int to mutable sequence of int, optional
        By device: where the step that it is at, the bytes that it has sent, and how many turns were begun with it are
        written for who watches it.
    """

    def __init__(
        self,
        together: Together,
        group: Mapping[int, Played],
        boards: Mapping[int, Any] | None = None,
    ) -> None:
        self.together, self.boards = together, boards or {device: [-1, 0, 0] for device in group}
        self.each = {device: interpreter for device, (interpreter, _) in group.items()}
        self.at: DeviceStep | None = None
        """The step that is done, or was done last."""

    def play(self, wait: Callable[[DeviceStep], bool]) -> None:
        """Do all steps.

        Parameters
        ----------
        wait : callable
            Waits until what a receipt needs is there; whether the run goes on.
        """
        each, here, turn = self.each, -1, 0
        begin = next(iter(each.values())).begin
        by_calls, by_post, asks = CueKind.CALL, CueKind.POST, CueKind.ASK
        now = perf_counter()
        for at, kind, part, sent in self.together.cues:
            self.at = at
            if at.device != here:
                here, turn = at.device, turn + 1
                board, mine = self.boards[here], each[here]
                timeline = mine.timeline
                board[2] = turn
            board[0] = at.number
            if part is None:
                if kind is asks and not wait(at):
                    return
                mine.do(at)
                now = perf_counter()
            else:
                for call in part.calls:
                    call()
                start, now = now, perf_counter()
                if kind is by_calls:
                    if part.event is not None:
                        timeline.append((part.event, start - begin, now - start))
                elif kind is by_post:
                    assert part.post is not None, "it goes to another process"
                    part.post(start)
                    now = perf_counter()
                elif part.event is not None:
                    timeline.append((part.event, start - begin, now - start, 0.0, start - begin, 0.0))
            if sent >= 0:
                board[1] = sent
        for device, bytes_by_peer in self.together.near.items():
            for peer, nbytes in bytes_by_peer.items():
                each[device].links[device, peer] += nbytes


def share_out(
    seconds: Sequence[float], processes: int | None, nbytes: Sequence[int] = (), free: int | None = None
) -> list[tuple[int, ...]]:
    """The devices of each process or thread: neighbors, which send each other most, with about equal work.

    Parameters
    ----------
    seconds : sequence of float
        By device: what it has to do.
    processes : int, optional
        How many there are; no more than devices. By default one for each core, where all then have about as much to
        do, and room for it; else one for each device, which the system lets share the cores.
    nbytes : sequence of int, optional
        Of the arenas of each device.
    free : int, optional
        Bytes that each process may take.

    Examples
    --------
    >>> share_out([1.0, 1.0, 1.0, 1.0], 2), share_out([1.0, 1.0, 1.0], 3)
    ([(0, 1), (2, 3)], [(0,), (1,), (2,)])
    """
    size = len(seconds)
    many = min(size, count_cores() if processes is None else processes)
    if not sum(seconds):
        seconds = [1.0] * size
    every, done, at, groups = sum(seconds), 0.0, -1, list[list[int]]([] for _ in range(many))
    for device, its in enumerate(seconds):
        # None is passed over, and as many devices are left as those that have none yet.
        at = max(min(int((done + its / 2) / every * many), many - 1, at + 1), many - size + device)
        groups[at].append(device)
        done += its
    most = max(sum(seconds[device] for device in group) for group in groups)
    full = free is not None and nbytes and max(sum(nbytes[device] for device in group) for group in groups) > free
    if processes is None and (full or most > tuning.UNEVEN * every / many):
        return [(device,) for device in range(size)]
    return [tuple(group) for group in groups]


def tell_devices(group: Sequence[int]) -> str:
    """Devices as messages name them."""
    if len(group) == 1:
        return f"device {group[0]}"
    *first, last = map(str, group)
    return f"devices {', '.join(first)} and {last}"
