"""The makespan of a plan: its steps in the queues of devices and links, each as early as what it needs allows.

Every device has a queue for its work, one for what it sends and one for what it receives over each of its links, and
two for the host's memory. A queue runs one operation after the other, in the plan's order; an operation begins once the
queue is free and what it depends on is done: what wrote the cells that it reads, and what used the place that it
writes to. So copies run beside work where the plan's own dependencies let them::

    work of 0       first ████████ second █████████ third ███████
    0 sends                       ██ rows of first
    1 receives                    ██
    work of 1       first ██████    ·second ███████████ third █

Each operation's start is the longest path to it through dependencies and queues. To wait for all of the stage before
would only add to such paths, so that the makespan is at most what the stages take one after another, messages priced
alike; and it is at least what the busiest queue takes, and the longest chain of dependencies.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from msgspec import Struct
from msgspec.structs import force_setattr

from tapestry_plan.steps.layouts.mesh import Mesh, align
from tapestry_plan.steps.layouts.routes import number_ports
from tapestry_plan.steps.layouts.runs import count_copy_runs
from tapestry_plan.steps.step import (
    HOST,
    READ,
    WRITTEN,
    Alloc,
    Buffer,
    Compute,
    Copy,
    Fetch,
    Free,
    Reduce,
    Spill,
    Step,
    is_in_place,
    list_buffers,
)
from tapestry_sets.limits import Units, freeze_dicts

Queue = tuple[str, int, int]
"""What it runs ("work", "send", "receive", "to host" or "from host"), its device, and its link in `Mesh.ports`."""


class QueuedStep(NamedTuple):
    """A step that takes its time in some queues."""

    at: int
    """The step's number."""
    node: str
    """On whose behalf it runs: operations of one have a stage of their own in the plan's sum."""
    seconds: float
    queues: tuple[Queue, ...]
    after: frozenset[int]
    """The operations that must be done before, by their place in the list of all."""


class Schedule(Struct, frozen=True):
    """When each operation runs.

    Parameters
    ----------
    seconds : float
        Until the last one is done.
    critical_seconds : float
        The longest chain of operations each of which depends on the one before: were there a queue for each operation,
        it would take so long.
    busy_seconds : dict of (str, int, int) to float
        By queue: what it runs, its device and its link; the sum of its operations.
    starts : tuple of float
        By operation.
    """

    seconds: float
    critical_seconds: float
    busy_seconds: dict[Queue, float]
    starts: tuple[float, ...]

    def __post_init__(self) -> None:
        force_setattr(self, "busy_seconds", freeze_dicts(self.busy_seconds))

    def __repr__(self) -> str:
        busiest = "" if self.busiest is None else f", busiest {self.busiest[0]} of device {self.busiest[1]}"
        return (
            f"Schedule({len(self.starts)} operations in {Units().seconds(self.seconds)}, the longest chain "
            f"{Units().seconds(self.critical_seconds)}{busiest})"
        )

    @property
    def busiest(self) -> Queue | None:
        """The queue with the most to do; None where nothing takes any time."""
        return max(self.busy_seconds, key=lambda queue: self.busy_seconds[queue], default=None)


def run_queues(operations: Sequence[QueuedStep]) -> Schedule:
    """Run operations in their queues, in the order of their list."""
    ends: list[float] = []
    chains: list[float] = []
    free: defaultdict[Queue, float] = defaultdict(float)
    busy: defaultdict[Queue, float] = defaultdict(float)
    for one in operations:
        ready = max([ends[k] for k in one.after] + [free[queue] for queue in one.queues], default=0.0)
        ends.append(ready + one.seconds)
        chains.append(max((chains[k] for k in one.after), default=0.0) + one.seconds)
        for queue in one.queues:
            free[queue] = ends[-1]
            busy[queue] += one.seconds
    starts = tuple(end - one.seconds for end, one in zip(ends, operations, strict=True))
    return Schedule(max(ends, default=0.0), max(chains, default=0.0), dict(busy), starts)


def list_queued(
    steps: Sequence[Step], buffers: Iterable[Buffer], mesh: Mesh, work: Mapping[str, Sequence[float]]
) -> list[QueuedStep]:
    """The operations of a plan's steps, in an order in which queues may run them.

    Parameters
    ----------
    steps, buffers
        Of the plan. Each step that takes no time of its own, as a copy for a view, is an operation too.
    mesh : Mesh
    work : mapping
        By operator the seconds that each device's shard takes.
    """
    lister = _Lister(mesh, {buffer.id: buffer for buffer in buffers}, work)
    for at, step in enumerate(steps):
        lister.add(at, step)
    return lister.sort()


class _Place(NamedTuple):
    """Bytes of an arena, and the operations that used them last."""

    start: int
    stop: int
    users: frozenset[int]


class _Lister:
    """Finds what each step depends on, and what it takes."""

    def __init__(self, mesh: Mesh, buffers: Mapping[int, Buffer], work: Mapping[str, Sequence[float]]) -> None:
        self.mesh, self.buffers, self.work = mesh, buffers, work
        self.ports = number_ports(mesh)
        self.found: list[QueuedStep] = []
        self.written: defaultdict[int, list[int]] = defaultdict(list)
        self.read: defaultdict[int, list[int]] = defaultdict(list)
        self.before: dict[int, frozenset[int]] = {}
        """For each buffer who must be done with its place."""
        self.latest: dict[int, int] = {}
        """By the first buffer of a place the one that has it, where that is another one."""
        self.places: defaultdict[int, list[_Place]] = defaultdict(list)
        """For each device the places that buffers have left."""
        self.hosted: dict[int, int] = {}
        """For each spilled buffer the operation that brought it to the host."""
        self.exchanges: dict[int, tuple[str, str]] = {}
        """Of messages by their operation: who reads what."""
        self.started: set[tuple[object, ...]] = set()
        """Messages and merges that have begun: further parts of one have no latency, and no launch, of their own."""

    def add(self, at: int, step: Step) -> None:
        if isinstance(step, Alloc):
            self._take(self.buffers[step.buffer])
        elif isinstance(step, Free):
            self._give(self.buffers[step.buffer])
        elif isinstance(step, Spill):
            buffer = self.buffers[step.buffer]
            self.hosted[step.buffer] = len(self.found)
            self._append(at, "", self._time_host(buffer.nbytes), [("to host", buffer.device, 0)], [step.buffer], [])
        elif isinstance(step, Fetch):
            buffer = self.buffers[step.buffer]
            after = [self.hosted[step.spilled]]
            queues: list[Queue] = [("from host", buffer.device, 0)]
            self._append(at, "", self._time_host(buffer.nbytes), queues, [], [step.buffer], after)
        else:
            seconds, taken = self._time(step)
            if isinstance(step, Copy) and len(taken) > 1:
                self.exchanges[len(self.found)] = step.node, step.tensor
            self._append(at, step.node, seconds, taken, list_buffers(step, READ), list_buffers(step, WRITTEN))

    def _append(
        self,
        at: int,
        node: str,
        seconds: float,
        queues: Sequence[Queue],
        reads: Sequence[int],
        writes: Sequence[int],
        after: Iterable[int] = (),
    ) -> None:
        # A buffer that several steps fill is filled in other places by each, so that these do not wait for each other.
        needed = {*after, *(k for b in reads for k in self.written[b]), *(k for b in writes for k in self.read[b])}
        needed.update(k for b in (*reads, *writes) for k in self.before.get(b, ()))
        number = len(self.found)
        for b in reads:
            self.read[b].append(number)
        for b in writes:
            self.written[b].append(number)
        self.found.append(QueuedStep(at, node, seconds, tuple(queues), frozenset(needed)))

    # -- places ------------------------------------------------------------------------------------------

    def _take(self, buffer: Buffer) -> None:
        if buffer.within is not None:
            self.before[buffer.id] = self.before[buffer.within.buffer]
            return
        if buffer.over is not None:  # it is written by the last one that reads what lies there
            latest = self.latest.get(buffer.over, buffer.over)
            self.before[buffer.id] = frozenset((*self.read[latest], *self.written[latest]))
            self.latest[buffer.over] = buffer.id
            return
        start, stop = buffer.offset, buffer.offset + align(buffer.nbytes)
        left, users = [], set[int]()
        for place in self.places[buffer.device]:
            if place.stop <= start or stop <= place.start:
                left.append(place)
                continue
            users |= place.users
            if place.start < start:
                left.append(place._replace(stop=start))
            if stop < place.stop:
                left.append(place._replace(start=stop))
        self.places[buffer.device], self.before[buffer.id] = left, frozenset(users)

    def _give(self, buffer: Buffer) -> None:
        users = frozenset((*self.read[buffer.id], *self.written[buffer.id])) or self.before[buffer.id]
        if buffer.within is not None:  # who takes the host's place waits for them, too
            self.read[buffer.within.buffer] += users
            return
        if self.latest.get(buffer.place, buffer.id) != buffer.id:
            return
        self.places[buffer.device].append(_Place(buffer.offset, buffer.offset + align(buffer.nbytes), users))

    # -- times -------------------------------------------------------------------------------------------

    def _time(self, step: Copy | Compute | Reduce) -> tuple[float, list[Queue]]:
        """Seconds of a step, and the queues that it takes."""
        if isinstance(step, Compute):
            return self.work[step.node][step.device], [("work", step.device, 0)]
        if isinstance(step, Reduce):
            return self._time_merge(step), [("work", self.buffers[step.output].device, 0)]
        target = self.buffers[step.dst]
        nbytes = sum(region.size for region in step.regions) * np.dtype(target.dtype).itemsize
        if step.src == HOST:
            if not step.again:  # inputs and weights lie there from the start
                return 0.0, []
            return self._time_host(nbytes), [("from host", target.device, 0)]
        sender = self.buffers[step.src].device
        if sender == target.device:
            # What is written of a view takes its time in the operator's work.
            is_free = step.piece is not None or step.node == "(place)" or is_in_place(step, self.buffers)
            taken = 0 if is_free else nbytes
            return taken / self.mesh.devices[sender].memory_nbytes_per_second, [("work", sender, 0)]
        port = int(self.ports[sender, target.device])
        link = self.mesh.ports[port]
        wait = link.latency_seconds if self._starts("message", step.node, step.tensor, sender, target.device) else 0.0
        queues: list[Queue] = [("send", sender, port), ("receive", target.device, port)]
        pieces = count_copy_runs(step, self.buffers) * link.run_seconds if link.run_seconds else 0.0
        return wait + nbytes / link.nbytes_per_second + pieces, queues

    def _time_merge(self, step: Reduce) -> float:
        if len(step.inputs) == 1:
            return 0.0
        target, part = self.buffers[step.output], self.buffers[step.inputs[0]]
        nbytes = len(step.inputs) * sum(region.size for region in step.regions) * np.dtype(part.dtype).itemsize
        device = self.mesh.devices[target.device]
        start = device.launch_seconds + (len(step.inputs) + 1) * device.operand_seconds
        begins = self._starts("merge", step.node, target.tensor, target.device)
        return start * begins + nbytes / device.memory_nbytes_per_second

    def _starts(self, *key: object) -> bool:
        known = key in self.started
        self.started.add(key)
        return not known

    def _time_host(self, nbytes: int) -> float:
        return self.mesh.host.latency_seconds + nbytes / self.mesh.host.nbytes_per_second

    # -- order -------------------------------------------------------------------------------------------

    def sort(self) -> list[QueuedStep]:
        """The operations in the plan's order, but that the messages of one exchange go round by round.

        In round k each device sends to the one k before it, so that no two send to one device at once::

            steps     1→0 2→0 3→0   2→1 3→1 0→1   …     3→0 waits for 2→0, which waits for 1→0
            rounds    1→0 2→1 3→2 0→3   2→0 3→1 …
        """
        size = self.mesh.size
        first: dict[tuple[str, str], int] = {}
        """Of each exchange under way its first operation."""
        keys: list[tuple[int, int, int]] = []
        for number, one in enumerate(self.found):
            exchange = self.exchanges.get(number)
            if exchange is None:
                keys.append((number, 0, number))
                continue
            begin = first.setdefault(exchange, number)
            if any(k >= begin for k in one.after):  # it needs what came of an earlier part of the exchange
                begin = first[exchange] = number
            (_, sender, _), (_, receiver, _) = one.queues
            keys.append((begin, (sender - receiver) % size, number))
        order = sorted(range(len(self.found)), key=keys.__getitem__)
        place = {number: k for k, number in enumerate(order)}
        ordered = (self.found[number] for number in order)
        return [one._replace(after=frozenset(place[k] for k in one.after)) for one in ordered]
