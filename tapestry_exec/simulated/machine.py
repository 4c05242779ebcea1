"""The simulated machine: its devices' memory, and the order in which streams may act.

Every operation is done when it is issued, which is one order that is allowed; the checker follows streams, events and
waits byte by byte and raises `OrderingFault` at the first operation that another allowed order could do too early.
Copies to pinned memory bring their bytes only when somebody who came after them looks; until then the bytes there are
poison.
"""

from __future__ import annotations

import ctypes
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any, NoReturn, cast

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from tapestry_exec.run import OrderingFault
from tapestry_exec.simulated.ordering import HOST, Access, Checker, Clock, Memory
from tapestry_exec.simulated.tuning import ALIGNMENT_NBYTES, MAX_FREED_NBYTES, POISON
from tapestry_sets.limits import quote

Bytes = NDArray[np.uint8]
HostArray = NDArray[Any]
INVALIDATED = "operation failed due to a previous error during capture"

COPY_ENDS = "HostToHost", "HostToDevice", "DeviceToHost", "DeviceToDevice", "Default"
COPY_KINDS = {f"memcpy{ends}": kind for kind, ends in enumerate(COPY_ENDS)}


class CUDARuntimeError(RuntimeError):
    """A call that the runtime refuses, by CUDA's name of the error."""


class CUDADriverError(RuntimeError):
    """A call that the driver refuses, which launches kernels, by CUDA's name of the error."""


@dataclass(eq=False)
class Queue:
    """A stream without its methods: operations issued to it are done in order.

    Parameters
    ----------
    device_id : int
        Its device; -1 for the default stream of whatever device is current.
    ptr : int
        The number that it is known by.
    agent : str
        Its name.
    is_non_blocking : bool
        Whether it and the device's default stream do not wait for each other.
    capture : Capture, optional
        The graph that is being captured from it.
    """

    device_id: int
    ptr: int
    agent: str
    is_non_blocking: bool = False
    capture: Capture | None = None


@dataclass(eq=False)
class Work:
    """One operation of a stream.

    Parameters
    ----------
    name : str
    device : int
    reads, writes : list of Access
    run : callable
        Does it.
    everywhere : bool
        Whether it reaches the memory of every device, as copies do.
    is_kernel : bool
        Whether the driver launches it, and not the runtime.
    """

    name: str
    device: int
    reads: list[Access]
    writes: list[Access]
    run: Callable[[], Any]
    everywhere: bool = False
    is_kernel: bool = False

    def memories(self) -> list[Memory]:
        """The memory that it is known to touch."""
        return [access.memory for access in [*self.reads, *self.writes]]

    def traced(self) -> tuple[list[Access], list[Access]] | None:
        """The bytes read and written, for work of which only doing it tells; None where `reads` and `writes` do."""
        return None


class InFlight(Struct, eq=False):
    """A copy from or to pinned memory that the host does not know to be done.

    Parameters
    ----------
    access : Access
        In pinned memory.
    agent, number
        The operation.
    before : bytes
        What lies there as long as the copy may be on its way.
    after : bytes, optional
        What a copy to pinned memory brings.
    """

    name: str
    access: Access
    agent: str
    number: int
    before: Bytes
    after: Bytes | None


class Capture(Struct, eq=False):
    """The operations put into streams while a graph is captured: work, and records of and waits for events.

    A call that fails makes it invalid: all that its streams are asked from then on fails too, until it is ended.
    """

    origin: Queue
    members: list[Queue]
    entries: list[tuple[str, Queue, Any]] = []
    is_valid: bool = True

    def fail(self, status: str) -> NoReturn:
        """A call on one of its streams or events fails, by the name of the error."""
        self.is_valid = False
        raise CUDARuntimeError(status)

    def check(self) -> None:
        """Raise CUDARuntimeError if a call has failed."""
        if not self.is_valid:
            raise CUDARuntimeError(f"cudaErrorStreamCaptureInvalidated: {INVALIDATED}")


class Machine:
    """The state of simulated devices: memory, streams, clocks, and what is current.

    Parameters
    ----------
    devices : int
    seed : int
        Of the order of threads in kernels, and of updates of one cell.
    peers : bool
        Whether devices may be given access to each other's memory.
    unwritten : bool
        Find reads of memory that nothing wrote since it was allocated.
    """

    def __init__(self, devices: int, seed: int, peers: bool, unwritten: bool) -> None:
        self.device_count, self.may_be_peers = devices, peers
        self.checker = Checker(unwritten)
        self.random = random.Random(seed)
        self.device = 0
        self.streams: dict[int, Queue] = {}
        self.nulls: list[Queue] = []
        self.current: list[Queue] = []
        self.allocator: Callable[[int], Any]
        self.pinned_allocator: Callable[[int], Any]
        self.functions: dict[str, Any] = {}
        self.cuda: SimpleNamespace
        self._in_flight: list[InFlight] = []
        self._freed: list[Memory] = []
        self.graphs = 0
        self._is_trying = False

    # -- memory ------------------------------------------------------------------------------------------

    def take(self, nbytes: int, name: str, device: int | None) -> Memory:
        """New memory, filled with poison."""
        raw = np.empty(nbytes + ALIGNMENT_NBYTES, np.uint8)
        skip = -raw.ctypes.data % ALIGNMENT_NBYTES
        data = raw[skip : skip + nbytes]
        data.fill(POISON)
        return self.checker.allocated(name, data, device)

    def free(self, memory: Memory) -> None:
        """Give memory back; its addresses stay known for a while."""
        self.checker.freed(memory)
        self._freed.append(memory)
        while sum(one.nbytes for one in self._freed) > MAX_FREED_NBYTES:
            self.checker.forget(self._freed.pop(0))

    def host_view(self, data: Any, dims: tuple[int, ...], dtype: np.dtype[Any], strides: Any, order: str) -> HostArray:
        """The cells of a device array as an array of this process."""
        if 0 in dims:
            return np.empty(dims, dtype)
        memory = self.checker.at(data.ptr)
        if memory is None:
            raise OrderingFault(
                f"an array of shape {quote(dims)} is put at {data.ptr:#x}, where no memory is allocated"
            )
        try:
            steps = None if strides is None else tuple(int(s) for s in strides)
            layout: Any = "F" if order == "F" else "C"
            view: HostArray = np.ndarray(dims, dtype, memory.data.data, data.ptr - memory.start, steps, layout)
        except (TypeError, ValueError) as error:
            raise OrderingFault(
                f"an array of shape {quote(dims)}, {dtype}, strides {quote(strides)} at byte "
                f"{data.ptr - memory.start} does not stay "
                f"in the {memory.nbytes} bytes of {memory.name}: {error}"
            ) from None
        return view

    # -- streams -----------------------------------------------------------------------------------------

    def stream(self, given: Any = None) -> Queue:
        """The stream given, by object or number, or the current one."""
        if given is None:
            return self.current[self.device]
        found = self.streams.get(given) if isinstance(given, int) else given
        if found is None and given == 0:
            return self.nulls[self.device]
        if not isinstance(found, Queue):
            raise CUDARuntimeError(f"cudaErrorInvalidResourceHandle: there is no stream {quote(given)}")
        return self.nulls[self.device] if found.device_id < 0 else found

    def stream_here(self, given: Any = None) -> Queue:
        """As `stream`; RuntimeError where it belongs to another device than the current one."""
        found = self.stream(given)
        if found.device_id != self.device:
            raise RuntimeError(f"the current device is {self.device}, {found.agent} belongs to another one")
        return found

    def clock_of(self, stream: Queue) -> Clock:
        """The clock before the stream's next operation: the default stream and blocking ones wait for each other."""
        null = self.nulls[stream.device_id]
        if stream is null:
            for other in self.streams.values():
                if other.device_id == stream.device_id and not other.is_non_blocking:
                    self.checker.join(stream.agent, self.checker.clock(other.agent))
        elif not stream.is_non_blocking:
            self.checker.join(stream.agent, self.checker.clock(null.agent))
        return self.checker.clock(stream.agent)

    def wait_for_host(self, why: str, stream: Queue | None = None) -> None:
        """The host waits until everything in a stream is done.

        Raises
        ------
        CUDARuntimeError
            When the stream is being captured.
        """
        found = self.stream(stream)
        if found.capture is not None:
            found.capture.check()
            found.capture.fail(
                f"cudaErrorStreamCaptureUnsupported: {why} waits for {found.agent}, which is being captured"
            )
        self.host_after(self.clock_of(found))

    def is_capturing(self, stream: Queue) -> bool:
        """Whether a stream is being captured; RuntimeError if that has failed, as CuPy's."""
        if stream.capture is not None and not stream.capture.is_valid:
            raise RuntimeError("the stream was capturing, but an error has invalidated the capture sequence")
        return stream.capture is not None

    def host_after(self, clock: Clock) -> None:
        """The host knows what a clock says to be done."""
        self.checker.join(HOST, clock)
        self._deliver(HOST)

    # -- operations --------------------------------------------------------------------------------------

    def submit(
        self,
        name: str,
        reads: Sequence[HostArray],
        writes: Sequence[HostArray],
        run: Callable[[], Any],
        stream: Queue | None = None,
    ) -> None:
        """Put an operation on arrays into a stream."""
        found = self.stream_here(stream)
        read, written = ([self.checker.cells(view) for view in views if view.size] for views in (reads, writes))
        self.put(found, Work(name, self.device, read, written, run, is_kernel=True))

    def put(self, stream: Queue, work: Work) -> None:
        """Put an operation into a stream: it is done, or captured."""
        if stream.capture is not None:
            if work.is_kernel and not stream.capture.is_valid:
                raise CUDADriverError(f"CUDA_ERROR_STREAM_CAPTURE_INVALIDATED: {INVALIDATED}")
            stream.capture.check()
            stream.capture.entries.append(("work", stream, work))
            return
        self.clock_of(stream)
        self.perform(stream.agent, work)

    def perform(self, agent: str, work: Work) -> None:
        """Check an operation against the agent's clock, and do it."""
        self.checker.join(agent, self.checker.clock(HOST))
        self._deliver(agent)
        traced = work.traced()
        if traced is not None:
            self._issue(agent, work, *traced)
            return
        self._issue(agent, work, work.reads, work.writes)
        with np.errstate(all="ignore"):
            work.run()

    def _issue(self, agent: str, work: Work, reads: list[Access], writes: list[Access]) -> None:
        self.checker.issue(work.name, agent, work.device, reads, writes, work.everywhere)

    def _deliver(self, agent: str) -> None:
        """Finish the copies from and to pinned memory that an agent comes after."""
        done = [one for one in self._in_flight if self.checker.is_done(one.agent, one.number, agent)]
        for one in done:
            self._in_flight.remove(one)
            there = one.access.of(one.access.memory.data)
            if not np.array_equal(there, one.before):
                doing = "is copied from" if one.after is None else "is copied to"
                raise OrderingFault(
                    f"the host changed {one.access.describe()} while it {doing} by operation {one.number} ({one.name}) "
                    f"on {one.agent}: synchronize that stream, or an event that it records after the copy, first"
                )
            if one.after is not None:
                there[...] = one.after

    def mark_block(self, pointer: int, nbytes: int, name: str, live: bool) -> None:
        """A buffer takes or leaves its place in an arena; where work is captured, each time the graph runs."""
        capture = next((stream.capture for stream in self.streams.values() if stream.capture is not None), None)
        mark = partial(self.checker.mark, pointer, nbytes, name, live)
        if capture is None:
            mark()
        else:
            capture.entries.append(("mark", capture.origin, mark))

    def mark_host(self, pointer: int, nbytes: int, write: bool) -> None:
        """The host is about to read or write pinned memory."""
        if not nbytes:
            return
        touched = [self.checker.span(pointer, nbytes, "the host")]
        self.checker.issue("host access", HOST, None, [] if write else touched, touched if write else [])

    def mark_moved(self, pointer: int, nbytes: int) -> None:
        """Bytes are about to be moved as they are: those that nothing wrote count as written from here on."""
        if nbytes:
            moved = self.checker.span(pointer, nbytes, "what is moved")
            if moved.memory.written is not None:
                moved.put(moved.memory.written, 1)

    # -- values ------------------------------------------------------------------------------------------

    @contextmanager
    def trying(self) -> Iterator[None]:
        """Compute for the shapes of results only: captured operations are not done yet."""
        self._is_trying = True
        try:
            yield
        finally:
            self._is_trying = False

    def indices(self, indices: Any) -> Any:
        """Indices by value; while a graph is captured their values are not there yet."""
        if isinstance(indices, np.ndarray) and self._is_trying and self.stream().capture is not None:
            return np.zeros_like(indices)
        return indices

    def shuffled(self, size: int) -> NDArray[np.intp]:
        """The numbers from 0 on in an order that the seed says."""
        turn = list(range(size))
        self.random.shuffle(turn)
        return np.array(turn, np.intp)

    # -- copies ------------------------------------------------------------------------------------------

    def memcpy(self, dst: int, src: int, nbytes: int, kind: int, stream: Queue, name: str = "memcpyAsync") -> None:
        """Copy bytes between addresses of devices and of the host, as CUDA does."""
        if not nbytes:
            return
        source, target = self.checker.at(src), self.checker.at(dst)
        self._check_kind(kind, source, target)
        read = None if source is None else self.checker.span(src, nbytes, name)
        written = None if target is None else self.checker.span(dst, nbytes, name)
        if (read is None or written is None) and stream.capture is not None:
            raise OrderingFault(
                f"{name} of {nbytes} B between {stream.agent}, which is being captured, and memory of the host that "
                "is not pinned: a graph would use whatever is there later; use pinned memory"
            )
        given = _bytes_at(src, nbytes) if read is None else read.memory.data[read.offset : read.offset + nbytes]
        into = _bytes_at(dst, nbytes) if written is None else written.memory.data[written.offset :][:nbytes]
        if read is None:
            given = given.copy()  # staged before the call returns
        run = partial(self._copy, name, read, written, given, into)
        reads, writes = ([] if one is None else [one] for one in (read, written))
        self.put(stream, Work(name, stream.device_id, reads, writes, run, everywhere=True))
        if written is None:
            self.wait_for_host(name, stream)

    def _copy(self, name: str, read: Access | None, written: Access | None, given: Bytes, into: Bytes) -> None:
        made = self.checker.operations[self.checker.count]
        if written is not None and written.memory.device is None:
            poison = np.full(len(given), POISON, np.uint8)
            self._in_flight.append(InFlight(name, written, made.agent, made.number, poison, given.copy()))
            into[...] = poison
        else:
            into[...] = given
        if read is not None and read.memory.device is None:
            self._in_flight.append(InFlight(name, read, made.agent, made.number, given.copy(), None))

    def _check_kind(self, kind: int, source: Memory | None, target: Memory | None) -> None:
        """Raise CUDARuntimeError where the memory is not what the kind of a copy says."""
        if kind == COPY_KINDS["memcpyDefault"]:
            return
        on = [memory is not None and memory.device is not None for memory in (source, target)]
        if kind != 2 * on[0] + on[1]:
            where = ["a device" if one else "the host" for one in on]
            raise CUDARuntimeError(
                f"cudaErrorInvalidValue: a copy of kind {kind} is asked for, but it is from {where[0]} to {where[1]}"
            )


def _bytes_at(address: int, nbytes: int) -> Bytes:
    raw: Any = (ctypes.c_uint8 * nbytes).from_address(address)
    return cast(Bytes, np.frombuffer(raw, np.uint8))
