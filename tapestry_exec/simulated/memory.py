"""Devices that are simulated, and memory on them: allocations, pools, pointers, and pinned memory of the host."""

from __future__ import annotations

import ctypes
from typing import Any, ClassVar

from msgspec.structs import replace

from tapestry_exec.simulated.machine import CUDARuntimeError, Machine, Queue, Work
from tapestry_exec.simulated.ordering import Memory
from tapestry_exec.simulated.tuning import ALIGNMENT_NBYTES


class Device:
    """A simulated device."""

    machine: ClassVar[Machine]

    def __init__(self, device: int | None = None) -> None:
        self.id = self.machine.device if device is None else int(device)
        if not 0 <= self.id < self.machine.device_count:
            raise CUDARuntimeError(f"cudaErrorInvalidDevice: there is no device {self.id}")
        self._before: list[int] = []

    def __enter__(self) -> Device:
        self._before.append(self.machine.device)
        self.machine.device = self.id
        return self

    def __exit__(self, *args: Any) -> None:
        self.machine.device = self._before.pop()

    @property
    def pci_bus_id(self) -> str:
        """The number of its place in the machine, as the driver writes it."""
        return f"0000:{self.id + 1:02X}:00.0"

    def use(self) -> None:
        """Make it the current device."""
        self.machine.device = self.id

    def synchronize(self) -> None:
        """The host waits until everything in all of its streams is done."""
        for stream in [*self.machine.streams.values(), self.machine.nulls[self.id]]:
            if stream.device_id == self.id:
                self.machine.wait_for_host("synchronize", stream)


class SimulatedMemory:
    """Memory of the current device, freed with this object."""

    machine: ClassVar[Machine]

    def __init__(self, size: int) -> None:
        self.size, self.device_id = size, self.machine.device
        name = f"memory {len(self.machine.checker.blocks)} of device {self.device_id}"
        self._memory = self.machine.take(size, name, self.device_id) if size else None
        self.ptr = 0 if self._memory is None else self._memory.start

    def __del__(self) -> None:
        if self._memory is not None:
            self.machine.free(self._memory)


class PooledMemory:
    """Memory of a pool, to which it goes back with this object."""

    def __init__(self, memory: Memory, device_id: int, kept: list[Memory]) -> None:
        self._memory, self._kept = memory, kept
        self.ptr, self.size, self.device_id = memory.start, memory.nbytes, device_id

    def __del__(self) -> None:
        self._memory.is_live, self._memory.in_pool = False, True
        self._kept.append(self._memory)


class MemoryPointer:
    """A place in memory of a device."""

    def __init__(self, mem: SimulatedMemory | PooledMemory, offset: int) -> None:
        self.mem, self.ptr = mem, mem.ptr + offset
        self.device_id = mem.device_id

    def __add__(self, offset: int) -> MemoryPointer:
        return MemoryPointer(self.mem, self.ptr - self.mem.ptr + offset)


class MemoryPool:
    """Memory that is kept when it is freed, and handed out again to the stream that it was allocated on."""

    machine: ClassVar[Machine]

    def __init__(self, allocator: Any = None) -> None:
        self._kept: dict[tuple[int, int], list[Memory]] = {}

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
            name = f"pool memory {len(machine.checker.blocks)} of device {key[0]}"
            found = machine.take(wanted, name, key[0])
        else:
            kept.remove(found)
        found.is_live, found.in_pool = True, False
        found.tenure += 1
        if found.written is not None:
            found.written[:] = False
        return MemoryPointer(PooledMemory(found, key[0], kept), 0)


def pinned(machine: Machine, size: int) -> Any:
    """Memory of the host that copies reach while the host goes on; it has the buffer protocol and `ptr`."""
    memory = machine.take(max(size, 1), f"pinned memory {len(machine.checker.blocks)}", None)
    kind: Any = ctypes.c_uint8 * memory.nbytes

    class PinnedMemoryPointer(kind):  # type: ignore[misc]
        ptr = memory.start
        mem = memory

    return PinnedMemoryPointer.from_address(memory.start)


def memset(machine: Machine, ptr: int, value: int, size: int, stream: Queue) -> None:
    """Set bytes of a device in a stream; a whole buffer's to other than 0 as poison, if nothing was written there."""
    if not size:
        return
    span = replace(machine.checker.span(ptr, size, "memset"), is_poison=value & 0xFF != 0)

    def run() -> None:
        span.of(span.memory.data)[...] = value & 0xFF

    machine.put(stream, Work("memset", stream.device_id, [], [span], run))
