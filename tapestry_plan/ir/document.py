"""What a graph's JSON document holds: msgspec reads it, checks the types and refuses unknown fields."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

GRAPH_FORMAT = "tapestry-graph/2"
Word = Annotated[str, msgspec.Meta(min_length=1)]


class TensorEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A stored tensor; a constant by SHA-256 and the path of its file, or a small one by its bytes in hexadecimal."""

    name: Word
    shape: list[int]
    dtype: str
    kind: str
    sha256: str | None = None
    path: str | None = None
    data: str | None = None


class SelectionEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="selection"):
    """A view between operators."""

    select: Word
    label: Word
    inputs: list[Word]
    shape: list[int]
    dtype: str
    pieces: list[dict[str, Any]]


class OperatorEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="operator"):
    """An operator applied to tensors."""

    op: Word
    node: Word
    attrs: dict[str, Any]
    inputs: list[Word]
    outputs: list[Word]


class GraphDocument(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A graph; operators and selections in the order in which they were added."""

    format: str
    name: str
    tensors: list[TensorEntry]
    order: list[SelectionEntry | OperatorEntry]
    outputs: dict[Word, Word]


def read_document(data: Any) -> GraphDocument:
    """Return the document that plain data holds.

    Raises
    ------
    ValueError
        For another format or version, and where a field is missing, unknown or of the wrong type, with its place; or
        two tensors, nodes or selections have one name.
    """
    found = data.get("format") if isinstance(data, dict) else None
    if found != GRAPH_FORMAT:
        raise ValueError(
            f"graph document: format is {found!r}, this version reads {GRAPH_FORMAT!r}; "
            "write it anew with Graph.to_json, from the model or the program that made the graph"
        )
    try:
        document = msgspec.convert(data, GraphDocument)
    except msgspec.ValidationError as error:
        raise ValueError(f"graph document: a field is missing or of the wrong type: {error}") from None
    _check_names_differ([entry.name for entry in document.tensors], "tensors")
    _check_names_differ([entry.node for entry in document.order if isinstance(entry, OperatorEntry)], "nodes")
    _check_names_differ([entry.select for entry in document.order if isinstance(entry, SelectionEntry)], "selections")
    return document


def _check_names_differ(names: list[str], what: str) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ValueError(f"graph document: two {what} are called {name!r}; give each a name of its own")
        seen.add(name)
