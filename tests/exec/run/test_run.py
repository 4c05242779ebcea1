"""Sharded runs against NumPy, counted bytes against predicted ones, and what goes wrong."""

from __future__ import annotations

import gc
import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from weakref import ref

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tapestry_exec import CupyBackend, NumpyBackend, ResultMismatch, StepFailed, TransferMismatch, run
from tapestry_exec.run.prepared import PreparedPlan
from tapestry_plan import Graph, Mesh, ShardPlan, concat, ops, plan
from tapestry_plan.ir import tuning
from tapestry_plan.ops import conv, linear, matmul, max_pool, relu
from tapestry_plan.steps import Copy
from tapestry_sets.limits import put_item, replace_file


def small() -> tuple[Graph, dict[str, np.ndarray], np.ndarray]:
    rng = np.random.default_rng(5)
    w, b = rng.standard_normal((12, 10)).astype(np.float32), rng.standard_normal(10).astype(np.float32)
    g = Graph()
    y = linear(g.input("x", (8, 12)), g.constant("w", w), g.constant("b", b), name="fc")
    g.output(relu(y, name="act"), "y")
    x = rng.standard_normal((8, 12)).astype(np.float32)
    return g, {"x": x}, np.maximum(x @ w + b, 0)


@pytest.mark.parametrize("fix", [{}, {"m": 3}, {"n": 3}, {"k": 3}, {"m": 2, "k": 3}, {"m": 2, "n": 3}, {"k": 6}])
@pytest.mark.parametrize("devices", [6, 7])
def test_every_axis_can_be_split(backend: str | CupyBackend, fix: dict[str, int], devices: int) -> None:
    g, inputs, expected = small()
    if devices == 7 and fix:
        fix = {"m": 7}
    p = plan(g, Mesh(devices), fix={"fc": fix})
    r = run(p, inputs, verify=True, backend=backend)
    np.testing.assert_allclose(r.outputs["y"], expected, rtol=1e-5, atol=1e-5)
    assert r.nbytes_moved == p.nbytes_moved == sum(r.nbytes_by_link.values())
    assert (r.nbytes_received, r.peak_nbytes) == (p.nbytes_received, p.peak_nbytes)
    assert sum(r.flop) == pytest.approx(sum(p.flop))
    assert r.difference is not None and r.difference["y"] < 1e-5


@given(st.data())
def test_views_between_operators(backend: str | CupyBackend, data: st.DataObject) -> None:
    """Random chains of views read by a sharded operator: what NumPy reads, exactly."""
    shape = tuple(data.draw(st.lists(st.sampled_from([4, 6, 3, 5, 2, 8]), min_size=1, max_size=3)))
    value = np.arange(1, np.prod(shape) + 1, dtype=np.int64).reshape(shape)
    g = Graph()
    x = g.input("x", shape, "int64")
    view, expected = random_views(data, x, value)
    devices = data.draw(st.integers(1, 4))
    made = g.op("add", view, view, name="a")
    g.output(made, "y")
    g.output(made.flip(0), "v")
    p = plan(g, Mesh(devices))
    r = run(p, {"x": value}, verify=True, backend=backend)
    np.testing.assert_array_equal(r.outputs["y"], expected + expected)
    np.testing.assert_array_equal(r.outputs["v"], (expected + expected)[::-1])


def random_views(data: st.DataObject, tensor: Any, array: np.ndarray) -> tuple[Any, np.ndarray]:
    for _ in range(data.draw(st.integers(1, 4))):
        kinds = ["flip", "reshape", "permute", "slice", "concat", "broadcast"]
        match data.draw(st.sampled_from(kinds)):
            case "flip":
                axis = data.draw(st.integers(0, array.ndim - 1))
                tensor, array = tensor.flip(axis), np.flip(array, axis)
            case "reshape":
                parts = [d for d in range(1, array.size + 1) if array.size % d == 0]
                first = data.draw(st.sampled_from(parts))
                tensor, array = tensor.reshape(first, -1), array.reshape(first, -1)
            case "permute":
                axes = data.draw(st.permutations(range(array.ndim)))
                tensor, array = tensor.permute_dims(axes), array.transpose(axes)
            case "slice":
                axis = data.draw(st.integers(0, array.ndim - 1))
                n = array.shape[axis]
                start = data.draw(st.integers(0, n - 1))
                step = data.draw(st.sampled_from([1, 2, 3, -1, -2]))
                key = (*(slice(None),) * axis, slice(start, None, step))
                tensor, array = tensor[key], array[key]
            case "concat" if array.size <= 60:
                axis = data.draw(st.integers(0, array.ndim - 1))
                tensor, array = concat([tensor, tensor.flip(0)], axis), np.concatenate([array, array[::-1]], axis)
            case "broadcast" if array.size <= 60:
                tensor = tensor.broadcast_to((2, *array.shape))
                array = np.broadcast_to(array, (2, *array.shape))
    return tensor, array


def test_a_view_of_an_input_may_be_an_output(backend: str | CupyBackend) -> None:
    """Though no operator reads all of the input, and though another one reads it elsewhere."""
    g = Graph()
    x = g.input("x", (6,), "int64")
    g.output(x[::2], "even")
    g.output(g.op("add", x[1::2], x[1::2]), "odd")
    r = run(plan(g, Mesh(2)), {"x": np.arange(6)}, verify=True, backend=backend)
    assert (r.outputs["even"].tolist(), r.outputs["odd"].tolist()) == ([0, 2, 4], [2, 6, 10])


@pytest.mark.heavy(2)
@given(st.data())
def test_sharded_convolutions(backend: str | CupyBackend, data: st.DataObject) -> None:
    """Uneven parts, halos, strides, dilations and split reductions; poison would show as NaN."""
    h, w, c, out = (data.draw(st.integers(low, high)) for low, high in ((3, 9), (3, 7), (1, 4), (1, 4)))
    stride, dilation, pad = (data.draw(st.integers(low, high)) for low, high in ((1, 3), (1, 2), (0, 2)))
    if (h + 2 * pad) < 2 * dilation + 1 or (w + 2 * pad) < 2 * dilation + 1:
        return
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    g = Graph()
    x = g.input("x", (1, c, h, w))
    k = g.constant("k", rng.standard_normal((out, c, 3, 3)).astype(np.float32))
    y = conv(x, k, strides=(stride, 1), dilations=(dilation, dilation), pads=(pad,) * 4, name="conv")
    g.output(relu(y), "y")
    sizes = dict(zip(("c", "h", "w", "ci"), (*y.shape[1:], c), strict=True))
    axis = data.draw(st.sampled_from(sorted(sizes)))
    parts = data.draw(st.integers(1, min(4, sizes[axis])))
    p = plan(g, Mesh(parts), fix={"conv": {axis: parts}})
    run(p, {"x": rng.standard_normal((1, c, h, w)).astype(np.float32)}, verify=True, backend=backend)


# -- counting --------------------------------------------------------------------------------------------


def moving_plan() -> tuple[ShardPlan, dict[str, np.ndarray]]:
    g, inputs, _ = small()
    p = plan(g, Mesh(3), fix={"fc": {"m": 3}, "act": {"i1": 3}})
    assert p.nbytes_moved > 0
    return p, inputs


@pytest.mark.parametrize(
    ("field", "message"),
    [
        ("nbytes_by_link", r"device 0 -> device 1: \d+ B predicted, \d+ B counted"),
        ("nbytes_received", r"received by device 0: [\d,]+ B predicted"),
        ("nbytes_placed", r"placed by device 0: [\d,]+ B predicted"),
        ("peak_nbytes", r"at most held by device 0: [\d,]+ B predicted"),
    ],
)
def test_counts_are_not_taken_from_the_plan(backend: str | CupyBackend, field: str, message: str) -> None:
    p, inputs = moving_plan()
    value = getattr(p, field)
    if isinstance(value, dict):
        wrong: Any = {**value, (0, 1): value[0, 1] + 4}
    else:
        wrong = (value[0] + 4, *value[1:])
    with pytest.raises(TransferMismatch, match=message):
        run(replace(p, **{field: wrong}), inputs, backend=backend)


def test_a_link_that_the_plan_does_not_have(backend: str | CupyBackend) -> None:
    p, inputs = moving_plan()
    with pytest.raises(TransferMismatch, match="device 0 -> device 1: 0 B predicted"):
        run(
            replace(p, nbytes_by_link={k: v for k, v in p.nbytes_by_link.items() if k != (0, 1)}),
            inputs,
            backend=backend,
        )


def test_devices_exchange_nothing_but_payloads() -> None:
    """A transport that loses the payload leaves the receiver with poison, and the run is refused."""

    class Lossy(NumpyBackend):
        def move(self, payload: np.ndarray, src: int, dst: int) -> np.ndarray:
            return np.full_like(payload, np.nan)

    p, inputs = moving_plan()
    assert np.isnan(run(p, inputs, backend=Lossy()).outputs["y"]).any()
    with pytest.raises(ResultMismatch, match="output 'y' differs from the unsharded run"):
        run(p, inputs, backend=Lossy(), verify=True)


def test_runs_give_the_same_bits(backend: str | CupyBackend) -> None:
    p, inputs = moving_plan()
    another = NumpyBackend() if backend == "numpy" else CupyBackend()
    first, second, third = (run(p, inputs, backend=one) for one in (backend, another, another))
    assert first.outputs["y"].tobytes() == second.outputs["y"].tobytes() == third.outputs["y"].tobytes()


def test_arenas_live_as_long_as_the_plan() -> None:
    p, inputs = moving_plan()
    engine = ref(PreparedPlan(p, "numpy").backend)
    run(p, inputs)
    assert engine() is PreparedPlan(p, "numpy").backend and engine()._closed
    del p
    gc.collect()
    assert engine() is None


def test_runs_of_one_plan_may_overlap() -> None:
    """Threads that run the same plan at once get arenas of their own."""
    p, inputs = moving_plan()
    others = [{"x": inputs["x"] * k} for k in range(8)]
    expected = [run(p, other).outputs["y"].tobytes() for other in others]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(5):
            found = list(pool.map(lambda other: run(p, other).outputs["y"].tobytes(), others))
            assert found == expected


# -- errors ----------------------------------------------------------------------------------------------


def test_a_failing_block_is_named(backend: str | CupyBackend) -> None:
    g, inputs, _ = small()
    p = plan(g, Mesh(2))

    def fail(xp: Any, ins: Any, outs: Any, shard: Any) -> None:
        raise FloatingPointError("too hot")

    broken = replace(g.ops["relu"], block=fail)
    with pytest.raises(StepFailed) as error:
        run(p, inputs, ops={"relu": broken}, backend=backend)
    where = "compute 'act' on device 0, index box [0, "
    for part in ("step ", where, "input blocks (start, stop) [((0, 0), (", "FloatingPointError: too hot"):
        assert part in str(error.value)
    assert isinstance(error.value.__cause__, FloatingPointError)


def test_what_an_operator_counts_is_its_own(backend: str | CupyBackend) -> None:
    """Of the same plan with another declaration of an operator, and back; computing moves no bytes."""
    g, inputs, _ = small()
    p = plan(g, Mesh(2))
    plain = run(p, inputs, backend=backend)
    dear = replace(g.ops["linear"], flop=100.0)
    found = [run(p, inputs, backend=backend, ops=ops).flop for ops in ({"linear": dear}, None, {"linear": dear})]
    assert found[1] == plain.flop and found[0] == found[2] != plain.flop
    assert {event.nbytes for event in plain.timeline if event.kind in ("compute", "reduce")} == {0}


def test_a_block_cannot_write_to_its_inputs() -> None:
    g, inputs, _ = small()

    def greedy(xp: Any, ins: Any, outs: Any, shard: Any) -> None:
        ins[0][...] = 0

    with pytest.raises(StepFailed, match="read-only"):
        run(plan(g, Mesh(2)), inputs, ops={"relu": replace(g.ops["relu"], block=greedy)})


def test_operators_that_are_replaced_are_so_in_blocks_too() -> None:
    g = Graph()
    g.output(relu(-g.input("x", (4, 6))), "y")
    p, x = plan(g, Mesh(2)), np.ones((4, 6), np.float32)

    def doubled(xp: Any, ins: Any, outs: Any, shard: Any) -> None:
        outs[0][...] = 2 * ins[0]

    assert p.fused and not run(p, {"x": x}).outputs["y"].any()
    replaced = run(p, {"x": x}, ops={"relu": replace(g.ops["relu"], block=doubled)})
    np.testing.assert_array_equal(replaced.outputs["y"], -2 * x)


def test_a_block_that_depends_on_its_shard_is_found_by_verify(backend: str | CupyBackend) -> None:
    g, inputs, _ = small()

    def odd(xp: Any, ins: Any, outs: Any, shard: Any) -> None:
        outs[0][...] = ins[0] + (shard.index.start[0] or shard.index.start[1])

    p = plan(g, Mesh(2), fix={"act": {"i0": 2}})
    put_item(g.ops, "relu", replace(g.ops["relu"], block=odd))
    with pytest.raises(ResultMismatch, match=r"the bound for float32 is 0\.0001; look at each"):
        run(p, inputs, verify=True, backend=backend)


def test_too_little_memory_is_found_before_the_run(backend: str | CupyBackend) -> None:
    p, inputs = moving_plan()
    with pytest.raises(ValueError, match=r"device 0 needs .* B at once in step .*, memory is 100 B"):
        run(p, inputs, memory_nbytes=100, backend=backend)
    run(p, inputs, memory_nbytes=max(p.peak_nbytes), backend=backend)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"shard_plan": Graph()}, "run: shard_plan must be a ShardPlan, not <Graph .*> of type Graph"),
        ({"shard_plan": "plan.json"}, "run: shard_plan must be a ShardPlan, not 'plan.json'"),
        (
            {"inputs": [np.ones(3)]},
            "inputs must be a mapping from strings, not .* of type list; it maps names to arrays",
        ),
        ({"inputs": None}, "inputs must be a mapping .*, not None; it maps names"),
        ({"constants": [1]}, "constants must be a mapping .*, not .* of type list; it maps names to arrays"),
        (
            {"backend": 3},
            r"run: backend must be a string or a Backend, not 3 of type int; .* known backends: 'cupy', 'dask', ",
        ),
        ({"progress": True}, "run: progress must be a callable or None, not the truth value True"),
        (
            {"memory_nbytes": "16GB"},
            "run: memory_nbytes must be an integer or None, not '16GB' .* give a number of bytes",
        ),
        ({"memory_nbytes": True}, "run: memory_nbytes must be an integer or None, not the truth value True"),
        ({"trace": 3}, "trace must be .*, not 3 of type int; give the path of a file"),
        ({"ops": {"relu": len}}, r"run: ops\['relu'\] must be an Op, not .* it maps names to operators"),
    ],
)
def test_arguments_of_wrong_types_are_named(arguments: dict[str, Any], message: str) -> None:
    p, inputs = moving_plan()
    with pytest.raises(TypeError, match=message):
        run(**{"shard_plan": p, "inputs": inputs, **arguments})


@pytest.mark.parametrize(
    ("backend", "wrong"),
    [
        (3, "3 of type int; give an object"),
        (None, "None; give an object"),
        (Path("numpy"), "PosixPath.* of type PosixPath; give an object"),
        (NumpyBackend, ".*NumpyBackend.* of type _?[A-Za-z]+; give an object, such as NumpyBackend"),
    ],
)
def test_what_is_not_a_backend_is_named_where_a_plan_is_prepared(backend: Any, wrong: str) -> None:
    with pytest.raises(TypeError, match=f"^PreparedPlan: backend must be a string or a Backend, not {wrong}"):
        PreparedPlan(moving_plan()[0], backend)


def test_unknown_backend() -> None:
    p, inputs = moving_plan()
    with pytest.raises(
        ValueError,
        match="no backend 'abacus'; nearest of 9 backends: 'dask', 'cupy', 'processes'",
    ):
        run(p, inputs, backend="abacus")


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({}, "'x' is missing"),
        ({"x": np.ones((8, 12), np.float32), "q": np.ones(1)}, "no input 'q'"),
        ({"x": np.ones((12, 8), np.float32)}, "shape \\(8, 12\\) is needed"),
        ({"x": np.ones((8, 12), np.int32)}, "float32 is needed"),
    ],
)
def test_unfit_inputs(inputs: dict[str, np.ndarray], message: str) -> None:
    p, _ = moving_plan()
    with pytest.raises(ValueError, match=message):
        run(p, inputs)


def test_a_plan_from_its_document_runs_with_the_constants_given(
    backend: str | CupyBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuning, "CARRIED_NBYTES", 0)  # as for larger weights
    g, inputs, expected = small()
    p = ShardPlan.from_json(plan(g, Mesh(4)).to_json())
    constants = {name: g.stored[name].data for name in ("w", "b")}
    r = run(p, inputs, constants=constants, verify=True, backend=backend)
    np.testing.assert_allclose(r.outputs["y"], expected, rtol=1e-5, atol=1e-5)
    with pytest.raises(ValueError, match="named but not carried"):
        run(p, inputs, backend=backend)
    with pytest.raises(ValueError, match="other values than the plan was made for"):
        run(p, inputs, constants={**constants, "b": np.zeros(10, np.float32)}, backend=backend)


def test_infinite_padding_survives_the_document(backend: str | CupyBackend) -> None:
    """JSON has no infinities; the padding of max_pool is one."""
    g = Graph()
    x = g.input("x", (1, 2, 6, 6))
    g.output(max_pool(x, (3, 3), strides=(2, 2), pads=(1, 1, 1, 1)), "y")
    p = plan(g, Mesh(2))
    value = -np.ones((1, 2, 6, 6), np.float32)
    r = run(ShardPlan.from_json(p.to_json()), {"x": value}, verify=True, backend=backend)
    assert r.outputs["y"].tolist() == (-np.ones((1, 2, 3, 3))).tolist()


# -- what a run tells ------------------------------------------------------------------------------------


def test_progress_ends_at_the_last_step(backend: str | CupyBackend) -> None:
    p, inputs = moving_plan()
    seen: list[tuple[int, int, str]] = []
    run(p, inputs, progress=lambda *at: seen.append(at), backend=backend)
    assert [done for done, _, _ in seen] == sorted({done for done, _, _ in seen})
    assert seen[-1][:2] == (len(p.steps), len(p.steps))
    assert {"fc", "act"} <= {name for _, _, name in seen}


def test_the_timeline_has_every_step(backend: str | CupyBackend) -> None:
    p, inputs = moving_plan()
    r = run(p, inputs, backend=backend)
    assert [event.step for event in r.timeline] == list(range(len(p.steps)))
    moved = {b.id: b.device for b in p.buffers}
    crossing = sum(
        event.nbytes
        for event, step in zip(r.timeline, p.steps, strict=True)
        if isinstance(step, Copy) and step.src >= 0 and moved[step.src] != moved[step.dst]
    )
    assert crossing == r.nbytes_moved
    assert sum(event.seconds for event in r.timeline) <= r.seconds
    assert all(a.start <= b.start for a, b in zip(r.timeline, r.timeline[1:], strict=False))


def test_the_trace_is_read_by_chrome(backend: str | CupyBackend, tmp_path: Path) -> None:
    p, inputs = moving_plan()
    run(p, inputs, trace=tmp_path / "trace.json", backend=backend)
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    spans = [event for event in events if event["ph"] == "X"]
    assert {event["args"]["step"] for event in spans} == set(range(len(p.steps)))
    assert {event["pid"] for event in spans} == {0, 1, 2}
    assert all(event["dur"] >= 0 and event["ts"] >= 0 for event in spans)
    with pytest.raises(ValueError, match=r"trace: the folder of .* does not exist"):
        run(p, inputs, trace=tmp_path / "no" / "trace.json", backend=backend)


def test_targets_that_cannot_be_written_are_found_before_the_run(tmp_path: Path) -> None:
    p, inputs = moving_plan()

    class Never(NumpyBackend):
        def open(self, nbytes: Any) -> Any:
            raise AssertionError("the run has begun")

    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for target, message in (
        (tmp_path, "is a folder; give the name of a file"),
        (tmp_path / "pipe", "is not an ordinary file"),
        (tmp_path / "no" / "t.json", "does not exist; make it first"),
        (tmp_path / ("x" * 300), "is not a path that can be written"),
        ("a\0b", "is not a path that can be written"),
        (tmp_path / "loop", "is not a path that can be written"),
    ):
        with pytest.raises(ValueError, match=f"trace: .* {message}"):
            run(p, inputs, backend=Never(), trace=target)


def test_a_file_is_replaced_when_it_is_whole(backend: str | CupyBackend, tmp_path: Path) -> None:
    target = tmp_path / "t.json"
    target.write_text("before")
    with pytest.raises(KeyboardInterrupt), replace_file(target) as file:
        file.write(b"half")
        raise KeyboardInterrupt
    assert target.read_text() == "before" and list(tmp_path.iterdir()) == [target]
    link = tmp_path / "link.json"
    link.symlink_to(target)
    p, inputs = moving_plan()
    run(p, inputs, trace=link, backend=backend)
    assert link.is_symlink() and json.loads(target.read_text())["traceEvents"]
    assert sorted(tmp_path.iterdir()) == [link, target]


def test_integers_are_compared_exactly(backend: str | CupyBackend) -> None:
    g = Graph()
    x = g.input("x", (7,), "int64")
    g.output(x + x.flip(0), "y")
    value = np.arange(7) * 10**12
    r = run(plan(g, Mesh(3)), {"x": value}, verify=True, backend=backend)
    assert r.outputs["y"].tolist() == (value + value[::-1]).tolist()
    assert r.difference == {"y": 0.0}


def test_rank_0(backend: str | CupyBackend) -> None:
    g = Graph()
    x = g.input("x", ())
    g.output(g.op("multiply", x, x), "y")
    r = run(plan(g, Mesh(2)), {"x": np.array(3.0, np.float32)}, verify=True, backend=backend)
    assert r.outputs["y"].shape == () and float(r.outputs["y"]) == 9.0


def test_results_that_cancel_are_off_by_rounding_only(backend: str | CupyBackend) -> None:
    """The whole result is rounding: it is compared with the numbers that it is a difference of."""
    x = np.random.default_rng(0).normal(size=(16, 64)).astype(np.float32)
    g = Graph()
    t = g.input("x", x.shape)
    g.output(matmul(t, t.T, name="m") - matmul(t, t.T), "y")
    found = run(plan(g, Mesh(2), fix={"m": {"k": 2}}), {"x": x}, verify=True, backend=backend)
    assert 0 < np.abs(found.outputs["y"]).max() < 1e-4


@pytest.mark.parametrize("backend", ["serial", "numpy"])
def test_a_sum_to_one_number_in_a_block_is_that_of_each_run(backend: str) -> None:
    """A result between of rank 0 is a view as any: the calls of a block are kept, and a copy would be of one run."""
    g = Graph()
    x = g.input("x", (4, 6))
    g.output(ops.where(ops.sum(x, axis=(0, 1)) > 0, x, 10 * x), "y")
    p = plan(g, Mesh(3))
    assert p.fused
    ones = np.ones((4, 6), np.float32)
    for sign, wanted in ((1, 1), (-1, -10), (2, 2), (-3, -30)):
        np.testing.assert_array_equal(run(p, {"x": sign * ones}, backend=backend).outputs["y"], wanted * ones)
