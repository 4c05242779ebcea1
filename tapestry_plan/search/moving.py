"""Moves of one layout at a time, which are counted in full only where they may be better than what is there.

A tensor whose consumers are counted one by one costs no less than the largest of what each of them would receive
alone, as tables say. Most layouts cost more than the chosen one by that already, and are not looked at any further.
Variables that stand many times, in the same tables, are looked at once for the same layouts around them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tapestry_plan.search.prices.costs import Problem, TensorCost
from tapestry_plan.search.sums.elimination import IntArray, alternatives, improve
from tapestry_plan.search.sums.tables import count_rounding


def move_layouts(problem: Problem, choice: Sequence[int], *, seed: int = 0, stop: float) -> tuple[int, ...]:
    """Layouts to which moves of one at a time lead from others, none of which is better then, if these were not many.

    Parameters
    ----------
    problem : Problem
        One whose tables were made.
    choice : sequence of int
        The number of each variable's layout.
    seed : int
        Of the order of the variables.
    stop : float
        Of the monotonic clock: from then on what is there is given.
    """
    return improve(choice, _Moves(problem).count, seed=seed, stop=stop)


class _Moves:
    """What moves of one variable cost, of alike ones in the same layouts once."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self._near: dict[int, tuple[int, list[int]]] = {}
        """For each variable a number for all that is around it, and the variables there, itself among them."""
        self._kinds: dict[tuple[object, ...], int] = {}
        self._found: dict[tuple[object, ...], tuple[IntArray, IntArray]] = {}

    def count(self, var: int, choice: Sequence[int]) -> tuple[IntArray, IntArray]:
        """As `count_better`."""
        if var not in self._near:
            self._near[var] = self._describe(var)
        kind, near = self._near[var]
        key = kind, *(choice[v] for v in near)
        if key not in self._found:
            self._found[key] = count_better(self.problem, var, choice)
        return self._found[key]

    def _describe(self, var: int) -> tuple[int, list[int]]:
        # Arrays are shared, so ids say which; a problem keeps its tables.
        said: list[object] = [self.problem.sizes[var]]
        near = [var]
        for factor in self.problem.touching[var]:
            said.append((id(factor.ticks), id(factor.nbytes), factor.scope.index(var)))
            near += factor.scope
        for cost in self.problem.counted_alone.get(var, ()):
            mine = [at for at, v in enumerate(cost.variables) if v == var]
            said.append((*self.problem.describe(cost), *mine))
            near += cost.variables
        return self._kinds.setdefault(tuple(said), len(self._kinds)), near


def count_better(problem: Problem, var: int, choice: Sequence[int]) -> tuple[IntArray, IntArray]:
    """Picoseconds and bytes of every layout of a variable, all others as chosen, but for what no change of it touches.

    They are exact where they may be less than with the chosen layout; elsewhere at least that, and at most exact.
    """
    around, chosen = _Around(problem, var, choice), choice[var]
    least = [around.count_largest(cost) for cost in around.alone]
    ticks, nbytes = (around.ticks + sum(one for one, _ in least), around.nbytes + sum(one for _, one in least))
    ticks[chosen], nbytes[chosen] = around.count(chosen)
    for cost, (low_ticks, low_nbytes) in zip(around.alone, least, strict=True):
        # With each tensor that is counted fewer layouts may be better.
        may_be_better = (ticks < ticks[chosen]) | ((ticks == ticks[chosen]) & (nbytes < nbytes[chosen]))
        values = np.flatnonzero(may_be_better)
        for value, found in zip(values.tolist(), around.count_in(cost, values.tolist()), strict=True):
            ticks[value] += found[0] - low_ticks[value]
            nbytes[value] += found[1] - low_nbytes[value]
    return ticks, nbytes


class _Around:
    """What is around one variable, all others as chosen: exact tables, and tensors whose consumers are too many."""

    def __init__(self, problem: Problem, var: int, choice: Sequence[int]) -> None:
        self.problem, self.var, self.choice = problem, var, list(choice)
        # Those of few consumers take the least to count, and leave fewer layouts to the others.
        self.alone = sorted(problem.counted_alone.get(var, ()), key=lambda cost: len(cost.uses))
        self.ticks, self.nbytes = alternatives(var, choice, problem.touching[var], problem.sizes[var])

    def count(self, value: int) -> tuple[int, int]:
        """Picoseconds and bytes with a layout."""
        each = [one for cost in self.alone for one in self.count_in(cost, [value])]
        ticks, nbytes = (sum(one[k] for one in each) for k in (0, 1))
        return int(self.ticks[value]) + ticks, int(self.nbytes[value]) + nbytes

    def count_in(self, cost: TensorCost, values: Sequence[int]) -> list[tuple[int, int]]:
        """Picoseconds and bytes of a tensor's consumers in some layouts."""
        choices = [[*self.choice[: self.var], value, *self.choice[self.var + 1 :]] for value in values]
        # Where a tensor lands is in a table of its own.
        every = (moved[-len(cost.uses) :] for moved in self.problem.count_moved_in(cost, choices))
        return [(sum(one.ticks for one in mine), sum(int(one.nbytes.sum()) for one in mine)) for mine in every]

    def count_largest(self, cost: TensorCost) -> tuple[IntArray, IntArray]:
        """The most that any consumer of a tensor would receive alone."""
        size = self.problem.sizes[self.var]
        ticks, nbytes = np.zeros(size, np.int64), np.zeros(size, np.int64)
        largest, most = 0, 0  # of consumers that other layouts of this variable do not change
        for factor in self.problem.list_alone(cost):
            if self.var in factor.scope:
                alone = alternatives(self.var, self.choice, [factor], size)
                np.maximum(ticks, alone[0], out=ticks)
                np.maximum(nbytes, alone[1], out=nbytes)
            else:
                at = tuple(self.choice[v] for v in factor.scope)
                largest, most = max(largest, int(factor.ticks[at])), max(most, int(factor.nbytes[at]))
        # Of whole picoseconds a sum may be below the largest one by what each was rounded by.
        rounding = count_rounding(len(cost.uses))
        return np.maximum(np.maximum(ticks, largest) - rounding, 0), np.maximum(nbytes, most)
