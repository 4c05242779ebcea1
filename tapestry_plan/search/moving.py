"""Moves of one layout at a time, which are counted in full only where they may be better than what is there.

A tensor whose consumers are counted one by one costs no less than the largest of what each of them would receive
alone, as tables say. Most layouts cost more than the chosen one by that already, and are not looked at any further.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from tapestry_plan.search.prices.problem import Problem
from tapestry_plan.search.prices.tensors import TensorCost
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
    return improve(choice, partial(count_better, problem), seed=seed, stop=stop)


def count_better(problem: Problem, var: int, choice: Sequence[int]) -> tuple[IntArray, IntArray]:
    """Picoseconds and bytes of every layout of a variable, all others as chosen, but for what no change of it touches.

    They are exact where they may be less than with the chosen layout; elsewhere at least that, and at most exact.
    """
    around, chosen = _Around(problem, var, choice), choice[var]
    ticks, nbytes = around.count_least()
    there = around.count(chosen)
    may_be_better = (ticks < there[0]) | ((ticks == there[0]) & (nbytes < there[1]))
    for value in {chosen, *np.flatnonzero(may_be_better).tolist()} if around.alone else ():
        ticks[value], nbytes[value] = around.count(value)
    return ticks, nbytes


class _Around:
    """What is around one variable, all others as chosen: exact tables, and tensors whose consumers are too many."""

    def __init__(self, problem: Problem, var: int, choice: Sequence[int]) -> None:
        self.problem, self.var, self.choice = problem, var, choice
        self.alone = problem.counted_alone.get(var, ())
        self.ticks, self.nbytes = alternatives(var, choice, problem.touching[var], problem.sizes[var])

    def count(self, value: int) -> tuple[int, int]:
        """Picoseconds and bytes with a layout."""
        other = [*self.choice[: self.var], value, *self.choice[self.var + 1 :]]
        # Where a tensor lands is in a table of its own.
        moved = [one for cost in self.alone for one in self.problem.count_moved_of(cost, other)[-len(cost.uses) :]]
        more = sum(one.ticks for one in moved), sum(int(one.nbytes.sum()) for one in moved)
        return int(self.ticks[value]) + more[0], int(self.nbytes[value]) + more[1]

    def count_least(self) -> tuple[IntArray, IntArray]:
        """No more than that, for every layout, from tables alone."""
        each = [self._count_largest(cost) for cost in self.alone]
        return self.ticks + sum(ticks for ticks, _ in each), self.nbytes + sum(nbytes for _, nbytes in each)

    def _count_largest(self, cost: TensorCost) -> tuple[IntArray, IntArray]:
        """The most that any consumer of a tensor would receive alone."""
        size = self.problem.sizes[self.var]
        ticks, nbytes = np.zeros(size, np.int64), np.zeros(size, np.int64)
        for factor in self.problem.list_alone(cost):
            alone = alternatives(self.var, self.choice, [factor], size)
            np.maximum(ticks, alone[0], out=ticks)
            np.maximum(nbytes, alone[1], out=nbytes)
        # Of whole picoseconds a sum may be below the largest one by what each was rounded by.
        return np.maximum(ticks - count_rounding(len(cost.uses)), 0), nbytes
