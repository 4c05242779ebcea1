"""Runs of a deployment behind the first one: places are not taken anew, and everything is told as before."""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path
from time import sleep
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from tapestry_exec import Checkpoints, NumpyBackend, RunResult, deploy
from tapestry_exec.run.prepared import PreparedPlan
from tapestry_exec.run.settled import Left, tell_settled
from tapestry_exec.run.trace import TraceEvent
from tapestry_plan import Graph, Mesh, ops, plan
from tapestry_plan.ir import BUILTIN_OPS
from tapestry_plan.steps import Alloc, DeviceStep, Free, Send, ShardPlan
from tests.exec.run.test_every_kind_of_plan import make_graph, make_plan
from tests.exec.run.test_same_bits import of_floats
from tests.ways_of_running import Threads, assert_same


class Kept(NumpyBackend):
    """A backend whose devices can be looked at."""

    name = "kept"

    def __init__(self, threads: bool) -> None:
        super().__init__(threads=threads)
        self.devices = list[Any]()

    def make_device(self, nbytes: int) -> Any:
        self.devices.append(super().make_device(nbytes))
        return self.devices[-1]


def count_steps(placed: Any, is_threaded: bool) -> list[int]:
    """Steps that take or give back places, in what is left to do: in all, and by device."""
    every, of_each = placed._session.left[is_threaded]
    return [sum(isinstance(at.step, Alloc | Free) for at in left.steps) for left in (every, *of_each)]


def run_deployed(p: ShardPlan, feeds: dict[str, np.ndarray]) -> RunResult:
    """The first run of a deployment."""
    with deploy(p, backend="serial") as placed:
        return placed.run(feeds)


@pytest.mark.heavy(4)
@pytest.mark.parametrize("threads", [False, True], ids=["loop", "threads"])
@pytest.mark.parametrize("seed", range(8))
def test_later_runs_are_as_the_first_one_whatever_lies_in_the_arenas(seed: int, threads: bool) -> None:
    rng = random.Random(seed)
    p = make_plan(make_graph(rng), rng)[0]
    feeds, others = of_floats(p.graph, seed), of_floats(p.graph, seed + 100)
    wanted, beside = map(partial(run_deployed, p), (feeds, others))
    backend = Kept(threads)
    with deploy(p, backend=backend) as placed:
        for given, expected in [(feeds, wanted), (others, beside), (feeds, wanted)]:
            for device in backend.devices:
                device.memory[:] = 0xFF  # of floats a NaN
            found = placed.run(given)
            assert_same(found, expected)
            assert all(0 <= event.start <= found.seconds for event in found.timeline)


@pytest.mark.parametrize("way", ["serial", Threads(), "processes"], ids=["loop", "threads", "processes"])
def test_padding_is_filled_in_every_run(way: Any) -> None:
    g = Graph()
    x = g.input("x", (1, 2, 8, 8))
    w = g.constant("w", np.random.default_rng(0).random((2, 2, 3, 3), np.float32))
    made = ops.conv(ops.relu(ops.conv(x, w, pads=1, name="one"), name="act"), w, pads=1, name="two")
    g.output(made, "y")
    p = plan(g, Mesh(2), fix={"one": {"h": 2}, "two": {"h": 2}})
    with deploy(p, backend=way) as placed:
        for turn in range(3):
            feeds = {"x": np.random.default_rng(turn).random((1, 2, 8, 8), np.float32)}
            assert_same(placed.run(feeds), run_deployed(p, feeds))


def small_plan() -> tuple[ShardPlan, dict[str, np.ndarray]]:
    g = Graph()
    x, w = g.input("x", (8, 6)), g.constant("w", np.eye(6, dtype=np.float32))
    g.output(ops.exp(ops.relu(x @ w, name="r").T, name="e"), "y")
    p = plan(g, Mesh(2), fix={"matmul": {"m": 2}, "e": {"i0": 2}}, fuse=False)
    return p, {"x": np.random.default_rng(0).random((8, 6), np.float32)}


def test_places_in_which_nothing_is_filled_are_taken_once() -> None:
    p, feeds = small_plan()
    left = {}
    for is_threaded in (False, True):
        with deploy(p, backend=Kept(is_threaded)) as placed:
            first = placed.run(feeds)
            assert_same(placed.run(feeds), first)
            every, *of_each = count_steps(placed, is_threaded)
            assert sum(of_each) == every
            left[is_threaded] = every
            steps = [at.step for at in placed._stays.steps]
    taken, lent = (
        sum(isinstance(one, Alloc | Free) for one in steps),
        {one.src for one in steps if isinstance(one, Send)},
    )
    assert 0 < left[False] < left[True] < taken, "places of outputs are taken in every run, and of what is lent"
    assert left[True] - left[False] == 2 * len(lent)


def test_what_a_loop_has_settled_threads_lend_all_the_same() -> None:
    """A deployment that runs in one loop first, and then side by side: places of what is lent are not overwritten."""

    def wait(xp: Any, inputs: Any, outputs: Any, shard: Any) -> None:
        if shard.range("i0")[0] > 0:
            sleep(0.05)
        np.multiply(inputs[0], 2, out=outputs[0])

    slow = replace(BUILTIN_OPS["relu"], name="slow", block=wait)
    g = Graph()
    late = g.op(slow, g.input("z", (8, 6)), name="late")
    made = ops.relu(ops.relu(g.input("x", (8, 6)), name="a").T, name="b")
    for name in "cde":
        made = ops.exp(made, name=name)
    g.output(made, "y")
    g.output(late, "late")
    fix = {name: {"i0": 2} for name in ("late", *"abcde")}
    p = plan(g, Mesh(2), fix=fix, fuse=False, expand=False)
    feeds = {name: 0.1 * np.random.default_rng(0).random((8, 6), np.float32) for name in "xz"}
    backend = Kept(False)
    with deploy(p, backend=backend, ops={"slow": slow}) as placed:
        first = placed.run(feeds)
        for backend.threads in (False, True, True, False, True):
            assert_same(placed.run(feeds), first)


@pytest.mark.parametrize("way", ["serial", Threads(), "processes"], ids=["loop", "threads", "processes"])
def test_runs_that_go_on_from_a_checkpoint_take_their_places_anew(way: Any, tmp_path: Path) -> None:
    g = Graph()
    big = ops.exp(
        ops.relu(g.input("x", (32, 16)) @ g.constant("w", np.eye(16, dtype=np.float32)), name="a"), name="big"
    )
    g.output(ops.tanh(ops.relu(ops.sum(big, axis=0), name="small"), name="last"), "y")
    p = plan(g, Mesh(2), fuse=False)
    feeds = {"x": np.random.default_rng(0).random((32, 16), np.float32)}
    with deploy(p, backend=way) as placed:
        first, _ = placed.run(feeds), placed.run(feeds)
        placed.run(feeds, checkpoints=Checkpoints(tmp_path / "kept", after=["small"]))
        resumed = placed.run({}, resume=tmp_path / "kept")
        assert resumed.resumed_at and resumed.outputs["y"].tobytes() == first.outputs["y"].tobytes()
        assert max(resumed.peak_nbytes) < max(first.peak_nbytes), "behind the cut less is held"
        assert_same(placed.run(feeds), first)


@pytest.mark.parametrize("way", ["serial", Threads(), "processes"], ids=["loop", "threads", "processes"])
def test_progress_of_later_runs_is_of_the_same_steps(way: Any) -> None:
    p, feeds = small_plan()
    told = list[list[tuple[int, int]]]()
    with deploy(p, backend=way) as placed:
        for _ in range(3):
            placed.run(feeds)
            seen = list[tuple[int, int]]()
            placed.run(feeds, progress=lambda done, total, _, seen=seen: seen.append((done, total)))
            told.append(seen)
    assert told[0][-1][0] == told[0][-1][1]
    assert all(seen[-1] == told[0][-1] and {total for _, total in seen} == {told[0][-1][1]} for seen in told)
    if way == "serial":
        assert told[1] == told[2] == told[0]


def test_events_that_are_only_told_stand_where_the_one_before_ended() -> None:
    g = Graph()
    g.output(ops.exp(ops.relu(g.input("x", (4, 6)), name="a"), name="b"), "y")
    p = plan(g, Mesh(1), fuse=False)
    program = [DeviceStep(k, 0, step) for k, step in enumerate(p.steps)]
    left = Left.of(program, {program[0].step.buffer}, PreparedPlan(p).work)
    done = [
        TraceEvent(at.number, "done", "", 0, float(k), 0.5, 0)
        for k, at in enumerate(at for at in left.steps if not isinstance(at.step, Send))
    ]
    found = tell_settled(done, left.told)
    assert [event.step for event in found] == [at.number for at in program]
    ends = {event.step: event.start + event.seconds for event in found}
    told = [event for event in found if event.kind != "done"]
    assert [event.kind for event in told] == ["alloc", "free"]
    assert [event.start for event in told] == [0.0, ends[told[1].step - 1]]
