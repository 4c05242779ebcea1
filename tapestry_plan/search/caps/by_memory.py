"""The fastest plan of a graph and, where it needs more memory than there is, slower ones that need less."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property, partial
from itertools import chain
from math import inf
from typing import NoReturn

from msgspec import Struct
from msgspec.structs import replace

from tapestry_plan.ir import Graph
from tapestry_plan.search import tuning
from tapestry_plan.search.caps.capped import Capped, solve_capped
from tapestry_plan.search.caps.least import find_small, list_same
from tapestry_plan.search.caps.needed import find_unrunnable
from tapestry_plan.search.neighbors.fusing import list_makers_inside, write_blocks
from tapestry_plan.search.neighbors.recomputing import list_late, list_subsets, run_again
from tapestry_plan.search.prices.costs import Known, Problem, Variants
from tapestry_plan.search.solving import Solved, count_work, find_bound
from tapestry_plan.steps import (
    Device,
    Expansions,
    Fused,
    InfeasiblePlan,
    KnownPlaces,
    Link,
    Lowered,
    Mesh,
    NotFound,
    Packed,
    ShardPlan,
    Space,
    least_memory,
    pack,
)
from tapestry_sets.limits import quote

OWN_PLACES = "each block in a place of its own"
"""What is known of plans under a cap: without one a block may be made inside another one."""


class Other(Struct, frozen=True):
    """A graph that computes the same as one that is planned: what runs again in it, was expanded, or is one block."""

    graph: Graph
    recomputed: dict[str, str] = {}
    expansions: tuple[Expansions, ...] = ()
    fused: tuple[Fused, ...] = ()


class Posed(Struct):
    """The problem of a graph, and its fastest layouts: these are found where they are asked for.

    Parameters
    ----------
    problem : Problem
        Its operators are apart.
    blocks : Problem
        The same where neighbors may be in one block, if they may; else the problem itself.
    find : callable
        Gives the fastest layouts of `problem`.
    """

    problem: Problem
    blocks: Problem
    find: Callable[[], Solved]
    found: Solved | None = None

    @property
    def solved(self) -> Solved:
        if self.found is None:
            self.found = self.find()
        return self.found

    def find_bound(self, ticks: int) -> int:
        """Picoseconds that no layouts take less than: a bound of few tables, where that is above some others."""
        if self.found is None and (bound := find_bound(self.problem)) > ticks:
            return bound
        return self.solved.bound_ticks

    def count_work(self) -> int:
        """What posing and solving it took so far, in entries of tables."""
        return count_work(self.problem, self.found)


class Tried(Struct, frozen=True):
    """A graph, its problem, and what was found of it under some caps."""

    other: Other
    posed: Posed
    capped: Capped
    work: int
    """What it took, in entries of tables."""
    holds_in_blocks: bool
    """Whether what is said of the memory that its plans need holds too where neighbors are in one block."""


class PlansByMemory:
    """The fastest plan of a graph, and those that need less memory.

    Parameters
    ----------
    fastest : ShardPlan
    others : callable
        Gives the graph as the fastest plan has it: with its blocks, and as expansions made it, where it has such.
    pose : callable
        Gives the problem of a graph, without layouts over split axes.
    graphs : sequence of Graph
        That of which the fastest plan is, but for expansions, and, where equal ones are unified in it, that without.
    expandable : mapping
        Operators that may be expanded, by name; under a cap they are as in the fastest plan, or not at all.
    pinned : collection of str
        Operators that do not run again for late readers.
    stop : float
        Of the monotonic clock: from then on what is there is given.
    write : callable
        Gives the plan of some layouts of a problem, of a bound in picoseconds: in arenas of some bytes, with steps that
        are known, if they are given.
    lower : callable
        Gives the steps of some layouts of a problem.
    """

    def __init__(
        self,
        fastest: ShardPlan,
        others: Callable[[], Sequence[Other]],
        pose: Callable[[Graph], Posed],
        graphs: Sequence[Graph],
        expandable: Mapping[str, Variants],
        pinned: Collection[str],
        stop: float,
        *,
        write: Callable[[Problem, Sequence[int], int, Sequence[int] | None, Lowered | None], ShardPlan],
        lower: Callable[[Problem, Sequence[int]], Lowered],
    ) -> None:
        self.fastest, self._list_others, self._pose, self._graphs = fastest, others, pose, graphs
        self._known: dict[int, Posed] = {}
        self._expandable, self._pinned, self._stop = expandable, pinned, stop
        self._write, self._lower = write, lower
        self._places: KnownPlaces = {}
        self._found: list[tuple[Sequence[int], ShardPlan]] = []
        """The plans of some caps, which may be the best ones of lower ones too."""

    @cached_property
    def _others(self) -> Sequence[Other]:
        return self._list_others()

    def _posed(self, graph: Graph) -> Posed:
        """The problem of a graph that is there for all caps."""
        if id(graph) not in self._known:
            self._known[id(graph)] = self._pose(graph)
        return self._known[id(graph)]

    def within(self, caps: Sequence[int] | None, tell: Callable[[int, int], None] | None = None) -> ShardPlan:
        """The fastest plan where it keeps memory caps, one for each device, else the best of the graphs that are tried.

        `tell` is told how many of the graphs are tried, and how many there may be.

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
        found = self._find_within(caps, tell or (lambda done, total: None))
        self._found.append((caps, found))
        return found

    def _find_within(self, caps: Sequence[int], tell: Callable[[int, int], None]) -> ShardPlan:
        late = list_late(self._graphs[0], self._pinned)
        whole, *apart = (Other(graph) for graph in self._graphs)
        blocks = [other for other in self._others if other.fused]
        subsets = list(list_subsets(late))
        again = (Other(*run_again(whole.graph, some)) for some in subsets)
        tried, first = list[Tried](), [*blocks, whole]
        later = [one for one in self._others if not one.fused]
        total = len(first) + len(later) + len(subsets) + 1  # writing the plan down is the last
        for number, other in enumerate(first):  # blocks mostly take less time: then little is to be proved of the rest
            self._try(tried, self._posed(other.graph), other, caps)
            tell(number + 1, total)
        left: float = max(tuning.MIN_TRYING_WORK, sum(one.work for one in tried))
        is_every = len(late) <= tuning.MAX_LATE_TOGETHER
        for number, other in enumerate(chain(later, again), len(first)):
            if left <= 0 or time.monotonic() > self._stop:
                is_every = False
                break
            left -= self._try(tried, self._pose(other.graph), other, caps, left)
            tell(number + 1, total)
        if _find_best(tried) is None:
            tried += [self._solve(self._posed(other.graph), other, caps) for other in apart]
        best, kept = min(tried, key=_cost_of), caps
        if best.capped.choice is None and not all(one.capped.none or one.capped.shortage for one in tried):
            best, kept = self._solve_lower((*blocks, whole), caps) or (best, caps)
        if best.capped.choice is None or best.capped.packed is None:
            self._refuse(tried, caps, is_every=is_every)
        # Of graphs that do not keep the caps no plan takes less time.
        bound = min(one.capped.bound_ticks for one in tried if not (one.capped.none or one.capped.shortage))
        made = self._write(best.posed.problem, best.capped.choice, bound, kept, best.capped.packed.lowered)
        left_out = tuple(leave_out(*one) for one in self._expandable.items())
        unified = {} if best.other in apart else self.fastest.unified
        expansions, fused = best.other.expansions or left_out, best.other.fused
        made_by = list_makers_inside(self._graphs[-1], made.graph)
        made = replace(made, expansions=expansions, unified=unified, fused=fused, made_by=made_by)
        return replace(made, recomputed=best.other.recomputed)

    def _try(self, tried: list[Tried], posed: Posed, other: Other, caps: Sequence[int], work: float = inf) -> int:
        """Look for a better plan in a graph and, where there is one, in the same with the blocks of its layouts.

        Gives how many entries of tables were gone through.
        """
        best = _find_best(tried)
        tried.append(found := self._solve(posed, other, caps, best, work))
        if other.fused or found.capped.choice is None or _find_best(tried) is not found:
            return found.work
        graph, fused = write_blocks(posed.problem, posed.blocks.list_joined(found.capped.choice))
        if not fused or any(one.other.graph is other.graph for one in tried if one.other.fused == fused):
            return found.work
        tried.append(
            self._solve(self._pose(graph), replace(other, graph=graph, fused=fused), caps, found, work - found.work)
        )
        return found.work + tried[-1].work

    def _solve(
        self, posed: Posed, other: Other, caps: Sequence[int], best: Tried | None = None, work: float = inf
    ) -> Tried:
        """The best layouts of a graph under caps, without any where no plan of it takes less time than the best one.

        `work` is how many entries of tables may be gone through.
        """
        problem, most = posed.problem, None if best is None else best.capped.cost[0]
        if (short := find_unrunnable(posed.blocks, caps)) is not None:
            capped = Capped(None, (0, 0), 0, short.nbytes, 0, shortage=short.words)
            return Tried(other, posed, capped, posed.count_work(), holds_in_blocks=True)
        if most is not None and (bound := posed.find_bound(most)) > most:
            return Tried(other, posed, Capped(None, (0, 0), bound, 0, 0), posed.count_work(), holds_in_blocks=False)
        base, before = posed.solved, posed.count_work()
        capped = solve_capped(
            problem,
            caps,
            base.choice,
            base.bound_ticks,
            partial(self._pack, problem, caps),
            most=most,
            work=work - before,
            stop=self._stop,
        )
        return Tried(other, posed, capped, before + capped.work, holds_in_blocks=posed.blocks is problem)

    def _solve_lower(self, others: Sequence[Other], caps: Sequence[int]) -> tuple[Tried, Sequence[int]] | None:
        """A plan of lower caps, and these, where none was found that needs nearly as much as may be had; or None.

        A search looks at the fastest layouts first, all of which may need a little more than the cap. Of a lower one
        others are the fastest; the bound stays that of the caps that were asked for.
        """
        for parts in tuning.LOWER_CAPS:
            if time.monotonic() > self._stop:
                break
            lower = [int(cap * parts) for cap in caps]
            found = [self._solve(self._posed(other.graph), other, lower) for other in others]
            if (best := _find_best(found)) is not None:
                return best, lower
        return None

    def _refuse(self, tried: Sequence[Tried], caps: Sequence[int], *, is_every: bool) -> NoReturn:
        """Say why no plan is given that keeps some caps, and what would do; `is_every` if all graphs were looked at."""
        found, fastest = [one.capped for one in tried], self._find_spilling(caps)
        enough = min((one.found_nbytes for one in found if one.tried), default=0)
        if not enough:
            peaks = self._find_least(self._posed(self._graphs[0]).problem)
            enough = max(caps) + max(peak - cap for peak, cap in zip(peaks, caps, strict=True))
        enough = min(enough, max(caps) + max(p - cap for p, cap in zip(self.fastest.peak_nbytes, caps, strict=True)))
        is_every = is_every and not self._expandable and all(one.holds_in_blocks for one in tried)
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
                f"{asked}every plan has a moment at which {capped.shortage}, {OWN_PLACES}; {mend}",
                fastest,
            )
        if is_every and all(one.none or one.shortage for one in found):
            raise InfeasiblePlan(
                f"{asked}of all layouts that may keep that, laid out one by one, {OWN_PLACES}, none does; {mend}",
                fastest,
            )
        many = sum(one.tried for one in found)
        none = [f"none of {many} plans that were laid out in arenas keeps that"] if many else []
        if capped.least_nbytes or not none:
            apart = "" if all(one.holds_in_blocks for one in tried) else ", its operators apart,"
            least = f"every plan needs {capped.least_nbytes:,} bytes or more, {OWN_PLACES}"
            none.append(f"of the graph as given{apart} {least}")
        raise NotFound(
            f"{asked}{', and '.join(none)}; {mend}",
            fastest,
            capped.least_nbytes,
            enough,
        )

    def _find_spilling(self, caps: Sequence[int]) -> ShardPlan:
        """The fastest plan, which may run where idle buffers wait in host memory.

        Where a block of it uses more at once than there is, the fastest one with operators apart, if that may run so.
        """

        def can(plan: ShardPlan) -> bool:
            return all(nbytes <= cap for nbytes, cap in zip(least_memory(plan), caps, strict=True))

        if not self.fastest.fused or self.fastest.mesh.size > tuning.MAX_TOLD_DEVICES or can(self.fastest):
            return self.fastest
        posed = self._posed(self._graphs[0])
        apart = self._write(posed.problem, posed.solved.choice, posed.solved.bound_ticks, None, None)
        left_out = tuple(leave_out(*one) for one in self._expandable.items())
        apart = replace(apart, expansions=left_out, unified=self.fastest.unified, asked=self.fastest.asked)
        return apart if can(apart) else self.fastest

    def find_least(self) -> int:
        """Bytes a device of the smallest plan that is found: lower and lower caps are tried while they are kept."""
        least = min(max(self._find_least(self._posed(self._graphs[0]).problem)), max(self.fastest.peak_nbytes))
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
        problem = self._posed(self._graphs[0]).problem
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


def _find_best(tried: Sequence[Tried]) -> Tried | None:
    """The one whose plan is the best, if any has one."""
    best = min(tried, key=_cost_of, default=None)
    return None if best is None or best.capped.choice is None else best


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
