"""Devices without a GPU: a namespace that stands in for CuPy, on which whatever uses CuPy runs under a checker.

Memory of devices is memory of this process, so that kernels run on its addresses (through the CPU shim), and array
functions are NumPy's. Every operation is done when it is issued, which is one order that is allowed; the checker
follows streams, events and waits byte by byte and raises `OrderingFault` at the first operation that another allowed
order could do too early. Copies to pinned memory bring their bytes only when somebody who came after them looks; until
then the bytes there are poison.

What is offered is CuPy's, with CuPy's parameters, and two functions more, which a backend may call where there are
such: ``mark_block(pointer, nbytes, name, live)`` when a buffer takes or leaves its place in an arena, and
``mark_host(pointer, nbytes, write)`` before the host reads or writes pinned memory.
"""

from __future__ import annotations

import ctypes
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib.resources import files
from time import perf_counter
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tapestry_exec import shim
from tapestry_exec.ordering import HOST, Access, Checker, Clock, Memory, OrderingFault
from tapestry_exec.simulated_arrays import SAME, DeviceArray, as_strided, check_places, functions_of, refuse

HostArray = NDArray[Any]
Bytes = NDArray[np.uint8]
ALIGNMENT_NBYTES = 512
"""Of every allocation, as CUDA's."""
POISON = 0xFF
MEMORY_NBYTES = 1 << 34
"""What a simulated device says that it has."""
MOST_FREED_NBYTES = 1 << 27
"""Memory that was freed is kept up to so many bytes, so that a late use of it is found."""

TRACED = files("tapestry_exec").joinpath("traced.h")
TRACING = ("-fsanitize=thread", "-nodefaultlibs", "-Wl,--no-as-needed", "-lstdc++", "-lm", "-lc", "-lgcc_s")
"""Options of g++ that let it report each load and store to the functions of traced.h, and to no library."""

COPY_KINDS = {
    "memcpyHostToHost": 0,
    "memcpyHostToDevice": 1,
    "memcpyDeviceToHost": 2,
    "memcpyDeviceToDevice": 3,
    "memcpyDefault": 4,
}
CAPTURE_MODES = {"streamCaptureModeGlobal": 0, "streamCaptureModeThreadLocal": 1, "streamCaptureModeRelaxed": 2}


class CUDARuntimeError(RuntimeError):
    """What the runtime refuses, by CUDA's name of the error."""

    def __init__(self, status: str) -> None:
        super().__init__(status)
        self.status = status


class CompileException(Exception):
    """A source that does not compile."""

    def __init__(self, msg: str, source: str, name: str, options: Sequence[str], backend: str = "nvrtc") -> None:
        super().__init__(msg)
        self._msg, self.source, self.name, self.options, self.backend = msg, source, name, options, backend

    def __str__(self) -> str:
        return self.get_message()

    def get_message(self) -> str:
        """What the compiler said."""
        return self._msg


@dataclass(eq=False)
class Work:
    """One operation of a stream.

    Parameters
    ----------
    name : str
    device : int
    reads, writes : list of Access
    run : callable
        Does it; a kernel returns what it read and wrote, which is checked afterwards.
    everywhere : bool
        Whether it reaches the memory of every device, as copies do.
    """

    name: str
    device: int
    reads: list[Access]
    writes: list[Access]
    run: Callable[[], tuple[list[Access], list[Access]] | None]
    everywhere: bool = False

    def memories(self) -> list[Memory]:
        """The memory that it is known to touch."""
        return [access.memory for access in [*self.reads, *self.writes]]


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
    """What is put into streams while a graph is being captured: work, and records of and waits for events."""

    origin: Stream
    entries: list[tuple[str, Stream, Any]] = field(default_factory=list)
    members: list[Stream] = field(default_factory=list)


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
        self.streams: dict[int, Stream] = {}
        self.nulls: list[Stream] = []
        self.current: list[Stream] = []
        self.allocator: Callable[[int], MemoryPointer]
        self.functions: dict[str, Any] = {}
        self.cuda: SimpleNamespace
        self._in_flight: list[InFlight] = []
        self._freed: list[Memory] = []
        self.graphs = 0
        self.pool: MemoryPool

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

    def allocate(self, nbytes: int) -> MemoryPointer:
        """Memory of the current allocator."""
        return self.allocator(nbytes)

    def host_view(
        self, data: MemoryPointer, dims: tuple[int, ...], dtype: np.dtype[Any], strides: Any, order: str
    ) -> HostArray:
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

    def stream(self, given: Any = None) -> Stream:
        """The stream given, by object or number, or the current one."""
        if given is None:
            return self.current[self.device]
        found = self.streams.get(given) if isinstance(given, int) else given
        if found is None and given == 0:
            return self.nulls[self.device]
        if not isinstance(found, Stream):
            raise CUDARuntimeError(f"cudaErrorInvalidResourceHandle: there is no stream {given!r}")
        return self.nulls[self.device] if found.device_id < 0 else found

    def clock_of(self, stream: Stream) -> Clock:
        """What the stream's next operation comes after: the default stream and blocking ones wait for each other."""
        null = self.nulls[stream.device_id]
        if stream is null:
            for other in self.streams.values():
                if other.device_id == stream.device_id and not other.is_non_blocking:
                    self.checker.join(stream.agent, self.checker.clock(other.agent))
        elif not stream.is_non_blocking:
            self.checker.join(stream.agent, self.checker.clock(null.agent))
        return self.checker.clock(stream.agent)

    def wait_for_host(self, why: str, stream: Stream | None = None) -> None:
        """The host waits until everything in a stream is done.

        Raises
        ------
        CUDARuntimeError
            When the stream is being captured.
        """
        found = self.stream(stream)
        if found.capture is not None:
            raise CUDARuntimeError(
                f"cudaErrorStreamCaptureUnsupported: {why} waits for {found.agent}, which is being captured"
            )
        self.host_after(self.clock_of(found))

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
        stream: Stream | None = None,
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
            Work(name, self.device, [cells(v) for v in reads if v.size], [cells(v) for v in writes if v.size], work),
        )

    def put(self, stream: Stream, work: Work) -> None:
        """Put an operation into a stream: it is done, or captured."""
        if stream.capture is not None:
            stream.capture.entries.append(("work", stream, work))
            return
        self.clock_of(stream)
        self.perform(stream.agent, work)

    def perform(self, agent: str, work: Work) -> None:
        """Check an operation against the agent's clock, and do it."""
        self.checker.join(agent, self.checker.clock(HOST))
        self._deliver(agent)
        if isinstance(work, KernelWork):
            reads, writes = work.traced()
            self._issue(agent, work, reads, writes)
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

    def mark_host(self, pointer: int, nbytes: int, write: bool) -> None:
        """The host is about to read or write pinned memory."""
        if not nbytes:
            return
        touched = [self.checker.span(pointer, nbytes, "the host")]
        self.checker.issue("host access", HOST, None, [] if write else touched, touched if write else [])

    # -- arrays ------------------------------------------------------------------------------------------

    def indices(self, indices: Any) -> Any:
        """Indices by value; while a graph is captured their values are not there yet."""
        if isinstance(indices, np.ndarray) and self.stream().capture is not None and self._is_trying:
            return np.zeros_like(indices)
        return indices

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
        self.submit(name, reads, [out._view], lambda: function(*host_args, **host_kwargs, out=out._view))
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
        array: type[DeviceArray] = self.cuda.ndarray
        if source is not None and found.size and np.may_share_memory(found, source._view):
            return source._same_memory(found)
        made = array(found.shape, found.dtype)
        if self.stream().capture is None:
            self.submit(name, reads, [made._view], lambda: np.copyto(made._view, found))
        else:
            self.submit(name, reads, [made._view], lambda: np.copyto(made._view, function()))
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

    def memcpy(self, dst: int, src: int, nbytes: int, kind: int, stream: Stream, name: str = "memcpyAsync") -> None:
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

    def upload(self, host: HostArray, view: HostArray, stream: Stream | None) -> None:
        """Copy an array of the host to a device array's cells."""
        if not view.size:
            return
        contiguous = host if host.flags.c_contiguous == view.flags.c_contiguous else np.asarray(host, order="C")
        if not contiguous.flags.c_contiguous:
            contiguous = np.asfortranarray(host)
        kind = COPY_KINDS["memcpyHostToDevice"]
        self.memcpy(_address(view), _address(contiguous), host.nbytes, kind, self.stream(stream), "set")

    def download(self, view: HostArray, host: HostArray, stream: Stream | None, blocking: bool) -> None:
        """Copy a device array's cells to an array of the host."""
        found = self.stream(stream)
        if not view.size:
            return
        if not (view.flags.c_contiguous and host.flags.c_contiguous):  # through a contiguous copy, as CuPy does
            made = self.cuda.ndarray(view.shape, view.dtype)
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
    address: int = array.__array_interface__["data"][0]
    return address


def _bytes_at(address: int, nbytes: int) -> Bytes:
    raw: Any = (ctypes.c_uint8 * nbytes).from_address(address)
    found: Bytes = np.frombuffer(raw, np.uint8)
    return found


# -- streams and events ------------------------------------------------------------------------------------


class Stream:
    """A stream of the current device."""

    machine: ClassVar[Machine]
    null: ClassVar[Any]

    def __init__(
        self, null: bool = False, non_blocking: bool = False, ptds: bool = False, priority: int | None = None
    ) -> None:
        machine = self.machine
        self.device_id = -1 if null else machine.device
        self.ptr = 0 if null else 0x1000 * (len(machine.streams) + 1)
        self.is_non_blocking, self.priority = non_blocking, priority or 0
        self.agent = f"device {self.device_id} stream {len(machine.streams) + 1}"
        self.capture: Capture | None = None
        self._before: list[tuple[int, Stream]] = []
        if not null:
            machine.streams[self.ptr] = self

    def __repr__(self) -> str:
        return f"<Stream {self.ptr} (device {self.device_id})>"

    def __enter__(self) -> Stream:
        device = self._check_device()
        self._before.append((device, self.machine.current[device]))
        self.machine.current[device] = self.machine.stream(self)
        return self

    def __exit__(self, *args: Any) -> None:
        device, before = self._before.pop()
        self.machine.current[device] = before

    def use(self) -> Stream:
        """Make it the current stream of its device."""
        self.machine.current[self._check_device()] = self.machine.stream(self)
        return self

    def _check_device(self) -> int:
        device = self.machine.device if self.device_id < 0 else self.device_id
        if device != self.machine.device:
            raise RuntimeError(
                f"The device that the stream is created on ({device}) does not match with the current device "
                f"({self.machine.device})"
            )
        return device

    @property
    def done(self) -> bool:
        """Whether everything in it is done, as far as the host can tell; asked again, it will be."""
        stream = self.machine.stream(self)
        return _asked(self.machine, self.machine.clock_of(stream))

    def synchronize(self) -> None:
        """The host waits until everything in it is done."""
        self.machine.wait_for_host("synchronize", self)

    def record(self, event: Event | None = None) -> Event:
        """Record an event behind what is in it."""
        made: Event = self.machine.cuda.Event() if event is None else event
        made.record(self)
        return made

    def wait_event(self, event: Event) -> None:
        """Let what comes next in it wait for what an event was last recorded behind; nothing, if it never was."""
        stream = self.machine.stream(self)
        if event.captured is not None:
            capture = event.captured[0]
            if stream.capture is None:
                stream.capture = capture
                capture.members.append(stream)
            if stream.capture is not capture:
                raise CUDARuntimeError("cudaErrorStreamCaptureMerge: the event belongs to another capture")
            capture.entries.append(("wait", stream, event.captured[1]))
        elif stream.capture is not None:
            if event.clock is not None:
                raise CUDARuntimeError(
                    f"cudaErrorStreamCaptureIsolation: {stream.agent} is being captured and waits for an event that "
                    "was recorded before: record it while capturing"
                )
        elif event.clock is not None:
            self.machine.checker.join(stream.agent, event.clock)

    def begin_capture(self, mode: int | None = None) -> None:
        """Take down what comes next, in it and in streams that wait for it, instead of doing it."""
        if self.ptr == 0:
            raise RuntimeError("cannot capture on the default (legacy) stream")
        if self.capture is not None:
            raise CUDARuntimeError("cudaErrorIllegalState: the stream is being captured already")
        self.capture = Capture(self, members=[self])

    def end_capture(self) -> Graph:
        """The graph of what was taken down."""
        capture = self.capture
        if capture is None or capture.origin is not self:
            raise CUDARuntimeError("cudaErrorIllegalState: no capture began with this stream")
        for stream in capture.members:
            stream.capture = None
        made: Graph = self.machine.cuda.Graph._of(capture)
        return made

    def is_capturing(self) -> bool:
        """Whether it is being captured."""
        return self.capture is not None


def _asked(machine: Machine, clock: Clock) -> bool:
    """Whether what a clock says is done, where the host may or may not know yet: drawn by the seed."""
    known = machine.checker.clock(HOST)
    if all(known.get(agent, 0) >= number for agent, number in clock.items()):
        return True
    if machine.random.random() < 0.5:
        return False
    machine.host_after(clock)
    return True


class Event:
    """A place in a stream that others can wait for."""

    machine: ClassVar[Machine]

    def __init__(self, block: bool = False, disable_timing: bool = False, interprocess: bool = False) -> None:
        self.device = self.machine.device
        self.clock: Clock | None = None
        self.captured: tuple[Capture, object] | None = None
        self.seconds: float | None = None
        self.has_time = not disable_timing
        self.ptr = id(self)

    def record(self, stream: Any = None) -> None:
        """Record it behind what is in a stream, by default the current one."""
        found = self.machine.stream(stream)
        if found.device_id != self.device:
            raise CUDARuntimeError(
                f"cudaErrorInvalidResourceHandle: an event of device {self.device} is recorded in {found.agent}"
            )
        if found.capture is not None:
            token = object()
            self.captured = found.capture, token
            found.capture.entries.append(("record", found, token))
            return
        self.captured = None
        self.clock = dict(self.machine.clock_of(found))
        self.seconds = perf_counter()

    @property
    def done(self) -> bool:
        """Whether what it was recorded behind is done, as far as the host can tell; asked again, it will be."""
        return self.clock is None or _asked(self.machine, self.clock)

    def synchronize(self) -> None:
        """The host waits for what it was recorded behind."""
        if self.captured is not None:
            raise CUDARuntimeError("cudaErrorCapturedEvent: the event was recorded while capturing")
        if self.clock is not None:
            self.machine.host_after(self.clock)


def get_elapsed_time(start_event: Event, end_event: Event) -> float:
    """Milliseconds between two events that were recorded; here between the calls."""
    if not (start_event.has_time and end_event.has_time) or start_event.seconds is None or end_event.seconds is None:
        raise CUDARuntimeError("cudaErrorInvalidResourceHandle: both events must be recorded, with timing")
    return (end_event.seconds - start_event.seconds) * 1e3


class Graph:
    """What was captured: launched, it is done again on whatever the memory holds then."""

    machine: ClassVar[Machine]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise RuntimeError("a graph is made by a stream's end_capture")

    @classmethod
    def _of(cls, capture: Capture) -> Graph:
        made = cls.__new__(cls)
        cls.machine.graphs += 1
        made._number = cls.machine.graphs
        made._entries, made._origin = capture.entries, capture.origin
        works = [work for kind, _, work in capture.entries if kind == "work"]
        made._pooled = {memory: memory.tenure for work in works for memory in work.memories()}
        made._check_joined(capture)
        return made

    _number: int
    _entries: list[tuple[str, Stream, Any]]
    _origin: Stream
    _pooled: dict[Memory, int]

    def _check_joined(self, capture: Capture) -> None:
        """Every stream that was drawn in must be waited for before the end."""
        reached: dict[Stream, set[Stream]] = {stream: {stream} for stream in capture.members}
        fresh: dict[object, set[Stream]] = {}
        for kind, stream, what in self._entries:
            if kind == "record":
                fresh[what] = set(reached[stream])
            elif kind == "wait":
                reached[stream] |= fresh[what]
            else:
                for other in reached.values():
                    other.discard(stream)
                for seen in fresh.values():
                    seen.discard(stream)
                reached[stream].add(stream)
        missing = [one.agent for one in capture.members if one not in reached[self._origin]]
        if missing:
            raise CUDARuntimeError(
                f"cudaErrorStreamCaptureUnjoined: {self._origin.agent} does not wait for the last work of {missing}"
            )

    def upload(self, stream: Any = None) -> None:
        """Prepare it for launching."""

    def launch(self, stream: Any = None) -> None:
        """Do what was captured, as one operation of a stream."""
        machine = self.machine
        checker, found = machine.checker, machine.stream(stream)
        if found.capture is not None:
            raise CUDARuntimeError("cudaErrorStreamCaptureUnsupported: a graph in a graph is not simulated")
        base = dict(machine.clock_of(found))
        base |= {agent: max(number, base.get(agent, 0)) for agent, number in checker.clock(HOST).items()}
        agents: dict[Stream, str] = {}
        for _, branch, _ in self._entries:
            agents.setdefault(branch, f"graph {self._number} branch {len(agents)}, launched on {found.agent}")
        for agent in agents.values():
            checker.join(agent, base)
        with self._memory_held():
            self._replay(agents)
        for agent in agents.values():
            checker.join(found.agent, checker.clock(agent))

    def _replay(self, agents: dict[Stream, str]) -> None:
        checker = self.machine.checker
        recorded: dict[object, Clock] = {}
        for kind, branch, what in self._entries:
            if kind == "record":
                recorded[what] = dict(checker.clock(agents[branch]))
            elif kind == "wait":
                checker.join(agents[branch], recorded[what])
            else:
                self.machine.perform(agents[branch], what)

    @contextmanager
    def _memory_held(self) -> Iterator[None]:
        """Temporaries of the graph lie in memory that its pool must not have handed out since."""
        for memory, tenure in self._pooled.items():
            if memory.tenure != tenure:
                raise OrderingFault(
                    f"graph {self._number} uses {memory.name}, which its pool gave to others after the capture; keep a "
                    "pool of its own for the graph"
                )
        freed = [memory for memory in self._pooled if not memory.is_live and memory.in_pool]
        for memory in freed:
            memory.is_live = True
        try:
            yield
        finally:
            for memory in freed:
                memory.is_live = False


# -- devices and memory ------------------------------------------------------------------------------------


class Device:
    """A simulated device."""

    machine: ClassVar[Machine]

    def __init__(self, device: int | None = None) -> None:
        self.id = self.machine.device if device is None else int(device)
        if not 0 <= self.id < self.machine.device_count:
            raise CUDARuntimeError(f"cudaErrorInvalidDevice: there is no device {self.id}")
        self._before: list[int] = []

    def __repr__(self) -> str:
        return f"<CUDA Device {self.id}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Device) and other.id == self.id

    def __hash__(self) -> int:
        return self.id

    def __int__(self) -> int:
        return self.id

    def __enter__(self) -> Device:
        self._before.append(self.machine.device)
        self.machine.device = self.id
        return self

    def __exit__(self, *args: Any) -> None:
        self.machine.device = self._before.pop()

    def use(self) -> None:
        """Make it the current device."""
        self.machine.device = self.id

    def synchronize(self) -> None:
        """The host waits until everything in all of its streams is done."""
        for stream in [*self.machine.streams.values(), self.machine.nulls[self.id]]:
            if stream.device_id == self.id:
                self.machine.wait_for_host("synchronize", stream)

    @property
    def mem_info(self) -> tuple[int, int]:
        """Free and total memory in bytes."""
        return MEMORY_NBYTES, MEMORY_NBYTES

    @property
    def compute_capability(self) -> str:
        """As 90 for 9.0."""
        return "90"


class BaseMemory:
    """Bytes on a device."""

    machine: ClassVar[Machine]
    ptr: int
    size: int
    device_id: int

    @property
    def device(self) -> Any:
        return self.machine.cuda.Device(self.device_id)


class DeviceMemory(BaseMemory):
    """Memory of the current device, freed with this object."""

    def __init__(self, size: int) -> None:
        self.size, self.device_id = size, self.machine.device
        name = f"memory {len(self.machine.checker.blocks)} of device {self.device_id}"
        self._memory = self.machine.take(size, name, self.device_id) if size else None
        self.ptr = 0 if self._memory is None else self._memory.start

    def __del__(self) -> None:
        if self._memory is not None:
            self.machine.free(self._memory)


class UnownedMemory(BaseMemory):
    """Memory that somebody else owns."""

    def __init__(self, ptr: int, size: int, owner: Any, device_id: int = -1) -> None:
        self.ptr, self.size, self._owner = ptr, size, owner
        found = self.machine.checker.at(ptr)
        if found is None or found.device is None:
            raise CUDARuntimeError(f"cudaErrorInvalidValue: {ptr:#x} is no address of a device")
        self.device_id = found.device if device_id < 0 else device_id


class PooledMemory(BaseMemory):
    """Memory of a pool, to which it goes back with this object."""

    def __init__(self, pool: MemoryPool, memory: Memory, key: tuple[int, int]) -> None:
        self._pool, self._memory, self._key = pool, memory, key
        self.ptr, self.size, self.device_id = memory.start, memory.nbytes, key[0]

    def __del__(self) -> None:
        self._pool._back(self._memory, self._key)


class MemoryPointer:
    """A place in memory of a device."""

    def __init__(self, mem: BaseMemory, offset: int) -> None:
        self.mem, self.ptr = mem, mem.ptr + offset
        self.device_id = mem.device_id

    @property
    def device(self) -> Any:
        return self.mem.device

    def __int__(self) -> int:
        return self.ptr

    def __add__(self, offset: int) -> MemoryPointer:
        return MemoryPointer(self.mem, self.ptr - self.mem.ptr + offset)

    __radd__ = __add__

    def __sub__(self, offset: int) -> MemoryPointer:
        return self + -offset

    def copy_from_device_async(self, src: MemoryPointer, size: int, stream: Any = None) -> None:
        """Copy bytes of a device here."""
        machine = self.mem.machine
        machine.memcpy(self.ptr, src.ptr, size, 3, machine.stream(stream), "copy_from_device_async")

    def memset_async(self, value: int, size: int, stream: Any = None) -> None:
        """Set bytes."""
        machine = self.mem.machine
        _memset(machine, self.ptr, value, size, machine.stream(stream))


class MemoryPool:
    """Memory that is kept when it is freed, and handed out again to the stream that it was allocated on."""

    machine: ClassVar[Machine]

    def __init__(self, allocator: Any = None) -> None:
        self._kept: dict[tuple[int, int], list[Memory]] = {}
        self._used = 0
        self._limit = 0

    def malloc(self, size: int) -> MemoryPointer:
        """Memory of the current device, for the current stream."""
        machine = self.machine
        key = machine.device, machine.stream().ptr
        if not size:
            return MemoryPointer(machine.cuda.Memory(0), 0)
        wanted = -(-size // ALIGNMENT_NBYTES) * ALIGNMENT_NBYTES
        kept = self._kept.setdefault(key, [])
        found = next((memory for memory in reversed(kept) if memory.nbytes >= wanted), None)
        if found is None:
            if self._limit and self.total_bytes() + wanted > self._limit:
                raise MemoryError(f"the pool may hold {self._limit:,} B; {wanted:,} B more are asked for")
            name = f"pool memory {len(machine.checker.blocks)} of device {key[0]}"
            found = machine.take(wanted, name, key[0])
        else:
            kept.remove(found)
        found.is_live, found.in_pool = True, False
        found.tenure += 1
        if found.written is not None:
            found.written[:] = False
        self._used += found.nbytes
        return MemoryPointer(machine.cuda.PooledMemory(self, found, key), 0)

    def _back(self, memory: Memory, key: tuple[int, int]) -> None:
        memory.is_live, memory.in_pool = False, True
        self._kept.setdefault(key, []).append(memory)
        self._used -= memory.nbytes

    def free_all_blocks(self, stream: Any = None) -> None:
        """Give back what nobody uses."""
        for kept in self._kept.values():
            for memory in kept:
                memory.tenure += 1
                memory.in_pool = False
                self.machine.free(memory)
            kept.clear()

    def used_bytes(self) -> int:
        return self._used

    def free_bytes(self) -> int:
        return sum(memory.nbytes for kept in self._kept.values() for memory in kept)

    def total_bytes(self) -> int:
        return self.used_bytes() + self.free_bytes()

    def n_free_blocks(self) -> int:
        return sum(map(len, self._kept.values()))

    def set_limit(self, size: int | None = None, fraction: float | None = None) -> None:
        self._limit = int(size or 0) if fraction is None else int(fraction * MEMORY_NBYTES)

    def get_limit(self) -> int:
        return self._limit


def _pinned(machine: Machine, size: int) -> Any:
    """Memory of the host that copies reach while the host goes on; it has the buffer protocol, `ptr` and `size()`."""
    memory = machine.take(max(size, 1), f"pinned memory {len(machine.checker.blocks)}", None)
    kind: Any = ctypes.c_uint8 * memory.nbytes

    class PinnedMemoryPointer(kind):  # type: ignore[misc]
        ptr = memory.start
        mem = memory

        def size(self) -> int:
            return memory.nbytes

    return PinnedMemoryPointer.from_address(memory.start)


def _memset(machine: Machine, ptr: int, value: int, size: int, stream: Stream) -> None:
    if not size:
        return
    span = machine.checker.span(ptr, size, "memset")

    def run() -> None:
        span.of(span.memory.data)[...] = value & 0xFF

    machine.put(stream, Work("memset", stream.device_id, [], [span], run))


# -- kernels -----------------------------------------------------------------------------------------------


class TracedBlock(ctypes.Structure):
    """As in traced.h."""

    _fields_: ClassVar = [
        ("start", ctypes.c_uint64),
        ("nbytes", ctypes.c_uint64),
        ("touched", ctypes.c_void_p * 2),
        ("low", ctypes.c_uint64 * 2),
        ("high", ctypes.c_uint64 * 2),
    ]


@dataclass(frozen=True, slots=True)
class KernelLaunch:
    """A launch as the shim takes it."""

    entry: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    args: tuple[Any, ...]
    shared_nbytes: int


class KernelWork(Work):
    """A launch of a raw kernel; what it touches is seen while it runs."""

    def __init__(self, machine: Machine, module: shim.Module, launch: KernelLaunch, seed: int) -> None:
        super().__init__(f"kernel {launch.entry}", machine.device, [], [], lambda: None)
        self._machine, self._module, self._launch, self._seed = machine, module, launch, seed

    def memories(self) -> list[Memory]:
        """Where its arguments that are addresses lie."""
        numbers = [int(arg) for arg in self._launch.args if isinstance(arg, np.uint64)]
        return [memory for memory in map(self._machine.checker.at, numbers) if memory is not None]

    def traced(self) -> tuple[list[Access], list[Access]]:
        """Run it, and tell which bytes it read and wrote."""
        memories = list(self._machine.checker.blocks)
        maps = [(np.zeros(m.nbytes, np.bool_), np.zeros(m.nbytes, np.bool_)) for m in memories]
        table = (TracedBlock * max(len(memories), 1))()
        for row, memory, pair in zip(table, memories, maps, strict=False):
            row.start, row.nbytes = memory.start, memory.nbytes
            for k in range(2):
                row.touched[k], row.low[k], row.high[k] = pair[k].ctypes.data, memory.nbytes, 0
        library = ctypes.CDLL(str(self._module.path))
        library.traced_blocks(table, ctypes.c_size_t(len(memories)))
        try:
            self._module.launch(self._launch, self._seed)
        finally:
            library.traced_blocks(None, ctypes.c_size_t(0))
        found: tuple[list[Access], list[Access]] = [], []
        for row, memory, pair in zip(table, memories, maps, strict=False):
            for k in range(2):
                low, high = row.low[k], row.high[k]
                if low < high:
                    found[k].append(Access(memory, low, (high - low,), (1,), pair[k][low:high]))
        return found


class RawModule:
    """CUDA C++ that is compiled by the CPU shim; its kernels report what they touch."""

    machine: ClassVar[Machine]

    def __init__(
        self,
        code: str | None = None,
        *,
        path: str | None = None,
        options: tuple[str, ...] = (),
        backend: str = "nvrtc",
        translate_cucomplex: bool = False,
        enable_cooperative_groups: bool = False,
        name_expressions: Any = None,
        jitify: bool | None = None,
    ) -> None:
        if code is None or path is not None:
            raise TypeError("RawModule: give code; a path to a binary is not simulated")
        self.code, self.options = code, tuple(options)
        self._module: shim.Module | None = None

    def compile(self, log_stream: Any = None) -> None:
        """Compile it now; `CompileException` has the log."""
        if self._module is None:
            text = TRACED.read_text(encoding="utf-8")
            defines = [option for option in self.options if option.startswith("-D")]
            folder = shim.cache_folder()
            header = folder / f"traced-{abs(hash(text)) & 0xFFFFFFFF:08x}.h"
            if not header.exists():
                header.write_text(text, encoding="utf-8")
            try:
                self._module = shim.compile_source(self.code, options=(*TRACING, "-include", str(header), *defines))
            except shim.ShimError as error:
                raise CompileException(error.log, self.code, "kernels.cu", self.options) from error

    def get_function(self, name: str) -> RawKernel:
        """A kernel by its name; CUDARuntimeError when there is none."""
        self.compile()
        assert self._module is not None, "compiled above"
        if name not in self._module.entries:
            raise CUDARuntimeError(f"CUDA_ERROR_NOT_FOUND: named symbol not found: {name}")
        return RawKernel(self.machine, self._module, name)


class RawKernel:
    """A kernel of a module."""

    def __init__(self, machine: Machine, module: shim.Module, name: str) -> None:
        self._machine, self._module, self.name = machine, module, name

    def __call__(self, grid: tuple[int, ...], block: tuple[int, ...], args: Sequence[Any], **kwargs: Any) -> None:
        """Launch it on the current stream; `shared_mem` is the only keyword."""
        shared = kwargs.pop("shared_mem", 0)
        if kwargs:
            raise TypeError(f"unexpected keywords {list(kwargs)}; the stream is the current one")
        machine = self._machine
        stream = machine.stream()
        if stream.device_id != machine.device:
            raise RuntimeError(f"the current device is {machine.device}, {stream.agent} belongs to another one")
        launch = KernelLaunch(self.name, _three(grid), _three(block), tuple(map(_argument, args)), shared)
        machine.put(stream, KernelWork(machine, self._module, launch, machine.random.getrandbits(32)))


def _three(extents: Sequence[int]) -> tuple[int, int, int]:
    x, y, z = (*extents, 1, 1)[:3]
    return int(x), int(y), int(z)


def _argument(value: Any) -> Any:
    """An argument as the kernel gets it: arrays as the address of their first cell."""
    if isinstance(value, DeviceArray | MemoryPointer):
        return np.uint64(value.data.ptr if isinstance(value, DeviceArray) else value.ptr)
    if isinstance(value, np.ndarray) and value.size != 1:
        raise TypeError(f"You are trying to pass a numpy.ndarray of shape {value.shape} as a kernel parameter")
    return np.array(value) if isinstance(value, np.ndarray) else value


# -- the namespace -----------------------------------------------------------------------------------------


def cupy(devices: int = 2, seed: int = 0, *, peers: bool = True, unwritten: bool = False) -> Any:
    """A namespace that stands in for CuPy, with devices of its own.

    Parameters
    ----------
    devices : int
        How many there are; 0 for a machine without any.
    seed : int
        Of what a run on a GPU leaves to chance: the order of a kernel's threads, and what an event says that is asked.
    peers : bool
        Whether devices can be given access to each other's memory.
    unwritten : bool
        Also find reads of memory that nothing wrote since it was allocated, or taken by a buffer.

    Returns
    -------
    module

    Examples
    --------
    >>> xp = cupy()
    >>> a = xp.arange(6, dtype=xp.float32).reshape(2, 3)
    >>> (a * 2 + 1).get().tolist()
    [[1.0, 3.0, 5.0], [7.0, 9.0, 11.0]]
    >>> one, two = xp.cuda.Stream(non_blocking=True), xp.cuda.Stream(non_blocking=True)
    >>> with one:
    ...     a *= 2
    >>> with two:
    ...     try:
    ...         b = a + 1
    ...     except OrderingFault as fault:
    ...         print(str(fault).split(":")[1])
     let device 0 stream 2 wait for an event that device 0 stream 1 records after that operation
    """
    machine = Machine(devices, seed, peers, unwritten)
    made: Any = ModuleType("cupy")
    cuda = machine.cuda = SimpleNamespace()
    kinds = (
        DeviceMemory,
        UnownedMemory,
        PooledMemory,
        MemoryPool,
        Device,
        Stream,
        Event,
        Graph,
        RawModule,
        DeviceArray,
    )
    bound = {kind.__name__: type(kind.__name__, (kind,), {"machine": machine}) for kind in kinds}
    cuda.ndarray = bound["DeviceArray"]
    for name in ("UnownedMemory", "PooledMemory", "MemoryPool", "Device", "Stream", "Event", "Graph"):
        setattr(cuda, name, bound[name])
    cuda.Memory, cuda.MemoryPointer = bound["DeviceMemory"], MemoryPointer
    _start(machine, cuda)
    _memory_functions(machine, cuda)
    cuda.runtime = _runtime(machine)
    cuda.compiler = SimpleNamespace(CompileException=CompileException)
    cuda.get_elapsed_time, cuda.is_available = get_elapsed_time, lambda: devices > 0
    machine.functions = functions_of(machine, cuda.ndarray)
    for name, function in machine.functions.items():
        setattr(made, name, function)
    for name in SAME.split():
        setattr(made, name, getattr(np, name))
    made.ndarray, made.RawModule, made.cuda = cuda.ndarray, bound["RawModule"], cuda
    made.lib = SimpleNamespace(stride_tricks=SimpleNamespace(as_strided=as_strided))
    made.is_available, made.__version__ = cuda.is_available, "14.2.0"
    made.get_default_memory_pool = lambda: machine.pool
    made.mark_block, made.mark_host, made.checker = machine.checker.mark, machine.mark_host, machine.checker
    return made


def _start(machine: Machine, cuda: Any) -> None:
    """The default streams, and what is current."""
    stream: Any = cuda.Stream
    for device in range(machine.device_count):
        null = stream(null=True)
        null.device_id, null.agent = device, f"device {device} default stream"
        machine.nulls.append(null)
    machine.current = list(machine.nulls)
    stream.null = stream(null=True)

    def get_current_stream(device_id: int = -1) -> Stream:
        return machine.current[machine.device if device_id < 0 else device_id]

    cuda.get_current_stream = get_current_stream


def _memory_functions(machine: Machine, cuda: Any) -> None:
    """Allocators: a pool by default."""
    machine.pool = cuda.MemoryPool()
    machine.allocator = machine.pool.malloc

    def set_allocator(allocator: Any = None) -> None:
        machine.allocator = allocator or (lambda size: MemoryPointer(cuda.Memory(size), 0))

    @contextmanager
    def using_allocator(allocator: Any = None) -> Iterator[None]:
        before = machine.allocator
        set_allocator(allocator)
        try:
            yield
        finally:
            machine.allocator = before

    cuda.set_allocator, cuda.using_allocator = set_allocator, using_allocator
    cuda.get_allocator = lambda: machine.allocator
    cuda.alloc = lambda size: machine.allocate(size)
    cuda.alloc_pinned_memory = lambda size: _pinned(machine, size)


def _runtime(machine: Machine) -> SimpleNamespace:
    """The functions of CUDA's runtime that are called by number and address."""

    def getDeviceCount() -> int:
        if not machine.device_count:
            raise CUDARuntimeError("cudaErrorNoDevice: no CUDA-capable device is detected")
        return machine.device_count

    def getDeviceProperties(device: int) -> dict[str, Any]:
        numbers = {"major": 9, "minor": 0, "multiProcessorCount": 2, "warpSize": 32, "maxThreadsPerBlock": 1024}
        return {"name": b"simulated device", "totalGlobalMem": MEMORY_NBYTES, "sharedMemPerBlock": 49152, **numbers}

    def memcpyAsync(dst: int, src: int, size: int, kind: int, stream: int) -> None:
        machine.memcpy(dst, src, size, kind, machine.stream(stream))

    def memcpy(dst: int, src: int, size: int, kind: int) -> None:
        stream = machine.stream(0)
        machine.memcpy(dst, src, size, kind, stream, "memcpy")
        machine.wait_for_host("memcpy", stream)

    def memcpyPeerAsync(dst: int, dstDevice: int, src: int, srcDevice: int, size: int, stream: int) -> None:
        for address, device in ((dst, dstDevice), (src, srcDevice)):
            memory = machine.checker.at(address)
            if memory is None or memory.device != device:
                raise CUDARuntimeError(f"cudaErrorInvalidValue: {address:#x} does not lie on device {device}")
        machine.memcpy(dst, src, size, COPY_KINDS["memcpyDefault"], machine.stream(stream), "memcpyPeerAsync")

    def memsetAsync(ptr: int, value: int, size: int, stream: int) -> None:
        _memset(machine, ptr, value, size, machine.stream(stream))

    def deviceCanAccessPeer(device: int, peerDevice: int) -> int:
        return int(machine.may_be_peers and device != peerDevice)

    def deviceEnablePeerAccess(peerDevice: int) -> None:
        if not deviceCanAccessPeer(machine.device, peerDevice):
            raise CUDARuntimeError("cudaErrorPeerAccessUnsupported: peer access is not supported between these devices")
        machine.checker.peers.add((machine.device, peerDevice))

    def setDevice(device: int) -> None:
        machine.device = machine.cuda.Device(device).id

    def deviceSynchronize() -> None:
        machine.cuda.Device().synchronize()

    given = dict(locals())
    del given["machine"]
    return SimpleNamespace(
        **given,
        **COPY_KINDS,
        **CAPTURE_MODES,
        CUDARuntimeError=CUDARuntimeError,
        getDevice=lambda: machine.device,
        memGetInfo=lambda: (MEMORY_NBYTES, MEMORY_NBYTES),
        driverGetVersion=lambda: 13000,
        runtimeGetVersion=lambda: 13000,
    )
