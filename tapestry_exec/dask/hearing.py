"""What the caller hears of all devices: by lines, which other threads read, and by wires, which he reads himself.

Through a line a word takes four turns of threads, through a wire one. So a run takes 2 ms and more less by wires,
whatever it does. Of whole runs of a deployment, lines take 3.0 times as long on sums of 12 KB on two devices (3.2 and
1.1 ms, on two cores), 1.7 times on four devices (on two cores as well) and 1.07 times on SqueezeNet: small runs demand
the caller's sockets, large ones do not (`tests/bench/bench_cluster.py` measures it)::

    caller ── wire ──────────────────────────────────► task's thread      run, done, and whatever else they say
    caller ─► client's loop ── line ─► worker's loop ─► task's thread      end; alive, ended; all where there is no wire
"""

from __future__ import annotations

import os
import selectors
import socket
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Lock
from time import monotonic
from typing import Any, NamedTuple

from tapestry_exec.dask.lines import CALLER, Message
from tapestry_exec.dask.tuning import MAX_BUFFERS, WAKES_NBYTES
from tapestry_exec.dask.wires import Incoming, connect_all, cut_sent, make_letter_room, read_letter, write_letter


class Heard(NamedTuple):
    """What the caller hears: of which device, and a message of it; None when its line or wire has ended."""

    device: int
    message: Message | None


class Wire:
    """The caller's end of a wire to a device."""

    def __init__(self, device: int, wire: socket.socket) -> None:
        self.device, self.wire = device, wire
        self.incoming = Incoming(wire, make_letter_room)
        self.told = self.heard = 0
        """How many words the device was told, and how many of its were heard."""
        self.waiting: deque[Any] = deque()
        """What the socket did not take in yet."""

    def write(self) -> None:
        """Send what the socket takes in; what cannot be sent any more is forgotten."""
        while self.waiting:
            left = [self.waiting.popleft() for _ in range(min(len(self.waiting), MAX_BUFFERS))]
            try:
                cut_sent(left, self.wire.sendmsg(left))
            except BlockingIOError:
                self.waiting.extendleft(reversed(left))
                return
            except OSError:  # the other one is gone, which who reads is told
                self.waiting.clear()
                return
            self.waiting.extendleft(reversed(left))

    def read(self) -> list[Message]:
        """The messages that are here.

        Raises
        ------
        OSError
            When the device is gone.
        """
        self.incoming.read()
        found = []
        while self.heard in self.incoming.parcels:
            *_, cells = self.incoming.parcels.pop(self.heard)
            self.heard += 1
            found.append(read_letter(cells))
        return found


class Hearing:
    """What is heard of the devices of a generation, and the wires to them."""

    def __init__(self) -> None:
        self.queue: SimpleQueue[Heard] = SimpleQueue()
        self.wires: dict[int, Wire] = {}
        self.select = selectors.DefaultSelector()
        self.woken, self.wake = os.pipe()
        self.lock = Lock()
        """Of the pipe, at whose number another file may be once it is closed."""
        for end in (self.woken, self.wake):
            os.set_blocking(end, False)
        self.select.register(self.woken, selectors.EVENT_READ)

    def connect(self, addresses: Mapping[int, tuple[str, int] | None], key: str, seconds: float) -> None:
        """Begin wires to those devices that have an address for them; who is not reached that way has a line."""
        asked = {device: address for device, address in addresses.items() if address is not None}
        made, _ = connect_all(asked, CALLER, key.encode(), seconds)
        for device, wire in made.items():
            one = self.wires[device] = Wire(device, wire)
            self.select.register(one.wire, selectors.EVENT_READ, one)

    def put(self, heard: Heard) -> None:
        """Take in what a line brought; from any thread."""
        self.queue.put(heard)
        with self.lock, suppress(OSError):  # woken before, or over
            os.write(self.wake, b"!")

    def say(self, device: int, message: Message) -> bool:
        """Tell a device something, if there is a wire to it; nothing is waited for."""
        one = self.wires.get(device)
        if one is None:
            return False
        one.waiting.extend(write_letter(message, one.told))
        one.told += 1
        one.write()
        if one.waiting and one.device in self.wires:
            self.select.modify(one.wire, selectors.EVENT_READ | selectors.EVENT_WRITE, one)
        return True

    def get(self, timeout: float) -> Heard:
        """What is heard next.

        Raises
        ------
        Empty
            When nothing is, for so many seconds.
        """
        stop = monotonic() + timeout
        while self.queue.empty():
            left = stop - monotonic()
            if not self._look(max(left, 0)) and left <= 0:
                raise Empty
        return self.queue.get()

    def empty(self) -> bool:
        """Whether nothing is to be heard now."""
        if self.queue.empty():
            self._look(0)
        return self.queue.empty()

    def _look(self, seconds: float) -> bool:
        """Wait for devices; read and write what can be."""
        ready = self.select.select(seconds)
        for found, events in ready:
            one: Wire | None = found.data
            if one is None:
                os.read(self.woken, WAKES_NBYTES)
                continue
            if events & selectors.EVENT_WRITE:
                one.write()
                if not one.waiting:
                    self.select.modify(one.wire, selectors.EVENT_READ, one)
            if events & selectors.EVENT_READ:
                self._read(one)
        return bool(ready)

    def _read(self, one: Wire) -> None:
        try:
            for message in one.read():
                self.queue.put(Heard(one.device, message))
        except OSError:
            self.select.unregister(one.wire)
            del self.wires[one.device]
            one.wire.close()
            self.queue.put(Heard(one.device, None))

    def end_wires(self) -> None:
        """Hear lines alone from now on: by these devices tell what they did, and only then that they are gone."""
        for one in self.wires.values():
            self.select.unregister(one.wire)
            one.wire.close()
        self.wires.clear()

    def close(self) -> None:
        """Hear nothing any more; it may be asked for more than once."""
        if self.wake < 0:
            return
        self.end_wires()
        self.select.close()
        with self.lock:
            os.close(self.wake)
            self.wake = -1
        os.close(self.woken)
