"""The makespan of plans: against a simulator with a clock, dependencies found pair by pair, and its laws."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tapestry_plan import Device, Graph, Link, Mesh, ShardPlan, ops, plan
from tapestry_plan.steps import (
    Alloc,
    Compute,
    Copy,
    Fetch,
    Free,
    QueuedStep,
    Reduce,
    Spill,
    least_memory,
    list_queued,
    spill,
)
from tapestry_plan.steps.step import HOST, Step

LINKS = (Link(1e-6, 1e9), Link(0.0, 1e8), Link(1e-7, 1e11))


def made(seed: int, mesh: Mesh) -> ShardPlan:
    """A plan of products, turned tensors and sums in layouts that move much."""
    g = Graph()
    h = x = g.input("x", (12, 8))
    for k in range(3):
        h = h @ g.input(f"w{k}", (h.shape[1], 8 + 4 * (seed >> k & 1)))
        h = ops.relu(h + h.flip(0) if seed >> (k + 3) & 1 else h, name=f"r{k}")
    g.output(ops.add(h, h, name="y") if h.shape != x.shape else ops.add(h, x.flip(1), name="y"))
    axes, parts = (("k", "m", "n")[seed % 3], mesh.size)
    fix = {"matmul": {axes: min(parts, 8)}, "r1": {"i1" if seed & 64 else "i0": min(parts, 4)}}
    return plan(g, mesh, fix=fix, expand=False, placement="single" if seed & 128 else "free")


MESHES = [
    Mesh(2, link=LINKS[0]),
    Mesh(4, link=LINKS[1], device=Device(1e9, 1e9, 1e-6)),
    Mesh((2, 2), link=LINKS[1:]),
    Mesh(3, link=LINKS[0], device=[Device(1e9), Device(2e9, 1e9, 1e-6), Device(5e8)]),
]
PLANS = settings(max_examples=max(6, settings.default.max_examples // 16), deadline=None)


# -- an oracle of its own --------------------------------------------------------------------------------------


def uses_of(step: Step) -> tuple[set[int], set[int]]:
    """The buffers that a step reads, and those that it writes."""
    if isinstance(step, Copy):
        return {step.src} - {HOST}, {step.dst}
    if isinstance(step, Compute):
        scratch = set() if step.workspace is None else {step.workspace}
        return {n for n in step.inputs if n is not None}, {*step.outputs, *scratch}
    if isinstance(step, Reduce):
        return {*step.inputs}, {step.output}
    if isinstance(step, Spill):
        return {step.buffer}, set()
    assert isinstance(step, Fetch)
    return set(), {step.buffer}


def depends(p: ShardPlan, early: int, late: int) -> bool:
    """Whether one step must wait for another: it reads what that wrote, or writes where that read or wrote before."""
    a, b = p.steps[early], p.steps[late]
    (reads, writes), (reads_now, writes_now) = uses_of(a), uses_of(b)
    if writes & reads_now or reads & writes_now:
        return True
    if isinstance(a, Spill) and isinstance(b, Fetch) and b.spilled == a.buffer:
        return True
    buffers = {buffer.id: buffer for buffer in p.buffers}

    def root(n: int) -> int:
        within = buffers[n].within
        return n if within is None else root(within.buffer)

    def place(n: int) -> tuple[int, range]:
        n = root(n)
        return buffers[n].device, range(buffers[n].offset, buffers[n].offset + -(-buffers[n].nbytes // 64) * 64)

    for n, now in product(reads | writes, reads_now | writes_now):
        (device, old), (there, new) = place(n), place(now)
        if root(n) != root(now) and device == there and max(old.start, new.start) < min(old.stop, new.stop):
            return True  # both lived there, so one was gone before the other came
    return False


def simulate(operations: Sequence[QueuedStep]) -> float:
    """A clock that goes from event to event; a queue runs its operations in order."""
    left = list(range(len(operations)))
    ends: dict[int, float] = {}
    clock = 0.0
    while left:
        started = True
        while started:  # all that may start now
            started, taken = False, set()
            for k in list(left):
                one = operations[k]
                ready = all(ends.get(j, float("inf")) <= clock for j in one.after)
                busy = any(
                    queue in other.queues and ends[j] > clock
                    for j, other in enumerate(operations)
                    if j in ends
                    for queue in one.queues
                )
                if ready and not busy and taken.isdisjoint(one.queues):
                    ends[k] = clock + one.seconds
                    left.remove(k)
                    started = True
                taken.update(one.queues)
        later = [end for end in ends.values() if end > clock]
        clock = min(later) if later else clock
    return max(ends.values(), default=0.0)


@PLANS
@given(st.integers(0, 255), st.sampled_from(MESHES))
@example(64 + 9, MESHES[1])
@example(3, MESHES[3])
def test_laws_of_the_makespan(seed: int, mesh: Mesh) -> None:
    p = made(seed, mesh)
    found, operations = p.schedule, operations_of(p)
    assert found.seconds == p.makespan_seconds == pytest.approx(simulate(operations), rel=1e-9)
    # no less than any queue and any chain takes
    busy: dict[object, float] = {}
    for one in operations:
        for queue in one.queues:
            busy[queue] = busy.get(queue, 0.0) + one.seconds
    assert found.busy_seconds == pytest.approx(busy) and found.seconds >= max(busy.values()) * (1 - 1e-12)
    alone = [replace_queues(one) for one in operations]
    assert found.critical_seconds == pytest.approx(simulate(alone), rel=1e-9)
    assert found.critical_seconds <= found.seconds * (1 + 1e-12)
    # no more than stage after stage, each simulated by itself
    order = list(dict.fromkeys(one.node for one in operations))
    total = 0.0
    for node in order:
        mine = [k for k, one in enumerate(operations) if one.node == node]
        inside = {k: place for place, k in enumerate(mine)}
        part = [
            operations[k]._replace(after=frozenset(inside[j] for j in operations[k].after if j in inside)) for k in mine
        ]
        total += simulate(part)
    assert found.seconds <= total * (1 + 1e-12)
    work = [sum(one.seconds for one in operations if ("work", d, 0) in one.queues) for d in range(mesh.size)]
    assert max(work) <= p.seconds * (1 + 1e-9) + 1e-11 * len(p.stages)


def operations_of(p: ShardPlan) -> list[QueuedStep]:
    return list_queued(p.steps, p.buffers, p.mesh, {stage.node: stage.work_seconds for stage in p.stages})


def replace_queues(one: QueuedStep) -> QueuedStep:
    """With a queue of its own."""
    return one._replace(queues=(("work", -1 - one.at, 0),))


@PLANS
@given(st.integers(0, 255), st.sampled_from(MESHES), st.booleans())
@example(64 + 9, MESHES[1], True)
def test_dependencies_are_those_of_the_steps(seed: int, mesh: Mesh, spills: bool) -> None:
    p = made(seed, mesh)
    if spills:
        p = spill(p, max(least_memory(p)))
    operations = operations_of(p)
    timed = [at for at, step in enumerate(p.steps) if not isinstance(step, Alloc | Free)]
    assert sorted(one.at for one in operations) == timed
    place = {one.at: k for k, one in enumerate(operations)}
    reach: list[set[int]] = []
    for k, one in enumerate(operations):
        assert all(j < k for j in one.after)
        reach.append(set(one.after).union(*(reach[j] for j in one.after)))
    for early, late in ((a, b) for k, b in enumerate(timed) for a in timed[:k]):
        if depends(p, early, late):
            assert place[early] in reach[place[late]], (p.steps[early], p.steps[late])
    for k, one in enumerate(operations):
        assert all(depends(p, operations[j].at, one.at) for j in one.after if j < k)


# -- figures known by hand -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kept", [True, False])
def test_a_copy_beside_work_takes_no_time_of_its_own(kept: bool) -> None:
    """Each device works on its half of `a`, then of `c`; meanwhile the halves of `a` cross, which `b` needs."""
    g = Graph()
    z = g.input("z", (1000, 10))
    a = ops.relu(g.input("x", (1000, 10)), name="a")
    c = ops.relu(z.flip(1), name="c")  # which does not overwrite it
    g.output(ops.add(ops.relu(a.flip(0), name="b"), c, name="d"))
    if kept:
        g.output(z, "z")
    mesh = Mesh(2, link=Link(1e-6, 1e10), device=Device(1e9, 1e30))
    p = plan(g, mesh, fix={name: {"i0": 2} for name in "acbd"}, expand=False, space="mesh")
    stages = {name: p.stage[name].seconds for name in "acbd"}
    assert stages == pytest.approx({"a": 5e-6, "c": 5e-6, "b": 5e-6 + 1e-6 + 2e-6, "d": 5e-6})
    assert p.seconds == pytest.approx(23e-6)
    # 3 us of messages beside 5 us of work; but where z is gone, its place is taken for what arrives, after `c`
    assert p.makespan_seconds == pytest.approx(20e-6 if kept else 23e-6)
    assert p.schedule.busiest in {("work", 0, 0), ("work", 1, 0)}


def test_an_exchange_goes_round_by_round() -> None:
    """Rows to columns on four devices: three rounds of equal messages, as the plan's sum has them."""
    g = Graph()
    x = g.input("x", (64, 64))
    g.output(ops.relu(ops.relu(x, name="a"), name="b"))
    mesh = Mesh(4, link=Link(1e-6, 1e9), device=Device(1e12, 1e30))
    p = plan(g, mesh, fix={"a": {"i0": 4}, "b": {"i1": 4}}, expand=False)
    message = 1e-6 + 16 * 16 * 4 / 1e9
    assert p.makespan_seconds == pytest.approx(p.seconds) == pytest.approx(2 * 1024 / 1e12 + 3 * message)


def test_a_document_has_the_schedule_of_its_plan() -> None:
    g = Graph()
    g.output(ops.relu(g.input("x", (4, 4))))
    p = plan(g, Mesh(2))
    assert ShardPlan.from_json(p.to_json()).makespan_seconds == p.makespan_seconds > 0
    empty = Graph()
    empty.output(empty.input("x", (4,)), "y")
    assert plan(empty, Mesh(2)).makespan_seconds == 0
