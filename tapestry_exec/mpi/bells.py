"""Bells: how a rank that waits is woken by another one of its machine, as MPI has no wait that the system ends.

What a bell says is only that there may be something to see: messages are MPI's. So whoever rings one does no more than
have its rank look; a rank that is rung by nobody looks by itself, a little later.
"""

from __future__ import annotations

import os
import select
import socket
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from tapestry_exec.mpi.tuning import RING_NBYTES, RINGS_AT_ONCE


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
    """

    def __init__(self) -> None:
        self.address, self.others = "", dict[int, bytes]()
        self.is_everywhere = False
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

    def meet(self, me: int, addresses: Sequence[str], clocks: Sequence[str]) -> None:
        """Ring the others of this machine from now on, whose addresses and clocks are by rank."""
        self.others = {
            rank: os.fsencode(address)
            for rank, address in enumerate(addresses)
            if address and clocks[rank] == clocks[me] and rank != me
        }
        self.is_everywhere = len(addresses) > 1 and all(addresses) and len(set(clocks)) == 1

    def ring(self, rank: int) -> None:
        """Wake a rank that waits; nothing where it has no bell, or was rung before and has not looked."""
        if rank in self.others:
            try:
                self.socket.sendto(b"!", self.others[rank])
            except BlockingIOError:
                pass
            except OSError:  # it is gone, or of another network: it looks by itself
                del self.others[rank]

    def wait(self, seconds: float) -> bool:
        """Wait until this bell is rung, so long at most; whether it was."""
        asked = select.poll()  # which takes descriptors of any number
        asked.register(self.socket, select.POLLIN)
        if not asked.poll(max(0.0, seconds) * 1000):
            return False
        with suppress(BlockingIOError):
            for _ in range(RINGS_AT_ONCE):
                self.socket.recv(RING_NBYTES)
        return True

    def close(self) -> None:
        """Take the bell down."""
        self.others = {}
        if self.socket is not None:
            self.socket.close()
