"""Threads for devices: the bits and bytes of one loop, waits that end, and nothing left behind when a run fails."""

from __future__ import annotations

import _thread
import signal
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from threadpoolctl import threadpool_info

from tapestry_exec import NumpyBackend, StepFailed, deploy, run
from tapestry_exec.numpy.backend import NumpyDevice
from tapestry_exec.run import Ensemble, share_out, together, tuning
from tapestry_exec.run.ways import one_blas_thread, threads
from tapestry_exec.run.ways.threads import Inbox
from tapestry_plan import Graph, Mesh, ShardPlan, plan
from tapestry_plan.ir import BUILTIN_OPS
from tapestry_plan.ops import matmul, relu, tanh
from tapestry_plan.steps import HOST, Buffer, Copy, least_memory, spill
from tests.plan.steps.test_programs import cases
from tests.ways_of_running import Threads, assert_same


def made(devices: int = 4) -> tuple[ShardPlan, dict[str, np.ndarray]]:
    """Partial sums that all devices send to all, twice."""
    g = Graph()
    x, w = g.input("x", (16, 24)), g.constant("w", np.random.default_rng(0).random((24, 24), np.float32))
    y = relu(matmul(x, w, name="one"), name="act")
    g.output(tanh(matmul(y, w, name="two"), name="last"), "y")
    fix = {"one": {"k": devices}, "act": {"i0": devices}, "two": {"k": devices}, "last": {"i1": devices}}
    return plan(g, Mesh((devices,)), fix=fix), {"x": np.random.default_rng(1).random((16, 24), np.float32)}


def alive() -> set[threading.Thread]:
    return set(threading.enumerate())


def test_threads_give_the_bits_and_counts_of_one_loop() -> None:
    p, inputs = made()
    before, wanted = alive(), run(p, inputs, backend="serial")
    for _ in range(20):
        assert_same(run(p, inputs, backend=Threads()), wanted)
    assert alive() == before


def test_plans_that_spill_run_in_threads() -> None:
    p, inputs = made()
    tight = spill(p, max(least_memory(p)))
    assert any(tight.nbytes_spilled)
    assert_same(run(tight, inputs, backend=Threads()), run(tight, inputs, backend="serial"))


def test_small_plans_have_no_threads_and_large_ones_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tapestry_exec.numpy.backend.count_cores", lambda: 2)
    backend = NumpyBackend()
    assert not backend.wants_threads(1e-5, 4, 4) and backend.wants_threads(1.0, 4, 4)
    assert not backend.wants_threads(1.0, 4, 1) and not backend.wants_threads(1.0, 100_000, 4)
    monkeypatch.setattr("tapestry_exec.numpy.backend.count_cores", lambda: 1)
    assert not backend.wants_threads(1.0, 4, 4)


def test_progress_is_told_in_the_callers_thread() -> None:
    p, inputs = made()
    seen: list[tuple[int, int, str]] = []

    def tell(*at: Any) -> None:
        assert threading.current_thread() is threading.main_thread()
        seen.append(at)

    run(p, inputs, backend=Threads(), progress=tell)
    done = [at for at, _, _ in seen]
    assert done == sorted(done) and seen[-1][:2] == (len(p.steps), len(p.steps))
    assert {"one", "act", "two", "last"} <= {name for _, _, name in seen}


def failing(error: BaseException, device: int) -> Any:
    """An activation that raises on one device; on the others it does nothing."""

    def block(xp: Any, inputs: Any, outputs: Any, shard: Any) -> None:
        if shard.index.start[0] == 4 * device:
            raise error
        BUILTIN_OPS["relu"].block(xp, inputs, outputs, shard)

    return {"relu": replace(BUILTIN_OPS["relu"], block=block)}


@pytest.mark.parametrize("device", range(4))
def test_a_step_that_fails_ends_all_threads_and_is_named(device: int) -> None:
    p, inputs = made()
    before = alive()
    with pytest.raises(StepFailed, match=rf"compute 'act' on device {device}, .* FloatingPointError: too hot") as error:
        run(p, inputs, backend=Threads(), ops=failing(FloatingPointError("too hot"), device))
    assert isinstance(error.value.__cause__, FloatingPointError) and alive() == before
    with pytest.raises(SystemExit):
        run(p, inputs, backend=Threads(), ops=failing(SystemExit(3), device))
    assert alive() == before


def test_what_progress_raises_ends_the_run() -> None:
    p, inputs = made()
    before = alive()

    def stop(*at: Any) -> None:
        raise KeyError("enough")

    with pytest.raises(KeyError, match="enough"):
        run(p, inputs, backend=Threads(), progress=stop)
    assert alive() == before


@pytest.mark.skipif(sys.platform == "win32", reason="Ctrl-C is sent in another way")
def test_ctrl_c_ends_all_threads() -> None:
    p, inputs = made()
    before, begun = alive(), threading.Event()

    def block(xp: Any, inputs: Any, outputs: Any, shard: Any) -> None:
        begun.set()
        time.sleep(0.2)

    signal.signal(signal.SIGINT, signal.default_int_handler)  # shells have programs behind `&` ignore it
    threading.Thread(target=lambda: (begun.wait(), _thread.interrupt_main()), daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        run(p, inputs, backend=Threads(), ops={"relu": replace(BUILTIN_OPS["relu"], block=block)})
    assert alive() <= before | {threading.current_thread()} or all(not t.is_alive() for t in alive() - before)
    assert run(p, inputs, backend=Threads()).outputs["y"].shape == (16, 24)


def test_a_device_that_waits_in_vain_says_for_what(monkeypatch: pytest.MonkeyPatch) -> None:
    p, inputs = made(2)
    monkeypatch.setattr(Inbox, "send", lambda *_: None)
    why = r"copy of .* from buffer \d+ on device \d .* Stuck: device \d waits for what device \d sends under tag \d+"
    with pytest.raises(StepFailed, match=rf"{why}, and no device can go on"):
        run(p, inputs, backend=Threads())
    monkeypatch.undo()
    monkeypatch.setattr(tuning, "MAX_WAIT_SECONDS", 0.05)
    monkeypatch.setattr(threads, "count_cores", lambda: 2)
    slow = {"relu": replace(BUILTIN_OPS["relu"], block=sleep_on_first)}
    with pytest.raises(StepFailed, match=rf"{why}, since 0\.05 s or longer"):
        run(p, inputs, backend=Threads(), ops=slow)


def test_devices_that_know_their_steps_by_heart_say_what_they_wait_for(monkeypatch: pytest.MonkeyPatch) -> None:
    p, inputs = made()
    monkeypatch.setattr(together, "count_cores", lambda: 2)
    monkeypatch.setattr(threads, "count_cores", lambda: 2)
    seen = list[int]()
    play, send = Ensemble.play, Inbox.send
    monkeypatch.setattr(Ensemble, "play", lambda *args: (seen.append(threading.get_ident()), play(*args))[1])
    with deploy(p, backend=Threads()) as placed:
        wanted = [placed.run(inputs) for _ in range(4)][-1]
        assert len(seen) == 2, "the third run notes what steps call"
        assert_same(placed.run(inputs), wanted)
        assert len(seen) == 4 and len({*seen}) >= 2
        monkeypatch.setattr(Inbox, "send", lambda *_: None)
        with pytest.raises(StepFailed, match=r"Stuck: device \d waits for what device \d sends under tag \d+, and no "):
            placed.run(inputs)
        monkeypatch.setattr(Inbox, "send", send)
        for _ in range(4):  # they learn them again
            assert_same(placed.run(inputs), wanted)
        monkeypatch.setattr(tuning, "MAX_WAIT_SECONDS", 0.05)
        monkeypatch.setattr(Inbox, "send", lambda box, *args: (time.sleep(0.3 * (box.device < 2)), send(box, *args))[1])
        with pytest.raises(StepFailed, match=r"sends under tag \d+, since 0\.05 s or longer"):
            placed.run(inputs)
        monkeypatch.undo()
        assert_same(placed.run(inputs), wanted)


@pytest.mark.parametrize("cores", [1, 2, 4])
def test_places_of_what_stays_in_one_loop_are_taken_once(cores: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What devices of other threads read where it lies is given back, and its place taken, in every run."""
    p, inputs = made()
    monkeypatch.setattr(together, "count_cores", lambda: cores)
    monkeypatch.setattr(threads, "count_cores", lambda: cores)
    taken, alloc = list[int](), NumpyDevice.alloc

    def note(device: NumpyDevice, buffer: Buffer, shape: Sequence[int]) -> None:
        taken.append(buffer.id)
        alloc(device, buffer, shape)

    monkeypatch.setattr(NumpyDevice, "alloc", note)
    other = {"x": inputs["x"][::-1].copy()}
    wanted = run(p, other, backend="serial")
    with deploy(p, backend=Threads()) as placed:
        for _ in range(4):
            placed.run(inputs)
        taken.clear()
        assert placed.run(other).outputs["y"].tobytes() == wanted.outputs["y"].tobytes()
    thread = {device: k for k, group in enumerate(share_out([1.0] * 4, cores)) for device in group}
    device = {buffer.id: buffer.device for buffer in p.buffers}
    copies = [one for one in p.steps if isinstance(one, Copy) and HOST not in (one.src, one.dst)]
    apart = {one.src for one in copies if thread[device[one.src]] != thread[device[one.dst]]}
    kept = {number for output in p.outputs for number, _ in output.blocks}  # until the caller has read them
    assert set(taken) == apart | kept and bool(apart) == (cores > 1)


def sleep_on_first(xp: Any, inputs: Any, outputs: Any, shard: Any) -> None:
    """Nothing; half a second where the block begins at 0."""
    if not any(shard.index.start):
        time.sleep(0.5)


@pytest.mark.parametrize("cores", [1, 2, 3, 5])
def test_threads_are_no_more_than_cores_and_devices_take_turns(cores: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "count_cores", lambda: cores)
    p, inputs = made()
    seen = set[int]()

    def block(xp: Any, inputs: Any, outputs: Any, shard: Any) -> None:
        seen.add(threading.get_ident())
        time.sleep(0.001)
        BUILTIN_OPS["relu"].block(xp, inputs, outputs, shard)

    ops = {"relu": replace(BUILTIN_OPS["relu"], block=block)}
    for _ in range(5):
        seen.clear()
        assert_same(run(p, inputs, backend=Threads(), ops=ops), run(p, inputs, backend="serial"))
        assert 1 <= len(seen - {threading.get_ident()}) <= min(cores, 4)


def test_runs_in_several_threads_keep_apart_and_give_blas_its_threads_back() -> None:
    p, inputs = made()

    def count_blas() -> list[int]:
        return [one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"]

    before = count_blas()
    many = [{"x": inputs["x"] + k} for k in range(8)]
    wanted = [run(p, each, backend="serial") for each in many]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda each: run(p, each, backend=Threads()), many))
    for one, other in zip(found, wanted, strict=True):
        assert_same(one, other)
    assert count_blas() == before
    with one_blas_thread(), one_blas_thread():
        assert set(count_blas()) <= {1}
    assert count_blas() == before


@given(cases(), st.integers(0, 2**32 - 1))
@settings(max_examples=25)
def test_random_plans_in_threads(case: Any, seed: int) -> None:
    """Any layouts, inputs anywhere, landing places: as in one loop."""
    g, mesh, _ = case
    p, rng = plan(g, mesh, expand=False), np.random.default_rng(seed)
    feeds = {
        name: rng.integers(-9, 9, tensor.shape).astype(tensor.dtype)
        for name, tensor in g.stored.items()
        if tensor.kind == "input"
    }
    assert_same(run(p, feeds, backend=Threads()), run(p, feeds, backend="serial"))
