"""Processes that are killed, stopped or raise: the bits of a run without faults, or an error with step and device."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tapestry_exec import ProcessBackend, StepFailed, deploy, run
from tapestry_exec.processes import backend
from tapestry_exec.run import tuning
from tapestry_plan import Mesh, plan
from tapestry_plan.ir import BUILTIN_OPS
from tapestry_plan.steps import Copy
from tests.exec.own_ops import Sabotage, as_relu
from tests.exec.processes.test_processes import of_mine, wait_until
from tests.exec.run.test_checkpoints import chain
from tests.exec.run.test_deploy import training_step
from tests.exec.run.test_side_by_side import made
from tests.exec.sent_bytes import find_sent, find_step, list_sums, sum_by_device
from tests.ways_of_running import assert_same

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
KINDS = ("computing", "sending", "receiving", "last", "raising")


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """No test leaves a process behind."""
    yield
    wait_until(lambda: not of_mine())
    assert not of_mine()


def test_all_begin_again_after_each_fault(rounds: int, tmp_path: Path) -> None:
    for k in range(rounds):
        (tmp_path / str(k)).mkdir()
        p, inputs = made(2 + k % 3)
        engine = ProcessBackend(retries=len(KINDS), processes=p.mesh.size)
        found = run(p, inputs, backend=engine, ops=as_relu(Sabotage(KINDS, str(tmp_path / str(k)))))
        assert_same(found, run(p, inputs, backend="serial"))
        assert [(fault.generation, fault.device) for fault in found.faults] == [(k + 1, 0) for k in range(len(KINDS))]
        for kind, fault in zip(KINDS, found.faults, strict=True):
            assert ("too hot" if kind == "raising" else "died (signal 9)") in fault.error
            assert fault.step is not None and 0 < fault.step < len(p.steps)
            assert all(sent in list_sums(p, device) for device, sent in enumerate(fault.nbytes_sent))
            mine = {k: one for k, one in find_sent(p, 0, fault.step).items() if one.source == 0}
            assert fault.nbytes_sent[0] == sum_by_device(p, mine)[0] and mine.keys() <= fault.nbytes_by_step.keys()
            assert sum(fault.nbytes_by_step.values()) == sum(sent or 0 for sent in fault.nbytes_sent)
            step = p.steps[fault.step]
            if kind in ("sending", "receiving"):  # it was in the call, at a copy of its own
                assert isinstance(step, Copy)
                assert p.buffers[step.src if kind == "sending" else step.dst].device == 0
                assert kind[:4].replace("rece", "recv") in (tmp_path / str(k) / f"died {kind}").read_text().split()


def test_what_was_sent_is_told_by_step(tmp_path: Path) -> None:
    """All stand still, and one dies: as many bytes as the plan's steps up to there say."""
    p, inputs = made(3)
    marks = [tmp_path / name for name in ("relu", "tanh")]
    for mark in marks:
        mark.mkdir()
    ops = {mark.name: replace(BUILTIN_OPS[mark.name], block=Sabotage(["falling"], str(mark))) for mark in marks}
    found = run(p, inputs, backend=ProcessBackend(retries=2, processes=3), ops=ops)
    for fault, node in zip(found.faults, ("act", "last"), strict=True):
        sent = find_sent(p, 0, step := find_step(p, node, 0))
        assert fault.step == step and fault.nbytes_sent == sum_by_device(p, sent)
        assert fault.nbytes_by_step == {k: one.nbytes for k, one in sent.items()}
    assert sum(found.faults[1].nbytes_by_step.values()) == p.nbytes_moved > sum(found.faults[0].nbytes_by_step.values())


@pytest.mark.parametrize("processes", [1, 3])
def test_what_was_sent_is_told_of_runs_that_are_known_by_heart(processes: int, tmp_path: Path) -> None:
    p, inputs = made(3)
    kinds = ["dozing"] * 5 + ["falling"]
    engine = ProcessBackend(retries=1, processes=processes)
    with deploy(p, backend=engine, ops=as_relu(Sabotage(kinds, str(tmp_path)))) as placed:
        quiet = [placed.run(inputs) for _ in range(5)]
        found = placed.run(inputs)
    (fault,) = found.faults
    assert not any(one.faults for one in quiet)
    step = find_step(p, "act", 0)
    assert (fault.step, fault.device) == (step, 0)
    assert all(told > 0 and told in list_sums(p, device) for device, told in enumerate(fault.nbytes_sent))
    assert sum(fault.nbytes_by_step.values()) == sum(told or 0 for told in fault.nbytes_sent)
    if processes == 3:
        sent = find_sent(p, 0, step)
        assert fault.nbytes_by_step == {k: one.nbytes for k, one in sent.items()}


def test_devices_of_one_process_are_lost_together_and_begin_again(tmp_path: Path) -> None:
    p, inputs = made(4)
    backend = ProcessBackend(retries=len(KINDS), processes=2)
    found = run(p, inputs, backend=backend, ops=as_relu(Sabotage(KINDS, str(tmp_path))))
    assert_same(found, run(p, inputs, backend="serial"))
    assert [fault.device in (0, 1) for fault in found.faults] == [True] * len(KINDS)
    died = [fault.error for fault in found.faults if "died" in fault.error]
    assert len(died) == len(KINDS) - 1 and all("the process of devices 0 and 1 died (signal 9)" in one for one in died)


def test_all_begin_again_where_devices_died_before_the_first_step(rounds: int) -> None:
    p, inputs = made(3)
    with deploy(p, backend=ProcessBackend(retries=1, processes=3)) as placed, deploy(p, backend="serial") as one_by_one:
        wanted = one_by_one.run(inputs)
        for k in range(rounds):
            _, *devices = sorted(of_mine())
            for device in devices[: 1 + (k + 1) % 2]:  # two at once, or one
                os.kill(device, signal.SIGKILL)
            found = placed.run(inputs)
            assert_same(found, wanted)
            assert len(found.faults) == 1 and found.faults[0].step is None
        assert not placed.run(inputs).faults


@pytest.mark.parametrize("goes_on", [True, False])
def test_a_process_that_is_stopped(goes_on: bool, rounds: int, tmp_path: Path) -> None:
    """One that goes on before patience ends is waited for; else all begin again."""
    p, inputs = made(2)
    backend = ProcessBackend(retries=rounds, patience=20 if goes_on else 0.2)

    def wake() -> None:
        for k in range(rounds):
            wait_until((tmp_path / str(k)).exists)
            time.sleep(0.1)
            for device in of_mine():
                os.kill(device, signal.SIGCONT)

    if goes_on:
        threading.Thread(target=wake).start()
    with deploy(p, backend=backend, ops=as_relu(Sabotage(("stopping",) * rounds, str(tmp_path)))) as placed:
        for _ in range(rounds if goes_on else 1):
            found = placed.run(inputs)
            assert found.outputs["y"].tobytes() == run(p, inputs, backend="serial").outputs["y"].tobytes()
    assert [fault.device for fault in found.faults] == [0] * (0 if goes_on else rounds)


def test_a_server_that_is_stopped_with_all_others_is_ended(tmp_path: Path) -> None:
    """Nobody but the caller can tell: he keeps his patience with the server, too, and all begin again."""
    p, inputs = made(2)
    backend = ProcessBackend(retries=1, patience=1, processes=2)

    def stop() -> None:
        wait_until((tmp_path / "0").exists)
        for process in sorted(of_mine()):  # the server first, so that it tells of none
            os.kill(process, signal.SIGSTOP)

    stopping = threading.Thread(target=stop)
    with deploy(p, backend=backend, ops=as_relu(Sabotage(("waiting",), str(tmp_path)))) as placed:
        stopping.start()
        begin = time.monotonic()
        found = placed.run(inputs)
        took = time.monotonic() - begin
        stopping.join()
    wanted = run(p, inputs, backend="serial")
    assert found.outputs["y"].tobytes() == wanted.outputs["y"].tobytes()
    assert found.nbytes_by_link == wanted.nbytes_by_link
    (fault,) = found.faults
    assert fault.device is None and "the server of the devices' processes was stopped for 1 s" in fault.error
    assert took < 60, "not as long as a device may take that goes on"


def test_one_that_is_stopped_before_it_reads_what_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a long program a socket does not take all: the caller waits for a process that reads as for any other."""
    p, inputs = chain(300)
    start, ended = backend.ProcessSession._start_server, list[int]()

    def start_and_stop(self: Any) -> None:
        start(self)
        if not ended:
            wait_until(lambda: len(of_mine()) == 3)
            ended.append(max(of_mine()))
            os.kill(ended[0], signal.SIGSTOP)

    monkeypatch.setattr(backend.ProcessSession, "_start_server", start_and_stop)
    with deploy(p, backend=ProcessBackend(retries=1, patience=1, processes=2)) as placed:
        session: Any = placed._session
        assert min(map(len, session.setups)) > 300_000
        assert len(ended) == 1 and ended[0] not in of_mine()
        assert placed.run(inputs).outputs["y"].tobytes() == run(p, inputs, backend="serial").outputs["y"].tobytes()


@pytest.mark.parametrize("is_dead", [False, True], ids=["alone", "and a device is dead"])
def test_a_server_that_is_stopped_alone(is_dead: bool) -> None:
    """A run needs it for nothing, and it is no reason to wait at the end; of who is dead nobody tells then."""
    p, inputs = made(2)
    with deploy(p, backend=ProcessBackend(retries=1, patience=1, processes=2)) as placed:
        wanted = placed.run(inputs)
        session: Any = placed._session
        server, *devices = sorted(of_mine())
        assert server == session.server.pid
        os.kill(server, signal.SIGSTOP)
        if is_dead:
            os.kill(devices[0], signal.SIGKILL)
        found = placed.run(inputs)
        assert_same(found, wanted)
        assert ["was stopped for 1 s" in fault.error for fault in found.faults] == [True] * is_dead
        begin = time.monotonic()
    assert time.monotonic() - begin < 4, "it has 5 s where it may end by itself"


def test_one_that_never_returns_is_ended(rounds: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And all begin again, if they may."""
    p, inputs = made(2)
    monkeypatch.setattr(tuning, "MAX_WAIT_SECONDS", 2.0)
    with deploy(p, backend="processes", ops=as_relu(Sabotage(("never",), str(tmp_path)))) as placed:
        with pytest.raises(StepFailed, match=r"device 0 came no further for 2 s at step \d+ \(compute 'act' on dev"):
            placed.run(inputs)
        monkeypatch.setattr(tuning, "MAX_WAIT_SECONDS", 30.0)  # others begin, which may take seconds
        assert_same(placed.run(inputs), placed.run(inputs))
    monkeypatch.setattr(tuning, "MAX_WAIT_SECONDS", 5.0)
    wanted = run(p, inputs, backend="serial")
    for k in range(rounds):
        (tmp_path / f"marks{k}").mkdir()
        backend = ProcessBackend(retries=1, processes=2)
        found = run(p, inputs, backend=backend, ops=as_relu(Sabotage(("never",), str(tmp_path / f"marks{k}"))))
        assert_same(found, wanted)
        assert ["device 0 came no further for 5 s" in fault.error for fault in found.faults] == [True]


def test_a_process_that_is_there_late_is_waited_for(rounds: int) -> None:
    """It is stopped as soon as it is forked, and goes on when the others have long been ready."""
    p, inputs = made(3)
    wanted = run(p, inputs, backend="serial")
    stopped = list[int]()

    def hold() -> None:
        wait_until(lambda: len(of_mine()) == 4)
        late = max(of_mine())
        os.kill(late, signal.SIGSTOP)
        stopped.append(late)
        time.sleep(0.5)
        os.kill(late, signal.SIGCONT)

    for k in range(rounds):
        holding = threading.Thread(target=hold)
        holding.start()
        try:
            found = run(p, inputs, backend=ProcessBackend(retries=1, patience=20, processes=3))
        finally:
            holding.join()
        assert_same(found, wanted)
        assert not found.faults and len(stopped) == k + 1
        wait_until(lambda: not of_mine())


def test_state_that_is_lost_is_asked_for() -> None:
    """A run that goes on from the one before is not begun again: what that had left is gone."""
    g, carry, feeds = training_step()
    p = plan(g, Mesh((2,)), tie=carry)
    with deploy(p, backend=ProcessBackend(retries=3), carry=carry) as placed:
        placed.run(feeds)
        os.kill(max(of_mine()), signal.SIGKILL)
        with pytest.raises(StepFailed, match=r"generation 1 of at most 4.*give the carried inputs again"):
            placed.run({"x": feeds["x"]})
    assert not of_mine()


@pytest.mark.parametrize(
    ("given", "words"), [({"retries": -1}, "at least 0"), ({"patience": 0}, "above 0"), ({"processes": 0}, "processes")]
)
def test_wrong_numbers_are_refused(given: dict[str, int], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        ProcessBackend(**given)  # type: ignore[arg-type]


def test_a_server_whose_caller_is_gone_ends_quietly(capfd: pytest.CaptureFixture[str]) -> None:
    """Though a device has died at the same moment: it is not killed once more."""
    p, _ = made(2)
    with deploy(p, backend="processes") as placed:
        session: Any = placed._session
        with socket.socket(fileno=os.dup(session.control.fileno())) as control:
            control.shutdown(socket.SHUT_RD)  # what the server tells is not heard
        os.kill(max(of_mine()), signal.SIGKILL)
        assert session.server.wait(20) == 0
    assert "Error" not in capfd.readouterr().err
