"""Why an operator of a plan is sharded as it is, in words made from the plan's numbers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tapestry_plan.steps import tuning
from tapestry_plan.steps.inside import tell_block
from tapestry_plan.steps.layouts.layout import tell_sharding
from tapestry_plan.steps.layouts.mesh import Space
from tapestry_plan.steps.lookups import Lookups
from tapestry_plan.steps.reasons import OperandReads, list_reads
from tapestry_sets.limits import list_names, quote


def explain(plan: Any, node: str) -> str:
    """The text of `ShardPlan.explain`."""
    same = plan.unified.get(node)
    if same is not None and node not in plan.stage and (same in plan.stage or same in plan.expanded):
        return f"{node}: the same as {same}, which is computed once and stands for both\n{explain(plan, same)}"
    known: Lookups = plan._lookups
    if node in known.blocks:
        last = known.blocks[node]
        return f"{node}: in one block with {last}, so that what is between them is not stored\n{explain(plan, last)}"
    if node in plan.expanded:
        stands = ", ".join(known.expansions[node].nodes)
        return f"{node}: expanded by {plan.expanded[node]}, which the search found better, into {stands}"
    if node not in plan.stage:
        near = list_names(plan.stage, node, "operators")
        raise ValueError(f"explain: the plan has no operator {quote(node)}; {near}")
    stage = plan.stage[node]
    others = plan.alternatives.get(node, ())  # a graph that was changed since is refused here
    lines = [
        f"{node} ({tell_block(stage.op)}): {tell_sharding(stage.sharding)}",
        f"  receives {sum(stage.nbytes_received):,} B, its devices share {stage.nbytes_shared:,} B, "
        f"{stage.seconds * 1e6:.2f} us in this plan",
        *(f"  {one}" for one in _list_reads(plan, node)),
        f"  with every other operator as it is, and {_COMPARED[plan.space]}, the graph would take:"
        if others
        else f"  (not compared with other shardings{_WHY_NOT[node in plan.alternatives]})",
    ]
    if node in known.expansions:
        lines[2:2] = _list_compared(plan, known.expansions[node])
    if inside := known.inside.get(node):
        lines[1:1] = [f"  one block of {', '.join(inside)} and {node}: what is between them is not stored"]
    lines[2:2] = [
        f"  stands, with others, for {entry.node}, expanded by {entry.chosen}" for entry in known.made_for.get(node, ())
    ]
    for other in others:
        mark = " <- chosen" if other.sharding == stage.sharding else ""
        more = f" ({(other.seconds - plan.cost) * 1e6:+.2f} us, {other.nbytes_moved - plan.nbytes_moved:+,} B)"
        lines.append(
            f"    {tell_sharding(other.sharding):24} {other.seconds * 1e6:12.2f} us "
            f"{other.nbytes_moved:14,} B moved{mark or more}"
        )
    return "\n".join(lines)


def _list_reads(plan: Any, node: str) -> Iterable[OperandReads]:
    if plan.mesh.size > tuning.TOLD_DEVICES:
        return ()
    return list_reads(plan.graph, node, plan.placement[node], plan._transfers)


def _list_compared(plan: Any, entry: Any) -> list[str]:
    """What is known of an operator's expansions, which the plan does not have."""
    lines = []
    if entry.considered:
        finding = "no better" if plan.gap == 0 else "not found better (the gap is not closed)"
        lines.append(f"  {finding} where expanded by {' or '.join(entry.considered)}, in operators that are apart")
    if entry.left_out:
        by = " or ".join(entry.left_out)
        lines.append(f"  not compared with what it is expanded by {by}: too many views to be read, or no time")
    return lines


_WHY_NOT = {True: ": its tensors have too many consumers", False: " before the plan was written to a document"}
_COMPARED: dict[Space, str] = {
    "mesh": "layouts along the mesh's axes (space 'mesh')",
    "all": "any factorization of the devices (space 'all')",
}
"""What the shardings were compared over."""
