"""Faults planted in the backend, each of which the simulated devices find."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from tapestry_exec import CupyBackend, StepFailed, run
from tapestry_exec.cuda import device as cupy_device
from tapestry_exec.cuda import lanes, payloads
from tapestry_exec.run.backends import OrderingFault
from tapestry_exec.simulated import namespace as simulated
from tapestry_exec.simulated.machine import CUDARuntimeError
from tapestry_plan import Graph, Mesh, ShardPlan, plan
from tapestry_plan.ops import matmul, relu
from tests.spilling import apart

Feeds = dict[str, Any]

# -- faults planted in the backend --------------------------------------------------------------------------


def crossing(devices: int = 2, size: int = 8, product: bool = True) -> tuple[ShardPlan, Feeds]:
    """Rows made on each device and read by columns: copies between all devices, in several steps."""
    g = Graph()
    x, w = g.input("x", (size, size)), g.input("w", (size, size))
    y, other = relu(x + w), relu(x - w)
    g.output(matmul(w, y.T) if product else w - y.T, "z")
    g.output(matmul(w, other[::-1].T) if product else other[::-1].T + w, "v")
    axes = {node.name: next(a.name for a in g.signature(node.name).axes if a.size > 1) for node in g.order()}
    rng = np.random.default_rng(3)
    feeds = {name: rng.integers(-4, 5, (size, size)).astype(np.float32) for name in ("x", "w")}
    return plan(g, Mesh(devices), fix={name: {axis: devices} for name, axis in axes.items()}, placement="single"), feeds


def fault_of(p: ShardPlan, feeds: Feeds, xp: Any = 2, **options: Any) -> str | None:
    """What a run on simulated devices is faulted for; a run without a fault is right."""
    try:
        found = run(p, feeds, backend=CupyBackend(cupy=simulated.cupy(xp) if isinstance(xp, int) else xp, **options))
    except StepFailed as failed:
        assert isinstance(failed.__cause__, OrderingFault), failed
        return str(failed.__cause__)
    except OrderingFault as fault:
        return str(fault)
    for name, array in run(p, feeds).outputs.items():
        np.testing.assert_array_equal(found.outputs[name], array)
    return None


TWO_ACCESSES = re.compile(
    r"operation \d+ \([\w ]+\) on [\w ,]+ (reads|writes) bytes \d+ to \d+ of [\w ]+( \(from byte \d+ on\))? while "
    r"operation \d+ \([\w ]+\) on [\w ,]+ may still (read|write) them: (let|synchronize) "
    r"|the host changed bytes \d+ to \d+ of pinned memory \d+ while it is copied (from|to) by operation \d+ \(\w+\) on "
)


@pytest.fixture
def small_rings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rings for payloads with room for two, so that slots are used again soon."""
    monkeypatch.setattr(payloads, "RING_NBYTES", 0)


class Log:
    """What a run issues, as a graph of what comes after what; accesses are at odds where no path joins them."""

    def __init__(self, xp: Any) -> None:
        self.before: list[int] = []
        """For each entry, those that it comes after, as bits."""
        self.last: dict[str, int] = {}
        self.events: dict[int, int] = {}
        self.touched: list[dict[int, tuple[int, int]]] = []
        """For each entry and block of memory, the bytes that it reads and those that it writes, as bits."""
        issue, cuda = xp.checker.issue, xp.cuda
        record, wait = cuda.Event.record, cuda.Stream.wait_event
        joined, synchronized = cuda.Event.synchronize, cuda.Stream.synchronize

        def new_issue(name: str, agent: str, device: Any, reads: Any, writes: Any, *everywhere: bool) -> None:
            host = self.last.get("host", -1)
            self.add(agent, host, self.bits(reads, writes))
            issue(name, agent, device, reads, writes, *everywhere)

        def new_record(event: Any, stream: Any = None) -> None:
            self.events[id(event)] = self.add(stream.agent)
            record(event, stream)

        def new_wait(stream: Any, event: Any) -> None:
            self.add(stream.agent, self.events[id(event)])
            wait(stream, event)

        def new_joined(event: Any) -> None:
            self.add("host", self.events[id(event)])
            joined(event)

        def new_synchronized(stream: Any) -> None:
            self.add("host", self.last.get(stream.agent, -1))
            synchronized(stream)

        xp.checker.issue, cuda.Event.record, cuda.Stream.wait_event = new_issue, new_record, new_wait
        cuda.Event.synchronize, cuda.Stream.synchronize = new_joined, new_synchronized

    def add(self, agent: str, other: int = -1, touched: dict[int, tuple[int, int]] | None = None) -> int:
        """An entry behind the agent's last one, and another one."""
        bits = 0
        for number in (self.last.get(agent, -1), other):
            if number >= 0:
                bits |= self.before[number] | 1 << number
        self.before.append(bits)
        self.touched.append(touched or {})
        self.last[agent] = len(self.before) - 1
        return self.last[agent]

    @staticmethod
    def bits(reads: Any, writes: Any) -> dict[int, tuple[int, int]]:
        found: dict[int, list[int]] = {}
        for k, accesses in enumerate((reads, writes)):
            for access in accesses:
                is_in = np.zeros(access.memory.nbytes, bool)
                access.put(is_in, 1)
                found.setdefault(id(access.memory), [0, 0])[k] |= int.from_bytes(np.packbits(is_in).tobytes(), "big")
        return {block: (read, written) for block, (read, written) in found.items()}

    def is_right(self) -> bool:
        """Whether any two accesses to a byte of which one writes come one after the other."""
        entries = [(k, touched) for k, touched in enumerate(self.touched) if touched]
        for j, mine in entries:
            for k, other in entries:
                if k >= j or self.before[j] >> k & 1:
                    continue
                for block, (read, written) in mine.items():
                    their_read, their_written = other.get(block, (0, 0))
                    if written & (their_read | their_written) or read & their_written:
                        return False
        return True


@pytest.mark.usefixtures("small_rings")
@pytest.mark.parametrize("gpus", [1, 2])
@pytest.mark.parametrize("is_apart", [True, False])
def test_each_wait_is_dropped_in_turn(monkeypatch: pytest.MonkeyPatch, gpus: int, is_apart: bool) -> None:
    """A run without one of its waits for events is faulted exactly if no other waits imply that one."""
    p, feeds = crossing()
    assert any(buffer.within for buffer in p.buffers)
    p = apart(p) if is_apart else p
    copied = run(p, feeds).nbytes_copied
    assert copied == p.nbytes_copied and (any(copied) == is_apart), "what is made in place is copied by nobody"
    plain = lanes.Lane.after
    waits, dropped = 0, -1

    def after(self: lanes.Lane, marks: Any) -> None:
        nonlocal waits
        for mark in marks:
            if mark.lane is self or self._waited.get(mark.lane, 0) >= mark.number:
                continue
            if waits != dropped:
                plain(self, [mark])
            waits += 1

    monkeypatch.setattr(lanes.Lane, "after", after)
    assert fault_of(p, feeds, gpus) is None
    count, faults = waits, []
    for number in range(count):
        waits, dropped = 0, number
        xp = simulated.cupy(gpus)
        log = Log(xp)
        message = fault_of(p, feeds, xp)
        assert (message is None) == log.is_right(), message
        if message is not None:
            assert TWO_ACCESSES.match(message), message
            faults.append(message)
    assert len(faults) >= 8
    kinds = {found[1] for found in map(TWO_ACCESSES.match, faults) if found}
    assert kinds == {"reads", "writes"}  # of what comes, and of room that is used again


@pytest.mark.usefixtures("small_rings")
def test_each_wait_of_a_recorded_run_is_dropped_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is captured is checked when it is launched: a graph that lacks a wait is faulted, or right without it."""
    p, feeds = crossing(product=False)
    wanted = run(p, feeds).outputs
    plain = lanes.Lane.after
    waits, dropped = 0, -1

    def after(self: lanes.Lane, marks: Any) -> None:
        nonlocal waits
        for mark in marks:
            if mark.lane is self or self._waited.get(mark.lane, 0) >= mark.number:
                continue
            if waits != dropped:
                plain(self, [mark])
            waits += 1

    monkeypatch.setattr(lanes.Lane, "after", after)
    monkeypatch.setattr(CupyBackend, "forget", lambda *args: False)

    def recorded(number: int) -> str | None:
        nonlocal waits, dropped
        backend = CupyBackend(cupy=simulated.cupy(2), capture=True)
        dropped = -1
        run(p, feeds, backend=backend)
        waits, dropped = 0, number
        try:
            found = [run(p, feeds, backend=backend) for _ in range(2)]
        except (StepFailed, OrderingFault, CUDARuntimeError) as error:
            return str(error.__cause__ or error)
        assert not found[1].timeline, "launched as a whole"
        for name, array in wanted.items():
            np.testing.assert_array_equal(found[1].outputs[name], array)
        return None

    assert recorded(-1) is None
    faults = [message for message in map(recorded, range(waits)) if message is not None]
    assert sum("on graph 1 branch" in message for message in faults) >= 4
    escaped = "cudaErrorStreamCapture", "lived, which has been freed"  # work that is not captured is done at once
    assert all(TWO_ACCESSES.match(one) or any(text in one for text in escaped) for one in faults), faults


def no_waits(self: lanes.Ground, start: int, stop: int) -> list[Any]:
    return []


def slot_too_early(self: lanes.Ring, nbytes: int) -> lanes.Slot:
    return lanes.Slot(0, max(64, -(-nbytes // 64) * 64), lanes.Uses())


def nothing(*args: Any) -> None:
    pass


@pytest.mark.usefixtures("small_rings")
@pytest.mark.parametrize("devices", [[0, 0], [0, 1]])
@pytest.mark.parametrize(
    ("place", "name", "fault", "message"),
    [
        (lanes.Ground, "take", no_waits, TWO_ACCESSES.pattern),
        (lanes.Ring, "take", slot_too_early, TWO_ACCESSES.pattern),
        (lanes.Uses, "read", nothing, TWO_ACCESSES.pattern),
        (lanes.Uses, "wrote", nothing, TWO_ACCESSES.pattern),
    ],
    ids=["freed memory is taken without waiting", "slots too early", "reads are forgotten", "writes are forgotten"],
)
def test_a_fault_in_the_order_is_found(
    monkeypatch: pytest.MonkeyPatch, place: Any, name: str, fault: Any, message: str, devices: list[int]
) -> None:
    p, feeds = crossing()
    assert fault_of(p, feeds, devices=devices) is None
    monkeypatch.setattr(place, name, fault)
    found = fault_of(p, feeds, devices=devices)
    assert found is not None and re.match(message, found), found


def test_buffers_with_overlapping_places_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    p, feeds = crossing()
    plain = cupy_device.CupyDevice.alloc

    def alloc(self: Any, buffer: Any, tensor_shape: Sequence[int]) -> None:
        plain(self, type(buffer)(**{**fields(buffer), "offset": 0}), tensor_shape)

    monkeypatch.setattr(cupy_device.CupyDevice, "alloc", alloc)
    message = r"bytes 0 to \d+ of memory \d+ of device 0 are given to buffer .* while buffer .* lives there; free it"
    found = fault_of(p, feeds)
    assert found is not None and re.match(message, found), found


def fields(record: Any) -> dict[str, Any]:
    return {name: getattr(record, name) for name in record.__struct_fields__}


def test_buffers_that_are_freed_before_they_are_used_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    p, feeds = crossing()
    plain: Callable[..., None] = cupy_device.CupyDevice.launch

    def launch(self: Any, op: Any, inputs: Any, outputs: Any, shard: Any, workspace: Any) -> None:
        freed = {item[0].id: item[0] for item in inputs if item is not None}
        blocks = {number: self._blocks[number] for number in freed}
        for buffer in freed.values():
            self.free(buffer)
        self._blocks |= blocks
        try:
            plain(self, op, inputs, outputs, shard, workspace)
        finally:
            for number in freed:
                del self._blocks[number]

    monkeypatch.setattr(cupy_device.CupyDevice, "launch", launch)
    found = fault_of(p, feeds)
    message = r"operation \d+ \(\w+\) on device 0 stream \d+ touches bytes \d+ to \d+ of memory \d+ of device 0, where "
    assert found is not None and re.match(message + r"buffer .* lived, which has been freed", found), found


@pytest.mark.usefixtures("small_rings")
def test_pinned_memory_that_is_used_again_too_early_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The host does not wait for the copies that still use a slot of the ring of pinned memory."""
    p, feeds = crossing()
    found_in = simulated.cupy(2)
    monkeypatch.setattr(found_in.cuda.Event, "synchronize", nothing)
    with pytest.raises((StepFailed, OrderingFault)) as raised:
        run(p, feeds, backend=CupyBackend(cupy=found_in))
    fault = raised.value.__cause__ if isinstance(raised.value, StepFailed) else raised.value
    assert isinstance(fault, OrderingFault) and TWO_ACCESSES.match(str(fault)), fault


def test_results_that_are_read_before_they_arrived_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    p, feeds = crossing()
    xp = simulated.cupy(2)
    backend = CupyBackend(cupy=xp)
    run(p, feeds, backend=backend)
    monkeypatch.setattr(xp.cuda.Event, "synchronize", nothing)
    with pytest.raises(
        (StepFailed, OrderingFault), match=r"\(host access\) on host reads .* may still write them: sync"
    ):
        run(p, feeds, backend=backend)


def test_pinned_memory_that_is_written_before_it_was_read_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Inputs go through a ring of pinned memory: a slot is written again once the copy from it is done."""
    p, feeds = crossing()
    monkeypatch.setattr(payloads, "RING_NBYTES", 0)
    assert fault_of(p, feeds) is None

    def take(self: payloads.Pinned, size: int, dtype: Any) -> payloads.Payload:
        slot = self._ring.take(size * dtype.itemsize)
        cells = self._bytes[slot.offset : slot.offset + size * dtype.itemsize].view(dtype)
        return payloads.Payload(self._memory.ptr + slot.offset, cells.nbytes, dtype, payloads.HOST, slot.uses, cells)

    monkeypatch.setattr(payloads.Pinned, "take", take)
    found = fault_of(p, feeds)
    assert found is not None and re.search(r"\(host access\) on host writes .* may still read", found), found


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("blocking", [False, True])
@pytest.mark.parametrize("devices", [1, 2, 3])
def test_plans_without_a_fault_pass(devices: int, blocking: bool, seed: int) -> None:
    """Under each order of a kernel's threads, and finding reads of what nothing wrote."""
    p, feeds = crossing(devices)
    wanted = run(p, feeds).outputs
    backend = CupyBackend(cupy=simulated.cupy(2, seed, unwritten=True), blocking=blocking)
    for name, array in run(p, feeds, backend=backend).outputs.items():
        np.testing.assert_array_equal(array, wanted[name])
