"""Lanes, and who used which bytes last, against a list with an entry for each byte."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapestry_exec.cuda.lanes import Ground, Lane, Mark, Ring, Uses


class Clock:
    """Streams and events that only note what happened, in order."""

    def __init__(self) -> None:
        self.log: list[tuple[str, str, int]] = []
        self.events = 0

    def lane(self, name: str) -> Lane:
        return Lane(Stream(self, name), self._event)

    def _event(self, timed: bool) -> Event:
        self.events += 1
        return Event(self, self.events)


class Stream:
    def __init__(self, clock: Clock, name: str) -> None:
        self.clock, self.name = clock, name

    def wait_event(self, event: Event) -> None:
        self.clock.log.append(("wait", self.name, event.number))


class Event:
    def __init__(self, clock: Clock, number: int) -> None:
        self.clock, self.number = clock, number

    def record(self, stream: Stream) -> None:
        self.clock.log.append(("record", stream.name, self.number))


def test_a_lane_waits_for_others_once_and_never_for_itself() -> None:
    clock = Clock()
    a, b = clock.lane("a"), clock.lane("b")
    first, second = a.mark(), a.mark()
    a.after([first, second])
    b.after([second])
    b.after([first, second])
    assert clock.log == [("record", "a", 1), ("record", "a", 2), ("wait", "b", 2)]


def test_restarted_lanes_use_their_events_again_and_wait_anew() -> None:
    clock = Clock()
    a, b = clock.lane("a"), clock.lane("b")
    b.after([a.mark()])
    for lane in (a, b):
        lane.restart()
    b.after([a.mark()])
    assert clock.events == 1
    assert clock.log == [("record", "a", 1), ("wait", "b", 1)] * 2


def test_a_reader_waits_for_the_writer_and_a_writer_for_the_readers() -> None:
    clock = Clock()
    a, b, c = clock.lane("a"), clock.lane("b"), clock.lane("c")
    uses = Uses()
    uses.wrote(a.mark())
    b.after(uses.writes)
    uses.read(b.mark())
    c.after(uses.writes)
    uses.read(c.mark())
    a.after(uses.all)
    uses.wrote(a.mark())
    waits = [entry[1:] for entry in clock.log if entry[0] == "wait"]
    assert waits == [("b", 1), ("c", 1), ("a", 2), ("a", 3)]
    assert [mark.number for mark in uses.all] == [2]


SIZE = 40
spans = st.tuples(st.integers(0, SIZE - 1), st.integers(1, 12)).map(lambda s: (s[0], min(sum(s), SIZE)))


@given(st.lists(spans, max_size=30))
def test_ground_remembers_the_last_user_of_each_byte(taken: list[tuple[int, int]]) -> None:
    """Each take waits for exactly those who used one of its bytes and were not waited for there."""
    ground = Ground()
    users: list[Any] = [None] * SIZE
    for k, (start, stop) in enumerate(taken):
        found = ground.take(start, stop)
        assert set(found) == {user for user in users[start:stop] if user is not None}
        ground.leave(start, stop, Uses([k]))  # type: ignore[list-item]
        users[start:stop] = [k] * (stop - start)


def marks() -> Iterator[Mark]:
    lane = Clock().lane("x")
    while True:
        yield lane.mark()


@given(st.lists(st.integers(0, 130), max_size=40), st.sampled_from([256, 320, 512]))
def test_a_ring_hands_out_room_with_the_marks_of_those_who_had_it(sizes: list[int], nbytes: int) -> None:
    ring, made = Ring(nbytes), marks()
    users: list[Mark | None] = [None] * nbytes
    before: tuple[int, int] | None = None
    for size in sizes:
        slot = ring.take(size)
        stop = slot.offset + slot.nbytes
        assert slot.offset % 64 == 0 and size <= slot.nbytes and stop <= nbytes
        assert set(slot.uses.all) == {user for user in users[slot.offset : stop] if user is not None}
        if before is not None and slot.nbytes and nbytes >= 2 * 192:  # two that are used at once lie apart
            assert stop <= before[0] or before[1] <= slot.offset
        mark = next(made)
        slot.uses.wrote(mark)
        users[slot.offset : stop] = [mark] * slot.nbytes
        before = (slot.offset, stop) if slot.nbytes else before


def test_a_ring_that_is_too_small_says_so() -> None:
    with pytest.raises(ValueError, match="a payload of 300 B is asked for; the ring for payloads has 256 B"):
        Ring(256).take(300)
