"""Checkpoints: the bits of an undisturbed run from every stage, values that Zarr reads, and what is refused."""

from __future__ import annotations

import os
import random
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from tapestry_exec import Checkpoints, NumpyBackend, deploy, evaluate, open_checkpoint, run
from tapestry_exec.copies import aligned_bytes
from tapestry_exec.numpy.backend import NumpyDevice
from tapestry_exec.run import tuning
from tapestry_exec.run.alike import find_versions
from tapestry_exec.run.checkpoints import saving
from tapestry_exec.run.checkpoints.folders import (
    FORMAT,
    LOCK,
    SavedBuffer,
    list_begun,
    list_finished,
    map_cells,
    sum_bytes,
)
from tapestry_plan import Graph, Mesh, ShardPlan, least_memory, ops, plan
from tapestry_plan.ir import BUILTIN_OPS
from tapestry_plan.steps import spill
from tests.exec.own_ops import as_relu, raise_first
from tests.exec.run.test_deploy import training_step, weighted
from tests.exec.run.test_every_kind_of_plan import make_graph, make_plan
from tests.exec.run.test_same_bits import of_floats
from tests.exec.run.test_side_by_side import made
from tests.ways_of_running import Threads

WAYS: list[Any] = ["serial", Threads()]


def check_every_stage(p: ShardPlan, inputs: dict[str, Any], folder: Path, way: Any = "serial") -> int:
    """Save behind each stage, and go on from there in every way; how many stages there were."""
    wanted = run(p, inputs, backend="serial")
    for number, stage in enumerate(p.stages):
        there = folder / str(number)
        saving = Checkpoints(there, after=[stage.node])
        for found in (
            run(p, inputs, backend=way, checkpoints=saving),
            *(run(p, inputs, backend=each, resume=there) for each in WAYS),
        ):
            for name, array in wanted.outputs.items():
                assert found.outputs[name].tobytes() == array.tobytes(), (stage.node, name)
        assert found.resumed_at is not None and found.nbytes_moved <= wanted.nbytes_moved
    return len(p.stages)


@pytest.mark.parametrize("way", WAYS, ids=["loop", "threads"])
def test_partial_sums_go_on_from_every_stage(way: Any, tmp_path: Path) -> None:
    """Collectives, constants that are placed again, and plans that spill."""
    p, inputs = made(4)
    assert check_every_stage(p, inputs, tmp_path / "fits", way) >= 8
    tight = spill(p, max(least_memory(p)))
    assert any(tight.nbytes_spilled)
    check_every_stage(tight, inputs, tmp_path / "spills", way)


def test_constants_that_are_joined_and_turned_around_are_placed_again(tmp_path: Path) -> None:
    p, inputs = weighted()
    check_every_stage(p, inputs, tmp_path)
    saved = {one.tensor for k in range(len(p.stages)) for one in open_checkpoint(tmp_path / str(k)).manifest.buffers}
    assert not saved & {"w", "more", "bias"}


@pytest.mark.parametrize("begin", [0, *(pytest.param(k, marks=pytest.mark.heavy(16)) for k in range(3, 60, 3))])
def test_plans_of_every_kind_go_on_from_every_stage(begin: int, tmp_path: Path) -> None:
    """Permuted devices, periodic parts, landings, capped plans: and each third one spills."""
    for seed in range(begin, begin + 3):
        rng = random.Random(seed)
        g = make_graph(rng)
        p, _ = make_plan(g, rng)
        if seed % 3 == 0:
            p = spill(p, max(least_memory(p)))
        check_every_stage(p, of_floats(g, seed), tmp_path / str(seed))


@pytest.fixture(params=["in rows", "in files"])
def is_large(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether buffers have files of their own, or each writer one for all of them."""
    if request.param == "in files":
        monkeypatch.setattr(tuning, "OWN_FILE_NBYTES", 0)
    return bool(request.param == "in files")


def list_files(folder: str) -> list[str]:
    """What a checkpoint has besides descriptions."""
    found = (os.path.join(there, name) for there, _, names in os.walk(folder) for name in names if name != "zarr.json")
    return [os.path.relpath(path, folder) for path in found]


def read_row(rows: Any, one: SavedBuffer) -> Any:
    """The bytes of a small buffer, from the array of all writers' rows."""
    return rows[int(one.file.rpartition("/")[2].split(".")[1]), one.at : one.at + one.nbytes]


@pytest.mark.parametrize("way", WAYS, ids=["loop", "threads"])
def test_what_zarr_reads_are_the_values(way: Any, is_large: bool, tmp_path: Path) -> None:
    """A tensor whose boxes are a grid is one array; what is on no grid, or there twice, has an array of its own.

    Small buffers of a device, or of all in one loop, are the cells of a row, a chunk: two threads never write to one.
    Where there are no others, the rows are all there is.
    """
    zarr = pytest.importorskip("zarr", reason="zarr is not installed")
    g = Graph()
    x = g.input("x", (8, 6))
    act = ops.relu(x, name="act")
    g.output(ops.tanh(ops.exp(act, name="next").T, name="last"), "y")
    p = plan(g, Mesh(4), fix={"act": {"i0": 4}, "next": {"i1": 3}, "last": {"i0": 4}}, fuse=False, expand=False)
    x_values = np.random.default_rng(0).standard_normal((8, 6), np.float32)
    values = evaluate(g, {"x": x_values}, outputs=["act", "next", "last"])
    for name, chunks in (("act", (2, 6)), ("next", (8, 2)), ("last", None)):
        run(p, {"x": x_values}, backend=way, checkpoints=Checkpoints(tmp_path, after=[name]))
        found = open_checkpoint(tmp_path)
        top = zarr.open(found.path, mode="r")
        writers = 1 if way == "serial" else 4
        assert len(list_files(found.path)) == (len(found.manifest.buffers) if is_large else writers)
        read = np.full(values[name].shape, np.nan, np.float32)
        for one in found.manifest.buffers:
            box = tuple(slice(a, a + n) for a, n in zip(one.start, one.shape, strict=True))
            if is_large:
                array = top[one.file.rpartition("/")[0]]
                read[box] = array[box] if one.file.startswith("tensors") else array[...]
            else:
                read[box] = read_row(top, one).view(one.dtype).reshape(one.shape)
        assert read.tobytes() == values[name].tobytes()
        if not is_large:
            assert top.chunks == (1, top.shape[1]) and top.shape[0] == writers
            continue
        whole = [array for _, array in top["tensors"].arrays()] if "tensors" in top else []
        assert [array.chunks for array in whole] == ([] if chunks is None else [chunks])
        assert all(array[...].tobytes() == values[name].tobytes() for array in whole)


@pytest.mark.heavy(2)
@pytest.mark.parametrize("way", WAYS, ids=["loop", "threads"])
@pytest.mark.parametrize("nbytes", [1, 16, 64, 256, 512, 1024])
def test_small_and_large_buffers_beside_each_other(
    nbytes: int, way: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Zarr reads what was saved, and no file has anything else."""
    zarr = pytest.importorskip("zarr", reason="zarr is not installed")
    monkeypatch.setattr(tuning, "OWN_FILE_NBYTES", nbytes)
    p, inputs = made(4)
    for number in range(check_every_stage(p, inputs, tmp_path, way)):
        found = open_checkpoint(tmp_path / str(number))
        top, rows = zarr.open(found.path, mode="r"), set[str]()
        for one in found.manifest.buffers:
            folder, _, name = one.file.rpartition("/")
            array = top[folder] if folder else top
            if one.nbytes < nbytes:
                rows.add(folder)
                read = read_row(array, one)
            else:
                chunk = [int(n) for n in name.split(".")[1:]]
                read = array[tuple(slice(k * n, (k + 1) * n) for k, n in zip(chunk, array.chunks, strict=True))]
            assert read.tobytes() == map_cells(Path(found.path), one).tobytes()
        files = {one.file for one in found.manifest.buffers}
        others = set(list_files(found.path)) - files  # rows of writers that have large buffers alone
        assert files <= set(list_files(found.path)) and all(os.path.dirname(each) in rows for each in others)


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint64", "float16", "complex64"])
def test_cells_of_any_dtype(dtype: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    zarr = pytest.importorskip("zarr", reason="zarr is not installed")
    g = Graph()
    x = g.input("x", (4, 6), dtype)
    g.output(ops.where(g.input("c", (4, 6), "bool"), x, x, name="one"), "y")
    rng = np.random.default_rng(1)
    inputs = {"x": rng.integers(0, 2, (4, 6)).astype(dtype), "c": np.ones((4, 6), bool)}
    p = plan(g, Mesh(2))
    check_every_stage(p, inputs, tmp_path / "rows")
    monkeypatch.setattr(tuning, "OWN_FILE_NBYTES", 0)
    check_every_stage(p, inputs, tmp_path)
    found = zarr.open_group(open_checkpoint(tmp_path / "0").path)
    arrays = [array for kind in ("tensors", "buffers") if kind in found for _, array in found[kind].arrays()]
    assert dtype in {str(array.dtype) for array in arrays}


# -- when -------------------------------------------------------------------------------------------------------


def slow(seconds: float) -> dict[str, Any]:
    def block(xp: Any, inputs: Any, outputs: Any, shard: Any) -> None:
        time.sleep(seconds)
        BUILTIN_OPS["relu"].block(xp, inputs, outputs, shard)

    return {"relu": replace(BUILTIN_OPS["relu"], block=block)}


def chain(length: int = 6) -> tuple[ShardPlan, dict[str, Any]]:
    g = Graph()
    y = g.input("x", (8, 4))
    for k in range(length):
        y = ops.relu(y if k % 2 else y[::-1], name=f"act{k}") + 1.0
    g.output(y, "y")
    fix = {f"act{k}": {"i0": 2} for k in range(length)}
    return plan(g, Mesh(2), fix=fix, fuse=False), {"x": np.random.default_rng(2).random((8, 4), np.float32)}


@pytest.mark.parametrize("way", WAYS, ids=["loop", "threads"])
def test_every_so_many_seconds(way: Any, tmp_path: Path) -> None:
    """Devices agree on the stages, though each comes there at another time."""
    p, inputs = chain()
    wanted = run(p, inputs, backend="serial").outputs["y"].tobytes()
    run(p, inputs, backend=way, ops=slow(0.03), checkpoints=Checkpoints(tmp_path, seconds=0.05, keep=99))
    finished = list_finished(tmp_path)
    assert 1 <= len(finished) < len(p.stages) and not list_begun(tmp_path)
    for _, _, path in finished:
        assert run(p, inputs, resume=path).outputs["y"].tobytes() == wanted
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
    run(p, inputs, backend=way, checkpoints=Checkpoints(tmp_path / "none", seconds=3600))
    assert list((tmp_path / "none").iterdir()) == []


def test_the_last_ones_stay(tmp_path: Path) -> None:
    p, inputs = chain()
    names = [f"act{k}" for k in range(6)]
    for keep in (2, 1):
        run(p, inputs, checkpoints=Checkpoints(tmp_path, after=names, keep=keep))
        assert len(list_finished(tmp_path)) == keep and open_checkpoint(tmp_path).after == "act5"


def test_values_that_are_not_read_any_more_may_be_left_out(tmp_path: Path) -> None:
    g = Graph()
    a, b = g.input("a", (6, 4)), g.input("b", (6, 4))
    first = ops.relu(a, name="first")
    g.output(ops.tanh(first, name="second") + b, "y")
    p = plan(g, Mesh(2), fuse=False, memory_nbytes=None)
    inputs = {"a": np.full((6, 4), 2, np.float32), "b": np.full((6, 4), 3, np.float32)}
    wanted = run(p, inputs, checkpoints=Checkpoints(tmp_path, after=["second"])).outputs["y"]
    saved = {one.tensor for one in open_checkpoint(tmp_path).manifest.buffers}
    left = {name: inputs[name] for name in ("a", "b") if name == "b" and "b" not in saved}
    assert run(p, left, resume=tmp_path, backend="serial").outputs["y"].tobytes() == wanted.tobytes()
    with pytest.raises(ValueError, match=r"run: verify=True needs the values of all inputs; 'a' is left out: give it"):
        run(p, left, resume=tmp_path, verify=True)
    assert run(p, inputs, resume=tmp_path, verify=True).difference == {"y": 0.0}


def test_other_values_of_inputs_that_are_read_later_are_refused(tmp_path: Path) -> None:
    """Where memory is short an input is read again from the host, behind the checkpoint."""
    g = Graph()
    x, u, v = g.input("x", (64, 64)), g.input("u", (128, 1)), g.input("v", (1, 128))
    big = ops.tanh(ops.exp((u * v + ops.sum(x, axis=(0, 1), keepdims=True))[::-1], name="big")[::-1], name="bigger")
    g.output(ops.add(x, ops.sum(big, axis=(0, 1), keepdims=True)), "y")
    p = plan(g, Mesh(1), fuse=False)
    tight = spill(p, max(least_memory(p)))
    inputs = {name: np.full(g.stored[name].shape, 0.001, np.float32) for name in ("x", "u", "v")}
    wanted = run(tight, inputs, checkpoints=Checkpoints(tmp_path, after=["big"])).outputs["y"].tobytes()
    with pytest.raises(ValueError, match=r"resume: input 'x' has other values than when the checkpoint was saved"):
        run(tight, {"x": inputs["x"] + 1}, resume=tmp_path)
    with pytest.raises(ValueError, match="'x' is missing"):
        run(tight, {}, resume=tmp_path)
    assert run(tight, {"x": inputs["x"]}, resume=tmp_path).outputs["y"].tobytes() == wanted


def two_stages() -> tuple[ShardPlan, dict[str, Any]]:
    """An input that is read before the first stage alone."""
    g = Graph()
    g.output(ops.tanh(ops.relu(g.input("x", (6, 4)), name="first"), name="second"), "y")
    return plan(g, Mesh(2), fuse=False), {"x": np.full((6, 4), 0.5, np.float32)}


def test_other_values_of_inputs_that_were_read_are_refused(tmp_path: Path) -> None:
    """The old answer is not given for them; what another checkpoint was gone on from is not forgotten."""
    p, inputs = two_stages()
    run(p, inputs, checkpoints=Checkpoints(tmp_path, after=["first"]))
    run(p, {}, resume=tmp_path, checkpoints=Checkpoints(tmp_path / "second", after=["second"]))
    for there in (tmp_path, tmp_path / "second"):
        told = r"resume: input 'x' has other values than when the checkpoint was saved: give the same, or run without"
        with pytest.raises(ValueError, match=told):
            run(p, {"x": inputs["x"] + 1}, resume=there)
        for given in (inputs, {}):
            assert run(p, given, resume=there).outputs["y"].tobytes() == np.tanh(inputs["x"]).tobytes()


def test_carried_inputs_are_not_given_beside_a_checkpoint(tmp_path: Path) -> None:
    g, carry, feeds = training_step()
    p = plan(g, Mesh(2), tie=carry)
    with deploy(p, carry=carry) as placed:
        placed.run(feeds, checkpoints=Checkpoints(tmp_path, after=[p.stages[0].node]))
        name = min(carry.values())
        told = f"resume: input '{name}' is carried, and the checkpoint has its value: leave it out, or run without"
        with pytest.raises(ValueError, match=told):
            placed.run({"x": feeds["x"], name: feeds[name]}, resume=tmp_path)


@pytest.mark.parametrize("what", ["tapestry-tensor", "numpy", "BLAS"])
def test_other_versions_are_refused(what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    p, inputs = two_stages()
    here = find_versions()
    monkeypatch.setattr(saving, "find_versions", lambda: {**here, what: "0.0"})
    run(p, inputs, checkpoints=Checkpoints(tmp_path, after=["first"]))
    monkeypatch.undo()
    mend = "run on machines of one kind" if what == "BLAS" else f"install {what} 0.0 everywhere"
    told = rf"resume: checkpoint '.*' has {what} 0.0, this process has {re.escape(here[what])}; {mend}"
    with pytest.raises(ValueError, match=told):
        run(p, inputs, resume=tmp_path)


# -- a folder for each run --------------------------------------------------------------------------------------


def test_two_runs_at_once_are_not_in_one_folder(tmp_path: Path) -> None:
    """The second one is begun while the first one runs: it is refused, and takes nothing away."""
    p, inputs = two_stages()
    told = list[str]()

    def block(xp: Any, given: Any, outputs: Any, shard: Any) -> None:
        if not told:
            told.append("")
            with pytest.raises(ValueError, match="checkpoints: another run saves to the folder") as caught:
                run(p, inputs, checkpoints=saving_there)
            told.append(str(caught.value))
        BUILTIN_OPS["tanh"].block(xp, given, outputs, shard)

    saving_there = Checkpoints(tmp_path, after=["first"])
    run(p, inputs, backend="serial", ops={"tanh": replace(BUILTIN_OPS["tanh"], block=block)}, checkpoints=saving_there)
    assert f"(process {os.getpid()} on {socket.gethostname()}); give each run a folder of its own" in told[1]
    assert len(list(tmp_path.iterdir())) == 1 and open_checkpoint(tmp_path).after == "first"


def test_a_lock_counts_while_its_process_lives(tmp_path: Path) -> None:
    p, inputs = two_stages()
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    here = socket.gethostname()
    for owner, is_over in ((f"{dead.pid} {here}", True), (f"{os.getpid()} {here}", True), ("1 elsewhere", False)):
        (tmp_path / LOCK).write_text(owner)
        if is_over:
            run(p, inputs, checkpoints=Checkpoints(tmp_path, after=["first"]))
            assert not (tmp_path / LOCK).exists()
        else:
            with pytest.raises(ValueError, match=r"\(process 1 on elsewhere\); .* or remove .lock there if that run"):
                run(p, inputs, checkpoints=Checkpoints(tmp_path, after=["first"]), ops=as_relu(raise_first))
            assert (tmp_path / LOCK).read_text() == owner


def test_what_is_of_another_plan_stays(tmp_path: Path) -> None:
    p, inputs = two_stages()
    other, others = chain()
    run(other, others, checkpoints=Checkpoints(tmp_path, after=["act0"]))
    told = (
        r"checkpoints: the folder '.*' has \d{8}-\d{6} of another plan \(its digest .*\); give each run a folder of its"
    )
    with pytest.raises(ValueError, match=told):
        run(p, inputs, checkpoints=Checkpoints(tmp_path, after=["first"]), ops=as_relu(raise_first))
    assert open_checkpoint(tmp_path).after == "act0"
    begun = tmp_path / "more" / ".00000001-000003.0123456789abcdef.begun"
    begun.mkdir(parents=True)
    with pytest.raises(ValueError, match=r"has \.00000001-000003\.0123456789abcdef\.begun of another plan"):
        run(p, inputs, checkpoints=Checkpoints(tmp_path / "more", after=["first"]))
    begun.rename(tmp_path / "more" / "00000001-000003")  # what is no checkpoint
    for _ in range(2):
        run(p, inputs, checkpoints=Checkpoints(tmp_path / "more", after=["first"]))
    assert len(list_finished(tmp_path / "more")) == 2 and (tmp_path / "more" / "00000001-000003").exists()


# -- deployments ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS, ids=["loop", "threads"])
def test_a_deployment_goes_on_with_its_state(way: Any, tmp_path: Path) -> None:
    """Training is broken off in the middle of its fourth step; another deployment ends it with the same bits."""
    g, carry, feeds = training_step()
    p = plan(g, Mesh((2,)), tie=carry)
    batches = [np.random.default_rng(k).random((8, 6), np.float32) for k in range(6)]
    with deploy(p, backend=way, carry=carry) as placed:
        wanted = [placed.run({**(feeds if not k else {}), "x": x}) for k, x in enumerate(batches)][-1]
    for stage in p.stages[::5]:
        there = tmp_path / str(p.stages.index(stage))
        with deploy(p, backend=way, carry=carry) as placed:
            for k, x in enumerate(batches[:4]):
                placed.run({**(feeds if not k else {}), "x": x}, checkpoints=Checkpoints(there, after=[stage.node]))
        found = open_checkpoint(there)
        assert found.manifest.run == 3
        with deploy(p, backend=way, carry=carry) as placed:
            first = placed.run({"x": batches[3]}, resume=found)
            assert first.resumed_at == found.manifest.cut
            last = [placed.run({"x": x}) for x in batches[4:]][-1]
        for name in carry:
            assert last.outputs[name].tobytes() == wanted.outputs[name].tobytes(), stage.node


def test_what_a_run_without_carry_saved_has_no_state(tmp_path: Path) -> None:
    g, carry, feeds = training_step()
    p = plan(g, Mesh((2,)), tie=carry)
    run(p, feeds, checkpoints=Checkpoints(tmp_path, after=[p.stages[-1].node]))
    with (
        deploy(p, carry=carry) as placed,
        pytest.raises(ValueError, match=r"has nothing of '[vw]' on device 0, which is needed here: .* without carry"),
    ):
        placed.run({"x": feeds["x"]}, resume=tmp_path)


# -- what is refused --------------------------------------------------------------------------------------------


def test_nothing_runs_where_a_checkpoint_cannot_be_used(tmp_path: Path) -> None:
    p, inputs = made(2)
    other, _ = made(3)
    run(p, inputs, checkpoints=Checkpoints(tmp_path / "there", after=["act"]))
    (tmp_path / "empty").mkdir()
    never = as_relu(raise_first)
    for path, told in (
        (tmp_path / "none", r"checkpoint: there is no folder '.*none'; give one with checkpoints"),
        (tmp_path / "empty", r"checkpoint: the folder '.*empty' has none; give the one that Checkpoints\(path\)"),
    ):
        with pytest.raises(ValueError, match=told):
            run(p, inputs, resume=path, ops=never)
    told = r"resume: checkpoint '.*' is of another plan \(its digest is \w{16}, this plan's \w{16}\); resume that plan"
    with pytest.raises(ValueError, match=told):
        run(other, inputs, resume=tmp_path / "there", ops=never)
    for backend in ("onnxruntime", "simulated"):
        try:
            with pytest.raises(ValueError, match=f"checkpoints: backend '{backend}' neither writes nor reads them"):
                run(p, inputs, resume=tmp_path / "there", backend=backend)
        except RuntimeError:  # it is not installed here
            continue


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


DAMAGES: dict[str, tuple[Callable[[Path, int], object], str]] = {
    "flipped": (flip, "has other bytes than were written"),
    "short": (lambda path, _: path.write_bytes(path.read_bytes()[:-1]), r"has [\d,]+ bytes, and [\d,]+ were written"),
    "long": (lambda path, _: path.write_bytes(path.read_bytes() + b"\0"), r"has [\d,]+ bytes, and [\d,]+ were written"),
    "zeros": (lambda path, _: path.write_bytes(bytes(path.stat().st_size)), "has other bytes than were written"),
    "missing": (lambda path, _: path.unlink(), "cannot be read"),
}


@pytest.mark.parametrize("kind", DAMAGES)
def test_damage_is_named_before_the_first_step(kind: str, is_large: bool, tmp_path: Path) -> None:
    p, inputs = made(2)
    run(p, inputs, checkpoints=Checkpoints(tmp_path, after=["act"]))
    found = open_checkpoint(tmp_path)
    do, told = DAMAGES[kind]
    last = found.manifest.buffers[-1]
    assert is_large == (not last.file.startswith("c."))
    do(Path(found.path) / last.file, last.at + last.nbytes // 2)
    with pytest.raises(ValueError, match=rf"checkpoint '.*' is damaged: .*{told}.*resume from another one"):
        run(p, inputs, resume=tmp_path, ops=as_relu(raise_first))


@pytest.mark.parametrize("is_spread", [False, True], ids=["rows", "all kinds"])
def test_damage_to_what_tells_zarr_of_the_bytes_is_named(
    is_spread: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each description, each damage: nothing here reads them, but others would read other values."""
    if is_spread:
        monkeypatch.setattr(tuning, "OWN_FILE_NBYTES", 400)
    p, inputs = made(3)
    run(p, inputs, checkpoints=Checkpoints(tmp_path, after=["act"]))
    wanted = run(p, inputs, resume=tmp_path).outputs["y"].tobytes()
    files = sorted(Path(open_checkpoint(tmp_path).path).rglob("zarr.json"))
    assert len(files) > 3 if is_spread else len(files) == 1
    for file in files:
        whole = file.read_bytes()
        shape = whole.index(b'"zarr_format":3') + len('"zarr_format":')
        for damaged in (
            *(
                whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]
                for at in (0, len(whole) // 2, len(whole) - 1, shape)
            ),
            *(whole[: len(whole) // 2], b"", whole + b"x", whole + b" ", None),
        ):
            file.unlink() if damaged is None else file.write_bytes(damaged)
            with pytest.raises(ValueError, match=r"checkpoint '.*' (is damaged|has (no|another) zarr.json)"):
                run(p, inputs, resume=tmp_path)
            file.write_bytes(whole)
    assert run(p, inputs, resume=tmp_path).outputs["y"].tobytes() == wanted


@pytest.mark.parametrize("kind", ["edited", "no json", "missing", "older", "another group"])
def test_a_manifest_that_is_wrong_is_named(kind: str, tmp_path: Path) -> None:
    p, inputs = made(2)
    run(p, inputs, checkpoints=Checkpoints(tmp_path, after=["act"]))
    manifest = Path(open_checkpoint(tmp_path).path) / "zarr.json"
    text = manifest.read_text()
    if kind == "missing":
        manifest.unlink()
    else:
        manifest.write_text(
            {
                "edited": text.replace('"cut":', '"cut":1'),
                "no json": text[:-9],
                "older": text.replace(FORMAT, "tapestry-checkpoint/0"),
                "another group": '{"zarr_format":3,"node_type":"group","attributes":{"tapestry-like":1}}',
            }[kind]
        )
    with pytest.raises(ValueError, match=r"checkpoint '.*' (is damaged|has (no|another) zarr.json|has no manifest in)"):
        run(p, inputs, resume=tmp_path)


def test_what_was_begun_and_never_finished_is_not_taken(tmp_path: Path) -> None:
    """A run that fails while its devices save leaves nothing; what one leaves that is killed the next takes away."""
    p, inputs = chain()
    begun = list[Path]()

    class FullDisk(NumpyDevice):
        """The second device finds the disk full."""

        def show(self, buffer: Any) -> Any:
            if found := list_begun(tmp_path):
                begun.extend(path for *_, path in found)
                raise OSError(28, "No space left on device")
            return super().show(buffer)

    class Full(NumpyBackend):
        def make_device(self, nbytes: int) -> NumpyDevice:
            return FullDisk(aligned_bytes(nbytes))

    told = (
        r"failed: OSError: \[Errno 28\] the checkpoint behind 'act2' cannot be written to the folder '.*' \(No space "
    )
    with pytest.raises(RuntimeError, match=told + r"left on device\); make room there, or give Checkpoints another"):
        run(p, inputs, backend=Full(), checkpoints=Checkpoints(tmp_path, after=["act2"]))
    assert begun and not list(tmp_path.iterdir())
    begun[0].mkdir()
    (begun[0] / "c.0.0.part").write_bytes(b"half")
    with pytest.raises(ValueError, match="was begun and never finished: the run ended before; run again"):
        run(p, inputs, resume=tmp_path)
    run(p, inputs, checkpoints=Checkpoints(tmp_path, after=["act2"]))
    assert not list_begun(tmp_path) and len(list_finished(tmp_path)) == 1


FULL = """
import os, sys
from pathlib import Path
import numpy as np
from tapestry_exec import Checkpoints, StepFailed, run
from tapestry_plan import Graph, Mesh, ops, plan
from tests.ways_of_running import Threads
there = sys.argv[1]
g = Graph()
g.output(ops.tanh(ops.relu(g.input("x", (256, 256)), name="act"), name="last"), "y")
p, x = plan(g, Mesh(2), fuse=False), np.ones((256, 256), np.float32)
for way in ("serial", Threads(), "processes"):
    try:
        run(p, {"x": x}, backend=way, checkpoints=Checkpoints(there, after=["act"]))
    except StepFailed as error:
        print(error, os.listdir(there), sep=" | ")
Path(there, "full").write_bytes(bytes(60 * 1024))  # nearly: an empty file finds room
for name in range(99):
    try:
        with open(f"{there}/{name}", "wb") as file:
            file.write(bytes(4096))
    except OSError:
        break
try:
    run(p, {"x": x}, checkpoints=Checkpoints(there, after=["act"]))
except ValueError as error:
    print(error)
"""


def test_a_full_disk_is_named_and_nothing_is_left_there(tmp_path: Path) -> None:
    """With a disk of 64 KiB, where each of two devices has 128 to save."""
    mount = f'mount -t tmpfs -o size=64k none "{tmp_path}" && exec "$@"'
    unshare = ["unshare", "--mount", "sh", "-c", mount, "sh"]
    if not shutil.which("unshare") or subprocess.run([*unshare, "true"], stderr=subprocess.DEVNULL).returncode:
        pytest.skip("mount namespaces are not allowed here")
    done = subprocess.run(
        [*unshare, sys.executable, "-c", FULL, str(tmp_path)],
        cwd=Path(__file__).parents[3],
        stdout=subprocess.PIPE,
        text=True,
        timeout=120,
        check=True,
    )
    *runs, last = done.stdout.splitlines()
    assert len(runs) == 3
    for line in runs:
        assert f"the checkpoint behind 'act' cannot be written to the folder '{tmp_path}' (No space left on dev" in line
        assert line.endswith("); make room there, or give Checkpoints another folder | []")
    assert last == (
        f"checkpoints: the folder '{tmp_path}' cannot be written to (No space left on device); make room there, or "
        "choose another one"
    )


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, "nothing says when to save; give after="),
        ({"seconds": 0}, "seconds is 0; give a number of seconds above 0"),
        ({"seconds": -1.0}, "seconds is -1.0; give"),
        ({"seconds": float("nan")}, "seconds is nan; give"),
        ({"after": ["act"], "keep": 0}, "keep is 0; give 1 or more"),
    ],
)
def test_wrong_wishes_are_named(given: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        Checkpoints("there", **given)


@pytest.mark.parametrize("path", ["", "a\0b"])
def test_what_names_no_folder_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match=r"Checkpoints: path is '.*'; give the path of a folder"):
        Checkpoints(path, after=["act"])
    with pytest.raises(ValueError, match=r"open_checkpoint: path is '.*'; give the path of a folder"):
        open_checkpoint(path)


def test_a_stage_that_is_not_there_is_named(tmp_path: Path) -> None:
    p, inputs = made(2)
    with pytest.raises(ValueError, match=r"checkpoints: the plan has no stage 'acts'; .*'act'"):
        run(p, inputs, checkpoints=Checkpoints(tmp_path, after=["acts"]), ops=as_relu(raise_first))
    g = Graph()
    g.output(ops.exp(ops.relu(g.input("x", (4, 6)), name="inner"), name="outer"), "y")
    fused = plan(g, Mesh(1))
    if "inner" not in fused.graph.nodes:
        with pytest.raises(ValueError, match=r"no stage 'inner', but the block 'outer' that it is inside of"):
            run(fused, {"x": np.ones((4, 6), np.float32)}, checkpoints=Checkpoints(tmp_path, after=["inner"]))
    file = tmp_path / "file"
    file.write_text("")
    for path in (file, file / "below"):
        with pytest.raises(ValueError, match=r"checkpoints: the folder '.*' cannot be made"):
            run(p, inputs, checkpoints=Checkpoints(path, after=["act"]))


def test_sums_see_each_bit_and_each_page() -> None:
    rng = np.random.default_rng(0)
    for nbytes in (0, 1, 7, 8, 8168, 8169, 3 * 8168 + 5, 65536):
        data = rng.integers(0, 256, nbytes, np.uint8)
        wanted = sum_bytes(data)
        assert sum_bytes(data.copy()) == wanted
        for at in rng.integers(0, nbytes, 5) if nbytes else ():
            other = data.copy()
            other[at] ^= np.uint8(1 << int(rng.integers(8)))
            assert sum_bytes(other) != wanted
    pages = rng.integers(0, 256, (16, 4096), np.uint8)
    for a in range(16):
        for b in range(a):
            other = pages.copy()
            other[[a, b]] = pages[[b, a]]
            assert sum_bytes(other) != sum_bytes(pages)


def test_sums_see_what_is_exchanged_turned_and_moved() -> None:
    """By any number of bytes: a sum of columns is the same for rows of that length in another order."""
    for words in (1, 2, 1021, 1024):
        data = np.random.default_rng(words).random((64, words))
        data[5] = -data[3]
        wanted = sum_bytes(data)
        others = [data[::-1], np.roll(data, 1, axis=0), np.roll(data, 1, axis=1) if words > 1 else -data]
        others.append(data.copy())
        others[-1][[3, 5]] = data[[5, 3]]
        for other in others:
            assert sum_bytes(other) != wanted
