"""Plans that begin where a checkpoint's cells lie, on fewer devices: what moves, and where lost cells come from."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tapestry_exec import Checkpoint, Checkpoints, deploy, evaluate, open_checkpoint, run
from tapestry_exec.run.checkpoints.finished import SavedTensor, place_left
from tapestry_exec.run.checkpoints.folders import Manifest, SavedBuffer
from tapestry_plan import Graph, Mesh, Placed, ops, plan
from tests.exec.run.test_deploy import training_step

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


@pytest.mark.parametrize(
    ("lost", "moved"), [((), 0), ((2,), 2 * 384), ((0,), 2 * 384), ((3,), 2 * 384), ((1, 2), 384), ((0, 1, 3), 0)]
)
def test_each_keeps_its_own_and_reads_its_share(lost: tuple[int, ...], moved: int, tmp_path: Path) -> None:
    """Each device begins with its own cells and its share of those that were lost, which it reads from the files.

    Without a loss nothing moves behind that. With one, shares are not parts that a stage can have: each device computes
    it whole, so that all that lies elsewhere moves to it.
    """
    found = saved(tmp_path)
    left = [d for d in range(4) if d not in lost]
    layout = found.layout(["w"], devices=left)
    p = plan(rows(), Mesh(len(left)), layout=layout, tie=CARRY)
    result = run(p, {"w": found.read("w")})
    assert result.outputs["new_w"].tobytes() == np.maximum(W, 0).tobytes()
    assert all(nbytes >= 4 * 24 for nbytes in result.nbytes_placed), "what it had it begins with"
    assert sum(result.nbytes_placed) == W.nbytes and max(result.nbytes_placed) - min(result.nbytes_placed) <= 4 * 12
    assert result.nbytes_moved == p.nbytes_moved == moved
    for new, old in enumerate(left):
        mine = set(layout["w"].by_device[new])
        (own,) = (one for one in found.manifest.buffers if one.device == old and one.tensor == "w")
        cells = {
            q for box in mine for q in np.ndindex(*box.shape) for q in [tuple(map(sum, zip(box.start, q, strict=True)))]
        }
        assert cells >= {tuple(map(sum, zip(own.start, q, strict=True))) for q in np.ndindex(*own.shape)}


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
