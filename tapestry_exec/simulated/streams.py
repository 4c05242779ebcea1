"""Streams, events and graphs of simulated devices, as CuPy offers them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any, ClassVar, cast

from tapestry_exec.run import OrderingFault
from tapestry_exec.simulated.machine import Capture, CUDARuntimeError, Machine, Queue
from tapestry_exec.simulated.ordering import HOST, Clock


class Stream(Queue):
    """A stream of the current device."""

    machine: ClassVar[Machine]
    null: ClassVar[Any]

    def __init__(self, null: bool = False, non_blocking: bool = False) -> None:
        machine = self.machine
        device, number = -1 if null else machine.device, len(machine.streams) + 1
        super().__init__(device, 0 if null else 0x1000 * number, f"device {device} stream {number}", non_blocking)
        self._before: list[tuple[int, Queue]] = []
        if not null:
            machine.streams[self.ptr] = self

    def __enter__(self) -> Stream:
        self._before.append((self.machine.device, self.machine.stream()))
        return self.use()

    def __exit__(self, *args: Any) -> None:
        device, before = self._before.pop()
        self.machine.current[device] = before

    def use(self) -> Stream:
        """Make it the current stream of its device."""
        found, device = self.machine.stream(self), self.machine.device
        if found.device_id != device:
            raise RuntimeError(
                f"The device that the stream is created on ({found.device_id}) does not match with the current device "
                f"({device})"
            )
        self.machine.current[device] = found
        return self

    def synchronize(self) -> None:
        """The host waits until everything in it is done."""
        self.machine.wait_for_host("synchronize", self)

    def record(self, event: Event | None = None) -> Event:
        """Record an event behind the stream's operations so far."""
        made: Event = self.machine.cuda.Event() if event is None else event
        made.record(self)
        return made

    def wait_event(self, event: Event) -> None:
        """Let what comes next in it wait for what an event was last recorded behind; nothing, if it never was."""
        stream = self.machine.stream(self)
        if event.captured is not None:
            self._draw_in(stream, *event.captured)
        elif stream.capture is not None:
            stream.capture.check()
            if event.clock is not None:
                stream.capture.fail(
                    f"cudaErrorStreamCaptureIsolation: {stream.agent} is being captured and waits for an event that "
                    "was recorded before: record it while capturing"
                )
        elif event.clock is not None:
            self.machine.checker.join(stream.agent, event.clock)

    def _draw_in(self, stream: Queue, capture: Capture, token: object) -> None:
        """Wait for an event that was recorded while capturing, which brings this stream into the capture."""
        capture.check()
        if stream.capture is None:
            stream.capture = capture
            capture.members.append(stream)
        if stream.capture is not capture:
            stream.capture.is_valid = False
            capture.fail("cudaErrorStreamCaptureMerge: the event belongs to another capture")
        capture.entries.append(("wait", stream, token))

    def begin_capture(self) -> None:
        """Take down the next operations, of it and of streams that wait for it, instead of doing them."""
        if self.ptr == 0:
            raise RuntimeError("cannot capture on the default (legacy) stream")
        if self.capture is not None:
            self.capture.check()
            self.capture.fail("cudaErrorIllegalState: the stream is being captured already")
        self.capture = Capture(self, [self])

    def end_capture(self) -> Graph:
        """The graph of the operations taken down. A capture in which a call failed ends here too, without a graph."""
        capture = self.capture
        if capture is None or capture.origin is not self:
            raise CUDARuntimeError("cudaErrorIllegalState: no capture began with this stream")
        for stream in capture.members:
            stream.capture = None
        capture.check()
        return cast(Graph, self.machine.cuda.Graph(capture))

    def is_capturing(self) -> bool:
        """Whether it is being captured."""
        return self.machine.is_capturing(self)


class Event:
    """A place in a stream that others can wait for."""

    machine: ClassVar[Machine]

    def __init__(self, block: bool = False, disable_timing: bool = False) -> None:
        self.device = self.machine.device
        self.clock: Clock | None = None
        self.captured: tuple[Capture, object] | None = None
        self.seconds: float | None = None
        self.has_time = not disable_timing

    def record(self, stream: Any = None) -> None:
        """Record it behind the operations of a stream, by default the current one."""
        found = self.machine.stream(stream)
        if found.device_id != self.device:
            raise CUDARuntimeError(
                f"cudaErrorInvalidResourceHandle: an event of device {self.device} is recorded in {found.agent}"
            )
        if found.capture is not None:
            found.capture.check()
            token = object()
            self.captured = found.capture, token
            found.capture.entries.append(("record", found, token))
            return
        self.captured = None
        self.clock = dict(self.machine.clock_of(found))
        self.seconds = perf_counter()

    def synchronize(self) -> None:
        """The host waits for the operations before the event."""
        if self.captured is not None:
            self.captured[0].fail("cudaErrorCapturedEvent: the event was recorded while capturing")
        if self.clock is not None:
            self.machine.host_after(self.clock)

    @property
    def done(self) -> bool:
        """Whether the operations before it are done: each is when it is issued. Who asks does not come after them."""
        return True


def get_elapsed_time(start_event: Event, end_event: Event) -> float:
    """Milliseconds between two events that were recorded; here between the calls."""
    if not (start_event.has_time and end_event.has_time) or start_event.seconds is None or end_event.seconds is None:
        raise CUDARuntimeError("cudaErrorInvalidResourceHandle: both events must be recorded, with timing")
    return (end_event.seconds - start_event.seconds) * 1e3


class Graph:
    """The captured operations: a launch does them again, on whatever the memory holds then."""

    machine: ClassVar[Machine]

    def __init__(self, capture: Capture) -> None:
        self.machine.graphs += 1
        self._number, self._entries, self._origin = self.machine.graphs, capture.entries, capture.origin
        works = [work for kind, _, work in capture.entries if kind == "work"]
        self._pooled = {memory: memory.tenure for work in works for memory in work.memories()}
        self._check_joined(capture)

    def _check_joined(self, capture: Capture) -> None:
        """Every stream that was drawn in must be waited for before the end."""
        reached: dict[Queue, set[Queue]] = {stream: {stream} for stream in capture.members}
        fresh: dict[object, set[Queue]] = {}
        for kind, stream, what in self._entries:
            if kind == "record":
                fresh[what] = set(reached[stream])
            elif kind == "wait":
                reached[stream] |= fresh[what]
            elif kind == "work":
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

    def launch(self, stream: Any = None) -> None:
        """Do the captured operations, as one operation of a stream."""
        machine = self.machine
        checker, found = machine.checker, machine.stream(stream)
        if found.capture is not None:
            found.capture.check()
            found.capture.fail("cudaErrorStreamCaptureUnsupported: a graph in a graph is not simulated")
        base = dict(machine.clock_of(found))
        base |= {agent: max(number, base.get(agent, 0)) for agent, number in checker.clock(HOST).items()}
        agents: dict[Queue, str] = {}
        for _, branch, _ in self._entries:
            agents.setdefault(branch, f"graph {self._number} branch {len(agents)}, launched on {found.agent}")
        for agent in agents.values():
            checker.join(agent, base)
        with self._memory_held():
            self._replay(agents)
        for agent in agents.values():
            checker.join(found.agent, checker.clock(agent))

    def _replay(self, agents: dict[Queue, str]) -> None:
        checker = self.machine.checker
        recorded: dict[object, Clock] = {}
        for kind, branch, what in self._entries:
            if kind == "record":
                recorded[what] = dict(checker.clock(agents[branch]))
            elif kind == "wait":
                checker.join(agents[branch], recorded[what])
            elif kind == "mark":
                what()
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
