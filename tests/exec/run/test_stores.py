"""Arrays of Zarr's and Dask's as inputs and outputs: read and written by region, where devices run."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tapestry_exec import StepFailed, deploy, evaluate, run
from tapestry_exec.run import tuning as stores_tuning
from tapestry_exec.run.stores import Source, ZarrSource, cut_at_chunks, find_source, find_targets, list_slices
from tapestry_exec.simulated import shim
from tapestry_plan import Graph, Mesh, ShardPlan, ops, plan
from tapestry_sets import Region
from tests.exec.own_ops import as_relu, raise_first
from tests.hosts import find_mpiexec
from tests.strategies import regions_in_one_box
from tests.ways_of_running import COUNTED, Threads

zarr = pytest.importorskip("zarr", reason="zarr is not installed")
REPOSITORY = Path(__file__).parents[3]
WAYS: list[Any] = ["serial", Threads()]


def viewed() -> tuple[ShardPlan, dict[str, np.ndarray]]:
    """An input that is read backwards; outputs in slabs, in blocks, and turned around."""
    g = Graph()
    x, w = g.input("x", (40, 24)), g.input("w", (24, 16))
    g.output(ops.relu(x[::-1] @ w, name="act"), "y")
    g.output(ops.exp(x, name="exp").T, "turned")
    rng = np.random.default_rng(0)
    return plan(g, Mesh(4), fix={"exp": {"i0": 4}}, fuse=False), {
        "x": rng.random((40, 24), np.float32),
        "w": rng.random((24, 16), np.float32),
    }


class Counting:
    """An array of Zarr's whose reads and writes are counted, in cells."""

    def __init__(self, array: Any) -> None:
        self.array, self.shape, self.dtype, self.store = array, array.shape, array.dtype, array.store
        self.chunks, self.shards, self.read_only = array.chunks, array.shards, array.read_only
        self.read, self.written = list[int](), list[int]()

    def __getitem__(self, where: Any) -> Any:
        found = np.asarray(self.array[where])
        self.read.append(found.size)
        return found

    def __setitem__(self, where: Any, values: Any) -> None:
        self.written.append(np.asarray(values).size)
        self.array[where] = values


Counting.__module__ = "zarr"


def store(folder: Path, name: str, values: np.ndarray, chunks: tuple[int, ...], **more: Any) -> Any:
    array = zarr.create_array(folder / name, shape=values.shape, dtype=values.dtype, chunks=chunks, **more)
    array[...] = values
    return array


def empty(folder: Path, name: str, shape: tuple[int, ...], chunks: tuple[int, ...], **more: Any) -> Any:
    return zarr.create_array(folder / name, shape=shape, dtype="float32", chunks=chunks, **more)


@pytest.mark.parametrize("way", WAYS, ids=["loop", "threads"])
@pytest.mark.parametrize("chunks", [(10, 16), (7, 3), (40, 16)])
def test_outputs_are_written_and_inputs_read_by_region(way: Any, chunks: tuple[int, int], tmp_path: Path) -> None:
    p, inputs = viewed()
    wanted = run(p, inputs, backend="serial")
    x = Counting(store(tmp_path, "x", inputs["x"], (7, 5)))
    y, turned = empty(tmp_path, "y", (40, 16), chunks), empty(tmp_path, "turned", (24, 40), (5, 7))
    found = run(p, {"x": x, "w": inputs["w"]}, backend=way, outputs={"y": y, "turned": turned})
    assert found.outputs["y"] is y and found.outputs["turned"] is turned
    for name, array in wanted.outputs.items():
        assert found.outputs[name][...].tobytes() == array.tobytes()
    for name in COUNTED:
        assert getattr(found, name) == getattr(wanted, name)
    placed = sum(found.nbytes_placed) - sum(wanted.nbytes_placed) + 4 * sum(x.read)
    assert 4 * max(x.read) < inputs["x"].nbytes or p.mesh.size == 1
    assert placed <= sum(wanted.nbytes_placed)
    differences = run(p, inputs, verify=True).difference
    assert run(p, {"x": x, "w": inputs["w"]}, outputs={"y": y}, verify=True).difference == differences
    of_dask = pytest.importorskip("dask.array", reason="dask is not installed").from_zarr(y)
    assert of_dask.chunksize == chunks and (of_dask[3:5].compute() == y[3:5]).all()


def test_devices_that_work_ahead_are_waited_for(tmp_path: Path) -> None:
    """GPUs, simulated ones: what comes is written when it is there."""
    if shim.found_compiler() is None:
        pytest.skip("no C++ compiler")
    p, inputs = viewed()
    wanted = run(p, inputs, backend="simulated").outputs
    x, y = store(tmp_path, "x", inputs["x"], (7, 5)), empty(tmp_path, "y", (40, 16), (10, 16))
    found = run(p, {"x": x, "w": inputs["w"]}, backend="simulated", outputs={"y": y}).outputs
    assert y[...].tobytes() == wanted["y"].tobytes() and found["turned"].tobytes() == wanted["turned"].tobytes()


def test_each_device_reads_its_regions_and_no_other_cell(tmp_path: Path) -> None:
    g = Graph()
    g.output(ops.relu(g.input("x", (64, 8)), name="act"), "y")
    p = plan(g, Mesh(4), fix={"act": {"i0": 4}})
    values = np.random.default_rng(1).standard_normal((64, 8), np.float32)
    x = Counting(store(tmp_path, "x", values, (16, 8)))
    y = Counting(empty(tmp_path, "y", (64, 8), (16, 8)))
    found = run(p, {"x": x}, outputs={"y": y})
    assert x.read == [128] * 4 and sorted(y.written) == [128] * 4
    assert found.outputs["y"] is y and y.array[...].tobytes() == np.maximum(values, 0).tobytes()


def test_dask_arrays_are_computed_chunk_by_chunk() -> None:
    da = pytest.importorskip("dask.array", reason="dask is not installed")
    p, inputs = viewed()
    wanted = run(p, inputs, backend="serial")
    asked: list[Any] = []

    def block(block_info: Any = None) -> np.ndarray:
        (a, b), (c, d) = block_info[None]["array-location"]
        asked.append((a, c))
        return inputs["x"][a:b, c:d]

    x = da.map_blocks(block, chunks=((10,) * 4, (24,)), dtype=np.float32, meta=np.empty((0, 0), np.float32))
    found = run(p, {"x": x, "w": da.from_array(inputs["w"], chunks=(5, 16))}, backend="serial")
    assert all(found.outputs[name].tobytes() == array.tobytes() for name, array in wanted.outputs.items())
    assert set(asked) == {(k, 0) for k in (0, 10, 20, 30)}
    assert evaluate(p.graph, {"x": x, "w": inputs["w"]})["turned"].shape == (24, 40)


def test_single_numbers_are_read_and_written(tmp_path: Path) -> None:
    """Arrays without axes, of Zarr's and of Dask's."""
    da = pytest.importorskip("dask.array", reason="dask is not installed")
    number, found = (zarr.create_array(str(tmp_path / name), shape=(), dtype="float32") for name in "xy")
    number[...] = 3.0
    g = Graph()
    g.output(ops.relu(g.input("x", ())), "y")
    g.output(ops.relu(g.input("x2", ())) + g.input("row", (4,)), "z")
    row, x2 = np.arange(4, dtype=np.float32), da.from_array(np.array(2.0, np.float32))
    told = run(plan(g, Mesh(2)), {"x": number, "x2": x2, "row": row}, outputs={"y": found})
    assert found[...] == 3.0 and np.array_equal(told.outputs["z"], row + 2)


@pytest.mark.heavy(2)
def test_a_deployment_reads_them_in_each_run(tmp_path: Path) -> None:
    p, inputs = viewed()
    x = store(tmp_path, "x", inputs["x"], (8, 24))
    for way in (*WAYS, "processes"):
        with deploy(p, backend=way) as placed:
            for k in range(2):
                x[...] = inputs["x"] + k
                y = empty(tmp_path, "y", (40, 16), (10, 16), overwrite=True)
                found = placed.run({"x": x, "w": inputs["w"]}, outputs={"y": y})
                wanted = run(p, {"x": inputs["x"] + k, "w": inputs["w"]}, backend="serial")
                assert y[...].tobytes() == wanted.outputs["y"].tobytes()
                assert found.outputs["turned"].tobytes() == wanted.outputs["turned"].tobytes()


def test_what_lies_in_this_process_is_handed_to_others() -> None:
    """An array in memory, and chunks that two devices share: the caller reads and writes them."""
    p, inputs = viewed()
    x, y = zarr.array(inputs["x"], chunks=(8, 24)), zarr.create_array({}, shape=(40, 16), dtype="f4", chunks=(7, 16))
    found = run(p, {"x": x, "w": inputs["w"]}, backend="processes", outputs={"y": y})
    assert not find_source(x).is_portable  # type: ignore[union-attr]
    assert found.outputs["y"][...].tobytes() == run(p, inputs, backend="serial").outputs["y"].tobytes()


# -- who writes a chunk -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shards", [None, (20, 16)])
@pytest.mark.parametrize("chunks", [(10, 16), (5, 4), (20, 8), (4, 16), (40, 16), (1, 1)])
def test_no_chunk_has_two_writers(chunks: tuple[int, int], shards: tuple[int, int] | None, tmp_path: Path) -> None:
    """Enumerated: each chunk with the devices whose cells are in it."""
    if shards and any(s % c for s, c in zip(shards, chunks, strict=True)):
        pytest.skip("chunks do not fill these shards")
    g = Graph()
    g.output(ops.relu(g.input("x", (40, 16)), name="act"), "y")
    for parts in ({"i0": 4}, {"i0": 2, "i1": 2}, {"i1": 4}):
        p = plan(g, Mesh(4), fix={"act": parts})
        y = empty(tmp_path, "y", (40, 16), chunks, shards=shards, overwrite=True)
        buffers = {b.id: b for b in p.buffers}
        written = find_targets(p.graph, p.outputs, buffers, {"y": y}, {})
        grain = shards or chunks
        blocks = p.outputs[0].blocks
        chunks_of = [
            {tuple(i // c for i, c in zip(q, grain, strict=True)) for q in r.points().tolist()} for _, r in blocks
        ]
        for k, (number, _) in enumerate(blocks):
            others = [
                c for (n, _), c in zip(blocks, chunks_of, strict=True) if buffers[n].device != buffers[number].device
            ]
            assert (k in written.own) == (not any(chunks_of[k] & other for other in others))


@given(regions_in_one_box(1, at_zero=True))
@settings(max_examples=60)
def test_slices_are_the_regions_cells(found: tuple[Region]) -> None:
    """Against the points, enumerated."""
    (region,) = found
    whole = np.arange(int(np.prod(region.shape))).reshape(region.shape)
    out = np.full(region.counts, -1)
    for there, here in list_slices(region):
        assert (out[here] == -1).all()
        out[here] = whole[there]
    points = region.points()
    assert out.reshape(-1).tolist() == [int(whole[tuple(q)]) for q in points.tolist()]


@given(st.data())
@settings(max_examples=100)
def test_slices_are_cut_where_chunks_begin(data: st.DataObject) -> None:
    """Each cell is in one part, each chunk is read in one part, and parts are few bytes or of one chunk."""
    rank, most = data.draw(st.integers(0, 3)), data.draw(st.integers(1, 40))
    bounds = [sorted(data.draw(st.tuples(st.integers(0, 20), st.integers(0, 20)))) for _ in range(rank)]
    where = tuple(slice(a, b, data.draw(st.sampled_from([None, 1, 2, 3]))) for a, b in bounds)
    chunk = tuple(data.draw(st.integers(1, 7)) for _ in range(rank))
    numbers = np.stack(
        [each // n for each, n in zip(np.indices((21,) * rank), chunk, strict=True)] or [np.array(0)], -1
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stores_tuning, "ASKED_NBYTES", most)
        found = list(cut_at_chunks(where, chunk, 2))
    reads = np.zeros(np.empty((21,) * rank)[where].shape, int)
    homes: dict[tuple[int, ...], int] = {}
    for k, (there, here) in enumerate(found):
        reads[here] += 1
        assert np.array_equal(numbers[where][here], numbers[there]), "it is the same place"
        chunks = set(map(tuple, numbers[there].reshape(-1, numbers.shape[-1]).tolist()))
        assert reads[here].size * 2 <= most or len(chunks) == 1
        assert all(homes.setdefault(one, k) == k for one in chunks)
    assert (reads == 1).all()


def test_zarr_is_asked_for_few_bytes_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores_tuning, "ASKED_NBYTES", 400)
    values = np.random.default_rng(1).random((40, 24), np.float32)
    p, inputs = viewed()
    x, y = (store(tmp_path, name, cells, (4, 5)) for name, cells in (("x", values), ("y", np.zeros((40, 16), "f4"))))
    asked: list[int] = []
    read = ZarrSource.read
    monkeypatch.setattr(ZarrSource, "read", lambda self, where: asked.append((c := read(self, where)).nbytes) or c)
    found = run(p, {**inputs, "x": x}, outputs={"y": zarr.open_array(tmp_path / "y", mode="r+")})
    wanted = run(p, {**inputs, "x": values})
    assert len(asked) > 4 and max(asked) <= 400
    np.testing.assert_array_equal(y[:], wanted.outputs["y"])
    np.testing.assert_array_equal(found.outputs["turned"], wanted.outputs["turned"])


def test_no_memory_is_not_called_a_damaged_chunk(tmp_path: Path) -> None:
    class Full:
        chunks, shape, dtype = (4,), (4,), np.dtype("f4")

        def __getitem__(self, where: Any) -> Any:
            raise MemoryError

    with pytest.raises(MemoryError):
        ZarrSource(Full()).take([Region.full((4,))])


# -- larger than memory -------------------------------------------------------------------------------------------

LARGE = """
import os, resource, sys
import numpy as np
import zarr
from tapestry_exec import DaskBackend, ProcessBackend, run
from tapestry_plan import Graph, Mesh, ops, plan

rows, folder, backend = int(sys.argv[1]), sys.argv[2], sys.argv[3]

def set_limit():
    held = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    most = held + rows * 4096 * 4
    resource.setrlimit(resource.RLIMIT_AS, (most, most))

def ask(backend):
    g = Graph()
    g.output(ops.relu(g.input("x", (rows, 4096)), name="act"), "y")
    p = plan(g, Mesh(8), fix={"act": {"i0": 8}})
    if backend == "serial":
        x = np.ones((rows, 4096), np.float32)
        set_limit()
        run(p, {"x": x})
    else:
        x = zarr.open_array(folder + "/x", mode="r")
        y = zarr.open_array(folder + "/y", mode="r+")
        set_limit()
        found = run(p, {"x": x}, backend=backend, outputs={"y": y}, verify=False)
        assert found.nbytes_moved == p.nbytes_moved == 0
    print("done", flush=True)

if __name__ == "__main__":
    if backend == "dask":
        from distributed import Client, LocalCluster

        few = {"n_workers": 8, "threads_per_worker": 1, "memory_limit": 0, "resources": {"tapestry": 1}}
        with LocalCluster(**few, dashboard_address=":0") as cluster, Client(cluster) as client:
            client.run(set_limit)
            ask(DaskBackend(client))
    else:
        if backend == "mpi":
            import mpi4py.MPI
        ask(ProcessBackend(processes=8) if backend == "processes" else backend)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits of address space are Linux's")
@pytest.mark.parametrize("backend", ["processes", "dask", "mpi"])
@pytest.mark.heavy
def test_a_tensor_larger_than_any_process_may_hold(backend: str, tmp_path: Path) -> None:
    """Each process may take as much as the tensor has, where input and output would be twice that."""
    rows = 16384  # 256 MiB, of which each process has 32 three times, beside the stacks of its threads
    x = zarr.create_array(tmp_path / "x", shape=(rows, 4096), dtype="f4", chunks=(1024, 4096), compressors=None)
    for at in range(0, rows, 1024):
        x[at : at + 1024] = np.full((1024, 4096), at - 9000, np.float32)
    zarr.create_array(tmp_path / "y", shape=(rows, 4096), dtype="f4", chunks=(1024, 4096), compressors=None)
    (tmp_path / "large.py").write_text(LARGE)
    before: list[str] = []
    if backend == "dask":
        pytest.importorskip("distributed", reason="distributed is not installed")
    if backend == "mpi":
        mpiexec = find_mpiexec()
        if mpiexec is None:
            pytest.skip("there is no mpiexec")
        before = [str(mpiexec), "-n", "8"]

    def ask(*before: str, backend: str) -> subprocess.CompletedProcess[str]:
        command = [*before, sys.executable, str(tmp_path / "large.py"), str(rows), str(tmp_path), backend]
        env = {"PYTHONPATH": str(REPOSITORY), "OPENBLAS_NUM_THREADS": "1", "PATH": "/usr/bin:/bin"}
        few = {"MALLOC_ARENA_MAX": "1"}  # or each thread reserves 64 MiB that it does not need
        return subprocess.run(command, capture_output=True, text=True, env=env | few, timeout=120)

    done = ask(*before, backend=backend)
    assert done.returncode == 0 and done.stdout.split() == ["done"] * (8 if before else 1), done.stderr
    y = zarr.open_array(tmp_path / "y", mode="r")
    for at in range(0, rows, 1024):
        assert (y[at : at + 1024] == max(at - 9000, 0)).all()
    alone = ask(backend="serial")
    assert alone.returncode and re.search("MemoryError|can't start new thread", alone.stderr), "the limit counts"


# -- what is refused --------------------------------------------------------------------------------------------


def test_wrong_arrays_are_named_before_the_first_step(tmp_path: Path) -> None:
    p, inputs = viewed()
    fine = {"x": inputs["x"], "w": inputs["w"]}
    wide = store(tmp_path, "wide", np.zeros((24, 40), np.float32), (24, 40))
    double = store(tmp_path, "double", np.zeros((40, 24)), (40, 24))
    for value, told in (
        (wide, r"input 'x' has shape \(24, 40\); shape \(40, 24\) is needed"),
        (double, r"input 'x' has dtype float64; float32 is needed"),
    ):
        with pytest.raises(ValueError, match=told):
            run(p, {**fine, "x": value}, ops=as_relu(raise_first))
    y = empty(tmp_path, "y", (40, 16), (10, 16))
    for outputs, error, told in (
        ({"z": y}, ValueError, r"outputs: the graph has no output 'z'; known outputs: 'y', 'turned'"),
        ({"y": wide}, ValueError, r"output 'y' has shape \(40, 16\), the array of Zarr's \(24, 40\); give one of"),
        ({"turned": store(tmp_path, "d", np.zeros((24, 40)), (24, 40))}, ValueError, r"is float32, .* float64; give"),
        ({"y": zarr.open_array(tmp_path / "y", mode="r")}, ValueError, r"is open for reading; open it with mode='r\+'"),
        (
            {"y": np.zeros((40, 16), np.float32)},
            TypeError,
            r"output 'y' is to be written to .*; give an array of Zarr's",
        ),
        ({"y": None}, TypeError, r"output 'y' is to be written to None; give an array of Zarr's"),
    ):
        with pytest.raises(error, match=told):
            run(p, fine, outputs=outputs, ops=as_relu(raise_first))


@pytest.mark.parametrize("way", ["serial", "processes", "deployed"])
@pytest.mark.parametrize("chunk", [(10, 6), (4, 24)])
def test_a_damaged_chunk_is_named_with_its_store(way: str, chunk: tuple[int, int], tmp_path: Path) -> None:
    """Zarr and its codec say neither; the chunks that are whole are not blamed."""
    p, inputs = viewed()
    x = store(tmp_path, "x", inputs["x"], chunk)
    key = f"c/{20 // chunk[0]}/{6 // chunk[1]}"
    (tmp_path / "x" / key).write_bytes(b"no frame of zstd")
    told = rf"step \d+ .* failed: OSError: Zarr's array 'file://{tmp_path}/x': its chunk '{key}' cannot be read \(.*"
    feeds = {**inputs, "x": x}
    with pytest.raises(
        StepFailed, match=told + r"\); it is damaged, .*: write it again, or give the values in another array"
    ):
        if way == "deployed":
            with deploy(p, backend="serial") as placed:
                placed.run(feeds)
        else:
            run(p, feeds, backend=way)


@pytest.mark.parametrize("way", ["serial", "processes", "deployed"])
def test_what_is_read_is_not_written(way: str, tmp_path: Path) -> None:
    """Devices that are ahead would change what others are still to read: by any handle of the array."""
    g = Graph()
    g.output(ops.exp(g.input("x", (8, 4))[::-1], name="last"), "y")
    p, values = plan(g, Mesh(2)), np.ones((8, 4), np.float32)
    x = store(tmp_path, "x", values, (4, 4))
    (tmp_path / "link").symlink_to(tmp_path / "x")
    held = zarr.storage.MemoryStore()
    inner = zarr.create_array(held, name="x", shape=(8, 4), dtype="float32", chunks=(4, 4))
    pairs = [
        (x, x),
        (x, zarr.open_array(tmp_path / "link", mode="r+")),
        (zarr.open_array(zarr.storage.WrapperStore(zarr.storage.LocalStore(tmp_path)), path="x"), x)
        if hasattr(zarr.storage, "WrapperStore")
        else (x, x),
        (inner, zarr.open_array(held, path="x", mode="r+")),
    ]
    told = "output 'y' is to be written to the array that input 'x' is read from, while it is; give it an array of its"
    for source, target in pairs:
        with pytest.raises(ValueError, match=told):
            if way == "deployed":
                with deploy(p) as placed:
                    placed.run({"x": source}, outputs={"y": target})
            else:
                run(p, {"x": source}, outputs={"y": target}, backend=way)
    assert (x[...] == 1).all()
    da = pytest.importorskip("dask.array", reason="dask is not installed")
    for lazy in (da.from_zarr(x) + 1, da.from_array(x, chunks=4)[::-1]):
        with pytest.raises(ValueError, match=told):
            run(p, {"x": lazy}, outputs={"y": x})
    apart = empty(tmp_path, "y", (8, 4), (4, 4))
    assert run(p, {"x": x}, outputs={"y": apart}).outputs["y"][...].tobytes() == np.exp(values).tobytes()


def test_two_outputs_are_not_written_to_one_array(tmp_path: Path) -> None:
    g = Graph()
    x = g.input("x", (8, 4))
    g.output(ops.exp(x), "one")
    g.output(ops.relu(x), "two")
    y = empty(tmp_path, "y", (8, 4), (4, 4))
    with pytest.raises(ValueError, match="output 'two' is to be written to the array that output 'one' is written to"):
        outputs = {"one": y, "two": zarr.open_array(tmp_path / "y", mode="r+")}
        run(plan(g, Mesh(2)), {"x": np.ones((8, 4), np.float32)}, outputs=outputs, ops=as_relu(raise_first))


@pytest.mark.parametrize(("dtype", "rows"), [("float64", 4), ("float32", 1)])
def test_blocks_of_dask_that_are_not_what_the_array_says_are_named(dtype: str, rows: int) -> None:
    """They were cast, or repeated."""
    da = pytest.importorskip("dask.array", reason="dask is not installed")
    g = Graph()
    g.output(ops.relu(g.input("x", (8, 4))), "y")
    meta = np.empty((0, 0), np.float32)
    x = da.map_blocks(lambda: np.ones((rows, 4), dtype), chunks=((4, 4), (4,)), dtype=np.float32, meta=meta, name="odd")
    told = rf"Dask's array 'odd' has cells of dtype {dtype} and shape \({rows}, 4\) where it says float32 and \(4, 4\)"
    with pytest.raises(RuntimeError, match=told):
        run(plan(g, Mesh(2), fix={next(iter(g.nodes)): {"i0": 2}}), {"x": x}, backend="serial")


MAIN = """
import numpy as np
import dask.array as da
from tapestry_exec import run
from tapestry_plan import Graph, Mesh, ops, plan

def twice(block):
    return 2 * block

if __name__ == "__main__":
    g = Graph()
    g.output(ops.relu(g.input("x", (8, 4))), "y")
    x = da.from_array(np.ones((8, 4), np.float32), chunks=4).map_blocks(twice, dtype=np.float32)
    print(run(plan(g, Mesh(2)), {"x": x}, backend="processes").outputs["y"].sum())
"""


@pytest.mark.heavy(2)
def test_functions_of_the_callers_script_are_called_by_the_caller(tmp_path: Path) -> None:
    """Other processes have another `__main__`."""
    pytest.importorskip("dask.array", reason="dask is not installed")
    (tmp_path / "script.py").write_text(MAIN)
    env = {"PYTHONPATH": str(REPOSITORY), "OPENBLAS_NUM_THREADS": "1", "PATH": "/usr/bin:/bin"}
    command = [sys.executable, str(tmp_path / "script.py")]
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=120)
    assert done.stdout == "64.0\n", done.stderr


def test_unknown_chunks_of_dask_are_named() -> None:
    da = pytest.importorskip("dask.array", reason="dask is not installed")
    p, inputs = viewed()
    x = da.from_array(inputs["x"], chunks=(10, 24))
    with pytest.raises(ValueError, match=r"input 'x' has shape \(-1, 24\)"):
        run(p, {"x": x[x[:, 0] >= 0], "w": inputs["w"]})
    assert isinstance(find_source(x), Source) and find_source(inputs["x"]) is None
