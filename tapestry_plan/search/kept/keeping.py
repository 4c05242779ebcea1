"""Plans that keep what another plan decided, but for some operators.

::

    plan p of graph g ─► its own graph: equal ones unified, expanded, in blocks ─┐
    p's choices, some operators open (`comparing`) ─► the best layouts of these ─┴─► written down as any plan
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace as with_data
from itertools import chain
from typing import Any

from msgspec.structs import replace

from tapestry_plan.ir import Graph, NotApplicable, Stored, same_graph
from tapestry_plan.rewrite import Draft, fix_bits
from tapestry_plan.search.arguments import CapOptions, check_least
from tapestry_plan.search.caps.by_memory import keeps
from tapestry_plan.search.kept.comparing import Comparison
from tapestry_plan.search.prices.added import KeptProblem
from tapestry_plan.search.progress import Meter
from tapestry_plan.search.writing import write_plan
from tapestry_plan.steps import (
    Alternative,
    InfeasiblePlan,
    Layout,
    MemoryNeed,
    Mesh,
    NotFound,
    OnDemand,
    ShardPlan,
    check_choices,
    fill_weighing,
    least_memory,
    parse_layout,
    spill,
    tell_standing,
)
from tapestry_sets.limits import list_names, put_item, quote

BESIDE = ("like", "fix", "memory_nbytes", "seed", "time_limit_seconds", "progress")
"""What may be asked for beside a plan whose choices are kept; of these the seed and the limit are of no search here."""


def keep_plan(graph: Graph, mesh: Mesh, options: CapOptions) -> ShardPlan:
    """The plan that keeps all choices of `options.like` but those of the operators in `options.fix`.

    Raises
    ------
    NotFound
        Where the plan does not keep memory caps; it has the plan.
    ValueError
        For a plan of another graph or mesh, or with steps that somebody wrote, operators that it does not have, and
        what is asked for beside it.
    """
    kept, fix = options.like, options.fix or {}
    assert kept is not None, "the caller has one"
    check_least("memory_nbytes", options.memory_nbytes, "a number of bytes, an integer >= 0", 0)
    _check_alone(options)
    _check_mesh(kept, mesh)
    if kept.explicit is not None:
        raise ValueError("plan: like is a plan whose steps somebody wrote, which no choices say; give one without them")
    planned = _find_graph(graph, kept)
    check_choices(planned, mesh, kept.choices)
    wanted, exact = _read_fix(planned, kept, fix)
    meter = Meter(options.progress, len(planned.nodes))
    problem, choice = _compare(planned, kept).settle(wanted, exact)
    meter.enter("steps")
    told = "plan: the choices of like" + " with fix" * bool(fix)
    made = write_kept(kept, problem, choice, mesh.limit_memory(options.memory_nbytes), kept.bound, told)
    meter.finish()
    return made


def write_kept(
    kept: ShardPlan,
    problem: KeptProblem,
    choice: tuple[int, ...],
    asked: tuple[int, ...] | None,
    bound: float,
    told: str = "plan: the choices of like",
    instead: str = "plan without like",
) -> ShardPlan:
    """The plan of some layouts that keeps what else another plan decided, with what is proved of any in seconds.

    Raises
    ------
    NotFound
        Where it does not keep memory caps; it has the plan.
    """
    made = _lay_kept(kept, asked, problem, choice)
    if kept.choices.spill_nbytes is not None:
        made = spill(made, kept.choices.spill_nbytes)
    made = replace(
        made,
        expansions=kept.expansions,
        fused=kept.fused,
        unified=kept.unified,
        recomputed=kept.recomputed,
        made_by=kept.made_by,
        asked=kept.asked,
        bound=min(made.seconds, bound),
        limit_nbytes=kept.limit_nbytes if asked is None and keeps(made, kept.limit_nbytes) else asked,
    )
    if asked is not None and not keeps(made, asked):
        needed = max(made.peak_nbytes)
        raise NotFound(
            f"{told} need {needed:,} bytes on a device, and "
            f"{quote(list(asked)) if len(set(asked)) > 1 else f'{asked[0]:,}'} may be had; let idle buffers wait in "
            f"host memory, as spill(error.fastest, memory_nbytes) does, or {instead}",
            made,
            0,
            needed,
        )
    return made


def _lay_kept(kept: ShardPlan, asked: Sequence[int] | None, problem: KeptProblem, choice: Sequence[int]) -> ShardPlan:
    """The plan of some choices in arenas like those of the plan that is kept, or in such as are asked for, or in any.

    The first that keeps the memory; where none does that which takes the least, or of no memory that is asked for any.
    """
    fan_in, caps = kept.choices.fan_in, kept.choices.memory_nbytes
    ticks, tried = problem.count_cost(choice)[0], list[ShardPlan]()
    for room in dict.fromkeys((caps, None if asked is None else tuple(asked), None)):
        if room is None and caps is not None:  # blocks lie apart yet, as in the other plan, and as alternatives tell
            room = tried[0].peak_nbytes
        tried.append(write_plan(problem, choice, ticks, fan_in, room))
        if kept.choices.spill_nbytes is not None or keeps(tried[-1], asked if asked is not None else caps):
            return tried[-1]
    return tried[-1] if asked is None else min(tried, key=lambda made: max(made.peak_nbytes))


def weigh_alternatives(plan: ShardPlan, node: str, some: Sequence[Alternative]) -> tuple[MemoryNeed, ...]:
    """What alternatives of an operator take of the memory to which its plan is limited, as these are listed.

    It is that of ``plan(graph, mesh, like=p, fix={node: one.sharding}, memory_nbytes=…)`` with these limits.

    Parameters
    ----------
    plan : ShardPlan
        With limits.
    node : str
        An operator of its graph.
    some : sequence of Alternative
        Of this operator.
    """
    limits, found = plan.limit_nbytes, list[MemoryNeed]()
    assert limits is not None, "the caller has some"
    for one in some:
        if one.is_chosen:
            peaks: Sequence[int] = plan.peak_nbytes
        else:
            wanted, exact = _read_fix(plan.graph, plan, {node: one.sharding})
            settled = _compare(plan.graph, plan).settle(wanted, exact)
            made = _lay_kept(plan, limits, *settled)
            room = plan.choices.spill_nbytes
            try:
                peaks = (made if room is None else spill(made, room)).peak_nbytes
            except InfeasiblePlan:  # on some device one step needs more, whatever waits elsewhere
                peaks = tuple(map(min, made.peak_nbytes, map(max, limits, least_memory(made))))
        over = max(0, *(peak - limit for peak, limit in zip(peaks, limits, strict=True)))
        found.append(MemoryNeed(max(peaks), over))
    return tuple(found)


fill_weighing(weigh_alternatives)


def _compare(planned: Graph, kept: ShardPlan) -> Comparison:
    """What says the plan's alternatives, with the tables that it has already."""
    others = kept.alternatives
    if planned is kept.graph and isinstance(others, OnDemand) and isinstance(others.make, Comparison):
        return others.make
    return Comparison(planned, kept.mesh, kept.choices, kept.space)


def _check_alone(options: CapOptions) -> None:
    """Nothing is asked for that the plan's choices say."""
    given = [
        name
        for name, default in zip(options.__struct_fields__, options.__struct_defaults__, strict=True)
        if name not in BESIDE and getattr(options, name) != default
    ]
    if given:
        raise ValueError(
            f"plan: {', '.join(given)} cannot be given with like, whose choices say that already; leave "
            f"{'it' if len(given) == 1 else 'them'} out, or plan without like"
        )


def _check_mesh(kept: ShardPlan, mesh: Mesh) -> None:
    for name in Mesh.__struct_fields__:
        here, there = getattr(mesh, name), getattr(kept.mesh, name)
        if here != there:
            raise ValueError(
                f"plan: like is a plan of another mesh, whose {name} is {quote(there)}, not {quote(here)}; give its "
                "own mesh, like.mesh, or plan without like"
            )


def _find_graph(graph: Graph, kept: ShardPlan) -> Graph:
    """The plan's own graph, which the graph given must be or lead to, with the values of its constants."""
    found = next((one for one in _list_rewritten(graph, kept) if _is_same(one, kept.graph)), None)
    if found is None:
        raise ValueError(f"plan: like is a plan of another graph; {_tell_difference(graph, kept)}")
    data = {name: each for name, each in found.stored.items() if each.data is not None or each.path is not None}
    missing = [
        name
        for name, each in kept.graph.stored.items()
        if each.kind == "constant" and each.data is None and name in data
        if data[name].data is not None or each.path is None
    ]
    if not missing:
        return kept.graph
    made = Draft(kept.graph).done()
    for name in missing:
        put_item(made.stored, name, _fill(made.stored[name], data[name]))
    return made


def _fill(one: Stored, other: Stored) -> Stored:
    return with_data(one, data=other.data, path=other.path, sha256=one.sha256 or other.sha256)


def _list_rewritten(graph: Graph, kept: ShardPlan) -> Iterator[Graph]:
    """The graph as it is, and as the plan's derivation rewrites it, one after the other."""
    yield graph
    for same_bits in (False, True):
        try:
            yield kept.derivation.replay(fix_bits(graph) if same_bits else graph)
        except NotApplicable:  # a graph that does not have what was rewritten
            continue


def _is_same(one: Graph, other: Graph) -> bool:
    """Whether two graphs are the same, by the same names."""
    if one is other:
        return True
    return one.nodes.keys() == other.nodes.keys() and same_graph(one, other)


def _tell_difference(graph: Graph, kept: ShardPlan) -> str:
    """Something that the plan's graph has, or the one given, and the other one has not; and what to do."""
    mine = {**dict.fromkeys(graph.nodes), **dict.fromkeys(graph.stored)}
    theirs = {
        **dict.fromkeys(chain(kept.graph.nodes, kept._lookups.blocks, kept.unified, kept.expanded)),
        **dict.fromkeys(kept.graph.stored),
    }
    mend = "give the graph that it was made of, or like.graph"
    made = {node for entry in kept.expansions for node in entry.nodes} | kept.recomputed.keys()
    for name in kept.graph.nodes:
        if name not in mine and name not in made:
            return f"it has an operator {quote(name)}, and the graph given has not: {mend}"
    for name in graph.nodes:
        if name not in theirs:
            return f"it has no operator {quote(name)}, which the graph given has: {mend}"
    for name, label in ((name, each.kind) for name, each in graph.stored.items() if each.kind != "result"):
        there = kept.graph.stored.get(name)
        here = graph.stored[name]
        if there is not None and (there.shape, there.dtype) != (here.shape, here.dtype):
            return (
                f"its {label} {quote(name)} is {there.dtype} of shape {quote(there.shape)}, not {here.dtype} of shape "
                f"{quote(here.shape)}: {mend}"
            )
    return f"its operators, their attributes or its constants differ: {mend}"


def _read_fix(
    graph: Graph, kept: ShardPlan, fix: Mapping[str, Mapping[str, Any]]
) -> tuple[dict[str, Layout], set[str]]:
    """The layouts that operators are to have; and of which of them they are said by axes of the mesh."""
    wanted, exact = dict[str, Layout](), set[str]()
    for name, sharding in fix.items():
        if name not in graph.nodes:
            stands = tell_standing(kept, name) or f"; {list_names(graph.nodes, name, 'operators')}"
            raise ValueError(f"fix: the plan that like gives has no operator {quote(name)}{stands}")
        axes = graph.signature(name).axes
        wanted[name] = parse_layout(axes, sharding, kept.mesh, f"fix[{quote(name)}]")
        if graph.ops[graph.nodes[name].op].opaque:
            wanted[name] = wanted[name].seat_first()
        if any(not hasattr(parts, "__index__") for parts in sharding.values()):
            exact.add(name)
    return wanted, exact
