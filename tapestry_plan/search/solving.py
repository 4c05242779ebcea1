"""The least sum of a problem's tables, proved by leaving out what cannot be in a better plan.

First the tables are kept small: consumers of one tensor that would need a large one are counted one by one. The plan
that is found then, and the bound of such tables, leave few layouts (see `pruning`). Their consumers are weighed until
the bound is high; layouts that reach it are mostly a good plan, which leaves fewer. Over these the consumers are
counted jointly, so that both the plan and the bound get better, and again. Where a plan is not proved to be the best,
windows of operators are planned anew around it: a better plan leaves fewer layouts too::

    tables ──► plan ──► min-marginals ──► layouts that may be in a better plan ──┐
       ▲                                                                         │
       └──────────── larger tables, over fewer layouts ◄─────────────────────────┘
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from hashlib import sha256
from math import inf

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tapestry_plan.search import tuning
from tapestry_plan.search.moving import move_layouts
from tapestry_plan.search.placing import place_least
from tapestry_plan.search.prices.costs import Problem
from tapestry_plan.search.sums.elimination import Factor, IntArray, fits, minimize
from tapestry_plan.search.sums.pruning import Marginals, find_marginals, is_worth_a_round
from tapestry_plan.steps import Layout

Plan = tuple[int, int, tuple[int, ...]]
"""Picoseconds, bytes, and the layouts."""

KeptLayouts = Mapping[tuple[str, str], tuple[tuple[Layout, ...], IntArray]]
"""By kind and name of a variable its layouts, and the rows of those that are kept."""


class Solved(Struct, frozen=True):
    """Layouts for a problem, and how good they are.

    Parameters
    ----------
    choice : tuple of int
        The number of each variable's layout.
    ticks, bound_ticks : int
        What they cost, and a proven lower bound on what any layouts cost, in picoseconds.
    entries : int
        Of the tables that the search took.
    place : callable, optional
        Gives another choice that costs as much, and places as few bytes as is found: it takes its time. None where the
        choice is that one.
    """

    choice: tuple[int, ...]
    ticks: int
    bound_ticks: int
    entries: int
    place: Callable[[], tuple[int, ...]] | None = None

    def placed(self) -> Solved:
        """The same with layouts that place as few bytes as is found."""
        return self if self.place is None else replace(self, choice=self.place(), place=None)


def solve(
    problem: Problem,
    *,
    seed: int = 0,
    stop: float = inf,
) -> Solved:
    """The best layouts that can be found, with the best bound that can be proved, placed as `place_least` says.

    Parameters are as of `find_layouts`.
    """
    return find_layouts(problem, seed=seed, stop=stop).placed()


def find_layouts(
    problem: Problem,
    *,
    seed: int = 0,
    stop: float = inf,
    known: KeptLayouts | None = None,
) -> Solved:
    """The best layouts that can be found, with the best bound that can be proved, whatever they place.

    Parameters
    ----------
    problem : Problem
    seed : int
    stop : float
        Of the monotonic clock: from then on what is there is given, as soon as there is something.
    known : mapping, optional
        Layouts beside which none is in a plan of interest: others may be passed over, and the bound does not hold for
        them.
    """
    now, kept = problem, [np.arange(size) for size in problem.sizes]
    tell = partial(problem.asked.meter.tell, "layouts")
    # Alike operators have the same tables, which are few then.
    is_small = problem.count_entries() <= tuning.MAX_DIRECT_ENTRIES
    if not is_small and (rows := list_rows(problem, known or {})):
        problem.factors(tuning.FIRST_FACTOR_ENTRIES)  # most are there, of a graph like this one: they are cut, not made
        now, kept = problem.restrict(rows), rows
        is_small = now.count_entries() <= tuning.MAX_DIRECT_ENTRIES
    if time.monotonic() < stop and is_small:
        search, bound = now.factors()
        problem.asked.meter.enter("layouts")
        found = minimize(now.sizes, search, total=_count_affordable(stop), tell=tell)
        if bound is search and found.exact:
            choice = _choose(kept, found.choice)
            ticks = found.ticks if problem.is_sum else problem.count_cost(choice)[0]
            place = partial(_place_least, problem, kept, search, found.choice, choice, stop)
            return Solved(choice, ticks, found.ticks, found.entries, place)
    search, bound = now.factors(tuning.FIRST_FACTOR_ENTRIES)
    problem.asked.meter.enter("layouts")
    entries = 0
    best: Plan | None = None
    lowest, improved, moved = 0, False, False
    last: Marginals | None = None  # those that nothing more can be left out by
    while True:
        if last is None and time.monotonic() < stop and not fits(now.sizes, search, tuning.MAX_ENTRIES):
            # Of tables that are split the sum proves nothing: first layouts are left out, until they fit or no more can
            # be, beside plans that this meets.
            if now.entries < tuning.SECOND_FACTOR_ENTRIES:
                search, bound = now.factors(tuning.SECOND_FACTOR_ENTRIES)
                continue
            now, kept, search, bound, best, least, last = _leave_out(
                problem, now, kept, search, bound, best, seed, stop
            )
            lowest = max(lowest, min(best[0], least))
            continue
        found = minimize(now.sizes, search, total=_count_affordable(stop), rough=tuning.MAX_ROUGH_ENTRIES, tell=tell)
        entries += found.entries
        best = _better(problem, best, _choose(kept, found.choice))
        if bound is search and found.exact:
            # Whatever was left out costs more than a plan that was there, so no plan takes less than this.
            settled = Solved(best[2], best[0], min(best[0], max(lowest, found.ticks)), entries)
            if found.ticks > best[0]:
                return settled
            return replace(settled, place=partial(_place_least, problem, kept, search, found.choice, best[2], stop))
        if time.monotonic() >= stop:
            below = found if bound is search else minimize(now.sizes, bound, total=_count_affordable(stop))
            return Solved(best[2], best[0], max(lowest, min(best[0], below.bound_ticks)), entries)
        if not found.exact:
            best = _improve(problem, now, kept, best, [_find_rows(kept, best[2]), found.choice], seed, stop)
            if last is not None and not is_worth_a_round(now.sizes, last.list_kept(best[0])):
                best = _replan_windows(problem, kept, best, 2 * tuning.WINDOW_OPERATORS, stop)
                if not is_worth_a_round(now.sizes, last.list_kept(best[0])):
                    return Solved(best[2], best[0], lowest, entries)  # no more can be left out beside a better plan
            last = None
            if not fits(now.sizes, search, tuning.MAX_ENTRIES):
                continue
        marginals = find_marginals(now.sizes, bound, most=best[0], stop=stop)
        if bound is not search and found.entries <= tuning.FEW_ENTRIES:  # else each elimination takes its time
            some = marginals.list_kept(best[0])
            if is_worth_a_round(now.sizes, some):
                kept = [rows[values] for rows, values in zip(kept, some, strict=True)]
                lowest, now = max(lowest, min(best[0], marginals.bound_ticks)), now.restrict(some)
                search, bound = now.factors(now.entries)
            bound, choices = _raise_bound(now, bound, stop)
            problem.listed.weights |= now.listed.weights  # for who asks next: expansions are held against them
            for choice in choices:  # what reaches a bound is often a good plan
                best = _better(problem, best, _choose(kept, choice))
            marginals = find_marginals(now.sizes, bound, most=best[0], stop=stop)
        lowest = max(lowest, min(best[0], marginals.bound_ticks))
        if not moved and lowest < best[0]:  # beside a better plan more is left out before tables are larger
            moved = True
            best = _improve(problem, now, kept, best, [_find_rows(kept, best[2])], seed, stop)
        some = marginals.list_kept(best[0])
        if not improved and not is_worth_a_round(now.sizes, some) and now.entries == tuning.MAX_FACTOR_ENTRIES:
            improved = True
            best = _improve(problem, now, kept, best, [_find_rows(kept, best[2])], seed, stop)
            some = marginals.list_kept(best[0])
        if not is_worth_a_round(now.sizes, some) and now.entries == tuning.MAX_FACTOR_ENTRIES:
            return Solved(best[2], best[0], lowest, entries)
        # Of the largest tables little is left once smaller ones have left layouts out; where these do not, one round of
        # tables is passed over.
        growth = tuning.FACTOR_GROWTH ** (1 if is_worth_a_round(now.sizes, some) else 2)
        kept = [rows[values] for rows, values in zip(kept, some, strict=True)]
        now = now.restrict(some)
        search, bound = now.factors(min(max(now.entries, 1) * growth, tuning.MAX_FACTOR_ENTRIES))


def _place_least(
    problem: Problem,
    kept: Sequence[IntArray],
    search: list[Factor],
    found: tuple[int, ...],
    best: tuple[int, ...],
    stop: float,
) -> tuple[int, ...]:
    """A choice that places the fewest bytes of those that cost as little as the best one, by the tables."""
    if time.monotonic() >= stop:
        return best
    choice = place_least(problem, kept, search, found)
    return choice if problem.is_sum or problem.count_cost(choice) <= problem.count_cost(best) else best


def find_bound(problem: Problem) -> int:
    """Picoseconds that no layouts take less than, by one pass over small tables."""
    bound = problem.factors(tuning.FIRST_FACTOR_ENTRIES)[1]
    return minimize(problem.sizes, bound, rough=tuning.MAX_ROUGH_ENTRIES).bound_ticks


def count_work(problem: Problem, solved: Solved | None) -> int:
    """What posing a problem, and solving it, if it is solved, took in entries of tables: the same on any machine."""
    entries = 0 if solved is None else solved.entries
    return entries + tuning.WORK_OF_OPERATOR * len(problem.order)


def list_rows(problem: Problem, kept: KeptLayouts) -> list[IntArray] | None:
    """For each variable of a problem the rows of its layouts that are kept, all of those of which nothing is said.

    None where nothing is, or a variable has other layouts here: who has these may have others around it.
    """
    out = []
    for variable in problem.variables:
        every = np.arange(len(variable.layouts))
        layouts, rows = kept.get((variable.kind, variable.name), (variable.layouts, every))
        if variable.layouts != layouts:
            return None
        out.append(rows if len(rows) else every[:1])
    return out if kept else None


def _leave_out(
    problem: Problem,
    now: Problem,
    kept: list[IntArray],
    search: list[Factor],
    bound: list[Factor],
    best: Plan | None,
    seed: int,
    stop: float,
) -> tuple[Problem, list[IntArray], list[Factor], list[Factor], Plan, int, Marginals | None]:
    """Leave layouts out that are in no plan better than one, until elimination fits or no more can be.

    Small tables go first: they take little time, and leave fewer layouts to large ones. What comes back is the problem
    of the layouts that are kept, their numbers, its tables for the search and for the bound, the best plan that was
    met, the highest bound, and what proved it last, where no more can be left out by that.
    """
    lowest = 0
    while True:

        def find_near(found: Marginals, now: Problem = now, kept: Sequence[IntArray] = kept) -> int:
            nonlocal best
            best = _improve(problem, now, kept, best, [_choose_likely(now, found)], seed, stop)
            return best[0]

        is_whole = bound is search or now.entries == tuning.MAX_FACTOR_ENTRIES
        cap = tuning.MAX_PRUNING_ENTRIES // (1 if is_whole else tuning.PRUNING_GROWTH)  # the largest take seconds
        marginals = find_marginals(now.sizes, bound, cap=cap, most=find_near, stop=stop)
        assert best is not None, "there is a choice"
        lowest = max(lowest, marginals.bound_ticks)
        some = marginals.list_kept(best[0])
        is_worth = is_worth_a_round(now.sizes, some)
        # Nothing proves a plan by less than what its tables are rounded by.
        is_proved = best[0] - lowest <= now.listed.rounded
        if (not is_worth and (is_proved or is_whole)) or time.monotonic() >= stop:
            return now, kept, search, bound, best, lowest, marginals
        kept = [rows[values] for rows, values in zip(kept, some, strict=True)]
        now = now.restrict(some)
        grown = now.entries if is_worth else now.entries * tuning.PRUNING_GROWTH
        search, bound = now.factors(min(grown, tuning.MAX_FACTOR_ENTRIES))
        if fits(now.sizes, search, tuning.MAX_ROUGH_ENTRIES):
            return now, kept, search, bound, best, lowest, None


def _choose_likely(problem: Problem, found: Marginals) -> list[int]:
    """A choice among the layouts that have the least sums: of so few all consumers of a tensor are counted jointly."""
    every = np.sort(np.concatenate(found.least))
    most = int(every[min(tuning.LIKELY_LAYOUTS * len(problem.sizes), len(every)) - 1])
    rows = [np.flatnonzero(least <= max(most, int(least.min()))) for least in found.least]
    near = problem.restrict(rows)
    search, _ = near.factors(tuning.SECOND_FACTOR_ENTRIES)
    choice = minimize(near.sizes, search, total=tuning.MAX_ROUGH_ENTRIES).choice
    return [int(values[value]) for values, value in zip(rows, choice, strict=True)]


def _improve(
    problem: Problem,
    now: Problem,
    kept: Sequence[IntArray],
    best: Plan | None,
    choices: Sequence[Sequence[int]],
    seed: int,
    stop: float,
) -> Plan:
    """The best plan, or a better one to which moves of one layout at a time lead from some choice of those kept."""
    for choice in choices:
        moved = move_layouts(now, choice, seed=seed, stop=stop)
        best = _better(problem, _better(problem, best, _choose(kept, choice)), _choose(kept, moved))
    assert best is not None, "there is a choice"
    return best


def _replan_windows(problem: Problem, kept: Sequence[IntArray], best: Plan, width: int, stop: float) -> Plan:
    """The best plan, or a better one with other ones of the kept layouts of operators that run one after the other.

    ::

        operators   ├────────────────────────────────────────┤    of each window all that are kept are compared,
        windows     ├───────┼───────┤                             the others stay as they are; what is found
                            ├───────┼───────┤                     better is the plan for the next one
                                    ├───────┼───────┤

    Windows that are alike, in the same layouts around them, are looked at once: layers mostly are.
    """
    operators = [problem.position["operator", node.name] for node in problem.order]
    half, found = width // 2, dict[tuple[object, ...], tuple[int, ...]]()
    for begin in range(0, max(len(operators) - half, 1), half):
        if time.monotonic() >= stop:
            break
        near, free = problem.around(operators[begin : begin + 2 * half])
        rows = [np.array([value]) for value in best[2]]
        for at in free:
            rows[at] = kept[at]
        close = near.restrict(rows)
        search, _ = close.factors(tuning.FIRST_FACTOR_ENTRIES)
        number = {at: k for k, at in enumerate(free)}
        sizes, tables = [close.sizes[at] for at in free], [_number_free(factor, number) for factor in search]
        said = (*sizes, *_describe(tables))
        if said not in found:
            found[said] = minimize(sizes, tables, total=tuning.MAX_ROUGH_ENTRIES).choice
        choice = list(best[2])
        for at, value in zip(free, found[said], strict=True):
            choice[at] = int(kept[at][value])
        if tuple(choice) != best[2] and near.count_cost(choice) < near.count_cost(best[2]):
            best = *problem.count_cost(choice), tuple(choice)
    return best


def _number_free(factor: Factor, number: Mapping[int, int]) -> Factor:
    """A table over those of its variables that are free, by their numbers; all others have one layout."""
    axes = tuple(axis for axis, at in enumerate(factor.scope) if at not in number)
    scope = tuple(number[at] for at in factor.scope if at in number)
    return (
        Factor(scope, factor.ticks.squeeze(axes), factor.nbytes.squeeze(axes)) if axes else replace(factor, scope=scope)
    )


def _describe(tables: Sequence[Factor]) -> Iterator[tuple[object, ...]]:
    """What tables over some variables are: what is the same of all layouts does not count."""
    known: dict[int, bytes] = {}
    for factor in tables:
        if factor.scope:
            for array in (factor.ticks, factor.nbytes):
                if id(array) not in known:
                    known[id(array)] = sha256(np.ascontiguousarray(array).data).digest()
            yield factor.scope, known[id(factor.ticks)], known[id(factor.nbytes)]


def _find_rows(kept: Sequence[IntArray], choice: Sequence[int]) -> list[int]:
    """The numbers of chosen layouts among those that are kept."""
    return [int(np.searchsorted(rows, value)) for rows, value in zip(kept, choice, strict=True)]


def _raise_bound(problem: Problem, bound: list[Factor], stop: float) -> tuple[list[Factor], list[tuple[int, ...]]]:
    """The tables of the bound with the weights of consumers for which their least sum is higher (see `tables`).

    Beside them the assignments that were found to have the least sums.
    """
    found = minimize(problem.sizes, bound, total=_count_affordable(stop))
    best, highest, choices = bound, found.bound_ticks, [found.choice]
    weights = dict(problem.listed.weights)
    for k in range(tuning.MAX_WEIGHINGS):
        late = found.entries > tuning.FEW_ENTRIES or time.monotonic() >= stop
        if late or not problem.listed.shift_weights(found.choice, 1 / (2 + k)):
            break
        now = problem.listed.list_bound(problem.known)
        found = minimize(problem.sizes, now, total=_count_affordable(stop))
        choices.append(found.choice)
        if found.bound_ticks > highest:
            best, highest, weights = now, found.bound_ticks, dict(problem.listed.weights)
    problem.listed.weights = weights
    return best, choices


def _count_affordable(stop: float) -> int:
    """Joint entries that elimination may go through until a moment."""
    left = min(max(stop - time.monotonic(), 0.0), tuning.MAX_ENTRIES / tuning.ENTRIES_PER_SECOND)
    return int(left * tuning.ENTRIES_PER_SECOND)


def _choose(kept: Sequence[IntArray], choice: Sequence[int]) -> tuple[int, ...]:
    return tuple(int(rows[value]) for rows, value in zip(kept, choice, strict=True))


def _better(problem: Problem, best: Plan | None, choice: tuple[int, ...]) -> Plan:
    """The better one of what is there and a choice, with its picoseconds and bytes."""
    found = *problem.count_cost(choice), choice
    return found if best is None or found[:2] < best[:2] else best
