"""A namespace that stands in for CuPy: code that uses CuPy runs on it unchanged, under a checker.

Memory of devices is memory of this process, so that kernels run on its addresses (through the CPU shim), and array
functions are NumPy's. What is offered is CuPy's, with CuPy's parameters, and three functions more, which a backend may
call where there are such: ``mark_block(pointer, nbytes, name, live)`` when a buffer takes or leaves its place in an
arena, ``mark_host(pointer, nbytes, write)`` before the host reads or writes pinned memory, and ``mark_moved(pointer,
nbytes)`` before a buffer is moved as it is, with cells that nothing wrote: they count as written from then on. Where
SciPy is installed, ``special.erf`` stands in for ``cupyx.scipy.special.erf``.

While a graph is captured, what CuPy and CUDA refuse then is refused: waits of the host, products of matrices that
CuPy has cuBLAS compute, and, once a call has failed, everything else on its streams until the capture is ended.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from tapestry_exec.run import OrderingFault
from tapestry_exec.simulated.arrays import DeviceArray
from tapestry_exec.simulated.functions import SAME, Ufunc, as_strided, functions_of
from tapestry_exec.simulated.kernels import CompileException, RawModule
from tapestry_exec.simulated.machine import COPY_KINDS, MEMORY_NBYTES, CUDADriverError, CUDARuntimeError, Machine, Queue
from tapestry_exec.simulated.memory import (
    Device,
    MemoryPointer,
    MemoryPool,
    PooledMemory,
    SimulatedMemory,
    UnownedMemory,
    memset,
    pinned,
)
from tapestry_exec.simulated.streams import CAPTURE_MODES, Event, Graph, Stream, get_elapsed_time

__all__ = ["OrderingFault", "cupy"]


def cupy(devices: int = 2, seed: int = 0, *, peers: bool = True, unwritten: bool = False) -> Any:
    """A namespace that stands in for CuPy, with devices of its own.

    Parameters
    ----------
    devices : int
        How many there are; 0 for a machine without any.
    seed : int
        Of what a run on a GPU leaves to chance: the order of a kernel's threads, and what an event says that is asked.
    peers : bool
        Whether devices can be given access to each other's memory.
    unwritten : bool
        Also find reads of memory that nothing wrote since it was allocated, or taken by a buffer.

    Returns
    -------
    module

    Examples
    --------
    >>> xp = cupy()
    >>> a = xp.arange(6, dtype=xp.float32).reshape(2, 3)
    >>> (a * 2 + 1).get().tolist()
    [[1.0, 3.0, 5.0], [7.0, 9.0, 11.0]]
    >>> one, two = xp.cuda.Stream(non_blocking=True), xp.cuda.Stream(non_blocking=True)
    >>> with one:
    ...     a *= 2
    >>> with two:
    ...     try:
    ...         b = a + 1
    ...     except OrderingFault as fault:
    ...         print(str(fault).split(":")[1])
     let device 0 stream 2 wait for an event that device 0 stream 1 records after that operation
    """
    machine = Machine(devices, seed, peers, unwritten)
    made: Any = ModuleType("simulated_cupy")
    made.cuda = _cuda(machine)
    machine.functions = functions_of(machine, machine.array)
    for name, function in machine.functions.items():
        setattr(made, name, function)
    for name in SAME.split():
        setattr(made, name, getattr(np, name))
    made.ndarray, made.RawModule = machine.array, _of(machine, RawModule)
    made.lib = SimpleNamespace(stride_tricks=SimpleNamespace(as_strided=as_strided))
    made.is_available, made.__version__ = made.cuda.is_available, "14.2.0"
    if find_spec("scipy") is not None:
        made.special = SimpleNamespace(erf=Ufunc(machine, "erf", import_module("scipy.special")))
    made.get_default_memory_pool = lambda: machine.pool
    made.mark_block, made.mark_host, made.mark_moved = machine.mark_block, machine.mark_host, machine.mark_moved
    made.checker = machine.checker
    return made


def _of(machine: Machine, kind: type) -> Any:
    """A class whose objects belong to a machine."""
    return type(kind.__name__, (kind,), {"machine": machine})


def _cuda(machine: Machine) -> SimpleNamespace:
    """The namespace of devices, streams and memory."""
    cuda = machine.cuda = SimpleNamespace()
    for kind in (UnownedMemory, MemoryPool, Device, Stream, Event, Graph):
        setattr(cuda, kind.__name__, _of(machine, kind))
    cuda.Memory, cuda.MemoryPointer = _of(machine, SimulatedMemory), MemoryPointer
    machine.array, machine.pooled = _of(machine, DeviceArray), _of(machine, PooledMemory)
    _start(machine, cuda)
    _memory_functions(machine, cuda)
    cuda.runtime = SimpleNamespace(
        **_copies(machine), **_devices(machine), **COPY_KINDS, **CAPTURE_MODES, CUDARuntimeError=CUDARuntimeError
    )
    cuda.driver = SimpleNamespace(CUDADriverError=CUDADriverError)
    cuda.compiler = SimpleNamespace(CompileException=CompileException)
    cuda.get_elapsed_time, cuda.is_available = get_elapsed_time, lambda: machine.device_count > 0
    return cuda


def _start(machine: Machine, cuda: Any) -> None:
    """The default streams, and what is current."""
    stream: Any = cuda.Stream
    for device in range(machine.device_count):
        null = stream(null=True)
        null.device_id, null.agent = device, f"device {device} default stream"
        machine.nulls.append(null)
    machine.current = list(machine.nulls)
    stream.null = stream(null=True)

    def get_current_stream(device_id: int = -1) -> Queue:
        return machine.current[machine.device if device_id < 0 else device_id]

    cuda.get_current_stream = get_current_stream


def _memory_functions(machine: Machine, cuda: Any) -> None:
    """Allocators: a pool by default."""
    machine.pool = cuda.MemoryPool()
    machine.allocator = machine.pool.malloc

    def set_allocator(allocator: Any = None) -> None:
        machine.allocator = allocator or (lambda size: MemoryPointer(cuda.Memory(size), 0))

    @contextmanager
    def using_allocator(allocator: Any = None) -> Iterator[None]:
        before = machine.allocator
        set_allocator(allocator)
        try:
            yield
        finally:
            machine.allocator = before

    cuda.set_allocator, cuda.using_allocator = set_allocator, using_allocator
    cuda.get_allocator = lambda: machine.allocator
    cuda.alloc = lambda size: machine.allocate(size)
    cuda.alloc_pinned_memory = lambda size: pinned(machine, size)


def _copies(machine: Machine) -> dict[str, Any]:
    """Functions of CUDA's runtime that copy and set bytes, by address."""

    def memcpyAsync(dst: int, src: int, size: int, kind: int, stream: int) -> None:
        machine.memcpy(dst, src, size, kind, machine.stream(stream))

    def memcpy(dst: int, src: int, size: int, kind: int) -> None:
        stream = machine.stream(0)
        machine.memcpy(dst, src, size, kind, stream, "memcpy")
        machine.wait_for_host("memcpy", stream)

    def memcpyPeerAsync(dst: int, dstDevice: int, src: int, srcDevice: int, size: int, stream: int) -> None:
        for address, device in ((dst, dstDevice), (src, srcDevice)):
            memory = machine.checker.at(address)
            if memory is None or memory.device != device:
                raise CUDARuntimeError(f"cudaErrorInvalidValue: {address:#x} does not lie on device {device}")
        machine.memcpy(dst, src, size, COPY_KINDS["memcpyDefault"], machine.stream(stream), "memcpyPeerAsync")

    def memsetAsync(ptr: int, value: int, size: int, stream: int) -> None:
        memset(machine, ptr, value, size, machine.stream(stream))

    return {function.__name__: function for function in (memcpyAsync, memcpy, memcpyPeerAsync, memsetAsync)}


def _devices(machine: Machine) -> dict[str, Any]:
    """Functions of CUDA's runtime about devices, by number."""

    def getDeviceCount() -> int:
        if not machine.device_count:
            raise CUDARuntimeError("cudaErrorNoDevice: no CUDA-capable device is detected")
        return machine.device_count

    def getDeviceProperties(device: int) -> dict[str, Any]:
        numbers = {"major": 9, "minor": 0, "multiProcessorCount": 2, "warpSize": 32, "maxThreadsPerBlock": 1024}
        return {"name": b"simulated device", "totalGlobalMem": MEMORY_NBYTES, "sharedMemPerBlock": 49152, **numbers}

    def deviceCanAccessPeer(device: int, peerDevice: int) -> int:
        return int(machine.may_be_peers and device != peerDevice)

    def deviceEnablePeerAccess(peerDevice: int) -> None:
        if not deviceCanAccessPeer(machine.device, peerDevice):
            raise CUDARuntimeError("cudaErrorPeerAccessUnsupported: peer access is not supported between these devices")
        machine.checker.peers.add((machine.device, peerDevice))

    def setDevice(device: int) -> None:
        machine.device = machine.cuda.Device(device).id

    def deviceSynchronize() -> None:
        machine.cuda.Device().synchronize()

    given = (
        *(getDeviceCount, getDeviceProperties, deviceCanAccessPeer, deviceEnablePeerAccess),
        *(setDevice, deviceSynchronize),
    )
    return {
        **{function.__name__: function for function in given},
        "getDevice": lambda: machine.device,
        "memGetInfo": lambda: (MEMORY_NBYTES, MEMORY_NBYTES),
        "driverGetVersion": lambda: 13000,
        "runtimeGetVersion": lambda: 13000,
    }
