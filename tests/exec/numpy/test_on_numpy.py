"""Packing, views and arenas of the NumPy backend against cells listed one by one."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Mapping
from itertools import product
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tapestry_exec import NumpyBackend, SerialBackend, StepFailed, deploy, run
from tapestry_exec.copies import arrays
from tapestry_exec.copies.arrays import Strips, pack, read_piece, read_view, strided_copies, unpack
from tapestry_exec.copies.strided import between, pack_transfers, unpack_transfers
from tapestry_exec.numpy import tuning
from tapestry_exec.numpy.backend import NumpyDevice
from tapestry_plan import MONOIDS, Graph, Mesh, concat, ops, plan
from tapestry_plan.ir import BUILTIN_OPS
from tapestry_plan.steps import Buffer
from tapestry_sets import Allocation, Box, Region, Sett, Stripe, TooManyPieces, View, allocate
from tapestry_sets.views import Piece
from tests.oracles import memory_for, readers
from tests.strategies import views

Stripes = tuple[tuple[int, int, int], ...]
Point = tuple[int, ...]


def holds(stripes: Stripes, z: int) -> bool:
    """Membership in nested stripes (on, off, phase), by their definition."""
    for on, off, phase in stripes:
        z = (z - phase) % (on + off)
        if z >= on:
            return False
    return True


@st.composite
def nested_regions(draw: st.DrawFn) -> tuple[Region, list[Point]]:
    """A product of nested stripes in a box that may start anywhere, and its points in row-major order."""
    axes, setts, shape, start = [], [], [], []
    for _ in range(draw(st.integers(0, 3))):
        n, low = draw(st.integers(1, 14)), draw(st.integers(-5, 5))
        stripe = st.tuples(st.integers(1, 6), st.integers(0, 4), st.integers(-3, 9))
        stripes: Stripes = tuple(draw(st.lists(stripe, max_size=2)))
        setts.append(Sett(*(Stripe(*s) for s in stripes)))
        axes.append([z for z in range(low, low + n) if holds(stripes, z)])
        shape.append(n)
        start.append(low)
    return Region(tuple(shape), setts, tuple(start)), list(product(*axes))


def over(box: Box) -> np.ndarray:
    """An array over a box, every cell with a value of its own."""
    return np.arange(1, box.size + 1, dtype=np.int64).reshape(box.shape)


def strides_of(box: Box) -> tuple[int, ...]:
    """Of an array over a box, in elements."""
    return tuple(n // 8 for n in over(box).strides)


def around(draw: Callable[..., int], region: Region) -> Box:
    """A box that holds a region's box, perhaps with cells around it."""
    margins = [(draw(st.integers(0, 2)), draw(st.integers(0, 2))) for _ in region.shape]
    start = tuple(a - m[0] for a, m in zip(region.start, margins, strict=True))
    return Box(start, tuple(n + sum(m) for n, m in zip(region.shape, margins, strict=True)))


def at(array: np.ndarray, box: Box, points: list[Point]) -> list[int]:
    """The values of an array over a box at points, one by one."""
    return [int(array[tuple(x - a for x, a in zip(p, box.start, strict=True))]) for p in points]


@given(nested_regions(), st.data())
def test_pack_lists_the_cells_in_row_major_order(case: tuple[Region, list[Point]], data: st.DataObject) -> None:
    region, points = case
    box = around(data.draw, region)
    array = over(box)
    payload = pack(array, box.start, [region, region])
    assert payload.tolist() == at(array, box, points) * 2
    assert payload.flags.c_contiguous and not np.shares_memory(payload, array)


def test_unpack_of_rank_0() -> None:
    target = np.zeros((), np.int64)
    unpack(np.array([5]), target, (), [Region.full(())])
    assert target.tolist() == 5


@given(nested_regions(), st.data())
def test_unpack_writes_the_cells_and_no_other(case: tuple[Region, list[Point]], data: st.DataObject) -> None:
    region, points = case
    box = around(data.draw, region)
    target, expected = np.zeros(box.shape, np.int64), np.zeros(box.shape, np.int64)
    payload = np.arange(1, len(points) + 1)
    for value, point in zip(payload, points, strict=True):
        expected[tuple(x - a for x, a in zip(point, box.start, strict=True))] = value
    unpack(payload, target, box.start, [region])
    np.testing.assert_array_equal(target, expected)


def test_runs_of_strips_are_as_long_as_cells_lie_together() -> None:
    array = np.arange(60.0).reshape(3, 4, 5)
    for slices, runs in (
        ((slice(0, 3), slice(0, 4), slice(0, 5)), [480]),
        ((slice(0, 3), slice(1, 3), slice(0, 5)), [80] * 3),
        ((slice(1, 2), slice(1, 3), slice(2, 4)), [16] * 2),
        ((slice(0, 3), slice(0, 4, 2), slice(0, 5)), [40] * 6),
    ):
        region = Region.from_slices(array.shape, slices)
        source = Strips.of(array, (20, 5, 1), (0, 0, 0), [region], pack_transfers)
        assert list(map(len, source.list_runs(16))) == runs
        assert b"".join(source.list_runs(16)) == array[slices].tobytes()
        assert not source.list_runs(runs[0] + 1)


@given(nested_regions(), st.data(), st.sampled_from([1, 2]))
def test_strips_pack_and_unpack_what_the_array_holds_by_then(
    case: tuple[Region, list[Point]], data: st.DataObject, copies: int
) -> None:
    region, points = case
    box = around(data.draw, region)
    array = np.zeros(box.shape, np.int64)
    source = Strips.of(array, strides_of(box), box.start, [region] * copies, pack_transfers)
    target = Strips.of(array, strides_of(box), box.start, [region], unpack_transfers)
    assert source.gather().tolist() == [0] * (copies * len(points))
    array[...] = over(box)
    payload = source.gather()
    assert payload.tolist() == at(array, box, points) * copies
    assert payload.dtype == array.dtype and payload.flags.c_contiguous and not np.shares_memory(payload, array)
    for nbytes in (1, 8, 24, 64):
        runs = source.list_runs(nbytes)
        assert not runs or (b"".join(runs) == payload.tobytes() and all(len(run) >= nbytes for run in runs))
    new, expected = -np.arange(1, len(points) + 1), array.copy()
    for value, point in zip(new, points, strict=True):
        expected[tuple(x - a for x, a in zip(point, box.start, strict=True))] = value
    target.scatter(new)
    np.testing.assert_array_equal(array, expected)


def test_strips_reject_another_payload_and_write_nothing() -> None:
    array = np.zeros(3)
    target = Strips.of(array, (1,), (0,), [Region.full((3,))], unpack_transfers)
    with pytest.raises(ValueError, match="unpack: the payload has 2 cells, the regions have 3"):
        target.scatter(np.ones(2))
    with pytest.raises(TypeError, match="unpack: cells are float32, the target's are float64; convert them first"):
        target.scatter(np.ones(3, np.float32))
    assert not array.any()


@given(nested_regions(), st.data())
def test_copies_between_different_boxes(case: tuple[Region, list[Point]], data: st.DataObject) -> None:
    region, points = case
    one, two = around(data.draw, region), around(data.draw, region)
    source, target = over(one), np.zeros(two.shape, np.int64)
    where = strides_of(one), one.start, strides_of(two), two.start, (region,)
    strided_copies(between, source.itemsize, *where).carry(source, target)
    assert at(target, two, points) == at(source, one, points)
    assert np.count_nonzero(target) == len(points)


def test_unpack_rejects_a_payload_of_another_size() -> None:
    region = Region.full((3,))
    with pytest.raises(ValueError, match="payload has 2 cells, the regions have 3"):
        unpack(np.zeros(2), np.zeros(3), (0,), [region])


# -- views -----------------------------------------------------------------------------------------------


@given(views())
def test_read_view_against_numpy(case: tuple[View, np.ndarray]) -> None:
    view, expected = case
    memory = memory_for([view])
    found = read_view(view.pieces, [memory[a] for a in view.allocations], view.shape, "int64")
    np.testing.assert_array_equal(found, expected)


@given(views(), st.data())
def test_read_piece_fills_just_a_region(case: tuple[View, np.ndarray], data: st.DataObject) -> None:
    """From a source block with only the needed bounding box, and into a block that is larger than the region."""
    view, expected = case
    low = tuple(data.draw(st.integers(0, n)) for n in view.shape)
    high = tuple(data.draw(st.integers(a, n)) for a, n in zip(low, view.shape, strict=True))
    region = Region.from_bounds(view.shape, low, high)
    memory = memory_for([view])
    out = np.zeros(view.shape, np.int64)
    for piece in view.pieces:
        block, box = needed_block(view, piece, region, memory)
        read_piece(piece, block, box, out, (0,) * len(view.shape), region)
    inside = tuple(slice(a, b) for a, b in zip(low, high, strict=True))
    np.testing.assert_array_equal(out[inside], expected[inside])
    out[inside] = 0
    assert not out.any()


def needed_block(
    view: View, piece: Piece, region: Region, memory: Mapping[Allocation, np.ndarray]
) -> tuple[np.ndarray, Box]:
    """The source cells in the bounding box of what the piece reads, found cell by cell."""
    points = [tuple(map(int, p)) for p in region.points()]
    used = [p for p, holds in zip(points, readers(piece, points), strict=True) if holds]
    if piece.source < 0 or not used:
        return np.zeros((1,) * piece.map.out_rank, np.int64), Box.of((1,) * piece.map.out_rank)
    cells = np.array([piece.map.apply(p) for p in used], np.int64).reshape(len(used), piece.map.out_rank)
    start, stop = cells.min(0), cells.max(0) + 1
    slices = tuple(slice(a, b) for a, b in zip(start, stop, strict=True))
    block = memory[view.allocations[piece.source]][slices].copy()
    return block, Box(tuple(map(int, start)), block.shape)


@given(views())
def test_read_view_point_by_point_agrees(case: tuple[View, np.ndarray]) -> None:
    """The way for domains that shatter: guards evaluated on listed coordinates, in small chunks."""
    view, expected = case
    memory = memory_for([view])

    def shattered(*_: object) -> None:
        raise TooManyPieces("as if")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrays, "members_of", shattered)
        patch.setattr(arrays.tuning, "MAX_POINTS", 7)
        for found_by_strides in ("linearize", "through", "fill_transfers"):
            patch.setattr(arrays, found_by_strides, lambda *_: None)
        found = read_view(view.pieces, [memory[a] for a in view.allocations], view.shape, "int64")
    np.testing.assert_array_equal(found, expected)


def test_a_plain_view_is_not_copied() -> None:
    view = allocate((4, 6), name="A").T[::-1, 1:]
    array = np.arange(24).reshape(4, 6)
    found = read_view(view.pieces, [array], view.shape, "int64")
    assert np.shares_memory(found, array) and not found.flags.writeable
    np.testing.assert_array_equal(found, array.T[::-1, 1:])


# -- devices ---------------------------------------------------------------------------------------------


def buffer(number: int, shape: Point, dtype: str = "float32", offset: int = 0, **more: object) -> Buffer:
    start = more.pop("start", (0,) * len(shape))
    nbytes = prod(shape) * np.dtype(dtype).itemsize
    return Buffer(number, 0, "t", start, shape, dtype, offset, nbytes, **more)  # type: ignore[arg-type]


def device(nbytes: int = 4096) -> NumpyDevice:
    return NumpyBackend().open([nbytes])[0]


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "complex64"])
def test_fresh_floats_are_nan(dtype: str) -> None:
    d, b = device(), buffer(0, (3, 4), dtype)
    d.alloc(b, (3, 4))
    assert np.isnan(d.pack(b, [Region.full((3, 4))])).all()
    assert np.isnan(d.spill(b)).all() and d.spill(b).size == 12


@pytest.mark.parametrize("dtype", ["int8", "int32", "uint64"])
def test_fresh_integers_are_a_pattern(dtype: str) -> None:
    d, b = device(), buffer(0, (5,), dtype)
    d.alloc(b, (5,))
    assert d.pack(b, [Region.full((5,))]).tobytes() == b"\xa5" * b.nbytes


def test_freedmemory_is_poisoned_when_it_is_taken_again() -> None:
    d, b = device(), buffer(0, (4,))
    whole = [Region.full((4,))]
    d.alloc(b, (4,))
    d.unpack(np.ones(4, np.float32), b, whole)
    d.free(b)
    again = buffer(1, (4,))
    d.alloc(again, (4,))
    assert np.isnan(d.pack(again, whole)).all()
    with pytest.raises(KeyError):
        d.pack(b, whole)


@given(
    st.lists(st.tuples(st.integers(1, 5), st.integers(-3, 7), st.integers(1, 9)), min_size=1, max_size=3),
)
def test_only_cells_outside_the_tensor_get_the_fill(axes: list[tuple[int, int, int]]) -> None:
    tensor = tuple(n for n, _, _ in axes)
    b = buffer(0, tuple(m for _, _, m in axes), start=tuple(a for _, a, _ in axes), fill=7.5)
    d = device(1 << 16)
    d.alloc(b, tensor)
    found = d.pack(b, [Region.full(b.shape, b.start)]).reshape(b.shape)
    for point in np.ndindex(*b.shape):
        inside = all(0 <= x + a < n for x, a, n in zip(point, b.start, tensor, strict=True))
        assert np.isnan(found[point]) if inside else found[point] == 7.5


def test_the_high_water_mark_counts_aligned_places() -> None:
    d = device()
    d.alloc(buffer(0, (3,)), (3,))
    assert d.peak_nbytes == 64
    d.alloc(buffer(1, (17,), offset=128), (17,))
    assert d.peak_nbytes == 256
    d.free(buffer(1, (17,), offset=128))
    assert d.peak_nbytes == 256


def test_one_object_of_regions_serves_any_buffer_with_its_cells() -> None:
    d, regions = device(), (Region.from_slices((8,), (slice(0, 8, 2),)),)
    long, late = buffer(0, (8,)), buffer(1, (12,), offset=64, start=(-2,))
    other = buffer(0, (10,), offset=128, start=(-1,))
    for b in (long, late):
        d.alloc(b, b.shape)
        d.unpack(np.arange(b.shape[0], dtype=np.float32), b, (Region.full(b.shape, b.start),))
    for _ in range(2):
        assert d.pack(long, regions).tolist() == [0, 2, 4, 6]
        assert d.pack(late, regions).tolist() == [2, 4, 6, 8]
    d.free(long)
    d.alloc(other, other.shape)
    d.unpack(np.array([5, 6, 7, 8], np.float32), other, regions)
    assert d.pack(other, regions).tolist() == [5, 6, 7, 8]
    assert d.pack(late, regions).tolist() == [2, 4, 6, 8]


def test_regions_that_are_made_anew_in_every_run_do_not_pile_up() -> None:
    d, b = device(), buffer(0, (4,))
    d.alloc(b, (4,))
    for k in range(2 * tuning.KEPT_LAUNCHES + 3):
        d.unpack(np.full(4, k, np.float32), b, (Region.full((4,)),))
        assert d.pack(b, (Region.full((4,)),)).tolist() == [k] * 4
    assert max(len(d._packs), len(d._unpacks)) <= tuning.KEPT_LAUNCHES


def test_arenas_are_apart_and_aligned() -> None:
    one, two = NumpyBackend().open([100, 100])
    for d in (one, two):
        d.alloc(buffer(0, (25,)), (25,))
        assert d._arrays[0].ctypes.data % 64 == 0
    assert not np.shares_memory(one.memory, two.memory)
    payload = one.pack(buffer(0, (25,)), [Region.full((25,))])
    assert not np.shares_memory(payload, one.memory)


def test_a_backend_object_keeps_its_closed_arenas() -> None:
    backend = NumpyBackend()
    first = backend.open([1000, 10])
    beside = backend.open([1000])
    assert not np.shares_memory(first[0].memory, beside[0].memory)
    backend.close(first)
    again = backend.open([500, 2000])
    assert np.shares_memory(first[0].memory, again[0].memory)
    assert again[1].memory.nbytes >= 2000


def test_a_buffer_that_is_written_whole_needs_no_poison_and_another_gets_it() -> None:
    d = device()
    whole, part = buffer(0, (4,)), buffer(1, (4,), offset=64)
    for b in (whole, part):
        d.alloc(b, (4,))
        d.unpack(np.ones(4, np.float32), b, [Region.full((4,))])
        d.free(b)
        d.alloc(b, (4,))
    d.unpack(np.full(4, 2, np.float32), whole, [Region.full((4,))])
    d.unpack(np.full(2, 2, np.float32), part, [Region.from_bounds((4,), (1,), (3,))])
    assert d.pack(whole, [Region.full((4,))]).tolist() == [2, 2, 2, 2]
    assert np.isnan(d.pack(part, [Region.full((4,))])).tolist() == [True, False, False, True]


def test_what_a_run_has_tried_is_not_poisoned_in_the_next_one_but_its_padding_is_filled() -> None:
    d, cells = device(), Region.from_bounds((4,), (1,), (3,))
    b, other = buffer(0, (6,), start=(-1,), fill=7.5), buffer(1, (6,), start=(-1,), fill=7.5)
    outside = [Region.full((6,), (-1,))]
    for turn, poisoned in enumerate([True, False, True]):
        if turn == 2:
            d.leave()
        d.restart()
        d.memory[:] = 0
        d.alloc(b, (4,))
        d.unpack(np.full(2, 2, np.float32), b, [cells])
        found = d.pack(b, outside)
        assert found[[0, 2, 3, 5]].tolist() == [7.5, 2, 2, 7.5]
        assert np.isnan(found[[1, 4]]).tolist() == [poisoned] * 2
        d.alloc(other, (4,))
        assert np.isnan(d.pack(other, outside)[1:5]).all(), "which nothing gave back"
        d.free(b)
        if turn == 0:
            d.alloc(b, (4,))  # a second stay in one run
            assert np.isnan(d.pack(b, outside)[1:5]).all()
            d.free(b)


def test_what_operators_of_ones_own_leave_out_shows_in_every_run() -> None:
    def write(xp: Any, inputs: Any, outputs: Any, shard: Any) -> None:
        outputs[0][inputs[0] > 0] = 1

    mine = replace(BUILTIN_OPS["relu"], name="mine", block=write)
    g = Graph()
    x, w = g.input("x", (4,)), g.constant("w", np.ones(4, np.float32))
    g.output(ops.relu(g.op(mine, x * w, name="m")), "y")
    with deploy(plan(g, Mesh(1), fuse=False), backend="serial") as placed:
        for sign in (1, -1, -1):
            found = placed.run({"x": np.full(4, sign, np.float32)}).outputs["y"]
            assert np.isnan(found).all() == (sign < 0), sign


@pytest.mark.parametrize("is_guest", [False, True])
def test_they_show_in_every_deployment_and_where_they_lie_in_others(is_guest: bool) -> None:
    def write(xp: Any, inputs: Any, outputs: Any, shard: Any) -> None:
        np.copyto(outputs[0], inputs[0], where=inputs[0] > 0)

    mine = replace(BUILTIN_OPS["relu"], name="mine", block=write)
    g = Graph()
    made = g.op(mine, g.input("x", (4, 6)), name="m")
    g.output(ops.softmax(concat([made, ops.exp(g.input("z", (4, 6)))], 1) if is_guest else made, name="s"), "y")
    p, backend = plan(g, Mesh(1), fuse=False, expand=False), SerialBackend()
    assert is_guest == any(b.within is not None for b in p.buffers)
    ones = np.ones((4, 6), np.float32)
    for _ in range(3):
        with deploy(p, backend=backend, ops={"mine": mine}) as placed:
            for sign in (1, 1, -1):
                found = placed.run({name: sign * ones for name in ("x", "z") if name in g.stored}).outputs["y"]
                assert np.isnan(found).all() == (sign < 0)


@pytest.mark.parametrize("fuse", [False, True])
def test_a_block_that_puts_others_into_its_operands_is_stopped(fuse: bool) -> None:
    """Its list is the same in every run: what it puts there would be read again in the next one."""

    def double(xp: Any, inputs: Any, outputs: Any, shard: Any) -> None:
        inputs[0] = inputs[0] * 2
        np.copyto(outputs[0], inputs[0])

    mine = replace(BUILTIN_OPS["relu"], name="mine", block=double)
    g = Graph()
    g.output(ops.relu(g.op(mine, g.input("x", (4,)), name="m")), "y")
    with pytest.raises(StepFailed, match="tuple"):
        run(plan(g, Mesh(1), fuse=fuse), {"x": np.ones(4, np.float32)}, ops={"mine": mine}, backend="serial")


def test_long_lists_of_calls_are_not_kept() -> None:
    g = Graph()
    x, w = g.input("x", (8, 64, 4, 4)), g.constant("w", np.ones((64, 2, 3, 3), np.float32))
    g.output(ops.conv(x, w, pads=1, groups=32, name="many"), "y")
    h = Graph()
    h.output(ops.conv(h.input("x", (1, 4, 4, 4)), h.constant("w", np.ones((4, 4, 3, 3), np.float32)), pads=1), "y")
    for graph, is_kept in ((g, False), (h, True)):
        feeds = {"x": np.random.default_rng(0).random(graph.stored["x"].shape, np.float32)}
        with deploy(plan(graph, Mesh(1), expand=False), backend="serial") as placed:
            first, again = (placed.run(feeds).outputs["y"].tobytes() for _ in range(2))
            (launch,) = placed._session.devices[0]._launches.values()
            assert first == again and 0 <= len(launch.calls) <= tuning.KEPT_CALLS
            assert bool(launch.calls) == is_kept


def test_an_arena_that_was_replaced_is_given_back() -> None:
    backend, kept = NumpyBackend(), list[Any]()
    cells = (Region.full((4,)),)
    for turn in range(3):
        mine, yours = backend.open([4096, 4096 << turn])
        kept.append(weakref.ref(yours.memory))
        for d in (mine, yours):
            d.alloc(buffer(0, (4,)), (4,))
        yours.unpack(np.ones(4, np.float32), buffer(0, (4,)), cells)
        mine.unpack(yours.lend(buffer(0, (4,)), cells, True), buffer(0, (4,)), cells)
        backend.close([mine, yours])
        del mine, yours, d
    gc.collect()
    assert [one() is None for one in kept] == [True, True, False]


def test_placing_copies_only_what_is_scattered() -> None:
    array = np.arange(24.0).reshape(4, 6)
    backend = NumpyBackend()
    rows = Region.from_bounds((4, 6), (1, 0), (3, 6))
    columns = Region.from_bounds((4, 6), (0, 1), (4, 3))
    assert np.shares_memory(backend.place(array, [rows], "x"), array)
    assert backend.place(array, [rows], "x").tolist() == array[1:3].ravel().tolist()
    assert backend.place(array, [columns], "x").tolist() == array[:, 1:3].ravel().tolist()
    assert backend.place(array, [rows, columns], "x").size == 20


@pytest.mark.parametrize(
    ("monoid", "ufunc"), [("sum", np.add), ("prod", np.multiply), ("min", np.minimum), ("max", np.maximum)]
)
def test_parts_merge_in_the_order_given(monoid: str, ufunc: np.ufunc) -> None:
    d = device()
    rng = np.random.default_rng(3)
    parts = [buffer(k, (4, 4), offset=64 * k) for k in range(3)]
    out = buffer(3, (6, 4), start=(-1, 0), offset=256)
    values = [rng.standard_normal((4, 4)).astype(np.float32) * 10.0**k for k in range(3)]
    for b, v in zip(parts, values, strict=True):
        d.alloc(b, (4, 4))
        d.unpack(v.ravel(), b, [Region.full((4, 4))])
    d.alloc(out, (4, 4))
    region = Region.from_slices((4, 4), (slice(0, 4, 2), slice(1, 3)))
    d.merge(MONOIDS[monoid], {}, parts, out, [region], None)
    expected = ufunc(ufunc(values[0], values[1]), values[2])[::2, 1:3]
    assert d.pack(out, [region]).tobytes() == expected.tobytes()
