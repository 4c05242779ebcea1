"""Bells: how a rank that waits is woken by another one of its machine, as MPI has no wait that the system ends.

What a bell says is only that there may be something to see: messages are MPI's. Each rank has a page of memory that
the others of its machine read: whether it sleeps, how many runs it has come to, and how many messages it has sent to
each. So nobody is rung who is awake, who waits for one rank's message sleeps on when another one's comes, and ranks
that begin together send nothing::

    rank 1    sends to 0, writes 1   0 is awake                          sends to 0, writes 2   0 sleeps: rings
    rank 0                           takes 1 of 1, sleeps: 1 of 1 taken                                         looks

A rank that is rung by nobody looks by itself, a little later: a bell that is not heard costs no more than that.
"""

from __future__ import annotations

import os
import select
import socket
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from mmap import ACCESS_READ, mmap
from time import perf_counter
from typing import Any, NamedTuple

from tapestry_exec.mpi.tuning import NONCE_NBYTES, RINGS_AT_ONCE

RING, ALARM = b"!", b"failed"


class PageNumbers(NamedTuple):
    """What a rank tells the others of its machine at any time."""

    asleep: memoryview
    """Whether it sleeps: one number."""
    came: memoryview
    """How many meetings of all ranks it has come to: one number."""
    sent: memoryview
    """By rank: how many messages went there."""


class Page:
    """Where a rank's numbers are; others open it.

    Attributes
    ----------
    place : str
        Empty where they cannot.
    numbers : PageNumbers
    """

    def __init__(self, size: int) -> None:
        self.place, self.file = "", -1
        nbytes = NONCE_NBYTES + 8 * (2 + size)
        memory: Any = bytearray(nbytes)
        with suppress(OSError, AttributeError):
            self.file = os.memfd_create("tapestry bell")
            os.ftruncate(self.file, nbytes)
            memory = mmap(self.file, nbytes)
            memory[:NONCE_NBYTES] = nonce = os.urandom(NONCE_NBYTES)
            self.place = f"{os.getpid()} {self.file} {nonce.hex()}"
        self.numbers = _read_page(memory)

    def close(self) -> None:
        """Give the file back; memory stays while anybody has it."""
        if self.file >= 0:
            os.close(self.file)
            self.file = -1


def open_page(place: str) -> PageNumbers | None:
    """The numbers of another rank; None where its page cannot be opened from here."""
    if not place:
        return None
    process, number, nonce = place.split()
    try:
        file = os.open(f"/proc/{process}/fd/{number}", os.O_RDONLY | os.O_NONBLOCK)
        try:
            if os.pread(file, NONCE_NBYTES, 0).hex() != nonce:  # processes are counted anew in a container
                return None
            memory = mmap(file, 0, access=ACCESS_READ)
        finally:
            os.close(file)
    except OSError:
        return None
    return _read_page(memory)


def _read_page(memory: Any) -> PageNumbers:
    numbers = memoryview(memory)[NONCE_NBYTES:].cast("q")
    return PageNumbers(numbers[:1], numbers[1:2], numbers[2:])


class Bell:
    """The bell of this rank, and those of others on its machine.

    Parameters
    ----------
    size : int
        How many ranks there are.

    Attributes
    ----------
    address : str
        Where it is rung, behind the place of its page; empty on a system without such addresses.
    others : mapping of int to bytes
        By rank.
    is_everywhere : bool
        Whether all ranks have bells, which all find alike.
    sees_all : bool
        Whether each rank reads the pages of all others, as they have told each other.
    taken : Counter of int
        By rank: how many of its messages were taken here.
    """

    def __init__(self, size: int) -> None:
        self.address, self.others, self.me = "", dict[int, bytes](), 0
        self.is_everywhere = self.sees_all = False
        self.taken = Counter[int]()
        self.page = Page(size)
        self.mine = self.page.numbers
        self.pages: dict[int, PageNumbers] = {}
        """Of others, by rank."""
        self.socket: Any = None
        try:
            self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self.socket.setblocking(False)
            self.socket.bind("")  # Linux chooses an address that no file has
            address = self.socket.getsockname()
        except (OSError, AttributeError):
            return
        if isinstance(address, bytes) and address:
            self.address = f"{self.page.place}|{os.fsdecode(address)}"
        self.asked = select.poll()  # which takes descriptors of any number
        self.asked.register(self.socket, select.POLLIN)

    def meet(self, me: int, addresses: Sequence[str], clocks: Sequence[str]) -> None:
        """Ring the others of this machine from now on, whose addresses and clocks are by rank."""
        self.me = me
        near = {
            rank: address.split("|", 1)
            for rank, address in enumerate(addresses)
            if address and clocks[rank] == clocks[me] and rank != me
        }
        self.others = {rank: os.fsencode(address) for rank, (_, address) in near.items()}
        self.pages = {rank: page for rank, (place, _) in near.items() if (page := open_page(place)) is not None}
        self.is_everywhere = len(addresses) > 1 and all(addresses) and len(set(clocks)) == 1

    def ring(self, rank: int, count: int = 1, is_alarm: bool = False) -> None:
        """Tell a rank of more messages that went to it; nobody is rung who is awake, or was rung and has not looked.

        Whom an alarm wakes looks, whatever it waits for.
        """
        self.mine.sent[rank] += count
        page = self.pages.get(rank)
        if page is None or page.asleep[0] or is_alarm:
            self._wake(rank, is_alarm)

    def _wake(self, rank: int, is_alarm: bool = False) -> None:
        if rank in self.others:
            try:
                self.socket.sendto(ALARM if is_alarm else RING, self.others[rank])
            except BlockingIOError:
                pass
            except OSError:  # it is gone, or of another network: it looks by itself
                del self.others[rank]

    def come(self) -> Callable[[], bool]:
        """Come to a meeting of all ranks, whose pages are all here, and wake them if this is the last one.

        What is given says whether all have come.
        """
        self.mine.came[0] = number = self.mine.came[0] + 1
        others = [page.came for page in self.pages.values()]

        def is_complete() -> bool:
            return all(came[0] >= number for came in others)

        if is_complete():
            for rank, page in self.pages.items():
                if page.asleep[0]:
                    self._wake(rank)
        return is_complete

    def count_untaken(self, rank: int) -> int | None:
        """How many messages a rank has sent here that are not taken yet; None where it does not tell."""
        page = self.pages.get(rank)
        return None if page is None else page.sent[self.me] - self.taken[rank]

    def wait(self, seconds: float, is_due: Callable[[], bool] | None = None) -> bool:
        """Wait until this bell is rung, so long at most; whether it was.

        With a condition only until that holds, or for an alarm.
        """
        stop, asleep = perf_counter() + seconds, self.mine.asleep
        asleep[0] = 1  # before the last look, so that who makes it hold behind that rings
        try:
            while is_due is None or not is_due():
                if not self.asked.poll(max(0.0, stop - perf_counter()) * 1000):
                    return False
                if self._listen() or is_due is None:
                    return True
        finally:
            asleep[0] = 0
        return True

    def _listen(self) -> bool:
        """Take the rings that are here; whether one was an alarm."""
        is_alarmed = False
        with suppress(BlockingIOError):
            for _ in range(RINGS_AT_ONCE):
                is_alarmed |= self.socket.recv(len(ALARM)) == ALARM
        return is_alarmed

    def close(self) -> None:
        """Take the bell down."""
        self.others, self.pages = {}, {}
        self.page.close()
        if self.socket is not None:
            self.socket.close()
