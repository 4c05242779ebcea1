"""Bells: how a rank that waits is woken by another one of its machine, as MPI has no wait that the system ends.

What a bell says is only that there may be something to see: messages are MPI's. So whoever rings one does no more than
have its rank look; a rank that is rung by nobody looks by itself, a little later. A ring says how many messages its
rank has sent here by then, so that one who waits for another rank's, or has them all, sleeps on::

    rank 1    sends 1st to 0, rings (1, 1)               sends 2nd, rings (1, 2)
    rank 0    waits for 2's first, sleeps on    has it   waits for 1's: 0 of 2 taken, looks
"""

from __future__ import annotations

import os
import select
import socket
import struct
from collections import Counter
from collections.abc import Sequence
from time import perf_counter
from typing import Any

from tapestry_exec.mpi.tuning import RINGS_AT_ONCE

RING = struct.Struct("qq")


class Bell:
    """The bell of this rank, and those of others on its machine.

    Attributes
    ----------
    address : str
        Where it is rung; empty on a system without such addresses.
    others : mapping of int to bytes
        By rank.
    is_everywhere : bool
        Whether all ranks have bells, which all find alike.
    sent, taken : Counter of int
        By rank: how many messages went there, and how many of its were taken here.
    rung : dict of int to int
        By rank: how many it has sent here, as its last ring said.
    """

    def __init__(self) -> None:
        self.address, self.others, self.me = "", dict[int, bytes](), 0
        self.is_everywhere = False
        self.sent, self.taken = Counter[int](), Counter[int]()
        self.rung: dict[int, int] = {}
        self.socket: Any = None
        try:
            self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self.socket.setblocking(False)
            self.socket.bind("")  # Linux chooses an address that no file has
            address = self.socket.getsockname()
        except (OSError, AttributeError):
            return
        if isinstance(address, bytes) and address:
            self.address = os.fsdecode(address)
        self.asked = select.poll()  # which takes descriptors of any number
        self.asked.register(self.socket, select.POLLIN)

    def meet(self, me: int, addresses: Sequence[str], clocks: Sequence[str]) -> None:
        """Ring the others of this machine from now on, whose addresses and clocks are by rank."""
        self.me = me
        self.others = {
            rank: os.fsencode(address)
            for rank, address in enumerate(addresses)
            if address and clocks[rank] == clocks[me] and rank != me
        }
        self.is_everywhere = len(addresses) > 1 and all(addresses) and len(set(clocks)) == 1

    def ring(self, rank: int, is_alarm: bool = False) -> None:
        """Tell a rank of one more message that went to it; nothing where it has no bell, or has not looked for long.

        Whom an alarm wakes looks, whatever it waits for.
        """
        self.sent[rank] += 1
        if rank in self.others:
            try:
                self.socket.sendto(RING.pack(-1 if is_alarm else self.me, self.sent[rank]), self.others[rank])
            except BlockingIOError:
                pass  # the next one tells of this one, too
            except OSError:  # it is gone, or of another network: it looks by itself
                del self.others[rank]

    def count_untaken(self, rank: int) -> int:
        """How many messages of a rank are known to have been sent and are not taken yet."""
        return self.rung.get(rank, 0) - self.taken[rank]

    def wait(self, seconds: float, rank: int | None = None, known: int = 0) -> bool:
        """Wait until this bell is rung, so long at most; whether it was.

        With a rank only until there are more messages of its to be taken than are known, or for an alarm.
        """
        stop = perf_counter() + seconds
        while rank is None or self.count_untaken(rank) <= known:
            if not self.asked.poll(max(0.0, stop - perf_counter()) * 1000):
                return False
            if self._listen() or rank is None:
                return True
        return True

    def _listen(self) -> bool:
        """Take the rings that are here; whether one was an alarm."""
        is_alarmed = False
        try:
            for _ in range(RINGS_AT_ONCE):
                said = self.socket.recv(RING.size)
                if len(said) == RING.size:  # anyone may ring
                    rank, count = RING.unpack(said)
                    is_alarmed |= rank < 0
                    self.rung[rank] = max(count, self.rung.get(rank, 0))
        except BlockingIOError:
            pass
        return is_alarmed

    def close(self) -> None:
        """Take the bell down."""
        self.others = {}
        if self.socket is not None:
            self.socket.close()
