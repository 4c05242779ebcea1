"""Places that need not be taken anew: where a run of a deployment found them, later ones do.

Most steps of a plan take a place in an arena, or give it back. Where one lies, and which cells steps write there, does
not depend on numbers, so that after one run nothing is left to do at these steps; their events are told all the same.
Runs whose steps somebody watches do all of them, and where devices run in threads what is sent takes its place anew,
since others may read there when it is given back::

    the program     alloc a   place a   alloc b   compute   free a   send b   free b
    first run          ●         ●         ●         ●        ●        ●        ●
    later ones         ○         ●         ○         ●        ○        ●        ○       ● done   ○ only told
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterable, Sequence
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import msgspec
from msgspec import Struct

from tapestry_exec.run.trace import TraceEvent, new, set_time
from tapestry_plan.steps import Alloc, DeviceStep, Free, Send

if TYPE_CHECKING:
    from tapestry_exec.run.interpreter import StepFacts

Settled = Sequence[tuple[int, Sequence[TraceEvent]]]
"""Events of steps that are only told, behind how many events of steps that are done; they begin at no time yet."""
Noted = TraceEvent | tuple[TraceEvent, float, float] | tuple[TraceEvent, float, float, float, float, float]
"""What is noted of a step that is done: its event, or one of an earlier run with the times that `set_time` takes."""


class Left(Struct, frozen=True):
    """What of a program, or of the steps of all devices, is left to do.

    Parameters
    ----------
    steps : tuple of DeviceStep
    told : sequence
        The others.
    """

    steps: tuple[DeviceStep, ...]
    told: Settled = ()

    @classmethod
    def of(cls, program: Iterable[DeviceStep], settled: Collection[int], work: StepFacts) -> Left:
        """Leave out what takes or gives back the places of settled buffers."""
        left, told, events = [], list[tuple[int, list[TraceEvent]]](), 0
        for at in program:
            if not isinstance(at.step, Alloc | Free) or at.step.buffer not in settled:
                left.append(at)
                events += not isinstance(at.step, Send)
                continue
            if not told or told[-1][0] != events:
                told.append((events, []))
            kind, tensor = "alloc" if isinstance(at.step, Alloc) else "free", work.buffers[at.step.buffer].tensor
            nbytes = work.count_taken(at.step)
            told[-1][1].append(TraceEvent(at.number, kind, tensor, at.device, 0.0, 0.0, nbytes))
        return cls(tuple(left), tuple((end, tuple(events)) for end, events in told))


def tell_settled(timeline: Sequence[TraceEvent], told: Settled) -> list[TraceEvent]:
    """Events of steps that are done with those that are only told, each where the one before it ended."""
    if not told:
        return list(timeline)
    found, begin, now = list[TraceEvent](), 0, 0.0
    for end, events in told:
        if end > begin:
            found += timeline[begin:end]
            now, begin = timeline[end - 1].start + timeline[end - 1].seconds, end
        found += [new(TraceEvent, (*event[:4], now, *event[5:])) for event in events]
    found += timeline[begin:]
    return found


def list_noted(noted: Iterable[Noted]) -> list[TraceEvent]:
    """The events of what is noted."""
    return [one if isinstance(one, TraceEvent) else set_time(*one) for one in noted]


def pack_noted(noted: Sequence[TraceEvent] | Settled) -> bytes:
    """Events, or those that are only told, for another process: pickled one by one they take ten times as long."""
    return msgspec.msgpack.encode(noted)


class Timed(NamedTuple):
    """Events of a program that is known by heart, for another process: with other times they are the same each time."""

    events: bytes
    """As `pack_noted` packs them."""
    times: bytes
    """Of each, in order, what `set_time` takes."""

    @classmethod
    def of(cls, noted: Iterable[Noted], events: bytes | None = None) -> Timed:
        """Of what is noted, with the events as they were packed before."""
        # A `TraceEvent` is a tuple too; of the thousands here nearly all are plain ones.
        plain: list[tuple[Any, ...]] = [
            one if type(one) is tuple else _leave_times(cast(TraceEvent, one)) for one in noted
        ]
        if events is None:
            events = pack_noted([one[0] for one in plain])
        return cls(events, array("d", [seconds for one in plain for seconds in one[1:]]).tobytes())

    def list_events(self) -> list[TraceEvent]:
        """The events with their times."""
        times = iter(array("d", self.times))
        return [set_time(event, *islice(times, len(_leave_times(event)) - 1)) for event in _EVENTS.decode(self.events)]


def _leave_times(event: TraceEvent) -> tuple[Any, ...]:
    """An event, and behind it the times that `set_time` takes."""
    plain, phases = (event, event.start, event.seconds), event.phases
    return (*plain, phases[0].seconds, phases[2].start, event.waited) if phases else plain


_EVENTS = msgspec.msgpack.Decoder(list[TraceEvent])
_TOLD = msgspec.msgpack.Decoder(list[tuple[int, list[TraceEvent]]])


class Record(Struct, frozen=True):
    """What a run noted of its steps: of this the events are made where they are asked for.

    Parameters
    ----------
    noted : tuple of (sequence of events, events that are only told)
        Of all devices together, or of each; packed where another process noted them.
    """

    noted: tuple[tuple[Sequence[Noted] | Timed, Settled | bytes], ...] = ()

    @classmethod
    def of(cls, *noted: tuple[Iterable[Noted] | Timed, Settled | bytes]) -> Record:
        """Of events that more may come to."""
        return cls(tuple((events if isinstance(events, Timed) else tuple(events), told) for events, told in noted))

    def list_events(self) -> tuple[TraceEvent, ...]:
        """One for each step of the plan, in its order."""
        found = list[TraceEvent]()
        for events, told in self.noted:
            found += tell_settled(
                events.list_events() if isinstance(events, Timed) else list_noted(events),
                _TOLD.decode(told) if isinstance(told, bytes) else told,
            )
        return tuple(sorted(found, key=attrgetter("step")))
