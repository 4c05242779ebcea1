"""Where a plan has an operator: in which block, and in which expansions, each looked up and not searched for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from tapestry_plan.steps import tuning
from tapestry_plan.steps.layouts.layout import tell_sharding
from tapestry_sets.limits import quote


class Lookups(Struct, frozen=True):
    """The blocks and expansions of a plan by operator.

    Parameters
    ----------
    readers : dict of str to str
        Of each operator inside of a block the one that reads its result there.
    blocks : dict of str to str
        Of each operator inside of a block the block.
    inside : dict of str to tuple of str
        Of each block the operators inside, in the order in which they run.
    expansions : dict of str to Expansions
        What was compared with each operator.
    made_for : dict of str to tuple of Expansions
        Of each operator what it stands for, with others.
    """

    readers: dict[str, str]
    blocks: dict[str, str]
    inside: dict[str, tuple[str, ...]]
    expansions: dict[str, Any]
    made_for: dict[str, tuple[Any, ...]]

    @classmethod
    def of(cls, fused: Sequence[Any], expansions: Sequence[Any]) -> Lookups:
        """Those of a plan's `fused` and `expansions`."""
        blocks, inside, made_for = dict[str, str](), dict[str, list[str]](), dict[str, list[Any]]()
        for pair in reversed(fused):
            blocks[pair.first] = blocks.get(pair.second, pair.second)
            inside.setdefault(blocks[pair.first], []).append(pair.first)
        for entry in expansions:
            for node in dict.fromkeys(entry.nodes):
                made_for.setdefault(node, []).append(entry)
        return cls(
            {pair.first: pair.second for pair in fused},
            blocks,
            {block: tuple(reversed(mine)) for block, mine in inside.items()},
            {entry.node: entry for entry in expansions},
            {node: tuple(mine) for node, mine in made_for.items()},
        )


def tell_cut(plan: Any, node: str) -> str:
    """How an operator of a plan is cut, and on which devices it is whole; nothing of a stage without an operator."""
    known: Lookups = plan._lookups
    layout = plan.choices.layouts.get(("operator", known.blocks.get(node, node)))
    if layout is None:
        return ""
    on = [device for device, cell in enumerate(layout.cells) if cell is not None]
    return tell_sharding(plan.sharding[node], on, plan.mesh.size)


def has_steps(plan: Any) -> bool:
    """Whether a plan's steps may be asked for: they are written, or few enough that it takes seconds."""
    is_written = "written" in plan.__dict__ or plan.explicit is not None
    return is_written or len(plan.stages) * plan.mesh.size <= tuning.TOLD_SHARDS


def tell_left_out(plan: Any, what: str, argument: str, name: str) -> str:
    """That something is not said of a plan whose steps are many and not written, and how to get it."""
    return (
        f"left out, as it takes the steps of all {plan.mesh.size:,} devices: {what}; "
        f"plan.transfers({argument}={quote(name)}) writes them, and explain says it then"
    )
