"""Plans that begin where a checkpoint's cells lie, on fewer devices: what moves, and where lost cells come from."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterable
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tapestry_exec import Checkpoint, Checkpoints, deploy, evaluate, open_checkpoint, run
from tapestry_exec.run.checkpoints.finished import SavedTensor
from tapestry_exec.run.checkpoints.folders import Manifest, SavedBuffer, map_cells
from tapestry_exec.run.checkpoints.lost import place_left
from tapestry_plan import Graph, Link, Mesh, Placed, ShardPlan, concat, ops, plan
from tests.exec.run.test_deploy import training_step
from tests.exec.run.test_every_kind_of_plan import make_graph, make_plan
from tests.exec.run.test_made_in_place import WORDS
from tests.exec.run.test_same_bits import of_floats
from tests.exec.run.test_side_by_side import made

CARRY = {"new_w": "w"}
W = np.random.default_rng(0).standard_normal((16, 6), np.float32)


def rows() -> Graph:
    """Cells of a state that are renewed row by row."""
    g = Graph()
    g.output(ops.relu(g.input("w", (16, 6)), name="act"), "new_w")
    return g


def saved(folder: Path, devices: int = 4, **asked: Any) -> Checkpoint:
    p = plan(rows(), Mesh(devices), tie=CARRY, **asked)
    with deploy(p, carry=CARRY) as placed:
        placed.run({"w": W}, checkpoints=Checkpoints(folder, after=["act"]))
    return open_checkpoint(folder)


def list_cells(boxes: Iterable[Any]) -> set[tuple[int, ...]]:
    """The cells of boxes, one by one."""
    return {tuple(a + i for a, i in zip(box.start, at, strict=True)) for box in boxes for at in np.ndindex(*box.shape)}


ROWS = {"w": {0: 4}}


def check_cells(p: ShardPlan, inputs: dict[str, Any], folder: Path) -> int:
    """Hold the cells of each complete block, behind each stage, against a run of one device; how many lie in others."""
    guests = 0
    for number, stage in enumerate(p.stages):
        there = folder / str(number)
        run(p, inputs, backend="serial", checkpoints=Checkpoints(there, after=[stage.node]))
        found = open_checkpoint(there)
        shapes = found.manifest.shapes
        every = [one for one in found.manifest.buffers if one.is_full and one.tensor in shapes]
        guests += len(found.manifest.guests)
        every += found.manifest.guests
        wanted = evaluate(p.graph, inputs, outputs={one.tensor for one in every})
        for one in every:
            boxes = [(a, min(a + n, m)) for a, n, m in zip(one.start, one.shape, shapes[one.tensor], strict=True)]
            cells = map_cells(Path(found.path), one)[tuple(slice(max(-a, 0), b - a) for a, b in boxes)]
            np.testing.assert_allclose(
                cells, wanted[one.tensor][tuple(slice(max(a, 0), b) for a, b in boxes)], 1e-4, 1e-5, err_msg=one.tensor
            )
    return guests


@pytest.mark.parametrize("word", WORDS)
def test_blocks_that_lie_within_others_are_read(word: str, tmp_path: Path) -> None:
    """Of concatenated, padded and interleaved tensors: rows by turns, and columns with others between them."""
    (a, b), layout = WORDS[word], np.random.default_rng(0)
    g = Graph()
    x, y = (ops.tanh(g.input(name, a), name=f"t{name}") for name in "xy")
    z = b(x, y)
    g.output(ops.relu(z, name="both"), "z")
    p = plan(g, Mesh(2), fuse=False)
    assert check_cells(p, {name: layout.standard_normal(a).astype(np.float32) for name in "xy"}, tmp_path) > 0


@pytest.mark.parametrize("begin", [0, *(pytest.param(k, marks=pytest.mark.heavy(16)) for k in range(4, 80, 4))])
def test_blocks_of_plans_of_every_kind_are_read(begin: int, tmp_path: Path) -> None:
    for seed in range(begin, begin + 4):
        rng = random.Random(seed)
        g = make_graph(rng)
        p, _ = make_plan(g, rng)
        check_cells(p, of_floats(g, seed), tmp_path / str(seed))


def test_halves_that_wait_for_others_are_read_and_planned_with(tmp_path: Path) -> None:
    """Each device's rows lie in the block that it reads next, whose other rows another one is still to send."""

    def network(is_rest: bool) -> Graph:
        g = Graph()
        w = g.constant("w", np.random.default_rng(0).standard_normal((24, 24)).astype(np.float32))
        act = g.input("act", (37, 24)) if is_rest else None
        if act is None:
            act = ops.relu(ops.matmul(g.input("x", (37, 24)), w, name="one"), name="act")
        g.output(ops.softmax(ops.tanh(ops.matmul(act, w, name="two"), name="last"), axis=0), "y")
        return g

    p = plan(network(False), Mesh(4), fix={"one": {"m": 4}, "act": {"i0": 4}})
    x = np.random.default_rng(1).standard_normal((37, 24)).astype(np.float32)
    wanted = run(p, {"x": x}, backend="serial", checkpoints=Checkpoints(tmp_path, after=["act"])).outputs["y"]
    found = open_checkpoint(tmp_path)
    assert not any(one.is_full for one in found.manifest.buffers), "none has all rows of its box"
    for left in ([0, 1, 2, 3], [0, 1, 3], [3, 0], [1]):
        rest = plan(network(True), Mesh(len(left)), layout=found.layout(["act"], devices=left))
        result = run(rest, {"act": found.read("act")}, backend="serial")
        np.testing.assert_allclose(result.outputs["y"], wanted, 1e-5)
        lost = 4 * sum(24 * (10 if d == 0 else 9) for d in range(4) if d not in left)
        assert sum(found.count_read(rest, ["act"], left)) >= lost


def test_what_is_there_in_part_is_told(tmp_path: Path) -> None:
    """Sums that are still to be added up are no cells of their tensor, and that they are there is said."""
    p, inputs = made(2)
    run(p, inputs, checkpoints=Checkpoints(tmp_path, after=["one"]))
    found = open_checkpoint(tmp_path)
    assert {one.tensor for one in found.manifest.buffers if one.part >= 0} == {"one"}
    told = (
        r"has [\d,]+ B of 'one' in blocks that are still to be added up behind 'one'; save behind another stage, or res"
    )
    for ask in (found.read, lambda name: found.layout([name])):
        with pytest.raises(ValueError, match=told):
            ask("one")


@pytest.mark.parametrize("lost", [(), (2,), (0,), (3,), (1, 2), (0, 1, 3)])
def test_each_keeps_its_own_and_neighbors_read_what_was_lost(lost: tuple[int, ...], tmp_path: Path) -> None:
    """Each begins with its own cells, one box, and its share of those that were lost; nothing moves behind that."""
    found = saved(tmp_path, layout=ROWS)
    left = [d for d in range(4) if d not in lost]
    layout = found.layout(["w"], devices=left)
    p = plan(rows(), Mesh(len(left)), layout=layout, tie=CARRY)
    result = run(p, {"w": found.read("w")})
    assert result.outputs["new_w"].tobytes() == np.maximum(W, 0).tobytes()
    assert sum(result.nbytes_placed) == W.nbytes and result.nbytes_moved == p.nbytes_moved == 0
    read = list[int]()
    for new, old in enumerate(left):
        (box,) = layout["w"].by_device[new]
        (own,) = (one for one in found.manifest.buffers if one.device == old and one.tensor == "w")
        assert list_cells([box]) >= list_cells([own]), "what it had it begins with"
        read.append(4 * len(list_cells([box]) - list_cells([own])))
    assert found.count_read(p, ["w"], left) == tuple(read) and sum(read) == len(lost) * 4 * 24
    if lost == (2,):
        assert read == [0, 48, 48], "both neighbors have half of it"


def test_parts_are_cut_anew_where_that_pays(tmp_path: Path) -> None:
    """Against ways to give three devices the rows in order, with the cells that each reads counted one by one.

    The free plan cuts columns: three devices have 36 cells at most in rows, and 32 in columns, for which each reads 96
    bytes, and 48 where neighbors get what was lost: 48 ns more, and 1.6 ns less a run.
    """
    lost = 2
    found = saved(tmp_path, layout=ROWS)
    left = [d for d in range(4) if d != lost]
    had = {d: set(np.ndindex(16, 6)) & {(4 * d + i, j) for i in range(4) for j in range(6)} for d in left}
    mesh = Mesh(3, host=Link(0.0, 1e9))

    def price(p: ShardPlan, runs: int) -> float:
        begins = {d: list_cells(p.placement["act"][k]) for k, d in enumerate(left)}
        return max(4 * len(begins[d] - had[d]) for d in left) / 1e9 + runs * p.seconds

    ways = [plan(rows(), mesh, tie=CARRY)]
    for cuts in combinations(range(1, 16), 2):
        ends = (0, *cuts, 16)
        where = Placed({k: np.s_[a:b] for k, (a, b) in enumerate(pairwise(ends))})
        if max(b - a for a, b in pairwise(ends)) <= 7:  # others take longer and read more
            ways.append(plan(rows(), mesh, tie=CARRY, layout={"w": where}))
    for runs, wanted in ((1, {"i0": 3}), (29, {"i0": 3}), (31, {"i1": 3}), (10**6, {"i1": 3})):
        chosen = found.replan(rows(), mesh, ["w"], left, runs, tie=CARRY)
        assert chosen.sharding["act"] == wanted
        assert price(chosen, runs) == pytest.approx(min(price(one, runs) for one in ways), rel=1e-9)
        result = run(chosen, {"w": found.read("w")})
        assert result.outputs["new_w"].tobytes() == np.maximum(W, 0).tobytes()


def test_boxes_that_no_neighbor_continues_are_cut_anew(tmp_path: Path) -> None:
    """Quarters: what one device had makes no box with all of its neighbors, and three boxes are no parts of a stage."""
    found = saved(tmp_path, layout={"w": {0: 2, 1: 2}})
    kept = plan(rows(), Mesh(3), layout=found.layout(["w"], [0, 1, 3]), tie=CARRY)
    anew = found.replan(rows(), Mesh(3), ["w"], [0, 1, 3], runs=10**6, tie=CARRY)
    assert sum(found.count_read(kept, ["w"], [0, 1, 3])) == 96 < sum(found.count_read(anew, ["w"], [0, 1, 3]))
    assert kept.nbytes_moved > anew.nbytes_moved == 0
    for p in (kept, anew):
        assert run(p, {"w": found.read("w")}).outputs["new_w"].tobytes() == np.maximum(W, 0).tobytes()


def test_one_of_many_devices_moves_its_own_cells_alone() -> None:
    """Of 1,024 slabs one is lost: both neighbors read half of it, where even slabs would have others read far more."""
    size, lost = 1024, 700
    buffers = [SavedBuffer(d, d, "t", (8 * d, 0), (8, 4), "float32", -1, False, True, "") for d in range(size)]
    left = [d for d in range(size) if d != lost]
    placed = place_left(buffers, (8 * size, 4), left).by_device
    spans = {d: (placed[k][0].start[0], placed[k][0].start[0] + placed[k][0].shape[0]) for k, d in enumerate(left)}
    moved = {d: b - a - 8 for d, (a, b) in spans.items() if (a, b) != (8 * d, 8 * d + 8)}
    assert moved == {lost - 1: 4, lost + 1: 4} and all(len(boxes) == 1 for boxes in placed.values())
    even = [(8 * size * k // (size - 1), 8 * size * (k + 1) // (size - 1)) for k in range(size - 1)]
    anew = sum(b - a - max(0, min(b, 8 * d + 8) - max(a, 8 * d)) for (a, b), d in zip(even, left, strict=True))
    assert anew > 0.25 * 8 * size


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"mesh": Mesh(4)}, r"replan: the mesh has 4 devices, and 3 are left; give Mesh\(3\)"),
        ({"runs": 0}, "replan: runs is 0; give 1 or more"),
        ({"devices": [0, 0, 1]}, r"replan: devices are \[0, 0, 1\]; give each device that is left once, of 0 to 3"),
    ],
)
def test_what_cannot_be_planned_anew_is_named(given: dict[str, Any], told: str) -> None:
    found = Checkpoint("there", Manifest("", 4, 0, "act", 0, {}, {}, {}))
    asked = {"mesh": Mesh(3), "tensors": ["w"], "devices": [0, 1, 3], **given}
    with pytest.raises(ValueError, match=told):
        found.replan(rows(), **asked)


def test_training_goes_on_with_fewer_devices(tmp_path: Path) -> None:
    """One of four devices is lost behind the third step: three read their state from the checkpoint, and go on."""
    g, carry, feeds = training_step()
    p = plan(g, Mesh(4), tie=carry)
    batches = [np.random.default_rng(k).random((8, 6), np.float32) for k in range(4)]
    with deploy(p, carry=carry) as placed:
        for k, x in enumerate(batches[:3]):
            last = placed.run({**(feeds if not k else {}), "x": x})
        placed.run({"x": batches[3]}, checkpoints=Checkpoints(tmp_path, after=[p.stages[0].node]))
    found = open_checkpoint(tmp_path)
    for label, name in carry.items():  # the state that the fourth step began with
        assert found.read(name).read_whole().tobytes() == last.outputs[label].tobytes()
    fewer = plan(g, Mesh(3), layout=found.layout(carry.values(), devices=[0, 2, 3]), tie=carry)
    with deploy(fewer, carry=carry) as placed:
        result = placed.run({"x": batches[3], **{name: found.read(name) for name in carry.values()}})
    state = {name: last.outputs[label] for label, name in carry.items()}
    for label, wanted in evaluate(g, {"x": batches[3], **state}).items():
        np.testing.assert_allclose(result.outputs[label], wanted, rtol=1e-5, atol=1e-6)


def test_what_is_not_whole_is_refused(tmp_path: Path) -> None:
    g = Graph()
    act = ops.relu(g.input("x", (8, 6)), name="act")
    g.output(ops.exp(act[:4], name="half"), "y")
    p = plan(g, Mesh(2), fix={"act": {"i0": 2}}, fuse=False)
    run(p, {"x": np.ones((8, 6), np.float32)}, checkpoints=Checkpoints(tmp_path, after=["act"]))
    found = open_checkpoint(tmp_path)
    with pytest.raises(ValueError, match=r"has no cells of 'z'; known tensors: 'act'"):
        found.read("z")
    if sum(one.nbytes for one in found.manifest.buffers) < 192:
        with pytest.raises(ValueError, match=r"has not all cells of 'act': 24 of 48 are on no device behind 'act'"):
            found.layout(["act"])
    for devices in ([0, 0], [2], [-1], []):
        with pytest.raises(
            ValueError, match=r"layout: devices are \[.*\]; give each device that is left once, of 0 to 1"
        ):
            found.layout(["act"], devices=devices)


@pytest.mark.parametrize(
    ("given", "error", "told"),
    [
        ({"tensors": None}, TypeError, r"Checkpoint.layout: tensors must be .*, not None; give names in a list"),
        ({"tensors": "w"}, TypeError, r"Checkpoint.layout: tensors must be .*, not 'w' .*; give names in a list"),
        ({"tensors": [1]}, TypeError, r"Checkpoint.layout: tensors"),
        ({"devices": "01"}, TypeError, r"Checkpoint.layout: devices must be .*, not '01' .*; give those that are left"),
        ({"devices": 1}, TypeError, r"Checkpoint.layout: devices must be .*, not 1 .*; give those that are left"),
        ({"devices": [True, False]}, TypeError, r"Checkpoint.layout: devices"),
        ({"devices": [0.0]}, TypeError, r"Checkpoint.layout: devices"),
    ],
)
def test_wrong_arguments_are_named(given: dict[str, Any], error: type[Exception], told: str) -> None:
    found = Checkpoint("there", Manifest("", 2, 0, "act", 0, {}, {}, {}))
    with pytest.raises(error, match=told):
        found.layout(**{"tensors": ["w"], **given})
    with pytest.raises(TypeError, match=r"Checkpoint.read: tensor must be a string"):
        found.read(["w"])  # type: ignore[arg-type]


# -- against enumerated cells -----------------------------------------------------------------------------------


@st.composite
def boxes_of_devices(draw: st.DrawFn) -> tuple[tuple[int, int], list[SavedBuffer]]:
    """Boxes of some devices, which may overlap, be the same, or reach outside."""
    shape = draw(st.integers(1, 9)), draw(st.integers(1, 7))
    found = []
    for device in range(draw(st.integers(1, 4))):
        for _ in range(draw(st.integers(0, 2))):
            start = tuple(draw(st.integers(-1, n - 1)) for n in shape)
            extent = tuple(draw(st.integers(1, n - a + 1)) for a, n in zip(start, shape, strict=True))
            found.append(SavedBuffer(device, len(found), "t", start, extent, "float32", -1, False, True, ""))
    return shape, found


@given(boxes_of_devices(), st.data())
@settings(max_examples=25)
def test_each_cell_lies_somewhere_and_shares_are_even(case: tuple[Any, Any], data: st.DataObject) -> None:
    shape, buffers = case
    left = data.draw(st.lists(st.integers(0, 3), min_size=1, max_size=4, unique=True))
    placed = place_left(buffers, shape, left)
    cells = {
        new: {
            tuple(a + i for a, i in zip(box.start, q, strict=True))
            for box in placed.by_device.get(new, ())
            for q in np.ndindex(*box.shape)
        }
        for new in range(len(left))
    }
    assert set().union(*cells.values()) == set(np.ndindex(*shape))
    for a in cells.values():
        assert all(not a & b or a == b for b in cells.values()), "devices that share a cell have all alike"
    g = Graph()
    g.output(ops.relu(g.input("t", shape)), "y")
    p = plan(g, Mesh(len(left)), layout={"t": placed})
    assert sum(p.nbytes_placed) >= 4 * int(np.prod(shape))
    assert isinstance(placed, Placed)


@given(st.data())
@settings(max_examples=60)
def test_slices_of_a_saved_tensor(data: st.DataObject) -> None:
    """Of files that are cut in pieces, against NumPy."""
    n, m, cut = data.draw(st.integers(1, 9)), data.draw(st.integers(1, 6)), data.draw(st.integers(0, 9))
    values = np.arange(n * m, dtype=np.int32).reshape(n, m)
    with tempfile.TemporaryDirectory() as folder:
        buffers = []
        for k, (low, high) in enumerate(((0, min(cut, n)), (min(cut, n), n))):
            if low < high:
                (Path(folder) / str(k)).write_bytes(values[low:high].tobytes())
                box = (low, 0), (high - low, m), "int32"
                buffers.append(SavedBuffer(k, k, "t", *box, -1, False, True, "", str(k)))
        tensor = SavedTensor(folder, tuple(buffers), (n, m), "int32")
        where = tuple(
            slice(data.draw(st.integers(0, size)), data.draw(st.integers(0, size)), data.draw(st.integers(1, 3)))
            for size in (n, m)
        )
        assert tensor.read(where).tolist() == values[where].tolist()


@pytest.mark.parametrize("shape", [(), (12,), (4, 6), (4, 3, 2), (2, 3, 2, 2)])
def test_devices_that_have_nothing_of_a_tensor(shape: tuple[int, ...], tmp_path: Path) -> None:
    """Weights in one copy, or small results, are on some devices only."""
    g = Graph()
    g.output(ops.relu(g.input("x", shape), name="first"), "y")
    p = plan(g, Mesh(3), placement="single", fix={"first": {}})
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    run(p, {"x": x}, checkpoints=Checkpoints(tmp_path, after=["first"]))
    found = open_checkpoint(tmp_path)
    assert {one.device for one in found.manifest.buffers if one.tensor == "first"} == {0}
    more = Graph()
    more.output(more.input("first", shape) * 2.0, "z")
    for left in ([0, 1, 2], [1, 2], [2]):
        placed = found.layout(["first"], left)["first"]
        held = [cell for boxes in placed.by_device.values() for cell in list_cells(boxes)]
        assert sorted(held) == sorted(np.ndindex(*shape))
        made = found.replan(more, Mesh(len(left)), ["first"], left)
        outputs = run(made, {"first": found.read("first")}).outputs
        assert outputs["z"].tobytes() == (np.maximum(x, 0) * np.float32(2)).tobytes()


def test_copies_that_views_are_read_from_are_no_tensors(tmp_path: Path) -> None:
    g = Graph()
    x, y = g.input("x", (6, 4)), g.input("y", (6, 4))
    joined = concat([x, y[::-1]], 1)
    g.output(ops.softmax(joined, axis=1, name="first"), "z")
    g.output(ops.log_softmax(joined, axis=1), "w")
    feeds = {name: np.ones((6, 4), np.float32) for name in ("x", "y")}
    run(plan(g, Mesh(1), fuse=False), feeds, checkpoints=Checkpoints(tmp_path, after=["first"]))
    found = open_checkpoint(tmp_path)
    assert "concat" in {one.tensor for one in found.manifest.buffers}, "both operators read one copy"
    with pytest.raises(ValueError, match="has no cells of 'concat'; known tensors: 'first'"):
        found.read("concat")
