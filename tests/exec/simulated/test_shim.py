"""Raw kernels on the CPU: what runs there is what CUDA would run, and faults planted in kernels are caught."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tapestry_exec.cuda.kernels.structs import Launch
from tapestry_exec.simulated import shim
from tapestry_exec.simulated.shim import CompileError, DivergentBarrier, compile_source, kernels_of

pytestmark = pytest.mark.skipif(shim.found_compiler() is None, reason="no C++ compiler")

SEEDS = range(20)


def call(source: str, entry: str, *args: Any, seed: int = 0, **how: Any) -> None:
    """Run a kernel of a source; arrays go as their addresses. By default one block of 32 threads."""
    given = tuple(np.uint64(arg.ctypes.data) if isinstance(arg, np.ndarray) and arg.ndim else arg for arg in args)
    grid, block = how.get("grid", (1, 1, 1)), how.get("block", (32, 1, 1))
    compile_source(source).launch(Launch(entry, grid, block, given, how.get("shared", 0)), seed)


# --------------------------------------------------------------------------------------- as CUDA would run it

KERNELS = """
struct Numbers { int thread[3], block[3], threads[3], blocks[3]; };
extern "C" __global__ void numbers(Numbers* out) {
  int t = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  int b = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  Numbers& n = out[b * blockDim.x * blockDim.y * blockDim.z + t];
  n.thread[0] = threadIdx.x, n.thread[1] = threadIdx.y, n.thread[2] = threadIdx.z;
  n.block[0] = blockIdx.x, n.block[1] = blockIdx.y, n.block[2] = blockIdx.z;
  n.threads[0] = blockDim.x, n.threads[1] = blockDim.y, n.threads[2] = blockDim.z;
  n.blocks[0] = gridDim.x, n.blocks[1] = gridDim.y, n.blocks[2] = gridDim.z;
}

#define ROTATED(NAME, BARRIER)                                                \\
  extern "C" __global__ void NAME(const float* x, float* y, int n) {          \\
    __shared__ float held[64];                                                \\
    const int t = threadIdx.x;                                                \\
    for (int turn = 0; turn < n; ++turn) {                                    \\
      held[t] = turn == 0 ? x[t] : y[t];                                      \\
      BARRIER;                                                                \\
      y[t] = held[(t + 1) % blockDim.x];                                      \\
      __syncthreads();                                                        \\
    }                                                                         \\
  }
ROTATED(rotated, __syncthreads())
ROTATED(unordered, (void)0)

extern "C" __global__ void reduced(const float* x, float* sums, int n) {
  extern __shared__ float part[];
  const int t = threadIdx.x, at = blockIdx.x * blockDim.x + t;
  part[t] = at < n ? x[at] : 0;
  for (int half = blockDim.x / 2; half > 0; half /= 2) {
    __syncthreads();
    if (t < half) part[t] += part[t + half];
  }
  if (t == 0) atomicAdd(sums, part[0]);
}

struct __align__(16) Four { float at[4]; };
extern "C" __global__ void aligned(unsigned long long* y) {
  __shared__ __align__(64) char one[3];
  __shared__ Four two[5];
  y[0] = (unsigned long long)one % 64 + (unsigned long long)two % 16;
}

struct Pair { char c; double d; };
extern "C" __global__ void by_value(Pair p, double* y) { *y = p.d + p.c; }
extern "C" __global__ void rounded(const float* x, float* y) { *y = x[0] * x[1] + x[2]; }
extern "C" __global__ void last(int* x) { if (threadIdx.x == 0) *x = blockIdx.x; }
extern "C" __global__ void taken(int* x) { x[1 + atomicAdd(x, 1)] = threadIdx.x; }

extern "C" __global__ void functions(unsigned long long* y) {
  y[0] = __umulhi(0xD2511F53u, 0x12345678u);
  y[1] = __umul64hi(0xFFFFFFFFFFFFFFFFull, 0xFFFFFFFFFFFFFFFFull);
  y[2] = (unsigned)__mulhi(-5, 0x70000000);
  y[3] = __popc(0xF0F0u);
  y[4] = __clz(1) * 100 + __clz(0);
  y[5] = __float_as_uint(1.0f);
  y[6] = (unsigned long long)__double_as_longlong(-2.0);
  y[7] = max(3u, min(9u, 5u));
}
"""
EXTENTS = st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(1, 3))


@pytest.mark.heavy(2)
@given(EXTENTS, EXTENTS, st.integers(0, 99))
@settings(max_examples=50)
def test_each_thread_of_each_block_runs_once(grid: Any, block: Any, seed: int) -> None:
    out = np.full((int(np.prod(grid)), int(np.prod(block)), 4, 3), -1, np.int32)
    call(KERNELS, "numbers", out, grid=grid, block=block, seed=seed)
    at = [[(x, y, z) for z in range(n[2]) for y in range(n[1]) for x in range(n[0])] for n in (grid, block)]
    for b, t in np.ndindex(*out.shape[:2]):
        assert out[b, t].tolist() == [list(at[1][t]), list(at[0][b]), list(block), list(grid)]


@pytest.mark.parametrize("turns", [1, 3, 7])
def test_threads_meet_at_barriers(turns: int) -> None:
    x = np.arange(48, dtype=np.float32)
    for seed in SEEDS:
        y = np.zeros(48, np.float32)
        call(KERNELS, "rotated", x, y, np.int32(turns), block=(48, 1, 1), seed=seed)
        assert (y == np.roll(x, -turns)).all()


def test_shared_memory_of_any_size_and_atomics() -> None:
    x = np.arange(1000, dtype=np.float32)
    for seed in SEEDS:
        total = np.zeros(1, np.float32)
        call(KERNELS, "reduced", x, total, np.int32(1000), grid=(16, 1, 1), block=(64, 1, 1), seed=seed, shared=256)
        assert total[0] == x.sum()


def test_shared_memory_is_aligned_as_asked() -> None:
    rest = np.ones(1, np.uint64)
    call(KERNELS, "aligned", rest)
    assert rest[0] == 0


def test_structs_go_by_value() -> None:
    pair = np.array((3, 0.5), np.dtype([("c", np.int8), ("d", np.float64)], align=True))
    y = np.zeros(1)
    call(KERNELS, "by_value", pair, y, block=(1, 1, 1))
    assert y[0] == 3.5


def test_products_and_sums_round_separately() -> None:
    one = np.float32(1 + 2**-12)
    x, y = np.array([one, one, -(1 + 2**-11)], np.float32), np.ones(1, np.float32)
    call(KERNELS, "rounded", x, y, block=(1, 1, 1))
    assert y[0] == 0  # fused it would be 2**-24


def test_functions_of_the_device() -> None:
    y = np.zeros(8, np.uint64)
    call(KERNELS, "functions", y, block=(1, 1, 1))
    high = -5 * 0x70000000 >> 32
    assert y.tolist() == [
        *(0xD2511F53 * 0x12345678 >> 32, 2**64 - 2, high % 2**32, 8, 3132, 0x3F800000, 0xC000000000000000, 5),
    ]


def test_kernels_are_found_behind_macros_and_beside_templates() -> None:
    source = """
    #define OF(T) extern "C" __global__ void __launch_bounds__(32) add_##T(T* x) { *x += 1; }
    template <class T> __global__ void shared_by_all(T* x) {}
    extern "C" __global__ void declared_only(int* x);
    const char* text = "__global__ void in_text(int* x) {}";
    OF(int) OF(float) // __global__ void in_a_comment() {}
    """
    assert kernels_of(source) == ("add_int", "add_float")


@pytest.mark.heavy(2)
def test_what_was_compiled_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAPESTRY_CACHE", str(tmp_path / "kept"))
    source = 'extern "C" __global__ void f(int* x) { *x = VALUE; }'
    one = compile_source(source, options=["-DVALUE=1"])
    built = one.path.stat().st_mtime_ns
    assert compile_source(source, options=["-DVALUE=1"]).path.stat().st_mtime_ns == built
    assert compile_source(source, options=["-DVALUE=2"]).path != one.path
    assert len(list((tmp_path / "kept").glob("*.so"))) == 2


# ------------------------------------------------------------------------------------------------ planted faults


def test_a_missing_barrier_is_seen() -> None:
    """Without one, a thread reads what another has not written: all bits set, or an older value."""
    x = np.arange(48, dtype=np.float32)
    wrong = []
    for seed in SEEDS:
        y = np.zeros(48, np.float32)
        call(KERNELS, "unordered", x, y, np.int32(1), block=(48, 1, 1), seed=seed)
        wrong.append(np.isnan(y).any())
    assert all(wrong), "shared memory that nobody wrote is poisoned, in whatever order threads run"


def test_a_race_between_blocks_is_seen() -> None:
    found = set()
    for seed in SEEDS:
        x = np.zeros(1, np.int32)
        call(KERNELS, "last", x, grid=(8, 1, 1), seed=seed)
        found.add(int(x[0]))
    assert len(found) > 2


def test_one_seed_is_one_order() -> None:
    def order(seed: int) -> list[int]:
        x = np.zeros(33, np.int32)
        call(KERNELS, "taken", x, seed=seed)
        return x[1:].tolist()

    assert order(3) == order(3) != order(4)
    assert sorted(order(5)) == list(range(32))


PARTED = """
extern "C" __global__ void some(int n) { if (threadIdx.x < n) __syncthreads(); }
extern "C" __global__ void all_but_one(int n) { if (threadIdx.x == n) return; __syncthreads(); }
extern "C" __global__ void elsewhere(int n) {
  if (threadIdx.x % n) __syncthreads();
  else __syncthreads();
}
extern "C" __global__ void more_often(int n) {
  for (int k = 0; k <= threadIdx.x % n; ++k) __syncthreads();
}
extern "C" __global__ void together(int n) { if (blockIdx.x < n) __syncthreads(); }
"""


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ("some", "waits at the __syncthreads of line 2, others have ended or do not reach it"),
        ("all_but_one", "line 3, others have ended or do not reach it"),
        ("elsewhere", r"line (5|6), thread \d+ at that of line (6|5)"),
        ("more_often", "line 9, others have ended"),
    ],
)
def test_a_divergent_barrier_is_reported(entry: str, words: str) -> None:
    for seed in SEEDS:
        with pytest.raises(DivergentBarrier, match=rf"kernel {entry}: block \(\d, 0, 0\): thread \d+ .*{words}"):
            call(PARTED, entry, np.int32(5), grid=(3, 1, 1), seed=seed)
    call(PARTED, "together", np.int32(2), grid=(3, 1, 1))  # blocks may differ


OVERRUNS = """
extern "C" __global__ void read_beyond(const float* x, float* y, int n) {
  const int t = threadIdx.x;
  if (t <= n) y[t % 8] =
      x[t];
}
extern "C" __global__ void write_before(const float* x, float* y, int n) {
  const int t = threadIdx.x;
  if (t <= 15)
    y[15 - n + t] = x[t];
}
extern "C" __global__ void beyond_shared(const float* x, float* y, int n) {
  __shared__ float held[16];
  if (threadIdx.x <= n)
    held[threadIdx.x] = 1;
  __syncthreads();
  y[0] = held[0];
}
"""


def sanitized(code: str, *given: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a process that has the address sanitizer."""
    return subprocess.run(
        [sys.executable, "-c", code, *given],
        env=dict(shim.sanitized_environment()),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


SCRIPT = """
import sys
import numpy as np
from tapestry_exec.simulated import shim
from tapestry_exec.cuda.kernels import Launch
module = shim.compile_source(sys.argv[1], name="planted.cu", sanitize=True)
for n in map(int, sys.argv[3:]):
    x, y = np.zeros(1000, np.float32), np.zeros(1000, np.float32)
    at = np.uint64(x[-16:].ctypes.data), np.uint64(y.ctypes.data)
    module.launch(Launch(sys.argv[2], (1, 1, 1), (32, 1, 1), (*at, np.int32(n))))
    print("ran with", n, flush=True)
"""


def has_sanitizer() -> bool:
    try:
        shim.sanitized_environment()
    except FileNotFoundError:
        return False
    return True


@pytest.mark.heavy(2)
@pytest.mark.parametrize(("entry", "line"), [("read_beyond", 5), ("write_before", 10), ("beyond_shared", 15)])
def test_an_overrun_is_named_by_its_line(entry: str, line: int) -> None:
    if not has_sanitizer():
        pytest.skip("g++ has no address sanitizer here")
    done = sanitized(SCRIPT, OVERRUNS, entry, "15", "16")
    assert done.stdout == "ran with 15\n", "the first launch is right, the second one is stopped"
    assert done.returncode != 0 and "AddressSanitizer" in done.stderr and "-overflow" in done.stderr
    assert f"planted.cu:{line}" in done.stderr


@pytest.mark.heavy
def test_no_kernel_touches_what_lies_beside_its_arrays() -> None:
    """All tests of the kernels again, in a process that has the address sanitizer."""
    if not has_sanitizer():
        pytest.skip("g++ has no address sanitizer here")
    code = "import sys, pytest; sys.exit(pytest.main(sys.argv[1:]))"
    where = Path(__file__).parents[1] / "cuda" / "test_kernels.py"
    done = sanitized(code, str(where), "-q", "-p", "no:cacheprovider")
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]


# ------------------------------------------------------------------------------------------------- wrong input


@pytest.mark.heavy(2)
def test_an_error_names_its_line() -> None:
    source = '\n\nextern "C" __global__ void f(int* x) {\n  *x = undeclared;\n}\n'
    with pytest.raises(CompileError, match=r"kernels.cu by g\+\+, line 4: .*undeclared.* was not declared") as caught:
        compile_source(source)
    assert caught.value.line == 4 and "undeclared" in caught.value.log
    with pytest.raises(CompileError, match=r"mine.cu by g\+\+, line 1: .*nowhere.h"):
        compile_source('#include "nowhere.h"', name="mine.cu")


ONE = 'extern "C" __global__ void one(int* x, float by) { *x = by; }'


@pytest.mark.parametrize(
    ("launch", "error", "words"),
    [
        (("two", (1, 1, 1), (1, 1, 1), ()), KeyError, "kernel 'two' is not in the source; it has one"),
        (("one", (1, 1, 1), (1, 1, 1), (np.uint64(8),)), TypeError, "kernel one takes 2 arguments, not 1"),
        (
            ("one", (1, 1, 1), (1, 1, 1), (np.uint64(8), 1.5)),
            TypeError,
            "argument 1 has 8 bytes, the kernel's parameter 4",
        ),
        (("one", (1, 1, 1), (1, 1, 1), (np.ones(3), np.float32(1))), TypeError, "argument 0 is an array of shape"),
        (("one", (1, 1, 1), (1, 1, 1), ("x", np.float32(1))), TypeError, "argument 0 is str; pass a NumPy scalar"),
        (("one", (0, 1, 1), (1, 1, 1), (np.uint64(8), np.float32(1))), ValueError, r"grid \(0, 1, 1\) must have three"),
        (("one", (1, 1, 1), (1, 1), (np.uint64(8), np.float32(1))), ValueError, r"block \(1, 1\) must have three"),
        (("one", (1, 1, 1), (64, 32, 1), (np.uint64(8), np.float32(1))), ValueError, "2048 threads, more than 1024"),
        (
            ("one", (1, 1, 1), (1, 1, 1), (np.uint64(8), np.float32(1)), 1 << 20),
            ValueError,
            "bytes of shared memory are",
        ),
    ],
)
def test_a_wrong_launch_is_told(launch: Sequence[Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        compile_source(ONE).launch(Launch(*launch))


def test_a_missing_compiler_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert shim.found_compiler() is None
    with pytest.raises(FileNotFoundError, match="no C\\+\\+ compiler 'no-such-compiler' on PATH; install g\\+\\+"):
        shim.compiler()


def test_the_sanitizer_asks_for_a_process_of_its_own() -> None:
    if shim.is_sanitized() or not has_sanitizer():
        pytest.skip("no other process to ask for")
    with pytest.raises(OSError, match=r"start Python with shim\.sanitized_environment"):
        compile_source(ONE, sanitize=True)


@pytest.mark.parametrize("name", ["times", "index", "read"])
def test_a_kernel_may_have_the_name_of_a_function_of_the_c_library(name: str) -> None:
    """Calls in a shared library reach functions of the process first, if it is not linked otherwise."""
    source = f'extern "C" __global__ void {name}(float* y) {{ y[threadIdx.x] = 2; }}'
    y = np.zeros(4, np.float32)
    compile_source(source).launch(Launch(name, (1, 1, 1), (4, 1, 1), (np.uint64(y.ctypes.data),)))
    assert (y == 2).all()
