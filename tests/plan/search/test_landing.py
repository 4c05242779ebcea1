"""Where tensors rest before others read them: against published bytes, listed cells and NumPy."""

from __future__ import annotations

import random
from itertools import product
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tapestry_exec import run
from tapestry_plan import Device, Graph, Link, Mesh, Placed, ShardPlan, ops, plan
from tapestry_plan.search.prices.added.memory import Memory
from tapestry_plan.search.prices.costs.problem import Problem
from tapestry_plan.search.prices.costs.variables import Asked
from tapestry_plan.search.writing import lower_choice, write_plan
from tapestry_plan.steps import Copy, Free, Reduce, Stage
from tests.capped_choices import most_held
from tests.exec.run.test_every_kind_of_plan import make_graph
from tests.recosting import Recosting
from tests.tiny_plans import copied_nbytes

Cells = set[tuple[int, ...]]


def landings(p: ShardPlan) -> dict[str, Stage]:
    return {stage.node: stage for stage in p.stages if stage.op == "landing"}


# -- published figures ---------------------------------------------------------------------------------------


def mlp(rows: int, width: int) -> Graph:
    g = Graph()
    x, w, v = g.input("x", (rows, width)), g.input("w", (width, 4 * width)), g.input("v", (4 * width, width))
    g.output(g.op("matmul", ops.relu(g.op("matmul", x, w, name="fc1")), v, name="fc2"), "y")
    return g


@pytest.mark.parametrize("bandwidth", [1e8, 1e9, 1e10])
def test_a_sharded_mlp_moves_no_more_than_one_all_reduce(bandwidth: float) -> None:
    """Megatron's: x and y on all devices, weights in one copy; 2·b·h·(t − 1)/t words a device, and XLA's the same."""
    mesh = Mesh((8,), link=Link(1e-6, bandwidth))
    p = plan(mlp(1024, 256), mesh, placement="single", layout={"x": {}, "y": {}})
    assert max(p.nbytes_received) <= 4 * 2 * 1024 * 256 * 7 // 8 == 1_835_008
    assert p.gap == 0 and landings(p)


def test_a_split_product_is_merged_and_gathered() -> None:
    g = Graph()
    a, b = g.input("a", (1024, 1024)), g.input("b", (1024, 1024))
    g.output(g.op("matmul", a, b, name="product"), "y")
    p = plan(g, Mesh((8,)), fix={"product": {"k": 8}}, layout={"y": {}})
    # Reduce-scatter and all-gather: seven eighths of the matrix, twice. Without a landing each pulls seven of them.
    assert set(p.nbytes_received) == {2 * 4 * 1024 * 1024 * 7 // 8} == {7_340_032}
    assert p.gap == 0


# -- landings counted cell by cell ---------------------------------------------------------------------------


def even(n: int, k: int) -> list[range]:
    ends = [sum(n // k + (i < n % k) for i in range(at)) for at in range(k + 1)]
    return [range(ends[i], ends[i + 1]) for i in range(k)]


def counted(shape: tuple[int, int], devices: int, link: Link, device: Device, lands: list[Cells] | None) -> int:
    """Picoseconds that a tensor in one part a device takes to where all devices read all of it."""
    every = set(product(*map(range, shape)))
    others = devices - 1  # with each of which every device exchanges one message, in each stage
    ticks = 0

    def move(exchanged: list[int], merged: list[int]) -> int:
        seconds = others * link.latency_seconds + 4 * max(exchanged) / link.nbytes_per_second if others else 0.0
        return round(seconds * 1e12) + round(4 * max(merged) / device.memory_nbytes_per_second * 1e12)

    if lands is None:
        return move([others * len(every)], [devices * len(every)])
    # What a device merges comes from all others, and goes to all others: what one receives, one sends in the end.
    exchanged = [n for cells in lands for n in (others * len(cells), len(every - cells))]
    ticks += move(exchanged, [devices * len(cells) for cells in lands])
    # Beside what comes it copies its own share.
    copied = max(len(cells) for cells in lands if cells != every)
    return ticks + move(exchanged, [0]) + round(4 * copied / device.memory_nbytes_per_second * 1e12)


def counted_in_stages(shape: tuple[int, int], link: Link, device: Device, lands: list[Cells], first: int) -> int | None:
    """The same of four devices, two by two: with who differs in a bit of its number, first in the one or the other.

    Each merges what will rest on those who have its bit; None where that is not a block.
    """
    every, ticks = set(product(*map(range, shape))), 0
    for done in (first, 3):
        wants = [set().union(*(lands[e] for e in range(4) if e & done == d & done)) for d in range(4)]
        spans = [[[cell[k] for cell in each] for k in (0, 1)] for each in wants]
        if any(
            len(each) != prod(max(at) - min(at) + 1 for at in span) for each, span in zip(wants, spans, strict=True)
        ):
            return None
        bit = done if done == first else 3 - first
        exchanged = max(max(len(wants[d]), len(wants[d ^ bit])) for d in range(4))
        ticks += round((link.latency_seconds + 4 * exchanged / link.nbytes_per_second) * 1e12)
        ticks += round(4 * 2 * max(map(len, wants)) / device.memory_nbytes_per_second * 1e12)
    # Who has a share of it brings it to all others, who copy their own beside it.
    sent = [n for cells in lands for n in (3 * len(cells), len(every - cells))]
    ticks += round((3 * link.latency_seconds + 4 * max(sent) / link.nbytes_per_second) * 1e12)
    return ticks + round(4 * max(map(len, lands)) / device.memory_nbytes_per_second * 1e12)


def every_landing(shape: tuple[int, int], devices: int) -> list[list[Cells]]:
    """What rests on each device, for cuts into as many parts as there are devices, row by row or column by column."""
    out = []
    for rows, columns in product(range(1, devices + 1), repeat=2):
        if rows * columns == devices and rows <= shape[0] and columns <= shape[1]:
            high, wide = even(shape[0], rows), even(shape[1], columns)
            out.append([set(product(*block)) for block in product(high, wide)])
            out.append([set(product(*block)) for block in ((r, c) for c in wide for r in high)])
    return out


@settings(max_examples=max(8, settings.default.max_examples // 4))
@given(
    st.tuples(st.integers(1, 9), st.integers(1, 9)),
    st.sampled_from([2, 3, 4]),
    st.sampled_from([0.0, 1e-9, 1e-7]),
    st.sampled_from([1e7, 1e9]),
)
@example((1, 1), 4, 0.0, 1e9)
@example((1, 4), 4, 1e-7, 1e7)  # in two stages
def test_the_landing_is_the_best_of_all(shape: tuple[int, int], devices: int, latency: float, rate: float) -> None:
    link, device = Link(latency, rate), Device(1e30, 1e9)
    g = Graph()
    a, b = g.input("a", (shape[0], 12)), g.input("b", (12, shape[1]))
    g.output(g.op("matmul", a, b, name="product"), "y")
    p = plan(g, Mesh((devices,), link=link, device=device), fix={"product": {"k": devices}}, layout={"y": {}})
    spent = sum(round(stage.seconds * 1e12) for stage in p.stages if stage.node != "product")
    choices = every_landing(shape, devices)
    if devices > shape[0] * shape[1] or not every_landing(shape, devices):
        return  # as many parts as can be are fewer than the devices: the oracle does not list these
    found = [counted(shape, devices, link, device, lands) for lands in (None, *choices)]
    if devices == 4:
        staged = (counted_in_stages(shape, link, device, lands, bit) for lands in choices for bit in (1, 2))
        found += [one for one in staged if one is not None]
    assert spent == min(found)
    rng = np.random.default_rng(0)
    arrays = {"a": rng.random((shape[0], 12), np.float32), "b": rng.random((12, shape[1]), np.float32)}
    found = run(p, arrays)
    assert np.allclose(found.outputs["y"], arrays["a"] @ arrays["b"], rtol=1e-5)
    assert found.nbytes_moved == p.nbytes_moved


# -- what is complete is shared out --------------------------------------------------------------------------


def share_out(
    shape: tuple[int, int], holds: list[Cells], link: Link, device: Device, lands: list[Cells] | None, is_made: bool
) -> tuple[int, int]:
    """Picoseconds and bytes that a tensor takes to all devices, from those that have some of it, each cell once.

    What is made, and lands nowhere, is made where it is read.
    """
    every, devices = set(product(*map(range, shape))), range(len(holds))

    have: list[list[set[Any]]] = [[set(mine)] for mine in holds]
    may = is_made and lands is None, True

    def move(sources: list[Cells], wanted: list[Cells]) -> tuple[int, int]:
        needs = [need - set().union(*mine) for need, mine in zip(wanted, have, strict=True)]
        copied = max(copied_nbytes(mine, [set(need)], None, may) for mine, need in zip(have, wanted, strict=True))
        sent = {(s, d): len(sources[s] & needs[d]) for s in devices for d in devices if s != d}
        ends = [[n for (a, b), n in sent.items() if (a, b)[end] == one] for one in devices for end in (0, 1)]
        rounds = max(sum(n > 0 for n in each) for each in ends)
        seconds = rounds * link.latency_seconds + 4 * max(map(sum, ends)) / link.nbytes_per_second
        ticks = round(seconds * 1e12) + round(copied / device.memory_nbytes_per_second * 1e12)
        return ticks, 4 * sum(sent.values())

    if lands is None:
        return move(holds, [every] * len(holds))
    first, then = move(holds, lands), move(lands, [every] * len(holds))
    return first[0] + then[0], first[1] + then[1]


@settings(max_examples=max(6, settings.default.max_examples // 4))
@given(
    st.tuples(st.integers(2, 8), st.integers(1, 8)),
    st.sampled_from([2, 3, 4]),
    st.sampled_from(["given on one", "given in halves", "made in halves"]),
    st.sampled_from([0.0, 1e-9, 1e-7]),
    st.sampled_from([1e7, 1e9]),
)
@example((8, 8), 4, "given on one", 0.0, 1e7)
@example((8, 8), 4, "given in halves", 0.0, 1e7)
@example((8, 8), 3, "made in halves", 0.0, 1e7)
def test_the_shares_are_the_best_of_all(
    shape: tuple[int, int], devices: int, how: str, latency: float, rate: float
) -> None:
    """A tensor that lies on one device, or in halves on two of them, is read by all."""
    if (how == "made in halves" and devices != 3) or devices > prod(shape) or not every_landing(shape, devices):
        return  # over four devices each half is made twice; the oracle does not list cuts into fewer parts
    g, top = Graph(), np.s_[: -(-shape[0] // 2)]
    x = g.input("x", shape)
    fix: dict[str, dict[str, int]] = {"r": {}}
    layout = {}
    if how == "made in halves":
        x, fix["e"] = ops.exp(x, name="e"), {"i0": 2}
    else:
        layout = {"x": Placed({0: top, 1: np.s_[top.stop :]} if how == "given in halves" else {0: np.s_[:]})}
    g.output(ops.relu(x, name="r"), "y")
    link, device, every = Link(latency, rate), Device(1e30, 1e9), set(product(*map(range, shape)))
    first = {cell for cell in every if how == "given on one" or cell[0] < top.stop}
    holds = [first, every - first, *(set[tuple[int, ...]]() for _ in range(devices - 2))]
    p = plan(g, Mesh((devices,), link=link, device=device), fix=fix, layout=layout)
    spent = sum(round(stage.seconds * 1e12) for stage in p.stages if stage.node in ("landing x", "landing e", "r"))
    spent -= round(8 * prod(shape) / 1e9 * 1e12)  # what reading and writing takes
    choices: list[list[Cells] | None] = [None, *every_landing(shape, devices)]
    assert (spent, p.nbytes_moved) == min(
        share_out(shape, holds, link, device, lands, how == "made in halves") for lands in choices
    )
    array = np.random.default_rng(0).random(shape, np.float32)
    found = run(p, {"x": array})
    assert np.array_equal(found.outputs["y"], np.maximum(array if layout else np.exp(array), 0))
    assert (found.nbytes_received, found.peak_nbytes) == (p.nbytes_received, p.peak_nbytes)


def test_one_sender_to_seven_readers_sends_each_its_share() -> None:
    """A tree of halves would take log2(8) times the tensor; seven copies take seven, two stages of shares 7/8 each."""
    g, nbytes = Graph(), 4 * 1024 * 1024
    g.output(ops.relu(g.input("x", (1024, 1024)), name="r"), "y")
    mesh = Mesh((8,), link=Link(0.0, 1e10), device=Device(1e30, 1e30))
    p = plan(g, mesh, layout={"x": Placed({0: np.s_[:]})}, fix={"r": {}})
    assert p.seconds == pytest.approx(2 * nbytes * 7 / 8 / 1e10) and p.gap == 0
    assert p.nbytes_moved == 7 * nbytes  # as many as seven copies
    assert [*landings(p)] == ["landing x"]


@pytest.mark.heavy(2)
def test_whatever_is_chosen_costs_what_its_steps_do() -> None:
    """With inputs and operators on few devices, in layouts and landing places that are drawn at random."""
    landed = in_stages = 0
    for seed in range(12):
        rng = random.Random(seed)
        g = make_graph(rng)
        mesh = Mesh((rng.choice([2, 3, 4, 6, 8]),), link=Link(rng.choice([1e-9, 1e-6]), 1e9), device=Device(1e7, 1e12))
        given = [name for name, tensor in g.stored.items() if tensor.kind == "input" and rng.random() < 0.5]
        if seed % 3 == 0:  # who shared out a larger block still sends from that, which runs are not counted in
            given, mesh = [], replace(mesh, link=replace(mesh.link, run_seconds=3e-9))
        layout = {name: Placed({rng.randrange(mesh.size): np.s_[:]}) for name in given}
        fix = {name: {g.signature(name).axes[0].name: rng.choice([1, 2])} for name in g.nodes if rng.random() < 0.2}
        problem = Problem(g, Asked(mesh, placement=rng.choice(["free", "single"]), layout=layout, fix=fix))
        tables, memories = problem.factors()[0], [Memory(problem, device) for device in range(mesh.size)]
        for _ in range(4):
            choice = [rng.randrange(size) for size in problem.sizes]
            p = write_plan(problem, choice, 0, None)
            counted = Recosting(p)
            each = [
                tuple(int(t[tuple(choice[v] for v in one.scope)]) for t in (one.ticks, one.nbytes)) for one in tables
            ]
            assert tuple(map(sum, zip(*each, strict=True))) == (counted.ticks, counted.nbytes)
            held = most_held(lower_choice(problem, choice, None, capped=True))
            assert tuple(memory.count(choice).max() for memory in memories) == held
            landed += any(stage.op == "landing" for stage in p.stages)
            in_stages += len(p.choices.merged)
    assert landed > 12 and in_stages


@pytest.mark.parametrize(
    ("devices", "parts", "fans"),
    [(4, 4, ()), (8, 8, (2, 2, 2)), (10, 8, ()), (12, 12, (2, 2, 3)), (24, 8, ()), ((2, 4), 8, (2, 2, 2))],
)
@pytest.mark.parametrize("op", ["sum", "max", "logsumexp"])
def test_scalars_are_merged_in_stages(op: str, devices: Any, parts: int, fans: tuple[int, ...]) -> None:
    """A tensor without axes is one cell: its blocks have no bounds, and each device gets one cell of each sibling."""
    g = Graph()
    g.output(getattr(ops, op)(g.input("x", (48,))), "y")
    p = plan(g, Mesh(devices, link=Link(1e-3, 1e9)), fix={op: {"i0": parts}}, layout={"y": {}})
    state_nbytes = 8 if op == "logsumexp" else 4  # the greatest one, and a sum beside it
    received = [sum(stage.nbytes_received) for stage in p.stages if stage.op == "landing"]
    if fans:
        assert sorted(received) == sorted(parts * (fan - 1) * state_nbytes for fan in fans)
        latencies = sum(fan - 1 for fan in fans)
        assert latencies * 1e-3 < sum(stage.seconds for stage in p.stages) < latencies * 1e-3 + 1e-6
    x = np.random.default_rng(0).random(48).astype(np.float32)
    wanted = np.log(np.exp(x.astype(float)).sum()) if op == "logsumexp" else getattr(np, op)(x.astype(float))
    found = run(p, {"x": x})
    assert np.allclose(found.outputs["y"], wanted, rtol=1e-6) and found.nbytes_moved == p.nbytes_moved


@pytest.mark.heavy(2)
@pytest.mark.parametrize("case", ["one link", "runs", "two links", "unlike"])
def test_scalars_in_stages_cost_what_their_steps_do(case: str) -> None:
    mesh = {
        "one link": Mesh(8, link=Link(1e-6, 1e9)),
        "runs": Mesh(8, link=Link(1e-6, 1e9, run_seconds=3e-9)),
        "two links": Mesh((2, 4), link=(Link(1e-5, 1e8), Link(1e-6, 1e9))),
        "unlike": Mesh(8, link=Link(1e-6, 1e9), device=[Device(1e12, 1e10)] * 3 + [Device(1e11, 1e9)] * 5),
    }[case]
    g, rng = Graph(), random.Random(0)
    x = g.input("x", (48,))
    total = ops.sum(ops.exp(x))
    g.output(x / total, "y")  # a scalar that vectors read, and one that a scalar reads
    g.output(ops.relu(total), "z")
    problem, in_stages = Problem(g, Asked(mesh)), 0
    tables = problem.factors()[0]
    for _ in range(60):
        choice = [rng.randrange(size) for size in problem.sizes]
        p = write_plan(problem, choice, 0, None)
        counted = Recosting(p)
        each = [[int(t[tuple(choice[v] for v in one.scope)]) for t in (one.ticks, one.nbytes)] for one in tables]
        assert tuple(map(sum, zip(*each, strict=True))) == (counted.ticks, counted.nbytes)
        in_stages += len(p.choices.merged)
    assert in_stages


def test_an_input_lands_whose_place_is_asked_for_by_the_output_that_it_is_tied_to() -> None:
    took = []
    for name in ("w", "new_w"):
        g, mesh = Graph(), Mesh((8,), link=Link(0.0, 1e10), device=Device(1e30, 1e30))
        w = g.input("w", (64, 64))
        g.output(ops.relu(w, name="r"), "new_w")
        g.output(ops.exp(w, name="s"), "z")
        p = plan(g, mesh, tie={"new_w": "w"}, layout={name: Placed({0: np.s_[:]})}, fix={"s": {}})
        assert "landing w" in landings(p)
        took.append(p.seconds)
    assert took[0] == took[1]


# -- what lands is complete ----------------------------------------------------------------------------------


def two_readers() -> Graph:
    g = Graph()
    a, b = g.input("a", (16, 24)), g.input("b", (24, 16))
    c = g.op("matmul", a, b, name="c")
    g.output(g.op("relu", c, name="r"), "r")
    g.output(g.op("matmul", c, c.T, name="d"), "d")
    return g


def test_all_who_read_a_tensor_read_it_where_it_landed() -> None:
    fix = {"c": {"k": 4}, "r": {}, "d": {}}
    p = plan(two_readers(), Mesh((4,), link=Link(1e-9, 1e9)), fix=fix)
    assert list(landings(p)) == ["landing c"]
    merges = [step for step in p.steps if isinstance(step, Reduce)]
    assert {step.node for step in merges} == {"landing c"} and len(merges) == 4
    # Each device receives three parts of its quarter, and then three quarters, once for both readers.
    assert set(p.nbytes_received) == {4 * (3 * 64 + 192)}
    rng = np.random.default_rng(0)
    arrays = {"a": rng.random((16, 24), np.float32), "b": rng.random((24, 16), np.float32)}
    found = run(p, arrays)
    product_ = arrays["a"] @ arrays["b"]
    assert np.allclose(found.outputs["r"], product_, rtol=1e-5)
    assert np.allclose(found.outputs["d"], product_ @ product_.T, rtol=1e-4)


def test_parts_are_given_back_where_they_have_landed() -> None:
    p = plan(two_readers(), Mesh((4,), link=Link(1e-9, 1e9)), fix={"c": {"k": 4}, "r": {}, "d": {}})
    parts = {b.id for b in p.buffers if b.tensor == "c" and b.part >= 0}
    first = next(k for k, s in enumerate(p.steps) if isinstance(s, Copy) and s.node in ("r", "d") and s.src >= 0)
    freed = {step.buffer for step in p.steps[:first] if isinstance(step, Free)}
    assert parts and parts <= freed


@pytest.mark.parametrize("reduction", ["sum", "mean", "max", "prod"])
def test_reductions_land_with_the_bits_that_they_have_without(reduction: str) -> None:
    def reduced(reader: dict[str, int]) -> tuple[ShardPlan, np.ndarray]:
        g = Graph()
        x = g.input("x", (12, 16))
        y = g.op(reduction, x, name="y", axis=(1,))
        g.output(g.op("relu", y, name="r"), "r")
        p = plan(g, Mesh((4,), link=Link(1e-9, 1e8)), fix={"y": {"i1": 4}, "r": reader})
        array = np.random.default_rng(0).random((12, 16), np.float32)
        return p, run(p, {"x": array}).outputs["r"]

    (whole, a), (rows, b) = reduced({}), reduced({"i0": 4})
    assert landings(whole) and not landings(rows)
    assert np.array_equal(a, b)


def test_a_plan_with_a_landing_is_the_same_after_a_round_trip() -> None:
    p = plan(two_readers(), Mesh((4,), link=Link(1e-9, 1e9)), fix={"c": {"k": 4}, "r": {}, "d": {}})
    again = ShardPlan.from_json(p.to_json())
    assert again == p and again.to_json() == p.to_json() and landings(again)
    others = {"c": {"k": 2}, "r": {}, "d": {}}, {"c": {"k": 4}, "r": {"i0": 4}, "d": {}}
    for fix in others:
        assert plan(two_readers(), Mesh((4,), link=Link(1e-9, 1e9)), fix=fix) != p
    assert p != p.to_json()


@pytest.mark.heavy(2)
@pytest.mark.parametrize("readers", [5, 6, 9])
def test_what_one_device_has_lands_however_many_read_it(readers: int) -> None:
    """One device sends an eighth to each, and they exchange these: not seven copies, whoever else reads it."""
    g = Graph()
    x = g.input("x", (256, 256))
    for k in range(readers):
        g.output(g.op("matmul", x, g.input(f"w{k}", (256, 256)), name=f"m{k}"), f"y{k}")
    mesh = Mesh((8,), link=Link(1e-6, 1e9), device=Device(1e15, 1e15))
    p = plan(g, mesh, layout={"x": Placed({0: ...})}, fix={f"m{k}": {"n": 8} for k in range(readers)})
    share = 256 * 256 * 4 // 8
    assert p.nbytes_moved == 7 * 8 * share and p.gap < 1e-6
    assert p.seconds <= 2 * (7 * share / 1e9 + 7e-6) + 1e-7
    again = Recosting(p)
    assert (again.ticks, again.nbytes) == (round(p.seconds * 1e12), p.nbytes_moved)
