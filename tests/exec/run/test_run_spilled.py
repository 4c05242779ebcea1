"""Runs in less memory: the same bits, the bytes that were predicted, and what goes wrong."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tapestry_exec import CupyBackend, InvalidPlan, NumpyBackend, ResultMismatch, TransferMismatch, run
from tapestry_exec.run.prepared import PreparedPlan
from tapestry_plan import HOST, Graph, InfeasiblePlan, Mesh, ShardPlan, gradient, load_onnx, ops, plan
from tapestry_plan.ops import add, matmul, relu
from tapestry_plan.steps import Compute, Copy, Fetch, Spill, Step, spill
from tests.spilling import Program, arrays_for, followed, planned, programs, tight_memory

MODELS = Path(__file__).resolve().parents[2] / "models"


def waiting() -> tuple[ShardPlan, int]:
    """Two devices with tensors that wait while others are made, and the least memory in which the plan runs.

    What is read from its last column to its first is not overwritten.
    """
    g = Graph()
    first = relu(g.input("x", (64, 60)), name="first")
    y = second = relu(first, name="second")
    for k in range(3):
        y = add(y[:, ::-1], y[:, ::-1], name=f"twice{k}")[:, ::-1]
    g.output(add(add(y, second), first), "y")
    g.output(second, "second")
    p = plan(g, Mesh(2), fix={"second": {"i0": 2}}, fuse=False)
    return p, tight_memory(p)


def bits(outputs: dict[str, np.ndarray]) -> dict[str, tuple[Any, ...]]:
    return {name: (array.shape, array.dtype.str, array.tobytes()) for name, array in outputs.items()}


# -- what is run ---------------------------------------------------------------------------------------------


@settings(max_examples=max(60, settings.default.max_examples // 10))
@given(programs(), st.floats(0, 1))
@example((2, [(6, 4, 0, True), (5, 5, 0, False), (3, 6, 5, True)], [(5, False), (6, False), (7, False)], False), 0.0)
@example((1, [(0, 0, 1, False), (0, 2, 3, False)], [(n, False) for n in (0, 1, 2, 5, 6)], False), 0.0)
@example((1, [(0, 0, 0, False), (2, 5, 0, False)], [(0, False)], False), 1.0)
def test_less_memory_gives_the_same_bits(backend: str | CupyBackend, program: Program, share: float) -> None:
    p = planned(program)
    low, high = tight_memory(p), max(p.peak_nbytes)
    memory = int(low + share * (high - low))
    inputs = arrays_for(p)
    whole, found = run(p, inputs, backend=backend), run(p, inputs, memory_nbytes=memory, verify=True, backend=backend)
    assert bits(found.outputs) == bits(whole.outputs)
    spilled = spill(p, memory)
    if memory >= high:  # with blocks inside and over others it may need less than with each in a place of its own
        assert spilled == p, "nothing waits: the plan is as it was"
        assert found.peak_nbytes == p.peak_nbytes and not any(found.nbytes_spilled)
        return
    counted = followed(spilled)
    assert found.nbytes_spilled == tuple(counted.spilled)
    assert found.peak_nbytes == tuple(counted.peak) and max(found.peak_nbytes) <= memory
    assert found.nbytes_by_link == whole.nbytes_by_link
    assert (found.nbytes_placed, found.nbytes_received) == (tuple(counted.placed), whole.nbytes_received)
    assert not any(whole.nbytes_spilled) and found.flop == whole.flop


def network() -> ShardPlan:
    onnx = pytest.importorskip("onnx", reason="the model is an ONNX file")
    from tapestry_plan.onnx import he_random

    return plan(load_onnx(he_random(onnx.load(MODELS / "resnet.onnx"))), Mesh(3), fuse=False)


def gradients() -> ShardPlan:
    """What layers made waits until their gradients are computed, the first layer's the longest."""
    g = Graph()
    x = y = g.input("x", (64, 32))
    weights = [g.input(f"w{k}", (32, 32)) for k in range(6)]
    for w in weights:
        y = relu(matmul(y, w))
    for k, one in enumerate(gradient(ops.sum(y, keepdims=True), [x, *weights])):
        g.output(one, f"g{k}")
    return plan(g, Mesh(2), fuse=False)


@pytest.mark.parametrize(("make", "waits"), [(network, False), (gradients, True)])
def test_networks_in_the_least_memory(backend: str | CupyBackend, make: Callable[[], ShardPlan], waits: bool) -> None:
    p = make()
    inputs, least = arrays_for(p), tight_memory(p)
    whole = run(p, inputs, backend=backend)
    for memory in (least, (least + max(p.peak_nbytes)) // 2):
        found = run(p, inputs, memory_nbytes=memory, backend=backend)
        assert bits(found.outputs) == bits(whole.outputs)
        assert max(found.peak_nbytes) <= memory < max(whole.peak_nbytes)
    assert (sum(run(p, inputs, memory_nbytes=least, backend=backend).nbytes_spilled) > 0) == waits


def test_outputs_that_were_spilled_are_read_from_the_host(backend: str | CupyBackend) -> None:
    p, least = waiting()
    q = spill(p, least)
    kept = {step.buffer for step in q.steps if isinstance(step, Spill)}
    assert kept & {number for out in q.outputs for number, _ in out.blocks}
    x = np.random.default_rng(0).integers(-99, 99, (64, 60)).astype(np.float32)
    found = run(q, {"x": x}, backend=backend).outputs
    np.testing.assert_array_equal(found["second"], np.maximum(x, 0))
    np.testing.assert_array_equal(found["y"], 10 * np.maximum(x, 0))


def test_a_run_that_fits_is_as_without_a_limit(backend: str | CupyBackend) -> None:
    p, _ = waiting()
    inputs = arrays_for(p)
    found = run(p, inputs, memory_nbytes=max(p.peak_nbytes), backend=backend)
    assert found.nbytes_spilled == (0, 0) and found.peak_nbytes == p.peak_nbytes
    assert [event.kind for event in found.timeline] == [
        event.kind for event in run(p, inputs, backend=backend).timeline
    ]


def test_what_a_limit_asks_for_is_found_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also that a plan fits as it is, which does not keep the plan alive."""
    asked: list[int] = []

    def counted(plan: ShardPlan, memory_nbytes: int) -> ShardPlan:
        asked.append(memory_nbytes)
        return spill(plan, memory_nbytes)

    monkeypatch.setattr(sys.modules[PreparedPlan.__module__], "spill", counted)
    p, least = waiting()
    most = max(p.peak_nbytes)
    assert least < most
    for memory in (most, least, most, least):
        prepared = PreparedPlan(p)
        assert (prepared.within(memory) is prepared) == (memory == most)
    assert asked == [most, least]
    gone = weakref.ref(p)
    del p, prepared
    assert gone() is None


def test_the_document_of_a_plan_that_spills_runs(backend: str | CupyBackend) -> None:
    p, least = waiting()
    inputs = arrays_for(p)
    read = ShardPlan.from_json(spill(p, least).to_json())
    found = run(read, inputs, memory_nbytes=least, verify=True, backend=backend)
    assert bits(found.outputs) == bits(run(p, inputs, backend=backend).outputs)
    assert found.nbytes_spilled == read.nbytes_spilled and sum(found.nbytes_spilled) > 0


def test_what_waits_is_in_host_memory() -> None:
    """A host that loses what it was given is found out: the devices kept nothing."""
    p, least = waiting()
    inputs = arrays_for(p)

    class Forgetful(NumpyBackend):
        def place(self, array: np.ndarray, regions: Sequence[Any], tensor: str) -> np.ndarray:
            payload = super().place(array, regions, tensor)
            return payload if np.shares_memory(array, inputs["x"]) else np.full_like(payload, np.nan)

    run(p, inputs, backend=Forgetful(), verify=True)
    with pytest.raises(ResultMismatch, match="output 'y' differs from the unsharded run"):
        run(p, inputs, backend=Forgetful(), memory_nbytes=least, verify=True)


def test_the_host_keeps_what_is_still_wanted_and_no_more() -> None:
    """Bytes of live host arrays after each computation, against the last fetch of each in the plan's steps."""
    p, most = gradients(), 0
    q = spill(p, tight_memory(p))
    nbytes = {b.id: b.nbytes for b in q.buffers}
    spilled = {step.buffer: k for k, step in enumerate(q.steps) if isinstance(step, Spill)}
    last = {step.spilled: k for k, step in enumerate(q.steps) if isinstance(step, Fetch)}
    outputs = {number for out in q.outputs for number, _ in out.blocks}
    until = {n: len(q.steps) if n in outputs else last[n] for n in spilled}
    kept: list[weakref.ref[np.ndarray]] = []

    class Watched(NumpyBackend):
        def fetch(self, payload: np.ndarray) -> np.ndarray:
            array = payload.copy()
            kept.append(weakref.ref(array))
            return array

    def look(done: int, total: int, node: str) -> None:
        nonlocal most
        wanted = sum(nbytes[n] for n, k in spilled.items() if k < done <= until[n])
        assert sum(array.nbytes for ref in kept if (array := ref()) is not None) == wanted, done
        most = max(most, wanted)

    run(q, arrays_for(p), backend=Watched(), progress=look)
    assert 0 < most < sum(nbytes[n] for n in spilled)


def test_steps_are_timed_as_what_they_are(backend: str | CupyBackend) -> None:
    p, least = waiting()
    found = run(p, arrays_for(p), memory_nbytes=least, backend=backend)
    wanted = [type(s).__name__.lower() for s in spill(p, least).steps if isinstance(s, Spill | Fetch)]
    assert [event.kind for event in found.timeline if event.kind in ("spill", "fetch")] == wanted
    nbytes = [event.nbytes for event in found.timeline if event.kind in ("spill", "fetch")]
    assert sum(nbytes) == sum(found.nbytes_spilled) > 0


# -- what is refused -----------------------------------------------------------------------------------------


class Never(NumpyBackend):
    """Fails the test when a run begins."""

    def open(self, nbytes: Sequence[int], payload_nbytes: Sequence[int] = ()) -> Any:
        raise AssertionError("the run has begun")


def test_too_little_memory_is_refused_before_the_first_step() -> None:
    p, least = waiting()
    with pytest.raises(InfeasiblePlan) as error:
        run(p, arrays_for(p), memory_nbytes=least - 1, backend=Never())
    text = str(error.value)
    for part in (
        "device 0 needs ",
        f"{least:,} B at once in step ",
        f"memory is {least - 1:,} B",
        "compute for operator 'add' (add)",
        f"give at least {least:,} B, plan for more devices, or cut the operator along further axes with fix",
    ):
        assert part in text, text


def refused(p: ShardPlan, steps: Sequence[Step], message: str) -> None:
    with pytest.raises(InvalidPlan, match=message):
        run(p.with_steps(steps=tuple(steps)), arrays_for(p), backend=Never())


def fetching() -> tuple[ShardPlan, list[int]]:
    p, least = waiting()
    q = spill(p, least)
    at = [k for k, step in enumerate(q.steps) if isinstance(step, Fetch)]
    assert at
    return q, at


def test_a_fetch_that_is_missing_is_refused() -> None:
    q, at = fetching()
    for k in at:
        refused(q, q.steps[:k] + q.steps[k + 1 :], "holds only nothing|no later step fetches")


def test_a_fetch_that_comes_late_or_early_is_refused() -> None:
    q, at = fetching()
    for k in at:
        fetch = q.steps[k]
        assert isinstance(fetch, Fetch)
        use = next(
            j for j in range(k, len(q.steps)) if isinstance(s := q.steps[j], Compute) and fetch.buffer in s.inputs
        )
        refused(q, (*q.steps[:k], *q.steps[k + 1 : use + 1], fetch, *q.steps[use + 1 :]), "holds only nothing")
        refused(q, (fetch, *q.steps[:k], *q.steps[k + 1 :]), rf"buffer {fetch.buffer} is not allocated here")


def test_a_spill_that_is_missing_is_refused() -> None:
    q, _ = fetching()
    for k, step in enumerate(q.steps):
        if isinstance(step, Spill):
            refused(q, q.steps[:k] + q.steps[k + 1 :], "nothing of buffer|is not allocated here")


def test_what_is_fetched_twice_or_in_vain_is_refused() -> None:
    q, at = fetching()
    for k in at:
        fetch = q.steps[k]
        assert isinstance(fetch, Fetch)
        refused(q, (*q.steps[: k + 1], *q.steps[k:]), "holds cells already|nothing of buffer")
        if not fetch.keep:
            kept = replace_step(q, k, Fetch(fetch.buffer, fetch.spilled, True))
            refused(q, kept, "no later step fetches the cells of buffer [0-9]+ that the host keeps")


def replace_step(p: ShardPlan, k: int, step: Step) -> tuple[Step, ...]:
    return (*p.steps[:k], step, *p.steps[k + 1 :])


def test_what_another_buffer_held_is_refused() -> None:
    q, at = fetching()
    spills = [step.buffer for step in q.steps if isinstance(step, Spill)]
    for k in at:
        fetch = q.steps[k]
        assert isinstance(fetch, Fetch)
        for other in set(spills) - {fetch.spilled}:
            refused(q, replace_step(q, k, Fetch(fetch.buffer, other)), "that of the spilled one|nothing of buffer")


def test_what_is_placed_again_must_have_been_there() -> None:
    p, _ = waiting()
    (at, first) = next((k, s) for k, s in enumerate(p.steps) if isinstance(s, Copy) and s.src == HOST)
    again = Copy(first.node, first.tensor, HOST, first.dst, first.regions, None, True)
    refused(p, replace_step(p, at, again), "which device 0 did not have before")


def test_wrong_predictions_are_found_by_counting(backend: str | CupyBackend) -> None:
    p, least = waiting()
    q = spill(p, least)
    inputs = arrays_for(p)
    wrong = replace(q, nbytes_spilled=(q.nbytes_spilled[0] - 8, *q.nbytes_spilled[1:]))
    with pytest.raises(TransferMismatch, match=r"spilled and fetched by device 0: [\d,]+ B predicted, [\d,]+ B count"):
        run(wrong, inputs, backend=backend)
    higher = replace(q, peak_nbytes=(q.peak_nbytes[0] + 64, *q.peak_nbytes[1:]))
    with pytest.raises(TransferMismatch, match="at most held by device 0"):
        run(higher, inputs, backend=backend)


def test_a_number_of_numpy_is_a_number_of_bytes() -> None:
    p, least = waiting()
    one, two = (run(p, arrays_for(p), memory_nbytes=memory) for memory in (least, np.int64(least)))
    assert one.nbytes_spilled == two.nbytes_spilled
    np.testing.assert_array_equal(one.outputs["y"], two.outputs["y"])
