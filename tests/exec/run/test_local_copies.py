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
from tapestry_plan.steps import Buffer
from tapestry_sets.views import Piece
from tests.exec.run.test_every_kind_of_plan import make_graph, make_plan
from tests.exec.run.test_same_bits import of_floats
from tests.oracles import cell_read


class Counting(NumpyDevice):
    """A device that counts the cells which it copies between its own arrays, one by one."""

    copied = 0

    def copy(self, src: Buffer, dst: Buffer, regions: Any) -> None:
        super().copy(src, dst, regions)
        self.copied += int(self.pack(dst, regions).nbytes)

    def gather(self, src: Buffer, dst: Buffer, piece: Piece, regions: Any) -> None:
        super().gather(src, dst, piece, regions)
        points = (tuple(map(int, point)) for region in regions for point in region.points())
        cells = sum(cell_read(piece, point) is not None for point in points)
        self.copied += cells * np.dtype(dst.dtype).itemsize


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
    """Of what each shard reads, the rows that the device made are copied, unless they lie there as they are read."""
    g = conv(pads, taps, rows)
    if g.signature("c").index_shape[2] < devices:
        return
    p = plan(g, Mesh((devices,)), fix={"a": {"i2": devices}, "c": {"h": devices}})
    assert_counted(p)
    made = {device: range(box.start[2], box.stop[2]) for device, (box,) in p.placement["a"].items()}
    for device, (box,) in p.placement["c"].items():
        low, high = box.start[2] - pads, box.stop[2] - pads + taps - 1
        read = range(max(0, low), min(rows, high))
        lies = read.start in made[device] and read[-1] in made[device] and (low, high) == (read.start, read.stop)
        own = len(range(max(read.start, made[device].start), min(read.stop, made[device].stop)))
        assert p.nbytes_copied[device] == (0 if lies and not pads else own * 2 * 6 * 4)


def test_a_block_that_lies_in_one_buffer_is_not_copied() -> None:
    """Rows 0 to 9 of 32 are eight that device 0 made and two that come; one tap reads what is there."""
    p = plan(conv(0, 3, 32), Mesh((4,)), fix={"a": {"i2": 4}, "c": {"h": 4}})
    assert p.nbytes_copied == (8 * 6 * 2 * 4,) * 4 and p.nbytes_received[0] == 2 * 6 * 2 * 4
    assert p.nbytes_local == (0,) * 4  # the rule of views, which has no halos
    assert plan(conv(0, 1, 32), Mesh((4,)), fix={"a": {"i2": 4}, "c": {"h": 4}}).nbytes_copied == (0,) * 4


@pytest.mark.parametrize("seed", range(12))
def test_plans_of_many_kinds_say_what_runs_copy(seed: int) -> None:
    rng = random.Random(seed)
    assert_counted(make_plan(make_graph(rng), rng)[0])
