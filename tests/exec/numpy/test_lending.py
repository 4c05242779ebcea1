"""Cells that another device reads where they lie, and what becomes of them when their place is given back."""

from __future__ import annotations

from threading import Event
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tapestry_exec import NumpyBackend, run
from tapestry_exec.numpy.backend import Loan, NumpyDevice
from tapestry_plan import Graph, Mesh, ops, plan
from tapestry_plan.ir import BUILTIN_OPS
from tapestry_plan.steps import Buffer
from tapestry_sets import Box, Region
from tests.ways_of_running import Threads

WHOLE = (Region.full((4,)),)


def buffer(number: int, shape: tuple[int, ...], start: tuple[int, ...] | None = None) -> Buffer:
    nbytes = 4 * int(np.prod(shape))
    box = Box(start or (0,) * len(shape), shape)
    return Buffer(number, 0, "t", box.start, box.shape, "float32", 0, nbytes)


def holding(b: Buffer, cells: np.ndarray) -> NumpyDevice:
    (device,) = NumpyBackend().open([4096])
    device.alloc(b, b.shape)
    device.unpack(np.ascontiguousarray(cells, np.float32).reshape(-1), b, (Region.full(b.shape, b.start),))
    return device


@pytest.mark.parametrize("taken_first", [True, False])
def test_a_place_that_is_given_back_is_kept_for_who_has_not_read_it(taken_first: bool) -> None:
    mine, yours = buffer(0, (4,)), buffer(1, (4,))
    sender, receiver = holding(mine, np.arange(4)), holding(yours, np.zeros(4))
    loan = sender.lend(mine, WHOLE, False)
    assert loan.nbytes == 16 and loan.payload is None
    if taken_first:
        receiver.unpack(loan, yours, WHOLE)
    sender.free(mine)
    assert (loan.payload is None) == taken_first, "what was taken is not packed"
    other = buffer(2, (4,))  # in the same place
    sender.alloc(other, (4,))
    sender.unpack(np.full(4, 9, np.float32), other, WHOLE)
    if not taken_first:
        receiver.unpack(loan, yours, WHOLE)
    assert receiver.pack(yours, WHOLE).tolist() == [0, 1, 2, 3]


@given(st.data())
def test_what_is_lent_arrives_as_what_is_packed(data: st.DataObject) -> None:
    rank = data.draw(st.integers(1, 3))
    low = tuple(data.draw(st.integers(-2, 2)) for _ in range(rank))
    shape = tuple(data.draw(st.integers(1, 5)) for _ in range(rank))
    before = tuple(data.draw(st.integers(0, 2)) for _ in range(rank))
    wide = tuple(n + b + data.draw(st.integers(0, 2)) for n, b in zip(shape, before, strict=True))
    mine = buffer(0, shape, low)
    yours = buffer(1, wide, tuple(a - b for a, b in zip(low, before, strict=True)))
    cuts = [sorted(data.draw(st.integers(0, n)) for _ in range(2)) for n in shape]
    steps = [data.draw(st.integers(1, 3)) for _ in range(rank)]
    cells = tuple(slice(a, b, s) for (a, b), s in zip(cuts, steps, strict=True))
    region = Region.from_slices(shape, cells).shift(low)
    values = np.arange(1, 1 + np.prod(shape), dtype=np.float32).reshape(shape)
    sender, receiver = holding(mine, values), holding(yours, np.zeros(wide))
    for at_once in (True, False):
        receiver.unpack(sender.lend(mine, (region,), at_once), yours, (region,))
    wanted = np.zeros(wide, np.float32)
    inside = tuple(slice(b + c.start, b + c.stop, c.step) for b, c in zip(before, cells, strict=True))
    wanted[inside] = values[cells]
    found = receiver.pack(yours, (Region.full(wide, yours.start),)).reshape(wide)
    np.testing.assert_array_equal(found, wanted)


def test_a_sender_that_is_ahead_keeps_what_it_lent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Device 1 reads only when device 0 has given the place back: else it would wait for ever, or find other cells."""
    kept, is_free = list[Any](), Event()
    keep, free = Loan.keep, NumpyDevice.free

    def note(self: Loan) -> None:
        keep(self)
        kept.append(self.payload is not None)
        is_free.set()

    def wait(xp: Any, inputs: Any, outputs: Any, shard: Any) -> None:
        if shard.range("i0")[0] > 0:
            assert is_free.wait(20)
        np.multiply(inputs[0], 2, out=outputs[0])

    monkeypatch.setattr(Loan, "keep", note)
    slow = replace(BUILTIN_OPS["relu"], name="slow", block=wait)
    g = Graph()
    x = g.input("x", (8, 6))
    rows = ops.relu(x, name="rows")
    late = g.op(slow, g.input("z", (8, 6)), name="late")
    turned = ops.relu(rows.T, name="columns")
    g.output(ops.exp(turned, name="after"), "y")
    g.output(late, "late")
    fix = {"rows": {"i0": 2}, "late": {"i0": 2}, "columns": {"i0": 2}, "after": {"i0": 2}}
    p = plan(g, Mesh(2), fix=fix, fuse=False, expand=False)
    rng = np.random.default_rng(0)
    inputs = {name: rng.random((8, 6), np.float32) for name in ("x", "z")}
    found = run(p, inputs, backend=Threads(), ops={"slow": slow})
    assert any(kept), "device 0 packed what was not read yet"
    np.testing.assert_array_equal(found.outputs["y"], np.exp(np.maximum(inputs["x"], 0).T))
    assert NumpyDevice.free is free


def test_a_backend_with_a_move_of_its_own_gets_payloads() -> None:
    moved = list[np.ndarray]()

    class Watched(NumpyBackend):
        def move(self, payload: Any, src: int, dst: int) -> Any:
            moved.append(payload.copy())
            return payload

    g = Graph()
    g.output(ops.relu(ops.relu(g.input("x", (4, 6)), name="rows").T, name="columns"), "y")
    p = plan(g, Mesh(2), fix={"rows": {"i0": 2}, "columns": {"i0": 2}})
    found = run(p, {"x": np.ones((4, 6), np.float32)}, backend=Watched())
    assert [one.nbytes for one in moved] == [24, 24] and found.nbytes_moved == 48
