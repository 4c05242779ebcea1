"""One loop over the steps of all devices, in the plan's order: a parcel is taken right behind where it was sent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from time import perf_counter

from tapestry_exec.run.backends import Backend
from tapestry_exec.run.interpreter import Interpreter, Parcel
from tapestry_exec.run.rehearsed import Score
from tapestry_exec.run.settled import Noted, Record
from tapestry_exec.run.trace import TraceEvent
from tapestry_exec.run.ways.job import Job, name_step
from tapestry_plan.steps import Collective, DeviceStep, GroupedStep, Reduce


class Shelf:
    """Where the parcels of one loop lie: those that a device was sent, by who sent them and their tags."""

    def __init__(self, device: int, parcels: dict[tuple[int, int, int], Parcel]) -> None:
        self.device, self.parcels = device, parcels

    def send(self, tag: int, peer: int, parcel: Parcel) -> None:
        """Put a parcel there."""
        self.parcels[self.device, peer, tag] = parcel

    def recv(self, tag: int, peer: int) -> Parcel:
        """Take one away."""
        return self.parcels.pop((peer, self.device, tag))


class Loop:
    """Does all steps.

    Parameters
    ----------
    job : Job
    interpreters : sequence of Interpreter
        Of all devices, with shelves as their transports.
    """

    def __init__(self, job: Job, interpreters: Sequence[Interpreter]) -> None:
        self.job, self.interpreters, self.backend = job, interpreters, job.prepared.backend
        self.links: Counter[tuple[int, int]] = Counter()
        """Bytes that the backend moved in operations of several devices."""
        self.is_merged = False
        """Whether it merged the parts of the last one."""

    def run(self, counts: list[int]) -> Record:
        """Do them, and note each.

        Where devices have queues, the number of operations in them is appended to `counts` after each step.
        """
        takes = getattr(type(self.backend), "takes", Backend.takes) is not Backend.takes  # one may have no such method
        if not takes and self.backend.spans is None and self.job.progress is None:
            return self._run_at_once()
        spans, timeline, progress = self.backend.spans, list[TraceEvent](), self.job.progress
        steps = {k: list(some) for k, some in groupby(self.job.every.steps, attrgetter("number"))}
        """What each step of the plan is to its devices: one step, or a send and a receipt."""
        places = {k: number for number, k in enumerate(steps, 1)}
        order: Iterable[tuple[int, Collective | None]] = ((k, None) for k in steps)
        if takes:
            grouped = self.job.prepared.plan.grouped_steps
            every = list_grouped(grouped, self.backend.takes, lambda: self.is_merged)
            order = ((k, step) for k, step in every if k in steps)
        for k, step in order:
            try:
                event = self._exchange(k, step) if isinstance(step, Collective) else self._do(steps[k])
            except Exception as error:
                raise name_step(self.job.prepared, k, error, step) from error
            timeline.append(event)
            if spans is not None:
                counts.append(len(spans))
            if progress is not None and (event.kind == "compute" or places[k] == len(places)):
                progress(places[k], len(places), event.node)
        return Record.of((timeline, self.job.every.told))

    def _run_at_once(self) -> Record:
        """Do all steps where nothing is asked or told between two."""
        if any(one.by_heart for one in self.interpreters):
            return self._run_by_heart()
        ways, timeline, at = [one.do for one in self.interpreters], list[Noted](), None
        for one in self.interpreters:
            one.timeline = timeline  # of all devices
        try:
            for at in self.job.every.steps:
                ways[at.device](at)
        except Exception as error:
            assert at is not None, "a step failed"
            raise name_step(self.job.prepared, at.number, error) from error
        return Record.of((timeline, self.job.every.told))

    def _run_by_heart(self) -> Record:
        """The same where calls of steps are known: devices count at once what these steps count."""
        ways, timeline, at = [one.do for one in self.interpreters], list[Noted](), None
        for one in self.interpreters:
            one.timeline = timeline
        begin = self.interpreters[0].begin
        score = self._find_score()
        for one in self.interpreters:
            one.memory.take_settled()
        now = perf_counter()
        try:
            for at, calls, event in score.steps:
                if calls is None:
                    ways[at.device](at)
                    now = perf_counter()
                    continue
                for call in calls:
                    call()
                if event is not None:
                    start, now = now, perf_counter()
                    timeline.append((event, start - begin, now - start))
        except Exception as error:
            assert at is not None, "a step failed"
            raise name_step(self.job.prepared, at.number, error) from error
        return Record.of((timeline, self.job.every.told))

    def _find_score(self) -> Score:
        """All steps with their calls, one after the other, made when they are first done so."""
        first = self.interpreters[0].rehearsal
        assert first is not None, "it is known"
        if first.score is None:
            parts = [one.by_heart for one in self.interpreters]
            settled = {number for one in self.interpreters for number in one.memory.list_settled()}
            known = ((at, parts[at.device].get(at.number)) for at in self.job.every.steps)
            first.score = Score.of(known, settled)
        return first.score

    def _do(self, steps: Sequence[DeviceStep]) -> TraceEvent:
        for at in steps:
            self.interpreters[at.device].do(at)
        event = self.interpreters[steps[-1].device].timeline[-1]
        assert isinstance(event, TraceEvent), "it is watched, so that nothing is done by heart"
        return event

    def _exchange(self, k: int, step: Collective) -> TraceEvent:
        """Have the backend run a collective as one operation."""
        start, mine = perf_counter(), self.interpreters[step.group[0]]
        done = self.backend.exchange([one.memory for one in self.interpreters], step, mine.work.buffers)
        self.is_merged = done.is_merged
        self.links.update(done.nbytes_by_link)
        nbytes, now = sum(done.nbytes_by_link.values()), perf_counter()
        return TraceEvent(k, "collective", step.node, step.group[0], start - mine.begin, now - start, nbytes)


def list_grouped(
    steps: Iterable[GroupedStep],
    takes: Callable[[Collective], bool],
    is_merged: Callable[[], bool] = lambda: False,
) -> Iterator[tuple[int, Collective | None]]:
    """The numbers of a plan's steps in the order in which they are done, with collectives in the place of their copies.

    Parameters
    ----------
    steps : iterable of GroupedStep
        `ShardPlan.grouped_steps`.
    takes : callable
        Which collectives are done as one.
    is_merged : callable, optional
        Whether the one that came last has merged its parts, so that its own `Reduce` steps are left out.
    """
    at = 0
    for step in steps:
        if not isinstance(step, Collective):
            yield at, None
            at += 1
            continue
        if takes(step):
            opening, copies, closing = step.places
            yield from ((at + k, None) for k in opening)
            yield at + copies[0], step
            merged = is_merged()  # as the backend said of this one
            rest = (k for k in closing if not (merged and isinstance(step.steps[k], Reduce)))
            yield from ((at + k, None) for k in rest)
        else:
            yield from ((k, None) for k in range(at, at + len(step.steps)))
        at += len(step.steps)
