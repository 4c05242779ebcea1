"""A run of a plan as one graph of the driver: recorded once, then launched as a whole for other inputs.

All streams of all devices are captured while a plan's steps are issued. Placed inputs and fetched outputs go through
pinned memory of the recording's own, so that another run writes the one, launches the graph and reads the other.
Whatever CuPy itself brings from the host, as the indices of ``x[[0, 2]]``, it stages in pinned memory that it uses for
something else as soon as the copy is done; a graph would read it again. So that memory is refused to a run that is
recorded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from threading import Lock, get_ident
from typing import Any, NamedTuple

import numpy as np
from msgspec import Struct

from tapestry_exec.copies import Array, pack_transfers, strided_copies
from tapestry_exec.cuda.lanes import Lane, Uses
from tapestry_exec.cuda.namespace import NotRecordable
from tapestry_exec.cuda.payloads import Payload
from tapestry_plan.steps import HOST, ShardPlan, row_major
from tapestry_sets.regions import Region

_LOCK = Lock()
_UNDER_WAY: list[Recording] = []
"""All that are being made in this process, in several threads perhaps; CuPy has one allocator of pinned memory."""


class Placed(NamedTuple):
    """Cells of a host array that a graph reads from pinned memory."""

    tensor: str
    regions: tuple[Region, ...]
    cells: Array


class Recording:
    """One plan's run as a graph.

    Parameters
    ----------
    cupy : module
    lanes : sequence of Lane
        All streams that work is put into. The first one begins and ends the capture.
    keep : object
        What must live as long as the graph: the devices, whose memory it names.
    """

    def __init__(self, cupy: Any, lanes: Sequence[Lane], keep: Any) -> None:
        self._cuda, self._lanes, self._kept = cupy.cuda, list(lanes), [keep]
        self._pinned = cupy.cuda.PinnedMemoryPool()
        self._everybodys = cupy.get_default_pinned_memory_pool().malloc
        self._thread = get_ident()
        self._placed: list[Placed] = []
        self._fetched: list[Array] = []
        self._graph: Any = None
        self.is_launched = False
        """Whether the graph has begun to run: what stays on the devices may be another state then."""
        self.pool = cupy.cuda.MemoryPool()
        self.result: Any = None
        """What the run that was recorded took, as its interpreter counted it."""

    @property
    def is_whole(self) -> bool:
        """Whether the graph is made."""
        return self._graph is not None

    @property
    def origin(self) -> Lane:
        """The lane whose stream began the capture."""
        return self._lanes[0]

    def begin(self) -> None:
        """Capture the operations of all lanes from here on."""
        # lane 0   begin ─●──── work ────────●─ end
        # lane 1          └─►── work ──●─────►     a stream is captured once it waits for one that is, and must be
        # lane 2          └─►── work ──●─────►     joined again before the end
        with _LOCK:
            _UNDER_WAY.append(self)
            self._cuda.set_pinned_memory_allocator(self._give_pinned)
        self.origin.stream.begin_capture()
        start = self.origin.mark()
        for lane in self._lanes[1:]:
            lane.after([start])

    def _give_pinned(self, nbytes: int) -> Any:
        """Pinned memory, which all threads ask for alike, but none for one that records."""
        with _LOCK:
            recording = {one._thread for one in _UNDER_WAY if one._cuda is self._cuda}
        if get_ident() not in recording:
            return self._everybodys(nbytes)
        raise NotRecordable(
            f"CuPy brings {nbytes:,} B of the host's to a GPU while the run is recorded, as for x[[0, 2]], or to put "
            "more than eight arrays together: a graph would read them again when they are no longer there"
        )

    def _stop_refusing(self) -> None:
        """Let this thread have pinned memory again, if it makes no other one."""
        with _LOCK:
            if self in _UNDER_WAY:
                _UNDER_WAY.remove(self)
            if not any(one._cuda is self._cuda for one in _UNDER_WAY):
                self._cuda.set_pinned_memory_allocator(self._everybodys)

    def take(self, size: int, dtype: np.dtype[Any]) -> Payload:
        """Room for so many cells in pinned memory that belongs to the graph."""
        nbytes = size * dtype.itemsize
        memory = self._pinned.malloc(max(nbytes, 1))
        self.hold(memory)
        return Payload(memory.ptr, nbytes, dtype, HOST, Uses(), np.frombuffer(memory, np.uint8, nbytes).view(dtype))

    def place(self, tensor: str, array: Array, regions: Sequence[Region], cells: Array) -> None:
        """Note the values that a run writes into `cells`, of an input or a constant, before it launches the graph."""
        self._placed.append(Placed(tensor, tuple(regions), cells))
        copy_placed(array, regions, cells)

    def hold(self, what: Any) -> None:
        """Keep something as long as the graph, which names its memory."""
        self._kept.append(what)

    def fetch(self, cells: Array) -> None:
        """Note cells that the graph writes for the host."""
        self._fetched.append(cells)

    def end(self) -> None:
        """Join all lanes and make the graph."""
        self._stop_refusing()
        self.origin.after([lane.mark() for lane in self._lanes[1:]])
        self._graph = self.origin.stream.end_capture()

    def abandon(self) -> None:
        """End the capture of a run that failed: nothing else may be asked of streams whose capture has failed."""
        self._stop_refusing()
        with suppress(Exception):  # the driver has given the capture up already
            self.origin.stream.end_capture()

    def launch(self, host: Mapping[str, Array] | None = None) -> list[Array]:
        """Run the graph, for other inputs if they are given; what was fetched, in order, until the next launch."""
        if host is not None:
            for placed in self._placed:
                copy_placed(host[placed.tensor], placed.regions, placed.cells)
        self.is_launched = True
        self._graph.launch(self.origin.stream)
        self.origin.stream.synchronize()
        return self._fetched


class _Known(Struct):
    """What became of a plan's recording: none before its second run, and never one after a run of it that failed."""

    recording: Recording | None = None
    reason: str = ""
    """Why it is never recorded, if so."""


class Recordings:
    """Which plans have a graph, which of them get one in their next run, and the run that is being recorded.

    A plan's first run is a plain one, so that kernels are compiled and tables are there; its second one is recorded.
    """

    def __init__(self) -> None:
        self.now: Recording | None = None
        """Of the run that is being recorded."""
        self._is_wanted = self._was_tried = False
        self._failed = ""
        """How the run failed that was recorded, if the one behind it is under way."""

    def of(self, plan: ShardPlan) -> Recording | None:
        """A plan's recording, None if it is not there yet."""
        known, self._was_tried, self._failed = plan.kept.get(self), False, ""
        if known is None:
            plan.kept[self] = _Known()
        self._is_wanted = known is not None and known.recording is None and not known.reason
        return None if known is None else known.recording

    def take_wish(self) -> bool:
        """Whether the run that begins is to be recorded; asked once.

        One before that was interrupted has left its recording, which no other run takes.
        """
        self.drop()
        self.now = None
        wanted, self._is_wanted = self._is_wanted, False
        return wanted

    def begin(self, recording: Recording) -> None:
        """Record from here on."""
        self.now, self._was_tried = recording, True
        recording.begin()

    def keep(self, plan: ShardPlan, result: Any) -> None:
        """The run that was recorded, if one was, has ended well; or one that was not, behind one that failed so.

        Then it was the recording that failed: the plan is never recorded again.
        """
        if self.now is not None:
            self.now.result = result
            plan.kept[self] = _Known(self.now)
        elif self._failed:
            plan.kept[self] = _Known(reason=self._failed)
        self.now, self._was_tried, self._failed = None, False, ""

    def drop(self) -> None:
        """Give up an unfinished recording."""
        if self.now is not None and not self.now.is_whole:
            self.now.abandon()
            self.now = None

    def fail(self, error: Exception, has_state: bool) -> bool:
        """Whether a run failed that was being recorded, and how, so that a plain one of the same state tells.

        Where that one fails, too, it was not the recording.
        """
        failed, is_launched = self._was_tried, self.now is not None and self.now.is_launched
        self.now, self._was_tried, self._failed = None, False, str(error) if failed else ""
        return failed and not (has_state and is_launched)

    def tell(self, plan: ShardPlan) -> str:
        """Why a plan is never recorded; empty where it is, or may be yet."""
        known: _Known | None = plan.kept.get(self)
        return "" if known is None else known.reason

    def lose(self, plan: ShardPlan) -> None:
        """Give up a graph that could not be launched; the next run is recorded anew."""
        plan.kept[self] = _Known()


def copy_placed(array: Array, regions: Sequence[Region], cells: Array) -> None:
    """Write cells of a host array one behind the other."""
    copies = strided_copies(pack_transfers, array.itemsize, row_major(array.shape), (0,) * array.ndim, tuple(regions))
    copies.carry(np.asarray(array, order="C"), cells)
