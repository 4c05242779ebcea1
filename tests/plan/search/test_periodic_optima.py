"""Periodic parts and permuted devices against brute force: every way to deal an axis out in boxes of its digits.

The oracle knows nothing of layouts: it lists labelings of the cells, one label for each device, and counts cells.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import permutations, product
from math import prod

import numpy as np
import pytest

from tapestry_plan import Device, Graph, Link, Mesh, Tensor, concat, plan
from tapestry_plan.ops import exp, tanh

Reads = list[list[tuple[int, str]]]
"""For each operator what its operands read: the operator that makes it, −1 for the input, and a view by its name."""

VIEWS: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[np.ndarray], np.ndarray]]] = {
    "none": (lambda t: t, lambda a: a),
    "flip": (lambda t: t[::-1], lambda a: a[::-1]),
    "phases": (lambda t: concat([t[::2], t[1::2]], 0), lambda a: np.concatenate([a[::2], a[1::2]])),
    "riffle": (lambda t: t.reshape(2, -1).T.reshape(-1), lambda a: a.reshape(2, -1).T.reshape(-1)),
    "roll": (lambda t: concat([t[1:], t[:1]], 0), lambda a: np.roll(a, -1)),
    "swap": (lambda t: concat([t[4:], t[:4]], 0), lambda a: np.roll(a, -4)),
    "pairs": (lambda t: t.reshape(-1, 2)[:, ::-1].reshape(-1), lambda a: a.reshape(-1, 2)[:, ::-1].reshape(-1)),
    "halves flipped": (
        lambda t: concat([t[:4][::-1], t[4:][::-1]], 0),
        lambda a: np.concatenate([a[:4][::-1], a[4:][::-1]]),
    ),
}
BUSY = {"device": Device(1e3, 1e30, 0.0), "link": Link(0.0, 1e12)}
"""Work is divided first, bytes decide between equal divisions."""


def make_reads(seed: int, operands: Sequence[int]) -> Reads:
    """A chain of operators of so many operands each, that read the one before through views, or seldom another."""
    rng = random.Random(seed)

    def read(number: int) -> tuple[int, str]:
        source = rng.randrange(-1, number) if number > 1 and rng.random() < 0.3 else number - 1
        return source, rng.choice(list(VIEWS))

    return [[read(number) for _ in range(count)] for number, count in enumerate(operands)]


def make_graph(reads: Reads, cells: int) -> Graph:
    g = Graph()
    x, made = g.input("x", (cells,)), []
    for each in reads:
        viewed = [VIEWS[view][0](x if source < 0 else made[source]) for source, view in each]
        made.append(exp(viewed[0]) if len(viewed) == 1 else viewed[0] + viewed[1])
    used = {source for each in reads for source, _ in each}
    for number in set(range(len(made))) - used:
        g.output(made[number], f"y{number}")
    return g


def _factors(n: int) -> Iterator[tuple[int, ...]]:
    if n == 1:
        yield ()
    for f in (f for f in range(2, n + 1) if n % f == 0):
        yield from ((f, *rest) for rest in _factors(n // f))


@lru_cache
def list_labels(devices: int, cells: int) -> np.ndarray:
    """Every way in which the devices share the cells evenly, each with a box of the digits of the cells' numbers.

    The numbers may begin at any cell, and have digits of any sizes.
    """
    found = set()
    for sizes in _factors(cells):
        for parts in product(*([p for p in range(1, n + 1) if n % p == 0] for n in sizes)):
            if prod(parts) != devices:
                continue
            digits = np.stack(np.unravel_index(np.arange(cells), sizes))
            blocks = np.ravel_multi_index([d * p // n for d, p, n in zip(digits, parts, sizes, strict=True)], parts)
            found |= {tuple(np.roll(blocks, first).tolist()) for first in range(cells)}
    order = permutations(range(devices))
    return np.array(sorted({tuple(np.array(names)[list(row)]) for names in order for row in found}))


def count_least(reads: Reads, devices: int, cells: int) -> int:
    """The fewest cells that move, whoever has which: cells that a device needs of an operator and has not made."""
    labels = list_labels(devices, cells)
    has = np.stack([labels == d for d in range(devices)], 1)  # (labeling, device, cell)
    total = np.zeros((len(labels),) * len(reads), np.int64)
    for maker in range(len(reads)):
        needs: dict[int, np.ndarray] = {}
        for number, each in enumerate(reads):
            for source, view in each:
                if source == maker:
                    at = VIEWS[view][1](np.arange(cells))
                    needs.setdefault(number, np.zeros_like(has))[:, :, at] |= has
        axes = [maker, *needs]

        def along(array: np.ndarray, axis: int) -> np.ndarray:
            return np.expand_dims(array, tuple(k for k in range(len(reads)) if k != axis))

        for d, cell in product(range(devices), range(cells)) if needs else ():
            needed = along(needs[axes[1]][:, d, cell], axes[1])
            for axis in axes[2:]:
                needed = needed | along(needs[axis][:, d, cell], axis)
            total += needed & ~along(has[:, d, cell], maker)
    return int(total.min())


@pytest.mark.heavy(2)
@pytest.mark.parametrize(("devices", "operands"), [(2, (1, 1, 1, 1)), (4, (1, 1)), (2, (1, 1, 1)), (4, (1, 1, 1))])
def test_chains_of_views_move_what_brute_force_moves(devices: int, operands: tuple[int, ...]) -> None:
    for seed in range(12 if devices ** len(operands) < 64 else 6):
        reads = make_reads(seed, operands)
        p = plan(make_graph(reads, 8), Mesh((devices,), **BUSY))
        assert p.nbytes_moved == 4 * count_least(reads, devices, 8) == 0, reads


@pytest.mark.heavy(2)
@pytest.mark.parametrize(
    ("cells", "devices", "operands", "seeds", "optimal"),
    [
        (8, 2, (1, 2, 2), 24, 17),
        (8, 4, (1, 2), 24, 20),
        (8, 2, (1, 2, 1), 24, 18),
        (8, 4, (1, 2, 2), 6, 4),
        (6, 3, (1, 1, 1, 1), 24, 24),
        (6, 3, (1, 2, 2, 1), 24, 23),
    ],
)
def test_graphs_against_brute_force(
    cells: int, devices: int, operands: tuple[int, ...], seeds: int, optimal: int
) -> None:
    """No plan is better than the best of all; most are as good, as many as are said here."""
    same = 0
    for seed in range(seeds):
        reads = make_reads(seed, operands)
        p = plan(make_graph(reads, cells), Mesh((devices,), **BUSY), unify=False)
        least = 4 * count_least(reads, devices, cells)
        assert least <= p.nbytes_moved and np.isclose(p.seconds, len(reads) * cells / devices / 1e3)
        same += least == p.nbytes_moved
    assert same >= optimal


@pytest.mark.parametrize("n", [16, 4096, 4 * 10**6])
def test_rotary_halves_lie_with_their_partners(n: int) -> None:
    """x · cos + (−x₂, x₁) · sin, cut along the coordinates: each device has both halves of its pairs."""
    g = Graph()
    x = exp(g.input("x", (n,)))
    turned = concat([-x[n // 2 :], x[: n // 2]], 0)
    g.output(tanh(x * g.input("cos", (n,)) + turned * g.input("sin", (n,))), "y")
    p = plan(g, Mesh((4,), link=Link(0.0, 1e12), device=Device(1e6, 1e30, 0.0)))
    assert (p.nbytes_moved, p.gap) == (0, 0)
    assert all(len(boxes) == 4 for boxes in p.placement.values())


@pytest.mark.parametrize("words", [("phases", "flip"), ("riffle", "phases", "flip"), ("flip", "riffle", "swap")])
@pytest.mark.parametrize("devices", [2, 4])
def test_periods_are_carried_through_one_view_after_another(words: tuple[str, ...], devices: int) -> None:
    reads: Reads = [[(-1, "none")], *([(k, word)] for k, word in enumerate(words))]
    p = plan(make_graph(reads, 8), Mesh((devices,), **BUSY))
    assert p.nbytes_moved == 0 and max(p.flop) * devices == sum(p.flop)
