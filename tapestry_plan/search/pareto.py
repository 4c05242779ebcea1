"""Time against memory: the best plans of several caps."""

from __future__ import annotations

from msgspec.structs import replace

from tapestry_plan.ir import Graph
from tapestry_plan.search import tuning
from tapestry_plan.search.arguments import MENDS, ParetoOptions, list_asked, with_options
from tapestry_plan.search.garbage import put_off_full_collections
from tapestry_plan.search.planner import prepare
from tapestry_plan.search.progress import Meter
from tapestry_plan.steps import InfeasiblePlan, Mesh, NotFound, ShardPlan
from tapestry_sets.limits import check_arguments, quote


@check_arguments(**MENDS, points="give a number of plans")
@with_options(ParetoOptions)
def pareto(graph: Graph, mesh: Mesh, options: ParetoOptions) -> tuple[ShardPlan, ...]:
    """Plans from the fastest one to one in the least memory that is found: what less memory costs in time.

    Parameters
    ----------
    graph : Graph
    mesh : Mesh
    points : int
        How many plans at most, 1 to 100: fewer where two caps have the same best plan. The caps are a geometric
        sequence between the two ends.
    seed, time_limit_seconds, placement, layout, fix, forbid, tie, fan_in, expand, space, same_bits, unify, fuse
        As in `plan`; the time limit is of the whole call.
    progress : callable, optional
        As in `plan`; the last fifth goes from plan to plan.

    Returns
    -------
    tuple of ShardPlan
        Each takes less memory (the largest of `peak_nbytes`) and more time than the one before. Each is the best plan
        that was found in its memory: `bound` and `gap` say what is proved of plans that need no more than its cap, for
        all but the first of the graphs that `plan` searches under a cap.

    Raises
    ------
    InfeasiblePlan, TypeError, ValueError
        As `plan`.

    Examples
    --------
    Weights on each device, or split among all of them:

    >>> from tapestry_plan import (Device, Graph, Link, Mesh, ops, pareto)
    >>> g = Graph()
    >>> h = g.input("x", (16, 64)) @ g.input("w", (64, 256))
    >>> _ = g.output(ops.relu(h) @ g.input("v", (256, 64)))
    >>> plans = pareto(g, Mesh((4,), link=Link(1e-8, 1e9), device=Device(1e9, 1e10)), points=3)
    >>> [max(p.peak_nbytes) for p in plans], [p.gap for p in plans]
    ([136192, 71680, 40960], [0.0, 0.0, 0.0])
    """
    points = options.points
    if not 1 <= points <= tuning.MAX_POINTS:
        raise ValueError(f"pareto: points is {quote(points)}; it is an integer from 1 to {tuning.MAX_POINTS}")
    meter = Meter(options.progress, len(graph.nodes), has_caps=True)
    with put_off_full_collections():
        found = _list_plans(graph, mesh, options, meter)
    meter.finish()
    return _leave_out_worse(found)


def _list_plans(graph: Graph, mesh: Mesh, options: ParetoOptions, meter: Meter) -> list[ShardPlan]:
    """The best plans of caps from the fastest plan's memory down, those of equal plans once."""
    points = options.points
    planned = prepare(graph, mesh, options, meter=meter)
    meter.enter("memory")
    found = [replace(planned.within(mesh.limit_memory()), asked=list_asked(options))]
    most = max(found[0].peak_nbytes)
    least = planned.find_least() if points > 1 and most else most
    for number in range(1, points):
        meter.tell("memory", number, points)
        cap = round(most * (least / most) ** (number / (points - 1))) if most else 0
        if max(found[-1].peak_nbytes) <= cap:  # the best plan of this cap is there
            continue
        try:
            within = planned.within(mesh.limit_memory(cap))
        except (InfeasiblePlan, NotFound):
            continue
        found.append(replace(within, asked={**list_asked(options), "memory_nbytes": cap}))
    return found


def _leave_out_worse(plans: list[ShardPlan]) -> tuple[ShardPlan, ...]:
    """Plans of less and less memory without those that take no less time than one in less memory."""
    kept: list[ShardPlan] = []
    for plan in reversed(plans):
        if not kept or plan.seconds < kept[-1].seconds:
            kept.append(plan)
    return tuple(reversed(kept))
