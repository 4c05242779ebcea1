"""The server that the caller starts, and the processes of devices that it forks.

Messages are tuples, a word first::

    caller to process   ("setup", Setup)  ("place",)  ("end",)
                        ("run", inputs given, begin, whether progress is told, how NumPy handles errors, Start, Sources)
    process to caller   ("ready",)  ("placed", bytes by device)  ("did", steps, operator)  ("done", Counts by device)
                        ("failed", device, step, error)
    server to caller    (number of a process, its status as `os.waitpid` gives it)
"""

from __future__ import annotations

import os
import pickle
import select
import signal
import struct
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from heapq import heappop, heappush
from multiprocessing.connection import Connection
from time import monotonic, perf_counter
from typing import Any

import numpy as np

from tapestry_exec.copies import Array
from tapestry_exec.processes.segments import Segment
from tapestry_exec.processes.setup import Setup, SharedCells
from tapestry_exec.processes.tuning import HEAD_NBYTES, SPIN_SECONDS
from tapestry_exec.run import (
    MAX_WAIT_SECONDS,
    Counts,
    Member,
    Parcel,
    Source,
    Start,
    bring_together,
    list_own_cores,
    load_backend,
    make_portable,
    one_blas_thread,
)
from tapestry_plan.steps import DeviceStep, Recv

NUMBER = struct.Struct("i")
HEAD = struct.Struct("dd")
assert HEAD.size == HEAD_NBYTES


ParcelKey = int | tuple[int, int, int]
"""A parcel by the number of its slot, or by its sender, receiver and tag where both are in one process."""


class Arrivals:
    """What comes to the devices of a process, and which of them can go on.

    Parameters
    ----------
    devices : collection of int
    shared : Segment
    inbox : int
        The end of this process' pipe that it reads.
    others : sequence of int
        By device: the end of its process' pipe that is written to.
    caller : int
        The descriptor of the connection to the caller, which ends when he is gone.
    spins : bool
        Whether a core is this process' own, so that it may look for parcels for a while before it sleeps.
    """

    def __init__(
        self,
        devices: Collection[int],
        shared: Segment,
        inbox: int,
        others: Sequence[int],
        caller: int,
        spins: bool = False,
    ) -> None:
        self.devices, self.shared, self.spins = frozenset(devices), shared, spins
        self.inbox, self.others, self.caller = inbox, others, caller
        self.arrived: dict[ParcelKey, Parcel | None] = {}
        """Parcels of devices of this process; of others which are in their slots, by number."""
        self.awaited: dict[ParcelKey, tuple[int, int]] = {}
        """What devices cannot go on without, with the steps that they are at."""
        self.ready: list[tuple[int, int]] = []
        """A heap of the devices that can go on, by the steps that they are at."""

    def put(self, key: ParcelKey, parcel: Parcel | None = None) -> None:
        """Take in a parcel; who waits for it can go on."""
        self.arrived[key] = parcel
        one = self.awaited.pop(key, None)
        if one is not None:
            heappush(self.ready, one)

    def tell(self, peer: int, number: int) -> None:
        """Tell another process that a parcel is in its slot."""
        while True:
            try:
                os.write(self.others[peer], NUMBER.pack(number))
                return
            except BrokenPipeError:  # the peer has died, which the server tells the caller, who ends this one
                self._read(select.select([self.caller], [], [])[0])
            except BlockingIOError:  # the pipe is full: it is read when the peer waits, and may wait for what we read
                self._read(select.select([self.inbox, self.caller], [self.others[peer]], [])[0])

    def look(self) -> bool:
        """Take in what has come; whether there was anything."""
        try:
            read = os.read(self.inbox, NUMBER.size * 1024)
        except BlockingIOError:
            return False
        for (number,) in NUMBER.iter_unpack(read):
            self.put(number)
        return True

    def wait(self, seconds: float) -> bool:
        """Wait until something comes; whether it did."""
        if self.spins:
            stop = perf_counter() + SPIN_SECONDS
            while perf_counter() < stop:
                if self.look():
                    return True
                os.sched_yield()
        ready, _, _ = select.select([self.inbox, self.caller], [], [], max(seconds, 0))
        self._read(ready)
        return bool(ready)

    def _read(self, ready: Sequence[int]) -> None:
        if self.caller in ready:  # who says nothing while a run is on
            os._exit(1)
        if self.inbox in ready:
            self.look()


class Slots:
    """A device's parcels: in shared memory, or handed to another device of its process, which reads where they lie.

    Parameters
    ----------
    device : int
    parcels : mapping of (source, target, tag) to (number, SharedCells)
    arrivals : Arrivals
    """

    def __init__(
        self, device: int, parcels: Mapping[tuple[int, int, int], tuple[int, SharedCells]], arrivals: Arrivals
    ) -> None:
        self.device, self.parcels, self.arrivals = device, parcels, arrivals
        self.views: dict[tuple[int, int], Array] = {}
        """The cells of slots by peer and tag: the same arrays in every run."""

    def send(self, tag: int, peer: int, parcel: Parcel) -> None:
        """Hand a parcel over; of another process' device into its slot."""
        key = self.device, peer, tag
        if peer in self.arrivals.devices:
            self.arrivals.put(key, parcel)
            return
        post = self.bind_send(tag, peer, parcel.cells.hand_over())
        assert post is not None, "the peer is elsewhere"
        post(parcel.packed)

    def bind_send(self, tag: int, peer: int, strips: Any) -> Callable[[float], None] | None:
        """What copies cells into a slot and tells so, given when it began; None of a peer in this process."""
        if peer in self.arrivals.devices:
            return None
        number, slot = self.parcels[self.device, peer, tag]
        calls, tell = strips.list_filling(view_slot(self.arrivals.shared, slot)), self.arrivals.tell
        put, room, at = HEAD.pack_into, self.arrivals.shared.room, slot.at - HEAD_NBYTES

        def post(begin: float) -> None:
            for call in calls:
                call()
            put(room, at, begin, perf_counter() - begin)
            tell(peer, number)

        return post

    def is_there(self, step: Recv) -> bool:
        """Whether a receipt need not wait."""
        key, arrived = self._key(step.tag, step.peer), self.arrivals.arrived
        while key not in arrived:
            if type(key) is not int or not self.arrivals.look():
                return False
        return True

    def wait(self, at: DeviceStep) -> None:
        """Have the device go on when what a receipt needs is there."""
        assert isinstance(at.step, Recv), "devices wait for cells alone"
        self.arrivals.awaited[self._key(at.step.tag, at.step.peer)] = at.number, self.device

    def recv(self, tag: int, peer: int) -> Parcel:
        """Take a parcel, which is there: before that the device does not go on."""
        key = self._key(tag, peer)
        parcel = self.arrivals.arrived.pop(key)
        if parcel is not None:
            return parcel
        _, slot = self.parcels[peer, self.device, tag]
        packed, seconds = HEAD.unpack_from(self.arrivals.shared.room, slot.at - HEAD_NBYTES)
        cells = self.views.get((peer, tag))
        if cells is None:
            cells = self.views[peer, tag] = view_slot(self.arrivals.shared, slot)
        return Parcel(cells, packed, seconds)

    def _key(self, tag: int, peer: int) -> ParcelKey:
        key = peer, self.device, tag
        return key if peer in self.arrivals.devices else self.parcels[key][0]


def view_slot(shared: Segment, slot: SharedCells) -> Array:
    """The cells of a slot."""
    return np.ndarray(slot.shape, slot.dtype, shared.bytes, slot.at)


class DeviceProcess:
    """The process of one device, or of several that take turns: does what the caller says, until he is gone.

    ::

        device 0   compute ─► send 7 ─► recv 9 is not there                        ┌─► recv 9 ─► …
        device 1                        └─► compute ─► send 8 ─► recv 5 is not there
        nobody can go on: look into the pipe, and wait there

    Parameters
    ----------
    caller : Connection
    constants : Segment
    arrivals : Arrivals
    """

    def __init__(self, caller: Connection, constants: Segment, arrivals: Arrivals) -> None:
        self.caller, self.constants, self.arrivals = caller, constants, arrivals
        self.members: dict[int, Member] = {}
        self.slots: dict[int, Slots] = {}
        self.at = -1
        """The device whose turn it is."""

    def serve(self) -> None:
        """Answer messages until there are no more."""
        ways: dict[str, Callable[..., None]] = {"setup": self._set_up, "place": self._place, "run": self._run}
        with suppress(EOFError, ConnectionError), one_blas_thread():
            while (message := self.caller.recv())[0] != "end":
                try:
                    ways[message[0]](*message[1:])
                except Exception as error:
                    number = -1 if message[0] == "setup" else self.members[self.at].at
                    self.caller.send(("failed", self.at, number, make_portable(error)))

    def _set_up(self, pickled: bytes) -> None:
        self.setup: Setup = pickle.loads(pickled)
        self.boards = view_slot(self.arrivals.shared, self.setup.layout.boards)
        backend = load_backend("numpy")
        for part in self.setup.parts:
            self.at = device = part.device
            slots = self.slots[device] = Slots(device, self.setup.layout.parcels, self.arrivals)
            self.members[device] = Member(part, backend, slots, self.boards[device], self.arrivals.devices - {device})
        self.caller.send(("ready",))

    def _place(self) -> None:
        constants = {name: view_slot(self.constants, slot) for name, slot in self.setup.constants.items()}
        placed = []
        for device, member in self.members.items():
            self.at = device
            placed.append(member.place({**self.setup.files, **constants}))
        self.caller.send(("placed", placed))

    def _run(
        self,
        given: Sequence[str],
        begin: float,
        is_told: bool,
        errors: Mapping[str, Any],
        start: Start | None,
        sources: Mapping[str, Source],
    ) -> None:
        shared, setup = self.arrivals.shared, self.setup
        slots = {name: view_slot(shared, slot) for name, slot in setup.layout.feeds.items()}
        feeds = {**setup.files, **slots, **sources}
        tell = (lambda steps, node: self.caller.send(("did", steps, node))) if is_told else None
        found: dict[int, tuple[Counts, list[Array]]] = {}
        with np.errstate(**errors):
            for device, member in self.members.items():
                self.at = device
                member.begin(feeds, given, begin, start, not is_told)
            self._do_steps(tell)
            for device, member in self.members.items():
                self.at = device
                found[device] = member.end()
        for device, (_, cells) in found.items():
            for slot, array in zip(setup.outputs[device], cells, strict=True):
                view_slot(shared, slot)[: len(array)] = array  # what was written elsewhere has no cells
        self.caller.send_bytes(pickle.dumps(("done", [found[device][0] for device in self.members])))

    def _do_steps(self, tell: Callable[[int, str], None] | None) -> None:
        """Do the steps of the run that has begun: in one loop, where all know them by heart."""
        group = bring_together(self.members)
        if group is None:
            slots = self.slots
            self._take_turns({k: one.take_turns(tell, slots[k].is_there) for k, one in self.members.items()})
            return
        try:
            group.play(self._wait_for)
        finally:
            self.at = -1 if group.at is None else group.at.device

    def _wait_for(self, at: DeviceStep) -> bool:
        """Wait for a parcel of another process."""
        slots, ready = self.slots[at.device], self.arrivals.ready
        if isinstance(at.step, Recv) and not slots.is_there(at.step):
            self.members[at.device].interpreter.stood_since = perf_counter()
            slots.wait(at)
            while not ready:
                self._wait()
            ready.clear()
        return True

    def _take_turns(self, turns: Mapping[int, Iterator[DeviceStep]]) -> None:
        """Go on with the devices that can, first with the one that is furthest behind, until all have ended."""
        arrivals, turn, ended = self.arrivals, 0, 0
        arrivals.ready = [(-1, device) for device in turns]
        while ended < len(turns):
            if not arrivals.ready:
                self._wait()
            _, self.at = heappop(arrivals.ready)
            turn += 1
            self.boards[self.at, 2] = turn
            at = next(turns[self.at], None)
            if at is None:
                ended += 1
            else:
                self.slots[self.at].wait(at)

    def _wait(self) -> None:
        """Wait for a parcel of another process, at most `MAX_WAIT_SECONDS`."""
        arrivals, stop = self.arrivals, monotonic() + MAX_WAIT_SECONDS
        while not arrivals.ready:
            if not arrivals.wait(stop - monotonic()) and monotonic() >= stop:
                number, self.at = min(arrivals.awaited.values())
                for at in self.members[self.at].part.program:
                    if at.number == number and isinstance(at.step, Recv):
                        raise TimeoutError(
                            f"device {self.at} waited {MAX_WAIT_SECONDS:g} s for what device {at.step.peer} sends "
                            f"under tag {at.step.tag}"
                        )


def serve(
    control: int,
    groups: Sequence[Sequence[int]],
    connections: Sequence[int],
    shared: tuple[int, int],
    constants: tuple[int, int],
    pipes: Sequence[Sequence[int]],
    spins: bool,
) -> None:
    """Fork the processes of devices, and end them when the caller is gone; tell him which of them died.

    Parameters
    ----------
    control : int
        The descriptor of a connection to the caller.
    groups : sequence of sequence of int
        The devices of each process.
    connections : sequence of int
        The descriptors of their connections.
    shared, constants : tuple of int
        The descriptors and sizes of segments.
    pipes : sequence of (int, int)
        The ends of each one's pipe.
    spins : bool
        As of `Arrivals`.
    """
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    processes: dict[int, int] = {}
    for number in range(len(connections)):
        process = os.fork()
        if process == 0:
            _be_one(number, control, groups, connections, shared, constants, pipes, spins, (woken, wake))
        processes[process] = number
    for file in (*connections, shared[0], constants[0], *(end for pipe in pipes for end in pipe)):
        os.close(file)
    caller = Connection(control)
    with suppress(EOFError, ConnectionError):
        while processes:
            ready, _, _ = select.select([control, woken], [], [])
            if control in ready:
                caller.recv()
            if woken in ready:
                os.read(woken, 4096)
            for process in list(processes):
                found, status = os.waitpid(process, os.WNOHANG | os.WUNTRACED | os.WCONTINUED)
                if found:
                    number = processes[process]
                    if not os.WIFSTOPPED(status) and not os.WIFCONTINUED(status):
                        del processes[process]  # before the caller is told, who may be gone
                    caller.send((number, status))
    for process in processes:
        os.kill(process, signal.SIGKILL)
    for process in processes:
        os.waitpid(process, 0)


def _be_one(
    number: int,
    control: int,
    groups: Sequence[Sequence[int]],
    connections: Sequence[int],
    shared: tuple[int, int],
    constants: tuple[int, int],
    pipes: Sequence[Sequence[int]],
    spins: bool,
    woken: Sequence[int],
) -> None:
    """What a forked process does, from its first to its last moment."""
    status = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        _die_with_parent()
        if spins:
            _keep_apart(number, len(groups))
        others = [file for k, file in enumerate(connections) if k != number]
        for file in (control, *woken, *others, *(pipe[0] for k, pipe in enumerate(pipes) if k != number)):
            os.close(file)
        process = {device: k for k, group in enumerate(groups) for device in group}
        outboxes = [pipes[process[device]][1] for device in range(len(process))]
        inbox, caller = pipes[number][0], Connection(connections[number])
        arrivals = Arrivals(groups[number], Segment(*shared), inbox, outboxes, caller.fileno(), spins)
        DeviceProcess(caller, Segment(*constants), arrivals).serve()
        status = 0
    finally:
        os._exit(status)


def _keep_apart(number: int, many: int) -> None:
    """Keep off the cores that are the other processes' own, where each has one.

    The system takes who writes to a pipe for one that is about to sleep, and wakes the reader on the same core: two
    processes were on one of two cores for milliseconds.
    """
    own = list_own_cores(many)
    if own is not None:
        with suppress(OSError):  # where that is forbidden it is only slower
            os.sched_setaffinity(0, os.sched_getaffinity(0) - {core for k, core in enumerate(own) if k != number})


def _die_with_parent() -> None:
    """Have the system end this process when the server ends, however that does; on Linux alone."""
    with suppress(AttributeError, ImportError, OSError):
        import ctypes

        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
