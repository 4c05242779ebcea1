"""Messages between ranks: parcels by the steps' numbers, and what all tell each other at the end of a run."""

from __future__ import annotations

import os
import pickle
from collections import Counter
from collections.abc import Callable, Mapping
from time import monotonic, perf_counter, sleep
from typing import Any

import numpy as np

from tapestry_exec.mpi.bells import Bell
from tapestry_exec.mpi.collectives import HEAD, Calls
from tapestry_exec.mpi.tuning import (
    AT_ONCE_NBYTES,
    BELL_SECONDS,
    FIRST_NAPS,
    HEAD_NBYTES,
    LOOKS_AFTER_RING,
    LOOKS_FOR_FAILURE,
    MAX_NAPS,
    NAP_SECONDS,
    SLEPT_SECONDS,
    WANTED_SECONDS,
    YIELD_SECONDS,
)
from tapestry_exec.run import Parcel, tuning

FAILED, ANSWER, ANSWERS, FIRST = range(4)
"""Tags of messages that are not parcels; those of parcels begin at `FIRST`."""


class OtherFailed(Exception):
    """Another rank failed: this one ends its run, too."""


class Mail:
    """A rank's messages to the others.

    Parameters
    ----------
    comm : mpi4py.MPI.Comm
        That nobody else uses.
    receipts : mapping of (peer, tag) to (cells, dtype)
        The parcels that come here.
    """

    def __init__(self, comm: Any, receipts: Mapping[tuple[int, int], tuple[int, str]]) -> None:
        from mpi4py import MPI

        self.mpi, self.comm, self.receipts = MPI, comm, receipts
        self.begin = 0.0
        """When the run began, by this rank's clock: times go from there, as other machines have other clocks."""
        self.clock_error = 0.0
        """By how many seconds at most that was earlier than on the rank that began last, where clocks do not tell."""
        self.is_one_clock = False
        """Whether all ranks read the same one."""
        self.bell = Bell()
        self.pace = Pace(self.bell)
        self.calls = Calls(MPI, comm, (), Counter())
        """Of collectives: none, where a session does not give it others."""
        self.sent: list[tuple[Any, Any]] = []
        """Messages on their way, with the memory that they are in."""
        self.posted: Counter[int] = Counter()
        self.taken: Counter[int] = Counter()
        """By rank: how many messages of a run went there, and came from there, but for what all tell each other."""
        sizes = [cells * np.dtype(dtype).itemsize for cells, dtype in receipts.values()]
        self.room = np.empty(HEAD_NBYTES + max(sizes, default=0), np.uint8)
        """Of the parcel that came last, which is unpacked before the next one."""

    def send(self, tag: int, peer: int, parcel: Parcel) -> None:
        """Begin to send a parcel, or lay it by for a collective."""
        begun = self.calls.lay_by(tag, peer, parcel, self.begin)
        if begun is not None:
            self.sent += ((share.request, share.given) for share in begun if not share.left)
            return
        room = np.empty(HEAD_NBYTES + parcel.cells.nbytes, np.uint8)
        HEAD.pack_into(room.data, 0, parcel.packed - self.begin, parcel.seconds)
        room[HEAD_NBYTES:] = parcel.cells.view(np.uint8)
        self.posted[peer] += 1
        self._post(room, peer, FIRST + tag)

    def recv(self, tag: int, peer: int) -> Parcel:
        """Wait for a parcel, at most `tuning.MAX_WAIT_SECONDS`."""
        cells, dtype = self.receipts[peer, tag]
        what = f"what device {peer} sends under tag {tag}"
        share = self.calls.find(tag, peer)
        if share is not None:
            self.pace.is_brief = True
            self._wait(share.request.Test, True, f"{what} in {share.call}, of which any may be late")
            return share.read(peer, dtype, self.begin)
        room = self.room[: HEAD_NBYTES + cells * np.dtype(dtype).itemsize]
        self.pace.is_brief |= room.nbytes > AT_ONCE_NBYTES
        request = self.comm.Irecv([room, self.mpi.BYTE], peer, FIRST + tag)
        try:
            self._wait(request.Test, True, what)
        except BaseException:
            status = self.mpi.Status()
            request.Cancel()
            request.Wait(status)
            self.taken[peer] += not status.Is_cancelled()  # it may have come meanwhile
            raise
        self.taken[peer] += 1
        packed, seconds = HEAD.unpack_from(room.data)
        return Parcel(room[HEAD_NBYTES:].view(dtype), packed + self.begin, seconds)

    def begin_together(self, cut: int = 0) -> float:
        """Wait for all ranks; the time by this one's clock, which is about the same moment on all.

        All go on from the same cut, which is the number of a step. Ranks of several machines meet once more behind that
        moment: as no rank leaves that meeting before all have come, each one's moment was before any one's end of it.
        """
        self.calls.begin_run(cut)
        self._meet()
        self.begin = perf_counter()
        if not self.is_one_clock:
            self._meet()
            self.clock_error = perf_counter() - self.begin
        return self.begin

    def _meet(self) -> None:
        if self.bell.is_everywhere:
            self.exchange(None)  # a barrier rings nobody
            return
        barrier, self.pace.is_brief = self.comm.Ibarrier(), True
        self._wait(barrier.Test, False, "all ranks to begin a run")

    def tell_failure(self) -> None:
        """Have the other ranks end their runs."""
        for peer in range(self.comm.size):
            if peer != self.comm.rank:
                self.posted[peer] += 1
                self._post(np.empty(0, np.uint8), peer, FAILED)

    def exchange(self, answer: Any) -> list[Any]:
        """What all ranks give, by rank; they wait for each other, at most `tuning.MAX_WAIT_SECONDS`."""
        comm, mine = self.comm, pickle.dumps(answer, -1)
        if comm.rank:
            self._post(np.frombuffer(mine, np.uint8), 0, ANSWER)
            every: list[Any] = pickle.loads(self._take(0, ANSWERS, "what all ranks did"))
        else:  # which reads none of it before the others have it
            every = [mine, *(self._take(peer, ANSWER, f"rank {peer} to end its run") for peer in range(1, comm.size))]
            whole = np.frombuffer(pickle.dumps(every, -1), np.uint8)
            for peer in range(1, comm.size):
                self._post(whole, peer, ANSWERS)
        return [answer if rank == comm.rank else pickle.loads(one) for rank, one in enumerate(every)]

    def finish(self) -> None:
        """Wait until what was sent is on its way without this rank: a large message needs both ends."""
        self._wait(lambda: self._forget_sent() == 0, False, "what it sent to arrive")

    def wait_for(self, is_here: Callable[[], Any], what: str) -> None:
        """Wait until something holds, no longer than until another rank fails."""
        self.pace.is_brief = True
        self._wait(is_here, True, what)

    def close(self) -> None:
        """Wait until what was sent is on its way, and give the communicators back."""
        self.finish()
        self.calls.close()
        self.bell.close()
        self.comm.Free()

    def drain(self) -> None:
        """Take and forget all messages of a run that failed: as many as each rank says that it sent here.

        What any rank began with others, all do.
        """
        mine = self.comm.rank
        told = self.exchange((dict(self.posted), self.calls.count_begun()))
        for share in self.calls.catch_up([begun for _, begun in told]):
            self._wait(share.request.Test, False, f"{share.call} in a run that failed")
        for peer, (theirs, _) in enumerate(told):
            for _ in range(theirs.get(mine, 0) - self.taken[peer]):
                self._take(peer, self.mpi.ANY_TAG, f"what rank {peer} sent in a run that failed")
        self.finish()
        self.posted.clear()
        self.taken.clear()

    def _post(self, room: Any, peer: int, tag: int) -> None:
        request = self.comm.Isend([room, self.mpi.BYTE], peer, tag)
        self.bell.ring(peer)
        self.pace.is_brief |= len(room) > AT_ONCE_NBYTES
        self.sent.append((request, room))
        if len(self.sent) > 64:
            self._forget_sent()

    def _forget_sent(self) -> int:
        self.sent = [one for one in self.sent if not one[0].Test()]
        self.pace.is_brief = any(len(room) > AT_ONCE_NBYTES for _, room in self.sent)
        return len(self.sent)

    def _take(self, peer: int, tag: int, what: str) -> bytearray:
        """Wait for a message of any length."""
        status = self.mpi.Status()
        self._wait(lambda: self.comm.Iprobe(peer, tag, status), False, what)
        room = bytearray(status.Get_count(self.mpi.BYTE))
        self.comm.Recv([room, self.mpi.BYTE], peer, status.Get_tag())
        return room

    def _wait(self, is_here: Callable[[], Any], ends_early: bool, what: str) -> None:
        """Wait until something holds; with `ends_early` no longer than until another rank fails."""
        wait_until(is_here, self.look if ends_early else None, f"device {self.comm.rank}", what, self.pace)

    def look(self) -> None:
        """Raise OtherFailed when another rank has told that it failed."""
        if self.comm.Iprobe(self.mpi.ANY_SOURCE, FAILED):
            raise OtherFailed


class Pace:
    """How the time between two looks passes: MPI has no wait that the system ends.

    Where there is a core for each rank a message takes 10 microseconds with looks one behind the other, and 200 with
    naps, or 50 where its sender ends them by a bell. Where a core is wanted by others, as by the rank that is waited
    for, such looks keep it from them; that shows when a core that is offered comes back late. Then this rank sleeps
    between looks, and each time that this shows again for four times as many.

    Parameters
    ----------
    bell : Bell, optional
        What ends a nap, of which each is long then.
    """

    def __init__(self, bell: Bell | None = None) -> None:
        self.bell, self.naps, self.more = bell, 0, FIRST_NAPS
        self.looks = 0
        """How many follow one behind the other, as a bell was rung."""
        self.is_brief = False
        """Whether a large message is on its way, for which MPI wants to be asked often, or what nobody rings for."""

    def rest(self, waited: float) -> None:
        """Let a moment pass, of a wait that has lasted so many seconds."""
        if self.looks:
            self.looks -= 1
            return
        if self.naps or waited > YIELD_SECONDS:
            self.naps = max(self.naps - self._nap(), 0)
            return
        begin = perf_counter()
        os.sched_yield()
        if perf_counter() - begin > WANTED_SECONDS:
            self.naps, self.more = self.more, min(4 * self.more, MAX_NAPS)
        else:
            self.more = max(self.more - 1, FIRST_NAPS)

    def _nap(self) -> int:
        """Sleep; for how many naps that counts."""
        if self.bell is None or not self.bell.others:
            sleep(NAP_SECONDS)
            return 1
        begin = perf_counter()
        if self.bell.wait(NAP_SECONDS if self.is_brief else BELL_SECONDS):
            self.looks = LOOKS_AFTER_RING
        return 1 + int((perf_counter() - begin) / SLEPT_SECONDS)


def wait_until(is_here: Callable[[], Any], look: Callable[[], None] | None, who: str, what: str, pace: Pace) -> None:
    """Wait until something holds, at most `tuning.MAX_WAIT_SECONDS`; `look` is called now and then, and may raise."""
    looks, begin = 0, 0.0
    while not is_here():
        looks += 1
        if look is not None and looks % LOOKS_FOR_FAILURE == 0:
            look()
        now = monotonic()
        begin = begin or now
        if now - begin > tuning.MAX_WAIT_SECONDS:
            raise TimeoutError(f"{who} waited {tuning.MAX_WAIT_SECONDS:g} s for {what}")
        pace.rest(now - begin)


def duplicate(comm: Any) -> Any:
    """A communicator of the same ranks, which all take part in making."""
    made, request = comm.Idup()
    wait_until(request.Test, None, f"rank {comm.rank}", "all ranks to call run or deploy", Pace())
    return made
