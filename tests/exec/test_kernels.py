"""The kernels' own text, run on the CPU thread by thread, against NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tapestry_exec import kernels, shim
from tapestry_exec.kernels import Launch, copies, divisor, fills, normal_forms, widened
from tapestry_exec.strided import Guard, Transfer

pytestmark = pytest.mark.skipif(shim.found_compiler() is None, reason="no C++ compiler")

FEW = settings(max_examples=120)


@pytest.fixture(scope="module")
def module() -> shim.Module:
    return shim.compile_source(kernels.SOURCE)


class Memory:
    """Bytes at a chosen remainder by 64, with poisoned surroundings that are looked at later."""

    def __init__(self, nbytes: int, remainder: int = 0, seed: int = 0) -> None:
        self.margin = 64
        raw = np.random.default_rng(seed).integers(0, 256, nbytes + 3 * self.margin + 64, np.uint8)
        skip = -raw.ctypes.data % 64 + self.margin + remainder
        self.raw, self.skip, self.nbytes = raw, skip, nbytes
        self.before = raw.copy()

    @property
    def address(self) -> int:
        return self.raw.ctypes.data + self.skip

    def cells(self, dtype: np.dtype | str) -> np.ndarray:
        return self.raw[self.skip : self.skip + self.nbytes].view(dtype)

    def check_surroundings(self) -> None:
        inside = slice(self.skip, self.skip + self.nbytes)
        now, then = self.raw.copy(), self.before.copy()
        now[inside] = then[inside] = 0
        assert (now == then).all(), "bytes outside the array were written"


def run_all(module: shim.Module, launches: Sequence[Launch], seed: int = 0) -> None:
    for launch in launches:
        module.launch(launch, seed=seed)


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
        assert 1 <= len(part.dims) <= kernels.RANK
        assert len(parts) > 1 or part.dims == (1,) or 1 not in part.dims


@given(transfers(guards=False), st.sampled_from([1, 2, 4, 8]), st.integers(0, 3), st.integers(0, 3))
def test_wider_items_are_the_same_bytes(transfer: Transfer, nbytes: int, src: int, dst: int) -> None:
    for part in normal_forms(transfer):
        wide, factor = widened(part, nbytes, src * nbytes, dst * nbytes)
        fine = [(s * factor + k, d * factor + k) for s, d in pairs([wide]) for k in range(factor)]
        assert sorted(fine) == pairs([part])
        assert (src * nbytes) % (factor * nbytes) == 0 and (dst * nbytes) % (factor * nbytes) == 0


def test_contiguous_copies_are_one_dimension_of_the_largest_items() -> None:
    whole = Transfer((4, 6, 8), 0, (48, 8, 1), 0, (48, 8, 1))
    (part,) = normal_forms(whole)
    assert (part.dims, widened(part, 4, 0, 0)[1]) == ((192,), 4)
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
    module: shim.Module, several: list[Transfer], itemsize: int, src_skip: int, dst_skip: int, seed: int
) -> None:
    unit = min(itemsize & -itemsize, 16)
    placed, at = [], 0
    for one in several:  # targets side by side
        placed.append(replace(one, dst_offset=one.dst_offset + at))
        at += spans(one)[1]
    src = Memory(max(spans(one)[0] for one in placed) * itemsize, src_skip * unit % 64, 1)
    dst = Memory(at * itemsize, dst_skip * unit % 64, 2)
    expected = dst.cells(f"V{itemsize}").copy()
    for one in placed:
        from_, to = forms_of(one)
        expected[to] = src.cells(f"V{itemsize}")[from_]
    run_all(module, copies(placed, itemsize, src.address, dst.address), seed)
    assert dst.cells(f"V{itemsize}").tobytes() == expected.tobytes()
    dst.check_surroundings()
    assert (src.raw == src.before).all()


@given(transfers(), st.sampled_from([1, 2, 4, 8, 16, 12, 24]), st.integers(0, 16), st.integers(0, 3), st.booleans())
@FEW
def test_fills(module: shim.Module, transfer: Transfer, itemsize: int, skip: int, seed: int, even: bool) -> None:
    unit = min(itemsize & -itemsize, 16)
    value = bytes([7]) * itemsize if even else bytes(range(1, itemsize + 1))
    dst = Memory(spans(transfer)[1] * itemsize, skip * unit % 64, 2)
    expected = dst.cells(f"V{itemsize}").copy()
    expected[forms_of(transfer)[1]] = np.frombuffer(value, f"V{itemsize}")
    run_all(module, fills([transfer], value, dst.address), seed)
    assert dst.cells(f"V{itemsize}").tobytes() == expected.tobytes()
    dst.check_surroundings()


def test_many_copies_go_in_few_launches(module: shim.Module) -> None:
    src, dst = np.arange(4000, dtype=np.int32), np.zeros(4000, np.int32)
    many = [Transfer((9,), 10 * k, (1,), 10 * (399 - k), (1,)) for k in range(400)]
    launches = copies(many, 4, src.ctypes.data, dst.ctypes.data)
    run_all(module, launches, 5)
    assert len(launches) <= 41
    assert (dst.reshape(400, 10)[:, :9] == src.reshape(400, 10)[::-1, :9]).all()
    assert not dst.reshape(400, 10)[:, 9].any()


def test_blocks_take_several_tiles_where_there_are_few(module: shim.Module) -> None:
    src, dst = np.arange(20000, dtype=np.uint16), np.zeros(20000, np.uint16)
    (launch,) = copies([Transfer((20000,), 0, (1,), 19999, (-1,))], 2, src.ctypes.data, dst.ctypes.data)
    module.launch(replace(launch, grid=(3, 1, 1)), seed=1)
    assert (dst == src[::-1]).all()


def test_nothing_to_copy_is_no_launch() -> None:
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


# -------------------------------------------------------------------------------------------------- structs


def test_structs_lie_as_the_compiler_lays_them(module: shim.Module) -> None:
    expected = kernels.layout_of()
    out = np.zeros(len(expected) + 1, np.uint64)
    module.launch(Launch("layout", (1, 1, 1), (32, 1, 1), (np.uint64(out.ctypes.data),)))
    assert out[:-1].tolist() == expected and out[-1] == 0
    assert kernels.BATCH.itemsize + 32 <= 4096  # what a kernel's parameters may take on every GPU
