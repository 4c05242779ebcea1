"""Min-marginals against every assignment tried in turn, and plans that are proved with them against brute force."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tapestry_plan import Device, Graph, Link, Mesh, plan
from tapestry_plan.ops.cells.elementwise import add, relu
from tapestry_plan.search import tuning
from tapestry_plan.search.prices.costs.problem import Problem
from tapestry_plan.search.prices.costs.variables import Asked
from tapestry_plan.search.solving import solve
from tapestry_plan.search.sums.elimination import Balance, Factor, evaluate, minimize, split_bucket
from tapestry_plan.search.sums.pruning import find_marginals

Sum = tuple[list[int], list[Factor]]


@st.composite
def sums(draw: st.DrawFn) -> Sum:
    """Up to five variables, and tables over up to three of them."""
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=5))
    factors = []
    for _ in range(draw(st.integers(0, 6))):
        scope = tuple(sorted(draw(st.sets(st.integers(0, len(sizes) - 1), max_size=3))))
        shape = tuple(sizes[v] for v in scope)
        rng = np.random.default_rng(draw(st.integers(0, 2**32)))
        factors.append(Factor(scope, rng.integers(0, 9, shape), rng.integers(0, 4, shape)))
    return sizes, factors


def least_with_each_value(sizes: list[int], factors: list[Factor]) -> list[list[int]]:
    """By trying every assignment."""
    least = [[10**9] * size for size in sizes]
    for choice in product(*map(range, sizes)):
        ticks, _ = evaluate(choice, factors)
        for variable, value in enumerate(choice):
            least[variable][value] = min(least[variable][value], ticks)
    return least


@given(sums())
@example(([2], []))
@example(([2, 3], [Factor((), np.array(7), np.array(0))]))
def test_marginals_are_the_least_sums(some: Sum) -> None:
    sizes, factors = some
    found = find_marginals(sizes, factors)
    wanted = least_with_each_value(sizes, factors)
    assert found.exact
    assert [least.tolist() for least in found.least] == wanted
    assert found.bound_ticks == min(wanted[0])


def test_parts_of_a_split_bucket_are_balanced() -> None:
    """Each alone would take another value: the sum of what they cost at best is 0, and 4 where both cost the same."""
    f, g = np.array([0, 8]), np.array([4, 0])
    groups = Balance().shift([[Factor((0,), f, f)], [Factor((0,), g, g)]], 0, [2])
    least = [sum(factor.ticks for factor in group).min() for group in groups]
    assert sum(least) == 4 == (f + g).min()


@given(sums())
def test_balancing_leaves_sums_as_they_are(some: Sum) -> None:
    sizes, factors = some
    groups = split_bucket([factor for factor in factors if 0 in factor.scope], sizes, 4)
    shifted = [factor for group in Balance().shift(groups, 0, sizes) for factor in group]
    for choice in product(*map(range, sizes)):
        assert evaluate(choice, shifted) == evaluate(choice, [factor for group in groups for factor in group])


@given(sums(), st.integers(2, 4))
def test_what_stands_many_times_is_told_alike(some: Sum, many: int) -> None:
    """Copies of a sum in a row, each linked to the next by one more table, as layers are."""
    sizes, factors = some
    rng = np.random.default_rng(many)
    link = rng.integers(0, 9, (sizes[-1], sizes[0]))
    n = len(sizes)
    copies = [
        Factor(tuple(v + n * k for v in factor.scope), factor.ticks, factor.nbytes)
        for k in range(many)
        for factor in factors
    ]
    copies += [Factor((n * k + n - 1, n * k + n), link, link) for k in range(many - 1)]
    found = find_marginals(sizes * many, copies)
    apart = find_marginals(sizes * many, [Factor(f.scope, f.ticks.copy(), f.nbytes) for f in copies])
    assert [least.tolist() for least in found.least] == [least.tolist() for least in apart.least]
    assert found.bound_ticks == apart.bound_ticks == minimize(sizes * many, copies).ticks


@given(sums(), st.integers(1, 8))
def test_marginals_of_split_buckets_are_below(some: Sum, cap: int) -> None:
    sizes, factors = some
    found = find_marginals(sizes, factors, cap=cap)
    wanted = least_with_each_value(sizes, factors)
    assert found.bound_ticks <= min(wanted[0])
    for least, most in zip(found.least, wanted, strict=True):
        assert (found.bound_ticks <= least).all() and (least <= most).all()


@given(sums(), st.integers(0, 40), st.integers(1, 8), st.integers(1, 8))
@example(([4, 4, 4], [Factor(pair, *(np.eye(4, dtype=np.int64),) * 2) for pair in [(0, 1), (0, 2)]]), 1, 8, 8)
def test_parts_that_are_too_large_are_not_balanced(some: Sum, ticks: int, cap: int, largest: int) -> None:
    """One table over two operators of thousands of layouts each may be larger than any that is made to prune."""
    sizes, factors = some
    wanted = least_with_each_value(sizes, factors)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tuning, "MAX_PRUNING_ENTRIES", largest)
        every = [find_marginals(sizes, factors, cap=cap, most=most) for most in (None, ticks)]
    for found in every:
        assert found.bound_ticks <= min(wanted[0])
        for least, most in zip(found.least, wanted, strict=True):
            assert (least <= most).all()


@given(sums(), st.integers(0, 40), st.integers(1, 64))
def test_no_assignment_that_is_as_good_is_left_out(some: Sum, ticks: int, cap: int) -> None:
    sizes, factors = some
    kept = find_marginals(sizes, factors, cap=cap).list_kept(ticks)
    for choice in product(*map(range, sizes)):
        if evaluate(choice, factors)[0] <= ticks:
            assert all(value in values for value, values in zip(choice, kept, strict=True))


@given(sums(), st.integers(0, 40), st.integers(1, 64), st.booleans(), st.integers(1, 64))
def test_further_passes_leave_out_what_is_larger_alone(
    some: Sum, ticks: int, cap: int, asks: bool, widest: int
) -> None:
    """Whatever is shifted and left out on the way: bounds hold up to some picoseconds, and say no more beyond."""
    sizes, factors = some
    wanted = least_with_each_value(sizes, factors)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tuning, "MAX_PRUNING_ENTRIES", widest)
        for name, value in {"FIRST_PRUNING_ENTRIES": 2, "WIDER_PRUNING_ENTRIES": cap, "MAX_MISSING_SHARE": 1}.items():
            patch.setattr(tuning, name, value)
        found = find_marginals(sizes, factors, cap=cap, most=(lambda _: ticks) if asks else ticks)
    assert found.bound_ticks <= min(wanted[0])
    for least, most, kept in zip(found.least, wanted, found.list_kept(ticks), strict=True):
        assert (least <= most).all() and set(np.flatnonzero(np.array(most) <= ticks)) <= set(kept)


def test_a_table_larger_than_any_that_is_shifted_still_bounds_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two operators of thousands of layouts each have such a one; its bucket is split, and nothing is shifted in it."""
    rng = np.random.default_rng(0)
    scopes = [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]
    sizes = [9, 9, 4, 3]
    factors = [Factor(pair, *(rng.integers(0, 9, [sizes[v] for v in pair]),) * 2) for pair in scopes]
    wanted = least_with_each_value(sizes, factors)
    monkeypatch.setattr(tuning, "MAX_PRUNING_ENTRIES", 80)
    for most in (None, min(wanted[0])):
        found = find_marginals(sizes, factors, cap=80, most=most)
        assert not found.exact and 0 < found.bound_ticks <= min(wanted[0])
        for least, mine in zip(found.least, wanted, strict=True):
            assert (least <= mine).all()


@pytest.mark.parametrize("many", [2, 40])
def test_split_buckets_that_stand_many_times_are_gone_through_once(many: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is shifted in one of them is one object in all: so they stay alike, and take no more of what may be."""
    rng = np.random.default_rng(0)
    tables = {pair: rng.integers(0, 99, (6, 6)) for pair in combinations(range(4), 2)}
    nothing = np.zeros((6, 6), np.int64)
    monkeypatch.setattr(tuning, "MIN_SPLIT_ENTRIES", 1)
    copies = [Factor((4 * k + a, 4 * k + b), t, nothing) for k in range(many) for (a, b), t in tables.items()]
    once, often = (minimize([6] * 4 * n, copies[: 6 * n], cap=36, reduces=False) for n in (1, many))
    assert not once.exact and often.entries == once.entries
    assert often.bound_ticks == many * once.bound_ticks


def test_costs_that_are_shifted_prove_what_one_pass_does_not() -> None:
    """A ring of pairs that no table of two variables joins: the bound of one pass is below, that of many is reached."""
    rng = np.random.default_rng(5)
    pairs = list(combinations(range(6), 2))
    tables = [rng.integers(0, 1000, (4, 4)) for _ in pairs]
    factors = [Factor(pair, table, np.zeros_like(table)) for pair, table in zip(pairs, tables, strict=True)]
    least = min(evaluate(choice, factors)[0] for choice in product(range(4), repeat=6))
    once, often = (find_marginals([4] * 6, factors, cap=64, most=most) for most in (None, least))
    assert once.bound_ticks < often.bound_ticks <= least
    assert sum(map(len, often.list_kept(least))) < sum(map(len, once.list_kept(least)))


# -- problems ------------------------------------------------------------------------------------------------


def test_large_tables_are_never_there_whole() -> None:
    """Three variables that meet in pairs: their joint table has 8 million entries, and what is added at once few."""
    rng = np.random.default_rng(0)
    factors = [Factor(pair, *(rng.integers(0, 99, (200, 200)),) * 2) for pair in [(0, 1), (0, 2), (1, 2)]]
    tracemalloc.start()
    found = find_marginals([200] * 3, factors)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    first, second, third = (factor.ticks for factor in factors)
    every = first[:, :, None] + second[:, None, :] + third[None, :, :]
    assert found.exact and found.bound_ticks == every.min()
    for axis, least in enumerate(found.least):
        assert (least == every.min(axis=tuple({0, 1, 2} - {axis}))).all()
    assert peak < every.nbytes // 8


def readers(count: int, rows: int, columns: int, kind: str) -> Graph:
    """One tensor that some operators read: all of it, a part of its own each, or halves that overlap."""
    g = Graph()
    h = relu(g.input("x", (rows, columns)), name="h")
    for k in range(count):
        if kind == "all":
            y = g.op("matmul", h, g.input(f"w{k}", (columns, 2 + k)), name=f"m{k}")
        elif kind == "parts":
            y = relu(h[:, k * columns // count : (k + 1) * columns // count], name=f"m{k}")
        else:
            y = relu(h[k : k + rows // 2], name=f"m{k}")
        g.output(y)
    return g


def every_cost(problem: Problem) -> Iterator[tuple[int, int]]:
    """Of every choice of layouts, by region algebra, one device after the other: no tables."""
    for choice in product(*map(range, problem.sizes)):
        yield problem.count_cost(choice)


@pytest.mark.heavy(2)
@pytest.mark.parametrize(
    ("kind", "count"), [("all", 2), ("parts", 2), ("parts", 3), ("overlapping", 2), ("overlapping", 3)]
)
@pytest.mark.parametrize("bandwidth", [1e8, 1e10])
@pytest.mark.parametrize("first", [0, 1, 10**6])
def test_what_is_solved_is_the_best_of_all_layouts(
    kind: str, count: int, bandwidth: float, first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where no consumers are counted jointly at first, and where they never fit."""
    monkeypatch.setattr(tuning, "FIRST_FACTOR_ENTRIES", first)
    mesh = Mesh((2,), link=Link(1e-7, bandwidth), device=Device(1e9, 1e10))
    problem = Problem(readers(count, 6, 4, kind), Asked(mesh))
    found = solve(problem)
    best = min(every_cost(problem))
    assert problem.count_cost(found.choice) == best
    assert found.ticks == found.bound_ticks == best[0]


@settings(max_examples=max(10, settings.default.max_examples // 10))
@given(st.integers(1, 3), st.integers(2, 6), st.sampled_from([1e7, 1e8, 1e9, 1e10]), st.data())
def test_bounds_hold_where_little_fits(count: int, rows: int, bandwidth: float, data: Any) -> None:
    """With tables of a few entries a proof may fail: the bound stays below the best, and the plan above."""
    # Products have a place for their parts and one for their output too: three of them have too many choices to try.
    kind = data.draw(st.sampled_from(["all", "parts", "overlapping"] if count < 3 else ["parts", "overlapping"]))
    mesh = Mesh((2,), link=Link(1e-7, bandwidth), device=Device(1e9, 1e10))
    problem = Problem(readers(count, 2 * rows, 4, kind), Asked(mesh))
    limits = {"FIRST_FACTOR_ENTRIES": 0, "MAX_FACTOR_ENTRIES": data.draw(st.integers(0, 200))}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in limits.items():
            patch.setattr(tuning, name, value)
        found = solve(problem)
    best = min(every_cost(problem))
    assert found.bound_ticks <= best[0] <= found.ticks
    assert problem.count_cost(found.choice)[0] == found.ticks


def test_what_one_reader_gathered_may_serve_several_operands_of_another() -> None:
    """Alone that one gathers for each of them: more than both readers take together, so the bound has less of it."""
    g = Graph()
    x = g.input("x", (8, 8))
    g.output(x @ g.input("w", (8, 8)))
    g.output(x[1:] * x[:-1])
    problem = Problem(g, Asked(Mesh(2, link=Link(1e-9, 1e10), device=Device(1e7, 1e10)), placement="single"))
    bound = problem.factors(0)[1]
    assert problem.counted_alone
    for choice in product(*map(range, problem.sizes)):
        assert evaluate(choice, bound)[0] <= problem.count_cost(choice)[0] + problem.listed.rounded


def test_readers_of_parts_of_their_own_are_counted_apart() -> None:
    """Three readers of a third each: pairs of layouts say all, and no table has more than two axes."""
    problem = Problem(readers(3, 4, 6, "parts"), Asked(Mesh((4,))))
    together = Problem(readers(3, 4, 6, "all"), Asked(Mesh((4,))))
    assert max(len(factor.scope) for factor in problem.factors()[0]) == 2
    assert max(len(factor.scope) for factor in together.factors()[0]) == 4


def test_restricted_problems_count_as_before() -> None:
    problem = Problem(readers(3, 6, 4, "overlapping"), Asked(Mesh((4,))))
    problem.factors()
    kept = [np.arange(0, size, 2) for size in problem.sizes]
    smaller = problem.restrict(kept)
    search, _ = smaller.factors()
    for choice in product(*(range(0, size, 3) for size in smaller.sizes)):
        before = tuple(int(values[value]) for values, value in zip(kept, choice, strict=True))
        assert smaller.count_cost(choice) == problem.count_cost(before) == evaluate(choice, search)


def test_layers_on_eight_devices_are_proved() -> None:
    """Four readers of one tensor, whose joint table would have 10⁸ entries: few layouts can be in a best plan."""
    g = Graph()
    x = g.input("x", (32, 64))
    h = g.op("layer_normalization", x, g.input("s", (64,)), g.input("b", (64,)), name="h")
    q, k, v = (g.op("matmul", h, g.input(f"w{n}", (64, 64)), name=n) for n in "qkv")
    g.output(add(add(q, k), add(v, h)))
    p = plan(g, Mesh((8,)), expand=False)
    problem = Problem(g, Asked(Mesh((8,))))
    problem.factors()
    assert problem.counted_alone
    assert p.gap == 0
