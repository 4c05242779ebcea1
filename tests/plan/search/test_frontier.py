"""Sums of picoseconds and bytes along the elimination tree against every assignment."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tapestry_plan.search.sums.elimination import Factor
from tapestry_plan.search.sums.frontier import WEIGHT, Frontier, Row, TooManyLabels, list_columns


def some_tables(rng: np.random.Generator, sizes: list[int], most: int) -> list[Factor]:
    """Tables over one variable, over two neighbors, and now and then over others."""
    scopes = [(v,) for v in range(len(sizes))] + [(v, v + 1) for v in range(len(sizes) - 1)]
    scopes += [pair for pair in combinations(range(len(sizes)), 2) if rng.random() < 0.2]
    scopes = [scope for scope in scopes if rng.random() < 0.8]
    tables = [rng.integers(0, most, [sizes[v] for v in scope]) for scope in scopes]
    return [Factor(scope, table, table) for scope, table in zip(scopes, tables, strict=True)]


def count(tables: list[Factor], choice: tuple[int, ...]) -> int:
    return sum(int(table.ticks[tuple(choice[v] for v in table.scope)]) for table in tables)


@given(st.integers(0, 10**9), st.integers(1, 6), st.integers(0, 3), st.floats(0, 1), st.floats(0, 1))
@example(0, 1, 0, 0.5, 0.5)
@example(1, 6, 2, 0.3, 1.0)
@example(16, 3, 2, 1.0, 1.0)  # two parts that both have room to spare do not have all of it
def test_sums_against_every_assignment(seed: int, variables: int, many: int, share: float, reach: float) -> None:
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 5, variables).tolist()
    factors = some_tables(rng, sizes, 30)
    rows = [Row(some_tables(rng, sizes, 9), int(rng.integers(0, 3 * WEIGHT))) for _ in range(many)]
    every = list(product(*map(range, sizes)))
    held = {choice: [count(row.tables, choice) for row in rows] for choice in every}
    ticks = {choice: count(factors, choice) for choice in every}
    cap = int(share * max(max(one, default=0) for one in held.values()))
    limit = int(reach * max(ticks.values()))
    fit = sorted(ticks[choice] for choice in every if max(held[choice], default=0) <= cap)
    below = [one for one in fit if one <= limit]

    best = Frontier(sizes, factors, rows, cap, limit)
    found = best.all.ticks.tolist()
    assert all(one >= fit[0] for one in found)
    assert (found[0] == below[0] if found and found[0] <= limit else False) == bool(below)
    if below:
        choice = best.find_choice(0)
        assert ticks[choice] == below[0] and max(held[choice], default=0) <= cap

    everything = Frontier(sizes, factors, rows, cap, limit, unit=0)
    assert [one for one in everything.all.ticks.tolist() if one <= limit] == below
    listed = [everything.find_choice(number) for number in range(len(everything.all.ticks))]
    assert len(set(listed)) == len(listed) and [ticks[choice] for choice in listed] == everything.all.ticks.tolist()

    for unit in (2, 5, 100):  # bytes are rounded down, so that nothing that keeps the cap is lost
        rounded = Frontier(sizes, factors, rows, cap, limit, unit=unit).all.ticks.tolist()
        assert not below or rounded[0] <= below[0]
        assert all(one >= min(ticks.values()) for one in rounded)


def test_too_many_sums_are_refused() -> None:
    sizes = [4] * 8
    rng = np.random.default_rng(1)
    tables = [Factor((v,), table, table) for v, table in enumerate(rng.integers(0, 10**6, (8, 4)))]
    row = Row([Factor(f.scope, 10**6 - f.ticks, f.ticks) for f in tables], 0)
    with pytest.raises(TooManyLabels):
        Frontier(sizes, tables, [row], 8 * 10**6, 8 * 10**6, unit=0, most=1000)
    # Where they may be added up in units there are few.
    rounded = Frontier(sizes, tables, [row], 8 * 10**6, 8 * 10**6, unit=10**6, most=1000).all.ticks
    assert rounded.tolist() == [sum(int(table.ticks.min()) for table in tables)]


@given(st.integers(0, 10**9), st.integers(0, 4), st.integers(0, 5))
@example(0, 0, 3)
@example(0, 3, 0)
def test_columns_that_tell_labels_apart(seed: int, many: int, columns: int) -> None:
    table = np.random.default_rng(seed).integers(0, 2, (many, columns))
    wanted = {tuple(column) for column in table.T.tolist() if len(set(column)) > 1}
    found = list_columns(table)
    assert found.shape == (many, len(wanted)) and {tuple(column) for column in found.T.tolist()} == wanted
