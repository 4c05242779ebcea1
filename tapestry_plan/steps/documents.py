"""Documents: plain data of plans and programs, written and read, sealed with a SHA-256 of what they say."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar, get_args

import msgspec
from msgspec.structs import astuple

from tapestry_plan.ir import UnsupportedOp, finite, from_finite
from tapestry_plan.steps.asking.alternatives import Alternative, Cause, Sample
from tapestry_plan.steps.choices import Choices
from tapestry_plan.steps.layouts.layout import Layout, Lot, SplitAxis
from tapestry_plan.steps.layouts.mesh import Mesh
from tapestry_plan.steps.layouts.rates import Device, Link
from tapestry_plan.steps.step import Buffer, Output, OutputBlock, Within, Written
from tapestry_sets.limits import list_names, quote, read_json
from tapestry_sets.regions import Box, Region
from tapestry_sets.views import Piece, piece_from_dict, piece_to_dict, region_from_dict, region_to_dict

Value = TypeVar("Value")
KINDS = ("source", "operator", "landing", "output")
"""What has a layout."""
LAYOUT = ("extents", "parts", "cells", "sizes", "lots")
"""The fields of a layout in a document: a plan's operators are cut as they are, without digits."""
WRONG = (LookupError, TypeError, ValueError, AttributeError, RecursionError)
"""What is raised for plain data that cannot be read."""


class PlanVersionError(ValueError):
    """A plan document is of another version, was edited, or does not hold together.

    Examples
    --------
    >>> from tapestry_plan import Graph, Mesh, ShardPlan, plan
    >>> g = Graph()
    >>> _ = g.output(g.input("x", (4, 4)) + 1.0, "y")
    >>> text = plan(g, Mesh(2)).to_json()
    >>> ShardPlan.from_json(text.replace("tapestry-plan/", "tapestry-plan/0."))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    tapestry_plan.steps.documents.PlanVersionError: plan document: format is 'tapestry-plan/0...', ...
    """


def seal(body: Mapping[str, Any]) -> str:
    """A JSON document of plain data, with its own SHA-256, so that an edited one is recognized."""
    return msgspec.json.encode({**body, "sha256": _digest(body)}).decode()


def unseal(text: str | bytes, what: str, wanted: str, anew: str, read: Callable[[dict[str, Any]], Value]) -> Value:
    """What `read` makes of a sealed document of some format.

    Raises
    ------
    PlanVersionError
        For text that is not JSON, another format or version, what cannot be read, or a document that was edited.
    """
    try:
        document = read_json(text, what, wanted, anew)
    except ValueError as error:
        raise PlanVersionError(str(error)) from None
    edited = document.pop("sha256", None) != _digest(document)
    told = "its SHA-256 does not match, it was edited; make it again"
    try:
        made = read({name: value for name, value in document.items() if name != "format"})
    except WRONG as error:
        if isinstance(error, UnsupportedOp) and not edited:
            raise
        raise PlanVersionError(f"{what}: {error}{f'; {told}' if edited else ''}") from None
    if edited:
        raise PlanVersionError(f"{what}: {told}")
    return made


def _digest(body: Mapping[str, Any]) -> str:
    import hashlib  # OpenSSL, loaded with the first document, not with the package

    return hashlib.sha256(msgspec.json.encode(body, order="sorted")).hexdigest()


def to_plain(value: Any) -> Any:
    """Steps and their parts as dicts, lists and numbers."""
    match value:
        case int() | str():  # most of a plan
            return value
        case tuple() | list():
            return [to_plain(item) for item in value]
        case Choices():
            return _write_choices(value)
        case Region():
            return region_to_dict(value)
        case Piece():
            return piece_to_dict(value)
        case Box():
            return [list(value.start), list(value.shape)]
        case Link() | Device():
            return list(astuple(value))
        case msgspec.Struct():
            fields = {name: to_plain(getattr(value, name)) for name in value.__struct_fields__}
            tag = value.__struct_config__.tag
            return {"type": tag, **fields} if tag else fields
        case float():
            return finite(value)
        case Mapping():
            return {str(key): to_plain(item) for key, item in value.items()}
        case _:
            return value


class _WrongAt(ValueError):
    """What is wrong in a document, and where."""

    def __init__(self, place: str, reason: str, shown: str) -> None:
        super().__init__(f"{reason} - at `${place}`{shown}")
        self.place, self.reason, self.shown = place, reason, shown


def _wrong_at(place: str, value: Any, error: Exception) -> _WrongAt:
    """The error of a value at a place, or of what is wrong inside of it."""
    if isinstance(error, _WrongAt):
        return _WrongAt(place + error.place, error.reason, error.shown)
    return _WrongAt(
        place, f"field {error} is missing" if isinstance(error, KeyError) else str(error), f", which is {quote(value)}"
    )


def read_named(readers: Mapping[str, Callable[[Any], Any]], entry: Mapping[str, Any]) -> dict[str, Any]:
    """Fields, each by its reader, or as plain values."""
    fields = {}
    for name, value in entry.items():
        try:
            fields[name] = readers.get(name, from_finite)(value)
        except WRONG as error:
            raise _wrong_at(f".{name}", value, error) from None
    return fields


def read_list(entries: Any) -> tuple[Any, ...]:
    if not isinstance(entries, list):
        raise TypeError("a list is needed")
    return tuple(entries)


def read_all(read: Callable[[Any], Any], entries: Any) -> tuple[Any, ...]:
    entries, made = read_list(entries), []
    for i, entry in enumerate(entries):
        try:
            made.append(read(entry))
        except WRONG as error:
            raise _wrong_at(f"[{i}]", entry, error) from None
    return tuple(made)


def read_written(entry: dict[str, Any], kinds: Any) -> Written:
    """Steps, of a union of kinds, with their buffers and outputs."""
    require_fields(entry, Written.__struct_fields__)
    known = {kind.__struct_config__.tag: kind for kind in get_args(kinds)}

    def read_step(entry: dict[str, Any]) -> Any:
        tag = entry["type"]
        if tag not in known:
            raise TypeError(f"there is no step {quote(tag)}; {list_names(sorted(known), tag, 'steps')}")
        fields = {name: value for name, value in entry.items() if name != "type"}
        return _read(known[tag], fields, {**FIELDS, "steps": partial(read_all, read_step)})  # of a collective

    readers = {
        "buffers": partial(read_each, Buffer),
        "steps": partial(read_all, read_step),
        "outputs": partial(read_each, Output),
    }
    return Written(**read_named(readers, entry))


def _read(kind: Any, entry: dict[str, Any], readers: Mapping[str, Callable[[Any], Any]] | None = None) -> Any:
    """A struct from its fields; regions and pieces by their own readers."""
    require_fields(entry, kind.__struct_fields__)
    return kind(**read_named(FIELDS if readers is None else readers, entry))


def read_each(kind: Any, entries: Sequence[dict[str, Any]]) -> tuple[Any, ...]:
    return read_all(partial(_read, kind), entries)


def read_alternative(entry: dict[str, Any]) -> Alternative:
    """Another sharding of an operator, with what makes the difference."""
    made: Alternative = _read(Alternative, entry, {"causes": partial(read_all, _read_cause), "devices": read_list})
    return made


def _read_cause(entry: dict[str, Any]) -> Any:
    readers: dict[str, Callable[[Any], Any]] = {
        "seconds": read_list,
        "nbytes": read_list,
        "sample": lambda one: one and _read(Sample, one),
        "stage_nbytes": partial(read_all, read_list),
        "runs": read_list,
    }
    return _read(Cause, entry, readers)


def read_mesh(entry: dict[str, Any]) -> Mesh:
    require_fields(entry, Mesh.__struct_fields__)
    fields: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in entry.items()}
    fields["shape"] = read_list(entry["shape"])
    fields["device"] = _read_device(fields["device"])
    if "host" in fields:
        fields["host"] = Link(*fields["host"])
    return Mesh(**{**fields, "link": _read_link(fields["link"])})


def _read_device(entry: Sequence[Any]) -> Device | tuple[Device, ...]:
    """A device for all of a mesh, or one for each."""
    return tuple(Device(*one) for one in entry) if any(isinstance(one, list) for one in entry) else Device(*entry)


def _read_link(entry: Sequence[Any]) -> Link | tuple[Link | str, ...]:
    """A link for all axes of a mesh, or one for each, or the name of an axis that has it."""
    if any(isinstance(link, list) for link in entry):
        return tuple(link if isinstance(link, str) else Link(*link) for link in entry)
    return Link(*entry)


def require_fields(entry: Mapping[str, Any], names: Iterable[str]) -> None:
    missing = set(names) - entry.keys()
    if missing:
        raise ValueError(f"field {quote(min(missing))} is missing")


def _write_choices(choices: Choices) -> dict[str, Any]:
    """Each layout once, and what has it, by its number."""
    numbers: dict[Layout, int] = {}
    places: dict[str, dict[str, int]] = {kind: {} for kind in KINDS}
    for kind in KINDS:
        for name, layout in choices.of_kind(kind).items():
            places[kind][name] = numbers.setdefault(layout, len(numbers))
    layouts = [{name: to_plain(getattr(one, name)) for name in LAYOUT} for one in numbers]
    others = {name: to_plain(getattr(choices, name)) for name in Choices.__struct_fields__ if name != "layouts"}
    return {"layouts": layouts, "places": places, **others}


def read_choices(entry: dict[str, Any]) -> Choices:
    require_fields(entry, {"places", *Choices.__struct_fields__})
    layouts, places = read_all(_read_layout, entry["layouts"]), entry["places"]
    named = {(kind, name): layouts[number] for kind in KINDS for name, number in places[kind].items()}
    others = {name: value for name, value in entry.items() if name not in ("layouts", "places")}
    made = Choices(named, **read_named({}, others))
    if _write_choices(made) != entry:
        raise ValueError("a plan has each of its layouts once, in the order in which they are used")
    return made


def _read_layout(entry: dict[str, Any]) -> Layout:
    require_fields(entry, LAYOUT)
    return Layout(**read_named({"lots": partial(read_all, _read_lot)}, entry))


def _read_lot(entry: dict[str, Any] | None) -> Lot | None:
    if entry is None:
        return None
    require_fields(entry, Lot.__struct_fields__)
    boxes = tuple(Box(tuple(start), tuple(shape)) for start, shape in entry["boxes"])
    return Lot(**{**read_named({}, entry), "boxes": boxes})


def _read_piece(piece: Any) -> Piece | None:
    return None if piece is None else piece_from_dict(piece)


def _read_within(within: Any) -> Within | None:
    return None if within is None else _read(Within, within)


def _read_blocks(blocks: Sequence[Any]) -> tuple[OutputBlock, ...]:
    return tuple((buffer, region_from_dict(region)) for buffer, region in blocks)


FIELDS: dict[str, Callable[[Any], Any]] = {
    "split": partial(read_each, SplitAxis),
    "regions": partial(read_all, region_from_dict),
    "piece": _read_piece,
    "pieces": partial(read_all, _read_piece),
    "blocks": _read_blocks,
    "replicas": _read_blocks,
    "within": _read_within,
}
"""The same of what is in these."""
