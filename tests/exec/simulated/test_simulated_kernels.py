"""Raw kernels on simulated devices: the bytes that they touch, and where they are stopped."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tapestry_exec.run.backends import OrderingFault
from tapestry_exec.simulated import namespace as simulated
from tapestry_exec.simulated import shim
from tapestry_exec.simulated.kernels import CompileException
from tapestry_exec.simulated.machine import CUDADriverError
from tests.simulated_kernels import TOUCH

# -- raw kernels --------------------------------------------------------------------------------------------


@given(st.integers(1, 9), st.integers(1, 3), st.integers(0, 9), st.integers(0, 2**16))
def test_a_kernel_touches_exactly_the_bytes_that_it_reads_and_writes(n: int, step: int, k: int, seed: int) -> None:
    """What it touches is seen while it runs: whoever uses the bytes beside it need not wait."""
    xp = simulated.cupy(1, seed)
    x, y = (xp.arange(28, dtype=np.float32) for _ in range(2))
    xp.cuda.Device().synchronize()
    kernel = xp.RawModule(code=TOUCH).get_function("scale")
    one, two = xp.cuda.Stream(non_blocking=True), xp.cuda.Stream(non_blocking=True)
    with one:
        kernel(((n + 3) // 4,), (4,), (x, y, np.int32(n), np.int32(step)))
    with two:
        x[k] + 1
        if k % step == 0 and k < n * step:
            with pytest.raises(OrderingFault, match=rf"\(add\) .* bytes {4 * k} to {4 * k + 4} of .* \(kernel scale\)"):
                y[k] + 1
            with pytest.raises(OrderingFault, match=rf"\(setitem\) .* {4 * k} to .* \(kernel scale\) .* read them"):
                x[k] = 0
        else:
            y[k] = 2 * k
            x[k] = k
    xp.cuda.Device().synchronize()
    written = np.arange(0, n * step, step)
    np.testing.assert_array_equal(y.get()[written], 2 * written)


@pytest.mark.heavy(2)
def test_kernels_that_do_not_compile_or_get_what_they_cannot_take() -> None:
    xp = simulated.cupy(1)
    with pytest.raises(CompileException, match="nosuch"):
        xp.RawModule(code='extern "C" __global__ void k(int* x) { *x = nosuch; }').compile()
    module = xp.RawModule(code=TOUCH)
    mangled = xp.RawModule(code=TOUCH.replace('extern "C"', ""))
    for one, name in ((module, "none"), (mangled, "touch")):
        with pytest.raises(CUDADriverError, match=rf"CUDA_ERROR_NOT_FOUND: .* {name}"):
            one.get_function(name)
    kernel = module.get_function("touch")
    with pytest.raises(TypeError, match=r"numpy.ndarray of shape \(4,\) as a kernel parameter"):
        kernel((1,), (1,), (np.zeros(4), np.int32(0), np.int32(0)))
    with pytest.raises(TypeError, match="unexpected keyword argument 'stream'"):
        kernel((1,), (1,), (xp.zeros(4, np.float32), np.int32(0), np.int32(0)), stream=0)


POKE = """
extern "C" __global__ void poke(unsigned char* y, long long at, int nbytes, int writes, int after) {
    __shared__ volatile int turn;
    if (threadIdx.x == 0) turn = 0;
    if (after) __syncthreads();
    if (threadIdx.x != blockDim.x - 1) return;
    unsigned char* p = y + at;
    if (nbytes == 1) { if (writes) *p = 7; else turn = *p; }
    if (nbytes == 8) { if (writes) *(long long*)p = 7; else turn = *(long long*)p; }
    unsigned char q[24];
    if (nbytes == 24) { if (writes) memset(p, 7, 24); else { memcpy(q, p, 24); turn = q[p - y & 15]; } }
}
struct Leading { int n; float* to; const float* from; };
__constant__ float table[4] = {1, 2, 3, 4};
extern "C" __global__ void all_its_own(Leading given, float factor) {
    extern __shared__ float shared[];
    float mine[32];
    for (int k = 0; k < 32; ++k) mine[k] = given.from[(k + threadIdx.x) % given.n];
    shared[threadIdx.x] = mine[threadIdx.x % 32] * table[threadIdx.x % 4];
    __syncthreads();
    float* at = given.to + threadIdx.x;
    const float next = shared[(threadIdx.x + 1) % blockDim.x] * factor;
    __syncthreads();
    memcpy(at, &next, sizeof next);
}
"""
BUFFERS = {"x": (0, 64), "y": (128, 192), "z": (192, 256), "gone": (320, 384)}


class Arena:
    """Memory with two buffers side by side, one apart, one that was freed, and gaps."""

    def __init__(self) -> None:
        self.xp = simulated.cupy(1)
        self.memory = self.xp.cuda.Memory(512)
        for name, (start, stop) in BUFFERS.items():
            self.xp.mark_block(self.memory.ptr + start, stop - start, name, True)
        start, stop = BUFFERS["gone"]
        self.xp.mark_block(self.memory.ptr + start, stop - start, "gone", False)
        self.bytes = self.xp.checker.at(self.memory.ptr).data

    def poke(self, buffer: str, at: int, nbytes: int = 1, writes: bool = True, after: bool = False) -> None:
        kernel = self.xp.RawModule(code=POKE).get_function("poke")
        address = np.uint64(self.memory.ptr + BUFFERS[buffer][0])
        grid, block = (1,) if after else (2,), (1,) if after and writes else (3,)
        kernel(grid, block, (address, np.int64(at), np.int32(nbytes), np.int32(writes), np.int32(after)))


@pytest.mark.heavy(2)
@given(
    st.sampled_from(["x", "y", "z"]),
    st.integers(-40, 70) | st.integers(-(2**40), 2**40),
    st.sampled_from([1, 8, 24]),
    st.booleans(),
    st.booleans(),
)
@example("y", 64, 1, True, False)
@example("y", -64, 1, True, False)
@example("z", -4, 8, True, True)
@example("x", 60, 8, False, True)
@example("x", 500, 24, True, True)
@example("x", 10**9, 24, False, False)
@example("x", 6525, 1, False, False)
@example("y", 56, 8, True, True)
def test_a_kernel_that_leaves_its_buffers_is_stopped(
    buffer: str, at: int, nbytes: int, writes: bool, after: bool
) -> None:
    """Before it does any harm: neighbors that live, gaps and what lies beyond the arena stay as they are."""
    arena = Arena()
    start, stop = BUFFERS[buffer]
    if at in range(stop - start - nbytes + 1):
        arena.poke(buffer, at, nbytes, writes, after)
        assert not writes or 7 in arena.bytes[start + at :][:nbytes]
    else:
        what = "writes" if writes else "reads"
        with pytest.raises(OrderingFault, match=rf"kernel poke: thread [02] of block \([01], 0, 0\) {what} at .*keep"):
            arena.poke(buffer, at, nbytes, writes, after)
        assert (arena.bytes == 0xFF).all()
    arena.poke("y", 5, 1, True, True)
    assert np.flatnonzero(arena.bytes[128:192] == 7)[0] <= 5, "and it can be launched again"


@pytest.mark.parametrize(
    ("buffer", "at", "message"),
    [
        ("y", 64, "at byte 192 of memory 0 of device 0, where buffer z lives; no argument of the launch points there"),
        ("y", -1, "at byte 127 of memory 0 of device 0, where no buffer lives; no argument"),
        ("z", 130, "at byte 322 of memory 0 of device 0, where buffer gone lived; no argument"),
        ("z", 1000, r"at 0x\w+, 680 bytes behind memory 0 of device 0, where no memory is; no argument"),
    ],
)
def test_where_a_kernel_leaves_its_buffers_is_named(buffer: str, at: int, message: str) -> None:
    with pytest.raises(OrderingFault, match=message):
        Arena().poke(buffer, at)


def test_a_kernel_touches_no_memory_but_its_own() -> None:
    """Another allocation, though it lives, and one that a pointer led to and was freed."""
    xp = simulated.cupy(1)
    one, two = xp.cuda.Memory(64), xp.cuda.Memory(64)
    kernel = xp.RawModule(code=POKE).get_function("poke")
    options = np.int32(1), np.int32(1), np.int32(0)
    with pytest.raises(OrderingFault, match="writes at byte 3 of memory 1 of device 0; no argument of the launch"):
        kernel((1,), (1,), (np.uint64(one.ptr), np.int64(two.ptr - one.ptr + 3), *options))
    with pytest.raises(OrderingFault, match="writes at 0x0, where no memory is; no argument of the launch"):
        kernel((1,), (1,), (np.uint64(0), np.int64(0), *options))
    gap, at = two.ptr - one.ptr, one.ptr
    del two
    with pytest.raises(OrderingFault, match="writes at byte 3 of memory 1 of device 0, which has been freed; no"):
        kernel((1,), (1,), (np.uint64(at), np.int64(gap + 3), *options))


@given(st.integers(1, 64), st.integers(1, 9), st.integers(0, 2**16))
def test_a_kernel_has_its_stack_and_shared_memory_and_what_structs_point_to(threads: int, n: int, seed: int) -> None:
    xp = simulated.cupy(1, seed)
    source, out = xp.arange(n, dtype=np.float32), xp.empty(threads, np.float32)
    kernel = xp.RawModule(code=POKE).get_function("all_its_own")
    leading = np.dtype([("n", np.int32), ("to", np.uint64), ("from", np.uint64)], align=True)
    given_ = np.array((n, out.data.ptr, source.data.ptr), leading)
    kernel((1,), (threads,), (given_, np.float32(2)), shared_mem=4 * threads)
    k = np.arange(threads)
    made = ((k % 32 + k) % n) * (k % 4 + 1)
    np.testing.assert_array_equal(out.get(), 2 * made[(k + 1) % threads])


def test_threads_with_machines_of_their_own_launch_the_same_kernel() -> None:
    """The kernel's module is one in the process: one launch at a time, each with the memory that it may touch."""

    def launched(k: int) -> bool:
        arena = Arena()
        for at in range(60):
            arena.poke("y", at, 1, True, True)
            with pytest.raises(OrderingFault, match="where buffer z lives"):
                arena.poke("y", 64 + at, 1, True, True)
        return bool((arena.bytes[128:188] == 7).all() and (arena.bytes[188:] == 0xFF).all())

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(launched, range(4)))


def test_a_kernel_in_a_graph_is_stopped_when_the_graph_is_launched() -> None:
    arena = Arena()
    stream = arena.xp.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        arena.poke("y", 64)
        graph = stream.end_capture()
        with pytest.raises(OrderingFault, match="where buffer z lives"):
            graph.launch(stream)
    assert (arena.bytes == 0xFF).all()


ONCE = """
import sys
from tapestry_exec.simulated import namespace as simulated
xp = simulated.cupy(1)
kernel = xp.RawModule(code='extern "C" __global__ void one(int* x) { x[threadIdx.x] = 1; }').get_function("one")
x = xp.zeros(4, "int32")
kernel((1,), (4,), (x,))
assert x.get().tolist() == [1] * 4
"""


@pytest.mark.heavy(2)
@pytest.mark.skipif(shim.found_compiler() is None, reason="no C++ compiler")
def test_what_one_process_compiled_another_one_does_not(tmp_path: Path) -> None:
    def run_it(salt: str) -> set[tuple[str, int]]:
        given_ = {"TAPESTRY_CACHE": str(tmp_path), "PYTHONHASHSEED": salt}
        subprocess.run([sys.executable, "-c", ONCE], env={**os.environ, **given_}, check=True)
        return {(path.name, path.stat().st_mtime_ns) for path in tmp_path.iterdir()}

    first = run_it("1")
    assert {name.rsplit(".", 1)[1] for name, _ in first} == {"h", "so", "names"}
    assert run_it("2") == first
