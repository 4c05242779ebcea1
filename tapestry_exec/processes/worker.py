"""The server that the caller starts, and the process of a device that it forks.

Messages are tuples, a word first::

    caller to device    ("setup", Setup)  ("place",)  ("end",)
                        ("run", inputs given, begin, whether progress is told, how NumPy handles errors, Start, Sources)
    device to caller    ("ready",)  ("placed", bytes)  ("did", steps, operator)  ("done", Counts)
                        ("failed", step, error)
    server to caller    (device, status of its process, as `os.waitpid` gives it)
"""

from __future__ import annotations

import os
import pickle
import select
import signal
import struct
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from time import monotonic
from typing import Any

import numpy as np

from tapestry_exec.copies import Array
from tapestry_exec.processes.segments import Segment
from tapestry_exec.processes.setup import Setup, SharedCells
from tapestry_exec.processes.tuning import HEAD_NBYTES
from tapestry_exec.run import MAX_WAIT_SECONDS, Member, Parcel, Source, Start, load_backend, make_portable

NUMBER = struct.Struct("i")
HEAD = struct.Struct("dd")
assert HEAD.size == HEAD_NBYTES


class Slots:
    """A device's parcels in shared memory; pipes tell that they are there.

    Parameters
    ----------
    setup : Setup
    shared : Segment
    inbox : int
        The end of this device's pipe that it reads.
    others : sequence of int
        The ends of all devices' pipes that are written to.
    caller : int
        The descriptor of the connection to the caller, which ends when he is gone.
    """

    def __init__(self, setup: Setup, shared: Segment, inbox: int, others: Sequence[int], caller: int) -> None:
        self.device, self.parcels, self.shared = setup.part.device, setup.layout.parcels, shared
        self.inbox, self.others, self.caller = inbox, others, caller
        self.arrived: set[int] = set()

    def send(self, tag: int, peer: int, parcel: Parcel) -> None:
        """Put a parcel into its slot, and tell the peer."""
        number, slot = self.parcels[self.device, peer, tag]
        HEAD.pack_into(self.shared.room, slot.at - HEAD_NBYTES, parcel.packed, parcel.seconds)
        view_slot(self.shared, slot)[...] = parcel.cells
        while True:
            try:
                os.write(self.others[peer], NUMBER.pack(number))
                return
            except BrokenPipeError:  # the peer has died, which the server tells the caller, who ends this one
                self._read(select.select([self.caller], [], [])[0])
            except BlockingIOError:  # the pipe is full: it is read when the peer waits, and may wait for what we read
                self._read(select.select([self.inbox, self.caller], [self.others[peer]], [])[0])

    def recv(self, tag: int, peer: int) -> Parcel:
        """Wait for a parcel, at most `MAX_WAIT_SECONDS`."""
        number, slot = self.parcels[peer, self.device, tag]
        stop = monotonic() + MAX_WAIT_SECONDS
        while number not in self.arrived:
            ready, _, _ = select.select([self.inbox, self.caller], [], [], max(stop - monotonic(), 0))
            if not ready:
                raise TimeoutError(
                    f"device {self.device} waited {MAX_WAIT_SECONDS:g} s for what device {peer} sends under tag {tag}"
                )
            self._read(ready)
        self.arrived.discard(number)
        packed, seconds = HEAD.unpack_from(self.shared.room, slot.at - HEAD_NBYTES)
        return Parcel(view_slot(self.shared, slot), packed, seconds)

    def _read(self, ready: Sequence[int]) -> None:
        if self.caller in ready:  # who says nothing while a run is on
            os._exit(1)
        if self.inbox in ready:
            self.arrived.update(number for (number,) in NUMBER.iter_unpack(os.read(self.inbox, NUMBER.size * 1024)))


def view_slot(shared: Segment, slot: SharedCells) -> Array:
    """The cells of a slot."""
    return np.ndarray(slot.shape, slot.dtype, shared.bytes, slot.at)


class DeviceProcess:
    """The process of one device: does what the caller says, until he is gone.

    Parameters
    ----------
    caller : Connection
    shared, constants : Segment
    inbox, others
        As of `Slots`.
    """

    def __init__(
        self, caller: Connection, shared: Segment, constants: Segment, inbox: int, others: Sequence[int]
    ) -> None:
        self.caller, self.shared, self.constants = caller, shared, constants
        self.inbox, self.others = inbox, others

    def serve(self) -> None:
        """Answer messages until there are no more."""
        ways: dict[str, Callable[..., None]] = {"setup": self._set_up, "place": self._place, "run": self._run}
        with suppress(EOFError, ConnectionError):
            while (message := self.caller.recv())[0] != "end":
                try:
                    ways[message[0]](*message[1:])
                except Exception as error:
                    at = -1 if message[0] == "setup" else self.member.at
                    self.caller.send(("failed", at, make_portable(error)))

    def _set_up(self, pickled: bytes) -> None:
        self.setup = setup = pickle.loads(pickled)
        slots = Slots(setup, self.shared, self.inbox, self.others, self.caller.fileno())
        board = view_slot(self.shared, setup.layout.boards)[setup.part.device]
        self.member = Member(setup.part, load_backend("numpy"), slots, board)
        self.caller.send(("ready",))

    def _place(self) -> None:
        constants = {name: view_slot(self.constants, slot) for name, slot in self.setup.constants.items()}
        self.caller.send(("placed", self.member.place({**self.setup.files, **constants})))

    def _run(
        self,
        given: Sequence[str],
        begin: float,
        is_told: bool,
        errors: Mapping[str, Any],
        start: Start | None,
        sources: Mapping[str, Source],
    ) -> None:
        layout = self.setup.layout
        slots = {name: view_slot(self.shared, slot) for name, slot in layout.feeds.items()}
        feeds = {**self.setup.files, **slots, **sources}
        tell = (lambda steps, node: self.caller.send(("did", steps, node))) if is_told else None
        counts, cells = self.member.run(feeds, given, begin, errors, tell, start)
        for slot, array in zip(layout.outputs, cells, strict=True):
            view_slot(self.shared, slot)[: len(array)] = array  # what was written elsewhere has no cells
        self.caller.send(("done", counts))


def serve(
    control: int,
    connections: Sequence[int],
    shared: tuple[int, int],
    constants: tuple[int, int],
    pipes: Sequence[Sequence[int]],
) -> None:
    """Fork a process for each device, and end them when the caller is gone; tell him which of them died.

    Parameters
    ----------
    control : int
        The descriptor of a connection to the caller.
    connections : sequence of int
        Of those of the devices.
    shared, constants : tuple of int
        The descriptors and sizes of segments.
    pipes : sequence of (int, int)
        The ends of each device's pipe.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the caller's
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    devices: dict[int, int] = {}
    for device in range(len(connections)):
        process = os.fork()
        if process == 0:
            _be_device(device, control, connections, shared, constants, pipes, (woken, wake))
        devices[process] = device
    for file in (*connections, shared[0], constants[0], *(end for pipe in pipes for end in pipe)):
        os.close(file)
    caller = Connection(control)
    with suppress(EOFError, ConnectionError):
        while devices:
            ready, _, _ = select.select([control, woken], [], [])
            if control in ready:
                caller.recv()
            if woken in ready:
                os.read(woken, 4096)
            for process in list(devices):
                found, status = os.waitpid(process, os.WNOHANG | os.WUNTRACED | os.WCONTINUED)
                if found:
                    device = devices[process]
                    if not os.WIFSTOPPED(status) and not os.WIFCONTINUED(status):
                        del devices[process]  # before the caller is told, who may be gone
                    caller.send((device, status))
    for process in devices:
        os.kill(process, signal.SIGKILL)
    for process in devices:
        os.waitpid(process, 0)


def _be_device(
    device: int,
    control: int,
    connections: Sequence[int],
    shared: tuple[int, int],
    constants: tuple[int, int],
    pipes: Sequence[Sequence[int]],
    woken: Sequence[int],
) -> None:
    """What a forked process does, from its first to its last moment."""
    status = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        _die_with_parent()
        others = [file for k, file in enumerate(connections) if k != device]
        for file in (control, *woken, *others, *(pipe[0] for k, pipe in enumerate(pipes) if k != device)):
            os.close(file)
        inbox, outboxes = pipes[device][0], [pipe[1] for pipe in pipes]
        DeviceProcess(Connection(connections[device]), Segment(*shared), Segment(*constants), inbox, outboxes).serve()
        status = 0
    finally:
        os._exit(status)


def _die_with_parent() -> None:
    """Have the system end this process when the server ends, however that does; on Linux alone."""
    with suppress(AttributeError, ImportError, OSError):
        import ctypes

        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
