"""Neighbors in one block against every choice of layouts, with every choice of which are fused, by sets of cells."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import product
from math import prod

import pytest

from tapestry_plan import Device, Graph, Link, Mesh, ShardPlan, plan
from tests.plan.search.test_random_optima import Drawn, list_layouts
from tests.tiny_plans import Tiny

MOST_CHOICES = 250
DEVICES = [Device(1e9, 1e10), Device(1e9, 1e10, 3e-9), Device(1e8, 4e10, 1e-9), Device(3e9, 2e9, 2e-9)]
DEVICES += [Device(1e9, 1e10, packed_nbytes_per_second=1e9), Device(3e9, 1e10, 1e-9, packed_nbytes_per_second=5e9)]


def draw(seed: int) -> tuple[Graph, Tiny, list[list]]:
    """A graph, its cells, and the distinct layouts of each operator; on devices that are alike or not."""
    rng = random.Random(f"blocks {seed}")
    while True:
        count = rng.choice([2, 3, 4])
        devices = [rng.choice(DEVICES) for _ in range(count)]
        link = Link(rng.choice([0.0, 1e-9, 1e-7]), rng.choice([1e7, 1e9, 1e11]))
        mesh = Mesh(count, link=link, device=rng.choice([devices[0], devices]))
        drawn = Drawn(rng, mesh)
        layouts = [list(list_layouts(extents, (count,), "all")) for extents, *_ in drawn.tiny.stages]
        if prod(map(len, layouts)) <= MOST_CHOICES and list_links(drawn.graph):
            return drawn.graph, drawn.tiny, layouts


def list_links(g: Graph) -> dict[int, int]:
    """Which operators may be one block with an earlier one: reader -> maker, by their numbers, as it is documented.

    The maker's result is read by that one alone, as it is; the two read nothing in common, the maker with all that it
    is in one block with; and nobody reads between them what these read, if that may move.
    """
    nodes = list(g.nodes.values())
    reads = [{stored for name in node.inputs for stored in g.source(name).stored} for node in nodes]
    block = [{k} for k in range(len(nodes))]
    links: dict[int, int] = {}
    for k, node in enumerate(nodes):
        for name in node.inputs:
            maker = next((j for j, other in enumerate(nodes) if name in other.outputs), None)
            if maker is None or name in g.outputs.values() or any(name in s.inputs for s in g.selections.values()):
                continue
            theirs = set().union(*(reads[j] for j in block[maker]))
            first = min(block[maker])
            between = set().union(*(reads[j] for j in range(first, k) if j not in block[maker]))
            moving = {t for t in theirs if g.stored[t].kind == "result"}
            if [j for j in range(len(nodes)) if name in reads[j]] == [k] and not (
                theirs & (reads[k] - {name}) or moving & between
            ):
                links[k] = maker
                block[k] |= block[maker]
                break
    return links


def list_fused(tiny: Tiny, links: dict[int, int], choice: list) -> Iterator[dict[int, int]]:
    """Every choice of neighbors that can be one block in some layouts."""
    there = [(k, maker) for k, maker in links.items() if tiny.lie_together(maker, k, choice)]
    for taken in product([False, True], repeat=len(there)):
        yield dict(link for link, wanted in zip(there, taken, strict=True) if wanted)


def cost_by_cells(tiny: Tiny, g: Graph, p: ShardPlan) -> tuple[int, int]:
    """What the plan's layouts and blocks cost."""
    names = list(g.nodes)
    layouts: list = [[None] * tiny.mesh.size for _ in names]
    for layout, name in zip(layouts, names, strict=True):
        for device, (box,) in p.placement[name].items():
            spans = [range(*span) for span in zip(box.start, box.stop, strict=True)]
            layout[device] = spans[::-1] if g.nodes[name].op == "sum" else spans  # the cells say its reduced axis last
    return tiny.cost(layouts, set(), {names.index(pair.second): names.index(pair.first) for pair in p.fused})


def test_plans_and_bounds_against_every_choice(pytestconfig: pytest.Config) -> None:
    exact = fused = unlike = 0
    for seed in range(600 if pytestconfig.getoption("--all") else 16):
        g, tiny, layouts = draw(seed)
        links = list_links(g)
        best = min(
            tiny.cost(list(choice), set(), joined)
            for choice in product(*layouts)
            for joined in list_fused(tiny, links, list(choice))
        )
        p = plan(g, tiny.mesh, expand=False, unify=False, fuse=True)
        spent = round(p.seconds * 1e12), p.nbytes_moved
        assert round(p.bound * 1e12) <= spent[0], seed
        assert round(p.bound * 1e12) <= best[0], f"seed {seed}: a bound above what a choice of blocks takes"
        assert p.gap > 0 or spent <= best, f"seed {seed}: proved best, and worse than a choice of blocks"
        if not any("landing" in stage.op for stage in p.stages) and not any(one.split for one in p.expansions):
            assert cost_by_cells(tiny, g, p) == spent, seed
        assert {(pair.second, pair.first) for pair in p.fused} <= {
            (list(g.nodes)[k], list(g.nodes)[maker]) for k, maker in links.items()
        }
        exact += spent == best
        fused += bool(p.fused)
        unlike += tiny.mesh.differs
    assert exact > 2 and fused > 2 and unlike > 2, "of each kind there are some"
