"""What two views of one small allocation share, for every pair of twenty: against the numbers that NumPy lists."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any
from unittest import mock

import numpy as np
import pytest

from tapestry_sets import TooManyPieces, allocate, concatenate, limits
from tapestry_sets.alias import tuning
from tapestry_sets.alias.ladder.cells import Cells, filled, in_few_setts, read_cells
from tapestry_sets.integers import DisjointSetts, Sett, Stripe
from tapestry_sets.integers.lazy import Filled

SHAPE = (12, 10)
Chain = Callable[[Any], Any]

VIEWS: dict[str, Chain] = {
    "whole": lambda a: a,
    "rows": lambda a: a[3:7],
    "columns": lambda a: a[:, 2:9],
    "every third": lambda a: a[1::3, ::2],
    "one cell": lambda a: a[11:, 9:],
    "none": lambda a: a[5:5],
    "first row": lambda a: a[:1],
    "transposed": lambda a: a.T[4:],
    "rows of eight": lambda a: a.reshape(15, 8)[2:, :5],
    "twice": lambda a: a.reshape(8, 15)[1:7, 3:].reshape(8, 9)[:, ::2],
    "three times": lambda a: a.reshape(8, 15)[:7, 1:].reshape(14, 7)[1:, :5].reshape(5, 13)[1:4],
    "far": lambda a: a.reshape(20, 6)[15:, 1:].reshape(5, 5)[:, :3],
    "near": lambda a: a.reshape(20, 6)[:6, 1:].reshape(5, 6)[:, :4],
    "from the first": lambda a: a.reshape(15, 8)[:9, :5],
    "to the last": lambda a: a.reshape(15, 8)[5:, 3:],
    "three from the first": lambda a: a.reshape(8, 15)[:7, :9].reshape(9, 7)[:, :5].reshape(5, 9)[:4],
    "three to the last": lambda a: a.reshape(8, 15)[1:, 6:].reshape(9, 7)[:, 2:].reshape(5, 9)[1:],
    "chosen rows": lambda a: a[[0, 1, 5, 7, 8]],
    "chosen columns": lambda a: a[:, [9, 0, 4, 5]],
    "every fifteenth": lambda a: a.reshape(8, 15)[:, :1],
    "only the first of these": lambda a: a[[0, 7, 11]][:, [0, 4, 7, 9]],
    "both": lambda a: a[[0, 5, 6, 11]][:, [1, 2, 4, 8]],
}


def pairs() -> Iterator[tuple[str, tuple[Cells, set[int]], tuple[Cells, set[int]]]]:
    home = allocate(SHAPE)
    array = np.arange(home.size).reshape(SHAPE)
    each = []
    for name, chain in VIEWS.items():
        view = chain(home)
        cells = view.cells.get(home) or read_cells((), 0, view.shape, SHAPE, home.size)
        each.append((name, cells, set(chain(array).ravel().tolist())))
    for (name, *one), (other, *two) in product(each, repeat=2):
        yield f"{name}, {other}", tuple(one), tuple(two)  # type: ignore[misc]


def numbers(points: np.ndarray) -> set[int]:
    return set((points @ [SHAPE[1], 1]).tolist())


@pytest.mark.parametrize("few", [tuning.FEW_SETTS, 1])
def test_what_two_views_share_is_as_listed(few: int) -> None:
    held: set[type] = set()
    with mock.patch.object(tuning, "FEW_SETTS", few):
        for name, (c, one), (d, two) in pairs():
            held.add(type(c.setts))
            assert c.count_common(d) == len(one & two), name
            assert c.meets(d) == bool(one & two), name
            assert c.issubset(d) == (one <= two), name
            try:
                assert numbers(c.common_regions(d).points()) == one & two, name
            except TooManyPieces:
                assert few == 1
            cell, beside, some = c.a_common_cell(d), c.cell_beside(d), c.cell_beside(None)
            for found, wanted in ((cell, one & two), (beside, one - two), (some, one)):
                assert (found is not None) == bool(wanted), name
                assert found is None or found[0] * SHAPE[1] + found[1] in wanted, name
            assert c.size == len(one) and c.is_empty == (not one) and c.closed_size in (len(one), None)
    assert held >= {DisjointSetts, type(None)} and (few > 1 or Filled in held)


def test_a_view_of_two_allocations_has_the_cells_of_each() -> None:
    one, other = allocate((6,)), allocate((9,))
    both = concatenate([one[1::2], other[2:5], one[:1]])
    assert both.cells[one].explicit().elements(0, 6).tolist() == [0, 1, 3, 5]
    assert both.cells[other].explicit().elements(0, 9).tolist() == [2, 3, 4]
    for at, home in enumerate(both.allocations):
        found = read_cells(both.pieces, at, both.shape, home.shape, home.size)
        assert found.size == (4 if home == one else 3)


def test_a_short_part_of_what_shatters_is_listed() -> None:
    n = 10**6
    home = allocate((n, n + 7))
    rows = home.reshape(n + 7, n)[:, : n // 2].reshape(n // 2, n + 7)[:, : n // 3]
    part = home[:2, :900]
    with limits(max_pieces=60), pytest.raises(TooManyPieces):
        rows.cells[home].explicit()
    z = (np.arange(2)[:, None] * (n + 7) + np.arange(900)).ravel()
    rank = z // n * (n // 2) + z % n  # among the left halves of rows of n
    kept = z[(z % n < n // 2) & (rank % (n + 7) < n // 3)]
    for first, second in ((rows, part), (part, rows)):
        with limits(max_pieces=60):
            found = first.cells[home].common_regions(second.cells[home])
        assert (found.points() @ [n + 7, 1]).tolist() == kept.tolist()


def test_products_of_chosen_indices_meet_axis_by_axis() -> None:
    n = 10**7
    home = allocate((n, n))
    squares, cubes = [k * k for k in range(3000)], [k**3 for k in range(200)]  # 600,000 setts, if they were written out
    sixths = sorted(set(squares) & set(cubes))
    one, other = home.take(squares, axis=0).take(cubes, axis=1), home.take(cubes, axis=0).take(squares, axis=1)
    found = one.cells[home].common_regions(other.cells[home])
    assert found.points().tolist() == [[x, y] for x in sixths for y in sixths]


def test_a_chain_of_few_setts_is_listed() -> None:
    chain = [DisjointSetts([Sett(Stripe(6, 1))]), DisjointSetts([Sett(Stripe(2, 1))])]
    found = in_few_setts(filled(chain), 70)
    assert isinstance(found, DisjointSetts)
    kept = [z for z in range(70) if z % 7 < 6]
    assert found.elements(0, 70).tolist() == [z for k, z in enumerate(kept) if k % 3 < 2]
    assert in_few_setts(chain[0], 70) is chain[0]
