"""The kernels' own text, run on the CPU thread by thread and, with `-m gpu`, on a GPU, against NumPy."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import Any, ClassVar
from weakref import WeakSet

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tapestry_exec.copies.kernel_forms import normal_forms, widen
from tapestry_exec.copies.strided import Guard, Transfer
from tapestry_exec.copies.tuning import RANK
from tapestry_exec.cuda import kernels
from tapestry_exec.cuda.kernels import structs
from tapestry_exec.cuda.kernels.convolution import Convolving
from tapestry_exec.cuda.kernels.epilogue import ACTIVATIONS
from tapestry_exec.cuda.kernels.philox import Rows
from tapestry_exec.cuda.kernels.structs import Launch, divisor
from tapestry_exec.cuda.kernels.transfers import copies, fills
from tapestry_exec.simulated import shim
from tapestry_plan import MONOIDS
from tapestry_plan.ir import merge_states
from tapestry_plan.ops.random.philox import region_words

pytestmark = pytest.mark.skipif(shim.found_compiler() is None, reason="no C++ compiler")

FEW = settings(max_examples=120)


class OnGpu:
    """The kernels on a GPU, launched as `shim.Module` launches them.

    What they touch lies in pinned memory, whose addresses are the host's and the GPU's alike.
    """

    def __init__(self) -> None:
        self._cupy = pytest.importorskip("cupy")
        self._module = self._cupy.RawModule(code=kernels.SOURCE, options=kernels.OPTIONS)

    def launch(self, launch: Launch, seed: int = 0) -> None:
        kernel = self._module.get_function(launch.entry)
        kernel(launch.grid, launch.block, launch.args, shared_mem=launch.shared_nbytes)
        self._cupy.cuda.runtime.deviceSynchronize()

    def allocate(self, nbytes: int) -> np.ndarray:
        return np.frombuffer(self._cupy.cuda.alloc_pinned_memory(max(nbytes, 1)), np.uint8, nbytes)


def allocated(nbytes: int) -> np.ndarray:
    return np.empty(nbytes, np.uint8)


@pytest.fixture(scope="module", params=["cpu", pytest.param("gpu", marks=pytest.mark.gpu)])
def module(request: pytest.FixtureRequest) -> Iterator[shim.Module | OnGpu]:
    if request.param == "cpu":
        yield shim.compile_source(kernels.SOURCE, sanitize=shim.is_sanitized())
        return
    gpu = OnGpu()
    Memory.allocate = staticmethod(gpu.allocate)
    yield gpu
    Memory.allocate = staticmethod(allocated)


def placed(array: np.ndarray) -> np.ndarray:
    """The array in memory that kernels reach."""
    made = Memory.allocate(array.nbytes).view(array.dtype).reshape(array.shape)
    made[...] = array
    return made


class Memory:
    """Bytes at a chosen remainder by 64, with surroundings that are looked at later.

    Under the address sanitizer no kernel may as much as read the surroundings.
    """

    alive: ClassVar[WeakSet[Memory]] = WeakSet()
    allocate: ClassVar[Callable[[int], np.ndarray]] = staticmethod(allocated)

    def __init__(self, nbytes: int, remainder: int = 0, seed: int = 0) -> None:
        self.alive.add(self)
        self.margin = 64
        raw = self.allocate(nbytes + 3 * self.margin + 64)
        raw[...] = np.random.default_rng(seed).integers(0, 256, len(raw), np.uint8)
        skip = -raw.ctypes.data % 64 + self.margin + remainder
        self.raw, self.skip, self.nbytes = raw, skip, nbytes
        self.before = raw.copy()

    @property
    def address(self) -> int:
        return self.raw.ctypes.data + self.skip

    def cells(self, dtype: np.dtype | str) -> np.ndarray:
        return self.raw[self.skip : self.skip + self.nbytes].view(dtype)

    def forbid(self, is_forbidden: bool) -> None:
        """Tell the sanitizer that the surroundings may not be touched, or may."""
        name = "__asan_poison_memory_region" if is_forbidden else "__asan_unpoison_memory_region"
        tell, stop = getattr(ctypes.CDLL(None), name), self.raw.ctypes.data + self.raw.nbytes
        tell(ctypes.c_void_p(self.raw.ctypes.data), ctypes.c_size_t(self.skip))
        tell(ctypes.c_void_p(self.address + self.nbytes), ctypes.c_size_t(stop - self.address - self.nbytes))

    def check_surroundings(self) -> None:
        inside = slice(self.skip, self.skip + self.nbytes)
        now, then = self.raw.copy(), self.before.copy()
        now[inside] = then[inside] = 0
        assert (now == then).all(), "bytes outside the array were written"


def run_all(module: shim.Module | OnGpu, launches: Sequence[Launch], seed: int = 0) -> None:
    guarded = list(Memory.alive) if shim.is_sanitized() else []
    for memory in guarded:
        memory.forbid(True)
    for launch in launches:
        module.launch(launch, seed=seed)
    for memory in guarded:
        memory.forbid(False)


def forms_of(transfer: Transfer) -> tuple[np.ndarray, np.ndarray]:
    """Source and target elements of each cell that is copied, from the definition."""
    index = np.indices(transfer.dims).reshape(len(transfer.dims), prod(transfer.dims))
    live = np.ones(index.shape[1], bool)
    for guard in transfer.guards:
        at = np.array(guard.coefficients, np.int64) @ index
        live &= (guard.low <= at) & (at < guard.high)
    ends = []
    for offset, strides in ((transfer.src_offset, transfer.src_strides), (transfer.dst_offset, transfer.dst_strides)):
        along = np.array(strides, np.int64) @ index
        ends.append((offset + along)[live])
    return ends[0], ends[1]


@st.composite
def transfers(draw: st.DrawFn, most_rank: int = 8, guards: bool = True) -> Transfer:
    """A copy of distinct target cells: nested, turned, in any order; the source's strides are anything."""
    rank = draw(st.integers(0, most_rank))
    dims, left = [], 3000
    for _ in range(rank):
        n = draw(st.sampled_from([1, 2, 2, 3, 4, 5, 8, 16, 33]))
        n = min(n, max(left, 1))
        left //= n
        dims.append(n)
    order = draw(st.permutations(range(rank)))
    dst, step = [0] * rank, draw(st.sampled_from([1, 1, 1, 2, 3]))
    for k in order:
        dst[k] = step * draw(st.sampled_from([1, 1, 1, -1]))
        step = step * dims[k] + draw(st.sampled_from([0, 0, 0, 4, 1, 7]))
    like_dst = draw(st.booleans())
    src = dst if like_dst else draw(st.lists(st.integers(-6, 6), min_size=rank, max_size=rank))
    found = []
    for _ in range(draw(st.integers(0, 2)) if guards else 0):
        c = draw(st.lists(st.integers(-3, 3), min_size=rank, max_size=rank))
        low = draw(st.integers(-9, 9))
        found.append(Guard(tuple(c), low, low + draw(st.integers(-1, 20))))
    made = Transfer(tuple(dims), 0, tuple(src), 0, tuple(dst), tuple(found))
    whole = replace(made, guards=())
    src_at, dst_at = forms_of(whole)
    return replace(
        made,
        src_offset=draw(st.integers(0, 5)) - int(src_at.min()),
        dst_offset=draw(st.integers(0, 5)) - int(dst_at.min()),
    )


def spans(transfer: Transfer) -> tuple[int, int]:
    src, dst = forms_of(replace(transfer, guards=()))
    return int(src.max()) + 1, int(dst.max()) + 1


# ------------------------------------------------------------------------------------------ arithmetic only


@given(st.integers(1, 2**31 - 1), st.integers(0, 2**31 - 1))
@example(1, 2**31 - 1)
@example(2**31 - 1, 2**31 - 1)
@example(2**31 - 1, 2**31 - 2)
@example(2**30 + 1, 2**31 - 1)
def test_division_by_magic_numbers(n: int, x: int) -> None:
    magic, shift = divisor(n)
    assert magic < 2**32
    high = (x * magic) >> 32
    assert high + x < 2**32  # no carry is lost on the device
    assert (high + x) >> shift == x // n


def pairs(parts: Sequence[Transfer]) -> list[tuple[int, int]]:
    return sorted(pair for part in parts for pair in zip(*(ends.tolist() for ends in forms_of(part)), strict=True))


@given(transfers(most_rank=10))
@example(Transfer((2,) * 10, 0, (1,) * 10, 0, tuple(2**k * 3 for k in range(10))))
def test_normal_forms_copy_the_same_cells(transfer: Transfer) -> None:
    parts = normal_forms(transfer)
    assert pairs(parts) == pairs([transfer])
    for part in parts:
        assert 1 <= len(part.dims) <= RANK
        assert len(parts) > 1 or part.dims == (1,) or 1 not in part.dims


@given(transfers(guards=False), st.sampled_from([1, 2, 4, 8]), st.integers(0, 3), st.integers(0, 3))
def test_wider_items_are_the_same_bytes(transfer: Transfer, nbytes: int, src: int, dst: int) -> None:
    for part in normal_forms(transfer):
        wide, factor = widen(part, nbytes, src * nbytes, dst * nbytes)
        fine = [(s * factor + k, d * factor + k) for s, d in pairs([wide]) for k in range(factor)]
        assert sorted(fine) == pairs([part])
        assert (src * nbytes) % (factor * nbytes) == 0 and (dst * nbytes) % (factor * nbytes) == 0


def test_contiguous_copies_are_one_dimension_of_the_largest_items() -> None:
    whole = Transfer((4, 6, 8), 0, (48, 8, 1), 0, (48, 8, 1))
    (part,) = normal_forms(whole)
    assert (part.dims, widen(part, 4, 0, 0)[1]) == ((192,), 4)
    turned = Transfer((4, 6, 8), 191, (-48, -8, -1), 191, (-48, -8, -1))
    assert normal_forms(turned) == [part]


def test_a_large_copy_is_cut_into_parts_that_32_bits_number() -> None:
    parts = normal_forms(Transfer((5, 2**31), 3, (0, 2), 7, (2**31, 1)))
    assert sum(prod(part.dims) for part in parts) == 5 * 2**31
    assert all(prod(part.dims) < 2**31 for part in parts)
    starts = sorted((part.dst_offset, part.dims) for part in parts)
    assert [start for start, _ in starts] == [7 + k * 2**28 for k in range(8)]
    assert {dims for _, dims in starts} == {(5, 2**28)}


def test_guards_on_one_dimension_cut_it() -> None:
    guards = (Guard((0, 1), 2, 5), Guard((-1, 0), -2, 9), Guard((1, 1), -50, 50))
    (part,) = normal_forms(Transfer((9, 9), 0, (9, 1), 0, (9, 1), guards))
    assert part == Transfer((3, 3), 2, (9, 1), 2, (9, 1))


# -------------------------------------------------------------------------------------------- copies, fills


@given(
    st.lists(transfers(), min_size=1, max_size=3),
    st.sampled_from([1, 2, 4, 8, 16, 3, 12, 24, 40]),
    st.integers(0, 16),
    st.integers(0, 16),
    st.integers(0, 3),
)
@FEW
@example([Transfer((7,), 0, (0,), 0, (1,))], 4, 0, 0, 0)  # broadcast of one cell
@example([Transfer((), 2, (), 3, ())], 1, 0, 0, 0)
def test_copies(
    module: shim.Module | OnGpu, several: list[Transfer], itemsize: int, src_skip: int, dst_skip: int, seed: int
) -> None:
    unit = min(itemsize & -itemsize, 16)
    beside, at = [], 0
    for one in several:  # targets side by side
        beside.append(replace(one, dst_offset=one.dst_offset + at))
        at += spans(one)[1]
    src = Memory(max(spans(one)[0] for one in beside) * itemsize, src_skip * unit % 64, 1)
    dst = Memory(at * itemsize, dst_skip * unit % 64, 2)
    expected = dst.cells(f"V{itemsize}").copy()
    for one in beside:
        from_, to = forms_of(one)
        expected[to] = src.cells(f"V{itemsize}")[from_]
    run_all(module, copies(beside, itemsize, src.address, dst.address), seed)
    assert dst.cells(f"V{itemsize}").tobytes() == expected.tobytes()
    dst.check_surroundings()
    assert (src.raw == src.before).all()


@given(transfers(), st.sampled_from([1, 2, 4, 8, 16, 12, 24]), st.integers(0, 16), st.integers(0, 3), st.booleans())
@FEW
def test_fills(
    module: shim.Module | OnGpu, transfer: Transfer, itemsize: int, skip: int, seed: int, even: bool
) -> None:
    unit = min(itemsize & -itemsize, 16)
    value = bytes([7]) * itemsize if even else bytes(range(1, itemsize + 1))
    dst = Memory(spans(transfer)[1] * itemsize, skip * unit % 64, 2)
    expected = dst.cells(f"V{itemsize}").copy()
    expected[forms_of(transfer)[1]] = np.frombuffer(value, f"V{itemsize}")
    run_all(module, fills([transfer], value, dst.address), seed)
    assert dst.cells(f"V{itemsize}").tobytes() == expected.tobytes()
    dst.check_surroundings()


def test_many_copies_go_in_few_launches(module: shim.Module | OnGpu) -> None:
    src, dst = placed(np.arange(4000, dtype=np.int32)), placed(np.zeros(4000, np.int32))
    many = [Transfer((9,), 10 * k, (1,), 10 * (399 - k), (1,)) for k in range(400)]
    launches = copies(many, 4, src.ctypes.data, dst.ctypes.data)
    run_all(module, launches, 5)
    assert len(launches) <= 41
    assert (dst.reshape(400, 10)[:, :9] == src.reshape(400, 10)[::-1, :9]).all()
    assert not dst.reshape(400, 10)[:, 9].any()


def test_blocks_take_several_tiles_where_there_are_few(module: shim.Module | OnGpu) -> None:
    src, dst = placed(np.arange(20000, dtype=np.uint16)), placed(np.zeros(20000, np.uint16))
    (launch,) = copies([Transfer((20000,), 0, (1,), 19999, (-1,))], 2, src.ctypes.data, dst.ctypes.data)
    module.launch(replace(launch, grid=(3, 1, 1)), seed=1)
    assert (dst == src[::-1]).all()


def test_nothing_to_copy_launches_nothing() -> None:
    assert copies([], 4, 0, 0) == []
    assert copies([Transfer((3, 0), 0, (1, 1), 0, (1, 1))], 4, 0, 0) == []
    assert copies([Transfer((3,), 0, (1,), 0, (1,), (Guard((1,), 5, 9),))], 4, 0, 0) == []


@pytest.mark.parametrize(
    ("transfer", "itemsize", "dst", "words"),
    [
        (Transfer((3, 4), 0, (4, 1), 0, (0, 1)), 4, 0, "must not be 0"),
        (Transfer((3, 4), 0, (4, 1), 0, (1,)), 4, 0, "of one length"),
        (Transfer((3,), 0, (1,), 0, (1,)), 4, 2, "must be multiples of 4"),
        (Transfer((5, 5), 0, (5, 1), 0, (5, 1), tuple(Guard((1, k), 0, 4) for k in range(1, 18))), 4, 0, "17 guards"),
    ],
)
def test_what_cannot_be_launched_is_said(transfer: Transfer, itemsize: int, dst: int, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        copies([transfer], itemsize, 0, dst)


# --------------------------------------------------------------------------------------------------- merges

MERGED = st.sampled_from(kernels.MERGES)
DTYPES = st.sampled_from(kernels.DTYPES)


def draw_cells(n: int, dtype: str, seed: int) -> np.ndarray:
    """Cells of all kinds: NaNs, infinities, both zeros, subnormals and the ends of integers among them."""
    rng, made = np.random.default_rng(seed), np.dtype(dtype)
    if made.kind != "f":
        raw = rng.integers(0, 256, n * made.itemsize, np.uint8)
        return raw.view(made) if made.kind != "b" else raw < 128
    cells = (rng.normal(size=n) * 10.0 ** rng.integers(-6, 5, n)).astype(made)
    odd = np.array([0, -0.0, 1, -1, np.inf, -np.inf, np.nan, np.finfo(made).max, np.finfo(made).smallest_subnormal])
    return np.where(rng.random(n) < 0.4, rng.choice(odd, n).astype(made), cells)


def same_numbers(one: np.ndarray, two: np.ndarray) -> bool:
    """Bit for bit, but for the bits of NaNs, and the sign of zeros, which NumPy's minimum and maximum leave open."""
    return one.dtype == two.dtype and bool(np.array_equal(one, two, equal_nan=one.dtype.kind == "f"))


@st.composite
def mergings(draw: st.DrawFn) -> tuple[tuple[int, ...], list[tuple[int, tuple[int, ...]]]]:
    """Extents, and an offset and strides for the target and for each part; the target's cells are distinct."""
    rank = draw(st.integers(0, 4))
    dims = tuple(draw(st.lists(st.sampled_from([1, 2, 3, 4, 7]), min_size=rank, max_size=rank)))
    count = draw(st.sampled_from([1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 31, 32, 33, 64, 70]))

    def laid_out(k: int) -> tuple[int, tuple[int, ...]]:
        rng = np.random.default_rng(seeds + k)
        strides, step = [0] * rank, 1
        for axis in rng.permutation(rank):
            strides[axis] = int(step * rng.choice([1, 1, -1]))
            step = step * dims[axis] + int(rng.integers(0, 3))
        first = sum(-s * (n - 1) for s, n in zip(strides, dims, strict=True) if s < 0)
        return first + int(rng.integers(0, 3)), tuple(strides)

    seeds = draw(st.integers(0, 10**6))
    return dims, [laid_out(k) for k in range(count + 1)]


def strided_view(memory: Memory, dtype: str, dims: tuple[int, ...], place: tuple[int, tuple[int, ...]]) -> np.ndarray:
    size = np.dtype(dtype).itemsize
    return np.ndarray(dims, dtype, memory.cells(dtype), place[0] * size, [s * size for s in place[1]])


@given(mergings(), MERGED, DTYPES, st.sampled_from([None, None, 2, 3, 4, 32]), st.integers(0, 3))
@FEW
@example(((3,), [(0, (1,))] * 34), "minimum", "float32", 2, 0)  # more parts than a tree holds
@example(((3,), [(0, (1,))] * 33), "add", "float16", 2, 0)
def test_merges(
    module: shim.Module | OnGpu, work: tuple, function: str, dtype: str, fan_in: int | None, seed: int
) -> None:
    dims, places = work
    size = np.dtype(dtype).itemsize
    memories = []
    for k, (first, strides) in enumerate(places):
        cells = first + sum(s * (n - 1) for s, n in zip(strides, dims, strict=True) if s > 0) + 1
        memories.append(Memory(cells * size, size, k))
        memories[-1].cells(dtype)[...] = draw_cells(cells, dtype, seed + k)
    views = [strided_view(memory, dtype, dims, place) for memory, place in zip(memories, places, strict=True)]
    at = [(memory.address + first * size, strides) for memory, (first, strides) in zip(memories, places, strict=True)]
    if fan_in is not None and fan_in < len(places) - 1 and len(places) - 1 > kernels.PARTS:
        with pytest.raises(ValueError, match=f"a tree of {len(places) - 1} parts, {fan_in} at a time, is too large"):
            kernels.merges(function, dtype, dims, at, fan_in)
        return
    monoid = next(m for m in MONOIDS.values() if m.ufunc == function)
    with np.errstate(all="ignore"):
        (found,) = merge_states(monoid, np, [(view.copy(),) for view in views[1:]], fan_in)
    expected = memories[0].cells(dtype).copy()
    np.ndarray(dims, dtype, expected, places[0][0] * size, [s * size for s in places[0][1]])[...] = found
    before = [memory.raw.copy() for memory in memories[1:]]
    run_all(module, kernels.merges(function, dtype, dims, at, fan_in), seed)
    assert same_numbers(memories[0].cells(dtype), expected)
    memories[0].check_surroundings()
    assert all((memory.raw == was).all() for memory, was in zip(memories[1:], before, strict=True)), (
        "a part was written"
    )


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_a_tree_is_not_a_row(module: shim.Module | OnGpu, dtype: str) -> None:
    values = placed(np.array([[1e4], [1], [-1e4], [1e-3], [0.3]], dtype))
    found = []
    for fan_in in (None, 2, 3):
        out = placed(np.zeros(1, dtype))
        at = [(array.ctypes.data, (1,)) for array in (out, *values)]
        run_all(module, kernels.merges("add", dtype, (1,), at, fan_in))
        found.append(out[0])
    a, b, c, d, e = values[:, 0]
    assert found == [(((a + b) + c) + d) + e, ((a + b) + (c + d)) + e, ((a + b) + c) + (d + e)]


def test_every_float16_is_rounded_as_numpy_does(module: shim.Module | OnGpu) -> None:
    every = placed(np.arange(1 << 16, dtype=np.uint16)).view(np.float16)
    for function, by in (("add", 0.333), ("multiply", 0.0123), ("multiply", 1.0), ("maximum", -0.5)):
        other, out = placed(np.full(1 << 16, by, np.float16)), placed(np.zeros(1 << 16, np.float16))
        at = [(array.ctypes.data, (1,)) for array in (out, every, other)]
        run_all(module, kernels.merges(function, "float16", (1 << 16,), at))
        with np.errstate(all="ignore"):
            assert same_numbers(out, getattr(np, function)(every, other))


@pytest.mark.parametrize(
    ("places", "fan_in", "words"),
    [
        ([(0, (1,))], None, "give a target and at least one part"),
        ([(0, (1,)), (0, (1,))], 1, "fan_in is 1; at least 2"),
        ([(0, (1,)), (2, (1,))], None, "address 2 must be a multiple of 4"),
        ([(0, (1,)), (0, (1, 1))], None, "must have 1 values each"),
    ],
)
def test_what_cannot_be_merged_is_said(places: list, fan_in: int | None, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        kernels.merges("add", "float32", (5,), places, fan_in)


# --------------------------------------------------------------------------------- scatters in a fixed order


@st.composite
def scatterings(draw: st.DrawFn) -> tuple[int, tuple[int, ...], int, bool]:
    """Turns, extents of the lanes, cells of each lane, and whether all lanes have the same cells."""
    rank = draw(st.integers(0, 3))
    lanes = tuple(draw(st.lists(st.sampled_from([1, 2, 3, 5, 17]), min_size=rank, max_size=rank)))
    return draw(st.sampled_from([0, 1, 2, 5, 33])), lanes, draw(st.integers(1, 9)), draw(st.booleans())


@pytest.mark.heavy(2)
@given(scatterings(), st.sampled_from((*kernels.MERGES, "replace")), DTYPES, st.integers(0, 99))
@FEW
def test_scatters_go_turn_by_turn(
    module: shim.Module | OnGpu, work: tuple, function: str, dtype: str, seed: int
) -> None:
    turns, lanes, cells, is_shared = work
    size, rng = np.dtype(dtype).itemsize, np.random.default_rng(seed)
    axis = int(rng.integers(0, len(lanes) + 1))  # of the turns, and of the cells that are named
    shape = (*lanes[:axis], turns, *lanes[axis:])
    made = (*lanes[:axis], cells, *lanes[axis:])
    out, updates = Memory(int(np.prod(made)) * size, size, 1), Memory(int(np.prod(shape)) * size, 0, 2)
    target, given_ = out.cells(dtype).reshape(made), updates.cells(dtype).reshape(shape)
    for k, cells_of in enumerate((target, given_)):
        cells_of[...] = draw_cells(cells_of.size, dtype, seed + k).reshape(cells_of.shape)
    named = rng.integers(0, cells, [turns] if is_shared else shape)
    named = named.reshape([turns if k == axis else 1 for k in range(len(shape))]) if is_shared else named
    at = placed(named * (target.strides[axis] // size))
    spread = np.broadcast_to(at, shape)
    expected = target.copy()
    with np.errstate(all="ignore"):
        for place in np.ndindex(*shape):
            to = (*place[:axis], int(np.broadcast_to(named, shape)[place]), *place[axis + 1 :])
            x = given_[place]
            expected[to] = x if function == "replace" else getattr(np, function)(expected[to], x)

    def strided(array: np.ndarray) -> kernels.Strided:
        steps = [step // array.itemsize for step in array.strides]
        turn = steps.pop(axis)
        return kernels.Strided(array.__array_interface__["data"][0], tuple(steps), turn)

    launches = kernels.scatters(function, dtype, turns, lanes, strided(target), strided(spread), strided(given_))
    run_all(module, launches, seed)
    assert same_numbers(target, expected)
    assert not turns or turns < 2 or launches[0].grid[1] > 1, "a lane's cells are shared out"
    out.check_surroundings()


def test_sums_of_many_updates_have_one_order(module: shim.Module | OnGpu) -> None:
    rng = np.random.default_rng(0)
    updates, at = placed(rng.normal(size=3000).astype(np.float32)), placed(rng.integers(0, 40, 3000))
    expected = np.zeros(40, np.float32)
    np.add.at(expected, at, updates)
    turned = np.zeros(40, np.float32)
    np.add.at(turned, at[::-1], updates[::-1])
    assert (turned != expected).any(), "the order of these sums shows"
    for seed in range(5):
        out = placed(np.zeros(40, np.float32))
        places = [kernels.Strided(array.ctypes.data, (), turn) for array, turn in ((out, 0), (at, 1), (updates, 1))]
        run_all(module, kernels.scatters("add", "float32", 3000, (), *places), seed)
        assert (out == expected).all()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"function": "subtract"}, "'subtract' is not one of add, multiply"),
        ({"dtype": "complex64"}, "dtype 'complex64' is not one of bool"),
        ({"turns": 1 << 31}, "wrong strides or turns"),
        ({"lanes": (3, 4)}, "wrong strides or turns"),
        ({"out": kernels.Strided(2, (1,))}, "address 2 must be a multiple of 4"),
        ({"at": kernels.Strided(4, (1,))}, "address 4 must be a multiple of 8"),
    ],
)
def test_what_cannot_be_scattered_is_said(change: dict, words: str) -> None:
    place = kernels.Strided(64, (1,), 5)
    work = {"function": "add", "dtype": "float32", "turns": 3, "lanes": (5,), "out": place, "at": place}
    with pytest.raises(ValueError, match=words):
        kernels.scatters(**{**work, "updates": place, **change})


# -------------------------------------------------------------------------------------------------- epilogues


def activated(x: np.ndarray, activation: str) -> np.ndarray:
    """In float64, from the definitions."""
    with np.errstate(over="ignore"):
        match activation:
            case "relu":
                return np.where(x < 0, 0, x)
            case "sigmoid":
                return 1 / (1 + np.exp(-x))
            case "tanh":
                return np.tanh(x)
            case "gelu":
                return x * 0.5 * (1 + np.vectorize(math.erf, otypes=[float])(x / math.sqrt(2)))
    return x


def close(one: np.ndarray, two: np.ndarray, steps: int = 16) -> bool:
    """Within some units in the last place of numbers of at least 1e-3, NaN where NaN."""
    room = steps * np.finfo(one.dtype).eps
    return bool(np.allclose(one, two, rtol=room, atol=room * 1e-3, equal_nan=True))


@given(
    st.integers(0, 9),
    st.sampled_from([1, 2, 3, 4, 5, 8, 31, 64, 129, 300]),
    st.sampled_from(sorted(kernels.LANES)),
    st.sampled_from(ACTIVATIONS),
    st.booleans(),
    st.integers(0, 4),
    st.integers(0, 3),
    st.integers(0, 4),
)
@FEW
def test_epilogues(
    module: shim.Module | OnGpu,
    rows: int,
    columns: int,
    dtype: str,
    activation: str,
    has_bias: bool,
    skip: int,
    seed: int,
    period: int,
) -> None:
    """The bias is of columns or, with a period, of rows, whose values begin again after so many."""
    size, many = np.dtype(dtype).itemsize, period or columns
    x, bias = Memory(rows * columns * size, skip * size, 1), Memory(many * size, skip // 2 * size, 2)
    rng = np.random.default_rng(seed)
    x.cells(dtype)[...] = rng.normal(size=rows * columns) * 3
    x.cells(dtype)[::7] = rng.choice([np.nan, np.inf, -0.0, -100, 100, 0], len(x.cells(dtype)[::7]))
    bias.cells(dtype)[...] = rng.normal(size=many)
    given = x.cells(dtype).reshape(rows, columns)
    added = bias.cells(dtype)[np.arange(rows) % period][:, None] if period else bias.cells(dtype)
    summed = given + added if has_bias else given.copy()
    at = bias.address if has_bias else None
    work = kernels.epilogues(x.address, at, rows, columns, dtype, activation, period)
    run_all(module, work, seed)
    if activation in ("none", "relu"):
        assert same_numbers(given, np.where(summed < 0, 0, summed).astype(dtype) if activation == "relu" else summed)
    else:
        tail = activation == "gelu"  # what 1 + erf loses near -1 is a matter of the formula
        inside = ~(summed < -2) if tail else np.ones_like(summed, bool)
        expected = activated(summed.astype(float), activation)
        with np.errstate(invalid="ignore"):
            assert close(given[inside], expected[inside])
            assert np.abs(given[~inside] - np.nan_to_num(expected[~inside])).max(initial=0) < 1e-5
    x.check_surroundings()


def test_epilogues_take_sixteen_bytes_at_a_time_where_they_can() -> None:
    def entry(x: int, bias: int | None, columns: int) -> str:
        return kernels.epilogues(x, bias, 4, columns, "float32", "tanh")[0].entry

    assert entry(64, 128, 8) == "epilogue_float32x4"
    assert {entry(64, 132, 8), entry(68, 128, 8), entry(64, 128, 6)} == {"epilogue_float32x1"}
    assert kernels.epilogues(0, None, 4, 8, "float32") == []


def test_epilogues_of_many_rows_are_cut() -> None:
    launches = kernels.epilogues(0, 1 << 40, 1 << 30, 12, "float32", "relu")
    totals = [int(launch.args[2]) for launch in launches]
    assert sum(totals) == (1 << 30) * 3 and max(totals) < 1 << 31
    starts = [int(launch.args[0]) for launch in launches]
    assert starts[0] == 0 and starts[1] == totals[0] * 16
    by_row = kernels.epilogues(0, 1 << 40, 7 << 27, 12, "float32", "relu", 7)
    assert len(by_row) > 1 and all(int(launch.args[2]) // 3 % 7 == 0 for launch in by_row)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((0, None, 1, 1, "float16", "relu"), "dtype 'float16' is not one of float32, float64"),
        ((0, None, 1, 1, "float32", "swish"), "activation 'swish' is not one of none, relu"),
        ((4, 2, 1, 1, "float32", "relu"), "address 2 must be a multiple of 4"),
        ((0, 0, 1, 1 << 31, "float32", "relu"), "rows of 2147483648 cells are too long"),
    ],
)
def test_what_cannot_be_an_epilogue_is_said(arguments: tuple, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        kernels.epilogues(*arguments)


# ----------------------------------------------------------------------------------------------- convolution


@st.composite
def convolving(draw: st.DrawFn) -> Convolving:
    """A convolution without strides of arrays."""
    rank = draw(st.integers(1, 3))

    def each(least: int, most: int) -> tuple[int, ...]:
        return tuple(draw(st.lists(st.integers(least, most), min_size=rank, max_size=rank)))

    return Convolving(
        draw(st.sampled_from(["float32", "float64"])),
        draw(st.integers(1, 2)),
        draw(st.integers(1, 3)),
        draw(st.sampled_from([1, 2, 3, 12])),
        draw(st.sampled_from([1, 2, 4, 5, 9, 17, 40])),
        each(1, 5),
        each(1, 3),
        each(1, 2),
        each(1, 2),
        *((0,) * (rank + 2),) * 3,
        draw(st.sampled_from(ACTIVATIONS)),
    )


def convolved(work: Convolving, x: np.ndarray, w: np.ndarray, bias: np.ndarray | None) -> np.ndarray:
    """Window by window, from the definition, in float64."""
    out = np.zeros((work.samples, work.groups * work.width, *work.extents))
    for cell in np.ndindex(*work.extents):
        window = tuple(
            slice(o * s, o * s + (k - 1) * d + 1, d)
            for o, s, k, d in zip(cell, work.strides, work.kernel, work.dilations, strict=True)
        )
        for g in range(work.groups):
            made = slice(g * work.width, (g + 1) * work.width)
            part = x[(slice(None), slice(g * work.channels, (g + 1) * work.channels), *window)]
            flat = part.reshape(work.samples, -1).astype(float)
            out[(slice(None), made, *cell)] = flat @ w[made].reshape(work.width, -1).T.astype(float)
    if bias is not None:
        out += bias.astype(float).reshape(-1, *(1,) * len(work.extents))
    return activated(out, work.activation)


def margins(shape: tuple[int, ...], rng: np.random.Generator) -> tuple[list[int], tuple[slice, ...]]:
    """The shape of an array with room around a block, and where the block lies in it."""
    low, high = (rng.integers(0, 2, len(shape)).tolist() for _ in range(2))
    place = tuple(slice(a, a + n) for n, a in zip(shape, low, strict=True))
    return [n + a + b for n, a, b in zip(shape, low, high, strict=True)], place


@pytest.mark.heavy(2)
@given(convolving(), st.booleans(), st.booleans(), st.integers(0, 20))
@settings(max_examples=100)
def test_convolutions(module: shim.Module | OnGpu, work: Convolving, has_bias: bool, exact: bool, seed: int) -> None:
    rng = np.random.default_rng(seed)
    reach = [
        (o - 1) * s + (k - 1) * d + 1
        for o, s, k, d in zip(work.extents, work.strides, work.kernel, work.dilations, strict=True)
    ]
    channels = work.groups * work.width
    shapes = (
        (work.samples, work.groups * work.channels, *reach),
        (channels, work.channels, *work.kernel),
        (work.samples, channels, *work.extents),
    )
    blocks = []
    for shape in shapes:
        larger, place = margins(shape, rng)
        drawn = rng.integers(-4, 5, larger) if exact else rng.normal(size=larger)
        whole = placed(drawn.astype(work.dtype))
        blocks.append(whole[place])
    (x, w, out), bias = blocks, placed(rng.integers(-4, 5, channels).astype(work.dtype))
    strides = [tuple(step // block.itemsize for step in block.strides) for block in blocks]
    laid_out = replace(work, x_strides=strides[0], w_strides=strides[1], out_strides=strides[2])
    beside = whole.copy()
    launches = kernels.convolutions(
        laid_out, out.ctypes.data, x.ctypes.data, w.ctypes.data, bias.ctypes.data if has_bias else None
    )
    run_all(module, launches, seed)
    expected = convolved(work, x, w, bias if has_bias else None)
    if exact and work.activation in ("none", "relu"):
        np.testing.assert_array_equal(out, expected)
    else:
        scale = np.abs(convolved(replace(work, activation="none"), abs(x), abs(w), abs(bias))).max() + 1
        assert np.abs(out - expected).max() <= 64 * np.finfo(work.dtype).eps * scale
    out[...] = beside[place]
    assert (whole == beside).all(), "cells beside the block were written"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"dtype": "int32"}, "dtype 'int32' is not one of"),
        ({"activation": "elu"}, "activation 'elu' is not one of"),
        ({"kernel": (3, 3)}, "must have one to three spatial axes, the same ones"),
        ({"extents": (1 << 31,)}, "less than 2147483648 is numbered"),
    ],
)
def test_what_cannot_be_convolved_is_said(change: dict, words: str) -> None:
    work = Convolving("float32", 1, 1, 3, 16, (30,), (3,), (1,), (1,), (96, 32, 1), (9, 3, 1), (480, 30, 1))
    with pytest.raises(ValueError, match=words):
        kernels.convolutions(replace(work, **change), 0, 0, 0)


# ---------------------------------------------------------------------------------------------- random words

KNOWN = (
    ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
)
"""Random123's kat_vectors of philox4x32-10: counter, key, words."""


@pytest.mark.parametrize(("counter", "key", "words"), KNOWN)
def test_published_words(module: shim.Module | OnGpu, counter: str, key: str, words: str) -> None:
    counters = placed(np.array([int(word, 16) for word in counter.split()], np.uint32))
    out = placed(np.zeros(8, np.uint32))
    halves = [np.uint32(int(word, 16)) for word in key.split()]
    arguments = np.uint64(counters.ctypes.data), np.uint64(out.ctypes.data), np.uint32(1), *halves
    module.launch(Launch("philox_counters", (1, 1, 1), (32, 1, 1), arguments))
    assert [f"{word:08x}" for word in out.tolist()] == [*words.split(), *["00000000"] * 4]


@st.composite
def boxes(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Start, shape and the extents of the tensor around."""
    rank = draw(st.integers(0, 9))
    extents, start, shape = [], [], []
    for _ in range(rank):
        n = draw(st.sampled_from([1, 1, 2, 3, 4, 5, 8, 17] if rank < 5 else [1, 2, 3]))
        a = draw(st.integers(0, n - 1))
        extents.append(n)
        start.append(a)
        shape.append(draw(st.integers(1, n - a)) if draw(st.booleans()) else n - a)
    return tuple(start), tuple(shape), tuple(extents)


KEYS = st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1))


@given(boxes(), KEYS, st.integers(1, 4), st.integers(0, 3))
@FEW
@example(((0,) * 9, (1,) * 9, (2,) * 9), (1, 2), 1, 0)
@example(((1,) * 9, (1, 2) * 4 + (1,), (3,) * 9), (1, 2), 3, 0)
def test_random_words(module: shim.Module | OnGpu, box: tuple, key: tuple[int, int], each: int, seed: int) -> None:
    expected = region_words(np, *box, key, each)
    out = Memory(expected.nbytes, 4, seed)
    run_all(module, kernels.random_words(out.address, key, *box, each), seed)
    assert (out.cells(np.uint32) == expected.ravel()).all()
    out.check_surroundings()


ENDS = (0.0, 1.0), (-3.7, 1e-3), (1.0, 1.0000002), (-1e30, 1e30)
"""Of uniforms; between the third two lie few numbers, and sums round up to the larger one."""


@given(boxes(), KEYS, st.sampled_from(["float32", "float64"]), st.sampled_from(ENDS), st.integers(0, 3))
@FEW
@example(((0,), (99,), (99,)), (1, 2), "float32", ENDS[2], 0)
def test_random_uniforms(
    module: shim.Module | OnGpu, box: tuple, key: tuple[int, int], dtype: str, ends: tuple[float, float], seed: int
) -> None:
    size = np.dtype(dtype).itemsize
    words = region_words(np, *box, key, size // 4).astype(np.uint64).reshape(-1, size // 4)
    if dtype == "float32":
        unit = (words[:, 0] >> 8).astype(np.float32) * np.float32(2.0**-24)
    else:
        unit = ((words[:, 0] >> 5) * 2.0**26 + (words[:, 1] >> 6)) * 2.0**-53
    low, high = ends
    least, most = np.dtype(dtype).type(low), np.dtype(dtype).type(high)
    expected = np.minimum(least + (most - least) * unit, np.nextafter(most, least))
    out = Memory(unit.size * size, size, seed)
    run_all(module, kernels.random_uniforms(out.address, key, *box, dtype, low, high), seed)
    assert out.cells(dtype).tobytes() == expected.tobytes()
    assert (out.cells(dtype) >= least).all() and (out.cells(dtype) < most).all()
    out.check_surroundings()


def test_words_of_a_large_tensor_have_their_own_counters(module: shim.Module | OnGpu) -> None:
    start, extents = (3, 2**40 + 1), (9, 2**41)
    expected = region_words(np, start, (2, 9), extents, (5, 6))
    out = placed(np.zeros((2, 9), np.uint32))
    run_all(module, kernels.random_words(out.ctypes.data, (5, 6), start, (2, 9), extents))
    assert (out == expected[..., 0]).all()


@given(boxes(), st.integers(1, 4), st.integers(4, 12))
@settings(max_examples=50)
def test_parts_of_rows_hold_each_word_once(box: tuple, each: int, bits: int) -> None:
    def words(rows: Rows) -> list[tuple[int, int]]:
        count = prod(n for n, _ in rows.axes)
        index = np.indices([n for n, _ in rows.axes]).reshape(len(rows.axes), count)
        firsts = rows.first + np.array([s for _, s in rows.axes], np.int64) @ index
        return [(rows.at + r * rows.run + k, int(f) + k) for r, f in enumerate(firsts) for k in range(rows.run)]

    whole = Rows.of(*box, each)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels.philox, "MAX_CELLS", 1 << bits)
        patch.setattr(kernels.philox, "RANK", 3)
        parts = list(whole.parts())
        assert all(len(p.axes) < 3 and prod(n for n, _ in p.axes) * p.groups < 1 << bits for p in parts)
    cells = np.arange(prod(box[2])).reshape(box[2])[tuple(slice(a, a + n) for a, n in zip(*box[:2], strict=True))]
    expected = [(k, int(cells.ravel()[k // each]) * each + k % each) for k in range(cells.size * each)]
    assert sorted(pair for part in parts for pair in words(part)) == expected


# -------------------------------------------------------------------------------------------------- structs


STRUCTS = (
    *(structs.GUARD, structs.TRANSFER, structs.BATCH, structs.PART),
    *(structs.MERGE, structs.SCATTER, structs.CONVOLUTION, structs.WORDS),
)
"""What is passed by value, in the order in which the kernel `layout` tells of it."""


def layout_of(struct: np.dtype[np.void]) -> list[int]:
    """The size of a struct, then the offsets of its fields: what the kernel `layout` finds on the device."""
    assert struct.fields is not None
    return [struct.itemsize, *(struct.fields[name][1] for name in struct.names or ())]


def test_structs_lie_as_the_compiler_lays_them(module: shim.Module | OnGpu) -> None:
    assert layout_of(structs.GUARD) == [80, 0, 64, 72]
    expected = [number for struct in STRUCTS for number in layout_of(struct)]
    out = placed(np.zeros(len(expected) + 1, np.uint64))
    module.launch(Launch("layout", (1, 1, 1), (32, 1, 1), (np.uint64(out.ctypes.data),)))
    assert out[:-1].tolist() == expected and out[-1] == 0
    for struct in (structs.BATCH, structs.MERGE, structs.SCATTER, structs.CONVOLUTION, structs.WORDS):
        assert struct.itemsize + 64 <= 4096  # what a kernel's parameters may take on every GPU


# --------------------------------------------------------------------------------------------------------- rows


def rows_by_numpy(kind: str, x: np.ndarray, scale: np.ndarray, bias: np.ndarray | None, epsilon: float) -> np.ndarray:
    wide = x.astype(float)
    if kind == "softmax":
        e = np.exp(wide - wide.max(1, keepdims=True))
        return e / e.sum(1, keepdims=True)
    moved = wide - wide.mean(1, keepdims=True) if kind == "centered" else wide
    made = moved / np.sqrt((moved * moved).mean(1, keepdims=True) + epsilon) * scale
    return made if bias is None else made + bias


@given(
    st.integers(0, 5),
    st.sampled_from([1, 2, 3, 31, 64, 255, 256, 257, 600]),
    st.sampled_from(sorted(kernels.LANES)),
    st.sampled_from(["softmax", "centered", "plain"]),
    st.booleans(),
    st.booleans(),
    st.integers(0, 3),
)
@FEW
def test_rows(
    module: shim.Module | OnGpu,
    rows: int,
    columns: int,
    dtype: str,
    kind: str,
    has_bias: bool,
    in_place: bool,
    seed: int,
) -> None:
    """Every cell against NumPy in double precision; nothing beside the rows is written."""
    size, rng = np.dtype(dtype).itemsize, np.random.default_rng(seed)
    x, out = (Memory(rows * columns * size, 0, k) for k in (1, 2))
    scale, bias = (Memory(columns * size, 0, k) for k in (3, 4))
    x.cells(dtype)[...] = rng.normal(size=rows * columns) * 3
    scale.cells(dtype)[...], bias.cells(dtype)[...] = rng.normal(size=columns), rng.normal(size=columns)
    is_scaled = kind != "softmax"
    given_bias = bias.cells(dtype) if has_bias and is_scaled else None
    wanted = rows_by_numpy(kind, x.cells(dtype).reshape(rows, columns), scale.cells(dtype), given_bias, 1e-3)
    target = x if in_place else out
    work = kernels.rows_of(
        *(kind, target.address, x.address, rows, columns, dtype),
        scale=scale.address if is_scaled else None,
        bias=None if given_bias is None else bias.address,
        epsilon=1e-3,
    )
    run_all(module, work, seed)
    found = target.cells(dtype).reshape(rows, columns)
    np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=2e-6)
    x.check_surroundings()
    out.check_surroundings()


@pytest.mark.parametrize("dtype", sorted(kernels.LANES))
def test_a_softmax_of_numbers_that_are_not_finite_is_numpys(module: shim.Module | OnGpu, dtype: str) -> None:
    given = np.array([[0, np.nan, 1], [np.inf, 0, 1], [-np.inf, -np.inf, 0], [-np.inf] * 3], dtype)
    x = Memory(given.nbytes, 0, 1)
    x.cells(dtype)[...] = given.ravel()
    run_all(module, kernels.rows_of("softmax", x.address, x.address, 4, 3, dtype))
    with np.errstate(invalid="ignore"):
        wanted = rows_by_numpy("softmax", given, given, None, 0)
    np.testing.assert_array_equal(x.cells(dtype).reshape(4, 3), wanted.astype(dtype))


@pytest.mark.parametrize(
    ("words", "arguments", "more"),
    [
        ("mean is a softmax without scale and bias, or centered or plain", ("mean", 0, 64, 2, 3, "float32"), {}),
        ("softmax is a softmax without scale", ("softmax", 0, 64, 2, 3, "float32"), {"scale": 0}),
        ("plain is a softmax without scale", ("plain", 0, 64, 2, 3, "float32"), {}),
        ("dtype 'float16' is not one of float32, float64", ("softmax", 0, 64, 2, 3, "float16"), {}),
        ("less than 2147483648 of each are numbered", ("softmax", 0, 64, 1 << 31, 3, "float32"), {}),
    ],
)
def test_rows_that_cannot_be_are_said(words: str, arguments: tuple[Any, ...], more: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=words):
        kernels.rows_of(*arguments, **more)
