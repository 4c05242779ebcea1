"""Long work is seen: progress, steps that fail by name, and Ctrl-C that leaves nothing half done."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from tapestry_exec import CupyBackend, NcclBackend, NumpyBackend, StepFailed, run
from tapestry_exec.cuda.device import CupyDevice
from tapestry_exec.numpy.backend import NumpyDevice
from tapestry_exec.simulated import namespace as simulated
from tapestry_plan import Graph, Mesh, ShardPlan, concat, plan
from tapestry_plan.ops import linear, relu


def made(devices: int = 3) -> tuple[ShardPlan, dict[str, np.ndarray]]:
    """A plan with a step of every kind: places, copies between and inside devices, reads through views, merges."""
    g = Graph()
    x = g.input("x", (12, 12))
    w = g.constant("w", np.random.default_rng(0).standard_normal((12, 6)).astype(np.float32))
    y = linear(x, w, name="fc")
    z = relu(concat([y.T[1:], y.T[:1]]), name="act")
    g.output(relu(z, name="again"), "y")
    p = plan(g, Mesh((devices,)), fix={"fc": {"k": devices}, "act": {"i1": devices}, "again": {"i0": devices}})
    return p, {"x": np.random.default_rng(1).standard_normal((12, 12)).astype(np.float32)}


def make_nccl() -> NcclBackend:
    return NcclBackend(cupy=simulated.cupy(3), poison=True)


# -- progress --------------------------------------------------------------------------------------------


def test_progress_counts_up_to_the_last_step_and_names_operators(backend: str | CupyBackend) -> None:
    p, inputs = made()
    seen: list[tuple[int, int, str]] = []
    run(p, inputs, progress=lambda *at: seen.append(at), backend=backend)
    done = [at for at, _, _ in seen]
    assert done == sorted(set(done)) and seen[-1][:2] == (len(p.steps), len(p.steps))
    assert {total for _, total, _ in seen} == {len(p.steps)}
    assert {"fc", "act", "again"} <= {name for _, _, name in seen}


@pytest.mark.parametrize("make", [lambda: "serial", lambda: "onnxruntime", lambda: "simulated", make_nccl])
def test_progress_comes_to_the_last_step_on_every_backend(make: Callable[[], Any]) -> None:
    """On processes, MPI's ranks and Dask's workers it is tested with these."""
    backend = make()
    if backend == "onnxruntime":
        pytest.importorskip("onnxruntime")
    p, inputs = made()
    seen: list[tuple[int, int, str]] = []
    run(p, inputs, progress=lambda *at: seen.append(at), backend=backend)
    assert seen[-1][0] == seen[-1][1] == len(p.steps) and {"fc", "act"} <= {name for _, _, name in seen}


# -- steps that fail -------------------------------------------------------------------------------------


@contextmanager
def broken(backend: str | CupyBackend, method: str) -> Iterator[None]:
    """Devices of a backend of which one method raises; those of this process lend what others pack."""

    def fail(*_: Any) -> None:
        raise OSError("the wire is loose")

    with pytest.MonkeyPatch.context() as patch:
        lent = "lend" if method == "pack" else method
        patch.setattr(NumpyDevice, lent, fail) if backend == "numpy" else patch.setattr(CupyDevice, method, fail)
        yield


HERE = r"buffer \d+ on device (\d)"
BLOCK = r"the block \(start, stop\) \(\([\d, ]+\), \([\d, ]+\)\) of '[^']+'"
REGIONS = r"regions \[Region\(.*\)\]"


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ("alloc", rf"alloc of {HERE}, {BLOCK}"),
        ("free", rf"free of {HERE}, {BLOCK}"),
        ("unpack", rf"copy of 'x' for '\(place\)' from the host to {HERE}, {BLOCK}, {REGIONS}"),
        ("pack", rf"copy of '.*' for '\w+' from {HERE} to {HERE}, {BLOCK}, {REGIONS}"),
        ("copy", rf"copy of '.*' for '\w+' from {HERE} to buffer \d+ on device \1, {BLOCK}, {REGIONS}"),
        ("gather", rf"copy of '.*' for 'act' from {HERE} to buffer \d+ on device \1, {BLOCK}, {REGIONS}"),
        ("launch", r"compute 'fc' on device 0, index box \[0, 12\)×.*, input blocks \(start, stop\) \[\(\(0, 0\), .*"),
        ("merge", rf"reduce '\w+' into {HERE}, {BLOCK}, {REGIONS}"),
    ],
)
def test_a_step_that_fails_is_named(backend: str | CupyBackend, method: str, message: str, tmp_path: Path) -> None:
    """With its operator, shard, devices and regions; nothing is left behind, and the next run is a whole one."""
    p, inputs = made()
    named = pytest.raises(StepFailed, match=rf"^step \d+ \({message}\) failed: OSError: the wire is loose$")
    with broken(backend, method), named as error:
        run(p, inputs, backend=backend, trace=tmp_path / "t.json")
    assert isinstance(error.value.__cause__, OSError) and list(tmp_path.iterdir()) == []
    another = NumpyBackend() if backend == "numpy" else CupyBackend()
    wanted = run(p, inputs, backend=another).outputs["y"]
    assert run(p, inputs, backend=backend).outputs["y"].tobytes() == wanted.tobytes()


def test_a_transport_that_fails_is_named(backend: str | CupyBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    def cut(*_: Any) -> None:
        raise ConnectionError("cut")

    monkeypatch.setattr(NumpyBackend if backend == "numpy" else CupyBackend, "move", cut)
    p, inputs = made()
    with pytest.raises(StepFailed, match=rf"from {HERE} to {HERE}.*ConnectionError: cut"):
        run(p, inputs, backend=backend)


def test_many_regions_are_counted_not_listed(backend: str | CupyBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["tapestry_exec.run.tuning"], "SHOWN_REGIONS", 0)
    p, inputs = made()
    with broken(backend, "merge"), pytest.raises(StepFailed, match=r"regions \[ and 1 more\]"):
        run(p, inputs, backend=backend)


# -- Ctrl-C ----------------------------------------------------------------------------------------------


def interrupted(p: ShardPlan) -> dict[str, Any]:
    """The plan's operators, of which one sends this process what Ctrl-C sends."""
    op = p.graph.ops["relu"]

    def block(xp: Any, ins: Any, outs: Any, shard: Any) -> None:
        outs[0][...] = 77
        os.kill(os.getpid(), signal.SIGINT)
        for _ in range(1000):  # the signal is noticed between two instructions
            time.sleep(0.01)

    return {"relu": replace(op, block=block)}


def counted(engine: Any, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The calls that open and close an engine's devices, in order, from here on."""
    calls: list[str] = []

    def noted(name: str) -> Callable[..., Any]:
        before = getattr(engine, name)

        def call(*args: Any) -> Any:
            calls.append(name)
            return before(*args)

        return call

    for name in ("open", "close"):
        monkeypatch.setattr(engine, name, noted(name))
    return calls


@pytest.fixture
def heeded() -> Iterator[None]:
    """Ctrl-C as in a terminal: a process that a shell starts in the background is told to ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("heeded")
def test_ctrl_c_closes_the_devices_and_the_backend_runs_again(
    backend: str | CupyBackend, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    p, inputs = made()
    expected = run(p, inputs, backend=backend).outputs["y"].tobytes()
    engine = NumpyBackend() if backend == "numpy" else backend
    calls = counted(engine, monkeypatch)
    for again in range(1, 3):
        with pytest.raises(KeyboardInterrupt):
            run(p, inputs, backend=engine, ops=interrupted(p), trace=tmp_path / "t.json")
        assert calls == ["open", "close"] * (2 * again - 1)
        assert list(tmp_path.iterdir()) == []
        r = run(p, inputs, backend=engine, verify=True)
        assert r.outputs["y"].tobytes() == expected and r.nbytes_moved == p.nbytes_moved
