"""Tensors that lie where a device's boxes say: bytes counted by cells, runs as predicted, wrong boxes refused."""

from __future__ import annotations

from itertools import product
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tapestry_exec import run
from tapestry_plan import Device, Graph, Link, Mesh, Placed, ShardPlan, plan
from tapestry_plan.ops import relu
from tapestry_plan.steps import lay_tensor
from tapestry_sets.regions import Box

Cells = set[tuple[int, ...]]


def cells(box: Box) -> Cells:
    return set(product(*(range(a, a + n) for a, n in zip(box.start, box.shape, strict=True))))


def points(region: Any) -> Cells:
    return set(map(tuple, region.points().tolist()))


@st.composite
def pieces(draw: st.DrawFn, box: Box, most: int) -> list[Box]:
    """A box cut into up to so many: in two, and these again."""
    axes = [axis for axis, n in enumerate(box.shape) if n > 1]
    if most < 2 or not axes or not draw(st.booleans()):
        return [box]
    axis = draw(st.sampled_from(axes))
    at = draw(st.integers(1, box.shape[axis] - 1))
    stop, start = list(box.stop), list(box.start)
    stop[axis] = start[axis] = box.start[axis] + at
    low, high = Box.from_bounds(box.start, tuple(stop)), Box.from_bounds(tuple(start), box.stop)
    return draw(pieces(low, most // 2)) + draw(pieces(high, most // 2))


@st.composite
def places(draw: st.DrawFn, shape: tuple[int, ...], devices: int) -> dict[int, list[Box]]:
    """Boxes of a tensor by device: each part of it on some of them, what one part has on the same ones."""
    parts = draw(pieces(Box.of(shape), 8))
    owners = [draw(st.integers(0, devices - 1)) for _ in parts]
    lots: dict[int, list[Box]] = {}
    for part, owner in zip(parts, owners, strict=True):
        lots.setdefault(owner, []).append(part)
    found: dict[int, list[Box]] = {}
    free = draw(st.permutations(range(devices)))
    for k, lot in enumerate(lots.values()):
        mine = free[k :: len(lots)]
        for device in mine[: draw(st.integers(1, len(mine)))]:
            found[device] = lot
    return found


def held(where: dict[int, list[Box]], device: int) -> Cells:
    return set().union(*(cells(box) for box in where.get(device, [])))


SHAPE = (5, 4)
MESHES = [Mesh(2), Mesh((2, 2), link=Link(0, 1e8), device=Device(1e9, 1e10)), Mesh(3, device=Device(1e6, 1e10))]


@pytest.mark.heavy(2)
@settings(max_examples=max(20, settings.default.max_examples // 4))
@given(st.data(), st.sampled_from(MESHES))
def test_bytes_are_those_of_the_cells_that_devices_need_and_do_not_hold(data: st.DataObject, mesh: Mesh) -> None:
    g = Graph()
    x, w = g.input("x", SHAPE), g.constant("w", np.arange(20, dtype=np.float32).reshape(SHAPE))
    g.output(g.op("add", relu(x[::-1], name="r"), w, name="a"), "y")
    where = {name: data.draw(places(SHAPE, mesh.size), name) for name in "xwy"}
    asked = {name: Placed(each) for name, each in where.items()}
    p = plan(g, mesh, layout=asked)
    placed, received = [0] * mesh.size, [0] * mesh.size
    for device in range(mesh.size):
        blocks = {node: held(p.placement[node], device) for node in "ra"}
        read = {(SHAPE[0] - 1 - i, j) for i, j in blocks["r"]}
        got = (read - held(where["x"], device), blocks["a"] - blocks["r"], blocks["a"] - held(where["w"], device))
        brought = held(where["y"], device) - blocks["a"]
        received[device] = 4 * sum(map(len, (*got, brought)))
        placed[device] = 4 * (len(held(where["x"], device)) + len(held(where["w"], device)))
    assert list(p.nbytes_placed) == placed
    if any(stage.op == "landing" for stage in p.stages):  # who passes a share on may not need it
        assert all(got >= needed for got, needed in zip(p.nbytes_received, received, strict=True))
    else:
        assert list(p.nbytes_received) == received
    assert p.gap == 0
    for parts in ({"i0": mesh.size}, {"i1": mesh.size}, {}):
        assert p.seconds <= plan(g, mesh, layout=asked, fix={"r": parts, "a": parts}).seconds
    made = run(p, {"x": np.arange(20, dtype=np.float32).reshape(SHAPE)}, verify=True)
    assert (made.nbytes_moved, made.peak_nbytes) == (p.nbytes_moved, p.peak_nbytes)
    assert ShardPlan.from_json(p.to_json()) == p
    (out,) = p.outputs
    there: dict[int, Cells] = {}
    for number, region in (*out.blocks, *out.replicas):
        there.setdefault(p.buffers[number].device, set()).update(points(region))
    assert there == {device: held(where["y"], device) for device in where["y"]}


@given(st.data())
@example(None)
def test_a_layout_has_the_boxes_that_were_asked_for(data: st.DataObject | None) -> None:
    where = {0: [Box((0, 0), (5, 4))], 2: [Box((0, 0), (5, 4))]} if data is None else data.draw(places(SHAPE, 4))
    layout = lay_tensor(Placed(where), SHAPE, Mesh(4), "here")
    for device, block in enumerate(layout.blocks):
        asked = held(where, device)
        if block is None:
            assert not asked
        else:
            found = cells(block) if isinstance(block, Box) else points(block.cells)
            assert found == asked
    grid = Placed({device: box for device, box in enumerate(layout.boxes) if box}) if not layout.lots else None
    assert grid is None or lay_tensor(grid, SHAPE, Mesh(4), "here") == layout


def test_uneven_rows_in_reverse_are_worked_on_where_they_lie() -> None:
    """The seeds' picture: two machines, the larger part on the second one, weights on one of them."""
    g = Graph()
    x, w = g.input("x", (8, 4)), g.input("w", (4, 4))
    g.output(relu(relu(x, name="first") @ w, name="last"), "y")
    rows = Placed({1: np.s_[:3], 0: np.s_[3:]})
    p = plan(g, Mesh(2), layout={"x": rows, "w": Placed({1: ...}), "y": rows})
    assert p.nbytes_by_link == {(1, 0): 64} and p.gap == 0
    assert p.placement["last"] == {1: (Box((0, 0), (3, 4)),), 0: (Box((3, 0), (5, 4)),)}
    alone = plan(g, Mesh(2), layout={"x": rows, "y": rows})
    assert alone.nbytes_moved == 0


def test_a_single_cell_lies_on_one_device() -> None:
    g = Graph()
    g.output(relu(g.input("x", ()), name="r"), "y")
    p = plan(g, Mesh(3), layout={"x": Placed({1: ...}), "y": Placed({1: ()})})
    assert (p.nbytes_moved, p.nbytes_placed, list(p.placement["r"])) == (0, (0, 4, 0), [1])


def test_what_jax_says_of_a_sharding_is_taken() -> None:
    by_device = {0: (slice(0, 4, None), slice(None, None, None)), 1: (slice(4, 8, None), slice(None, None, None))}
    g = Graph()
    g.output(relu(g.input("x", (8, 2))), "y")
    assert plan(g, Mesh(2), layout={"x": Placed(by_device)}) == plan(g, Mesh(2), layout={"x": {0: 2}})


BOXES = {0: [Box((0,), (1,))], 2: [Box((1,), (2,)), Box((4,), (2,))], 1: [Box((3,), (1,))]}


def test_tied_tensors_lie_in_the_same_boxes() -> None:
    g = Graph()
    w = g.input("w", (6,))
    g.output(w - g.input("dw", (6,)), "new_w")
    where = Placed(BOXES)
    for asked in ({"w": where}, {"new_w": where}, {"w": where, "new_w": where}):
        p = plan(g, Mesh(3), tie={"new_w": "w"}, layout=asked)
        (out,) = p.outputs
        there = [(p.buffers[number].device, points(region)) for number, region in out.blocks]
        for device in range(3):
            assert set().union(*(some for home, some in there if home == device)) == held(BOXES, device)
    with pytest.raises(ValueError, match="tied tensors lie alike"):
        plan(g, Mesh(3), tie={"new_w": "w"}, layout={"w": where, "new_w": {0: 3}})


@pytest.mark.parametrize(
    ("new", "w"),
    [
        (Placed({0: np.s_[:3], 1: np.s_[3:]}), {0: 2}),
        (Placed({0: ..., 1: ...}), {}),
        (Placed({0: Box((0, 0), (6, 4)), 1: [...]}), Placed({0: ..., 1: np.s_[:, :]})),
        ({0: 2}, {"0": ("x",)}),
        ({0: 1}, {1: 1}),
    ],
)
def test_tied_tensors_are_asked_to_lie_alike_in_other_words(new: Any, w: Any) -> None:
    g = Graph()
    g.output(g.input("w", (6, 4)) - g.input("dw", (6, 4)), "new")
    both = plan(g, Mesh(2), tie={"new": "w"}, layout={"new": new, "w": w})
    assert both == plan(g, Mesh(2), tie={"new": "w"}, layout={"w": w})


@pytest.mark.parametrize("value", [np.s_[:3], np.s_[:3, :], ..., Box((0,), (3,)), [np.s_[:3], np.s_[4:]]])
def test_boxes_where_parts_are_wanted_say_how_boxes_are_given(value: Any) -> None:
    g = Graph()
    g.output(relu(g.input("x", SHAPE)), "y")
    with pytest.raises(
        TypeError, match=r"layout\['x'\]: 0 has .*, where a number of parts .* are a Placed\(\{0: np.s_"
    ):
        plan(g, Mesh(4), layout={"x": {0: value}})


@pytest.mark.parametrize(
    "where, why",
    [
        ({0: np.s_[:3], 4: np.s_[3:]}, r"layout\['x'\]: there is no device 4; the mesh has devices 0 to 3"),
        ({0: np.s_[:3], 1: np.s_[4:]}, r"no device has 4 of its 20 cells, among \[3, 0\] to \[4, 4\]"),
        ({0: np.s_[:3], 1: np.s_[2:]}, "device 0 has .* and device 1 has .*, which share some cells and not all"),
        ({0: [np.s_[:3], np.s_[2:]]}, "device 0 has .* which share cells; give each once"),
        ({0: np.s_[:6]}, "device 0 has cells 0 to 6 of axis 0, which has 5"),
        ({0: np.s_[3:3], 1: ...}, "cells 3 to 3 of axis 0"),
        ({0: np.s_[::2], 1: np.s_[1::2]}, "steps of 2 on axis 0; boxes have steps of 1"),
        (
            {0: np.s_[:3, :, ::2]},
            r"device 0 has the index \[:3, :, ::2\] of 3 axes, of a tensor of shape \[5, 4\]; give a slice for each",
        ),
        ({0: np.s_[..., :3, ...]}, r"has the index \[..., :3, ...\], with ... more than once; give it once at most"),
        ({0: Box((0, 0), (5, 5))}, "which does not lie in it"),
        ({0: Box((0,), (5,))}, "which does not lie in it"),
        ({}, "no device has 20 of its 20 cells"),
    ],
)
def test_boxes_that_do_not_fit_are_refused(where: dict[int, Any], why: str) -> None:
    g = Graph()
    g.output(relu(g.input("x", SHAPE)), "y")
    with pytest.raises(ValueError, match=why):
        plan(g, Mesh(4), layout={"x": Placed(where)})


@pytest.mark.parametrize("wrong", [3, {0: 3}, {0: (1, 2)}, {"a": ...}, {0: "all"}])
def test_what_is_not_boxes_by_device_is_refused(wrong: Any) -> None:
    with pytest.raises(TypeError, match="Placed"):
        Placed(wrong)


def test_many_devices_are_laid_out_quickly() -> None:
    n = 1024
    layout = lay_tensor(Placed({k: np.s_[3 * k : 3 * k + 3] for k in range(n)}), (3 * n, 2), Mesh((8, 128)), "x")
    assert layout.parts == (n, 1) and prod(layout.extents) == sum(box.size for box in layout.boxes if box)
