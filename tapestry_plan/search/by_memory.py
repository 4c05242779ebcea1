"""The fastest plan of a graph and, where it needs more memory than there is, slower ones that need less."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from math import inf
from typing import NoReturn

from msgspec import Struct
from msgspec.structs import replace

from tapestry_plan.ir import Graph
from tapestry_plan.search import tuning
from tapestry_plan.search.capped import Capped, solve_capped
from tapestry_plan.search.least import find_small, list_same
from tapestry_plan.search.needed import find_unrunnable
from tapestry_plan.search.prices.problem import Problem
from tapestry_plan.search.prices.tensors import Known
from tapestry_plan.search.prices.variants import Variants
from tapestry_plan.search.recomputing import Late, list_late, list_subsets, run_again
from tapestry_plan.search.solving import Solved, count_work
from tapestry_plan.steps import (
    Device,
    Expansions,
    InfeasiblePlan,
    KnownPlaces,
    Link,
    Lowered,
    Mesh,
    NotFound,
    Packed,
    ShardPlan,
    Space,
    pack,
)
from tapestry_sets.limits import quote


class Other(Struct, frozen=True):
    """A graph that computes the same as one that is planned: what runs again in it, and what was expanded."""

    graph: Graph
    recomputed: dict[str, str] = {}
    expansions: tuple[Expansions, ...] = ()


class Tried(Struct, frozen=True):
    """A graph, its problem, and what was found of it under some caps."""

    other: Other
    problem: Problem
    capped: Capped
    work: int
    """What it took, in entries of tables."""


class PlansByMemory:
    """The fastest plan of a graph, and those that need less memory.

    Parameters
    ----------
    fastest : ShardPlan
    expanded : Other, optional
        The graph that expansions made, if that is the fastest plan's.
    pose : callable
        Gives the problem of a graph, without layouts over split axes, and its fastest layouts.
    graphs : sequence of Graph
        That of which the fastest plan is, but for expansions, and, where equal ones are unified in it, that without.
    expandable : mapping
        Operators that may be expanded, by name; under a cap as in the fastest plan, or not at all.
    pinned : collection of str
        Operators that do not run again for late readers.
    stop : float
        Of the monotonic clock: from then on what is there is given.
    write : callable
        Gives the plan of some layouts of a problem, of a bound in picoseconds, in arenas of some bytes; its steps are
        known.
    lower : callable
        Gives the steps of some layouts of a problem.
    """

    def __init__(
        self,
        fastest: ShardPlan,
        expanded: Other | None,
        pose: Callable[[Graph], tuple[Problem, Solved]],
        graphs: Sequence[Graph],
        expandable: Mapping[str, Variants],
        pinned: Collection[str],
        stop: float,
        *,
        write: Callable[[Problem, Sequence[int], int, Sequence[int], Lowered], ShardPlan],
        lower: Callable[[Problem, Sequence[int]], Lowered],
    ) -> None:
        self.fastest, self._expanded, self._pose, self._graphs = fastest, expanded, pose, graphs
        self._known: dict[int, tuple[Problem, Solved]] = {}
        self._expandable, self._pinned, self._stop = expandable, pinned, stop
        self._write, self._lower = write, lower
        self._places: KnownPlaces = {}
        self._found: list[tuple[Sequence[int], ShardPlan]] = []
        """The plans of some caps, which may be the best ones of lower ones too."""

    def _posed(self, graph: Graph) -> tuple[Problem, Solved]:
        if id(graph) not in self._known:
            self._known[id(graph)] = self._pose(graph)
        return self._known[id(graph)]

    def within(self, caps: Sequence[int] | None) -> ShardPlan:
        """The fastest plan where it keeps memory caps, one for each device, else the best of the graph as given.

        Raises
        ------
        InfeasiblePlan, NotFound
            As `plan`.
        """
        if caps is None or keeps(self.fastest, caps):
            return self.fastest
        for known, plan in self._found:
            if not plan.gap and keeps(plan, caps) and all(mine <= cap for mine, cap in zip(caps, known, strict=True)):
                return plan  # the best one in more memory does not take as much
        found = self._find_within(caps)
        self._found.append((caps, found))
        return found

    def _find_within(self, caps: Sequence[int]) -> ShardPlan:
        late = list_late(self._graphs[0], self._pinned)
        whole, *apart = (Other(graph) for graph in self._graphs)
        tried = [self._solve(whole, caps)]
        work: float = max(tuning.MIN_TRYING_WORK, tried[0].work)
        is_every = len(late) <= tuning.MAX_LATE_TOGETHER
        for other in self._list_others(late):
            if work <= 0 or time.monotonic() > self._stop:
                is_every = False
                break
            tried.append(self._solve(other, caps, min(tried, key=_cost_of), work))
            work -= tried[-1].work
        if all(one.capped.choice is None for one in tried):
            tried += [self._solve(other, caps) for other in apart]
        best, kept = min(tried, key=_cost_of), caps
        if best.capped.choice is None and not all(one.capped.none or one.capped.shortage for one in tried):
            best, kept = self._solve_lower(whole, caps) or (best, caps)
        if best.capped.choice is None or best.capped.packed is None:
            self._refuse([one.capped for one in tried], caps, is_every=is_every)
        bound = min(one.capped.bound_ticks for one in tried)
        made = self._write(best.problem, best.capped.choice, bound, kept, best.capped.packed.lowered)
        left_out = tuple(leave_out(*one) for one in self._expandable.items())
        unified = {} if best.other in apart else self.fastest.unified
        expansions = best.other.expansions or left_out
        return replace(made, expansions=expansions, unified=unified, recomputed=best.other.recomputed)

    def _list_others(self, late: Sequence[Late]) -> Iterator[Other]:
        """Graphs that compute the same: as the fastest plan expands it, and with what runs again for late readers."""
        if self._expanded is not None:
            yield self._expanded
        for some in list_subsets(late):
            yield Other(*run_again(self._graphs[0], some))

    def _solve(self, other: Other, caps: Sequence[int], best: Tried | None = None, work: float = inf) -> Tried:
        """The best layouts of a graph under caps, without any where no plan of it takes less time than the best one.

        `work` is how many entries of tables may be gone through.
        """
        problem, base = self._posed(other.graph) if best is None else self._pose(other.graph)
        posed = count_work(problem, base)
        if best is not None and best.capped.choice is not None and base.bound_ticks > best.capped.cost[0]:
            return Tried(other, problem, Capped(None, (0, 0), base.bound_ticks, 0, 0), posed)
        if (short := find_unrunnable(problem, caps)) is not None:
            capped = Capped(None, (0, 0), base.bound_ticks, short.nbytes, 0, shortage=short.words)
            return Tried(other, problem, capped, posed)
        capped = solve_capped(
            problem,
            caps,
            base.choice,
            base.bound_ticks,
            partial(self._pack, problem, caps),
            work=work - posed,
            stop=self._stop,
        )
        return Tried(other, problem, capped, posed + capped.work)

    def _solve_lower(self, other: Other, caps: Sequence[int]) -> tuple[Tried, Sequence[int]] | None:
        """A plan of lower caps, and these, where none was found that needs nearly as much as may be had; or None.

        A search looks at the fastest layouts first, all of which may need a little more than the cap. Of a lower one
        others are the fastest; the bound stays that of the caps that were asked for.
        """
        for parts in tuning.LOWER_CAPS:
            if time.monotonic() > self._stop:
                break
            lower = [int(cap * parts) for cap in caps]
            found = self._solve(other, lower)
            if found.capped.choice is not None:
                return found, lower
        return None

    def _refuse(self, found: Sequence[Capped], caps: Sequence[int], *, is_every: bool) -> NoReturn:
        """Say why no plan is given that keeps some caps, and what would do; `is_every` if all graphs were looked at."""
        enough = min((one.found_nbytes for one in found if one.tried), default=0)
        if not enough:
            peaks = self._find_least(self._posed(self._graphs[0])[0])
            enough = max(caps) + max(peak - cap for peak, cap in zip(peaks, caps, strict=True))
        enough = min(enough, max(caps) + max(p - cap for p, cap in zip(self.fastest.peak_nbytes, caps, strict=True)))
        is_every = is_every and not self._expandable
        if len(set(caps)) == 1:
            asked = f"plan: memory_nbytes is {caps[0]:,}; "
            mend = f"{enough:,} bytes a device do{self._tell_more_devices(enough)}: ask for so many"
        else:
            asked = f"plan: devices have {quote([*caps])} bytes; "
            mend = f"{enough - max(caps):,} bytes more on each device do: give them these"
        mend += (
            ", use more devices, or let idle buffers wait in host memory: spill(plan(graph, mesh), memory_nbytes), or "
            "run(…, memory_nbytes=…)"
        )
        capped = min(found, key=lambda one: one.least_nbytes)
        if is_every and all(one.shortage for one in found):
            raise InfeasiblePlan(
                f"{asked}every plan has a moment at which {capped.shortage}; {mend}",
                self.fastest,
            )
        if is_every and all(one.none or one.shortage for one in found):
            raise InfeasiblePlan(
                f"{asked}of all layouts that may keep that, laid out one by one, none does; {mend}", self.fastest
            )
        tried = sum(one.tried for one in found)
        none = [f"none of {tried} plans that were laid out in arenas keeps that"] if tried else []
        if capped.least_nbytes or not none:
            none.append(f"of the graph as given every plan needs {capped.least_nbytes:,} bytes or more")
        raise NotFound(
            f"{asked}{', and '.join(none)}; {mend}",
            self.fastest,
            capped.least_nbytes,
            enough,
        )

    def find_least(self) -> int:
        """Bytes a device of the smallest plan that is found: lower and lower caps are tried while they are kept."""
        least = min(max(self._find_least(self._posed(self._graphs[0])[0])), max(self.fastest.peak_nbytes))
        for _ in range(tuning.MAX_LOWERED):
            try:
                found = self.within(self.fastest.mesh.limit_memory(least * 15 // 16))
            except (InfeasiblePlan, NotFound):
                break
            least = max(found.peak_nbytes)
        return least

    def _find_least(self, problem: Problem) -> tuple[int, ...]:
        """Bytes of each device's arena in the smallest plan that is found."""
        choice = find_small(problem, list_same(problem), lambda: time.monotonic() > self._stop)
        return pack(self._lower(problem, choice), 0).lowered.peak_nbytes

    def _pack(self, problem: Problem, caps: Sequence[int], choice: Sequence[int]) -> Packed:
        """The steps of a choice of layouts, in arenas of some memory."""
        return pack(self._lower(problem, choice), caps, self._places)

    def _tell_more_devices(self, enough: int) -> str:
        """What twice as many devices need, in words; nothing where it is not less, takes long, or cannot be had."""
        problem, _ = self._posed(self._graphs[0])
        asked = problem.asked
        old = asked.mesh
        more_devices = old.device if isinstance(old.device, Device) else old.device * 2
        mesh = replace(old, shape=(2 * old.shape[0], *old.shape[1:]), device=more_devices)
        if mesh.size > tuning.MAX_TOLD_DEVICES or time.monotonic() > self._stop:
            return ""
        try:
            more = Problem(
                problem.graph,
                replace(asked, mesh=mesh, space=choose_space(mesh), known=Known(), derived={}),
            )
        except ValueError:  # layouts were asked for that these devices do not have
            return ""
        needed = max(self._find_least(more))
        return f"; with {mesh.size} devices {needed:,} do" if needed < enough else ""


def _cost_of(tried: Tried) -> tuple[bool, int, int]:
    return tried.capped.choice is None, *tried.capped.cost


def keeps(plan: ShardPlan, caps: Sequence[int] | None) -> bool:
    """Whether each device's arena has at most the bytes that it may have; None for no limit."""
    return caps is None or all(nbytes <= cap for nbytes, cap in zip(plan.peak_nbytes, caps, strict=True))


def leave_out(node: str, alone: Variants) -> Expansions:
    """An operator whose expansions are not compared: there is no time, or there are too many."""
    choice = (*alone.choices, *alone.without)[0]
    return Expansions(node, (), left_out=(*(option.into for option in choice.options), *choice.left_out))


def choose_space(mesh: Mesh) -> Space:
    """The layouts that are compared where none are asked for."""
    return "all" if mesh.size <= tuning.MAX_WHOLE_DEVICES and isinstance(mesh.link, Link) else "mesh"
