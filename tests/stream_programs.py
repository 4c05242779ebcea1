"""Small programs of a host and streams, and whether they are right in every order: by trying all of them.

A host issues work to streams and goes on; each stream does its work in turn. All states that such a program can reach
are visited: how far the host is, and how much of each stream is done. Two accesses to a cell, one of which writes, are
at odds where some state does the one that was issued later while the other is still to come.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from hypothesis import strategies as st

CELLS = 4
EVENTS = 2
DEFAULT = "default"
"""The stream with which streams that are called blocking wait for each other."""


@dataclass(frozen=True)
class Work:
    """What is put into a stream: it reads cells, then writes cells."""

    stream: str
    reads: frozenset[int]
    writes: frozenset[int]


@dataclass(frozen=True)
class Touch:
    """What the host does at once."""

    reads: frozenset[int]
    writes: frozenset[int]


@dataclass(frozen=True)
class Record:
    """An event is recorded behind what is in a stream."""

    stream: str
    event: int


@dataclass(frozen=True)
class Wait:
    """A stream waits for what an event was last recorded behind; for nothing if it never was."""

    stream: str
    event: int


@dataclass(frozen=True)
class Synchronize:
    """The host waits until all that is in a stream is done."""

    stream: str


@dataclass(frozen=True)
class SynchronizeEvent:
    """The host waits for what an event was last recorded behind."""

    event: int


Action = Work | Touch | Record | Wait | Synchronize | SynchronizeEvent
Program = Sequence[Action]
Need = tuple[str, int]
"""A stream, and how many of its entries must be done."""


@dataclass
class Entries:
    """A program as the machine sees it: the entries of each stream, and what the host waits for before each action.

    Parameters
    ----------
    queues : dict of str to list of (number of the action or None, what must be done before, number issued with)
    host : list of list of Need
    """

    queues: dict[str, list[tuple[int | None, list[Need], int]]]
    host: list[list[Need]] = field(default_factory=list)


def entries_of(program: Program, streams: Sequence[str], blocking: Sequence[str] = ()) -> Entries:
    """Lay a program out. What is put into the default stream waits for the blocking ones, and these then for it."""
    made = Entries({stream: [] for stream in streams})
    queues = made.queues
    recorded: dict[int, Need] = {}

    def put(number: int, stream: str, work: int | None, needs: Sequence[Need] = ()) -> None:
        if stream != DEFAULT:
            queues[stream].append((work, list(needs), number))
            return
        queues[stream].append((work, [*needs, *((other, len(queues[other])) for other in blocking)], number))
        for other in blocking:
            queues[other].append((None, [(stream, len(queues[stream]))], number))

    for number, action in enumerate(program):
        needs: list[Need] = []
        match action:
            case Work():
                put(number, action.stream, number)
            case Record():
                put(number, action.stream, None)
                recorded[action.event] = action.stream, len(queues[action.stream])
            case Wait():
                put(number, action.stream, None, [recorded[action.event]] if action.event in recorded else [])
            case Synchronize():
                if action.stream == DEFAULT:
                    put(number, DEFAULT, None)
                needs = [(action.stream, len(queues[action.stream]))]
            case SynchronizeEvent():
                needs = [recorded[action.event]] if action.event in recorded else []
            case Touch():
                pass
        made.host.append(needs)
    return made


def races(program: Program, streams: Sequence[str], blocking: Sequence[str] = ()) -> dict[int, set[int]]:
    """For each action that some order does too early, the earlier actions that it must wait for and does not."""
    laid = entries_of(program, streams, blocking)
    found: dict[int, set[int]] = {}
    start = (0, *(0 for _ in streams))
    seen, todo = {start}, [start]
    while todo:
        at, *done = todo.pop()
        count = dict(zip(streams, done, strict=True))

        def is_met(needs: Sequence[Need], count: dict[str, int] = count) -> bool:
            return all(count[stream] >= n for stream, n in needs)

        def is_done(number: int, at: int = at, count: dict[str, int] = count) -> bool:
            action = program[number]
            if not isinstance(action, Work):
                return number < at
            return any(work == number for work, *_ in laid.queues[action.stream][: count[action.stream]])

        def note(number: int, is_done: object = is_done) -> None:
            early = {k for k in range(number) if at_odds(program[k], program[number]) and not is_done(k)}  # type: ignore[operator]
            if early:
                found.setdefault(number, set()).update(early)

        steps = []
        # What the host waits for is not met while a synchronisation has put an entry that is not issued yet: the entry
        # counts as issued when the host arrives there.
        if at < len(program) and is_met(laid.host[at]):
            if isinstance(program[at], Touch):
                note(at)
            steps.append((at + 1, *done))
        for k, stream in enumerate(streams):
            if done[k] == len(laid.queues[stream]):
                continue
            work, needs, issued = laid.queues[stream][done[k]]
            arrived = issued < at or (issued == at and at < len(program) and isinstance(program[at], Synchronize))
            if arrived and is_met(needs):
                if work is not None:
                    note(work)
                steps.append((at, *(n + (j == k) for j, n in enumerate(done))))
        for step in steps:
            if step not in seen:
                seen.add(step)
                todo.append(step)
    return found


def at_odds(one: Action, other: Action) -> bool:
    """Whether both touch a cell and one of them writes it."""
    if not (isinstance(one, Work | Touch) and isinstance(other, Work | Touch)):
        return False
    return bool(one.writes & (other.reads | other.writes) or one.reads & other.writes)


cells = st.frozensets(st.integers(0, CELLS - 1), max_size=2)
events = st.integers(0, EVENTS - 1)


def programs(streams: Sequence[str], with_host: bool = True, most: int = 10) -> st.SearchStrategy[list[Action]]:
    """Programs of up to `most` actions."""
    stream = st.sampled_from(streams)
    kinds: list[st.SearchStrategy[Action]] = [
        st.builds(Work, stream, cells, cells),
        st.builds(Record, stream, events),
        st.builds(Wait, stream, events),
        st.builds(Work, stream, cells, cells),
    ]
    if with_host:
        kinds += [
            st.builds(Synchronize, stream),
            st.builds(SynchronizeEvent, events),
            st.builds(Touch, cells, cells),
        ]
    return st.lists(st.one_of(kinds), min_size=2, max_size=most)
