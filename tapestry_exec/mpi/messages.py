"""Messages between ranks: parcels by the steps' numbers, and what all tell each other at the end of a run."""

from __future__ import annotations

import os
import pickle
import struct
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial, wraps
from itertools import chain
from time import monotonic, perf_counter, sleep
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar

import numpy as np

from tapestry_exec.copies import Array
from tapestry_exec.mpi.bells import Bell
from tapestry_exec.mpi.collectives import HEAD, Calls, fill
from tapestry_exec.mpi.endings import Endings, tell_obstacle
from tapestry_exec.mpi.several import Dealing, deal_singly
from tapestry_exec.mpi.tuning import (
    ALIGNED_NBYTES,
    AT_ONCE_NBYTES,
    BELL_SECONDS,
    CANCEL_SECONDS,
    ENDED_SECONDS,
    FIRST_NAPS,
    HEAD_NBYTES,
    LOOKS_AFTER_RING,
    LOOKS_FOR_FAILURE,
    MAX_NAPS,
    MAX_PIECES,
    NAP_SECONDS,
    SPIN_SECONDS,
    WANTED_SECONDS,
    YIELD_SECONDS,
)
from tapestry_exec.run import Parcel, tell_devices, tuning

SIZE = struct.Struct("q")
FAILED, ANSWER, ANSWERS, FIRST = range(4)
"""Tags of messages that are not parcels; those of parcels begin at `FIRST`."""

P = ParamSpec("P")
T = TypeVar("T")
_ABANDONED: list[Any] = []
"""What MPI may still write to or read, of ranks that gave up waiting for others."""


class OtherFailed(Exception):
    """Another rank failed: this one ends its run, too."""


class ParcelIn(NamedTuple):
    """Where a parcel comes to in every run."""

    head: memoryview
    """All of it, which begins with a head."""
    cells: Array
    requests: list[Any]
    start: Callable[[], None]
    is_here: Callable[[], bool]
    who: str
    """The device that it is for, as errors have it."""
    what: str
    """What that waits for."""


class ParcelOut(NamedTuple):
    """A parcel that is sent in every run."""

    room: Array
    requests: list[Any]
    start: Callable[[], None]
    is_gone: Callable[[], bool]


def in_step(do: Callable[Concatenate[Mail, P], T]) -> Callable[Concatenate[Mail, P], T]:
    """What all ranks do together: one that leaves it before its end is out of step."""

    @wraps(do)
    def do_all(mail: Mail, /, *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return do(mail, *args, **kwargs)
        except BaseException as error:  # also Ctrl-C
            mail.lose(error)
            raise

    return do_all


class Mail:
    """A rank's messages to the others.

    Parameters
    ----------
    comm : mpi4py.MPI.Comm
        That nobody else uses.
    receipts : mapping of (peer, tag) to (cells, dtype)
        The parcels that come here. Peers are ranks, and tags the numbers of parcels by `Dealing`.
    dealing : Dealing, optional
        By which errors name devices; without it each rank has one.
    """

    def __init__(
        self, comm: Any, receipts: Mapping[tuple[int, int], tuple[int, str]], dealing: Dealing | None = None
    ) -> None:
        from mpi4py import MPI

        self.mpi, self.comm, self.receipts = MPI, comm, receipts
        self.dealing = dealing or deal_singly(comm.size)
        self.who = tell_devices(self.dealing.groups[comm.rank])
        self.begin = 0.0
        """When the run began, by this rank's clock: times go from there, as other machines have other clocks."""
        self.clock_error = 0.0
        """By how many seconds at most that was earlier than on the rank that began last, where clocks do not tell."""
        self.is_one_clock = False
        """Whether all ranks read the same one."""
        self.bell = Bell(comm.size)
        self.pace = Pace(self.bell)
        self.endings = Endings(comm)
        self.calls = Calls(MPI, comm, (), Counter())
        """Of collectives: none, where a session does not give it others."""
        self.sent: list[tuple[Any, Callable[[], bool], Collection[int]]] = []
        """The memory of messages on their way, whether they are gone, and the ranks that they go to."""
        self.half: list[tuple[int, Callable[[], bool]]] = []
        """Messages that nobody waits for any more, but of which a part is here, by rank, and whether they are over."""
        self.lost = ""
        """Why this rank is out of step: what others send, or have sent, may be of a run that it is not in."""
        self.posted: Counter[int] = Counter()
        self.taken: Counter[int] = Counter()
        """By rank: how many messages of a run went there, and came from there, but for what all tell each other."""
        sizes = [cells * np.dtype(dtype).itemsize for cells, dtype in receipts.values()]
        self.room = np.empty(HEAD_NBYTES + max(sizes, default=0), np.uint8)
        """Of the parcel that came last, which is unpacked before the next one."""
        self.incoming: dict[tuple[int, int], ParcelIn] = {}
        """By peer and tag: where a parcel comes to in every run."""
        self.outgoing: dict[tuple[int, int], ParcelOut] = {}
        """The same of small parcels that are known by heart, each of which has memory of its own."""

    def lose(self, error: BaseException) -> None:
        """Be out of step from now on."""
        self.lost = self.lost or str(error) or type(error).__name__

    @property
    def receives_anew(self) -> bool:
        """Whether parcels come to other memory in each run, as those of collectives do."""
        return bool(self.calls.calls)

    def send(self, tag: int, peer: int, parcel: Parcel) -> None:
        """Begin to send a parcel, or lay it by for a collective."""
        begun = self.calls.lay_by(tag, peer, parcel, self.begin)
        if begun is not None:
            self.sent += ((share.given, share.request.Test, range(self.comm.size)) for share in begun if not share.left)
            return
        room = np.empty(HEAD_NBYTES + parcel.cells.nbytes, np.uint8)
        seconds = fill(room[HEAD_NBYTES:], parcel)
        HEAD.pack_into(room.data, 0, parcel.packed - self.begin, seconds)
        self.posted[peer] += len(list_pieces(len(room)))
        self._post(room, peer, FIRST + tag)

    def bind_send(self, tag: int, peer: int, strips: Any) -> Callable[[float], None] | None:
        """What sends the same cells in later runs, given when it began; None of large ones, and with collectives."""
        nbytes = HEAD_NBYTES + strips.size * strips.array.itemsize
        if nbytes > MAX_PIECES * AT_ONCE_NBYTES or self.calls.calls:
            return None
        found = self.outgoing.get((peer, tag))
        if found is None:
            room, byte = np.empty(nbytes, np.uint8), self.mpi.BYTE
            requests = [self.comm.Send_init([room[at], byte], peer, FIRST + tag) for at in list_pieces(nbytes)]
            found = self.outgoing[peer, tag] = ParcelOut(room, requests, *self._bind(requests))
        room, requests, start, is_gone = found
        calls, count = strips.list_filling(room[HEAD_NBYTES:].view(strips.array.dtype)), len(requests)
        put, head, posted, ring, sent = HEAD.pack_into, room.data, self.posted, self.bell.ring, self.sent
        message = room, is_gone, (peer,)

        def post(begin: float) -> None:
            for call in calls:
                call()
            put(head, 0, begin - self.begin, perf_counter() - begin)
            sent.append(message)  # before it begins: who is interrupted here has told of no less than it sent
            posted[peer] += count
            start()
            ring(peer, count)

        return post

    def _bind(self, requests: list[Any]) -> tuple[Callable[[], None], Callable[[], bool]]:
        """What starts requests that are used again, and whether they are done."""
        if len(requests) == 1:
            return requests[0].Start, requests[0].Test
        starts = [request.Start for request in requests]

        def start() -> None:
            for one in starts:  # as `Startall` may take them in any order, and pieces are told apart by theirs alone
                one()

        return start, partial(self.mpi.Request.Testall, requests)

    def recv(self, tag: int, peer: int) -> Parcel:
        """Wait for a parcel, at most `tuning.MAX_WAIT_SECONDS`."""
        share = self.calls.find(tag, peer) if self.calls.calls else None
        if share is not None:
            what = f"what device {peer} sends under tag {tag} in {share.call}, of which any may be late"
            self._wait(share.request.Test, True, what, is_brief=True)
            return share.read(peer, self.receipts[peer, tag][1], self.begin)
        one = self.incoming.get((peer, tag)) or self._expect(tag, peer)
        one.start()
        if not one.is_here():
            self._wait_for_parcel(peer, one)
        self._count_taken(peer, len(one.requests))
        packed, seconds = HEAD.unpack_from(one.head)
        return Parcel(one.cells, packed + self.begin, seconds)

    def is_there(self, tag: int, peer: int) -> bool:
        """Whether a parcel, or its first piece, has come."""
        return bool(self.comm.Iprobe(peer, FIRST + tag))

    def _expect(self, tag: int, peer: int) -> ParcelIn:
        """Where a parcel comes to; all come to the same memory, one after the other."""
        cells, dtype = self.receipts[peer, tag]
        room, byte = self.room[: HEAD_NBYTES + cells * np.dtype(dtype).itemsize], self.mpi.BYTE
        requests = [self.comm.Recv_init([room[at], byte], peer, FIRST + tag) for at in list_pieces(len(room))]
        number, source, target = self.dealing.read(tag, peer, self.comm.rank)
        names = f"device {target}", f"what device {source} sends under tag {number}"
        found = ParcelIn(room.data, room[HEAD_NBYTES:].view(dtype), requests, *self._bind(requests), *names)
        self.incoming[peer, tag] = found
        return found

    def _wait_for_parcel(self, peer: int, one: ParcelIn) -> None:
        is_large = len(one.requests) == 1 and len(one.head) > AT_ONCE_NBYTES
        try:
            self._wait(one.is_here, True, one.what, peer, is_large, one.who)
        except BaseException:
            for request in one.requests:
                self._give_up(peer, request)
            raise

    def _give_up(self, peer: int, request: Any) -> None:
        """Wait for a message no longer, and count it if it came meanwhile."""
        status = self.mpi.Status()

        def is_over() -> bool:
            if not request.Test(status):
                return False
            self._count_taken(peer, not status.Is_cancelled())
            return True

        if is_over():  # also where all had come, as that was interrupted
            return
        request.Cancel()
        stop = monotonic() + CANCEL_SECONDS
        while not is_over():
            if monotonic() > stop:
                self.half.append((peer, is_over))
                return
            sleep(NAP_SECONDS)

    def _count_taken(self, peer: int, count: int) -> None:
        """Note that so many messages of a rank are here."""
        self.taken[peer] += count
        self.bell.taken[peer] += count

    @in_step
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
        what = "all ranks to begin a run"
        if self.bell.sees_all:
            self._wait(self.bell.come(), False, what)
            self.bell.leave_shared_core()
        else:
            self._wait(self.comm.Ibarrier().Test, False, what, is_brief=True)

    def tell_failure(self) -> None:
        """Have the other ranks end their runs."""
        for peer in range(self.comm.size):
            if peer != self.comm.rank:
                self.posted[peer] += 1
                self._post(np.empty(0, np.uint8), peer, FAILED)

    @in_step
    def exchange(self, answer: Any) -> list[Any]:
        """What all ranks give, by rank; they wait for each other, at most `tuning.MAX_WAIT_SECONDS`.

        Arrays go as raw bytes, and are to be read only.
        """
        every = self._share(pack_answer(answer))
        return [answer if rank == self.comm.rank else read_answer(one) for rank, one in enumerate(every)]

    def _share(self, mine: bytes) -> list[memoryview]:
        """The bytes that all ranks give, by rank."""
        comm = self.comm
        if not comm.rank:  # which reads none of them before the others have them
            what = "rank {} to end its run"
            every: list[bytes | bytearray] = [
                mine,
                *(self._take_whole(peer, ANSWER, what.format(peer)) for peer in range(1, comm.size)),
            ]
            whole = np.frombuffer(join(every), np.uint8)
            for peer in range(1, comm.size):
                self._post(whole, peer, ANSWERS)
            return [memoryview(one) for one in every]
        self._post(np.frombuffer(mine, np.uint8), 0, ANSWER)
        return cut(memoryview(self._take_whole(0, ANSWERS, "what all ranks did")))

    @in_step
    def finish(self) -> None:
        """Wait until what was sent is on its way without this rank: a large message needs both ends.

        Who has taken it may have ended, as behind the last run, while others still do.
        """
        if self._forget_sent():
            what = "what it sent to arrive"
            self._wait(lambda: self._forget_sent() == 0, False, what, is_brief=True, whom=self._list_late)

    def _list_late(self) -> set[int]:
        """The ranks to which messages are on their way."""
        return {rank for *_, ranks in self.sent for rank in ranks}

    def wait_for(self, is_here: Callable[[], Any], what: str) -> None:
        """Wait until something holds, no longer than until another rank fails."""
        self._wait(is_here, True, what, is_brief=True)

    def close(self) -> None:
        """Wait until what was sent is on its way, and give the communicators back.

        Not where ranks are out of step: MPI may still read this memory, and would give a communicator's number to the
        next one, to which messages that nobody took would come. Nor where the program has called MPI's end itself.
        """
        self.lost = self.lost or tell_obstacle()
        try:
            if not self.lost:
                self.finish()
        finally:
            self.bell.close()
            if self.lost:
                _ABANDONED.append(self)
            else:
                bound: list[ParcelIn | ParcelOut] = [*self.outgoing.values(), *self.incoming.values()]
                for request in chain.from_iterable(one.requests for one in bound):
                    request.Free()
                self.calls.close()
                self.comm.Free()

    @in_step
    def drain(self) -> None:
        """Take and forget all messages of a run that failed: as many as each rank says that it sent here.

        What any rank began with others, all do.
        """
        mine = self.comm.rank
        told = self.exchange((dict(self.posted), self.calls.count_begun()))
        for share in self.calls.catch_up([begun for _, begun in told]):
            self._wait(share.request.Test, False, f"{share.call} in a run that failed")
        for peer, is_over in self.half:
            self._wait(is_over, False, f"the rest of what rank {peer} sent in a run that failed", is_brief=True)
        self.half.clear()
        for peer, (theirs, _) in enumerate(told):
            for _ in range(theirs.get(mine, 0) - self.taken[peer]):
                self._take(peer, self.mpi.ANY_TAG, f"what rank {peer} sent in a run that failed")
        self.finish()
        self.posted.clear()
        self.taken.clear()

    def _post(self, room: Any, peer: int, tag: int) -> None:
        """Begin to send a message; of answers, whose length nobody knows, a piece that is not full is the last one."""
        pieces = list_pieces(len(room))
        if tag < FIRST and pieces[-1].stop - pieces[-1].start == AT_ONCE_NBYTES:
            pieces.append(slice(len(room), len(room)))
        for at in pieces:
            self.sent.append((room, self.comm.Isend([room[at], self.mpi.BYTE], peer, tag).Test, (peer,)))
        self.bell.ring(peer, len(pieces), is_alarm=tag == FAILED)
        if len(self.sent) > 64:
            self._forget_sent()

    def _forget_sent(self) -> int:
        self.sent[:] = [one for one in self.sent if not one[1]()]
        return len(self.sent)

    def _take_whole(self, peer: int, tag: int, what: str) -> bytearray:
        """Wait for an answer, which may come in pieces."""
        found = piece = self._take(peer, tag, what)
        while len(piece) == AT_ONCE_NBYTES:
            piece = self._take(peer, tag, what)
            found += piece
        return found

    def _take(self, peer: int, tag: int, what: str) -> bytearray:
        """Wait for a message of any length."""
        status = self.mpi.Status()
        self._wait(lambda: self.comm.Iprobe(peer, tag, status), False, what, peer)
        room = bytearray(status.Get_count(self.mpi.BYTE))
        request = self.comm.Irecv([room, self.mpi.BYTE], peer, status.Get_tag())
        if not request.Test():  # of a large one the sender has a part to do, who may not do it soon
            try:
                self._wait(request.Test, False, what, is_brief=True)
            except BaseException:
                _ABANDONED.append((room, request))
                raise
        self.bell.taken[peer] += 1
        return room

    def _wait(
        self,
        is_here: Callable[[], Any],
        ends_early: bool,
        what: str,
        peer: int | None = None,
        is_brief: bool = False,
        who: str | None = None,
        whom: Callable[[], Collection[int]] | None = None,
    ) -> None:
        """Wait until something holds, as a message of a peer is here; with `ends_early` until another rank fails."""
        self.pace.wait_for(is_here if peer is None else peer, is_brief or self._forget_sent() > 0)
        wait_until(is_here, self.look if ends_early else None, who or self.who, what, self.pace, self.endings, whom)

    def look(self) -> None:
        """Raise OtherFailed when another rank has told that it failed."""
        if self.comm.Iprobe(self.mpi.ANY_SOURCE, FAILED):
            raise OtherFailed


class Pace:
    """How the time between two looks passes: MPI has no wait that the system ends.

    Where there is a core for each rank a message takes 10 microseconds with looks one behind the other, and 200 with
    naps, or 50 where its sender ends them by a bell. So a rank with a bell looks for a while where ranks are no more
    than cores, and then sleeps until it is rung; where they are more it sleeps at once. Without a bell it looks until
    it sees that its core is wanted by others, as by the rank that is waited for, when a core that is offered comes back
    late. Then it sleeps between looks, and each time that this shows again for four times as many.

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
        """Whether MPI wants to be asked often, for a message that needs both its ends, or nobody rings for this."""
        self.peer: int | None = None
        """Whose message is waited for."""
        self.known = 0
        """How many of its messages that are not taken are not that one."""
        self.is_due: Callable[[], Any] = bool
        """Whether it is worth while to look."""

    def wait_for(self, what: int | Callable[[], Any], is_brief: bool) -> None:
        """Begin to wait for a message of a rank, or for something that is asked for."""
        self.is_brief, self.known, self.looks = is_brief, 0, 0
        if isinstance(what, int):
            self.peer, self.is_due = what, self._has_more
        else:
            self.peer, self.is_due = None, what

    def _has_more(self) -> bool:
        """Whether the rank has sent more than what was looked at."""
        assert self.bell is not None and self.peer is not None, "a message is waited for"
        return self.bell.count_untaken(self.peer) > self.known

    def rest(self, waited: float) -> None:
        """Let a moment pass, of a wait that has lasted so many seconds."""
        bell = self.bell
        if self.looks:
            self.looks -= 1
        elif bell is not None and bell.pages:
            if bell.is_crowded or waited > SPIN_SECONDS:
                self._sleep(bell)
            else:
                os.sched_yield()
        elif self.naps or waited > YIELD_SECONDS:
            self.naps = max(self.naps - 1, 0)
            sleep(NAP_SECONDS)
        else:
            begin = perf_counter()
            os.sched_yield()
            if perf_counter() - begin > WANTED_SECONDS:
                self.naps, self.more = self.more, min(4 * self.more, MAX_NAPS)
            else:
                self.more = max(self.more - 1, FIRST_NAPS)

    def _sleep(self, bell: Bell) -> None:
        """Sleep until the bell is rung, where somebody rings for what is waited for; else for a moment."""
        if self.is_brief or (self.peer is not None and self.peer not in bell.pages):
            sleep(NAP_SECONDS)
        elif bell.wait(BELL_SECONDS, self.is_due):
            self.looks = LOOKS_AFTER_RING
            if self.peer is not None:
                self.known = bell.count_untaken(self.peer)


def wait_until(
    is_here: Callable[[], Any],
    look: Callable[[], None] | None,
    who: str,
    what: str,
    pace: Pace,
    endings: Endings,
    whom: Callable[[], Collection[int]] | None = None,
) -> None:
    """Wait until something holds, at most `tuning.MAX_WAIT_SECONDS`, and no longer than all ranks' programs last.

    `look` is called now and then, and may raise. `whom` gives the ranks whose programs matter, if some do not.
    """
    looks, begin = 0, 0.0
    while not is_here():
        looks += 1
        if look is not None and looks % LOOKS_FOR_FAILURE == 0:
            look()
        now = monotonic()
        begin = begin or now
        if now - begin > tuning.MAX_WAIT_SECONDS:
            raise TimeoutError(f"{who} waited {tuning.MAX_WAIT_SECONDS:g} s for {what}")
        if now - begin > ENDED_SECONDS:
            endings.look(who, what, None if whom is None else whom())
        pace.rest(now - begin)


def duplicate(comm: Any) -> Any:
    """A communicator of the same ranks, which all take part in making."""
    made, request = comm.Idup()
    try:
        who, what = f"rank {comm.rank}", "all ranks to call run or deploy"
        wait_until(request.Test, None, who, what, Pace(), Endings(comm))
    except BaseException:
        _ABANDONED.append((made, request))  # MPI writes there when the others come
        raise
    return made


def list_pieces(nbytes: int) -> list[slice]:
    """How a message goes: in pieces that MPI takes at once, if they are few, else whole."""
    if nbytes > MAX_PIECES * AT_ONCE_NBYTES:
        return [slice(0, nbytes)]
    return [slice(at, min(at + AT_ONCE_NBYTES, nbytes)) for at in range(0, max(nbytes, 1), AT_ONCE_NBYTES)]


def pack_answer(answer: Any) -> bytes:
    """An object as it goes to other ranks: pickled, and behind that the bytes of its arrays as they are."""
    buffers: list[pickle.PickleBuffer] = []
    words = pickle.dumps(answer, 5, buffer_callback=buffers.append)
    return join([words, *(one.raw() for one in buffers)])


def read_answer(packed: memoryview) -> Any:
    """The object; its arrays lie in that memory."""
    words, *buffers = cut(packed)
    return pickle.loads(words, buffers=buffers)


def join(parts: Sequence[Any]) -> bytes:
    """Several pieces of memory as one: how many, their bytes, and each at a multiple of 16 bytes."""
    head = [SIZE.pack(len(parts)), *(SIZE.pack(len(one)) for one in parts)]
    found = [*head, bytes(-SIZE.size * len(head) % ALIGNED_NBYTES)]
    for one in parts:
        found += one, bytes(-len(one) % ALIGNED_NBYTES)
    return b"".join(found)


def cut(packed: memoryview) -> list[memoryview]:
    """The pieces again, where they lie."""
    (count,) = SIZE.unpack_from(packed)
    at, found = SIZE.size * (1 + count), []
    for k in range(count):
        (nbytes,) = SIZE.unpack_from(packed, SIZE.size * (1 + k))
        at += -at % ALIGNED_NBYTES
        found.append(packed[at : at + nbytes])
        at += nbytes
    return found
