"""What does not fit is told before the first step, with how to mend it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from tapestry_exec import BackendUnavailable, DaskBackend, StepFailed, run
from tests.exec.own_ops import as_relu
from tests.exec.run.test_side_by_side import made
from tests.ways_of_running import assert_same

distributed = pytest.importorskip("distributed", reason="distributed is not installed")


@pytest.fixture(scope="module")
def threads() -> Iterator[Any]:
    """Two workers in this process: one has room for two devices, one for none."""
    spec = {
        name: {"cls": distributed.Worker, "options": {"nthreads": 2, "resources": {"tapestry": room}}}
        for name, room in (("both", 2), ("none", 0))
    }
    scheduler = {"cls": distributed.Scheduler, "options": {"dashboard_address": ":0"}}
    with (
        distributed.SpecCluster(workers=spec, scheduler=scheduler) as cluster,
        distributed.Client(cluster, set_as_default=False) as found,
    ):
        yield found


def test_no_distributed_is_told() -> None:
    with mock.patch.dict(sys.modules, {"distributed": None}), pytest.raises(BackendUnavailable, match=r"sor\[dask\]'"):
        DaskBackend()


def test_a_client_of_another_kind_is_refused() -> None:
    with pytest.raises(TypeError, match=r"client must be a distributed.Client or the address of a scheduler, not 5"):
        DaskBackend(5)


def test_no_scheduler_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    backend = DaskBackend(f"tcp://127.0.0.1:{port}", patience=0.5)
    with pytest.raises(BackendUnavailable, match=rf"no scheduler answers at tcp://127.0.0.1:{port} .*`dask scheduler`"):
        run(*made(2), backend=backend)


def test_a_client_that_is_closed_is_told(client: Any) -> None:
    with distributed.Client(client.scheduler.address, set_as_default=False) as other:
        pass
    with pytest.raises(BackendUnavailable, match="the client's state is closed"):
        run(*made(2), backend=DaskBackend(other))


def test_too_few_workers_are_told(client: Any) -> None:
    client.wait_for_workers(4, timeout=60)
    with pytest.raises(
        BackendUnavailable, match=r"the plan has 5 devices, and of 4 workers 4 have the resource 'tapes"
    ):
        run(*made(5), backend=DaskBackend(client))


def test_workers_without_the_resource_are_told(threads: Any) -> None:
    with pytest.raises(BackendUnavailable, match=r"of 2 workers 1 have the resource .*dask worker .*--resources tape"):
        run(*made(2), backend=DaskBackend(threads))


def test_two_devices_on_one_worker_are_refused(threads: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from tapestry_exec.dask.clusters import ForeignCluster

    monkeypatch.setattr(ForeignCluster, "open", lambda self: setattr(self, "client", threads) or threads)
    with pytest.raises(BackendUnavailable, match=r"devices 0 and 1 are on one worker, tcp://.*; start more workers"):
        run(*made(2), backend=DaskBackend(threads))


def test_versions_that_differ_are_told(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("numpy.__version__", "1.0")
    with pytest.raises(
        BackendUnavailable, match=r"the caller has numpy 1.0, worker tcp://.* has 2.*; install numpy 1.0 ev"
    ):
        run(*made(2), backend=DaskBackend(client))


def test_operators_that_workers_cannot_import_are_refused(
    client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "only_here.py").write_text("def block(xp, inputs, outputs, shard):\n    outputs[0][...] = inputs[0]\n")
    monkeypatch.syspath_prepend(tmp_path)
    import only_here  # type: ignore[import-not-found]

    with pytest.raises(
        BackendUnavailable, match=r"could not begin on worker tcp://.*ModuleNotFoundError: .*'only_here'"
    ):
        run(*made(2), backend=DaskBackend(client), ops=as_relu(only_here.block))


def test_workers_that_are_busy_are_waited_for_a_while(client: Any) -> None:
    client.wait_for_workers(4, timeout=60)
    sleeping = [client.submit(_sleep, k, pure=False, resources={"tapestry": 1}) for k in range(4)]
    with pytest.raises(
        StepFailed, match=r"^device [01] was not placed within 1 s: workers are busy, or lost; nothing of the run is"
    ):
        run(*made(2), backend=DaskBackend(client, patience=1, retries=0))
    client.gather(sleeping)
    p, inputs = made(2)
    assert_same(run(p, inputs, backend=DaskBackend(client)), run(p, inputs, backend="serial"))


def _sleep(_: int) -> None:
    time.sleep(1.5)


def test_a_stranger_who_connects_is_sent_away(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever does not say the generation's key hears nothing, and the run goes on."""
    from distributed.comm import connect

    from tapestry_exec.dask.backend import DaskSession
    from tapestry_exec.dask.lines import Message, pack_message

    tried: list[Any] = []
    connected = DaskSession._connect

    def knock(self: DaskSession, one: Any, every: Any) -> None:
        async def guess(first: Any) -> str:
            comm = await connect(every[0]["address"], deserialize=False)
            await comm.write(first)
            try:
                return str(await comm.read())
            except OSError as error:
                return type(error).__name__

        guesses = ([1, 2, 3], pack_message(Message("hello", ("0" * 32, -1))), pack_message(Message("end")))
        tried.extend(one.sync(guess, first) for first in guesses)
        for said in (b"", b"?" * 7, b"?" * 200):
            with socket.create_connection(every[0]["wire"], 5) as wire:
                assert len(wire.recv(64)) == 32, "what is to be signed"
                with suppress(OSError):  # that nobody is connected any more says as much as the end
                    wire.sendall(said)
                    wire.shutdown(socket.SHUT_WR)
                    assert wire.recv(64) == b""
        connected(self, one, every)

    monkeypatch.setattr(DaskSession, "_connect", knock)
    p, inputs = made(2)
    assert_same(run(p, inputs, backend=DaskBackend(client)), run(p, inputs, backend="serial"))
    assert tried == ["CommClosedError"] * 3


def test_a_port_that_is_closed_is_told(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where devices do not reach each other, or the caller does not reach one: before the first step, by address."""
    from tapestry_exec.dask.backend import DaskSession

    with socket.create_server(("127.0.0.1", 0)) as server:
        closed = server.getsockname()[1]
    p, inputs = made(4)
    assert_same(run(p, inputs, backend=DaskBackend(client)), run(p, inputs, backend="serial"))
    connected = DaskSession._connect
    for line, wire, words in (
        (
            None,
            ("127.0.0.1", closed),
            rf"device \d does not reach device 1 at 127\.0\.0\.1:{closed} \(Conn.*must be open between",
        ),
        (f"tcp://127.0.0.1:{closed}", None, rf"devices cannot be reached: .*127\.0\.0\.1:{closed}"),
    ):

        def close(self: DaskSession, one: Any, every: Any, line: Any = line, wire: Any = wire) -> None:
            every[1] = {**every[1], "address": line or every[1]["address"], "wire": wire or every[1]["wire"]}
            connected(self, one, every)

        monkeypatch.setattr(DaskSession, "_connect", close)
        with pytest.raises(StepFailed, match=words):
            run(p, inputs, backend=DaskBackend(client, retries=0, patience=3))
    monkeypatch.setattr(DaskSession, "_connect", connected)
    assert_same(run(p, inputs, backend=DaskBackend(client)), run(p, inputs, backend="serial"))


@pytest.mark.heavy
def test_a_program_that_has_no_guard_is_told(tmp_path: Path) -> None:
    """Each worker imports the program that runs, which must not begin once more there."""
    program = tmp_path / "program.py"
    program.write_text(
        "from tapestry_exec import run\n"
        "from tests.exec.run.test_side_by_side import made\n"
        "run(*made(2), backend='dask')\n"
    )
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, env=env, timeout=100)
    assert done.returncode and "begins its work behind `if __name__ == '__main__':`" in done.stderr.splitlines()[-1]
