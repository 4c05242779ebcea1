"""Devices that are simulated, and memory on them: allocations, pools, pointers, and pinned memory of the host."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from typing import Any, ClassVar

from tapestry_exec.simulated.machine import ALIGNMENT_NBYTES, MEMORY_NBYTES, CUDARuntimeError, Machine, Queue, Work
from tapestry_exec.simulated.ordering import Memory


class Device:
    """A simulated device."""

    machine: ClassVar[Machine]

    def __init__(self, device: int | None = None) -> None:
        self.id = self.machine.device if device is None else int(device)
        if not 0 <= self.id < self.machine.device_count:
            raise CUDARuntimeError(f"cudaErrorInvalidDevice: there is no device {self.id}")
        self._before: list[int] = []

    def __repr__(self) -> str:
        return f"<CUDA Device {self.id}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Device) and other.id == self.id

    def __hash__(self) -> int:
        return self.id

    def __int__(self) -> int:
        return self.id

    def __enter__(self) -> Device:
        self._before.append(self.machine.device)
        self.machine.device = self.id
        return self

    def __exit__(self, *args: Any) -> None:
        self.machine.device = self._before.pop()

    def use(self) -> None:
        """Make it the current device."""
        self.machine.device = self.id

    def synchronize(self) -> None:
        """The host waits until everything in all of its streams is done."""
        for stream in [*self.machine.streams.values(), self.machine.nulls[self.id]]:
            if stream.device_id == self.id:
                self.machine.wait_for_host("synchronize", stream)

    @property
    def mem_info(self) -> tuple[int, int]:
        """Free and total memory in bytes."""
        return MEMORY_NBYTES, MEMORY_NBYTES

    @property
    def compute_capability(self) -> str:
        """As 90 for 9.0."""
        return "90"


class BaseMemory:
    """Bytes on a device."""

    machine: ClassVar[Machine]
    ptr: int
    size: int
    device_id: int

    @property
    def device(self) -> Any:
        return self.machine.cuda.Device(self.device_id)


class SimulatedMemory(BaseMemory):
    """Memory of the current device, freed with this object."""

    def __init__(self, size: int) -> None:
        self.size, self.device_id = size, self.machine.device
        name = f"memory {len(self.machine.checker.blocks)} of device {self.device_id}"
        self._memory = self.machine.take(size, name, self.device_id) if size else None
        self.ptr = 0 if self._memory is None else self._memory.start

    def __del__(self) -> None:
        if self._memory is not None:
            self.machine.free(self._memory)


class UnownedMemory(BaseMemory):
    """Memory that somebody else owns."""

    def __init__(self, ptr: int, size: int, owner: Any, device_id: int = -1) -> None:
        self.ptr, self.size, self._owner = ptr, size, owner
        found = self.machine.checker.at(ptr)
        if found is None or found.device is None:
            raise CUDARuntimeError(f"cudaErrorInvalidValue: {ptr:#x} is no address of a device")
        self.device_id = found.device if device_id < 0 else device_id


class PooledMemory(BaseMemory):
    """Memory of a pool, to which it goes back with this object."""

    def __init__(self, pool: MemoryPool, memory: Memory, key: tuple[int, int]) -> None:
        self._pool, self._memory, self._key = pool, memory, key
        self.ptr, self.size, self.device_id = memory.start, memory.nbytes, key[0]

    def __del__(self) -> None:
        self._pool._back(self._memory, self._key)


class MemoryPointer:
    """A place in memory of a device."""

    def __init__(self, mem: BaseMemory, offset: int) -> None:
        self.mem, self.ptr = mem, mem.ptr + offset
        self.device_id = mem.device_id

    @property
    def device(self) -> Any:
        return self.mem.device

    def __int__(self) -> int:
        return self.ptr

    def __add__(self, offset: int) -> MemoryPointer:
        return MemoryPointer(self.mem, self.ptr - self.mem.ptr + offset)

    __radd__ = __add__

    def __sub__(self, offset: int) -> MemoryPointer:
        return self + -offset

    def copy_from_device_async(self, src: MemoryPointer, size: int, stream: Any = None) -> None:
        """Copy bytes of a device here."""
        machine = self.mem.machine
        machine.memcpy(self.ptr, src.ptr, size, 3, machine.stream(stream), "copy_from_device_async")

    def memset_async(self, value: int, size: int, stream: Any = None) -> None:
        """Set bytes."""
        machine = self.mem.machine
        memset(machine, self.ptr, value, size, machine.stream(stream))


class MemoryPool:
    """Memory that is kept when it is freed, and handed out again to the stream that it was allocated on."""

    machine: ClassVar[Machine]

    def __init__(self, allocator: Any = None) -> None:
        self._kept: dict[tuple[int, int], list[Memory]] = {}
        self._used = 0
        self._limit = 0

    def malloc(self, size: int) -> MemoryPointer:
        """Memory of the current device, for the current stream."""
        machine = self.machine
        key = machine.device, machine.stream().ptr
        if not size:
            return MemoryPointer(machine.cuda.Memory(0), 0)
        wanted = -(-size // ALIGNMENT_NBYTES) * ALIGNMENT_NBYTES
        kept = self._kept.setdefault(key, [])
        found = next((memory for memory in reversed(kept) if memory.nbytes >= wanted), None)
        if found is None:
            if self._limit and self.total_bytes() + wanted > self._limit:
                raise MemoryError(f"the pool may hold {self._limit:,} B; {wanted:,} B more are asked for")
            name = f"pool memory {len(machine.checker.blocks)} of device {key[0]}"
            found = machine.take(wanted, name, key[0])
        else:
            kept.remove(found)
        found.is_live, found.in_pool = True, False
        found.tenure += 1
        if found.written is not None:
            found.written[:] = False
        self._used += found.nbytes
        return MemoryPointer(machine.pooled(self, found, key), 0)

    def _back(self, memory: Memory, key: tuple[int, int]) -> None:
        memory.is_live, memory.in_pool = False, True
        self._kept.setdefault(key, []).append(memory)
        self._used -= memory.nbytes

    def free_all_blocks(self, stream: Any = None) -> None:
        """Give back what nobody uses."""
        for kept in self._kept.values():
            for memory in kept:
                memory.tenure += 1
                memory.in_pool = False
                self.machine.free(memory)
            kept.clear()

    def used_bytes(self) -> int:
        return self._used

    def free_bytes(self) -> int:
        return sum(memory.nbytes for kept in self._kept.values() for memory in kept)

    def total_bytes(self) -> int:
        return self.used_bytes() + self.free_bytes()

    def n_free_blocks(self) -> int:
        return sum(map(len, self._kept.values()))

    def set_limit(self, size: int | None = None, fraction: float | None = None) -> None:
        self._limit = int(size or 0) if fraction is None else int(fraction * MEMORY_NBYTES)

    def get_limit(self) -> int:
        return self._limit


def pinned(machine: Machine, size: int) -> Any:
    """Memory of the host that copies reach while the host goes on; it has the buffer protocol, `ptr` and `size()`."""
    memory = machine.take(max(size, 1), f"pinned memory {len(machine.checker.blocks)}", None)
    kind: Any = ctypes.c_uint8 * memory.nbytes

    class PinnedMemoryPointer(kind):  # type: ignore[misc]
        ptr = memory.start
        mem = memory

        def size(self) -> int:
            return memory.nbytes

    return PinnedMemoryPointer.from_address(memory.start)


def memset(machine: Machine, ptr: int, value: int, size: int, stream: Queue) -> None:
    """Set bytes of a device in a stream; a whole buffer's to other than 0 as poison, if nothing was written there."""
    if not size:
        return
    span = replace(machine.checker.span(ptr, size, "memset"), is_poison=value & 0xFF != 0)

    def run() -> None:
        span.of(span.memory.data)[...] = value & 0xFF

    machine.put(stream, Work("memset", stream.device_id, [], [span], run))
