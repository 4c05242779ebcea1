"""Workers that are killed, stopped, silent or gone: the bits of a run without faults, or an error; nothing hangs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tapestry_exec import Checkpoints, DaskBackend, Fault, StepFailed, deploy, run
from tapestry_exec.run import tuning
from tapestry_plan import ShardPlan
from tapestry_plan.ir import BUILTIN_OPS
from tests.exec.dask.clusters import keep_away, put_another
from tests.exec.own_ops import Sabotage, as_relu
from tests.exec.processes.test_process_checkpoints import Later
from tests.exec.processes.test_processes import wait_until
from tests.exec.run.test_checkpoints import chain
from tests.exec.run.test_side_by_side import made
from tests.exec.sent_bytes import find_sent, find_step, list_copies, list_sums, sum_by_device
from tests.hosts import IN_NETWORK, find_obstacle
from tests.ways_of_running import assert_same

KINDS = ("computing", "sending", "receiving", "last", "eating", "raising")
REPOSITORY = Path(__file__).parents[3]


def list_pids(client: Any) -> dict[str, int]:
    """The processes of workers, by their addresses."""
    return dict(client.run(os.getpid))


def list_habits(dask_worker: Any) -> dict[str, float]:
    """What a worker does over and over, and each how many milliseconds."""
    return {name: one.callback_time for name, one in dask_worker.periodic_callbacks.items()}


def wait_for_four(client: Any) -> None:
    """Until there are four workers that have loaded what devices need, which may take longer than a test's patience."""
    client.wait_for_workers(4, timeout=60)
    client.run(import_module, "tapestry_exec.dask.member")


def test_all_begin_again_after_each_fault(rounds: int, client: Any, tmp_path: Path) -> None:
    for k in range(rounds):
        (tmp_path / str(k)).mkdir()
        p, inputs = made(2 + k % 3)
        wait_for_four(client)
        backend = DaskBackend(client, retries=len(KINDS))
        found = run(p, inputs, backend=backend, ops=as_relu(Sabotage(KINDS, str(tmp_path / str(k)))))
        assert_same(found, run(p, inputs, backend="serial"))
        assert [(fault.generation, fault.device) for fault in found.faults] == [(k + 1, 0) for k in range(len(KINDS))]
        for kind, fault in zip(KINDS, found.faults, strict=True):
            assert ("too hot" if kind == "raising" else "is gone") in fault.error
            assert_told(p, fault, kind == "raising")
        for kind, verb in (("sending", "send"), ("receiving", "recv")):  # it was in the call
            assert verb in (tmp_path / str(k) / f"died {kind}").read_text().split()


def assert_told(p: ShardPlan, fault: Fault, is_whole: bool) -> None:
    """All devices that are left tell what they sent: whole sends of theirs. Of device 0 that is known, or nothing."""
    assert (fault.nbytes_sent[0] is not None) >= is_whole and None not in fault.nbytes_sent[1:]
    for device, sent in enumerate(fault.nbytes_sent):
        assert sent is None or sent in list_sums(p, device)
    told = {one.number: one for one in list_copies(p) if one.number in fault.nbytes_by_step}
    assert fault.nbytes_by_step == {number: one.nbytes for number, one in told.items()}
    assert sum_by_device(p, told) == tuple(sent or 0 for sent in fault.nbytes_sent)


def test_what_was_sent_is_told_by_step(client: Any, tmp_path: Path) -> None:
    """All stand still, and one dies: what it had sent is known where it had told that it had sent everything."""
    p, inputs = made(3)
    wait_for_four(client)
    marks = [tmp_path / name for name in ("relu", "tanh")]
    for mark in marks:
        mark.mkdir()
    ops = {mark.name: replace(BUILTIN_OPS[mark.name], block=Sabotage(["falling"], str(mark))) for mark in marks}
    first, second = run(p, inputs, backend=DaskBackend(client), ops=ops).faults
    sent = find_sent(p, 0, step := find_step(p, "act", 0))
    assert first.step == step and first.nbytes_sent == (None, *sum_by_device(p, sent)[1:])
    assert first.nbytes_by_step == {k: one.nbytes for k, one in sent.items() if one.source}
    sent = find_sent(p, 0, step := find_step(p, "last", 0))
    assert second.step == step and second.nbytes_sent == sum_by_device(p, sent)
    assert second.nbytes_by_step == {k: one.nbytes for k, one in sent.items()}
    assert sum(second.nbytes_sent) == sum(second.nbytes_by_step.values()) == p.nbytes_moved


def test_of_own_workers_only_those_that_are_lost_begin_anew(tmp_path: Path) -> None:
    p, inputs = made(3)
    wanted = run(p, inputs, backend="serial").outputs["y"].tobytes()
    ops = as_relu(Sabotage(("computing", "stopping"), str(tmp_path)))
    pytest.importorskip("distributed")
    config = pytest.importorskip("dask").config
    loud = {"distributed.worker.profile.enabled": True, "distributed.admin.tick.interval": "20ms"}
    with config.set(loud), deploy(p, backend=DaskBackend(patience=12), ops=ops) as placed:
        session: Any = placed._session
        before = set(list_pids(session.cluster.client).values())
        found = placed.run(inputs)
        after = set(list_pids(session.cluster.client).values())
        habits = session.cluster.client.run(list_habits)
        assert [config.get(name) for name in loud] == list(loud.values()), "for other clusters"
    assert found.outputs["y"].tobytes() == wanted and len(found.faults) == 2
    assert "is gone" in found.faults[0].error and "was silent for 12 s" in found.faults[1].error
    assert len(habits) == 3 and all("profile" not in one and one["tick"] == 2000 for one in habits.values())
    assert len(before) == len(after) == 3 and 1 <= len(before & after) <= 2  # two of them, or one and its successor


def test_a_killed_worker_costs_what_is_behind_the_last_checkpoint(rounds: int, client: Any, tmp_path: Path) -> None:
    for k in range(rounds):
        (tmp_path / f"marks{k}").mkdir()
        wait_for_four(client)
        p, inputs = chain()
        kinds = ("waiting", "waiting", ("computing", "sending", "receiving")[k % 3])
        found = run(
            p,
            inputs,
            backend=DaskBackend(client, retries=1),
            ops=as_relu(Later(kinds, str(tmp_path / f"marks{k}"))),
            checkpoints=Checkpoints(tmp_path / str(k), after=["act0", "act1"]),
        )
        assert found.outputs["y"].tobytes() == run(p, inputs, backend="serial").outputs["y"].tobytes()
        assert len(found.faults) == 1 and found.resumed_at is not None


def test_all_begin_again_where_workers_died_before_the_first_step(rounds: int, client: Any) -> None:
    p, inputs = made(3)
    wanted = run(p, inputs, backend="serial").outputs["y"].tobytes()
    for k in range(rounds):
        wait_for_four(client)
        with deploy(p, backend=DaskBackend(client, retries=1)) as placed:
            pids = list_pids(client)
            session: Any = placed._session
            for device in range(1 + (k + 1) % 2):  # two at once, or one
                os.kill(pids[session.workers[device]], signal.SIGKILL)
            found = placed.run(inputs)
            assert found.outputs["y"].tobytes() == wanted and len(found.faults) == 1
            assert not placed.run(inputs).faults


@pytest.mark.parametrize("goes_on", [True, False])
def test_a_worker_that_is_stopped(goes_on: bool, rounds: int, client: Any, tmp_path: Path) -> None:
    """One that goes on before patience ends is waited for; else all begin again, on others where there are enough."""
    p, inputs = made(2)
    for k in range(rounds):
        (tmp_path / str(k)).mkdir()
        wait_for_four(client)
        pids = list_pids(client)

        def wake(flag: Path = tmp_path / str(k) / "0") -> None:
            wait_until(flag.exists)
            time.sleep(0.5)
            go_on()

        def go_on(pids: dict[str, int] = pids) -> None:
            for pid in pids.values():
                os.kill(pid, signal.SIGCONT)

        if goes_on:
            threading.Thread(target=wake).start()
        backend = DaskBackend(client, retries=1, patience=20 if goes_on else 2)
        try:
            found = run(p, inputs, backend=backend, ops=as_relu(Sabotage(("stopping",), str(tmp_path / str(k)))))
        finally:
            go_on()
        assert (tmp_path / str(k) / "0").exists(), "one has stopped itself"
        assert_same(found, run(p, inputs, backend="serial"))
        assert ["was silent for 2 s" in fault.error for fault in found.faults] == [True] * (not goes_on)


def test_a_worker_that_joins_late(rounds: int, client: Any, tmp_path: Path) -> None:
    """Where too few are left after a fault, all wait for another one, which takes the place of the one that is gone."""
    p, inputs = made(4)
    for k in range(rounds):
        (tmp_path / str(k)).mkdir()
        wait_for_four(client)
        before, cluster = set(list_pids(client)), client.cluster

        def join(name: str, cluster: Any = cluster, flag: Path = tmp_path / str(k) / "0") -> None:
            wait_until(flag.exists)
            wait_until(lambda: len(client.scheduler_info(n_workers=-1)["workers"]) < 4)
            put_another(cluster, name)

        sabotage = as_relu(Sabotage(("computing",), str(tmp_path / str(k))))
        with deploy(p, backend=DaskBackend(client), ops=sabotage) as placed:
            session: Any = placed._session
            joining = threading.Thread(target=join, args=(keep_away(cluster, session.workers[0]),))
            joining.start()
            found = placed.run(inputs)
            joining.join()
            taken = set(session.workers.values())
        assert found.outputs["y"].tobytes() == run(p, inputs, backend="serial").outputs["y"].tobytes()
        assert len(found.faults) == 1 and len(taken - before) == 1 and len(taken) == 4


def test_the_last_generation_names_step_device_and_generation(client: Any) -> None:
    p, inputs = made(2)
    wait_for_four(client)
    words = r"step \d+ \(compute 'act' on device 0.*too hot \(generation 2 of at most 3\)"
    with pytest.raises(StepFailed, match=words):
        run(p, inputs, backend=DaskBackend(client), ops=as_relu(Sabotage(("raising",), "")))


def test_own_workers_end_where_one_never_returns(rounds: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are started on this machine, run, and are killed; and all begin again, if they may."""
    p, inputs = made(2)
    before = list_children()
    with deploy(p, backend=DaskBackend(retries=0), ops=as_relu(Sabotage(("never",), str(tmp_path)))) as placed:
        (tmp_path / "0").touch()
        assert placed.run(inputs).nbytes_moved == p.nbytes_moved
        (tmp_path / "0").unlink()
        monkeypatch.setattr(tuning, "MAX_WAIT_SECONDS", 1.0)
        with pytest.raises(StepFailed, match="device 0 came no further for 1 s; it was last heard at step"):
            placed.run(inputs)
    wait_until(lambda: list_children() <= before)
    assert list_children() <= before
    monkeypatch.setattr(tuning, "MAX_WAIT_SECONDS", 10.0)
    for k in range(rounds - 1):
        (tmp_path / f"marks{k}").mkdir()
        sabotage = as_relu(Sabotage(("never",), str(tmp_path / f"marks{k}")))
        found = run(p, inputs, backend=DaskBackend(retries=1), ops=sabotage)
        assert_same(found, run(p, inputs, backend="serial"))
        assert ["device 0 came no further for 10 s" in fault.error for fault in found.faults] == [True]


def list_children() -> set[int]:
    """Processes that have this one as parent."""
    found = set()
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                parent = int((folder / "stat").read_text().rsplit(")", 1)[1].split()[1])
            except OSError:
                continue
            if parent == os.getpid():
                found.add(int(folder.name))
    return found


def test_a_network_that_is_cut_for_a_while(rounds: int, tmp_path: Path) -> None:
    """TCP sends again what a short cut lost; where it takes longer than anyone waits, all begin again elsewhere."""
    if obstacle := find_obstacle():
        pytest.skip(obstacle)
    for k in range(rounds):
        (tmp_path / str(k)).mkdir()
        command = [*IN_NETWORK, sys.executable, "-m", "tests.exec.dask.cut_network", str(tmp_path / str(k))]
        done = subprocess.run(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True, timeout=300, check=True)
        short, long, whole = map(json.loads, done.stdout.splitlines())
        assert short["same"] and whole["same"] and not short["faults"] and not whole["faults"]
        assert long["same"] and len(long["faults"]) == 1 and "was silent for 8 s" in long["faults"][0]


def test_devices_end_when_the_caller_is_killed(rounds: int, client: Any, tmp_path: Path) -> None:
    """Their workers are free for a client that comes after him."""
    program = tmp_path / "caller.py"
    program.write_text(
        "import sys\n"
        f"sys.path.insert(0, {str(REPOSITORY)!r})\n"
        "from tapestry_exec import Checkpoints, DaskBackend, deploy\n"
        "from tests.exec.run.test_side_by_side import made\n"
        "p, inputs = made(4)\n"
        f"with deploy(p, backend=DaskBackend({client.scheduler.address!r})) as placed:\n"
        "    placed.run(inputs)\n"
        "    print('ran', flush=True)\n"
        "    sys.stdin.read()\n"
    )
    for _ in range(rounds):
        wait_for_four(client)
        with subprocess.Popen(
            [sys.executable, str(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as caller:
            assert caller.stdout is not None and caller.stdout.readline() == "ran\n"
            caller.kill()
        p, inputs = made(4)
        assert_same(run(p, inputs, backend=DaskBackend(client)), run(p, inputs, backend="serial"))
