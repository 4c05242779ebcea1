"""Shards in Dask's task stream: named, on their workers, within the run, and no more than are allowed."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tapestry_exec import DaskBackend, RunResult, TraceEvent, deploy
from tapestry_exec.dask.stream import TaskStream, list_entries, list_messages
from tapestry_plan import ShardPlan
from tapestry_plan.steps import Compute
from tests.exec.run.test_side_by_side import made
from tests.ways_of_running import assert_same


def drop_stream(client: Any) -> None:
    """Turn the stream off, as it is before anybody asks for it."""

    def drop(dask_scheduler: Any) -> None:
        if "task-stream" in dask_scheduler.plugins:
            dask_scheduler.remove_plugin(name="task-stream")

    client.run_on_scheduler(drop)


def stay(p: ShardPlan, inputs: Any) -> RunResult:
    """What one loop gives, where constants are placed once."""
    with deploy(p, backend="serial") as placed:
        return placed.run(inputs)


def test_shards_are_in_the_stream_where_one_is_on(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    p, inputs = made(3)
    wanted, shown = stay(p, inputs), list[int]()
    show = TaskStream.show
    monkeypatch.setattr(TaskStream, "show", lambda self, told: (shown.append(len(told)), show(self, told)))
    drop_stream(client)
    with deploy(p, backend=DaskBackend(client)) as placed:
        assert_same(placed.run(inputs), wanted)
        assert not shown  # nothing is sent to a scheduler that shows nothing
        client.get_task_stream()  # which turns it on
        begin = time.time()
        found = placed.run(inputs)
        end = time.time()
        workers = placed._session.workers  # type: ignore[union-attr]
    assert_same(found, wanted)
    told = [one for one in client.get_task_stream() if isinstance(one["key"], tuple)]
    steps = [step for step in p.steps if isinstance(step, Compute)]
    computed = [one for one in told if one["key"][1] != "merged parts"]
    assert sorted((one["key"][0], one["worker"]) for one in computed) == sorted(
        (step.node, workers[step.device]) for step in steps
    )
    assert {one["key"][1] for one in computed if one["key"][0] == "last"} == {
        f"[0, 16)×[{k}, {k + 8})" for k in (0, 8, 16)
    }
    spans = [span for one in told for span in one["startstops"]]
    slack = 0.1  # of the scheduler's clock against this one's, as workers know it
    assert all(begin - slack <= span["start"] <= span["stop"] <= end + slack for span in spans)
    assert {span["action"] for span in spans} == {"compute", "transfer", "deserialize"}
    assert all(one["thread"] == one["key"][2] and one["startstops"][-1]["action"] == "compute" for one in told)
    assert shown == [3]
    drop_stream(client)


def test_a_scheduler_that_shows_nothing_does_not_end_a_run(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    p, inputs = made(2)
    wanted = stay(p, inputs)

    def refuse(*_: Any) -> None:
        raise ValueError("not allowed")

    client.get_task_stream()
    with monkeypatch.context() as changed, deploy(p, backend=DaskBackend(client)) as placed:
        changed.setattr(client, "run_on_scheduler", refuse)
        with pytest.warns(RuntimeWarning, match=r"shards are not in Dask's task stream \(ValueError: not allowed\)"):
            assert_same(placed.run(inputs), wanted)
        assert_same(placed.run(inputs), wanted)  # which says it no more
    drop_stream(client)


def test_of_many_shards_the_oldest_are_one_bar() -> None:
    timeline = [TraceEvent(k, "reduce", f"op{k}", 1, float(k), 0.5, 0) for k in range(100)]
    timeline.insert(50, TraceEvent(100, "alloc", "x", 1, 49.5, 0.1, 8))
    timeline.append(TraceEvent(101, "spill", "x", 1, 100.0, 1.0, 8))
    whole = list_entries(timeline, {}, 1, 101)
    assert len(whole) == 101 and whole[-1] == (
        ("outputs", "behind the last shard", "device 1"),
        [("disk-write", 100.0, 101.0)],
    )
    for most in (1, 2, 10, 100):
        found = list_entries(timeline, {}, 1, most)
        assert sum(len(bars) for _, bars in found) == most and found[1:] == whole[102 - most :]
        (_, told, _), (bar,) = found[0]
        assert told == f"{102 - most} entries that are not shown one by one"
        assert bar == ("compute", 0.0, 101.0 if most == 1 else 101.5 - most)
    late = list_messages([(whole[:2], "a", 10.0), (whole[:1], "b", 8.0)])
    assert [(one["worker"], one["startstops"][0]["start"]) for one in late] == [("b", 8.0), ("a", 10.0), ("a", 11.0)]
