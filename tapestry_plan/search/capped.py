"""The best layouts that keep a memory cap: Lagrangian bound, pruning at its weights, and arenas laid out to check.

Bytes at a moment are as much a sum of tables as picoseconds are (see `memory`). So for any weights of the moments the
least sum of picoseconds plus weighted bytes, less the weighted cap, is a bound on every plan that keeps the cap, and
the layouts that reach it are a plan to be looked at. Weights rise at moments that need too much::

    picoseconds │ ×  fastest, too large
                │   ╲
                │    ×──── a bound on all plans below the cap: the line of one weight under all of them
                │    ╎╲ ×
                │    ╎ ╲   ×
                └────╎──────────── most bytes at a moment
                    cap

A plan counts when its steps are written and every arena is below the cap. Then layouts whose least sum, so weighed, is
above it are left out with proof (see `pruning`), and what is left is looked at again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from math import inf

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from tapestry_plan.search import tuning
from tapestry_plan.search.elimination import Factor, IntArray, minimize
from tapestry_plan.search.memory import WEIGHT, Memory
from tapestry_plan.search.problem import Problem
from tapestry_plan.search.pruning import find_marginals, is_worth_a_round

MOST_WEIGHT = float(2**61)
"""Weighed bytes stay below this, so that sums stay within 64 bits."""


class Capped(Struct):
    """What was found under a cap.

    Parameters
    ----------
    choice : tuple of int, or None
        The number of each variable's layout in the best plan that keeps the cap.
    cost : (int, int)
        Its picoseconds and bytes that move.
    bound_ticks : int
        No plan that keeps the cap takes fewer picoseconds.
    least_nbytes : int
        Bytes that any plan needs on some device, at least.
    found_nbytes : int
        The least of the plans that were looked at.
    tried : int
        How many these were.
    """

    choice: tuple[int, ...] | None
    cost: tuple[int, int]
    bound_ticks: int
    least_nbytes: int
    found_nbytes: int
    tried: int = 0


def solve_capped(
    problem: Problem,
    cap: int,
    fastest: tuple[int, ...],
    bound_ticks: int,
    find_peak: Callable[[Sequence[int]], int],
    *,
    time_limit_seconds: float = inf,
) -> Capped:
    """Look for the best layouts whose arenas are no larger than the cap.

    Parameters
    ----------
    problem : Problem
    cap : int
        Bytes of a device's arena.
    fastest : tuple of int
        The layouts of the fastest plan, which needs more.
    bound_ticks : int
        Of plans without a cap.
    find_peak : callable
        The most bytes of an arena when a choice of layouts is written down as steps.
    time_limit_seconds : float
        After which no more choices are looked at.
    """
    return _Search(problem, cap, fastest, bound_ticks, find_peak, time_limit_seconds).run()


class _Round(Struct, frozen=True):
    """What is left of a problem: layouts by number, and what is counted over them."""

    problem: Problem
    memory: Memory
    kept: list[IntArray]
    bound: list[Factor]


class _Search:
    def __init__(
        self,
        problem: Problem,
        cap: int,
        fastest: tuple[int, ...],
        bound_ticks: int,
        find_peak: Callable[[Sequence[int]], int],
        seconds: float,
    ) -> None:
        self.problem, self.cap, self.find_peak = problem, cap, find_peak
        self.memory = Memory(problem)
        self.aim = cap
        """What the tables' bytes should be: less than the cap by what arenas were found to need beyond them."""
        self.fastest_ticks = problem.count_cost(fastest)[0]
        self.most_nbytes = sum(int(holding.nbytes.max()) for holding in self.memory.holdings)
        self.stop = time.monotonic() + seconds
        peak = find_peak(fastest)
        self.aim -= max(0, peak - int(self.memory.count(fastest).max()))
        self.seen = {fastest: None}
        self.peaks = {fastest: peak}
        least, choices = _find_least(problem, self.memory)
        self.found = Capped(None, (0, 0), bound_ticks, least, peak, 1)
        for choice in choices:
            self.seen[choice] = None
            self._lay_out(choice)

    def run(self) -> Capped:
        """Rounds of weights and pruning."""
        if self.found.least_nbytes > self.cap:
            return self.found
        now, memory = self.problem, self.memory
        kept: list[IntArray] = [np.arange(size) for size in now.sizes]
        for number in range(tuning.MAX_CAPPED_ROUNDS):
            _, bound = now.factors(*(() if number else (tuning.FIRST_FACTOR_ENTRIES,)))
            here = _Round(now, memory, kept, bound)
            weights = self._raise_weights(here)
            self._double_weights(here, weights)
            if self.found.choice is None and not self._squeeze():
                break
            self._mix()
            self._improve()
            self._raise_bound(self.found.bound_ticks)
            if self.found.bound_ticks >= self.found.cost[0]:
                break
            some = self._list_kept(here, weights)
            if number and not is_worth_a_round(now.sizes, some):
                break
            kept = [rows[values] for rows, values in zip(kept, some, strict=True)]
            now, memory = now.restrict(some), memory.restrict(some)
        return self.found

    def _solve(self, here: _Round, weights: IntArray) -> tuple[int, IntArray]:
        """A bound on plans that keep the cap, and the bytes of what reaches it, which is looked at as a plan."""
        found = minimize(here.problem.sizes, [*here.bound, *here.memory.weigh(weights)], reduces=False)
        self._look_at([int(rows[value]) for rows, value in zip(here.kept, found.choice, strict=True)])
        return found.bound_ticks - (-(-int(weights.sum()) * self.cap // WEIGHT)), here.memory.count(found.choice)

    def _raise_weights(self, here: _Round) -> IntArray:
        """Subgradient steps: the weights of the best bound."""
        weights = np.zeros(here.memory.moments)
        best, lowest = weights.astype(np.int64), -1
        pace, since = 1.0, 0
        for _ in range(tuning.CAPPED_STEPS):
            whole = np.rint(weights).astype(np.int64)
            ticks, nbytes = self._solve(here, whole)
            since += 1
            if ticks > lowest:
                best, lowest, since = whole, ticks, 0
            goal = self.found.cost[0] if self.found.choice else 2 * max(lowest, self.fastest_ticks)
            above = (nbytes - self.cap).astype(float)
            above[(above < 0) & (whole == 0)] = 0
            if lowest >= goal or not above.any() or self._is_late():
                break
            if since >= tuning.CAPPED_PATIENCE:
                pace, since, weights = pace / 2, 0, best.astype(float)
            weights += pace * max(goal - ticks, 1) / float((above**2).sum()) * above * WEIGHT
            weights = self._limit(weights)
        self._raise_bound(lowest)
        return best

    def _limit(self, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        weights = np.maximum(weights, 0)
        return weights * min(1.0, MOST_WEIGHT / max(float(weights.sum()), 1.0) / max(self.most_nbytes, 1))

    def _double_weights(self, here: _Round, best: IntArray) -> None:
        """Raise the weights of moments that need too much until nothing does, then come back half of the way."""
        low = best.astype(float)
        start = WEIGHT * self.fastest_ticks / tuning.CAPPED_START / max(self.cap, 1)
        for _ in range(tuning.CAPPED_STEPS):
            above = self._solve(here, np.rint(low).astype(np.int64))[1] > self.aim
            if not above.any() or self._is_late():
                break
            high = self._limit(np.where(above, np.maximum(2 * low, start), low))
            if (high == low).all():
                break
            low, before = high, low
        else:
            return
        if (low == best).all():
            return
        high = low
        low = before
        for _ in range(tuning.CAPPED_HALVINGS):
            middle = (low + high) / 2
            fits = (self._solve(here, np.rint(middle).astype(np.int64))[1] <= self.aim).all()
            low, high = (low, middle) if fits else (middle, high)

    def _squeeze(self) -> bool:
        """Lay out the arenas of choices beside the smallest one, each smaller still, until one keeps the cap."""
        smallest = min(self.peaks, key=self.peaks.__getitem__)
        left = tuning.CAPPED_SQUEEZED
        improved = True
        while improved and left > 0 and self.found.choice is None and not self._is_late():
            improved = False
            for variable, size in enumerate(self.problem.sizes):
                for value in range(size):
                    choice = (*smallest[:variable], value, *smallest[variable + 1 :])
                    if left > 0 and choice not in self.peaks and self.memory.count(choice).max() < self.peaks[smallest]:
                        left -= 1
                        self._lay_out(choice)
                        if self.peaks[choice] < self.peaks[smallest]:
                            smallest, improved = choice, True
        return self.found.choice is not None

    def _mix(self) -> None:
        """Take over from other choices that were looked at what makes the best one better: beginnings and ends."""
        cheap = sorted(self.seen, key=lambda choice: self.problem.count_cost(choice))[: tuning.CAPPED_MIXED]
        for other in cheap:
            for at in range(1, len(other)):
                mine = self.found.choice
                assert mine is not None, "there is a plan to make better"
                self._look_at([*other[:at], *mine[at:]])
                self._look_at([*mine[:at], *other[at:]])

    def _is_late(self) -> bool:
        return time.monotonic() > self.stop

    def _raise_bound(self, ticks: int) -> None:
        most = self.found.cost[0] if self.found.choice else ticks
        self.found.bound_ticks = max(self.found.bound_ticks, min(ticks, most))

    def _look_at(self, choice: Sequence[int]) -> bool:
        """Whether a choice is better than what was found: its steps are written down, and its arenas laid out."""
        key = tuple(choice)
        if key in self.seen or self._is_late():
            return False
        self.seen[key] = None
        cost = self.problem.count_cost(key)
        counted = int(self.memory.count(key).max())
        if counted > self.cap or (self.found.choice and cost >= self.found.cost):
            return False
        return self._lay_out(key, counted)

    def _lay_out(self, choice: tuple[int, ...], counted: int | None = None) -> bool:
        """Write a choice down; whether it keeps the cap and is better than what was found."""
        peak = self.peaks[choice] = self.find_peak(choice)
        self.found.tried += 1
        self.found.found_nbytes = min(self.found.found_nbytes, peak)
        cost = self.problem.count_cost(choice)
        if peak > self.cap:
            self.aim = min(self.aim, self.cap - (peak - counted)) if counted is not None else self.aim
            return False
        if self.found.choice is not None and cost >= self.found.cost:
            return False
        self.found.choice, self.found.cost = choice, cost
        return True

    def _list_kept(self, here: _Round, weights: IntArray) -> list[IntArray]:
        """The layouts that a plan below the cap may have that is as good as the one that was found."""
        marginals = find_marginals(here.problem.sizes, [*here.bound, *here.memory.weigh(weights)])
        return marginals.list_kept(self.found.cost[0] - (-int(weights.sum()) * self.cap // WEIGHT))

    def _improve(self) -> None:
        """Better layouts of one variable at a time, as long as the arenas keep the cap."""
        assert self.found.choice is not None, "there is a plan to improve"
        improved = True
        while improved and not self._is_late():
            improved = False
            for variable in range(len(self.problem.sizes)):
                choice = list(self.found.choice)
                ticks, nbytes = self.problem.costs(variable, choice)
                old = ticks[choice[variable]], nbytes[choice[variable]]
                for value in np.lexsort((nbytes, ticks))[: tuning.CAPPED_MOVES]:
                    if (ticks[value], nbytes[value]) >= old:
                        break
                    choice[variable] = int(value)
                    if self._look_at(choice):
                        improved = True
                        break


def _find_least(problem: Problem, memory: Memory) -> tuple[int, list[tuple[int, ...]]]:
    """Bytes that any plan needs, at least: of moments that seem to need most the least sums, and what reaches them."""
    least = memory.count_least()
    nbytes, choices = int(least.max()), []
    for moment in np.argsort(-least, kind="stable")[: tuning.CAPPED_MOMENTS]:
        weights = np.zeros(memory.moments, np.int64)
        weights[moment] = WEIGHT
        found = minimize(problem.sizes, memory.weigh(weights))
        nbytes = max(nbytes, found.bound_ticks)
        choices.append(found.choice)
    return nbytes, choices
