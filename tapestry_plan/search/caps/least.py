"""The least memory that any plan needs: a bound that rises, a plan that shrinks, until they meet.

Of moments weighed so that their weights sum to one the least sum of bytes is a bound on the most bytes at any moment.
Between it and the most that a plan is found to need, sums of bytes are carried along the elimination tree (see
`frontier`) below a cap in the middle: there is a choice that keeps it, or there is none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from tapestry_plan.search import tuning
from tapestry_plan.search.prices.added import Memory, MemoryOfMany
from tapestry_plan.search.prices.costs import Problem
from tapestry_plan.search.sums.elimination import Factor, IntArray, minimize
from tapestry_plan.search.sums.frontier import WEIGHT, Frontier, TooManyLabels
from tapestry_plan.steps import align


def list_same(problem: Problem) -> list[Factor]:
    """Tables that forbid all but one of layouts that make no difference: where what does not land would."""
    out, merged = [], set()
    for cost in (cost for costs in problem.made.values() for cost in costs):
        if cost.landing is not None:
            merged.add(cost.landing.variable)
            idle = ~cost.lands & np.any(cost.table.sizes(cost.landing.numbers) > 0, axis=1)
            out.append(_forbid(problem, (cost.producer, cost.landing.variable), idle))
    for at, variable in enumerate(problem.variables):
        if variable.kind == "landing" and at not in merged:
            out.append(
                _forbid(
                    problem,
                    (at,),
                    np.array([any(box is not None for box in layout.boxes) for layout in variable.layouts]),
                )
            )
    return out


def _forbid(problem: Problem, scope: tuple[int, ...], which: NDArray[np.bool_]) -> Factor:
    order, share = np.argsort(scope), problem.known.share
    ticks = share(np.where(which, tuning.FORBIDDEN_TICKS, 0).transpose(order))
    return Factor(tuple(scope[k] for k in order), ticks, share(np.zeros_like(ticks)))


def find_small(problem: Problem, same: Sequence[Factor], is_late: Callable[[], bool]) -> tuple[int, ...]:
    """Layouts whose fullest device needs little: the least sum of what each block takes where it takes most."""
    memory = MemoryOfMany(problem, is_mean=False) if may_idle(problem, 0) else Memory(problem)
    least = LeastMemory(problem, memory, same)
    least.raise_weights(is_late)
    return least.choice


def may_idle(problem: Problem, device: int) -> bool:
    """Whether a device has nothing to do in some layout of an operator: then it may need no memory."""
    offered = {id(v.layouts): v.layouts for v in problem.variables if v.kind == "operator"}
    return any(layout.boxes[device] is None for layouts in offered.values() for layout in layouts)


class LeastMemory:
    """The bytes that a device needs at least, whatever the layouts.

    Parameters
    ----------
    problem : Problem
    memory : Memory
        Of one of its devices.
    same : sequence of Factor
        Layouts that need not be looked at.

    Attributes
    ----------
    nbytes : int
        No plan needs fewer.
    choice : tuple of int
        The layouts that are found to need the fewest, of `found_nbytes` at the moments that are counted.
    """

    def __init__(self, problem: Problem, memory: Memory, same: Sequence[Factor]) -> None:
        self.sizes, self.memory, self.same = problem.sizes, memory, list(same)
        self.nbytes, self.found_nbytes = int(memory.count_least().max()), -1
        self.choice: tuple[int, ...] = ()
        self.weights = np.zeros(memory.moments, np.int64)
        most = np.argsort(-memory.count_least(), kind="stable")[0]
        for moment in [most, None]:
            weights = np.zeros(memory.moments, np.int64)
            weights[int(memory.count(self.choice).argmax()) if moment is None else moment] = WEIGHT
            self._weigh(weights)

    def _weigh(self, weights: IntArray) -> IntArray:
        """Raise the bound by some weights of the moments, if they do; the bytes of what reaches it."""
        found = minimize(self.sizes, [*self.memory.weigh(weights), *self.same], reduces=False)
        if found.bound_ticks > self.nbytes:
            self.nbytes, self.weights = found.bound_ticks, weights
        elif not self.weights.any():
            self.weights = weights
        self._take(found.choice)
        return self.memory.count(found.choice)

    def _take(self, choice: tuple[int, ...]) -> int:
        """The most bytes of some layouts, which are kept if none are known that need fewer."""
        nbytes = int(self.memory.count(choice).max())
        if self.found_nbytes < 0 or nbytes < self.found_nbytes:
            self.choice, self.found_nbytes = choice, nbytes
        return nbytes

    def close(self, is_late: Callable[[], bool]) -> None:
        """Raise the bound and look for layouts that need less, until the two meet or it would take long."""
        self.raise_weights(is_late)
        moments = {int(moment) for moment in np.flatnonzero(self.weights)}
        while align(self.nbytes) < self.found_nbytes and not is_late():
            cap = (align(self.nbytes) + self.found_nbytes - 1) // 2
            rows = [self.memory.list_row(moment, 0) for moment in sorted(moments)]
            factors = [*self.memory.weigh(self.weights), *self.same]
            try:
                frontier = Frontier(self.sizes, factors, rows, cap, cap)
            except TooManyLabels:
                break
            if not len(frontier.all.ticks) or frontier.all.ticks[0] > cap:
                self.nbytes = cap + 1
                continue
            choice = frontier.find_choice(0)
            if self._take(choice) > cap:
                moment = int(self.memory.count(choice).argmax())
                assert moment not in moments, "bytes at this moment are below the cap"
                moments.add(moment)

    def raise_weights(self, is_late: Callable[[], bool]) -> None:
        """Subgradient steps: weights that sum to one, more of it at moments that need much."""
        now, pace = self.weights / WEIGHT, 1.0
        for _ in range(tuning.CAPPED_STEPS):
            if self.nbytes >= self.found_nbytes or is_late():
                break
            before = self.nbytes
            whole = np.rint(now * WEIGHT).astype(np.int64)
            whole[int(whole.argmax())] += WEIGHT - int(whole.sum())
            nbytes = self._weigh(whole)
            pace = pace if self.nbytes > before else pace * 0.8
            slope = nbytes - float(nbytes @ now)
            far = max(self.found_nbytes - float(nbytes @ now), 1.0)
            now = np.maximum(now + pace * far / max(float((slope**2).sum()), 1.0) * slope, 0)
            now /= now.sum()
