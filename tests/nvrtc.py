"""NVRTC through ctypes: CUDA C++ to machine code for any architecture, on machines without a GPU or a driver.

cuda-bindings wraps the same ten functions, but takes 31 MB, most of it for the driver and the runtime.
"""

from __future__ import annotations

import ctypes
import re
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from msgspec import Struct

from tapestry_exec.simulated.shim import CompileError

SUCCESS = 0
"""The value of nvrtcResult where a call went well."""
MAJORS = 13, 12
"""Majors of the library that are looked for, the newest first."""


class Usage(Struct, frozen=True):
    """What one entry takes of a multiprocessor.

    Parameters
    ----------
    registers : int
        Of each thread.
    spill_nbytes : int
        Bytes of registers that are stored to memory, for each thread.
    stack_nbytes : int
        Bytes of local memory, for each thread.
    shared_nbytes : int
        Bytes of static shared memory, for each block.
    """

    registers: int
    spill_nbytes: int
    stack_nbytes: int
    shared_nbytes: int


class Compiled(Struct, frozen=True):
    """Machine code of a source.

    Parameters
    ----------
    cubin : bytes
    ptx : str
        The portable assembly that it is made of.
    usage : mapping of str to Usage
        By entry.
    """

    cubin: bytes
    ptx: str
    usage: Mapping[str, Usage]


def compile_cubin(source: str, arch: str, options: Sequence[str] = (), name: str = "kernels.cu") -> Compiled:
    """Compile CUDA C++ to machine code.

    Parameters
    ----------
    source : str
    arch : str
        For instance "sm_90".
    options : sequence of str
        Of NVRTC.
    name : str
        What the source is called in the log.

    Returns
    -------
    Compiled

    Raises
    ------
    CompileError
        If it does not compile, or an option or the architecture is unknown.
    FileNotFoundError
        If no library is found.

    Examples
    --------
    >>> done = compile_cubin('extern "C" __global__ void one(int* x) { *x = 1; }', "sm_90")
    >>> done.cubin[:4], done.usage["one"].spill_nbytes
    (b'\\x7fELF', 0)

    References
    ----------
    NVIDIA, "NVRTC", https://docs.nvidia.com/cuda/nvrtc/.
    """
    lib = library()
    program = ctypes.c_void_p()
    _call(lib, "CreateProgram", ctypes.byref(program), source.encode(), name.encode(), 0, None, None)
    try:
        flags = [f"-arch={arch}", "--ptxas-options=-v", *options]
        array = (ctypes.c_char_p * len(flags))(*(flag.encode() for flag in flags))
        code = lib.nvrtcCompileProgram(program, len(flags), array)
        log = _words(lib, program, "ProgramLog")
        if code != SUCCESS:
            error = lib.nvrtcGetErrorString(code).decode()
            pattern = rf"^{re.escape(name)}\((\d+)\): error: ?(.*)"
            raise CompileError.from_log(f"{name} for {arch}", log, pattern, f"{error}: ")
        return Compiled(_bytes(lib, program, "CUBIN"), _words(lib, program, "PTX"), usage_of(log))
    finally:
        lib.nvrtcDestroyProgram(ctypes.byref(program))


def usage_of(log: str) -> Mapping[str, Usage]:
    """Usage by entry, from what ptxas says under ``-v``.

    Examples
    --------
    >>> usage_of('''ptxas info    : Compiling entry function 'f' for 'sm_90'
    ... ptxas info    : Function properties for f
    ...     8 bytes stack frame, 4 bytes spill stores, 4 bytes spill loads
    ... ptxas info    : Used 24 registers, used 1 barriers, 1024 bytes smem''')["f"]
    Usage(registers=24, spill_nbytes=4, stack_nbytes=8, shared_nbytes=1024)
    """
    found = {}
    for part in re.split(r"Compiling entry function ", log)[1:]:
        entry = re.match(r"'(.+?)'", part)
        stack = re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores", part)
        used = re.search(r"Used (\d+) registers(.*)", part)
        if entry is None or stack is None or used is None:
            raise ValueError(f"ptxas's words are not understood: {part[:300]!r}")
        shared = re.search(r"(\d+) bytes smem", used[2])
        found[entry[1]] = Usage(int(used[1]), int(stack[2]), int(stack[1]), int(shared[1]) if shared else 0)
    return MappingProxyType(found)


def _call(lib: ctypes.CDLL, what: str, *args: Any) -> None:
    code = getattr(lib, f"nvrtc{what}")(*args)
    if code != SUCCESS:
        raise RuntimeError(f"nvrtc{what}: {lib.nvrtcGetErrorString(code).decode()}")


def _bytes(lib: ctypes.CDLL, program: ctypes.c_void_p, what: str) -> bytes:
    size = ctypes.c_size_t()
    _call(lib, f"Get{what}Size", program, ctypes.byref(size))
    buffer = ctypes.create_string_buffer(size.value)
    _call(lib, f"Get{what}", program, buffer)
    return buffer.raw


def _words(lib: ctypes.CDLL, program: ctypes.c_void_p, what: str) -> str:
    return _bytes(lib, program, what).rstrip(b"\0").decode(errors="replace")


@cache
def library() -> ctypes.CDLL:
    """The library, from the wheel ``nvidia-cuda-nvrtc`` or a CUDA toolkit; FileNotFoundError where there is none."""
    tried = []
    for candidate in [*_of_wheels(), *(f"libnvrtc.so.{major}" for major in MAJORS)]:
        try:
            lib = ctypes.CDLL(candidate)
            for beside in Path(candidate).parent.glob("libnvrtc-builtins.so.*") if "/" in candidate else ():
                ctypes.CDLL(str(beside))  # which it opens by its name alone
        except OSError as error:
            tried.append(f"{candidate}: {error}")
            continue
        lib.nvrtcGetErrorString.restype = ctypes.c_char_p
        return lib
    raise FileNotFoundError(
        "NVRTC, the CUDA compiler library, is not found; pip install 'nvidia-cuda-nvrtc>=13' (Linux), or put a CUDA "
        "toolkit's lib64 on LD_LIBRARY_PATH. Tried " + "; ".join(tried)
    )


def _of_wheels() -> list[str]:
    """Libraries in the namespace package ``nvidia``, the newest major first."""
    roots = [Path(entry) / "nvidia" for entry in sys.path if entry]
    found = []
    for major in MAJORS:
        for root in roots:
            found += sorted(str(path) for path in root.glob(f"*/lib/libnvrtc.so.{major}"))
    return found
