"""Results that overwrite what they are computed from: where they do, what that saves, and planted faults."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tapestry_exec import Checkpoints, InvalidPlan, RawKernel, StepFailed, check_plan, deploy, open_checkpoint, run
from tapestry_exec.simulated import SimulatedBackend
from tapestry_plan import Graph, Mesh, ShardPlan, Tensor, gradient, ops, plan
from tapestry_plan.ir import BUILTIN_OPS, CellBlock
from tapestry_plan.steps import Alloc, Buffer, Compute, Copy, Free, Send
from tests.spilling import apart
from tests.ways_of_running import COUNTED, Threads

WAYS: dict[str, Callable[[], Any]] = {
    "loop": lambda: "serial",
    "threads": Threads,
    "processes": lambda: "processes",
    "simulated GPUs": SimulatedBackend,
    "ONNX Runtime": lambda: "onnxruntime",
}
RNG = np.random.default_rng(0)
LINE = 64
"""Bytes of a line of an arena."""


def chain(*names: str, shape: tuple[int, ...] = (64, 48)) -> Graph:
    g = Graph()
    y = g.input("x", shape)
    for name in names:
        y = getattr(ops, name)(y, name=name)
    g.output(y, "y")
    return g


def overwriting(p: ShardPlan) -> dict[str, str]:
    """By tensor the first one whose place it takes."""
    known = {buffer.id: buffer for buffer in p.buffers}
    return {b.tensor: known[b.over].tensor for b in p.buffers if b.over is not None}


# -- where they do -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("devices", [1, 2, 3])
def test_a_chain_has_one_place(way: str, devices: int) -> None:
    if way == "ONNX Runtime":
        pytest.importorskip("onnxruntime", reason="its sessions run blocks")
    g, x = chain("tanh", "exp", "negative"), RNG.random((64, 48), np.float32)
    p = plan(g, Mesh(devices), fuse=False, fix={"tanh": {"i0": devices}})
    assert overwriting(p) == {"tanh": "x", "exp": "x", "negative": "x"}
    rows = [len(rows) for rows in np.array_split(np.arange(64), devices)]
    assert sorted(p.peak_nbytes) == sorted(-(-n * 48 * 4 // LINE) * LINE for n in rows)
    before = x.copy()
    found = run(p, {"x": x}, backend=WAYS[way]())
    np.testing.assert_allclose(found.outputs["y"], -np.exp(np.tanh(x)), rtol=1e-6)
    assert found.peak_nbytes == p.peak_nbytes and x.tobytes() == before.tobytes(), "the caller's array stays"


KEPT: dict[str, Callable[[Graph], None]] = {
    "an output": lambda g: g.output(ops.exp(g.output(ops.relu(g.input("x", (6, 4)), name="a"), "w")), "z"),
    "a constant": lambda g: g.output(ops.exp(g.constant("a", np.ones((6, 4), np.float32))), "z"),
    "read again": lambda g: [
        g.output(f(a), f.__name__) for a in [ops.relu(g.input("x", (6, 4)), name="a")] for f in (ops.exp, ops.tanh)
    ],
    "of other cells": lambda g: g.output(ops.exp(ops.relu(g.input("x", (6, 4)), name="a")[::-1]), "z"),
    "and turned": lambda g: [g.output(a + a.T, "z") for a in [ops.relu(g.input("x", (4, 4)), name="a")]],
    "broadcast": lambda g: g.output(ops.relu(g.input("x", (1, 4)), name="a") + g.input("y", (6, 4))[::-1], "z"),
    "of another width": lambda g: g.output(ops.astype(ops.relu(g.input("x", (6, 4)), name="a"), dtype="float64"), "z"),
    "of complex numbers": lambda g: g.output(ops.multiply(c := g.input("x", (6, 4), "complex64"), c), "z"),
    "by who promises nothing": lambda g: g.output(ops.softmax(ops.relu(g.input("x", (6, 4)), name="a")), "z"),
}


@pytest.mark.parametrize("why", KEPT)
def test_what_is_needed_stays(why: str) -> None:
    g = Graph()
    KEPT[why](g)
    p = plan(g, Mesh(1), fuse=False, expand=False)
    found = [one for one in overwriting(p).values() if one in ("a", "x")]
    others = {"a constant": [], "of complex numbers": [], "read again": ["x", "x"]}
    assert found == others.get(why, ["x"])
    inputs = [one for one in g.stored.values() if one.kind == "input"]
    run(p, {one.name: RNG.random(one.shape, np.float32).astype(one.dtype) for one in inputs}, verify=True)


def put(a: Tensor, b: Tensor) -> Tensor:
    """Cells of b in place of those of a, row by row in another order; both are of one shape."""
    g = a.graph
    at = g.tensor("at") if "at" in g.stored else g.constant("at", np.argsort(RNG.random((6, 4)), axis=1)[:, :4])
    return ops.put_along_axis(a, at, b, 1, reduction="add")


SEEN: list[Callable[[Tensor], Tensor]] = [lambda t: t, lambda t: t[::-1], lambda t: t.T.reshape(6, 4)]
MADE: list[Callable[[Tensor, Tensor], Tensor]] = [
    lambda a, b: a + b,
    lambda a, b: b * a,
    lambda a, b: ops.tanh(a),
    lambda a, b: ops.softmax(a),
    lambda a, b: ops.relu(b),
    lambda a, b: ops.sum(a, axis=1, keepdims=True) + b,
    lambda a, b: ops.where(ops.greater(a, 1.0), a, b),
    lambda a, b: ops.where(ops.greater(b, 1.0), a, b),
    put,
    lambda a, b: put(b, a),
]


@st.composite
def graphs(draw: st.DrawFn) -> tuple[Graph, int]:
    """Sums, products and functions of few tensors, which are read once or more, as they are or otherwise."""
    g = Graph()
    known = [
        g.input("x", (6, 4)),
        g.input("y", (6, 4)),
        g.constant("c", np.linspace(1, 2, 24, dtype="f4").reshape(6, 4)),
    ]
    for _ in range(draw(st.integers(1, 7))):
        a, b = (known[draw(st.integers(0, len(known) - 1))] for _ in range(2))
        known.append(draw(st.sampled_from(MADE))(a, draw(st.sampled_from(SEEN))(b)))
    for k, one in enumerate(known[3:]):
        if k == len(known) - 4 or draw(st.booleans()):
            g.output(one, f"z{k}")
    return g, draw(st.integers(1, 3))


@pytest.mark.heavy(2)
@pytest.mark.parametrize("way", ["loop", "threads", "simulated GPUs"])
@settings(max_examples=max(12, settings.default.max_examples // 4))
@given(graphs(), st.booleans())
def test_any_program_has_the_bits_of_blocks_apart(way: str, drawn: tuple[Graph, int], fuse: bool) -> None:
    g, devices = drawn
    p = plan(g, Mesh(devices), fuse=fuse)
    q = apart(p)
    assert not overwriting(q) and all(one <= other for one, other in zip(p.peak_nbytes, q.peak_nbytes, strict=True))
    feeds = {one.name: RNG.random(one.shape, np.float32) for one in g.stored.values() if one.kind == "input"}
    found, wanted = run(p, feeds, backend=WAYS[way]()), run(q, feeds, backend=WAYS[way]())
    for name, array in wanted.outputs.items():
        assert found.outputs[name].tobytes() == array.tobytes()
    for name in set(COUNTED) - {"peak_nbytes", "nbytes_copied"}:
        assert getattr(found, name) == getattr(wanted, name)
    timeline = dict.fromkeys(range(devices), 0)
    for event in found.timeline:
        if event.kind in ("alloc", "free"):
            timeline[event.device] += event.nbytes * (1 if event.kind == "alloc" else -1)
            assert timeline[event.device] >= 0
    kept = {n for out in p.outputs for n, _ in (*out.blocks, *out.replicas)}
    left = [
        sum({b.over or b.id: b.nbytes for b in p.buffers if b.id in kept and b.device == d}.values())
        for d in range(devices)
    ]
    assert [timeline[d] for d in range(devices)] >= left


@pytest.mark.heavy(2)
@pytest.mark.parametrize("way", ["loop", "threads", "processes", "simulated GPUs"])
def test_what_others_read_is_sent_before(way: str) -> None:
    """Each device sends rows of what it overwrites then; one that lends them packs what was not taken yet."""
    g = Graph()
    a = ops.relu(g.input("x", (64, 96)), name="a")
    g.output(ops.tanh(a, name="columns"), "c")
    g.output(ops.exp(a, name="rows"), "b")
    fix = {"a": {"i0": 4}, "rows": {"i0": 4}, "columns": {"i1": 4}}
    p = plan(g, Mesh(4), fix=fix, fuse=False)
    assert overwriting(p)["rows"] == "x" and p.nbytes_moved
    steps = p.program(1).steps
    last = next(k for k, step in enumerate(steps) if isinstance(step, Compute) and step.node == "rows")
    assert sum(isinstance(step, Send) and step.tensor == "a" for step in steps[:last]) == 3
    with deploy(p, backend=WAYS[way]()) as placed:
        for seed in range(20):
            x = np.random.default_rng(seed).normal(size=(64, 96)).astype(np.float32)
            found = placed.run({"x": x})
            np.testing.assert_allclose(found.outputs["c"], np.tanh(np.maximum(x, 0)), rtol=1e-6)
            np.testing.assert_allclose(found.outputs["b"], np.exp(np.maximum(x, 0)), rtol=1e-6)


# -- state ---------------------------------------------------------------------------------------------------


def descent(*, momentum: bool) -> tuple[Graph, dict[str, str]]:
    g = Graph()
    x, w = g.input("x", (16, 24)), g.input("w", (24, 8))
    (slope,) = gradient(ops.sum((x @ w) ** 2, keepdims=True), [w])
    carry = {"new_w": "w"}
    if momentum:
        m = g.input("m", (24, 8))
        slope = ops.add(m * 0.5, slope, name="faster")
        g.output(slope, "new_m")
        carry["new_m"] = "m"
    g.output(ops.subtract(w, slope * 0.001, name="moved"), "new_w")
    return g, carry


def leapfrog() -> tuple[Graph, dict[str, str]]:
    """The place of each input is one that the copy of another output wants."""
    g = Graph()
    u, prev = g.input("u", (4, 8)), g.input("prev", (4, 8))
    g.output(ops.subtract(ops.multiply(u, 2.0, name="twice"), prev, name="next"), "new")
    g.output(ops.multiply(u, 1.0, name="kept"), "old")
    return g, {"new": "u", "old": "prev"}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("devices", [1, 2])
def test_a_weight_is_replaced_where_it_lies(way: str, devices: int) -> None:
    """Against NumPy: nothing is copied behind a run, and the weights lie there once."""
    if way == "ONNX Runtime":
        pytest.importorskip("onnxruntime", reason="its sessions run blocks")
    g, carry = descent(momentum=True)
    p = plan(g, Mesh(devices), tie=carry, fuse=False)
    assert {"w", "m"} <= set(overwriting(p).values())
    x, w, m = (RNG.random(shape, np.float32) for shape in ((16, 24), (24, 8), (24, 8)))
    with deploy(p, backend=WAYS[way](), carry=carry) as placed:
        for k in range(6):
            found = placed.run({"x": x} if k else {"x": x, "w": w, "m": m})
            m = m * 0.5 + x.T @ (2 * (x @ w))
            w = w - m * 0.001
            np.testing.assert_allclose(found.outputs["new_w"], w, rtol=1e-4, atol=1e-5)
            inside = sum(event.nbytes for event in found.timeline if event.kind == "copy" and not event.phases)
            assert sum(found.nbytes_copied) <= inside, "what the plan itself copies"
            assert all(a <= b for a, b in zip(found.peak_nbytes, p.peak_nbytes, strict=True))


CACHES: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "put_along_axis": lambda c, at, k: ops.put_along_axis(c, at.broadcast_to(k.shape), k, 1),
    "scatter_nd": lambda c, at, k: ops.scatter_nd(c.transpose((1, 0, 2)), at.reshape((1, 1)), k.transpose((1, 0, 2))),
    "where": lambda c, at, k: ops.where(ops.equal(at, steps_of(c)), k, c),
}


def steps_of(c: Tensor) -> Tensor:
    return c.graph.constant("steps", np.arange(c.shape[1]).reshape(1, -1, 1))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("devices", [1, 2])
@pytest.mark.parametrize("how", CACHES)
def test_a_cache_gets_a_row_where_it_lies(how: str, devices: int, way: str) -> None:
    """Keys of 8 heads and 24 steps, of which one is written in each run; against NumPy, with nothing copied."""
    if way == "ONNX Runtime":
        pytest.importorskip("onnxruntime", reason="its sessions run blocks")
    g, turned = Graph(), how == "scatter_nd"
    c = g.input("c", (24, 8, 16) if turned else (8, 24, 16))
    k, at = g.input("k", (8, 1, 16)), g.input("at", (1, 1, 1), "int64")
    made = CACHES[how](c.transpose((1, 0, 2)) if turned else c, at, k)
    g.output(made, "new_c")
    g.output(ops.sum(made, axis=1), "sums")
    p = plan(g, Mesh(devices), tie={"new_c": "c"}, layout={"c": {1 if turned else 0: devices}})
    assert overwriting(p)[how] == "c"
    cache = RNG.random(c.shape, np.float32)
    with deploy(p, backend=WAYS[way](), carry={"new_c": "c"}) as placed:
        for step in range(6):
            feeds = {"k": RNG.random((8, 1, 16), np.float32), "at": np.full((1, 1, 1), 3 * step)}
            found = placed.run(feeds if step else {**feeds, "c": cache})
            cache[(3 * step,) if turned else (slice(None), 3 * step)] = feeds["k"][:, 0]
            assert found.outputs["new_c"].tobytes() == cache.tobytes()
            assert all(n < cache.nbytes // devices for n in found.nbytes_copied), "the cache is not"
            assert all(n < 2 * cache.nbytes // devices for n in found.peak_nbytes), "it lies there once"


@pytest.mark.heavy(2)
@pytest.mark.parametrize("way", ["loop", "threads", "simulated GPUs"])
@settings(max_examples=max(12, settings.default.max_examples // 4))
@given(graphs(), st.data())
def test_any_state_is_what_the_host_would_hand_on(way: str, drawn: tuple[Graph, int], data: st.DataObject) -> None:
    """Whatever overwrites what: the bits of runs that are given the outputs of the one before as inputs."""
    g, devices = drawn
    inputs = [one.name for one in g.stored.values() if one.kind == "input"]
    labels = data.draw(st.permutations(list(g.outputs)))
    carry = dict(zip(labels, data.draw(st.permutations(inputs)), strict=False))
    p = plan(g, Mesh(devices), tie=carry, fuse=data.draw(st.booleans()))
    state = {name: RNG.random((6, 4), np.float32) for name in inputs}
    left = {name: array for name, array in state.items() if name not in carry.values()}
    with deploy(p, backend=WAYS[way](), carry=carry) as placed, np.errstate(all="ignore"):
        for k in range(4):
            found = placed.run(left if k else state).outputs
            wanted = run(p, state, backend="simulated" if way == "simulated GPUs" else "serial").outputs
            assert all(found[label].tobytes() == wanted[label].tobytes() for label in wanted)
            state |= {name: wanted[label] for label, name in carry.items()}


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_outputs_that_change_places_are_copied(way: str, turned: bool) -> None:
    """One has the place that the other goes to: against NumPy, in either order of the copies."""
    if way == "ONNX Runtime":
        pytest.importorskip("onnxruntime", reason="its sessions run blocks")
    g, carry = leapfrog()
    carry = dict(reversed(carry.items())) if turned else carry
    p = plan(g, Mesh(2), tie=carry, fuse=False)
    assert {"u", "prev"} & set(overwriting(p).values())
    u, prev = RNG.random((4, 8), np.float32), RNG.random((4, 8), np.float32)
    with deploy(p, backend=WAYS[way](), carry=carry) as placed:
        for k in range(5):
            found = placed.run({} if k else {"u": u, "prev": prev}).outputs["new"]
            u, prev = 2 * u - prev, u
            np.testing.assert_allclose(found, u, rtol=1e-5)


@pytest.mark.heavy(2)
@pytest.mark.parametrize("momentum", [False, True])
def test_training_goes_on_from_a_checkpoint_behind_the_new_weight(momentum: bool, tmp_path: Path) -> None:
    g, carry = descent(momentum=momentum)
    p = plan(g, Mesh(2), tie=carry, fuse=False)
    feeds = {name: RNG.random(g.stored[name].shape, np.float32) for name in ("x", *carry.values())}
    with deploy(p, backend="serial", carry=carry) as placed:
        wanted = [placed.run(feeds if k == 0 else {"x": feeds["x"]}).outputs for k in range(4)]
    for stage in p.stages:
        with deploy(p, backend="serial", carry=carry) as placed:
            placed.run(feeds)
            placed.run({"x": feeds["x"]}, checkpoints=Checkpoints(tmp_path / stage.node, after=[stage.node]))
        again = Checkpoints(tmp_path / f"{stage.node} again", after=[p.stages[-1].node])
        for saving in (None, again):
            with deploy(p, backend="serial", carry=carry) as placed:
                found = [placed.run({"x": feeds["x"]}, resume=tmp_path / stage.node, checkpoints=saving).outputs]
                found += [placed.run({"x": feeds["x"]}).outputs for _ in range(2)]
            for mine, other in zip(found, wanted[1:], strict=True):
                assert all(mine[name].tobytes() == other[name].tobytes() for name in carry)
        for folder in (tmp_path / stage.node, Path(again.path)):
            if any(folder.glob("*")):  # none is saved behind the last stage by a run that begins there
                kept = open_checkpoint(folder)
                for label, name in carry.items():  # what the run began with, though it is overwritten by then
                    assert kept.read(name).read_whole().tobytes() == wanted[0][label].tobytes(), stage.node


@pytest.mark.parametrize("way", ["loop", "threads", "processes"])
def test_a_run_that_fails_behind_the_new_weight_loses_the_state(way: str) -> None:
    """It is refused to go on, and right with a state that is given again."""
    g, carry = descent(momentum=False)
    g.output(ops.exp(g.tensor("moved"), name="last"), "seen")
    p = plan(g, Mesh(2), tie=carry, fuse=False)
    assert overwriting(p)["moved"] == "w"
    fails = replace(BUILTIN_OPS["exp"], block=fail_on_large)
    feeds = {"x": RNG.random((16, 24), np.float32), "w": RNG.random((24, 8), np.float32)}
    with deploy(p, backend=WAYS[way](), carry=carry, ops={"exp": fails}) as placed:
        wanted = placed.run(feeds).outputs["new_w"]
        with pytest.raises(StepFailed, match="too large"):
            placed.run({"x": feeds["x"] * 1e6})
        with pytest.raises(ValueError, match=r"inputs: 'w' is missing"):
            placed.run({"x": feeds["x"]})
        assert placed.run(feeds).outputs["new_w"].tobytes() == wanted.tobytes()


def fail_on_large(xp: Any, inputs: Any, outputs: Any, shard: Any) -> None:
    if abs(inputs[0]).max() > 1e3:
        raise FloatingPointError("too large")
    xp.exp(inputs[0], out=outputs[0])


@pytest.mark.parametrize("way", ["loop", "threads", "simulated GPUs"])
def test_an_operator_that_promises_nothing_reads_a_copy(way: str) -> None:
    """One is passed for a plan's operator whose block writes before it reads: it has the right cells all the same."""
    p = plan(chain("tanh", "exp"), Mesh(2), fuse=False)
    assert overwriting(p)["exp"] == "x"

    def block(xp: Any, inputs: Any, outputs: Any, shard: Any) -> None:
        outputs[0][...] = 1.0
        for _ in range(3):
            outputs[0][...] = outputs[0] * inputs[0]

    mine = (
        replace(BUILTIN_OPS["exp"], block=block, kernel_forms=None)
        if hasattr(BUILTIN_OPS["exp"], "kernel_forms")
        else (replace(BUILTIN_OPS["exp"], block=block))
    )
    x = RNG.random((64, 48), np.float32)
    with deploy(p, backend=WAYS[way](), ops={"exp": mine}) as placed:
        for _ in range(3):
            np.testing.assert_allclose(placed.run({"x": x}).outputs["y"], np.tanh(x) ** 3, rtol=1e-5)


DOUBLE = """
extern "C" __global__ void twice(const float* x, float* y, int n) {
    int i = threadIdx.x;
    if (i < n) { y[i] = 0; y[i] += 2 * x[i]; }
}
"""


def test_a_kernel_that_is_attached_reads_a_copy() -> None:
    """Nobody promised that it reads a cell before it writes that one; and it does not."""
    p = plan(chain("tanh", "exp", shape=(4, 6)), Mesh(1), fuse=False)
    assert overwriting(p)["exp"] == "x"

    def launch(inputs: Any, outputs: Any, shard: Any) -> Any:
        return (1,), (32,), (inputs[0], outputs[0], np.int32(inputs[0].size))

    x = RNG.random((4, 6), np.float32)
    backend = SimulatedBackend(1, kernels={"exp": RawKernel(DOUBLE, "twice", launch)})
    np.testing.assert_allclose(run(p, {"x": x}, backend=backend).outputs["y"], 2 * np.tanh(x), rtol=1e-6)


def test_deployments_of_one_plan_share_what_is_known(tmp_path: Path) -> None:
    """Of where blocks lie; not of what is held at cuts, as one that carries does not place what another one does."""
    g, carry = leapfrog()
    p = plan(g, Mesh(2), tie=carry, fuse=False)
    feeds = {name: RNG.random((4, 8), np.float32) for name in ("u", "prev")}
    with deploy(p, backend="serial") as one, deploy(p, backend="serial", carry=carry) as two:
        seen = list[list[int]]()
        for _ in range(6):
            for each in (one, two):
                each.run(feeds)
            seen.append([len(device._launches) for each in (one, two) for device in each._session.devices])
        assert all(known == seen[1] for known in seen[1:]), "no more with each run"
        wanted = two.run({}).outputs["new"]
    stage = p.stages[0].node
    with deploy(p, backend="serial") as one:
        one.run(feeds, checkpoints=Checkpoints(tmp_path / "plain", after=[stage]))
    with deploy(p, backend="serial", carry=carry) as two:
        two.run(feeds)
        two.run({}, checkpoints=Checkpoints(tmp_path / "carried", after=[stage]))
    with deploy(p, backend="serial", carry=carry) as two:
        assert two.run({}, resume=tmp_path / "carried").outputs["new"].tobytes() == wanted.tobytes()


# -- what is refused -----------------------------------------------------------------------------------------


def laid(p: ShardPlan, tensor: str, **fields: Any) -> tuple[Buffer, ...]:
    return tuple(replace(b, **fields) if b.tensor == tensor else b for b in p.buffers)


def test_wrong_places_are_refused() -> None:
    p = plan(chain("tanh", "exp"), Mesh(1), fuse=False)
    x, a, b = p.buffers
    assert (a.over, b.over) == (x.id, x.id)
    for fields, told in (
        ({"over": 99}, "lies over 99, no buffer"),
        ({"over": b.id}, "lies over 2, no buffer"),
        ({"over": a.id}, "over the first one of a place"),
        ({"shape": (48, 64)}, "its shape is"),
        ({"offset": 64, "shape": b.shape}, "its offset is 64, that of buffer 0, over which it lies, 0"),
    ):
        wrong = replace(p.with_steps(p.steps, buffers=laid(p, "exp", **fields)), peak_nbytes=(10**6,))
        with pytest.raises(InvalidPlan, match=told):
            check_plan(wrong)


def test_wrong_steps_are_refused() -> None:
    p = plan(chain("tanh", "exp"), Mesh(1), fuse=False)
    steps = list(p.steps)
    kinds = [type(step) for step in steps]
    assert kinds == [Alloc, Copy, Alloc, Compute, Free, Alloc, Compute, Free]
    for order, told in (
        ([0, 1, 2, 3, 5, 6, 4, 7], "of those in that place one must be there"),
        ([0, 1, 2, 5, 3, 4, 6, 7], "of those in that place one must be there"),
        ([0, 1, 4, 2, 3, 5, 6, 7], "of those in that place one must be there"),
        ([0, 1, 2, 3, 4, 5, 7, 6], "is not allocated here"),
    ):
        with pytest.raises(InvalidPlan, match=told):
            check_plan(p.with_steps([steps[k] for k in order]))


FAULTS: dict[str, tuple[Callable[[Graph], Any], str]] = {
    "read afterwards": (
        lambda g: [
            g.output(f(a, name=f.__name__), f.__name__)
            for a in [ops.relu(g.input("x", (6, 4)), name="a")]
            for f in (ops.exp, ops.tanh)
        ],
        "which holds only nothing|in that place one must be there",
    ),
    "promises nothing": (
        lambda g: g.output(ops.softmax(ops.relu(g.input("x", (6, 4)), name="a"), name="exp"), "z"),
        "does not promise to read each cell before it writes",
    ),
    "other operands": (
        lambda g: g.output(
            ops.put_along_axis(
                g.input("y", (6, 4)),
                g.input("at", (6, 4), "int64"),
                ops.relu(g.input("x", (6, 4)), name="a"),
                name="exp",
            ),
            "z",
        ),
        "does not promise to read each cell before it writes",
    ),
    "other cells": (
        lambda g: g.output(ops.exp(ops.relu(g.input("x", (6, 4)), name="a")[::-1], name="exp"), "z"),
        "reads elsewhere than where the result is written",
    ),
    "constants": (
        lambda g: g.output(ops.exp(g.constant("a", np.ones((6, 4), np.float32)), name="exp"), "z"),
        "of constants, which stay as they are",
    ),
    "not read": (
        lambda g: [
            g.output(ops.relu(g.input("x", (6, 4)), name="a"), "w"),
            g.output(ops.exp(g.input("y", (6, 4))[::-1], name="exp"), "z"),
        ],
        "which the step does not read",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_overwriting_what_is_needed_is_refused(fault: str) -> None:
    make, told = FAULTS[fault]
    g = Graph()
    make(g)
    p = apart(plan(g, Mesh(1), fuse=False, expand=False))
    check_plan(p)
    a, b = (next(one for one in p.buffers if one.tensor == name) for name in ("a", "exp"))
    buffers = [replace(one, offset=a.offset, over=a.id) if one is b else one for one in p.buffers]
    steps = [step for step in p.steps if step != Free(a.id)]
    at = next(k for k, step in enumerate(steps) if isinstance(step, Compute) and step.outputs == (b.id,))
    steps.insert(at + 1 if fault != "read afterwards" else len(steps), Free(a.id))
    with pytest.raises(InvalidPlan, match=told):
        check_plan(p.with_steps(steps, buffers=buffers))


def test_others_do_not_write_there() -> None:
    """Only the step that reads what is there last: no copy, and no operator that reads something else."""
    g = Graph()
    a = ops.relu(g.input("x", (6, 4)), name="a")
    g.output(ops.exp(a, name="exp"), "z")
    p = plan(g, Mesh(1), fuse=False)
    made = next(b for b in p.buffers if b.tensor == "exp")
    steps = list(p.steps)
    at = next(k for k, step in enumerate(steps) if isinstance(step, Compute) and step.node == "exp")
    x = next(b for b in p.buffers if b.tensor == "x")
    wrong = [replace(step, tensor="exp", dst=made.id) if isinstance(step, Copy) else step for step in steps]
    assert wrong != steps
    with pytest.raises(InvalidPlan):
        check_plan(p.with_steps(wrong))
    twice = [*steps[: at + 1], steps[at], *steps[at + 1 :]]
    with pytest.raises(InvalidPlan, match=r"which holds only nothing|holds already"):
        check_plan(p.with_steps(twice))
    assert x.over is None and isinstance(BUILTIN_OPS["exp"].block, CellBlock)
