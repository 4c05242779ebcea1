"""Steps that are done by heart: runs behind the first ones have the bits, the counts and the events of the first."""

from __future__ import annotations

import gc
import random
from collections import Counter
from collections.abc import Sequence
from time import sleep
from typing import Any
from weakref import ref

import numpy as np
import pytest
from msgspec.structs import replace

from tapestry_exec import NumpyBackend, SerialBackend, StepFailed, deploy, evaluate, run
from tapestry_exec.numpy import tuning
from tapestry_exec.numpy.backend import NumpyDevice
from tapestry_exec.onnxruntime.backend import OnnxruntimeBackend
from tapestry_exec.run.prepared import PreparedPlan
from tapestry_exec.run.settled import Timed, list_noted
from tapestry_exec.run.trace import Phase, TraceEvent, set_time
from tapestry_plan import Graph, Mesh, concat, ops, plan
from tapestry_plan.ir import BUILTIN_OPS
from tapestry_plan.steps import HOST, Copy, DeviceStep, ShardPlan, split_steps
from tests.exec.run import test_every_kind_of_plan
from tests.exec.run.test_every_kind_of_plan import make_graph, make_plan
from tests.exec.run.test_same_bits import of_floats
from tests.ways_of_running import Threads, assert_same

WAYS = pytest.mark.parametrize("way", [SerialBackend(), Threads(), "processes"], ids=["loop", "threads", "processes"])
RUNS = 6
"""The first looks steps up, the second those that are left of it, the third notes their calls."""


def small_plan() -> tuple[ShardPlan, list[dict[str, np.ndarray]]]:
    g = Graph()
    x = g.input("x", (1, 2, 8, 8))
    w = g.constant("w", np.random.default_rng(0).random((2, 2, 3, 3), np.float32))
    made = ops.conv(ops.relu(ops.conv(x, w, pads=1, name="one"), name="act"), w, pads=1, name="two")
    g.output(ops.softmax(made, axis=3), "y")
    p = plan(g, Mesh(2), fix={"one": {"h": 2}, "two": {"w": 2}})
    return p, [{"x": np.random.default_rng(turn).random((1, 2, 8, 8), np.float32)} for turn in range(RUNS)]


def count_known(backend: Any) -> int:
    """Steps whose calls are known, of the devices that a backend keeps."""
    return sum(len(one.rehearsal.parts or ()) for devices in backend._closed for one in devices if one.rehearsal)


@WAYS
def test_deployed_runs_have_the_bits_and_counts_of_runs_of_their_own(way: Any) -> None:
    p, feeds = small_plan()
    with deploy(p, backend=way) as placed:
        for given in feeds:
            with deploy(p, backend=SerialBackend()) as alone:
                assert_same(placed.run(given), alone.run(given))


class Held(Graph):
    """A graph whose inputs behind the first one are constants."""

    def input(self, name: str, shape: Any, dtype: str = "float32") -> Any:
        if name == "x":
            return super().input(name, shape, dtype)
        return self.constant(name, np.random.default_rng(len(self.stored)).standard_normal(shape).astype(dtype))


@pytest.mark.heavy(4)
@pytest.mark.parametrize("threads", [False, True], ids=["loop", "threads"])
@pytest.mark.parametrize("kind", [Graph, Held], ids=["inputs", "constants"])
@pytest.mark.parametrize("seed", range(8))
def test_every_kind_of_plan_runs_by_heart_as_before(
    seed: int, kind: Any, threads: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where some runs have constants of their own."""
    rng = random.Random(seed)
    monkeypatch.setattr(test_every_kind_of_plan, "Graph", kind)
    p = make_plan(make_graph(rng), rng)[0]
    backend = Threads() if threads else SerialBackend()
    known = {one.name: one.data for one in p.graph.stored.values() if one.kind == "constant" and one.shape}
    for turn in range(2 * RUNS if known else RUNS):
        feeds = of_floats(p.graph, 100 * turn + seed)
        own = {name: data * turn for name, data in known.items() if rng.random() < 0.2} or None
        for devices in backend._closed:
            for device in devices:
                device.memory[:] = 0xFF  # of floats a NaN
        found = run(p, feeds, backend=backend, constants=own)
        wanted = run(p, feeds, backend=SerialBackend(), constants=own)
        assert_same(found, wanted)
        assert found.nbytes_copied == wanted.nbytes_copied == p.nbytes_copied
        assert all(0 <= event.start <= event.start + event.seconds for event in found.timeline)
    if known:  # in other processes constants lie in arenas
        assert_same(found, run(p, feeds, backend="processes", constants=own))
    assert count_known(backend) > 0


def test_devices_that_run_another_plan_in_between_learn_it_again() -> None:
    (p, feeds), g = small_plan(), Graph()
    g.output(ops.exp(g.input("x", (8, 6)), name="e"), "y")
    other, backend = plan(g, Mesh(2), fix={"e": {"i0": 2}}), SerialBackend()
    x = {"x": np.random.default_rng(0).random((8, 6), np.float32)}
    for given in feeds:
        for _ in range(3):
            assert_same(run(p, given, backend=backend), run(p, given, backend=SerialBackend()))
        for _ in range(3):
            np.testing.assert_array_equal(run(other, x, backend=backend).outputs["y"], np.exp(x["x"]))


def test_other_operators_are_called_as_soon_as_they_are_given() -> None:
    g = Graph()
    g.output(ops.exp(ops.relu(g.input("x", (8, 6)), name="r").T, name="e"), "y")
    p, backend = plan(g, Mesh(2), fix={"r": {"i0": 2}, "e": {"i0": 2}}, fuse=False), SerialBackend()
    x = np.random.default_rng(0).random((8, 6), np.float32)

    def double(xp: Any, inputs: Any, outputs: Any, shard: Any) -> None:
        np.multiply(inputs[0], 2, out=outputs[0])

    twice = {"exp": replace(BUILTIN_OPS["exp"], block=double)}
    for _ in range(RUNS):
        np.testing.assert_array_equal(run(p, {"x": x}, backend=backend).outputs["y"], np.exp(x.T))
    for _ in range(RUNS):
        np.testing.assert_array_equal(run(p, {"x": x}, backend=backend, ops=twice).outputs["y"], 2 * x.T)


def test_cells_that_nobody_writes_show_in_every_run() -> None:
    """What a block leaves out is poison again, not what the run before had left there."""

    def half(xp: Any, inputs: Any, outputs: Any, shard: Any) -> None:
        if inputs[0].flat[0] > 0:
            outputs[0][...] = inputs[0]

    g = Graph()
    g.output(ops.exp(g.op(replace(BUILTIN_OPS["relu"], name="half", block=half), g.input("x", (4,))), name="e"), "y")
    p, ones = plan(g, Mesh(1), fuse=False), np.ones(4, np.float32)
    backend = SerialBackend()
    with deploy(p, backend=SerialBackend()) as placed:
        for turn in range(2 * RUNS):
            sign = 1.0 if turn % 2 else -1.0
            for found in (placed.run({"x": sign * ones}), run(p, {"x": sign * ones}, backend=backend)):
                assert np.isnan(found.outputs["y"]).all() == (sign < 0)


@WAYS
def test_a_block_that_fails_by_heart_is_named_and_the_next_run_is_right(way: Any) -> None:
    p, feeds = small_plan()
    with deploy(p, backend=way) as placed, np.errstate(over="raise"):
        first, *_ = [placed.run(given) for given in feeds]
        with pytest.raises(StepFailed, match=r"step \d+ \(compute '.*overflow"):
            placed.run({"x": np.full((1, 2, 8, 8), 3e38, np.float32)})
        for _ in range(RUNS):
            assert_same(placed.run(feeds[0]), first)


def test_a_device_of_a_class_of_its_own_looks_steps_up_in_every_run() -> None:
    class Watched(NumpyDevice):
        launched = 0

        def launch(self, *given: Any) -> None:
            Watched.launched += 1
            super().launch(*given)

    class Backend(SerialBackend):
        def make_device(self, nbytes: int) -> NumpyDevice:
            return Watched(super().make_device(nbytes).memory)

    (p, feeds), backend = small_plan(), Backend()
    seen = list[int]()
    for given in feeds:
        before = Watched.launched
        run(p, given, backend=backend)
        seen.append(Watched.launched - before)
    assert seen == [len(p.flop) and sum(event.kind == "compute" for event in run(p, feeds[0]).timeline)] * RUNS


def test_payloads_of_a_backend_that_moves_them_itself_go_through_it_in_every_run() -> None:
    class Moving(SerialBackend):
        def __init__(self) -> None:
            super().__init__()
            self.moved = list[int]()

        def move(self, payload: Any, src: int, dst: int) -> Any:
            self.moved.append(payload.nbytes)
            return super().move(payload, src, dst)

    (p, feeds), backend = small_plan(), Moving()
    for given in feeds:
        backend.moved.clear()
        assert_same(run(p, given, backend=backend), run(p, given, backend=SerialBackend()))
        assert sum(backend.moved) == p.nbytes_moved > 0


def test_what_is_known_of_devices_that_are_gone_is_forgotten() -> None:
    p, feeds = small_plan()
    backend = SerialBackend()
    for given in feeds:
        run(p, given, backend=backend)
    assert count_known(backend) > 0
    g = Graph()
    g.output(ops.exp(g.input("x", (512, 512)), name="e"), "y")
    big = plan(g, Mesh(2), fix={"e": {"i0": 2}})
    run(big, {"x": np.zeros((512, 512), np.float32)}, backend=backend)
    assert count_known(backend) == 0, "new arenas took the place of the old ones"


def test_steps_that_are_watched_are_done_one_by_one() -> None:
    p, feeds = small_plan()
    with deploy(p, backend=SerialBackend()) as placed:
        first, *_ = [placed.run(given) for given in feeds]
        told = list[tuple[int, int, str]]()
        assert_same(placed.run(feeds[0], progress=lambda *step: told.append(step)), first)
        assert Counter(node for _, _, node in told).keys() == {event.node for event in first.timeline} & {
            node for _, _, node in told
        }
        assert told[-1][0] == told[-1][1]
        assert_same(placed.run(feeds[0]), first)


def test_numbers_are_those_of_the_unsharded_run() -> None:
    p, feeds = small_plan()
    with deploy(p, backend=NumpyBackend()) as placed:
        for given in feeds:
            np.testing.assert_allclose(placed.run(given).outputs["y"], evaluate(p.graph, given)["y"], rtol=1e-5)


def make_events() -> Sequence[TraceEvent]:
    phases = Phase("pack", 1, 1.0, 0.25), Phase("move", 0, 1.25, 0.5), Phase("unpack", 0, 1.75, 0.25)
    return (
        TraceEvent(3, "compute", "a", 0, 0.0, 1.0, 0),
        TraceEvent(4, "copy", "b", 0, 1.0, 1.0, 64, phases, 0.125),
        TraceEvent(5, "free", "c", 0, 2.0, 0.0, 32),
    )


def test_events_keep_their_times_on_the_way_to_another_process() -> None:
    events = make_events()
    packed = Timed.of(events)
    assert packed.list_events() == list(events)
    later = [(events[0], 5.0, 2.0), (events[1], 7.0, 1.0, 0.5, 7.75, 0.0), (events[2], 8.0, 0.5)]
    assert Timed.of(later, packed.events).list_events() == list_noted(later)
    compute, copied, freed = list_noted(later)
    assert compute == events[0]._replace(start=5.0, seconds=2.0)
    assert freed == events[2]._replace(start=8.0, seconds=0.5)
    assert copied.phases == (Phase("pack", 1, 7.0, 0.5), Phase("move", 0, 7.5, 0.25), Phase("unpack", 0, 7.75, 0.25))
    assert (copied.start, copied.seconds, copied.waited, copied.nbytes) == (7.0, 1.0, 0.0, 64)


def test_in_one_loop_all_of_a_copy_is_its_unpacking() -> None:
    found = set_time(make_events()[1], 3.0, 0.5)
    assert found.phases == (Phase("pack", 1, 3.0, 0.0), Phase("move", 0, 3.0, 0.0), Phase("unpack", 0, 3.0, 0.5))


@pytest.mark.parametrize("threads", [False, True], ids=["loop", "threads"])
def test_devices_go_with_their_backend_without_a_search_for_cycles(threads: bool) -> None:
    p, feeds = small_plan()
    backend = Threads() if threads else SerialBackend()
    for given in feeds:
        run(p, given, backend=backend)
    assert count_known(backend) > 0
    devices = [ref(device) for devices in backend._closed for device in devices]
    gc.disable()
    try:
        del backend
        assert [device() for device in devices] == [None] * len(devices)
    finally:
        gc.enable()


def test_cells_that_were_packed_as_a_run_was_noted_are_read_where_they_lie_in_later_ones() -> None:
    """Their place is given back before the other device comes to take them, in every run."""

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
    p = plan(g, Mesh(2), fix={name: {"i0": 2} for name in ("late", *"abcde")}, fuse=False, expand=False)
    backend = Threads()
    for turn in range(RUNS):
        feeds = {name: 0.1 * np.random.default_rng(turn).random((8, 6), np.float32) for name in "xz"}
        found = run(p, feeds, backend=backend, ops={"slow": slow})
        assert_same(found, run(p, feeds, backend=SerialBackend(), ops={"slow": slow}))


def test_a_device_that_idles_keeps_no_other_from_it() -> None:
    """Its steps are none, which is known as soon as those of the others are."""
    g = Graph()
    g.output(ops.exp(ops.relu(g.input("x", (6, 4)), name="a"), name="b"), "y")
    p = plan(g, Mesh(3), fix={"a": {"i0": 2}, "b": {"i0": 2}}, fuse=False)
    assert not any(buffer.device == 2 for buffer in p.buffers)
    x = np.ones((6, 4), np.float32)
    with deploy(p, backend=SerialBackend()) as placed:
        for _ in range(5):
            placed.run({"x": x})
        known = [device.rehearsal.parts for device in placed._session.devices]
    assert known[0] and known[1] and known[2] == {}


def test_constants_of_the_graph_are_copied_from_where_they_lie_and_others_are_looked_at_in_each_run() -> None:
    (p, feeds), backend = small_plan(), SerialBackend()
    (w,) = [one.data for one in p.graph.stored.values() if one.kind == "constant"]
    placed = {step.number for step in place_steps(p) if step.step.tensor == "w"}
    asked = [None, {"w": w}, None, None, {"w": w.copy()}, None]
    for given, constants in zip(feeds, asked, strict=True):
        found = run(p, given, backend=backend, constants=constants)
        assert_same(found, run(p, given, backend=SerialBackend()))
        assert found.nbytes_placed == p.nbytes_placed
    known = [one.rehearsal.parts for (devices,) in [backend._closed] for one in devices]
    assert placed and placed <= {number for parts in known for number in parts or ()}
    told = [part.placed_nbytes for parts in known for part in (parts or {}).values()]
    assert sum(told) == 2 * w.nbytes, "on both devices"


def place_steps(p: ShardPlan) -> list[DeviceStep]:
    """What devices place from the host."""
    return [at for at in split_steps(p.graph, p.written) if isinstance(at.step, Copy) and at.step.src == HOST]


def test_a_backend_that_packs_what_it_places_gets_constants_too() -> None:
    tensors = Counter[str]()

    class Packs(SerialBackend):
        def place(self, array: Any, regions: Any, tensor: str) -> Any:
            tensors[tensor] += 1
            return super().place(array, regions, tensor)

    (p, feeds), backend = small_plan(), Packs()
    for given in feeds:
        assert_same(run(p, given, backend=backend), run(p, given, backend=SerialBackend()))
    assert tensors["w"] == RUNS * sum(at.step.tensor == "w" for at in place_steps(p)) > 0


def two_products() -> tuple[ShardPlan, np.ndarray]:
    """A product whose weights are split by rows, then one of weights split by columns, on two devices."""
    draw = np.random.default_rng(3)
    g = Graph()
    first, second = (draw.random((6, 6), np.float32) for _ in range(2))
    made = ops.matmul(g.constant("rows", first), g.input("x", (6, 5)), name="one")
    g.output(ops.matmul(made.T, g.constant("columns", second), name="two"), "y")
    p = plan(g, Mesh(2), fix={"one": {"m": 2}, "two": {"n": 2}})
    return p, draw.random((6, 5), np.float32)


def list_there(backend: Any) -> dict[str, list[bool]]:
    """By constant: whether each device reads it in the graph's own memory."""
    found = dict[str, list[bool]]()
    for devices in backend._closed:
        for one in devices:
            for known in one._there.values():
                lies = np.shares_memory(known.cells, known.array) and not known.cells.flags.writeable
                found.setdefault(known.buffer.tensor, []).append(lies)
    return found


@pytest.mark.parametrize("way", [SerialBackend, Threads], ids=["loop", "threads"])
def test_constants_that_lie_side_by_side_are_read_where_they_lie(way: Any) -> None:
    """Rows are; columns are copied, as BLAS may give what lies apart other bits than devices elsewhere have."""
    (p, x), backend = two_products(), way()
    for _ in range(RUNS):
        found = run(p, {"x": x}, backend=backend)
        np.testing.assert_allclose(found.outputs["y"], evaluate(p.graph, {"x": x})["y"], rtol=1e-6)
        assert found.nbytes_placed == p.nbytes_placed and found.peak_nbytes == p.peak_nbytes
        assert list_there(backend) == {"rows": [True, True]}
    assert_same(found, run(p, {"x": x}, backend="processes"))


@pytest.mark.parametrize("way", [SerialBackend, Threads], ids=["loop", "threads"])
@pytest.mark.parametrize("seed", range(8))
def test_a_run_with_constants_of_its_own_reads_these(way: Any, seed: int) -> None:
    """Also behind and between runs that read the graph's where they lie."""
    (p, x), backend, draw = two_products(), way(), random.Random(seed)
    given = {name: p.graph.stored[name].data for name in ("rows", "columns")}
    for turn in range(3 * RUNS):
        others = {name: data + turn for name, data in given.items() if draw.random() < 0.3}
        expected = np.matmul(np.matmul(others.get("rows", given["rows"]), x).T, others.get("columns", given["columns"]))
        found = run(p, {"x": x}, backend=backend, constants=others or None)
        np.testing.assert_allclose(found.outputs["y"], expected, rtol=1e-5)


def test_a_constant_that_others_write_beside_is_copied() -> None:
    """A part of a concatenation, and what has padding around it."""
    g, w = Graph(), np.arange(12, dtype=np.float32).reshape(3, 4)
    joined = concat([g.constant("w", w), g.input("x", (3, 4))], 0)
    g.output(ops.exp(joined), "y")
    p, backend, x = plan(g, Mesh(1)), SerialBackend(), np.ones((3, 4), np.float32)
    for _ in range(RUNS):
        found = run(p, {"x": x}, backend=backend).outputs["y"]
        np.testing.assert_allclose(found, np.exp(np.concatenate([w, x])), rtol=1e-6)
    hosts = {one.within.buffer for one in p.buffers if one.within is not None}
    assert not PreparedPlan(p, "serial").work.lasting & hosts


@pytest.mark.parametrize("progress", [None, lambda *_: None], ids=["plain", "watched"])
def test_what_others_leave_out_is_poison_again_behind_runs_that_left_nothing_out(progress: Any) -> None:
    def half(xp: Any, inputs: Any, outputs: Any, shard: Any) -> None:
        outputs[0][..., :2] = inputs[0][..., :2]

    g = Graph()
    g.output(ops.exp(ops.relu(g.input("x", (4,)), name="r"), name="e"), "y")
    p, backend, feed = plan(g, Mesh(1), fuse=False), SerialBackend(), {"x": np.ones(4, np.float32)}
    mine = {"relu": replace(BUILTIN_OPS["relu"], block=half)}
    for turn in range(2 * RUNS):
        is_mine = turn >= RUNS and turn % 2 == 0
        found = run(p, feed, backend=backend, ops=mine if is_mine else None, progress=progress).outputs["y"]
        assert np.isnan(found[2:]).all() == is_mine and not np.isnan(found[:2]).any()


@pytest.mark.parametrize("way", [SerialBackend, Threads, OnnxruntimeBackend], ids=["loop", "threads", "sessions"])
def test_constants_go_with_their_plan_though_the_backend_stays(way: Any) -> None:
    backend, gone = way(), list[Any]()
    for _ in range(2):
        p, x = two_products()
        for _ in range(RUNS):
            run(p, {"x": x}, backend=backend)
        gone.append(ref(p.graph.stored["rows"].data))
    g = Graph()
    g.output(ops.relu(g.input("x", (4,))), "y")
    p = plan(g, Mesh(2))  # in arenas that are large enough
    for _ in range(RUNS):
        run(p, {"x": np.ones(4, np.float32)}, backend=backend)
    gc.collect()
    assert [one() for one in gone] == [None, None]


@pytest.mark.parametrize("kept", [0, 1, 2, 9])
def test_more_constants_than_are_kept_are_those_of_each_run(kept: int, monkeypatch: pytest.MonkeyPatch) -> None:
    g, known = Graph(), {name: np.full((3, 3), number, np.float32) for number, name in enumerate("abc", 2)}
    g.output(ops.add_n(*(g.constant(name, data) for name, data in known.items()), g.input("x", (3, 3))), "y")
    p, backend, x, draw = plan(g, Mesh(1)), SerialBackend(), np.eye(3, dtype=np.float32), random.Random(kept)
    monkeypatch.setattr(tuning, "KEPT_LAUNCHES", kept)
    for turn in range(4 * RUNS):
        own = {name: data + turn for name, data in known.items() if turn % 3 and draw.random() < 0.4}
        found = run(p, {"x": x}, backend=backend, constants=own or None).outputs["y"]
        np.testing.assert_array_equal(found, sum({**known, **own}.values()) + x)
