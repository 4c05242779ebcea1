"""Raw kernels on simulated devices: the CPU shim runs them on the devices' memory and reports what they touch."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, ClassVar

import numpy as np

from tapestry_exec import shim
from tapestry_exec.ordering import Access, Memory
from tapestry_exec.simulated_arrays import DeviceArray
from tapestry_exec.simulated_machine import CUDARuntimeError, Machine, Work
from tapestry_exec.simulated_memory import MemoryPointer

TRACED = files("tapestry_exec").joinpath("traced.h")
TRACING = ("-fsanitize=thread", "-nodefaultlibs", "-Wl,--no-as-needed", "-lstdc++", "-lm", "-lc", "-lgcc_s")
"""Options of g++ that let it report each load and store to the functions of traced.h, and to no library."""


class CompileException(Exception):
    """A source that does not compile."""

    def __init__(self, msg: str, source: str, name: str, options: Sequence[str], backend: str = "nvrtc") -> None:
        super().__init__(msg)
        self._msg, self.source, self.name, self.options, self.backend = msg, source, name, options, backend

    def __str__(self) -> str:
        return self.get_message()

    def get_message(self) -> str:
        """What the compiler said."""
        return self._msg


class TracedBlock(ctypes.Structure):
    """As in traced.h."""

    _fields_: ClassVar = [
        ("start", ctypes.c_uint64),
        ("nbytes", ctypes.c_uint64),
        ("touched", ctypes.c_void_p * 2),
        ("low", ctypes.c_uint64 * 2),
        ("high", ctypes.c_uint64 * 2),
    ]


@dataclass(frozen=True, slots=True)
class KernelLaunch:
    """A launch as the shim takes it."""

    entry: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    args: tuple[Any, ...]
    shared_nbytes: int


class KernelWork(Work):
    """A launch of a raw kernel; what it touches is seen while it runs."""

    def __init__(self, machine: Machine, module: shim.Module, launch: KernelLaunch, seed: int) -> None:
        super().__init__(f"kernel {launch.entry}", machine.device, [], [], lambda: None)
        self._machine, self._module, self._launch, self._seed = machine, module, launch, seed

    def memories(self) -> list[Memory]:
        """Where its arguments that are addresses lie."""
        numbers = [int(arg) for arg in self._launch.args if isinstance(arg, np.uint64)]
        return [memory for memory in map(self._machine.checker.at, numbers) if memory is not None]

    def traced(self) -> tuple[list[Access], list[Access]]:
        """Run it, and tell which bytes it read and wrote."""
        memories = list(self._machine.checker.blocks)
        maps = [memory.touched for memory in memories]
        table = (TracedBlock * max(len(memories), 1))()
        for row, memory, pair in zip(table, memories, maps, strict=False):
            row.start, row.nbytes = memory.start, memory.nbytes
            for k in range(2):
                row.touched[k], row.low[k], row.high[k] = pair[k].ctypes.data, memory.nbytes, 0
        library = ctypes.CDLL(str(self._module.path))
        library.traced_blocks(table, ctypes.c_size_t(len(memories)))
        try:
            self._module.launch(self._launch, self._seed)
        except BaseException:
            for one in (one for pair in maps for one in pair):
                one[:] = False
            raise
        finally:
            library.traced_blocks(None, ctypes.c_size_t(0))
        found: tuple[list[Access], list[Access]] = [], []
        for row, memory, pair in zip(table, memories, maps, strict=False):
            for k in range(2):
                low, high = row.low[k], row.high[k]
                if low < high:
                    found[k].append(Access(memory, low, (high - low,), (1,), pair[k][low:high].copy()))
                    pair[k][low:high] = False
        return found


class RawModule:
    """CUDA C++ that is compiled by the CPU shim; its kernels report what they touch."""

    machine: ClassVar[Machine]

    def __init__(
        self,
        code: str | None = None,
        *,
        path: str | None = None,
        options: tuple[str, ...] = (),
        backend: str = "nvrtc",
        translate_cucomplex: bool = False,
        enable_cooperative_groups: bool = False,
        name_expressions: Any = None,
        jitify: bool | None = None,
    ) -> None:
        if code is None or path is not None:
            raise TypeError("RawModule: give code; a path to a binary is not simulated")
        self.code, self.options = code, tuple(options)
        self._module: shim.Module | None = None

    def compile(self, log_stream: Any = None) -> None:
        """Compile it now; `CompileException` has the log."""
        if self._module is None:
            text = TRACED.read_text(encoding="utf-8")
            defines = [option for option in self.options if option.startswith("-D")]
            folder = shim.cache_folder()
            header = folder / f"traced-{abs(hash(text)) & 0xFFFFFFFF:08x}.h"
            if not header.exists():
                header.write_text(text, encoding="utf-8")
            try:
                self._module = shim.compile_source(self.code, options=(*TRACING, "-include", str(header), *defines))
            except shim.ShimError as error:
                raise CompileException(error.log, self.code, "kernels.cu", self.options) from error

    def get_function(self, name: str) -> RawKernel:
        """A kernel by its name; CUDARuntimeError when there is none."""
        self.compile()
        assert self._module is not None, "compiled above"
        if name not in self._module.entries:
            raise CUDARuntimeError(f"CUDA_ERROR_NOT_FOUND: named symbol not found: {name}")
        return RawKernel(self.machine, self._module, name)


class RawKernel:
    """A kernel of a module."""

    def __init__(self, machine: Machine, module: shim.Module, name: str) -> None:
        self._machine, self._module, self.name = machine, module, name

    def __call__(self, grid: tuple[int, ...], block: tuple[int, ...], args: Sequence[Any], **kwargs: Any) -> None:
        """Launch it on the current stream; `shared_mem` is the only keyword."""
        shared = kwargs.pop("shared_mem", 0)
        if kwargs:
            raise TypeError(f"unexpected keywords {list(kwargs)}; the stream is the current one")
        machine = self._machine
        stream = machine.stream()
        if stream.device_id != machine.device:
            raise RuntimeError(f"the current device is {machine.device}, {stream.agent} belongs to another one")
        launch = KernelLaunch(self.name, _three(grid), _three(block), tuple(map(_argument, args)), shared)
        machine.put(stream, KernelWork(machine, self._module, launch, machine.random.getrandbits(32)))


def _three(extents: Sequence[int]) -> tuple[int, int, int]:
    x, y, z = (*extents, 1, 1)[:3]
    return int(x), int(y), int(z)


def _argument(value: Any) -> Any:
    """An argument as the kernel gets it: arrays as the address of their first cell."""
    if isinstance(value, DeviceArray | MemoryPointer):
        return np.uint64(value.data.ptr if isinstance(value, DeviceArray) else value.ptr)
    if isinstance(value, np.ndarray) and value.size != 1:
        raise TypeError(f"You are trying to pass a numpy.ndarray of shape {value.shape} as a kernel parameter")
    return np.array(value) if isinstance(value, np.ndarray) else value
