"""Plans that may be the best at some sizes of a model: those that are given, and those that are planned there anew.

::

    size by size ─► plan anew ─► a bound, and a plan: is it a candidate, bound to this size?  its choices are compared
                                  no: all candidates are bound; a plan that is better than each of them is one more
    size by size ─► is the best one proved to be?   yes: others need not be bound
                                                    no: all are, also those that were found later

So of n sizes at most n are planned, and each candidate is bound at most once to each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct, field

from tapestry_plan.ir import Graph
from tapestry_plan.search import Progress, bind_to, is_bound_as, plan, plan_or_spill, read_again, rewrite_again
from tapestry_plan.steps import ShardPlan
from tapestry_sets.limits import quote

Measure = Literal["seconds", "nbytes_moved"]
MakePlan = Callable[[Graph], ShardPlan]
"""Makes a plan of the model at one size."""


class Bound(Struct, frozen=True):
    """What a plan comes to at one size: as `ShardPlan.seconds` and `nbytes_moved` of the plan that is bound to it."""

    seconds: float
    nbytes_moved: int

    def read(self, by: Measure) -> float:
        """What is compared."""
        return self.seconds if by == "seconds" else self.nbytes_moved


class AtSize(Struct):
    """What is known of one size."""

    size: int
    bounds: dict[int, Bound | None] = field(default_factory=dict)
    """By plan what it comes to, None where it cannot be bound; others were not looked at."""
    least: float | None = None
    """No plan of the space that was searched comes to less; None where nothing was searched."""
    refused: str = ""
    """Why the model has no such size, or nothing was planned there."""

    def find_least(self, by: Measure) -> float | None:
        """What the best one comes to of those that were looked at."""
        return min((one.read(by) for one in self.bounds.values() if one is not None), default=None)

    def is_proved(self, by: Measure) -> bool:
        """Whether no plan of the space that was searched is better than the best one that was looked at."""
        found = self.find_least(by)
        return self.least is not None and found is not None and found <= self.least


class Candidates:
    """Plans of one model, and what they come to at some sizes of a symbol.

    Parameters
    ----------
    plans : sequence of ShardPlan
        Those that are given, of one model; each is bound to every size.
    symbol : str
    by : "seconds" or "nbytes_moved"
    search : callable, optional
        Makes the plan of the model at a size; none is made without it.
    known : mapping of int to ShardPlan
        By size what `search` would make there.
    """

    def __init__(
        self,
        plans: Sequence[ShardPlan],
        symbol: str,
        by: Measure,
        search: MakePlan | None,
        known: Mapping[int, ShardPlan],
    ) -> None:
        self.plans = list(plans)
        self.why: dict[int, str] = {}
        """Why plans could not be bound, the last reason of each, by number."""
        self._given = len(self.plans)
        self._symbol, self._by, self._search, self._known = symbol, by, search, known
        self._read: tuple[int, Graph] | None = None

    def compare(self, sizes: Sequence[int], progress: Progress | None) -> tuple[list[AtSize], list[int | None]]:
        """What is known of each size, and the best plan there; of equal ones the best one before, or the first."""
        found, best = list[AtSize](), list[int | None]()
        tell = progress or (lambda done, total, words: None)
        for k, size in enumerate(sizes):
            tell(k, 2 * len(sizes), f"{self._symbol}={size}")
            found.append(self._look(size))
        last: int | None = None
        for k, at in enumerate(found):
            tell(len(sizes) + k, 2 * len(sizes), f"{self._symbol}={at.size}")
            if not at.is_proved(self._by):
                self._bind(at, range(len(self.plans)))
            elif last is not None:
                self._bind(at, [last])
            last = _choose(at, self._by, last)
            best.append(last)
        tell(2 * len(sizes), 2 * len(sizes), "done")
        return found, best

    def _look(self, size: int) -> AtSize:
        """Plan one size anew, unless that is known, with a candidate more where that is better than all others."""
        at = AtSize(size)
        try:
            graph = self._read_at(size)
        except ValueError as error:  # the model has no such size, so that no plan has
            at.refused = str(error)
            self.why |= dict.fromkeys(range(self._given), at.refused)
            at.bounds = dict.fromkeys(range(self._given))
            return at
        made = self._plan(at, graph)
        if made is not None:
            own = Bound(made.seconds, made.nbytes_moved)
            at.least = made.bound if self._by == "seconds" else 0
            # The latest ones are the likeliest. Those that were given are all bound below.
            same = (k for k in reversed(range(len(self.plans))) if is_bound_as(self.plans[k], made, graph))
            number = next(same, None)
            if number is not None:
                at.bounds[number] = own
            else:
                self._bind(at, range(len(self.plans)))
                least = at.find_least(self._by)
                if least is None or own.read(self._by) < least:
                    at.bounds[len(self.plans)] = own
                    self.plans.append(made)
        self._bind(at, range(self._given))
        return at

    def _plan(self, at: AtSize, graph: Graph) -> ShardPlan | None:
        if self._search is None:
            return None
        try:
            made = self._known.get(at.size) or self._search(graph)
        except ValueError as error:  # too little memory, or what was asked for cannot be at this size
            at.refused = str(error)
            return None
        if not isinstance(made, ShardPlan) or made.graph.sizes != graph.sizes:
            what = f"a plan at {quote(dict(made.graph.sizes))}" if isinstance(made, ShardPlan) else quote(made)
            raise TypeError(
                f"crossovers: search made {what} of the graph at {quote(dict(graph.sizes))}; let it return a plan of "
                "the graph that it is called with, as lambda g: plan(g, mesh)"
            )
        return made

    def _bind(self, at: AtSize, numbers: Iterable[int]) -> None:
        """Bind some of the plans to a size, as far as they were not."""
        for k in numbers:
            if k in at.bounds:
                continue
            at.bounds[k] = None
            try:
                made = bind_to(self.plans[k], self._read_at(at.size))
            except ValueError as error:  # too few points, or too little memory
                self.why[k] = str(error)
                continue
            at.bounds[k] = Bound(made.seconds, made.nbytes_moved)

    def _read_at(self, size: int) -> Graph:
        """The model at a size: the last one is kept, since each may have all weights."""
        if self._read is None or self._read[0] != size:
            self._read = size, read_again(self.plans[0], {self._symbol: size})
        return self._read[1]


def _choose(at: AtSize, by: Measure, last: int | None) -> int | None:
    """The best plan of those that were looked at; of equal ones the best one before, or the first."""
    least = at.find_least(by)
    if least is None:
        return None
    equal = [k for k, one in at.bounds.items() if one is not None and one.read(by) == least]
    return last if last in equal else min(equal)


def read_search(one: ShardPlan) -> MakePlan:
    """Plan as a plan was asked for: on its mesh, with all of its options; where it spills, plans may spill.

    Raises
    ------
    ValueError
        Where that is not known, or cannot be asked for again.
    """
    mend = "give search=lambda g: plan(g, mesh, …), or search=False to compare only the plans given"
    if one.asked is None:
        raise ValueError(
            "crossovers: what was asked for of plan 0 is not known, as of a plan from a document, one with fix beside "
            f"like, or one that no planner made; {mend}"
        )
    asked: dict[str, Any] = dict(one.asked)
    spills = one.choices.spill_nbytes is not None
    if spills and one.limit_nbytes != one.mesh.limit_memory(asked.get("memory_nbytes")):
        caps = set(one.limit_nbytes or ())
        if len(caps) != 1 or one.limit_nbytes != one.mesh.limit_memory(min(caps)):
            raise ValueError(f"crossovers: plan 0 spills in other memory than can be asked for; {mend}")
        asked["memory_nbytes"] = min(caps)
    make = plan_or_spill if spills else plan
    return lambda graph: make(graph, one.mesh, **asked)


def list_known(plans: Sequence[ShardPlan], symbol: str) -> dict[int, ShardPlan]:
    """By size the plans that planning as the first one was asked for would make again: proved to be the best there."""
    first = plans[0]
    return {
        one.graph.sizes[symbol]: one
        for one in reversed(plans)
        if one.asked == first.asked and one.mesh == first.mesh and one.explicit is None
        if one.choices.spill_nbytes == first.choices.spill_nbytes
        if one.gap == 0
    }


def check_unchanged(plans: Sequence[ShardPlan]) -> None:
    """Check that models, read at the plans' own sizes, are what was planned.

    Raises
    ------
    ValueError
        For a plan of a graph that was changed after it was loaded, or whose steps somebody wrote.
    """
    for k, one in enumerate(plans):
        if one.explicit is not None:
            raise ValueError(
                f"crossovers: plan {k} has steps that somebody wrote, which no choices say; give one without them"
            )
        rewrite_again(one, read_again(one, {}))
