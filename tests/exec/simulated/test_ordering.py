"""The checker of streams: against all interleavings of small programs, and each fault in a few lines."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tapestry_exec.run.backends import OrderingFault
from tapestry_exec.simulated.ordering import HOST, Access, Checker, Clock, Memory
from tests.stream_programs import (
    CELLS,
    Action,
    Record,
    Synchronize,
    SynchronizeEvent,
    Touch,
    Wait,
    Work,
    at_odds,
    programs,
    races,
)

STREAMS = ("a", "b", "c")


def memory_of(checker: Checker, nbytes: int, name: str = "m", device: int | None = 0) -> tuple[Memory, np.ndarray]:
    data = np.zeros(nbytes, np.uint8)
    return checker.allocated(name, data, device), data


def issued(checker: Checker, program: Sequence[Action]) -> tuple[int, str] | None:
    """Give the checker a program; the number of the action that it faults, and what it says."""
    _, data = memory_of(checker, 4 * CELLS, device=None)
    columns = [checker.cells(data.reshape(4, CELLS)[:, k]) for k in range(CELLS)]
    recorded: dict[int, Clock] = {}
    for number, action in enumerate(program):
        try:
            match action:
                case Work() | Touch():
                    reads, writes = ([columns[k] for k in sorted(some)] for some in (action.reads, action.writes))
                    agent, device = (action.stream, 0) if isinstance(action, Work) else (HOST, None)
                    checker.issue(f"work {number}", agent, device, reads, writes)
                case Record():
                    recorded[action.event] = dict(checker.clock(action.stream))
                case Wait():
                    checker.join(action.stream, recorded.get(action.event, {}))
                case Synchronize():
                    checker.join(HOST, checker.clock(action.stream))
                case SynchronizeEvent():
                    checker.join(HOST, recorded.get(action.event, {}))
        except OrderingFault as fault:
            return number, str(fault)
    return None


def cells(*numbers: int) -> frozenset[int]:
    return frozenset(numbers)


NO = cells()
MANY = max(150, settings.default.max_examples)
"""Of fewer examples, which begin with the shortest programs, hardly any are wrong."""
UNDONE = [Work("a", NO, cells(1)), Work("b", cells(1), NO)]
THROUGH_A_THIRD = [
    Work("a", NO, cells(1)),
    Record("a", 0),
    Wait("b", 0),
    Record("b", 1),
    Wait("c", 1),
    Work("c", cells(1), NO),
]
RECORDED_AGAIN = [Work("a", NO, cells(1)), Record("a", 0), Record("b", 0), Wait("b", 0), Work("b", cells(1), NO)]
WAITED_TOO_EARLY = [Wait("b", 0), Work("a", NO, cells(1)), Record("a", 0), Work("b", cells(1), NO)]
THE_HOST_IN_BETWEEN = [Work("a", NO, cells(1)), Synchronize("a"), Work("b", NO, cells(1))]
THE_HOST_WRITES_UNDER_A_READ = [Work("a", cells(2), NO), Record("a", 1), Touch(NO, cells(2)), SynchronizeEvent(1)]


@settings(max_examples=MANY)
@given(programs(STREAMS))
@example(UNDONE)
@example(THROUGH_A_THIRD)
@example(RECORDED_AGAIN)
@example(WAITED_TOO_EARLY)
@example(THE_HOST_IN_BETWEEN)
@example(THE_HOST_WRITES_UNDER_A_READ)
def test_the_verdict_is_that_of_all_interleavings(program: list[Action]) -> None:
    wanted = races(program, STREAMS)
    found = issued(Checker(), program)
    assert (None if found is None else found[0]) == min(wanted, default=None)
    if found is not None:
        number, message = found
        named = [int(k) for k in re.findall(r"\(work (\d+)\)", message)]
        assert len(named) == 2 and named[0] == number and named[1] in wanted[number], message


@pytest.mark.parametrize(
    ("program", "fault"),
    [
        (UNDONE, 1),
        (THROUGH_A_THIRD, None),
        (RECORDED_AGAIN, 4),
        (WAITED_TOO_EARLY, 3),
        (THE_HOST_IN_BETWEEN, None),
        (THE_HOST_WRITES_UNDER_A_READ, 2),
    ],
)
def test_all_interleavings_of_known_programs(program: list[Action], fault: int | None) -> None:
    """What is tried out says what is plain."""
    assert min(races(program, STREAMS), default=None) == fault


def test_random_programs_are_right_as_often_as_not() -> None:
    """The strategy makes both kinds, or the comparison above would mean little."""
    verdicts: list[bool] = []

    @settings(max_examples=MANY)
    @given(programs(STREAMS))
    def count(program: list[Action]) -> None:
        verdicts.append(bool(races(program, STREAMS)))

    count()
    assert len(verdicts) // 10 < sum(verdicts) < len(verdicts) * 9 // 10


@given(programs(STREAMS))
def test_a_program_that_waits_for_everything_is_right(program: list[Action]) -> None:
    """With the host waiting after each piece of work nothing can be too early."""
    careful: list[Action] = []
    for action in program:
        careful.append(action)
        if isinstance(action, Work):
            careful.append(Synchronize(action.stream))
    assert issued(Checker(), careful) is None


def test_cells_are_at_odds_where_one_writes() -> None:
    assert at_odds(Work("a", cells(1), NO), Work("b", NO, cells(1)))
    assert not at_odds(Work("a", cells(1), NO), Work("b", cells(1), cells(2)))


# -- each fault, and its mend -------------------------------------------------------------------------------


def after(checker: Checker, waiting: str, other: str) -> None:
    checker.join(waiting, dict(checker.clock(other)))


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        (
            "writes",
            "reads",
            r"operation 2 \(two\) on b reads bytes 8 to 16 of m while operation 1 \(one\) on a may "
            r"still write them: let b wait for an event that a records after that operation",
        ),
        ("reads", "writes", r"operation 2 \(two\) on b writes bytes 8 to 16 of m while .* may still read them"),
        ("writes", "writes", r"operation 2 \(two\) on b writes bytes 8 to 16 of m while .* may still write them"),
    ],
)
def test_work_of_two_streams_on_the_same_bytes(first: str, second: str, message: str) -> None:
    for is_waiting in (False, True):
        checker = Checker()
        _, data = memory_of(checker, 64)
        one, two = checker.cells(data[8:16]), checker.cells(data[8:16])
        checker.issue("one", "a", 0, *(([one], []) if first == "reads" else ([], [one])))
        asked: Any = ([two], []) if second == "reads" else ([], [two])
        if is_waiting:
            after(checker, "b", "a")
            checker.issue("two", "b", 0, *asked)
        else:
            with pytest.raises(OrderingFault, match=message):
                checker.issue("two", "b", 0, *asked)


def test_two_streams_may_read_the_same_bytes() -> None:
    checker = Checker()
    _, data = memory_of(checker, 8)
    for stream in ("a", "b", "c"):
        checker.issue("read", stream, 0, [checker.cells(data)], [])
    assert checker.count == 3


def test_columns_between_each_other_are_not_the_same_bytes() -> None:
    checker = Checker()
    _, data = memory_of(checker, 64)
    grid = data.view(np.float32).reshape(4, 4)
    checker.issue("even", "a", 0, [], [checker.cells(grid[:, ::2])])
    checker.issue("odd", "b", 0, [], [checker.cells(grid[:, 1::2])])
    with pytest.raises(OrderingFault, match=r"reads bytes 0 to 16 of m while operation 2 \(odd\) on b|\(even\) on a"):
        checker.issue("row", "c", 0, [checker.cells(grid[0])], [])


def test_the_first_byte_that_is_too_early_is_named() -> None:
    checker = Checker()
    _, data = memory_of(checker, 64)
    checker.issue("tail", "a", 0, [], [checker.cells(data[40:48])])
    with pytest.raises(OrderingFault, match=r"reads bytes 32 to 64 of m \(from byte 40 on\) while"):
        checker.issue("half", "b", 0, [checker.cells(data[32:])], [])


def test_the_host_waits_before_it_looks() -> None:
    for is_waiting in (False, True):
        checker = Checker()
        _, data = memory_of(checker, 16, "pinned", None)
        checker.issue("copy", "a", 0, [], [checker.cells(data)])
        if is_waiting:
            after(checker, HOST, "a")
            checker.issue("look", HOST, None, [checker.cells(data)], [])
            assert checker.is_done("a", 1)
        else:
            assert not checker.is_done("a", 1)
            with pytest.raises(OrderingFault, match=r"\(look\) on host reads .* \(copy\) on a may .*: synchronize a"):
                checker.issue("look", HOST, None, [checker.cells(data)], [])


def test_memory_that_was_freed() -> None:
    checker = Checker()
    memory, data = memory_of(checker, 16)
    span = checker.cells(data)
    checker.issue("before", "a", 0, [], [span])
    checker.freed(memory)
    with pytest.raises(OrderingFault, match=r"\(late\) on a touches bytes 0 to 16 of m, which has been freed"):
        checker.issue("late", "a", 0, [span], [])
    checker.forget(memory)
    assert checker.at(memory.start) is None


def test_memory_of_another_device() -> None:
    checker = Checker()
    _, data = memory_of(checker, 16, "m", 1)
    span = checker.cells(data)
    with pytest.raises(OrderingFault, match="bytes 0 to 16 of m on device 1, which device 0 cannot reach"):
        checker.issue("far", "a", 0, [span], [])
    with pytest.raises(OrderingFault, match="on device 1, which host cannot reach"):
        checker.issue("far", HOST, None, [span], [])
    checker.peers.add((0, 1))
    checker.issue("far", "a", 0, [span], [])


def test_bytes_outside_of_all_memory() -> None:
    checker = Checker()
    memory, _ = memory_of(checker, 16)
    assert checker.span(memory.start + 4, 12, "all").shape == (12,)
    with pytest.raises(OrderingFault, match=r"fill: 13 bytes at .* lie beyond the 16 bytes of m"):
        checker.span(memory.start + 4, 13, "fill")
    with pytest.raises(OrderingFault, match=r"fill: 1 bytes at .* lie in no block of memory"):
        checker.span(memory.stop, 1, "fill")
    with pytest.raises(OrderingFault, match=r"an array of shape \(3,\) at .* lies in no block of memory"):
        checker.cells(np.zeros(3))


def test_bytes_that_nothing_wrote() -> None:
    checker = Checker(check_unwritten=True)
    _, data = memory_of(checker, 16)
    checker.issue("head", "a", 0, [], [checker.cells(data[:12])])
    checker.issue("sum", "a", 0, [checker.cells(data[:12])], [])
    with pytest.raises(OrderingFault, match="reads bytes 0 to 16 of m, of which byte 12 was never written"):
        checker.issue("sum", "a", 0, [checker.cells(data)], [])


# -- buffers in an arena ------------------------------------------------------------------------------------


def test_buffers_that_live_in_the_same_bytes() -> None:
    checker = Checker()
    arena, _ = memory_of(checker, 64, "arena")
    checker.mark(arena.start, 32, "x", True)
    with pytest.raises(OrderingFault, match="bytes 16 to 48 of arena are given to buffer y while buffer x lives there"):
        checker.mark(arena.start + 16, 32, "y", True)
    checker.mark(arena.start, 32, "x", False)
    checker.mark(arena.start + 16, 32, "y", True)
    with pytest.raises(OrderingFault, match="freed by buffer x, which does not live there"):
        checker.mark(arena.start + 16, 32, "x", False)


def test_the_place_of_a_buffer_that_was_freed() -> None:
    checker = Checker()
    arena, data = memory_of(checker, 64, "arena")
    checker.mark(arena.start, 32, "x", True)
    span = checker.cells(data[:32])
    checker.issue("one", "a", 0, [], [span])
    checker.mark(arena.start, 32, "x", False)
    with pytest.raises(OrderingFault, match=r"\(two\) on a touches bytes 0 to 32 of arena, where buffer x lived"):
        checker.issue("two", "a", 0, [span], [])
    checker.mark(arena.start, 32, "y", True)
    checker.issue("two", "a", 0, [], [span])


def test_cells_that_reach_into_another_buffer() -> None:
    checker = Checker()
    arena, data = memory_of(checker, 64, "arena")
    checker.mark(arena.start, 32, "x", True)
    checker.mark(arena.start + 32, 32, "y", True)
    with pytest.raises(OrderingFault, match=r"touches bytes 24 to 40 of arena, which reach from x into y"):
        checker.issue("wide", "a", 0, [checker.cells(data[24:40])], [])


def test_cells_where_no_buffer_lives() -> None:
    checker = Checker()
    arena, data = memory_of(checker, 64, "arena")
    checker.mark(arena.start, 16, "x", True)
    checker.mark(arena.start + 32, 16, "y", True)
    for at, message in ((16, "where no buffer lives"), (8, "which reach from no buffer into x")):
        with pytest.raises(OrderingFault, match=rf"touches bytes {at} to {at + 16} of arena, {message}"):
            checker.issue("one", "a", 0, [], [checker.cells(data[at : at + 16])])
    bits = np.zeros(64, bool)
    bits[[3, 40]] = True
    checker.issue("kernel", "a", 0, [], [Access(arena, 0, (64,), (1,), bits)])
    bits[20] = True
    with pytest.raises(OrderingFault, match="touches bytes 3 to 41 of arena, which reach from no buffer into y"):
        checker.issue("kernel", "a", 0, [], [Access(arena, 0, (64,), (1,), bits)])


def test_what_an_address_leads_to() -> None:
    checker = Checker()
    arena, _ = memory_of(checker, 64, "arena")
    assert checker.place(arena.start + 5) == (arena, 0, 64)
    checker.mark(arena.start + 16, 16, "x", True)
    checker.mark(arena.start + 32, 16, "y", True)
    checker.mark(arena.start + 32, 16, "y", False)
    places = [checker.place(arena.start + k) for k in (15, 16, 31, 32, 48, 64)]
    assert places == [None, (arena, 16, 32), (arena, 16, 32), (arena, 32, 48), None, None]
    assert checker.whereabouts(arena.start + 17) == "at byte 17 of arena, where buffer x lives"
    assert checker.whereabouts(arena.start + 40) == "at byte 40 of arena, where buffer y lived"
    assert checker.whereabouts(arena.start) == "at byte 0 of arena, where no buffer lives"
    assert checker.whereabouts(arena.stop + 3) == f"at {arena.stop + 3:#x}, 3 bytes behind arena, where no memory is"
    checker.freed(arena)
    assert checker.whereabouts(arena.start + 1) == "at byte 1 of arena, which has been freed"


@pytest.mark.parametrize(
    ("start", "stop", "is_poison", "before", "is_unwritten"),
    [
        (16, 48, True, False, True),
        (16, 48, False, False, False),
        (16, 48, True, True, False),
        (16, 40, True, False, False),
        (24, 48, True, False, False),
    ],
    ids=["a whole fresh buffer", "no poison", "written before", "its head", "its tail"],
)
def test_poison_is_nothing_that_was_written(
    start: int, stop: int, is_poison: bool, before: bool, is_unwritten: bool
) -> None:
    checker = Checker(check_unwritten=True)
    arena, data = memory_of(checker, 64, "arena")
    checker.mark(arena.start + 16, 32, "x", True)
    if before:
        checker.issue("one", "a", 0, [], [checker.cells(data[20:24])])
    filled = replace(checker.span(arena.start + start, stop - start, "fill"), is_poison=is_poison)
    checker.issue("fill", "a", 0, [], [filled])
    reading = [checker.cells(data[24:40])]
    if is_unwritten:
        with pytest.raises(OrderingFault, match="of which byte 24 was never written"):
            checker.issue("two", "a", 0, reading, [])
    else:
        checker.issue("two", "a", 0, reading, [])


def test_a_buffer_that_takes_a_place_has_nothing_in_it() -> None:
    checker = Checker(check_unwritten=True)
    arena, data = memory_of(checker, 16, "arena")
    checker.issue("one", "a", 0, [], [checker.cells(data)])
    checker.mark(arena.start, 16, "x", True)
    with pytest.raises(OrderingFault, match="never written"):
        checker.issue("two", "a", 0, [checker.cells(data)], [])


# -- bytes --------------------------------------------------------------------------------------------------


slices = st.tuples(st.integers(0, 5), st.integers(0, 6), st.sampled_from([1, 2, 3, -1, -2]))


@given(st.lists(slices, min_size=3, max_size=3), st.permutations(range(3)), st.sampled_from(["i1", "i2", "f4", "f8"]))
def test_the_bytes_of_an_array(cut: list[tuple[int, int, int]], turn: list[int], dtype: str) -> None:
    """Strided, turned and reversed arrays have the bytes that setting their cells changes."""
    checker = Checker()
    shape = (6, 5, 4)
    memory, data = memory_of(checker, 120 * np.dtype(dtype).itemsize + 8)
    whole = data[8:].view(dtype).reshape(shape)
    array = whole[tuple(slice(a, b, s) if s > 0 else slice(b, a, s) for a, b, s in cut)].transpose(turn)
    if not array.size:
        return
    array.view(np.dtype((np.void, array.itemsize)))[...] = np.void(b"\1" * array.itemsize)
    access = checker.cells(array)
    places = np.sort(access.of(np.arange(memory.nbytes)).ravel())
    assert places.tolist() == np.flatnonzero(data).tolist()
    numbers = np.zeros(memory.nbytes, np.int32)
    access.put(numbers, 7)
    assert (numbers == 7 * data).all()
    first = access.first(np.ones(access.shape, bool)) - memory.start
    assert first == places[0]
    assert access.describe() == f"bytes {places[0]} to {places[-1] + 1} of m"


@given(st.lists(st.booleans(), min_size=1, max_size=20).filter(any), st.integers(0, 8))
def test_the_bytes_of_a_mask(mask: list[bool], offset: int) -> None:
    checker = Checker()
    memory, _ = memory_of(checker, 32)
    access = Access(memory, offset, (len(mask),), (1,), np.array(mask))
    places = [offset + k for k, is_meant in enumerate(mask) if is_meant]
    assert access.of(np.arange(32)).tolist() == places
    assert access.first(np.ones(len(places), bool)) == memory.start + places[0]


@given(st.lists(st.integers(1, 40), min_size=1, max_size=6), st.data())
def test_the_block_at_an_address(sizes: list[int], data: st.DataObject) -> None:
    checker = Checker()
    blocks = [memory_of(checker, nbytes, f"block {k}") for k, nbytes in enumerate(sizes)]
    memory, _ = data.draw(st.sampled_from(blocks))
    assert checker.at(memory.start) is memory
    assert checker.at(memory.stop - 1) is memory
    assert checker.at(memory.stop) is not memory
    assert checker.at(min(block.start for block, _ in blocks) - 1) is None
