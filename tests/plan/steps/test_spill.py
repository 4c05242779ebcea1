"""Plans in less memory: followed byte by byte, and against the least traffic over all choices of what to spill."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tapestry_plan import HOST, Graph, InfeasiblePlan, Link, Mesh, ShardPlan, Tensor, least_memory, plan
from tapestry_plan.ops import add, matmul, relu
from tapestry_plan.steps import Alloc, Copy, Fetch, Free, Spill, spill
from tests.spilling import (
    Program,
    apart,
    caps_between,
    fewest_nbytes,
    followed,
    needed_at_once,
    planned,
    programs,
    seeded_program,
    tight_memory,
    touched,
)

FEW = settings(max_examples=max(60, settings.default.max_examples // 10))


def plus(a: Tensor, b: Tensor) -> Tensor:
    """A sum that overwrites nothing: what is read in reverse is not at its own cells."""
    return add(a[..., ::-1], b[..., ::-1])


def waiting(devices: int = 1, **mesh: Any) -> ShardPlan:
    """Two tensors wait while others are made and used."""
    g = Graph()
    first = relu(g.input("x", (64, 64)), name="first")
    second = y = relu(first, name="second")
    for k in range(4):
        y = add(y[:, ::-1], y[:, ::-1], name=f"twice{k}")
    g.output(plus(plus(y, second), first), "y")
    return plan(g, Mesh(devices, **mesh), fuse=False)


# -- what is spilled, against the steps one by one -----------------------------------------------------------


@pytest.mark.heavy(2)
@FEW
@given(programs(), st.floats(0, 1))
@example((1, [(6, 4, 0, False), (5, 5, 0, False)], [(5, False), (6, False)], False), 0.0)
@example((2, [(6, 0, 0, True), (7, 2, 0, False), (7, 6, 0, False)], [(0, True), (7, False)], False), 0.0)
@example((2, [(0, 0, 0, True), (0, 0, 1, False)], [(0, False)], True), 0.0)
def test_what_a_plan_does_stays_as_it_was(program: Program, share: float) -> None:
    """Every step reads what it read before, no byte has two owners, and the counts are those of the steps."""
    made = planned(program)
    p = apart(made)
    low, high = tight_memory(p), max(p.peak_nbytes)
    memory = int(low + share * (high - low))
    q = spill(made, memory)
    if memory >= max(made.peak_nbytes):
        assert q is made
        return
    wanted, found = followed(p), followed(q)
    assert (found.acts, found.outputs, found.moved) == (wanted.acts, wanted.outputs, wanted.moved)
    assert found.moved == q.nbytes_by_link == p.nbytes_by_link
    assert tuple(found.peak) == q.peak_nbytes and max(found.peak) <= memory
    assert tuple(found.spilled) == q.nbytes_spilled
    assert tuple(found.placed) == q.nbytes_placed and wanted.placed == list(p.nbytes_placed)
    assert found.placed == [
        less if peak > memory else whole
        for less, whole, peak in zip(placed_and_used(p), wanted.placed, p.peak_nbytes, strict=True)
    ]
    assert sum(stage.seconds for stage in q.stages) == pytest.approx(q.seconds, rel=1e-9)
    assert (q.nbytes_received, q.flop, q.placement) == (p.nbytes_received, p.flop, p.placement)
    assert all(one <= most for one, most in zip(found.spilled, used_nbytes(p), strict=True))
    assert not any(n for n, peak in zip(found.spilled, p.peak_nbytes, strict=True) if peak <= memory)


def placed_and_used(p: ShardPlan) -> list[int]:
    """Bytes by device that are placed in blocks that a step uses or an output is read from."""
    used = {n for out in p.outputs for n, _ in (*out.blocks, *out.replicas)}
    used.update(n for step in p.steps for n in touched(step)[0])
    buffers = {b.id: b for b in p.buffers if b.id in used}
    placed = [0] * p.mesh.size
    for step in p.steps:
        if isinstance(step, Copy) and step.src == HOST and step.piece is None and step.dst in buffers:
            target = buffers[step.dst]
            cells = sum(len(region.points()) for region in step.regions)
            placed[target.device] += cells * np.dtype(target.dtype).itemsize
    return placed


def used_nbytes(p: ShardPlan) -> list[int]:
    """Bytes by device if every block came before each of its uses and went after it; outputs are used at the end."""
    nbytes = {b.id: (b.device, b.nbytes) for b in p.buffers}
    outputs = {n for out in p.outputs for n, _ in (*out.blocks, *out.replicas)}
    most = [0] * p.mesh.size
    for number in (*outputs, *(n for step in p.steps for n in touched(step)[0])):
        most[nbytes[number][0]] += 2 * nbytes[number][1]
    return most


@FEW
@given(programs())
def test_the_least_memory_is_what_one_step_uses(program: Program) -> None:
    p = apart(planned(program))
    assert (
        least_memory(p)
        == least_memory(planned(program))
        == tuple(needed_at_once(p, device) for device in range(p.mesh.size))
    )


@pytest.mark.heavy(2)
@FEW
@given(programs(), st.integers(1, 200))
def test_less_than_one_step_uses_is_refused(program: Program, less: int) -> None:
    """The message names the device, the step, the bytes that it needs, and what to do."""
    p = apart(planned(program))
    needs = [needed_at_once(p, device) for device in range(p.mesh.size)]
    device = needs.index(max(needs))
    with pytest.raises(InfeasiblePlan) as error:
        spill(p, max(0, max(needs) - less))
    text = str(error.value)
    assert f"device {device} needs {max(needs):,} B at once in " in text
    assert "which no spilling makes smaller; give at least" in text
    listed = text.partition("it uses ")[2].partition(", in whole lines of 64 B")[0]
    assert sum(int(n.replace(",", "")) for n in re.findall(r"([\d,]+) B(?!\w)", listed)) == max(needs)
    busy = [k for k, step in enumerate(p.steps) if sum(sizes(p, device, touched(step)[0])) == max(needs)]
    assert any(f"in step {k}, " in text for k in busy) or "the plan's outputs" in text


def sizes(p: ShardPlan, device: int, used: set[int]) -> list[int]:
    return [-(-b.nbytes // 64) * 64 for b in p.buffers if b.device == device and b.id in used]


def test_the_buffers_of_a_wide_step_are_named_or_counted() -> None:
    """Eleven parts are merged at once: six buffers are named, and of the others there are as many as it says."""
    g = Graph()
    g.output(g.op("matmul", g.input("x", (36, 64)), g.input("w", (64, 36)), name="y"), "out")
    p = plan(g, Mesh((11,)), fix={"y": {"k": 11}})
    with pytest.raises(InfeasiblePlan) as error:
        spill(p, 64)
    text = str(error.value)
    device, step = (int(re.search(rf"{word} (\d+)", text)[1]) for word in ("device", "in step"))  # type: ignore[index]
    listed, _, more = text.partition("it uses ")[2].partition(" and ")
    used = [n for n in touched(p.steps[step])[0] if p.buffers[n].device == device]
    assert len(used) == 12 and len(listed.split(" B, ")) == 6
    assert more.startswith(f"6 more of {sum(sorted(sizes(p, device, used))[:6]):,} B, in whole lines")


def test_a_plan_that_fits_stays() -> None:
    p = waiting(2)
    assert spill(p, max(p.peak_nbytes)) is p
    assert spill(p, list(p.peak_nbytes)) is p


def test_each_device_has_its_own_memory() -> None:
    p = waiting(2)
    q = spill(p, (p.peak_nbytes[0], least_memory(p)[1]))
    assert q.nbytes_spilled[0] == 0 < q.nbytes_spilled[1]
    assert q.peak_nbytes[0] == p.peak_nbytes[0] and q.peak_nbytes[1] <= least_memory(p)[1]
    ours = [(s, b) for s, b in ((s, s.buffer) for s in q.steps if isinstance(s, Spill | Fetch))]
    devices = {buffer.id: buffer.device for buffer in q.buffers}
    assert ours and all(devices[b] == 1 for _, b in ours)


def test_what_was_spilled_and_not_changed_is_spilled_once() -> None:
    """It comes back twice; the second time the host still has it."""
    g = Graph()
    y = g.input("x", (64, 64))
    kept = relu(y, name="kept")
    for _ in range(3):
        y = plus(y, plus(y, y))
        y = plus(y, kept)
    g.output(y, "y")
    p = plan(g, Mesh(1), fuse=False)
    q = spill(p, least_memory(p))
    (number,) = {b.id for b in p.buffers if b.tensor == "kept"}
    again = [b.id for b in q.buffers if b.tensor == "kept" and b.id != number]
    assert [s for s in q.steps if isinstance(s, Spill)] == [Spill(number)]
    assert len(again) > 1
    assert [s for s in q.steps if isinstance(s, Fetch)] == [Fetch(n, number, n != again[-1]) for n in again]
    assert [b.id for b in q.buffers] == list(range(len(q.buffers)))  # new ones are numbered on from the others


def test_inputs_are_placed_again_in_place_of_being_spilled() -> None:
    g = Graph()
    w = g.input("w", (64, 64))
    y = matmul(g.input("x", (64, 64)), w)
    y = plus(y, plus(y, y))
    g.output(matmul(y, w), "y")
    p = plan(g, Mesh(1), fuse=False)
    q = spill(p, least_memory(p))
    assert not any(isinstance(step, Spill | Fetch) for step in q.steps)
    assert [step.tensor for step in q.steps if isinstance(step, Copy) and step.again] == ["w"]
    assert q.nbytes_spilled == (64 * 64 * 4,) and q.nbytes_placed == p.nbytes_placed == (2 * 64 * 64 * 4,)


# -- seconds -------------------------------------------------------------------------------------------------


def test_spilling_takes_the_time_of_the_host_link() -> None:
    """On one device: latency for each transfer, and bytes by their rate; each stage by what comes before its steps."""
    link = Link(3e-5, 2e8)
    p = waiting(host=link)
    q = spill(p, least_memory(p))
    found = followed(q)
    assert found.transfers >= 2
    more = found.transfers * 3e-5 + sum(found.spilled) / 2e8
    assert q.seconds - p.seconds == pytest.approx(more)
    stages = sum(s.seconds for s in q.stages) - sum(s.seconds for s in p.stages)
    assert stages == pytest.approx(more)
    assert q.bound == p.bound and q.gap > p.gap


def test_stages_add_up_where_outputs_come_from_the_host() -> None:
    """Two outputs that no operator reads or makes are placed at the end; one goes to the host again for the other."""
    g = Graph()
    g.output(relu(relu(g.input("a", (64, 64)))), "y")
    for name in "bc":
        g.output(g.input(name, (64, 64)), f"{name}_out")
    p = plan(g, Mesh(1), fuse=False)
    q = spill(p, least_memory(p))
    assert sum(q.nbytes_spilled) > 0
    assert sum(stage.seconds for stage in q.stages) == pytest.approx(q.seconds, rel=1e-12)
    assert [stage.op for stage in q.stages if stage.node not in q.graph.nodes] == ["output"]
    assert "(outputs)" in q.stage and ShardPlan.from_json(q.to_json()).stages == q.stages


def test_devices_spill_beside_one_another() -> None:
    p = waiting(2)
    q = spill(p, least_memory(p))
    each = [2 * 1e-6 + nbytes / 1e10 for nbytes in q.nbytes_spilled]
    assert len(set(q.nbytes_spilled)) == 1 and max(each) * 0.99 < q.seconds - p.seconds <= sum(each) * 1.01


# -- documents and wrong arguments ---------------------------------------------------------------------------


def test_the_document_of_a_plan_that_spills() -> None:
    p = waiting(2)
    q = spill(p, least_memory(p))
    read = ShardPlan.from_json(q.to_json())
    assert (read.steps, read.buffers, read.nbytes_spilled) == (q.steps, q.buffers, q.nbytes_spilled)
    assert read.to_json() == q.to_json() and sum(read.nbytes_spilled) > 0
    assert (read.seconds, read.peak_nbytes, read.mesh) == (q.seconds, q.peak_nbytes, q.mesh)


def test_a_plan_is_not_spilled_twice() -> None:
    p = waiting()
    q = spill(p, max(p.peak_nbytes) - 64)
    assert sum(q.nbytes_spilled) > 0 and spill(q, max(q.peak_nbytes)) is q
    with pytest.raises(
        ValueError, match=r"which spills already, takes [0-9,]+ B by device.*that it was made from"
    ) as error:
        spill(q, max(q.peak_nbytes) - 64)
    assert f"memory_nbytes is {max(q.peak_nbytes) - 64}, " in str(error.value) and f"{max(q.peak_nbytes):,} B" in str(
        error.value
    )


@pytest.mark.parametrize(
    ("memory", "kind", "message"),
    [
        ("16GB", TypeError, "memory_nbytes must be an integer or a sequence of integers, not '16GB'"),
        (1.5, TypeError, "integers, not 1.5 of type float"),
        (True, TypeError, "integers, not the truth value True"),
        (b"100", TypeError, "integers, not b'100'"),
        (None, TypeError, "integers, not None"),
        ([None, 1 << 20], TypeError, "memory_nbytes[0] must be an integer, not None"),
        ([1 << 20, "1"], TypeError, "memory_nbytes[1] must be an integer, not '1'"),
        ([1 << 20], ValueError, "memory_nbytes has 1 entries; the mesh has 2 devices"),
        ([1 << 20] * 3, ValueError, "memory_nbytes has 3 entries; the mesh has 2 devices"),
        (-1, ValueError, "memory_nbytes is -1; bytes are >= 0"),
    ],
)
def test_wrong_sizes_are_named(memory: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message.replace("[", r"\[")):
        spill(waiting(2), memory)


def test_what_is_not_a_plan_is_named() -> None:
    with pytest.raises(TypeError, match=r"spill: plan must be a ShardPlan, not <Graph.*"):
        spill(Graph(), 100)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="least_memory: plan must be a ShardPlan, not None"):
        least_memory(None)  # type: ignore[arg-type]


# -- how many bytes ------------------------------------------------------------------------------------------


@FEW
@given(st.lists(st.integers(0, 4), min_size=3, max_size=14), st.integers(3, 6), st.integers(0, 63))
@example([0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3], 3, 0)
def test_blocks_of_one_size_that_the_host_has_are_chosen_best(order: list[int], places: int, more: int) -> None:
    """Which block is used next the latest: Belady's rule gives the fewest bytes here, and so does the plan."""
    g = Graph()
    weights = [g.constant(f"w{k}", np.full(16, k + 0.5, np.float32)) for k in range(5)]
    y = g.input("x", (16,))
    for k in order:
        y = plus(y, weights[k])
    g.output(y, "y")
    p = plan(g, Mesh(1), fuse=False)
    memory = 64 * places + more
    assert least_memory(p) == (192,)
    q = spill(p, memory)
    assert q.nbytes_spilled == (fewest_nbytes(p, 0, memory),)


MAX_OVER_THE_FEWEST = 1.1
"""Bytes of all the seeded plans over the fewest that any choice moves, offsets left aside: 1.03 when it was measured.

Nothing bounds the ratio of one plan: where everything would fit but for the pieces that the arena is in, the fewest
are none.
"""


def test_bytes_are_near_the_fewest_of_all_choices() -> None:
    """Over seeded plans and memories from the least to the whole; none moves fewer bytes than the bound."""
    ours = fewest = compared = 0
    for seed in range(30):
        p = planned(seeded_program(seed))
        for memory in caps_between(tight_memory(p), max(p.peak_nbytes)):
            q = spill(p, memory)
            for device in range(p.mesh.size):
                if p.peak_nbytes[device] > memory:
                    least = fewest_nbytes(p, device, memory)
                    assert q.nbytes_spilled[device] >= least
                    ours, fewest, compared = ours + q.nbytes_spilled[device], fewest + least, compared + 1
    assert compared > 100 and fewest > 20_000
    assert ours <= MAX_OVER_THE_FEWEST * fewest


def test_the_fewest_bytes_of_known_cases() -> None:
    """The bound itself, worked out by hand."""
    p, block = waiting(), 64 * 64 * 4
    assert [fewest_nbytes(p, 0, blocks * block) for blocks in (3, 4)] == [2 * block, 0]  # `first` waits, or none
    g = Graph()
    x, w = g.input("x", (64, 64)), g.input("w", (64, 64))
    g.output(matmul(matmul(x, w), x), "y")
    g.output(relu(w), "v")
    p = plan(g, Mesh(1), fuse=False)
    assert [fewest_nbytes(p, 0, blocks * block) for blocks in (3, 4)] == [block, 0]  # w is placed again


def test_what_is_followed_is_not_what_is_predicted() -> None:
    p = waiting()
    q = spill(p, least_memory(p))
    wrong = replace(q, nbytes_spilled=(q.nbytes_spilled[0] + 4,))
    assert tuple(followed(wrong).spilled) == q.nbytes_spilled != wrong.nbytes_spilled


def test_faults_are_seen_by_who_follows() -> None:
    p = waiting()
    q = spill(p, least_memory(p))
    for k, step in enumerate(q.steps):
        without = q.with_steps(steps=q.steps[:k] + q.steps[k + 1 :])
        if isinstance(step, Free):  # at the end nothing needs its place
            continue
        if isinstance(step, Alloc | Spill):
            with pytest.raises((AssertionError, KeyError)):
                followed(without)
        else:
            assert followed(without).acts != followed(p).acts, step
    for k, buffer in enumerate(q.buffers):
        for other in (b for b in q.buffers if b.offset != buffer.offset):
            moved = msgspec.structs.replace(buffer, offset=other.offset)
            places = q.buffers[:k] + (moved,) + q.buffers[k + 1 :]
            assert_alone_or_seen(q.with_steps(buffers=places))


def assert_alone_or_seen(p: ShardPlan) -> None:
    """Whether two live buffers share a byte, found by comparing them pair by pair, is what `followed` says."""
    span = {b.id: (b.device, b.offset, b.offset + -(-b.nbytes // 64) * 64) for b in p.buffers}
    live: set[int] = set()
    shared = False
    for step in p.steps:
        if isinstance(step, Alloc):
            device, low, high = span[step.buffer]
            for d, a, b in (span[n] for n in live):
                shared |= d == device and a < high and low < b
            live.add(step.buffer)
        elif isinstance(step, Free):
            live.remove(step.buffer)
    if shared:
        with pytest.raises(AssertionError):
            followed(p)
    else:
        followed(p)
