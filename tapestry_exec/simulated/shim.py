"""Raw CUDA kernels on a CPU: the same source, compiled by g++ with shim.h, run thread by thread.

It shows what a kernel computes, that no order of threads and blocks changes it, that no thread reads shared memory
that nobody wrote, that barriers do not diverge and, under the address sanitizer, that no access lies outside an
array. It shows nothing of speed, and nothing of warps, matrix units or inline PTX.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from tapestry_exec.cuda import Launch
from tapestry_exec.simulated.tuning import MAX_SHARED_NBYTES, MAX_THREADS, MESSAGE_NBYTES
from tapestry_sets.limits import quote

HEADER = files("tapestry_exec.simulated").joinpath("shim.h")
OPTIONS = (
    *("-std=c++17", "-O1", "-ffp-contract=off", "-fno-strict-aliasing", "-fwrapv", "-g1", "-w"),
    *("-fPIC", "-shared", "-Wl,-Bsymbolic"),  # a kernel may have the name of one of the C library's functions
)
"""Of g++: no fused multiply-add that the source does not ask for, and line numbers for the sanitizer."""
SANITIZE = ("-fsanitize=address", "-fno-omit-frame-pointer", "-fsanitize-sections=shim_shared")

_DYNAMIC = re.compile(
    r"extern\s+__shared__\s+((?:__align__\s*\(\s*\d+\s*\)\s*)?)([A-Za-z_][\w:\s<>]*?)\s*\b(\w+)\s*\[\s*\]\s*;"
)
_KERNEL = re.compile(r"__global__\b")


class CompileError(ValueError):
    """A source that a compiler, g++ or NVRTC, does not take.

    Attributes
    ----------
    log : str
        What the compiler said.
    line : int or None
        Of the first error, where it names one.
    """

    def __init__(self, message: str, log: str, line: int | None) -> None:
        super().__init__(message)
        self.log = log
        self.line = line

    @classmethod
    def from_log(cls, what: str, log: str, error: str, code: str = "") -> CompileError:
        """Tell of a log's first error, whose line and words a pattern finds; of the whole log where it finds none."""
        found = re.search(error, log, re.MULTILINE)
        if found is None:
            return cls(f"{what}: {code}{log.strip()}", log, None)
        return cls(f"{what}, line {found[1]}: {found[2]}\n{log.strip()}", log, int(found[1]))


class DivergentBarrier(RuntimeError):
    """A ``__syncthreads`` that not all threads of a block reach, or not all at one line."""


class Module:
    """Kernels of one source, compiled for this CPU.

    Parameters
    ----------
    path : path of the shared library
    entries : sequence of str
        Names of the kernels.
    """

    def __init__(self, path: Path, entries: Sequence[str]) -> None:
        self.path = path
        self.entries = tuple(entries)
        self._library = ctypes.CDLL(str(path))
        self._lock = threading.Lock()
        self._sizes: dict[str, tuple[int, ...]] = {}

    def sizes(self, entry: str) -> tuple[int, ...]:
        """Bytes of each parameter of a kernel; KeyError names the kernels there are."""
        if entry not in self._sizes:
            if entry not in self.entries:
                raise KeyError(
                    f"kernel {quote(entry)} is not in the source; it has {', '.join(self.entries) or 'none'}"
                )
            found = (ctypes.c_size_t * 256)()
            count = getattr(self._library, f"shim_sizes_{entry}")(found)
            self._sizes[entry] = tuple(found[:count])
        return self._sizes[entry]

    def launch(self, launch: Launch, seed: int = 0) -> None:
        """Run a kernel to its end.

        Parameters
        ----------
        launch : Launch
            Addresses among its arguments are of this process.
        seed : int
            Of the order of blocks and threads.

        Raises
        ------
        KeyError
            If there is no such kernel.
        TypeError
            If an argument has another size than the kernel's parameter, or there are more or fewer.
        ValueError
            If the grid or the block is empty or too large.
        DivergentBarrier
            If threads of one block wait at different barriers, or some at none.
        """
        held = [_bytes_of(arg, launch.entry, k) for k, arg in enumerate(launch.args)]
        _check_arguments(launch.entry, self.sizes(launch.entry), [len(raw) for raw in held])
        _check_extents(launch)
        pointers = (ctypes.c_void_p * max(len(held), 1))(
            *(ctypes.cast(ctypes.c_char_p(raw), ctypes.c_void_p).value for raw in held)
        )
        message = ctypes.create_string_buffer(MESSAGE_NBYTES)
        extents = [(ctypes.c_uint * 3)(*given) for given in (launch.grid, launch.block)]
        run = getattr(self._library, f"shim_launch_{launch.entry}")
        with self._lock:
            code = run(*extents, pointers, ctypes.c_uint64(seed), message, ctypes.c_size_t(MESSAGE_NBYTES))
        if code:
            raise DivergentBarrier(f"kernel {launch.entry}: {message.value.decode()}")


def _bytes_of(arg: Any, entry: str, k: int) -> bytes:
    """The bytes that a launch passes for an argument, as CuPy does."""
    if isinstance(arg, np.ndarray) and arg.size != 1:
        raise TypeError(
            f"kernel {entry}: argument {k} is an array of shape {quote(arg.shape)}; pass its address, "
            "np.uint64(array.ctypes.data), or an array of one element by value"
        )
    if isinstance(arg, np.ndarray | np.generic | bool | int | float):
        return np.asarray(arg).tobytes()
    raise TypeError(
        f"kernel {entry}: argument {k} is {type(arg).__name__}; pass a NumPy scalar or an array of one element"
    )


def _check_arguments(entry: str, wanted: Sequence[int], given: Sequence[int]) -> None:
    if len(wanted) != len(given):
        raise TypeError(f"kernel {entry} takes {len(wanted)} arguments, not {len(given)}")
    for k, (want, have) in enumerate(zip(wanted, given, strict=True)):
        if want != have:
            raise TypeError(
                f"kernel {entry}: argument {k} has {have} bytes, the kernel's parameter {want}; give it the "
                "parameter's dtype, a struct with align=True"
            )


def _check_extents(launch: Launch) -> None:
    for what, extents in (("grid", launch.grid), ("block", launch.block)):
        if len(extents) != 3 or any(n < 1 for n in extents):
            raise ValueError(f"kernel {launch.entry}: {what} {quote(extents)} must have three extents of at least 1")
    threads = prod(launch.block)
    if threads > MAX_THREADS:
        raise ValueError(f"kernel {launch.entry}: block {launch.block} has {threads} threads, more than {MAX_THREADS}")
    if launch.shared_nbytes > MAX_SHARED_NBYTES:
        raise ValueError(
            f"kernel {launch.entry}: {launch.shared_nbytes} bytes of shared memory are more than {MAX_SHARED_NBYTES}"
        )


# ------------------------------------------------------------------------------------------------ compiling


def compile_source(
    source: str, *, name: str = "kernels.cu", options: Sequence[str] = (), sanitize: bool = False
) -> Module:
    """Compile CUDA C++ for this CPU; a cache keeps compiled libraries.

    Parameters
    ----------
    source : str
        Kernels at file scope, not templates; shared memory in them, not in templates.
    name : str
        What the source is called in messages.
    options : sequence of str
        Further ones of g++, ``-DNAME`` for instance.
    sanitize : bool
        With the address sanitizer; the process must have been started in `sanitized_environment`.

    Returns
    -------
    Module

    Raises
    ------
    FileNotFoundError
        If there is no g++.
    CompileError
        If the source does not compile.
    OSError
        If the sanitizer's library was not loaded when the process began.

    Examples
    --------
    >>> module = compile_source('extern "C" __global__ void one(int* x) { x[threadIdx.x] = 1; }')
    >>> module.entries, module.sizes("one")
    (('one',), (8,))
    """
    flags = (*OPTIONS, *(SANITIZE if sanitize else ()), *options)
    header = HEADER.read_text(encoding="utf-8")
    key = hashlib.sha256("\0".join([_compiler_version(), header, source, name, *flags]).encode()).hexdigest()[:32]
    folder = cache_folder()
    library, names = folder / f"{key}.so", folder / f"{key}.names"
    if not names.exists():
        _build(source, name, flags, header, library, names)
    if sanitize and not is_sanitized():
        raise OSError("the address sanitizer is not loaded; start Python with shim.sanitized_environment()")
    return Module(library, names.read_text().split())


def _build(source: str, name: str, flags: Sequence[str], header: str, library: Path, names: Path) -> None:
    entries = kernels_of(source, name, flags)
    with tempfile.TemporaryDirectory(dir=library.parent) as place:
        (Path(place) / "shim.h").write_text(header, encoding="utf-8")
        text = Path(place) / "source.cpp"
        trailer = "\n".join(f"SHIM_ENTRY({entry})" for entry in entries)
        body = _with_dynamic_shared(source)
        text.write_text(
            f'#include "shim.h"\n#line 1 "{name}"\n{body}\n#line 1 "entries"\n{trailer}\n', encoding="utf-8"
        )
        built = Path(place) / "built.so"
        done = _gxx([*flags, "-I", place, str(text), "-o", str(built)])
        if done.returncode:
            raise _failure(name, done.stderr)
        listed = Path(place) / "names"
        listed.write_text(" ".join(entries))
        os.replace(built, library)
        os.replace(listed, names)  # last: who finds the names finds the library


def kernels_of(source: str, name: str = "kernels.cu", options: Sequence[str] = ()) -> tuple[str, ...]:
    """Names of the kernels that a source defines, macros expanded, without templates.

    Examples
    --------
    >>> kernels_of('#define K(n) extern "C" __global__ void __launch_bounds__(32) f##n(int* x) {}\\nK(1) K(2)')
    ('f1', 'f2')
    """
    defines = [option for option in options if option.startswith(("-D", "-U", "-I", "-std"))]
    done = _gxx([*defines, "-E", "-P", "-w", "-xc++", "-"], given=f'#line 1 "{name}"\n{source}')
    if done.returncode:
        raise _failure(name, done.stderr)
    text = re.sub(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'', '""', done.stdout)  # without literals
    found = [_declared(text, match.start(), match.end()) for match in _KERNEL.finditer(text)]
    return tuple(dict.fromkeys(entry for entry in found if entry))


def _declared(text: str, start: int, at: int) -> str | None:
    """The name that a declaration from ``__global__`` on defines: what is before the last parentheses at its top."""
    if text[:start].rstrip().endswith(">"):
        return None  # a template
    depth, name = 0, None
    for k in range(at, len(text)):
        char = text[k]
        if char == "(":
            if depth == 0:
                before = re.search(r"(\w+)\s*$", text[at:k])
                name = before[1] if before else None
            depth += 1
        elif char == ")":
            depth -= 1
        elif depth == 0 and char in "{;":
            return name if char == "{" else None
    return None


def _with_dynamic_shared(source: str) -> str:
    """``extern __shared__ T name[]`` as an array in the shared section, as long as a block's may be."""
    return _DYNAMIC.sub(
        rf"__shared__ __align__(16) unsigned char \3_shim[{MAX_SHARED_NBYTES}]; "
        r"\2* const \3 = reinterpret_cast<\2*>(\3_shim);",
        source,
    )


def _failure(name: str, log: str) -> CompileError:
    return CompileError.from_log(f"{name} by g++", log, rf"^{re.escape(name)}:(\d+):(?:\d+:)? (?:fatal )?error: (.*)")


def _gxx(arguments: Sequence[str], given: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run([compiler(), *arguments], input=given, capture_output=True, text=True, check=False)


def found_compiler() -> str | None:
    """Path of g++, or of what the environment's CXX names; None where there is none."""
    return shutil.which(os.environ.get("CXX", "g++"))


def compiler() -> str:
    """As `found_compiler`; FileNotFoundError where there is none."""
    found = found_compiler()
    if found is None:
        wanted = os.environ.get("CXX", "g++")
        raise FileNotFoundError(
            f"no C++ compiler {quote(wanted)} on PATH; install g++, or set CXX to one that takes its options"
        )
    return found


@cache
def _compiler_version() -> str:
    return _gxx(["--version"]).stdout


def cache_folder() -> Path:
    """Where compiled sources are kept, for this user alone; the environment's TAPESTRY_CACHE goes first."""
    given = os.environ.get("TAPESTRY_CACHE")
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folder = Path(given) if given else Path(home) / "tapestry" / "shim"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError:
        folder = Path(tempfile.gettempdir()) / f"tapestry-shim-{os.getuid()}"
        folder.mkdir(exist_ok=True, mode=0o700)
        if folder.stat().st_uid != os.getuid():
            raise PermissionError(f"{folder} is another user's; set TAPESTRY_CACHE to a folder of yours") from None
    return folder


# ------------------------------------------------------------------------------------------------ sanitizing


def sanitized_environment() -> Mapping[str, str]:
    """Environment variables for a process that runs kernels under the address sanitizer."""
    library = _gxx(["-print-file-name=libasan.so"]).stdout.strip()
    if not os.path.isabs(library):
        raise FileNotFoundError("g++ has no address sanitizer here; install its libasan")
    return {**os.environ, "LD_PRELOAD": library, "ASAN_OPTIONS": "detect_leaks=0:detect_stack_use_after_return=0"}


def is_sanitized() -> bool:
    """Whether this process was started in `sanitized_environment`."""
    return hasattr(ctypes.CDLL(None), "__asan_init")
