"""A thread for each device: each does its program, and waits only for cells that others send.

::

    thread 0   compute a ─► send 7 ─► compute b ─► …
                              ╲
    thread 1   compute c ───── recv 7 ─► compute d ─► …
    caller     counts the steps that are done, tells of them, and ends all threads when one fails or Ctrl-C comes
"""

from __future__ import annotations

import contextvars
from collections.abc import Sequence
from queue import SimpleQueue
from threading import Condition, Thread
from time import monotonic
from typing import NamedTuple

from tapestry_exec.run import tuning
from tapestry_exec.run.interpreter import Interpreter, Parcel
from tapestry_exec.run.settled import Record
from tapestry_exec.run.ways.job import Job, name_step
from tapestry_plan.steps import Compute, Send


class Stopped(Exception):
    """Another device failed, or the caller was interrupted: this one ends, too."""


class Inboxes:
    """Where parcels between threads lie: one place for each device, at which it waits."""

    def __init__(self, size: int) -> None:
        self.parcels: list[dict[tuple[int, int], Parcel]] = [{} for _ in range(size)]
        self.arrived = [Condition() for _ in range(size)]
        self.is_over = False

    def stop(self) -> None:
        """End all waits."""
        self.is_over = True
        for condition in self.arrived:
            with condition:
                condition.notify_all()


class Inbox:
    """One device's, through which it puts parcels into those of others."""

    def __init__(self, device: int, every: Inboxes) -> None:
        self.device, self.every = device, every

    def send(self, tag: int, peer: int, parcel: Parcel) -> None:
        """Put a parcel where the peer waits."""
        with self.every.arrived[peer]:
            self.every.parcels[peer][self.device, tag] = parcel
            self.every.arrived[peer].notify()

    def recv(self, tag: int, peer: int) -> Parcel:
        """Wait for a parcel, at most `tuning.MAX_WAIT_SECONDS`."""
        mine, key = self.every.parcels[self.device], (peer, tag)
        stop = monotonic() + tuning.MAX_WAIT_SECONDS
        arrived = self.every.arrived[self.device]
        with arrived:
            while key not in mine:
                if self.every.is_over:
                    raise Stopped
                if not arrived.wait(max(stop - monotonic(), 0)) and monotonic() >= stop:
                    raise TimeoutError(
                        f"device {self.device} waited {tuning.MAX_WAIT_SECONDS:g} s for what device {peer} sends under "
                        f"tag {tag}"
                    )
            return mine.pop(key)


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
    threads = [
        Thread(target=contextvars.copy_context().run, args=(_work, job, one, told), daemon=True) for one in interpreters
    ]
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


def _work(job: Job, mine: Interpreter, told: SimpleQueue[_Told]) -> None:
    """Do one device's program."""
    done, at = 0, None
    try:
        for at in job.programs[mine.device].steps:
            mine.do(at)
            done += not isinstance(at.step, Send)
            if job.progress is not None and isinstance(at.step, Compute):
                told.put(_Told(done, at.step.node))
                done = 0
        told.put(_Told(done, is_last=True))
    except Stopped:
        told.put(_Told(is_last=True))
    except BaseException as error:
        told.put(_Told(error=error, number=at.number if at else 0, is_last=True))
