"""Simulated devices: streams, events, graphs and memory against all interleavings.

The programs of a host and streams are the ones of `tests.stream_programs`, whose verdict comes from trying all orders.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given

from tapestry_exec.run.backends import OrderingFault
from tapestry_exec.simulated import namespace as simulated
from tapestry_exec.simulated.machine import CUDADriverError, CUDARuntimeError
from tests.simulated_kernels import TOUCH, mask
from tests.stream_programs import (
    CELLS,
    DEFAULT,
    Action,
    Record,
    Synchronize,
    SynchronizeEvent,
    Touch,
    Wait,
    Work,
    programs,
    races,
)

# -- programs -----------------------------------------------------------------------------------------------

BLOCKING, FREE = ("b", "c"), ("x", "y")
ALL = (DEFAULT, *BLOCKING, "x")


class Played:
    """A program on a simulated device; its cells lie in pinned memory, which kernels and the host reach."""

    def __init__(self) -> None:
        self.xp = simulated.cupy(1)
        self.kernel = self.xp.RawModule(code=TOUCH).get_function("touch")
        cuda = self.xp.cuda
        self.streams = {DEFAULT: cuda.Stream.null}
        self.streams |= {name: cuda.Stream(non_blocking=name in FREE) for name in (*BLOCKING, *FREE)}
        self.events = {k: cuda.Event() for k in range(4)}
        self.cells = cuda.alloc_pinned_memory(4 * CELLS)

    def play(self, program: Sequence[Action]) -> tuple[int, str] | None:
        """The number of the action that is faulted, and what is said."""
        for number, action in enumerate(program):
            try:
                self.do(action)
            except OrderingFault as fault:
                return number, str(fault)
        return None

    def do(self, action: Action) -> None:
        match action:
            case Work():
                with self.streams[action.stream]:
                    args = np.uint64(self.cells.ptr), mask(action.reads), mask(action.writes)
                    self.kernel((1,), (1,), args)
            case Touch():
                for some, is_write in ((action.reads, False), (action.writes, True)):
                    for k in some:
                        self.xp.mark_host(self.cells.ptr + 4 * k, 4, is_write)
            case Record():
                self.events[action.event].record(self.streams[action.stream])
            case Wait():
                self.streams[action.stream].wait_event(self.events[action.event])
            case Synchronize():
                self.streams[action.stream].synchronize()
            case SynchronizeEvent():
                self.events[action.event].synchronize()


def cells(*numbers: int) -> frozenset[int]:
    return frozenset(numbers)


NO = cells()


RECORDED_TWICE = [Work("x", NO, cells(1)), Record("x", 0), Work("x", NO, cells(0)), Record("x", 0)]


@given(programs(ALL))
@example([Work("b", NO, cells(0)), Work("c", NO, cells(0))])
@example([Work("b", NO, cells(0)), Work(DEFAULT, cells(0), NO)])
@example([Work("x", NO, cells(0)), Work(DEFAULT, cells(0), NO)])
@example([Work(DEFAULT, NO, cells(0)), Record("b", 0), Wait("x", 0), Work("x", cells(0), NO)])
@example([Work("b", NO, cells(0)), Synchronize(DEFAULT), Touch(cells(0), NO)])
@example([*RECORDED_TWICE, Wait("b", 0), Work("b", cells(0), NO)])
@example([Work("x", NO, cells(0)), Record("x", 0), Work("x", NO, cells(1)), SynchronizeEvent(0), Touch(cells(0), NO)])
@example([Work("x", NO, cells(0)), Record("x", 0), Work("x", NO, cells(1)), SynchronizeEvent(0), Touch(cells(1), NO)])
def test_programs_are_faulted_where_some_interleaving_differs(program: list[Action]) -> None:
    """With the default stream, streams that wait for it, and one that does not."""
    wanted = races(program, ALL, BLOCKING)
    found = Played().play(program)
    assert (None if found is None else found[0]) == min(wanted, default=None)


@given(programs(("b", *FREE), with_host=False, most=8))
@example([Work("b", NO, cells(0)), Work("x", NO, cells(0))])
@example([Work("b", NO, cells(0)), Record("b", 0), Wait("x", 0), Work("x", NO, cells(0))])
def test_a_graph_is_faulted_where_its_program_is(program: list[Action]) -> None:
    """The same program captured: its faults are found when the graph is launched, the first time and the second."""
    wanted = races(program, ("b", *FREE))
    played = Played()
    first, *others = (played.streams[name] for name in ("b", *FREE))
    first.begin_capture()
    fork = first.record()
    for other in others:
        other.wait_event(fork)
    assert played.play(program) is None
    for other in others:
        first.wait_event(other.record())
    graph = first.end_capture()
    for _ in range(2):
        if wanted:
            with pytest.raises(OrderingFault, match=r"\(kernel touch\) on graph 1 branch \d, launched on device 0"):
                graph.launch(first)
        else:
            graph.launch(first)


# -- events, streams and devices ----------------------------------------------------------------------------


def test_the_current_stream_belongs_to_the_current_device() -> None:
    xp = simulated.cupy(2)
    with xp.cuda.Device(1):
        stream = xp.cuda.Stream()
    with pytest.raises(RuntimeError, match=r"stream is created on \(1\) does not match with the current device \(0\)"):
        stream.use()
    with pytest.raises(CUDARuntimeError, match="cudaErrorInvalidResourceHandle: an event of device 0 is recorded in"):
        xp.cuda.Event().record(stream)
    with pytest.raises(CUDARuntimeError, match="cudaErrorInvalidDevice: there is no device 2"):
        xp.cuda.Device(2)
    with pytest.raises(CUDARuntimeError, match="cudaErrorNoDevice"):
        simulated.cupy(0).cuda.runtime.getDeviceCount()


def test_memory_of_another_device_needs_access() -> None:
    xp = simulated.cupy(2)
    with xp.cuda.Device(1):
        far = xp.ones(4, np.float32)
        xp.cuda.Device().synchronize()
    kernel = xp.RawModule(code=TOUCH).get_function("touch")
    with pytest.raises(OrderingFault, match=r"\(kernel touch\) .* on device 1, which device 0 cannot reach"):
        kernel((1,), (1,), (far, np.int32(1), np.int32(0)))
    with pytest.raises(ValueError, match="is different from the current device"):
        far + 1
    xp.cuda.runtime.deviceEnablePeerAccess(1)
    kernel((1,), (1,), (far, np.int32(1), np.int32(2)))
    with pytest.raises(CUDARuntimeError, match="cudaErrorPeerAccessUnsupported"):
        simulated.cupy(2, peers=False).cuda.runtime.deviceEnablePeerAccess(1)


def test_copies_between_devices() -> None:
    xp = simulated.cupy(2, peers=False)
    a = xp.arange(8, dtype=np.float32)
    xp.cuda.Device().synchronize()
    with xp.cuda.Device(1):
        b = xp.empty(8, np.float32)
        stream = xp.cuda.Stream(non_blocking=True)
        xp.cuda.runtime.memcpyPeerAsync(b.data.ptr, 1, a.data.ptr, 0, 32, stream.ptr)
        with pytest.raises(CUDARuntimeError, match="does not lie on device 0"):
            xp.cuda.runtime.memcpyPeerAsync(b.data.ptr, 0, a.data.ptr, 0, 32, stream.ptr)
        with pytest.raises(OrderingFault, match=r"while operation .* may still write them"):
            b.get()
        stream.synchronize()
        np.testing.assert_array_equal(b.get(), np.arange(8))


# -- pinned memory ------------------------------------------------------------------------------------------


def pinned(xp: Any, size: int) -> tuple[Any, np.ndarray]:
    memory = xp.cuda.alloc_pinned_memory(4 * size)
    return memory, np.frombuffer(memory, np.float32, size)


def download(xp: Any, stream: Any) -> tuple[Any, np.ndarray, Any]:
    a = xp.arange(4, dtype=np.float32)
    xp.cuda.Device().synchronize()
    memory, host = pinned(xp, 4)
    xp.cuda.runtime.memcpyAsync(memory.ptr, a.data.ptr, 16, xp.cuda.runtime.memcpyDeviceToHost, stream.ptr)
    return memory, host, a


def test_what_is_copied_to_pinned_memory_is_there_after_a_wait_and_not_before() -> None:
    xp = simulated.cupy(1)
    stream = xp.cuda.Stream(non_blocking=True)
    memory, host, _ = download(xp, stream)
    assert np.isnan(host).all(), "poison"
    with pytest.raises(OrderingFault, match=r"\(host access\) on host reads .* while .* \(memcpyAsync\) on dev"):
        xp.mark_host(memory.ptr, 16, False)
    stream.synchronize()
    xp.mark_host(memory.ptr, 16, False)
    assert host.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("direction", ["from", "to"])
def test_pinned_memory_that_the_host_changes_while_it_is_copied(direction: str) -> None:
    xp = simulated.cupy(1)
    stream = xp.cuda.Stream(non_blocking=True)
    if direction == "to":
        memory, host, _ = download(xp, stream)
    else:
        a = xp.empty(4, np.float32)
        memory, host = pinned(xp, 4)
        host[:] = 1
        xp.cuda.runtime.memcpyAsync(a.data.ptr, memory.ptr, 16, xp.cuda.runtime.memcpyHostToDevice, stream.ptr)
    host[2] = 7
    message = (
        rf"host changed bytes 0 to 16 of pinned memory \d+ while it is copied {direction} by .* \(memcpyAsync\) on "
    )
    with pytest.raises(OrderingFault, match=message):
        stream.synchronize()
    assert len(memory) == 16


def test_copies_of_the_wrong_kind() -> None:
    xp = simulated.cupy(1)
    a, (memory, _) = xp.zeros(4, np.float32), pinned(xp, 4)
    runtime = xp.cuda.runtime
    with pytest.raises(CUDARuntimeError, match="a copy of kind 1 is asked for, but it is from a device to the host"):
        runtime.memcpyAsync(memory.ptr, a.data.ptr, 16, runtime.memcpyHostToDevice, 0)
    with pytest.raises(OrderingFault, match=r"memcpyAsync: 100 bytes at .* lie beyond the 16 bytes of pinned memory"):
        runtime.memcpyAsync(a.data.ptr, memory.ptr, 100, runtime.memcpyHostToDevice, 0)


# -- memory and pools ---------------------------------------------------------------------------------------


def test_memory_is_poison_until_it_is_written_and_again_when_it_is_freed() -> None:
    xp = simulated.cupy(1, unwritten=True)
    a = xp.empty(4, np.float32)
    with pytest.raises(OrderingFault, match="byte 0 was never written since it was allocated"):
        a + 1
    a[:2] = 5
    (a[:2] * 2).get()
    with pytest.raises(OrderingFault, match="byte 8 was never written"):
        a + 1
    assert np.isnan(simulated.cupy(1).empty(3, np.float32).get()).all()


@pytest.mark.parametrize("value", [0xFF, 0xA5, 0])
def test_a_fresh_buffer_that_is_filled_with_poison_holds_nothing(value: int) -> None:
    xp = simulated.cupy(1, unwritten=True)
    memory = xp.cuda.MemoryPointer(xp.cuda.Memory(256), 0)
    xp.mark_block(memory.ptr + 64, 64, "x", True)
    xp.cuda.runtime.memsetAsync(memory.ptr + 64, value, 64, 0)
    cells = xp.ndarray((64,), np.uint8, memory + 64)
    if value:
        with pytest.raises(OrderingFault, match="of which byte 64 was never written"):
            cells.get()
        cells[:32] = 1
        xp.cuda.runtime.memsetAsync(memory.ptr + 64, value, 64, 0)
    assert cells.get().tolist() == [value] * 64, "over what was written it is content"


def test_memory_that_is_moved_as_it_is_counts_as_written() -> None:
    xp = simulated.cupy(1, unwritten=True)
    a = xp.empty(8, np.float32)
    xp.mark_moved(a.data.ptr + 4, 16)
    assert np.isnan(a[1:5].get()).all()
    for beside in (a[:2], a[4:6]):
        with pytest.raises(OrderingFault, match="was never written"):
            beside.get()
    xp.mark_moved(a.data.ptr, 0)
    with pytest.raises(OrderingFault, match=r"what is moved: 1024 bytes at .* lie beyond the 512 bytes"):
        xp.mark_moved(a.data.ptr, 1024)
    simulated.cupy(1).mark_moved(0, 0)


def test_memory_that_was_freed_is_not_used() -> None:
    xp = simulated.cupy(1)
    memory = xp.cuda.Memory(64)
    address = memory.ptr
    kernel = xp.RawModule(code=TOUCH).get_function("touch")
    kernel((1,), (1,), (np.uint64(address), np.int32(0), np.int32(1)))
    del memory
    with pytest.raises(OrderingFault, match=r"\(kernel touch\) .* bytes 0 to 4 of memory .* which has been freed"):
        kernel((1,), (1,), (np.uint64(address), np.int32(0), np.int32(1)))


def test_a_pool_hands_memory_out_again_to_the_stream_that_freed_it() -> None:
    xp = simulated.cupy(1)
    pool = xp.cuda.MemoryPool()
    one, two = xp.cuda.Stream(non_blocking=True), xp.cuda.Stream(non_blocking=True)
    with one:
        first = pool.malloc(100)
        at = first.ptr
        del first
        assert pool.malloc(80).ptr == at
    with two:
        assert pool.malloc(80).ptr != at


def test_an_array_freed_on_one_stream_while_another_reads_it() -> None:
    """The pool gives the memory to its own stream again, which does not wait for the other one."""
    xp = simulated.cupy(1)
    one, two = xp.cuda.Stream(non_blocking=True), xp.cuda.Stream(non_blocking=True)
    with one:
        a = xp.ones(64)
    two.wait_event(one.record())
    with two:
        total = a.sum()
    del a
    with one, pytest.raises(OrderingFault, match=r"\(ones\) .* while .* \(sum\) on device 0 stream 2 may still read"):
        xp.ones(64)
    assert total.shape == ()


def test_arrays_that_leave_their_memory_or_do_not_fit_their_cells() -> None:
    xp = simulated.cupy(1)
    memory = xp.cuda.MemoryPointer(xp.cuda.Memory(512), 0)
    with pytest.raises(OrderingFault, match=r"shape \(65,\), float64, strides None at byte 0 does not stay in the 512"):
        xp.ndarray((65,), np.float64, memory)
    with pytest.raises(OrderingFault, match="do not lie at multiples of 4"):
        xp.ndarray((4,), np.float32, memory + 2)
    with pytest.raises(OrderingFault, match="where no memory is allocated"):
        xp.ndarray((4,), np.float32, memory + (1 << 40))
    with pytest.raises(OrderingFault, match="does not stay in"):
        xp.ndarray((2, 2), np.float32, memory, (-8, 4))
    assert xp.ndarray((2, 2), np.float32, memory + 8, (-8, 4)).strides == (-8, 4)


# -- graphs -------------------------------------------------------------------------------------------------


def test_a_graph_is_done_again_on_what_the_memory_holds() -> None:
    xp = simulated.cupy(1)
    a, stream, pool = xp.ones(4, np.float32), xp.cuda.Stream(non_blocking=True), xp.cuda.MemoryPool()
    xp.cuda.Device().synchronize()
    with stream, xp.cuda.using_allocator(pool.malloc):
        stream.begin_capture()
        assert stream.is_capturing()
        a[...] = a * 2 + 1
        graph = stream.end_capture()
        assert a.get().tolist() == [1] * 4
        for _ in range(3):
            graph.launch(stream)
        assert a.get().tolist() == [15] * 4


def test_a_graph_is_waited_for_as_other_work_is() -> None:
    """It is done behind what is in its stream; the host and other streams wait for it."""
    xp = simulated.cupy(1)
    a, pool = xp.ones(4, np.float32), xp.cuda.MemoryPool()
    one, two = xp.cuda.Stream(non_blocking=True), xp.cuda.Stream(non_blocking=True)
    memory, host = pinned(xp, 4)
    xp.cuda.Device().synchronize()
    with one, xp.cuda.using_allocator(pool.malloc):
        one.begin_capture()
        a *= 2
        xp.cuda.runtime.memcpyAsync(memory.ptr, a.data.ptr, 16, xp.cuda.runtime.memcpyDeviceToHost, one.ptr)
        graph = one.end_capture()
        a += 1
        graph.launch(one)
        a += 1
    with pytest.raises(OrderingFault, match=r"host reads .* \(memcpyAsync\) on graph 1 branch 0, launched on device 0"):
        xp.mark_host(memory.ptr, 16, False)
    with two, pytest.raises(OrderingFault, match=r"\(sum\) on device 0 stream 2 reads .* \(add\) on device 0 stream 1"):
        a.sum()
    two.wait_event(one.record())
    with two:
        a += 1
        graph.launch(two)
    two.synchronize()
    xp.mark_host(memory.ptr, 16, False)
    assert host.tolist() == [12] * 4


class Capturing:
    """A stream that is being captured, one that is not, and what they meet."""

    def __init__(self) -> None:
        self.xp = simulated.cupy(1)
        self.a = self.xp.ones(4, np.float32)
        self.kernel = self.xp.RawModule(code=TOUCH).get_function("touch")
        self.stream, self.other = (self.xp.cuda.Stream(non_blocking=True) for _ in range(2))
        self.before = self.other.record()
        self.xp.cuda.Device().synchronize()
        self.stream.use()
        self.stream.begin_capture()
        self.event = self.stream.record()

    def launch(self) -> None:
        self.kernel((1,), (1,), (self.a, np.int32(1), np.int32(2)))

    def memset(self) -> None:
        self.xp.cuda.runtime.memsetAsync(self.a.data.ptr, 0, 16, self.stream.ptr)

    def merge(self) -> None:
        self.other.begin_capture()
        self.other.wait_event(self.event)

    def unjoined(self) -> None:
        self.other.wait_event(self.event)
        self.stream.end_capture()


FAILING: dict[str, tuple[Callable[[Capturing], Any], str]] = {
    "a stream is waited for": (
        lambda on: on.stream.synchronize(),
        "Unsupported: synchronize waits for device 0 stream 1",
    ),
    "a device is waited for": (
        lambda on: on.xp.cuda.Device().synchronize(),
        "Unsupported: synchronize waits for device",
    ),
    "values are looked at": (lambda on: on.a.get(), "Unsupported: get waits for device 0 stream 1"),
    "an event from before": (lambda on: on.stream.wait_event(on.before), "cudaErrorStreamCaptureIsolation"),
    "two captures are mixed": (lambda on: on.merge(), "cudaErrorStreamCaptureMerge"),
    "begun twice": (lambda on: on.stream.begin_capture(), "cudaErrorIllegalState"),
    "an event is waited for": (lambda on: on.event.synchronize(), "cudaErrorCapturedEvent"),
}


@pytest.mark.parametrize("what", FAILING)
def test_a_call_that_fails_makes_a_capture_invalid(what: str) -> None:
    """Everything that its streams and events are asked then fails too; its end is an error, but it ends."""
    on = Capturing()
    call, message = FAILING[what]
    with pytest.raises(CUDARuntimeError, match=message):
        call(on)
    asked: list[Callable[[], Any]] = [on.stream.record, on.stream.synchronize, on.memset]
    asked += [lambda: on.other.wait_event(on.event), lambda: on.stream.wait_event(on.before), on.stream.begin_capture]
    for one in asked:
        with pytest.raises(CUDARuntimeError, match="cudaErrorStreamCaptureInvalidated: operation failed due to a prev"):
            one()
    for launch in (on.launch, lambda: on.a + 1):
        with pytest.raises(CUDADriverError, match="CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"):
            launch()
    with pytest.raises(RuntimeError, match="was capturing, but an error has invalidated the capture sequence"):
        on.stream.is_capturing()
    with pytest.raises(CUDARuntimeError, match="cudaErrorStreamCaptureInvalidated"):
        on.stream.end_capture()
    assert not on.stream.is_capturing()
    on.launch()
    on.stream.begin_capture()
    on.a += 1
    on.stream.end_capture().launch(on.stream)
    assert on.a.get().tolist() == [2, 2, 2, 2]


def test_what_is_staged_for_an_array_of_the_host_is_not_there_when_a_graph_runs() -> None:
    """CuPy gives the memory to others as soon as the copy is done; a graph would copy it again."""
    on = Capturing()
    on.xp.asarray([1, 2, 3])
    graph = on.stream.end_capture()
    with pytest.raises(OrderingFault, match=r"asarray|set.* touches bytes 0 to 24 of pinned memory .* has been freed"):
        graph.launch(on.stream)


def test_captures_that_end_otherwise() -> None:
    on = Capturing()
    with pytest.raises(RuntimeError, match="cannot capture on the default"):
        on.xp.cuda.Stream.null.begin_capture()
    with pytest.raises(OrderingFault, match="memory of the host that is not pinned"):
        on.a.set(np.zeros(4, np.float32))
    with pytest.raises(CUDARuntimeError, match=r"Unjoined: .* not wait for the last work of \['device 0 stream 2"):
        on.unjoined()
    with pytest.raises(CUDARuntimeError, match="no capture began with this stream"):
        on.stream.end_capture()


Product = Callable[[Any, Any, Any], Any]
BY_CUBLAS: dict[str, Product] = {
    "matmul": lambda xp, a, b: xp.matmul(a, b),
    "@": lambda xp, a, b: a @ b,
    "into an array": lambda xp, a, b: xp.matmul(a, b, out=xp.empty((4, 4), np.float32)),
    "a method": lambda xp, a, b: a.dot(b),
    "dot with a vector": lambda xp, a, b: xp.dot(a, b[0]),
    "inner": lambda xp, a, b: xp.inner(a, b),
    "tensordot": lambda xp, a, b: xp.tensordot(a, b, axes=1),
    "tensordot by axes": lambda xp, a, b: xp.tensordot(a, b, axes=([0], [1])),
    "tensordot without axes": lambda xp, a, b: xp.tensordot(a, b, axes=0),
    "many": lambda xp, a, b: xp.matmul(a[None], b),
    "einsum": lambda xp, a, b: xp.einsum("ij,jk->ik", a, b),
    "einsum to a number": lambda xp, a, b: xp.einsum("ij,ij", a, b),
    "einsum by numbers": lambda xp, a, b: xp.einsum(a, [0, 1], b, [1, 2], [0, 2]),
    "complex": lambda xp, a, b: xp.matmul(a.astype(np.complex64), b),
}
BY_KERNELS: dict[str, Product] = {
    "whole numbers": lambda xp, a, b: xp.matmul(a.astype(np.int32), b.astype(np.int32)),
    "to a number": lambda xp, a, b: xp.dot(a[0], b[0]),
    "all to a number": lambda xp, a, b: xp.tensordot(a, b, axes=2),
    "vdot": lambda xp, a, b: xp.vdot(a, b),
    "outer": lambda xp, a, b: xp.outer(a, b),
    "no cells": lambda xp, a, b: xp.matmul(a[:, :0], b[:0]),
    "by a number": lambda xp, a, b: xp.dot(a, b[0, 0]),
    "einsum of one": lambda xp, a, b: xp.einsum("ij->j", a),
    "einsum without sums": lambda xp, a, b: xp.einsum("ij,ij->ij", a, b),
    "einsum, each summed alone": lambda xp, a, b: xp.einsum("ij,kl->ik", a, b),
    "einsum by numbers without sums": lambda xp, a, b: xp.einsum(a, [0, 1], b, [0, 1], [0, 1]),
}


@pytest.mark.parametrize("name", [*BY_CUBLAS, *BY_KERNELS])
def test_products_that_cublas_computes_are_refused_while_capturing(name: str) -> None:
    """CuPy refuses before it calls cuBLAS, so that the capture goes on."""
    product = (BY_CUBLAS | BY_KERNELS)[name]
    on = Capturing()
    a = np.arange(16, dtype=np.float32).reshape(4, 4)
    on.stream.end_capture()
    x, y = on.xp.asarray(a), on.xp.asarray(a + 1)
    wanted = product(on.xp, x, y).get()
    on.stream.begin_capture()
    if name in BY_CUBLAS:
        with pytest.raises(NotImplementedError, match="calling cuBLAS API during stream capture is currently unsupp"):
            product(on.xp, x, y)
        on.stream.end_capture().launch(on.stream)
        return
    made = product(on.xp, x, y)
    on.stream.end_capture().launch(on.stream)
    np.testing.assert_array_equal(made.get(), wanted)


def test_the_pool_of_a_graph_must_be_its_own() -> None:
    xp = simulated.cupy(1)
    a, stream = xp.ones(4, np.float32), xp.cuda.Stream(non_blocking=True)
    xp.cuda.Device().synchronize()
    with stream:
        stream.begin_capture()
        a[...] = a * 2
        graph = stream.end_capture()
        graph.launch(stream)
        taken = xp.ones(4, np.float32)
        with pytest.raises(OrderingFault, match=r"graph 1 uses pool memory .*, which its pool gave to others"):
            graph.launch(stream)
        assert taken.size
