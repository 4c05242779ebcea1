"""The JSON document of a plan: how each of its fields is written and read, and whether they hold together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

from msgspec.structs import asdict, replace

from tapestry_plan.ir import Graph, Op
from tapestry_plan.steps import showing
from tapestry_plan.steps.asking.alternatives import OnDemand
from tapestry_plan.steps.choices import check_choices
from tapestry_plan.steps.documents import (
    read_all,
    read_alternative,
    read_choices,
    read_each,
    read_list,
    read_mesh,
    read_named,
    read_written,
    require_fields,
    to_plain,
    unseal,
)
from tapestry_plan.steps.misfits import find_contradiction, find_misfit
from tapestry_plan.steps.stages import Expansions, Fused, Stage, fill_columns, write_stages
from tapestry_plan.steps.step import Step
from tapestry_sets.limits import quote

if TYPE_CHECKING:
    from tapestry_plan.steps.shard_plan import ShardPlan

PLAN_FORMAT = "tapestry-plan/8"
P = TypeVar("P", bound="ShardPlan")

READERS: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(
        ("nbytes_received", "nbytes_placed", "peak_nbytes", "flop", "nbytes_spilled", "nbytes_local"), read_list
    ),
    "limit_nbytes": lambda entry: None if entry is None else read_list(entry),
    "mesh": read_mesh,
    "choices": read_choices,
    "explicit": lambda entry: None if entry is None else read_written(entry, Step),
    "stages": lambda entries: read_each(Stage, fill_columns(entries)),
    "nbytes_by_link": lambda links: {(a, b): nbytes for a, b, nbytes in links},
    "alternatives": lambda all_: {node: read_all(read_alternative, entries) for node, entries in all_.items()},
    "expansions": partial(read_each, Expansions),
    "fused": partial(read_each, Fused),
}
"""The fields of a plan that are more than plain values in its document, with what reads each."""
UNWRITTEN = ("asked",)
"""The fields that no document has."""


def write_plan(plan: ShardPlan) -> dict[str, Any]:
    """A plan as plain data."""
    others = plan.alternatives
    own = {
        "graph": plan.graph.to_dict(),
        "stages": write_stages(plan.stages),
        "nbytes_by_link": [(*link, nbytes) for link, nbytes in plan.nbytes_by_link.items()],
        "alternatives": others.made if isinstance(others, OnDemand) else others,
    }
    fields = {name: value for name, value in asdict(plan).items() if name not in UNWRITTEN}
    return cast("dict[str, Any]", to_plain({"format": PLAN_FORMAT, **fields, **own}))


def read_plan(text: str | bytes, cls: type[P], ops: Mapping[str, Op] | None) -> P:
    """A plan from its sealed document; see `ShardPlan.from_json`."""
    anew = "make the plan again: tapestry plan MODEL --json"
    return unseal(text, "plan document", PLAN_FORMAT, anew, partial(_read_fields, cls, ops))


def _read_fields(cls: type[P], ops: Mapping[str, Op] | None, entry: dict[str, Any]) -> P:
    if found := entry.keys() & {*UNWRITTEN}:
        raise ValueError(f"a plan has no field {quote(min(found))}")
    require_fields(entry, {*cls.__struct_fields__}.difference(UNWRITTEN))
    graph = Graph.from_dict(entry["graph"], ops)
    own = {name: value for name, value in entry.items() if name != "graph"}
    made = cls(graph, **read_named(READERS, own))
    wrong = find_misfit(made, cls, "$")
    if wrong is not None:
        raise ValueError(wrong)
    _check_fit(made)
    contradiction = find_contradiction(made)
    if contradiction is not None:
        raise ValueError(contradiction)
    compare = showing.compare_choices(made.graph, made.mesh, made.choices, made.space)
    return replace(made, alternatives=OnDemand(made.graph.nodes, compare, made.alternatives))


def _check_fit(plan: ShardPlan) -> None:
    try:
        check_choices(plan.graph, plan.mesh, plan.choices)
    except ValueError as error:
        raise ValueError(f"{error} - at `$.choices`") from None
