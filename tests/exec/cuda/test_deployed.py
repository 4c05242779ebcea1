"""Deployments on simulated devices and, with `-m gpu`, on a real one: what stays lies there from run to run."""

from __future__ import annotations

import gc
import re
from collections.abc import Callable
from typing import Any
from weakref import ref

import numpy as np
import pytest
from msgspec.structs import replace

from tapestry_exec import BackendUnavailable, CupyBackend, StepFailed, deploy, run
from tapestry_exec.cuda.lanes import Lane
from tapestry_exec.cuda.recording import Recording
from tapestry_exec.run.prepared import PreparedPlan
from tapestry_exec.run.residents import find_residents
from tapestry_exec.simulated import namespace as simulated
from tapestry_plan import Graph, Mesh, ShardPlan, concat, ops, plan
from tapestry_plan.ir import BUILTIN_OPS
from tapestry_plan.ops import linear, matmul, relu

Feeds = dict[str, Any]
Make = Callable[..., CupyBackend]


def make_simulated(**options: Any) -> CupyBackend:
    return CupyBackend(cupy=simulated.cupy(2, unwritten=True), **{"poison": True, **options})


def make_real(**options: Any) -> CupyBackend:
    return CupyBackend(**{"poison": True, **options})


@pytest.fixture(params=["simulated", pytest.param("real", marks=pytest.mark.gpu)])
def make(request: pytest.FixtureRequest) -> Make:
    return {"simulated": make_simulated, "real": make_real}[request.param]


def weighted(devices: int = 3) -> tuple[ShardPlan, Feeds]:
    """Weights as they are, turned around, and joined with others; a bias that two operators read; small integers."""
    g, rng = Graph(), np.random.default_rng(0)
    x = g.input("x", (12, 8))
    w = g.constant("w", rng.integers(-3, 4, (6, 8)).astype(np.float32))
    more = g.constant("more", rng.integers(-3, 4, (6, 8)).astype(np.float32))
    bias = g.constant("bias", rng.integers(-3, 4, (12,)).astype(np.float32))
    y = relu(matmul(x, concat([w, more], 0).T, name="one") + bias, name="act")
    g.output(y * bias, "y")
    made = plan(g, Mesh((devices,)), fix={"one": {"n": devices}})
    return made, {"x": rng.integers(-3, 4, (12, 8)).astype(np.float32)}


def stepping(devices: int = 2) -> ShardPlan:
    """A state that each run adds a product to."""
    g = Graph()
    state, x = g.input("state", (4, 4)), g.input("x", (4, 4))
    w = g.constant("w", np.eye(4, dtype=np.float32) * 2)
    g.output(state + matmul(x, w), "next")
    return plan(g, Mesh(devices), tie={"next": "state"})


@pytest.mark.parametrize("capture", [False, None])
def test_constants_are_placed_once(make: Make, capture: bool | None) -> None:
    p, inputs = weighted()
    with deploy(p, backend=make(capture=capture)) as placed, deploy(p, backend="serial") as wanted_of:
        assert placed.nbytes_placed == wanted_of.nbytes_placed and any(placed.nbytes_placed)
        for k in range(5):
            feeds = {"x": inputs["x"] + k}
            found, wanted = placed.run(feeds), wanted_of.run(feeds)
            np.testing.assert_array_equal(found.outputs["y"], wanted.outputs["y"])
            for name in ("nbytes_by_link", "nbytes_placed", "nbytes_copied", "peak_nbytes", "flop"):
                assert getattr(found, name) == getattr(wanted, name)
            assert bool(found.timeline) == (capture is False or k < 2), "from the third run on it is a graph"


@pytest.mark.parametrize("capture", [False, True])
def test_state_stays(make: Make, capture: bool) -> None:
    """The first run is given the state; a later one, too, goes on from another one that it is given."""
    p, total = stepping(), np.zeros((4, 4), np.float32)
    with deploy(p, backend=make(capture=capture), carry={"next": "state"}) as placed:
        for k in range(9):
            feeds = {"x": np.full((4, 4), k, np.float32)}
            if k in (0, 5):
                total = np.full((4, 4), 100 + k, np.float32)
                feeds["state"] = total
            total = total + 2 * feeds["x"]
            np.testing.assert_array_equal(placed.run(feeds).outputs["next"], total)


@pytest.mark.parametrize("capture", [False, True])
def test_runs_and_deployments_of_one_backend_go_on_beside_each_other(make: Make, capture: bool) -> None:
    backend = make(capture=capture)
    (p, feeds), q, other = weighted(), stepping(), {"x": np.ones((4, 4), np.float32)}
    with deploy(p, backend=backend) as one, deploy(q, backend=backend) as two:
        for k in range(4):
            more = {"x": feeds["x"] * k}
            for found in (one.run(more), run(p, more, backend=backend)):
                np.testing.assert_array_equal(found.outputs["y"], run(p, more).outputs["y"])
            given = {**other, "state": np.full((4, 4), k, np.float32)}
            np.testing.assert_array_equal(two.run(given).outputs["next"], np.full((4, 4), k + 2))
    with pytest.raises(RuntimeError, match="deployment is closed"):
        one.run(feeds)


def test_between_runs_the_library_is_as_it_was(make: Make) -> None:
    backend, (p, feeds) = make(), weighted()
    cupy = backend.cupy
    mine = cupy.cuda.Stream(non_blocking=True)
    with mine:
        with deploy(p, backend=backend) as placed:
            for _ in range(2):
                assert cupy.cuda.get_current_stream().ptr == mine.ptr
                placed.run(feeds)
            assert cupy.cuda.get_current_stream().ptr == mine.ptr
        assert cupy.cuda.get_current_stream().ptr == mine.ptr


def test_a_trace_has_the_devices_own_times(make: Make, tmp_path: Any) -> None:
    p, feeds = weighted()
    with deploy(p, backend=make(capture=True)) as placed:
        for _ in range(3):
            assert placed.run(feeds, trace=tmp_path / "trace.json").timeline


def test_a_run_that_fails_leaves_what_stays(make: Make) -> None:
    p, feeds = weighted()
    fails = [False]

    def block(xp: Any, inputs: Any, outputs: Any, shard: Any) -> None:
        if fails[0]:
            raise FloatingPointError("too hot")
        xp.maximum(inputs[0], 0, out=outputs[0])

    own = replace(BUILTIN_OPS["relu"], block=block)
    with deploy(p, backend=make(), ops={"relu": own}) as placed:
        wanted = placed.run(feeds).outputs["y"]
        fails[0] = True
        with pytest.raises(StepFailed, match="too hot"):
            placed.run(feeds)
        fails[0] = False
        np.testing.assert_array_equal(placed.run(feeds).outputs["y"], wanted)


def test_a_later_run_waits_for_no_more_than_an_early_one(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Marks of runs before are gone: they are done."""
    p, feeds = weighted()
    after, waits = Lane.after, list[int]()

    def counted(self: Lane, marks: Any) -> None:
        waits.append(len(list(marks)))
        after(self, marks)

    monkeypatch.setattr(Lane, "after", counted)
    found = list[list[int]]()
    with deploy(p, backend=make(capture=False)) as placed:
        for _ in range(12):
            waits.clear()
            placed.run(feeds)
            found.append(list(waits))
    assert found[1:] == [found[1]] * 11 and max(found[1]) < 20


def test_a_deployment_that_waits_after_each_step_is_no_graph(make: Make) -> None:
    p, feeds = weighted()
    with deploy(p, backend=make(blocking=True)) as placed:
        assert all(placed.run(feeds).timeline for _ in range(4))


def test_memory_of_what_stayed_is_free_when_it_is_closed() -> None:
    cupy = simulated.cupy(1)
    p, feeds = weighted(1)
    with deploy(p, backend=CupyBackend(cupy=cupy)) as placed:
        placed.run(feeds)
    del placed
    gc.collect()
    live = [block for block in cupy.checker.blocks if block.device is not None and block.is_live and not block.in_pool]
    assert live == []


def test_plans_with_products_give_the_same_bits_in_a_graph(make: Make) -> None:
    """A deployment's third run is a graph's: cuBLAS has the workspace and the bits of the runs before."""
    g, rng = Graph(), np.random.default_rng(0)
    y = g.input("x", (64, 96))
    for k in range(4):
        y = relu(linear(y, g.constant(f"w{k}", rng.standard_normal((96, 96)).astype(np.float32)), name=f"fc{k}"))
    g.output(y, "y")
    p, feeds = plan(g, Mesh(2)), {"x": rng.standard_normal((64, 96)).astype(np.float32)}
    with deploy(p, backend=make(capture=True)) as placed:
        found = [placed.run(feeds) for _ in range(4)]
    assert [bool(one.timeline) for one in found] == [True, True, False, False]
    assert len({one.outputs["y"].tobytes() for one in found}) == 1
    np.testing.assert_allclose(found[0].outputs["y"], run(p, feeds).outputs["y"], rtol=1e-3, atol=1e-3)


def test_what_stays_is_weighed_before_it_is_placed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arenas and rings fit, what stays beside them does not: nothing is placed."""
    g = Graph()
    y = g.input("x", (64, 64))
    for k in range(30):
        y = matmul(y, g.constant(f"w{k}", np.full((64, 64), k, np.float32)))
    g.output(y, "y")
    p, cupy = plan(g, Mesh(1)), simulated.cupy(1)
    backend = CupyBackend(cupy=cupy)
    monkeypatch.setattr(cupy.cuda.runtime, "memGetInfo", lambda: (600_000, 1 << 30))
    with pytest.raises(BackendUnavailable, match="GPU 0 has 600,000 B free"):
        deploy(p, backend=backend)


@pytest.mark.parametrize("again", [1, 5])
def test_a_plan_is_recorded_whoever_had_the_devices_in_between(again: int) -> None:
    """The second run of the one has new devices, on which cuBLAS is not open yet."""
    g = Graph()
    g.output(relu(matmul(g.input("x", (8, 8)), g.constant("w", np.ones((8, 8), np.float32)).T)), "y")
    small, feeds = plan(g, Mesh(2)), {"x": np.ones((8, 8), np.float32)}
    g = Graph()
    x = g.input("x", (64, 64))
    g.output(relu(x) + x, "y")
    large, more = plan(g, Mesh(2)), {"x": np.ones((64, 64), np.float32)}
    backend = CupyBackend(cupy=simulated.cupy(2), capture=True)
    run(small, feeds, backend=backend)
    for _ in range(again):
        run(large, more, backend=backend)
    found = [run(small, feeds, backend=backend) for _ in range(3)]
    assert [bool(one.timeline) for one in found] == [True, False, False]


def test_a_plan_whose_block_failed_by_itself_is_recorded_later(make: Make) -> None:
    """It failed in a run that was recorded, and again in the plain one behind it: the recording is not to blame."""
    p, feeds = weighted()
    fails = [0]

    def block(xp: Any, inputs: Any, outputs: Any, shard: Any) -> None:
        if fails[0]:
            fails[0] -= 1
            raise FloatingPointError("too hot")
        xp.maximum(inputs[0], 0, out=outputs[0])

    own = replace(BUILTIN_OPS["relu"], block=block)
    with deploy(p, backend=make(), ops={"relu": own}) as placed:
        placed.run(feeds)
        fails[0] = 2
        with pytest.raises(StepFailed, match="too hot"):
            placed.run(feeds)
        assert fails == [0]
        found = [placed.run(feeds) for _ in range(3)]
    assert [bool(one.timeline) for one in found] == [True, False, False]


def test_why_a_deployment_is_no_graph_is_told(make: Make) -> None:
    def block(xp: Any, inputs: Any, outputs: Any, shard: Any) -> None:
        xp.add(inputs[0], xp.asarray(np.float32(1)), out=outputs[0])

    p, feeds = weighted()
    with deploy(p, backend=make()) as placed:
        assert placed.why_not_recorded == ""
        found = [bool(placed.run(feeds).timeline) for _ in range(3)]
        assert placed.why_not_recorded == "" and found == [True, True, False]
    own = replace(BUILTIN_OPS["relu"], block=block)
    with deploy(p, backend=make(), ops={"relu": own}) as placed:
        assert all(placed.run(feeds).timeline for _ in range(4))
        assert "calls asarray for float32 while the run is recorded" in placed.why_not_recorded
        assert re.match(r"step \d+ \(compute 'act' on device 0, .* failed: NotRecordable: ", placed.why_not_recorded)
    with deploy(p, backend="serial") as placed:
        assert placed.why_not_recorded == ""


def test_a_graph_that_cannot_be_launched_is_recorded_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    p, feeds = weighted()
    launch, fails = Recording.launch, [False]

    def failing(self: Recording, host: Any = None) -> Any:
        if fails[0]:
            raise RuntimeError("the driver says no")
        return launch(self, host)

    monkeypatch.setattr(Recording, "launch", failing)
    with deploy(p, backend=make_simulated()) as placed:
        wanted = [placed.run(feeds) for _ in range(3)][-1]
        fails[0] = True
        with pytest.raises(StepFailed, match="the driver says no"):
            placed.run(feeds)
        fails[0] = False
        found = [placed.run(feeds) for _ in range(2)]
    assert [bool(one.timeline) for one in found] == [True, False]
    np.testing.assert_array_equal(found[-1].outputs["y"], wanted.outputs["y"])


def test_a_graph_that_fails_as_it_is_recorded_loses_the_state(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have changed the state before: no plain run goes on from there."""
    p, launch = stepping(), Recording.launch

    def failing(self: Recording, host: Any = None) -> Any:
        launch(self, host)
        raise RuntimeError("the driver says no")

    feeds = {"x": np.ones((4, 4), np.float32), "state": np.zeros((4, 4), np.float32)}
    with deploy(p, backend=make_simulated(capture=True), carry={"next": "state"}) as placed:
        for _ in range(2):
            placed.run(feeds)
        placed.run({"x": feeds["x"]})
        monkeypatch.setattr(Recording, "launch", failing)
        with pytest.raises(StepFailed, match="the driver says no"):
            placed.run({"x": feeds["x"]})
        monkeypatch.undo()
        with pytest.raises(ValueError, match="inputs: 'state' is missing"):
            placed.run({"x": feeds["x"]})
        np.testing.assert_array_equal(placed.run(feeds).outputs["next"], np.full((4, 4), 2))


def test_a_backend_made_of_this_one_is_its_own_in_deployments() -> None:
    placed: list[str] = []

    class Noting(CupyBackend):
        def place(self, array: Any, regions: Any, tensor: str) -> Any:
            placed.append(tensor)
            return super().place(array, regions, tensor)

    p, feeds = weighted(1)
    with deploy(p, backend=Noting(cupy=simulated.cupy(1))) as one:
        one.run(feeds)
    assert {"w", "more", "bias", "x"} <= set(placed)


def test_devices_keep_the_launches_of_the_last_run_alone() -> None:
    """What operators and plans of before held is free."""
    backend, weak = CupyBackend(cupy=simulated.cupy(1)), []
    for k in range(3):

        def block(xp: Any, inputs: Any, outputs: Any, shard: Any, k: int = k) -> None:
            xp.add(inputs[0], k, out=outputs[0])

        weak.append(ref(block))
        g = Graph()
        g.output(g.op(replace(BUILTIN_OPS["relu"], name=f"own{k}", block=block, work=None), g.input("x", (4, 4))), "y")
        p = plan(g, Mesh(1))
        run(p, {"x": np.ones((4, 4), np.float32)}, backend=backend)
        del p, g, block
    run(*weighted(1), backend=backend)
    run(*weighted(1), backend=backend)
    gc.collect()
    assert [one() for one in weak] == [None] * 3


def test_rings_are_of_what_runs_move() -> None:
    """Not of a large constant, which is placed once."""
    g = Graph()
    x, w = g.input("x", (8, 8)), g.constant("w", np.ones((8, 20_000), np.float32))
    g.output(ops.sum(matmul(x, w), axis=1), "y")
    cupy, p = simulated.cupy(1), plan(g, Mesh(1))
    with deploy(p, backend=CupyBackend(cupy=cupy)) as placed:
        found = placed.run({"x": np.ones((8, 8), np.float32)}).outputs["y"]
        live = [one.nbytes for one in cupy.checker.blocks if one.device is not None and one.is_live and not one.in_pool]
    np.testing.assert_array_equal(found, np.full(8, 8 * 20_000, np.float32))
    stays = find_residents(PreparedPlan(p, "serial"), {})
    assert sum(live) < stays.arenas_nbytes[0] + stays.nbytes_held[0] + (1 << 16), "rings are small"
