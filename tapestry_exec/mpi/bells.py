"""Bells: how a rank that waits is woken by another one of its machine, as MPI has no wait that the system ends.

What a bell says is only that there may be something to see: messages are MPI's. Each rank has a page of memory that
the others of its machine read: whether it sleeps, and how many messages it has sent to each. So nobody is rung who is
awake, and who waits for one rank's message sleeps on when another one's comes::

    rank 1    sends to 0, writes 1   0 is awake                          sends to 0, writes 2   0 sleeps: rings
    rank 0                           takes 1 of 1, sleeps: 1 of 1 taken                                         looks

A rank that is rung by nobody looks by itself, a little later: a bell that is not heard costs no more than that.
"""

from __future__ import annotations

import os
import select
import socket
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from mmap import ACCESS_READ, mmap
from time import perf_counter
from typing import Any

from tapestry_exec.mpi.tuning import RINGS_AT_ONCE

RING, ALARM = b"!", b"failed"
NONCE_NBYTES = 16
"""Random bytes in front of a page, by which who opens it knows that it is the one."""


class Page:
    """What a rank tells the others of its machine at any time.

    Attributes
    ----------
    place : str
        Where others open it; empty where they cannot.
    sent : memoryview of int
        By rank: how many messages went there.
    asleep : memoryview of int
        Whether it sleeps: one number.
    """

    def __init__(self, size: int) -> None:
        self.place, self.file = "", -1
        nbytes = NONCE_NBYTES + 8 * (1 + size)
        memory: Any = bytearray(nbytes)
        with suppress(OSError, AttributeError):
            self.file = os.memfd_create("tapestry bell")
            os.ftruncate(self.file, nbytes)
            memory = mmap(self.file, nbytes)
            memory[:NONCE_NBYTES] = nonce = os.urandom(NONCE_NBYTES)
            self.place = f"{os.getpid()} {self.file} {nonce.hex()}"
        self.asleep, self.sent = _read_page(memory)

    def close(self) -> None:
        """Give the file back; memory stays while anybody has it."""
        if self.file >= 0:
            os.close(self.file)
            self.file = -1


def open_page(place: str) -> tuple[memoryview, memoryview] | None:
    """The numbers `asleep` and `sent` of another rank; None where its page cannot be opened from here."""
    try:
        process, file, nonce = place.split()
        with open(f"/proc/{process}/fd/{file}", "rb") as opened:
            memory = mmap(opened.fileno(), 0, access=ACCESS_READ)
    except (OSError, ValueError):
        return None
    if memory[:NONCE_NBYTES].hex() != nonce:  # processes are counted anew in a container
        return None
    return _read_page(memory)


def _read_page(memory: Any) -> tuple[memoryview, memoryview]:
    numbers = memoryview(memory)[NONCE_NBYTES:].cast("q")
    return numbers[:1], numbers[1:]


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
    taken : Counter of int
        By rank: how many of its messages were taken here.
    """

    def __init__(self, size: int) -> None:
        self.address, self.others, self.me = "", dict[int, bytes](), 0
        self.is_everywhere = False
        self.taken = Counter[int]()
        self.page = Page(size)
        self.pages: dict[int, tuple[memoryview, memoryview]] = {}
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
        self.page.sent[rank] += count
        page = self.pages.get(rank)
        if page is not None and not page[0][0] and not is_alarm:
            return
        if rank in self.others:
            try:
                self.socket.sendto(ALARM if is_alarm else RING, self.others[rank])
            except BlockingIOError:
                pass
            except OSError:  # it is gone, or of another network: it looks by itself
                del self.others[rank]

    def count_untaken(self, rank: int) -> int | None:
        """How many messages a rank has sent here that are not taken yet; None where it does not tell."""
        page = self.pages.get(rank)
        return None if page is None else page[1][self.me] - self.taken[rank]

    def wait(self, seconds: float, rank: int | None = None, known: int = 0) -> bool:
        """Wait until this bell is rung, so long at most; whether it was.

        With a rank only until there are more messages of its to be taken than are known, or for an alarm.
        """
        stop, asleep = perf_counter() + seconds, self.page.asleep
        asleep[0] = 1
        try:
            while True:
                count = None if rank is None else self.count_untaken(rank)
                if count is not None and count > known:
                    return True
                if not self.asked.poll(max(0.0, stop - perf_counter()) * 1000):
                    return False
                if self._listen() or count is None:
                    return True
        finally:
            asleep[0] = 0

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
