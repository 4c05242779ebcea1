"""Deployments: constants are placed once, state stays in place, and each run is as a run by itself."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tapestry_exec import (
    Deployment,
    NumpyBackend,
    ResultMismatch,
    StepFailed,
    TransferMismatch,
    deploy,
    evaluate,
    run,
)
from tapestry_exec.numpy.backend import NumpyDevice
from tapestry_exec.run import deployment
from tapestry_exec.run.interpreter import Interpreter
from tapestry_exec.simulated import shim
from tapestry_plan import Graph, Mesh, ShardPlan, concat, gradient, least_memory, load_onnx, ops, plan
from tapestry_plan.ir import BUILTIN_OPS
from tapestry_plan.ops import matmul, relu
from tapestry_plan.steps import HOST, Alloc, Copy, Free, align, spill
from tests.ways_of_running import COUNTED, Threads

WAYS: list[Any] = ["serial", Threads()]
MODELS = Path(__file__).parents[2] / "models"
RNG = np.random.default_rng(0)


def weighted(devices: int = 3) -> tuple[ShardPlan, dict[str, np.ndarray]]:
    """Weights as they are, turned around, and joined with others; a bias that two operators read."""
    g = Graph()
    x = g.input("x", (12, 8))
    w = g.constant("w", RNG.random((6, 8), np.float32))
    more = g.constant("more", RNG.random((6, 8), np.float32))
    bias = g.constant("bias", RNG.random((12,), np.float32))
    y = relu(matmul(x, concat([w, more], 0).T, name="one") + bias, name="act")
    g.output(y * bias, "y")
    return plan(g, Mesh((devices,)), fix={"one": {"n": devices}}), {"x": RNG.random((12, 8), np.float32)}


def placed_of(p: ShardPlan, kind: str) -> list[int]:
    """Bytes that a plan's steps place of inputs or of constants, by device."""
    buffers, out = {b.id: b for b in p.buffers}, [0] * p.mesh.size
    for step in p.steps:
        placed = isinstance(step, Copy) and step.src == HOST and step.piece is None
        if placed and p.graph.stored[step.tensor].kind == kind:
            size = sum(region.size for region in step.regions)
            out[buffers[step.dst].device] += size * np.dtype(buffers[step.dst].dtype).itemsize
    return out


@pytest.mark.parametrize("way", WAYS, ids=["loop", "threads"])
def test_constants_are_placed_once(way: Any) -> None:
    p, inputs = weighted()
    with deploy(p, backend=way) as placed:
        assert list(placed.nbytes_placed) == placed_of(p, "constant") and any(placed.nbytes_placed)
        for k in range(4):
            feeds = {"x": inputs["x"] + k}
            found, wanted = placed.run(feeds, verify=True), run(p, feeds, backend="serial")
            assert found.outputs["y"].tobytes() == wanted.outputs["y"].tobytes()
            assert list(found.nbytes_placed) == placed_of(p, "input")
            assert found.peak_nbytes == placed.peak_nbytes
            for name in set(COUNTED) - {"nbytes_placed", "peak_nbytes"}:
                assert getattr(found, name) == getattr(wanted, name)
        kinds = {event.kind for event in found.timeline if event.node not in ("x", "(place)")}
        assert {event.node for event in found.timeline} & {"w", "more", "bias"} == set() and "compute" in kinds


def test_what_only_constants_are_copied_into_stays_too() -> None:
    """The weights are joined and turned around once: no run copies them."""
    p, inputs = weighted()
    views = [step for step in p.steps if isinstance(step, Copy) and step.piece is not None and step.tensor != "x"]
    with deploy(p, backend="serial") as placed:
        copies = [event for event in placed.run(inputs).timeline if event.kind == "copy" and event.node == "one"]
    assert views and not [event for event in copies if not event.phases]


def test_memory_is_what_stays_and_the_rest_of_the_arena() -> None:
    """Counted by the devices, and here from the plan's buffers and who writes to them."""
    p, inputs = weighted()
    with deploy(p, backend="serial") as placed:
        found = placed.run(inputs)
    stays = [b for b in p.buffers if b.tensor in ("w", "more", "bias") or (b.tensor in p.graph.selections)]
    held = [sum(align(b.nbytes) for b in stays if b.device == d) for d in range(3)]
    buffers, now, most = {b.id: b for b in p.buffers}, [0] * 3, [0] * 3
    for step in p.steps:
        if isinstance(step, Alloc | Free) and buffers[step.buffer] not in stays:
            one = buffers[step.buffer]
            assert one.within is None
            is_shared = one.over is not None if isinstance(step, Alloc) else one.id in {b.over for b in p.buffers}
            now[one.device] += 0 if is_shared else align(one.nbytes) * (1 if isinstance(step, Alloc) else -1)
            most[one.device] = max(most[one.device], now[one.device])
    assert list(found.peak_nbytes) == [a + b for a, b in zip(held, most, strict=True)]
    assert found.peak_nbytes == p.peak_nbytes, "the places of what stays are not there twice"


def training_step() -> tuple[Graph, dict[str, str], dict[str, np.ndarray]]:
    g = Graph()
    x, w, v = g.input("x", (8, 6)), g.input("w", (6, 4)), g.input("v", (4, 2))
    loss = ops.sum((relu(x @ w) @ v) ** 2, keepdims=True)
    for tensor, slope, label in zip((w, v), gradient(loss, [w, v]), ("new_w", "new_v"), strict=True):
        g.output(tensor - slope * g.constant(f"rate_{label}", np.full((1, 1), 0.01, np.float32)), label)
    shapes = {"x": (8, 6), "w": (6, 4), "v": (4, 2)}
    return g, {"new_w": "w", "new_v": "v"}, {name: RNG.random(shape, np.float32) for name, shape in shapes.items()}


@pytest.mark.parametrize("devices", [1, 2, 4])
@pytest.mark.parametrize("way", WAYS, ids=["loop", "threads"])
def test_state_stays_in_place(way: Any, devices: int) -> None:
    """Ten steps of training, against ten runs that hand the weights on through the host."""
    g, carry, feeds = training_step()
    p = plan(g, Mesh((devices,)), tie=carry)
    state = dict(feeds)
    with deploy(p, backend=way, carry=carry) as placed:
        for k in range(10):
            found = placed.run(feeds if k == 0 else {"x": feeds["x"]})
            wanted = run(p, state, backend="serial")
            assert all(found.outputs[name].tobytes() == wanted.outputs[name].tobytes() for name in carry)
            state |= {name: wanted.outputs[label] for label, name in carry.items()}
            if k:
                assert found.nbytes_placed == tuple(placed_of_x(p))
        again = placed.run(feeds)
    wanted = run(p, feeds, backend="serial")
    assert again.outputs["new_w"].tobytes() == wanted.outputs["new_w"].tobytes(), "given values count"


def placed_of_x(p: ShardPlan) -> list[int]:
    others = replace(p, graph=p.graph)
    buffers, out = {b.id: b for b in others.buffers}, [0] * p.mesh.size
    for step in p.steps:
        if isinstance(step, Copy) and step.src == HOST and step.tensor == "x":
            out[buffers[step.dst].device] += 4 * sum(region.size for region in step.regions)
    return out


def test_a_state_that_a_failed_run_left_must_be_given_again() -> None:
    g, carry, feeds = training_step()
    p = plan(g, Mesh((2,)), tie=carry)
    fails = [False]

    def block(xp: Any, inputs: Any, outputs: Any, shard: Any) -> None:
        if fails[0]:
            raise OSError("the wire is loose")
        BUILTIN_OPS["relu"].block(xp, inputs, outputs, shard)

    with deploy(p, backend="serial", carry=carry, ops={"relu": replace(BUILTIN_OPS["relu"], block=block)}) as placed:
        placed.run(feeds)
        fails[0] = True
        with pytest.raises(StepFailed, match="the wire is loose"):
            placed.run({"x": feeds["x"]})
        fails[0] = False
        with pytest.raises(ValueError, match=r"inputs: '[vw]' is missing"):
            placed.run({"x": feeds["x"]})
        found = placed.run(feeds)
    np.testing.assert_allclose(found.outputs["new_w"], evaluate(g, feeds)["new_w"], rtol=1e-5)


@pytest.mark.parametrize("fault", [ResultMismatch, TransferMismatch, OSError, KeyboardInterrupt])
def test_a_run_that_was_found_wrong_behind_its_steps_left_no_state(
    fault: type[BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Values, counts and the trace are looked at when new weights are there: nobody was given these."""
    g, carry, feeds = training_step()
    place = {ResultMismatch: "verify_outputs", OSError: "write_trace"}.get(fault, "compare_counts")
    with deploy(plan(g, Mesh((2,)), tie=carry), carry=carry) as placed:
        with monkeypatch.context() as patch, pytest.raises(fault, match="wrong"):
            patch.setattr(deployment, place, mock.Mock(side_effect=fault("wrong")))
            placed.run(feeds, verify=True, trace=tmp_path / "trace.json")
        with pytest.raises(ValueError, match=r"inputs: '[vw]' is missing"):
            placed.run({"x": feeds["x"]})
        placed.run(feeds)
        placed.run({"x": feeds["x"]})


def test_networks_give_the_same_bits_deployed() -> None:
    g = load_onnx(MODELS / "resnet.onnx")
    p = plan(g, Mesh((4,)))
    rng = np.random.default_rng(3)
    feeds = {s.name: rng.standard_normal(s.shape, np.float32) for s in g.stored.values() if s.kind == "input"}
    wanted = run(p, feeds, backend="serial")
    for way in WAYS:
        with deploy(p, backend=way) as placed:
            for found in (placed.run(feeds), placed.run(feeds)):
                assert all(found.outputs[k].tobytes() == wanted.outputs[k].tobytes() for k in wanted.outputs)


# -- wrong input --------------------------------------------------------------------------------------------


OTHERS = ["processes", "onnxruntime", "simulated"]


@pytest.mark.parametrize("way", [*WAYS, *OTHERS], ids=["loop", "threads", *OTHERS])
def test_outputs_that_nobody_asks_for_stay_on_their_devices(way: Any) -> None:
    """Nor are they assembled; state goes on as it does where all is brought, and counts are the same."""
    if way == "simulated" and shim.found_compiler() is None:
        pytest.skip("no C++ compiler")
    if way == "onnxruntime":
        pytest.importorskip("onnxruntime")
    g, carry, feeds = training_step()
    p, later = plan(g, Mesh((2,)), tie=carry), {"x": feeds["x"]}
    (state, *_), (asked, *_) = carry, [label for label in g.outputs if label not in carry] or list(carry)[1:]
    with (
        deploy(p, backend=way, carry=carry) as every,
        deploy(p, backend=way, carry=carry, outputs=[asked]) as some,
        deploy(p, backend=way, carry=carry, outputs=()) as none,
    ):
        for k in range(5):  # from the third on by heart
            given_ = feeds if k == 0 else later
            wanted, found, nothing = (placed.run(given_) for placed in (every, some, none))
            assert list(found.outputs) == [asked] and not nothing.outputs
            assert found.outputs[asked].tobytes() == wanted.outputs[asked].tobytes()
            for name in COUNTED:
                assert getattr(found, name) == getattr(nothing, name) == getattr(wanted, name), name
        assert some.run(feeds, verify=True).difference.keys() == {asked}
        with pytest.raises(ValueError, match=f"outputs: output '{state}' is not brought to the caller; have deploy"):
            some.run(later, outputs={state: None})


def test_no_cell_of_an_output_that_nobody_asks_for_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    g, carry, feeds = training_step()
    taken, take = list[int](), Interpreter.take
    monkeypatch.setattr(
        Interpreter, "take", lambda mine, number, *at: (taken.append(number), take(mine, number, *at))[1]
    )
    p = plan(g, Mesh((2,)), tie=carry)
    for asked in ([], list(carry)[:1], list(g.outputs)):
        taken.clear()
        with deploy(p, backend="serial", carry=carry, outputs=asked) as placed:
            placed.run(feeds)
        assert sorted(taken) == sorted(n for out in p.outputs if out.name in asked for n, _ in out.blocks)


def test_outputs_to_bring_are_labels() -> None:
    p, _ = weighted()
    with pytest.raises(ValueError, match=r"outputs: the graph has no output 'z'; known outputs?: 'y'"):
        deploy(p, outputs=["z"])
    for wrong in ("y", 3, {"y": None}):
        with pytest.raises(TypeError, match=r"deploy: outputs .* give labels of outputs, as \['loss'\]"):
            deploy(p, outputs=wrong)  # type: ignore[arg-type]


def test_what_cannot_be_carried_is_refused() -> None:
    g, carry, _ = training_step()
    p = plan(g, Mesh((2,)), tie=carry)
    for wrong, message in (
        ({"new": "w"}, r"carry: the graph has no output 'new'; known outputs: 'new_w', 'new_v'"),
        ({"new_w": "u"}, r"carry: the graph has no input 'u'"),
        ({"new_w": "v"}, r"carry: output 'new_w' is float32 of shape \(6, 4\), input 'v' float32 of shape \(4, 2\)"),
        ({"new_w": "rate_new_w"}, r"carry: the graph has no input 'rate_new_w'"),
    ):
        with pytest.raises(ValueError, match=message):
            deploy(p, carry=wrong)
    h = Graph()
    h.output(relu(h.input("x", (4, 4)), name="act"), "y")
    apart = plan(h, Mesh((2,)), layout={"x": {0: 2}, "y": {1: 2}})
    with pytest.raises(ValueError, match=r"output 'y' does not lie where input 'x' begins on device 0; plan with tie="):
        deploy(apart, carry={"y": "x"})
    k = Graph()
    k.output(k.input("x", (4, 4)).T, "y")
    with pytest.raises(ValueError, match=r"carry: output 'y' is a view"):
        deploy(plan(k, Mesh((2,))), carry={"y": "x"})
    k.output(k.input("z", (4, 4)), "same")
    with pytest.raises(
        ValueError, match=r"carry: output 'same' is input 'z' as it is; give one that an operator makes"
    ):
        deploy(plan(k, Mesh((2,))), carry={"same": "x"})
    with pytest.raises(ValueError, match=r"several outputs take the place of input 'x'"):
        m = Graph()
        x = m.input("x", (4, 4))
        m.output(relu(x), "a"), m.output(ops.tanh(x), "b")
        deploy(plan(m, Mesh((2,))), carry={"a": "x", "b": "x"})


def test_a_deployment_that_is_closed_or_busy_says_so() -> None:
    p, inputs = weighted()
    placed = deploy(p, backend="serial")
    placed.close()
    placed.close()
    with pytest.raises(RuntimeError, match="run: the deployment is closed; deploy the plan again"):
        placed.run(inputs)
    begun, goes_on = threading.Event(), threading.Event()

    def block(xp: Any, ins: Any, outs: Any, shard: Any) -> None:
        begun.set()
        assert goes_on.wait(20)
        BUILTIN_OPS["relu"].block(xp, ins, outs, shard)

    with deploy(p, backend="serial", ops={"relu": replace(BUILTIN_OPS["relu"], block=block)}) as placed:
        first = threading.Thread(target=placed.run, args=(inputs,))
        first.start()
        assert begun.wait(20)
        with pytest.raises(RuntimeError, match="the deployment runs in another thread; deploy the plan once for each"):
            placed.run(inputs)
        goes_on.set()
        first.join()
        placed.run(inputs)


def test_carried_inputs_cannot_be_verified_unseen() -> None:
    g, carry, feeds = training_step()
    with deploy(plan(g, Mesh((2,)), tie=carry), backend="serial", carry=carry) as placed:
        placed.run(feeds, verify=True)
        with pytest.raises(ValueError, match=r"verify=True needs the values of all inputs; 'v' is carried"):
            placed.run({"x": feeds["x"]}, verify=True)


def test_a_backend_on_which_nothing_stays_is_refused() -> None:
    class Forgetful(NumpyBackend):
        name = "forgetful"
        keeps = False

    with pytest.raises(ValueError, match="deploy: nothing stays on devices of backend 'forgetful'; use run"):
        deploy(weighted()[0], backend=Forgetful())


def test_constants_that_are_placed_otherwise_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    p, _ = weighted()
    whole = NumpyBackend.place
    monkeypatch.setattr(NumpyBackend, "place", lambda self, array, *rest: whole(self, array, *rest).repeat(2))
    monkeypatch.setattr(NumpyDevice, "unpack", lambda *_: None)
    with pytest.raises(TransferMismatch, match=r"device 0 got [\d,]+ B of constants, [\d,]+ B were predicted"):
        deploy(p, backend="serial")


def test_plans_that_spill_keep_what_can_stay() -> None:
    p, inputs = weighted()
    wanted = run(p, inputs, backend="serial")
    with deploy(spill(p, max(least_memory(p))), backend="serial") as placed:
        assert isinstance(placed, Deployment)
        for _ in range(2):
            assert placed.run(inputs).outputs["y"].tobytes() == wanted.outputs["y"].tobytes()


def test_an_input_that_is_placed_again_counts_as_spilled() -> None:
    g = Graph()
    x = g.input("x", (64, 64))
    t = relu(x)
    u = matmul(t, t.T)
    g.output(matmul(u + matmul(u, t), x), "y")
    p, feeds = plan(g, Mesh((1,))), {"x": RNG.random((64, 64), np.float32)}
    wanted = run(p, feeds, memory_nbytes=49152, backend="serial")
    with deploy(p, memory_nbytes=49152, backend="serial") as placed:
        found = placed.run(feeds)
    assert any(found.nbytes_spilled) and found.nbytes_spilled == wanted.nbytes_spilled
    assert found.outputs["y"].tobytes() == wanted.outputs["y"].tobytes()


def test_what_stays_keeps_the_memory_given() -> None:
    """Eight products with weights of 16 KiB: one after the other they need 48 KiB."""
    g = Graph()
    t = g.input("x", (64, 64))
    for k in range(8):
        t = matmul(t, g.constant(f"w{k}", np.full((64, 64), 2.0**-k, np.float32)))
    g.output(t, "y")
    p = plan(g, Mesh((1,)))
    with pytest.raises(
        ValueError, match=r"deploy: with the constants that stay device 0 holds 163,840 bytes, and may h"
    ):
        deploy(p, memory_nbytes=50_000)
    deploy(p, memory_nbytes=400_000).close()


def test_a_deployment_is_closed_when_its_run_has_ended() -> None:
    p, inputs = weighted()
    begun = threading.Event()

    def block(xp: Any, ins: Any, outs: Any, shard: Any) -> None:
        begun.set()
        BUILTIN_OPS["relu"].block(xp, ins, outs, shard)

    placed, found = deploy(p, backend="serial", ops={"relu": replace(BUILTIN_OPS["relu"], block=block)}), []
    other = threading.Thread(target=lambda: found.append(placed.run(inputs)))
    other.start()
    assert begun.wait(20)
    placed.close()
    assert found
    other.join()


def test_what_is_spilled_cannot_be_carried() -> None:
    g, carry, _ = training_step()
    p = plan(g, Mesh((1,)), tie=carry)
    with pytest.raises(
        ValueError, match=r"carry: input '[wv]' or output 'new_[wv]' is spilled; give the plan more memory"
    ):
        deploy(p, carry=carry, memory_nbytes=max(least_memory(p)))


@given(st.integers(0, 2**31), st.sampled_from([2, 3, 4]), st.sampled_from(["free", "single"]))
@example(0, 2, "single")
@settings(max_examples=20, deadline=None)
def test_random_graphs_deployed(seed: int, devices: int, placement: Any) -> None:
    """Constants as weights, read as they are, reversed, in part, or joined with inputs; some go to other devices."""
    rng = np.random.default_rng(seed)
    g = Graph()
    t = g.input("x", (6, 8))
    for k in range(int(rng.integers(1, 4))):
        c = g.constant(f"c{k}", rng.random((6, 8), np.float32))
        view = [c, c[::-1], c.reshape(8, 6).T, concat([c[:3], t[3:]], 0)][int(rng.integers(4))]
        t = relu(t + view) if rng.random() < 0.5 else matmul(t, view.T) @ c
    g.output(t, "y")
    p = plan(g, Mesh((devices,)), placement=placement)
    with deploy(p, backend=Threads() if seed % 2 else "serial") as placed:
        for k in range(2):
            feeds = {"x": rng.random((6, 8), np.float32) + k}
            assert placed.run(feeds).outputs["y"].tobytes() == run(p, feeds, backend="serial").outputs["y"].tobytes()
