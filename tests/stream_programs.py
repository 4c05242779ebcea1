"""Small programs of a host and streams, and whether they are right in every order: by trying all of them.

A host issues work to streams and goes on; each stream does its work in turn. All states that such a program can reach
are visited: how far the host is, and how much of each stream is done. Two accesses to a cell, one of which writes, are
at odds where some state does the one that was issued later while the other is still to come.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
    start = State(0, dict.fromkeys(streams, 0))
    seen, todo = {start.key}, [start]
    while todo:
        state = todo.pop()
        for number, after in steps_from(program, laid, state):
            if number is not None:
                earlier = (k for k in range(number) if at_odds(program[k], program[number]))
                early = {k for k in earlier if not is_done(program, laid, state, k)}
                if early:
                    found.setdefault(number, set()).update(early)
            if after.key not in seen:
                seen.add(after.key)
                todo.append(after)
    return found


@dataclass(frozen=True)
class State:
    """The number of the action that the host comes to next, and how many entries of each stream are done."""

    at: int
    done: dict[str, int]

    @property
    def key(self) -> tuple[int, ...]:
        """For sets of states."""
        return self.at, *self.done.values()

    def meets(self, needs: Sequence[Need]) -> bool:
        """Whether so much is done."""
        return all(self.done[stream] >= n for stream, n in needs)


def steps_from(program: Program, laid: Entries, state: State) -> Iterator[tuple[int | None, State]]:
    """What can happen next: the action whose cells are touched then, or None, and the state behind it."""
    if state.at < len(program) and state.meets(laid.host[state.at]):
        yield state.at if isinstance(program[state.at], Touch) else None, State(state.at + 1, state.done)
    for stream, queue in laid.queues.items():
        done = state.done[stream]
        if done == len(queue):
            continue
        work, needs, issued = queue[done]
        # what the host puts into a stream to wait for it is there while it waits
        is_there = issued < state.at or (issued == state.at and isinstance(program[issued], Synchronize))
        if is_there and state.meets(needs):
            yield work, State(state.at, {**state.done, stream: done + 1})


def is_done(program: Program, laid: Entries, state: State, number: int) -> bool:
    """Whether an action has touched its cells."""
    action = program[number]
    if not isinstance(action, Work):
        return number < state.at
    return any(work == number for work, *_ in laid.queues[action.stream][: state.done[action.stream]])


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
