"""The JSON document of a graph: msgspec reads it, checks the types and refuses unknown fields."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from math import isfinite
from typing import Annotated, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from tapestry_plan.ir import tuning
from tapestry_plan.ir.tensors import (
    Attrs,
    FoldedNodes,
    OpNode,
    Selection,
    Stored,
    Unread,
    check_dtype,
    check_shape,
    sha256_of,
)
from tapestry_sets.limits import check_format, quote, read_fields
from tapestry_sets.views import piece_from_dict, piece_to_dict

GRAPH_FORMAT = "tapestry-graph/2"
WHAT = "graph document"
ANEW = "write it anew with Graph.to_json, from the model or the program that made the graph"
Word = Annotated[str, msgspec.Meta(min_length=1)]
Count = Annotated[int, msgspec.Meta(ge=0)]


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


class UnreadEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """An input that the graph does not read; null stands for any extent."""

    shape: list[int | None] | None = None
    dtype: str | None = None
    sha256: str | None = None


class FoldedEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What was computed when the graph's model was read: nodes, and bytes of the constants that they made."""

    nodes: Count
    nbytes: Count


class GraphDocument(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A graph; operators and selections in the order in which they were added."""

    format: str
    name: str
    tensors: list[TensorEntry]
    order: list[SelectionEntry | OperatorEntry]
    outputs: dict[Word, Word]
    unread: dict[Word, UnreadEntry] = {}
    folded: FoldedEntry | None = None


def read_document(data: Any) -> GraphDocument:
    """Return the document that plain data holds.

    Raises
    ------
    ValueError
        For another format or version, and where a field is missing, unknown or of the wrong type, with its place; or
        two tensors, nodes or selections have one name.
    """
    check_format(data, WHAT, GRAPH_FORMAT, ANEW)
    document = read_fields(data, GraphDocument, WHAT, "write it anew with Graph.to_json")
    _check_names_differ([entry.name for entry in document.tensors], "tensors")
    _check_names_differ([entry.node for entry in document.order if isinstance(entry, OperatorEntry)], "nodes")
    _check_names_differ([entry.select for entry in document.order if isinstance(entry, SelectionEntry)], "selections")
    return document


def _check_names_differ(names: list[str], what: str) -> None:
    for name, count in Counter(names).items():
        if count > 1:
            raise ValueError(f"graph document: two {what} are called {quote(name)}; give each a name of its own")


def write_tensor(tensor: Stored) -> TensorEntry:
    """The entry of a stored tensor."""
    sha256 = data = None
    if tensor.kind == "constant":
        sha256 = tensor.sha256 or sha256_of(tensor.data)
        if not tensor.path and tensor.data is not None and tensor.data.nbytes <= tuning.CARRIED_NBYTES:
            data = np.ascontiguousarray(tensor.data).tobytes().hex()
    return TensorEntry(tensor.name, list(tensor.shape), tensor.dtype, tensor.kind, sha256, tensor.path or None, data)


def write_unread(one: Unread) -> UnreadEntry:
    """The entry of an input that is not read."""
    return UnreadEntry(None if one.shape is None else list(one.shape), one.dtype, one.sha256)


def read_unread(entry: UnreadEntry) -> Unread:
    """The input of an entry."""
    return Unread(None if entry.shape is None else tuple(entry.shape), entry.dtype, entry.sha256)


def write_folded(folded: FoldedNodes | None) -> FoldedEntry | None:
    """The entry of what was computed when a model was read."""
    return None if folded is None else FoldedEntry(folded.nodes, folded.nbytes)


def read_folded(entry: FoldedEntry | None) -> FoldedNodes | None:
    """What was computed, of an entry."""
    return None if entry is None else FoldedNodes(entry.nodes, entry.nbytes)


def write_item(item: Selection | OpNode) -> SelectionEntry | OperatorEntry:
    """The entry of a selection or a node."""
    if isinstance(item, Selection):
        pieces = [piece_to_dict(piece) for piece in item.pieces]
        return SelectionEntry(item.name, item.label, list(item.inputs), list(item.shape), item.dtype, pieces)
    attrs = {key: finite(value) for key, value in item.attrs.items()}
    return OperatorEntry(item.op, item.name, attrs, list(item.inputs), list(item.outputs))


def read_tensor(entry: TensorEntry) -> Stored:
    """The stored tensor of an entry, its data checked."""
    what = f"tensor {quote(entry.name)}"
    shape, dtype = check_shape(entry.shape, what), check_dtype(entry.dtype, f"{what}: ")
    for field in ("data", "path", "sha256"):
        if entry.kind != "constant" and getattr(entry, field) is not None:
            raise ValueError(f"{what} is of kind {quote(entry.kind)} and has {field}, as constants alone have")
    data: NDArray[Any] | None = None
    if entry.data is not None:
        try:
            data = np.frombuffer(bytes.fromhex(entry.data), dtype).reshape(shape)
        except ValueError as error:
            raise ValueError(
                f"{what}: data is not the bytes of {dtype}{quote(shape)} in hexadecimal: {error}"
            ) from None
        if sha256_of(data) != entry.sha256:
            raise ValueError(f"{what}: data has another SHA-256 than the document says; write the document again")
    return Stored(entry.name, shape, dtype, entry.kind, data, entry.path, entry.sha256)  # type: ignore[arg-type]


def read_selection(entry: SelectionEntry) -> Selection:
    """The selection of an entry."""
    try:
        pieces = tuple([piece_from_dict(piece) for piece in entry.pieces])
    except ValueError as error:
        raise ValueError(f"graph document: selection {quote(entry.select)}: {error}") from None
    return Selection(entry.select, entry.label, tuple(entry.inputs), tuple(entry.shape), entry.dtype, pieces)


def read_node(entry: OperatorEntry, complete: Callable[[Attrs], Attrs]) -> OpNode:
    """The node of an entry, its attributes completed by the defaults of its operator."""
    attrs = {key: from_finite(value) for key, value in entry.attrs.items()}
    return OpNode(entry.node, entry.op, complete(attrs), tuple(entry.inputs), tuple(entry.outputs))


def finite(value: Any) -> Any:
    """A value as JSON can hold it: tuples as lists, and numbers that are not finite as {"float": "-inf"}."""
    if isinstance(value, tuple | list):
        return [finite(item) for item in value]
    return {"float": str(value)} if isinstance(value, float) and not isfinite(value) else value


def from_finite(value: Any) -> Any:
    """The value that `finite` wrote down; lists come as tuples."""
    if isinstance(value, list):
        return tuple(from_finite(item) for item in value)
    return float(value["float"]) if isinstance(value, dict) and set(value) == {"float"} else value
