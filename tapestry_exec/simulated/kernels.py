"""Raw kernels on simulated devices: the CPU shim runs them on the devices' memory and reports the bytes touched.

A kernel may touch the buffers and the blocks of memory that its arguments point into, structs by value included, each
as a whole; beside them its own stack and shared memory. Anything else ends the launch before the access is made.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import threading
from collections.abc import Sequence
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from tapestry_exec.cuda import Launch
from tapestry_exec.run import OrderingFault
from tapestry_exec.simulated import shim
from tapestry_exec.simulated.arrays import DeviceArray
from tapestry_exec.simulated.machine import CUDADriverError, Machine, Work
from tapestry_exec.simulated.memory import MemoryPointer
from tapestry_exec.simulated.ordering import Access, Memory
from tapestry_sets.limits import quote

TRACED = files("tapestry_exec.simulated").joinpath("traced.h")
TRACING = (
    *("-fsanitize=thread", "-nodefaultlibs", "-Wl,--wrap=memcpy,--wrap=memmove,--wrap=memset"),
    *("-fno-builtin-memcpy", "-fno-builtin-memmove", "-fno-builtin-memset"),
    *("-Wl,--no-as-needed", "-lstdc++", "-lm", "-lc", "-lgcc_s"),
)
"""Options of g++ that let it report each load and store to the functions of traced.h, and to no library."""
TURN = threading.Lock()
"""Held while a kernel runs: what it may touch is said to its library, of which there is one in the process."""
Place = tuple[Memory, int, int]
"""Bytes of a block of memory: the first and the one behind the last."""


class CompileException(Exception):
    """A source that does not compile, with what the compiler said."""


class TracedBlock(ctypes.Structure):
    """As in traced.h."""

    _fields_: ClassVar = [
        ("start", ctypes.c_uint64),
        ("nbytes", ctypes.c_uint64),
        ("touched", ctypes.c_void_p * 2),
        ("low", ctypes.c_uint64 * 2),
        ("high", ctypes.c_uint64 * 2),
    ]


class TracedStray(ctypes.Structure):
    """As in traced.h."""

    _fields_: ClassVar = [
        ("address", ctypes.c_uint64),
        ("nbytes", ctypes.c_uint64),
        ("is_write", ctypes.c_uint32),
        ("where", ctypes.c_uint32 * 4),
    ]


class KernelWork(Work):
    """A launch of a raw kernel; what it touches is seen while it runs."""

    def __init__(self, machine: Machine, module: shim.Module, launch: Launch, seed: int) -> None:
        super().__init__(f"kernel {launch.entry}", machine.device, [], [], lambda: None, is_kernel=True)
        self._machine, self._module, self._launch, self._seed = machine, module, launch, seed

    def memories(self) -> list[Memory]:
        """Where its arguments that are addresses lie."""
        return list({id(memory): memory for memory, _, _ in self._places()}.values())

    def traced(self) -> tuple[list[Access], list[Access]]:
        """Run it, and tell which bytes it read and wrote.

        Raises
        ------
        OrderingFault
            When it is about to touch others than its arguments lead to.
        """
        places = self._places()
        table = (TracedBlock * max(len(places), 1))()
        for row, (memory, start, stop) in zip(table, places, strict=False):
            row.start, row.nbytes = memory.start + start, stop - start
            for k in range(2):
                row.touched[k], row.low[k], row.high[k] = memory.touched[k].ctypes.data + start, stop - start, 0
        try:
            self._run(table, places)
        except BaseException:
            for memory, start, stop in places:
                for one in memory.touched:
                    one[start:stop] = False
            raise
        found: tuple[list[Access], list[Access]] = [], []
        for row, (memory, start, _) in zip(table, places, strict=False):
            for k in range(2):
                low, high = start + row.low[k], start + row.high[k]
                if low < high:
                    bits = memory.touched[k][low:high]
                    found[k].append(Access(memory, low, (high - low,), (1,), bits.copy()))
                    bits[:] = False
        return found

    def _places(self) -> list[Place]:
        """What its arguments point into, by every number in them that is an address."""
        checker = self._machine.checker
        numbers: list[int] = []
        for arg in self._launch.args:
            raw = np.asarray(arg).tobytes()
            numbers += np.frombuffer(raw, np.uint64, len(raw) // 8).tolist()
        low = min((block.start for block in checker.blocks), default=0)
        high = max((block.stop for block in checker.blocks), default=0)
        found = [checker.place(number) for number in dict.fromkeys(numbers) if low <= number < high]
        return list({(id(one[0]), *one[1:]): one for one in found if one is not None}.values())

    def _run(self, table: Any, places: Sequence[Place]) -> None:
        """Run it to its end, or until it strays."""
        library, stray = ctypes.CDLL(str(self._module.path)), TracedStray()
        with TURN:
            library.traced_blocks(table, ctypes.c_size_t(len(places)))
            try:
                self._module.launch(self._launch, self._seed)
            except shim.DivergentBarrier:
                library.traced_stray(ctypes.byref(stray))
                if not stray.nbytes:
                    raise
            finally:
                library.traced_blocks(None, ctypes.c_size_t(0))
        if stray.nbytes:
            raise OrderingFault(self._strayed(stray, places))

    def _strayed(self, stray: TracedStray, places: Sequence[Place]) -> str:
        """What is said of an access beside everything that the arguments point into."""

        def is_in(address: int) -> bool:
            return any(start <= address - memory.start < stop for memory, start, stop in places)

        first = next(n for n in range(stray.address, stray.address + stray.nbytes + 1) if not is_in(n))
        thread, *block = stray.where
        where = self._machine.checker.whereabouts(first)
        return (
            f"kernel {self._launch.entry}: thread {thread} of block {tuple(block)} "
            f"{'writes' if stray.is_write else 'reads'} {where}; no argument of the launch points there: keep the "
            "kernel's indices in bounds, or give it the array"
        )


class RawModule:
    """CUDA C++ that is compiled by the CPU shim; its kernels report what they touch."""

    machine: ClassVar[Machine]

    def __init__(self, code: str | None = None, *, options: tuple[str, ...] = ()) -> None:
        if code is None:
            raise TypeError("RawModule: give code; a path to a binary is not simulated")
        self.code, self.options = code, tuple(options)

    @cached_property
    def _module(self) -> shim.Module:
        header = str(_header_of(TRACED.read_text(encoding="utf-8")))
        defines = [option for option in self.options if option.startswith("-D")]
        try:
            return shim.compile_source(self.code, options=(*TRACING, "-include", header, *defines))
        except shim.CompileError as error:
            raise CompileException(error.log) from error

    def compile(self, log_stream: Any = None) -> None:
        """Compile it now; `CompileException` has the log."""
        _ = self._module  # compiled where it is asked for first

    def get_function(self, name: str) -> SimulatedKernel:
        """A kernel by its name; CUDADriverError when there is none, or not ``extern "C"``."""
        if name not in self._module.entries or not hasattr(ctypes.CDLL(str(self._module.path)), name):
            raise CUDADriverError(f"CUDA_ERROR_NOT_FOUND: named symbol not found: {name}")
        return SimulatedKernel(self.machine, self._module, name)


def _header_of(text: str) -> Path:
    """A file that holds a header, under a name that says what is in it, for whoever compiles it next."""
    header = shim.cache_folder() / f"traced-{hashlib.sha256(text.encode()).hexdigest()[:16]}.h"
    if not header.exists():
        made = header.with_suffix(f".{os.getpid()}.{threading.get_ident()}")
        made.write_text(text, encoding="utf-8")
        made.replace(header)
    return header


class SimulatedKernel:
    """A kernel of a module."""

    def __init__(self, machine: Machine, module: shim.Module, name: str) -> None:
        self._machine, self._module, self.name = machine, module, name

    def __call__(
        self, grid: tuple[int, ...], block: tuple[int, ...], args: Sequence[Any], *, shared_mem: int = 0
    ) -> None:
        """Launch it on the current stream."""
        machine = self._machine
        stream = machine.stream_here()
        launch = Launch(self.name, _three(grid), _three(block), tuple(map(_argument, args)), shared_mem)
        machine.put(stream, KernelWork(machine, self._module, launch, machine.random.getrandbits(32)))


def _three(extents: Sequence[int]) -> tuple[int, int, int]:
    x, y, z = (*extents, 1, 1)[:3]
    return int(x), int(y), int(z)


def _argument(value: Any) -> Any:
    """An argument as the kernel gets it: arrays as the address of their first cell."""
    if isinstance(value, DeviceArray):
        value = value.data
    if isinstance(value, MemoryPointer):
        return np.uint64(value.ptr)
    if isinstance(value, np.ndarray) and value.size != 1:
        raise TypeError(f"You are trying to pass a numpy.ndarray of shape {quote(value.shape)} as a kernel parameter")
    return value.copy() if isinstance(value, np.ndarray) else value
