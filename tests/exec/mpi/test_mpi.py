"""Ranks of MPI programs: the bits and bytes of one loop, and errors that all raise."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

from tapestry_exec import BackendUnavailable, MpiBackend
from tapestry_exec.mpi import messages
from tapestry_exec.mpi.backend import CountsTold
from tapestry_exec.mpi.bells import Bell, open_page
from tapestry_exec.mpi.messages import Mail
from tapestry_exec.run import Counts, Timed, TraceEvent
from tests.exec.small_networks import EVERY, SAMPLE, write_cases

pytest.importorskip("mpi4py", reason="mpi4py is not installed")
HERE = Path(sys.executable).with_name("mpiexec")
MPIEXEC = str(HERE) if HERE.exists() else shutil.which("mpiexec")
pytestmark = pytest.mark.skipif(MPIEXEC is None, reason="there is no mpiexec")
REPOSITORY = Path(__file__).parents[3]


def run_ranks(*command: str, ranks: int = 4) -> subprocess.CompletedProcess[str]:
    """A program of several ranks, all of which end within a minute or two."""
    env = {**os.environ, "PYTHONPATH": str(REPOSITORY), "OPENBLAS_NUM_THREADS": "1"}
    whole = [str(MPIEXEC), "-n", str(ranks), sys.executable, *command]
    return subprocess.run(whole, capture_output=True, text=True, env=env, cwd=REPOSITORY, timeout=120)


@pytest.mark.parametrize("which", [SAMPLE, pytest.param(EVERY, marks=pytest.mark.heavy)], ids=["a sample", "every"])
def test_ranks_give_the_bits_and_counts_of_one_loop(which: Sequence[tuple[str, int]], tmp_path: Path) -> None:
    """And they run often, go on from checkpoints, fail together, and refuse what does not fit."""
    write_cases(tmp_path / "cases", which)
    done = run_ranks("-m", "tests.exec.mpi.ranks", "work", str(tmp_path / "cases"))
    assert done.returncode == 0, done.stderr
    told = [f"{name} on {count} has the bits of one loop" for name, count in which]
    every = ("run_often", "go_on", "fail_together", "be_refused", "call_together", "fail_within", "state_errors")
    assert done.stdout.splitlines() == [*told, *(f"{one} done" for one in every)]


def test_what_is_no_communicator_is_named() -> None:
    with pytest.raises(TypeError, match="MpiBackend: comm must be a communicator of mpi4py, not 5; give one, or none"):
        MpiBackend(5)


def test_ranks_that_do_not_come_are_waited_for_a_while() -> None:
    done = run_ranks("-m", "tests.exec.mpi.ranks", "wait_in_vain", ranks=2)
    assert done.stdout.count("waited in vain") == 1, done.stderr


@pytest.mark.parametrize(
    "what",
    ["die_within", pytest.param("die", marks=pytest.mark.heavy), pytest.param("raise_alone", marks=pytest.mark.heavy)],
)
def test_one_that_ends_ends_all(what: str) -> None:
    """A rank that is killed; one that raises alone, where the program was begun by `tapestry_exec.mpi`."""
    begin = time.monotonic()
    done = run_ranks("-m", "tapestry_exec.mpi", "-m", "tests.exec.mpi.ranks", what, ranks=2)
    assert done.returncode != 0 and "done" not in done.stdout and time.monotonic() - begin < 30
    assert ("only here" in done.stderr) == (what == "raise_alone")


@pytest.mark.heavy
def test_the_command_prints_once(tmp_path: Path) -> None:
    model = REPOSITORY / "tests" / "models" / "gpt2.onnx"
    command = ["-m", "tapestry_exec.cli", "run", str(model), "--mesh", "2", "--backend", "mpi", "--verify", "--quiet"]
    done = run_ranks("-m", "tapestry_exec.mpi", *command, ranks=2)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("moved") == 1


def test_no_mpi4py_is_told() -> None:
    with mock.patch.dict(sys.modules, {"mpi4py": None}), pytest.raises(BackendUnavailable, match=r"tensor\[mpi\]'"):
        MpiBackend()


def test_ranks_sleep_while_their_core_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    slept, late = list[float](), [0.0]
    monkeypatch.setattr(messages, "sleep", slept.append)
    monkeypatch.setattr(messages.os, "sched_yield", lambda: time.sleep(late[0]))
    pace = messages.Pace()
    pace.rest(0.0)
    assert not slept, "a core that nobody wants is kept"
    pace.rest(1.0)
    assert len(slept) == 1, "but not for long"
    late[0] = 1e-3
    for k in range(3):  # each time for longer
        slept.clear()
        pace.rest(0.0)
        for _ in range(64 * 4**k):
            pace.rest(0.0)
        assert len(slept) == 64 * 4**k == messages.FIRST_NAPS * 4**k


@pytest.fixture
def bells(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Bell]]:
    """Those of three ranks, of which the last one is on another machine."""
    found = [Bell(3) for _ in range(3)]
    if not all(one.address for one in found):
        pytest.skip("no addresses of sockets that no file has")
    for me, one in enumerate(found):
        one.meet(me, [other.address for other in found], ["here", "here", "there"])
    yield found
    for one in found:
        one.close()


def test_a_bell_ends_a_nap(bells: list[Bell]) -> None:
    """A rank of this machine that sends wakes the one that it sends to, which sleeps for long otherwise."""
    first, second, third = bells
    assert [sorted(one.others) for one in bells] == [[1], [0], []] and not first.is_everywhere
    second.mine.asleep[0] = 1
    for _ in range(1_000):  # more than a socket holds
        first.ring(1)
    first.ring(2)
    assert second.wait(10) and not second.wait(0) and not third.wait(0)
    pace = messages.Pace(third)
    third.others = {0: first.others[1]}
    begin = time.perf_counter()
    pace.rest(1.0)
    assert time.perf_counter() - begin >= messages.BELL_SECONDS / 2 and not pace.looks
    second.others, second.mine.asleep[0] = {1: first.others[1]}, 1
    second.ring(1)
    pace = messages.Pace(second)
    pace.rest(1.0)
    assert pace.looks == messages.LOOKS_AFTER_RING
    first.meet(0, ["", "|a"], ["here", "here"])
    assert not first.is_everywhere


def test_a_rank_that_is_gone_is_not_rung(bells: list[Bell]) -> None:
    first, second, _ = bells
    second.mine.asleep[0] = 1
    second.close()
    first.ring(1)
    assert not first.others


def test_a_bell_wakes_for_what_is_waited_for(bells: list[Bell]) -> None:
    """Not for what another rank sends, nor for what was taken; nobody is rung who is awake."""
    first, second, third = bells
    for me, one in enumerate(bells):
        one.meet(me, [other.address for other in bells], ["here"] * 3)
    second.ring(0)
    assert first.count_untaken(1) == 1 and not first._listen() and not first.asked.poll(0), "it is awake"
    assert not first.wait(0.002, has_more(first, 2)), "which has sent nothing"
    assert first.wait(0, has_more(first, 1)) and not first.wait(0, has_more(first, 1, 1)), "one, which is not the one"
    first.taken[1] += 1
    assert not first.wait(0, has_more(first, 1))
    second.ring(0, 3)
    assert first.wait(0, has_more(first, 1)) and first.count_untaken(1) == 3
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(first.wait, 10, has_more(first, 2))
        while not first.mine.asleep[0]:
            time.sleep(1e-3)
        second.ring(0)
        third.ring(0)
        assert waiting.result(10) and not first.mine.asleep[0]
    third.ring(0, is_alarm=True)
    assert first.wait(10, has_more(first, 1, 4)), "whatever is waited for"


def has_more(bell: Bell, rank: int, known: int = 0) -> Callable[[], bool]:
    """Whether a rank has sent more messages than are known."""
    return lambda: (bell.count_untaken(rank) or 0) > known


def test_who_comes_last_wakes_the_others(bells: list[Bell]) -> None:
    for me, one in enumerate(bells):
        one.meet(me, [other.address for other in bells], ["here"] * 3)
    for _ in range(3):
        first, second = (one.come() for one in bells[:2])
        assert not first() and not second()
        with ThreadPoolExecutor(2) as pool:
            waiting = [
                pool.submit(one.wait, 10, is_there) for one, is_there in zip(bells, (first, second), strict=False)
            ]
            while not all(one.mine.asleep[0] for one in bells[:2]):
                time.sleep(1e-3)
            begin = time.perf_counter()
            third = bells[2].come()
            assert all(one.result(20) for one in waiting) and time.perf_counter() - begin < 5
        assert first() and second() and third()


def test_ranks_without_pages_are_rung_by_all(bells: list[Bell]) -> None:
    """As those of a container whose processes have other numbers: whoever rings wakes them."""
    first, second, _ = bells
    _, _, address = second.address.partition("|")
    process, file, nonce = first.page.place.split()
    for place in ("", f"{process} {file} {nonce[::-1]}x", f"{process} {file} {'00' * 16}", f"{process} 9999 {nonce}"):
        assert open_page(place) is None
        first.meet(0, [first.address, f"{place}|{address}"], ["here"] * 2)
        assert not first.pages and first.others and first.count_untaken(1) is None
    second.pages.clear()
    first.ring(1)
    assert second.wait(0)


@pytest.mark.parametrize("came", [False, True])
def test_a_parcel_that_came_while_its_receiver_gave_up_is_counted(came: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that failed is drained by counts: of one too few all ranks would wait for ever."""
    status = mock.Mock()
    request = mock.Mock(Wait=mock.Mock(side_effect=lambda given: given is status))
    status.Is_cancelled.return_value = not came
    request.Test.return_value = False
    mail = Mail.__new__(Mail)
    mail.receipts, mail.room, mail.taken = {(1, 7): (4, "float32")}, np.empty(64, np.uint8), Counter()
    mail.calls, mail.pace, mail.incoming, mail.bell = mock.Mock(calls=[]), messages.Pace(), {}, Bell(2)
    mail.comm, mail.mpi, mail.large = mock.Mock(Recv_init=lambda *_: request), mock.Mock(Status=lambda: status), []
    monkeypatch.setattr(Mail, "_wait", mock.Mock(side_effect=TimeoutError("it took too long")))
    with pytest.raises(TimeoutError, match="it took too long"):
        mail.recv(7, 1)
    assert +mail.taken == +mail.bell.taken == Counter({1: 1} if came else {})
    request.Cancel.assert_called_once_with()
    mail.bell.close()


def test_answers_come_as_they_were() -> None:
    """Their arrays are not copied where they come."""
    x = np.arange(24.0).reshape(4, 6)
    cells = [x, np.array(True), x[:0], np.asfortranarray(x), x[::2, ::3], np.arange(5, dtype=np.int8)]
    packed = messages.join([messages.pack_answer(one) for one in (None, ("done", {"a": 1}, cells))])
    nothing, (word, plain, found) = map(messages.read_answer, messages.cut(memoryview(packed)))
    assert nothing is None and (word, plain) == ("done", {"a": 1})
    begin, ends = np.frombuffer(packed, np.uint8).ctypes.data, len(packed)
    for one, wanted in zip(found, cells, strict=True):
        assert one.dtype == wanted.dtype and np.array_equal(one, wanted)
        place = one.ctypes.data - begin
        assert not wanted.size or not wanted.flags.contiguous or (0 < place < ends and place % 16 == 0)


@pytest.mark.parametrize("nbytes", [0, 1, 7_999, 8_000, 8_001, 16_000, 32_000, 32_001, 100_000])
def test_messages_go_in_pieces_that_are_taken_at_once(nbytes: int) -> None:
    """Answers end with a piece that is not full; large messages go whole."""
    sent: list[tuple[int, bytes]] = []
    room = np.arange(nbytes, dtype=np.uint32).astype(np.uint8)
    mail = Mail.__new__(Mail)
    mail.mpi, mail.bell, mail.sent, mail.large = mock.Mock(), mock.Mock(), [], []

    def isend(what: Any, peer: int, tag: int) -> Any:
        sent.append((tag, what[0].tobytes()))
        return mock.Mock()

    mail.comm = mock.Mock(Isend=isend)
    mail._post(room, 1, messages.ANSWER)
    mail._post(room, 1, messages.FIRST + 5)
    answers, parcels = ([piece for tag, piece in sent if tag == one] for one in (messages.ANSWER, messages.FIRST + 5))
    assert b"".join(parcels) == room.tobytes() and len(parcels) == len(messages.list_pieces(nbytes))
    assert (len(parcels) == 1) == (not 8_000 < nbytes <= 32_000) and len(mail.large) == 2 * (nbytes > 32_000)
    pieces = iter([bytearray(one) for one in answers])
    mail._take = mock.Mock(side_effect=lambda *_: next(pieces))  # type: ignore[method-assign]
    assert mail._take_whole(1, messages.ANSWER, "an answer") == room.tobytes() and next(pieces, None) is None


def test_events_that_are_the_same_are_told_once() -> None:
    """And again behind a run that failed, or one with other events."""
    ranks = [CountsTold(), CountsTold()]

    def tell(counts: Counts) -> int:
        told = ranks[0].write(1.5, 0.25, counts)
        for one in ranks:
            begin, error, found = one.read(0, told)
            assert (begin, error) == (1.5, 0.25) and found.__reduce__() == counts.__reduce__()
        return len(told)

    links = Counter({(0, 1): 5, (0, 2): 7})
    for turn in range(3):
        sizes = [tell(Counts(links, 1, 2, 3, 4.0, 5, Timed(b"e" * 999, bytes([k])), b"t" * 99)) for k in range(3)]
        assert sizes[0] > 1_000 > 200 > sizes[1] == sizes[2]
        if turn == 0:
            for one in ranks:
                one.forget()
        else:
            tell(Counts(links, 1, 2, 3, 4.0, 5, [TraceEvent(1, "compute", "a", 0, 1.0, 2.0, 0)], ()))
