"""The simulated machine: its devices' memory, and the order in which streams may act.

Every operation is done when it is issued, which is one order that is allowed; the checker follows streams, events and
waits byte by byte and raises `OrderingFault` at the first operation that another allowed order could do too early.
Copies to pinned memory bring their bytes only when somebody who came after them looks; until then the bytes there are
poison.
"""

from __future__ import annotations

import ctypes
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any, NoReturn, cast

import numpy as np
from numpy.typing import NDArray

from tapestry_exec.run import OrderingFault
from tapestry_exec.simulated.arrays import DeviceArray, HostArray, check_places, refuse
from tapestry_exec.simulated.ordering import HOST, Access, Checker, Clock, Memory

Bytes = NDArray[np.uint8]
ALIGNMENT_NBYTES = 512
"""Of every allocation, as CUDA's."""
POISON = 0xFF
MEMORY_NBYTES = 1 << 34
"""What a simulated device says that it has."""
MOST_FREED_NBYTES = 1 << 27
"""Memory that was freed is kept up to so many bytes, so that a late use of it is found."""

INVALIDATED = "operation failed due to a previous error during capture"

COPY_KINDS = {
    "memcpyHostToHost": 0,
    "memcpyHostToDevice": 1,
    "memcpyDeviceToHost": 2,
    "memcpyDeviceToDevice": 3,
    "memcpyDefault": 4,
}


class CUDARuntimeError(RuntimeError):
    """What the runtime refuses, by CUDA's name of the error."""

    def __init__(self, status: str) -> None:
        super().__init__(status)
        self.status = status


class CUDADriverError(RuntimeError):
    """What the driver refuses, which launches kernels, by CUDA's name of the error."""


@dataclass(eq=False)
class Queue:
    """What is issued to it is done in order: a stream without its methods.

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
    run: Callable[[], None]
    everywhere: bool = False
    is_kernel: bool = False

    def memories(self) -> list[Memory]:
        """The memory that it is known to touch."""
        return [access.memory for access in [*self.reads, *self.writes]]

    def traced(self) -> tuple[list[Access], list[Access]] | None:
        """What it read and wrote, for work of which only doing it tells; None where `reads` and `writes` do."""
        return None


@dataclass(eq=False)
class InFlight:
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


@dataclass(eq=False)
class Capture:
    """What is put into streams while a graph is being captured: work, and records of and waits for events.

    A call that fails makes it invalid: all that its streams are asked from then on fails too, until it is ended.
    """

    origin: Queue
    entries: list[tuple[str, Queue, Any]] = field(default_factory=list)
    members: list[Queue] = field(default_factory=list)
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
        Of the order of threads in kernels, and of what events that nobody waited for say when they are asked.
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
        self.functions: dict[str, Any] = {}
        self.cuda: SimpleNamespace
        self._in_flight: list[InFlight] = []
        self._freed: list[Memory] = []
        self.graphs = 0
        self.pool: Any
        self.array: type[DeviceArray]
        self.pooled: Any

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
        while sum(one.nbytes for one in self._freed) > MOST_FREED_NBYTES:
            self.checker.forget(self._freed.pop(0))

    def allocate(self, nbytes: int) -> Any:
        """Memory of the current allocator."""
        return self.allocator(nbytes)

    def host_view(self, data: Any, dims: tuple[int, ...], dtype: np.dtype[Any], strides: Any, order: str) -> HostArray:
        """The cells of a device array as an array of this process."""
        if 0 in dims:
            return np.empty(dims, dtype)
        memory = self.checker.at(data.ptr)
        if memory is None:
            raise OrderingFault(f"an array of shape {dims} is put at {data.ptr:#x}, where no memory is allocated")
        try:
            steps = None if strides is None else tuple(int(s) for s in strides)
            layout: Any = "F" if order == "F" else "C"
            view: HostArray = np.ndarray(dims, dtype, memory.data.data, data.ptr - memory.start, steps, layout)
        except (TypeError, ValueError) as error:
            raise OrderingFault(
                f"an array of shape {dims}, {dtype}, strides {strides} at byte {data.ptr - memory.start} does not stay "
                f"in the {memory.nbytes} bytes of {memory.name}: {error}"
            ) from None
        check_places(view)
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
            raise CUDARuntimeError(f"cudaErrorInvalidResourceHandle: there is no stream {given!r}")
        return self.nulls[self.device] if found.device_id < 0 else found

    def clock_of(self, stream: Queue) -> Clock:
        """What the stream's next operation comes after: the default stream and blocking ones wait for each other."""
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

        def work() -> None:
            run()

        found = self.stream(stream)
        if found.device_id != self.device:
            raise RuntimeError(f"the current device is {self.device}, {found.agent} belongs to another one")
        cells = self.checker.cells
        self.put(
            found,
            Work(
                name,
                self.device,
                [cells(v) for v in reads if v.size],
                [cells(v) for v in writes if v.size],
                work,
                is_kernel=True,
            ),
        )

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
        peers = self.checker.peers
        if work.everywhere:
            self.checker.peers = peers | {(work.device, other) for other in range(self.device_count)}
        try:
            self.checker.issue(work.name, agent, work.device, reads, writes)
        finally:
            self.checker.peers = peers

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

    # -- arrays ------------------------------------------------------------------------------------------

    def indices(self, indices: Any) -> Any:
        """Indices by value; while a graph is captured their values are not there yet."""
        if isinstance(indices, np.ndarray) and self.stream().capture is not None and self._is_trying:
            return np.zeros_like(indices)
        return indices

    def shuffled(self, size: int) -> NDArray[np.intp]:
        """The numbers from 0 on in an order that the seed says."""
        turn = list(range(size))
        self.random.shuffle(turn)
        return np.array(turn, np.intp)

    _is_trying = False

    def call(self, name: str, function: Callable[..., Any], args: list[Any], kwargs: dict[str, Any], out: Any) -> Any:
        """Apply NumPy's function to device arrays: a view of one, a new array, or what is written to `out`."""
        reads: list[HostArray] = []
        held: list[DeviceArray] = []
        host_args = [self._host(arg, reads, held) for arg in args]
        host_kwargs = {key: self._host(value, reads, held) for key, value in kwargs.items()}
        if isinstance(out, tuple):
            (out,) = out
        if out is None:
            source = held[0] if held else None
            return self.compute(name, lambda: function(*host_args, **host_kwargs), reads, source)
        if not isinstance(out, DeviceArray):
            raise TypeError(f"{name}: out is {type(out).__name__}; it must be a device array")
        target = out._view
        self.submit(name, reads, [target], lambda: function(*host_args, **host_kwargs, out=target))
        return out

    def _host(self, value: Any, reads: list[HostArray], held: list[DeviceArray]) -> Any:
        if isinstance(value, DeviceArray):
            reads.append(value._view)
            held.append(value)
            if value.data.device_id != self.device and value.size:
                raise ValueError(
                    f"The device where the array resides ({value.data.device_id}) is different from the current device "
                    f"({self.device}). Peer access is not used here: copy it"
                )
            return value._view
        if isinstance(value, list | tuple):
            return type(value)(self._host(one, reads, held) for one in value)
        refuse(value)
        return value

    def compute(
        self,
        name: str,
        function: Callable[[], Any],
        reads: Sequence[HostArray],
        source: DeviceArray | None = None,
    ) -> Any:
        """The result of a function as device arrays: views of the source, or new ones that the function writes."""
        found = self._tried(function)
        if isinstance(found, tuple | list):
            return type(found)(
                self._made(name, partial(_part, function, k), np.asarray(one), reads, source)
                for k, one in enumerate(found)
            )
        return self._made(name, function, np.asarray(found), reads, source)

    def _made(
        self,
        name: str,
        function: Callable[[], Any],
        found: HostArray,
        reads: Sequence[HostArray],
        source: DeviceArray | None,
    ) -> DeviceArray:
        array = self.array
        if source is not None and found.size and np.may_share_memory(found, source._view):
            return source._same_memory(found)
        made = array(found.shape, found.dtype)
        target = made._view  # not the array itself: what is captured keeps no memory from going back to its pool
        if self.stream().capture is None:
            self.submit(name, reads, [target], lambda: np.copyto(target, found))
        else:
            self.submit(name, reads, [target], lambda: np.copyto(target, function()))
        return made

    def _tried(self, function: Callable[[], Any]) -> Any:
        """The function's result; of values that are not there yet, while a graph is captured."""
        self._is_trying = True
        try:
            with np.errstate(all="ignore"):
                return function()
        finally:
            self._is_trying = False

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
        work = Work(
            name,
            stream.device_id,
            [] if read is None else [read],
            [] if written is None else [written],
            lambda: None,
            everywhere=True,
        )
        work.run = lambda: self._copy(work, given, into)
        self.put(stream, work)
        if written is None:
            self.wait_for_host(name, stream)

    def _copy(self, work: Work, given: Bytes, into: Bytes) -> None:
        number, agent = self.checker.last_number, self.checker.operations[self.checker.last_number].agent
        if work.writes and work.writes[0].memory.device is None:
            poison = np.full(len(given), POISON, np.uint8)
            self._in_flight.append(InFlight(work.name, work.writes[0], agent, number, poison, given.copy()))
            into[...] = poison
        else:
            into[...] = given
        if work.reads and work.reads[0].memory.device is None:
            self._in_flight.append(InFlight(work.name, work.reads[0], agent, number, given.copy(), None))

    def _check_kind(self, kind: int, source: Memory | None, target: Memory | None) -> None:
        """Raise CUDARuntimeError where the memory is not what the kind of a copy says."""
        if kind == COPY_KINDS["memcpyDefault"]:
            return
        on = [memory is not None and memory.device is not None for memory in (source, target)]
        wanted = {0: [False, False], 1: [False, True], 2: [True, False], 3: [True, True]}.get(kind)
        if on != wanted:
            where = ["a device" if one else "the host" for one in on]
            raise CUDARuntimeError(
                f"cudaErrorInvalidValue: a copy of kind {kind} is asked for, but it is from {where[0]} to {where[1]}"
            )

    def upload(self, host: HostArray, view: HostArray, stream: Queue | None) -> None:
        """Copy an array of the host to a device array's cells."""
        if not view.size:
            return
        contiguous = host if host.flags.c_contiguous == view.flags.c_contiguous else np.asarray(host, order="C")
        if not contiguous.flags.c_contiguous:
            contiguous = np.asfortranarray(host)
        kind = COPY_KINDS["memcpyHostToDevice"]
        self.memcpy(_address(view), _address(contiguous), host.nbytes, kind, self.stream(stream), "set")

    def download(self, view: HostArray, host: HostArray, stream: Queue | None, blocking: bool) -> None:
        """Copy a device array's cells to an array of the host."""
        found = self.stream(stream)
        if not view.size:
            return
        if blocking and found.capture is not None:
            self.wait_for_host("get", found)
        if not (view.flags.c_contiguous and host.flags.c_contiguous):  # through a contiguous copy, as CuPy does
            made = self.array(view.shape, view.dtype)
            self.submit("copy", [view], [made._view], lambda: np.copyto(made._view, view), found)
            staged = np.empty(view.shape, view.dtype)
            self.memcpy(_address(staged), made.data.ptr, view.nbytes, 2, found, "get")
            host[...] = staged
            return
        self.memcpy(_address(host), _address(view), view.nbytes, 2, found, "get")
        if blocking:
            self.wait_for_host("get", found)


def _part(function: Callable[[], Any], k: int) -> Any:
    return function()[k]


def _address(array: HostArray) -> int:
    return cast(int, array.__array_interface__["data"][0])


def _bytes_at(address: int, nbytes: int) -> Bytes:
    raw: Any = (ctypes.c_uint8 * nbytes).from_address(address)
    return cast(Bytes, np.frombuffer(raw, np.uint8))
