"""What a run hands out: its counts cannot be changed, and its outputs are the caller's, who may write to them."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

import tapestry_exec
from tapestry_exec import NumpyBackend, check_plan, evaluate, run
from tapestry_exec.run.prepared import PreparedPlan
from tapestry_plan import Graph, Mesh, ops, plan
from tests.handing_out import is_mutable, live

OWNED = {"RunResult.outputs"}
"""What is made for the caller, who may do with it as he likes."""
FEED = {"x": np.arange(24, dtype="float32").reshape(4, 6) - 9}


def network() -> Graph:
    """Outputs of every kind: a result, a view of one, an input, a constant, and views of these."""
    g = Graph()
    x, w = g.input("x", (4, 6)), g.constant("w", np.full((6, 4), 2, "float32"))
    y = ops.relu(x @ w)
    for name, tensor in {"y": y, "cut": y[1:, ::2], "x": x, "w": w, "x.T": x.T, "w cut": w[::2]}.items():
        g.output(tensor, name)
    return g


@cache
def values_of_runs() -> dict[str, Any]:
    p = plan(network(), Mesh((2,)), fix={"matmul": {"k": 2}})
    return {
        "result": run(p, FEED),
        "verified result": run(p, FEED, verify=True),
        "spilled result": run(p, FEED, memory_nbytes=max(p.peak_nbytes)),
        "prepared plan": PreparedPlan(p, "numpy"),
        "event": run(p, FEED).timeline[0],
    }


@pytest.mark.parametrize("what", list(values_of_runs()))
def test_no_value_hands_out_a_container_that_it_keeps(what: str) -> None:
    kept = {"ShardPlan.kept", "Shard.known", "PreparedPlan.backend", "PreparedPlan.devices"}
    assert live(values_of_runs()[what], OWNED | kept) == set()


def test_the_counts_of_a_run_cannot_be_changed() -> None:
    result = run(plan(network(), Mesh((2,)), fix={"matmul": {"k": 2}}), FEED, verify=True)
    assert result.nbytes_by_link and result.difference is not None
    for held in (result.nbytes_by_link, result.difference):
        with pytest.raises(TypeError, match="never changes"):
            held.clear()
    assert isinstance(result.timeline, tuple) and result.timeline


@pytest.mark.parametrize("devices", [1, 2])
@pytest.mark.parametrize("backend", ["numpy", "simulated", "kept"])
def test_who_writes_to_outputs_changes_no_later_run(devices: int, backend: str) -> None:
    g = network()
    p, engine = plan(g, Mesh((devices,))), NumpyBackend() if backend == "kept" else backend
    feed = {"x": FEED["x"].copy()}
    first = run(p, feed, backend=engine)
    wanted = {name: array.tobytes() for name, array in first.outputs.items()}
    for array in first.outputs.values():
        assert array.flags.writeable
        array[...] = 7
    first.outputs.clear()
    assert feed["x"].tobytes() == FEED["x"].tobytes()
    again = run(p, feed, backend=engine)
    assert {name: array.tobytes() for name, array in again.outputs.items()} == wanted


def test_who_writes_to_values_of_a_graph_changes_no_later_ones() -> None:
    g, feed = network(), {"x": FEED["x"].copy()}
    first = evaluate(g, feed)
    wanted = {name: np.asarray(array).tobytes() for name, array in first.items()}
    for array in first.values():
        if array.flags.writeable:
            array[...] = 7
    first.clear()
    assert feed["x"].tobytes() == FEED["x"].tobytes()
    assert {name: np.asarray(array).tobytes() for name, array in evaluate(g, feed).items()} == wanted


def test_what_is_found_about_a_plan_is_the_caller_s() -> None:
    p = plan(network(), Mesh((2,)))
    found = check_plan(p)
    wanted = dict(found)
    found.clear()
    assert check_plan(p).keys() == wanted.keys()
    run(p, FEED)


def test_exported_tables_cannot_be_changed() -> None:
    public = {name: each for name, each in vars(tapestry_exec).items() if not name.startswith("_")}
    assert {name for name, each in public.items() if is_mutable(each)} == set()
