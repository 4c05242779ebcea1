"""Of plans with the same time and bytes moved, the one that places the fewest bytes: brute force, known grids."""

from __future__ import annotations

import random
from itertools import product
from math import prod

import pytest

from tapestry_plan import Device, Graph, Link, Mesh, ShardPlan, ops, plan
from tapestry_plan.search.prices.costs.problem import Problem
from tapestry_plan.search.prices.costs.variables import Asked
from tapestry_plan.search.solving import solve
from tapestry_plan.search.writing import lower_choice
from tapestry_plan.steps import HOST, Copy

RICH = Mesh((4,), link=Link(1e-7, 1e9), device=Device(1e9, 1e10))
MOST_CHOICES = 4000


def count_placed(p: ShardPlan) -> int:
    """Different cells of inputs on each device that steps bring from the host, in bytes: listed one by one."""
    cells: set[tuple[int, str, tuple[int, ...]]] = set()
    itemsize = {s.name: 4 for s in p.graph.stored.values()}
    for step in p.steps:
        if isinstance(step, Copy) and step.src == HOST:
            for region in step.regions:
                cells |= {(step.dst, step.tensor, cell) for cell in map(tuple, region.points().tolist())}
    return sum(itemsize[name] for _, name, _ in cells)


@pytest.mark.parametrize("size", [64, 4096])
def test_a_square_product_takes_a_square_grid(size: int) -> None:
    g = Graph()
    g.output(g.input("a", (size, size), "float32") @ g.input("b", (size, size), "float32"))
    p = plan(g, Mesh(16))
    (parts,) = p.sharding.values()
    assert parts == {"m": 4, "n": 4} and p.gap == 0 and p.nbytes_moved == 0
    assert sum(p.nbytes_placed) == 16 * 2 * size * size // 4 * 4 == 536_870_912 * size**2 // 4096**2
    assert max(p.peak_nbytes) == 9 * size * size // 16 * 4


@pytest.mark.parametrize(("rows", "columns", "grid"), [(96, 24, (8, 2)), (24, 96, (2, 8)), (64, 64, (4, 4))])
def test_the_grid_follows_the_matrices(rows: int, columns: int, grid: tuple[int, int]) -> None:
    """The perimeter of a part is least: of rows × columns cut 16 times, by every factorization."""
    g = Graph()
    g.output(g.input("a", (rows, 32)) @ g.input("b", (32, columns)))
    p = plan(g, Mesh(16), space="all")
    (parts,) = p.sharding.values()
    least = min(rows * 32 // m + 32 * columns // (16 // m) for m in (1, 2, 4, 8, 16))
    assert (parts["m"], parts["n"]) == grid and rows * 32 // grid[0] + 32 * columns // grid[1] == least
    assert sum(p.nbytes_placed) == count_placed(p) == 16 * 4 * least


def draw_graph(rng: random.Random) -> Graph:
    """A few operators on inputs that one or several of them read, in parts or as a whole."""
    g = Graph()
    m, k, n = (rng.choice([2, 3, 4]) for _ in range(3))
    x, w = g.input("x", (m, k)), g.input("w", (k, n))
    word = rng.choice(["product", "both", "shared", "parts", "chain"])
    if word == "product":
        g.output(x @ w)
    elif word == "both":
        g.output(x @ w, "y")
        g.output(ops.relu(x), "z")
    elif word == "shared":
        g.output(ops.relu(w) + w, "y")
    elif word == "parts":
        g.output(ops.relu(w[: k // 2 + 1]), "y")
        g.output(ops.tanh(w[k // 2 :]), "z")
    else:
        g.output(ops.relu(x) @ w, "y")
    return g


@pytest.mark.heavy(2)
@pytest.mark.parametrize("seed", range(24))
def test_no_optimal_plan_places_fewer_bytes(seed: int) -> None:
    """Against every choice of layouts: those of the least time and bytes are laid out, and their cells counted."""
    rng = random.Random(seed)
    while True:
        g = draw_graph(rng)
        mesh = Mesh((rng.choice([2, 3, 4]),), link=Link(1e-7, rng.choice([1e7, 1e9, 1e11])), device=Device(1e9, 1e10))
        problem = Problem(g, Asked(mesh))
        if prod(problem.sizes) <= MOST_CHOICES:
            break
    costs = {choice: problem.count_cost(choice) for choice in product(*map(range, problem.sizes))}
    best = min(costs.values())
    placed = {
        choice: sum(lower_choice(problem, choice, None).nbytes_placed) for choice in costs if costs[choice] == best
    }
    found = solve(problem)
    assert costs[found.choice] == best
    assert placed[found.choice] == min(placed.values())
    p = plan(g, mesh, expand=False)
    assert sum(p.nbytes_placed) == count_placed(p) == min(placed.values())


@pytest.mark.parametrize(("devices", "readers"), [(1, 100), (4, 40)])
def test_a_tensor_that_very_many_read_is_placed_once(devices: int, readers: int) -> None:
    g = Graph()
    h = x = g.input("x", (8, 8))
    for _ in range(readers):
        h = ops.relu(h @ x)
    g.output(h)
    p = plan(g, Mesh(devices))
    assert sum(p.nbytes_placed) == count_placed(p) <= devices * 8 * 8 * 4


def test_seeds_draw_ties_that_differ_in_what_they_place() -> None:
    """Otherwise the test above would say nothing."""
    g = Graph()
    g.output(g.input("x", (4, 4)) @ g.input("w", (4, 4)))
    problem = Problem(g, Asked(RICH))
    costs = {choice: problem.count_cost(choice) for choice in product(*map(range, problem.sizes))}
    best = min(costs.values())
    placed = {sum(lower_choice(problem, c, None).nbytes_placed) for c, cost in costs.items() if cost == best}
    assert len(placed) > 1


def test_of_plans_that_place_as_much_none_holds_more_at_once() -> None:
    """Each device holds a quarter of the input and of what is made of it, over which the sum lies."""
    g = Graph()
    x = g.input("x", (64, 64))
    g.output(ops.relu(x) + x)
    p = plan(g, Mesh(4), expand=False)
    assert sum(p.nbytes_placed) == 4 * 64 * 64 and max(p.peak_nbytes) == 2 * 4 * 64 * 64 // 4


def test_names_and_order_of_axes_change_nothing() -> None:
    """The product written the other way round, with other names, places as much."""
    found = []
    for turned in (False, True):
        g = Graph()
        a, b = g.input("q" if turned else "a", (96, 32)), g.input("p" if turned else "b", (32, 24))
        g.output((b.T @ a.T) if turned else a @ b)
        p = plan(g, Mesh(16))
        found.append((p.seconds, p.nbytes_moved, sum(p.nbytes_placed)))
    assert found[0] == found[1]
