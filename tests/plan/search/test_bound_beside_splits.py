"""Bounds of what readers of split operators copy, against the sums of all choices, listed."""

from __future__ import annotations

import random
from functools import reduce
from math import inf, prod

import numpy as np
import pytest
from msgspec.structs import replace
from test_splits import draw_rolled

from tapestry_plan import Device, Link, Mesh
from tapestry_plan.search.neighbors import splitting
from tapestry_plan.search.prices.added import add_offered, derive_layouts, offer_cuts
from tapestry_plan.search.prices.costs import Asked, Problem

MOST = 2_000_000
"""Choices of a graph whose sums are listed."""


def pose(seed: int) -> Problem:
    """A graph with rolls, flips and riffles, whose operators may work over split axes."""
    rng = random.Random(seed)
    graph, devices = draw_rolled(rng), rng.choice([2, 3])
    asked = Asked(Mesh((devices,), device=Device(1e6, 1e9), link=Link(1e-8, rng.choice([1e8, 1e10]))))
    offered = offer_cuts(graph, devices, (), known=asked.known)
    derived = derive_layouts(Problem(graph, replace(asked, derived=offered)), ())
    return Problem(graph, replace(asked, derived={**derived, **add_offered(offered, derived)}))


def list_sums(problem: Problem) -> np.ndarray:
    """What every choice takes by the tables, with an axis for each variable."""
    search, _ = problem.factors()
    sizes = problem.sizes
    spread = (f.ticks.reshape([n if v in f.scope else 1 for v, n in enumerate(sizes)]) for f in search)
    return np.broadcast_to(reduce(np.add, spread), sizes)


@pytest.mark.parametrize(
    "seeds", [range(40), *(pytest.param(range(k, k + 40), marks=pytest.mark.heavy(9)) for k in (40, 80, 120, 160))]
)
def test_the_bound_is_the_least_sum_and_no_row_of_a_lower_one_is_left_out(seeds: range) -> None:
    counted = 0
    for seed in seeds:
        problem = pose(seed)
        less = splitting._list_readings(problem)
        if not less or prod(problem.sizes) > MOST:
            continue
        wanted, least = int(list_sums(problem).min()), []
        rows = [np.arange(size) for size in problem.sizes]
        for is_exact in (False, True):
            lowered = splitting._WithoutCopies(problem, less, is_exact)
            sums = list_sums(lowered)
            found, rows = splitting._find_bound(lowered, rows, wanted, inf)
            least.append(int(sums.min()))
            assert found == min(wanted, least[-1])
            lower = np.argwhere(sums < wanted)
            assert all(np.isin(values, kept).all() for values, kept in zip(lower.T, rows, strict=True))
            counted += 1
        assert least[0] <= least[1]
        whole = splitting.bound_with_splits(problem, wanted, inf)
        assert whole == min(wanted, least[1])
    assert counted
