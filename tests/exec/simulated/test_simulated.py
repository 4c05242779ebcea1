"""Simulated devices: streams, events, graphs, memory and kernels against all interleavings, and faults planted in them.

The programs of a host and streams are the ones of `tests.stream_programs`, whose verdict comes from trying all orders.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tapestry_exec import CupyBackend, StepFailed, run
from tapestry_exec.cuda import device as cupy_device
from tapestry_exec.cuda import lanes, payloads
from tapestry_exec.run.backends import OrderingFault
from tapestry_exec.simulated import namespace as simulated
from tapestry_exec.simulated import shim
from tapestry_exec.simulated.kernels import CompileException
from tapestry_exec.simulated.machine import CUDADriverError, CUDARuntimeError
from tapestry_plan import Graph, Mesh, ShardPlan, concat, plan
from tapestry_plan.ops import matmul, relu
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

Feeds = dict[str, Any]

TOUCH = """
extern "C" __global__ void touch(float* cells, int reads, int writes) {
    float sum = 0;
    for (int k = 0; k < 4; ++k) if (reads >> k & 1) sum += cells[k];
    for (int k = 0; k < 4; ++k) if (writes >> k & 1) cells[k] = sum;
}
extern "C" __global__ void scale(const float* x, float* y, int n, int step) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i * step] = 2 * x[i * step];
}
"""


def mask(numbers: frozenset[int]) -> np.int32:
    return np.int32(sum(1 << k for k in numbers))


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


# -- raw kernels --------------------------------------------------------------------------------------------


@given(st.integers(1, 9), st.integers(1, 3), st.integers(0, 9), st.integers(0, 2**16))
def test_a_kernel_touches_exactly_the_bytes_that_it_reads_and_writes(n: int, step: int, k: int, seed: int) -> None:
    """What it touches is seen while it runs: whoever uses the bytes beside it need not wait."""
    xp = simulated.cupy(1, seed)
    x, y = (xp.arange(28, dtype=np.float32) for _ in range(2))
    xp.cuda.Device().synchronize()
    kernel = xp.RawModule(code=TOUCH).get_function("scale")
    one, two = xp.cuda.Stream(non_blocking=True), xp.cuda.Stream(non_blocking=True)
    with one:
        kernel(((n + 3) // 4,), (4,), (x, y, np.int32(n), np.int32(step)))
    with two:
        x[k] + 1
        if k % step == 0 and k < n * step:
            with pytest.raises(OrderingFault, match=rf"\(add\) .* bytes {4 * k} to {4 * k + 4} of .* \(kernel scale\)"):
                y[k] + 1
            with pytest.raises(OrderingFault, match=rf"\(setitem\) .* {4 * k} to .* \(kernel scale\) .* read them"):
                x[k] = 0
        else:
            y[k] = 2 * k
            x[k] = k
    xp.cuda.Device().synchronize()
    written = np.arange(0, n * step, step)
    np.testing.assert_array_equal(y.get()[written], 2 * written)


def test_kernels_that_do_not_compile_or_get_what_they_cannot_take() -> None:
    xp = simulated.cupy(1)
    with pytest.raises(CompileException, match="nosuch"):
        xp.RawModule(code='extern "C" __global__ void k(int* x) { *x = nosuch; }').compile()
    module = xp.RawModule(code=TOUCH)
    mangled = xp.RawModule(code=TOUCH.replace('extern "C"', ""))
    for one, name in ((module, "none"), (mangled, "touch")):
        with pytest.raises(CUDADriverError, match=rf"CUDA_ERROR_NOT_FOUND: .* {name}"):
            one.get_function(name)
    kernel = module.get_function("touch")
    with pytest.raises(TypeError, match=r"numpy.ndarray of shape \(4,\) as a kernel parameter"):
        kernel((1,), (1,), (np.zeros(4), np.int32(0), np.int32(0)))
    with pytest.raises(TypeError, match="unexpected keyword argument 'stream'"):
        kernel((1,), (1,), (xp.zeros(4, np.float32), np.int32(0), np.int32(0)), stream=0)


POKE = """
extern "C" __global__ void poke(unsigned char* y, long long at, int nbytes, int writes, int after) {
    __shared__ volatile int turn;
    if (threadIdx.x == 0) turn = 0;
    if (after) __syncthreads();
    if (threadIdx.x != blockDim.x - 1) return;
    unsigned char* p = y + at;
    if (nbytes == 1) { if (writes) *p = 7; else turn = *p; }
    if (nbytes == 8) { if (writes) *(long long*)p = 7; else turn = *(long long*)p; }
    unsigned char q[24];
    if (nbytes == 24) { if (writes) memset(p, 7, 24); else { memcpy(q, p, 24); turn = q[p - y & 15]; } }
}
struct Leading { int n; float* to; const float* from; };
__constant__ float table[4] = {1, 2, 3, 4};
extern "C" __global__ void all_its_own(Leading given, float factor) {
    extern __shared__ float shared[];
    float mine[32];
    for (int k = 0; k < 32; ++k) mine[k] = given.from[(k + threadIdx.x) % given.n];
    shared[threadIdx.x] = mine[threadIdx.x % 32] * table[threadIdx.x % 4];
    __syncthreads();
    float* at = given.to + threadIdx.x;
    const float next = shared[(threadIdx.x + 1) % blockDim.x] * factor;
    __syncthreads();
    memcpy(at, &next, sizeof next);
}
"""
BUFFERS = {"x": (0, 64), "y": (128, 192), "z": (192, 256), "gone": (320, 384)}


class Arena:
    """Memory with two buffers side by side, one apart, one that was freed, and gaps."""

    def __init__(self) -> None:
        self.xp = simulated.cupy(1)
        self.memory = self.xp.cuda.Memory(512)
        for name, (start, stop) in BUFFERS.items():
            self.xp.mark_block(self.memory.ptr + start, stop - start, name, True)
        start, stop = BUFFERS["gone"]
        self.xp.mark_block(self.memory.ptr + start, stop - start, "gone", False)
        self.bytes = self.xp.checker.at(self.memory.ptr).data

    def poke(self, buffer: str, at: int, nbytes: int = 1, writes: bool = True, after: bool = False) -> None:
        kernel = self.xp.RawModule(code=POKE).get_function("poke")
        address = np.uint64(self.memory.ptr + BUFFERS[buffer][0])
        grid, block = (1,) if after else (2,), (1,) if after and writes else (3,)
        kernel(grid, block, (address, np.int64(at), np.int32(nbytes), np.int32(writes), np.int32(after)))


@given(
    st.sampled_from(["x", "y", "z"]),
    st.integers(-40, 70) | st.integers(-(2**40), 2**40),
    st.sampled_from([1, 8, 24]),
    st.booleans(),
    st.booleans(),
)
@example("y", 64, 1, True, False)
@example("y", -64, 1, True, False)
@example("z", -4, 8, True, True)
@example("x", 60, 8, False, True)
@example("x", 500, 24, True, True)
@example("x", 10**9, 24, False, False)
@example("x", 6525, 1, False, False)
@example("y", 56, 8, True, True)
def test_a_kernel_that_leaves_its_buffers_is_stopped(
    buffer: str, at: int, nbytes: int, writes: bool, after: bool
) -> None:
    """Before it does any harm: neighbors that live, gaps and what lies beyond the arena stay as they are."""
    arena = Arena()
    start, stop = BUFFERS[buffer]
    if at in range(stop - start - nbytes + 1):
        arena.poke(buffer, at, nbytes, writes, after)
        assert not writes or 7 in arena.bytes[start + at :][:nbytes]
    else:
        what = "writes" if writes else "reads"
        with pytest.raises(OrderingFault, match=rf"kernel poke: thread [02] of block \([01], 0, 0\) {what} at .*keep"):
            arena.poke(buffer, at, nbytes, writes, after)
        assert (arena.bytes == 0xFF).all()
    arena.poke("y", 5, 1, True, True)
    assert np.flatnonzero(arena.bytes[128:192] == 7)[0] <= 5, "and it can be launched again"


@pytest.mark.parametrize(
    ("buffer", "at", "message"),
    [
        ("y", 64, "at byte 192 of memory 0 of device 0, where buffer z lives; no argument of the launch points there"),
        ("y", -1, "at byte 127 of memory 0 of device 0, where no buffer lives; no argument"),
        ("z", 130, "at byte 322 of memory 0 of device 0, where buffer gone lived; no argument"),
        ("z", 1000, r"at 0x\w+, 680 bytes behind memory 0 of device 0, where no memory is; no argument"),
    ],
)
def test_where_a_kernel_leaves_its_buffers_is_named(buffer: str, at: int, message: str) -> None:
    with pytest.raises(OrderingFault, match=message):
        Arena().poke(buffer, at)


def test_a_kernel_touches_no_memory_but_its_own() -> None:
    """Another allocation, though it lives, and one that a pointer led to and was freed."""
    xp = simulated.cupy(1)
    one, two = xp.cuda.Memory(64), xp.cuda.Memory(64)
    kernel = xp.RawModule(code=POKE).get_function("poke")
    options = np.int32(1), np.int32(1), np.int32(0)
    with pytest.raises(OrderingFault, match="writes at byte 3 of memory 1 of device 0; no argument of the launch"):
        kernel((1,), (1,), (np.uint64(one.ptr), np.int64(two.ptr - one.ptr + 3), *options))
    with pytest.raises(OrderingFault, match="writes at 0x0, where no memory is; no argument of the launch"):
        kernel((1,), (1,), (np.uint64(0), np.int64(0), *options))
    gap, at = two.ptr - one.ptr, one.ptr
    del two
    with pytest.raises(OrderingFault, match="writes at byte 3 of memory 1 of device 0, which has been freed; no"):
        kernel((1,), (1,), (np.uint64(at), np.int64(gap + 3), *options))


@given(st.integers(1, 64), st.integers(1, 9), st.integers(0, 2**16))
def test_a_kernel_has_its_stack_and_shared_memory_and_what_structs_point_to(threads: int, n: int, seed: int) -> None:
    xp = simulated.cupy(1, seed)
    source, out = xp.arange(n, dtype=np.float32), xp.empty(threads, np.float32)
    kernel = xp.RawModule(code=POKE).get_function("all_its_own")
    leading = np.dtype([("n", np.int32), ("to", np.uint64), ("from", np.uint64)], align=True)
    given_ = np.array((n, out.data.ptr, source.data.ptr), leading)
    kernel((1,), (threads,), (given_, np.float32(2)), shared_mem=4 * threads)
    k = np.arange(threads)
    made = ((k % 32 + k) % n) * (k % 4 + 1)
    np.testing.assert_array_equal(out.get(), 2 * made[(k + 1) % threads])


def test_threads_with_machines_of_their_own_launch_the_same_kernel() -> None:
    """The kernel's module is one in the process: one launch at a time, each with the memory that it may touch."""

    def launched(k: int) -> bool:
        arena = Arena()
        for at in range(60):
            arena.poke("y", at, 1, True, True)
            with pytest.raises(OrderingFault, match="where buffer z lives"):
                arena.poke("y", 64 + at, 1, True, True)
        return bool((arena.bytes[128:188] == 7).all() and (arena.bytes[188:] == 0xFF).all())

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(launched, range(4)))


def test_a_kernel_in_a_graph_is_stopped_when_the_graph_is_launched() -> None:
    arena = Arena()
    stream = arena.xp.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        arena.poke("y", 64)
        graph = stream.end_capture()
        with pytest.raises(OrderingFault, match="where buffer z lives"):
            graph.launch(stream)
    assert (arena.bytes == 0xFF).all()


ONCE = """
import sys
from tapestry_exec.simulated import namespace as simulated
xp = simulated.cupy(1)
kernel = xp.RawModule(code='extern "C" __global__ void one(int* x) { x[threadIdx.x] = 1; }').get_function("one")
x = xp.zeros(4, "int32")
kernel((1,), (4,), (x,))
assert x.get().tolist() == [1] * 4
"""


@pytest.mark.skipif(shim.found_compiler() is None, reason="no C++ compiler")
def test_what_one_process_compiled_another_one_does_not(tmp_path: Path) -> None:
    def run_it(salt: str) -> set[tuple[str, int]]:
        given_ = {"TAPESTRY_CACHE": str(tmp_path), "PYTHONHASHSEED": salt}
        subprocess.run([sys.executable, "-c", ONCE], env={**os.environ, **given_}, check=True)
        return {(path.name, path.stat().st_mtime_ns) for path in tmp_path.iterdir()}

    first = run_it("1")
    assert {name.rsplit(".", 1)[1] for name, _ in first} == {"h", "so", "names"}
    assert run_it("2") == first


# -- faults planted in the backend --------------------------------------------------------------------------


def crossing(devices: int = 2, size: int = 8, product: bool = True) -> tuple[ShardPlan, Feeds]:
    """Rows made on each device and read by columns: copies between all devices, in several steps."""
    g = Graph()
    x, w = g.input("x", (size, size)), g.input("w", (size, size))
    y = relu(x + w)
    g.output(matmul(y, y.T) if product else y - y.T, "z")
    g.output(concat([y[::2], y[1::2]], 0).T + w, "v")
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
def test_each_wait_is_dropped_in_turn(monkeypatch: pytest.MonkeyPatch, gpus: int) -> None:
    """A run without one of its waits for events is faulted exactly if no other waits imply that one."""
    p, feeds = crossing()
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
    assert {found[1] for found in map(TWO_ACCESSES.match, faults) if found} == {"reads", "writes"}


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
