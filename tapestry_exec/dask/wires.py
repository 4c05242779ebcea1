"""Wires: sockets between devices on workers that speak plain TCP, read and written in the task's own thread.

Through `distributed`'s own connections a parcel takes half a millisecond of Python on either side, and a thread that
waits for the other one's turn: on networks of small parcels four times as long as shared memory. A wire is begun only
by who proves that he has the key of the generation, which is not sent. Where a cluster is encrypted, or speaks
something else than TCP, parcels go through lines (`lines`). On one host as well wires are TCP: by Unix sockets a
message of 100 bytes between two cores takes 0.9 times as long, and runs 0.95 to 1; bytes alone go up to twice as fast,
but 400 MB that are cut anew, from rows to columns, take as long.

What is sent: tag, bytes, and the two times of a parcel, then its cells.
"""

from __future__ import annotations

import hmac
import os
import selectors
import socket
import struct
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from threading import Condition, Thread
from time import monotonic, perf_counter, sleep
from typing import Any

import msgspec
import numpy as np

from tapestry_exec.copies import Array
from tapestry_exec.dask.lines import CALLER, Message
from tapestry_exec.dask.tuning import (
    ACCEPT_SECONDS,
    ALIGNED_NBYTES,
    HEAD_NBYTES,
    HELLO_SECONDS,
    MAX_ASKED,
    MAX_BUFFERS,
    NONCE_NBYTES,
    PIECE_NBYTES,
    PLACED_NBYTES,
    ROOM_NBYTES,
    SHELVED_NBYTES,
    SPIN_SECONDS,
    WAKES_NBYTES,
)
from tapestry_exec.run import Parcel, tuning

HEAD = struct.Struct("qqdd")
DEVICE = struct.Struct("q")
WORDS = struct.Struct("q")
"""How long the words and values of a message are."""
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
    """What comes through a wire: heads, each with the cells that it tells of.

    Parcels that came together are read together, as a call of the system takes as long as to copy 10 KB; what is larger
    than that room is received where it stays.
    """

    def __init__(self, wire: socket.socket, get_room: Callable[[int, int], Array]) -> None:
        self.wire, self.get_room = wire, get_room
        self.room = memoryview(bytearray(ROOM_NBYTES))
        self.filled = 0
        self.left: Any = None
        """Room for what of a large parcel has not come yet."""
        self.parcels: dict[int, tuple[float, float, Array]] = {}
        """By tag: when it was packed, how long that took, and bytes."""

    def read(self) -> bool:
        """Take in what is here; whether there was anything.

        Raises
        ------
        OSError
            When the other end is gone.
        """
        try:
            count = self.wire.recv_into(self.room[self.filled :] if self.left is None else self.left)
        except BlockingIOError:
            return False
        if not count:
            raise ConnectionResetError
        if self.left is None:
            self.filled += count
            self._sort()
        elif count < len(self.left):
            self.left = self.left[count:]
        else:
            self._keep(self.head, self.cells)
            self.left = None
        return True

    def _sort(self) -> None:
        """Keep the parcels that are in the room."""
        at = 0
        while self.filled - at >= HEAD_NBYTES:
            head = HEAD.unpack_from(self.room, at)
            begin, nbytes = at + HEAD_NBYTES, head[1]
            end = begin + nbytes
            if end > self.filled and nbytes <= ROOM_NBYTES // 2:
                break
            cells = self.get_room(head[0], nbytes)
            at = min(end, self.filled)
            cells.data[: at - begin] = self.room[begin:at]
            if at == end:
                self._keep(head, cells)
            else:
                self.head, self.cells, self.left = head, cells, cells.data[at - begin :]
        if at:
            rest = self.filled - at
            self.room[:rest] = bytes(self.room[at : self.filled])
            self.filled = rest

    def _keep(self, head: tuple[Any, ...], cells: Array) -> None:
        tag, _, packed, seconds = head
        self.parcels[tag] = packed, seconds, cells


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
        self.spins = False
        """Whether a core is this device's own, so that it may look for parcels for a while before it sleeps."""
        self.out: dict[int, socket.socket] = {}
        self.incoming: dict[int, Incoming] = {}
        self.unwatched: deque[int] = deque()
        """Who has connected, and is not yet waited for."""
        self.told = self.heard = 0
        """How many words the caller was told, and how many of his were heard."""
        self.head, self.box = memoryview(bytearray(HEAD_NBYTES)), memoryview(b"")
        """What is sent, which is on its way when a call of `send` ends."""
        self.packed: dict[tuple[int, int], tuple[Any, Sequence[Callable[[], object]], Sequence[Any]]] = {}
        """By peer and tag what copies cells there, or where they lie: the same of the same array in every run."""
        self.shelf: list[Array] = []
        """Memory of large parcels that have been unpacked, for others: to get it from the system takes as long."""
        self.places: dict[tuple[int, int], Array] = {}
        """By peer and tag: where a small parcel comes to in every run."""
        self.receives_anew = False
        """Whether the parcel that came last, which is not a small one, comes to other memory in each run."""
        self.lent: Array | None = None
        """That of the parcel that came last, which is unpacked before the next one."""
        self.came = Condition()
        self.gone: set[int] = set()
        self.is_over, self.strangers = False, 0
        self.woken, self.wake = os.pipe()
        for end in (self.woken, self.wake):
            os.set_blocking(end, False)
        self.select = selectors.DefaultSelector()
        self.select.register(self.woken, selectors.EVENT_READ, None)
        Thread(target=self._accept, daemon=True).start()

    # -- meeting ----------------------------------------------------------------------------------------

    def _accept(self) -> None:
        """Greet each who connects, aside, so that one who says nothing keeps nobody waiting."""
        while not self.is_over:
            try:
                wire, _ = self.server.accept()
            except OSError:  # it is closed; or there are no more files now, and who connects waits
                sleep(ACCEPT_SECONDS)
                continue
            try:
                Thread(target=self._greet, args=(wire,), daemon=True).start()
            except RuntimeError:  # there are no more threads now
                self._greet(wire)

    def _greet(self, wire: socket.socket) -> None:
        try:
            wire.settimeout(HELLO_SECONDS)
            mine = os.urandom(NONCE_NBYTES)
            wire.sendall(mine)
            said = _read_whole(wire, DEVICE.size + 2 * NONCE_NBYTES)
            name, theirs, proof = said[: DEVICE.size], said[DEVICE.size : -NONCE_NBYTES], said[-NONCE_NBYTES:]
            if not hmac.compare_digest(proof, prove(self.key, b"to", mine, theirs, name)):
                raise PermissionError
            wire.sendall(prove(self.key, b"from", theirs, mine, name))
            set_up(wire)
        except OSError:
            self.strangers += 1
            wire.close()
            return
        peer = DEVICE.unpack(name)[0]
        with self.came:
            self.incoming[peer] = Incoming(wire, make_letter_room if peer == CALLER else partial(self._get_room, peer))
            if peer == CALLER:
                self.out[peer] = wire
            self.unwatched.append(peer)
            self.came.notify()
        self.wake_up()

    def meet(
        self, addresses: Mapping[int, tuple[str, int]], senders: Collection[int], seconds: float, spins: bool = False
    ) -> None:
        """Connect to the devices that this one sends to, and wait for those that send to it."""
        self.spins = spins
        made, errors = connect_all(addresses, self.device, self.key, seconds)
        self.out.update(made)
        for peer, error in errors.items():
            if not isinstance(error, ConnectionError | TimeoutError):
                raise error
            host, port = addresses[peer]
            raise tell_unreached(self.device, peer, f"{host}:{port}", error) from error
        with self.came:
            if not self.came.wait_for(lambda: self.is_over or set(senders) <= self.incoming.keys(), seconds):
                late = min(set(senders) - self.incoming.keys())
                raise Unreached(late, f"device {late} did not connect to device {self.device} in {seconds:g} s")

    # -- parcels ----------------------------------------------------------------------------------------

    def send(self, tag: int, peer: int, parcel: Parcel) -> None:
        """Send a parcel; where the wire is full what comes is read meanwhile."""
        cells, nbytes = parcel.cells, int(parcel.cells.nbytes)
        if isinstance(cells, np.ndarray):
            seconds, left = parcel.seconds, [self.head, cells.view(np.uint8).data]
        else:
            left = self._pack((peer, tag), cells.hand_over(), nbytes)
            seconds = perf_counter() - parcel.packed
        HEAD.pack_into(left[0], 0, tag, nbytes, parcel.packed - self.begin, seconds)
        self._write(peer, left)

    def bind_send(self, tag: int, peer: int, strips: Any) -> Callable[[float], None] | None:
        """What sends the same cells in later runs, given when it began; None of larger parcels, which share memory."""
        nbytes = strips.size * strips.array.itemsize
        if nbytes > PLACED_NBYTES:
            return None
        room = make_room(HEAD_NBYTES + nbytes)
        calls, whole = strips.list_filling(room[HEAD_NBYTES:].view(strips.array.dtype)), room.data
        put = HEAD.pack_into

        def post(begin: float) -> None:
            for call in calls:
                call()
            put(whole, 0, tag, nbytes, begin - self.begin, perf_counter() - begin)
            self._write(peer, [whole])

        return post

    def _pack(self, key: tuple[int, int], strips: Any, nbytes: int) -> list[Any]:
        """A head and the cells of a parcel: small ones, and those in small pieces, are copied, others stay in place.

        They are the same cells of the same array in every run.
        """
        before, calls, left = self.packed.get(key, (None, (), ()))
        if before is strips:
            for call in calls:
                call()
            return list(left)
        lying = strips.list_runs(PIECE_NBYTES) if nbytes > ROOM_NBYTES else []
        if lying:
            left = self.head, *lying
        else:
            if len(self.box) < HEAD_NBYTES + nbytes:
                self.box = make_room(HEAD_NBYTES + nbytes).data
                self.packed.clear()
            room: Array = np.ndarray(strips.size, strips.array.dtype, self.box, HEAD_NBYTES)
            calls, left = strips.list_filling(room), (self.box[: HEAD_NBYTES + nbytes],)
            for call in calls:
                call()
        self.packed[key] = strips, calls, left
        return list(left)

    def say(self, message: Message) -> None:
        """Tell the caller something; what he does not hear any more is forgotten."""
        letter = write_letter(message, self.told)
        self.told += 1
        with suppress(Ended, PeerLost):
            self._write(CALLER, letter)

    def take_word(self) -> Message | None:
        """What the caller says next, if it is here."""
        letters = self.incoming[CALLER].parcels if CALLER in self.incoming else {}
        if self.heard not in letters:
            return None
        *_, cells = letters.pop(self.heard)
        self.heard += 1
        return read_letter(cells)

    def _write(self, peer: int, left: list[Any]) -> None:
        wire = self.out[peer]
        while left:
            if self.is_over:
                raise Ended
            try:
                cut_sent(left, wire.sendmsg(left[:MAX_BUFFERS]))
            except BlockingIOError:
                self._wait_for_room(peer, wire)
                continue
            except OSError:
                raise PeerLost(peer) from None

    def _wait_for_room(self, peer: int, wire: socket.socket) -> None:
        """Read what comes until more can be written."""
        self._watch()
        is_read = peer == CALLER and CALLER not in self.gone
        if is_read:
            self.select.modify(wire, selectors.EVENT_READ | selectors.EVENT_WRITE, peer)
        else:
            self.select.register(wire, selectors.EVENT_WRITE, None)
        try:
            self.wait(tuning.MAX_WAIT_SECONDS)
        finally:
            if not is_read:
                self.select.unregister(wire)
            elif CALLER not in self.gone:
                self.select.modify(wire, selectors.EVENT_READ, peer)

    def recv(self, tag: int, peer: int) -> Parcel:
        """Wait for a parcel, at most `tuning.MAX_WAIT_SECONDS`."""
        one = self.incoming[peer]
        if tag not in one.parcels:
            self._wait_for(tag, peer, one)
        packed, seconds, cells = one.parcels.pop(tag)
        if self.lent is not None:
            self.shelf.append(self.lent)
        self.lent = cells.base if cells.nbytes >= SHELVED_NBYTES else None
        place = self.places.get((peer, tag))
        self.receives_anew = place is None
        if place is None:
            place = cells.view(self.receipts[peer, tag][1])
        return Parcel(place, packed + self.begin, seconds)

    def _get_room(self, peer: int, tag: int, nbytes: int) -> Array:
        """Memory for a parcel: its own if it is small, of the shelf what fits best if it is large."""
        if nbytes <= PLACED_NBYTES:
            place = self.places.get((peer, tag))
            if place is None:
                place = self.places[peer, tag] = make_room(nbytes).view(self.receipts[peer, tag][1])
            return place.view(np.uint8)
        if nbytes < SHELVED_NBYTES:
            return make_room(nbytes)
        fitting = [one for one in self.shelf if nbytes <= one.nbytes <= 2 * nbytes]
        if fitting:
            found = min(fitting, key=len)
            self.shelf = [one for one in self.shelf if one is not found]
        else:
            found = make_room(nbytes)
            self.shelf.clear()
        return found[:nbytes]

    def _wait_for(self, tag: int, peer: int, one: Incoming) -> None:
        """Look at the wire of who sends a parcel, then at all of them: others may not go on before they are read."""
        begin = monotonic()
        while tag not in one.parcels:
            if self.is_over:
                raise Ended
            if peer not in self.gone and self._read(peer, one):
                continue
            if peer in self.gone:
                raise PeerLost(peer)
            waited = monotonic() - begin
            if self.spins and waited < SPIN_SECONDS:
                os.sched_yield()
            elif not self.wait(max(tuning.MAX_WAIT_SECONDS - waited, 0)) and waited >= tuning.MAX_WAIT_SECONDS:
                raise TimeoutError(
                    f"device {self.device} waited {tuning.MAX_WAIT_SECONDS:g} s for what device {peer} sends under tag "
                    f"{tag}"
                )

    def wait(self, seconds: float | None) -> bool:
        """Wait until something can be read or written, or this device is woken, and read what is here."""
        self._watch()
        ready: Sequence[Any] = self.select.select(seconds)
        for found, _ in ready:
            if found.fd == self.woken:
                os.read(self.woken, WAKES_NBYTES)
            elif found.data is not None:
                self._read(found.data, self.incoming[found.data])
        return bool(ready)

    def _watch(self) -> None:
        """Wait from now on for those who have connected, too."""
        while self.unwatched:
            peer = self.unwatched.popleft()
            self.select.register(self.incoming[peer].wire, selectors.EVENT_READ, peer)

    def _read(self, peer: int, one: Incoming) -> bool:
        try:
            return one.read()
        except OSError:
            self.gone.add(peer)
            if peer in self.unwatched:
                self.unwatched.remove(peer)
            else:
                self.select.unregister(one.wire)
            return False

    # -- ending -----------------------------------------------------------------------------------------

    def stop(self) -> None:
        """End all waits; from any thread."""
        self.is_over = True
        self.wake_up()
        with self.came:
            self.came.notify_all()

    def wake_up(self) -> None:
        """End a wait; from any thread."""
        with self.came, suppress(OSError):  # closed, or woken before
            os.write(self.wake, b"!")

    def close(self) -> None:
        """End all wires."""
        self.stop()
        with suppress(OSError):
            self.server.shutdown(socket.SHUT_RDWR)  # which ends the thread that accepts
        self.server.close()
        self.select.close()
        for wire in (*self.out.values(), *(one.wire for one in self.incoming.values())):
            wire.close()
        with self.came:
            os.close(self.wake)
            self.wake = -1
        os.close(self.woken)


def connect(address: tuple[str, int], who: int, key: bytes, seconds: float) -> socket.socket:
    """A wire to a device, when either end has proved that it has the key.

    Raises
    ------
    ConnectionError, TimeoutError, PermissionError
    """
    wire = socket.create_connection(address, seconds)
    try:
        theirs, mine, name = _read_whole(wire, NONCE_NBYTES), os.urandom(NONCE_NBYTES), DEVICE.pack(who)
        wire.sendall(name + mine + prove(key, b"to", theirs, mine, name))
        if not hmac.compare_digest(_read_whole(wire, NONCE_NBYTES), prove(key, b"from", mine, theirs, name)):
            raise PermissionError(f"who listens at {address} is not of this generation")
        set_up(wire)
    except BaseException:
        wire.close()
        raise
    return wire


def connect_all(
    addresses: Mapping[int, tuple[str, int]], who: int, key: bytes, seconds: float
) -> tuple[dict[int, socket.socket], dict[int, OSError]]:
    """Wires to devices, all of which are asked at once: those that there are now, and why there is none to others."""
    made, errors = dict[int, socket.socket](), dict[int, OSError]()

    def reach(peer: int) -> None:
        try:
            made[peer] = connect(addresses[peer], who, key, seconds)
        except OSError as error:
            errors[peer] = error

    if addresses:
        with ThreadPoolExecutor(min(len(addresses), MAX_ASKED)) as pool:
            list(pool.map(reach, addresses))
    return made, dict(sorted(errors.items()))


def make_room(nbytes: int) -> Array:
    """Memory that nobody has."""
    return np.empty(nbytes, np.uint8)


def make_letter_room(number: int, nbytes: int) -> Array:
    """Memory for a letter, each of which has its own."""
    return make_room(nbytes)


def prove(key: bytes, *words: bytes) -> bytes:
    """What only who has the key can say of some words."""
    return hmac.digest(key, b"".join(words), "sha256")


def set_up(wire: socket.socket) -> None:
    """Have a socket wait for nothing: not for more to send, and not for who reads."""
    wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    wire.setblocking(False)


def cut_sent(left: list[Any], count: int) -> None:
    """Take off the bytes that were sent."""
    done = 0
    while done < len(left) and count >= len(left[done]):
        count -= len(left[done])
        done += 1
    del left[:done]
    if count:
        left[0] = left[0][count:]


def write_letter(message: Message, number: int) -> list[Any]:
    """A message as it goes through a wire: a head, words and values, then frames, each at a multiple of 64 bytes."""
    word, values, frames = message
    cells = [memoryview(frame).cast("B") for frame in frames]
    words = msgspec.msgpack.encode((word, values, list(map(len, cells))))
    parts: list[Any] = [WORDS.pack(len(words)) + words]
    for one in cells:
        parts += [bytes(-len(parts[-1]) % ALIGNED_NBYTES), one]
    nbytes = sum(map(len, parts))
    return [memoryview(one) for one in (HEAD.pack(number, nbytes, 0.0, 0.0), *parts) if len(one)]


def read_letter(cells: Array) -> Message:
    """The message in the bytes behind a head."""
    (nbytes,) = WORDS.unpack_from(cells.data)
    at = WORDS.size + nbytes
    word, values, sizes = msgspec.msgpack.decode(cells.data[WORDS.size : at])
    frames = []
    for size in sizes:
        at += -at % ALIGNED_NBYTES
        frames.append(cells[at : at + size])
        at += size
    return Message(word, tuple(values), frames)


def _read_whole(wire: socket.socket, nbytes: int) -> bytes:
    found = b""
    while len(found) < nbytes:
        more = wire.recv(nbytes - len(found))
        if not more:
            raise ConnectionResetError
        found += more
    return found
