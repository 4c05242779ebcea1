"""What one run of the CuPy backend leaves for the next: recordings, memory, what is current; and arguments."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from msgspec.structs import replace

from tapestry_exec import BackendUnavailable, CupyBackend, NoDevicePath, RawKernel, StepFailed, deploy, run
from tapestry_exec.cuda import recording
from tapestry_exec.cuda.namespace import NotRecordable
from tapestry_exec.simulated import namespace as simulated
from tapestry_exec.simulated import shim
from tapestry_plan import Graph, Mesh, ShardPlan, plan
from tapestry_plan.ir import BUILTIN_OPS, Op
from tapestry_plan.ops import exp, relu

Feeds = dict[str, Any]
BY = """
extern "C" __global__ void times(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = BY * x[i];
}
"""


def launched(inputs: Any, outputs: Any, shard: Any) -> Any:
    (x, *_), (y,) = inputs, outputs
    return ((x.size + 31) // 32,), (32,), (x, y, np.int32(x.size))


def kernel(by: int) -> RawKernel:
    return RawKernel(BY, "times", launched, ("-std=c++17", f"-DBY={by}"))


def rows(n: int = 4, make: Callable[[Any], Any] = relu) -> tuple[ShardPlan, Feeds]:
    g = Graph()
    g.output(make(g.input("x", (n, 6))), "y")
    return plan(g, Mesh(2)), {"x": np.arange(-n, n * 5, dtype=np.float32).reshape(n, 6)}


def right(p: ShardPlan, feeds: Feeds, backend: CupyBackend, **options: Any) -> None:
    wanted, found = run(p, feeds, **options), run(p, feeds, backend=backend, **options)
    for name, array in wanted.outputs.items():
        np.testing.assert_array_equal(found.outputs[name], array)


# -- recordings ---------------------------------------------------------------------------------------------


@pytest.mark.heavy(2)
def test_one_array_may_be_several_inputs_of_a_run_that_is_recorded() -> None:
    g = Graph()
    x, y = g.input("x", (4, 6)), g.input("y", (4, 6))
    g.output(x * 2 - y, "z")
    g.output(x + g.constant("c", np.full((4, 6), 7, np.float32)), "v")
    p, backend = plan(g, Mesh(2)), CupyBackend(cupy=simulated.cupy(2), capture=True)
    a, b = np.ones((4, 6), np.float32), np.full((4, 6), 5, np.float32)
    c = g.stored["c"].data
    for one, two in ((a, a), (a, a), (a, b), (b, a), (c, c), (a, b)):
        right(p, {"x": one, "y": two}, backend)
    assert not run(p, {"x": a, "y": b}, backend=backend).timeline, "it was recorded"


def test_other_operators_are_not_what_was_recorded() -> None:
    def block(xp: Any, inputs: Any, outputs: Any, shard: Any) -> None:
        outputs[0][...] = -inputs[0]

    p, feeds = rows()
    backend = CupyBackend(cupy=simulated.cupy(2), capture=True)
    other = {"relu": replace(BUILTIN_OPS["relu"], block=block, work=None)}
    for ops in (None, None, None, other, other, None):
        right(p, feeds, backend, ops=ops)


def test_a_run_that_could_not_begin_records_no_other_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cupy = simulated.cupy(2)
    backend = CupyBackend(cupy=cupy, capture=True)
    (p, feeds), (q, more) = rows(4), rows(8)
    right(p, feeds, backend)
    backend._kept = []
    with monkeypatch.context() as patch:
        patch.setattr(cupy.cuda.runtime, "memGetInfo", lambda: (1, 1))
        with pytest.raises(BackendUnavailable):
            run(p, feeds, backend=backend)
    found = run(q, more, backend=backend, trace=tmp_path / "t.json")
    assert len(found.timeline) == len(q.steps)
    np.testing.assert_array_equal(found.outputs["y"], np.maximum(more["x"], 0))


def chain(depth: int) -> tuple[ShardPlan, Feeds]:
    """A chain of `exp`, whose results overwrite what they read."""
    g = Graph()
    x = g.input("x", (64,)) * 2
    for _ in range(depth):
        x = exp(x)
    g.output(x, "y")
    return plan(g, Mesh(1), fuse=False), {"x": np.arange(64, dtype=np.float32)}


def test_copies_for_kernels_that_overwrite_what_they_read_outlive_other_plans() -> None:
    """A graph names their memory: the pool must not give it to others, though the steps of other plans came between."""
    backend = CupyBackend(cupy=simulated.cupy(1), capture=True, kernels={"exp": kernel(3)})
    recorded, *others = chain(1), chain(3), chain(2)
    for p, feeds in (recorded, recorded, others[0], others[0], others[1], recorded):
        found = run(p, feeds, backend=backend).outputs["y"]
        times = 3 ** sum(node.op == "exp" for node in p.graph.nodes.values())
        np.testing.assert_array_equal(found, 2 * times * feeds["x"])
    assert backend.recorded(recorded[0]) is not None


def twice_twice(xp: Any, inputs: Any, outputs: Any, shard: Any) -> None:
    once = xp.multiply(inputs[0], 2)
    xp.add(once, once, out=outputs[0])


def test_copies_for_kernels_are_not_in_memory_that_another_device_still_uses() -> None:
    """Both devices of the mesh are on one GPU: what one has freed, its stream may still write."""
    g = Graph()
    own = Op("own", relu.op.signature, twice_twice)
    g.output(exp(g.op(own, g.input("x", (128,)))), "y")
    p = plan(g, Mesh(2), fuse=False, fix={name: {"i0": 2} for name in g.nodes})
    x = np.arange(128, dtype=np.float32)
    backend = CupyBackend(cupy=simulated.cupy(1), kernels={"exp": kernel(3)})
    np.testing.assert_array_equal(run(p, {"x": x}, backend=backend).outputs["y"], 12 * x)


def test_index_tables_outlive_the_devices_that_made_them() -> None:
    """A plan between the first run and the recorded one needs larger arenas: tables belong to the GPU."""
    cupy = simulated.cupy(1)
    backend = CupyBackend(cupy=cupy, capture=True)
    p, feeds = rows(6, lambda x: relu(x.T.reshape(4, 9)))
    q, more = rows(64)
    for plan_, given_ in ((p, feeds), (q, more), (p, feeds), (p, feeds)):
        right(plan_, given_, backend)
    assert not run(p, feeds, backend=backend).timeline


@pytest.mark.parametrize("error", [NotImplementedError, MemoryError, RuntimeError])
def test_what_no_graph_holds_runs_step_by_step(error: type[Exception]) -> None:
    """As CuPy refuses cuBLAS while a stream is captured: every later run is right, and none is recorded."""
    cupy = simulated.cupy(2)

    def block(xp: Any, inputs: Any, outputs: Any, shard: Any) -> None:
        if any(stream.capture is not None for stream in cupy.cuda.Stream.machine.streams.values()):
            raise error("is currently unsupported")
        outputs[0][...] = inputs[0] + 1

    own = replace(BUILTIN_OPS["relu"], name="own", block=block, work=None)
    p, feeds = rows(4, lambda x: x.graph.op(own, x))
    backend = CupyBackend(cupy=cupy, capture=True)
    for _ in range(4):
        right(p, feeds, backend)
        assert run(p, feeds, backend=backend).timeline
    assert not any(stream.capture is not None for stream in cupy.cuda.Stream.machine.streams.values())
    right(*rows(8), backend)


BRINGING: dict[str, Callable[[Any, Any], Any]] = {
    "a list of rows": lambda xp, x: x[[1, 0]],
    "rows of NumPy's": lambda xp, x: x[np.array([1, 0])],
    "a list that is taken": lambda xp, x: xp.take(x, [1, 0], axis=0),
    "nine arrays, whose addresses are brought": lambda xp, x: xp.concatenate([x[1:], x[:1], *[x[:0]] * 7]),
}


@pytest.mark.parametrize("what", BRINGING)
def test_what_cupy_itself_brings_from_the_host_is_not_recorded(what: str) -> None:
    """It is staged in memory that a graph would read again, when it is another one's."""

    def block(xp: Any, inputs: Any, outputs: Any, shard: Any) -> None:
        outputs[0][...] = BRINGING[what](xp, inputs[0])

    cupy = simulated.cupy(1)
    own = replace(BUILTIN_OPS["relu"], name="own", block=block, work=None)
    g = Graph()
    g.output(g.op(own, g.input("x", (2, 6))), "y")
    p, x = plan(g, Mesh(1)), np.arange(12, dtype=np.float32).reshape(2, 6)
    with deploy(p, backend=CupyBackend(cupy=cupy)) as placed:
        for k in range(4):
            np.testing.assert_array_equal(placed.run({"x": x + k}).outputs["y"], x[::-1] + k)
        assert "of the host's to a GPU while the run is recorded" in placed.why_not_recorded
    assert len(cupy.cuda.alloc_pinned_memory(8)) == 8


def test_other_threads_have_pinned_memory_while_a_run_is_recorded() -> None:
    cupy, found = simulated.cupy(1), list[int]()

    def block(xp: Any, inputs: Any, outputs: Any, shard: Any) -> None:
        other = threading.Thread(target=lambda: found.append(len(cupy.cuda.alloc_pinned_memory(8))))
        other.start()
        other.join()
        outputs[0][...] = inputs[0]

    own = replace(BUILTIN_OPS["relu"], name="own", block=block, work=None)
    g = Graph()
    g.output(g.op(own, g.input("x", (6,))), "y")
    p, backend = plan(g, Mesh(1)), CupyBackend(cupy=cupy, capture=True)
    for _ in range(3):
        run(p, {"x": np.ones(6, np.float32)}, backend=backend)
    assert found == [8, 8], "the third run is the graph's"
    assert backend.recorded(p) is not None


def test_pinned_memory_is_refused_to_all_threads_that_record() -> None:
    """CuPy has one allocator for all: who begins or ends in between lets nobody else have memory."""
    cupy = simulated.cupy(1)

    def make() -> recording.Recording:
        return recording.Recording(cupy, [mock.MagicMock()], None)

    def is_refused() -> bool:
        try:
            return len(cupy.cuda.alloc_pinned_memory(8)) != 8
        except NotRecordable:
            return True

    with ThreadPoolExecutor(1) as other:
        first, within, second = make(), make(), other.submit(make).result()
        for turn, does in enumerate((first.begin, second.begin, within.begin, within.end, second.abandon, first.end)):
            other.submit(does).result() if turn in (1, 4) else does()
            assert (is_refused(), other.submit(is_refused).result()) == (turn < 5, 0 < turn < 4), turn


@pytest.mark.parametrize("where", ["begin", "launch"])
def test_a_recording_that_is_interrupted_is_no_other_runs(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As by Ctrl-C while its first launch is waited for: the next runs, of the same plan and of others, are right."""
    cupy = simulated.cupy(3)
    backend, real = CupyBackend(cupy=cupy, capture=True), recording.Recording.begin
    (p, feeds), (q, more) = rows(4), rows(8)
    right(p, feeds, backend)

    def begin(one: recording.Recording) -> None:
        real(one)
        raise KeyboardInterrupt

    def launch(one: recording.Recording) -> None:
        one.is_launched = True
        one._graph.launch(one.origin.stream)
        raise KeyboardInterrupt

    with cupy.cuda.Device(2), monkeypatch.context() as patch:
        patch.setattr(recording.Recording, where, {"begin": begin, "launch": launch}[where])
        with pytest.raises(KeyboardInterrupt):
            run(p, feeds, backend=backend)
        assert cupy.cuda.Device().id == 2 and len(cupy.cuda.alloc_pinned_memory(8)) == 8
    for _ in range(3):
        right(q, more, backend)
        right(p, feeds, backend)
    assert backend.recorded(p) is not None and backend.recorded(q) is not None


def test_what_fails_recorded_or_not_is_recorded_later(tmp_path: Path) -> None:
    """An error of a block is no reason to record nothing, also where a run with a trace comes next."""
    fails = [False]

    def block(xp: Any, inputs: Any, outputs: Any, shard: Any) -> None:
        if fails[0]:
            raise FloatingPointError("too hot")
        outputs[0][...] = inputs[0]

    own = replace(BUILTIN_OPS["relu"], name="own", block=block, work=None)
    p, feeds = rows(4, lambda x: x.graph.op(own, x))
    backend = CupyBackend(cupy=simulated.cupy(2), capture=True)
    right(p, feeds, backend)
    fails[0] = True
    with pytest.raises(StepFailed, match="too hot"):
        run(p, feeds, backend=backend)
    fails[0] = False
    run(p, feeds, backend=backend, trace=tmp_path / "t.json")
    assert not backend.why_not_recorded(p)
    right(p, feeds, backend)
    assert backend.recorded(p) is not None


def test_a_launch_as_a_whole_that_fails_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    p, feeds = rows()
    backend = CupyBackend(cupy=simulated.cupy(2), capture=True)
    for _ in range(3):
        right(p, feeds, backend)

    def fails(*given: Any) -> None:
        raise RuntimeError("an illegal memory access was encountered")

    with monkeypatch.context() as patch:
        patch.setattr(recording.Recording, "launch", fails)
        with pytest.raises(StepFailed, match=r"launched as a whole, failed: RuntimeError: an illegal .*blocking=True"):
            run(p, feeds, backend=backend)
    right(p, feeds, backend)


def test_progress_is_told_of_a_launch_as_a_whole() -> None:
    p, feeds = rows()
    backend = CupyBackend(cupy=simulated.cupy(2), capture=True)
    for _ in range(3):
        told: list[tuple[int, int]] = []
        run(p, feeds, backend=backend, progress=lambda done, total, name, told=told: told.append((done, total)))
    assert told == [(len(p.steps), len(p.steps))]


# -- several runs -------------------------------------------------------------------------------------------


def test_a_run_within_a_run_is_refused_by_name() -> None:
    (p, feeds), (q, more) = rows(4), rows(8)
    backend = CupyBackend(cupy=simulated.cupy(2))
    with pytest.raises(
        RuntimeError, match=r"a run of this CupyBackend is under way, .* give the other one a CupyBackend"
    ):
        run(p, feeds, backend=backend, progress=lambda *told: run(q, more, backend=backend))
    run(p, feeds, backend=backend, progress=lambda *told: run(q, more, backend=CupyBackend(cupy=simulated.cupy(1))))
    right(p, feeds, backend)


@pytest.mark.skipif(shim.found_compiler() is None, reason="no C++ compiler")
def test_threads_take_turns() -> None:
    p, feeds = rows(8)
    backend = CupyBackend(cupy=simulated.cupy(2), capture=True)
    found: list[Any] = []

    def work(k: int) -> None:
        try:
            x = feeds["x"] + k
            found.append(np.array_equal(run(p, {"x": x}, backend=backend).outputs["y"], np.maximum(x, 0)))
        except Exception as error:
            found.append(error)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 8


@pytest.mark.heavy(2)
def test_memory_that_does_not_fit_any_more_is_free_before_there_is_more(monkeypatch: pytest.MonkeyPatch) -> None:
    cupy = simulated.cupy(1)

    def live() -> int:
        return sum(block.nbytes for block in cupy.checker.blocks if block.device == 0 and block.is_live)

    room = 90_000_000
    monkeypatch.setattr(cupy.cuda.runtime, "memGetInfo", lambda: (room - live(), room))
    backend = CupyBackend(cupy=cupy)
    for n in (100_000, 200_000, 300_000):
        p, feeds = rows(n)
        assert max(p.peak_nbytes) < room
        np.testing.assert_array_equal(run(p, feeds, backend=backend).outputs["y"], np.maximum(feeds["x"], 0))


def test_the_device_that_was_current_is_current_again() -> None:
    cupy = simulated.cupy(3)
    p, feeds = rows()
    with cupy.cuda.Device(2):
        right(p, feeds, CupyBackend(cupy=cupy))
        assert cupy.cuda.Device().id == 2


# -- kernels and operators ----------------------------------------------------------------------------------


@pytest.mark.heavy(2)
def test_one_source_with_other_options_is_another_kernel() -> None:
    g = Graph()
    x = g.input("x", (4, 6))
    g.output(relu(x), "a")
    g.output(g.op("negative", x), "b")
    p, x_ = plan(g, Mesh(2)), np.ones((4, 6), np.float32)
    found = run(
        p, {"x": x_}, backend=CupyBackend(cupy=simulated.cupy(2), kernels={"relu": kernel(2), "negative": kernel(3)})
    )
    assert (found.outputs["a"] == 2).all() and (found.outputs["b"] == 3).all()


def test_split_reductions_with_states_run_on_the_host() -> None:
    g = Graph()
    x = g.input("x", (8, 6))
    for name in ("var", "logsumexp"):
        g.output(g.op(name, x, axis=(0,), keepdims=False, name=name), name)
    fix = {name: {next(a.name for a in g.signature(name).axes if a.kind == "reduction"): 2} for name in g.nodes}
    p = plan(g, Mesh(2), fix=fix, placement="single")
    ops = {name: replace(BUILTIN_OPS[name], host_only=True, work=None) for name in fix}
    feeds = {"x": np.random.default_rng(0).standard_normal((8, 6)).astype(np.float32)}
    right(p, feeds, CupyBackend(cupy=simulated.cupy(2), fallback=True), ops=ops)


def test_operators_that_run_beside_gpus_need_no_path_there() -> None:
    p, feeds = rows()
    ops = {"relu": replace(BUILTIN_OPS["relu"], host_only=True)}
    for devices, ok in ((["cpu", "cpu"], True), ([0, "cpu"], False)):
        backend = CupyBackend(devices, cupy=simulated.cupy(1))
        if ok:
            right(p, feeds, backend, ops=ops)
        else:
            with pytest.raises(NoDevicePath, match=r"operators \['relu'\]"):
                run(p, feeds, backend=backend, ops=ops)


# -- wrong arguments ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (
            {"kernels": [kernel(2)]},
            TypeError,
            "kernels must be a mapping .*, not .* of type list; it maps operators' names to RawKernels",
        ),
        (
            {"kernels": {3: kernel(2)}},
            TypeError,
            "kernels, its key 3, must be a string, not 3 of type int; it maps operators' names",
        ),
        ({"kernels": {"relu": BY}}, TypeError, r"kernels\['relu'\] must be a RawKernel, not"),
        ({"fallback": "no"}, TypeError, "fallback must be True or False, not 'no'"),
        ({"capture": 2}, TypeError, "capture must be True or False or None, not 2"),
        ({"capture": True, "blocking": True}, ValueError, "give capture or blocking"),
        ({"cupy": np}, TypeError, "has no 'cuda'; give CuPy"),
    ],
)
def test_options_that_are_none(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=f"CupyBackend: .*{message}"):
        CupyBackend(**options)


def test_numbers_of_numpy_name_devices() -> None:
    p, feeds = rows()
    for devices in (np.array([0, 0]), [np.int64(0), 0]):
        right(p, feeds, CupyBackend(devices, cupy=simulated.cupy(1)))


def test_kernels_for_operators_that_there_are_not() -> None:
    p, feeds = rows()
    with pytest.raises(
        ValueError, match=r"kernels has 'rellu', which is not an operator's name; nearest of .* operators: 'relu'"
    ):
        run(p, feeds, backend=CupyBackend(cupy=simulated.cupy(1), kernels={"rellu": kernel(2)}))


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (((1,), (32,)), r"the launch function of kernel 'times' returned \(\(1,\), \(32,\)\); it must be a tuple"),
        (((1,), (32,), 7), "it must be a tuple"),
        ("no", "returned 'no'"),
    ],
)
def test_launch_functions_that_say_something_else(answer: Any, message: str) -> None:
    p, feeds = rows()
    wrong = RawKernel(BY, "times", lambda inputs, outputs, shard: answer, ("-DBY=2",))
    with pytest.raises(RuntimeError, match=message):
        run(p, feeds, backend=CupyBackend(cupy=simulated.cupy(1), kernels={"relu": wrong}))


def test_options_of_a_kernel() -> None:
    with pytest.raises(TypeError, match="options must be a sequence of strings, not '-DBY=2'"):
        RawKernel(BY, "times", launched, "-DBY=2")  # type: ignore[arg-type]
    assert RawKernel(BY, "times", launched, ["-DBY=2"]).options == ("-DBY=2",)  # type: ignore[arg-type]


@pytest.mark.parametrize("backend", [CupyBackend])
def test_a_class_is_not_a_backend(backend: Any) -> None:
    p, feeds = rows()
    with pytest.raises(
        TypeError, match=r"backend must be a string or a Backend, not <class .*CupyBackend.*; give an object, such as"
    ):
        run(p, feeds, backend=backend)
    with pytest.raises(TypeError, match="verify must be True or False, not 'no'"):
        run(p, feeds, verify="no")  # type: ignore[arg-type]


def test_kernels_that_need_shared_memory() -> None:
    source = """
    extern "C" __global__ void turned(const float* x, float* y) {
        extern __shared__ float kept[];
        kept[threadIdx.x] = x[threadIdx.x];
        __syncthreads();
        y[threadIdx.x] = kept[blockDim.x - 1 - threadIdx.x];
    }
    """
    g = Graph()
    g.output(relu(g.input("x", (32,))), "y")
    x = np.arange(32, dtype=np.float32)
    turned = RawKernel(source, "turned", lambda i, o, s: ((1,), (32,), (i[0], o[0]), 128))
    found = run(plan(g, Mesh(1)), {"x": x}, backend=CupyBackend(cupy=simulated.cupy(1), kernels={"relu": turned}))
    np.testing.assert_array_equal(found.outputs["y"], x[::-1])
