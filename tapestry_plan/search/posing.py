"""What one call of `plan` asks for, and how the problem of each graph that it looks at is posed, solved and written.

A problem is variables and tables. Which layouts an operator has beside those of the mesh follows from its neighbors:
so a problem is posed to ask them, and posed again with what they say::

    graph ─► offer_cuts ──► Problem ─► derive_layouts ─► Problem ─────► join ─────────► solve ────► Candidate
             cuts that      whom to    layouts that      with these,    the same, with  layouts     written down
             views ask for  ask        neighbors want    operators      neighbors as    and a       as a plan when
                                                         apart          one block       bound       it is asked for

One call does that for each graph of these that it comes to; each row is later than those above it::

    graph                            asked, then solved                    always                        `planner`
    the same, equal operators apart  asked, then solved                    where that may pay            `planner`
    graph, cuts its expansions want  one problem: rules expansions out     if some may lie by phase      `expanding`
    graph expanded by phase          one problem, near the best layouts    if some may lie by phase      `expanding`
    graph with likely expansions     asked, then solved                    if the bound expands some     `expanding`
    graph and all that are open      one joint problem, asked first        if any are open               `expanding`
    each variant that is tried       asked, then solved                    if the joint problem says so  `expanding`
    the best one's graph as chosen   a layout for each variable            over split axes, in blocks    `writing`
    the best one's graph, in blocks  asked, then solved                    if a cap is not kept          `by_memory`
    graph without split axes         asked, then solved, operators apart   if a cap is not kept          `by_memory`

What these have in common is `Known`, one object of a call: facts and tables by structure, so that an operator or a
tensor that stands in two problems as it does in one is priced once. Variables, reads, and the tables that layouts of
neighbors widen are made anew in each.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from math import inf

from msgspec import Struct
from msgspec.structs import replace

from tapestry_plan.ir import Graph
from tapestry_plan.rewrite import fix_bits, split_axes
from tapestry_plan.search.arguments import (
    Options,
    check_least,
    check_names,
    check_same_bits,
    parse_expand,
    parse_tie,
)
from tapestry_plan.search.caps.by_memory import Posed, choose_space, keeps
from tapestry_plan.search.neighbors.fusing import join_neighbors
from tapestry_plan.search.neighbors.splitting import bound_with_splits, count_least
from tapestry_plan.search.prices.added import add_offered, derive_layouts, derive_splits, offer_asked, offer_cuts
from tapestry_plan.search.prices.costs import TICKS_PER_SECOND, Asked, Problem
from tapestry_plan.search.progress import Meter
from tapestry_plan.search.solving import KeptLayouts, Solved, find_layouts, solve
from tapestry_plan.search.writing import Candidate, name_split
from tapestry_plan.steps import Expansions, Layout, Mesh


class Request(Struct, frozen=True, kw_only=True):
    """What one call of `plan` asks of every graph that it looks at, checked."""

    wanted: Asked
    """The arguments of a problem, with the facts that all problems of the call share."""
    expand: bool | tuple[str, ...]
    fuse: bool
    kept: tuple[str, ...]
    """Tensors whose places are asked for, which nothing else may stand for."""
    caps: Sequence[int] | None
    fan_in: int | None
    seed: int
    stop: float
    """Of the monotonic clock: from then on what is there is given."""

    @classmethod
    def read(
        cls, graph: Graph, mesh: Mesh, options: Options, memory_nbytes: int | None, meter: Meter
    ) -> tuple[Request, Graph]:
        """What options of a graph ask for, and the graph that is planned: that with the same bits, if these are."""
        began = time.monotonic()
        layout, fix, forbid = options.layout or {}, options.fix or {}, options.forbid or {}
        seconds, fan_in = options.time_limit_seconds, options.fan_in
        check_least("time_limit_seconds", seconds, "seconds >= 0, or None", 0)
        check_least("memory_nbytes", memory_nbytes, "a number of bytes, an integer >= 0", 0)
        check_least("seed", options.seed, "an integer >= 0", 0)
        check_least("fan_in", fan_in, "an integer >= 2, or None", 2)
        check_names(graph, layout, fix, forbid)
        tie = parse_tie(graph, mesh, options.tie, layout)
        names = parse_expand(graph, options.expand)
        caps = mesh.limit_memory(memory_nbytes)
        graph.validate()
        if options.same_bits:
            names, fan_in = check_same_bits(options.expand, fan_in)
            graph = fix_bits(graph)
        space = options.space or choose_space(mesh)
        stop = inf if seconds is None else began + seconds
        request = cls(
            wanted=Asked(
                mesh, options.placement, layout, fix, forbid, space, tie, fan_in=fan_in, meter=meter, stop=stop
            ),
            expand=names,
            fuse=options.fuse,
            kept=tuple(graph.outputs[label] for label in (*layout, *tie) if label in graph.outputs),
            caps=caps,
            fan_in=fan_in,
            seed=options.seed,
            stop=stop,
        )
        return request, graph

    @property
    def is_late(self) -> bool:
        """Whether the time is over."""
        return time.monotonic() >= self.stop

    @property
    def is_split(self) -> bool:
        """Whether layouts over more index axes are compared."""
        return self.expand is True or (self.expand is not False and split_axes.name in self.expand)

    @property
    def fixed(self) -> set[str]:
        """Operators of which a sharding is asked for, or forbidden."""
        return {*self.wanted.fix, *self.wanted.forbid}

    def list_pinned(self, graph: Graph) -> set[str]:
        """Operators that stay as they are: also those whose results' places are asked for."""
        return self.fixed | list_makers(graph, self.kept)

    def join(self, problem: Problem) -> Problem:
        """The problem where neighbors may be in one block, if that is asked for."""
        return join_neighbors(problem, self.list_pinned(problem.graph)) if self.fuse else problem

    def is_better(self, one: Candidate, than: Candidate) -> bool:
        """Whether layouts are better than others, which they are not where they alone are above a cap."""
        if self.caps is not None and not keeps(one.write(), self.caps) and keeps(than.write(), self.caps):
            return False
        if one.cost != than.cost:
            return one.cost < than.cost
        return sum(one.write().nbytes_placed) < sum(than.write().nbytes_placed)


def solve_graph(request: Request, graph: Graph, known: KeptLayouts | None = None) -> Candidate:
    """The best layouts of one graph as it is.

    What is known of a graph like it may say which layouts are in plans of interest; the bound is of these then.
    """
    was_late = request.is_late
    offered = (
        offer_cuts(graph, request.wanted.mesh.size, request.list_pinned(graph), known=request.wanted.known)
        if request.is_split and not was_late
        else {}
    )
    problem = Problem(graph, replace(request.wanted, derived=offered))
    derived = {} if was_late else _derive(problem, request.fixed, request.stop)
    if derived or offered:
        problem = Problem(graph, replace(request.wanted, derived={**derived, **add_offered(offered, derived)}))
    found = solve_problem(request, problem, known)
    if request.is_late:  # not all layouts of the space may have been offered
        found = found.lower_bound(count_least(found.blocks) / TICKS_PER_SECOND)
    if request.is_split and was_late:
        late = derive_splits(graph, request.wanted.mesh.size).items()
        left_out = tuple(Expansions(name, (), left_out=tuple(map(name_split, each))) for name, each in late)
        found = replace(found, after=left_out)
    return found


def solve_problem(request: Request, problem: Problem, known: KeptLayouts | None = None) -> Candidate:
    """The best layouts of a problem, neighbors in one block where that is asked for."""
    blocks = request.join(problem)
    solved = find_layouts(blocks, seed=request.seed, stop=request.stop, known=known)
    found = Candidate.of(problem, blocks, solved, request.fan_in)
    if request.is_split and not request.is_late:
        ticks = bound_with_splits(blocks, min(solved.ticks, solved.bound_ticks), request.stop)
        found = found.lower_bound(ticks / TICKS_PER_SECOND)
    return found


def pose_plain(request: Request, planned: Candidate, graph: Graph) -> Posed:
    """The problem of a graph under a cap: without layouts over split axes, its operators and its blocks apart."""
    asked = planned.problem.asked
    if graph is not planned.problem.graph or request.is_split:
        scout = Problem(graph, request.wanted)
        derived = {} if request.is_late else _derive(scout, request.fixed, request.stop)
        asked = replace(request.wanted, derived=derived)
    problem = Problem(graph, replace(asked, apart=True))

    def find() -> Solved:
        return solve(problem, seed=request.seed, stop=request.stop)

    return Posed(problem, request.join(problem), find)


def _derive(problem: Problem, pinned: Collection[str], stop: float) -> dict[str, tuple[Layout, ...]]:
    """The layouts that neighbors, and places that are asked for, say beyond those that operators have."""
    found, asked = derive_layouts(problem, pinned, stop), offer_asked(problem, pinned)
    return {name: tuple(dict.fromkeys((*found.get(name, ()), *asked.get(name, ())))) for name in {**found, **asked}}


def list_makers(graph: Graph, tensors: Collection[str]) -> set[str]:
    """The operators that make some tensors."""
    return {node.name for node in graph.nodes.values() if not set(node.outputs).isdisjoint(tensors)}
