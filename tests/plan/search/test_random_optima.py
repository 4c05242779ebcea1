"""Random graphs against every choice of documented layouts, by sets of cells: no bound above it, no plan worse."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import product
from math import prod

import pytest

from tapestry_plan import Device, Graph, Link, Mesh, Tensor, ops, plan
from tests.tiny_plans import Tiny, every_layout, every_mesh_layout

MOST_CHOICES = 1500
"""Choices of layouts that are costed for one graph."""


class Drawn:
    """A random graph, with the cells that its operators read and write beside it."""

    def __init__(self, rng: random.Random, mesh: Mesh) -> None:
        self.rng, self.graph, self.tiny = rng, Graph(), Tiny(mesh)
        self.tensors: list[tuple[Tensor, str]] = []
        for k in range(rng.choice([1, 2])):
            shape = rng.choice([2, 3, 4]), rng.choice([2, 3, 5])
            self.tensors.append((self.graph.input(f"x{k}", shape), f"x{k}"))
        self.read: set[str] = set()
        for _ in range(rng.choice([2, 2, 3])):
            self.add_operator()
        for t, name in list(self.tensors):
            if name.startswith("t") and name not in self.read:
                self.relu(t, name)  # what is given back is whole: partial outputs are merged in stages of their own
        for t, name in self.tensors:
            if name.startswith("t") and name not in self.read:
                self.graph.output(t, f"out_{name}")

    def stage(self, made: Tensor, *args: object, views: tuple[int, ...] = ()) -> None:
        """The cells of an operator: extents, reads(point), its name, cell written, reduced axes, flop a point."""
        extents, reads, name, writes, reduces, flop = args
        rows = not str(self.graph.nodes[str(name)].op).startswith("sum")
        self.tiny.stage(extents, reads, name, writes, reduces, flop, views, rows)  # type: ignore[arg-type]
        self.tensors.append((made, str(name)))

    def pick(self) -> tuple[Tensor, str]:
        t, name = self.rng.choice(self.tensors)
        self.read.add(name)
        return t, name

    def name(self) -> str:
        return f"t{len(self.tiny.stages)}"

    def relu(self, t: Tensor, name: str) -> None:
        self.read.add(name)
        mine = self.name()
        made = ops.relu(t, name=mine)
        self.stage(made, t.shape, lambda *at: {(name, at)}, mine, lambda *at: (mine, at), 0, 1.0)

    def add_operator(self) -> None:
        (t, name), mine = self.pick(), self.name()
        m, n = t.shape
        word = self.rng.choice(["product", "turned", "add", "relu", "every second", "from the last", "sum"])
        if word == "product":  # with itself, the second time transposed: two readers of one tensor
            made = ops.matmul(t, t.T, name=mine)
            self.stage(
                made,
                (m, m, n),
                lambda i, j, k: [(name, (i, k)), (name, (j, k))],
                mine,
                lambda i, j, k: (mine, (i, j)),
                1,
                2.0,
                views=(1,),
            )
        elif word == "turned":
            w, width = f"w{mine}", self.rng.choice([2, 3])
            made = ops.matmul(t.T, self.graph.input(w, (m, width)), name=mine)
            self.stage(
                made,
                (n, width, m),
                lambda i, j, k: [(name, (k, i)), (w, (k, j))],
                mine,
                lambda i, j, k: (mine, (i, j)),
                1,
                2.0,
                views=(0,),
            )
        elif word == "add":
            other, like = self.rng.choice([(u, label) for u, label in self.tensors if u.shape == t.shape])
            self.read.add(like)
            made = ops.add(t, other, name=mine)
            self.stage(made, (m, n), lambda *at: [(name, at), (like, at)], mine, lambda *at: (mine, at), 0, 1.0)
        elif word == "relu":
            self.relu(t, name)
        elif word == "every second":
            made = ops.relu(t[::2], name=mine)
            at = ((m + 1) // 2, n), lambda i, j: {(name, (2 * i, j))}, mine, lambda *at: (mine, at), 0, 1.0
            self.stage(made, *at, views=(0,))
        elif word == "from the last":
            made = ops.relu(t[:, ::-1], name=mine)
            at = (m, n), lambda i, j: {(name, (i, n - 1 - j))}, mine, lambda *at: (mine, at), 0, 1.0
            self.stage(made, *at, views=(0,))
        else:
            made = ops.sum(t, axis=0, name=mine)
            self.stage(made, (n, m), lambda i, k: {(name, (k, i))}, mine, lambda i, k: (mine, (i,)), 1, 1.0)
            self.relu_of_row(made, mine, n)

    def relu_of_row(self, t: Tensor, name: str, n: int) -> None:
        self.tensors.pop()  # a row: other operators take matrices
        mine = self.name()
        made = ops.relu(t.reshape(1, n), name=mine)
        self.stage(made, (1, n), lambda i, j: {(name, (j,))}, mine, lambda *at: (mine, at), 0, 1.0, views=(0,))


def draw_device(rng: random.Random) -> Device:
    rates = 1e9, rng.choice([1e8, 1e10]), rng.choice([0.0, 3e-9])
    return Device(*rates, packed_nbytes_per_second=rng.choice([None, 1e8, 1e10]))


def draw(seed: int, space: str) -> tuple[Graph, Tiny, list[list]]:
    """A graph, its cells, and the distinct layouts of each operator."""
    rng = random.Random(f"{space} {seed}")
    while True:
        shape = rng.choice([(2,), (3,), (4,)] if space == "all" else [(2, 2), (3, 2), (5,)])
        link = Link(rng.choice([0.0, 1e-9, 1e-7]), rng.choice([1e7, 1e9, 1e11]))
        if len(shape) > 1 and rng.random() < 0.5:
            link = (link, Link(link.latency_seconds / 5, 10 * link.nbytes_per_second))  # type: ignore[assignment]
        mesh = Mesh(shape, link=link, device=draw_device(rng))
        drawn = Drawn(rng, mesh)
        layouts = [list(list_layouts(extents, shape, space)) for extents, *_ in drawn.tiny.stages]
        if prod(map(len, layouts)) <= MOST_CHOICES:
            return drawn.graph, drawn.tiny, layouts


def list_layouts(extents: tuple[int, ...], shape: tuple[int, ...], space: str) -> Iterator[list]:
    every = every_layout(extents, prod(shape)) if space == "all" else every_mesh_layout(extents, shape)
    return iter({str(layout): layout for layout in every}.values())


@pytest.mark.parametrize("space", ["all", "mesh"])
def test_bounds_and_plans_against_every_choice(space: str, pytestconfig: pytest.Config) -> None:
    """The search has more to choose from, landings and layouts that neighbors ask for: it may only be better."""
    exact = 0
    for seed in range(1000 if pytestconfig.getoption("--all") else 12):
        g, tiny, layouts = draw(seed, space)
        best = min(tiny.cost(list(choice), set()) for choice in product(*layouts))
        p = plan(g, tiny.mesh, space=space, expand=False, unify=False, fuse=False)
        spent = round(p.seconds * 1e12), p.nbytes_moved
        assert round(p.bound * 1e12) <= spent[0], seed
        assert round(p.bound * 1e12) <= best[0], f"seed {seed}: a bound above what a choice of layouts takes"
        assert p.gap > 0 or spent <= best, f"seed {seed}: proved best, and worse than a choice of layouts"
        exact += spent == best
    assert exact, "no plan costs what the cells say: the oracle speaks of something else"
