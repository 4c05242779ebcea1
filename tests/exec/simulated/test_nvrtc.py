"""The kernels compiled for GPUs by NVRTC, which needs none: registers, spills and shared memory within budgets."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from functools import cache

import pytest

from tapestry_exec.cuda import kernels
from tapestry_exec.simulated import shim
from tapestry_exec.simulated.shim import CompileError
from tests import nvrtc
from tests.nvrtc import Compiled, Usage, compile_cubin

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="NVRTC's wheel is of Linux")

ARCHITECTURES = "sm_80", "sm_90", "sm_100"
"""A100, H100 and H200, B200."""

each = pytest.mark.parametrize(
    "arch", ["sm_90", *(pytest.param(arch, marks=pytest.mark.heavy(4)) for arch in ARCHITECTURES if arch != "sm_90")]
)
"""Each is compiled whole, which takes five seconds."""

REGISTERS: Mapping[str, int] = {
    **{f"copy_{nbytes}": 64 for nbytes in (1, 2, 4, 8, 16)},
    **{f"fill_{nbytes}": 48 for nbytes in (1, 2, 4, 8, 16)},
    **{f"scatter_{cell}": 48 for cell in ("int8", "int16", "int32", "int64", "float16", "float32", "float64")},
    **{f"merge_{cell}": 48 for cell in ("int8", "int16", "int32", "float16", "float32")},
    **{f"merge_{cell}": 64 for cell in ("int64", "float64")},
    **{f"epilogue_float32x{lanes}": 48 for lanes in (1, 4)},
    **{f"epilogue_float64x{lanes}": 48 for lanes in (1, 2)},
    **{f"convolution_float32x{tall}": 128 for tall in (1, 16, 64)},
    **{f"convolution_float64x{tall}": 128 for tall in (1, 8, 32)},
    **{f"philox_{what}": 32 for what in ("words", "float32", "float64", "counters")},
    "rows_float32": 48,
    "rows_float64": 64,
    "layout": 32,
}
"""Registers of a thread at most, by kernel: of 256 threads each, 5 blocks have room with 48, 4 with 64, 2 with 128."""

SHARED_NBYTES: Mapping[str, int] = {
    **{entry: 10 * 1024 for entry in REGISTERS if entry.startswith("convolution")},
    "rows_float32": 1024,
    "rows_float64": 2048,
}
"""Shared memory of a block at most; the others use none."""


def excesses(usage: Mapping[str, Usage], registers: Mapping[str, int], shared: Mapping[str, int]) -> list[str]:
    """What is above the budgets, in words."""
    found = [f"{entry} has no budget" for entry in usage if entry not in registers]
    found += [f"{entry} is not compiled" for entry in registers if entry not in usage]
    for entry in usage.keys() & registers.keys():
        used = usage[entry]
        if used.registers > registers[entry]:
            found.append(f"{entry}: {used.registers} registers, at most {registers[entry]}")
        if used.spill_nbytes or used.stack_nbytes:
            found.append(f"{entry}: {used.spill_nbytes} B spilled, {used.stack_nbytes} B of local memory")
        if used.shared_nbytes > shared.get(entry, 0):
            found.append(f"{entry}: {used.shared_nbytes} B shared, at most {shared.get(entry, 0)}")
    return sorted(found)


@cache
def made_for(arch: str) -> Compiled:
    return compile_cubin(kernels.SOURCE, arch, kernels.OPTIONS)


@each
def test_every_kernel_keeps_its_budget(arch: str) -> None:
    made = made_for(arch)
    assert made.cubin[:4] == b"\x7fELF"
    assert excesses(made.usage, REGISTERS, SHARED_NBYTES) == []


@pytest.mark.skipif(shim.found_compiler() is None, reason="no C++ compiler")
def test_the_budgets_are_of_the_kernels_that_run_on_the_cpu() -> None:
    assert set(shim.kernels_of(kernels.SOURCE)) == set(REGISTERS)


@pytest.mark.heavy(2)
@each
def test_products_and_sums_round_separately(arch: str) -> None:
    """Fused multiply-adds are where the source says so, and in the library's functions: nowhere else."""
    bodies = dict(re.findall(r"\.entry (\w+)\((.*?)\n}\n", made_for(arch).ptx, re.DOTALL))
    assert bodies.keys() == REGISTERS.keys()
    fused = {entry for entry, body in bodies.items() if FUSED.search(body)}
    assert fused == {entry for entry in bodies if entry.startswith(("convolution", "epilogue", "rows"))}
    assert FUSED.search(compile_cubin(PRODUCT_AND_SUM, arch, ["-fmad=true"]).ptx)
    assert not FUSED.search(compile_cubin(PRODUCT_AND_SUM, arch, kernels.OPTIONS).ptx)


@pytest.mark.heavy(2)
def test_subnormal_numbers_stay_where_bits_are_numpys() -> None:
    """CuPy compiles with -ftz=true; what is left of it asks for NaNs alone, which it does not change."""
    made = compile_cubin(kernels.SOURCE, "sm_90", [*kernels.OPTIONS, "-ftz=true"])
    bodies = dict(re.findall(r"\.entry (\w+)\((.*?)\n}\n", made.ptx, re.DOTALL))
    found = {entry: set(re.findall(r"\S+\.ftz\S*", body)) for entry, body in bodies.items()}
    exact = {entry: what for entry, what in found.items() if not entry.startswith(("convolution", "epilogue", "rows"))}
    assert all(what <= {"setp.num.ftz.f32", "setp.nan.ftz.f32"} for what in exact.values()), exact
    assert any("mul" in word for word in found["convolution_float32x1"]), "the option is heeded"


FUSED = re.compile(r"\bfma\.rn(\.ftz)?\.f(32|64)\b")
PRODUCT_AND_SUM = 'extern "C" __global__ void f(float* x) { x[0] = x[1] * x[2] + x[3]; }'

# ------------------------------------------------------------------------------------------------ planted faults

LARGE = """
extern "C" __global__ void large(float* x, int n) {
  float held[512];
  for (int k = 0; k < n; ++k) held[k] = x[k];
  for (int k = 0; k < n; ++k) x[k] = held[held[k] > 0 ? k : 511 - k];
}
"""
SPILLING = """
extern "C" __global__ void __launch_bounds__(1024, 2) spilling(const double* x, double* y) {
  double held[48];
#pragma unroll
  for (int k = 0; k < 48; ++k) held[k] = x[k * 1024 + threadIdx.x];
  __syncthreads();
#pragma unroll
  for (int k = 0; k < 48; ++k) y[k * 1024 + threadIdx.x] = held[k] * held[47 - k] + held[(k * 7) % 48];
}
"""
HOARDING = """
extern "C" __global__ void hoarding(float* x) {
  __shared__ float held[4096];
  held[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  x[threadIdx.x] = held[threadIdx.x ^ 1];
}
"""


@pytest.mark.parametrize(
    ("source", "entry", "words"),
    [
        (LARGE, "large", r"large: 0 B spilled, 2048 B of local memory"),
        (SPILLING, "spilling", r"spilling: [1-9]\d* B spilled"),
        (HOARDING, "hoarding", r"hoarding: 16384 B shared, at most 0"),
    ],
)
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_a_greedy_kernel_breaks_its_budget(source: str, entry: str, words: str, arch: str) -> None:
    usage = compile_cubin(source, arch, kernels.OPTIONS).usage
    (found,) = excesses(usage, {entry: 255}, {})
    assert re.match(words, found)


def test_too_many_registers_and_kernels_without_budgets_are_told() -> None:
    usage = {"f": Usage(65, 0, 0, 0), "g": Usage(8, 0, 0, 0)}
    assert excesses(usage, {"f": 64, "h": 8}, {}) == [
        "f: 65 registers, at most 64",
        "g has no budget",
        "h is not compiled",
    ]


def test_an_error_names_its_line() -> None:
    lines = kernels.SOURCE.splitlines()
    at = next(k for k, line in enumerate(lines) if line.startswith("struct Guard"))
    broken = "\n".join([*lines[:at], "struct Wrong { int x };", *lines[at:]])
    with pytest.raises(CompileError, match=f'^kernels.cu for sm_90, line {at + 1}: expected a ";"') as caught:
        compile_cubin(broken, "sm_90", kernels.OPTIONS)
    assert caught.value.line == at + 1
    assert f"kernels.cu({at + 1}): error" in caught.value.log


def test_an_unknown_architecture_or_option_is_told() -> None:
    with pytest.raises(CompileError, match="sm_1: NVRTC_ERROR_INVALID_OPTION"):
        compile_cubin(PRODUCT_AND_SUM, "sm_1")
    with pytest.raises(CompileError, match="NVRTC_ERROR_INVALID_OPTION"):
        compile_cubin(PRODUCT_AND_SUM, "sm_90", ["--no-such-option"])


def test_words_of_ptxas_that_are_not_understood_are_told() -> None:
    with pytest.raises(ValueError, match="ptxas's words are not understood"):
        nvrtc.usage_of("ptxas info    : Compiling entry function 'f' for 'sm_90'\nptxas info    : all is well")


def test_a_missing_library_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvrtc, "_of_wheels", list)
    monkeypatch.setattr(nvrtc, "MAJORS", (99,))
    nvrtc.library.cache_clear()
    try:
        with pytest.raises(FileNotFoundError, match=r"pip install 'nvidia-cuda-nvrtc>=13'.*libnvrtc.so.99"):
            compile_cubin(PRODUCT_AND_SUM, "sm_90")
    finally:
        nvrtc.library.cache_clear()
