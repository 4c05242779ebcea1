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

Then layouts whose least sum, so weighed, is above a limit are left out with proof (see `pruning`), and of what is left
sums of picoseconds and bytes are carried along the elimination tree (see `frontier`): there is no plan up to the limit,
or the least sum is found. The limit rises until a plan is found whose steps, written down, keep the cap in every arena.
Moments are looked at as plans are found that need too much at them, those of other devices too. Where devices have
more and less memory, what one has less than another counts as bytes that are always held there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from math import inf

import numpy as np
from msgspec import Struct

from tapestry_plan.search import tuning
from tapestry_plan.search.caps.least import LeastMemory, find_small, list_same, may_idle
from tapestry_plan.search.caps.needed import find_overfull
from tapestry_plan.search.moving import count_better
from tapestry_plan.search.prices.added import Memory, MemoryOfEach, MemoryOfMany
from tapestry_plan.search.prices.costs import Problem
from tapestry_plan.search.sums.elimination import Factor, IntArray, evaluate, minimize
from tapestry_plan.search.sums.frontier import WEIGHT, Frontier, TooManyLabels
from tapestry_plan.search.sums.pruning import find_marginals
from tapestry_plan.search.sums.reduction import cut_table
from tapestry_plan.steps import Packed


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
        The least of the plans that were looked at, counted on the device with the most memory.
    tried : int
        How many these were.
    none : bool
        Whether all were looked at that may keep the cap, and none does.
    shortage : str
        Why no plan keeps the cap, where that is known without looking at them, in words.
    packed : Packed, or None
        The steps of the best plan.
    work : int
        What it took, in entries of tables.
    """

    choice: tuple[int, ...] | None
    cost: tuple[int, int]
    bound_ticks: int
    least_nbytes: int
    found_nbytes: int
    tried: int = 0
    none: bool = False
    shortage: str = ""
    packed: Packed | None = None
    work: int = 0


def solve_capped(
    problem: Problem,
    caps: Sequence[int],
    fastest: tuple[int, ...],
    bound_ticks: int,
    pack: Callable[[Sequence[int]], Packed],
    *,
    most: int | None = None,
    work: float = inf,
    stop: float = inf,
) -> Capped:
    """Look for the best layouts whose arenas are no larger than the caps.

    Parameters
    ----------
    problem : Problem
    caps : sequence of int
        Bytes of each device's arena.
    fastest : tuple of int
        The layouts of the fastest plan, which needs more.
    bound_ticks : int
        Of plans without a cap.
    pack : callable
        Arenas of the caps, as far as can be, when a choice of layouts is written down as steps.
    most : int, optional
        Picoseconds of a plan that is there: where all others are proved to take more, none is looked for.
    work : float
        Entries of tables, or what is counted as these, after which no more choices are looked at.
    stop : float
        Likewise, of the monotonic clock.
    """
    return _Search(problem, caps, fastest, bound_ticks, pack, most, work, stop).run()


class _Line(Struct, frozen=True):
    """A choice of layouts, its picoseconds, and the bytes that it needs at each moment."""

    choice: tuple[int, ...]
    ticks: int
    nbytes: IntArray


class _Search:
    def __init__(
        self,
        problem: Problem,
        caps: Sequence[int],
        fastest: tuple[int, ...],
        bound_ticks: int,
        pack: Callable[[Sequence[int]], Packed],
        most: int | None,
        work: float,
        stop: float,
    ) -> None:
        self.problem, self.caps, self.cap, self.pack = problem, caps, max(caps), pack
        self.taken = [self.cap - cap for cap in caps]
        self.first = int(np.argmin(caps))
        self.memory = MemoryOfEach({self.first: Memory(problem, self.first, self.taken[self.first])})
        """All devices need much the same, so that others are looked at when one of them needs more."""
        self.idles = may_idle(problem, self.first)
        if self.idles:  # one may need nothing, and another one much
            mean = MemoryOfMany(problem, is_mean=True, taken=self.taken)
            self.memory.add(None, mean)
            for device in mean.devices:
                self._look_at(device)
        self.moments: set[int] = set()
        """Those at which sums of bytes are carried along the tree."""
        self.same = list_same(problem)
        self.fastest = fastest
        self.fastest_ticks = problem.count_cost(fastest)[0]
        self.most_weight = tuning.MAX_WEIGHED // (
            tuning.CAPPED_MOMENTS * len(self.memory.of) * max(int(self.memory.count_most().max()), 1)
        )
        self.most, self.work, self.stop = tuning.MAX_WEIGHED if most is None else most, work, stop
        self.packed: dict[tuple[int, ...], Packed] = {}
        self.unpacked = [tuning.MAX_WEIGHED]
        """Picoseconds of choices that may fit the cap, though no places were found for them."""
        self.found = Capped(None, (0, 0), bound_ticks, 0, tuning.MAX_WEIGHED)
        if self._fits_counted(fastest):  # it may do in arenas that are packed
            self._take(fastest)

    def run(self) -> Capped:
        """The best plan, with its bound; without one the least memory that is found and proved."""
        least = LeastMemory(self.problem, self.memory.of[self.first], self.same)
        small, idles, short = least.choice, self.idles, None
        self._raise_least(least.nbytes)
        if idles and not self.found.shortage:
            small = find_small(self.problem, self.same, self._is_late)
            short = find_overfull(self.problem, self.caps, self.same)
        if short is not None:
            self.found.least_nbytes, self.found.shortage = short.nbytes, short.words
        if not self.found.shortage:
            self._close(small)
        if self.found.choice is None and self.found.bound_ticks > self.most:
            return self.found
        if self.found.choice is None:
            least.close(self._is_late)
            if short is None:
                self._raise_least(least.nbytes)
            self._take(small if idles else least.choice)
        if self.found.choice is not None:
            self._improve()
        return self.found

    def _raise_least(self, nbytes: int) -> None:
        """No plan needs fewer bytes than so many on the device with the least memory."""
        self.found.least_nbytes = nbytes - self.taken[self.first]
        if nbytes > self.cap:
            self.found.shortage = f"device {self.first} holds {self.found.least_nbytes:,} bytes or more"

    def _is_late(self) -> bool:
        return self.found.work > self.work or time.monotonic() > self.stop

    def _raise_bound(self, ticks: int) -> None:
        most = self.found.cost[0] if self.found.choice is not None else ticks
        self.found.bound_ticks = max(self.found.bound_ticks, min(ticks, most, *self.unpacked))

    # -- weights -----------------------------------------------------------------------------------------

    def _find_weights(self, factors: Sequence[Factor], small: tuple[int, ...]) -> IntArray:
        """The weights of a good bound: of the one moment that makes the best, then of others above the cap."""
        memory = self.memory
        lines = [self._line(self.fastest, self.fastest_ticks), self._line(small, self.problem.count_cost(small)[0])]
        best, lowest, now, tried = np.zeros(memory.moments, np.int64), -1, lines[0], set[int]()
        for _ in range(tuning.CAPPED_MOMENTS * len(memory.of)):
            moment = int(now.nbytes.argmax())
            if now.nbytes[moment] <= self.cap or moment in tried or self._is_late():
                break
            tried.add(moment)
            for start in (np.zeros_like(best), best) if best.any() else (best,):
                weights, ticks, line = self._weigh_moment(factors, start, moment, lines)
                if ticks > lowest:
                    best, lowest, now = weights, ticks, line
        return best

    def _line(self, choice: tuple[int, ...], ticks: int) -> _Line:
        return _Line(choice, ticks, self.memory.count(choice))

    def _weigh_moment(
        self, factors: Sequence[Factor], start: IntArray, moment: int, lines: list[_Line]
    ) -> tuple[IntArray, int, _Line]:
        """The weights with the best one of a moment, their bound, and a choice at it that needs little at that moment.

        The bound of a weight is below the line of each choice; it is highest at most where the lowest of them meet::

            bound │         ╲
                  │   ╱· · ·╲╱
                  │  ╱·      ╲          a choice that is found at the crossing is a line below it,
                  │ ╱                   or the weight is the best one
                  └──────────────── weight
        """
        memory, weights, best, lowest = self.memory, start.copy(), start, -1
        weights[moment] = 0
        others = weights.copy()
        for _ in range(tuning.CAPPED_STEPS):
            begins = np.array([line.ticks + int(others @ (line.nbytes - self.cap)) // WEIGHT for line in lines])
            slopes = np.array([int(line.nbytes[moment]) - self.cap for line in lines])
            crest = _find_crest(begins, slopes)
            weight = (
                crest
                if crest is not None
                else max(  # no line falls yet
                    2 * int(weights[moment]), WEIGHT * self.fastest_ticks // (tuning.CAPPED_START * self.cap)
                )
            )
            if weight > self.most_weight or self._is_late():
                break
            weights[moment] = weight
            found = minimize(self.problem.sizes, [*factors, *memory.weigh(weights)], reduces=False)
            self.found.work += found.entries
            if found.bound_ticks - self._weigh_cap(weights) > lowest:
                best, lowest = weights.copy(), found.bound_ticks - self._weigh_cap(weights)
            line = self._line(found.choice, evaluate(found.choice, factors)[0])
            lines.append(line)
            begin, slope = (
                line.ticks + int(others @ (line.nbytes - self.cap)) // WEIGHT,
                int(line.nbytes[moment]) - self.cap,
            )
            height = float((begins + slopes * (weight / WEIGHT)).min())
            if crest is not None and begin + slope * (weight / WEIGHT) >= height * (1 - tuning.CAPPED_NEARNESS):
                break
        at = int(best[moment]) / WEIGHT
        near = [line for line in lines if line.nbytes[moment] <= self.cap] or lines
        return best, lowest, min(near, key=lambda line: line.ticks + at * (int(line.nbytes[moment]) - self.cap))

    def _weigh_cap(self, weights: IntArray) -> int:
        """The weighed cap in picoseconds, rounded up."""
        return -(-int(weights.sum()) * self.cap // WEIGHT)

    # -- limits ------------------------------------------------------------------------------------------

    def _close(self, small: tuple[int, ...]) -> None:
        """Raise the limit until a plan is found and proved to be the best."""
        search, bound = self.problem.factors(tuning.FIRST_FACTOR_ENTRIES)
        memory, factors = self.memory, [*bound, *self.same]
        weights = self._find_weights(factors, small)
        marginals = find_marginals(self.problem.sizes, [*factors, *memory.weigh(weights)])
        self.moments.update(np.flatnonzero(weights).tolist())
        self._raise_bound(marginals.bound_ticks - self._weigh_cap(weights))
        most = sum(int(factor.ticks.max()) for factor in search)
        step, searched, before = max(self.fastest_ticks // tuning.CAPPED_FIRST_STEP, 1), True, -1
        while searched and self.found.bound_ticks <= self.most and not self._is_late():
            low = self.found.bound_ticks
            limit = min(low + step, self.most, most if self.found.choice is None else self.found.cost[0] - 1)
            if limit < low or limit == before:  # the plan is proved to be the best, or there is none
                self.found.none = self.found.choice is None and low > most
                break
            before = limit
            kept = marginals.list_kept(limit + self._weigh_cap(weights))
            if all(map(len, kept)):
                searched = self._search(kept, limit, weights)
            else:
                self._raise_bound(limit + 1)
            step *= tuning.CAPPED_GROWTH

    def _search(self, kept: Sequence[IntArray], limit: int, weights: IntArray) -> bool:
        """Look for the best plan of some layouts up to a limit; whether all were looked at, or a plan was found."""
        kept = [self.problem.known.share(values) for values in kept]
        now = self.problem.restrict(kept)
        cuts: dict[tuple[int, ...], tuple[IntArray, IntArray]] = {}
        same = [cut_table(factor, [kept[v] for v in factor.scope], cuts) for factor in self.same]
        tables = [*now.factors()[1], *same]

        def carry(cap: int, unit: int, most: int = tuning.MAX_LABELS) -> Frontier:
            here = self.memory.restrict(kept)
            more = np.pad(weights, (0, here.moments - len(weights)))
            rows = [here.list_row(moment, int(more[moment])) for moment in sorted(self.moments)]
            try:
                made = Frontier(now.sizes, tables, rows, cap, limit, unit=unit, most=most)
            except TooManyLabels:
                self.found.work += tuning.WORK_OF_LABEL * most
                raise
            self.found.work += tuning.WORK_OF_LABEL * made.gone
            return made

        def choose(frontier: Frontier, number: int) -> tuple[int, ...]:
            return tuple(int(k[value]) for k, value in zip(kept, frontier.find_choice(number), strict=True))

        while not self._is_late():
            frontier = self._carry_in_units(carry)
            if frontier is None:
                return False
            ticks = frontier.all.ticks
            self._raise_bound(min(int(ticks[0]), limit + 1) if len(ticks) else limit + 1)
            if not len(ticks):
                return True
            choice = choose(frontier, 0)
            known = choice in self.packed
            if self._add_moments(choice):
                continue
            if self._take(choice) or ticks[0] > limit:
                return ticks[0] > limit or not known
            if self._add_moments(choice):
                continue
            return self._list_all(carry, choose, limit) or self._leave_room(carry, choose, choice)
        return False

    def _carry_in_units(self, carry: Callable[[int, int], Frontier]) -> Frontier | None:
        """Sums of picoseconds and bytes, in units where there are too many; None where there are too many even so."""
        for unit in (1, *(max(self.cap // many, 1) for many in tuning.CAPPED_UNITS)):
            try:
                return carry(self.cap, unit)
            except TooManyLabels:
                continue
        return None

    def _list_all(
        self,
        carry: Callable[[int, int, int], Frontier],
        choose: Callable[[Frontier, int], tuple[int, ...]],
        limit: int,
    ) -> bool:
        """Lay out what the sums allow, one after the other: bytes in arenas may be more than those that are counted."""
        try:
            frontier = carry(self.cap, 0, tuning.MAX_LISTED)
        except TooManyLabels:
            return False
        left = tuning.CAPPED_LAID_OUT
        for number, ticks in enumerate(frontier.all.ticks.tolist()):
            if ticks > limit:
                break
            self._raise_bound(ticks)
            choice = choose(frontier, number)
            if self.found.choice is not None and ticks >= self.found.cost[0]:
                return True
            if choice not in self.packed and self._fits_counted(choice):
                left -= 1
                if self._take(choice):
                    return True
            if left <= 0 or self._is_late():
                return False
        self._raise_bound(limit + 1)
        return True

    def _leave_room(
        self,
        carry: Callable[[int, int, int], Frontier],
        choose: Callable[[Frontier, int], tuple[int, ...]],
        choice: tuple[int, ...],
    ) -> bool:
        """Look for plans with fewer bytes, by what arenas were found to need beyond them; nothing is proved by it."""
        cap = self.cap
        for _ in range(tuning.CAPPED_TRIES):
            cap -= max(self._reach(self.packed[choice].lowered.peak_nbytes) - self.cap, 1)
            try:
                frontier = carry(cap, 1, tuning.MAX_LABELS)
            except TooManyLabels:
                break
            if not len(frontier.all.ticks) or self._is_late():
                break
            choice = choose(frontier, 0)
            if self._take(choice) or self._add_moments(choice):
                break
        return False

    # -- plans -------------------------------------------------------------------------------------------

    def _fits_counted(self, choice: tuple[int, ...]) -> bool:
        return int(self.memory.count(choice).max()) <= self.cap

    def _add_moments(self, choice: tuple[int, ...]) -> bool:
        """Look at moments at which a choice of layouts needs too much; whether there is one that was not looked at."""
        before = len(self.moments)
        if choice in self.packed:
            device = int(np.argmax(np.add(self.packed[choice].least_nbytes, self.taken)))
            self._look_at(device)
        for counted, first in self.memory.list_counts(choice):
            if counted.max() > self.cap:
                self.moments.add(first + int(counted.argmax()))
        return len(self.moments) > before

    def _look_at(self, device: int) -> None:
        if device not in self.memory.of:
            self.memory.add(device, Memory(self.problem, device, self.taken[device]))

    def _reach(self, nbytes: Sequence[int]) -> int:
        """The most bytes of a device, with those that it has less than the one with the most memory."""
        return max(map(sum, zip(nbytes, self.taken, strict=True)))

    def _pack(self, choice: tuple[int, ...]) -> int:
        """The bytes of the largest arena, as `_reach` counts them."""
        if choice not in self.packed:
            packed = self.packed[choice] = self.pack(choice)
            self.found.tried += 1
            self.found.work += tuning.WORK_OF_STEPS * len(self.problem.order)
            if self._reach(packed.least_nbytes) <= self.cap < self._reach(packed.lowered.peak_nbytes):
                self.unpacked.append(self.problem.count_cost(choice)[0])
        return self._reach(self.packed[choice].lowered.peak_nbytes)

    def _take(self, choice: tuple[int, ...]) -> bool:
        """Write a choice down; whether it keeps the cap and is better than what was found."""
        cost = self.problem.count_cost(choice)
        if self.found.choice is not None and cost >= self.found.cost:
            return False
        peak = self._pack(choice)
        self.found.found_nbytes = min(self.found.found_nbytes, peak)
        if peak <= self.cap:
            self.found.choice, self.found.cost, self.found.packed = choice, cost, self.packed[choice]
        return peak <= self.cap

    def _improve(self) -> None:
        """Better layouts of one variable at a time, as long as the arenas keep the cap."""
        assert self.found.choice is not None, "there is a plan to improve"
        improved = True
        while improved and not self._is_late():
            improved = False
            for variable in range(len(self.problem.sizes)):
                choice = list(self.found.choice)
                ticks, nbytes = count_better(self.problem, variable, choice)
                old = ticks[choice[variable]], nbytes[choice[variable]]
                for value in np.lexsort((nbytes, ticks))[: tuning.CAPPED_MOVES]:
                    if (ticks[value], nbytes[value]) >= old:
                        break
                    choice[variable] = int(value)
                    if self._fits_counted(tuple(choice)) and self._take(tuple(choice)):
                        improved = True
                        break


def _find_crest(begins: IntArray, slopes: IntArray) -> int | None:
    """The weight at which the lowest of some lines is highest; None where none of them falls."""
    if (slopes > 0).all():
        return None
    at = 0.0
    over = int(np.lexsort((slopes, begins))[0])
    while slopes[over] > 0:
        # Along the lowest line to the first that crosses it from above.
        steeper = np.flatnonzero(slopes < slopes[over])
        crossing = (begins[steeper] - begins[over]) / (slopes[over] - slopes[steeper])
        over, at = int(steeper[crossing.argmin()]), float(crossing.min())
    return max(round(at * WEIGHT), 0)
