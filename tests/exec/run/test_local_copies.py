"""Bytes that devices copy within themselves: what plans say of them against what arrays of NumPy are written."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tapestry_exec import run
from tapestry_exec.numpy import NumpyBackend
from tapestry_exec.numpy.backend import NumpyDevice
from tapestry_plan import Graph, Mesh, ShardPlan, ops, plan
from tapestry_plan.steps import Buffer, count_local, lower
from tapestry_sets.views import Piece
from tests.exec.run.test_every_kind_of_plan import make_graph, make_plan
from tests.exec.run.test_same_bits import of_floats
from tests.oracles import cell_read


class Counting(NumpyDevice):
    """A device that counts the cells which it copies between its own arrays, one by one."""

    copied = 0

    def copy(self, src: Buffer, dst: Buffer, regions: Any) -> None:
        before = self.lie(src), self.lie(dst)
        super().copy(src, dst, regions)
        points = [tuple(map(int, point)) for region in regions for point in region.points()]
        self.count([(where_is(*before[0], point), where_is(*before[1], point)) for point in points], dst)

    def gather(self, src: Buffer, dst: Buffer, piece: Piece, regions: Any) -> None:
        before = self.lie(src), self.lie(dst)
        super().gather(src, dst, piece, regions)
        points = [tuple(map(int, point)) for region in regions for point in region.points()]
        read = [(found, point) for point in points if (found := cell_read(piece, point)) is not None]
        self.count(
            [(where_is(*before[0], a) if piece.source >= 0 else None, where_is(*before[1], b)) for a, b in read], dst
        )

    def lie(self, buffer: Buffer) -> tuple[np.ndarray, tuple[int, ...]]:
        return self._arrays[buffer.id], buffer.start

    def count(self, cells: list[tuple[int | None, int]], dst: Buffer) -> None:
        """Cells whose value comes from another place than the one that they are at."""
        self.copied += sum(source != target for source, target in cells) * np.dtype(dst.dtype).itemsize


def where_is(array: np.ndarray, start: tuple[int, ...], point: tuple[int, ...]) -> int:
    """The address of a cell, from the array itself."""
    at = array.__array_interface__["data"][0]
    return int(at + sum((x - a) * s for x, a, s in zip(point, start, array.strides, strict=True)))


class CountingBackend(NumpyBackend):
    def open(self, nbytes: Sequence[int], payload_nbytes: Sequence[int] = ()) -> list[NumpyDevice]:
        self.devices = [Counting(device.memory) for device in super().open(nbytes, payload_nbytes)]
        return list(self.devices)


def assert_counted(p: ShardPlan) -> None:
    backend = CountingBackend()
    r = run(p, of_floats(p.graph), backend=backend)
    assert tuple(device.copied for device in backend.devices) == p.nbytes_copied == r.nbytes_copied


def conv(pads: int, taps: int, rows: int) -> Graph:
    g = Graph()
    h = ops.relu(g.input("x", (1, 2, rows, 6)), name="a")
    g.output(ops.relu(g.op("conv", h, g.input("w", (3, 2, taps, 3)), pads=pads, name="c"), name="b"))
    return g


@given(st.integers(0, 2), st.integers(1, 4), st.integers(6, 13), st.sampled_from([2, 3, 4]))
@settings(max_examples=max(15, settings.default.max_examples // 10))
def test_own_rows_beside_a_halo_are_counted(pads: int, taps: int, rows: int, devices: int) -> None:
    """Of what each shard reads, the rows that the device made are copied, unless all of them are read: made there."""
    g = conv(pads, taps, rows)
    if g.signature("c").index_shape[2] < devices:
        return
    p = plan(g, Mesh((devices,)), fix={"a": {"i2": devices}, "c": {"h": devices}})
    assert_counted(p)
    made = {device: range(box.start[2], box.stop[2]) for device, (box,) in p.placement["a"].items()}
    for device, (box,) in p.placement["c"].items():
        low, high = box.start[2] - pads, box.stop[2] - pads + taps - 1
        read = range(max(0, low), min(rows, high))
        mine = made[device]
        lies = read.start in mine and read[-1] in mine and (low, high) == (read.start, read.stop) and not pads
        within = mine.start in read and mine[-1] in read
        own = len(range(max(read.start, mine.start), min(read.stop, mine.stop)))
        assert p.nbytes_copied[device] == (0 if lies or within else own * 2 * 6 * 4)


def test_a_block_that_lies_in_one_buffer_is_not_copied() -> None:
    """Rows 0 to 9 of 32 are eight that device 0 made and two that come; one tap reads what is there."""
    p = plan(conv(0, 3, 32), Mesh((4,)), fix={"a": {"i2": 4}, "c": {"h": 4}})
    assert p.nbytes_copied == (0,) * 4 and p.nbytes_received[0] == 2 * 6 * 2 * 4
    apart = lower(p.graph, p.mesh, p.choices, apart=True)
    assert count_local(p.graph, apart.buffers, apart.steps, 4) == (8 * 6 * 2 * 4,) * 4
    assert p.nbytes_local == (0,) * 4
    assert plan(conv(0, 1, 32), Mesh((4,)), fix={"a": {"i2": 4}, "c": {"h": 4}}).nbytes_copied == (0,) * 4


@pytest.mark.heavy(3)
@pytest.mark.parametrize("seed", range(12))
def test_plans_of_many_kinds_say_what_runs_copy(seed: int) -> None:
    rng = random.Random(seed)
    assert_counted(make_plan(make_graph(rng), rng)[0])
