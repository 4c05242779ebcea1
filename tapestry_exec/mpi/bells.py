"""Bells: how a rank that waits is woken by another one of its machine, as MPI has no wait that the system ends.

What a bell says is only that there may be something to see: messages are MPI's. Each rank has a page of memory that
the others of its machine open: whether it sleeps, how many runs it has come to, how many messages it has sent to each,
and a semaphore at which it sleeps. So nobody is rung who is awake, who waits for one rank's message sleeps on when
another one's comes, and ranks that begin together send nothing::

    rank 1    sends to 0, writes 1   0 is awake                          sends to 0, writes 2   0 sleeps: rings
    rank 0                           takes 1 of 1, sleeps: 1 of 1 taken                                         looks

A rank that is rung by nobody looks by itself, a little later: a bell that is not heard costs no more than that. Pipes
and sockets would ring, too, but Linux takes who writes there for one that is about to sleep, and wakes the reader on
the same core: four ranks were on one of two cores in most runs, which took twice as long.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from mmap import mmap
from threading import Lock
from time import perf_counter
from typing import Any, NamedTuple

from tapestry_exec.mpi.tuning import NONCE_NBYTES, SEMAPHORE_NBYTES

FILE = "tapestry bell"
_LOCK = Lock()


def show_writes() -> None:
    """Have others see what was written before, and read behind this what they wrote: a core delays its writes.

    Of two that each write and then look at what the other one wrote, both would miss it now and then.
    """
    _LOCK.acquire(False)  # an atomic operation, in front of which all writes are done
    _LOCK.release()


class Until(ctypes.Structure):
    """A time as the system takes it."""

    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class LibraryCalls(NamedTuple):
    """Of the C library: semaphores in memory that processes share, each call of which gives 0 when it is done."""

    init: Any
    post: Any
    wait: Any
    find_core: Any
    """The number of the core that this thread is on."""


@cache
def find_calls() -> LibraryCalls:
    """What bells need.

    Raises
    ------
    AttributeError
        Where the library lacks some, as those of systems other than Linux do.
    """
    libc: Any = ctypes.CDLL(None) if os.name == "posix" else None
    found = LibraryCalls(libc.sem_init, libc.sem_post, libc.sem_clockwait, libc.sched_getcpu)
    found.init.argtypes = ctypes.c_void_p, ctypes.c_int, ctypes.c_uint
    found.post.argtypes = (ctypes.c_void_p,)
    found.wait.argtypes = ctypes.c_void_p, ctypes.c_int, ctypes.POINTER(Until)
    return found


class Page:
    """What a rank tells the others of its machine at any time, and where they wake it.

    Parameters
    ----------
    memory : mmap or bytearray
        The second where there are no bells.
    place : str
        Where others open it; empty where they cannot.
    file : int
        Its descriptor, that of the rank itself.

    Attributes
    ----------
    asleep : memoryview
        Whether it sleeps: one number.
    alarm : memoryview
        Whether it is to look, whatever it waits for: one number, which others write.
    came : memoryview
        How many meetings of all ranks it has come to: one number.
    core : memoryview
        On which core it came there: one number.
    sent : memoryview
        By rank: how many messages went there.
    """

    def __init__(self, memory: Any, place: str = "", file: int = -1) -> None:
        self.memory, self.place, self.file = memory, place, file
        numbers = memoryview(memory)[NONCE_NBYTES + SEMAPHORE_NBYTES :].cast("q")
        self.asleep, self.alarm, self.came, self.core = (numbers[k : k + 1] for k in range(4))
        self.sent = numbers[4:]
        self.semaphore: Any = (ctypes.c_char * SEMAPHORE_NBYTES).from_buffer(memory, NONCE_NBYTES)
        self.until = Until()

    def ring(self, is_alarm: bool = False) -> None:
        """Wake the rank if it sleeps; who has been rung and has not looked yet is awake."""
        if is_alarm:
            self.alarm[0] = 1
        show_writes()
        if self.asleep[0]:
            self.asleep[0] = 0
            find_calls().post(self.semaphore)

    def sleep(self, stop: float) -> bool:
        """Sleep until somebody rings, or until a time; whether somebody did."""
        self.until.seconds, self.until.nanoseconds = int(stop), int(stop % 1 * 1e9)
        clock = time.CLOCK_MONOTONIC  # that of `perf_counter`, which nobody sets
        return bool(find_calls().wait(self.semaphore, clock, self.until) == 0)

    def close(self) -> None:
        """Give the file back, and the memory here; others keep theirs."""
        self.semaphore = None
        self.asleep = self.alarm = self.came = self.core = self.sent = memoryview(b"").cast("q")
        self.memory = None
        if self.file >= 0:
            os.close(self.file)
            self.file = -1


def make_page(size: int) -> Page:
    """The page of a rank of so many."""
    nbytes = NONCE_NBYTES + SEMAPHORE_NBYTES + 8 * (4 + size)
    file = -1
    try:
        calls = find_calls()
        file = os.memfd_create(FILE)
        os.ftruncate(file, nbytes)
        memory = mmap(file, nbytes)
    except (OSError, AttributeError):  # there is no memory for it, or no such call
        if file >= 0:
            os.close(file)
        return Page(bytearray(nbytes))
    memory[:NONCE_NBYTES] = nonce = os.urandom(NONCE_NBYTES)
    page = Page(memory, f"{os.getpid()} {file} {nonce.hex()}", file)
    if calls.init(page.semaphore, 1, 0):
        page.place = ""
    return page


def open_page(place: str) -> Page | None:
    """The page of another rank; None where it cannot be opened from here."""
    if not place:
        return None
    process, number, nonce = place.split()
    path = f"/proc/{process}/fd/{number}"
    try:
        if FILE not in os.readlink(path):  # processes are counted anew in a container
            return None
        file = os.open(path, os.O_RDWR)
        try:
            if os.pread(file, NONCE_NBYTES, 0).hex() != nonce:
                return None
            return Page(mmap(file, 0))
        finally:
            os.close(file)
    except OSError:
        return None


class Bell:
    """The bell of this rank, and those of others on its machine.

    Parameters
    ----------
    size : int
        How many ranks there are.

    Attributes
    ----------
    pages : mapping of int to Page
        Of others on this machine, by rank.
    sees_all : bool
        Whether each rank reads the pages of all others, as they have told each other.
    is_crowded : bool
        Whether the ranks of this machine are more than the cores that they may use.
    taken : Counter of int
        By rank: how many of its messages were taken here.
    """

    def __init__(self, size: int) -> None:
        self.me = 0
        self.sees_all = self.is_crowded = False
        self.taken = Counter[int]()
        self.mine = make_page(size)
        self.pages: dict[int, Page] = {}

    def tell(self) -> tuple[str, list[int]]:
        """What others need to know of this rank: the place of its page, and its cores."""
        return self.mine.place, sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []

    def meet(self, me: int, told: Sequence[tuple[str, Sequence[int]]], clocks: Sequence[str]) -> None:
        """Ring the others of this machine from now on, by what ranks have told, and their clocks."""
        self.me = me
        near = {rank: one for rank, one in enumerate(told) if clocks[rank] == clocks[me]}
        if self.mine.place:
            opened = {rank: open_page(place) for rank, (place, _) in near.items() if rank != me}
            self.pages = {rank: page for rank, page in opened.items() if page is not None}
        self.is_crowded = len(near) > len({core for _, cores in near.values() for core in cores})

    def ring(self, rank: int, count: int = 1, is_alarm: bool = False) -> None:
        """Tell a rank of more messages that went to it.

        Whom an alarm wakes looks, whatever it waits for.
        """
        self.mine.sent[rank] += count
        page = self.pages.get(rank)
        if page is not None:
            page.ring(is_alarm)

    def come(self) -> Callable[[], bool]:
        """Come to a meeting of all ranks, whose pages are all here, and wake them if this is the last one.

        What is given says whether all have come.
        """
        self.mine.core[0] = find_calls().find_core()
        self.mine.came[0] = number = self.mine.came[0] + 1
        others = list(self.pages.values())

        def is_complete() -> bool:
            return all(page.came[0] >= number for page in others)

        show_writes()
        if is_complete():
            for page in others:
                page.ring()
        return is_complete

    def leave_shared_core(self) -> None:
        """Go to another core behind a meeting, where an earlier rank is on this one, and there are enough for all.

        Those that slept for a while often wake on one core, where the system leaves them for many milliseconds.
        """
        if self.is_crowded:
            return
        here = self.mine.core[0] = find_calls().find_core()
        if not any(page.core[0] == here for rank, page in self.pages.items() if rank < self.me):
            return
        allowed = os.sched_getaffinity(0)
        free = allowed - {page.core[0] for page in self.pages.values()}
        if free:
            try:
                os.sched_setaffinity(0, free)
            finally:
                os.sched_setaffinity(0, allowed)

    def count_untaken(self, rank: int) -> int:
        """How many messages a rank, whose page is here, has sent here that are not taken yet."""
        return self.pages[rank].sent[self.me] - self.taken[rank]

    def wait(self, seconds: float, is_due: Callable[[], Any]) -> bool:
        """Sleep until something holds, as who makes it hold rings, or there is an alarm; whether that came in time."""
        stop, page = perf_counter() + seconds, self.mine
        try:
            while True:
                page.asleep[0] = 1
                show_writes()  # before the last look: who makes it hold behind that rings
                if page.alarm[0]:
                    page.alarm[0] = 0
                    return True
                if is_due():
                    return True
                if perf_counter() >= stop:  # also where somebody rings on and on
                    return False
                page.sleep(stop)
        finally:
            page.asleep[0] = 0

    def close(self) -> None:
        """Take the bell down."""
        for page in (self.mine, *self.pages.values()):
            page.close()
        self.pages = {}
