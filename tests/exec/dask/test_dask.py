"""Devices on Dask's workers: the bits and bytes of one loop."""

from __future__ import annotations

import errno
import gc
import socket
import threading
import time
import weakref
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier, Thread
from time import perf_counter
from typing import Any, TypeVar
from unittest import mock

import numpy as np
import onnx
import pytest

from tapestry_exec import Checkpoints, DaskBackend, deploy, run
from tapestry_exec.dask.backend import DaskSession
from tapestry_exec.dask.hearing import Hearing
from tapestry_exec.dask.lines import CALLER, Message
from tapestry_exec.dask.wires import HEAD, Ended, PeerLost, Unreached, Wires, connect_all, read_letter, write_letter
from tapestry_exec.numpy import NumpyBackend
from tapestry_exec.run.interpreter import Parcel
from tapestry_exec.run.parts import Member, list_parts
from tapestry_plan import Graph, Mesh, ShardPlan, least_memory, load_onnx, ops, plan
from tapestry_plan.onnx import he_random
from tapestry_plan.steps import spill
from tests.exec.own_ops import as_relu, doubled
from tests.exec.run.test_deploy import training_step
from tests.exec.run.test_side_by_side import made
from tests.exec.run.test_stores import viewed
from tests.exec.small_networks import EVERY, MODELS, SAMPLE, make_case
from tests.ways_of_running import assert_same

W = TypeVar("W", bound=Wires)


@pytest.mark.parametrize("which", [SAMPLE, pytest.param(EVERY, marks=pytest.mark.heavy)], ids=["a sample", "every"])
def test_workers_give_the_bits_and_counts_of_one_loop(which: Sequence[tuple[str, int]], client: Any) -> None:
    for case in (make_case(*one) for one in which):
        found = run(case.plan, case.inputs, backend=DaskBackend(client))
        assert_same(found, case.wanted)
        assert found.nbytes_by_link == case.plan.nbytes_by_link and not found.faults


def test_devices_that_stay_run_often(client: Any) -> None:
    p, inputs = made(3)
    with deploy(p, backend=DaskBackend(client)) as placed, deploy(p, backend="serial") as other:
        for _ in range(3):
            assert_same(placed.run(inputs), other.run(inputs))
    g, carry, feeds = training_step()
    p = plan(g, Mesh((2,)), tie=carry)
    for asked in (None, list(g.outputs)[-1:]):
        with (
            deploy(p, backend=DaskBackend(client), carry=carry, outputs=asked) as placed,
            deploy(p, backend="serial", carry=carry, outputs=asked) as other,
        ):
            for k in range(4):
                given = feeds if k == 0 else {"x": feeds["x"]}
                assert_same(placed.run(given), other.run(given))
    p, inputs = made(2)
    tight = spill(p, max(least_memory(p)))
    assert_same(run(tight, inputs, backend=DaskBackend(client)), run(tight, inputs, backend="serial"))


def test_workers_save_and_go_on(client: Any, tmp_path: Path) -> None:
    """What workers saved they go on from, and so does one loop; a deployment has its state."""
    p, inputs = made(3)
    wanted = run(p, inputs, backend="serial").outputs["y"].tobytes()
    for number, stage in enumerate(p.stages[::4]):
        there = tmp_path / str(number)
        run(p, inputs, backend=DaskBackend(client), checkpoints=Checkpoints(there, after=[stage.node]))
        for backend in (DaskBackend(client), "serial"):
            found = run(p, inputs, backend=backend, resume=there)
            assert found.outputs["y"].tobytes() == wanted and found.resumed_at
    g, carry, feeds = training_step()
    q = plan(g, Mesh((2,)), tie=carry)
    with deploy(q, backend=DaskBackend(client), carry=carry) as placed:
        placed.run(feeds)
        last = placed.run({"x": feeds["x"]}, checkpoints=Checkpoints(tmp_path / "state", seconds=1e-9))
    with deploy(q, backend=DaskBackend(client), carry=carry) as placed:
        found = placed.run({"x": feeds["x"]}, resume=tmp_path / "state")
    assert all(found.outputs[name].tobytes() == last.outputs[name].tobytes() for name in carry)


def test_workers_read_and_write_where_arrays_lie(client: Any, tmp_path: Path, told: list[int]) -> None:
    """The caller sends no cell of arrays that workers reach; of Dask's that lie on workers he sends the regions."""
    zarr = pytest.importorskip("zarr", reason="zarr is not installed")
    da = pytest.importorskip("dask.array")
    p, inputs = viewed()
    wanted = run(p, inputs, backend="serial").outputs
    x = zarr.create_array(tmp_path / "x", shape=(40, 24), dtype="f4", chunks=(7, 5))
    x[...] = inputs["x"]
    w = da.from_array(inputs["w"], chunks=(5, 16))
    with deploy(p, backend=DaskBackend(client)) as placed:
        for chunks in ((10, 16), (7, 16)):
            y = zarr.create_array(tmp_path / "y", shape=(40, 16), dtype="f4", chunks=chunks, overwrite=True)
            told.clear()
            found = placed.run({"x": x, "w": w}, outputs={"y": y})
            assert found.outputs["y"] is y and y[...].tobytes() == wanted["y"].tobytes()
            assert found.outputs["turned"].tobytes() == wanted["turned"].tobytes() and sum(told) == 0


def test_operators_and_progress(client: Any) -> None:
    """Functions of the program that runs go to workers by value."""
    p, inputs = made(2)
    seen: list[tuple[int, int, str]] = []
    backend = DaskBackend(client)
    found = run(p, inputs, backend=backend, ops=as_relu(doubled), progress=lambda *at: seen.append(at))
    assert_same(found, run(p, inputs, backend="serial", ops=as_relu(doubled)))
    assert seen[-1][:2] == (len(p.steps), len(p.steps)) and "act" in {name for _, _, name in seen}


# -- where constants come from --------------------------------------------------------------------------------


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bytes of what the caller says to workers, but for their parts of the plan."""
    found: list[int] = []
    say = DaskSession._say

    def listen(self: DaskSession, device: int, word: str, *values: Any, frames: Sequence[Any] = ()) -> None:
        if word in ("place", "run"):
            found.append(sum(memoryview(frame).nbytes for frame in frames))
        say(self, device, word, *values, frames=frames)

    monkeypatch.setattr(DaskSession, "_say", listen)
    return found


def from_file(folder: Path) -> tuple[ShardPlan, dict[str, np.ndarray]]:
    model = he_random(onnx.load(MODELS / "resnet.onnx"), seed=1)
    onnx.save(model, folder / "model.onnx")
    graph = load_onnx(folder / "model.onnx")
    (x,) = (one for one in graph.stored.values() if one.kind == "input")
    p = plan(graph, Mesh((2,)))
    return p, {x.name: np.random.default_rng(1).standard_normal(x.shape).astype(x.dtype)}


def test_constants_of_a_file_are_read_by_the_workers(client: Any, tmp_path: Path, told: list[int]) -> None:
    p, inputs = from_file(tmp_path)
    named = ShardPlan.from_json(p.to_json())  # which does not carry them
    lying = [one.nbytes for one in hold(p).values()]
    for one in (p, named):
        told.clear()
        assert_same(run(one, inputs, backend=DaskBackend(client)), run(p, inputs, backend="serial"))
        assert sum(p.nbytes_placed) - sum(told) >= sum(lying) > 0


def hold(p: ShardPlan) -> dict[str, np.ndarray]:
    return {one.name: one.data for one in p.graph.stored.values() if one.kind == "constant" and one.data is not None}


def test_constants_that_are_given_or_whose_file_is_gone_are_sent(client: Any, tmp_path: Path, told: list[int]) -> None:
    p, inputs = from_file(tmp_path)
    name, value = max(hold(p).items(), key=lambda item: item[1].nbytes)
    other = {name: value[::-1].copy()}
    found = run(p, inputs, backend=DaskBackend(client), constants=other)
    assert_same(found, run(p, inputs, backend="serial", constants=other))
    assert sum(told) >= value.nbytes
    (tmp_path / "model.onnx").unlink()
    told.clear()
    assert_same(run(p, inputs, backend=DaskBackend(client)), run(p, inputs, backend="serial"))
    assert sum(told) == sum(p.nbytes_placed)


# -- how parcels go -------------------------------------------------------------------------------------------


class Watched(Wires):
    """Notes what it receives."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.received: list[weakref.ref[Any]] = []

    def recv(self, tag: int, peer: int) -> Parcel:
        parcel = super().recv(tag, peer)
        self.received.append(weakref.ref(parcel.cells))
        return parcel


def meet(kind: type[W]) -> list[W]:
    """Wires of two devices to each other."""
    wires = [kind(device, "key", "127.0.0.1") for device in range(2)]
    ways = [({1 - k: wires[1 - k].address}, [1 - k], 10) for k in range(2)]
    threads = [Thread(target=one.meet, args=way) for one, way in zip(wires, ways, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return wires


def test_parcels_go_through_lines_where_there_are_no_wires() -> None:
    """Workers in this process do not speak TCP."""
    distributed = pytest.importorskip("distributed")
    p, inputs = made(3)
    options = {"n_workers": 3, "processes": False, "resources": {"tapestry": 1}, "dashboard_address": ":0"}
    with (
        distributed.LocalCluster(**options) as cluster,
        distributed.Client(cluster, set_as_default=False) as near,
        deploy(p, backend=DaskBackend(near)) as placed,
        deploy(p, backend="serial") as other,
    ):
        for turn in range(4):  # from the third one on steps are done by heart
            feeds = {name: array + turn for name, array in inputs.items()}
            assert_same(placed.run(feeds), other.run(feeds))


@pytest.mark.parametrize("rows", [64, 512], ids=["small", "larger"])
def test_runs_by_heart_hold_small_parcels_alone(rows: int) -> None:
    """What came by wire is given back when it was unpacked, and what comes in the next run is what is computed with.

    Small parcels come to the same memory each time, and are sent from the same.
    """
    g, is_small = Graph(), rows == 64
    g.output(ops.relu(ops.relu(g.input("x", (rows, 48)), name="rows").T, name="columns"), "y")
    p, wires = plan(g, Mesh(2), fix={"rows": {"i0": 2}, "columns": {"i0": 2}}), meet(Watched)
    with deploy(p, backend="serial") as placed:
        assert placed._session is not None
        parts = list(list_parts(placed._session.what))
    members = [Member(part, NumpyBackend(), one, near=()) for part, one in zip(parts, wires, strict=True)]
    for part, one in zip(parts, wires, strict=True):
        one.receipts = part.list_receipts()
    for turn in range(4):
        x = np.random.default_rng(turn).standard_normal((rows, 48), np.float32)
        with ThreadPoolExecutor(2) as pool:
            runs = [pool.submit(member.run, {"x": x}, ["x"], perf_counter(), {}, None) for member in members]
            cells = [one.result(60)[1] for one in runs]
        found = np.concatenate([each for one in cells for each in one])
        assert np.array_equal(found, np.maximum(x, 0).T.reshape(-1))
    gc.collect()
    held = [[each() for each in one.received] for one in wires]
    assert [len(each) for each in held] == [4, 4]
    assert all((one is not None) == is_small and one is each[0] for each in held for one in each)
    for member in members:
        known = member.interpreter.by_heart.values()
        assert {bool(part.post) for part in known if part.sent} == {is_small}
        assert {bool(part.calls) for part in known if part.source is not None} == {is_small}
    for one in wires:
        one.close()


@pytest.mark.parametrize("shape", [(512, 512), (64, 4096)], ids=["packed", "from where they lie"])
def test_large_parcels_go_to_memory_that_is_used_again(client: Any, shape: tuple[int, int]) -> None:
    """Rows become columns: parcels of 128 KB, of pieces of 1 KB that are packed, and of 8 KB that are not."""
    g = Graph()
    g.output(ops.negative(g.input("x", shape, "float64"), name="negative"), "y")
    p = plan(g, Mesh((4,)), layout={"x": {0: 4}}, fix={"negative": {"i1": 4}})
    with deploy(p, backend=DaskBackend(client)) as placed:
        for seed in range(3):
            x = np.random.default_rng(seed).standard_normal(shape)
            found = placed.run({"x": x})
            assert np.array_equal(found.outputs["y"], -x) and found.nbytes_by_link == p.nbytes_by_link
    assert set(p.nbytes_by_link.values()) == {1 << 17}


def test_words_of_any_length_go_by_wire() -> None:
    frames = [np.arange(n, dtype=np.uint8) for n in (0, 1, 200)] + [np.arange(100_000.0)]
    for message in (Message("run"), Message("place", ("x", 7, None, [1.5, True], b"abc"), frames)):
        head, *rest = write_letter(message, 5)
        letter = np.frombuffer(b"".join(rest), np.uint8)
        assert HEAD.unpack(head)[:2] == (5, letter.nbytes)
        found = read_letter(letter)
        assert (found.word, found.values) == (message.word, tuple(message.values))
        assert [bytes(one) for one in found.frames] == [one.tobytes() for one in message.frames]
        assert all((one.ctypes.data - letter.ctypes.data) % 64 == 0 for one in found.frames)


def test_wires_that_are_full_are_read_meanwhile() -> None:
    """Two devices send each other more than sockets hold, before either receives."""
    wires = meet(Wires)
    cells = [np.random.default_rng(k).random(1_000_000) for k in range(2)]
    found: dict[int, Any] = {}

    def swap(device: int) -> None:
        one = wires[device]
        one.receipts = {(1 - device, tag): (1_000_000, "float64") for tag in range(2)}
        for tag in range(2):
            one.send(tag, 1 - device, Parcel(cells[device] + tag, 1.0, 2.0))
        found[device] = [one.recv(tag, 1 - device) for tag in (1, 0)]

    swapping = [Thread(target=swap, args=(device,)) for device in range(2)]
    for thread in swapping:
        thread.start()
    for thread in swapping:
        thread.join(60)
    for device in range(2):
        for tag, parcel in zip((1, 0), found[device], strict=True):
            assert parcel.packed == 1.0 and np.array_equal(parcel.cells, cells[1 - device] + tag)
    wires[0].close()
    with pytest.raises(PeerLost):
        wires[1].recv(7, 0)
    wires[1].stop()
    with pytest.raises(Ended):
        wires[1].recv(7, 0)
    wires[1].close()


def test_devices_are_asked_for_wires_at_once() -> None:
    """None greets before all are asked, and why one does not is told of that one alone."""
    asked = Barrier(3)

    class Waiting(Wires):
        def _greet(self, wire: Any) -> None:
            asked.wait(10)
            super()._greet(wire)

    every = [Waiting(device, "another key" if device == 1 else "key", "127.0.0.1") for device in range(3)]
    made, errors = connect_all({one.device: one.address for one in every}, CALLER, b"key", 10)
    assert sorted(made) == [0, 2] and {k: type(error) for k, error in errors.items()} == {1: ConnectionResetError}
    hearing = Hearing()
    hearing.connect({3: None, **{one.device: one.address for one in every}}, "key", 10)
    assert sorted(hearing.wires) == [0, 2], "others have lines"
    hearing.close()
    for wire in (*made.values(), *every):
        wire.close()


def test_a_wire_to_another_generation_is_refused() -> None:
    one, other = Wires(0, "key", "127.0.0.1"), Wires(1, "another key", "127.0.0.1")
    with pytest.raises(Unreached, match=r"device 0 does not reach device 1 at 127.0.0.1:\d+ \(ConnectionResetError"):
        one.meet({1: other.address}, [], 5)
    with pytest.raises(Unreached, match=r"device 1 did not connect to device 0 in 0.1 s"):
        one.meet({}, [1], 0.1)
    assert other.strangers == 1 and not other.incoming
    one.close()
    other.close()


def test_who_connects_while_there_are_no_more_files_is_greeted_later() -> None:
    """Or in no thread of his own, where there are no more; and close ends those who greet."""
    before, full = set(threading.enumerate()), OSError(errno.EMFILE, "Too many open files")
    one, ends = Wires(0, "key", "127.0.0.1"), [socket.socketpair() for _ in range(2)]
    server = one.server

    def accept() -> Any:
        if not asked:
            one.stop()
            raise OSError(errno.EBADF, "closed")
        found = asked.pop()
        if isinstance(found, OSError):
            raise found
        return found, ""

    for lacks in (mock.Mock(side_effect=RuntimeError("can't start new thread")), Thread):
        late, wire = ends.pop()
        late.shutdown(socket.SHUT_WR)  # who says nothing is not waited for
        asked = [wire, full, full]
        with mock.patch("tapestry_exec.dask.wires.Thread", lacks):
            one.is_over = False
            one.server = mock.Mock(accept=accept)
            one._accept()
        late.settimeout(20)
        assert len(late.recv(64)) == 32, "what is to be signed"
        late.close()
    one.server = server
    one.close()
    for thread in set(threading.enumerate()) - before:
        if thread.name.endswith(("(_accept)", "(_greet)")):
            thread.join(20)
            assert not thread.is_alive()


def test_traces_have_one_clock(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A parcel is unpacked after it was packed, on one machine, and on others whose clocks are asked."""
    p, inputs = made(3)
    for is_near in (True, False):
        if not is_near:
            monkeypatch.setattr("tapestry_exec.dask.backend.name_clock", lambda: "another machine's")
        with deploy(p, backend=DaskBackend(client)) as placed:
            begin = time.perf_counter()
            found = placed.run(inputs)
            took = time.perf_counter() - begin
            session: Any = placed._session
            assert (session.ahead == [0.0] * 3) is is_near
            # All clocks are this machine's: what they seem to be ahead is the error, which is stated.
            assert max(map(abs, session.ahead)) <= found.clock_error < 1 and (found.clock_error == 0) is is_near
        events = [event for event in found.timeline if event.phases]
        slack = 1e-6 if is_near else 2 * max(map(abs, session.ahead))
        for event in events:
            packed, moved, unpacked = event.phases
            assert -slack <= packed.start <= moved.start <= unpacked.start + slack <= took + 2 * slack
        assert len(events) == sum(bool(event.phases) for event in run(p, inputs, backend="serial").timeline) > 0
