"""NCCL between simulated devices, of one process or several, by what NCCL's documentation says of its calls.

- A message needs a send and a receipt of the same bytes. Between two ranks they meet in the order of the calls.
- A call outside of a group waits for its other end. One thread that would issue that later waits for ever; here that is
  an `OrderingFault`, as is a group that ends without the other end of one of its calls.
- A group on several streams is as if posted on each: it begins when all have come so far, and all wait for its end.
- A communicator of several processes is joined by one number, which one of them makes. There the other end may come
  later: a call waits for it, those of a group all at once, until the communicator is aborted (`rank_files.py`).
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, ClassVar, NamedTuple

import numpy as np

from tapestry_exec.run import OrderingFault
from tapestry_exec.simulated.machine import COPY_KINDS, Machine, Queue, Work
from tapestry_exec.simulated.rank_files import Aborted, RankFiles, RankMessage, make_number
from tapestry_sets.limits import quote

SIZES = {0: 1, 1: 1, 2: 4, 3: 4, 4: 8, 5: 8, 6: 2, 7: 4, 8: 8}
"""Bytes of each of NCCL's dtypes, by its number."""


class NcclError(RuntimeError):
    """A call that NCCL refuses, by its name of the error."""


class Call(NamedTuple):
    """One call of one rank."""

    kind: str
    comm: NcclCommunicator
    source: int
    target: int
    cells: int
    dtype: int
    peer: int
    stream: Queue

    @property
    def nbytes(self) -> int:
        """Of what is sent or got."""
        return self.cells * SIZES[self.dtype]

    def tell(self) -> str:
        """For messages."""
        return f"{self.kind} of rank {self.comm.rank} with rank {self.peer}, {self.cells} of dtype {self.dtype}"


class NcclCommunicator:
    """A rank among those that were made together."""

    machine: ClassVar[Machine]
    group: ClassVar[CallGroup]

    files: RankFiles | None
    """To the other processes, where each rank is one."""

    def __init__(self, ndev: int, commId: tuple[int, ...], rank: int) -> None:
        if not 0 <= rank < ndev:
            raise NcclError(f"NCCL_ERROR_INVALID_ARGUMENT: rank {quote(rank)} of {quote(ndev)}")
        self._take(object(), rank, ndev, self.machine.device)
        with _as_nccl_tells():
            self.files = RankFiles(commId, rank, ndev)

    def _take(self, clique: object, rank: int, size: int, device: int) -> NcclCommunicator:
        self.clique, self.rank, self.ranks, self.device = clique, rank, size, device
        self.files = None
        return self

    @classmethod
    def initAll(cls, devices: int | Sequence[int]) -> list[NcclCommunicator]:
        """One for each device."""
        numbers = list(range(devices)) if isinstance(devices, int) else list(devices)
        if len(set(numbers)) < len(numbers) or not set(numbers) <= set(range(cls.machine.device_count)):
            raise NcclError(f"NCCL_ERROR_INVALID_ARGUMENT: devices {quote(numbers)}")
        clique = object()
        return [cls.__new__(cls)._take(clique, rank, len(numbers), device) for rank, device in enumerate(numbers)]

    def abort(self) -> None:
        """End what waits on it, from whatever thread; it is not used any more."""
        if self.files is not None:
            self.files.abort()

    def destroy(self) -> None:
        """Give it back."""
        self.abort()

    def check_async_error(self) -> None:
        """Raise NcclError where a call failed behind its return: here none does."""

    def size(self) -> int:
        """How many ranks there are."""
        return self.ranks

    def rank_id(self) -> int:
        """The number of this one."""
        return self.rank

    def send(self, sendbuf: int, count: int, datatype: int, peer: int, stream: int) -> None:
        """Send cells to a rank that calls `recv`."""
        self._call("send", sendbuf, 0, count, datatype, peer, stream)

    def recv(self, recvbuf: int, count: int, datatype: int, peer: int, stream: int) -> None:
        """Get cells from a rank that calls `send`."""
        self._call("recv", 0, recvbuf, count, datatype, peer, stream)

    def broadcast(self, sendbuff: int, recvbuff: int, count: int, datatype: int, root: int, stream: int) -> None:
        """Get what the root has; all ranks call it."""
        self._call("broadcast", sendbuff, recvbuff, count, datatype, root, stream)

    def _call(self, kind: str, source: int, target: int, count: int, dtype: int, peer: int, stream: int) -> None:
        if dtype not in SIZES or not 0 <= peer < self.ranks or count < 0 or (peer == self.rank and kind != "broadcast"):
            raise NcclError(f"NCCL_ERROR_INVALID_ARGUMENT: {kind}, dtype {quote(dtype)}, rank {quote(peer)}")
        queue = self.machine.stream(stream)
        if queue.device_id != self.device:
            raise NcclError(
                f"NCCL_ERROR_INVALID_USAGE: rank {self.rank} is on device {self.device}, {queue.agent} is not"
            )
        self.group.add(Call(kind, self, source, target, count, dtype, peer, queue))


class CallGroup:
    """The calls between `groupStart` and the `groupEnd` that belongs to it; a call outside is one by itself."""

    def __init__(self, machine: Machine) -> None:
        self.machine, self.depth = machine, 0
        self.calls: list[Call] = []

    def start(self) -> None:
        """Begin a group, perhaps within another one."""
        self.depth += 1

    def end(self) -> None:
        """Do the calls of the outermost group."""
        if not self.depth:
            raise NcclError("NCCL_ERROR_INVALID_USAGE: no group has begun")
        self.depth -= 1
        if not self.depth:
            calls, self.calls = self.calls, []
            self._do(calls)

    def add(self, call: Call) -> None:
        """Take a call down, or do it."""
        self.calls.append(call)
        if not self.depth:
            calls, self.calls = self.calls, []
            self._do(calls)

    def _do(self, calls: Sequence[Call]) -> None:
        here = [call for call in calls if call.comm.files is None]
        copies = _pair_messages(here) + _pair_broadcasts(here)
        streams = list(dict.fromkeys(call.stream for call in calls))
        if not streams:
            return
        for stream in streams:
            if stream.capture is not None:
                stream.capture.fail("cudaErrorStreamCaptureUnsupported: NCCL in a graph is not simulated")
        first, checker = streams[0], self.machine.checker
        for stream in streams:
            checker.join(first.agent, self.machine.clock_of(stream))
        for name, source, target, nbytes in copies:
            self.machine.memcpy(target, source, nbytes, COPY_KINDS["memcpyDeviceToDevice"], first, name)
        for comm in {call.comm for call in calls if call.comm.files is not None}:
            self._reach_others(comm, [call for call in calls if call.comm is comm], first)
        for stream in streams:
            checker.join(stream.agent, checker.clock(first.agent))

    def _reach_others(self, comm: NcclCommunicator, calls: Sequence[Call], stream: Queue) -> None:
        """Do the calls of a rank whose others are other processes."""
        assert comm.files is not None, "it has others"
        out, come = list[RankMessage](), list[RankMessage]()
        for call in calls:
            facts = call.kind if call.kind == "broadcast" else "message", call.cells, call.dtype, call.peer
            if call.kind == "send":
                out.append(RankMessage(call.peer, facts[:3], self._read(call, stream)))
            elif call.kind == "recv":
                come.append(RankMessage(call.peer, facts[:3], b""))
            else:
                is_root = call.peer == comm.rank
                out.append(RankMessage(None, facts, self._read(call, stream) if is_root else b""))
                come.append(RankMessage(None, facts, b"", call.peer))
        with _as_nccl_tells():
            found = comm.files.exchange(out, come)
        targets = [call for call in calls if call.kind != "send"]
        for call, raw in zip(targets, found, strict=True):
            if call.kind == "recv" or call.peer != comm.rank:
                self._write(call, raw, stream)

    def _read(self, call: Call, stream: Queue) -> bytes:
        span, taken = self.machine.checker.span(call.source, call.nbytes, call.kind), list[bytes]()
        data = span.memory.data[span.offset : span.offset + call.nbytes]
        work = Work(f"nccl {call.kind}", stream.device_id, [span], [], lambda: taken.append(data.tobytes()), True)
        self.machine.put(stream, work)
        return taken[0]

    def _write(self, call: Call, raw: bytes, stream: Queue) -> None:
        span = self.machine.checker.span(call.target, call.nbytes, call.kind)
        data = span.memory.data[span.offset : span.offset + call.nbytes]

        def fill() -> None:
            data[...] = np.frombuffer(raw, np.uint8)

        self.machine.put(stream, Work(f"nccl {call.kind}", stream.device_id, [], [span], fill, True))


@contextmanager
def _as_nccl_tells() -> Iterator[None]:
    """What has ended a wait is told as NCCL's error."""
    try:
        yield
    except Aborted as error:
        raise NcclError(f"NCCL_ERROR_INVALID_USAGE: {error}") from None


Copied = tuple[str, int, int, int]
"""What a copy is called, its source, its target, and its bytes."""


def _pair_messages(calls: Sequence[Call]) -> list[Copied]:
    sent = defaultdict[Any, deque[Call]](deque)
    for call in calls:
        if call.kind == "send":
            sent[call.comm.clique, call.comm.rank, call.peer].append(call)
    found = list[Copied]()
    for call in calls:
        if call.kind == "recv":
            waiting = sent[call.comm.clique, call.peer, call.comm.rank]
            if not waiting:
                raise OrderingFault(f"NCCL would wait for ever: {call.tell()}: no send in this group")
            other = waiting.popleft()
            if other.nbytes != call.nbytes:
                raise OrderingFault(f"NCCL would corrupt memory or wait for ever: {other.tell()} meets {call.tell()}")
            found.append(("ncclSend", other.source, call.target, call.nbytes))
    for one in (call for waiting in sent.values() for call in waiting):
        raise OrderingFault(f"NCCL would wait for ever: {one.tell()}: no recv in this group")
    return found


def _pair_broadcasts(calls: Sequence[Call]) -> list[Copied]:
    by_rank = defaultdict[Any, dict[int, list[Call]]](dict)
    for call in calls:
        if call.kind == "broadcast":
            by_rank[call.comm.clique].setdefault(call.comm.rank, []).append(call)
    found = list[Copied]()
    for ranks in by_rank.values():
        size = next(iter(ranks.values()))[0].comm.ranks
        for turn in range(max(map(len, ranks.values()))):
            here = [some[turn] for some in ranks.values() if turn < len(some)]
            if len(here) < size:
                raise OrderingFault(f"NCCL would wait for ever: {here[0].tell()}: {len(here)} of {size} ranks call it")
            if len({(call.peer, call.nbytes) for call in here}) > 1:
                raise OrderingFault("NCCL would wait for ever: broadcasts of one group differ in root or bytes")
            (root,) = (call for call in here if call.comm.rank == call.peer)
            found += [
                ("ncclBroadcast", root.source, call.target, call.nbytes) for call in here if call.target != root.source
            ]
    return found


def make_nccl(machine: Machine) -> SimpleNamespace:
    """What stands in for `cupy.cuda.nccl`."""
    group = CallGroup(machine)
    kind: Any = type("NcclCommunicator", (NcclCommunicator,), {"machine": machine, "group": group})
    return SimpleNamespace(
        available=True,
        NcclCommunicator=kind,
        NcclError=NcclError,
        get_unique_id=make_number,
        get_version=lambda: 23200,
        groupStart=group.start,
        groupEnd=group.end,
        NCCL_INT8=0,
        NCCL_UINT8=1,
    )
