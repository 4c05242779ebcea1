"""A run whose arenas do not fit into free memory is refused before anything is allocated."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tapestry_exec import deploy, run
from tapestry_exec.numpy import NumpyBackend
from tapestry_exec.run import PreparedPlan, free_nbytes, room
from tapestry_plan import Graph, Mesh, ShardPlan, ops, plan


def machine(
    place: Path, monkeypatch: pytest.MonkeyPatch, groups: dict[str, str], entry: str, available: int = 10**9
) -> None:
    """Files of a system with so much memory available, in kB, this memory group and files of groups."""
    (place / "proc/self").mkdir(parents=True)
    (place / "proc/meminfo").write_text(f"MemTotal: 99999999999 kB\nMemAvailable:   {available // 1024} kB\n")
    (place / "proc/self/cgroup").write_text(entry)
    for name, text in groups.items():
        (place / "groups" / name).parent.mkdir(parents=True, exist_ok=True)
        (place / "groups" / name).write_text(text)
    monkeypatch.setattr(room, "PROC", str(place / "proc"))
    monkeypatch.setattr(room, "CGROUPS", str(place / "groups"))


V2 = {"a/memory.max": "max\n", "a/b/memory.max": "5000\n", "a/b/memory.current": "3000\n"}
V1 = {"memory/memory.limit_in_bytes": "7000\n", "memory/memory.usage_in_bytes": "6000\n"}


@pytest.mark.parametrize(
    "groups, entry, free",
    [
        ({}, "", 1024 * 1024),
        (V2, "0::/a/b\n", 2000),
        (V2 | {"a/b/memory.stat": "anon 5\ninactive_file 500\n"}, "0::/a/b\n", 2500),
        ({"memory.max": "400", "memory.current": "100"} | V2, "0::/a/b\n", 300),
        ({"memory.max": "400", "memory.current": "600"}, "0::/../elsewhere\n", 0),
        (V1, "5:cpu:/x\n4:memory,hugetlb:/docker/3f\n", 1000),
        (V1 | {"memory/memory.stat": "inactive_file 1\ntotal_inactive_file 200\n"}, "4:memory:/\n", 1200),
        ({"memory.max": "max"}, "0::/\n", 1024 * 1024),
    ],
)
def test_what_the_system_says(
    groups: dict[str, str], entry: str, free: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine(tmp_path, monkeypatch, groups, entry, 1024 * 1024)
    assert free_nbytes() == free


def test_nothing_is_refused_where_the_system_does_not_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "PROC", str(tmp_path))
    monkeypatch.setattr(room, "CGROUPS", str(tmp_path))
    assert free_nbytes() is None
    room.check_room([10**15])


def two_halves(n: int = 1000) -> ShardPlan:
    g = Graph()
    g.output(ops.relu(g.input("x", (n,))), "y")
    return plan(g, Mesh(2))


def test_arenas_are_compared_before_they_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    p, x = two_halves(), np.ones(1000, np.float32)
    needed = sum(PreparedPlan(p).arenas_nbytes)
    backend = NumpyBackend()
    monkeypatch.setattr(room, "free_nbytes", lambda: needed - 1)
    message = f"the arenas of 2 devices, all in this process, take {needed:,} bytes, but {needed - 1:,} are free"
    with pytest.raises(MemoryError, match=message):
        run(p, {"x": x}, backend=backend)
    assert not backend._closed
    monkeypatch.setattr(room, "free_nbytes", lambda: needed)
    run(p, {"x": x}, backend=backend)
    monkeypatch.setattr(room, "free_nbytes", lambda: 0)
    assert run(p, {"x": x}, backend=backend).outputs["y"].sum() == 1000, "its arenas are there already"


def test_less_memory_for_arenas_is_room_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    g = Graph()
    first = ops.exp(g.input("x", (64, 64)))
    h = first
    for _ in range(4):
        h = ops.tanh(h[::-1])  # which overwrites nothing
    g.output(first, "first")
    g.output(h, "last")
    p = plan(g, Mesh(1), fuse=False)
    monkeypatch.setattr(room, "free_nbytes", lambda: p.peak_nbytes[0] - 1)
    x = {"x": np.zeros((64, 64), np.float32)}
    with pytest.raises(MemoryError, match="memory_nbytes"):
        run(p, x)
    run(p, x, memory_nbytes=p.peak_nbytes[0] - 1)


@pytest.mark.skipif(sys.platform != "linux", reason="limits of address space are known on Linux")
def test_a_limit_of_the_process_counts() -> None:
    text = """
import numpy as np
from tapestry_exec import deploy, run
from tapestry_plan import Graph, Mesh, ops, plan
g = Graph()
g.output(ops.relu(g.input("x", (2**28,))[::-1]), "y")
try:
    run(plan(g, Mesh(1)), {"x": np.broadcast_to(np.float32(0), (2**28,))[:]})
except MemoryError as error:
    print(error)
"""
    most = 2**31
    found = subprocess.run(
        [sys.executable, "-c", text.replace("np.broadcast_to(np.float32(0), (2**28,))[:]", "np.empty(2**28, 'f4')")],
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (most, most)),
    )
    assert "take 2,147,483,648 bytes, but " in found.stdout, found


def test_inputs_are_copied_after_there_is_room_for_arenas(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broadcast of one number may stand for more cells than any memory has."""
    p = two_halves()
    arenas, wide = sum(PreparedPlan(p).arenas_nbytes), np.broadcast_to(np.float32(1), (1000,))
    copies: list[int] = []
    evaluating = sys.modules["tapestry_exec.run.evaluate"]  # the door has the function of that name
    monkeypatch.setattr(evaluating, "make_contiguous", lambda array: (copies.append(array.nbytes), np.array(array))[1])
    monkeypatch.setattr(room, "free_nbytes", lambda: arenas - 1)
    with pytest.raises(MemoryError, match="the arenas of 2 devices"):
        run(p, {"x": wide})
    assert not copies
    monkeypatch.setattr(room, "free_nbytes", lambda: arenas)
    assert run(p, {"x": wide}).outputs["y"].tolist() == [1.0] * 1000
    assert copies == [4000]


def test_copies_of_inputs_are_compared_with_free_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before they are made, and the arenas again with what is left beside them."""
    p, wide = two_halves(), np.broadcast_to(np.float32(1), (1000,))
    backend = NumpyBackend()
    run(p, {"x": wide}, backend=backend)  # its arenas stay, and need no room in the next run
    monkeypatch.setattr(room, "free_nbytes", lambda: 3999)
    message = "inputs that are not contiguous are copied, which takes 4,000 bytes, the most of them for 'x', but 3,999"
    with pytest.raises(MemoryError, match=message):
        run(p, {"x": wide}, backend=backend)
    run(p, {"x": np.array(wide)}, backend=backend)
    arenas = sum(PreparedPlan(p).arenas_nbytes)
    left = iter([arenas, 4000, arenas - 1])
    monkeypatch.setattr(room, "free_nbytes", lambda: next(left))
    with pytest.raises(MemoryError, match="the arenas of 2 devices"):
        run(p, {"x": wide})


def test_outputs_that_do_not_fit_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Views of little, which are brought whole: before the run, and where the system says nothing, behind it."""
    g = Graph()
    x = g.input("x", (1, 1))
    g.output(x.broadcast_to((2**30, 2**30)), "huge")
    g.output(ops.relu(x), "little")
    p, feeds = plan(g, Mesh(1)), {"x": np.ones((1, 1), np.float32)}
    said = r"run: the outputs take 4,611,686,018,427,387,912 bytes, the most of them 'huge', but [\d,]+ are free"
    with pytest.raises(MemoryError, match=said):
        run(p, feeds)
    with deploy(p, outputs=["little"]) as placed:
        assert placed.run(feeds).outputs["little"].tolist() == [[1.0]]
        assert placed.run(feeds, verify=True).difference == {"little": 0.0}
    monkeypatch.setattr(room, "free_nbytes", lambda: None)
    with pytest.raises(MemoryError, match=r"run: output 'huge' takes [\d,]+ bytes, for which there is no memory; give"):
        run(p, feeds)
