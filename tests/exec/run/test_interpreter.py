"""Which run is recorded, what is checked before it, and whose times its timeline has: with backends that stand in."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tapestry_exec import NumpyBackend, run
from tapestry_exec.run.trace import Phase
from tapestry_plan import Graph, Mesh, ShardPlan, plan
from tapestry_plan.ir import BUILTIN_OPS
from tapestry_plan.ops import relu

INPUTS = {"x": np.arange(-3, 5, dtype=np.float32)}


def small_plan() -> ShardPlan:
    g = Graph()
    g.output(relu(g.input("x", (8,))), "y")
    return plan(g, Mesh(2))


class Asked(NumpyBackend):
    """Counts how often it is asked for a recording; it has none."""

    asked = 0

    def recorded(self, plan: ShardPlan) -> None:
        self.asked += 1


def test_a_recording_is_asked_for_where_no_step_is_timed(tmp_path: Path) -> None:
    p, backend = small_plan(), Asked()
    run(p, INPUTS, backend=backend)
    assert backend.asked == 1
    run(p, INPUTS, backend=backend, trace=tmp_path / "trace.json")
    run(p, INPUTS, backend=backend, ops={"relu": BUILTIN_OPS["relu"]})
    assert backend.asked == 1


class Growing(list[Phase]):
    """A queue into which every step puts one operation."""

    many = 0

    def __len__(self) -> int:
        self.many += 1
        return self.many


class Queued(NumpyBackend):
    """Operation k of the devices' queues starts at k seconds and takes half a second."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = Growing()

    @property
    def spans(self) -> Growing:
        return self.queue

    def times(self, begin: float) -> list[Phase]:
        return [Phase("compute", 0, float(k), 0.5) for k in range(self.queue.many)]


def test_a_timeline_has_the_times_of_the_devices_queues() -> None:
    p = small_plan()
    timeline = run(p, INPUTS, backend=Queued()).timeline
    assert len(timeline) == len(p.steps)
    assert [(event.start, event.seconds) for event in timeline] == [(float(k), 0.5) for k in range(len(p.steps))]


def test_only_a_run_that_is_verified_needs_finite_inputs() -> None:
    p, inputs = small_plan(), {"x": np.array([1, np.inf, -np.inf, 2, 3, -4, 5, np.inf], np.float32)}
    np.testing.assert_array_equal(run(p, inputs).outputs["y"], np.maximum(inputs["x"], 0))
    with pytest.raises(ValueError, match="input 'x' has 3 values that are not finite"):
        run(p, inputs, verify=True)
