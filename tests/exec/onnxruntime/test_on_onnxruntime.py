"""Blocks in sessions of ONNX Runtime: NumPy's numbers up to rounding, and the bytes of every other way of running."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tapestry_exec import BackendUnavailable, RunResult, deploy, difference, run
from tapestry_exec.onnxruntime import OnnxruntimeBackend, tuning
from tapestry_exec.onnxruntime.backend import OnnxruntimeDevice
from tapestry_plan import Graph, Mesh, ShardPlan, load_onnx, ops, plan
from tapestry_plan.ir import BUILTIN_OPS, CellBlock
from tapestry_plan.onnx import before_softmax, light_model
from tests.exec.run.test_every_kind_of_plan import make_graph, make_plan
from tests.exec.run.test_same_bits import of_floats

COUNTED = ("nbytes_by_link", "nbytes_received", "nbytes_placed", "nbytes_copied", "peak_nbytes", "flop")


@pytest.fixture(autouse=True)
def small_blocks_too(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(tuning, "MIN_POINTS", 1)
    yield


class Watched(OnnxruntimeBackend):
    """A backend that remembers its devices."""

    def __init__(self) -> None:
        super().__init__()
        self.devices: list[Any] = []

    def make_device(self, nbytes: int) -> Any:
        self.devices.append(super().make_device(nbytes))
        return self.devices[-1]

    def close(self, devices: Any) -> None:
        self.in_sessions = self.count()
        super().close(devices)

    def count(self) -> tuple[int, int]:
        """Steps in sessions, and all."""
        calls = [known.calls for device in self.devices for known in device._launches.values()]
        shared = sum(len(device._parts) for device in self.devices)
        # NumPy's block functions are listed as calls with their arguments; a session's run has none.
        return shared + sum(not isinstance(each[0], partial) for each in calls), shared + len(calls)


def assert_alike(found: RunResult, wanted: RunResult, wide: float = 1e-5) -> None:
    for name, array in wanted.outputs.items():
        assert (found.outputs[name].dtype, found.outputs[name].shape) == (array.dtype, array.shape)
        assert difference(found.outputs[name], array) <= wide, name
    for name in COUNTED:
        assert getattr(found, name) == getattr(wanted, name), name


def run_both(p: ShardPlan, feeds: dict[str, np.ndarray], wide: float = 1e-5) -> tuple[int, int]:
    """Run a plan both ways, twice and deployed; how many steps were in sessions, and of how many."""
    backend, wanted = Watched(), run(p, feeds, backend="serial")
    for _ in range(2):
        assert_alike(run(p, feeds, backend=backend), wanted, wide)
    with deploy(p, backend="serial") as there, deploy(p, backend=backend) as here:
        assert_alike(here.run(feeds), there.run(feeds), wide)
        assert_alike(here.run(feeds), there.run(feeds), wide)
    return backend.in_sessions


@pytest.mark.heavy(2)
@pytest.mark.parametrize("devices", [1, 3])
@pytest.mark.parametrize("name", ["bert", "gpt2", "resnet"])
def test_networks_give_the_same(name: str, devices: int) -> None:
    g = load_onnx(f"tests/models/{name}.onnx")
    mine, every = run_both(plan(g, Mesh((devices,))), of_floats(g), 1e-4)
    assert mine > every / 4, "most blocks that are not turned have sessions"


@pytest.mark.heavy(2)
def test_a_network_of_depthwise_convolutions_gives_the_same() -> None:
    model = light_model("shufflenet")
    g = load_onnx(model, outputs=before_softmax(model))
    mine, every = run_both(plan(g, Mesh((2,))), of_floats(g), 1e-4)
    assert mine > every * 3 / 4


@pytest.mark.heavy(3)
@pytest.mark.parametrize("seed", range(12))
def test_plans_of_many_kinds_give_the_same(seed: int) -> None:
    rng = random.Random(seed)
    p = make_plan(make_graph(rng), rng)[0]
    run_both(p, of_floats(p.graph, seed), 1e-4)


@pytest.mark.heavy(2)
@given(
    st.sampled_from([1, 2, 4]),
    st.sampled_from([1, 2, 3]),
    st.integers(1, 4),
    st.sampled_from(["n", "c", "h", "w", "ci"]),
    st.integers(0, 2),
    st.integers(1, 2),
    st.booleans(),
)
@example(2, 2, 3, "c", 1, 1, True)  # parts of several groups
@example(2, 3, 2, "ci", 1, 1, True)  # channels of two groups, with others between them
@settings(max_examples=max(20, settings.default.max_examples // 5), deadline=None)
def test_convolutions_in_parts(
    groups: int, width: int, devices: int, axis: str, pads: int, strides: int, bias: bool
) -> None:
    """Whatever axis is cut, also through groups, with halos and padding, and where parts are merged."""
    g, rng = Graph(), np.random.default_rng(0)
    x = ops.relu(g.input("x", (2, 2 * groups, 9, 8)), name="before")
    w = g.constant("w", rng.standard_normal((width * groups, 2, 3, 3)).astype(np.float32))
    b = [g.constant("b", rng.standard_normal(width * groups).astype(np.float32))] if bias else []
    y = ops.conv(x, w, *b, groups=groups, pads=pads, strides=strides, name="conv")
    y = ops.max_pool(y, 2, pads=1, name="most") + ops.average_pool(y, 2, pads=1, name="mean")
    g.output(y, "y")
    size = dict(zip(("n", "c", "h", "w", "ci"), g.signature("conv").index_shape, strict=False))[axis]
    run_both(plan(g, Mesh((devices,)), fix={"conv": {axis: min(devices, size)}}), of_floats(g), 1e-4)


def test_means_at_the_edge_are_over_the_cells_that_are_there() -> None:
    for counted in (False, True):
        g = Graph()
        g.output(ops.average_pool(g.input("x", (1, 2, 12, 8)), 3, pads=1, count_include_pad=counted, name="mean"), "y")
        mine, _ = run_both(plan(g, Mesh((3,)), fix={"mean": {"h": 3}}), of_floats(g))
        assert (mine > 0) == counted


def test_other_numbers_are_left_to_numpy() -> None:
    for dtype in ("int64", "float16", "float64"):
        g = Graph()
        x = g.input("x", (6, 4), dtype)
        g.output(ops.maximum(x * x, x), "y")
        p = plan(g, Mesh((2,)))
        feeds = {"x": np.arange(24).reshape(6, 4).astype(dtype)}
        backend = Watched()
        assert run(p, feeds, backend=backend).outputs["y"].tolist() == run(p, feeds).outputs["y"].tolist()
        assert backend.in_sessions[0] == 0


def test_what_is_carried_is_read_anew() -> None:
    """Weights that change between runs lie on the devices as constants do, and are none."""
    g = Graph()
    w, x = g.input("w", (8, 8)), g.constant("x", np.full((8, 8), 0.5, np.float32))
    g.output(ops.tanh(ops.linear(w, x)) + w, "new")
    p = plan(g, Mesh((2,)), tie={"new": "w"})
    first = {"w": np.linspace(-1, 1, 64, dtype=np.float32).reshape(8, 8)}
    with (
        deploy(p, backend="serial", carry={"new": "w"}) as there,
        deploy(p, backend=Watched(), carry={"new": "w"}) as here,
    ):
        for feeds in (first, {}, {}, first):
            assert_alike(here.run(feeds), there.run(feeds))


def test_a_session_knows_constants_by_what_they_are() -> None:
    """Two operators of one form with other weights have sessions of their own."""
    g, rng = Graph(), np.random.default_rng(1)
    x = g.input("x", (8, 8))
    for k in range(3):
        x = ops.relu(ops.linear(x, g.constant(f"w{k}", rng.standard_normal((8, 8)).astype(np.float32))))
    g.output(x, "y")
    mine, every = run_both(plan(g, Mesh((2,))), of_floats(g))
    assert mine == every > 0


def test_weights_of_another_deployment_are_not_taken_for_these() -> None:
    backend, feeds = Watched(), {"x": np.eye(8, dtype=np.float32)}
    for value in (2, 3):
        g = Graph()
        g.output(ops.linear(g.input("x", (8, 8)), g.constant("w", np.full((8, 8), value, np.float32))), "y")
        with deploy(plan(g, Mesh((1,))), backend=backend) as placed:
            assert (placed.run(feeds).outputs["y"] == value).all()
    assert backend.in_sessions[0] > 0 and not backend._sessions, "weights end with their deployment"


@pytest.mark.parametrize("word", ["relu", "matmul"])
def test_operators_of_one_s_own_are_run_as_they_are(word: str) -> None:
    """Also where they stand in for others of that name, before and after, and inside of a block."""
    block = CellBlock(lambda xp, outs, ins, attrs: xp.multiply(ins[0], -1, out=outs[0]))
    other = (lambda xp, ins, outs, shard: outs[0].fill(7)) if word == "matmul" else block
    mine = {word: replace(BUILTIN_OPS[word], block=other, work=None)}
    g = Graph()
    g.output(ops.relu(g.input("x", (8, 8)) @ g.input("w", (8, 8))), "y")
    p, backend = plan(g, Mesh((1,))), Watched()
    feeds = {name: array - 0.3 for name, array in of_floats(g).items()}
    for asked in (None, mine, None, mine):
        assert_alike(run(p, feeds, backend=backend, ops=asked), run(p, feeds, backend="serial", ops=asked))


@pytest.mark.parametrize("axis", ["h", "w", "n", "c"])
def test_means_of_a_part_are_parts_of_the_mean(axis: str) -> None:
    g = Graph()
    g.output(ops.global_average_pool(ops.relu(g.input("x", (2, 4, 8, 6))), name="mean"), "y")
    names = [one.name for one in g.signature("mean").axes]
    axis = {"h": names[-2], "w": names[-1]}.get(axis, axis)
    run_both(plan(g, Mesh((2,)), fix={"mean": {axis: 2}}), of_floats(g))


def test_remainders_of_fractions_are_numpy_s() -> None:
    g = Graph()
    g.output(g.input("x", (8, 8)) % g.input("y", (8, 8)), "z")
    p, feeds = plan(g, Mesh((2,))), {"x": np.full((8, 8), -5, np.float32), "y": np.full((8, 8), 3, np.float32)}
    assert (run(p, feeds, backend=Watched()).outputs["z"] == 1).all()


def test_devices_are_onnxruntime_s_whatever_was_there_before() -> None:
    backend = Watched()
    for rows in (8, 400, 8):
        g = Graph()
        g.output(ops.softmax(g.input("x", (rows, 16))), "y")
        p, feeds = plan(g, Mesh((2,))), {"x": np.random.default_rng(0).random((rows, 16)).astype(np.float32)}
        assert_alike(run(p, feeds, backend=backend), run(p, feeds, backend="serial"))
    assert all(type(device) is OnnxruntimeDevice for device in backend.devices)


def test_without_the_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    g = Graph()
    g.output(ops.relu(g.input("x", (4,))), "y")
    with pytest.raises(BackendUnavailable, match=r"needs the package of this name.*pip install"):
        run(plan(g, Mesh((2,))), {"x": np.ones(4, np.float32)}, backend="onnxruntime")
