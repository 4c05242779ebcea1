"""Work by phases: where a view makes blocks periodic, operators that work cell by cell lie so; nothing moves."""

from __future__ import annotations

import random
from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tapestry_exec import run
from tapestry_plan import Axis, Device, Graph, InfeasiblePlan, Link, Mesh, ShardPlan, Tensor, plan
from tapestry_plan.ir import same_graph
from tapestry_plan.ops import abs as absolute
from tapestry_plan.ops import conv, cumulative_sum, exp, relu, softmax, tanh
from tapestry_plan.rewrite import NotApplicable, find, split_axes
from tapestry_plan.search import writing
from tapestry_plan.search.prices.added.splits import _list_cuts, derive_splits
from tapestry_plan.steps.layouts.layout import PeriodicBlock, SplitAxis
from tapestry_sets import Box, concatenate
from tests.recosting import Recosting


def mesh_for(cells: int) -> Mesh:
    """A mesh on which neither messages nor bytes are dear, so that work is divided first."""
    return Mesh((4,), device=Device(1e4 * cells, 1e30), link=Link(0.0, 1e6 * cells))


MESH = mesh_for(96)
SPLIT = ["split_axes"]
Step = tuple[str, Any]


# -- the rule --------------------------------------------------------------------------------------------


def sums() -> Graph:
    g = Graph()
    x, b, c = g.input("x", (12, 5)), g.input("b", (5,)), g.input("c", (12, 1))
    g.output(tanh(x + b + c, name="t"), "y")
    return g


def feeds(g: Graph) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {s.name: rng.random(s.shape, np.float32) for s in g.stored.values() if s.kind == "input"}


def values(g: Graph) -> list[Any]:
    return list(run(plan(g, Mesh((1,)), expand=False), feeds(g)).outputs.values())


@pytest.mark.parametrize("at", ["add", "add_1", "t"])
@pytest.mark.parametrize("sizes", [{"i0": [3, 4]}, {"i0": [2, 3, 2], "i1": [5, 1]}, {"i1": [1, 5]}])
@pytest.mark.parametrize("first", [None, {"i0": 1}, {"i0": 11, "i1": 2}])
def test_split_axes_keep_every_bit(at: str, sizes: dict[str, list[int]], first: dict[str, int] | None) -> None:
    g = sums()
    made = split_axes.apply(g, at, sizes=sizes, first=first)
    assert len(made.signature(f"{at}.split").axes) == 2 + sum(len(each) - 1 for each in sizes.values())
    assert all(np.array_equal(a, b) for a, b in zip(values(g), values(made), strict=True))


@pytest.mark.parametrize(
    ("sizes", "first", "said"),
    [
        ({"i7": [2, 6]}, None, "no index axis 'i7'"),
        ({"i0": [5, 2]}, None, "has 12 points"),
        ({"i0": []}, None, "has 12 points"),
        ({"i0": [3, 4]}, {"i0": 12}, "begins at 12"),
    ],
)
def test_wrong_sizes_are_refused(sizes: dict[str, list[int]], first: dict[str, int] | None, said: str) -> None:
    with pytest.raises(NotApplicable, match=said):
        split_axes.apply(sums(), "t", sizes=sizes, first=first)


def test_what_looks_along_an_axis_or_at_places_is_not_split() -> None:
    g = Graph()
    x = g.input("x", (12,))
    g.output(cumulative_sum(x, name="along"))
    g.output(softmax(x, name="row"))
    g.output(relu(x, name="cells"))
    assert find(g, split_axes, sizes={"i0": [3, 4]}) == ["cells"]


# -- what neighbors ask for ------------------------------------------------------------------------------

RIFFLE = {
    "by columns": lambda e: e.reshape(4, -1).T.reshape(-1),
    "by rows": lambda e: e.reshape(-1, 4).T.reshape(-1),
    "pairs": lambda e: e.reshape(-1, 4, 2).permute_dims((1, 0, 2)).reshape(-1),
    "in two axes": lambda e: e.reshape(2, -1, 4).permute_dims((2, 0, 1)).reshape(-1)[::-1],
    "begun elsewhere": lambda e: concatenate([e[1:], e[:1]]),
}


def chained(view: Callable[[Tensor], Tensor], shape: tuple[int, ...]) -> Graph:
    g = Graph()
    g.output(tanh(view(exp(g.input("x", shape), name="e")), name="t"), "y")
    return g


def check_all_work(p: ShardPlan) -> None:
    """All devices work, and nobody twice."""
    assert max(p.flop) * 4 == sum(p.flop) == p.graph.flop()


@pytest.mark.parametrize("view", RIFFLE.values(), ids=RIFFLE)
@pytest.mark.parametrize("n", [96, 96 * 10**9])
def test_phases_move_nothing(view: Callable[[Tensor], Tensor], n: int) -> None:
    g = chained(view, (n,))
    p = plan(g, mesh_for(n), expand=SPLIT)
    assert p.nbytes_moved == 0 and p.gap == 0
    check_all_work(p)
    assert same_graph(p.derivation.replay(g), p.graph) and ShardPlan.from_json(p.to_json()) == p
    if n < 1000:
        found = run(p, feeds(g), verify=True)
        assert found.nbytes_moved == 0


def test_splits_are_carried_to_all_that_work_on_the_same_cells() -> None:
    g = Graph()
    e = absolute(exp(g.input("x", (96,)), name="e"), name="a")
    t = tanh(e.reshape(-1, 4).T.reshape(-1), name="t")
    g.output(relu(t + exp(t)), "y")
    g.output(e.reshape(-1, 4).T.reshape(-1) * 2.0, "z")
    p = plan(g, MESH, expand=SPLIT)
    assert p.nbytes_moved == 0
    check_all_work(p)
    assert run(p, feeds(g), verify=True).nbytes_moved == 0


def test_without_expansions_and_with_fixed_operators_nothing_is_split() -> None:
    g = chained(RIFFLE["by rows"], (96,))
    assert not plan(g, MESH, expand=False).expanded and plan(g, MESH, expand=False).nbytes_moved == 96 * 4 * 3 // 4
    p = plan(g, MESH, fix={"e": {"i0": 4}, "t": {"i0": 4}}, expand=SPLIT)
    assert not p.expanded and p.nbytes_moved == 96 * 4 * 3 // 4
    assert plan(g, MESH, expand=SPLIT).nbytes_moved == 0
    assert plan(g, MESH) == plan(g, MESH, expand=SPLIT), "by default axes are split"


def test_cells_are_boxes_in_the_digits_that_are_derived() -> None:
    found = derive_splits(chained(RIFFLE["by rows"], (96,)), 4)
    cells = np.arange(96)
    wanted = [set(cells.reshape(-1, 4).T.reshape(-1)[24 * k : 24 * (k + 1)].tolist()) for k in range(4)]
    assert any(
        split[0].sizes[-1] == 4
        and [set(cells.reshape(split[0].sizes)[..., k].ravel().tolist()) for k in range(4)] == wanted
        for split in found["e"]
    )


def test_a_view_that_reads_nothing_of_a_tensor_says_nothing() -> None:
    g = Graph()
    x, z = g.input("x", (8,)), g.input("z", (8,))
    g.output(tanh(concatenate([exp(x), exp(z)])[8:].reshape(2, 4).T.reshape(-1)), "y")
    assert run(plan(g, MESH, expand=SPLIT), feeds(g), verify=True).nbytes_moved == 0


@given(st.data())
def test_a_periodic_block_has_the_cells_that_numbers_say(data: st.DataObject) -> None:
    factors = st.lists(st.integers(1, 4), min_size=1, max_size=3).map(tuple)
    sizes = data.draw(st.lists(factors, min_size=1, max_size=2))
    digits = tuple(SplitAxis(f"i{k}", each, data.draw(st.integers(0, prod(each) - 1))) for k, each in enumerate(sizes))
    spans = [sorted(data.draw(st.tuples(st.integers(0, n), st.integers(0, n)))) for each in sizes for n in each]
    block = PeriodicBlock(Box(tuple(a for a, _ in spans), tuple(b - a for a, b in spans)), digits)
    shape = tuple(map(prod, sizes))
    numbers = np.arange(prod(shape)).reshape(shape)
    for axis, each in enumerate(digits):
        numbers = np.roll(numbers, -each.first, axis)
    inside = numbers.reshape([n for each in sizes for n in each])[tuple(slice(*span) for span in spans)]
    wanted = {tuple(map(int, np.unravel_index(cell, shape))) for cell in inside.ravel().tolist()}
    found = [point for point in np.ndindex(*shape) if point in block.cells]
    assert set(found) == wanted and block.cells.size == len(wanted)


@pytest.mark.parametrize(
    ("extent", "split"),
    [
        (12, SplitAxis("i0", (3, 4))),
        (24, SplitAxis("i0", (2, 3, 4))),
        (16, SplitAxis("i0", (4, 4), 1)),
        (8, SplitAxis("i0", (8,), 3)),
    ],
)
def test_cuts_are_offered_once_each_and_none_that_needs_no_split(extent: int, split: SplitAxis) -> None:
    cuts = list(_list_cuts([Axis("i0", extent)], [(split,), (split,)], 4))
    plain = {frozenset(map(frozenset, np.array_split(np.arange(extent), k))) for k in (1, 2, 4)}
    found = []
    for layout in cuts:
        cells = [frozenset(c for c in range(extent) if (c,) in b.cells) for b in layout.blocks if b is not None]
        assert sum(map(len, cells)) == extent and frozenset().union(*cells) == set(range(extent))
        assert len({len(each) for each in cells}) == 1 and len(cells) in (2, 4)
        found.append(frozenset(cells))
    assert found and len(found) == len(set(found)) and plain.isdisjoint(found)


def make_graph(seed: int) -> Graph:
    """A few operators that work cell by cell, and a product or a sum along rows, with views between them."""
    rng = random.Random(seed)
    n = rng.choice([48, 96, 144])
    g = Graph()
    tensors = [g.input("x", (n,)), g.input("z", (n,))]

    def viewed(t: Tensor) -> Tensor:
        word, k = rng.choice(["none", "riffle", "flip", "roll", "permute", "phases"]), rng.choice([2, 3, 4, 6])
        if word == "riffle":
            return t.reshape(-1, k).T.reshape(n)
        if word == "flip":
            return t[::-1]
        if word == "roll":
            return concatenate([t[k:], t[:k]])
        if word == "permute":
            return t.reshape(4, 3, -1).permute_dims((2, 0, 1)).reshape(n)
        return concatenate([t[::2], t[1::2]]) if word == "phases" else t

    for _ in range(rng.randint(2, 4)):
        a, b, word = viewed(rng.choice(tensors[-3:])), viewed(rng.choice(tensors)), rng.choice("uubbs")
        if word == "u":
            made = rng.choice([exp, tanh, relu])(a)
        elif word == "b":
            made = a + b
        else:
            made = softmax(a.reshape(12, -1)).reshape(n)
        tensors.append(made * 0.5)
    g.output(tensors[-1], "y")
    return g


@pytest.mark.heavy(4)
@pytest.mark.parametrize("seed", range(10))
def test_a_plan_over_split_axes_costs_what_the_search_counted(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[bool] = []
    written = writing.split_chosen

    def watched(problem: Any, choice: Any) -> Any:
        found = written(problem, choice)
        counted.append(problem.count_cost(choice) == found[0].count_cost(found[1]))
        return found

    monkeypatch.setattr(writing, "split_chosen", watched)
    g = make_graph(seed)
    p = plan(g, MESH)
    assert counted and all(counted)
    assert p.seconds <= plan(g, MESH, expand=False).seconds
    found, wanted = run(p, feeds(g), verify=True), run(plan(g, Mesh((1,)), expand=False), feeds(g))
    assert (found.nbytes_moved, found.peak_nbytes) == (p.nbytes_moved, p.peak_nbytes)
    assert np.allclose(found.outputs["y"], wanted.outputs["y"], rtol=1e-5)
    assert same_graph(p.derivation.replay(g), p.graph) and ShardPlan.from_json(p.to_json()) == p


@pytest.mark.heavy(2)
@pytest.mark.parametrize(("extent", "dilation", "devices"), [(1024, 2, 2), (1024, 4, 4), (1000, 4, 2)])
@pytest.mark.parametrize("expand", [True, ["space_to_batch", *SPLIT]], ids=["by default", "by name"])
def test_a_dilated_convolution_is_laid_out_by_phase(extent: int, dilation: int, devices: int, expand: Any) -> None:
    g = Graph()
    x, w = g.input("x", (1, 8, extent)), g.input("w", (8, 8, 3))
    g.output(tanh(conv(exp(x), w, dilations=(dilation,), pads=(dilation, dilation))), "y")
    mesh = Mesh((devices,), device=Device(1e9, 1e12), link=Link(1e-7, 1e9))
    p = plan(g, mesh, expand=expand)
    assert plan(g, mesh, expand=False).nbytes_moved == 2 * dilation * 8 * 4 * (devices - 1)
    assert p.nbytes_moved == 0 and p.expanded["conv"] == "space_to_batch" and p.gap == 0
    assert max(p.flop) * devices == sum(p.flop) == g.flop()
    found, wanted = run(p, feeds(g), verify=True), run(plan(g, Mesh((1,)), expand=False), feeds(g))
    assert found.nbytes_moved == 0
    assert np.allclose(found.outputs["y"], wanted.outputs["y"], atol=1e-5)


@pytest.mark.heavy(2)
def test_phases_that_may_pay_and_were_not_found_to_are_left_out() -> None:
    """Three dilated convolutions of one tensor, of which each device needs its own rows and a few more."""
    g = Graph()
    x, w = g.input("x", (1, 8, 64)), g.input("w", (8, 8, 3))
    h = exp(x)
    g.output(concatenate([conv(h, w, dilations=(d,), pads=(d, d), name=f"c{d}") for d in (1, 2, 4)], 1) * 2.0, "y")
    mesh = Mesh((4,), device=Device(1e9, 1e12), link=Link(1e-7, 1e9))
    p, plain = plan(g, mesh), plan(g, mesh, expand=["split_axes"])
    assert (p.seconds, p.nbytes_moved) <= (plain.seconds, plain.nbytes_moved) and p.gap <= plain.gap
    assert p.seconds == plan(g, mesh, expand=["space_to_batch", *SPLIT]).seconds
    said = {one.node: one.left_out or one.considered for one in p.expansions}
    assert said["c2"] == said["c4"] == ("space_to_batch",) and "c1" not in said


def test_a_memory_cap_is_kept_by_plans_whose_axes_are_whole() -> None:
    g = chained(RIFFLE["by rows"], (96,))
    p = plan(g, MESH)
    assert p.expanded
    with pytest.raises(InfeasiblePlan):
        plan(g, MESH, memory_nbytes=1)
    assert plan(g, MESH, memory_nbytes=max(p.peak_nbytes)) == p


def test_splits_that_there_is_no_time_for_are_left_out() -> None:
    g = chained(RIFFLE["by rows"], (96,))
    p = plan(g, MESH, time_limit_seconds=0)
    assert not p.expanded and {each.node for each in p.expansions if each.left_out} == {"e", "t"}


def test_a_result_whose_layout_is_asked_for_stays_whole() -> None:
    g = chained(RIFFLE["by rows"], (96,))
    p = plan(g, MESH, layout={"y": {0: 4}})
    assert "t" in p.graph.nodes
    assert run(p, feeds(g), verify=True).nbytes_moved == p.nbytes_moved


# -- random chains of views -----------------------------------------------------------------------------


def list_steps(rng: random.Random, shape: tuple[int, ...]) -> list[Step]:
    """A random chain of bijective views."""
    steps: list[Step] = []
    for _ in range(rng.randint(1, 4)):
        word = rng.choice(["reshape", "permute", "flip", "roll", "riffle"])
        axis = rng.randrange(len(shape))
        if word == "reshape":
            new, left = [], prod(shape)
            while left > 1 and len(new) < 3:
                new.append(rng.choice([k for k in (2, 3, 4, 6, 8, 16, left) if left % k == 0]))
                left //= new[-1]
            new += [left] * (left > 1)
            rng.shuffle(new)
            shape = tuple(new)
            steps.append((word, shape))
        elif word == "permute":
            order = rng.sample(range(len(shape)), len(shape))
            shape = tuple(shape[k] for k in order)
            steps.append((word, tuple(order)))
        elif word == "roll":
            steps.append((word, (axis, rng.choice([1, shape[axis] // 4, shape[axis] // 2]))))
        elif word == "flip" or shape[axis] % 2 == 0:
            steps.append((word, axis))
    return steps


def apply(steps: list[Step], x: Any, join: Callable[..., Any], permute: Callable[..., Any]) -> Any:
    """The chain on a tensor of a graph, or on an array."""
    for word, what in steps:
        if word == "reshape":
            x = x.reshape(what)
        elif word == "permute":
            x = permute(x, what)
        elif word == "flip":
            x = x[(*(slice(None),) * what, slice(None, None, -1))]
        elif word == "roll":
            axis, k = what
            around = (slice(None),) * axis
            x = join([x[(*around, slice(k, None))], x[(*around, slice(k))]], axis) if k else x
        else:
            shape = x.shape
            x = x.reshape((*shape[:what], 2, shape[what] // 2, *shape[what + 1 :]))
            order = list(range(x.ndim))
            order[what], order[what + 1] = order[what + 1], order[what]
            x = permute(x, tuple(order)).reshape(shape)
    return x


def is_cut_by_setts(numbers: np.ndarray, shape: tuple[int, ...]) -> bool:
    """Whether the cells that some four blocks of a view read are each a product of one axis set a coordinate.

    And each of these sets is a stripe: runs of one length at one distance, around the end of the axis too.
    """
    for axis, n in enumerate(numbers.shape):
        if n % 4:
            continue
        blocks = np.split(numbers, 4, axis)
        if all(_is_product(block.ravel(), shape) for block in blocks):
            return True
    return False


def _is_product(cells: np.ndarray, shape: tuple[int, ...]) -> bool:
    sets = [np.unique(side) for side in np.unravel_index(cells, shape)]
    return prod(map(len, sets)) == len(cells) and all(map(_is_stripe, sets, shape))


def _is_stripe(cells: np.ndarray, n: int) -> bool:
    held = np.zeros(n, bool)
    held[cells] = True
    if held.all():
        return True
    begins = np.flatnonzero(held & ~np.roll(held, 1))
    gaps = np.diff(np.append(begins, begins[0] + n))
    return len(cells) % len(begins) == 0 and bool((gaps == gaps[0]).all())


def make_case(seed: int) -> tuple[tuple[int, ...], list[Step]]:
    """A chain of views some four blocks of which read stripes."""
    rng = random.Random(seed)
    while True:
        shape = rng.choice([(64,), (8, 16), (24, 16), (4, 4, 16), (96,), (12, 8)])
        steps = list_steps(rng, shape)
        numbers = apply(steps, np.arange(prod(shape)).reshape(shape), np.concatenate, np.transpose)
        if is_cut_by_setts(numbers, shape):
            return shape, steps


def check_chain(shape: tuple[int, ...], steps: list[Step]) -> ShardPlan:
    g = Graph()
    view = apply(steps, exp(g.input("x", shape), name="e"), concatenate, lambda x, order: x.permute_dims(order))
    g.output(tanh(view, name="t"), "y")
    p = plan(g, MESH, expand=SPLIT)
    assert p.nbytes_moved == 0
    check_all_work(p)
    found = run(p, feeds(g))
    assert found.nbytes_moved == 0
    wanted = np.tanh(apply(steps, np.exp(feeds(g)["x"]), np.concatenate, np.transpose))
    assert np.allclose(found.outputs["y"], wanted, atol=1e-6)
    return p


@given(st.integers(0, 2**32))
@example(1)
def test_chains_are_checked_against_listed_cells(seed: int) -> None:
    """The oracle: a stripe's cells, as listed, are what its definition says."""
    rng = random.Random(seed)
    n = rng.choice([24, 32, 48])
    period = rng.choice([k for k in range(2, n + 1) if n % k == 0])
    on, phase = rng.randint(1, period - 1), rng.randrange(period)
    cells = np.array([z for z in range(n) if (z - phase) % period < on])
    assert _is_stripe(cells, n)
    assert period == n or not _is_stripe(cells[1:], n) or len(cells) == 2


@pytest.mark.parametrize("seed", range(12))
def test_chains_whose_blocks_are_stripes_move_nothing(seed: int) -> None:
    check_chain(*make_case(seed))


@pytest.mark.heavy
@pytest.mark.parametrize("begin", range(12, 212, 25))
def test_two_hundred_chains_move_nothing(begin: int) -> None:
    for seed in range(begin, begin + 25):
        check_chain(*make_case(seed))


# -- what plans over split axes take, and the bound ----------------------------------------------------------


def draw_rolled(rng: random.Random) -> Graph:
    """Operators that work cell by cell, and others, with rolls, flips and riffles between them."""
    n, k = rng.choice([6, 8, 12, 12, 24]), rng.choice([4, 6, 8])
    g = Graph()
    made = [g.input("x", (k, n))]

    def view(h: Tensor) -> Tensor:
        kind, s, r = (
            rng.choice(["no", "roll", "flip", "riffle", "even", "swap", "down", "T"]),
            rng.randrange(1, n),
            rng.randrange(1, k),
        )
        match kind:
            case "roll" | "swap":
                s = n // 2 if kind == "swap" else s
                return concatenate([h[:, s:], h[:, :s]], 1)
            case "down":
                return concatenate([h[r:], h[:r]], 0)
            case "flip":
                return h[::-1, ::-1]
            case "riffle":
                return h.reshape(k, 2, n // 2).permute_dims((0, 2, 1)).reshape(k, n)
            case "even":
                return concatenate([h[:, ::2], h[:, 1::2]], 1)
            case "T":
                return h.reshape(n, k).T
        return h

    for j in range(rng.randint(2, 5)):
        h = view(rng.choice(made))
        match rng.choice(["tanh", "relu", "exp", "input", "two", "softmax", "matmul", "sum"]):
            case "input":
                h = h + g.input(f"z{j}", (k, n))
            case "two":
                h = h + view(rng.choice(made))
            case "softmax":
                h = g.op("softmax", h, axis=rng.choice([0, 1]))
            case "matmul":
                h = h @ g.input(f"w{j}", (n, n))
            case "sum":
                h = h * g.op("sum", h, axis=(1,), keepdims=True)
            case op:
                h = g.op(op, h)
        made.append(h)
    g.output(made[-1], "y")
    return g


@pytest.mark.parametrize(
    "seeds",
    [range(8), *(pytest.param(range(k, k + 8), marks=pytest.mark.heavy(20)) for k in range(8, 400, 8))],
    ids=str,
)
def test_plans_over_split_axes_take_what_their_steps_take(seeds: range) -> None:
    """Who reads what is made over split axes copies other cells than the graph as given says; bounds hold."""
    for seed in seeds:
        rng = random.Random(seed)
        g = draw_rolled(rng)
        rates = rng.choice([1e6, 1e9]), rng.choice([1e9, 1e10])
        link = Link(rng.choice([1e-9, 1e-8, 1e-6]), rng.choice([1e8, 1e9, 1e10]))
        mesh = Mesh((rng.choice([2, 3, 4, 6]),), device=Device(*rates), link=link)
        p = plan(g, mesh)
        again = Recosting(p)
        assert (again.ticks, again.nbytes) == (round(p.seconds * 1e12), p.nbytes_moved)
        assert p.bound <= min(p.seconds, plan(g, mesh, expand=False).seconds)


@pytest.mark.parametrize("devices", [3, 6])
@pytest.mark.parametrize("n", [6, 12, 6 * 10**9])
def test_a_roll_by_half_is_planned_where_parts_go_around_the_end(n: int, devices: int) -> None:
    """Two cells around the end of an axis are one strided block of it, and two of the view that a plan has."""
    g = Graph()
    h = tanh(g.input("x", (2, n)))
    g.output(relu(concatenate([h[:, n // 2 :], h[:, : n // 2]], 1)), "y")
    p = plan(g, Mesh((devices,)))
    assert p.nbytes_moved == 0 and 0 <= p.gap < 0.2


@pytest.mark.heavy(2)
def test_a_bound_holds_where_the_time_was_over_at_once(pytestconfig: pytest.Config) -> None:
    """Layouts that neighbors were not asked for may be better than those that were compared."""
    for seed in range(300 if pytestconfig.getoption("--all") else 12):
        rng = random.Random(seed)
        g, mesh = draw_rolled(rng), Mesh((rng.choice([2, 3, 4]),), device=Device(1e6, 1e9), link=Link(1e-8, 1e9))
        late = plan(g, mesh, expand=SPLIT, time_limit_seconds=0)
        assert late.bound <= plan(g, mesh, expand=SPLIT).seconds <= late.seconds * 1.001
