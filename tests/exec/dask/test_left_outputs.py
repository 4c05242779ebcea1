"""Outputs that stay on Dask's workers, and inputs that lie there: no cell goes through the caller."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from tapestry_exec import DaskBackend, StepFailed, deploy, run
from tapestry_exec.dask.backend import DaskSession
from tapestry_exec.dask.leaving import _split, leave_output
from tapestry_plan import Graph, Mesh, ShardPlan, ops, plan
from tapestry_plan.steps import Output
from tapestry_sets import Region
from tests.exec.own_ops import as_relu, raise_first
from tests.exec.run.test_stores import viewed
from tests.ways_of_running import COUNTED

da = pytest.importorskip("dask.array", reason="dask is not installed")


@pytest.fixture
def caller(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The bytes of cells that the caller says to workers, and hears of them."""
    found: list[int] = []
    say, read = DaskSession._say, DaskSession._read_outputs

    def listen(self: DaskSession, device: int, word: str, *values: Any, frames: Sequence[Any] = ()) -> None:
        if word in ("place", "run"):
            found.append(sum(memoryview(frame).nbytes for frame in frames))
        say(self, device, word, *values, frames=frames)

    def hear(self: DaskSession, part: Any, frames: Sequence[Any]) -> Any:
        found.append(sum(memoryview(frame).nbytes for frame in frames))
        return read(self, part, frames)

    monkeypatch.setattr(DaskSession, "_say", listen)
    monkeypatch.setattr(DaskSession, "_read_outputs", hear)
    yield found


def rows(parts: int, axis: str = "i0", shape: tuple[int, ...] = (12, 8)) -> ShardPlan:
    g = Graph()
    g.output(ops.exp(g.input("x", shape), name="exp"), "y")
    return plan(g, Mesh(parts), fix={"exp": {axis: parts}})


def count_keys(client: Any) -> int:
    found: int = client.run_on_scheduler(
        lambda dask_scheduler: sum(str(key).startswith("('tapestry-") for key in dask_scheduler.tasks)
    )
    return found


def test_outputs_stay_and_are_values(client: Any, caller: list[int]) -> None:
    """Two runs of a deployment: the second one's arena does not reach the first one's array."""
    p, rng = rows(3), np.random.default_rng(0)
    given = [{"x": rng.random((12, 8), np.float32)} for _ in range(2)]
    wanted = [run(p, x, backend="serial") for x in given]
    with deploy(p, backend=DaskBackend(client)) as placed:
        found = [placed.run(x, outputs={"y": "dask"}) for x in given]
        assert caller.count(0) == 9 and sum(caller) == sum(x["x"].nbytes for x in given)
        workers = placed._session.workers  # type: ignore[union-attr]
    for one in found:  # before Dask computes with them, and may copy them
        y = one.outputs["y"]
        who = client.who_has([dict(y.__dask_graph__())[y.name, k, 0] for k in range(3)])
        assert who == {(y.name, k, 0): (workers[k],) for k in range(3)}
    for one, other in zip(found, wanted, strict=True):
        y = one.outputs["y"]
        assert isinstance(y, da.Array) and y.chunks == ((4, 4, 4), (8,)) and y.dtype == np.float32
        assert y.compute(scheduler=client.get).tobytes() == other.outputs["y"].tobytes()
        assert (y + 1).sum(axis=0).compute(scheduler=client.get).shape == (8,)
        for name in COUNTED:
            assert getattr(one, name) == getattr(other, name), name
    assert count_keys(client) == 6
    del found, one, y
    gc.collect()
    stop = time.monotonic() + 10
    while count_keys(client) and time.monotonic() < stop:
        time.sleep(0.05)
    assert count_keys(client) == 0  # the chunks live as long as the array


def test_workers_compute_with_them_while_devices_stay(client: Any) -> None:
    """Each worker has one thread and a device, which takes no other worker's place."""
    p, x = rows(4), np.random.default_rng(0).random((12, 8), np.float32)
    client.wait_for_workers(4, timeout=60)
    with deploy(p, backend=DaskBackend(client)) as placed:
        y = placed.run({"x": x}, outputs={"y": "dask"}).outputs["y"]
        assert client.compute(y, sync=False).result(timeout=60).tobytes() == np.exp(x).tobytes()
        assert set(client.who_has(y)) and placed.run({"x": x}).outputs["y"].tobytes() == np.exp(x).tobytes()
        with pytest.raises(StepFailed, match="was not placed within 1 s"):
            run(p, {"x": x}, backend=DaskBackend(client, retries=0, patience=1))
    with deploy(rows(2), backend=DaskBackend(client)) as one, deploy(rows(2), backend=DaskBackend(client)) as other:
        taken = [set(each._session.workers.values()) for each in (one, other)]  # type: ignore[union-attr]
        assert len(taken[0] | taken[1]) == 4
        assert one.run({"x": x}).nbytes_by_link == other.run({"x": x}).nbytes_by_link


@pytest.mark.parametrize(("parts", "axis"), [(3, "i0"), (2, "i1"), (4, "i0")])
def test_the_next_run_reads_them_where_they_lie(parts: int, axis: str, client: Any, caller: list[int]) -> None:
    """In shards as they lie, turned around, and uneven; the run is verified through the caller's client, too."""
    first, second = rows(3), rows(parts, axis)
    x = np.random.default_rng(1).random((12, 8), np.float32)
    y = run(first, {"x": x}, backend=DaskBackend(client), outputs={"y": "dask"}).outputs["y"]
    wanted = run(second, {"x": run(first, {"x": x}, backend="serial").outputs["y"]}, backend="serial")
    caller.clear()
    found = run(second, {"x": y}, backend=DaskBackend(client), outputs={"y": "dask"})
    assert caller and not sum(caller)
    assert found.outputs["y"].compute(scheduler=client.get).tobytes() == wanted.outputs["y"].tobytes()
    for name in COUNTED:
        assert getattr(found, name) == getattr(wanted, name), name
    if parts == 2:
        assert run(second, {"x": y}, backend=DaskBackend(client), verify=True).difference == {"y": 0.0}
        assert run(second, {"x": y}, backend="serial").outputs["y"].tobytes() == wanted.outputs["y"].tobytes()
        lazy = run(second, {"x": y * 1}, backend=DaskBackend(client))  # which the caller has computed
        assert lazy.outputs["y"].tobytes() == wanted.outputs["y"].tobytes() and sum(caller)


def test_views_read_them_backwards_and_in_steps(client: Any, caller: list[int]) -> None:
    p, inputs = viewed()
    wanted = run(p, inputs, backend="serial").outputs
    x = client.persist(da.from_array(inputs["x"], chunks=((7, 20, 13), (5, 19))))
    found = run(p, {**inputs, "x": x}, backend=DaskBackend(client), outputs={"y": "dask"}).outputs
    assert found["y"].compute(scheduler=client.get).tobytes() == wanted["y"].tobytes()
    assert found["turned"].tobytes() == wanted["turned"].tobytes()
    with pytest.raises(
        ValueError, match="output 'turned' is to stay on Dask's workers, and is a view of what operators"
    ):
        run(p, inputs, backend=DaskBackend(client), outputs={"turned": "dask"})


def test_outputs_without_axes(client: Any) -> None:
    g = Graph()
    g.output(ops.exp(g.input("x", ()), name="exp"), "y")
    p, x = plan(g, Mesh(1)), np.float32(1.5)
    y = run(p, {"x": np.array(x)}, backend=DaskBackend(client), outputs={"y": "dask"}).outputs["y"]
    assert y.shape == () and y.compute(scheduler=client.get) == np.exp(x)


def test_where_nothing_can_stay_is_told(client: Any) -> None:
    p, x = rows(2), {"x": np.ones((12, 8), np.float32)}
    with pytest.raises(ValueError, match=r"'y' is to stay on Dask's workers, which the backend does not run on; give"):
        run(p, x, outputs={"y": "dask"})
    with pytest.raises(
        ValueError, match="'y' is to stay on Dask's workers, and these would end with the run; give Dask"
    ):
        run(p, x, backend="dask", outputs={"y": "dask"})
    with pytest.raises(ValueError, match="and the client of these would end with the run"):
        run(p, x, backend=DaskBackend(client.scheduler.address), outputs={"y": "dask"})
    with pytest.raises(
        TypeError, match=r"'y' is to be written to 'zarr'; give an array of Zarr's, as zarr.create_array ma"
    ):
        run(p, x, backend=DaskBackend(client), outputs={"y": "zarr"})


def test_a_run_that_fails_leaves_nothing(client: Any) -> None:
    g = Graph()
    g.output(ops.exp(g.input("x", (4, 4)), name="exp"), "y")
    g.output(ops.relu(g.input("z", (4, 4)), name="relu"), "w")
    given = {name: np.ones((4, 4), np.float32) for name in ("x", "z")}
    with pytest.raises(StepFailed):
        run(
            plan(g, Mesh(2)),
            given,
            backend=DaskBackend(client, retries=0),
            outputs={"y": "dask", "w": "dask"},
            ops=as_relu(raise_first),
        )
    stop = time.monotonic() + 10
    while count_keys(client) and time.monotonic() < stop:
        time.sleep(0.05)
    assert count_keys(client) == 0


def test_chunks_are_of_the_grid_of_all_edges(client: Any) -> None:
    """Boxes that do not stand in rows are cut into chunks; gaps and very many chunks are refused."""

    def boxes(*some: tuple[int, int, int, int]) -> list[Region]:
        return [Region.from_slices((6, 6), (slice(a, b), slice(c, d))) for a, b, c, d in some]

    output = Output("y", "y", (6, 6), "float32", ())
    regions = boxes((0, 3, 0, 6), (3, 6, 0, 2), (3, 6, 2, 6))
    left = leave_output(client, output, regions)
    assert left.cuts == ((0, 3, 6), (0, 2, 6))
    cells = np.arange(36, dtype=np.float32).reshape(6, 6)
    for region in regions:
        low, high = region.bounds()  # type: ignore[misc]
        left.write(region, cells[low[0] : high[0], low[1] : high[1]].reshape(-1))
    assert {key[1:] for key in left.values} == {key[1:] for key in left.keys} and len(left.values) == 4
    for (_, i, j), value in left.values.items():
        a, b = left.cuts
        assert (value == cells[a[i] : a[i + 1], b[j] : b[j + 1]]).all()
    gaps = [Region.from_slices((6, 6), (slice(k, 6, 2), slice(0, 6))) for k in range(2)]
    with pytest.raises(
        ValueError, match="output 'y' cannot be left on Dask's workers: a device has cells of it with gaps"
    ):
        leave_output(client, output, gaps)
    many = [Region.from_slices((200, 200), (slice(k, k + 1), slice(k, k + 1))) for k in range(200)]
    with pytest.raises(ValueError, match="'y' would be left on Dask's workers in 40,000 chunks, as its shards do not"):
        leave_output(client, Output("y", "y", (200, 200), "float32", ()), many)


def test_slices_are_split_by_chunks() -> None:
    """Against NumPy, cell by cell."""
    cells, cuts = np.arange(20), (0, 3, 3 + 8, 20)
    for start in range(20):
        for stop in range(start, 21):
            for step in (1, 2, 3, 7):
                found = np.full(len(range(start, stop, step)), -1)
                for k, there, here in _split(slice(start, stop, step), cuts):
                    found[here] = cells[cuts[k] : cuts[k + 1]][there]
                assert (found == cells[start:stop:step]).all()
