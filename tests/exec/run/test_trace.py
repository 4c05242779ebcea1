"""Chrome traces, read back by a reader that knows nothing of the writer, against what the run counted."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from tapestry_exec import CupyBackend, ProcessBackend, RunResult, TraceEvent, run, write_trace
from tapestry_plan import Graph, Mesh, ShardPlan, plan
from tapestry_plan.ops import conv, relu
from tapestry_plan.steps import Alloc, Copy, Free
from tapestry_sets.limits import Units
from tests.exec.run.test_progress import made

SLACK = 1e-3
"""Microseconds by which rounding may move the end of a bar."""


def halos() -> tuple[ShardPlan, dict[str, np.ndarray]]:
    g = Graph()
    y = g.input("x", (1, 3, 12, 10))
    rng = np.random.default_rng(2)
    for k in range(3):
        w = g.constant(f"w{k}", rng.standard_normal((3, 3, 3, 3)).astype(np.float32))
        y = relu(conv(y, w, pads=(1, 1, 1, 1), name=f"conv{k}"), name=f"act{k}")
    g.output(y, "y")
    p = plan(g, Mesh((4,)), fix={f"conv{k}": {"h": 4} for k in range(3)})
    return p, {"x": rng.standard_normal((1, 3, 12, 10)).astype(np.float32)}


def whole() -> tuple[ShardPlan, dict[str, np.ndarray]]:
    """One device: nothing moves."""
    g = Graph()
    g.output(relu(g.input("x", (4, 4)), name="act"), "y")
    return plan(g, Mesh((1,))), {"x": np.ones((4, 4), np.float32)}


def chain() -> tuple[ShardPlan, dict[str, np.ndarray]]:
    """Tensors that are idle for a while, so that they can wait in host memory."""
    g = Graph()
    first = relu(g.input("x", (64, 64)), name="first")
    second = y = relu(first, name="second")
    for k in range(4):
        y = g.op("add", y[::-1], y[::-1], name=f"twice{k}")  # which overwrites nothing
    g.output(y + second + first, "y")
    return plan(g, Mesh((2,)), fuse=False), {"x": np.ones((64, 64), np.float32)}


class Trace:
    """A trace file, checked while it is read.

    Raises
    ------
    AssertionError
        When it is not a trace that a viewer shows as it is meant.
    """

    def __init__(self, path: Path) -> None:
        entries = json.loads(path.read_bytes(), parse_constant=refuse)["traceEvents"]
        self.spans = [entry for entry in entries if entry["ph"] == "X"]
        self.named = {
            (entry["pid"], entry.get("tid") if entry["name"].startswith("thread") else None): entry["args"]
            for entry in entries
            if entry["ph"] == "M" and entry["name"] in ("process_name", "thread_name")
        }
        self.counters: dict[tuple[int, str], list[tuple[float, int]]] = defaultdict(list)
        for entry in entries:
            if entry["ph"] == "C":
                (value,) = entry["args"].values()
                self.counters[entry["pid"], entry["name"]].append((entry["ts"], value))
        self.arrows = {mark: [entry for entry in entries if entry["ph"] == mark] for mark in "sf"}
        assert {entry["ph"] for entry in entries} <= set("XMCsf")
        assert [e["ts"] for e in entries if "ts" in e] == sorted(e["ts"] for e in entries if "ts" in e)
        self.check_rows()
        self.check_arrows()

    def check_rows(self) -> None:
        rows: dict[tuple[int, int], list[tuple[float, float]]] = defaultdict(list)
        for span in self.spans:
            assert span["ts"] >= 0 and span["dur"] >= 0, f"a bar of {span['dur']} microseconds at {span['ts']}"
            assert self.named[span["pid"], None]["name"] == f"device {span['pid']}"
            assert self.named[span["pid"], span["tid"]]["name"] == span["cat"]
            rows[span["pid"], span["tid"]].append((span["ts"], span["ts"] + span["dur"]))
        for row in rows.values():
            row.sort()
            for (_, end), (start, _) in pairwise(row):
                assert start >= end - SLACK, "two bars of a row overlap"

    def check_arrows(self) -> None:
        """Each begins in a pack of one device and ends in an unpack of another one, later."""
        ends = {entry["id"]: entry for entry in self.arrows["f"]}
        assert len(ends) == len(self.arrows["f"]) == len(self.arrows["s"])
        for begin in self.arrows["s"]:
            end = ends[begin["id"]]
            assert begin["ts"] <= end["ts"] and begin["pid"] != end["pid"] and end["bp"] == "e"
            for entry, kind in ((begin, "pack"), (end, "unpack")):
                assert any(
                    (span["cat"], span["pid"], span["tid"]) == (kind, entry["pid"], entry["tid"])
                    and span["ts"] - SLACK <= entry["ts"] <= span["ts"] + span["dur"] + SLACK
                    for span in self.spans
                ), entry

    def nbytes(self, *kinds: str) -> Counter[int]:
        """Bytes of the bars of some kinds, by device."""
        total: Counter[int] = Counter()
        for span in self.spans:
            if span["cat"] in kinds:
                total[span["pid"]] += span["args"]["nbytes"]
        return total

    def last(self, name: str) -> Counter[int]:
        """The last value of a counter, by device."""
        return Counter({device: values[-1][1] for (device, found), values in self.counters.items() if found == name})


def refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is not JSON")


def check(trace: Trace, r: RunResult) -> None:
    """What the bars and the counters say is what the run counted."""
    for name, kinds, counted in (
        ("bytes received", ("move",), r.nbytes_received),
        ("bytes placed", ("place",), r.nbytes_placed),
        ("bytes spilled", ("spill", "fetch"), r.nbytes_spilled),
    ):
        expected = Counter({device: nbytes for device, nbytes in enumerate(counted) if nbytes})
        assert trace.nbytes(*kinds) == trace.last(name) == expected, name
        for device in expected:
            values = [value for _, value in trace.counters[device, name]]
            assert values == sorted(values)
    links: Counter[tuple[int, int]] = Counter()
    for span in trace.spans:
        if span["cat"] == "move":
            assert span["pid"] == span["args"]["dst"]
            links[span["args"]["src"], span["args"]["dst"]] += span["args"]["nbytes"]
    assert links == r.nbytes_by_link
    for device, peak in enumerate(r.peak_nbytes):
        held = [value for _, value in trace.counters[device, "bytes in the arena"]]
        assert min(held) >= 0 and 0 < max(held) <= peak


@pytest.mark.parametrize("case", [made, halos, whole])
def test_a_trace_says_what_the_run_counted(backend: str | CupyBackend, case: Any, tmp_path: Path) -> None:
    p, inputs = case()
    r = run(p, inputs, trace=tmp_path / "t.json", backend=backend)
    trace = Trace(tmp_path / "t.json")
    check(trace, r)
    assert (r.nbytes_moved > 0) == (len(trace.arrows["s"]) > 0) == (p.mesh.size > 1)
    assert {span["args"]["step"] for span in trace.spans} == set(range(len(p.steps)))
    kinds = {span["cat"] for span in trace.spans}
    assert kinds >= {"place", "compute", "alloc", "free"} | ({"pack", "move", "unpack"} if r.nbytes_moved else set())
    phases = {part.kind for event in r.timeline for part in event.phases}
    assert kinds - {"copy"} == phases | {event.kind for event in r.timeline} - {"copy"}


def test_a_trace_says_what_was_spilled(backend: str | CupyBackend, tmp_path: Path) -> None:
    p, inputs = chain()
    r = run(p, inputs, memory_nbytes=max(p.peak_nbytes) - 1, trace=tmp_path / "t.json", backend=backend)
    assert sum(r.nbytes_spilled) > 0
    check(Trace(tmp_path / "t.json"), r)


def test_the_arena_counter_follows_the_steps(backend: str | CupyBackend, tmp_path: Path) -> None:
    """Against the plan's own steps, added up one by one."""
    p, inputs = halos()
    run(p, inputs, trace=tmp_path / "t.json", backend=backend)
    known, live, expected = {b.id: b for b in p.buffers}, set[int](), defaultdict[int, list[int]](list)
    for step in p.steps:
        if isinstance(step, Alloc | Free):
            live ^= {step.buffer}
            device = known[step.buffer].device
            mine = [b for b in map(known.__getitem__, live) if b.device == device and b.within is None]
            places = {b.offset: -(-b.nbytes // 64) * 64 for b in mine}  # two may have one, for a step
            expected[device].append(sum(places.values()))
    trace = Trace(tmp_path / "t.json")
    for device, values in expected.items():
        assert [value for _, value in trace.counters[device, "bytes in the arena"]] == values


def test_the_phases_of_a_copy_are_on_the_devices_that_do_them(backend: str | CupyBackend) -> None:
    p, inputs = halos()
    r = run(p, inputs, backend=backend)
    device = {buffer.id: buffer.device for buffer in p.buffers}
    for event, step in zip(r.timeline, p.steps, strict=True):
        if not isinstance(step, Copy) or step.src < 0:
            assert event.phases == ()
            continue
        crosses = device[step.src] != device[step.dst]
        assert [part.kind for part in event.phases] == (["pack", "move", "unpack"] if crosses else [])
        if crosses:
            assert [part.device for part in event.phases] == [device[step.src], device[step.dst], device[step.dst]]
            assert event.start <= event.phases[0].start
            ends = [part.start + part.seconds for part in event.phases]
            assert ends[-1] <= event.start + event.seconds + 1e-9
            assert ends[:-1] == pytest.approx([part.start for part in event.phases[1:]])


# -- the reader finds what is wrong ----------------------------------------------------------------------


def written(timeline: Sequence[TraceEvent], path: Path) -> Trace:
    write_trace(timeline, path)
    return Trace(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"nbytes": 4}, "bytes placed|bytes received"),
        ({"seconds": -1.0}, "a bar of -1000000.0 microseconds"),
        ({"seconds": 1e3}, "two bars of a row overlap"),
    ],
)
def test_a_wrong_event_is_found(
    backend: str | CupyBackend, change: dict[str, Any], message: str, tmp_path: Path
) -> None:
    p, inputs = halos()
    r = run(p, inputs, backend=backend)
    check(written(r.timeline, tmp_path / "t.json"), r)
    wrong = next(event for event in r.timeline if event.kind == "place")
    doctored = [event._replace(**change) if event is wrong else event for event in r.timeline]
    with pytest.raises(AssertionError, match=message):
        check(written(doctored, tmp_path / "t.json"), r)


def test_a_lost_move_is_found(backend: str | CupyBackend, tmp_path: Path) -> None:
    p, inputs = halos()
    r = run(p, inputs, backend=backend)
    lost = next(event for event in r.timeline if event.phases)
    with pytest.raises(AssertionError, match="bytes received"):
        check(written([event for event in r.timeline if event is not lost], tmp_path / "t.json"), r)


@pytest.mark.parametrize("way", ["threads", "processes"])
def test_who_was_waited_for(way: str, tmp_path: Path) -> None:
    """Device 0 dozes before it sends what the others need: they stand still for it, it does not for them."""
    # What other packages are needed for is imported here: the tests on GPUs import this module with few of them.
    from tests.exec.own_ops import Sabotage, as_relu
    from tests.exec.run.test_side_by_side import made as partial_sums
    from tests.ways_of_running import Threads

    p, inputs = partial_sums(3)
    backend = Threads() if way == "threads" else ProcessBackend()
    r = run(p, inputs, backend=backend, ops=as_relu(Sabotage(["dozing"], str(tmp_path))))
    first = {device: max(wait.seconds for wait in r.waits if wait.device == device) for device in range(3)}
    assert min(first[1], first[2]) > 0.1 and {wait.peer for wait in r.waits[:2]} == {0}
    device, seconds = next(iter(r.waited_for.items()))
    assert device == 0 and 0.2 < seconds < 2 * r.seconds
    received = {event.step: event.nbytes for event in r.timeline if event.phases}
    assert {wait.step: wait.nbytes for wait in r.waits} == received and sum(received.values()) == p.nbytes_moved
    assert all(0 <= wait.start <= wait.start + wait.seconds <= r.seconds for wait in r.waits)


def test_nobody_waits_in_one_loop(tmp_path: Path) -> None:
    from tests.exec.own_ops import Sabotage, as_relu
    from tests.exec.run.test_side_by_side import made as partial_sums

    p, inputs = partial_sums(3)
    r = run(p, inputs, backend="serial", ops=as_relu(Sabotage(["dozing"], str(tmp_path))))
    assert r.seconds > 0.2 and len(r.waits) > 3 and sum(r.waited_for.values()) < 0.1


def test_how_far_clocks_are_off_is_stated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from tapestry_exec.cli.printing import print_run  # the suite for a GPU has no command line, and imports this module

    p, inputs = halos()
    r = replace(run(p, inputs), clock_error=0.0021)
    write_trace(r.timeline, tmp_path / "t.json", r.clock_error)
    assert json.loads((tmp_path / "t.json").read_bytes())["otherData"] == {"clock_error_us": 2100.0}
    assert "by clocks that are off by at most 2.1 ms" in r._repr_html_()
    print_run(p, r, Units())
    assert "times of devices that have other clocks are off by at most 2.1 ms" in capsys.readouterr().out
