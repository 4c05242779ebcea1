"""Ranks of MPI programs: the bits and bytes of one loop, and errors that all raise."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

from tapestry_exec import BackendUnavailable, MpiBackend
from tapestry_exec.mpi import endings, messages
from tapestry_exec.mpi.backend import CountsTold
from tapestry_exec.mpi.bells import Bell, open_page
from tapestry_exec.mpi.endings import Endings
from tapestry_exec.mpi.messages import Mail
from tapestry_exec.mpi.several import Dealing, deal_singly
from tapestry_exec.run import Counts, Timed, TraceEvent
from tests.exec.small_networks import EVERY, SAMPLE, write_cases
from tests.hosts import find_mpiexec

pytest.importorskip("mpi4py", reason="mpi4py is not installed")
MPIEXEC = find_mpiexec()
pytestmark = pytest.mark.skipif(MPIEXEC is None, reason="there is no mpiexec")
REPOSITORY = Path(__file__).parents[3]
EVERY_TASK = ("run_often", "go_on", "fail_together", "be_refused", "call_together", "fail_within", "state_errors")
EVERY_TASK += "fail_by_heart", "share_ranks", "fall_out_of_step", "be_interrupted", "give_back"
SHARED = "sums", "gpt2"
"""The networks on four devices that each run tries on fewer ranks."""


def run_ranks(*command: str, ranks: int = 4) -> subprocess.CompletedProcess[str]:
    """A program of several ranks, all of which end within a minute or two."""
    env = {**os.environ, "PYTHONPATH": str(REPOSITORY), "OPENBLAS_NUM_THREADS": "1"}
    whole = [str(MPIEXEC), "-n", str(ranks), sys.executable, *command]
    return subprocess.run(whole, capture_output=True, text=True, env=env, cwd=REPOSITORY, timeout=120)


@pytest.mark.parametrize("which", [SAMPLE, pytest.param(EVERY, marks=pytest.mark.heavy)], ids=["a sample", "every"])
def test_ranks_give_the_bits_and_counts_of_one_loop(which: Sequence[tuple[str, int]], tmp_path: Path) -> None:
    """And they run often, go on from checkpoints, fail together, and refuse what does not fit."""
    write_cases(tmp_path / "cases", which)
    write_cases(tmp_path / "cases.four", [one for one in EVERY if one[1] == 4 and (which is EVERY or one[0] in SHARED)])
    done = run_ranks("-m", "tests.exec.mpi.ranks", "work", str(tmp_path / "cases"))
    assert done.returncode == 0, done.stderr
    told = [f"{name} on {count} has the bits of one loop" for name, count in which]
    assert done.stdout.splitlines() == [*told, *(f"{one} done" for one in EVERY_TASK)]


def test_what_is_no_communicator_is_named() -> None:
    with pytest.raises(TypeError, match="MpiBackend: comm must be a communicator of mpi4py, not 5; give one, or none"):
        MpiBackend(5)


def test_ranks_that_do_not_come_are_waited_for_a_while() -> None:
    done = run_ranks("-m", "tests.exec.mpi.ranks", "wait_in_vain", ranks=2)
    assert done.stdout.count("waited in vain") == 1, done.stderr


def test_a_rank_whose_program_has_ended_is_missed() -> None:
    """By the others, which raise, and end with it in MPI's own end."""
    begin = time.monotonic()
    done = run_ranks("-m", "tests.exec.mpi.ranks", "end_alone", ranks=3)
    assert done.stdout.count("missed it") == 2 and "only here" in done.stderr, done.stderr
    assert done.returncode != 0 and time.monotonic() - begin < 60


def test_a_rank_that_has_the_last_results_may_end() -> None:
    """While another one still takes them: nobody misses it."""
    done = run_ranks("-m", "tests.exec.mpi.ranks", "end_before_others", ranks=3)
    assert done.returncode == 0 and done.stdout.count("ended well") == 3, done.stderr


def test_a_program_that_has_called_the_end_of_mpi_is_told() -> None:
    done = run_ranks("-m", "tests.exec.mpi.ranks", "call_end", ranks=2)
    assert done.returncode == 0 and done.stdout.count("ended well") == 2, done.stderr


def test_a_program_that_has_not_begun_mpi_is_told() -> None:
    with mock.patch("mpi4py.MPI.Is_initialized", lambda: False), pytest.raises(BackendUnavailable, match="not begun"):
        MpiBackend()


def test_no_thread_for_a_name_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is looked up later, and what has not begun is not waited for."""
    found, asked, full = Endings(mock.MagicMock(rank=0)), list[str](), [True]
    monkeypatch.setattr(found, "ranks", [4, 6])
    monkeypatch.setattr(found, "mpi", mock.Mock(Exception=found.mpi.Exception, Lookup_name=asked.append))
    monkeypatch.setattr(endings, "_NAMES", {6: "its"})
    monkeypatch.setattr(endings, "LOOK_UP_SECONDS", 0.0)
    start = threading.Thread.start

    def begin(one: threading.Thread) -> None:
        if full[0]:
            raise RuntimeError("can't start new thread")
        start(one)

    monkeypatch.setattr(threading.Thread, "start", begin)
    for _ in range(4):
        found.look("device 0", "x")
    assert not asked and endings.is_answered()
    full[0] = False
    for _ in range(4):
        found.look("device 0", "x")
    assert endings.is_answered(20) and asked == ["its"]


def test_what_an_ended_rank_sent_is_waited_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """And of one that has not ended, or whose name is not known, nothing is said; few are looked up at a time."""
    found, now, published, asked = Endings(mock.MagicMock(rank=0)), [10.0], set[str](), list[str]()
    mpi = found.mpi
    monkeypatch.setattr(found, "ranks", [4, 6, -1])

    def look_up(name: str) -> None:
        asked.append(name)
        if name not in published:
            raise mpi.Exception(mpi.ERR_NAME)

    monkeypatch.setattr(found, "mpi", mock.Mock(Exception=mpi.Exception, Lookup_name=look_up))
    monkeypatch.setattr(endings, "_NAMES", {4: "mine", 6: "its"})
    monkeypatch.setattr(endings, "monotonic", lambda: now[0])

    def look_for_a_while(at: float) -> None:
        for k in range(100):
            now[0] = at + k / 1_000
            found.look("device 0", "x")
            assert endings.is_answered(20)

    look_for_a_while(10.0)
    published.add("its")
    look_for_a_while(20.0)
    look_for_a_while(21.9)
    with pytest.raises(BackendUnavailable, match="the program of rank 1 has ended, while device 0 waited for x"):
        look_for_a_while(22.1)
    assert set(asked) == {"its"} and 2 < len(asked) < 10, "and none again that was found"


def test_a_process_manager_that_does_not_answer_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """As one behind a cable that was cut: who waits goes on, and gives up in time."""
    found, cut, asked = Endings(mock.MagicMock(rank=0)), threading.Event(), list[str]()
    monkeypatch.setattr(found, "ranks", [4, 6, -1])

    def look_up(name: str) -> None:
        asked.append(name)
        cut.wait(60)

    monkeypatch.setattr(found, "mpi", mock.Mock(Exception=found.mpi.Exception, Lookup_name=look_up))
    monkeypatch.setattr(endings, "_NAMES", {6: "its"})
    monkeypatch.setattr(endings, "LOOK_UP_SECONDS", 0.0)
    for _ in range(30):
        found.look("device 0", "x")
    assert asked == ["its"] and not endings.is_answered()
    cut.set()
    assert endings.is_answered(20)


def test_a_program_that_ends_waits_for_the_process_manager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its answer that there is no such name would end the program with an error, behind what it has done."""
    at_end, published, answer = list[Callable[[], None]](), list[str](), threading.Event()
    monkeypatch.setattr("atexit.register", at_end.append)
    for name, found in (("COMM_SELF", mock.Mock()), ("Publish_name", lambda name, _: published.append(name))):
        monkeypatch.setattr(f"mpi4py.MPI.{name}", found)
    monkeypatch.setattr(endings, "can_ask", lambda: True)
    monkeypatch.setattr(endings, "ENDED_SECONDS", 0.0)
    name, asking = endings.find_name.__wrapped__(), threading.Thread(target=answer.wait, args=(60,))
    asking.start()
    monkeypatch.setattr(endings, "_ASKING", [asking])
    threading.Timer(0.2, answer.set).start()
    at_end[0]()
    assert published == [name] and not asking.is_alive()


def test_numbers_of_parcels_tell_them_apart() -> None:
    """Between the same two ranks none is of two parcels, and each says which one it is of."""
    for groups in (((0,), (1,), (2,)), ((0, 1), (2,)), ((0, 1), (2, 3, 4), (5,))):
        dealing, seen = Dealing(groups), dict[tuple[int, int, int], tuple[int, int, int]]()
        for tag, source, target in product(range(5), range(len(dealing.ranks)), range(len(dealing.ranks))):
            here, there = dealing.ranks[source], dealing.ranks[target]
            number = dealing.number(tag, source, target)
            assert seen.setdefault((here, there, number), (tag, source, target)) == (tag, source, target)
            assert dealing.read(number, here, there) == (tag, source, target)
            assert dealing.most > 1 or number == tag


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
@pytest.mark.parametrize("runner", [[], ["-m", "tapestry_exec.mpi"]], ids=["alone", "by tapestry_exec.mpi"])
def test_the_command_prints_once(runner: list[str]) -> None:
    model = REPOSITORY / "tests" / "models" / "gpt2.onnx"
    command = ["-m", "tapestry_exec.cli", "run", str(model), "--mesh", "2", "--backend", "mpi", "--verify"]
    done = run_ranks(*runner, *command, ranks=2)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("moved") == 1 and len(re.findall(r"devices: \d+\.\d+ s", done.stderr)) == 1


@pytest.mark.heavy
def test_each_rank_of_a_command_that_is_refused_ends_with_its_status() -> None:
    """Also one that prints nothing else."""
    told = "import sys; from tapestry_exec.cli.commands import main; from mpi4py import MPI\n"
    told += "try: main(['run', 'none.onnx', '--backend', 'mpi'])\nexcept SystemExit as end: print(end.code)"
    done = run_ranks("-c", told, ranks=2)
    assert done.stdout.split() == ["2", "2"] and done.stderr.count("none.onnx") == 2


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
def bells() -> Iterator[list[Bell]]:
    """Those of three ranks, of which the last one is on another machine."""
    found = [Bell(3) for _ in range(3)]
    if not all(one.mine.place for one in found):
        pytest.skip("no semaphores in memory that processes share")
    meet(found, ["here", "here", "there"])
    yield found
    for one in found:
        one.close()


def meet(bells: Sequence[Bell], clocks: Sequence[str], cores: Sequence[int] = (0, 1, 2)) -> None:
    """Have them know each other, each allowed the same cores."""
    for me, one in enumerate(bells):
        one.meet(me, [(other.mine.place, cores) for other in bells], clocks)


def has_more(bell: Bell, rank: int, known: int = 0) -> Callable[[], bool]:
    """Whether a rank has sent more messages than are known."""
    return lambda: bell.count_untaken(rank) > known


def test_a_bell_ends_a_nap(bells: list[Bell], monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank of this machine that sends wakes the one that it sends to, which sleeps for long otherwise."""
    first, second, _ = bells
    assert [sorted(one.pages) for one in bells] == [[1], [0], []]
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(second.wait, 10, has_more(second, 0, 999))
        for _ in range(1_000):
            first.ring(1)
        assert waiting.result(10) and not second.mine.asleep[0]
    first.ring(2)
    slept = list[float]()
    monkeypatch.setattr(messages, "sleep", slept.append)
    for peer, is_brief, count in ((0, False, 0), (0, True, 1), (2, False, 1)):  # 2 is elsewhere: it rings nobody
        pace = messages.Pace(second)
        pace.wait_for(peer, is_brief)
        slept.clear()
        pace.rest(1.0)
        assert (pace.looks, pace.known, slept) == (
            (messages.LOOKS_AFTER_RING, 1_000, []) if not count else (0, 0, [messages.NAP_SECONDS])
        )
    begin = time.perf_counter()
    pace.wait_for(0, False)
    pace.known = 1_000
    pace.rest(1.0)
    assert time.perf_counter() - begin >= messages.BELL_SECONDS and not pace.looks, "no more came"


def test_ranks_with_cores_of_their_own_look_before_they_sleep(
    bells: list[Bell], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where ranks are more than cores, they keep no core from those that they wait for."""
    slept, yielded = list[float](), list[None]()
    monkeypatch.setattr(messages.os, "sched_yield", lambda: yielded.append(None))
    first = bells[0]
    monkeypatch.setattr(first, "wait", lambda seconds, _: slept.append(seconds))
    for cores, waited, sleeps in (((0, 1), 0.0, False), ((0, 1), 1.0, True), ((0,), 0.0, True), ((), 0.0, True)):
        meet(bells, ["here", "here", "there"], cores)
        slept.clear(), yielded.clear()
        pace = messages.Pace(first)
        pace.wait_for(1, False)
        pace.rest(waited)
        assert (len(slept), len(yielded)) == (sleeps, not sleeps)


def test_a_bell_that_is_rung_on_and_on_ends_a_nap_in_time(bells: list[Bell]) -> None:
    first, second, _ = bells
    second.mine.asleep[0] = 1
    begin, calls = time.perf_counter(), list[None]()

    def ring_on() -> bool:
        calls.append(None)
        first.ring(1)
        return False

    assert not second.wait(0.02, ring_on) and 0.02 <= time.perf_counter() - begin < 5 and len(calls) > 5


def test_a_bell_wakes_for_what_is_waited_for(bells: list[Bell]) -> None:
    """Not for what another rank sends, nor for what was taken; nobody is rung who is awake."""
    first, second, third = bells
    meet(bells, ["here"] * 3)
    second.ring(0)
    assert first.count_untaken(1) == 1 and not first.mine.sleep(0), "it is awake"
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
    assert not first.wait(0, has_more(first, 1, 4)), "but once"


def test_who_comes_last_wakes_the_others(bells: list[Bell]) -> None:
    meet(bells, ["here"] * 3)
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


def test_a_later_rank_leaves_the_core_of_an_earlier_one(bells: list[Bell], monkeypatch: pytest.MonkeyPatch) -> None:
    """And may use all of its cores behind that."""
    set_to = list[set[int]]()
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1, 2, 3})
    monkeypatch.setattr("os.sched_setaffinity", lambda _, cores: set_to.append(set(cores)))
    core = [0]
    monkeypatch.setattr("tapestry_exec.mpi.bells.find_calls", lambda: mock.Mock(find_core=lambda: core[0]))
    for allowed, cores, moves in (
        ((0, 1, 2, 3), (1, 2, 1), [None, None, {0, 3}]),
        ((0, 1, 2, 3), (1, 2, 3), [None] * 3),
        ((0, 1), (1, 1, 1), [None] * 3),  # others need them, too
    ):
        meet(bells, ["here"] * 3, allowed)
        for core[0], one in zip(cores, bells, strict=True):
            one.come()
        for core[0], one, wanted in zip(cores, bells, moves, strict=True):
            set_to.clear()
            one.leave_shared_core()
            assert set_to == ([] if wanted is None else [wanted, {0, 1, 2, 3}])


def test_pages_are_opened_by_those_who_know_their_number(bells: list[Bell], tmp_path: Path) -> None:
    """In a container, whose processes have other numbers, the same ones are of other processes, or of no page."""
    first, second, _ = bells
    process, file, nonce = first.mine.place.split()
    with (tmp_path / "other").open("w+b") as other:
        wrong = [f"{process} {file} {nonce[::-1]}x", f"{process} {file} {'00' * 16}", f"{process} 9999 {nonce}"]
        for place in ("", *wrong, f"{os.getpid()} {other.fileno()} {nonce}"):
            assert open_page(place) is None
            second.meet(1, [(place, [0]), (second.mine.place, [0])], ["here"] * 2)
            assert not second.pages and second.is_crowded
            second.ring(0)


def test_no_semaphores_are_no_bells(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank on such a system sleeps between its looks."""
    monkeypatch.setattr("tapestry_exec.mpi.bells.find_calls", mock.Mock(side_effect=AttributeError("sem_clockwait")))
    first, second = Bell(2), Bell(2)
    meet([first, second], ["here"] * 2)
    first.ring(1)
    assert not first.mine.place and not first.pages and first.mine.sent[1] == 1
    first.close()


def test_bells_give_back_their_files() -> None:
    """At once: programs that run often would hold more and more until Python looks for cycles."""

    def count() -> int:
        return len(os.listdir("/proc/self/fd")) if os.path.exists("/proc/self/fd") else 0

    before = count()
    found = [Bell(3) for _ in range(3)]
    meet(found, ["here"] * 3)
    complete = [one.come() for one in found]
    assert complete[0]() or not found[0].pages
    if found[0].pages:
        assert count() > before
    for one in found:
        one.close()
    assert count() == before and complete


@pytest.mark.parametrize("came", [False, True])
def test_a_parcel_that_came_while_its_receiver_gave_up_is_counted(came: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that failed is drained by counts: of one too few all ranks would wait for ever."""
    status = mock.Mock()
    request = mock.Mock(Test=mock.Mock(side_effect=lambda given=None: given is status and request.Cancel.called))
    status.Is_cancelled.return_value = not came
    mail = Mail.__new__(Mail)
    mail.receipts, mail.room, mail.taken = {(1, 7): (4, "float32")}, np.empty(64, np.uint8), Counter()
    mail.calls, mail.pace, mail.incoming, mail.bell = mock.Mock(calls=[]), messages.Pace(), {}, Bell(2)
    mail.half = []
    mail.comm, mail.mpi = mock.Mock(Recv_init=lambda *_: request, rank=0), mock.Mock(Status=lambda: status)
    mail.dealing = deal_singly(2)
    monkeypatch.setattr(Mail, "_wait", mock.Mock(side_effect=TimeoutError("it took too long")))
    with pytest.raises(TimeoutError, match="it took too long"):
        mail.recv(7, 1)
    assert +mail.taken == +mail.bell.taken == Counter({1: 1} if came else {}) and not mail.half
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
    mail.mpi, mail.bell, mail.sent = mock.Mock(), mock.Mock(), []

    def isend(what: Any, peer: int, tag: int) -> Any:
        sent.append((tag, what[0].tobytes()))
        return mock.Mock()

    mail.comm = mock.Mock(Isend=isend)
    mail._post(room, 1, messages.ANSWER)
    mail._post(room, 1, messages.FIRST + 5)
    answers, parcels = ([piece for tag, piece in sent if tag == one] for one in (messages.ANSWER, messages.FIRST + 5))
    assert b"".join(parcels) == room.tobytes() and len(parcels) == len(messages.list_pieces(nbytes))
    assert (len(parcels) == 1) == (not 8_000 < nbytes <= 32_000)
    pieces = iter([bytearray(one) for one in answers])
    mail._take = mock.Mock(side_effect=lambda *_: next(pieces))  # type: ignore[method-assign]
    assert mail._take_whole(1, messages.ANSWER, "an answer") == room.tobytes() and next(pieces, None) is None


def test_events_that_are_the_same_are_told_once() -> None:
    """And again behind a run that failed, or one with other events."""
    ranks = [CountsTold(), CountsTold()]

    def tell(counts: Counts) -> int:
        told = ranks[0].write(0, 1.5, 0.25, counts)
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
