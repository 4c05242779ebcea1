"""Lanes: queues of devices that work ahead of the host, ordered by marks on the bytes that they use.

A lane is a stream. Each operation in it leaves a mark, an event recorded behind it. Whoever uses the same bytes in
another lane first waits for the marks that were left on them: a reader for the last writer, a writer for the readers
too. Memory that is given back keeps its marks, so that whoever takes the place waits as well::

    in       unpack x ──●─── unpack halo ──●
                        │ wait             │ wait
    compute             └► product ──●     └► convolution ──●── free
                                     │ wait                 │ wait
    out                              └► pack y ──●          └► pack z ──● move to the next device
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from tapestry_plan.steps import align


class Mark(NamedTuple):
    """An operation in a lane: the lane, its number there, and the event recorded behind it."""

    lane: Lane
    number: int
    event: Any


class Span(NamedTuple):
    """An operation in a lane, between two events with times."""

    lane: Lane
    start: Any
    stop: Any


class Lane:
    """One stream, and how far it has waited for others.

    Parameters
    ----------
    stream : stream of the array library
    new_event : callable
        ``(timed: bool) -> event``
    """

    def __init__(self, stream: Any, new_event: Callable[[bool], Any]) -> None:
        self.stream = stream
        self.spans: list[Span] | None = None
        """Where operations are noted with their times, if they are."""
        self._start: Any = None
        self._new_event = new_event
        self._number = 0
        self._waited: dict[Lane, int] = {}
        self._events: list[Any] = []

    def after(self, marks: Iterable[Mark]) -> None:
        """Let the next operations of this lane wait for operations in others."""
        # in        ─1──2──3─          an operation of `compute` waits for 3 of `in`: it comes after 1 and 2
        #                  └──►        as well, so a later wait for them is left out, and so is one for its own lane
        # compute   ──────────4─
        for mark in marks:
            if mark.lane is self or self._waited.get(mark.lane, 0) >= mark.number:
                continue
            self.stream.wait_event(mark.event)
            self._waited[mark.lane] = mark.number
        if self.spans is not None:
            self._start = self.time()

    def mark(self) -> Mark:
        """Leave a mark behind the operations of this lane so far."""
        if self._number == len(self._events):
            self._events.append(self._new_event(False))
        event = self._events[self._number]
        event.record(self.stream)
        self._number += 1
        if self.spans is not None and self._start is not None:
            self.spans.append(Span(self, self._start, self.time()))
            self._start = None
        return Mark(self, self._number, event)

    def time(self) -> Any:
        """An event that tells when this lane comes so far."""
        event = self._new_event(True)
        event.record(self.stream)
        return event

    def restart(self) -> None:
        """Forget all marks and use their events again; everything in the lanes must be done."""
        self._number = 0
        self._waited.clear()
        self.spans = self._start = None


class Uses:
    """Marks of the last operations that wrote and read a piece of memory."""

    __slots__ = ("reads", "writes")

    def __init__(self, before: Iterable[Mark] = ()) -> None:
        self.writes: list[Mark] = list(before)
        self.reads: list[Mark] = []

    def read(self, mark: Mark) -> None:
        """Note an operation that read, in a lane that waited for `writes`."""
        self.reads.append(mark)

    def wrote(self, mark: Mark) -> None:
        """Note an operation that wrote, in a lane that waited for `all`."""
        self.writes, self.reads = [mark], []

    def clear(self) -> None:
        """Forget all marks: their operations are done."""
        self.writes, self.reads = [], []

    @property
    def all(self) -> list[Mark]:
        """The marks that a writer waits for."""
        return self.writes + self.reads


class Ground:
    """Stretches of memory, and who used their bytes last.

    Examples
    --------
    >>> ground = Ground()
    >>> ground.leave(0, 64, Uses(["a"])); ground.leave(64, 128, Uses(["b"]))
    >>> ground.take(32, 96)
    ['a', 'b']
    >>> ground.take(0, 128)
    ['a', 'b']
    >>> ground.take(0, 128)
    []
    """

    def __init__(self) -> None:
        self._left: list[tuple[int, int, Uses]] = []

    def leave(self, start: int, stop: int, uses: Uses) -> None:
        """Say who used bytes; marks that are left in `uses` later on count too."""
        if start < stop:
            self._left.append((start, stop, uses))

    def take(self, start: int, stop: int) -> list[Any]:
        """Marks to wait for before bytes are used anew; what was said of bytes beside them stays."""
        # before   aaaaaabbbbbb
        # take     ....^^^^....    waits for the marks of a and of b;
        # after    aaaa....bbbb    what lies beside keeps its own
        found: list[Any] = []
        kept: list[tuple[int, int, Uses]] = []
        for a, b, uses in self._left:
            if b <= start or stop <= a:
                kept.append((a, b, uses))
                continue
            found += uses.all
            kept += [(x, y, uses) for x, y in ((a, min(b, start)), (max(a, stop), b)) if x < y]
        self._left = kept
        return found

    def restart(self) -> None:
        """Forget everything; all that was put into lanes must be done."""
        self._left.clear()


class Slot(NamedTuple):
    """A stretch of a ring: where it begins, its length in bytes, and who uses it."""

    offset: int
    nbytes: int
    uses: Uses


class Ring:
    """Memory that is handed out in turns: what is taken next lies behind what was taken last.

    Parameters
    ----------
    nbytes : int
        Its size; no single slot is larger. Two that are in use at once must fit together.

    Examples
    --------
    >>> ring = Ring(256)
    >>> [ring.take(100).offset for _ in range(4)]
    [0, 128, 0, 128]
    """

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        self._next = 0
        self._ground = Ground()

    def take(self, nbytes: int) -> Slot:
        """A slot; its uses begin with the marks of what lay there before.

        Raises
        ------
        ValueError
            When the ring is smaller than what is asked for.
        """
        size = align(nbytes)
        if size > self.nbytes:
            raise ValueError(f"a payload of {nbytes:,} B is asked for; the ring for payloads has {self.nbytes:,} B")
        start = self._next if self._next + size <= self.nbytes else 0
        uses = Uses(self._ground.take(start, start + size))
        self._ground.leave(start, start + size, uses)
        self._next = start + size
        return Slot(start, size, uses)

    def restart(self) -> None:
        """Forget all slots; everything that uses them must be done."""
        self._ground.restart()
        self._next = 0
