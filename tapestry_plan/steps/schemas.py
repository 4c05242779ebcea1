"""JSON Schemas of the documents of graphs, plans and programs, made of the types that these are read into."""

from __future__ import annotations

from functools import reduce
from operator import or_
from types import GenericAlias
from typing import Any, Literal, get_args, get_type_hints

import msgspec
from msgspec import Struct

from tapestry_plan.ir import GRAPH_FORMAT, GraphDocument
from tapestry_plan.steps.layouts.merging import MergeOrder
from tapestry_plan.steps.plan_document import PLAN_FORMAT, UNWRITTEN
from tapestry_plan.steps.programs import PROGRAM_FORMAT, Program
from tapestry_plan.steps.shard_plan import ShardPlan
from tapestry_plan.steps.step import Buffer, Collective, Compute, Copy, GroupedStep, Output, Step, Written
from tapestry_sets.limits import check_arguments
from tapestry_sets.regions import Region

DocumentKind = Literal["graph", "plan", "program"]
Rates = tuple[float, ...]
"""Of a link or a device: its fields, in order."""


class MeshEntry(Struct):
    """A mesh: one link and device for all, or lists of them; an axis' name stands for its link."""

    shape: list[int]
    names: list[str]
    link: list[float | str | list[float]]
    device: list[float | int | list[float | int | None] | None]
    host: Rates


class LotEntry(Struct):
    """Boxes of a tensor, each [start, shape], that a device has."""

    boxes: list[tuple[list[int], list[int]]]
    extents: list[int]


class LayoutEntry(Struct):
    """A cut of an index space: the parts along each axis, and the part of each device, null for an idle one."""

    extents: list[int]
    parts: list[int]
    cells: list[list[int] | None]
    sizes: list[list[int]]
    lots: list[LotEntry | None]


class PlacesEntry(Struct):
    """What has a layout, by its number among the layouts."""

    source: dict[str, int]
    operator: dict[str, int]
    landing: dict[str, int]
    output: dict[str, int]


class ChoicesEntry(Struct):
    """All that a plan decides."""

    layouts: list[LayoutEntry]
    places: PlacesEntry
    asked_outputs: list[str]
    fan_in: int | None
    merged: dict[str, MergeOrder]
    memory_nbytes: list[int] | None
    spill_nbytes: list[int] | None


class StageEntry(Struct):
    """The costs of one operator; for numbers by device may stand the number of an earlier stage that has the same."""

    node: str
    op: str
    sharding: dict[str, int]
    nbytes_received: list[int] | int
    nbytes_shared: int
    flop: list[float] | int
    seconds: float
    work_seconds: list[float] | int


class PieceEntry(Struct, forbid_unknown_fields=True):
    """A part of a view: where its guards hold it reads a source through a chain of maps, or is of one value."""

    source: int
    guards: list[dict[str, Any]]
    map: dict[str, Any]
    fill: float = 0.0


def _list_entries(kinds: Any) -> Any:
    """A list of steps, as documents have them."""
    read: dict[type[Copy | Compute], dict[str, Any]] = {
        Copy: {"piece": PieceEntry | None},
        Compute: {"pieces": list[PieceEntry | None]},
    }
    written = {
        kind: msgspec.defstruct(
            kind.__name__,
            [*{**get_type_hints(kind), **mine}.items()],
            namespace={"__doc__": kind.__doc__},
            tag=kind.__struct_config__.tag,
        )
        for kind, mine in read.items()
    }
    union = reduce(or_, (written.get(kind, kind) for kind in get_args(kinds) if kind is not Collective))
    if Collective in get_args(kinds):
        fields = {**get_type_hints(Collective), "steps": GenericAlias(list, union)}
        told = {"__doc__": Collective.__doc__}
        union |= msgspec.defstruct("Collective", [*fields.items()], namespace=told, tag="collective")
    return GenericAlias(list, union)


INTEGERS = {"type": "array", "items": {"type": "integer"}}
REGION: dict[str, Any] = {
    "title": "Region",
    "description": "A product of axis sets in a box, each a list of stripes [on, off, phase].",
    "type": "object",
    "properties": {
        "start": INTEGERS,
        "shape": INTEGERS,
        "setts": {"type": "array", "items": {"type": "array", "items": {**INTEGERS, "minItems": 3, "maxItems": 3}}},
    },
    "required": ["setts", "shape", "start"],
    "additionalProperties": False,
}
NOT_FINITE = {
    "description": "A number that JSON does not have.",
    "type": "object",
    "properties": {"float": {"enum": ["inf", "-inf", "nan"]}},
    "required": ["float"],
    "additionalProperties": False,
}
WRITTEN_AS: dict[type, dict[str, Any]] = {
    Program: {"steps": _list_entries(GroupedStep)},
    ShardPlan: {
        "graph": GraphDocument,
        "mesh": MeshEntry,
        "choices": ChoicesEntry,
        "stages": list[StageEntry],
        "nbytes_by_link": list[tuple[int, int, int]],
        "explicit": None
        | msgspec.defstruct(
            "Written",
            [("buffers", list[Buffer]), ("steps", _list_entries(Step)), ("outputs", list[Output])],
            namespace={"__doc__": Written.__doc__},
        ),
    },
}
"""Fields that documents have in another form."""


@check_arguments
def describe_document(kind: DocumentKind) -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of a document: what `to_json` of a graph, plan or program writes.

    It tells form alone: a document that fits is refused yet where it does not hold together, or was edited.

    Parameters
    ----------
    kind : str
        "graph", "plan" or "program".

    Examples
    --------
    >>> describe_document("program")["properties"]["format"]
    {'enum': ['tapestry-program/3']}
    """
    graph = describe_type(GraphDocument)
    if kind == "graph":
        graph["properties"]["format"] = {"enum": [GRAPH_FORMAT]}
        return graph
    of, form = {"plan": (ShardPlan, PLAN_FORMAT), "program": (Program, PROGRAM_FORMAT)}[kind]
    fields = {**get_type_hints(of), **WRITTEN_AS[of]}
    fields = {name: kind for name, kind in fields.items() if name not in UNWRITTEN}
    whole = {"format": Literal[form], **fields, "sha256": str}
    made = describe_type(
        msgspec.defstruct(f"{of.__name__}Document", [*whole.items()], namespace={"__doc__": of.__doc__})
    )
    for entry in (*made["$defs"].values(), made):
        if "properties" in entry and "additionalProperties" not in entry:  # others said it already
            entry |= {"required": sorted(entry["properties"]), "additionalProperties": False}
    return made


def describe_type(kind: Any) -> dict[str, Any]:
    """The schema of a struct, itself above and the types in it below.

    Examples
    --------
    >>> describe_type(LotEntry)["required"]
    ['boxes', 'extents']
    """
    made = msgspec.json.schema(kind, schema_hook=_describe_sets)
    top = made["$defs"].pop(made.pop("$ref").rpartition("/")[2])
    dialect = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    found: dict[str, Any] = _tidy({**dialect, **top, "$defs": made["$defs"]})
    return found


def _describe_sets(kind: type) -> dict[str, Any]:
    """The schema of what the sets write themselves."""
    assert kind is Region, f"documents have no {kind}"
    return REGION


def _tidy(schema: Any) -> Any:
    """A schema that says what things are in a sentence, and in which numbers may be such as JSON does not have."""
    if isinstance(schema, list):
        return [_tidy(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("type") == "number":
        return {"anyOf": [schema, NOT_FINITE]}
    made = {name: _tidy(value) for name, value in schema.items()}
    if isinstance(text := made.get("description"), str):
        made["description"] = " ".join(text.partition("\n\n")[0].split())
    return made
