"""Ranks of MPI programs: the bits and bytes of one loop, and errors that all raise."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

from tapestry_exec import BackendUnavailable, MpiBackend
from tapestry_exec.mpi import messages
from tapestry_exec.mpi.bells import Bell
from tapestry_exec.mpi.messages import Mail
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


def test_a_bell_ends_a_nap() -> None:
    """A rank of this machine that sends wakes the one that it sends to, which sleeps for long otherwise."""
    bells = [Bell() for _ in range(3)]
    addresses = [one.address for one in bells]
    if not all(addresses):
        pytest.skip("no addresses of sockets that no file has")
    for me, one in enumerate(bells):
        one.meet(me, addresses, ["here", "here", "there"])
    assert [sorted(one.others) for one in bells] == [[1], [0], []] and not bells[0].is_everywhere
    for _ in range(1_000):  # more than a socket holds
        bells[0].ring(1)
    bells[0].ring(2)
    assert bells[1].wait(10) and not bells[1].wait(0) and not bells[2].wait(0)
    bells[1].close()
    bells[0].ring(1)
    assert not bells[0].others, "a rank that is gone is not rung"
    bells[0].meet(0, ["", "a"], ["here", "here"])
    assert not bells[0].is_everywhere
    pace = messages.Pace(bells[2])
    bells[2].others = {0: addresses[0].encode()}
    begin = time.perf_counter()
    pace.rest(1.0)
    assert time.perf_counter() - begin >= messages.BELL_SECONDS / 2 and not pace.looks
    bells[2].others = {2: addresses[2].encode()}
    bells[2].ring(2)
    pace.rest(1.0)
    assert pace.looks == messages.LOOKS_AFTER_RING
    bells[0].close()
    bells[2].close()


@pytest.mark.parametrize("came", [False, True])
def test_a_parcel_that_came_while_its_receiver_gave_up_is_counted(came: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that failed is drained by counts: of one too few all ranks would wait for ever."""
    status = mock.Mock()
    request = mock.Mock(Wait=mock.Mock(side_effect=lambda given: given is status))
    status.Is_cancelled.return_value = not came
    mail = Mail.__new__(Mail)
    mail.receipts, mail.room, mail.taken = {(1, 7): (4, "float32")}, np.empty(64, np.uint8), Counter()
    mail.calls, mail.pace = mock.Mock(find=lambda tag, peer: None), messages.Pace()
    mail.comm, mail.mpi = mock.Mock(Irecv=lambda *_: request), mock.Mock(Status=lambda: status)
    monkeypatch.setattr(Mail, "_wait", mock.Mock(side_effect=TimeoutError("it took too long")))
    with pytest.raises(TimeoutError, match="it took too long"):
        mail.recv(7, 1)
    assert mail.taken == Counter({1: 1} if came else {})
    request.Cancel.assert_called_once_with()
