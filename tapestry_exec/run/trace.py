"""The record of a run: its timeline and Chrome traces."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from math import inf
from typing import Any, NamedTuple, TypeVar, cast

import msgspec

from tapestry_plan.steps import align
from tapestry_sets.limits import check_arguments, check_target, mend_calls, replace_file, tell_fields

T = TypeVar("T")


class Phase(NamedTuple):
    """A part of a copy between devices: pack on the source, move to the target, unpack there.

    A move lasts until the target begins to unpack, so that it is longer where that has other work first. Times are in
    seconds since the run's first step.

    Examples
    --------
    >>> import numpy as np
    >>> from tapestry_exec import run
    >>> from tapestry_plan import Graph, Mesh, ops, plan
    >>> g = Graph()
    >>> _ = g.output(ops.relu(ops.relu(g.input("x", (4, 6)), name="rows").T, name="columns"), "y")
    >>> p = plan(g, Mesh(2), fix={"rows": {"i0": 2}, "columns": {"i0": 2}})
    >>> timeline = run(p, {"x": np.ones((4, 6), np.float32)}).timeline
    >>> [[(phase.kind, phase.device) for phase in event.phases] for event in timeline if event.phases]
    [[('pack', 1), ('move', 0), ('unpack', 0)], [('pack', 0), ('move', 1), ('unpack', 1)]]
    """

    kind: str
    device: int
    start: float
    seconds: float


@mend_calls
class TraceEvent(NamedTuple):
    """One step of a run: times in seconds since the run's first step.

    The kinds are place (inputs and constants from the host), alloc, copy, compute, reduce, free, spill (to the
    host for want of room) and fetch (back from there). A copy between devices has phases; the event's device
    is the one that receives, and `waited` are the seconds that it stood still until the cells were there.

    Examples
    --------
    >>> import numpy as np
    >>> from tapestry_exec import run
    >>> from tapestry_plan import Graph, Mesh, ops, plan
    >>> g = Graph()
    >>> _ = g.output(ops.relu(g.input("x", (4, 6))), "y")
    >>> timeline = run(plan(g, Mesh(1)), {"x": np.ones((4, 6), np.float32)}).timeline
    >>> [(event.kind, event.nbytes) for event in timeline]
    [('alloc', 96), ('place', 96), ('alloc', 0), ('compute', 0), ('free', 0)]
    """

    step: int
    kind: str
    node: str
    device: int
    start: float
    seconds: float
    nbytes: int
    phases: tuple[Phase, ...] = ()
    waited: float = 0.0

    def __repr__(self) -> str:
        return tell_fields(self, self._fields)


new: Callable[[type[T], tuple[Any, ...]], T] = cast(Any, tuple.__new__)
"""A named tuple of all its fields, which nothing counts again: there is an event for each step."""


def set_time(
    event: TraceEvent,
    start: float,
    seconds: float,
    packing: float = 0.0,
    unpacking: float | None = None,
    waited: float = 0.0,
) -> TraceEvent:
    """An event at another time.

    Parameters
    ----------
    event : TraceEvent
    start, seconds : float
    packing, unpacking : float
        Of a copy between two devices: what packing took, and when unpacking began; as it began where nothing is packed.
    waited : float

    Examples
    --------
    >>> set_time(TraceEvent(0, "compute", "relu", 0, 0.0, 0.1, 0), 2.0, 0.5)[4:6]
    (2.0, 0.5)
    """
    phases = event.phases
    if phases:
        pack, move, unpack = phases
        moving, came = start + packing, start if unpacking is None else unpacking
        phases = (
            new(Phase, (*pack[:2], start, packing)),
            new(Phase, (*move[:2], moving, came - moving)),
            new(Phase, (*unpack[:2], came, start + seconds - came)),
        )
    return new(TraceEvent, (*event[:4], start, seconds, event.nbytes, phases, waited))


class Wait(NamedTuple):
    """A device that stood still until cells of another one were there.

    Examples
    --------
    >>> import numpy as np
    >>> from tapestry_exec import run
    >>> from tapestry_plan import Graph, Mesh, ops, plan
    >>> g = Graph()
    >>> _ = g.output(ops.relu(ops.relu(g.input("x", (4, 6)), name="rows").T, name="columns"), "y")
    >>> p = plan(g, Mesh(2), fix={"rows": {"i0": 2}, "columns": {"i0": 2}})
    >>> waits = run(p, {"x": np.ones((4, 6), np.float32)}).waits
    >>> sorted((wait.device, wait.peer, wait.node, wait.nbytes) for wait in waits)
    [(0, 1, 'columns', 24), (1, 0, 'columns', 24)]
    """

    device: int
    """The one that waited."""
    peer: int
    """The one whose cells it waited for."""
    step: int
    """The copy, by the plan's number."""
    node: str
    nbytes: int
    start: float
    """In seconds since the run's first step."""
    seconds: float


def list_waits(timeline: Sequence[TraceEvent]) -> tuple[Wait, ...]:
    """For whom devices waited at each copy between two of them, the longest wait first.

    Parameters
    ----------
    timeline : sequence of TraceEvent

    Returns
    -------
    tuple of Wait
        In one loop over all devices nobody waits: what comes is there already, and the times are near 0.
    """
    waits = [
        Wait(
            event.device,
            event.phases[0].device,
            event.step,
            event.node,
            event.nbytes,
            came - event.waited,
            event.waited,
        )
        for event in timeline
        if event.phases
        for came in [event.phases[-1].start]
    ]
    return tuple(sorted(waits, key=lambda wait: -wait.seconds))


def on_devices(timeline: Sequence[TraceEvent], times: Sequence[Phase], counts: Sequence[int]) -> list[TraceEvent]:
    """A timeline with the times of what its steps put into devices' queues.

    Parameters
    ----------
    timeline : sequence of TraceEvent
        As the host saw it.
    times : sequence of Phase
        Operations in the order in which they were put into queues.
    counts : sequence of int
        How many of them there were before the first step and after each.

    Examples
    --------
    >>> event = TraceEvent(0, "compute", "relu", 0, 0.0, 0.1, 0)
    >>> [event] = on_devices([event], [Phase("compute", 0, 2.0, 1.0)], [0, 1])
    >>> event.start, event.seconds
    (2.0, 1.0)
    """
    found = []
    for event, first, after in zip(timeline, counts, counts[1:], strict=False):
        mine = times[first:after]
        if mine:
            start = min(part.start for part in mine)
            stop = max(part.start + part.seconds for part in mine)
            event = event._replace(start=start, seconds=stop - start, phases=_phases(event, mine))
        found.append(event)
    return found


def _phases(event: TraceEvent, parts: Sequence[Phase]) -> tuple[Phase, ...]:
    """The pack, the move and the unpack of a copy between devices.

    What is sent as it lies needs no pack, and what goes to host memory is unpacked by the host.
    """
    if not event.phases:
        return ()
    out, into = ([part for part in parts if (part.kind == "pack") is packs] for packs in (True, False))
    pack = out[0] if out else Phase("pack", event.phases[0].device, parts[0].start, 0.0)
    unpack = into[-1] if into else event.phases[-1]
    moves = [*out[1:], *into[:-1]] or [Phase("move", event.device, pack.start + pack.seconds, 0.0)]
    start = min(part.start for part in moves)
    stop = max(part.start + part.seconds for part in moves)
    return pack, Phase("move", event.device, start, stop - start), unpack


# ------------------------------------------------------------------------------------------------ Chrome's trace

ROWS = ("compute", "reduce", "pack", "move", "unpack", "copy", "place", "spill", "fetch", "alloc", "free")
"""The rows of each device, from the top."""
COUNTED = {"copy": "bytes received", "place": "bytes placed", "spill": "bytes spilled", "fetch": "bytes spilled"}
"""The counter to which the bytes of an event of each kind are added."""
IN_ARENA = "bytes in the arena"


@check_arguments(path="give the path of a file")
def write_trace(timeline: Sequence[TraceEvent], path: str | os.PathLike[str], clock_error: float = 0.0) -> None:
    """Write a timeline as a Chrome trace, to be opened at https://ui.perfetto.dev or chrome://tracing.

    Every device is a process with a row for each kind of work, and with counters: bytes received from other
    devices, placed from the host, and spilled to the host and back, each up to then, and bytes of buffers that
    lie in the arena at the time. A copy between devices is a pack on the source's row, joined by an arrow to the
    move and the unpack of the target. Times are in microseconds.

    Parameters
    ----------
    timeline : sequence of TraceEvent
        As `RunResult.timeline` has it.
    path : path of a file
        Replaced if it is there, once all is written.
    clock_error : float
        As `RunResult.clock_error` has it; the trace's metadata state it.

    Raises
    ------
    ValueError
        For a path that cannot be written, and a `clock_error` that is below 0 or no number of seconds.

    Examples
    --------
    >>> import json
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from tapestry_exec import TraceEvent, write_trace
    >>> timeline = [TraceEvent(0, "compute", "relu", 0, 0.0, 0.5, 96)]
    >>> with TemporaryDirectory() as folder:
    ...     write_trace(timeline, Path(folder) / "run.json")
    ...     events = json.loads((Path(folder) / "run.json").read_text())["traceEvents"]
    >>> [(event["name"], event["dur"]) for event in events if event["ph"] == "X"]
    [('relu', 500000.0)]

    References
    ----------
    "Trace Event Format", Google: complete events (X), counters (C), flows (s, f) and metadata (M).
    """
    if not 0 <= clock_error < inf:
        raise ValueError(f"write_trace: clock_error must be seconds from 0 on, not {clock_error}; give RunResult's")
    spans = [span for event in timeline for span in _spans(event)]
    arrows = [arrow for event in timeline if event.phases for arrow in _arrow(event)]
    shown = [*_names(spans), *spans, *arrows, *_counters(timeline)]
    shown.sort(key=lambda entry: entry.get("ts", -1.0))
    with replace_file(check_target(path, "trace")) as file:
        more = {"clock_error_us": clock_error * 1e6}
        file.write(msgspec.json.encode({"traceEvents": shown, "displayTimeUnit": "ms", "otherData": more}))


def _spans(event: TraceEvent) -> Iterator[dict[str, Any]]:
    """An event's bars: one for each phase, or one."""
    told: dict[str, Any] = {"step": event.step, "nbytes": event.nbytes}
    if event.phases:
        told |= {"src": event.phases[0].device, "dst": event.device, "waited_us": event.waited * 1e6}
    for part in event.phases or (Phase(event.kind, event.device, event.start, event.seconds),):
        yield {
            "name": event.node,
            "cat": part.kind,
            "ph": "X",
            "ts": part.start * 1e6,
            "dur": part.seconds * 1e6,
            "pid": part.device,
            "tid": ROWS.index(part.kind),
            "args": told,
        }


def _arrow(event: TraceEvent) -> Iterator[dict[str, Any]]:
    """An arrow from the pack of a copy between devices to its unpack."""
    pack, *_, unpack = event.phases
    for mark, part in (({"ph": "s"}, pack), ({"ph": "f", "bp": "e"}, unpack)):
        at = {"pid": part.device, "tid": ROWS.index(part.kind), "ts": part.start * 1e6}
        yield {"name": event.node, "cat": "copy", "id": event.step, **mark, **at}


def _counters(timeline: Sequence[TraceEvent]) -> Iterator[dict[str, Any]]:
    """The counters of each device, at the end of each event that changes one."""
    total: Counter[tuple[int, str]] = Counter()
    for event in sorted(timeline, key=lambda event: event.start + event.seconds):
        if event.kind in ("alloc", "free"):
            name, more = IN_ARENA, align(event.nbytes) * (1 if event.kind == "alloc" else -1)
        elif event.kind in COUNTED and event.nbytes:
            name, more = COUNTED[event.kind], event.nbytes
        else:
            continue
        total[event.device, name] += more
        value = {"B": total[event.device, name]}
        yield {"name": name, "ph": "C", "pid": event.device, "ts": (event.start + event.seconds) * 1e6, "args": value}


def _names(spans: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The names of processes and rows, and the order of the rows."""
    for device in sorted({span["pid"] for span in spans}):
        yield {"name": "process_name", "ph": "M", "pid": device, "args": {"name": f"device {device}"}}
    for device, row in sorted({(span["pid"], span["tid"]) for span in spans}):
        where = {"ph": "M", "pid": device, "tid": row}
        yield {"name": "thread_name", **where, "args": {"name": ROWS[row]}}
        yield {"name": "thread_sort_index", **where, "args": {"sort_index": row}}
