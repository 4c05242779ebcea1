"""The CuPy backend on simulated devices and, with `-m gpu`, on a real one; NumPy's backend is the truth."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from numpy.typing import NDArray

from tapestry_exec import (
    DIFFERENCE_BOUND,
    BackendUnavailable,
    CupyBackend,
    KernelError,
    NoDevicePath,
    NumpyBackend,
    RawKernel,
    StepFailed,
    deploy,
    run,
)
from tapestry_exec.cuda import device as cupy_device
from tapestry_exec.cuda import lanes, payloads
from tapestry_exec.run.backends import OrderingFault
from tapestry_exec.simulated import namespace as simulated
from tapestry_plan import HOST, Graph, Mesh, ShardPlan, concat, load_onnx, plan
from tapestry_plan.ir import BUILTIN_OPS
from tapestry_plan.ops import bernoulli, dropout, linear, matmul, relu, uniform
from tapestry_sets import Region, pad
from tests.cutting import Case, close
from tests.exec.run.test_operators_sharded import FIRST, graph_of
from tests.exec.run.test_trace import Trace, halos
from tests.exec.run.test_trace import check as check_trace
from tests.graph_recipes import Recipe, built, recipes

Feeds = dict[str, Any]
MODELS = Path(__file__).resolve().parents[2] / "models"


def make_simulated(count: int = 2, **options: Any) -> CupyBackend:
    return CupyBackend(cupy=simulated.cupy(count), **{"poison": True, **options})


def make_real(count: int = 1, **options: Any) -> CupyBackend:
    return CupyBackend(**{"poison": True, **options})


@pytest.fixture(params=["simulated", pytest.param("real", marks=pytest.mark.gpu)])
def make(request: pytest.FixtureRequest) -> Callable[..., CupyBackend]:
    return {"simulated": make_simulated, "real": make_real}[request.param]


def exactly(p: ShardPlan, inputs: Feeds, backend: CupyBackend) -> None:
    """The same outputs as on NumPy, and the same bytes."""
    wanted, found = run(p, inputs), run(p, inputs, backend=backend)
    for name, array in wanted.outputs.items():
        np.testing.assert_array_equal(found.outputs[name], array)
    assert found.nbytes_by_link == wanted.nbytes_by_link
    assert (found.nbytes_placed, found.peak_nbytes) == (wanted.nbytes_placed, wanted.peak_nbytes)


def moving(devices: int = 2, size: int = 12) -> tuple[ShardPlan, Feeds]:
    """Rows made on each device, all of them read by columns: strided copies between all devices."""
    g = Graph()
    x, w = g.input("x", (size, size)), g.input("w", (size, size))
    y = relu(x + w)
    g.output(matmul(y, y.T), "z")
    g.output(concat([y[::2], y[1::2]], 0).T + w, "v")
    fix = {node.name: {node_axis(g, node.name): devices} for node in g.order()}
    rng = np.random.default_rng(3)
    feeds = {name: rng.integers(-4, 5, (size, size)).astype(np.float32) for name in ("x", "w")}
    return plan(g, Mesh(devices), fix=fix, placement="single"), feeds


def node_axis(g: Graph, name: str) -> str:
    return next(axis.name for axis in g.signature(name).axes if axis.size > 1)


# -- results ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("devices", [1, 2, 3, 4])
def test_strided_copies_between_devices(make: Callable[..., CupyBackend], devices: int) -> None:
    p, feeds = moving(devices)
    assert devices == 1 or p.nbytes_moved
    exactly(p, feeds, make())


def test_a_backend_runs_plans_one_after_the_other_on_the_same_memory(make: Callable[..., CupyBackend]) -> None:
    backend = make()
    for devices, size in ((2, 12), (3, 8), (2, 20), (2, 12)):
        exactly(*moving(devices, size), backend)


def test_several_logical_devices_on_one_gpu_and_several_gpus() -> None:
    p, feeds = moving(4)
    for devices in ([0, 0, 0, 0], [0, 1, 0, 1], [1, 1, 0, 0]):
        exactly(p, feeds, make_simulated(2, devices=devices))


def test_devices_of_the_mesh_in_this_process_beside_gpus() -> None:
    p, feeds = moving(3)
    for devices in (["cpu", 0, 1], [0, "cpu", 0], ["cpu", "cpu", "cpu"]):
        exactly(p, feeds, make_simulated(2, devices=devices))


def test_large_blocks_are_moved_as_they_lie(make: Callable[..., CupyBackend]) -> None:
    """From 64 KiB on a contiguous block is not packed: the arena is read while the next steps run."""
    g = Graph()
    x = g.input("x", (256, 256))
    y = x + 1
    g.output(matmul(y, y), "z")
    names = [node.name for node in g.order()]
    p = plan(g, Mesh(2), fix={name: {node_axis(g, name): 2} for name in names}, placement="single")
    assert p.nbytes_moved >= cupy_device.DIRECT_NBYTES
    feeds = {"x": np.random.default_rng(1).integers(-3, 4, (256, 256)).astype(np.float32)}
    exactly(p, feeds, make())


def test_views_that_are_not_strided_copies(make: Callable[..., CupyBackend]) -> None:
    g = Graph()
    x = g.input("x", (6, 10))
    g.output(relu(x.T.reshape(4, 15)), "y")
    g.output(relu(pad(x.take([3, 1, 1, 5], 0), [(1, 1), (0, 2)], "edge")), "z")
    p = plan(g, Mesh(2))
    exactly(p, {"x": np.arange(-30, 30, dtype=np.float32).reshape(6, 10)}, make())


REDUCTIONS = ("sum", "max", "prod", "mean", "var", "argmax")
PARTS = 3


def reduced(fan_in: int | None) -> ShardPlan:
    """Rows of 24 numbers reduced in three parts of eight; a power of two, so that means of integers are exact."""
    g = Graph()
    x = g.input("x", (8, 8 * PARTS))
    for op in REDUCTIONS:
        g.output(g.op(op, x, axis=1 if op == "argmax" else (1,), keepdims=False, name=op), op)
    fix = {name: {next(a.name for a in g.signature(name).axes if a.kind == "reduction"): PARTS} for name in g.nodes}
    return plan(g, Mesh(PARTS), fix=fix, placement="single", **({} if fan_in is None else {"fan_in": fan_in}))


def small_integers() -> NDArray[Any]:
    """Of which any eight have a sum, a product, a mean and squares about it that float32 holds, in whatever order."""
    return np.random.default_rng(0).choice(np.array([-3, -2, -1, 1, 2, 3], np.float32), (8, 8 * PARTS))


@pytest.mark.parametrize("fan_in", [None, 2])
def test_partial_results_are_merged_in_their_order(make: Callable[..., CupyBackend], fan_in: int | None) -> None:
    """From leaves that are exact, whatever their order; what is left is the fixed tree above them."""
    p, x = reduced(fan_in), small_integers()
    turned = x.reshape(8, PARTS, 8)[:, :, ::-1].reshape(x.shape)
    for name, array in run(p, {"x": x}).outputs.items():
        assert name == "argmax" or array.tobytes() == run(p, {"x": turned}).outputs[name].tobytes(), name
    exactly(p, {"x": x}, make())


@pytest.mark.parametrize("fan_in", [None, 2])
def test_partial_results_of_rounded_leaves(make: Callable[..., CupyBackend], fan_in: int | None) -> None:
    """Sums inside of a leaf have another order on a GPU; what only compares has none."""
    p, x = reduced(fan_in), np.random.default_rng(0).standard_normal((8, 8 * PARTS)).astype(np.float32)
    wanted, found = run(p, {"x": x}), run(p, {"x": x}, backend=make())
    for name, array in wanted.outputs.items():
        if name in ("max", "argmax"):
            np.testing.assert_array_equal(found.outputs[name], array)
        else:
            apart = np.abs(found.outputs[name] - array).max()
            assert apart <= DIFFERENCE_BOUND["float32"] * np.abs(array).max(), name
    assert found.nbytes_by_link == wanted.nbytes_by_link


@pytest.mark.parametrize("factory", [make_simulated, pytest.param(make_real, marks=pytest.mark.gpu)])
@given(recipe=recipes(), devices=st.integers(1, 4), seed=st.integers(0, 9))
def test_random_graphs(factory: Callable[..., CupyBackend], recipe: Recipe, devices: int, seed: int) -> None:
    g = built(recipe)
    if not g.outputs:
        return
    rng = np.random.default_rng(seed)
    feeds = {name: rng.integers(-3, 4, (3, 3)).astype(np.float32) for name in ("x", "y")}
    exactly(plan(g, Mesh(devices)), feeds, factory())


def feeds_of(g: Graph) -> dict[str, Any]:
    """Random inputs; whole numbers, which are tokens, are small."""
    rng = np.random.default_rng(0)
    return {
        name: rng.standard_normal(tensor.shape).astype(tensor.dtype)
        if np.dtype(tensor.dtype).kind == "f"
        else rng.integers(0, 2, tensor.shape).astype(tensor.dtype)
        for name, tensor in g.stored.items()
        if tensor.kind == "input"
    }


@pytest.mark.heavy(2)
@pytest.mark.parametrize("model", ["resnet", "bert", "gpt2"])
def test_models_agree_with_the_unsharded_run_on_numpy(make: Callable[..., CupyBackend], model: str) -> None:
    pytest.importorskip("onnx", reason="the models are ONNX files")
    g = load_onnx(str(MODELS / f"{model}.onnx"))
    feeds, p = feeds_of(g), plan(g, Mesh(2))
    found = run(p, feeds, backend=make(), verify=True)
    assert found.nbytes_by_link == p.nbytes_by_link and found.peak_nbytes == p.peak_nbytes


@pytest.mark.parametrize("model", ["resnet", *(pytest.param(m, marks=pytest.mark.heavy) for m in ("bert", "gpt2"))])
def test_models_have_the_same_bits_step_by_step_and_as_a_graph(make: Callable[..., CupyBackend], model: str) -> None:
    """The first run of a deployment is plain, the second one recorded, the third one launched; BERT's and GPT-2's
    check indices, so that none is recorded."""
    pytest.importorskip("onnx", reason="the models are ONNX files")
    g = load_onnx(str(MODELS / f"{model}.onnx"))
    feeds, p = feeds_of(g), plan(g, Mesh(2))
    wanted = run(p, feeds, backend=make(1)).outputs
    with deploy(p, backend=make()) as placed:
        for _ in range(3):
            found = placed.run(feeds)
            for name, array in wanted.items():
                assert found.outputs[name].tobytes() == array.tobytes(), name
            assert found.nbytes_by_link == p.nbytes_by_link and found.nbytes_copied == p.nbytes_copied
        assert bool(placed.why_not_recorded) == (model != "resnet")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("parts", [1, 3])
def test_random_numbers_have_the_same_bits_in_every_sharding(
    make: Callable[..., CupyBackend], dtype: str, parts: int
) -> None:
    g = Graph()
    g.output(uniform(g, (9, 14), seed=5, dtype=dtype, name="u"), "u")
    g.output(bernoulli(g, (9, 14), 0.25, seed=5, name="b"), "b")
    g.output(dropout(g.input("x", (9, 14), dtype), 0.3, seed=2, name="d"), "d")
    fix = {name: {next(a.name for a in g.signature(name).axes if a.size == 9): parts} for name in g.nodes}
    exactly(plan(g, Mesh(parts), fix=fix, placement="single"), {"x": np.ones((9, 14), dtype)}, make())


@pytest.mark.parametrize("dtype", ["int8", "int64", "uint32", "float16", "float32", "float64", "bool", "complex64"])
def test_copies_of_every_size_of_item(make: Callable[..., CupyBackend], dtype: str) -> None:
    g = Graph()
    x = g.input("x", (12, 10), dtype)
    one, two = concat([x[::3, 1::2].T, x[1::3, ::-2].T], 1), x.reshape(6, 20)[::-1, 3:].reshape(17, 6)
    g.output(g.op("where", g.input("if", (5, 8), "bool"), one, one, name="y"), "y")
    g.output(g.op("where", g.input("or", (17, 6), "bool"), two, two, name="z"), "z")
    p = plan(g, Mesh(3), fix={"y": {"i1": 3}, "z": {"i0": 3}}, layout={"x": {0: 3}})
    assert p.nbytes_moved
    values = np.random.default_rng(4).integers(0, 2 if dtype == "bool" else 100, (12, 10)).astype(dtype)
    exactly(p, {"x": values, "if": np.ones((5, 8), bool), "or": np.zeros((17, 6), bool)}, make())


@pytest.mark.heavy
@pytest.mark.parametrize("case", FIRST, ids=lambda case: case.op)
def test_each_operator_with_each_axis_cut(make: Callable[..., CupyBackend], case: Case) -> None:
    g, arrays = graph_of(case)
    for axis in g.signature("it").axes:
        parts = min(3, axis.size)
        if parts < 2:
            continue
        p = plan(g, Mesh((parts,)), fix={"it": {axis.name: parts}}, placement="single")
        wanted, found = run(p, arrays), run(p, arrays, backend=make(fallback=True))
        for name, array in wanted.outputs.items():
            if array.dtype.kind == "f":
                close(found.outputs[name], array, 2e-3 if array.dtype == np.float16 else 2e-5)
            else:
                np.testing.assert_array_equal(found.outputs[name], array)


# -- memory -------------------------------------------------------------------------------------------------


def test_a_run_with_little_memory_spills_to_the_host(make: Callable[..., CupyBackend]) -> None:
    g = Graph()
    x = g.input("x", (64, 64))
    kept = [relu(x + k) for k in range(6)]
    total = kept[0]
    for tensor in kept[1:]:
        total = total + tensor
    g.output(total, "y")
    p = plan(g, Mesh(1), fuse=False)
    feeds = {"x": np.random.default_rng(2).integers(-5, 5, (64, 64)).astype(np.float32)}
    memory = max(p.peak_nbytes) // 2
    wanted, found = run(p, feeds, memory_nbytes=memory), run(p, feeds, memory_nbytes=memory, backend=make())
    assert sum(found.nbytes_spilled) == sum(wanted.nbytes_spilled) > 0
    np.testing.assert_array_equal(found.outputs["y"], run(p, feeds).outputs["y"])


# -- traces -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("devices", [None, [0, 1, 0, 1], [0, "cpu", 1, "cpu"]])
def test_a_trace_has_the_devices_own_times(devices: Any, tmp_path: Path) -> None:
    p, feeds = halos()
    backend = make_simulated(2, devices=devices, capture=devices is None)
    for k in range(3):
        found = run(p, feeds, backend=backend, trace=tmp_path / f"{k}.json")
        assert len(found.timeline) == len(p.steps)
        check_trace(Trace(tmp_path / f"{k}.json"), found)
    assert backend.spans is not None and len(backend.times(0.0)) == len(backend.spans) > 0
    run(p, feeds, backend=backend)
    assert backend.spans is None, "times cost events, so they are taken where a trace is asked for"


def test_what_fails_after_the_last_step_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    p, feeds = rectified()
    backend = make_simulated()

    def fails() -> None:
        raise backend.cupy.cuda.runtime.CUDARuntimeError("an illegal memory access was encountered")

    monkeypatch.setattr(backend, "synchronize", fails)
    with pytest.raises(StepFailed, match=r"illegal memory access .*; CupyBackend\(blocking=True\) .* names the one"):
        run(p, feeds, backend=backend)


# -- graphs of the driver -----------------------------------------------------------------------------------


def test_a_plan_is_recorded_in_its_second_run_and_launched_from_then_on(make: Callable[..., CupyBackend]) -> None:
    backend = make(capture=True)
    p, feeds = moving(3)
    other = {name: array[::-1] * 2 for name, array in feeds.items()}
    q, more = moving(2, 16)
    for plan_, given_ in ((p, feeds), (p, feeds), (p, other), (q, more), (p, feeds), (q, more), (q, more), (p, other)):
        exactly(plan_, given_, backend)
    assert not run(p, feeds, backend=backend).timeline, "its steps were not issued one by one"


def test_what_was_fetched_from_a_graph_stays_when_it_is_launched_again(make: Callable[..., CupyBackend]) -> None:
    backend = make(capture=True)
    p, feeds = moving(2)
    found = [run(p, {name: array * k for name, array in feeds.items()}, backend=backend) for k in range(1, 5)]
    for k, result in enumerate(found, start=1):
        wanted = run(p, {name: array * k for name, array in feeds.items()})
        np.testing.assert_array_equal(result.outputs["z"], wanted.outputs["z"])


def test_a_plan_that_cannot_be_recorded_runs_step_by_step(make: Callable[..., CupyBackend]) -> None:
    """A gather waits for its indices, to say which is out of range: no graph holds that."""
    g = Graph()
    g.output(g.op("take", g.input("x", (6, 4)), g.input("at", (5,), "int64"), axis=0), "y")
    p, backend = plan(g, Mesh(2)), make(capture=True)
    rng = np.random.default_rng(3)
    for _ in range(4):
        feeds = {"x": rng.standard_normal((6, 4)).astype(np.float32), "at": rng.integers(0, 6, 5)}
        exactly(p, feeds, backend)
        assert run(p, feeds, backend=backend).timeline, "its steps were issued one by one"
    exactly(*moving(2), backend)


def test_a_plan_with_products_of_matrices_is_recorded(make: Callable[..., CupyBackend]) -> None:
    """CuPy refuses its own calls of cuBLAS while a graph is captured; the products that blocks get are ours."""
    backend = make(capture=True)
    p, feeds = moving(2)
    for k in range(1, 4):
        exactly(p, {name: array * k for name, array in feeds.items()}, backend)
    assert not run(p, feeds, backend=backend).timeline, "its steps were issued one by one"


# -- kernels of users ---------------------------------------------------------------------------------------


SCALE = """
extern "C" __global__ void scaled(const float* x, float* y, int n, float by) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] > 0 ? by * x[i] : 0;
}
"""


def scaled(inputs: Any, outputs: Any, shard: Any) -> Any:
    (x,), (y,) = inputs, outputs
    if not (x.flags.c_contiguous and y.flags.c_contiguous):
        return None
    return ((x.size + 31) // 32,), (32,), (x, y, np.int32(x.size), np.float32(3))


def rectified(rows: int = 9) -> tuple[ShardPlan, Feeds]:
    g = Graph()
    g.output(relu(g.input("x", (rows, 5))), "y")
    p = plan(g, Mesh(2), fix={node.name: {"i0": 2} for node in g.order()}, placement="single")
    return p, {"x": np.linspace(-1, 1, rows * 5, dtype=np.float32).reshape(rows, 5)}


def test_a_kernel_of_ones_own_computes_an_operator(make: Callable[..., CupyBackend]) -> None:
    p, feeds = rectified()
    found = run(p, feeds, backend=make(kernels={"relu": RawKernel(SCALE, "scaled", scaled)}))
    np.testing.assert_array_equal(found.outputs["y"], np.maximum(feeds["x"], 0) * np.float32(3))


def test_a_kernel_of_ones_own_computes_its_part_of_a_block(make: Callable[..., CupyBackend]) -> None:
    g = Graph()
    g.output(-relu(g.input("x", (9, 5)) * 2), "y")
    p, x = plan(g, Mesh(2)), np.linspace(-1, 1, 45, dtype=np.float32).reshape(9, 5)
    assert len(p.fused) == 2
    backend = make(kernels={"relu": RawKernel(SCALE, "scaled", scaled)})
    for _ in range(2):
        found = run(p, {"x": x}, backend=backend)
        np.testing.assert_array_equal(found.outputs["y"], -np.maximum(2 * x, 0) * np.float32(3))
    exactly(p, {"x": x}, make())


def test_a_kernel_that_does_not_apply_leaves_the_work_to_the_block_function(make: Callable[..., CupyBackend]) -> None:
    p, feeds = rectified()
    kernel = RawKernel(SCALE, "scaled", lambda inputs, outputs, shard: None)
    exactly(p, feeds, make(kernels={"relu": kernel}))


# -- planted faults: the checker sees what the backend would do without one of its waits ----------------------


def faulty() -> tuple[ShardPlan, Feeds]:
    return moving(2, 16)


def no_wait(self: lanes.Lane, marks: Any) -> None:
    """A lane that waits for nobody."""


def forgetful(self: lanes.Ground, start: int, stop: int) -> list[Any]:
    return []


def without_sync(self: payloads.Pinned, size: int, dtype: Any) -> payloads.Payload:
    nbytes = size * dtype.itemsize
    slot = self._ring.take(nbytes)
    return payloads.Payload(
        self._memory.ptr + slot.offset,
        nbytes,
        dtype,
        HOST,
        slot.uses,
        self._bytes[slot.offset : slot.offset + nbytes].view(dtype),
    )


@pytest.mark.parametrize(
    ("place", "name", "fault"),
    [
        (lanes.Lane, "after", no_wait),
        (lanes.Ground, "take", forgetful),
        (payloads.Pinned, "take", without_sync),
        (lanes.Uses, "read", lambda self, mark: None),
        (lanes.Uses, "wrote", lambda self, mark: None),
    ],
    ids=["no lane waits", "no memory remembers", "pinned memory is not waited for", "reads unseen", "writes unseen"],
)
def test_a_missing_wait_is_found(monkeypatch: pytest.MonkeyPatch, place: Any, name: str, fault: Any) -> None:
    p, feeds = faulty()
    run(p, feeds, backend=make_simulated())
    monkeypatch.setattr(payloads, "RING_NBYTES", 0)
    run(p, feeds, backend=make_simulated())
    monkeypatch.setattr(place, name, fault)
    with pytest.raises((StepFailed, OrderingFault)) as raised:
        run(p, feeds, backend=make_simulated())
    assert isinstance(raised.value, OrderingFault) or isinstance(raised.value.__cause__, OrderingFault)


def test_live_buffers_that_overlap_are_found() -> None:
    """A plan whose document was edited so that two buffers share bytes is refused; the checker finds it too."""
    p, feeds = faulty()
    live = sorted((b for b in p.buffers if b.device == 0 and b.within is None), key=lambda b: b.offset)
    moved = p.with_steps(buffers=tuple(with_offset(b, live[0].offset) if b.id == live[-1].id else b for b in p.buffers))
    backend = make_simulated()
    devices = backend.open([1 << 16] * 2)
    with pytest.raises(OrderingFault, match=r"are given to buffer .* while buffer .* lives there"):
        for buffer in moved.buffers:
            if buffer.within is None:
                devices[buffer.device].alloc(buffer, buffer.shape)
    backend.close(devices)
    assert feeds


def with_offset(buffer: Any, offset: int) -> Any:
    return type(buffer)(**{**{f: getattr(buffer, f) for f in buffer.__struct_fields__}, "offset": offset})


def test_the_memory_of_freed_buffers_is_not_used() -> None:
    p, _ = faulty()
    backend = make_simulated()
    devices = backend.open([1 << 16] * 2)
    buffer = p.buffers[0]
    device: Any = devices[buffer.device]
    device.alloc(buffer, buffer.shape)
    block = device._blocks[buffer.id]
    device.free(buffer)
    device._blocks[buffer.id] = block
    with pytest.raises(OrderingFault, match=r"freed|not live|no live"):
        device.pack(buffer, (Region.full(buffer.shape, buffer.start),))


# -- wrong input --------------------------------------------------------------------------------------------


def test_gpus_that_are_not_there() -> None:
    p, feeds = rectified()
    with pytest.raises(BackendUnavailable, match=r"device 1 of the mesh is to lie on GPU 5; .* has GPUs 0 to 1"):
        run(p, feeds, backend=make_simulated(2, devices=[0, 5]))
    with pytest.raises(ValueError, match="3 devices are given, the plan's mesh has 2"):
        run(p, feeds, backend=make_simulated(2, devices=[0, 1, 0]))


@pytest.mark.parametrize(
    ("devices", "error", "message"),
    [
        ("0", TypeError, "devices must be .*, not '0' of type str; give a sequence of GPU numbers"),
        ([True], TypeError, r"devices\[0\] must be .*, not the truth value True"),
        ([0, -1], ValueError, r"devices\[1\] is -1; give a GPU's number"),
        (["gpu"], ValueError, r"devices\[0\] must be one of \['cpu'\], not 'gpu'"),
    ],
)
def test_devices_that_are_none(devices: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        CupyBackend(devices)


def test_a_machine_without_gpus() -> None:
    p, feeds = rectified()
    with pytest.raises(BackendUnavailable, match="no GPU"):
        run(p, feeds, backend=make_simulated(0))


def test_cupy_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "cupy", None)
    p, feeds = rectified()
    with pytest.raises(BackendUnavailable, match=r"needs CuPy, .* install tapestry-tensor\[cuda13\] or "):
        run(p, feeds, backend="cupy")


def test_a_machine_without_a_driver() -> None:
    """CuPy itself, where it is installed and finds nothing to run on."""
    cupy = pytest.importorskip("cupy")
    if cupy.is_available():
        pytest.skip("there is a GPU")
    p, feeds = rectified()
    steps: list[int] = []
    with pytest.raises(
        BackendUnavailable, match=r"no GPU can be used: .*install NVIDIA's driver|no GPU on this machine"
    ):
        run(p, feeds, backend="cupy", progress=lambda done, total, name: steps.append(done))
    assert not steps


def test_kernels_that_do_not_compile_or_are_not_there() -> None:
    p, feeds = rectified()
    steps: list[int] = []
    with pytest.raises(KernelError, match=r"'scaled' does not compile(.|\n)*4"):
        run(
            p,
            feeds,
            backend=make_simulated(kernels={"relu": RawKernel(SCALE.replace("int n,", "int,"), "scaled", scaled)}),
            progress=lambda done, total, name: steps.append(done),
        )
    with pytest.raises(KernelError, match="no kernel 'scale'"):
        run(p, feeds, backend=make_simulated(kernels={"relu": RawKernel(SCALE, "scale", scaled)}))
    assert not steps
    with pytest.raises(TypeError, match=r"kernels\['relu'\] must be a RawKernel, not"):
        CupyBackend(kernels={"relu": SCALE})  # type: ignore[dict-item]
    with pytest.raises(TypeError, match="source and entry must be text"):
        RawKernel(SCALE, 3, scaled)  # type: ignore[arg-type]


def hosted() -> tuple[ShardPlan, Feeds]:
    def block(xp: Any, inputs: Any, outputs: Any, shard: Any) -> None:
        assert xp is np and type(inputs[0]) is np.ndarray
        outputs[0][...] = np.sort(inputs[0].ravel()).reshape(inputs[0].shape)

    own = replace(BUILTIN_OPS["relu"], name="own", block=block, host_only=True)
    g = Graph()
    g.output(g.op(own, g.input("x", (4, 6)) + 1), "y")
    return plan(g, Mesh(2)), {"x": np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32)}


def test_operators_without_a_path_are_named_and_run_on_the_host_if_told_to(make: Callable[..., CupyBackend]) -> None:
    p, feeds = hosted()
    with pytest.raises(NoDevicePath, match=r"operators \['own'\] have block functions that need NumPy"):
        run(p, feeds, backend=make())
    exactly(p, feeds, make(fallback=True))


def test_too_little_memory_on_a_gpu_is_told_before_the_first_step(monkeypatch: pytest.MonkeyPatch) -> None:
    p, feeds = rectified()
    backend = make_simulated()
    monkeypatch.setattr(backend.cupy.cuda.runtime, "memGetInfo", lambda: (100, 1000))
    with pytest.raises(BackendUnavailable, match="GPU 0 has 100 B free of 1,000 B, the arenas and rings on it need"):
        run(p, feeds, backend=backend)


def test_a_failing_step_closes_the_devices_and_the_next_run_is_right(make: Callable[..., CupyBackend]) -> None:
    def fails(xp: Any, inputs: Any, outputs: Any, shard: Any) -> None:
        raise ArithmeticError("as planned")

    backend = make()
    p, feeds = rectified()
    for capture in (False, True):
        backend.capture = capture
        for _ in range(2):
            with pytest.raises(StepFailed, match="as planned"):
                run(p, feeds, backend=backend, ops={"relu": replace(BUILTIN_OPS["relu"], block=fails)})
            exactly(*moving(2), backend)
    exactly(p, feeds, backend)


def test_numpy_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(NumpyBackend(), NumpyBackend)
    g = Graph()
    g.output(linear(g.input("x", (4, 3)), g.input("w", (3, 2))), "y")
    feeds = {"x": np.ones((4, 3), np.float32), "w": np.ones((3, 2), np.float32)}
    np.testing.assert_array_equal(run(plan(g, Mesh(2)), feeds).outputs["y"], np.full((4, 2), 3, np.float32))
