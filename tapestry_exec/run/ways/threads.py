"""Threads for devices: each device does its program, and waits only for cells that others send.

There are no more threads than cores. A thread goes on with a device until that needs cells which have not come; then
it takes another one that can go on, first the one that is furthest behind in the plan. So no core is idle while any
device can go on, and no thread waits for a core that another one has::

    thread 0   device 0: compute a ─► send 7 to 1 ─► recv 9 is not there │ device 2: compute e ─► …
                                          │
    thread 1   device 1: compute c ─► … recv 7 is there ─► compute d ─► send 9 to 0 ─► …
    caller     counts the steps that are done, tells of them, and ends all threads when one fails or Ctrl-C comes

Once all steps are known by heart, each thread has the same devices in every run, if these have about as much to do.
"""

from __future__ import annotations

import contextvars
from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from queue import SimpleQueue
from threading import Condition, Thread
from time import perf_counter
from typing import Any, NamedTuple

from tapestry_exec.run import tuning
from tapestry_exec.run.interpreter import Interpreter, Parcel
from tapestry_exec.run.room import count_cores
from tapestry_exec.run.settled import Record
from tapestry_exec.run.together import Ensemble, find_together, share_out
from tapestry_exec.run.ways.job import Job, name_step
from tapestry_plan.steps import Compute, DeviceStep, Recv, Send


class Inboxes:
    """Where parcels between devices lie, and which devices can go on."""

    def __init__(self, size: int) -> None:
        self.parcels: list[dict[tuple[int, int], Parcel]] = [{} for _ in range(size)]
        self.changed = Condition()
        self.ready = [(-1, device) for device in range(size)]
        """A heap of the devices that can go on and no thread has, by the steps that they are at."""
        self.awaited: dict[int, tuple[int, int, int]] = {}
        """The devices that cannot: from whom, under which tag they need cells, and for which step."""
        self.busy = 0
        """How many devices threads have."""
        self.is_over = False
        heapify(self.ready)

    def take(self) -> int | None:
        """Wait for a device that can go on; None where all have ended, or the run is over.

        Raises
        ------
        Stuck
            Where all devices that are left wait for each other, or for longer than `tuning.MAX_WAIT_SECONDS`.
        """
        with self.changed:
            while not self.is_over and not self.ready:
                if not self.busy:
                    if self.awaited:
                        raise self._tell_stuck("and no device can go on")
                    return None
                if not self.changed.wait(tuning.MAX_WAIT_SECONDS) and self.awaited and not self.ready:
                    raise self._tell_stuck(f"since {tuning.MAX_WAIT_SECONDS:g} s or longer")
            if self.is_over:
                return None
            self.busy += 1
            return heappop(self.ready)[1]

    def _tell_stuck(self, why: str) -> Stuck:
        number, device, peer, tag = min((k, d, *which) for d, (*which, k) in self.awaited.items())
        return Stuck(number, f"device {device} waits for what device {peer} sends under tag {tag}, {why}")

    def leave(self, device: int, at: DeviceStep | None) -> bool:
        """Have a device wait at a receipt, unless its cells have come, or end; whether it does."""
        with self.changed:
            if at is not None:
                assert isinstance(at.step, Recv), "devices wait for cells alone"
                key = at.step.peer, at.step.tag
                self.awaited[device] = (*key, at.number)
                if key in self.parcels[device]:  # asked behind that: who sends puts it there, and then asks who waits
                    del self.awaited[device]
                    return False
            self.busy -= 1
            if not self.busy:
                self.changed.notify_all()  # who waits for a device that can go on may wait in vain
            return True

    def wait(self, at: DeviceStep) -> bool:
        """Wait until the cells of a receipt are there; whether the run goes on. Nobody else goes on with the device.

        Raises
        ------
        Stuck
            As of `take`.
        """
        assert isinstance(at.step, Recv), "devices wait for cells alone"
        key, parcels = (at.step.peer, at.step.tag), self.parcels[at.device]
        if key in parcels:
            return True
        with self.changed:
            self.awaited[at.device] = (*key, at.number)
            if key in parcels:  # asked behind that, as in `leave`
                del self.awaited[at.device]
                return True
            self.busy -= 1
            while not self.is_over and key not in parcels:
                if not self.busy and not self.ready:
                    raise self._tell_stuck("and no device can go on")
                if not self.changed.wait(tuning.MAX_WAIT_SECONDS) and key not in parcels:
                    raise self._tell_stuck(f"since {tuning.MAX_WAIT_SECONDS:g} s or longer")
            if self.is_over:
                return False
            if self.awaited.pop(at.device, None) is None:  # else who sent it has not come to that yet
                self.ready.remove((at.number, at.device))
            self.busy += 1
            return True

    def stop(self) -> None:
        """End all waits."""
        with self.changed:
            self.is_over = True
            self.changed.notify_all()


class Stuck(Exception):
    """A device needs cells at a step that nobody sends."""

    def __init__(self, number: int, why: str) -> None:
        super().__init__(why)
        self.number = number


class Inbox:
    """One device's, through which it puts parcels into those of others."""

    def __init__(self, device: int, every: Inboxes) -> None:
        self.device, self.every = device, every

    def send(self, tag: int, peer: int, parcel: Parcel) -> None:
        """Put a parcel where the peer finds it, which can go on if it waits for that."""
        every = self.every
        every.parcels[peer][self.device, tag] = parcel
        if peer in every.awaited:  # who comes to wait from here on sees the parcel
            with every.changed:
                awaited = every.awaited.get(peer)
                if awaited is not None and awaited[:2] == (self.device, tag):
                    heappush(every.ready, (every.awaited.pop(peer)[2], peer))
                    every.changed.notify_all()  # who waits for the cells of one device alone may be among several

    def recv(self, tag: int, peer: int) -> Parcel:
        """Take a parcel away, which is there: before that the device does not go on."""
        return self.every.parcels[self.device].pop((peer, tag))


def run_in_threads(job: Job, interpreters: Sequence[Interpreter], inboxes: Inboxes) -> Record:
    """Do all steps, and wait for the end of all threads, whatever happens.

    Parameters
    ----------
    job : Job
    interpreters : sequence of Interpreter
        Of all devices, with inboxes as their transports.
    inboxes : Inboxes

    Returns
    -------
    Record
    """
    told: SimpleQueue[_Told] = SimpleQueue()
    work = _work, job, interpreters, [0] * len(interpreters), inboxes, told
    every: list[tuple[Any, ...]] = [work] * min(len(interpreters), count_cores())
    groups = _find_groups(job, interpreters)
    if groups:
        inboxes.busy = len(groups)
        inboxes.ready.clear()  # threads have them all
        every = [(_work_together, group, inboxes, told) for group in groups]
    threads = [Thread(target=contextvars.copy_context().run, args=one, daemon=True) for one in every]
    total, done, last = sum(not isinstance(at.step, Send) for at in job.every.steps), 0, ""
    failed: _Told | None = None
    try:
        for thread in threads:
            thread.start()
        left = len(threads)
        while left:
            what = told.get()
            if what.error is not None and failed is None:
                failed = what
                inboxes.stop()
            left -= what.is_last
            done += what.done
            last = what.node or last
            if job.progress is not None and failed is None and what.node is not None:
                job.progress(done, total, what.node)
        if job.progress is not None and failed is None and job.every.steps:
            job.progress(total, total, last)
    finally:
        inboxes.stop()
        for thread in threads:
            if thread.ident is not None:  # Ctrl-C may come before it is started
                thread.join()
    if failed is not None and failed.error is not None:
        if not isinstance(failed.error, Exception):
            raise failed.error  # as sys.exit() in a block is
        raise name_step(job.prepared, failed.number, failed.error) from failed.error
    return Record.of(*((one.timeline, one.told) for one in interpreters))


class _Told(NamedTuple):
    """What a thread tells the caller: that some steps are done, the last ones for an operator, or how it ended."""

    done: int = 0
    node: str | None = None
    error: BaseException | None = None
    number: int = 0
    is_last: bool = False


def _work(
    job: Job, every: Sequence[Interpreter], places: list[int], inboxes: Inboxes, told: SimpleQueue[_Told]
) -> None:
    """Go on with devices that can, from where in their programs they are, until there are none."""
    done, at = 0, None
    try:
        while (device := inboxes.take()) is not None:
            mine, program, parcels = every[device], job.programs[device].steps, inboxes.parcels[device]
            for place in range(places[device], len(program)):
                at = program[place]
                step = at.step
                if isinstance(step, Recv) and (step.peer, step.tag) not in parcels:
                    mine.stood_since, places[device] = perf_counter(), place  # before another thread may go on with it
                    if inboxes.leave(device, at):
                        break
                mine.do(at)
                done += not isinstance(step, Send)
                if job.progress is not None and isinstance(step, Compute):
                    told.put(_Told(done, step.node))
                    done = 0
            else:
                inboxes.leave(device, None)
        told.put(_Told(done, is_last=True))
    except Stuck as error:
        told.put(_Told(error=error, number=error.number, is_last=True))
    except BaseException as error:
        told.put(_Told(error=error, number=at.number if at else 0, is_last=True))


def _find_groups(job: Job, interpreters: Sequence[Interpreter]) -> list[Ensemble]:
    """The devices of each thread, where all know their steps by heart and threads have about as much to do; or none."""
    found = []
    if job.progress is None and any(one.by_heart for one in interpreters):
        for devices in share_out(job.prepared.seconds, None):
            group = {device: (interpreters[device], job.programs[device].steps) for device in devices}
            together = find_together(group)
            if together is None:
                return []
            found.append(Ensemble(together, group))
    return found if len(found) <= count_cores() else []


def _work_together(group: Ensemble, inboxes: Inboxes, told: SimpleQueue[_Told]) -> None:
    """Do all steps of a group."""

    def wait(at: DeviceStep) -> bool:
        mine = group.each[at.device]
        mine.stood_since = perf_counter()
        return inboxes.wait(at)

    try:
        group.play(wait)
        with inboxes.changed:
            inboxes.busy -= 1
            inboxes.changed.notify_all()  # who waits for what no other one will send waits in vain
        told.put(_Told(is_last=True))
    except Stuck as error:
        told.put(_Told(error=error, number=error.number, is_last=True))
    except BaseException as error:
        told.put(_Told(error=error, number=group.at.number if group.at else 0, is_last=True))
