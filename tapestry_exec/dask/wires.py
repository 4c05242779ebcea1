"""Wires: sockets between devices on workers that speak plain TCP, read and written in the task's own thread.

Through `distributed`'s own connections a parcel takes half a millisecond of Python on either side, and a thread that
waits for the other one's turn: on networks of small parcels four times as long as shared memory. A wire is begun only
by who proves that he has the key of the generation, which is not sent. Where a cluster is encrypted, or speaks
something else than TCP, parcels go through lines (`lines`).

What is sent: tag, bytes, and the two times of a parcel, then its cells.
"""

from __future__ import annotations

import hmac
import os
import selectors
import socket
import struct
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from threading import Condition, Thread
from time import monotonic
from typing import Any

import numpy as np

from tapestry_exec.copies import Array
from tapestry_exec.dask.tuning import HEAD_NBYTES, HELLO_SECONDS, NONCE_NBYTES
from tapestry_exec.run import Parcel, tuning

HEAD = struct.Struct("qqdd")
DEVICE = struct.Struct("q")
assert HEAD.size == HEAD_NBYTES


class Ended(Exception):
    """The caller has ended the generation, or is gone."""


class PeerLost(Exception):
    """Another device is gone."""

    def __init__(self, device: int) -> None:
        super().__init__(device)
        self.device = device


class Unreached(Exception):
    """Another device cannot be connected to, or does not connect."""

    def __init__(self, device: int, why: str) -> None:
        super().__init__(why)
        self.device, self.why = device, why


class Incoming:
    """What comes through a wire: a head, then the cells that it tells of."""

    def __init__(self, wire: socket.socket) -> None:
        self.wire = wire
        self.begin()

    def begin(self) -> None:
        """Wait for a head."""
        self.room: Any = memoryview(bytearray(HEAD_NBYTES))
        self.filled = 0
        self.head: tuple[Any, ...] | None = None

    def read(self) -> tuple[int, float, float, Array] | None:
        """A whole parcel's tag, times and bytes; None where the rest is not here yet.

        Raises
        ------
        OSError
            When the other end is gone; BlockingIOError when nothing is here.
        """
        while True:
            if self.filled < len(self.room):
                count = self.wire.recv_into(self.room[self.filled :])
                if not count:
                    raise ConnectionResetError
                self.filled += count
                if self.filled < len(self.room):
                    continue
            if self.head is None:
                self.head = HEAD.unpack(self.room)
                self.cells = np.empty(self.head[1], np.uint8)
                self.room, self.filled = self.cells.data, 0
                continue
            (tag, _, packed, seconds), cells = self.head, self.cells
            self.begin()
            return tag, packed, seconds, cells


def tell_unreached(device: int, peer: int, address: str, error: Exception) -> Unreached:
    """The error of a device that cannot connect to another one."""
    return Unreached(
        peer,
        f"device {device} does not reach device {peer} at {address} ({type(error).__name__}: {error}): workers connect "
        "to each other at ports that the system gives them, which must be open between their hosts",
    )


class Wires:
    """A device's wires to and from others.

    Parameters
    ----------
    device : int
    key : str
        Of the generation.
    host : str
        Where this device listens.
    """

    def __init__(self, device: int, key: str, host: str) -> None:
        self.device, self.key = device, key.encode()
        self.server = socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
        self.address: tuple[str, int] = self.server.getsockname()[:2]
        self.receipts: Mapping[tuple[int, int], tuple[int, str]] = {}
        self.begin = 0.0
        """When the run began, by this machine's clock: times go from there, as other machines have other clocks."""
        self.parcels: dict[tuple[int, int], tuple[float, float, Array]] = {}
        self.out: dict[int, socket.socket] = {}
        self.incoming: dict[int, Incoming] = {}
        self.came = Condition()
        self.gone: set[int] = set()
        self.is_over, self.strangers = False, 0
        self.woken, self.wake = os.pipe()
        os.set_blocking(self.wake, False)
        self.select = selectors.DefaultSelector()
        self.select.register(self.woken, selectors.EVENT_READ, None)
        Thread(target=self._accept, daemon=True).start()

    # -- meeting ----------------------------------------------------------------------------------------

    def _accept(self) -> None:
        """Greet each who connects, aside, so that one who says nothing keeps nobody waiting."""
        with suppress(OSError):  # closed
            while True:
                wire, _ = self.server.accept()
                Thread(target=self._greet, args=(wire,), daemon=True).start()

    def _greet(self, wire: socket.socket) -> None:
        try:
            wire.settimeout(HELLO_SECONDS)
            mine = os.urandom(NONCE_NBYTES)
            wire.sendall(mine)
            said = _read_whole(wire, DEVICE.size + 2 * NONCE_NBYTES)
            name, theirs, proof = said[: DEVICE.size], said[DEVICE.size : -NONCE_NBYTES], said[-NONCE_NBYTES:]
            if not hmac.compare_digest(proof, self._prove(b"to", mine, theirs, name)):
                raise PermissionError
            wire.sendall(self._prove(b"from", theirs, mine, name))
            wire.setblocking(False)
        except OSError:
            self.strangers += 1
            wire.close()
            return
        with self.came:
            self.incoming[DEVICE.unpack(name)[0]] = Incoming(wire)
            self.came.notify()

    def _prove(self, *words: bytes) -> bytes:
        return hmac.digest(self.key, b"".join(words), "sha256")

    def _connect(self, address: tuple[str, int], seconds: float) -> socket.socket:
        wire = socket.create_connection(address, seconds)
        try:
            theirs, mine, name = _read_whole(wire, NONCE_NBYTES), os.urandom(NONCE_NBYTES), DEVICE.pack(self.device)
            wire.sendall(name + mine + self._prove(b"to", theirs, mine, name))
            if not hmac.compare_digest(_read_whole(wire, NONCE_NBYTES), self._prove(b"from", mine, theirs, name)):
                raise PermissionError(f"who listens at {address} is not of this generation")
            wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            wire.setblocking(False)
        except BaseException:
            wire.close()
            raise
        return wire

    def meet(self, addresses: Mapping[int, tuple[str, int]], senders: Collection[int], seconds: float) -> None:
        """Connect to the devices that this one sends to, and wait for those that send to it."""
        for peer, (host, port) in addresses.items():
            try:
                self.out[peer] = self._connect((host, port), seconds)
            except (ConnectionError, TimeoutError) as error:
                raise tell_unreached(self.device, peer, f"{host}:{port}", error) from error
        with self.came:
            if not self.came.wait_for(lambda: self.is_over or set(senders) <= self.incoming.keys(), seconds):
                late = min(set(senders) - self.incoming.keys())
                raise Unreached(late, f"device {late} did not connect to device {self.device} in {seconds:g} s")
        for peer, one in self.incoming.items():
            self.select.register(one.wire, selectors.EVENT_READ, peer)

    # -- parcels ----------------------------------------------------------------------------------------

    def send(self, tag: int, peer: int, parcel: Parcel) -> None:
        """Send a parcel; where the wire is full what comes is read meanwhile."""
        cells = memoryview(parcel.cells.view(np.uint8))
        left: list[Any] = [memoryview(HEAD.pack(tag, cells.nbytes, parcel.packed - self.begin, parcel.seconds)), cells]
        wire = self.out[peer]
        while left:
            if self.is_over:
                raise Ended
            try:
                count = wire.sendmsg(left)
            except BlockingIOError:
                self.select.register(wire, selectors.EVENT_WRITE, None)
                try:
                    self._read_some(tuning.MAX_WAIT_SECONDS)
                finally:
                    self.select.unregister(wire)
                continue
            except OSError:
                raise PeerLost(peer) from None
            while left and count >= len(left[0]):
                count -= len(left.pop(0))
            if left:
                left[0] = left[0][count:]

    def recv(self, tag: int, peer: int) -> Parcel:
        """Wait for a parcel, at most `tuning.MAX_WAIT_SECONDS`."""
        stop, key = monotonic() + tuning.MAX_WAIT_SECONDS, (peer, tag)
        while key not in self.parcels:
            if self.is_over:
                raise Ended
            if peer in self.gone:
                raise PeerLost(peer)
            if not self._read_some(max(stop - monotonic(), 0)) and monotonic() >= stop:
                raise TimeoutError(
                    f"device {self.device} waited {tuning.MAX_WAIT_SECONDS:g} s for what device {peer} sends under tag "
                    f"{tag}"
                )
        packed, seconds, cells = self.parcels.pop(key)
        return Parcel(cells.view(self.receipts[key][1]), packed + self.begin, seconds)

    def _read_some(self, seconds: float) -> bool:
        """Wait until something can be read or written, and read all that is here."""
        ready: Sequence[Any] = self.select.select(seconds)
        for found, _ in ready:
            if found.data is None:
                continue
            one = self.incoming[found.data]
            try:
                while (parcel := one.read()) is not None:
                    tag, packed, taken, cells = parcel
                    self.parcels[found.data, tag] = packed, taken, cells
            except BlockingIOError:
                pass
            except OSError:
                self.gone.add(found.data)
                self.select.unregister(one.wire)
        return bool(ready)

    # -- ending -----------------------------------------------------------------------------------------

    def stop(self) -> None:
        """End all waits; from any thread."""
        self.is_over = True
        with suppress(OSError):  # closed, or woken before
            os.write(self.wake, b"!")
        with self.came:
            self.came.notify_all()

    def close(self) -> None:
        """End all wires."""
        self.stop()
        with suppress(OSError):
            self.server.shutdown(socket.SHUT_RDWR)  # which ends the thread that accepts
        self.server.close()
        self.select.close()
        for wire in (*self.out.values(), *(one.wire for one in self.incoming.values())):
            wire.close()
        os.close(self.woken)
        os.close(self.wake)


def _read_whole(wire: socket.socket, nbytes: int) -> bytes:
    found = b""
    while len(found) < nbytes:
        more = wire.recv(nbytes - len(found))
        if not more:
            raise ConnectionResetError
        found += more
    return found
