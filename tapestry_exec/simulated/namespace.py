"""A namespace that stands in for CuPy: code that uses CuPy runs on it unchanged, under a checker.

Memory of devices is memory of this process, so that kernels run on its addresses (through the CPU shim), and array
functions are NumPy's. What is offered is CuPy's, with CuPy's parameters, and three functions more, which a backend may
call where there are such: ``mark_block(pointer, nbytes, name, live)`` when a buffer takes or leaves its place in an
arena, ``mark_host(pointer, nbytes, write)`` before the host reads or writes pinned memory, and ``mark_moved(pointer,
nbytes)`` before a buffer is moved as it is, with cells that nothing wrote: they count as written from then on. Where
SciPy is installed, ``special.erf`` stands in for ``cupyx.scipy.special.erf``.

``cublas_library`` stands in for the library of cuBLAS, which is called by addresses.

While a graph is captured, what CuPy and CUDA refuse then is refused: waits of the host, products of matrices that
CuPy has cuBLAS compute, and, once a call has failed, everything else on its streams until the capture is ended.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from tapestry_exec.run import OrderingFault
from tapestry_exec.simulated.arrays import DeviceArray
from tapestry_exec.simulated.cublas import CublasLibrary
from tapestry_exec.simulated.functions import Ufunc, as_strided, functions_of
from tapestry_exec.simulated.kernels import CompileException, RawModule
from tapestry_exec.simulated.machine import COPY_KINDS, CUDADriverError, CUDARuntimeError, Machine, Queue
from tapestry_exec.simulated.memory import Device, MemoryPointer, MemoryPool, SimulatedMemory, memset, pinned
from tapestry_exec.simulated.nccl import make_nccl
from tapestry_exec.simulated.streams import Event, Graph, Stream, get_elapsed_time
from tapestry_exec.simulated.tables import SAME
from tapestry_exec.simulated.tuning import MEMORY_NBYTES

__all__ = ["OrderingFault", "cupy"]


def cupy(devices: int = 2, seed: int = 0, *, peers: bool = True, unwritten: bool = False) -> Any:
    """A namespace that stands in for CuPy, with devices of its own.

    Parameters
    ----------
    devices : int
        How many there are; 0 for a machine without any.
    seed : int
        Of what a run on a GPU leaves to chance: the order of the threads of a kernel and of its updates of a cell.
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
    made.ndarray = arrays = _of(machine, DeviceArray)
    machine.functions = functions_of(arrays)
    for name, function in machine.functions.items():
        setattr(made, name, function)
    for name in SAME.split():
        setattr(made, name, getattr(np, name))
    made.get_default_pinned_memory_pool = made.cuda.PinnedMemoryPool
    made.RawModule = _of(machine, RawModule)
    made.lib = SimpleNamespace(stride_tricks=SimpleNamespace(as_strided=as_strided))
    made.__version__ = "14.2.0"
    if find_spec("scipy") is not None:
        made.special = SimpleNamespace(erf=Ufunc(arrays, "erf", import_module("scipy.special")))
    made.mark_block, made.mark_host, made.mark_moved = machine.mark_block, machine.mark_host, machine.mark_moved
    made.checker, made.cublas_library = machine.checker, CublasLibrary(machine)
    return made


def _of(machine: Machine, kind: type) -> Any:
    """A class whose objects belong to a machine."""
    return type(kind.__name__, (kind,), {"machine": machine})


def _cuda(machine: Machine) -> SimpleNamespace:
    """The namespace of devices, streams and memory."""
    cuda = machine.cuda = SimpleNamespace()
    for kind in (MemoryPool, Device, Stream, Event, Graph):
        setattr(cuda, kind.__name__, _of(machine, kind))
    cuda.Memory, cuda.MemoryPointer = _of(machine, SimulatedMemory), MemoryPointer
    _start(machine, cuda)
    _memory_functions(machine, cuda)
    cuda.runtime = SimpleNamespace(
        **_copies(machine), **_devices(machine), **COPY_KINDS, CUDARuntimeError=CUDARuntimeError
    )
    cuda.driver = SimpleNamespace(CUDADriverError=CUDADriverError)
    cuda.compiler = SimpleNamespace(CompileException=CompileException)
    cuda.get_elapsed_time = get_elapsed_time
    cuda.nccl = make_nccl(machine)
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
    machine.allocator = cuda.MemoryPool().malloc

    @contextmanager
    def using_allocator(allocator: Any = None) -> Iterator[None]:
        before, machine.allocator = machine.allocator, allocator
        try:
            yield
        finally:
            machine.allocator = before

    def set_pinned_memory_allocator(allocator: Any = None) -> None:
        machine.pinned_allocator = partial(pinned, machine) if allocator is None else allocator

    cuda.using_allocator = using_allocator
    set_pinned_memory_allocator()
    cuda.set_pinned_memory_allocator = set_pinned_memory_allocator
    cuda.alloc_pinned_memory = lambda size: machine.pinned_allocator(size)
    cuda.PinnedMemoryPool = lambda: SimpleNamespace(malloc=partial(pinned, machine))


def _copies(machine: Machine) -> dict[str, Any]:
    """Functions of CUDA's runtime that copy and set bytes, by address."""

    def memcpyAsync(dst: int, src: int, size: int, kind: int, stream: int) -> None:
        machine.memcpy(dst, src, size, kind, machine.stream(stream))

    def memcpyPeerAsync(dst: int, dstDevice: int, src: int, srcDevice: int, size: int, stream: int) -> None:
        for address, device in ((dst, dstDevice), (src, srcDevice)):
            memory = machine.checker.at(address)
            if memory is None or memory.device != device:
                raise CUDARuntimeError(f"cudaErrorInvalidValue: {address:#x} does not lie on device {device}")
        machine.memcpy(dst, src, size, COPY_KINDS["memcpyDefault"], machine.stream(stream), "memcpyPeerAsync")

    def memsetAsync(ptr: int, value: int, size: int, stream: int) -> None:
        memset(machine, ptr, value, size, machine.stream(stream))

    return {function.__name__: function for function in (memcpyAsync, memcpyPeerAsync, memsetAsync)}


def _devices(machine: Machine) -> dict[str, Any]:
    """Functions of CUDA's runtime about devices, by number."""

    def getDeviceCount() -> int:
        if not machine.device_count:
            raise CUDARuntimeError("cudaErrorNoDevice: no CUDA-capable device is detected")
        return machine.device_count

    def getDeviceProperties(device: int) -> dict[str, Any]:
        return {"name": b"simulated device", "totalGlobalMem": MEMORY_NBYTES}

    def memGetInfo() -> tuple[int, int]:
        return MEMORY_NBYTES, MEMORY_NBYTES

    def deviceCanAccessPeer(device: int, peerDevice: int) -> int:
        return int(machine.may_be_peers and device != peerDevice)

    def deviceEnablePeerAccess(peerDevice: int) -> None:
        if not deviceCanAccessPeer(machine.device, peerDevice):
            raise CUDARuntimeError("cudaErrorPeerAccessUnsupported: peer access is not supported between these devices")
        machine.checker.peers.add((machine.device, peerDevice))

    given = getDeviceCount, getDeviceProperties, memGetInfo, deviceCanAccessPeer, deviceEnablePeerAccess
    return {function.__name__: function for function in given}
