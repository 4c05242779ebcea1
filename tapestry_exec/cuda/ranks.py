"""One GPU of a mesh whose others are in other processes, of this host or of others; NCCL is between them.

::

    MpiBackend(device="nccl")     brings the ranks together, compares them, and carries errors
    NcclRank                      the device of one of them: its messages and collectives, in the plan's order
    watch                         another thread of each rank, which asks `look` while the rank works

A rank issues what it sends and gets in the plan's order, as `NcclBackend` does it for all GPUs: so each pair of ranks
has one order, and of what all wait for the one that is first in the plan has both its ends at the front. Work is put
into lanes and the host goes on; who waits is the GPU, or the host in a call of CUDA. Neither wait has a bound of its
own: the watch gives the communicator up when a message is late, and with it all that waits ends.

Not yet run on a GPU, and never on several hosts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from time import monotonic, perf_counter
from typing import Any

import numpy as np
from msgspec import Struct

from tapestry_exec.cuda.device import CupyDevice
from tapestry_exec.cuda.lanes import Lane
from tapestry_exec.cuda.nccl import Crossing, NcclBackend
from tapestry_exec.run import Exchanged, Parcel, tuning
from tapestry_plan.steps import Buffer, Collective


class Pending(Struct, eq=False):
    """A group of messages that was issued.

    Parameters
    ----------
    step : int
        The plan's.
    what : str
        What is waited for.
    begin, end : event
        In the lane: before the group, and behind it, when it is issued.
    since : float, optional
        When it was first seen to be all that is waited for.
    """

    step: int
    what: str
    begin: Any
    end: Any = None
    since: float | None = None


class NcclRank(NcclBackend):
    """The GPU of one rank, and its share in what all exchange.

    Parameters
    ----------
    given : NcclBackend
        What the caller gave: its options.
    rank, size : int
        Which one it is, of how many.

    Raises
    ------
    ValueError
        When other than one GPU is asked for.
    """

    def __init__(self, given: NcclBackend, rank: int, size: int) -> None:
        if given._asked is not None and len(given._asked) != 1:
            raise ValueError(
                f"MpiBackend: device is a NcclBackend of {len(given._asked)} GPUs; a rank has one: give "
                "NcclBackend([0]) with its number on this host, or NcclBackend() so that ranks are dealt out"
            )
        super().__init__(
            given._asked,
            kernels=given.kernels,
            fallback=given.fallback,
            blocking=given.blocking,
            poison=given.poison,
            tf32=given.tf32,
            cupy=given._given,
        )
        self._instead = "leave device= away, and ranks run on NumPy"
        self.rank, self.size = rank, size
        self.gpu: int | None = None
        """Its number on this host, when all ranks have told what they see."""
        self.receipts: Mapping[tuple[int, int], tuple[int, str]] = {}
        self.where: Callable[[], int] = lambda: -1
        """The step of the plan that is being done."""
        self._comm: Any = None
        self._turn = 0
        """How often communicators were given up."""
        self._pending = deque[Pending]()
        self._within = ""
        """Where the messages belong that are issued, for errors."""

    # -- how ranks find each other -----------------------------------------------------------------------

    def tell(self) -> dict[str, str]:
        """What must be the same on all ranks.

        Raises
        ------
        BackendUnavailable
            Where CuPy, NCCL, a driver or the GPU is missing.
        """
        version = str(self.nccl.get_version())
        super(NcclBackend, self).gpus_of(1)  # one that is asked for, or any
        return {"CuPy": str(self.cupy.__version__), "NCCL": version}

    def list_gpus(self) -> tuple[tuple[str, ...], int | None]:
        """The GPUs that this rank sees, by their places in the host, and the number of the one that is asked for."""
        cuda = self.cupy.cuda
        places = tuple(cuda.Device(k).pci_bus_id for k in range(cuda.runtime.getDeviceCount()))
        return places, None if self._asked is None else self._asked[0]

    def gpus_of(self, size: int) -> list[int]:
        """The GPU of this rank."""
        assert self.gpu is not None, "the ranks have told each other what they see"
        return [self.gpu]

    def make_id(self) -> tuple[int, ...]:
        """The number by which the ranks of a communicator find each other: of one of them, for all."""
        found: tuple[int, ...] = self.nccl.get_unique_id()
        return found

    def join(self, number: tuple[int, ...]) -> None:
        """Begin a communicator with all other ranks, which is waited for without a bound: in a thread of its own.

        Raises
        ------
        NcclError
            What NCCL says.
        """
        turn = self._turn
        with self.cupy.cuda.Device(self.gpu):
            comm = self.nccl.NcclCommunicator(self.size, number, self.rank)
        if turn == self._turn:
            self._comm = comm
        else:  # the others have come too late: nobody waits for it any more
            comm.abort()

    @property
    def is_joined(self) -> bool:
        return self._comm is not None

    def give_up(self) -> None:
        """Abort the communicator, from whatever thread: what waits on it ends, and nothing is sent on it any more.

        Also when all is done: to destroy it would wait for the other ranks.
        """
        self._turn += 1
        comm, self._comm = self._comm, None
        if comm is not None:
            comm.abort()

    def _join(self, gpus: Sequence[int]) -> None:
        """All ranks have joined, or do so when they have their devices."""

    # -- what the watch asks ------------------------------------------------------------------------------

    def look(self) -> None:
        """See how far the GPU is.

        Raises
        ------
        TimeoutError
            When a message is waited for longer than `tuning.MAX_WAIT_SECONDS`.
        NcclError
            What failed behind the return of its call.
        """
        comm, now, pending = self._comm, monotonic(), self._pending
        if comm is not None:
            comm.check_async_error()
        while pending and pending[0].end is not None and pending[0].end.done:
            pending.popleft()
        if not pending:
            return
        first = pending[0]
        if not first.begin.done:
            return  # this rank's own work comes before it
        if first.since is None:
            first.since = now
        if now - first.since > tuning.MAX_WAIT_SECONDS:
            raise TimeoutError(f"device {self.rank} waited {tuning.MAX_WAIT_SECONDS:g} s for {first.what}")

    @property
    def step(self) -> int:
        """Of the plan: of what the GPU waits for, or else what the host does."""
        return self._pending[0].step if self._pending else self.where()

    def resume(self) -> None:
        self._pending.clear()
        super().resume()

    # -- the protocol -------------------------------------------------------------------------------------

    def _opened(self, before: Any, k: int, gpu: int, nbytes: int, payload_nbytes: int) -> Any:
        return super()._opened(before, self.rank, gpu, nbytes, payload_nbytes)

    def _rank(self, device: int) -> Any:
        if self._comm is None:
            raise RuntimeError("NCCL's communicator was given up")
        return self._comm

    @property
    def _size(self) -> int:
        return self.size

    @property
    def _mine(self) -> CupyDevice:
        (mine,) = self._on_gpus
        return mine

    def send(self, tag: int, peer: int, parcel: Parcel) -> None:
        """Send a payload; nothing is waited for."""
        self._within = f"under tag {tag}"
        self._send([Crossing(self.rank, peer, parcel.cells.nbytes, (self._mine, parcel.cells), None)])

    def recv(self, tag: int, peer: int) -> Parcel:
        """The room to which a payload comes, in its lane."""
        cells, dtype = self.receipts[peer, tag]
        room = self._mine.take_room(cells * np.dtype(dtype).itemsize, np.dtype(dtype))
        self._within = f"under tag {tag}"
        self._send([Crossing(peer, self.rank, room.nbytes, None, (self._mine, room))])
        return Parcel(room, perf_counter(), 0.0)

    def move(self, payload: Any, src: int, dst: int) -> Any:
        """It has come: `recv` gave the room."""
        return payload

    def exchange(self, devices: Sequence[Any], collective: Collective, buffers: Mapping[int, Buffer]) -> Exchanged:
        """Do this device's share in a collective."""
        self._within = f"in the {collective.kind} of devices {', '.join(map(str, collective.group))}"
        return super().exchange(devices, collective, buffers)

    # The host itself may wait in the calls of a group: the watch must know of it before.

    def _wait(self, messages: Sequence[Crossing]) -> None:
        super()._wait(messages)
        comes = [f"what device {one.src} sends" for one in messages if one.came is not None]
        goes = [str(one.dst) for one in messages if one.given is not None]
        takes = [f"device {', '.join(goes)} to take what is sent there"] if goes else []
        what = f"{' and '.join(comes + takes)} {self._within}"
        self._pending.append(Pending(self.where(), what, self._lane_of(messages).mark().event))

    def _leave_marks(self, messages: Sequence[Crossing]) -> None:
        super()._leave_marks(messages)
        self._pending[-1].end = self._lane_of(messages).mark().event

    def _lane_of(self, messages: Sequence[Crossing]) -> Lane:
        """One of the lanes of a group: all of them wait for all of it."""
        return self._mine.incoming if messages[0].given is None else self._mine.out
