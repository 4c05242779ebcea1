"""Exact minimization of a sum of tables by eliminating one variable after another.

Costs are pairs (picoseconds, bytes) of integers compared in this order, so results are exact and ties go to
fewer bytes. With tables that fit, the result is its own proof of optimality. Where a table would grow past
the cap, the bucket is split (mini-bucket elimination, Dechter and Rish 2003): the result of the elimination
is then a lower bound, and the assignment can be improved by moves of one variable at a time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from math import prod

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from tapestry_plan.search import tuning

IntArray = NDArray[np.int64]
_WORST = np.iinfo(np.int64).max


class Factor(Struct, frozen=True):
    """A table of costs over some variables.

    Parameters
    ----------
    scope : tuple of int
        The variables, ascending.
    ticks, nbytes : array of int64
        One axis for each variable of the scope.
    """

    scope: tuple[int, ...]
    ticks: IntArray
    nbytes: IntArray


class Minimum(Struct, frozen=True):
    """An assignment, its cost, and a proven lower bound on every assignment's cost.

    `exact` says whether no table was split: the cost and the bound are then equal. `entries` are those of all tables
    that were made.
    """

    choice: tuple[int, ...]
    ticks: int
    nbytes: int
    bound_ticks: int
    exact: bool
    entries: int


def minimize(
    sizes: Sequence[int],
    factors: Sequence[Factor],
    *,
    cap: int = tuning.MAX_TABLE_ENTRIES,
    total: int = tuning.MAX_ENTRIES,
) -> Minimum:
    """Choose a value for each variable so that the factors' sum is least.

    Parameters
    ----------
    sizes : sequence of int
        Number of values of each variable.
    factors : sequence of Factor
    cap : int
        Entries of the largest table to build.
    total : int
        Entries of the tables that are kept together; as they are used up, tables are split earlier.

    Returns
    -------
    Minimum

    References
    ----------
    Bertelè and Brioschi, "Nonserial Dynamic Programming", 1972; min-fill order as in Koller and Friedman.
    """
    work = [factor for factor in factors if factor.scope]
    ticks = sum(int(factor.ticks) for factor in factors if not factor.scope)
    chosen: list[tuple[int, list[Factor]]] = []
    exact = True
    room, entries = total, 0
    remaining = set(range(len(sizes)))
    neighbors = _neighbors(remaining, work)
    while remaining:
        var = _next_variable(remaining, neighbors, sizes)
        remaining.discard(var)
        bucket = [factor for factor in work if var in factor.scope]
        work = [factor for factor in work if var not in factor.scope]
        chosen.append((var, bucket))
        # Tables that are kept for choosing the values must fit memory together.
        share = room // (len(remaining) + 1) * tuning.SHARES
        groups = _groups(bucket, sizes, min(cap, max(share, tuning.MIN_SPLIT_ENTRIES)))
        exact = exact and len(groups) <= 1
        for group in groups:
            table = _add(group, sizes)
            entries += table.ticks.size
            message = _project_out(table, var)
            room -= message.ticks.size
            if message.scope:
                work.append(message)
            else:
                ticks += int(message.ticks)
        _eliminate(var, neighbors)
    # Backwards: what a variable's tables share with others was eliminated after it, and is chosen by now.
    choice = [0] * len(sizes)
    for var, bucket in reversed(chosen):
        choice[var] = _best_value(*alternatives(var, choice, bucket, sizes[var]))
    total, nbytes = evaluate(choice, factors)
    assert total >= ticks, "an assignment cannot cost less than the bound"
    return Minimum(tuple(choice), total, nbytes, ticks, exact, entries)


def evaluate(choice: Sequence[int], factors: Sequence[Factor]) -> tuple[int, int]:
    """Cost (picoseconds, bytes) of an assignment."""
    ticks = nbytes = 0
    for factor in factors:
        at = tuple(choice[var] for var in factor.scope)
        ticks += int(factor.ticks[at])
        nbytes += int(factor.nbytes[at])
    return ticks, nbytes


def alternatives(var: int, choice: Sequence[int], factors: Sequence[Factor], size: int) -> tuple[IntArray, IntArray]:
    """Cost of every value of one variable, all others as chosen: arrays (ticks, nbytes)."""
    ticks = np.zeros(size, np.int64)
    nbytes = np.zeros(size, np.int64)
    for factor in factors:
        at = tuple(slice(None) if v == var else choice[v] for v in factor.scope)
        ticks += factor.ticks[at]
        nbytes += factor.nbytes[at]
    return ticks, nbytes


def _neighbors(variables: set[int], factors: Sequence[Factor]) -> dict[int, set[int]]:
    out: dict[int, set[int]] = {var: set() for var in variables}
    for factor in factors:
        for var in factor.scope:
            out[var].update(v for v in factor.scope if v != var)
    return out


def _next_variable(remaining: set[int], neighbors: dict[int, set[int]], sizes: Sequence[int]) -> int:
    """The variable that adds the fewest edges (min-fill), then the smallest table, then the lowest number."""

    def fill(var: int) -> tuple[int, int, int]:
        around = neighbors[var]
        missing = sum(len(around - neighbors[v]) - 1 for v in around) // 2
        return missing, prod(sizes[v] for v in around), var

    return min(remaining, key=fill)


def _eliminate(var: int, neighbors: dict[int, set[int]]) -> None:
    # a ── var ── b       its neighbors meet in the table that stands for it:       a ───── b
    #       │                                                                         ╲   ╱
    #       c                                                                           c
    around = neighbors.pop(var)
    for v in around:
        neighbors[v] |= around
        neighbors[v] -= {v, var}


def _groups(bucket: Sequence[Factor], sizes: Sequence[int], cap: int) -> list[list[Factor]]:
    """The bucket in one group, or first-fit in groups whose joint tables stay below the cap."""
    # min over v of (f + g) >= min over v of f + min over v of g: a bucket in several groups gives a lower bound, as
    # each group may choose another v. The largest tables come first, so that small ones fill what is left.
    groups: list[tuple[set[int], list[Factor]]] = []
    for factor in sorted(bucket, key=lambda f: -f.ticks.size):
        for scope, members in groups:
            if prod(sizes[v] for v in scope.union(factor.scope)) <= cap:
                scope.update(factor.scope)
                members.append(factor)
                break
        else:
            groups.append((set(factor.scope), [factor]))
    return [members for _, members in groups]


def _add(group: Sequence[Factor], sizes: Sequence[int]) -> Factor:
    scope = tuple(sorted({var for factor in group for var in factor.scope}))
    shape = tuple(sizes[var] for var in scope)
    ticks = np.zeros(shape, np.int64)
    nbytes = np.zeros(shape, np.int64)
    for factor in group:
        spread = tuple(sizes[var] if var in factor.scope else 1 for var in scope)
        ticks += factor.ticks.reshape(spread)
        nbytes += factor.nbytes.reshape(spread)
    return Factor(scope, ticks, nbytes)


def _project_out(factor: Factor, var: int) -> Factor:
    """The lexicographic minimum over one variable."""
    # Of the values with the least ticks the one with the fewest bytes: others are hidden behind the largest integer.
    axis = factor.scope.index(var)
    ticks = factor.ticks.min(axis=axis)
    tied = factor.ticks == np.expand_dims(ticks, axis)
    nbytes = np.where(tied, factor.nbytes, _WORST).min(axis=axis)
    return Factor(tuple(v for v in factor.scope if v != var), ticks, nbytes)


def _best_value(ticks: IntArray, nbytes: IntArray) -> int:
    return int(np.lexsort((nbytes, ticks))[0])


def improve(
    choice: Sequence[int],
    costs: Callable[[int, Sequence[int]], tuple[IntArray, IntArray]],
    *,
    seed: int = 0,
    time_limit_seconds: float = tuning.IMPROVING_SECONDS,
) -> tuple[int, ...]:
    """Move one variable at a time to its best value until nothing improves or the time is up.

    Parameters
    ----------
    choice : sequence of int
        The assignment to begin with.
    costs : callable
        ``(variable, choice) -> (ticks, nbytes)`` of every value of the variable, all others as chosen.
    seed : int
        Order of the variables.
    time_limit_seconds : float
        Seconds.
    """
    import random  # loaded with the first such search, not with the package

    best = list(choice)
    order = list(range(len(best)))
    random.Random(seed).shuffle(order)
    stop = time.monotonic() + time_limit_seconds
    improved = True
    while improved and time.monotonic() < stop:
        improved = False
        for var in order:
            if time.monotonic() >= stop:
                break
            ticks, nbytes = costs(var, best)
            value = _best_value(ticks, nbytes)
            if (ticks[value], nbytes[value]) < (ticks[best[var]], nbytes[best[var]]):
                best[var] = value
                improved = True
    return tuple(best)
